"""Kernels generated from plain Python functions, with their derivatives, for the CPU and for CUDA devices."""

from ._api import likelihood as likelihood
from ._api import recursion as recursion
from ._emit_cuda import emit_cuda as emit_cuda
from ._map import map_ as map
from ._trace import loop as loop
from ._trace import while_loop as while_loop

__all__ = ["emit_cuda", "likelihood", "loop", "map", "recursion", "while_loop"]
