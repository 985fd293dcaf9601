"""solver: a right-hand side becomes a compiled solver of one or thousands of trajectories, with
derivatives."""

import math
from collections.abc import Callable
from typing import Any

import numpy as plain_np

from .. import numpy as np
from .._core.arrays import xp_of
from .._core.errors import ArgumentError, Attempt, BatchError, ConvergenceError, ShapeError
from .._core.primitive import layout_of, primal_of
from .._core.registry import FROZEN
from .._core.scope import OPEN
from .._core.trees import is_node
from .._core.variable import Variable
from .._transforms.tape import value
from ..kernels.trace.surroundings import origin
from ..kernels.trace.symbolic import Sym
from ._arguments import (
    ArgumentLayout,
    Intervals,
    check_order,
    in_library_of_state,
    kernel_rows,
    layouts_of,
    plain_times,
    real_array,
)
from ._events import Event
from ._solution import Solution, SolverStats, event_records, failure
from ._steps import NOT_FINITE, STEP_LIMIT, STEPS_DONE, STIFF, TOO_MANY_EVENTS, TOO_SMALL, StepControl
from ._trajectories import METHODS, DenseSolution, Trajectories, of_all_samples

REPORTED = 4  # rows of a step's output after the state: time, accepted and rejected steps, status
FIRST_STEPS = 64  # room for accepted steps, at first
REASONS = {
    STEP_LIMIT: "more than max_steps={most} steps are needed; a stiff equation wants method='rodas5p'",
    TOO_SMALL: "the step size fell below the spacing of floats: the solution may blow up, or f may jump",
    NOT_FINITE: "{functions} is not finite there, however small the step",
    STIFF: "it is stiff, which tg.vmap and recordings of a large system cannot find; write method='rodas5p'",
    TOO_MANY_EVENTS: "there are more than max_events={events} zeros of an event",
}


class Solver:
    """The compiled solver of one right-hand side; `solver` makes it."""

    def __init__(
        self,
        f: Callable,
        method: str,
        control: StepControl,
        save_at,
        events: tuple,
        most_events: int,
        dense: bool,
        nan: bool,
    ):
        self.f, self.method, self.control, self.save_at, self.nan = f, method, control, save_at, nan
        self.events, self.most_events, self.dense = events, most_events, dense
        self.given = None if save_at is None else Intervals(save_at, None)
        self.kernels = {}
        self.layouts = {}
        self.room = FIRST_STEPS

    def __repr__(self) -> str:
        return f"<ode.solver of {origin(self.f)}, {self.method}>"

    def __getstate__(self) -> dict:
        return self.__dict__ | {"kernels": {}, "layouts": {}, "room": FIRST_STEPS}

    def __call__(
        self,
        y0,
        *args,
        save_at=None,
        t0=None,
        t_span=None,
        doses=None,
        client=None,
        store=None,
        progress: bool | str = False,
    ) -> Solution:
        """Solve dy/dt = f(t, y, *args) from y0; see `solver`."""
        single, state, layout, known, arrays = layouts_of(self.layouts, y0, args)
        n = state.count
        if type(self.control.atol) is not float and self.control.atol.shape != (n,):
            raise ShapeError(
                f"ode: atol has shape {plain_np.shape(self.control.atol)} for a state of shape ({n},)"
            )
        save_at = self.save_at if save_at is None and t_span is None else save_at
        # (isinstance asks a Variable for its class)
        inside = OPEN.tracer is not None and any([issubclass(type(x), Sym) for x in arrays])
        if inside and not single:
            raise ShapeError(
                f"ode: in a kernel function y0 is that of one trajectory; it has shape "
                f"{tuple(arrays[0].shape)}"
            )
        problem = Trajectories(self, state, layout, len(args), known)
        if save_at is None or self.dense:
            if inside or doses is not None:
                raise ArgumentError(
                    "ode: with doses, and in a kernel function, the result has the times save_at=, without "
                    "dense=True"
                )
            problem.spreads((client, store, progress), single)
            return self._by_steps(problem, kernel_rows(arrays, single), save_at, t0, t_span)
        if t_span is not None:
            raise ArgumentError("ode: give save_at= with t0=, or t_span= with dense=True")
        intervals = self.given
        if intervals is None or save_at is not self.save_at or t0 is not None or doses is not None:
            doses = doses and (doses[0], state.rows((doses[1],)) if is_node(y0) else doses[1])
            intervals = Intervals(save_at, t0, doses, n)
        if inside:
            y, others = problem.inlined(arrays, intervals.data)
        else:
            problem.spreads((client, store, progress), single)
            theta = in_library_of_state(arrays) if single else kernel_rows(arrays, single)
            y, others = problem.rows("saved", theta, intervals.data)
        if intervals.saved is not None:
            y, others = y[:, intervals.saved], others[:, intervals.saved]
        report = value(primal_of(others)[:REPORTED])
        if not inside:
            self._check(report, single)
        events = self._records(others, state)
        return self._solution(state.parts(y), intervals.times, events, report[:, -1].copy(), problem)

    @property
    def compile_seconds(self) -> float:
        """The time that was spent on the compilation of kernels."""
        return sum([kernel.compile_seconds for kernel, _ in list(self.kernels.values())])

    def _by_steps(self, problem: "Trajectories", theta, save_at, t0, t_span) -> Solution:
        """Return the result at the accepted steps, or at times between them."""
        times: Any = None if save_at is None else np.reshape(real_array(save_at), (-1,))
        if t_span is not None and t0 is not None or (t_span is None and times is None):
            raise ArgumentError(
                "ode: give the times of the result, save_at=, to solver or call; or t_span=(t0, t1), for a "
                "result at the accepted steps"
            )
        if t_span is None:
            t_span = (times[0] if t0 is None else t0, times[-1])
        span = np.stack([np.reshape(real_array(x), ()) for x in t_span])
        check_order(plain_times(span)[:1], plain_times(span)[1:])
        shape = tuple(layout_of(theta).shape[1:])
        while True:
            data = np.broadcast_to(span.reshape((2, 1)), (2, self.room + 1))
            states, others = problem.rows("each_step", theta, data)
            report = value(others)[:REPORTED]
            done = (report[3, -1] != STEPS_DONE) | (report[1, -1] < self.room)
            if of_all_samples(done).all() or self.room >= self.control.most_steps:
                break
            self.room = min(4 * self.room, self.control.most_steps)
        self._check(report, not shape)
        count = report[1, -1]
        there = xp_of(count).arange(self.room + 1).reshape(-1, *[1] * len(shape)) <= count
        events = self._records(others, problem.state)
        most = int(of_all_samples(count).max()) + 1 if math.prod(shape) else 1
        y = np.where(there, states, np.nan)[:, :most]
        t = np.where(there, others[0], np.nan)[:most]
        sol: Any = DenseSolution(problem, theta, plain_times(span), t, y) if self.dense else None
        if times is None:
            last = report[:, -1]
            return self._solution(problem.state.parts(y), t, events, last, problem, sol)
        found = sol(times)
        return self._solution(found, plain_times(times), events, report[:, -1], problem, sol)

    def _solution(self, y, t, events, last, problem: "Trajectories", sol=None) -> Solution:
        """Return the result, of the last report of each trajectory."""
        _, accepted, rejected, status = last
        status = plain_np.sign(0.0 - status)
        steps, stiff = accepted + rejected, problem.stiff
        if type(stiff) is not bool and len(layout_of(steps).shape) < len(layout_of(stiff).shape):
            stiff = stiff[0]  # of one trajectory
        stats = SolverStats(accepted, rejected, steps * stiff, problem.seconds() - problem.before)
        return Solution(y, t, events, status, stats, sol)

    def _records(self, rows, state: ArgumentLayout) -> tuple:
        if not self.events:
            return ()
        return event_records(rows[REPORTED:, -1], state, len(self.events), self.most_events)

    def _check(self, report, single: bool) -> None:
        """Raise for the first trajectory that failed; its status and time stay until the end."""
        if self.nan:
            return
        failed = report[3, -1] > 0.0
        with Attempt(of=BatchError) as tried:
            if not (failed if single else failed.any()):
                return
        if tried.failed or isinstance(report, Variable):
            raise ConvergenceError(
                f"ode: {origin(self.f)} was not solved for some samples of tg.vmap. on_failure='nan' returns "
                "nan for them; with y0 (n, B) in place of tg.vmap the error names the sample and the time"
            )
        report = plain_np.array(report.tolist())
        report = report.reshape(REPORTED, report.shape[1], -1)
        functions = "f, or an event function," if self.events else "f"
        reasons = {
            k: v.format(most=self.control.most_steps, events=self.most_events, functions=functions)
            for k, v in REASONS.items()
        }
        raise failure(self.f, report[3], report[0], reasons, single)


FROZEN.add(Solver)


def solver(
    f: Callable,
    method: str = "auto",
    *,
    rtol: float = 1e-6,
    atol: Any = 1e-9,
    save_at: Any = None,
    first_step: float | None = None,
    max_steps: int = 4096,
    events: Any = (),
    max_events: int = 8,
    dense: bool = False,
    on_failure: str = "raise",
) -> Solver:
    """Compile a solver of the differential equation dy/dt = f(t, y, *args).

    One call solves one trajectory or thousands. Each has its own adaptive steps. The derivative is that of
    the accepted steps, with their sizes held constant, to any order.

    Parameters
    ----------
    f : callable
        The right-hand side of one trajectory, ``f(t, y, *args)``, as for `scipy.integrate.solve_ivp`. A
        function ``f(dy, t, y, *args)`` fills dy instead. It may use what kernel functions may use; with more
        than 128 states (1,000 for explicit steps) it runs on arrays, and may do anything.
    method : {'auto', 'tsit5', 'rodas5p'}
        'tsit5' is explicit. 'rodas5p' is implicit, for stiff equations; it needs no Jacobian from you.
        That of a large system is sparse if it can be.
        'auto' begins with 'tsit5'. A trajectory that is found stiff, or that needs more than `max_steps`, is
        solved by 'rodas5p' from its start. In a kernel function 'auto' is 'tsit5'.
    rtol, atol : float
        The error of a step is kept below ``atol + rtol * abs(y)``. atol may be an array (n,).
    save_at : array, optional
        The times of the result, rising or falling. A call may give others. A call with ``t_span=(t0, t1)``
        returns the accepted steps instead.
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
    dense : bool
        Whether the result has ``sol(t)``, the solution at any time. The steps then do not end at the times
        `save_at`. A value between two steps is that of a shortened step.
    on_failure : {'raise', 'nan'}
        What happens if a trajectory cannot be solved: an error that names it, or nan in its place.

    Returns
    -------
    callable
        ``solve(y0, *args, save_at=None, t0=None, t_span=None, doses=None, client=None, store=None,
        progress=False)`` returns a `Solution`. y0 is (n,), or (n, B)
        for B trajectories; then the last axis of each array in args is that of the trajectories too. Numbers
        are shared. args may be trees, and so may y0; f then gets and returns such a tree. `t0` is the time of
        y0, by default the first of `save_at`. `doses` is a pair of times (K,) and amounts (n, K) or
        (n, K, B), which are added to the state at these times. A state saved at the time of a dose is that
        before it. In a kernel function `solve` is a part of the kernel: times and doses are constants there,
        and what fails is nan. `client`, `store` and `progress` are those of `tapegrad.parallel.run_parts`:
        the trajectories are solved in parts of 1,000, and so are derivatives.

    Raises
    ------
    ArgumentError, DataError, ShapeError
        In a call, if arguments do not fit.
    ConvergenceError
        In a call, if a trajectory cannot be solved.

    See Also
    --------
    Event : A zero that ends the trajectory, or changes the state.
    tapegrad.parallel.run_parts : The scheduler behind `client` and `store`.
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
    if method not in ("auto", *METHODS):
        raise ArgumentError(f"ode: method={method!r}; it is one of {['auto', *METHODS]}")
    if on_failure not in ("raise", "nan"):
        raise ArgumentError(f"ode: on_failure={on_failure!r}; it is 'raise' or 'nan'")
    atol = plain_np.asarray(atol, float)
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
    return Solver(f, method, control, save_at, found, int(max_events), bool(dense), on_failure == "nan")
