"""Traces under the eyes of a watcher, who is told of each operation, and of each cotangent of a sweep, with the user's line.

A trace that is opened while somebody watches (`OPEN.watcher`) becomes one of the classes below.  The short ways of _fast ask for the
class itself, so all its operations go through `apply` or `step`; and its list of records is a `Noted`, which knows the lines.  While
nobody watches, nothing of this is met: the one question, whether `WATCHERS` is empty, is asked once a transform."""

import linecache
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._core.arrays import is_array
from .._core.errors import users_place
from .._core.forward import Dual
from .._core.primitive import SAMPLED, Primitive, layout_of
from .._core.reverse import PART, Like, Tape, primitive_of
from .._core.scope import OPEN, WATCHERS, Exit, changed, outside
from .._core.variable import Variable, View
from .captured_marks import Buffer
from .trace import Batch

# --- lines ---


def text_of(place: tuple) -> str:
    """The source of the line; empty where there is none."""
    return linecache.getline(*place).strip()


class Noted(list):
    """The records of a tape, each with the line that made it.  A record that a sweep over other records made has the line of the one
    swept, and in `origins` its name.  `now`: at which one a sweep is: number, record, the name of the user's operation.  (Names, for
    primitives may hold what has to end with the records.)"""

    def __init__(self, records: list, watcher: Any):
        super().__init__(records)
        self.lines = [users_place()] * len(records)
        self.watcher, self.now = watcher, None
        self.origins: dict = {}

    def append(self, record: Any) -> None:
        place, watcher = users_place(), self.watcher
        if OPEN.sweeping and watcher.sweeping is not None and place == watcher.asked:  # no code of the user's in the sweep
            place, self.origins[len(self)] = watcher.sweeping
        super().append(record)
        self.lines.append(place)

    def __getitem__(self, k: Any) -> Any:
        record = super().__getitem__(k)
        self.watcher.sweeping = self.lines[k], self.name(k)  # now, for a sweep may drop the record
        self.now = k, record, self.watcher.sweeping[1]
        return record

    def name(self, k: int) -> str:
        """That of the user's operation behind a record."""
        if k in self.origins:
            return self.origins[k]
        record = super().__getitem__(k)
        if record is not None and record[2] is PART:  # one of several outputs: its main record has it
            record = super().__getitem__(record[1])
        prim = None if record is None else primitive_of(record)
        return "an operation" if prim is None else prim.known_as

    def cotangents(self, n: int) -> "Cotangents":
        self.now = None
        self.watcher.asked = users_place()
        return Cotangents(self, n)


class Cotangents(list):
    """Those of a sweep over such records."""

    def __init__(self, noted: Noted, n: int):
        super().__init__([None] * n)
        self.noted = noted

    def __setitem__(self, slot: Any, c: Any) -> None:
        super().__setitem__(slot, c)
        if c is not None and type(c) is not list:  # (of several outputs: each by itself)
            self.noted.watcher.swept(self.noted, slot, c)


# --- traces ---


def told(way: Any, trace: Any, prim: Primitive, args: Any, *more: Any) -> Any:
    """The operation, done by `way` of the class beneath, and told, unless it is part of another one or of a sweep."""
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
    return type(f"Watched{kind.__name__}", (kind,), {"__slots__": (), name: lambda *args: told(way, *args)})


WATCHED: dict = {kind: watched_class(kind, name) for kind, name in ((Tape, "apply"), (Dual, "apply"), (Batch, "step"))}


class Watcher:
    """Who is told.  `sweeping`: the line and name of the record that a sweep is at; `asked`: the line that asked for that sweep."""

    outer: Any = None  # who was told before
    silences = False  # does it tell what NumPy would warn of?
    sweeping: tuple | None = None
    asked: tuple | None = None

    def opened(self, trace: Any) -> None:
        kind = WATCHED.get(type(trace))
        if kind is not None:
            trace.__class__ = kind
        if isinstance(trace, Tape):
            trace.records = Noted(trace.records, self)

    def done(self, prim: Primitive, args: Any, out: Any, params: dict) -> None:
        """An operation of the user's was done."""

    def captured(self, array: Any, x: Variable) -> None:
        """x stands for an array that the function captured."""

    def swept(self, noted: Noted, slot: int, c: Any) -> None:
        """A sweep has the cotangent c of this slot, by the record `noted.now` (None: by who asked for it)."""

    def returned(self, f: Any, y: Any) -> None:
        """f has returned y under a transform."""

    def launched(self, name: str, theta: Any, results: Any, rerun: Any) -> None:
        """A kernel has run on plain arrays.  `rerun(sample)`: what it computes, by the Python function that it was made of."""

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


# --- what lies in a value ---


def parts(x: Any) -> tuple[list, list]:
    """The plain arrays and numbers in x: (its values, its tangents); those of all samples."""
    values: list = []
    slopes: list = []
    if isinstance(x, View):
        layout_of(x)
    while isinstance(x, Variable):
        trace, slot = x._trace, x._slot
        if trace is not None and trace.visibility == SAMPLED:
            x = slot.value if type(slot) is Buffer else slot
            continue
        if trace is not None and trace.holds:
            for some in parts(slot):
                slopes += some
        x = x._value
    if type(x) is not Like and (is_array(x) or isinstance(x, (np.generic, float, complex))):
        values.append(x)
    return values, slopes


def parts_of(args: Any) -> Iterator[tuple]:
    for a in args:
        yield from [parts_of_list(a)] if isinstance(a, (tuple, list)) else [parts(a)]


def parts_of_list(members: Any) -> tuple[list, list]:
    found = [parts(m) for m in members]
    return [v for values, _ in found for v in values], [s for _, slopes in found for s in slopes]
