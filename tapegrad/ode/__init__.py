"""Differential equations by the thousand: each trajectory is one sample of a compiled kernel."""

from ._solver import Solution as Solution
from ._solver import solver as solver

__all__ = ["Solution", "solver"]
