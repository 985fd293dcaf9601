"""solver: a right-hand side becomes a compiled, differentiable solver for one or thousands of trajectories."""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as plain_np

from .. import numpy as np
from .._core.errors import ArgumentError, ConvergenceError, DataError, ShapeError
from .._core.primitive import layout_of
from .._core.trees import leaves, tree_map
from .._transforms.tape import value
from ..kernels.generated.kernel import Recursion, recursion
from ..kernels.trace.surroundings import origin, rebuilt_with
from ._rosenbrock import rosenbrock_step
from ._steps import NOT_FINITE, STEP_LIMIT, TOO_SMALL, StepControl, trajectory
from ._tsitouras import tsitouras_step

METHODS = {"tsit5": tsitouras_step, "rodas5p": rosenbrock_step}
REPORTED = 4  # rows of a step's output after the state
REASONS = {
    STEP_LIMIT: "more than max_steps={most} steps are needed; for a stiff equation use method='rodas5p'",
    TOO_SMALL: "the step size fell below the spacing of floats: the solution may blow up there, or f may jump",
    NOT_FINITE: "f is not finite there, however small the step",
}


@dataclass(frozen=True, repr=False)
class Solution:
    """Trajectories at the saved times, made by a `solver`.

    Attributes
    ----------
    y : array
        The states, of shape (n, times) or (n, times, B). They carry derivatives.
    t : array
        The saved times.
    success : array
        Whether each trajectory reached the last time: a bool, or (B,).
    accepted, rejected : array
        The numbers of steps of each trajectory: a number, or (B,).
    """

    y: Any
    t: Any
    success: Any
    accepted: Any
    rejected: Any

    def __repr__(self) -> str:
        shape = tuple(layout_of(self.y).shape)
        return f"<Solution y {shape}: {self.accepted.sum():.0f} steps, {self.rejected.sum():.0f} rejected>"


class Solver:
    """The compiled solver of one right-hand side; `solver` makes it."""

    def __init__(self, f: Callable, method: str, control: StepControl, save_at: Any, nan: bool):
        self.f, self.method, self.control, self.save_at, self.nan = f, method, control, save_at, nan
        self.given = None if save_at is None else intervals_of(save_at, None)
        self.kernels: dict = {}

    def __repr__(self) -> str:
        return f"<ode.solver of {origin(self.f)}, {self.method}>"

    def __call__(self, y0: Any, *args: Any, save_at: Any = None, t0: Any = None) -> Solution:
        """Solve dy/dt = f(t, y, *args) from y0; see `solver`."""
        y0 = real_array(y0)
        shape = layout_of(y0).shape
        if len(shape) not in (1, 2):
            raise ShapeError(f"ode.solver: y0 has shape {shape}; it is (n,) for one trajectory, or (n, B) for B of them")
        n, single = shape[0], len(shape) == 1
        rows = [y0, *[real_array(a) for a in leaves(args) if is_real(a)]]
        theta = np.concatenate([np.reshape(x, (-1,)) for x in rows]) if single else stacked_samples(rows)
        moved = save_at is not None or t0 is not None or self.given is None
        times, intervals = intervals_of(self.save_at if save_at is None else save_at, t0) if moved else self.given
        found = self._kernel(n, args, single).path(theta, intervals)
        report = value(found)[n:]
        if not self.nan and (report[3] > 0).any():
            self._refuse(plain_np.asarray(report).reshape(REPORTED, len(times), -1), single)
        return Solution(found[:n], times, report[3, -1] == 0, report[1, -1], report[2, -1])

    # --- kernels ---

    def _kernel(self, n: int, args: tuple, single: bool) -> Recursion:
        """Return the kernel for states and arguments of these shapes."""
        layout = ArgumentLayout(args, single)
        found = self.kernels.get((n, layout.key))
        if found is None or any([a is not b for a, b in zip(found[1].constants, layout.constants, strict=True)]):
            init, step = trajectory(self._slope(n, len(args)), METHODS[self.method], self.control, n, layout.restored)
            rebuilt_with(step, self.f).__name__ = getattr(self.f, "__name__", "ode")
            found = self.kernels[n, layout.key] = recursion(init, step, missing="step", invalid="nan"), layout
        return found[0]

    def _slope(self, n: int, count: int) -> Callable:
        f, fills = self.f, fills_first(self.f, count)
        refuse = functools.partial(self._refuse_shape, n)

        def slope(t, y, args):
            if fills:
                dy = np_.zeros(n)
                f(dy, t, y.copy(), *args)
            else:
                dy = np_.asarray(f(t, y.copy(), *args))
            if dy.shape != (n,):
                refuse(dy.shape)
            return dy

        np_ = plain_np
        return rebuilt_with(slope, f)

    def _refuse_shape(self, n: int, shape: tuple) -> None:
        raise ShapeError(f"ode.solver: {origin(self.f)} returned shape {tuple(shape)} for a state of shape ({n},)")

    def _refuse(self, report: Any, single: bool) -> None:
        at = report[3].argmax(0)  # the first time saved after the failure has the status; later ones keep it
        failed = plain_np.flatnonzero(report[3, -1] > 0)
        k = int(failed[0])
        t, status = report[0, at[k], k], report[3, at[k], k]
        who = "" if single else f"sample {k} of {report.shape[-1]} ({len(failed)} failed): "
        raise ConvergenceError(
            f"ode.solver: {who}{origin(self.f)} was solved until t = {t:.6g}: {REASONS[status].format(most=self.control.most_steps)}. "
            "on_failure='nan' returns nan for what is missing"
        )


class ArgumentLayout:
    """How the arguments of one trajectory are made of its numbers.

    Leaves that hold no real number, such as integers and functions, are constants of the code."""

    def __init__(self, args: tuple, single: bool):
        self.shapes: list = []  # of each leaf of one sample; None: a constant
        self.constants: list = []
        self.tree = tree_map(lambda x: self._added(x, single), args)
        self.key = f"{self.tree!r} {self.shapes}"

    def _added(self, x: Any, single: bool) -> int:
        shape = tuple(layout_of(x).shape) if hasattr(x, "shape") else ()
        self.shapes.append((shape if single else shape[:-1]) if is_real(x) else None)
        self.constants.append(None if is_real(x) else x)
        return len(self.shapes) - 1

    def restored(self, numbers: Any) -> Any:
        """Return the arguments, with the numbers in place."""
        sizes = [0 if s is None else math.prod(s) for s in self.shapes]
        ends = plain_np.cumsum(sizes)

        def leaf(k: int) -> Any:
            shape, last = self.shapes[k], ends[k]
            if shape is None:
                return self.constants[k]
            return numbers[last - sizes[k] : last].reshape(shape) if shape else numbers[last - 1]

        return tree_map(leaf, self.tree)


def real_array(x: Any) -> Any:
    """Return an argument as an array of float64."""
    x = np.asarray(x)
    dtype = layout_of(x).dtype
    if dtype.kind not in "fiub":
        raise ArgumentError(f"ode.solver: states and arguments are real; one has dtype {dtype}")
    return x if dtype == float else x.astype(float)


def stacked_samples(arrays: list) -> Any:
    """Return rows (numbers, B) of arrays whose last axis is that of the samples; numbers are shared."""
    shapes = [layout_of(x).shape or (1,) for x in arrays]
    rows = [np.reshape(x, (math.prod(s[:-1]), s[-1])) for x, s in zip(arrays, shapes, strict=True)]
    counts = [layout_of(x).shape[1] for x in rows]
    batch = max(counts)
    for x, count in zip(arrays, counts, strict=True):
        if count not in (1, batch):
            raise ShapeError(
                f"ode.solver: y0 and the arguments have {count} and {batch} samples (shape {tuple(layout_of(x).shape)}). With y0 (n, B) the "
                "last axis of each array is that of the samples; give an array that all samples share as theta[..., None]"
            )
    return np.concatenate([np.broadcast_to(x, (layout_of(x).shape[0], batch)) for x in rows])


def intervals_of(save_at: Any, t0: Any) -> tuple:
    """Return the saved times, and the intervals that they end, (2, N)."""
    if save_at is None:
        raise ArgumentError("ode.solver: give the times of the result, save_at=, to the solver or to the call")
    times = np.reshape(real_array(save_at), (-1,))
    starts = np.concatenate([times[:1] if t0 is None else np.reshape(real_array(t0), (1,)), times[:-1]])
    lengths = value(times) - value(starts)
    if not len(lengths) or not np.isfinite(lengths).all() or not ((lengths >= 0).all() or (lengths <= 0).all()):
        raise DataError(f"ode.solver: t0 and save_at must be finite, and rise or fall; they are {value(starts)[:1]} and {value(times)}")
    return plain_times(times), np.stack([starts, times])


def plain_times(times: Any) -> Any:
    times = plain_np.array(value(times))
    times.flags.writeable = False
    return times


def is_real(x: Any) -> bool:
    """Return whether an argument is a number or array of the kernel: floats, and arrays of integers."""
    return isinstance(x, float) or getattr(getattr(x, "dtype", None), "kind", "") in ("f", "i", "u")


def fills_first(f: Callable, count: int) -> bool:
    """Return whether f is f(dy, t, y, ...), which fills dy, and not f(t, y, ...)."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return False
    for given, found in ((2 + count, False), (3 + count, True)):
        try:
            signature.bind(*[None] * given)
        except TypeError:
            continue
        return found
    raise ArgumentError(f"ode.solver: {origin(f)} takes neither (t, y) nor (dy, t, y), followed by the {count} arguments of the call")


def solver(
    f: Callable,
    method: str = "tsit5",
    *,
    rtol: float = 1e-6,
    atol: Any = 1e-9,
    save_at: Any = None,
    first_step: float | None = None,
    max_steps: int = 4096,
    on_failure: str = "raise",
) -> Solver:
    """Compile a solver of the differential equation dy/dt = f(t, y, *args).

    One call solves one trajectory or thousands. Each has its own adaptive steps. The derivative is that of
    the accepted steps, with their sizes held constant, to any order.

    Parameters
    ----------
    f : callable
        The right-hand side of one trajectory, ``f(t, y, *args)``, as for `scipy.integrate.solve_ivp`. A
        function ``f(dy, t, y, *args)`` fills dy instead. It may use what kernel functions may use.
    method : {'tsit5', 'rodas5p'}
        'tsit5' is explicit. 'rodas5p' is implicit, for stiff equations; it needs no Jacobian from you.
    rtol, atol : float
        The error of a step is kept below ``atol + rtol * abs(y)``. atol may be an array (n,).
    save_at : array, optional
        The times of the result, rising or falling. A call may give others.
    first_step : float, optional
        The size of the first step; chosen by default.
    max_steps : int
        The largest number of steps of a trajectory.
    on_failure : {'raise', 'nan'}
        What happens if a trajectory cannot be solved: an error that names it, or nan in its place.

    Returns
    -------
    callable
        ``solve(y0, *args, save_at=None, t0=None)`` returns a `Solution`. y0 is (n,), or (n, B) for B
        trajectories; then the last axis of each array in args is that of the trajectories too. Numbers are
        shared. `t0` is the time of y0, by default the first of `save_at`. args may be trees.

    Raises
    ------
    ArgumentError, DataError, ShapeError
        In a call, if arguments do not fit.
    ConvergenceError
        In a call, if a trajectory cannot be solved.

    See Also
    --------
    tapegrad.kernels.map : Other functions of one sample.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> solve = tg.ode.solver(lambda t, y, rate: -rate * y, save_at=[0.0, 1.0], rtol=1e-9)
    >>> solve(np.array([2.0]), 0.5).y.round(6)
    array([[2.      , 1.213061]])
    >>> rates = np.array([0.5, 1.0, 2.0])
    >>> solve(np.ones((1, 1)), rates).y[0, -1].round(6)
    array([0.606531, 0.367879, 0.135335])
    >>> tg.grad(lambda r: solve(np.ones((1, 1)), r).y[0, -1].sum())(rates).round(6)
    array([-0.606531, -0.367879, -0.135335])
    """
    if method not in METHODS:
        raise ArgumentError(f"ode.solver: method={method!r}; it is one of {[*METHODS]}")
    if on_failure not in ("raise", "nan"):
        raise ArgumentError(f"ode.solver: on_failure={on_failure!r}; it is 'raise' or 'nan'")
    atol = plain_np.asarray(atol, float)
    if not (rtol > 0 and (atol >= 0).all() and max_steps >= 1 and (first_step is None or first_step > 0)):
        raise ArgumentError("ode.solver: rtol and first_step are above 0, atol is not below 0, and max_steps is at least 1")
    control = StepControl(float(rtol), atol if atol.ndim else float(atol), float(first_step or 0.0), int(max_steps))
    return Solver(f, method, control, save_at, on_failure == "nan")
