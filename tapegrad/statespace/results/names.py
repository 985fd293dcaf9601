"""The names that statsmodels gives to what a fit holds."""

from typing import Any

import numpy
from scipy.special import ndtr

from ..._core.arrays import to_host
from .._problem import FitProblem


class StatsmodelsNames:
    """Properties under the names of statsmodels; of pandas data they are Series with the names of parameters,
    or with the index of the data."""

    names: list[str]
    estimates: numpy.ndarray
    standard_errors: numpy.ndarray
    covariance: numpy.ndarray
    loglik: float
    problem: FitProblem
    fitted_values: Any

    def _named(self, values: numpy.ndarray) -> Any:
        return self.problem.data.labels.frame(values, self.names, None)

    @property
    def llf(self) -> float:
        """The log-likelihood."""
        return self.loglik

    @property
    def bse(self) -> Any:
        """The standard errors."""
        return self._named(self.standard_errors)

    @property
    def zvalues(self) -> Any:
        """The estimates in units of their standard errors."""
        return self._named(self.estimates / self.standard_errors)

    tvalues = zvalues

    @property
    def pvalues(self) -> Any:
        """Two-sided probabilities that estimates of parameters that are zero have larger `zvalues`."""
        return self._named(2 * ndtr(-abs(self.estimates / self.standard_errors)))

    @property
    def param_names(self) -> list[str]:
        """The names of the parameters."""
        return self.names

    @property
    def nobs(self) -> int:
        """The number of steps."""
        return self.problem.data.steps

    @property
    def fittedvalues(self) -> Any:
        """The one-step forecasts."""
        return self.fitted_values

    @property
    def resid(self) -> Any:
        """The data less their one-step forecasts."""
        fitted = numpy.asarray(self.fitted_values).reshape(self.problem.data.steps, self.problem.data.width)
        return self.problem.data.in_form(to_host(self.problem.data.raw) - fitted)

    def cov_params(self) -> Any:
        """The covariance of the estimates, for pandas data a DataFrame."""
        return self.problem.data.labels.frame(self.covariance, self.names, self.names)
