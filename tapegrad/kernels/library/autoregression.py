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
from ..._primitive import values_of
from ...errors import ArgumentError
from ..emit.lower import SUMS
from ..generated.arguments import contiguous
from ..generated.kernel import likelihood, recursion
from .handwritten import LOG_2_PI, Definition, HandwrittenRecursion

MOST = 8


def start(theta):
    """The P data before this one, and how many have been."""
    return np.zeros(len(theta) - 2), 0.0


def step(carry, theta, y):
    """The log density of y given those before it."""
    lags, count = carry
    P = len(lags)
    now, own, variance = y[0] - theta[0], theta[1 : P + 1], theta[P + 1]
    for n, a, v in shorter(own, variance):
        own = np.where(count < n + 1, np.concatenate([a, np.zeros(P - n)]), own)
        variance = np.where(count < n + 1, v, variance)
    return (np.concatenate([now.reshape(1), lags[: P - 1]]), count + 1.0), log_density(now - own @ lags, variance)


def shorter(phi, v):
    """Order, coefficients and variance of the predictors of all orders below P, the highest first; nan where there are none."""
    a, v = phi, np.where(v > 0, v, np.nan)
    for n in range(len(phi) - 1, -1, -1):
        k = a[n]
        rest = 1 - k * k
        rest = np.where(rest > 0, rest, np.nan)
        a, v = (a[:n] + k * a[:n][::-1]) / rest, v / rest
        yield n, a, v


def log_density(e, v):
    return -0.5 * (LOG_2_PI + np.log(v) + e * e / v)


def whole(theta, x):
    """The same as a sum: the log density of a datum but the first P, given those before it, all of which are x, and a share of that
    of the first P, which stand below mu, phi and v with the share."""
    P = len(x) - 1
    mu, phi, v, first = theta[0], theta[1 : P + 1], theta[P + 1], theta[P + 2 : 2 * P + 2] - theta[0]
    total = sum([log_density(first[n] - a @ first[:n][::-1] if n else first[0], s) for n, a, s in shorter(phi, v)])
    return total * theta[2 * P + 2] + log_density(x[0] - mu * (1 - np.sum(phi)) - phi @ x[1:], v)


class Autoregression(HandwrittenRecursion):
    """A kernel for complete series."""

    def __init__(self, definition: Definition, invalid: str = "reject"):
        super().__init__(definition, invalid)
        self._whole = likelihood(whole, invalid=invalid, sums=SUMS)

    def _run_value(self, family: Any, kind: str, n: tuple, arrays: tuple, outs: list | None = None) -> Any:
        """Of data that samples share value and gradient are sums without a carry, over data with those before them as further rows.
        From these data their mean is subtracted: the error of prediction is made of data and mu one by one."""
        theta, data = arrays[:2]
        (p, batch), steps = theta.shape, data.shape[1]
        P = p - 2
        if n != (0, 0) or kind == "D" or data.ndim == 3 or steps <= P or xp_of(theta) is not np:
            return super()._run_value(family, kind, n, arrays, outs)
        dtype = theta.dtype
        y = contiguous(data[0], dtype)
        centre = y.sum() / dtype.type(steps)
        y = y - centre
        rows = np.empty((2 * P + 3, batch), dtype)
        rows[:p], rows[p:-1], rows[-1] = theta, y[:P, None], 1 / (steps - P)
        rows[0] -= centre
        lags = np.ndarray((P + 1, steps - P), dtype, y, P * dtype.itemsize, (-dtype.itemsize, dtype.itemsize))
        arrays = rows, contiguous(lags, dtype)
        made = self._whole._launch(self._whole._launcher(self._whole._family, kind, n, arrays, False), kind, n, arrays, None, False)
        made = list(made) if kind == "VG" else [made]
        if kind != "F":
            made[-1] = made[-1][:p]
        return made[0] if outs is None and len(made) == 1 else self._filled(outs, made, theta)

    def _remember(self, kind: str, theta: np.ndarray, data: np.ndarray, single: bool) -> None:
        """Nothing: what a launch takes is made anew by each call."""

    def _arguments(self, theta: Any, data: Any) -> tuple:
        theta, data, single = super()._arguments(theta, data)
        if self._is_missing(values_of(data)):
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
    )
)
