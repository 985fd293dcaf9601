"""Norms, condition numbers, and functions of matrices: expm, sqrtm, logm.

The derivative of a norm at zero is zero, at every order; ties of maxima share equally."""

from typing import Any

import numpy as np
import scipy.linalg

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import is_tracked, primal_of, values_of
from ..._core.scope import OPEN
from ..declare import (
    NUMPY_VERSION,
    SCIPY,
    axes_of,
    dtype,
    implements,
    ndim,
    primitive,
    rules,
    shape,
    sum_of_given,
    xp,
)
from ..elementwise import absolute, phase_of, power, select, sign, times0, zero_of
from ..nondifferentiable import at_users_line, note_zero
from ..products import T, matmul
from ..reductions import BOUNDS, amax, amin, direction, length_of
from ..shaping import arrays_of, concatenate, conj, real, reshape, slice_of, spread_over_axes, sum, transpose
from .decompositions import svdvals
from .factorizations import check_square, inv


def as_floating(x):
    x = x if hasattr(x, "shape") else arrays_of([x])[0]
    return x if dtype(x).kind in "fc" else x * 1.0


@primitive(holomorphic=False, batch="axis")
def p_length(x, *, p, axis, keepdims):
    """(sum |x|^p)^(1/p)."""
    return (abs(x) ** p).sum(axis=axis, keepdims=keepdims) ** (1.0 / p)


def _p_unit(x, out, p, axis, keepdims):
    """The derivative with respect to x: (|x| / norm)^(p - 1) x / |x|. Zero where the norm is zero, in
    every further derivative too."""
    high = {size: abs(np.log2(high)) * 2 for size, (low, high) in BOUNDS.items()}
    bounds = {size: (2.0 ** -(e / (abs(p) + 1)), 2.0 ** (e / (abs(p) + 1))) for size, e in high.items()}
    y, length, zero = direction(
        x, out, axis, keepdims, lambda y: p_length(y, p=p, axis=axis, keepdims=True), bounds
    )
    u = phase_of(y) if dtype(y).kind == "c" else sign(y)
    size = absolute(y) if zero is None else absolute(y) + zero  # (a negative power of 0 is infinite)
    return u * power(size / length, p - 1), zero


def _p_vjp(g, out, x, p, axis, keepdims):
    u, zero = _p_unit(x, out, p, axis, keepdims)
    return note_zero(times0(spread_over_axes(g, shape(x), axis, keepdims), u), x, zero, "norm")


def _p_jvp(t, out, x, p, axis, keepdims):
    u, zero = _p_unit(x, out, p, axis, keepdims)
    y = sum(real(times0(t[0], conj(u))) if dtype(x).kind == "c" else times0(t[0], u), axis, keepdims)
    return note_zero(y, x, zero, "norm", pulled=False, pushed=t[0])


rules(p_length, _p_vjp, jvp=_p_jvp)


def _vector(x, order, axis, keepdims: bool):
    if is_tracked(order) and order != 0 and abs(values_of(order)) < np.inf:  # its derivative is needed too
        return power(sum(power(absolute(x), order), axis, keepdims), 1.0 / order)
    if order is None or order == 2:
        return length_of(x, axis, keepdims)
    if order == np.inf:
        return amax(absolute(x), axis, keepdims=keepdims)
    if order == -np.inf:
        return amin(absolute(x), axis, keepdims=keepdims)
    if order == 0:
        count = (primal_of(x) != 0).astype(dtype(zero_of(real(x))))
        return count.sum(axis=axis, keepdims=keepdims)
    if order == 1:
        return sum(absolute(x), axis, keepdims)
    if isinstance(order, str):
        raise ValueError(f"norm: ord={order!r} is not a norm of vectors")
    return p_length(x, p=values_of(order), axis=axis, keepdims=keepdims)


def _matrix(x, order, axes: tuple, keepdims: bool):
    n = ndim(x)
    i, j = axes
    if i == j:
        raise ValueError("norm: the two axes must differ")
    if order in (None, "fro", "f"):
        return length_of(x, (i, j), keepdims)
    if order in (1, -1, np.inf, -np.inf):
        summed, rest = (i, j) if abs(order) == 1 else (j, i)
        extreme = amax if order > 0 else amin
        return extreme(sum(absolute(x), summed, True), (summed, rest), keepdims=keepdims)
    if order in ("nuc", 2, -2):
        s = svdvals(_last(x, i, j))
        r = (
            sum(s, ndim(s) - 1)
            if order == "nuc"
            else amax(s, ndim(s) - 1)
            if order == 2
            else amin(s, ndim(s) - 1)
        )
        if keepdims:
            r = reshape(r, to=tuple([1 if k in axes else d for k, d in enumerate(shape(x))]))
        return r
    raise ValueError(f"norm: ord={order!r} is not a norm of matrices of {n} dimensions")


def _last(x, i: int, j: int):
    from_axes = tuple([k for k in range(ndim(x)) if k not in (i, j)]) + (i, j)
    return x if from_axes == tuple(range(ndim(x))) else transpose(x, axes=from_axes)


@implements(np.linalg.norm)
def norm(x, ord=None, axis=None, keepdims=False):
    x = as_floating(x)
    n = ndim(x)
    if axis is None:
        if ord is None or (ord == 2 and n == 1 and not is_tracked(ord)) or (ord in ("fro", "f") and n == 2):
            return length_of(x, None, keepdims)
        axis = tuple(range(n))
    axis = axes_of(axis, n)
    if len(axis) == 1:
        return _vector(x, ord, axis[0], keepdims)
    if len(axis) == 2:
        return _matrix(x, ord, axis, keepdims)
    raise ValueError("norm: an array of more than two dimensions needs axis=")


@implements(scipy.linalg.norm)
def scipy_norm(a, ord=None, axis=None, keepdims=False):
    """SciPy computes the length of a vector with BLAS, where no square overflows or underflows."""
    if (
        axis is not None
        or is_tracked(ord)
        or ord not in (None, 2)
        or ndim(a) != 1
        or keepdims
        or xp(a) is not np
    ):
        return norm(a, ord, axis, keepdims)
    a = a * np.float64(1.0) if dtype(a).itemsize < 8 else a  # a Python float in any precision
    size = 1.0 if OPEN.hiding else abs(primal_of(a)).max(initial=0.0)
    return norm(a) if 1e-140 < size < 1e140 or not 0.0 < size < np.inf else size * norm(a / size)


@implements(np.linalg.vector_norm)
def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    x = as_floating(x)
    return _vector(x, ord, axes_of(axis, ndim(x)), keepdims)


@implements(np.linalg.matrix_norm)
def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    x = as_floating(x)
    return _matrix(x, ord, (ndim(x) - 2, ndim(x) - 1), keepdims)


@implements(np.linalg.cond)
def cond(x, p=None):
    """(NumPy's own code calls compiled functions from NumPy 2.5 on.)"""
    x = as_floating(x)
    plain = primal_of(x)
    unknown = (plain != plain).any((-2, -1))  # NumPy's result is infinity for a matrix without nan
    if p in (None, 2, -2):
        if NUMPY_VERSION >= (2, 5):  # an element that is not finite raises no error
            finite = np.isfinite(plain).all((-2, -1))[..., None]
            x = select(finite[..., None], x, xp(x).eye(*shape(x)[-2:], dtype=dtype(x)))
            s = select(finite, svdvals(x), np.nan)
        else:
            s = svdvals(x)
        n = ndim(s) - 1
        high, low = amax(s, n), amin(s, n)
        y = low / high if p == -2 else high / low
    else:
        check_square("cond", x)
        axes = (ndim(x) - 2, ndim(x) - 1)
        y = _matrix(x, p, axes, False) * _matrix(inv(x), p, axes, False)
    return select((primal_of(y) == primal_of(y)) | unknown, y, dtype(y).type(np.inf))


# --- functions of matrices ---


@primitive(scipy.linalg.expm, batch="matrix")
def expm(A):
    """The exponential of each matrix."""
    if xp_of(A) is np:
        return scipy.linalg.expm(A)
    return expm_by_series(A)


def expm_by_series(a):
    """The exponential on a device, by scaling and squaring with the Taylor series to order 30. Eight
    squarings suffice for |a| up to 700, where the exponential overflows. Reading the norm would
    synchronise."""
    library, squarings = xp_of(a), 8
    a = a / 2.0**squarings
    total = term = library.zeros_like(a) + library.eye(a.shape[-1], dtype=a.dtype)
    for k in range(1, 31):
        term = term @ a / k
        total = total + term
    for _ in range(squarings):
        total = total @ total
    return total


def frechet(f, a, e):
    """The derivative of f at a in the direction e, from f([[a, e], [0, a]]) = [[f(a), f'(a; e)], [0,
    f(a)]]."""
    n, axis = shape(a)[-1], ndim(a) - 1
    zero = zero_of(a) * e * 0
    upper, lower = concatenate(a + zero, e + zero, axis=axis), concatenate(zero, a + zero, axis=axis)
    y = f(concatenate(upper, lower, axis=axis - 1))
    return slice_of(slice_of(y, axis=axis - 1, start=0, stop=n), axis=axis, start=n, stop=2 * n)


rules(expm, lambda g, out, A: frechet(expm, T(A), g), jvp=lambda t, out, A: frechet(expm, A, t[0]))


@primitive(batch="matrix", by_values=True)
def root_of(A):
    """The principal square root."""
    return _host("sqrtm", scipy.linalg.sqrtm, A)


@primitive(batch="matrix", by_values=True)
def log_of(A):
    """The principal logarithm."""
    return _host("logm", scipy.linalg.logm, A)


def _host(name, f, a):
    if xp_of(a) is not np:
        raise ArgumentError(f"{name}: CuPy has no such function; use eigh for Hermitian matrices")
    stack = a.ndim > 2 and SCIPY < (1, 17)  # which takes single matrices only
    y = np.reshape([f(m) for m in a.reshape(-1, *a.shape[-2:])], a.shape) if stack else at_users_line(f, a)
    return (
        y if a.dtype.kind == "c" or y.dtype.kind != "c" else y.astype(np.result_type(a.dtype, np.complex64))
    )


# Their derivatives are found from the result, not from A. Near a branch cut, A may lie on either side,
# and the result tells which branch was taken.
@primitive(batch="matrix")
def sylvester(a, b, q):
    """The solution x of a x + x b = q. nan if there is none or more than one; zero where q is zero."""
    if xp_of(q) is not np:
        raise ArgumentError("solve_sylvester: CuPy has no such function; move the matrices with a.get()")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], q.shape[:-2])
    a, b, q = (np.broadcast_to(m, lead + m.shape[-2:]) for m in (a, b, q))
    x = np.zeros(q.shape, np.result_type(a, b, q))
    for i in np.ndindex(*lead):
        if q[i].any():
            x[i] = scipy.linalg.solve_sylvester(a[i], b[i], q[i]) if _regular(a[i], b[i]) else np.nan
    return x


def _regular(a, b) -> bool:
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    u, v = np.linalg.eigvals(a), np.linalg.eigvals(b)
    return bool(abs(u[:, None] + v).min() > 4 * np.finfo(u.dtype).eps * (abs(u).max() + abs(v).max()))


def _sylvester_vjp(g, out, need, a, b, q):
    c = sylvester(T(a), T(b), g)
    return -matmul(c, T(out)) if need[0] else None, -matmul(T(out), c) if need[1] else None, c


def _sylvester_jvp(t, out, a, b, q):
    left, right = None if t[0] is None else -matmul(t[0], out), None if t[1] is None else -matmul(out, t[1])
    return sylvester(a, b, sum_of_given((t[2], left, right)))


rules(sylvester, joint=_sylvester_vjp, jvp=_sylvester_jvp)
NODES, WEIGHTS = ((v + 1) / 2 if n == 0 else v / 2 for n, v in enumerate(np.polynomial.legendre.leggauss(9)))


@primitive()
def halvings(y):
    """How many halvings bring the largest norm of some matrices below 0.2."""
    size = float(abs(y).sum(-1).max(initial=0.0))
    return np.int64(max(0, int(np.ceil(np.log2(size / 0.2)))) if 0 < size < np.inf else 0)


def log_slope(y, e):
    """The derivative of log at exp(y) in the direction e. Square roots exp(y / 2^k) lead to a matrix near
    the identity. There it is the integral of (1 + s m)^-1 e (1 + s m)^-1 for s from 0 to 1, by
    Gauss-Legendre quadrature, with m the root minus the identity."""
    k = int(halvings(primal_of(y)))
    for j in range(1, k + 1):
        x = expm(y * 0.5**j)
        e = sylvester(x, x, e)
    one = np.eye(shape(y)[-1], dtype=dtype(y))
    m = expm(y * 0.5**k) - one
    total: Any = None
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        r = inv(one + float(node) * m)
        term = matmul(r, matmul(e, r)) * float(weight)
        total = term if total is None else total + term
    return total * 2.0**k


rules(
    root_of, lambda g, out, A: sylvester(T(out), T(out), g), jvp=lambda t, out, A: sylvester(out, out, t[0])
)
rules(log_of, lambda g, out, A: log_slope(T(out), g), jvp=lambda t, out, A: log_slope(out, t[0]))


def without_estimate(name: str, disp) -> None:
    if disp is not None and not disp:
        raise ArgumentError(
            f"scipy.linalg.{name}: disp=False, an estimate of the error as a second result, is not supported"
        )


@implements(scipy.linalg.sqrtm)
def sqrtm(A, disp=None, blocksize=None):
    without_estimate("sqrtm", disp)
    check_square("sqrtm", A)
    return root_of(A)


@implements(scipy.linalg.logm)
def logm(A, disp=None):
    without_estimate("logm", disp)
    check_square("logm", A)
    return log_of(A)
