"""What a fit found: estimates, their covariance, information criteria, residuals, forecasts, tables,
pictures."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy
from numpy import ndarray

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, ConvergenceError
from .._matrices import system
from .._model import LinearGaussian
from .._problem import FitProblem, SearchEffort, Stop
from .._search import FLAT_CURVATURE, Spectrum
from .._starts import highest_stop
from ..filters.arrays import FilterResult, observed_moments, with_noise
from ..filters.compiled import kalman_filter
from ..filters.smoother import SmootherResult, smooth
from . import archive, hypotheses, likelihood_profile, plots
from .continued import appended, applied, extended, require_whole, with_estimates
from .diagnostics import Diagnostics, diagnostics, heteroskedasticity, jarque_bera_of, ljung_box
from .forecast import normal_quantile
from .hypotheses import HypothesisTest, likelihood_ratio_of
from .likelihood_profile import likelihood_limits
from .names import StatsmodelsNames
from .predictions import PredictionMethods
from .summary import Summary, tables

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


class States(NamedTuple):
    """Means of the states given the past, past and present, and all data, with the index of the data."""

    predicted: Any
    filtered: Any
    smoothed: Any


@dataclass(frozen=True, kw_only=True)
class FitResult(PredictionMethods, StatsmodelsNames, SearchEffort):
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
    origin : FitResult or None
        The fit that found the estimates, if these are other data (`append`, `extend`, `apply`).
    fixed : dict of float
        Parameters that were not estimated, and their values.

    The names of statsmodels are attributes too: `llf`, `bse`, `resid`, `smoothed_state`, `level`, ...
    For data of pandas they carry names or dates.
    """

    params: Any
    names: list[str]
    estimates: ndarray
    standard_errors: ndarray
    covariance: ndarray
    correlation: ndarray
    loglik: float
    observations: int
    model: LinearGaussian
    at_bound: list[str]
    problem: FitProblem = field(repr=False)
    stop: Stop = field(repr=False)
    origin: "FitResult | None" = field(default=None, repr=False)

    def report(self) -> str:
        """Say how the likelihood was computed (compiled, or on arrays), why, and what the search took."""
        return (
            f"{self.stop.way}\n{self.method}: {self.iterations} iterations, then {self.newton_steps} Newton "
            f"steps; {self.evaluations} "
            f"values with gradients, {self.hessians} Hessians, {self.products} products with Hessians"
        )

    @property
    def unconstrained(self) -> ndarray:
        """The unconstrained parameters."""
        return self.stop.u

    @property
    def gradient(self) -> float:
        """The largest entry of the gradient in the unconstrained parameters."""
        return float(abs(self.stop.gradient).max())

    @property
    def fixed(self) -> dict[str, float]:
        return self.problem.parameters.fixed

    @property
    def scale(self) -> float:
        """The variance of the noise that `concentrate_scale` leaves out of the estimates; otherwise 1."""
        problem = self.problem
        return float(to_host(self.params[problem.scale])) if problem.concentrated else 1.0

    # --- the estimates ---

    def cov(self, kind: str = "exact") -> ndarray:
        """Compute the covariance of the estimates, (k, k).

        Parameters
        ----------
        kind : {'exact', 'opg', 'robust'}
            'exact' is the inverse of the observed information. 'opg' uses the outer product of the scores.
            'robust' is the sandwich of both, which is right to first order if the model is not.
        """
        if kind not in COVARIANCES:
            raise ArgumentError(f"cov={kind!r}: wanted {', '.join(map(repr, COVARIANCES))}")
        return self.covariance if kind == "exact" else (self.origin or self)._by_scores[kind]

    def cov_params(self, r_matrix: Any = None) -> Any:
        """Return the covariance of the estimates, or of R @ estimates; for pandas data a DataFrame."""
        if r_matrix is None:
            return self.data.labels.frame(self.covariance, self.names, self.names)
        R = numpy.asarray(r_matrix, float)
        return R @ self.covariance @ R.T

    def conf_int(self, alpha: float = 0.05, cov: str = "exact", by: str = "normal") -> Any:
        """Compute confidence limits of the parameters, (k, 2); for pandas data a DataFrame.

        They come from the 'normal' distribution of the estimates, or from the 'likelihood': the points where
        the profile falls by half a quantile of chi-squared, and nan where it does not.
        """
        if by == "likelihood":
            limits = numpy.array([likelihood_limits(self.origin or self, name, alpha) for name in self.names])
        elif by == "normal":
            half = normal_quantile(alpha) * numpy.sqrt(numpy.diag(self.cov(cov)))
            limits = numpy.stack([self.estimates - half, self.estimates + half], axis=1)
        else:
            raise ArgumentError(f"by={by!r}: wanted 'normal' or 'likelihood'")
        return self.data.labels.frame(limits, self.names, (0, 1))

    profile = likelihood_profile.profile

    wald_test = hypotheses.wald_test
    t_test = hypotheses.t_test
    f_test = hypotheses.f_test

    def likelihood_ratio_test(self, restricted: "FitResult | Mapping[str, float]") -> HypothesisTest:
        """Test restrictions by twice the difference of the log-likelihoods.

        `restricted` is a fit with fewer parameters to the same data, or a dict of values as for `fixed`, with
        which the model is fitted. A variance of zero is at the bound of its constraint. The probability is
        then too large, by a factor of 2 for one variance.
        """
        if isinstance(restricted, Mapping):
            require_whole(self)
            parameters = self.problem.parameters.moved(self.unconstrained, restricted)
            restricted = maximise(replace(self.problem, parameters=parameters, others=()), progress=False)
        return likelihood_ratio_of(self, restricted)

    # --- other data ---

    def append(self, y: Any, exog: Any = None, refit: bool = False) -> "FitResult":
        """Return the fit with new observations behind the data.

        Parameters
        ----------
        y : scalar, array of shape (k,) or (k, p), Series or DataFrame
            The new observations. Their dates must follow those of the data.
        exog : array of shape (k, r), optional
            The regressors of these steps.
        refit : bool, default False
            Whether the parameters are estimated again, from where they are. Otherwise they stay, with their
            standard errors, and `loglik`, criteria and residuals are those of all data.

        Returns
        -------
        FitResult

        Raises
        ------
        DataError
            If the dates do not follow, by the step that the data have.

        Examples
        --------
        >>> from tapegrad import statespace as ss
        >>> fit = ss.fit(ss.level(), [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0])
        >>> more = fit.append(6.0)
        >>> print(more.nobs, more.forecast(1).mean.round(4))
        11 [5.222]
        """
        return self._on(appended(self, y, exog), refit)

    def extend(self, y: Any, exog: Any = None) -> "FitResult":
        """Return the fit on new observations alone, which start from the state that the data imply.

        Forecasts and states are those of `append`, and `loglik` is that of the new observations given the
        others.
        """
        return self._on(extended(self, y, exog), False)

    def apply(self, y: Any, exog: Any = None, refit: bool = False) -> "FitResult":
        """Return the model with these estimates on other data, or with ``refit=True`` estimated there.

        The data may have other dates and another length. `exog` has their regressors.
        """
        return self._on(applied(self, y, exog), refit)

    save = archive.save

    def _on(self, problem: FitProblem, refit: bool) -> "FitResult":
        if refit:
            require_whole(replace(self, problem=problem))
            again = getattr(problem.described, "again", lambda problem: problem)
            return maximise(again(problem), progress=False)
        return with_estimates(self, problem)

    # --- the fit as a whole ---

    @property
    def diffuse_states(self) -> int:
        """The number of diffuse elements of the first state."""
        mark, m = numpy.asarray(self.model.start.diffuse, bool), self.filtered.predicted_mean.shape[-1]
        return int(numpy.broadcast_to(mark, (m,)).sum())

    def counted_parameters(self, diffuse: str = "counted") -> int:
        """Return the number of parameters in the criteria, with the diffuse elements or without."""
        more = self.diffuse_states - self.problem.used_up if diffuse == "counted" else 0
        return len(self.names) + self.problem.concentrated + more

    def criteria(self, diffuse: str = "counted") -> Criteria:
        """Compute the information criteria.

        The diffuse elements of the start are 'counted' among the parameters, or 'ignored'. The number of
        observations is the number of steps at which something was observed.
        """
        if diffuse not in ("counted", "ignored"):
            raise ArgumentError(f"diffuse={diffuse!r}: wanted 'counted' or 'ignored'")
        k = self.counted_parameters(diffuse)
        n = sum(1 for rows in self.data.rows if rows) - self.problem.used_up
        base = -2 * self.loglik
        aicc = base + 2 * k * n / (n - k - 1) if n > k + 1 else numpy.inf
        return Criteria(
            base + 2 * k, aicc, base + k * float(numpy.log(n)), base + 2 * k * float(numpy.log(numpy.log(n)))
        )

    @cached_property
    def filtered(self) -> FilterResult:
        """`filter` at the estimates."""
        return kalman_filter(self.model, self.data, self.problem.joseph)

    @cached_property
    def smoothed(self) -> SmootherResult:
        """`smooth` at the estimates."""
        return smooth(self.model, self.data, self.problem.joseph)

    @cached_property
    def states(self) -> States:
        """The states, in the form of the data, under their names."""
        r, names = self.filtered, self.model.state_names
        means = (r.predicted_mean, r.filtered_mean, self.smoothed.mean)
        columns = list(names or [f"state {i}" for i in range(means[0].shape[1])])
        return States(*[self.data.labels.frame(to_host(x), None, columns) for x in means])

    @cached_property
    def standardised(self) -> ndarray:
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
    def foretold(self) -> ndarray:
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
        return [diagnostics(e) for e in self._after_start.T]

    def test_normality(self, method: str | None = None) -> ndarray:
        """Jarque and Bera's test of the residuals: statistic, p value, skewness and kurtosis, (p, 4)."""
        _require_method("test_normality", method, "jarquebera")
        found = [jarque_bera_of(e) for e in self._after_start.T]
        return numpy.array([[x.statistic, x.p_value, *rest] for x, *rest in found])

    def test_heteroskedasticity(self, method: str | None = None, alternative: str = "two-sided") -> ndarray:
        """Test whether the last third of the residuals varies as the first: statistic and p value, (p, 2)."""
        _require_method("test_heteroskedasticity", method, "breakvar")
        found = [heteroskedasticity(e, alternative) for e in self._after_start.T]
        return numpy.array([[x.statistic, x.p_value] for x in found])

    def test_serial_correlation(self, method: str | None = None, lags: int = 10, used: int = 0) -> ndarray:
        """Ljung and Box' test of the residuals: statistics and p values at lags 1 to `lags`, (p, 2, lags).

        `method` is 'ljungbox', or 'boxpierce' for the test of Box and Pierce.

        Pairs with a missing value are left out. `used` is the number of estimated coefficients, by which the
        degrees of freedom are reduced.
        """
        if method != "boxpierce":
            _require_method("test_serial_correlation", method, "ljungbox")
        found = [ljung_box(e, list(range(1, lags + 1)), used, method) for e in self._after_start.T]
        return numpy.array([[[x.statistic for x in series], [x.p_value for x in series]] for series in found])

    @property
    def _after_start(self) -> ndarray:
        """The standardised innovations after a diffuse start."""
        return self.standardised[self.filtered.diffuse_steps :]

    def components(self, filtered: bool = False) -> dict[str, Component]:
        """Compute the components of a structural model given all data, with standard errors.

        They have the form of the data. For another model they are its states, if it has `state_names`. If
        `filtered`, they are those given the data up to each step, nan where the start was still diffuse.
        """
        described = self.problem.described
        names = self.model.state_names
        form = self.data.labels.frame
        r = self.filtered
        mean, cov = (r.filtered_mean, r.filtered_cov) if filtered else (self.smoothed.mean, self.smoothed.cov)
        mean, cov = numpy.array(to_host(mean)), numpy.array(to_host(cov))
        if filtered:
            mean[: r.diffuse_steps] = cov[: r.diffuse_steps] = numpy.nan
        if hasattr(described, "components"):
            found = described.components(self, mean, cov, filtered)
        elif names:
            found = {name: (mean[:, i], cov[:, i, i]) for i, name in enumerate(names)}
        else:
            raise ArgumentError(
                "components: the model is no sum of parts as ss.level() + ss.seasonal(12), and its states "
                "have no names; give them by "
                "LinearGaussian(..., state_names=[...]), or read fit.smoothed.mean"
            )
        return {
            name: Component(form(mean), form(numpy.sqrt(numpy.maximum(var, 0.0))))
            for name, (mean, var) in found.items()
        }

    # --- pictures ---

    plot = plots.plot
    plot_components = plots.plot_components
    plot_diagnostics = plots.plot_diagnostics

    # --- tables ---

    def summary(self, alpha: float = 0.05, cov: str = "exact", diffuse: str = "counted") -> Summary:
        """Make a table of estimates, standard errors (by `cov`), tests and criteria.

        It is a text; a notebook shows `as_html()`, and `tables` holds its three parts.
        """
        self.cov(cov)
        return Summary(tables(self, alpha, cov, COVARIANCES[cov], diffuse))

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    @cached_property
    def _by_scores(self) -> dict[str, ndarray]:
        """The covariances that need the scores: with J the derivative of the constraints, H the information
        in the free parameters and S their scores, J (S'S)^-1 J' and J H^-1 S'S H^-1 J'."""
        free, J, H = _free(self.problem, self.stop)
        S = self.problem.scores(self.stop.u)[:, free]
        outer, found = S.T @ S, {}
        X = Spectrum(H).inverse() @ J.T
        for kind, inner in (
            ("opg", lambda: J @ numpy.linalg.solve(outer, J.T)),
            ("robust", lambda: X.T @ outer @ X),
        ):
            try:
                found[kind] = _hidden(inner(), free)[: len(self.names), : len(self.names)]
            except numpy.linalg.LinAlgError:
                found[kind] = numpy.full(self.covariance.shape, numpy.nan)
        return found


def _free(problem: FitProblem, stop: Stop) -> tuple[ndarray, ndarray, ndarray]:
    """Which free parameters are not at a bound, the derivative J of the parameters by them, and the
    information in them."""
    H = stop.hessian
    bound = problem.parameters.bounded & (numpy.diag(H) < FLAT_CURVATURE)
    free = numpy.flatnonzero(~bound)
    J = problem.parameters.derivative(stop.u, problem.data.xp)[:, free]
    return free, J, H[numpy.ix_(free, free)]


def _hidden(covariance: ndarray, free: ndarray) -> ndarray:
    """A covariance, symmetric, with nan for the parameters at a bound."""
    covariance = (covariance + covariance.T) / 2
    bound = numpy.delete(numpy.arange(len(covariance)), free)
    covariance[bound, :] = covariance[:, bound] = numpy.nan
    return covariance


def fit_result(problem: FitProblem, stop: Stop) -> FitResult:
    """The result of a search that has come to rest at a maximum; `ConvergenceError` if it is a saddle
    point."""
    parameters = problem.parameters
    free, J, inner = _free(problem, stop)
    spectrum = Spectrum(inner)
    if not spectrum.positive:
        raise ConvergenceError(
            f"fit: stopped at a saddle point, unconstrained parameters {stop.u}, log-likelihood "
            f"{-stop.value:.10g}; start elsewhere"
        )
    # At the maximum the gradient is zero, so the observed information in the parameters themselves is exactly
    # J^-T H J^-1, with J the derivative of the constraints: its inverse is J H^-1 J'.
    names = parameters.names[:-1] if problem.concentrated else parameters.names
    k = len(names)
    covariance = _hidden(J @ spectrum.inverse() @ J.T, free)[:k, :k]
    errors = numpy.sqrt(numpy.diag(covariance))
    placed = problem.data.xp.asarray(stop.u)
    params = parameters.named(placed)
    return FitResult(
        params=params,
        names=names,
        estimates=to_host(parameters.flat(placed))[:k],
        standard_errors=errors,
        covariance=covariance,
        correlation=covariance / numpy.outer(errors, errors),
        loglik=-stop.value - (0.0 if problem.prior is None else float(to_host(problem.prior(params)))),
        observations=problem.data.count,
        model=problem.model(params),
        at_bound=[name for i, name in enumerate(names) if i not in free],
        problem=problem,
        stop=stop,
        **{f.name: getattr(stop, f.name) for f in fields(SearchEffort)},
    )


def maximise(
    problem: FitProblem,
    method: str = "auto",
    hess: str = "auto",
    options=None,
    progress: bool | str = "auto",
) -> FitResult:
    """Return the fit of a problem."""
    problem.data.labels.warn_of_gaps()
    return fit_result(problem, highest_stop(problem, method, hess, options, progress))


def _require_method(call: str, method: str | None, known: str) -> None:
    if method not in (None, known):
        raise ArgumentError(f"{call}: method={method!r}; wanted {known!r}, or None for the same")
