"""Results of `scipy.integrate.solve_ivp` from its kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as plain_np
import scipy.integrate as itg

from ... import numpy as np
from ..._core.errors import BatchError, KernelError, callers_line
from ..._core.primitive import SAMPLED, has_derivative
from ..._core.scope import OPEN, changed
from ..._transforms.tape import value
from ...implicit.sequential import Call, RaggedArray, RefusedValue, raises
from ...ops.declare import ndim, shape
from ..namespaces import Carrier, as_float_array, bare, holds_tracked, with_derivative_of
from ..optimize.callback_search import ComposedFunction
from ..plain_values import on_plain_values
from .ivp_by_steps import PlainFunction, as_event, carried, with_arguments
from .kernel_events import (
    MOST_CROSSINGS,
    TERMINATED,
    Events,
    VaryingTimes,
    common_value,
    exact_events,
    functions_of_events,
)
from .kernel_steps import MANY_STEPS, AdaptiveSteps, TooManySteps
from .right_side import NAME

SOLVED = itg.solve_ivp(lambda t, y: y, (0.0, 1.0), [0.0], t_eval=[0.0])  # a result, without counts
RESULT = type(SOLVED)
for _name in ("nfev", "njev", "nlu"):
    del SOLVED[_name]
TERMINATION = "A termination event occurred."  # SciPy's message


def events_vary() -> BatchError:
    return BatchError(
        f"{callers_line()}: {NAME} finds another number of events in each sample, so only the first and the "
        "last one can be read, where each sample has some; loop over the samples"
    )


def steps_are_unknown() -> BatchError:
    return BatchError(
        f"{callers_line()}: {NAME} takes another number of steps in each sample and call, so only the first "
        "and the last of its times and states can be read; ask for others by t_eval="
    )


@dataclass(eq=False, repr=False)
class KernelSolution(Carrier):
    """The dense output: a call runs the kernel with these times.

    `event`: the time of the event that has ended the solution. `scipys`: SciPy's solution, which has the
    values, or None."""

    kernel: Any
    theta: Any
    states: int
    way: Any
    event: Any
    scipys: Any

    def _tracked(self) -> bool:
        return holds_tracked(self.theta)

    def _plain(self):
        return self if self.scipys is None or OPEN.hiding else self.scipys

    def __call__(self, t):
        t = as_float_array(t)
        times = np.reshape(t, -1)
        if self.event is not None and bool((self.way * (times - self.event) > 0.0).any()):
            raise BatchError(
                f"{callers_line()}: {NAME}(...).sol(t): a time lies after the event that has ended the steps"
                "; under vmap, and in a recording, such a step is not extended"
            )
        order = np.argsort(self.way * times, kind="stable")
        rows = self.kernel.path(self.theta, times[order])
        if not bool((rows[self.states] == 0.0).all()):
            raise BatchError(f"{callers_line()}: {NAME}(...).sol(t): the steps fail")
        y = rows[: self.states, np.argsort(order)] if ndim(t) else rows[: self.states, 0]
        return y if self.scipys is None else with_derivative_of(self.scipys(t if OPEN.hiding else bare(t)), y)


def slope_of(given: dict) -> Callable:
    """Return the right-hand side of a call as a function (t, y)."""
    fun, args, columns = given["fun"], tuple(given.get("args") or ()), given.get("vectorized")

    def slope(t, y):
        return np.reshape(as_float_array(fun(t, np.reshape(y, (-1, 1)) if columns else y, *args)), shape(y))

    return slope


@dataclass
class KernelSolve:
    """A call of solve_ivp whose kernel is there."""

    given: dict
    kernel: Any
    theta: Any
    y0: Any
    span: tuple
    steps: AdaptiveSteps
    found: Any  # SciPy's result, where it has the values
    ragged: bool  # are only the ends of the result known?
    last_call: Any = None  # the time and the state of SciPy's last call, if it has interpolated at the end

    def __post_init__(self) -> None:
        self.start, self.bound = map(value, self.span)
        self.way = np.where(self.bound < self.start, -1.0, 1.0)
        (self.states,), self.slope = shape(self.y0), slope_of(self.given)
        args = tuple(self.given.get("args") or ())
        events = functions_of_events(self.given.get("events"))
        self.events = [lambda t, y, g=g: np.reshape(as_float_array(g(t, y, *args)), ()) for g in events]

    def path(self, times, end) -> tuple:
        """Return the states at these times and at the end, and what the kernel has counted."""
        rows = self.kernel.states.path(self.theta, np.concatenate([times, np.reshape(end, (1,))]))
        if self.kernel.writes:
            rows, self.last_call = rows[: -1 - self.states], rows[-1 - self.states :, -1]
        status, *counts = value(rows)[self.states :]
        if status[-1] == MANY_STEPS and self.given.get("method") != "LSODA":
            raise TooManySteps
        if status[-1] != 0.0:
            raise KernelError(f"{NAME}: the steps fail")
        if self.given.get("method") == "LSODA" and counts and counts[0][-1] > self.found.nfev:
            raise KernelError(f"{NAME}: stability, and not accuracy, limits the steps of an explicit method")
        return rows[: self.states], counts

    def located(self) -> Events:
        """Return the times of the events."""
        found = self.found
        if not self.events:
            return Events([], self.bound, False)
        if found is None:
            rows = self.kernel.search.path(value(self.theta), plain_np.zeros(MOST_CROSSINGS))
            return Events.of_rows(rows, self.bound, self.way)
        if OPEN.hiding:
            return Events.of_rows(found.rows, self.bound, self.way)
        last = [self.way * ts[-1] for ts in found.t_events if len(ts)]
        end = self.way * max(last) if found.status == 1 else self.bound
        return Events(found.t_events, end, found.status == 1)

    def exact(self, k: int, times) -> tuple:
        """Return the times of an event and the states there, with their derivatives."""
        varying = times if type(times) is VaryingTimes else None
        if varying:
            if not common_value(bool, varying.count > 0.0):
                return RefusedValue(events_vary), RefusedValue(events_vary)
            times = varying.ends(varying.times)
        elif not shape(times)[0]:
            return plain_np.zeros(0), plain_np.zeros(0)
        exact, states = exact_events(self.slope, self.events[k], times, self.path(times, times[-1])[0])
        if self.found is not None:
            theirs = self.found.y_events[k]
            theirs = varying.ends(theirs) if varying else theirs[: shape(times)[0]]
            states = theirs + (states - value(states))
        if varying:
            return RaggedArray(exact, events_vary), RaggedArray(states.T, events_vary, True)
        return exact, states

    def result(self):
        """Return the result of solve_ivp."""
        where = self.located()
        exact = [self.exact(k, times) for k, times in enumerate(where.times)]
        last = None
        if where.terminated:
            ended = [pair for pair in exact if not raises(pair[0]) and len(pair[0])]
            last = next([v[-1] for v in pair] for pair in ended if value(pair[0][-1]) == where.end)
        theirs = self.found is not None and not OPEN.hiding
        result = self.of_scipy(where, last) if theirs else self.of_kernel(where, last)
        if self.events:
            result.t_events, result.y_events = map(list, zip(*exact, strict=True))
        if where.terminated:
            result.status, result.message = 1, TERMINATION
        if self.ragged:
            result.t, result.y = [RaggedArray(x, steps_are_unknown) for x in (result.t, result.y)]
        if self.given.get("dense_output"):
            self.kernel.states.settle()
            event, scipys = where.end if where.terminated else None, self.found and self.found.sol
            result.sol = KernelSolution(self.kernel.states, self.theta, self.states, self.way, event, scipys)
        return result

    def times(self, where: Events):
        """Return the times of the result that lie before its end."""
        times = as_float_array(self.given["t_eval"])
        self.check(times)
        if where.terminated:
            times = times[: int((self.way * (value(times) - where.end) <= 0.0).sum())]
        return times

    def of_kernel(self, where: Events, last: list | None):
        """Return the result of a kernel. Where SciPy's solution is an instruction, that has the values.

        `last`: the time and the state of a last event."""
        if self.ragged and last is not None:
            return RESULT(SOLVED, t=np.stack([self.span[0], last[0]]), y=np.stack([self.y0, last[1]], 1))
        times = self.times(where)
        states, counts = self.states_at(times, where.end)
        if self.found is not None:
            states = self.found.y[:, : shape(times)[0]] + (states - value(states))
        more = {} if OPEN.hiding else {"nfev": self.steps.evaluations(counts), "njev": 0, "nlu": 0}
        return RESULT(SOLVED | more, t=1.0 * times, y=states)

    def of_scipy(self, where: Events, last: list | None):
        """Return SciPy's result with the derivatives of its times and states."""
        found = self.found
        if self.given.get("t_eval") is None:
            inner = found.t[1:-1]
            y, _ = self.path(inner, where.end)
            final, state = last or (self.span[1], self.at_bound(y[:, -1]))
            found.t = np.concatenate([np.reshape(self.span[0], (1,)), inner, np.reshape(final, (1,))])
            states = np.concatenate([self.y0[:, None], y[:, :-1], state[:, None]], 1)
            self.write_last(y, False)
        else:
            times = self.times(where)
            found.t = 1.0 * times
            states, _ = self.states_at(times, where.end)
        found.y = found.y + (states - value(states))
        return found

    def states_at(self, times, end) -> tuple:
        """Return the states at the times of the result, and what the kernel has counted."""
        y, counts = self.path(value(times) if self.ragged else times, end)
        inside = 0.0
        if self.given.get("method") == "DOP853" and not self.ragged and shape(times)[0]:
            inside = self.way * (value(times)[-1] - counts[1][-1])
        self.write_last(y, inside > 0.0)
        return np.stack([self.y0, self.at_bound(y[:, -1])], 1) if self.ragged else y[:, :-1], counts

    def at_bound(self, y):
        """Return the state at the end of the interval, which may be tracked."""
        bound = self.span[1]
        return carried(self.slope, value(bound), y, bound) if has_derivative(bound) else y

    def check(self, times) -> None:
        """Raise if these times of the result are not valid."""
        ends = np.concatenate([[self.start], value(times), [self.bound]])
        lengths = self.way * (ends[1:] - ends[:-1])
        if ndim(times) != 1 or bool((lengths < 0.0).any() | (lengths[1:-1] <= 0.0).any()):
            raise KernelError(f"{NAME}: the times of t_eval are not in order")

    def write_last(self, y, interpolates) -> None:
        """Let the right-hand side write what its last call leaves.

        `interpolates`: is there a stage for an interpolant of the last step?"""
        if self.kernel.writes:
            t, state = self.last_call[0], self.last_call[1:]
            self.slope(np.where(interpolates, t, self.bound), np.where(interpolates, state, y[:, -1]))


def by_scipy(given: dict):
    """Return SciPy's result on plain values. Where values are hidden, it is one instruction."""
    if not OPEN.hiding:
        return solved_by_scipy(**given)
    replayed = not all([t.visibility == SAMPLED for t in OPEN.hiding])
    call = Call(NAME, solved_by_scipy, (), given | {"hidden": True}, replayed)
    call.constant = True
    return call.result()


def solved_by_scipy(fun, args=None, events=None, hidden=False, **options):
    """Return SciPy's result on plain values, with shapes that do not depend on values if they are
    `hidden`."""
    events = functions_of_events(events)
    functions = [ComposedFunction(with_arguments, f, *(args or ())) for f in (fun, *events)]
    with on_plain_values(*functions) as (_, (plain, *crossed)), changed(depth=0):
        crossed = [as_event(PlainFunction(f.run), g) for f, g in zip(crossed, events, strict=True)]
        found = itg.solve_ivp(PlainFunction(plain.run), events=crossed or None, **bare(options))
    if found.status < 0:
        raise KernelError(f"{NAME}: {found.message}")
    return of_fixed_shapes(found, bare(options)) if hidden else found


def of_fixed_shapes(found, options: dict):
    """Return SciPy's result with zeros behind the states and the events, and with its events as rows.

    The rows are those of a `CrossingSearch`."""
    bound, n = options["t_span"][1], len(options["y0"])
    y = plain_np.zeros((n, len(options["t_eval"])))
    y[:, : len(found.t)] = found.y
    times, crossed, states = [], [], []
    for ts, ys in zip(found.t_events or (), found.y_events or (), strict=True):
        left = MOST_CROSSINGS - len(ts)
        if left < 0:
            raise KernelError(f"{NAME}: too many events")
        times.append(plain_np.pad(ts, (0, left)))
        crossed.append(plain_np.pad(plain_np.ones(len(ts)), (0, left)))
        states.append(plain_np.pad(plain_np.reshape(ys, (-1, n)), ((0, left), (0, 0))))
    ended = found.status == 1
    end, way = bound, plain_np.sign(bound - options["t_span"][0])
    if ended:
        end = max([ts[-1] for ts in found.t_events if len(ts)], key=lambda t: way * t)
    last = [plain_np.full(MOST_CROSSINGS, v) for v in (TERMINATED if ended else 0.0, bound, end)]
    rows = plain_np.stack([*times, *crossed, *last])
    counts = {"nfev": float(found.nfev), "njev": float(found.njev)}
    return RESULT(SOLVED | counts, y=y, rows=rows, y_events=states, sol=found.sol)
