"""Functions that make arrays.

While a transform is open in this thread they return Variables of level 0 (`as_variable`); so `buf =
np.zeros(3); buf[0] = x[0]` works. With `like=x`, or made from a Variable (`zeros_like(x)`), they
always do."""

import itertools
import operator
from typing import Any

import numpy as np

from .._core.arrays import is_array, may_share_memory, xp_of
from .._core.errors import ArgumentError, DroppedDerivativeError
from .._core.foreign import OBJECTS, argument
from .._core.primitive import (
    RECORDED,
    SAMPLED,
    handle,
    is_tracked,
    layout_of,
    nests_variable,
    primal_of,
    values_of,
)
from .._core.registry import late
from .._core.scope import OPEN
from .._core.trees import nested
from .._core.variable import HANDLES, Variable, variable
from .declare import NUMPY, follow, implements
from .declare import dtype as dtype_of
from .declare import shape as dim
from .shaping import array_of, array_operand, astype, copy, copy_to_host, joined, nested_to_array, to_device

# Functions that run in NumPy or CuPy, and whose results become Variables while a transform is open.
CREATORS = {
    np.zeros, np.ones, np.empty, np.full, np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.eye,
    np.identity, np.tri,
    np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray, np.copy, np.arange,
    np.linspace, np.logspace,
    np.geomspace, np.diag, np.diagflat, np.tril, np.triu, np.frombuffer, np.fromfunction, np.fromiter,
    np.vander, np.loadtxt,
    np.genfromtxt, np.meshgrid, np.tile, np.repeat, np.concatenate, np.stack, np.hstack, np.vstack,
    np.column_stack, np.dstack,
    np.block, np.astype, np.nan_to_num, np.load, np.require, np.pad, np.asarray_chkfinite, np.outer, np.kron,
    np.kaiser,
}  # fmt: skip


BUFFERS: frozenset = frozenset(
    (np.zeros, np.ones, np.empty, np.full, np.zeros_like, np.ones_like, np.empty_like, np.full_like)
)


def room(f, x):
    """A new integer or boolean buffer made by f. Under `vmap` and in a recording it becomes a Variable, so
    it can hold values that differ between samples or calls."""
    holds_hidden = (
        f in BUFFERS
        and type(x) is np.ndarray
        and x.dtype.kind in "biu"
        and any([t.visibility in (SAMPLED, RECORDED) for t in OPEN.hiding])
    )
    return variable(x) if holds_hidden else x


def as_variable(x, given=()):
    """A new array as a Variable of level 0, if a transform is open in this thread. An array that shares
    memory, with an argument or anything else, stays plain. Another holder may write that memory, so
    each use copies it (`_core.reverse.keep`)."""
    if OPEN.depth:
        if type(x) is np.ndarray and x.base is None and not any([x is a for a in given]):
            kind = x.dtype.kind
            return variable(x) if kind in "fc" else late.structured_over(x) if kind == "V" else x
        if is_array(x):
            if x.dtype.names is not None:
                return late.structured_over(x) if is_fresh(x, given) else x
            return handle(x) if is_fresh(x, given) else x
        if type(x) is tuple or type(x) is list:
            return type(x)([handle(e) if is_array(e) and is_fresh(e, given) else e for e in x])
    return x


def is_fresh(x, given) -> bool:
    owner = x
    while is_array(owner):
        if any([owner is a for a in given]):
            return False
        owner = owner.base
    return owner is None and (x.base is None or not any([may_share_memory(x, a) for a in given]))


def plain_of(x):
    if isinstance(x, (list, tuple)):
        return type(x)([plain_of(e) for e in x])
    return values_of(x)


def _like(f):
    """f with the signature that NumPy uses for `like=x`, or with Variables among its numbers. The numbers
    have derivative zero here."""

    def create(*args, like=None, **kwargs):
        xp = xp_of(layout_of(like))
        given = [plain_of(a) for a in args], {k: plain_of(v) for k, v in kwargs.items()}
        return handle(getattr(xp, f.__name__)(*given[0], **given[1]))

    create.__name__ = f.__name__
    return create


for _f in (np.zeros, np.ones, np.empty, np.eye, np.identity, np.tri, np.fromfunction):
    NUMPY[_f] = _like(_f)


def _same(f):
    def create(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
        x = layout_of(a)
        like = getattr(xp_of(x), f.__name__)
        return handle(like(x, dtype=dtype, order=order, shape=shape))

    create.__name__ = f.__name__
    return create


NUMPY.update({f: _same(f) for f in (np.zeros_like, np.ones_like, np.empty_like)})


@implements(np.full, layout="own")
def full(shape, fill_value, dtype=None, order="C", *, like=None):
    y = array(fill_value) if isinstance(fill_value, (list, tuple)) else fill_value
    xp = xp_of(layout_of(y if like is None else like))
    to = dtype or (dtype_of(y) if hasattr(y, "dtype") else np.asarray(y).dtype)
    return fill_value_of(handle(xp.empty(plain_of(shape), to, order)), y)


def fill_value_of(out, y):
    if not isinstance(out, Variable):
        if out.dtype.names is not None:
            out = late.structured_over(out)
            out[...] = y
            return out
        out[...] = objects(y) if out.dtype == OBJECTS and isinstance(y, Variable) else values_of(y)
    else:
        out[...] = y
    return out


@implements(np.full_like, layout="own")
def full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    a = argument(a)  # an object array becomes an array of its numbers
    x = late.shown(a) if isinstance(a, Variable) else a
    y = array(fill_value) if isinstance(fill_value, (list, tuple)) else fill_value
    return fill_value_of(handle(xp_of(x).empty_like(x, dtype, order, shape=shape)), y)


@implements(np.fromiter)
def fromiter(iter, dtype, count=-1, *, like=None):
    xs = list(iter if count < 0 else itertools.islice(iter, count))
    if len(xs) < count:
        raise ValueError(f"iterator too short: Expected {count} but iterator had only {len(xs)} items.")
    return array_with_copy(xs, dtype, None, 0, like)


@implements(np.array, layout="own")
def array(object, dtype=None, *, copy=True, order="K", subok=False, ndmin=0, like=None):
    if (
        dtype is None
        and copy is True
        and order == "K"
        and not ndmin
        and type(object) is list
        and nests_variable(object)
    ):
        return joined(object)
    return in_memory_order(array_with_copy(object, dtype, copy, ndmin), order)


@implements(np.copy)
def copy_of(a, order="K", subok=False):
    return array(a, order=order)


@implements(np.asarray, np.asanyarray, layout="own")
def asarray(a, dtype=None, order=None, *, device=None, copy=None, like=None):
    return in_memory_order(array_with_copy(a, dtype, copy, 0, like), order)


@implements(np.ascontiguousarray, layout="own")
def ascontiguousarray(a, dtype=None, *, like=None):
    return in_memory_order(array_with_copy(a, dtype, None, 1), "C")


@implements(np.asfortranarray, layout="own")
def asfortranarray(a, dtype=None, *, like=None):
    return in_memory_order(array_with_copy(a, dtype, None, 1), "F")


def in_memory_order(x, order: str | None):
    """x, or a copy if its memory is not in this order."""
    if (
        order not in ("C", "F")
        or not getattr(x, "shape", ())
        or (x.flags.f_contiguous if order == "F" else x.flags.c_contiguous)
    ):
        return x
    return copy(x, order)


@implements(np.asarray_chkfinite, layout="own")
def asarray_chkfinite(a, dtype=None, order=None):
    plain = plain_of(a)
    xp_of(plain).asarray_chkfinite(plain, dtype, order)
    return in_memory_order(array_with_copy(a, dtype, None, 0), order)


IF_NEEDED: dict = {np._CopyMode.ALWAYS: True, np._CopyMode.IF_NEEDED: None, np._CopyMode.NEVER: False}


def array_with_copy(a, dtype, wanted: bool | None, ndmin: int, like=None):
    """`wanted`: copy always (True), or only if needed (None, False)."""
    wanted = IF_NEEDED.get(wanted, wanted)
    to = None if dtype is None else np.dtype(dtype)
    if to is not None and (to == OBJECTS or to.names is not None) and nests_variable(a):
        return objects(a, ndmin) if to == OBJECTS else late.structured_from(a, to)
    kind = type(a)
    if kind in HANDLES:
        y, fresh = (a, False) if is_array(layout_of(a)) else (array_of(a), True)
        if fresh and wanted is False:
            raise ValueError("numpy.array of a number makes a copy, but copy=False")
    elif issubclass(kind, (list, tuple)) and nests_variable(a):
        if wanted is False:
            raise ValueError("numpy.array of a list makes a copy, but copy=False")
        y, fresh = joined(a), True
    else:
        xp = xp_of(a) if like is None else xp_of(layout_of(like))
        return handle(xp.array(plain_of(a), dtype=dtype, copy=wanted or None, ndmin=ndmin))
    if to is not None and to != dtype_of(y):
        if wanted is False:
            raise ValueError("a copy is needed for another dtype, but copy=False")
        y, fresh = cast(y, to), True
    if wanted and not fresh:
        y = copy(y)
    if ndmin > 0 and ndmin > len(s := dim(y)):
        y = y.reshape((1,) * (ndmin - len(s)) + s)
    return y


class ObjectBox:
    """Wraps a tracked number on its way into an object array. NumPy would otherwise ask it for its
    memory."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def objects(a, ndmin: int = 0) -> np.ndarray:
    """A plain object array with the numbers of `a` as elements, tracked ones unchanged. NumPy computes
    with it through their operators."""

    def boxed(e):
        if isinstance(e, Variable):
            return [boxed(e[i]) for i in range(dim(e)[0])] if dim(e) else ObjectBox(e)
        return [boxed(v) for v in e] if isinstance(e, (list, tuple)) else e

    out = np.array(boxed(a), dtype=object, ndmin=ndmin)
    if isinstance(a, Variable) and 0 in dim(a):
        out = out.reshape(dim(a))

    def unboxed(e):
        return e.value if type(e) is ObjectBox else [unboxed(v) for v in e] if type(e) is list else e

    flat = out.reshape(-1)
    for i, e in enumerate(flat):
        flat[i] = unboxed(e)
    return out


def cast(x, to: np.dtype):
    """x.astype(to). An integer or boolean result has no derivative."""
    if to == OBJECTS and isinstance(x, Variable):
        return objects(x)
    if to.names is not None:
        return late.structured_from(x, to)
    if to.kind in "SU" and is_tracked(x):
        raise DroppedDerivativeError(
            "x.astype(str) of a tracked value would drop its derivative in silence when it is read back; "
            "write tapegrad.value(x).astype(str)"
        )
    if to.kind not in "fc" or not isinstance(x, Variable):
        return astype(primal_of(x), to=to)
    if to.kind == "f" and dtype_of(x).kind == "c":
        raise ArgumentError(
            "astype: a complex array cast to a real dtype loses its imaginary part; take x.real"
        )
    return astype(x, to=to)


def steps_between(start, stop, t: np.ndarray):
    """t, along a first axis, in the library and the precision of start and stop."""
    xp = xp_of(layout_of(start if is_array(layout_of(start)) else stop))
    rank = max(np.ndim(layout_of(start)), np.ndim(layout_of(stop)))
    d = np.result_type(*[np.result_type(dtype_of(x), np.float16) for x in (start, stop)])
    return xp.asarray(t, d.char.lower() if d.kind == "c" else d).reshape((-1,) + (1,) * rank)


@implements(np.linspace)
def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    num = operator.index(values_of(num))
    if num < 0:
        raise ValueError(f"numpy.linspace: num={num} is negative")
    n = num - 1 if endpoint else num
    t = steps_between(start, stop, np.arange(num))
    step = (stop - start) / n if n > 0 else (stop - start) * np.nan
    y = t * (step if n > 0 else stop - start) + start  # in NumPy's order, to the last bit
    if endpoint and num > 1:
        y = NUMPY[np.where](t == n, stop, y)
    if axis != 0:
        y = NUMPY[np.moveaxis](y, 0, axis)
    if dtype is not None:
        y = cast(y, np.dtype(dtype))
    return (y, step) if retstep else y


@implements(np.arange)
def arange(start, stop=None, step=None, *, dtype=None, device=None, like=None):
    """The number of elements is a constant; element i is start + i step."""
    if stop is None:
        start, stop = 0, start
    if step is None:
        step = 1
    xp = next((library for x in (like, start, step) if (library := xp_of(layout_of(x))) is not np), np)
    n = len(np.arange(float(values_of(start)), float(values_of(stop)), float(values_of(step))))
    if not isinstance(start, Variable) and not isinstance(step, Variable):
        return handle(xp.arange(start, values_of(stop), step, dtype=dtype))
    y = start + xp.arange(n) * step
    return y if dtype is None else cast(y, np.dtype(dtype))


@implements(np.geomspace)
def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """start r^t for t from 0 to 1, with r = stop / start."""
    start, stop = [array_operand(x) for x in (start, stop)]
    t = steps_between(start, stop, np.linspace(0.0, 1.0, num, endpoint))
    y = start * (stop / start) ** t
    if axis != 0:
        y = NUMPY[np.moveaxis](y, 0, axis)
    return y if dtype is None else cast(y, np.dtype(dtype))


follow(__name__, np.logspace, np.require)


# --- between host and device ---


def on_device(x):
    """x with Variables over NumPy arrays moved to the device."""
    if isinstance(x, (list, tuple)) and nests_variable(x):
        x = nested_to_array(x)
    return to_device(x) if isinstance(x, Variable) and xp_of(layout_of(x)) is np else x


@nested
def on_device_result(x):
    """The result of a CuPy function of numbers, with its arrays on the device."""
    return on_device(x) if isinstance(x, Variable) and is_array(layout_of(x)) else x


def host_value(x: Any) -> Any:
    return copy_to_host(x) if isinstance(x, Variable) and xp_of(layout_of(x)) is not np else x
