"""Inside a transform, calls that get no tracked value behave as in a plain call: of NumPy and of SciPy's
subpackages, on captured
arrays, on arrays made inside, and on objects made outside.  And scipy.stats with tracked parameters."""

import warnings

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.constants
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.sparse.linalg
import scipy.spatial
import scipy.stats
from scipy.stats import norm as normal_law
from scipy.stats import skew

import tapegrad as tg
from tapegrad import stats
from tapegrad.errors import ArgumentError, NoRuleError, TapegradError
from tapegrad.testing import check_grads

data, times = np.random.default_rng(0).normal(size=20), np.linspace(0.0, 1.0, 20)
law, spline, density = (
    normal_law(0.5, 1.5),
    scipy.interpolate.CubicSpline(times, data),
    scipy.stats.gaussian_kde(data),
)


def seed():
    return np.random.default_rng(5)


CALLS = {
    "skew": lambda: scipy.stats.skew(data),
    "skew by name": lambda: skew(data),
    "kurtosis of made": lambda: scipy.stats.kurtosis(np.arange(5.0) ** 2),
    "rvs": lambda: scipy.stats.norm.rvs(1.0, 2.0, size=3, random_state=seed()),
    "rvs by name": lambda: normal_law.rvs(size=(2, 2), random_state=seed()),
    "rvs of integers": lambda: scipy.stats.poisson.rvs(2.5, size=3, random_state=seed()),
    "pdf": lambda: scipy.stats.norm.pdf(data),
    "pdf of float32": lambda: scipy.stats.norm.pdf(data.astype(np.float32)),
    "pmf": lambda: scipy.stats.binom.pmf(np.arange(4), 5, 0.3),
    "ppf without rule": lambda: scipy.stats.t.ppf(0.9, 3),
    "isf": lambda: scipy.stats.gamma.isf(0.2, 2.0),
    "other law": lambda: scipy.stats.nct.pdf(data, 3, 0.2),
    "frozen": lambda: scipy.stats.norm(0.5, 1.5).pdf(data),
    "frozen outside": lambda: law.pdf(data),
    "frozen rvs": lambda: scipy.stats.gamma(2.0, scale=0.5).rvs(4, random_state=seed()),
    "frozen moments": lambda: (
        scipy.stats.lognorm(0.3).mean(),
        scipy.stats.beta(2, 3).std(),
        scipy.stats.expon().interval(0.9),
    ),
    "frozen integers": lambda: scipy.stats.poisson(2.5).cdf(np.arange(4)),
    "frozen vectors": lambda: scipy.stats.multivariate_normal(np.zeros(2), np.eye(2)).rvs(
        3, random_state=seed()
    ),
    "fit": lambda: scipy.stats.norm.fit(data),
    "entropy": lambda: scipy.stats.norm.entropy(0.0, 2.0),
    "kstest": lambda: scipy.stats.kstest(data, "norm").statistic,
    "ttest": lambda: scipy.stats.ttest_ind(data, times).pvalue,
    "linregress": lambda: scipy.stats.linregress(times, data).slope,
    "kde": lambda: scipy.stats.gaussian_kde(data)(times),
    "kde outside": lambda: density(times),
    "sobol": lambda: scipy.stats.qmc.Sobol(2, rng=1).random(4),
    "rv_histogram": lambda: scipy.stats.rv_histogram(np.histogram(data)).cdf(times),
    "minimize": lambda: scipy.optimize.minimize(lambda p: ((p - data[:2]) ** 2).sum(), data[2:4]).x,
    "curve_fit": lambda: scipy.optimize.curve_fit(lambda t, a, b: a * t + b, times, data)[0],
    "brentq": lambda: scipy.optimize.brentq(lambda p: p - data[0], -10.0, 10.0),
    "least_squares": lambda: scipy.optimize.least_squares(lambda p: p[0] * times - data, np.ones(1)).x,
    "assignment": lambda: scipy.optimize.linear_sum_assignment(np.outer(times, data))[1],
    "spline": lambda: scipy.interpolate.CubicSpline(times, data)(np.linspace(0.0, 1.0, 5)),
    "spline outside": lambda: spline(times * 0.5),
    "interp1d": lambda: scipy.interpolate.interp1d(times, data)(times * 0.5),
    "splev": lambda: scipy.interpolate.splev(times, scipy.interpolate.splrep(times, data)),
    "quad": lambda: scipy.integrate.quad(lambda t: t * data[0], 0.0, 1.0)[0],
    "simpson": lambda: scipy.integrate.simpson(data, x=times),
    "solve_ivp": lambda: scipy.integrate.solve_ivp(lambda t, y: -y * data[1], (0.0, 1.0), data[:2]).y,
    "lfilter": lambda: scipy.signal.lfilter(data[:2], np.ones(1), times),
    "savgol": lambda: scipy.signal.savgol_filter(data, 5, 2),
    "convolve": lambda: scipy.signal.fftconvolve(data, times),
    "welch": lambda: scipy.signal.welch(data, nperseg=8)[1],
    "gaussian_filter": lambda: scipy.ndimage.gaussian_filter(data, 1.0),
    "label": lambda: scipy.ndimage.label(data > 0)[0],
    "cdist": lambda: scipy.spatial.distance.cdist(data[:, None], times[:, None]),
    "tree": lambda: scipy.spatial.cKDTree(data[:, None]).query(times[:, None])[0],
    "sparse": lambda: scipy.sparse.csr_matrix(np.outer(data, times)) @ times,
    "spsolve": lambda: scipy.sparse.linalg.spsolve(scipy.sparse.eye(20, format="csc"), data),
    "kmeans": lambda: scipy.cluster.vq.kmeans(data, 2, rng=1)[0],
    "solve_banded": lambda: scipy.linalg.solve_banded((0, 0), np.ones((1, 20)), data),
    "lu": lambda: scipy.linalg.lu(np.outer(times, data) + np.eye(20)),
    "histogram": lambda: np.histogram(data),
    "polyfit": lambda: np.polyfit(times, data, 2),
    "Polynomial": lambda: np.polynomial.Polynomial(data[:3])(times),
    "eig": lambda: np.linalg.eig(np.outer(times, data)),
    "random": lambda: np.random.default_rng(1).normal(data, 1.0),
    "choice": lambda: np.random.default_rng(1).choice(data, 3),
    "quantile": lambda: np.quantile(data, [0.3, 0.4], method="weibull"),
    "inverted": lambda: np.quantile(np.zeros(3) + [1.0, 2.0, 5.0], 0.4, method="lower"),
    "setdiff": lambda: np.setdiff1d(data, data[:4]),
    "constant": lambda: scipy.constants.g,
}


def parts(y):
    if isinstance(y, (tuple, list)):
        return [v for e in y for v in parts(e)]
    return [tg.value(y) if isinstance(y, tg.Variable) else y]


@pytest.mark.parametrize("mode", ["grad", "jvp"])
@pytest.mark.parametrize("name", CALLS)
def test_as_in_a_plain_call(name, mode):
    call, seen = CALLS[name], []

    def f(x):
        seen.append(call())
        return x * 2.0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = parts(call())
        assert (tg.grad(f)(1.5) if mode == "grad" else tg.jvp(f, (1.5,), (1.0,))[1]) == 2.0
    for a, b in zip(parts(seen[0]), right, strict=True):
        assert (
            type(a) is type(b) and np.array_equal(a, b) and getattr(a, "dtype", 0) == getattr(b, "dtype", 0)
        )


TRACKED = {
    "rvs of integers": lambda x: scipy.stats.poisson.rvs(x[0]),
    "frozen rvs by shape": lambda x: scipy.stats.gamma(x[0], 1.0).rvs(),
    "other law": lambda x: scipy.stats.levy_stable.pdf(x, 1.5, 0.2),
    "kde": lambda x: scipy.stats.gaussian_kde(x).resample(3),
    "cossin": lambda x: scipy.linalg.cossin(np.outer(x, x), 1, 1),
    "bootstrap": lambda x: scipy.stats.bootstrap((x,), np.mean).standard_error,
}


@pytest.mark.parametrize("name", TRACKED)
def test_tracked_values_are_right_or_raise(name):
    with pytest.raises(TapegradError):
        tg.grad(lambda x: np.sum(TRACKED[name](x)))(np.array([0.3, 0.5, 0.9]))


FOLLOWED = {
    "rvs": lambda x: scipy.stats.norm.rvs(x[0], x[1], random_state=seed()),
    "frozen rvs": lambda x: scipy.stats.norm(x[0], x[1]).rvs(random_state=seed()),
    "frozen mean": lambda x: scipy.stats.gamma(x[0]).mean(),
    "moments": lambda x: (
        scipy.stats.gamma(x[0], 0.0 * x[1], x[2]).moment(3) + scipy.stats.norm.moment(4, 0.5 - x[1], x[2])
    ),
    "variance": lambda x: scipy.stats.weibull_min.var(x[0], scale=x[1]) + scipy.stats.poisson(x[2]).std(),
    "entropy": lambda x: scipy.stats.t(2 + x[0], scale=x[1]).entropy(),
    "frozen of plain parameters": lambda x: scipy.stats.norm(0.0, 1.0).interval(x[0])[0],
    "interval": lambda x: scipy.stats.beta(x[0], x[1]).interval(0.7)[1],
    "median": lambda x: scipy.stats.lognorm.median(x[0], scale=x[1]),
    "fit": lambda x: scipy.stats.norm.fit(x)[1],
    "negative log likelihood": lambda x: scipy.stats.norm.nnlf((x[0], x[1]), data[:5]),
    "von Mises": lambda x: (
        scipy.stats.vonmises.cdf(x, 1.0 + x[0]).sum() + scipy.stats.vonmises(200.0 * x[1]).sf(x[0])
    ),
    "beta-binomial": lambda x: (
        scipy.stats.betabinom.cdf(2, 5, x[0], x[1]) + scipy.stats.betabinom(5, x[0], x[1]).sf(1)
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_other_methods_of_laws(name):
    f, x = FOLLOWED[name], np.array([0.3, 0.5, 0.9])
    right = [(f(x + 1e-5 * e) - f(x - 1e-5 * e)) / 2e-5 for e in np.eye(3)]
    assert tg.grad(f)(x) == pytest.approx(np.array(right), rel=1e-6, abs=1e-8)
    assert [tg.jvp(f, (x,), (e,))[1] for e in np.eye(3)] == pytest.approx(right, rel=1e-6, abs=1e-8)


def test_errors_name_the_method():
    with pytest.raises(NoRuleError, match=r"scipy\.stats\.make_distribution has no derivative rule"):
        tg.grad(lambda x: scipy.stats.make_distribution(x))(data)
    with pytest.raises(ArgumentError, match=r"poisson\.logpmf takes \(k, mu, loc=0\)"):
        tg.grad(lambda x: scipy.stats.poisson.logpmf(3, x, 1, 2))(0.5)


FROZEN = {
    "norm": ((0.3, 1.4), "logpdf pdf cdf sf logcdf logsf", 0.7),
    "gamma": ((2.3, 0.1, 1.4), "logpdf pdf cdf", 1.7),
    "lognorm": ((0.6,), "logpdf cdf ppf", 0.7),
    "beta": ((1.7, 2.4), "logpdf pdf", 0.4),
}


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_laws_differentiate_in_parameters_and_value(name):
    args, names, x = FROZEN[name]
    for call in names.split():
        f = lambda x, *args: getattr(getattr(scipy.stats, name)(*args), call)(x)
        ours = lambda x, *args: getattr(getattr(stats, name)(*args), call)(x)
        inexact = name in ("gamma", "beta") and call == "cdf"  # no derivative in the shape
        check_grads(
            (lambda x: ours(x, *args)) if inexact else ours,
            (x,) if inexact else (x, *args),
            order=1,
            rtol=1e-6,
        )
        value, slope = tg.value_and_grad(lambda x: f(x, *args))(x)
        assert value == pytest.approx(f(x, *args), rel=1e-12)
        assert slope == pytest.approx((f(x + 1e-6, *args) - f(x - 1e-6, *args)) / 2e-6, rel=1e-7)


def test_frozen_by_keyword_and_of_integers():
    g = tg.grad(lambda m: scipy.stats.norm(loc=m, scale=2.0).logpdf(data).sum())(0.5)
    assert g == pytest.approx((data - 0.5).sum() / 4.0)
    k = np.array([0, 3, 1])
    assert tg.grad(lambda mu: scipy.stats.poisson(mu).logpmf(k).sum())(2.0) == pytest.approx(
        k.sum() / 2.0 - 3
    )
    assert tg.grad(lambda mu: scipy.stats.poisson.logpmf(k + 1, mu, loc=1).sum())(2.0) == pytest.approx(
        k.sum() / 2.0 - 3
    )
    assert tg.grad(lambda p: scipy.stats.binom.logpmf(2, n=5, p=p))(0.3) == pytest.approx(2 / 0.3 - 3 / 0.7)
    S = np.array([[2.0, 0.5], [0.5, 1.0]])
    h = tg.grad(lambda m: scipy.stats.multivariate_normal(m, S).logpdf(np.ones(2)))(np.zeros(2))
    assert np.allclose(h, np.linalg.solve(S, np.ones(2)))
    assert tg.grad(lambda x: scipy.stats.multivariate_normal(None, S).logpdf(x))(np.ones(2)) == pytest.approx(
        -h
    )


def test_frozen_with_too_many_parameters_raises_as_scipys():
    with pytest.raises(TypeError):
        tg.grad(lambda x: scipy.stats.norm(0.0, 1.0, 2.0, 3.0).logpdf(x))(0.5)
