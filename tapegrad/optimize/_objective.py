"""A scalar function of a tree, as SciPy's optimisers ask for it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.optimize import OptimizeResult

from .._core.arrays import is_array
from .._core.errors import ConvergenceError, NotScalarError
from .._core.primitive import layout_of
from .._core.registry import load
from .._core.scope import quiet
from .._core.trees import tuple_of
from .._transforms.arguments import user_name
from .._transforms.gradient import value_and_grad
from .._transforms.hessian_products import hvp
from .._transforms.jacobian import hessian
from ._estimates import estimates_of_likelihood, with_estimates
from ._flat import FEW_UNKNOWNS, FlatStart, bounds_object, host_numbers, host_result, plain_call

# The derivatives that each of SciPy's methods needs.
WITH_GRADIENT = {"cg", "bfgs", "l-bfgs-b", "tnc", "slsqp"}
WITH_PRODUCT = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
WITH_HESSIAN = {"dogleg", "trust-exact"}
WITHOUT = {"nelder-mead", "powell", "cobyla", "cobyqa"}


class Objective:
    """A scalar function of a tree as a function of a flat NumPy vector, with exact derivatives and counts.

    Arguments arrive as float64 on the host and are moved to the library of the tree's arrays. Results come
    back to the host. A singular or indefinite matrix inside f (`numpy.linalg.LinAlgError`), or a value or
    gradient that is not finite, counts as infinity. So the optimiser takes back a step into a region where f
    is not defined.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns a real scalar.
    x : tree
        The point whose tree, shapes and library are used.
    args : tuple, default ()
        Further arguments of f.
    call : str, default 'minimize'
        The name of the call in errors.

    See Also
    --------
    minimize : Uses an objective.
    """

    def __init__(self, f: Callable, x, args: tuple = (), call: str = "minimize"):
        self.flat = FlatStart(call, x)
        self.restore = self.flat.restore
        self.place = self.flat.place
        self.start = self.flat.start
        restore = self.restore
        # f is an argument of the transforms, so its captured arrays are treated as those of a differentiated
        # function. `_f` must therefore capture no object that leads to them.
        self.args = (f, *tuple_of(args))

        def scalar(u, f: Callable, *rest):
            y = f(restore(u), *rest)
            if is_array(layout_of(y)) and math.prod(layout_of(y).shape) != 1:
                raise NotScalarError(
                    f"{call}: {user_name(f)} returned shape {layout_of(y).shape}; wanted is one real number"
                )
            return y

        self._f: Callable = scalar
        self._value_and_grad: Callable = value_and_grad(scalar)
        self._hessian: Callable = hessian(scalar)
        self._sparse: Any = None
        self._at: Any = None  # (a point, the sparse Hessian there)
        self.evaluations = self.hessians = self.products = 0
        self._last: tuple[ndarray, float, ndarray] | None = None
        self.watch: Callable[[float], Any] | None = None  # called with every value

    def value(self, u: ndarray) -> float:
        """Compute the value without derivatives, by a plain call."""
        self.evaluations += 1
        f, *rest = plain_call(self.args)
        try:
            with quiet():
                y = host_result(f(self.flat(u), *rest))
        except np.linalg.LinAlgError:
            return np.inf
        if y.size != 1 or y.dtype.kind not in "fiu":
            raise NotScalarError(
                f"minimize: the function returned shape {y.shape}, dtype {y.dtype}; wanted is one real number"
            )
        return float(y.reshape(())) if np.isfinite(y).all() else np.inf

    def __call__(self, u: ndarray) -> tuple[float, ndarray]:
        """Compute value and gradient at u; a second call at the same point returns the stored result."""
        if self._last is not None and np.array_equal(self._last[0], u):
            return self._last[1], self._last[2].copy()
        self.evaluations += 1
        value, gradient = np.inf, np.zeros_like(u)
        try:
            with quiet():
                y, g = self._value_and_grad(self.place(u), *self.args)
            if np.isfinite(host_result(y)) and np.isfinite(host_result(g)).all():
                value, gradient = float(host_result(y)), host_numbers(g)
        except np.linalg.LinAlgError:
            pass
        if self.watch is not None:
            self.watch(value)
        self._last = (u.copy(), value, gradient)
        return value, gradient.copy()

    def hessian(self, u: ndarray) -> ndarray:
        """Compute the whole Hessian, or the identity where the value is not finite."""
        self.hessians += 1
        if not np.isfinite(self(u)[0]):  # SciPy's trust regions ask before they reject the step
            return np.eye(u.size)
        with quiet():
            H = host_numbers(self._hessian(self.place(u), *self.args))
        self._require_finite(H, u)
        return (H + H.T) * 0.5

    def sparse_hessian(self, u: ndarray) -> Any:
        """Compute the Hessian as a sparse matrix."""
        if self._sparse is None:
            self._sparse = load("tapegrad.sparse._renewed").Renewed("hessian", self._f, self.args)
        self.hessians += 1
        with quiet():
            H = self._sparse(self.place(u))
        H = H if self.flat.xp is np else H.get()
        self._require_finite(H.data, u)
        return H.astype(np.float64)

    def sparse_product(self, u: ndarray, v: ndarray) -> ndarray:
        """Multiply the sparse Hessian at u, built once for each u, by v."""
        if self._at is None or not np.array_equal(self._at[0], u):
            self._at = u.copy(), self.sparse_hessian(u)
        self.products += 1
        return self._at[1] @ v

    def second_derivatives(self, method: str, hess: str) -> dict[str, Any]:
        """Return the second derivatives as keywords of `scipy.optimize.minimize`, in the form for the method.

        With hess='auto', trust-constr gets a dense matrix if it is small, a sparse one if its plan pays,
        otherwise products."""
        if method in WITH_HESSIAN:
            return {"hess": self.hessian}
        if method not in WITH_PRODUCT:
            return {}
        if hess == "auto" and method == "trust-constr":
            hess = (
                "dense" if self.start.size < FEW_UNKNOWNS else "sparse" if self.found_sparse() else "product"
            )
        if hess == "dense":
            return {"hess": self.hessian}
        if hess == "sparse":  # SciPy's other methods take no sparse matrix
            return (
                {"hess": self.sparse_hessian} if method == "trust-constr" else {"hessp": self.sparse_product}
            )
        return {"hessp": self.product}

    def found_sparse(self) -> bool:
        """Return whether a sparse plan of the Hessian pays; keep it if so."""
        self._sparse = load("tapegrad.sparse._renewed").plan_if_sparse(
            "hessian", self._f, self.place(self.start), rest=self.args
        )
        return self._sparse is not None

    def product(self, u: ndarray, v: ndarray) -> ndarray:
        """Compute the Hessian at u times v."""
        self.products += 1
        with quiet():
            Hv = host_numbers(hvp(self._f, self.place(u), self.place(v), self.args))
        self._require_finite(Hv, u)
        return Hv

    def _require_finite(self, derivative: ndarray, u: ndarray) -> None:
        if not np.isfinite(derivative).all():
            raise ConvergenceError(
                f"the second derivative is not finite at {u}, where the optimiser has come; start elsewhere"
            )


def with_likelihood_estimates(
    result: OptimizeResult, objective: Objective, box, constraints
) -> OptimizeResult:
    """Add the method `estimates` to a result."""
    return with_estimates(result, lambda: estimates_of_likelihood(objective, result.flat, box, constraints))


def moved_inside_bounds(start: ndarray, bounds) -> ndarray:
    """Return the start moved between the bounds, as SciPy's methods with bounds do."""
    bounds = bounds_object(bounds)
    return start if bounds is None else np.clip(start, bounds.lb, bounds.ub)
