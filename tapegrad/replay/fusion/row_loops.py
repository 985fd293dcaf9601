"""A loop over the rows of a matrix, several rows a turn, as LLVM text.

A turn multiplies its rows by vectors, calls the code of a group on the products, and adds the rows times
the factors that the group computed. The rows stay in the L1 cache from the first product to the last.

`rows(frame, turns)`: the frame holds addresses, in this order: of the matrix; of the vectors; of their
products; of the factors; of the sums of rows; of the group's code and its table; of its full sums, and of
the sums of these; of the table entries for arrays of the group, which advance by `steps` bytes a turn."""

from ...kernels.emit.block_code import Affine
from ...kernels.emit.llvm_builder import WIDE, Builder, function_text
from ...kernels.launch.cpu import processor
from ..costs import ROW_PRODUCTS, TURN_ROWS
from .nests import reduce_by_halves


class RowLoopText:
    def __init__(self, columns: int, bits: int, products: int, factors: int, totals: int, steps: list):
        self.columns, self.products, self.factors, self.totals, self.steps = (
            columns,
            products,
            factors,
            totals,
            steps,
        )
        self.W = 512 // bits
        self.b = Builder(self.W, bits)

    def text(self) -> str:
        b, at = self.b, self.pointers()
        with b.range(0, Affine(0, {"%turns": 1})) as k:
            first = b(
                f"getelementptr {b.real}, ptr {at['matrix'][0]}, i64 {b(f'mul i64 {b.count(k)}, {TURN_ROWS * self.columns}')}"
            )
            rows = [b.beyond(first, str(r * self.columns)) for r in range(TURN_ROWS)]
            for n in range(0, self.products, ROW_PRODUCTS):
                self.multiply(rows, at["vectors"][n : n + ROW_PRODUCTS], at["products"][n : n + ROW_PRODUCTS])
            b.lines.append(f"  call void {at['code'][0]}(ptr {at['table'][0]})")
            self.total(at)
            for n in range(0, self.factors, ROW_PRODUCTS):
                self.add(rows, at["factors"][n : n + ROW_PRODUCTS], at["sums"][n : n + ROW_PRODUCTS])
            for p, step in zip(at["moving"], self.steps, strict=True):
                there = b(f"load i64, ptr {p}")
                b.lines.append(f"  store i64 {b(f'add i64 {there}, {step}')}, ptr {p}")
        declared = [*b.declared("fma"), *b.declared_masked("load", "store")]
        declared.append("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        body = function_text(f"void @rows(ptr %frame, i64 %turns) {WIDE}", [*b.slots, *b.lines])
        return "\n".join([f'target triple = "{processor().triple}"', *declared, body])

    def pointers(self) -> dict:
        counts = {
            "matrix": 1,
            "vectors": self.products,
            "products": self.products,
            "factors": self.factors,
            "sums": self.factors,
        }
        counts |= {"code": 1, "table": 1, "totals": 1, "all": 1, "moving": len(self.steps)}
        found, k = {}, 0
        for name, n in counts.items():
            found[name] = [
                self.b(f"load ptr, ptr {self.b(f'getelementptr ptr, ptr %frame, i64 {k + j}')}")
                for j in range(n)
            ]
            k += n
        return found

    def each(self, work) -> None:
        """Call work(column, mask) for all vectors of columns."""
        full, rest = self.columns // self.W * self.W, self.columns % self.W
        if full:
            with self.b.range(0, full, self.W) as j:
                work(self.b.count(j), "")
        if rest:
            work(str(full), "<" + ", ".join([f"i1 {int(k < rest)}" for k in range(self.W)]) + ">")

    def multiply(self, rows: list, vectors: list, products: list) -> None:
        """Multiply the rows by these vectors, and prefetch the rows of the next turn."""
        b = self.b
        cells = [[b.cell(b.c(0.0)) for _ in vectors] for _ in rows]

        def work(j: str, mask: str) -> None:
            given = [b.read(b.beyond(x, j), mask) for x in vectors]
            for row, sums in zip(rows, cells, strict=True):
                here = b.beyond(row, j)
                next_turn = b.beyond(here, str(TURN_ROWS * self.columns))
                b.lines.append(f"  call void @llvm.prefetch.p0(ptr {next_turn}, i32 0, i32 3, i32 1)")
                a = b.read(here, mask)
                for x, cell in zip(given, sums, strict=True):
                    b.set(cell, b.fma(a, x, b.get(cell)))

        self.each(work)
        for r, sums in enumerate(cells):
            for p, cell in zip(products, sums, strict=True):
                b.store_number(reduce_by_halves(b, b.get(cell)), b.beyond(p, str(r)))

    def total(self, at: dict) -> None:
        b = self.b.with_lanes(1)
        for k in range(self.totals):
            there, more = [b.beyond(at[name][0], str(k)) for name in ("all", "totals")]
            b.store(b.add(b.read(there), b.read(more)), there)

    def add(self, rows: list, factors: list, sums: list) -> None:
        """Add the rows times these factors to the sums."""
        b = self.b
        given = [[b.spread(b.read_number(b.beyond(p, str(r)))) for r in range(TURN_ROWS)] for p in factors]

        def work(j: str, mask: str) -> None:
            places = [b.beyond(p, j) for p in sums]
            found = [b.read(p, mask) for p in places]
            for r, row in enumerate(rows):
                a = b.read(b.beyond(row, j), mask)
                found = [b.fma(a, x[r], s) for x, s in zip(given, found, strict=True)]
            for s, p in zip(found, places, strict=True):
                b.store(s, p, mask)

        self.each(work)
