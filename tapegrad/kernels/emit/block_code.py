"""Code for blocks, shared by both emitters like `elementary`.

The code consists of loops, loads and stores of a builder `b`. The order of arithmetic is the same for both
emitters, so CPU and GPU give the same bits. Beside its arithmetic, a builder offers `range` (a loop), `load`
and `put` (an element of a buffer), and `cell`, `get` and `set` (a mutable number). Matrix products and
factorisations are routines: functions of pointers, written once for each shape and called."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from ..graph.blocks import contiguous_strides, element_total
from .builder import Affine, BlockAccess, BlockBuffer, TextBuilder, emit_read, emit_write

UNROLLED_INSTRUCTIONS = 8  # longest elementwise loop, in instructions, that is unrolled by four


# --- routines ---


def cuts(n: int) -> list[tuple]:
    """Return tiles (from, to, step) that cover n."""
    for step in (4, 3, 2):
        if n % step == 0:
            return [(0, n, step)]
    whole = n - n % 4
    return [(0, whole, 4)] * (whole > 0) + [(whole, n, n - whole)] * (n > whole)


def tiles(b, n: int, visit: Callable) -> None:
    """Call visit(first, size) for the tiles of n columns."""
    for begin, end, step in cuts(n):
        with b.range(begin, end, step) as c:
            visit(c, step)


def emit_matmul(
    b, out: BlockAccess, x: BlockAccess, y: BlockAccess, n: int, inner: int, m: int, gates: tuple
) -> None:
    """Write a tiled matrix product; zeros of a gated operand give 0 even with nan."""
    for begin, end, step in cuts(n):
        with b.range(begin, end, step) as i:
            tiles(
                b,
                m,
                lambda j, width, i=i, step=step: emit_tile(b, out, x, y, inner, i, step, j, width, gates),
            )


def emit_tile(
    b,
    out: BlockAccess,
    x: BlockAccess,
    y: BlockAccess,
    inner: int,
    i: Affine,
    rows: int,
    j: Affine,
    columns: int,
    gates: tuple,
    pitch: int = 1,
) -> None:
    """Write `rows` times `columns` elements of a product; the columns are `pitch` apart."""
    cells = [[b.cell(b.c(0.0)) for _ in range(columns)] for _ in range(rows)]
    with b.range(0, inner) as k:
        left = [emit_read(b, x, i + r, k) for r in range(rows)]
        right = [emit_read(b, y, k, j + c * pitch) for c in range(columns)]
        for r in range(rows):
            for c in range(columns):
                u, v = emit_gated(b, left[r], right[c], gates)
                b.set(cells[r][c], b.fma(u, v, b.get(cells[r][c])))
    for r in range(rows):
        for c in range(columns):
            emit_write(b, out, b.get(cells[r][c]), i + r, j + c * pitch)


def emit_gated(b, u, v, gates: tuple) -> tuple:
    zero = b.c(0.0)
    if gates[0]:
        v = b.select(b.eq(u, zero), zero, v)
    if gates[1]:
        u = b.select(b.eq(v, zero), zero, u)
    return u, v


def emit_cholesky(b, out: BlockAccess, a: BlockAccess, n: int) -> None:
    with b.range(0, n) as i, b.range(i + 1, n) as j:
        emit_write(b, out, b.c(0.0), i, j)
    with b.range(0, n) as j:
        pivot = b.cell(emit_read(b, a, j, j))
        with b.range(0, j) as k:
            v = emit_read(b, out, j, k)
            b.set(pivot, b.fnma(v, v, b.get(pivot)))
        d = b.sqrt(b.get(pivot))
        emit_write(b, out, d, j, j)
        r = b.rcp(d)
        with b.range(j + 1, n) as i:
            acc = b.cell(emit_read(b, a, i, j))
            with b.range(0, j) as k:
                b.set(acc, b.fnma(emit_read(b, out, i, k), emit_read(b, out, j, k), b.get(acc)))
            emit_write(b, out, b.mul(b.get(acc), r), i, j)


def substitute(
    b, out: BlockAccess, t: BlockAccess, right: BlockAccess, n: int, m: int, lower: bool, unit: bool
) -> None:
    """Write out = t^-1 right, row by row, for several columns at a time."""

    def columns(c: Affine, width: int) -> None:
        with b.range(0, n) as u:
            i = u if lower else n - 1 - u
            cells = [b.cell(emit_read(b, right, i, c + q)) for q in range(width)]
            with b.range(0, u) as v:
                k = v if lower else n - 1 - v
                factor = emit_read(b, t, i, k)
                for q in range(width):
                    b.set(cells[q], b.fnma(factor, emit_read(b, out, k, c + q), b.get(cells[q])))
            r = None if unit else b.rcp(emit_read(b, t, i, i))
            for q in range(width):
                value = b.get(cells[q])
                emit_write(b, out, value if unit else b.mul(value, r), i, c + q)

    tiles(b, m, columns)


def trisolve(
    b,
    out: BlockAccess,
    t: BlockAccess,
    right: BlockAccess,
    n: int,
    m: int,
    lower: bool,
    transpose: bool,
    unit: bool,
) -> None:
    if transpose:
        t, lower = BlockAccess(t.buffer, t.offset, t.strides[::-1]), not lower
    substitute(b, out, t, right, n, m, lower, unit)


def exchange(b, swap, x: BlockAccess, i: Affine, j: Affine, columns: int) -> None:
    """Exchange the rows i and j where `swap` holds, in code that runs where it holds for some lane."""
    for lanes, c in lanes_of_row(b, 0, columns):
        u, v = emit_read(lanes, x, i, c), emit_read(lanes, x, j, c)
        emit_write(lanes, x, v if lanes.across else b.select(swap, v, u), i, c)
        emit_write(lanes, x, u if lanes.across else b.select(swap, u, v), j, c)


def lanes_of_row(b, first: Affine | int, n: int) -> Iterator[tuple]:
    """Yield (builder, column) inside loops over the columns of a row, from `first` up to n.

    The lanes of one sample are neighbouring columns; then the loops begin with column 0."""
    for lanes, start, stop, step in b.parts_of_row(first, n):
        with b.range(start, stop, step) as c:
            yield lanes, c


def emit_lu(b, out: BlockAccess, a: BlockAccess, n: int) -> None:
    """Write an LU factorisation with the largest pivots.

    out[0] holds both factors. out[1][j, i] says whether rows j and i were exchanged, out[1][j, j] whether row
    j was exchanged with any. Row j + 1 of out[1] holds the pivot row while step j eliminates, with zeros in
    place of the factors."""
    f, flags = BlockAccess(out.buffer, 0, (n, 1)), BlockAccess(out.buffer, n * n, (n, 1))
    with b.range(0, n) as i, b.range(0, n) as j:
        emit_write(b, f, emit_read(b, a, i, j), i, j)
    with b.range(0, n - 1) as j:
        for lanes, c in lanes_of_row(b, 0, n):
            emit_write(lanes, flags, lanes.c(0.0), j, c)
        own = b.abs(emit_read(b, f, j, j))
        largest = b.cell(own)
        with b.range(j + 1, n) as i:
            size = b.abs(emit_read(b, f, i, j))
            b.set(largest, b.select(b.gt(size, b.get(largest)), size, b.get(largest)))
        pivot = b.get(largest)
        pending = b.cell(b.select(b.gt(pivot, own), b.c(1.0), b.c(0.0)))
        emit_write(b, flags, b.get(pending), j, j)
        with b.range(j + 1, n) as i:
            equal = b.eq(b.abs(emit_read(b, f, i, j)), pivot)
            swap = b.gt(b.select(equal, b.get(pending), b.c(0.0)), b.c(0.0))
            with b.when(swap):
                emit_write(b, flags, b.select(swap, b.c(1.0), b.c(0.0)), j, i)
                exchange(b, swap, f, j, i, n)
                b.set(pending, b.select(swap, b.c(0.0), b.get(pending)))
        r = b.rcp(emit_read(b, f, j, j))
        for lanes, c in lanes_of_row(b, 0, n):
            emit_write(lanes, flags, emit_read(lanes, f, j, c), j + 1, c)
        with b.range(0, j + 1) as c:
            emit_write(b, flags, b.c(0.0), j + 1, c)
        with b.range(j + 1, n) as i:
            factor = b.mul(emit_read(b, f, i, j), r)
            for lanes, c in lanes_of_row(b, j + 1, n):
                old, row = emit_read(lanes, f, i, c), emit_read(lanes, flags, j + 1, c)
                emit_write(lanes, f, lanes.fnma(lanes.in_all_lanes(factor), row, old), i, c)
            emit_write(b, f, factor, i, j)
    for lanes, c in lanes_of_row(b, 0, n):
        emit_write(lanes, flags, lanes.c(0.0), n - 1, c)


def lusolve(
    b, out: BlockAccess, factors: BlockAccess, right: BlockAccess, n: int, m: int, transpose: bool
) -> None:
    f, flags = BlockAccess(factors.buffer, 0, (n, 1)), BlockAccess(factors.buffer, n * n, (n, 1))
    turned = BlockAccess(factors.buffer, 0, (1, n))
    with b.range(0, n) as i, b.range(0, m) as c:
        emit_write(b, out, emit_read(b, right, i, c), i, c)

    def exchanged(j: Affine) -> None:
        with b.when(b.gt(emit_read(b, flags, j, j), b.c(0.0))), b.range(j + 1, n) as i:
            swap = b.gt(emit_read(b, flags, j, i), b.c(0.0))
            with b.when(swap):
                exchange(b, swap, out, j, i, m)

    if not transpose:
        with b.range(0, n) as j:
            exchanged(j)
        substitute(b, out, f, out, n, m, True, True)
        substitute(b, out, f, out, n, m, False, False)
        return
    substitute(b, out, turned, out, n, m, True, False)
    substitute(b, out, turned, out, n, m, False, True)
    with b.range(0, n) as u:
        exchanged(n - 1 - u)


def determinant(b, out: BlockAccess, factors: BlockAccess, n: int, what: str) -> None:
    f, flags = BlockAccess(factors.buffer, 0, (n + 1,)), BlockAccess(factors.buffer, n * n, (n, 1))
    total = b.cell(b.c(0.0 if what == "logdet" else 1.0))
    with b.range(0, n) as k:
        d = emit_read(b, f, k)
        if what == "logdet":
            b.set(total, b.add(b.get(total), b.function("log", b.abs(d))))
        elif what == "det":
            b.set(total, b.mul(b.get(total), d))
        else:
            s = b.select(
                b.lt(d, b.c(0.0)),
                b.neg(b.get(total)),
                b.select(b.gt(d, b.c(0.0)), b.get(total), b.mul(d, b.c(0.0))),
            )
            b.set(total, s)
    if what != "logdet":
        with b.range(0, n) as j:
            swap = b.gt(emit_read(b, flags, j, j), b.c(0.0))
            b.set(total, b.select(swap, b.neg(b.get(total)), b.get(total)))
    emit_write(b, out, b.get(total), 0)


class BlockCode(TextBuilder):
    """The part of an emitter's `Text` that writes code for blocks; `self` is a builder as well.

    Inside `self.typed(wide)` it is a builder of float64, or of the program's dtype. Each node has one of
    these types. Loads and stores follow the type of the buffer."""

    part: int | None = None  # the number of the loop whose step is being written
    wide_arena: str  # `arena` for float64 blocks
    load: Any
    load_at: Any
    put: Any

    def block(self, i: int, op: str, args: tuple, env: dict) -> None:
        """Write the instruction of a block, or of a number computed from a block."""
        g, placement = self.g, self.low.placement
        if op == "view" or (self.part, i) in placement.inlined:
            return
        if g.shape[i]:
            env[i] = self.home((self.part, i))
        with self.typed(i in self.low.wide):
            if op == "elem":
                env[i] = self.element(args[0], [self.g.meta[i]], env, True)
            elif op == "entry":
                env[i] = self.entry(args[0], args[1], env)
            elif op == "sum":
                self.summed(i, env)
            elif op == "assemble":
                self.assembled(i, env)
            elif op in ROUTINES:
                self.called(i, op, args, env)
            else:
                self.mapped(self.whole(i, env), g.shape[i], placement.group[self.part, i], i, env)

    def home(self, key):
        """Return the place of a block in the arena."""
        place = self.low.placement.place[key]
        node = (
            self.low.loops[key[1]].sums[key[2]]
            if key[0] == "chunk"
            else None
            if key[0] == "moved"
            else key[1]
        )
        return (
            BlockBuffer(self.wide_arena, place // 2, wide=True)
            if node in self.low.wide
            else BlockBuffer(self.arena, place)
        )

    def whole(self, i: int, env: dict) -> BlockAccess:
        return BlockAccess(env[i], 0, contiguous_strides(self.g.shape[i]))

    def access(self, j: int, env: dict) -> BlockAccess:
        """Return the access to the elements of block j."""
        g = self.g
        if g.op[j] == "view":
            offset, strides = g.meta[j]
            source = self.access(g.args[j][0], env)
            return BlockAccess(source.buffer, source.offset + offset, strides)
        if g.op[j] == "array":
            return BlockAccess(self.constants(j), 0, contiguous_strides(g.shape[j]))
        return self.whole(j, env)

    def number(self, j: int) -> int | None:
        """Return the number that all elements of j equal, or None."""
        g = self.g
        source = g.args[j][0] if g.op[j] == "view" else j
        return None if g.shape[source] else source

    def element(self, j: int, index: list, env: dict, flat: bool = False):
        """Return element `index` of block j; with `flat`, the index counts the elements."""
        n = self.number(j)
        if n is not None:
            return self.everywhere(n, env)
        a = self.access(j, env)
        value = self.load(a.buffer, (Affine(a.offset) + index[0]) if flat else a.at(*index))
        return self.compare("ne", value, self.c(0.0)) if self.g.boolean(j) else value

    def entry(self, j: int, k: int, env: dict):
        """Return the element of vector j that the number k tells, which differs from lane to lane."""
        at, n = self.value(k, env), self.number(j)
        inside = self.and_(self.gt(at, self.c(-1.0)), self.lt(at, self.c(float(self.g.shape[j][0]))))
        within = self.and_(inside, self.eq(self.floor(at), at))
        if n is None:
            a = self.access(j, env)
            place = self.fma(
                self.select(within, at, self.c(0.0)), self.c(float(a.strides[0])), self.c(float(a.offset))
            )
            value = self.load_at(a.buffer, self.to_int(place))
        else:
            value = self.everywhere(n, env)
        return self.select(within, value, self.c(math.nan))

    def everywhere(self, j: int, env: dict):
        """Return the number j for all lanes."""
        return self.value(j, env)

    def flat(self, nodes: list[int], shape: tuple, env: dict) -> bool:
        """Return whether one loop over all elements can read these nodes."""
        return all(
            self.number(j) is not None or self.access(j, env).strides == contiguous_strides(shape)
            for j in nodes
        )

    def evaluated(self, group: list, index: list, env: dict, flat: bool) -> dict:
        """Return the values of a group of elementwise instructions at one index."""
        g, local = self.g, dict(env)
        done = set()
        for i, op, args in group:
            for j in args:
                if j not in done:
                    done.add(j)
                    with self.typed(j in self.low.wide):
                        local[j] = (
                            self.element(j, index, env, flat) if g.shape[j] else self.everywhere(j, env)
                        )
            done.add(i)
            self.straight_scalar([(i, op, args)], local)
        return local

    def along(self, n: int, visit: Callable, short: bool) -> None:
        """Call visit(i) for n neighbouring elements; a short loop is unrolled."""
        steps = next(k for k in (4, 3, 2, 1) if n % k == 0) if short else 1
        with self.range(0, n, steps) as i:
            for k in range(steps):
                visit(i + k)

    def loops(self, stack: ExitStack, dims: tuple, steps: int = 1) -> list:
        return [
            stack.enter_context(self.range(0, n, steps if k == len(dims) - 1 else 1))
            for k, n in enumerate(dims)
        ]

    def mapped(self, out: BlockAccess, shape: tuple, group: list, result: int, env: dict) -> None:
        """Write out = the elementwise `result` of a group of instructions; without a group, copy."""
        g = self.g
        inner = {i for i, _, _ in group}
        leaves = (
            [j for _, _, args in group for j in args if g.shape[j] and j not in inner] if group else [result]
        )
        flat = self.flat(leaves, shape, env) and out.strides == contiguous_strides(shape)

        def visit(here: list) -> None:
            value = (
                self.evaluated(group, here, env, flat)[result]
                if group
                else self.element(result, here, env, flat)
            )
            if g.boolean(result):
                value = self.select(value, self.c(1.0), self.c(0.0))
            self.put(out.buffer, here[0] + out.offset if flat else out.at(*here), value)

        if flat:
            self.along(element_total(shape), lambda i: visit([i]), len(group) <= UNROLLED_INSTRUCTIONS)
            return
        steps = (
            next(k for k in (4, 3, 2, 1) if shape[-1] % k == 0) if len(group) <= UNROLLED_INSTRUCTIONS else 1
        )
        with ExitStack() as stack:
            index = self.loops(stack, shape, steps)
            for k in range(steps):
                visit([*index[:-1], index[-1] + k])

    def row_by_row(self, j: int, env: dict) -> Iterator[tuple]:
        """Yield (number in the flat block, value) for the elements of block j, inside loops."""
        shape = self.g.shape[j]
        flat = self.flat([j], shape, env)
        dims = (element_total(shape),) if flat else shape
        with ExitStack() as stack:
            index = self.loops(stack, dims)
            yield (
                BlockAccess(BlockBuffer(""), 0, contiguous_strides(dims)).at(*index),
                self.element(j, index, env, flat),
            )

    def filled_with(self, out: BlockBuffer, shape: tuple, j: int, env: dict) -> None:
        """Fill the buffer with block j, or with the number j."""
        self.mapped(BlockAccess(out, 0, contiguous_strides(shape)), shape, [], j, env)

    def accumulate(self, out: BlockBuffer, shape: tuple, readers: list[Callable], flat: bool = True) -> None:
        """Write out += x, or x y, elementwise; each reader returns a factor at an index."""
        dims = (element_total(shape),) if flat else shape
        target = BlockAccess(out, 0, contiguous_strides(dims))

        def visit(index: list) -> None:
            x = [reader(index) for reader in readers]
            old = emit_read(self, target, *index)
            emit_write(self, target, self.fma(*x, old) if len(x) == 2 else self.add(old, x[0]), *index)

        if flat:
            self.along(dims[0], lambda i: visit([i]), True)
            return
        with ExitStack() as stack:
            visit(self.loops(stack, dims))

    def accumulate_term(self, out: BlockBuffer, shape: tuple, term: tuple, env: dict) -> None:
        """Add a term of a step, which has the program's dtype."""
        flat = self.flat(list(term), shape, env)

        def reader(index: list, j: int):
            with self.typed(False):
                value = self.element(j, index, env, flat)
            return self.widen(value) if out.wide else value

        with self.typed(out.wide):
            self.accumulate(out, shape, [lambda index, j=j: reader(index, j) for j in term], flat)

    def blocks_forward(self, n: int, loop, carry: list, env: dict) -> None:
        """Write the carry of the next step; parts of the old carry pass through a place of their own."""
        g, place = self.g, self.low.placement.place
        blocks = [
            (k, after)
            for k, (c, after) in enumerate(zip(loop.carry, loop.next, strict=True))
            if g.shape[c] and after != c
        ]
        shape = lambda k: g.shape[loop.carry[k]]
        blocks = [
            (k, after)
            for k, after in blocks
            if self.low.placement.in_place.get((n, after)) != (n, loop.carry[k])
        ]
        moved = [(k, after) for k, after in blocks if ("moved", n, k) in place]
        for k, after in moved:
            self.filled_with(self.home(("moved", n, k)), shape(k), after, env)
        for k, after in blocks:
            if ("moved", n, k) not in place:
                self.filled_with(carry[k], shape(k), after, env)
        for k, _ in moved:
            with self.range(0, element_total(shape(k))) as i:
                self.put(carry[k], i, self.load(self.home(("moved", n, k)), i))

    def summed(self, i: int, env: dict) -> None:
        g = self.g
        (x,), axes, shape = g.args[i], g.meta[i], g.shape[g.args[i][0]]
        group = self.low.placement.group[self.part, i][:-1]
        rest = [k for k in range(len(shape)) if k not in axes]
        with ExitStack() as outer:
            index = dict(zip(rest, self.loops(outer, tuple([shape[k] for k in rest])), strict=True))
            total = self.cell(self.c(0.0))
            with ExitStack() as stack:
                index.update(zip(axes, self.loops(stack, tuple([shape[k] for k in axes])), strict=True))
                here = [index[k] for k in range(len(shape))]
                value = self.evaluated(group, here, env, False)[x] if group else self.element(x, here, env)
                self.set(total, self.add(self.get(total), value))
            if rest:
                emit_write(self, self.whole(i, env), self.get(total), *[index[k] for k in rest])
        if not rest:
            env[i] = self.get(total)

    def assembled(self, i: int, env: dict) -> None:
        g, out = self.g, env[i]
        size, pieces = element_total(g.shape[i]), g.meta[i]
        if sum(element_total(p.dims) for p in pieces) < size:
            self.filled_with(out, (size,), g.zero, env)
        for p in pieces:
            s = g.args[i][p.source]
            to = BlockAccess(out, p.to, p.to_strides)
            if g.shape[s]:
                source = self.access(s, env)
                source = BlockAccess(source.buffer, source.offset + p.at, p.at_strides)
            with ExitStack() as stack:
                index = self.loops(stack, p.dims) if element_total(p.dims) > 1 else [0] * len(p.dims)
                emit_write(
                    self, to, emit_read(self, source, *index) if g.shape[s] else self.value(s, env), *index
                )

    def called(self, i: int, op: str, args: tuple, env: dict) -> None:
        g = self.g
        write_code, operands = ROUTINES[op]
        reads = [self.operand(args[k], env) for k in operands]
        out = self.whole(i, env) if g.shape[i] else BlockAccess(self.single(self.c(0.0)), 0, (1,))
        self.routine(op, write_code, [out, *reads], routine_sizes(g, i, op, args))
        if not g.shape[i]:
            env[i] = emit_read(self, out, 0)

    def operand(self, j: int, env: dict) -> BlockAccess:
        """Return block j as an operand of a routine; a single number is read at stride 0."""
        n = self.number(j)
        return (
            self.access(j, env)
            if n is None
            else BlockAccess(self.single(self.value(n, env)), 0, (0,) * len(self.g.shape[j]))
        )


def routine_sizes(g, i: int, op: str, args: tuple) -> tuple:
    """Return the sizes that a routine is called with."""
    if op == "matmul":
        return g.shape[i][0], g.shape[args[0]][1], g.shape[i][1], g.meta[i]
    if op in ("trisolve", "lusolve"):
        return (*g.shape[i], *g.meta[i])
    if op in ("cholesky", "lu"):
        return (g.shape[i][-1],)
    return g.shape[args[-1]][-1], op


ROUTINES = {
    "matmul": (emit_matmul, (0, 1)), "cholesky": (emit_cholesky, (0,)), "trisolve": (trisolve, (0, 1)),
    "lu": (emit_lu, (0,)),
    "lusolve": (lusolve, (1, 2)), "logdet": (determinant, (1,)), "det": (determinant, (1,)),
    "detsign": (determinant, (0,)),
}  # fmt: skip
