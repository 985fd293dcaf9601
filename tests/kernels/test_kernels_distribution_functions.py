"""Incomplete gamma and beta functions, the distribution functions made of them, Bessel functions and the
exponential integral in generated kernels."""

import mpmath
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st
from _cuda_host import needs_compiler
from kernel_on_host import on_host
from kernel_programs import kernels

import tapegrad as tg
from tapegrad.kernels.launch.cpu import Launcher

pytestmark = pytest.mark.one_in(4)  # its cases compile

RNG = np.random.default_rng(11)
SHAPE, OTHER = np.exp(RNG.normal(size=(2, 150)) * 1.5)
POINT = SHAPE * np.exp(np.clip(RNG.normal(size=150), -1.5, 2))
SHARE, COUNT = RNG.random(150), np.floor(8 * RNG.random(150))
GIVEN = {
    "gammainc": (SHAPE, POINT), "gammaincc": (SHAPE + 0.1, POINT), "gdtr": (OTHER, SHAPE, POINT / OTHER),
    "gdtrc": (OTHER, SHAPE + 0.1, POINT / OTHER), "chdtr": (SHAPE, POINT), "chdtrc": (SHAPE + 0.1, POINT),
    "pdtr": (COUNT, POINT), "pdtrc": (COUNT, POINT), "betainc": (SHAPE, OTHER, SHARE),
    "betaincc": (SHAPE + 0.1, OTHER, SHARE), "fdtr": (SHAPE, OTHER, POINT), "fdtrc": (SHAPE, OTHER, POINT),
    "stdtr": (SHAPE + 0.3, RNG.normal(size=150) * 3), "exp1": (POINT,), "beta": (SHAPE, OTHER),
    "i0": (np.linspace(-40, 40, 150),), "i1": (np.linspace(-40, 40, 150),), "i0e": (4 * (POINT - 1),), "i1e": (4 * (POINT - 1),),
    "j0": (POINT - 1,), "j1": (POINT - 1,),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_values(name):
    f = getattr(sp, name)
    k = kernels.map(f)
    np.testing.assert_allclose(k(*GIVEN[name]), f(*GIVEN[name]), rtol=2e-12, atol=2e-15)
    single = [np.asarray(v, np.float32) for v in GIVEN[name]]
    found, expected = k(*single), f(*[v.astype(float) for v in single])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-6)


def below(f, *args):
    return f(*[mpmath.mpf(a) for a in args], regularized=True)


EXACT = {  # function of x alone, its points
    "gammainc by a": (
        lambda a: sp.gammainc(a, 1.7), lambda a: below(mpmath.gammainc, a, 0, 1.7), (0.4, 2.0, 9.0)
    ),
    "gammaincc by x": (
        lambda x: sp.gammaincc(0.7, x), lambda x: below(mpmath.gammainc, 0.7, x, "inf"), (0.2, 3.0)
    ),
    "betainc by a": (
        lambda a: sp.betainc(a, 1.3, 0.4), lambda a: below(mpmath.betainc, a, 1.3, 0, 0.4), (0.5, 3.0)
    ),
    "betainc by b": (
        lambda b: sp.betainc(0.8, b, 0.4), lambda b: below(mpmath.betainc, 0.8, b, 0, 0.4), (0.5, 3.0)
    ),
    "i0e": (sp.i0e, lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), (-35.0, 0.3, 7.0)),
    "j1": (sp.j1, lambda x: mpmath.besselj(1, x), (-2.0, 0.0, 3.9, 12.0, 40.0)),
    "exp1": (sp.exp1, mpmath.e1, (0.01, 1.4, 1.6, 20.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_derivatives(name):
    """In reverse mode and in forward over reverse, against differences of 30 digits."""
    f, exact, points = EXACT[name]
    k, x = kernels.map(f), np.array(points)
    slope = tg.grad(lambda x: k(x).sum())
    with mpmath.workdps(30):
        first, second = [[float(mpmath.diff(exact, mpmath.mpf(v), n)) for v in points] for n in (1, 2)]
    np.testing.assert_allclose(slope(x), first, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(tg.jvp(slope, (x,), (np.ones_like(x),))[1], second, rtol=1e-10, atol=1e-12)


def test_edges():
    """Outside of their domain and at infinity they give what SciPy gives."""
    at = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.5])
    for name in ("j0", "j1", "i0e", "i1e", "exp1"):
        f = getattr(sp, name)
        np.testing.assert_allclose(kernels.map(f)(at), f(at), rtol=1e-12, err_msg=name)
    for f in (sp.gammainc, sp.gammaincc):
        a, x = np.array([2.0, 2.0, 2.0, np.nan, -1.0, 3.0]), np.array([0.0, np.inf, -1.0, 2.0, 2.0, np.nan])
        np.testing.assert_array_equal(kernels.map(f)(a, x), f(a, x))
    for f in (sp.betainc, sp.betaincc):
        x = np.array([0.0, 1.0, 1.5, -1.0, np.nan])
        np.testing.assert_array_equal(kernels.map(lambda x, f=f: f(2.0, 0.7, x))(x), f(2.0, 0.7, x))
    df, t = np.array([3.0, 3.0, 3.0, np.inf, 1e12]), np.array([0.0, np.inf, -np.inf, 1.0, -2.0])
    np.testing.assert_allclose(kernels.map(sp.stdtr)(df, t), sp.stdtr(df, t), rtol=1e-12)


@pytest.mark.parametrize("a", [1e3, 1e6, 1e9, 1e12])
def test_large_parameters(a):
    """Near its median x^a (1 + a (1 - x) + a (a + 1) (1 - x)^2 / 2) is the beta distribution function of a
    and 3; its derivative with respect to a needs the mean of log(t) to its last digits."""
    x = a / (a + 3.0)
    with mpmath.workdps(60):

        def exact(a):
            rest = 1 - mpmath.mpf(x)
            return mpmath.mpf(x) ** a * (1 + a * rest + a * (a + 1) / 2 * rest**2)

        step = mpmath.mpf(a) * mpmath.mpf(10) ** -20
        slope = float((exact(a + step) - exact(a - step)) / (2 * step))
    k = kernels.map(lambda a: sp.betainc(a, 3.0, x))
    np.testing.assert_allclose(tg.grad(lambda a: k(a).sum())(np.array([a])), slope, rtol=1e-12)
    np.testing.assert_allclose(tg.grad(lambda a: sp.betainc(a, 3.0, x))(a), slope, rtol=2e-9)


def test_a_censored_sample():
    """Waiting times with a gamma distribution, some of them cut off; and hydrology's well function."""

    def loglik(theta, datum):
        shape, rate = np.exp(theta[0]), np.exp(theta[1])
        seen = st.gamma.logpdf(datum[0], shape, scale=1 / rate)
        return np.where(datum[1] > 0, seen, np.log(sp.gammaincc(shape, rate * datum[0])))

    theta = RNG.normal(size=(2, 5)) * 0.3
    data = np.stack([RNG.gamma(2.0, size=30), (RNG.random(30) < 0.6) * 1.0])
    value, gradient = kernels.likelihood(loglik).value_and_grad(theta, data)
    for j, sample in enumerate(theta.T):
        whole = lambda t: sum(loglik(t, datum) for datum in data.T)
        np.testing.assert_allclose(value[j], whole(sample), rtol=1e-12)
        np.testing.assert_allclose(gradient[:, j], tg.grad(whole)(sample), rtol=1e-10)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_cuda_c_gives_the_same_bits(dtype):
    """The text of the incomplete beta function is so long that it calls the functions that it uses."""
    k = kernels.likelihood(
        lambda theta, y: (
            sp.betainc(theta[0], 1.3, y) + sp.gammaincc(theta[1], y) + sp.j1(theta[1]) * sp.i0e(y)
        )
    )
    theta, data = RNG.uniform(0.2, 3.0, (2, 16)).astype(dtype), RNG.random(9).astype(dtype)
    low = k.lowered(2, 0, "VG")
    launcher = Launcher(low, np.dtype(dtype), False)
    ours = [np.empty((r, 16), dtype) for r in launcher.outputs]
    launcher([theta], data, 9, ours, 16, None, np.empty((launcher.step_rows, 9, 16), dtype))
    for a, b in zip(ours, on_host(low, dtype, [theta], data, theta, 16, False), strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b)
