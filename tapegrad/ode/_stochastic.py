"""stochastic_solver: equations dy = drift dt + diffusion dW by Euler-Maruyama or Milstein, in the sense of
Ito.

Milstein's scheme (P. Kloeden and E. Platen, Numerical Solution of Stochastic Differential Equations, 1992,
section 10.3) adds the sum over j, k of (D g_k g_j) (dW_j dW_k - [j = k] h) / 2. It needs no iterated
integrals if the noise commutes, that is, if D g_k g_j = D g_j g_k. The kernel compares them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as plain_np

from .. import numpy as np
from .._core.arrays import xp_of
from .._core.errors import ArgumentError, DataError, ShapeError
from .._core.primitive import is_tracked, layout_of
from .._transforms.jacobian import jacobian
from .._transforms.products import jvp
from .._transforms.tape import value
from ..kernels import recursion
from ..kernels.trace.surroundings import origin, rebuilt_with
from ._arguments import (
    ArgumentLayout,
    check_order,
    in_library,
    kernel_rows,
    layouts_of,
    plain_times,
)
from ._functions import fills_first, traced_array, traced_states
from ._noise import normal_noise
from ._solution import Solution, SolverStats, failure
from ._steps import NOT_FINITE, STEPS_DONE

METHODS = ("euler", "milstein")
NOT_COMMUTING = 5.0  # a status beside those of the other solver
COMMUTING = 1e-8  # the difference of two products, relative to them, that counts as none
WHOLE_STEPS = 1e-9  # of a step: an interval this much longer than whole steps has no further one
REASONS = {
    NOT_FINITE: "the state is not finite after that; a smaller step may help",
    NOT_COMMUTING: "the noise does not commute, so Milstein's scheme would need iterated integrals; "
    "method='euler' does not",
}


def euler_noise(g: Callable, t, y, h, dw) -> tuple:
    """Return what the noise adds to the state, and whether the scheme holds."""
    found = g(t, y)
    return (found * dw if found.ndim == 1 else found @ dw), True


def milstein_noise(g: Callable, t, y, h, dw) -> tuple:
    """Return what the noise adds to the state, and whether the noise commutes."""
    found = g(t, y)
    if found.ndim == 1:  # noise k acts on component k alone
        products = jacobian(lambda y: g(t, y), mode="forward")(y) * found
        others, own = products * (1.0 - plain_np.eye(len(y))), products.diagonal()
        return found * dw + 0.5 * own * (dw * dw - h), value(
            np.abs(others).max() <= COMMUTING * np.abs(own).max()
        )
    count = found.shape[1]
    products = [jvp(lambda y: g(t, y), (y,), (found[:, j],))[1] for j in range(count)]
    added, commutes = found @ dw, True
    for j in range(count):
        for k in range(count):
            added = added + 0.5 * products[j][:, k] * (dw[j] * dw[k] - (h if j == k else 0.0))
            if j < k:
                a, b = products[j][:, k], products[k][:, j]
                commutes = commutes & value(
                    np.abs(a - b).max() <= COMMUTING * np.maximum(np.abs(a), np.abs(b)).max()
                )
    return added, commutes


def walk(drift: Callable, diffusion: Callable, added: Callable, n: int, arguments: Callable) -> tuple:
    """Return `init` and `step` of the recursion over the steps. A datum is time, size and increments."""

    def init(theta) -> tuple:
        return theta[:n], STEPS_DONE

    def step(carry: tuple, theta, datum) -> tuple:
        y, status = carry
        given, t, h = arguments(theta[n:]), datum[0], datum[1]
        change, holds = added(lambda t, y: diffusion(t, y, given), t, y, h, datum[2:])
        new = y + h * drift(t, y, given) + change
        why = np.where(
            plain_np.isfinite(value(new).sum()), np.where(holds, STEPS_DONE, NOT_COMMUTING), NOT_FINITE
        )
        status = np.where(status == STEPS_DONE, why, status)
        y = np.where(status == STEPS_DONE, new, y)
        return (y, status), np.concatenate(
            [np.where(status == STEPS_DONE, y, plain_np.nan), np.stack([status])]
        )

    return init, step


class StepGrid:
    """Steps of about one size from the first time to the saved times."""

    def __init__(self, save_at, t0, size: float):
        if save_at is None:
            raise ArgumentError("ode: give the times of the result, save_at=, to stochastic_solver or call")
        if is_tracked(save_at) or is_tracked(t0):
            raise ArgumentError(
                "ode: a path of a stochastic equation has no derivative by time; give save_at and t0 as "
                "plain numbers"
            )
        self.times = plain_times(plain_np.reshape(plain_np.asarray(value(save_at), float), (-1,)))
        first = self.times[:1] if t0 is None else plain_np.reshape(plain_np.asarray(value(t0), float), (1,))
        check_order(first, self.times)
        if self.times[-1] < first[0]:
            raise DataError("ode: a stochastic equation is solved forwards in time; save_at falls")
        lengths = plain_np.diff(self.times, prepend=first)
        counts = plain_np.ceil(lengths / size - WHOLE_STEPS).astype(int)
        self.ends = plain_np.cumsum(counts)  # of the intervals, as numbers of steps
        self.count = int(self.ends[-1])
        sizes = plain_np.repeat(lengths / plain_np.maximum(counts, 1), counts)
        place = plain_np.arange(self.count) - plain_np.repeat(self.ends - counts, counts)
        starts = plain_np.repeat(self.times - lengths, counts) + place * sizes
        self.steps = plain_np.stack([starts, sizes])


class StochasticSolver:
    """The compiled solver of one stochastic equation; `stochastic_solver` makes it."""

    def __init__(
        self,
        drift: Callable,
        diffusion: Callable,
        method: str,
        size: float,
        save_at,
        noises: int | None,
        nan: bool,
    ):
        self.drift, self.diffusion, self.method, self.size = drift, diffusion, method, size
        self.save_at, self.noises, self.nan = save_at, noises, nan
        self.kernels = {}
        self.layouts = {}

    def __repr__(self) -> str:
        return f"<ode.stochastic_solver of {origin(self.drift)}, {self.method}>"

    def __call__(
        self,
        y0,
        *args,
        seed: int | None = None,
        noise=None,
        samples: int | None = None,
        first: int = 0,
        save_at=None,
        t0=None,
    ) -> Solution:
        """Solve dy = drift(t, y, *args) dt + diffusion(t, y, *args) dW from y0; see `stochastic_solver`."""
        single, state, layout, _, arrays = layouts_of(self.layouts, y0, args)
        theta = kernel_rows(arrays, single)
        grid = StepGrid(self.save_at if save_at is None else save_at, t0, self.size)
        if samples is not None:
            theta = self._spread(theta, samples)
        shape = (self.noises or state.count, grid.count, *layout_of(theta).shape[1:])
        if (seed is None) is (noise is None):
            raise ArgumentError(
                "ode: give either seed=, a whole number, or noise=, normal numbers (noises, steps, B)"
            )
        noise = np.asarray(noise) if seed is None else normal_noise(seed, shape, first)
        if tuple(layout_of(noise).shape) != shape:
            raise ShapeError(
                f"ode: noise has shape {tuple(layout_of(noise).shape)}; it is (noises, steps, B), here "
                f"{shape}"
            )
        n, xp = state.count, xp_of(layout_of(theta))
        steps = grid.steps if single else plain_np.broadcast_to(grid.steps[:, :, None], (2, *shape[1:]))
        roots = plain_np.sqrt(steps[1])
        data = np.concatenate([in_library(xp, steps), in_library(xp, roots) * in_library(xp, noise)])
        kernel = self._kernel(state, layout, len(args))
        before = kernel.compile_seconds
        found = kernel.path(theta, data)
        report = value(found[n])
        if not self.nan and (report > 0).any():
            self._refuse(np.array(report.tolist()), grid, single)
        start = np.reshape(theta[:n], (n, 1, *shape[2:]))
        y = state.parts(np.concatenate([start, found[:n]], 1)[:, grid.ends])
        failed = (report > 0).any(0)
        none = 0 * failed
        stats = SolverStats(grid.count + none, none, none, kernel.compile_seconds - before)
        return Solution(y, grid.times, (), -1 * failed, stats)

    def _spread(self, theta, samples: int):
        """Return the rows of as many trajectories."""
        shape = tuple(layout_of(theta).shape)
        if len(shape) != 2 or shape[1] not in (1, samples):
            raise ShapeError(
                f"ode: samples={samples} needs y0 (n, 1) or (n, {samples}), and arguments that fit"
            )
        return np.broadcast_to(theta, (shape[0], samples))

    def _kernel(self, state: ArgumentLayout, layout: ArgumentLayout, count: int):
        """Return the kernel for states and arguments of these shapes."""
        found = self.kernels.get((state.key, layout.key))
        if found is None or not found[1].has_constants_of(layout):
            drift, diffusion = [
                traced_states(f, state, count, fills_first(f, count)) for f in (self.drift, self.diffusion)
            ]
            if self.noises is not None:
                shape = state.count, self.noises
                text = f"{{}} returned shape {{}}; with noises={self.noises} it is {shape}"
                diffusion = traced_array(self.diffusion, state, (shape,), text)
            added = milstein_noise if self.method == "milstein" else euler_noise
            init, step = walk(drift, diffusion, added, state.count, layout.restored)
            rebuilt_with(step, self.drift).__name__ = getattr(self.drift, "__name__", "ode")
            made = recursion(init, step, missing="step", invalid="nan")
            found = self.kernels[state.key, layout.key] = made, layout
        return found[0]

    def _refuse(self, status, grid: StepGrid, single: bool) -> None:
        """Raise for the first trajectory that failed."""
        status = status.reshape(grid.count, -1)
        raise failure(
            self.drift, status, plain_np.broadcast_to(grid.steps[0][:, None], status.shape), REASONS, single
        )


def stochastic_solver(
    drift: Callable,
    diffusion: Callable,
    method: str = "milstein",
    *,
    step: float,
    save_at: Any = None,
    noises: int | None = None,
    on_failure: str = "raise",
) -> StochasticSolver:
    """Compile a solver of the stochastic equation dy = drift(t, y, *args) dt + diffusion(t, y, *args) dW, of
    Ito.

    One call solves one trajectory or thousands, with steps of one size. The derivative is that of the path
    for its normal numbers, to any order. These depend on the seed, the number of the trajectory and the step
    only, whatever else is in the batch.

    Parameters
    ----------
    drift, diffusion : callable
        ``drift(t, y, *args)`` returns (n,). So does ``diffusion``, and then each component has a noise of its
        own. With `noises` it returns (n, noises).
    method : {'milstein', 'euler'}
        'milstein' has strong order 1. Its noise must commute: a diagonal one whose component k depends on
        y[k] only does, and so does a single one. Otherwise it raises. 'euler' has order 1/2 and takes any
        noise.
    step : float
        The largest size of a step. Saved times are ends of steps.
    save_at : array, optional
        The rising times of the result. A call may give others.
    noises : int, optional
        The number of Wiener processes.
    on_failure : {'raise', 'nan'}
        What happens if a state is not finite: an error that names the trajectory, or nan in its place.

    Returns
    -------
    callable
        ``solve(y0, *args, seed=, noise=, samples=, first=0, save_at=None, t0=None)`` returns a `Solution`.
        y0 and args are those of `solver`. `samples` solves a start (n, 1) so many times. `first` is the
        number of the first trajectory for the seed. `noise` gives normal numbers (noises, steps, B) instead
        of a seed, and may be differentiated.

    Raises
    ------
    ArgumentError, DataError, ShapeError
        In a call, if arguments do not fit.
    ConvergenceError
        In a call, if a state is not finite, or if the noise does not commute.

    See Also
    --------
    normal_noise : The numbers of a seed.
    solver : Equations without noise.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> solve = tg.ode.stochastic_solver(lambda t, y, r, s: r * y, lambda t, y, r, s: s * y, step=0.01, save_at=[0.0, 1.0])
    >>> mean = lambda r: solve(np.ones((1, 1)), r, 0.2, seed=1, samples=10_000).y[0, -1].mean()
    >>> bool(abs(mean(0.5) - np.exp(0.5)) < 0.01)
    True
    >>> bool(abs(tg.grad(mean)(0.5) - np.exp(0.5)) < 0.03)
    True
    """
    if method not in METHODS:
        raise ArgumentError(f"ode.stochastic_solver: method={method!r}; it is one of {[*METHODS]}")
    if on_failure not in ("raise", "nan"):
        raise ArgumentError(f"ode.stochastic_solver: on_failure={on_failure!r}; it is 'raise' or 'nan'")
    if not (step > 0 and math.isfinite(step) and (noises is None or noises >= 1)):
        raise ArgumentError(
            f"ode.stochastic_solver: step={step!r} is above 0, and noises={noises!r} at least 1"
        )
    return StochasticSolver(drift, diffusion, method, float(step), save_at, noises, on_failure == "nan")
