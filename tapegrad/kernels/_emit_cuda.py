"""A lowered program as CUDA C: one sample in each thread, blocks of threads striding over the samples.

    kernel(inputs..., data, outputs..., tape, batch, T, caps, needed)

Arrays are (rows, batch); the tape is the arena of large matrices (_block_plan.py) and [loop][step][component], each element
[slot], slot being the number of the thread and not of the sample, so that its size depends on the launch and not on the batch.
Indices are 64 bits wide everywhere.  The order of all arithmetic is that of the CPU kernel, multiply-add is spelled out, and the
source is to be compiled with -fmad=false: then both give the same bits (float32 on a device flushes denormal numbers if compiled
by CuPy)."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from . import _math
from ._block_code import Access, Affine, BlockCode, Buffer
from ._blocks import BLOCK_OPS, size_of
from ._graph import COMPARE, Graph
from ._lower import CHUNK, Lowered
from ._program import Loop

HEAD = """typedef {real} real;
typedef {integer} whole;
typedef long long i64;
static __device__ __forceinline__ whole bits_of(real x) {{ union {{ real r; whole i; }} u; u.r = x; return u.i; }}
static __device__ __forceinline__ real real_of(whole x) {{ union {{ real r; whole i; }} u; u.i = x; return u.r; }}
static __device__ __forceinline__ whole shift_right(whole x, int n) {{ return (whole)((unsigned {integer})x >> n); }}
static __device__ __forceinline__ whole shift_left(whole x, int n) {{ return (whole)((unsigned {integer})x << n); }}
"""


@dataclass(frozen=True)
class Signature:
    """The parameters of an emitted kernel in order: (name, C type, role), and the threads that a block may have."""

    parameters: tuple
    outputs: tuple
    threads: int = 128


class Writer:
    """C statements, one temporary for each operation; the operations that _math.py writes its functions in."""

    def __init__(self, bits: int):
        self.bits = bits
        self.f = "f" if bits == 32 else ""
        self.lines: list[str] = []
        self.fresh = itertools.count()
        self.indent = "  "

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def let(self, text: str, kind: str = "real") -> str:
        name = f"x{next(self.fresh)}"
        self.line(f"const {kind} {name} = {text};")
        return name

    def c(self, x: float) -> str:
        x = float(np.float32(x)) if self.bits == 32 else float(x)
        if math.isnan(x):
            return "real_of(0x7ff8000000000000LL)" if self.bits == 64 else "real_of(0x7fc00000)"
        if math.isinf(x):
            text = "real_of(0x7ff0000000000000LL)" if self.bits == 64 else "real_of(0x7f800000)"
            return text if x > 0 else f"(-{text})"
        return f"({x.hex()}{self.f})"

    def add(self, a, b):
        return self.let(f"{a} + {b}")

    def sub(self, a, b):
        return self.let(f"{a} - {b}")

    def mul(self, a, b):
        return self.let(f"{a} * {b}")

    def div(self, a, b):
        return self.let(f"{a} / {b}")

    def neg(self, a):
        return self.let(f"-{a}")

    def fma(self, a, b, c):
        return self.let(f"fma{self.f}({a}, {b}, {c})")

    def fnma(self, a, b, c):
        return self.let(f"fma{self.f}(-{a}, {b}, {c})")

    def fms(self, a, b, c):
        return self.let(f"fma{self.f}({a}, {b}, -{c})")

    def rcp(self, a):
        return self.div(self.c(1.0), a)

    def floor(self, a):
        return self.let(f"floor{self.f}({a})")

    def sqrt(self, a):
        return self.let(f"sqrt{self.f}({a})")

    def abs(self, a):
        return self.let(f"fabs{self.f}({a})")

    def compare(self, op: str, a, b):
        return self.let(f"{a} {COMPARE[op]} {b}", "bool")

    def lt(self, a, b):
        return self.compare("lt", a, b)

    def gt(self, a, b):
        return self.compare("gt", a, b)

    def eq(self, a, b):
        return self.compare("eq", a, b)

    def isnan(self, a):
        return self.let(f"{a} != {a}", "bool")

    def select(self, m, a, b, kind: str = "real"):
        return self.let(f"{m} ? {a} : {b}", kind)

    def and_(self, a, b):
        return self.let(f"{a} && {b}", "bool")

    def or_(self, a, b):
        return self.let(f"{a} || {b}", "bool")

    def not_(self, a):
        return self.let(f"!{a}", "bool")

    def to_int(self, a):
        return self.let(f"(whole){a}", "whole")

    def from_int(self, a):
        return self.let(f"(real){a}")

    def to_bits(self, a):
        return self.let(f"bits_of({a})", "whole")

    def from_bits(self, a):
        return self.let(f"real_of({a})")

    def iadd(self, a, n: int):
        return self.let(f"{a} + ({n}{'LL' if self.bits == 64 else ''})", "whole")

    def iand(self, a, n: int):
        return self.let(f"{a} & {n}{'LL' if self.bits == 64 else ''}", "whole")

    def shl(self, a, n: int):
        return self.let(f"shift_left({a}, {n})", "whole")

    def shr(self, a, n: int):
        return self.let(f"shift_right({a}, {n})", "whole")

    def odd(self, a):
        return self.let(f"({a} & 1) != 0", "bool")

    def function(self, name: str, a):
        return self.let(f"own_{name}({a})")

    # --- memory, and loops for blocks ---

    def cell(self, value: str) -> str:
        name = f"m{next(self.fresh)}"
        self.line(f"real {name} = {value};")
        return name

    def get(self, cell: str) -> str:
        return self.let(cell)

    def set(self, cell: str, value: str) -> None:
        self.line(f"{cell} = {value};")

    def single(self, value: str) -> Buffer:
        """A buffer of one element."""
        return Buffer(f"(&{self.cell(value)})")

    def count(self, x: Affine | int) -> str:
        if isinstance(x, int):
            return str(x)
        parts = [name if factor == 1 else f"{name} * {factor}" for name, factor in x.terms.items()]
        parts += [str(x.const)] if x.const or not parts else []
        return " + ".join(parts)

    def place_in(self, buffer: Buffer, at: Affine | int) -> str:
        index = self.count(at + buffer.offset)
        return f"{buffer.base}[{index}]" if buffer.constant else f"{buffer.base}[({index}) * slots]"

    def load(self, buffer: Buffer, at: Affine) -> str:
        return self.let(self.place_in(buffer, at))

    def put(self, buffer: Buffer, at: Affine, value: str) -> None:
        self.line(f"{self.place_in(buffer, at)} = {value};")

    @contextmanager
    def range(self, start: Affine | int, stop: Affine | int, step: int = 1) -> Iterator[Affine]:
        """A loop; its variable counts from start to below stop."""
        if isinstance(start, int) and isinstance(stop, int) and start < stop <= start + step:
            yield Affine(start)
            return
        i, before = f"i{next(self.fresh)}", self.indent
        self.line("#pragma unroll 1")  # whole matrices unrolled compile in minutes and spill
        self.line(f"for (i64 {i} = {self.count(start)}; {i} < {self.count(stop)}; {i} += {step}) {{")
        self.indent += "  "
        yield Affine(0, {i: 1})
        self.indent = before
        self.line("}")


def function(name: str, bits: int) -> str:
    """The text of exp, log, ... as a device function."""
    w = Writer(bits)
    result = _math.FUNCTIONS[name](w, "x")
    body = "\n".join(w.lines)
    return f"static __device__ __forceinline__ real own_{name}(real x) {{\n{body}\n  return {result};\n}}\n"


class Kernel(BlockCode, Writer):
    """The text of one program."""

    def __init__(self, low: Lowered, bits: int, per_sample: bool):
        super().__init__(bits)
        self.low, self.per_sample = low, per_sample
        self.g: Graph = low.program.g
        self.arena = "arena"
        self.globals: dict = {}
        self.routines: dict = {}

    def text(self, entry: str) -> tuple[str, Signature]:
        p = self.low.program
        parameters = [(f"in{k}", "const real*", "input") for k in range(len(p.inputs))] + [("data", "const real*", "data")]
        parameters += [(f"out{k}", "real*", "output") for k in range(len(p.groups))] + [("tape", "real*", "workspace")]
        parameters += [("batch", "i64", "batch"), ("T", "i64", "steps"), ("caps", "const i64*", "caps"), ("needed", "i64*", "needed")]
        env: dict = {}
        self.line("const i64 slots = (i64)gridDim.x * blockDim.x;")
        self.line("const i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x;")
        self.line("for (i64 s = slot; s < batch; s += slots) {")
        self.indent = "    "
        if self.low.arena:
            self.line("real* const arena = tape + slot;")
        self.load_inputs(env)
        for n, code in enumerate(self.low.sections):
            self.straight(code, env)
            if n < len(self.low.bodies):
                self.loop(n, env)
        for group, nodes in enumerate(p.groups):
            row = 0
            for o in nodes:
                if self.g.shape[o]:
                    for k, value in self.row_by_row(o, env):
                        self.line(f"out{group}[({self.count(k + row)}) * batch + s] = {value};")
                else:
                    self.line(f"out{group}[{row}LL * batch + s] = {self.value(o, env)};")
                row += size_of(self.g.shape[o])
        functions = sorted(self.low.functions() & set(_math.FUNCTIONS))
        head = HEAD.format(real="double" if self.bits == 64 else "float", integer="long long" if self.bits == 64 else "int")
        types = ", ".join(f"{kind}{' __restrict__' if kind.endswith('*') else ''} {name}" for name, kind, _ in parameters)
        body = "\n".join(self.lines)
        source = head + "".join(function(f, self.bits) for f in functions)
        source += "".join([text for _, text in (*self.globals.values(), *self.routines.values())])
        source += f'extern "C" __global__ void __launch_bounds__(128) {entry}({types}) {{\n{body}\n  }}\n}}\n'
        return source, Signature(tuple(parameters), tuple(p.rows_of(k) for k in range(len(p.groups))))

    def load_inputs(self, env: dict) -> None:
        g = self.g
        for node, group, k in self.low.parameters():
            if g.shape[node]:
                env[node] = self.home((None, node))
                with self.range(0, size_of(g.shape[node])) as r:
                    self.put(env[node], r, self.let(f"in{group}[({self.count(r + k)}) * batch + s]"))
            else:
                env[node] = self.let(f"in{group}[{k}LL * batch + s]")
        count = g.input("N", 0, 0)
        if count in self.low.used():
            env[count] = self.let("(real)T")

    def value(self, i: int, env: dict) -> str:
        op = self.g.op[i]
        if op == "const":
            return self.c(self.g.args[i][0])
        if op == "bool":
            return "true" if self.g.args[i][0] else "false"
        return env[i]

    def constants(self, j: int) -> Buffer:
        """A constant block as a global array."""
        if j not in self.globals:
            content = ", ".join([self.c(x) for x in self.g.numbers(j).ravel()])
            name = f"k{len(self.globals)}"
            self.globals[j] = name, f"static __device__ const real {name}[] = {{{content}}};\n"
        return Buffer(self.globals[j][0], constant=True)

    def routine(self, op: str, code: Callable, accesses: list[Access], sizes: tuple) -> None:
        """Call the function that `code` writes; the first access is the result."""
        key = op, sizes, tuple([(a.strides, a.buffer.constant) for a in accesses])
        if key not in self.routines:
            w = Writer(self.bits)
            code(w, *[Access(Buffer(f"p{n}", 0, a.buffer.constant), 0, a.strides) for n, a in enumerate(accesses)], *sizes)
            head = ", ".join(f"{'real* __restrict__' if n == 0 else 'const real*'} p{n}" for n in range(len(accesses)))
            name, body = f"{op}{len(self.routines)}", "\n".join(w.lines)
            text = f"static __device__ __attribute__((noinline)) void {name}({head}, i64 slots) {{\n{body}\n}}\n"
            self.routines[key] = name, text
        given = ", ".join([f"&{self.place_in(a.buffer, a.offset)}" for a in accesses])
        self.line(f"{self.routines[key][0]}({given}, slots);")

    def straight(self, code: list, env: dict) -> None:
        for i, op, args in code:
            if self.g.shape[i] or op in BLOCK_OPS:
                self.block(i, op, args, env)
            else:
                self.straight_scalar([(i, op, args)], env)

    def straight_scalar(self, code: list, env: dict) -> None:
        for i, op, args in code:
            x = [self.value(j, env) for j in args]
            if op in _math.FUNCTIONS:
                env[i] = self.let(f"own_{op}({x[0]})")
            elif op in COMPARE:
                env[i] = self.compare(op, *x)
            elif op in ("and", "or", "not"):
                env[i] = getattr(self, op + "_")(*x)
            else:
                env[i] = getattr(self, op)(*x)

    def trips(self, n: int, loop: Loop, env: dict) -> str:
        if loop.data:
            return "T"
        if loop.of is not None:
            return f"trips{loop.of.id}"
        steps = self.let(f"fmin{self.f}(fmax{self.f}({self.value(loop.steps, env)}, {self.c(0.0)}), {self.c(2.0**31)})")
        name = f"trips{loop.id}"
        self.line(f"i64 {name} = (i64){steps};")
        self.line(f"if ({steps} > (real){name}) ++{name};")
        if loop.stored:
            self.line(f"atomicMax((unsigned long long*)needed + {n}, (unsigned long long){name});")
            self.line(f"if ({name} > caps[{2 * n + 1}]) {name} = caps[{2 * n + 1}];")
        return name

    def loop(self, n: int, env: dict) -> None:
        body = self.low.bodies[n]
        loop = body.loop
        g = self.g
        shapes, sum_shapes = [g.shape[c] for c in loop.carry], [g.shape[s] for s in loop.sums]
        chunked = loop.data and bool(loop.sums)
        carry = [self.home((None, c)) if g.shape[c] else f"c{loop.id}_{k}" for k, c in enumerate(loop.carry)]
        totals = [self.home((None, s)) if g.shape[s] else f"t{loop.id}_{k}" for k, s in enumerate(loop.sums)]
        sums = totals
        if chunked:
            sums = [self.home(("chunk", n, k)) if shape else f"s{loop.id}_{k}" for k, shape in enumerate(sum_shapes)]
        for place, shape, start in zip(carry, shapes, loop.start, strict=True):
            self.keep(place, shape, start, env)
        for place, shape in zip(totals, sum_shapes, strict=True):
            self.keep(place, shape, g.zero, env)
        trips = self.trips(n, loop, env)
        outer, u = f"o{loop.id}", f"u{loop.id}"
        if chunked:
            self.line(f"for (i64 {outer} = 0; {outer} < {trips}; {outer} += {CHUNK}) {{")
            self.line(f"const i64 e{loop.id} = {outer} + {CHUNK} < {trips} ? {outer} + {CHUNK} : {trips};")
            for place, shape in zip(sums, sum_shapes, strict=True):
                self.keep(place, shape, g.zero, env)
            self.line(f"for (i64 {u} = {outer}; {u} < e{loop.id}; ++{u}) {{")
        else:
            self.line(f"for (i64 {u} = 0; {u} < {trips}; ++{u}) {{")
        before = self.indent
        self.indent += "  "
        self.part = n
        self.step(n, env, carry, sums, u, trips)
        self.part = None
        self.indent = before
        self.line("}")
        if chunked:
            for place, total, shape in zip(sums, totals, sum_shapes, strict=True):
                if shape:
                    self.accumulate(total, shape, [lambda index: self.load(place, index[0])])
                else:
                    self.line(f"{total} = {total} + {place};")
            self.line("}")
        env.update(zip(loop.final, carry, strict=True))
        env.update(zip(loop.sums, totals, strict=True))

    def keep(self, place: str | Buffer, shape: tuple, node: int, env: dict) -> None:
        """The first value of a carry or sum."""
        if shape:
            self.filled_with(place, shape, node, env)
        else:
            self.line(f"real {place} = {self.value(node, env)};")

    def place(self, n: int, loop: Loop, t: str, k: int) -> str:
        return f"tape[(caps[{2 * n}] + {t} * {self.low.offsets(loop)[-1]} + {k}) * slots + slot]"

    def block_on_tape(self, n: int, loop: Loop, t: str, k: int) -> Buffer:
        name = f"b{next(self.fresh)}"
        self.line(f"real* const {name} = &{self.place(n, loop, t, k)};")
        return Buffer(name)

    def step(self, n: int, outer: dict, carry: list, sums: list, u: str, trips: str) -> None:
        body, env = self.low.bodies[n], dict(outer)
        loop = body.loop
        t = u if loop.of is None else self.let(f"{trips} - 1 - {u}", "i64")
        env.update(zip(loop.carry, carry, strict=True))
        if loop.stored:
            for k, c, name in zip(self.low.offsets(loop)[:-1], loop.carry, carry, strict=True):
                if self.g.shape[c]:
                    self.filled_with(self.block_on_tape(n, loop, t, k), self.g.shape[c], c, env)
                else:
                    self.line(f"{self.place(n, loop, t, k)} = {name};")
        used = body.used()
        source = loop.of or loop
        if loop.of is not None:
            m = self.low.loops.index(source) if source in self.low.loops else 0
            for k, c in zip(self.low.offsets(source)[:-1], source.carry, strict=True):
                if c in used:
                    block = self.g.shape[c]
                    env[c] = self.block_on_tape(m, source, t, k) if block else self.let(self.place(m, source, t, k))
        for j in sorted(used):
            if self.g.op[j] == "in" and j not in env:
                kind, _, k = self.g.args[j]
                at = f"({k}LL * T + {t})" + (" * batch + s" if self.per_sample else "")
                env[j] = self.let(f"data[{at}]" if kind == "y" else f"(real){t}")
        self.straight(body.code, env)
        g = self.g
        following = [(c, self.let(self.value(x, env))) for c, i, x in zip(carry, loop.carry, loop.next, strict=True) if not g.shape[i]]
        for name, s, term in zip(sums, loop.sums, body.terms, strict=True):  # before the carry changes under its name
            if g.shape[s]:
                self.accumulate_term(name, g.shape[s], term, env)
                continue
            x = [self.value(j, env) for j in term]
            self.line(f"{name} = fma{self.f}({x[0]}, {x[1]}, {name});" if len(x) == 2 else f"{name} = {name} + {x[0]};")
        for name, value in following:
            self.line(f"{name} = {value};")
        self.blocks_forward(n, loop, carry, env)
        if loop.active is not None:
            self.line(f"if (!{self.value(loop.active, env)}) {{ trips{loop.id} = {u} + 1; break; }}")


def emit_cuda(
    program: Lowered, dtype: np.dtype | type = np.float64, per_sample: bool = False, entry: str = "kernel"
) -> tuple[str, str, Signature]:
    """CUDA C source of a lowered program, the name of its entry, and its parameters.

    >>> import tapegrad as tg
    >>> k = tg.kernels.likelihood(lambda theta, x: -((x - theta[0]) ** 2))
    >>> source, entry, signature = tg.kernels.emit_cuda(k.lowered(1, 0))
    >>> [name for name, _, _ in signature.parameters]
    ['in0', 'data', 'out0', 'out1', 'tape', 'batch', 'T', 'caps', 'needed']
    """
    source, signature = Kernel(program, 8 * np.dtype(dtype).itemsize, per_sample).text(entry)
    return source, entry, signature
