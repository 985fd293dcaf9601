"""What new observations change in predictions: the revision as a sum over observations.

A prediction is an affine function of the data. So the revision is a sum of weights times surprises. The
weights are derivatives of the prediction (M. Banbura and M. Modugno, Journal of Applied Econometrics 29
(2014) 133-160)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
from numpy import ndarray

from ... import numpy as np
from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, DataError, ShapeError
from ..._core.registry import load
from ..._transforms.jacobian import jacobian
from .._labels import date_text
from .._model import LinearGaussian
from .._observations import Observations, as_observations
from ..filters.smoother import smooth
from .forecast import observed_given_all
from .names import OtherNames


@dataclass(frozen=True)
class Surprises:
    """Observations that differ from what was known of them: k of them, for h steps of p series.

    Attributes
    ----------
    dates, series : list
        Where they stand.
    observed, expected : arrays of shape (k,)
        The observations, and what was known: the prediction, or before a revision the earlier value.
    weights : array of shape (k, h, p)
        The derivatives of the predictions with respect to the observations.
    """

    dates: list
    series: list[str]
    observed: ndarray
    expected: ndarray
    weights: ndarray

    def table(self, values: ndarray, columns: Any = None) -> Any:
        """Return values of each as a Series, or (k, ...) as a DataFrame, under dates and names of series."""
        pandas = load("pandas")
        index = pandas.MultiIndex.from_arrays(
            [pandas.Index(self.dates), self.series], names=["update date", "updated variable"]
        )
        values = values.reshape(len(self.series), 1 if columns is None else len(columns))
        return (
            pandas.Series(values[:, 0], index)
            if columns is None
            else pandas.DataFrame(values, index, columns)
        )

    def pairs(self, observed: str, expected: str) -> Any:
        """Return a DataFrame of both, under these names."""
        return self.table(numpy.stack([self.observed, self.expected], axis=1), [observed, expected])

    @property
    def news(self) -> ndarray:
        """The observations less what was known of them, (k,)."""
        return self.observed - self.expected

    @property
    def impacts(self) -> ndarray:
        """What each of them adds to the predictions, (k, h, p)."""
        return self.weights * self.news[:, None, None]


def _weights_table(news, found: Surprises):
    columns = [news.dates, news.impacted]
    return found.table(found.weights, load("pandas").MultiIndex.from_product(columns))


def _details_by(news, columns: list[str]):
    """Return the rows of new observations that change something, under these columns."""
    rows = news.details().reset_index()
    rows = rows[(rows["kind"] == "update") & (abs(rows["impact"]) > 1e-10)].drop(columns="kind")
    return rows.set_index(columns).sort_index()


_UPDATE, _IMPACT = ["update date", "updated variable"], ["impact date", "impacted variable"]
NAMES: dict[str, Callable[[Any], Any]] = {
    "impacts": lambda n: n.frame(),
    "total_impacts": lambda n: n._panel(n.updated - n.previous),
    "update_impacts": lambda n: n._panel(n.updates.impacts.sum(axis=0)),
    "revision_impacts": lambda n: n._panel(n.revisions.impacts.sum(axis=0)),
    "prev_impacted_forecasts": lambda n: n._panel(n.previous),
    "post_impacted_forecasts": lambda n: n._panel(n.updated),
    "news": lambda n: n.updates.table(n.updates.news),
    "weights": lambda n: _weights_table(n, n.updates),
    "revision_weights": lambda n: _weights_table(n, n.revisions),
    "update_realized": lambda n: n.updates.table(n.updates.observed),
    "update_forecasts": lambda n: n.updates.table(n.updates.expected),
    "revised": lambda n: n.revisions.table(n.revisions.observed),
    "revised_prev": lambda n: n.revisions.table(n.revisions.expected),
    "data_updates": lambda n: n.updates.pairs("observed", "forecast (prev)"),
    "data_revisions": lambda n: n.revisions.pairs("revised", "observed (prev)"),
    "details_by_impact": lambda n: _details_by(n, [*_IMPACT, *_UPDATE]),
    "details_by_update": lambda n: _details_by(n, [*_UPDATE, "observed", "forecast (prev)", *_IMPACT]),
    "summary": lambda n: n.__str__,
    "endog_names": lambda n: list(n.data.labels.columns),
}


@dataclass(frozen=True)
class News(OtherNames):
    """The revision of predictions by new data, as `FitResult.news` returns it.

    Attributes
    ----------
    dates : sequence of h places
        The steps that are predicted.
    previous, updated : arrays of shape (h, p)
        The predictions of the signal from the earlier data, and from the new ones.
    updates : Surprises
        The new observations.
    revisions : Surprises
        Earlier observations with another value.
    """

    dates: Any
    previous: ndarray
    updated: ndarray
    updates: Surprises
    revisions: Surprises
    data: Observations
    impacted: list[str]

    _known = NAMES  # of statsmodels

    def _panel(self, values: ndarray):
        """Return (h, p) as a DataFrame of dates and series."""
        return load("pandas").DataFrame(values, self.dates, self.impacted)

    def frame(self) -> Any:
        """Return a DataFrame of predictions and impacts, under the names of statsmodels."""
        names = self.impacted
        changed, seen = (x.impacts.sum(axis=0) for x in (self.revisions, self.updates))
        columns = {
            "estimate (prev)": self.previous,
            "impact of revisions": changed,
            "impact of news": seen,
            "total impact": changed + seen,
            "estimate (new)": self.updated,
        }
        index = [(date_text(date), name) for date in self.dates for name in names]
        pandas = load("pandas")
        return pandas.DataFrame(
            {name: x.reshape(-1) for name, x in columns.items()},
            index=pandas.MultiIndex.from_tuples(index, names=["impact date", "impacted variable"]),
        )

    to_frame = frame

    def details(self) -> Any:
        """Return a DataFrame with a row for each observation and each prediction that it changes."""
        names, rows, index = self.impacted, [], []
        for kind, found in (("revision", self.revisions), ("update", self.updates)):
            for k, h, i in numpy.ndindex(found.weights.shape):
                index.append(
                    (kind, date_text(found.dates[k]), found.series[k], date_text(self.dates[h]), names[i])
                )
                numbers = (found.observed[k], found.expected[k], found.news[k])
                rows.append([*numbers, found.weights[k, h, i], found.impacts[k, h, i]])
        pandas = load("pandas")
        levels = ["kind", "update date", "updated variable", "impact date", "impacted variable"]
        columns = ["observed", "forecast (prev)", "news", "weight", "impact"]
        return pandas.DataFrame(
            numpy.reshape(rows, (-1, 5)), pandas.MultiIndex.from_tuples(index, names=levels), columns
        )

    def __str__(self) -> str:
        return self.frame().to_string(float_format="%.6g")


def news(
    fit: Any,
    updated: Any,
    start: Any = None,
    end: Any = None,
    exog: Any = None,
    impact_date: Any = None,
    impacted_variable: Any = None,
) -> News:
    """Split the revision of predictions by new data into what each observation adds.

    Parameters
    ----------
    updated : array, Series, DataFrame or FitResult
        The earlier data with new observations: further steps, values that were missing, revised values.
        The parameters are those of this fit.
    start, end : int or date, optional
        The first and the last step that is predicted. The default is the steps after the earlier data, up
        to the last of the new data.
    exog : array of shape (k, r), optional
        The regressors of the steps after the earlier data. If `updated` is a fit, those after its data
        are enough.
    impact_date : int or date, optional
        The only step that is predicted.
    impacted_variable : str or list of str, optional
        The series that are predicted; by default all.

    Returns
    -------
    News
        Predictions before and after, and for each observation its surprise, weights and impacts.

    Raises
    ------
    ShapeError
        If the updated data are shorter, or have another number of series.
    DataError
        If they have other dates, or lack an earlier observation.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> y = [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0]
    >>> found = ss.fit(ss.level(), y).news([*y, 6.0], end=11)
    >>> found.previous[:, 0].round(3), found.updated[:, 0].round(3), found.updates.news.round(3)
    (array([4.09, 4.09]), array([5.222, 5.222]), array([1.91]))
    """
    if impact_date is not None:
        start = end = impact_date
    old, new = fit.data, _later(fit.data, updated)
    n, labels = new.steps, new.labels
    first = min(old.steps, n - 1) if start is None else labels.position("news: start", start, n)
    last = max(n - 1, first) if end is None else labels.position("news: end", end, n, True)
    names, every = (
        [impacted_variable] if isinstance(impacted_variable, str) else impacted_variable,
        list(labels.columns),
    )
    names = every if names is None else list(names)
    if not set(names) <= set(every):
        raise ArgumentError(
            f"news: impacted_variable={impacted_variable!r}; the series are {', '.join(every)}"
        )
    shown = [every.index(name) for name in names]
    if first > last:
        raise ArgumentError(f"news: the steps end at {last}, before their start at {first}")
    steps = max(last + 1, n)
    model = _model_of(fit, updated, n, steps, exog)
    before, after = (x.extended(steps - x.steps).host for x in (old, new))
    _require_kept(before, after, new)
    changed = ~numpy.isnan(before) & (before != after)
    revised = numpy.where(changed, after, before)
    known = observed_given_all(model, Observations(revised), fit.problem.joseph)[0]
    fresh = numpy.isnan(before) & ~numpy.isnan(after)
    span = slice(first, last + 1)
    places = labels.places(n)
    if steps > n:
        places = [*places, *labels.after(n, steps - n)]

    def surprises(at: ndarray, expected: ndarray, whole: ndarray) -> Surprises:
        rows, columns = numpy.nonzero(at)
        weights = _weights(model, whole, rows, columns, span, fit.problem.joseph)
        of = [every[i] for i in columns]
        return Surprises([places[t] for t in rows], of, after[at], expected[at], weights[:, :, shown])

    previous, now = [
        to_host(smooth(model, Observations(x), fit.problem.joseph).signal)[span][:, shown]
        for x in (before, after)
    ]
    updates, revisions = surprises(fresh, known, after), surprises(changed, before, revised)
    return News(places[span], previous, now, updates, revisions, new, names)


def _model_of(fit, updated, n: int, steps: int, exog) -> LinearGaussian:
    """Return the model of a fit over all steps, with the regressors of an updated fit if it has them."""
    own, last = getattr(updated, "problem", None), 0 if exog is None else len(exog)
    if (
        own is not None
        and own.described is not None
        and not own.past
        and last == steps - n < steps - fit.data.steps
    ):
        return own.model(fit.params, own.ahead(last, exog, "news") if last else None)
    return fit.model_ahead(steps - fit.data.steps, exog, "news") if steps > fit.data.steps else fit.model


def _weights(
    model: LinearGaussian,
    whole: ndarray,
    rows: ndarray,
    columns: ndarray,
    span: slice,
    joseph: bool,
) -> ndarray:
    """Return the derivatives of the signal at a span (h, p) by the observations at k places, (k, h, p)."""
    if not rows.size:
        return numpy.zeros((0, *whole[span].shape))

    def signal(x):
        y = np.array(whole)
        y[rows, columns] = x
        return smooth(model, Observations(y), joseph).signal[span]

    return numpy.moveaxis(to_host(jacobian(signal)(whole[rows, columns])), -1, 0)


def _later(old: Observations, updated) -> Observations:
    """Return the new data; raise unless they begin as the earlier ones and are as long."""
    new = as_observations(updated.data if hasattr(updated, "problem") else updated)
    if new.width != old.width or new.steps < old.steps:
        raise ShapeError(
            f"news: the updated data are {new.steps} steps of {new.width} series; wanted at least "
            f"{old.steps} of {old.width}, the earlier data included"
        )
    index = new.labels.index
    old.labels.require_same_dates("news: the new table", None if index is None else index[: old.steps])
    return new


def _require_kept(before: ndarray, after: ndarray, new: Observations) -> None:
    """Raise if an observation has gone."""
    for t, i in numpy.argwhere(~numpy.isnan(before) & numpy.isnan(after))[:1]:
        raise DataError(
            f"news: the updated data lack {new.labels.columns[i]} of step {t}, which the earlier ones have; "
            f"fill it in"
        )
