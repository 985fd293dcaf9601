"""`scipy.optimize.minimize` with exact derivatives, on trees of NumPy or CuPy arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
from scipy.optimize import OptimizeResult

from .._core.errors import ArgumentError, ConvergenceError
from .._core.scope import entry
from ._barrier import with_small_gap
from ._constraints import Constraints
from ._flat import bounds_object, callback_of, flat_bounds, ordered_limits, refuse_derivatives
from ._objective import (
    WITH_GRADIENT,
    WITH_HESSIAN,
    WITH_PRODUCT,
    WITHOUT,
    Objective,
    moved_inside_bounds,
    with_likelihood_estimates,
)
from ._prepared import PreparedMinimize

IPOPT = "ipopt"  # a method that SciPy does not have


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
    if str(method).lower() == IPOPT:
        if callback is not None or hess != "auto":
            raise ArgumentError(
                "minimize: method='ipopt' takes no callback=, and its Hessian is exact and sparse: leave "
                "hess away"
            )
        options = dict(options or {})
        warm = options.pop("warm_start", None)
        problem = PreparedMinimize(f, x0, args, bounds, constraints, tol, options, "auto")
        return problem(warm_start=warm)
    objective = Objective(f, x0, args)
    limits = flat_bounds("minimize", objective.flat, bounds)
    box = bounds_object(limits)
    if box is not None:
        ordered_limits("minimize", "bounds", box.lb, box.ub, objective.start.size)
    if method is None:
        method = (
            "SLSQP"
            if np.size(constraints) or isinstance(constraints, dict)
            else "trust-exact"
            if bounds is None
            else "L-BFGS-B"
        )
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
    return with_likelihood_estimates(result, objective, box, constraints)


def minimize_flat(
    objective: Objective, method: str | Callable, hess: str = "auto", **options
) -> OptimizeResult:
    """Run `minimize` on flat vectors."""
    name = "" if callable(method) else str(method).lower()
    known = WITH_GRADIENT | WITH_PRODUCT | WITH_HESSIAN | WITHOUT
    if callable(method):
        name = "dogleg"  # it gets the whole Hessian
    elif name not in known:
        raise ArgumentError(
            f"method={method!r}: wanted a method of scipy.optimize.minimize: "
            f"{', '.join(sorted(known | {IPOPT}))}"
        )
    if not isinstance(hess, str) or hess not in ("auto", "dense", "product", "sparse"):
        raise ArgumentError(f"hess={hess!r}: wanted 'auto', 'dense', 'product' or 'sparse'")
    if hess == "sparse" and name not in WITH_PRODUCT:
        raise ArgumentError(
            f"hess='sparse' with method={method!r}: those that take a sparse matrix are "
            f"{', '.join(sorted(WITH_PRODUCT))}"
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
    result.evaluations = objective.evaluations
    result.hessians = objective.hessians
    result.products = objective.products
    return result
