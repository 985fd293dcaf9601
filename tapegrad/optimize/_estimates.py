"""The estimates of a fit: standard errors, intervals, profiles and predictions.

The objective of `Estimates` is minus a log-likelihood up to a constant. It is the function that was
minimised, or half the sum of squares over the variance."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy import ndarray
from scipy import special
from scipy.optimize import OptimizeResult

from .._core.errors import ArgumentError, ConvergenceError
from .._core.trees import leaves, paths
from ._flat import ArraysOfPandas, FlatStart, Values, flatten_result
from ._propagation import propagate
from ._residual_kernels import checked_loss, weights

ACTIVE = 1e-8  # relative distance to a bound at which a parameter is at it
MOST_WIDENINGS = 40  # steps outwards in search of the end of a profile interval
LOWER = 1e-6  # by which a profile may fall below the minimum, of the rise that is looked for


@dataclass(frozen=True)
class Predictions:
    """The prediction of a fit at given points.

    Attributes
    ----------
    mean : array or tree
        The function of the estimates.
    standard_errors : array or tree
        Their standard errors, by the delta method.
    lower, upper : array or tree
        The band of the given level.
    """

    mean: Any
    standard_errors: Any
    lower: Any
    upper: Any


class Estimates:
    """The estimates of a fit, made by the method `estimates` of results; printing shows a table.

    Attributes
    ----------
    x : array or tree
        The estimates, like the start.
    flat : array of shape (n,)
        The estimates as a vector.
    names : list of str
        A name for each number of the vector.
    cov : array of shape (n, n)
        The covariance; nan for parameters that are at a bound.
    standard_errors : array of shape (n,)
        The square roots of its diagonal.
    correlations : array of shape (n, n)
        The correlations.
    degrees_of_freedom : float
        Those of Student's distribution of the intervals; inf where the variance is known.

    See Also
    --------
    curve_fit, least_squares, minimize : Their results have `estimates`.
    """

    def __init__(
        self,
        flat: FlatStart,
        u: ndarray,
        objective,
        held: ndarray,
        names: list,
        scale: float,
        degrees: float,
    ):
        """`objective(u)` gives value and gradient, `objective.hessian(u)` the curvature; both are divided by
        `scale`."""
        self._flat = flat
        self._objective = objective
        self._held = held
        self._scale = scale
        self.x = flat(u)
        self.flat = np.array(u, float)
        self.names = names
        self.degrees_of_freedom = degrees
        self.cov = np.full((u.size, u.size), np.nan)
        free = np.flatnonzero(~held)
        self.cov[np.ix_(free, free)] = inverse_of(objective.curvature(u)[np.ix_(free, free)] / scale)

    @property
    def standard_errors(self) -> ndarray:
        return np.sqrt(np.diag(self.cov))

    @property
    def correlations(self) -> ndarray:
        with np.errstate(invalid="ignore"):
            return self.cov / np.multiply.outer(self.standard_errors, self.standard_errors)

    def _quantile(self, alpha: float) -> float:
        if not 0 < alpha < 1:
            raise ArgumentError(f"estimates: alpha={alpha!r}; it is a number between 0 and 1")
        if not self.degrees_of_freedom > 0:
            return np.inf
        p = 1 - alpha / 2
        return float(
            special.ndtri(p)
            if np.isinf(self.degrees_of_freedom)
            else special.stdtrit(self.degrees_of_freedom, p)
        )

    def conf_int(self, alpha: float = 0.05, method: str = "wald") -> ndarray:
        """Return intervals that hold each parameter with probability 1 - alpha, of shape (n, 2).

        Parameters
        ----------
        alpha : float, default 0.05
            The probability of error.
        method : {'wald', 'profile'}, default 'wald'
            'wald' takes the standard errors. 'profile' fixes a parameter and fits the others anew; its ends
            are where the fit becomes too bad. They are infinite where it never does.
        """
        q = self._quantile(alpha)
        if method == "wald":
            half = q * self.standard_errors
            return np.stack([self.flat - half, self.flat + half], axis=1)
        if method != "profile":
            raise ArgumentError(f"estimates: method={method!r}; it is 'wald' or 'profile'")
        profile = Profile(
            self._objective, self.flat, self.standard_errors, self._scale, 0.5 * q * q, self.names
        )
        ends = [
            [np.nan] * 2 if held else [profile.end(k, side) for side in (-1, 1)]
            for k, held in enumerate(self._held)
        ]
        return np.array(ends, float).reshape(-1, 2)

    def predict(self, f: Callable, alpha: float = 0.05) -> Predictions:
        """Return a function of the estimates with its standard errors and a band.

        Parameters
        ----------
        f : callable
            ``f(x)`` of parameters like `x` returns an array, a number or a tree.
        alpha : float, default 0.05
            The probability with which each number lies outside of its band.
        """
        if not callable(f):
            raise ArgumentError(
                f"estimates.predict: f is a {type(f).__name__}; wanted is a function of the parameters, such "
                f"as lambda p: model(x, *p)"
            )
        free, fixed = np.flatnonzero(~self._held), np.where(self._held, self.flat, 0.0)
        spread = np.eye(self.flat.size)[free]
        with np.errstate(all="ignore"):
            found = propagate(
                lambda v: f(self._flat.restore(v @ spread + fixed)),
                self.flat[free],
                self.cov[np.ix_(free, free)],
            )
            mean, back = flat_and_back(found.value)
            half = self._quantile(alpha) * np.sqrt(np.diag(found.cov))
        return Predictions(found.value, found.standard_errors, back(mean - half), back(mean + half))

    def summary(self, alpha: float = 0.05) -> str:
        """Return a table of estimates, standard errors, intervals and large correlations."""
        width = max([10, *map(len, self.names)])
        ends = f"[{alpha / 2:.3g}", f"{1 - alpha / 2:.3g}]"
        lines = [f"{'':{width}} {'estimate':>14} {'std. error':>12} {ends[0]:>14} {ends[1]:>14}"]
        for name, x, s, (low, high), held in zip(
            self.names, self.flat, self.standard_errors, self.conf_int(alpha), self._held, strict=True
        ):
            rest = "  at its bound" if held else f" {s:12.4g} {low:14.6g} {high:14.6g}"
            lines.append(f"{name:{width}} {x:14.6g}{rest}")
        C = self.correlations
        large = [(abs(C[i, j]), i, j) for i in range(len(C)) for j in range(i) if abs(C[i, j]) > 0.5]
        if large:
            shown = [
                f"{self.names[j]}, {self.names[i]}: {C[i, j]:.3f}"
                for _, i, j in sorted(large, reverse=True)[:10]
            ]
            lines += ["correlations above 0.5: " + "; ".join(shown)]
        known = (
            "normal"
            if np.isinf(self.degrees_of_freedom)
            else f"Student's, {self.degrees_of_freedom:g} degrees of freedom"
        )
        return "\n".join([*lines, f"intervals: {known}"])

    def __repr__(self) -> str:
        return self.summary()


def flat_and_back(tree) -> tuple:
    flat = FlatStart("predict", tree)
    return flat.start, flat


def inverse_of(H: ndarray) -> ndarray:
    """Return the inverse of a symmetric matrix, inf if it is not positive definite to rounding."""
    size = np.sqrt(np.diag(H)) if (np.diag(H) > 0).all() else np.full(len(H), np.nan)
    w, Q = (
        np.linalg.eigh(H / np.multiply.outer(size, size))
        if np.isfinite(size).all()
        else (np.zeros(len(H)), np.eye(len(H)))
    )
    if len(w) and not w[0] > len(w) * np.finfo(float).eps:
        return np.full(H.shape, np.inf)
    return (Q / w) @ Q.T / np.multiply.outer(size, size)


class Profile:
    """The objective as a function of one parameter, at its minimum over the others."""

    def __init__(self, objective, u: ndarray, errors: ndarray, scale: float, rise: float, names: list):
        self.objective = objective
        self.u = u
        self.scale = scale
        self.rise = rise
        self.names = names
        self.errors = np.where(np.isfinite(errors), errors, np.maximum(abs(u), 1.0))
        self.held = np.isnan(errors)
        self.least = objective(u)[0] / scale

    def minimum(self, k: int, t: float, start: ndarray) -> tuple[float, ndarray]:
        """Return the value at parameter k = t, and the point."""
        rest = np.flatnonzero(~self.held & (np.arange(self.u.size) != k))
        size, v = self.errors[rest], start.copy()
        v[k] = t

        def at(w: ndarray) -> ndarray:
            p = v.copy()
            p[rest] = v[rest] + size * w
            return p

        def value(w: ndarray) -> tuple:
            f, g = self.objective(at(w))
            return f / self.scale, g[rest] * size / self.scale

        def curvature(w: ndarray) -> ndarray:
            return (
                self.objective.hessian(at(w))[np.ix_(rest, rest)] * np.multiply.outer(size, size) / self.scale
            )

        if not rest.size:
            return value(np.zeros(0))[0], v
        zero = np.zeros(rest.size)
        if not np.isfinite(value(zero)[0]):
            return np.inf, v
        found = scipy.optimize.minimize(
            value,
            zero,
            jac=True,
            hess=curvature,
            method="trust-exact",
            options={"gtol": 1e-7, "maxiter": 200},
        )
        if not (found.success or abs(found.jac).max() < 1e-4):
            raise ConvergenceError(
                f"conf_int: the fit with {self.names[k]} = {t:.6g} does not converge: {found.message}"
            )
        return float(found.fun), at(found.x)

    def end(self, k: int, side: int) -> float:
        """Return where the profile has risen enough, on one side."""
        if not np.isfinite(self.rise):
            return side * np.inf
        last = [self.u.copy()]

        def excess(t: float) -> float:
            """Return the signed root of the rise, which is nearly linear, less its goal."""
            value, point = self.minimum(k, t, last[0])
            if value < self.least - LOWER * self.rise:
                raise ConvergenceError(
                    f"conf_int: with {self.names[k]} = {t:.6g} the fit is better than at the estimates: fit "
                    f"again from there"
                )
            if np.isfinite(value):
                last[0] = point
                return float(np.sqrt(max(value - self.least, 0.0) / self.rise)) - 1.0
            return 1e3

        inner, step = self.u[k], self.errors[k] * np.sqrt(2 * self.rise)
        for _ in range(MOST_WIDENINGS):
            outer = self.u[k] + side * step
            above = excess(outer)
            if above >= 0:
                last[0] = self.u.copy()
                return float(scipy.optimize.brentq(excess, inner, outer, xtol=1e-9 * step, rtol=1e-10))
            inner, step = outer, step * (1.5 if above > -0.5 else 3.0)
        return side * np.inf


@dataclass
class Losses:
    """The sum of phi over residuals as an objective; phi is half the square, or a robust loss."""

    values: Values
    phi: Callable

    def weighted(self, u: ndarray) -> tuple:
        r = self.values(u)
        return np.isfinite(r).all(), *weights(self.phi, r, np.ones(r.shape))

    def __call__(self, u: ndarray) -> tuple[float, ndarray]:
        finite, cost, slope, _ = self.weighted(u)
        return (float(cost), self.values.jacobian(u).T @ slope) if finite else (np.inf, np.zeros_like(u))

    def curvature(self, u: ndarray) -> ndarray:
        """Return the Gauss-Newton matrix, the information of the fit."""
        J, (_, _, _, curvature) = self.values.jacobian(u), self.weighted(u)
        return (J.T * curvature) @ J

    def hessian(self, u: ndarray) -> ndarray:
        finite, _, slope, _ = self.weighted(u)
        return self.curvature(u) + self.values.hessian(u, slope) if finite else np.eye(u.size)


@dataclass
class Likelihood:
    """A function that was minimised, as minus a log-likelihood."""

    objective: Any
    bounds: Any

    def __call__(self, u: ndarray) -> tuple[float, ndarray]:
        b = self.bounds
        if b is not None and not ((u >= b.lb) & (u <= b.ub)).all():
            return np.inf, np.zeros_like(u)
        return self.objective(u)

    def hessian(self, u: ndarray) -> ndarray:
        return self.objective.hessian(u) if np.isfinite(self(u)[0]) else np.eye(u.size)

    curvature = hessian


def parameter_names(tree, root: str = "x") -> list[str]:
    """Return a name for each number of a tree: a, b[0], b[1] for a dict with a number and an array."""
    names = []
    for path, leaf in zip(paths(tree), leaves(tree), strict=True):
        name = path[2:].replace("']", "", 1) if path.startswith("['") else path.removeprefix(".") or root
        shape = np.shape(leaf)
        names += [name + (str(list(at)).replace(" ", "") if shape else "") for at in np.ndindex(*shape)]
    return names


def argument_names(f: Callable, count: int) -> list[str]:
    """Return the names of the parameters of a model f(x, a, b, ...)."""
    try:
        names = [
            p.name
            for p in list(inspect.signature(f).parameters.values())[1:]
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    return names if len(names) == count else [f"p[{k}]" for k in range(count)]


def at_bound(u: ndarray, bounds) -> ndarray:
    """Return which parameters are at a bound."""
    if bounds is None:
        return np.zeros(u.size, bool)
    reach = ACTIVE * (1 + abs(u))
    low, high = [np.broadcast_to(np.asarray(b, float), u.shape) for b in (bounds.lb, bounds.ub)]
    return (u - low <= reach) | (high - u <= reach)


class FitResult(OptimizeResult):
    """A result of SciPy with the method `estimates`."""

    def estimates(self) -> Estimates:
        """Return the estimates with standard errors, intervals and predictions."""
        make = self.__dict__.get("source")
        if make is None:
            raise ArgumentError(
                "estimates: this is a copy, or from another process, and lacks its function: fit again here"
            )
        return make()

    def __reduce__(self) -> tuple:
        return type(self), (dict(self),)  # the function stays here


class CurveFit(tuple):
    """What `curve_fit` returns: SciPy's tuple, with the method `estimates`.

    See Also
    --------
    curve_fit : Makes it, with an example.
    """

    estimates_of: Callable

    def estimates(self) -> Estimates:
        """Return the estimates with standard errors, intervals and predictions."""
        return self.estimates_of()

    def __reduce__(self) -> tuple:
        return tuple, (tuple(self),)

    def __str__(self) -> str:
        return self.estimates().summary()


def estimates_of_residuals(
    values: Values, u: ndarray, bounds, names: list, options: dict, absolute: bool = False
) -> Estimates:
    """Return the estimates of a fit of least squares; `absolute`: the residuals have variance one."""
    loss = options.get("loss", "linear")
    if callable(loss):
        raise ArgumentError("estimates: loss= is a function; estimates are for the losses that have a name")
    objective = Losses(values, checked_loss(values.call, loss, options.get("f_scale", 1.0), 0.0, 1))
    held = at_bound(u, bounds)
    degrees = float(max(values(u).size - int((~held).sum()), 0))
    scale = 1.0 if absolute else 2 * objective(u)[0] / degrees if degrees else np.inf
    return Estimates(values.flat, u, objective, held, names, scale, np.inf if absolute else degrees)


def estimates_of_likelihood(objective, u: ndarray, bounds, constraints) -> Estimates:
    """Return the estimates of a minimum of minus a log-likelihood."""
    if np.size(constraints) or isinstance(constraints, dict):
        raise ArgumentError(
            "estimates: standard errors are not defined with constraints; write them into the parameters"
        )
    names = parameter_names(objective.flat.tree)
    return Estimates(
        objective.flat, u, Likelihood(objective, bounds), at_bound(u, bounds), names, 1.0, np.inf
    )


def curve_residuals(f: Callable, data: tuple, flat: FlatStart, named: bool, nan_policy: str | None) -> Values:
    """Return the residuals of `curve_fit`, by its sigma, as SciPy computes them."""
    x, y, sigma = data
    y, sigma = np.asarray(y, float), None if sigma is None else np.asarray(sigma, float)
    if nan_policy == "omit":
        x = np.asarray(x, float)
        keep = ~(np.isnan(y) | np.isnan(x).any(axis=tuple(range(x.ndim - 1))))
        x, y = x[..., keep], y[keep]
        sigma = (
            sigma
            if sigma is None or sigma.ndim == 0
            else sigma[keep]
            if sigma.ndim == 1
            else sigma[np.ix_(keep, keep)]
        )
    root = np.linalg.cholesky(sigma) if sigma is not None and sigma.ndim == 2 else None

    def call(f: Callable, x, p=flat.tree):
        return f(x, p) if named else f(x, *p)

    def residuals(p, f: Callable, x):
        r = flatten_result(call(f, x, p)) - y.reshape(-1)
        return r if sigma is None else r / sigma if root is None else np.linalg.solve(root, r)

    return Values(
        "curve_fit", residuals, flat, (f, ArraysOfPandas()(x, lambda x: flatten_result(call(f, x))))
    )


def with_estimates(result: OptimizeResult, make: Callable) -> FitResult:
    """Return a result whose method `estimates` calls make()."""
    found = FitResult(result)
    found.__dict__["source"] = make
    return found
