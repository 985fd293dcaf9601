"""Calls in CUDA C: functions of the text, of `math.h` and of CUDA, and methods of arrays."""

import functools
from typing import Any

import numpy as np
import scipy.special

from ..numba_device import ATOMICS
from ..program import COMPARISONS, Barrier, Scalar, literal
from ..scalar_frame import MATHS
from .front import KernelFrameOfC
from .parser import CFunction, CNode
from .values import CNumber, common_type, stored_type

C_MATHS: dict[str, Any] = {
    **{name: getattr(np, name, MATHS.get(name)) for name in (
        "sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
        "sqrt", "cbrt", "hypot", "floor", "ceil", "trunc", "rint", "fmod", "fmin", "fmax", "fabs", "pow",
        "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma")},
    "tgamma": scipy.special.gamma, "erfcx": scipy.special.erfcx, "normcdf": scipy.special.ndtr,
    "exp10": scipy.special.exp10, "rsqrt": None, "fma": None, "fdivide": None,
}  # fmt: skip


class CallFrameOfC(KernelFrameOfC):
    """One call of a C function, with the calls in it."""

    def lengths(self, n: CNode) -> tuple[Scalar, ...]:
        """The shape of an array, or of a part of it: x[i] of an array of two axes."""
        fixed = 0
        while n.kind == "element":
            n, fixed = n.parts[0], fixed + 1
        return self.pointer(n, "the length").array.shape[fixed:]

    def on_length(self, n: CNode, axis: int) -> CNumber:
        return CNumber(self.lengths(n)[axis], "i8")

    def on_size(self, n: CNode) -> CNumber:
        return CNumber(functools.reduce(lambda a, b: self.learned("mul", (a, b)), self.lengths(n)), "i8")

    def on_call(self, name: str, args: tuple):
        return self.called(name, args, used=True)

    def called(self, name: str, args: tuple, used: bool):
        w = self.w
        if name in self.source.parsed.functions:
            return self.inlined(self.source.parsed.functions[name], args, used)
        if name == "__syncthreads" and not used:
            w.put(Barrier())
            return None
        op = ATOMICS.get(name.removeprefix("atomic").lower())
        if name.startswith("atomic") and op is not None and not used:
            p = self.pointer(args[0], name)
            if p.type == "u8" and op in COMPARISONS:
                raise self.refuse(f"{name} to this place")
            w.atomic(op, p.array, p.place, self.in_type(self.number(args[1]), p.type))
            return None
        if name.startswith("atomic"):
            raise self.refuse(
                f"{name}: its result depends on the order of threads; atomicAdd, atomicSub, atomicMax and "
                f"atomicMin as statements are known"
            )
        if name == "__ldg":
            return self.loaded(self.pointer(args[0], name))
        return self.mathematical(name, [self.number(a) for a in args])

    def inlined(self, f: CFunction, args: tuple, used: bool):
        if f.name in self.callers:
            raise self.refuse(f"{f.name} calls itself")
        if len(args) != len(f.params):
            raise self.refuse(f"{f.name} takes {len(f.params)} arguments")
        line = self.w.line
        found = type(self)(self.source, f, tuple([self.evaluate(a) for a in args]), self.callers).run()
        self.w.line = line
        if used and found is None:
            raise self.refuse(f"{f.name} returns nothing")
        return None if found is None else CNumber(found, f.type)

    def mathematical(self, name: str, x: list[CNumber]) -> CNumber:
        if name.startswith("numpy."):
            kind = functools.reduce(lambda a, b: CNumber(a.v, common_type(a, b)), x).type
            v = tuple([self.in_type(y, kind) for y in x])
            return CNumber(self.apply(getattr(np, name[6:]), v, stored_type(kind)), kind)
        bare = name.removeprefix("__")
        short = bare[:-1] if bare.endswith("f") and bare[:-1] in C_MATHS else bare
        if name in ("min", "max", "abs") and all(v.type[0] != "f" for v in x):
            kind = common_type(x[0], x[-1])
            return CNumber(self.learned(name, tuple([self.in_type(v, kind) for v in x])), kind)
        short = {"min": "fmin", "max": "fmax", "abs": "fabs"}.get(short, short)
        if bare == "isnan":
            return CNumber(self.w.compute("isnan", x[0].v, type="b1"), "b1")
        if short not in C_MATHS:
            raise self.refuse(f"the function {name} is not known")
        single = bare != short and short + "f" == bare or all(v.type == "f4" for v in x)
        kind = "f4" if single else "f8"
        v = tuple([self.converted(y, kind).v for y in x])
        w, f = self.w, C_MATHS[short]
        if short == "fma":
            return CNumber(w.compute("add", w.compute("mul", v[0], v[1]), v[2]), kind)
        if short == "fdivide":
            return CNumber(w.compute("div", *v), kind)
        if short == "rsqrt":
            return CNumber(w.compute("div", literal(1.0, kind), self.apply(np.sqrt, v, kind)), kind)
        if f.nin != len(v):
            raise self.refuse(f"{name} takes {f.nin} arguments")
        return CNumber(self.apply(f, v, kind), kind)
