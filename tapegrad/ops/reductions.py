"""Reductions and scans: sum, mean, variance, extremes, products, cumulative sums, quantiles, logsumexp.

Products are taken pairwise (a tree of multiplications), so zeros among the factors are right in every
derivative. Extremes share a cotangent equally among ties. `root_sum_squares` is the length of a
vector; its derivative at zero is zero at every order. The standard deviation is based on it."""

import math
import operator
from collections.abc import Callable

import numpy as np
import scipy.special

from .._core.arrays import F8, NUMBERS, is_array, xp_of
from .._core.errors import ArgumentError, callers_line
from .._core.primitive import is_tracked, layout_of, primal_of, seen
from .._core.variable import ArrayVariable, Variable
from . import shaping as s
from .declare import axes_of as axes_in
from .declare import dtype, implements, linear, ndim, primitive, rules, shape, xp
from .elementwise import add, exp, is_known_finite, log, multiply, select, sign, sqrt, square, times0, zero_of
from .layouts import in_library_layout
from .nondifferentiable import note_zero
from .piecewise import isfinite, isnan, maximum, minimum
from .shaping import (
    array_operand,
    astype,
    broadcast_to,
    conj,
    kept_dims,
    real,
    reshape,
    slice_of,
    spread_over_axes,
    transpose,
)
from .zero_derivative import any_of


def reduction_axes(a, axis) -> tuple:
    """The axes as a tuple of non-negative integers."""
    return axes_in(axis, ndim(a))


def element_count(a, axis) -> int:
    """The number of elements that a reduction over `axis` combines."""
    if axis is None:
        return math.prod(shape(a))
    return math.prod([shape(a)[k] for k in reduction_axes(a, axis)])


def flatten_axes_last(a, axis) -> tuple:
    """(a with the axes flattened into one last axis, the shape of the rest)."""
    axes = reduction_axes(a, axis)
    rest = tuple([k for k in range(ndim(a)) if k not in axes])
    if rest + axes != tuple(range(ndim(a))):
        a = transpose(a, axes=rest + axes)
    outer = shape(a)[: len(rest)]
    to = (*outer, math.prod(shape(a)[len(rest) :]))
    return (a if shape(a) == to else reshape(a, to=to)), outer


def restore_axes(r, a, axis, keepdims: bool):
    """The result r of a reduction of a. With `keepdims` the reduced axes stay, with length one."""
    if not keepdims:
        return r
    to = kept_dims(shape(a), reduction_axes(a, axis))
    return reshape(r, to=to) if shape(r) != to else r


def masked(a, where, fill):
    if where is True:
        return a
    return select(broadcast_plain(where, shape(a)), a, fill)


def broadcast_plain(where, to: tuple):
    where = primal_of(where)
    return broadcast_to(where if hasattr(where, "dtype") else np.asarray(where), to=to)


def cast_operand(a, to):
    if to is None or dtype(a) == np.dtype(to):
        return a
    if np.dtype(to).kind not in "biufc":
        raise TypeError(f"dtype={to!r}: numbers of tracked values cannot be of this type")
    if dtype(a).kind in "fc" and np.dtype(to).kind not in "fc":
        raise ArgumentError(
            f"dtype={np.dtype(to)} takes integers of floats and loses the derivative; leave dtype= away, or "
            f"write x.astype({np.dtype(to)}) before"
        )
    return astype(a, to=np.dtype(to))


# --- sums ---


@implements(np.sum, layout="own")
def sum(a, axis=None, dtype=None, *, keepdims=False, initial=None, where=True):
    if dtype is None is initial and where is True and type(a) is ArrayVariable:
        return s.sum(a, axis, keepdims)
    a = array_operand(a)
    r = s.sum(masked(cast_operand(a, dtype), where, 0), axis, keepdims)
    settings = {"keepdims": keepdims, "where": where}
    if initial is not None:
        r, settings["initial"] = add(r, initial), initial
    return in_library_layout(r, np.sum, (a, axis, dtype), settings)


def _number_of(where, total, a, axis, keepdims: bool):
    """The number of elements of a in a total, as floats that do not change the dtype of the total."""
    n = s.sum(broadcast_plain(where, shape(a)), axis, keepdims)
    d = np.dtype(dtype(total).char.lower()) if dtype(total).kind in "fc" else np.dtype(float)
    return n.astype(d)


def float_dtype(name: str, to):
    """The dtype= of a mean, which must be a floating-point one."""
    if to is not None and np.dtype(to).kind not in "fc":
        raise ArgumentError(
            f"numpy.{name}: dtype={np.dtype(to)} would lose the derivative; take the {name}, then astype"
        )
    return to


@implements(np.mean, layout="own")
def mean(a, axis=None, dtype=None, *, keepdims=False, where=True):
    a, dtype = array_operand(a), float_dtype("mean", dtype)
    if where is not True:
        total = sum(a, axis, dtype, keepdims=keepdims, where=where)
        return in_library_layout(
            total / _number_of(where, total, a, axis, keepdims),
            np.mean,
            (a, axis, dtype),
            {"keepdims": keepdims, "where": where},
        )
    if dtype is None and _dtype_of(a).char == "e":
        return astype(
            s.sum(astype(a, to=np.dtype("f")), axis, keepdims) / element_count(a, axis), to=np.dtype("e")
        )
    return s.sum(cast_operand(a, dtype), axis, keepdims) / element_count(a, axis)


_dtype_of = dtype


@implements(np.average)
def average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    a = array_operand(a)
    if weights is None:
        r = mean(a, axis, keepdims=keepdims)
        total = float(element_count(a, axis))
    else:
        w = array_operand(weights)
        if shape(w) != shape(a):
            axes = reduction_axes(a, axis)
            if axis is None or shape(w) != tuple([shape(a)[k] for k in axes]):
                raise ArgumentError(
                    f"numpy.average: weights of shape {shape(w)} do not fit a of shape {shape(a)} along "
                    f"axis {axis}"
                )
            order = tuple([int(k) for k in np.argsort(axes)])
            w = reshape(
                transpose(w, axes=order), to=tuple([k if n in axes else 1 for n, k in enumerate(shape(a))])
            )
            w = broadcast_to(w, to=shape(a))
        total = s.sum(w, axis, keepdims)
        r = s.sum(a * w, axis, keepdims) / total
    return (r, total + 0.0 * real(primal_of(r))) if returned else r


@primitive(holomorphic=False, batch="axis", known_as="norm")
def root_sum_squares(x, axis=None, keepdims=False, name="norm", line=None):
    """The 2-norm over the axes. `name` and `line`: the user's operation and its line, for the warning at
    a zero length."""
    y = x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
    return xp_of(x).sqrt(y.sum(axis=axis, keepdims=keepdims))


# For lengths within these bounds (by item size of a real number), no relevant square has become 0,
# subnormal or infinite.
BOUNDS = {2: (0.1, 200.0), 4: (1e-15, 1e18), 8: (1e-140, 1e150), np.dtype("g").itemsize: (1e-140, 1e150)}


def to_scale(x, axis):
    """For each vector a plain power of 2 that scales its largest element to about 1. It is near 1 if
    that element is zero or not finite."""
    return scale_of(primal_of(x), axis=axis)


@primitive(batch="axis")
def scale_of(x, *, axis):
    xp = xp_of(x)
    size = xp.maximum(abs(x.real), abs(x.imag)) if x.dtype.kind == "c" else abs(x)
    top = size.max(axis=axis, keepdims=True) if x.size else size.sum(axis=axis, keepdims=True)
    limit = {2: 14, 4: 125, 8: 1000}.get(top.dtype.itemsize, 16000)
    exponent = xp.clip(xp.frexp(xp.where(xp.isfinite(top), top, xp.ones((), top.dtype)))[1], -limit, limit)
    return xp.ldexp(xp.ones((), top.dtype), -exponent)


def direction(x, out, axis, keepdims: bool, norm: Callable, bounds: dict) -> tuple:
    """x / |x| as a triple (y, norm of y, mask): y is x or a multiple of it, and the mask holds zero lengths
    (or is None). A zero length gives 0 / 1, in every further derivative too."""
    low, high = bounds[layout_of(x).real.dtype.itemsize]
    p = seen(out)
    if p is not None and (low < p < high if p.ndim == 0 else ((p > low) & (p < high)).all()):
        return x, spread_over_axes(out, shape(x), axis, keepdims), None
    y = x * to_scale(x, axis)
    length = norm(y)
    zero = primal_of(length) == 0
    return select(zero, zero_of(y), y), select(zero, zero_of(length) + 1, length), zero


def _unit(x, out, axis, keepdims):
    y, length, zero = direction(x, out, axis, keepdims, lambda y: root_sum_squares(y, axis, True), BOUNDS)
    return y / length, zero


def _rss_vjp(g, out, x, axis, keepdims, name, line):
    u, zero = _unit(x, out, axis, keepdims)
    return note_zero(spread_over_axes(g, shape(x), axis, keepdims) * u, x, zero, name, line)


def _rss_jvp(t, out, x, axis, keepdims, name, line):
    u, zero = _unit(x, out, axis, keepdims)
    y = s.sum(real(conj(u) * t[0]) if dtype(x).kind == "c" else u * t[0], axis, keepdims)
    return note_zero(y, x, zero, name, line, pulled=False, pushed=t[0])


rules(root_sum_squares, _rss_vjp, jvp=_rss_jvp)


def length_of(x, axis=None, keepdims: bool = False, name: str = "norm"):
    """The 2-norm. If it is zero, the warning of a second derivative names the line of this call."""
    out = root_sum_squares(x, axis, keepdims, name)
    p = seen(out)
    if p is not None and isinstance(out, Variable) and not (p if p.ndim == 0 else p.all()):
        return root_sum_squares(x, axis, keepdims, name, callers_line())
    return out


def _deviation(a, axis, dtype, where, mean_given):
    """(a minus its mean, number of elements)."""
    a = cast_operand(array_operand(a), dtype)
    m = mean(a, axis, keepdims=True, where=where) if mean_given is None else mean_given
    d = a - m
    if where is True:
        return d, element_count(a, axis)
    return masked(d, where, 0), _number_of(where, d, a, axis, False)


def _over(n, ddof: float, keepdims: bool, a, axis):
    n = n - ddof
    if ndim(n) == 0:
        # (no test on a device, which would have to synchronise)
        return maximum(n, 0.0) if isinstance(n, Variable) or is_array(n) else max_of_zero(n)
    n = maximum(n, 0.0)
    return n.reshape(kept_dims(shape(a), reduction_axes(a, axis))) if keepdims else n


def max_of_zero(n: float) -> float:
    return n if n > 0 else 0.0


@implements(np.var)
def var(a, axis=None, dtype=None, *, ddof=0, keepdims=False, where=True, mean=None, correction=None):
    float_dtype("var", dtype)
    d, n = _deviation(a, axis, dtype, where, mean)
    square_d = square(real(d)) + square(s.imag(d)) if _dtype_of(d).kind == "c" else square(d)
    return cast_operand(
        s.sum(square_d, axis, keepdims)
        / _over(n, ddof if correction is None else correction, keepdims, d, axis),
        dtype,
    )


@implements(np.std)
def std(a, axis=None, dtype=None, *, ddof=0, keepdims=False, where=True, mean=None, correction=None):
    float_dtype("std", dtype)
    d, n = _deviation(a, axis, dtype, where, mean)
    n = _over(n, ddof if correction is None else correction, keepdims, d, axis)
    root = math.sqrt(n) if type(n) in NUMBERS else sqrt(n)
    return cast_operand(length_of(d, axis, keepdims, "std") / root, dtype)


# --- products, pairwise ---


def _product(x):
    """The product along the last axis, by halves: x[:k] x[k:], until one is left."""
    axis = ndim(x) - 1
    n = shape(x)[axis]
    if n == 0:
        return xp(x).ones(shape(x)[:-1], dtype(x))
    if n == 1:
        x = s.copy(x)  # what NumPy returns is never a view
    while n > 1:
        k = n // 2
        y = slice_of(x, axis=axis, start=0, stop=k) * slice_of(x, axis=axis, start=k, stop=2 * k)
        if n % 2:
            y = s.concatenate(y, slice_of(x, axis=axis, start=2 * k, stop=n), axis=axis)
        x, n = y, k + n % 2
    return reshape(x, to=shape(x)[:-1])


@implements(np.prod)
def prod(a, axis=None, dtype=None, *, keepdims=False, initial=None, where=True):
    a = array_operand(a)
    if _dtype_of(a).kind not in "fc":
        a = astype(a, to=np.dtype(dtype or (np.prod(np.zeros(1, _dtype_of(a))).dtype)))
    a = masked(cast_operand(a, dtype), where, 1)
    axis = axis if ndim(a) or axis not in (0, -1) else None  # NumPy accepts this axis for a number
    r = restore_axes(_product(flatten_axes_last(a, axis)[0]), a, axis, keepdims)
    return r if initial is None else multiply(r, initial)


# --- scans ---


@primitive(batch="axis", known_as="cumsum")
def running_sum(x, *, axis, back=False):
    """Cumulative sums along one axis. `back`: from the end."""
    if back:
        backwards = (slice(None),) * axis + (slice(None, None, -1),)
        return x[backwards].cumsum(axis)[backwards].copy()
    return x.cumsum(axis)


rules(running_sum, lambda g, out, x, axis, back: running_sum(g, axis=axis, back=not back), jvp=linear)


def _flat(a, axis) -> tuple:
    a = array_operand(a)
    if axis is None:
        return reshape(a, to=(math.prod(shape(a)),)), 0
    if ndim(a) == 0:
        return reshape(a, to=(1,)), reduction_axes(np.zeros(1), operator.index(axis))[0]
    return a, reduction_axes(a, operator.index(axis))[0]


@implements(np.cumsum, layout="own")
def cumsum(a, axis=None, dtype=None):
    a, axis = _flat(a, axis)
    y = running_sum(cast_operand(a, dtype), axis=axis)
    return y if dtype is None else in_library_layout(y, np.cumsum, (a, axis, dtype), {})


@implements(np.cumprod)
def cumprod(a, axis=None, dtype=None):
    """Each step multiplies by the element k places before, k = 1, 2, 4 ...: as accurate at zeros as
    `prod`."""
    x, axis = _flat(a, axis)
    if _dtype_of(x).kind not in "fc":
        x = astype(x, to=np.cumprod(np.zeros(1, _dtype_of(x))).dtype)
    x = cast_operand(x, dtype)
    n, k = shape(x)[axis], 1
    if n < 2:
        return s.copy(x)
    while k < n:
        head = slice_of(x, axis=axis, start=0, stop=k)
        tail = slice_of(x, axis=axis, start=k, stop=n) * slice_of(x, axis=axis, start=0, stop=n - k)
        x, k = s.concatenate(head, tail, axis=axis), 2 * k
    return x


def _scan_method(f, total: Callable) -> None:
    def of(x, /, *, axis=None, dtype=None, include_initial=False):
        x = array_operand(x)
        if axis is None and ndim(x) > 1:
            raise ArgumentError(f"numpy.{f.__name__}: axis= is needed for arrays of more than one dimension")
        r = total(x, axis if axis is not None else 0, dtype)
        if not include_initial:
            return r
        k = reduction_axes(r, axis if axis is not None else 0)[0]
        first = xp(r).full(
            tuple([1 if n == k else m for n, m in enumerate(shape(r))]), int(total is cumprod), _dtype_of(r)
        )
        return s.concatenate(first, r, axis=k)

    implements(f)(of)


_scan_method(np.cumulative_sum, cumsum)
_scan_method(np.cumulative_prod, cumprod)

# --- extremes ---


@primitive(batch="axis", reduces="max")
def highest(x, *, axis=None, keepdims=False):
    if type(x) is np.ndarray and x.size > s.LONG and s.has_short_rows(x, axis, 2 * s.SHORT_ROW_ELEMENTS):
        return columns_as_rows(x, keepdims).max(axis=0)
    return x.max(axis=axis, keepdims=keepdims)


@primitive(batch="axis", reduces="min")
def lowest(x, *, axis=None, keepdims=False):
    if type(x) is np.ndarray and x.size > s.LONG and s.has_short_rows(x, axis, 2 * s.SHORT_ROW_ELEMENTS):
        return columns_as_rows(x, keepdims).min(axis=0)
    return x.min(axis=axis, keepdims=keepdims)


def columns_as_rows(x: np.ndarray, keepdims: bool) -> np.ndarray:
    """The columns of x as rows. NumPy reads short rows slowly (`shaping.SHORT`)."""
    r = x.transpose((x.ndim - 1, *range(x.ndim - 1))).copy()
    return r[..., None] if keepdims else r


def tied(x, out, axis, keepdims: bool):
    """The share of each element in the extreme: 1 / (number of ties), else 0. It has derivative zero."""
    x = primal_of(x)
    hits = x == with_kept_axes(primal_of(out), x, axis, keepdims)
    if ndim(x) == 0:
        return dtype(x).type(1)
    if type(x) is np.ndarray and x.dtype is F8 and type(axis) is int and axis in (-1, x.ndim - 1):
        return hits / hits.dot(np.ones(x.shape[-1]))[..., None]
    return (hits / s.sum(hits, axis, True)).astype(dtype(x))


def with_kept_axes(r, x, axis, keepdims: bool):
    """The result r of a reduction of x, in a shape that broadcasts to that of x."""
    return r if keepdims or shape(r) == () else reshape(r, to=kept_dims(shape(x), axis))


def _extreme_vjp(g, out, x, axis, keepdims):
    top = primal_of(out)
    if type(x) is np.ndarray and x.dtype is F8 and x.ndim and not isinstance(top, Variable):
        hits = x == with_kept_axes(top, x, axis, keepdims)
        # without ties nothing is shared: every result that is not nan has one hit
        if np.count_nonzero(hits) == top.size and is_known_finite(top):
            return times0(hits, with_kept_axes(g, x, axis, keepdims))
    return times0(tied(x, out, axis, keepdims), with_kept_axes(g, x, axis, keepdims))


def _extreme_jvp(t, out, x, axis, keepdims):
    return s.sum(times0(tied(x, out, axis, keepdims), t[0]), axis, keepdims)


rules(highest, _extreme_vjp, jvp=_extreme_jvp)
rules(lowest, _extreme_vjp, jvp=_extreme_jvp)


def _extreme(reduce, combine, sign, name, a, axis, keepdims, initial, where):
    given = a = array_operand(a)
    if where is not True:
        if initial is None:
            raise ArgumentError(f"numpy.{name}: where= needs initial=")
        a = select(broadcast_plain(where, shape(a)), a, -sign * np.inf)
    if initial is not None and element_count(a, axis) == 0:
        return broadcast_to(
            xp(a).asarray(initial, dtype(a)),
            to=tuple(np.sum(np.empty(shape(a)), axis=axis, keepdims=keepdims).shape),
        )
    r = reduce(a, axis=axis, keepdims=keepdims)
    if initial is None:
        return r
    return in_library_layout(
        combine(r, initial),
        getattr(np, name),
        (given, axis),
        {"keepdims": keepdims, "initial": initial, "where": where},
    )


@implements(np.max, np.amax, layout="own")
def amax(a, axis=None, *, keepdims=False, initial=None, where=True):
    return _extreme(highest, maximum, 1.0, "max", a, axis, keepdims, initial, where)


@implements(np.min, np.amin, layout="own")
def amin(a, axis=None, *, keepdims=False, initial=None, where=True):
    return _extreme(lowest, minimum, -1.0, "min", a, axis, keepdims, initial, where)


@implements(np.ptp)
def ptp(a, axis=None, *, keepdims=False):
    return amax(a, axis, keepdims=keepdims) - amin(a, axis, keepdims=keepdims)


# --- reductions that ignore nan ---


def _without_nan(a, fill) -> tuple:
    a = array_operand(a)
    gone = isnan(primal_of(a))
    return select(gone, zero_of(a) + fill, a), ~gone


def _total_of_others(f, total: Callable, fill: float) -> None:
    @implements(f)
    def of(a, axis=None, dtype=None, *, keepdims=False, initial=None, where=True):
        return total(_without_nan(a, fill)[0], axis, dtype, keepdims=keepdims, initial=initial, where=where)


def _scan_of_others(f, scan: Callable, fill: float) -> None:
    @implements(f)
    def of(a, axis=None, dtype=None):
        return scan(_without_nan(a, fill)[0], axis, dtype)


_total_of_others(np.nansum, sum, 0)
_total_of_others(np.nanprod, prod, 1)
_scan_of_others(np.nancumsum, cumsum, 0)
_scan_of_others(np.nancumprod, cumprod, 1)


def _with(where, there):
    return there if where is True else there & primal_of(where)


@implements(np.nanmean)
def nanmean(a, axis=None, dtype=None, *, keepdims=False, where=True):
    a, there = _without_nan(a, 0)
    return mean(a, axis, dtype, keepdims=keepdims, where=_with(where, there))


def _spread_of_others(f, spread: Callable) -> None:
    """It is nan where the elements are no more than the degrees of freedom."""

    @implements(f)
    def of(a, axis=None, dtype=None, *, ddof=0, keepdims=False, where=True, mean=None, correction=None):
        a, there = _without_nan(a, 0)
        where, ddof = _with(where, there), ddof if correction is None else correction
        y = spread(a, axis, dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean)
        few = _number_of(where, y, a, axis, keepdims) <= ddof
        return select(few, zero_of(y) + np.nan, y)


def _extreme_of_others(f, reduce: Callable, fill: float) -> None:
    @implements(f)
    def of(a, axis=None, *, keepdims=False, initial=None, where=True):
        filled, there = _without_nan(a, fill)
        r = reduce(filled, axis, keepdims=keepdims, initial=initial, where=where)
        if initial is not None:
            return r
        return select(any_of(there, axis=axis, keepdims=keepdims), r, zero_of(r) + np.nan)


_spread_of_others(np.nanvar, var)
_spread_of_others(np.nanstd, std)
_extreme_of_others(np.nanmax, amax, -np.inf)
_extreme_of_others(np.nanmin, amin, np.inf)


# --- sums of exponentials ---


# exp(x - log_sum_exp(x)) loses log(n) to rounding where x is large. So the weights are computed from x
# less its maximum, which is exact.
def _from_top(x, axis) -> tuple:
    """(x less its largest real part, that part); infinite ones are not subtracted."""
    if type(x) is np.ndarray and x.dtype is F8 and x.ndim and x.size:
        if x.ndim == 2 and x.size > s.LONG and s.has_short_rows(x, axis, 2 * s.SHORT_ROW_ELEMENTS):
            x = x.copy(order="F")  # NumPy reads short rows slowly (`shaping.SHORT`)
        top = np.maximum.reduce(x, axis, keepdims=True)
        # (`is_known_finite` squares the elements, which may overflow with a warning)
        if np.isfinite(top).all():
            return x - top, top
    top = top_of.prim.run(x, axis=axis)
    return x - top, top


@primitive(batch="axis")
def top_of(x, *, axis):
    """The largest real part, or 0 if that is infinite."""
    xp = xp_of(x)
    top = (
        highest(xp.real(x), axis=axis, keepdims=True)
        if x.size
        else xp.zeros(kept_dims(x.shape, axis), x.real.dtype)
    )
    return xp.where(xp.isfinite(top), top, xp.zeros((), top.dtype))


@primitive(batch="axis", known_as="logsumexp")
def log_sum_exp(x, *, axis=None, keepdims=False):
    xp = xp_of(x)
    d, top = _from_top(x, axis)
    r = xp.log(s.sum(xp.exp(d), axis, True)) + top
    return r if keepdims or not r.ndim else r.squeeze(axis)[()]


@primitive(batch="axis")
def weights_of(x, *, axis=None):
    """The softmax."""
    e = xp_of(x).exp(_from_top(x, axis)[0])
    return e / s.sum(e, axis, True)


@primitive(batch="axis")
def log_weights_of(x, *, axis=None):
    xp = xp_of(x)
    d = _from_top(x, axis)[0]
    return d - xp.log(s.sum(xp.exp(d), axis, True))


def _top_opened(x, *, axis):
    top = highest(x, axis=axis, keepdims=True)
    return select(isfinite(top), top, zero_of(top))


def in_parts(x, axis) -> tuple:
    """(x less its top, that top, the exponentials, their sum): a recording shares them between a value and
    its derivatives."""
    if ndim(x) == 2 and axis in (-1, 1) and 1 < shape(x)[1] < 2 * s.SHORT_ROW_ELEMENTS:
        x = transpose(s.copy(transpose(x, axes=(1, 0)), order="C"), axes=(1, 0))  # as in `_from_top`
    top = top_of(x, axis=axis)
    d = x - top
    e = exp(d)
    return d, top, e, s.sum(e, axis, True)


def _log_sum_exp_opened(x, *, axis=None, keepdims=False):
    _, top, _, total = in_parts(x, axis)
    r = log(total) + top
    to = tuple([n for k, n in enumerate(shape(x)) if k not in reduction_axes(x, axis)])
    return r if keepdims else reshape(r, to=to)


def _weights_opened(x, *, axis=None):
    _, _, e, total = in_parts(x, axis)
    return e / total


def _log_weights_opened(x, *, axis=None):
    d, _, _, total = in_parts(x, axis)
    return d - log(total)


log_sum_exp.prim.opened, weights_of.prim.opened = _log_sum_exp_opened, _weights_opened
log_weights_of.prim.opened, top_of.prim.opened = _log_weights_opened, _top_opened


def _centred(g, out, x, axis):
    """p (g - sum(p g)): the Jacobian of the softmax p, its own transpose."""
    h = times0(g, out)
    return h - out * s.sum(h, axis, True)


rules(
    log_sum_exp,
    lambda g, out, x, axis, keepdims: times0(with_kept_axes(g, x, axis, keepdims), weights_of(x, axis=axis)),
    jvp=lambda t, out, x, axis, keepdims: s.sum(times0(t[0], weights_of(x, axis=axis)), axis, keepdims),
)
rules(weights_of, _centred, jvp=lambda t, out, x, axis: _centred(t[0], out, x, axis))
rules(
    log_weights_of,
    lambda g, out, x, axis: g - times0(s.sum(g, axis, True), weights_of(x, axis=axis)),
    jvp=lambda t, out, x, axis: t[0] - s.sum(times0(t[0], weights_of(x, axis=axis)), axis, True),
)


@implements(scipy.special.logsumexp)
def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False):
    a = array_operand(a)
    if b is None and not return_sign:
        return log_sum_exp(a, axis=axis, keepdims=keepdims)
    b = array_operand(b) if b is not None else 1.0
    on = primal_of(b) != 0 if hasattr(b, "dtype") else xp(a).asarray(b != 0)
    on = broadcast_plain(on, np.broadcast_shapes(shape(a), shape(b)))
    kept = select(on, a, zero_of(a) - np.inf)
    top = top_of(primal_of(kept), axis=axis)
    total = s.sum(b * exp(kept - top), axis, True)
    if is_tracked(b):  # where b is 0, its derivative is not
        total = total + s.sum(times0(select(on, 0.0, b), exp(a - top)), axis, True)
    way = sign(primal_of(total))
    r = log(total * way if return_sign else total) + top
    if not keepdims:
        r, way = s.sum(r, axis), s.sum(way, axis)  # a reduction over one element
    return (r, way) if return_sign else r


@implements(scipy.special.log_softmax)
def log_softmax(x, axis=None):
    return log_weights_of(array_operand(x), axis=axis)


@implements(scipy.special.softmax)
def softmax(x, axis=None):
    return weights_of(array_operand(x), axis=axis)
