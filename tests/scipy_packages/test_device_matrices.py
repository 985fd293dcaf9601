"""Sparse matrices of CuPy's that a function captured or makes: their values stay on the device.  (Over host memory CuPy makes those in
coordinates and diagonals only; the others need cuSPARSE.)"""

import importlib

import numpy as np
import pytest
import scipy.sparse
from comparison import host

import tapegrad as tg
from tapegrad.errors import NoRuleError

ROWS, COLS = np.array([0, 0, 1, 2, 2]), np.array([0, 2, 1, 0, 2])
DATA, X = np.array([2.0, 0.5, 3.0, -1.0, 4.0]), np.array([1.0, 2.0, 3.0])
DENSE = np.zeros((3, 3))
DENSE[ROWS, COLS] = DATA


def sparse_of(xp):
    return scipy.sparse if xp is np else importlib.import_module("cupyx.scipy.sparse")


def captured(xp, form):
    library, at = sparse_of(xp), xp.asarray
    if form == "coo":
        return library.coo_matrix((at(DATA), (at(ROWS), at(COLS))), shape=(3, 3)), DENSE
    return library.dia_matrix(
        (at(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])), at(np.array([0, 1]))), shape=(3, 3)
    ), np.array([[1.0, 5.0, 0.0], [0.0, 2.0, 6.0], [0.0, 0.0, 3.0]])


@pytest.mark.parametrize("form", ["coo", "dia"])
def test_a_captured_matrix(xp, form):
    A, dense = captured(xp, form)
    x = xp.asarray(X)
    f = lambda x: ((A @ x) ** 2).sum() + (x @ A)[0] + (A.T @ x)[1] * x[0]
    g = lambda x: ((dense @ x) ** 2).sum() + (x @ dense)[0] + (dense.T @ x)[1] * x[0]
    np.testing.assert_allclose(host(tg.grad(f)(x)), tg.grad(g)(X), rtol=1e-13)
    np.testing.assert_allclose(host(tg.hvp(f, x, x)), tg.hvp(g, X, X), rtol=1e-13)
    np.testing.assert_allclose(float(tg.jvp(f, (x,), (x,))[1]), tg.grad(g)(X) @ X, rtol=1e-13)


def test_a_matrix_that_is_made(xp):
    library, rows, cols = sparse_of(xp), xp.asarray(ROWS), xp.asarray(COLS)

    def f(d, x):
        return ((library.coo_matrix((d, (rows, cols)), shape=(3, 3)) @ x) ** 2).sum()

    def by_hand(d, x):
        A = np.zeros((3, 3), like=d)
        A[ROWS, COLS] = d
        return ((A @ x) ** 2).sum()

    found, wanted = tg.grad(f, (0, 1))(xp.asarray(DATA), xp.asarray(X)), tg.grad(by_hand, (0, 1))(DATA, X)
    for a, b in zip(found, wanted, strict=True):
        assert isinstance(a, xp.ndarray)
        np.testing.assert_allclose(host(a), b, rtol=1e-13)


def test_integers_are_refused_by_name(xp):
    if xp is np:
        A = scipy.sparse.coo_matrix((np.ones(5, int), (ROWS, COLS)), shape=(3, 3))
        assert tg.grad(lambda x: (A @ x).sum())(X) == pytest.approx([2, 1, 2])
        return
    A = sparse_of(xp).coo_matrix((xp.ones(5, bool), (xp.asarray(ROWS), xp.asarray(COLS))), shape=(3, 3))
    with pytest.raises(NoRuleError, match=r"cupyx\.scipy\.sparse\.coo_matrix .*of dtype bool"):
        tg.grad(lambda x: (A @ x).sum())(xp.asarray(X))
