"""Variable: a handle on an array or number that may be watched; View: a handle on a region of another one.

A Variable is of one of three kinds of class, chosen by the value when it is made: `ArrayVariable`, which may be written in place, its
subclass `View`, and one class for each scalar type of NumPy.  Python looks up special methods on the class.  So the class has those
of `np.ndarray`, or of that scalar type, and no others (ops/_attach.py).

How memory is kept right, all of it:

1.  A handle of level 2 wraps a value of level 1, which wraps a plain array.  Only the handle changes; the Variables that it
    wraps are values (array and slot) and stay as they are.  All levels of one handle share one memory.
2.  `_saved` on a handle, or on any value that it wraps, says: somebody else may hold this memory.  The next write first moves
    the handle to a copy (values with the same slots over copied memory: a copy has the same derivatives, so nothing is
    recorded).  Who holds the old memory keeps it as it was.
3.  A handle that was written is *hot* (`_version` > 0).  A view of a hot base is read as a copy of its region, a view of a
    cold base aliases it and marks the base saved.

4.  A hot handle that is written whole may take over the array that is written (_fast/regions.py): somebody else holds it, so
    both are saved.

So a write costs its region, plus at most one copy of the buffer since the buffer was made or since an operation that read
the whole buffer; and whoever keeps a row of a buffer that is being filled keeps that row, not the buffer.

Every field, and every state that it can be in:

  _value    a NumPy or CuPy array or NumPy number    what one level down is; of a plain handle its memory
            a Variable                               of a handle of level 2 and more: a value, of a lower level or plain
            a Variable, in an unread View            the matrix of which it is the transpose (_fast)
            None                                     an unread View
  _trace    None                                     plain: no open transform watches it
            a Tape, a Dual, another open Trace       watched; `_slot` is that trace's
            an Ended trace                           its transform is over: it counts as its `_value`
            a Loan                                   its memory is in foreign hands: read by copy each time (_core/lent_memory.py)
  _slot     None                                     of a plain handle, a Loan
            a number                                 of a Tape: the index of the record that made the value
            an array, number or Variable             of a Dual: the tangent, laid out in memory like the value
            what the trace says                      of another trace; an array only if that says `holds`
  _saved    unset or False                           nobody is known to hold this memory (`is_saved` asks all levels)
            True                                     somebody may: the next write moves the handle first
  _version  unset or 0                               cold: not written yet; views alias it, and the first write moves it,
                                                     unless the array owns its memory and nobody holds it
            n > 0                                    hot: written or moved n times; views copy their region
            Moving                                   on loan: whatever a view has seen is out of date
  of a View, which stands for an array:
  _base     a Variable that is no View               the handle of which it is a region
  _path     steps (kind, what), one or more          that lead from there to here (ops/indexing.py)
  _seen     -1                                       not read yet
            the base's _version                      read: _value, _trace and _slot are those of the region now
            a smaller number                         out of date: `refresh` reads it again

A value, what a level wraps or a record keeps, is a Variable that is never written (`frozen`); a handle is what the user has.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import is_array, kept, room_like
from .errors import ArgumentError
from .registry import late
from .typing import AnyTuple, Array, Number

if TYPE_CHECKING:  # ops/_attach.py gives the methods
    from .attached import Attached
else:
    Attached = object


class Elements:
    """What stands for elements of a Variable beside functions of arrays, which take `plain_elements()`."""

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

    # `_trace is None`: a plain array.  Otherwise `_value` is one level down, and `_slot` belongs to the trace: a node number
    # (reverse) or a tangent (forward).  `_saved` and `_version` stay unset until they matter: a store costs 8 ns, and nearly
    # every Variable is neither saved nor written.
    __slots__ = ("_value", "_trace", "_slot", "_saved", "_version")
    _value: Any
    _trace: Any
    _slot: Any
    _saved: bool
    _version: Any
    __array_priority__ = 1000

    # `isinstance`, `match` and `singledispatch` ask for it: a Variable answers as the number or array that it stands for.  The
    # engine asks `type(x)` where it means a plain one.
    __class__ = property(lambda x: late.class_of(x))

    def __new__(cls, *args: Any) -> "Variable":
        return new(ArrayVariable if cls is Variable else cls)

    def __init__(self, array: "Array | Number | list[float] | Variable"):
        value = bottom(array)
        if not is_array(value):
            value = np.asarray(value)
        if value.dtype.kind not in "biufc":
            raise ArgumentError(f"Variable(array): dtype {value.dtype} cannot be computed with")
        self._value, self._trace, self._slot = kept(value), None, None

    def _become(self, other: "Variable") -> None:
        """Take over a new value: the handle was written."""
        self._value, self._trace, self._slot = other._value, other._trace, other._slot
        self._version = getattr(self, "_version", 0) + 1
        self._saved = False


class ArrayVariable(Variable):
    """A Variable over an array."""

    __slots__ = ()


ArrayVariable.__name__ = "Variable"  # in messages of Python's


class View(ArrayVariable):
    """A region of another handle's array.  Its class, not a field, tells it apart: other Variables pay nothing for views.

    `_base` is never itself a view; `_path` is the tuple of steps that leads from there to here; `_seen` is the version of the
    base at which `_value` was read (-1: not yet)."""

    __slots__ = ("_base", "_path", "_seen")
    _base: Variable
    _path: AnyTuple
    _seen: int


class NumberVariable(Variable):
    """A Variable over a number.  Each scalar type of NumPy has a subclass."""

    __slots__ = ()


class Classes(dict[Any, Any]):
    """The type of a value -> the class of a Variable over it."""

    __slots__ = ()

    def __missing__(self, kind: type) -> type:
        found = self[kind] = next((self[c] for c in kind.__mro__ if c in self), ArrayVariable)
        return found


SCALARS = [np.dtype(c).type for c in "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]]
NUMBER_CLASSES = {kind: type(f"numpy.{kind.__name__}", (NumberVariable,), {"__slots__": ()}) for kind in SCALARS}  # so named in messages
HANDLES = frozenset((ArrayVariable, View, *NUMBER_CLASSES.values()))  # the classes of all Variables
DIRECT = HANDLES - {View}  # those whose fields are up to date
FLOAT: Any = NUMBER_CLASSES[np.float64]  # the usual one
CLASSES = Classes({**NUMBER_CLASSES, **{c: c for c in HANDLES}, View: ArrayVariable})
CLASSES.update({float: FLOAT} | {kind: NUMBER_CLASSES[np.dtype(kind).type] for kind in (complex, int, bool)})
new = object.__new__


def variable(value: Any, trace: Any = None, slot: Any = None) -> Variable:
    y: Variable = new(CLASSES[type(value)])
    y._value = value
    y._trace = trace
    y._slot = slot
    return y


def bottom(x: Any) -> Any:
    """What lies under all levels.  (Not of a View: see `_core.primitive.layout_of`.)"""
    while isinstance(x, Variable):
        x = x._value
    return x


def is_saved(x: Any) -> bool:
    """May somebody, at any level, hold the memory of this value?"""
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
    """The same value, slots and all, over memory of its own.  A tangent is memory too."""
    if isinstance(x, Variable):
        trace, slot = x._trace, x._slot
        if trace is not None and trace.lent:
            return variable(trace.now())
        if trace is not None and trace.holds:
            slot = trace.copied_slot(slot, x)
        return variable(copied(x._value), trace, slot)
    if isinstance(x, np.generic):
        return x
    return kept(x)


def like_layout(tangent: Any, value: Any) -> Any:
    """A freshly copied tangent, with the dtype and memory order of its value (else a reshaped view of the one would be a
    copy of the other)."""
    value = bottom(value)
    t = bottom(tangent)
    if getattr(value, "ndim", 0) == 0 or (t.dtype == value.dtype and t.strides == value.strides):
        return tangent
    if isinstance(tangent, Variable):
        if t.dtype != value.dtype:  # real for complex: an operation, for its adjoint takes the real part
            return like_layout(late.fit(tangent, value.shape, value.dtype), value)
        trace, slot = tangent._trace, tangent._slot
        if trace is not None and trace.holds:
            slot = trace.laid_slot(slot, value)
        return variable(like_layout(tangent._value, value), trace, slot)
    fresh = room_like(value)
    fresh[...] = t
    return fresh


def frozen(x: Variable) -> Variable:
    """The value of the handle x as it is now, which later writes through x do not alter."""
    y = new(CLASSES[type(x)])
    y._value = x._value
    y._trace = trace = x._trace
    y._slot = x._slot
    y._saved = x._saved = True
    return y if trace is None or not trace.lent else variable(trace.now())
