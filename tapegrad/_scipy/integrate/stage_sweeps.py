"""The accepted steps of an explicit method with many states, one stage after another.

Matrices of all stages would be too large. So the right-hand side is recorded once, as a function of the state
and of what it captures. Each stage replays its pullback or its tangent. States are kept, and slopes in so far
as they are few: others are computed again, step by step."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as plain_np

from ... import numpy as np
from ..._capture.dependencies.walk import IdentityKey
from ..._core.errors import GuardError
from ..._core.pickling import PickledByCall
from ..._core.primitive import bind, handle, joint_primitive, primal_of
from ..._core.registry import load
from ..._core.scope import OPEN, at_the_end_of, changed, lock
from ..._core.trees import Const
from ..._core.variable import Variable
from ..._transforms.products import jvp, vjp
from ..._transforms.rebind import Rebind, forgotten, out_of, with_all
from ..._transforms.vmap import vmap
from ...implicit import or_zeros
from ...ops.declare import dtype, shape
from ..linear_maps import AxisMap, mapped, rows_of
from ..namespaces import holds_tracked
from .right_side import NAME, ROUNDING, RightSide, check_slopes, form_of_reading, other_values

MOST_RECORDINGS = 8  # of a right-hand side that are recorded
# (what a right-hand side reads, recordings of its products) after a sweep. Those that were used last are at
# the end
KEPT: list[tuple] = []
MOST_KEPT = 8  # right-hand sides
MOST_COMPARED = 1 << 16  # numbers in the arrays that such a right-hand side reads
LOCK = lock()
MANY_STAGES = 32  # for which it pays to compile a recording at once


class StageSlope(PickledByCall):
    """The slope f(t, y) as a function of (y, t) and of the values that f captures.

    `stages`: at how many it is asked for. `plans`: recordings of its products, of each kind one for each
    branch."""

    def __init__(self, right: RightSide, stages: int):
        self.right = right
        self.stages = stages
        self.recorded = not right.in_order
        self.plans = {}
        self.first = Rebind((right.f,), [])
        with self.first as (self.functions, _):
            self.first.arrays = []
        self.form = None
        if self.recorded:
            form, arrays = form_of_reading([self.functions], self.first.handles)
            sizes = [x.size for x in (*arrays, *[y for _, y in self.first.handles])]
            if form is not None and sum(sizes) <= MOST_COMPARED:
                same = map(IdentityKey, arrays)  # a recording may read them anew
                self.form = [*form, *same, right.mixed, right.vectorized]

    def _made(self) -> tuple:
        return StageSlope, (self.right, self.stages)

    def __del__(self):
        at_the_end_of(self, "first")  # as of a Call

    def __call__(self, y, t, *values):
        shadow = Rebind(self.functions, [], self.first, values)
        with shadow as ((f,), _):
            slope = out_of(self.right.of(f).point(t, y))
            shadow.check_all(NAME)
            shadow.arrays = []
        forgotten(shadow)
        return slope

    @contextlib.contextmanager
    def recordings(self, moving: list) -> Iterator[None]:
        """A context with the recordings of earlier sweeps over a right-hand side that reads the same.

        No other sweep has them meanwhile."""
        form = self.form and [*self.form, moving]
        with LOCK:
            at = next((k for k, (known, _) in enumerate(KEPT) if form and known == form), None)
            self.plans = self.plans if at is None else KEPT.pop(at)[1]
        yield
        if form:
            plans, self.plans = self.plans, {}
            with LOCK:
                KEPT.append((form, plans))
                del KEPT[:-MOST_KEPT]

    def product(self, kind: tuple, plain: bool, moving: list, count: int, given: tuple) -> tuple:
        """Return the slope, and what v pulls back to what moves or the tangent along v.

        `kind`: is it a pullback, or None for the slope alone; and is v a stack? `moving`: places of
        arguments. `given`: the arrays of v, so many, and the arguments."""
        back, many = kind

        def run(*given) -> tuple:
            v, at = given[:count], given[count:]

            def slope(xs: list):
                moved = dict(zip(moving, xs, strict=True))
                return self(*[moved.get(p, x) for p, x in enumerate(at)])

            xs = [at[p] for p in moving]
            if back is None:
                return (slope(xs),)
            if not back:
                along = lambda *v: jvp(Const(slope), (xs,), ([*v],))[1]
                return slope(xs), vmap(Const(along))(*v) if many else along(*v)
            value, pullback = vjp(Const(slope), xs)
            return value, *(vmap(Const(pullback))(*v) if many else pullback(*v))

        plans = self.plans.setdefault(kind, []) if plain else []
        for plan in plans:
            try:
                found = plan(*given)
                return found
            except GuardError:  # another branch
                continue
        if OPEN.compared is not None:
            OPEN.compared.clear()
        with changed(compared=None):  # code of the user runs
            if plain and self.recorded and len(plans) < MOST_RECORDINGS:
                plan = load("tapegrad.replay").prepare(Const(run), *given, on_change="raise")
                try:
                    found = plan(*given)
                    plans.insert(0, plan)
                    if self.stages > MANY_STAGES:
                        for kept in plan.forms["value"].programs:
                            kept.spent = math.inf  # so many stages repay its compilation
                    return found
                except GuardError:
                    self.recorded = False
            return run(*given)


class StageSweep:
    """The states at the ends of known steps, and the slopes of their stages, as a function of the start, the
    times of the stages, and what the right-hand side captures.

    `asked`: the steps whose slopes are given. `moving`: the places of the start and of the other arguments
    that are tracked."""

    def __init__(self, steps, slope: StageSlope, asked, moving: list):
        self.steps, self.slope, self.moving = steps, slope, moving
        self.rows = {int(k): row for row, k in enumerate(asked)}
        self.known = len(steps.K) == len(steps.B)  # are the slopes of all steps kept?
        self.allowed = 2 * ROUNDING * max(steps.K.max(initial=0.0), -steps.K.min(initial=0.0))

    def __call__(self, *xs) -> tuple:
        states = self.steps.states
        quick = {}
        with changed(depth=0, compared=set()):
            return states, plain_np.array([self.stages(k, states, xs, quick)[1] for k in self.rows])

    def stages(self, k: int, states, xs: tuple, quick: dict | None) -> tuple:
        """Return the states at the stages of a step, and their slopes."""
        A, B, y = self.steps.A[k], self.steps.B[k], states[k]
        if self.known and quick is not None:
            K = self.steps.K[k]
            return [y + row[:i] @ K[:i] for i, row in enumerate(A)], K
        Y = []
        slopes = []
        for i, row in enumerate(A):
            Y.append(combined(y, row, slopes))
            slopes += self.product((None, False), quick, (k, i), Y[i], None, xs, ())
        if quick is not None:
            missed = abs(combined(y, B, slopes) - states[k + 1]).max()
            if missed > ROUNDING * (abs(y).max() + abs(B).sum() * max([abs(K).max() for K in slopes])):
                raise other_values()
        return Y, slopes

    def arguments(self, y, stage: tuple, xs) -> list:
        """Return the arguments of a stage, or tangents of these; `xs`: pairs of a place and an argument."""
        at = stage[0] * self.steps.A.shape[1] + stage[1]
        return [y if p == 0 else x[at] if p == 1 else x for p, x in xs]

    def product(self, kind: tuple, quick: dict | None, at: tuple, y, slope, xs: tuple, v: tuple) -> list:
        """Return the pullback of v to what moves, or the tangent along v, at a stage with this slope. The
        slope None is returned itself.

        `quick`: what has such products at other stages of a sweep over plain arrays, if that is known."""
        given, varying = (*v, *self.arguments(y, at, enumerate(xs))), len(v) + 2
        run = quick.get(kind) if quick else None
        found = None if run is None else run(*given[:varying])
        if found is None:
            found = self.slope.product(kind, quick is not None, self.moving, len(v), given)
            plans = self.slope.plans.get(kind)
            if quick is not None and plans:
                quick[kind] = plans[0].forms["value"].unchecked(given, varying)
        value, *parts = found
        if slope is None:
            return [value]
        rest = value - slope
        if quick is not None and self.known and rest @ rest > self.allowed**2:
            again = self.slope(*given[len(v) :])  # rounded as SciPy has it
            if (abs(again - slope) > self.allowed).any():
                raise other_values()
        return parts

    def pull(self, w: tuple, out: tuple, need, *xs) -> list:
        """Return the cotangents of the arguments."""
        g, linear = or_zeros(w, out), self.linear(out, xs)
        if linear is None:
            found = self.pulled(g, out, xs, False, None)
        else:
            found = split(mapped(joined(g, 0), map=linear, back=True), [xs[p] for p in self.moving])
        by_place = dict(zip(self.moving, found, strict=True))
        return [by_place.get(p) for p in range(len(xs))]

    def push(self, v: tuple, out: tuple, *xs) -> list:
        """Return the tangents of the states and slopes."""
        along = [np.zeros_like(xs[p]) if v[p] is None else v[p] for p in self.moving]
        linear = self.linear(out, xs)
        if linear is None:
            return self.pushed(along, out, xs, False, None)
        return split(mapped(joined(along, 0), map=linear), out)

    def linear(self, out: tuple, xs: tuple) -> AxisMap | None:
        """Return the map of tangents where all else is plain; None: it moves with something."""
        moving = [xs[p] for p in self.moving]
        if any([isinstance(x, Variable) for x in (*out, *xs)]) or any([dtype(x).char != "d" for x in moving]):
            return None

        def by_stack(f: Callable, like) -> Callable:
            def run(z):
                flat, many = rows_of(z) if z.ndim > 1 else z, z.ndim > 1
                # arrays stay plain
                with changed(depth=0, compared=set()), self.slope.recordings(self.moving):
                    found = f(split(flat, like), out, xs, many, {})
                    return joined(found, int(many)).reshape(*z.shape[:-1], -1)

            return run

        size = sum([math.prod(shape(x)) for x in moving])
        return AxisMap(by_stack(self.pushed, moving), size, by_stack(self.pulled, out))

    def pulled(self, w, out: tuple, xs: tuple, many: bool, quick: dict | None) -> list:
        """Return the cotangents of what moves, from the last stage to the first. `many`: of a stack."""
        (ends, slopes), A, B = w, self.steps.A, self.steps.B
        adjoint = ends[..., -1, :]
        terms = dict.fromkeys(self.moving[1:], 0.0)
        for k in reversed(range(len(B))):
            Y, K = self.stages(k, out[0], xs, quick)
            after = adjoint
            row = self.rows.get(k)
            pulled = []
            for i in reversed(range(len(B[k]))):
                g = np.zeros_like(after) if row is None else slopes[..., row, i, :]
                g = combined(g, [B[k, i], *A[k, i + 1 :, i][::-1]], [after, *pulled])
                if quick is not None and not g.any():
                    parts = [np.zeros((*g.shape[:-1], *shape(xs[p]))) for p in self.moving]
                else:
                    parts = self.product((True, many), quick, (k, i), Y[i], K[i], xs, (g,))
                pulled.append(parts[0])
                for p, part in zip(terms, parts[1:], strict=True):
                    terms[p] = terms[p] + part
            adjoint = combined(ends[..., k, :] + after, [1.0] * len(pulled), pulled)
        return [adjoint, *terms.values()]

    def pushed(self, along, out: tuple, xs: tuple, many: bool, quick: dict | None) -> list:
        """Return the tangents, from the first stage to the last."""
        A = self.steps.A
        B = self.steps.B
        moved = dict(zip(self.moving, along, strict=True))
        ends, rows = [along[0]], []
        for k in range(len(B)):
            Y, K = self.stages(k, out[0], xs, quick)
            slopes = []
            for i in range(len(B[k])):
                v = (*self.arguments(combined(ends[-1], A[k, i], slopes), (k, i), moved.items()),)
                slopes += self.product((False, many), quick, (k, i), Y[i], K[i], xs, v)
            ends.append(combined(ends[-1], B[k], slopes))
            if k in self.rows:
                rows.append(np.stack(slopes, -2))
        return [np.stack(ends, -2), np.stack(rows, -3)]


def joined(xs, lead: int):
    """Return arrays as one along the last axis; `lead`: the number of axes of a stack."""
    return np.concatenate([np.reshape(x, (*shape(x)[:lead], -1)) for x in xs], -1)


def split(z, like) -> list:
    """Return the arrays that were joined, with the shapes of these."""
    shapes = [tuple(shape(x)) for x in like]
    ends = [*itertools.accumulate([math.prod(dims) for dims in shapes])]
    rows = zip([0, *ends], ends, shapes, strict=False)
    return [np.reshape(z[..., a:b], (*shape(z)[:-1], *dims)) for a, b, dims in rows]


def combined(y, weights, slopes: list):
    """Return y and the sum of weight times slope."""
    for w, slope in zip(weights, slopes, strict=False):
        y = y + w * slope if w else y
    return y


def swept(steps, asked, right: RightSide, start) -> tuple:
    """Return the states at the ends of the steps, and the slopes of the stages of those that are asked for,
    with derivatives."""
    slope, times = StageSlope(right, steps.T.size), steps.T.reshape(-1)
    end = steps.states[-2] + steps.A[-1, -1] @ steps.K[-1]
    last = end, times[-1]

    def run(values: list):
        found = slope(*last, *map(primal_of, values))
        check_slopes(found, steps.K[-1, -1], end)
        xs = (start, times, *values)
        moving = [k for k, x in enumerate(xs) if k == 0 or holds_tracked(x)]
        sweep = StageSweep(steps, slope, asked, moving)
        if len(moving) == 1 and not holds_tracked(start):
            return sweep(*xs)
        return [*map(handle, bind(joint_primitive(NAME, sweep, sweep.pull, sweep.push), xs, {}))]

    return with_all(slope.first, run)[1]
