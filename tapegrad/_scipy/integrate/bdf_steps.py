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
from .kernel_steps import (
    CONVERGED,
    DIVERGED,
    GOING,
    MAX_FACTOR,
    MIN_FACTOR,
    SMALL_STEP,
    ImplicitSteps,
    root_mean_square,
)

ORDERS, ITERATIONS = 5, 4  # the highest order, and Newton iterations of a step
KAPPA = plain_np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
GAMMA = plain_np.append(0.0, plain_np.cumsum(1 / plain_np.arange(1, ORDERS + 1)))
ALPHA = (1 - KAPPA) * GAMMA
ERRORS = KAPPA * GAMMA + 1 / plain_np.arange(1, ORDERS + 2)
UNBOUNDED = 1e300  # the factor of a size without an error
KEPT, AT_PREDICTION, AT_START = 0.0, 1.0, 2.0  # what a step does with the Jacobian


class BdfWalk(NamedTuple):
    """What is carried from one attempt to the next."""

    t: Any
    size: Any  # of the next step
    spacing: Any  # of the points of the differences
    D: Any  # (ORDERS + 3, n): the backward differences, of which those up to the order are valid
    order: Any
    equal: Any  # the number of steps of this size
    J: Any
    factored: Any  # h / alpha in the matrix that is factored; 0: none is
    renewal: Any  # what is done with the Jacobian in the next attempt
    current: Any  # was the Jacobian computed in this step?
    repeated: Any  # was there an attempt before in this step?
    status: Any


class Iteration(NamedTuple):
    """The state of Newton's iteration."""

    count: Any
    d: Any
    y: Any
    norm: Any
    status: Any


def of_order(table: Any, order: Any) -> Any:
    """Return the number of the table at an order from one on."""
    found = table[1]
    for k in range(2, min(len(table), ORDERS + 1)):
        found = np.where(order == float(k), table[k], found)
    return found


def up_to(order: Any, k: int) -> Any:
    """Return one if the difference k counts for this order, else zero."""
    return 1.0 if k <= 1 else np.where(order >= float(k), 1.0, 0.0)


def rescaling(factor: Any) -> list:
    """Return the matrix that makes differences at points `factor` times as far apart, transposed."""
    rows = [[1.0] * (ORDERS + 1)]
    for i in range(1, ORDERS + 1):
        rows.append([0.0] + [rows[-1][j] * (i - 1 - factor * j) / i for j in range(1, ORDERS + 1)])
    unit = [[1.0] * (ORDERS + 1)]
    for i in range(1, ORDERS + 1):
        unit.append([0.0] + [unit[-1][j] * (i - 1 - j) / i for j in range(1, ORDERS + 1)])
    size = range(ORDERS + 1)
    return [[sum([rows[i][k] * unit[k][j] for k in size if unit[k][j]]) for i in size] for j in size]


class BdfSteps(ImplicitSteps):
    error_order, iterations = 1, ITERATIONS
    most_states = 16  # SciPy is faster beyond

    def begun(self, f: Callable, y: Any) -> BdfWalk:
        slope = f(self.start, y)
        size = value(self.first_size(f, y, slope))
        rows = [y, slope * size * self.way, *[0.0 * slope] * (ORDERS + 1)]
        J, none = plain_np.zeros((len(y), len(y))), 0.0
        return BdfWalk(self.start, size, size, np.stack(rows), 1.0, 0.0, J, none, AT_START, 0.0, 0.0, GOING)

    def rescaled(self, c: BdfWalk, factor: Any) -> list:
        """Return the differences at points `factor` times as far apart."""
        M, rows = rescaling(factor), [c.D[j] for j in range(ORDERS + 3)]
        for i in range(1, ORDERS + 1):
            new = sum([M[i][j] * up_to(c.order, j) * c.D[j] for j in range(1, ORDERS + 1)])
            rows[i] = np.where((factor == 1.0) | (c.order < float(i)), c.D[i], new)
        return rows

    def converged(self, f: Callable, t: Any, y: Any, given: tuple) -> Iteration:
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
        return while_loop(lambda v: v.status == GOING, tried, start, ITERATIONS)

    def differentiated(self, f: Callable, t: Any, y: Any, weight: Any, psi: Any, found: Iteration) -> Any:
        """Return the change of the state with its derivatives."""
        d = value(found.d)
        matrix = np.eye(len(d)) - weight * self.jacobian(f, t, value(found.y))
        for _ in range(self.rounds):
            rest = weight * f(t, y + d) - psi - d
            d = d + np.linalg.solve(matrix, rest - value(rest))
        return d

    def tried(self, f: Callable, c: BdfWalk) -> BdfWalk:
        """Try a step; return what is carried after it."""
        least = self.least(c.t)
        size = np.where(c.repeated > 0.0, c.size, np.minimum(np.maximum(c.size, least), self.longest))
        end = c.t + self.way * size
        last = self.way * (end - self.bound) > 0.0
        end = np.where(last, self.bound, end)
        h = end - c.t
        factor = np.where(last, np.abs(h), size) / c.spacing
        equal = np.where((size == c.size) & ~last, c.equal, 0.0)
        D = self.rescaled(c, factor)
        one = plain_np.eye(len(D[0]))
        prediction = sum([up_to(c.order, k) * D[k] for k in range(1, ORDERS + 1)], D[0])
        psi = sum([up_to(c.order, k) * GAMMA[k] * D[k] for k in range(1, ORDERS + 1)])
        alpha = of_order(ALPHA, c.order)
        psi, weight = psi / alpha, h / alpha
        first = c.renewal == AT_START
        at = np.where(first, c.t, end), np.where(first, value(D[0]), value(prediction))
        J = while_loop(lambda v: v[0] > 0.0, lambda v: (0.0, self.jacobian(f, *at)), (c.renewal, c.J), 1)[1]
        factored = np.where((c.factored == 0.0) | last, weight, c.factored)
        scale = self.atol + self.rtol * np.abs(value(prediction))
        given = one - factored * J, weight, value(psi), scale
        v = self.converged(f, end, value(prediction), given)
        converged, asked, size = v.status == CONVERGED, size, np.abs(h)

        scale = self.atol + self.rtol * np.abs(v.y)
        safety = 0.9 * (2 * ITERATIONS + 1) / (2 * ITERATIONS + v.count)
        norm = root_mean_square(of_order(ERRORS, c.order) * v.d / scale)
        good = converged & ~(norm > 1.0)
        shorter = safety * np.where(norm > 0.0, norm, 1.0) ** (-1.0 / (c.order + 1.0))
        shorter = np.where(converged, np.maximum(MIN_FACTOR, shorter), 0.5)
        renews = ~converged & (c.current == 0.0)

        new = advanced(D, c.order, self.differentiated(f, end, prediction, weight, psi, v))
        adapts = good & (equal >= c.order)
        change, order = next_order([value(row) for row in new], c.order, norm, scale)
        next_size = size * np.where(good, np.minimum(MAX_FACTOR, safety * change), shorter)
        next_size = np.where(renews, asked, np.where(good & ~adapts, size, next_size))
        equal = np.where(converged & ~good, 0.0, np.where(good, equal + 1.0, equal))
        return BdfWalk(
            np.where(good, end, c.t),
            next_size,
            size,
            np.where(good, np.stack(new), np.stack(D)),
            np.where(adapts, order, c.order),
            np.where(adapts | (~converged & ~renews), 0.0, equal),
            J,
            np.where(converged & ~adapts, factored, 0.0),
            np.where(renews, AT_PREDICTION, KEPT),
            np.where(good, 0.0, np.where(renews, 1.0, c.current)),
            np.where(good, 0.0, 1.0),
            np.where(good | renews | (next_size >= least), GOING, SMALL_STEP),
        )

    def between(self, f: Callable, c: BdfWalk, t: Any) -> Any:
        """Return the state at the time t of the last step."""
        h = self.way * c.spacing
        y, product = c.D[0], 1.0
        for k in range(ORDERS):
            product = product * (t - c.t + k * h) / (h * (1.0 + k))
            y = y + up_to(c.order, k + 1) * product * c.D[k + 1]
        return y


def advanced(D: list, order: Any, d: Any) -> list:
    """Return the differences after a step, which has one more of them, d."""
    total, rows = d, []
    for k in reversed(range(ORDERS + 3)):
        if k <= ORDERS:
            total = np.where(order >= float(k), D[k] + total, d)
        old = np.where(order + 2.0 == float(k), d - D[k - 1], D[k])
        rows.append(np.where(order + 1.0 >= float(k), total, old))
    return rows[::-1]


def next_order(D: list, order: Any, norm: Any, scale: Any) -> tuple:
    """Return the factor of the size, and the order with which it is the largest."""

    def factor(error: Any, by: int) -> Any:
        power = -1.0 / (order + by)
        return np.where(error == 0.0, UNBOUNDED, np.where(error == 0.0, 1.0, error) ** power)

    low, high = [of_order([None, *D[k:]], order) for k in (1, 3)]
    low, high = of_order([None, *ERRORS[:-1]], order) * low, of_order([None, *ERRORS[2:], 0.0], order) * high
    less = np.where(order > 1.0, factor(root_mean_square(low / scale), 0), 0.0)
    same = factor(norm, 1)
    more = np.where(order < ORDERS, factor(root_mean_square(high / scale), 2), 0.0)
    down = (less >= same) & (less >= more)
    up = ~down & (more > same)
    found = np.where(down, less, np.where(up, more, same))
    return found, order + np.where(up, 1.0, 0.0) - np.where(down, 1.0, 0.0)
