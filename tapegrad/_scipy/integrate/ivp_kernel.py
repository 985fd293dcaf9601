"""solve_ivp as one kernel: in recordings, under `vmap` for many samples, and where calls repeat.

The explicit methods, BDF and Radau take SciPy's steps: the same formulas, the same control of the step size.
No Python remains in a step. The derivative is that of the accepted steps with their sizes held constant.
LSODA, and calls without t_eval, keep SciPy's values; a kernel computes their derivatives. In a recording
SciPy's solution is one instruction. What a kernel cannot run is left to SciPy: other methods and options, a
right-hand side that branches by its arguments or leaves something behind.

Reading order: `KernelCall`, `Candidate`, `solve_in_kernel`."""

import copy
import math
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as plain_np
import scipy.integrate as itg

from ... import numpy as np
from ..._core.errors import BatchError, KernelError, ShapeError, callers_line, heard, take_back
from ..._core.pickling import PickledByCall
from ..._core.primitive import SAMPLED, live, values_of
from ..._core.scope import OPEN, at_the_end_of, changed
from ..._core.trees import tree_map
from ..._core.variable import Variable, View
from ..._transforms.rebind import Rebind
from ..._transforms.tape import value
from ...implicit.sequential import MANY, Call, FunctionPlaceholder, RaggedArray, traces_of
from ...kernels import recursion
from ...kernels.trace.branches import branching, unbranched
from ...kernels.trace.surroundings import rebuilt_with
from ...ops.declare import dtype, shape
from ..namespaces import as_float_array, bare
from ..optimize.callback_search import ComposedFunction
from ..plain_values import on_plain_values
from .bdf_steps import BdfSteps
from .ivp_by_steps import PlainFunction, with_arguments
from .kernel_steps import EPSILON, MANY_STEPS, STEPS_BETWEEN, AdaptiveSteps, ExplicitSteps
from .linear_steps import EXPLICIT, METHODS
from .radau_steps import RadauSteps
from .right_side import PER_CALL, code_key, form_of_reading, work_of

NAME = "scipy.integrate.solve_ivp"
FINER = 0.1  # of LSODA's tolerances are those of the steps that have the derivative
OPTIONS = frozenset(("rtol", "atol", "max_step", "first_step"))
IMPLICIT_STEPS = {"BDF": BdfSteps, "Radau": RadauSteps}
PARAMETERS = ("fun", "t_span", "y0", "method", "t_eval", "dense_output", "events", "vectorized", "args")
FLOAT64 = plain_np.dtype(float)
SOLVED = itg.solve_ivp(lambda t, y: y, (0.0, 1.0), [0.0], t_eval=[0.0])  # a result, without counts
RESULT = type(SOLVED)
for _name in ("nfev", "njev", "nlu"):
    del SOLVED[_name]
# code of right-hand sides -> the methods that are left to SciPy, outside of recordings
REFUSED: WeakKeyDictionary = WeakKeyDictionary()
WRITES: WeakKeyDictionary = WeakKeyDictionary()  # does this code write captured arrays?


class KernelCall(PickledByCall):  # so that no kernel looks into it
    """A call of solve_ivp as a kernel: a function of the start, and of what the right-hand side reads.

    Copies of the functions hold Variables of its own in the place of those that are read. The values of these
    are numbers of rows of the parameters of the kernel, from one on. So a view of one has the rows of its
    elements."""

    def __init__(self, call: Call, steps: AdaptiveSteps, states: int):
        self.call = call
        self.steps = steps
        self.states = states
        self.writes = False
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
        at_the_end_of(self, "copies")  # as of a Call

    def right_side(self, theta) -> Callable:
        """Return the right-hand side, as the kernel that is being traced runs it."""
        rebuild, own = OPEN.tracer.rebuild, [y for _, y in self.copies.handles]
        made = {}

        def symbol(x: Variable):
            if not any([(x._base if type(x) is View else x) is y for y in own]):
                raise KernelError(f"{NAME}: the right-hand side reads an array that it did not read at first")
            if self.writes and type(x) is View:
                raise KernelError(f"{NAME}: the right-hand side writes arrays, and has captured a view")
            if id(x) not in made:
                made[id(x)] = theta[values_of(live(x)).astype(int) - 1]
            return made[id(x)]

        rebuild.symbol = symbol
        fun, args, n = self.fun, self.args, self.states
        run = unbranched if self.writes else branching

        def right(t, y):
            slope = plain_np.asarray(run(lambda: fun(t, y.copy(), *args)))
            if slope.shape != (n,):
                raise ShapeError(f"{NAME}: the right-hand side returned shape {slope.shape}")
            return slope

        rebuild.captured_state.root(rebuilt_with(right, fun))
        rebuilt: Callable = rebuild(right)
        return rebuilt

    def kernel(self):
        """Return the kernel, whose rows are the states, the status and what is counted."""

        def init(theta):
            return self.steps.begun(self.right_side(theta), theta[: self.states])

        def step(c, theta, t):
            f = self.right_side(theta)
            c = self.steps.reached(f, c, t)
            counts = np.stack([c.status, *self.steps.counts(c)])
            return c, np.concatenate([self.steps.between(f, c, t), counts])

        return recursion(init, step, missing="step", invalid="nan")

    def writes_scratch(self) -> bool:
        """Does the right-hand side write captured arrays, to what its last call alone decides?

        Raise if it leaves anything else behind. It runs on copies."""
        f = ComposedFunction(lambda fun: lambda t, y: fun(t, y, *self.args), self.fun)
        with on_plain_values(f) as (plain, (f,)), plain_np.errstate(all="ignore"):
            y, left = plain_np.ones(self.states), []
            f.run(self.steps.start, y)
            written = plain.written()
            for fill in (plain_np.nan, 2.0) if written else ():
                for v in written:
                    v[...] = fill
                found = [f.run(self.steps.start, y), *written]
                left.append([plain_np.asarray(v).tobytes() for v in found])
            if plain.altered() or not (y == 1.0).all() or left[1:] != left[:-1]:
                raise KernelError(f"{NAME}: the right-hand side leaves something behind")
        self.writes = bool(written)
        return self.writes


def parameters(functions, given) -> dict:
    """Return the arguments of a call by their names, with its functions in place."""
    _, found = tree_map(
        lambda v: functions[v.place] if isinstance(v, FunctionPlaceholder) else v, list(given)
    )
    return found


def plain_floats(*xs) -> bool:
    """Are these plain real numbers, or arrays of them?"""
    return all([not isinstance(x, Variable) and plain_np.asarray(x).dtype.kind in "fiu" for x in xs])


def steps_of(given: dict) -> AdaptiveSteps | None:
    """Return what is traced; None: the call is left to SciPy, which also checks its arguments."""
    options = {k: v for k, v in given.items() if k not in PARAMETERS and v is not None}
    span, method = given["t_span"], given.get("method", "RK45")
    implicit = IMPLICIT_STEPS.get(method)
    plain = (implicit or METHODS.get(method) in EXPLICIT or method == "LSODA") and not any(
        [given.get(name) for name in ("dense_output", "events", "vectorized")]
    )
    if not plain or not OPTIONS.issuperset(options):
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
        steps = implicit((start, bound), options)
    elif method == "LSODA":
        usual = {"rtol": 1e-3, "atol": 1e-6} | options
        finer = {k: FINER * plain_np.asarray(usual[k]) for k in ("rtol", "atol")}
        steps = ExplicitSteps("DOP853", (start, bound), usual | finer)
    else:
        steps = ExplicitSteps(method, (start, bound), options)
    first = abs(bound - start) if steps.first is None else steps.first
    return steps if steps.longest > 0 and 0 < first <= abs(bound - start) else None


def are_in_order(times, steps: AdaptiveSteps) -> bool:
    """Are these times of the result valid?"""
    ends = np.concatenate([[steps.start], times, [steps.bound]])
    lengths = steps.way * (ends[1:] - ends[:-1])
    return len(shape(times)) == 1 and bool((lengths >= 0).all()) and bool((lengths[1:-1] > 0).all())


def samples_of(traces) -> int:
    """Return the number of samples for which the call is made at once."""
    return math.prod([t.count for t in traces if t.visibility == SAMPLED])


class Candidate:
    """Calls that differ in the values of Variables only, and their kernel once there are enough of them.

    `form`: what the right-hand side reads, and how its Variables are arranged; None: of one call."""

    kernel: Any = None
    traced = writes = False

    def __init__(self, form: list | None, code=object):
        self.form, self.code, self.before = form, code, work_of(code)

    def pays(self) -> bool:
        """Have the calls without a kernel taken about as long as its compilation?

        Half of them come before there is a candidate."""
        return work_of(self.code) - self.before >= COMPILATION / 2

    def build(self, call: Call, steps: AdaptiveSteps, states: int) -> "Candidate":
        made = KernelCall(call, steps, states)
        self.writes = made.writes_scratch()
        self.kernel = made.kernel()
        return self

    def path(self, theta, times):
        """Return the rows of the kernel, which is traced once: calls of this form read the same."""
        if self.traced and self.kernel._captured:
            raise KernelError(
                f"{NAME}: the kernel was traced again, by a call that may have read other things"
            )
        found = self.kernel.path(theta, times)
        if self.form is not None and not self.traced:
            self.kernel._captured.clear()
            self.traced = True
        return found


CANDIDATES: list[Candidate] = []  # those that were used last are at the end
MOST_CANDIDATES = 32
MOST_NUMBERS = 1 << 16  # that a right-hand side reads
COMPILATION = 32 * PER_CALL  # the work that takes as long as compiling a kernel


def form_of(call: Call, orders: list, writes: bool) -> list | None:
    """Return what two calls share if one kernel serves both; None: it cannot be told.

    `writes`: captured arrays are parameters of the kernel, and what they hold does not count."""
    settings = parameters(call.functions, call.args[0])
    settings = {k: v for k, v in settings.items() if k not in ("fun", "y0", "t_eval")}
    whole = all([type(x) is FunctionPlaceholder for x in call.first.left])
    followed = [s.seen for s in OPEN.shadows] if writes and whole else []
    read_anew = lambda x: any([isinstance(seen.get(id(x)), Variable) for seen in followed])
    form, arrays = form_of_reading([call.functions, settings], call.first.handles, read_anew)
    if form is None or sum([x.size for x in (*arrays, *[y for _, y in call.first.handles])]) > MOST_NUMBERS:
        return None
    return [*form, orders]


def candidate_of(form: list, code) -> Candidate:
    """Return the candidate for calls of this form."""
    for found in reversed(CANDIDATES):
        if found.form == form:
            if found is not CANDIDATES[-1]:
                CANDIDATES.remove(found)
                CANDIDATES.append(found)
            return found
    CANDIDATES.append(Candidate(form, code))
    del CANDIDATES[:-MOST_CANDIDATES]
    return CANDIDATES[-1]


def shared_kernel(call: Call, steps: AdaptiveSteps, code, states: int, levels: list) -> Candidate | None:
    """Return the kernel for all calls of this form, or None.

    Without `vmap` it is made once these calls have taken about as long as its compilation."""
    if code not in WRITES:
        WRITES[code] = KernelCall(call, steps, states).writes_scratch()
    form = form_of(call, [states, steps.limit, *levels], WRITES[code])
    if form is None:
        if OPEN.hiding:
            return Candidate(None).build(call, steps, states)
        raise KernelError(f"{NAME}: nothing tells what the right-hand side reads and shows")
    found = candidate_of(form, code)
    if found.kernel is None and (OPEN.hiding or found.pays()):
        found.build(call, steps, states)
    return found if found.kernel else None


def solve_in_kernel(args: tuple, kwargs: dict):
    """Return the result of solve_ivp(*args, **kwargs) by a kernel; None: SciPy is to be called."""
    given = dict(zip(PARAMETERS, args, strict=False)) | kwargs
    recorded = not all([t.visibility == SAMPLED for t in OPEN.hiding])
    many = recorded or samples_of(OPEN.hiding) >= MANY
    code, method = code_key(given.get("fun")), str(given.get("method"))
    if not many and (OPEN.hiding or OPEN.watcher is not None or method in REFUSED.get(code, ())):
        return None
    if not many and work_of(code) < COMPILATION / 2:
        return None
    known = heard()
    try:
        return result_by_kernel(given, recorded)
    except Exception:  # what a kernel cannot run, SciPy can, or raises again
        take_back(known)
        if not many:
            REFUSED.setdefault(code, set()).add(method)
        return None


def steps_are_unknown() -> BatchError:
    return BatchError(
        f"{callers_line()}: {NAME} takes another number of steps in each sample and call, so only the first "
        "and the last of its times and states can be read; ask for others by t_eval="
    )


def result_by_kernel(given: dict, recorded: bool):
    steps, hidden = steps_of(given), bool(OPEN.hiding)
    if steps is None or not (hidden or type(steps) is ExplicitSteps):
        return None
    if hidden and given.get("t_eval") is None:  # how many steps there are is not known
        ends = result_by_kernel(given | {"t_eval": [steps.start, steps.bound]}, recorded)
        for name in ("t", "y") if ends is not None else ():
            ends[name] = RaggedArray(ends[name], steps_are_unknown)
        return ends
    y0 = as_float_array(given["y0"])
    (n,) = shape(y0)
    if not 0 < n <= steps.most_states:
        return None
    call = Call(NAME, itg.solve_ivp, (), given, True)
    handles = [live(x) for x, _ in call.first.handles]
    levels = [*{id(trace): type(trace) for x in handles for trace in traces_of(x)}.values()]
    if not (levels or hidden and handles) or any([dtype(x) != FLOAT64 for x in (y0, *handles)]):
        return None
    steps.rounds = len(levels)
    theta = np.concatenate([np.reshape(x, (-1,)) for x in (y0, *handles)])
    found: Any = None
    for steps.limit in STEPS_BETWEEN:
        now = copy.copy(steps)
        if recorded:
            kernel: Any = Candidate(None).build(call, now, n)
        else:
            kernel = shared_kernel(call, now, code_key(given["fun"]), n, levels)
        if kernel is None:
            return None
        found = found or by_scipy_first(given, kernel)
        times = as_float_array(given["t_eval"] if given.get("t_eval") is not None else found.t[1:])
        if dtype(times) != FLOAT64 or not are_in_order(value(times), steps):
            return None
        rows = kernel.path(theta, np.concatenate([times, [steps.bound]]))
        status, *counts = value(rows)[n:]
        if given.get("method") == "LSODA" and (status[-1] == MANY_STEPS or counts[0][-1] > found.nfev):
            raise KernelError(f"{NAME}: stability, and not accuracy, limits the steps of an explicit method")
        if status[-1] != MANY_STEPS:
            break
    if status[-1] != 0.0:
        return None
    if kernel.writes:  # what SciPy's last call leaves
        given["fun"](steps.bound, rows[:n, -1], *(given.get("args") or ()))
    if found is None:
        more = {} if hidden else {"nfev": steps.evaluations(counts), "njev": 0, "nlu": 0}
        return RESULT(SOLVED | more, t=1.0 * times, y=rows[:n, :-1])
    return with_derivatives(found, given, y0, times, rows[:n, :-1])


def with_derivatives(found, given: dict, y0, times, y):
    """Return SciPy's result with the derivatives of the states y at the times after the start."""
    if given.get("t_eval") is None:
        y = np.concatenate([y0[:, None], y], 1)
    else:
        found.t = 1.0 * times
    found.y = found.y + (y - value(y))
    return found


def by_scipy_first(given: dict, kernel: Candidate):
    """Return SciPy's result on plain values, where the kernel computes the derivatives only; else None."""
    method, steps = given.get("method", "RK45"), given.get("t_eval") is None
    # is SciPy's last call the one at the end of the last step? (LSODA's lies near it)
    ends = method in ("RK23", "RK45") or not OPEN.hiding and (method == "LSODA" or steps)
    if kernel.writes and not (ends and all([t.visibility != SAMPLED for t in OPEN.hiding])):
        raise KernelError(f"{NAME}: the right-hand side writes arrays")
    if not (method == "LSODA" or steps):
        return None
    if not OPEN.hiding:
        return solved_by_scipy(**given)
    replayed = not all([t.visibility == SAMPLED for t in OPEN.hiding])
    call = Call(NAME, solved_by_scipy, (), given, replayed)
    call.constant = True
    return call.result()


def solved_by_scipy(fun, args=None, **options):
    """Return SciPy's result on plain values. Where values are hidden, the count of evaluations is a float."""
    f = ComposedFunction(with_arguments, fun, *(args or ()))
    with on_plain_values(f) as (_, (plain,)), changed(depth=0):
        found = itg.solve_ivp(PlainFunction(plain.run), **bare(options))
    if OPEN.hiding or OPEN.of_one:
        if found.status != 0:
            raise KernelError(f"{NAME}: {found.message}")
        found.nfev = float(found.nfev)
    return found
