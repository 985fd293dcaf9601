"""Loops of Python that were recorded trip by trip, as loops again: rows of a block that repeat, each time at
places a fixed step further on, are compiled for one trip.

A cell (first, step) is the place first + t step of the arena in trip t.  Within a trip what is written to a
cell is known to those that read it, and never leaves the registers; so is, from one trip to the next, what
was written there one trip before.  Only what others read goes to memory, at the end of the trip.  The text
says nothing of the number of trips, and the arithmetic is that of the rows, one element after the other: the
bits are those of the interpreter where it takes sums in that order too."""

import ctypes
import math
import re
from typing import Any

import numpy as np

from ..._core.primitive import ADD_AT, ASSIGN, READ
from ..costs import (
    LOOP_ELEMENTS,
    POINTER_PLACES,
    TRIP_ELEMENTS,
)
from ..record.instructions import PART
from .arena import components
from .listed_rows import NAME, READS
from .machine_code import BODIES, CHECKED, NUMBER, OUTSIDE, TANH_SLOPE, compile_text, row_of
from .program_loops import RecordedLoop
from .strided_rows import FAILED, INFINITE, NO_NUMBER
from .trip_rows import NotALoop, TripRows

WRITES = frozenset((ASSIGN, ADD_AT))
# of what is not finite comes what is not
PASSING = frozenset(("add", "sub", "mul", "sqrt", "addto", "muladd"))
WORD = re.compile(r"%(old|[rxyzpqtuvw])\b")


FRAME = """{declared}
define i64 @loop(ptr %bases, i64 %trips, i64 %first, ptr %arena) {{
entry:
  {entry}
  br label %body
body:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %bad = phi double [ 0.0, %entry ], [ {bad}, %next ]
  %no_number = phi i1 [ {tolerant}, %entry ], [ {no_number}, %next ]
  {phis}
  {body}
  %failed = icmp ne i64 {failed}, 0
  br i1 %failed, label %guarded, label %next
next:
  %t1 = add i64 %t, 1
  %more = icmp slt i64 %t1, %trips
  br i1 %more, label %body, label %end
end:
  %fine = fcmp oeq double {bad}, 0.0
  %class = select i1 {no_number}, i64 {no_number_class}, i64 {infinite_class}
  %answer = select i1 %fine, i64 0, i64 %class
  ret i64 %answer
guarded:
  %k0 = mul i64 %t, {guards}
  %k1 = add i64 %k0, {failed}
  %k2 = add i64 %k1, %first
  %k3 = add i64 %k2, {beyond}
  ret i64 %k3
}}
"""


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
        outside = [name for name in OUTSIDE if (self.code[:, 0] == NUMBER[name]).any()]
        if outside:
            raise NotALoop(f"a trip calls other functions ({outside[0]})")
        if not is_small(rows.loop) or self.code[:, 1].sum() > TRIP_ELEMENTS:
            raise NotALoop(f"a trip takes {self.code[:, 1].sum()} elements")
        steps = then - table
        self.cells = {
            (j, c): [*zip(table[at : at + n].tolist(), steps[at : at + n].tolist(), strict=True)]
            for j, c, at, n in read_or_written(self.code)
        }
        self.meeting: set = set()  # cells that in one of the trips are one place: each goes to memory at once
        self.trip()
        self.meeting = self.met()
        if self.meeting:
            self.trip()
        self.carried = {(b, d): (b + d, d) for b, d in self.loads if (b + d, d) in self.written}

    def trip(self) -> None:
        """The lines of one trip."""
        self.lines: list = []  # texts, and ("load" or "store", value, cell)
        self.fresh = 0
        self.env: dict = {}  # cell -> its value
        self.loads: dict = {}  # cell -> its value at the beginning
        self.written: dict = {}  # cell -> its value at the end
        self.checks: dict = {}
        self.failed, self.asked = "0", 0
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
        name = NAME[op]
        if name == "guard":
            self.guard(n, self.read(self.cells[j, 1][0]))
            return
        columns = READS[op]
        for k in range(n):
            given = {WORDS[c]: self.read(self.cells[j, c][k]) for c in columns}
            to = self.cells[j, 0][k]
            if name == "copy":
                made = given["x"]
            else:
                made = given["r"] = self.name()
                given |= {name: f"{made}{name}" for name in "pqtuvw"}
                self.lines.append(WORD.sub(lambda m: given[m[1]], BODIES[name]))
                if name in PASSING:
                    for c in columns:
                        self.checks.pop(given[WORDS[c]], None)
                if name in CHECKED:
                    self.checks[made] = None
            if to in self.meeting:
                self.lines.append(("store", made, to))
            else:
                self.env[to] = self.written[to] = made

    def guard(self, truth: int, x: str) -> None:
        """The first guard that fails is kept, as 1 + its number."""
        self.asked += 1
        q, f, r, k = [self.name() for _ in range(4)]
        self.lines.append(f"{q} = fcmp {'oeq' if truth else 'une'} double {x}, 0.0")
        self.lines.append(f"{f} = icmp eq i64 {self.failed}, 0")
        self.lines.append(f"{r} = and i1 {f}, {q}")
        self.lines.append(f"{k} = select i1 {r}, i64 {self.asked}, i64 {self.failed}")
        self.failed = k

    def met(self) -> set:
        """Cells of different steps, one of them written, that are one place in one of the trips."""
        cells = np.array([*dict.fromkeys([*self.loads, *self.written])], np.int64).reshape(-1, 2)
        written = np.array([*self.written], np.int64).reshape(-1, 2)
        found: set = set()
        for some in np.array_split(written, len(written) * len(cells) // (1 << 20) + 1):
            apart = some[:, None, 1] - cells[None, :, 1]
            gap = cells[None, :, 0] - some[:, None, 0]
            t = gap // np.where(apart, apart, 1)
            one, other = np.nonzero((apart != 0) & (t * apart == gap) & (t >= 0) & (t < self.trips))
            found.update(map(tuple, some[one].tolist()), map(tuple, cells[other].tolist()))
        return found

    def read_places(self) -> Any:
        """All places that are read from memory."""
        t = np.arange(self.trips)
        for b, d in (*self.loads, *self.meeting):
            yield b if (b, d) in self.carried else b + d * t

    def store(self, read: np.ndarray) -> None:
        """What is written to memory: the places that somebody reads."""
        t = np.arange(self.trips)
        self.stores = {(b, d): v for (b, d), v in self.written.items() if read[b + d * t].any()}

    # --- the text ---

    def text(self) -> str:
        """`loop(bases, trips, first row, arena)`: as the interpreter's answers.  (The steps are in the text:
        they do not depend on the number of trips.)"""
        pointers, self.bases = self.pointers()
        entry: list = []
        body: list = []
        for s, d in self.steps.items():
            entry += [f"%a{s} = getelementptr i64, ptr %bases, i64 {s}", f"%b{s} = load i64, ptr %a{s}"]
            entry.append(f"%p{s} = getelementptr double, ptr %arena, i64 %b{s}")
            body += [f"%d{s} = mul i64 %t, {d}", f"%q{s} = getelementptr double, ptr %p{s}, i64 %d{s}"]

        def place(lines: list, cell: tuple) -> str:
            """Where the cell lies in the first trip, or in this one."""
            found, (s, away) = self.name(), pointers[cell]
            base = f"%{'p' if lines is entry else 'q'}{s}"
            lines.append(f"{found} = getelementptr double, ptr {base}, i64 {away}")
            return found

        phis = []
        for cell in self.carried:
            first = self.name()
            entry.append(f"{first} = load double, ptr {place(entry, cell)}")
            last = self.written[self.carried[cell]]
            phis.append(f"{self.loads[cell]} = phi double [ {first}, %entry ], [ {last}, %next ]")
        loads = [("load", value, cell) for cell, value in self.loads.items() if cell not in self.carried]
        stores = [("store", value, cell) for cell, value in self.stores.items()]
        for line in (*loads, *self.lines, *stores):
            if type(line) is str:
                body.append(line)
            elif line[0] == "load":
                body.append(f"{line[1]} = load double, ptr {place(body, line[2])}")
            else:
                body.append(f"store double {line[1]}, ptr {place(body, line[2])}")
        checked = [v for v in self.checks if v[0] == "%"]
        bad, no_number = self.summed(checked, body), self.no_number(checked, body)
        names = {m for line in self.lines if type(line) is str for m in re.findall(r"@([\w.]+)\(", line)}
        slope = "tanh_slope" in names
        declared = sorted((names | {"cosh"} if slope else names) - {"tanh_slope"})
        return FRAME.format(
            declared="\n".join([f"declare double @{f}(double)" for f in declared]) + TANH_SLOPE * slope,
            entry="\n  ".join(entry),
            phis="\n  ".join(phis),
            body="\n  ".join(body),
            bad=bad,
            tolerant="false" if self.tolerant else "true",
            no_number=no_number,
            no_number_class=NO_NUMBER,
            infinite_class=INFINITE,
            failed=self.failed,
            guards=self.guards,
            beyond=FAILED,
        )

    def summed(self, values: list, body: list) -> str:
        """0 if all of them are finite, else no number."""
        terms = []
        for v in values:
            z = self.name()
            body.append(f"{z} = fsub double {v}, {v}")
            terms.append(z)
        terms.append("%bad")
        while len(terms) > 1:
            z = self.name()
            body.append(f"{z} = fadd double {terms.pop(0)}, {terms.pop(0)}")
            terms.append(z)
        return terms[0]

    def no_number(self, values: list, body: list) -> str:
        """Is one of them no number?  (If that is not asked, all that is not finite counts as such.)"""
        found = "%no_number"
        for v in values if self.tolerant else ():
            one, several = self.name(), self.name()
            body += [f"{one} = fcmp uno double {v}, 0.0", f"{several} = or i1 {found}, {one}"]
            found = several
        return found

    def pointers(self) -> tuple:
        """(cell -> (its pointer, places beyond it), the places of the pointers in the first trip)."""
        found: dict = {}
        bases: list = []
        self.steps: dict = {}
        last: Any = None
        for d, b in sorted({(d, b) for b, d in (*self.loads, *self.stores, *self.meeting)}):
            if last is None or last[0] != d or b - last[1] > max(abs(d), POINTER_PLACES):
                self.steps[len(bases)] = d
                bases.append(b)
            last = d, b
            found[b, d] = len(bases) - 1, b - bases[-1]
        return found, bases

    def compile(self) -> tuple:
        """The row that runs it."""
        self.address = compile_text(self.text(), "loop")
        self.held = (ctypes.c_int64 * max(len(self.bases), 1))(*self.bases)
        places = np.array([self.address, ctypes.addressof(self.held)], np.int64).view(np.int32).tolist()
        return row_of("loop", self.trips, 0, 0, self.first_guard, 0, *places)


WORDS = ("old", "x", "y", "z")


def literal(v: float) -> str:
    return f"0x{np.float64(v).view(np.uint64):016X}"


def read_or_written(code: np.ndarray) -> list:
    """(row, column, where its places begin in the table, how many there are)."""
    found = []
    for j, (op, n, *at) in enumerate(code.tolist()):
        columns = [1] if op == NUMBER["guard"] else sorted({0, *READS[op]})
        found += [(j, c, at[c], 1 if op == NUMBER["guard"] else n) for c in columns]
    return found


def reroll_blocks(arena: Any, blocks: list, tolerant: bool) -> tuple:
    """Puts compiled loops into blocks: (these loops, why others are none)."""
    numbers = [(at, *part) for at, v in arena.constants if np.ndim(v) == 0 for part in components(v)]
    constants = {int(at) + k: literal(part) for at, k, part in numbers}
    refused: dict = {}
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
        for _, _, at in block.ways:
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
