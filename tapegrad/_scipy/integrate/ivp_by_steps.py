"""scipy.integrate.solve_ivp by its own steps: SciPy finds them on plain values, then the method is run again
on these steps.

A step of an explicit method is a function of the state and of the parameters, and the derivative is that of
all of them in order: exact for the numbers that were computed.  An implicit method has the derivative of
Radau's on the same steps.  The lengths of the steps are no variables, but for the ends of the interval, which
scale all of them."""

from typing import Any

import numpy as plain_np
import scipy.integrate as itg

from ... import numpy as np
from ..._core.errors import ConvergenceError, GuardError, callers_line
from ..._core.primitive import primal_of
from ..._core.trees import Const
from ..._transforms.rebind import once_more
from ..._transforms.transforms import grad, jacobian
from ...ops.declare import ndim, shape
from ..namespaces import Carrier, as_float_array, bare, holds_tracked, refusal_text
from ..optimize.callback_search import Search
from .ivp_adjoint import solve_with_adjoint as by_adjoint


class StepSequence:
    """The interval, cut as SciPy cut it."""

    def __init__(self, times: Any, t_span: Any, whole: bool = True):
        """`whole`: does it reach the end?  Else the steps move with the beginning."""
        self.plain = plain_np.asarray(times)
        self.times: Any = self.plain
        if holds_tracked(t_span):
            a, b = t_span
            share = (self.plain - self.plain[0]) / (self.plain[-1] - self.plain[0])
            self.times = a + (b - a) * share if whole else a + (self.plain - self.plain[0])
        self.count = len(self.plain) - 1

    def of(self, t: Any) -> Any:
        """The number of the step in which each time lies."""
        v, ts = primal_of(t), self.plain
        if ts[-1] >= ts[0]:
            at = np.searchsorted(ts, v, side="left")
        else:
            at = len(ts) - np.searchsorted(ts[::-1], v, side="right")
        return np.clip(at - 1, 0, self.count - 1)


class Solution(Carrier):
    """`sol` of the result: the interpolant of each step, (steps, powers, n)."""

    def __init__(self, steps: StepSequence, starts: Any, parts: Any, rule: Any):
        self.steps, self.starts, self.parts, self.rule = steps, starts, parts, rule
        self.ts = steps.plain
        self.t_min, self.t_max = float(min(self.ts[0], self.ts[-1])), float(max(self.ts[0], self.ts[-1]))

    def _tracked(self) -> bool:
        return holds_tracked(self.starts, self.parts, self.steps.times)

    def _plain(self) -> Any:
        return self

    def __call__(self, t):
        t = as_float_array(t, next((x for x in (t, self.starts, self.parts) if holds_tracked(x)), self.starts))
        flat = np.reshape(t, -1)
        at = self.steps.of(flat)
        first, last = np.take(self.steps.times, at), np.take(self.steps.times, at + 1)
        h = last - first
        y = self.rule((flat - first) / h, h, np.take(self.parts, at, 0)) + np.take(self.starts, at, 0)
        return np.transpose(y) if ndim(t) else y[0]


def interpolant_step(x: Any, h: Any, Q: Any) -> Any:
    """h sum_k Q[k] x^(k + 1)."""
    y = 0.0
    for k in range(shape(Q)[1] - 1, -1, -1):
        y = (y + Q[:, k]) * x[:, None]
    return h[:, None] * y


def hairer(x: Any, h: Any, F: Any) -> Any:
    """Multiplied by x and by 1 - x in turn, from the last."""
    y, x = 0.0, x[:, None]
    for i in range(shape(F)[1]):
        y = (y + F[:, shape(F)[1] - 1 - i]) * (x if i % 2 == 0 else 1 - x)
    return y


IMPLICIT = {"Radau": itg.Radau, "BDF": itg.BDF, "LSODA": itg.LSODA}
METHODS = {"RK23": itg.RK23, "RK45": itg.RK45, "DOP853": itg.DOP853}


def combined(weights: Any, stages: list) -> Any:
    """sum_k weights[k] stages[k]"""
    used = [k for k, w in enumerate(weights) if w]
    if not used:
        return 0.0
    return np.asarray(weights[used]) @ np.stack([stages[k] for k in used]) if len(used) > 1 else weights[used[0]] * stages[used[0]]


def retraced(fun: Any, steps: StepSequence, y0: Any, method: Any, dense: bool) -> tuple:
    """(states at the ends of the steps, Solution or None)."""
    A, B, C = method.A, method.B, method.C
    y, f = y0, fun(steps.times[0], y0)
    states, parts = [y], []
    for k in range(steps.count):
        t, h = steps.times[k], steps.times[k + 1] - steps.times[k]
        stages = [f]
        for s in range(1, len(C)):
            stages.append(fun(t + C[s] * h, y + combined(A[s][:s], stages) * h))
        new = y + h * combined(B, stages)
        f = fun(steps.times[k + 1], new)
        stages.append(f)
        if dense and method is itg.DOP853:
            parts.append(of_dop853(fun, t, h, y, new, stages, method))
        elif dense:
            parts.append(np.stack([combined(column, stages) for column in method.P.T]))
        y = new
        states.append(y)
    if not dense:
        return states, None
    return states, Solution(steps, np.stack(states[:-1]), np.stack(parts), hairer if method is itg.DOP853 else interpolant_step)


GROWTH = 1e3  # a step multiplies what two runs differ by, by less


def matches_solver(states: list, theirs: Any) -> None:
    """Is what was computed again what SciPy computed?  A function that goes by something that it alters
    itself (a count, a flag, a random generator) has given other slopes.  Rounding grows from step to step
    where the equation is chaotic, but does not leap."""
    least = 1e5 * plain_np.finfo(theirs.dtype).eps * float(abs(theirs).max(initial=0.0))
    off = 0.0
    for ours, y in zip(states, theirs, strict=False):
        now = float(abs(bare(ours) - y).max(initial=0.0))
        if now > GROWTH * off + least:
            raise GuardError(
                f"{callers_line()}: {NAME}: called again for the derivative, the function gave other values: it goes by something that "
                "changes from call to call (a count, a flag, its last result, a random generator); make it a function of t and y, and end "
                "the interval by a terminal event where a switch is thrown"
            )
        off = now


def of_dop853(fun: Any, t: Any, h: Any, y: Any, new: Any, stages: list, method: Any) -> Any:
    stages = list(stages)
    for a, c in zip(method.A_EXTRA, method.C_EXTRA, strict=True):
        stages.append(fun(t + c * h, y + combined(a[: len(stages)], stages) * h))
    change, first, last = new - y, stages[0], stages[len(method.C)]
    low = [change, h * first - change, 2 * change - h * (last + first)]
    return np.stack([*low, *[h * combined(d, stages) for d in method.D]])


# --- implicit methods: the value is SciPy's, the derivative that of Radau's method of the order 5 on SciPy's steps ---

ROOT6 = 6**0.5
NODES = plain_np.array([(4 - ROOT6) / 10, (4 + ROOT6) / 10, 1.0])
VANDER = NODES[:, None] ** plain_np.arange(1, 4)  # c^k, k = 1, 2, 3
# the integrals to the nodes of the polynomials that are 1 at one node: exact for 1, s, s^2
WEIGHTS = VANDER / plain_np.arange(1, 4) @ plain_np.linalg.inv(NODES[:, None] ** plain_np.arange(3))
# of Newton's method with a constant matrix: each has the derivatives of one order more
STEP_NEWTON_ROUNDS = 3


def stages_of(fun: Any, t: Any, h: Any, y: Any, Z: Any) -> Any:
    """h times the slopes at the three nodes, put together: what Z is at the solution."""
    slopes = np.stack([fun(t + c * h, y + Z[i]) for i, c in enumerate(NODES)])
    return h * (WEIGHTS @ slopes)


def newton_matrix(fun: Any, t: Any, h: Any, y: Any) -> Any:
    J = plain_np.atleast_2d(bare(jacobian(Const(lambda v: fun(t, v)))(y)))
    n = len(y)
    return plain_np.linalg.inv(plain_np.eye(3 * n) - h * plain_np.kron(WEIGHTS, J)).reshape(3, n, 3, n)


def one_step(fun: Any, t: Any, h: Any, y: Any) -> Any:
    """The stages, (3, n): solved on plain values, then as a function of y and of what fun holds."""
    t0, h0, y0 = bare(t), bare(h), bare(y)
    inverse = newton_matrix(fun, t0, h0, y0)
    on = lambda t, y: bare(fun(t, y))
    Z = plain_np.zeros((3, len(y0)), y0.dtype)
    size = plain_np.inf
    for _ in range(50):
        d = plain_np.tensordot(inverse, bare(stages_of(on, t0, h0, y0, Z)) - Z, 2)
        now = float(plain_np.max(plain_np.abs(d), initial=0.0))
        if not now < size:
            break
        Z, size = Z + d, now
    if not size <= 1e-6 * max(1.0, float(plain_np.max(plain_np.abs(y0), initial=0.0))):
        raise ConvergenceError(f"scipy.integrate.solve_ivp: the equations of a step at t = {t0:.6g} were not solved")
    flat = plain_np.reshape(inverse, (Z.size, Z.size))
    for _ in range(STEP_NEWTON_ROUNDS):
        rest = stages_of(fun, t, h, y, Z) - Z
        Z = Z + np.reshape(flat @ np.reshape(rest, -1), shape(Z))
    return Z


def retraced_implicitly(fun: Any, steps: StepSequence, y0: Any) -> tuple:
    states, parts = [y0], []
    back = plain_np.linalg.inv(VANDER)
    for k in range(steps.count):
        t, h = steps.times[k], steps.times[k + 1] - steps.times[k]
        Z = one_step(fun, t, h, states[-1])
        parts.append((back @ Z) / h)
        states.append(states[-1] + Z[2])
    return states, Solution(steps, np.stack(states[:-1]), np.stack(parts), interpolant_step)


class ShiftedSolution(Carrier):
    """SciPy's values, with the derivatives of another solution near it."""

    def __init__(self, theirs: Any, ours: Solution):
        self._theirs, self._ours = theirs, ours
        self.ts, self.t_min, self.t_max = theirs.ts, theirs.t_min, theirs.t_max

    def _tracked(self) -> bool:
        return self._ours._tracked()

    def _plain(self) -> Any:
        return self._theirs

    def __call__(self, t):
        y = self._ours(t)
        return self._theirs(bare(t)) + (y - primal_of(y))


# --- events: the time at which g(t, y(t)) = 0, by the theorem of implicit functions ---


def as_event(plainly: Any, g: Any) -> Any:
    """With the settings of g as SciPy reads them."""
    plainly.terminal, plainly.direction = getattr(g, "terminal", None), getattr(g, "direction", 0)
    return plainly


class Event:
    def __init__(self, g: Any, args: tuple):
        self.g, self.args = g, args

    def crossing(self, sol: Any, t: float) -> Any:
        """The time t, found by SciPy, as a function of what the solution and g hold: each step has the
        derivatives of one order more."""
        along = lambda t: np.reshape(as_float_array(self.g(t, sol(t), *self.args)), ())
        slope = float(bare(grad(Const(lambda t: along(t)))(t)))
        if slope == 0:
            raise refusal_text(f"{NAME}(events=)", "the solution touches what it should cross", "an event that is crossed")
        exact: Any = plain_np.float64(t)
        for _ in range(STEP_NEWTON_ROUNDS):
            exact = exact - along(exact) / slope
        return t + (exact - primal_of(exact))


def at_events(found: Any, events: list, sol: Any) -> None:
    """t_events and y_events, and the end where an event has ended it."""
    times = [[e.crossing(sol, float(t)) for t in ts] for e, ts in zip(events, found.t_events, strict=True)]
    found.y_events = [np.stack([sol(t) for t in ts]) if ts else y for ts, y in zip(times, found.y_events, strict=True)]
    found.t_events = [np.stack(ts) if ts else t for ts, t in zip(times, found.t_events, strict=True)]


NAME = "scipy.integrate.solve_ivp"


def solve_by_steps(fun, t_span, y0, method, t_eval, dense_output, events, vectorized, args, options):
    chosen = METHODS.get(method, IMPLICIT.get(method, method))
    explicit = chosen in METHODS.values()
    if not hasattr(method, "continuous_adjoint") and not explicit and chosen not in IMPLICIT.values():
        raise refusal_text(f"{NAME}(method={method!r})", "", f"one of {[*METHODS, *IMPLICIT]}")
    if holds_tracked(options):
        raise refusal_text(NAME, "by its tolerances and steps", "plain numbers for them")
    args = () if args is None else tuple(args)
    if hasattr(method, "continuous_adjoint"):
        return by_adjoint(fun, t_span, y0, method, t_eval, dense_output, events, vectorized, args, options)
    crossed = [] if events is None else [events] if callable(events) else [*events]
    span, start = holds_tracked(t_span), holds_tracked(t_span, y0)
    with Search(NAME, args, moves=start) as search:
        of = lambda f: search.of(lambda t, y, *_: f(t, y, *args), 0 if span else 1, 2)
        settings = {k: search.of(v, 0 if span else 1, 2) for k, v in bare(options).items()}
        found = itg.solve_ivp(
            of(fun), bare(t_span), bare(y0), method=chosen, t_eval=None if explicit else bare(t_eval),
            dense_output=not explicit or dense_output or t_eval is not None or bool(crossed),
            events=[as_event(of(g), g) for g in crossed] or None, vectorized=vectorized, **settings,
        )  # fmt: skip
    with once_more(fun, *crossed) as (fun, *crossed):
        return differentiable_solution(
            found, fun, t_span, as_float_array(y0), chosen if explicit else None, t_eval, dense_output, crossed, vectorized, args
        )


def differentiable_solution(found, fun, t_span, y0, explicit, t_eval, dense_output, crossed, vectorized, args):
    """SciPy's result with its derivative.  `explicit`: the method, if it is."""
    watch = [Event(g, args) for g in crossed]
    if vectorized:
        on = lambda t, y: np.reshape(as_float_array(fun(t, np.reshape(y, (-1, 1)), *args)), -1)
    else:
        on = lambda t, y: as_float_array(fun(t, y, *args))
    ends, last = found.t, found.t[-1]
    if found.sol is not None:  # (an event may end it within the last step)
        ends, last = [found.sol.interpolants[0].t_old, *[part.t for part in found.sol.interpolants]], found.sol.ts[-1]
    steps = StepSequence(ends, t_span, found.status == 0)
    wanted = t_eval is not None
    if explicit:
        states, sol = retraced(on, steps, y0 * 1.0, explicit, dense_output or wanted or bool(watch))
        matches_solver(states, found.y.T if found.status == 0 else found.y.T[:-1])
    else:
        states, sol = retraced_implicitly(on, steps, y0 * 1.0)
    whole = sol if explicit else ShiftedSolution(found.sol, sol)
    times, theirs = steps.times, found.y
    if watch:
        was = found.t_events
        at_events(found, watch, whole)
        if found.status == 1:
            end = next(t[k] for t, ts in zip(found.t_events, was, strict=True) for k in range(len(ts)) if ts[k] == last)
            times, states[-1] = np.concatenate([times[:-1], np.reshape(end, 1)]), whole(end)
    if wanted:
        reached = bare(t_eval)
        forward = found.sol.ts[0] <= last
        count = int((reached <= last).sum() if forward else (reached >= last).sum())
        found.t = t_eval if found.status == 0 else t_eval[:count]
        y = sol(found.t)
    else:
        found.t, y = times, np.stack(states, 1)
    found.y = y if explicit else theirs + (y - primal_of(y))
    found.sol = whole if dense_output else None
    return found
