"""`scipy.optimize.minimize` with exact derivatives, on trees of NumPy or CuPy arrays."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import scipy.optimize
from scipy.optimize import OptimizeResult

from ._array import xp_of
from ._recording import ravel
from ._transforms import hessian, hvp, value_and_grad
from .errors import ArgumentError, ConvergenceError

# What SciPy's methods want beside value and gradient.
WITH_GRADIENT = {"cg", "bfgs", "l-bfgs-b", "tnc", "slsqp"}
WITH_PRODUCT = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
WITH_HESSIAN = {"dogleg", "trust-exact"}


class Objective:
    """A scalar function of a tree as a function of a flat NumPy vector, with its exact derivatives, and
    counts of each.

    Arguments arrive as float64 on the host and are moved to the library of the tree's arrays; results come
    back to the host. A singular or indefinite matrix inside f (`numpy.linalg.LinAlgError`), or a value or
    gradient that is not finite, counts as infinity, so that a step into a region where f is not defined is
    taken back by the optimiser.
    """

    def __init__(self, f: Callable, x: Any, args: tuple = ()):
        flat, self.restore = ravel(x)
        self.xp: ModuleType = xp_of(flat)
        self.start = to_host(flat).astype(np.float64)
        self.dtype = flat.dtype
        # f goes through the transforms as an argument, so that the arrays it captures are treated as
        # those of a function that is differentiated itself.
        self.args = (f, *args)
        self._f = lambda u, f, *rest: f(self.restore(u), *rest)
        self._value_and_grad, self._hessian = value_and_grad(self._f), hessian(self._f)
        self.evaluations = self.hessians = self.products = 0
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None
        self.watch: Callable[[float], Any] | None = None  # is told every value

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at u; a second call at the same point costs nothing."""
        if self._last is not None and np.array_equal(self._last[0], u):
            return self._last[1], self._last[2].copy()
        self.evaluations += 1
        value, gradient = np.inf, np.zeros_like(u)
        try:
            with np.errstate(all="ignore"):
                y, g = self._value_and_grad(self.place(u), *self.args)
            if np.isfinite(to_host(y)) and np.isfinite(to_host(g)).all():
                value, gradient = float(to_host(y)), to_host(g).astype(np.float64)
        except np.linalg.LinAlgError:
            pass
        if self.watch is not None:
            self.watch(value)
        self._last = (u.copy(), value, gradient)
        return value, gradient.copy()

    def hessian(self, u: np.ndarray) -> np.ndarray:
        self.hessians += 1
        if not np.isfinite(self(u)[0]):  # SciPy's trust regions ask before they take such a step back
            return np.eye(u.size)
        with np.errstate(all="ignore"):
            H = to_host(self._hessian(self.place(u), *self.args)).astype(np.float64)
        self._require_finite(H, u)
        return (H + H.T) * 0.5

    def product(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The Hessian at u times v."""
        self.products += 1
        with np.errstate(all="ignore"):
            Hv = to_host(hvp(self._f, self.place(u), self.place(v), self.args)).astype(np.float64)
        self._require_finite(Hv, u)
        return Hv

    def _require_finite(self, derivative: np.ndarray, u: np.ndarray) -> None:
        if not np.isfinite(derivative).all():
            raise ConvergenceError(f"the second derivative is not finite at {u}, where the optimiser has come; start elsewhere")

    def place(self, u: np.ndarray) -> Any:
        return self.xp.asarray(u, self.dtype)


def minimize(f: Callable, x0: Any, args: tuple = (), method: str = "trust-exact", hess: str = "auto", **options: Any) -> OptimizeResult:
    """Minimise a scalar function of a tree of arrays by `scipy.optimize.minimize`, with exact derivatives.

    x0 is a tree of real floating point arrays or numbers (a tuple is one tree).  The method is one of SciPy's
    that use derivatives.  Those of second order get Hessian-vector products, or the whole Hessian where they
    need it or with `hess='dense'`.  Further options (tol, options, callback, bounds, constraints) are SciPy's
    and speak of the flat vector.

    Returns SciPy's `OptimizeResult` with `x` a tree like x0, `flat` the vector, and counts `evaluations`,
    `hessians`, `products`.  As in SciPy, look at `success`.  Raises `ArgumentError` for an unknown method,
    `ConvergenceError` if f is not finite at x0.

    >>> import numpy as np, tapegrad as tg
    >>> f = lambda p: (p["a"] - 1) ** 2 + ((p["b"] - p["a"]) ** 2).sum()
    >>> r = tg.optimize.minimize(f, {"a": 3.0, "b": np.zeros(2)})
    >>> round(float(r.x["a"]), 6), r.success
    (1.0, True)
    """
    objective = Objective(f, x0, args)
    result = run(objective, method, hess, **options)
    result.x = objective.restore(objective.place(result.flat))
    return result


def run(objective: Objective, method: str, hess: str = "auto", **options: Any) -> OptimizeResult:
    """`minimize` on flat vectors."""
    name = str(method).lower()
    if name not in WITH_GRADIENT | WITH_PRODUCT | WITH_HESSIAN:
        known = ", ".join(sorted(WITH_GRADIENT | WITH_PRODUCT | WITH_HESSIAN))
        raise ArgumentError(f"method={method!r}: wanted a method of scipy.optimize.minimize that uses derivatives: {known}")
    if hess not in ("auto", "dense", "product"):
        raise ArgumentError(f"hess={hess!r}: wanted 'auto', 'dense' or 'product'")
    if not np.isfinite(objective(objective.start)[0]):
        raise ConvergenceError(f"minimize: the function is not finite at the starting point {objective.start}; start elsewhere")
    derivatives: dict[str, Any] = {}
    if name in WITH_HESSIAN or (name in WITH_PRODUCT and hess == "dense"):
        derivatives["hess"] = objective.hessian
    elif name in WITH_PRODUCT:
        derivatives["hessp"] = objective.product
    result = scipy.optimize.minimize(objective, objective.start, jac=True, method=method, **derivatives, **options)
    result.flat = np.asarray(result.x)
    result.evaluations, result.hessians, result.products = (
        objective.evaluations,
        objective.hessians,
        objective.products,
    )
    return result


def to_host(x: Any) -> np.ndarray:
    return x.get() if hasattr(x, "get") else np.asarray(x)
