"""`least_squares_many` and `curve_fit_many`: thousands of small fits at once, compiled as kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize

from .._core.arrays import xp_of
from .._core.errors import ArgumentError, ShapeError
from .._core.scope import entry
from .._core.trees import tuple_of
from ..kernels.generated.arguments import as_float, is_tree, kernel_name
from ..kernels.trace.surroundings import rebuilt_with
from ._batched import GRADIENT, ROUNDING
from ._flat import FlatStart, flat_bounds, plain_result
from ._many import BatchResults, check_problems, float_arrays, scheduled, start_columns
from ._marquardt import fitted, inverse_kernel
from ._residual_kernels import CompiledResiduals, VectorizedResiduals, checked_loss

PART_NUMBERS, LEAST_PART = 2**18, 512  # numbers of the data of a part that stay in the processor's cache


@dataclass(frozen=True, repr=False)
class ManyFits(BatchResults):
    """The results of `least_squares_many` and `curve_fit_many`, for B problems of p parameters.

    Attributes
    ----------
    x : array of shape (p, B), or tree
        The estimates, like X0.
    cost : array of shape (B,)
        Half the sum of squares, or of the losses.
    gradient : array or tree
        The gradients of the costs, like `x`.
    cov : array of shape (p, p, B)
        The covariances of the estimates, as from SciPy's `curve_fit`; inf where a matrix is singular.
    standard_errors : array or tree
        The square roots of their diagonals, like `x`.
    active_mask : array or tree
        -1, 0 or 1 where a parameter is at its lower bound, at none, at its upper bound, like `x`.
    converged : array of bool, shape (B,)
        Whether each problem has converged.
    status, message : arrays of shape (B,)
        How each problem ended.
    iterations, evaluations : arrays of int, shape (B,)
        Counts.
    """

    cost: Any
    cov: Any
    standard_errors: Any
    active_mask: Any


@entry
def least_squares_many(
    residuals: Callable,
    X0: Any,
    data: Any = (),
    *,
    bounds: Any = None,
    loss: str | Callable = "linear",
    f_scale: float = 1.0,
    vectorized: bool = False,
    gtol: float = 1e-10,
    maxiter: int = 500,
    client: Any = None,
    store: Any = None,
) -> ManyFits:
    """Solve many small problems of least squares at once, by Levenberg-Marquardt.

    Each problem takes its own steps and ends by itself. Points where a residual is not finite are taken back.
    Residuals and Jacobians are computed in one compiled kernel.

    Parameters
    ----------
    residuals : callable
        ``residuals(x, *data)`` gets the parameters of one problem, of shape (p,), and its part of the data.
        It returns the residuals of this problem. What it captures is common to all problems.
    X0 : array of shape (p, B), or tree
        The starts. A dict or dataclass has arrays (..., B).
    data : array or tuple of arrays, default ()
        Arrays (..., B), with the problem as the last axis.
    bounds : tuple, scipy.optimize.Bounds or dict, optional
        (low, high): each a number, p numbers, or an array (p, B). If X0 is a dict: some of its names with
        (low, high), each fitting the array of X0.
    loss : str or callable, default 'linear'
        A name of SciPy's `least_squares`, or a function rho(z) with rho(0) = 0 and slope 1 there. Its
        derivatives are exact.
    f_scale : float, default 1.0
        The size of a residual from which the loss differs from a square.
    vectorized : bool, default False
        Whether `residuals` is a differentiable function of the whole batch, from (p, B) and `data` to (m, B),
        each column by itself.
    gtol : float, default 1e-10
        A problem has converged if no column of its Jacobian has a larger cosine with the residuals, or if
        rounding allows no progress.
    maxiter : int, default 500
        The largest number of steps.
    client, store : optional
        As for `minimize_many`.

    Returns
    -------
    ManyFits
        The results of all problems. A problem that fails keeps its last point, and its message says why.

    Raises
    ------
    ArgumentError
        If an option is unknown, a bound excludes a start, or the arguments do not fit.

    See Also
    --------
    curve_fit_many : Fits a model to data.
    least_squares : One problem, with SciPy's methods.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> t, y = np.linspace(0, 2, 9)[:, None], np.array([1.0, 2.0, 3.0])
    >>> seen = y * np.exp(-t / y)                             # shape (9, 3): three problems
    >>> fun = lambda p, seen: p[0] * np.exp(-p[1] * t[:, 0]) - seen
    >>> r = tg.optimize.least_squares_many(fun, np.ones((2, 3)), seen)
    >>> r.x.round(6)
    array([[1.      , 2.      , 3.      ],
           [1.      , 0.5     , 0.333333]])
    """
    call = "least_squares_many"
    rows, restore = start_columns(X0, call, "least_squares")
    given = float_arrays(f"{call}: data", tuple_of(data), rows)
    check_problems(f"{call}: data", given, rows.shape[1])
    options = {"bounds": bounds, "loss": loss, "f_scale": f_scale, "gtol": gtol, "maxiter": maxiter}
    fits = Fits(call, rows, restore, X0, options)
    if client is not None or store is not None:
        solve = partial(_fits_of_part, residuals, {**options, "vectorized": vectorized})
        return scheduled(solve, X0, tuple(given), client, store, fits.bounds)
    if vectorized:
        return fits.solved(
            VectorizedResiduals(call, lambda X, *more: residuals(restore(X), *more), given, rows, fits.phi)
        )
    return fits.solved(CompiledResiduals(call, residuals, restore, given, rows, fits.phi))


def _fits_of_part(residuals: Callable, options: dict, part: tuple) -> ManyFits:
    """Return the fits of some problems: their starts, data and limits."""
    X0, data, *limits = part
    return least_squares_many(residuals, X0, data, **{**options, "bounds": limits[0] if limits else None})


def _curves_of_part(f: Callable, options: dict, part: tuple) -> ManyFits:
    """Return the fits of some sets: their starts, (x, Y) or (x, Y, sigma), and limits."""
    P0, (x, Y, *sigma), *limits = part
    return curve_fit_many(f, x, Y, P0, *sigma, **{**options, "bounds": limits[0] if limits else None})


@entry
def curve_fit_many(
    f: Callable,
    x: Any,
    Y: Any,
    P0: Any,
    sigma: Any = None,
    absolute_sigma: bool = False,
    *,
    bounds: Any = None,
    loss: str | Callable = "linear",
    f_scale: float = 1.0,
    nan_policy: str = "raise",
    gtol: float = 1e-10,
    maxiter: int = 500,
    client: Any = None,
    store: Any = None,
) -> ManyFits:
    """Fit a model to many sets of data at once.

    Parameters
    ----------
    f : callable
        ``f(x, *params)`` for one set, as for `curve_fit`. If `P0` is a dict or another tree with names,
        ``f(x, params)`` with such a tree.
    x : array
        The independent variable: (N,) or (k, N) for all sets, or (N, B) or (k, N, B).
    Y : array of shape (N, B)
        The data of B sets.
    P0 : array of shape (p, B), or tree
        The starts.
    sigma : array, optional
        Standard deviations of the data, a number, (N,) or (N, B).
    absolute_sigma : bool, default False
        As for SciPy: whether `sigma` is not only relative.
    nan_policy : {'raise', 'omit'}, default 'raise'
        'omit' leaves out data that are nan.
    bounds, loss, f_scale, gtol, maxiter, client, store : optional
        As for `least_squares_many`.

    Returns
    -------
    ManyFits
        The results of all sets. A set that fails keeps its last point, and its message says why.

    Raises
    ------
    ArgumentError
        If an option is unknown, a bound excludes a start, or the arguments do not fit.

    See Also
    --------
    least_squares_many : For residuals.
    curve_fit : One set, with SciPy's methods.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> x, rates = np.linspace(0, 4, 9), np.array([0.5, 1.3])
    >>> model = lambda x, a, b: a * np.exp(-b * x)
    >>> r = tg.optimize.curve_fit_many(model, x, model(x[:, None], 2.5, rates), np.ones((2, 2)))
    >>> r.x.round(6)
    array([[2.5, 2.5],
           [0.5, 1.3]])
    """
    call = "curve_fit_many"
    rows, restore = start_columns(P0, call, "curve_fit")
    p, batch = rows.shape
    xp, named = xp_of(rows), is_tree(P0)
    x, Y = sets_of_data(call, x, Y, batch)
    count = Y.shape[0]
    points = x[None] if x.ndim == 2 else x.reshape((-1, *x.shape[-2:]))
    dims = x.shape[:-2]
    missing = xp.isnan(Y)
    if nan_policy not in ("raise", "omit"):
        raise ArgumentError(f"{call}: nan_policy={nan_policy!r}; it is 'raise' or 'omit'")
    if nan_policy == "raise" and bool(missing.any()):
        raise ArgumentError(f"{call}: Y holds nan; with nan_policy='omit' these data are left out")
    options = {"bounds": bounds, "loss": loss, "f_scale": f_scale, "gtol": gtol, "maxiter": maxiter}
    fits = Fits(call, rows, restore, P0, options)
    sigma = None if sigma is None else column_of(call, sigma, count)
    if client is not None or store is not None:
        more = {"absolute_sigma": absolute_sigma, "nan_policy": nan_policy}
        solve = partial(_curves_of_part, f, {**options, **more})
        return scheduled(solve, P0, (x, Y) if sigma is None else (x, Y, sigma), client, store, fits.bounds)
    data = [xp.moveaxis(points, 0, 1), xp.where(missing, 0.0, Y)[:, None]]
    weighted = sigma is not None or bool(missing.any())
    if weighted:
        weight = 1.0 if sigma is None else 1.0 / sigma
        data.append(xp.where(missing, 0.0, xp.broadcast_to(weight, Y.shape))[:, None])
    k = points.shape[0]

    def misfit(theta, *columns):
        at = columns[0].T if dims else columns[0][:, 0]
        params = restore(theta)
        found = f(at, params) if named else f(at, *[params[i] for i in range(p)])
        if np.shape(found) != np.shape(columns[1][:, 0]):
            raise ShapeError(
                f"{call}: {kernel_name(f)} returned shape {np.shape(found)} for {len(columns[1])} data; "
                f"wanted is one number for each"
            )
        r = found - columns[1][:, 0]
        return np.where(columns[2][:, 0] > 0, r * columns[2][:, 0], 0.0) if weighted else r

    rebuilt_with(misfit, f).__name__ = kernel_name(f)
    data = [xp.broadcast_to(d, (count, k if n == 0 else 1, d.shape[-1])) for n, d in enumerate(data)]
    return fits.solved(
        CompiledResiduals(call, misfit, lambda theta: theta, data, rows, fits.phi),
        (~missing).sum(axis=0),
        absolute_sigma,
    )


def sets_of_data(call: str, x, Y, batch: int) -> tuple:
    """Return x as (N, 1 or B) or (k, N, 1 or B), and Y as (N, B)."""
    x, Y = as_float(plain_result(x), f"{call}: x"), as_float(plain_result(Y), f"{call}: Y")
    if Y.ndim != 2 or Y.shape[1] != batch:
        raise ShapeError(
            f"{call}: Y has shape {tuple(Y.shape)}; wanted is (N, B), a column for each of the {batch} sets "
            f"of P0"
        )
    count = Y.shape[0]
    x = x[..., None] if x.ndim and x.shape[-1] == count and x.shape[-2:] != Y.shape else x
    if x.ndim < 2 or x.shape[-2] != count or x.shape[-1] not in (1, batch):
        raise ShapeError(
            f"{call}: x has shape {tuple(x.shape)}; wanted is (N,), (k, N), (N, B) or (k, N, B) with N = "
            f"{count}, B = {batch}"
        )
    return x, Y


def column_of(call: str, sigma, count: int):
    """Return sigma as an array that fits (N, B)."""
    sigma = as_float(plain_result(sigma), f"{call}: sigma")
    if sigma.ndim > 2 or sigma.ndim and sigma.shape[0] != count:
        raise ShapeError(
            f"{call}: sigma has shape {tuple(sigma.shape)}; wanted is a number, (N,) or (N, B) with N = "
            f"{count}"
        )
    if not bool((sigma > 0).all()):
        raise ArgumentError(f"{call}: sigma holds numbers that are not positive")
    return sigma[:, None] if sigma.ndim == 1 else sigma


class Fits:
    """The options of many fits, and their results."""

    def __init__(self, call: str, rows, restore: Callable, X0, options: dict):
        self.rows, self.restore, self.xp = rows, restore, xp_of(rows)
        self.gtol, self.maxiter = options["gtol"], options["maxiter"]
        self.phi = checked_loss(call, **{k: v for k, v in options.items() if k != "bounds"})
        self.bounds = None if options["bounds"] is None else self.limits(call, X0, options["bounds"])

    def limits(self, call: str, X0, given) -> tuple:
        """Return the lower and the upper bounds, (p, B) each."""
        if isinstance(given, dict):
            pairs = flat_bounds(call, FlatStart(call, X0), given)
            low, high = [np.reshape(b, self.rows.shape) for b in (pairs.lb, pairs.ub)]
        else:
            low, high = (given.lb, given.ub) if isinstance(given, scipy.optimize.Bounds) else given
        try:
            low, high = [self.xp.asarray(b, float) for b in (low, high)]
            low, high = [
                self.xp.broadcast_to(b[:, None] if b.ndim == 1 else b, self.rows.shape) for b in (low, high)
            ]
        except ValueError as error:
            raise ShapeError(
                f"{call}: bounds are numbers, {len(self.rows)} numbers, or arrays {self.rows.shape}: {error}"
            ) from None
        for wrong, text in (
            (low > high, "the lower bound is above the upper one"),
            ((self.rows < low) | (self.rows > high), "the start is outside of the bounds"),
        ):
            if bool(wrong.any()):
                k, b = [int(i[0]) for i in self.xp.nonzero(wrong)]
                raise ArgumentError(f"{call}: {text} for parameter {k} of problem {b}")
        return low.astype(float), high.astype(float)

    def solved(self, problem, counts=None, absolute: bool = False) -> ManyFits:
        """Solve all problems; `counts` are the numbers of data if some are missing."""
        xp, (p, batch) = self.xp, self.rows.shape

        def run(at: slice) -> dict:
            part = problem.part(at)
            limits = None if self.bounds is None else tuple([b[:, at] for b in self.bounds])
            found = fitted(part, self.rows[:, at], limits, xp, self.gtol, self.maxiter)
            sizes = part.counts if counts is None else counts[at]
            free = xp.maximum(sizes - p, 0)
            scale = (
                1.0 if absolute else xp.where(free > 0, 2 * found["f"] / xp.where(free > 0, free, 1), np.inf)
            )
            inverse = inverse_kernel(p)(found.pop("A"))
            return {**found, "cov": xp.where(xp.isfinite(inverse).all(axis=(0, 1)), inverse * scale, np.inf)}

        size = max(LEAST_PART, PART_NUMBERS // max(problem.width, p * p)) if xp is np else batch
        starts = range(0, max(batch, 1), max(size, 1))
        with np.errstate(all="ignore"):
            parts = [run(slice(a, min(a + size, batch))) for a in starts]
        found = {name: xp.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
        x, cov = found["x"].astype(self.rows.dtype), found["cov"]
        active = xp.zeros(x.shape, int)
        if self.bounds is not None:
            active = xp.where(x >= self.bounds[1], 1, xp.where(x <= self.bounds[0], -1, 0))
        return ManyFits(
            x=self.restore(x), cost=found["f"], gradient=self.restore(found["g"]), cov=cov,
            standard_errors=self.restore(xp.sqrt(xp.einsum("kkn->kn", cov))),
            active_mask=self.restore(active),
            converged=(found["status"] == GRADIENT) | (found["status"] == ROUNDING),
            status=found["status"], iterations=found["iterations"], evaluations=found["iterations"] + 1,
        )  # fmt: skip
