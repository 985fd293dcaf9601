"""Differential equations by the thousand: each trajectory is one sample of a compiled kernel."""

from ._events import Event as Event
from ._events import EventRecord as EventRecord
from ._solver import Solution as Solution
from ._solver import solver as solver

__all__ = ["Event", "EventRecord", "Solution", "solver"]
