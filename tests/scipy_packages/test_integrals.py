"""scipy.integrate.quad: integrands that are singular at an end, against closed forms."""

import numpy as np
import pytest
import scipy.integrate
from scipy.special import beta, psi

import tapegrad as tg


def power(p):
    """The integral of x**p[0] from 0 to p[1]."""
    return scipy.integrate.quad(lambda x: x ** p[0], 0, p[1])[0]


@pytest.mark.parametrize("k", [2.0, 0.5, -0.3, -0.5])
def test_power(k):
    b = 1.1
    want = [b ** (k + 1) * (np.log(b) / (k + 1) - 1 / (k + 1) ** 2), b**k]
    assert np.allclose(tg.grad(power)(np.array([k, b])), want, rtol=2e-7)


def test_beta():
    """Singular at both ends."""
    a, b = p = np.array([0.6, 0.7])

    def f(p):
        return scipy.integrate.quad(lambda x: x ** (p[0] - 1) * (1 - x) ** (p[1] - 1), 0, 1)[0]

    want = beta(a, b) * (psi([a, b]) - psi(a + b))
    assert np.allclose(tg.grad(f)(p), want, rtol=1e-6)
    assert np.allclose(tg.jvp(f, (p,), (np.ones(2),))[1], want.sum(), rtol=1e-6)


def test_infinite_range():
    """QUADPACK extrapolates at infinity, and nothing is singular."""
    a, b = p = np.array([1.31, 1.12])

    def f(p):
        return scipy.integrate.quad(lambda x: np.exp(-p[0] * x) * np.cos(p[1] * x), 0, np.inf)[0]

    r = a * a + b * b
    assert np.allclose(tg.grad(f)(p), [1 / r - 2 * a * a / r**2, -2 * a * b / r**2], rtol=1e-7)
    hessian = tg.hessian(f)(p)
    assert np.allclose(hessian[0, 0] + hessian[1, 1], 0, atol=1e-6)  # a / r is harmonic
    assert np.allclose(hessian[0, 0], -6 * a / r**2 + 8 * a**3 / r**3, rtol=1e-5)


@pytest.mark.parametrize("points", [None, [0.4]])
def test_singularity_inside_is_refused(points):
    """It moves with p, and the derivative of the integrand has no integral."""

    def f(p):
        return scipy.integrate.quad(lambda x: abs(x - p[0]) ** -0.3, 0, 1, points=points)[0]

    with (
        np.errstate(divide="ignore"),
        pytest.raises(tg.errors.NoRuleError, match="no rule for the derivative"),
    ):
        tg.grad(f)(np.array([0.4]))


def test_singularity_at_a_moving_limit():
    def f(p):
        return scipy.integrate.quad(lambda x: (x - p[0]) ** -0.3, p[0], 1)[0]

    assert np.allclose(tg.grad(f)(np.array([0.4])), -(0.6**-0.3), rtol=1e-6)


def test_nquad_with_options():
    f = lambda k: scipy.integrate.nquad(
        lambda x, y: np.exp(-k * x), [[0.0, 1.0], [0.0, k]], opts={"epsabs": 1e-11, "limit": 80}
    )[0]
    np.testing.assert_allclose(tg.grad(f)(1.5), np.exp(-1.5), rtol=1e-10)
    g = lambda k: scipy.integrate.nquad(
        lambda x, y: np.exp(-k * x),
        [lambda y: [0.0, k * y], [0.0, k]],
        opts=[lambda y: {}, {"limit": 80}],
        full_output=True,
    )
    exact = lambda k: 1.0 - (1.0 - np.exp(-(k**3))) / k**3
    np.testing.assert_allclose(tg.grad(lambda k: g(k)[0])(1.5), tg.grad(exact)(1.5), rtol=1e-10)


def test_equal_limits():
    """The integral is zero, and its derivative by an end is the integrand there."""
    f = lambda p: scipy.integrate.quad(lambda x: np.cos(3 * x), 0.5, p)[0]
    assert np.isclose(tg.grad(f)(0.5), np.cos(1.5), rtol=1e-14)


INTEGRALS = {
    "peak": (
        lambda p: scipy.integrate.quad(lambda x: 1 / ((x - 0.3) ** 2 + p[0] ** 2), 0, p[1])[0],
        lambda p: (np.arctan((p[1] - 0.3) / p[0]) + np.arctan(0.3 / p[0])) / p[0],
    ),
    "a condition on the node": (
        lambda p: scipy.integrate.quad(lambda x: p[0] * x if x < 1 else p[1] * x**2, 0, 2, points=[1.0])[0],
        lambda p: p[0] / 2 + p[1] * 7 / 3,
    ),
    "to infinity": (
        lambda p: scipy.integrate.quad(lambda x, a: x * np.exp(-a * x), p[1], -np.inf, args=(-p[0],))[0],
        lambda p: np.exp(p[0] * p[1]) * (1 / p[0] ** 2 - p[1] / p[0]),
    ),
    "two": (
        lambda p: scipy.integrate.dblquad(lambda y, x, a: a * x * y**2, 0, p[1], 0, lambda x: x, (p[0],))[0],
        lambda p: p[0] * p[1] ** 5 / 15,
    ),
    "arrays": (
        lambda p: scipy.integrate.quad_vec(lambda x: np.array([p[0], p[1] * x]) * x, 0, p[1])[0].sum(),
        lambda p: p[0] * p[1] ** 2 / 2 + p[1] ** 4 / 3,
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", INTEGRALS)
def test_replays(name):
    """A recording has SciPy's integral as one instruction, and holds for other parameters and intervals."""
    f, exact = INTEGRALS[name]
    p = tg.prepare(f, np.array([0.3, 1.0]))
    for at in np.linspace([0.3, 1.0], [0.5, 1.5], 8):
        value, slope = p.value_and_grad(at)
        assert value == f(at) and np.isclose(value, exact(at), rtol=1e-8)
        assert np.allclose(slope, tg.grad(exact)(at), rtol=1e-7)
        assert np.allclose(tg.grad(f)(at), slope, rtol=1e-9)
    assert p.forms["value_and_grad"].replays >= 5 and "run as it is" not in p.report()


def test_integrand_that_keeps_something():
    met = []

    def f(p):
        return scipy.integrate.quad(lambda x: (met.append(float(x)), np.exp(-p * x))[1], 0, 1)[0]

    assert np.isclose(tg.grad(f)(2.0), 0.75 * np.exp(-2.0) - 0.25, rtol=1e-12)
    assert len(met) == 21


@pytest.mark.parametrize("points", [None, [0.4]])
def test_limits_that_move_do_not_move_a_jump(points):
    """The derivative by a limit is the integrand there."""

    def f(p):
        g = lambda t: p[2] * t if t < 0.4 else 3.0 * t * t
        return scipy.integrate.quad(g, p[0], p[1], points=points, epsabs=1e-12, limit=200)[0]

    def stacked(p):
        g = lambda t: np.array([p[2] * t if t < 0.4 else 3.0 * t * t, t])
        return scipy.integrate.quad_vec(g, p[0], p[1], epsabs=1e-10, epsrel=1e-10, limit=200, points=points)[
            0
        ][0]

    p, v = np.array([0.1, 0.9, 2.0]), np.array([0.3, -0.7, 1.1])
    right = np.array([-0.2, 2.43, 0.075])
    H = np.array([[-2.0, 0, -0.1], [0, 5.4, 0], [-0.1, 0, 0]])
    for each in (f, stacked):
        np.testing.assert_allclose(tg.grad(each)(p), right, rtol=1e-7)
        np.testing.assert_allclose(tg.jvp(each, (p,), (v,))[1], right @ v, rtol=1e-7)
        np.testing.assert_allclose(tg.hvp(each, p, v), H @ v, rtol=1e-6)
