"""solver: a right-hand side becomes a compiled solver of one or thousands of trajectories, with derivatives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.arrays import xp_of
from .._core.errors import ArgumentError, ConvergenceError, ShapeError
from .._core.primitive import layout_of
from .._transforms.tape import value
from ..kernels import recursion
from ..kernels.trace.surroundings import origin, rebuilt_with
from ._arguments import ArgumentLayout, Intervals, fills_first, in_library, kernel_rows
from ._rosenbrock import rosenbrock_step
from ._steps import NOT_FINITE, STEP_LIMIT, TOO_SMALL, StepControl, trajectory
from ._tsitouras import tsitouras_step

METHODS = {"tsit5": tsitouras_step, "rodas5p": rosenbrock_step}
REPORTED = 4  # rows of a step's output after the state: time, accepted and rejected steps, status
REASONS = {
    STEP_LIMIT: "more than max_steps={most} steps are needed; a stiff equation wants method='rodas5p'",
    TOO_SMALL: "the step size fell below the spacing of floats: the solution may blow up, or f may jump",
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
        self.given = None if save_at is None else Intervals(save_at, None)
        self.kernels: dict = {}

    def __repr__(self) -> str:
        return f"<ode.solver of {origin(self.f)}, {self.method}>"

    def __call__(self, y0: Any, *args: Any, save_at: Any = None, t0: Any = None, doses: Any = None) -> Solution:
        """Solve dy/dt = f(t, y, *args) from y0; see `solver`."""
        theta, n = kernel_rows(y0, args)
        if np.shape(self.control.atol) not in ((), (n,)):
            raise ShapeError(f"ode.solver: atol has shape {np.shape(self.control.atol)} for a state of shape ({n},)")
        single = layout_of(theta).ndim == 1
        if save_at is None is t0 and doses is None and self.given is not None:
            intervals = self.given
        else:
            intervals = Intervals(self.save_at if save_at is None else save_at, t0, doses, n)
        data = in_library(xp_of(layout_of(theta)), intervals.data)
        found = self._kernel(n, args, single).path(theta, data)
        if intervals.saved is not None:
            found = found[:, intervals.saved]
        report = value(found)[n:]
        if not self.nan and (report[3] > 0).any():
            self._refuse(np.array(report.tolist()).reshape(REPORTED, len(intervals.times), -1), single)
        return Solution(found[:n], intervals.times, report[3, -1] == 0, report[1, -1], report[2, -1])

    def _kernel(self, n: int, args: tuple, single: bool) -> Any:
        """Return the kernel for states and arguments of these shapes."""
        layout = ArgumentLayout(args, single)
        found = self.kernels.get((n, layout.key))
        if found is None or not found[1].has_constants_of(layout):
            slope = self._slope(n, len(args))
            init, step = trajectory(slope, METHODS[self.method], self.control, n, layout.restored)
            rebuilt_with(step, self.f).__name__ = getattr(self.f, "__name__", "ode")
            made = recursion(init, step, missing="step", invalid="nan")
            found = self.kernels[n, layout.key] = made, layout
        return found[0]

    def _slope(self, n: int, count: int) -> Callable:
        """Return the right-hand side as (t, y, args) -> (n,), to be traced."""
        f, fills, refuse = self.f, fills_first(self.f, count, origin(self.f)), self._refuse_slope

        def slope(t, y, args):
            if fills:
                dy = np.zeros(n)
                found = f(dy, t, y.copy(), *args)
            else:
                dy = found = np.asarray(f(t, y.copy(), *args))
            if dy.shape != (n,) or (fills and found is not None):
                refuse(n, count, dy.shape)
            return dy

        return rebuilt_with(slope, f)

    def _refuse_slope(self, n: int, count: int, shape: tuple) -> None:
        if shape != (n,):
            raise ShapeError(f"ode.solver: {origin(self.f)} returned shape {tuple(shape)} for a state of shape ({n},)")
        raise ArgumentError(
            f"ode.solver: {origin(self.f)} takes {3 + count} arguments, so it is called as f(dy, t, y, ...) and fills "
            "dy, yet it returned a value. If it is f(t, y, ...), the call lacks an argument: solve(y0, theta)"
        )

    def _refuse(self, report: Any, single: bool) -> None:
        """Raise for the first trajectory that failed; its status and time stay until the end."""
        failed = np.flatnonzero(report[3, -1] > 0)
        k, count = int(failed[0]), report.shape[-1]
        at = report[3, :, k].argmax()
        why = REASONS[report[3, at, k]].format(most=self.control.most_steps)
        who = "" if single else f"sample {k} of {count} ({len(failed)} failed): "
        raise ConvergenceError(
            f"ode.solver: {who}{origin(self.f)} was solved until t = {report[0, at, k]:.6g}: {why}. "
            "on_failure='nan' returns nan for what is missing"
        )


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
        ``solve(y0, *args, save_at=None, t0=None, doses=None)`` returns a `Solution`. y0 is (n,), or (n, B)
        for B trajectories; then the last axis of each array in args is that of the trajectories too. Numbers
        are shared. args may be trees. `t0` is the time of y0, by default the first of `save_at`. `doses` is a
        pair of times (K,) and amounts (n, K) or (n, K, B), which are added to the state at these times. A
        state saved at the time of a dose is that before it.

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
    atol = np.asarray(atol, float)
    if not (rtol > 0 and (atol >= 0).all() and max_steps >= 1 and (first_step is None or first_step > 0)):
        raise ArgumentError("ode.solver: rtol and first_step are above 0, atol is not below 0, and max_steps is at least 1")
    control = StepControl(float(rtol), atol if atol.ndim else float(atol), float(first_step or 0.0), int(max_steps))
    return Solver(f, method, control, save_at, on_failure == "nan")
