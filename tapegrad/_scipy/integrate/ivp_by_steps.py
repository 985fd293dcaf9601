"""scipy.integrate.solve_ivp: SciPy computes the solution with plain numbers, the derivative is that of its
steps.

The stages of all accepted steps solve equations, whose right-hand sides are evaluated together. Newton's
method on these equations, with constant Jacobians, adds one order of derivatives in each round. Its linear
equations are solved step by step (`linear_steps`, `multistep`). Steps of Radau and LSODA are those of Radau's
method on SciPy's solution. The ends of the steps are no variables, but for the ends of the interval. There
the solution is carried on by a step of length zero, which has derivatives."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as plain_np
import scipy.integrate as itg
from scipy import sparse

from ... import numpy as np
from ..._core.errors import Attempt, BatchError, ConvergenceError, SingularError, callers_line
from ..._core.primitive import primal_of
from ..._core.scope import OPEN, changed
from ..._core.trees import Const
from ..._transforms.gradient import grad
from ..._transforms.rebind import once_more
from ..._transforms.tape import value
from ...implicit.sequential import run_sequentially, traces_of
from ...ops.declare import dtype, ndim
from ..linear_maps import AxisMap, mapped
from ..namespaces import Carrier, as_float_array, bare, holds_tracked, refusal_text, with_derivative_of
from ..optimize.callback_search import ComposedFunction, Search
from ..plain_values import on_plain_values
from .ivp_adjoint import solve_with_adjoint
from .linear_steps import COLLOCATION, EXPLICIT, METHODS, StepEquations
from .multistep import MultistepSteps, multistep_steps
from .right_side import (
    DENSE_NUMBERS,
    DENSE_STATES,
    NAME,
    ROUNDING,
    SPARSE_STATES,
    RightSide,
    all_real,
    check_slopes,
    complex_states,
    count_work,
    other_values,
    real_parts,
)
from .stage_sweeps import swept

# --- the steps that SciPy has taken ---


class Steps(NamedTuple):
    """With complex numbers as pairs. `T`, `Y`, `K`: times, states and slopes of the stages, (steps, stages,
    n); `A`, `B`: with the lengths of the steps."""

    ends: Any
    states: Any
    T: Any
    Y: Any  # None of an explicit method, whose slopes tell them
    K: Any  # None of an implicit method; of the last step only, where these were too many
    A: Any
    B: Any
    P: Any

    def equations(self, J) -> StepEquations:
        return StepEquations(self.A, self.B, J, self.K is None)

    def stages(self, states, K, at: slice = slice(None)):
        """Return the states at the stages of these steps."""
        return states[:-1][at, None] + self.A[at] @ K[at]

    def weights(self, at, x):
        """Return the weights of the slopes of steps at shares x of the steps."""
        powers = x[:, None] ** plain_np.arange(1.0, self.P.shape[1] + 1)
        return plain_np.diff(self.ends)[at][:, None] * (powers @ self.P.T)


def recorder(method, records: list, whole: bool) -> type:
    """The method, which appends what it computes in each accepted step.

    `whole`: all slopes, however many they are. Else of many only those of the last step are kept, and the
    number of others."""

    def step(self) -> tuple:
        t = self.t
        done = method._step_impl(self)
        if done[0]:
            records.append([t, self.t, self.y_old, self.y, self.K.copy()])
            most = math.inf if whole else max(KEPT_SLOPES, DENSE_NUMBERS // self.n)
            for record in records[-2::-1] if len(records) * self.K.size > most else ():
                if type(record[4]) is int:
                    break
                record[4] = len(record[4])
        return done

    def interpolant(self):
        found = method._dense_output_impl(self)
        records[-1][4] = getattr(self, "K_extended", self.K).copy()
        return found

    return type(
        method.__name__,
        (method,),
        {"_step_impl": step, "_dense_output_impl": interpolant, "__module__": method.__module__},
    )


def explicit_steps(method, records: list) -> Steps:
    A, B, C, P = EXPLICIT[method]
    counts = [K if type(K) is int else len(K) for *_, K in records]
    kept = [r[4] for r in records if type(r[4]) is not int]
    s = max(counts)
    starts, ends = plain_np.array([r[0] for r in records]), plain_np.array([r[1] for r in records])
    y = plain_np.array([*[r[2] for r in records], records[-1][3]])
    h, A, C, P = ends - starts, A[:s, :s], C[:s], P[:s]
    T = starts[:, None] + C * h[:, None]
    A = A * h[:, None, None]
    K = plain_np.empty((len(kept), s, y.shape[1]), y.dtype)
    for row, slopes in zip(K, kept, strict=True):
        row[: len(slopes)], row[len(slopes) :] = slopes, slopes[-1]
    for k, count in enumerate(counts):  # stages of an interpolant that nobody asked for: the last one again
        A[k, count:], T[k, count:] = A[k, count - 1], T[k, count - 1]
    y, K = all_real(y, K)
    return Steps(plain_np.append(starts, ends[-1]), y, T, None, K, A, B[:s] * h[:, None], P)


def collocation_steps(found) -> Steps:
    parts, (A, B, C, P) = found.sol.interpolants, COLLOCATION
    ends = plain_np.array([parts[0].t_old, *[part.t for part in parts]])
    h = plain_np.diff(ends)
    T = ends[:-1, None] + C * h[:, None]
    T[:, -1] = ends[1:]
    Y = interpolated(parts, T)
    y = plain_np.concatenate([parts[0](ends[0])[None], Y[:, -1]])
    y, Y = all_real(y, Y)
    return Steps(ends, y, T, Y, None, A * h[:, None, None], B * h[:, None], P)


def interpolated(parts: list, T):
    """The interpolant of each step at its times, (steps, times, n); those of LSODA, which are many,
    together."""
    if not hasattr(parts[0], "yh"):
        return plain_np.swapaxes(plain_np.array([part(t) for part, t in zip(parts, T, strict=True)]), 1, 2)
    count = max([part.yh.shape[1] for part in parts])
    powers = plain_np.zeros((len(parts), count, len(parts[0].yh)))
    for part, to in zip(parts, powers, strict=True):
        to[: part.yh.shape[1]] = part.yh.T
    end, h = plain_np.array([[part.t, part.h] for part in parts]).T[..., None]
    return ((T - end) / h)[..., None] ** plain_np.arange(count) @ powers


def known_stages(steps, at: slice = slice(None)):
    """Return the states at the stages of these steps, as SciPy had them."""
    return steps.stages(steps.states, steps.K, at) if steps.Y is None else steps.Y[at]


def at_last_stage(right: RightSide, steps):
    return right.point(steps.T[-1, -1], known_stages(steps, slice(-1, None))[-1, -1])


class Span:
    """The interval as SciPy cut it. `whole`: does it reach the end?"""

    def __init__(self, plain, t_span, whole: bool):
        self.plain, self.tracked = plain, holds_tracked(t_span)
        self.start, self.end = t_span[0], t_span[1] if whole else plain[-1]

    def ends(self):
        """The ends of the steps."""
        if not self.tracked:
            return self.plain
        return np.concatenate([np.reshape(t, -1) for t in (self.start, self.plain[1:-1], self.end)])

    def steps_of(self, t):
        """The number of the step in which each time lies."""
        v, ts = primal_of(t), self.plain
        if times_ascend(ts):
            at = np.searchsorted(ts, v, side="left")
        else:
            at = len(ts) - np.searchsorted(ts[::-1], v, side="right")
        return np.clip(at - 1, 0, len(ts) - 2)


def carried(f: Callable, start, y, end):
    """The solution at `end` that has the state y at `start`, which is `end` but for derivatives.  A step of
    order four."""
    if end is start:
        return y
    h, k, total = end - start, 0.0, y
    for share, weight in ((0.0, 1.0), (0.5, 2.0), (0.5, 2.0), (1.0, 1.0)):
        k = f(start + share * h, y + share * h * k)
        total = total + weight / 6.0 * h * k
    return total


def times_ascend(ts) -> bool:
    return bool(ts[-1] >= ts[0])


# --- their derivatives ---


class ObservedCalls:
    """A right-hand side that keeps points and slopes of its calls: all calls, or one of 2, 4, 8 and so on."""

    def __init__(self, f: Callable):
        self.f, self.every, self.count = f, 1, 0
        self.kept = []

    def __call__(self, t: float, y):
        slope = self.f(t, y)
        if self.count % self.every == 0:
            self.kept.append((t, y.copy(), plain_np.array(slope)))
            if len(self.kept) * y.size > OBSERVED_NUMBERS:
                self.kept, self.every = self.kept[::2], 2 * self.every
        self.count += 1
        return slope

    def check_again(self, right: RightSide, equations, steps) -> None:
        """Raise if the function gives other slopes now. The last call is repeated first, for a generator that
        was put back would give the same numbers in the same order."""
        if not self.kept:
            return
        times, states, slopes = zip(*self.kept[::-1], strict=True)
        n = len(states[0])
        T = plain_np.repeat(times, [y.size // n for y in states])
        # the states of a vectorized function are columns
        rows = lambda vs: [v.reshape(n, -1).T for v in vs] if vs[0].ndim == 2 else vs
        Y, K = [plain_np.concatenate(rows(vs)).reshape(-1, n) for vs in (states, slopes)]
        Y, K = (real_parts(Y), real_parts(K)) if Y.dtype.kind == "c" else (Y, K)
        with plain_np.errstate(all="ignore"):
            found, scale = bare(right(T, Y)), abs(K).max(initial=0.0)
            if type(equations.J) is plain_np.ndarray:
                scale = scale + (abs(equations.J) @ abs(steps.Y)[..., None]).max(initial=0.0)
            if (abs(found - K) > ROUNDING * scale).any():
                raise other_values()


def is_scratch(right: RightSide, written: list, steps: Steps) -> bool:
    """Does the last call alone decide what these arrays hold, whatever they held before?"""
    left = []
    for fill in (plain_np.nan, 1.0):
        for v in written:
            v[...] = fill
        with Attempt() as tried:
            at_last_stage(right, steps)
        if tried.failed:
            return False
        left.append([bare(v).tobytes() for v in written])
    return left[0] == left[1]


OBSERVED_NUMBERS = 1 << 20  # of the states of calls that are kept
KEPT_SLOPES = 1 << 24  # numbers in the slopes that are kept of many steps of an explicit method


def open_levels(*values) -> int:
    """The number of derivatives that may be taken of these values."""
    return len({id(trace) for v in values for trace in traces_of(v)})


class SolvedSteps:
    """The states at the ends of the steps, and the slopes of the stages, as functions of what is tracked."""

    def __init__(self, steps, span: Span, y0):
        self.steps, self.span, self.mixed = steps, span, dtype(y0).kind == "c"
        self.states, self.K = steps.states, steps.K
        self.D = steps.D if type(steps) is MultistepSteps else None  # the rows of the interpolants
        self.asked = plain_np.arange(len(steps.ends) - 1)  # the steps whose slopes, or rows, these are
        self.y0 = real_parts(y0) if self.mixed else y0

    def evaluate(self, right: RightSide) -> None:
        """The slopes of an implicit method, where nothing is tracked."""
        if self.K is None:
            Y = self.steps.Y
            self.K = bare(right(self.steps.T.reshape(-1), Y.reshape(-1, Y.shape[2]))).reshape(Y.shape)

    def linearized(self, right: RightSide, pattern):
        steps = self.steps
        if self.many:
            at_last_stage(right, steps)
            return None
        Y = known_stages(steps)
        found, J = right.jacobians(steps.T, Y, steps.K is None, pattern)
        if steps.K is not None:
            check_slopes(found, steps.K, Y, J)
        self.K = found if steps.K is None else steps.K
        return steps.equations(J)

    @property
    def many(self) -> bool:
        """Are the Jacobians of explicit steps too large to be kept?"""
        n, size = self.steps.states.shape[1], self.steps.T.size * self.steps.states.shape[1]
        return self.steps.K is not None and (n > DENSE_STATES or n * size > DENSE_NUMBERS)

    def differentiate(self, right: RightSide, equations, asked) -> None:
        """`asked`: the steps of which more than the ends are asked for."""
        steps, T, span = self.steps, self.steps.T.reshape(-1), self.span
        start = (
            carried(right.at, span.start, self.y0, span.plain[0]) if holds_tracked(span.start) else self.y0
        )
        start = start - primal_of(start)
        if equations is None:
            self.asked = asked
            self.states, self.K = swept(steps, asked, right, start)
            return
        n, move = equations.n, AxisMap(equations.forward, equations.size, equations.backward)
        Y = known = known_stages(steps)
        levels = rounds = 1
        while rounds <= levels:
            found = right(T, np.reshape(Y, (-1, n)))
            rest = found if rounds == 1 else found - np.reshape(self.K, (-1, n))
            if rounds == 1:
                levels = open_levels(start, rest)
                check_slopes(np.reshape(bare(found), Y.shape), self.K, Y, equations.J)
            if not levels:
                return
            rest = np.reshape(rest - primal_of(rest), -1)
            change = mapped(np.concatenate([start, rest]), map=move)
            ends = (equations.steps + 1) * n
            self.states = self.states + np.reshape(change[:ends], (-1, n))
            self.K = self.K + np.reshape(change[ends : ends + Y.size], Y.shape)
            if self.D is not None:
                moved = np.reshape(change[ends + Y.size :], (-1, *self.D.shape[1:]))
                self.D = self.D + moved[1:]
            start, rounds = plain_np.zeros(n), rounds + 1
            # SciPy's stages obey its equations up to a tolerance, which is a constant
            Y = with_derivative_of(known, steps.stages(self.states, self.K, slice(None)))

    def carry_on(self, right: RightSide) -> None:
        """The state at the end of the interval."""
        end, at = self.span.end, self.span.plain[-1]
        self.last = carried(right.at, at, self.states[-1], end) if holds_tracked(end) else self.states[-1]

    def sol(self) -> "Solution":
        own = (self.states[:-1], self.K) if self.D is None else (self.states[1:], self.D)
        return Solution(self.steps, self.span, *own, self.asked, self.mixed)

    def ends(self):
        """The states at the ends of the steps, and of the interval."""
        states = self.states
        if self.span.tracked:
            states = np.concatenate([self.y0[None], states[1:-1], self.last[None]])
        return complex_states(states) if self.mixed else states


class DenseSolution(Carrier):
    """A function of time, of which samples that `vmap` hides ask one after another."""

    def __call__(self, t):
        if not OPEN.hiding:
            return self.states_at(t)
        of = lambda sol, t: sol.states_at(t)
        return run_sequentially(f"{NAME}(...).sol", of, (self, t), {}, True)

    def states_at(self, t):
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class Solution(DenseSolution):
    """The interpolants of the steps: a state of each step, and the sum of the rows with their weights."""

    steps: Any
    span: Span
    states: Any
    rows: Any
    asked: Any  # the steps of the rows
    mixed: bool

    def _tracked(self) -> bool:
        return holds_tracked(self.states, self.rows) or self.span.tracked

    def _plain(self):
        return self

    def states_at(self, t):
        t = as_float_array(t, t if holds_tracked(t) else None)
        flat = np.reshape(t, -1)
        at = self.span.steps_of(flat)
        h = plain_np.diff(self.steps.ends)
        x = (flat - self.steps.ends[at]) / plain_np.where(h == 0, 1.0, h)[at]
        weights = self.steps.weights(at, x)
        rows = self.rows[plain_np.searchsorted(self.asked, at)]
        y = self.states[at] + np.reshape(weights[:, None] @ rows, (len(at), -1))
        y = complex_states(y) if self.mixed else y
        return np.transpose(y) if ndim(t) else y[0]


class ShiftedSolution(DenseSolution):
    """SciPy's values, with the derivatives of ours."""

    def __init__(self, theirs, ours: Solution):
        self._theirs, self._ours = theirs, ours
        self.ts, self.t_min, self.t_max = theirs.ts, theirs.t_min, theirs.t_max

    def _tracked(self) -> bool:
        return self._ours._tracked()

    def _plain(self):
        return self._theirs

    def states_at(self, t):
        return with_derivative_of(self._theirs(bare(t)), self._ours.states_at(t))


# --- events: the time at which g(t, y(t)) = 0, by the theorem of implicit functions ---


def as_event(plainly, g):
    """With the settings of g as SciPy reads them."""
    plainly.terminal, plainly.direction = getattr(g, "terminal", None), getattr(g, "direction", 0)
    return plainly


def crossing(along: Callable, slope, t):
    """The time t of an event, which is a value, as a function of what the solution and the event hold.

    `along`: the event function at a time on the solution; `slope`: its derivative, a value."""
    if slope == 0:
        raise refusal_text(
            f"{NAME}(events=)", "the solution touches what it should cross", "an event that is crossed"
        )
    exact, rounds, levels = t, 0, 1
    while rounds < levels:  # each round of Newton's method has the derivatives of one order more
        rest = along(exact)
        exact, levels, rounds = exact - rest / slope, max(levels, open_levels(rest)), rounds + 1
    return with_derivative_of(t, exact)


def crossing_of(g, sol, t):
    along = lambda t: np.reshape(as_float_array(g(t, sol(t))), ())
    return crossing(along, value(grad(Const(lambda t: along(t)))(t)), t)


def at_events(found, events: list, sol) -> None:
    """t_events and y_events."""
    times = [[crossing_of(g, sol, t) for t in ts] for g, ts in zip(events, found.t_events, strict=True)]
    pairs = zip(times, found.y_events, strict=True)
    found.y_events = [
        np.stack([with_derivative_of(y, sol(t)) for t, y in zip(ts, ys, strict=True)]) if ts else ys
        for ts, ys in pairs
    ]
    found.t_events = [np.stack(ts) if ts else t for ts, t in zip(times, found.t_events, strict=True)]


# --- the call ---


@contextmanager
def advancing_steps() -> Iterator:
    """Name the cause where SciPy refuses an interpolant of steps that no longer advance, as LSODA's may."""
    try:
        yield
    except ValueError as error:
        if "`ts` must be strictly" not in str(error):
            raise
        raise ConvergenceError(
            f"{callers_line()}: {NAME}: the steps no longer advance; the solution may blow up"
        ) from error


@dataclass(eq=False)
class IvpCall:
    """One call of solve_ivp, with `args` bound to the functions."""

    fun: Any
    t_span: Any
    y0: Any
    method: Any
    t_eval: Any
    dense_output: Any
    events: list
    vectorized: Any
    args: tuple
    options: dict
    pattern: Any = None  # the places of the entries of the Jacobian, if they are few
    calls: ObservedCalls | None = None  # of an implicit method

    def __post_init__(self) -> None:
        self.jac = self.options.get("jac")
        called = [self.fun, *self.events, *([self.jac] if callable(self.jac) else [])]
        self.functions = [ComposedFunction(with_arguments, f, *self.args) for f in called]

    def look_for_pattern(self) -> None:
        """Find the places of the entries of the Jacobian of an implicit method."""
        y0 = as_float_array(bare(self.y0))
        if self.options.get("jac_sparsity") is not None:
            self.pattern = sparse.csr_array(bare(self.options["jac_sparsity"]))
            self.pattern.sort_indices()
        elif self.method not in EXPLICIT and dtype(y0).kind == "f" and y0.size >= SPARSE_STATES:
            with on_plain_values(self.functions[0], arrays_only=False) as (_, (fun,)), changed(depth=0):
                right = RightSide(fun, False, self.vectorized, False)
                self.pattern = right.pattern(bare(self.t_span)[0], y0)
        if self.pattern is not None and self.jac is None and self.method is not itg.LSODA:
            self.options = {**self.options, "jac_sparsity": self.pattern}

    def run(self, fun, *functions) -> tuple:
        """SciPy's result, and its steps. The functions take and return plain values."""
        records = []
        explicit, count = self.method in EXPLICIT, len(self.events)
        options = (
            {**bare(self.options), "jac": functions[count]} if len(functions) > count else bare(self.options)
        )
        if not explicit:
            fun = self.calls = ObservedCalls(fun)
        with advancing_steps():
            found = itg.solve_ivp(
                fun, bare(self.t_span), bare(self.y0), method=recorder(self.method,
                records, self.whole) if explicit else self.method,
                t_eval=bare(self.t_eval), dense_output=self.dense_output or not explicit,
                events=[as_event(of, g) for of, g in zip(functions, self.events, strict=False)] or None,
                vectorized=self.vectorized, **options,
            )  # fmt: skip
        if not explicit:
            if not found.sol.n_segments:
                return found, self.no_step()
            if hasattr(found.sol.interpolants[0], "D"):  # of BDF
                return found, multistep_steps(found.sol.interpolants, as_float_array(bare(self.y0)))
            return found, collocation_steps(found)
        return found, explicit_steps(self.method, records) if records else self.no_step()

    def no_step(self) -> Steps:
        """Of an interval without length, or where the first step has failed."""
        t, (y,) = plain_np.full(2, float(bare(self.t_span)[0])), all_real(as_float_array(bare(self.y0)))
        still = plain_np.zeros((1, 1))
        return Steps(t, plain_np.stack([y, y]), t[:1, None], y[None, None], None, still[None], still, still)

    def searched(self) -> tuple:
        """SciPy's result where the functions alter something: what they keep has no derivative."""
        given = holds_tracked(self.t_span)
        with Search(NAME, self.args, moves=holds_tracked(self.t_span, self.y0)) as search:
            return self.run(*[search.of(f, 0 if given else 1, 2) for f in self.functions])

    def result(self):
        altered = True
        tracked = holds_tracked(self.t_span, self.y0, self.t_eval, self.args)
        with Attempt(BatchError, ConvergenceError) as tried:
            self.look_for_pattern()
            with on_plain_values(*self.functions) as (shadow, plain):
                watched = [PlainFunction(f.run) for f in plain]
                with changed(depth=0):
                    found, steps = self.run(*watched)
                tracked = tracked or shadow.found or any([f.tracked for f in watched])
                altered = shadow.altered() or bool(shadow.written() and not tracked)
        tracked = tracked or tried.failed  # by the user's error: it is raised again
        if altered:
            found, steps = self.searched()
        times = self.t_eval
        if OPEN.of_one and found.status == -1 and times is not None and len(found.t) < len(bare(times)):
            raise ConvergenceError(
                f"{callers_line()}: {NAME} ended at t = {steps.ends[-1]:.6g}: {found.message} Under vmap, "
                "and in a recording, a result has all times of t_eval"
            )
        if not steps.states.size or not (tracked or self.dense_output):
            found.sol = found.sol if self.dense_output else None
            return found
        count_work(self.fun, found.nfev, steps.states.shape[1])
        solved = SolvedSteps(steps, Span(steps.ends, self.t_span, found.status == 0), as_float_array(self.y0))
        of = lambda f, in_order=altered: RightSide(f, solved.mixed, self.vectorized, in_order)
        with on_plain_values(*self.functions, arrays_only=False) as (shadow, (fun, *_)):
            if tracked:
                equations = solved.linearized(of(fun), self.pattern)
            else:
                solved.evaluate(of(fun))
            written = shadow.written()
            if tracked and self.calls is not None:
                self.calls.check_again(of(fun), equations, steps)
            keeps = altered or (written and not is_scratch(of(fun), written, steps))
        with once_more(*self.functions, arrays=not (altered or written)) as (fun, *events):
            if tracked:
                solved.differentiate(of(fun), equations, self.asked(solved, found.t, keeps))
                solved.carry_on(of(fun))
            if not (altered or written):
                return self.differentiable(found, solved, events)
        with once_more(*self.functions) as (fun, *events):  # for what it writes and keeps
            at = slice(None if keeps else -1, None)
            Y = np.reshape(steps.stages(solved.states, solved.K, at), (-1, solved.states.shape[1]))
            of(fun, True)(steps.T.reshape(-1)[at], Y[at])
            return self.differentiable(found, solved, events)

    @property
    def whole(self) -> bool:
        """Is the state asked for at times that are not known yet?"""
        return bool(self.dense_output or self.events)

    def asked(self, solved: SolvedSteps, times, keeps):
        """Return the steps within which states are asked for. `keeps`: those that f keeps count, too."""
        if self.whole or keeps:
            return solved.asked
        within = [] if self.t_eval is None else solved.span.steps_of(times)
        return plain_np.unique([*within, solved.asked[-1]])

    def differentiable(self, found, solved: SolvedSteps, events: list):
        """SciPy's result with its derivatives."""
        times, states, sol = solved.span.ends(), solved.ends(), solved.sol()
        whole = sol if found.sol is None else ShiftedSolution(found.sol, sol)
        if self.dense_output and holds_tracked(self.t_span) and solved.steps.ends[0] == solved.steps.ends[-1]:
            raise SingularError(
                f"{callers_line()}: {NAME}: dense_output= over an empty interval has no derivative with "
                "respect to the ends of t_span; leave it away, and read result.y"
            )
        events = events[: len(self.events)]
        was = found.t_events
        count = len(found.t)
        if events:
            at_events(found, events, sol if self.method in EXPLICIT else whole)
        if found.status == 1:
            far = max if times_ascend(solved.steps.ends) else min
            last = far([t for ts in was for t in ts])
            end = next(
                t[k]
                for t, ts in zip(found.t_events, was, strict=True)
                for k in range(len(ts))
                if ts[k] == last
            )
            times = np.concatenate([times[: count - 1], np.reshape(end, 1)])
            states = np.concatenate([states[: count - 1], sol(end)[None]])
        if self.t_eval is None:
            found.t = times[:count] if holds_tracked(times) else found.t
            found.y = with_derivative_of(found.y, np.transpose(states[:count]))
        elif count:
            found.t = self.t_eval[:count] if holds_tracked(self.t_eval) else found.t
            found.y = with_derivative_of(found.y, sol(found.t))
        found.sol = whole if self.dense_output else None
        return found


FLOATS = frozenset((float, plain_np.float64))


class PlainFunction:
    """A function whose results are plain."""

    def __init__(self, f):
        self.f, self.tracked, self.called = f, False, False

    def __call__(self, *args):
        y = self.f(*args)
        if type(y) is list and FLOATS.issuperset(map(type, y)):
            y = plain_np.array(y)
        elif type(y) is not plain_np.ndarray or y.dtype.kind not in "fc":
            self.tracked = self.tracked or holds_tracked(y)
            y = bare(y)
        if not self.called:
            self.called = True
            if plain_np.isnan(y).any():  # SciPy would look for the first step without an end
                raise ConvergenceError(
                    f"{callers_line()}: {NAME}: a function gives nan at the start, t = {args[0]}"
                )
        return y


def with_arguments(f, *args):
    return lambda t, y: f(t, y, *args)


def solve_ivp(
    fun,
    t_span,
    y0,
    method="RK45",
    t_eval=None,
    dense_output=False,
    events=None,
    vectorized=False,
    args=None,
    **options,
):
    args = () if args is None else tuple(args)
    if holds_tracked(options):
        raise refusal_text(NAME, "by its tolerances and steps", "plain numbers for them")
    if hasattr(method, "continuous_adjoint"):
        more = dense_output or events is not None or vectorized
        return solve_with_adjoint(fun, t_span, y0, method.continuous_adjoint, t_eval, more, args, options)
    chosen = METHODS.get(method, method)
    if chosen not in METHODS.values():
        raise refusal_text(f"{NAME}(method={method!r})", "", f"one of {[*METHODS]}")
    crossed = [] if events is None else [events] if callable(events) else [*events]
    return IvpCall(fun, t_span, y0, chosen, t_eval, dense_output, crossed, vectorized, args, options).result()
