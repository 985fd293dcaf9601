"""Runs of small operations of a program as one call of the interpreter.

Each value lies at places of an arena, which an array of integers of its shape and memory order tells: a view
is made by running the operation on these integers.  A write goes to new places if anybody reads the old ones
afterwards."""

import functools
import itertools
import math

import numpy as np

from ..._core.arrays import C16, F8
from ..._core.primitive import ADD_AT, ASSIGN, READ
from ...ops.indexing.regions import PARTS, region
from ..costs import PAIRED_ELEMENTS
from ..record.instructions import LAID, PART, Instruction
from .arena import Arena
from .instruction_kinds import InstructionKinds
from .machine_code import EVENTS, PAIRED, interpreter, row_of
from .program_loops import RecordedLoop, is_all
from .row_writer import RowWriter
from .trip_rows import NotALoop, TripRows

FIRST = frozenset(("mul", "add", "sub"))
UNHEARD = frozenset(("lt", "le", "eq", "ne", "max", "min"))  # rows of which NumPy does not warn
END = math.inf


class InstructionBlock(RowWriter):
    """The instructions from `start` to `stop` of a program, whose values lie in the arena.  `outside`: of each
    value whether it is read outside of blocks; `listing`: are loops to be compiled?

    `given` and `left`: the values that it takes and gives; `loops`: their rows; `refused`: why instructions
    that repeat are none."""

    def __init__(
        self,
        arena: Arena,
        start: int,
        stop: int,
        outside,
        kinds: InstructionKinds,
        loops: list,
        listing: bool,
    ):
        super().__init__(arena, kinds.exact, listing)
        self.kinds, self.outside, self.stop, begin = kinds, outside, stop, start
        self.parts = []  # of the code: rows and loops
        self.loops = []
        self.refused = []
        self.guards = []
        self.numbered = 0  # guards before these
        table = kinds.table
        arena.release(start - 1)
        self.table, self.writer = table, table.writer
        read = table.values_read(start, stop)
        made = table.position[read]
        self.given = [
            k
            for k in read[~table.constant[read] & ((made < start) | (made >= stop))].tolist()
            if not arena.has(k)
        ]
        for k in self.given:
            arena.place(k)
        self.forced = ()  # values that are copied rather than seen in another's memory
        self.single = {}
        self.pending = {}  # value -> (operation, its operands): what its only reader does as well
        self.counts = [n for n, k in enumerate(self.given) if kinds.kind(k) == "i"]
        self.taking = [(arena.at[k].shape, arena.view_of(arena.at[k]), arena.width(k)) for k in self.given]
        if any([arena.width(k) > 1 for k in (*self.given, *table.made[begin:stop].tolist())]):
            # products by their parts differ from those of complex numbers where a part is infinite
            self.judged("strict")
        self.hears = 0  # which events count; of exact blocks
        if self.exact:
            self.judged("exact")
        for loop in loops:
            self.straight(start, loop.start)
            self.loop(loop)
            start = loop.stop
        self.straight(start, stop)
        self.hear(0)
        self.left = [k for k in table.made[begin:stop].tolist() if outside[k]]
        places = [arena.at[k] for k in self.left]
        self.places_left = [
            np.stack(self.pair_of(at, "c"), -1) if arena.width(k) > 1 else at
            for k, at in zip(self.left, places, strict=True)
        ]
        self.leaving = [
            (at.shape, arena.view_of(at), arena.width(k)) for k, at in zip(self.left, places, strict=True)
        ]
        self.leave = [self.leaving_text(n) for n in range(len(self.left))]
        arena.views.append((*self.taking, *self.leaving))

    def judged(self, how: str, events: int = 0) -> None:
        """How results are judged from here on."""
        self.rows.append(row_of(how, events))

    def hear(self, events: int) -> None:
        """From here on these events count."""
        if events != self.hears:
            if self.hears:
                self.judged("noted", self.hears)
            if events:
                self.judged("heard")
            self.hears = events

    def straight(self, start: int, stop: int) -> None:
        each = [(n, *self.table.code[n]) for n in range(start, stop)]
        self.single = self.read_once(each)
        self.instructions(each)

    def loop(self, loop: RecordedLoop) -> None:
        try:
            made = TripRows(self, loop)
        except NotALoop as error:
            self.refused.append(str(error))
            self.straight(loop.start, loop.stop)
            return
        self.flush()
        self.guards += made.guards
        self.parts.append(made)
        self.loops.append(made)
        self.arena.loops.append(made)
        self.arena.release(loop.stop - 1)

    def flush(self) -> None:
        """The rows so far."""
        self.parts.append(np.fromiter(itertools.chain.from_iterable(self.rows), np.int32))
        self.rows = []

    def instructions(self, each: list) -> None:
        arena = self.arena
        for n, k, i in each:
            if self.exact and not (i.prim is READ or self.kinds.is_moving(k)):
                # NumPy notes nothing of comparisons; its loops may clear what was noted before
                name = self.name(k, i)
                if name == "":
                    self.hear(0)
                self.hear(0 if name in UNHEARD else sum([EVENTS.get(kind, 0) for kind in i.watched]))
            self.instruction(n, k, i)
            for g in arena.program.guards.get(k, ()):
                at, truth = (arena.at[k], int(g.value)) if g.truth else (self.difference(k, g.value), 0)
                number = self.numbered + len(self.guards)
                if self.listed is not None:
                    self.listed.add("guard", truth, [self.nothing, at])
                self.rows.append(row_of("guard", truth, 0, at.item(), number))
                self.guards.append(g)
            arena.release(n)

    def difference(self, k: int, value):
        """The place of a number that is 0 where the whole numbers, or truths, of value k are these."""
        arena, at = self.arena, self.arena.at[k]
        if arena.trip is not None:
            raise NotALoop("a trip has a condition on a value")
        to, total = arena.temporary(*at.shape), arena.temporary()
        self.row("ne", to, at, arena.new_constant(np.asarray(value, float)))
        self.row("copy", total, self.nothing)
        self.row("addto", np.broadcast_to(total, to.shape), to)
        return total

    def copy(self, name: str, k: int, to, at, kind: str) -> None:
        """The row `name`, copy or addto, of value k at places `to` and numbers of a kind."""
        self.row(name, to, at)
        if self.arena.width(k) > 1 and (name == "copy" or kind == "c"):
            self.row(name, self.imaginary(to), self.pair_of(at, kind)[1])

    def instruction(self, n: int, k: int, i: Instruction) -> None:
        at = self.arena.places_read(n, i)
        if i.prim.multi:
            self.awaited = 0
            self.several, self.arena.at[k] = (k, self.kinds.body(k, i).run(self, i, at)), at[0]
            # (the results may lie where operands do, which last until they are read)
            self.arena.hold(k, [h for a in i.args for h in self.arena.held[a]])
        elif i.prim is PART:
            of, results = self.several
            if of != i.args[0]:
                raise NotALoop("its trips divide an operation of several results")
            self.arena.place(k)
            made = results[i.params["at"]]
            self.copy("copy", k, self.arena.at[k], made.places, made.kind)
            if k == self.kinds.several[of][1][-1][0]:
                self.arena.free_temporaries()
        elif i.prim is READ or self.kinds.is_moving(k):
            self.moved(k, i, at)
        elif i.prim is ASSIGN or i.prim is ADD_AT:
            self.written(n, k, i, at)
        else:
            self.computed(k, i, at)

    def moved(self, k: int, i: Instruction, at: list) -> None:
        """Places in another order, or some of them; or a copy."""
        prim, arena = i.prim, self.arena
        kind = self.kinds.kind(k)
        if prim is READ:
            view = self.region(at[0], i.params["path"])
            view = view if i.params["at"] is None else view[i.params["at"]]
        else:
            view = prim.run(*at, **i.params)
        arena.at[k] = view = np.asarray(view)
        written = 2 * view.size <= at[0].size and self.writer[i.args[0]] < arena.last[k]
        if written or k in self.forced:
            # a copy, for else the write would make one of all of the buffer
            arena.place(k)
            self.copy("copy", k, arena.at[k], view, kind)
            return
        zero = [] if prim is LAID or prim is READ else [arena.zero]
        arena.hold(k, [*{id(h): h for a in i.args for h in arena.held[a]}.values(), *zero])

    def region(self, at, path: tuple):
        """The places of a region."""
        for kind, step in path:
            at = self.imaginary(at) if kind == "imag" else region(at, ((kind, step),))
        return at

    def written(self, n: int, k: int, i: Instruction, at: list) -> None:
        """A write: where the buffer lies, if nobody else reads it as it was, else in a copy."""
        prim, arena = i.prim, self.arena
        base, y = i.args
        whole, kind = is_all(**i.params), self.kinds.kind(y)
        alike = arena.width(base) == arena.width(y)
        if whole and prim is ASSIGN and alike and k not in self.forced and self.is_given_up(y, at, n):
            arena.at[k] = at[1]  # what is written becomes the buffer
            arena.hold(k, arena.held[y])
            return
        if whole and prim is ASSIGN:
            arena.place(k)
            self.copy("copy", k, arena.at[k], at[1], kind)
            return
        if whole and arena.width(k) == 1 and not arena.is_dead(base, n):
            arena.place(k)
            self.row("add", arena.at[k], *at)
            return
        apart = not any([h is j for h in arena.held[base] for j in arena.held[y]])
        if arena.is_dead(base, n) and arena.is_once(at[0]) and apart and k not in self.forced:
            arena.at[k] = at[0]
            arena.hold(k, arena.held[base])
        else:
            arena.place(k)
            self.copy("copy", k, arena.at[k], at[0], self.kinds.kind(base))
        to = np.asarray(self.region(arena.at[k], i.params["path"])[i.params["at"]])
        name, source = "copy" if prim is ASSIGN else "addto", at[1]
        if prim is ASSIGN and id(to.base) not in arena.counting and not arena.is_once(to):
            to, source = last_written(to, source)
        if PARTS.isdisjoint([step for step, _ in i.params["path"]]):
            self.copy(name, k, to, source, kind)
        else:
            self.row(name, to, source)

    def computed(self, k: int, i: Instruction, at: list) -> None:
        prim, arena = i.prim, self.arena
        arena.place(k)
        to = arena.at[k]
        name = self.name(k, i)
        if name and k in self.single and not self.is_paired(i):
            self.pending[k] = name, at
            arena.keep(i.args, self.single[k][0])
            return
        if name:
            if not self.pair(name, to, i, at):
                self.row(name, to, *at)
            return
        floats = all([self.kinds.kind(a) == "f" for a in i.args])
        if prim.reduces == "add" and floats:
            self.summed(to, i, at)
            return
        if prim.reduces == "products" and floats:
            self.matmul(to, *at)
        else:
            self.placed(to, k, i, at)
        arena.free_temporaries()

    def placed(self, to, k: int, i: Instruction, at: list) -> None:
        """The body on places."""
        body = self.kinds.body(k, i)
        self.awaited, self.target = body.target + 1, to
        made = body.run(self, i, at)
        self.awaited = 0
        if made.places is not to:
            self.copy("copy", k, to, made.places.reshape(to.shape), made.kind)
        self.arena.free_temporaries()

    def name(self, k: int, i: Instruction) -> str:
        """That of the row which is an elementwise instruction; empty where it is several, or of other
        operands."""
        body = self.kinds.body(k, i) if i.prim is not READ and not i.reduces else None
        return "" if body is None else body.name

    def summed(self, to, i: Instruction, at: list) -> None:
        self.row("copy", to, np.zeros((), np.int64))
        axis = i.params["axis"]
        kept = np.sum(np.zeros_like(at[0]), axis=axis, keepdims=True).shape
        axes = tuple(range(at[0].ndim)) if axis is None else axis if type(axis) is tuple else (axis,)
        first = tuple(range(len(axes)))  # what goes to one place lies apart: such sums wait for each other
        name, terms = self.pending.pop(i.args[0], ("addto", at))
        terms = [v if v.shape == at[0].shape else np.broadcast_to(v, at[0].shape) for v in terms]
        sums, *terms = [
            np.moveaxis(v, axes, first) for v in (np.broadcast_to(to.reshape(kept), at[0].shape), *terms)
        ]
        self.row("muladd" if name == "mul" else name, sums, *terms)

    def is_given_up(self, y: int, at: list, n: int) -> bool:
        """Does nobody read y after instruction n, and does it lie as the buffer does?"""
        return at[0].shape == at[1].shape and at[0].strides == at[1].strides and self.arena.is_dead(y, n)

    # --- two operations in one row ---

    def read_once(self, each: list) -> dict:
        """Products, sums and differences of which one instruction of the block is the only reader, and can do
        them as well: value -> (number of the instruction, itself)."""
        found = {}
        shown, guards = self.arena.shown, self.arena.program.guards
        large = (
            []
            if self.listed is not None or self.exact
            else [(k, i) for _, k, i in each if math.prod(shown[k][1]) >= PAIRED_ELEMENTS]
        )
        large = [(k, i) for k, i in large if not self.outside[k] and k not in guards]
        readers = {k: [] for k, _ in large}
        for n, k, i in each if large else ():
            for a in i.args:
                if a in readers:
                    readers[a].append((n, k, i))
        for k, i in large:
            first, shape = self.name(k, i), shown[k][1]
            if first not in FIRST or len(readers[k]) != 1:
                continue
            n, reader, other = readers[k][0]
            if self.arena.last[k] > n:  # another block reads it
                continue
            if other.reduces == "add":
                fits = first == "mul"
            else:
                second = self.name(reader, other)
                second = f"r{second}" if second == "sub" and other.args[1] == k else second
                fits = f"{first}_{second}" in PAIRED and shown[reader][1] == shape
            if fits:
                found[k] = n, other
        return found

    def is_paired(self, i: Instruction) -> bool:
        return bool(self.pending) and any([a in self.pending for a in i.args])

    def pair(self, second: str, to, i: Instruction, at: list) -> bool:
        """This operation, and that of its operand which waits for it.  Is there one?"""
        if not self.pending:
            return False
        which = next((n for n, a in enumerate(i.args) if a in self.pending), None)
        if which is None:
            return False
        first, (x, y) = self.pending.pop(i.args[which])
        z, between = at[1 - which], at[which]
        if i.args[1 - which] in self.pending:
            name, operands = self.pending.pop(i.args[1 - which])
            self.row(name, z, *operands)
        name = f"{first}_{'r' * (second == 'sub' and which == 1)}{second}"
        if first != "sub" and x.size < y.size:
            x, y = y, x
        if not self.lines(name, to, (x, y, z)):
            self.row(first, between, x, y)
            self.row(second, to, *at)
        return True

    # --- the run ---

    def settle(self) -> None:
        self.flush()
        self.code = np.concatenate(
            [part if type(part) is np.ndarray else part.code.ravel() for part in self.parts]
        )
        self.run, indexed = interpreter(), self.arena.indexed
        self.parameters = np.array([self.code.ctypes.data, len(self.code), indexed.ctypes.data])
        self.address = self.parameters.ctypes.data
        self.rows = self.parts = self.loops = []

    def leaving_text(self, n: int) -> tuple:
        """How the n-th value leaves: a text, and what it names."""
        numpys, _, _, dtype, _ = self.arena.shown[self.left[n]]
        (shape, steps, _), p = self.leaving[n], f"p{len(self.given) + n}"
        dtype = F8 if dtype is None else dtype
        own = dtype in (F8, C16)  # those of the views
        if steps is None and 0 not in shape:
            return "{0}(M.arena)", functools.partial(gathered_array, self.places_left[n], dtype)
        if numpys is None:
            return (f"{p}[()]", None) if own else (f"{{0}}({p}[()])", dtype.type)
        order = "C" if steps is not None and steps[1][-1:] > (8,) else "K"
        return (f"{p}.copy('{order}')", None) if own else (f"{p}.astype({{0}}, '{order}')", dtype)

    def failed(self, answer: int):
        """The guard that failed; None where a result was not finite."""
        return None if answer == 1 else self.guards[answer - 2]


def last_written(to, source) -> tuple:
    """Each place that is written, once, and the place of what is written there last.

    Rows need not go through the elements in their order."""
    places, at = np.unique(to.ravel()[::-1], return_index=True)
    return places, np.broadcast_to(source, to.shape).ravel()[::-1][at]


def gathered_array(at: np.ndarray, dtype, arena: np.ndarray) -> np.ndarray:
    """The values at places that no view shows."""
    v = arena[at].view(C16)[..., 0] if dtype == C16 else arena[at]
    return v if v.dtype == dtype else v.astype(dtype)
