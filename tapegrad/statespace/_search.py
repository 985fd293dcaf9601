"""The search for a maximum: an optimiser of SciPy with exact derivatives, then Newton steps to the last
digit."""

from collections.abc import Mapping
from typing import Any

import numpy

from .._core.errors import ConvergenceError, DataError
from ..optimize._minimize import minimize_flat
from ._objective import ModelObjective
from ._parameters import Parameters
from ._problem import Stop

GRADIENT = 1e-9  # bound for the unconstrained gradient, for a log-likelihood up to 1000 in size
NEAR_GRADIENT = 1e-3  # the same, where the Newton steps of method 'auto' begin
FLAT_CURVATURE = 1e-5  # second derivative below which a constrained parameter runs into its bound
MOST_NEWTON_STEPS = 50  # Newton steps, at most
SINGULAR = 1e-10  # smallest scaled eigenvalue of second derivatives that counts as nonzero
RIDGE = 1e-5  # the same after a failed search: a ridge that falls towards infinity always has some curvature


class Curvature:
    """The second derivatives of the parameters that are not at a bound, scaled to a unit diagonal.

    `at` holds these parameters, `scale` the scales; eigenvalues and eigenvectors follow."""

    def __init__(self, hessian: numpy.ndarray, bounded: numpy.ndarray):
        curvature = numpy.diag(hessian)
        self.at = numpy.flatnonzero((curvature > 0) & ~(bounded & (curvature < FLAT_CURVATURE)))
        self.scale = numpy.sqrt(curvature[self.at])
        self.sizes, self.directions = numpy.linalg.eigh(hessian[numpy.ix_(self.at, self.at)] / numpy.outer(self.scale, self.scale))

    def require_determined(self, parameters: Parameters, count: int, least: float) -> None:
        """Raise if the function is flat along some directions, and name the parameters there."""
        if self.at.size and self.sizes[0] < least:
            shares = numpy.linalg.norm(self.directions[:, self.sizes < least], axis=1)
            names = [parameters.names[self.at[k]] for k in numpy.flatnonzero(shares >= min(0.05, numpy.sort(shares)[-2:][0]))]
            raise DataError(
                f"fit: {count} observed values do not determine the parameters: the log-likelihood does not depend on "
                f"{', '.join(names[:-1])} and {names[-1]} one by one, only on some combination of them; leave one out, or give it a value"
            )


class _Search:
    """The state of a search: free parameters, the objective with its derivatives, and the Newton steps so
    far."""

    def __init__(self, objective: ModelObjective, parameters: Parameters):
        self.objective, self.u, self.taken = objective, objective.start, 0
        self.bounded = parameters.bounded
        self.value, self.gradient = objective(self.u)
        self.hessian: Any = None

    def moved(self, u: numpy.ndarray) -> None:
        """Move to u, or, if the function is not finite there, to the lowest point so far."""
        self.u = u if numpy.isfinite(self.objective(u)[0]) else self.objective.lowest[1]
        self.value, self.gradient = self.objective(self.u)

    @property
    def size(self) -> float:
        return float(abs(self.gradient).max())

    @property
    def wanted(self) -> float:
        return GRADIENT * max(1.0, abs(self.value) / 1000)

    def polish(self) -> bool:
        """Take Newton steps; return False if a step no longer helps or this is no maximum.

        A Hessian is reused while a step reduces the gradient to a fifth."""
        while self.taken <= MOST_NEWTON_STEPS:
            self.hessian = self.objective.hessian(self.u)
            if self.size <= self.wanted:
                return True
            if numpy.linalg.eigvalsh(self.hessian[numpy.ix_(self._moving, self._moving)])[0] <= 0:
                return self.resting
            while self.size > self.wanted:
                before = self.size
                if not self._step():
                    return self.resting
                if self.size > before / 5:
                    break
        return self.resting

    @property
    def resting(self) -> bool:
        """Return whether a Newton step would change the estimates by less than 1e-8 standard errors.

        Parameters at a bound are left out. Then only rounding keeps the gradient of a parameter of small unit
        from falling."""
        free = ~(self.bounded & (numpy.diag(self.hessian) < FLAT_CURVATURE))
        H, g = self.hessian[numpy.ix_(free, free)], self.gradient[free]
        if abs(self.gradient[~free]).max(initial=0.0) > FLAT_CURVATURE or not free.any() or numpy.linalg.eigvalsh(H)[0] <= 0:
            return False
        return bool(g @ numpy.linalg.solve(H, g) < 1e-16)

    @property
    def _moving(self) -> numpy.ndarray:
        """Return the positions of the parameters that are not at a bound; of all if all are."""
        arrived = self.bounded & (abs(numpy.diag(self.hessian)) < FLAT_CURVATURE) & (abs(self.gradient) <= self.wanted)
        return numpy.flatnonzero(~arrived | arrived.all())

    def _step(self) -> bool:
        """Take one Newton step, halved until the gradient falls."""
        step, moving = numpy.zeros(self.u.size), self._moving
        step[moving] = numpy.linalg.solve(self.hessian[numpy.ix_(moving, moving)], self.gradient[moving])
        curvature = numpy.diag(self.hessian)
        # Near a bound the function falls as exp(-r u) with r = |second / first derivative|. A Newton step
        # moves only 1 / r, so such a parameter goes all the way at once.
        slope = abs(self.gradient)
        away = self.bounded & (curvature < FLAT_CURVATURE) & (slope > self.wanted) & (curvature > 0.5 * slope) & (curvature < 5 * slope)
        step[away] = self.gradient[away] / curvature[away] * (1 + numpy.log(slope[away] / self.wanted))
        self.taken += 1
        for _ in range(10):
            value, gradient = self.objective(self.u - step)
            better = abs(gradient).max() < self.size or away.any()  # the others follow
            if numpy.isfinite(value) and better and value <= self.value + 1e-9 * abs(self.value):
                self.u, self.value, self.gradient = self.u - step, value, gradient
                return True
            step = step / 2
        return False

    def on_a_ridge(self) -> Curvature | None:
        """Return the Shape if only a flat direction keeps the search from a minimum.

        Newton steps in the other directions then converge."""
        u, value, gradient = self.u, self.value, self.gradient
        for _ in range(MOST_NEWTON_STEPS):
            shape = Curvature(self.objective.hessian(u), self.bounded)
            along = shape.directions.T @ (gradient[shape.at] / shape.scale)
            level = abs(shape.sizes) < RIDGE
            others = numpy.delete(gradient, shape.at)
            if not level.any() or (shape.sizes[~level] < 0).any() or abs(others).max(initial=0.0) > FLAT_CURVATURE:
                return None
            inner = along[~level] / shape.sizes[~level]
            if along[~level] @ inner < 1e-12:
                self.u, self.value, self.gradient = u, value, gradient
                return shape if abs(along[level]).max() < FLAT_CURVATURE else None
            step, before = numpy.zeros(u.size), value
            step[shape.at] = shape.directions[:, ~level] @ inner / shape.scale
            u = u - step
            value, gradient = self.objective(u)
            if not value <= before + 1e-9 * abs(before):
                return None
        return None


def maximised(objective: ModelObjective, parameters: Parameters, method: str, hess: str, options: Mapping[str, Any] | None) -> Stop:
    """Minimise the objective.

    Method 'auto' is BFGS, whose steps cost a gradient each. 'trust-exact' follows if BFGS ends far from a
    maximum."""
    search, iterations, message = _Search(objective, parameters), 0, ""
    near = {"gtol": NEAR_GRADIENT * max(1.0, abs(search.value) / 1000)}
    plan = [("BFGS", near), ("trust-exact", {})] if method == "auto" else [(method, {})]
    for name, own in plan:
        objective.start = search.u
        given = {**own, **(options or {})}
        try:
            with numpy.errstate(all="ignore"):
                found = minimize_flat(objective, name, hess, **({"options": given} if given else {}))
            iterations, message = iterations + int(found.get("nit", 0)), str(found.get("message", ""))
            search.moved(found.flat)
            if not search.polish():
                continue
        except ConvergenceError as error:
            message = str(error)
            search.moved(objective.last_point())
            continue
        return Stop(
            u=search.u,
            value=search.value,
            gradient=search.gradient,
            hessian=search.hessian,
            method=name,
            message=message,
            iterations=iterations,
            newton_steps=search.taken,
            evaluations=objective.evaluations,
            hessians=objective.hessians,
            products=objective.products,
            way=objective.way,
        )
    raise _nowhere(search, parameters, iterations, message)


def _nowhere(search: _Search, parameters: Parameters, iterations: int, message: str) -> Exception:
    """Return the error of a search that ended without a maximum; it holds the last parameters."""
    error: Exception = ConvergenceError(
        f"fit: no maximum reached.  {message}  Stopped after {iterations} iterations and {search.taken} Newton steps at unconstrained "
        f"parameters {search.u}, log-likelihood {-search.value:.10g}, where the largest entry of the gradient is {search.size:.3g} (wanted "
        f"{search.wanted:.1g}).  Start elsewhere, give options={{'maxiter': ...}}, or another method; the error holds the last parameters "
        "as .params, and as .unconstrained"
    )
    try:
        shape = search.on_a_ridge()
        if shape is not None:
            shape.require_determined(parameters, search.objective.count, RIDGE)
    except ConvergenceError:  # no second derivatives there
        pass
    except DataError as known_together:
        error = known_together
    return holding(error, parameters, search.u, search.value)


def holding(error: Any, parameters: Parameters, u: numpy.ndarray, value: float) -> Exception:
    """Return the error with the last parameters attached."""
    error.params, error.unconstrained, error.loglik = parameters.tree(u), u, -value
    return error
