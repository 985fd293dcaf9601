"""What a fit says of observations: predictions, forecasts, scenarios, responses to shocks, draws."""

from numbers import Integral
from typing import Any

import numpy

from ..._core.errors import ArgumentError
from ..._core.registry import load
from .._model import LinearGaussian
from .._observations import Observations
from .._problem import FitProblem
from ..filters.simulate import simulate_smoother
from .forecast import Forecast, prediction_of
from .impulses import impulse_responses as impulse_responses_of
from .news import news as news_of


class PredictionMethods:
    """The methods of a fit that predict; the parameters are taken as known."""

    params: Any
    model: LinearGaussian
    problem: FitProblem

    @property
    def data(self) -> Observations:
        """The data after the checks, with their dates."""
        return self.problem.data

    def forecast(self, steps: Any = 1, exog: Any = None, dates: Any = None, given: Any = None) -> Forecast:
        """Forecast the next observations, with standard errors and dates.

        Parameters
        ----------
        steps : int or date, default 1
            How many steps, or the date of the last one.
        exog : array of shape (steps, r), optional
            The regressors of these steps.
        dates : optional
            The dates, where those of the data do not go on by themselves.
        given : array of shape (k,) or (k, p), optional
            A scenario: values of the first k <= steps future observations, nan where open. The forecasts are
            then means and standard errors given these too.

        Returns
        -------
        Forecast
        """
        n = self.data.steps
        if isinstance(steps, Integral):
            if steps < 1:
                raise ArgumentError(f"steps={steps!r}: wanted a whole number of steps ahead, at least 1")
            end = n + int(steps)
        else:
            end = self.data.labels.position("forecast: steps", steps, n, True) + 1
            if end <= n:
                raise ArgumentError(f"steps={steps!r}: wanted a date after the data")
        return prediction_of(self, (n, end), None, exog, given, dates)

    get_forecast = forecast

    def get_prediction(
        self,
        start: Any = None,
        end: Any = None,
        dynamic: Any = False,
        exog: Any = None,
        given: Any = None,
        information_set: str = "predicted",
        signal_only: bool = False,
    ) -> Forecast:
        """Predict observations in the sample, after it, or both.

        Parameters
        ----------
        start, end : int or date, optional
            The first and the last step. The default is the whole sample. Negative numbers count from its end.
        dynamic : bool, int or date, default False
            The steps from here on are predicted from those before it, as in a forecast. A number counts from
            `start`, and True is 0. Otherwise each step is predicted from all before it.
        exog : array of shape (k, r), optional
            The regressors of the steps after the data.
        given : array, optional
            A scenario for the steps after the data, as for `forecast`.
        information_set : {'predicted', 'filtered', 'smoothed'}, default 'predicted'
            The state of a step is the one given the data before it, those up to it, or all.
        signal_only : bool, default False
            Whether to predict only what the states add, without noise, intercepts and regressors.

        Returns
        -------
        Forecast
            nan where the start was still diffuse.

        Examples
        --------
        >>> from tapegrad import statespace as ss
        >>> fit = ss.fit(ss.level(), [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0])
        >>> found = fit.get_prediction(8, 11, dynamic=1)
        >>> found.dates, found.mean.round(3)
        (array([ 8,  9, 10, 11]), array([3.084, 4.22 , 4.22 , 4.22 ]))
        """
        n, labels = self.data.steps, self.data.labels
        first = 0 if start is None else labels.position("get_prediction: start", start, n)
        last = n - 1 if end is None else labels.position("get_prediction: end", end, n, True)
        onset = None
        if dynamic is not False:
            number = isinstance(dynamic, (bool, int, numpy.integer))
            onset = (
                first + (0 if dynamic is True else int(dynamic))
                if number
                else labels.position("get_prediction: dynamic", dynamic, n)
            )
        seen = (information_set, signal_only)
        return prediction_of(self, (first, last + 1), onset, exog, given, seen=seen)

    def predict(
        self, start: Any = None, end: Any = None, dynamic: Any = False, exog: Any = None, **options: Any
    ) -> Any:
        """Return the means of `get_prediction`."""
        return self.get_prediction(start, end, dynamic, exog, **options).mean

    news = news_of

    def model_ahead(
        self, steps: int, exog: Any = None, call: str = "forecast", dated: bool = True
    ) -> LinearGaussian:
        """The model at the estimates, with matrices for the steps after the data.

        Without `dated` the dates of the regressors are not looked at."""
        described = self.problem.ahead(steps, exog, call, dated)
        return self.model if described is None else self.problem.model(self.params, described)

    impulse_responses = impulse_responses_of

    def simulate(
        self,
        steps: int,
        draws: int = 1000,
        rng: Any = None,
        exog: Any = None,
        anchor: Any = "end",
        repetitions: int | None = None,
    ) -> Any:
        """Draw observations given the data before them, (draws, steps) or (draws, steps, p).

        They are the next ones, or those from the step `anchor` on, a number or date. The parameters are taken
        as known. With `repetitions` in place of `draws` the result has the form of statsmodels: (steps, p,
        repetitions), or for pandas data a DataFrame with dates.
        """
        n, labels = self.data.steps, self.data.labels
        at = (
            n
            if isinstance(anchor, str) and anchor == "end"
            else labels.position("simulate: anchor", anchor, n)
        )
        if not 0 < at <= n:
            raise ArgumentError(
                f"simulate: anchor={anchor!r}; wanted a step after the first and at most the one after the "
                f"data"
            )
        ahead = max(at + steps - n, 0)
        model = self.model_ahead(ahead, exog, "simulate") if ahead else self.model
        draws = draws if repetitions is None else repetitions
        found = simulate_smoother(model, self.data.first(at).extended(steps), draws, rng).observations[:, at:]
        if repetitions is None:
            return found[:, :, 0] if labels.single else found
        found = found.transpose(1, 2, 0)
        if labels.index is None:
            return found
        dates = labels.places(n)[at : at + steps]
        dates = dates.append(labels.after(n, ahead)) if ahead else dates
        pandas = load("pandas")
        columns = pandas.MultiIndex.from_product([labels.columns, range(draws)])
        return pandas.DataFrame(found.reshape(steps, -1), dates, columns)

    def simulate_states(self, draws: int = 1000, rng: Any = None) -> numpy.ndarray:
        """Draw the states given the data, (draws, n, m)."""
        return simulate_smoother(self.model, self.data, draws, rng).states
