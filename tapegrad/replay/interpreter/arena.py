"""Where the values of blocks lie: places of one array of float64, which arrays of integers tell, and the
memory of a run.

The places of complex numbers are those of their real parts.  The imaginary part lies one place further on."""

import functools
import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.arrays import C16, F8, overlaps
from ..costs import (
    ALIGNED_ELEMENTS,
    ARENA_BYTES,
    BOX_ELEMENTS,
    BOXES,
    CACHE_LINE_ELEMENTS,
    COUNTED_PLACES,
    SHORT_AXIS,
    STACK_ELEMENTS,
)
from ..instruction_table import InstructionTable
from ..program import Program

INDEX_BYTES = 8  # bytes of an integer that tells a place
COUNTS = [np.arange(0)]  # the first integers, for all arenas; nobody writes to them


class ArenaRegion:
    """`count` places of the arena, from `first` on.  `own`: they may be written, and used again; `until`: the
    last instruction that reads a value there."""

    __slots__ = ("own", "until", "first", "count")

    def __init__(self, own: bool, first: int = 0, count: int = 0):
        self.own, self.until, self.first, self.count = own, -1, first, count


class KnownPlaces(dict):
    """What is not there yet is found by `find(k)`."""

    def __init__(self, find: Callable):
        super().__init__()
        self.find = find

    def __missing__(self, k: int):
        self[k] = found = self.find(k)
        return found


class Arena:
    """Where the values of the blocks of a program lie, from the instruction that makes them to the last one
    that reads them. `last`: of each value that instruction.  `trip`: the trip of a loop whose rows are being
    written."""

    trip: Any = None

    def __init__(self, program: Program, table: InstructionTable):
        self.program, self.last, self.shown, self.position = (
            program,
            table.last_reader,
            program.shown,
            table.position,
        )
        self.trip: Any = None
        self.size = 2  # places 0 and 1 are a zero, of real and of complex numbers
        self.table: list = []
        self.known: dict = {}
        self.free: dict = {}
        self.length = self.first = 0
        self.laid: dict = {}  # (first place, shape, strides) -> places
        self.once: dict = {}  # id of places -> (is each there once?, the places)
        self.whole = COUNTS[0]  # consecutive integers, of which places are views
        self.counting: dict = {id(self.whole): self.whole}  # id -> these, and shorter ones before
        self.begins: dict = {}  # (id of places, shape) -> (where they begin in the table, the places)
        self.forms: dict = {}  # id of places -> (their form, the places)
        self.seam: dict = {}  # (id of places, axis) -> (where boxes of them end, the places)
        self.constants: list = [(np.zeros((), np.int64), 0j)]
        self.numbers: dict = {}
        self.nothing = np.zeros((), np.int64)
        self.temporaries: list = []
        self.zero = ArenaRegion(False)  # place 0, for operations that move elements or give 0
        self.at: dict = KnownPlaces(self.found)  # value -> its places
        self.held: dict = KnownPlaces(lambda k: [ArenaRegion(False)])  # the `ArenaRegion`s where it may lie
        self.loops: list = []
        self.dying: list = []  # (last instruction that reads a value, the value)
        self.pool: list = []
        self.views: list = []  # of each block what shows the values that it takes and gives

    def take(self) -> "ArenaMemory":
        try:
            return self.pool.pop()
        except IndexError:
            return ArenaMemory(self)

    def give_back(self, memory: "ArenaMemory") -> None:
        if INDEX_BYTES * self.size <= ARENA_BYTES:
            self.pool.append(memory)

    def settle(self) -> None:
        """All blocks are there."""
        self.indexed = np.frombuffer(b"".join(self.table) or bytes(4), np.int32)
        self.laid, self.begins, self.once, self.known, self.table, self.at, self.held = (
            {},
            {},
            {},
            {},
            [],
            {},
            {},
        )
        self.forms, self.seam, self.counting, self.whole = {}, {}, {}, np.arange(0)

    # --- places ---

    def found(self, k: int):
        """The places of a constant, or of a value of a loop."""
        if k in self.program.constants:
            self.constant(k)
            return self.at[k]
        n = self.position[k]
        return next(loop.place(n) for loop in self.loops if loop.loop.start <= n < loop.loop.stop)

    def places_read(self, n: int, i) -> list:
        """Where the operands of instruction n lie."""
        own = () if self.trip is None else self.trip.varying.get(n, ())
        return [own[c] if c in own else self.at[a] for c, a in enumerate(i.args)]

    def has(self, k: int) -> bool:
        return k in self.at or any(
            [loop.loop.start <= self.position[k] < loop.loop.stop for loop in self.loops]
        )

    def width(self, k: int) -> int:
        """Places of an element of a value."""
        dtype = self.shown[k][3]
        if dtype is F8:
            return 1
        return 2 if dtype == C16 or type(self.program.constants.get(k)) is complex else 1

    def consecutive(self, shape: tuple, strides: tuple, k: int | None = None, width: int = 1):
        count = width * math.prod(shape)
        if self.trip is not None:
            self.first = self.trip.first(count, k)
        else:
            idle = self.free.get(count)
            self.first = idle.pop() if idle else self.begin(count)
        return self.laid_at(self.first, shape, strides, width)

    def laid_at(self, first: int, shape: tuple, strides: tuple, width: int = 1):
        """Consecutive places in the memory order that the strides tell."""
        count, key = width * math.prod(shape), (first, shape, strides, width)
        at = self.laid.get(key)
        if at is None:
            at = self.laid[key] = in_stride_order(
                self.integers(first, count)[::width], shape, strides or (0,) * len(shape)
            )
        return at

    def moved(self, at: np.ndarray, step: int) -> np.ndarray:
        """The places so many further on."""
        if id(at.base) not in self.counting or not at.size:
            return at + step
        first = int(at.flat[0]) + step
        self.integers(first, int(at.flat[-1]) - int(at.flat[0]) + 1)
        return np.ndarray(at.shape, np.int64, self.whole, INDEX_BYTES * first, at.strides)

    def begin(self, count: int) -> int:
        """The first of so many new places; many begin with a line of the cache."""
        first = (
            self.size
            if count < ALIGNED_ELEMENTS
            else -(-self.size // CACHE_LINE_ELEMENTS) * CACHE_LINE_ELEMENTS
        )
        self.size = first + count
        return first

    def integers(self, first: int, count: int) -> np.ndarray:
        """Consecutive ones."""
        if first + count > len(self.whole):
            self.whole = np.arange(2 * (first + count))
            self.counting[id(self.whole)] = self.whole
            if len(self.whole) <= COUNTED_PLACES:
                COUNTS[0] = self.whole
        return self.whole[first : first + count]

    def layout(self, k: int) -> tuple:
        """The shape of a value, and strides that tell the memory order of its places."""
        _, shape, strides, _, _ = self.shown[k]
        return shape, stack_last(shape, strides)

    def place(self, k: int) -> None:
        """New places for a value, in its memory order."""
        width, (shape, strides) = self.width(k), self.layout(k)
        self.at[k] = at = self.consecutive(shape, strides, k, width)
        self.hold(k, [ArenaRegion(True, self.first, width * at.size)])

    def hold(self, k: int, helds: list) -> None:
        self.held[k] = helds
        heapq.heappush(self.dying, (self.last[k], k))
        for h in helds:
            h.until = max(h.until, self.last[k])

    def constant(self, k: int) -> None:
        v = self.program.constants[k]
        if self.shown[k][0] is None and self.width(k) == 1:
            self.at[k] = self.number(float(v))
        else:
            self.at[k] = self.new_constant(np.asarray(v))
        self.hold(k, [ArenaRegion(False)])

    def taken_for_ever(self, v):
        return self.new_constant(v) if self.trip is None else self.trip.constant(v)

    def new_constant(self, v):
        width = 2 if v.dtype == C16 else 1
        at = self.laid_at(self.begin(width * v.size), v.shape, stack_last(v.shape, v.strides), width)
        self.constants.append((at, v))
        return at

    def temporary(self, *shape: int, width: int = 1, as_stack: bool = False):
        """New places until the end of the instruction; `as_stack`: in the memory order of `stack_last`."""
        strides = stack_last(shape, packed_strides(shape)) if as_stack else ()
        at = self.consecutive(shape, strides, None, width)
        self.temporaries.append((width * at.size, self.first))
        return at

    def free_temporaries(self) -> None:
        for count, first in self.temporaries:
            self.free.setdefault(count, []).append(first)
        self.temporaries = []

    def number(self, v: float):
        key = v.hex()
        if key not in self.numbers:
            self.numbers[key] = at = np.array(self.size)
            self.size += 1
            self.constants.append((at, v))
        return self.numbers[key]

    def is_dead(self, k: int, n: int) -> bool:
        """May its places be written by instruction n?"""
        return all([h.own and h.until <= n for h in self.held[k]])

    def is_once(self, at: np.ndarray) -> bool:
        """Is no place there twice?  (What was read at repeated indices lies at one place.)"""
        if id(at) not in self.once:
            alone = id(at.base) in self.counting and not overlaps(at.shape, at.strides, INDEX_BYTES)
            self.once[id(at)] = alone or is_each_once(at), at
        return self.once[id(at)][0]

    def keep(self, values, n: int) -> None:
        """Instruction n reads them as well."""
        for a in values:
            for h in self.held[a]:
                h.until = max(h.until, n)
            heapq.heappush(self.dying, (n, a))

    def release(self, n: int) -> None:
        """What no instruction after n reads."""
        while self.dying and self.dying[0][0] <= n:
            for h in self.held[heapq.heappop(self.dying)[1]]:
                if h.own and h.until <= n:
                    h.own = False
                    self.free.setdefault(h.count, []).append(h.first)

    def indices(self, at, shape: tuple) -> int:
        """Where the places of an operand, broadcast to this shape, begin in the table."""
        met = self.begins.get((id(at), shape))
        if met is not None:
            return met[0]
        places = at if at.shape == shape else at + zero_strides(shape)  # a fifth of the time of broadcast_to
        if self.trip is not None:
            return self.trip.table(at, shape, places)
        found = self.tabled(places.astype(np.int32).tobytes())
        self.begins[id(at), shape] = found, at
        return found

    def tabled(self, key: bytes) -> int:
        """Where such places begin in the table."""
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.length
            self.table.append(key)
            self.length += len(key) // 4
        return found

    def tables_of(self, first: np.ndarray, second: np.ndarray, last: np.ndarray, trips: int) -> tuple | None:
        """(where the places of the first trip begin in the table, how far apart those of the trips are); None
        where they follow no fixed step."""
        step = second - first
        if not np.array_equal(step * (trips - 1), last - first):
            return None
        if not step.any():
            return self.tabled(first.tobytes()), 0
        return self.tabled((first + np.arange(trips, dtype=np.int32)[:, None] * step).tobytes()), len(first)

    def form_of(self, at: np.ndarray):
        """(shape, strides in bytes) of places that lie as the elements of a view do; else False."""
        if id(at.base) in self.counting or not any(at.strides):  # an integer takes as much memory as a number
            return at.shape, at.strides
        if at.size < BOX_ELEMENTS:
            return False
        found = self.forms.get(id(at))
        if found is None:
            steps = view_steps(at)
            found = self.forms[id(at)] = (False if steps is None else (at.shape, steps[1])), at
        return found[0]

    def cuts_of(self, to, operands: tuple) -> list | None:
        """Along each axis of a result where the boxes end in which all places lie in lines; None where it is
        one box, or too many."""
        cuts: Any = None
        if self.form_of(to) is False and not self.is_once(to):
            return None  # the last one that is written to a place stays
        for at in (to, *operands):
            if at.size > 1 and self.form_of(at) is False:
                cuts = cuts or [{0, n} for n in to.shape]
                for axis in range(1, at.ndim + 1):
                    if at.shape[-axis] > 1:
                        cuts[-axis] |= self.seams(at, axis)
        count = math.prod([len(c) - 1 for c in cuts]) if cuts else 0
        return [sorted(c) for c in cuts] if 1 < count <= BOXES and to.size >= count * BOX_ELEMENTS else None

    def seams(self, at: np.ndarray, axis: int) -> set:
        """Where the steps between neighbours change, along this axis from the last.  If that is too often,
        the places are any, more than there may be boxes."""
        key = id(at), axis
        if key not in self.seam:
            steps = np.diff(np.moveaxis(at, -axis, 0), axis=0).reshape(at.shape[-axis] - 1, -1)
            found, last = set(), 0
            # the step from there on is another one; a seam has two at most
            changes = (np.flatnonzero((steps[1:] != steps[:-1]).any(axis=1)) + 1).tolist()
            if len(changes) > 2 * BOXES + 2:
                found, changes = {*range(1, BOXES + 2)}, []  # too many boxes
            for k in changes:
                if k >= last + 1 and (steps[k] != steps[last]).any():
                    found.add(k + 1)
                    last = k + 1
            self.seam[key] = found, at
        return self.seam[key][0]

    def view_of(self, at: np.ndarray):
        """(first place, strides) by which the arena shows these places; None if it cannot."""
        if id(at.base) in self.counting and at.size:
            return int(at.flat[0]), at.strides
        return view_steps(at)


class ArenaMemory:
    """An arena for one run at a time, and views of it."""

    __slots__ = ("arena", "address", "views")

    def __init__(self, arena: Arena):
        room = np.zeros(arena.size + CACHE_LINE_ELEMENTS)
        skipped = -room.ctypes.data // INDEX_BYTES % CACHE_LINE_ELEMENTS
        self.arena = room[skipped : skipped + arena.size]
        for at, v in arena.constants:
            for k, part in components(v):
                self.arena[at + k] = part
        self.address = self.arena.ctypes.data
        self.views = [[arena_view(self.arena, *way) for way in ways] for ways in arena.views]


def arena_view(arena: np.ndarray, shape: tuple, steps: tuple | None, width: int):
    """The part of the arena at these places as a view; None if it is none."""
    dtype = C16 if width > 1 else F8
    if 0 in shape:
        return np.zeros(shape, dtype)
    return None if steps is None else np.ndarray(shape, dtype, arena, 8 * steps[0], steps[1])


def view_steps(at: np.ndarray) -> tuple | None:
    """(first place, strides) of places that lie as the elements of a view do."""
    if not at.size:
        return None
    first = int(at.flat[0])
    origin = (0,) * (at.ndim - 1)
    steps = [
        int(at[(*origin[:n], 1, *origin[n:])]) - first if size > 1 else 1 for n, size in enumerate(at.shape)
    ]
    if int(at.flat[-1]) != first + sum(
        [(size - 1) * step for size, step in zip(at.shape, steps, strict=True)]
    ):
        return None
    told = first + sum(
        [
            np.arange(size).reshape((-1,) + (1,) * (at.ndim - n - 1)) * steps[n]
            for n, size in enumerate(at.shape)
        ]
    )
    if not np.array_equal(np.broadcast_to(told, at.shape), at):
        return None
    return first, tuple([8 * step for step in steps])


def is_each_once(at: np.ndarray) -> bool:
    """Does no integer occur twice?  (`np.unique` takes ten times as long.)"""
    first = at.min(initial=0)
    met = np.zeros(at.max(initial=0) - first + 1, bool)
    met[at - first] = True
    return np.count_nonzero(met) == at.size


def components(v) -> list:
    """(number of the place of an element, what lies there) of numbers."""
    return [(0, v.real), (1, v.imag)] if np.iscomplexobj(v) else [(0, v)]


@functools.cache
def zero_strides(shape: tuple) -> np.ndarray:
    return np.zeros(shape, np.int64)


@functools.cache
def packed_strides(shape: tuple) -> tuple:
    return tuple([math.prod(shape[n + 1 :]) for n in range(len(shape))])


@functools.cache
def stack_last(shape: tuple, strides: tuple) -> tuple:
    """Strides that tell the memory order of a stack of short lines or small matrices.

    Its axes of up to `SHORT_AXIS` elements come first, so that an operation on all first elements, all second
    ones and so on goes along long lines."""
    short = 0
    while short < min(len(shape) - 1, 2) and shape[-1 - short] <= SHORT_AXIS:
        short += 1
    long = math.prod(shape[: len(shape) - short])
    if not short or long < STACK_ELEMENTS or list(strides) != sorted(strides, reverse=True):
        return strides
    above = max(strides) + 1
    return (*strides[:-short], *[above * s for s in strides[-short:]])


def in_stride_order(flat: np.ndarray, shape: tuple, strides: tuple) -> np.ndarray:
    """These integers in the memory order that the strides tell."""
    if len(shape) < 2 or (len(shape) == 2 and strides[0] >= strides[1]):
        return flat.reshape(shape)
    order = sorted(range(len(shape)), key=lambda n: -abs(strides[n]))
    return flat.reshape([shape[n] for n in order]).transpose([order.index(n) for n in range(len(shape))])
