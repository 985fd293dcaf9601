"""A check of what SciPy's trust-constr calls solved, and a restart where it is not.

Its interior point ends where the gradient of the Lagrangian is below gtol, whatever the barrier parameter is.
There the multipliers times the distances to the limits may be far from zero. Their sum estimates the distance
to the minimum. Where gradients of constraints depend on each other, the multipliers may grow without bound.
Then a violation below gtol hides a large distance, too."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import OptimizeResult

LARGEST_GAP = 1e-6  # of |f| or 1: sum of multipliers times distances that counts as solved
BARRIER_STEP = 0.2  # by which the barrier parameter falls when trust-constr starts again
TOLERANCE_STEP = 0.01  # by which gtol falls then, where equalities are violated too much
MOST_RESTARTS = 8  # restarts


def complementarity_gaps(result: OptimizeResult, limits: list) -> tuple[float, float]:
    """Return the sums of the multipliers times the distances to the limits that they belong to, of
    inequalities and of equalities."""
    total = equal = 0.0
    for v, values, limit in zip(result.v, result.constr, limits, strict=True):
        low, high = [np.broadcast_to(np.asarray(b, float), np.shape(values)) for b in (limit.lb, limit.ub)]
        gap = np.where(v < 0, values - low, high - values)
        product = abs(v) * np.where(np.isfinite(gap), abs(gap), 0.0)
        total += float(product[low < high].sum())
        equal += float(product[low >= high].sum())
    return total, equal


def with_small_gap(
    result: OptimizeResult, again: Callable, constraints, bounds, options: dict
) -> OptimizeResult:
    """Return a result whose `success` holds; `again(x, options)` runs trust-constr from x."""
    maxiter, gtol = options.get("maxiter", 1000), options.get("gtol", 1e-8)
    given = list(constraints) if isinstance(constraints, (list, tuple)) else [constraints]
    limits = given if bounds is None else [*given, bounds]
    steps, restarts = result.nit, 0
    while result.status in (1, 2):
        gap, equal = complementarity_gaps(result, limits)
        allowed = LARGEST_GAP * max(1.0, abs(result.fun))
        if max(gap, equal) <= allowed:
            break
        if restarts == MOST_RESTARTS or steps >= maxiter:
            result.success, result.status = False, 0
            result.message = (
                f"not converged: the multipliers times the distances to the limits are {gap + equal:.1e}, "
                f"above {allowed:.1e}"
            )
            break
        more = {"maxiter": maxiter - steps}
        if gap > allowed:
            barrier = BARRIER_STEP * result.barrier_parameter
            more.update(initial_barrier_parameter=barrier, initial_barrier_tolerance=barrier)
        if equal > allowed:
            gtol *= TOLERANCE_STEP
            more["gtol"] = gtol
        result, restarts = again(result.x, more), restarts + 1
        steps += result.nit
    result.nit = result.niter = steps
    return result
