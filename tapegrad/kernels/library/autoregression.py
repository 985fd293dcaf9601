"""A stationary autoregression: y[t] - mu = sum_j phi_j (y[t - j] - mu) + e[t], e[t] ~ N(0, v), j = 1 .. P.

loglik(theta, y)                    theta (P + 2, B): mu, phi_1 .. phi_P, v; y (N,) or (1, N, B): (B,)
loglik.value_and_grad(theta, y)     (B,), (P + 2, B)

The likelihood is exact: the first P data have their stationary distribution, so that no datum is lost and series of any length can
be compared.  phi outside the region of stationarity and v <= 0 are not valid.  P is 1 to 8.  The data must be complete: with missing
ones use `kalman`, whose A is then the companion matrix of phi.

Source: Durbin, The fitting of time-series models, Rev. Int. Stat. Inst. 28 (1960), backwards; Brockwell and Davis, Time Series: Theory
and Methods, sections 5.2 and 8.7.

>>> import numpy as np, tapegrad as tg
>>> theta = np.array([[0.0, 0.0], [0.5, 1.5], [1.0, 1.0]])      # the second is not stationary
>>> tg.kernels.autoregression.loglik(theta, np.array([0.5, 1.0, -1.0])).round(4)
array([-4.4007,    -inf])
"""

from typing import Any

import numpy as np

from ..._array import xp_of
from ...errors import ArgumentError
from ..generated.kernel import recursion
from .handwritten import Definition, HandwrittenRecursion, inlined, twin
from .on_cpu import Sized, Sweeps
from .sample_loops import LOG_2_PI
from .sweeps import Frame, Sums, datum
from .vectors import double, doubles, fma, fnma, log, narrow, splat, where

MOST = 8


def start(theta):
    """The P data before this one, and how many have been."""
    return np.zeros(len(theta) - 2), 0.0


def step(carry, theta, y):
    """The log density of y given those before it."""
    lags, count = carry
    P = len(lags)
    now, phi, v = y[0] - theta[0], theta[1 : P + 1], theta[P + 1]
    valid = v > 0
    a, own, variance = phi, phi, v
    for n in range(P, 0, -1):
        k = a[n - 1]
        rest = 1 - k * k
        valid = np.where(valid, rest, -1.0) > 0
        a = (a[: n - 1] + k * a[: n - 1][::-1]) / rest
        v = v / rest
        own = np.where(count < n, np.concatenate([a, np.zeros(P - n + 1)]), own)
        variance = np.where(count < n, v, variance)
    e = now - own @ lags
    return (np.concatenate([now.reshape(1), lags[: P - 1]]), count + 1.0), np.where(
        valid, -0.5 * (LOG_2_PI + np.log(variance) + e * e / variance), np.nan
    )


# --- the twin of autoregression.cu; sizes: P, and whether the gradient is wanted ---


@inlined
def order(n):
    """Where the coefficients of the predictor of order n begin."""
    return n * (n - 1) // 2


@inlined
def parts(room, P):
    """mu; a, v, 1 - k^2 of all predictors; cotangents of a and v; the lags; sums of e x[t - j], of e^2, of e and number of a chunk; the
    same of all data in float64, and of the first P data the sum of terms, the cotangent of mu and their number."""
    a = room + 1
    v = a + order(P + 1)
    rest = v + (P + 1)
    a_bar = rest + (P + 1)
    v_bar = a_bar + order(P + 1)
    lag = v_bar + (P + 1)
    part = lag + P
    sums = doubles(part + (P + 3))
    return room[0], a, v, rest, a_bar, v_bar, lag, part, sums, sums + (P + 3)


@twin
def begin(room, outside, layout, sizes):
    P, theta = sizes[0], outside[0]
    room[0] = theta[0]
    _, a, v, rest, a_bar, v_bar, lag, part, sums, more = parts(room, P)
    for j in range(P):
        a[order(P) + j] = theta[j + 1]
        lag[j] = 0
    v[P] = theta[P + 1]
    for n in range(P, 0, -1):
        k = a[order(n) + n - 1]
        rest[n] = 1 - k * k
        for j in range(1, n):
            a[order(n - 1) + j - 1] = (a[order(n) + j - 1] + k * a[order(n) + n - j - 1]) / rest[n]
        v[n - 1] = v[n] / rest[n]
    for j in range(order(P + 1)):
        a_bar[j] = 0
    for j in range(P + 1):
        v_bar[j] = 0
    for j in range(P + 3):
        part[j] = 0
        sums[j] = 0
    for j in range(3):
        more[j] = 0


@twin
def error(a, lag, now, n):
    """Of the predictor of order n, whose coefficients begin at a."""
    for j in range(n):
        now = fnma(a[j], lag[j], now)
    return now


@twin
def shift(lag, now, P):
    for j in range(P - 1, 0, -1):
        lag[j] = lag[j - 1]
    lag[0] = now


@twin
def first(room, outside, n, layout, sizes):
    """A datum before datum P, with its own predictor."""
    P, gradient = sizes
    mu, a, v, _, a_bar, v_bar, lag, _, _, more = parts(room, P)
    now = datum(outside, 0, n) - mu
    e = error(a + order(n), lag, now, n)
    z = e / v[n]
    more[0] = more[0] + double(fma(e, z, log(v[n])))
    more[2] = more[2] + 1
    if gradient:
        slope = splat(1, e)
        for j in range(n):
            slope = slope - a[order(n) + j]
            a_bar[order(n) + j] = z * lag[j]
        more[1] = more[1] + double(z * slope)
        v_bar[n] = 0.5 * fma(z, z, -1 / v[n])
    shift(lag, now, P)


@twin
def observe(room, outside, t, layout, sizes):
    P, gradient = sizes
    mu, a, _, _, _, _, lag, part, _, _ = parts(room, P)
    now = datum(outside, 0, t) - mu
    e = error(a + order(P), lag, now, P)
    part[P] = fma(e, e, part[P])
    part[P + 2] = part[P + 2] + 1
    if gradient:
        part[P + 1] = part[P + 1] + e
        for j in range(P):
            part[j] = fma(e, lag[j], part[j])
    shift(lag, now, P)


@twin
def flush(room, outside, t, layout, sizes):
    P = sizes[0]
    _, _, _, _, _, _, _, part, sums, _ = parts(room, P)
    for j in range(P + 3):
        sums[j] = sums[j] + double(part[j])
        part[j] = 0


@twin
def predictors_adjoint(a, v, rest, a_bar, v_bar, P):
    """From the cotangents of all predictors and variances to those of phi and the variance of the innovations."""
    for n in range(1, P + 1):
        k = a[order(n) + n - 1]
        k_bar, rest_bar = splat(0, k), -(v_bar[n - 1] * v[n - 1])
        v_bar[n] = v_bar[n] + v_bar[n - 1] / rest[n]
        for j in range(1, n):
            b, there, mirror = a_bar[order(n - 1) + j - 1], order(n) + j - 1, order(n) + n - j - 1
            a_bar[there] = a_bar[there] + b / rest[n]
            a_bar[mirror] = a_bar[mirror] + k * b / rest[n]
            k_bar = k_bar + b * a[mirror]
            rest_bar = rest_bar - b * a[order(n - 1) + j - 1]
        a_bar[order(n) + n - 1] = a_bar[order(n) + n - 1] + (k_bar - 2 * k * rest_bar) / rest[n]


@twin
def finish(room, outside, layout, sizes):
    P, gradient = sizes
    mu, a, v, rest, a_bar, v_bar, _, _, sums, more = parts(room, P)
    valid = (v[P] > 0) & (mu - mu == 0)
    for n in range(1, P + 1):
        valid = valid & (rest[n] > 0)
    x, many = double(v[P]), sums[P + 2]
    out = narrow(-0.5 * (more[0] + many * log(x) + sums[P] / x + (many + more[2]) * LOG_2_PI), mu)
    outside[7][0] = where(valid, where(out == out, out, -np.inf), -np.inf)
    valid = valid & (out - out == 0)
    if gradient:
        predictors_adjoint(a, v, rest, a_bar, v_bar, P)
        slope = splat(1, x)
        for j in range(P):
            slope = slope - double(a[order(P) + j])
            outside[6][j + 1] = where(valid, narrow(double(a_bar[order(P) + j]) + sums[j] / x, mu), 0)
        outside[6][0] = where(valid, narrow(more[1] + sums[P + 1] / x * slope, mu), 0)
        outside[6][P + 1] = where(valid, narrow(double(v_bar[P]) + 0.5 * (sums[P] / x - many) / x, mu), 0)


SUMS = Sums(begin, observe, flush, finish, first)


def sweeps(p):
    """On NumPy arrays, for so many rows of theta."""
    P = p - 2
    return Sweeps(SUMS, Frame(sizes=(P,), modes=[(0, p)], lines=1, stored=P), room=P * (P + 1) + 8 * P + 20, cost=40 + 5 * P)


ON_HOST = Sized(sweeps)


class Autoregression(HandwrittenRecursion):
    """A kernel for complete series."""

    def _arguments(self, theta: Any, data: Any) -> tuple:
        theta, data, single = super()._arguments(theta, data)
        if bool(xp_of(data).isnan(data).any()):
            raise ArgumentError(
                "autoregression: y holds nan; for series with missing data use kernels.kalman, with the companion matrix as A"
            )
        return theta, data, single


loglik = Autoregression(
    Definition(
        name="autoregression",
        stem="autoregression",
        formula=recursion(start, step),
        fit=lambda p, d: {"P": p - 2} if 3 <= p <= MOST + 2 and d == 1 else None,
        wants="theta (P + 2, B), P 1 to 8, and y (N,) or (1, N, B)",
        value=ON_HOST.value,
        both=ON_HOST.both,
    )
)
