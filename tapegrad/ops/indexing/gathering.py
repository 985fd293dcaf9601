"""Operations that move, repeat, pad, extract or join elements. The primitives are tril, triu and
pad_zeros, each beside its adjoint. NumPy's other functions are composed of these and of
concatenate, take and broadcast_to.

The results are values. Views are in ops/indexing/views.py."""

from typing import Any

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError, SingularError
from ..._core.primitive import has_derivative, is_tracked, layout_of, primal_of, values_of
from ..._core.registry import late
from ..._core.variable import ArrayVariable, Variable, frozen
from ..creation import cast
from ..declare import (
    NUMPY,
    axes_of,
    axis_of,
    dtype,
    follow,
    implements,
    linear,
    ndim,
    primitive,
    rules,
    shape,
    xp,
)
from ..declare import dtype as dtype_of
from ..elementwise import sum_of_given, times0
from ..products import diagonals, with_diagonals
from ..shaping import arrays_of, copy, fit_to_shape, rolled
from ..shaping import broadcast_to as spread_to
from ..shaping import concatenate as end_to_end
from ..shaping import reshape as reshaped
from . import views
from .traced_indices import indexed_copy, is_hidden
from .views import array_like, index, slice_of

# --- linear maps, each beside its adjoint ---


@primitive(batch="matrix")
def lower_part(x, *, k):
    return xp_of(x).tril(x, k)


@primitive(batch="matrix")
def upper_part(x, *, k):
    return xp_of(x).triu(x, k)


@primitive(batch="moves")
def pad_zeros(x, *, width):
    """x surrounded by zeros. `width`: (before, after) for each axis."""
    return xp_of(x).pad(x, width)


@primitive(batch="moves")
def trimmed(x, *, width):
    """The adjoint of `pad_zeros`."""
    return x[tuple([slice(i, n - j) for (i, j), n in zip(width, x.shape, strict=True)])].copy()


rules(lower_part, lambda g, out, x, k: lower_part(g, k=k), jvp=linear)
rules(upper_part, lambda g, out, x, k: upper_part(g, k=k), jvp=linear)
rules(pad_zeros, lambda g, out, x, width: trimmed(g, width=width), jvp=linear)
rules(trimmed, lambda g, out, x, width: pad_zeros(g, width=width), jvp=linear)


def frozen_value(a):
    """a as a value. It may alias the memory of a, so a later write to a first moves a to other memory."""
    a = array_like(a)
    if not isinstance(a, Variable):
        return a
    layout_of(a)
    return frozen(a)


def constant_index(a):
    """Indices and counts that decide the shape of a result; their derivative is zero."""
    return np.asarray(index(a)) if isinstance(a, (list, tuple)) else values_of(a)


def integer_constant(n):
    if type(n) is int:
        return n
    n = constant_index(n)
    return tuple([int(k) for k in n.tolist()]) if np.ndim(n) else int(n)


def take_along(x, at, axis: int):
    """x at integer indices along one axis.  A mask is read as the integers 0 and 1."""
    at = at if is_array(at) else np.asarray(at)
    at = at.astype(np.intp) if at.dtype.kind == "b" else at
    if isinstance(x, Variable) and xp(x) is not xp_of(at):
        at = xp(x).asarray(at)
    return x[(slice(None),) * axis + (at,)]


def in_rows(y):
    """y in C order."""
    return y if y.flags.c_contiguous else copy(y, "C")


# --- joining ---


@implements(np.concatenate, layout="own")
def concatenate(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    xs = arrays_of(list(arrays))
    if axis is None:
        xs, axis = [views.ravel(x) for x in xs], 0
    if any(ndim(x) == 0 for x in xs):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    y = end_to_end(*xs, axis=axis)
    if dtype is None:
        return y
    if not all([np.can_cast(dtype_of(y), dtype, c) for c in ("same_kind", casting)]):
        raise ArgumentError(
            f"numpy.concatenate: dtype={np.dtype(dtype)} would lose the derivative of {dtype_of(y)}; join, "
            "then astype"
        )
    return cast(y, np.dtype(dtype))


@implements(np.vstack)
def vstack(tup, dtype=None):
    return concatenate([views.atleast_2d(x) for x in arrays_of(list(tup))], dtype=dtype)


@implements(np.hstack)
def hstack(tup, dtype=None):
    xs = [views.atleast_1d(x) for x in arrays_of(list(tup))]
    return concatenate(xs, 0 if ndim(xs[0]) == 1 else 1, dtype=dtype)


@implements(np.block)
def block(arrays):
    def depth(a):
        return 1 + max(depth(b) for b in a) if isinstance(a, list) else 0

    def rank(a):
        return max(rank(b) for b in a) if isinstance(a, list) else ndim(array_like(a))

    levels = depth(arrays)
    n = max(levels, rank(arrays))

    def build(a, level):
        if not isinstance(a, list):
            a = array_like(a)
            return views.reshape(a, (1,) * (n - ndim(a)) + shape(a))
        return concatenate([build(b, level - 1) for b in a], -level)

    return build(arrays, levels) if levels else copy(array_like(arrays))


copied = copy


# --- repeating and padding ---


@implements(np.repeat)
def repeat(a, repeats, axis=None):
    x = frozen_value(a)
    if axis is None:
        x, axis = reshaped(x, to=(-1,)), 0
    axis = axis_of(axis, ndim(x))
    n = constant_index(repeats)
    if np.size(n) == 1:
        k, s = int(n if np.ndim(n) == 0 else n[0]), shape(x)
        wide = spread_to(
            reshaped(x, to=s[: axis + 1] + (1,) + s[axis + 1 :]), to=s[: axis + 1] + (k,) + s[axis + 1 :]
        )
        return copy(reshaped(wide, to=s[:axis] + (s[axis] * k,) + s[axis + 1 :]))
    return take_along(x, np.repeat(np.arange(shape(x)[axis]), n), axis)


@implements(np.tile)
def tile(A, reps):
    x = frozen_value(A)
    reps = integer_constant(reps)
    reps = reps if type(reps) is tuple else (reps,)
    n = max(len(reps), ndim(x))
    s = (1,) * (n - ndim(x)) + shape(x)
    reps = (1,) * (n - len(reps)) + reps
    thin, wide, final = [], [], []
    for k, size in zip(reps, s, strict=True):
        thin += [1, size]
        wide += [k, size]
        final.append(k * size)
    return copy(reshaped(spread_to(reshaped(x, to=tuple(thin)), to=tuple(wide)), to=tuple(final)))


@implements(np.roll)
def roll(a, shift, axis=None):
    return rolled(array_like(a), shift=integer_constant(shift), axis=axis)


def fit_dtype(x, to):
    return x if dtype(x) == to else fit_to_shape(x, shape(x), to)


# --- triangles and diagonals ---


@implements(np.tril)
def tril(m, k=0):
    return lower_part(triangle_of_matrix(m), k=integer_constant(k))


@implements(np.triu)
def triu(m, k=0):
    return upper_part(triangle_of_matrix(m), k=integer_constant(k))


def triangle_of_matrix(m):
    m = array_like(m)
    return m if ndim(m) != 1 else spread_to(m, to=(shape(m)[0], shape(m)[0]))


@implements(np.diag)
def diag(v, k=0):
    if k == 0 and type(v) is ArrayVariable and type(v._value) is np.ndarray and v._value.ndim == 2:
        return views.diagonal(v)
    v, k = array_like(v), integer_constant(k)
    if ndim(v) == 1:
        n = shape(v)[0] + abs(k)
        return with_diagonals(v, to=(n, n), offset=k)
    if ndim(v) != 2:
        raise ValueError("Input must be 1- or 2-d.")
    return views.diagonal(v, k) if xp(v) is np else diagonals(v, offset=k)  # CuPy's is a copy


@implements(np.diagflat)
def diagflat(v, k=0):
    return diag(views.ravel(v), k)


@implements(np.vander)
def vander(x, N=None, increasing=False):
    x = array_like(x)
    if ndim(x) != 1:
        raise ValueError("numpy.vander: x must be a vector")
    n = shape(x)[0] if N is None else integer_constant(N)
    if n < 0:
        raise ValueError(f"numpy.vander: N={n} is negative")
    powers = xp(x).arange(n) if increasing else xp(x).arange(n)[::-1]
    return views.reshape(x, (-1, 1)) ** powers


# --- extraction and insertion ---


def known_mode(name: str, mode: str) -> None:
    if mode not in ("raise", "wrap", "clip"):
        raise ArgumentError(f"numpy.{name}: mode={mode!r}; it is one of 'raise', 'wrap', 'clip'")


@implements(np.take, layout="own")
def take(a, indices, axis=None, mode="raise"):
    known_mode("take", mode)
    x = array_like(a)
    if axis is None:
        x, axis = views.ravel(x), 0
    axis = axis_of(axis, ndim(x))
    n = shape(x)[axis]
    if is_hidden(indices):
        at = primal_of(array_like(indices))
        at = at % n if mode == "wrap" else at.clip(0, n - 1) if mode == "clip" else at
        return indexed_copy(x, (slice(None),) * axis + (at,))
    at = constant_index(indices)
    if mode == "wrap":
        at = at % n
    elif mode == "clip":
        at = at.clip(0, n - 1) if is_array(at) else min(max(int(at), 0), n - 1)
    if is_array(at):
        return in_rows(take_along(x, at, axis))
    y = x[(slice(None),) * axis + (int(at),)]
    return copy(y) if ndim(y) else y


@implements(np.compress)
def compress(condition, a, axis=None):
    x, condition = array_like(a), host_constant(condition)
    if np.ndim(condition) != 1:
        raise ValueError("numpy.compress: the condition must be a vector")
    if axis is None:
        x, axis = views.ravel(x), 0
    return in_rows(take_along(x, np.flatnonzero(condition), axis_of(axis, ndim(x))))


def host_constant(a) -> np.ndarray:
    """Indices and masks on the host, for results whose shape depends on them."""
    a = constant_index(a)
    return a.get() if is_array(a) and xp_of(a) is not np else np.asarray(a)


@implements(np.extract)
def extract(condition, arr):
    return compress(host_constant(condition).ravel(), arr)


@implements(np.insert, layout="asked")
def insert(arr, obj, values, axis=None):
    x, values = arrays_of([arr, values])
    if axis is None:
        x, axis = views.ravel(x), 0
    axis = axis_of(axis, ndim(x))
    s = shape(x)
    at: Any = obj if isinstance(obj, slice) else constant_index(obj)
    if is_array(at) and at.ndim and at.dtype.kind == "b":
        at = np.flatnonzero(host_constant(at))
    if not isinstance(at, slice) and np.ndim(at) == 0:
        values = (
            views.reshape(values, (1,) * (ndim(x) - ndim(values)) + shape(values))
            if ndim(values) < ndim(x)
            else values
        )
        values = values if ndim(values) == 0 else views.moveaxis(values, 0, axis)
        count = shape(values)[axis]
    else:
        count = len(range(*at.indices(s[axis]))) if isinstance(at, slice) else np.size(at)
        if count == 1 and ndim(values):
            count = np.broadcast_shapes(shape(values), s[:axis] + (1,) + s[axis + 1 :])[axis]
    late.refuse_lost(dtype(x), values, "numpy.insert(x, at, y)")
    values = fit_dtype(views.broadcast_to(values, s[:axis] + (count,) + s[axis + 1 :]), dtype(x))
    order = np.insert(np.arange(s[axis]), at, s[axis] + np.arange(count))
    return take_along(end_to_end(x, values, axis=axis), order, axis)


@primitive(batch=lambda run, stacks, params: stacks[0].copy(), total=True)
def without(y, dropped):
    """y, which would have more elements if those dropped for being 0 were not exactly 0.

    There is no derivative with respect to them."""
    return y.copy()


def lost(t):
    """nan if a tangent or cotangent is not 0, as a linear function of it."""
    lib, t = xp(t), reshaped(t, to=(-1,))
    return times0((t * lib.sqrt(lib.arange(2.0, 2.0 + shape(t)[0]))).sum(), np.nan)


rules(
    without,
    lambda g, out, y, dropped: g,
    lambda g, out, y, dropped: lost(g) + 0.0 * dropped,
    jvp=lambda t, out, y, dropped: sum_of_given((t[0], None if t[1] is None else lost(t[1]) + 0.0 * out)),
)


@implements(np.trim_zeros)
def trim_zeros(filt, trim="fb", axis=None):
    x = array_like(filt)
    on, at = host_constant(x != 0), [slice(None)] * ndim(x)
    for k in range(ndim(x)) if axis is None else axes_of(axis, ndim(x)):
        places = np.unique(np.nonzero(on)[k])
        first, last = (int(places[0]), int(places[-1]) + 1) if places.size else (0, 0)
        whole = places.size and shape(x)[k]
        at[k] = slice(first if "f" in trim.lower() else 0, last if "b" in trim.lower() else whole)
    if not at:
        return filt  # as NumPy has it
    y = slice_of(x, tuple(at))
    if shape(y) == shape(x) or dtype(x).kind not in "fc" or not is_tracked(x):
        return y
    rest = np.ones(shape(x), bool)
    rest[tuple(at)] = False
    return left_of("numpy.trim_zeros", y, reshaped(x, to=(-1,))[np.flatnonzero(rest)])


def left_of(name: str, y, dropped):
    """What a function has left of its argument, of which it drops elements that are 0."""
    if 0 in shape(y) and has_derivative(dropped):
        raise SingularError(
            f"{name}: all elements of an array with derivatives are 0, and none would be left to have them; "
            "ask np.any(x) before, or add a small number"
        )
    return without(y, dropped)


def without_zeros(x, trim):
    """The coefficients x without the zeros at their end ("b") or start ("f"), of which one stays."""
    if host_constant(x != 0).any():
        return trim_zeros(x, trim)
    one, rest = (x[:1], x[1:]) if trim == "b" else (x[-1:], x[:-1])
    return without(one, rest) if shape(rest)[0] else x


@implements(np.select, layout="asked")
def select(condlist, choicelist, default=0):
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    y = default
    for on, choice in list(zip(condlist, choicelist, strict=True))[::-1]:
        y = NUMPY[np.where](on if isinstance(on, Variable) else constant_index(on), choice, y)
    return y


@implements(np.choose)
def choose(a, choices, mode="raise"):
    known_mode("choose", mode)
    at, xs = primal_of(a), arrays_of(list(choices))
    if not isinstance(at, Variable):
        at = constant_index(at)
    if dtype(at).kind not in "biu":
        raise TypeError("numpy.choose: the first array must be one of integers")
    n, library = len(xs), xp(at)
    if mode == "wrap":
        at = at % n
    elif mode == "clip":
        at = NUMPY[np.clip](at, 0, n - 1) if isinstance(at, Variable) else at.clip(0, n - 1)
    elif library is np and np.prod(shape(at)) and NUMPY[np.any]((at < 0) | (at >= n)):
        raise ValueError("invalid entry in choice array")
    y = xs[-1]
    for k in range(n - 2, -1, -1):
        y = NUMPY[np.where](at == k, xs[k], y)
    to = np.broadcast_shapes(shape(at), shape(y))
    return y if shape(y) == to else spread_to(frozen_value(y), to=to)


# --- casts ---


@implements(np.astype)
def astype(x, dtype, /, *, copy=True, device=None):
    to = np.dtype(dtype)
    if isinstance(x, Variable) and to == dtype_of(x):
        return copied(x) if copy else x
    return cast(x, to)


follow(
    __name__, np.append, np.column_stack, np.dstack, np.meshgrid, np.ix_, np.delete, np.resize,
    np.piecewise, np.diff, np.real_if_close,
)  # fmt: skip
