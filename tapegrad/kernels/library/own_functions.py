"""exp, log and their kin of elementary.py for kernels written by hand: as functions of Numba, which the loops of a twin call and LLVM
vectorises, and as CUDA C, `own_exp` and so on, with the same bits."""

import re
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..emit import elementary
from ..emit.cuda_builder import BITS, function

KINDS = {64: ("double", "long long"), 32: ("float", "int")}
CALL = re.compile(r"\bown_(\w+)\(")


def device_functions(source: str) -> str:
    """The text of the functions own_... that the source calls, for float and double."""
    names = sorted({n for n in CALL.findall(source) if n in elementary.FUNCTIONS})
    made = []
    for bits, (real, whole) in KINDS.items() if names else ():
        text = "\n".join([function(n, bits) for n in names])
        made.append(BITS.format(real=real, whole=whole, integer=whole) + re.sub(r"\breal\b", real, re.sub(r"\bwhole\b", whole, text)))
    return "\n".join(made) + "\n"


class Builder:
    """The operations that elementary.py writes its functions in, as LLVM instructions in a function of Numba."""

    def __init__(self, builder: ir.IRBuilder, bits: int):
        self.b, self.bits = builder, bits
        self.real, self.whole = ir.DoubleType() if bits == 64 else ir.FloatType(), ir.IntType(bits)
        self.add, self.sub, self.mul, self.div, self.neg = builder.fadd, builder.fsub, builder.fmul, builder.fdiv, builder.fneg
        self.fma, self.select = builder.fma, builder.select
        self.and_, self.or_, self.not_ = builder.and_, builder.or_, builder.not_

    def c(self, x: float) -> Any:
        return ir.Constant(self.real, x)

    def fnma(self, a, b, c):
        return self.fma(self.neg(a), b, c)

    def fms(self, a, b, c):
        return self.fma(a, b, self.neg(c))

    def rcp(self, a):
        return self.div(self.c(1.0), a)

    def _unary(self, name: str, a):
        return self.b.call(self.b.module.declare_intrinsic(f"llvm.{name}", [self.real]), [a])

    def floor(self, a):
        return self._unary("floor", a)

    def sqrt(self, a):
        return self._unary("sqrt", a)

    def abs(self, a):
        return self._unary("fabs", a)

    def lt(self, a, b):
        return self.b.fcmp_ordered("<", a, b)

    def gt(self, a, b):
        return self.b.fcmp_ordered(">", a, b)

    def eq(self, a, b):
        return self.b.fcmp_ordered("==", a, b)

    def isnan(self, a):
        return self.b.fcmp_unordered("uno", a, a)

    def to_int(self, a):
        return self.b.fptosi(a, self.whole)

    def from_int(self, a):
        return self.b.sitofp(a, self.real)

    def to_bits(self, a):
        return self.b.bitcast(a, self.whole)

    def from_bits(self, a):
        return self.b.bitcast(a, self.real)

    def iadd(self, a, n: int):
        return self.b.add(a, self.whole(n))

    def iand(self, a, n: int):
        return self.b.and_(a, self.whole(n))

    def shl(self, a, n: int):
        return self.b.shl(a, self.whole(n))

    def shr(self, a, n: int):
        return self.b.lshr(a, self.whole(n))

    def odd(self, a):
        return self.b.icmp_signed("!=", self.iand(a, 1), self.whole(0))


def _numba(name: str) -> Any:
    @intrinsic
    def f(typing, x):
        if not isinstance(x, types.Float):
            return None

        def generate(context, builder, signature, args):
            return elementary.FUNCTIONS[name](Builder(builder, x.bitwidth), args[0])

        return x(x), generate

    return f


cos, exp, expm1, log, log1p, sin, tanh = [_numba(name) for name in ("cos", "exp", "expm1", "log", "log1p", "sin", "tanh")]


@intrinsic
def fma(typing, a, b, c):
    """a b + c with one rounding, as fma of CUDA C; the three of one type."""

    def generate(context, builder, signature, args):
        return builder.fma(*args)

    return a(a, a, a), generate


@intrinsic
def power_of_two(typing, x):
    """The exponent of x without sign and fraction."""

    def generate(context, builder, signature, args):
        b = Builder(builder, x.bitwidth)
        return b.from_bits(b.iand(b.to_bits(args[0]), 0x7FF0 << 48 if x.bitwidth == 64 else 0x7F80 << 16))

    return x(x), generate
