"""Where SciPy returns the bound of a search, clips rounding, or takes a short way out, the derivative is that of
the function, or nan: nan at no solution, the correlation of points on a line, f(A) b at b = 0, a smoothing
spline."""

import mpmath
import numpy as np
import pytest
import scipy.interpolate as itp
import scipy.linalg as la
import scipy.optimize
import scipy.sparse.linalg as spla
import scipy.special as sp
import scipy.stats as stats

import tapegrad as tg

NO_SOLUTION = {
    "a quantile beyond the largest number": (lambda d: sp.stdtrit(d, 0.7), 1e-3),
    "no freedom has this probability": (lambda p: sp.stdtridf(p, 0.0495), 0.621),
    "a bound of 1e100": (lambda p: sp.ncfdtridfn(p, 0.506, 18.2, 0.441), 0.16),
}


@pytest.mark.parametrize("name", NO_SOLUTION)
def test_the_bound_of_a_search_has_no_derivative(name):
    f, x = NO_SOLUTION[name]
    assert np.isnan(tg.grad(f)(x)) and np.isnan(tg.jvp(f, (x,), (1.0,))[1])


def test_solutions_at_an_end_of_the_range_and_far_out():
    assert (
        tg.grad(lambda p: sp.gammaincinv(1e-3, p))(0.3)
        == 0
        == tg.grad(lambda p: sp.betaincinv(1.6, 3e-3, p))(0.5)
    )
    v, t = 0.01, mpmath.mpf(sp.stdtrit(0.01, 0.7))
    density = mpmath.gamma((v + 1) / 2) / mpmath.sqrt(v * mpmath.pi) / mpmath.gamma(v / 2)
    density *= (1 + t * t / v) ** (-(v + 1) / 2)
    assert tg.grad(lambda p: sp.stdtrit(0.01, p))(0.7) == pytest.approx(float(1 / density), rel=1e-9)


def test_the_correlation_of_points_on_a_line():
    """(SciPy clips about one in four of these.)"""
    for seed in range(12):
        x, (slope, start) = (
            np.random.default_rng(seed).normal(size=6),
            np.random.default_rng(-~seed).normal(size=2),
        )
        around = np.eye(6) - 1 / 6 - np.outer(x - x.mean(), x - x.mean()) / (6 * x.var())
        found = tg.hessian(lambda y: stats.linregress(x, y).rvalue)(slope * x + start)
        wanted = -np.sign(slope) * around / (slope**2 * 6 * x.var())
        np.testing.assert_allclose(found, wanted, atol=1e-9 * abs(wanted).max())


@pytest.mark.skipif(not hasattr(spla, "funm_multiply_krylov"), reason="from SciPy 1.16 on")
def test_a_function_of_a_matrix_times_zero():
    A = np.array([[1.0, 0.3, 0.0], [0.2, 2.0, 0.1], [0.0, 0.4, 1.5]])
    f = lambda b: spla.funm_multiply_krylov(la.expm, A, b)
    for mode in ("reverse", "forward"):
        np.testing.assert_allclose(tg.jacobian(f, mode=mode)(np.zeros(3)), la.expm(A), rtol=1e-12)
    assert (tg.value_and_grad(lambda b: np.sum(f(b)))(np.zeros(3))[0] == 0).all()


@pytest.mark.parametrize(
    "name, args", [("jacobi", (0.5,)), ("sh_jacobi", (0.8,)), ("genlaguerre", ()), ("gegenbauer", ())]
)
def test_parameters_of_polynomials_are_checked(name, args):
    with pytest.raises(ValueError, match="greater than|> -1"):
        tg.grad(lambda a: getattr(sp, name)(3, a, *args)(0.3))(-3.0)


def test_a_smoothing_spline_has_the_derivative_of_its_definition():
    """FITPACK ends within 0.1 % of s. The reference solves for s exactly, with the knots held."""
    rng = np.random.default_rng(2)
    x, v = np.sort(rng.uniform(0, 3, 26)), rng.normal(size=26)
    y, at = np.sin(3 * x) + 0.2 * rng.normal(size=26), np.linspace(0.4, 2.4, 5)
    t, c, k = itp.splrep(x, y, s=0.6)
    s = np.sum((itp.splev(x, (t, c, k)) - y) ** 2)
    G = itp.BSpline.design_matrix(x, t, k).toarray()
    middles = 0.5 * (t[k:-k][1:] + t[k:-k][:-1])
    D = np.diff([itp.BSpline(t, e, k).derivative(k)(middles) for e in np.eye(len(t) - k - 1)], axis=1).T

    def exact(y):
        solved = lambda u: np.linalg.solve(G.T @ G + np.exp(u) * D.T @ D, G.T @ y)
        off = lambda u: np.sum((G @ solved(u) - y) ** 2) - s
        return itp.BSpline(t, solved(scipy.optimize.brentq(off, -25, 5, xtol=1e-13)), k)(at)

    found = tg.jvp(lambda y: itp.splev(at, itp.splrep(x, y, s=0.6)), (y,), (v,))[1]
    np.testing.assert_allclose(found, (exact(y + 1e-5 * v) - exact(y - 1e-5 * v)) / 2e-5, rtol=1e-5)


def test_bounds_that_scipy_does_not_report():
    """SciPy's `active_mask` is 0 here."""
    f = lambda b: scipy.optimize.lsq_linear(np.eye(6, 3), b, (-0.1, 0.5)).x
    found = tg.jacobian(f)(np.eye(6)[0])
    np.testing.assert_allclose(found, np.diag([0.0, 1.0, 1.0]) @ np.eye(3, 6), atol=1e-12)


@pytest.mark.parametrize("theta", [-0.4, 4.0, 0.7])
def test_harmonics_beyond_the_poles(theta):
    """SciPy's are even in theta: they have the modulus of its sine."""
    theta, h = np.array(theta), 1e-5
    for f in (
        lambda t: sp.sph_legendre_p(3, 1, t),
        lambda t: sp.sph_legendre_p_all(3, 2, t, diff_n=2),
        lambda t: sp.sph_harm_y(3, -1, t, 0.3).real,
        lambda t: sp.sph_harm_y(3, 1, t, 0.3, diff_n=1)[1].imag,
    ):
        value, slope = tg.jvp(f, (theta,), (np.array(1.0),))
        np.testing.assert_allclose(value, f(theta), atol=1e-12)
        np.testing.assert_allclose(slope, (f(theta + h) - f(theta - h)) / (2 * h), atol=1e-8)
