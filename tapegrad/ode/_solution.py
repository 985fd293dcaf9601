"""What a solver returns, and its error if a trajectory cannot be solved."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as plain_np

from .. import numpy as np
from .._core.arrays import xp_of
from .._core.errors import ConvergenceError
from .._core.primitive import layout_of
from .._core.trees import leaves
from .._transforms.tape import value
from ..kernels.trace.surroundings import origin
from ._arguments import ArgumentLayout
from ._events import EventRecord


class SolverStats(NamedTuple):
    """What a solution took.

    Attributes
    ----------
    accepted, rejected : array
        The numbers of steps of each trajectory: a number, or (B,).
    jacobians : array
        The numbers of Jacobians df/dy. A trajectory that the method 'auto' has not found stiff has none.
    compile_seconds : float
        The time that this call spent on compilation. Derivatives are compiled later.
    """

    accepted: Any
    rejected: Any
    jacobians: Any
    compile_seconds: float


@dataclass(repr=False, eq=False)
class Solution:
    """Trajectories at the saved times, made by a `solver`.

    Attributes
    ----------
    y : array or tree
        The states, of shape (n, times) or (n, times, B). They carry derivatives. After a terminal event they
        are nan. A start that is a tree gives such a tree.
    t : array
        The saved times. With ``t_span`` the times of the accepted steps, of shape (steps,) or (steps, B);
        after the last step of a trajectory they are nan.
    events : tuple of EventRecord
        The zeros of each event, which carry derivatives.
    status : array
        0 if a trajectory reached the last time, 1 if an event ended it, -1 if it failed: a number, or (B,).
    success : array
        Whether the status is not negative.
    accepted, rejected : array
        The numbers of steps of each trajectory: a number, or (B,).
    stats : SolverStats
        These numbers, and what else the solution took.
    sol : callable or None
        With ``dense=True``, ``sol(t)`` is the solution at a time or at times (m,). It carries derivatives, by
        t too. At an event it is the state after it.
    """

    y: Any
    t: Any
    events: tuple
    status: Any
    stats: SolverStats
    sol: Any = None

    success = property(lambda self: self.status >= 0)
    accepted = property(lambda self: self.stats.accepted)
    rejected = property(lambda self: self.stats.rejected)

    def __repr__(self) -> str:
        shapes = ", ".join([str(tuple(layout_of(y).shape)) for y in leaves(self.y)])
        return f"<Solution y {shapes}: {self.accepted.sum():.0f} steps, {self.rejected.sum():.0f} rejected>"


def event_records(rows, state: ArgumentLayout, events: int, most: int) -> tuple:
    """Return the records of events of their rows: for each event its count, times and states."""
    found = []
    for k in range(events):
        size = 1 + most * (1 + state.count)
        count, times, y = (
            rows[k * size],
            rows[k * size + 1 : k * size + 1 + most],
            rows[k * size + 1 + most : (k + 1) * size],
        )
        count, rest = value(count), tuple(layout_of(times).shape[1:])
        there = xp_of(count).arange(most).reshape(-1, *[1] * len(rest)) < count
        y = np.where(there[:, None], y.reshape((most, state.count, *rest)), plain_np.nan)
        y = np.swapaxes(y, 0, 1)
        found.append(EventRecord(np.where(there, times, plain_np.nan), state.parts(y), count))
    return tuple(found)


def failure(f: Callable, status, times, reasons: dict, single: bool) -> ConvergenceError:
    """Return the error for the first trajectory that failed, of arrays (times, B) of its status and time
    reached."""
    failed = plain_np.flatnonzero(status[-1] > 0)
    k, count = int(failed[0]), status.shape[1]
    at = status[:, k].argmax()
    who = "" if single else f"sample {k} of {count} ({len(failed)} failed): "
    return ConvergenceError(
        f"ode: {who}{origin(f)} was solved until t = {times[at, k]:.6g}: {reasons[status[at, k]]}. "
        "on_failure='nan' returns nan for what is missing"
    )
