"""Exact zeros of a large dense array that becomes sparse: those that are constants do no harm, the derivatives
of the others are nan. So are products with constants that are zero."""

import numpy as np
import pytest
import scipy.sparse as sps
import scipy.sparse.linalg as spla

import tapegrad as tg

N = 400
B = np.cos(np.arange(N))


def in_a_buffer(x):
    A, i = np.zeros((N, N)), np.arange(N)
    A[i, i], A[i[1:], i[:-1]] = 2 + x[0], x[1]
    return np.sum(spla.spsolve(sps.csc_array(A), B))


def chosen(x):
    return np.sum(sps.csr_array(np.where(np.tri(N) > 0, x[0], 0.0) + np.diag(np.full(N, 1.0) * x[1])) @ B)


def by_masks(x):
    return np.sum(sps.csr_array(np.tri(N) * x[0] + np.outer(x[1] * B, np.eye(N)[1])) @ B)


def of_an_operator(x):
    A = spla.LinearOperator((N, N), matvec=lambda v: x[0] * v, matmat=lambda V: x[0] * V)
    return np.sum(sps.csr_array(A @ np.eye(N)) @ B) * x[1]


@pytest.mark.parametrize("f", [in_a_buffer, chosen, by_masks, of_an_operator], ids=lambda f: f.__name__)
def test_zeros_that_are_constants(f):
    x, h = np.array([0.3, 0.2]), 1e-5
    wanted = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(2)]
    for mode in ("reverse", "forward"):
        np.testing.assert_allclose(tg.jacobian(f, mode=mode)(x), wanted, rtol=1e-7)


def test_zeros_that_have_derivatives():
    def f(x):
        A = np.zeros((N, N))
        A[3, :4] = x
        return np.sum(sps.csr_array(A) @ B)

    for x in (np.array([0.0, 0.7, 0.0, 0.2]), np.zeros(4)):
        for mode in ("reverse", "forward"):
            found = tg.jacobian(f, mode=mode)(x)
            np.testing.assert_allclose(found, np.where(x == 0, np.nan, B[:4]))


def test_a_constant_factor_of_zero_under_an_infinite_slope():
    x, m = np.array([0.3, 0.4, 0.5]), np.array([0.0, 1.0, 0.0])
    for f in (
        lambda x: np.sqrt(m * x),
        lambda x: np.sqrt(np.diag(m) @ x),
        lambda x: np.sqrt(np.einsum("i,i->i", m, x)),
    ):
        np.testing.assert_allclose(tg.grad(lambda x: np.sum(f(x)))(x), m / (2 * np.sqrt(x)))
    assert np.isnan(tg.grad(lambda x: np.cbrt(x * x * x))(0.0))  # |x| would have a slope of 0, this has 1


def test_zeros_that_find_leaves_out():
    def f(x):
        rows, columns, values = sps.find(sps.csr_array((x, ([0, 1, 2], [1, 1, 2])), shape=(3, 3)))
        return np.sum(values * (rows + 2 * columns + 1.0))

    np.testing.assert_allclose(tg.grad(f)(np.array([1.0, 0.0, 3.0])), [3, np.nan, 7])
    with pytest.raises(np.linalg.LinAlgError, match="scipy.sparse.find: all elements"):
        tg.grad(f)(np.zeros(3))
