"""Memory of a text's values that stay within it, kept from replay to replay: new pages would cost more time
than many a loop.

A frame is such memory for one replay at a time.  A value takes a slot of its layout whose last value is
dead."""

import functools
import heapq
import math
from typing import Any

import numpy as np

from .costs import FRAME_BYTES


def packed(shape: tuple, size: int) -> tuple:
    """The strides of an array in C order."""
    return tuple([size * math.prod(shape[a + 1 :]) for a in range(len(shape))])


class Frames:
    """The slots, while a text is written, and the frames, while it runs.  `storage`: value -> its Storage, as
    far as the text goes."""

    def __init__(self, storage: dict):
        self.storage = storage
        self.makers: list = []
        self.idle: dict = {}  # layout -> (when its value is read last, slot, value)
        self.bytes = 0
        self.pool: list = []

    def slot(self, k: int, shown: tuple, n: int) -> int | None:
        """A slot for the value k of instruction n; None where there is no more room, or it does not lie in C
        order."""
        _, shape, strides, dtype, _ = shown
        size = dtype.itemsize * math.prod(shape)
        if not size or strides != packed(shape, dtype.itemsize):
            return None
        heap, found = self.idle.setdefault((shape, dtype), []), None
        while found is None and heap and heap[0][0] < n:
            _, s, last = heapq.heappop(heap)
            until = self.storage[last].until
            if until < n:
                found = s
            else:
                heapq.heappush(heap, (until, s, last))
        if found is None:
            if self.bytes + size > FRAME_BYTES:
                return None
            self.bytes += size
            found = len(self.makers)
            self.makers.append(functools.partial(np.empty, shape, dtype))
        heapq.heappush(heap, (self.storage[k].until, found, k))
        return found

    def __call__(self) -> list:
        """A frame that no replay uses."""
        try:
            return self.pool.pop()
        except IndexError:
            return [make() for make in self.makers]

    def give_back(self, frame: list) -> Any:
        self.pool.append(frame)
