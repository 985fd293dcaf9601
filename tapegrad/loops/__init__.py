"""Functions with loops that Numba compiles, kernels of numba.cuda and kernels in CUDA C, differentiated as
they stand.

In a function that is differentiated, a call of such a function, or a launch of a kernel, is one operation.
`source` shows what it does, `check` compares its derivatives."""

from .inspection import check, source

__all__ = ["check", "source"]
