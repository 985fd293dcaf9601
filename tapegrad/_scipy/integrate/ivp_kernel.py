"""solve_ivp as a kernel: in recordings, under `vmap` for many samples, and where calls repeat.

The explicit methods, BDF and Radau take SciPy's steps: the same formulas, the same control of the step size.
No Python remains in a step. The derivative is that of the accepted steps with their sizes held constant.
LSODA, and outside of recordings calls without t_eval or with events, keep SciPy's values; a kernel computes
their derivatives. In a recording SciPy's solution is one instruction. What a kernel cannot run is left to
SciPy: other methods and options, a right-hand side that leaves something behind.

Reading order: `KernelCall`, `Candidate`, `solve_in_kernel`; `kernel_results` for what is made of it."""

import copy
import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from weakref import WeakKeyDictionary

import numpy as plain_np
import scipy.integrate as itg

from ... import numpy as np
from ..._core.errors import Attempt, KernelError, ShapeError
from ..._core.pickling import PickledByCall
from ..._core.primitive import SAMPLED, has_derivative, live, values_of
from ..._core.scope import OPEN, at_the_end_of
from ..._core.trees import tree_map
from ..._core.variable import Variable, View
from ..._transforms.rebind import Rebind
from ..._transforms.tape import value
from ...implicit.sequential import MANY, Call, FunctionPlaceholder, traces_of
from ...kernels import recursion
from ...kernels.trace.branches import branching, unbranched
from ...kernels.trace.surroundings import rebuilt_with
from ...ops.declare import dtype, shape
from ..namespaces import as_float_array
from ..optimize.callback_search import ComposedFunction
from ..plain_values import on_plain_values
from .bdf_steps import BdfSteps
from .ivp_by_steps import carried, with_arguments
from .kernel_events import CrossingSearch, EventKind, common_value, functions_of_events
from .kernel_results import KernelSolve, by_scipy, slope_of
from .kernel_steps import EPSILON, STEPS_BETWEEN, AdaptiveSteps, ExplicitSteps, TooManySteps
from .linear_steps import EXPLICIT, METHODS
from .radau_steps import RadauSteps
from .right_side import NAME, PER_CALL, code_key, form_of_reading, work_of

FINER = 0.1  # of LSODA's tolerances are those of the steps that have the derivative
IMPLICIT_SHARE = 0.03  # of Jacobians, to evaluations: 0.05 to 0.09 for stiff equations
OPTIONS = frozenset(("rtol", "atol", "max_step", "first_step"))
IMPLICIT_STEPS = {"BDF": BdfSteps, "Radau": RadauSteps}
PARAMETERS = (
    "fun",
    "t_span",
    "y0",
    "method",
    "t_eval",
    "dense_output",
    "events",
    "vectorized",
    "args",
    "jac",
)
VARYING = ("y0", "t_span", "t_eval")  # are arguments of a kernel
FLOAT64 = plain_np.dtype(float)
# code of right-hand sides -> the methods that are left to SciPy, outside of recordings
REFUSED: WeakKeyDictionary = WeakKeyDictionary()
WRITES: WeakKeyDictionary = WeakKeyDictionary()  # does this code write captured arrays?


def conditions() -> list:
    """Return the open recordings, and how many conditions each has."""
    return [(trace, trace.conditions()) for trace in OPEN.hiding]


def drop_later(kept: list) -> None:
    """Drop the conditions of recordings that came after `conditions`."""
    for trace, count in kept:
        trace.drop_conditions(count)


@contextmanager
def unconditional() -> Iterator:
    """What is asked inside does not hold recordings to the answers."""
    kept = conditions()
    try:
        yield
    finally:
        drop_later(kept)


class KernelCall(PickledByCall):  # so that no kernel looks into it
    """A call of solve_ivp as kernels: functions of the start, and of what the right-hand side reads.

    The parameters of a kernel are what is read, the state at the start, and the ends of the interval. Copies
    of the functions hold Variables of its own in the place of those that are read. The values of these are
    numbers of rows of the parameters, from one on. So a view of one has the rows of its elements."""

    def __init__(self, call: Call, steps: AdaptiveSteps, states: int, start: float):
        self.call, self.steps, self.states, self.start = call, steps, states, start
        self.writes = False
        shapes = [tuple(shape(x)) for x, _ in call.first.handles]
        ends = plain_np.cumsum([0, *map(math.prod, shapes)])
        rows = [
            plain_np.arange(first + 1.0, last + 1.0).reshape(dims)
            for first, last, dims in zip(ends, ends[1:], shapes, strict=False)
        ]
        self.copies, self.given = self.bound_to(tuple(rows))
        self.fun, self.args = self.given["fun"], tuple(self.given.get("args") or ())
        self.events = functions_of_events(self.given.get("events"))
        self.jac = self.given.get("jac")
        # of the states that the right-hand side takes
        self.columns = (states, 1) if self.given.get("vectorized") else (states,)

    def bound_to(self, values: tuple) -> tuple:
        """Return copies of the functions that hold Variables of these values, and the arguments."""
        copies = Rebind(self.call.functions, self.call.args, self.call.first, values)
        with copies as (functions, (given,)):
            copies.arrays = []
        return copies, parameters(functions, given)

    def bound_to_values(self) -> tuple:
        """Return the same with the values of this call, unless samples have values of their own."""
        if any([t.visibility == SAMPLED for t in OPEN.hiding]):
            return self.copies, self.given
        with unconditional():
            return self.bound_to(tuple([values_of(live(x)) for x, _ in self.call.first.handles]))

    def _made(self) -> tuple:
        return KernelCall, (self.call, self.steps, self.states, self.start)

    def __del__(self):
        at_the_end_of(self, "copies")  # as of a Call

    def traced(self, theta, *functions: tuple) -> list:
        """Return functions of (t, y), as the kernel that is being traced runs them.

        Each is given with the shapes of the states that it takes, and of its result."""
        rebuild, own = OPEN.tracer.rebuild, [y for _, y in self.copies.handles]
        made = {}

        def symbol(x: Variable):
            if not any([(x._base if type(x) is View else x) is y for y in own]):
                raise KernelError(f"{NAME}: a function reads an array that it did not read at first")
            if self.writes and type(x) is View:
                raise KernelError(f"{NAME}: the right-hand side writes arrays, and has captured a view")
            if id(x) not in made:
                made[id(x)] = theta[values_of(live(x)).astype(int) - 1]
            return made[id(x)]

        rebuild.symbol = symbol
        args, run = self.args, unbranched if self.writes else branching

        def rebuilt(f: Callable, of: tuple, to: tuple) -> Callable:
            def called(t, y):
                found = plain_np.asarray(run(lambda: f(t, y.reshape(of).copy(), *args)))
                if found.shape != to:
                    raise ShapeError(f"{NAME}: a function returned shape {found.shape} in place of {to}")
                return found.reshape(to[:1])

            rebuild.captured_state.root(rebuilt_with(called, f))
            result: Callable = rebuild(called)
            return result

        return [rebuilt(*f) for f in functions]

    def right_side(self, theta) -> Callable:
        f: Callable = self.traced(theta, (self.fun, self.columns, self.columns))[0]
        return f

    def steps_of(self, theta) -> AdaptiveSteps:
        return self.steps.within(value(theta[-2]), value(theta[-1]))

    def first_state(self, theta):
        return theta[-2 - self.states : -2]

    def kernel(self):
        """Return the kernel, whose rows are the states, the status and what is counted."""

        def init(theta):
            return self.steps_of(theta).begun(self.right_side(theta), self.first_state(theta))

        def step(c, theta, t):
            steps, f = self.steps_of(theta), self.right_side(theta)
            c = steps.reached(f, c, value(t))
            counts = np.stack([c.status, *steps.counts(c)])
            more = [steps.last_call(f, c)] if self.writes else []
            return c, np.concatenate([steps.between(f, c, t), counts, *more])

        return recursion(init, step, missing="step", invalid="nan")

    def search(self, kinds: list):
        """Return the kernel that looks for events (`CrossingSearch.reached`)."""

        def walk(theta) -> CrossingSearch:
            events = [(g, (self.states,), ()) for g in self.events]
            functions = (self.fun, self.columns, self.columns), *events
            return CrossingSearch(self.steps_of(theta), *self.traced(theta, *functions), kinds=kinds)

        return recursion(
            lambda theta: walk(theta).begun(self.first_state(theta)),
            lambda s, theta, _: walk(theta).reached(s),
            missing="step",
            invalid="nan",
        )

    @staticmethod
    def compare(jac, f: Callable, y) -> None:
        """Raise if this is not the Jacobian that the kernel computes itself."""
        columns = [
            (f(y + h) - f(y - h)).reshape(-1) / 2e-6
            for h in 1e-6 * plain_np.eye(y.size).reshape(-1, *y.shape)
        ]
        found = plain_np.transpose(columns)
        if not plain_np.allclose(jac, found, rtol=1e-4, atol=1e-4 * abs(found).max()):
            raise KernelError(f"{NAME}: jac= is not the Jacobian of the right-hand side")

    def writes_scratch(self) -> bool:
        """Does the right-hand side write captured arrays, to what its last call alone decides?

        Raise if it, an event function or jac= leaves anything else behind. They run on copies."""
        copies, given = self.bound_to_values()  # (the copies live as long as their functions are called)
        others = [*functions_of_events(given.get("events")), *([given["jac"]] if self.jac else [])]
        args = tuple(given.get("args") or ())
        functions = [ComposedFunction(with_arguments, f, *args) for f in (given["fun"], *others)]
        with on_plain_values(*functions) as (plain, (f, *rest)), plain_np.errstate(all="ignore"):
            t, y, left = self.start, plain_np.ones(self.columns), []
            found = [g.run(t, y.reshape(-1)) for g in rest]
            if rest and plain.written():
                raise KernelError(f"{NAME}: an event function, or jac=, leaves something behind")
            if self.jac:
                self.compare(found[-1], lambda y: f.run(t, y), y)
            f.run(t, y)
            written = plain.written()
            for fill in (plain_np.nan, 2.0) if written else ():
                for v in written:
                    v[...] = fill
                found = [f.run(t, y), *written]
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


def steps_of(given: dict) -> list[AdaptiveSteps]:
    """Return what is traced, first what is tried first.

    If there is nothing, the call is left to SciPy, which also checks its arguments."""
    options = {k: v for k, v in given.items() if k not in PARAMETERS and v is not None}
    method = given.get("method", "RK45")
    implicit = IMPLICIT_STEPS.get(method)
    if not (implicit or METHODS.get(method) in EXPLICIT or method == "LSODA"):
        return []
    if not (given.get("jac") is None or implicit and callable(given["jac"])):
        return []
    if not OPTIONS.issuperset(options) or not plain_floats(*options.values()):
        return []
    rtol, atol = [plain_np.asarray(options.get(k, 1.0)) for k in ("rtol", "atol")]
    if rtol.min() < 100 * EPSILON or atol.min() < 0 or (implicit and rtol.ndim):
        return []
    if implicit:
        return [implicit(options)]
    if method == "LSODA":
        usual = {"rtol": 1e-3, "atol": 1e-6} | options
        finer = usual | {k: FINER * plain_np.asarray(usual[k]) for k in ("rtol", "atol")}
        return [ExplicitSteps("DOP853", finer), *([] if rtol.ndim else [RadauSteps(finer)])]
    return [ExplicitSteps(method, options)]


def is_serviceable(given: dict, steps: AdaptiveSteps) -> bool:
    """Is there a kernel for this call? Outside of recordings BDF and Radau are SciPy's."""
    events, dense = functions_of_events(given.get("events")), given.get("dense_output")
    kinds = [kind for kind in map(EventKind.of, events) if kind is not None]
    if len(kinds) < len(events):
        return False
    if OPEN.hiding:
        return True
    theirs = type(steps) is ExplicitSteps or given.get("method") == "LSODA"
    return theirs and not (dense and any([kind.terminal for kind in kinds]))


def is_valid(start, bound, steps: AdaptiveSteps) -> bool:
    """Does SciPy accept this interval, with the size of the first step?"""
    length = np.abs(bound - start)
    if not length > 0.0 or not np.isfinite(length) or not steps.longest > 0:
        return False
    return steps.first is None or bool((steps.first > 0) & (steps.first <= length))


def samples_of(traces) -> int:
    """Return the number of samples for which the call is made at once."""
    return math.prod([t.count for t in traces if t.visibility == SAMPLED])


class SharedKernel:
    """A kernel that is traced once: calls of one form read the same.

    `writes`: its function fills captured arrays anew, so that what they held before does not count."""

    def __init__(self, kernel, shared: bool, writes: bool):
        self.kernel, self.shared, self.writes, self.traced = kernel, shared, writes, False

    def path(self, theta, times):
        """Return the rows of the kernel."""
        if self.traced and self.kernel._captured:
            raise KernelError(
                f"{NAME}: the kernel was traced again, by a call that may have read other things"
            )
        with unconditional() if self.writes else nullcontext():
            found = self.kernel.path(theta, times)
        if self.shared and not self.traced:
            self.settle()
        return found

    def settle(self) -> None:
        """Let later calls run what was traced, whatever has changed since then."""
        self.kernel._captured.clear()
        self.traced = True


class Candidate:
    """Calls that differ in the values of Variables only, and their kernels once there are enough of them.

    `form`: what the functions read, and how the Variables are arranged; None: of one call."""

    states: SharedKernel | None = None
    search: SharedKernel | None = None  # for events
    writes = False

    def __init__(self, form: list | None, code=object):
        self.form, self.code, self.before = form, code, work_of(code)

    def pays(self) -> bool:
        """Have the calls without a kernel taken about as long as its compilation?

        Half of them come before there is a candidate."""
        return work_of(self.code) - self.before >= COMPILATION / 2

    def build(self, made: KernelCall, given: dict) -> "Candidate":
        self.writes = made.writes_scratch()
        # in a recording each replay compares what a kernel has captured
        shared = self.form is not None and all([t.visibility == SAMPLED for t in OPEN.hiding])
        self.states = SharedKernel(made.kernel(), shared, self.writes)
        if made.events and OPEN.hiding and given.get("method") != "LSODA":
            kinds = [EventKind.of(g) for g in functions_of_events(given.get("events"))]
            self.search = SharedKernel(made.search(kinds), shared, self.writes)
        return self


CANDIDATES: list[Candidate] = []  # those that were used last are at the end
MOST_CANDIDATES = 32
MOST_NUMBERS = 1 << 16  # that a right-hand side reads
COMPILATION = 32 * PER_CALL  # the work that takes as long as compiling a kernel


def form_of(call: Call, orders: list, writes: bool) -> list | None:
    """Return what two calls share if one kernel serves both; None: it cannot be told.

    `writes`: captured arrays are parameters of the kernel, and what they hold does not count."""
    settings = parameters(call.functions, call.args[0])
    settings.pop("fun")
    whole = all([type(x) is FunctionPlaceholder for x in call.first.left])
    followed = [s.seen for s in OPEN.shadows] if writes and whole else []
    read_anew = lambda x: any([isinstance(seen.get(id(x)), Variable) for seen in followed])
    form, arrays = form_of_reading([call.functions, settings], call.first.handles, read_anew)
    if form is None or sum([x.size for x in (*arrays, *[y for _, y in call.first.handles])]) > MOST_NUMBERS:
        return None
    return [*form, orders]


def candidate_of(form: list, code, known: list) -> Candidate:
    """Return the candidate for calls of this form among those that are known."""
    for found in reversed(known):
        if found.form == form:
            if found is not known[-1]:
                known.remove(found)
                known.append(found)
            return found
    known.append(Candidate(form, code))
    del known[:-MOST_CANDIDATES]
    return known[-1]


def known_candidates() -> list:
    """Return the candidates that this call may use: those of its recording, or of all other calls."""
    for trace in OPEN.hiding:
        if trace.visibility != SAMPLED:
            own: list = trace.__dict__.setdefault("ivp_kernels", [])
            return own
    return CANDIDATES


def shared_kernel(made: KernelCall, given: dict, levels: list, due: bool) -> Candidate | None:
    """Return the kernel for all calls of this form, or None.

    Unless it is `due`, and without `vmap`, it is made once these calls have taken about as long as its
    compilation."""
    code = code_key(given["fun"])
    if code not in WRITES:
        WRITES[code] = made.writes_scratch()
    orders = [made.states, type(made.steps), made.steps.limit, bool(OPEN.hiding), *levels]
    form = form_of(made.call, orders, WRITES[code])
    if form is None:
        if OPEN.hiding:
            return Candidate(None).build(made, given)
        raise KernelError(f"{NAME}: nothing tells what the right-hand side reads and shows")
    found = candidate_of(form, code, known_candidates())
    if found.states is None and (OPEN.hiding or due or found.pays()):
        found.build(made, given)
    return found if found.states else None


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
    found = attempted(result_by_kernel, given)
    if found is FAILED and not many:
        REFUSED.setdefault(code, set()).add(method)
    return None if found is FAILED else found


FAILED = object()


def attempted(f: Callable, *args):
    """Return f(*args), or FAILED. What a kernel cannot run, another one or SciPy can, or raises again.

    No condition of a failed attempt is left in a recording."""
    kept = conditions()
    with Attempt():
        return f(*args)
    drop_later(kept)
    return FAILED


def result_by_kernel(given: dict):
    y0, span = as_float_array(given["y0"]), tuple(map(as_float_array, given["t_span"]))
    start, bound = span
    (n,) = shape(y0)
    choices = [x for x in steps_of(given) if is_serviceable(given, x) and 0 < n <= x.most_states]
    if not (choices and is_valid(value(start), value(bound), choices[0])):
        return None
    ragged = bool(OPEN.hiding) and given.get("t_eval") is None  # how many steps there are is not known
    given = given | {"t_eval": np.stack(span)} if ragged else given
    call = Call(NAME, itg.solve_ivp, (), {k: v for k, v in given.items() if k not in VARYING}, True)
    handles = [live(x) for x, _ in call.first.handles]
    inputs = *handles, y0, start, bound
    levels = [*{id(trace): type(trace) for x in inputs for trace in traces_of(x)}.values()]
    if not (levels or OPEN.hiding and any([isinstance(x, Variable) for x in inputs])):
        return None
    if any([dtype(x) != FLOAT64 for x in inputs]):
        return None
    first = carried(slope_of(given), start, y0, value(start)) if has_derivative(start) else y0
    theta = np.concatenate([np.reshape(x, (-1,)) for x in (*handles, first, start, bound)])
    scipys = functools.cache(lambda writes: scipys_result(given, writes))

    def solved(steps: AdaptiveSteps):
        steps.rounds = len(levels)
        for steps.limit in STEPS_BETWEEN:
            made = KernelCall(call, copy.copy(steps), n, 0.0 if isinstance(start, Variable) else start)
            kernel = shared_kernel(made, given, levels, steps is not choices[0])
            if kernel is None:
                return None
            found = scipys(kernel.writes)
            if steps is not choices[-1] and is_stiff(found):
                raise KernelError(f"{NAME}: implicit steps need not be so small")
            try:
                return KernelSolve(given, kernel, theta, y0, span, steps, found, ragged).result()
            except TooManySteps:
                continue
        return None

    for steps in choices[:-1]:
        found = attempted(solved, steps)
        if found is not FAILED:
            return found
    return solved(choices[-1])


def is_stiff(found) -> bool:
    """Has LSODA taken more than a few implicit steps, for some sample of `vmap`?"""
    return common_value(bool, found.njev > IMPLICIT_SHARE * found.nfev) is not False


def scipys_result(given: dict, writes: bool):
    """Return SciPy's result on plain values, where the kernel computes the derivatives only; else None."""
    method, hidden = given.get("method", "RK45"), bool(OPEN.hiding)
    more = bool(given.get("dense_output") or functions_of_events(given.get("events")))
    first = method == "LSODA" or not hidden and (more or given.get("t_eval") is None)
    if writes and more:  # whether SciPy's last call is at the end of a step is not known then
        raise KernelError(f"{NAME}: the right-hand side writes arrays")
    return by_scipy(given) if first else None
