"""The walk from functions to all objects that their code can read, and its check."""

import collections
import copy
import copyreg
import dis
import functools
import gc
import io
import itertools
import logging
import operator
import pickle
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from ..._core.arrays import IMMUTABLE, is_array
from ..._core.errors import Attempt, let_through
from ..._core.pickling import PickledByCall
from ..._core.primitive import values_of
from ..._core.registry import FROZEN
from ..._core.trees import Const
from ..._core.variable import Variable
from ..._dispatch.stand_ins import function_stand_in
from ...ops.protocols import is_of_elements
from .. import is_foreign
from ..builtin import codes_in
from ..kinds import module_of
from ..objects import GENERATORS, KINDS, NAMES, kind_of, parts_of, unlisted
from ..routes import BUFFERS, leads_away
from .names import (
    ANYTHING,
    CLOCKS,
    DRAWING,
    HARMLESS,
    HOLDING,
    LEVELS,
    MAKING,
    NEUTRAL,
    OF_CLASSES,
    OURS,
    OUTSIDE,
    READERS,
    SYNTAX,
    TRUSTED,
    UNASKED,
    UNCHANGING,
    UNSEEN,
    VALUES,
    codes_of,
    globals_of,
    is_closed,
    is_left,
    is_trusted,
    module_root,
    outer_names,
    words,
)

FIXED = (  # immutable, except for the object that it is bound to
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MethodWrapperType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, types.CodeType, np.ufunc, np.dtype,
    type(np.mean),
)  # fmt: skip
BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)
UNCHANGEABLE = (tuple, types.MethodType)  # kinds whose objects always hold the same objects
MOST_WALKED_OBJECTS = 20_000  # objects that are compared; above it the walk is unknown
MOST_WALKED_PARTS = 10 * MOST_WALKED_OBJECTS  # numbers, strings and references
# registries of copy and pickle, by which packages copy their classes
REDUCERS = frozenset(
    [id(copyreg.dispatch_table), *[id(vars(copy)[n]) for n in ("_copy_dispatch", "_deepcopy_dispatch")]]
)


READS_ID = "id()"  # among the names of code that calls `id`: an equal object does not stand for another
CATCHING = dis.opmap["PUSH_EXC_INFO"]  # opcodes stand at even places


class IdentityKey:
    """A key that equals only the key of the same object."""

    __slots__ = ("x",)

    def __init__(self, x: Any):
        self.x = x

    def __eq__(self, other: object) -> bool:
        return type(other) is IdentityKey and self.x is other.x

    __hash__: Any = None


def may_catch(walk: "DependencyWalk") -> bool:
    """Can code that this walk met catch an exception?"""
    classes = [c for kind, _ in walk.classes for c in kind.__mro__ if not is_left(c)]
    methods = [c.__dict__[n] for c in classes for n in UNASKED.intersection(c.__dict__)]
    codes = [
        code
        for f in (*walk.hold, *methods)
        if isinstance(f, types.FunctionType)
        for code in codes_in(f.__code__)
    ]
    return walk.unknown is not None or any([CATCHING in code.co_code[::2] for code in codes])


@functools.lru_cache(64)
def compiled_text(text: str) -> types.CodeType:
    """Compile the text of a check. Value and gradient of a function often have the same text."""
    return compile(text, "<what a function reads>", "exec")


class DependencyWalk:
    """One walk from `roots`, which follows attributes with these `names`.

    `read_anew` tells of an array whether each run reads it anew; then only its layout is compared, and
    `Const` is not looked into. `apart` lists attributes, as (id of the object, name), that are neither
    followed nor compared. A walk ends at the first unknown object, unless it is `whole`.

    Attributes
    ----------
    form : list
        What two walks share if the same values would be read.
    unknown : str or None
        The first object that cannot be compared.
    found : set
        Names that the code met so far uses. A walk is complete if `names` has all of them."""

    whole = False

    def __init__(
        self, roots: list, names: frozenset, read_anew: Callable | None = None, apart: Collection = ()
    ):
        self.names, self.read_anew = names, read_anew
        self.apart: dict = {}
        for x, name in apart:
            self.apart.setdefault(x, set()).add(name)
        self.found: set = set()
        self.all = not ANYTHING.isdisjoint(names)
        self.levels = not LEVELS.isdisjoint(names)  # are levels of loggers read?
        self.readers = READERS | {"getLogger"} if self.levels else READERS
        self.unknown: str | None = None  # what of it cannot be told
        for name in sorted(UNSEEN.intersection(names)):
            self.doubt(f"what the code reads by `{name}`")
        self.form: list = []
        self.decided: list = []  # (array, the answer of `read_anew`)
        self.arrays: list = []  # compared by their content
        self.layouts: list = []  # and by their layout only
        self.sources: list = []  # of random numbers
        self.place: dict = {}
        self.hold: list = []
        self.classes: set = set()
        self.lines: list = []
        self.given: dict = {"is_": operator.is_, **NAMES}
        self.todo = list(roots)[::-1]
        while (
            self.todo
            and len(self.hold) < MOST_WALKED_OBJECTS
            and len(self.form) < MOST_WALKED_PARTS
            and (self.whole or self.is_sure())
        ):
            try:
                self.visit(self.todo.pop())
            except Exception as error:
                let_through(error)
                self.doubt(f"an object that cannot be looked at ({type(error).__name__}: {error})")
        if len(self.hold) >= MOST_WALKED_OBJECTS or len(self.form) >= MOST_WALKED_PARTS:
            self.doubt(f"more than {MOST_WALKED_OBJECTS} objects")

    def is_sure(self) -> bool:
        return self.unknown is None and UNSEEN.isdisjoint(self.found)

    # --- what is written down ---

    def doubt(self, what: Any) -> None:
        """Note that `what`, a text or an object, cannot be compared."""
        if self.unknown is None:
            kind = type(what)
            self.unknown = (
                what if kind is str else f"an object of the class {module_of(kind)}.{kind.__qualname__}"
            )

    def name(self, x: Any) -> str:
        key = f"x{len(self.given)}"
        self.given[key] = x
        return key

    def expect(self, text: str, *given: Any) -> None:
        """Add a condition to the check; {0}, {1} ... stand for the objects given."""
        self.lines.append(text.format(*[self.name(x) for x in given]))

    def check(self) -> Callable:
        """Return a function that tells whether everything is as it was found.

        It compares identities, so False may also mean other objects of equal value."""
        if self.unknown is not None:
            return bool
        held = " and ".join([f"({line})" for line in self.lines]) or "True"
        text = f"def same():\n  try: return {held}\n  except Exception: return False"
        exec(compiled_text(text), self.given)
        return self.given.pop("same")  # which would keep itself alive

    def follow(self, values: Iterable) -> None:
        self.todo.extend(list(values)[::-1])

    # --- what becomes of what ---

    def visit(self, x: Any) -> None:
        kind = type(x)
        if id(x) in REDUCERS:
            return
        if kind in IMMUTABLE or isinstance(x, np.generic):
            self.form.append((kind, repr(x)))  # nan is equal to itself, and 0.0 is not -0.0
            return
        known = self.place.get(id(x))
        if known is not None:
            self.form.append(known)
            return
        self.place[id(x)] = len(self.place)
        self.hold.append(x)  # its id is not given to another object
        # a call writes into what is set apart: an equal object does not stand for it
        self.form.append(IdentityKey(x) if id(x) in self.apart or READS_ID in self.names else kind)
        if self.read_anew is not None and is_array(x):
            self.decided.append((x, self.read_anew(x)))
            if self.decided[-1][1]:
                self.layout(x)
                return
        for kinds, handle in HANDLERS:
            if isinstance(x, kinds):
                handle(self, x)
                return
        self.instance(x)

    def fixed(self, x: Any) -> None:
        self.form.append(IdentityKey(x))
        if isinstance(x, np.ufunc) and is_of_elements(x):
            self.doubt(f"the function that {x!r} was made of")
        owner = getattr(x, "__self__", None)
        module = getattr(x, "__module__", None)
        if isinstance(x, BOUND) and not isinstance(owner, (types.ModuleType, type(None))):
            self.follow([owner])  # such as buffer.fill
        elif (
            type(x) is types.BuiltinFunctionType
            and module is not None
            and not is_trusted(module)
            and x not in NEUTRAL
        ):
            self.doubt(f"the function {module}.{x.__name__}")

    def names_of(self, space: Any) -> list:
        if self.all:
            return [
                k for k in space if k in self.names or not (isinstance(k, str) and k[:2] == "__" == k[-2:])
            ]
        return sorted(self.names.intersection(space))

    def expect_names(self, path: str, holder: Any, names: list, values: list) -> None:
        if len(names) == 1:
            self.expect(path + "[{1}] is {2}", holder, names[0], values[0])
        elif names:
            found = f"all(map(is_, {{1}}({path}), {{2}}))"
            self.expect(found, holder, operator.itemgetter(*names), tuple(values))

    def space(self, path: str, holder: Any, space: Any, names: list, absent: Iterable) -> None:
        """Follow and compare names of a namespace; `absent` names must stay absent."""
        values = [space[n] for n in names]
        self.form.append(tuple(names))
        self.expect_names(path, holder, names, values)
        absent = frozenset(absent).difference(names, OF_CLASSES)
        if absent:
            self.expect(path + ".keys().isdisjoint({1})", holder, absent)
        if self.all:
            self.expect(f"len({path}) == {len(space)}", holder)
        self.follow(values)

    def module(self, m: types.ModuleType) -> None:
        space = vars(m)
        if is_trusted(m.__name__):  # nothing else than its numbers, math.pi for one
            self.form.append(IdentityKey(m))
            drawn: dict = {random: [random._inst], np.random: [np.random.mtrand._rand]}
            self.sources += drawn.get(m, [])
            self.follow([m.random] if m.__name__ in ("numpy", "cupy") and "random" in self.names else [])
            if m.__name__ in DRAWING:
                self.doubt(f"random numbers of {m.__name__}")
            numbers = sorted(
                [n for n in self.names.intersection(space) if type(space[n]) in (int, float, bool)]
            )
            self.form.append([repr(space[n]) for n in numbers])
            self.expect_names("{0}.__dict__", m, numbers, [space[n] for n in numbers])
            return
        if is_closed(m.__name__):
            self.doubt(f"the package {m.__name__}")
            return
        everything, self.all = self.all, self.all and not is_foreign(m.__name__)
        names = self.names_of(space)
        extra = [n for n in ("__getattr__",) if n in space and n not in names]
        self.space("{0}.__dict__", m, space, names + extra, self.names)
        self.all = everything

    def function(self, f: types.FunctionType) -> None:
        space = globals_of(f)
        module: Any = space.get("__name__")
        trusted = is_trusted(module)
        if is_closed(module):
            self.doubt(f"the function {module}.{f.__name__}")
            return
        if trusted:
            self.form.append(IdentityKey(f.__code__))
            if module.startswith("cupy.random"):
                self.doubt(f"random numbers of {module}")
            if f.__name__ in self.readers:
                self.doubt(f"the function {module}.{f.__name__}")
        else:
            self.own_code(f, space)
        if not trusted or f.__closure__:
            self.found |= words(f.__code__)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            # the class for super()
            if name == "__class__" and isinstance(value := next(iter(parts_of(cell)), None), type):
                self.expect("{0}.cell_contents is {1}", cell, value)
                self.class_of(value, False)
            else:
                self.parts(cell)
        if "__annotations__" in self.names:
            self.follow([f.__annotations__])
        if f.__dict__ or not self.names.isdisjoint(("hasattr", "AttributeError")):
            asked = [n for n in f.__dict__ if self.all or n in self.names or n == "__wrapped__"]
            self.space("{0}.__dict__", f, f.__dict__, asked, self.names)

    def own_code(self, f: types.FunctionType, space: dict) -> None:
        """Follow what the code of a function of the user reads: defaults, globals, modules."""
        self.form.append(f.__code__)
        given = f.__code__, f.__defaults__, f.__kwdefaults__
        self.expect(
            "{0}.__code__ is {1} and {0}.__defaults__ is {2} and {0}.__kwdefaults__ is {3}", f, *given
        )
        self.follow([value for value in given[1:] if value])
        names, modules = outer_names(f.__code__)
        here = [n for n in names if n in space]
        for n in OUTSIDE.intersection(names).difference(here):
            self.doubt(f"what the code reads by `{n}`")
        if "id" in names and "id" not in here and not is_foreign(space.get("__name__")):
            self.found.add(READS_ID)
        modules_here = [n for n in here if isinstance(space[n], types.ModuleType)]
        everything, self.all = self.all, False
        self.space(
            "{0}", space, space, [n for n in here if n not in modules_here], set(names).difference(here)
        )
        self.expect_names("{0}", space, modules_here, [space[n] for n in modules_here])
        self.all = everything
        for n in modules_here:
            self.form.append(n)
            for chain in sorted(names[n]):
                self.chain(space[n], chain)
        loaded = [m for m in modules if m in sys.modules]
        values = [sys.modules[m] for m in loaded]
        self.expect_names("{0}", sys.modules, loaded, values)
        self.follow(values)
        if len(loaded) < len(modules):
            self.doubt("a module that is not loaded yet")

    def chain(self, m: types.ModuleType, attributes: tuple) -> None:
        """Follow a chain of attributes that code reads from a module."""
        if is_trusted(m.__name__):
            for name in self.readers.intersection(attributes):
                self.doubt(f"the function {m.__name__}.{name}")
        if attributes and is_foreign(m.__name__) and not is_trusted(m.__name__) and attributes[0] in vars(m):
            x = vars(m)[attributes[0]]
            self.form.append(attributes[0])
            self.expect_names("{0}.__dict__", m, [attributes[0]], [x])
            if isinstance(x, types.ModuleType):
                self.chain(x, attributes[1:])
            else:
                self.follow([x])
        else:
            self.follow([m])

    def layout(self, x: Any) -> None:
        self.layouts.append(x)
        self.form.append((IdentityKey(x), x.shape, x.strides, x.dtype))
        self.expect(
            "{0}.shape == {1} and {0}.strides == {2} and {0}.dtype == {3}", x, x.shape, x.strides, x.dtype
        )

    def array(self, x: np.ndarray) -> None:
        if x.dtype.hasobject:
            items = tuple(parts_of(x))  # (records with objects in them are other tuples each time)
            self.form.append((x.shape, x.strides))
            self.expect("{0}.shape == {1} and all(map(is_, {0}.ravel(), {2}))", x, x.shape, items)
            self.follow(items)
        else:
            content = x.tobytes()
            self.arrays.append(x)
            self.form.append((x.shape, x.dtype.str, content))
            self.expect(
                "{0}.tobytes() == {1} and {0}.shape == {2} and {0}.dtype == {3}", x, content, x.shape, x.dtype
            )
        if isinstance(x, np.ma.MaskedArray):
            self.follow([vars(x)[n] for n in ("_mask", "_fill_value", "_hardmask")])
        if not is_left(type(x)):
            self.attributes(x)

    def parts(self, x: Any) -> None:
        """Follow an object of one of the kinds in `_capture.objects`."""
        if x is sys.modules:
            self.doubt("what the code reads in sys.modules")
            return
        kind = kind_of(x)
        if id(x) in self.apart and type(x) in (list, dict):
            self.members(x, self.apart[id(x)])
            return
        items = tuple(kind.parts(x))
        self.form.append(len(items))
        if kind.kind is types.CellType and items:
            self.expect("{0}.cell_contents is {1}", x, *items)
        elif kind.kind not in UNCHANGEABLE:
            self.expect(f"len(r := [*({kind.text})]) == {len(items)} and all(map(is_, r, {{1}}))", x, items)
        self.follow([*items, *kind.settings(x)])
        if not is_left(type(x)) or unlisted(x, kind):
            self.instance(x)

    def members(self, x: Any, apart: set) -> None:
        """Follow a list or dict, but not what is set apart: all of a list, members of a dict."""
        if type(x) is dict:
            ask = lambda: [*itertools.chain.from_iterable([i for i in x.items() if i[0] not in apart])]
            items = ask()
            self.form.append(len(items))
            self.expect(f"len(r := {{0}}()) == {len(items)} and all(map(is_, r, {{1}}))", ask, items)
            self.follow(items)

    # --- objects and classes ---

    def instance(self, x: Any) -> None:
        kind: Any = type(x)
        module, root = module_of(kind), module_root(module_of(kind))
        if isinstance(x, io.IOBase) and (x in (sys.stdout, sys.stderr) or not x.readable()):
            self.form.append(IdentityKey(x))  # it is written only
        elif callable(x) and function_stand_in(x) is not None:  # a function of a library: ours runs
            self.form.append(IdentityKey(x))
        elif is_closed(module) or kind in weakref.ProxyTypes:
            self.doubt(x)
        elif isinstance(x, GENERATORS):
            self.random(x)
        elif (
            isinstance(x, PickledByCall)
            and root == "tapegrad"
            or (root == "tapegrad" and "point" in getattr(x, "__dict__", ()))
        ):
            self.form.append(IdentityKey(x))
            inner = x.__dict__
            self.follow([inner[n] for n in OURS if n in inner])
            if "point" in inner:  # of an operator, which `update` moves
                self.form.append(IdentityKey(inner["point"]))
                self.expect("{0}.__dict__['point'] is {1}", x, inner["point"])
        elif kind in FROZEN:
            self.form.append(IdentityKey(x))
            self.follow(x.__getstate__().values())
        elif isinstance(getattr(x, "py_func", None), types.FunctionType):  # a function compiled by Numba
            self.follow([x.py_func])
        elif root in VALUES and kind.__eq__ is not object.__eq__:
            self.form.append(repr(x))
            self.context(module)
        elif root == "pandas":
            self.probe(lambda: pickle.dumps(x))
        elif root in HARMLESS and (module, kind.__name__) not in HOLDING and kind not in PLAIN:
            self.form.append(IdentityKey(x))
            if self.levels and isinstance(x, logging.Logger):
                self.probe(lambda: (x.level, x.getEffectiveLevel(), x.disabled, x.manager.disable))
        elif (root == "scipy" and is_singleton(x)) or (module, kind.__name__) in UNCHANGING:
            self.form.append(IdentityKey(x))
        elif kind.__name__ == CYTHON and is_trusted(x.__module__):
            self.form.append(IdentityKey(x))
        else:
            if isinstance(x, (int, float, complex, str, bytes)):
                base = next(b for b in (int, float, complex, str, bytes) if isinstance(x, b))
                self.form.append(base.__repr__(x))
            self.attributes(x)
            if not is_open(kind):
                self.opaque(x)

    def random(self, x: Any) -> None:
        if isinstance(x, random.SystemRandom) or not self.names.isdisjoint(
            ("state", "get_state", "getstate")
        ):
            self.doubt(x)
        self.sources.append(x)
        self.form.append(IdentityKey(x))
        if not is_left(type(x)):
            self.attributes(x)

    def opaque(self, x: Any) -> None:
        """Compare an object by its bytes, if it has any."""
        root = module_root(type(x).__module__)
        if isinstance(x, (operator.attrgetter, operator.methodcaller)):
            self.found.add("getattr")
        if is_array(x):
            self.probe(lambda: x.get().tobytes())
        elif isinstance(x, BUFFERS):
            if leads_away(type(x)):
                self.doubt(x)
            self.probe(lambda: bytes(memoryview(x)))
        elif root in TRUSTED or root in sys.stdlib_module_names:
            self.follow([r for r in gc.get_referents(x) if not isinstance(r, (type, types.ModuleType))])
            self.probe(lambda: pickle.dumps(x))
        else:
            self.doubt(x)

    def probe(self, ask: Callable) -> None:
        with Attempt() as tried:
            now = ask()
        if tried.failed:
            self.doubt(self.hold[-1])
            return
        self.form.append(now)
        self.expect("{0}() == {1}", ask, now)

    def attributes(self, x: Any) -> None:
        """Follow the attributes of an object that code with these names may read. For a class whose code was
        not searched, follow all."""
        kind = type(x)
        inside = getattr(x, "__dict__", None)
        self.expect("{0}.__class__ is {1}", x, kind)
        every = is_left(kind) and kind not in PLAIN
        apart: Any = self.apart.get(id(x), ())
        if isinstance(inside, dict):
            names = list(inside) if every else [n for n in self.names_of(inside) if n not in apart]
            self.space("{0}.__dict__", x, inside, names, () if every else self.names.difference(apart))
            if every:
                self.expect(f"len({{0}}.__dict__) == {len(inside)}", x)
        for c in kind.__mro__:
            for n in c.__dict__ if module_of(c) != "builtins" else ():
                slot = c.__dict__[n]
                asked = n not in apart and (self.all or every or n in self.names)
                if isinstance(slot, types.MemberDescriptorType) and asked:
                    self.slot(x, slot)
        self.class_of(kind, False)

    def raised(self, x: BaseException) -> None:
        self.expect("{0}.args is {1}", x, x.args)
        self.follow([x.args])
        self.instance(x)

    def slot(self, x: Any, slot: Any) -> None:
        try:
            value = slot.__get__(x)
        except AttributeError:
            self.expect("{0}({1}, {2})", is_empty_slot, x, slot)
            return
        self.expect("{0}.__get__({1}) is {2}", slot, x, value)
        self.follow([value])

    def class_of(self, kind: type, made: bool) -> None:
        """Follow the members that objects of a class read; `made`: the class may be called, too."""
        if (kind, made) in self.classes:
            return
        self.classes.add((kind, made))
        if not is_left(kind):
            self.expect("{0}.__mro__ is {1}", kind, kind.__mro__)
        for c in kind.__mro__[:-1]:
            space = c.__dict__
            if is_left(c):
                # (whose wrappers are looked into by `codes_of`)
                asked = self.names if module_of(c) == "functools" else self.names | SYNTAX
                for n in asked.intersection(space):
                    self.found |= frozenset().union(*[words(code) for code in codes_of(space[n])])
                continue
            names = [
                n
                for n in space
                if n not in UNASKED and (n in self.names or self.all or n[:2] == "__" == n[-2:])
            ]
            names += [
                n
                for n in space
                if n in UNASKED and (n in self.names or (made and n in MAKING)) and n not in OF_CLASSES
            ]
            self.space("{0}.__dict__", c, space, names, self.names | SYNTAX)
        if not is_left(type(kind)):
            self.class_of(type(kind), made)

    def class_(self, kind: type) -> None:
        self.form.append(IdentityKey(kind))
        module = module_of(kind)
        self.context(module)
        if is_closed(module) or (module == "datetime" and not CLOCKS.isdisjoint(self.names)):
            self.doubt(f"the class {module}.{kind.__qualname__}")
        elif not is_left(kind):
            self.class_of(kind, True)

    def context(self, module: str) -> None:
        """Compare the context of the thread, which decimal numbers depend on."""
        if module == "decimal":
            self.probe(lambda: repr(sys.modules["decimal"].getcontext()))

    # --- what leads further ---

    def constant(self, x: Const) -> None:
        self.expect("{0}.value is {1}", x, x.value)
        if self.read_anew is None:
            self.follow([x.value])
        else:
            self.form.append(IdentityKey(x.value))

    def variable(self, x: Variable) -> None:
        if self.read_anew is None:
            self.probe(lambda: np.asarray(values_of(x)).tobytes())
        else:  # its values may be hidden
            writes = lambda: getattr(getattr(x, "_base", x), "_version", 0)
            self.form.append(writes())
            self.expect("{0}() == {1}", writes, self.form[-1])

    def cache(self, x: Any) -> None:
        """Follow the results that a cache holds: code may read and change them without a call."""
        self.follow([x.__wrapped__] if hasattr(x, "__wrapped__") else [])
        self.follow([r for r in gc.get_referents(x) if not isinstance(r, (type, types.FunctionType))])


@functools.lru_cache(4096)
def is_open(kind: type) -> bool:
    """Is all that an object of this class holds in its `__dict__`, its slots, or in a base that is known?  (A
    class of C keeps more.)"""
    while kind not in KNOWN:
        base: Any = kind.__base__
        words = [1 for v in kind.__dict__.values() if type(v) is types.MemberDescriptorType]
        offsets = (kind.__dictoffset__, base.__dictoffset__), (kind.__weakrefoffset__, base.__weakrefoffset__)
        words += [1 for new, old in offsets if new != old and (new > 0 or kind.__itemsize__)]
        if kind.__basicsize__ - base.__basicsize__ > WORD * len(words):
            return False
        kind = base
    return True


def is_singleton(x: Any) -> bool:
    """Is it a distribution as SciPy has made it?"""
    return getattr(sys.modules.get("scipy.stats"), str(getattr(x, "name", "")), None) is x


def is_empty_slot(x: Any, slot: Any) -> bool:
    try:
        slot.__get__(x)
    except AttributeError:
        return True
    return False


@functools.lru_cache(maxsize=4)
def _cached(x: Any) -> Any:
    return x


# classes of packages whose objects hold what the user put there
PLAIN = (types.SimpleNamespace, threading.local)
KNOWN = frozenset((
    object, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, collections.deque,
    collections.OrderedDict,
    collections.defaultdict, BaseException, np.ndarray, np.generic, *PLAIN,
))  # fmt: skip  # whose content is compared where it is met
WORD = tuple.__itemsize__
CYTHON = "cython_function_or_method"

_cached(0)
CACHE = type(_cached)
LINK = next((type(r) for d in gc.get_referents(_cached) if type(d) is dict for r in d.values()), CACHE)
HANDLERS: Any = (
    (Variable, DependencyWalk.variable), (Const, DependencyWalk.constant), (np.ndarray, DependencyWalk.array),
    (tuple([k.kind for k in KINDS]), DependencyWalk.parts),
    (types.ModuleType, DependencyWalk.module), (types.FunctionType, DependencyWalk.function), ((CACHE, LINK),
    DependencyWalk.cache),
    (BaseException, DependencyWalk.raised),
    (type, DependencyWalk.class_), (FIXED, DependencyWalk.fixed),
)  # fmt: skip


def walk_with_names(
    roots: list,
    read_anew: Callable | None = None,
    kind: type = DependencyWalk,
    names: frozenset = frozenset(),
    apart: Collection = (),
) -> Any:
    """Return the walk with the names of all code that it meets.

    `names`: those of a walk before it. With these, and with the names of functions among the roots, the first
    walk is often the last."""
    for f in roots:
        if type(f) is types.FunctionType and not is_trusted(globals_of(f).get("__name__")):
            names = names | words(f.__code__)
    while True:
        walk = kind(roots, names, read_anew, apart)
        if walk.found <= names or (walk.unknown is not None and not walk.whole):
            return walk
        names = names.union(walk.found)


class CompleteWalk(DependencyWalk):
    """A walk that goes on."""

    whole = True
