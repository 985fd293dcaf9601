"""The arguments of seasonal ARIMA models with regressors."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy

from ..._core.errors import ArgumentError, DataError, ShapeError
from .._bound_model import BoundModel
from .._observations import as_observations
from .._regressors import checked_regressors
from .arima import TRENDS, Arima


def sarimax(
    y: Any,
    order: tuple[int | Sequence[int], int, int | Sequence[int]] = (1, 0, 0),
    seasonal_order: tuple[int | Sequence[int], int, int | Sequence[int], int] = (0, 0, 0, 0),
    exog: Any = None,
    trend: str | Sequence[int] | None = None,
    measurement_error: bool = False,
    concentrate_scale: bool = False,
) -> BoundModel:
    """Make a seasonal ARIMA model with regressors, to be fitted with ``.fit()``.

    The log-likelihood is that of the differenced series, as in R and statsmodels. With missing data it is the
    diffuse one of the levels, on the same scale.

    Parameters
    ----------
    y : array of shape (n,), or Series
        The data, nan where missing.
    order : tuple (p, d, q), default (1, 0, 0)
        The orders. p and q may be lists of lags. With gaps their coefficients are free, and there is a
        likelihood only where they are stationary.
    seasonal_order : tuple (P, D, Q, s), default (0, 0, 0, 0)
        The seasonal orders and the period. P and Q may be lists of lags in seasons.
    exog : array of shape (n,) or (n, r), optional
        Regressors.
    trend : str or sequence of int, optional
        'c' is an intercept of the differenced series, 't' a drift times the number of the step (0 at the
        first), 'ct' both. A list such as [1, 0, 1] says which powers of that number there are. The process
        starts on its own line.
    measurement_error : bool, default False
        Whether the process is observed with noise of its own, of variance ``sigma2.measurement``.
    concentrate_scale : bool, default False
        Whether the variance of the noise is left out of the estimates, and only given as `FitResult.scale`.
        The maximum is the same.

    Returns
    -------
    model
        Its method ``fit()`` returns a `FitResult`.

    Raises
    ------
    ArgumentError
        If an option is not valid.
    ShapeError
        If there are several series, or `exog` has another number of rows.
    DataError
        If the data are infinite or too few.

    See Also
    --------
    var : Several series.
    arma : The matrices of an ARMA process.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> y = [3.0, 2.5, 4.1, 3.7, 5.2, 4.8, 5.9, 6.4, 5.8, 7.1, 7.0, 8.3]
    >>> fit = ss.sarimax(y, order=(1, 1, 0), trend="c").fit()
    >>> fit.names, fit.estimates.round(4)
    (['intercept', 'ar.L1', 'sigma2'], array([ 0.9178, -0.8753,  0.1785]))
    """
    data = as_observations(y)
    if data.width != 1:
        raise ShapeError(f"sarimax: y has {data.width} series; wanted one (ss.var for several)")
    order = _orders("order", order, "(p, d, q)")
    seasonal = _orders("seasonal_order", seasonal_order, "(P, D, Q, s)")
    if any(seasonal[:3]) and seasonal[3] < 2:
        raise ArgumentError(
            f"sarimax: seasonal_order={seasonal_order}; its last number is the steps of a season, at least 2"
        )
    X, columns = (None, ()) if exog is None else checked_regressors("sarimax", exog)
    if X is not None and len(X) != data.steps:
        raise ShapeError(f"sarimax: exog has {len(X)} rows and y has {data.steps}; wanted one for each step")
    data.labels.require_same_dates("sarimax: exog", getattr(exog, "index", None))
    for name, x in (("measurement_error", measurement_error), ("concentrate_scale", concentrate_scale)):
        if not isinstance(x, bool):
            raise ArgumentError(f"sarimax: {name}={x!r}; wanted True or False")
    if measurement_error and concentrate_scale:
        raise ArgumentError(
            "sarimax: concentrate_scale=True and measurement_error=True; two noises have no common scale"
        )
    process = Arima(
        order, seasonal, _powers(trend), X, columns, data.steps, data.xp, measurement_error, concentrate_scale
    )
    if data.count <= process.lost + process.parameters:
        raise DataError(f"sarimax: {data.count} observed values are too few for {process.title}")
    process.regressed(data)  # raises if the data cannot be fitted
    return BoundModel(process, data)


def is_order(x) -> bool:
    return isinstance(x, Integral) and not isinstance(x, bool) and int(x) >= 0


def _orders(name: str, given, form: str) -> tuple:
    """Return the orders of a process: numbers, or tuples of lags if there are gaps."""
    wanted = f"sarimax: {name}={given!r}; wanted {form.count(',') + 1} whole numbers, {form}"
    if not isinstance(given, (tuple, list)) or len(given) != form.count(",") + 1:
        raise ArgumentError(wanted)
    found: list[int | tuple[int, ...]] = []
    for k, x in enumerate(given):
        if k in (0, 2) and isinstance(x, (tuple, list, numpy.ndarray)):
            lags = tuple(sorted(x))
            if not all([is_order(lag) and lag > 0 for lag in lags]) or len(set(lags)) < len(lags):
                raise ArgumentError(
                    f"sarimax: {name}={given!r}; a list of lags holds different whole numbers, from 1 on"
                )
            found.append(
                len(lags) if lags == tuple(range(1, len(lags) + 1)) else tuple([int(lag) for lag in lags])
            )
        elif is_order(x):
            found.append(int(x))
        else:
            raise ArgumentError(
                wanted + (", or lists of lags in place of the first and the third" if k in (0, 2) else "")
            )
    return tuple(found)


def _powers(trend) -> tuple[int, ...]:
    """Return the powers of time in a trend."""
    if isinstance(trend, (tuple, list, numpy.ndarray)):
        if not all([is_order(x) and x <= 1 for x in trend]):
            raise ArgumentError(
                f"sarimax: trend={trend!r}; wanted a 1 for each power of time that there is, and else 0"
            )
        return tuple([k for k, x in enumerate(trend) if x])
    if not (trend is None or isinstance(trend, str)) or trend not in TRENDS:
        raise ArgumentError(
            f"sarimax: trend={trend!r}; wanted one of {', '.join(map(repr, TRENDS))}, or a list as [1, 0, 1]"
        )
    return TRENDS[trend]
