"""Sums over leading axes whose cells stay in registers, as LLVM text.

A *tile* is all cells of the sums, times some rows of the axis that is added up: 2,000 x 5 elements, added to
5 cells, are 250 turns of 8 x 5. The lanes of vectors hold the elements of a tile one after the other,
whatever the arrays' strides. What lies near each other is read as one vector and shuffled."""

import functools
import math
from dataclasses import dataclass

from ...kernels.emit.llvm_builder import Builder
from ..costs import TILE_ELEMENTS, TILE_OPERATIONS
from .nests import STARTS, ArrayAccess, Nest, NestText, combine_code, merged_dims


@dataclass
class Tile:
    """`outer`: (extent, dim) of the axes that are added up; `rows`: of the last of them; `kept`: the other
    dims."""

    outer: list
    rows: int
    kept: list


@dataclass
class Chunk:
    """A vector of the elements of a tile of so many rows."""

    number: int
    rows: int


def tile_of(nest: Nest, operations: int) -> Tile | None:
    """Return a tile, if all sums add over the same leading axes and the cells are few. `operations`: of an
    element."""
    if not nest.partial or any([a.index >= 0 for a in nest.accesses]):
        return None
    dims = [d for d, n in enumerate(nest.extents) if n != 1]
    dims.sort(key=lambda d: -sum([abs(a.strides[d]) for a in nest.accesses]))
    found = {tuple([bool(a.strides[d]) for d in dims]) for _, a, _ in nest.partial}
    is_kept = min(found)
    cells = math.prod([nest.extents[d] for d, keep in zip(dims, is_kept, strict=True) if keep])
    if len(found) > 1 or list(is_kept) != sorted(is_kept) or len(set(is_kept)) < 2:
        return None
    first = is_kept.index(True)
    outer, lanes = merged_dims(dims[:first], nest), 512 // nest.bits
    most = TILE_ELEMENTS // len(nest.partial)
    rows = lanes // math.gcd(lanes, cells)
    rows = rows if cells * rows <= most and rows <= outer[-1][0] else 1
    few = cells <= most and operations * -(-cells * rows // lanes) <= TILE_OPERATIONS
    return Tile(outer, rows, dims[first:]) if few else None


class TiledNest(NestText):
    """The text of a nest with a tile."""

    def __init__(self, g, nest: Nest, name: str, places: dict, tile: Tile):
        super().__init__(g, nest, name, places)
        self.tile, self.order.items = tile, 1
        self.W = 512 // nest.bits
        self.b = Builder(self.W, nest.bits)

    def offsets(self, a: ArrayAccess, rows: int) -> list:
        """Return where the elements of a tile lie, in bytes from its first."""
        found = [0]
        extents = [(rows, self.tile.outer[-1][1]), *[(self.nest.extents[d], d) for d in self.tile.kept]]
        for n, d in extents:
            found = [at + k * a.strides[d] for at in found for k in range(n)]
        return found

    def item(self, u: str) -> None:
        b, nest = self.b, self.nest
        for slot, (_, how) in zip(self.totals, nest.sums, strict=True):
            b.store(b.c(STARTS[how]), slot)
        cells = math.prod([nest.extents[d] for d in self.tile.kept])
        count = -(-cells * self.tile.rows // self.W)
        memory = [b.slot(f"[{count} x {b.T}]") for _ in nest.partial]
        parts = [[b.beyond(p, str(n * self.W)) for n in range(count)] for p in memory]
        for (*_, how), vectors in zip(nest.partial, parts, strict=True):
            for p in vectors:
                b.set(p, b.c(STARTS[how]))
        bases = [
            b(f"getelementptr i8, ptr {p}, i64 {a.first}")
            for p, a in zip(self.bases, nest.accesses, strict=True)
        ]
        self.turns(bases, self.tile.outer, parts, cells)
        results = bases[len(bases) - len(parts) :]
        for p, sums, (_, a, how) in zip(results, memory, nest.partial, strict=True):
            self.combine(p, sums, a, how)

    def turns(self, bases: list, outer: list, parts: list, cells: int) -> None:
        """Write the loops over the axes that are added up."""
        (n, d), *inner = outer
        rows = 1 if inner else self.tile.rows
        for start, stop, step in ((0, n // rows * rows, rows), (n // rows * rows, n, 1)):
            if start == stop:
                continue
            with self.b.range(start, stop, step) as k:
                count = self.b.count(k)
                moved = [
                    self.moved(p, a.strides[d], count) for p, a in zip(bases, self.nest.accesses, strict=True)
                ]
                if inner:
                    self.turns(moved, inner, parts, cells)
                else:
                    self.chunks(moved, parts, cells, step)

    def chunks(self, bases: list, parts: list, cells: int, rows: int) -> None:
        at = dict(zip(self.nest.loads, bases, strict=False))
        for n in range(-(-cells * rows // self.W)):
            left = cells * rows - n * self.W
            mask = (
                ""
                if left >= self.W
                else "<" + ", ".join([f"i1 {int(k < left)}" for k in range(self.W)]) + ">"
            )
            cell = {k: places[n] for k, places in enumerate(parts)}
            self.body(self.fixed, at, bases[len(at) :], Chunk(n, rows), mask, cell)

    def combine(self, p: str, memory: str, a: ArrayAccess, how: str) -> None:
        """Add the rows of a tile up, and to memory."""
        one, offsets = self.b.with_lanes(1), self.offsets(a, 1)
        for k, offset in enumerate(offsets):
            cells = [one.beyond(memory, str(row * len(offsets) + k)) for row in range(self.tile.rows)]
            total = functools.reduce(lambda x, y: combine_code(one, how, x, y), map(one.read, cells))
            self.accumulate(one(f"getelementptr i8, ptr {p}, i64 {offset}"), a, how, total)

    # --- memory ---

    def places_in(self, a: ArrayAccess, j: Chunk) -> list:
        """Return where the elements of a chunk lie."""
        return self.offsets(a, j.rows)[j.number * self.W : (j.number + 1) * self.W]

    def read(self, p: str, a: ArrayAccess, j, mask: str) -> str:
        memory, offsets = self.elements(a), self.places_in(a, j)
        first, last, size = min(offsets), max(offsets), memory.align
        n = (last - first) // size + 1
        start = memory(f"getelementptr i8, ptr {p}, i64 {first}")
        if n == 1:
            return self.converted(memory.spread(memory.read_number(start)), a)
        if n > 2 * self.W or any([(x - first) % size for x in offsets]):
            return self.converted(
                memory.gather(self.spots(memory, p, offsets), mask or memory.truth(True)), a
            )
        near = memory(f"load <{n} x {memory.real}>, ptr {start}, align {size}")
        lanes = [(x - first) // size for x in offsets]
        if lanes == [*range(self.W)]:
            return self.converted(near, a)
        lanes += [0] * (self.W - len(lanes))
        which = ", ".join([f"i32 {k}" for k in lanes])
        kind = f"<{n} x {memory.real}>"
        x = memory(f"shufflevector {kind} {near}, {kind} poison, <{self.W} x i32> <{which}>")
        return self.converted(x, a)

    def spots(self, memory: Builder, p: str, offsets: list) -> str:
        """Return the addresses of elements anywhere."""
        steps = "<" + ", ".join([f"i64 {k}" for k in offsets + [offsets[0]] * (self.W - len(offsets))]) + ">"
        return memory(f"getelementptr i8, ptr {p}, <{self.W} x i64> {steps}")

    def write(self, value: str, p: str, a: ArrayAccess, j, mask: str) -> None:
        memory, offsets = self.elements(a), self.places_in(a, j)
        value = self.in_memory(value, memory, a)
        if offsets == [offsets[0] + k * memory.align for k in range(len(offsets))]:
            memory.store(value, memory(f"getelementptr i8, ptr {p}, i64 {offsets[0]}"), mask)
        else:
            memory.scatter(value, self.spots(memory, p, offsets), mask or memory.truth(True))
