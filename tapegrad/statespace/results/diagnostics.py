"""Tests of standardised residuals: are they uncorrelated, normal, of constant variance?  Definitions as in A.
C. Harvey, Forecasting, Structural Time Series Models and the Kalman Filter (1989), section 5.4."""

from dataclasses import dataclass

import numpy
from scipy.special import chdtrc, fdtr, fdtrc


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


def diagnostics(e: numpy.ndarray) -> Diagnostics:
    """Of standardised residuals (n,), nan where there is none."""
    jarque, skewness, kurtosis = jarque_bera_of(e)
    return Diagnostics(ljung_box(e, [1])[0], jarque, skewness, kurtosis, heteroskedasticity(e))


def ljung_box(e: numpy.ndarray, lags: list[int], used: int = 0) -> list[Statistic]:
    """n (n + 2) sum r_k^2 / (n - k) over the first lags, chi-squared with as many degrees of freedom less
    those `used` by estimates; nan beside missing values, where it is not defined."""
    n, highest = e.size, max(lags)
    if n <= highest or numpy.isnan(e).any():
        return [Statistic(numpy.nan, numpy.nan)] * len(lags)
    r = autocorrelations(e, highest)[1:]
    sums = n * (n + 2) * numpy.cumsum(r**2 / (n - numpy.arange(1, highest + 1)))
    return [Statistic(float(sums[k - 1]), float(chdtrc(k - used, sums[k - 1])) if k > used else numpy.nan) for k in lags]


def autocorrelations(e: numpy.ndarray, lags: int) -> numpy.ndarray:
    """Of lag 0 to `lags`, about the mean; pairs with a missing value are left out."""
    x = numpy.where(numpy.isnan(e), 0.0, e - numpy.nanmean(e))
    total = x @ x
    return numpy.array([x[k:] @ x[: x.size - k] / total for k in range(lags + 1)])


def jarque_bera_of(e: numpy.ndarray) -> tuple[Statistic, float, float]:
    """n / 6 (S^2 + (K - 3)^2 / 4), chi-squared with two degrees of freedom; skewness S and kurtosis K."""
    x = e[~numpy.isnan(e)]
    if x.size < 2:
        return Statistic(numpy.nan, numpy.nan), numpy.nan, numpy.nan
    x = x - x.mean()
    variance = numpy.mean(x**2)
    S, K = float(numpy.mean(x**3) / variance**1.5), float(numpy.mean(x**4) / variance**2)
    statistic = x.size / 6 * (S**2 + (K - 3) ** 2 / 4)
    return Statistic(statistic, float(chdtrc(2, statistic))), S, K


def heteroskedasticity(e: numpy.ndarray) -> Statistic:
    """The sum of squares of the last third of the residuals over that of the first, F distributed;
    two-sided."""
    h = round(e.size / 3)
    if h < 1:
        return Statistic(numpy.nan, numpy.nan)
    last, first = e[-h:][~numpy.isnan(e[-h:])], e[:h][~numpy.isnan(e[:h])]
    if min(last.size, first.size) < 1:
        return Statistic(numpy.nan, numpy.nan)
    ratio = float(last @ last / (first @ first))
    scaled = ratio * first.size / last.size  # differ only where values are missing
    return Statistic(ratio, float(2 * min(fdtr(last.size, first.size, scaled), fdtrc(last.size, first.size, scaled))))
