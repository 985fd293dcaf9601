"""Kernels compiled from plain Python functions, with derivatives, for the CPU and for CUDA devices.

Its functions load on first use: prepared functions take the emitters alone. So does each module of the
library of likelihoods."""

from typing import TYPE_CHECKING, Any

from .._core.registry import KERNEL_FUNCTIONS as _FUNCTIONS
from .._core.registry import MODELS as _MODELS
from .._core.registry import load as _load

if TYPE_CHECKING:  # what loads on first use, for type checkers
    from .emit.cuda import emit_cuda as emit_cuda
    from .generated.kernel import likelihood as likelihood
    from .generated.kernel import recursion as recursion
    from .generated.map import map_ as map
    from .raw_code.kernel import raw as raw
    from .raw_code.sources import source as source
    from .trace.loops import loop as loop
    from .trace.loops import while_loop as while_loop

__all__ = ["emit_cuda", "likelihood", "loop", "map", "raw", "recursion", "source", "while_loop"]


def __getattr__(name: str) -> Any:
    """Load a function, or a model of the library."""
    if name in _MODELS:
        return _load(f"tapegrad.kernels.library.{name}")
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'tapegrad.kernels' has no attribute {name!r}")
    module = _load(f"tapegrad.kernels.{_FUNCTIONS[name]}")
    found = globals()[name] = getattr(module, "map_" if name == "map" else name)
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODELS})
