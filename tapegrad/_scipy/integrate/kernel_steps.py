"""Steps of `scipy.integrate.solve_ivp`, to be traced: what all methods share, and the explicit ones."""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as plain_np
import scipy.integrate as itg

from ... import numpy as np
from ..._transforms.jacobian import jacobian
from ..._transforms.tape import value
from ...kernels import while_loop
from ...kernels.trace.loops import while_loop_in_segments
from ...kernels.trace.tracing import components_differ
from .linear_steps import EXPLICIT, METHODS, Tableau

STEPS_BETWEEN = (2000, 1_000_000)  # two times of the result, in a first attempt and in another
MIN_FACTOR, MAX_FACTOR = 0.2, 10.0  # of the size of a step
SMALL_STEP, MANY_STEPS = 1.0, 2.0  # the status of a call
EPSILON = float(plain_np.finfo(float).eps)
GOING, CONVERGED, DIVERGED = 0.0, 1.0, 2.0  # the status of an iteration


class TooManySteps(Exception):
    """A kernel would take more steps between two times than it may."""


def or_one(x):
    return np.where(x == 0.0, 1.0, x)


@components_differ
class Walk(NamedTuple):
    """What is carried from step to step: the end of the last one, its beginning, its slopes."""

    t: Any
    y: Any
    slope: Any
    size: Any  # of the next step
    before: Any  # its time
    state: Any
    slopes: Any  # (stages, n)
    attempts: Any  # the number of steps that were tried
    rejected: Any
    status: Any


def combined(weights, slopes):
    """Return the sum of weight times slope."""
    terms = [w * k for w, k in zip(weights, slopes, strict=False) if w]
    return sum(terms[1:], terms[0]) if terms else 0.0 * slopes[0]


def root_mean_square(x):
    return np.sqrt((x * x).sum() / len(x))


def replaced_where(c, good, **new):
    """Return what is carried, with these fields replaced_where after a good step."""
    return c._replace(**{name: np.where(good, x, getattr(c, name)) for name, x in new.items()})


def once(condition, f: Callable, x):
    """Return f(x) if a condition holds, else x. f does not run otherwise."""
    begun = np.where(condition, 1.0, 0.0), x
    return while_loop(lambda v: v[0] > 0.0, lambda v: (0.0, f(v[1])), begun, 1)[1]


class AdaptiveSteps:
    """Steps from a start to a bound. A subclass has `begun`, `tried` and `between`."""

    rounds, limit = 0, STEPS_BETWEEN[0]  # orders of derivatives; steps between two times
    error_order: int  # of the estimate of the error
    most_states: int  # of a kernel
    start: Any
    bound: Any
    way: Any  # the sign of the difference

    def __init__(self, options: dict):
        self.rtol, self.atol = options.get("rtol", 1e-3), options.get("atol", 1e-6)
        self.longest, self.first = options.get("max_step", math.inf), options.get("first_step")

    def within(self, start, bound) -> Self:
        """Return the steps from a start to a bound."""
        found = copy.copy(self)
        found.start, found.bound = start, bound
        found.way = np.where(bound < start, -1.0, 1.0)
        return found

    def first_size(self, f: Callable, y, slope):
        if self.first is not None:
            return self.first
        length = np.abs(self.bound - self.start)
        scale = self.atol + np.abs(y) * self.rtol
        d0, d1 = root_mean_square(y / scale), root_mean_square(slope / scale)
        slow = (d0 < 1e-5) | (d1 < 1e-5)
        h0 = np.minimum(np.where(slow, 1e-6, 0.01 * d0 / np.where(slow, 1.0, d1)), length)
        new = f(self.start + h0 * self.way, y + h0 * self.way * slope)
        d2 = root_mean_square((new - slope) / scale) / h0
        still = (d1 <= 1e-15) & (d2 <= 1e-15)
        power = 1.0 / (self.error_order + 1)
        h1 = np.where(
            still,
            np.maximum(1e-6, h0 * 1e-3),
            (0.01 / np.where(still, 1.0, np.maximum(d1, d2))) ** power,
        )
        return np.minimum(np.minimum(100 * h0, h1), np.minimum(length, self.longest))

    def least(self, t):
        return 10.0 * np.maximum(EPSILON * np.abs(t), 1e-300)

    def attempted(self, c, again) -> tuple:
        """Return the size that is asked for, the end of the step, and its signed length.

        A step that is tried `again` has the size that the attempt before it left."""
        asked = np.where(again > 0.0, c.size, np.minimum(np.maximum(c.size, self.least(c.t)), self.longest))
        end = c.t + self.way * asked
        end = np.where(self.way * (end - self.bound) > 0.0, self.bound, end)
        return asked, end, end - c.t

    def begun(self, f: Callable, y):
        raise NotImplementedError

    def tried(self, f: Callable, c):
        raise NotImplementedError

    def between(self, f: Callable, c, t):
        raise NotImplementedError

    def state(self, c):
        """Return the state at the end of the last step."""
        return c.y

    def last_call(self, f: Callable, c):
        """Return the time and the state of SciPy's last call, after it has interpolated in the last step.

        Those of implicit methods lie near the end of the step."""
        return np.concatenate([np.reshape(x, -1) for x in (c.t, self.state(c))])

    def counts(self, c) -> list:
        """Return what tells how often SciPy evaluates the right-hand side, where that is known."""
        return []

    def evaluations(self, counts) -> int:
        raise NotImplementedError

    def reached(self, f: Callable, c, t):
        """Return what is carried when a step has reached the time t.

        Times outside of the interval lie in its first and its last step."""
        last = np.where(self.way * (t - self.bound) > 0.0, self.bound, t)
        early = self.way * (t - self.start) < 0.0

        def going(c):
            return ((self.way * (c.t - last) < 0.0) | (early & (c.t == self.start))) & (c.status == 0.0)

        c = while_loop_in_segments(going, lambda c: self.tried(f, c), c, self.limit)
        return c._replace(status=np.where(going(c), MANY_STEPS, c.status))


class ImplicitSteps(AdaptiveSteps):
    """Steps whose equations are solved by simplified Newton iterations on values.

    `rounds`: how often Newton's method with the exact matrix follows, which adds an order of derivatives each
    time."""

    iterations: int  # of a step, at most

    def __init__(self, options: dict):
        super().__init__(options)
        self.tolerance = max(10 * EPSILON / self.rtol, min(0.03, self.rtol**0.5))

    def jacobian(self, f: Callable, t, y):
        return value(jacobian(lambda y: f(t, y), mode="forward")(y))

    def judged(self, count, last, norm, finite) -> tuple:
        """Return the status after an iteration with a change of this norm, and the rate of convergence.

        `count`: the iterations before; `last`: the norm of the change before."""
        later = count > 0.0
        rate = norm / np.where(later, last, 1.0)
        left = power = rate
        for k in range(self.iterations - 2, 0, -1):
            power = power * rate
            left = np.where(count == float(k), power, left)
        slow = later & ((rate >= 1.0) | (left / (1.0 - rate) * norm > self.tolerance))
        done = (norm == 0.0) | (later & (rate / (1.0 - rate) * norm < self.tolerance))
        return np.where(slow | ~finite, DIVERGED, np.where(done, CONVERGED, GOING)), rate


class ExplicitSteps(AdaptiveSteps):
    """SciPy's explicit methods, to be traced."""

    most_states = 128

    def __init__(self, method: str, options: dict):
        super().__init__(options)
        self.method = METHODS[method]
        self.tableau: Tableau = EXPLICIT[self.method]
        self.stages, self.error_order = self.method.n_stages, self.method.error_estimator_order

    def error(self, slopes: list, h, scale):
        """Return the norm of the estimated error of a step, relative to the tolerance."""
        if self.method is not itg.DOP853:
            return root_mean_square(combined(self.method.E, slopes) * h / scale)
        fifth, third = [((combined(w, slopes) / scale) ** 2).sum() for w in (self.method.E5, self.method.E3)]
        whole = fifth + 0.01 * third
        return np.where(whole == 0.0, 0.0, np.abs(h) * fifth / np.sqrt(or_one(whole) * len(scale)))

    def begun(self, f: Callable, y) -> Walk:
        slope = f(self.start, y)
        size = value(self.first_size(f, y, slope))
        slopes = np.stack([0.0 * slope] * (self.stages + 1))
        return Walk(self.start, y, slope, size, self.start, y, slopes, 0.0, 0.0, 0.0)

    def tried(self, f: Callable, c: Walk) -> Walk:
        """Try a step; return what is carried after it."""
        _, end, h = self.attempted(c, c.rejected)
        A, B, C, _ = self.tableau
        slopes = [c.slope]
        for s in range(1, self.stages):
            slopes.append(f(c.t + C[s] * h, c.y + h * combined(A[s], slopes)))
        new = c.y + h * combined(B[: self.stages], slopes)
        slopes.append(f(end, new))
        scale = self.atol + np.maximum(np.abs(c.y), np.abs(new)) * self.rtol
        norm = value(self.error(slopes, h, scale))
        good, size = norm < 1.0, np.abs(h)
        power = -1.0 / (self.error_order + 1)
        factor = 0.9 * or_one(norm) ** power
        longer = np.where(norm == 0.0, MAX_FACTOR, np.minimum(MAX_FACTOR, factor))
        longer = np.where(c.rejected > 0.0, np.minimum(1.0, longer), longer)
        shorter = np.where(factor > MIN_FACTOR, factor, MIN_FACTOR)  # nan is not above it
        next_size = size * np.where(good, longer, shorter)
        rest = np.stack(slopes)
        moved = replaced_where(c, good, t=end, y=new, slope=slopes[-1], before=c.t, state=c.y, slopes=rest)
        return moved._replace(
            size=next_size,
            attempts=c.attempts + 1.0,
            rejected=np.where(good, 0.0, 1.0),
            status=np.where(good | (next_size >= self.least(c.t)), 0.0, SMALL_STEP),
        )

    def counts(self, c: Walk) -> list:
        return [c.attempts, c.before]

    def evaluations(self, counts) -> int:
        """Return how often SciPy evaluates the right-hand side; the last column is that of the bound."""
        attempts, before, *_ = counts
        interpolants = len(set(before[:-1])) * (len(self.tableau.A) - self.stages - 1)
        return int(1 + (self.first is None) + self.stages * attempts[-1]) + interpolants

    def interpolant(self, f: Callable, c: Walk) -> tuple:
        """Return the slopes at the stages of the last step, and the time and the state of its last stage."""
        A, _, C, _ = self.tableau
        h, t, y = c.t - c.before, c.t, c.y
        slopes = [c.slopes[s] for s in range(self.stages + 1)]
        for s in range(self.stages + 1, len(A)):
            t, y = c.before + C[s] * h, c.state + h * combined(A[s], slopes)
            slopes.append(f(t, y))
        return slopes, t, y

    def last_call(self, f: Callable, c: Walk):
        return np.concatenate([np.reshape(x, -1) for x in self.interpolant(f, c)[1:]])

    def between(self, f: Callable, c: Walk, t):
        """Return the state at the time t of the last step."""
        h, P, slopes = c.t - c.before, self.tableau.P, self.interpolant(f, c)[0]
        x = (t - c.before) / or_one(h)
        total, power = 0.0, x
        for k in range(P.shape[1]):
            total, power = total + power * combined(P[:, k], slopes), power * x
        return c.state + h * total
