"""solver: a right-hand side becomes a compiled solver of one or thousands of trajectories, with
derivatives."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._core.arrays import xp_of
from .._core.errors import ArgumentError, ShapeError
from .._core.primitive import layout_of
from .._core.scope import OPEN
from .._core.trees import is_node
from .._transforms.tape import value
from ..kernels import recursion
from ..kernels.trace.surroundings import origin, rebuilt_with
from ..kernels.trace.symbolic import Sym
from ._arguments import ArgumentLayout, Intervals, in_library, is_single, kernel_rows, state_tree
from ._events import Event
from ._functions import fills_first, traced_number, traced_states
from ._rosenbrock import rosenbrock_step
from ._solution import Solution, event_records, failure
from ._steps import NOT_FINITE, STEP_LIMIT, TOO_MANY_EVENTS, TOO_SMALL, StepControl, trajectory
from ._tsitouras import tsitouras_step

METHODS = {"tsit5": tsitouras_step, "rodas5p": rosenbrock_step}
REPORTED = 4  # rows of a step's output after the state: time, accepted and rejected steps, status
REASONS = {
    STEP_LIMIT: "more than max_steps={most} steps are needed; a stiff equation wants method='rodas5p'",
    TOO_SMALL: "the step size fell below the spacing of floats: the solution may blow up, or f may jump",
    NOT_FINITE: "{functions} is not finite there, however small the step",
    TOO_MANY_EVENTS: "there are more than max_events={events} zeros of an event",
}


class Solver:
    """The compiled solver of one right-hand side; `solver` makes it."""

    def __init__(
        self,
        f: Callable,
        method: str,
        control: StepControl,
        save_at: Any,
        events: tuple,
        most_events: int,
        nan: bool,
    ):
        self.f, self.method, self.control, self.save_at, self.nan = f, method, control, save_at, nan
        self.events, self.most_events = events, most_events
        self.given = None if save_at is None else Intervals(save_at, None)
        self.kernels: dict = {}

    def __repr__(self) -> str:
        return f"<ode.solver of {origin(self.f)}, {self.method}>"

    def __call__(
        self, y0: Any, *args: Any, save_at: Any = None, t0: Any = None, doses: Any = None
    ) -> Solution:
        """Solve dy/dt = f(t, y, *args) from y0; see `solver`."""
        y0 = state_tree(y0)
        single = is_single(y0)
        state, layout = ArgumentLayout((y0,), single), ArgumentLayout(args, single)
        n = state.count
        if np.shape(self.control.atol) not in ((), (n,)):
            raise ShapeError(f"ode: atol has shape {np.shape(self.control.atol)} for a state of shape ({n},)")
        if save_at is None is t0 and doses is None and self.given is not None:
            intervals = self.given
        else:
            doses = doses and (doses[0], state.rows((doses[1],)) if is_node(y0) else doses[1])
            intervals = Intervals(self.save_at if save_at is None else save_at, t0, doses, n)
        inside = [x for x in (*state.arrays, *layout.arrays) if isinstance(x, Sym)]
        if inside and not single:
            raise ShapeError(
                f"ode: in a kernel function y0 is that of one trajectory; it has shape "
                f"{tuple(state.arrays[0].shape)}"
            )
        if inside:
            found = self._inlined(state, layout, len(args), intervals)
        else:
            theta = kernel_rows(state, layout, single)
            data = in_library(xp_of(layout_of(theta)), intervals.data)
            found = self._kernel(state, layout, len(args)).path(theta, data)
        if intervals.saved is not None:
            found = found[:, intervals.saved]
        report = value(found)[n : n + REPORTED]
        if not (self.nan or inside) and (report[3] > 0).any():
            self._refuse(np.array(report.tolist()).reshape(REPORTED, len(intervals.times), -1), single)
        _, accepted, rejected, last = report[:, -1]
        status = 1.0 * (last < 0) - 1.0 * (last > 0)
        events = (
            event_records(found[n + REPORTED :, -1], state, len(self.events), self.most_events)
            if self.events
            else ()
        )
        return Solution(
            state.parts(found[:n]), intervals.times, events, status, status >= 0, accepted, rejected
        )

    def _kernel(self, state: ArgumentLayout, layout: ArgumentLayout, count: int) -> Any:
        """Return the kernel for states and arguments of these shapes."""
        found = self.kernels.get((state.key, layout.key))
        if found is None or not found[1].has_constants_of(layout):
            made = recursion(*self._trajectory(state, layout, count), missing="step", invalid="nan")
            found = self.kernels[state.key, layout.key] = made, layout
        return found[0]

    def _inlined(
        self, state: ArgumentLayout, layout: ArgumentLayout, count: int, intervals: Intervals
    ) -> Any:
        """Return the result of the kernel as a part of the kernel that is being traced."""
        init, step = self._trajectory(state, layout, count)
        theta = np.concatenate([np.reshape(x, (-1,)) for x in (*state.taken(), *layout.taken())])
        OPEN.tracer.rebuild.captured_state.root(step)
        carry, rows, step = init(theta), [], OPEN.tracer.rebuild(step)
        for interval in intervals.data.T:
            carry, row = step(carry, theta, interval)
            rows.append(row)
        return np.stack(rows, 1)

    def _trajectory(self, state: ArgumentLayout, layout: ArgumentLayout, count: int) -> tuple:
        """Return `init` and `step` of the recursion, to be traced."""
        n = state.count
        slope = traced_states(self.f, state, count, fills_first(self.f, count))
        events = [
            (
                traced_number(e.function, state),
                e.change and traced_states(e.change, state, count, False),
                int(e.terminal),
                e.direction,
            )
            for e in self.events
        ]
        init, step = trajectory(
            slope, METHODS[self.method], self.control, n, layout.restored, events, self.most_events
        )
        rebuilt_with(step, self.f).__name__ = getattr(self.f, "__name__", "ode")
        return init, step

    def _refuse(self, report: Any, single: bool) -> None:
        """Raise for the first trajectory that failed; its status and time stay until the end."""
        status, times = report[3], report[0]
        functions = "f, or an event function," if self.events else "f"
        reasons = {
            k: v.format(most=self.control.most_steps, events=self.most_events, functions=functions)
            for k, v in REASONS.items()
        }
        raise failure(self.f, status, times, reasons, single)


def solver(
    f: Callable,
    method: str = "tsit5",
    *,
    rtol: float = 1e-6,
    atol: Any = 1e-9,
    save_at: Any = None,
    first_step: float | None = None,
    max_steps: int = 4096,
    events: Any = (),
    max_events: int = 8,
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
    events : Event, callable or sequence of these
        Zeros of functions along the trajectory. They are located within a step, and their times carry
        derivatives. A function ``g(t, y, *args)`` may have the attributes `terminal` and `direction`, as for
        SciPy. Two zeros of one event within one step are not seen.
    max_events : int
        The largest number of zeros of an event.
    on_failure : {'raise', 'nan'}
        What happens if a trajectory cannot be solved: an error that names it, or nan in its place.

    Returns
    -------
    callable
        ``solve(y0, *args, save_at=None, t0=None, doses=None)`` returns a `Solution`. y0 is (n,), or (n, B)
        for B trajectories; then the last axis of each array in args is that of the trajectories too. Numbers
        are shared. args may be trees, and so may y0; f then gets and returns such a tree. `t0` is the time of
        y0, by default the first of `save_at`. `doses` is a pair of times (K,) and amounts (n, K) or
        (n, K, B), which are added to the state at these times. A state saved at the time of a dose is that
        before it. In a kernel function `solve` is a part of the kernel: times and doses are constants there,
        and what fails is nan.

    Raises
    ------
    ArgumentError, DataError, ShapeError
        In a call, if arguments do not fit.
    ConvergenceError
        In a call, if a trajectory cannot be solved.

    See Also
    --------
    Event : A zero that ends the trajectory, or changes the state.
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
        raise ArgumentError(f"ode: method={method!r}; it is one of {[*METHODS]}")
    if on_failure not in ("raise", "nan"):
        raise ArgumentError(f"ode: on_failure={on_failure!r}; it is 'raise' or 'nan'")
    atol = np.asarray(atol, float)
    if not (
        rtol > 0
        and (atol >= 0).all()
        and min(max_steps, max_events) >= 1
        and (first_step is None or first_step > 0)
    ):
        raise ArgumentError(
            "ode: rtol and first_step are above 0, atol is not below 0, max_steps and max_events are at "
            "least 1"
        )
    control = StepControl(
        float(rtol), atol if atol.ndim else float(atol), float(first_step or 0.0), int(max_steps)
    )
    found = tuple([Event.of(e) for e in (events if isinstance(events, (list, tuple)) else (events,))])
    return Solver(f, method, control, save_at, found, int(max_events), on_failure == "nan")
