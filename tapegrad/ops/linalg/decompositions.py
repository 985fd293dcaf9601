"""Spectral and orthogonal decompositions: eigh, svd, qr, and their compositions pinv and lstsq.

degenerate_spectra.py treats equal eigenvalues and singular values.

Sources: Giles (2008); Wan & Zhang, "Automatic differentiation for complex valued SVD" (2019)."""

from collections import namedtuple
from typing import Any

import numpy as np
import scipy.linalg

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import is_tracked, live, primal_of, seen, values_of
from ..._core.reverse import known
from ..._core.variable import Variable
from ..declare import NUMPY, dtype, implements, ndim, primitive, rules, shape, xp
from ..elementwise import absolute, over0, select, times0
from ..nondifferentiable import holds_somewhere
from ..products import H, column, diagonals, matmul, row_vector, two_operands, with_diagonals
from ..shaping import concatenate, conj, embed, real, reshape, slice_of, sum, zeros_like
from .degenerate_spectra import (
    anti,
    choices_among_equals,
    end_recording_of_equal_values,
    hidden,
    infinitesimal_parts,
    limit_over,
    lost_by,
    over_gaps,
    quotient,
    split_eigenvalues,
    steady,
    unknown,
    vector_rotations,
    with_steady_cotangent,
)
from .determinants import svd_of_finite
from .factorizations import check_square, cholesky, solve_triangular, triangle
from .hermitian import as_read, hermitian, symmetric, to_read

# --- Hermitian matrices ---


@primitive(multi=2, batch="matrix")
def spectrum(x, *, UPLO):
    """Eigenvalues and eigenvectors of primal values."""
    return tuple(xp_of(x).linalg.eigh(x, UPLO))


@primitive(multi=2, aliases=True, batch="matrix", known_as="eigh")
def eigh_of(x, w, v, alike, *, split, lower):
    """The eigenvalues w and eigenvectors v of x, which are given without derivatives. `alike`: see
    hermitian.py."""
    return w, v


def _eigh_vjp(g, out, need, x, _w, _v, alike, split, lower):
    w, v = out
    m = (
        None
        if g[1] is None
        else quotient(steady(matmul(H(v), g[1]), part="anti"), split_eigenvalues(w, split))
    )
    if m is not None and hidden(w):
        m = m + unknown(g[1], w)
    if g[0] is not None:
        d = with_diagonals(g[0], to=shape(x)[-2:])
        m = d if m is None else m + d
    return to_read(hermitian(matmul(v, matmul(m, H(v)))), alike, lower), None, None, None


def _eigh_jvp(t, out, x, _w, _v, alike, split, lower):
    w, v = out
    e = matmul(H(v), matmul(as_read(t[0], alike, lower), v))
    slopes, turn = real(diagonals(e)), over_gaps(e, w)
    if hidden(w):
        slopes, turn = [y + lost for y, lost in zip((slopes, turn), lost_by(e, w), strict=True)]
    return slopes, matmul(v, turn)


rules(eigh_of, joint=_eigh_vjp, jvp=_eigh_jvp)
EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")


@implements(np.linalg.eigh)
def eigh(a, UPLO="L"):
    return EighResult(*spectrum_of(a, UPLO, True))


def spectrum_of(a, UPLO: str, vectors: bool) -> tuple:
    """The eigenvalues and eigenvectors. `vectors`: does anybody read these?"""
    check_square("eigh", a)
    w, v = spectrum(primal_of(a), UPLO=UPLO.upper())
    if isinstance(a, Variable):
        end_recording_of_equal_values(a, w, vectors)
        a = steady(a) if any(e is not None for e in infinitesimal_parts(a)[1:]) else a
        lower, kind = UPLO.upper() == "L", symmetric(a)
        project = lambda tangent: H(v) @ as_read(tangent, kind, lower) @ v
        split, turn, r = choices_among_equals(a, w, project, dtype(v))
        v = v if r is None else v @ r
        w, v = eigh_of(a, w, v, kind, split=split, lower=lower)
        w = split_eigenvalues(w, split)
        v = v if turn is None else matmul(v, turn)
    return w, v


@implements(np.linalg.eigvalsh)
def eigvalsh(a, UPLO="L"):
    return spectrum_of(a, UPLO, False)[0]


@implements(scipy.linalg.eigh, layout="asked")
def scipy_eigh(a, b=None, *, lower=True, eigvals_only=False, type=1,
               subset_by_index=None, subset_by_value=None):  # fmt: skip
    """Generalised problems are reduced with B = L L^H. Type 1: the eigenvectors y of L^-1 A L^-H give v =
    L^-H y with A v = w B v. Those of L^H A L give v = L^-H y with A B v = w v (type 2), or v = L y
    with B A v = w v (type 3)."""
    if subset_by_index is not None and subset_by_value is not None:
        raise ValueError("scipy.linalg.eigh: give subset_by_index or subset_by_value, not both")
    if b is None:
        w, v = eigh(a, "L" if lower else "U")
    else:
        if type not in (1, 2, 3):
            raise ValueError(f"scipy.linalg.eigh: type={type!r}; it is 1, 2 or 3")
        L = cholesky(b) if lower else H(cholesky(b, upper=True))
        a = as_read(a, symmetric(a), lower)
        if type == 1:
            m = solve_triangular(L, H(solve_triangular(L, a, 0, True)), 0, True)
        else:
            m = matmul(H(L), matmul(a, L))
        w, y = eigh(hermitian(m))
        v = matmul(L, y) if type == 3 else solve_triangular(L, y, 2, True)
    if subset_by_index is not None or subset_by_value is not None:
        low, high = _subset(w, subset_by_index, subset_by_value)
        w, v = [slice_of(x, axis=ndim(x) - 1, start=low, stop=high) for x in (w, v)]
    return w if eigvals_only else (w, v)


def _subset(w, by_index, by_value) -> tuple:
    """The slice of the ascending eigenvalues with these numbers, or above the first of two values up to
    the second."""
    if by_index is not None:
        return int(by_index[0]), int(by_index[1]) + 1
    if w.ndim != 1:
        raise ArgumentError(
            "scipy.linalg.eigh: subset_by_value of a batch, whose matrices may have different numbers of "
            "eigenvalues in it"
        )
    low, high = (int((w <= v).sum()) for v in by_value)
    return low, high


@implements(scipy.linalg.eigvalsh)
def scipy_eigvalsh(a, b=None, *, lower=True, type=1,
                   subset_by_index=None, subset_by_value=None):  # fmt: skip
    return scipy_eigh(
        a,
        b,
        lower=lower,
        eigvals_only=True,
        type=type,
        subset_by_index=subset_by_index,
        subset_by_value=subset_by_value,
    )


# --- singular values ---


@primitive(multi=3, batch="matrix")
def singular(x):
    """The singular value decomposition of primal values."""
    u, s, vh = svd_of_finite(x, full_matrices=False)
    return u, s if xp_of(x) is not np or np.isfinite(s).all() else np.linalg.svd(x, compute_uv=False), vh


@primitive(multi=3, aliases=True, batch="matrix", known_as="svd")
def svd_of(x, u, s, vh, *, split):
    return u, s, vh


def over_sums(m, s):
    """m_ij / (s_i + s_j) for an anti-Hermitian m. The diagonal of a real one is zero, also where s is."""
    sums = column(s) + row_vector(s)
    return limit_over(m, sums if dtype(m).kind == "c" else sums + xp(s).eye(shape(s)[-1], dtype=dtype(s)))


def _svd_vjp(g, out, need, x, _u, _s, _vh, split):
    """The cotangent of x. With U^H dU = A/2 + B/2, V^H dV = A/2 - B/2 and e = U^H dx V: A = (e + e^H) /
    (s_j - s_i), B = (e - e^H) / (s_j + s_i)."""
    (u, s, vh), (gu, gs, gvh), (n, k) = out, g, shape(x)[-2:]
    m = None if gs is None else with_diagonals(gs, to=(min(n, k), min(n, k)))
    if gu is None and gvh is None:
        return matmul(u, matmul(m, vh)), None, None, None
    mu = 0.0 if gu is None else matmul(H(u), gu)
    mv = 0.0 if gvh is None else matmul(vh, H(gvh))
    plus, minus = steady(mu + mv, part="anti"), steady(mu - mv, part="anti")
    apart = split_eigenvalues(s, split)
    core = quotient(plus, apart) + over_sums(anti(minus), apart)
    if hidden(s):
        core = core + unknown(absolute(mu) + absolute(mv), s)
    left = matmul(core if m is None else core + m, vh)
    if gu is not None and n > k:
        a = matmul(u, left) + matmul(limit_over(steady(gu - matmul(u, mu)), row_vector(apart)), vh)
    elif gvh is not None and k > n:
        a = matmul(u, left + limit_over(steady(gvh - matmul(H(mv), vh)), column(apart)))
    else:
        a = matmul(u, left)
    return a, None, None, None


def _svd_jvp(t, out, x, _u, _s, _vh, split):
    (u, s, vh), (n, k) = out, shape(x)[-2:]
    right, left = matmul(t[0], H(vh)), matmul(H(u), t[0])
    e = matmul(left, H(vh))
    p, q = over_gaps(e + H(e), s) * 0.5, over_sums(e - H(e), s) * 0.5
    ds = real(diagonals(e))
    if hidden(s):
        ds, p = [y + lost for y, lost in zip((ds, p), lost_by(e + H(e), s), strict=True)]
    du, dvh = matmul(u, p + q), matmul(q - p, vh)
    if n > k:
        du = du + over0(right - matmul(u, e), row_vector(s))
    if k > n:
        dvh = dvh + over0(left - matmul(e, vh), column(s))
    return du, ds, dvh


rules(svd_of, joint=_svd_vjp, jvp=_svd_jvp)
SVDResult = namedtuple("SVDResult", "U S Vh")


@implements(np.linalg.svd)
def svd(a, full_matrices=True, compute_uv=True, hermitian=False):
    n, k = shape(a)[-2:]
    if hermitian:
        return _svd_of_hermitian(a, compute_uv)
    whole = compute_uv and full_matrices and n != k
    u, s, vh = singular(primal_of(a))
    if isinstance(a, Variable):
        end_recording_of_equal_values(a, s, compute_uv, compute_uv)
        a = steady(a) if any(e is not None for e in infinitesimal_parts(a)[1:]) else a
        split, turn, r = choices_among_equals(a, s, lambda tangent: H(u) @ tangent @ H(vh), dtype(u), True)
        u, vh = (u, vh) if r is None else (u @ r, H(r) @ vh)
        u, s, vh = svd_of(a, u, s, vh, split=split)
        s = split_eigenvalues(s, split)
        if turn is not None:
            u, vh = matmul(u, turn), matmul(H(turn), vh)
    if whole and n > k:
        u = concatenate(u, complement(u, additional(primal_of(a))), axis=ndim(u) - 1)
    elif whole:
        vh = concatenate(vh, H(complement(H(vh), additional(H(primal_of(a))))), axis=ndim(vh) - 2)
    return SVDResult(u, s, vh) if compute_uv else s


@primitive(batch="matrix")
def additional(x):
    """The left singular vectors of a tall matrix without singular values, as primal values."""
    return svd_of_finite(x, full_matrices=True)[0][..., x.shape[-1] :]


def complement(u, w):
    """An orthonormal basis near w of the space orthogonal to the columns of u; w itself if it is one.

    Functions of the space alone have the right derivative. A basis of several vectors is not unique,
    like eigenvectors of equal eigenvalues: functions of the choice are nan."""
    free = (
        vector_rotations(zeros_like(real(w[..., 0, :])), None, dtype(w))
        if shape(w)[-1] > 1 and is_tracked(u)
        else None
    )
    u = with_steady_cotangent(u) if free is not None else u
    w = w - matmul(u, matmul(H(u), w))
    w = H(solve_triangular(cholesky(matmul(H(w), w)), H(w), 0, True))
    return w if free is None else matmul(w, free)


def _svd_of_hermitian(a, compute_uv: bool):
    """The singular value decomposition by eigh, as in NumPy: from A = V w V^H, which reads one triangle."""
    w, v = eigh(a)
    library = xp(w)
    at = library.argsort(abs(primal_of(w)), axis=-1)[..., ::-1]
    w = _at_last(w, at)
    if not compute_uv:
        return absolute(w)
    v = _at_last(v, at[..., None, :])
    return SVDResult(v, absolute(w), H(v * row_vector(library.sign(primal_of(w)))))


def _at_last(x, at):
    """x at the indices `at` along the last axis, for all others."""
    lead, library = shape(x)[:-1], xp_of(at)
    grid = [library.arange(n).reshape((n,) + (1,) * (len(lead) - k)) for k, n in enumerate(lead)]
    return x[(*grid, at)]


@implements(np.linalg.svdvals)
def svdvals(x, /):
    return svd(x, compute_uv=False)


@implements(scipy.linalg.svdvals)
def scipy_svdvals(a):
    return svd(a, compute_uv=False)


@implements(scipy.linalg.svd, layout="asked")
def scipy_svd(a, full_matrices=True, compute_uv=True):
    r = svd(a, full_matrices, compute_uv)
    return tuple(r) if compute_uv else r


# --- orthogonal factor ---


@primitive(multi=2, batch="matrix", known_as="qr")
def qr_of(x):
    """Reduced QR of a square or tall matrix of full column rank."""
    return tuple(xp_of(x).linalg.qr(x))


def _upper(x):
    """The upper triangular matrix y for which x - y is anti-Hermitian."""
    return triangle(x, lower=False, strict=True) + H(triangle(x, lower=True, strict=True)) + _real_diagonal(x)


def _real_diagonal(x):
    return with_diagonals(real(diagonals(x)), to=shape(x)[-2:])


def solve_of_rank(r, b, trans=0, asked=0.0):
    """r^-1 b, or r^-H b. A column of r that depends on those before, up to rounding, has no derivative: nan,
    where the result depends on its pivot. So it does where the column is `asked` for, not zero: b has the
    pivot as a factor there."""
    plain = primal_of(r)
    pivots, rounding = diagonals(plain), 8 * shape(r)[-1] * np.finfo(dtype(r)).eps
    dependent = absolute(pivots) <= rounding * absolute(plain).max(-2)
    values = seen(dependent)
    if values is not None and not values.any():
        return solve_triangular(r, b, trans)
    b = b + column(select(dependent & (asked != 0), np.nan, 0.0))
    with_pivots = lambda p: r + with_diagonals(select(dependent, p - diagonals(r), 0.0), to=shape(r)[-2:])
    one, two = [solve_triangular(with_pivots(p), b, trans) for p in (1.0, 2.0)]
    return one + times0(one - two, select(column(dependent).any((-2, -1), keepdims=True), np.nan, 0.0))


def _qr_vjp(g, out, need, x):
    """The cotangent of x. With C = dx R^-1 and Y = _upper(Q^H C): dR = Y R, dQ = C - Q Y."""
    (q, r), (gq, gr) = out, g
    n = 0.0 if gr is None else matmul(gr, H(r))
    if gq is not None:
        n = n - matmul(H(q), gq)
    u = triangle(n, lower=False, strict=True)
    c = matmul(q, u + triangle(H(n), lower=True, strict=True) + _real_diagonal(n))
    asked: Any = 0.0
    for cotangent in (gq, gr):
        if cotangent is not None:
            values, tracked = known(cotangent)
            # (a tracked zero stands for any cotangent)
            asked = asked + absolute(primal_of(cotangent)).sum(-2) + (tracked and not np.any(values))
    return (H(solve_of_rank(r, H(c if gq is None else c + gq), asked=asked)),)


def _qr_jvp(t, out, x):
    q, r = out
    c = H(solve_of_rank(r, H(t[0]), 2))
    y = _upper(matmul(H(q), c))
    return c - matmul(q, y), matmul(y, r)


rules(qr_of, joint=_qr_vjp, jvp=_qr_jvp)
QRResult = namedtuple("QRResult", "Q R")


@implements(np.linalg.qr)
def qr(a, mode="reduced"):
    """A wide matrix [A B] has Q R1 = A and R = [R1 Q^H B]."""
    n, k = shape(a)[-2:]
    if mode not in ("reduced", "r", "complete"):
        raise ArgumentError(f"qr: mode={mode!r} is not supported; use 'reduced', 'complete' or 'r'")
    if mode == "complete" and n > k:
        return QRResult(*complete_qr(a))
    if k > n:
        axis = ndim(a) - 1
        q, r = qr_of(slice_of(a, axis=axis, start=0, stop=n))
        r = concatenate(r, matmul(H(q), slice_of(a, axis=axis, start=n, stop=k)), axis=axis)
    else:
        q, r = qr_of(a)
    return r if mode == "r" else QRResult(q, r)


def complete_qr(a) -> tuple:
    """The square Q of a tall matrix, and R.  All of Q is a function of the matrix as LAPACK makes it: a
    product of reflections 1 - tau v v^H, one for each column, with v[0] = 1 (Golub & Van Loan, 5.1, 5.2)."""
    n, k = shape(a)[-2:]
    q, r = xp(a).eye(n, dtype=dtype(a)), a
    least = np.finfo(np.result_type(dtype(a), np.float32)).eps * sum(absolute(primal_of(a)), -2)
    for j in range(k):
        x = r[..., j:, j : j + 1]
        if holds_somewhere(sum(absolute(primal_of(x))[..., 1:, 0], -1) <= least[..., j]):
            raise ArgumentError(
                "qr: a column is zero below the diagonal, where the square Q has no derivative; use mode "
                "'reduced' or 'economic'"
            )
        first, size = x[..., :1, :], real(matmul(H(x), x)) ** 0.5
        beta = -NUMPY[np.copysign](size, real(first))
        v = concatenate(0 * first + 1, x[..., 1:, :] / (first - beta), axis=ndim(a) - 2)
        tau = (beta - first) / beta
        low, right = r[..., j:, :], q[..., j:]
        low = low - conj(tau) * matmul(v, matmul(H(v), low))
        r = low if j == 0 else concatenate(r[..., :j, :], low, axis=ndim(a) - 2)
        right = right - tau * matmul(matmul(right, v), H(v))
        q = right if j == 0 else concatenate(q[..., :j], right, axis=ndim(a) - 1)
    return q, NUMPY[np.triu](r)


@implements(scipy.linalg.qr, layout="asked")
def scipy_qr(a, mode="full", pivoting=False):
    """With pivoting, the order of the columns is found on plain values and is a constant."""
    n, k = shape(a)[-2:]
    if mode not in ("full", "economic", "r"):
        raise ArgumentError(f"scipy.linalg.qr: mode={mode!r} is not supported; use 'full', 'economic' or 'r'")
    order: tuple = ()
    if pivoting:
        order = (scipy.linalg.qr(values_of(a), mode="r", pivoting=True)[1],)
        a = a[:, order[0]]
    q, r = complete_qr(a) if mode == "full" and n > k else qr(a)
    if mode != "r":
        return (q, r, *order)
    return (embed(r, axis=ndim(r) - 2, start=0, size=n) if n > k else r, *order)


# --- pseudo-inverse and least squares ---


@primitive(holomorphic=False, batch="matrix")
def pseudo_inverse(x, *, rcond, hermitian=False):
    library = xp_of(x)
    return np.linalg.pinv(x, rcond, hermitian) if library is np else library.linalg.pinv(x, rcond)


def _beside_range(p, x, of_rows, of_columns):
    """of_rows (1 - A P) + (1 - P A) of_columns.  A projector is left out where full rank makes it zero: the
    rounding errors in its place would be multiplied by P P^H."""
    a, b = primal_of(p), primal_of(x)
    rank = column(column(sum(real(a * NUMPY[np.swapaxes](b, -1, -2)), (-2, -1))))  # the trace of P A
    n, k = shape(b)[-2:]
    rows = of_rows - matmul(matmul(of_rows, x), p)
    columns = of_columns - matmul(p, matmul(x, of_columns))
    return select(rank > n - 0.5, 0.0, rows) + select(rank > k - 0.5, 0.0, columns)


def _pinv_vjp(g, out, x, rcond, hermitian):
    """The derivative at constant rank (Golub & Pereyra, 1973): dP = -P dA P + P P^H dA^H (1 - A P) + (1 -
    P A) dA^H P^H P."""
    p, ph, gh = out, H(out), H(g)
    return _beside_range(x, p, matmul(matmul(ph, p), gh), matmul(gh, matmul(p, ph))) - matmul(
        ph, matmul(g, ph)
    )


def _pinv_jvp(t, out, x, rcond, hermitian):
    p, ph, d, dh = out, H(out), t[0], H(t[0])
    return _beside_range(p, x, matmul(matmul(p, ph), dh), matmul(dh, matmul(ph, p))) - matmul(p, matmul(d, p))


rules(pseudo_inverse, _pinv_vjp, jvp=_pinv_jvp)


@implements(np.linalg.pinv)
def pinv(a, rcond=None, hermitian=False, *, rtol=None):
    """The pseudo-inverse, with the derivative at constant rank."""
    rcond = rcond if rcond is not None else rtol
    if rcond is None:
        rcond = max(shape(a)[-2:]) * np.finfo(dtype(a)).eps if rtol is not None else 1e-15
    return _cut_off(a, values_of(rcond), hermitian)


def _cut_off(a, rcond, hermitian: bool = False):
    """The pseudo-inverse with a cut-off. If discarded singular values exceed rounding, the matrix does
    not have the assumed rank; then the singular vectors are used. (On a device the values are not
    read, so any larger rcond takes this way.)"""
    a = as_read(a, symmetric(a), True) if hermitian and isinstance(a, Variable) else a
    rounding = 32 * max(shape(a)[-2:]) * np.finfo(dtype(a)).eps
    if not isinstance(a, Variable) or np.max(values_of(rcond) if xp(a) is np else float(rcond)) <= rounding:
        return pseudo_inverse(a, rcond=rcond, hermitian=hermitian)
    u, size, vh = svd(a, full_matrices=False, hermitian=hermitian)
    s = primal_of(size)
    share = s / xp(s).where(s > 0, s, 1).max(-1, keepdims=True)
    kept = share > xp(s).asarray(rcond)[..., None]
    if xp(s) is np and not ((share > rounding) & ~kept).any():
        return pseudo_inverse(a, rcond=rcond, hermitian=hermitian)
    inverse = select(kept, 1.0, 0.0) / select(kept, size, s.dtype.type(1))
    return matmul(H(vh), column(inverse) * H(u))


@implements(scipy.linalg.pinv, layout="asked")
def scipy_pinv(a, *, atol=None, rtol=None, return_rank=False):
    rcond = max(shape(a)[-2:]) * np.finfo(dtype(a)).eps if rtol is None else values_of(rtol)
    atol = 0.0 if atol is None else values_of(atol)
    if atol < 0 or rcond < 0:
        raise ValueError("scipy.linalg.pinv: atol and rtol must not be negative")
    if not atol and not return_rank:
        return _cut_off(a, rcond)
    size = primal_of(svd(primal_of(a), compute_uv=False))
    top = size.max(-1)
    least = rcond + atol / xp(a).where(top > 0, top, 1.0)
    p = _cut_off(a, least)
    return (p, (size > (least * top)[..., None]).sum(-1)) if return_rank else p


@implements(np.linalg.lstsq)
def lstsq(a, b, rcond=None):
    """The least-squares solution of a system of full rank, or the one of least norm, by QR. Of less rank is
    only a constant matrix."""
    a, b = two_operands(a, b)
    n, k = shape(a)
    library, vector = xp(a), ndim(b) == 1
    rows = column(b) if vector else b
    eps = np.finfo(np.result_type(dtype(a), np.float32)).eps
    limit = eps * max(n, k) if rcond is None else rcond if 0 < rcond < 1 else eps  # (as LAPACK takes it)
    s = svd(a, compute_uv=False)
    rank = (primal_of(s) > primal_of(limit) * primal_of(s)[:1]).sum()
    regular = library is not np or rank >= min(n, k)
    if not regular and is_tracked(a) and primal_of(a) is not live(a):
        raise np.linalg.LinAlgError(
            f"lstsq: the matrix has rank {rank} of {min(n, k)}; without full rank the solution has no "
            f"derivative by it"
        )
    if not regular:
        x = matmul(pseudo_inverse(a, rcond=primal_of(limit), hermitian=False), rows)
    elif n >= k:
        q, r = qr_of(a)
        x = solve_triangular(r, matmul(H(q), rows))
    else:
        q, r = qr_of(H(a))
        x = matmul(q, solve_triangular(r, rows, 2))
    residuals = library.zeros(0, dtype(s))
    if n > k and regular:
        e = rows - matmul(a, x)
        residuals = sum(real(conj(e) * e), 0)
    return reshape(x, to=(k,)) if vector else x, residuals, rank.astype(np.int32), s


@primitive(np.linalg.matrix_rank, batch="matrix")
def matrix_rank(A, tol=None, hermitian=False, *, rtol=None):
    if xp_of(A) is np:
        return np.linalg.matrix_rank(A, tol, hermitian, rtol=rtol)
    return xp_of(A).linalg.matrix_rank(A, tol)
