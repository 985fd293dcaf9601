"""Factorisations of sparse symmetric positive definite matrices: solutions, log-determinant, inverse entries.

A matrix is a vector of entries on a fixed pattern, and counts by its symmetric part. The derivatives of the
log-determinant are one family of operations. The first one is the selected inverse. Each later one is the
derivative of the one before along one more direction, and is symmetric in its directions."""

from typing import Any

import numpy as plain_np
import scipy.sparse

from .. import numpy as np
from .._core.arrays import is_array, xp_of
from .._core.errors import ArgumentError, ShapeError
from .._core.primitive import bind, layout_of
from .._scipy.namespaces import holds_tracked
from .._scipy.sparse.matrices import FACES, SparseMatrix, of_places, sparse
from .._transforms.batching.rules import CustomRule
from ..ops.declare import ndim, primitive, rules, shape
from ..ops.products import bilinear_forward
from ._elimination import Analysis, analysis_of
from ._ldl import factored, inverse_derivative, inverse_derivatives, symmetrised

# --- operations on the entries ---


@primitive()
def sparse_logdet(values, *, analysis):
    return values.dtype.type(factored(analysis, values).logdet())


def directions_together(trace, prim, operands, params):
    """Return the derivatives along one direction for each sample, of one matrix: they share its factor."""
    (values, batched), (w, _) = operands
    if batched or type(values) is not plain_np.ndarray or type(w) is not plain_np.ndarray or w.shape[1] != 1:
        return NotImplemented
    return inverse_derivatives(params["analysis"], values, w[:, 0]).astype(values.dtype, copy=False)


@primitive(batch=CustomRule(directions_together, shares=lambda params: params["analysis"].is_filled))
def logdet_derivative(values, directions, *, analysis):
    """The derivative of order 1 + len(directions) of the log-determinant, an entry for each place."""
    return inverse_derivative(analysis, values, directions).astype(values.dtype, copy=False)


def right_sides_together(trace, prim, operands, params):
    """Return the results for one matrix and a stack of vectors."""
    (_, batched), _ = operands
    return NotImplemented if batched else bind(prim, [v for v, _ in operands], params)


@primitive(batch=CustomRule(right_sides_together))
def cholesky_solution(values, b, *, analysis):
    """The solutions for b, of shape (..., n)."""
    found = factored(analysis, values).solve(b.reshape(-1, analysis.n))
    return found.reshape(b.shape).astype(plain_np.result_type(values, b), copy=False)


@primitive(batch=CustomRule(right_sides_together))
def symmetric_product(values, x, *, analysis):
    """The symmetric part of the matrix times x, of shape (..., n)."""
    whole = symmetrised(analysis, values)
    A = scipy.sparse.csr_array((whole, analysis.indices, analysis.indptr), shape=(analysis.n, analysis.n))
    return plain_np.ascontiguousarray((A @ x.reshape(-1, analysis.n).T).T).reshape(x.shape)


@primitive()
def symmetric_outer(g, x, *, analysis):
    """The entries of g x' + x g', halved, summed over the leading axes."""
    i, j = analysis.rows, analysis.indices
    y = 0.5 * (g[..., i] * x[..., j] + x[..., i] * g[..., j])
    return y.reshape(-1, i.size).sum(axis=0)


def no_directions(values):
    return plain_np.zeros((0, shape(values)[0]), layout_of(values).dtype)


def with_row(directions, k: int, row):
    """Return the directions with row k replaced, or appended."""
    rows = [directions[i] for i in range(shape(directions)[0])]
    return np.stack([*rows[:k], row, *rows[k + 1 :]])


def logdet_derivative_forward(t, out, values, directions, analysis):
    count = shape(directions)[0]
    along = [] if t[0] is None else [with_row(directions, count, t[0])]
    along += [] if t[1] is None else [with_row(directions, k, t[1][k]) for k in range(count)]
    parts = [logdet_derivative(values, w, analysis=analysis) for w in along]
    return sum(parts[1:], parts[0]) if parts else 0.0 * out


def pull_to_directions(g, out, values, directions, analysis):
    count = shape(directions)[0]
    if not count:
        return 0.0 * directions
    return np.stack(
        [logdet_derivative(values, with_row(directions, k, g), analysis=analysis) for k in range(count)]
    )


rules(
    sparse_logdet,
    lambda g, out, values, analysis: g * logdet_derivative(values, no_directions(values), analysis=analysis),
    jvp=lambda t, out, values, analysis: (
        t[0] * logdet_derivative(values, no_directions(values), analysis=analysis)
    ).sum(),
)
rules(
    logdet_derivative,
    lambda g, out, values, directions, analysis: logdet_derivative(
        values, with_row(directions, shape(directions)[0], g), analysis=analysis
    ),
    pull_to_directions,
    jvp=logdet_derivative_forward,
)


rules(
    symmetric_product,
    lambda g, out, values, x, analysis: symmetric_outer(g, x, analysis=analysis),
    lambda g, out, values, x, analysis: symmetric_product(values, g, analysis=analysis),
    jvp=bilinear_forward(symmetric_product),
)
rules(
    symmetric_outer,
    lambda g, out, a, x, analysis: symmetric_product(g, x, analysis=analysis),
    lambda g, out, a, x, analysis: symmetric_product(g, a, analysis=analysis),
    jvp=bilinear_forward(symmetric_outer),
)


def solution_forward(t, out, values, b, analysis):
    right = t[1]
    if t[0] is not None:
        moved = symmetric_product(t[0], out, analysis=analysis)
        right = -moved if right is None else right - moved
    return cholesky_solution(values, right, analysis=analysis)


rules(
    cholesky_solution,
    lambda g, out, values, b, analysis: (
        -symmetric_outer(cholesky_solution(values, g, analysis=analysis), out, analysis=analysis)
    ),
    lambda g, out, values, b, analysis: cholesky_solution(values, g, analysis=analysis),
    jvp=solution_forward,
)


def applied(operation, *xs, analysis: Analysis):
    """Return the operation on these; on plain arrays without a trace."""
    if holds_tracked(*xs):
        return operation(*xs, analysis=analysis)
    return operation.prim.run(*[plain_np.asarray(x) for x in xs], analysis=analysis)


# --- the matrix ---


class Cholesky:
    """The factorisation of a sparse symmetric positive definite matrix, made by `cholesky`.

    Its results carry derivatives of any order by the entries of the matrix.

    See Also
    --------
    cholesky : Makes it, with an example.
    """

    def __init__(self, A: Any):
        if isinstance(A, SparseMatrix):
            pattern, entries = A._elements()
            order = plain_np.lexsort((pattern.cols, pattern.rows))
            indptr, indices = pattern.indptr, pattern.indices
            entries = entries if pattern.order is None else np.take(entries, order)
        else:
            A = scipy.sparse.csr_array(A, copy=not A.has_canonical_format if A.format == "csr" else False)
            A.sum_duplicates()
            entries, indptr, indices = A.data, A.indptr, A.indices
        m, n = A.shape
        if m != n:
            raise ShapeError(f"sparse.cholesky: the matrix has shape {A.shape}, which is not square")
        if layout_of(entries).dtype.kind != "f":
            raise ArgumentError(
                f"sparse.cholesky: the matrix has dtype {layout_of(entries).dtype}; wanted is a matrix of "
                f"floats"
            )
        self.entries, self.analysis = (
            entries,
            analysis_of(n, plain_np.asarray(indptr), plain_np.asarray(indices)),
        )
        if not holds_tracked(entries):
            factored(self.analysis, plain_np.asarray(entries))  # raise here if it is not positive definite

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        return self.analysis.n, self.analysis.n

    def logdet(self) -> Any:
        """Return the logarithm of the determinant."""
        return applied(sparse_logdet, self.entries, analysis=self.analysis)

    def solve(self, b: Any) -> Any:
        """Return A^-1 b for b of shape (n,) or (n, k)."""
        b = b if is_array(layout_of(b)) else plain_np.asarray(b, float)
        if not 1 <= ndim(b) <= 2 or shape(b)[0] != self.analysis.n:
            raise ShapeError(
                f"sparse.cholesky(A).solve: the matrix has {self.analysis.n} rows, and b has shape {shape(b)}"
            )
        if layout_of(b).dtype.kind == "c":
            return self.solve(np.real(b)) + 1j * self.solve(np.imag(b))
        if ndim(b) == 1:
            return applied(cholesky_solution, self.entries, b, analysis=self.analysis)
        tracked = holds_tracked(self.entries, b)
        x = applied(
            cholesky_solution,
            self.entries,
            np.transpose(b) if tracked else plain_np.ascontiguousarray(b.T),
            analysis=self.analysis,
        )
        return np.transpose(x) if tracked else plain_np.ascontiguousarray(x.T)

    def selected_inverse(self) -> Any:
        """Return the entries of the inverse at the places of the matrix, as a sparse matrix.

        Its diagonal holds the variances if the matrix is the precision of a Gaussian."""
        a = self.analysis
        found = applied(logdet_derivative, self.entries, no_directions(self.entries), analysis=a)
        make = lambda data: scipy.sparse.csr_array(
            (data, a.indices.copy(), a.indptr.copy()), shape=self.shape
        )
        return (
            of_places(found, make(plain_np.arange(1.0, 1.0 + a.indices.size)))
            if holds_tracked(found)
            else make(found)
        )

    def sample(self, rng: Any) -> Any:
        """Return a draw of a Gaussian with mean zero whose precision is the matrix.

        Parameters
        ----------
        rng : numpy.random.Generator
            The source of random numbers.

        Returns
        -------
        array of shape (n,)

        Raises
        ------
        ArgumentError
            If the matrix carries derivatives, which a draw does not.
        """
        if holds_tracked(self.entries):
            raise ArgumentError(
                "sparse.cholesky(A).sample: a draw carries no derivative by A; take the matrix as "
                "tapegrad.value gives it"
            )
        return factored(self.analysis, plain_np.asarray(self.entries)).sample(
            rng.standard_normal(self.analysis.n)
        )


def cholesky(A: Any) -> Cholesky:
    """Factorise a sparse symmetric positive definite matrix.

    The order of elimination and the places of the factor are found once for each pattern. Within a transform,
    all results carry derivatives of any order, which take the symmetric part of A.

    Parameters
    ----------
    A : sparse array or matrix of SciPy
        A real symmetric positive definite matrix. Within a transform its values may be tracked, as those of
        `tapegrad.sparse.hessian` and of SciPy's sparse arrays are.

    Returns
    -------
    Cholesky
        ``.solve(b)``, ``.logdet()``, ``.selected_inverse()`` and ``.sample(rng)``.

    Raises
    ------
    ArgumentError
        If A is not sparse, not real, or not symmetric.
    NotPositiveDefiniteError
        If A is not positive definite.

    See Also
    --------
    hessian : A sparse matrix that carries derivatives.

    Examples
    --------
    >>> import numpy as np, scipy.sparse, tapegrad as tg
    >>> A = scipy.sparse.csr_array(np.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> factor = tg.sparse.cholesky(A)
    >>> factor.solve(np.array([3.0, 4.0])), round(float(factor.logdet()), 6)
    (array([1., 1.]), 1.609438)
    >>> f = lambda t: tg.sparse.cholesky(A * t).logdet()
    >>> round(float(tg.grad(f)(2.0)), 6)
    1.0
    """
    if not (isinstance(A, SparseMatrix) or scipy.sparse.issparse(A) or type(A) in FACES.values()):
        if (
            type(A).__module__.startswith("cupyx.")
            or is_array(layout_of(A))
            and xp_of(layout_of(A)) is not plain_np
        ):
            raise ArgumentError(
                "sparse.cholesky: matrices on a device are not factorised; use "
                "cupyx.scipy.sparse.linalg.splu, or A.get()"
            )
        raise ArgumentError(
            f"sparse.cholesky: A is a {type(A).__name__}, which is not sparse; use numpy.linalg.cholesky"
        )
    return Cholesky(A if scipy.sparse.issparse(A) else sparse(A))
