"""Kernels generated from plain Python functions, with their derivatives, for the CPU and for CUDA devices."""
