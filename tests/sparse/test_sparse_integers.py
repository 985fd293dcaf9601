"""Sparse matrices of integers within a transform: values and dtypes as SciPy's, and an asked dtype is kept."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

import tapegrad as tg

DENSE = np.array([[2, 0, 7, 0], [0, 5, 0, -3], [1, 0, 4, 0], [0, 1, 0, 9]])
V = np.array([1.0, 2.0, 3.0, 4.0])
USES = {
    "matvec of integers": lambda A: A @ np.array([1, 2, 3, 4]),
    "matvec": lambda A: A @ V,
    "from the left": lambda A: V @ A,
    "product": lambda A: (A @ A).toarray(),
    "product with floats": lambda A: (A @ (A * 0.5)).toarray(),
    "sum of two": lambda A: (A + A.T).toarray(),
    "difference": lambda A: (A - 2 * A).toarray(),
    "halves": lambda A: (A / 2).toarray(),
    "by elements": lambda A: A.multiply(A.T).toarray(),
    "by dense": lambda A: A.multiply(V).sum(),
    "power": lambda A: A.power(2).toarray(),
    "matrix power": lambda A: sp.csr_matrix(A).__pow__(2).toarray(),
    "sum": lambda A: A.sum(),
    "sum of rows": lambda A: np.asarray(A.sum(axis=1)),
    "mean": lambda A: A.mean(),
    "mean of columns": lambda A: np.asarray(A.mean(axis=0)),
    "largest": lambda A: A.max(),
    "entry": lambda A: A[1, 3],
    "row": lambda A: A[[1]].toarray(),
    "diagonal": lambda A: A.diagonal(),
    "trace": lambda A: A.trace(),
    "absolute": lambda A: abs(A).toarray(),
    "minus": lambda A: (-A).toarray(),
    "kron": lambda A: sp.kron(A, A).toarray(),
    "stack": lambda A: sp.vstack([A, 2 * A]).toarray(),
    "floats": lambda A: A.astype(float).toarray(),
    "narrow": lambda A: (A.astype(np.int8) * np.int8(2)).toarray(),
    "column format": lambda A: A.tocsc().toarray(),
    "data": lambda A: A.data // 2,
    "solution": lambda A: scipy.sparse.linalg.spsolve(sp.csc_matrix(A), V),
    "norm": lambda A: scipy.sparse.linalg.norm(A),
    "triangle": lambda A: sp.tril(A).toarray(),
    "root": lambda A: abs(A).sqrt().toarray(),
}


@pytest.mark.filterwarnings("ignore:spsolve")
@pytest.mark.parametrize(
    "make",
    [sp.csr_array, *[pytest.param(c, marks=pytest.mark.long) for c in (sp.csc_matrix, sp.coo_matrix)]],
    ids=lambda c: c.__name__,
)
@pytest.mark.parametrize("use", USES)
def test_constant_matrices(use, make):
    if make is sp.coo_matrix and use in ("entry", "row"):
        return  # SciPy has none
    seen = []

    def f(x):
        y = USES[use](make(DENSE))
        seen.append((y, np.asarray(tg.value(y)).dtype))
        return (y * x).sum()

    plain, (value, slope) = f(3.0), tg.value_and_grad(f)(3.0)
    np.testing.assert_allclose(value, plain, rtol=1e-13)
    np.testing.assert_allclose(slope, plain / 3.0, rtol=1e-13)
    np.testing.assert_allclose(tg.value(seen[1][0]), seen[0][0], rtol=1e-13)
    assert seen[1][1] == seen[0][1]


LONG = [
    pytest.param(n, marks=pytest.mark.long) for n in ("csr_array", "csc_matrix", "coo_matrix", "dia_matrix")
]


@pytest.mark.parametrize("dtype", [int, np.int8, np.float32, float])
@pytest.mark.parametrize("name", ["csr_matrix", *LONG])
def test_the_asked_dtype_of_tracked_values_is_kept(name, dtype):
    """SciPy cuts numbers where a matrix of integers is made of floats: so does the value, with slope 0."""
    make = getattr(sp, name)
    triples = (np.array([2.7, -1.2, 3.9]), (np.arange(3), np.arange(3)))
    for given in (
        lambda x: x * np.diag(triples[0]),
        *([] if name == "dia_matrix" else [lambda x: (x * triples[0], triples[1])]),
        lambda x: make(x * np.diag(triples[0])),
    ):
        seen = []

        def f(x, given=given, seen=seen):
            A = make(given(x), shape=(3, 3), dtype=dtype)
            seen.append(A.dtype)
            return (A @ np.ones(3)).sum() * 1.0 + 0.0 * x

        value, slope = tg.value_and_grad(f)(1.0)
        exact = f(1.0)
        np.testing.assert_allclose(value, exact, rtol=1e-6)
        assert seen[0] == seen[1] == dtype
        assert slope == (0.0 if np.dtype(dtype).kind == "i" else pytest.approx(5.4, rel=1e-6))
