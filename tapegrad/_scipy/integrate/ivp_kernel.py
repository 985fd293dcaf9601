"""solve_ivp as one kernel, where a recording would keep a call of SciPy.

The explicit methods, BDF and Radau take SciPy's steps: the same formulas, the same control of the step size. No
Python remains in a step. The derivative is that of the accepted steps with their sizes held constant. What a
kernel cannot run is left to SciPy: other methods and options, a right-hand side that branches by its
arguments or leaves something behind."""

import math
from collections.abc import Callable
from typing import Any

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
from ...implicit.sequential import Call, FunctionPlaceholder, traces_of
from ...kernels import recursion
from ...kernels.trace.surroundings import rebuilt_with
from ...ops.declare import dtype, shape
from ..namespaces import as_float_array
from ..optimize.callback_search import ComposedFunction
from .bdf_steps import BdfSteps
from .kernel_steps import EPSILON, AdaptiveSteps, ExplicitSteps
from .linear_steps import EXPLICIT_METHODS
from .plain_values import on_plain_values
from .radau_steps import RadauSteps

NAME = "scipy.integrate.solve_ivp"
OPTIONS = frozenset(("rtol", "atol", "max_step", "first_step"))
IMPLICIT_STEPS = {"BDF": BdfSteps, "Radau": RadauSteps}
PARAMETERS = ("fun", "t_span", "y0", "method", "t_eval", "dense_output", "events", "vectorized", "args")
FLOAT64 = plain_np.dtype(float)


class KernelCall(PickledByCall):  # so that no kernel looks into it
    """A call of solve_ivp as a kernel: a function of the start, and of what the right-hand side reads.

    Copies of the functions hold Variables of its own in the place of those that are read. The values of these
    are numbers of rows of the parameters of the kernel, from one on. So a view of one has the rows of its
    elements."""

    def __init__(self, call: Call, steps: AdaptiveSteps, states: int):
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


def steps_of(given: dict, orders: int) -> AdaptiveSteps | None:
    """Return what is traced; None: the call is left to SciPy, which also checks its arguments.

    `orders`: the number of orders of derivatives."""
    options = {k: v for k, v in given.items() if k not in PARAMETERS and v is not None}
    span, method = given["t_span"], given.get("method", "RK45")
    implicit: Any = IMPLICIT_STEPS.get(method)
    plain = (implicit or method in EXPLICIT_METHODS) and not any(
        [given.get(name) for name in ("dense_output", "events", "vectorized")]
    )
    if not plain or given.get("t_eval") is None or not OPTIONS.issuperset(options):
        return None
    if not plain_floats(*span, *options.values()):
        return None
    start, bound = map(float, span)
    rtol, atol = [plain_np.asarray(options.get(k, 1.0)) for k in ("rtol", "atol")]
    if start == bound or not plain_np.isfinite([start, bound]).all():
        return None
    if rtol.min() < 100 * EPSILON or atol.min() < 0 or (implicit and rtol.ndim):
        return None
    steps: AdaptiveSteps
    if implicit:
        steps = implicit((start, bound), options, orders)
    else:
        steps = ExplicitSteps(method, (start, bound), options)
    first = abs(bound - start) if steps.first is None else steps.first
    return steps if steps.longest > 0 and 0 < first <= abs(bound - start) else None


def are_in_order(times: Any, steps: AdaptiveSteps) -> bool:
    """Are these times of the result valid?"""
    lengths = steps.way * np.diff(np.concatenate([[steps.start], times, [steps.bound]]))
    return len(shape(times)) == 1 and bool((lengths >= 0).all()) and bool((lengths[1:-1] > 0).all())


def solve_in_kernel(call: Call, args: tuple, kwargs: dict) -> Any:
    """Return the result of solve_ivp(*args, **kwargs) by a kernel; None: SciPy is to be called."""
    known = heard()
    try:
        given = dict(zip(PARAMETERS, args, strict=False)) | kwargs
        handles = [live(x) for x, _ in call.first.handles]
        orders = len({id(trace) for x in handles for trace in traces_of(x)})
        steps = steps_of(given, orders)
        if steps is None:
            return None
        y0, times = [as_float_array(given[name]) for name in ("y0", "t_eval")]
        (n,) = shape(y0)
        if not 0 < n <= steps.most_states or any([dtype(x) != FLOAT64 for x in (y0, times, *handles)]):
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
