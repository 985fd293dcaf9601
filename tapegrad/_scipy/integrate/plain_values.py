"""The user's functions on plain values: copies of them that leave nothing behind."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy

from ... import numpy as tapegrad_numpy
from ..._capture.kinds import holders
from ..._capture.objects import is_same, snapshot
from ..._capture.routes import strays
from ..._capture.snapshots import content_of
from ..._capture.snapshots import is_same as holds_still
from ..._core.arrays import is_array, same_bits
from ..._core.primitive import is_tracked, live, values_of
from ..._core.scope import OPEN
from ..._core.variable import Variable, View, variable
from ..._transforms.rebind import Rebind, captured_generators, forgotten, is_lost
from ...ops.indexing.regions import region


class PlainRebind(Rebind):
    """A shadow that replaces captured Variables by copies of their values: arrays, or Variables that may be
    written with tracked values."""

    __slots__ = ("arrays_only", "copies", "draws", "found", "left_alone")

    def __init__(self, functions: tuple, arrays_only: bool):
        super().__init__(functions, [])
        self.arrays_only = arrays_only

    def begin(self) -> None:
        super().begin()
        self.copies: list = []  # (copy of a captured array, what it held)
        self.left_alone: list = []  # (object that is not followed, what it held)
        self.found = False  # is one of the captured values tracked?
        self.draws: list = []  # (random generator, its state)

    def __call__(self, x: Any) -> Any:
        if x is tapegrad_numpy and self.arrays_only:
            return numpy
        if not (self.arrays_only and isinstance(x, Variable)) or is_lost(x):
            return super().__call__(x)
        if id(x) not in self.seen:
            self.seen[id(x)] = region(self(x._base), x._path) if type(x) is View else self.copied(x)
            self.hold.append(x)
        return self.seen[id(x)]

    def copied(self, x: Variable) -> Any:
        value = values_of(live(x))
        self.found = self.found or is_tracked(x)
        if not is_array(value):
            return value
        self.copies.append((value.copy(), value))
        return self.copies[-1][0]

    def stand_in(self, x: Variable) -> Variable:
        y = variable(values_of(live(x)))
        y._saved, y._version = True, 0
        return y

    def noted(self, x: Any) -> None:
        held = content_of(x)
        if held is not None:
            self.left_alone.append((x, held))

    def wrote_arrays(self) -> bool:
        """Have the functions written captured arrays?"""
        return any([not same_bits(new, old) for new, old in self.copies])

    def altered(self) -> bool:
        """Have the functions changed anything outside of themselves?"""
        if self.wrote_arrays() or (self.near and strays(self)[1]):
            return True
        if any([not is_same(x, held) for x, held in self.state]) or any([not holds_still(x, held) for x, held in self.left_alone]):
            return True
        drawn = any([repr(snapshot(r)) != repr(before) for r, before in [*self.draws, *captured_generators(self)[len(self.draws) :]]])
        return drawn or any([change[0].altered(self, change) for change in holders(self)])


@contextlib.contextmanager
def on_plain_values(*functions: Any, arrays_only: bool = True) -> Iterator[tuple[PlainRebind, Any]]:
    """The functions on plain values. What they alter is put back at the end, and cannot be seen outside."""
    shadow = PlainRebind(functions, arrays_only)
    with shadow as (plain, _):
        shadow.draws, again, OPEN.again = captured_generators(shadow), OPEN.again, True
        try:
            yield shadow, plain
        finally:
            OPEN.again = again
            shadow.arrays = []
            forgotten(shadow, shadow.draws)
