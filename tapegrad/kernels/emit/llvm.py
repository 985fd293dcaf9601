"""A lowered program as LLVM text: one sample in each SIMD lane, samples in blocks of W lanes.

    kernel(inputs..., data, [step input], outputs..., [step output], tape, stride, T, blocks, caps, needed)

Inputs and outputs are (rows, stride) arrays. The kernel handles their first blocks * W columns. Step input
and output are (rows, T, stride). A step output that is summed over samples is (rows, T, W), and each block
adds to it. The tape holds the arena of large matrices (`arena`), then the stored carries of one block,
[loop][step][component][lane]. caps[2 n], for n loops, is the size of a tape that each block has for itself;
if it is 0, all blocks use one tape. The text may be one phase of a program only: "record" runs the loop over
the data, and "sweep" goes on from its tape.

caps[2 l] is the start of loop l on the tape, caps[2 l + 1] the number of steps with room there. needed[l]
receives the number of steps that it took. After `caps` follow the numbers of a `general` program, whose code
does not contain them.

Invariant: arithmetic is strict. No instruction has a fast-math flag, and the program chooses multiply-add."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ..graph.program import ProgramLoop
from . import elementary
from .builder import Affine, BlockAccess, BlockBuffer
from .llvm_builder import WIDE, Builder, function_text, matmul_across, vector_widths
from .lower import CHUNK, Body, LoweredProgram
from .recalled import RecalledLoops

COMMON = frozenset((0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, np.inf, -np.inf))  # always literals


class LlvmText(RecalledLoops):
    """The text of one program."""

    typed_by, sigil = ("bits", "real", "int", "T", "I", "suffix", "align"), "%"

    def __init__(
        self,
        low: LoweredProgram,
        width: int,
        bits: int,
        per_sample: bool,
        given: bytearray | None,
        phase: str,
    ):
        """Set up the text; `given` collects the numbers that are arguments, None makes all of them
        literals."""
        super().__init__(width, bits)
        self.given: Any = given
        self.phase = phase
        self.loaded = {}
        self.low, self.g, self.per_sample, self.own = low, low.program.g, per_sample, bits
        self.unit = ""  # a register that holds 1.0, for `balance`
        self.arena = self.wide_arena = "%tape"
        self.globals: dict = {}
        self.routines: dict = {}
        self.often = elementary.called_functions([*low.functions(), *low.functions(True)])

    def text(self, name: str, target: str) -> str:
        p = self.low.program
        env = {}
        self.lines.append("  br label %block\nblock:")
        self.lines.append("  %b = phi i64 [ 0, %entry ], [ %bnext, %blockend ]")
        self.lines.append("  %bend = icmp eq i64 %b, %blocks\n  br i1 %bend, label %done, label %work\nwork:")
        self.lines.append(f"  %first = {self.opaque(self(f'mul i64 %b, {self.W}'))}")
        size = self.number_at(self(f"getelementptr i64, ptr %caps, i64 {2 * len(self.low.bodies)}"))
        self.lines.append(f"  %tape = getelementptr {self.T}, ptr %tapes, i64 {self(f'mul i64 %b, {size}')}")
        self.load_inputs(env)
        records = self.phase == "record"
        if self.phase:
            self.one_phase(records, env)
        else:
            self.region(self.low.sections, self.low.outer, env)
        if not records:
            self.store_outputs(env)
        self.lines.append(
            "  br label %blockend\nblockend:\n  %bnext = add i64 %b, 1\n  br label %block\ndone:\n  ret void"
        )
        pointers = (
            [f"%in{k}" for k in range(len(p.inputs))]
            + ["%data"]
            + ["%each"] * (bool(p.streams) and not records)
        )
        pointers += [] if records else [f"%out{k}" for k in range(len(p.groups))]
        pointers += ["%steps"] * (bool(p.step_rows) and self.phase != "sweep") + ["%tapes"]
        head = (
            ", ".join(f"ptr noalias {x}" for x in pointers)
            + ", i64 %stride, i64 %T, i64 %blocks, ptr %caps, ptr %needed"
        )
        # (1: routines)
        kinds = [Builder(w, self.bits) for w in (vector_widths(self.bits) if self.W == 1 else [self.W, 1])]
        kinds += [Builder(b.W, 64) for b in kinds] if self.low.precise is not None else []
        declared = [line for b in kinds for line in b.declared("fma", "floor", "sqrt", "fabs")]
        if self.W > 1:
            declared.append(f"declare {self.real} @llvm.vector.reduce.fmax.{self.suffix}({self.T})")
            declared += [line for b in kinds if b.W > 1 for line in b.declared_masked("gather")]
            declared.append(f"declare i1 @llvm.vector.reduce.or.v{self.W}i1({self.B})")
        others = "".join([text for _, text in (*self.globals.values(), *self.routines.values())])
        whole = function_text(f"void @{name}({head}) {WIDE}", [*self.slots, *self.lines])
        return f'target triple = "{target}"\n' + "\n".join(declared) + "\n" + others + whole

    # --- numbers as arguments ---

    def constant(self, x: float) -> str:
        if self.given is None or x in COMMON or x != x:
            return self.c(x)
        key = self.bits, self.W, x
        if key not in self.loaded:
            name = f"%c{len(self.loaded)}"
            self.slots.append(
                f"  {name} = load {self.real}, ptr {self.argument(np.array([x]), name)}, align {self.align}"
            )
            if self.W > 1:
                self.slots.append(f"  {name}.o = insertelement {self.T} poison, {self.real} {name}, i64 0")
                self.slots.append(
                    f"  {name}.w = shufflevector {self.T} {name}.o, {self.T} poison, <{self.W} x i32> "
                    f"zeroinitializer"
                )
            self.loaded[key] = name if self.W == 1 else f"{name}.w"
        return self.loaded[key]

    def argument(self, values: np.ndarray, name: str) -> str:
        """Return a pointer to numbers after `caps`."""
        with np.errstate(over="ignore"):
            content = values.astype(np.float32 if self.bits == 32 else np.float64).tobytes()
        at = 8 * (2 * len(self.low.bodies) + 2) + len(self.given)
        self.given += content + bytes(-len(content) % 8)
        self.slots.append(f"  {name}.p = getelementptr i8, ptr %caps, i64 {at}")
        return f"{name}.p"

    # --- float64 in a float32 program ---

    def builder(self, bits: int) -> Builder:
        return Builder(self.W, bits)

    def single(self, value: str) -> BlockBuffer:
        return BlockBuffer(self.cell(value), wide=self.bits > self.own)

    # --- one sample: neighbouring elements in lanes ---

    @contextmanager
    def lanes(self, width: int) -> Iterator[None]:
        """Inside, `width` neighbouring elements of a block are read and written together."""
        self.across = True
        with self.of(Builder(width, self.bits), ("W", "T", "I", "B", "suffix")):
            yield
        self.across = False

    def along(self, n: int, visit: Callable, short: bool) -> None:
        if self.W > 1 or self.across:
            super().along(n, visit, short)
            return
        done = 0
        for width in (vector_widths(self.bits)[0], 1):
            count = (n - done) // width * width
            if count:
                with self.range(done, done + count, width) as i, self.lanes(width):
                    visit(i)
            done += count

    def everywhere(self, j: int, env: dict) -> str:
        x = self.value(j, env)
        if not self.across or self.W == 1 or self.g.op[j] in ("const", "bool"):
            return x
        return self.spread_as("i1" if self.g.boolean(j) else self.real, x)

    def pointer(self, buffer: BlockBuffer, at: Affine | int) -> str:
        with self.typed(buffer.wide):
            return super().pointer(buffer, at)

    def load(self, buffer: BlockBuffer, at: Affine) -> str:
        return super().load(replace(buffer, constant=False) if self.across else buffer, at)

    def constant_text(self, values: np.ndarray, k: int) -> tuple[str, str]:
        if self.given is not None:
            return self.argument(values, f"%k{k}"), ""
        scalar = Builder(1, self.bits)
        content = ", ".join([f"{scalar.real} {scalar.c(x)}" for x in values])
        return (
            f"@k{k}",
            f"@k{k} = private unnamed_addr constant [{values.size} x {scalar.real}] [{content}], align 64\n",
        )

    def routine(self, op: str, code: Callable, accesses: list[BlockAccess], sizes: tuple) -> None:
        across = self.W == 1 and op == "matmul"
        super().routine(op, matmul_across if across else code, accesses, sizes)

    def routine_text(self, name: str, b, count: int) -> tuple[str, str]:
        head = ", ".join(f"ptr {'noalias ' * (n == 0)}%p{n}" for n in range(count))
        return f"@{name}", function_text(f"internal void @{name}({head}) {WIDE}", [*b.slots, *b.lines])

    def call_routine(self, name: str, accesses: list[BlockAccess]) -> None:
        self.lines.append(
            f"  call void {name}({', '.join([f'ptr {self.pointer(a.buffer, a.offset)}' for a in accesses])})"
        )

    # --- memory ---

    def opaque(self, number: str) -> str:
        """Return the text of an index that is hidden from the compiler.

        It would look for the best way to step through hundreds of places in a loop, a third of its time."""
        return f'call i64 asm "", "=r,0"(i64 {number})'

    def column(self, base: str, row: Affine | int) -> str:
        at = self(f"add i64 {self(f'mul i64 %stride, {self.count(row)}')}, %first")
        return self(f"getelementptr {self.real}, ptr {base}, i64 {at}")

    def store_output(self, base: str, row: Affine | int, value: str) -> None:
        self.store(value, self.column(f"%{base}", row))

    def input(self, base: str, row: Affine | int) -> str:
        return self.read(self.column(f"%{base}", row))

    def step_total(self) -> str:
        return self.spread(self(f"sitofp i64 %T to {self.real}"))

    def datum(self, k: int, t: str) -> str:
        if self.per_sample:
            return self.read(self.in_step("%data", k, t))
        return self.spread(
            self.read_number(self(f"getelementptr {self.real}, ptr %data, i64 {self.row(k, t)}"))
        )

    def row(self, k: int, t: str) -> str:
        """Return the number of step t in row k of an array of steps."""
        return self(f"add i64 {self(f'mul i64 %T, {k}')}, {t}")

    def in_step(self, base: str, k: int, t: str) -> str:
        """Return the place of row k in a step of each sample's array."""
        at = self(f"add i64 {self(f'mul i64 {self.row(k, t)}, %stride')}, %first")
        return self(f"getelementptr {self.real}, ptr {base}, i64 {at}")

    def hand_out(self, loop: ProgramLoop, t: str, env: dict) -> None:
        """Write the step output of this step."""
        summed = self.low.program.by_data and not self.per_sample
        wide = summed and self.low.precise is not None
        for k, e in enumerate(loop.each):
            value = self.value(e, env)
            if wide:
                value = self.widen(value)
            with self.typed(wide):
                if summed:
                    place = self(f"getelementptr {self.T}, ptr %steps, i64 {self.row(k, t)}")
                    value = self.add(self.read(place), value)
                else:
                    place = self.in_step("%steps", k, t)
                self.store(value, place)

    def on_tape(self, n: int, loop: ProgramLoop, t: str) -> str:
        """Return the place of step t of loop n; a step without room shares the place of the last."""
        if self.low.overruns and n in self.low.counted:
            last = self(f"sub i64 {self.room(n)}, 1")
            t = self(f"select i1 {self(f'icmp slt i64 {t}, {last}')}, i64 {t}, i64 {last}")
        known = n in self.low.recalled
        at = self(self.opaque(self(f"mul i64 {t}, {self.low.offsets(loop)[-1] + known}")))
        base = self(f"load ptr, ptr %base{n}, align 8") if known else self.region_of(n)
        return self(f"getelementptr {self.T}, ptr {base}, i64 {at}")

    # --- code ---

    def instruction(self, op: str, args: tuple, x: list) -> str:
        if op in self.often:
            return self.call_function(op, *x)
        return elementary.emit_operation(self, op, *x, truths=self.g.boolean(args[-1]))

    def one(self) -> str:
        """Return 1.0 hidden from the compiler, which would turn a multiply-add by 1.0 back into a sum."""
        return self.spread(
            self(f'call {self.real} asm "", "=x,0"({self.real} {Builder(1, self.bits).c(1.0)})')
        )

    def trips(self, n: int, loop: ProgramLoop, env: dict) -> str:
        """Return the number of steps that loop n takes in this block."""
        if loop.data:
            return "%T"
        label = self.low.bodies[n].label
        if loop.of is not None:
            return self(f"load i64, ptr %trips{self.low.bodies[self.low.bodies[n].source].label}, align 8")
        steps = self.value(loop.steps, env)
        if self.W > 1:
            steps = self(f"call {self.real} @llvm.vector.reduce.fmax.{self.suffix}({self.T} {steps})")
        one = self.with_lanes(1)
        low, high = one.c(0.0), one.c(2.0**31)
        steps = one.select(one.gt(steps, low), steps, low)  # `low` for a nan
        steps = one.select(one.compare("lt", steps, high), steps, high)
        whole = self(f"fptosi {self.real} {steps} to i64")
        more = self(f"fcmp ogt {self.real} {steps}, {self(f'sitofp i64 {whole} to {self.real}')}")
        whole = self(f"add i64 {whole}, {self(f'zext i1 {more} to i64')}")
        if loop.stored:
            wanted = self(f"getelementptr i64, ptr %needed, i64 {n}")
            old = self(f"load i64, ptr {wanted}, align 8")
            most = self(f"select i1 {self(f'icmp sgt i64 {whole}, {old}')}, i64 {whole}, i64 {old}")
            self.lines.append(f"  store i64 {most}, ptr {wanted}, align 8")
            if not self.low.overruns:
                room = self.room(n)
                whole = self(f"select i1 {self(f'icmp slt i64 {whole}, {room}')}, i64 {whole}, i64 {room}")
        self.lines.append(f"  store i64 {whole}, ptr %trips{label}, align 8")
        return whole

    def loop(self, n: int, env: dict) -> None:
        body = self.low.bodies[n]
        loop = body.loop
        g = self.g
        shapes, sum_shapes = [g.shape[c] for c in loop.carry], [g.shape[s] for s in loop.sums]
        chunked = loop.data and bool(loop.sums)
        wide = self.low.sums_wide(loop)
        carry = [self.home((n, c)) if g.shape[c] else self.slot() for c in loop.carry]
        with self.typed(wide):
            totals = [self.home((n, s)) if g.shape[s] else self.slot() for s in loop.sums]
            sums = totals
            if chunked:
                sums = [
                    self.home(("chunk", n, k)) if shape else self.slot() for k, shape in enumerate(sum_shapes)
                ]
        k = next(self.labels)
        self.begin_records(n)
        if loop.of is None and not loop.data:
            self.slots.append(f"  %trips{body.label} = alloca i64, align 8")
        if n in self.low.recalled:
            self.recall(n, carry, k)
        if not self.phase or n not in self.low.recalled:
            self.run_loop(n, env, carry, sums, totals, k)
        env.update(zip(loop.final, self.kept(carry, shapes), strict=True))
        with self.typed(wide):
            env.update(zip(loop.sums, self.kept(totals, sum_shapes), strict=True))
        again = self.recorded(n)
        if again is not None:
            self.end_record(n, body.label, again, env)
        if n in self.low.recalled:
            self.end_recall(n)

    def run_loop(self, n: int, env: dict, carry: list, sums: list, totals: list, k: int) -> None:
        """Write the loop itself, from its start."""
        body, g = self.low.bodies[n], self.g
        loop, wide = body.loop, self.low.sums_wide(body.loop)
        shapes, sum_shapes = [g.shape[c] for c in loop.carry], [g.shape[s] for s in loop.sums]
        for place, shape, start in zip(carry, shapes, loop.start, strict=True):
            self.keep(place, shape, start, env)
        with self.typed(wide):
            for place, shape in zip(totals, sum_shapes, strict=True):
                self.keep(place, shape, g.zero, env)
        trips = self.trips(n, loop, env)
        self.unit = self.one() if balance(body) and not wide else ""
        self.chunks(n, env, carry, sums, totals, trips, k)

    def chunks(self, n: int, env: dict, carry: list, sums: list, totals: list, trips: str, k: int) -> None:
        """The trips of a loop, in chunks if data are added up: then `sums` are those of one chunk."""
        body, g = self.low.bodies[n], self.g
        loop = body.loop
        chunked, wide = sums is not totals, self.low.sums_wide(loop)
        sum_shapes = [g.shape[s] for s in loop.sums]
        outer, inner = self.slot("i64"), self.slot("i64")
        line = self.lines.append
        line(f"  store i64 0, ptr {outer}\n  br label %chunk{k}\nchunk{k}:")
        begin = self(f"load i64, ptr {outer}")
        line(
            f"  {'%more' + str(k)} = icmp slt i64 {begin}, {trips}\n  br i1 %more{k}, label %enter{k}, "
            f"label %after{k}\nenter{k}:"
        )
        end = trips
        if chunked:
            end = self(f"add i64 {begin}, {CHUNK}")
            end = self(f"select i1 {self(f'icmp slt i64 {end}, {trips}')}, i64 {end}, i64 {trips}")
            with self.typed(wide):
                for place, shape in zip(sums, sum_shapes, strict=True):
                    self.keep(place, shape, g.zero, env)
        line(f"  store i64 {begin}, ptr {inner}\n  br label %step{k}\nstep{k}:")
        u = self(f"load i64, ptr {inner}")
        part, self.part = self.part, n
        self.step(n, env, carry, sums, u, trips, k)
        self.part = part
        following = self(f"add i64 {u}, 1")
        line(f"  store i64 {following}, ptr {inner}")
        stop = self(f"icmp sge i64 {following}, {end}")
        if loop.active is not None:
            line(f"  store i64 {following}, ptr %trips{body.label}")
        line(f"  br i1 {stop}, label %close{k}, label %step{k}\nclose{k}:")
        if chunked:
            with self.typed(wide):
                for place, total, shape in zip(sums, totals, sum_shapes, strict=True):
                    if shape:
                        self.accumulate(total, shape, [lambda index: self.load(place, index[0])])
                    else:
                        self.store(self.add(self.read(total), self.read(place)), total)
        line(f"  store i64 {end}, ptr {outer}\n  br label %chunk{k}\nafter{k}:")

    def kept(self, places: list, shapes: list) -> list:
        """Load the numbers in these places; blocks stay where they are."""
        return [place if shape else self.read(place) for place, shape in zip(places, shapes, strict=True)]

    def keep(self, place, shape: tuple, node: int, env: dict) -> None:
        if shape:
            self.filled_with(place, shape, node, env)
        else:
            self.store(self.value(node, env), place)

    def step(self, n: int, outer: dict, carry: list, sums: list, u: str, trips: str, label: int) -> None:
        """Write one step of the loop with this label."""
        body, env = self.low.bodies[n], dict(outer)
        loop = body.loop
        t = u if loop.of is None else self(f"sub i64 {self(f'sub i64 {trips}, 1')}, {u}")
        env.update(zip(loop.carry, self.kept(carry, [self.g.shape[c] for c in loop.carry]), strict=True))
        again = self.recorded(n)
        if again is not None:
            self.record(n, again, t, again.carry, env)
        place = self.on_tape(n, loop, t) if loop.stored else ""
        for k, c in zip(self.low.offsets(loop), loop.carry if loop.stored else (), strict=False):
            self.stored_at(place, k, self.g.shape[c], c, env)
        self.load_step(body, t, env)
        if loop.active is None:
            self.region(body.sections, body.inner, env)
        else:
            m, first, rest = body.split()
            self.region([*body.sections[:m], first], body.inner[:m], env)
            self.leave(body, u, label, env)
            self.region([rest, *body.sections[m + 1 :]], body.inner[m:], env)
        for k, i in zip(self.low.offsets(loop)[len(loop.carry) :], loop.kept, strict=False):
            self.store(env[i], self.row_at(place, k))
        self.hand_out(loop, t, env)
        self.add_terms(body, sums, env)
        following = [
            (slot, self.value(x, env))
            for slot, c, x in zip(carry, loop.carry, loop.next, strict=True)
            if not self.g.shape[c]
        ]
        for slot, value in following:
            self.store(value, slot)
        self.blocks_forward(n, loop, carry, env)

    def row_at(self, place: str, k: int) -> str:
        """Return the address of row k of a step on the tape."""
        return self(f"getelementptr {self.T}, ptr {place}, i64 {k}")

    def load_step(self, body: Body, t: str, env: dict) -> None:
        """Read what a step uses: the stored carry of the loop that it sweeps back over, and its data."""
        used, source = body.used(), body.loop.of
        if body.source is not None and any(c in used for c in source.carry + source.kept):
            place = self.on_tape(body.source, source, t)
            for k, c in zip(self.low.offsets(source)[:-1], source.carry + source.kept, strict=True):
                if c in used:
                    env[c] = BlockBuffer(place, k) if self.g.shape[c] else self.read(self.row_at(place, k))
        for j in sorted(used):
            if self.g.op[j] == "in" and j not in env and body.own(self.g, j):
                kind, _, k = self.g.args[j]
                if kind == "e":
                    env[j] = self.read(self.in_step("%each", k, t))
                elif kind == "y":
                    env[j] = self.datum(k, t)
                else:
                    env[j] = self.spread(self(f"sitofp i64 {t} to {self.real}"))

    def add_terms(self, body: Body, sums: list, env: dict) -> None:
        """Add the terms of a step, numbers or products, to its sums."""
        loop, wide = body.loop, self.low.sums_wide(body.loop)
        moved = 0 if wide else balance(body)
        for slot, s, term in zip(sums, loop.sums, body.terms, strict=True):
            if self.g.shape[s]:
                self.accumulate_term(slot, self.g.shape[s], term, env)
                continue
            x = [self.value(j, env) for j in term]
            if wide:
                x = [self.widen(v) for v in x]
            if len(x) == 1 and moved:
                moved -= 1
                x.append(self.unit)
            with self.typed(wide):
                self.store(
                    self.fma(*x, self.read(slot)) if len(x) == 2 else self.add(self.read(slot), x[0]), slot
                )

    def leave(self, body: Body, u: str, label: int, env: dict) -> None:
        """Leave a while loop if no lane continues."""
        going = self.value(body.loop.active, env)
        going = (
            going if self.W == 1 else self(f"call i1 @llvm.vector.reduce.or.v{self.W}i1({self.B} {going})")
        )
        self.lines.append(
            f"  store i64 {u}, ptr %trips{body.label}\n  br i1 {going}, label %on{label}, label "
            f"%close{label}\non{label}:"
        )


def balance(body: Body) -> int:
    """Return how many sums s + x to write as 1 x + s, so that adders and multipliers are equally busy.

    The bits are the same. This applies only to short steps, where sums are much of the work."""
    products = ("fma", "fms", "fnma", "mul")
    if body.blocks or body.inner:
        return 0
    if len(body.code) > 24 or any(op not in ("add", "sub", *products) for _, op, _ in body.code):
        return 0
    heavy = sum(op in products for _, op, _ in body.code) + sum(len(t) == 2 for t in body.terms)
    return max((len(body.code) + len(body.terms) - 2 * heavy) // 2, 0)


def emit(
    low: LoweredProgram,
    width: int,
    bits: int,
    per_sample: bool,
    target: str,
    given: bytearray | None = None,
    phase: str = "",
) -> str:
    """Return the LLVM text of the program, or of a phase of it, for `width` lanes of `bits` bits; `LlvmText`
    explains `given`."""
    return LlvmText(low, width, bits, per_sample, given, phase).text("kernel", target)
