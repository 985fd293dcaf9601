"""Arrays that a function under `vmap` captured: does one hand a value from sample to sample?

A loop over the samples would give each sample what the one before left there; one run for all samples cannot.  So each captured array
keeps marks: elements that were read before the sample wrote them, and elements that were written.  None may be both."""

from typing import Any

import numpy as np

from .._core.abstract_arrays import hollow
from .._core.arrays import xp_of
from .._core.errors import BatchError, callers_line
from .._core.primitive import ADD_AT, READ
from .._core.variable import bottom
from ..ops.indexing import regions as ix


class Buffer:
    """The slot of a captured array: its value one level down, one for all samples or (`batched`) a stack, and its marks."""

    __slots__ = ("value", "batched", "marks")

    def __init__(self, value: Any, batched: bool, marks: "Marks"):
        self.value, self.batched, self.marks = value, batched, marks


class Marks:
    """Sets of elements: False for none, True for all, else a mask.  `read`: before the sample had written them; `written`: by some
    sample; `own`: by each sample, so that it reads what it wrote."""

    __slots__ = ("call", "read", "written", "own", "like", "outer")

    def __init__(self, call: str, x: Any, outer: "Marks | None" = None):
        """`outer`: its marks in a vmap around this one."""
        b = bottom(x)
        self.outer = outer
        self.call, self.like = call, hollow(np, b.shape, b.dtype, b.strides).view(np.ndarray)
        self.read = self.written = self.own = False

    def mask(self) -> np.ndarray:
        m = np.empty_like(self.like, dtype=bool)
        m[...] = False
        return m

    def met(self, prim: Any, params: dict, place: int) -> None:
        """An operation has the array as its operand at this place."""
        if prim.writes and place == 0:
            if prim is ADD_AT:
                self.on_read(params["path"], params["at"])
            self.on_write(params["path"], params["at"])
        elif prim is READ:
            self.on_read(params["path"], params["at"])
        else:
            self.on_read((), None)

    def on_read(self, path: tuple, at: Any) -> None:
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

    def on_write(self, path: tuple, at: Any, by_all: bool = True) -> None:
        if self.outer is not None:
            self.outer.on_write(path, at, by_all)
        where = self.region(path, at)
        self.written = self.joined(self.written, where)
        if self.overlap(where, self.read, False):
            self.fail()
        if by_all and not any([kind in ("real", "imag") for kind, _ in path]):
            self.own = self.joined(self.own, where)

    def begun(self) -> tuple:
        """Another run begins: what was written in the one before, and by each sample."""
        before = self.written, self.own
        self.written = self.own = False
        return before

    def joined_with(self, written: Any, own: Any) -> None:
        self.written = self.written | written if self.written is not written else written
        self.own = self.own | own

    def region(self, path: tuple, at: Any) -> Any:
        """True, or the index of the region in a mask."""
        path = tuple([step for step in path if step[0] not in ("real", "imag")])
        at = Ellipsis if at is None else host(at)
        if not path:
            return True if at is Ellipsis else at
        if at is Ellipsis and len(path) == 1 and path[0][0] == "at":
            return path[0][1]
        return ix._places(self.like, path, at)

    def joined(self, known: Any, where: Any) -> Any:
        if known is True or where is True:
            return True
        if known is False:
            known = self.mask()
        ix.flat_of(known)[where] = True
        return True if known.all() else known

    def overlap(self, where: Any, some: Any, but: Any) -> bool:
        """Is one of the elements in `some`, and not in `but`?"""
        if some is False or but is True:
            return False
        m = (np.True_ if some is True else some) & (np.True_ if but is False else ~but)
        m = np.broadcast_to(m, self.like.shape)
        return bool(m.any() if where is True else np.any(ix.flat_of(m)[where]))

    def fail(self) -> None:
        raise BatchError(
            f"{self.call}: {callers_line()}: a captured array of shape {self.like.shape} hands a value from sample to sample: an element "
            "is read before this sample has written it, and one sample writes it; tg.vmap runs the function once for all samples: make "
            "the array inside of the function, fill it before it is read, or loop over the samples"
        )


def host(at: Any) -> Any:
    if type(at) is tuple:
        return tuple([host(i) for i in at])
    return at.get() if xp_of(at) is not np else at
