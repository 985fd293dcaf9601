"""Forecasts of a fitted model, with the dates that follow the data's."""

from dataclasses import dataclass
from typing import Any

import numpy
from scipy.special import ndtri

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, ShapeError
from .._labels import date_text
from .._model import LinearGaussian, Observations
from ..filters.compiled import forecast


@dataclass(frozen=True)
class Forecast:
    """`mean` and `standard_errors` of the next observations in the form of the data, a Series for a Series;
    `dates`, the places where they stand; `cov` (steps, p, p).  The parameters are taken as known.

    >>> from tapegrad import statespace as ss
    >>> y = [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0]
    >>> ahead = ss.fit(ss.level(), y).forecast(2)
    >>> ahead.dates, ahead.mean.round(4), ahead.conf_int().round(3)
    (array([10, 11]), array([4.0895, 4.0895]), array([[1.494, 6.685],
           [1.073, 7.107]]))
    """

    mean: Any
    standard_errors: Any
    dates: Any
    cov: numpy.ndarray
    data: Observations

    def conf_int(self, alpha: float = 0.05) -> Any:
        """Limits between which an observation lies with probability 1 - alpha: (steps, 2), for several series
        (steps, p, 2); a DataFrame of lower and upper limits if the data had dates."""
        half = normal_quantile(alpha) * numpy.asarray(self.standard_errors)
        mean = numpy.asarray(self.mean)
        both = numpy.stack([mean - half, mean + half], axis=-1)
        if self.data.labels.index is None:
            return both
        names = [f"{side} {name}" for name in self.data.labels.columns for side in ("lower", "upper")]
        return self.data.labels.frame(both.reshape(len(mean), -1), self.dates, names)

    def __str__(self) -> str:
        names, limits = self.data.labels.columns, numpy.asarray(self.conf_int()).reshape(len(self.dates), -1, 2)
        mean = numpy.asarray(self.mean).reshape(limits.shape[:2])
        errors = numpy.asarray(self.standard_errors).reshape(limits.shape[:2])
        dates = [date_text(date) for date in self.dates]
        width = max(6, *map(len, dates), *map(len, names))
        lines = []
        for i, name in enumerate(names):
            lines.append(f"{name:<{width}}  {'mean':>14}  {'std. error':>12}  {'[0.025':>14}  {'0.975]':>14}")
            for date, x, e, (low, high) in zip(dates, mean[:, i], errors[:, i], limits[:, i], strict=True):
                lines.append(f"{date:<{width}}  {x:>14.6g}  {e:>12.6g}  {low:>14.6g}  {high:>14.6g}")
        return "\n".join(lines)


def forecast_of(model: LinearGaussian, data: Observations, steps: int, dates: Any = None, joseph: bool = False) -> Forecast:
    found = forecast(model, data, steps, joseph)
    if dates is None:
        dates = data.labels.after(data.steps, steps)
    elif len(dates) != steps:
        raise ShapeError(f"forecast: {len(dates)} dates for {steps} steps; wanted one for each")
    cov = to_host(found.cov)
    errors = numpy.sqrt(numpy.maximum(numpy.diagonal(cov, axis1=1, axis2=2), 0.0))
    return Forecast(data.in_form(found.mean, dates), data.in_form(errors, dates), dates, cov, data)


def normal_quantile(alpha: float) -> float:
    """Of the standard normal distribution, for limits that leave out alpha."""
    if not 0 < alpha < 1:
        raise ArgumentError(f"alpha={alpha!r}: wanted a probability between 0 and 1, 0.05 for limits of 95 %")
    return float(ndtri(1 - alpha / 2))
