"""Kernels in CUDA C as loop programs, and loop programs of threads as CUDA C."""
