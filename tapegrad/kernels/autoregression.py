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

from .._array import xp_of
from ..errors import ArgumentError
from ._api import recursion
from ._lanes import LANES, LOG_2_PI, add_product, cube, subtract_product
from ._library import CHUNK, HandwrittenRecursion, twin
from ._library_cpu import Shared

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


# --- the twin of autoregression.cu ---


@twin
def order(n):
    """Where the coefficients of the predictor of order n begin."""
    return n * (n - 1) // 2


@twin
def predictors(theta, s, P, n_, a, v, rest, valid):
    for j in range(P):
        for l in range(n_):
            a[order(P) + j, l] = theta[j + 1, s + l]
    for l in range(n_):
        v[P, l] = theta[P + 1, s + l]
        valid[l] = v[P, l] > 0 and theta[0, s + l] - theta[0, s + l] == 0
    one = theta.dtype.type(1)
    for n in range(P, 0, -1):
        last = order(n) + n - 1
        for l in range(n_):
            rest[n, l] = one - a[last, l] * a[last, l]
            valid[l] = valid[l] and rest[n, l] > 0
            v[n - 1, l] = v[n, l] / rest[n, l]
        for j in range(1, n):
            for l in range(n_):
                x = a[order(n) + j - 1, l] + a[last, l] * a[order(n) + n - j - 1, l]
                a[order(n - 1) + j - 1, l] = x / rest[n, l]


@twin
def predictors_adjoint(P, n_, a, v, rest, a_bar, v_bar):
    two = a.dtype.type(2)
    k_bar, rest_bar = np.empty_like(rest[0]), np.empty_like(rest[0])
    for n in range(1, P + 1):
        last = order(n) + n - 1
        for l in range(n_):
            k_bar[l] = 0
            rest_bar[l] = -(v_bar[n - 1, l] * v[n - 1, l])
            v_bar[n, l] = v_bar[n, l] + v_bar[n - 1, l] / rest[n, l]
        for j in range(1, n):
            there, mirror = order(n) + j - 1, order(n) + n - j - 1
            for l in range(n_):
                b = a_bar[order(n - 1) + j - 1, l]
                a_bar[there, l] = a_bar[there, l] + b / rest[n, l]
                a_bar[mirror, l] = a_bar[mirror, l] + a[last, l] * b / rest[n, l]
                k_bar[l] = k_bar[l] + b * a[mirror, l]
                rest_bar[l] = rest_bar[l] - b * a[order(n - 1) + j - 1, l]
        for l in range(n_):
            a_bar[last, l] = a_bar[last, l] + (k_bar[l] - two * a[last, l] * rest_bar[l]) / rest[n, l]


@twin
def error(data, t, s, n_, theta, n, a, lag, now, e):
    """The datum without its mean, and the error of the predictor of order n."""
    for l in range(n_):
        now[0, l] = data[0, t, s + l if data.shape[2] > 1 else 0] - theta[0, s + l]
        e[0, l] = now[0, l]
    for j in range(n):
        subtract_product(e, 0, a, order(n) + j, lag, j, n_)


@twin
def shift(lag, now, P, n_):
    for j in range(P - 1, 0, -1):
        for l in range(n_):
            lag[j, l] = lag[j - 1, l]
    for l in range(n_):
        lag[0, l] = now[0, l]


@twin
def beginning(theta, data, s, n_, P, a, v, lag, now, e, total, a_bar, v_bar, mu_bar):
    """The data before datum P, each with its own predictor; the gradient too if mu_bar is not empty."""
    half, one = theta.dtype.type(0.5), theta.dtype.type(1)
    slope = np.empty_like(now[0])
    for n in range(min(P, data.shape[1])):
        error(data, n, s, n_, theta, n, a, lag, now, e)
        for l in range(n_):
            total[l] += np.float64(np.log(v[n, l]) + e[0, l] * (e[0, l] / v[n, l]))
            slope[l] = one
        if mu_bar.size:
            for j in range(n):
                for l in range(n_):
                    slope[l] = slope[l] - a[order(n) + j, l]
                    a_bar[order(n) + j, l] = e[0, l] / v[n, l] * lag[j, l]
            for l in range(n_):
                z = e[0, l] / v[n, l]
                mu_bar[l] += np.float64(z * slope[l])
                v_bar[n, l] = half * (z * z - one / v[n, l])
        shift(lag, now, P, n_)


@twin
def outcome(value, s, n_, v, total, squares, N, P, valid):
    rest = np.float64(max(N - P, 0))
    for l in range(n_):
        x = np.float64(v[P, l])
        out = value.dtype.type(-0.5 * (total[l] + rest * np.log(x) + squares[l] / x + N * LOG_2_PI))
        value[s + l] = out if valid[l] and out == out else -np.inf
        valid[l] = valid[l] and out - out == 0


@twin
def autoregression(theta, data, value, gradient, B, N, first, last):
    """As in autoregression.cu; without a gradient if that is empty."""
    data, P, dtype = cube(data), len(theta) - 2, theta.dtype
    a, v, rest = np.empty((order(P + 1), LANES), dtype), np.empty((P + 1, LANES), dtype), np.empty((P + 1, LANES), dtype)
    a_bar, v_bar, mu_bar = np.empty_like(a), np.empty_like(v), np.empty(LANES if gradient.size else 0)
    lag, now, e, valid = np.empty((P, LANES), dtype), np.empty((1, LANES), dtype), np.empty((1, LANES), dtype), np.empty(LANES, np.bool_)
    part, sums, total = np.empty((P + 2, LANES), dtype), np.empty((P + 2, LANES)), np.empty(LANES)
    for s in range(first, last, LANES):
        n_ = min(LANES, B - s)
        predictors(theta, s, P, n_, a, v, rest, valid)
        lag[:], a_bar[:], v_bar[:], mu_bar[:], part[:], sums[:], total[:] = 0, 0, 0, 0, 0, 0, 0
        beginning(theta, data, s, n_, P, a, v, lag, now, e, total, a_bar, v_bar, mu_bar)
        for t in range(P, N):
            error(data, t, s, n_, theta, P, a, lag, now, e)
            add_product(part, P, e, 0, e, 0, n_)
            if gradient.size:
                for l in range(n_):
                    part[P + 1, l] = part[P + 1, l] + e[0, l]
                for j in range(P):
                    add_product(part, j, e, 0, lag, j, n_)
            shift(lag, now, P, n_)
            if t % CHUNK == 0 or t + 1 == N:
                for k in range(P + 2):
                    for l in range(n_):
                        sums[k, l] += part[k, l]
                        part[k, l] = 0
        outcome(value, s, n_, v, total, sums[P], N, P, valid)
        if gradient.size:
            predictors_adjoint(P, n_, a, v, rest, a_bar, v_bar)
            finish(gradient, s, n_, P, N, a, v, a_bar, v_bar, mu_bar, sums, valid)


@twin
def finish(gradient, s, n_, P, N, a, v, a_bar, v_bar, mu_bar, sums, valid):
    for l in range(n_):
        x, slope = np.float64(v[P, l]), 1.0
        for j in range(P):
            slope -= a[order(P) + j, l]
            gradient[j + 1, s + l] = a_bar[order(P) + j, l] + sums[j, l] / x if valid[l] else 0
        gradient[0, s + l] = mu_bar[l] + sums[P + 1, l] / x * slope if valid[l] else 0
        gradient[P + 1, s + l] = v_bar[P, l] + 0.5 * (sums[P, l] / x - max(N - P, 0)) / x if valid[l] else 0


@twin
def autoregression_value(theta, data, value, B, N, first, last):
    autoregression(theta, data, value, np.empty((0, 0), theta.dtype), B, N, first, last)


@twin
def autoregression_value_and_grad(theta, data, value, gradient, B, N, first, last):
    autoregression(theta, data, value, gradient, B, N, first, last)


class Autoregression(HandwrittenRecursion):
    """A kernel for complete series."""

    def _arguments(self, theta: Any, data: Any) -> tuple:
        theta, data, single = super()._arguments(theta, data)
        if bool(xp_of(data).isnan(data).any()):
            raise ArgumentError(
                "autoregression: y holds nan; for series with missing data use kernels.kalman, with the companion matrix as A"
            )
        return theta, data, single


def cost(p):
    return 3 * p


loglik = Autoregression(
    "autoregression", "autoregression", recursion(start, step), lambda p, d: {"P": p - 2} if 3 <= p <= MOST + 2 and d == 1 else None,
    "theta (P + 2, B), P 1 to 8, and y (N,) or (1, N, B)", Shared(autoregression_value, LANES, cost),
    Shared(autoregression_value_and_grad, LANES, cost),
)  # fmt: skip
