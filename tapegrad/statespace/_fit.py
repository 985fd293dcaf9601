"""Maximum likelihood: an optimiser of SciPy with exact derivatives, then Newton steps to the last digit."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy

from ..errors import ArgumentError, DataError
from ..optimize import to_host
from ._filter import loglik
from ._model import LinearGaussian, Observations
from ._parameters import Parameters
from ._problem import Prior, Problem, Stop
from ._result import FitResult, result
from ._search import maximised
from ._structural import Structural

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


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
    """Maximise the log-likelihood of `build(params)`, or of a sum of parts as `level() + seasonal(12)`, given y over the
    parameters.  y is (n,) or (n, p), nan where missing, or a Series or DataFrame, whose dates forecasts carry on.

    start is a dict of names to numbers or arrays, or one vector; params has the same form.  constraints is
    one `Constraint` for all, a dict of some of the names, or for a vector a list with one for each element;
    what is not named is free.  method, hess and options go to `tapegrad.optimize.minimize`; 'auto' is BFGS, and
    'trust-exact' where that does not come near a maximum.  The optimiser is followed by Newton steps until the
    gradient in the unconstrained parameters is below 1e-9 (1e-12 of the log-likelihood if that is larger).  progress
    shows a bar (package tqdm): always, never, or with 'auto' in a terminal after two seconds.

    Raises `ArgumentError` if a start violates its constraint or the log-likelihood is not finite there,
    `ConvergenceError` if no maximum is reached, and what `loglik` raises.

    >>> from tapegrad import statespace as ss
    >>> y = [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0]
    >>> r = ss.fit(lambda p: ss.local_level(p["a"], p["b"]), y, {"a": 1.0, "b": 1.0}, ss.positive())
    >>> r.estimates.round(6), r.standard_errors.round(6)
    (array([0.714048, 0.616082]), array([0.508658, 0.568061]))
    """
    data = y if isinstance(y, Observations) else Observations(y)
    if not data.count:
        raise DataError(f"fit: all {data.steps} observations are missing (nan); there is nothing to fit")
    prior = None if prior is None else Prior(prior)
    if isinstance(build, Structural):
        problem = build.problem(data, start, constraints, joseph, prior)
    elif start is None:
        raise ArgumentError("fit: start is missing; wanted a dict of the names of the parameters to numbers or arrays, or a vector")
    else:
        problem = Problem(build, data, Parameters(start, constraints), joseph, prior)
    return found(problem, method, hess, options, progress)


def found(problem: Problem, method: str = "auto", hess: str = "auto", options: Any = None, progress: bool | str = "auto") -> FitResult:
    """The maximum of a problem."""
    stop = _maximised(problem.quick or problem, method, hess, options, progress)
    if not stop.hessian.any():
        raise DataError(
            f"fit: {problem.data.count} observed values do not determine the parameters: the log-likelihood does not depend on them"
        )
    return result(problem, stop)


def _maximised(problem: Problem, method: str, hess: str, options: Mapping[str, Any] | None, progress: bool | str) -> Stop:
    objective = problem.objective()
    if not numpy.isfinite(objective(objective.start)[0]):
        _refuse_start(problem)
    with _Bar(progress, method) as bar:
        objective.watch = bar
        return maximised(objective, problem.parameters, method, hess, options)


def _refuse_start(problem: Problem) -> None:
    """Raise what is wrong with the start."""
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
        if progress is not False and tqdm is not None:
            # disable=None: only in a terminal
            quiet = {"disable": None, "delay": 2.0} if progress == "auto" else {}
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
