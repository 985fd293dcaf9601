"""Further statistics of samples under the names of scipy.stats: descriptions, trimmed samples, slopes,
distances, bins, transformations."""

import math
from collections import namedtuple
from typing import Any

import numpy as np
import scipy.special as sp

from .._core.errors import ArgumentError
from .._core.primitive import primal_of, values_of
from ..ops import reductions as red
from ..ops.declare import SCIPY, ndim, shape
from ..ops.elementwise import absolute, log, log1p, power, select, sqrt, square
from ..ops.indexing.views import moveaxis
from ..ops.products import matmul
from ..ops.shaping import concatenate, reshape, stack
from ..ops.sorting import sort
from ..ops.special.error_functions import exprel_n
from ..ops.statistics import median
from ..ops.statistics import quantile as quantile_of
from ._families import array_argument, scipy_stats
from ._statistics import boxcox as boxcox_of
from ._statistics import kurtosis, linregress, sample_array, skew, statistic, yeojohnson
from ._statistics import sample_array as sample_of

# What SciPy changed: relative frequencies are of the sum of the weights, and transformed samples are a tuple.
SINCE_18 = SCIPY >= (1, 18)

# --- descriptions ---

DescribeResult = namedtuple("DescribeResult", "nobs minmax mean variance skewness kurtosis")


@statistic
def describe(a, axis=0, ddof=1, bias=True, nan_policy="propagate"):
    a, axis = sample_array(a, axis, nan_policy)
    ends = red.amin(a, axis), red.amax(a, axis)
    moments = red.mean(a, axis), red.var(a, axis, ddof=ddof), skew(a, axis, bias), kurtosis(a, axis, True, bias)
    return DescribeResult(shape(a)[axis], ends, *moments)


@statistic
def kstat(data, n=2, *, axis=None, nan_policy="propagate", keepdims=False):
    x, axis = sample_array(data, axis, nan_policy)
    m, n = shape(x)[axis] * 1.0, int(n)
    if not 1 <= n <= 4:
        raise ValueError("k-statistics only supported for 1<=n<=4")
    mean = red.mean(x, axis, keepdims=True)
    if n == 1:
        return red.mean(x, axis, keepdims=keepdims)
    e = x - mean
    second, third, fourth = [red.sum(power(e, k), axis, keepdims=keepdims) for k in (2, 3, 4)]
    if n == 2:
        return second / (m - 1.0)
    if n == 3:
        return m * third / ((m - 1.0) * (m - 2.0))
    return (m * (m + 1.0) * fourth - 3.0 * (m - 1.0) * square(second)) / ((m - 1.0) * (m - 2.0) * (m - 3.0))


@statistic
def kstatvar(data, n=2, *, axis=None, nan_policy="propagate", keepdims=False):
    x, axis = sample_array(data, axis, nan_policy)
    m, given = shape(x)[axis] * 1.0, {"axis": axis, "keepdims": keepdims}
    if n == 1:
        return kstat(x, 2, **given) / m
    if n != 2:
        raise ValueError("Only n=1 or n=2 supported.")
    return (2.0 * m * square(kstat(x, 2, **given)) + (m - 1.0) * kstat(x, 4, **given)) / (m * (m + 1.0))


@statistic
def lmoment(sample, order=None, *, axis=0, sorted=False, standardize=True, nan_policy="propagate", keepdims=False):
    """Moments of the order statistics, as weighted means of them."""
    x, axis = sample_of(sample, axis, nan_policy)
    x = moveaxis(x, axis, -1)
    order = np.asarray([1, 2, 3, 4] if order is None else order)
    n, most = shape(x)[-1], int(order.max())
    k = np.arange(most)
    beta = sp.binom(np.arange(n), k[:, None]) / sp.binom(n - 1, k)[:, None] / n
    legendre = (-1.0) ** (k[:, None] - k) * sp.binom(k[:, None], k) * sp.binom(k[:, None] + k, k)
    y = moveaxis(matmul(x if sorted else sort(x, -1), (legendre @ beta).T), -1, 0)
    if standardize and most > 2:
        y = concatenate(y[:2], y[2:] / y[1])
    y = y[order - 1]
    return y if not keepdims else reshape(y, to=(*np.shape(order), *[1 if j == axis else m for j, m in enumerate(shape(sample))]))


def spacing(x: Any, m: int) -> Any:
    """x_(i+m) - x_(i-m), with the first and last repeated."""
    n = shape(x)[-1]
    at = lambda by: x[..., np.clip(np.arange(n) + by, 0, n - 1)]
    return at(m) - at(-m)


def correa(x: Any, m: int) -> Any:
    n, by = shape(x)[-1], np.arange(-m, m + 1)[:, None]
    near = x[..., np.clip(np.arange(n) + by, 0, n - 1)]
    e = near - red.mean(near, -2, keepdims=True)
    return -red.mean(log(red.sum(e * by, -2) / (n * red.sum(square(e), -2))), -1)


@statistic
def differential_entropy(values, *, window_length=None, base=None, axis=0, method="auto", nan_policy="propagate", keepdims=False):
    x, axis = sample_array(values, axis, nan_policy)
    x = sort(moveaxis(x, axis, -1), -1)
    n = shape(x)[-1]
    m = math.floor(math.sqrt(n) + 0.5) if window_length is None else int(window_length)
    if not 2 <= 2 * m < n:
        raise ValueError(f"Window length ({m}) must be positive and less than half the sample size ({n}).")
    method = method.lower()
    method = ("van es" if n <= 10 else "ebrahimi" if n <= 1000 else "vasicek") if method == "auto" else method
    if method == "van es":
        y = red.mean(log((n + 1.0) / m * (x[..., m:] - x[..., :-m])), -1) + np.sum(1.0 / np.arange(m, n + 1)) + math.log(m / (n + 1.0))
    elif method == "correa":
        y = correa(x, m)
    elif method in ("vasicek", "ebrahimi"):
        i = np.arange(1, n + 1)
        c = np.full(n, 2.0)
        if method == "ebrahimi":
            c = np.where(i <= m, 1 + (i - 1) / m, c)
            c = np.where(i >= n - m + 1, 1 + (n - i) / m, c)
        y = red.mean(log(n / (c * m) * spacing(x, m)), -1)
    else:
        raise ValueError("`method` must be one of 'auto', 'vasicek', 'van es', 'ebrahimi', 'correa'")
    y = y if base is None else y / math.log(base)
    return reshape(y, to=[1 if j == axis else k for j, k in enumerate(shape(values))]) if keepdims else y


@statistic
def expectile(a, alpha=0.5, *, weights=None):
    """Its weights are those on either side of it, which are constants but for alpha; the place is SciPy's."""
    a = array_argument(a)
    w = np.ones(shape(a)) if weights is None else array_argument(weights)
    plain = [np.asarray(values_of(x)) for x in (a, alpha, w)]
    place = scipy_stats().expectile(plain[0], float(plain[1]), weights=np.broadcast_to(plain[2], plain[0].shape))
    c = w * select(plain[0] <= place, 1.0 - alpha, alpha * 1.0)
    return red.sum(c * a) / red.sum(c + 0.0 * a)


# --- parts of a sample ---


METHODS = {"fraction": "linear", "lower": "lower", "higher": "higher"}


@statistic
def scoreatpercentile(a, per, limit=(), interpolation_method="fraction", axis=None):
    x = array_argument(a)
    if len(limit):
        plain = values_of(x)
        x = x[np.nonzero((limit[0] <= plain) & (plain <= limit[1]))]
    return quantile_of(x, array_argument(per) / 100.0, axis, method=METHODS[interpolation_method])


@statistic
def quantile(x, p, *, method="linear", axis=0, nan_policy="propagate", keepdims=None, weights=None):
    """The quantiles stand along `axis`, as SciPy has them."""
    x, axis = sample_array(x, axis, nan_policy)
    p = array_argument(p)
    if ndim(p) > 1 or weights is not None or method.startswith("round") or method == "harrell-davis":
        raise ArgumentError(
            "scipy.stats.quantile: with p of more axes, weights= and methods of SciPy's own is not supported on a tracked Variable; "
            "write numpy.quantile"
        )
    y = quantile_of(x, p, axis, method=method, keepdims=ndim(p) == 0 and bool(keepdims))
    return moveaxis(y, 0, axis) if ndim(p) == 1 else y


# --- slopes ---

TheilslopesResult = namedtuple("TheilslopesResult", "slope intercept low_slope high_slope")
SiegelslopesResult = namedtuple("SiegelslopesResult", "slope intercept")


def points(y: Any, x: Any) -> tuple:
    y = reshape(array_argument(y), to=(-1,)) * 1.0
    x = np.arange(shape(y)[0]) * 1.0 if x is None else reshape(array_argument(x), to=(-1,)) * 1.0
    if shape(x) != shape(y) or shape(x)[0] < 2:
        raise ValueError("`x` and `y` must have the same length, at least 2")
    return y, x


@statistic
def theilslopes(y, x=None, alpha=0.95, method="separate"):
    y, x = points(y, x)
    i, j = np.nonzero(np.subtract.outer(*[np.asarray(values_of(x))] * 2) > 0)
    slopes = sort((y[i] - y[j]) / (x[i] - x[j]))
    found = scipy_stats().theilslopes(values_of(y), values_of(x), alpha, method)
    ends = [slopes[int(np.argmin(abs(values_of(slopes) - z)))] for z in found[2:]]
    slope = median(slopes)
    rest = median(y - slope * x) if method == "joint" else median(y) - slope * median(x)
    return TheilslopesResult(slope, rest, *ends)


@statistic
def siegelslopes(y, x=None, method="hierarchical"):
    y, x = points(y, x)
    if method not in ("hierarchical", "separate"):
        raise ValueError("method can only be 'hierarchical' or 'separate'")
    apart = np.subtract.outer(*[np.asarray(values_of(x))] * 2) != 0
    others = [np.nonzero(row)[0] for row in apart]
    slope = median(stack([median((y[k] - y[j]) / (x[k] - x[j])) for j, k in enumerate(others)]))
    if method == "hierarchical":
        return SiegelslopesResult(slope, median(y - slope * x))
    starts = [median((y[k] * x[j] - y[j] * x[k]) / (x[j] - x[k])) for j, k in enumerate(others)]
    return SiegelslopesResult(slope, median(stack(starts)))


# --- of a mean, variance and deviation, by Bayes ---


Mean, Variance, Deviation = [namedtuple(name, "statistic minmax") for name in ("Mean", "Variance", "Std_dev")]


@statistic
def bayes_mvs(data, alpha=0.90):
    """Of laws that move and stretch with mean and deviation: standard means and intervals."""
    x = reshape(array_argument(data), to=(-1,))
    n, laws = shape(x)[0], scipy_stats()
    mean, c = red.mean(x), red.var(x)
    if n > 1000:
        standard, places = [laws.norm()] * 3, (mean, c, sqrt(c))
        scales = sqrt(c / n), math.sqrt(2.0 / n) * c, sqrt(c / (2.0 * n))
    else:
        val = 0.5 * (n - 1.0)
        standard, places = (laws.t(n - 1), laws.invgamma(val), laws.gengamma(val, -2)), (mean, 0.0, 0.0)
        scales = sqrt(c / (n - 1.0)), 0.5 * n * c, sqrt(0.5 * n * c)
    found = []
    for kind, law, place, scale in zip((Mean, Variance, Deviation), standard, places, scales, strict=True):
        low, high = law.interval(alpha)
        found.append(kind(place + scale * law.mean(), (place + scale * low, place + scale * high)))
    return tuple(found)


# --- probability plots, and the parameters by which a transformed sample is nearest to a law ---


def medians(n: int) -> np.ndarray:
    """Filliben's estimate of the medians of the uniform order statistics."""
    v = (np.arange(1, n + 1) - 0.3175) / (n + 0.365)
    v[-1] = 0.5 ** (1.0 / n)
    v[0] = 1.0 - v[-1]
    return v


def no_plot(name: str, plot: Any) -> None:
    if plot is not None:
        raise ArgumentError(f"scipy.stats.{name}: plot= is not supported on a tracked Variable; draw what it gives")


@statistic
def probplot(x, sparams=(), dist="norm", fit=True, plot=None, rvalue=False):
    no_plot("probplot", plot)
    x = array_argument(x)
    law = getattr(scipy_stats(), dist) if isinstance(dist, str) else dist
    shapes = () if sparams is None else sparams if isinstance(sparams, tuple) else tuple(np.atleast_1d(sparams))
    at, y = law.ppf(medians(shape(x)[0]), *shapes), sort(x)
    return ((at, y), tuple(linregress(at, y)[:3])) if fit else (at, y)


def correlations(x: Any, grid: np.ndarray, transformed: Any, places: Any) -> tuple:
    return grid, stack([linregress(places(s), sort(transformed(x, s)))[2] for s in grid.tolist()])


def normplot(name: str, transformed: Any) -> Any:
    def of(x, la, lb, plot=None, N=80):
        no_plot(name, plot)
        x = array_argument(x)
        at = scipy_stats().norm.ppf(medians(shape(x)[0]))
        return correlations(x, np.linspace(la, lb, N), transformed, lambda s: at)

    of.__name__ = name
    return statistic(of)


boxcox_normplot = normplot("boxcox_normplot", boxcox_of)
yeojohnson_normplot = normplot("yeojohnson_normplot", yeojohnson)


@statistic
def ppcc_plot(x, a, b, dist="tukeylambda", plot=None, N=80):
    no_plot("ppcc_plot", plot)
    x = array_argument(x)
    law, at = getattr(scipy_stats(), dist) if isinstance(dist, str) else dist, medians(shape(x)[0])
    return correlations(x, np.linspace(a, b, N), lambda x, s: x, lambda s: law.ppf(at, s))


def solve_score(score: Any, start: float, x: Any) -> Any:
    """The root of score(s, x) that SciPy found: each of these steps of Newton, whose slope is a constant, has
    one order of its derivatives more, and what the slope lacks is multiplied once more."""
    plain, h = primal_of(x), 1e-4
    slope = (score(start + h, plain) - score(start - h, plain)) / (2.0 * h)
    s = start + 0.0 * primal_of(red.sum(x))
    for _ in range(6):
        s = s - score(s, x) / slope
    return s


def bent(u: Any, s: Any, k: int) -> Any:
    """The derivative of order k by s of (exp(s u) - 1) / s."""
    return power(u, k + 1) * exprel_n(s * u, n=k)


def yeo_parts(s: Any, x: Any, k: int) -> Any:
    """The same of the transformation of Yeo and Johnson."""
    right = primal_of(x) >= 0
    u = log1p(absolute(x))
    return select(right, bent(u, s, k), -((-1.0) ** k) * bent(u, 2.0 - s, k))


def likelihood_score(parts: Any, x: Any, jacobian: Any) -> Any:
    """The derivative by s of the log likelihood, over the size of the sample."""
    y, dy = parts(0), parts(1)
    e = y - red.mean(y)
    return red.mean(jacobian) - red.mean(e * dy) / red.mean(square(e))


def correlation_score(at: Any, y: Any, dy: Any) -> Any:
    """The derivative of the correlation of `at` and y, but for a positive factor."""
    at, e = at - red.mean(at), y - red.mean(y)
    return red.mean(at * dy) * red.mean(square(e)) - red.mean(at * e) * red.mean(e * dy)


@statistic
def boxcox_normmax(x, brack=None, method="pearsonr", optimizer=None, *, ymax=None):
    if optimizer is not None or ymax is not None or method not in ("pearsonr", "mle", "all"):
        raise ArgumentError("scipy.stats.boxcox_normmax: optimizer= and ymax= are not supported on a tracked Variable")
    x = array_argument(x)
    start = np.atleast_1d(scipy_stats().boxcox_normmax(np.asarray(values_of(x)), brack, method))
    at = scipy_stats().norm.ppf(medians(shape(x)[0]))
    u = log(x)

    def by_correlation(s, u):
        v = sort(u)
        return correlation_score(at, bent(v, s, 0), bent(v, s, 1))

    def by_likelihood(s, u):
        return likelihood_score(lambda k: bent(u, s, k), u, u)

    scores = {"pearsonr": [by_correlation], "mle": [by_likelihood], "all": [by_correlation, by_likelihood]}[method]
    found = [solve_score(f, float(s), u) for f, s in zip(scores, start, strict=True)]
    return stack(found) if method == "all" else found[0]


@statistic
def yeojohnson_normmax(x, brack=None):
    x = array_argument(x)
    start = float(scipy_stats().yeojohnson_normmax(np.asarray(values_of(x)), brack))
    signs = np.where(np.asarray(values_of(x)) >= 0, 1.0, -1.0)
    score = lambda s, x: likelihood_score(lambda k: yeo_parts(s, x, k), x, signs * log1p(absolute(x)))
    return solve_score(score, start, x)


@statistic
def ppcc_max(x, brack=(0.0, 1.0), dist="tukeylambda"):
    if dist != "tukeylambda":
        raise ArgumentError("scipy.stats.ppcc_max: of dist='tukeylambda' only on a tracked Variable")
    x = array_argument(x)
    start = float(scipy_stats().ppcc_max(np.asarray(values_of(x)), brack))
    at = medians(shape(x)[0])
    part = lambda s, k: bent(np.log(at), s, k) - bent(np.log1p(-at), s, k)
    return solve_score(lambda s, x: correlation_score(sort(x), part(s, 0), part(s, 1)), start, x)


# --- histograms ---

CumfreqResult = namedtuple("CumfreqResult", "cumcount lowerlimit binsize extrapoints")
RelfreqResult = namedtuple("RelfreqResult", "frequency lowerlimit binsize extrapoints")


def histogram_counts(a: Any, numbins: int, limits: Any, weights: Any) -> tuple:
    """(..., the number of values, or from SciPy 1.18 on the sum of the weights).  Counts are constants, by
    weights they are linear; the bins move with the ends of the sample."""
    a = reshape(array_argument(a), to=(-1,))
    if limits is None:
        low, high = red.amin(a), red.amax(a)
        rest = (high - low) / (2.0 * (numbins - 1.0))
        limits = low - rest, high + rest
    plain = [float(values_of(x)) for x in limits]
    at = np.asarray(values_of(a))
    edges = np.histogram_bin_edges(at, numbins, plain)
    cells = np.searchsorted(edges, at, "right") - 1
    cells = np.where(at == edges[-1], numbins - 1, cells)
    w = np.ones(len(at)) if weights is None else array_argument(weights)
    y = matmul(w * 1.0, (cells[:, None] == np.arange(numbins)) * 1.0)
    outside = int(np.sum((at < plain[0]) | (at > plain[1])))
    return y, limits[0], (limits[1] - limits[0]) / numbins, outside, shape(a)[0] if weights is None or not SINCE_18 else red.sum(w)


@statistic
def cumfreq(a, numbins=10, defaultreallimits=None, weights=None):
    y, low, size, outside, _ = histogram_counts(a, numbins, defaultreallimits, weights)
    return CumfreqResult(red.cumsum(y), low, size, outside)


@statistic
def relfreq(a, numbins=10, defaultreallimits=None, weights=None):
    y, low, size, outside, n = histogram_counts(a, numbins, defaultreallimits, weights)
    return RelfreqResult(y / n, low, size, outside)
