"""Tests of standardised residuals: are they uncorrelated, normal, of constant variance?  Definitions as in A.
C. Harvey, Forecasting, Structural Time Series Models and the Kalman Filter (1989), section 5.4."""

from dataclasses import dataclass

import numpy
from numpy import ndarray
from scipy.special import chdtrc, fdtr, fdtrc

from ..._core.errors import ArgumentError


@dataclass(frozen=True)
class Statistic:
    """A statistic and the probability of one at least as extreme if the residuals are white noise."""

    statistic: float
    p_value: float


@dataclass(frozen=True)
class Diagnostics:
    """Of the standardised residuals of one series: `ljung_box` at the first lag, `jarque_bera_of` with
    `skewness` and `kurtosis`, and `heteroskedasticity`, the squares of the last third over those of the
    first."""

    ljung_box: Statistic
    jarque_bera: Statistic
    skewness: float
    kurtosis: float
    heteroskedasticity: Statistic


def diagnostics(e: ndarray) -> Diagnostics:
    """Of standardised residuals (n,), nan where there is none."""
    jarque, skewness, kurtosis = jarque_bera_of(e)
    return Diagnostics(ljung_box(e, [1])[0], jarque, skewness, kurtosis, heteroskedasticity(e))


def ljung_box(e: ndarray, lags: list[int], used: int = 0, method: str | None = None) -> list[Statistic]:
    """n (n + 2) sum r_k^2 / n_k over the first lags, with n_k the number of pairs: n - k without gaps.

    It is chi-squared with as many degrees of freedom as lags, less those `used` by estimates.  With gaps it
    is the statistic of D. S. Stoffer and C. M. C. Toloi, Statistics and Probability Letters 13 (1992)
    391-396.  By the method "boxpierce" it is n sum r_k^2."""
    seen, highest = ~numpy.isnan(e), max(lags)
    n = int(seen.sum())
    if n <= highest:
        return [Statistic(numpy.nan, numpy.nan)] * len(lags)
    pairs = numpy.array([seen[k:] @ seen[: seen.size - k].astype(float) for k in range(1, highest + 1)])
    r = autocorrelations(e, highest)[1:]
    weights = n * (n + 2) / numpy.maximum(pairs, 1) if method != "boxpierce" else n
    sums = numpy.cumsum(weights * numpy.where(pairs > 0, r**2, 0.0))
    free = [int((pairs[:k] > 0).sum()) - used for k in lags]
    return [
        Statistic(float(sums[k - 1]), float(chdtrc(left, sums[k - 1])) if left > 0 else numpy.nan)
        for k, left in zip(lags, free, strict=True)
    ]


def autocorrelations(e: ndarray, lags: int) -> ndarray:
    """Of lag 0 to `lags`, about the mean; pairs with a missing value are left out."""
    x = numpy.where(numpy.isnan(e), 0.0, e - numpy.nanmean(e))
    total = x @ x
    return numpy.array([x[k:] @ x[: x.size - k] / total for k in range(lags + 1)])


def jarque_bera_of(e: ndarray) -> tuple[Statistic, float, float]:
    """n / 6 (S^2 + (K - 3)^2 / 4), chi-squared with two degrees of freedom; skewness S and kurtosis K."""
    x = e[~numpy.isnan(e)]
    if x.size < 2:
        return Statistic(numpy.nan, numpy.nan), numpy.nan, numpy.nan
    x = x - x.mean()
    variance = numpy.mean(x**2)
    S, K = float(numpy.mean(x**3) / variance**1.5), float(numpy.mean(x**4) / variance**2)
    statistic = x.size / 6 * (S**2 + (K - 3) ** 2 / 4)
    return Statistic(statistic, float(chdtrc(2, statistic))), S, K


def heteroskedasticity(e: ndarray, alternative: str = "two-sided") -> Statistic:
    """The sum of squares of the last third of the residuals over that of the first, F distributed.

    The alternative is that the variance is "increasing", "decreasing" (with the first third over the last)
    or, "two-sided", either."""
    if alternative not in ("two-sided", "increasing", "decreasing"):
        raise ArgumentError(f"alternative={alternative!r}: wanted 'two-sided', 'increasing' or 'decreasing'")
    h = round(e.size / 3)
    last, first = (part[~numpy.isnan(part)] for part in (e[e.size - h :], e[:h]))
    if min(last.size, first.size) < 1:
        return Statistic(numpy.nan, numpy.nan)
    if alternative == "decreasing":
        last, first = first, last
    ratio = float(last @ last / (first @ first))
    scaled = ratio * first.size / last.size  # differ only where values are missing
    below, above = (float(f(last.size, first.size, scaled)) for f in (fdtr, fdtrc))
    return Statistic(ratio, 2 * min(below, above) if alternative == "two-sided" else above)
