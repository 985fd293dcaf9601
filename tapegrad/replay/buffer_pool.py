"""Memory of the large values of a text, kept from replay to replay: new pages would cost more time than many a
loop."""

import math
import sys

import numpy as np

from .._core.arrays import room_laid
from .costs import POOL_ARRAYS, POOL_BYTES


def packed(shape: tuple, size: int) -> tuple:
    """The strides of an array in C order."""
    return tuple([size * math.prod(shape[a + 1 :]) for a in range(len(shape))])


def is_packed(shown: tuple) -> bool:
    """Does a value of this layout lie in C order, without gaps?"""
    _, shape, strides, dtype, _ = shown
    return strides == packed(shape, dtype.itemsize)


def base_refcount() -> int:
    """What getrefcount says of an array that one name holds."""
    v = np.empty(1)
    return sys.getrefcount(v)


ALONE = base_refcount()


class ArrayPool:
    """Makes arrays of one layout, and gives one out again that nobody holds any more."""

    __slots__ = ("arrays", "layout", "most")

    def __init__(self, shape: tuple, strides: tuple, dtype):
        self.layout = np, shape, strides, dtype
        self.arrays = []
        self.most = min(POOL_BYTES // (math.prod(shape) * dtype.itemsize), POOL_ARRAYS)

    def __call__(self) -> np.ndarray:
        """(Whoever takes an array out of the list has it alone, also beside other threads.)"""
        held = []
        try:
            v = self.arrays.pop()
            while sys.getrefcount(v) > ALONE:
                held.append(v)
                v = self.arrays.pop()
        except IndexError:
            v = room_laid(*self.layout)
        if v.base is None:  # else views of it would not count
            held.append(v)
        self.arrays += held[-self.most :] if self.most else ()
        return v
