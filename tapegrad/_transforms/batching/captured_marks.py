"""Captured arrays under `vmap`: detects values that pass from sample to sample.

In a loop over the samples, each sample would see what the previous one wrote. One run for all samples
cannot reproduce that. So each captured array has two marks: the elements read before the sample wrote
them, and the elements written. No element may have both."""

from typing import Any

import numpy as np

from ..._core.abstract_arrays import hollow
from ..._core.arrays import xp_of
from ..._core.errors import BatchError, callers_line
from ..._core.primitive import ADD_AT, READ
from ..._core.typing import AnyDict, AnyTuple
from ..._core.variable import bottom
from ...ops.indexing import regions as ix


class CapturedBuffer:
    """The slot of a captured array: its value one level down, and its marks. The value is shared by all
    samples, or (`batched`) a stack."""

    __slots__ = ("value", "batched", "marks")

    def __init__(self, value: Any, batched: bool, marks: "Marks") -> None:
        self.value, self.batched, self.marks = value, batched, marks


class Marks:
    """Sets of elements; each is False (none), True (all) or a mask.

    `read`: elements read before the sample wrote them. `written`: elements written by any sample.
    `own`: elements written by every sample, which then reads its own value."""

    __slots__ = ("call", "read", "written", "own", "like", "outer")

    def __init__(self, call: str, x: Any, outer: "Marks | None" = None) -> None:
        """`outer`: the marks of the same array in an outer `vmap`."""
        b = bottom(x)
        self.outer = outer
        self.call, self.like = call, hollow(np, b.shape, b.dtype, b.strides).view(np.ndarray)
        self.read = self.written = self.own = False

    def mask(self) -> np.ndarray:
        m = np.empty_like(self.like, dtype=bool)
        m[...] = False
        return m

    def met(self, prim: Any, params: AnyDict, place: int) -> None:
        """Note an operation with the array as its operand number `place`."""
        if prim.writes and place == 0:
            if prim is ADD_AT:
                self.on_read(params["path"], params["at"])
            self.on_write(params["path"], params["at"])
        elif prim is READ:
            self.on_read(params["path"], params["at"])
        else:
            self.on_read((), None)

    def on_read(self, path: AnyTuple, at: Any) -> None:
        if self.outer is not None:
            self.outer.on_read(path, at)
        if self.own is True or (self.read is True and self.written is False):
            return
        where = self.region(path, at)
        if self.overlap(where, self.written, self.own):
            self.fail()
        self.read = self.joined(self.read, where)
        if self.own is not False:
            self.read = self.read & ~self.own

    def on_write(self, path: AnyTuple, at: Any, by_all: bool = True) -> None:
        if self.outer is not None:
            self.outer.on_write(path, at, by_all)
        where = self.region(path, at)
        self.written = self.joined(self.written, where)
        if self.overlap(where, self.read, False):
            self.fail()
        if by_all and not any([kind in ("real", "imag") for kind, _ in path]):
            self.own = self.joined(self.own, where)

    def begun(self) -> AnyTuple:
        """Begin another run. Returns `written` and `own` of the one before."""
        before = self.written, self.own
        self.written = self.own = False
        return before

    def joined_with(self, written: Any, own: Any) -> None:
        self.written = self.written | written if self.written is not written else written
        self.own = self.own | own

    def region(self, path: AnyTuple, at: Any) -> Any:
        """True, or the index of the region in a mask."""
        path = tuple([step for step in path if step[0] not in ("real", "imag")])
        at = Ellipsis if at is None else host_index(at)
        if not path:
            return True if at is Ellipsis else at
        if at is Ellipsis and len(path) == 1 and path[0][0] == "at":
            return path[0][1]
        return ix.coordinates_of(self.like, path, at)

    def joined(self, known: Any, where: Any) -> Any:
        if known is True or where is True:
            return True
        if known is False:
            known = self.mask()
        ix.as_flat_source(known)[where] = True
        return True if known.all() else known

    def overlap(self, where: Any, some: Any, but: Any) -> bool:
        """Is an element of the region in `some` but not in `but`?"""
        if some is False or but is True:
            return False
        m = (np.True_ if some is True else some) & (np.True_ if but is False else ~but)
        m = np.broadcast_to(m, self.like.shape)
        return bool(m.any() if where is True else np.any(ix.as_flat_source(m)[where]))

    def fail(self) -> None:
        raise BatchError(
            f"{self.call}: {callers_line()}: a captured array of shape {self.like.shape} hands a value from "
            "sample to sample: an element is read before this sample has written it, and one sample writes "
            "it; tg.vmap runs the function once for all samples: make the array inside of the function, "
            "fill it before it is read, or loop over the samples"
        )


def host_index(at: Any) -> Any:
    if type(at) is tuple:
        return tuple([host_index(i) for i in at])
    return at.get() if xp_of(at) is not np else at
