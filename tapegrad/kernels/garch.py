"""GARCH(1, 1): y[t] = mu + e[t], e[t] ~ N(0, h[t]), h[t + 1] = omega + alpha e[t]^2 + beta h[t].

loglik(theta, y)                    theta (4, B): mu, omega, alpha, beta; y (N,) or (1, N, B): (B,)
loglik.value_and_grad(theta, y)     (B,), (4, B)

The first variance is the stationary one, omega / (1 - alpha - beta).  nan is missing: e^2 has then its mean h.  omega <= 0, alpha < 0,
beta < 0 and alpha + beta >= 1 are not valid.

Source: Bollerslev, Generalized autoregressive conditional heteroskedasticity, J. Econometrics 31 (1986).

>>> import numpy as np, tapegrad as tg
>>> value, gradient = tg.kernels.garch.loglik.value_and_grad(np.array([0.0, 0.1, 0.1, 0.8]), np.array([0.5, np.nan, -1.0]))
>>> gradient.round(4)
array([-0.5759, -3.3968, -3.4259, -3.3997])
"""

import numpy as np

from ._api import recursion
from ._lanes import LANES, LOG_2_PI, cube, outcome
from ._library import CHUNK, HandwrittenRecursion, twin


def start(theta):
    _, omega, alpha, beta = theta
    valid = np.minimum(np.minimum(alpha, beta), 0.0) >= 0
    valid = np.where(valid, np.minimum(omega, 1 - alpha - beta), 0.0) > 0
    return np.where(valid, omega / (1 - alpha - beta), np.nan)


def step(h, theta, y):
    """The next variance, and the log density of y."""
    mu, omega, alpha, beta = theta
    here = ~np.isnan(y[0])
    e = np.where(here, y[0], mu) - mu
    square = np.where(here, e * e, h)
    return omega + alpha * square + beta * h, np.where(here, -0.5 * (LOG_2_PI + np.log(h) + e * e / h), 0.0)


# --- the twin of garch.cu ---


@twin
def forward(theta, data, value, tape, s, n, h, valid):
    """The samples s .. s + n; stores the variances if the tape is not empty."""
    one = theta.dtype.type(1)
    total, seen = np.zeros(LANES), np.zeros(LANES, np.int64)
    mu, omega, alpha, beta = theta[0, s : s + n], theta[1, s : s + n], theta[2, s : s + n], theta[3, s : s + n]
    for l in range(n):
        rest = one - alpha[l] - beta[l]
        h[l] = omega[l] / rest
        valid[l] = mu[l] - mu[l] == 0 and omega[l] > 0 and alpha[l] >= 0 and beta[l] >= 0 and rest > 0
    for t in range(data.shape[1]):
        if tape.size:
            tape[t, :n] = h[:n]
        for l in range(n):
            y = data[0, t, s + l if data.shape[2] > 1 else 0]
            e, here = y - mu[l], y == y
            total[l] += np.float64(np.log(h[l]) + e * e / h[l]) if here else 0.0
            seen[l] += here
            h[l] = omega[l] + alpha[l] * (e * e if here else h[l]) + beta[l] * h[l]
    outcome(value, total, seen, valid, s, n)


@twin
def backward(theta, data, gradient, tape, s, n, valid):
    half, one, two, zero = theta.dtype.type(0.5), theta.dtype.type(1), theta.dtype.type(2), theta.dtype.type(0)
    mu, omega, alpha, beta = theta[0, s : s + n], theta[1, s : s + n], theta[2, s : s + n], theta[3, s : s + n]
    sums, bars = np.zeros((4, LANES)), np.zeros((5, LANES), theta.dtype)
    for t in range(data.shape[1] - 1, -1, -1):
        for l in range(n):
            y, h, h_bar = data[0, t, s + l if data.shape[2] > 1 else 0], tape[t, l], bars[4, l]
            e, here = y - mu[l], y == y
            z = e / h
            bars[1, l] = bars[1, l] + h_bar
            bars[2, l] = bars[2, l] + h_bar * (e * e if here else h)
            bars[3, l] = bars[3, l] + h_bar * h
            bars[0, l] = bars[0, l] + (z - two * alpha[l] * e * h_bar if here else zero)
            bars[4, l] = beta[l] * h_bar + half * (z * z - one / h) if here else (alpha[l] + beta[l]) * h_bar
        if t % CHUNK == 0:
            for k in range(4):
                for l in range(n):
                    sums[k, l] += bars[k, l]
                    bars[k, l] = 0
    for l in range(n):
        rest = one - alpha[l] - beta[l]
        slope, start = bars[4, l] / rest, omega[l] / rest
        sums[1, l] += slope
        sums[2, l] += slope * start
        sums[3, l] += slope * start
        for k in range(4):
            gradient[k, s + l] = sums[k, l] if valid[l] else 0


def garch_value(theta, data, value, B, N):
    data = cube(data)
    h, valid, none = np.empty(LANES, theta.dtype), np.empty(LANES, np.bool_), np.empty((0, 0), theta.dtype)
    for s in range(0, B, LANES):
        forward(theta, data, value, none, s, min(LANES, B - s), h, valid)


def garch_value_and_grad(theta, data, value, gradient, tape, B, N):
    data = cube(data)
    h, valid = np.empty(LANES, theta.dtype), np.empty(LANES, np.bool_)
    for s in range(0, B, LANES):
        forward(theta, data, value, tape, s, min(LANES, B - s), h, valid)
        backward(theta, data, gradient, tape, s, min(LANES, B - s), valid)


loglik = HandwrittenRecursion(
    "garch", "garch", recursion(start, step, missing="step"), lambda p, d: {} if (p, d) == (4, 1) else None,
    "theta (4, B) and y (N,) or (1, N, B)", garch_value, garch_value_and_grad, lambda p, d: ("work real tape[N, slots]",), LANES,
)  # fmt: skip
