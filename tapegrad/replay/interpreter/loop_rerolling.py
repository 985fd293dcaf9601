"""Loops of Python that were recorded trip by trip, as loops again: rows of a block that repeat, each time at
places a fixed step further on, are compiled for one trip.

A cell (first, step) is the place first + t step of the arena in trip t.  Within a trip what is written to a
cell is known to those that read it, and never leaves the registers; so is, from one trip to the next, what
was written there one trip before.  Only what others read goes to memory, at the end of the trip.  The text
says nothing of the number of trips, and the arithmetic is that of the rows, one element after the other: the
bits are those of the interpreter where it takes sums in that order too."""

import ctypes
import math

import numpy as np

from ..._core.primitive import ADD_AT, ASSIGN, READ
from ..costs import LOOP_ELEMENTS, TRIP_ELEMENTS
from ..record.instructions import PART
from .arena import components
from .listed_rows import NAME, READS
from .loop_text import MOST_LANES, Lanes, LoopText
from .machine_code import CHECKED, NUMBER, OUTSIDE, address_of_call, compile_text, row_of
from .program_loops import RecordedLoop
from .trip_rows import NotALoop, TripRows

WRITES = frozenset((ASSIGN, ADD_AT))
CALLED = {NUMBER[name]: name for name in OUTSIDE}
WRITES_AT = 4  # the field of a listed call that tells whether its places are written
# of what is not finite comes what is not
PASSING = frozenset(("add", "sub", "mul", "sqrt", "addto", "muladd"))


def is_small(loop: RecordedLoop) -> bool:
    """Are the trips of a loop such that a compiled one pays?"""
    shown, cost = loop.table.shown, 0
    for k, i in loop.trip(0):
        if i.prim in WRITES:
            n = math.prod(shown[i.args[1]][1])
        elif i.prim is READ or i.prim is PART or i.prim.batch == "moves":
            n = 0
        else:
            n = math.prod(shown[k][1])
        if n > LOOP_ELEMENTS and i.reduces != "products":
            return False
        cost += n * shown[i.args[0]][1][-1] if i.reduces == "products" else n
    return cost <= TRIP_ELEMENTS


# --- one trip ---


class RerolledLoop:
    """A loop whose trip is these rows: `table` and `then` are where their elements lie in the first trip and
    in the second.  `first_guard`: the number of its first guard; `tolerant`: does it tell infinite results
    from what is no number?"""

    def __init__(self, rows: TripRows, constants: dict, tolerant: bool):
        first, second = [sample.listed.settle() for sample in rows.samples[:2]]
        if first[0].shape != second[0].shape:
            raise NotALoop("its trips differ")
        (self.code, table), (_, then) = first, second
        self.tolerant = tolerant
        self.trips, self.constants, self.period = rows.trips, constants, len(self.code)
        self.first_guard, self.guards = rows.first_guard, len(rows.guards) // rows.trips
        self.sample, self.every_row = rows.samples[0], rows.code
        calls = np.isin(self.code[:, 0], [*CALLED])
        if tolerant and calls.any():
            raise NotALoop(f"a trip calls other functions ({CALLED[self.code[calls.argmax(), 0].item()]})")
        if not is_small(rows.loop) or self.code[:, 1].sum() > TRIP_ELEMENTS:
            raise NotALoop(f"a trip takes {self.code[:, 1].sum()} elements")
        steps = then - table
        self.cells = {
            (j, c): [*zip(table[at : at + n].tolist(), steps[at : at + n].tolist(), strict=True)]
            for j, c, at, n in read_or_written(self.code)
        }
        # cells that calls read, and that they write
        self.exchanged = set(), set()
        for j in np.flatnonzero(calls).tolist():
            self.exchanged[self.code[j, WRITES_AT]].update(self.cells[j, 0])
        self.meeting = set()  # cells that in one of the trips are one place: each goes to memory at once
        self.trip()
        self.meeting = self.met()
        if self.meeting:
            self.trip()
        self.carried = {(b, d): (b + d, d) for b, d in self.loads if (b + d, d) in self.written}

    def trip(self) -> None:
        """The lines of one trip: `Lanes`; ("load" or "store", value, cell); ("guard", its truth, value);
        ("call", name, where its row begins)."""
        self.lines = []
        self.fresh = 0
        self.env = {}  # cell -> its value
        self.loads = {}  # cell -> its value at the beginning
        self.written = {}  # cell -> its value at the end
        self.checks = {}
        for j in range(self.period):
            self.row(j)

    def name(self) -> str:
        self.fresh += 1
        return f"%v{self.fresh}"

    def read(self, cell: tuple) -> str:
        found = self.env.get(cell)
        if found is None:
            if not cell[1] and cell[0] in self.constants:
                return self.constants[cell[0]]
            found = self.name()
            if cell in self.meeting:
                self.lines.append(("load", found, cell))
            else:
                self.env[cell] = self.loads[cell] = found
        return found

    def row(self, j: int) -> None:
        op, n = self.code[j, :2].tolist()
        if op in CALLED:
            if self.code[j, WRITES_AT]:
                self.lines.append(("call", CALLED[op], self.sample.begins[self.code[j, WRITES_AT + 1]]))
            return
        name = NAME[op]
        if name == "guard":
            self.lines.append(("guard", n, self.read(self.cells[j, 1][0])))
            return
        columns, lanes = READS[op], Lanes(name, len(READS[op]))
        for k in range(n):
            cells = [self.cells[j, c][k] for c in columns]
            to = self.cells[j, 0][k]
            meets = to in self.meeting or not self.meeting.isdisjoint(cells)
            if meets:
                lanes = self.closed(lanes)
            given = [self.read(cell) for cell in cells]
            if name == "copy":
                made = given[0]
            else:
                if len(lanes.made) == MOST_LANES or not lanes.made_names.isdisjoint(given):
                    lanes = self.closed(lanes)
                made = self.name()
                lanes.add(made, given)
                if name in PASSING:
                    for x in given:
                        self.checks.pop(x, None)
                if name in CHECKED:
                    self.checks[made] = None
            if meets:
                lanes = self.closed(lanes)
            if to in self.meeting:
                self.lines.append(("store", made, to))
            else:
                self.env[to] = self.written[to] = made
        self.closed(lanes)

    def closed(self, lanes: Lanes) -> Lanes:
        """Keep the elements so far; what follows are others."""
        if not lanes.made:
            return lanes
        self.lines.append(lanes)
        return Lanes(lanes.name, len(lanes.given))

    def met(self) -> set:
        """Cells of different steps, one of them written, that are one place in one of the trips; and those by
        which the rows and the calls of a trip exchange values."""
        given, left = self.exchanged
        every, changed = (
            {**self.loads, **self.written} | dict.fromkeys([*given, *left]),
            {*self.written, *left},
        )
        cells, written = [np.array([*some], np.int64).reshape(-1, 2) for some in (every, changed)]
        found = left | (given & changed)
        for some in np.array_split(written, len(written) * len(cells) // (1 << 20) + 1):
            apart = some[:, None, 1] - cells[None, :, 1]
            gap = cells[None, :, 0] - some[:, None, 0]
            t = gap // np.where(apart, apart, 1)
            one, other = np.nonzero((apart != 0) & (t * apart == gap) & (t >= 0) & (t < self.trips))
            found.update(map(tuple, some[one].tolist()), map(tuple, cells[other].tolist()))
        return found

    def read_places(self):
        """All places that are read from memory."""
        t = np.arange(self.trips)
        for b, d in (*self.exchanged[0], *self.meeting):
            yield b + d * t
        for b, d in self.loads:
            yield b if (b, d) in self.carried else b + d * t

    def store(self, read: np.ndarray) -> None:
        """What is written to memory: the places that somebody reads."""
        t = np.arange(self.trips)
        self.stores = {(b, d): v for (b, d), v in self.written.items() if read[b + d * t].any()}

    def compile(self) -> tuple:
        """The row that runs it."""
        made = LoopText(self)
        self.address = compile_text(made.text(), "loop")
        given = [*made.bases, self.every_row.ctypes.data, *map(address_of_call, made.called)]
        self.held = (ctypes.c_int64 * len(given))(*given)
        places = np.array([self.address, ctypes.addressof(self.held)], np.int64).view(np.int32).tolist()
        return row_of("loop", self.trips, 0, 0, self.first_guard, 0, *places)


def literal(v: float) -> str:
    return f"0x{np.float64(v).view(np.uint64):016X}"


def read_or_written(code: np.ndarray) -> list:
    """(row, column, where its places begin in the table, how many there are)."""
    found = []
    for j, (op, n, *at) in enumerate(code.tolist()):
        columns = [1] if op == NUMBER["guard"] else sorted({0, *READS[op]})
        found += [(j, c, at[c], 1 if op == NUMBER["guard"] else n) for c in columns]
    return found


def reroll_blocks(arena, blocks: list, tolerant: bool) -> tuple:
    """Puts compiled loops into blocks: (these loops, why others are none)."""
    numbers = [(at, *part) for at, v in arena.constants if np.ndim(v) == 0 for part in components(v)]
    constants = {int(at) + k: literal(part) for at, k, part in numbers}
    refused = {}
    read = np.zeros(arena.size, bool)
    for block in blocks:
        code, table = block.listed.settle()
        note_read(read, code, table, np.zeros_like(table), 1)
        for reason in block.refused:
            refused[reason] = refused.get(reason, 0) + 1
        for rows in block.loops:
            try:
                rows.compiled = RerolledLoop(rows, constants, tolerant)
                for places in rows.compiled.read_places():
                    read[places] = True
            except NotALoop as error:
                refused[str(error)] = refused.get(str(error), 0) + 1
                (code, table), (_, then) = [sample.listed.settle() for sample in rows.samples[:2]]
                note_read(read, code, table, then - table, rows.trips)
        for at in block.places_left:
            read[at] = True
    found = [rows for block in blocks for rows in block.loops if rows.compiled is not None]
    for rows in found:
        rows.compiled.store(read)
        rows.code = np.array(rows.compiled.compile(), np.int32)
    return [rows.compiled for rows in found], refused


def note_read(read: np.ndarray, code: np.ndarray, table: np.ndarray, step: np.ndarray, trips: int) -> None:
    """The places that rows read in all trips."""
    t = np.arange(trips)[:, None]
    for op, n, *places in code.tolist():
        for c in READS[op]:
            at = slice(places[c], places[c] + (1 if op == NUMBER["guard"] else n))
            read[table[at] + t * step[at]] = True
