"""Matrix factorisations and linear systems. All operations work on batches over the leading axes.

Reading order: triangular systems, Cholesky, general systems and the inverse, determinants. Decompositions are
in decompositions.py, norms and functions of matrices in norms.py.

Rules of holomorphic operations are transposes. Those of the others (cholesky, solve_triangular) are adjoints,
written with H.
Sources: Giles, "An extended collection of matrix derivative results" (2008); Murray, "Differentiation of the
Cholesky decomposition" (2016)."""

import functools
import inspect
from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy import ndarray, negative, where
from scipy.linalg import blas
from scipy.linalg.blas import dger, dtrsm
from scipy.linalg.lapack import dgesv, dgetrf, dgetrs, dpotrf, get_lapack_funcs

from ..._core.arrays import F8, xp_of
from ..._core.errors import ArgumentError, NotPositiveDefiniteError, ShapeError
from ..._core.lent_memory import lend
from ..._core.primitive import layout_of, primal_of
from ..._core.registry import load
from ..._core.scope import OPEN
from ..._core.trees import nested
from ..._core.variable import ArrayVariable, Variable
from ..declare import dtype, follow, implements, linear, ndim, primitive, rules, same, shape, xp
from ..layouts import laid_as_library
from ..nondifferentiable import at_users_line, warn_user, warns_somewhere
from ..products import (
    H,
    T,
    column,
    diagonals,
    matmul,
    matrix_batch,
    row_vector,
    two_operands,
    with_diagonals,
)
from ..shaping import conj, copy, reshape
from .hermitian import alike_of, as_read, hermitian, symmetric, to_read

TRSM = {
    np.dtype(c): getattr(blas, c_name + "trsm")
    for c, c_name in (("d", "d"), ("f", "s"), ("D", "z"), ("F", "c"))
}
SMALL_MATRIX_ORDER = 32  # for matrices up to this order, NumPy's checks take longer than LAPACK
LOOP = 48  # from this order on, LAPACK on each matrix of a batch beats NumPy's batched LU


def cupyx_linalg():
    return load("cupyx.scipy.linalg")


def check_square(name: str, a) -> tuple:
    s = shape(a)
    if len(s) < 2 or s[-1] != s[-2]:
        raise ShapeError(f"{name}: the matrix has shape {s}; the last two dimensions must be equal")
    return s


def first_bad(ok) -> str:
    """Which member of a batch failed, for an error message."""
    if ok.ndim == 0:
        return ""
    at = tuple(int(i) for i in np.argwhere(~ok)[0])
    return f", batch member {at[0] if len(at) == 1 else at}"


# --- what SciPy says of nan and infinity ---


@primitive(aliases=True, batch="elementwise")
def finite(x):
    """x. Raises SciPy's error if it has nan or infinity."""
    if not xp_of(x).isfinite(x).all():
        raise ValueError("array must not contain infs or NaNs")
    return x


rules(finite, lambda g, out, x: g, jvp=same)


def finite_checked(function: Callable, ours: Callable):
    """`ours`, which replaces a function of scipy.linalg. If an argument or the result is not finite,
    SciPy's function runs too, because it may raise. Hidden values are checked when their trace knows
    them."""
    check = inspect.signature(function).parameters.get("check_finite")

    @functools.wraps(function)
    def run(*args, **kwargs):
        if OPEN.hiding:
            if check is not None and kwargs.get("check_finite", True):
                args = finite_parts(args)
                kwargs = {k: finite_parts(v) if k == "b" else v for k, v in kwargs.items()}
            return ours(*args, **kwargs)
        theirs = lambda: at_users_line(
            function, *map(plain_matrix, args), **{k: plain_matrix(v) for k, v in kwargs.items()}
        )
        if not is_finite((*args, kwargs.get("b"))):
            theirs()
            return ours(*args, **kwargs)
        y = ours(*args, **kwargs)
        if not is_finite(y):
            theirs()
        return y

    return run


@nested
def finite_parts(x):
    if not isinstance(x, Variable) or dtype(x).kind not in "fc" or xp(x) is not np:
        return x
    hidden = primal_of(x)
    return x if isinstance(hidden, Variable) and hidden._trace.seems_finite(hidden) else finite(x)


def is_finite(x) -> bool:
    """Are all numbers in NumPy arrays, and in lists and tuples, finite?"""
    if issubclass(type(x), (list, tuple)):
        return all(map(is_finite, x))
    x = primal_of(x)
    return type(x) is not ndarray or x.dtype.kind not in "fc" or bool(np.isfinite(x).all())


@nested
def plain_matrix(x):
    return lend(primal_of(x))


# --- triangular systems ---


@primitive(batch="matrix")
def triangle(x, *, lower, strict=False):
    """The lower or upper triangle of each matrix, with zeros elsewhere."""
    if type(x) is np.ndarray and x.shape[-1] <= 64:  # np.tril needs 8 microseconds for its mask
        return np.where(mask_of(x.shape[-2], x.shape[-1], lower, strict), x, 0)
    return (xp_of(x).tril if lower else xp_of(x).triu)(x, (-1 if lower else 1) if strict else 0)


@functools.cache
def mask_of(n, m, lower, strict):
    k = (-1 if lower else 1) if strict else 0
    return np.tri(n, m, k, dtype=bool) if lower else ~np.tri(n, m, k - 1, dtype=bool)


rules(triangle, lambda g, out, x, lower, strict: triangle(g, lower=lower, strict=strict), jvp=linear)
TRANS = {0: 0, "N": 0, "n": 0, 1: 1, "T": 1, "t": 1, 2: 2, "C": 2, "c": 2}


@primitive(scipy.linalg.solve_triangular, holomorphic=False, batch=matrix_batch, layout="asked")
def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False):
    """The solution x of op(a) x = b, with op given by `trans`. Only the lower or upper triangle of a is
    read. b is a vector only if it has one axis."""
    trans = TRANS[trans]
    if type(a) is not np.ndarray or a.ndim != 2 or type(b) is not np.ndarray or b.ndim > 2:
        return _solve_triangular(a, b, trans, lower, unit_diagonal)
    d = a.dtype
    if b.dtype is not d or d not in TRSM:
        d = np.result_type(a, b, np.float32)
        d = np.dtype({"g": "d", "G": "D"}.get(d.char, d.char))  # LAPACK has no extended precision
        a, b = a.astype(d), b.astype(d)
    if a.shape[0] != a.shape[1] or b.ndim == 0 or a.shape[0] != b.shape[0]:
        raise ShapeError(f"solve_triangular: shapes {a.shape} and {b.shape} do not fit together")
    if not b.size:
        return np.zeros(b.shape, d)
    # BLAS stores by columns: the transposed system, x^T op(a)^T = b^T, has a^T and b^T in that layout.
    if trans == 2 and d.kind == "c":
        a, trans = a.conj(), 1
    rhs = b[None] if b.ndim == 1 else b.T
    x = TRSM[d](1.0, a.T, rhs, 1, not lower, 1 if trans else 0, unit_diagonal)
    if not unit_diagonal:
        s = np.vdot(x, x).real
        if s - s != 0 and not a.diagonal().all():
            raise np.linalg.LinAlgError(
                _singular(
                    "solve_triangular", f"element {int(np.argmin(a.diagonal() != 0))} of its diagonal is 0"
                )
            )
    return x[0] if b.ndim == 1 else x.T


def _singular(call: str, why: str) -> str:
    return f"{call}: the matrix is singular ({why}); the system has no unique solution"


def _solve_triangular(a, b, trans, lower, unit_diagonal):
    """The general case: batches, devices, numbers."""
    check_square("solve_triangular", a)
    library = xp_of(a)
    vector = b.ndim == 1
    if vector:
        b = b[:, None]
    n = a.shape[-1]
    if b.ndim < 2 or b.shape[-2] != n:
        raise ShapeError(
            f"solve_triangular: shapes {a.shape} and {b.shape[: -1 if vector else None]} do not fit together"
        )
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = library.broadcast_to(a, lead + a.shape[-2:])
    b = library.broadcast_to(b, lead + b.shape[-2:])
    d = np.result_type(a.dtype, b.dtype, np.float32)
    if not a.size or not b.size:
        x = library.zeros(b.shape, d)
    elif library is not np:
        x = cupyx_linalg().solve_triangular(
            library.ascontiguousarray(a).astype(d, copy=False), library.ascontiguousarray(b).astype(d,
            copy=False),
            trans=trans, lower=lower, unit_diagonal=unit_diagonal,
        )  # fmt: skip
    elif n < LOOP:
        m = (np.tril if lower else np.triu)(a)
        if unit_diagonal:
            m = m.copy()
            m[..., range(n), range(n)] = 1
        if trans:
            m = m.swapaxes(-1, -2).conj() if trans == 2 else m.swapaxes(-1, -2)
        try:
            x = np.linalg.solve(m, b).astype(d, copy=False)
        except np.linalg.LinAlgError:
            diagonal = np.diagonal(a, 0, -2, -1)
            raise np.linalg.LinAlgError(
                _singular("solve_triangular" + first_bad(diagonal.all(-1)), "its diagonal has a 0")
            ) from None
    else:
        x = np.empty(b.shape, d)
        for i in np.ndindex(*lead):
            x[i] = solve_triangular(a[i], b[i], trans, lower, unit_diagonal)
    return x[..., 0] if vector else x


def _triangular_vjp(g, out, need, a, b, trans, lower, unit_diagonal):
    """For x = op(a)^-1 b, the cotangent of b is c = op(a)^-H g. That of op(a) is -c x^H; it is
    transformed back through op and cut to the triangle."""
    trans = TRANS[trans]
    if trans == 1 and dtype(a).kind == "c":
        c = conj(_triangular(a, conj(g), 0, lower, unit_diagonal, ndim(b)))
    else:
        c = _triangular(a, g, 0 if trans else 2, lower, unit_diagonal, ndim(b))
    if not need[0]:
        return None, c
    x, y = (column(out), column(c)) if ndim(b) == 1 else (out, c)
    m = -matmul(y, H(x)) if trans == 0 else -matmul(conj(x), T(y)) if trans == 1 else -matmul(x, H(y))
    return triangle(m, lower=lower, strict=unit_diagonal), c


def _triangular_jvp(t, out, a, b, trans, lower, unit_diagonal):
    da, db = t
    if da is not None:
        da = triangle(da, lower=lower, strict=unit_diagonal)
        da = (da, T(da), H(da))[TRANS[trans]] if TRANS[trans] else da
        moved = matmul(da, out) if ndim(b) > 1 or ndim(da) == 2 else times_vector(da, out)
        db = -moved if db is None else db - moved
    return _triangular(a, db, trans, lower, unit_diagonal, ndim(b))


def _triangular(a, b, trans, lower, unit_diagonal, n):
    """solve_triangular; for n = 1, b is a batch of vectors."""
    if n == 1 < ndim(b):
        return reshape(solve_triangular(a, column(b), trans, lower, unit_diagonal), to=shape(b))
    return solve_triangular(a, b, trans, lower, unit_diagonal)


def times_vector(a, x):
    """The product of each matrix of a batch with its vector."""
    y = matmul(a, column(x))
    return reshape(y, to=shape(y)[:-1])


rules(solve_triangular, joint=_triangular_vjp, jvp=_triangular_jvp)


# --- Cholesky factors ---


@primitive(holomorphic=False, batch="matrix", known_as="cholesky")
def cholesky_lower(x):
    """The lower factor L of a Hermitian positive definite matrix, x = L L^H."""
    if (
        type(x) is ndarray
        and x.dtype is F8
        and x.ndim == 2
        and 0 < len(x) == x.shape[1] <= SMALL_MATRIX_ORDER
    ):
        L, failed = dpotrf(x, 1)
        if failed:
            raise not_positive_definite(x)
        return L.copy()
    library = xp_of(x)
    if library is np:
        try:
            return np.linalg.cholesky(x)
        except np.linalg.LinAlgError:
            raise not_positive_definite(x) from None
    L = library.linalg.cholesky(x)
    if not L.size:
        return L
    # When a pivot fails, LAPACK may leave anything in its row, for example the input. But then the
    # elements before the pivot have used up the diagonal element. So this row of L is longer than the
    # square root of that element.
    d, a = library.diagonal(L, 0, -2, -1).real, library.diagonal(x, 0, -2, -1).real
    rows = (L * L.conj()).real.sum(-1)
    close = 1e3 * np.finfo(d.dtype).eps * x.shape[-1]
    ok = ((d > 0) & (d < np.inf) & (abs(rows - a) <= close * abs(a))).all(-1)
    return library.where(ok[..., None, None], L, L.dtype.type(np.nan))


def not_positive_definite(x: np.ndarray) -> NotPositiveDefiniteError:
    """The error for the first matrix of the batch x without a Cholesky factor."""
    check_square("cholesky", x)
    for i in np.ndindex(*x.shape[:-2]):
        try:
            np.linalg.cholesky(x[i])
        except np.linalg.LinAlgError:
            a = np.tril(x[i]) + np.tril(x[i], -1).conj().T
            member = f"batch member {i[0] if len(i) == 1 else i} of shape" if i else "the matrix of shape"
            smallest = "it has an element that is not finite"
            if np.isfinite(a).all():
                smallest = f"its smallest eigenvalue is {np.linalg.eigvalsh(a)[0]:.3g}"
            break
    else:
        member, smallest = "a matrix", "it failed once"
    return NotPositiveDefiniteError(
        f"cholesky: {member} {x.shape[-2:]} is not positive definite: {smallest}; check the parameters that "
        "it is built from, or add a small multiple of the identity"
    )


@primitive(batch="matrix")
def halved(x):
    """The lower triangle with half the diagonal."""
    library, n = xp_of(x), x.shape[-1]
    return library.tril(x) * (1 - 0.5 * library.eye(n, dtype=x.real.dtype))


rules(halved, lambda g, out, x: halved(g), jvp=linear)


def sandwich(L, m):
    """L^-1 m L^-H for Hermitian m."""
    return solve_triangular(L, H(solve_triangular(L, m, 0, True)), 0, True)


def _cholesky_vjp(g, out, x):
    """With dL = L halved(L^-1 dA L^-H), the cotangent is L^-H S L^-1, where S is the Hermitian part of
    halved(L^H g)."""
    alike = alike_of(x)
    if (
        type(g) is type(out) is ndarray
        and g.ndim == 2
        and g.dtype is out.dtype
        and out.dtype.kind == "f"
        and out.size
    ):
        u, trsm = out.T, dtrsm if out.dtype is F8 else TRSM[out.dtype]
        m = u.dot(g)
        s = where(mask_of(*m.shape, True, False), m, m.T)  # 2 S: the lower triangle of m, mirrored
        return to_read(trsm(0.5, u, trsm(1.0, u, s.T, 0, False, 0), 1, False, 1).T, alike)
    s = hermitian(halved(matmul(H(out), g)))
    return to_read(solve_triangular(out, H(solve_triangular(out, s, 2, True)), 2, True), alike)


rules(
    cholesky_lower,
    _cholesky_vjp,
    jvp=lambda t, out, x: matmul(out, halved(sandwich(out, as_read(t[0], symmetric(x))))),
)


@implements(np.linalg.cholesky)
def cholesky(a, /, *, upper=False):
    if type(a) is ArrayVariable and not upper:
        return cholesky_lower(a)
    check_square("cholesky", a)
    if dtype(a).kind not in "fc":
        a = a * 1.0
    return copy(H(cholesky_lower(H(a))), "C") if upper else cholesky_lower(a)


@implements(scipy.linalg.cholesky, layout="asked")
def scipy_cholesky(a, lower=False):
    return cholesky(a, upper=not lower)


@implements(scipy.linalg.cho_factor, layout="asked")
def cho_factor(a, lower=False):
    """SciPy's pair (c, lower). Unlike in SciPy, the unused triangle of c is zero."""
    return cholesky(a, upper=not lower), lower


@implements(scipy.linalg.cho_solve)
def cho_solve(c_and_lower, b):
    """The solution x of A x = b, with A given by its factor (c, lower)."""
    c, lower = c_and_lower
    c, b = two_operands(c, b)
    first, second = (0, 2) if lower else (2, 0)
    return solve_triangular(c, solve_triangular(c, b, first, lower), second, lower)


# --- general systems ---


@primitive(batch=matrix_batch, known_as="solve")
def solve_matrix(a, b):
    """The solution x of a x = b. b is a vector if it has one axis, else a matrix or a batch of matrices."""
    if (
        type(a) is type(b) is ndarray
        and a.dtype is b.dtype is F8
        and a.ndim == 2
        and b.ndim < 3
        and 0 < len(a) <= SMALL_MATRIX_ORDER
        and b.size
    ):
        _, _, x, failed = dgesv(a, b)
        if failed:
            raise named_error(np.linalg.LinAlgError("Singular matrix"), "solve", a)
        return x if b.ndim == 1 else x.copy()
    library = xp_of(a)
    if library is not np:
        if b.ndim == 1:
            return solve_matrix.prim.run(a, b[:, None])[..., 0]
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return library.linalg.solve(
            library.broadcast_to(a, lead + a.shape[-2:]), library.broadcast_to(b, lead + b.shape[-2:])
        )
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError as error:
        raise named_error(error, "solve", a) from None


def named_error(error: Exception, call: str, a: np.ndarray) -> np.linalg.LinAlgError:
    """NumPy's error, extended by the call, the member of the batch and a remedy."""
    if "ingular" not in str(error):
        return np.linalg.LinAlgError(f"{call}: {error}")
    rank = np.linalg.matrix_rank(a)
    which = first_bad(rank == a.shape[-1])
    return np.linalg.LinAlgError(_singular(call + which, f"rank {np.min(rank)} of {a.shape[-1]}"))


def _solve_vjp(g, out, need, a, b):
    if type(g) is type(a) is type(out) is ndarray and a.ndim == 2 and g.ndim < 3 and g.size:
        # the forward call has shown that a is regular; for small systems LAPACK takes a third of the time
        # of np.linalg.solve
        double = a.dtype is g.dtype is F8
        c = dgesv(a.T, g)[2] if double else np.linalg.solve(a.T, g)
        if not need[0]:
            return None, c
        if g.ndim == 2:
            return negative(c).dot(out.T), c
        return dger(-1.0, out, c).T if double else negative(c)[:, None].dot(out[None]), c
    if ndim(b) > 1:
        c = solve_matrix(T(a), g)
        return -matmul(c, T(out)) if need[0] else None, c
    c = solve_matrix(T(a), g) if ndim(g) == 1 else flat_column(solve_matrix(T(a), column(g)))
    return -matmul(column(c), row_vector(out)) if need[0] else None, c


def flat_column(x):
    return reshape(x, to=shape(x)[:-1])


def _solve_jvp(t, out, a, b):
    da, db = t
    if da is not None:
        moved = matmul(da, out) if ndim(b) > 1 or ndim(da) == 2 else times_vector(da, out)
        db = -moved if db is None else db - moved
    return solve_matrix(a, db) if ndim(b) > 1 or ndim(db) == 1 else flat_column(solve_matrix(a, column(db)))


rules(solve_matrix, joint=_solve_vjp, jvp=_solve_jvp)


@primitive()
def lu_packed(a):
    """The LU factors of a matrix of numbers, their columns as rows, above the pivots of LAPACK: integers from
    1 on, in the memory of one more row. (SciPy's functions count from 0. The interpreter of `prepare` calls
    LAPACK, and either may read what the other has made.)"""
    n = len(a)
    lu, pivots, failed = dgetrf(a)
    if failed:
        raise named_error(np.linalg.LinAlgError("Singular matrix"), "solve", a)
    packed = np.empty((n + 1, n))
    packed[:n] = lu.T
    packed[n].view(np.int32)[:n] = pivots + 1
    return packed


@primitive()
def lu_solution(packed, b, transposed):
    """The solution for the matrix of `lu_packed`, or for its transpose."""
    n = len(packed) - 1
    x, _ = dgetrs(packed[:n].T, packed[n].view(np.int32)[:n] - 1, b, trans=int(transposed))
    return np.ascontiguousarray(x)


SYSTEM, FACTORS, SOLUTION = solve_matrix.prim, lu_packed.prim, lu_solution.prim


@implements(np.linalg.solve, layout="own")
def solve(a, b):
    p = a._value if type(a) is ArrayVariable else layout_of(a)
    q = b._value if type(b) is ArrayVariable else layout_of(b)
    if (
        type(p) is type(q) is np.ndarray
        and p.ndim == 2
        and 0 < q.ndim < 3
        and p.shape[0] == p.shape[1] == q.shape[0]
    ):
        return solve_matrix(a, b)  # nothing to rearrange; the result is in C order for any operands
    return solve_batches(a, b)


def _solve_batches(a, b):
    a, b = two_operands(a, b)
    s = check_square("solve", a)
    vector = ndim(b) == 1
    if ndim(b) == 0 or shape(b)[-1 if vector else -2] != s[-1]:
        raise ShapeError(
            f"solve: shapes {s} and {shape(b)} do not fit together (b is a vector only if it has one axis)"
        )
    return solve_matrix(a, b)


solve_batches = laid_as_library(np.linalg.solve, _solve_batches, False)


@implements(scipy.linalg.solve)
def scipy_solve(
    a,
    b,
    lower=False,
    assume_a=None,
    transposed=False,
):
    """`assume_a` tells which part of the matrix is read. "pos" uses Cholesky, all others the general
    algorithm."""
    if transposed and dtype(a).kind == "c":
        raise ArgumentError(
            "scipy.linalg.solve: transposed=True of a complex matrix is not supported; transpose it"
        )
    if assume_a in ("pos", "positive definite"):
        return warned_if_ill_conditioned(
            cho_solve((cholesky(a), True) if lower else (cholesky(a, upper=True), False), b), a
        )
    a = as_assumed(a, assume_a, lower)
    return warned_if_ill_conditioned(solve(T(a) if transposed else a, b), a)


@functools.cache
def estimators(kind: np.dtype) -> list:
    return get_lapack_funcs(("getrf", "gecon"), dtype=kind)


@primitive(batch="matrix")
def reciprocal_condition(x):
    """LAPACK's estimate, by the 1-norm."""
    getrf, gecon = estimators(x.dtype)
    return np.reshape(
        [gecon(getrf(m)[0], abs(m).sum(0).max())[0] for m in x.reshape(-1, *x.shape[-2:])], x.shape[:-2]
    )


def warned_if_ill_conditioned(y, a):
    """Return y, a result for the matrix a. If a is ill-conditioned, warn as SciPy does."""
    if OPEN.tracer is None and xp(a) is np and 0 not in shape(a):
        a = primal_of(a)
        if warns_somewhere(reciprocal_condition(a) < np.finfo(np.result_type(dtype(a), 1.0)).eps):
            warn_user("An ill-conditioned matrix detected.", scipy.linalg.LinAlgWarning)
    return y


def as_assumed(a, assume_a: str | None, lower: bool):
    """The matrix that SciPy solves with: the entries that it reads, mirrored for a symmetric or Hermitian
    matrix."""
    if assume_a in (None, "gen", "general", "banded"):
        return a
    if assume_a == "diagonal":
        return with_diagonals(diagonals(a), to=shape(a)[-2:])
    if assume_a == "tridiagonal":
        n = np.arange(shape(a)[-1])
        return a * xp(a).asarray(abs(n[:, None] - n) < 2, dtype(a))
    if assume_a in ("upper triangular", "lower triangular"):
        return triangle(a, lower=assume_a == "lower triangular")
    if assume_a in ("sym", "symmetric", "her", "hermitian"):
        other = triangle(a, lower=lower, strict=True)
        return triangle(a, lower=lower) + (T(other) if assume_a.startswith("sym") else H(other))
    raise ArgumentError(f"scipy.linalg: assume_a={assume_a!r} is not a structure that is known")


@implements(scipy.linalg.inv)
def scipy_inv(a, *, assume_a=None, lower=False):
    if assume_a in ("pos", "positive definite"):
        return scipy_solve(a, xp(a).eye(check_square("inv", a)[-1], dtype=dtype(a)), lower, assume_a=assume_a)
    if assume_a in ("tridiagonal", "banded") or (
        assume_a == "diagonal" and (a != as_assumed(a, assume_a, lower)).any()
    ):
        raise ArgumentError(
            f"scipy.linalg.inv: assume_a={assume_a!r} is not supported, or not true of this matrix"
        )
    a = as_assumed(a, assume_a, lower)
    return warned_if_ill_conditioned(inv(a), a)


@primitive(np.linalg.inv, batch="matrix")
def inv(x):
    try:
        return xp_of(x).linalg.inv(x)
    except np.linalg.LinAlgError as error:
        raise named_error(error, "inv", x) from None


def _inv_vjp(g, out, x):
    t = T(out)
    return -matmul(t, matmul(g, t))


rules(inv, _inv_vjp, jvp=lambda t, out, x: -matmul(out, matmul(t[0], out)))


# --- compositions ---


follow(__name__, np.linalg.tensorinv, np.linalg.tensorsolve, np.linalg.matrix_power)
