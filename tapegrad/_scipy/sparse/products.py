"""Products and linear systems with a sparse matrix of which only the values vary.

All act on the last axis; the values of the elements and the vectors have as many axes, those before the last
broadcast."""

import copy
import functools
import math

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from ..._core.arrays import same_bits, xp_of
from ..._core.errors import SingularError
from ..._core.registry import load
from ...ops.declare import ndim, primitive, rules
from ...ops.products import T, bilinear_forward
from ...ops.shaping import reshape
from ..linear_maps import rows_of, shared

KEPT_FACTORISATIONS = 4  # factorisations


def factors_of(A):
    """Return SuperLU's factors. Where the pattern is symmetric its ordering by minimum degree fills less."""
    A = scipy.sparse.csc_matrix(A)
    A.sort_indices()
    rows = A.tocsr()
    same = np.array_equal(A.indptr, rows.indptr) and np.array_equal(A.indices, rows.indices)
    return scipy.sparse.linalg.splu(A, "MMD_AT_PLUS_A" if same else "COLAMD")


class SparsityPattern:
    """Where the elements of a sparse matrix stand: element e in row rows[e], column cols[e]."""

    def __init__(self, rows, cols, to: tuple):
        self.rows, self.cols, self.shape = rows, cols, to
        order = np.lexsort((cols, rows))
        self.order = None if (np.diff(order) == 1).all() else order
        self.indices = cols[order].astype(np.int32 if max(to, default=0) < 2**31 else np.int64)
        self.indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=to[0]))]).astype(
            self.indices.dtype
        )
        self.factors = []

    @functools.cached_property
    def pair(self) -> tuple:
        """A matrix with these elements, and its transpose."""
        A = scipy.sparse.csr_matrix(
            (np.zeros(len(self.indices)), self.indices, self.indptr), shape=self.shape
        )
        return A, A.T

    def matrix(self, data, back: bool = False):
        """The matrix with these values, or its transpose."""
        at = xp_of(data).asarray
        data = data if self.order is None else data[at(self.order)]
        if xp_of(data) is not np:
            A = load("cupyx.scipy.sparse").csr_matrix(
                (data, at(self.indices), at(self.indptr)), shape=self.shape
            )
            return A.T if back else A
        A = copy.copy(self.pair[back])  # (the constructor would check the elements)
        A.data = data
        return A

    def times(self, data, x, back: bool):
        """A x, or A^T x, for the rows of x."""
        flat = rows_of(x).T
        if xp_of(data) is not np:
            at, library = xp_of(data).asarray, xp_of(data)
            rows, cols = (at(self.cols), at(self.rows)) if back else (at(self.rows), at(self.cols))
            y = library.zeros((self.shape[1 if back else 0], flat.shape[1]), np.result_type(data, x))
            library.add.at(y, rows, data[:, None] * flat[cols])
            return y.T.reshape(*x.shape[:-1], -1)
        y = self.matrix(data, back) @ (flat[:, 0] if flat.shape[1] == 1 else flat)
        return y.T.reshape(*x.shape[:-1], self.shape[1 if back else 0])

    def factor(self, data):
        for known, lu in self.factors:
            if known.dtype == data.dtype and same_bits(known, data):
                return lu
        try:
            lu = factors_of(self.matrix(data))
        except RuntimeError as error:
            raise SingularError(
                f"a sparse linear system: the matrix of shape {self.shape} is singular ({error})"
            ) from None
        self.factors = [(data.copy(), lu), *self.factors[: KEPT_FACTORISATIONS - 1]]
        return lu

    def solution(self, data, b, back: bool):
        flat = rows_of(b).T
        if xp_of(data) is not np:
            A = self.matrix(data).tocsc()
            lu = load("cupyx.scipy.sparse.linalg").splu(A)
            return lu.solve(flat, "T" if back else "N").T.reshape(b.shape)
        kind = np.result_type(data, b)
        if data.dtype != kind and kind.kind == "c":
            data = data.astype(kind)
        if kind.kind == "c" or data.dtype.kind != "c":
            flat = np.asfortranarray(flat, data.dtype)
        y = self.factor(data).solve(flat, "T" if back else "N")
        return np.ascontiguousarray(y.T, kind).reshape(b.shape)


def map_leading_axes(data, x, n: int, f):
    """f(data, x) for each of the axes before the last of data."""
    if data.ndim == 1:
        return f(data, x)
    library, data = xp_of(x), shared(data, 1)
    if math.prod(data.shape[:-1]) == 1:
        return f(data.reshape(-1), x)
    lead = np.broadcast_shapes(data.shape[:-1], x.shape[:-1])
    out = library.empty((*lead, n), np.result_type(data, x))
    data, x = (
        library.broadcast_to(data, (*lead, data.shape[-1])),
        library.broadcast_to(x, (*lead, x.shape[-1])),
    )
    for at in np.ndindex(lead):
        out[at] = f(library.ascontiguousarray(data[at]), x[at])
    return out


@primitive(batch="matrix")
def sparse_product(data, x, *, pattern, back=False):
    return map_leading_axes(data, x, pattern.shape[1 if back else 0], lambda d, x: pattern.times(d, x, back))


@primitive(batch="matrix")
def sparse_outer(g, x, *, pattern):
    """g[row] x[column] for each element."""
    at = xp_of(g).asarray
    return g[..., at(pattern.rows)] * x[..., at(pattern.cols)]


@primitive(batch="matrix")
def sparse_solution(data, b, *, pattern, back=False):
    return map_leading_axes(data, b, pattern.shape[0], lambda d, b: pattern.solution(d, b, back))


def outer_for(g, x, pattern, back: bool):
    return sparse_outer(x, g, pattern=pattern) if back else sparse_outer(g, x, pattern=pattern)


rules(
    sparse_product,
    lambda g, out, data, x, pattern, back: outer_for(g, x, pattern, back),
    lambda g, out, data, x, pattern, back: sparse_product(data, g, pattern=pattern, back=not back),
    jvp=bilinear_forward(sparse_product),
)
rules(
    sparse_outer,
    lambda t, out, g, x, pattern: sparse_product(t, x, pattern=pattern),
    lambda t, out, g, x, pattern: sparse_product(t, g, pattern=pattern, back=True),
    jvp=bilinear_forward(sparse_outer),
)


def solution_push(t, out, data, b, pattern, back):
    right = t[1]
    if t[0] is not None:
        moved = sparse_product(t[0], out, pattern=pattern, back=back)
        right = -moved if right is None else right - moved
    return sparse_solution(data, right, pattern=pattern, back=back)


def solution_pull(g, out, need, data, b, pattern, back):
    c = sparse_solution(data, g, pattern=pattern, back=not back)
    return -outer_for(c, out, pattern, back) if need[0] else None, c


rules(sparse_solution, joint=solution_pull, jvp=solution_push)


def by_columns(f, values, x, **settings):
    """f, which acts on the last axis, of a vector or of each column of a matrix."""
    return f(values, x, **settings) if ndim(x) == 1 else T(f(reshape(values, to=(1, -1)), T(x), **settings))
