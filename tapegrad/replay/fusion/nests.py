"""A loop nest over the elements of arrays with any strides as LLVM text: elementwise work, full sums, and
sums over axes.

A table holds addresses: of arrays that are read, of arrays that are written, of numbers, of partial sums.
The work of a nest is cut into items of some thousand elements, whatever the number of threads, and each item
stores its own vector of partial sums."""

import math
from dataclasses import dataclass, field

from ...kernels.emit import elementary
from ...kernels.emit.block_code import Affine
from ...kernels.emit.llvm_builder import WIDE, Builder, function_text
from ...kernels.launch.cpu import HEADER
from ..costs import ITEM_ELEMENTS, VECTOR_OPERATIONS
from ..scalar_graph import Exact

STARTS = {"add": 0.0, "max": -math.inf, "min": math.inf}  # the reduction of no elements


@dataclass
class ArrayAccess:
    """Where an array is read or written: its number in the table, and offsets in bytes."""

    pointer: int
    first: int
    strides: tuple
    truth: bool = False
    whole: int = 0  # bits, if its elements are integers
    index: int = -1  # the node of an index along one more axis, whose step is `step` bytes
    step: int = 0


@dataclass
class Nest:
    """A loop nest over `extents`.

    Attributes
    ----------
    loads : node -> ArrayAccess
    numbers : node -> place among the numbers
    stores : list of (node, ArrayAccess)
    sums : list of (node, how), for full sums and extremes
    partial : list of (node, ArrayAccess, how), for sums over axes; strides are 0 along these axes
    checks : nodes that must be finite
    """

    extents: tuple
    bits: int
    loads: dict = field(default_factory=dict)
    numbers: dict = field(default_factory=dict)
    stores: list = field(default_factory=list)
    sums: list = field(default_factory=list)
    partial: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    known: dict = field(default_factory=dict)  # (value, place) -> its node

    @property
    def accesses(self) -> list:
        return [*self.loads.values(), *[a for _, a in self.stores], *[a for _, a, _ in self.partial]]

    def in_memory(self, place: tuple, strides: tuple) -> tuple:
        """(first element, steps along the axes of the nest) of a place in an array of such strides."""
        axes = list(zip(place, strides, strict=True))
        steps = [sum([own[d] * s for (_, own), s in axes]) for d in range(len(self.extents))]
        return sum([start * s for (start, _), s in axes]), tuple(steps)


class Order:
    """The order of the loops of a nest, and how its work is cut into items. Neighbouring loops become one
    where all arrays allow."""

    def __init__(self, nest: Nest):
        self.nest, size = nest, nest.bits // 8
        dims = [d for d, n in enumerate(nest.extents) if n != 1]
        accesses = nest.accesses
        dims.sort(key=lambda d: -sum([abs(a.strides[d]) for a in accesses]))
        if len(dims) > 1:
            inner = min(dims, key=lambda d: (self.cost(d, accesses, size), -dims.index(d)))
            dims.remove(inner)
            dims.append(inner)
        merged = merged_dims(dims, nest) or [(1, None)]
        self.extents = [n for n, _ in merged]
        self.dims = [d for _, d in merged]
        self.inner = self.extents[-1]
        self.rows = self.extents[-2] if len(merged) > 1 else 1
        self.outer = self.extents[:-2]
        if nest.partial:  # sums over axes: items that follow each other
            self.columns, self.together, self.items = self.inner, self.rows, math.prod(self.outer)
        else:
            self.columns = ITEM_ELEMENTS if self.inner > ITEM_ELEMENTS else self.inner
            self.together = min(max(ITEM_ELEMENTS // self.columns, 1), self.rows)
            self.items = (
                math.prod(self.outer) * -(-self.rows // self.together) * -(-self.inner // self.columns)
            )

    def cost(self, d: int, accesses: list, size: int) -> float:
        """Return the cost of an element if loop d is the innermost one."""
        n = self.nest.extents[d]
        width = min(16, 1 << (n - 1).bit_length())
        each = sum([{0: 0.2, size: 1.0}.get(a.strides[d], 5.0) for a in accesses])
        return -(-n // width) * each / n

    def stride(self, a: ArrayAccess, level: int) -> int:
        d = self.dims[level]
        return 0 if d is None else a.strides[d]


def merged_dims(dims: list, nest: Nest) -> list:
    """(extent, dim) of loops over these dims: neighbours become one where all arrays allow."""
    merged = []
    for d in dims:
        n = nest.extents[d]
        if merged and all([a.strides[merged[-1][1]] == a.strides[d] * n for a in nest.accesses]):
            merged[-1] = (merged[-1][0] * n, d)
        else:
            merged.append((n, d))
    return merged


class NestText:
    """The text of one nest."""

    def __init__(self, g: Exact, nest: Nest, name: str, places: dict):
        self.g, self.nest, self.name, self.places = g, nest, name, places
        self.order = order = Order(nest)
        self.size = nest.bits // 8
        outs = [n for n, *_ in (*nest.stores, *nest.partial, *nest.sums)] + nest.checks
        outs += [a.index for _, a, _ in nest.partial if a.index >= 0]
        plain = {n for n, a in nest.loads.items() if a.index < 0}
        self.code = [
            n for n in g.reach(outs, plain) if n not in plain and g.op[n] not in ("in", "const", "bool")
        ]
        most = 128 // self.size if len(self.code) <= VECTOR_OPERATIONS else 64 // self.size
        self.W = min(most, 1 << (order.inner - 1).bit_length())
        self.b = Builder(self.W, nest.bits)

    def moved(self, base: str, stride: int, count: str) -> str:
        if stride == 0 or count == "0":
            return base
        return self.b(f"getelementptr i8, ptr {base}, i64 {self.b(f'mul i64 {count}, {stride}')}")

    def text(self) -> str:
        b, nest = self.b, self.nest
        line = b.lines.append
        self.bases = [data(b, a.pointer) for a in nest.accesses]
        self.fixed = {}
        numbers = pointer(b, self.places["numbers"]) if nest.numbers else ""
        for node, k in nest.numbers.items():
            at = b(f"getelementptr {b.real}, ptr {numbers}, i64 {k}")
            self.fixed[node] = b.spread(b.read_number(at))
        self.totals = [b.slot() for _ in nest.sums]
        self.bad = b.slot(b.B) if nest.checks else ""
        if nest.checks:
            line(f"  store {b.B} zeroinitializer, ptr {self.bad}")
        sums = pointer(b, self.places["sums"]) if nest.sums else ""
        with b.range(Affine(0, {"%from": 1}), Affine(0, {"%to": 1})) as u:
            self.item(b.count(u))
            if nest.sums:
                first = b(f"mul i64 {b.count(u)}, {len(nest.sums) * self.W}")
                for k, slot in enumerate(self.totals):
                    at = b(f"add i64 {first}, {self.places[self.name] + k * self.W}")
                    b.store(b.read(slot), b(f"getelementptr {b.real}, ptr {sums}, i64 {at}"))
        if nest.checks:
            self.report()
        head = f"internal void @{self.name}(ptr %table, i64 %from, i64 %to) {WIDE}"
        return function_text(head, [*b.slots, *b.lines])

    def report(self) -> None:
        """Set the flag, which threads share, if a checked value was not finite."""
        b, line = self.b, self.b.lines.append
        found = b(f"load {b.B}, ptr {self.bad}")
        if self.W > 1:
            found = b(f"call i1 @llvm.vector.reduce.or.v{self.W}i1({b.B} {found})")
        line(f"  br i1 {found}, label %bad, label %good\nbad:")
        line(f"  store i64 1, ptr {pointer(b, self.places['flag'])}\n  br label %good\ngood:")

    def item(self, u: str) -> None:
        b, order = self.b, self.order
        across, down = -(-order.inner // order.columns), -(-order.rows // order.together)
        counts, rest = {}, u
        for level, n in reversed([*enumerate([*order.outer, down, across])]):
            if n == 1:
                counts[level] = "0"
            else:
                counts[level], rest = b(f"urem i64 {rest}, {n}"), b(f"udiv i64 {rest}, {n}")
        last = len(order.outer)
        row = b(f"mul i64 {counts[last]}, {order.together}") if down > 1 else "0"
        column = b(f"mul i64 {counts[last + 1]}, {order.columns}") if across > 1 else "0"
        bases = []
        for base, a in zip(self.bases, self.nest.accesses, strict=True):
            p = b(f"getelementptr i8, ptr {base}, i64 {a.first}") if a.first else base
            for level in range(last):
                p = self.moved(p, order.stride(a, level), counts[level])
            if len(order.extents) > 1:
                p = self.moved(p, order.stride(a, -2), row)
            bases.append(self.moved(p, order.stride(a, -1), column))
        for slot, (_, how) in zip(self.totals, self.nest.sums, strict=True):
            b.store(b.c(STARTS[how]), slot)
        rows, columns = (
            self.left(order.rows, order.together, row),
            self.left(order.inner, order.columns, column),
        )
        if len(order.extents) == 1 or order.rows == 1:
            self.row(bases, columns)
            return
        with b.range(0, rows if type(rows) is int else Affine(0, {rows: 1})) as r:
            count = b.count(r)
            self.row(
                [
                    self.moved(p, order.stride(a, -2), count)
                    for p, a in zip(bases, self.nest.accesses, strict=True)
                ],
                columns,
            )

    def left(self, n: int, step: int, start: str):
        """Return how many of n elements a step from this start has."""
        if n % step == 0:
            return step
        rest = self.b(f"sub i64 {n}, {start}")
        return self.b(f"select i1 {self.b(f'icmp slt i64 {rest}, {step}')}, i64 {rest}, i64 {step}")

    def row(self, bases: list, columns) -> None:
        """Write the loop over one row: full vectors, and a masked one for the rest."""
        b, W, nest = self.b, self.W, self.nest
        env, at = dict(self.fixed), dict(zip([*nest.loads], bases, strict=False))
        for node, a in nest.loads.items():
            if self.order.stride(a, -1) == 0 and a.index < 0:
                memory = self.elements(a)
                env[node] = self.converted(memory.spread(memory.read_number(at[node])), a)
        stores = bases[len(nest.loads) :]
        inner = [
            k for k, (_, a, _) in enumerate(nest.partial) if self.order.stride(a, -1) == 0 and a.index < 0
        ]
        cells = {k: b.cell(b.c(STARTS[nest.partial[k][2]])) for k in inner}
        if type(columns) is int:
            full, rest = columns // W * W, columns % W
        else:
            rest = b(f"and i64 {columns}, {W - 1}")
            full = b(f"sub i64 {columns}, {rest}")
        if full != 0:
            with b.range(0, full if type(full) is int else Affine(0, {full: 1}), W) as j:
                self.body(env, at, stores, b.count(j), "", cells)
        if rest != 0:
            lanes = "<" + ", ".join([f"i64 {k}" for k in range(W)]) + ">"
            mask = b(f"icmp slt <{W} x i64> {lanes}, {b.spread_as('i64', rest)}")
            self.body(env, at, stores, str(full), mask, cells)
        for k, cell in cells.items():
            p, how = stores[len(nest.stores) + k], nest.partial[k][2]
            self.accumulate(p, nest.partial[k][1], how, reduce_by_halves(b, b.get(cell), how))

    # --- memory ---

    def converted(self, x: str, a: ArrayAccess) -> str:
        """Return what was read as a truth value or a number."""
        if a.whole:
            return self.b(f"sitofp {self.b.vector(f'i{a.whole}')} {x} to {self.b.T}")
        zero = "0" if self.W == 1 else "zeroinitializer"
        return self.b(f"icmp ne {self.b.vector('i8')} {x}, {zero}") if a.truth else x

    def in_memory(self, x: str, memory: Builder, a: ArrayAccess) -> str:
        """Return what is written of a truth value or a number."""
        if a.whole:
            return memory(f"fptosi {self.b.with_lanes(memory.W).T} {x} to {memory.T}")
        return memory(f"zext {memory.B} {x} to {memory.T}") if a.truth else x

    def accumulate(self, p: str, a: ArrayAccess, how: str, x: str) -> None:
        """Add the number x, or what else is done, to the number in memory."""
        one, memory = self.b.with_lanes(1), self.b.with_lanes(1, a.whole)
        old = memory.read(p)
        old = memory(f"sitofp {memory.T} {old} to {one.T}") if a.whole else old
        memory.store(self.in_memory(combine_code(one, how, old, x), memory, a), p)

    def elements(self, a: ArrayAccess) -> Builder:
        """Return a builder of the type in which an array lies in memory."""
        return self.b.with_lanes(self.W, 8 if a.truth else a.whole)

    def places_of(self, p: str, stride: int, j: str) -> str:
        """Return the addresses of a vector of elements that are not contiguous."""
        b, W = self.b, self.W
        p = self.moved(p, stride, j)
        steps = "<" + ", ".join([f"i64 {k * stride}" for k in range(W)]) + ">"
        return b(f"getelementptr i8, ptr {p}, <{W} x i64> {steps}")

    def read(self, p: str, a: ArrayAccess, j, mask: str) -> str:
        memory, stride = self.elements(a), self.order.stride(a, -1)
        if stride == memory.align or self.W == 1:
            return self.converted(memory.read(self.moved(p, stride, j), mask), a)
        return self.converted(memory.gather(self.places_of(p, stride, j), mask or memory.truth(True)), a)

    def write(self, value: str, p: str, a: ArrayAccess, j, mask: str) -> None:
        memory, stride = self.elements(a), self.order.stride(a, -1)
        value = self.in_memory(value, memory, a)
        if stride == memory.align or self.W == 1:
            memory.store(value, self.moved(p, stride, j), mask)
        else:
            memory.scatter(value, self.places_of(p, stride, j), mask or memory.truth(True))

    def is_of_row(self, n: int) -> bool:
        """Is a node the same at all elements of a row?"""
        found = [self.nest.loads[m] for m in self.g.reach([n]) if m in self.nest.loads]
        return all([self.order.stride(a, -1) == 0 for a in found])

    def row_at(self, p: str, a: ArrayAccess, env: dict) -> str:
        """Return the address of the row with an index that is the same at all its elements."""
        b, at = self.b, self.value(a.index, env)
        at = at if self.W == 1 else b(f"extractelement {b.T} {at}, i64 0")
        return self.moved(p, a.step, b(f"fptosi {b.real} {at} to i64"))

    def indexed(self, p: str, a: ArrayAccess, j, env: dict) -> str:
        """Return the addresses of a vector of elements at indices."""
        b, stride = self.b, self.order.stride(a, -1)
        i32 = b.vector("i32")
        at = b(f"fptosi {b.T} {self.value(a.index, env)} to {i32}")
        at = b(f"mul {i32} {at}, {b.splat('i32', str(a.step))}")
        many = stride != 0 and self.W > 1
        p = self.places_of(p, stride, j) if many else self.moved(p, stride, j)
        return b(f"getelementptr i8, {b.vector('ptr') if many else 'ptr'} {p}, {i32} {at}")

    def read_indexed(self, p: str, a: ArrayAccess, j, mask: str, env: dict) -> str:
        if self.is_of_row(a.index):
            p = self.row_at(p, a, env)
            if self.order.stride(a, -1):
                return self.read(p, a, j, mask)
            memory = self.elements(a)
            return self.converted(memory.spread(memory.read_number(p)), a)
        memory, at = self.elements(a), self.indexed(p, a, j, env)
        x = memory.read(at) if self.W == 1 else memory.gather(at, mask or memory.truth(True))
        return self.converted(x, a)

    def add_indexed(self, x: str, p: str, a: ArrayAccess, j, mask: str, env: dict) -> None:
        """Add a vector of elements one by one, for indices may be equal. (Masked ones are zeros.)"""
        if self.order.stride(a, -1) and self.is_of_row(a.index):
            p = self.row_at(p, a, env)
            self.write(self.b.add(self.read(p, a, j, mask), x), p, a, j, mask)
            return
        b, W, at = self.b, self.W, self.indexed(p, a, j, env)
        one = b.with_lanes(1)
        if mask:
            first = b.spread_as("ptr", p)
            at = b(f"select {b.B} {mask}, {b.vector('ptr')} {at}, {b.vector('ptr')} {first}")
        for lane in range(W):
            q = at if W == 1 else b(f"extractelement {b.vector('ptr')} {at}, i64 {lane}")
            y = x if W == 1 else b(f"extractelement {b.T} {x}, i64 {lane}")
            one.store(one.add(one.read(q), y), q)

    # --- elements ---

    def value(self, n: int, env: dict) -> str:
        return elementary.operand_text(self.g, self.b, n, env)

    def body(self, outer: dict, at: dict, stores: list, j, mask: str, cells: dict) -> None:
        """Write the work on one vector of elements."""
        b, nest, g, env = self.b, self.nest, self.g, dict(outer)
        for node, a in nest.loads.items():
            if node not in env and a.index < 0:
                env[node] = self.read(at[node], a, j, mask)
        for n in self.code:
            if n in nest.loads:
                env[n] = self.read_indexed(at[n], nest.loads[n], j, mask, env)
            elif n not in env:
                x = [self.value(k, env) for k in g.args[n]]
                env[n] = elementary.emit_operation(b, g.op[n], *x, truths=g.boolean(g.args[n][-1]))
        for (n, a), p in zip(nest.stores, stores, strict=False):
            self.write(self.value(n, env), p, a, j, mask)
        kept = lambda x, how: b.select(mask, x, b.c(STARTS[how])) if mask else x
        for (n, how), slot in zip(nest.sums, self.totals, strict=True):
            b.store(combine_code(b, how, b.read(slot), kept(self.value(n, env), how)), slot)
        for k, (n, a, how) in enumerate(nest.partial):
            x = kept(self.value(n, env), how)
            if a.index >= 0:
                self.add_indexed(x, stores[len(nest.stores) + k], a, j, mask, env)
            elif k in cells:
                b.set(cells[k], combine_code(b, how, b.get(cells[k]), x))
            else:
                p = stores[len(nest.stores) + k]
                self.write(combine_code(b, how, self.read(p, a, j, mask), x), p, a, j, mask)
        self.check(env, mask)

    def check(self, env: dict, mask: str) -> None:
        b = self.b
        for n in self.nest.checks:
            x = self.value(n, env)
            wrong = b.isnan(b.sub(x, x))
            wrong = b.and_(wrong, mask) if mask else wrong
            b.lines.append(f"  store {b.B} {b.or_(b(f'load {b.B}, ptr {self.bad}'), wrong)}, ptr {self.bad}")


def pointer(b: Builder, k: int) -> str:
    return b(f"load ptr, ptr {b(f'getelementptr ptr, ptr %table, i64 {k}')}")


def data(b: Builder, k: int) -> str:
    """Return the address of the elements of array k. The table has that address, or that of the object that
    holds it."""
    p = pointer(b, k)
    return b(f"load ptr, ptr {b(f'getelementptr i8, ptr {p}, i64 {HEADER}')}") if HEADER else p


def reduce_by_halves(b: Builder, x: str, how: str = "add") -> str:
    """Return the sum or extreme of a vector, reduced by halves."""
    while b.W > 2:
        w = b.W // 2
        halves = [", ".join([f"i32 {k}" for k in range(first, first + w)]) for first in (0, w)]
        parts = [b(f"shufflevector {b.T} {x}, {b.T} poison, <{w} x i32> <{h}>") for h in halves]
        b = b.with_lanes(w)
        x = combine_code(b, how, *parts)
    if b.W == 1:
        return x
    return combine_code(b.with_lanes(1), how, *[b(f"extractelement {b.T} {x}, i64 {k}") for k in range(2)])


def combine_code(b: Builder, how: str, a: str, x: str) -> str:
    """Return the sum or extreme of a and x. A nan is the extreme of all."""
    if how == "add":
        return b.add(a, x)
    return b.select(b.or_(b.compare("gt" if how == "max" else "lt", x, a), b.isnan(x)), x, a)
