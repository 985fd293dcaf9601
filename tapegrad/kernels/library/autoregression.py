"""A stationary autoregression: y[t] - mu = sum_j phi_j (y[t - j] - mu) + e[t], e[t] ~ N(0, v), j = 1 .. P.

loglik(theta, y)                    theta (P + 2, B): mu, phi_1 .. phi_P, v; y (N,) or (1, N, B): (B,)
loglik.value_and_grad(theta, y)     (B,), (P + 2, B)

The likelihood is exact: the first P data have their stationary distribution, so that no datum is lost and
series of any length can be compared.  phi outside the region of stationarity and v <= 0 are not valid.  P is
1 to 8.  The data must be complete: with missing ones use `kalman`, whose A is then the companion matrix of
phi.

Source: Durbin, The fitting of time-series models, Rev. Int. Stat. Inst. 28 (1960), backwards; Brockwell and
Davis, Time Series: Theory and Methods, sections 5.2 and 8.7.

>>> import numpy as np, tapegrad as tg
>>> theta = np.array([[0.0, 0.0], [0.5, 1.5], [1.0, 1.0]])      # the second is not stationary
>>> tg.kernels.autoregression.loglik(theta, np.array([0.5, 1.0, -1.0])).round(4)
array([-4.4007,    -inf])
"""

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import values_of
from ..emit.lower import SUMS
from ..generated.derivatives import Family
from ..generated.generated_kernel import GeneratedKernel
from ..generated.kernel import likelihood, recursion
from .models import LOG_2_PI, Definition, ModelRecursion

MOST_LAGS = 8


def autoregression_start(theta):
    """Return the P data before this one, and the number of data so far."""
    return np.zeros(len(theta) - 2), 0.0


def autoregression_step(carry, theta, y):
    """Return the next carry and the log density of y given the data before it."""
    lags, count = carry
    P = len(lags)
    now, own, variance = y[0] - theta[0], theta[1 : P + 1], theta[P + 1]
    for n, a, v in lower_order_predictors(own, variance):
        own = np.where(count < n + 1, np.concatenate([a, np.zeros(P - n)]), own)
        variance = np.where(count < n + 1, v, variance)
    return (np.concatenate([now.reshape(1), lags[: P - 1]]), count + 1.0), log_density(
        now - own @ lags, variance
    )


def lower_order_predictors(phi, v):
    """Yield order, coefficients and variance of the predictors of all orders below P, the highest first.

    They are nan where there are none."""
    a, v = phi, np.where(v > 0, v, np.nan)
    for n in range(len(phi) - 1, -1, -1):
        k = a[n]
        rest = 1 - k * k
        rest = np.where(rest > 0, rest, np.nan)
        a, v = (a[:n] + k * a[:n][::-1]) / rest, v / rest
        yield n, a, v


def log_density(e, v):
    return -0.5 * (LOG_2_PI + np.log(v) + e * e / v)


def residual_density(e, theta, P):
    """Return a step's share of the log density of the series; e is the error of prediction or 0.

    Terms common to all steps are divided among them. The rows after mu, phi and v are the first P data, the
    number of the others, and the share of one step."""
    phi, v, first = theta[1 : P + 1], theta[P + 1], theta[P + 2 : 2 * P + 2] - theta[0]
    total = theta[2 * P + 2] * log_density(0.0, v)
    for n, a, variance in lower_order_predictors(phi, v):
        total = total + log_density(first[n] - a @ first[:n][::-1] if n else first[0], variance)
    return total * theta[2 * P + 3] - 0.5 * e * e / v


def row_log_density(theta, x):
    """Return the term of a datum, given with those before it; data are centred, so mu may enter by their
    sum."""
    P = len(x) - 1
    e = x[0] - theta[0] * (1 - np.sum(theta[1 : P + 1]))
    for j in range(1, P + 1):
        e = e - theta[j] * x[j]
    return residual_density(e, theta, P)


def no_lags(theta):
    return np.zeros(len(theta) // 2 - 2), 0.0


def lagged_step(carry, theta, y):
    """Return the term of a datum; the data before it are the carry."""
    lags, count = carry
    P = len(lags)
    e = np.where(count < P, 0.0, (y[0] - theta[0]) - theta[1 : P + 1] @ (lags - theta[0]))
    return (np.concatenate([y[:1], lags[: P - 1]]), count + 1.0), residual_density(e, theta, P)


class Autoregression(ModelRecursion):
    """A kernel for complete series."""

    def __init__(self, definition: Definition, invalid: str = "reject"):
        super().__init__(definition, invalid)
        # for data that samples share, and for data of each sample
        self._shared = likelihood(row_log_density, invalid=invalid, sums=SUMS)
        self._own = recursion(no_lags, lagged_step, invalid=invalid, sums=SUMS)
        for kernel, name in ((self._shared, "rows"), (self._own, "steps")):
            kernel._family.key = f"library autoregression of {name} {invalid}"

    def _run_value(self, family: Family, kind: str, n: tuple, arrays: tuple, outs=None, **settings):
        """Compute value and gradient as sums over data and their lags, which need no stored steps."""
        theta, data = arrays[:2]
        (p, batch), steps, dtype, xp = theta.shape, data.shape[1], theta.dtype, xp_of(theta)
        P = p - 2
        if n != (0, 0) or kind == "D" or steps <= P:
            return super()._run_value(family, kind, n, arrays, outs, **settings)
        rows = xp.empty((2 * P + 4, batch), dtype)
        rows[:p], rows[-2] = theta, steps - P
        kernel: GeneratedKernel
        if data.ndim == 3:
            kernel, rows[p:-2] = self._own, data[0, :P]
        else:
            centre = data[0].sum(dtype=dtype) / dtype.type(steps)
            y, data = data[0] - centre, xp.empty((P + 1, steps - P), dtype)
            for lag in range(P + 1):
                data[lag] = y[P - lag : steps - lag]
            kernel, rows[p:-2] = self._shared, y[:P, None]
            rows[0] -= centre
        rows[-1] = 1 / data.shape[1]
        arrays = rows, data
        made = kernel._launch(
            kernel._launcher(kernel._family, kind, n, arrays, False), kind, n, arrays, None, False
        )
        made = list(made) if kind == "VG" else [made]
        if kind != "F":
            made[-1] = made[-1][:p]
        return made[0] if outs is None and len(made) == 1 else self._filled(outs, made, theta)

    def _remember(self, kind: str, theta: np.ndarray, data: np.ndarray, single: bool) -> None:
        """Store nothing: each call makes the data of a launch anew."""

    def _arguments(self, theta, data) -> tuple:
        theta, data, single = super()._arguments(theta, data)
        if self._is_missing(values_of(data)):
            raise ArgumentError(
                "autoregression: y holds nan; for series with missing data use kernels.kalman, with the "
                "companion matrix as A"
            )
        return theta, data, single


loglik = Autoregression(
    Definition(
        name="autoregression",
        formula=recursion(autoregression_start, autoregression_step),
        fits=lambda p, d: 3 <= p <= MOST_LAGS + 2 and d == 1,
        wants="theta (P + 2, B), P 1 to 8, and y (N,) or (1, N, B)",
    )
)
