"""The real CuPy package over host memory, for tests on machines without a GPU.

    import hosted_cupy
    cupy = hosted_cupy.install()          # before the first `import cupy` of the process
    c = cupy.asarray(numpy.ones(3))       # a real cupy.ndarray; its memory is on the host
    cupy.sin(c).get()

Nothing imitates CuPy: its own package runs, with its dispatch, its type rules, its views, its refusals.
Three layers are put below it:

- `_hosted_runtime`: the CUDA runtime. CuPy's compiled modules get malloc, memcpy, streams and events in host
  memory. New arrays are filled with garbage (0xCC) and freed when they die. Libraries that cannot be loaded
  are stubs.
- `_hosted_kernels`: ufuncs, elementwise kernels and simple reductions reach two override hooks of CuPy,
  which decide types by CuPy's tables and compute with NumPy on views of the memory. A foreign object's own
  hook goes first.
- `_hosted_routines`: what bypasses the hooks (cuBLAS, cuSOLVER, cuFFT, Thrust, scans) is replaced by name.

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

Limits: a ufunc called on scalars alone (`cupy.sin(1.0)`), random numbers, sparse matrices, ReductionKernel
and RawKernel are unknown kernels here. Functions under `cupy.fuse` run unfused. Arrays have the two
override hooks as attributes, which on a device they have not.
"""

from _hosted_runtime import (
    real_device,
    replace_runtime,
    reset_counts,
    stats,
    stub_libraries,
    use_host_allocator,
)

__all__ = ["host_view", "install", "real_device", "reset_counts", "stats", "to_device"]

_installed = None


def install():
    """Make `import cupy` the hosted one, and return it. Later calls only return it."""
    global _installed
    if _installed is None:
        if real_device():
            raise RuntimeError("a CUDA device answers: use real CuPy, hosted_cupy does not patch it")
        replace_runtime()
        stub_libraries()
        import cupy

        use_host_allocator()
        from _hosted_kernels import install_hooks
        from _hosted_routines import install_routines

        install_hooks()
        install_routines()
        reset_counts()
        _installed = cupy
    return _installed


def host_view(a):
    """A NumPy view on the memory of the CuPy array `a`; not counted as a transfer."""
    from _hosted_kernels import host_view

    return host_view(a)


def to_device(x):
    """A new CuPy array with the values of the NumPy array or scalar `x`."""
    from _hosted_kernels import to_device

    return to_device(x)
