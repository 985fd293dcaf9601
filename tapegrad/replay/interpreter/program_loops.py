"""Loops of Python in a program that was recorded trip by trip: instructions that repeat, each time with
operands a fixed number of instructions further on.

What such a loop needs is worked out for three of its trips (interpreter.trip_rows.py)."""

import functools
from collections.abc import Iterator

import numpy as np

from ..._core.primitive import READ
from ..costs import (
    ALIKE_ROWS,
    CARRIED_TRIPS,
    LOOP_TRIPS,
    PARTS_OF_A_TRIP,
)
from ..instruction_table import END, InstructionTable, frequent_distances, runs_of
from ..record.instructions import PART, Instruction
from .instruction_kinds import is_move


class RecordedLoop:
    """Instructions from `start` on, `period` of them a trip.  `values` are those that they make, `operands`
    those that they read, by trips.

    `until`: of what each instruction makes the last reader, counted from the beginning of its trip; END where
    the trips differ, or that is none of the next trip; `held`: the same of its places.  `carried`:
    instructions of which later trips read the results -> how many trips later at most; `before`: of operands
    that the loop makes (column, their instruction, how many trips before); `varying`: columns of operands
    that are other constants in each trip."""

    def __init__(self, table: InstructionTable, start: int, period: int, trips: int):
        self.table, self.start, self.period, self.trips = table, start, period, trips
        self.stop = start + period * trips
        self.values = table.made[start : self.stop].reshape(trips, period)
        self.operands = table.read_by(start, self.stop).reshape(trips, -1)
        last = table.last[self.values] - self.beginnings()
        last = np.where(table.last[self.values] == END, END, np.maximum(last, np.arange(period)))
        within = (last == last[0]).all(axis=0) & (last[0] < period)
        next_trip = (last[:-1] == last[0]).all(axis=0) & (last[0] >= period) & (last[0] < 2 * period)
        self.until = np.where(within | next_trip, last[0], END).tolist()
        at = self.positions()
        own = (at[-1] >= start) & (at[-1] - at[0] == period * (trips - 1))
        self.held = self.places_held()
        self.carried = {}
        for place in np.unique(at[-1, own]).tolist():
            back, column = trips - 1 - (place - start) // period, (place - start) % period
            if back:
                self.carried[column] = max(back, self.carried.get(column, 0))
        self.varying = np.flatnonzero(
            (self.operands != self.operands[0]).any(axis=0) & table.constant[self.operands[0]]
        ).tolist()
        made = zip(np.flatnonzero(own).tolist(), (at[-1, own] - start).tolist(), strict=True)
        self.before = [(c, n % period, trips - 1 - n // period) for c, n in made]

    def places_held(self) -> list:
        """Until when the places of each result are read, itself or in the result of another one."""
        code, held = self.trip(0), [*self.until]
        place = {k: j for j, (k, _) in enumerate(code)}
        for j in reversed(range(self.period)):
            for a in seen_operands(code[j][1]):
                if a in place:
                    held[place[a]] = max(held[place[a]], held[j])
        return held

    def beginnings(self) -> np.ndarray:
        return self.start + self.period * np.arange(self.trips)[:, None]

    def positions(self) -> np.ndarray:
        """Where the operands are made; for what no instruction makes, numbers far below 0: no fixed step
        leads from them to a position."""
        at = self.table.position[self.operands]
        return np.where(at < 0, -END // 2 - self.operands, at)

    @functools.cached_property
    def indices(self) -> np.ndarray:
        """The numbers of the index of each instruction in each trip."""
        settings = self.table.settings[self.start : self.stop].reshape(self.trips, self.period)
        return self.table.numbers[settings]

    @functools.cached_property
    def moving(self) -> list:
        """Instructions whose index differs from trip to trip."""
        return np.flatnonzero((self.indices != self.indices[0]).any(axis=(0, 2))).tolist()

    def part(self, which: np.ndarray) -> "RecordedLoop | None":
        """The longest run of these trips."""
        first, stop = max(runs_of(which), key=lambda run: run[1] - run[0], default=(0, 0))
        return (
            RecordedLoop(self.table, self.start + first * self.period, self.period, stop - first)
            if stop - first >= LOOP_TRIPS
            else None
        )

    def settled(self, owner: np.ndarray, loops: list) -> "RecordedLoop | None":
        """The trips of which each operand is a constant, the same always, of the trips before, or of one of
        the `loops` before; `owner` tells which.  None where there are few."""
        at, constant = self.positions(), self.table.constant[self.operands[0]]
        step, fine = at[1] - at[0], np.ones(self.trips, bool)
        for c in np.flatnonzero(~constant & (step == 0) & (at[0] >= self.start)).tolist():
            fine[: (at[0, c] - self.start) // self.period + 1] = False
        for c in np.flatnonzero(~constant & (step != 0)).tolist():
            if step[c] == self.period and at[-1, c] >= self.start:
                if at[-1, c] < self.start + self.period * (self.trips - 1 - CARRIED_TRIPS):
                    return None
                continue
            middle = int(at[self.trips // 2, c])
            of = int(owner[middle]) if 0 <= middle < self.start else -1
            if of < 0 or step[c] % loops[of].period:
                return None
            fine &= (at[:, c] >= 0) & (owner[np.maximum(at[:, c], 0)] == of)
        if fine.all():
            return self
        fewer = self.part(fine)
        return None if fewer is None else fewer.settled(owner, loops)

    def trip(self, t: int) -> list:
        begin = self.start + t * self.period
        return self.table.code[begin : begin + self.period]


def seen_operands(i: Instruction) -> tuple:
    """The operands where its result may lie."""
    if i.prim.writes:
        return i.args if is_all(**i.params) else i.args[:1]
    return i.args if i.prim is PART or i.prim is READ or i.prim.multi or is_move(i.prim) else ()


def is_all(path: tuple, at) -> bool:
    """Is all of a buffer written?"""
    return not path and (at is Ellipsis or (type(at) is slice and at == slice(None)))


def program_loops(table: InstructionTable, start: int, stop: int) -> list:
    """The loops within these instructions, in order."""
    if (start, stop) in table.loops:
        return table.loops[start, stop]
    found = table.loops.setdefault((start, stop), [])
    owner = np.full(len(table.code), -1)
    for loop in searched(table, start, stop):
        made = loop.settled(owner, found)
        if made is not None:
            owner[made.start : made.stop] = len(found)
            found.append(made)
    return found


def searched(table: InstructionTable, low: int, high: int) -> Iterator[RecordedLoop]:
    """Runs of instructions that repeat, the longest ones first found."""
    codes, runs = table.classes[low:high], []
    for p in frequent_distances(table.next_alike[low : max(low, high - ALIKE_ROWS + 1)]):
        ends = np.append(np.flatnonzero(codes[:-p] != codes[p:]), len(codes) - p)
        lengths = np.diff(ends, prepend=-1) - 1  # so many codes are those p places later
        n = int(lengths.argmax())
        trips = int(lengths[n]) // p + 1
        if trips >= LOOP_TRIPS:
            runs.append((-trips * p, p, int(ends[n] - lengths[n])))
    for covered, p, first in sorted(runs):
        parts = range(1, min(PARTS_OF_A_TRIP, -covered // p // LOOP_TRIPS) + 1)
        tried = (steady_trips(table, low + first, m * p, -covered // p // m) for m in parts)
        loop = next(filter(None, tried), None)
        if loop is None:
            table.refused.add("the places of its trips follow no fixed step")
        else:
            yield from searched(table, low, loop.start)
            yield loop
            yield from searched(table, loop.stop, high)
            return


def steady_trips(table: InstructionTable, start: int, period: int, trips: int) -> RecordedLoop | None:
    """The trips of which all operands go on by fixed steps; the run of codes may begin within a trip."""
    loop = RecordedLoop(table, start, period, trips)
    at = loop.positions()
    fine = is_steady(at[:, ~table.constant[loop.operands[0]]]) & is_steady(loop.indices.reshape(trips, -1))
    first, stop = max(runs_of(fine), key=lambda run: run[1] - run[0], default=(0, 0))
    which = np.zeros(trips, bool)
    which[first : stop + 2 if stop else 0] = True
    return loop.part(which)


def is_steady(numbers: np.ndarray) -> np.ndarray:
    """Of each trip: do the numbers of this one and the next two go on by the same steps?"""
    return (numbers[2:] - numbers[1:-1] == numbers[1:-1] - numbers[:-2]).all(axis=1)
