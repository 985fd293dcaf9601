"""The user's functions on plain values: copies of them that leave nothing behind."""

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import numpy

from .. import numpy as tapegrad_numpy
from .._capture.kinds import holders
from .._capture.objects import is_same, parts_of, snapshot
from .._capture.routes import strays
from .._capture.snapshots import CONTAINERS, content_of
from .._core.arrays import is_array, same_bits
from .._core.primitive import is_tracked, live, values_of
from .._core.scope import OPEN
from .._core.variable import Variable, View, variable
from .._transforms.rebind import Rebind, forgotten, is_lost
from ..ops.indexing.regions import region


class PlainRebind(Rebind):
    """A shadow that replaces captured Variables by copies of their values: arrays, or Variables that may be
    written with tracked values."""

    __slots__ = ("again", "arrays_only", "copies", "found", "kept", "left_alone", "numbers")

    def __init__(self, functions: tuple, arrays_only: bool, args=(), of=None, values: tuple = ()):
        super().__init__(functions, [*args], of, values)
        self.arrays_only = arrays_only

    def begin(self) -> None:
        super().begin()
        self.copies = []  # (copy, what it is a copy of, its place)
        self.left_alone = []  # (object that is not followed, what it held)
        self.found = False  # is one of the captured values tracked?
        self.numbers = {}  # id -> captured number, which its holder's copy holds
        self.kept = False  # are the copies of functions used again?

    def taken_up(self, values: tuple) -> None:
        """The same copies of functions, with other values in their arrays."""
        self.values, self.waited = values, True
        while self.numbers:
            del self.seen[self.numbers.popitem()[0]]
        self.copies = [(new, values[k], k) for new, _, k in self.copies]
        for new, value, _ in self.copies:
            new[...] = value

    def is_lasting(self) -> bool:
        """Has no copy of a function anything of the time when it was made, but for numbers?"""
        return not (self.state or self.left_alone or self.generators or self.near)

    def __enter__(self):
        entered = super().__enter__()
        self.again, OPEN.again = OPEN.again, True
        return entered

    def __exit__(self, *error) -> None:
        OPEN.again, self.arrays = self.again, []
        if not self.kept:
            forgotten(self)
        super().__exit__(*error)

    def __call__(self, x):
        if x is tapegrad_numpy and self.arrays_only:
            return numpy
        if not (self.arrays_only and isinstance(x, Variable)) or is_lost(x):
            return super().__call__(x)
        if id(x) in self.seen:
            return self.seen[id(x)]
        new = region(self(x._base), x._path) if type(x) is View else self.copied(x)
        self.seen[id(x)] = new
        if is_array(new):
            self.hold.append(x)
        else:
            self.numbers[id(x)] = x
        return new

    def copied(self, x: Variable):
        place = None
        if self.of is None:
            value = values_of(live(x))
            self.found = self.found or is_tracked(x)
        else:
            place = self.of.place(x)
            value = self.values[place] if place < len(self.values) else values_of(live(x))
        if not is_array(value):
            return value
        self.copies.append((value.copy(), value, place))
        return self.copies[-1][0]

    def stand_in(self, x: Variable) -> Variable:
        y = variable(values_of(live(x)))
        y._saved, y._version = True, 0
        self.copies.append((y, x, None))
        return y

    def written(self) -> list:
        """The copies that were written. Arrays that were written with what they held do not count."""
        if self.arrays_only:
            return [new for new, old, _ in self.copies if not same_bits(new, old)]
        return [y for y, *_ in self.copies if y._version]

    def noted(self, x) -> None:
        held = content_of(x)
        if held is not None:
            self.left_alone.append((x, held))

    def altered(self) -> bool:
        """Have the functions changed anything but arrays outside of themselves, or may they have?"""
        return (
            any([not holds_still(x, held) for x, held in [*self.state, *self.left_alone]])
            or any([change[0].altered(self, change) for change in holders(self)])
            or any([repr(snapshot(r)) != repr(before) for r, before in self.generators])
            or bool(self.near and strays(self)[1])
        )


def holds_still(x, held) -> bool:
    """Are the parts of a container the same objects? An equal number may have another derivative."""
    if is_array(x):
        return is_same(x, held)
    now = parts_of(x) if type(x) in CONTAINERS else None
    return now is not None and len(now) == len(held) and all(map(operator.is_, now, held))


@contextlib.contextmanager
def on_plain_values(*functions, arrays_only: bool = True) -> Iterator[tuple[PlainRebind, Any]]:
    """The functions on plain values. What they alter is put back at the end, and cannot be seen outside."""
    shadow = PlainRebind(functions, arrays_only)
    with shadow as (plain, _):
        yield shadow, plain
