"""Order statistics, moments of several variables, and differences and integrals along an axis."""

import math
from typing import Any

import numpy as np

from .._array import is_scalar
from .._primitive import plain
from ..errors import ArgumentError
from . import shaping as s
from ._define import dtype, implements, ndim, shape, xp
from .elementwise import select, sqrt, zero_of
from .elementwise_more import isnan
from .reductions import array_of, axes_of, cast, cumsum, last, mean, restored
from .shaping import conj, real, reshape, slice_of, swapped

# --- order statistics: a stable sort of the plain values says which elements, and they are read ---


def _picked(rows: Any, order: Any, k: Any) -> Any:
    """From each row (last axis) the element of rank k."""
    library = xp(rows)
    flat = reshape(rows, to=(-1, shape(rows)[-1]))
    at = order.reshape(flat.shape)[:, k]
    return reshape(flat[library.arange(len(at)), at], to=shape(rows)[:-1])


def _ranks(n: int, q: float, method: str) -> tuple:
    """(lower rank, upper rank, weight of the upper)."""
    at = q * (n - 1)
    low = min(int(math.floor(at)), n - 1)
    high = min(low + 1, n - 1)
    if method == "linear":
        return low, high, at - low
    if method == "midpoint":
        return low, high, 0.5 if at > low else 0.0
    if method == "lower":
        return low, low, 0.0
    if method == "higher":
        return int(math.ceil(at)), int(math.ceil(at)), 0.0
    if method == "nearest":
        near = int(np.round(at))
        return near, near, 0.0
    raise ArgumentError(f"numpy.quantile: method={method!r} is not supported; use 'linear', 'lower', 'higher', 'midpoint' or 'nearest'")


def _quantile(name, a, q, axis, method, keepdims, factor=1.0):
    a = array_of(a)
    if ndim(q) or isinstance(q, (list, tuple)):
        qs = plain(q) if not isinstance(q, (list, tuple)) else np.asarray(q)
        qs = qs.get() if hasattr(qs, "get") else qs
        if qs.ndim > 1:
            raise ArgumentError(f"numpy.{name}: q must be a number or a vector")
        rs = [_quantile(name, a, float(v), axis, method, keepdims, factor) for v in qs]
        return cast(s.stack(rs), np.result_type(dtype(a), qs.dtype))
    if is_scalar(q):
        return cast(_quantile(name, a, float(q), axis, method, keepdims, factor), np.result_type(dtype(a), q.dtype))
    q = float(plain(q)) / factor
    if not 0 <= q <= 1:
        raise ValueError(f"numpy.{name}: q must lie in [0, {factor:g}]")
    rows, _ = last(a, axis)
    order = xp(rows).argsort(plain(rows), axis=-1, **({"kind": "stable"} if xp(rows) is np else {}))
    low, high, w = _ranks(shape(rows)[-1], q, method)
    r = _picked(rows, order, low)
    if w:
        top = _picked(rows, order, high)
        # NumPy's way, from the nearer end
        r = top - (top - r) * (1 - w) if w >= 0.5 else r + (top - r) * w
    bad = isnan(plain(rows)).any(axis=-1)
    return restored(select(bad, zero_of(r) + np.nan, r), a, axis, keepdims)


@implements(np.quantile)
def quantile(a, q, axis=None, *, method="linear", keepdims=False):
    return _quantile("quantile", a, q, axis, method, keepdims)


@implements(np.percentile)
def percentile(a, q, axis=None, *, method="linear", keepdims=False):
    return _quantile("percentile", a, q, axis, method, keepdims, 100.0)


@implements(np.median)
def median(a, axis=None, *, keepdims=False):
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims)


def _nan_quantile(name, a, q, axis, keepdims, factor=1.0):
    """Each row has its own number of elements; a sort puts nan last."""
    a = array_of(a)
    if ndim(q) or isinstance(q, (list, tuple)):
        raise ArgumentError(f"numpy.{name}: q must be a number")
    rows, _ = last(a, axis)
    library, values = xp(rows), plain(rows)
    order = library.argsort(values, axis=-1, **({"kind": "stable"} if library is np else {}))
    order = order.reshape(-1, shape(rows)[-1])
    n = (~isnan(values)).sum(axis=-1).reshape(-1)
    at = float(plain(q)) / factor * library.maximum(n - 1, 0)
    low = library.floor(at).astype(int)
    high = library.minimum(low + 1, library.maximum(n - 1, 0))
    row = library.arange(len(order))
    flat = reshape(rows, to=order.shape)
    down, up = flat[row, order[row, low]], flat[row, order[row, high]]
    w = (at - low).astype(values.dtype)
    r = reshape(down + (up - down) * w, to=shape(rows)[:-1])
    return restored(r, a, axis, keepdims)


@implements(np.nanquantile)
def nanquantile(a, q, axis=None, *, method="linear", keepdims=False):
    if method != "linear":
        raise ArgumentError(f"numpy.nanquantile: method={method!r} is not supported; use 'linear'")
    return _nan_quantile("nanquantile", a, q, axis, keepdims)


@implements(np.nanpercentile)
def nanpercentile(a, q, axis=None, *, method="linear", keepdims=False):
    if method != "linear":
        raise ArgumentError(f"numpy.nanpercentile: method={method!r} is not supported; use 'linear'")
    return _nan_quantile("nanpercentile", a, q, axis, keepdims, 100.0)


@implements(np.nanmedian)
def nanmedian(a, axis=None, *, keepdims=False):
    return _nan_quantile("nanmedian", a, 0.5, axis, keepdims)


# --- covariance ---


@implements(np.cov)
def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *, dtype=None):
    """Rows are variables.  Weights are constants."""
    x = _rows(m, rowvar)
    if y is not None:
        x = s.concatenate(x, _rows(y, rowvar), axis=0)
    x = cast(x, np.result_type(_dtype_of(x), np.float64) if dtype is None else dtype)
    n = shape(x)[1]
    ddof = (0 if bias else 1) if ddof is None else ddof
    w = None
    for given in (fweights, aweights):
        if given is not None:
            given = xp(x).asarray(plain(given))
            w = given * 1.0 if w is None else w * given
    if w is None:
        d = x - mean(x, 1, keepdims=True)
        c = d @ conj(swapped(d)) / (n - ddof) if _complex(d) else d @ swapped(d) / (n - ddof)
    else:
        total = w.sum()
        norm = total - ddof if aweights is None or ddof == 0 else total - ddof * (w * xp(x).asarray(plain(aweights))).sum() / total
        d = x - s.sum(x * w, 1, True) / total
        right = conj(swapped(d * w)) if _complex(d) else swapped(d * w)
        c = d @ right / norm
    return reshape(c, to=tuple([k for k in shape(c) if k != 1]))


_dtype_of = dtype


def _complex(x: Any) -> bool:
    return dtype(x).kind == "c"


def _rows(m: Any, rowvar: bool) -> Any:
    m = array_of(m)
    if ndim(m) > 2:
        raise ArgumentError("numpy.cov: m has more than 2 dimensions")
    m = m if ndim(m) == 2 else reshape(m, to=(1, math.prod(shape(m))))
    return m if rowvar or shape(m)[0] == 1 else swapped(m)


@implements(np.corrcoef)
def corrcoef(x, y=None, rowvar=True, *, dtype=None):
    c = cov(x, y, rowvar, dtype=dtype)
    if ndim(c) == 0:
        return c / c
    n = shape(c)[0]
    d = sqrt(real(c[xp(c).arange(n), xp(c).arange(n)]))
    return c / reshape(d, to=(n, 1)) / reshape(d, to=(1, n))


# --- along an axis ---


def _cut(a: Any, axis: int, start: int, stop: int) -> Any:
    return slice_of(a, axis=axis, start=start, stop=stop)


def _steps(a: Any, axis: int) -> Any:
    n = shape(a)[axis]
    return _cut(a, axis, 1, n) - _cut(a, axis, 0, n - 1)


@implements(np.ediff1d)
def ediff1d(ary, to_end=None, to_begin=None):
    a = array_of(ary)
    parts = [_steps(reshape(a, to=(math.prod(shape(a)),)), 0)]
    if to_begin is not None:
        parts.insert(0, reshape(array_of(to_begin), to=(-1,)) if ndim(to_begin) else xp(a).full(1, to_begin, dtype(a)))
    if to_end is not None:
        parts.append(reshape(array_of(to_end), to=(-1,)) if ndim(to_end) else xp(a).full(1, to_end, dtype(a)))
    return s.concatenate(*parts) if len(parts) > 1 else parts[0]


def _widths(y: Any, x: Any, dx: Any, axis: int) -> Any:
    """The widths of the intervals, to broadcast along `axis`."""
    if x is None:
        return dx
    x = array_of(x)
    if ndim(x) == 1:
        d = _steps(x, 0)
        return reshape(d, to=tuple([-1 if k == axis else 1 for k in range(ndim(y))]))
    return _steps(x, ndim(x) - ndim(y) + axis)


@implements(np.trapezoid)
def trapezoid(y, x=None, dx=1.0, axis=-1):
    y = array_of(y)
    axis = axes_of(y, axis)[0]
    n = shape(y)[axis]
    return s.sum(_widths(y, x, dx, axis) * (_cut(y, axis, 1, n) + _cut(y, axis, 0, n - 1)) / 2.0, axis)


@implements()
def cumulative_trapezoid(y, x=None, dx=1.0, axis=-1, initial=None):
    y = array_of(y)
    axis = axes_of(y, axis)[0]
    n = shape(y)[axis]
    r = cumsum(_widths(y, x, dx, axis) * (_cut(y, axis, 1, n) + _cut(y, axis, 0, n - 1)) / 2.0, axis)
    if initial is None:
        return r
    first = xp(r).full(tuple([1 if k == axis else m for k, m in enumerate(shape(r))]), initial, dtype(r))
    return s.concatenate(first, r, axis=axis)


@implements(np.gradient)
def gradient(f, *varargs, axis=None, edge_order=1):
    f = array_of(f)
    axes = axes_of(f, axis)
    spacing = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs) or [1.0] * len(axes)
    if len(spacing) != len(axes):
        raise ArgumentError(f"numpy.gradient: {len(varargs)} spacings for {len(axes)} axes")
    rs = [_gradient(f, h, k, edge_order) for h, k in zip(spacing, axes, strict=True)]
    return rs[0] if len(rs) == 1 and (axis is None or not isinstance(axis, (tuple, list))) else tuple(rs)


def _gradient(f: Any, h: Any, axis: int, edge_order: int) -> Any:
    n = shape(f)[axis]
    if n < edge_order + 1:
        raise ValueError(f"numpy.gradient: the axis has {n} elements, edge_order={edge_order} needs {edge_order + 1}")
    h = array_of(h)
    if ndim(h) == 1:
        d = _steps(h, 0)
    else:
        d = broadcasted(h, n - 1, f)
    d = reshape(d, to=tuple([n - 1 if k == axis else 1 for k in range(ndim(f))]))
    slopes = _steps(f, axis) / d
    a, b = _cut(slopes, axis, 0, n - 2), _cut(slopes, axis, 1, n - 1)
    u, v = _cut(d, axis, 0, n - 2), _cut(d, axis, 1, n - 1)
    middle = (a * v + b * u) / (u + v)
    left, right = _cut(slopes, axis, 0, 1), _cut(slopes, axis, n - 2, n - 1)
    if edge_order == 2:
        left = left + (left - _cut(slopes, axis, 1, 2)) * _cut(d, axis, 0, 1) / (_cut(d, axis, 0, 1) + _cut(d, axis, 1, 2))
        end, before = _cut(d, axis, n - 2, n - 1), _cut(d, axis, n - 3, n - 2)
        right = right + (right - _cut(slopes, axis, n - 3, n - 2)) * end / (end + before)
    return s.concatenate(left, middle, right, axis=axis)


def broadcasted(h: Any, n: int, f: Any) -> Any:
    """The spacing h, n times."""
    return h * xp(f).ones(n, dtype(f))
