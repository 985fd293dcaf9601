"""Special functions in generated kernels: values to units in the last place, derivatives of all orders, the
same bits in CUDA C."""

import math

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
from _cuda_host import needs_compiler
from comparison import close
from kernel_on_host import on_host
from kernel_programs import kernels

import tapegrad as tg
from tapegrad.errors import KernelError
from tapegrad.kernels.launch.cpu import Launcher

pytestmark = pytest.mark.one_in(4)  # its cases compile

RNG = np.random.default_rng(0)


mpmath.mp.dps = 40
SPECIAL = {
    "erf": (mpmath.erf, [(-6, 6), (-1e-3, 1e-3), (0.4, 1.1)]),
    "erfc": (mpmath.erfc, [(-6, 6), (0.4, 1.1), (1, 26)]),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [(-5, 6), (0, 1), (5, 30)]),
    "ndtr": (mpmath.ncdf, [(-6, 6), (-1, 1), (-37, -5)]),
    "log_ndtr": (lambda x: mpmath.log(mpmath.ncdf(x)), [(-6, 6), (-1, 1), (-500, -5), (1, 8)]),
    "expit": (lambda x: 1 / (1 + mpmath.exp(-x)), [(-700, 40), (-1, 1)]),
    "log_expit": (lambda x: -mpmath.log1p(mpmath.exp(-x)), [(-700, 40), (-1, 1), (0, 600)]),
    "gammaln": (lambda x: mpmath.log(abs(mpmath.gamma(x))), [(1e-6, 3), (0.5, 3.5), (3, 9), (8, 200), (1e5,
    1e8), (-4.6, -4.4)]),
    "digamma": (lambda x: mpmath.psi(0, x), [(1e-6, 3), (1, 2), (2, 9), (8, 1000), (-4.45, -4.3)]),
    "logit": (lambda p: mpmath.log(p / (1 - p)), [(0.01, 0.99), (1e-10, 1e-3)]),
}  # fmt: skip


def ulps(found, exact):
    spacing = np.spacing(np.abs(np.array([float(e) for e in exact])).astype(found.dtype))
    return max(
        abs(mpmath.mpf(float(a)) - e) / mpmath.mpf(float(s))
        for a, e, s in zip(found, exact, spacing, strict=True)
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_special_functions(name, dtype):
    exact, ranges = SPECIAL[name]
    k = kernels.map(getattr(scipy.special, name))
    for low, high in ranges:
        if dtype is np.float32:
            deep = -12 if name in ("erfc", "ndtr") else -80
            low, high = max(low, deep), min(high, 9 if name == "erfc" else 80)
        if low < high:
            x = np.random.default_rng(1).uniform(low, high, 300).astype(dtype)
            assert ulps(k(x), [exact(mpmath.mpf(float(v))) for v in x]) < 4.5, (name, low, high)


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_at_the_edges(name):
    x = np.array(
        [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1e300,
            -1e300,
            5e-324,
            1e-300,
            1.0,
            -1.0,
            2.0,
            -2.0,
            8.0,
            0.5,
            1e17,
            -1e17,
            40,
            -40,
        ]
    )
    with np.errstate(all="ignore"):
        expected = getattr(scipy.special, name)(x)
    if name == "gammaln":  # SciPy gives inf for denormal numbers, and has changed its mind about -inf
        expected[7] = -np.log(5e-324)
        x, expected = np.delete(x, 3), np.delete(expected, 3)
    if name == "digamma":
        expected[np.isin(x, [-np.inf, -1e300, -1e17])] = np.nan
    np.testing.assert_allclose(
        kernels.map(getattr(scipy.special, name))(x), expected, rtol=1e-14, atol=1e-320
    )


def derivatives(k, n):
    """The n-th derivative of a map of numbers, alternating between modes."""
    forward = lambda f: lambda x: tg.jvp(f, (x,), (x * 0 + 1,))[1]
    backward = lambda f: tg.grad(lambda x: f(x).sum())
    f = k
    for j in range(n):
        f = backward(f) if j % 2 else forward(f)
    return f


POINTS_OF = {
    "gammaln": [0.3, 1.7, 6.2, 12.0, -0.7],
    "digamma": [0.3, 1.7, 6.2, 12.0, -0.7],
    "logit": [0.1, 0.45, 0.8],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_special_functions(name, order):
    exact, _ = SPECIAL[name]
    x = np.array(POINTS_OF.get(name, [-3.1, -0.6, 0.0, 0.4, 2.3]))
    expected = [float(mpmath.diff(exact, mpmath.mpf(float(v)), order)) for v in x]
    found = derivatives(kernels.map(getattr(scipy.special, name)), order)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


normal_quantile = lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)
QUANTILES = {
    "ndtri": (normal_quantile, [0.03, 0.37, 0.5, 0.74, 0.97]),
    "erfinv": (mpmath.erfinv, [-0.92, -1e-9, 0.3, 0.7, 0.99]),
    "erfcinv": (lambda x: mpmath.erfinv(1 - x), [1e-3, 0.2, 1.0, 1.7, 1.99]),
}


@pytest.mark.parametrize("name", QUANTILES)
def test_quantiles(name):
    exact, points = QUANTILES[name]
    f = getattr(scipy.special, name)
    k, rng = kernels.map(f), np.random.default_rng(1)
    x = rng.uniform({"erfinv": -1.0}.get(name, 0.0), {"erfcinv": 2.0}.get(name, 1.0), 200)
    x = np.concatenate([x, 10 ** rng.uniform(-9, -1, 50)])
    assert ulps(k(x), [exact(mpmath.mpf(float(v))) for v in x]) < 6
    single = x.astype(np.float32)
    assert ulps(k(single), f(single.astype(float))) < 8
    tiny, edges = (
        10 ** rng.uniform(-300, -10, 50),
        [0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 3.0, -3.0, np.inf, np.nan],
    )
    np.testing.assert_allclose(k(tiny), f(tiny), rtol=1e-14)
    np.testing.assert_allclose(k(np.array(edges)), f(edges), rtol=1e-15)
    for order in (1, 2, 3):
        expected = [float(mpmath.diff(exact, mpmath.mpf(v), order)) for v in points]
        np.testing.assert_allclose(derivatives(k, order)(np.array(points)), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("f", [scipy.special.rel_entr, scipy.special.kl_div, np.copysign])
def test_functions_of_two_numbers(f):
    """At zeros of both signs, infinities and nan too; the derivatives are those outside of kernels."""
    x, y = [a.ravel() for a in np.meshgrid(*2 * [[0.0, -0.0, 0.3, 2.5, -1.5, np.inf, -np.inf, np.nan]])]
    if f is np.copysign:  # the sign of nan is taken for +
        x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    k = kernels.map(f)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(k(x, y), f(x, y), rtol=1e-15)
    np.testing.assert_array_equal(np.signbit(k(x, y)), np.signbit(f(x, y)))
    x, y = np.array([0.3, 1.7, 0.9]), np.array([0.5, 0.2, 4.0])
    for order in (1, 2):
        for n in (0, 1):
            expected = derivatives(lambda v: f(*[(v, y), (x, v)][n]), order)([x, y][n])
            found = derivatives(lambda v: k(*[(v, y), (x, v)][n]), order)([x, y][n])
            np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


def test_derivatives_far_out():
    """The score of a probit in its far tail: phi / Phi, where both vanish; of a logit, where exp
    overflows."""
    x = np.array([-1e4, -300.0, -40.0, 45.0, 300.0])
    slope = tg.grad(lambda x: kernels.map(scipy.special.log_ndtr)(x).sum())(x)
    exact = [float(mpmath.npdf(v) / mpmath.ncdf(v)) if v > -50 else -v - 1 / v for v in x]
    np.testing.assert_allclose(slope, exact, rtol=2e-5, atol=0)
    np.testing.assert_allclose(slope[1:], exact[1:3] + [exact[3], 0.0], rtol=1e-8)
    x, e = np.array([-800.0, -30.0, 30.0, 800.0]), np.exp(-30.0)
    slope = lambda f: tg.grad(lambda x: kernels.map(f)(x).sum())(x)
    np.testing.assert_allclose(slope(scipy.special.expit), [0, e, e, 0], rtol=1e-12)
    np.testing.assert_allclose(slope(scipy.special.log_expit), [1, 1, e, 0], rtol=1e-12)


X = np.array([[0.3, 1.2, 0.7], [1.9, -4.0, 0.7]]).T
WEIGHTS = np.array([1.0, -3.0, 0.5])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: scipy.special.logsumexp(x, b=WEIGHTS, return_sign=True)[0],
        lambda x: scipy.special.logsumexp(x, b=WEIGHTS, return_sign=True)[1] * x[0],
        lambda x: scipy.special.logsumexp(x, keepdims=True)[0] * x[1],
        lambda x: scipy.special.softmax(x)[1] * scipy.special.log_softmax(x)[2],
        lambda x: np.max(x, initial=1.5) * np.prod(x),
        lambda x: np.linalg.slogdet(np.outer(x, x) + np.eye(3)).logabsdet,
        lambda x: np.linalg.cholesky(np.outer(x, x) + np.eye(3), upper=True)[0, 2],
    ],
)
def test_functions_of_arrays_with_their_keywords(f):
    k = kernels.map(f)
    for j, value in enumerate(k(X)):
        x, h = X[:, j], 1e-6
        np.testing.assert_allclose(value, f(x), rtol=1e-14)
        slopes = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(3)]
        np.testing.assert_allclose(tg.grad(lambda X: k(X).sum())(X)[:, j], slopes, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("f", [scipy.special.logsumexp, scipy.special.softmax, scipy.special.log_softmax])
def test_the_largest_number_passes_no_derivative(f):
    """Ties share the slope as others do, and infinite numbers leave the others' finite."""
    k = kernels.map(lambda x: f(x)[1] if f is not scipy.special.logsumexp else f(x))
    x = np.array([[1.0, 2.0, 2.0], [-np.inf, 1.0, 2.0]]).T
    p = scipy.special.softmax(x, axis=0)
    unit = np.array([0.0, 1.0, 0.0])[:, None]
    wanted = {"logsumexp": p, "softmax": p[1] * (unit - p), "log_softmax": unit - p}[f.__name__]
    np.testing.assert_allclose(tg.grad(lambda x: k(x).sum())(x), wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.long
def test_polygamma_beta_and_products_with_logarithms():
    x, y = np.array([0.3, 2.5, 11.0]), np.array([1.5, 0.2, 4.0])
    for n in range(5):
        found = kernels.map(lambda x, n=n: scipy.special.polygamma(n, x))(x)
        np.testing.assert_allclose(found, [float(mpmath.psi(n, v)) for v in x], rtol=1e-13)
    with pytest.raises(KernelError, match="whole number known while tracing"):
        kernels.map(lambda n, x: scipy.special.polygamma(n, x))(x, x)
    np.testing.assert_allclose(
        kernels.map(scipy.special.betaln)(x, y), scipy.special.betaln(x, y), rtol=1e-13
    )
    a, b = np.array([0.0, 0.0, 2.0, 0.0]), np.array([3.0, 0.0, 5.0, -1.0])
    for f, slope in ((scipy.special.xlogy, np.log), (scipy.special.xlog1py, np.log1p)):
        k = kernels.map(f)
        expected = f(a, b) if f is scipy.special.xlogy else f(a, b * 1.0)
        np.testing.assert_allclose(k(a, b), expected)
        by_a, by_b = tg.grad(lambda a, b, k=k: k(a, b).sum(), (0, 1))(a, b)
        np.testing.assert_allclose(by_a[[0, 2]], slope(b[[0, 2]]))
        assert np.isfinite(by_b).all() and by_b[0] == 0
    np.testing.assert_allclose(
        kernels.map(scipy.special.entr)(np.array([0.0, 0.3, 2.0])), scipy.special.entr([0.0, 0.3, 2.0])
    )


def test_functions_of_math_in_kernels():
    k = kernels.map(lambda x: (math.erf(x), math.erfc(x), math.lgamma(x), math.erf(0.5) * x))
    x = np.array([0.3, 1.2, 4.0])
    for found, f in zip(k(x), (math.erf, math.erfc, math.lgamma, lambda v: math.erf(0.5) * v), strict=True):
        np.testing.assert_allclose(found, [f(v) for v in x], rtol=1e-14)


def test_probit_regression_with_censored_data():
    """A Tobit model: what is cut off at 0 contributes log Phi, the rest a density."""

    def tobit(theta, d):
        slope, sigma = theta
        y, x = d
        z = (y - slope * x) / sigma
        return np.where(
            y > 0,
            -0.5 * z * z - np.log(sigma) - 0.5 * np.log(2 * np.pi),
            scipy.special.log_ndtr(-slope * x / sigma),
        )

    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    data = np.stack([np.maximum(0.7 * x + rng.normal(size=40), 0), x])
    theta = np.array([[0.7, -0.4, 2.0], [1.0, 0.5, 3.0]])
    k = kernels.likelihood(tobit)
    norm = scipy.stats.norm
    f = lambda a, s: np.where(data[0] > 0, norm(a * x, s).logpdf(data[0]), norm.logcdf(-a * x / s)).sum()
    value, gradient = k.value_and_grad(theta, data)
    close(value, [f(*t) for t in theta.T])
    h = 1e-6
    for j in range(3):
        a, s = theta[:, j]
        np.testing.assert_allclose(
            gradient[:, j],
            [(f(a + h, s) - f(a - h, s)) / 2e-6, (f(a, s + h) - f(a, s - h)) / 2e-6],
            rtol=1e-6,
        )
    v = rng.normal(size=theta.shape)
    d = (k.grad(theta + h * v, data) - k.grad(theta - h * v, data)) / (2 * h)
    np.testing.assert_allclose(k.hvp(theta, v, data), d, rtol=1e-6, atol=1e-7)


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_special_functions_have_the_same_bits_in_cuda_source(dtype):
    names = [n for n in SPECIAL if n != "logit"]
    k = kernels.likelihood(
        lambda theta, y: sum(getattr(scipy.special, n)(theta[j] * y) * theta[0] for j, n in enumerate(names))
    )
    theta = np.random.default_rng(0).uniform(0.1, 3.0, (len(names), 16)).astype(dtype)
    data = np.random.default_rng(1).uniform(0.1, 3.0, 25).astype(dtype)
    for kind in ("VG", "D"):
        low = k.lowered(len(names), 0, kind)
        inputs = [theta] + [np.ones((1, 16), dtype)] * (kind == "D")
        launcher = Launcher(low, np.dtype(dtype), kind == "D")
        whole = np.ascontiguousarray(np.repeat(data[None, :, None], 16, axis=2)) if kind == "D" else data
        ours = [np.empty((r, 16), dtype) for r in launcher.outputs]
        out = np.zeros((launcher.step_rows, 25, 16), dtype)
        launcher(inputs, whole, 25, ours, 16, None, out)
        ours += [out] * (kind == "D")
        for a, b in zip(ours, on_host(low, dtype, inputs, whole, theta, 16, kind == "D"), strict=True):
            assert np.isfinite(a).all() and np.array_equal(a, b)


@pytest.mark.long
def test_student_in_its_tails_and_with_many_degrees_of_freedom():
    kernel = tg.kernels.map(lambda theta: scipy.special.stdtr(theta[0], theta[1]))
    df, t = np.array([1.0, 1.0, 3.14, 10.0, 30.0, 4.0]), np.array([-1e3, -1e8, -1e5, -1e10, -30.0, 1e-9])
    w = [mpmath.mpf(n) / (n + mpmath.mpf(x) ** 2) for n, x in zip(df, t, strict=True)]
    half = [mpmath.betainc(n / 2, 0.5, 0, v, regularized=True) / 2 for n, v in zip(df, w, strict=True)]
    wanted = [float(1 - h if x > 0 else h) for h, x in zip(half, t, strict=True)]
    assert np.allclose(kernel(np.stack([df, t])), wanted, rtol=1e-12, atol=0.0)
    for n in (1e6, 1e10, 1e14):
        x = mpmath.mpf(2)
        density = mpmath.exp(
            mpmath.loggamma((n + 1) / 2)
            - mpmath.loggamma(mpmath.mpf(n) / 2)
            - (n + 1) / 2 * mpmath.log1p(x * x / n)
        ) / mpmath.sqrt(n * mpmath.pi)
        for slope in (
            tg.grad(lambda x, n=n: kernel(np.array([[n], [x]]))[0])(2.0),
            tg.grad(lambda x, n=n: scipy.special.stdtr(n, x))(2.0),
        ):
            assert np.isclose(slope, float(density), rtol=1e-12)
