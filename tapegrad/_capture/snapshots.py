"""What a function under `vmap` may alter and nobody follows: containers of numbers and strings, arrays of integers, bytes, and objects
that are left alone (queues, memory of ctypes, generators of random numbers).  It is compared with what it held when it was met."""

import array
import collections
import types
from typing import Any

import numpy as np

from .._core.arrays import is_array, same_bits, settled
from .._core.registry import late

PLAIN = frozenset((int, float, complex, bool, str, bytes, np.float64, np.int64))
CONTAINERS = (list, dict, set, collections.deque)
CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, property, staticmethod, classmethod)


class Held:
    """What an object of any kind holds, for comparison."""

    def __init__(self, x: Any):
        self.form = late.held_by(x)


def content_of(x: Any) -> Any:
    """A copy of what x holds; None for one that is not looked into."""
    if isinstance(x, np.ndarray):
        return x.copy() if x.dtype.kind not in "fcO" and not settled(x) else None
    if isinstance(x, (bytearray, array.array)):
        return x[:]
    if type(x) in CONTAINERS:
        return x.copy()
    return None if is_array(x) or isinstance(x, CODE) or type(x).__module__.startswith("tapegrad.") else Held(x)


def is_same(x: Any, before: Any) -> bool:
    """Does x hold this?"""
    if type(before) is Held:
        return Held(x).form == before.form
    if isinstance(x, np.ndarray):
        return x.shape == before.shape and same_bits(x, before)
    if isinstance(x, (bytearray, array.array)):
        return x == before
    now, then = [[*v, *v.values()] if isinstance(v, dict) else [*v] for v in (x, before)]
    return len(now) == len(then) and all(
        [a is b or (type(a) in PLAIN and type(a) is type(b) and a == b) for a, b in zip(now, then, strict=True)]
    )


def put_back(x: Any, content: Any) -> None:
    """x holds this again."""
    if isinstance(x, (np.ndarray, list, bytearray, array.array)):
        x[:] = content
        return
    x.clear()
    x.extend(content) if isinstance(x, collections.deque) else x.update(content)
