"""The search for a maximum: an optimiser of SciPy with exact derivatives, then Newton steps to the last
digit."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy
from numpy import ndarray

from .._core.errors import ConvergenceError, DataError
from .._core.scope import quiet
from ..optimize._minimize import minimize_flat
from ._objective import ModelObjective
from ._parameters import Parameters
from ._problem import Stop

GRADIENT = 1e-9  # bound for the unconstrained gradient, for a log-likelihood up to 1000 in size
NEAR_GRADIENT = 1e-2  # the same, where the Newton steps of method 'auto' begin
FLAT_CURVATURE = 1e-5  # second derivative below which a constrained parameter runs into its bound
MOST_NEWTON_STEPS = 30  # Newton steps, at most
NEAR_GAIN = 3.0  # expected gain in log-likelihood below which a search begins with Newton steps
GAIN = 1e-8  # expected gain in log-likelihood at which a search may rest
TOWARDS_BOUND = 1e-2  # second derivative below which a constrained parameter is tried at its bound
SINGULAR = 1e-10  # smallest scaled eigenvalue of second derivatives that counts as nonzero
NEGATIVE = 1e-8  # scaled eigenvalues below minus this show a saddle point, and no rounding
CANCELS = 1e-3  # share of the changes of the parameters left along a direction in which they cancel
NEARLY_ONE = 4.0  # arctanh of a partial autocorrelation near a unit root
RIDGE = 1e-5  # the same after a failed search: a ridge that falls towards infinity always has some curvature


class Spectrum:
    """A symmetric matrix scaled to a unit diagonal, as eigenvalues `sizes` and eigenvectors `directions`."""

    def __init__(self, matrix: ndarray):
        self.scale = numpy.sqrt(numpy.maximum(numpy.diag(matrix), 0.0))
        self.positive = bool((self.scale > 0).all())
        if self.positive:
            self.sizes, self.directions = numpy.linalg.eigh(matrix / numpy.outer(self.scale, self.scale))
            self.positive = not self.sizes.size or bool(self.sizes[0] > -NEGATIVE)

    def inverse(self) -> ndarray:
        """Return the inverse, without directions that are flat to within rounding."""
        good = self.sizes > SINGULAR
        half = self.directions[:, good] / self.scale[:, None]
        return (half / self.sizes[good]) @ half.T

    def step(self, gradient: ndarray) -> tuple[ndarray, float]:
        """Return the step to the minimum of a quadratic function with this gradient, and by how much it falls:
        infinity if there is none.

        A direction that is flat to within rounding gets no step: at a bound, several free numbers can be one
        parameter."""
        if not self.positive:
            return numpy.zeros(gradient.size), numpy.inf
        along = self.directions.T @ (gradient / self.scale)
        gain = 0.5 * (along**2 / numpy.maximum(self.sizes, NEGATIVE)).sum()
        return self.inverse() @ gradient, float(gain)


class Curvature(Spectrum):
    """The second derivatives of the parameters that are not at a bound; `at` holds these parameters."""

    def __init__(self, hessian: ndarray, bounded: ndarray):
        curvature = numpy.diag(hessian)
        self.at = numpy.flatnonzero((curvature > 0) & ~(bounded & (curvature < FLAT_CURVATURE)))
        super().__init__(hessian[numpy.ix_(self.at, self.at)])

    def require_determined(self, parameters: Parameters, u: ndarray, count: int, least: float) -> None:
        """Raise if the function is flat along some directions, and name the parameters there.

        At a bound of stationary coefficients a direction of the free numbers can leave them all the same."""
        flat = self.sizes < least
        if flat.any():
            J = parameters.derivative(u)[:, self.at] / self.scale
            left, parts = J @ self.directions, abs(J) @ abs(self.directions)
            flat &= numpy.linalg.norm(left, axis=0) > CANCELS * numpy.linalg.norm(parts, axis=0)
        if flat.any():
            shares = numpy.linalg.norm(self.directions[:, flat], axis=1)
            names = [
                parameters.names[self.at[k]]
                for k in numpy.flatnonzero(shares >= min(0.05, numpy.sort(shares)[-2:][0]))
            ]
            raise DataError(
                f"fit: {count} observed values do not determine the parameters: the log-likelihood does not "
                f"depend on {', '.join(names[:-1])} and {names[-1]} one by one, only on some combination of "
                "them; leave one out, or give it a value"
            )


class _Search:
    """The state of a search: free parameters, the objective with its derivatives, and the Newton steps so
    far."""

    def __init__(self, objective: ModelObjective, parameters: Parameters):
        self.objective, self.u, self.taken = objective, objective.start, 0
        self.bounded, self.constraints = parameters.bounded, parameters.constraint_of
        self.value, self.gradient = objective(self.u)
        self.hessian: Any = None
        self._spectrum: tuple = None, None, None  # of the last Newton step: second derivatives, parameters

    def moved(self, u: ndarray) -> None:
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
        most = self.taken + MOST_NEWTON_STEPS
        while self.taken <= most:
            self.hessian = self.objective.hessian(self.u)
            if self._to_bounds():
                self.hessian = self.objective.hessian(self.u)
            if self.size <= self.wanted:
                if self.size > self.wanted / 1000:
                    self._step()
                return True
            if numpy.isinf(self._newton(self._moving)[1]):
                return self.resting
            while self.size > self.wanted:
                before = self.size
                if not self._step():
                    return self.resting
                if self.size > before / 5:
                    break
        return self.resting

    def begins_near(self) -> bool:
        """Compute the second derivatives; return whether a Newton step is expected to gain little."""
        self.hessian = self.objective.hessian(self.u)
        return self._newton(numpy.arange(self.u.size))[1] < NEAR_GAIN

    def _newton(self, at: ndarray) -> tuple[ndarray, float]:
        """Return the Newton step of some parameters, and its expected gain."""
        hessian, among, spectrum = self._spectrum
        if hessian is not self.hessian or not numpy.array_equal(among, at):
            spectrum = Spectrum(self.hessian[numpy.ix_(at, at)])
            self._spectrum = self.hessian, at, spectrum
        step = numpy.zeros(self.u.size)
        step[at], gain = spectrum.step(self.gradient[at])
        return step, gain

    def _to_bounds(self) -> bool:
        """Move the parameters to the bounds of their constraints that lie in flat directions, where the
        function is not higher there, once the others have followed."""
        moved = False
        for i in numpy.flatnonzero(self.bounded & (abs(numpy.diag(self.hessian)) < TOWARDS_BOUND)):
            end = self.constraints[i].end(float(self.u[i]))
            if end is None or abs(self.u[i]) >= abs(end) or abs(self.hessian[i, i]) < FLAT_CURVATURE**2:
                continue
            before = self.u, self.value, self.gradient, self.hessian
            self.u = numpy.where(numpy.arange(self.u.size) == i, end, self.u)
            self._follow(int(i), before[1])
            if self.value <= before[1] + GAIN / 10:
                moved = True
            else:
                self.u, self.value, self.gradient, self.hessian = before
        return moved

    def _follow(self, i: int, wanted: float) -> None:
        """Take a few Newton steps of all parameters but one."""
        others = numpy.delete(numpy.arange(self.u.size), i)
        self.value, self.gradient = self.objective(self.u)
        for _ in range(5):
            if self.value <= wanted + GAIN / 10 or not numpy.isfinite(self.value):
                return
            self.hessian = self.objective.hessian(self.u)
            others = others[numpy.diag(self.hessian)[others] > FLAT_CURVATURE**2]
            step, gain = self._newton(others)
            value, gradient = self.objective(self.u - step)
            if numpy.isinf(gain) or not value < self.value:
                return
            self.u, self.value, self.gradient = self.u - step, value, gradient

    @property
    def resting(self) -> bool:
        """Return whether a Newton step would gain less than `GAIN` of log-likelihood.

        Parameters at a bound are left out. Then only rounding keeps the gradient of a parameter of small unit
        from falling. On a ridge and near a unit root, where steps may go on without end, the gain must be far
        smaller."""
        free = ~(self.bounded & (numpy.diag(self.hessian) < FLAT_CURVATURE))
        if abs(self.gradient[~free]).max(initial=0.0) > FLAT_CURVATURE or not free.any():
            return False
        spectrum = Spectrum(self.hessian[numpy.ix_(free, free)])
        ridge = not spectrum.positive or spectrum.sizes[0] < RIDGE or self.near_unit_root.any()
        return self._newton(numpy.flatnonzero(free))[1] < (GAIN**2 if ridge else GAIN)

    @property
    def near_unit_root(self) -> ndarray:
        """Return which parameters are partial autocorrelations of an autoregression near a unit root."""
        stationary = numpy.array([c.name == "stationary()" for c in self.constraints], bool)
        return stationary & (abs(self.u) > NEARLY_ONE)

    @property
    def _moving(self) -> ndarray:
        """Return the positions of the parameters that are not at a bound; of all if all are."""
        arrived = (
            self.bounded
            & (abs(numpy.diag(self.hessian)) < FLAT_CURVATURE)
            & (abs(self.gradient) <= self.wanted)
        )
        return numpy.flatnonzero(~arrived | arrived.all())

    def _step(self) -> bool:
        """Take one Newton step, halved until the gradient falls, or the function does as it should."""
        step, gain = self._newton(self._moving)
        curvature = numpy.diag(self.hessian)
        # Near a bound the function falls as exp(-r u) with r = |second / first derivative|. A Newton step
        # moves only 1 / r, so such a parameter goes all the way at once.
        slope = abs(self.gradient)
        away = (
            self.bounded
            & (curvature < FLAT_CURVATURE)
            & (slope > self.wanted)
            & (curvature > 0.5 * slope)
            & (curvature < 5 * slope)
        )
        step[away] = self.gradient[away] / curvature[away] * (1 + numpy.log(slope[away] / self.wanted))
        self.taken += 1
        for halved in range(10):
            value, gradient = self.objective(self.u - step)
            # (A fall of less than `GAIN` may be rounding.)
            falls = gain > GAIN and value < self.value - 0.1 * gain / 2**halved
            better = falls or abs(gradient).max() < self.size or away.any()  # the others follow
            if numpy.isfinite(value) and better and value <= self.value + 1e-9 * abs(self.value):
                self.u = self.u - step
                self.value = value
                self.gradient = gradient
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
            if (
                not level.any()
                or (shape.sizes[~level] < 0).any()
                or abs(others).max(initial=0.0) > FLAT_CURVATURE
            ):
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


def maximised(
    objective: ModelObjective,
    parameters: Parameters,
    method: str,
    hess: str,
    options: Mapping[str, Any] | None,
) -> Stop:
    """Minimise the objective.

    Method 'auto' is BFGS, whose steps cost a gradient each. 'trust-exact' follows if BFGS ends far from a
    maximum. Near a maximum Newton steps come first."""
    search, iterations, message = _Search(objective, parameters), 0, ""
    near = {"gtol": NEAR_GRADIENT * max(1.0, abs(search.value) / 1000)}
    plan = [("BFGS", near), ("trust-exact", {})] if method == "auto" else [(method, {})]
    if method == "auto" and not options and search.begins_near():
        plan.insert(0, ("Newton", {}))
    for name, own in plan:
        objective.start = search.u
        given = {**own, **(options or {})}
        try:
            if name == "BFGS" and method == "auto":
                given = {"hess_inv0": _damped_inverse(objective.hessian(search.u)), **given}
            if name != "Newton":
                with quiet():
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


def _damped_inverse(hessian: ndarray) -> ndarray:
    """Return the inverse of a matrix with the sizes of its eigenvalues, which are raised to 1."""
    sizes, directions = numpy.linalg.eigh(hessian)
    half = directions / numpy.sqrt(numpy.maximum(abs(sizes), 1.0))
    return half @ half.T


def near_maximum(objective: ModelObjective, u: ndarray, hessian=None) -> tuple[float, ndarray]:
    """Return value and point where BFGS ends from a start, with second derivatives, or else those of a
    sphere."""
    objective.start, objective.lowest = u, (numpy.inf, u)
    gtol = NEAR_GRADIENT * max(1.0, abs(objective(u)[0]) / 1000)
    with quiet(), contextlib.suppress(ConvergenceError):
        begun = {} if hessian is None else {"hess_inv0": _damped_inverse(hessian)}
        minimize_flat(objective, "BFGS", options={"gtol": gtol, **begun})
    return objective.lowest


def _nowhere(search: _Search, parameters: Parameters, iterations: int, message: str) -> Exception:
    """Return the error of a search that ended without a maximum; it holds the last parameters."""
    roots = numpy.array(parameters.names)[search.near_unit_root]
    if roots.size:
        message += f"  It ran towards a unit root, by {', '.join(roots)}: difference, or take fewer lags."
    error: Exception = ConvergenceError(
        f"fit: no maximum reached.  {message}  Stopped after {iterations} iterations and {search.taken} "
        f"Newton steps at unconstrained parameters {search.u}, log-likelihood {-search.value:.10g}, where "
        f"the largest entry of the gradient is {search.size:.3g} (wanted {search.wanted:.1g}).  Start "
        "elsewhere, give options={'maxiter': ...}, or another method; the error holds the last parameters "
        "as .params, and as .unconstrained"
    )
    try:
        shape = search.on_a_ridge()
        if shape is not None:
            shape.require_determined(parameters, search.u, search.objective.count, RIDGE)
    except ConvergenceError:  # no second derivatives there
        pass
    except DataError as known_together:
        error = known_together
    return holding(error, parameters, search.u, search.value)


def holding(error, parameters: Parameters, u: ndarray, value: float) -> Exception:
    """Return the error with the last parameters attached."""
    error.params = parameters.tree(u)
    error.unconstrained = u
    error.loglik = -value
    return error
