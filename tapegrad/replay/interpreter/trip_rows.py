"""The rows of a loop: those of three of its trips, of which the others follow.

A value lies at a place of its own for each trip if it outlives that, a fixed step after the place of the trip
before; else at one that all trips share.  So all numbers of the rows go on by fixed steps.  The third trip,
which is the last one, shows whether they do."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..costs import ALIGNED_ELEMENTS, ARENA_BYTES, CACHE_LINE_ELEMENTS
from ..instruction_table import END
from .arena import INDEX_BYTES, ArenaRegion, KnownPlaces
from .program_loops import RecordedLoop

UNSTEADY = "the places of its trips follow no fixed step"
TABLED = 1 << 40  # and more: a number of a table of the trip


class NotALoop(Exception):
    """Why instructions that repeat are no loop."""


class TripRows:
    """The rows of a loop of a block."""

    def __init__(self, block, loop: RecordedLoop):
        self.block, self.arena, self.loop, self.trips = block, block.arena, loop, loop.trips
        self.compiled = None
        values = loop.values[0].tolist()
        self.width = [self.arena.width(k) for k in values]
        self.size = [
            width * math.prod(self.arena.shown[k][1]) for k, width in zip(values, self.width, strict=True)
        ]
        kept = [n for n, until in zip(self.size, loop.held, strict=True) if until >= loop.period]
        if INDEX_BYTES * self.trips * sum(kept) > ARENA_BYTES // 2:
            raise NotALoop("its trips leave too much")
        self.guarded = [j for j, k in enumerate(values) if k in self.arena.program.guards]
        self.guards = [
            g
            for t in range(self.trips)
            for j in self.guarded
            for g in self.arena.program.guards[int(loop.values[t, j])]
        ]
        self.first_guard = len(block.guards)
        self.constants = {c: self.constant_column(c) for c in loop.varying}
        self.one = {}  # instruction -> where all trips write the buffer that it gives
        chains = {j for j in loop.carried if self.is_chain(j)}
        while True:
            self.stacks = {j: self.stack(j, back) for j, back in loop.carried.items() if j not in chains}
            self.one = {
                j: self.arena.consecutive(*self.arena.shown[values[j]][1:3], None, self.width[j])
                for j in chains
            }
            self.script = []
            first = self.lowered(0)
            apart = {j for j, at in self.one.items() if first.at[j] is not at} | self.seen
            if not apart:
                break
            chains -= apart
        if any([first.at[j] is not self.at(j, 0) for j in self.stacks]):
            raise NotALoop("what a trip leaves to the next is no array of its own")
        self.samples = first, self.lowered(1), self.lowered(self.trips - 1)
        self.base, self.step = first.at, [b - a for a, b in zip(first.at, self.samples[1].at, strict=True)]
        self.check_places()
        self.code = self.all_rows()
        self.keep_seen()
        self.begin()

    # --- places ---

    def is_chain(self, j: int) -> bool:
        """Is it a buffer that each trip writes on?"""
        seen, code = j, self.loop.trip(0)
        place = {k: n for n, (k, _) in enumerate(code)}
        while seen is not None:
            i = code[seen][1]
            if not i.prim.writes:
                return False
            base = i.args[0]
            if base not in place:
                return base == self.before(j, 1)
            seen = place[base]
        return False

    def before(self, j: int, back: int) -> int:
        """The value of an instruction so many trips before the first."""
        return int(self.loop.table.made[self.loop.start + j - back * self.loop.period])

    def stack(self, j: int, back: int = 0) -> tuple:
        """(first place, step, trips before the first): places of a result in all trips."""
        size = self.size[j]
        step = size if size < ALIGNED_ELEMENTS else -(-size // CACHE_LINE_ELEMENTS) * CACHE_LINE_ELEMENTS
        return self.arena.begin(step * (self.trips + back)), step, back

    def constant_column(self, c: int) -> tuple:
        values = [self.arena.program.constants[k] for k in self.loop.operands[:, c].tolist()]
        k = int(self.loop.operands[0, c])
        shape, strides = self.arena.layout(k)
        width = self.arena.width(k)
        arrays = np.stack([np.asarray(v, complex if width > 1 else float) for v in values])
        size = width * arrays[0].size
        first = self.arena.begin(size * self.trips)
        at = self.arena.laid_at(first, shape, strides, width)
        step = np.arange(self.trips).reshape((-1,) + (1,) * len(shape)) * size
        self.arena.constants.append((at + step, arrays))
        return first, shape, strides, size, width

    def at(self, j: int, t: int):
        """Where what trip t leaves for later ones lies."""
        if j in self.one:
            return self.one[j]
        first, step, back = self.stacks[j]
        layout = self.arena.layout(int(self.loop.values[0, j]))
        return self.arena.laid_at(first + (t + back) * step, *layout, self.width[j])

    def place(self, n: int):
        """Where the value of instruction n of the program lies."""
        t, j = divmod(n - self.loop.start, self.loop.period)
        at, step = self.base[j], self.step[j]
        return (
            self.arena.moved(at, t * int(step.flat[0]))
            if step.size and (step == step.flat[0]).all()
            else at + t * step
        )

    # --- one trip ---

    def first(self, count: int, k: int | None) -> int:
        """Where new places of a trip begin; k: the value."""
        j = None if k is None else self.column.get(k)
        if j in self.stacks:
            first, step, back = self.stacks[j]
            return first + (self.t + back) * step
        if self.next == len(self.script):
            if j is not None and self.loop.held[j] >= self.loop.period:
                first, step, _ = self.stack(j)
            else:
                mine = {at for at, step, size in self.script if size >= 0 and not step}
                idle, step = [at for at in self.arena.free.get(count, ()) if at in mine], 0
                first = idle[-1] if idle else self.arena.begin(count)
                if idle:
                    self.arena.free[count].remove(first)
            self.script.append((first, step, count))
        first, step, size = self.script[self.next]
        if size != count:
            raise NotALoop("its trips differ")
        self.next += 1
        return first + self.t * step

    def constant(self, v: np.ndarray):
        """A constant that a body makes."""
        if self.next == len(self.script):
            self.script.append((v, self.arena.new_constant(v), -1))
        same, at, size = self.script[self.next]
        self.next += 1
        if size >= 0 or not np.array_equal(same, v):
            raise NotALoop("its trips differ")
        return at

    def table(self, at: np.ndarray, shape: tuple, places: np.ndarray) -> int:
        """The number of a table of places: those of `at`, broadcast to this shape."""
        key = id(at), shape
        if key not in self.tabled:
            self.tabled[key] = TABLED + len(self.tables), at  # which stays, and so does its id
            self.tables.append(places.astype(np.int32).ravel())
        return self.tabled[key][0]

    def lowered(self, t: int) -> "LoweredTrip":
        """The rows of one trip: those that its instructions would be, with places and rows of its own."""
        arena, loop, code = self.arena, self.loop, self.loop.trip(t)
        self.t, self.next, begin = t, 0, loop.start + t * loop.period
        self.tables = []
        self.tabled = {}  # (id of places, shape) -> (number of its table, the places)
        self.column = {k: j for j, (k, _) in enumerate(code)}
        owners = [vars(self.block), vars(arena)]
        before = [dict(owner) for owner in owners]
        own = self.of_trip(t)
        for owner, state in zip(owners, own, strict=True):
            owner.update(state)
        try:
            for k, j in self.column.items():
                arena.last[k] = self.end_of(j, begin)
            self.operands(t, begin)
            return self.lowered_rows([(n, k, i) for n, (k, i) in enumerate(code, begin)])
        finally:
            for owner, state, old in zip(owners, own, before, strict=True):
                owner.update({name: old[name] for name in state})

    def of_trip(self, t: int) -> tuple:
        """What belongs to one trip while its rows are written, in the block and in the arena."""
        block, arena = self.block, self.arena
        listed = None if block.listed is None else type(block.listed)()
        return (
            {
                "rows": [],
                "guards": [],
                "pending": {},
                "single": {},
                "listed": listed,
                "numbered": self.first_guard + t * (len(self.guards) // self.trips),
                "forced": {k for k, j in self.column.items() if j in self.stacks},
            },
            {
                "trip": self,
                "free": {},
                "dying": [],
                "temporaries": [],
                "at": KnownPlaces(arena.at.__getitem__),
                "last": KnownPlaces(arena.last.__getitem__),
                "held": KnownPlaces(lambda k: [ArenaRegion(False)]),
            },
        )

    def end_of(self, j: int, begin: int) -> int:
        """The last reader of the result of instruction j in the trip that begins there."""
        until = self.loop.until[j]
        return begin + until if until < END else END

    def lowered_rows(self, each: list) -> "LoweredTrip":
        block, arena = self.block, self.arena
        block.single = block.read_once(each)
        block.instructions(each)
        rows = np.fromiter(itertools.chain.from_iterable(block.rows), np.int64)
        begins = [0, *itertools.accumulate(map(len, block.rows))]
        code = [(k, i) for _, k, i in each]
        # buffers of which a view is read later than the next trip writes them
        kept = {j: arena.last[code[j][0]] for j in self.one}
        self.seen = {j for j, n in kept.items() if any([h.until > n for h in arena.held[code[j][0]]])}
        read = np.unique(self.loop.operands[self.t]).tolist()
        outside = {id(h): k for k in read if k not in self.column for h in arena.held[k]}
        self.lies_in = {
            (j, outside[id(h)])
            for k, j in self.column.items()
            for h in (arena.held[k] if k in arena.held else ())
            if id(h) in outside
        }
        bases = [arena.view_of(arena.places_read(*each[j][::2])[0]) for j in self.loop.moving]
        at = [arena.at[k] for k in self.column]
        return LoweredTrip(rows, begins, self.tables, at, block.listed, bases)

    def operands(self, t: int, begin: int) -> None:
        """Where they lie that the trip does not make."""
        arena, loop = self.arena, self.loop
        for c, j, back in loop.before:
            if back:
                k = int(loop.operands[t, c])
                arena.at[k] = self.at(j, t - back)
                region = ArenaRegion(j in self.one)
                region.until = self.end_of(j, begin - loop.period)
                arena.held[k] = [region]
        self.varying = {}  # instruction -> its operands that are other constants in each trip -> places
        for c, (first, shape, strides, size, width) in self.constants.items():
            which = int(loop.table.starts[begin]) + c
            n = int(loop.table.reader[which])
            places = self.varying.setdefault(n, {})
            places[which - int(loop.table.starts[n])] = arena.laid_at(first + t * size, shape, strides, width)

    # --- all trips ---

    def keep_seen(self) -> None:
        """The memory of others in which values of the loop lie stays until these, and what is seen of them,
        are read."""
        last = self.loop.table.last[self.loop.values].max(axis=0).tolist()
        for j, k in self.lies_in:
            outside = np.unique(self.loop.operands[:, self.loop.operands[-1] == k]).tolist()
            self.arena.keep(outside, last[j])
            regions = [h for a in outside for h in self.arena.held[a] if h.own]
            for v in self.loop.values[:, j].tolist() if regions else ():
                self.arena.held[v] += [h for h in regions if h not in self.arena.held[v]]

    def begin(self) -> None:
        """What the first trips read of those before them goes where they look for it."""
        for j, back in self.loop.carried.items():
            for t in range(-back, 0):
                if j not in self.one or t == -1:
                    k = self.before(j, -t)
                    self.block.copy("copy", k, self.at(j, t), self.arena.at[k], self.block.kinds.kind(k))

    def check_places(self) -> None:
        """Do the places of all values go on by fixed steps?  (Those of an index do in an array that lies in
        lines, and moves as one.)"""
        for at, step, last in zip(self.base, self.step, self.samples[2].at, strict=True):
            if not np.array_equal(at + (self.trips - 1) * step, last):
                raise NotALoop(UNSTEADY)
        code = self.loop.trip(0)
        for j, views in zip(
            self.loop.moving, zip(*[sample.bases for sample in self.samples], strict=True), strict=True
        ):
            turned = "reshape" in [kind for kind, _ in code[j][1].params["path"]]
            if turned or None in views or len({strides for _, strides in views}) > 1:
                raise NotALoop(UNSTEADY)

    def all_rows(self) -> np.ndarray:
        a, b, last = [sample.rows for sample in self.samples]
        tables = [sample.tables for sample in self.samples]
        if not (a.shape == b.shape == last.shape and len({tuple(map(len, each)) for each in tables}) == 1):
            raise NotALoop("its trips differ")
        t, tabled = np.arange(self.trips)[:, None], np.flatnonzero(a >= TABLED)
        step = b - a
        step[tabled] = 0
        if (step * (self.trips - 1) != last - a).any():
            raise NotALoop(UNSTEADY)
        code = (a + t * step).astype(np.int32) if len(step) else np.zeros((self.trips, 0), np.int32)
        begins = [self.arena.tables_of(x, y, z, self.trips) for x, y, z in zip(*tables, strict=True)]
        if None in begins:
            raise NotALoop(UNSTEADY)
        for n in tabled.tolist():
            first, far = begins[int(a[n]) - TABLED]
            code[:, n] = first + t[:, 0] * far
        return code


@dataclass(eq=False)
class LoweredTrip:
    """One trip, as rows."""

    rows: np.ndarray
    begins: list  # where each row begins
    tables: list  # of places
    at: list  # where its values lie
    listed: Any
    bases: list  # what its moving indices are of
