"""The text of a derived derivative."""

from typing import Any

import numpy as np

from ..._core.registry import load
from .kernel import RawKernel


def source(
    k: Any,
    derivative: str | None = "adjoint",
    *args: Any,
    launch: tuple | None = None,
    dtype: Any = np.float64,
) -> str:
    """Show the text of a derivative that tapegrad derived from a kernel.

    Parameters
    ----------
    k : RawKernel or function
        What `raw` made with ``vjp='derive'``, or what ``numba.njit`` or ``numba.cuda.jit`` made.
    derivative : {'adjoint', 'tangent'} or None, default 'adjoint'
        Which derivative. None shows what was read of the kernel itself.
    *args
        Arguments of a call of Numba's function. A raw kernel takes none.
    launch : tuple, optional
        (blocks, threads) of a kernel of ``numba.cuda``.
    dtype : dtype, default float64
        What ``real`` stands for in a raw kernel.

    Returns
    -------
    str
        CUDA C that NVRTC compiles, or for Numba's functions text that resembles Python. Comments hold your
        lines.

    Raises
    ------
    tapegrad.errors.ArgumentError
        If the rules of a raw kernel are not derived.
    tapegrad.errors.KernelError
        If the function cannot be read.

    See Also
    --------
    raw : Make an operation of CUDA C.
    tapegrad.loops.source : The same for functions of Numba's.

    Examples
    --------
    >>> import tapegrad as tg
    >>> text = '''extern "C" __global__ void cube(const real* x, real* y, long long B) {
    ...   long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    ...   if (b < B) y[b] = x[b] * x[b] * x[b];
    ... }'''
    >>> args = ["in real x[B]", "out real y[B]", "size B"]
    >>> cube = tg.kernels.raw(text, "cube", args, vjp="derive", threads="B")
    >>> "atomicAdd(&x_bar" in tg.kernels.source(cube, "adjoint")
    True
    """
    if isinstance(k, RawKernel):
        rules = load("tapegrad.loops.cuda_c.derived_rules")
        return str(rules.source_in_c(k, derivative, dtype))
    inspection = load("tapegrad.loops.inspection")
    return str(inspection.source(k, *args, derivative=derivative, launch=launch))
