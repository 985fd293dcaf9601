"""Abstract values: arrays with shape, dtype and memory order, but without values.

A trace that hides its values puts them under its Variables. Every read of the contents raises.
Compiled code that reads the memory directly computes with nan."""

from typing import Any

import numpy as np

from .arrays import has_repeating_axis
from .errors import BatchError, callers_line
from .typing import AnyDict, Shape


def refuse_abstract(what: str) -> Any:
    def method(*args: Any, **kwargs: Any) -> Any:
        raise BatchError(
            f"{callers_line()}: {what} asks for values, and the function is run once for all samples "
            f"(tg.vmap) or recorded for other "
            "points (tg.prepare): write it with numpy's functions on the tracked array, or do without"
        )

    return method


OF_VALUES = (
    "__bool__ __int__ __float__ __complex__ __index__ __round__ __contains__ __iter__ item tolist tobytes "
    "tofile dump dumps argsort argmax argmin argpartition sort partition searchsorted nonzero round choose "
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __mod__ "
    "__rmod__ __floordiv__ __rfloordiv__ __divmod__ __rdivmod__ __matmul__ __rmatmul__ __neg__ __pos__ "
    "__abs__ __lt__ __le__ __eq__ __ne__ __gt__ __ge__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ "
    "__invert__ is_integer as_integer_ratio hex conj conjugate dot sum prod mean any all max min take repeat"
).split()
OF_LAYOUT = {
    np.shape, np.ndim, np.size, np.broadcast_shapes, np.may_share_memory, np.shares_memory, np.result_type,
    np.diagonal, np.broadcast_to,
    np.einsum, np.lib.stride_tricks.sliding_window_view, np.iscomplexobj, np.isrealobj, np.common_type,
    np.can_cast, np.tril_indices_from, np.triu_indices_from, np.diag_indices_from, np.einsum_path,
}  # fmt: skip
LIKE = {np.empty_like, np.zeros_like, np.ones_like, np.full_like}
BLIND = {name: refuse_abstract(name) for name in OF_VALUES}
BLIND["__array_ufunc__"] = lambda x, ufunc, *args, **kwargs: refuse_abstract(ufunc.__name__)()
BLIND["__hash__"] = object.__hash__


TEXT_ASKED = refuse_abstract("reading the text of a tracked value")


plain_text: Any = str.__str__


class AbstractText(str):
    """The text of hidden values. It can be shown and formatted into another text. Every other use raises,
    because the content is unknown."""

    __slots__ = ()
    # None: `logging` asks, which shows it
    __str__ = __repr__ = lambda x: x if callers_line() else plain_text(x)  # type: ignore[assignment, return-value]
    __format__ = lambda x, spec: AbstractText(str.__format__(plain_text(x), spec))
    __add__ = lambda x, y: AbstractText(str.__add__(x, y))
    __radd__ = lambda x, y: AbstractText(str.__add__(y, x))


def refusing_method(name: str) -> Any:
    of_text = getattr(str, name, None)

    def method(x: AbstractText, *args: Any, **kwargs: Any) -> Any:
        if of_text is not None and callers_line() is None:
            return of_text(x, *args, **kwargs)
        TEXT_ASKED()

    return method


for _name in {*vars(str), "__float__", "__int__", "__index__", "__complex__", "__bool__"} - {
    *vars(AbstractText),
    "__getattribute__",
    "__new__",
}:
    setattr(AbstractText, _name, refusing_method(_name))


def _function(x: Any, f: Any, types: Any, args: Any, kwargs: Any) -> Any:
    if f in LIKE and args and type(args[0]) is Hollow:
        return f(args[0].view(np.ndarray), *args[1:], **kwargs)  # type: ignore[attr-defined]
    if f not in OF_LAYOUT:
        refuse_abstract(f.__name__)()
    return np.ndarray.__array_function__(x, f, types, args, kwargs)


Hollow = type("Hollow", (np.ndarray,), {**BLIND, "__array_function__": _function})
TYPES = [np.dtype(c).type for c in np.typecodes["AllInteger"] + np.typecodes["AllFloat"]]
NUMBERS = {np.dtype(t): type(f"Hollow_{t.__name__}", (t,), BLIND) for t in TYPES}
# hollow class -> the class that it stands for
SHOWN = {Hollow: np.ndarray, **{kind: kind.__mro__[1] for kind in NUMBERS.values()}}
TRUTH = np.dtype(bool)  # NumPy's type for it cannot be subclassed
NUMBERS[TRUTH] = type("Hollow_bool", (np.int8,), {**BLIND, "dtype": property(lambda x: TRUTH)})
SHOWN[NUMBERS[TRUTH]] = np.bool_
POISON: AnyDict = {}  # dtype -> memory that all hollow arrays share: nan, or a number that nobody means
NUMBER: AnyDict = {}  # dtype -> the hollow number


def shown_class(kind: type) -> type:
    """The class that users see: that of an ordinary array or number."""
    return SHOWN.get(kind, kind)


def poison(d: np.dtype) -> Any:
    if d.kind not in "biufc":
        raise TypeError(f"an array of dtype {d} met a tracked value, which cannot be computed with it")
    return np.nan if d.kind in "fc" else True if d.kind == "b" else np.iinfo(d).max


def memory(xp: Any, d: np.dtype, size: int) -> Any:
    """Memory with at least `size` elements of poison."""
    found = POISON.get((xp, d))
    if found is None or found.size < size:
        found = POISON[xp, d] = xp.full(max(size, 64, 0 if found is None else 2 * found.size), poison(d), d)
    return found


def hollow_number(d: np.dtype) -> Any:
    found = NUMBER.get(d)
    if found is None:
        kind = NUMBERS.get(d)
        found = NUMBER[d] = hollow(np, (), d, ()) if kind is None else kind(poison(d))
    return found


KNOWN: AnyDict = {}


def hollow(xp: Any, shape: Shape, d: np.dtype, strides: Shape, writeable: bool = True) -> Any:
    """An array without values, of this shape, dtype and strides."""
    key = xp, shape, d, strides, writeable
    found = KNOWN.get(key)
    if found is None:
        if len(KNOWN) > 999:
            KNOWN.clear()
        found = KNOWN[key] = abstract_array(*key)
    return found


def abstract_array(xp: Any, shape: Shape, d: np.dtype, strides: Shape, writeable: bool) -> Any:
    below = above = 0
    size = 1
    for n, s in zip(shape, strides, strict=True):
        size *= n
        if s < 0:
            below -= (n - 1) * s
        else:
            above += (n - 1) * s
    if not size:
        return np.ndarray.__new__(Hollow, shape, d) if xp is np else xp.empty(shape, d)
    room = memory(xp, d, (below + above) // d.itemsize + 1)
    if xp is np:
        found: Any = np.ndarray.__new__(Hollow, shape, d, room, below, strides)
        if not writeable or has_repeating_axis(shape, strides):
            found.flags.writeable = False
        return found
    return device_abstract_type(xp)(shape, d, room.data + below, strides)


def read_only_as(value: Any, found: Any) -> Any:
    """`found` as the abstract value of an argument: read-only if the argument is
    (`_core.arrays.copy_with_layout`)."""
    if isinstance(found, np.ndarray) and isinstance(value, np.ndarray) and not value.flags.writeable:
        return hollow(np, found.shape, found.dtype, found.strides, False)
    return found


def device_abstract_type(xp: Any) -> type:
    """The class of hollow CuPy arrays. CuPy reads an index array with `take`."""
    kind = POISON.get(xp)
    if kind is None:
        kind = POISON[xp] = type(
            "Hollow", (xp.ndarray,), {name: f for name, f in BLIND.items() if name != "take"}
        )
    return kind
