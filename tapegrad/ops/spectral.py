"""Spectral and orthogonal decompositions: eigh, svd, qr, and what is composed of them: pinv, lstsq.

Equal eigenvalues.  A smooth function of a Hermitian matrix, written with its eigenvectors, depends on them only up to a
rotation within each eigenspace.  Its reverse rule divides K, the anti-Hermitian part of V^H V', by differences of eigenvalues;
for equal ones this is 0/0, whose limit is dK/d(w_j - w_i) and cannot be found from K alone: sum(V exp(w) V^T) at the identity
needs exp(w), the derivative of exp.  So where eigenvalues meet, `eigh` returns w + eta k: eta is an infinitesimal
below all transforms (forward mode of level 1/2), k differs between equal eigenvalues, and whatever is computed from w carries
its first order in eta along.  The rule then finds K = eta K1 and divides by eta (k_j - k_i), exactly.  In forward mode the
eigenvectors are instead turned within the eigenspace until the tangent is diagonal there.  If K does not vanish, or a further
derivative is asked for, there is no answer: nan and a RuntimeWarning.

Nor is there one where a function depends on the choice of vectors within an eigenspace.  So the vectors that are handed out are
V (1 + eps R): eps is a second infinitesimal, R is anti-Hermitian and mixes equal eigenvalues only.  A function that is free of
the choice has a cotangent V' that turns along with V, so that V' (1 + eps R)^H is free of eps; in forward mode, its value and
tangent are.

Sources: Giles (2008); Wan & Zhang, "Automatic differentiation for complex valued SVD" (2019)."""

import functools
import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import scipy.linalg

from .._array import xp_of
from .._dual import Dual
from .._primitive import Ended, live, plain
from .._tape import Tape
from .._variable import Variable, View, variable
from ..errors import ArgumentError
from ._define import dtype, implements, ndim, primitive, rules, shape, xp
from .elementwise import absolute, over0
from .linalg import cholesky, hermitian, solve_triangular, square, triangle
from .products import H, column, diagonals, matmul, row, two, with_diagonals
from .shaping import concatenate, conj, real, reshape, slice_of, sum

# --- division by differences of eigenvalues ---


class Nowhere(list):
    """Keeps nothing: handles that rise to eta are read without it anyway."""

    def append(self, x):
        pass


class Infinitesimal(Dual, Ended):
    """Forward mode in eta, below every transform.  Results are read without it, like those of an ended transform."""

    __slots__ = ()

    def apply(self, prim, args, params):
        if prim is quotient.prim:
            (m, m1), (w, w1) = [(a._value, a._slot) if isinstance(a, Variable) and a._trace is self else (a, None) for a in args]
            return divided(anti(m), abs(m), w, None if m1 is None else anti(m1), w1)
        if prim is without_eta.prim:
            return args[0]._value
        if prim is steady.prim:  # the first order in eta turns with the vectors in any case
            return variable(steady(args[0]._value, **params), self, at_rest(args[0]._slot))
        return Dual.apply(self, prim, args, params)


class Gauge(Dual, Ended):
    """Forward mode in eps, a turn of the vectors of equal eigenvalues, below every transform and below eta."""

    __slots__ = ()

    def apply(self, prim, args, params):
        if prim is steady.prim:
            x, e, part = args[0]._value, args[0]._slot, params["part"]
            if part == "none" or (part == "tangent" and self is TURN) or not x.size:
                return x
            return x * spoilt(largest(x), largest(anti(e) if part == "anti" else e))
        return Dual.apply(self, prim, args, params)


ETA, TURN, REST = Infinitesimal(), Gauge(), Gauge()
ETA.level, ETA.risen = 0.5, Nowhere()
TURN.level, TURN.risen = 0.25, Nowhere()
REST.level, REST.risen = 0.125, Nowhere()


@primitive(holomorphic=False)
def steady(x, *, part="all"):
    """x, freed of eps; nan if it depends on eps.  `part`: "anti", if its anti-Hermitian part does; "tangent", if it depends on the
    turns that the tangent leaves open, for it goes with one choice of vectors; "none", not asked."""
    return x


@primitive(holomorphic=False)
def without_eta(x):
    return x


@primitive(holomorphic=False)
def quotient(m, w):
    """k_ij / (w_j - w_i) for the anti-Hermitian part k of m; zero on the diagonal; in the limit where eigenvalues are equal."""
    return divided(anti(m), abs(m), w)


@primitive(holomorphic=False)
def over_gaps(k, w):
    """k_ij / (w_j - w_i) off the diagonal; where eigenvalues are equal zero if k is, else nan."""
    n = w.shape[-1]
    return divided(k * (1 - xp_of(k).eye(n, dtype=w.dtype)), abs(k), w)


def largest(x: Any) -> Any:
    """The largest modulus in each matrix."""
    return abs(x).max((-2, -1), keepdims=True)


def spoilt(size: Any, e: Any) -> Any:
    """1, or nan where the derivative e in eps does not vanish beside `size`."""
    library, rounding = xp_of(e), np.finfo(e.dtype).eps
    lost = abs(e) > 64 * rounding + rounding**0.5 * size
    if library is np and lost.any():
        warn()
    return library.where(lost, np.nan, 1.0).astype(abs(e).dtype)


def at_rest(x: Any) -> Any:
    """x without eps."""
    while isinstance(x, Variable) and isinstance(x._trace, Gauge):
        x = x._value
    return x


def parts(x: Any) -> tuple:
    """The plain value of x, and its derivatives in the two eps, or None."""
    x, found = live(x) if type(x) is View else x, {}
    x = x._value if type(x) is View else x
    while isinstance(x, Variable):
        found[x._trace] = x._slot
        x = x._value
    return x, found.get(TURN), found.get(REST)


def free_of_gauge(value: Any, tangent: Any) -> Any:
    """A tangent found in forward mode; nan where it depends on the choice of vectors of equal eigenvalues, or would be infinite
    because the value does."""
    (v, *dv), (t, _, dt) = parts(value), parts(tangent)
    for e in (*dv, dt):
        e = plain(at_rest(e))
        if e is not None and e.size:
            tangent = tangent * spoilt(abs(v).max() + abs(t).max(), e)
    return tangent


@functools.cache
def random_matrix(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, n))


def turning(same: Any, eps: Gauge, d: Any) -> Any:
    """1 + eps R for vectors of dtype d: R mixes those that are the same."""
    library, n = xp_of(same), same.shape[-1]
    r = random_matrix(n) - random_matrix(n).T
    if d.kind == "c":
        r = r + 0.5j * (random_matrix(n) + random_matrix(n).T)
    one = library.eye(n, dtype=d) + library.zeros(same.shape, d)
    off = same & ~library.eye(n, dtype=bool)
    return variable(one, eps, library.where(off, library.asarray(r, d), library.zeros((), d)))


def turns(w: Any, alike: Any, d: Any) -> Any:
    """The turns of vectors of equal eigenvalues: all of them, and those among which the tangent makes no difference."""
    turn = turning(met(w), TURN, d)
    return turn if alike is None else matmul(turn, turning(alike, REST, d))


def anti(m: Any) -> Any:
    return (m - H(m)) * 0.5


def divided(k, size, w, k1=None, w1=None):
    """k / gaps; of equal eigenvalues k1 / gaps of w1, the first orders in eta.  nan where k does not vanish as the gap does."""
    library = xp_of(k)
    gap = w[..., None, :] - w[..., :, None]
    close, rounding = met(w), 100 * np.finfo(w.dtype).eps * max(w.shape[-1], 10)
    scale = size.max((-2, -1), keepdims=True) if k.size else 0
    q = library.where(close, 0, k) / library.where(close, 1, gap)
    if k1 is not None and w1 is not None:
        step = w1[..., None, :] - w1[..., :, None]
        q = library.where(close & (step != 0), k1 / library.where(step != 0, step, 1), q)
    lost = close & (abs(k - gap * q) > rounding * scale)
    if library is np and lost.any():
        warn()
    return library.where(lost, np.nan, q).astype(k.dtype, copy=False)


def closeness(w: Any) -> float:
    return 2e-8 if w.dtype.itemsize == 8 else 1e-3


def met(w):
    """Which pairs of eigenvalues count as equal: in float64 those within 2e-8 of the largest."""
    bound = closeness(w) * (abs(w).max(-1) if w.shape[-1] else w.sum(-1))
    return abs(w[..., None, :] - w[..., :, None]) <= bound[..., None, None]


def _by_w(h: Any) -> Any:
    """The cotangent of w from that of its differences w_j - w_i."""
    n = ndim(h)
    return sum(h, n - 2) - sum(h, n - 1)


def _gaps(w: Any) -> Any:
    return row(w) - column(w)


def _over_gaps_w(g, q, w):
    return -_by_w(over_gaps(real(conj(g) * q), w))


def over_gaps_of(t: tuple, out: Any, w: Any) -> Any:
    """From q = k / gap: dq = (dk - q dgap) / gap."""
    k = t[0]
    if t[1] is not None:
        d = without_eta(out) * _gaps(without_eta(t[1]))
        k = -d if k is None else without_eta(k) - d
    return over_gaps(without_eta(k), without_eta(w))


rules(without_eta, lambda g, out, x: without_eta(g), jvp=lambda t, out, x: without_eta(t[0]))
rules(steady, lambda g, out, x, part: steady(g, part="none"), jvp=lambda t, out, x, part: steady(t[0], part="tangent"))
rules(
    over_gaps,
    lambda g, out, k, w: over_gaps(without_eta(g), without_eta(w)),
    lambda g, out, k, w: _over_gaps_w(without_eta(g), out, without_eta(w)),
    jvp=lambda t, out, k, w: over_gaps_of(t, out, w),
)
rules(
    quotient,
    lambda g, out, m, w: anti(over_gaps(without_eta(g), without_eta(w))),
    lambda g, out, m, w: _over_gaps_w(without_eta(g), out, without_eta(w)),
    jvp=lambda t, out, m, w: _quotient_jvp(t, out, m, w),
)


@primitive()
def unknown(m, w):
    """nan where eigenvalues are equal, unless m is zero altogether: the limit there has a derivative that needs a second order."""
    library = xp_of(m)
    lost = met(w) & ~library.eye(w.shape[-1], dtype=bool) & (m != 0).any((-2, -1), keepdims=True)
    if library is np and lost.any():
        warn()
    return library.where(lost, np.nan, 0.0).astype(w.dtype)


def warn():
    warnings.warn(
        "a derivative of eigenvectors or singular vectors that does not exist, or that tapegrad cannot find: eigenvalues are "
        "equal, or the function depends on the sign or phase of a vector; it is nan",
        RuntimeWarning, stacklevel=3,
    )  # fmt: skip


def _quotient_jvp(t, out, m, w):
    d = over_gaps_of((None if t[0] is None else anti(t[0]), t[1]), out, w)
    return d + unknown(without_eta(m if t[0] is None else absolute(m) + absolute(t[0])), without_eta(w))


def levels(a: Any) -> tuple:
    """Does a tape watch a?  And the outermost tangent of a, or None."""
    plain(a)
    taped, tangent = False, None
    while isinstance(a, Variable):
        taped = taped or type(a._trace) is Tape
        if isinstance(a._trace, Dual) and tangent is None:
            tangent = a._slot
        a = a._value
    return taped, None if tangent is None else plain(tangent)


def turned(e: Any, w: Any) -> tuple:
    """A unitary matrix that mixes equal eigenvalues only and makes the Hermitian tangent e diagonal among them; and which of them
    e leaves equal.  Those are turned at random: no choice of vectors is better than another there."""
    library, same = xp_of(e), met(w)
    r = diagonalising(e, same)
    slopes = library.diagonal(H(r) @ e @ r, 0, -2, -1).real
    alike = same & (abs(slopes[..., None, :] - slopes[..., :, None]) <= closeness(w) * largest(e))
    random = library.asarray(random_matrix(w.shape[-1]) + random_matrix(w.shape[-1]).T, e.dtype)
    return r @ diagonalising(random, alike), alike


def diagonalising(e: Any, same: Any) -> Any:
    """A unitary matrix that mixes only neighbours that are the `same` and makes the Hermitian e diagonal among them: the blocks of
    e, each moved away from the others by a multiple of the identity, are diagonalised together."""
    library = xp_of(e)
    e = library.where(same, e, 0)
    block = library.cumsum(~library.concatenate([library.ones_like(same[..., :1, 0]), library.diagonal(same, 1, -2, -1)], -1), -1)
    shift = block * (4 * library.sqrt((abs(e) ** 2).sum((-2, -1))))[..., None]
    r = library.linalg.eigh(e + library.eye(e.shape[-1], dtype=shift.dtype) * shift[..., None, :])[1]
    d = library.diagonal(r, 0, -2, -1)
    phase = library.where(abs(d) > 0, d, 1) / library.where(abs(d) > 0, abs(d), 1)
    return library.where(same, r, 0) * phase.conj()[..., None, :]


def splitting(w: Any) -> Any:
    """Numbers that differ between equal eigenvalues, with mean zero among them."""
    same, at = met(w).astype(w.dtype), xp_of(w).arange(w.shape[-1], dtype=w.dtype)
    return at - same @ at / same.sum(-1)


def shifted(w: Any, split: Any) -> Any:
    """w + eta split."""
    return w if split is None else w + variable(split * 0, ETA, split)


def meets(w: Any) -> bool:
    """Are eigenvalues equal?  (Not asked on a device: there the longer way is taken always.)"""
    return w.shape[-1] > 1 and (xp_of(w) is not np or bool((met(w).sum((-2, -1)) > w.shape[-1]).any()))


# --- Hermitian matrices ---


@primitive(multi=2)
def eigh_of(x, *, given, split):
    """The eigenvalues and eigenvectors of x, which are `given`: plain arrays."""
    return given


def _eigh_vjp(g, out, need, x, given, split):
    w, v = out
    m = None if g[1] is None else quotient(steady(matmul(H(v), g[1]), part="anti"), shifted(w, split))
    if g[0] is not None:
        d = with_diagonals(g[0], to=shape(x)[-2:])
        m = d if m is None else m + d
    return (hermitian(matmul(v, matmul(m, H(v)))),)


def _eigh_jvp(t, out, x, given, split):
    w, v = out
    e = matmul(H(v), matmul(hermitian(t[0]), v))
    return real(diagonals(e)), matmul(v, over_gaps(e, w))


rules(eigh_of, joint=_eigh_vjp, jvp=_eigh_jvp)
EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")


@implements(np.linalg.eigh)
def eigh(a, UPLO="L"):
    square("eigh", a)
    w, v = xp(a).linalg.eigh(plain(a), UPLO.upper())
    if isinstance(a, Variable):
        a = steady(a) if any(e is not None for e in parts(a)[1:]) else a
        taped, tangent = levels(a)
        split = turn = alike = None
        if (taped or tangent is not None) and meets(w):
            split = splitting(w) if taped else None
            if tangent is not None:
                r, alike = turned(hermitian(H(v) @ hermitian(tangent) @ v), w)
                v = v @ r
            turn = turns(w, alike, v.dtype)
        w, v = eigh_of(a, given=(w, v), split=split)
        w = shifted(w, split)
        v = v if turn is None else matmul(v, turn)
    return EighResult(w, v)


@implements(np.linalg.eigvalsh)
def eigvalsh(a, UPLO="L"):
    return eigh(a, UPLO)[0]


@implements(scipy.linalg.eigh)
def scipy_eigh(a, b=None, *, lower=True, eigvals_only=False, overwrite_a=False, overwrite_b=False, type=1, check_finite=True,
               subset_by_index=None, subset_by_value=None, driver=None):  # fmt: skip
    """For a generalised problem A v = w B v, B = L L^H: the eigenvectors y of L^-1 A L^-H give v = L^-H y."""
    if subset_by_index is not None or subset_by_value is not None or type != 1:
        raise ArgumentError("scipy.linalg.eigh: subset_by_index, subset_by_value and type are not supported; take all, then a slice")
    if b is None:
        w, v = eigh(a, "L" if lower else "U")
    else:
        L = cholesky(b) if lower else H(cholesky(b, upper=True))
        a = a if lower else H(a)
        a = triangle(a, lower=True) + H(triangle(a, lower=True, strict=True))
        w, y = eigh(hermitian(solve_triangular(L, H(solve_triangular(L, a, 0, True)), 0, True)))
        v = solve_triangular(L, y, 2, True)
    return w if eigvals_only else (w, v)


@implements(scipy.linalg.eigvalsh)
def scipy_eigvalsh(a, b=None, *, lower=True, overwrite_a=False, overwrite_b=False, type=1, check_finite=True,
                   subset_by_index=None, subset_by_value=None, driver=None):  # fmt: skip
    return scipy_eigh(a, b, lower=lower, eigvals_only=True, type=type, subset_by_index=subset_by_index, subset_by_value=subset_by_value)


# --- singular values ---


@primitive(multi=3)
def svd_of(x, *, given, split):
    return given


def _svd_vjp(g, out, need, x, given, split):
    """With U^H dU = A/2 + B/2, V^H dV = A/2 - B/2 and e = U^H dx V: A = (e + e^H) / (s_j - s_i), B = (e - e^H) / (s_j + s_i)."""
    (u, s, vh), (gu, gs, gvh), (n, k) = out, g, shape(x)[-2:]
    m = None if gs is None else with_diagonals(gs, to=(min(n, k), min(n, k)))
    if gu is None and gvh is None:
        return (matmul(u, matmul(m, vh)),)
    mu = 0.0 if gu is None else matmul(H(u), gu)
    mv = 0.0 if gvh is None else matmul(vh, H(gvh))
    plus, minus = steady(mu + mv, part="anti"), steady(mu - mv, part="anti")
    core = quotient(plus, shifted(s, split)) + over0(anti(minus), column(s) + row(s))
    left = matmul(core if m is None else core + m, vh)
    if gu is not None and n > k:
        a = matmul(u, left) + matmul(over0(steady(gu - matmul(u, mu)), row(s)), vh)
    elif gvh is not None and k > n:
        a = matmul(u, left + over0(steady(gvh - matmul(H(mv), vh)), column(s)))
    else:
        a = matmul(u, left)
    return (a,)


def _svd_jvp(t, out, x, given, split):
    (u, s, vh), (n, k) = out, shape(x)[-2:]
    right, left = matmul(t[0], H(vh)), matmul(H(u), t[0])
    e = matmul(left, H(vh))
    p, q = over_gaps(e + H(e), s) * 0.5, over0(e - H(e), column(s) + row(s)) * 0.5
    du, dvh = matmul(u, p + q), matmul(q - p, vh)
    if n > k:
        du = du + over0(right - matmul(u, e), row(s))
    if k > n:
        dvh = dvh + over0(left - matmul(e, vh), column(s))
    return du, real(diagonals(e)), dvh


rules(svd_of, joint=_svd_vjp, jvp=_svd_jvp)
SVDResult = namedtuple("SVDResult", "U S Vh")


@implements(np.linalg.svd)
def svd(a, full_matrices=True, compute_uv=True, hermitian=False):
    n, k = shape(a)[-2:]
    if compute_uv and full_matrices and n != k:
        raise ArgumentError("svd: the additional singular vectors of full_matrices=True have no derivative; pass full_matrices=False")
    u, s, vh = xp(a).linalg.svd(plain(a), full_matrices=False)
    if isinstance(a, Variable):
        a = steady(a) if any(e is not None for e in parts(a)[1:]) else a
        taped, tangent = levels(a)
        split = turn = alike = None
        if (taped or tangent is not None) and meets(s):
            split = splitting(s) if taped else None
            if tangent is not None:
                e = H(u) @ tangent @ H(vh)
                r, alike = turned((e + H(e)) * 0.5, s)
                u, vh = u @ r, H(r) @ vh
            turn = turns(s, alike, u.dtype)
        u, s, vh = svd_of(a, given=(u, s, vh), split=split)
        s = shifted(s, split)
        if turn is not None:
            u, vh = matmul(u, turn), matmul(H(turn), vh)
    return SVDResult(u, s, vh) if compute_uv else s


@implements(np.linalg.svdvals)
def svdvals(x, /):
    return svd(x, compute_uv=False)


@implements(scipy.linalg.svdvals)
def scipy_svdvals(a, overwrite_a=False, check_finite=True):
    return svd(a, compute_uv=False)


@implements(scipy.linalg.svd)
def scipy_svd(a, full_matrices=True, compute_uv=True, overwrite_a=False, check_finite=True, lapack_driver="gesdd"):
    r = svd(a, full_matrices, compute_uv)
    return tuple(r) if compute_uv else r


# --- orthogonal factor ---


@primitive(multi=2)
def qr_of(x):
    """Reduced QR of a square or tall matrix of full column rank."""
    return tuple(xp_of(x).linalg.qr(x))


def _upper(x: Any) -> Any:
    """The upper triangular matrix y for which x - y is anti-Hermitian."""
    return triangle(x, lower=False, strict=True) + H(triangle(x, lower=True, strict=True)) + _real_diagonal(x)


def _real_diagonal(x: Any) -> Any:
    return with_diagonals(real(diagonals(x)), to=shape(x)[-2:])


def _qr_vjp(g, out, need, x):
    """dR = Y R, dQ = C - Q Y with C = dx R^-1 and Y = _upper(Q^H C)."""
    (q, r), (gq, gr) = out, g
    n = 0.0 if gr is None else matmul(gr, H(r))
    if gq is not None:
        n = n - matmul(H(q), gq)
    u = triangle(n, lower=False, strict=True)
    c = matmul(q, u + triangle(H(n), lower=True, strict=True) + _real_diagonal(n))
    return (H(solve_triangular(r, H(c if gq is None else c + gq))),)


def _qr_jvp(t, out, x):
    q, r = out
    c = H(solve_triangular(r, H(t[0]), 2))
    y = _upper(matmul(H(q), c))
    return c - matmul(q, y), matmul(y, r)


rules(qr_of, joint=_qr_vjp, jvp=_qr_jvp)
QRResult = namedtuple("QRResult", "Q R")


@implements(np.linalg.qr)
def qr(a, mode="reduced"):
    """Of a wide matrix [A B]: Q R1 = A, R = [R1 Q^H B]."""
    n, k = shape(a)[-2:]
    if mode not in ("reduced", "r", "complete") or (mode == "complete" and n > k):
        raise ArgumentError(f"qr: mode={mode!r} has no derivative for shape {shape(a)}; use 'reduced' or 'r'")
    if k > n:
        axis = ndim(a) - 1
        q, r = qr_of(slice_of(a, axis=axis, start=0, stop=n))
        r = concatenate(r, matmul(H(q), slice_of(a, axis=axis, start=n, stop=k)), axis=axis)
    else:
        q, r = qr_of(a)
    return r if mode == "r" else QRResult(q, r)


@implements(scipy.linalg.qr)
def scipy_qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    if pivoting:
        raise ArgumentError("scipy.linalg.qr: pivoting=True is not supported")
    r = qr(a, {"full": "complete", "economic": "reduced"}.get(mode, mode))
    return r if mode == "r" else tuple(r)


# --- pseudo-inverse and least squares ---


@primitive(holomorphic=False)
def pseudo_inverse(x, *, rcond, hermitian=False):
    library = xp_of(x)
    return np.linalg.pinv(x, rcond, hermitian) if library is np else library.linalg.pinv(x, rcond)


def _pinv_vjp(g, out, x, rcond, hermitian):
    """Golub & Pereyra (1973): dP = -P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P, at constant rank."""
    p, ph, gh = out, H(out), H(g)
    pp, qq = matmul(p, ph), matmul(ph, p)
    b, c = matmul(gh, pp), matmul(qq, gh)
    return b - matmul(x, matmul(p, b)) + c - matmul(matmul(c, p), x) - matmul(ph, matmul(g, ph))


def _pinv_jvp(t, out, x, rcond, hermitian):
    p, ph, d, dh = out, H(out), t[0], H(t[0])
    b, c = matmul(matmul(p, ph), dh), matmul(dh, matmul(ph, p))
    return b - matmul(matmul(b, x), p) + c - matmul(p, matmul(x, c)) - matmul(p, matmul(d, p))


rules(pseudo_inverse, _pinv_vjp, jvp=_pinv_jvp)


@implements(np.linalg.pinv)
def pinv(a, rcond=None, hermitian=False, *, rtol=None):
    """Its derivative is that at constant rank."""
    rcond = rcond if rcond is not None else rtol
    if rcond is None:
        rcond = max(shape(a)[-2:]) * np.finfo(dtype(a)).eps if rtol is not None else 1e-15
    return pseudo_inverse(a, rcond=plain(rcond), hermitian=hermitian)


@implements(scipy.linalg.pinv)
def scipy_pinv(a, *, atol=None, rtol=None, return_rank=False, check_finite=True):
    if atol is not None or return_rank:
        raise ArgumentError("scipy.linalg.pinv: atol and return_rank are not supported")
    return pseudo_inverse(a, rcond=max(shape(a)) * np.finfo(dtype(a)).eps if rtol is None else rtol)


@implements(np.linalg.lstsq)
def lstsq(a, b, rcond=None):
    """The least squares solution of a system of full rank, or that of least norm, by QR; rank and singular values are constants."""
    a, b = two(a, b)
    n, k = shape(a)
    library, vector = xp(a), ndim(b) == 1
    rows = column(b) if vector else b
    eps = np.finfo(np.result_type(dtype(a), np.float32)).eps
    limit = eps * max(n, k) if rcond is None else eps if rcond == -1 else rcond
    s = library.linalg.svd(plain(a), compute_uv=False)
    rank = (s > limit * s[:1]).sum()
    if library is np and rank < min(n, k):
        raise np.linalg.LinAlgError(f"lstsq: the matrix has rank {rank} of {min(n, k)}; without full rank the solution has no derivative")
    if n >= k:
        q, r = qr_of(a)
        x = solve_triangular(r, matmul(H(q), rows))
    else:
        q, r = qr_of(H(a))
        x = matmul(q, solve_triangular(r, rows, 2))
    residuals = library.zeros(0, dtype(s))
    if n > k:
        e = rows - matmul(a, x)
        residuals = sum(real(conj(e) * e), 0)
    return reshape(x, to=(k,)) if vector else x, residuals, int(rank) if library is np else rank, s


@primitive(np.linalg.matrix_rank)
def matrix_rank(A, tol=None, hermitian=False, *, rtol=None):
    if xp_of(A) is np:
        return np.linalg.matrix_rank(A, tol, hermitian, rtol=rtol)
    return xp_of(A).linalg.matrix_rank(A, tol)
