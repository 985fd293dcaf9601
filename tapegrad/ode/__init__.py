"""Differential equations by the thousand: each trajectory is one sample of a compiled kernel."""

from ._events import Event as Event
from ._events import EventRecord as EventRecord
from ._noise import normal_noise as normal_noise
from ._solution import Solution as Solution
from ._solution import SolverStats as SolverStats
from ._solver import solver as solver
from ._stochastic import stochastic_solver as stochastic_solver

__all__ = ["Event", "EventRecord", "Solution", "SolverStats", "normal_noise", "solver", "stochastic_solver"]
