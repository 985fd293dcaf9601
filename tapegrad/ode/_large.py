"""Systems of many states: the steps of a solver on arrays, one trajectory after another.

The steps are those of the kernels. Implicit ones have a sparse Jacobian and one sparse factorisation each. A
derivative runs each accepted step again, so only the states between steps are kept."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as plain_np
from scipy import sparse

from .. import numpy as np
from .. import scipy
from .._core.errors import GuardError
from .._core.primitive import layout_of, seen
from .._core.registry import SHADOW_MAKERS, load
from .._core.trees import leaves, with_leaves
from .._core.variable import Variable
from .._transforms.arguments import user_name
from .._transforms.custom_rule import rule
from .._transforms.products import jvp, vjp
from .._transforms.rebind import leaving_nothing
from .._transforms.tape import value
from ..kernels import while_loop
from ..kernels.trace.loops import while_loop_in_segments
from ._rosenbrock import GAMMA, dense_solver, rosenbrock_step
from ._steps import Equation, Interval, Progress
from ._tsitouras import tsitouras_step

CONSTANT_PARTS = ("at", "size", "last_root", "accepted", "rejected", "status", "stiff")  # of Progress
MOST_BRANCHES = 8  # of f that have a plan at once
SAME_AGAIN = 1e-8  # the difference of values that are computed again, relative to the largest
QUIET: dict = {"all": "ignore"}  # a step that is not finite is tried again with another size


def filled(changes: tuple, like: tuple) -> list:
    """Return tangents or cotangents, zeros in place of None."""
    return [np.zeros_like(x) if dx is None else dx for dx, x in zip(changes, like, strict=True)]


@dataclass(frozen=True)
class ArrayDerivative:
    """The pullback or pushforward of a function of arrays, of cotangents or tangents and the arguments."""

    f: Callable
    seeds: int  # the number of cotangents or tangents
    back: bool

    def __call__(self, *arrays) -> tuple:
        seeds, given = arrays[: self.seeds], arrays[self.seeds :]
        return tuple(vjp(self.f, *given)[1](seeds) if self.back else jvp(self.f, given, seeds)[1])


def with_derivatives(f: Callable, run: Callable) -> Callable:
    """Return the function run(f), from arrays to a tuple of arrays. Its derivatives are such functions of
    those of f, to any order."""

    def pull(w: tuple, out: tuple, *arrays) -> tuple:
        return with_derivatives(ArrayDerivative(f, len(w), True), run)(*filled(w, out), *arrays)

    def push(t: tuple, out: tuple, *arrays) -> tuple:
        return with_derivatives(ArrayDerivative(f, len(t), False), run)(*filled(t, arrays), *arrays)

    return rule(run(f), vjp=pull, jvp=push, pure=True)


def without_handles(f: Callable) -> Callable:
    """Return a function like f with plain arrays in place of the Variables that no transform watches."""
    plain = lambda x: x._value if isinstance(x, Variable) and x._trace is None else x
    return lambda *arrays: tuple(map(plain, f(*arrays)))


def recomputed(f: Callable) -> Callable:
    """Return a function of arrays like f that keeps its arguments only. Its derivatives run f again."""

    def check(out, found) -> None:
        first, now = [
            plain_np.concatenate([plain_np.ravel(x) for x in leaves(value(v))]) for v in (out, found)
        ]
        if not plain_np.allclose(first, now, 0.0, SAME_AGAIN * abs(first).max(initial=0.0), equal_nan=True):
            raise GuardError(
                f"ode: {f.__name__} has given other values when it was called again, for the derivative. "
                "What it draws or alters must be an argument"
            )

    def pull(w, out, *arrays):
        with plain_np.errstate(**QUIET), leaving_nothing(f, w, arrays) as again:
            found, pullback = vjp(again, *arrays)
            check(out, found)
            return pullback(w)

    def push(t: tuple, out, *arrays):
        with plain_np.errstate(**QUIET), leaving_nothing(f, t, arrays) as again:
            found, tangents = jvp(again, arrays, tuple(filled(t, arrays)))
            check(out, found)
            return tangents

    return rule(f, vjp=pull, jvp=push, pure=True)


class ArrayFunction:
    """A function (t, y, *args) of the user as one of arrays (t, y, numbers). Transforms follow what it
    captures."""

    def __init__(self, make: Callable, f: Callable):
        self.make, self.f, self.run, self.__name__ = make, f, make(f), user_name(f)

    def __call__(self, t, y, numbers):
        return self.run(t, y, numbers)


class ExplicitStep:
    """A step of an explicit method as a function of arrays."""

    def __init__(self, f):
        self.f, self.__name__ = f, f.__name__

    def __call__(self, t, y, slope, h, numbers) -> tuple:
        return tsitouras_step(lambda t, y: self.f(t, y, numbers), t, y, slope, h)


class SparseJacobian:
    """The Jacobian by y of a function, with a plan for each of its branches; None where no pattern can be
    found, as of a function that counts its calls."""

    def __init__(self, search, plans: list):
        self.search, self.plans = search, plans

    def __call__(self, *at):
        for plan in self.plans:
            try:
                return plan(*at)
            except GuardError:  # f takes another branch here
                continue
        if self.search is None:
            return None
        try:
            found = self.search.at(*map(value, at), quiet=True)
        except GuardError:
            self.search = None
            return None
        self.plans[:] = [found, *self.plans[: MOST_BRANCHES - 1]]
        return found(*at)


class SparseStep(ExplicitStep):
    """A step of Rodas5P with a sparse Jacobian."""

    def __init__(self, f: ArrayFunction, jacobian: SparseJacobian | None = None):
        super().__init__(f)
        if jacobian is None:
            search = load("tapegrad.sparse").Renewed("jacobian", f, (), argnum=1, format="csc")
            jacobian = SparseJacobian(search, [])
        self.jacobian = jacobian

    def __call__(self, t, y, slope, h, numbers) -> tuple:
        def solver(f: Callable, t: Any, y: Any, h: Any) -> Callable:
            J, one = self.jacobian(t, y, numbers), sparse.eye_array(len(y), format="csc")
            if J is None:
                return dense_solver(f, t, y, h)
            return scipy.sparse.linalg.splu(J * (-GAMMA * h) + one).solve

        return rosenbrock_step(lambda t, y: self.f(t, y, numbers), t, y, slope, h, solver)


SHADOW_MAKERS.update(
    {
        ArrayFunction: lambda shadow, x: ArrayFunction(x.make, shadow(x.f)),
        ExplicitStep: lambda shadow, x: ExplicitStep(shadow(x.f)),
        SparseJacobian: lambda shadow, x: SparseJacobian(x.search, [*map(shadow, x.plans)]),
        SparseStep: lambda shadow, x: SparseStep(shadow(x.f), shadow(x.jacobian)),
    }
)


class ArrayInterval(Interval):
    """The steps of a trajectory on arrays. `again(c, steps)` takes steps and keeps what was carried before
    the first of them; all steps of the first segment are kept."""

    again: Callable

    def repeated(self, c: Progress) -> Progress:
        most = self.control.most_steps
        return while_loop_in_segments(self.going, self.advanced, c, most, self.segment, lanes=1, least=1)

    def segment(self, c: Progress, steps: int) -> Progress:
        """Return what is carried after so many steps."""
        left = steps - int(c.accepted + c.rejected)
        return while_loop(self.going, self.advanced, c, left) if left > 0 else self.again(c, steps)


class ArrayEquation(Equation):
    """An equation whose recursions run on arrays. Its functions take the numbers of the arguments."""

    @staticmethod
    def steps(*given) -> Interval:
        return ArrayInterval(*given)

    def interval(self, theta, limits) -> Interval:
        steps: Any = super().interval(theta, limits)
        take, numbers = self.take, theta[self.n :]
        steps.take = lambda f, t, y, slope, h: take(np.asarray(t), y, slope, np.asarray(h), numbers)
        steps.again = functools.partial(self.recomputed_segment, theta, limits)
        return steps

    def recomputed_segment(self, theta, limits, c: Progress, steps: int) -> Progress:
        """Return what is carried after so many steps, of which a derivative keeps the first start only."""

        def taken(theta, limits, *numbers) -> tuple:
            interval = self.interval(theta, limits)
            after = while_loop(interval.going, interval.advanced, with_leaves(c, iter(numbers)), steps)
            return tuple(map(np.asarray, leaves(after)))

        taken.__name__ = self.f.__name__
        after = with_leaves(c, iter(recomputed(taken)(theta, limits, *map(np.asarray, leaves(c)))))
        plain = {name: value(getattr(after, name)) for name in CONSTANT_PARTS}
        return after._replace(**plain)


def on_arrays(equation: Equation, step: type[ExplicitStep]) -> ArrayEquation:
    """Return an equation of `ArrayFunction`s as one whose steps and functions are recomputed."""
    events = [(recomputed(g), change and recomputed(change), *kind) for g, change, *kind in equation.events]
    return ArrayEquation(
        *equation._replace(
            f=recomputed(equation.f),
            take=recomputed(step(equation.f)),
            arguments=lambda numbers: numbers,
            events=events,
        )
    )


class ArrayRecursion:
    """A recursion of an `ArrayEquation` on arrays."""

    compile_seconds = 0.0

    def __init__(self, init: Callable, step: Callable):
        self.init, self.step = init, step

    def path(self, theta, data):
        """Return the rows of each datum, (numbers, data), or (numbers, data, B)."""
        if seen(theta) is not None is not seen(data):
            return self.rows(theta, data)
        # in a recording one operation; of samples of `tg.vmap`, one after another
        return with_derivatives(lambda *arrays: (self.rows(*arrays),), without_handles)(theta, data)[0]

    def rows(self, theta, data):
        """Return these rows, of arrays whose values can be seen."""
        if layout_of(theta).ndim == 1:
            return self.of_one(theta, data)
        each = range(layout_of(theta).shape[1])
        return np.stack(
            [self.of_one(theta[:, k], data if data.ndim == 2 else data[..., k]) for k in each], -1
        )

    def of_one(self, theta, data):
        carry, rows = self.init(theta), []
        with plain_np.errstate(**QUIET):
            for k in range(layout_of(data).shape[1]):
                carry, row = self.step(carry, theta, data[:, k])
                rows.append(row)
        return np.stack(rows, 1)
