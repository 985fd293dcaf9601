"""Structural models by the names and options of statsmodels' `UnobservedComponents`."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ..._core.errors import ArgumentError
from .._bound_model import BoundModel
from .._observations import Observations, as_observations
from .structural import ar, cycle, level, noise, regression, seasonal, trend
from .sums import Structural

# Of each trend: whether there is an irregular, a level, noise of it, a slope, noise of that.
TREND_NAMES = {
    ("irregular", "ntrend"): "i",
    ("fixed intercept",): "l",
    ("deterministic constant", "dconstant"): "il",
    ("local level", "llevel"): "iL",
    ("random walk", "rwalk"): "L",
    ("fixed slope",): "lt",
    ("deterministic trend", "dtrend"): "ilt",
    ("local linear deterministic trend", "lldtrend"): "iLt",
    ("random walk with drift", "rwdrift"): "Lt",
    ("local linear trend", "lltrend"): "iLT",
    ("smooth trend", "strend"): "ilT",
    ("random trend", "rtrend"): "lT",
}
# Bounds of the period of a cycle in business data: 1.5 to 12 years, by the first letter of the frequency.
YEARS = {"Y": 1, "A": 1, "Q": 4, "M": 12}


def unobserved_components(
    y: Any,
    level: bool | str = False,
    trend: bool = False,
    seasonal: int | None = None,
    freq_seasonal: Sequence[Mapping[str, Any]] = (),
    cycle: bool = False,
    autoregressive: int | None = None,
    exog: Any = None,
    irregular: bool = False,
    stochastic_level: bool = False,
    stochastic_trend: bool = False,
    stochastic_seasonal: bool = True,
    stochastic_freq_seasonal: Sequence[bool] | None = None,
    stochastic_cycle: bool = False,
    damped_cycle: bool = False,
    cycle_period_bounds: tuple[float, float] | None = None,
    mle_regression: bool = True,
) -> BoundModel:
    """Make a structural model from the options of statsmodels, to be fitted with ``.fit()``.

    The model is a sum of components, as ``level() + seasonal(12)``, with an exact diffuse start. A damped
    cycle starts in its stationary distribution, where statsmodels has a diffuse start.

    Parameters
    ----------
    y : array of shape (n,), or Series
        The data, nan where missing.
    level : bool or str, default False
        Whether there is a level. Or the name of level, slope and irregular together, such as 'local level' or
        'lltrend'.
    trend : bool, default False
        Whether the level has a slope.
    seasonal : int, optional
        The period of a seasonal pattern.
    freq_seasonal : sequence of dict, optional
        Patterns of waves, each ``{"period": s, "harmonics": k}``. The default of k is half the period.
    cycle : bool, default False
        Whether there is a cycle.
    autoregressive : int, optional
        The order of an autoregression.
    exog : array of shape (n,) or (n, r), optional
        Regressors.
    irregular : bool, default False
        Whether there is observation noise. A sum without any noise gets it.
    stochastic_level, stochastic_trend, stochastic_seasonal, stochastic_cycle : bool
        Whether these components have noise.
    stochastic_freq_seasonal : sequence of bool, optional
        The same for each of `freq_seasonal`. The default is that all have.
    damped_cycle : bool, default False
        Whether the damping of the cycle is estimated; otherwise it has none.
    cycle_period_bounds : (low, high), optional
        Bounds of the period. The default is 1.5 to 12 years of dated yearly, quarterly or monthly data, else
        2 steps to the length of the data.
    mle_regression : bool, default True
        Whether coefficients of regressors are parameters; otherwise they are states.

    Returns
    -------
    model
        Its method ``fit()`` returns a `FitResult`.

    Raises
    ------
    ArgumentError
        If an option is not valid.
    ShapeError
        If y has several series, or `exog` has another number of rows.

    See Also
    --------
    Structural : The sums of components.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> y = np.sin(np.arange(48.0)) + 0.1 * np.arange(48)
    >>> ss.unobserved_components(y, "local linear trend", seasonal=12)
    noise + level + trend + seasonal(12) of 48 steps
    """
    data = as_observations(y)
    flags = [irregular, bool(level), stochastic_level, trend, stochastic_trend]
    if isinstance(level, str):
        flags = list(_of_name(level, any([irregular, trend, stochastic_level, stochastic_trend])))
    waves = (
        _waves(freq_seasonal, stochastic_freq_seasonal)
        if freq_seasonal or stochastic_freq_seasonal is not None
        else []
    )
    moves = [flags[1] and flags[2], flags[3] and flags[4], seasonal is not None and stochastic_seasonal]
    moves += [cycle and stochastic_cycle, bool(autoregressive), *[var is None for *_, var in waves]]
    total = _base(bool(flags[0]) or not any(moves), *map(bool, flags[1:]))
    if seasonal is not None:
        total += _seasonal(seasonal, None if stochastic_seasonal else 0.0)
    for period, harmonics, var in waves:
        total += _seasonal(period, var, harmonics, f"freq_seasonal_{period}({harmonics})")
    if cycle:
        total += _cycle_of(data, cycle_period_bounds, damped_cycle, stochastic_cycle)
    if autoregressive:
        total += ar(autoregressive)
    if exog is not None:
        total += regression(exog) if mle_regression else regression(exog, varying=True, var=0.0)
    return BoundModel(total, data)


# The arguments of `unobserved_components` hide these names.
_level, _trend, _seasonal, _cycle = level, trend, seasonal, cycle


@functools.cache
def _base(noisy: bool, level: bool, moves: bool, trend: bool, bends: bool) -> Structural:
    """Return noise, level and slope."""
    total = noise(None if noisy else 0.0)
    if level or trend:
        total += _level(None if moves else 0.0)
    return total + _trend(None if bends else 0.0) if trend else total


@functools.cache
def _of_name(name: str, more: bool) -> tuple[bool, ...]:
    letters = next((x for names, x in TREND_NAMES.items() if name in names), None)
    if letters is None:
        known = ", ".join([repr(x) for names in TREND_NAMES for x in names])
        raise ArgumentError(f"unobserved_components: level={name!r}; wanted True, False or one of {known}")
    if more:
        raise ArgumentError(
            f"unobserved_components: level={name!r} says what irregular, trend, stochastic_level and "
            f"stochastic_trend are; leave them out"
        )
    return "i" in letters, "l" in letters.lower(), "L" in letters, "t" in letters.lower(), "T" in letters


def _waves(
    given: Sequence[Mapping[str, Any]], stochastic: Sequence[bool] | None
) -> list[tuple[Any, int, float | None]]:
    """Return period, harmonics and variance of each pattern of waves."""
    given = given or ()
    noisy = [True] * len(given) if stochastic is None else list(stochastic)
    if len(noisy) != len(given):
        raise ArgumentError(
            f"unobserved_components: stochastic_freq_seasonal has {len(noisy)} elements; wanted one for each "
            f"of the {len(given)} of freq_seasonal"
        )
    for wave in given:
        if not isinstance(wave, Mapping) or not {"period"} <= set(wave) <= {"period", "harmonics"}:
            raise ArgumentError(
                f"unobserved_components: freq_seasonal holds {wave!r}; wanted {{'period': s, 'harmonics': k}}"
            )
    return [
        (wave["period"], wave.get("harmonics", int(wave["period"] // 2)), None if moves else 0.0)
        for wave, moves in zip(given, noisy, strict=True)
    ]


def _cycle_of(
    data: Observations, bounds: tuple[float, float] | None, damped: bool, stochastic: bool
) -> Structural:
    if damped and not stochastic:
        raise ArgumentError(
            "unobserved_components: a damped cycle without noise dies out; write stochastic_cycle=True, or "
            "damped_cycle=False"
        )
    years = YEARS.get((getattr(data.labels.index, "freqstr", None) or " ")[0])
    if bounds is None and years:
        bounds = (1.5 * years, 12.0 * years)
    return _cycle(bounds, None if damped else 1.0, None if stochastic else 0.0)
