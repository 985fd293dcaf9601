"""Determinants, cofactors and their logarithms."""

from collections import namedtuple

import numpy as np
import scipy.linalg

from ..._core.arrays import xp_of
from ..declare import dtype, implements, ndim, primitive, rules, shape, sum_of_given
from ..elementwise import log
from ..products import (
    H,
    T,
    diagonals,
    matmul,
)
from ..shaping import conj, imag, imaginary, real, reshape, sum
from .factorizations import check_square, cholesky, inv


def as_matrices(g):
    """Numbers as 1 x 1 matrices, for products with matrices."""
    return reshape(g, to=(*shape(g), 1, 1))


SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")


@implements(scipy.linalg.det)
def scipy_det(a):
    return det(a)


@primitive(np.linalg.det, batch="matrix", total=True)
def det(x):
    return xp_of(x).linalg.det(x)


NEXT, LAST = [1, 2, 0], [2, 0, 1]  # the other two of three rows


def opposite(x):
    """The cofactors of 2 x 2 matrices."""
    x, library = x[..., ::-1, ::-1], xp_of(x)
    return library.where(library.eye(2, dtype=bool), x, -x)


def minors(x, y):
    """The cofactors of 3 x 3 matrices, where x is the factor of the next row and y that of the last."""
    a, b = x[..., NEXT, :], y[..., LAST, :]
    return a[..., NEXT] * b[..., LAST] - a[..., LAST] * b[..., NEXT]


@primitive(batch="matrix", total=True)
def cofactor(x):
    """The matrix of cofactors, the derivative of det; finite at singular matrices."""
    if x.shape[-1] in (2, 3):
        return opposite(x) if x.shape[-1] == 2 else minors(x, x)
    if type(x) is np.ndarray:
        try:
            c = np.linalg.det(x)[..., None, None] * np.linalg.inv(x).swapaxes(-1, -2)
            if np.isfinite(c).all():
                return c
        except np.linalg.LinAlgError:
            pass
    u, s, vh, sign = _factors(x)
    return ((sign * u.conj()) * product_of_others(s)[..., None, :]) @ vh.conj()


@primitive(batch="matrix")
def cofactor_slope(x, e):
    """The derivative of `cofactor` at x in the direction e. Let x = U S V^H and f = U^H e V. To first order,
    the adjugate of S + f is p_i + sum_j q_ij f_jj on the diagonal and -q_ij f_ij off it. Here q_ij is the
    product of all s_k except s_i and s_j."""
    if x.shape[-1] in (2, 3):
        return opposite(e) if x.shape[-1] == 2 else minors(x, e) + minors(e, x)
    library = xp_of(x)
    u, s, vh, sign = _factors(x)
    n = s.shape[-1]
    f = u.conj().swapaxes(-1, -2) @ e @ vh.conj().swapaxes(-1, -2)
    eye = library.eye(n, dtype=s.dtype)
    q = product_of_others(library.where(eye > 0, eye, s[..., None, :])) * (1 - eye)
    d = library.diagonal(f, 0, -2, -1)
    m = eye * (q @ d[..., None]) - q * f
    return (sign * u.conj()) @ m.swapaxes(-1, -2) @ vh.conj()


def _factors(x):
    u, s, vh = svd_of_finite(x, full_matrices=True)
    det = xp_of(x).linalg.det
    return u, s, vh, (det(u) * det(vh))[..., None, None]


def svd_of_finite(x, full_matrices: bool) -> tuple:
    """The singular value decomposition of finite matrices. nan for others, for which LAPACK may not
    terminate."""
    svd = xp_of(x).linalg.svd
    if xp_of(x) is not np or np.isfinite(x).all():
        return tuple(svd(x, full_matrices=full_matrices))
    bad = ~np.isfinite(x).all((-2, -1), keepdims=True)
    u, s, vh = svd(np.where(bad, 0, x), full_matrices=full_matrices)
    return (
        np.where(bad, u.dtype.type(np.nan), u),
        np.where(bad[..., 0], s.dtype.type(np.nan), s),
        np.where(bad, u.dtype.type(np.nan), vh),
    )


def product_of_others(s):
    """For each element, the product of all others along the last axis."""
    library = xp_of(s)
    one = library.ones_like(s[..., :1])
    left = library.cumprod(library.concatenate([one, s[..., :-1]], -1), -1)
    right = library.cumprod(library.concatenate([one, s[..., :0:-1]], -1), -1)[..., ::-1]
    return left * right


def _third(x, e, g):
    """The gradient of D^2 det(x)[e, g] = det(x) (tr Xe tr Xg - tr XeXg), X = x^-1."""
    X = inv(x)
    E, G = matmul(X, e), matmul(X, g)
    EG, a, b = matmul(E, G), as_matrices(trace_of(E)), as_matrices(trace_of(G))
    m = (
        (a * b - as_matrices(trace_of(EG))) * X
        - b * matmul(E, X)
        - a * matmul(G, X)
        + matmul(EG, X)
        + matmul(matmul(G, E), X)
    )
    return as_matrices(det(x)) * T(m)


def trace_of(x):
    return sum(diagonals(x), ndim(x) - 2)


def _slope_jvp(t, out, x, e):
    a = None if t[0] is None else _third(x, e, t[0])
    b = None if t[1] is None else cofactor_slope(x, t[1])
    return sum_of_given((a, b))


def traced_factor(c, t):
    return sum(c * t, (ndim(c) - 2, ndim(c) - 1))


rules(
    det,
    lambda g, out, x: as_matrices(g) * cofactor(x),
    jvp=lambda t, out, x: traced_factor(cofactor(x), t[0]),
)


rules(cofactor, lambda g, out, x: cofactor_slope(x, g), jvp=lambda t, out, x: cofactor_slope(x, t[0]))


rules(
    cofactor_slope,
    lambda g, out, x, e: _third(x, e, g),
    lambda g, out, x, e: cofactor_slope(x, g),
    jvp=_slope_jvp,
)


@primitive(multi=2, batch="matrix", total=True, known_as="slogdet")
def sign_and_log(x):
    return tuple(xp_of(x).linalg.slogdet(x))


def _slogdet_vjp(g, out, need, x):
    """With z = tr(x^-1 dx): d log|det| = Re z and d sign = i sign Im z."""
    z = g[1]
    if g[0] is not None and dtype(x).kind == "c":
        k = imaginary(real(conj(g[0]) * (out[0] * 1j)))
        z = k if z is None else z + k
    return (None if z is None else as_matrices(z) * H(inv(x)),)


def _slogdet_jvp(t, out, x):
    z = traced_factor(T(inv(x)), t[0])
    if dtype(x).kind != "c":
        return None, z
    return out[0] * imaginary(imag(z)), real(z)


rules(sign_and_log, joint=_slogdet_vjp, jvp=_slogdet_jvp)


@implements(np.linalg.slogdet)
def slogdet(a):
    check_square("slogdet", a)
    return SlogdetResult(*sign_and_log(a))


def logdet(a):
    """The log-determinant of a Hermitian positive definite matrix, from its Cholesky factor."""
    d = real(diagonals(cholesky(a)))
    return 2.0 * sum(log(d), ndim(d) - 1)
