"""Captured arrays become Variables for the length of one call, and hold plain data after it.

A `Shadow` rebuilds the user's function with other surroundings: each float array that the function can reach (closure cells,
globals, defaults, attributes, containers, and through helper functions reached the same way) is replaced by a Variable over
the same memory, which is copied at the first write and written back at the end; the names of NumPy, CuPy and SciPy mean their
twins in tapegrad.  Nothing of the user's is altered meanwhile, so threads do not see each other.

Globals are looked up when the code first asks for them (`Globals.__missing__`), so what a call does not reach costs nothing.
Everything that was replaced is remembered in `Shadow.seen` by identity, so that aliases stay aliases, cycles end, and values
that the function rebound (globals, nonlocals, attributes, members of lists and dicts) are handed back as plain ones.

Reading order: `Globals`, `Shadow.__call__` (what becomes what), then one method for each kind of object, then `restore`."""

import functools
import sys
import types
from typing import Any

import numpy as np

from . import _random, _twins
from ._array import is_array, xp_of
from ._loans import lend
from ._primitive import OPEN, is_tracked, live, view
from ._tree import Const
from ._variable import Variable, View, bottom, variable
from .errors import DroppedDerivativeError

ATOMS = frozenset((float, int, bool, complex, str, bytes, type(None), type(Ellipsis), slice, range, np.dtype, np.float64, np.int64))
FOREIGN = frozenset(sys.stdlib_module_names) | {
    "numpy", "scipy", "cupy", "cupyx", "cupy_backends", "numba", "llvmlite", "tapegrad", "torch", "jax", "jaxlib", "tensorflow",
    "pandas", "matplotlib", "pytest", "_pytest", "hypothesis", "tqdm", "h5py",
}  # fmt: skip
OWN = frozenset(("__main__", "__mp_main__"))


def is_foreign(module: str | None) -> bool:
    """Is the code of this module left alone?  (`__main__` and unnamed modules are the user's.)"""
    return module is not None and module not in OWN and module.partition(".")[0] in FOREIGN


class Globals(dict):
    """The globals of rebuilt functions of one module: each name is looked up in the module and shadowed at its first use."""

    __slots__ = ("real", "shadow")

    def __init__(self, real, shadow):
        super().__init__()
        self.real, self.shadow = real, shadow

    def __missing__(self, name):
        value = self.real[name]
        if self.shadow is None:  # the call has ended; this function leaked out of it
            return value
        new = self.shadow(value)
        dict.__setitem__(self, name, new)
        self.shadow.names.append((self, name, value, new))
        return new


class Module:
    """A user's module seen from a rebuilt function."""

    def __init__(self, real, shadow):
        self.__dict__.update(_tg_real=real, _tg_shadow=shadow)

    def __getattr__(self, name):
        value = getattr(self._tg_real, name)
        shadow = self._tg_shadow
        if shadow.seen is None:
            return value
        new = shadow(value)
        self.__dict__[name] = new
        shadow.attributes.append((self._tg_real, self.__dict__, name, value, new))
        return new


class Shadow:
    """A context: `with Shadow(f, args, on) as (g, args)`, in which g is to be called once."""

    __slots__ = (
        "f",
        "args",
        "on",
        "seen",
        "hold",
        "arrays",
        "names",
        "cells",
        "attributes",
        "lists",
        "objects",
        "classes",
        "borrowed",
        "__weakref__",
    )

    def __init__(self, f: Any, args: list, on: bool = True):
        if isinstance(f, Const):
            f, on = f.value, False
        self.f, self.args, self.on = f, args, on

    def __enter__(self):
        OPEN.depth = getattr(OPEN, "depth", 0) + 1
        if not self.on:
            return self.f, self.args
        self.seen: dict = {}  # id of what was replaced -> what it became
        self.hold: list = []  # keeps those objects alive, so that no id is given twice
        self.arrays: list = []  # (array, Variable)
        self.names: list = []  # (Globals, name, value, shadow)
        self.cells: list = []  # (cell, new cell, value, shadow)
        self.attributes: list = []  # (object, new namespace, name, value, shadow)
        self.lists: list = []  # (container, new container)
        self.objects: list = []  # (object, new object)
        self.classes: dict = {}  # shadow class -> class
        self.borrowed = False
        try:
            g = self(self.f)
            self.borrowed = True  # arguments are values: nothing is written back to them
            args = [self(a) for a in self.args]
            self.borrowed = False
            OPEN.shadows = (*getattr(OPEN, "shadows", ()), self)
            return g, args
        except BaseException as error:
            self.__exit__(type(error))
            raise

    def __exit__(self, *error):
        OPEN.depth -= 1
        OPEN.shadows = tuple([s for s in getattr(OPEN, "shadows", ()) if s is not self])
        if error and error[0] is not None:
            self.finish()

    def finish(self) -> None:
        """Hand back what the function wrote.  Records may hold captured memory: so only once the backward sweep is done, or
        after `release`."""
        if self.on:
            self.on = False
            restore(self)

    def release(self, records: list) -> None:
        """Give records that outlive the call copies of their own of captured memory."""
        if not self.on or not self.arrays:
            return
        captured = {memory_of(array) for array, _ in self.arrays}

        def own(v):
            return v.copy(order="K") if is_array(v) and memory_of(v) in captured else v

        for k, r in enumerate(records):
            if any(is_array(v) and memory_of(v) in captured for v in r[4:]):
                records[k] = r[:4] + tuple([own(v) for v in r[4:]])
            elif type(r[5]) is list:
                r[5][:] = [own(v) for v in r[5]]

    # --- what becomes what ---

    def __call__(self, x: Any) -> Any:
        kind = type(x)
        if kind in ATOMS:
            return x
        found = self.seen.get(id(x))
        if found is not None:
            return found
        make = MAKERS.get(kind)
        if make is None:
            make = self.maker(x, kind)
            if make is None:
                return x
        new = make(self, x)
        if new is not x:
            self.seen[id(x)] = new
            self.hold.append(x)
        return new

    def maker(self, x: Any, kind: type) -> Any:
        """How an object of a kind that is not in the table is shadowed; None: left alone."""
        if isinstance(x, np.ndarray):
            return None  # a subclass: left alone
        if is_array(x):
            return Shadow.array
        if isinstance(x, type):
            return Shadow.klass
        if hasattr(kind, "py_func"):
            return Shadow.compiled
        if kind.__module__.startswith("numba") and hasattr(x, "py_func"):
            return Shadow.compiled
        if isinstance(x, np.ufunc):
            return Shadow.library
        if isinstance(x, (tuple, list, dict)) and not is_foreign(kind.__module__):
            return Shadow.named_tuple if hasattr(kind, "_fields") else None
        if not is_foreign(kind.__module__) and self.shadowable(kind):
            return Shadow.instance
        if callable(x) and getattr(x, "__module__", None) and x.__module__.partition(".")[0] in ("numpy", "scipy", "cupy", "cupyx"):
            return Shadow.library
        return None

    def handle(self, x: Variable) -> Any:
        """A Variable of an outer transform stays what it is, and is remembered: `Back` must not take it for one made inside."""
        self.seen[id(x)] = x
        self.hold.append(x)
        return x

    def array(self, x: Any) -> Any:
        """A float array as a Variable over the same memory; arrays that overlap as views of one base."""
        if x.dtype.kind not in "fc":
            return x
        root = x
        while is_array(root.base):
            root = root.base
        # A view whose root nobody else refers to (three references: x.base, here, and the count itself) overlaps nothing.
        if root is not x and sys.getrefcount(root) > 3:
            return self.window(x, root)
        v = variable(x)
        v._saved = True
        v._version = 0
        if not self.borrowed:
            self.arrays.append((x, v))
        return v

    def window(self, x: Any, root: Any) -> Any:
        """One of several views of one memory, as a view of the Variable that stands for all of it."""
        address = (lambda a: a.__array_interface__["data"][0]) if xp_of(x) is np else (lambda a: a.data.ptr)
        offset, whole = address(x) - address(root), self(root)
        if root.dtype == x.dtype and root.flags.forc:
            return view(whole, ("window", (x.shape, offset, x.strides)))
        part, size = offset % root.itemsize, x.itemsize
        if root.dtype.kind == "c" and root.itemsize == 2 * size and part in (0, size) and root.flags.forc:
            return view(view(whole, ("window", (x.shape, offset - part, x.strides))), ("imag" if part else "real", None))
        return x

    def function(self, f: Any) -> Any:
        space = f.__globals__
        closure = f.__closure__
        if "remake" in f.__dict__ and space.get("__name__") == "tapegrad._transforms":
            g = self(f.of)
            return f if g is f.of else f.remake(g)
        twin = _twins.function(f)
        if twin is not None:
            return twin
        if type(space) is not Globals and is_foreign(space.get("__name__")) and not f.__code__.co_filename.startswith("<doctest"):
            return self.library(f)
        mine = self.globals_of(space)
        if mine is space and not closure:
            return f
        g = types.FunctionType(f.__code__, mine, f.__name__, None, closure and tuple([self.cell(c) for c in closure]))
        self.seen[id(f)] = g  # before the cells are filled: a function may capture itself
        self.hold.append(f)
        for c in closure or ():
            self.fill(c)
        if f.__defaults__:
            g.__defaults__ = tuple([self(d) for d in f.__defaults__])
        if f.__kwdefaults__:
            g.__kwdefaults__ = {k: self(d) for k, d in f.__kwdefaults__.items()}
        g.__qualname__, g.__module__ = f.__qualname__, f.__module__
        if f.__dict__:
            g.__dict__.update({k: v for k, v in f.__dict__.items() if k != "__wrapped__"})
        return g

    def globals_of(self, space: dict) -> dict:
        if type(space) is Globals:  # rebuilt already for an outer transform; its closure may have captured since
            return space
        mine = self.seen.get(id(space))
        if mine is None:
            mine = self.seen[id(space)] = Globals(space, self)
            self.hold.append(space)
        return mine

    def cell(self, c: Any) -> Any:
        new = self.seen.get(id(c))
        if new is None:
            new = self.seen[id(c)] = types.CellType()
            self.hold.append(c)
        return new

    def fill(self, c: Any) -> None:
        new = self.seen[id(c)]
        try:
            value = c.cell_contents
        except ValueError:  # empty yet
            if not any(n is new for _, n, _, _ in self.cells):
                self.cells.append((c, new, EMPTY, EMPTY))
            return
        try:
            new.cell_contents  # noqa: B018
        except ValueError:
            shadow = self(value)
            new.cell_contents = shadow
            self.cells.append((c, new, value, shadow))

    def method(self, m: Any) -> Any:
        owner = self(m.__self__)
        if type(m.__self__) in _random.KINDS:
            return getattr(owner, m.__name__)
        f = self(m.__func__)
        return m if owner is m.__self__ and f is m.__func__ else types.MethodType(f, owner)

    def partial(self, p: Any) -> Any:
        return functools.partial(self(p.func), *[self(a) for a in p.args], **{k: self(v) for k, v in p.keywords.items()})

    def cached(self, c: Any) -> Any:
        """lru_cache would keep Variables from one call to the next."""
        return self(c.__wrapped__)

    def compiled(self, d: Any) -> Any:
        """An @njit function: on tracked values it runs as its Python function."""

        def call(*args, **kwargs):
            if any(is_tracked(a) for a in args) or any(is_tracked(a) for a in kwargs.values()):
                return self(d.py_func)(*args, **kwargs)
            return d(*lend(args), **{k: lend(a) for k, a in kwargs.items()})

        return call

    def const(self, c: Any) -> Any:
        return c.value

    def module(self, m: Any) -> Any:
        twin = _twins.module(m)
        if twin is not None:
            return twin
        return m if is_foreign(m.__name__) else Module(m, self)

    def library(self, f: Any) -> Any:
        return _twins.function(f) or f

    def list_(self, x: list) -> Any:
        if ATOMS.issuperset(map(type, x)):
            self.lists.append((x, x, None))
            return x
        new: list = []
        self.seen[id(x)] = new
        self.hold.append(x)
        new.extend([self(v) for v in x])
        self.lists.append((x, new, list(new)))
        return new

    def tuple_(self, x: tuple) -> Any:
        new = tuple([self(v) for v in x])
        return x if all(a is b for a, b in zip(x, new, strict=True)) else new

    def named_tuple(self, x: Any) -> Any:
        new = [self(v) for v in x]
        return x if all(a is b for a, b in zip(x, new, strict=True)) else type(x)(*new)

    def dict_(self, x: dict) -> Any:
        if ATOMS.issuperset(map(type, x.values())):
            self.lists.append((x, x, None))
            return x
        new: dict = {}
        self.seen[id(x)] = new
        self.hold.append(x)
        new.update({k: self(v) for k, v in x.items()})
        self.lists.append((x, new, dict(new)))
        return new

    # --- objects and classes ---

    def shadowable(self, c: type) -> bool:
        """Can a class be rebuilt?  Plain Python classes, all the way up, whose making has no side effects."""
        if type(c).__name__ not in ("type", "ABCMeta") or c is object:
            return False
        ours = [b for b in c.__mro__ if b is not object and b.__name__ not in ("ABC", "Generic", "Protocol")]
        return all(b.__flags__ & HEAP and not is_foreign(b.__module__) and "__init_subclass__" not in b.__dict__ for b in ours)

    def klass(self, c: type) -> Any:
        if is_foreign(c.__module__):
            return _twins.function(c) or c
        if not self.shadowable(c) or issubclass(c, BaseException) or c in self.classes:
            return c
        shadows = [self(b) for b in c.__bases__ if b is not object]
        bases = tuple([b for b in shadows if b not in c.__bases__]) + (c,)
        free = POOL.setdefault(c, [])
        if free:
            new = free.pop()
            if new.__bases__ != bases:
                new.__bases__ = bases
        else:
            space = {"__slots__": (), "__module__": c.__module__, "__qualname__": c.__qualname__, "__doc__": c.__doc__}
            new = type(c)(c.__name__, bases, space)
        self.seen[id(c)] = new
        self.hold.append(c)
        self.classes[new] = c
        for name, value in list(c.__dict__.items()):
            if name in SPECIAL:
                continue
            made = self.member(value)
            if made is not value:
                setattr(new, name, made)
                self.attributes.append((c, None, name, value, made))
        return new

    def member(self, m: Any) -> Any:
        kind = type(m)
        if kind is staticmethod or kind is classmethod:
            return kind(self(m.__func__))
        if kind is property:
            return property(*[g and self(g) for g in (m.fget, m.fset, m.fdel)])
        if kind is functools.cached_property:
            new = functools.cached_property(self(m.func))
            new.attrname = m.attrname
            return new
        return self(m)

    def instance(self, x: Any) -> Any:
        kind = type(x)
        if kind in self.classes:
            return x
        c = self(kind)
        if c is kind:
            return x
        try:
            new = object.__new__(c)
        except TypeError:
            return x
        self.seen[id(x)] = new
        self.hold.append(x)
        before = {}
        for name in attribute_names(x):
            try:
                value = object.__getattribute__(x, name)
            except AttributeError:
                continue
            shadow = self(value)
            before[name] = shadow
            object.__setattr__(new, name, shadow)
        self.objects.append((x, new, before))
        return new


# Shadow classes at rest.  A class is a cycle, so one made for each call would be left to the cyclic collector; those of
# earlier calls, emptied, serve again.
POOL: dict = {}
SPECIAL = frozenset((
    "__dict__", "__weakref__", "__module__", "__doc__", "__slots__", "__qualname__", "__abstractmethods__", "_abc_impl",
    "__static_attributes__", "__firstlineno__", "__annotations__", "__parameters__", "__orig_bases__", "__match_args__",
    "__dataclass_fields__", "__dataclass_params__",
))  # fmt: skip
EMPTY = object()
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by Python code
MAKERS = {
    np.ndarray: Shadow.array,
    Variable: Shadow.handle,
    View: Shadow.handle,
    types.FunctionType: lambda shadow, f: shadow.function(f),
    types.BuiltinFunctionType: Shadow.library,
    types.MethodType: Shadow.method,
    types.ModuleType: Shadow.module,
    np.ufunc: Shadow.library,
    functools.partial: Shadow.partial,
    type(functools.lru_cache(len)): Shadow.cached,
    list: Shadow.list_,
    tuple: Shadow.tuple_,
    dict: Shadow.dict_,
    Const: Shadow.const,
    np.random.Generator: lambda shadow, x: _random.ours_of(x),
    np.random.RandomState: lambda shadow, x: _random.ours_of(x),
    type: Shadow.klass,
}


def memory_of(x: Any) -> int:
    """The block of memory in which a plain array lies."""
    if xp_of(x) is not np:
        return x.data.mem.ptr
    while isinstance(x.base, np.ndarray):
        x = x.base
    return id(x)


def attribute_names(x: Any) -> list:
    names = list(getattr(x, "__dict__", ()))
    for c in type(x).__mro__:
        slots = c.__dict__.get("__slots__", ())
        names += [s for s in ((slots,) if isinstance(slots, str) else slots) if s not in ("__dict__", "__weakref__")]
    return names


# --- afterwards: what the function wrote, as plain data, where a plain call would have left it ---


def restore(shadow: Shadow) -> None:
    lost = None
    for array, v in shadow.arrays:
        if not getattr(v, "_version", 0):
            continue
        v = live(v)
        now = bottom(v)
        if v._trace is not None:
            lost = array
        elif now is not array:
            array[...] = now
    back = Back(shadow)
    for space, name, value, _ in shadow.names:
        if name in space and space[name] is not shadow.seen.get(id(value), value):
            space.real[name] = back(space[name])
    known = {(id(s), n) for s, n, _, _ in shadow.names}
    for space in [s for s in shadow.seen.values() if type(s) is Globals]:
        for name, value in list(dict.items(space)):
            if (id(space), name) not in known and name != "__builtins__":
                space.real[name] = back(value)  # a global made by the function
    for cell, new, value, first in shadow.cells:
        restore_cell(cell, new, value, first, back)
    for owner, space, name, _value, first in shadow.attributes:
        now = space.get(name, first) if space is not None else first
        if now is not first:
            setattr(owner, name, back(now))
    for x, new, first in shadow.lists:
        restore_container(x, new, first, back)
    for x, new, before in shadow.objects:
        restore_object(x, new, before, back)
    for new, c in shadow.classes.items():
        for name in [n for n in new.__dict__ if n in c.__dict__ and n not in SPECIAL]:
            delattr(new, name)
        POOL[c].append(new)
    for space in [s for s in shadow.seen.values() if type(s) is Globals]:
        space.shadow = None
        space.clear()
    shadow.seen = shadow.arrays = shadow.names = shadow.cells = shadow.attributes = None
    shadow.lists = shadow.objects = shadow.classes = shadow.hold = None
    if lost is not None:
        raise DroppedDerivativeError(
            f"an inner transform wrote a value that an outer transform watches into a plain array of shape {lost.shape}, which "
            "cannot hold its derivative; make the array with numpy.zeros(n, like=x) or outside of the outer function"
        )


def restore_cell(cell, new, value, first, back):
    """Hand a rebound nonlocal back, and leave the new cell with the plain value: a cycle through it ends here."""
    try:
        now = new.cell_contents
    except ValueError:
        return
    if now is not first:
        value = back(now)
        cell.cell_contents = value
    if value is not EMPTY:
        new.cell_contents = value


def restore_container(x, new, first, back):
    if first is None:  # it held only numbers and strings, and was not replaced
        if isinstance(x, list):
            if not ATOMS.issuperset(map(type, x)):
                x[:] = [back(v) for v in x]
        elif not ATOMS.issuperset(map(type, x.values())):
            x.update({k: back(v) for k, v in x.items()})
        return
    if isinstance(x, list):
        if len(first) != len(new) or any(a is not b for a, b in zip(first, new, strict=True)):
            x[:] = [back(v) for v in new]
        new.clear()
    else:
        if first.keys() != new.keys() or any(first[k] is not new[k] for k in new):
            changed = {k: back(v) for k, v in new.items()}
            x.clear()
            x.update(changed)
        new.clear()


def restore_object(x, new, before, back):
    for name in attribute_names(new):
        try:
            now = object.__getattribute__(new, name)
        except AttributeError:
            continue
        if name not in before or now is not before[name]:
            object.__setattr__(x, name, back(now))
    for name in before:
        if not hasattr(new, name) and hasattr(x, name):
            object.__delattr__(x, name)
    if hasattr(new, "__dict__"):
        new.__dict__.clear()


class Back:
    """The way back: a shadow as what it stood for, a Variable as its plain value, a leaked object as one of the user's class."""

    def __init__(self, shadow):
        self.shadow = shadow
        self.original = {id(new): old for old in shadow.hold if (new := shadow.seen.get(id(old))) is not None}
        self.memo: dict = {}

    def __call__(self, v: Any) -> Any:
        if type(v) in ATOMS:
            return v
        if id(v) in self.original:
            return self.original[id(v)]
        if id(v) in self.memo:
            return self.memo[id(v)][1]
        new = self.plain(v)
        self.memo[id(v)] = v, new
        return new

    def plain(self, v: Any) -> Any:
        if isinstance(v, Variable):
            v = live(v)
            if v._trace is not None:
                return v  # a value of an outer transform stays what it is
            b = bottom(v)
            return b.copy() if is_array(b) else b
        if type(v) is list:
            v[:] = [self(e) for e in v]
        elif type(v) is tuple:
            new = tuple([self(e) for e in v])
            return v if all(a is b for a, b in zip(v, new, strict=True)) else new
        elif type(v) is dict:
            v.update({k: self(e) for k, e in v.items()})
        elif type(v) in self.shadow.classes:
            v.__class__ = self.shadow.classes[type(v)]
            self.memo[id(v)] = v, v
            for name in attribute_names(v):
                if hasattr(v, name):
                    object.__setattr__(v, name, self(object.__getattribute__(v, name)))
        return v
