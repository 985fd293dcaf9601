"""Order statistics, moments of several variables, and differences and integrals along an axis."""

import math

import numpy as np

from .._core.arrays import F8, is_differentiable, xp_of
from .._core.errors import ArgumentError
from .._core.primitive import any_tracked, layout_of, primal_of, values_of
from .._core.trees import nested
from .._core.variable import ArrayVariable, Variable
from . import shaping as s
from .creation import linspace
from .declare import dtype, follow, implements, ndim, shape, xp
from .elementwise import select, zero_of
from .piecewise import isnan, maximum, minimum
from .products import H, T, flat_operand
from .reductions import (
    amax,
    amin,
    array_operand,
    cast_operand,
    flatten_axes_last,
    float_dtype,
    max_of_zero,
    mean,
    restore_axes,
)
from .shaping import arrays_of, reshape
from .sorting import bincount, take_sorted

# --- order statistics ---


# Hyndman and Fan's continuous methods. The position of the quantile among n sorted numbers, counted from
# 0, is n q + alpha + q (1 - alpha - beta) - 1.
CONTINUOUS = {
    "linear": (1.0, 1.0), "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
# discontinuous: the derivative is that of the chosen element
STEPS = ("inverted_cdf", "averaged_inverted_cdf", "closest_observation")
METHODS = (*CONTINUOUS, "lower", "higher", "nearest", "midpoint", *STEPS)


def _places(name: str, n, q, method: str) -> tuple:
    """(lower rank, upper rank, weight of the upper) for each number n of elements; the weight is tracked if q
    is."""
    library = xp_of(n)
    if method in CONTINUOUS:
        alpha, beta = CONTINUOUS[method]
        at = q * (n + (1.0 - alpha - beta)) + (alpha - 1.0)
    elif method in STEPS:
        at = library.asarray(q_value(q) * n - 1 - 0.5 * (method == "closest_observation"))
        low = library.floor(at)
        kept = (at == low) & ((low % 2 == 1) | (method != "closest_observation"))
        at = library.where(
            at < 0, 0, low + library.where(kept, 0.5 * (method == "averaged_inverted_cdf"), 1.0)
        )
    elif method in METHODS:
        at = library.asarray(q_value(q) * (n - 1))
        near = {"lower": library.floor, "higher": library.ceil, "nearest": library.rint}
        at = near[method](at) if method in near else library.floor(at) + 0.5 * (at > library.floor(at))
    else:
        raise ArgumentError(
            f"numpy.{name}: method={method!r} is not supported on a tracked Variable; use one of "
            f"{', '.join(METHODS)}"
        )
    top = library.maximum(n - 1, 0)
    low = library.minimum(library.maximum(library.floor(primal_of(at)), 0), top).astype(int)
    w = at - low
    w = (
        minimum(maximum(w, 0.0), 1.0)
        if isinstance(w, Variable)
        else library.minimum(library.maximum(w, 0.0), 1.0)
    )
    return low, library.minimum(low + 1, top), w


def q_value(q) -> float:
    return float(values_of(q))


def _of_rows(x, at):
    """One element of each row of x."""
    if isinstance(at, Variable):
        return reshape(take_sorted(x, reshape(at, to=(-1, 1)), 1), to=shape(at))
    return x[xp_of(at).arange(len(at)), at]


def _quantile(name, a, q, axis, method, keepdims, factor=1.0, nan=False):
    """The order found on primal values determines the two elements of each row that are read. `nan`:
    ignore nan, which a sort puts last."""
    a = array_operand(a)
    if (
        type(q) is float
        and type(a) is ArrayVariable
        and not nan
        and not keepdims
        and (axis is None or axis == 0)
    ):
        values = primal_of(a)
        if (
            type(values) is np.ndarray
            and values.ndim == 1
            and values.dtype is F8
            and values.size
            and 0 <= q <= factor
        ):
            return _of_vector(name, a, q / factor, method)
    q = array_operand(q)
    if keepdims and not ndim(a) and not ndim(q):
        return s.array_of(_quantile(name, a, q, axis, method, False, factor, nan))
    if ndim(q):
        flat = reshape(q, to=(-1,)) if ndim(q) > 1 else q
        rs = [_quantile(name, a, flat[k], axis, method, keepdims, factor, nan) for k in range(shape(flat)[0])]
        r = s.stack(rs)
        return r if ndim(q) == 1 else reshape(r, to=(*shape(q), *shape(rs[0])))
    to = dtype(a) if dtype(a).kind in "fc" else np.dtype(np.float64)
    to = np.result_type(to, dtype(q)) if hasattr(q, "dtype") else to
    q = q / factor
    if not 0 <= values_of(q) <= 1:
        raise ValueError(f"numpy.{name}: q must lie in [0, {factor:g}]")
    rows, outer = flatten_axes_last(a, axis)
    library, values = xp(rows), primal_of(rows)
    if type(values) is np.ndarray and not nan and values.ndim == 1 and values.size:
        r = _of_vector(name, rows, q, method)
        return restore_axes(cast_operand(r, to), a, axis, keepdims)
    gone = isnan(values)
    order = library.argsort(values, axis=-1, **({"kind": "stable"} if library is np else {})).reshape(
        -1, shape(rows)[-1]
    )
    # the number of elements that count: one number on the host, unless rows differ in their nan
    n = (~gone).sum(axis=-1).reshape(-1) if nan else np.asarray(shape(rows)[-1])
    low, high, w = _places(name, n, q, method)
    table = reshape(rows, to=order.shape)
    first, second = [_of_rows(order, k) if nan else order[:, int(k)] for k in (low, high)]
    down, up = _of_rows(table, first), _of_rows(table, second)
    w = _weight(w, a)
    if name.endswith("median"):
        r = select(primal_of(w) > 0, (down + up) * 0.5, down) if nan else _middle(down, up, w)
    elif nan:
        r = select(primal_of(w) >= 0.5, up - (up - down) * (1 - w), down + (up - down) * w)
    else:
        r = _between(down, up, w)
    bad = n == 0 if nan else gone.reshape(order.shape).any(axis=-1)
    r = select(bad, zero_of(r) + np.nan, r)
    r = reshape(r, to=outer) if outer else r[0]
    return restore_axes(cast_operand(r, to), a, axis, keepdims)


def _of_vector(name: str, x, q, method: str):
    """The quantile of a vector; its two elements are read as numbers."""
    values, n = values_of(x), shape(x)[0]
    low, high, w = (
        _places(name, np.asarray(n), q, method)
        if type(q) is not float or method != "linear"
        else _place(n, q)
    )
    w = _weight(w, x)
    both = isinstance(w, Variable) or w
    if values.dtype.kind == "f":
        top = np.maximum.reduce(values)  # nan if any element is
        first, second = _ranked(values, int(low), int(high if both else low)) if top == top else (0, 0)
    else:
        order = np.argsort(values, kind="stable")
        top, first, second = values[order[-1]], order[low], order[high]  # a sort puts nan last
    down = x[int(first)]
    if np.isnan(top):
        return zero_of(down) + np.nan
    between = _middle if name == "median" else _between
    return between(down, x[int(second)], w) if both else down


def _ranked(values: np.ndarray, low: int, high: int) -> tuple:
    """The positions of two neighbours in the order of real numbers; equal ones are ordered as in a stable
    sort."""
    order = values.copy()
    order.partition(low)
    equal = (values == order[low]).nonzero()[0]
    below = low if len(equal) == 1 else np.count_nonzero(values < order[low])
    if high - below < len(equal):
        return equal[low - below], equal[high - below]
    return equal[low - below], (values == order[high:].min()).argmax()


def _place(n: int, q: float) -> tuple:
    """`_places` of the default method, for one number."""
    low = min(int(q * (n - 1)), n - 1)
    return low, min(low + 1, n - 1), np.float64(q * (n - 1) - low)


def _weight(w, x):
    return cast_operand(w, np.dtype(dtype(x).char.lower()) if dtype(x).kind in "fc" else None)


def _middle(down, up, w):
    """The mean, as NumPy's medians are: infinite where one is."""
    return (down + up) * 0.5 if w else down


def _between(down, up, w):
    """Interpolate from the nearer end, as NumPy does."""
    near = primal_of(w) >= 0.5
    if isinstance(near, Variable):
        return select(near, up - (up - down) * (1 - w), down + (up - down) * w)
    if isinstance(w, Variable) or w:
        return up - (up - down) * (1 - w) if near else down + (up - down) * w
    return down


def _weighted(f, a, q, axis, method, keepdims, weights):
    """The result of NumPy's own function f, which picks an element of each row. The first equal element
    gets the derivative."""
    a, w = array_operand(a), values_of(array_operand(weights))
    if xp(a) is not np:
        raise ArgumentError(
            f"numpy.{f.__name__}: weights= is not supported by CuPy; sort, and search in the sum of the "
            f"weights"
        )
    found = f(values_of(a), values_of(array_operand(q)), axis, method=method, weights=w)
    whole, found = isinstance(found, np.ndarray), np.asarray(found)
    rows, outer = flatten_axes_last(a, axis)
    flat, picked = reshape(rows, to=(-1, shape(rows)[-1])), found.reshape(-1, math.prod(outer))
    rs = []
    for values in picked:
        hit = values_of(flat) == values[:, None]
        r = select(hit.any(-1), flat[np.arange(len(values)), hit.argmax(-1)], dtype(a).type(np.nan))
        rs.append(
            restore_axes(
                cast_operand(reshape(r, to=outer) if outer or whole else r[0], found.dtype), a, axis, keepdims
            )
        )
    many = np.ndim(layout_of(q))
    return reshape(s.stack(rs), to=(*np.shape(layout_of(q)), *shape(rs[0]))) if many else rs[0]


def _quantile_of(f, factor: float, nan: bool):
    def of(a, q, axis=None, *, method="linear", keepdims=False, weights=None):
        if weights is not None:
            return _weighted(f, a, q, axis, method, keepdims, weights)
        return _quantile(f.__name__, a, q, axis, method, keepdims, factor, nan)

    return implements(f)(of)


def _median_of(f, nan: bool):
    def of(a, axis=None, *, keepdims=False):
        return _quantile(f.__name__, a, 0.5, axis, "linear", keepdims, nan=nan)

    return implements(f)(of)


for _f, _factor in ((np.quantile, 1.0), (np.percentile, 100.0)):
    _quantile_of(_f, _factor, False)
    _quantile_of(getattr(np, f"nan{_f.__name__}"), _factor, True)
median = _median_of(np.median, False)
_median_of(np.nanmedian, True)


# --- covariance ---


@implements(np.cov)
def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *, dtype=None):
    """The covariance matrix. Rows are variables."""
    x = observation_rows(m, rowvar, not rowvar)
    if y is not None:
        x = s.concatenate(x, observation_rows(y, rowvar), axis=0)
    x = cast_operand(
        x, np.result_type(_dtype_of(x), np.float64) if dtype is None else float_dtype("cov", dtype)
    )
    n = shape(x)[1]
    ddof = (0 if bias else 1) if ddof is None else ddof
    w = None
    for given in (fweights, aweights):
        if given is not None:
            given = array_operand(given)
            w = given * 1.0 if w is None else w * given
    if w is None:
        d = x - mean(x, 1, keepdims=True)
        n = max_of_zero(n - ddof)
        c = d @ H(d) / n
    else:
        if xp(x) is not np:
            raise ArgumentError(
                "cupy.cov with weights subtracts the mean without weights, unlike numpy.cov; write the one "
                "that is meant: d = x - x @ w / w.sum(); (d * w) @ d.T / w.sum()"
            )
        total = s.sum(w)
        norm = (
            total - ddof
            if aweights is None or ddof == 0
            else total - ddof * s.sum(w * array_operand(aweights)) / total
        )
        d = x - s.sum(x * w, 1, True) / total
        c = d @ H(d * w) / maximum(norm, 0.0)
    return reshape(c, to=tuple([k for k in shape(c) if k != 1]))


_dtype_of = dtype


def observation_rows(m, rowvar: bool, turned: bool = False):
    """`turned`: a single row, too, becomes a column of observations if rows are not variables."""
    m = array_operand(m)
    if ndim(m) > 2:
        raise ArgumentError("numpy.cov: m has more than 2 dimensions")
    x = m if ndim(m) == 2 else reshape(m, to=(1, math.prod(shape(m))))
    return x if rowvar or (shape(x)[0] == 1 and not (turned and ndim(m) == 2)) else T(x)


# --- counts ---

plain = nested(values_of)


@implements(np.histogram)
def histogram(a, bins=10, range=None, density=None, weights=None):
    """Counts have derivative zero. With weights the result is linear in them. The edges follow the values
    that define them; with density= the bars do too."""
    x = values_of(arrays_of([a])[0])
    given = None if any_tracked([weights]) else plain(weights)
    counts, edges = xp_of(x).histogram(x, plain(bins), plain(range), weights=given)
    if type(bins) is not str and np.ndim(plain(bins)):
        moved = arrays_of([bins])[0] if any_tracked([bins]) else edges
    elif not any_tracked([a] if range is None else range):
        moved = edges
    elif type(bins) is str:
        raise ArgumentError(
            f"numpy.histogram: bins={bins!r} chooses the edges by the data, and has no derivative; give "
            f"their number, or the edges"
        )
    else:
        low, high = (amin(a), amax(a)) if range is None else range
        same = 0.5 * (values_of(low) == values_of(high))
        moved = linspace(low - same, high + same, len(edges))
    if any_tracked([weights]):
        x, w = x.ravel(), flat_operand(arrays_of([weights])[0])
        if not is_differentiable(layout_of(w)) or layout_of(w).dtype.kind == "c":
            raise ArgumentError(
                "numpy.histogram: weights of complex numbers; take the histograms of their real and "
                "imaginary parts"
            )
        inside = (x >= edges[0]) & (x <= edges[-1])
        at = xp_of(x).searchsorted(edges, x[inside], "right") - 1
        counts = bincount(at - (at == len(edges) - 1), w[inside], len(edges) - 1)
    return (counts / counts.sum() / (moved[1:] - moved[:-1]) if density else counts), moved


follow(__name__, np.corrcoef, np.gradient, np.ediff1d, np.trapezoid)
