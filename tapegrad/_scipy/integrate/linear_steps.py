"""The steps of a one-step method as linear equations, of which the derivative of a solution is the solution.

A step of length h from y has the stages Y = y + h A K with the slopes K = f(t, Y), and ends at y + h B K. So
tangents obey dK = J (dy + h A dK) + c, where J are the Jacobians of f at the stages and c is what the slopes
change by else. Explicit methods are solved stage by stage, collocation by one inverse for each step."""

from typing import Any, NamedTuple

import numpy as np
import scipy.integrate as itg
from numpy.polynomial import polynomial
from scipy import sparse
from scipy.linalg import lu_factor
from scipy.linalg.lapack import dgetrs, dtbtrs, zgetrs

from ..._core.errors import ConvergenceError
from ..linear_maps import rows_of
from ..sparse.products import factors_of

SMALL_SYSTEM = 24  # states up to which the map of each step is a matrix


class Tableau(NamedTuple):
    """Coefficients: of the stages, of the end, of the times, and of the interpolant in powers of the share of
    the step, from the first power on."""

    A: Any
    B: Any
    C: Any
    P: Any


def with_end(method) -> Tableau:
    """An explicit method of SciPy's. Its last stage is the first of the next step, for the interpolant."""
    s = method.n_stages
    A = np.zeros((s + 1, s + 1))
    A[:s, : method.A.shape[1]], A[s, :s] = method.A, method.B
    return Tableau(A, np.append(method.B, 0.0), np.append(method.C, 1.0), method.P)


def dop853_tableau() -> Tableau:
    """With the three stages of its interpolant, whose basis is x, x (1 - x), x^2 (1 - x) and so on."""
    M: Any = itg.DOP853
    s, m = M.n_stages, len(M.A_EXTRA)
    A = np.zeros((s + 1 + m, s + 1 + m))
    A[:s, :s], A[s, :s], A[s + 1 :] = M.A, M.B, M.A_EXTRA
    B, first, end = A[s], np.eye(len(A))[0], np.eye(len(A))[s]
    F = np.stack([B, first - B, 2 * B - end - first, *M.D])
    P = np.zeros((len(A), len(F)))
    basis: Any = np.ones(1)
    for k, row in enumerate(F):
        basis = polynomial.polymul(basis, [0.0, 1.0] if k % 2 == 0 else [1.0, -1.0])
        P[:, : len(basis) - 1] += row[:, None] * basis[1:]
    return Tableau(A, B, np.concatenate([M.C, [1.0], M.C_EXTRA]), P)


def collocation_tableau() -> Tableau:
    """Radau's method of the order 5."""
    root = 6**0.5
    C = np.array([(4 - root) / 10, (4 + root) / 10, 1.0])
    powers = C[:, None] ** np.arange(1, 4)
    A = powers / np.arange(1, 4) @ np.linalg.inv(C[:, None] ** np.arange(3))  # exact for 1, s, s^2
    return Tableau(A, A[2], C, (np.linalg.inv(powers) @ A).T)


COLLOCATION = collocation_tableau()
EXPLICIT = {itg.RK23: with_end(itg.RK23), itg.RK45: with_end(itg.RK45), itg.DOP853: dop853_tableau()}
METHODS = {m.__name__: m for m in (*EXPLICIT, itg.Radau, itg.BDF, itg.LSODA)}


class SparseJacobians:
    """The Jacobians at the stages of implicit steps by their entries at the places of one pattern.
    `entries`: (steps, stages, places), in the order of a matrix by rows."""

    def __init__(self, entries, pattern):
        self.entries, self.pattern = entries, pattern
        self.places = None  # of the entries of all stages of a step
        self.shape = (*entries.shape[:2], *pattern.shape)

    def of_step(self, k: int, back: bool):
        """Return the matrix of a step, or its transpose; the stages are one vector."""
        count, n = len(self.entries[k]), self.shape[-1]
        if self.places is None:
            ahead = np.arange(count)[:, None]
            starts = (self.pattern.indptr[:-1] + ahead * self.pattern.nnz).reshape(-1)
            columns = (self.pattern.indices + n * ahead).reshape(-1)
            self.places = columns, np.append(starts, count * self.pattern.nnz)
        kind = sparse.csc_array if back else sparse.csr_array
        return kind((self.entries[k].reshape(-1), *self.places), (count * n, count * n))

    def last(self, k: int):
        """Return the matrix at the last stage of a step."""
        places = self.pattern.indices, self.pattern.indptr
        return sparse.csr_array((self.entries[k, -1], *places), self.pattern.shape)

    def products(self, at: slice, stages: slice, X, back: bool):
        some = range(self.shape[0])[at]
        X = np.broadcast_to(X, (len(some), self.shape[1], *X.shape[-2:]))
        return np.stack([stage_products(self.of_step(k, back), x) for k, x in zip(some, X, strict=True)])


def stage_products(J, X):
    """J X for the stages of one step; J is an array, or a sparse matrix of all stages."""
    if sparse.issparse(J):
        return (J @ rows_of(X)).reshape(X.shape)
    return np.matmul(J, X)


class InfiniteJacobians:
    """Jacobians with infinite elements, as of a root at zero. A zero tangent stays zero through them."""

    def __init__(self, J):
        self.J, self.shape = J, J.shape

    def products(self, at: slice, stages: slice, X, back: bool):
        J, X = self.J[at, stages], X[..., None, :, :]
        with np.errstate(invalid="ignore"):
            return np.where(X == 0, 0.0, (J.mT if back else J)[..., None] * X).sum(-2)


def products(J, at: slice, stages: slice, X, back: bool = False):
    """J X, or its transpose, for these steps and stages; X has (.., n, directions)."""
    if type(J) is not np.ndarray:
        return J.products(at, stages, X, back)
    J = J[at, stages]
    return np.matmul(J.mT if back else J, X)


def inverses(A, J):
    """(1 - h A J)^-1 for each step; the stages are one vector."""
    steps, s, n = J.shape[:3]
    matrix = -np.einsum("kij,kiab->kiajb", A, J).reshape(steps, s * n, s * n)
    matrix[:, range(s * n), range(s * n)] += 1
    try:
        return np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        raise singular_step() from None


ROUNDS, RESIDUAL = 20, 1e-13  # of the refinement of a step of many states, and what is left
FALL = 0.03  # of the residual in the first round, with which the factors of another step will do
KEPT = 1 << 25  # numbers in the factors that are kept


class Factors:
    """A matrix of n rows, dense or sparse, by its factors."""

    def __init__(self, matrix):
        self.complex, self.sparse = matrix.dtype.kind == "c", sparse.issparse(matrix)
        try:
            self.lu = factors_of(matrix) if self.sparse else lu_factor(matrix)
        except RuntimeError:  # SciPy's, of a singular sparse matrix
            raise singular_step() from None

    @property
    def count(self) -> int:
        return self.lu.nnz if self.sparse else self.lu[0].size

    def solve(self, c, back: bool):
        """For c of the shape (n, directions)."""
        if self.sparse:
            return self.lu.solve(np.ascontiguousarray(c), "T" if back else "N")
        getrs = zgetrs if self.complex else dgetrs  # which SciPy's `lu_solve` calls after many checks
        return getrs(*self.lu, c, int(back))[0]


class StageFactors:
    """An approximation of (1 - h A J)^-1 for one step of many states. With one Jacobian for all stages the
    stages come apart, by the eigenvectors of A."""

    def __init__(self, A, J):
        values, self.vectors = np.linalg.eig(A)
        self.inverse = np.linalg.inv(self.vectors)
        one = sparse.eye_array(J.shape[0]) if sparse.issparse(J) else np.eye(J.shape[0])
        # of a conjugate pair one
        self.factors = {
            k: Factors(one - (v if v.imag else v.real) * J) for k, v in enumerate(values) if v.imag >= 0
        }

    @property
    def count(self) -> int:
        return sum([factor.count for factor in self.factors.values()])

    def solve(self, c, back: bool):
        """For c of the shape (stages, n, directions)."""
        V, W = (self.inverse.T, self.vectors.T) if back else (self.vectors, self.inverse)
        mixed, found = combined_stages(W, c), np.zeros(c.shape)
        for k, factor in self.factors.items():
            one = factor.complex
            part = factor.solve(mixed[k] if one else mixed[k].real, back)
            found += (1 + one) * (V[:, k, None, None] * part).real
        return found


class RefinedSteps:
    """(1 - h A J)^-1 for each step of many states, by refinement with the factors of this step, or of the
    one before where these do as well."""

    def __init__(self, A, J):
        self.A, self.J = A, J
        self.used = {}  # step: the factors that have served
        self.last = None

    def solve(self, k: int, c, back: bool):
        """For step k and c of the shape (stages, n, directions)."""
        if type(self.J) is SparseJacobians:
            J = self.J.of_step(k, back)
        else:
            J = self.J[k].mT if back else self.J[k]
        factors = self.used.get(k, self.last)
        x = None if factors is None else self.refined(factors, self.A[k], J, c, back, FALL)
        if x is None:
            last = self.J.last(k) if type(self.J) is SparseJacobians else self.J[k, -1]
            factors = StageFactors(self.A[k], last)
            x = self.refined(factors, self.A[k], J, c, back, 1.0)
        if x is None:
            return self.whole(self.A[k], J, c, back)
        self.keep(k, factors)
        return x

    def refined(self, factors: StageFactors, A, J, c, back: bool, fall: float):
        """Return the solution, or None if these factors do not lead to it."""
        x, size = factors.solve(c, back), abs(c).max(initial=0.0)
        for k in range(ROUNDS):
            rest = c - x + self.moved(A, J, x, back)
            left = abs(rest).max(initial=0.0)
            if not left > RESIDUAL * size:
                return x
            if k == 0 and left > fall * size:
                return None
            x = x + factors.solve(rest, back)
        return None

    @staticmethod
    def moved(A, J, x, back: bool):
        """h A J x with the matrix of the step, or with its transpose."""
        if back:
            return combined_stages(A.T, stage_products(J, x))
        return stage_products(J, combined_stages(A, x))

    def keep(self, k: int, factors: StageFactors | None) -> None:
        self.last = self.used[k] = factors
        if sum([f.count for f in set(self.used.values())]) > KEPT:
            self.used = {}

    @staticmethod
    def whole(A, J, c, back: bool):
        """Return the solution by the equations of all stages at once."""
        s, n = c.shape[:2]
        if sparse.issparse(J):
            stages = sparse.kron(A.T if back else A, sparse.eye_array(n))
            one = sparse.eye_array(s * n)
            matrix = one - (stages @ J if back else J @ stages)
        else:
            mixed = np.einsum("ji,jab->iajb" if back else "ij,iab->iajb", A, J)
            matrix = np.eye(s * n) - mixed.reshape(s * n, s * n)
        return Factors(matrix).solve(c.reshape(-1, c.shape[2]), False).reshape(c.shape)


def combined_stages(A, x):
    """A x, where x has the shape (stages, n, directions)."""
    return np.matmul(A, x.reshape(len(x), -1)).reshape(x.shape)


def singular_step() -> ConvergenceError:
    return ConvergenceError("scipy.integrate.solve_ivp: the derivative of an implicit step is singular")


def banded(maps):
    """The matrix of y[k + 1] - maps[k] y[k] = d[k], all steps in one vector, by its diagonals for LAPACK."""
    steps, n = maps.shape[:2]
    bands, (a, b) = np.zeros((2 * n, steps + 1, n)), np.indices((n, n))
    bands[0] = 1.0
    bands[n + a - b, :steps, b] = -np.moveaxis(maps, 0, 2)
    return np.asfortranarray(bands.reshape(2 * n, -1))


def chained(bands, d, trans: str):
    """The solution, or that with the transpose."""
    found = dtbtrs(bands, d.reshape(-1, d.shape[2]), uplo="L", trans=trans, diag="U")[0]
    return found.reshape(d.shape)


def joined_rows(found):
    return np.concatenate([rows_of(v) for v in found]).T


class LinearSteps:
    """A linear map and its transpose along the last axis, given by `solved` and `transposed` of columns."""

    size: int
    results: int  # the number of numbers in a result
    solved: Any
    transposed: Any

    def forward(self, z):
        z = np.asarray(z, float)
        out = np.zeros((*z.shape[:-1], self.results))
        if z.any():
            out[...] = joined_rows(self.solved(z.reshape(-1, self.size).T)).reshape(out.shape)
        return out

    def backward(self, g):
        g = np.asarray(g, float)
        found = joined_rows(self.transposed(g.reshape(-1, self.results).T))
        return found.reshape(*g.shape[:-1], self.size)


class StepEquations(LinearSteps):
    """The map (dy at the start, c) -> (dy at the ends of the steps, dK), and its transpose.

    `A`: (steps, stages, stages) with the lengths of the steps in it; `B`: (steps, stages); `J`: (steps,
    stages, n, n), or `SparseJacobians`."""

    def __init__(self, A, B, J, implicit: bool):
        if type(J) is np.ndarray and not implicit and not np.isfinite(J).all():
            J = InfiniteJacobians(J)
        self.A, self.B, self.J = A, B, J
        self.steps, self.stages, self.n = J.shape[:3]
        self.size = self.n + self.steps * self.stages * self.n
        self.results = self.size + self.steps * self.n
        small = self.n <= SMALL_SYSTEM
        self.inverse = inverses(A, J) if implicit and small else None
        self.refined: Any = RefinedSteps(A, J) if implicit and not small else None
        self.maps = None  # (dK, dy at the end) by dy at the beginning of each step
        if small and type(J) is np.ndarray:
            slopes = self.slopes(slice(None), J)
            self.maps = (
                slopes.reshape(self.steps, -1, self.n),
                banded(np.eye(self.n) + self.moved(slice(None), slopes)),
            )

    def solved(self, z) -> tuple:
        c = z[self.n :].reshape(self.steps, self.stages, self.n, -1)
        y = np.empty((self.steps + 1, self.n, z.shape[1]))
        y[0], every = z[: self.n], slice(None)
        if self.maps is None:
            K = np.empty_like(c)
            for k in range(self.steps):
                at = slice(k, k + 1)
                K[at] = self.slopes(at, c[at], y[k])
                y[k + 1] = y[k] + self.moved(at, K[at])[0]
            return y, K
        K, (slopes, bands) = self.slopes(every, c), self.maps
        y[1:] = self.moved(every, K)
        y = chained(bands, y, "N")
        return y, K + np.matmul(slopes, y[:-1]).reshape(K.shape)

    def transposed(self, g) -> tuple:
        """Of `solved`."""
        end, every = (self.steps + 1) * self.n, slice(None)
        y = g[:end].reshape(self.steps + 1, self.n, -1)
        K = g[end:].reshape(self.steps, self.stages, self.n, -1)
        if self.maps is None:
            c, adjoint = np.empty_like(K), y[-1]
            for k in reversed(range(self.steps)):
                at = slice(k, k + 1)
                c[at], pulled = self.slopes_back(at, K[at] + self.B[at, :, None, None] * adjoint, True)
                adjoint = y[k] + adjoint + pulled
            return adjoint, c
        slopes, bands = self.maps
        own = np.matmul(slopes.mT, K.reshape(self.steps, -1, K.shape[3]))
        adjoint = chained(bands, y + np.concatenate([own, np.zeros_like(y[:1])]), "T")
        return adjoint[0], self.slopes_back(every, K + self.B[:, :, None, None] * adjoint[1:, None])[0]

    def moved(self, at: slice, K):
        """h B K"""
        return np.matmul(self.B[at, None], K.reshape(*K.shape[:2], -1)).reshape(len(K), *K.shape[2:])

    def refined_at(self, at, c, back):
        steps = zip(range(self.steps)[at], c, strict=True)
        return np.stack([self.refined.solve(k, v, back) for k, v in steps])

    def slopes(self, at: slice, c, y=None):
        """The dK with dK = J (y + h A dK) + c, for these steps; c has (steps, stages, n, directions)."""
        if self.inverse is not None:
            return np.matmul(self.inverse[at], c.reshape(len(c), -1, c.shape[3])).reshape(c.shape)
        if self.refined is not None:
            return self.refined_at(at, c + products(self.J, at, slice(None), y), False)
        K = np.array(c)
        for i in range(y is None, self.stages):
            moved = np.matmul(self.A[at, i : i + 1, :i], K[:, :i].reshape(len(K), i, K[0, 0].size))
            moved = moved.reshape(len(K), 1, *K.shape[2:])
            K[:, i : i + 1] += products(self.J, at, slice(i, i + 1), moved if y is None else moved + y)
        return K

    def slopes_back(self, at: slice, g, whole: bool = False) -> tuple:
        """The transpose of `slopes`: what it gives for c; if `whole`, also what it gives for y of one step."""
        if self.inverse is not None:
            back = self.inverse[at].mT
            return np.matmul(back, g.reshape(len(g), -1, g.shape[3])).reshape(g.shape), None
        if self.refined is not None:
            c = self.refined_at(at, g, True)
            return c, products(self.J, at, slice(None), c, True)[0].sum(0)
        c, total = np.array(g), 0.0
        for i in reversed(range(not whole, self.stages)):
            pulled = products(self.J, at, slice(i, i + 1), c[:, i : i + 1], True)
            c[:, :i] += self.A[at, i, :i, None, None] * pulled
            total = total + pulled[0, 0]
        return c, total
