"""Tests of hypotheses: statistics and p-values under the names of scipy.stats."""

import builtins
import math
import warnings
from collections import namedtuple
from typing import Any

import numpy as np

from .._core.errors import ArgumentError
from .._core.primitive import primal_of, values_of
from ..ops import reductions as red
from ..ops.declare import SCIPY, ndim, shape
from ..ops.elementwise import absolute, arcsin, arcsinh, cos, exp, expm1, log, log1p, power, select, sin, sqrt, square
from ..ops.linalg.factorizations import inv
from ..ops.piecewise import maximum, minimum
from ..ops.products import column, matmul
from ..ops.shaping import concatenate, reshape, slice_of, stack
from ..ops.sorting import interp, sort
from ..ops.special import distribution_functions
from ..ops.special import incomplete as inc
from ..ops.special.bessel_relatives import kv
from ..ops.special.error_functions import ndtr, ndtri, xlogy
from ..ops.statistics import cov, median
from . import _classic, _continuous, _elementary, _integrated
from ._families import array_argument, scipy_stats
from ._statistics import iqr, kurtosis, pearsonr, sample_array, skew, statistic

Significance = namedtuple("SignificanceResult", "statistic pvalue")


def normal_tail(name: str, z: Any, alternative: str) -> Any:
    """The p-value of a standard normal statistic."""
    if alternative == "two-sided":
        return 2.0 * ndtr(-absolute(z))
    if alternative not in ("less", "greater"):
        raise ValueError(f"scipy.stats.{name}: `alternative` must be 'less', 'greater', or 'two-sided'.")
    return ndtr(z if alternative == "less" else -z)


def chi2_tail(df: Any, x: Any) -> Any:
    return distribution_functions.chdtrc(df + 0.0 * x, x)


def plain_method(name: str, method: Any) -> None:
    if method is not None:
        raise ArgumentError(f"scipy.stats.{name}: method= is not supported on a tracked Variable")


# --- of one sample: its shape ---


@statistic
def skewtest(a, axis=0, nan_policy="propagate", alternative="two-sided", *, keepdims=False):
    """D'Agostino (1970)."""
    a, axis = sample_array(a, axis, nan_policy)
    n = shape(a)[axis] * 1.0
    y = skew(a, axis, keepdims=keepdims) * math.sqrt((n + 1) * (n + 3) / (6.0 * (n - 2)))
    beta = 3.0 * (n * n + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2) * (n + 5) * (n + 7) * (n + 9))
    w = math.sqrt(2.0 * (beta - 1)) - 1.0
    z = arcsinh(y / math.sqrt(2.0 / (w - 1.0))) / math.sqrt(0.5 * math.log(w))
    return Significance(z, normal_tail("skewtest", z, alternative))


@statistic
def kurtosistest(a, axis=0, nan_policy="propagate", alternative="two-sided", *, keepdims=False):
    """Anscombe & Glynn (1983)."""
    a, axis = sample_array(a, axis, nan_policy)
    n = shape(a)[axis] * 1.0
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1) * (n + 1) * (n + 3) * (n + 5))
    x = (kurtosis(a, axis, fisher=False, keepdims=keepdims) - 3.0 * (n - 1) / (n + 1)) / math.sqrt(variance)
    b = 6.0 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * math.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    c = 6.0 + 8.0 / b * (2.0 / b + math.sqrt(1 + 4.0 / (b * b)))
    rest = 1 + x * math.sqrt(2.0 / (c - 4.0))
    root = select(primal_of(rest) < 0, -1.0, 1.0) * power((1 - 2.0 / c) / absolute(rest), 1.0 / 3.0)
    z = (1 - 2.0 / (9.0 * c) - root) / math.sqrt(2.0 / (9.0 * c))
    return Significance(z, normal_tail("kurtosistest", z, alternative))


@statistic
def normaltest(a, axis=0, nan_policy="propagate", *, keepdims=False):
    s, k = [f(a, axis, nan_policy, keepdims=keepdims)[0] for f in (skewtest, kurtosistest)]
    z = square(s) + square(k)
    return Significance(z, exp(-0.5 * z))


# --- of frequencies ---

POWERS = {
    "pearson": 1.0, "log-likelihood": 0.0, "freeman-tukey": -0.5, "mod-log-likelihood": -1.0, "neyman": -2.0, "cressie-read": 2.0 / 3.0,
}  # fmt: skip


@statistic
def power_divergence(f_obs, f_exp=None, ddof=0, axis=0, lambda_=None, *, keepdims=False, nan_policy="propagate", sum_check=True):
    f, axis = sample_array(f_obs, axis, nan_policy)
    e = red.mean(f, axis, keepdims=True) if f_exp is None else array_argument(f_exp)
    e = reshape(e, to=shape(f)) if ndim(e) > ndim(f) else e
    if f_exp is not None and sum_check:
        a, b = [values_of(red.sum(x + 0.0 * f, axis)) for x in (f, e)]
        if np.any(abs(a - b) > 1.5e-8 * np.minimum(a, b)):
            raise ValueError("scipy.stats: the sum of the observed frequencies must agree with the sum of the expected frequencies")
    k = POWERS[lambda_] if isinstance(lambda_, str) else 1.0 if lambda_ is None else lambda_
    if k == 1:
        terms = square(f - e) / e
    elif k in (0, -1):
        terms = 2.0 * (xlogy(f, f / e) if k == 0 else xlogy(e, e / f))
    else:
        terms = f * (power(f / e, k) - 1.0) / (0.5 * k * (k + 1.0))
    y = red.sum(terms, axis, keepdims=keepdims)
    return Significance(y, chi2_tail(shape(terms)[axis] - 1.0 - ddof, y))


@statistic
def chisquare(f_obs, f_exp=None, ddof=0, axis=0, *, sum_check=True, keepdims=False, nan_policy="propagate"):
    return power_divergence(f_obs, f_exp, ddof, axis, keepdims=keepdims, nan_policy=nan_policy, sum_check=sum_check)


Contingency = namedtuple("Chi2ContingencyResult", "statistic pvalue dof expected_freq")


@statistic
def chi2_contingency(observed, correction=True, lambda_=None, *, method=None):
    plain_method("chi2_contingency", method)
    o = array_argument(observed)
    n, total = ndim(o), red.sum(o)
    e = 1.0
    for k in range(n):
        e = e * red.sum(o, tuple([j for j in range(n) if j != k]), keepdims=True)
    e = e / power(total, n - 1.0)
    dof = math.prod(shape(o)) - builtins.sum(shape(o)) + n - 1
    if dof == 1 and correction:
        d = e - o
        o = o + minimum(0.5, absolute(d)) * np.sign(primal_of(d))
    y = power_divergence(o, e, math.prod(shape(o)) - 1 - dof, None, lambda_, sum_check=False) if dof else (0.0 * total, 1.0 + 0.0 * total)
    return Contingency(y[0], y[1], dof, e)


# --- of several samples: their variances and distributions ---


def f_tail(n: float, d: float, x: Any) -> Any:
    return distribution_functions.fdtrc(n + 0.0 * x, d + 0.0 * x, x)


@statistic
def bartlett(*samples, axis=0, nan_policy="propagate", keepdims=False):
    found = [sample_array(s, axis, nan_policy) for s in samples]
    n, k = [shape(x)[a] * 1.0 for x, a in found], len(found)
    total = builtins.sum(n) - k
    v = [red.var(x, a, ddof=1, keepdims=keepdims) for x, a in found]
    pooled = builtins.sum([(m - 1.0) / total * s for m, s in zip(n, v, strict=True)])
    y = total * log(pooled) - builtins.sum([(m - 1.0) * log(s) for m, s in zip(n, v, strict=True)])
    y = y / (1.0 + (builtins.sum([1.0 / (m - 1.0) for m in n]) - 1.0 / total) / (3.0 * (k - 1)))
    return Significance(maximum(y, 0.0), chi2_tail(k - 1.0, y))


@statistic
def levene(*samples, center="median", proportiontocut=0.05, axis=0, nan_policy="propagate", keepdims=False):
    centres = {
        "median": lambda x, a: median(x, a, keepdims=True), "mean": lambda x, a: red.mean(x, a, keepdims=True),
        "trimmed": lambda x, a: red.mean(trimmed(x, a), a, keepdims=True),
    }  # fmt: skip
    if center not in centres:
        raise ValueError("center must be 'mean', 'median' or 'trimmed'.")

    def trimmed(x, a):
        m = shape(x)[a]
        cut = int(proportiontocut * m)
        return slice_of(sort(x, a), axis=a % ndim(x), start=cut, stop=m - cut)

    found = [sample_array(s, axis, nan_policy) for s in samples]
    if center == "trimmed" and SCIPY < (1, 17):  # all that follows is of the trimmed samples
        found = [(trimmed(x, a), a) for x, a in found]
        center = "mean"
    z = [absolute(x - centres[center](x, a)) for x, a in found]
    axis = found[0][1]
    n, k = [shape(x)[axis] * 1.0 for x in z], len(z)
    means = [red.mean(x, axis, keepdims=True) for x in z]
    whole = builtins.sum([m * y for m, y in zip(n, means, strict=True)]) / builtins.sum(n)
    between = builtins.sum([m * square(y - whole) for m, y in zip(n, means, strict=True)])
    within = builtins.sum([red.sum(square(x - y), axis, keepdims=True) for x, y in zip(z, means, strict=True)])
    d = builtins.sum(n) - k
    w = red.sum(between * d / ((k - 1.0) * within), axis, keepdims=keepdims)
    return Significance(w, f_tail(k - 1.0, d, w))


@statistic
def epps_singleton_2samp(x, y, t=(0.4, 0.8), *, axis=0, nan_policy="propagate"):
    """By characteristic functions at t."""
    (x, _), (y, _) = sample_array(x, axis, nan_policy), sample_array(y, axis, nan_policy)
    if ndim(x) != 1 or ndim(y) != 1:
        raise ArgumentError("scipy.stats.epps_singleton_2samp: with samples of one axis only on a tracked Variable")
    n, m = shape(x)[0], shape(y)[0]
    at = np.reshape(t, (-1, 1)) / (0.5 * iqr(concatenate(x, y)))
    g, h = [concatenate(cos(at * z), sin(at * z)) for z in (x, y)]
    spread = (n + m) * (cov(g) * ((n - 1.0) / (n * n)) + cov(h) * ((m - 1.0) / (m * m)))
    d = red.mean(g, 1) - red.mean(h, 1)
    w = (n + m) * matmul(d, matmul(inv(spread), d))
    if max(n, m) < 25:
        w = w / (1.0 + (n + m) ** -0.45 + 10.1 * (n**-1.7 + m**-1.7))
    return Significance(w, chi2_tail(2.0 * np.size(t), w))


@statistic
def pointbiserialr(x, y):
    return Significance(*pearsonr(x, y))


@statistic
def combine_pvalues(pvalues, method="fisher", weights=None, *, axis=0, nan_policy="propagate", keepdims=False):
    p, axis = sample_array(pvalues, axis, nan_policy)
    n = shape(p)[axis] * 1.0
    total = lambda x: red.sum(x, axis, keepdims=keepdims)
    if method == "fisher":
        y = -2.0 * total(log(p))
        return Significance(y, chi2_tail(2.0 * n, y))
    if method == "pearson":
        y = 2.0 * total(log1p(-p))
        return Significance(y, distribution_functions.chdtr(2.0 * n + 0.0 * y, -y))
    if method == "mudholkar_george":
        y, df = total(log1p(-p) - log(p)), 5.0 * n + 4.0
        return Significance(y, inc.stdtr(df + 0.0 * y, -y * math.sqrt(3.0 / n * df / (df - 2.0)) / math.pi))
    if method == "tippett":
        y = red.amin(p, axis, keepdims=keepdims)
        return Significance(y, -expm1(n * log1p(-y)))
    if method == "stouffer":
        w = np.ones(shape(p)) if weights is None else array_argument(weights) + 0.0 * p
        y = total(-w * ndtri(p)) / sqrt(total(square(w)))
        return Significance(y, ndtr(-y))
    raise ValueError(f"Invalid method {method!r}. Valid methods are 'fisher', 'pearson', 'mudholkar_george', 'tippett', and 'stouffer'")


# --- of a sample and a law ---


def term_sum(term: Any, x: Any) -> Any:
    """The sum of term(k) up to the first below 1e-7, where SciPy's ends."""
    total, k = 0.0, 0
    while True:
        z = term(k, x)
        total, k = total + z, k + 1
        if not np.any(abs(values_of(z)) >= 1e-7):
            return total


def cvm_limit(k: int, x: Any) -> Any:
    """Of the limiting distribution of the statistic of Cramer and von Mises (Csorgo & Faraway, 1996)."""
    q = (4 * k + 1) ** 2 / (16.0 * x)
    front = math.exp(math.lgamma(k + 0.5) - math.lgamma(k + 1)) * math.sqrt(4 * k + 1) / math.pi**1.5
    return front / sqrt(x) * exp(-q) * kv(0.25, q)


def cvm_correction(k: int, x: Any) -> Any:
    """Of its correction of order 1 / n."""

    def second(y):
        z = 0.25 * y * y
        return exp(-z) * power(0.5 * y, 1.5) * (kv(0.25, z) + kv(0.75, z)) / math.sqrt(math.pi)

    def third(y):
        z = 0.25 * y * y
        return exp(-z) * power(0.5 * y, 2.5) * (2.0 * kv(0.25, z) + 3.0 * kv(0.75, z) - kv(1.25, z)) / math.sqrt(math.pi)

    m, s, low, high = 2 * k + 1, 2.0 * sqrt(x), power(x, 0.75), power(x, 1.25)
    one, three = math.gamma(k + 0.5), math.gamma(k + 1.5)
    y = m * one * second((4 * k + 3) / s) / (9.0 * low) + one * third((4 * k + 1) / s) / (72.0 * high)
    y = y + (m + 2) * three * third((4 * k + 5) / s) / (6.0 * high)
    y = y + 7.0 * m * one * (second((4 * k + 1) / s) + second((4 * k + 5) / s)) / (144.0 * low)
    return -y / (math.pi * math.gamma(k + 1))


def family(name: str) -> Any:
    found = next((vars(m)[name] for m in (_classic, _continuous, _elementary) if name in vars(m)), None)
    if found is None:
        raise ArgumentError(f"scipy.stats.cramervonmises: the law {name!r} is not supported on a tracked Variable; give its cdf")
    return found


@statistic
def cramervonmises(rvs, cdf, args=(), *, axis=0, nan_policy="propagate"):
    x, axis = sample_array(rvs, axis, nan_policy)
    if ndim(x) != 1:
        raise ArgumentError("scipy.stats.cramervonmises: with a sample of one axis only on a tracked Variable")
    n = shape(x)[0]
    f = family(cdf).cdf if isinstance(cdf, str) else cdf
    w = 1.0 / (12.0 * n) + red.sum(square((2.0 * np.arange(1, n + 1) - 1.0) / (2.0 * n) - f(sort(x), *args)))
    if float(values_of(w)) >= n / 3.0:
        return Significance(w, 0.0 * w)
    p = 1.0 - term_sum(cvm_limit, w) * (1.0 + 1.0 / (12.0 * n)) - term_sum(cvm_correction, w) / n
    return Significance(w, maximum(p, 0.0))


# --- Anderson and Darling's, Shapiro and Wilk's, Tukey's ---

AndersonResult = namedtuple("AndersonResult", "statistic critical_values significance_level")
AndersonResult.fit_result = None  # (an attribute in SciPy too)


@statistic
def anderson(x, dist="norm", *, method=None):
    """The statistic, and SciPy's table for it."""
    if dist not in ("norm", "expon") or method not in (None, "interpolate"):
        raise ArgumentError("scipy.stats.anderson: of dist='norm' and 'expon', method=None and 'interpolate' only on a tracked Variable")
    x = array_argument(x)
    n, y = shape(x)[0], sort(x)
    w = (y - red.mean(x)) / red.std(x, ddof=1) if dist == "norm" else y / red.mean(x)
    law = family(dist)
    a = -n - red.sum((2.0 * np.arange(1, n + 1) - 1.0) / n * (law.logcdf(w) + law.logsf(w)[::-1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        table = scipy_stats().anderson(np.asarray(values_of(x)), dist)
    critical, level = table.critical_values, table.significance_level
    return AndersonResult(a, critical, level) if method is None else Significance(a, interp(a, critical, level / 100.0))


ROYSTON = (  # polynomials, by the lowest power first: Royston, Applied Statistics 44, 1995
    (0.0, 0.221157, -0.147981, -2.07119, 4.434685, -2.706056),
    (0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633),
    (0.544, -0.39978, 0.025054, -6.714e-4),
    (1.3822, -0.77857, 0.062767, -0.0020322),
    (-1.5861, -0.31082, -0.083751, 0.0038915),
    (-0.4803, -0.082676, 0.0030302),
)


def royston_weights(n: int) -> np.ndarray:
    """Of the order statistics: those of the scores of a normal sample, with the outermost by two
    polynomials."""
    if n == 3:
        return math.sqrt(0.5) * np.array([-1.0, 0.0, 1.0])
    m = np.asarray(ndtri((np.arange(1, n + 1) - 0.375) / (n + 0.25)))
    size, u = m @ m, 1.0 / math.sqrt(n)
    a = m.copy()
    a[-1] = m[-1] / math.sqrt(size) + np.polyval(ROYSTON[0][::-1], u)
    if n > 5:
        a[-2] = m[-2] / math.sqrt(size) + np.polyval(ROYSTON[1][::-1], u)
    outer = 2 if n > 5 else 1
    kept = (size - 2.0 * m[-outer:] @ m[-outer:]) / (1.0 - 2.0 * a[-outer:] @ a[-outer:])
    a[outer:-outer] = m[outer:-outer] / math.sqrt(kept)
    a[:outer] = -a[-outer:][::-1]
    return a


@statistic
def shapiro(x, *, axis=None, nan_policy="propagate"):
    x, axis = sample_array(x, axis, nan_policy)
    n = shape(x)[axis]
    if ndim(x) != 1 or n < 3:
        raise ArgumentError("scipy.stats.shapiro: with a sample of one axis, of at least three elements, only on a tracked Variable")
    y = sort(x) - red.mean(x)
    w = square(red.sum(royston_weights(n) * y)) / red.sum(square(y))
    if n == 3:
        return Significance(w, maximum(6.0 / math.pi * (arcsin(sqrt(w)) - math.asin(math.sqrt(0.75))), 0.0))
    z = log1p(-w)
    if n <= 11:
        z, at = -log(0.459 * n - 2.273 - z), n
    else:
        at = math.log(n)
    mean, deviation = [np.polyval(c[::-1], at) for c in (ROYSTON[2:4] if n <= 11 else ROYSTON[4:])]
    return Significance(w, ndtr(-(z - mean) / math.exp(deviation)))


class TukeyHSDResult(namedtuple("TukeyHSDResult", "statistic pvalue")):
    """The pairwise differences and their p-values."""

    intervals: Any = None

    def confidence_interval(self, confidence_level: float = 0.95) -> Any:
        if not 0 < confidence_level < 1:
            raise ValueError("Confidence level must be between 0 and 1.")
        groups, df, error = self.intervals
        radius = _integrated.studentized_range.ppf(confidence_level, groups, df) * error
        return Interval(self.statistic - radius, self.statistic + radius)


Interval = namedtuple("ConfidenceInterval", "low high")


@statistic
def tukey_hsd(*args, equal_var=True):
    groups = [array_argument(a) for a in args]
    n, k = np.array([shape(g)[0] for g in groups]) * 1.0, float(len(groups))
    means, v = stack([red.mean(g) for g in groups]), stack([red.var(g, ddof=1) for g in groups])
    if equal_var:
        df = n.sum() - k
        error = sqrt(0.5 * (1.0 / n + 1.0 / n[:, None]) * red.sum(v * (n - 1.0)) / df)
    else:
        u = v / n
        both = column(u) + u
        error, df = sqrt(0.5 * both), square(both) / (column(square(u) / (n - 1.0)) + square(u) / (n - 1.0))
    gaps = column(means) - means
    # no difference of a group from itself: SciPy's p-value is 1
    apart = absolute(gaps) / error + np.eye(len(groups))
    p = select(np.eye(len(groups)) > 0, 1.0, _integrated.studentized_range.sf(apart, k, df))
    result = TukeyHSDResult(gaps, p)
    result.intervals = k, df, error
    return result
