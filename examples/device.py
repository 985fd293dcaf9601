"""The array library behind ``--device`` of the examples."""

import argparse
import sys

import numpy as np

try:
    import cupy
except ImportError:
    cupy = None


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")


def array_module(device: str):
    """NumPy, or CuPy if a CUDA device answers. If none does, one line says so and the program ends."""
    if device == "cpu":
        return np
    if cupy is None:
        sys.exit("--device cuda needs CuPy: pip install 'tapegrad[cuda]', or [cuda12x] for CUDA 12")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        sys.exit(f"--device cuda: no CUDA device answers ({error}); run without it")
    return cupy


def library(x):
    """The array library of x."""
    return np if cupy is None else cupy.get_array_module(x)


def to_host(x):
    """x as a NumPy array."""
    return x if cupy is None else cupy.asnumpy(x)
