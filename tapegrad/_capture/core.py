"""Captured arrays become Variables for the length of one call, and hold plain data after it.

A `Shadow` rebuilds the user's function with other surroundings: each float array that the function can reach
(closure cells, globals, defaults, attributes, containers, and through helper functions reached the same way)
is replaced by a Variable over the same memory, which is copied at the first write and written back at the
end; the names of NumPy, CuPy and SciPy mean their stand-ins in tapegrad.  Nothing of the user's is altered
meanwhile, so threads do not see each other.

Globals are looked up when the code first asks for them (`Globals.__missing__`), so what a call does not reach
costs nothing. Everything that was replaced is remembered in `Shadow.seen` by identity, so that aliases stay
aliases, cycles end, and values that the function rebound (globals, nonlocals, attributes, members of lists
and dicts) are handed back as plain ones.

Reading order: `Shadow.__call__` here (what becomes what); arrays.py, functions.py, containers.py and
classes.py for the kinds of objects; restore.py for what happens afterwards."""

import collections
import functools
import types
import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE, address, is_array, mark_immutable
from .._core.errors import RouteError
from .._core.registry import SHADOW_MAKERS
from .._core.reverse import release
from .._core.scope import OPEN
from .._core.trees import Const
from .._core.variable import DIRECT, HANDLES, Subarray, Variable, copied
from .._dispatch import random, stand_ins
from .._dispatch.numbers import NumberType
from ..numpy import c_, r_
from . import threads
from .ambient import AmbientCapture
from .arrays import ArrayCapture, memory_block
from .builtin import ModuleShadow
from .cached import CacheCapture
from .classes import ClassCapture, users_own
from .containers import ContainerCapture
from .functions import FunctionCapture
from .iterators import IteratorCapture, is_iterator
from .kinds import HELD, is_compiled_by_numba, is_universal, is_user_class, module_of, mro_of, state_of
from .objects import FILLED, FIXED, GENERIC_ALIAS, WEAK
from .restore import restore
from .routes import finding, first_write, leave_unshadowed


class Shadow(ArrayCapture, FunctionCapture, ContainerCapture, IteratorCapture, AmbientCapture, ClassCapture):
    """A context: `with Shadow(f, args, on) as (g, args)`, in which g is to be called once."""

    written_numbers: frozenset | set = frozenset()  # _core/serialized.py
    formatted_numbers: frozenset | set = frozenset()
    ending: tuple = ()  # traces that end with the call
    verdict: Any = None  # what is wrong with routes, once it is known, in a tuple
    back: Any = None  # the way back, while it is gone (restore.py)
    sums: Any = ()  # routes.py, threads.py
    stashes: tuple = ()
    turned: Any = ()
    mine: Any = None
    once = False  # does a part of it hold for this call only?
    memory: Any = None  # remembered.py
    waited: Any = None
    watch: Any = None  # attribute_watch.py

    def __init__(self, f: Any, args: list, given: Sequence = (), fresh: Sequence = ()):
        """`given`: pairs (array, handle) of the arguments that are Variables already; `fresh`: those of the
        arguments that are trees of Variables, made for this call."""
        self.on = type(f) is not Const
        self.f, self.args, self.given, self.fresh = f if self.on else f.value, args, list(given), fresh
        self.within_hiding = len(OPEN.hiding)  # how many traces that hide values are around it

    def __enter__(self) -> Any:
        state = OPEN.__dict__
        if type(self) is Shadow:
            self.waiting = state["unfinished"]
            state["unfinished"] = (*self.waiting, self)
        self.depth = state["depth"]
        state["depth"] = self.depth + 1
        if not self.on:
            return self.f, self.args
        if self.waited is None:
            self.begin()
            if OPEN.shadows:
                self.outer = self.made_outside()
        elif self.arrays:
            threads.enter(self)
            if threads.WRITERS or len(threads.THREADS) > 1:
                threads.set_shared_aside(self)
        f = self.f
        g = self.method(f) if type(f) is types.MethodType else self(f)  # (another one for each call)
        args = self.args if OWN.issuperset(map(type, self.args)) else self.borrow()
        OPEN.shadows = (*OPEN.shadows, self)
        return g, args

    def begin(self) -> None:
        """Nothing has been replaced yet."""
        self.seen, self.memories = {}, {}
        self.classes = {}
        self.hold, self.arrays, self.changes, self.strangers, self.walked = [], [], [], [], []
        self.matched: dict = {}  # id of a shadow -> its original, of the first `matched_to` in `hold`
        self.matched_to = 0
        self.left: list = []  # objects that were left alone
        # (what one of them led to when it was met, from where): `routes.leave_unshadowed`
        self.near: list = []
        self.theirs: list = []  # Variables of outer transforms there

    def made_outside(self) -> set:
        """(ids) What an outer transform made stays what it is, for the globals lead to it too (`globals_of`):
        no holder becomes two."""
        return {id(new) for s in OPEN.shadows for new in s.seen.values()}

    def borrow(self) -> list:
        """The arguments.  They are values, nothing is written back to them: an array that f captured too has
        a Variable as an argument and another one as what was captured, and if one of the two is written, that
        is an error (routes.py).  What a function has captured that is an argument is captured."""
        own = self.fresh
        if all([type(a) in DIRECT or type(a) in IMMUTABLE or any([a is t for t in own]) for a in self.args]):
            return self.args
        self.once = True
        for a in functions_in(self.args):
            self(a)
        captured = {id(a): self.seen.pop(id(a), v) for a, v in self.arrays}
        apart = self.memories, self.strangers
        self.memories, self.strangers = {}, []
        before = len(self.given)
        self.borrowed = True
        args = [a if any([a is t for t in own]) else self(a) for a in self.args]
        self.borrowed = False
        for a, _ in self.given[before:]:
            self.seen.pop(id(a), None)
        self.seen.update(captured)
        self.memories, self.strangers = apart
        return args

    def pass_plain(self, values: tuple) -> None:
        """f gets these as they are: constants, and arguments by keyword."""
        if self.on:
            for x in values:
                if type(x) not in IMMUTABLE:
                    self.once = True
                    leave_unshadowed(self, x)

    def first_write(self, x: Variable) -> None:
        """(`_core.primitive.own_memory`) A handle is about to be moved to memory of its own and written, for
        the first time."""
        if len(threads.THREADS) < 2:
            first_write(self, x)
        else:
            with threads.LOCK:
                first_write(self, x)
                if any([v is x for _, v in self.arrays]):
                    x._become(copied(x))  # while nobody writes what is copied

    def __exit__(self, kind: Any = None, error: BaseException | None = None, traceback: Any = None) -> None:
        state = OPEN.__dict__
        shadows = state["shadows"]
        if shadows and shadows[-1] is self:
            shadows = shadows[:-1]
        elif shadows:
            shadows = tuple([s for s in shadows if s is not self])
        state["depth"], state["shadows"] = self.depth, shadows
        for trace in self.ending:
            trace.close()
        if error is not None:
            self.finish(error)

    def end(self, error: BaseException | None) -> None:
        """(`_core.scope.close`) The call is over, in order or not."""
        for trace in self.ending:
            trace.close()
            release(trace)
        self.finish(error)

    def finish(self, error: BaseException | None = None) -> None:
        """Hand back what the function wrote.  Records may hold captured memory: so only once the backward
        sweep is done, or after `release`.  A route that was not followed is an error, or a note on that of
        the function.  Repeated after an interrupt, it completes what that has left undone."""
        found = waited = None
        if self.on:
            if error is None and self.memory is not None:
                if self.memory.keeps(self):
                    return
                waited, self.waited = self.waited, None
            try:
                if self.verdict is None:
                    self.verdict = (
                        finding(self) if self.left or self.sums or self.reached or self.walked else None,
                    )
                (found,) = self.verdict
                restore(self, undo=found is not None)
            except RouteError as late:
                found = late
            except Exception:
                if error is not None:  # (else the block repeats this)
                    self.over()
                raise
        self.over()
        if waited is not None:
            self.memory.learn(waited)
        if found is not None:
            if error is None:
                raise found
            error.add_note(f"{type(found).__name__}: {found}")

    def over(self) -> None:
        """Nothing is left to be handed back."""
        if self.on:
            if self.mine is not None:
                threads.leave_thread(self)
            self.on = False
        state = OPEN.__dict__
        unfinished = state["unfinished"]
        if unfinished and unfinished[-1] is self:
            state["unfinished"] = self.waiting

    def settle(self, y: Any) -> Any:
        """The output of f, whose containers are of the user's classes again; Variables stay."""
        if type(y) in HANDLES:
            return y
        todo, met = [y], set()
        while todo and self.on:
            v = todo.pop()
            kind = type(v)
            if kind in HANDLES or kind in IMMUTABLE or id(v) in met:
                continue
            met.add(id(v))
            if kind in self.classes:
                users_own(v, self.classes[kind])
                todo += state_of(v).values()
            if isinstance(v, (tuple, list, dict)):
                todo += v.values() if isinstance(v, dict) else v
        return y

    def release(self, records: list) -> None:
        """Give records that outlive the call copies of their own of captured memory."""
        if not self.on or not self.arrays:
            return
        with self.mine:
            threads.protect(records)
            self.own_copies(records)

    def own_copies(self, records: list) -> None:
        captured = {memory_block(array) for array, _ in self.arrays if not mark_immutable(array)}
        copies: dict = {}  # place in memory and layout -> the copy: what many records hold is copied once

        def own(v):
            if not (is_array(v) and memory_block(v) in captured):
                return v
            key = address(v), v.shape, v.strides, v.dtype
            if key not in copies:
                copies[key] = v.copy(order="K")
            return copies[key]

        threads.replace_in(records, own)

    # --- what becomes what ---

    def __call__(self, x: Any) -> Any:
        kind = type(x)
        if kind in IMMUTABLE:
            return x
        found = self.seen.get(id(x))
        if found is not None:
            return found
        if self.outer and id(x) in self.outer:
            return x
        if kind is types.FunctionType:
            new = self.function(x)
        else:
            make = SHADOW_MAKERS.get(kind)
            if make is None:
                if (
                    is_user_class(kind)
                    and kind not in self.classes
                    and not issubclass(kind, (BaseException, np.ndarray, Subarray))
                ):
                    self(kind)  # which may lead to x: a member of an enumeration, a registry of instances
                    if id(x) in self.seen:
                        return self.seen[id(x)]
                make = self.maker(x, kind)
                if make is None:
                    return self.leave(x)
            new = make(self, x)
        if new is not x:
            self.seen[id(x)] = new
            self.hold.append(x)
        elif kind not in ENTERED:
            leave_unshadowed(self, x)
        return new

    def original(self, new: Any) -> Any:
        """The user's object that `new` stands for, or None."""
        seen, hold = self.seen, self.hold
        self.matched.update({id(seen.get(id(old))): old for old in hold[self.matched_to :]})
        self.matched_to = len(hold)
        old = self.matched.get(id(new))
        return old if old is not None and seen.get(id(old)) is new else None

    def each(self, flat: Any) -> list:
        """The shadows of the objects in a container."""
        kinds = set(map(type, flat))
        if len(kinds) == 1:  # mostly it holds things of one kind
            if kinds == ARRAYS:
                return self.all_captured(flat)
            if kinds == FUNCTIONS:
                return self.all_functions(flat)
        return [self(v) for v in flat]

    def leave(self, x: Any) -> Any:
        """An object that is neither replaced nor entered: what it leads to is found afterwards, if at all."""
        leave_unshadowed(self, x)
        return x

    def maker(self, x: Any, kind: type) -> Any:
        """How an object of a kind that is not in the table is shadowed; None: left alone."""
        if is_array(x) and not isinstance(x, np.ndarray):
            return Shadow.array
        if is_compiled_by_numba(x):
            return Shadow.compiled
        if is_universal(kind):
            return Shadow.universal
        if is_iterator(kind):
            return Shadow.iterator
        for c in mro_of(kind):
            if c in BY_BASE:
                return BY_BASE[c]
        if stand_ins.of_instance(kind) is not None:
            return Shadow.counterpart
        if hasattr(kind, "_self_wrapper"):
            return Shadow.function_wrapper
        if is_user_class(kind):
            return Shadow.instance
        if module_of(kind) == "concurrent.futures._base" and kind.__name__ == "Future":
            return Shadow.future
        if callable(x) and (
            kind.__name__ == "fortran"
            or (getattr(x, "__module__", None) or "").partition(".")[0] in ("numpy", "scipy", "cupy", "cupyx")
        ):
            return Shadow.library
        return Shadow.extension if kind.__name__ == "cython_function_or_method" else None

    def itself(self, x: Any) -> Any:
        return x

    def counterpart(self, x: Any) -> Any:
        """An object of SciPy's, a spline or a sparse matrix, as ours over the same arrays."""
        new = stand_ins.of_instance(type(x))._of(x, self)
        new._captured = True
        return new


ARRAYS, FUNCTIONS = {np.ndarray}, {types.FunctionType}
OWN = IMMUTABLE | DIRECT
BOUND = frozenset(
    (types.FunctionType, types.MethodType, functools.partial, type(functools.lru_cache(len)), CacheCapture)
)


def functions_in(args: list) -> list:
    """The functions among the arguments, and in their lists, tuples and dicts."""
    found, todo, met = [], list(args), set()
    for x in todo:
        kind = type(x)
        if kind in BOUND:
            found.append(x)
        elif kind in (list, tuple, dict) and id(x) not in met:
            met.add(id(x))
            todo += x.values() if kind is dict else x
    return found


# where these stay, their members are known
ENTERED = frozenset((*FIXED, *FILLED, *HANDLES, types.ModuleType, np.ufunc))


BY_BASE: dict = {  # for classes derived from these
    **dict.fromkeys((dict, list, set, collections.deque), Shadow.container),
    **dict.fromkeys((tuple, frozenset, int, float, complex, str, bytes), Shadow.fixed),
    **dict.fromkeys(WEAK, Shadow.weak),
    **dict.fromkeys((weakref.ref, GENERIC_ALIAS), Shadow.of_parts),
    **dict.fromkeys((property, staticmethod, classmethod), Shadow.property),
    np.void: Shadow.record,
    np.generic: Shadow.itself,
    np.ndarray: Shadow.subarray,
    Subarray: Shadow.subarray,
    type: Shadow.klass,
    BaseException: Shadow.exception,
    types.ModuleType: Shadow.derived_module,
}
SHADOW_MAKERS.update({type(np.r_): lambda shadow, x: r_, type(np.c_): lambda shadow, x: c_})
SHADOW_MAKERS.update(
    {
        np.ndarray: Shadow.array,
        **dict.fromkeys(FIXED, Shadow.of_parts),
        **dict.fromkeys(HANDLES, Shadow.handle),
        types.FunctionType: lambda shadow, f: shadow.function(f),
        types.BuiltinFunctionType: Shadow.builtin,
        types.MethodWrapperType: Shadow.builtin,
        types.WrapperDescriptorType: Shadow.builtin,
        types.MethodType: Shadow.method,
        types.ModuleType: Shadow.module,
        ModuleShadow: Shadow.scope,
        np.ufunc: Shadow.ufunc,
        type(functools.lru_cache(len)): Shadow.cached,
        CacheCapture: Shadow.cached,
        list: Shadow.list_,
        dict: Shadow.dict_,
        property: Shadow.property,
        Const: Shadow.const,
        np.random.Generator: lambda shadow, x: random.generator_stand_in(x),
        np.random.RandomState: lambda shadow, x: random.generator_stand_in(x),
        type: Shadow.klass,
        NumberType: Shadow.itself,
        np.vectorize: Shadow.vectorized,
        ContextVar: Shadow.ambient,
        **dict.fromkeys(
            weakref.ProxyTypes, Shadow.proxied
        ),  # which say that they are of the class of their object
        **dict.fromkeys(HELD, Shadow.instance),
    }
)
