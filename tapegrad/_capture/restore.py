"""Afterwards: what the function wrote, as plain data, where a plain call would have left it."""

import operator
import types
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE, is_array, without_class
from .._core.errors import DroppedDerivativeError, RouteError
from .._core.primitive import is_tracked, live
from .._core.variable import Subarray, Variable, View, bottom
from .._dispatch import structured
from .._dispatch.stand_ins import library_object
from ..ops.indexing.regions import region
from . import array_subclasses, threads
from .classes import Members, retire_class, users_own
from .kinds import EMPTY, HELD, NOTHING, dict_of, holders, is_user_class, put_state, state_of
from .objects import FIXED, kind_of
from .routes import array_was_written, strays, written_arrays


def write_back(shadow: Any) -> Any:
    """Captured arrays as f left them; gives one that cannot hold what was written."""
    lost = None
    for array, v in shadow.arrays:
        if not v._version or not array_was_written(shadow, v):
            continue
        if v._trace is None and type(v._value) is np.ndarray:
            now = v._value
        else:
            v = live(v)
            now = bottom(v)
        if v._trace is not None:
            lost = array
        elif now is not array:
            without_class(array)[...] = now
    return lost


def restore(shadow: Any, undo: bool = False) -> None:
    """`undo`: nothing is handed back.  Raises RouteError, and has handed nothing back, where that would break
    another thread's sweep."""
    lost = late = None
    if shadow.seen is None:  # it was interrupted at the very end
        return forget(shadow)
    if shadow.arrays and not undo:
        try:
            lost = threads.exclusively(shadow, written_arrays(shadow), write_back)
        except RouteError as error:
            late, undo = error, True
    astray, stored = strays(shadow) if shadow.near else ((), NOTHING)
    back = shadow.back = Restorer(shadow, stored, undo) if shadow.back is None else shadow.back.resumed()
    for change in reversed(holders(shadow)):  # the names last: methods of what is handed back may read them
        change[0].undo(back, change)
    for x in astray:
        clean(x, back)
    if shadow.classes:
        for change in shadow.changes:
            if change[0] is Members:
                _, c, new, bases, _ = change
                retire_class(c, new, bases, new not in back.kept)
    forget(shadow)
    if late is not None:
        raise late
    if lost is not None:
        raise DroppedDerivativeError(
            "an inner transform wrote a value that an outer transform watches into a plain array of shape "
            f"{lost.shape}, which cannot hold its derivative; make the array with numpy.zeros(n, like=x) or "
            "outside of the outer function"
        )


def forget(shadow: Any) -> None:
    """No cycle of references through the shadow is left."""
    shadow.seen = shadow.arrays = shadow.changes = shadow.classes = shadow.memories = shadow.strangers = (
        shadow.hold
    ) = shadow.left = None
    shadow.back, shadow.near, shadow.waited = None, (), None
    shadow.walked = shadow.theirs = shadow.reached = shadow.sums = shadow.given = shadow.fresh = (
        shadow.stashes
    ) = ()


def clean(x, back):
    """An object that was left alone, with plain values for the Variables that f stored in it."""
    if isinstance(x, (type, types.FunctionType, types.ModuleType)):
        for name, v in [*vars(x).items()]:
            if isinstance(v, Variable):
                setattr(x, name, back(v))
    else:
        back(x)
        space = dict_of(x)
        for name, v in [*space.items()]:
            if isinstance(v, Variable):
                space[name] = back(v)


class Restorer:
    """The way back: a shadow as what it stood for, a Variable as its plain value, a leaked object as one of
    the user's class."""

    __slots__ = ("kept", "memo", "original", "shadow", "step", "stored", "undo")

    def __init__(self, shadow, stored, undo):
        self.shadow, self.stored, self.undo = shadow, stored, undo
        # id of a shadow -> what it stands for; made when it is asked, as is the memo
        self.original: Any = None
        self.kept: Any = ()  # shadow classes that have instances outside
        self.step: Any = None  # what is being done: a function, and what it is called with

    def resumed(self) -> "Restorer":
        """After an interrupt the step that it has struck is done again, and all others are looked at anew."""
        self.original = None
        if self.step is not None:
            self.do(*self.step)
        return self

    def do(self, function: Any, *args: Any) -> None:
        """A step that, once begun, is to be completed, for what it takes away stands in its arguments
        only."""
        self.step = function, *args
        function(*args)
        self.step = None

    def __call__(self, v: Any) -> Any:
        if type(v) in IMMUTABLE:
            return v
        if self.original is None:
            seen = self.shadow.seen
            self.memo: dict = {}
            self.original = {
                id(new): old for old in self.shadow.hold if (new := seen.get(id(old))) is not None
            }
        old = self.original.get(id(v), EMPTY)
        if old is not EMPTY and not (old is v and isinstance(v, Variable) and id(v) in self.stored):
            return old
        if id(v) in self.shadow.outer and isinstance(v, Variable):
            return v
        if id(v) in self.memo:
            return self.memo[id(v)][1]
        new = self.plain(v)
        self.memo[id(v)] = v, new
        return new

    def plain(self, v: Any) -> Any:
        if type(v) is View:  # an alias, as in a plain call
            base = self(v._base)
            if base is v._base:
                return v
            if is_array(base) and not is_tracked(v):
                return region(base, v._path)
        if isinstance(v, Variable):
            v = live(v)
            if v._trace is not None:
                return v  # a value of an outer transform stays what it is
            b = bottom(v)
            return b.copy() if is_array(b) else b
        kind = type(v)
        if (real := library_object(v)) is not v:
            return real
        if structured.kind_of(v):
            return structured.handed_back(v, self)
        if issubclass(kind, Subarray):
            return array_subclasses.handed_back(v, self)
        if hasattr(kind, "_handed_back"):  # ours for one of SciPy's
            return v._handed_back()
        if kind is types.MethodType and (owner := self(v.__self__)) is not v.__self__:
            name = v.__func__.__name__
            return getattr(owner, name) if hasattr(owner, name) else v
        base = kind_of(v)
        if base is not None and base.kind in FIXED:
            parts = base.parts(v)
            new = [self(e) for e in parts]
            if not all(map(operator.is_, parts, new)):
                state, v = state_of(v), base.make(v, new)
                put_state(v, state)
        if kind in self.shadow.classes and not users_own(v, self.shadow.classes[kind]):
            self.kept += (kind,)
        self.memo[id(v)] = v, v  # before what it holds: that may lead back to it
        for c in (v.__closure__ or ()) if kind is types.FunctionType else ():
            self(c)
        if base is not None and base.put is not None:
            now = base.parts(v)
            new = [self(e) for e in now]
            if not all(map(operator.is_, now, new)):
                self.do(base.put, v, new)
        if is_user_class(kind) or kind in HELD or (base is not None and dict_of(v)):
            now = state_of(v)
            bound = {name: new for name, e in now.items() if (new := self(e)) is not e}
            if bound:
                put_state(v, bound)
        return v
