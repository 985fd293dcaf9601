"""Statistics of samples, and densities estimated from them, under the names of scipy.stats; and laws of
vectors and matrices."""

import builtins
import math
from collections import namedtuple
from typing import Any

import numpy as np

from .._core.errors import ArgumentError, NoRuleError
from .._core.lent_memory import lend
from .._core.primitive import any_tracked, is_tracked, primal_of
from .._core.registry import load
from ..ops import reductions as red
from ..ops.declare import ndim, shape
from ..ops.elementwise import absolute, cos, exp, log, log1p, power, select, sin, sqrt, square
from ..ops.linalg.factorizations import cholesky, solve_triangular
from ..ops.piecewise import arctan2, hypot
from ..ops.products import column, matmul, row_vector
from ..ops.shaping import conj, nested_to_array, reshape, slice_of
from ..ops.sorting import sort
from ..ops.special import distribution_functions, integrals
from ..ops.special import incomplete as inc
from ..ops.special.declare import where_tracked
from ..ops.special.error_functions import entr, rel_entr
from ..ops.statistics import median, quantile
from ._families import array_argument, scipy_stats

OURS: dict = {}  # scipy.stats' name -> ours


def statistic(f):
    """f where something is tracked, else SciPy's own."""
    OURS[f.__name__] = where_tracked(f, lambda: getattr(scipy_stats(), f.__name__))
    return f


def follow(name: str) -> Any:
    """SciPy's own code where something is tracked."""
    theirs = getattr(scipy_stats(), name)
    OURS[name] = where_tracked(FOLLOWED.function(theirs), lambda: theirs)
    return OURS[name]


FOLLOWED = load("tapegrad._scipy.followed").Follower("scipy.stats")
for _name in """
    binned_statistic binned_statistic_2d binned_statistic_dd directional_stats energy_distance mvsdist obrientransform
    sigmaclip trim1 trimboth ttest_ind_from_stats wasserstein_distance
""".split():
    follow(_name)


def sample_array(a: Any, axis: Any, nan_policy: str) -> tuple:
    if nan_policy != "propagate":
        raise ArgumentError(f"scipy.stats: nan_policy={nan_policy!r} is not supported on a tracked Variable; leave the nan out")
    a = array_argument(a)
    return (reshape(a, to=(-1,)), 0) if axis is None else (a, axis)


def centred(a: Any, order: int, axis: Any, keepdims: bool = False, center: Any = None) -> Any:
    d = a - (red.mean(a, axis, keepdims=True) if center is None else center)
    return red.mean(math.prod([d] * order) if order else 0.0 * d + 1.0, axis, keepdims=keepdims)


@statistic
def moment(a, order=1, axis=0, nan_policy="propagate", *, center=None, keepdims=False):
    a, axis = sample_array(a, axis, nan_policy)
    if np.ndim(order):
        return nested_to_array([centred(a, int(k), axis, keepdims, center) for k in order])
    return centred(a, int(order), axis, keepdims, center)


@statistic
def skew(a, axis=0, bias=True, nan_policy="propagate", *, keepdims=False):
    a, axis = sample_array(a, axis, nan_policy)
    n = shape(a)[axis]
    g = centred(a, 3, axis, keepdims) / power(centred(a, 2, axis, keepdims), 1.5)
    return g if bias or n < 3 else g * math.sqrt(n * (n - 1.0)) / (n - 2.0)


@statistic
def kurtosis(a, axis=0, fisher=True, bias=True, nan_policy="propagate", *, keepdims=False):
    a, axis = sample_array(a, axis, nan_policy)
    n = shape(a)[axis]
    g = centred(a, 4, axis, keepdims) / square(centred(a, 2, axis, keepdims))
    if not bias and n > 3:
        g = (n * n - 1.0) / ((n - 2.0) * (n - 3.0)) * g - 3.0 * (n - 1.0) ** 2 / ((n - 2.0) * (n - 3.0)) + 3.0
    return g - 3.0 if fisher else g


@statistic
def zmap(scores, compare, axis=0, ddof=0, nan_policy="propagate"):
    c, ax = sample_array(compare, axis, nan_policy)
    keep = axis is not None
    return (array_argument(scores) - red.mean(c, ax, keepdims=keep)) / red.std(c, ax, ddof=ddof, keepdims=keep)


@statistic
def zscore(a, axis=0, ddof=0, nan_policy="propagate"):
    return zmap(a, a, axis, ddof, nan_policy)


@statistic
def gzscore(a, *, axis=0, ddof=0, nan_policy="propagate"):
    return zscore(log(array_argument(a)), axis, ddof, nan_policy)


@statistic
def gstd(a, axis=0, ddof=1, *, keepdims=False, nan_policy="propagate"):
    a, axis = sample_array(a, axis, nan_policy)
    return exp(red.std(log(a), axis, ddof=ddof, keepdims=keepdims))


def averaged(a, axis, weights, keepdims):
    return red.mean(a, axis, keepdims=keepdims) if weights is None else red.average(a, axis, array_argument(weights), keepdims=keepdims)


@statistic
def gmean(a, axis=0, weights=None, *, nan_policy="propagate", keepdims=False):
    a, axis = sample_array(a, axis, nan_policy)
    return exp(averaged(log(a), axis, weights, keepdims))


@statistic
def hmean(a, axis=0, *, weights=None, nan_policy="propagate", keepdims=False):
    a, axis = sample_array(a, axis, nan_policy)
    return 1.0 / averaged(1.0 / a, axis, weights, keepdims)


@statistic
def pmean(a, p, *, axis=0, weights=None, nan_policy="propagate", keepdims=False):
    if not is_tracked(p) and p == 0:
        return gmean(a, axis, weights=weights, nan_policy=nan_policy, keepdims=keepdims)
    a, axis = sample_array(a, axis, nan_policy)
    return power(averaged(power(a, p), axis, weights, keepdims), 1.0 / p)


@statistic
def sem(a, axis=0, ddof=1, nan_policy="propagate", *, keepdims=False):
    a, axis = sample_array(a, axis, nan_policy)
    return red.std(a, axis, ddof=ddof, keepdims=keepdims) / math.sqrt(shape(a)[axis])


@statistic
def variation(a, axis=0, nan_policy="propagate", ddof=0, *, keepdims=False):
    a, axis = sample_array(a, axis, nan_policy)
    return red.std(a, axis, ddof=ddof, keepdims=keepdims) / red.mean(a, axis, keepdims=keepdims)


@statistic
def entropy(pk, qk=None, base=None, axis=0, *, nan_policy="propagate", keepdims=False):
    p, axis = sample_array(pk, axis, nan_policy)
    p = p / red.sum(p, axis, keepdims=True)
    if qk is None:
        s = red.sum(entr(p), axis, keepdims=keepdims)
    else:
        q, _ = sample_array(qk, axis, nan_policy)
        s = red.sum(rel_entr(p, q / red.sum(q, axis, keepdims=True)), axis, keepdims=keepdims)
    return s if base is None else s / log(array_argument(base) * 1.0)


Correlation = namedtuple("PearsonRResult", "statistic pvalue")


@statistic
def pearsonr(x, y, *, alternative="two-sided", method=None, axis=0):
    if alternative != "two-sided" or method is not None:
        raise ArgumentError("scipy.stats.pearsonr: alternative= and method= are not supported on a tracked Variable")
    (x, axis), (y, _) = sample_array(x, axis, "propagate"), sample_array(y, axis, "propagate")
    u, v = x - red.mean(x, axis, keepdims=True), y - red.mean(y, axis, keepdims=True)
    r = red.sum(u * v, axis) / sqrt(red.sum(u * u, axis) * red.sum(v * v, axis))
    half = 0.5 * shape(x)[axis] - 1.0
    return Correlation(r, 2.0 * inc.betainc(half, half, 0.5 * (1.0 - absolute(r))))


@statistic
def trim_mean(a, proportiontocut, axis=0):
    a, axis = sample_array(a, axis, "propagate")
    n = shape(a)[axis]
    cut = int(proportiontocut * n)
    return red.mean(slice_of(sort(a, axis), axis=axis % ndim(a), start=cut, stop=n - cut), axis)


@statistic
def iqr(x, axis=None, rng=(25, 75), scale=1.0, nan_policy="propagate", interpolation="linear", keepdims=False):
    x, axis = sample_array(x, axis, nan_policy)
    if isinstance(scale, str):
        raise ArgumentError(f"scipy.stats.iqr: scale={scale!r} is not supported on a tracked Variable; give a number")
    low, high = sorted(rng)
    a, b = [quantile(x, q / 100.0, axis, method=interpolation, keepdims=keepdims) for q in (low, high)]
    return (b - a) / scale


@statistic
def median_abs_deviation(x, axis=0, center=None, scale=1.0, nan_policy="propagate"):
    if center is not None or isinstance(scale, str):
        raise ArgumentError("scipy.stats.median_abs_deviation: center= and scale= as a text are not supported on a tracked Variable")
    x, axis = sample_array(x, axis, nan_policy)
    return median(absolute(x - median(x, axis, keepdims=True)), axis) / scale


# --- moments without limits ---


def without_limits(name: str, limits: Any) -> None:
    if limits is not None:
        raise ArgumentError(f"scipy.stats.{name}: limits= is not supported on a tracked Variable; select the elements before")


@statistic
def tmean(a, limits=None, inclusive=(True, True), axis=None, *, nan_policy="propagate", keepdims=False):
    without_limits("tmean", limits)
    a, axis = sample_array(a, axis, nan_policy)
    return red.mean(a, axis, keepdims=keepdims)


@statistic
def tvar(a, limits=None, inclusive=(True, True), axis=0, ddof=1, *, nan_policy="propagate", keepdims=False):
    without_limits("tvar", limits)
    a, axis = sample_array(a, axis, nan_policy)
    return red.var(a, axis, ddof=ddof, keepdims=keepdims)


@statistic
def tstd(a, limits=None, inclusive=(True, True), axis=0, ddof=1, *, nan_policy="propagate", keepdims=False):
    return sqrt(tvar(a, limits, inclusive, axis, ddof, nan_policy=nan_policy, keepdims=keepdims))


@statistic
def tsem(a, limits=None, inclusive=(True, True), axis=0, ddof=1, *, nan_policy="propagate", keepdims=False):
    n = shape(sample_array(a, axis, nan_policy)[0])[0 if axis is None else axis]
    return tstd(a, limits, inclusive, axis, ddof, nan_policy=nan_policy, keepdims=keepdims) / math.sqrt(n)


@statistic
def tmin(a, lowerlimit=None, axis=0, inclusive=True, nan_policy="propagate", *, keepdims=False):
    without_limits("tmin", lowerlimit)
    a, axis = sample_array(a, axis, nan_policy)
    return red.amin(a, axis, keepdims=keepdims)


@statistic
def tmax(a, upperlimit=None, axis=0, inclusive=True, nan_policy="propagate", *, keepdims=False):
    without_limits("tmax", upperlimit)
    a, axis = sample_array(a, axis, nan_policy)
    return red.amax(a, axis, keepdims=keepdims)


# --- tests of means, and a line through points ---

TtestResult = namedtuple("TtestResult", "statistic pvalue df")


def t_test(name: str, difference: Any, error: Any, df: Any, alternative: str) -> TtestResult:
    t = difference / error
    if alternative == "two-sided":
        p = 2.0 * inc.stdtr(df + 0.0 * t, -absolute(t))
    elif alternative in ("less", "greater"):
        p = inc.stdtr(df + 0.0 * t, t if alternative == "less" else -t)
    else:
        raise ValueError("`alternative` must be 'less', 'greater', or 'two-sided'.")
    return TtestResult(t, p, df)


def error_of_two(u: Any, n: Any, v: Any, m: Any, equal_var: bool) -> tuple:
    """The standard error of the difference of two means, of n and m numbers with the variances u and v, and
    its degrees of freedom (Welch's, where the variances are not taken for equal)."""
    if equal_var:
        df = n + m - 2.0
        return sqrt(((n - 1) * u + (m - 1) * v) / df * (1.0 / n + 1.0 / m)), df
    a, b = u / n, v / m
    return sqrt(a + b), square(a + b) / (square(a) / (n - 1) + square(b) / (m - 1))


@statistic
def ttest_1samp(a, popmean, axis=0, nan_policy="propagate", alternative="two-sided"):
    a, axis = sample_array(a, axis, nan_policy)
    n = shape(a)[axis]
    return t_test("ttest_1samp", red.mean(a, axis) - popmean, red.std(a, axis, ddof=1) / math.sqrt(n), n - 1.0, alternative)


@statistic
def ttest_rel(a, b, axis=0, nan_policy="propagate", alternative="two-sided"):
    return ttest_1samp(array_argument(a) - array_argument(b), 0.0, axis, nan_policy, alternative)


@statistic
def ttest_ind(a, b, *, axis=0, equal_var=True, nan_policy="propagate", alternative="two-sided", trim=0, method=None):
    if trim or method is not None:
        raise ArgumentError("scipy.stats.ttest_ind: trim= and method= are not supported on a tracked Variable")
    (a, axis), (b, _) = sample_array(a, axis, nan_policy), sample_array(b, axis, nan_policy)
    n, m = shape(a)[axis], shape(b)[axis]
    u, v = red.var(a, axis, ddof=1), red.var(b, axis, ddof=1)
    return t_test("ttest_ind", red.mean(a, axis) - red.mean(b, axis), *error_of_two(u, n, v, m, equal_var), alternative)


class LinregressResult(namedtuple("LinregressResult", "slope intercept rvalue pvalue stderr")):
    """SciPy's five values, and the error of the intercept, which is not among them."""

    intercept_stderr: Any = None


@statistic
def linregress(x, y, alternative="two-sided"):
    x, y = array_argument(x), array_argument(y)
    n = shape(x)[0]
    u, v = x - red.mean(x), y - red.mean(y)
    xx, xy, yy = red.mean(u * u), red.mean(u * v), red.mean(v * v)
    slope, r = xy / xx, xy / sqrt(xx * yy)
    error = sqrt((1.0 - r * r) * yy / xx / (n - 2.0))
    p = t_test("linregress", slope, error, n - 2.0, alternative).pvalue
    line = LinregressResult(slope, red.mean(y) - slope * red.mean(x), r, p, error)
    line.intercept_stderr = error * sqrt(xx + square(red.mean(x)))
    return line


F_onewayResult = namedtuple("F_onewayResult", "statistic pvalue")


@statistic
def f_oneway(*samples, axis=0, equal_var=True, nan_policy="propagate"):
    if not equal_var:
        raise ArgumentError("scipy.stats.f_oneway: equal_var=False is not supported on a tracked Variable")
    groups = [sample_array(s, axis, nan_policy)[0] for s in samples]
    sizes = [shape(g)[axis] for g in groups]
    n, k = builtins.sum(sizes), len(groups)
    means = [red.mean(g, axis, keepdims=True) for g in groups]
    whole = builtins.sum([m * size for m, size in zip(means[1:], sizes[1:], strict=True)], means[0] * sizes[0]) / n
    between = builtins.sum(
        [size * square(m - whole) for m, size in zip(means[1:], sizes[1:], strict=True)], sizes[0] * square(means[0] - whole)
    )
    inner = [red.sum(square(g - m), axis) for g, m in zip(groups, means, strict=True)]
    f = red.sum(between, axis) / (k - 1.0) / (builtins.sum(inner[1:], inner[0]) / (n - k))
    return F_onewayResult(f, distribution_functions.fdtrc(k - 1.0, n - k + 0.0, f))


SignificanceResult = namedtuple("SignificanceResult", "statistic pvalue")


@statistic
def jarque_bera(x, *, axis=None, nan_policy="propagate"):
    x, axis = sample_array(x, axis, nan_policy)
    s = shape(x)[axis] / 6.0 * (square(skew(x, axis)) + 0.25 * square(kurtosis(x, axis)))
    return SignificanceResult(s, exp(-0.5 * s))


# --- angles ---


def resultant(samples, high, low, axis, nan_policy):
    x, axis = sample_array(samples, axis, nan_policy)
    angle = (x - low) * (2 * math.pi / (high - low))
    return red.mean(sin(angle), axis), red.mean(cos(angle), axis)


@statistic
def circmean(samples, high=2 * math.pi, low=0, axis=None, nan_policy="propagate"):
    s, c = resultant(samples, high, low, axis, nan_policy)
    angle = arctan2(s, c)
    angle = select(primal_of(angle) < 0, angle + 2 * math.pi, angle)
    return angle * ((high - low) / (2 * math.pi)) + low


@statistic
def circvar(samples, high=2 * math.pi, low=0, axis=None, nan_policy="propagate"):
    return 1.0 - hypot(*resultant(samples, high, low, axis, nan_policy))


@statistic
def circstd(samples, high=2 * math.pi, low=0, axis=None, nan_policy="propagate", *, normalize=False):
    r = sqrt(-2.0 * log(hypot(*resultant(samples, high, low, axis, nan_policy))))
    return r if normalize else r * ((high - low) / (2 * math.pi))


# --- transformations to normality, by their parameter and by the data ---

boxcox, yeojohnson = follow("boxcox"), follow("yeojohnson")


@statistic
def boxcox_llf(lmb, data, *, axis=0, keepdims=False, nan_policy="propagate"):
    data, axis = sample_array(data, axis, nan_policy)
    y = integrals.boxcox(data, lmb)
    total = (lmb - 1.0) * red.sum(log(data), axis, keepdims=keepdims)
    return total - 0.5 * shape(data)[axis] * log(red.var(y, axis, keepdims=keepdims))


@statistic
def yeojohnson_llf(lmb, data, *, axis=0, nan_policy="propagate", keepdims=False):
    data, axis = sample_array(data, axis, nan_policy)
    y = yeojohnson(data, lmb)
    up = primal_of(data) >= 0
    total = (lmb - 1.0) * red.sum(select(up, 1.0, -1.0) * log1p(absolute(data)), axis, keepdims=keepdims)
    return total - 0.5 * shape(data)[axis] * log(red.var(y, axis, keepdims=keepdims))


# --- a density estimated from a sample ---


class GaussianKDE:
    """scipy.stats.gaussian_kde of data that may be tracked, at points that may be; without either it is
    SciPy's own that answers."""

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None):
        self._given = (dataset, bw_method, weights)
        self._theirs = None if any_tracked(self._given) else scipy_stats().gaussian_kde(*lend(self._given))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._theirs is not None:
            return getattr(self._theirs, name)
        parts = self._parts()
        if name not in parts:
            raise NoRuleError(
                f"scipy.stats.gaussian_kde(...).{name} of tracked data has no derivative rule in tapegrad; cut it with tapegrad.value"
            )
        return parts[name]

    def _parts(self) -> dict:
        given, method, weights = self._given
        data = array_argument(given)
        data = data if ndim(data) == 2 else reshape(data, to=(1, -1))
        d, n = shape(data)
        if weights is None:
            w, neff = np.full(n, 1.0 / n), float(n)
        else:
            w = array_argument(weights)
            w = w / red.sum(w)
            neff = 1.0 / red.sum(square(w))
        if method is None or method == "scott":
            factor = power(neff, -1.0 / (d + 4))
        elif method == "silverman":
            factor = power(neff * (d + 2.0) / 4.0, -1.0 / (d + 4))
        elif callable(method):
            raise ArgumentError(
                "scipy.stats.gaussian_kde: bw_method= as a function is not supported on a tracked Variable; give its number"
            )
        else:
            factor = array_argument(method) * 1.0
        e = data - red.sum(data * row_vector(w), 1, keepdims=True)
        covariance = matmul(e * row_vector(w), conj(e).T) / (1.0 - red.sum(square(w))) * square(factor)
        return {"dataset": data, "d": d, "n": n, "weights": w, "neff": neff, "factor": factor, "covariance": covariance}

    def logpdf(self, x: Any) -> Any:
        if self._theirs is not None and not any_tracked((x,)):
            return self._theirs.logpdf(lend(x))
        of = self._parts()
        d, n, chol = of["d"], of["n"], cholesky(of["covariance"])
        points = array_argument(x)
        points = points if ndim(points) == 2 else reshape(points if ndim(points) else points * np.ones(1), to=(d, -1))
        u, v = [solve_triangular(chol, m, 0, True) for m in (of["dataset"], points)]
        far = red.sum(square(reshape(u, to=(d, n, 1)) - reshape(v, to=(d, 1, -1))), 0)
        norm = 0.5 * d * math.log(2 * math.pi) + red.sum(log(red.sum(chol * np.eye(d), 1)))
        return red.logsumexp(column(log(of["weights"])) - 0.5 * far, 0) - norm

    def evaluate(self, points: Any) -> Any:
        if self._theirs is not None and not any_tracked((points,)):
            return self._theirs.evaluate(lend(points))
        return exp(self.logpdf(points))

    __call__ = pdf = evaluate


CLASSES = {"gaussian_kde": GaussianKDE}
