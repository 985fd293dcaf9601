"""Trajectories of one solver, by kernels: in one call, or in parts that several processes solve."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as plain_np

from .. import numpy as np
from .._core.arrays import xp_of
from .._core.errors import ArgumentError, DataError, ShapeError
from .._core.primitive import SAMPLED, layout_of, primal_of, seen
from .._core.registry import load
from .._core.scope import OPEN
from .._core.variable import Variable
from .._transforms.batching.watched_traces import values_and_tangents
from .._transforms.tape import value
from ..kernels import recursion
from ..kernels.trace.surroundings import origin, rebuilt_with
from ._arguments import ArgumentLayout, in_library, kernel_rows, plain_times, real_array
from ._functions import fills_first, traced_array, traced_states
from ._large import ArrayFunction, ArrayRecursion, ExplicitStep, SparseStep, on_arrays, with_derivatives
from ._rosenbrock import rosenbrock_step
from ._steps import STIFF, Equation
from ._tsitouras import tsitouras_step

METHODS: dict = {"tsit5": tsitouras_step, "rodas5p": rosenbrock_step}
EXPLICIT, IMPLICIT = METHODS
MOST_STATES = {EXPLICIT: 1000, IMPLICIT: 128}  # of a kernel; the steps of more states run on arrays
PART = 1000  # trajectories of a part
STATUS = 3  # the row of a report
EVENT_SHAPE = "the event {} returned shape {}; it returns one number"
AFTER_END = 1e-12  # of the span: a time so much after the end of a trajectory is its end


def of_one_part(f: Callable, arrays: tuple) -> tuple:
    """Return a function of arrays of their tuple, for `run_parts`."""
    return tuple(f(*arrays))


def of_all_samples(x):
    """Return the values of x, those of all samples of `tg.vmap` at once. What a recording hides stays
    hidden."""
    if not all([t.visibility == SAMPLED for t in OPEN.hiding]):
        return x
    (found,), _ = values_and_tangents(x)
    return found


def fresh_copy(x):
    """Return a copy whose pickle depends on its numbers only, and not on where they come from."""
    made = plain_np.empty(x.shape)
    made[...] = x
    return made


def in_parts(options: tuple, f: Callable) -> Callable:
    """Return a function like f, from arrays to a tuple of arrays, whose last axis is computed in parts."""
    client, store, progress = options

    def computed(*arrays) -> tuple:
        cuts = range(0, max(arrays[0].shape[-1], 1), PART)
        parts = [tuple([fresh_copy(x[..., k : k + PART]) for x in arrays]) for k in cuts]
        solve = load("tapegrad.parallel.workers").run_parts
        found = solve(functools.partial(of_one_part, f), parts, client, store=store, progress=progress)
        return tuple([plain_np.concatenate(x, -1) for x in zip(*found, strict=True)])

    return computed


@dataclass(frozen=True)
class PartOfTrajectories:
    """The rows of a part of the trajectories, as a function of its arrays; the last row is `stiff`."""

    trajectories: "Trajectories"
    purpose: str

    def __call__(self, theta, data) -> tuple:
        found, stiff = self.trajectories.by_kernels(self.purpose, theta, data)
        row = np.broadcast_to(1.0 * stiff, (1, *layout_of(found[0]).shape[1:]))
        return (np.concatenate([*found, row]),)


class Trajectories:
    """The trajectories of one call. `stiff` tells which of them Rodas5P has solved; `before` is the time that
    had been spent on compilation."""

    def __init__(self, solver, state: ArgumentLayout, layout: ArgumentLayout, count: int, known: dict):
        self.solver, self.state, self.layout, self.count = solver, state, layout, count
        self.known = known  # the kernels that these layouts have taken so far
        self.options: tuple | None = None
        self.moves = False  # do the times carry derivatives?
        self.stiff = solver.method == IMPLICIT
        self.before = self.seconds()

    def seconds(self) -> float:
        """Return the time that has been spent on the compilation of the kernels for these layouts."""
        return sum([kernel.compile_seconds for kernel in list(self.known.values())])

    def __getstate__(self) -> dict:
        return self.__dict__ | {"known": {}, "before": 0.0}

    def spreads(self, options: tuple, single: bool) -> None:
        """Set client, store and progress bar."""
        if options == (None, None, False):
            return
        if single:
            raise ArgumentError("ode: client=, store= and progress= are for many trajectories, y0 (n, B)")
        self.options = options

    def rows(self, purpose: str, theta, data) -> tuple:
        """Return the rows of a recursion of `Equation`: the states, and the others.

        theta is (p, B), (p,), or the tuple of arrays of one trajectory."""
        if not (type(theta) is tuple and type(theta[0]) is plain_np.ndarray):
            data = in_library(xp_of(layout_of(theta[0] if type(theta) is tuple else theta)), data)
        self.moves = isinstance(data, Variable)
        if self.options is None:
            found, self.stiff = self.by_kernels(purpose, theta, data)
            return found
        if xp_of(layout_of(theta)) is not plain_np:
            raise ArgumentError("ode: client=, store= and progress= are for NumPy arrays")
        batch = layout_of(theta).shape[1]
        if layout_of(data).ndim == 2:
            data = np.broadcast_to(data[:, :, None], (*layout_of(data).shape, batch))
        of_part = Trajectories(self.solver, self.state, self.layout, self.count, self.known)
        of_part.moves = self.moves
        part = PartOfTrajectories(of_part, purpose)
        (found,) = with_derivatives(part, functools.partial(in_parts, self.options))(theta, data)
        self.stiff = value(found[-1, -1]) > 0.0
        return found[: self.state.count], found[self.state.count : -1]

    def shortened(self, theta, data):
        """Return the states after shortened steps, each by the method of its trajectory."""
        (found, _), _ = self.by_kernels("between", theta, data, self.stiff)
        return found

    def by_kernels(self, purpose: str, theta, data, stiff=None) -> tuple:
        """Return the rows, and which trajectories Rodas5P has solved.

        With the method "auto" it solves those that are found stiff, from their start."""
        method = self.solver.method
        if method in METHODS:
            return self.path(purpose, method, theta, data), method == IMPLICIT
        found = self.path(purpose, EXPLICIT, theta, data)
        if stiff is None:
            stiff = value(primal_of(found[1])[STATUS, -1]) == STIFF
        return self.replaced(purpose, found, stiff, theta, data), stiff

    def replaced(self, purpose: str, found: tuple, stiff, theta, data) -> tuple:
        """Return the rows, those of stiff trajectories by Rodas5P."""
        known = seen(stiff)
        if self.state.count > MOST_STATES[IMPLICIT] if known is None else not known.any():
            return found
        theta = kernel_rows(theta, True) if type(theta) is tuple else theta
        gated = np.concatenate([theta, np.reshape(1.0 * stiff, (1, *layout_of(theta).shape[1:]))])
        others = self.path(purpose, IMPLICIT, gated, data)
        return tuple([np.where(stiff, x, y) for x, y in zip(others, found, strict=True)])

    def path(self, purpose: str, method: str, theta, data) -> tuple:
        """Return the rows by the kernel for states and arguments of these shapes, or by what runs on arrays
        in its place."""
        n = self.state.count
        large = n > MOST_STATES[method]
        if type(theta) is tuple and not large:
            return self.kernel(purpose, method, large).path_of_column(theta, data, n)
        theta = kernel_rows(theta, True) if type(theta) is tuple else theta
        if large:  # before anything is kept
            self.check_large(theta)
        found = self.kernel(purpose, method, large).path(theta, data)
        return found[:n], found[n:]

    def kernel(self, purpose: str, method: str, large: bool):
        """Return the kernel, or what runs on arrays in its place."""
        if (known := self.known.get((purpose, method, self.moves))) is not None:
            return known
        kernels, key = self.solver.kernels, (purpose, method, self.moves, self.state.key, self.layout.key)
        found = kernels.get(key)
        if found is None or not found[1].has_constants_of(self.layout):
            equation = self.equation(method, self.solver.method not in METHODS, large)
            init, step = getattr(equation, purpose)()
            rebuilt_with(step, self.solver.f).__name__ = getattr(self.solver.f, "__name__", "ode")
            made: Any = ArrayRecursion(init, step)
            if not large:
                made = recursion(init, step, missing="step", invalid="nan")
            found = kernels[key] = made, self.layout
        self.before += found[0].compile_seconds
        return self.known.setdefault(key[:3], found[0])

    def check_large(self, theta) -> None:
        """Raise if a system of many states cannot be solved on these arrays."""
        text = f"ode: {origin(self.solver.f)} has {self.state.count} states"
        if xp_of(layout_of(theta)) is not plain_np:
            raise ArgumentError(f"{text}: give NumPy arrays; a device takes smaller systems")
        if layout_of(theta).shape[1:] == (0,):
            raise ShapeError(f"{text}: there are no trajectories")

    def equation(self, method: str, chosen: bool, large: bool = False) -> Equation:
        """Return what is traced; `chosen` says that stiffness chooses the method.

        The functions of a large system take the numbers of the arguments."""
        solver, state, count, restored = self.solver, self.state, self.count, self.layout.restored

        def with_numbers(make: Callable, f: Callable) -> Callable:
            made = make(f)
            return lambda t, y, numbers: made(t, y, restored(numbers))

        def of(make: Callable, f):
            if f is None:
                return None
            return ArrayFunction(functools.partial(with_numbers, make), f) if large else make(f)

        fills = fills_first(solver.f, count)
        slope = of(lambda f: traced_states(f, state, count, fills), solver.f)
        events = [
            (
                of(lambda g: traced_array(g, state, ((), (1,)), EVENT_SHAPE), e.function),
                of(lambda g: traced_states(g, state, count, False), e.change),
                int(e.terminal),
                e.direction,
            )
            for e in solver.events
        ]
        control = solver.control._replace(detects=chosen and method == EXPLICIT)
        gated, most, take = chosen and method == IMPLICIT, solver.most_events, METHODS[method]
        made = Equation(slope, take, control, state.count, restored, events, most, gated, self.moves)
        return on_arrays(made, SparseStep if method == IMPLICIT else ExplicitStep) if large else made

    def inlined(self, arrays, limits) -> tuple:
        """Return the rows at saved times as a part of the kernel that is being traced."""
        method = self.solver.method if self.solver.method in METHODS else EXPLICIT
        init, step = self.equation(method, False).saved()
        rebuilt_with(step, self.solver.f)
        theta = np.concatenate([np.reshape(x, (-1,)) for x in arrays])
        OPEN.tracer.rebuild.captured_state.root(step)
        carry, rows, step = init(theta), [], OPEN.tracer.rebuild(step)
        for interval in limits.T:
            carry, row = step(carry, theta, interval)
            rows.append(row)
        found = np.stack(rows, 1)
        return found[: self.state.count], found[self.state.count :]


class DenseSolution:
    """The solution at any time of its span, ``solution.sol(t)``: the step that contains it, shortened.

    Its result is (n,) for a number t, and (n, m) for m times, followed by B for a batch."""

    def __init__(self, problem: Trajectories, theta, span, t, y):
        self.problem, self.theta, self.span, self.t, self.y = problem, theta, span, t, y

    def __repr__(self) -> str:
        return f"<DenseSolution from {self.span[0]:.6g} to {self.span[1]:.6g}>"

    def __call__(self, t):
        t = real_array(t)
        shape, plain = tuple(layout_of(t).shape), plain_times(t)
        low, high = sorted(self.span)
        if len(shape) > 1 or not ((plain >= low) & (plain <= high)).all():
            raise DataError(
                f"ode: sol(t) has t between {low:.6g} and {high:.6g}, a number or an array of one axis; "
                f"it is {plain}"
            )
        way = -1.0 if self.span[1] < self.span[0] else 1.0
        xp, starts = xp_of(layout_of(self.y)), value(self.t)
        t = in_library(xp, np.reshape(t, (-1,)))
        if not isinstance(starts, Variable):  # it may be on a device
            starts = plain_np.array(starts.tolist())
        single, columns = starts.ndim == 1, way * starts.reshape((len(starts), -1)).T
        wanted = way * plain.reshape(-1)
        before = np.stack([np.searchsorted(x, wanted, side="right") - 1 for x in columns], 1)
        last = np.where(np.isnan(columns), -math.inf, columns).max(1) + AFTER_END * (high - low)
        beyond = wanted[:, None] > last
        width = before.shape[1]
        place = before * width + plain_np.arange(width)
        if single:
            place, beyond = place[:, 0], beyond[:, 0]
        else:
            t = t[:, None]
        # of a plain array, samples of vmap that differ in t take numbers
        begin = np.take(np.reshape(self.t, (-1,)), place)
        y = np.take(np.reshape(self.y, (layout_of(self.y).shape[0], -1)), place, axis=1)
        data = np.concatenate([np.stack([begin, t - begin]), y])
        found = np.where(in_library(xp, beyond), plain_np.nan, self.problem.shortened(self.theta, data))
        n = layout_of(found).shape[0]
        return self.problem.state.parts(found if shape else np.reshape(found, (n, *place.shape[1:])))
