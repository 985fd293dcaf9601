"""CuPy's random generators, whose kernels are compiled for the device, done by those of NumPy.

A seed gives other numbers than on a device."""

import functools
import inspect

import cupy
import cupy.random
import numpy as np

from .runtime import count_kernel
from .scipy_functions import on_device, on_host

REAL = cupy.random.Generator
BIT_GENERATORS = ("XORWOW", "MRG32k3a", "Philox4x3210")


class Generator:
    """The methods of `cupy.random.Generator`."""

    def __init__(self, bit_generator):
        self._real = np.random.Generator(bit_generator)


def drawn(name):
    draw = getattr(np.random.Generator, name)
    taken = inspect.signature(draw).parameters

    @functools.wraps(getattr(REAL, name))
    def run(self, *args, out=None, **settings):
        count_kernel()
        dtype = settings.pop("dtype", None) if "dtype" not in taken else None
        found = np.asarray(draw(self._real, *on_host(args), **on_host(settings)), dtype)
        if out is None:
            return on_device(found)
        out[...] = on_device(found)
        return out

    return run


def default_rng(seed=None):
    if isinstance(seed, Generator):
        return seed
    return Generator(seed if isinstance(seed, np.random.BitGenerator) else cupy.random.XORWOW(seed))


for _name in dir(REAL):
    if _name[0] != "_" and hasattr(np.random.Generator, _name):
        setattr(Generator, _name, drawn(_name))


def generators():
    """(module of CuPy's, name, what stands for it)"""
    for name in BIT_GENERATORS:
        yield cupy.random, name, type(name, (np.random.PCG64,), {})
    yield cupy.random, "Generator", Generator
    yield cupy.random, "default_rng", default_rng
