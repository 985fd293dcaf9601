"""Vector autoregressions with moving averages, regressors and measurement errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy

from ... import numpy as np
from ..._core.errors import ArgumentError
from .._bound_model import BoundModel
from .._constraints import positive, unconstrained
from .._matrices import stationary_covariance
from .._model import LinearGaussian, Start
from .._parameters import ParameterBlock
from .arima import TRENDS
from .multivariate import (
    VectorProcess,
    bound_process,
    inputs_of,
    lag_matrices,
    least_squares_autoregression,
    required_count,
    required_trend,
    several_series,
)


def var(Y: Any, order: int = 1, trend: str = "c", exog: Any = None) -> BoundModel:
    """Make a stationary vector autoregression, to be fitted with ``.fit()`` by the exact likelihood.

    The model is y[t] = c + A[1] y[t-1] + ... + beta x[t] + e[t].

    Parameters
    ----------
    Y : array of shape (n, p), or DataFrame
        The data, nan where missing.
    order : int, default 1
        The number of lags.
    trend : {'c', 'n', 't', 'ct'}, default 'c'
        'c' is an intercept for each series, 't' a drift times the number of the step (0
        at the first), 'ct' both, 'n' none.
    exog : array of shape (n, r), optional
        Regressors, which enter beside the past. Before the first step they are assumed to be as at the first.

    Returns
    -------
    model
        Its method ``fit()`` returns a `FitResult`. The covariance of the noise is parametrised by its
        triangular factor: sqrt.var, sqrt.cov.

    Raises
    ------
    ArgumentError
        If an option is not valid.
    ShapeError
        If Y has one series, or `exog` has another number of rows.
    DataError
        If there are too few data.

    See Also
    --------
    varmax : With moving averages and measurement errors.
    dynamic_factor : Many series with few common factors.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> ss.var(np.random.default_rng(0).normal(size=(30, 2)), order=2)
    VAR(2) of 2 series of 30 steps
    """
    return _vector("var", Y, (required_count("var", "order", order), 0), trend, exog, False)


def varmax(
    Y: Any,
    order: tuple[int, int] = (1, 0),
    trend: str = "c",
    exog: Any = None,
    measurement_error: bool = False,
) -> BoundModel:
    """Make a stationary vector ARMA process, to be fitted with ``.fit()`` by the exact likelihood.

    The process is y[t] = c + A[1] y[t-1] + ... + beta x[t] + e[t] + M[1] e[t-1] + ...

    Parameters
    ----------
    Y, trend, exog
        As for `var`.
    order : tuple (p, q), default (1, 0)
        The numbers of lags of the series and of the noise. Where both are positive, some coefficients may not
        be determined; `fit` then raises `DataError`, which names them.
    measurement_error : bool, default False
        Whether each series is observed with noise of its own, of variance ``sigma2.measurement``.

    Returns
    -------
    model
        Its method ``fit()`` returns a `FitResult`. Moving averages are not constrained: `fit` starts where
        they are invertible.

    Raises
    ------
    ArgumentError, ShapeError, DataError
        As for `var`.

    See Also
    --------
    var : Without moving averages.
    sarimax : One series.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> ss.varmax(np.random.default_rng(0).normal(size=(30, 2)), order=(1, 1))
    VARMA(1, 1) of 2 series of 30 steps
    """
    if not (isinstance(order, (tuple, list)) and len(order) == 2 and any(order)):
        raise ArgumentError(f"varmax: order={order!r}; wanted two whole numbers, (p, q), not both 0")
    p, q = [required_count("varmax", "order", x, 0) for x in order]
    if not isinstance(measurement_error, bool):
        raise ArgumentError(f"varmax: measurement_error={measurement_error!r}; wanted True or False")
    return _vector("varmax", Y, (p, q), trend, exog, measurement_error)


def _vector(call: str, Y, order: tuple[int, int], trend: str, exog, noisy: bool) -> BoundModel:
    data = several_series(call, Y)
    trend = required_trend(call, trend, ("c", "n", "t", "ct"))
    return bound_process(call, VectorAutoregression, data, order[0], trend, exog, order[1], noisy)


@dataclass(frozen=True)
class VectorAutoregression(VectorProcess):
    """The process; its states are the series and the noise with their lags."""

    ma_order: int = 0
    noisy: bool = False
    result_names = {
        "coefficient_matrices_var": lag_matrices("coefficients"),
        "coefficient_matrices_vma": lag_matrices("ma"),
    }

    @property
    def title(self) -> str:
        order = f"VARMA({self.order}, {self.ma_order})" if self.ma_order else f"VAR({self.order})"
        names = [f"{order} of {len(self.columns)} series", *self.regressors]
        return " + ".join(names + ["measurement error"] * self.noisy)

    @property
    def lags(self) -> int:
        return self.order + self.ma_order

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the names of the coefficients of the trend."""
        return tuple([("intercept", "drift")[k] for k in TRENDS[self.trend]])

    def start(self, y: numpy.ndarray) -> dict[str, ParameterBlock]:
        """Start from least squares, pulled inside the stationary and invertible region.

        Residuals of a long autoregression stand for the noise of moving averages."""
        names, k = self.columns, len(self.columns)
        found, rest = self.level_of(y)
        lags, noise = self.order, None
        if self.ma_order:
            long = max(min(2 * self.lags + 2, (len(y) - 2) // (2 * k + 2)), 1)
            noise = least_squares_autoregression(rest, long)[2]
        A, left, _, M = least_squares_autoregression(rest, lags, noise, self.ma_order)
        L = numpy.linalg.cholesky(left)
        A_sum = sum([A[:, i * k : i * k + k] for i in range(lags)], numpy.zeros((k, k)))
        blocks = self.level_blocks(self.terms, found - found @ A_sum.T)

        def labels(form: str, order: int) -> list[str]:
            return [
                form.format(lag=lag, source=source, target=target)
                for target in names
                for lag in range(1, order + 1)
                for source in names
            ]

        if lags:
            blocks["coefficients"] = ParameterBlock(
                A, unconstrained(), labels("L{lag}.{source}.{target}", lags)
            )
        if self.ma_order:
            blocks["ma"] = ParameterBlock(
                M, unconstrained(), labels("L{lag}.e({source}).{target}", self.ma_order)
            )
        scale = numpy.diag(L).copy()
        blocks["sqrt.var"] = ParameterBlock(scale, positive(), [f"sqrt.var.{n}" for n in names])
        below = [(i, j) for i in range(k) for j in range(i)]
        covs = numpy.array([L[i, j] for i, j in below])
        blocks["sqrt.cov"] = ParameterBlock(
            covs, unconstrained(), [f"sqrt.cov.{names[j]}.{names[i]}" for i, j in below]
        )
        if self.noisy:
            blocks["sigma2.measurement"] = ParameterBlock(
                scale**2 / 10, positive(), [f"sigma2.measurement.{n}" for n in names]
            )
        return blocks

    def __call__(self, p: Mapping[str, Any]) -> LinearGaussian:
        k, xp = len(self.columns), self.xp
        A = p["coefficients"] if self.order else xp.zeros((k, k))
        of_y, of_e = A.shape[1], k * self.ma_order
        m = of_y + of_e
        T, R = A, numpy.eye(m, k)
        if m > k:
            below = numpy.eye(m - k, m)  # the lags
            if of_e:
                below[of_y - k : of_y] = 0.0
                R[of_y : of_y + k] = numpy.eye(k)
            row = np.concatenate([A, p["ma"]], axis=1) if of_e else A
            T = np.concatenate([row, xp.asarray(below)], axis=0)
        L = _lower(p["sqrt.var"], p["sqrt.cov"], xp)
        R = xp.asarray(R)
        Q = L @ L.T
        H = p["sigma2.measurement"] if self.noisy else 0.0
        offset, start = self._offset(p, T, R, Q)
        return LinearGaussian(T, xp.eye(k, m), Q, H, R, offset, 0.0, start)

    def _offset(self, p: Mapping[str, Any], T, R, Q) -> tuple[Any, Start]:
        """Return what enters the states at each step, and the start, before which that was constant."""
        if not self.terms and not self.regressors:
            return 0.0, Start(stationary=True)
        xp, m, design = self.xp, T.shape[0], self.design
        coefficients = self.level_coefficients(self.terms, p)
        k = coefficients.shape[0]
        first = np.concatenate([coefficients @ xp.asarray(design[0]), xp.zeros(m - k)])
        if self.terms == ("intercept",) and not self.regressors:
            return first, Start(stationary=True)
        following = numpy.concatenate([design[1:], design[-1:]])
        start = Start(np.linalg.solve(xp.eye(m) - T, first), stationary_covariance(T, R @ Q @ R.T, xp))
        return inputs_of(following, coefficients, m), start


def _lower(diagonal, below, xp: ModuleType):
    """Return a lower triangle from its diagonal and the rows below it."""
    k, at = diagonal.shape[0], 0
    rows = []
    for i in range(k):
        rows.append(np.concatenate([below[at : at + i], diagonal[i : i + 1], xp.zeros(k - i - 1)]))
        at += i
    return np.stack(rows)
