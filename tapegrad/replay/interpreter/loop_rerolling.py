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
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.primitive import ADD_AT, ASSIGN, READ
from ..costs import (
    ALIKE_ROWS,
    LOOP_ELEMENTS,
    LOOP_TRIPS,
    PERIODS,
    PERIODS_TRIED,
    POINTER_PLACES,
    TRIP_ELEMENTS,
    TRIP_ROWS_LEAST,
    TRIP_ROWS_MOST,
)
from ..program import Instruction, Program
from .machine_code import BODIES, CHECKED, NUMBER, OUTSIDE, ROW, TANH_SLOPE, compile_text

NAME = {NUMBER[name]: name for name in (*BODIES, "guard")}
READS = {n: [c for c, x in enumerate(("%old", "%x", "%y", "%z")) if x in BODIES.get(name, "%x")] for n, name in NAME.items()}
# (never within a loop: calls of others)
READS |= {NUMBER[name]: [0] for name in OUTSIDE}
WRITES = frozenset((ASSIGN, ADD_AT))
# of what is not finite comes what is not
PASSING = frozenset(("add", "sub", "mul", "sqrt", "addto", "muladd"))
WORD = re.compile(r"%(old|[rxyzpq])\b")


# --- which rows repeat ---


def distances(codes: np.ndarray) -> list:
    """From places at which some codes begin to where the same ones begin next: the most frequent
    distances."""
    h = np.zeros(max(len(codes) - ALIKE_ROWS + 1, 0), np.uint64)
    for k in range(ALIKE_ROWS):
        h = h * np.uint64(0x9E3779B97F4A7C15) + codes[k : k + len(h)].astype(np.uint64) + np.uint64(1)
    order = np.argsort(h, kind="stable")
    near = np.diff(order)[h[order[1:]] == h[order[:-1]]]
    found, counts = np.unique(near[near <= TRIP_ROWS_MOST], return_counts=True)
    return found[np.argsort(-counts, kind="stable")][:PERIODS].tolist()


def judged_runs(codes: np.ndarray, judge: Callable) -> list:
    """What `judge(start, period, trips)` makes of runs of codes that repeat, the longest ones first, in
    order: (start, stop, what)."""
    runs = {}
    for p in distances(codes):
        ends = np.append(np.flatnonzero(codes[:-p] != codes[p:]), len(codes) - p)
        places = np.arange(len(codes) - p)
        # so many codes from each place on are those p places later
        runs[p] = ends[np.searchsorted(ends, places)] - places
    return searched(runs, judge, 0, len(codes))


def searched(runs: dict, judge: Callable, low: int, high: int) -> list:
    found = []
    for p, run in runs.items():
        count = high - p - low
        if count < (LOOP_TRIPS - 1) * p:
            continue
        covered = (np.minimum(run[low : low + count], np.arange(count, 0, -1)) // p + 1) * p
        i = int(covered.argmax())
        if covered[i] >= LOOP_TRIPS * p:
            found.append((-int(covered[i]), p, low + i))
    for covered, p, i in sorted(found)[:PERIODS_TRIED]:
        made = judge(i, p, -covered // p)
        if made is not None:
            return [*searched(runs, judge, low, made[0]), made, *searched(runs, judge, made[1], high)]
    return []


def instruction_cost(program: Program, k: int, i: Instruction) -> int:
    """About how many operations an instruction is."""
    if i.prim in WRITES:
        return math.prod(program.shown[i.args[1]][1])
    if i.prim is READ or type(i.prim) is str or i.prim.batch == "moves":
        return 0
    n = math.prod(program.shown[k][1])
    return n * program.shown[i.args[0]][1][-1] if i.reduces == "products" else n


def numbered(keys: list) -> np.ndarray:
    known: dict = {}
    return np.array([known.setdefault(k, len(known)) for k in keys], np.int64)


def is_rolled(program: Program, runs: list) -> bool:
    """Are more than half of the instructions of one of these runs in loops?"""
    return any([2 * len(repeated_instructions(program, start, stop)) > stop - start for start, stop in runs])


def repeated_instructions(program: Program, start: int, stop: int) -> list:
    """Which of these small instructions of a program are in runs that repeat."""
    if stop - start < LOOP_TRIPS * TRIP_ROWS_LEAST:
        return []
    code = program.code[start:stop]
    sizes = np.array([instruction_cost(program, k, i) for k, i in code])
    keys = [
        (i.prim, program.shown[k][1]) if n <= LOOP_ELEMENTS or i.reduces == "products" else k for (k, i), n in zip(code, sizes, strict=True)
    ]

    def judge(first: int, period: int, trips: int) -> tuple | None:
        return (first, first + period * trips, None) if sizes[first : first + period].sum() <= TRIP_ELEMENTS else None

    runs = judged_runs(numbered(keys), judge)
    return [k for first, last, _ in runs for k, _ in program.code[start + first : start + last]]


# --- one trip ---


class NotALoop(Exception):
    """Why rows that repeat are no loop."""


class RerolledLoop:
    """Rows from `start` on, `period` of them a trip: `code` of all rows, `table` of indices."""

    def __init__(self, code: np.ndarray, table: np.ndarray, start: int, period: int, trips: int, constants: dict):
        self.code, self.table, self.start, self.period, self.trips = code, table, start, period, trips
        self.constants = constants
        self.affine()
        self.meeting: set = set()  # cells that in one of the trips are one place: each goes to memory at once
        self.trip()
        self.meeting = self.met()
        if self.meeting:
            self.trip()
        self.carried = {(b, d): (b + d, d) for b, d in self.loads if (b + d, d) in self.written}

    @property
    def stop(self) -> int:
        return self.start + self.period * self.trips

    def affine(self) -> None:
        """The longest run of trips whose places are a fixed step further on, and the cells of its rows."""
        rows = self.code[self.start : self.stop].reshape(self.trips, self.period, -1)
        fine = np.ones(max(self.trips - 2, 0), bool)
        self.places: list = []
        outside = [name for name in OUTSIDE if (rows[0, :, 0] == NUMBER[name]).any()]
        if outside:
            raise NotALoop(f"a trip calls other functions ({outside[0]})")
        if rows[0, :, 1].sum() > TRIP_ELEMENTS:
            raise NotALoop(f"a trip takes {rows[0, :, 1].sum()} elements")
        for j in range(self.period):
            op, n = rows[0, j, :2]
            n = 1 if op == NUMBER["guard"] else n
            for c in sorted({0, *READS[op]} if op != NUMBER["guard"] else {1}):
                at = self.table[rows[:, j, 2 + c, None] + np.arange(n)]
                fine &= (at[2:] - at[1:-1] == at[1:-1] - at[:-2]).all(axis=1)
                self.places.append((j, c, at))
        ends = np.flatnonzero(np.diff(np.concatenate([[False], fine, [False]]).astype(np.int8)))
        if not len(ends):
            raise NotALoop("the places of its trips follow no fixed step")
        lengths = ends[1::2] - ends[::2]
        longest = int(lengths.argmax())
        first, self.trips = int(ends[2 * longest]), int(lengths[longest]) + 2
        if self.trips < LOOP_TRIPS:
            raise NotALoop("the places of its trips follow no fixed step")
        self.start += first * self.period
        self.cells = {(j, c): list(zip(at[first].tolist(), (at[first + 1] - at[first]).tolist(), strict=True)) for j, c, at in self.places}
        del self.places

    def trip(self) -> None:
        """The lines of one trip."""
        self.lines: list = []  # texts, and ("load" or "store", value, cell)
        self.fresh = 0
        self.env: dict = {}  # cell -> its value
        self.loads: dict = {}  # cell -> its value at the beginning
        self.written: dict = {}  # cell -> its value at the end
        self.checks: dict = {}
        self.failed = "0"
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
        op, n = self.code[self.start + j, :2].tolist()
        name = NAME[op]
        if name == "guard":
            self.guard(j, n, self.read(self.cells[j, 1][0]))
            return
        columns = READS[op]
        for k in range(n):
            given = {WORDS[c]: self.read(self.cells[j, c][k]) for c in columns}
            to = self.cells[j, 0][k]
            if name == "copy":
                made = given["x"]
            else:
                made = given["r"] = self.name()
                given |= {"p": f"{made}p", "q": f"{made}q"}
                self.lines.append(WORD.sub(lambda m, given=given: given[m[1]], BODIES[name]))
                if name in PASSING:
                    for c in columns:
                        self.checks.pop(given[WORDS[c]], None)
                if name in CHECKED:
                    self.checks[made] = None
            if to in self.meeting:
                self.lines.append(("store", made, to))
            else:
                self.env[to] = self.written[to] = made

    def guard(self, j: int, truth: int, x: str) -> None:
        """The first guard that fails is kept, as 1 + its row."""
        q, f, r, k = [self.name() for _ in range(4)]
        self.lines.append(f"{q} = fcmp {'oeq' if truth else 'une'} double {x}, 0.0")
        self.lines.append(f"{f} = icmp eq i64 {self.failed}, 0")
        self.lines.append(f"{r} = and i1 {f}, {q}")
        self.lines.append(f"{k} = select i1 {r}, i64 {j + 1}, i64 {self.failed}")
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
        steps = sorted({d for _, d in pointers})
        entry: list = []
        body: list = []
        for s in range(len(self.bases)):
            entry += [f"%a{s} = getelementptr i64, ptr %bases, i64 {s}", f"%b{s} = load i64, ptr %a{s}"]
            entry.append(f"%p{s} = getelementptr double, ptr %arena, i64 %b{s}")
        moving = [d for d in steps if d]
        for n, d in enumerate(moving):
            body.append(f"%d{n} = mul i64 %t, {d}")
        now = {}
        for s, d in self.steps.items():
            now[s] = f"%p{s}"
            if d:
                now[s] = f"%q{s}"
                body.append(f"%q{s} = getelementptr double, ptr %p{s}, i64 %d{moving.index(d)}")
        phis = []
        for n, (cell, value) in enumerate(self.loads.items()):
            s, away = pointers[cell]
            if cell in self.carried:
                entry += [f"%f{n} = getelementptr double, ptr %p{s}, i64 {away}", f"%g{n} = load double, ptr %f{n}"]
                phis.append(f"{value} = phi double [ %g{n}, %entry ], [ {self.written[self.carried[cell]]}, %next ]")
            else:
                body += [f"%f{n} = getelementptr double, ptr {now[s]}, i64 {away}", f"{value} = load double, ptr %f{n}"]
        for n, line in enumerate(self.lines):
            if type(line) is str:
                body.append(line)
            else:
                how, value, (s, away) = line[0], line[1], pointers[line[2]]
                body.append(f"%m{n} = getelementptr double, ptr {now[s]}, i64 {away}")
                body.append(f"{value} = load double, ptr %m{n}" if how == "load" else f"store double {value}, ptr %m{n}")
        for n, (cell, value) in enumerate(self.stores.items()):
            s, away = pointers[cell]
            body += [f"%h{n} = getelementptr double, ptr {now[s]}, i64 {away}", f"store double {value}, ptr %h{n}"]
        bad = self.summed([v for v in self.checks if v[0] == "%"], body)
        phis = ["%t = phi i64 [ 0, %entry ], [ %t1, %next ]", f"%bad = phi double [ 0.0, %entry ], [ {bad}, %next ]", *phis]
        names = {m for line in self.lines if type(line) is str for m in re.findall(r"@([\w.]+)\(", line)}
        declared = [
            f"declare double @{f}(double)" for f in sorted(names | ({"cosh"} if "tanh_slope" in names else set())) if f != "tanh_slope"
        ]
        lines = [
            *declared,
            TANH_SLOPE if "tanh_slope" in names else "",
            "define i64 @loop(ptr %bases, i64 %trips, i64 %first, ptr %arena) {",
            *["entry:", *entry, "br label %body"],
            *["body:", *phis, *body, f"%failed = icmp ne i64 {self.failed}, 0", "br i1 %failed, label %guarded, label %next"],
            *["next:", "%t1 = add i64 %t, 1", "%more = icmp slt i64 %t1, %trips", "br i1 %more, label %body, label %end"],
            *["end:", f"%fine = fcmp oeq double {bad}, 0.0", "%answer = select i1 %fine, i64 0, i64 1", "ret i64 %answer"],
            *["guarded:", f"%k0 = mul i64 %t, {self.period}", f"%k1 = add i64 %k0, {self.failed}", "%k2 = add i64 %k1, %first"],
            *["%k3 = add i64 %k2, 1", "ret i64 %k3", "}"],
        ]
        return "\n".join(lines) + "\n"

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

    def pointers(self) -> tuple:
        """(cell -> (its pointer, places beyond it), the places of the pointers in the first trip)."""
        found, bases = {}, []
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
        return NUMBER["loop"], self.trips, 0, 0, self.start, 0, *places, *[0] * (ROW - 10)


WORDS = ("old", "x", "y", "z")


def literal(v: float) -> str:
    return f"0x{np.float64(v).view(np.uint64):016X}"


class ListedRows:
    """The rows of a block, each with the places of all its elements."""

    def __init__(self) -> None:
        self.rows: list = []
        self.table: list = []
        self.length = 0

    def add(self, name: str, n: int, places: list) -> None:
        """`places`: of the result and the operands, each of the shape of the result."""
        fields = [NUMBER[name], n]
        for at in places:
            fields.append(self.length)
            self.table.append(at.ravel())
            self.length += at.size
        self.rows.append((*fields, *[0] * (6 - len(fields))))

    def outside(self, name: str, *operands: Any) -> None:
        """A call of others, which reads these."""
        at = np.concatenate([v.ravel() for v in operands])
        self.add(name, at.size, [at])

    def settle(self) -> tuple:
        return np.array(self.rows, np.int64).reshape(-1, 6), np.concatenate([*self.table, np.zeros(1, np.int64)])


def reroll_blocks(arena: Any, blocks: list) -> tuple:
    """Puts loops into the rows of blocks that have rows that repeat: (the loops, why others are none)."""
    constants = {int(at): literal(v) for at, v in arena.constants if np.ndim(v) == 0}
    refused: dict = {}
    read = np.zeros(arena.size, bool)
    found = []
    for block in blocks:
        code, table = block.listed.settle()
        block.listed = None

        def judge(start: int, period: int, trips: int, code: Any = code, table: Any = table) -> tuple | None:
            try:
                made = RerolledLoop(code, table, start, period, trips, constants)
            except NotALoop as error:
                refused[str(error)] = refused.get(str(error), 0) + 1
                return None
            return made.start, made.stop, made

        loops = judged_runs(numbered(list(map(tuple, code[:, :2].tolist()))), judge)
        found.append(loops)
        last = 0
        for start, stop, loop in (*loops, (len(code), len(code), None)):
            for op, n, *places in code[last:start].tolist():
                for c in READS[op]:
                    read[table[places[c] : places[c] + (1 if op == NUMBER["guard"] else n)]] = True
            for places in () if loop is None else loop.read_places():
                read[places] = True
            last = stop
        for _, _, at in block.ways:
            read[at] = True
    for block, loops in zip(blocks, found, strict=True):
        for start, stop, loop in reversed(loops):
            loop.store(read)
            block.rows[start:stop] = [loop.compile()]
    return [loop for loops in found for *_, loop in loops], refused
