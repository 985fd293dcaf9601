"""Special linear systems (LU factors, banded, Toeplitz) and matrix equations (Sylvester, Lyapunov,
Riccati).

Where SciPy iterates, its solution is taken as a constant, followed by two Newton steps written with
operations. They do not change the value. The first step has the solution's first derivative; the
second has those up to the third order."""

import numpy as np
import scipy.linalg

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, NotPositiveDefiniteError
from ..._core.primitive import primal_of
from ..._core.registry import load
from ..declare import dtype, followed, ndim, primitive, rules, shape, sum_of_given, xp
from ..indexing.gathering import diag, take
from ..nondifferentiable import holds_somewhere
from ..products import H, matmul
from ..shaping import concatenate, conj, embed, reshape, slice_of, stack, sum
from ..special.declare import host_only, implements_special
from ..zero_derivative import argsort
from .block_matrices import of_stacks, toeplitz
from .decompositions import lstsq
from .factorizations import TRANS, check_square, cholesky, solve, solve_triangular, triangle
from .norms import sylvester

# --- LU factors ---


@primitive(multi=2, batch="matrix")
def lu_of(x):
    """The factors L (unit lower) and U of a square matrix whose rows are in pivoting order."""
    library, a, n = xp_of(x), x.copy(), x.shape[-1]
    for k in range(n - 1):
        pivot = a[..., k : k + 1, k]  # if it is zero, so is the column below
        a[..., k + 1 :, k] /= library.where(pivot == 0, a.dtype.type(1), pivot)
        a[..., k + 1 :, k + 1 :] -= a[..., k + 1 :, k : k + 1] * a[..., k : k + 1, k + 1 :]
    return library.tril(a, -1) + library.eye(n, dtype=a.dtype), library.triu(a)


def _lu_vjp(g, out, need, x):
    """The cotangent of x. With F = L^-1 dx U^-1: dL = L tril(F, -1) and dU = triu(F) U."""
    (low, up), (gl, gu) = out, g
    m = 0.0
    if gl is not None:
        m = m + triangle(matmul(H(low), gl), lower=True, strict=True)
    if gu is not None:
        m = m + triangle(matmul(gu, H(up)), lower=False)
    return (solve_triangular(low, H(solve_triangular(up, H(m))), 2, True, True),)


def _lu_jvp(t, out, x):
    low, up = out
    f = H(solve_triangular(up, H(solve_triangular(low, t[0], 0, True, True)), 2))
    return matmul(low, triangle(f, lower=True, strict=True)), matmul(triangle(f, lower=False), up)


rules(lu_of, joint=_lu_vjp, jvp=_lu_jvp)


@primitive(batch="matrix")
def rows_in_order(x):
    """The order in which pivoting takes the rows."""
    library = xp_of(x)
    order = library.empty(x.shape[:-1], int)
    for i in np.ndindex(*x.shape[:-2]):
        order[i] = (
            np.argsort(scipy.linalg.lu(x[i], p_indices=True)[0])
            if library is np
            else permutation_of_pivots(pivots_of(x[i]), x.shape[-2])
        )
    return order


def pivots_of(a):
    factors = scipy.linalg if xp_of(a) is np else load("cupyx.scipy.linalg")
    return factors.lu_factor(a)[1]


def permutation_of_pivots(pivots, n: int):
    """The order of n rows after exchanges, on a device: the unit matrix with these pivots, applied to 0,
    1, ..."""
    library = xp_of(pivots)
    whole = library.arange(n, dtype=pivots.dtype)
    whole[: len(pivots)] = pivots
    return load("cupyx.scipy.linalg").lu_solve((library.eye(n), whole), library.arange(float(n))).astype(int)


@primitive(batch="matrix")
def exchanges(x):
    """LAPACK's pivots: the row with which each row is exchanged."""
    pivots = xp_of(x).empty(x.shape[:-1], np.int32)
    for i in np.ndindex(*x.shape[:-2]):
        pivots[i] = pivots_of(x[i])
    return pivots


@primitive()
def exchanged(pivots):
    """The row order that results from exchanges."""
    if xp_of(pivots) is not np:
        return permutation_of_pivots(pivots, len(pivots))
    order = np.arange(len(pivots))
    for i, p in enumerate(pivots):
        order[[i, p]] = order[[p, i]]
    return order


def lu_factored(a) -> tuple:
    """(order of the rows, a constant; L; U) of any matrix. The part below or beside the square part
    follows from linear systems."""
    n, k = shape(a)[-2:]
    order = rows_in_order(primal_of(a))
    a = take(a, order, 0)
    m = min(n, k)
    low, up = lu_of(a[:m, :m])
    if n > k:
        low = concatenate(low, H(solve_triangular(up, H(a[m:]), 2)), axis=0)
    if k > n:
        up = concatenate(up, solve_triangular(low, a[:, m:], 0, True, True), axis=1)
    return order, low, up


@implements_special(scipy.linalg.lu)
@of_stacks(2)
def lu(a, permute_l=False, check_finite=True, p_indices=False):
    order, low, up = lu_factored(a)
    back = argsort(order)  # for the rows of a, which SciPy's permutation restores
    if permute_l:
        return take(low, back, 0), up
    return (back if p_indices else take(xp(a).eye(shape(a)[0], dtype=dtype(a)), back, 0)), low, up


@implements_special(scipy.linalg.lu_factor)
@of_stacks(2)
def lu_factor(a, check_finite=True):
    check_square("lu_factor", a)
    pivots = exchanges(primal_of(a))
    low, up = lu_of(take(a, exchanged(pivots), 0))
    return triangle(low, lower=True, strict=True) + up, pivots


@implements_special(scipy.linalg.lu_solve)
def lu_solve(lu_and_piv, b, trans=0, check_finite=True):
    """The solution x of op(A) x = b, with A given by its factors (lu, piv)."""
    return solved_by_factors(*lu_and_piv, b, trans)


@of_stacks(2, 1, 2)
def solved_by_factors(a, pivots, b, trans):
    order, trans = exchanged(primal_of(pivots)), TRANS[trans]
    if trans == 0:
        return solve_triangular(a, solve_triangular(a, take(b, order, 0), 0, True, True))
    return take(solve_triangular(a, solve_triangular(a, b, trans), trans, True, True), argsort(order), 0)


# --- banded systems: row r of ab holds the diagonal u - r, each element in its column ---


def shift_rows(x, by: int):
    """x with its elements shifted by `by` places along the first axis, filled with zeros."""
    n = shape(x)[0]
    if abs(by) >= n:
        return 0.0 * x
    part = slice_of(x, axis=0, start=max(0, -by), stop=n - max(0, by))
    return embed(part, axis=0, start=max(0, by), size=n)


@primitive()
def solve_band(ab, b, *, low, up):
    host_only("scipy.linalg.solve_banded", ab, b)
    return scipy.linalg.solve_banded((low, up), ab, b)


def turned_band(ab, low, up):
    """The band of the transposed matrix."""
    return stack([shift_rows(ab[up + low - r], low - r) for r in range(low + up + 1)])


def band_of_product(c, x, low, up):
    """The band of c x^T."""
    rows = [shift_rows(c, up - r) * x for r in range(low + up + 1)]
    return stack([y if ndim(y) == 1 else sum(y, 1) for y in rows])


def _band_vjp(g, out, need, ab, b, low, up):
    c = solve_band(turned_band(ab, low, up), g, low=up, up=low)
    return -band_of_product(c, out, low, up) if need[0] else None, c


def times_band(ab, x, low, up):
    rows = [
        shift_rows((ab[r] if ndim(x) == 1 else reshape(ab[r], to=(-1, 1))) * x, r - up)
        for r in range(low + up + 1)
    ]
    return sum_of_given(rows)


def _band_jvp(t, out, ab, b, low, up):
    moved = None if t[0] is None else -times_band(t[0], out, low, up)
    return solve_band(ab, sum_of_given((t[1], moved)), low=low, up=up)


rules(solve_band, joint=_band_vjp, jvp=_band_jvp)


@implements_special(scipy.linalg.solve_banded)
def solve_banded(l_and_u, ab, b, check_finite=True):
    low, up = l_and_u
    return solve_band(ab, b, low=int(low), up=int(up))


def whole_band(ab, lower):
    """The full band of a Hermitian matrix from one half."""
    u = shape(ab)[0] - 1
    if lower:
        above = [shift_rows(conj(ab[k]), k) for k in range(u, 0, -1)]
        return stack([*above, *[ab[k] for k in range(u + 1)]])
    below = [shift_rows(conj(ab[u - k]), -k) for k in range(1, u + 1)]
    return stack([*[ab[k] for k in range(u + 1)], *below])


@implements_special(scipy.linalg.solveh_banded)
def solveh_banded(ab, b, lower=False, check_finite=True):
    u = shape(ab)[0] - 1
    if xp(ab) is np and holds_somewhere(is_indefinite(primal_of(ab), lower=bool(lower))):
        raise NotPositiveDefiniteError("scipy.linalg.solveh_banded: the matrix is not positive definite")
    return solve_band(whole_band(ab, lower), b, low=u, up=u)


@primitive()
def is_indefinite(ab, *, lower):
    """Does LAPACK find no Cholesky factor of the band?"""
    (pbtrf,) = scipy.linalg.get_lapack_funcs(("pbtrf",), (ab,))
    return np.bool_(pbtrf(ab, lower=lower)[1] > 0)


def from_band(ab, low, up):
    """The dense matrix of a band."""
    n, total = shape(ab)[1], diag(0.0 * ab[0])
    for r in range(low + up + 1):
        k = up - r
        part = slice_of(ab[r], axis=0, start=max(k, 0), stop=n + min(k, 0))
        total = total + diag(part, k)
    return total


def to_band(a, low, up):
    """The band of a matrix, with zeros outside the matrix."""
    n = shape(a)[0]
    return stack([embed(diag(a, up - r), axis=0, start=max(up - r, 0), size=n) for r in range(low + up + 1)])


@implements_special(scipy.linalg.cholesky_banded)
def cholesky_banded(ab, lower=False, check_finite=True):
    u = shape(ab)[0] - 1
    c = cholesky(from_band(whole_band(ab, lower), u, u), upper=not lower)
    return to_band(c, u if lower else 0, 0 if lower else u)


@implements_special(scipy.linalg.cho_solve_banded)
def cho_solve_banded(cb_and_lower, b, check_finite=True):
    cb, lower = cb_and_lower
    u = shape(cb)[0] - 1
    low, up = (u, 0) if lower else (0, u)
    turned = conj(turned_band(cb, low, up))
    first, second = ((cb, low, up), (turned, up, low)) if lower else ((turned, up, low), (cb, low, up))
    return solve_band(
        second[0], solve_band(first[0], b, low=first[1], up=first[2]), low=second[1], up=second[2]
    )


# --- Toeplitz and circulant matrices ---


def pair_of(c_or_cr) -> tuple:
    """The first column and first row of a Toeplitz matrix."""
    return c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)


@implements_special(scipy.linalg.solve_toeplitz)
def solve_toeplitz(c_or_cr, b, check_finite=True):
    return solve(toeplitz(*pair_of(c_or_cr)), b)


@implements_special(scipy.linalg.matmul_toeplitz)
def matmul_toeplitz(c_or_cr, x, check_finite=False):
    return matmul(toeplitz(*pair_of(c_or_cr)), x)


@implements_special(scipy.linalg.circulant)
def circulant(c):
    n = shape(c)[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)) % n]


@implements_special(scipy.linalg.solve_circulant)
def solve_circulant(c, b, singular="raise", tol=None, caxis=-1, baxis=0, outaxis=0):
    if ndim(c) != 1 or baxis != 0 or outaxis != 0:
        raise ArgumentError(
            "scipy.linalg.solve_circulant: with one circulant matrix and the axes in their places only"
        )
    return solve(circulant(c), b)


@implements_special(scipy.linalg.lstsq)
@of_stacks(2, 2)
def scipy_lstsq(a, b, cond=None, check_finite=True, lapack_driver=None):
    x, squares, rank, s = lstsq(a, b, cond)
    if lapack_driver == "gelsy":
        return x, squares[:0], rank, None
    return x, squares[0] if ndim(x) == 1 and len(squares) else squares, rank, s


# --- matrix equations ---


@implements_special(scipy.linalg.solve_sylvester)
def solve_sylvester(a, b, q):
    """The solution x of a x + x b = q."""
    return sylvester(a, b, q)


@implements_special(scipy.linalg.solve_continuous_lyapunov, scipy.linalg.solve_lyapunov)
def solve_continuous_lyapunov(a, q):
    """The solution x of a x + x a^H = q."""
    return sylvester(a, H(a), q)


solve_discrete_lyapunov = implements_special(scipy.linalg.solve_discrete_lyapunov)(
    followed(scipy.linalg.solve_discrete_lyapunov, __name__)
)


def plain_problem(name: str, e, s) -> None:
    if e is not None or s is not None:
        raise ArgumentError(f"scipy.linalg.{name}: e= and s= are not supported on a tracked Variable")


@primitive()
def riccati(a, b, q, r, *, discrete, balanced):
    """SciPy's solution of a Riccati equation."""
    solver = scipy.linalg.solve_discrete_are if discrete else scipy.linalg.solve_continuous_are
    host_only(f"scipy.linalg.{solver.__name__}", a, b, q, r)
    return solver(a, b, q, r, balanced=balanced)


@implements_special(scipy.linalg.solve_continuous_are)
def solve_continuous_are(a, b, q, r, e=None, s=None, balanced=True):
    """The solution x of a^H x + x a - x b r^-1 b^H x + q = 0, with Kleinman's iteration as Newton's."""
    plain_problem("solve_continuous_are", e, s)
    x = riccati(*[primal_of(m) for m in (a, b, q, r)], discrete=False, balanced=balanced)
    for _ in range(2):
        k = solve(r, matmul(H(b), x))
        x = solve_continuous_lyapunov(H(a - matmul(b, k)), -(q + matmul(H(k), matmul(r, k))))
    return x


@implements_special(scipy.linalg.solve_discrete_are)
def solve_discrete_are(a, b, q, r, e=None, s=None, balanced=True):
    """The solution x of a^H x a - x - a^H x b (r + b^H x b)^-1 b^H x a + q = 0, with Hewer's iteration as
    Newton's."""
    plain_problem("solve_discrete_are", e, s)
    x = riccati(*[primal_of(m) for m in (a, b, q, r)], discrete=True, balanced=balanced)
    for _ in range(2):
        k = solve(r + matmul(H(b), matmul(x, b)), matmul(H(b), matmul(x, a)))
        x = solve_discrete_lyapunov(H(a - matmul(b, k)), q + matmul(H(k), matmul(r, k)))
    return x
