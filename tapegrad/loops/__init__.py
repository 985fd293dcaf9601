"""Functions with loops that Numba compiles, and kernels of numba.cuda, differentiated as they stand.

In a function that is differentiated, a call of such a function, or a launch of a kernel on NumPy arrays, is
one operation. `source` shows what it does, `check` compares its derivatives."""

from .inspection import check, source

__all__ = ["check", "source"]
