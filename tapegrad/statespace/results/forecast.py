"""Predictions of a fitted model: one step ahead in the sample, forecasts after it, scenarios, with dates.

Until the `onset` each step is predicted from all before; from there on nothing is known but what a scenario
gives."""

from dataclasses import dataclass
from typing import Any

import numpy
from numpy import ndarray
from scipy.special import ndtri

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, ShapeError
from ..._core.registry import load
from .._labels import date_text
from .._matrices import system
from .._model import LinearGaussian
from .._observations import Observations
from ..filters.arrays import observed_moments, with_noise
from ..filters.augmented import start_of
from ..filters.compiled import kalman_filter
from ..filters.smoother import smooth
from .names import OtherNames

NAMES = {
    "predicted_mean": lambda f: f.mean,
    "se_mean": lambda f: f.standard_errors,
    "var_pred_mean": lambda f: f.standard_errors**2,
    "row_labels": lambda f: f.dates,
    "tvalues": lambda f: f.mean / f.standard_errors,
}
SERIES = ("iloc", "loc", "values", "index", "plot", "to_frame", "to_numpy", "head", "tail", "round", "rename")


@dataclass(frozen=True)
class Forecast(OtherNames):
    """`mean` and `standard_errors` of observations in the form of the data, a Series for a Series; `dates`,
    the places where they stand; `cov` (steps, p, p).  The parameters are taken as known.

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
    cov: ndarray
    data: Observations

    _noun = "a Forecast"
    _known = NAMES
    _replaced = {name: f".mean.{name}, .conf_int() or .summary_frame()" for name in SERIES}

    def __array__(self, dtype=None, copy: bool | None = None) -> ndarray:
        return numpy.array(self.mean, dtype)

    def summary_frame(self, endog: int | None = None, alpha: float = 0.05) -> Any:
        """A DataFrame of mean, mean_se, mean_ci_lower and mean_ci_upper, of the series number `endog`; else,
        of several series, one under the other."""
        pandas, half = load("pandas"), normal_quantile(alpha)
        frames = {}
        for i, name in enumerate(self.data.labels.columns):
            mean, se = (
                numpy.asarray(x).reshape(len(self.dates), -1)[:, i] for x in (self.mean, self.standard_errors)
            )
            columns = {
                "mean": mean,
                "mean_se": se,
                "mean_ci_lower": mean - half * se,
                "mean_ci_upper": mean + half * se,
            }
            frames[name] = pandas.DataFrame(columns, index=pandas.Index(self.dates))
        if endog is not None:
            return list(frames.values())[endog]
        return frames[name] if len(frames) == 1 else pandas.concat(frames)

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
        names = self.data.labels.columns
        limits = numpy.asarray(self.conf_int()).reshape(len(self.dates), -1, 2)
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


def prediction_of(
    fit,
    span: tuple[int, int],
    onset: int | None = None,
    exog=None,
    given=None,
    dates=None,
    seen: tuple[str, bool] = ("predicted", False),
) -> Forecast:
    """Predict the steps of a span (first, end), the end excluded.

    `seen` says which data the states are given, and whether only the states count."""
    (first, end), data = span, fit.data
    ahead = max(end - data.steps, 0)
    if first >= end:
        raise ArgumentError(f"the prediction ends at step {end - 1}, before its start at step {first}")
    model = fit.model_ahead(ahead, exog, dated=dates is None) if ahead else fit.model
    if not ahead and exog is not None:
        raise ArgumentError("exog has the regressors of steps after the data, and the prediction ends before")
    known = data.steps if onset is None else min(max(onset, first), data.steps)
    if not known:
        raise ArgumentError("dynamic: there are no data before the first step; wanted a later one")
    if given is not None:
        if seen != ("predicted", False):
            raise ArgumentError("given: a scenario has no information_set and no signal_only")
        mean, cov = observed_given_all(model, _scenario(data, ahead, given), fit.problem.joseph)
        mean, cov = mean[first:end], cov[first:end]
    else:
        mean, cov = _from_states(fit, model, span, known, *seen)
    if dates is None:
        places = data.labels.places(data.steps)[first:end]
        if ahead:
            after = data.labels.after(data.steps, ahead)[max(first - data.steps, 0) :]
            dates = (
                after
                if not len(places)
                else places.append(after)
                if hasattr(places, "append")
                else numpy.r_[places, after]
            )
        else:
            dates = places
    elif len(dates) != end - first:
        raise ShapeError(f"forecast: {len(dates)} dates for {end - first} steps; wanted one for each")
    errors = numpy.sqrt(numpy.maximum(numpy.diagonal(cov, axis1=1, axis2=2), 0.0))
    return Forecast(data.in_form(mean, dates), data.in_form(errors, dates), dates, cov, data)


def _from_states(
    fit, model: LinearGaussian, span: tuple[int, int], onset: int, information: str, signal: bool
) -> tuple[ndarray, ndarray]:
    """Return means and covariances from the states given data before the onset.

    These are the data before each step, those up to it, or all."""
    (first, end), joseph = span, fit.problem.joseph
    data = fit.data.first(onset)
    data = data.extended(end - onset) if end > onset else data
    s, known = system(model, data), 0
    start = start_of(s, data)
    if start and end > onset:
        start.require_determined("forecast", onset, first=False)
    if information == "smoothed":
        r: Any = smooth(model, data, joseph)
        mean, cov = r.mean, r.cov
    elif information in ("predicted", "filtered"):
        r = kalman_filter(model, data, joseph)
        mean, cov = (getattr(r, f"{information}_{x}") for x in ("mean", "cov"))
        known = min(r.diffuse_steps, onset)
    else:
        raise ArgumentError(f"information_set={information!r}: wanted 'predicted', 'filtered' or 'smoothed'")
    mean, cov = observed_moments(s, mean[first:end, :, None], cov[first:end], first, end)
    mean, cov = (mean[:, :, 0], cov) if signal else with_noise(s, mean[:, :, 0], cov, first, end)
    mean, cov = numpy.array(to_host(mean)), numpy.array(to_host(cov))
    mean[: max(known - first, 0)] = cov[: max(known - first, 0)] = numpy.nan
    return mean, cov


def _scenario(data: Observations, ahead: int, given) -> Observations:
    """Return the data followed by what a scenario gives, nan where it is open."""
    new = Observations(data.row_of(given))
    if new.width != data.width or new.steps > ahead:
        raise ShapeError(
            f"given: {new.steps} steps of {new.width} series; wanted at most {ahead} of {data.width}, nan "
            f"where open"
        )
    whole = data.followed_by("given", new)
    return whole.extended(ahead - new.steps) if ahead > new.steps else whole


def observed_given_all(model: LinearGaussian, data: Observations, joseph: bool) -> tuple[ndarray, ndarray]:
    """Return means (n, p) and covariances (n, p, p) of observations given all data, those data included.

    With B = H_mo H_oo^-1 for missing and observed elements, y_m = Z_m x + d_m + B (y_o - Z_o x - d_o) + rest.
    """
    found, s = smooth(model, data, joseph), system(model, data)
    signal = to_host(found.signal)
    signal_cov = to_host(found.signal_cov)
    y = to_host(data.raw)
    mean, cov = signal.copy(), signal_cov.copy()
    for t, seen in enumerate(data.rows):
        H = s.host(t, "H")
        A, left = numpy.eye(len(H)), H
        if seen:
            B = H[:, seen] @ numpy.linalg.pinv(H[numpy.ix_(seen, seen)], hermitian=True)
            A[:, seen] -= B
            mean[t], left = mean[t] + B @ (y[t, seen] - signal[t, seen]), H - B @ H[seen]
        cov[t] = A @ signal_cov[t] @ A.T + left
        mean[t, seen] = y[t, seen]
        cov[t, seen, :] = cov[t, :, seen] = 0.0
    return mean, cov


def normal_quantile(alpha: float) -> float:
    """Of the standard normal distribution, for limits that leave out alpha."""
    if not 0 < alpha < 1:
        raise ArgumentError(f"alpha={alpha!r}: wanted a probability between 0 and 1, 0.05 for limits of 95 %")
    return float(ndtri(1 - alpha / 2))
