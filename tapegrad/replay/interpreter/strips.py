"""Rows that are done a strip of their elements at a time, so that what one row makes is still in the first
cache when the next row reads it (strip mining).

Rows may share strips if each reads and writes the same element of an array that any of them writes.  Rows of
one element between them, such as the zero of a sum, go before the strips."""

import ctypes
import dataclasses
import math

from ..costs import STRIP_ELEMENTS, STRIP_ROWS_MOST, STRIPPED_ELEMENTS
from .foreign_calls import SIZES_AT, STEPS_AT
from .machine_code import BODIES, IN_LINES, NUMBER, OPERANDS, SHORT_ROW, SINGLE

NAMES = {n: name for name, n in NUMBER.items()}
CALLED, GATHERED, SCATTERED = NUMBER["called"], NUMBER["gathered"], NUMBER["scattered"]


@dataclasses.dataclass(frozen=True)
class PlaceRange:
    """Places that a row reads or writes: `count` from `first` on; `along`: one for each of its elements."""

    first: int
    count: int
    along: bool

    def meets(self, other: "PlaceRange") -> bool:
        """Is a place of both read for one element, and written for another?"""
        if self.along and other.along and self.first == other.first:
            return False
        return self.first < other.first + other.count and other.first < self.first + self.count


@dataclasses.dataclass(frozen=True)
class Accesses:
    """What a row of `n` elements reads, and what it writes."""

    n: int
    read: list
    written: PlaceRange


def place_range(first: int, n: int, step: int) -> PlaceRange:
    return PlaceRange(first, n if step else 1, bool(step))


def accesses(row: tuple) -> Accesses | None:
    """Those of a row that can be done in parts; None of others."""
    what, n, to, *rest = row
    name = NAMES[what]
    if name in SINGLE:
        body = SINGLE[name]
        places = [*rest[: OPERANDS[body]], *[to for _ in range("%old" in BODIES[body])]]
        return Accesses(1, [PlaceRange(at, 1, False) for at in places], PlaceRange(to, 1, False))
    if n < STRIPPED_ELEMENTS:
        return None
    if what in (GATHERED, SCATTERED):
        x, index, size, step_to, step_x = rest[:5]
        if step_to != 1 or step_x != 1:
            return None
        if what == GATHERED:
            return Accesses(
                n, [PlaceRange(x, size, False), PlaceRange(index, n, True)], PlaceRange(to, n, True)
            )
        return Accesses(n, [PlaceRange(x, n, True), PlaceRange(index, n, True)], PlaceRange(to, size, False))
    if (what != CALLED and name not in IN_LINES) or (row[6], row[11]) != (1, 1):
        return None
    if what == CALLED:
        return of_call(row)
    summed, way = " sum " in name, name.split()[-1]
    read = [place_range(at, n, int(step)) for at, step in zip(rest, way, strict=False)]
    return Accesses(n, read, place_range(to, n, not summed))


def of_call(row: tuple) -> Accesses | None:
    """Those of a ufunc along one line."""
    low, high, out = row[16:19]
    plan = (ctypes.c_int64 * (SIZES_AT + 2)).from_address((low & 0xFFFFFFFF) + (high << 32))
    n, steps = plan[SIZES_AT], plan[STEPS_AT : STEPS_AT + out + 1]
    if plan[SIZES_AT + 1] or row[1] != n or not {0, 8}.issuperset(steps) or steps[out] == 0:
        return None
    *read, written = [place_range(at, n, step) for at, step in zip(row[2:], steps, strict=False)]
    return Accesses(n, read, written)


class Strip:
    """Rows that follow each other, as long as they may share strips."""

    def __init__(self) -> None:
        self.n = 0
        self.rows: list = []
        self.before: list = []
        self.plain: list = []  # all, in their order
        self.read: list = []
        self.written: list = []

    def takes(self, row: tuple, found: Accesses) -> bool:
        """Add a row if it may be done with the others, part by part, or before them all."""
        single = found.n == 1
        if not self.rows and single or not (single or found.n == (self.n or found.n)):
            return False
        if len(self.rows) >= STRIP_ROWS_MOST:
            return False
        written, read = found.written, found.read
        if any([w.meets(other) for w in self.written for other in (*read, written)]):
            return False
        if any([written.meets(other) for other in self.read]):
            return False
        if not single and any([written.meets(other) for other in read]):
            return False
        self.plain.append(row)
        if single:
            self.before.append(row)
            return True
        self.n = found.n
        self.rows.append(row)
        self.read += read
        self.written.append(written)
        return True

    def code(self) -> list:
        """The rows, in strips where that pays."""
        if len(self.rows) < 2:
            return self.plain
        # the strips of a line are about equal
        size = math.ceil(self.n / math.ceil(self.n / STRIP_ELEMENTS))
        length = sum(map(len, self.rows))
        head = (NUMBER["strip"], self.n, length, -(-size // 8) * 8, 0, 0)
        assert len(head) == SHORT_ROW
        return [*self.before, head, *self.rows]


def in_strips(rows: list) -> list:
    """The same rows, those that follow each other in strips where they may share them."""
    made: list = []
    strip = Strip()
    for row in rows:
        if not strip.rows and row[1] < STRIPPED_ELEMENTS:  # no strip begins with it
            made.append(row)
            continue
        found = accesses(row)
        if found is not None and strip.takes(row, found):
            continue
        made += strip.code()
        strip = Strip()
        if found is None or not strip.takes(row, found):
            made.append(row)
    return made + strip.code()
