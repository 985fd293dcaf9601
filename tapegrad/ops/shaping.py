"""Linear operations that move, repeat or gather elements, each beside its adjoint: sum and broadcast_to,
reshape, transpose, concatenate and split, real, imag, conj, astype, copy, flip, roll, tril, triu,
diagonal.

These are pure: their results are values. The functions that return NumPy's *views* of a Variable are
in ops/indexing/views.py."""

import math
import sys
from typing import Any

import numpy as np

from .._core.arrays import F8, is_array, is_scalar, room_laid, xp_of
from .._core.errors import ArgumentError, ShapeError
from .._core.foreign import argument
from .._core.primitive import hook, layout_of, nests_variable
from .._core.registry import late
from .._core.reverse import ShapeStandIn
from .._core.variable import HANDLES, Variable
from .declare import ComposedScalar, dtype, implements, linear, ndim, primitive, rules, shape, xp
from .declare import dtype as dtype_of

# --- copies and casts ---


def _copied(run, stacks, params):
    """The batching rule of `copy`. (The trace puts each sample in the required memory order.)"""
    return run(*stacks, order="K")


@primitive(batch=_copied, scalar=ComposedScalar(lambda x, order: x))
def copy(x, order="K"):
    return x if issubclass(type(x), np.generic) else x.copy(order)


def _relaid(run, stacks, params):
    """The batching rule of `relaid`, likewise."""
    return copy(stacks[0])


@primitive(batch=_relaid, scalar=ComposedScalar(lambda x, *, strides: x))
def relaid(x, *, strides):
    """x in the memory order given by the strides."""
    y = room_laid(xp_of(x), x.shape, strides, x.dtype)
    y[...] = x
    return y


@primitive(batch="elementwise", scalar=ComposedScalar(lambda x: x))
def array_of(x):
    """A writable 0-d array that holds the number x."""
    return np.array(x) if issubclass(type(x), np.generic) else x.copy()


@primitive(holomorphic=False, batch="elementwise", scalar=ComposedScalar(lambda x, *, to: x))
def astype(x, *, to):
    return x.astype(to)


@primitive(holomorphic=False, batch="elementwise")
def real(x):
    return x.real.copy() if is_array(x) else x.real


@primitive(holomorphic=False, batch="elementwise")
def imag(x):
    return x.imag.copy() if is_array(x) else x.imag


@primitive(np.conjugate, holomorphic=False, scalar=ComposedScalar(lambda x: x))
def conj(x):
    return xp_of(x).conj(x)


@primitive(holomorphic=False, batch="elementwise")
def imaginary(x):
    """i x, the adjoint of `imag`."""
    return x * x.dtype.type(1) * 1j if x.dtype.itemsize > 4 else x * np.complex64(1j)


rules(copy, lambda g, out, x, order: g, jvp=linear)
rules(relaid, lambda g, out, x, strides: g, jvp=linear)
rules(array_of, lambda g, out, x: g, jvp=linear)
rules(astype, lambda g, out, x, to: fit_to_shape(g, shape(x), dtype(x)), jvp=linear)
ASTYPE = astype.prim
rules(real, lambda g, out, x: fit_to_shape(g, shape(x), dtype(x)), jvp=linear)
rules(imag, lambda g, out, x: imaginary(g) if dtype(x).kind == "c" else zeros_like(g), jvp=linear)
rules(imaginary, lambda g, out, x: -imaginary(g) if dtype(x).kind == "c" else imag(g), jvp=linear)
rules(conj, lambda g, out, x: conj(g), jvp=linear)


def zeros_like(x: Any) -> Any:
    """Plain zeros of the shape and dtype of x."""
    x = layout_of(x)
    if issubclass(type(x), np.generic):
        return x.dtype.type(0)
    return xp_of(x).zeros(x.shape, x.dtype)


# --- sum and broadcast_to; reshape; transpose ---


add_up: Any = np.add.reduce
# Below 8, NumPy starts a new loop for each number of the result. Adding column by column takes a tenth of
# the time. The bits are equal, because NumPy adds so few elements one after another.
SHORT_ROW_ELEMENTS, LONG = 8, 512


def has_short_rows(x: np.ndarray, axis, below: int = SHORT_ROW_ELEMENTS) -> bool:
    return type(axis) is int and axis in (-1, x.ndim - 1) and 1 < x.shape[-1] < below and x.dtype is F8


@primitive(batch="axis", reduces="add")
def sum(x, axis=None, keepdims=False):
    if type(x) is not np.ndarray:
        return x.sum(axis=axis, keepdims=keepdims)
    if x.size > LONG and axis is not None and has_short_rows(x, axis):
        r = x[..., 0] + x[..., 1]
        for k in range(2, x.shape[-1]):
            r += x[..., k]
        return r[..., None] if keepdims else r
    return add_up(x, axis, None, None, keepdims)


@primitive(aliases=True, batch="moves")
def broadcast_to(x, *, to):
    few = math.prod(to) <= 4096
    if (
        type(x) is np.ndarray
        and x.size > LONG // SHORT_ROW_ELEMENTS
        and x.shape == (*to[:-1], 1)
        and (few or to[-1] < SHORT_ROW_ELEMENTS)
    ):
        return x.reshape(-1).repeat(to[-1]).reshape(to)  # rows of stride 0 would slow down the next product
    if few and xp_of(x) is np:  # for so few elements NumPy's function takes ten times as long as filling
        r = np.empty(to, x.dtype)
        r[...] = x
        return r
    return xp_of(x).broadcast_to(x, to)


@primitive(aliases=True, batch="moves")
def reshape(x, *, to):
    return x.reshape(to)


@primitive(aliases=True, batch="moves")
def transpose(x, *, axes):
    return x.transpose(axes)


def kept_dims(s: tuple, axis) -> tuple:
    """The shape s after a reduction over `axis` that keeps its dimensions as ones."""
    n = len(s)
    if axis is None:
        return (1,) * n
    gone = {axis % n} if isinstance(axis, (int, np.integer)) else {a % n for a in axis}
    return tuple([1 if i in gone else k for i, k in enumerate(s)])


def spread_over_axes(g, s: tuple, axis, keepdims: bool):
    """Undo a reduction of an array of shape s over `axis`: repeat g along it."""
    if s == ():
        return g
    if type(g) is np.float64:
        r = np.empty(s)
        r.fill(g)
        return r
    if type(g) is np.ndarray:
        return broadcast_to.prim.run(g if keepdims or not g.shape else g.reshape(kept_dims(s, axis)), to=s)
    if shape(g) != () and not keepdims:
        g = reshape(g, to=kept_dims(s, axis))
    return broadcast_to(g, to=s)


def fit_to_shape(g, to: tuple, dt):
    """The adjoint of broadcasting and promotion: sum g to the shape `to`, which broadcasts to its own,
    and cast it to `dt`."""
    if type(g) is np.ndarray and g.dtype is dt and g.shape:
        if to == ():
            return add_up(g, None)  # a number was broadcast to an array
        if g.ndim == 2 and to == g.shape[1:]:
            return added(g, FIRST)  # a row was broadcast to a matrix
        if g.ndim == 2 and to == (len(g), 1):
            return added(g, LAST).reshape(to)  # a column
    s = shape(g)
    if s != to:
        lead = len(s) - len(to)
        axes = tuple(range(lead)) + tuple([lead + i for i, k in enumerate(to) if k == 1 != s[lead + i]])
        if axes:
            g = added(g, axes) if type(g) is np.ndarray else sum(g, axes)
        if shape(g) != to:
            g = reshape(g, to=to)
    d = dtype(g)
    if d is not dt and dt is not None:
        if d.kind == "c" and dt.kind != "c":
            g = real(g)
        if dtype(g) != dt and dt.kind in "fc":
            g = astype(g, to=dt)
    return g


def added(g: np.ndarray, axes: tuple):
    """The sum of a cotangent over these axes. Over the first or last ones, BLAS takes a third of the time
    with no less accuracy."""
    n = len(axes)
    if g.dtype is F8 and g.flags.c_contiguous and g.size > 64 and n < g.ndim:
        if axes[-1] == n - 1:
            m = math.prod(g.shape[:n])
            return ones(m).dot(g.reshape(m, -1)).reshape(g.shape[n:])
        m = math.prod(g.shape[-n:])
        if axes[0] == g.ndim - n and m <= PAIRWISE:
            return g.reshape(-1, m).dot(ones(m)).reshape(g.shape[:-n])
    return sum(g, axes)


FIRST, LAST = (0,), (1,)  # axes of a matrix
PAIRWISE = 128  # NumPy adds up to this many numbers without halving
ONES = np.ones(8 * PAIRWISE)
ONES.flags.writeable = False


def ones(n: int) -> np.ndarray:
    return ONES[:n] if n <= ONES.size else np.ones(n)


def argsort(axes) -> tuple:
    back = [0] * len(axes)
    for i, a in enumerate(axes):
        back[a] = i
    return tuple(back)


rules(
    sum,
    lambda g, out, x, axis, keepdims: spread_over_axes(beside(g, x), shape(x), axis, keepdims),
    jvp=linear,
)
rules(broadcast_to, lambda g, out, x, to: fit_to_shape(g, shape(x), None), jvp=linear)
rules(reshape, lambda g, out, x, to: reshape(g, to=shape(x)), jvp=linear)
rules(transpose, lambda g, out, x, axes: transpose(g, axes=argsort(axes)), jvp=linear)
late.fit, late.conj = fit_to_shape, conj
TRANSPOSE = transpose.prim


@primitive(batch="elementwise")
def to_device(x):
    """A NumPy array as a CuPy array, on the current device."""
    return sys.modules["cupy"].asarray(x)


@primitive(batch="elementwise")
def copy_to_host(x, *, number=False):
    """`number`: an array without axes as a NumPy scalar."""
    return x.get()[()] if number else x.get()


rules(to_device, lambda g, out, x: copy_to_host(g, number=shape(x) == ()), jvp=linear)
rules(copy_to_host, lambda g, out, x, number: to_device(g), jvp=linear)


def broadcast_tangent(t, out):
    """A tangent broadcast to the shape of the output."""
    return broadcast_to(beside(t, out), to=shape(out))


def beside(g, x):
    """g, where x is on a device: a number of the host moves there. Tangents and cotangents of parameters on
    the host may be such numbers."""
    if type(g) is np.ndarray or (x.library if type(x) is ShapeStandIn else xp(x)) is np:
        return g
    return to_device(g) if is_scalar(layout_of(g)) else g


late.widened = broadcast_tangent


# --- roll ---


@primitive(batch="moves")
def rolled(x, *, shift, axis):
    if (
        type(x) is np.ndarray
        and x.size
        and type(shift) is int
        and (axis is None or type(axis) is int and -x.ndim <= axis < x.ndim)
    ):
        # for so few elements NumPy's function takes ten times as long as moving them
        y = x.reshape(-1) if axis is None else x
        axis = axis or 0
        cut = -shift % y.shape[axis]
        before = (slice(None),) * (axis % y.ndim)
        return np.concatenate((y[(*before, slice(cut, None))], y[(*before, slice(cut))]), axis).reshape(
            x.shape
        )
    return xp_of(x).roll(x, shift, axis)


rules(rolled, lambda g, out, x, shift, axis: rolled(g, shift=negated(shift), axis=axis), jvp=linear)


def negated(shift):
    return tuple([-n for n in shift]) if isinstance(shift, tuple) else -shift


# --- concatenate and slice_of ---


@primitive(shapes="*", batch="axis")
def concatenate(*xs, axis=0):
    return xp_of(xs[0]).concatenate(xs, axis)


@primitive(batch="axis")
def slice_of(x, *, axis, start, stop):
    """x[start:stop] along one axis, as a copy."""
    at = (slice(None),) * axis + (slice(start, stop),)
    return x[at].copy()


@primitive(batch="axis")
def embed(x, *, axis, start, size):
    """Zeros of length `size` along one axis, with x inserted at `start`: the adjoint of `slice_of`."""
    s = list(x.shape)
    n, s[axis] = s[axis], size
    out = xp_of(x).zeros(s, x.dtype)
    out[(slice(None),) * axis + (slice(start, start + n),)] = x
    return out


def _concatenate_vjp(g, out, need, *xs, axis=0):
    terms, start = [], 0
    axis %= ndim(g)
    for x, wanted in zip(xs, need, strict=True):
        stop = start + shape(x)[axis]
        terms.append(slice_of(g, axis=axis, start=start, stop=stop) if wanted else None)
        start = stop
    return terms


def jointly_linear(operation):
    """The forward rule of an operation that is linear in all its arrays together."""

    def push(t, out, *xs, **settings):
        return operation(*[zeros_like(x) if d is None else d for d, x in zip(t, xs, strict=True)], **settings)

    return push


rules(concatenate, joint=_concatenate_vjp, jvp=jointly_linear(concatenate))
rules(
    slice_of,
    lambda g, out, x, axis, start, stop: embed(g, axis=axis, start=start, size=shape(x)[axis]),
    jvp=linear,
)
rules(
    embed,
    lambda g, out, x, axis, start, size: slice_of(g, axis=axis, start=start, stop=start + shape(x)[axis]),
    jvp=linear,
)


def arrays_of(xs) -> list:
    """The members of a sequence as Variables or arrays of one library."""
    xs = list(xs)
    if HANDLES.issuperset(map(type, xs)):
        return xs
    xs = [array_operand(x) for x in xs]
    library = next((xp(x) for x in xs if isinstance(x, Variable)), None) or xp_of(xs[0])
    return [
        x if isinstance(x, Variable) or is_array(x) else numeric(library.asarray(x), x)
        for x in map(argument, xs)
    ]


def numeric(a, x):
    """`a`, made from x, if its elements are numbers."""
    if a.dtype.kind not in "biufc":
        raise ArgumentError(
            f"{x!r} ({type(x).__name__}) stands among tracked numbers; dtype=object makes an array of objects"
        )
    return a


@primitive(shapes="*", batch="moves")
def packed(*xs, to=(-1,)):
    """Numbers as an array of shape `to`."""
    library = xp_of(xs[0])
    return (np.array(xs) if library is np else library.stack([library.asarray(x) for x in xs])).reshape(to)


def _packed_vjp(g, out, need, *xs, to):
    g = g if len(to) == 1 else reshape(g, to=(-1,))
    if xp(g) is not np:  # an element of a CuPy array is a view
        return [layer(g, axis=0, at=i) if wanted else None for i, wanted in enumerate(need)]
    return [g[i] if wanted else None for i, wanted in enumerate(need)]


rules(packed, joint=_packed_vjp, jvp=jointly_linear(packed))


@primitive(shapes="*", batch="moves")
def layered(*xs, axis):
    """Stack arrays of one shape along a new axis."""
    library = xp_of(xs[0])
    return np.array(xs) if library is np and axis == 0 else library.stack(xs, axis)


@primitive(batch="moves")
def layer(x, *, axis, at):
    """x at one index of an axis, as a copy."""
    return x[(slice(None),) * axis + (at,)].copy()


@primitive(batch="moves")
def as_layer(x, *, axis, at, size):
    """Zeros with a new axis, and x at one index of it: the adjoint of `layer`."""
    out = xp_of(x).zeros((*x.shape[:axis], size, *x.shape[axis:]), x.dtype)
    out[(slice(None),) * axis + (at,)] = x
    return out


rules(
    layered,
    joint=lambda g, out, need, *xs, axis: [
        layer(g, axis=axis, at=i) if wanted else None for i, wanted in enumerate(need)
    ],
    jvp=jointly_linear(layered),
)
rules(layer, lambda g, out, x, axis, at: as_layer(g, axis=axis, at=at, size=shape(x)[axis]), jvp=linear)
rules(as_layer, lambda g, out, x, axis, at, size: layer(g, axis=axis, at=at), jvp=linear)


@implements(np.stack)
def stack(arrays, axis=0, dtype=None):
    xs = arrays_of(list(arrays))
    sizes = [shape(x) for x in xs]
    if sizes.count(sizes[0]) < len(sizes):
        raise ShapeError(f"stack: all arrays must have the same shape, not {', '.join(map(str, sizes))}")
    n = len(sizes[0]) + 1
    if not -n <= axis < n:
        raise np.exceptions.AxisError(axis, n)
    axis %= n
    y = layered(*xs, axis=axis) if n > 1 else joined(xs)
    if dtype is None or np.dtype(dtype) == dtype_of(y):
        return y
    if not np.can_cast(dtype_of(y), dtype, "same_kind"):
        raise ArgumentError(
            f"numpy.stack: dtype={np.dtype(dtype)} would lose the derivative of {dtype_of(y)}; stack, then "
            f"astype"
        )
    return astype(y, to=np.dtype(dtype))


def nested_to_array(x):
    """A nested list, which may contain Variables, as one array."""
    return joined(x) if nests_variable(x) else np.asarray(x)


def array_operand(x):
    """An operand: a nested list becomes an array."""
    # (`isinstance` would ask a Variable for its class)
    return nested_to_array(x) if issubclass(type(x), (list, tuple)) else x


@hook
def joined(x):
    """A nested list that contains Variables, as one array."""
    numbers = []
    to = sizes_of(x, numbers)
    if to is not None:
        return packed(*arrays_of(numbers), to=to)
    return stack([array_operand(e) for e in x])


def sizes_of(x, numbers: list) -> tuple | None:
    """The shape of a nested list of numbers, which are appended to `numbers`. None if it contains arrays
    or rows of different lengths."""
    of_one = None
    for e in x:
        if issubclass(type(e), (list, tuple)):
            to = sizes_of(e, numbers)
        else:
            to = None if ndim(e) else ()
            numbers.append(e)
        if to is None or (of_one is not None and to != of_one):
            return None
        of_one = to
    return None if of_one is None else (len(x), *of_one)


late.stacked, late.relaid, late.astype, late.array_of = nested_to_array, relaid, astype, array_of
