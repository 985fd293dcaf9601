"""Packages from PyPI that nobody here wrote, differentiated as they are installed: a Kalman filter class that
writes its attributes, and Runge-Kutta methods with work arrays."""

import importlib
import types
import warnings

import numpy as np
import pytest
from _modes import check_first, check_second, complex_step, differences
from comparison import close

import tapegrad as tg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    filterpy_kalman = pytest.importorskip("filterpy.kalman")
    filterpy_common = pytest.importorskip("filterpy.common")
    runge_kutta = pytest.importorskip("nodepy.runge_kutta_method")
    nodepy_ivp = pytest.importorskip("nodepy.ivp")

OBSERVED = np.array([0.9, 2.1, 2.8, 4.2, 5.1, 5.8, 7.2, 8.1])


def second(f, x, v, h=1e-4):
    """H v by differences of the gradient, extrapolated once."""
    slope = lambda s: (f(x + s * v) - f(x - s * v)) / (2 * s)
    return (4 * slope(h / 2) - slope(h)) / 3


# --- filterpy ---


def tracker(theta):
    """A constant-velocity model with unknown variances of noise, and start."""
    kf = filterpy_kalman.KalmanFilter(dim_x=2, dim_z=1)
    kf.x[0, 0] = theta[2]
    kf.x[1, 0] = theta[3]
    kf.F = np.array([[1.0, 1.0], [0.0, 1.0]])
    kf.H = np.array([[1.0, 0.0]])
    kf.P *= 10.0
    kf.R *= theta[0] * theta[0]
    kf.Q = np.array([[0.25, 0.5], [0.5, 1.0]]) * (theta[1] * theta[1])
    return kf


def sum_of_squares(theta):
    kf = tracker(theta)
    s = 0.0
    for z in OBSERVED:
        kf.predict()
        kf.update(z)
        s = s + (kf.y[0, 0] ** 2 / kf.S[0, 0]) + np.log(kf.S[0, 0])
    return s


THETA = np.array([0.4, 0.3, 0.1, 0.8])


def test_kalman_filter_made_inside():
    g = complex_step_or_differences(sum_of_squares, THETA)
    check_first(sum_of_squares, THETA, g, rtol=1e-8)
    v = np.array([1.0, -0.5, 0.3, 0.2])
    check_second(sum_of_squares, THETA, v, second(tg.grad(sum_of_squares), THETA, v), rtol=1e-6)


def complex_step_or_differences(f, x):
    """The package decides: where its arrays are made real, complex steps are not possible."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return complex_step(f, x)
        except Exception:
            return differences(f, x)


def test_kalman_filter_captured():
    """One filter object lives outside, set up anew in each call; afterwards it is as after a plain call."""
    kf = tracker(THETA)

    def f(theta):
        kf.x[:] = 0.0
        kf.x[1, 0] = theta[3]
        kf.P[...] = 10.0 * np.eye(2)
        kf.R[0, 0] = theta[0] * theta[0]
        kf.Q[...] = np.array([[0.25, 0.5], [0.5, 1.0]]) * (theta[1] * theta[1])
        s = theta[2] ** 2
        for z in OBSERVED:
            kf.predict()
            kf.update(z)
            s = s + kf.y[0, 0] ** 2 / kf.S[0, 0]
        return s

    f(THETA)
    left = {k: np.array(v) for k, v in vars(kf).items() if isinstance(v, (np.ndarray, float))}
    g = differences(f, THETA)
    for _ in range(2):
        close(tg.grad(f)(THETA), g, rtol=1e-8)
        for name, value in left.items():
            assert isinstance(getattr(kf, name), (np.ndarray, float)), name
            close(getattr(kf, name), value, rtol=1e-12)
    v = np.array([1.0, -0.5, 0.3, 0.2])
    check_second(f, THETA, v, second(tg.grad(f), THETA, v), rtol=1e-6)


def test_batch_filter():
    """`batch_filter` fills arrays of means and covariances that it makes itself."""

    def f(theta):
        means, covariances, _, _ = tracker(theta).batch_filter(OBSERVED)
        return (means**2).sum() * 0.01 + covariances[-1].trace()

    check_first(f, THETA, differences(f, THETA), rtol=1e-8)


def test_rts_smoother():
    def f(theta):
        kf = tracker(theta)
        means, covariances, _, _ = kf.batch_filter(OBSERVED)
        smoothed, _, gains, _ = kf.rts_smoother(means, covariances)
        return (smoothed[:, 0, 0] ** 2).sum() * 0.01 + (gains[2] ** 2).sum()

    check_first(f, THETA, differences(f, THETA), rtol=1e-8)


# --- nodepy ---


def lotka_volterra(p):
    """Right-hand side that fills an array of its own, captured by the function."""
    work = np.zeros(2)

    def rhs(t, u):
        work[0] = p[0] * u[0] - p[1] * u[0] * u[1]
        work[1] = p[2] * u[0] * u[1] - p[3] * u[1]
        return work

    return rhs


PARAMETERS = np.array([1.5, 1.0, 0.8, 2.0])


def loaded(name, as_numbers):
    """`as_numbers`: its coefficients are floats already; else nodepy asks SymPy for them, and its caches, at
    each call."""
    method = runge_kutta.loadRKM(name)
    return method.__num__() if as_numbers else method


@pytest.mark.parametrize("name", ["RK44", "SSP33", "BS5"])
def test_runge_kutta(name):
    """Work arrays `y[i][:] = u`, `fy[i][:] = f(...)`, `y[i] += ...` in nodepy's step."""
    method = loaded(name, as_numbers=name != "SSP33")

    def f(p):
        problem = nodepy_ivp.IVP(f=lotka_volterra(p), u0=np.array([1.0, 0.5]) * p[0], T=1.0)
        t, u = method(problem, N=10)
        return (u[-1] ** 2).sum() + sum([0.1 * s[0] for s in u])

    g = differences(f, PARAMETERS)
    check_first(f, PARAMETERS, g, rtol=1e-8)
    v = np.array([0.3, -0.5, 1.0, 0.2])
    check_second(f, PARAMETERS, v, second(tg.grad(f), PARAMETERS, v), rtol=1e-6)


def test_adaptive_runge_kutta():
    """Steps accepted and rejected by comparisons: the derivative of the steps taken."""
    method = loaded("BS5", as_numbers=True)

    def f(p):
        problem = nodepy_ivp.IVP(f=lotka_volterra(p), u0=np.array([1.0, 0.5]), T=1.0)
        t, u = method(problem, errtol=1e-4, dt=0.1)
        return (u[-1] ** 2).sum()

    value, gradient = tg.value_and_grad(f)(PARAMETERS)
    close(value, f(PARAMETERS))
    v = np.array([0.3, -0.5, 1.0, 0.2])
    close(tg.jvp(f, (PARAMETERS,), (v,))[1], gradient @ v, rtol=1e-10)


class LazyModule(types.ModuleType):
    """Looks a module up when an attribute is read."""

    def __getattribute__(self, name):
        own = types.ModuleType.__getattribute__(self, "__name__")
        return own if name == "__name__" else getattr(importlib.import_module(own), name)


lazy_signal, lazy_numpy = LazyModule("scipy.signal"), LazyModule("numpy")


def test_lazy_imports():
    def f(x):
        y = lazy_signal.lfilter([1.0, x[0]], [1.0, -0.5], lazy_numpy.cos(x))
        return lazy_numpy.sum(y**2)

    x = np.array([0.3, 0.8, -0.4])
    value, gradient = tg.value_and_grad(f)(x)
    assert value == pytest.approx(float(f(x)), rel=1e-12)
    np.testing.assert_allclose(gradient, differences(f, x), rtol=1e-6)


def test_an_extension_module_reads_arrays_that_are_not_tracked():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that statsmodels imports
        from statsmodels.nonparametric.smoothers_lowess import lowess

    t = np.linspace(0.0, 1.0, 20)

    def f(x):
        made = np.sin(3.0 * t) + 0.1 * np.cos(40.0 * t)
        return np.sum((lowess(made, t, frac=0.5)[:, 1] - x) ** 2)

    value, slope = tg.value_and_grad(f)(0.3)
    assert value == pytest.approx(float(f(0.3)), rel=1e-12)
    assert slope == pytest.approx((f(0.3 + 1e-5) - f(0.3 - 1e-5)) / 2e-5, rel=1e-7)
    with pytest.raises(tg.errors.NoRuleError):
        tg.grad(lambda x: np.sum(lowess(x * t, t, frac=0.5)[:, 1]))(0.3)
