"""Events of `scipy.integrate.solve_ivp` as a kernel: the times at which functions of the state cross zero.

A kernel takes SciPy's steps without derivatives, and ends each trip at a step with a crossing. There SciPy's
rules say which functions have crossed, and a bracket of the interpolant's root shrinks to rounding. The
derivative of the times is that of the implicit function (`crossing`)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as plain_np

from ... import numpy as np
from ..._core.errors import Attempt, BatchError, KernelError
from ..._core.trees import Const
from ..._transforms.products import jvp
from ..._transforms.tape import value
from ...kernels import while_loop
from ...kernels.trace.loops import while_loop_in_segments
from ...kernels.trace.tracing import components_differ
from ...ops.declare import shape
from .ivp_by_steps import carried, crossing, open_levels
from .kernel_steps import EPSILON, MANY_STEPS, AdaptiveSteps, TooManySteps

TERMINATED = 3.0  # the status of a walk that a terminal event has ended
MOST_CROSSINGS = 64  # steps with an event
MOST_BISECTIONS = 100


class EventKind(NamedTuple):
    """What SciPy reads from an event function: the number of the crossing that ends the solution, or 0."""

    terminal: int
    direction: float

    @classmethod
    def of(cls, g: Callable) -> "EventKind | None":
        """Return the kind; None: SciPy is to check it."""
        terminal, direction = getattr(g, "terminal", None) or 0, getattr(g, "direction", 0)
        known = isinstance(terminal, int) and terminal >= 0 and isinstance(direction, int | float)
        return cls(int(terminal), float(direction)) if known else None


def functions_of_events(events) -> list:
    """Return the functions that SciPy is given as events."""
    return [] if events is None else [events] if callable(events) else [*events]


@components_differ
class CrossingWalk(NamedTuple):
    """What is carried: the steps, the values of the event functions, and which of them crossed zero."""

    walk: Any
    end: Any  # of the solution: the bound, or a terminal event
    values: Any
    crossed: Any
    counts: Any  # of the crossings of each
    before: Any  # the time and the values at the start of the last step
    values_before: Any


def root(f: Callable, low, high, f_low, f_high, needed):
    """Return the root of f between two points, by Chandrupatla's method.

    Source: T. R. Chandrupatla, Advances in Engineering Software 28 (1997), 145-149."""

    def going(s: tuple):
        a, b, fa, fb, *_ = s
        best = np.where(np.abs(fa) < np.abs(fb), fa, fb)
        wide = np.abs(b - a) > 4 * EPSILON * np.maximum(np.abs(a), np.abs(b))
        return needed & wide & (best != 0.0)

    def narrowed(s: tuple) -> tuple:
        a, b, fa, fb, share = s
        x = a + share * (b - a)
        fx = f(x)
        same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        safe = lambda v: np.where(v == 0.0, 1.0, v)
        ratio, fall = (x - b) / safe(c - b), (fx - fb) / safe(fc - fb)
        quadratic = (fall * fall < ratio) & ((1.0 - fall) ** 2 < 1.0 - ratio)
        inverse = fx / safe(fb - fx) * fc / safe(fb - fc)
        inverse = inverse + (c - x) / safe(b - x) * fx / safe(fc - fx) * fb / safe(fc - fb)
        least = 2 * EPSILON * np.abs(x) / safe(np.abs(b - x))
        share = np.minimum(np.maximum(np.where(quadratic, inverse, 0.5), least), 1.0 - least)
        return x, b, fx, fb, share

    a, b, fa, fb, _ = while_loop(going, narrowed, (high, low, f_high, f_low, 0.5), MOST_BISECTIONS)
    return np.where(np.abs(fa) < np.abs(fb), a, b)


class CrossingSearch:
    """The events of one trajectory, to be traced. The functions take (t, y)."""

    def __init__(self, steps: AdaptiveSteps, f: Callable, *events: Callable, kinds: list):
        self.steps, self.f, self.events, self.kinds = steps, f, events, kinds

    def values(self, t, y):
        return np.stack([g(t, y) for g in self.events])

    def begun(self, y) -> CrossingWalk:
        walk = self.steps.begun(self.f, y)
        values = self.values(self.steps.start, y)
        return CrossingWalk(
            walk, self.steps.bound, values, 0.0 * values, 0.0 * values, self.steps.start, values
        )

    def going(self, s: CrossingWalk):
        steps, c = self.steps, s.walk
        return (steps.way * (c.t - steps.bound) < 0.0) & (c.status == 0.0) & (s.crossed.sum() == 0.0)

    def tried(self, s: CrossingWalk) -> CrossingWalk:
        """Try a step; return what is carried after it."""
        c = self.steps.tried(self.f, s.walk)
        good = c.t != s.walk.t
        values = np.where(good, self.values(c.t, self.steps.state(c)), s.values)
        direction = plain_np.array([kind.direction for kind in self.kinds])
        up, down = (s.values <= 0.0) & (values >= 0.0), (s.values >= 0.0) & (values <= 0.0)
        crossed = good & ((up & (direction >= 0.0)) | (down & (direction <= 0.0)))
        active = np.where(crossed, 1.0, 0.0)
        return CrossingWalk(c, s.end, values, active, s.counts + active, s.walk.t, s.values)

    def reached(self, s: CrossingWalk) -> tuple:
        """Walk to the next step with a crossing, or to the end.

        Return what is carried, and the times of the crossings, where these are, the status, and the end."""
        steps = self.steps
        s = s._replace(crossed=0.0 * s.crossed)
        s = while_loop_in_segments(self.going, self.tried, s, steps.limit)
        c, times, first, ends = s.walk, [], steps.way * s.end, {}
        for i, kind in enumerate(self.kinds):
            along = lambda t, i=i: self.events[i](t, steps.between(self.f, c, t))
            bracket = s.before, c.t, s.values_before[i], s.values[i]
            times.append(root(along, *bracket, s.crossed[i] > 0.0))
            if kind.terminal:
                ends[i] = (s.crossed[i] > 0.0) & (s.counts[i] >= kind.terminal)
                first = np.where(ends[i], np.minimum(first, steps.way * times[i]), first)
        found = np.stack(times)
        crossed, ended = [], 0.0  # SciPy keeps what comes before a terminal event, by time and by place
        for i in range(len(self.kinds)):
            before = (steps.way * times[i] < first) | ((steps.way * times[i] == first) & (ended == 0.0))
            crossed.append(np.where(before, s.crossed[i], 0.0))
            if i in ends:
                ended = np.where((steps.way * times[i] == first) & ends[i], 1.0, ended)
        late = (c.status == 0.0) & self.going(s)
        status = np.where(ended > 0.0, TERMINATED, np.where(late, MANY_STEPS, c.status))
        end = steps.way * first
        s = s._replace(walk=c._replace(status=status), end=end)
        return s, np.concatenate([found, np.stack(crossed), np.stack([status, c.t, end])])


def common_value(kind: Callable, x) -> Any:
    """Return x as an int or a bool, or None where samples of `vmap` differ."""
    with Attempt(of=BatchError):
        return kind(x)
    return None


class VaryingTimes(NamedTuple):
    """The times of events whose number is another for each sample of `vmap`."""

    times: Any  # followed by times that are none
    count: Any

    def ends(self, axis_first):
        """Return the first and the last one of the rows that belong to the times."""
        return np.stack([axis_first[0], axis_first[self.count.astype(int) - 1]])


class Events(NamedTuple):
    """The times of the events of a solution, which are values, and its end, which an event may make."""

    times: list
    end: Any
    terminated: bool

    @classmethod
    def of_rows(cls, rows, bound, way) -> "Events":
        """Return what the trips of a `CrossingSearch` have found. Counts of events are asked for."""
        count = (shape(rows)[0] - 3) // 2
        status, t, end = [rows[k, -1] for k in (-3, -2, -1)]
        terminated = bool(status == TERMINATED)
        if status == MANY_STEPS:
            raise TooManySteps
        if not terminated and (status != 0.0 or way * (t - bound) < 0.0):
            raise KernelError("the steps fail, or too many of them have events")
        times: list = []
        for found, crossed in zip(rows[:count], rows[count:-3], strict=True):
            found = found[np.argsort(1.0 - crossed, kind="stable")]
            number = common_value(int, crossed.sum())
            varies = number is None
            times.append(VaryingTimes(found, crossed.sum()) if varies else found[:number])
        return cls(times, end, terminated)


def exact_events(f: Callable, g: Callable, times, y) -> tuple:
    """Return the times of an event, and the states there, with their derivatives.

    times (count,) are values, y (n, count) the states there as functions of the start and of parameters."""
    exact, states = [], []
    for k in range(shape(times)[0]):
        at, state = times[k], y[:, k]

        def along(t, at=at, state=state):
            if t is not at and open_levels(t, state) < 2:  # first derivatives are those of Euler's step
                return state + (t - at) * f(at, value(state))
            return carried(f, at, state, t)

        tangents = 1.0, f(at, value(state))
        slope = jvp(Const(g), (at, value(state)), tangents)[1]
        exact.append(crossing(lambda t, along=along: g(t, along(t)), value(slope), at))
        states.append(along(exact[-1]))
    return np.stack(exact), np.stack(states)
