"""The names that statsmodels gives to what a fit holds: what they are here, or what to write instead.

A name that belongs to one kind of model stands beside it, in its `result_names`. Arrays of states have time
last, as in statsmodels."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
from numpy import ndarray
from scipy.special import ndtr

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError
from .._matrices import system
from .._model import Start
from .._problem import FitProblem
from .continued import state_after


class OtherNames:
    """A base class whose objects have attributes under the names of another package.

    `_known` says what they are, and `_replaced` what to write instead of others."""

    _noun = ""
    _known: Any = {}
    _replaced: dict[str, str] = {}

    def __getattr__(self, name: str):
        if name in self._known:
            return self._known[name](self)
        if name in self._replaced:
            raise AttributeError(f"{self._noun} has no {name!r}; write {self._replaced[name]}")
        return object.__getattribute__(self, name)  # raises; if a property did, then once more its error

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._known]


def _time_last(x) -> ndarray:
    return numpy.moveaxis(to_host(x), 0, -1)


def _errors_of(fit) -> ndarray:
    """Return the data less their one-step forecasts, (n, p)."""
    errors = to_host(fit.data.raw) - fit.foretold
    errors[: fit.filtered.diffuse_steps] = numpy.nan
    return errors


def _mean(x: ndarray) -> float:
    """Return the sum over the mean number of values in a column."""
    return float(numpy.nansum(x) / (~numpy.isnan(x)).sum() * x.shape[1])


def _named(fit, values: ndarray):
    """Return (k,) or (k, k) with the names of the parameters, if the data came from pandas."""
    return fit.data.labels.frame(values, fit.names, fit.names if values.ndim == 2 else None)


def _covariance(fit, kind: str):
    return _named(fit, fit.cov(kind))


def _criterion(fit, name: str) -> float:
    return getattr(fit.criteria(), name)


def _predicted(fit, cov: bool) -> ndarray:
    """Return what the past says of the states, with those of the step after the data."""
    s, r = system(fit.model, fit.data), fit.filtered
    if not s.varying & {"T", "Q", "c"} and not s.predict_first:
        after = Start(s.T @ r.filtered_mean[-1] + s.c, s.T @ r.filtered_cov[-1] @ s.T.T + s.Q)
        return _and_after(fit, after, cov)
    try:
        model = fit.model_ahead(1)
    except ArgumentError as error:
        raise AttributeError(
            f"predicted_state has the step after the data: {error}; write fit.filtered.predicted_mean"
        ) from error
    return _and_after(fit, state_after(model, fit.data, fit.problem.joseph), cov)


def _and_after(fit, after: Start, cov: bool) -> ndarray:
    known, last = (
        (fit.filtered.predicted_cov, after.cov) if cov else (fit.filtered.predicted_mean, after.mean)
    )
    return numpy.concatenate([_time_last(known), to_host(last)[..., None]], axis=-1)


NAMES: dict[str, Callable[[Any], Any]] = {
    # the estimates
    "llf": lambda f: f.loglik,
    "bse": lambda f: _named(f, f.standard_errors),
    "zvalues": lambda f: _named(f, f.estimates / f.standard_errors),
    "tvalues": lambda f: f.zvalues,
    "pvalues": lambda f: _named(f, 2 * ndtr(-abs(f.estimates / f.standard_errors))),
    "param_names": lambda f: f.names,
    "fixed_params": lambda f: list(f.fixed),
    **{
        f"cov_params_{name}": partial(_covariance, kind=kind)
        for name, kind in [(x, "exact") for x in ("default", "approx", "oim")]
        + [("opg", "opg"), *((f"robust{x}", "robust") for x in ("", "_oim", "_approx"))]
    },
    "normalized_cov_params": lambda f: f.cov_params(),
    "cov_type": lambda f: "exact",
    "use_t": lambda f: False,
    "mle_retvals": lambda f: {"converged": True, "iterations": f.iterations, "fcalls": f.evaluations},
    # counts and sums of squares
    "nobs": lambda f: f.data.steps,
    "nobs_diffuse": lambda f: f.filtered.diffuse_steps,
    "nobs_effective": lambda f: f.data.steps - f.problem.used_up,
    "loglikelihood_burn": lambda f: f.problem.used_up,
    "k_diffuse_states": lambda f: f.diffuse_states,
    "df_model": lambda f: f.counted_parameters(),
    **{name: partial(_criterion, name=name) for name in ("aic", "aicc", "bic", "hqic")},
    "info_criteria": lambda f: partial(_criterion, f),
    "sse": lambda f: float(numpy.nansum(_errors_of(f) ** 2)),
    "mse": lambda f: _mean(_errors_of(f) ** 2),
    "mae": lambda f: float(numpy.nanmean(abs(_errors_of(f)))),
    # the data and their one-step forecasts
    "fittedvalues": lambda f: f.fitted_values,
    "resid": lambda f: f.data.in_form(_errors_of(f)),
    "llf_obs": lambda f: to_host(f.filtered.loglik_terms),
    "forecasts": lambda f: f.foretold.T,
    "forecasts_error": lambda f: _errors_of(f).T,
    "forecasts_error_cov": lambda f: _time_last(f.filtered.innovation_cov),
    "standardized_forecasts_error": lambda f: f.standardised.T,
    # the states
    "predicted_state": lambda f: _predicted(f, False),
    "predicted_state_cov": lambda f: _predicted(f, True),
    "filtered_state": lambda f: _time_last(f.filtered.filtered_mean),
    "filtered_state_cov": lambda f: _time_last(f.filtered.filtered_cov),
    "smoothed_state": lambda f: _time_last(f.smoothed.mean),
    "smoothed_state_cov": lambda f: _time_last(f.smoothed.cov),
    "smoothed_measurement_disturbance": lambda f: (to_host(f.data.raw) - to_host(f.smoothed.signal)).T,
}

REPLACED = {
    **dict.fromkeys(
        [f"polynomial_{x}" for x in ("ar", "ma", "seasonal_ar", "seasonal_ma", "trend")],
        "fit.polynomial_reduced_ar or polynomial_reduced_ma, or fit.params",
    ),
    "df_resid": "fit.nobs_effective - fit.df_model",
    "cov_kwds": "fit.cov(kind)",
    "filter_results": "fit.filtered",
    "smoother_results": "fit.smoothed",
    "specification": "fit.problem.described",
    "mle_settings": "fit.report()",
    "mlefit": "fit.report()",
    "initialize": "ss.fit, which makes a new fit",
    "load": "ss.load(path)",
    "remove_data": "fit.save(path), whose file is small",
    "t_test_pairwise": "fit.t_test(hypothesis)",
    "wald_test_terms": "fit.wald_test(hypothesis)",
    "get_smoothed_decomposition": "fit.news(updated), whose weights are those of new observations",
    **dict.fromkeys(
        [f"{x}coefficients_of_determination" for x in ("", "get_", "plot_")],
        "numpy.corrcoef(y, fit.factors.smoothed[i]) ** 2",
    ),
    "regression_coefficients": "fit.components(), which has them by name",
    "coefficient_matrices_error": "fit.params, which has error_ar of each series",
    "predicted_diffuse_state_cov": "fit.filtered.predicted_diffuse_cov",
    **dict.fromkeys(
        [
            "scaled_smoothed_estimator",
            "scaled_smoothed_estimator_cov",
            "smoothing_error",
            "smoothed_state_autocov",
            "smoothed_state_disturbance",
            "smoothed_state_disturbance_cov",
            "smoothed_measurement_disturbance_cov",
        ],
        "fit.smoothed, which has means and covariances, or fit.simulate_states()",
    ),
}


class StatsmodelsNames(OtherNames):
    """Attributes under the names of statsmodels, from `NAMES` and the model's own `result_names`."""

    problem: FitProblem
    names: list[str]
    _noun = "a fit"
    _replaced = REPLACED

    @property
    def _known(self) -> dict[str, Callable[[Any], Any]]:
        problem = self.__dict__.get("problem")
        return {**getattr(problem and problem.described, "result_names", {}), **NAMES}
