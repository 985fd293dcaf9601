"""tapegrad.value inside kernel functions: the derivative is cut, the number stays."""

import numpy as np
import pytest
import scipy.special

import tapegrad as tg
from tapegrad import kernels

X = np.array([2.0, 3.0])


@pytest.mark.smoke
def test_value_cuts_all_derivatives():
    k = kernels.map(lambda x: tg.value(x) * x)
    total = lambda x: k(x).sum()
    np.testing.assert_array_equal(k(X), X * X)
    np.testing.assert_array_equal(tg.grad(total)(X), X)
    np.testing.assert_array_equal(tg.jvp(k, (X,), (np.ones(2),))[1], X)
    np.testing.assert_array_equal(tg.hvp(total, X, np.ones(2)), [0, 0])


def test_value_in_a_derivative_inside():
    k = kernels.map(lambda x: x**2 * tg.grad(lambda y: tg.value(y) * y)(x))
    np.testing.assert_array_equal(k(X), X**3)
    np.testing.assert_array_equal(tg.grad(lambda x: k(x).sum())(X), 2 * X * X)


@pytest.mark.long
def test_value_of_large_arrays_and_of_conditions():
    A = np.random.default_rng(0).normal(size=(12, 12, 3))
    k = kernels.map(lambda A: (tg.value(A @ A) * A).sum())
    np.testing.assert_allclose(
        tg.grad(lambda A: k(A).sum())(A), np.stack([a @ a for a in A.transpose(2, 0, 1)], -1)
    )
    choice = kernels.map(lambda x: np.where(tg.value(x > 2.5), x, 2 * x))
    np.testing.assert_array_equal(tg.grad(lambda x: choice(x).sum())(X), [2, 1])


def test_value_in_the_carry_of_a_loop():
    """s <- s + value(s) x: the tangent of s in the product is cut in each step."""

    def f(x):
        return kernels.while_loop(
            lambda c: c[1] < 5, lambda c: (c[0] + tg.value(c[0]) * x, c[1] + 1.0), (1.0 + 0.0 * x, 0.0), 9
        )[0]

    k = kernels.map(f)
    np.testing.assert_allclose(k(X), (1 + X) ** 5)
    expected = sum((1 + X) ** i for i in range(5))
    np.testing.assert_allclose(tg.grad(lambda x: k(x).sum())(X), expected)
    np.testing.assert_allclose(tg.jvp(k, (X,), (np.ones(2),))[1], expected)


def test_outside_a_kernel_function_nothing_has_changed():
    assert tg.value("text") == "text"
    assert tg.grad(lambda x: x * tg.value(x))(3.0) == 3.0


def test_a_kernel_made_inside_a_transform():
    """The transform has replaced NumPy's names by tapegrad's; in a kernel function they mean NumPy again."""

    def f(x):
        return np.linalg.norm(np.array([x, 2 * x])) * scipy.special.gammaln(x)

    made = kernels.map(f)
    inside = tg.grad(lambda x: kernels.map(f)(x).sum())(X)
    np.testing.assert_array_equal(inside, tg.grad(lambda x: made(x).sum())(X))
