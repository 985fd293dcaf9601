"""Programs with `numpy.matrix`, whose Python code is followed: against plain calls and differences."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

import tapegrad as tg

pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass")
X = np.array([0.5, 1.2, 2.0, 0.7])
M = np.array([[1.0, 2.0], [3.0, 5.0]]).view(np.matrix)
SPARSE = scipy.sparse.csr_matrix(np.array([[1.0, 2.0], [0.0, 3.0]]))


def square(x):
    return np.asmatrix(x.reshape(2, 2))


def kalman_filter(x):
    P, H, s = np.matrix(np.eye(2)), np.matrix([1.0, 0.0]), np.matrix([[0.0], [x[2]]])
    F, Q = np.matrix([[1, x[0]], [0, 1.0]]), x[1] * np.eye(2)
    for z in (1.0, 2.0, 2.5):
        s, P = F * s, F * P * F.T + Q
        K = P * H.T * (H * P * H.T + x[3]).I
        s, P = s + K * (z - H * s), (np.matrix(np.eye(2)) - K * H) * P
    return s[0, 0] + P[1, 1]


def placed(x):
    H = np.zeros((2, 3))
    H[:, [0, 2]] = square(x).T
    return H


def stored(x):
    A = np.matrix(np.zeros((2, 2)))
    A[0, :], A[1, 0] = x[:2], x[2]
    A *= square(x)
    return A * A + 1.0


def stored_columns(x):
    A = square(x).copy()
    A[:, 1] += A[:, 0] * x[2]
    A[0], A[..., :1] = A[1] * 2, x[2:].reshape(2, 1)
    A[0, 1] *= x[0]
    return A


def of_eigenvectors(x):
    w, V = np.linalg.eigh(square(x) + square(x).T)
    return V * np.diag(w**2) * V.T


PROGRAMS = {
    "a captured matrix": lambda x: M * x.reshape(2, 2) + x.reshape(2, 2) * M + M * x[0] + x[1] * M,
    "powers, inverses": lambda x: np.matrix(x.reshape(2, 2)) ** 3 + square(x).I * M.T,
    "elements, rows and columns": lambda x: square(x)[0, 1] * square(x)[1, :] * square(x)[:, 0],
    "reductions": lambda x: (
        square(x).sum(axis=0) * square(x).mean(axis=1) * square(x).max() + square(x).std()
    ),
    "flat": lambda x: square(x).A1 * square(x).flatten().getA1()[::-1] + square(x).ravel().A[0],
    "a loop over rows": lambda x: sum([(row * row.T)[0, 0] for row in square(x)]),
    "a quadratic form": lambda x: float((square(x)[:, 0].T * M * square(x)[:, 1]).item()),
    "stored": stored,
    "stored columns": stored_columns,
    "numpy.linalg": lambda x: (
        np.linalg.solve(square(x), M) * np.linalg.inv(square(x)) + np.linalg.det(square(x))
    ),
    "eigenvectors": of_eigenvectors,
    "scipy.linalg": lambda x: scipy.linalg.expm(square(x)) @ M,
    "joined": lambda x: np.vstack([square(x), M]) * np.hstack([square(x), square(x)]),
    "blocks": lambda x: np.bmat([[square(x), M], [np.eye(2), square(x).T]]) ** 2,
    "a text": lambda x: np.matrix("1 2; 3 4.5") * square(x),
    "a sparse matrix": lambda x: (SPARSE * x[0]).todense() * square(x),
    "outer": lambda x: np.asmatrix(x).T * np.asmatrix(x),
    "functions": lambda x: np.multiply(square(x), M) + np.where(square(x) > 1, square(x), 2 * square(x)),
    "lists": lambda x: np.array(square(x).tolist()) ** 2 + np.dot(M, square(x)) + square(x).dot(M),
    "a place": lambda x: np.asarray(square(x))[0, square(x).argmax(1)[0, 0]] ** 2,
    "a Kalman filter": kalman_filter,
    "elements of a sparse matrix": lambda x: (SPARSE * x[0]).todense().flatten() * np.asmatrix(x).T,
    "sums of a sparse matrix": lambda x: (SPARSE * x[0]).sum(axis=0) * square(x),
    "products with a sparse matrix": lambda x: SPARSE * square(x) + square(x) * (SPARSE * x[1]),
    "ufuncs of sparse matrices": lambda x: np.sqrt(SPARSE * x[0]) * np.abs(SPARSE * -x[1]) * square(x),
    "stored in an array": placed,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    def f(x):
        y = np.asarray(PROGRAMS[name](x))
        return np.sum(y * np.cos(1.0 + np.arange(y.size)).reshape(y.shape))

    h, v = 1e-5, np.array([0.3, -1.0, 0.5, 0.8])
    value, gradient = tg.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-12)
    differences = [(f(X + h * e) - f(X - h * e)) / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(gradient, differences, rtol=2e-8, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (X,), (v,))[1], gradient @ v, rtol=1e-10, atol=1e-12)
    bent = (tg.grad(f)(X + h * v) - tg.grad(f)(X - h * v)) / (2 * h)
    np.testing.assert_allclose(tg.hvp(f, X, v), bent, rtol=1e-7, atol=1e-7)


def test_a_column_takes_no_row():
    def f(x):
        square(x)[:, 1] = x[:2]

    for call in (f, tg.grad(f)):
        with pytest.raises(ValueError):
            call(X.copy())
