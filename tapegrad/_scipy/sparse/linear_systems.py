"""Sparse linear systems: direct, by a factorisation, and by the iterations of SciPy's."""

import inspect
from typing import Any

import numpy as plain_np
import scipy.sparse as sps
import scipy.sparse.linalg as sla

from ... import numpy as np
from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, callers_line
from ..._core.registry import load
from ...ops.creation import as_variable
from ...ops.declare import ndim, shape
from ...ops.linalg.equations import lu_factored
from ..device import device_concatenator
from ..followed import FollowedObject, Follower
from ..linear_maps import AxisMap, mapped, rows_of
from ..namespaces import (
    Carrier,
    CarrierType,
    as_float_array,
    bare,
    holds_tracked,
    plain_argument,
    refusal_text,
    with_derivative_of,
)
from .matrices import FACES, LINALG, SparseMatrix, is_sparse, of_places, sparse
from .places import is_device_matrix
from .products import by_columns, sparse_solution

FOLLOWED = Follower(
    "scipy.sparse.linalg",
    absolute=abs,  # of a sparse matrix, too
    _sparse_frobenius_norm=lambda A: np.linalg.norm(sparse(A)._elements()[1]),
)
for _c in (
    sla.LinearOperator,
    *[c for c in vars(sla._interface).values() if isinstance(c, type) and issubclass(c, sla.LinearOperator)],
):
    LINALG.rule(_c)(FOLLOWED.klass(_c))
DENSE_OPERATOR_UNKNOWNS = 1000  # unknowns up to which the matrix of an operator is made


def operator_matrix(A, name: str, like=None) -> SparseMatrix:
    """`like`: what an operator is applied to."""
    if is_sparse(A):
        return sparse(A)
    # an operator, by its matrix
    operator = A
    is_followed = isinstance(A, FollowedObject) or (
        hasattr(A, "matvec") and not isinstance(A, sla.LinearOperator)  # another package's
    )
    if is_followed and max(operator.shape) <= DENSE_OPERATOR_UNKNOWNS:
        units = device_concatenator(plain_np.eye(operator.shape[1]), like)[0]
        return FACES[sps.csc_array](np.stack([operator.matvec(e) for e in units], 1))
    if isinstance(A, (FollowedObject, sla.LinearOperator)) or callable(A) or not hasattr(A, "shape"):
        raise refusal_text(
            name, "of a LinearOperator", "tapegrad.implicit.root(lambda x, b: A(x) - b, solver)"
        )
    return FACES[sps.csc_array](A)


def library_solver(f, name: str, *args, **settings):
    """SciPy's function, or CuPy's on a device, which has fewer settings."""
    if not is_device_matrix(args[0]):
        return f(*args, **settings)
    theirs = getattr(load("cupyx.scipy.sparse.linalg"), f.__name__, None)
    if theirs is None:
        raise refusal_text(name, "CuPy has no such function", "a matrix of the host, A.get()")
    known, usual = [inspect.signature(g).parameters for g in (theirs, f)]
    missing = [n for n, v in settings.items() if n not in known and v is not usual[n].default]
    if missing:
        raise ArgumentError(f"{callers_line()}: {name}: CuPy's has no {missing[0]}=")
    return theirs(*args, **{n: v for n, v in settings.items() if n in known})


def from_dense(dense, pattern, kind: type):
    """The elements of a dense array in the places of SciPy's matrix `pattern`, those that are 0 too."""
    rows, cols = pattern.tocoo().coords
    count = plain_np.arange(1.0, 1 + len(rows))
    return of_places(dense[rows, cols], kind((count, (rows, cols)), shape=pattern.shape))


def closure(A: SparseMatrix):
    """Where functions of the square matrix A may have elements: its pattern, and that of its powers."""
    found = (A._places + sps.eye_array(A.shape[0])).astype(bool).tocsr()
    while (more := (found @ found).astype(bool)).nnz > found.nnz:
        found = more
    return found


def solve_sparse(A, b, name: str, back: bool = False):
    A = operator_matrix(A, name, b)
    pattern, values = A._elements()
    if pattern.shape[0] != pattern.shape[1]:
        raise ValueError(f"{name}: matrix must be square (has shape {A.shape})")
    if is_sparse(b):
        b = sparse(b)
        found = closure(A.T if back else A) @ b._places.astype(bool)
        return from_dense(solve_sparse(A, b.toarray(), name, back), found, sps.csr_array)
    values, b = device_concatenator(values, as_float_array(b, values if holds_tracked(values) else b))
    if shape(b)[0] != pattern.shape[0]:
        raise ValueError(f"{name}: matrix of shape {A.shape} and right side of shape {shape(b)} do not fit")
    return by_columns(sparse_solution, values, b, pattern=pattern, back=back)


@LINALG.rule(sla.spsolve)
def spsolve(A, b, permc_spec=None, use_umfpack=True):
    name = "scipy.sparse.linalg.spsolve"
    if not (is_sparse(b)) and ndim(b) == 2 and shape(b)[1] == 1:
        return np.reshape(solve_sparse(A, np.reshape(b, -1), name), -1)
    return solve_sparse(A, b, name)


@LINALG.rule(sla.spsolve_triangular)
def spsolve_triangular(A, b, lower=True, overwrite_A=False, overwrite_b=False, unit_diagonal=False):
    A = operator_matrix(A, "scipy.sparse.linalg.spsolve_triangular")
    rows, cols = A.nonzero()
    if (rows < cols if lower else rows > cols).any():
        raise ArgumentError(
            f"scipy.sparse.linalg.spsolve_triangular(lower={bool(lower)}): the matrix is not triangular; "
            f"give tril(A) or triu(A)"
        )
    if unit_diagonal:
        A = A - FACES[sps.dia_array](
            sps.dia_array((plain_np.ones((1, A.shape[0])), [0]), shape=A.shape)
        ).multiply(A)
        A = A + sps.eye_array(A.shape[0], format="csr")
    return solve_sparse(A, b, "scipy.sparse.linalg.spsolve_triangular")


class SuperLU(Carrier, metaclass=CarrierType):
    """A factorisation: of a tracked matrix as it was then, or one of SciPy's."""

    _theirs = sla.SuperLU

    def __init__(self, A=None, real=None, **settings):
        self._A: Any = None if A is None else A.copy()
        self._real, self._settings = real, settings

    @classmethod
    def _of(cls, x, shadow):
        return cls(real=x)

    def _tracked(self) -> bool:
        return self._A is not None and holds_tracked(self._A)

    def _plain(self):
        return sla.splu(self._A._plain().tocsc(), **self._settings) if self._real is None else self._real

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("L", "U") and self._tracked():
            return self._factor(name)
        return getattr(self._plain(), name)

    def _factor(self, name: str):
        """L or U. With SciPy's factors L0 and U0, L0^-1 A U0^-1 is the identity, which has no pivots."""
        lu = self._plain()
        if lu.shape[0] > DENSE_OPERATOR_UNKNOWNS:
            raise refusal_text(
                f"scipy.sparse.linalg.splu(A).{name}", "of a large tracked matrix", "its solve"
            )
        permuted = self._A.toarray()[plain_np.argsort(lu.perm_r)][:, plain_np.argsort(lu.perm_c)]
        half = np.linalg.solve(lu.L.toarray(), permuted)
        _, lower, upper = lu_factored(np.linalg.solve(lu.U.toarray().T, half.T).T)
        factor = lu.L.toarray() @ lower if name == "L" else upper @ lu.U.toarray()
        triangle = (plain_np.tril if name == "L" else plain_np.triu)(plain_np.ones(lu.shape))
        return from_dense(factor, sps.coo_array(triangle), sps.csc_array)

    def solve(self, b, trans="N"):
        if self._real is None:
            if trans == "H":
                return np.conj(self.solve(np.conj(as_float_array(b)), "T"))
            return solve_sparse(self._A, b, "scipy.sparse.linalg.splu(A).solve", trans == "T")
        if not holds_tracked(b):
            return as_variable(self._real.solve(plain_argument(b), trans))
        x = as_float_array(b)
        x = mapped(x if ndim(x) == 1 else np.transpose(x), map=Solver(self._real, trans))
        return x if ndim(x) == 1 else np.transpose(x)


class Solver(AxisMap):
    """x = A^-1 b with a factorisation that does not vary."""

    def __init__(self, lu, trans: str):
        self.lu = lu
        other = "N" if trans == "T" else "T"
        if trans == "H":
            super().__init__(
                lambda b: self.rows(b, "H"), lu.shape[0], lambda g: self.rows(g.conj(), "N").conj()
            )
        else:
            super().__init__(lambda b: self.rows(b, trans), lu.shape[0], lambda g: self.rows(g, other))

    def rows(self, b, trans: str):
        flat, library = rows_of(b).T, xp_of(b)
        return library.ascontiguousarray(
            self.lu.solve(library.asfortranarray(flat), trans).T, b.dtype
        ).reshape(b.shape)


@LINALG.rule(sla.splu)
def splu(A, permc_spec=None, diag_pivot_thresh=None, relax=None, panel_size=None, options=None):
    settings = {"diag_pivot_thresh": diag_pivot_thresh, "relax": relax, "panel_size": panel_size}
    return SuperLU(
        operator_matrix(A, "scipy.sparse.linalg.splu"), permc_spec=permc_spec, options=options, **settings
    )


LINALG.rule(sla.SuperLU)(SuperLU)


@LINALG.rule(sla.factorized)
def factorized(A):
    return SuperLU(operator_matrix(A, "scipy.sparse.linalg.factorized")).solve


def iterative(f):
    """The solution that SciPy's iteration gives, with the derivative of the exact one."""
    name = f"scipy.sparse.linalg.{f.__name__}"

    def run(A, b, x0=None, **settings):
        M = settings.get("M")
        if settings.get("callback") is not None or holds_tracked(M, x0):
            raise refusal_text(
                name, "with callback=, or a tracked start or preconditioner", "it without them"
            )
        exact = solve_sparse(A, b, name)
        x, info = library_solver(
            f, name, operator_matrix(A, name, b)._plain(), bare(b), bare(x0), **plain_argument(settings)
        )
        return with_derivative_of(x, exact), info

    return run


for _name in ("bicg", "bicgstab", "cg", "cgs", "gcrotmk", "gmres", "lgmres", "minres", "qmr", "tfqmr"):
    _f = getattr(sla, _name)
    LINALG.rule(_f)(iterative(_f))
