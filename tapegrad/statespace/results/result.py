"""What a fit found: estimates, their covariance, information criteria, residuals, forecasts, tables,
pictures."""

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, ConvergenceError
from ..._transforms.transforms import jacobian
from .._model import LinearGaussian, Observations, system
from .._problem import FitProblem, SearchEffort, Stop
from .._search import FLAT_CURVATURE
from ..filters.arrays import FilterResult, observed_moments, with_noise
from ..filters.compiled import kalman_filter
from ..filters.simulate import simulate_smoother
from ..filters.smoother import SmootherResult, smooth
from .diagnostics import Diagnostics, diagnostics
from .forecast import Forecast, forecast_of, normal_quantile
from .likelihood_profile import LikelihoodProfile, likelihood_limits, profile_of
from .plots import plot_components, plot_diagnostics, plot_fit
from .summary import html_table, tables, text_table

COVARIANCES = {
    "exact": "exact observed information",
    "opg": "outer product of the scores",
    "robust": "robust (sandwich of information and scores)",
}


class Criteria(NamedTuple):
    """Akaike's, with Hurvich and Tsai's correction, Schwarz' and Hannan and Quinn's information criteria."""

    aic: float
    aicc: float
    bic: float
    hqic: float


class Component(NamedTuple):
    """A part of the data at each step."""

    mean: Any
    standard_errors: Any


@dataclass(frozen=True, kw_only=True)
class FitResult(SearchEffort):
    """The result of `fit`: a maximum of the likelihood, with k parameters.

    Attributes
    ----------
    params : like `start`
        The estimates.
    names : list of str
        Names of the parameters, element by element.
    estimates, standard_errors : arrays of shape (k,)
        The covariance is the inverse of the observed information, by exact second derivatives of the
        log-likelihood in the parameters themselves.
    covariance, correlation : arrays of shape (k, k)
        Of the estimates.
    loglik : float
        The log-likelihood.
    at_bound : list of str
        Parameters at the bound of their constraint. Their standard error is nan, and they count as known for
        the others.
    aic, aicc, bic, hqic : float
        They count the diffuse elements of the start among the parameters (J. Durbin and S. J. Koopman 2012,
        section 7.4); ``criteria(diffuse="ignored")`` does not.
    iterations, newton_steps : int
        Steps of the optimiser, and Newton steps after it.
    evaluations, hessians, products : int
        Counts of values and gradients, Hessians, and Hessian-vector products in both.
    """

    params: Any
    names: list[str]
    estimates: numpy.ndarray
    standard_errors: numpy.ndarray
    covariance: numpy.ndarray
    correlation: numpy.ndarray
    loglik: float
    observations: int
    model: LinearGaussian
    at_bound: list[str]
    problem: FitProblem = field(repr=False)
    stop: Stop = field(repr=False)

    def report(self) -> str:
        """Say how the likelihood was computed (compiled, or on arrays), why, and what the search took."""
        return (
            f"{self.stop.way}\n{self.method}: {self.iterations} iterations, then {self.newton_steps} Newton steps; {self.evaluations} "
            f"values with gradients, {self.hessians} Hessians, {self.products} products with Hessians"
        )

    @property
    def unconstrained(self) -> numpy.ndarray:
        """The unconstrained parameters."""
        return self.stop.u

    @property
    def gradient(self) -> float:
        """The largest entry of the gradient in the unconstrained parameters."""
        return float(abs(self.stop.gradient).max())

    # --- the estimates ---

    @property
    def data(self) -> Observations:
        """The data after the checks, with their dates."""
        return self.problem.data

    def cov(self, kind: str = "exact") -> numpy.ndarray:
        """Compute the covariance of the estimates, (k, k).

        Parameters
        ----------
        kind : {'exact', 'opg', 'robust'}
            'exact' is the inverse of the observed information. 'opg' uses the outer product of the scores.
            'robust' is the sandwich of both, which is right to first order if the model is not.
        """
        if kind not in COVARIANCES:
            raise ArgumentError(f"cov={kind!r}: wanted {', '.join(map(repr, COVARIANCES))}")
        return self.covariance if kind == "exact" else self._by_scores[kind]

    def conf_int(self, alpha: float = 0.05, cov: str = "exact", by: str = "normal") -> numpy.ndarray:
        """Compute confidence limits of the parameters, (k, 2).

        They come from the 'normal' distribution of the estimates, or from the 'likelihood': the points where
        the profile falls by half a quantile of chi-squared, and nan where it does not.
        """
        if by == "likelihood":
            return numpy.array([likelihood_limits(self, name, alpha) for name in self.names])
        if by != "normal":
            raise ArgumentError(f"by={by!r}: wanted 'normal' or 'likelihood'")
        half = normal_quantile(alpha) * numpy.sqrt(numpy.diag(self.cov(cov)))
        return numpy.stack([self.estimates - half, self.estimates + half], axis=1)

    def profile(self, name: str, values: Any = None) -> LikelihoodProfile:
        """Compute the log-likelihood maximised over all other parameters, at each value of one parameter.

        Without values it is computed at 21 values within three standard errors of the estimate.
        """
        return profile_of(self, name, values)

    # --- the fit as a whole ---

    @property
    def diffuse_states(self) -> int:
        """The number of diffuse elements of the first state."""
        mark, m = numpy.asarray(self.model.start.diffuse, bool), self.filtered.predicted_mean.shape[-1]
        return int(numpy.broadcast_to(mark, (m,)).sum())

    def criteria(self, diffuse: str = "counted") -> Criteria:
        """Compute the information criteria.

        The diffuse elements of the start are 'counted' among the parameters, or 'ignored'. The number of
        observations is the number of steps at which something was observed.
        """
        if diffuse not in ("counted", "ignored"):
            raise ArgumentError(f"diffuse={diffuse!r}: wanted 'counted' or 'ignored'")
        k = len(self.names) + (self.diffuse_states - self.problem.used_up if diffuse == "counted" else 0)
        n = sum(1 for rows in self.data.rows if rows) - self.problem.used_up
        base = -2 * self.loglik
        aicc = base + 2 * k * n / (n - k - 1) if n > k + 1 else numpy.inf
        return Criteria(base + 2 * k, aicc, base + k * float(numpy.log(n)), base + 2 * k * float(numpy.log(numpy.log(n))))

    @property
    def aic(self) -> float:
        return self.criteria().aic

    @property
    def aicc(self) -> float:
        return self.criteria().aicc

    @property
    def bic(self) -> float:
        return self.criteria().bic

    @property
    def hqic(self) -> float:
        return self.criteria().hqic

    @cached_property
    def filtered(self) -> FilterResult:
        """`filter` at the estimates."""
        return kalman_filter(self.model, self.data, self.problem.joseph)

    @cached_property
    def smoothed(self) -> SmootherResult:
        """`smooth` at the estimates."""
        return smooth(self.model, self.data, self.problem.joseph)

    @cached_property
    def standardised(self) -> numpy.ndarray:
        """The standardised innovations, (n, p).

        They are the part of each observation that the past does not predict, with unit covariance. They are
        nan where data are missing, or the start was still diffuse.
        """
        r = self.filtered
        v, S = to_host(r.innovations), to_host(r.innovation_cov)
        result = numpy.full(v.shape, numpy.nan)
        for t in range(r.diffuse_steps, len(v)):
            rows = self.data.rows[t]
            if rows:
                L = numpy.linalg.cholesky(S[t][numpy.ix_(rows, rows)])
                result[t, rows] = numpy.linalg.solve(L, v[t, rows])
        return result

    @cached_property
    def foretold(self) -> numpy.ndarray:
        """The prediction of each observation from the past, (n, p)."""
        r, s, n = self.filtered, system(self.model, self.data), self.data.steps
        signal, cov = observed_moments(s, r.predicted_mean[:, :, None], r.predicted_cov, 0, n)
        return to_host(with_noise(s, signal[:, :, 0], cov, 0, n)[0])

    @property
    def fitted_values(self) -> Any:
        """The one-step forecasts in the form of the data; nan where the start was still diffuse."""
        values = self.foretold.copy()
        values[: self.filtered.diffuse_steps] = numpy.nan
        return self.data.in_form(values)

    @property
    def residuals(self) -> Any:
        """The standardised residuals in the form of the data."""
        return self.data.in_form(self.standardised)

    @cached_property
    def diagnostics(self) -> list[Diagnostics]:
        """Tests of the standardised residuals of each series, those after a diffuse start."""
        after = self.standardised[self.filtered.diffuse_steps :]
        return [diagnostics(e) for e in after.T]

    def forecast(self, steps: int, exog: Any = None, dates: Any = None) -> Forecast:
        """Forecast the next observations, with standard errors and dates; `exog` has the regressors."""
        model = self.model_ahead(steps, exog)
        if dates is None:
            self.data.labels.require_next_dates(getattr(exog, "index", None), steps)
        return forecast_of(model, self.data, steps, dates, self.problem.joseph)

    def model_ahead(self, steps: int, exog: Any = None) -> LinearGaussian:
        """The model at the estimates, with matrices for the steps after the data."""
        if not (isinstance(steps, (int, numpy.integer)) and steps >= 1):
            raise ArgumentError(f"steps={steps!r}: wanted a whole number of steps ahead, at least 1")
        described = self.problem.described
        if described is None:
            if exog is not None:
                raise ArgumentError("forecast: exog is for models of the library; let build return matrices for the steps ahead too")
            return self.model
        return described.extended(steps, exog)(self.params)

    def simulate(self, steps: int, draws: int = 1000, rng: Any = None, exog: Any = None) -> numpy.ndarray:
        """Draw the next observations given the data, (draws, steps) or (draws, steps, p).

        The parameters are taken as known.
        """
        model, data = self.model_ahead(steps, exog), self.data
        found = simulate_smoother(model, data.extended(steps), draws, rng).observations[:, data.steps :]
        return found[:, :, 0] if data.labels.single else found

    def simulate_states(self, draws: int = 1000, rng: Any = None) -> numpy.ndarray:
        """Draw the states given the data, (draws, n, m)."""
        return simulate_smoother(self.model, self.data, draws, rng).states

    def components(self) -> dict[str, Component]:
        """Compute the components of a structural model given all data, with standard errors.

        They have the form of the data. For another model they are its states, if it has `state_names`.
        """
        described, names, form = self.problem.described, self.model.state_names, self.data.labels.frame
        if hasattr(described, "components"):
            found = described.components(self)
        elif names:
            mean, cov = to_host(self.smoothed.mean), to_host(self.smoothed.cov)
            found = {name: (mean[:, i], cov[:, i, i]) for i, name in enumerate(names)}
        else:
            raise ArgumentError(
                "components: the model is no sum of parts as ss.level() + ss.seasonal(12), and its states have no names; give them by "
                "LinearGaussian(..., state_names=[...]), or read fit.smoothed.mean"
            )
        return {name: Component(form(mean), form(numpy.sqrt(numpy.maximum(var, 0.0)))) for name, (mean, var) in found.items()}

    # --- pictures ---

    def plot(self, steps: int = 0, exog: Any = None, alpha: float = 0.05, ax: Any = None) -> Any:
        """Plot the data with their one-step forecasts, and forecasts of the next `steps`.

        The result is a figure of matplotlib; with `ax` it is drawn there.
        """
        return plot_fit(self, steps, exog, alpha, ax)

    def plot_components(self, alpha: float = 0.05) -> Any:
        """Plot the components of a structural model, or the named states, with their intervals."""
        return plot_components(self, alpha)

    def plot_diagnostics(self, series: int | str = 0, lags: int = 20) -> Any:
        """Plot the standardised residuals of one series: series, histogram, quantiles, autocorrelations."""
        return plot_diagnostics(self, series, lags)

    # --- tables ---

    def summary(self, alpha: float = 0.05, cov: str = "exact", diffuse: str = "counted") -> str:
        """Make a table of estimates, standard errors (by `cov`), tests and criteria."""
        return text_table(tables(self, alpha, cov, COVARIANCES[self._known(cov)], diffuse))

    def _known(self, cov: str) -> str:
        self.cov(cov)
        return cov

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return html_table(tables(self, 0.05, "exact", COVARIANCES["exact"], "counted"))

    @cached_property
    def _by_scores(self) -> dict[str, numpy.ndarray]:
        """The covariances that need the scores: with J the derivative of the constraints, H the information
        in the free parameters and S their scores, J (S'S)^-1 J' and J H^-1 S'S H^-1 J'."""
        free, J, H = _free(self.problem, self.stop)
        S = self.problem.scores(self.stop.u)[:, free]
        outer, found = S.T @ S, {}
        X = numpy.linalg.solve(H, J.T)
        for kind, inner in (("opg", lambda: J @ numpy.linalg.solve(outer, J.T)), ("robust", lambda: X.T @ outer @ X)):
            try:
                found[kind] = _hidden(inner(), free)
            except numpy.linalg.LinAlgError:
                found[kind] = numpy.full(self.covariance.shape, numpy.nan)
        return found


def _free(problem: FitProblem, stop: Stop) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Which free parameters are not at a bound, the derivative J of the parameters by them, and the
    information in them."""
    H = stop.hessian
    bound = problem.parameters.bounded & (numpy.diag(H) < FLAT_CURVATURE)
    free = numpy.flatnonzero(~bound)
    J = to_host(jacobian(problem.parameters.flat)(problem.data.xp.asarray(stop.u)))[:, free]
    return free, J, H[numpy.ix_(free, free)]


def _hidden(covariance: numpy.ndarray, free: numpy.ndarray) -> numpy.ndarray:
    """A covariance, symmetric, with nan for the parameters at a bound."""
    covariance = (covariance + covariance.T) / 2
    bound = numpy.setdiff1d(numpy.arange(len(covariance)), free)
    covariance[bound, :] = covariance[:, bound] = numpy.nan
    return covariance


def fit_result(problem: FitProblem, stop: Stop) -> FitResult:
    """The result of a search that has come to rest at a maximum; `ConvergenceError` if it is a saddle
    point."""
    parameters = problem.parameters
    free, J, inner = _free(problem, stop)
    if free.size and numpy.linalg.eigvalsh(inner)[0] <= 0:
        raise ConvergenceError(
            f"fit: stopped at a saddle point, unconstrained parameters {stop.u}, log-likelihood {-stop.value:.10g}; start elsewhere"
        )
    # At the maximum the gradient is zero, so the observed information in the parameters themselves is exactly
    # J^-T H J^-1, with J the derivative of the constraints: its inverse is J H^-1 J'.
    covariance = _hidden(J @ numpy.linalg.solve(inner, J.T), free)
    errors = numpy.sqrt(numpy.diag(covariance))
    placed = problem.data.xp.asarray(stop.u)
    params = parameters.tree(placed)
    return FitResult(
        params=params,
        names=parameters.names,
        estimates=to_host(parameters.flat(placed)),
        standard_errors=errors,
        covariance=covariance,
        correlation=covariance / numpy.outer(errors, errors),
        loglik=-stop.value - (0.0 if problem.prior is None else float(to_host(problem.prior(params)))),
        observations=problem.data.count,
        model=problem.build(params),
        at_bound=[name for i, name in enumerate(parameters.names) if i not in free],
        problem=problem,
        stop=stop,
        **{f.name: getattr(stop, f.name) for f in fields(SearchEffort)},
    )
