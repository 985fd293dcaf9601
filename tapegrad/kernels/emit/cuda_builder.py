"""CUDA C, one operation at a time: temporaries, memory, loops, and the text that precedes the kernels."""

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from ..graph.nodes import COMPARE
from . import elementary, far_angles
from .builder import Affine, BlockBuffer, TextBuilder

WARP = 32
HEAD = """typedef {real} real;
typedef {integer} whole;
typedef long long i64;
"""
BITS = """static __device__ __forceinline__ {whole} bits_of({real} x) {{ union {{ {real} r; {whole} i; }} u; u.r = x; return u.i; }}
static __device__ __forceinline__ {real} real_of({whole} x) {{ union {{ {real} r; {whole} i; }} u; u.i = x; return u.r; }}
static __device__ __forceinline__ {whole} shift_right({whole} x, int n) {{ return ({whole})((unsigned {integer})x >> n); }}
static __device__ __forceinline__ {whole} shift_left({whole} x, int n) {{ return ({whole})((unsigned {integer})x << n); }}
"""
FOUR = "struct alignas(16) Four { real v[4]; };\n"
# operations by the type of the result
FORMS = {
    "self.real": {
        "add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}", "div": "{a} / {b}", "neg": "-{a}",
        "fma": "fma{self.f}({a}, {b}, {c})",
        "fnma": "fma{self.f}(-{a}, {b}, {c})", "fms": "fma{self.f}({a}, {b}, -{c})",
        "floor": "floor{self.f}({a})",
        "sqrt": "sqrt{self.f}({a})", "select": "{a} ? {b} : {c}", "abs": "fabs{self.f}({a})", "from_int": "({self.real}){a}",
        "from_bits": "real_of({a})",
        "function": "own_{a}({b})",
    },
    "self.word": {
        "to_int": "({self.word}){a}", "to_bits": "bits_of({a})", "iadd": "{a} + ({b}{self.L})",
        "iand": "{a} & {b}{self.L}",
        "shl": "shift_left({a}, {b})", "shr": "shift_right({a}, {b})",
    },
    "'bool'": {"isnan": "{a} != {a}", "and_": "{a} && {b}", "or_": "{a} || {b}", "not_": "!{a}",
    "odd": "({a} & 1) != 0", "choose": "{a} ? {b} : {c}"},
    "'double'": {"widen": "(double){a}"}, "'real'": {"narrow": "(real){a}"},
}  # fmt: skip


class CudaBuilder(TextBuilder, forms=FORMS):
    """C statements with one temporary for each operation; `elementary` writes its functions with it.

    `wide` selects float64 in a float32 program."""

    address_of = "(&{})"

    def __init__(self, bits: int, wide: bool = False, routines: dict | None = None):
        self.bits, self.wide, self.routines = bits, wide, routines
        self.f, self.L = ("f", "") if bits == 32 else ("", "LL")
        self.real, self.word = ("double", "long long") if wide else ("real", "whole")
        self.lines: list[str] = []
        self.fresh = itertools.count()
        self.indent = "  "

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def let(self, text: str, kind: str | None = None) -> str:
        name = f"x{next(self.fresh)}"
        self.line(f"const {kind or self.real} {name} = {text};")
        return name

    written = let

    def c(self, x: float) -> str:
        with np.errstate(over="ignore"):
            x = float(np.float32(x)) if self.bits == 32 else float(x)
        if math.isnan(x):
            return "real_of(0x7ff8000000000000LL)" if self.bits == 64 else "real_of(0x7fc00000)"
        if math.isinf(x):
            text = "real_of(0x7ff0000000000000LL)" if self.bits == 64 else "real_of(0x7f800000)"
            return text if x > 0 else f"(-{text})"
        return f"({x.hex()}{self.f})"

    def compare(self, op: str, a, b):
        return self.let(f"{a} {COMPARE[op]} {b}", "bool")

    def truth(self, true: bool) -> str:
        return "true" if true else "false"

    def far_turns(self, x):
        """Return (q, r) of a large angle."""
        q, r = self.cell("0", self.word), self.cell("0")
        self.line(f"far_turns({x}, &{q}, &{r});")
        return q, r

    def far(self, near, x, y, plus: int):
        """Return y where x is `near`, otherwise sin(x + plus pi/2)."""
        y = self.cell(y)
        self.line(f"if (!{near}) {y} = far_quadrant_{plus}({x}, {y});")
        return self.get(y)

    # --- memory and loops of blocks ---

    def cell(self, value: str, kind: str | None = None) -> str:
        name = f"m{next(self.fresh)}"
        self.line(f"{kind or self.real} {name} = {value};")
        return name

    def get(self, cell: str) -> str:
        return self.let(cell)

    def set(self, cell: str, value: str) -> None:
        self.line(f"{cell} = {value};")

    def call_function(self, op: str, *x: str) -> str:
        """Call a function whose text `routines` gets."""
        assert self.routines is not None
        if op not in self.routines:
            self.routines[op] = device_function(op, self.bits, self.wide, True, self.routines)
        return self.let(f"own_{elementary.identifier(op)}({', '.join(x)})")

    def count(self, x: Affine | int) -> str:
        if isinstance(x, int):
            return str(x)
        parts = [name if factor == 1 else f"{name} * {factor}" for name, factor in x.terms.items()]
        parts += [str(x.const)] if x.const or not parts else []
        return " + ".join(parts)

    def place_in(self, buffer: BlockBuffer, at: Affine | int) -> str:
        index = self.count(at + buffer.offset)
        return f"{buffer.base}[{index}]" if buffer.constant else f"{buffer.base}[({index}) * {WARP}]"

    def load(self, buffer: BlockBuffer, at: Affine) -> str:
        return self.let(self.place_in(buffer, at))

    def load_at(self, buffer: BlockBuffer, at: str) -> str:
        """Read the element whose number differs from thread to thread."""
        return self.let(self.place_in(buffer, Affine(0, {at: 1})))

    def put(self, buffer: BlockBuffer, at: Affine, value: str) -> None:
        self.line(f"{self.place_in(buffer, at)} = {value};")

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        before = self.indent
        self.line(f"if ({condition}) {{")
        self.indent += "  "
        yield
        self.indent = before
        self.line("}")

    @contextmanager
    def range(self, start: Affine | int, stop: Affine | int, step: int = 1) -> Iterator[Affine]:
        """Open a loop whose variable counts from start up to stop."""
        if isinstance(start, int) and isinstance(stop, int) and start < stop <= start + step:
            yield Affine(start)
            return
        i, before = f"i{next(self.fresh)}", self.indent
        self.line("#pragma unroll 1")  # unrolled whole matrices compile for minutes and spill
        self.line(f"for (i64 {i} = {self.count(start)}; {i} < {self.count(stop)}; {i} += {step}) {{")
        self.indent += "  "
        yield Affine(0, {i: 1})
        self.indent = before
        self.line("}")


def device_function(
    name: str, bits: int, wide: bool = False, called: bool = False, routines: dict | None = None
) -> str:
    """Return the text of exp, log and others as a device function; with `called` it is not inlined.
    `routines` gets the functions that a long one calls."""
    w = CudaBuilder(bits, wide, routines)
    given = elementary.parameters(name)
    result = elementary.emit_function(w, name, *given)
    body = "\n".join(w.lines)
    far = "".join([far_quadrant_cuda(plus, bits, wide) for plus in (0, 1) if f"far_quadrant_{plus}(" in body])
    how = "__noinline__" if called else "__forceinline__"
    head = f"own_{elementary.identifier(name)}({', '.join([f'{w.real} {x}' for x in given])})"
    return f"{far}static __device__ {how} {w.real} {head} {{\n{body}\n  return {result};\n}}\n"


def functions_text(uses: Iterable[str], bits: int, wide: bool = False) -> str:
    """Return conversions of bits, and the functions among the operations `uses` as device functions."""
    integer = "long long" if bits == 64 else "int"
    real, whole = ("double", integer) if wide else ("real", "whole")
    functions = [op for op in uses if elementary.is_called_function(op)]
    called = elementary.called_functions(functions)
    routines: dict[str, str] = {}  # a function comes after those that it calls
    for f in sorted(set(functions)):
        if f not in routines:
            routines[f] = device_function(f, bits, wide, f in called, routines)
    return BITS.format(real=real, whole=whole, integer=integer) + "".join(routines.values())


def type_text(bits: int) -> str:
    """Return the definitions of the types `real`, `whole` and `i64`."""
    real, integer = ("double", "long long") if bits == 64 else ("float", "int")
    return HEAD.format(real=real, integer=integer)


def far_quadrant_cuda(plus: int, bits: int, wide: bool) -> str:
    """Return the text of `elementary.far_quadrant` and its callees, which a source contains once."""
    w = CudaBuilder(bits, wide)
    result = elementary.far_quadrant(w, "x", "y", plus)
    body = "\n".join(w.lines)
    head = f"static __device__ FAR_CALL {w.real} far_quadrant_{plus}({w.real} x, {w.real} y)"
    return once("FAR_TURNS", far_angles.cuda()) + once(
        f"FAR_{plus}_{bits}", f"{head} {{\n{body}\n  return {result};\n}}\n"
    )


def once(name: str, text: str) -> str:
    return f"#ifndef {name}\n#define {name}\n{text}#endif\n"
