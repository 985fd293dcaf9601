"""A lowered program as CUDA C: each thread computes one sample and strides over the batch.

    kernel(inputs..., data, [step input], outputs..., [step output], batch, T [, tape, size, start and room of
    each stored loop] [, needed])

Arrays are (rows, batch); arrays of steps are (rows, T, batch). A step output that is summed over samples is
(rows, T, slots), and each thread adds to it.

The tape is [warp][row][lane] with `size` rows. First come the totals of sums, if there are many. Then comes
the arena of large matrices (`arena`). Then comes [step][component] for each loop, from row `start` on, for
`room` steps. A warp is one of threads and not of samples. The size of the tape therefore depends on the
launch and not on the batch. Components lie a constant apart, so one register addresses them all. If only the
run tells the number of steps of a sample, the largest one is written to `needed`. All indices have 64 bits.
`cuda_tape` stores the steps.

Invariant: CPU and GPU give the same bits. The order of all arithmetic is that of the CPU kernel, and
multiply-add is explicit. The source must be compiled with -fmad=false. (A float32 program that CuPy compiles
flushes denormal numbers.)"""

from dataclasses import dataclass, replace

import numpy as np

from ..._core.errors import ArgumentError
from ..graph.nodes import Graph
from ..graph.program import ProgramLoop, carried
from .builder import Affine, BlockAccess, BlockBuffer
from .cuda_builder import FOUR, WARP, CudaBuilder, functions_text, type_text
from .cuda_tape import TapeCode
from .elementary import emit_operation, identifier, is_called_function
from .lower import CHUNK, Body, LoweredProgram
from .schedule import Item, peak, schedule_order
from .walk import ProgramWalk

THREADS = 128  # in a block, at most: at 255 registers each, two blocks are resident
STEP_REGISTERS = 160  # registers for the values of a step; above this the step is reordered
FEW_INSTRUCTIONS = 24  # longest step, in instructions, that loads its data by four
REGISTERS = 255  # of a thread; few kernels below this estimate spill, and little
MANY_SUMS = 8  # sums above which the totals lie on the tape, read once a chunk, to save registers


@dataclass(frozen=True)
class KernelSignature:
    """The parameters of an emitted kernel in order, as (name, C type, role).

    It also holds the rows of the outputs, the rows of totals on the tape, and the largest number of threads
    in a block."""

    parameters: tuple
    outputs: tuple
    totals: int = 0
    threads: int = THREADS

    def roles(self) -> list[str]:
        return [role for _, _, role in self.parameters]


def program_head(low: LoweredProgram, bits: int) -> str:
    """Return the text that precedes the kernels of a program."""
    text = type_text(bits) + functions_text(low.functions(), bits)
    # the same names for float64
    return text if low.precise is None else text + functions_text(low.functions(True), 64, True)


class CudaText(ProgramWalk, TapeCode, CudaBuilder):
    """The text of one program."""

    typed_by = ("bits", "f", "L", "real", "word")

    def __init__(self, low: LoweredProgram, bits: int, per_sample: bool, every: int = 1):
        super().__init__(bits)
        self.low, self.per_sample, self.every, self.own = low, per_sample, every, bits
        self.sum = "real" if low.precise is None else "double"  # the type of sums
        self.g: Graph = low.program.g
        self.totals = {
            n: len(b.loop.sums)
            for n, b in enumerate(low.bodies)
            if b.loop.data and len(b.loop.sums) >= MANY_SUMS and not any(self.g.shape[s] for s in b.loop.sums)
        }
        self.arena, self.wide_arena = "arena", "wide_arena"
        self.globals: dict = {}
        self.routines: dict = {}

    def text(self, entry: str) -> tuple[str, KernelSignature]:
        env: dict = {}
        parameters = [*self.inputs(), *self.outputs(), ("batch", "i64", "batch"), ("T", "i64", "steps")]
        stored = [n for n, b in enumerate(self.low.bodies) if b.loop.stored]
        if self.totals or stored or self.low.arena:
            parameters += [("tape", "real*", "tape"), ("size", "i64", "size")]
            parameters += [(name, "i64", name) for n in stored for name in (f"start{n}", f"room{n}")]
            warp = f"((i64)blockIdx.x * blockDim.x + threadIdx.x) / {WARP}"
            self.line(f"real* const mine = tape + {warp} * size * {WARP} + threadIdx.x % {WARP};")
            for n in stored if self.every > 1 else ():
                c, carry = self.every, len(self.low.loops[n].carry)
                self.line(f"const i64 segment{n} = start{n} + (room{n} + {c - 1}) / {c} * {carry};")
        wide = self.low.precise is not None
        if self.totals:  # volatile, or the compiler keeps them in registers
            self.line(f"volatile {self.sum}* const kept = {self.as_double('mine') if wide else 'mine'};")
        if self.low.arena:
            self.line(f"real* const arena = mine + {self.total_rows * WARP};")
            if wide:
                self.line(f"double* const wide_arena = {self.as_double('arena')};")
        if self.low.counted:
            parameters += [("needed", "i64*", "needed")]
        self.begin()
        self.load_inputs(env)
        self.region(self.low.sections, self.low.outer, env)
        self.store_outputs(env)
        text, signature = self.finished(entry, tuple(parameters), any(loop.carry for loop in self.low.loops))
        made = "".join([text for _, text in (*self.globals.values(), *self.routines.values())])
        return self.head() + made + text, signature

    def head(self) -> str:
        """Return the text that precedes the kernels."""
        return program_head(self.low, self.own) + FOUR * any(
            self.fours(n) for n in range(len(self.low.bodies))
        )

    @property
    def total_rows(self) -> int:
        """Return the number of tape rows of the totals."""
        return sum(self.totals.values()) * (1 if self.low.precise is None else 2)

    def as_double(self, pointer: str) -> str:
        """Convert the place of this lane among float32 numbers to that among float64; a row has two of
        these."""
        return f"(double*)({pointer} - threadIdx.x % {WARP}) + threadIdx.x % {WARP}"

    def builder(self, bits: int) -> CudaBuilder:
        return CudaBuilder(bits, bits > self.own)

    def single(self, value: str) -> BlockBuffer:
        return replace(super().single(value), wide=self.bits > self.own)

    def inputs(self) -> list[tuple]:
        p = self.low.program
        arrays = [(f"in{k}", "const real*", "input") for k in range(len(p.inputs))]
        return [
            *arrays,
            ("data", "const real*", "data"),
            *[("each", "const real*", "step input")] * bool(p.streams),
        ]

    def outputs(self) -> list[tuple]:
        p = self.low.program
        kinds = ["double*" if keep else "real*" for keep in self.low.precise or (False,) * len(p.groups)]
        arrays = [(f"out{k}", kind, "output") for k, kind in enumerate(kinds)]
        return [
            *arrays,
            *[("steps", "real*" if self.per_sample else f"{self.sum}*", "step output")] * bool(p.step_rows),
        ]

    def begin(self, work: str = "batch", each: str = "s") -> None:
        """Write the loop of a thread over its work."""
        self.line(f"const i64 slots = (i64)gridDim.x * blockDim.x, work = {work};")
        self.line(
            f"for (i64 {each} = (i64)blockIdx.x * blockDim.x + threadIdx.x; {each} < work; {each} += slots) "
            f"{{"
        )
        self.indent = "    "

    def column(self, base: str, row: Affine | int) -> str:
        at = f"{row}LL" if isinstance(row, int) else f"({self.count(row)})"
        return f"{base}[{at} * batch + s]"

    def store_output(self, base: str, row: Affine | int, value: str) -> None:
        self.line(f"{self.column(base, row)} = {value};")

    def input(self, base: str, row: Affine | int) -> str:
        return self.let(self.column(base, row))

    def step_total(self) -> str:
        return self.let(f"({self.real})T")

    def finished(self, entry: str, parameters: tuple, recursion: bool = False) -> tuple[str, KernelSignature]:
        """Return the function of all lines so far, and its signature.

        The launch bounds of a recursion ask for two blocks on a multiprocessor. Otherwise the compiler spills
        small kernels of 64 registers. For a plain sum the same bounds would double its registers."""
        types = ", ".join(
            f"{kind}{' __restrict__' if kind.endswith('*') else ''} {name}" for name, kind, _ in parameters
        )
        bounds, body = f"{THREADS}, 2" if recursion else str(THREADS), "\n".join(self.lines)
        text = (
            f'extern "C" __global__ void __launch_bounds__({bounds}) {entry}({types}) {{\n{body}\n  }}\n}}\n'
        )
        rows = tuple(self.low.program.rows_of(k) for k in range(len(self.low.program.groups)))
        return text, KernelSignature(parameters, rows, self.total_rows)

    def constant_text(self, values: np.ndarray, k: int) -> tuple[str, str]:
        return (
            f"k{k}",
            f"static __device__ const {self.real} k{k}[] = {{{', '.join([self.c(x) for x in values])}}};\n",
        )

    def routine_text(self, name: str, b, count: int) -> tuple[str, str]:
        kinds = [f"{b.real}* __restrict__", *[f"const {b.real}*"] * (count - 1)]
        head, body = ", ".join(f"{kind} p{n}" for n, kind in enumerate(kinds)), "\n".join(b.lines)
        text = f"static __device__ __attribute__((noinline)) void {name}({head}) {{\n{body}\n}}\n"
        return name, text

    def call_routine(self, name: str, accesses: list[BlockAccess]) -> None:
        self.line(f"{name}({', '.join([f'&{self.place_in(a.buffer, a.offset)}' for a in accesses])});")

    def instruction(self, op: str, args: tuple, x: list) -> str:
        if is_called_function(op):
            return self.let(f"own_{identifier(op)}({', '.join(x)})")
        return emit_operation(self, op, *x)

    def trips(self, n: int, loop: ProgramLoop, env: dict) -> str:
        if loop.data:
            return "T"
        if loop.of is not None:
            return f"trips{self.low.bodies[self.low.bodies[n].source].label}"
        steps = self.let(
            f"fmin{self.f}(fmax{self.f}({self.value(loop.steps, env)}, {self.c(0.0)}), {self.c(2.0**31)})"
        )
        name = f"trips{self.low.bodies[n].label}"
        self.line(f"i64 {name} = (i64){steps};")
        self.line(f"if ({steps} > (real){name}) ++{name};")
        if n in self.low.counted:
            more = f"if ({name} > room{n}) " if self.low.overruns else ""  # an outer loop asks in each step
            self.line(
                f"{more}atomicMax((unsigned long long*)needed + {self.low.counted.index(n)}, (unsigned long "
                f"long){name});"
            )
        if loop.stored and not self.low.overruns:
            self.line(f"if ({name} > room{n}) {name} = room{n};")
        return name

    def loop(self, n: int, env: dict) -> None:
        body = self.low.bodies[n]
        loop = body.loop
        g = self.g
        shapes, sum_shapes = [g.shape[c] for c in loop.carry], [g.shape[s] for s in loop.sums]
        chunked, wide = loop.data and bool(loop.sums), self.low.sums_wide(loop)
        label = body.label
        carry = [self.home((n, c)) if g.shape[c] else f"c{label}_{k}" for k, c in enumerate(loop.carry)]
        totals: list = [self.home((n, s)) if g.shape[s] else f"t{label}_{k}" for k, s in enumerate(loop.sums)]
        if n in self.totals:
            first = sum(rows for m, rows in self.totals.items() if m < n)
            totals = [f"kept[{(first + k) * WARP}]" for k in range(len(totals))]
        sums: list = totals
        if chunked:
            sums = [
                self.home(("chunk", n, k)) if shape else f"s{label}_{k}" for k, shape in enumerate(sum_shapes)
            ]
        crowded = self.crowded(n)
        if crowded:
            self.line(f"volatile {self.sum} held{label}[{len(sums)}];")
            sums = [f"held{label}[{k}]" for k in range(len(sums))]
        for place, shape, start in zip(carry, shapes, loop.start, strict=True):
            self.keep(place, shape, start, env)
        for place, shape in zip(totals, sum_shapes, strict=True):
            if n in self.totals:
                self.line(f"{place} = 0;")
            else:
                with self.typed(wide):
                    self.keep(place, shape, g.zero, env)
        trips = self.trips(n, loop, env)
        outer, u = f"o{label}", f"u{label}"
        if chunked:
            self.line(f"for (i64 {outer} = 0; {outer} < {trips}; {outer} += {CHUNK}) {{")
            self.line(f"const i64 e{label} = {outer} + {CHUNK} < {trips} ? {outer} + {CHUNK} : {trips};")
            with self.typed(wide):
                for place, shape in zip(sums, sum_shapes, strict=True):
                    if crowded:
                        self.line(f"{place} = 0;")
                    else:
                        self.keep(place, shape, g.zero, env)
            self.steps(n, env, carry, sums, u, trips, (outer, f"e{label}"))
        else:
            self.steps(n, env, carry, sums, u, trips, ("0", trips))
        if chunked:
            for place, total, shape in zip(sums, totals, sum_shapes, strict=True):
                if shape:
                    with self.typed(wide):
                        self.accumulate(total, shape, [lambda index: self.load(place, index[0])])
                else:
                    self.line(f"{total} = {total} + {place};")
            self.line("}")
        env.update(zip(loop.final, carry, strict=True))
        with self.typed(wide):
            env.update(
                zip(loop.sums, [self.let(x) for x in totals] if n in self.totals else totals, strict=True)
            )

    def keep(self, place, shape: tuple, node: int, env: dict) -> None:
        """Write the first value of a carry or sum."""
        if shape:
            self.filled_with(place, shape, node, env)
        else:
            self.line(f"{self.real} {place} = {self.value(node, env)};")

    def steps(
        self, n: int, env: dict, carry: list, sums: list, u: str, trips: str, cut: tuple[str, str]
    ) -> None:
        """Write the loop over the steps from cut[0] up to cut[1]; unrolled by four where data are loaded by
        four."""
        start, rows = f"i64 {u} = {cut[0]}", self.fours(n)
        before = self.indent
        if rows:
            self.line(f"{start};")
            start, whole = "", "T % 4 == 0 && " if rows != [0] else ""
            self.line(f"if ({whole}(unsigned long long)data % 16 == 0) {{")
            self.line("#pragma unroll 1")  # unrolling further takes more registers and spills
            self.line(f"for (; {u} + 4 <= {cut[1]}; {u} += 4) {{")
            self.indent += "  "
            for k in rows:
                self.line(f"const Four q{k} = *(const Four*)(data + ({k}LL * T + {u}));")
            for turn in range(4):
                self.line("{")
                self.step(n, env, carry, sums, f"({u} + {turn})", trips, {k: f"q{k}.v[{turn}]" for k in rows})
                self.line("}")
            self.indent = before
            self.line("}")
            self.line("}")
        self.line(f"for ({start}; {u} < {cut[1]}; ++{u}) {{")
        self.indent += "  "
        part, self.part = self.part, n
        self.step(n, env, carry, sums, u, trips)
        self.part = part
        self.indent = before
        self.line("}")

    def fours(self, n: int) -> list[int]:
        """Return the rows of the data that a step of loop n loads by four, for data that samples share.

        This applies to short float32 steps without a carry. Their loads would take as long as their
        arithmetic. In float64 they do not."""
        body = self.low.bodies[n]
        loop = body.loop
        plain = (
            loop.steps == "data"
            and loop.of is None
            and not (loop.carry or loop.each or body.blocks or body.inner)
        )
        if (
            self.own != 32
            or self.per_sample
            or not plain
            or len(body.code) > FEW_INSTRUCTIONS
            or any(is_called_function(op) for _, op, _ in body.code)
        ):
            return []
        return sorted(
            {self.g.args[j][2] for j in body.used() if self.g.op[j] == "in" and self.g.args[j][0] == "y"}
        )

    def step(
        self, n: int, outer: dict, carry: list, sums: list, u: str, trips: str, four: dict | None = None
    ) -> None:
        """Write one step; `four` holds the places of data that were loaded before, by row."""
        body, env = self.low.bodies[n], dict(outer)
        loop = body.loop
        t = u if loop.of is None else self.let(f"{trips} - 1 - {u}", "i64")
        env.update(zip(loop.carry, carry, strict=True))
        if loop.stored:
            self.store(n, loop, self.taped(n, t), carry, env)
        if self.every > 1 and body.source is not None and loop.of.stored:
            self.segment(body.source, outer, u, self.taped(body.source, t))
        work, sections = self.loads(n, t, env, four), body.sections
        if loop.active is not None:
            m, first, rest = body.split()
            self.begun(body, work, [*sections[:m], first], u, env)
            sections = [[]] * m + [rest, *sections[m + 1 :]]
        for k, code in enumerate(sections):
            work += [
                (i, args, lambda i=i, op=op, args=args: self.straight([(i, op, args)], env))
                for i, op, args in code
            ]
            if k < len(body.inner) and (loop.active is None or k >= m):
                work.append((("loop", k), (), lambda k=k: self.loop(body.inner[k].number, env)))
        work += [
            (("each", k), (e,), lambda k=k, e=e: self.hand_out(k, t, self.value(e, env)))
            for k, e in enumerate(loop.each)
        ]
        for k, (name, s, term) in enumerate(zip(sums, loop.sums, body.terms, strict=True)):
            work.append(
                (("sum", k), term, lambda name=name, s=s, term=term: self.take_up(name, s, term, env))
            )
        for k in range(len(work)) if body.blocks or body.inner else self.order(body, work):
            work[k][2]()
        values = zip(carry, loop.carry, loop.next, strict=True)  # all, before the carry is reassigned
        following = [(name, self.let(self.value(x, env))) for name, c, x in values if not self.g.shape[c]]
        for name, value in following:
            self.line(f"{name} = {value};")
        self.blocks_forward(n, loop, carry, env)

    def begun(self, body: Body, loads: list, sections: list, u: str, env: dict) -> None:
        """Write the step of a while loop up to its exit, and remove what this reads from `loads`."""
        read = {j for code in sections for _, _, args in code for j in args} | {body.loop.active}
        for item in [x for x in loads if body.inner or body.blocks or x[0] in read]:
            loads.remove(item)
            item[2]()
        self.region(sections, body.inner[: len(sections) - 1], env)
        self.line(f"if (!{self.value(body.loop.active, env)}) {{ trips{body.label} = {u}; break; }}")

    def order(self, body: Body, work: list) -> list[int]:
        items, fixed = self.items(body, work)
        return schedule_order(items, carried(body.loop), STEP_REGISTERS * 32 // self.own - fixed)

    def items(self, body: Body, work: list) -> tuple[list[Item], int]:
        """Return the values that a step computes, to be ordered, and the number of others alive
        throughout."""
        varying = {name for name, *_ in work} | set(body.loop.carry)
        items = [
            (name, tuple(x for x in dict.fromkeys(operands) if x in varying)) for name, operands, *_ in work
        ]
        return items, len(body.terms) + sum(
            x not in varying and self.g.op[x] not in ("const", "bool") for x in body.used()
        )

    def crowded(self, n: int) -> bool:
        """Return whether a step of loop n needs more registers than there are.

        The compiler would then spill values of its own choice. Sums of a chunk in memory cause half of the
        traffic."""
        if n not in self.totals:
            return False
        body, g = self.low.bodies[n], self.g
        work = [
            (j, ()) for j in sorted(body.used()) if g.op[j] == "in" and g.mask[j] and j not in body.loop.carry
        ]
        work += [(i, args) for i, _, args in body.code] + [
            (("sum", k), term) for k, term in enumerate(body.terms)
        ]
        items, fixed = self.items(body, work)
        alive = fixed + peak(items, self.order(body, work), carried(body.loop))
        return alive * self.own // 32 + len(body.terms) * (self.low.precise is not None) > REGISTERS

    def loads(self, n: int, t: str, env: dict, four: dict | None = None) -> list[tuple]:
        """Return the loads of a step as (node, (), the function that writes the load)."""
        body = self.low.bodies[n]
        used, places = body.used(), {}
        if body.source is not None:
            m, source = body.source, body.loop.of
            stored = [
                (k, c) for k, c in zip(self.low.offsets(source)[:-1], source.carry, strict=True) if c in used
            ]
            at = self.taped(m, t) if stored else t
            places = {c: self.stored_at(m, source, at, k) for k, c in stored}
        for j in sorted(used):
            if self.g.op[j] == "in" and j not in env and j not in places and body.own(self.g, j):
                kind, _, k = self.g.args[j]
                at = f"({k}LL * T + {t})" + (" * batch + s" if self.per_sample or kind == "e" else "")
                places[j] = f"{'data' if kind == 'y' else 'each'}[{at}]" if kind != "i" else f"(real){t}"
                if four is not None and kind == "y":
                    places[j] = four[k]

        def load(j):
            if self.g.shape[j]:
                name = f"b{next(self.fresh)}"
                self.line(f"real* const {name} = &{places[j]};")
                env[j] = BlockBuffer(name)
            else:
                env[j] = self.let(places[j])

        return [(j, (), lambda j=j: load(j)) for j in places]

    def hand_out(self, k: int, t: str, value: str) -> None:
        """Write a step output; each sample has its own place, or each thread adds to one."""
        summed = self.low.program.by_data and not self.per_sample
        place = f"steps[({k}LL * T + {t}) * {'slots + (i64)blockIdx.x * blockDim.x + threadIdx.x' if summed else 'batch + s'}]"
        self.line(f"{place} = {place + ' + ' if summed else ''}{value};")

    def take_up(self, name, s: int, term: tuple, env: dict) -> None:
        """Add a term, a number or a product, to a sum."""
        if self.g.shape[s]:
            self.accumulate_term(name, self.g.shape[s], term, env)
            return
        x, f = [self.value(j, env) for j in term], self.f
        if s in self.low.wide:
            x, f = [f"(double){v}" for v in x], ""
        self.line(
            f"{name} = fma{f}({x[0]}, {x[1]}, {name});" if len(x) == 2 else f"{name} = {name} + {x[0]};"
        )


def bits_for(program: LoweredProgram, dtype: np.dtype | type) -> int:
    """Return the bits of the dtype; raise ArgumentError if the program was lowered for another dtype."""
    if program.precise is not None and np.dtype(dtype) != np.float32:
        raise ArgumentError(
            f"{program.name} was lowered for float32 with sums of float64: emit it for np.float32, not "
            f"{np.dtype(dtype)}"
        )
    return 8 * np.dtype(dtype).itemsize


def emit_cuda(
    program: LoweredProgram,
    dtype: np.dtype | type = np.float64,
    per_sample: bool = False,
    entry: str = "kernel",
    every: int = 1,
) -> tuple[str, str, KernelSignature]:
    """Write a lowered program as CUDA C.

    Parameters
    ----------
    program : Lowered
        What ``k.lowered(p, d)`` of a kernel returns.
    dtype : dtype, default float64
        float64 or float32.
    per_sample : bool, default False
        Whether each sample has data of its own.
    entry : str, default 'kernel'
        The name of the C function.
    every : int, default 1
        For a recursion with a backward sweep: the carry of one step in `every` is stored, and the others are
        computed again.

    Returns
    -------
    source : str
        The CUDA C text.
    entry : str
        The name of the C function.
    signature : Signature
        Its parameters.

    See Also
    --------
    likelihood, recursion : Kernels with a method `lowered`.

    Examples
    --------
    >>> import tapegrad as tg
    >>> k = tg.kernels.likelihood(lambda theta, x: -((x - theta[0]) ** 2))
    >>> source, entry, signature = tg.kernels.emit_cuda(k.lowered(1, 0))
    >>> [name for name, _, _ in signature.parameters]
    ['in0', 'data', 'out0', 'out1', 'batch', 'T']
    """
    source, signature = CudaText(program, bits_for(program, dtype), per_sample, every).text(entry)
    return source, entry, signature
