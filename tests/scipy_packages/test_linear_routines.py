"""Routines of BLAS and LAPACK: derivatives against differences, and memory that they may not alter."""

import numpy as np
import pytest
import scipy.linalg
from scipy.linalg import blas, lapack
from scipy.linalg.blas import dgemm
from scipy.linalg.lapack import dpotrf, dpotri

import tapegrad as tg

B = np.cos(np.arange(9.0)).reshape(3, 3)
RIGHT = np.arange(6.0).reshape(3, 2) + 0.5
X, V = np.array([0.7, 1.1, -0.4]), np.array([0.3, -0.2, 0.5])


def matrix(x):
    return np.outer(x, x) + np.diag(1 + x**2) + 0.1 * (B + B.T)


def inverse_in_place(x):
    c, info = dpotrf(matrix(x))
    assert info == 0
    dpotri(c, overwrite_c=1)
    return np.sum(B * (c + c.T - np.diag(c.diagonal())))


def lower_factor(x):
    c, _ = lapack.dpotrf(matrix(x), lower=1)
    return np.sum(B * lapack.dpotri(c, 1)[0]) + np.sum(c)


def overwritten_argument(x):
    a = np.asfortranarray(matrix(x))
    dpotrf(a, overwrite_a=1)
    return np.sum(B * a)


def argument_in_the_other_order(x):
    a = matrix(x)
    dpotrf(a, overwrite_a=1)  # LAPACK takes a copy
    return np.sum(B * a)


def not_positive_definite(x):
    return x[0] * (2.0 if dpotrf(-matrix(x))[1] else 1.0)


def chosen_routines(x):
    potrf, potrs = scipy.linalg.get_lapack_funcs(("potrf", "potrs"), (matrix(x),))
    return np.sum(potrs(potrf(matrix(x))[0], RIGHT * x[0])[0])


def triangular(x):
    trtrs = scipy.linalg.get_lapack_funcs("trtrs", (x,))
    return np.sum(trtrs(matrix(x), RIGHT, lower=1, trans=1)[0]) + np.sum(trtrs(matrix(x), x)[0])


def general(x):
    return np.sum(lapack.dgesv(matrix(x), x)[2])


def products(x):
    (gemm,) = scipy.linalg.get_blas_funcs(["gemm"], [x])
    y = dgemm(1.5 * x[0], matrix(x), B, beta=0.5, c=matrix(x), trans_a=1, trans_b=1)
    return np.sum(np.sin(y)) + blas.ddot(x, x[::-1]) + np.sum(gemm(2.0, B, matrix(x)) ** 2)


def vectors(x):
    y = x**2
    scaled = blas.dscal(2.0, y)
    z = blas.daxpy(x, x + 1.0, a=x[0])
    w = blas.dgemv(x[1], matrix(x), z, beta=0.5, y=y, trans=1)
    sums = blas.dasum(x) * blas.dnrm2(w) + blas.dzasum(x * (1 + 2j))
    return np.sum(y * np.sin(scaled)) + sums + np.sum(blas.dger(0.5, x, w) ** 2)


@pytest.mark.parametrize(
    "f",
    [
        inverse_in_place, lower_factor, overwritten_argument, argument_in_the_other_order, not_positive_definite,
        chosen_routines, triangular, general, products, vectors,
    ],
)  # fmt: skip
def test_derivatives(f):
    value, gradient = tg.value_and_grad(f)(X)
    assert value == pytest.approx(f(X), rel=1e-13)
    slope = (f(X + 1e-5 * V) - f(X - 1e-5 * V)) / 2e-5
    assert gradient @ V == pytest.approx(slope, rel=1e-7)
    assert tg.jvp(f, (X,), (V,))[1] == pytest.approx(slope, rel=1e-7)
    bent = (tg.grad(f)(X + 1e-5 * V) - tg.grad(f)(X - 1e-5 * V)) / 2e-5
    assert tg.hvp(f, X, V) == pytest.approx(bent, rel=1e-6, abs=1e-7)


captured = np.asfortranarray(matrix(X))


def test_a_captured_matrix_is_not_overwritten():
    before = captured.copy()

    def f(x):
        c, _ = dpotrf(captured)
        dpotri(c, overwrite_c=1)
        return np.sum(x * c[0]) + x[1] * blas.ddot(captured[0], captured[1])

    wanted = f(X)
    assert tg.value_and_grad(f)(X)[0] == wanted
    assert np.array_equal(captured, before) and f(X) == wanted


class Solver:
    pass


def test_the_users_object_keeps_scipys_routines():
    solver = Solver()

    def f(x):
        solver.factor, solver.choose = dpotrf, scipy.linalg.get_lapack_funcs
        (solver.chosen,) = scipy.linalg.get_lapack_funcs(("potrf",), (x,))
        return np.sum(solver.chosen(matrix(x))[0])

    tg.grad(f)(X)
    assert solver.factor is dpotrf and solver.choose is scipy.linalg.get_lapack_funcs
    assert type(solver.chosen) is type(dpotrf)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: dpotrf(matrix(x), clean=0)[0].sum(),
        lambda x: dpotrf(matrix(x), 0, 0)[0].sum(),
        lambda x: lapack.dgetrf(matrix(x))[0].sum(),
        lambda x: blas.ddot(x, x, n=2),
    ],
)
def test_what_has_no_rule_raises(call):
    call(X)
    with pytest.raises((tg.errors.DroppedDerivativeError, TypeError)):
        tg.grad(call)(X)


def test_products_that_are_added_to_a_captured_array_in_place():
    a = np.random.default_rng(0).normal(size=(3, 4))
    c, y = np.zeros((3, 2), order="F"), np.zeros(3)

    def f(x):
        c[...], y[...] = 1.0, 2.0
        blas.dgemm(1.5, a, np.outer(np.arange(4.0), x[:2]), beta=x[2], c=c, overwrite_c=1)
        blas.dgemv(2.0, a, x[3] * np.arange(4.0), beta=1.0, y=y, overwrite_y=1)
        return np.sum(c**3) + np.sum(y**2)

    x = np.array([0.3, 0.7, 0.2, 1.1])
    slopes = [(f(x + 1e-6 * e) - f(x - 1e-6 * e)) / 2e-6 for e in np.eye(4)]
    np.testing.assert_allclose(tg.value_and_grad(f)(x)[0], f(x), rtol=1e-15)  # sums in another order
    np.testing.assert_allclose(tg.grad(f)(x), slopes, rtol=1e-7)
    np.testing.assert_allclose(tg.jacobian(f, mode="forward")(x), tg.grad(f)(x), rtol=1e-13)
