"""Maximum likelihood of a sum of components, or of a function that returns matrices."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy

from .._core.errors import ArgumentError, DataError
from .._core.scope import entry
from ._model import LinearGaussian
from ._observations import as_observations
from ._parameters import Parameters
from ._problem import FitProblem, Prior
from .models.sums import Structural
from .results.result import FitResult, maximise


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
    fixed: Mapping[str, Any] | None = None,
) -> FitResult:
    """Estimate a state space model by maximum likelihood.

    An optimiser is followed by Newton steps, until the gradient in the unconstrained parameters is below 1e-9
    (or below 1e-12 of the log-likelihood if that is larger), or a step would gain less than 1e-8. Where a
    search fails or ends at the bound of a constraint, others from other starts follow.

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
    fixed : dict of numbers, optional
        Values of parameters that are not estimated, by their names or, for elements of arrays, those of
        ``fit.names``.

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
    data = as_observations(y)
    if not data.count:
        raise DataError(f"fit: all {data.steps} observations are missing (nan); there is nothing to fit")
    prior = None if prior is None else Prior(prior)
    if isinstance(build, Structural):
        problem = build.problem(data, start, constraints, joseph, prior, fixed)
    elif start is None:
        raise ArgumentError(
            "fit: start is missing; wanted a dict of the names of the parameters to numbers or arrays, or a "
            "vector"
        )
    else:
        problem = FitProblem(build, data, Parameters(start, constraints, fixed=fixed), joseph, prior)
        require_model("fit", build, problem.parameters, data.xp)
    return maximise(problem, method, hess, options, progress)


def require_function(call: str, build, y) -> None:
    """Raise if the model is not a function, or the arguments are in the wrong order."""
    if not isinstance(build, Structural) and not callable(build):
        swapped = (
            "; the model function comes first, then the data"
            if callable(y) or isinstance(y, Structural)
            else ""
        )
        raise ArgumentError(
            f"{call}: build is a {type(build).__name__}; wanted a function from the parameters to a "
            f"LinearGaussian{swapped}"
        )


def require_model(call: str, build: Callable, parameters: Parameters, xp: ModuleType = numpy) -> None:
    """Raise if the function does not return a model, or asks for an unknown parameter."""
    given = parameters.tree(xp.asarray(parameters.start))
    try:
        model = build(given)
    except KeyError as error:
        if parameters.keyed and error.args and error.args[0] not in given:
            raise ArgumentError(
                f"{call}: build asks for the parameter {error.args[0]!r}; start has {', '.join(given)}"
            ) from error
        raise
    if not isinstance(model, LinearGaussian):
        sums = (
            f": a sum of parts has its parameters itself, ss.{call}({model}, y)"
            if hasattr(model, "parts")
            else ""
        )
        raise ArgumentError(
            f"{call}: build returned a {type(model).__name__}; wanted a LinearGaussian, as local_level(...) "
            f"gives{sums}"
        )
