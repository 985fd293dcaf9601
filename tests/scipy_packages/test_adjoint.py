"""solve_ivp by the continuous adjoint, an option: against the derivative of the steps, closed forms, and
differences."""

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

import tapegrad as tg
from tapegrad.errors import ArgumentError

pytestmark = pytest.mark.smoke

FINE = {"rtol": 1e-9, "atol": 1e-11}
P, V = np.array([1.1, 0.3, 0.8]), np.array([0.3, -0.2, 0.5])


def slope(t, u, a, b):
    return np.array([u[1], -a * u[0] - b * u[1] + np.sin(t)])


def squares(p, method, times=(0.5, 1.0)):
    """By captured values, by the start, at some times."""
    run = scipy.integrate.solve_ivp(
        lambda t, u: slope(t, u, p[0], p[1]), (0.0, 1.0), np.array([1.0, 0.2]) * p[2], method, times, **FINE
    )
    return (run.y**2 * np.arange(1.0, 1 + len(run.t))).sum()


@pytest.mark.parametrize("method", ["DOP853", "LSODA"])
def test_as_the_derivative_of_the_steps(method):
    adjoint = tg.scipy.integrate.continuous_adjoint(method)
    value, gradient = tg.value_and_grad(lambda p: squares(p, adjoint))(P)
    assert value == squares(P, method) == squares(P, adjoint)
    np.testing.assert_allclose(gradient, tg.grad(lambda p: squares(p, "DOP853"))(P), rtol=1e-7)
    np.testing.assert_allclose(tg.jvp(lambda p: squares(p, adjoint), (P,), (V,))[1], gradient @ V, rtol=1e-7)


@pytest.mark.long
def test_second_order():
    adjoint = tg.scipy.integrate.continuous_adjoint(scipy.integrate.DOP853)
    f = lambda p: squares(p, adjoint, (1.0,))
    exact = tg.hvp(lambda p: squares(p, "DOP853", (1.0,)), P, V)
    np.testing.assert_allclose(tg.hvp(f, P, V), exact, rtol=1e-6)
    np.testing.assert_allclose(tg.grad(lambda p: tg.jvp(f, (p,), (V,))[1])(P), exact, rtol=1e-6)
    np.testing.assert_allclose(tg.grad(lambda p: tg.grad(f)(p) @ V)(P), exact, rtol=1e-6)


def test_arguments_start_and_a_matrix_against_the_exponential():
    A, u = np.array([[-0.3, 1.0], [-1.0, -0.1]]), np.array([1.0, 0.5])
    adjoint = tg.scipy.integrate.continuous_adjoint("DOP853")

    def f(A, u):
        return (
            scipy.integrate.solve_ivp(lambda t, y, A: A @ y, (0.0, -1.5), u, adjoint, args=(A,), **FINE)
            .y[:, -1]
            .sum()
        )

    found = tg.grad(f, (0, 1))(A, u)
    exact = tg.grad(lambda A, u: (scipy.linalg.expm(-1.5 * A) @ u).sum(), (0, 1))(A, u)
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_what_it_cannot_do_it_says():
    adjoint = tg.scipy.integrate.continuous_adjoint()
    for more in ({"dense_output": True}, {"events": lambda t, y: y[0]}):
        with pytest.raises(ArgumentError, match="continuous_adjoint"):
            tg.grad(
                lambda x: scipy.integrate.solve_ivp(
                    lambda t, y: -y * x, (0, 1), [1.0], adjoint, **more
                ).y.sum()
            )(0.5)
    with pytest.raises(ArgumentError, match="by the times"):
        tg.grad(lambda x: scipy.integrate.solve_ivp(lambda t, y: -y, (0, x), [1.0], adjoint).y.sum())(0.5)
    with pytest.raises(ArgumentError, match="it is one of"):
        tg.scipy.integrate.continuous_adjoint("Euler")
