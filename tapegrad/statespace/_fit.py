"""Maximum likelihood: an optimiser of SciPy with exact derivatives, then Newton steps to the last digit."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy

from .._core.arrays import to_host
from .._core.errors import ArgumentError, ConvergenceError, DataError
from .._core.scope import entry
from ._model import LinearGaussian, Observations
from ._parameters import Parameters
from ._problem import FitProblem, Prior, Stop
from ._search import SINGULAR, Curvature, holding, maximised
from ._structural import Structural
from .filters.compiled import loglik
from .results.result import FitResult, fit_result

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


@entry
def fit(
    build: Callable[[Any], LinearGaussian] | Structural,
    y: Any,
    start: Any = None,
    constraints: Any = None,
    method: str = "auto",
    *,
    hess: str = "auto",
    options: Mapping[str, Any] | None = None,
    progress: bool | str = "auto",
    joseph: bool = False,
    prior: Any = None,
) -> FitResult:
    """Estimate a state space model by maximum likelihood.

    An optimiser is followed by Newton steps, until the gradient in the unconstrained parameters is below 1e-9
    (or below 1e-12 of the log-likelihood if that is larger).

    Parameters
    ----------
    build : callable or Structural
        ``build(params)`` returns a `LinearGaussian`. Or a sum of components: ``level() + seasonal(12)``.
    y : array of shape (n,) or (n, p), Series or DataFrame
        The data, nan where missing. Forecasts continue the dates of a Series or DataFrame.
    start : dict of numbers or arrays, or array, optional
        Starting values. params has the same form. A sum of components needs none.
    constraints : Constraint, dict or list, optional
        One constraint for all parameters, a dict for some of the names, or for a vector a list with one for
        each element. What is not named is free.
    method, hess, options : optional
        As for `tapegrad.optimize.minimize`. 'auto' is BFGS, and 'trust-exact' where BFGS does not come near a
        maximum.
    progress : bool or 'auto', default 'auto'
        Whether a progress bar is shown (package tqdm). 'auto': in a terminal, after two seconds.
    joseph : bool, default False
        As for `loglik`.
    prior : dict or callable, optional
        Log densities added to the log-likelihood: distributions of `tapegrad.stats` by name, or a function of
        all parameters.

    Returns
    -------
    FitResult
        Estimates, standard errors, criteria, tests, forecasts and plots.

    Raises
    ------
    ArgumentError
        If a start violates its constraint, or the log-likelihood is not finite there.
    DataError
        If the data determine some parameters only together; it names them.
    ConvergenceError
        If no maximum is reached. Like `DataError` it holds the last parameters in `params`.

    See Also
    --------
    fit_many : Many series at once.
    sarimax, var, dynamic_factor : Ready-made models.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> y = [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0]
    >>> r = ss.fit(lambda p: ss.local_level(p["a"], p["b"]), y, {"a": 1.0, "b": 1.0}, ss.positive())
    >>> r.estimates.round(6), r.standard_errors.round(6)
    (array([0.714048, 0.616082]), array([0.508658, 0.568061]))
    """
    require_function("fit", build, y)
    data = y if isinstance(y, Observations) else Observations(y)
    if not data.count:
        raise DataError(f"fit: all {data.steps} observations are missing (nan); there is nothing to fit")
    prior = None if prior is None else Prior(prior)
    if isinstance(build, Structural):
        problem = build.problem(data, start, constraints, joseph, prior)
    elif start is None:
        raise ArgumentError("fit: start is missing; wanted a dict of the names of the parameters to numbers or arrays, or a vector")
    else:
        problem = FitProblem(build, data, Parameters(start, constraints), joseph, prior)
        require_model("fit", build, problem.parameters, data.xp)
    return maximise(problem, method, hess, options, progress)


def require_function(call: str, build: Any, y: Any) -> None:
    """Raise if the model is not a function, or the arguments are in the wrong order."""
    if not isinstance(build, Structural) and not callable(build):
        swapped = "; the model function comes first, then the data" if callable(y) or isinstance(y, Structural) else ""
        raise ArgumentError(
            f"{call}: build is a {type(build).__name__}; wanted a function from the parameters to a LinearGaussian{swapped}"
        )


def require_model(call: str, build: Callable, parameters: Parameters, xp: ModuleType = numpy) -> None:
    """Raise if the function does not return a model, or asks for an unknown parameter."""
    given = parameters.tree(xp.asarray(parameters.start))
    try:
        model = build(given)
    except KeyError as error:
        if parameters.keyed and error.args and error.args[0] not in given:
            raise ArgumentError(f"{call}: build asks for the parameter {error.args[0]!r}; start has {', '.join(given)}") from error
        raise
    if not isinstance(model, LinearGaussian):
        sums = f": a sum of parts has its parameters itself, ss.{call}({model}, y)" if hasattr(model, "parts") else ""
        raise ArgumentError(f"{call}: build returned a {type(model).__name__}; wanted a LinearGaussian, as local_level(...) gives{sums}")


def maximise(
    problem: FitProblem, method: str = "auto", hess: str = "auto", options: Any = None, progress: bool | str = "auto"
) -> FitResult:
    """Return the maximum of a problem."""
    stop = _from_each_start(problem, method, hess, options, progress)
    _require_determined(problem, stop)
    return fit_result(problem, stop)


def _from_each_start(problem: FitProblem, *search: Any) -> Stop:
    """Return where the search stops from the first start that leads to a maximum, or raise the first error.

    A maximum below the value where another search failed is rejected."""
    errors, inner = [], problem.quick or problem
    for parameters in (problem.parameters, *problem.others):
        try:
            stop = _maximised(replace(inner, parameters=parameters), *search)
        except (ConvergenceError, DataError) as error:
            errors.append(error)
            continue
        for failed in errors:
            if getattr(failed, "loglik", -numpy.inf) > 1e-6 * max(1.0, abs(stop.value)) - stop.value:
                failed.add_note(f"From another start the search finds a maximum, but a lower one: log-likelihood {-stop.value:.10g}")
                raise failed
        return stop
    raise errors[0]


def _require_determined(problem: FitProblem, stop: Stop) -> None:
    """Raise if the log-likelihood is flat along a direction, and name the parameters there."""
    count = problem.data.count
    try:
        if not stop.hessian.any():
            raise DataError(f"fit: {count} observed values do not determine the parameters: the log-likelihood does not depend on them")
        starts = [p.start for p in (problem.parameters, *problem.others)]
        still = ~stop.hessian.any(axis=1) & (stop.gradient == 0) & numpy.any([stop.u == u for u in starts], axis=0)
        if still.any():  # otherwise a parameter would run into a bound
            names = ", ".join([problem.parameters.names[k] for k in numpy.flatnonzero(still)])
            raise DataError(f"fit: the log-likelihood does not depend on {names}; leave it out, or use it in the model")
        Curvature(stop.hessian, problem.parameters.bounded).require_determined(problem.parameters, count, SINGULAR)
    except DataError as error:
        holding(error, problem.parameters, stop.u, stop.value)
        raise


def _maximised(problem: FitProblem, method: str, hess: str, options: Mapping[str, Any] | None, progress: bool | str) -> Stop:
    objective = problem.objective()
    if not numpy.isfinite(objective(objective.start)[0]):
        _refuse_start(problem)
    with _Bar(progress, method) as bar:
        objective.watch = bar
        return maximised(objective, problem.parameters, method, hess, options)


def _refuse_start(problem: FitProblem) -> None:
    """Raise the error that describes an invalid start."""
    u = problem.data.xp.asarray(problem.parameters.start)
    first = float(to_host(loglik(problem.build(problem.parameters.tree(u)), problem.data, problem.joseph)))
    raise ArgumentError(f"fit: the log-likelihood at start = {problem.parameters.given} is {first}; start elsewhere")


class _Bar:
    """A progress bar that counts evaluations and shows the log-likelihood."""

    def __init__(self, progress: bool | str, label: str):
        if progress not in (True, False, "auto"):
            raise ArgumentError(f"progress={progress!r}: wanted True, False or 'auto'")
        if progress is True and tqdm is None:
            raise ArgumentError("progress=True needs the package tqdm: pip install tqdm")
        self._bar = None
        shown = progress is True or (progress == "auto" and sys.stderr is not None and sys.stderr.isatty())
        if shown and tqdm is not None:  # tqdm takes 10 ms to find that it is disabled
            quiet = {"delay": 2.0} if progress == "auto" else {}
            self._bar = tqdm(desc=label, unit=" evaluations", leave=False, **quiet)

    def __call__(self, value: float) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(f"log-likelihood {-value:.6f}", refresh=False)
            self._bar.update()

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
