"""SciPy's method of Radau, to be traced.

The steps are those of `scipy.integrate.Radau` with the exact Jacobian: the same prediction, simplified Newton
iterations and control of the step size, as values. The derivative is that of the collocation equations of each
accepted step."""

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
    combined,
    once,
    or_one,
    replaced_where,
    root_mean_square,
)
from .linear_steps import COLLOCATION

ITERATIONS = 6  # of Newton's method in a step, at most
STAGES = range(3)
# of the inverse of A: the real eigenvalue, the complex one, the rows that select their parts, and back
REAL = 3 + 3 ** (2 / 3) - 3 ** (1 / 3)
COMPLEX = 3 + 0.5 * (3 ** (1 / 3) - 3 ** (2 / 3)), -0.5 * (3 ** (5 / 6) + 3 ** (7 / 6))
FROM_PARTS = plain_np.array(
    [
        [0.09443876248897524, -0.14125529502095421, 0.03002919410514742],
        [0.25021312296533332, 0.20412935229379994, -0.38294211275726192],
        [1, 1, 0],
    ]
)
TO_PARTS = plain_np.array(
    [
        [4.17871859155190428, 0.32768282076106237, 0.52337644549944951],
        [-4.17871859155190428, -0.32768282076106237, 0.47662355450055044],
        [0.50287263494578682, -2.57192694985560522, 0.59603920482822492],
    ]
)
ERRORS = plain_np.array([-13 - 7 * 6**0.5, -13 + 7 * 6**0.5, -1]) / 3
# coefficients of the interpolant by the changes of the stages, in powers of the share of the step
INTERPOLANT = plain_np.linalg.inv(COLLOCATION.C[:, None] ** plain_np.arange(1, 4)).T
RATE, FACTOR = 1e-3, 1.2  # of convergence above which the Jacobian is renewed; least change of the size
NONE = -1.0  # the error of a step before the first


@components_differ
class RadauWalk(NamedTuple):
    """What is carried from one attempt to the next."""

    t: Any
    y: Any
    slope: Any
    size: Any  # of the next step
    proposed: Any  # the size with which this step, or the last one, has begun
    last_size: Any  # the same of the step before
    last_error: Any  # the norm of the error of the step before
    before: Any  # the time of the step before
    state: Any
    Z: Any  # (3, n): the changes at its stages
    J: Any
    factored: Any  # the length in the matrices that are factored; 0: none are
    renews: Any  # is the Jacobian computed in the next attempt?
    current: Any  # was it computed at this time?
    repeated: Any  # was there an attempt before in this step?
    rejected: Any  # one that was too inexact?
    status: Any


@components_differ
class StageIteration(NamedTuple):
    """The state of Newton's iteration."""

    count: Any
    W: Any
    Z: Any
    norm: Any
    rate: Any
    status: Any


class RadauAttempt(NamedTuple):
    """A step that is tried, with its Newton iteration."""

    end: Any
    asked: Any  # the size that was asked for
    h: Any
    last_error: Any
    J: Any
    factored: Any
    real: Any  # the matrix of the real eigenvalue
    iteration: StageIteration


def mixed(matrix, rows: list) -> list:
    """Return the products of a small matrix with rows."""
    return [combined(line, rows) for line in matrix]


class RadauSteps(ImplicitSteps):
    error_order, iterations = 3, ITERATIONS
    most_states = 24  # SciPy's steps pay for no compilation beyond

    def begun(self, f: Callable, y) -> RadauWalk:
        slope = value(f(self.start, y))
        size = value(self.first_size(f, y, slope))
        return RadauWalk(
            t=self.start,
            y=y,
            slope=slope,
            size=size,
            proposed=size,
            last_size=NONE,
            last_error=NONE,
            before=self.start,
            state=y,
            Z=np.stack([0.0 * y for _ in STAGES]),
            J=plain_np.zeros((len(y), len(y))),
            factored=0.0,
            renews=1.0,
            current=1.0,
            repeated=0.0,
            rejected=0.0,
            status=GOING,
        )

    def interpolated(self, Z: list, x):
        """Return the change of the state at a share x of a step."""
        total, power = 0.0, 1.0
        for weights in INTERPOLANT.T:
            power = power * x
            total = total + power * mixed([weights], Z)[0]
        return total

    def converged(self, f: Callable, c: RadauWalk, h, scale, matrices: tuple) -> StageIteration:
        """Return the end of Newton's iteration from the prediction by the step before."""
        n, y, own = len(scale), value(c.y), [value(z) for z in c.Z]
        length = c.t - c.before
        first = length == 0.0
        start = []
        for node in COLLOCATION.C:
            x = (c.t + h * node - c.before) / np.where(first, 1.0, length)
            start.append(np.where(first, 0.0, self.interpolated(own, x) - own[2]))

        def tried(v: StageIteration) -> StageIteration:
            slopes = [value(f(c.t + h * COLLOCATION.C[i], y + v.Z[i])) for i in STAGES]
            real, one, two = mixed(TO_PARTS, slopes)
            real = real - REAL / h * v.W[0]
            one = one - (COMPLEX[0] * v.W[1] - COMPLEX[1] * v.W[2]) / h
            two = two - (COMPLEX[1] * v.W[1] + COMPLEX[0] * v.W[2]) / h
            both = np.linalg.solve(matrices[1], np.concatenate([one, two]))
            change = np.stack([np.linalg.solve(matrices[0], real), both[:n], both[n:]])
            norm = root_mean_square((change / scale).reshape(-1))
            finite = np.isfinite(np.concatenate(slopes)).all()
            status, rate = self.judged(v.count, v.norm, norm, finite)
            W = v.W + change
            moved = np.stack(mixed(FROM_PARTS, [W[i] for i in STAGES]))
            bad = status == DIVERGED
            return StageIteration(
                v.count + 1.0, np.where(bad, v.W, W), np.where(bad, v.Z, moved), norm, rate, status
            )

        W = np.stack(mixed(TO_PARTS, start))
        begin = StageIteration(0.0, W, np.stack(start), 0.0, 0.0, GOING)
        return while_loop(lambda v: v.status == GOING, tried, begin, ITERATIONS)

    def differentiated(self, f: Callable, c: RadauWalk, h, found: StageIteration) -> list:
        """Return the changes at the stages with their derivatives."""
        A, times = COLLOCATION.A, [c.t + h * node for node in COLLOCATION.C]
        Z, n = [value(z) for z in found.Z], len(c.y)
        if not self.rounds:
            return Z
        J = [self.jacobian(f, t, value(c.y) + z) for t, z in zip(times, Z, strict=True)]
        blocks = [[(i == j) * plain_np.eye(n) - h * A[i, j] * J[j] for j in STAGES] for i in STAGES]
        matrix = np.concatenate([np.concatenate(row, 1) for row in blocks])
        for _ in range(self.rounds):
            slopes = [f(t, c.y + z) for t, z in zip(times, Z, strict=True)]
            rest = np.concatenate([h * k - z for k, z in zip(mixed(A, slopes), Z, strict=True)])
            change = np.linalg.solve(matrix, rest - value(rest))
            Z = [z + change[i * n : (i + 1) * n] for i, z in enumerate(Z)]
        return Z

    def attempt(self, f: Callable, c: RadauWalk) -> RadauAttempt:
        """Iterate from the prediction of a step."""
        y, one = value(c.y), plain_np.eye(len(c.y))
        asked, end, h = self.attempted(c, c.repeated)
        J = once(c.renews > 0.0, lambda _: self.jacobian(f, c.t, y), c.J)
        factored = np.where(c.factored == 0.0, h, c.factored)
        real = REAL / factored * one - J
        turn, stay = COMPLEX[1] / factored * one, COMPLEX[0] / factored * one - J
        both = np.concatenate([np.concatenate([stay, -turn], 1), np.concatenate([turn, stay], 1)])
        v = self.converged(f, c, h, self.atol + np.abs(y) * self.rtol, (real, both))
        last_error = np.where(asked == c.size, c.last_error, NONE)
        return RadauAttempt(end, asked, h, last_error, J, factored, real, v)

    def error(self, f: Callable, c: RadauWalk, e: RadauAttempt):
        """Return the norm of the error of a step; after a rejection the estimate is made better."""
        y, Z = value(c.y), e.iteration.Z
        moved = mixed([ERRORS], [Z[i] for i in STAGES])[0] / e.h
        scale = self.atol + np.maximum(np.abs(y), np.abs(y + Z[2])) * self.rtol
        error = np.linalg.solve(e.real, c.slope + moved)
        again = (c.rejected > 0.0) & (root_mean_square(error / scale) > 1.0)
        again = again & (e.iteration.status == CONVERGED)
        better = once(again, lambda error: np.linalg.solve(e.real, value(f(c.t, y + error)) + moved), error)
        return root_mean_square(better / scale)

    def tried(self, f: Callable, c: RadauWalk) -> RadauWalk:
        """Try a step; return what is carried after it."""
        e = self.attempt(f, c)
        v, size, norm = e.iteration, np.abs(e.h), self.error(f, c, e)
        converged = v.status == CONVERGED
        good = converged & ~(norm > 1.0)
        safety = 0.9 * (2 * ITERATIONS + 1) / (2 * ITERATIONS + v.count)
        factor = safety * predicted(size, c.last_size, norm, e.last_error)
        inexact = good & (v.count > 2.0) & (v.rate > RATE)
        keeps, repeats = good & ~inexact & (factor < FACTOR), ~converged & (c.current == 0.0)
        longer = np.where(keeps, 1.0, np.minimum(MAX_FACTOR, factor))
        shorter = np.where(converged, np.maximum(MIN_FACTOR, factor), 0.5)
        next_size = np.where(repeats, e.asked, size * np.where(good, longer, shorter))
        Z, new = self.differentiated(f, c, e.h, v), value(c.y) + v.Z[2]
        moved = replaced_where(c, good, t=e.end, y=c.y + Z[2], before=c.t, state=c.y, Z=np.stack(Z))
        moved = replaced_where(moved, good, proposed=next_size, last_size=c.proposed)
        return moved._replace(
            slope=once(good, lambda _: value(f(e.end, new)), c.slope),
            size=next_size,
            last_error=np.where(good, norm, e.last_error),
            J=e.J,
            factored=np.where(keeps, e.factored, 0.0),
            renews=np.where(inexact | repeats, 1.0, 0.0),
            current=np.where(good, np.where(inexact, 1.0, 0.0), np.where(repeats, 1.0, c.current)),
            repeated=np.where(good, 0.0, 1.0),
            rejected=np.where(good, 0.0, np.where(converged, 1.0, c.rejected)),
            status=np.where(good | repeats | (next_size >= self.least(c.t)), GOING, SMALL_STEP),
        )

    def between(self, f: Callable, c: RadauWalk, t):
        """Return the state at the time t of the last step."""
        length = c.t - c.before
        x = (t - c.before) / or_one(length)
        return c.state + self.interpolated([c.Z[i] for i in STAGES], x)


def predicted(size, last_size, error, last_error):
    """Return a factor for the size, by the errors of this step and of the one before."""
    known = (last_error >= 0.0) & (error != 0.0)
    safe = or_one(error)
    ratio = np.where(known, last_error, 1.0) / safe
    multiplier = np.where(known, size / np.where(known, last_size, 1.0) * ratio**0.25, 1.0)
    return np.where(error == 0.0, 1e300, np.minimum(1.0, multiplier) * safe**-0.25)
