"""scipy.sparse and scipy.sparse.linalg: products and linear systems, by the values of the matrix and by the
vector."""

import inspect
import math

import numpy as plain_np
import scipy.sparse as sps
import scipy.sparse.linalg as sla

from ... import numpy as np
from ... import scipy as faces
from ..._core.primitive import primal_of
from ...ops.declare import dtype, shape
from ..namespaces import (
    Carrier,
    CarrierType,
    SciPyNamespace,
    as_float_array,
    bare,
    holds_tracked,
    present,
    refusal_text,
)
from . import assembled as assembled
from . import editable as editable
from . import eigenpairs as eigenpairs
from .linear_systems import FOLLOWED, closure, from_dense, library_solver, operator_matrix, solve_sparse
from .matrices import FACES, LINALG, SPARSE, SparseMatrix, sparse, sparse_matrix_power

# --- functions of a matrix ---

DEGREE = 20  # of the Taylor series of exp on the unit disc, which is then exact


@LINALG.rule(sla.expm_multiply)
def expm_multiply(A, B, start=None, stop=None, num=None, endpoint=None, traceA=None):
    """exp(A) B by steps that are short enough for the Taylor series, the trace taken out."""
    A = operator_matrix(A, "scipy.sparse.linalg.expm_multiply")
    n = A.shape[0]
    mu = A.trace() / n
    shifted = A - FACES[sps.csr_array](sps.eye_array(n, format="csr")) * mu
    if start is None:
        return exponential(shifted, mu, as_float_array(B, mu if holds_tracked(mu) else B), 1.0)
    times = plain_np.linspace(
        start, stop, **{k: v for k, v in (("num", num), ("endpoint", endpoint)) if v is not None}
    )
    found, last = [], 0.0
    y = as_float_array(B, mu if holds_tracked(mu) else B)
    for t in times:
        y, last = exponential(shifted, mu, y, float(t - last)), t
        found.append(y)
    return np.stack(found)


def exponential(A: SparseMatrix, mu, B, t: float):
    size = float(abs(A._plain()).sum(0).max()) * abs(t) if A.nnz else 0.0
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


LINALG.rule(sla.matrix_power)(lambda A, power: sparse_matrix_power(sparse(A), int(power)))
LINALG.constant(*present(sla, ("is_sptriangular", "spbandwidth", "use_solver")))

scipy_linalg = faces.linalg

# --- what is dense in all but name ---


@LINALG.rule(sla.expm)
def expm(A):
    A = sparse(A)
    return from_dense(scipy_linalg.expm(A.toarray()), closure(A), sps.csc_array)


@LINALG.rule(sla.inv)
def inv(A):
    A = operator_matrix(A, "scipy.sparse.linalg.inv")
    inverse = solve_sparse(A, plain_np.eye(A.shape[0]), "scipy.sparse.linalg.inv")
    return from_dense(inverse, closure(A), sps.csc_array)


# --- least squares: SciPy's, with the derivatives of the exact ones ---


SOLVED_RESIDUAL = 1e-10


def least_squares(f):
    name = f"scipy.sparse.linalg.{f.__name__}"

    def run(A, b, damp=0.0, *rest, **settings):
        A = operator_matrix(A, name)
        given = dict(zip([*inspect.signature(f).parameters][3:], rest, strict=False), **settings)
        start = given.get("x0")
        more = {"damp": float(bare(damp))} if bare(damp) else {}
        found = library_solver(f, name, A._plain(), bare(b), **bare(given), **more)
        if A.shape[0] < A.shape[1] and not bare(damp):
            raise refusal_text(name, "with more unknowns than equations", "damp=")
        adjoint = A.conj().T if dtype(A._elements()[1]).kind == "c" else A.T
        normal = adjoint @ A
        if holds_tracked(damp) or damp:
            normal = normal + sparse(sps.eye_array(A.shape[1], format="csr")) * damp**2
        b, norm = as_float_array(b), np.linalg.norm
        pulled = adjoint @ b if start is None else adjoint @ b + damp**2 * start
        x = solve_sparse(normal, pulled, name)
        moved = norm(x if start is None else x - start)
        short = norm(b - A @ x)  # of a system that is solved it is rounding error
        short = short if primal_of(short) > SOLVED_RESIDUAL * norm(bare(b)) else primal_of(short)
        whole = np.hypot(short, damp * moved)
        sizes = {3: short, 4: whole, 8: moved} if f is sla.lsqr else {3: whole, 7: norm(x)}
        moving = {0: x} | sizes
        return tuple(
            [y + (moving[k] - primal_of(moving[k])) if k in moving else y for k, y in enumerate(found)]
        )

    return run


for _f in (sla.lsqr, sla.lsmr):
    LINALG.rule(_f)(least_squares(_f))


def function_of_matrix_times(run):
    """f(A) b. Where b is 0 SciPy returns b, whose derivative is not f(A). f(A) (b + c) - f(A) c has it."""

    def funm_multiply_krylov(f, A, b, **settings):
        if bool(np.any(b != 0)) or not shape(b)[0]:
            return run(f, A, b, **settings)
        one = plain_np.ones(shape(b))
        y = run(f, A, b + one, **settings) - run(f, A, one, **settings)
        return y - primal_of(y)

    return funm_multiply_krylov


if hasattr(sla, "funm_multiply_krylov"):
    FOLLOWED.decorate(sla.funm_multiply_krylov, function_of_matrix_times)
for _name in ("aslinearoperator", "onenormest", "funm_multiply_krylov"):
    if hasattr(sla, _name):
        LINALG.rule(getattr(sla, _name), of_functions=True)(FOLLOWED.function(getattr(sla, _name)))
for _f in (sps.diags, sps.diags_array, sps.kron, sps.kronsum, sps.spdiags):
    SPARSE.rule(_f)(FOLLOWED.function(_f))
LINALG.rule(sla.norm)(FOLLOWED.function(sla.norm))
LINALG.refuse("it is approximate", "splu(A)", sla.spilu)
LINALG.constant(sla.LaplacianNd)
SPARSE.constant(sps.sparray, sps.spmatrix)

CSGRAPH = SciPyNamespace(sps.csgraph, listed=False)  # takes plain values; ours are unwrapped
for _name in (
    "connected_components",
    "maximum_bipartite_matching",
    "structural_rank",
    "reverse_cuthill_mckee",
):
    CSGRAPH.constant(getattr(sps.csgraph, _name))  # of the pattern alone
CSGRAPH.rule(sps.csgraph.laplacian)(FOLLOWED.function(sps.csgraph.laplacian))
csgraph = CSGRAPH.stand_in("tapegrad.scipy.sparse.csgraph")
linalg = LINALG.stand_in("tapegrad.scipy.sparse.linalg")
stand_in = SPARSE.stand_in("tapegrad.scipy.sparse")
stand_in.linalg, stand_in.csgraph = linalg, csgraph
for _c in (sps.sparray, sps.spmatrix):  # of which our matrices are instances, too
    about = {"_theirs": _c, "__doc__": _c.__doc__}
    setattr(stand_in, _c.__name__, CarrierType(_c.__name__, (Carrier,), about))
