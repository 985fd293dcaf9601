"""Adaptive steps from one saved time to the next, as the step of a kernel.

The derivative is that of the accepted steps with their sizes held constant: sizes, errors and counts pass
through `tapegrad.value`. A saved time is the end of a step. If an end of an interval moves, so does the end
of the step there; this gives the derivatives by the times.

The step control is proportional and integral in the logarithm of the error: the size changes by the powers
-1/8 of the error and 1/16 of the one before, or by -1/4 after a rejection. These are square roots."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._transforms.tape import value
from ..kernels import while_loop
from ._events import LOOKAHEAD, EventSearch, EventState, Step, TracedEvent, empty_slots

SAFETY, LEAST, MOST = 0.9, 0.2, 10.0  # factors of the size of a step
STRETCH = 1.01  # a step this much longer still ends at the saved time
LEAST_ROOT = 1e-4**0.125
SMALLEST_ERROR, NO_ERROR = (
    1e-20,
    1e60,
)  # squares, relative to the tolerance; that of a step that is not finite
STEPS_DONE, STEP_LIMIT, TOO_SMALL, NOT_FINITE, TOO_MANY_EVENTS = (
    0.0,
    1.0,
    2.0,
    3.0,
    4.0,
)  # the status of a trajectory
ENDED, BEYOND_END = -1.0, -2.0  # the status after a terminal event: in its interval, and in later ones
EPSILON = float(np.finfo(float).eps)


class StepControl(NamedTuple):
    """Tolerances and bounds of the steps."""

    rtol: float
    atol: Any
    first: float  # 0: chosen
    most_steps: int

    def error(self, error: Any, y: Any, new: Any) -> Any:
        """Return the mean square of the error relative to the tolerance."""
        scaled = error / (self.atol + self.rtol * np.maximum(np.abs(y), np.abs(new)))
        found = (scaled * scaled).sum() * (1.0 / len(y))
        return np.where(
            found < NO_ERROR, np.maximum(found, SMALLEST_ERROR), NO_ERROR
        )  # nan is no error below it

    def first_size(self, y: Any, slope: Any, length: Any) -> Any:
        """Return a size for the first step: a hundredth of the time in which y changes by itself."""
        if self.first:
            return self.first
        scale = self.atol + self.rtol * np.abs(y)
        a, b = [np.sqrt(((x / scale) ** 2).sum() / len(y)) for x in (y, slope)]
        guess = np.where((a < 1e-5) | (b < 1e-5), 1e-6, 0.01 * a / b)
        return np.where(guess > 0.0, guess, length)  # nan is not above 0


class Progress(NamedTuple):
    """What a trajectory carries from step to step; `at` is the part of the interval that is done."""

    at: Any
    y: Any
    slope: Any
    size: Any  # of the next step
    last_root: Any  # of the error before, its 8th root
    accepted: Any
    rejected: Any
    status: Any
    events: Any  # an EventState, or an empty tuple


class Interval:
    """The steps of one trajectory from one time to the next."""

    def __init__(self, take: Callable, f: Callable, control: StepControl, search: Any, start: Any, end: Any):
        self.take, self.f, self.control, self.search = take, f, control, search
        self.a, b = value(start), value(end)
        self.length, self.way = np.abs(b - self.a), np.where(b < self.a, -1.0, 1.0)
        self.by_start, self.by_end = start - self.a, end - b  # zero, with a derivative

    def step(self, c: Progress) -> tuple:
        """Return the size of a step, whether that is all that is left, and its time and signed size.

        The first step after the start, or after a change of the state, begins with it, and the last one ends
        with the interval. The times between do not move."""
        base, shift = (c.events.base, c.events.shift) if self.search else (0.0, self.by_start)
        ends = c.at + STRETCH * c.size >= self.length
        taken, moved = np.where(ends, self.length - c.at, c.size), np.where(c.at == base, shift, 0.0)
        h = self.way * taken + np.where(ends, self.by_end, 0.0) - moved
        return taken, ends, self.a + self.way * c.at + moved, h

    def advanced(self, c: Progress) -> Progress:
        """Try a step; return what is carried after it."""
        taken, ends, t, h = self.step(c)
        new, error, new_slope = self.take(self.f, t, c.y, c.slope, h)
        square = value(self.control.error(error, c.y, new))
        if self.search:
            values = self.search.values(t + h, new)
            square = np.where(np.isfinite(values.sum()), square, NO_ERROR)
        good = square <= 1.0
        root = np.sqrt(np.sqrt(np.sqrt(np.sqrt(square))))
        change = np.where(good, np.sqrt(c.last_root), 1.0 / root) / root
        next_size = taken * np.clip(SAFETY * change, LEAST, np.where(good, MOST, 1.0))
        next_size = np.where(good & ends, np.maximum(c.size, next_size), next_size)
        accepted, rejected = c.accepted + np.where(good, 1.0, 0.0), c.rejected + np.where(good, 0.0, 1.0)
        small = ~good & (next_size <= 16.0 * EPSILON * np.abs(self.a + self.way * c.at))
        why = np.where(small, np.where(square < NO_ERROR, TOO_SMALL, NOT_FINITE), STEPS_DONE)
        over = (accepted + rejected >= self.control.most_steps) & ~(good & ends)
        after = Progress(
            np.where(good, np.where(ends, self.length, c.at + taken), c.at),
            np.where(good, new, c.y),
            np.where(good, new_slope, c.slope),
            next_size,
            np.where(good, np.maximum(root, LEAST_ROOT), c.last_root),
            accepted,
            rejected,
            np.where(over, STEP_LIMIT, why),
            c.events,
        )
        return (
            self.searched(Step(self.take, self.f, t, c.y, c.slope, h), c, after, values, good)
            if self.search
            else after
        )

    def searched(self, step: Step, before: Progress, after: Progress, values: Any, good: Any) -> Progress:
        """Return what is carried after the events of a step."""
        state, (cut, ended, full, h, y, slope) = self.search.taken(
            step, before.events, values, good & (value(step.h) != 0.0)
        )
        at = np.where(cut, before.at + np.abs(value(h)), after.at)
        moved = step.t + h
        status = np.where(ended, ENDED, np.where(full, TOO_MANY_EVENTS, after.status))
        return after._replace(
            at=at,
            y=np.where(cut, y, after.y),
            slope=np.where(cut, slope, after.slope),
            status=status,
            events=state._replace(
                base=np.where(cut, at, state.base), shift=np.where(cut, moved - value(moved), state.shift)
            ),
        )

    def solved(self, carry: tuple) -> tuple:
        """Return the time reached, whether the end was, and the carry there.

        The carry is the state, the size of the next step, the 8th root of the last error, the numbers of
        accepted and rejected steps, the status, and signs and slots of events."""
        y, size, last_root, accepted, rejected, status, *found = carry
        t = self.a + self.by_start
        slope = self.f(t, y)
        size = value(np.where(size > 0.0, size, self.control.first_size(y, slope, self.length)))
        events: Any = ()
        if self.search:
            sign, slots = found
            sign = np.where(sign == 0.0, self.search.signs(t, y, slope, self.way * LOOKAHEAD * size), sign)
            events = EventState(0.0 * self.length, self.by_start, sign, slots)
        begun = accepted + rejected

        def going(c: Progress) -> Any:
            return ((c.at < self.length) | (c.accepted + c.rejected == begun)) & (c.status == STEPS_DONE)

        start = Progress(0.0 * self.length, y, slope, size, last_root, accepted, rejected, status, events)
        c = while_loop(going, self.advanced, start, self.control.most_steps)
        done = c.at >= self.length
        status = np.where((c.status == ENDED) & ~done, BEYOND_END, c.status)
        found = [c.events.sign, c.events.slots] if self.search else []
        return self.a + self.way * c.at, (c.y, c.size, c.last_root, c.accepted, c.rejected, status, *found)


def trajectory(
    f: Callable,
    take: Callable,
    control: StepControl,
    n: int,
    arguments: Callable,
    events: list,
    most_events: int,
) -> tuple:
    """Return `init` and `step` of the recursion over the saved times.

    theta is the state followed by the numbers of the arguments; a datum is an interval. A step hands out the
    state, the time reached, the numbers of accepted and rejected steps, the status, and the slots of
    events."""

    def init(theta: Any) -> tuple:
        return theta[:n], 0.0, 1.0, 0.0, 0.0, STEPS_DONE, *empty_slots(len(events), most_events, n)

    def step(carry: tuple, theta: Any, interval: Any) -> tuple:
        given = arguments(theta[n:])
        search = EventSearch([TracedEvent.of(e, given) for e in events], most_events)
        y, *rest = carry
        if len(interval) > 2:
            y = y + interval[2:]
            if events:
                rest[5] = np.where((interval[2:] != 0.0).any(), 0.0, rest[5])
        steps = Interval(take, lambda t, y: f(t, y, given), control, search, interval[0], interval[1])
        t, carry = steps.solved((y, *rest))
        y, _, _, accepted, rejected, status, *found = carry
        y = np.where((status == STEPS_DONE) | (status == ENDED), y, np.nan)
        rows = [y, np.stack([t, accepted, rejected, status])]
        for count, times, states in found[1] if events else ():
            rows += [np.stack([count]), times, states.reshape(-1)]
        return carry, np.concatenate(rows)

    return init, step
