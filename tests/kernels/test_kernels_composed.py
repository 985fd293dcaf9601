"""Functions of NumPy and SciPy in kernels that are composed of others: values against NumPy's, derivatives of
both orders against those of the array tape, which has rules of its own for them, or closed forms."""

import math
import random

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
from _cuda_host import needs_compiler, run_on_host
from scipy import stats

import tapegrad as tg
from tapegrad.errors import KernelError

pytestmark = [pytest.mark.smoke, pytest.mark.one_in(4)]

kernels = tg.kernels
A = np.array([0.5, -1.5, 2.0])
SMOOTH = {
    "arctan": (np.arctan, -3, 3), "arcsin": (np.arcsin, -0.99, 0.99), "arccos": (np.arccos, -0.99, 0.99),
    "arcsinh": (np.arcsinh, -5, 5), "arccosh": (np.arccosh, 1.01, 9), "arctanh": (np.arctanh, -0.99, 0.99),
    "deg2rad": (np.deg2rad, -200, 200), "rad2deg": (np.rad2deg, -4, 4), "sinc": (np.sinc, -3, 3),
    "ceil": (lambda x: np.ceil(x) * x, -3, 3), "trunc": (lambda x: np.trunc(x) * x, -3, 3),
    "rint": (lambda x: np.rint(x) * x, -3, 3),
    "remainder": (lambda x: x % 0.7 + x % -0.3, -5, 5), "fmod": (lambda x: np.fmod(x, 0.7) + np.fmod(x, -0.3),
    -5, 5),
    "floor_divide": (lambda x: (x // 0.7) * x, -5, 5), "by the divisor": (lambda x: np.remainder(3.3, x), 0.2,
    1.9),
    "heaviside": (lambda x: np.heaviside(x, 0.5) * x, -2, 2), "interp": (lambda x: np.interp(x, [-1.0, 0.0,
    2.0], [3.0, 1.0, 4.0]), -2, 3),
    "select": (lambda x: np.select([x > 1, x > 0], [x * x, x], -x), -2, 2),
    "polyval": (lambda x: np.polyval([2.0, -1.0, 3.0], x), -2, 2),
    "gamma": (scipy.special.gamma, 0.3, 6),
}  # fmt: skip
OF_VECTORS = {
    "sort": lambda x: (np.sort(x) * np.arange(1.0, 4.0)).sum(), "median": lambda x: np.median(x) ** 2,
    "argmax": lambda x: np.argmax(x) * x[0] + np.argmin(x) * x[1], "inner": lambda x: np.inner(x,
    x) + np.vdot(x, A),
    "tensordot": lambda x: np.tensordot(np.outer(x, A), np.outer(A, x), ((0, 1), (1, 0))),
    "kron": lambda x: (np.kron(x, A) * np.arange(9)).sum() + (np.kron(np.outer(x, x), np.outer(A,
    A))[2:5] ** 2).sum(),
    "cross": lambda x: (np.cross(x, A) ** 2).sum(), "convolve": lambda x: (np.convolve(x, A[:2],
    "same") ** 2).sum(),
    "cumprod": lambda x: np.cumprod(x).sum() + x.cumprod()[1], "std": lambda x: x.std() + np.std(x * x,
    ddof=1),
    "logsumexp": lambda x: scipy.special.logsumexp(x) + scipy.special.logsumexp(2 * x, b=A**2),
    "softmax": lambda x: (scipy.special.softmax(x) * A).sum(),
    "log_softmax": lambda x: (scipy.special.log_softmax(x) * A).sum(),
    "max and min": lambda x: x.max() * 2 - x.min(), "arctan2": lambda x: np.arctan2(x[0], x[1]) * x[2],
    "rounded": lambda x: np.round(x[0], 1) * x[1] + round(x[2]) * x[0],
    "var": lambda x: x.var() + x.clip(-0.5, 0.5).sum(),
    "written into buffers": lambda x: (np.pad(x, 2, "linear_ramp", end_values=(x[0], 3.0)) ** 2).sum()
    + (np.gradient(x) ** 2 @ np.vander(x, 2)).sum(),
    "a row chosen": lambda x: (np.array([x, 2 * x])[np.argmax(x[:2])] ** 2).sum(),
}  # fmt: skip
LOOSE = {"gamma": 1e-12, "arccosh": 1e-12, "arccos": 1e-12, "arcsin": 1e-12, "arctanh": 1e-12}


def close(ours, reference, tolerance=1e-13):
    np.testing.assert_allclose(ours, reference, rtol=tolerance, atol=tolerance * np.abs(reference).max())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SMOOTH)
def test_functions_of_numbers(name):
    f, low, high = SMOOTH[name]
    x = np.random.default_rng(0).uniform(low, high, 500)
    k, tolerance = kernels.map(f), LOOSE.get(name, 1e-13)
    close(k(x), f(x), tolerance)
    close(tg.grad(lambda x: k(x).sum())(x), tg.grad(lambda x: f(x).sum())(x), 10 * tolerance)
    ones = np.ones(500)
    ours, theirs = [tg.hvp(lambda x, g=g: g(x).sum(), x, ones) for g in (k, f)]
    close(ours, theirs, 1000 * tolerance)
    close(k(x.astype(np.float32)), f(x.astype(np.float32)).astype(float), 3e-6)


@pytest.mark.parametrize("name", OF_VECTORS)
def test_functions_of_vectors(name):
    f, x = OF_VECTORS[name], np.random.default_rng(1).normal(size=(3, 40))
    k = kernels.map(f)
    close(k(x), [f(row) for row in x.T])
    close(tg.grad(lambda x: k(x).sum())(x).T, [tg.grad(f)(row) for row in x.T], 1e-12)
    v = np.random.default_rng(2).normal(size=x.shape)
    close(
        tg.hvp(lambda x: k(x).sum(), x, v).T,
        [tg.hvp(f, row, d) for row, d in zip(x.T, v.T, strict=True)],
        1e-11,
    )


EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.nan, 1e-300, 1e17, -1e17])
AT_EDGES = {
    "arctan": np.arctan, "arcsin": np.arcsin, "arccos": np.arccos, "arcsinh": np.arcsinh,
    "arccosh": np.arccosh, "arctanh": np.arctanh,
    "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "sinc": np.sinc,
    "heaviside": lambda x: np.heaviside(x, 0.5),
    "interp": lambda x: np.interp(x, [-1.0, 0.5, 2.5], [3.0, 1.0, 4.0], left=-9.0, right=9.0),
    "remainder": lambda x: np.remainder(x, 0.5), "negative divisor": lambda x: np.remainder(x, -0.5),
    "fmod": lambda x: np.fmod(x, 0.5),
    "searchsorted": lambda x: np.where(np.isnan(x), 0, np.searchsorted(np.array([-1.0, 0.5, 1.5]), x)) * 1.0,
    "digitize": lambda x: np.where(np.isnan(x), 0, np.digitize(x, np.array([-1.0, 0.5, 1.5]))) * 1.0,
}  # fmt: skip


@pytest.mark.parametrize("name", AT_EDGES)
def test_edges(name):
    f = AT_EDGES[name]
    x = EDGES[:-2] if name == "sinc" else EDGES
    x = x[x != 1e-300] if name == "negative divisor" else x  # NumPy's rest is then as large as the divisor
    with np.errstate(all="ignore"):
        expected = f(x)
    np.testing.assert_allclose(kernels.map(f)(x), expected, rtol=3e-16, atol=1e-300)


FURTHER = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, -3.0, 1e-30, 1e30, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize(
    "f",
    [np.arctan2, np.power, np.fmod, np.remainder, np.hypot, np.logaddexp, np.maximum, np.fmax],
    ids=lambda f: f.__name__,
)
def test_edges_of_two_numbers(f):
    """NumPy's, with the signs of its zeros where those have a meaning; or nan: a rest by a quotient too
    large, the length of (inf, nan)."""
    x, y = [m.ravel() for m in np.meshgrid(FURTHER, FURTHER)]
    rest = f in (np.fmod, np.remainder)
    with np.errstate(all="ignore"):
        expected = f(x, y)
        quotient = np.abs(x / y)
    found = kernels.map(f)(x, y)
    kept = ~np.isnan(found) if rest or f is np.hypot else np.full(x.shape, True)
    kept &= ~(rest & (expected == y))  # NumPy's rest, rounded to the divisor
    np.testing.assert_allclose(found[kept], expected[kept], rtol=1e-14)
    assert (
        kept | np.isnan(expected) | (quotient > 2.0**52) | np.isinf(x) | np.isinf(y) | (expected == y)
    ).all()
    if f in (np.arctan2, np.power):
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]))


def test_arctan2_on_the_axes():
    """Values as NumPy's, signs of zeros included; the gradient is (x, -y) / (x^2 + y^2) there, too."""
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-200, 1e200]
    y, x = [m.ravel() for m in np.meshgrid(values, values)]
    k = kernels.map(np.arctan2)
    np.testing.assert_allclose(k(y, x), np.arctan2(y, x), rtol=3e-16)
    keep = (
        (np.abs(np.concatenate([y, x])).reshape(2, -1) % 1 == 0).all(axis=0)
        & (np.abs(x) + np.abs(y) > 0)
        & (np.hypot(x, y) < 9)
    )
    y, x = y[keep], x[keep]
    dy, dx = tg.grad(lambda y, x: k(y, x).sum(), argnums=(0, 1))(y, x)
    r = x * x + y * y
    np.testing.assert_allclose(dy, x / r, rtol=1e-15, atol=1e-16)
    np.testing.assert_allclose(dx, -y / r, rtol=1e-15, atol=1e-16)


def test_derivatives_at_zero_of_odd_functions():
    zero = np.zeros(3)
    for f, slope in (
        (np.arcsinh, 1.0),
        (np.arctanh, 1.0),
        (np.arctan, 1.0),
        (np.arcsin, 1.0),
        (np.arccos, -1.0),
        (np.sinc, 0.0),
    ):
        k = kernels.map(f)
        assert np.array_equal(tg.grad(lambda x, k=k: k(x).sum())(zero), np.full(3, slope)), f
        bend = -(np.pi**2) / 3 if f is np.sinc else 0.0
        np.testing.assert_allclose(
            tg.hvp(lambda x, k=k: k(x).sum(), zero, np.ones(3)), np.full(3, bend), atol=1e-15
        )


def test_remainders_close_to_whole_quotients():
    """The rest lies between 0 and the divisor even where the quotient is rounded to the next whole number."""
    k = kernels.map(lambda a, b: np.array(divmod(a, b)))
    b = np.random.default_rng(3).uniform(0.01, 3, 2000)
    n = np.random.default_rng(4).integers(1, 10**6, 2000)
    for a in (n * b, np.nextafter(n * b, 0), np.nextafter(n * b, np.inf)):
        q, r = k(a, b)
        assert (r >= 0).all() and (r < b).all()
        exact = [
            mpmath.fsub(u, mpmath.fmul(int(w), v, exact=True), exact=True)
            for u, v, w in zip(a, b, q, strict=True)
        ]
        np.testing.assert_allclose(r, np.array(exact, float), rtol=1e-15)


def test_ties():
    """Equal numbers are sorted as they come, and each keeps its derivative."""
    k = kernels.map(lambda x: np.sort(x))
    x = np.array([[2.0], [1.0], [2.0], [1.0]])
    w = np.array([[1.0], [10.0], [100.0], [1000.0]])
    assert np.array_equal(tg.vjp(k, x)[1](w), [[100.0], [1.0], [1000.0], [10.0]])


def test_sums_of_exponentials_of_extreme_numbers():
    k = kernels.map(lambda x: scipy.special.logsumexp(x))
    x = np.array([[1e4, -1e4, -np.inf], [1e4, -1e4, -np.inf], [-np.inf, 0.0, -np.inf]])
    np.testing.assert_allclose(k(x), [1e4 + math.log(2), 0.0, -np.inf])
    rows = kernels.map(lambda x: scipy.special.softmax(np.array([x, 2 * x]), axis=1).sum(axis=1))
    np.testing.assert_allclose(rows(np.random.default_rng(0).normal(size=(3, 5))), 1.0, rtol=1e-15)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_same_bits_in_cuda_source(dtype):
    def f(x):
        y, z = x[0], x[1]
        return np.array([np.arctan2(y, z), np.arcsinh(y), np.arctanh(0.9 * np.sin(z)), y % (1.5 + z * z),
        np.rint(y), np.sinc(z),
                         np.interp(y, [-1.0, 0.0, 2.0], [3.0, 1.0, 4.0]), scipy.special.logsumexp(x),
                         np.median(x)])  # fmt: skip

    x = np.random.default_rng(5).normal(size=(3, 40)).astype(dtype)
    k = kernels.likelihood(lambda theta, y: (f(theta) * y[:9]).sum())
    weights = np.random.default_rng(6).normal(size=(9, 12)).astype(dtype)
    low = k.lowered(3, 9)
    ours = k.value_and_grad(x, weights)
    for a, b in zip(ours, run_on_host(low, dtype, [x], weights, 12, 40), strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b.reshape(a.shape))


def test_finite_numbers():
    """x - x is simplified to 0: not a test for infinity."""
    k = kernels.map(
        lambda x: (
            np.where(np.isfinite(x), 1.0, 0.0)
            + np.where(np.isinf(x), 2.0, 0.0)
            + np.where(np.isnan(x), 4.0, 0.0)
        )
    )
    assert np.array_equal(
        k(np.array([1.0, np.inf, -np.inf, np.nan, 0.0, 1e308])), [1.0, 2.0, 2.0, 4.0, 1.0, 1.0]
    )


def test_signs_and_extremes_of_nan():
    x = np.array([2.0, -3.0, 0.0, -0.0, np.nan, np.inf])
    assert np.array_equal(kernels.map(np.sign)(x), np.sign(x), equal_nan=True)
    a, b = [m.ravel() for m in np.meshgrid(x, x)]
    for f in (np.fmax, np.fmin, np.maximum, np.minimum):
        assert np.array_equal(kernels.map(f)(a, b), f(a, b), equal_nan=True), f


def test_sums_of_two_exponentials():
    """Equal numbers and infinite ones, as in filters that work with logarithms of probabilities; all second
    derivatives."""
    k = kernels.map(np.logaddexp)
    x = np.array([-np.inf, -700.0, 0.0, 1.5, 700.0, np.inf])
    a, b = [m.ravel() for m in np.meshgrid(x, x)]
    np.testing.assert_allclose(k(a, b), np.logaddexp(a, b), rtol=1e-15)
    slopes = tg.vjp(k, a, b)[1](np.ones(a.shape))
    assert np.isfinite(slopes).all() and (np.abs(np.sum(slopes, axis=0) - 1) < 1e-15).all()
    u, v = np.meshgrid([0.3, 0.3 + 1e-9, 1.0], [0.3, 1.0])
    weight = 1 / (1 + np.exp(v - u))
    bend = tg.hvp(lambda u: k(u, v).sum(), u, np.ones(u.shape))
    np.testing.assert_allclose(bend, weight * (1 - weight), rtol=1e-14)


@pytest.mark.parametrize(
    "draw", [lambda: np.random.normal(), lambda: RNG.normal(), lambda: random.random(), lambda: LUCK.random()]
)
def test_random_numbers_are_refused(draw):
    """They would be drawn once, and be the same in every launch."""
    k = kernels.likelihood(lambda theta, x: theta[0] * x + draw())
    with pytest.raises(KernelError, match="random numbers drawn in it would be the same in every launch"):
        k(np.ones(1), np.ones(3))


RNG, LUCK = np.random.default_rng(0), random.Random(0)


DENSITIES = {
    "norm": lambda t, y: stats.norm.logpdf(y, t[0], t[1]) + stats.norm.logsf(y, t[0],
    scale=t[1]) + scipy.stats.norm.cdf(y, t[2]),
    "an object": lambda t, y: of_normal(y, t[0], t[1]), "t": lambda t, y: stats.t.logpdf(y, t[2], t[0], t[1]),
    "gamma": lambda t, y: stats.gamma.logpdf(y, t[0], scale=t[1]), "beta": lambda t, y: stats.beta.logpdf(y,
    t[0], t[1]),
    "lognorm": lambda t, y: stats.lognorm.logpdf(y, t[0], scale=t[1]), "laplace": lambda t,
    y: stats.laplace.logpdf(y, t[0], t[1]),
    "poisson": lambda t, y: stats.poisson.logpmf(np.floor(5 * y), t[0]),
    "binom": lambda t, y: stats.binom.logpmf(np.floor(5 * y), 7, 1 / (1 + t[0])),
    "multivariate": lambda t, y: stats.multivariate_normal.logpdf(np.array([y, 2 * y]), t[:2],
    np.array([[1 + t[2], 0.3], [0.3, t[1]]])),
    "of variances": lambda t, y: stats.multivariate_normal.logpdf(np.array([y, 2 * y]), t[:2], t[1:]),
}  # fmt: skip
from_scipy = scipy.stats.norm


def of_normal(y, loc, scale):
    return from_scipy.logpdf(y, loc, scale)


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_of_scipy(name):
    """Values against SciPy's own, slopes against differences of these."""
    density, y = DENSITIES[name], np.array([0.3, 0.7, 0.9])
    theta = np.array([[0.4, 1.3], [1.7, 0.8], [2.2, 3.1]])

    def f(t, y):
        return density(t, y) + 0 * t[2]  # it reads all rows, whatever the density wants

    value, gradient = kernels.likelihood(f).value_and_grad(theta, y)

    def theirs(t):
        return sum(f(t, u) for u in y)

    np.testing.assert_allclose(value, [theirs(t) for t in theta.T], rtol=1e-12)
    for k, e in enumerate(1e-5 * np.eye(3)):
        slope = [
            (8 * (theirs(t + e) - theirs(t - e)) - theirs(t + 2 * e) + theirs(t - 2 * e)) / 12e-5
            for t in theta.T
        ]
        np.testing.assert_allclose(gradient[k], slope, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("f, text", [
    (lambda t, x: stats.levy_stable.logpdf(x, t[0], 0.0), "scipy.stats.levy_stable has no translation into "
    "a kernel; there are alpha"),
    (lambda t, x: scipy.special.spence(t[0]), "scipy.special.spence has no translation"),
    (lambda t, x: scipy.special.owens_t(t[0], x), "owens_t has no"),
    (lambda t, x: np.sort(np.outer(t, t))[0, 0], "np.sort in a kernel: vectors only"),
    (lambda t, x: np.linalg.det(np.ones((2, 3, 3)) * t[0])[0], "one matrix at a time"),
    (lambda t, x: np.percentile(t, 30), "numpy.percentile has no translation"),
    (lambda t, x: np.linalg.svd(np.outer(t, t))[1][0], "numpy.linalg.svd has no translation"),
    (lambda t, x: np.add.accumulate(t)[0], "np.add.accumulate"),
])  # fmt: skip
def test_what_is_not_there_is_named(f, text):
    with pytest.raises(KernelError, match=text):
        kernels.likelihood(f)(np.ones(2), np.ones(3))


def test_the_slope_at_the_last_node_of_a_table():
    f = lambda p: np.interp(p[0], [0.0, 1.0, 2.0], [0.0, 1.0, 5.0])
    g = lambda p: np.interp(p[0], [2.0], [7.0], -1.0)
    x = np.array([[2.0, 1.0, 2.5, 0.0, -1.0]])
    np.testing.assert_array_equal(
        tg.grad(lambda x: tg.kernels.map(f)(x).sum())(x), [[4.0, 4.0, 0.0, 1.0, 0.0]]
    )
    np.testing.assert_array_equal(tg.kernels.map(g)(x), [7.0, -1.0, 7.0, -1.0, -1.0])
