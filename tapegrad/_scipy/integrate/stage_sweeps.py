"""The accepted steps of an explicit method with many states, one stage after another.

Matrices of all stages would be too large. So the right-hand side is recorded once, as a function of the state
and of what it captures. Each stage replays its pullback or its tangent. Only states and slopes are kept."""

from typing import Any

from ... import numpy as np
from ..._core.errors import GuardError
from ..._core.pickling import PickledByCall
from ..._core.primitive import bind, handle, joint_primitive, primal_of
from ..._core.registry import load
from ..._core.scope import at_the_end_of_an_object
from ..._core.trees import Const
from ..._transforms.products import jvp, vjp
from ..._transforms.rebind import Rebind, forgotten, out_of, with_all
from ...implicit import or_zeros
from ..namespaces import holds_tracked
from .right_side import NAME, ROUNDING, RightSide, check_slopes, other_values

MOST_BRANCHES = 8  # of a right-hand side that are recorded


class StageSlope(PickledByCall):
    """The slope f(t, y), times a factor, as a function of (y, t, factor) and of the values that f captures.

    `plans`: its recordings, one for each branch; None: it cannot be recorded."""

    def __init__(self, right: RightSide):
        self.right = right
        self.plans: list | None = None if right.in_order else []
        self.first = Rebind((right.f,), [])
        with self.first as (self.functions, _):
            self.first.arrays = []

    def _made(self) -> tuple:
        return StageSlope, (self.right,)

    def __del__(self):
        at_the_end_of_an_object(self.first.finish)  # as of a Call

    def __call__(self, y: Any, t: Any, factor: Any, *values: Any) -> Any:
        shadow = Rebind(self.functions, [], self.first, values)
        with shadow as ((f,), _):
            slope = out_of(self.right.of(f).point(t, y) * factor)
            shadow.check_all(NAME)
            shadow.arrays = []
        forgotten(shadow)
        return slope

    def product(self, back: bool, moving: dict, fixed: dict, v: Any) -> tuple:
        """Return the slope, and the pullback of v to what moves or the tangent along v.

        `moving`, `fixed`: the arguments by their places."""
        places, others = (*moving, *fixed), [*fixed.values()]

        def slope(xs: list, others: list) -> Any:
            given = dict(zip(places, [*xs, *others], strict=True))
            return self(*[given[k] for k in range(len(places))])

        xs, method = [*moving.values()], "vjp" if back else "jvp"
        for plan in self.plans or ():
            try:
                found: tuple = getattr(plan, method)(xs, v, (others,))
                return found
            except GuardError:  # another branch
                continue
        if self.plans is not None and len(self.plans) < MOST_BRANCHES:
            plan = load("tapegrad.replay").prepare(Const(slope), xs, others, on_change="raise")
            try:
                found = getattr(plan, method)(xs, v, (others,))
                self.plans.insert(0, plan)
                return found
            except GuardError:
                self.plans = None
        along = Const(lambda xs: slope(xs, others))
        if not back:
            return jvp(along, (xs,), (v,))
        value, pullback = vjp(along, xs)
        return value, pullback(v)


class StageSweep:
    """The states at the ends of known steps, and the slopes of their stages, as a function of the start, the
    times of the stages, a factor of the slopes, and what the right-hand side captures.

    `moving`: the places of the start and of the other arguments that are tracked."""

    def __init__(self, steps: Any, slope: StageSlope, moving: list):
        self.steps, self.slope, self.moving = steps, slope, moving
        self.allowed = 2 * ROUNDING * abs(steps.K).max(initial=0.0)

    def __call__(self, *xs: Any) -> tuple:
        return self.steps.states, self.steps.K

    def stages(self, k: int, out: tuple) -> Any:
        """Return the states at the stages of a step."""
        states, K = out
        return states[k] + self.steps.A[k] @ K[k]

    def arguments(self, y: Any, k: int, i: int, xs: Any) -> tuple:
        """Return the arguments of a stage by their places: those that move, and the others."""
        given = dict(enumerate([y, xs[1][k * self.steps.A.shape[1] + i], *xs[2:]]))
        return {place: given.pop(place) for place in self.moving}, given

    def product(self, back: bool, k: int, i: int, y: Any, xs: tuple, v: Any) -> Any:
        """Return the pullback of v to what moves, or the tangent along v, at a stage."""
        moving, fixed = self.arguments(y, k, i, xs)
        value, found = self.slope.product(back, moving, fixed, v)
        K = self.steps.K[k, i]
        if not holds_tracked(value) and (abs(value - K) > self.allowed).any():
            again = self.slope(y, xs[1][k * self.steps.A.shape[1] + i], *xs[2:])  # rounded as SciPy has it
            if (abs(again - K) > self.allowed).any():
                raise other_values()
        return found

    def pull(self, w: tuple, out: tuple, need: Any, *xs: Any) -> list:
        """Return the cotangents of the arguments, from the last stage to the first."""
        (ends, slopes), A, B = or_zeros(w, out), self.steps.A, self.steps.B
        plain, adjoint = not holds_tracked(ends, slopes, out, xs), ends[-1]
        terms: dict = {place: [] for place in self.moving[1:]}
        for k in reversed(range(len(B))):
            Y, after = self.stages(k, out), adjoint
            pulled: list = []
            for i in reversed(range(len(B[k]))):
                g = combined(slopes[k, i], [B[k, i], *A[k, i + 1 :, i][::-1]], [after, *pulled])
                skipped = plain and not g.any()
                parts = [0.0] * len(self.moving) if skipped else self.product(True, k, i, Y[i], xs, g)
                pulled.append(parts[0])
                for place, part in zip(terms, parts[1:], strict=True):
                    terms[place].append(part)
            adjoint = combined(ends[k] + after, [1.0] * len(pulled), pulled)
        sums = {place: np.stack(v[::-1]) if place == 1 else sum(v) for place, v in terms.items()}
        return [adjoint, *[sums.get(place) for place in range(1, len(xs))]]

    def push(self, v: tuple, out: tuple, *xs: Any) -> tuple:
        """Return the tangents of the states and slopes, from the first stage to the last."""
        A, B = self.steps.A, self.steps.B
        along = [0.0 * x if t is None else t for t, x in zip(v, xs, strict=True)]
        ends, rows = [along[0]], []
        for k in range(len(B)):
            Y = self.stages(k, out)
            slopes: list = []
            for i in range(len(B[k])):
                moved, _ = self.arguments(combined(ends[-1], A[k, i], slopes), k, i, along)
                slopes.append(self.product(False, k, i, Y[i], xs, [*moved.values()]))
            ends.append(combined(ends[-1], B[k], slopes))
            rows.append(np.stack(slopes))
        return np.stack(ends), np.stack(rows)


def combined(y: Any, weights: Any, slopes: list) -> Any:
    """Return y and the sum of weight times slope."""
    for w, slope in zip(weights, slopes, strict=False):
        y = y + w * slope if w else y
    return y


def swept(steps: Any, right: RightSide, start: Any, times: Any, factor: Any) -> tuple:
    """Return the states at the ends of the steps, and the slopes of the stages, with derivatives."""
    slope = StageSlope(right)
    last = steps.Y[-1, -1], primal_of(times[-1]), primal_of(factor)

    def run(values: list) -> Any:
        found = slope(*last, *map(primal_of, values))
        check_slopes(found, steps.K[-1, -1], steps.Y[-1, -1])
        xs = (start, times, factor, *values)
        moving = [k for k, x in enumerate(xs) if k == 0 or holds_tracked(x)]
        if len(moving) == 1 and not holds_tracked(start):
            return steps.states, steps.K
        sweep = StageSweep(steps, slope, moving)
        return [*map(handle, bind(joint_primitive(NAME, sweep, sweep.pull, sweep.push), xs, {}))]

    return with_all(slope.first, run)[1]
