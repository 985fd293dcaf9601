"""The searches of a fit, from one start after the other, with a progress bar."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy

from .._core.arrays import to_host
from .._core.errors import ArgumentError, ConvergenceError, DataError
from ._problem import FitProblem, Stop
from ._search import SINGULAR, Curvature, holding, maximised
from .filters.compiled import loglik

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


def highest_stop(problem: FitProblem, method: str = "auto", hess: str = "auto", options: Any = None, progress: bool | str = "auto") -> Stop:
    """Return the point of the maximum of a problem; raise if the data do not determine it."""
    stop = _from_each_start(problem, method, hess, options, progress)
    _require_determined(problem, stop)
    return stop


def _from_each_start(problem: FitProblem, *search: Any) -> Stop:
    """Return where the search stops from the first start that leads to a maximum, or raise the first error.

    A maximum below the value where another search failed is rejected."""
    errors: list[Exception] = []
    inner = problem.quick or problem
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
