"""Runs of small operations of a program as one call of the interpreter.

Each value lies at places of an arena, which an array of integers of its shape and memory order tells: a view
is made by running the operation on these integers.  A write goes to new places if anybody reads the old ones
afterwards."""

import ctypes
import itertools
import math
from typing import Any

import numpy as np

from ..._core.arrays import F8
from ..._core.primitive import ADD_AT, ASSIGN, READ
from ...ops.indexing.regions import region
from ..costs import (
    BLAS_MATRIX_PRODUCTS,
    BLAS_VECTOR_PRODUCTS,
    BLOCK_MATRICES,
    BOX_ELEMENTS,
    LINE_ELEMENTS,
    PAIRED_ELEMENTS,
)
from ..program import LAID, PART, Instruction, copy_with_strides
from .arena import INDEX_BYTES, Arena, ArenaMemory, zero_strides
from .foreign_calls import (
    CALL_ARGUMENTS,
    LOOPED,
    NO,
    YES,
    blas_matrix,
    core_sizes,
    gemm,
    gemv,
    in_one_piece,
    kept_plan,
    ufunc_loop,
    vector_of,
)
from .instruction_kinds import InstructionKinds, is_exact, is_move
from .line_layouts import in_calls, in_lines
from .listed_rows import ListedRows
from .machine_code import NUMBER, PAIRED, ROW, SINGLE, interpreter
from .program_loops import RecordedLoop, is_all
from .trip_rows import NotALoop, TripRows

FIRST = frozenset(("mul", "add", "sub"))
END = math.inf
SINGLE_ROW = {name: row for row, name in SINGLE.items()}


class InstructionBlock:
    """The instructions from `start` to `stop` of a program, whose values lie in the arena.  `outside`: of each
    value whether it is read outside of blocks; `listing`: are loops to be compiled?

    `given` and `leaving_value`: the values that it takes and gives; `loops`: their rows; `refused`: why
    instructions that repeat are none."""

    def __init__(
        self,
        arena: Arena,
        start: int,
        stop: int,
        outside: Any,
        kinds: InstructionKinds,
        loops: list,
        listing: bool,
    ):
        self.arena, self.kinds, self.outside, self.stop = arena, kinds, outside, stop
        begin = start
        self.rows: list = []
        self.parts: list = []  # of the code: rows and loops
        self.loops: list = []
        self.refused: list = []
        self.guards: list = []
        self.numbered = 0  # guards before these
        self.along = 0  # rows of lines
        self.listed = ListedRows() if listing else None
        # for interpreter.small_matrices.py and placed_arrays.py
        self.nothing, self.number, self.constant = arena.nothing, arena.number, arena.taken_for_ever
        self.awaited, self.target = 0, arena.nothing  # temporaries until the one that is the result
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
        self.forced: Any = ()  # values that are copied rather than seen in another's memory
        self.single: dict = {}
        self.pending: dict = {}  # value -> (operation, its operands): what its only reader does as well
        self.counts = [n for n, k in enumerate(self.given) if kinds.kind(k) == "i"]
        self.taking = [(arena.at[k].shape, arena.view_of(arena.at[k])) for k in self.given]
        for loop in loops:
            self.straight(start, loop.start)
            self.loop(loop)
            start = loop.stop
        self.straight(start, stop)
        self.left = [k for k in table.made[begin:stop].tolist() if outside[k]]
        self.ways = [self.leaving(k) for k in self.left]
        self.giving = [None if number else (at.shape, arena.view_of(at)) for number, _, at in self.ways]

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
            self.instruction(n, k, i)
            for g in arena.program.guards.get(k, ()):
                at, truth = (arena.at[k], int(g.value)) if g.truth else (self.difference(k, g.value), 0)
                number = self.numbered + len(self.guards)
                if self.listed is not None:
                    self.listed.add("guard", truth, [self.nothing, at])
                self.rows.append((NUMBER["guard"], truth, 0, at.item(), number, 0))
                self.guards.append(g)
            arena.release(n)

    def difference(self, k: int, value: Any) -> Any:
        """The place of a number that is 0 where the whole numbers, or truths, of value k are these."""
        arena, at = self.arena, self.arena.at[k]
        if arena.trip is not None:
            raise NotALoop("a trip has a condition on a value")
        to, total = arena.temporary(*at.shape), arena.temporary()
        self.row("ne", to, at, arena.new_constant(np.asarray(value, float)))
        self.row("copy", total, self.nothing)
        self.row("addto", np.broadcast_to(total, to.shape), to)
        return total

    def row(self, name: str, to: Any, *operands: Any) -> None:
        """One operation, as a single element or as lines where its places are such, else by the table."""
        cuts = self.arena.cuts_of(to, operands) if to.size >= BOX_ELEMENTS else None
        if cuts is not None:
            wide = [to, *[at if at.shape == to.shape else np.broadcast_to(at, to.shape) for at in operands]]
            for box in itertools.product(*[itertools.starmap(slice, itertools.pairwise(c)) for c in cuts]):
                self.part(name, *[at[box] for at in wide])
        else:
            self.part(name, to, *operands)

    def part(self, name: str, to: Any, *operands: Any) -> None:
        if self.listed is not None and to.size:
            self.listed.add(
                name,
                to.size,
                [at if at.shape == to.shape else at + zero_strides(to.shape) for at in (to, *operands)],
            )
        if to.size == 1:
            places = [at.item() for at in operands]
            self.rows.append((NUMBER[SINGLE_ROW[name]], 1, to.item(), *places, *[0] * (3 - len(places))))
        elif to.size > LINE_ELEMENTS and name in LOOPED and self.call(LOOPED[name], to, operands):
            self.along += 1
        elif to.size and (to.size <= LINE_ELEMENTS or not self.lines(name, to, operands)):
            places = [self.arena.indices(at, to.shape) for at in operands]
            self.rows.append(
                (NUMBER[name], to.size, self.arena.indices(to, to.shape), *places, *[0] * (3 - len(places)))
            )

    def temporary(self, *shape: int) -> Any:
        """For the body of an operation."""
        self.awaited -= 1
        return self.target if self.awaited == 0 else self.arena.temporary(*shape)

    def forms(self, places: tuple) -> Any:
        """What `joined_axes` takes; None where some do not lie in lines."""
        forms = [None if at.size == 1 else self.arena.form_of(at) for at in places]
        return None if False in forms else forms

    def lines(self, name: str, to: Any, operands: tuple) -> bool:
        forms = self.forms((to, *operands))
        found = in_lines(name, to.shape, *forms) if forms is not None else None
        if found is None:
            return False
        number, size, (m, l), (over, beyond) = found
        first = [at.item(0) for at in (to, *operands)]
        rest, none = [0] * (4 - len(first)), [0] * (4 - len(over))
        self.rows.append((number, size, *first, *rest, m, *over, *none, l, *beyond, *none))
        self.along += 1
        return True

    def called(self, ufunc: Any, to: Any, *operands: Any) -> None:
        """A ufunc, element by element; a result of which all steps are 0 gathers them."""
        if self.listed is not None:
            self.listed.outside("called", *operands)
        if not to.size or self.call(ufunc, to, operands):
            return
        packed = [self.arena.temporary(*to.shape) if any(at.strides) else at for at in (to, *operands)]
        for at, v in zip(packed[1:], operands, strict=True):
            if at is not v:
                self.row("copy", at, v)
        self.call(ufunc, packed[0], packed[1:])
        if packed[0] is not to:
            self.row("copy", to, packed[0])

    def call(self, ufunc: Any, to: Any, operands: Any) -> bool:
        loop, forms = ufunc_loop(ufunc), self.forms((to, *operands))
        found = in_calls(to.shape, *forms) if loop is not None and forms is not None else None
        if found is None:
            return False
        size, (step, *steps), counts, outer = found
        plan = kept_plan(*loop, size, tuple([8 * s for s in (*steps, step)]))
        self.call_row(
            plan, size if step else 1, [*operands, to], len(operands), counts, [[*o[1:], o[0]] for o in outer]
        )
        return True

    def indexed(self, name: str, to: Any, x: Any, at: Any) -> None:
        """Lines of which one is read, or written, at indices that are values."""
        if self.listed is not None:
            self.listed.outside(name, x, at, to)
        x = self.laid_out(x, self.arena.view_of)
        lines = [self.arena.view_of(v) for v in (to, x, at)]
        if lines[2] is None or lines[2][1] != (INDEX_BYTES,):
            packed = self.arena.temporary(*at.shape)
            self.row("copy", packed, at)
            lines[2] = self.arena.view_of(packed)
        size, steps = len(to if name == "scattered" else x), [line[1][0] // INDEX_BYTES for line in lines[:2]]
        if len(at):
            self.rows.append(
                (NUMBER[name], len(at), *[line[0] for line in lines], size, *steps, *[0] * (ROW - 8))
            )

    def ordered(self, to: Any, x: Any, stable: bool) -> None:
        """The indices that sort a line."""
        if self.listed is not None:
            self.listed.outside("ordered", x, to)
        working, x = self.arena.temporary(4 * len(x)), self.laid_out(x, self.arena.view_of)
        lines = [self.arena.view_of(v) for v in (to, x, working)]
        steps = [line[1][0] // INDEX_BYTES for line in lines[:2]]
        self.rows.append(
            (NUMBER["ordered"], len(x), *[line[0] for line in lines], int(stable), *steps, *[0] * (ROW - 8))
        )

    def of_matrices(self, ufunc: Any, results: Any, *operands: Any) -> None:
        """A generalized ufunc of matrices.  The last result tells whether it was found."""
        if self.listed is not None:
            self.listed.outside("called", *operands)
        places = []
        for at in operands:
            places.append(at if self.arena.view_of(at) is not None else self.arena.temporary(*at.shape))
            if places[-1] is not at:
                self.row("copy", places[-1], at)
        places += results
        steps = [self.arena.view_of(at)[1] for at in places]
        core = core_sizes(ufunc.signature, [at.shape for at in places])
        plan = kept_plan(*ufunc_loop(ufunc), 1, (8,) * len(places), tuple(steps), core)
        self.call_row(plan, results[-1].size, places, len(places) - 1, (1, 1), ((), ()))

    def lapack(self, name: str, to: Any, packed: Any, n: int, columns: int, transposed: bool = False) -> None:
        if self.listed is not None:
            self.listed.outside(name, to, packed)
        packed = self.laid_out(packed, in_one_piece)
        integers = (YES if transposed else NO), n, columns
        self.rows.append(
            (NUMBER[name], to.size, to.item(0), packed.item(0), 0, 0, *integers, *[0] * (ROW - 9))
        )

    def call_row(self, plan: Any, checked: int, places: Any, out: int, counts: tuple, outer: Any) -> None:
        first, *rest = [
            [*some, *[0] * (CALL_ARGUMENTS - len(some))] for some in ([at.item(0) for at in places], *outer)
        ]
        address = np.array([ctypes.addressof(plan)], np.int64).view(np.int32).tolist()
        self.rows.append(
            (NUMBER["called"], checked, *first, counts[0], *rest[0], counts[1], *rest[1], *address, out)
        )

    def instruction(self, n: int, k: int, i: Instruction) -> None:
        at = [self.arena.at[a] for a in i.args]
        if i.prim is not LAID and i.prim is not PART and i.prim.multi:
            self.awaited = 0
            self.several, self.arena.at[k] = (k, self.kinds.body(k, i).run(self, i, at)), at[0]
            # (the results may lie where operands do, which last until they are read)
            self.arena.hold(k, [h for a in i.args for h in self.arena.held[a]])
        elif i.prim is PART:
            made, results = self.several
            if made != i.args[0]:
                raise NotALoop("its trips divide an operation of several results")
            self.arena.place(k)
            self.row("copy", self.arena.at[k], results[i.params].at)
            if k == self.kinds.several[made][1][-1][0]:
                self.arena.free_temporaries()
        elif i.prim is LAID or i.prim is READ or is_move(i.prim):
            self.moved(k, i, at)
        elif i.prim is ASSIGN or i.prim is ADD_AT:
            self.written(n, k, i, at)
        else:
            self.computed(k, i, at)

    def moved(self, k: int, i: Instruction, at: list) -> None:
        """Places in another order, or some of them; or a copy."""
        prim, arena = i.prim, self.arena
        params = {**i.params, "copy": False} if prim is READ else i.params
        arena.at[k] = view = np.asarray(
            copy_with_strides(at[0], *params) if prim is LAID else prim.run(*at, **params)
        )
        written = 2 * view.size <= at[0].size and self.writer[i.args[0]] < arena.last[k]
        if written or k in self.forced:
            # a copy, for else the write would make one of all of the buffer
            arena.place(k)
            self.row("copy", arena.at[k], view)
            return
        zero = [] if prim is LAID or prim is READ else [arena.zero]
        arena.hold(k, [*{id(h): h for a in i.args for h in arena.held[a]}.values(), *zero])

    def written(self, n: int, k: int, i: Instruction, at: list) -> None:
        """A write: where the buffer lies, if nobody else reads it as it was, else in a copy."""
        prim, arena = i.prim, self.arena
        base, y = i.args
        whole = is_all(**i.params)
        if whole and prim is ASSIGN and k not in self.forced and self.is_given_up(y, at, n):
            arena.at[k] = at[1]  # what is written becomes the buffer
            arena.hold(k, arena.held[y])
            return
        if whole and prim is ASSIGN:
            arena.place(k)
            self.row("copy", arena.at[k], at[1])
            return
        if whole and not arena.is_dead(base, n):
            arena.place(k)
            self.row("add", arena.at[k], *at)
            return
        apart = not any([h is j for h in arena.held[base] for j in arena.held[y]])
        if arena.is_dead(base, n) and arena.is_once(at[0]) and apart and k not in self.forced:
            arena.at[k] = at[0]
            arena.hold(k, arena.held[base])
        else:
            arena.place(k)
            self.row("copy", arena.at[k], at[0])
        to = np.asarray(region(arena.at[k], i.params["path"])[i.params["at"]])
        self.row("copy" if prim is ASSIGN else "addto", to, at[1])

    def computed(self, k: int, i: Instruction, at: list) -> None:
        prim, arena = i.prim, self.arena
        arena.place(k)
        to = arena.at[k]
        name = self.name(k, i)
        kinds = [self.kinds.kind(a) for a in i.args]
        floats = "i" not in kinds and "b" not in kinds
        if name and k in self.single and not self.is_paired(i):
            self.pending[k] = name, at
            arena.keep(i.args, self.single[k][0])
            return
        if name:
            if not self.pair(name, to, i, at):
                self.row(name, to, *at)
            return
        if prim.reduces == "add" and floats:
            self.summed(to, i, at)
            return
        if prim.reduces == "products" and floats:
            self.matmul(to, *at)
        else:
            self.placed(to, k, i, at)
        arena.free_temporaries()

    def placed(self, to: Any, k: int, i: Instruction, at: list) -> None:
        """The body on places."""
        body = self.kinds.body(k, i)
        self.awaited, self.target = body.target + 1, to
        made = body.run(self, i, at)
        self.awaited = 0
        if made.at is not to:
            self.row("copy", to, made.at.reshape(to.shape))
        self.arena.free_temporaries()

    def name(self, k: int, i: Instruction) -> str:
        """That of the row which is an elementwise instruction; empty where it is several, or of other
        operands."""
        body = self.kinds.body(k, i) if i.prim is not READ and not i.reduces else None
        return "" if body is None else body.name

    def summed(self, to: Any, i: Instruction, at: list) -> None:
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
        found: dict = {}
        shown, guards = self.arena.shown, self.arena.program.guards
        large = (
            []
            if self.listed is not None
            else [(k, i) for _, k, i in each if math.prod(shown[k][1]) >= PAIRED_ELEMENTS]
        )
        large = [(k, i) for k, i in large if not self.outside[k] and k not in guards]
        readers: dict = {k: [] for k, _ in large}
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
        return any([a in self.pending for a in i.args])

    def pair(self, second: str, to: Any, i: Instruction, at: list) -> bool:
        """This operation, and that of its operand which waits for it.  Is there one?"""
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

    def matmul(self, to: Any, x: Any, y: Any) -> None:
        if to.ndim > 2 and math.prod(to.shape[:-2]) > BLOCK_MATRICES:  # a row for each product of the stack
            for i, j in np.ndindex(to.shape[-2:]):
                self.row("copy", to[..., i, j], self.nothing)
                for k in range(x.shape[-1]):
                    self.row("muladd", to[..., i, j], x[..., i, k], y[..., k, j])
            return
        if to.ndim > 2:
            for place in np.ndindex(to.shape[:-2]):
                # (of an axis of one there is but one)
                each: Any = [place[len(place) + 2 - at.ndim :] for at in (x, y)]
                each = [
                    tuple([min(i, n - 1) for i, n in zip(at_k, at.shape, strict=False)])
                    for at_k, at in zip(each, (x, y), strict=True)
                ]
                self.matmul(to[place], x[each[0]], y[each[1]])
            return
        rows = x if x.ndim == 2 else x[None]
        columns = y if y.ndim == 2 else y[:, None]
        m, inner, p = rows.shape[0], rows.shape[1], columns.shape[1]
        if x.ndim + y.ndim > 2 and m * inner * p >= (
            BLAS_MATRIX_PRODUCTS if min(m, p) > 1 else BLAS_VECTOR_PRODUCTS
        ):
            self.product(to, x, y)
            return
        out = to.reshape(m, p)
        self.row("copy", to, self.nothing)
        shape = (inner, m, p)
        self.row(
            "muladd",
            np.broadcast_to(out, shape),
            np.broadcast_to(rows.T[:, :, None], shape),
            columns[:, None, :],
        )

    def product(self, to: Any, x: Any, y: Any) -> None:
        """A row for BLAS; what does not lie as that takes it is copied."""
        if x.ndim == 1:
            x, y = y.T, x
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        of_vector = y.ndim == 1
        x, y = self.laid_out(x, blas_matrix), self.laid_out(y, vector_of if of_vector else blas_matrix)
        if of_vector:
            self.row("copy", to, self.nothing)
        if to.ndim == 2 and not of_vector and to.strides[0] < to.strides[1]:
            to, x, y = to.T, y.T, x.T
        name, integers = ("dgemv", gemv(x, y)) if of_vector else ("dgemm", gemm(x, y))
        places = [to.item(0), *([x.item(0), y.item(0)] if of_vector else [y.item(0), x.item(0)]), 0]
        if self.listed is not None:
            self.listed.outside(name, x, y)
        self.rows.append((NUMBER[name], to.size, *places, *integers, *[0] * (ROW - 6 - len(integers))))

    def laid_out(self, at: Any, form: Any) -> Any:
        if id(at.base) in self.arena.counting and form(at) is not None:
            return at
        fresh = self.arena.temporary(*at.shape)
        self.row("copy", fresh, at)
        return fresh

    # --- the run ---

    def settle(self) -> None:
        self.flush()
        self.code = np.concatenate(
            [part if type(part) is np.ndarray else part.code.ravel() for part in self.parts]
        )
        self.run, indexed = interpreter(), self.arena.indexed
        self.before = self.code.ctypes.data, len(self.code), indexed.ctypes.data
        self.rows = self.parts = self.loops = []

    def leaving(self, k: int) -> tuple:
        """How a value leaves: (is it a number?, its dtype, its places)."""
        numpys, _, _, dtype, _ = self.arena.shown[k]
        at = self.arena.at[k]
        return numpys is None, F8 if dtype is None else dtype, at if numpys else int(at)

    def __call__(self, memory: "ArenaMemory", *given: Any) -> Any:
        """The values left, or the guard that failed; None where a result was not finite."""
        places, ways = memory.of(self)
        for n, v in enumerate(given):
            places[n][...] = v
        for n in self.counts:
            if not is_exact(given[n]):
                return None
        answer = self.run(*self.before, memory.address)
        if answer:
            return None if answer == 1 else self.guards[answer - 2]
        return tuple([leaving_value(memory.arena, *way) for way in ways])


def leaving_value(arena: np.ndarray, number: bool, dtype: Any, at: Any, view: Any) -> Any:
    if number:
        return dtype.type(arena[at])
    v = view.copy(order="K") if view is not None else arena[at]
    return v if dtype is F8 else v.astype(dtype)
