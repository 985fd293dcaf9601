"""LLVM text, one operation at a time: registers, memory, loops, and functions of vectors with a sample a
lane."""

import copy
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from . import elementary, far_angles
from .block_code import cuts, emit_matmul, emit_tile
from .builder import Affine, BlockAccess, BlockBuffer, TextBuilder, emit_read, emit_write

FORMS = {"": {
    "add": "fadd {self.T} {a}, {b}", "sub": "fsub {self.T} {a}, {b}", "mul": "fmul {self.T} {a}, {b}",
    "div": "fdiv {self.T} {a}, {b}",
    "neg": "fneg {self.T} {a}", "fma": "call {self.T} @llvm.fma.{self.suffix}({self.T} {a}, {self.T} {b}, "
    "{self.T} {c})",
    "floor": "call {self.T} @llvm.floor.{self.suffix}({self.T} {a})", "sqrt": "call {self.T} "
    "@llvm.sqrt.{self.suffix}({self.T} {a})",
    "abs": "call {self.T} @llvm.fabs.{self.suffix}({self.T} {a})", "isnan": "fcmp uno {self.T} {a}, {a}",
    "select": "select {self.B} {a}, {self.T} {b}, {self.T} {c}",
    "choose": "select {self.B} {a}, {self.B} {b}, {self.B} {c}", "and_": "and {self.B} {a}, {b}",
    "or_": "or {self.B} {a}, {b}",
    "to_bits": "bitcast {self.T} {a} to {self.I}", "from_bits": "bitcast {self.I} {a} to {self.T}",
    "odd": "trunc {self.I} {a} to {self.B}",
    "integer": "{a} {self.I} {b}, {c}",
}}  # fmt: skip
WIDE = '"prefer-vector-width"="512"'  # attribute of functions that may use the widest registers
# A double of this size, with its bits: added to a whole number, it leaves that in the last bits.
WHOLE, BITS_OF_WHOLE = 1.5 * 2.0**52, 0x4338000000000000
COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


class Builder(TextBuilder, forms=FORMS):
    """LLVM text with fresh registers; `elementary` writes its functions with it."""

    address_of = "{}"
    attributes = WIDE  # of functions that it calls

    def __init__(self, width: int, bits: int):
        self.bits = bits
        self.int = f"i{bits}"
        self.set_lanes(width, "double" if bits == 64 else "float", f"f{bits}", bits // 8)
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.fresh = itertools.count()
        self.labels = itertools.count()
        # (name, text) of called functions; None if the text cannot have any
        self.routines: dict | None = None

    def set_lanes(self, width: int, real: str, suffix: str, align: int) -> None:
        self.W, self.real, self.align = width, real, align
        self.T, self.I, self.B = map(self.vector, (real, self.int, "i1"))
        self.suffix = suffix if width == 1 else f"v{width}{suffix}"

    def with_lanes(self, width: int, integer: int = 0) -> "Builder":
        """Return a builder of the same text with other lanes; `integer`: elements are integers of so many
        bits."""
        other = copy.copy(self)
        kind = f"i{integer}"
        other.set_lanes(
            width,
            *((kind, kind, integer // 8) if integer else (self.real, f"f{self.bits}", self.bits // 8)),
        )
        return other

    def declared(self, *names: str) -> list[str]:
        """Return declarations of functions of LLVM, for this type."""
        operands = {name: ", ".join([self.T] * (3 if name == "fma" else 1)) for name in names}
        return [f"declare {self.T} @llvm.{name}.{self.suffix}({x})" for name, x in operands.items()]

    def declared_masked(self, *names: str) -> list[str]:
        """Return declarations of masked reads and writes."""
        kind, mask, many = self.T, self.B, f"<{self.W} x ptr>"
        forms = {
            "load": f"{kind} @llvm.masked.load.{self.suffix}.p0(ptr, i32, {mask}, {kind})",
            "store": f"void @llvm.masked.store.{self.suffix}.p0({kind}, ptr, i32, {mask})",
            "gather": f"{kind} @llvm.masked.gather.{self.suffix}.v{self.W}p0({many}, i32, {mask}, {kind})",
            "scatter": f"void @llvm.masked.scatter.{self.suffix}.v{self.W}p0({kind}, {many}, i32, {mask})",
        }
        return [f"declare {forms[name]}" for name in names]

    def vector(self, kind: str) -> str:
        return kind if self.W == 1 else f"<{self.W} x {kind}>"

    def __call__(self, text: str) -> str:
        name = f"%v{next(self.fresh)}"
        self.lines.append(f"  {name} = {text}")
        return name

    written = __call__

    def splat(self, kind: str, text: str) -> str:
        return text if self.W == 1 else "<" + ", ".join([f"{kind} {text}"] * self.W) + ">"

    def c(self, x: float) -> str:
        with np.errstate(over="ignore"):
            x = np.float64(np.float32(x)) if self.bits == 32 else np.float64(x)
        return self.splat(self.real, f"0x{int(x.view(np.uint64)):016X}")

    def truth(self, true: bool) -> str:
        return self.splat("i1", "true" if true else "false")

    def ci(self, x: int) -> str:
        return self.splat(self.int, str(x))

    def fnma(self, a, b, c):
        return self.fma(self.neg(a), b, c)

    def fms(self, a, b, c):
        return self.fma(a, b, self.neg(c))

    def widen(self, a):
        return self(f"fpext {self.vector('float')} {a} to {self.vector('double')}")

    def narrow(self, a):
        return self(f"fptrunc {self.vector('double')} {a} to {self.vector('float')}")

    def not_(self, a):
        return self(f"xor {self.B} {a}, {self.splat('i1', 'true')}")

    def to_int(self, a):
        """Return whole numbers below 2^51 in absolute value as integers. (Processors before AVX-512 have no
        instruction for vectors of doubles.)"""
        if self.bits == 32 or self.W == 1:
            return self(f"fptosi {self.T} {a} to {self.I}")
        return self.iadd(self.to_bits(self.add(a, self.c(WHOLE))), -BITS_OF_WHOLE)

    def from_int(self, a):
        """Return the reverse of `to_int`."""
        if self.bits == 32 or self.W == 1:
            return self(f"sitofp {self.I} {a} to {self.T}")
        return self.sub(self.from_bits(self.iadd(a, BITS_OF_WHOLE)), self.c(WHOLE))

    def iadd(self, a, n: int):
        return self.integer("add", a, self.ci(n))

    def iand(self, a, n: int):
        return self.integer("and", a, self.ci(n))

    def shl(self, a, n: int):
        return self.integer("shl", a, self.ci(n))

    def shr(self, a, n: int):
        return self.integer("lshr", a, self.ci(n))

    def compare(self, op: str, a, b):
        return self(f"fcmp {COMPARE[op]} {self.T} {a}, {b}")

    def function(self, name: str, a):
        return elementary.emit_function(self, name, a)

    def call_function(self, op: str, *x: str) -> str:
        """Call exp, log and others, where they are too many to inline; `routines` gets the function."""
        assert self.routines is not None
        key = op, self.W, self.bits
        if key not in self.routines:
            b = Builder(self.W, self.bits)
            b.routines = self.routines
            given = [f"%{v}" for v in elementary.parameters(op)]
            result = elementary.emit_function(b, op, *given)
            name = f"@own_{elementary.identifier(op)}_{self.W}_{self.bits}"
            head = f"internal {b.T} {name}({', '.join([f'{b.T} {v}' for v in given])}) {self.attributes}"
            self.routines[key] = name, function_text(head, [*b.slots, *b.lines], f"{b.T} {result}")
        return self(f"call {self.T} {self.routines[key][0]}({', '.join([f'{self.T} {v}' for v in x])})")

    def far_turns(self, x):
        """Return (q, r) of one large angle."""
        pair = f"{{{self.int}, {self.real}}}"
        both = self(f"call {pair} @far_turns_{self.bits}({self.real} {x})")
        return [self(f"extractvalue {pair} {both}, {k}") for k in range(2)]

    def far(self, near, x, y, plus: int):
        """Return y where x is `near`, otherwise sin(x + plus pi/2) by a call for each lane.

        Without routines the result there is nan."""
        if self.routines is None:
            return self.select(near, y, self.mul(x, self.c(math.nan)))
        name, k = f"@far_quadrant_{self.bits}_{plus}", next(self.labels)
        self.routines.setdefault("two_by_pi", ("", far_angles.TABLE))
        self.routines.setdefault(("far_turns", self.bits), ("", far_angles.llvm(self.bits)))
        if (name,) not in self.routines:
            self.routines[(name,)] = name, far_quadrant_llvm(self.bits, name, plus)
        all_near = (
            near
            if self.W == 1
            else self(f"icmp eq i{self.W} {self(f'bitcast {self.B} {near} to i{self.W}')}, -1")
        )
        self.lines.append(
            f"  br label %angle{k}\nangle{k}:\n  br i1 {all_near}, label %near{k}, label %far{k}\nfar{k}:"
        )
        out = "poison"
        for n in range(self.W):
            one = [
                f"{self.real} " + (v if self.W == 1 else self(f"extractelement {self.T} {v}, i64 {n}"))
                for v in (x, y)
            ]
            value = self(f"call {self.real} {name}({', '.join(one)})")
            out = (
                value if self.W == 1 else self(f"insertelement {self.T} {out}, {self.real} {value}, i64 {n}")
            )
        self.lines.append(f"  br label %near{k}\nnear{k}:")
        return self(f"phi {self.T} [ {y}, %angle{k} ], [ {out}, %far{k} ]")

    def spread(self, x: str) -> str:
        if self.W == 1:
            return x
        return self.spread_as(self.real, x)

    def spread_as(self, kind: str, x: str) -> str:
        """Return the scalar x of this type in all lanes."""
        whole = self.vector(kind)
        one = self(f"insertelement {whole} poison, {kind} {x}, i64 0")
        return self(f"shufflevector {whole} {one}, {whole} poison, <{self.W} x i32> zeroinitializer")

    def in_all_lanes(self, x):
        return self.spread(x) if self.across else x

    # --- memory and loops of blocks ---

    def parts_of_row(self, first: Affine | int, n: int) -> list:
        if self.W > 1:
            return super().parts_of_row(first, n)
        done, parts = 0, []
        for width in vector_widths(self.bits):
            lanes, count = self.with_lanes(width), (n - done) // width * width
            lanes.across = True
            parts += [(lanes, done, done + count, width)] * (count > 0)
            done += count
        return parts

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is inside runs where the condition holds for some lane."""
        k = next(self.labels)
        some = condition
        if self.W > 1:
            some = self(f"icmp ne i{self.W} {self(f'bitcast {self.B} {condition} to i{self.W}')}, 0")
        self.lines.append(f"  br i1 {some}, label %then{k}, label %after{k}\nthen{k}:")
        yield
        self.lines.append(f"  br label %after{k}\nafter{k}:")

    def slot(self, kind: str | None = None) -> str:
        name = f"%m{next(self.fresh)}"
        self.slots.append(f"  {name} = alloca {kind or self.T}, align 64")
        return name

    def read(self, pointer: str, mask: str = "") -> str:
        if not mask:
            return self(f"load {self.T}, ptr {pointer}, align {self.align}")
        return self.masked("load", "ptr", pointer, mask)

    def gather(self, pointers: str, mask: str) -> str:
        return self.masked("gather", f"<{self.W} x ptr>", pointers, mask)

    def masked(self, what: str, kind: str, pointers: str, mask: str) -> str:
        suffix = f"{self.suffix}.{f'v{self.W}' if what == 'gather' else ''}p0"
        given = f"{kind} {pointers}, i32 {self.align}, {self.B} {mask}, {self.T} zeroinitializer"
        return self(f"call {self.T} @llvm.masked.{what}.{suffix}({given})")

    def store(self, value: str, pointer: str, mask: str = "") -> None:
        line = f"store {self.T} {value}, ptr {pointer}, align {self.align}"
        if mask:
            given = f"{self.T} {value}, ptr {pointer}, i32 {self.align}, {self.B} {mask}"
            line = f"call void @llvm.masked.store.{self.suffix}.p0({given})"
        self.lines.append(f"  {line}")

    def scatter(self, value: str, pointers: str, mask: str) -> None:
        given = f"{self.T} {value}, <{self.W} x ptr> {pointers}, i32 {self.align}, {self.B} {mask}"
        self.lines.append(f"  call void @llvm.masked.scatter.{self.suffix}.v{self.W}p0({given})")

    def read_number(self, pointer: str) -> str:
        """Read one number."""
        return self(f"load {self.real}, ptr {pointer}, align {self.align}")

    def store_number(self, value: str, pointer: str) -> None:
        self.lines.append(f"  store {self.real} {value}, ptr {pointer}, align {self.align}")

    def beyond(self, pointer: str, count: str) -> str:
        """Return the address of the element `count` further on."""
        return pointer if count == "0" else self(f"getelementptr {self.real}, ptr {pointer}, i64 {count}")

    def cell(self, value: str) -> str:
        slot = self.slot()
        self.set(slot, value)
        return slot

    def get(self, cell: str) -> str:
        return self.read(cell)

    def set(self, cell: str, value: str) -> None:
        self.store(value, cell)

    def count(self, x: Affine | int) -> str:
        """Return an index as a 64-bit number."""
        if isinstance(x, int):
            return str(x)
        parts = [
            name if factor == 1 else self(f"mul i64 {name}, {factor}") for name, factor in x.terms.items()
        ]
        parts += [str(x.const)] if x.const or not parts else []
        out = parts[0]
        for part in parts[1:]:
            out = self(f"add i64 {out}, {part}")
        return out

    def pointer(self, buffer: BlockBuffer, at: Affine | int) -> str:
        kind = self.real if buffer.constant or self.across else self.T
        return self(f"getelementptr {kind}, ptr {buffer.base}, i64 {self.count(at + buffer.offset)}")

    def load(self, buffer: BlockBuffer, at: Affine) -> str:
        pointer = self.pointer(buffer, at)
        return self.spread(self.read_number(pointer)) if buffer.constant else self.read(pointer)

    def load_at(self, buffer: BlockBuffer, at: str) -> str:
        """Read the element whose number differs from lane to lane."""
        at = at if buffer.constant or self.W == 1 else self.integer("mul", at, self.ci(self.W))
        if not buffer.constant and self.W > 1:
            lanes = ", ".join([f"{self.int} {k}" for k in range(self.W)])
            at = self.integer("add", at, f"<{lanes}>")
        start = self.pointer(buffer, 0) if buffer.offset else buffer.base
        where = self(f"getelementptr {self.real}, ptr {start}, {self.I} {at}")
        return self.read(where) if self.W == 1 else self.gather(where, self.truth(True))

    def put(self, buffer: BlockBuffer, at: Affine, value: str) -> None:
        self.store(value, self.pointer(buffer, at))

    @contextmanager
    def range(self, start: Affine | int, stop: Affine | int, step: int = 1) -> Iterator[Affine]:
        """Open a loop whose variable counts from start up to stop."""
        if isinstance(start, int) and isinstance(stop, int) and start + step >= stop:
            if start < stop:
                yield Affine(start)
                return
        k, slot, line = next(self.labels), self.slot("i64"), self.lines.append
        line(f"  store i64 {self.count(start)}, ptr {slot}")
        end = self.count(stop)
        line(f"  br label %test{k}\ntest{k}:")
        i = self(f"load i64, ptr {slot}")
        line(f"  br i1 {self(f'icmp slt i64 {i}, {end}')}, label %turn{k}, label %past{k}\nturn{k}:")
        yield Affine(0, {i: 1})
        line(f"  store i64 {self(f'add i64 {i}, {step}')}, ptr {slot}\n  br label %test{k}\npast{k}:")


def far_quadrant_llvm(bits: int, name: str, plus: int) -> str:
    """Return the text of the scalar function `name` (`elementary.far_quadrant`)."""
    b = Builder(1, bits)
    result = elementary.far_quadrant(b, "%x", "%y", plus)
    head = f"internal {b.real} {name}({b.real} %x, {b.real} %y) noinline"
    return function_text(head, b.lines, f"{b.real} {result}")


def function_text(head: str, lines: list[str], result: str = "void") -> str:
    """Return the definition of a function."""
    body = "\n".join(["entry:", *lines, f"  ret {result}"])
    return f"define {head} {{\n{body}\n}}\n"


def vector_widths(bits: int) -> list[int]:
    """Return the numbers of elements of one sample that can be computed together."""
    return [w for w in (16, 8, 4, 2, 1) if w <= 512 // bits]


TRANSPOSED_ELEMENTS = 1 << 14  # largest transposed operand, in elements, that is copied to the stack


def matmul_across(
    b: Builder, out: BlockAccess, x: BlockAccess, y: BlockAccess, n: int, inner: int, m: int, gates: tuple
) -> None:
    """Write the product of one sample's matrices, with its columns in lanes; sums are ordered as in
    `emit_matmul`."""
    if m == 1 and x.strides[0] == 1 and n > 1:
        x, y, n, m, gates = transposed_operand(y), transposed_operand(x), m, n, gates[::-1]
        out = BlockAccess(out.buffer, out.offset, (0, 1))
    if y.strides[1] != 1 and m > 3 and n > 3 and inner * m <= TRANSPOSED_ELEMENTS:
        y = transposed_copy(b, y, inner, m)
    if y.strides[1] != 1:
        emit_matmul(b, out, x, y, n, inner, m, gates)
        return
    # one number for all lanes
    x = BlockAccess(BlockBuffer(x.buffer.base, x.buffer.offset, True), x.offset, x.strides)
    y = BlockAccess(BlockBuffer(y.buffer.base, y.buffer.offset), y.offset, y.strides)
    done = 0
    for width in vector_widths(b.bits):
        lanes, count = b.with_lanes(width), (m - done) // width
        lanes.across = True
        for first, last, step in cuts(n):
            with b.range(first, last, step) as i:
                for begin, end, columns in cuts(count) if count else []:
                    with b.range(begin, end, columns) as j:
                        emit_tile(lanes, out, x, y, inner, i, step, j * width + done, columns, gates, width)
        done += count * width


def transposed_operand(x: BlockAccess) -> BlockAccess:
    return BlockAccess(x.buffer, x.offset, x.strides[::-1])


def transposed_copy(b: Builder, y: BlockAccess, inner: int, m: int) -> BlockAccess:
    copy = BlockAccess(BlockBuffer(b.slot(f"[{inner * m} x {b.real}]")), 0, (m, 1))
    with b.range(0, inner) as k, b.range(0, m) as j:
        emit_write(b, copy, emit_read(b, y, k, j), k, j)
    return copy
