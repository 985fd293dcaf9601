"""Writes into a Variable: `x[at] = y`, and NumPy's functions that change their first argument."""

import numpy as np

from ..._core.arrays import NUMBERS, is_array, xp_of
from ..._core.errors import AliasError, DeviceError, DroppedDerivativeError, ShapeError
from ..._core.foreign import ORDINARY, argument
from ..._core.primitive import ASSIGN, hook, is_subarray, is_tracked, layout_of, values_of, write
from ..._core.variable import HANDLES, ArrayVariable, Elements, Variable, View
from .. import shaping as s
from ..creation import on_device
from ..declare import NUMPY, implements, shape, xp
from . import overlaps, views
from .gathering import constant_index, host_constant, known_mode
from .regions import ALL
from .views import array_like, layout_source


def write_value(x: Variable, y, at) -> None:
    """x[at] = y as in NumPy, for values of any level."""
    if type(x) is ArrayVariable:
        if fast_write(x, y, at):
            return
    elif type(x) is View and len(x._path) == 1 and (at is Ellipsis or type(at) is slice and at == ALL):
        (kind, part), *_ = x._path
        if kind == "at" and fast_write(x._base, y, part):
            return
    here = layout_source(x)
    if not is_array(here):
        raise TypeError("a number cannot be written in place")
    if (
        not here.flags.writeable
        if xp_of(here) is np
        else type(x) is View and any(k in ("broadcast", "windows") for k, _ in x._path)
    ):
        raise ValueError("assignment destination is read-only")
    if type(x) is View and any([kind == "sliding" for kind, _ in x._path]):
        raise AliasError(
            "x[...] = y: the elements of x, a captured view made with other strides, share memory with each "
            "other; write the array of which it is a view"
        )
    if type(y) not in HANDLES:  # (`isinstance` would ask a Variable for its class)
        if isinstance(y, (list, tuple)):
            y = array_beside(x, y)
        elif is_subarray(y):
            y = y._array
        elif isinstance(y, Elements):
            y = y.plain_elements()
        elif isinstance(y, np.ma.MaskedArray) and y.ndim:
            y = np.ma.getdata(y)  # as NumPy stores it in a plain array
        elif type(y) not in ORDINARY and not is_array(y) and hasattr(type(y), "__array__"):
            y = argument(y)
        if type(y) not in NUMBERS and getattr(getattr(y, "dtype", None), "kind", "O") not in "biufc":
            y = np.asarray(y).astype(here.dtype)  # a text, None, ...: NumPy converts each element
    to = () if type(at) is int and here.ndim == 1 else here[at].shape
    given = layout_source(y) if isinstance(y, Variable) else y
    size = getattr(given, "shape", ())
    if (
        size
        and overlaps.lies_in(x, y)
        and (is_one_mask(at) or len(size) == here.ndim == 1 and here[at].strides != given.strides)
    ):
        y = overlaps.left_in(x, [y], lambda x, ys: x.__setitem__(at, *ys))
        return write_value(x, y, Ellipsis)
    if size and xp_of(given) is not xp_of(here):
        raise DeviceError("x[...] = y met a NumPy and a CuPy array; move y with cupy.asarray(y) or y.get()")
    if size != () and size != to and not fits_region(size, to):
        extra = len(size) - len(to)
        if extra > 0 and size[:extra] == (1,) * extra:
            return write_value(
                x, s.reshape(y, to=size[extra:]) if isinstance(y, Variable) else y.reshape(size[extra:]), at
            )
        raise ShapeError(f"x[...] = y: y has shape {size}, the region written has shape {to}")
    refuse_lost(here.dtype, y, "x[...] = y")
    write(ASSIGN, x, y, at)


def is_one_mask(at) -> bool:
    at = at[0] if type(at) is tuple and len(at) == 1 else at
    return isinstance(at, np.ndarray) and at.dtype == bool


def refuse_lost(to: np.dtype, y, what: str) -> None:
    """Raise if an array x of this dtype cannot hold the derivative of y, or a part of it."""
    if not isinstance(y, Variable):
        return
    kind = layout_source(y).dtype.kind
    if to.kind not in "fc" and kind in "fc" and is_tracked(y):
        raise DroppedDerivativeError(
            f"{what}: x has dtype {to}, so the derivative of y would be lost; make x a float array, or "
            f"write tapegrad.value(y)"
        )
    if to.kind == "f" and kind == "c" and is_tracked(y):
        raise DroppedDerivativeError(f"{what}: y is complex and x is real; write y.real, or make x complex")


def array_beside(x, y):
    """y as a Variable or array. A list or number, which belongs to no device, becomes an array in the
    library of x."""
    if is_array(y) or isinstance(y, Variable) and is_array(layout_of(y)):
        return y
    y = array_like(y)
    return y if xp(x) is np else on_device(y if isinstance(y, Variable) else xp(x).asarray(y))


@hook
def fast_write(x: Variable, y, at) -> bool:
    """Write with a fast path, if there is one. Returns whether it was done."""
    return False


def fits_region(size: tuple, to: tuple) -> bool:
    try:
        return np.broadcast_shapes(size, to) == to
    except ValueError:
        return False


def target(x, name: str, y) -> bool:
    """Is x a Variable, which tapegrad must write? (A plain array cannot hold the derivative of y.)"""
    if isinstance(x, Variable):
        return True
    if is_tracked(y) and x.dtype != bool:
        raise DroppedDerivativeError(
            f"numpy.{name}: the first argument is a plain array, which cannot hold a derivative; make it "
            "with numpy.zeros(n, like=x), or capture it"
        )
    return False


def writes_first(function):
    """`implements` for a function that writes its first argument."""

    def declare(f):
        f.writes = True
        return implements(function)(f)

    return declare


@writes_first(np.copyto)
def copyto(dst, src, casting="same_kind", where=True):
    if isinstance(src, (list, tuple)):
        src = array_beside(dst, src)
    if not target(dst, "copyto", src):
        return xp_of(dst).copyto(dst, values_of(src), casting, values_of(where))
    write_value(dst, src if where is True else NUMPY[np.where](where, src, dst), Ellipsis)


def scattered(x: Variable, flat: np.ndarray, values) -> None:
    """x.flat[flat] = values, for equally many values."""
    x = x if shape(x) else views.reshape(x, (1,))
    flat = flat.ravel()
    if flat.size:
        places = np.unravel_index(flat, shape(x))
        write_value(x, values, tuple([xp(x).asarray(p) for p in places]))


def cycled(values, at: np.ndarray):
    """The flattened values, repeated cyclically, at these positions."""
    values = views.ravel(values)
    n = shape(values)[0]
    return values[xp(values).asarray(at % n)]


@writes_first(np.put)
def put(a, ind, v, mode="raise"):
    v = array_beside(a, v)
    known_mode("put", mode)
    if not target(a, "put", v):
        return xp_of(a).put(a, constant_index(ind), values_of(v), mode)
    n, at = a.size, host_constant(ind).ravel()
    if mode == "wrap":
        at = at % n
    elif mode == "clip":
        at = at.clip(0, n - 1)
    elif at.size and not (-n <= at.min() and at.max() < n):
        raise IndexError(f"index out of bounds for axis 0 with size {n}")
    if at.size:
        scattered(a, at % n, cycled(v, np.arange(at.size)))


@writes_first(np.place)
def place(arr, mask, vals):
    vals = array_beside(arr, vals)
    if not target(arr, "place", vals):
        return xp_of(arr).place(arr, constant_index(mask), values_of(vals))
    mask = host_constant(mask)
    if overlaps.lies_in(arr, vals):
        return write_value(arr, overlaps.left_in(arr, [vals], lambda x, ys: np.place(x, mask, *ys)), Ellipsis)
    at = np.flatnonzero(mask)
    if at.size:
        scattered(arr, at, cycled(vals, np.arange(at.size)))


@writes_first(np.putmask)
def putmask(a, mask, values):
    values = array_beside(a, values)
    if not target(a, "putmask", values):
        return xp_of(a).putmask(a, constant_index(mask), values_of(values))
    at = np.flatnonzero(host_constant(mask))
    if at.size:
        scattered(a, at, cycled(values, at))


@writes_first(np.put_along_axis)
def put_along_axis(arr, indices, values, axis=-1):
    values = array_beside(arr, values)
    if not target(arr, "put_along_axis", values):
        return xp_of(arr).put_along_axis(arr, constant_index(indices), values_of(values), axis)
    at = host_constant(indices)
    if axis is None:
        return scattered(arr, at, views.broadcast_to(values, at.shape))
    axis = views.axes_of(axis, len(shape(arr)))[0]
    places = [np.arange(n).reshape((-1,) + (1,) * (at.ndim - 1 - k)) for k, n in enumerate(shape(arr))]
    places[axis] = at
    library = xp(arr)
    write_value(arr, values, tuple([library.asarray(p) for p in places]))


@writes_first(np.fill_diagonal)
def fill_diagonal(a, val, wrap=False):
    val = array_beside(a, val)
    if not target(a, "fill_diagonal", val):
        return xp_of(a).fill_diagonal(a, values_of(val), wrap)
    if overlaps.lies_in(a, val):
        return write_value(
            a, overlaps.left_in(a, [val], lambda x, ys: np.fill_diagonal(x, ys[0], wrap)), Ellipsis
        )
    s = shape(a)
    if len(s) < 2:
        raise ValueError("array must be at least 2-d")
    if len(s) == 2:
        step, end = s[1] + 1, None if wrap else s[1] * s[1]
    else:
        if len(set(s)) != 1:
            raise ValueError("All dimensions of input must be of equal length")
        step, end = 1 + int(np.cumprod(s[:-1]).sum()), None
    at = np.arange(a.size)[:end:step]
    if at.size:
        scattered(a, at, cycled(val, np.arange(at.size)))
