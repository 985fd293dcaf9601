"""Programs on several ranks of MPI, and work on several processes.

A function over ranks is called with the same arguments on all ranks, and returns the same value on all. In
between, each rank computes with its own data. `psum` and the other collectives are operations with
derivatives. So `tapegrad.grad(f)` gives the gradient of the whole function on every rank, and so do the other
transforms, nested to any order.

`run_parts` is the scheduler behind ``client=`` of other functions. It does not use MPI.
"""

from typing import TYPE_CHECKING, Any

from .._core.registry import RANKS as _RANKS
from .._core.registry import load as _load
from .resampling import bootstrap as bootstrap
from .workers import run_parts as run_parts

__all__ = [*_RANKS, "bootstrap", "run_parts"]

if TYPE_CHECKING:  # what loads on first use, for type checkers
    from .functions import allgather as allgather
    from .functions import bcast as bcast
    from .functions import halo as halo
    from .functions import hvp as hvp
    from .functions import pmean as pmean
    from .functions import psum as psum
    from .functions import scatter as scatter
    from .functions import split as split
    from .functions import together as together
    from .functions import value_and_grad as value_and_grad


def __getattr__(name: str) -> Any:
    """Load the functions over ranks."""
    if name in _RANKS:
        return getattr(_load("tapegrad.parallel.functions"), name)
    raise AttributeError(f"module 'tapegrad.parallel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
