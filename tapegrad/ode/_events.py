"""Events: zeros of functions along a trajectory, with the exact derivative of their time.

A change of sign between the ends of an accepted step is located by shorter steps from the same start.
Newton's iteration, kept in a bracket, finds the size of the step without derivatives. Its last steps are then
repeated with derivatives. A trajectory that meets no event skips this loop."""

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._core.errors import ArgumentError
from .._transforms.products import jvp
from .._transforms.tape import value
from ..kernels import loop, while_loop

MOST_ITERATIONS = 128  # to locate an event; bisection alone needs 52
DERIVATIVE_STEPS = (
    5  # evaluations at the zero: each after the first multiplies the error of derivatives by that of a step
)
SAME_TIME = 1e-12  # of a step: events closer than this happen together
LOOKAHEAD = 1e-6  # of a step: an event function that is zero has the sign that it takes so much later
ROOT_TOLERANCE = 4.0 * float(np.finfo(float).eps)


@dataclass(frozen=True)
class Event:
    """A zero of a function along a trajectory, for `solver(..., events=)`.

    Parameters
    ----------
    function : callable
        ``function(t, y, *args)`` returns the number whose change of sign is the event.
    terminal : bool or int
        True ends the trajectory at the event, and a number k ends it at the k-th.
    direction : {0, 1, -1}
        1 counts rising zeros only, and -1 falling ones.
    change : callable, optional
        ``change(t, y, *args)`` returns the state with which the trajectory goes on.

    See Also
    --------
    solver : Takes events.

    Examples
    --------
    A ball that loses a tenth of its speed whenever it hits the floor:

    >>> import numpy as np, tapegrad as tg
    >>> floor = tg.ode.Event(lambda t, y: y[0], direction=-1, change=lambda t, y: [0.0, -0.9 * y[1]])
    >>> fall = tg.ode.solver(lambda t, y: [y[1], -9.81], save_at=[0.0, 1.5], events=floor)
    >>> hits = lambda height: fall(np.array([height, 0.0])).events[0].t
    >>> hits(1.0).round(4)[:2]
    array([0.4515, 1.2643])
    >>> tg.jacobian(lambda height: hits(height)[:2])(1.0).round(4)
    array([0.2258, 0.6321])
    """

    function: Callable
    terminal: bool | int = False
    direction: float = 0.0
    change: Callable | None = None

    def __post_init__(self) -> None:
        if not callable(self.function) or not (self.change is None or callable(self.change)):
            raise ArgumentError(
                f"ode.Event: function and change are functions (t, y, ...); they are {self.function!r}, "
                f"{self.change!r}"
            )
        if self.terminal < 0 or self.direction not in (0, 1, -1):
            raise ArgumentError(
                "ode.Event: terminal is True, False or a number of events; direction is 0, 1 or -1"
            )

    @classmethod
    def of(cls, x: Any) -> "Event":
        """Return an event, also of a function with the attributes that SciPy reads."""
        return (
            x
            if isinstance(x, cls)
            else cls(x, getattr(x, "terminal", False), np.sign(getattr(x, "direction", 0)))
        )


class TracedEvent(NamedTuple):
    """An event of one trajectory: its functions take (t, y)."""

    function: Callable
    change: Callable | None
    terminal: int
    direction: float

    @classmethod
    def of(cls, event: tuple, args) -> "TracedEvent":
        """Return an event whose functions take (t, y, args), with the arguments given."""
        function, change, *kind = event
        return cls(lambda t, y: function(t, y, args), change and (lambda t, y: change(t, y, args)), *kind)


class EventRecord(NamedTuple):
    """The zeros of one event.

    Attributes
    ----------
    t : array
        The times, of shape (max_events,) or (max_events, B), in order. Those that are not needed are nan.
    y : array
        The states there, before a change, of shape (n, max_events) or (n, max_events, B).
    count : array
        The number of events: a number, or (B,).
    """

    t: Any
    y: Any
    count: Any


class EventState(NamedTuple):
    """What the steps carry for events.

    base, shift: the part of the interval at which the last change was, and the derivative of its time. sign:
    of each event function, 0 if unknown. slots: count, times and states of each event."""

    base: Any
    shift: Any
    sign: Any
    slots: tuple


class Step(NamedTuple):
    """A step from state y at time t, of size h."""

    take: Callable
    f: Callable
    t: Any
    y: Any
    slope: Any
    h: Any

    def shortened(self, h) -> tuple:
        """Return time, state and slope at the end of a step of size h."""
        new, _, slope, _ = self.take(self.f, self.t, self.y, self.slope, h)
        return self.t + h, new, slope


def empty_slots(events: int, most: int, n: int) -> tuple:
    """Return signs and slots before the first step, or nothing without events."""
    empty = 0.0, np.zeros(most), np.zeros((most, n))
    return (np.zeros(events), tuple([empty] * events)) if events else ()


class EventSearch:
    """The events of a solver, for `max_events` zeros of each."""

    def __init__(self, events: list, most: int):
        self.events, self.most = events, most

    def __bool__(self) -> bool:
        return bool(self.events)

    def values(self, t, y):
        """Return the event functions, without derivatives."""
        return np.stack([value(e.function(t, y)) for e in self.events])

    def signs(self, t, y, slope, ahead):
        """Return the sign of each event function a little later, where it cannot be zero by rounding."""
        pairs = [self.rate(e, t, y, slope) for e in self.events]
        return np.stack([np.sign(value(g + ahead * rate)) for g, rate in pairs])

    @staticmethod
    def rate(event: TracedEvent, t, y, slope) -> tuple:
        """Return an event function and its derivative along the trajectory."""
        return jvp(event.function, (t, y), (1.0, slope))

    def crossings(self, state: EventState, values) -> tuple:
        """Return which event functions crossed zero in their direction, and the signs after the step."""
        sign = state.sign
        way = np.array([e.direction for e in self.events])
        crossed = (sign * values <= 0.0) & (sign != 0.0) & (sign * way <= 0.0)
        return crossed, np.where(values == 0.0, -sign, np.sign(values))

    def located(self, event: TracedEvent, step: Step, sign, crossed) -> tuple:
        """Return the size of the step that ends where the event function is zero, and the state there.

        `refined` counts the last evaluations, which hand on derivatives; the size itself stays."""

        def going(c: tuple):
            return crossed & (c[-1] < DERIVATIVE_STEPS)

        def body(c: tuple) -> tuple:
            low, high, h, _, _, before, refined = c
            t, y, slope = step.shortened(h)
            g, rate = self.rate(event, t, y, slope)
            change = g / np.where(rate == 0.0, 1.0, rate)
            found, newton, x, full = value(g), value(h - change), value(h), np.abs(value(step.h))
            low, high = np.where(found * sign > 0.0, x, low), np.where(found * sign > 0.0, high, x)
            fits = (
                (np.abs(newton - 0.5 * (low + high)) <= 0.5 * np.abs(high - low))
                & (np.abs(found) <= 0.5 * before)
                & (rate != 0.0)
            )
            moved = np.where(fits, newton, 0.5 * (low + high))
            close = (found == 0.0) | (np.abs(moved - x) <= ROOT_TOLERANCE * full)
            settled = (refined > 0.0) | close
            # the size has its value from the search, and its derivative from Newton's step
            h_next = np.where(settled, h - (change - value(change)), moved)
            return low, high, h_next, h, y, np.abs(found), np.where(settled, refined + 1.0, 0.0)

        h = value(step.h)
        start = 0.0, h, h, step.h, step.y, np.inf, 0.0
        return while_loop(going, body, start, MOST_ITERATIONS)[3:5]

    def recorded(self, t, y, fires, slots: tuple) -> tuple:
        """Return the slots of an event with a time and a state in them, if it fires."""

        def once(_, c: tuple) -> tuple:
            count, times, states = c
            here = np.arange(float(self.most)) == count
            return count + 1.0, np.where(here, t, times), np.where(here[:, None], y, states)

        return loop(np.where(fires, 1.0, 0.0), once, slots, max_steps=1)

    def taken(self, step: Step, state: EventState, values, good) -> tuple:
        """Return the state for the steps to come, which part of the step is left, and what follows a cut.

        What follows is (cut, ended, full, h, y, slope): whether the step ends at an event, whether the
        trajectory does, whether slots lack, and the size of the step with the state and slope after it."""
        crossed, after = self.crossings(state, values)
        crossed = crossed & good
        zeros = [self.located(e, step, state.sign[i], crossed[i]) for i, e in enumerate(self.events)]
        parts = [value(h) / np.where(good, value(step.h), 1.0) for h, _ in zeros]
        ends = [
            (s[0] + 1.0 >= e.terminal) if e.terminal else False
            for e, s in zip(self.events, state.slots, strict=True)
        ]
        cuts = [crossed[i] & (True if e.change else ends[i]) for i, e in enumerate(self.events)]
        first: Any = 2.0
        for cut, part in zip(cuts, parts, strict=True):
            first = np.minimum(first, np.where(cut, part, 2.0))
        fires = [crossed[i] & (part <= first + SAME_TIME) for i, part in enumerate(parts)]
        h, y, slots, full = step.h, step.y, [], False
        for i, (h_zero, y_zero) in enumerate(zeros):
            here = cuts[i] & (parts[i] == first)
            h, y = np.where(here, h_zero, h), np.where(here, y_zero, y)
            slots.append(self.recorded(step.t + h_zero, y_zero, fires[i], state.slots[i]))
            full = full | (slots[i][0] > self.most)
        fires = [x & (part >= first - SAME_TIME) for x, part in zip(fires, parts, strict=True)]
        cut = first <= 1.0
        ended = functools.reduce(operator.or_, [x & end for x, end in zip(fires, ends, strict=True)])

        def once(_, c: tuple) -> tuple:
            y = c[0]
            for x, event in zip(fires, self.events, strict=True):
                if event.change:
                    y = np.where(x, event.change(step.t + h, y), y)
            slope = step.f(step.t + h, y)
            return y, slope, self.signs(step.t + h, y, slope, LOOKAHEAD * value(step.h))

        y, slope, sign = loop(
            np.where(cut, 1.0, 0.0), once, (y, step.slope, np.where(good, after, state.sign)), max_steps=1
        )
        return EventState(state.base, state.shift, sign, tuple(slots)), (cut, ended & cut, full, h, y, slope)
