"""Adaptive steps from one saved time to the next, as the step of a kernel.

The derivative is that of the accepted steps with their sizes held constant: sizes, errors and counts pass
through `tapegrad.value`. A saved time is the end of a step. The times of the steps do not move. Where the
ends of an interval carry derivatives, a step of size zero at each end does: it is taken from the end as given
to its plain value, or back. So derivatives by the times are slopes there, also where f jumps.

The step control is proportional and integral in the logarithm of the error: the size changes by the powers
-1/8 of the error and 1/16 of the one before, or by -1/4 after a rejection. These are square roots."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._transforms.tape import value
from ..kernels import while_loop
from ..kernels.trace.loops import while_loop_in_segments
from ..kernels.trace.symbolic import Sym
from ..kernels.trace.tracing import components_differ
from ._events import LOOKAHEAD, EventSearch, EventState, Step, TracedEvent, empty_slots

SAFETY, LEAST, MOST = 0.9, 0.2, 10.0  # factors of the size of a step
STRETCH = 1.01  # a step this much longer still ends at the saved time
LEAST_ROOT = 1e-4**0.125
# squares, relative to the tolerance; the second is that of a step that is not finite
SMALLEST_ERROR, NO_ERROR = 1e-20, 1e60
# the status of a trajectory
STEPS_DONE, STEP_LIMIT, TOO_SMALL, NOT_FINITE, TOO_MANY_EVENTS, STIFF = 0.0, 1.0, 2.0, 3.0, 4.0, 6.0
ENDED, BEYOND_END = -1.0, -2.0  # the status after a terminal event: in its interval, and in later ones
LEFT_OUT = -3.0  # the status of a trajectory that another method solves
UNTRIED = -4.0  # the status before the only step of an empty interval
STIFF_STEPS = 15.0  # as many steps at the bound of stability, less half of the others, are stiff
EPSILON = float(np.finfo(float).eps)


def chosen(condition, x, y):
    """Return `numpy.where` in a kernel, and else one of the two as it is."""
    return np.where(condition, x, y) if isinstance(condition, Sym) else x if condition else y


class StepControl(NamedTuple):
    """Tolerances and bounds of the steps."""

    rtol: float
    atol: Any
    first: float  # 0: chosen
    most_steps: int
    detects: bool = False  # whether a stiff or too long trajectory ends with the status STIFF

    def error(self, error, y, new):
        """Return the mean square of the error relative to the tolerance."""
        before, after = np.abs(y), np.abs(new)
        scaled = error / (self.atol + self.rtol * np.where(after > before, after, before))
        return (scaled * scaled).sum() * (1.0 / len(y))

    def first_size(self, y, slope, length):
        """Return a size for the first step: a hundredth of the time in which y changes by itself."""
        if self.first:
            return self.first
        scale = self.atol + self.rtol * np.abs(y)
        a, b = [np.sqrt(((x / scale) ** 2).sum() / len(y)) for x in (y, slope)]
        guess = np.where((a < 1e-5) | (b < 1e-5), 1e-6, 0.01 * a / b)
        return np.where(guess > 0.0, guess, length)  # nan is not above 0


@components_differ
class Progress(NamedTuple):
    """What a trajectory carries from step to step; `at` is the part of the interval that is done."""

    at: Any
    y: Any
    slope: Any  # an empty tuple between intervals
    size: Any  # of the next step
    last_root: Any  # of the error before, its 8th root
    accepted: Any
    rejected: Any
    status: Any
    stiff: Any  # the number of steps at the bound of stability
    events: Any  # an EventState, or an empty tuple


class Interval:
    """The steps of one trajectory from one time to the next, in segments if they may be many."""

    def __init__(self, take: Callable, f: Callable, control: StepControl, search, limits, moves: bool):
        start, end = limits[0], limits[1]
        self.take, self.f, self.control, self.search, self.moves = take, f, control, search, moves
        self.a, self.b = value(start), value(end)
        self.length, self.way = np.abs(self.b - self.a), np.where(self.b < self.a, -1.0, 1.0)
        self.by_start, self.by_end = start - self.a, end - self.b  # zero, with a derivative

    def moved(self, c: Progress):
        """Return zero, with the derivative of the time of an event that has changed the state there."""
        return np.where(c.at == c.events.base, c.events.shift, 0.0) if self.search else 0.0

    def reached(self, c: Progress):
        """Return the time that is reached, with its derivative."""
        by_start = np.where(c.accepted + c.rejected == 0.0, self.by_start, self.moved(c))
        by_end = (c.at >= self.length) & (self.length > 0.0)
        return self.a + self.way * c.at + np.where(by_end, self.by_end, by_start)

    def moved_state(self, t, y, change):
        """Return the state after a step from t whose size is zero, with a derivative."""
        return self.take(self.f, t, y, self.f(t, y), change)[0] if self.moves else y

    def at_the_end(self, c: Progress, before) -> Progress:
        """Return what is carried, the state at the end as that at the end as given; `before`: was the end
        reached before?"""
        there = (c.at >= self.length) & ~before
        return c._replace(y=chosen(there, self.moved_state(self.b, c.y, self.by_end), c.y))

    def advanced(self, c: Progress) -> Progress:
        """Try a step; return what is carried after it."""
        control = self.control
        ends, moved = c.at + STRETCH * c.size >= self.length, self.moved(c)
        taken = np.where(ends, self.length - c.at, c.size)
        h = self.way * taken - moved
        t = self.a + self.way * c.at + moved
        new, error, new_slope, bound = self.take(self.f, t, c.y, c.slope, h)
        square = value(control.error(error, c.y, new))
        if self.search:
            values = self.search.values(t + h, new)
            square = np.where(np.isfinite(values.sum()), square, NO_ERROR)
        good = square <= 1.0
        square = np.where(square < NO_ERROR, square, NO_ERROR)  # nan is not below it
        square = np.where(square > SMALLEST_ERROR, square, SMALLEST_ERROR)
        root = np.sqrt(np.sqrt(np.sqrt(np.sqrt(square))))
        inverse = 1.0 / root
        change = np.where(good, np.sqrt(c.last_root), inverse) * inverse
        next_size = taken * np.clip(SAFETY * change, LEAST, np.where(good, MOST, 1.0))
        next_size = np.where(good & ends, np.maximum(c.size, next_size), next_size)
        accepted, rejected = c.accepted + np.where(good, 1.0, 0.0), c.rejected + np.where(good, 0.0, 1.0)
        small = ~good & (next_size <= 16.0 * EPSILON * np.abs(self.a + self.way * c.at))
        status = np.where(small, np.where(square < NO_ERROR, TOO_SMALL, NOT_FINITE), STEPS_DONE)
        stiff = c.stiff
        if control.detects:
            stiff = np.where(value(bound) > 1.0, stiff + 1.0, np.maximum(stiff - 0.5, 0.0))
            status = np.where(stiff >= STIFF_STEPS, STIFF, status)
        over = (accepted + rejected >= control.most_steps) & ~(good & ends)
        after = Progress(
            np.where(good, np.where(ends, self.length, c.at + taken), c.at),
            chosen(good, new, c.y),
            chosen(good, new_slope, c.slope),
            next_size,
            np.where(good, np.maximum(root, LEAST_ROOT), c.last_root),
            accepted,
            rejected,
            np.where(over & (status == STEPS_DONE), STIFF if control.detects else STEP_LIMIT, status),
            stiff,
            c.events,
        )
        return (
            self.searched(Step(self.take, self.f, t, c.y, c.slope, h), c, after, values, good)
            if self.search
            else after
        )

    def searched(self, step: Step, before: Progress, after: Progress, values, good) -> Progress:
        """Return what is carried after the events of a step."""
        state, (cut, ended, full, h, y, slope) = self.search.taken(
            step, before.events, values, good & (value(step.h) != 0.0)
        )
        at = np.where(cut, before.at + np.abs(value(h)), after.at)
        moved = step.t + h
        status = np.where(ended, ENDED, np.where(full, TOO_MANY_EVENTS, after.status))
        return after._replace(
            at=at,
            y=chosen(cut, y, after.y),
            slope=chosen(cut, slope, after.slope),
            status=status,
            events=state._replace(
                base=np.where(cut, at, state.base), shift=np.where(cut, moved - value(moved), state.shift)
            ),
        )

    def begun(self, c: Progress, resumes: bool) -> Progress:
        """Return what is carried before the first step here, or before one of the steps that it resumes."""
        first = c.accepted + c.rejected == 0.0 if resumes else np.array(True)
        at, events = np.where(first, 0.0, c.at), c.events
        if self.search:
            shift = np.where(first, 0.0, events.shift)
            events = EventState(events.base, shift, events.sign, events.slots)
        y = chosen(first, self.moved_state(self.a + self.by_start, c.y, -self.by_start), c.y)
        c = c._replace(at=at, y=y, events=events)
        t = self.a + self.way * at + self.moved(c)
        slope = self.f(t, c.y)
        size = value(np.where(c.size > 0.0, c.size, self.control.first_size(c.y, slope, self.length)))
        if self.search:
            signs = self.search.signs(t, c.y, slope, self.way * LOOKAHEAD * size)
            events = events._replace(sign=np.where(events.sign == 0.0, signs, events.sign))
        return c._replace(slope=slope, size=size, events=events)

    def going(self, c: Progress):
        """Return whether a step is left to be tried."""
        return (c.at < self.length) & (c.status == STEPS_DONE) | (c.status == UNTRIED)

    def solved(self, c: Progress) -> Progress:
        """Return what is carried at the end; at least one step is tried."""
        empty = (self.length == 0.0) & (c.status == STEPS_DONE)
        return self.repeated(c._replace(status=np.where(empty, UNTRIED, c.status)))

    def repeated(self, c: Progress) -> Progress:
        return while_loop_in_segments(self.going, self.advanced, c, self.control.most_steps)

    def stepped(self, c: Progress) -> Progress:
        """Return what is carried after one accepted step."""
        going = lambda x: self.going(x) & (x.accepted == c.accepted)
        return while_loop(going, self.advanced, c, self.control.most_steps)


class Equation(NamedTuple):
    """What the recursions of a solver need, to be traced.

    `arguments` restores the arguments of the functions from their numbers. A gated recursion solves the
    trajectories only whose last number is true. `moves`: do the times carry derivatives?"""

    f: Callable
    take: Callable
    control: StepControl
    n: int
    arguments: Callable
    events: list
    most_events: int
    gated: bool = False
    moves: bool = False

    def init(self, theta) -> Progress:
        """Return what is carried before the first step; theta is the state, followed by the arguments."""
        status = np.where(theta[-1] > 0.0, STEPS_DONE, LEFT_OUT) if self.gated else STEPS_DONE
        events: Any = ()
        if self.events:
            events = EventState(0.0, 0.0, *empty_slots(len(self.events), self.most_events, self.n))
        return Progress(0.0, theta[: self.n], (), 0.0, 1.0, 0.0, 0.0, status, 0.0, events)

    def interval(self, theta, limits) -> Interval:
        given = self.arguments(theta[self.n :])
        search = EventSearch([TracedEvent.of(e, given) for e in self.events], self.most_events)
        f = lambda t, y: self.f(t, y, given)
        return self.steps(self.take, f, self.control, search, limits, self.moves)

    @staticmethod
    def steps(*given) -> Interval:
        return Interval(*given)

    def rows(self, c: Progress, y, t):
        """Return state, time, numbers of accepted and rejected steps, status, and the slots of events."""
        rows = [y, np.stack([t, c.accepted, c.rejected, c.status])]
        for count, times, states in c.events.slots if self.events else ():
            rows += [np.stack([count]), times, states.reshape(-1)]
        return np.concatenate(rows)

    def saved(self) -> tuple:
        """Return `init` and `step` of the recursion over the saved times; a datum is an interval."""

        def step(c: Progress, theta, datum) -> tuple:
            if len(datum) > 2:
                c = c._replace(y=c.y + datum[2:])
                if self.events:
                    jumps = (datum[2:] != 0.0).any()
                    c = c._replace(events=c.events._replace(sign=np.where(jumps, 0.0, c.events.sign)))
            steps = self.interval(theta, datum)
            c = steps.at_the_end(steps.solved(steps.begun(c, False)), np.array(False))
            status = np.where((c.status == ENDED) & (c.at < steps.length), BEYOND_END, c.status)
            y = np.where((status == STEPS_DONE) | (status == ENDED), c.y, np.nan)
            c = c._replace(slope=(), status=status)
            return c, self.rows(c, y, steps.a + steps.way * c.at)

        return self.init, step

    def each_step(self) -> tuple:
        """Return `init` and `step` of the recursion over the accepted steps.

        A datum is the whole interval. A step hands out what was carried before it."""

        def step(c: Progress, theta, limits) -> tuple:
            steps = self.interval(theta, limits)
            given, c = c, steps.begun(c, True)
            after = steps.at_the_end(steps.stepped(c), c.at >= steps.length)
            return after._replace(slope=()), self.rows(c, given.y, steps.reached(c))

        return self.init, step

    def between(self) -> tuple:
        """Return `init` and `step` of a recursion over shortened steps.

        A datum is the time before a step, its size, and the state. There is nothing to carry."""

        def step(c, theta, datum) -> tuple:
            t, h, y = datum[0], datum[1], datum[2:]
            steps = self.interval(theta, (t, t))
            return c, steps.take(steps.f, t, y, steps.f(t, y), h)[0]

        return lambda theta: 0.0, step
