"""Structural models as sums: `ss.level() + ss.trend() + ss.seasonal(12) + ss.regression(X)`."""

from numbers import Integral
from typing import Any

import numpy

from ..._core.errors import ArgumentError
from .._regressors import checked_regressors
from .components import (
    AutoregressiveComponent,
    Cycle,
    Harmonics,
    Level,
    Noise,
    RegressionComponent,
    Seasonal,
    Trend,
)
from .sums import Structural


def level(var: float | None = None, name: str = "level") -> "Structural":
    """A component: a random walk.

    Parameters
    ----------
    var : float, optional
        The variance of its noise. It is estimated if it is not given. 0 makes the level a constant.
    name : str, default 'level'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components, which `fit` accepts. Every sum has observation noise, unless ``noise(var=0)``
        removes it.

    Raises
    ------
    ArgumentError
        If `var` is negative.

    See Also
    --------
    trend, seasonal, cycle, ar, regression, noise : The other components.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> y = [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0]
    >>> fit = ss.fit(ss.level(), y)
    >>> fit.names, fit.estimates.round(6)
    (['sigma2.irregular', 'sigma2.level'], array([0.714048, 0.616082]))
    """
    return Structural((Level(name, var, "level"),))


def trend(var: float | None = None, name: str = "trend") -> "Structural":
    """A component: a slope of the level, itself a random walk.

    Parameters
    ----------
    var : float, optional
        The variance of its noise. It is estimated if it is not given. 0 makes a constant drift.
    name : str, default 'trend'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components. Without `level`, the level under the trend has no noise of its own: a smooth
        trend.

    Raises
    ------
    ArgumentError
        If `var` is negative.

    See Also
    --------
    level : The level.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.trend() + ss.seasonal(12))
    level + trend + seasonal(12)
    """
    return Structural((Trend(name, var, "trend"),))


def seasonal(
    period: int, var: float | None = None, harmonics: int | None = None, name: str = "seasonal"
) -> "Structural":
    """A component: a pattern that repeats and changes slowly.

    Parameters
    ----------
    period : int or float
        The number of steps. A period that is not an integer needs `harmonics`.
    var : float, optional
        The variance of its noise. It is estimated if it is not given. 0 makes a constant pattern.
    harmonics : int, optional
        The number of waves whose sum is the pattern, for a long period.
    name : str, default 'seasonal'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ArgumentError
        If the period or `harmonics` is not valid.

    See Also
    --------
    cycle : A wave whose period is estimated.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.seasonal(12, harmonics=3))
    level + seasonal(12, harmonics=3)
    """
    if harmonics is None:
        if not (isinstance(period, Integral) and period >= 2):
            raise ArgumentError(
                f"seasonal({period!r}): wanted a whole number of steps, at least 2; harmonics= allows others"
            )
        return Structural((Seasonal(name, var, f"seasonal({period})", int(period)),))
    if not (isinstance(harmonics, Integral) and 1 <= harmonics <= period / 2):
        raise ArgumentError(
            f"seasonal({period}, harmonics={harmonics!r}): wanted a whole number from 1 to half the period"
        )
    return Structural(
        (Harmonics(name, var, f"seasonal({period}, harmonics={harmonics})", period, int(harmonics)),)
    )


def cycle(
    period: Any = None, damping: float | None = None, var: float | None = None, name: str = "cycle"
) -> "Structural":
    """A component: a stochastic cycle.

    Parameters
    ----------
    period : float or (low, high), optional
        A fixed period, or bounds between which it is estimated. The default is from 2 steps to the length of
        the data.
    damping : float, optional
        A fixed damping, above 0 and at most 1. It is estimated if it is not given. With 1 the start is diffuse,
        otherwise stationary.
    var : float, optional
        The variance of its noise. It is estimated if it is not given.
    name : str, default 'cycle'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ArgumentError
        If the period or the damping is not valid.

    See Also
    --------
    seasonal : A pattern of a known period.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.cycle(period=(18, 96)))
    level + cycle
    """
    if damping is not None and not 0 < damping <= 1:
        raise ArgumentError(f"cycle(damping={damping!r}): wanted a number above 0 and at most 1, or None")
    if period is not None and not (
        period > 0
        if isinstance(period, (int, float, numpy.number))
        else len(period) == 2 and 0 < period[0] < period[1]
    ):
        raise ArgumentError(
            f"cycle(period={period!r}): wanted a positive number, or (low, high) with 0 < low < high"
        )
    return Structural((Cycle(name, var, "cycle", period, damping),))


def ar(order: int, var: float | None = None, name: str = "ar") -> "Structural":
    """A component: a stationary autoregression about 0.

    Parameters
    ----------
    order : int
        The number of lags.
    var : float, optional
        The variance of its noise. It is estimated if it is not given.
    name : str, default 'ar'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ArgumentError
        If `order` is not a positive integer.

    See Also
    --------
    sarimax : ARIMA models.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.ar(2))
    level + ar(2)
    """
    if not (isinstance(order, Integral) and order >= 1):
        raise ArgumentError(f"ar({order!r}): wanted a whole number, at least 1")
    return Structural((AutoregressiveComponent(name, var, f"ar({order})", int(order)),))


def regression(X: Any, varying: bool = False, var: float | None = None, name: str = "beta") -> "Structural":
    """A component: regressors with coefficients.

    Parameters
    ----------
    X : array of shape (n,) or (n, k), Series or DataFrame
        The regressors.
    varying : bool, default False
        Whether the coefficients are random walks from a diffuse start. Otherwise they are parameters.
    var : float, optional
        The variance of the random walks. They are estimated if it is not given. With ``varying=True, var=0``
        the coefficients are constants that the filter estimates.
    name : str, default 'beta'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ShapeError
        If X is not (n,) or (n, k).
    DataError
        If X is not finite.

    See Also
    --------
    level : The level.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.regression(np.arange(10.0)))
    level + regression(x1)
    """
    values, columns = checked_regressors("regression", X)
    title, index = f"regression({', '.join(columns)})", getattr(X, "index", None)
    return Structural((RegressionComponent(name, var, title, values, columns, bool(varying), index),))


def noise(var: float | None = None, name: str = "irregular") -> "Structural":
    """A component: the noise of the observations, which every sum has.

    Parameters
    ----------
    var : float, optional
        Its variance. It is estimated if it is not given. 0 removes the noise.
    name : str, default 'irregular'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ArgumentError
        If `var` is negative.

    See Also
    --------
    level : The level.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.noise(var=0))
    level + noise
    """
    return Structural((Noise(name, var, "noise"),))
