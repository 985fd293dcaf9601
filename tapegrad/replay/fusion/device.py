"""A group of instructions on CuPy arrays: one kernel of CUDA C, in which each thread strides over the
elements of all nests.

Full sums are taken by thread, and these added up by CuPy: how many threads there are depends on the sizes
alone, and so do the bits. Nobody waits for the device, so nothing is looked at on the way; CuPy warns of
nothing either."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.arrays import xp_of
from ..._core.registry import load
from ...kernels.emit import elementary
from ...kernels.emit.cuda_builder import BITS, HEAD, CudaBuilder, device_function
from ..costs import BLOCK_THREADS, LAUNCH_BLOCKS
from .compiled_groups import BOOL, FLOATS, Group, GroupCode, layout
from .nests import Nest

TYPES = {BOOL: "unsigned char", np.dtype("i8"): "long long", np.dtype("i4"): "int"}


class DeviceText(CudaBuilder):
    """The text of a kernel."""

    def __init__(self, g, nests: list, bits: int):
        super().__init__(bits)
        self.g, self.nests = g, nests
        self.functions = set()

    def text(self, arrays: list, written: list, singles: int, totals: list) -> str:
        """`arrays` and `written`: their dtypes; `totals`: for each full sum (nest, its sum in it)."""
        kinds = [f"const {TYPES.get(dtype, 'real')}" for dtype in arrays] + [
            TYPES.get(dtype, "real") for dtype in written
        ]
        given = (
            [f"i64 p{k}" for k in range(len(kinds))]
            + [f"real n{k}" for k in range(singles)]
            + ["i64 sums"] * bool(totals)
        )
        for k, kind in enumerate(kinds):
            self.line(f"{kind}* const a{k} = ({kind}*)p{k};")
        for k in range(len(totals)):
            self.line(f"real s{k} = 0;")
        self.line(
            "const i64 all = (i64)gridDim.x * blockDim.x, me = (i64)blockIdx.x * blockDim.x + threadIdx.x;"
        )
        ends = []
        for nest in self.nests:
            ends.append((ends[-1] if ends else 0) + math.prod(nest.extents))
        self.line(f"for (i64 t = me; t < {ends[-1]}; t += all) {{")
        start = 0
        for n, (nest, end) in enumerate(zip(self.nests, ends, strict=True)):
            self.line(f"if (t >= {start} && t < {end}) {{")
            self.element(nest, start, [(k, j) for k, parts in enumerate(totals) for m, j in parts if m == n])
            self.line("}")
            start = end
        self.line("}")
        for k in range(len(totals)):
            self.line(f"((real*)sums)[{k} * all + me] = s{k};")
        integer = "long long" if self.bits == 64 else "int"
        head = HEAD.format(real="double" if self.bits == 64 else "float", integer=integer) + BITS.format(
            real="real", whole="whole", integer=integer
        )
        own = "".join([device_function(name, self.bits) for name in sorted(self.functions)])
        body = "\n".join(self.lines)
        return f'{head}{own}extern "C" __global__ void group({", ".join(given)}) {{\n{body}\n}}\n'

    def element(self, nest: Nest, start: int, sums: list) -> None:
        rest, counters = f"(t - {start})", []
        for n in reversed(nest.extents):
            counters.append(self.let(f"{rest} % {n}", "i64"))
            rest = self.let(f"{rest} / {n}", "i64")
        counters.reverse()
        env = {node: f"n{k}" for node, k in nest.numbers.items()}
        for node, a in nest.loads.items():
            there = self.place(a, counters)
            env[node] = (
                self.let(f"{there} != 0", "bool")
                if a.truth
                else self.let(f"(real){there}" if a.whole else there)
            )
        outs = [n for n, _ in (*nest.stores, *nest.sums)]
        for n in self.g.reach(outs, nest.loads):
            if n not in env and self.g.op[n] not in ("in", "const", "bool"):
                env[n] = self.instruction(
                    self.g.op[n], self.g.args[n], [self.value(k, env) for k in self.g.args[n]]
                )
        for n, a in nest.stores:
            self.line(f"{self.place(a, counters)} = {self.value(n, env)};")
        for k, j in sums:
            self.line(f"s{k} += {self.value(nest.sums[j][0], env)};")

    def place(self, a, counters: list) -> str:
        size = 1 if a.truth else (a.whole or self.bits) // 8
        parts = [f"{c} * {s // size}" for c, s in zip(counters, a.strides, strict=True) if s]
        return f"a{a.pointer}[{' + '.join([*parts, str(a.first // size)])}]"

    def value(self, n: int, env: dict) -> str:
        return elementary.operand_text(self.g, self, n, env)

    def instruction(self, op: str, args: tuple, x: list) -> str:
        if elementary.is_called_function(op):
            self.functions.add(op)
            return self.let(f"own_{elementary.identifier(op)}({', '.join(x)})")
        return elementary.emit_operation(self, op, *x, truths=self.g.boolean(args[-1]))


class DeviceCode(GroupCode):
    """The kernel of a group, and of all that are like it."""

    serial, room = False, 0

    def compile(self, totals: list) -> None:
        group, nests = self.group, list(self.nests.values())
        dtypes = lambda values: [self.shown[k][3] for k in values]
        text = DeviceText(self.g, nests, FLOATS[group.dtype])
        self.text = text.text(
            dtypes(group.arrays), dtypes(group.written), len(group.single), [parts for parts, *_ in totals]
        )
        self.lines = self.text.count("\n")
        self.items = self.work = sum([math.prod(nest.extents) for nest in nests])
        self.grid = min(-(-self.items // BLOCK_THREADS), LAUNCH_BLOCKS)
        self.call = self.caller()
        del self.group, self.g, self.nests, self.values, self.sums, self.shown

    def check(self, nest: Nest, v: int, n: int) -> None:
        """Nothing is looked at on a device."""

    def caller(self) -> Callable:
        """Its call: (state, *given, *memory for what is written or None)."""
        group, cuda = self.group, load("tapegrad.kernels.launch.cuda")
        strides = [(group.given.index(a), self.shown[a][2]) for a in group.arrays]
        singles = [group.given.index(a) for a in group.single]
        shapes = [layout(self.shown[k]) for k in group.written]
        text, grid, dtype, count, given = (
            self.text,
            self.grid,
            group.dtype,
            len(group.totals),
            len(group.given),
        )
        order = [*group.written, *group.totals]
        back = [order.index(k) for k in group.left]

        def call(state, *x):
            if any([x[n].strides != s for n, s in strides]):
                return None
            first = x[strides[0][0]]
            xp = xp_of(first)
            with first.device:
                made = [
                    old if old is not None else xp.empty(shape, dtype).transpose(axes)
                    for old, (shape, dtype, axes) in zip(x[given:], shapes, strict=True)
                ]
                pointers = [xp.int64(a.data.ptr) for a in (*[x[n] for n, _ in strides], *made)]
                sums: Any = xp.empty((count, grid * BLOCK_THREADS), dtype) if count else None
                last = [xp.int64(sums.data.ptr)] if count else []
                cuda.loaded(text, "group")(
                    (grid,), (BLOCK_THREADS,), (*pointers, *[dtype.type(x[n]) for n in singles], *last)
                )
                found = [*made, *(sums.sum(axis=1) if count else ())]
            return tuple([found[n] for n in back])

        return call


def worth(group: Group, now) -> float:
    """More than no launch saved is worth it."""
    if not group.arrays:
        return 0.0
    return (
        len(
            [
                k
                for k, d in {**now.values, **now.sums}.items()
                if k not in group.carried and not getattr(d, "is_view", False)
            ]
        )
        - 1.5
    )
