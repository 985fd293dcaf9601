"""The searches of a fit, from one start after the other, with a progress bar."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy
from numpy import ndarray

from .._core.arrays import to_host
from .._core.errors import ArgumentError, ConvergenceError, DataError
from .._core.scope import quiet
from ._objective import ModelObjective
from ._parameters import Parameters
from ._problem import FitProblem, Stop
from ._search import (
    FLAT_CURVATURE,
    NEARLY_ONE,
    SINGULAR,
    Curvature,
    Spectrum,
    holding,
    maximised,
    near_maximum,
)
from .filters.compiled import loglik

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


SCREENED, TRIED = 64, 6  # further starts of a process that are looked at, and those that are searched from
HIGHER = 1e-6  # difference of log-likelihoods that shows another maximum
SAME_MAXIMUM = 0.2  # distance in units of log-likelihood within which a Newton step leads to the same maximum


def highest_stop(
    problem: FitProblem,
    method: str,
    hess: str = "auto",
    options=None,
    progress: bool | str = "auto",
) -> Stop:
    """Return the point of the maximum of a problem; raise if the data do not determine it.

    A search that fails, or ends at the bound of a constraint, or is of a model with several maxima, is
    followed by others from other starts. A maximum below the value where another search failed is
    rejected."""
    parameters = problem.parameters
    several = getattr(problem.described, "several_maxima", False)
    inner = replace(problem, parameters=parameters)
    with _bar(progress, method) as bar:
        objective = inner.objective()
        objective.watch = bar
        first, *given = _ranked(objective, several, [objective.start, *problem.others])
        if not numpy.isfinite(objective(first)[0]):
            _refuse_start(problem)
        searches = _Searches(objective, parameters, (method, hess, options))
        known = [_profiled(inner, objective, u) for u in (first, *given)]
        starts = sorted([x for x in known if x is not None], key=lambda x: x[0])
        begun, *others = [u for _, u in starts] or [first, *given]
        searches.begin(begun)
        doubtful = searches.doubtful
        if (several or doubtful) and method == "auto" and not options:
            ridge = bool(searches.errors) and isinstance(searches.errors[0], DataError)
            if ridge and several:
                others = []
            elif searches.stops and not several:
                others = others[:1]
            if doubtful:
                others += searches.pulled_in(first)
                others += [] if ridge else _screened(inner, objective, first)
            for u in others:
                searches.look(u, several and doubtful)
            searches.finish()
        elif not searches.stops:
            for other in others:
                searches.begin(other)
    stop = searches.highest()
    _require_determined(problem, stop)
    return stop


class _Searches:
    """The searches so far: the points where they stopped, the errors of the others, and the ends of those
    that were to a few digits."""

    def __init__(self, objective: ModelObjective, parameters: Parameters, settings: tuple):
        self.objective = objective
        self.parameters = parameters
        self.settings = settings
        self.stops: list[Stop] = []
        self.errors: list[Exception] = []
        self.near: list[tuple[float, ndarray]] = []

    def begin(self, u: ndarray) -> None:
        """Search from a start."""
        self.objective.start, self.objective.lowest = u, (numpy.inf, u)
        if not numpy.isfinite(self.objective(u)[0]):
            return
        try:
            self.stops.append(maximised(self.objective, self.parameters, *self.settings))
        except (ConvergenceError, DataError) as error:
            self.errors.append(error)

    def look(self, u: ndarray, apart: bool) -> None:
        """Search from a further start, which may be far `apart` from the first maximum, to a few digits."""
        value, gradient = self.objective(u)
        if not numpy.isfinite(value):
            return
        for stop in self.stops:
            if _leads_to(stop, u, value, gradient):
                self.near.append((stop.value, stop.u))
                return
        hessian = self.stops[0].hessian if self.stops and not apart else None
        self.near.append(near_maximum(self.objective, u, hessian))

    def finish(self) -> None:
        """Search on from the highest of the further ends, if it is higher than all maxima."""
        self.near.sort(key=lambda found: found[0])
        for value, u in self.near[: 1 if self.stops else 2]:
            if value < min([stop.value for stop in self.stops], default=numpy.inf) - HIGHER:
                self.begin(u)

    def _failed(self) -> list:
        """Return the errors of the failed searches, the highest first, and of equal ones that which says
        most."""
        known = [e for e in self.errors if hasattr(e, "unconstrained")]
        return sorted(known, key=lambda e: (-round(e.loglik, 5), not isinstance(e, DataError)))

    @property
    def doubtful(self) -> bool:
        """Return whether the first search did not come to rest away from the bounds."""
        if not self.stops:
            return True
        stop, process = self.stops[0], self.parameters.process
        return bool((self._at_bound(stop) | (process & (abs(stop.u) > NEARLY_ONE))).any())

    def _at_bound(self, stop: Stop) -> ndarray:
        return self.parameters.bounded & (numpy.diag(stop.hessian) < FLAT_CURVATURE)

    def pulled_in(self, first: ndarray) -> list[ndarray]:
        """Return a start where the parameters at a bound are where they began, and the others stay."""
        return [numpy.where(self._at_bound(stop), first, stop.u) for stop in self.stops[:1]]

    def highest(self) -> Stop:
        """Return the highest maximum, or raise the error of the highest failed search."""
        failed = self._failed()
        if not self.stops:
            error = (failed or self.errors)[0]
            if self.near:
                error.add_note(
                    f"From {len(self.near)} other starts no search ends higher, the best a lower one: "
                    f"{-self.near[0][0]:.10g}"
                )
            raise error
        stop = min(self.stops, key=lambda stop: stop.value)
        if failed and failed[0].loglik > 1e-6 * max(1.0, abs(stop.value)) - stop.value:
            failed[0].add_note(
                f"From another start the search finds a maximum, but a lower one: log-likelihood "
                f"{-stop.value:.10g}"
            )
            raise failed[0]
        return replace(stop, starts=1 + len(self.near))


def _leads_to(stop: Stop, u: ndarray, value: float, gradient: ndarray) -> bool:
    """Return whether a search from u would end at this maximum.

    The quadratic function there then explains value and gradient at u: a Newton step from u ends near the
    maximum."""
    step, gain = Spectrum(stop.hessian).step(gradient)
    away, left = u - stop.u, u - step - stop.u
    height = 0.5 * away @ stop.hessian @ away
    return (
        numpy.isfinite(gain)
        and 0.5 * left @ stop.hessian @ left < SAME_MAXIMUM
        and abs(value - stop.value - height) <= 0.5 * height
    )


def _ranked(objective: ModelObjective, several: bool, starts: list[ndarray]) -> list[ndarray]:
    """Return the starts with a likelihood, the highest first; those of a model with several maxima as they
    are."""
    if several or len(starts) == 1:
        return starts
    with quiet():
        found = [(objective(u)[0], u) for u in starts]
    return [u for _, u in sorted([x for x in found if numpy.isfinite(x[0])], key=lambda x: x[0])] or starts[
        :1
    ]


def _profiled(problem: FitProblem, objective: ModelObjective, u: ndarray) -> tuple[float, ndarray] | None:
    """Return value and point where the coefficients of regressors and then the scale are best, given the
    others.

    The log-likelihood is quadratic in the coefficients. With the scale s of all covariances it is
    -(n log s + S / s) / 2 but for a constant, so that the derivative by log s gives S."""
    names = problem.parameters.names
    if problem.scale not in names:
        return None
    k, n = names.index(problem.scale), problem.data.count - problem.used_up
    linear = numpy.flatnonzero(~problem.parameters.bounded & [name in problem.linear for name in names])
    with quiet():
        value, gradient = objective(u)
        if linear.size and numpy.isfinite(value):
            step, gain = Spectrum(_curvature_of(objective, u, gradient, linear)).step(gradient[linear])
            if numpy.isfinite(gain):
                u = u.copy()
                u[linear] -= step
                value, gradient = objective(u)
        ratio = 1.0 - 2.0 * gradient[k] / n
        if not (numpy.isfinite(value) and ratio > 0):
            return None
    u = u.copy()
    u[k] += numpy.log(ratio)
    return value + gradient[k] + 0.5 * n * numpy.log(ratio), u


def _curvature_of(objective: ModelObjective, u: ndarray, gradient: ndarray, linear: ndarray) -> ndarray:
    """Return the second derivatives by coefficients, which are differences of gradients: these are linear in
    them."""
    rows = []
    for k in linear:
        moved = u.copy()
        moved[k] += abs(u[k]) or 1.0
        rows.append((objective(moved)[1] - gradient)[linear] / (moved[k] - u[k]))
    return (numpy.array(rows) + numpy.array(rows).T) / 2


def _screened(problem: FitProblem, objective: ModelObjective, first: ndarray) -> list[ndarray]:
    """Return the highest of some points of a process, over all its stationary and invertible polynomials."""
    inside = problem.parameters.process
    if problem.scale is None or not inside.any():
        return []
    rng, found = numpy.random.default_rng(0), []
    for _ in range(SCREENED):
        u = first.copy()
        u[inside] = numpy.arctanh(rng.uniform(-0.97, 0.97, int(inside.sum())))
        found.append(_profiled(problem, objective, u))
    return [u for _, u in sorted([x for x in found if x is not None], key=lambda x: x[0])[:TRIED]]


def _require_determined(problem: FitProblem, stop: Stop) -> None:
    """Raise if the log-likelihood is flat along a direction, and name the parameters there."""
    count = problem.data.count
    try:
        if not stop.hessian.any():
            raise DataError(
                f"fit: {count} observed values do not determine the parameters: the log-likelihood does not "
                f"depend on them"
            )
        starts = [problem.parameters.start, *problem.others]
        still = (
            ~stop.hessian.any(axis=1)
            & (stop.gradient == 0)
            & numpy.any([stop.u == u for u in starts], axis=0)
        )
        if still.any():  # otherwise a parameter would run into a bound
            names = ", ".join([problem.parameters.names[k] for k in numpy.flatnonzero(still)])
            raise DataError(
                f"fit: the log-likelihood does not depend on {names}; leave it out, or use it in the model"
            )
        Curvature(stop.hessian, problem.parameters.bounded).require_determined(
            problem.parameters, stop.u, count, SINGULAR
        )
    except DataError as error:
        holding(error, problem.parameters, stop.u, stop.value)
        raise


def _refuse_start(problem: FitProblem) -> None:
    """Raise the error that describes an invalid start."""
    u = problem.data.xp.asarray(problem.parameters.start)
    first = float(to_host(loglik(problem.build(problem.parameters.tree(u)), problem.data, problem.joseph)))
    raise ArgumentError(
        f"fit: the log-likelihood at start = {problem.parameters.given} is {first}; start elsewhere"
    )


@contextlib.contextmanager
def _bar(progress: bool | str, label: str) -> Iterator[Callable | None]:
    """Enter a progress bar that counts evaluations and shows the log-likelihood; None if none is shown."""
    if progress not in (True, False, "auto"):
        raise ArgumentError(f"progress={progress!r}: wanted True, False or 'auto'")
    if progress is True and tqdm is None:
        raise ArgumentError("progress=True needs the package tqdm: pip install tqdm")
    if tqdm is None or not (
        progress is True or (progress and sys.stderr is not None and sys.stderr.isatty())
    ):
        yield None  # tqdm takes 10 ms to find that it is disabled
        return
    with tqdm(desc=label, unit=" evaluations", leave=False, delay=0 if progress is True else 2) as bar:

        def watch(value: float) -> None:
            bar.set_postfix_str(f"log-likelihood {-value:.6f}", refresh=False)
            bar.update()

        yield watch
        bar.refresh()
