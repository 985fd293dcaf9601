"""Variable: a handle on an array or number that may be watched; View: a handle on a region of another.

The value chooses the class of a Variable when it is made. `ArrayVariable` can be written in place; `View`
is its subclass; each scalar type of NumPy has a class of its own. Python looks up special methods on the
class. So the class has the special methods of `np.ndarray`, or of that scalar type, and no others
(ops/variable_methods.py).

The memory model:

1.  A handle of level 2 wraps a value of level 1, which wraps a plain array. Only the handle changes. The
    Variables that it wraps are values (array and slot) and never change. All levels of one handle share
    one memory.
2.  `_saved` on a handle, or on any value that it wraps, means that something else may hold this memory.
    The next write first moves the handle to a copy. The copied values keep their slots. A copy has the
    same derivatives, so nothing is recorded. The old memory keeps its content for its other holders.
3.  A handle that was written is *hot* (`_version` > 0). A view of a hot base reads its region as a copy.
    A view of a cold base aliases it and marks the base as saved.
4.  A write to all of a hot handle may take over the written array (_dispatch/fast/regions.py). The array has
    another holder, so both are saved.

So a write costs its region, plus at most one copy of the buffer. It is copied at most once after it was
made, and once after each operation that read all of it. A reference to a row of a buffer keeps that row
in memory, not the buffer.

All fields, and all states of each:

  _value    a NumPy or CuPy array or NumPy number    what one level down is; of a plain handle its memory
            a Variable                               level 2 or more: a value, plain or of a lower level
            a Variable, in an unread View            the matrix whose transpose it is (_dispatch.fast)
            None                                     an unread View
  _trace    None                                     plain: no open transform watches it
            a Tape, a Dual, another open Trace       watched; `_slot` is that trace's
            an Ended trace                           its transform is over: it counts as its `_value`
            a Loan                                   lent memory: each read copies (_core/lent_memory.py)
  _slot     None                                     of a plain handle, a Loan
            a number                                 of a Tape: the index of the record that made the value
            an array, number or Variable             of a Dual: the tangent, laid out in memory like the value
            what the trace says                      of another trace; an array only if that says `holds`
  _saved    unset or False                           no other holder is known (`is_saved` asks all levels)
            True                                     possibly another holder: the next write moves the handle
  _version  unset or 0                               cold: not written; views alias it, the first write moves
  it,
                                                     unless the array owns its memory without other holders
            n > 0                                    hot: written or moved n times; views copy their region
            Moving                                   on loan: every view is out of date
  of a View, which stands for an array:
  _base     a Variable, not a View                   the handle that it is a region of
  _path     steps (kind, what), one or more          that lead from there to here (ops/indexing)
  _seen     -1                                       not read yet
            the base's _version                      read: _value, _trace and _slot are those of the region
            now a smaller number                         out of date: `refresh` reads it again

A handle is a Variable in the user's hands. A value is a Variable that is never written (`frozen`): a level
wraps it or a record keeps it.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import copy_with_layout, is_array, room_like
from .errors import ArgumentError
from .registry import late
from .typing import AnyTuple, Array, Number

if TYPE_CHECKING:  # ops/variable_methods.py supplies the methods
    from .attached import Attached
else:
    Attached = object


class Elements:
    """Base of objects that stand for elements of a Variable. Functions of arrays use `plain_elements()`."""

    __slots__ = ()

    def plain_elements(self) -> Any:
        raise NotImplementedError


class Variable(Attached):
    """An array of NumPy or CuPy that a transform may watch, and that may be written in place.

    Inside a transform the arguments of your function are Variables. They behave as arrays.

    Parameters
    ----------
    array : array or number
        The content, which is copied. A Variable made by hand is for `tapegrad.Tape`, or is captured by a
        function.

    See Also
    --------
    Tape : Watches Variables by hand.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> x = tg.Variable(np.array([1.0, 2.0]))
    >>> with tg.Tape() as tape:
    ...     y = (tape.watch(x) ** 2).sum()
    >>> float(tg.value(y))
    5.0
    """

    # `_trace is None`: a plain array. Otherwise `_value` is one level down, and `_slot` belongs to the
    # trace: a record number (reverse) or a tangent (forward). `_saved` and `_version` are unset until
    # needed. A store costs 8 ns, and most Variables are neither saved nor written.
    __slots__ = ("_value", "_trace", "_slot", "_saved", "_version")
    _value: Any
    _trace: Any
    _slot: Any
    _saved: bool
    _version: Any
    __array_priority__ = 1000

    # Used by `isinstance`, `match` and `singledispatch`: a Variable reports the class of its number or
    # array. tapegrad's own code tests `type(x)` for plain values.
    __class__ = property(lambda x: late.class_of(x))

    def __new__(cls, *args: Any) -> "Variable":
        return new(ArrayVariable if cls is Variable else cls)

    def __init__(self, array: "Array | Number | list[float] | Variable"):
        value = bottom(array)
        if not is_array(value):
            value = np.asarray(value)
        if value.dtype.kind not in "biufc":
            raise ArgumentError(f"Variable(array): dtype {value.dtype} cannot be computed with")
        self._value, self._trace, self._slot = copy_with_layout(value), None, None

    def _become(self, other: "Variable") -> None:
        """Take over a new value, because the handle was written."""
        self._value, self._trace, self._slot = other._value, other._trace, other._slot
        self._version = getattr(self, "_version", 0) + 1
        self._saved = False


class ArrayVariable(Variable):
    """A Variable over an array."""

    __slots__ = ()


ArrayVariable.__name__ = "Variable"  # the name in Python's messages


class View(ArrayVariable):
    """A region of another handle's array. It is a class of its own, so other Variables have no fields for
    views.

    `_base` is never a view itself. `_path` is the tuple of steps from there to here. `_seen` is the
    version of the base at which `_value` was read (-1: not yet)."""

    __slots__ = ("_base", "_path", "_seen")
    _base: Variable
    _path: AnyTuple
    _seen: int


class NumberVariable(Variable):
    """A Variable over a number. Each NumPy scalar type has a subclass."""

    __slots__ = ()


class Subarray:
    """Base of what stands for an array of a subclass of `np.ndarray`: its array and its attributes."""

    __slots__ = ("_array",)
    _array: Any


class PlainSubarray(np.ndarray[Any, Any]):
    """An array of the shadow of a subclass, which C code has made. Its methods are those of a subarray."""

    @property
    def _array(self) -> np.ndarray[Any, Any]:
        return np.ndarray.view(self, np.ndarray)


SUBARRAYS: set[type] = set()  # classes of subarrays; while it is empty, nobody searches for one


class VariableClasses(dict[Any, Any]):
    """type of a value -> class of a Variable over it."""

    __slots__ = ()

    def __missing__(self, kind: type) -> type:
        found = self[kind] = next((self[c] for c in kind.__mro__ if c in self), ArrayVariable)
        return found


SCALARS = [np.dtype(c).type for c in "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]]
# the name in messages
NUMBER_CLASSES = {
    kind: type(f"numpy.{kind.__name__}", (NumberVariable,), {"__slots__": ()}) for kind in SCALARS
}
HANDLES = frozenset((ArrayVariable, View, *NUMBER_CLASSES.values()))  # the classes of all Variables
DIRECT = HANDLES - {View}  # those whose fields are always up to date
FLOAT: Any = NUMBER_CLASSES[np.float64]  # the usual one
CLASSES = VariableClasses({**NUMBER_CLASSES, **{c: c for c in HANDLES}, View: ArrayVariable})
CLASSES.update({float: FLOAT} | {kind: NUMBER_CLASSES[np.dtype(kind).type] for kind in (complex, int, bool)})
new = object.__new__


def variable(value: Any, trace: Any = None, slot: Any = None) -> Variable:
    y: Variable = new(CLASSES[type(value)])
    y._value = value
    y._trace = trace
    y._slot = slot
    return y


def bottom(x: Any) -> Any:
    """The value under all levels. (Not for a View: see `_core.primitive.layout_of`.)"""
    while isinstance(x, Variable):
        x = x._value
    return x


def is_saved(x: Any) -> bool:
    """May anything else, at any level, hold the memory of this value?"""
    while isinstance(x, Variable):
        if getattr(x, "_saved", False):
            return True
        if x._trace is not None and x._trace.holds:
            slot = x._slot
            if type(slot) is not np.ndarray and is_saved(x._trace.memory(slot)):
                return True
        x = x._value
    return False


def has_tangent(x: Any) -> bool:
    while isinstance(x, Variable):
        if x._trace is not None and x._trace.holds:
            return True
        x = x._value
    return False


def copied(x: Any) -> Any:
    """The same value, with its slots, in memory of its own. A tangent counts as memory too."""
    if isinstance(x, Variable):
        trace, slot = x._trace, x._slot
        if trace is not None and trace.lent:
            return variable(trace.now())
        if trace is not None and trace.holds:
            slot = trace.copied_slot(slot, x)
        return variable(copied(x._value), trace, slot)
    if isinstance(x, np.generic):
        return x
    return copy_with_layout(x)


def like_layout(tangent: Any, value: Any) -> Any:
    """A newly copied tangent with the dtype and memory order of its value. Otherwise a reshape could be a
    view of one and a copy of the other."""
    value = bottom(value)
    t = bottom(tangent)
    if getattr(value, "ndim", 0) == 0 or (t.dtype == value.dtype and t.strides == value.strides):
        return tangent
    if isinstance(tangent, Variable):
        if t.dtype != value.dtype:  # real for complex: an operation, because its adjoint takes the real part
            return like_layout(late.fit(tangent, value.shape, value.dtype), value)
        trace, slot = tangent._trace, tangent._slot
        if trace is not None and trace.holds:
            slot = trace.laid_slot(slot, value)
        return variable(like_layout(tangent._value, value), trace, slot)
    fresh = room_like(value)
    fresh[...] = t
    return fresh


def frozen(x: Variable) -> Variable:
    """The current value of the handle x, unaffected by later writes through x."""
    y = new(CLASSES[type(x)])
    y._value = x._value
    y._trace = trace = x._trace
    y._slot = x._slot
    y._saved = x._saved = True
    return y if trace is None or not trace.lent else variable(trace.now())
