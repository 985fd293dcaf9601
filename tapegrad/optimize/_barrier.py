"""A check of what SciPy's trust-constr calls solved, and a restart where it is not.

Its interior point ends where the gradient of the Lagrangian is below gtol, whatever the barrier parameter is.
There the multipliers times the distances to the limits may be far from zero. Their sum estimates the distance
to the minimum."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

LARGEST_GAP = 1e-6  # of |f| or 1: sum of multipliers times distances that counts as solved
BARRIER_STEP = 0.2  # by which the barrier parameter falls when trust-constr starts again
MOST_RESTARTS = 8  # restarts


def complementarity_gap(result: OptimizeResult, limits: list) -> float:
    """Return the sum of the multipliers times the distances to the limits that they belong to."""
    total = 0.0
    for v, values, limit in zip(result.v, result.constr, limits, strict=True):
        low, high = [np.broadcast_to(np.asarray(b, float), np.shape(values)) for b in (limit.lb, limit.ub)]
        gap = np.where(v < 0, values - low, high - values)
        total += float((abs(v) * np.where(np.isfinite(gap) & (low < high), abs(gap), 0.0)).sum())
    return total


def with_small_gap(
    result: OptimizeResult, again: Callable, constraints: Any, bounds: Any, maxiter: int
) -> OptimizeResult:
    """Return a result whose `success` holds; `again(x, options)` runs trust-constr from x."""
    given = list(constraints) if isinstance(constraints, (list, tuple)) else [constraints]
    limits = given if bounds is None else [*given, bounds]
    steps, restarts = result.nit, 0
    if result.get("barrier_parameter") is None:  # no inequality
        return result
    while (gap := complementarity_gap(result, limits)) > (
        allowed := LARGEST_GAP * max(1.0, abs(result.fun))
    ) and result.status in (1, 2):
        if restarts == MOST_RESTARTS or steps >= maxiter:
            result.success, result.status = False, 0
            result.message = f"not converged: the multipliers times the distances to the limits are {gap:.1e}, above {allowed:.1e}"
            break
        barrier = BARRIER_STEP * result.barrier_parameter
        more = {
            "initial_barrier_parameter": barrier,
            "initial_barrier_tolerance": barrier,
            "maxiter": maxiter - steps,
        }
        result, restarts = again(result.x, more), restarts + 1
        steps += result.nit
    result.nit = result.niter = steps
    return result
