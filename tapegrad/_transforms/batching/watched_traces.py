"""Traces with a watcher, which is told of each operation and of each cotangent of a sweep, with the
user's line.

A trace that is opened while a watcher is active (`OPEN.watcher`) gets one of the classes below. The
fast paths of _dispatch.fast test for exact classes, so all of its operations go through `apply` or
`step`. Its list of records is a `WatchedRecords`, which holds the lines. Without a watcher the
only cost is one test per transform, whether `WATCHERS` is empty."""

import linecache
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._core.arrays import is_array
from ..._core.errors import users_place
from ..._core.forward import Dual
from ..._core.primitive import SAMPLED, Primitive, layout_of
from ..._core.reverse import PART, ShapeStandIn, Tape, primitive_of
from ..._core.scope import OPEN, WATCHERS, Exit, changed, outside
from ..._core.typing import AnyDict, AnyList, AnyTuple
from ..._core.variable import Variable, View
from .captured_marks import CapturedBuffer
from .trace import Batch

# --- lines ---


def source_line(place: AnyTuple) -> str:
    """The source text of the line; empty if there is none."""
    return linecache.getline(*place).strip()


class WatchedRecords(AnyList):
    """The records of a tape, each with the line that made it.

    A record made by the sweep over other records has the line of the swept record, and its name in
    `origins`. `now`: the position of a sweep, as number, record and name of the user's operation.
    Names are kept, not primitives, because primitives may hold objects that must end with the records."""

    def __init__(self, records: AnyList, watcher: Any) -> None:
        super().__init__(records)
        self.lines = [users_place()] * len(records)
        self.watcher = watcher
        self.now: AnyTuple | None = None
        self.origins: dict[int, str] = {}

    def append(self, record: Any) -> None:
        place, watcher = users_place(), self.watcher
        # the sweep runs no user code
        if OPEN.sweeping and watcher.sweeping is not None and place == watcher.asked:
            place, self.origins[len(self)] = watcher.sweeping
        super().append(record)
        self.lines.append(place)

    def __getitem__(self, k: Any) -> Any:
        record = super().__getitem__(k)
        self.watcher.sweeping = self.lines[k], self.name(k)  # now, because a sweep may drop the record
        self.now = k, record, self.watcher.sweeping[1]
        return record

    def name(self, k: int) -> str:
        """The name of the user's operation behind a record."""
        if k in self.origins:
            return self.origins[k]
        record = super().__getitem__(k)
        # one of several outputs: the main record has the primitive
        if record is not None and record[2] is PART:
            record = super().__getitem__(record[1])
        prim = None if record is None else primitive_of(record)
        return "an operation" if prim is None else prim.known_as

    def cotangents(self, n: int) -> "Cotangents":
        self.now = None
        self.watcher.asked = users_place()
        return Cotangents(self, n)


class Cotangents(AnyList):
    """The cotangents of a sweep over such records."""

    def __init__(self, noted: WatchedRecords, n: int) -> None:
        super().__init__([None] * n)
        self.noted = noted

    def __setitem__(self, slot: Any, c: Any) -> None:
        super().__setitem__(slot, c)
        if c is not None and type(c) is not list:  # (the list of several outputs is told one by one)
            self.noted.watcher.swept(self.noted, slot, c)


# --- traces ---


def apply_watched(way: Any, trace: Any, prim: Primitive, args: Any, *more: Any) -> Any:
    """Run the operation with `way` of the base class, and tell the watcher. Parts of other operations and
    of sweeps are not told."""
    watcher = OPEN.watcher
    if watcher is None or OPEN.within or OPEN.sweeping:
        return way(trace, prim, args, *more)
    with changed(within=True):
        out = way(trace, prim, args, *more)
    watcher.done(prim, args, out, more[-1])
    return out


def watched_class(kind: type, name: str) -> type:
    """The class of traces of this kind whose operations are told, by this method."""
    way = getattr(kind, name)
    return type(
        f"Watched{kind.__name__}", (kind,), {"__slots__": (), name: lambda *args: apply_watched(way, *args)}
    )


WATCHED: AnyDict = {
    kind: watched_class(kind, name) for kind, name in ((Tape, "apply"), (Dual, "apply"), (Batch, "step"))
}


class Watcher:
    """Base class of watchers. `sweeping`: line and name of the record being swept. `asked`: the line that
    started the sweep."""

    outer: Any = None  # the previous watcher
    silences = False  # does it report what NumPy would warn of?
    sweeping: AnyTuple | None = None
    asked: AnyTuple | None = None

    def opened(self, trace: Any) -> None:
        kind = WATCHED.get(type(trace))
        if kind is not None:
            trace.__class__ = kind
        if isinstance(trace, Tape):
            trace.records = WatchedRecords(trace.records, self)

    def done(self, prim: Primitive, args: Any, out: Any, params: AnyDict) -> None:
        """Called after an operation of the user's code."""

    def captured(self, array: Any, x: Variable) -> None:
        """Called when x stands for a captured array."""

    def swept(self, noted: WatchedRecords, slot: int, c: Any) -> None:
        """Called when a sweep has the cotangent c of this slot, from the record `noted.now` (None: the
        seed of the sweep)."""

    def returned(self, f: Any, y: Any) -> None:
        """Called when f has returned y under a transform."""

    def launched(self, name: str, theta: Any, results: Any, rerun: Any) -> None:
        """Called when a kernel has run on plain arrays. `rerun(sample)` computes the same with the
        kernel's Python function."""

    __exit__ = Exit()

    def __enter__(self) -> "Watcher":
        Exit.hold(self)
        self.outer = OPEN.watcher
        WATCHERS.append(self)
        outside(watcher=self)
        return self

    def left(self, *error: Any) -> None:
        if self in WATCHERS:
            outside(watcher=self.outer)
            WATCHERS.remove(self)


# --- the content of a value ---


def values_and_tangents(x: Any) -> tuple[AnyList, AnyList]:
    """The plain arrays and numbers in x, of all samples: (its values, its tangents)."""
    values: AnyList = []
    slopes: AnyList = []
    if isinstance(x, View):
        layout_of(x)
    while isinstance(x, Variable):
        trace, slot = x._trace, x._slot
        if trace is not None and trace.visibility == SAMPLED:
            x = slot.value if type(slot) is CapturedBuffer else slot
            continue
        if trace is not None and trace.holds:
            for some in values_and_tangents(slot):
                slopes += some
        x = x._value
    if type(x) is not ShapeStandIn and (is_array(x) or isinstance(x, (np.generic, float, complex))):
        values.append(x)
    return values, slopes


def plain_parts(args: Any) -> Iterator[AnyTuple]:
    for a in args:
        yield from [parts_of_list(a)] if isinstance(a, (tuple, list)) else [values_and_tangents(a)]


def parts_of_list(members: Any) -> tuple[AnyList, AnyList]:
    found = [values_and_tangents(m) for m in members]
    return [v for values, _ in found for v in values], [s for _, slopes in found for s in slopes]
