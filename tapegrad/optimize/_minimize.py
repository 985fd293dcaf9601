"""`scipy.optimize.minimize` with exact derivatives, on trees of NumPy or CuPy arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
from scipy.optimize import OptimizeResult

from .._core.errors import ArgumentError, ConvergenceError, NotScalarError
from .._core.registry import load
from .._core.scope import entry
from .._transforms.gradient import value_and_grad
from .._transforms.hessian_products import hvp
from .._transforms.jacobian import hessian
from ._barrier import with_small_gap
from ._constraints import Constraints
from ._estimates import estimates_of_likelihood, with_estimates
from ._flat import (
    FEW_UNKNOWNS,
    FlatStart,
    bounds_object,
    callback_of,
    flat_bounds,
    host_result,
    plain_call,
    refuse_derivatives,
    require_ordered,
)
from ._ipopt import IpoptProblem

# The derivatives that each of SciPy's methods needs.
WITH_GRADIENT = {"cg", "bfgs", "l-bfgs-b", "tnc", "slsqp"}
WITH_PRODUCT = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
WITH_HESSIAN = {"dogleg", "trust-exact"}
WITHOUT = {"nelder-mead", "powell", "cobyla", "cobyqa"}
IPOPT = "ipopt"  # a method that SciPy does not have


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

    def __init__(self, f: Callable, x: Any, args: tuple = (), call: str = "minimize"):
        self.flat = FlatStart(call, x)
        self.restore, self.place, self.start = self.flat.restore, self.flat.place, self.flat.start
        restore = self.restore
        # f is an argument of the transforms, so its captured arrays are treated as those of a differentiated
        # function. `_f` must therefore capture no object that leads to them.
        self.args = (f, *(args if isinstance(args, tuple) else (args,)))
        self._f = lambda u, f, *rest: f(restore(u), *rest)
        self._value_and_grad, self._hessian = value_and_grad(self._f), hessian(self._f)
        self._sparse: Any = None
        self._at: Any = None  # (a point, the sparse Hessian there)
        self.evaluations = self.hessians = self.products = 0
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None
        self.watch: Callable[[float], Any] | None = None  # called with every value

    def record(self) -> None:
        """Replay value and gradient from a recording."""
        self._value_and_grad = (
            load("tapegrad.replay").prepare(self._f, self.place(self.start), *self.args).value_and_grad
        )

    def value(self, u: np.ndarray) -> float:
        """Compute the value without derivatives, by a plain call."""
        self.evaluations += 1
        f, *rest = plain_call(self.args)
        try:
            with np.errstate(all="ignore"):
                y = host_result(f(self.flat(u), *rest))
        except np.linalg.LinAlgError:
            return np.inf
        if y.size != 1 or y.dtype.kind not in "fiu":
            raise NotScalarError(
                f"minimize: the function returned shape {y.shape}, dtype {y.dtype}; wanted is one real number"
            )
        return float(y.reshape(())) if np.isfinite(y).all() else np.inf

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Compute value and gradient at u; a second call at the same point returns the stored result."""
        if self._last is not None and np.array_equal(self._last[0], u):
            return self._last[1], self._last[2].copy()
        self.evaluations += 1
        value, gradient = np.inf, np.zeros_like(u)
        try:
            with np.errstate(all="ignore"):
                y, g = self._value_and_grad(self.place(u), *self.args)
            if np.isfinite(host_result(y)) and np.isfinite(host_result(g)).all():
                value, gradient = float(host_result(y)), host_result(g).astype(np.float64)
        except np.linalg.LinAlgError:
            pass
        if self.watch is not None:
            self.watch(value)
        self._last = (u.copy(), value, gradient)
        return value, gradient.copy()

    def hessian(self, u: np.ndarray) -> np.ndarray:
        """Compute the whole Hessian, or the identity where the value is not finite."""
        self.hessians += 1
        if not np.isfinite(self(u)[0]):  # SciPy's trust regions ask before they reject the step
            return np.eye(u.size)
        with np.errstate(all="ignore"):
            H = host_result(self._hessian(self.place(u), *self.args)).astype(np.float64)
        self._require_finite(H, u)
        return (H + H.T) * 0.5

    def sparse_hessian(self, u: np.ndarray) -> Any:
        """Compute the Hessian as a sparse matrix."""
        if self._sparse is None:
            self._sparse = load("tapegrad.sparse._renewed").Renewed("hessian", self._f, self.args)
        self.hessians += 1
        with np.errstate(all="ignore"):
            H = self._sparse(self.place(u))
        H = H if self.flat.xp is np else H.get()
        self._require_finite(H.data, u)
        return H.astype(np.float64)

    def sparse_product(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
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

    def product(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Compute the Hessian at u times v."""
        self.products += 1
        with np.errstate(all="ignore"):
            Hv = host_result(hvp(self._f, self.place(u), self.place(v), self.args)).astype(np.float64)
        self._require_finite(Hv, u)
        return Hv

    def _require_finite(self, derivative: np.ndarray, u: np.ndarray) -> None:
        if not np.isfinite(derivative).all():
            raise ConvergenceError(
                f"the second derivative is not finite at {u}, where the optimiser has come; start elsewhere"
            )


@entry
def minimize(
    f: Callable,
    x0: Any,
    args: tuple = (),
    method: str | Callable | None = None,
    hess: str = "auto",
    *,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable | None = None,
    options: dict | None = None,
    **unknown: Any,
) -> OptimizeResult:
    """Minimise a scalar function of a tree of arrays with `scipy.optimize.minimize` and exact derivatives.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns a real scalar.
    x0 : array, number or tree
        The start, of a real float dtype. A list or tuple of plain numbers is an array, as for SciPy.
    args : tuple, default ()
        Further arguments of f.
    method : str or callable, optional
        Any method of SciPy, or 'ipopt' if the package ipyopt is installed. The default is 'trust-exact', with
        bounds 'L-BFGS-B', with constraints 'SLSQP'. Methods of second order get Hessian-vector products, or
        the whole Hessian if they need it. Methods without derivatives get values. 'trust-constr' and 'ipopt'
        get sparse Jacobians and Hessians where these pay, and suit many unknowns.
    hess : {'auto', 'dense', 'sparse'}, default 'auto'
        'dense' passes the whole Hessian to methods that accept it, 'sparse' a sparse matrix, 'product'
        products.
    bounds : sequence, scipy.optimize.Bounds or dict, optional
        As for SciPy, of the flat vector. If x0 is a dict: some of its names with (low, high).
    constraints : constraint or sequence, default ()
        As for SciPy. Their functions get a tree like x0, and exact derivatives if none are given.
    tol, options : optional
        As for SciPy.
    callback : callable, optional
        As for SciPy; it gets trees like x0.

    Returns
    -------
    scipy.optimize.OptimizeResult
        SciPy's result with `x` a tree like x0, `flat` the vector of shape (n,), and the counts `evaluations`,
        `hessians` and `products`. As in SciPy, check `success`. If f is minus a log-likelihood, the method
        `estimates` gives standard errors, intervals and predictions. Ipopt adds `constr_violation`,
        `multipliers` (an array for each constraint) and `bound_multipliers`. Its ``options={"warm_start":
        result}`` starts at an earlier result.

    Raises
    ------
    ArgumentError
        If the method or an option is unknown.
    ConvergenceError
        If f is not finite at x0.

    See Also
    --------
    minimize_many : Many small problems at once.
    least_squares : For sums of squares.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> f = lambda p: (p["a"] - 1) ** 2 + ((p["b"] - p["a"]) ** 2).sum()
    >>> r = tg.optimize.minimize(f, {"a": 3.0, "b": np.zeros(2)})
    >>> round(float(r.x["a"]), 6), r.success
    (1.0, True)
    >>> r = tg.optimize.minimize(f, {"a": 3.0, "b": np.zeros(2)}, bounds={"b": (2.0, None)})
    >>> r.x["b"].round(6), round(float(r.x["a"]), 6)
    (array([2., 2.]), 1.666667)
    """
    refuse_derivatives("minimize", unknown, all_else=True)
    objective = Objective(f, x0, args)
    limits = flat_bounds("minimize", objective.flat, bounds)
    box = bounds_object(limits)
    if box is not None:
        require_ordered("minimize", "bounds", box.lb, box.ub)
    if method is None:
        method = (
            "SLSQP"
            if np.size(constraints) or isinstance(constraints, dict)
            else "trust-exact"
            if bounds is None
            else "L-BFGS-B"
        )
    if str(method).lower() == IPOPT:
        result = minimize_by_ipopt(objective, box, constraints, hess, tol, callback, options)
        return told(result, objective, box, constraints)
    is_second = str(method).lower() == "trust-constr"
    given = Constraints("minimize", objective.flat, constraints, is_second, is_second)
    if is_second and given.sparse:
        options = {"sparse_jacobian": True, **(options or {})}
    more = {
        "bounds": limits,
        "constraints": given.given,
        "callback": callback_of(objective.flat, callback),
    }
    result = minimize_flat(objective, method, hess, tol=tol, options=options, **more)
    result.x = objective.flat(result.flat)
    return told(result, objective, box, constraints)


def told(result: OptimizeResult, objective: Objective, box: Any, constraints: Any) -> OptimizeResult:
    """Return a result that can tell estimates."""
    return with_estimates(result, lambda: estimates_of_likelihood(objective, result.flat, box, constraints))


def minimize_by_ipopt(
    objective: Objective,
    box: Any,
    constraints: Any,
    hess: str,
    tol: float | None,
    callback: Any,
    options: dict | None,
) -> OptimizeResult:
    """Run Ipopt with a recorded objective and exact sparse derivatives."""
    if callback is not None or hess != "auto":
        raise ArgumentError(
            "minimize: method='ipopt' takes no callback=, and its Hessian is exact and sparse: leave hess "
            "away"
        )
    start = moved_inside_bounds(objective.start, box)
    objective.record()
    if not np.isfinite(objective(start)[0]):
        raise ConvergenceError(
            f"minimize: the function is not finite at the starting point {start}; start elsewhere"
        )
    result = IpoptProblem(objective, box, constraints).solved(start, tol, options)
    result.flat = np.asarray(result.x)
    result.evaluations, result.hessians, result.products = objective.evaluations, objective.hessians, 0
    result.x = objective.flat(result.flat)
    return result


def minimize_flat(
    objective: Objective, method: str | Callable, hess: str = "auto", **options: Any
) -> OptimizeResult:
    """Run `minimize` on flat vectors."""
    name = "" if callable(method) else str(method).lower()
    known = WITH_GRADIENT | WITH_PRODUCT | WITH_HESSIAN | WITHOUT
    if callable(method):
        name = "dogleg"  # it gets the whole Hessian
    elif name not in known:
        raise ArgumentError(
            f"method={method!r}: wanted a method of scipy.optimize.minimize: {', '.join(sorted(known | {IPOPT}))}"
        )
    if not isinstance(hess, str) or hess not in ("auto", "dense", "product", "sparse"):
        raise ArgumentError(f"hess={hess!r}: wanted 'auto', 'dense', 'product' or 'sparse'")
    if hess == "sparse" and name not in WITH_PRODUCT:
        raise ArgumentError(
            f"hess='sparse' with method={method!r}: those that take a sparse matrix are {', '.join(sorted(WITH_PRODUCT))}"
        )
    start = moved_inside_bounds(objective.start, options.get("bounds"))
    if not np.isfinite(objective.value(start) if name in WITHOUT else objective(start)[0]):
        raise ConvergenceError(
            f"minimize: the function is not finite at the starting point {start}; start elsewhere"
        )
    derivatives = objective.second_derivatives(name, hess)
    fun, jac = (objective.value, None) if name in WITHOUT else (objective, True)
    result = scipy.optimize.minimize(fun, start, jac=jac, method=method, **derivatives, **options)
    if name == "trust-constr":
        given = options.pop("options", None) or {}

        def again(x: np.ndarray, more: dict) -> OptimizeResult:
            return scipy.optimize.minimize(
                fun, x, jac=jac, method=method, options={**given, **more}, **derivatives, **options
            )

        result = with_small_gap(
            result,
            again,
            options.get("constraints", ()),
            bounds_object(options.get("bounds")),
            {"gtol": options.get("tol") or 1e-8, **given},
        )
    if "status" not in result:  # SciPy leaves it away where the bounds fix all unknowns
        result.status = int(not result.success)
    result.flat = np.asarray(result.x)
    result.evaluations, result.hessians, result.products = (
        objective.evaluations,
        objective.hessians,
        objective.products,
    )
    return result


def moved_inside_bounds(start: np.ndarray, bounds: Any) -> np.ndarray:
    """Return the start moved between the bounds, as SciPy's methods with bounds do."""
    bounds = bounds_object(bounds)
    return start if bounds is None else np.clip(start, bounds.lb, bounds.ub)
