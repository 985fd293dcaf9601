"""SciPy's `least_squares`, `root` and `curve_fit` with exact Jacobians."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
from scipy.optimize import OptimizeResult

from .._core.arrays import xp_of
from .._core.errors import ArgumentError, ConvergenceError, ShapeError
from .._core.scope import entry
from .._core.trees import is_node
from .._transforms.jacobian import jacobian
from ._estimates import (
    CurveFit,
    Estimates,
    argument_names,
    curve_residuals,
    estimates_of_residuals,
    parameter_names,
    with_estimates,
)
from ._flat import (
    ArraysOfPandas,
    FlatStart,
    Values,
    callback_of,
    flat_bounds,
    flatten_result,
    host_numbers,
    host_result,
    ordered_limits,
    refuse_derivatives,
)
from ._gauss_newton import METHOD, by_gauss_newton

ROOT_BY_JACOBIAN = {"hybr", "lm"}


@entry
def least_squares(
    fun: Callable,
    x0: Any,
    *,
    bounds: Any = (-np.inf, np.inf),
    args: tuple = (),
    kwargs: dict | None = None,
    sparse: Any = False,
    **options: Any,
) -> OptimizeResult:
    """Minimise a sum of squares with `scipy.optimize.least_squares` and the exact Jacobian.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args, **kwargs)`` returns the residuals, an array of any shape or a tree.
    x0 : array, number or tree
        The start, as for `minimize`.
    bounds : tuple, scipy.optimize.Bounds or dict, optional
        As for SciPy, of the flat vector. If x0 is a dict: some of its names with (low, high).
    args, kwargs : tuple, dict
        Further arguments of fun.
    sparse : bool or pattern, default False
        True makes the Jacobian a sparse matrix whose pattern is found as by `tapegrad.sparse`. A matrix is
        taken as the pattern, and compared with `fun` at x0.
    **options : object
        Options of SciPy: method, loss, f_scale, x_scale, ftol and others. ``method='gauss-newton'`` is for
        many unknowns with a sparse Jacobian: it factorises its normal equations. It takes loss, f_scale, gtol
        and max_nfev, and no bounds.

    Returns
    -------
    scipy.optimize.OptimizeResult
        SciPy's result with `x` a tree like x0, and `flat` the vector of shape (n,). Its method `estimates`
        gives standard errors, intervals and predictions.

    Raises
    ------
    ConvergenceError
        If a residual is not finite at x0.

    See Also
    --------
    curve_fit : Fits a model to data.
    tapegrad.operators.gauss_newton : The Gauss-Newton matrix as an operator.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> t = np.array([0.0, 1.0, 2.0])
    >>> fun = lambda p: p["a"] * np.exp(-p["rate"] * t) - np.array([2.0, 1.0, 0.5])
    >>> r = tg.optimize.least_squares(fun, {"a": 1.0, "rate": 0.1})
    >>> round(float(r.x["a"]), 6), round(float(r.x["rate"]), 6)
    (2.0, 0.693147)
    """
    refuse_derivatives("least_squares", options)
    flat = FlatStart("least_squares", x0)
    f = Values("least_squares", fun, flat, args, kwargs)
    first = f(flat.start)
    if not np.isfinite(first).all():
        raise ConvergenceError(
            f"least_squares: residual {int(np.argmin(np.isfinite(first)))} is not finite at x0; start "
            f"elsewhere"
        )
    limits = flat_bounds("least_squares", flat, bounds)
    box = limits_of(limits)
    ordered_limits("least_squares", "bounds", box.lb, box.ub, flat.start.size)
    options["callback"] = callback_of(flat, options.get("callback"))
    if options["callback"] is None:
        del options["callback"]
    large = options.get("method") == METHOD
    jac = (
        f.jacobian
        if sparse is False and not large
        else f.sparse_jacobian(None if isinstance(sparse, bool) else sparse)
    )
    if large:
        given = {name: value for name, value in options.items() if name != "method"}
        result = by_gauss_newton(f, jac, flat.start, limits, given)
    else:
        result = scipy.optimize.least_squares(f, flat.start, jac, limits, **options)
    result.flat, result.x = result.x, flat(result.x)
    names = parameter_names(flat.tree)
    return with_estimates(result, lambda: estimates_of_residuals(f, result.flat, box, names, options))


def limits_of(bounds) -> scipy.optimize.Bounds:
    return bounds if isinstance(bounds, scipy.optimize.Bounds) else scipy.optimize.Bounds(*bounds)


@entry
def root(
    fun: Callable,
    x0: Any,
    args: tuple = (),
    method: str = "hybr",
    *,
    tol: float | None = None,
    callback: Callable | None = None,
    options: dict | None = None,
    **unknown: Any,
) -> OptimizeResult:
    """Find a root with `scipy.optimize.root` and the exact Jacobian.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args)`` returns as many numbers as x has, in an array or a tree.
    x0 : array, number or tree
        The start, as for `minimize`.
    args : tuple, default ()
        Further arguments of fun.
    method : str, default 'hybr'
        Any method of SciPy. 'hybr' and 'lm' get the Jacobian.
    tol, callback, options : optional
        As for SciPy.

    Returns
    -------
    scipy.optimize.OptimizeResult
        SciPy's result with `x` a tree like x0, and `flat` the vector of shape (n,). Check `success`.

    Raises
    ------
    ArgumentError
        If the method or an option is unknown.

    See Also
    --------
    tapegrad.implicit.root : A root as a differentiable function of parameters.

    Examples
    --------
    >>> import tapegrad as tg
    >>> r = tg.optimize.root(lambda x: [x[0] + x[1] - 3, x[0] * x[1] - 2], [0.0, 5.0])
    >>> r.x.round(6) + 0.0
    array([1., 2.])
    """
    refuse_derivatives("root", unknown, all_else=True)
    flat = FlatStart("root", x0)
    f = Values("root", fun, flat, args)
    first = f(flat.start)
    if first.size != flat.start.size and str(method).lower() != "lm":
        raise ShapeError(
            f"root: the function returned {first.size} numbers for {flat.start.size} unknowns; "
            "for more equations than unknowns use tapegrad.optimize.least_squares"
        )
    if not np.isfinite(first).all():
        raise ConvergenceError("root: the function is not finite at x0; start elsewhere")
    jac = f.jacobian if str(method).lower() in ROOT_BY_JACOBIAN else None
    shown = None if callback is None else lambda x, *state: callback(flat(x), *state)
    result = scipy.optimize.root(
        f, flat.start, method=method, jac=jac, tol=tol, callback=shown, options=options
    )
    result.flat, result.x = np.asarray(result.x), flat(np.asarray(result.x))
    return result


@entry
def curve_fit(
    f: Callable,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    *,
    full_output: bool = False,
    nan_policy: str | None = None,
    **options: Any,
) -> tuple:
    """Fit a model to data with `scipy.optimize.curve_fit` and the exact Jacobian.

    Parameters
    ----------
    f : callable
        ``f(xdata, *params)``. If `p0` is a dict or another tree with names, ``f(xdata, params)`` with such a
        tree.
    xdata, ydata : array
        The data.
    p0 : array or tree, optional
        The start.
    bounds : tuple, scipy.optimize.Bounds or dict, optional
        As for SciPy. If `p0` is a dict: some of its names with (low, high).
    sigma, absolute_sigma, check_finite, method, full_output, nan_policy, **options : optional
        As for SciPy.

    Returns
    -------
    popt : array of shape (n,) or tree
        The estimates, like `p0`.
    pcov : array of shape (n, n)
        Their covariance, of the flat vector. With `full_output` more follows, as in SciPy. The tuple's method
        `estimates` gives standard errors, intervals and predictions; printing it shows their table.

    Raises
    ------
    ConvergenceError
        If SciPy finds no estimate.

    See Also
    --------
    least_squares : For residuals.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> x = np.linspace(0, 4, 9)
    >>> estimates, covariance = tg.optimize.curve_fit(lambda x, a, b: a * np.exp(-b * x), x, 2.5 * np.exp(-1.3 * x))
    >>> estimates.round(6)
    array([2.5, 1.3])
    """
    refuse_derivatives("curve_fit", options)
    for name, x in (("xdata", xdata), ("ydata", ydata), ("sigma", sigma)):
        if xp_of(x) is not np:
            raise ArgumentError(
                f"curve_fit: {name} is a CuPy array, and SciPy's curve_fit computes on the host: pass "
                f"{name}.get()"
            )
    flat = (
        FlatStart("curve_fit", p0)
        if is_node(p0) and not isinstance(p0, (list, tuple)) or hasattr(p0, "_fields")
        else None
    )

    def model(p, f: Callable, x):
        return flatten_result(f(x, *p) if flat is None else f(x, flat.restore(p)))

    by_parameters, columns = jacobian(model), ArraysOfPandas()

    def at(x, p: tuple):
        return f(x, *p) if flat is None else f(x, flat(np.array(p)))

    def fitted(x, *p: float) -> np.ndarray:
        return host_result(flatten_result(at(x, p)))

    def jac(x, *p: float) -> np.ndarray:
        with np.errstate(all="ignore"):
            return host_numbers(by_parameters(np.array(p, float), f, columns(x, lambda x: at(x, p))))

    start, limits = p0, bounds
    if flat is not None:
        start, limits = flat.start, flat_bounds("curve_fit", flat, bounds)
    of = f if flat is None else fitted  # SciPy counts the parameters of f if p0 is not given
    given = {"check_finite": check_finite, "nan_policy": nan_policy, "full_output": full_output, **options}
    try:
        found = scipy.optimize.curve_fit(
            of, xdata, ydata, start, sigma, absolute_sigma, bounds=limits, method=method, jac=jac, **given
        )
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise ConvergenceError(f"curve_fit: {error}; start elsewhere") from error
    u = np.asarray(found[0], float)

    def estimates() -> Estimates:
        at = FlatStart("curve_fit", u) if flat is None else flat
        names = argument_names(f, u.size) if flat is None else parameter_names(flat.tree)
        values = curve_residuals(f, (xdata, ydata, sigma), at, flat is not None, nan_policy)
        return estimates_of_residuals(
            values, u, limits_of(limits), names, options, absolute_sigma and sigma is not None
        )

    fit = CurveFit(found if flat is None else (flat(found[0]), *found[1:]))
    fit.estimates_of = estimates
    return fit
