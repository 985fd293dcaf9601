"""scipy.optimize: solutions as functions of what the equations hold, by the theorem of implicit functions.

SciPy solves the equations on plain values. Where they hold something tracked, in `args` or captured,
Newton's steps lead from SciPy's solution to the exact one. The value is SciPy's, the derivative that of the
exact one."""

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as plain_np
import scipy.optimize as opt
from scipy.sparse.linalg import LinearOperator

from ... import numpy as np
from ..._core.errors import ConvergenceError, ShapeError
from ..._core.foreign import is_table
from ..._core.primitive import primal_of
from ..._core.registry import SHADOW_MAKERS
from ..._core.scope import OPEN, changed
from ..._core.trees import Const, tuple_of
from ..._core.variable import Variable
from ..._transforms.gradient import grad
from ..._transforms.jacobian import jacobian
from ..._transforms.products import jvp
from ...implicit.sequential import RefusedValue, traces_of
from ...implicit.systems import inverse_of, singular_part
from ...ops.declare import ndim, shape
from ...ops.nondifferentiable import at_users_line
from ..followed import Follower
from ..namespaces import (
    SciPyNamespace,
    as_float_array,
    bare,
    holds_tracked,
    present,
    refusal_text,
    with_derivative_of,
)
from ..plain_values import on_plain_values
from .callback_search import called_again, searched
from .linear_programs import linprog, milp, quadratic_assignment

OPTIMIZE = SciPyNamespace(opt)
OPTIMIZE.searches = OPTIMIZE.by_steps


def float_array_of(y):
    return as_float_array(y) if isinstance(y, (list, tuple)) or is_table(y) else y


def first(y):
    return as_number(y[0])


def leading_number(y):
    """The value of a function that may give its derivatives beside it."""
    return as_number(y[0] if isinstance(y, tuple) else y)


def as_number(y):
    y = float_array_of(y)
    return y if shape(y) == () else np.reshape(y, ())


def vector_of(y):
    return np.atleast_1d(float_array_of(y))


def half_squares(y):
    y = float_array_of(y)
    return 0.5 * np.sum(y * y)


MOST_RESIDUAL = float(plain_np.cbrt(plain_np.finfo(float).eps))
NEWTON_STEPS = 6  # from SciPy's solution to the exact one, at most
LEAST_AT_START = 1e-5  # of a minimum that is the start: where the slopes are small, it may be far from it
NEGLIGIBLE_STEP = 1e-10  # of Newton's method, relative to x


@dataclass(eq=False)
class Equations:
    """What is zero at the solution, as a function of x: `form` makes one array of what f gives."""

    kind: str
    name: str
    form: Callable
    shape: tuple

    def of(self, f: Callable, args: tuple) -> Callable:
        def F(x):
            x = np.reshape(x, self.shape) if len(self.shape) > 1 else x
            return self.form(f(x.copy() if self.shape else x, *args))  # which f may write

        if self.kind == "minimum":
            return grad(Const(F))
        R = F if len(self.shape) < 2 else lambda x: np.reshape(F(x), -1)
        return R if self.kind == "root" else lambda x: x - R(x)

    def linearized(self, f: Callable, args: tuple, x) -> tuple:
        """The residual, and its derivative at plain values of the parameters."""
        R = self.of(f, args)
        if not shape(x):
            r, slope = jvp(Const(R), (x,), (plain_np.float64(1.0),))
            return r, primal_of(slope)
        if isinstance(x, Variable):  # in a recording
            return R(x), primal_of(jacobian(Const(R))(x))
        with on_plain_values(f, arrays_only=False) as (_, (plain,)), changed(depth=0):
            A = jacobian(Const(self.of(plain, bare(args))))(x)
        return R(x), bare(A)


def largest(v):
    return np.max(abs(v), initial=0.0) if ndim(v) else abs(v)


def implicit_value(equations: Equations, f: Callable, args: tuple, start, least: float):
    """SciPy's solution `start`, with the derivatives of the exact one.

    A chord step x - R(x) / A, with A the derivative of R at plain values, adds one order of derivatives. So
    there is one step for each transform. `least`: what counts as the size of solutions near zero."""
    times, name = operator.matmul if ndim(start) else operator.mul, equations.name
    x, best, size, solved = start, None, plain_np.inf, False
    for _ in range(NEWTON_STEPS + 1):
        r, A = equations.linearized(f, args, x)
        order = sum([not t.visibility for t in traces_of(r)])
        if not order:
            return start
        if shape(r) != shape(x):
            raise ShapeError(
                f"{name}: its function gives floats of shape {shape(r)} for x of shape {shape(x)}; there "
                "must be one equation for each unknown"
            )
        now = largest(primal_of(r))
        if not now < size:
            break
        best, residual, size = x, r, now
        inverse = inverse_of(A, f"{name}: {singular_part(equations.kind)} its function")
        step = times(inverse, primal_of(r))
        solved = largest(step) <= NEGLIGIBLE_STEP * largest(x)
        if solved:
            break
        x = x - step
    off = largest(best - start) if best is not None else plain_np.nan
    if not (solved or size <= MOST_RESIDUAL) or not off <= 1e-3 * np.maximum(least, largest(best)):
        raise ConvergenceError(
            f"{name}: what SciPy gave is not the solution: the residual is {size:.3g}, and Newton's steps "
            f"lead away from it, by {off:.2g}"
        )
    y, R = best, equations.of(f, args)
    for k in range(order):
        y = y - times(inverse, R(y) if k else residual)
    return with_derivative_of(start, y)


@contextlib.contextmanager
def implicit_solution(
    kind: str,
    name: str,
    f: Callable,
    form: Callable,
    x,
    args: tuple,
    pure: bool = False,
    least: float = 1.0,
) -> Iterator:
    """(f to be called again, SciPy's solution x with its derivative by args, and by what f captured).
    `pure`: f leaves nothing behind. `least`: see `implicit_value`."""
    with called_again(f, pure) as (again,):
        equations = Equations(kind, name, form, shape(x))
        flat = x.reshape(-1) if ndim(x) > 1 else x
        solution = implicit_value(equations, again, args, flat, least)
        solution = np.reshape(solution, shape(x)) if ndim(x) > 1 else solution
        if not pure:
            again(+solution, *args)
        yield again, solution


class WithheldValue(RefusedValue):
    """A part of a tracked result that the search has made on its way (an estimate of the Hessian, a
    factorisation, the values on a grid): it is plain, and moves with the parameters.  Whoever computes with
    it is told."""

    def __init__(self, value, name: str):
        why = "it is what the search made on its way"
        instead = "tapegrad.jacobian or tapegrad.hessian of the function at the solution"
        super().__init__(refusal_text, name, why, instead)
        self._shown = value

    def __repr__(self) -> str:
        return repr(self._shown)


def withheld(found, name: str, kept: tuple = ()):
    """A result, or a part of one, without what has no derivative."""
    if isinstance(found, tuple):
        return tuple([withheld(v, name) for v in found])
    if isinstance(found, dict):
        for key, v in found.items():
            found[key] = v if key in kept else withheld(v, f"{name}: {key!r} of its result")
    made = isinstance(found, LinearOperator) or (
        isinstance(found, (plain_np.ndarray, Variable)) and found.ndim and found.dtype.kind in "fc"
    )
    return WithheldValue(found, name) if made else found


def as_it_is(found, name: str, count: int = 1):
    """The result where nothing is tracked; of a sample of many, what it would be if something were.  `count`:
    so many of its items have a derivative."""
    if not OPEN.of_one or isinstance(found, plain_np.ndarray):
        return found
    if isinstance(found, tuple):
        return (*found[:count], *withheld(found[count:], name))
    return withheld(found, name, DERIVED)


# `jac` and `grad` are zero at a minimum, `fun` at a root
DERIVED = ("x", "fun", "root", "cost", "jac", "grad")


# --- roots ---


@OPTIMIZE.rule(opt.root, by_steps=True)
def root(fun, x0, args=(), method="hybr", jac=None, tol=None, callback=None, options=None):
    name, args = "scipy.optimize.root", tuple_of(args)
    given = fun, x0, args, method, jac, tol, callback, options
    found, moves, pure = searched(opt.root, given, {}, args)
    if not moves:
        return as_it_is(found, name)
    form = (lambda y: float_array_of(y[0])) if jac is True else float_array_of
    with implicit_solution("root", name, fun, form, found.x, args, pure) as (_, found.x):
        return withheld(found, name, DERIVED)


# --- minima ---


def check_inside_bounds(x, bounds, name: str) -> None:
    """Bounds at which the minimum does not lie have no influence; at others the derivative is not that of a
    stationary point."""
    if bounds is None:
        return
    if hasattr(bounds, "lb"):
        low, high = bounds.lb, bounds.ub
    else:
        found = primal_of(as_float_array(bounds)) if holds_tracked(bounds) else plain_np.array(bounds, float)
        low, high = np.transpose(found)
    near = 1e-7 * np.maximum(1.0, abs(x))
    if np.any((x - low < near) | (high - x < near)):
        raise refusal_text(
            name,
            "with a solution at one of its bounds",
            "parameters that are fixed at the bound, or x = exp(u)",
        )


@OPTIMIZE.rule(opt.minimize, by_steps=True)
def minimize(
    fun, x0, args=(), method=None, jac=None, hess=None, hessp=None, bounds=None, constraints=(), tol=None,
    callback=None, options=None
):  # fmt: skip
    name = "scipy.optimize.minimize"
    args = tuple_of(args)
    given = fun, x0, args, method, jac, hess, hessp, bounds, constraints, tol, callback, options
    found, moves, pure = searched(opt.minimize, given, {}, args)
    if not moves:
        return as_it_is(found, name)
    if constraints not in ((), [], None):
        raise refusal_text(
            f"{name}(constraints=)",
            "",
            "tapegrad.implicit.root with the conditions of Karush, Kuhn and Tucker",
        )
    check_inside_bounds(found.x, bounds, name)
    form = first if jac is True else as_number
    least = LEAST_AT_START if np.all(found.x == primal_of(as_float_array(x0))) else 1.0
    with implicit_solution("minimum", name, fun, form, found.x, args, pure, least) as (again, found.x):
        found.fun = form(again(+found.x, *args))
    return withheld(found, name, DERIVED)


@OPTIMIZE.rule(opt.least_squares, by_steps=True)
def least_squares(
    fun,
    x0,
    jac="2-point",
    bounds=(-plain_np.inf, plain_np.inf),
    *,
    args=(),
    kwargs=None,
    loss="linear",
    **settings,
):
    name = "scipy.optimize.least_squares"
    args = tuple_of(args)
    given = {"args": args, "loss": loss, **settings} | ({"kwargs": kwargs} if kwargs else {})
    found, moves, pure = searched(opt.least_squares, (fun, x0, jac, bounds), given, args)
    if not moves:
        return as_it_is(found, name)
    if loss != "linear" or kwargs:
        raise refusal_text(f"{name}(loss=, kwargs=)", "", "scipy.optimize.minimize of the loss")
    check_inside_bounds(found.x, opt.Bounds(*bounds) if isinstance(bounds, tuple) else bounds, name)
    with implicit_solution("minimum", name, fun, half_squares, found.x, args, pure) as (again, found.x):
        residuals = lambda x: float_array_of(again(+x, *args))
        found.fun = residuals(found.x)
        found.cost = half_squares(found.fun)
        if isinstance(found.jac, (plain_np.ndarray, Variable)):
            found.jac = jacobian(Const(residuals))(found.x)
            found.grad = found.jac.T @ found.fun
        else:
            found.jac = WithheldValue(found.jac, f"{name}: 'jac' of its result")
    return withheld(found, name, DERIVED)


# --- the older names, and the searches for a global minimum: each gives a root or a minimum ---


def of_x(f: Callable, kind: str, form: Callable, with_value: bool) -> Callable:
    """The rule of a solver whose first argument is the function. `with_value`: the value of the function is
    beside x in the result."""
    name, signature = f"scipy.optimize.{f.__name__}", inspect.signature(f)

    @functools.wraps(f)
    def run(*given, **settings):
        bound = signature.bind(*given, **settings)
        values = bound.arguments
        fun = values[next(iter(signature.parameters))]
        args = tuple_of(values.get("args", (values.get("minimizer_kwargs") or {}).get("args", ())))
        found, moves, pure = searched(f, bound.args, bound.kwargs, args)
        if not moves:
            return as_it_is(found, name)
        if any(values.get(c) not in (None, (), []) for c in CONSTRAINED):
            raise refusal_text(
                f"{name}(constraints)",
                "",
                "scipy.optimize.minimize without constraints, or tapegrad.implicit.root",
            )
        part = "root" if f is opt.root_scalar else "x"
        x = found[0] if isinstance(found, tuple) else getattr(found, part, found)
        if kind == "minimum":
            check_inside_bounds(x, values.get("bounds"), name)
        with implicit_solution(kind, name, fun, form, x, args, pure) as (again, x):
            more = {"fun": form(again(+x, *args))} if with_value else {}
        if isinstance(found, tuple):
            return (x, *more.values(), *withheld(found[1 + with_value :], name))
        if not hasattr(found, part):
            return x
        withheld(found, name, DERIVED)
        for key, v in {part: x, **more}.items():
            setattr(found, key, v)
        return found

    made: Any = run
    made.__signature__ = signature
    return made


CONSTRAINED = ("constraints", "cons", "eqcons", "f_eqcons", "ieqcons", "f_ieqcons", "integrality")

for _kind, _form, _with_value, _functions in (
    ("minimum", as_number, True, (
        opt.fmin, opt.fmin_bfgs, opt.fmin_cg, opt.fmin_l_bfgs_b, opt.fmin_ncg, opt.fmin_powell,
        opt.fmin_slsqp, opt.brent, opt.golden, opt.fminbound, opt.brute, opt.basinhopping,
        opt.differential_evolution, opt.direct, opt.dual_annealing, opt.shgo, opt.minimize_scalar,
    )),
    ("minimum", as_number, False, (opt.fmin_cobyla, opt.fmin_tnc)),
    ("root", float_array_of, False, (
        opt.anderson, opt.broyden1, opt.broyden2, opt.diagbroyden, opt.excitingmixing, opt.linearmixing,
        opt.newton, opt.newton_krylov,
    )),
    ("root", leading_number, False, (opt.root_scalar,)),
    ("root", as_number, False, (opt.brentq, opt.brenth, opt.bisect, opt.ridder, opt.toms748)),
    ("root", vector_of, False, (opt.fsolve,)),
    ("fixed_point", float_array_of, False, (opt.fixed_point,)),
):  # fmt: skip
    for _f in _functions:
        OPTIMIZE.rule(_f, by_steps=True)(of_x(_f, _kind, _form, _with_value))


@OPTIMIZE.rule(opt.leastsq, by_steps=True)
def leastsq(
    func, x0, args=(), Dfun=None, full_output=False, col_deriv=False, ftol=1.49012e-08, xtol=1.49012e-08,
    gtol=0.0, maxfev=0, epsfcn=None,
    factor=100, diag=None,
):  # fmt: skip
    name, args = "scipy.optimize.leastsq", tuple_of(args)
    settings = (full_output, col_deriv, ftol, xtol, gtol, maxfev, epsfcn, factor, diag)
    found, moves, pure = searched(opt.leastsq, (func, x0, args, Dfun, *settings), {}, args)
    if not moves:
        return as_it_is(found, name, 2)
    with implicit_solution("minimum", name, func, half_squares, found[0], args, pure) as (again, x):
        if not full_output:
            return (x, *found[1:])
        J = jacobian(Const(lambda x: float_array_of(again(+x, *args))))(x)
    return (x, None if found[1] is None else np.linalg.inv(J.T @ J), *withheld(found[2:], name))


class ModelResiduals:
    """The differences of a model and data, as a function of its parameters."""

    def __init__(self, f: Callable, x, y, scale):
        self.f, self.x, self.y, self.scale, self.__name__ = f, x, y, scale, getattr(f, "__name__", "f")

    def __call__(self, p, *_):
        r = self.f(self.x, *[p[k] for k in range(shape(p)[0])]) - self.y
        return (
            r
            if self.scale is None
            else r / self.scale
            if ndim(self.scale) < 2
            else np.linalg.solve(self.scale, r)
        )


SHADOW_MAKERS[ModelResiduals] = lambda shadow, x: ModelResiduals(
    shadow(x.f), shadow(x.x), shadow(x.y), shadow(x.scale)
)


@OPTIMIZE.rule(opt.curve_fit, by_steps=True)
def curve_fit(
    f, xdata, ydata, p0=None, sigma=None, absolute_sigma=False, check_finite=None, bounds=(-plain_np.inf,
    plain_np.inf), method=None,
    jac=None, *, full_output=False, nan_policy=None, **kwargs,
):  # fmt: skip
    name = "scipy.optimize.curve_fit"
    given = f, xdata, ydata, p0, sigma, absolute_sigma, check_finite, bounds, method, jac
    settings = {"full_output": full_output, "nan_policy": nan_policy, **kwargs}
    found, moves, pure = searched(opt.curve_fit, given, settings, (xdata, ydata, sigma))
    if not moves:
        return found
    check_inside_bounds(found[0], opt.Bounds(*bounds) if isinstance(bounds, tuple) else bounds, name)
    if sigma is not None and ndim(sigma) == 2:
        sigma = np.linalg.cholesky(as_float_array(sigma))
    model = ModelResiduals(f, float_array_of(xdata), float_array_of(ydata), float_array_of(sigma))
    with implicit_solution("minimum", name, model, half_squares, found[0], (), pure) as (model, p):
        J, r = jacobian(Const(model))(p), model(p)
    covariance = np.linalg.inv(J.T @ J)
    if not absolute_sigma:
        covariance = covariance * (np.sum(r * r) / (shape(J)[0] - shape(J)[1]))
    return (p, covariance, *found[2:])


# --- least squares with signs, in order: solved again on the pieces that SciPy found ---


def free_least_squares(A, b, free: plain_np.ndarray, held: plain_np.ndarray):
    """The solution in the free unknowns. The others are held, and `held` is 0 at the free ones."""
    at, place = plain_np.flatnonzero(free), plain_np.zeros(len(held), int)
    B = np.take(A, at, 1)
    y = np.linalg.lstsq(B, b - A @ held)[0] if len(at) else b[:0]
    place[at] = 1 + plain_np.arange(len(at))
    return held + np.take(np.concatenate([0.0 * b[:1], y]), place)


@OPTIMIZE.rule(opt.nnls)
def nnls(A, b, **settings):
    like = A if holds_tracked(A) else b
    x, _ = at_users_line(opt.nnls, bare(A), bare(b), **settings)
    A, b = as_float_array(A, like), as_float_array(b, like)
    y = free_least_squares(A, b, x > 0, plain_np.zeros(x.shape))
    return y, np.linalg.norm(A @ y - b)


@OPTIMIZE.rule(opt.lsq_linear)
def lsq_linear(A, b, bounds=(-plain_np.inf, plain_np.inf), **settings):
    """What lies at a bound stays there; the others are least squares. At a bound the step to the minimum is
    longer than the way there, whatever SciPy's `active_mask` says."""
    like = A if holds_tracked(A) else b
    low, high = (bounds.lb, bounds.ub) if isinstance(bounds, opt.Bounds) else bare(bounds)
    found = at_users_line(
        opt.lsq_linear, bare(A), bare(b), bounds if hasattr(bounds, "lb") else (low, high), **settings
    )
    if hasattr(A, "format"):
        raise refusal_text("scipy.optimize.lsq_linear", "of a sparse matrix", "A.toarray()")
    M, x = bare(A), found.x
    step = M.T @ (bare(b) - M @ x) / plain_np.maximum((M * M).sum(0), 1e-300)
    free = (step <= high - x) & (step >= low - x)
    A, b = as_float_array(A, like), as_float_array(b, like)
    found.x = free_least_squares(A, b, free, plain_np.where(free, 0.0, found.x))
    found.fun = A @ found.x - b
    found.cost = 0.5 * np.sum(found.fun * found.fun)
    return found


@OPTIMIZE.rule(opt.isotonic_regression)
def isotonic_regression(y, *, weights=None, increasing=True):
    like = y if holds_tracked(y) else weights
    found = at_users_line(opt.isotonic_regression, bare(y), weights=bare(weights), increasing=increasing)
    y = as_float_array(y, like)
    w = plain_np.ones(shape(y)) if weights is None else as_float_array(weights, like)
    edges = [int(k) for k in found.blocks]
    total = [(np.sum(w[i:j]), np.sum(w[i:j] * y[i:j]), j - i) for i, j in zip(edges, edges[1:], strict=False)]
    found.x = np.concatenate([s / v * plain_np.ones(n) for v, s, n in total])
    found.weights = np.stack([v for v, _, _ in total])
    return found


OPTIMIZE.constant(
    opt.linear_sum_assignment,
    opt.show_options,
    *present(opt, ("linprog_verbose_callback",)),
)
for _f in (linprog, milp, quadratic_assignment):
    OPTIMIZE.rule(getattr(opt, _f.__name__))(_f)
FOLLOWED = Follower("scipy.optimize")
for _f in (opt.approx_fprime, opt.check_grad, opt.bracket, opt.line_search):
    OPTIMIZE.rule(_f, of_functions=True)(FOLLOWED.function(_f))
for _f in (opt.rosen, opt.rosen_der, opt.rosen_hess, opt.rosen_hess_prod):
    OPTIMIZE.rule(_f)(FOLLOWED.function(_f))
OPTIMIZE.constant(  # settings, and classes of results
    opt.Bounds, opt.LinearConstraint, opt.NonlinearConstraint, opt.OptimizeResult, opt.RootResults, opt.BFGS,
    opt.SR1,
    opt.HessianUpdateStrategy, opt.BroydenFirst, opt.InverseJacobian, opt.KrylovJacobian,
    opt.LbfgsInvHessProduct,
)  # fmt: skip

stand_in = OPTIMIZE.stand_in("tapegrad.scipy.optimize")
