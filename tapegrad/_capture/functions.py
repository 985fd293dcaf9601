"""Functions rebuilt with other surroundings: their globals, cells, defaults, attributes, and the modules that
they name."""

import functools
import gc
import sys
import types
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE
from .._core.lent_memory import lend
from .._core.primitive import any_tracked
from .._core.registry import load
from .._dispatch import stand_ins
from ..ops.protocols import is_of_elements
from .builtin import (
    FUNCTIONS,
    LIBRARY,
    GlobalNames,
    ModuleGlobals,
    ModuleShadow,
    deletes,
    is_usual,
    reads_past_classes,
)
from .cached import CacheCapture
from .class_reads import with_class_reads
from .classes import InstanceState
from .kinds import (
    EMPTY,
    NOTHING,
    NUMERIC,
    Capture,
    Holder,
    dict_of,
    is_compiled_by_numba,
    is_foreign,
    is_user_class,
    mro_of,
)


class Cell(Holder):
    """(Cell, cell, the new one, what the one held and what the other; of empty ones `EMPTY`)"""

    words = "a name of an outer function"

    @staticmethod
    def bound(new: types.CellType, first: Any) -> Any:
        """What a cell holds if that is another thing, else `EMPTY`."""
        try:
            return EMPTY if new.cell_contents is first else new.cell_contents
        except ValueError:
            return EMPTY

    @staticmethod
    def emptied(new: types.CellType, first: Any) -> bool:
        """Was the variable deleted?"""
        try:
            new.cell_contents  # noqa: B018
        except ValueError:
            return first is not EMPTY
        return False

    @staticmethod
    def named(change: tuple) -> list:
        now = Cell.bound(change[2], change[4])
        return [] if now is EMPTY or change[4] is EMPTY else [(Cell.words, now)]

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        _, c, new, value, first = change
        there = value is not EMPTY and Cell.bound(c, value) is not EMPTY
        return there or Cell.bound(new, first) is not EMPTY or Cell.emptied(new, first)

    @staticmethod
    def with_number(change: tuple, name: str, number: Any) -> tuple:
        change[1].cell_contents = number
        return (*change[:3], number, number)

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        """A cycle through the new cell ends here."""
        _, c, new, value, first = change
        try:
            if new.cell_contents is first:  # mostly
                if value is not first:
                    new.cell_contents = value
                return
        except ValueError:  # empty
            pass
        now, gone = Cell.bound(new, first), Cell.emptied(new, first)
        if gone and not back.undo:
            del c.cell_contents
            return
        if now is not EMPTY and not back.undo:
            value = back(now)
            c.cell_contents = value
        if value is not first or now is not EMPTY or gone:
            new.cell_contents = value

    @staticmethod
    def places(change: tuple, side: int) -> list:
        return [("cells", change[side])]

    @staticmethod
    def is_unmodified(shadow: Any, change: tuple) -> bool:
        _, c, new, value, first = change
        stands = Cell.bound(c, value) is EMPTY and Cell.bound(new, first) is EMPTY
        return stands and first is not EMPTY and shadow.seen.get(id(value), value) is first


def copy_names(g: Any, f: Any) -> None:
    """g has what `functools.wraps` takes over."""
    g.__qualname__, g.__module__, g.__doc__ = f.__qualname__, f.__module__, f.__doc__
    g.__annotations__ = f.__annotations__
    if params := getattr(f, "__type_params__", None):  # Python 3.12: `def f[T](x)`
        g.__type_params__ = params


class FunctionCapture(Capture):
    """The part of a `Shadow` that replaces functions, whatever wraps them, and modules."""

    def function(self, f: Any) -> Any:
        space, closure = f.__globals__, f.__closure__
        mine, home = self.seen.get(id(space)), space.get("__name__")
        if mine is None or f.__module__ != home:  # not one of a module of the user's that was met before
            foreign = is_foreign(home)
            face = stand_ins.function_stand_in(f) if foreign or f.__module__ != home else None
            if face is not None:
                return face
            if (
                foreign
                and type(space) is not ModuleGlobals
                and not f.__code__.co_filename.startswith("<doctest")
            ):
                root = home.partition(".")[0]
                if (
                    f in FUNCTIONS
                    or root != "numpy"
                    and (not closure or root in NUMERIC and is_foreign(f.__module__))
                ):
                    return FUNCTIONS.get(f) or self.library(f)
                # a private function of NumPy's Python code; or contextmanager and others, of the user's
                mine = self.globals_of(space) if root == "numpy" else space
            elif mine is None:
                mine = self.globals_of(space)
        return self.rebuilt(f, mine)

    def rebuilt(self, f: Any, mine: Any) -> Any:
        """The function with these globals, and with shadows of all that it holds."""
        closure, code = f.__closure__, f.__code__
        if not is_usual(code):
            if not self.reads_all and reads_past_classes(code):
                self.read_all()
            if type(mine) is ModuleGlobals:
                mine.keep(deletes(code))
                code = with_class_reads(code)
        if not closure:
            if mine is f.__globals__:
                return f
            g = types.FunctionType(code, mine, f.__name__)
            self.seen[id(f)] = g
            self.hold.append(f)
        else:
            waiting: list = []
            g = types.FunctionType(
                code, mine, f.__name__, None, tuple([self.cell(c, waiting) for c in closure])
            )
            self.seen[id(f)] = g  # before the cells are filled: a function may capture itself
            self.hold.append(f)
            for c, new, value in waiting:
                new.cell_contents = shadow = self(value)
                self.changes.append((Cell, c, new, value, shadow))
        if f.__defaults__:
            g.__defaults__ = tuple([self(d) for d in f.__defaults__])
        if f.__kwdefaults__:
            g.__kwdefaults__ = {k: self(d) for k, d in f.__kwdefaults__.items()}
        copy_names(g, f)
        before = self.attributes_of_function(f.__dict__) if f.__dict__ else NOTHING
        if before:
            g.__dict__.update(before)
        self.changes.append((InstanceState, f, g, before))
        return g

    def attributes_of_function(self, own: dict) -> dict:
        """Shadows of the attributes; but of a wrapper of what Numba compiled, `functools.wraps` has copied
        parts of the compiler there."""
        inner = own.get("__wrapped__")
        theirs = dict_of(inner) if is_compiled_by_numba(inner) else NOTHING
        return {
            k: v if theirs.get(k, EMPTY) is v and type(v) is not types.FunctionType else self(v)
            for k, v in own.items()
        }

    def all_functions(self, fs: Any) -> list:
        """Several functions: `self(f)` for each, in one piece for those of one module that have no more than
        their code."""
        seen, found = self.seen, []
        space: Any = None
        mine: Any = None
        home: Any = None
        for f in fs:
            g = seen.get(id(f))
            if g is None:
                code = f.__code__
                plain = mine is not None and f.__globals__ is space and f.__module__ is home
                if (
                    not plain
                    or f.__closure__
                    or f.__defaults__
                    or f.__kwdefaults__
                    or f.__dict__
                    or not is_usual(code)
                ):
                    g, space = self(f), f.__globals__
                    mine, home = None if self.outer else seen.get(id(space)), space.get("__name__")
                else:
                    g = seen[id(f)] = types.FunctionType(code, mine, f.__name__)
                    copy_names(g, f)
                    self.hold.append(f)
                    self.changes.append((InstanceState, f, g, NOTHING))
            found.append(g)
        return found

    def globals_of(self, space: dict) -> Any:
        # rebuilt already for an outer transform; its closure may have captured since
        return space if type(space) is ModuleGlobals else self.own_globals(space)

    def own_globals(self, space: dict) -> ModuleGlobals:
        mine = self.seen.get(id(space))
        if mine is None:
            mine = self.seen[id(space)] = ModuleGlobals(space, self)
            self.changes.append((GlobalNames, space, mine))
            self.hold.append(space)
        return mine

    def cell(self, c: Any, waiting: list) -> Any:
        """The new cell for c.  One that is to be filled with a shadow is added to `waiting`, with what c
        holds."""
        key = id(c)
        new = self.seen.get(key)
        if new is None:
            if key in self.outer:
                return c
            new = self.seen[key] = types.CellType()
            self.hold.append(c)
        elif key not in self.vacant or Cell.bound(new, EMPTY) is not EMPTY:
            return new
        try:
            value = c.cell_contents
        except ValueError:  # empty yet
            if key not in self.vacant:
                self.vacant |= {key}
                self.changes.append((Cell, c, new, EMPTY, EMPTY))
            return new
        if type(value) in IMMUTABLE:
            new.cell_contents = value
            self.changes.append((Cell, c, new, value, value))
        else:
            waiting.append((c, new, value))
        return new

    def method(self, m: Any) -> Any:
        owner = self(m.__self__)
        kind = type(owner)  # (an attribute of the owner itself would read it)
        is_ours = hasattr(kind, "_handed_back") or (kind.__module__ or "").startswith("tapegrad.")
        if is_ours and kind is not type(m.__self__):  # no shadow
            return getattr(owner, m.__name__)
        f = self(m.__func__)
        return m if owner is m.__self__ and f is m.__func__ else types.MethodType(f, owner)

    def builtin(self, f: Any) -> Any:
        """A function of C; a method of one that is bound to an object (`reset = buf.fill`) is that of its
        shadow."""
        owner = getattr(f, "__self__", None)
        if owner is not None and type(owner) is not types.ModuleType:
            new = self(owner)
            if new is not owner:
                return getattr(new, f.__name__)
        found = self.library(f)
        home = getattr(f, "__module__", None)
        return self.extension(f) if found is f and isinstance(home, str) and not is_foreign(home) else found

    def extension(self, f: Any) -> Any:
        """A function of a package's extension module.  Of arrays that are not tracked it takes the memory."""

        def call(*args, **kwargs):
            return f(*args, **kwargs) if any_tracked((args, kwargs)) else f(*lend(args), **lend(kwargs))

        return functools.update_wrapper(call, f)

    def cached(self, c: Any) -> Any:
        return CacheCapture(c, self)

    def compiled(self, d: Any) -> Any:
        """An @njit function: on tracked values it runs as a loop program, or as its Python function.  A kernel of
        numba.cuda is a loop program."""
        if type(d).__module__.startswith("numba.cuda"):
            return load("tapegrad.loops.operation").DeviceKernel(d)

        def call(*args, **kwargs):
            if any_tracked((args, kwargs)):
                return load("tapegrad.loops.operation").call_numba(
                    d, args, kwargs, lambda: self(d.py_func)(*args, **kwargs)
                )
            compiled = [vars(a).get("_compiled", a) if type(a) is types.FunctionType else a for a in args]
            return d(*lend(compiled), **lend(kwargs))

        call._compiled = d  # type: ignore[attr-defined]
        return call

    def universal(self, u: Any) -> Any:
        """What `numba.vectorize` or `numba.guvectorize` made: on tracked values a loop over the elements, or
        over the parts that its signature names."""

        def call(*args, **kwargs):
            if any_tracked((args, kwargs)):
                run = load("tapegrad.loops.universal").universal(u)
                return run(args, kwargs, lambda: self(run.f))
            return u(*lend(args), **lend(kwargs))

        names = "accumulate", "at", "outer", "reduce", "reduceat"
        vars(call).update({name: getattr(u, name) for name in names if hasattr(u, name)})
        return call

    def ufunc(self, u: np.ufunc) -> Any:
        """One made by `numpy.frompyfunc` calls the shadow of its function."""
        face = stand_ins.function_stand_in(u)
        if face is not None or not is_of_elements(u):
            return face or u
        f = next((part for part in gc.get_referents(u) if callable(part)), None)
        g = self(f)
        return u if g is f else np.frompyfunc(g, u.nin, u.nout, identity=u.identity)

    def vectorized(self, x: np.vectorize) -> Any:
        """What `numpy.vectorize` made: its twin, with the shadow of its function."""
        new = object.__new__(stand_ins.function_stand_in(np.vectorize))
        self.seen[id(x)] = new
        self.attributes_of(x, new, _ufunc={})  # (a cache of ufuncs that call the user's function)
        return new

    def function_wrapper(self, x: Any) -> Any:
        """A function that the package `wrapt` wraps in C.  One of a method is bound to the shadow of its
        instance."""
        if x._self_parent is not None:
            instance = self(x._self_instance)
            return self(x._self_parent).__get__(instance, type(instance))
        base = [c for c in mro_of(type(x)) if hasattr(c, "_self_wrapper")][-2]  # `FunctionWrapper`
        return base(self(x.__wrapped__), self(x._self_wrapper), x._self_enabled)

    def const(self, c: Any) -> Any:
        return self.leave(c.value)

    def module(self, m: Any) -> Any:
        ours = stand_ins.module(m)
        if ours is not None:
            return ours
        if m.__name__ == "pandas":
            return load("tapegrad._capture.tables").MODULE
        if is_foreign(m.__name__) and (m in LIBRARY or not m.__name__.startswith("numpy.")):
            return LIBRARY.get(m, m)
        return ModuleShadow(self.globals_of(vars(m)))

    def derived_module(self, m: Any) -> Any:
        """An object of a class derived from that of modules.  A lazy import stands for its module."""
        real = sys.modules.get(m.__name__)
        if type(real) is types.ModuleType:
            return self(real)
        return self.instance(m) if is_user_class(type(m)) else self.leave(m)

    def scope(self, m: Any) -> Any:
        """A module that an outer transform replaced already."""
        space = m.__dict__
        mine = self.globals_of(space)
        return m if mine is space else ModuleShadow(mine)

    def library(self, f: Any) -> Any:
        face = stand_ins.function_stand_in(f)
        twin = PYTHON_TWINS.get((getattr(f, "__module__", None) or "").partition(".")[0])
        if face is None and twin is not None and hasattr(sys.modules.get(twin), f.__name__):
            return self(getattr(sys.modules[twin], f.__name__))
        return face or f


# compiled packages that come with the same functions in Python
PYTHON_TWINS = {"bottleneck": "bottleneck.slow"}
