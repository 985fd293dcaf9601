"""A function with other values in the place of the Variables that it captured: once to find these, and again
for each run of it as a function of values (checkpoint, implicit functions, calls for one sample after
another).

Reading order: `Rebind`; iterators; captured numbers and generators, as they were; `with_all`."""

import contextlib
import random
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from .._capture import ModuleGlobals, ModuleShadow, Shadow, names_in
from .._capture.ambient import ContextValue
from .._capture.containers import Contents
from .._capture.iterators import UserIterator, is_iterator
from .._capture.kinds import is_foreign, module_of, put_state, state_of
from .._capture.objects import (
    GENERATORS,
    Reference,
    content_of,
    is_same,
    kind_of,
    put_back,
    restore,
    snapshot,
)
from .._capture.restore import restore as restore_all
from .._capture.routes import LEAVES, contents, is_own, strays
from .._core.arrays import copy_with_layout, is_array, is_differentiable
from .._core.errors import ArgumentError, DroppedDerivativeError, GuardError, TapegradError
from .._core.primitive import ASSIGN, any_tracked, handle, is_tracked, layout_of, live, primal_of, view, write
from .._core.scope import OPEN, scope_block
from .._core.trees import Const
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from .._core.variable import HANDLES, Variable, View, bottom, frozen, variable
from .._dispatch import stand_ins
from ..ops.indexing.flat import FlatIterator
from .arguments import numpy_number
from .products import vjp


def is_theirs(kind: type) -> bool:
    """Is it a class of SciPy's that has a counterpart, and not the counterpart?"""
    return stand_ins.of_instance(kind) is not None and not hasattr(kind, "_handed_back")


class Rebind(Shadow):
    """A shadow that replaces the Variables that a function captured by others: inputs and outputs of the
    function."""

    __slots__ = ("handles", "places", "of", "values", "state", "generators")

    def __init__(self, f: Any, args: AnyList, of: "Rebind | Any" = None, values: AnyTuple = ()):
        """`of`, `values`: the shadow that found the captured Variables, and what these are now; None: this
        one finds them, and keeps what f reads besides as it is now."""
        super().__init__(f, args)
        self.handles: AnyList = []  # (captured Variable, its stand-in)
        # (id of a stand-in; `of` given: place of a captured Variable there) -> place in `handles`
        self.places: AnyDict = {}
        self.of, self.values = of, values
        self.state: AnyList = []  # captured numbers, containers of such, integer arrays, with what they held
        self.generators: AnyList = []  # of random numbers, with their states when they were found
        self.reads_all = True  # what is captured is to be known before the call

    def __call__(self, x: Any) -> Any:
        if not isinstance(x, Variable):
            kind = type(x)
            make = (
                Rebind.drawn
                if is_iterator(kind)
                else REPLACED.get(kind, Rebind.carried if hasattr(kind, "_handed_back") else None)
            )
            if make is not None and id(x) not in self.seen and kind_of(x) is None and not isinstance(x, type):
                self.hold.append(x)
                self.seen[id(x)] = make(self, x)
            if id(x) not in self.seen and isinstance(x, np.vectorize):
                return self.vectorized(x)
            if (
                kind is types.MethodType
                and type(x.__self__) in REPLACED
                and getattr(type(x.__self__), x.__name__, None) is x.__func__
            ):
                return getattr(self(x.__self__), x.__name__)
            # memory in other hands stays plain
            new = x if type(x) is np.ndarray and x.dtype.kind in "fc" else super().__call__(x)
            if new is x and (type(x) in (list, dict) or is_array(x)):
                self.state.append((x, content_of(x)))
            elif (
                new is x
                and isinstance(x, BaseException)
                and any([x is v for s in OPEN.shadows if s.seen for v in s.seen.values()])
            ):
                raise ArgumentError(
                    f"checkpoint: the function reads an exception made outside, {x!r:.60}, that was raised "
                    "since; reach what it holds by a name"
                )
            elif isinstance(x, GENERATORS) and not any([x is g for g, _ in self.generators]):
                self.generators.append((x, snapshot(x)))
            return new
        found = self.seen.get(id(x))
        if found is not None:
            return found
        if is_lost(x):
            return x
        if type(x) is View:
            y: Any = view(self(x._base), x._path[0])
            y._path = x._path
        else:
            y = self.stand_in(x)
        self.seen[id(x)] = y
        self.hold.append(x)
        return y

    def stand_in(self, x: Variable) -> Variable:
        place, value = None, None
        if self.of is None:
            value = live(x)
        else:
            place = self.of.place(x)
            if place in self.places:
                return self.handles[self.places[place]][1]  # type: ignore[no-any-return]
            value = self.values[place] if place < len(self.values) else primal_of(live(x))
        y = frozen(value) if isinstance(value, Variable) else variable(value)
        y._saved, y._version = True, 0
        if self.of is None and id(x) in self.places:
            place = self.places[id(y)] = self.places[id(x)]
            self.handles[place] = (x, y)
        else:
            self.places[id(y) if place is None else place] = len(self.handles)
            self.handles.append((x, y))
        return y

    def __exit__(self, kind: Any = None, error: BaseException | None = None, traceback: Any = None) -> None:
        if error is not None and self.of is not None:
            note_carried(error, self.of.handles)
        super().__exit__(kind, error, traceback)

    def place(self, x: Variable) -> int:
        """Of a captured Variable, or of its stand-in.  One that this shadow has not met stands for itself."""
        y = self.seen.get(id(x), x)
        if id(y) not in self.places:
            self.places[id(y)] = len(self.handles)
            self.handles.append((y, y))
        return self.places[id(y)]  # type: ignore[no-any-return]

    def carried(self, x: Any) -> Any:
        """An object of ours for one of SciPy's; of SciPy's own in it, it knows how they are made."""
        kind = type(x)
        new = self.seen[id(x)] = object.__new__(kind)  # before what leads back to it
        own = state_of(x, kind)
        put_state(new, {name: v if is_theirs(type(v)) else self(v) for name, v in own.items()})
        return new

    def drawn(self, x: Any) -> Any:
        if type(x) is RecordedIterator:
            return RecordedIterator(self, x, True)
        if self.of is None:
            return RecordedIterator(self, x, False)
        self.iterator(getattr(x, "real", x))  # what it walks along
        return RecordedIterator(self, self.of(x), False)

    def along(self, x: Any) -> Any:
        """A run of the function itself goes on with an iterator where it is; those after it begin where that
        began."""
        if self.of is None:
            return FlatSnapshot(self(x.base), [*x.place])
        return FlatIterator(self(x.base), [*x.place] if type(x) is FlatSnapshot else x.place)

    def made_outside(self) -> set[Any]:
        return set()  # all is made anew, globals included

    def globals_of(self, space: AnyDict) -> Any:
        return self.own_globals(space)

    def function(self, f: Any) -> Any:
        g = super().function(f)
        if g is not f and type(g.__globals__) is ModuleGlobals:
            names = names_in(f.__code__)
            if "random" in names:
                self.generators += [(r, snapshot(r)) for r in (np.random.mtrand._rand, random._inst)]
            ask(g.__globals__, names)  # at once: the captured arrays are to be known before the call
        return g

    def check_all(self, call: str) -> None:
        """Were all captured Variables known?"""
        if len(self.of.handles) > len(self.values):
            ended(self)
            raise LateVariable(
                f"{call}: run again, the function reads an array that it did not read at first. It reads "
                f"something that has changed (an "
                "attribute, a file, an unseeded random generator): pass it as an argument"
            )

    def check(self, call: str, returned: Any = ()) -> AnyList:
        """Raise where a tracked value left by another way than arrays and the tree of the result, for its
        derivative would be lost: also in objects that are `returned`.  Gives the floats that left so.  Those
        of a run on plain values may have a derivative: a run on tracked values tells.  What a search kept
        is left out: it raises where it is read."""
        own = {id(y) for _, y in self.handles}  # an array that was captured may be stored
        known = {id(new) for new in self.seen.values()}  # they are handed back as what they stand for
        same = {id(x) for x, before in self.state if is_same(x, before)}  # numbers as they were
        changes = [c for c in self.changes if c[0] is not Contents or id(c[1]) not in same]
        put = [now for change in changes for now in change[0].put(change) if id(now) not in own]
        put += [v for v in returned if not is_differentiable(layout_of(v))]
        found = [v for now in put for v in held_floats(now, known)] + (
            [*strays(self)[1].values()] if self.near else []
        )
        found = [v for v in found if not (isinstance(v, Variable) and is_lost(v))]
        if any([is_tracked(v) for v in found]):
            raise ArgumentError(
                f"{call}: the function keeps a value with a derivative outside of itself (by a name, an "
                "attribute, in a list), or returns it in an object that is no tuple, list, dict or "
                "dataclass; it is called again for the derivative, so what it returns and what it writes "
                "into arrays can be followed: return the value, write name[...] = value, or keep "
                "tapegrad.value(v)"
            )
        return found


def is_lost(x: Variable) -> bool:
    """Does nobody know its derivative?  Then it is no input of the function, which may look at it."""
    trace = (x._base if type(x) is View else x)._trace
    return trace is not None and trace.loss() is not None


def ask(space: ModuleGlobals, names: set[Any]) -> None:
    """The names that a function may read, and, as attributes, those of its modules."""
    met = {id(space)}
    todo: AnyList = [space]
    for space in todo:
        for name in names:
            try:
                found = space[name]
            except KeyError:
                continue
            if type(found) is ModuleShadow and id(vars(found)) not in met:
                met.add(id(vars(found)))
                todo.append(vars(found))


class RecordedIterator(UserIterator):
    """An iterator made outside.  What it gave is kept, and given again to a recomputation, whose own is one
    over this one."""

    __slots__ = ("again", "at", "items")

    def __init__(self, shadow: Rebind, real: Any, again: bool):
        super().__init__(real, shadow)
        self.items: AnyList = real.items if type(real) is RecordedIterator else []
        self.at, self.again = 0, again

    def __next__(self) -> Any:
        kept = self.real
        if self.at == len(self.items):
            self.items.append(next(kept.real))
            kept.given(self.items[-1])
        item = self.items[self.at]
        self.at += 1
        return self.given(kept.given(item) if self.again else item)

    def send(self, value: Any) -> None:
        raise ArgumentError(
            "checkpoint: the function sends values to a generator made outside: make the generator inside"
        )


class FlatSnapshot(FlatIterator):
    """One as it was when the function was called."""

    __slots__ = ()


# what a shadow has put in the place of an object, which another one is to replace again
REPLACED: AnyDict = {
    UserIterator: Rebind.drawn,
    RecordedIterator: Rebind.drawn,
    ContextValue: Rebind.ambient,
    FlatIterator: Rebind.along,
    FlatSnapshot: Rebind.along,
    Reference: lambda shadow, x: Reference(shadow(x.target)),
}


def held_floats(start: Any, known: Collection[int]) -> AnyList:
    """The Variables, float arrays and floats that an object holds: in containers, attributes, closures,
    generators.  Objects with these ids are not entered, nor are modules, names of globals and what these
    name."""
    found, todo, met = [], [start], set()
    for x in todo:
        kind = type(x)
        if kind in HANDLES or is_differentiable(x):
            found.append(x)
        elif hasattr(kind, "_handed_back") and id(x) not in met:  # ours for one of SciPy's
            todo += state_of(x).values()
        elif id(x) in met or id(x) in known or kind in LEAVES or isinstance(x, types.ModuleType) or is_own(x):
            continue
        elif isinstance(x, type):
            todo += () if is_foreign(module_of(x)) or is_global(x) else vars(x).values()
        elif kind is types.FunctionType:
            todo += [*(x.__closure__ or ()), x.__defaults__, x.__kwdefaults__, vars(x)]
        else:
            todo += contents(x)
        met.add(id(x))
    return found


def is_global(kind: type) -> bool:
    """Is this class one of the names of its module?"""
    return getattr(sys.modules.get(module_of(kind)), kind.__qualname__, None) is kind


def confirm(kept: bool, inputs: AnyList, run: AnyFunction) -> None:
    """`run(inputs)` on tracked values, so that `Rebind.check` raises if what a run on plain ones has kept
    depends on them."""
    if kept and any([is_tracked(v) for v in inputs]):
        vjp(Const(run), *[primal_of(v) for v in inputs])


# --- is what is recomputed what was computed? ---


def ended(shadow: Shadow) -> None:
    """Nothing is handed back; containers of numbers, which had no shadow, are left to `Step.as_before`."""
    if shadow.on:
        if shadow.changes is not None:
            shadow.changes = [c for c in shadow.changes if c[0] is not Contents or c[3] is not None]
        restore_all(shadow, undo=True)
        shadow.on = False


class CurrentNumbers:
    """What captured numbers are now: `end` sets them to it again."""

    def __init__(self, numbers: AnyList):
        self.numbers = [(x, content_of(x)) for x in numbers]

    def end(self, error: Any) -> None:
        for x, now in self.numbers:
            put_back(x, now)


def as_they_were(state: AnyList) -> None:
    """Captured numbers are what they were, pairs (number, content), until the block is left."""
    altered = [(x, before) for x, before in state if not is_same(x, before)]
    OPEN.unfinished = (*OPEN.unfinished, CurrentNumbers([x for x, _ in altered]))
    for x, before in altered:
        put_back(x, before)


def forgotten(shadow: Rebind) -> None:
    """What a run has altered is as it was when the shadow met it."""
    for r, state in shadow.generators:
        restore(r, state)
    for x, before in shadow.state:
        put_back(x, before)
    ended(shadow)


@contextlib.contextmanager
def once_more(*functions: Any, arrays: bool = True) -> Iterator[Any]:
    """Functions that have been called already, to be called again: what they alter stays as it is, but for
    captured arrays, which hold what these calls leave there.  `arrays=False`: these stay, too, for the
    derivatives of what they hold are right."""
    if OPEN.again:  # what is called again from there leaves nothing behind
        yield functions
        return
    shadow = Rebind(functions, [])
    with shadow as (again, _):
        OPEN.again = True
        try:
            yield again
            for x, y in shadow.handles:
                if arrays and getattr(y, "_version", 0) > 0:
                    captured_result(x, handle(out_of(y)))
        finally:
            OPEN.again = False
            shadow.arrays = []
            forgotten(shadow)


@contextlib.contextmanager
def leaving_nothing(f: AnyFunction, *values: Any) -> Iterator[AnyFunction]:
    """A context of a function that has been called, to be called again: with copies of the arrays that it
    captures, if outer transforms watch the values. What it wrote there could not hold their derivatives."""
    if not any_tracked(values):
        yield f
        return
    shadow = Shadow(f, [])
    with scope_block():
        with shadow as (again, _):
            yield again
        ended(shadow)


def captured_result(x: Variable, out: Any) -> None:
    """A captured array is what a run has left in its stand-in."""
    write(ASSIGN, x, out, Ellipsis)


def note_carried(error: BaseException, inputs: AnyList) -> None:
    """Note that `error` leaves a function that is differentiated as a whole.

    `inputs`: tuples whose first member is an input of the function. Numbers in the error lack their
    derivative, so an `except` clause that goes on raises later."""
    followed = any([isinstance(x, Variable) and live(x)._trace is not None for x, *_ in inputs])
    if not followed or not isinstance(error, Exception) or isinstance(error, TapegradError):
        return
    if held_floats([error.args, vars(error)], ()):
        DroppedDerivativeError(
            f"a {type(error).__name__} leaves a function that is differentiated as a whole, and the "
            "numbers that it holds lack their derivative: catch it inside that function"
        )


def left_by_error(shadow: Rebind, call: str, written: Collection[int] | None = None) -> None:
    """Note that a function which ran on plain values has failed.

    Captured arrays hold what it has written, without the derivative. So an `except` clause that goes on
    raises later."""
    stand_ins = {k: shadow.handles[place][1] for k, place in shadow.places.items()}
    if written is None:
        written = [k for k, y in stand_ins.items() if getattr(y, "_version", 0) > 0]
    for k in written:
        captured_result(shadow.of.handles[k][0], out_of(primal_of(stand_ins[k])))
    try:
        kept = bool(shadow.check(call))
    except ArgumentError:
        kept = True
    if written or kept:
        DroppedDerivativeError(
            f"{call}: its function raised an error after it had changed arrays or names outside of itself, "
            "and what they hold lacks the derivative: catch the error inside that function"
        )


class LateVariable(GuardError):
    """A function has met captured Variables that were not known when it was called: the first time it is
    called again, with these."""


RUNS = 32  # a function that meets other captured Variables in each run never ends


def with_all(first: Rebind, run: AnyFunction) -> AnyTuple:
    """(The captured Variables, what `run` makes of their values)"""
    for _ in range(RUNS):
        handles = [x for x, _ in first.handles]
        try:
            return handles, run([live(x) for x in handles])
        except LateVariable as error:
            late = error
            if len(first.handles) == len(handles):
                break
    raise late


def out_of(v: Any) -> Any:
    """A value that leaves the step: of this level as a Variable, untracked ones as plain copies."""
    if not isinstance(v, Variable):
        return copy_with_layout(v) if is_array(v) else numpy_number(v)
    v = live(v)
    if v._trace is not None:
        return frozen(v)
    b = bottom(v)
    return copy_with_layout(b) if is_array(b) else b
