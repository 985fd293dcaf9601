"""Adaptive steps from one saved time to the next, as the step of a kernel.

The derivative is that of the accepted steps with their sizes held constant: sizes, errors and counts pass
through `tapegrad.value`. A saved time is the end of a step. If both ends of an interval move, all its steps
are stretched; this gives the derivatives by the times.

The step control is proportional and integral in the logarithm of the error."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._transforms.tape import value
from ..kernels import while_loop

SAFETY, LEAST, MOST = 0.9, 0.2, 10.0  # factors of the size of a step
PROPORTIONAL, INTEGRAL = 0.14, 0.08  # exponents of this error and of the one before
STRETCH = 1.01  # a step this much longer still ends at the saved time
LEAST_LAST_ERROR = float(np.log(1e-4))
SMALLEST_ERROR, NO_ERROR = 1e-10, 1e30  # relative to the tolerance; that of a step that is not finite
STEPS_DONE, STEP_LIMIT, TOO_SMALL, NOT_FINITE = 0.0, 1.0, 2.0, 3.0  # the status of a trajectory
EPSILON = float(np.finfo(float).eps)


class StepControl(NamedTuple):
    """Tolerances and bounds of the steps."""

    rtol: float
    atol: Any
    first: float  # 0: chosen
    most_steps: int

    def error(self, error: Any, y: Any, new: Any) -> Any:
        """Return the root mean square of the error relative to the tolerance."""
        scaled = error / (self.atol + self.rtol * np.maximum(np.abs(y), np.abs(new)))
        found = np.sqrt((scaled * scaled).sum() / len(y))
        return np.where(found < NO_ERROR, np.maximum(found, SMALLEST_ERROR), NO_ERROR)  # nan is no error below it

    def first_size(self, y: Any, slope: Any, length: Any) -> Any:
        """Return a size for the first step: a hundredth of the time in which y changes by itself."""
        if self.first:
            return self.first
        scale = self.atol + self.rtol * np.abs(y)
        a, b = [np.sqrt(((x / scale) ** 2).sum() / len(y)) for x in (y, slope)]
        guess = np.where((a < 1e-5) | (b < 1e-5), 1e-6, 0.01 * a / b)
        return np.where(guess > 0.0, guess, length)  # nan is not above 0


def save_interval(take: Callable, f: Callable, control: StepControl, carry: tuple, start: Any, end: Any) -> tuple:
    """Return the time reached, and the carry at the end of the interval.

    The carry is the state, the size of the next step, the logarithm of the last error, the numbers of
    accepted and rejected steps, and the status."""
    a, b = value(start), value(end)
    length, way = np.abs(b - a), np.where(b < a, -1.0, 1.0)
    by_start, by_end = start - a, end - b  # zero, with a derivative
    y, size, *rest = carry
    slope = f(start, y)
    size = value(np.where(size > 0.0, size, control.first_size(y, slope, length)))

    def going(c: tuple) -> Any:
        at, _, _, _, _, accepted, rejected, status = c
        return ((at < length) | (accepted + rejected == before)) & (status == STEPS_DONE)

    def body(c: tuple) -> tuple:
        at, y, slope, size, last_error, accepted, rejected, status = c
        ends = at + STRETCH * size >= length
        taken = np.where(ends, length - at, size)
        share, part = np.where(length > 0.0, taken / length, 1.0), np.where(length > 0.0, at / length, 0.0)
        h = way * taken + share * (by_end - by_start)
        t = a + way * at + (1.0 - part) * by_start + part * by_end
        new, error, new_slope = take(f, t, y, slope, h)
        found = np.log(value(control.error(error, y, new)))
        good = found <= 0.0
        change = np.exp(np.where(good, INTEGRAL * last_error - PROPORTIONAL * found, -0.2 * found))
        next_size = taken * np.clip(SAFETY * change, LEAST, np.where(good, MOST, 1.0))
        next_size = np.where(good & ends, np.maximum(size, next_size), next_size)
        accepted, rejected = accepted + np.where(good, 1.0, 0.0), rejected + np.where(good, 0.0, 1.0)
        small = ~good & (next_size <= 16.0 * EPSILON * np.abs(a + way * at))
        why = np.where(small, np.where(found < np.log(NO_ERROR), TOO_SMALL, NOT_FINITE), STEPS_DONE)
        status = np.where((accepted + rejected >= control.most_steps) & ~(good & ends), STEP_LIMIT, why)
        return (
            np.where(good, np.where(ends, length, at + taken), at),
            np.where(good, new, y),
            np.where(good, new_slope, slope),
            next_size,
            np.where(good, np.maximum(found, LEAST_LAST_ERROR), last_error),
            accepted,
            rejected,
            status,
        )

    before = rest[1] + rest[2]
    c = while_loop(going, body, (0.0 * length, y, slope, size, *rest), control.most_steps)
    return a + way * c[0], (c[1], c[3], *c[4:])


def trajectory(f: Callable, take: Callable, control: StepControl, n: int, arguments: Callable) -> tuple:
    """Return `init` and `step` of the recursion over the saved times.

    theta is the state followed by the numbers of the arguments; a datum is an interval. A step hands out the
    state, the time reached, the numbers of accepted and rejected steps, and the status."""

    def init(theta: Any) -> tuple:
        return theta[:n], 0.0, 0.0, 0.0, 0.0, STEPS_DONE

    def step(carry: tuple, theta: Any, interval: Any) -> tuple:
        given = arguments(theta[n:])
        if len(interval) > 2:
            carry = (carry[0] + interval[2:], *carry[1:])
        t, carry = save_interval(take, lambda t, y: f(t, y, given), control, carry, interval[0], interval[1])
        y, *_, accepted, rejected, status = carry
        y = np.where(status == STEPS_DONE, y, np.nan)
        return carry, np.concatenate([y, np.stack([t, accepted, rejected, status])])

    return init, step
