"""`eliminate_zeros` of a tracked sparse matrix: zeros keep their derivatives, and their number is not told."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import tapegrad as tg
from tapegrad.errors import NoRuleError

ROWS, COLS = np.array([0, 0, 1, 2]), np.array([0, 2, 1, 2])
X = np.array([2.0, 0.0, 3.0, -1.0])


def tidied(x, name="csr"):
    A = scipy.sparse.coo_matrix((x, (ROWS, COLS)), shape=(3, 3)).tocsr()
    A.eliminate_zeros()
    return A.asformat(name)


@pytest.mark.parametrize("name", ["csr", "csc", "coo"])
def test_products_keep_the_derivative_of_a_zero(name):
    v = np.array([1.0, 2.0, 3.0])
    f = lambda x: np.sum(tidied(x, name) @ v)
    np.testing.assert_allclose(tg.grad(f)(X), [1.0, 3.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "read",
    [
        lambda A: A.data,
        lambda A: A.tocsc().data,
        lambda A: A.T.data,
        lambda A: A[:2].data,
        lambda A: A.nnz,
        lambda A: A.indices,
        lambda A: A.getnnz(),
        lambda A: A.copy().indptr,
    ],
)
def test_number_of_elements_raises_where_scipy_has_fewer(read):
    f = lambda x: np.sum(read(tidied(x)) * 1.0) + x[0]
    with pytest.raises(NoRuleError, match="eliminate_zeros"):
        tg.grad(f)(X)
    assert np.isfinite(tg.grad(f)(X + 0.5)).all()
    np.testing.assert_allclose(tg.value_and_grad(f)(X + 0.5)[0], f(X + 0.5))


def test_new_data_are_told():
    def f(x):
        A = tidied(x)
        A.data = np.arange(1.0, 5.0) * x[0]
        return np.sum(A.data)

    np.testing.assert_allclose(tg.grad(f)(X + 0.5), [10.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize(
    "other", [0.0, 0.3, -0.3, scipy.sparse.csr_matrix([[0.5, 0, -1], [0, -2, 0], [1, 1, 0]])]
)
@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
def test_extreme_elements(form, name, other):
    weights = np.arange(1.0, 10.0).reshape(3, 3)
    seen = []

    def f(x):
        A = scipy.sparse.coo_matrix((x, (ROWS, COLS)), shape=(3, 3)).asformat(form)
        found = getattr(A, name)(other)
        seen.append((type(found).__name__, found.format))
        return np.sum(np.sin(found.toarray()) * weights)

    x, v = np.array([2.0, 0.4, -3.0, -1.0]), np.array([0.3, 1.0, -0.7, 0.5])
    value, gradient = tg.value_and_grad(f)(x)
    np.testing.assert_allclose(value, f(x))
    assert len({*seen}) == 1
    h = 1e-6
    np.testing.assert_allclose(gradient @ v, (f(x + h * v) - f(x - h * v)) / (2 * h), rtol=1e-7)
    np.testing.assert_allclose(tg.jvp(f, (x,), (v,))[1], gradient @ v)


PLACES = (np.array([0, 1, 0, 1, 2, 1, 2]), np.array([0, 2, 4, 7]))  # indices and starts of the rows
EYE = scipy.sparse.eye_array(3, format="csc")
OF_ZEROS = {
    "dense": lambda A: scipy.sparse.csr_array(A.toarray()) @ np.array([1.0, 2.0, 3.0]),
    "expm": lambda A: scipy.sparse.linalg.expm((A * 0.3).tocsc()).toarray(),
    "inv": lambda A: scipy.sparse.linalg.inv((A + 5 * EYE).tocsc()).toarray(),
    "spsolve": lambda A: scipy.sparse.linalg.spsolve((A + 5 * EYE).tocsc(), A.tocsc()).toarray(),
    "L": lambda A: scipy.sparse.linalg.splu((A + 5 * EYE).tocsc(), permc_spec="NATURAL").L.toarray(),
}


@pytest.mark.parametrize("name", OF_ZEROS)
def test_elements_that_are_zero_have_derivatives(name):
    def f(d):
        y = OF_ZEROS[name](scipy.sparse.csr_array((d, *map(np.copy, PLACES)), shape=(3, 3)))
        return np.sum(y * np.cos(np.arange(float(y.size))).reshape(y.shape))

    d, h = np.array([0.3, 0.0, 0.0, 1.2, -0.4, 0.0, 0.7]), 1e-4
    wanted = [(f(d + h * e) - f(d - h * e)) / (2 * h) for e in np.eye(7)]
    for mode in ("reverse", "forward"):
        np.testing.assert_allclose(tg.jacobian(f, mode=mode)(d), wanted, rtol=1e-6, atol=1e-7)
