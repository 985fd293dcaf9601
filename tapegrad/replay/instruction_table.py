"""The instructions of a program as columns of integers: what makes a value, who reads it, and which
instructions are alike.

What is the same for all instructions of a class is worked out once, for its first one."""

import functools
import itertools
from collections.abc import Callable

import numpy as np

from .._core.primitive import ADD_AT, ASSIGN
from .costs import (
    ALIKE_ROWS,
    LOOP_TRIPS,
    PERIODS_TRIED,
    REPEATED_INSTRUCTIONS,
    TRIP_ROWS_LEAST,
    TRIP_ROWS_MOST,
)
from .program import Program
from .record.settings_keys import REGIONS, index_key

END = 1 << 62  # the reader of what leaves the program
WHOLE = 2**53  # whole numbers below it are floats
FACTOR = np.uint64(0x9E3779B97F4A7C15)


class InstructionTable:
    """`made`: number of the value of each instruction; `operands`: those of its operands, from `starts[n]`
    on; `position`, `last`, `reads`: of a value its instruction, its last reader, how many there are (-1:
    none).

    `classes`: instructions of one class differ in the values that they read, and in numbers of an index."""

    def __init__(self, program: Program, shown: dict):
        self.program, self.code, self.shown = program, program.code, shown
        count = len(self.code)
        args = self.code.operands
        arity = np.fromiter(map(len, args), np.int64, count)
        self.starts = np.concatenate([[0], arity.cumsum()])
        self.operands = np.fromiter(itertools.chain.from_iterable(args), np.int64, int(self.starts[-1]))
        self.made = np.array(self.code.numbers, np.int64)
        self.reader = np.repeat(np.arange(count), arity)
        size = program.size + max(0, -int(self.made.min(initial=0)))  # groups have numbers below 0
        self.position, self.last = np.full(size, -1), np.full(size, -1)
        self.position[self.made] = np.arange(count)
        self.last[self.operands] = self.reader
        self.last[np.array(program.ends, np.int64)] = END
        self.reads = np.bincount(self.operands % size, minlength=size)
        self.constant = np.zeros(size, bool)
        self.constant[[*program.constants]] = True
        self.loops = {}  # (start, stop) -> those of interpreter.program_loops
        self.refused = set()  # why instructions that repeat are no loop
        self.classes, self.example = self.sorted_out()
        self.counts = np.bincount(self.classes, minlength=len(self.example))
        # of each value the first instruction that writes it
        self.writer = np.full(size, END)
        writes = np.flatnonzero(self.each(lambda _, i: i.prim is ASSIGN or i.prim is ADD_AT))[::-1]
        self.writer[self.operands[self.starts[writes]]] = writes

    def sorted_out(self) -> tuple:
        """(class of each instruction, first instruction of each class)."""
        looks = np.zeros(len(self.position), np.uint64)
        ids = np.fromiter(map(id, self.shown.values()), np.uint64, len(self.shown))
        looks[np.fromiter(self.shown, np.int64, len(self.shown))] = ids * FACTOR
        looks[self.constant] += np.uint64(1)
        looks[
            [k for k, v in self.program.constants.items() if is_whole(v) and not np.all(np.abs(v) < WHOLE)]
        ] += np.uint64(2)
        what = self.kinds() * FACTOR
        for k, guards in self.program.guards.items():
            if self.position[k] >= 0:
                what[self.position[k]] += np.uint64(
                    sum([3 + 2 * g.truth + bool(g.value) if g.truth else 1 for g in guards])
                )
        which = (np.arange(len(self.operands)) - self.starts[self.reader]).astype(np.uint64)
        mixed = (looks[self.operands] + np.uint64(1)) * (FACTOR + which)
        total = np.concatenate(
            [np.zeros(1, np.uint64), (mixed ^ (mixed >> np.uint64(29))).cumsum(dtype=np.uint64)]
        )
        read = total[self.starts[1:]] - total[self.starts[:-1]]
        key = (what ^ (what >> np.uint64(31))) * FACTOR + looks[self.made] + read * np.uint64(3)
        _, example, classes = np.unique(key, return_index=True, return_inverse=True)
        return classes, example

    def kinds(self) -> np.ndarray:
        """One number for instructions that do the same but for the numbers of an index. Row ``settings[n]``
        of `numbers` has those of instruction n."""
        ids = np.fromiter(map(id, self.code.what), np.uint64, len(self.code))
        _, first, self.settings = np.unique(ids, return_index=True, return_inverse=True)
        known, forms, found = {}, {}, []
        for n in first.tolist():
            prim, params, watched = self.code.what[n]
            form = (id(params), ())
            if prim in REGIONS:
                form = forms[id(params)] = forms.get(id(params)) or index_form(params)
            found.append((known.setdefault((prim, form[0], watched), len(known)), form[1]))
        self.numbers = np.zeros((len(found), max([1, *[len(row) for _, row in found]])), np.int64)
        for n, (_, row) in enumerate(found):
            self.numbers[n, : len(row)] = row
        return np.array([kind for kind, _ in found], np.uint64)[self.settings]

    @functools.cached_property
    def last_reader(self) -> list:
        """`last`, as a list that all share who ask for one value after the other."""
        return self.last.tolist()

    def classes_of_values(self) -> list:
        """The class of the instruction that makes a value; -1: none does."""
        found = np.full(len(self.position), -1)
        found[self.made] = self.classes
        return found.tolist()

    @functools.cached_property
    def next_alike(self) -> np.ndarray:
        """How far from each instruction on the same `ALIKE_ROWS` classes follow next."""
        return next_alike(self.classes)

    def each(self, f: Callable, dtype=bool) -> np.ndarray:
        """f(k, i) for each instruction, asked once for each class."""
        return self.of_classes(f, dtype)[self.classes]

    def of_classes(self, f: Callable, dtype=bool) -> np.ndarray:
        return np.array([f(*self.code[n]) for n in self.example.tolist()], dtype)

    def read_by(self, start: int, stop: int) -> np.ndarray:
        """The operands of some instructions."""
        return self.operands[self.starts[start] : self.starts[stop]]

    def values_read(self, start: int, stop: int) -> np.ndarray:
        """Their operands, each once."""
        found = np.zeros(len(self.position), bool)
        found[self.read_by(start, stop)] = True
        return np.flatnonzero(found)

    def read_outside(self, which: np.ndarray) -> np.ndarray:
        """Of each value: does one of these instructions read it, or does it leave the program?"""
        found = self.last == END
        found[self.operands[which[self.reader]]] = True
        return found


def next_alike(codes: np.ndarray) -> np.ndarray:
    """How far from each code on the same `ALIKE_ROWS` follow next.

    A hash of so many, 16 + 8, is made of the hashes of 16 and of 8."""
    if len(codes) < ALIKE_ROWS:
        return np.full(0, END)
    h = codes.astype(np.uint64) + np.uint64(1)
    length, factor, hashes = 1, FACTOR, {1: h}
    while 2 * length <= ALIKE_ROWS:  # of twice as many: those of the two halves
        h = h[:-length] * factor + h[length:]
        length, factor = 2 * length, np.uint64(int(factor) ** 2 % (1 << 64))
        hashes[length] = h
    rest = hashes[ALIKE_ROWS - length][length:] if ALIKE_ROWS > length else np.uint64(0)
    h = h[: len(codes) - ALIKE_ROWS + 1] * FACTOR + rest
    order = np.argsort(h, kind="stable")
    found = np.full(len(h), END)
    same = h[order[1:]] == h[order[:-1]]
    found[order[:-1][same]] = np.diff(order)[same]
    return found


def frequent_distances(near: np.ndarray) -> list:
    """Of what `next_alike` gives, the most frequent distances within these codes."""
    if len(near) + ALIKE_ROWS <= LOOP_TRIPS * TRIP_ROWS_LEAST:
        return []
    near = near[np.arange(len(near)) + near < len(near)]
    counts = np.bincount(near[near <= TRIP_ROWS_MOST])
    found = np.argsort(-counts, kind="stable")[:PERIODS_TRIED]
    return found[counts[found] > 0].tolist()


def about_unlike(program: Program) -> int:
    """About how many instructions are written one by one, if all that repeat are loops: three trips of those.

    It takes a fraction of the time of an `InstructionTable`."""
    code, looks = program.code, program.shown
    if len(code) < REPEATED_INSTRUCTIONS:
        return len(code)
    prims = np.fromiter([id(what[0]) for what in code.what], np.uint64, len(code))
    codes = prims * FACTOR + np.fromiter(map(id, map(looks.__getitem__, code.numbers)), np.uint64, len(code))
    unlike = np.ones(len(codes), bool)
    for p in frequent_distances(next_alike(codes)):
        for start, stop in runs_of(codes[:-p] == codes[p:]):
            if stop - start >= (LOOP_TRIPS - 1) * p:
                unlike[start + 2 * p : stop] = False
    return int(unlike.sum())


def is_whole(v) -> bool:
    return type(v) is int or (type(v) is np.ndarray and v.dtype.kind in "iu")


def runs_of(which: np.ndarray) -> list:
    """(start, stop) of the runs of true elements."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], which, [False]]).astype(np.int8))).tolist()
    return [*zip(ends[::2], ends[1::2], strict=True)]


def index_form(params: dict) -> tuple:
    """(settings of a region but for the numbers of its indices; these numbers)"""
    numbers = []

    def form(at):
        kind = type(at)
        if kind is int or isinstance(at, np.integer):
            numbers.append(min(max(int(at), -END), END))
            return bool(at < 0)
        if kind is slice:
            return kind, *[v if v is None else form(v) for v in (at.start, at.stop)], at.step
        if kind is tuple:
            return kind, *map(form, at)
        return at if at is None or at is Ellipsis else id(at)

    path = tuple([(kind, form(what) if kind == "at" else index_key(what)) for kind, what in params["path"]])
    return (path, form(params["at"]), params.get("copy")), tuple(numbers)
