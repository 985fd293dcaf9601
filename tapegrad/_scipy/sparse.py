"""scipy.sparse and scipy.sparse.linalg: products and linear systems, by the values of the matrix and by the vector."""

import math
from typing import Any

import numpy as plain_np
import scipy.sparse as sps
import scipy.sparse.linalg as sla

from .. import numpy as np
from .. import scipy as faces
from .._primitive import primal_of
from ..ops._define import ndim, shape
from ..ops.creation import made
from ._declare import Carrier, Kind, Namespace, array, bare, plain, refusal, tracked
from ._linear import Map, mapped
from ._matrices import FACES, LINALG, SPARSE, Sparse, is_sparse, matrix_power, sparse
from ._solving import sparse_solution

# --- linear systems ---


def matrix_of(A: Any, name: str) -> Sparse:
    if is_sparse(A):
        return sparse(A)
    if isinstance(A, sla.LinearOperator) or callable(A) or not hasattr(A, "shape"):
        raise refusal(name, "of a LinearOperator", "tapegrad.implicit.root(lambda x, b: A(x) - b, solver)")
    return FACES[sps.csc_array](A)


def solved(A: Any, b: Any, name: str, back: bool = False) -> Any:
    A = matrix_of(A, name)
    pattern, values = A._elements()
    if pattern.shape[0] != pattern.shape[1]:
        raise ValueError(f"{name}: matrix must be square (has shape {A.shape})")
    if is_sparse(b):
        return FACES[sps.csr_array](solved(A, sparse(b).toarray(), name, back))
    b = array(b, values if tracked(values) else b)
    if shape(b)[0] != pattern.shape[0]:
        raise ValueError(f"{name}: matrix of shape {A.shape} and right side of shape {shape(b)} do not fit")
    if ndim(b) == 1:
        return sparse_solution(values, b, pattern=pattern, back=back)
    return np.transpose(sparse_solution(np.reshape(values, (1, -1)), np.transpose(b), pattern=pattern, back=back))


@LINALG.rule(sla.spsolve)
def spsolve(A, b, permc_spec=None, use_umfpack=True):
    name = "scipy.sparse.linalg.spsolve"
    if not (is_sparse(b)) and ndim(b) == 2 and shape(b)[1] == 1:
        return np.reshape(solved(A, np.reshape(b, -1), name), -1)
    return solved(A, b, name)


@LINALG.rule(sla.spsolve_triangular)
def spsolve_triangular(A, b, lower=True, overwrite_A=False, overwrite_b=False, unit_diagonal=False):
    A = matrix_of(A, "scipy.sparse.linalg.spsolve_triangular")
    if unit_diagonal:
        A = A - FACES[sps.dia_array](sps.dia_array((plain_np.ones((1, A.shape[0])), [0]), shape=A.shape)).multiply(A)
        A = A + sps.eye_array(A.shape[0], format="csr")
    return solved(A, b, "scipy.sparse.linalg.spsolve_triangular")


class SuperLU(Carrier, metaclass=Kind):
    """A factorisation: of a tracked matrix, or one of SciPy's."""

    _theirs = sla.SuperLU

    def __init__(self, A: Any = None, real: Any = None):
        self._A, self._real = A, real

    @classmethod
    def _of(cls, x: Any, shadow: Any) -> Any:
        return cls(real=x)

    def _tracked(self) -> bool:
        return self._A is not None and tracked(self._A)

    def _plain(self) -> Any:
        return sla.splu(self._A._plain().tocsc()) if self._real is None else self._real

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._tracked():
            raise refusal(f"scipy.sparse.linalg.splu(A).{name}", "of a tracked matrix", "its solve")
        return getattr(self._plain(), name)

    def solve(self, b, trans="N"):
        if self._real is None:
            if trans == "H":
                return np.conj(self.solve(np.conj(array(b)), "T"))
            return solved(self._A, b, "scipy.sparse.linalg.splu(A).solve", trans == "T")
        if not tracked(b):
            return made(self._real.solve(plain(b), trans))
        x = array(b)
        x = mapped(x if ndim(x) == 1 else np.transpose(x), map=Solver(self._real, trans))
        return x if ndim(x) == 1 else np.transpose(x)


class Solver(Map):
    """x = A^-1 b with a factorisation that does not vary."""

    def __init__(self, lu: Any, trans: str):
        self.lu = lu
        other = "N" if trans == "T" else "T"
        if trans == "H":
            super().__init__(lambda b: self.rows(b, "H"), lu.shape[0], lambda g: self.rows(g.conj(), "N").conj())
        else:
            super().__init__(lambda b: self.rows(b, trans), lu.shape[0], lambda g: self.rows(g, other))

    def rows(self, b: Any, trans: str) -> Any:
        flat = plain_np.asfortranarray(b.reshape(-1, b.shape[-1]).T)
        return plain_np.ascontiguousarray(self.lu.solve(flat, trans).T, b.dtype).reshape(b.shape)


@LINALG.rule(sla.splu)
def splu(A, permc_spec=None, diag_pivot_thresh=None, relax=None, panel_size=None, options=None):
    return SuperLU(matrix_of(A, "scipy.sparse.linalg.splu"))


LINALG.rule(sla.SuperLU)(SuperLU)


@LINALG.rule(sla.factorized)
def factorized(A):
    return SuperLU(matrix_of(A, "scipy.sparse.linalg.factorized")).solve


def iterative(f: Any) -> Any:
    """The solution that SciPy's iteration gives, with the derivative of the exact one."""
    name = f"scipy.sparse.linalg.{f.__name__}"

    def run(A, b, x0=None, **settings):
        M = settings.get("M")
        if settings.get("callback") is not None or tracked(M, x0):
            raise refusal(name, "with callback=, or a tracked start or preconditioner", "it without them")
        exact = solved(A, b, name)
        x, info = f(matrix_of(A, name)._plain(), bare(b), bare(x0), **plain(settings))
        return x + (exact - primal_of(exact)), info

    return run


for _name in ("bicg", "bicgstab", "cg", "cgs", "gcrotmk", "gmres", "lgmres", "minres", "qmr", "tfqmr"):
    _f = getattr(sla, _name)
    LINALG.rule(_f)(iterative(_f))

# --- functions of a matrix ---

DEGREE = 20  # of the Taylor series of exp on the unit disc, which is then exact


@LINALG.rule(sla.expm_multiply)
def expm_multiply(A, B, start=None, stop=None, num=None, endpoint=None, traceA=None):
    """exp(A) B by steps that are short enough for the Taylor series, the trace taken out."""
    A = matrix_of(A, "scipy.sparse.linalg.expm_multiply")
    n = A.shape[0]
    mu = A.trace() / n
    shifted = A - FACES[sps.csr_array](sps.eye_array(n, format="csr")) * mu
    if start is None:
        return exponential(shifted, mu, array(B, mu if tracked(mu) else B), 1.0)
    times = plain_np.linspace(start, stop, **{k: v for k, v in (("num", num), ("endpoint", endpoint)) if v is not None})
    found, last = [], 0.0
    y = array(B, mu if tracked(mu) else B)
    for t in times:
        y, last = exponential(shifted, mu, y, float(t - last)), t
        found.append(y)
    return np.stack(found)


def exponential(A: Sparse, mu: Any, B: Any, t: float) -> Any:
    size = float(abs(bare_of(A)).sum(0).max()) * abs(t) if A.nnz else 0.0
    steps = max(1, math.ceil(size))
    h = t / steps
    factor = np.exp(mu * h)
    for _ in range(steps):
        term = total = B
        for k in range(1, DEGREE + 1):
            term = (A @ term) * (h / k)
            total = total + term
        B = total * factor
    return B


def bare_of(A: Sparse) -> Any:
    return A._plain()


@LINALG.rule(sla.norm)
def norm(x, ord=None, axis=None):
    A = sparse(x)
    values = A._elements()[1]
    if ord in (None, "fro", "f") and (axis is None or isinstance(axis, tuple)):
        return np.linalg.norm(values)
    if axis is None and ord in (1, -1, plain_np.inf, -plain_np.inf):
        sums = np.reshape(abs(A).sum(0 if abs(ord) == 1 else 1), -1)
        return np.max(sums) if ord > 0 else np.min(sums)
    if isinstance(axis, int) and ord in (None, 1, 2):
        total = np.reshape(abs(A).sum(axis) if ord == 1 else A.power(2).sum(axis), -1)
        return total if ord == 1 else np.sqrt(total)
    raise refusal("scipy.sparse.linalg.norm", f"for ord={ord}, axis={axis}", "numpy.linalg.norm(A.toarray(), ...)")


LINALG.rule(sla.matrix_power)(lambda A, power: matrix_power(sparse(A), int(power)))
LINALG.constant(*[getattr(sla, n) for n in ("is_sptriangular", "spbandwidth", "use_solver") if hasattr(sla, n)])

scipy_linalg = faces.linalg

# --- what is dense in all but name ---


@LINALG.rule(sla.expm)
def expm(A):
    return FACES[sps.csc_array](scipy_linalg.expm(sparse(A).toarray()))


@LINALG.rule(sla.inv)
def inv(A):
    A = matrix_of(A, "scipy.sparse.linalg.inv")
    return FACES[sps.csc_array](solved(A, plain_np.eye(A.shape[0]), "scipy.sparse.linalg.inv"))


# --- least squares and eigenvalues: SciPy's, with the derivatives of the exact ones ---


def least_squares(f: Any) -> Any:
    name = f"scipy.sparse.linalg.{f.__name__}"

    def run(A, b, damp=0.0, *rest, **settings):
        A = matrix_of(A, name)
        found = f(A._plain(), bare(b), float(bare(damp)), *bare(rest), **bare(settings))
        if A.shape[0] < A.shape[1] and not bare(damp):
            raise refusal(name, "with more unknowns than equations", "damp=")
        normal = A.T @ A
        if tracked(damp) or damp:
            normal = normal + sparse(sps.eye_array(A.shape[1], format="csr")) * damp**2
        x = solved(normal, A.T @ array(b), name)
        return found[0] + (x - primal_of(x)), *found[1:]

    return run


for _f in (sla.lsqr, sla.lsmr):
    LINALG.rule(_f)(least_squares(_f))


@LINALG.rule(sla.eigsh)
def eigsh(A, k=6, M=None, sigma=None, which="LM", v0=None, ncv=None, maxiter=None, tol=0, return_eigenvectors=True, **settings):
    """Each pair is the solution of A v = w v, |v| = 1 near SciPy's: Newton's steps from there."""
    name = "scipy.sparse.linalg.eigsh"
    if M is not None:
        raise refusal(f"{name}(M=)", "", "scipy.linalg.eigh(A.toarray(), M.toarray())")
    A = matrix_of(A, name)
    if A.dtype.kind == "c":
        raise refusal(name, "of a complex matrix", "numpy.linalg.eigh(A.toarray())")
    w, V = sla.eigsh(A._plain(), k, None, bare(sigma), which, bare(v0), ncv, maxiter, tol, True, **bare(settings))
    values = plain_np.linalg.norm(w[:, None] - w[None, :] + plain_np.diag(plain_np.full(len(w), plain_np.inf)), -plain_np.inf)
    if values < 1e-9 * max(1.0, float(abs(w).max())):
        raise refusal(name, "with equal eigenvalues", "a function of the matrix that does not tell them apart")
    A = (A + A.T) * 0.5
    pairs = [refined(A, w[i], V[:, i]) for i in range(len(w))]
    values = np.stack([p[0] for p in pairs])
    return (values, np.stack([p[1] for p in pairs], 1)) if return_eigenvectors else values


STEPS = 3  # of Newton's method: derivatives of up to the seventh order


def refined(A: Sparse, w: Any, v: Any) -> tuple:
    n = A.shape[0]
    eye = sparse(sps.eye_array(n, format="csr"))
    for _ in range(STEPS):
        column = FACES[sps.csc_array](np.reshape(v, (-1, 1)))
        K = SPARSE.rules[sps.block_array]([[A - eye * w, column], [column.T, None]], format="csc")
        right = np.concatenate([A @ v - w * v, np.reshape(0.5 * (np.sum(v * v) - 1.0), 1)])
        d = solved(K, right, "scipy.sparse.linalg.eigsh")
        v, w = v - d[:n], w + d[n]
    return w, v


LINALG.refuse("of matrices that are not symmetric, or not square", "numpy.linalg.eig or svd of A.toarray()", sla.eigs, sla.lobpcg, sla.svds)
LINALG.refuse("it is approximate", "splu(A)", sla.spilu)
LINALG.refuse("it is an estimate", "scipy.sparse.linalg.norm(A, 1)", sla.onenormest)
LINALG.refuse("", "tapegrad.operators", sla.aslinearoperator)
LINALG.refuse("", "expm_multiply", *[getattr(sla, n) for n in ("funm_multiply_krylov",) if hasattr(sla, n)])
LINALG.constant(sla.LinearOperator, *[getattr(sla, n) for n in ("LaplacianNd",) if hasattr(sla, n)])
SPARSE.constant(sps.sparray, sps.spmatrix)

CSGRAPH = Namespace(sps.csgraph, listed=False)  # takes plain values; ours are unwrapped
csgraph = CSGRAPH.stand_in("tapegrad.scipy.sparse.csgraph")
linalg = LINALG.stand_in("tapegrad.scipy.sparse.linalg")
stand_in = SPARSE.stand_in("tapegrad.scipy.sparse")
stand_in.linalg, stand_in.csgraph = linalg, csgraph
