"""solve_ivp as one kernel, where a recording would keep a call of SciPy.

The explicit methods take SciPy's steps: the same tableaux, the same control of the step size. No Python
remains in a step. The derivative is that of the accepted steps with their sizes held constant, as it is of a
call of SciPy. What a kernel cannot run is left to SciPy: other methods and options, a right-hand side that
branches by its arguments or leaves something behind."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as plain_np
import scipy.integrate as itg

from ... import numpy as np
from ..._core.errors import KernelError, ShapeError, heard, take_back
from ..._core.pickling import PickledByCall
from ..._core.primitive import live, values_of
from ..._core.scope import OPEN, at_the_end_of_an_object
from ..._core.trees import tree_map
from ..._core.variable import Variable, View
from ..._transforms.rebind import Rebind
from ..._transforms.tape import value
from ...implicit.sequential import Call, FunctionPlaceholder
from ...kernels import recursion, while_loop
from ...kernels.trace.surroundings import rebuilt_with
from ...ops.declare import dtype, shape
from ..namespaces import as_float_array
from ..optimize.callback_search import ComposedFunction
from .linear_steps import EXPLICIT, EXPLICIT_METHODS, Tableau
from .plain_values import on_plain_values

NAME = "scipy.integrate.solve_ivp"
OPTIONS = frozenset(("rtol", "atol", "max_step", "first_step"))
KERNEL_STATES = 32  # of a kernel
STEPS_BETWEEN = 100_000  # between two times of the result
MIN_FACTOR, MAX_FACTOR = 0.2, 10.0  # of the size of a step
SMALL_STEP, MANY_STEPS = 1.0, 2.0  # the status of a call
EPSILON = float(plain_np.finfo(float).eps)
PARAMETERS = ("fun", "t_span", "y0", "method", "t_eval", "dense_output", "events", "vectorized", "args")
FLOAT64 = plain_np.dtype(float)


class Walk(NamedTuple):
    """What is carried from step to step: the end of the last one, its beginning, its slopes."""

    t: Any
    y: Any
    slope: Any
    size: Any  # of the next step
    before: Any  # its time
    state: Any
    slopes: Any  # (stages, n)
    rejected: Any
    status: Any


def combined(weights: Any, slopes: Any) -> Any:
    """Return the sum of weight times slope."""
    terms = [w * k for w, k in zip(weights, slopes, strict=False) if w]
    return sum(terms[1:], terms[0]) if terms else 0.0 * slopes[0]


def root_mean_square(x: Any) -> Any:
    return np.sqrt((x * x).sum() / len(x))


class ExplicitSteps:
    """SciPy's explicit methods, to be traced."""

    def __init__(self, method: str, span: tuple, options: dict):
        self.method: Any = EXPLICIT_METHODS[method]
        self.tableau: Tableau = EXPLICIT[self.method]
        self.stages = self.method.n_stages
        self.start, self.bound = span
        self.way = math.copysign(1.0, self.bound - self.start)
        self.rtol, self.atol = options.get("rtol", 1e-3), options.get("atol", 1e-6)
        self.longest, self.first = options.get("max_step", math.inf), options.get("first_step")

    def error(self, slopes: list, h: Any, scale: Any) -> Any:
        """Return the norm of the estimated error of a step, relative to the tolerance."""
        if self.method is not itg.DOP853:
            return root_mean_square(combined(self.method.E, slopes) * h / scale)
        fifth, third = [((combined(w, slopes) / scale) ** 2).sum() for w in (self.method.E5, self.method.E3)]
        whole = fifth + 0.01 * third
        return np.where(
            whole == 0.0, 0.0, np.abs(h) * fifth / np.sqrt(np.where(whole == 0.0, 1.0, whole) * len(scale))
        )

    def first_size(self, f: Callable, y: Any, slope: Any) -> Any:
        if self.first is not None:
            return self.first
        length = abs(self.bound - self.start)
        scale = self.atol + np.abs(y) * self.rtol
        d0, d1 = root_mean_square(y / scale), root_mean_square(slope / scale)
        slow = (d0 < 1e-5) | (d1 < 1e-5)
        h0 = np.minimum(np.where(slow, 1e-6, 0.01 * d0 / np.where(slow, 1.0, d1)), length)
        new = f(self.start + h0 * self.way, y + h0 * self.way * slope)
        d2 = root_mean_square((new - slope) / scale) / h0
        still = (d1 <= 1e-15) & (d2 <= 1e-15)
        power = 1.0 / (self.method.error_estimator_order + 1)
        h1 = np.where(
            still,
            np.maximum(1e-6, h0 * 1e-3),
            (0.01 / np.where(still, 1.0, np.maximum(d1, d2))) ** power,
        )
        return np.minimum(np.minimum(100 * h0, h1), min(length, self.longest))

    def begun(self, f: Callable, y: Any) -> Walk:
        slope = f(self.start, y)
        size = value(self.first_size(f, y, slope))
        slopes = np.stack([0.0 * slope] * (self.stages + 1))
        return Walk(self.start, y, slope, size, self.start, y, slopes, 0.0, 0.0)

    def tried(self, f: Callable, c: Walk) -> Walk:
        """Try a step; return what is carried after it."""
        least = 10.0 * np.maximum(EPSILON * np.abs(c.t), 1e-300)
        size = np.where(c.rejected > 0.0, c.size, np.minimum(np.maximum(c.size, least), self.longest))
        end = c.t + self.way * size
        end = np.where(self.way * (end - self.bound) > 0.0, self.bound, end)
        h = end - c.t
        A, B, C, _ = self.tableau
        slopes = [c.slope]
        for s in range(1, self.stages):
            slopes.append(f(c.t + C[s] * h, c.y + h * combined(A[s], slopes)))
        new = c.y + h * combined(B[: self.stages], slopes)
        slopes.append(f(end, new))
        scale = self.atol + np.maximum(np.abs(c.y), np.abs(new)) * self.rtol
        norm = value(self.error(slopes, h, scale))
        good, size = norm < 1.0, np.abs(h)
        power = -1.0 / (self.method.error_estimator_order + 1)
        factor = 0.9 * np.where(norm == 0.0, 1.0, norm) ** power
        longer = np.where(norm == 0.0, MAX_FACTOR, np.minimum(MAX_FACTOR, factor))
        longer = np.where(c.rejected > 0.0, np.minimum(1.0, longer), longer)
        shorter = np.where(factor > MIN_FACTOR, factor, MIN_FACTOR)  # nan is not above it
        next_size = size * np.where(good, longer, shorter)
        return Walk(
            np.where(good, end, c.t),
            np.where(good, new, c.y),
            np.where(good, slopes[-1], c.slope),
            next_size,
            np.where(good, c.t, c.before),
            np.where(good, c.y, c.state),
            np.where(good, np.stack(slopes), c.slopes),
            np.where(good, 0.0, 1.0),
            np.where(good | (next_size >= least), 0.0, SMALL_STEP),
        )

    def reached(self, f: Callable, c: Walk, t: Any) -> Walk:
        """Return what is carried when a step has reached the time t."""
        going = lambda c: (self.way * (c.t - t) < 0.0) & (c.status == 0.0)
        c = while_loop(going, lambda c: self.tried(f, c), c, STEPS_BETWEEN)
        late = (self.way * (c.t - t) < 0.0) & (c.status == 0.0)
        return c._replace(status=np.where(late, MANY_STEPS, c.status))

    def between(self, f: Callable, c: Walk, t: Any) -> Any:
        """Return the state at the time t of the last step."""
        A, _, C, P = self.tableau
        h = c.t - c.before
        slopes = [c.slopes[s] for s in range(self.stages + 1)]
        for s in range(self.stages + 1, len(A)):
            slopes.append(f(c.before + C[s] * h, c.state + h * combined(A[s], slopes)))
        x = (t - c.before) / np.where(h == 0.0, 1.0, h)
        total, power = 0.0, x
        for k in range(P.shape[1]):
            total, power = total + power * combined(P[:, k], slopes), power * x
        return c.state + h * total


class KernelCall(PickledByCall):  # so that no kernel looks into it
    """A call of solve_ivp as a kernel: a function of the start, and of what the right-hand side reads.

    Copies of the functions hold Variables of its own in the place of those that are read. The values of these
    are numbers of rows of the parameters of the kernel, from one on. So a view of one has the rows of its
    elements."""

    def __init__(self, call: Call, steps: ExplicitSteps, states: int):
        self.call, self.steps, self.states = call, steps, states
        shapes = [tuple(shape(x)) for x, _ in call.first.handles]
        ends = states + plain_np.cumsum([0, *map(math.prod, shapes)])
        rows = [
            plain_np.arange(first + 1.0, last + 1.0).reshape(dims)
            for first, last, dims in zip(ends, ends[1:], shapes, strict=False)
        ]
        self.copies = Rebind(call.functions, call.args, call.first, tuple(rows))
        with self.copies as (functions, (given,)):
            self.copies.arrays = []
        found = parameters(functions, given)
        self.fun, self.args = found["fun"], tuple(found.get("args") or ())

    def _made(self) -> tuple:
        return KernelCall, (self.call, self.steps, self.states)

    def __del__(self):
        at_the_end_of_an_object(self.copies.finish)  # as of a Call

    def right_side(self, theta: Any) -> Callable:
        """Return the right-hand side, as the kernel that is being traced runs it."""
        rebuild, own = OPEN.tracer.rebuild, [y for _, y in self.copies.handles]

        def symbol(x: Variable) -> Any:
            if not any([(x._base if type(x) is View else x) is y for y in own]):
                raise KernelError(f"{NAME}: the right-hand side reads an array that it did not read at first")
            return theta[values_of(live(x)).astype(int) - 1]

        rebuild.symbol = symbol
        fun, args, n = self.fun, self.args, self.states

        def right(t: Any, y: Any) -> Any:
            slope = plain_np.asarray(fun(t, y.copy(), *args))
            if slope.shape != (n,):
                raise ShapeError(f"{NAME}: the right-hand side returned shape {slope.shape}")
            return slope

        rebuild.captured_state.root(rebuilt_with(right, fun))
        run: Callable = rebuild(right)
        return run

    def kernel(self) -> Any:
        def init(theta: Any) -> Any:
            return self.steps.begun(self.right_side(theta), theta[: self.states])

        def step(c: Any, theta: Any, t: Any) -> Any:
            f = self.right_side(theta)
            c = self.steps.reached(f, c, t)
            y = np.concatenate([self.steps.between(f, c, t), np.reshape(c.status, (1,))])
            return c, y

        return recursion(init, step, missing="step", invalid="nan")

    def leaves_nothing(self) -> bool:
        """Does the right-hand side alter nothing? It runs on copies."""
        f = ComposedFunction(lambda fun: lambda t, y: fun(t, y, *self.args), self.fun)
        with on_plain_values(f) as (plain, (f,)), plain_np.errstate(all="ignore"):
            y = plain_np.ones(self.states)
            f.run(self.steps.start, y)
            return bool((y == 1.0).all()) and not (plain.altered() or plain.written())


def parameters(functions: Any, given: Any) -> dict:
    """Return the arguments of a call by their names, with its functions in place."""
    args, kwargs = tree_map(
        lambda v: functions[v.place] if isinstance(v, FunctionPlaceholder) else v, list(given)
    )
    return dict(zip(PARAMETERS, args, strict=False)) | kwargs


def plain_floats(*xs: Any) -> bool:
    """Are these plain real numbers, or arrays of them?"""
    return all([not isinstance(x, Variable) and plain_np.asarray(x).dtype.kind in "fiu" for x in xs])


def steps_of(given: dict) -> ExplicitSteps | None:
    """Return what is traced; None: the call is left to SciPy, which also checks its arguments."""
    options = {k: v for k, v in given.items() if k not in PARAMETERS and v is not None}
    span = given["t_span"]
    plain = given.get("method", "RK45") in EXPLICIT_METHODS and not any(
        [given.get(name) for name in ("dense_output", "events", "vectorized")]
    )
    if not plain or given.get("t_eval") is None or not OPTIONS.issuperset(options):
        return None
    if not plain_floats(*span, *options.values()):
        return None
    start, bound = map(float, span)
    if start == bound or not plain_np.isfinite([start, bound]).all():
        return None
    steps = ExplicitSteps(given.get("method", "RK45"), (start, bound), options)
    tolerated = plain_np.min(steps.rtol) >= 100 * EPSILON and plain_np.min(steps.atol) >= 0
    first = abs(bound - start) if steps.first is None else steps.first
    return steps if tolerated and steps.longest > 0 and 0 < first <= abs(bound - start) else None


def are_in_order(times: Any, steps: ExplicitSteps) -> bool:
    """Are these times of the result valid?"""
    lengths = steps.way * np.diff(np.concatenate([[steps.start], times, [steps.bound]]))
    return len(shape(times)) == 1 and bool((lengths >= 0).all()) and bool((lengths[1:-1] > 0).all())


def solve_in_kernel(call: Call, args: tuple, kwargs: dict) -> Any:
    """Return the result of solve_ivp(*args, **kwargs) by a kernel; None: SciPy is to be called."""
    known = heard()
    try:
        given = dict(zip(PARAMETERS, args, strict=False)) | kwargs
        steps = steps_of(given)
        if steps is None:
            return None
        y0, times = [as_float_array(given[name]) for name in ("y0", "t_eval")]
        handles = [live(x) for x, _ in call.first.handles]
        (n,) = shape(y0)
        if not 0 < n <= KERNEL_STATES or any([dtype(x) != FLOAT64 for x in (y0, times, *handles)]):
            return None
        kernel = KernelCall(call, steps, n)
        if not kernel.leaves_nothing():
            return None
        theta = np.concatenate([np.reshape(x, (-1,)) for x in (y0, *handles)])
        if not are_in_order(value(times), steps):
            return None
        found = kernel.kernel().path(theta, np.concatenate([times, [steps.bound]]))
        if value(found)[n, -1] != 0.0:
            return None
    except Exception:  # what a kernel cannot run, SciPy can, or raises again
        take_back(known)
        return None
    result = itg.solve_ivp(lambda t, y: y, (0.0, 1.0), [0.0], t_eval=[0.0])
    for count in ("nfev", "njev", "nlu"):
        result.pop(count)
    result.t, result.y = 1.0 * times, found[:n, :-1]
    return result
