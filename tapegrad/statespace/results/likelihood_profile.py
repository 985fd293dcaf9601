"""Likelihood profiles, and the limits that they give."""

from dataclasses import dataclass

import numpy
from numpy import ndarray

from ... import numpy as np
from ..._core.arrays import to_host
from ..._core.errors import ArgumentError
from ..._transforms.gradient import grad
from ..._transforms.jacobian import hessian
from ...optimize import Objective
from .._problem import FitProblem
from .forecast import normal_quantile

MOST_PROFILE_STEPS = 40


@dataclass(frozen=True)
class LikelihoodProfile:
    """`loglik` (n,), maximised over all parameters but one, where that one has each of the `values` (n,);
    `estimates` (n, k) are all parameters there.  nan where no maximum was found."""

    name: str
    values: ndarray
    loglik: ndarray
    estimates: ndarray


class _Target:
    """One parameter as a function of the free ones, with its derivatives."""

    def __init__(self, problem: FitProblem, i: int):
        def value(u):
            return np.sum(problem.parameters.flat(u)[i])

        place = problem.data.xp.asarray
        self.value = lambda u: float(to_host(value(place(u))))
        self.slope = lambda u: to_host(grad(value)(place(u)))
        self.curvature = lambda u: to_host(hessian(value)(place(u)))


def _index(fit, name: str) -> int:
    if name not in fit.names:
        raise ArgumentError(f"profile: {name!r} is not a parameter; wanted one of {', '.join(fit.names)}")
    if name in fit.at_bound:
        raise ArgumentError(
            f"profile: {name} is at the bound of its constraint, where the likelihood is flat"
        )
    return fit.names.index(name)


def profile(fit, name: str, values=None) -> LikelihoodProfile:
    """Compute the log-likelihood maximised over all other parameters, at each value of one parameter.

    Without values it is computed at 21 values within three standard errors of the estimate.
    """
    fit = fit.origin or fit
    i = _index(fit, name)
    target = _Target(fit.problem, i)
    objective = fit.problem.objective()
    best = fit.unconstrained
    values = (
        _around(fit, target, i) if values is None else numpy.sort(numpy.asarray(values, float).reshape(-1))
    )
    found: dict[int, ndarray | None] = {}
    upwards = [k for k, v in enumerate(values) if v >= fit.estimates[i]]
    downwards = [k for k, v in reversed(list(enumerate(values))) if v < fit.estimates[i]]
    for side in (upwards, downwards):
        u = best
        for k in side:
            found[k] = None if u is None else _held(objective, target, u, values[k])
            u = found[k]
    nothing = numpy.full(best.size, numpy.nan)
    flat = fit.problem.parameters.flat
    estimates = [
        nothing if found[k] is None else to_host(flat(fit.data.xp.asarray(found[k])))
        for k in range(len(values))
    ]
    loglik = [numpy.nan if found[k] is None else -objective(found[k])[0] for k in range(len(values))]
    return LikelihoodProfile(name, values, numpy.array(loglik), numpy.array(estimates))


def _around(fit, target: _Target, i: int) -> ndarray:
    """Values within three standard errors; of a parameter with a constraint of its own, in the free parameter
    behind it."""
    u = fit.unconstrained
    slope = target.slope(fit.unconstrained)
    spread = numpy.linspace(-3.0, 3.0, 21)
    if numpy.count_nonzero(slope) > 1 or slope[i] == 0:
        return fit.estimates[i] + spread * fit.standard_errors[i]
    steps = spread * fit.standard_errors[i] / abs(slope[i])
    return numpy.sort([target.value(u + step * (numpy.arange(u.size) == i)) for step in steps])


def _held(objective: Objective, target: _Target, u: ndarray, v: float):
    """The minimum where the target is v, from the minimum at a value nearby."""
    tolerance = 1e-10 * max(1.0, abs(v))
    return _stationary_point(
        objective, target, u, 0.0, lambda u, _, __, slope: (target.value(u) - v, slope), tolerance
    )


def _stationary_point(
    objective: Objective, target: _Target, u, multiplier: float, condition, tolerance: float
):
    """The point where the gradient is -multiplier times that of the target, and a condition is 0; None where
    Newton's method does not find it.

    `condition` returns what is to be 0, with its gradient."""
    k = u.size
    for _ in range(MOST_PROFILE_STEPS):
        value, gradient = objective(u)
        slope = target.slope(u)
        rest, (miss, row) = gradient + multiplier * slope, condition(u, value, gradient, slope)
        if abs(miss) <= tolerance and abs(rest).max() <= 1e-7 * max(1.0, abs(gradient).max()):
            return u
        system = numpy.zeros((k + 1, k + 1))
        system[:k, :k] = objective.hessian(u) + multiplier * target.curvature(u)
        system[:k, k], system[k, :k] = slope, row
        step = _solved(system, -numpy.append(rest, miss))
        moved = None if step is None else _inside(objective, u, step[:k])
        if moved is None:
            return None
        u, multiplier = moved, multiplier + step[k]
    return None


def likelihood_limits(fit, name: str, alpha: float) -> tuple[float, float]:
    """Where the profile has fallen by half the quantile of chi-squared (D. J. Venzon and S. H. Moolgavkar,
    Applied Statistics 37 (1988) 87-94): f(u) = best + z^2 / 2 and grad f = multiplier * grad target, by
    Newton's method."""
    fall = normal_quantile(alpha) ** 2 / 2
    if name in fit.at_bound:
        return numpy.nan, numpy.nan
    target = _Target(fit.problem, fit.names.index(name))
    objective = fit.problem.objective()
    H = fit.stop.hessian
    direction = _solved(H, target.slope(fit.unconstrained))
    if direction is None:
        return numpy.nan, numpy.nan
    direction = direction / numpy.sqrt(direction @ H @ direction)
    low, high = [
        _fallen(objective, target, fit, side * numpy.sqrt(2 * fall) * direction, fall) for side in (-1, 1)
    ]
    return low, high


def _fallen(objective: Objective, target: _Target, fit, move: ndarray, fall: float) -> float:
    u = _inside(objective, fit.unconstrained, move)
    if u is None:
        return numpy.nan
    slope, wanted = target.slope(u), fit.stop.value + fall
    multiplier = -float(objective(u)[1] @ slope / (slope @ slope))
    fallen = lambda _, value, gradient, __: (value - wanted, gradient)
    end = _stationary_point(objective, target, u, multiplier, fallen, 1e-9)
    return numpy.nan if end is None else target.value(end)


def _solved(A: ndarray, b: ndarray):
    try:
        return numpy.linalg.solve(A, b)
    except numpy.linalg.LinAlgError:
        return None


def _inside(objective: Objective, u: ndarray, step: ndarray):
    """u + step, the step no longer than 2 in any free parameter and halved until the likelihood is finite."""
    step = step * min(1.0, 2.0 / max(abs(step).max(), 1e-300))
    for _ in range(20):
        if numpy.isfinite(objective(u + step)[0]):
            return u + step
        step = step / 2
    return None
