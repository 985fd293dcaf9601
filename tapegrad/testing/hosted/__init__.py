"""The real CuPy package over host memory, for machines without a GPU: `host_cupy`.

Nothing imitates CuPy: its own package runs, with its dispatch, its type rules, its views, its refusals.
Three layers are put below it:

- `runtime`: the CUDA runtime. CuPy's compiled modules get malloc, memcpy, streams and events in host
  memory. New arrays are filled with garbage (0xCC) and freed when they die. Libraries that cannot be loaded
  are stubs.
- `kernels`: ufuncs, elementwise kernels and simple reductions reach two override hooks of CuPy, which
  decide types by CuPy's tables and compute with NumPy on views of the memory. A foreign object's own hook
  goes first.
- `routines`: what bypasses the hooks (cuBLAS, cuSOLVER, cuFFT, Thrust, scans) is replaced by name, with the
  functions of cupyx.scipy in `scipy_functions` and the generators of `random_numbers`.

A kernel that none of the layers knows raises NotImplementedError with its name, which is also put in
`stats["unknown"]`. Where CuPy differs from NumPy, CuPy's way is kept: results without axes are arrays,
indices wrap silently, nothing warns, implicit conversion is refused, duplicates in an indexed assignment
have an arbitrary winner (here the first), a failed factorisation raises nothing. What it leaves: `cholesky`
the columns done before the bad pivot and the input after it, without nan; `solve`, `inv` and
`solve_triangular` nan.

`stats["kernels"]` counts kernels and library calls; `stats["syncs"]` counts device-to-host transfers
(`get`, `item`, `tolist`, `bool`, `float`, `int`, `repr`, the hidden ones inside `nonzero` and boolean
indexing) and explicit synchronisations. `reset_counts()` sets them to zero; `host_view` looks at memory
without being counted.

Limits: a ufunc called on scalars alone (`cupy.sin(1.0)`), functions of `cupy.random` that belong to no
generator of `default_rng`, sparse matrices, ReductionKernel and RawKernel are unknown here. Functions under
`cupy.fuse` run unfused. Arrays have the two override hooks as attributes, which on a device they have not.
"""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from .runtime import (
    real_device,
    replace_runtime,
    reset_counts,
    stats,
    stub_libraries,
    use_host_allocator,
)

__all__ = ["host_cupy", "host_view", "install", "real_device", "reset_counts", "stats", "to_device"]

_installed: Any = None


@contextlib.contextmanager
def host_cupy() -> Iterator:
    """Run CuPy programs on a machine without a GPU: the real CuPy package over host memory.

    Yields
    ------
    module
        The package `cupy`. Its arrays are real CuPy arrays whose memory is on the host.

    Raises
    ------
    ImportError
        CuPy is not installed. Any wheel of CuPy 14 serves: no driver and no CUDA toolkit are needed.
    RuntimeError
        CuPy was imported before without a device, or the version of CuPy has another runtime interface.
    NotImplementedError
        Inside: a kernel that only a device can run (RawKernel, ReductionKernel, a user's ElementwiseKernel,
        `cupy.random.rand`). The message names it.

    See Also
    --------
    check_grads : Check the derivatives of a program.

    Notes
    -----
    Where a CUDA device answers, nothing is replaced: the block runs on the device. Elsewhere the replacement
    stays for the process, because compiled modules of CuPy keep it: enter before the first `import cupy`.
    It computes with NumPy, one kernel after the other. `cupy.random.default_rng` draws NumPy's numbers. It
    shows that a program runs, what it gives, and how often it waits for the device; it shows nothing of its
    speed.

    Examples
    --------
    >>> import tapegrad as tg
    >>> with tg.testing.host_cupy() as cupy:
    ...     x = cupy.arange(1.0, 4.0)
    ...     g = tg.grad(lambda x: (cupy.sin(x) ** 2).sum())(x)
    ...     print(type(g).__module__.partition(".")[0], g.get().round(6))
    cupy [ 0.909297 -0.756802 -0.279415]
    """
    yield importlib.import_module("cupy") if real_device() else install()


def install() -> Any:
    """Make `import cupy` the hosted one, and return it. Later calls only return it."""
    global _installed
    if _installed is None:
        if real_device():
            raise RuntimeError("a CUDA device answers: use CuPy as it is")
        replace_runtime()
        stub_libraries()
        cupy = importlib.import_module("cupy")
        use_host_allocator()
        # These import CuPy, and so come after the runtime is replaced.
        importlib.import_module(f"{__name__}.kernels").install_hooks()
        importlib.import_module(f"{__name__}.routines").install_routines()
        reset_counts()
        _installed = cupy
    return _installed


def host_view(a: Any) -> Any:
    """Return a NumPy view on the memory of the CuPy array `a`; it is not counted as a transfer."""
    return importlib.import_module(f"{__name__}.kernels").host_view(a)


def to_device(x: Any) -> Any:
    """Return a new CuPy array with the values of the NumPy array or scalar `x`."""
    return importlib.import_module(f"{__name__}.kernels").to_device(x)
