"""CUDA C of a loop program that tells what one thread does.

Its parameters are the arrays with their lengths and the numbers, in the order of the program; then an array
for each number that the program yields, summed over the threads; then its stacks. A stack has a column for
each thread. Where the program only fills a stack, its height is counted instead."""

import numpy as np

from ...kernels.emit.cuda_builder import functions_text, type_text
from ...kernels.emit.elementary import identifier
from ..inspection import StructuredText
from ..program import (
    SIGNS,
    Accumulate,
    Allocate,
    Barrier,
    Compute,
    For,
    If,
    Load,
    LoopArray,
    LoopProgram,
    LoopRefused,
    LoopStack,
    Pop,
    Push,
    Scalar,
    Store,
    stacks_of,
    walk,
    written,
)
from .calls import C_MATHS

C_TYPES = {"f8": "double", "f4": "float", "i8": "long long", "b1": "bool"}
WRITTEN_OUT = {
    "neg": "-{0}", "primal": "{0}", "rcp": "1 / {0}", "times0": "{0} == 0 ? 0 : {0} * {1}", "not": "!{0}",
    "select": "{0} ? {1} : {2}", "isnan": "{0} != {0}",
}  # fmt: skip
OF_INTEGERS = {
    "floordiv": "floor_divide({0}, {1})", "mod": "{0} - floor_divide({0}, {1}) * {1}", "min": "min({0}, {1})",
    "max": "max({0}, {1})", "abs": "{0} < 0 ? -{0} : {0}",
}  # fmt: skip
NAMES_OF_CUDA = {
    **{n: n for n in C_MATHS},
    "abs": "fabs", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "power_of": "pow", "ndtr": "normcdf", "gamma": "tgamma",
}  # fmt: skip
DIVISION = """static __device__ __forceinline__ long long floor_divide(long long a, long long b) {
  const long long q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}
"""


SLOTS_OF_THREADS = """
const long long block = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
const long long size = (long long)blockDim.x * blockDim.y * blockDim.z;
const long long slots = size * gridDim.x * gridDim.y * gridDim.z;
const long long thread = ((long long)threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
const long long slot = block * size + thread;
"""


class ThreadText(StructuredText):
    """The text of one program; `entry` is the name of its kernel."""

    indent, comment = "  ", "// "

    def __init__(self, p: LoopProgram):
        super().__init__(p.file, {"slots", "slot", "heights"})
        self.p, self.entry = p, p.name
        self.counting = [x for x in p.outs if isinstance(x, LoopStack)]
        self.functions: set[str] = set()
        self.own = {s.array for s in walk(p.body) if isinstance(s, Allocate)}
        stacks = stacks_of(p)
        self.stored = [x for x in stacks if x not in self.counting]
        params = self.parameters()
        for x in stacks:
            self.put(1, f"long long {self.name(x)}_top = 0;")
        if self.stored:
            for line in SLOTS_OF_THREADS.strip().split("\n"):
                self.put(1, line)
        self.block(p.body, 1)
        for k, y in enumerate(p.body.yields):
            self.put(1, f"atomicAdd(&yielded{k}[0], {self.value(y)});")
        for k, counted in enumerate(self.counting):
            self.put(1, f"atomicMax(&heights[{k}], (unsigned long long){self.name(counted)}_top);")
        body = "\n".join(self.lines)
        self.text = f'{self.head()}extern "C" __global__ void {self.entry}({params}) {{\n{body}\n}}\n'

    def head(self) -> str:
        made = DIVISION if any(s.op in ("floordiv", "mod") for s in self.computes()) else ""
        return made + type_text(64) + functions_text(self.functions, 64) if self.functions else made

    def computes(self) -> list[Compute]:
        return [s for s in walk(self.p.body) if isinstance(s, Compute)]

    def parameters(self) -> str:
        made, writes = [], written(self.p)
        for q in self.p.params:
            if isinstance(q, Scalar):
                made.append(f"{C_TYPES[q.type]} {self.name(q)}")
                continue
            made.append(f"{'' if q in writes else 'const '}{C_TYPES[q.type]}* __restrict__ {self.name(q)}")
            for n in q.shape:
                n.name = n.name or f"{self.name(q)}_size"
                made.append(f"long long {self.name(n)}")
        made += [f"{C_TYPES[y.type]}* yielded{k}" for k, y in enumerate(self.p.body.yields)]
        made += [f"{C_TYPES[x.type]}* __restrict__ {self.name(x)}" for x in self.stored]
        return ", ".join(made + ["unsigned long long* heights"] * bool(self.counting))

    # --- pieces ---

    def word(self, v) -> str:
        base = super().word(v)
        base = ("v" + base if base[0].isdigit() else base) + "_kept" * isinstance(v, LoopStack)
        return base + "_" * (base in RESERVED)

    def value(self, v: Scalar) -> str:
        if v.number is None:
            return self.name(v)
        if v.type in ("i8", "b1"):
            return f"{v.number}LL" if v.type == "i8" else str(v.number).lower()
        x, suffix = float(v.number), "f" * (v.type == "f4")
        if not np.isfinite(x):  # NVRTC has no names for these
            double, single = ("7ff8", "7fc0") if np.isnan(x) else ("7ff0", "7f80")
            f4 = f"__int_as_float(0x{single}0000)"
            f8 = f"__longlong_as_double(0x{double}000000000000LL)"
            return f"({'-' * (x < 0)}{f4 if v.type == 'f4' else f8})"
        short = repr(float(np.float32(x)) if v.type == "f4" else x)
        return f"({short}{suffix})" if x < 0 else short + suffix

    def define(self, depth: int, v: Scalar, text: str) -> None:
        self.put(depth, f"const {C_TYPES[v.type]} {self.name(v)} = {text};")

    def at(self, a: LoopArray, index: tuple) -> str:
        text = self.value(index[0]) if index else "0"
        for n, i in zip(a.shape[1:], index[1:], strict=True):
            text = f"({text}) * {self.value(n)} + {self.value(i)}"
        return f"{self.name(a)}[{text}]"

    def computed(self, s: Compute) -> str:
        x, kind = [self.value(a) for a in s.args], s.out.type
        if s.op == "cast":
            return f"({C_TYPES[kind]}){x[0]}"
        if not s.args:
            return f"(long long){s.op}"
        if s.op in SIGNS:
            return f"{x[0]} {SIGNS[s.op]} {x[1]}"
        if kind == "i8" and s.op in OF_INTEGERS:
            return OF_INTEGERS[s.op].format(*x)
        if s.op in WRITTEN_OUT:
            return WRITTEN_OUT[s.op].format(*x)
        single = kind == "f4"
        if s.op in NAMES_OF_CUDA:
            return f"{NAMES_OF_CUDA[s.op]}{'f' * single}({', '.join(x)})"
        self.functions.add(s.op)
        return f"({C_TYPES[kind]})own_{identifier(s.op)}({', '.join(x)})"

    # --- statements ---

    def statement(self, s, depth: int) -> None:
        if s.atomic:
            raise LoopRefused(
                f"{self.p.name}, line {s.line}: the derivative of atomicMax or atomicMin depends on which "
                f"thread won, which a device does not tell; reduce by blocks, or use NumPy arrays"
            )
        match s:
            case Compute():
                self.define(depth, s.out, self.computed(s))
            case Load():
                self.define(depth, s.out, self.at(s.array, s.index))
            case Accumulate():
                self.accumulate(s, depth)
            case Store():
                self.put(depth, f"{self.at(s.array, s.index)} = {self.value(s.value)};")
            case Push():
                top = f"{self.name(s.stack)}_top"
                if s.stack in self.stored:
                    self.put(depth, f"{self.name(s.stack)}[{top} * slots + slot] = {self.value(s.value)};")
                self.put(depth, f"++{top};")
            case Pop():
                top = f"{self.name(s.stack)}_top"
                self.put(depth, f"--{top};")
                self.define(depth, s.out, f"{self.name(s.stack)}[{top} * slots + slot]")
            case Allocate():
                self.allocate(s.array, depth)
            case Barrier():
                self.put(depth, "__syncthreads();")
            case If():
                self.branch(s, depth)
            case _:
                self.loop(s, depth)

    def accumulate(self, s: Accumulate, depth: int) -> None:
        place, value = self.at(s.array, s.index), self.value(s.value)
        if s.array in self.own and not s.array.shared:
            self.put(depth, f"{place} += {value};")
        elif s.array.type == "i8":
            self.put(depth, f"atomicAdd((unsigned long long*)&{place}, (unsigned long long){value});")
        else:
            self.put(depth, f"atomicAdd(&{place}, {value});")

    def allocate(self, a: LoopArray, depth: int) -> None:
        if any(n.number is None for n in a.shape):
            raise LoopRefused(f"{self.p.name}: an array of a thread whose length is computed")
        total = int(np.prod([n.number for n in a.shape]))
        head = f"{'__shared__ ' * a.shared}{C_TYPES[a.type]} {self.name(a)}[{max(total, 1)}]"
        if not a.shared:
            self.put(depth, f"{head} = {{0}};")
            return
        self.put(depth, head + ";")
        start = "(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x"
        step = "blockDim.x * blockDim.y * blockDim.z"
        self.put(depth, f"for (int k = {start}; k < {total}; k += {step}) {self.name(a)}[k] = 0;")
        self.put(depth, "__syncthreads();")

    def declare(self, s, starts, depth: int) -> None:
        for r, v in zip(s.results, starts, strict=True):
            self.put(
                depth, f"{C_TYPES[r.type]} {self.name(r)}{' = ' + self.value(v) if v is not None else ''};"
            )

    def assign(self, results: list, values: list, depth: int) -> None:
        for r, v in zip(results, values, strict=True):
            self.put(depth, f"{self.name(r)} = {self.value(v)};")

    def branch(self, s: If, depth: int) -> None:
        self.declare(s, [None] * len(s.results), depth)
        self.put(depth, f"if ({self.value(s.test)}) {{")
        self.block(s.then, depth + 1)
        self.assign(s.results, s.then.yields, depth + 1)
        if s.other.statements or s.results:
            self.put(depth, "} else {")
            self.block(s.other, depth + 1)
            self.assign(s.results, s.other.yields, depth + 1)
        self.put(depth, "}")

    def loop(self, s, depth: int) -> None:
        self.declare(s, s.inits, depth)
        if isinstance(s, For):
            i, (start, stop, step) = self.name(s.index), map(self.value, s.bounds)
            sign = s.bounds[2].number
            if sign is None:
                test = f"{step} > 0 ? {i} < {stop} : {step} < 0 && {i} > {stop}"
            else:
                test = f"{i} {'<' if sign > 0 else '>'} {stop}"
            self.put(depth, f"for (long long {i} = {start}; {test}; {i} += {step}) {{")
        else:
            again = self.name(Scalar("b1", "again"))
            self.put(depth, f"bool {again};")
            self.put(depth, "do {")
        for a, r in zip(s.args, s.results, strict=True):
            self.define(depth + 1, a, self.name(r))
        self.block(s.body, depth + 1)
        if not isinstance(s, For):
            self.put(depth + 1, f"{again} = {self.value(s.test)};")
        self.assign(s.results, s.body.yields, depth + 1)
        self.put(depth, "}" if isinstance(s, For) else f"}} while ({again});")


RESERVED = frozenset(
    ("for", "if", "do", "while", "int", "long", "float", "double", "bool", "block", "thread", "size", "slot",
     "slots", "char", "short", "new", "in", "k", "again", "return", "const", "real", "whole", "i64",
     *NAMES_OF_CUDA.values())
)  # fmt: skip
