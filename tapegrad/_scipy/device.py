"""The surroundings of library code that is run on CuPy arrays.

SciPy's Python code is written in NumPy's names; on CuPy it is followed with CuPy's (`followed.py`), so that
what it makes lies on the device.  It counts on NumPy's leniency, which CuPy does not have: a function takes
lists and numbers, and an operand may be an array of the host, a window say.  `DeviceModule` gives it that:
what meets an array of the device is moved there, and so is each array that is made."""

import functools
import sys
import types

import numpy as np

from .._core.arrays import is_array
from .._core.primitive import layout_of
from .._core.registry import load
from .._core.trees import nested
from .._core.variable import HANDLES, Variable, variable
from ..ops.creation import on_device
from .namespaces import bare, on_a_device


@nested
def there(x):
    """x with the arrays of numbers of the host moved to the device."""
    kind = type(x)
    if kind is np.ndarray:
        return sys.modules["cupy"].asarray(x) if x.dtype.kind in "fciub" else x
    return on_device(x) if kind in HANDLES and is_array(layout_of(x)) else x


def device_concatenator(*xs):
    """All on the device, if one of them is there."""
    return [there(x) for x in xs] if on_a_device(xs) else xs


def parts_there(x, within: bool = False):
    """The same of an argument.  What is listed beside an array of the device is an array there; so is a list
    of numbers that are not all integers, which may be a shape or axes."""
    if type(x) not in (list, tuple):
        return (
            sys.modules["cupy"].asarray(x)
            if within and isinstance(x, (int, float, complex, np.generic))
            else there(x)
        )
    if on_a_device(x):
        return type(x)([parts_there(v, True) for v in x])
    if (
        x
        and (within or any([isinstance(v, (float, complex)) for v in x]))
        and all([isinstance(v, (int, float, complex)) for v in x])
    ):
        return sys.modules["cupy"].asarray(x)
    return there(x)


OF_SHAPES = ("empty", "full", "ones", "zeros")


class AdaptedFunction:
    """A function of CuPy's that takes what NumPy's does."""

    def __init__(self, theirs, host):
        self.theirs, self.host = theirs, host
        functools.update_wrapper(self, host, updated=())

    def __call__(self, *args, **kwargs):
        for name in ("device", "like"):  # where it is to lie
            kwargs.pop(name, None)
        if kwargs.get("kind") == "mergesort":  # NumPy's old name of a stable sort
            kwargs["kind"] = "stable"
        if self.__name__ in OF_SHAPES and on_a_device(args[:1]):  # CuPy takes no array as a shape
            args = bare(args[0]).tolist(), *args[1:]
        if on_a_device((args, kwargs)):
            moved = {k: parts_there(v) for k, v in kwargs.items()}
            return there(self.theirs(*[parts_there(x) for x in args], **moved))
        return there(self.host(*args, **kwargs))

    def __getattr__(self, name: str):
        found = getattr(self.host, name)
        return AdaptedFunction(getattr(self.theirs, name, found), found) if callable(found) else found


class DeviceConcatenator:
    """`np.r_` and `np.c_`."""

    def __init__(self, host):
        self.host = host

    def __getitem__(self, at):
        parts = at if type(at) is tuple else (at,)
        if not on_a_device(parts):
            return there(self.host[at])
        library = sys.modules["cupy"]
        parts = tuple([p if isinstance(p, (str, Variable)) else self.range_of(p) for p in parts])
        return self.host[
            tuple(
                [
                    variable(library.asarray(p)) if not isinstance(p, (str, Variable)) else there(p)
                    for p in parts
                ]
            )
        ]

    def range_of(self, p):
        return there(self.host[p]) if isinstance(p, slice) else p


class DeviceModule:
    """A module of ours in CuPy's names; NumPy's or SciPy's where CuPy has none."""

    def __init__(self, theirs, host):
        self._theirs, self._host = theirs, host

    def __getattr__(self, name: str):
        host = getattr(self._host, name)
        found = self.__dict__[name] = lenient(getattr(self._theirs, name, host), host)
        return found


def lenient(theirs, host):
    if isinstance(host, types.ModuleType):
        return DeviceModule(theirs, host)
    if isinstance(host, type) or not callable(host):
        return DeviceConcatenator(host) if type(host).__name__ == "IndexConcatenator" else theirs
    return AdaptedFunction(theirs, host)


@functools.cache
def numpy_on_device() -> DeviceModule:
    return DeviceModule(load("tapegrad.cupy"), load("tapegrad.numpy"))


@functools.cache
def plain_on_device() -> DeviceModule:
    """CuPy and NumPy themselves."""
    return DeviceModule(sys.modules["cupy"], np)
