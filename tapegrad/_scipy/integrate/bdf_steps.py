"""SciPy's backward differentiation formulas, to be traced.

The steps are those of `scipy.integrate.BDF` with the exact Jacobian: the same predictor, simplified Newton
iterations, control of step size and order. Iterations, sizes and orders are values. The derivative is that of
the equation of each accepted step: rounds of Newton's method with the exact matrix, each of which adds an
order of derivatives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as plain_np

from ... import numpy as np
from ..._transforms.tape import value
from ...kernels import while_loop
from ...kernels.trace.tracing import components_differ
from .kernel_steps import (
    CONVERGED,
    DIVERGED,
    GOING,
    MAX_FACTOR,
    MIN_FACTOR,
    SMALL_STEP,
    ImplicitSteps,
    once,
    or_one,
    root_mean_square,
)
from .multistep import ALPHA, GAMMA, HIGHEST_ORDER, KAPPA, interpolation, rescaling

NEWTON_ITERATIONS = 4  # of Newton's method in a step
ERRORS = KAPPA * GAMMA + 1 / plain_np.arange(1, HIGHEST_ORDER + 2)
UNBOUNDED = 1e300  # the factor of a size without an error
KEPT, AT_PREDICTION, AT_START = 0.0, 1.0, 2.0  # what a step does with the Jacobian


@components_differ
class BdfWalk(NamedTuple):
    """What is carried from one attempt to the next."""

    t: Any
    size: Any  # of the next step
    spacing: Any  # of the points of the differences
    D: Any  # (HIGHEST_ORDER + 3, n): the backward differences, of which those up to the order are valid
    order: Any
    equal: Any  # the number of steps of this size
    J: Any
    factored: Any  # h / alpha in the matrix that is factored; 0: none is
    renewal: Any  # what is done with the Jacobian in the next attempt
    current: Any  # was the Jacobian computed in this step?
    repeated: Any  # was there an attempt before in this step?
    status: Any


@components_differ
class Iteration(NamedTuple):
    """The state of Newton's iteration."""

    count: Any
    d: Any
    y: Any
    norm: Any
    status: Any


class BdfAttempt(NamedTuple):
    """A step that is tried, with its Newton iteration."""

    end: Any
    asked: Any  # the size that was asked for
    size: Any
    D: Any  # the differences with this size
    equal: Any  # the number of steps of this size before
    prediction: Any
    psi: Any
    weight: Any  # h / alpha
    J: Any
    factored: Any
    iteration: Iteration


def of_order(table, order):
    """Return the row of the table at an order from one on; rows begin with that of order one."""
    found = table[0]
    for k in range(1, HIGHEST_ORDER):
        found = np.where(order == k + 1.0, table[k], found)
    return found


def valid(order):
    """Return one for each difference that counts for this order, and zero for the others."""
    return np.where(order >= plain_np.arange(1.0, HIGHEST_ORDER + 1), 1.0, 0.0)


class BdfSteps(ImplicitSteps):
    error_order, iterations = 1, NEWTON_ITERATIONS
    most_states = 48  # SciPy's steps pay for no compilation beyond

    def begun(self, f: Callable, y) -> BdfWalk:
        slope = f(self.start, y)
        size = value(self.first_size(f, y, slope))
        rows = [y, slope * size * self.way, *[0.0 * slope] * (HIGHEST_ORDER + 1)]
        return BdfWalk(
            t=self.start,
            size=size,
            spacing=size,
            D=np.stack(rows),
            order=1.0,
            equal=0.0,
            J=plain_np.zeros((len(y), len(y))),
            factored=0.0,
            renewal=AT_START,
            current=0.0,
            repeated=0.0,
            status=GOING,
        )

    def rescaled(self, c: BdfWalk, factor):
        """Return the differences at points `factor` times as far apart."""
        counts = valid(c.order).reshape(-1, 1)
        old = c.D[1 : HIGHEST_ORDER + 1]
        new = np.where((factor == 1.0) | (counts == 0.0), old, rescaling(factor) @ (counts * old))
        return np.concatenate([c.D[:1], new, c.D[HIGHEST_ORDER + 1 :]])

    def converged(self, f: Callable, t, y, given: tuple) -> Iteration:
        """Return the end of Newton's iteration from the prediction y."""
        matrix, weight, psi, scale = given

        def tried(v: Iteration) -> Iteration:
            slope = value(f(t, v.y))
            change = np.linalg.solve(matrix, weight * slope - psi - v.d)
            norm = root_mean_square(change / scale)
            status, _ = self.judged(v.count, v.norm, norm, np.isfinite(slope).all())
            bad = status == DIVERGED
            return Iteration(
                v.count + 1.0,
                np.where(bad, v.d, v.d + change),
                np.where(bad, v.y, v.y + change),
                norm,
                status,
            )

        start = Iteration(0.0, 0.0 * y, y, 0.0, GOING)
        return while_loop(lambda v: v.status == GOING, tried, start, NEWTON_ITERATIONS)

    def differentiated(self, f: Callable, t, y, weight, psi, found: Iteration):
        """Return the change of the state with its derivatives."""
        d = value(found.d)
        matrix = np.eye(len(d)) - weight * self.jacobian(f, t, value(found.y))
        for _ in range(self.rounds):
            rest = weight * f(t, y + d) - psi - d
            d = d + np.linalg.solve(matrix, rest - value(rest))
        return d

    def attempt(self, f: Callable, c: BdfWalk) -> BdfAttempt:
        """Predict the state after a step, and iterate from there."""
        asked, end, h = self.attempted(c, c.repeated)
        last = self.way * (c.t + self.way * asked - self.bound) > 0.0
        D = self.rescaled(c, np.where(last, np.abs(h), asked) / c.spacing)
        counts, alpha = valid(c.order), of_order(ALPHA[1:], c.order)
        prediction = D[0] + counts @ D[1 : HIGHEST_ORDER + 1]
        psi, weight = (counts * GAMMA[1:]) @ D[1 : HIGHEST_ORDER + 1] / alpha, h / alpha
        first = c.renewal == AT_START
        at = np.where(first, c.t, end), np.where(first, value(D[0]), value(prediction))
        J = once(c.renewal > 0.0, lambda _: self.jacobian(f, *at), c.J)
        factored = np.where((c.factored == 0.0) | last, weight, c.factored)
        scale = self.atol + self.rtol * np.abs(value(prediction))
        given = plain_np.eye(len(J)) - factored * J, weight, value(psi), scale
        v = self.converged(f, end, value(prediction), given)
        equal = np.where((asked == c.size) & ~last, c.equal, 0.0)
        return BdfAttempt(end, asked, np.abs(h), D, equal, prediction, psi, weight, J, factored, v)

    def tried(self, f: Callable, c: BdfWalk) -> BdfWalk:
        """Try a step; return what is carried after it."""
        e = self.attempt(f, c)
        v, converged = e.iteration, e.iteration.status == CONVERGED
        scale = self.atol + self.rtol * np.abs(v.y)
        safety = 0.9 * (2 * NEWTON_ITERATIONS + 1) / (2 * NEWTON_ITERATIONS + v.count)
        norm = root_mean_square(of_order(ERRORS[1:], c.order) * v.d / scale)
        good = converged & ~(norm > 1.0)
        shorter = safety * np.where(norm > 0.0, norm, 1.0) ** (-1.0 / (c.order + 1.0))
        shorter = np.where(converged, np.maximum(MIN_FACTOR, shorter), 0.5)
        renews = ~converged & (c.current == 0.0)
        new = advanced(e.D, c.order, self.differentiated(f, e.end, e.prediction, e.weight, e.psi, v))
        adapts = good & (e.equal >= c.order)
        change, order = next_order(value(new), c.order, norm, scale)
        size = e.size * np.where(good, np.minimum(MAX_FACTOR, safety * change), shorter)
        size = np.where(renews, e.asked, np.where(good & ~adapts, e.size, size))
        equal = np.where(good, e.equal + 1.0, np.where(renews, e.equal, 0.0))
        return BdfWalk(
            t=np.where(good, e.end, c.t),
            size=size,
            spacing=e.size,
            D=np.where(good, new, e.D),
            order=np.where(adapts, order, c.order),
            equal=np.where(adapts, 0.0, equal),
            J=e.J,
            factored=np.where(converged & ~adapts, e.factored, 0.0),
            renewal=np.where(renews, AT_PREDICTION, KEPT),
            current=np.where(good, 0.0, np.where(renews, 1.0, c.current)),
            repeated=np.where(good, 0.0, 1.0),
            status=np.where(good | renews | (size >= self.least(c.t)), GOING, SMALL_STEP),
        )

    def state(self, c: BdfWalk):
        return c.D[0]

    def between(self, f: Callable, c: BdfWalk, t):
        """Return the state at the time t of the last step."""
        powers = interpolation((t - c.t) / (self.way * c.spacing))
        return c.D[0] + (valid(c.order) * powers) @ c.D[1 : HIGHEST_ORDER + 1]


def advanced(D, order, d):
    """Return the differences after a step, which has one more of them, d."""
    total, rows = d, []
    for k in reversed(range(HIGHEST_ORDER + 3)):
        old = np.where(order + 2.0 == float(k), d - D[k - 1], D[k]) if k > 2 else D[k]
        total = np.where(order >= float(k), D[k] + total, d) if k <= HIGHEST_ORDER else d
        rows.append(np.where(order + 1.0 >= float(k), total, old) if k > 1 else total)
    return np.stack(rows[::-1])


def next_order(D, order, norm, scale) -> tuple:
    """Return the factor of the size, and the order with which it is the largest."""

    def factor(error, by: int):
        power = -1.0 / (order + by)
        return np.where(error == 0.0, UNBOUNDED, or_one(error) ** power)

    low = of_order(ERRORS[:-1, None] * D[1 : HIGHEST_ORDER + 1], order)
    high = of_order(plain_np.append(ERRORS[2:], 0.0)[:, None] * D[3:], order)
    less = np.where(order > 1.0, factor(root_mean_square(low / scale), 0), 0.0)
    same = factor(norm, 1)
    more = np.where(order < HIGHEST_ORDER, factor(root_mean_square(high / scale), 2), 0.0)
    down = (less >= same) & (less >= more)
    up = ~down & (more > same)
    found = np.where(down, less, np.where(up, more, same))
    return found, order + np.where(up, 1.0, 0.0) - np.where(down, 1.0, 0.0)
