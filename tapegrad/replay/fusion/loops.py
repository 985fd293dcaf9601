"""Fused loops over array elements as LLVM text: any number of arrays with any strides, full sums and sums
over axes in the same pass.

`Loops` writes the text of a group; `compiled_groups` compiles it. A table holds addresses: of arrays that
are read, of arrays that are written, of numbers, of partial sums. A nest is a loop over a box of counters.
Its work is cut into items of some thousand elements, whatever the number of threads, and each item stores
its partial sums in a place of its own. So the bits do not depend on threads. Arithmetic is strict, as
written."""

import math

from ...kernels.emit.llvm_builder import Builder, function_text
from ...kernels.launch.cpu import processor
from ..scalar_graph import Exact
from .nests import STARTS, NestText, combine_code, data, pointer, reduce_by_halves
from .register_tiles import TiledNest, tile_of


def declared(W: int, bits: int) -> list:
    """Return declarations of the functions that texts of this width call."""
    b = Builder(W, bits)
    found = b.declared("fma", "floor", "sqrt", "fabs")
    if W > 1:
        found.append(f"declare i1 @llvm.vector.reduce.or.v{W}i1({b.B})")
        for integer in (0, 8, 32, 64):
            found += b.with_lanes(W, integer).declared_masked("load", "store", "gather", "scatter")
    return found


class Loops:
    """The text of all nests of a group: three functions of the table.  `loop` does items from one number to
    another, `last` adds up what they left, `all` does both.

    `sizes`: bytes of an element of each array; `totals`: (the (nest, sum) that it is made of, must it be
    finite?, how) for each."""

    def __init__(self, g: Exact, nests: list, sizes: list, totals: list, bits: int):
        places = {name: len(sizes) + k for k, name in enumerate(("numbers", "sums", "flag", "totals"))}
        texts, self.room, self.items, cuts, self.sizes = [], 0, 0, [], sizes
        sums = {}
        for k, nest in enumerate(nests):
            t = NestText(g, nest, f"nest{k}", places)
            tile = tile_of(nest, len(t.code))
            t = TiledNest(g, nest, t.name, places, tile) if tile else t
            texts.append(t)
            places[t.name] = self.room
            step = len(nest.sums) * t.W
            sums.update(
                {(k, s): (self.room + s * t.W, t.order.items, step, t.W) for s in range(len(nest.sums))}
            )
            self.room += step * t.order.items
            cuts.append((t.name, self.items, self.items + t.order.items))
            self.items += t.order.items
        bodies = [t.text() for t in texts]
        kinds = sorted({(W, t.nest.bits) for t in texts for W in (t.W, 1)})  # (1: routines)
        lines = dict.fromkeys([d for W, size in kinds for d in declared(W, size)])
        ends = [f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("smax", "smin")]
        found = [([sums[p] for p in parts], *rest) for parts, *rest in totals]
        whole = [f"  call void @loop(ptr %table, i64 0, i64 {self.items})", "  call void @last(ptr %table)"]
        text = [*lines, *ends, *bodies]
        for head, code in (
            ("loop(ptr %table, i64 %from, i64 %to)", [*self.aligned(places), *dispatched(cuts)]),
            ("last(ptr %table)", added_up(found, places, bits)),
            ("all(ptr %table)", whole),
        ):
            text.append(function_text(f"void @{head}", code))
        self.text = f'target triple = "{processor().triple}"\n' + "\n".join(text) + "\n"
        self.lines = self.text.count("\n")
        self.serial = any([nest.partial for nest in nests])
        self.work = sum([math.prod(t.nest.extents) * max(len(t.code), 1) for t in texts])

    def aligned(self, places: dict) -> list:
        """Return code that sets the flag and ends where an array is not aligned."""
        b = Builder(1, 64)
        b.lines.append("  ; addresses")
        odd = "0"
        for k, size in enumerate(self.sizes):
            if size > 1:
                p = b(f"ptrtoint ptr {data(b, k)} to i64")
                odd = b(f"or i64 {odd}, {b(f'and i64 {p}, {size - 1}')}")
        b.lines.append(f"  %odd = icmp ne i64 {odd}, 0\n  br i1 %odd, label %refused, label %begin\nrefused:")
        b.lines.append(f"  store i64 1, ptr {pointer(b, places['flag'])}\n  ret void\nbegin:")
        return b.lines


def added_up(totals: list, places: dict, bits: int) -> list:
    """Return code for the full sums: vectors are added item by item, then reduced by halves."""
    out = Builder(1, bits)
    if not totals:
        return []
    sums, to = pointer(out, places["sums"]), pointer(out, places["totals"])
    bad = "false"
    for n, (parts, watched, how) in enumerate(totals):
        total = ""
        for first, items, step, W in parts:
            b = out.with_lanes(W)
            cell = b.cell(b.c(STARTS[how]))
            with b.range(0, items) as i:
                at = b(f"getelementptr {b.real}, ptr {sums}, i64 {b.count(i * step + first)}")
                b.set(cell, combine_code(b, how, b.get(cell), b.read(at)))
            x = reduce_by_halves(b, b.get(cell), how)
            total = combine_code(out, how, total, x) if total else x
        out.store(total, out(f"getelementptr {out.real}, ptr {to}, i64 {n}"))
        if watched:
            bad = out(f"or i1 {bad}, {out.isnan(out.sub(total, total))}")
    flag = pointer(out, places["flag"])
    old = out(f"load i64, ptr {flag}")
    new = out(f"zext i1 {bad} to i64")
    out.lines.append(f"  store i64 {out(f'or i64 {old}, {new}')}, ptr {flag}")
    return [*out.slots, *out.lines]


def dispatched(cuts: list) -> list:
    lines = []
    for k, (name, start, stop) in enumerate(cuts):
        lines += [
            f"  %a{k} = call i64 @llvm.smax.i64(i64 %from, i64 {start})",
            f"  %b{k} = call i64 @llvm.smin.i64(i64 %to, i64 {stop})",
            f"  %c{k} = sub i64 %a{k}, {start}",
            f"  %d{k} = sub i64 %b{k}, {start}",
            f"  call void @{name}(ptr %table, i64 %c{k}, i64 %d{k})",
        ]
    return lines
