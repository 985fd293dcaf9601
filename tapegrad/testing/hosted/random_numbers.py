"""CuPy's random generators, whose kernels are compiled for the device, done by those of NumPy.

A seed gives other numbers than on a device."""

import functools
import inspect

import cupy
import cupy.random
import numpy as np

from .runtime import count_kernel
from .scipy_functions import on_device, on_host

BIT_GENERATORS = ("XORWOW", "MRG32k3a", "Philox4x3210")


class Generator:
    """The methods of `cupy.random.Generator`."""

    def __init__(self, bit_generator):
        self._real = np.random.Generator(bit_generator)


class NumPyRandomState:
    """The methods of `cupy.random.RandomState`, which cuRAND serves on a device."""

    def __init__(self, seed=None, method=None):
        self.seed(seed)

    def seed(self, seed=None):
        self._real = np.random.RandomState(None if seed is None else np.asarray(seed).astype(np.uint32))

    def shuffle(self, a):
        a[...] = self.permutation(a)


def drawn(theirs, ours, name):
    """A method of CuPy's, by that of NumPy's, which may lack the parameters `dtype` and `method`."""
    draw, method = getattr(ours, name), getattr(theirs, name)
    taken = inspect.signature(draw).parameters
    given = list(method.__code__.co_varnames[1:]) if hasattr(method, "__code__") else []

    @functools.wraps(method)
    def run(self, *args, out=None, **settings):
        count_kernel()
        settings |= dict(zip(given, args, strict=False)) if "dtype" in given else {}
        args = () if "dtype" in given else args
        settings.pop("method", None)
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


for _new, _theirs, _ours in (
    (Generator, cupy.random.Generator, np.random.Generator),
    (NumPyRandomState, cupy.random.RandomState, np.random.RandomState),
):
    for _name in dir(_theirs):
        if _name[0] != "_" and hasattr(_ours, _name) and not hasattr(_new, _name):
            setattr(_new, _name, drawn(_theirs, _ours, _name))


def generators():
    """(module of CuPy's, name, what stands for it)"""
    for name in BIT_GENERATORS:
        yield cupy.random, name, type(name, (np.random.PCG64,), {})
    yield cupy.random, "Generator", Generator
    yield cupy.random, "RandomState", NumPyRandomState
    yield cupy.random, "default_rng", default_rng
