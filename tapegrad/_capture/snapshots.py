"""What a function under `vmap` may alter and nobody follows: containers of numbers and strings, arrays of
integers, bytes, and objects that are left alone (queues, memory of ctypes, generators of random numbers).  It
is compared with what it held when it was met."""

import collections
import types
from typing import Any

import numpy as np

from .._core.arrays import is_array, mark_immutable
from .._core.registry import load
from . import objects
from .kinds import original

CONTAINERS = (list, dict, set, collections.deque)
CODE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    property,
    staticmethod,
    classmethod,
)


class ObjectSnapshot:
    """What an object of any kind holds, for comparison."""

    def __init__(self, x: Any):
        self.form = load("tapegrad._capture.dependencies").held_by(x)


def content_of(x: Any) -> Any:
    """A copy of what x holds; None for one that is not looked into."""
    if isinstance(x, np.ndarray):
        return None if x.dtype.kind in "fcO" or mark_immutable(x) else objects.content_of(x)
    if isinstance(x, objects.BYTES) or type(x) in CONTAINERS:
        return objects.content_of(x)
    return (
        None
        if is_array(x)
        or isinstance(x, CODE)
        or type(x).__module__.startswith("tapegrad.")
        or original(type(x)) is not type(x)  # made inside, or followed
        else ObjectSnapshot(x)
    )


def is_same(x: Any, before: Any) -> bool:
    """Does x hold this?"""
    return (
        ObjectSnapshot(x).form == before.form
        if type(before) is ObjectSnapshot
        else objects.is_same(x, before)
    )
