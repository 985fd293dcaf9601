"""Operations on scalars as LLVM text."""

from ..kernels.emit.elementary import emit_operation, is_called_function
from ..kernels.emit.llvm_builder import Builder
from .program import COMPARISONS, Compute

REGISTER = {"f8": "double", "f4": "float", "i8": "i64", "b1": "i1"}


class ScalarText:
    """Writes the operations of one function; `routines` are the functions that it calls."""

    def __init__(self) -> None:
        self.routines = {}
        self.builders = {"f8": Builder(1, 64), "f4": Builder(1, 32)}
        b = self.b = self.builders["f8"]
        for other in self.builders.values():
            other.lines, other.slots, other.fresh, other.labels = b.lines, b.slots, b.fresh, b.labels
            other.routines, other.attributes = self.routines, "noinline"

    def must(self, ok: str, code: str) -> None:
        raise NotImplementedError

    def floor_division(self, x: str, y: str) -> tuple[str, str]:
        """Python's x // y and x % y; y is not zero."""
        b = self.b
        if y.lstrip("-").isdigit() and int(y) == -1:
            return b(f"sub i64 0, {x}"), "0"
        q, r = b(f"sdiv i64 {x}, {y}"), b(f"srem i64 {x}, {y}")
        signs = b(f"xor i64 {r}, {y}")
        odd = b(f"and i1 {b(f'icmp ne i64 {r}, 0')}, {b(f'icmp slt i64 {signs}, 0')}")
        return b(f"sub i64 {q}, {b(f'zext i1 {odd} to i64')}"), b(
            f"add i64 {r}, {b(f'select i1 {odd}, i64 {y}, i64 0')}"
        )

    def computed(self, op: str, kind: str, x: list[str], s) -> str:
        b = self.b
        if op == "cast":
            return self.cast(s.args[0].type, kind, x[0])
        of = s.args[-1].type if isinstance(s, Compute) else kind
        if op == "select":
            return b(f"select i1 {x[0]}, {REGISTER[kind]} {x[1]}, {REGISTER[kind]} {x[2]}")
        if of in self.builders:
            return self.on_floats(self.builders[of], op, x)
        if op in COMPARISONS:
            return b(f"icmp {op if op in ('eq', 'ne') else 's' + op} {REGISTER[of]} {x[0]}, {x[1]}")
        if op in ("floordiv", "mod"):
            self.must(b(f"icmp ne i64 {x[1]}, 0"), str(s.line))
            return self.floor_division(*x)[op == "mod"]
        if op == "neg":
            return b(f"sub i64 0, {x[0]}")
        if op == "not":
            return b(f"xor i1 {x[0]}, true")
        if op in ("min", "max"):
            first = b(f"icmp {'slt' if op == 'min' else 'sgt'} i64 {x[0]}, {x[1]}")
            return b(f"select i1 {first}, i64 {x[0]}, i64 {x[1]}")
        if op == "abs":
            return b(f"select i1 {b(f'icmp slt i64 {x[0]}, 0')}, i64 {b(f'sub i64 0, {x[0]}')}, i64 {x[0]}")
        return b(f"{'ashr' if op == 'shr' else op} {REGISTER[kind]} {x[0]}, {x[1]}")

    def on_floats(self, f: Builder, op: str, x: list[str]) -> str:
        if op == "times0":
            return f.select(f.compare("eq", x[0], f.c(0.0)), f.c(0.0), f.mul(*x))
        if op == "primal":
            return x[0]
        return f.call_function(op, *x) if is_called_function(op) else emit_operation(f, op, *x)

    def cast(self, old: str, kind: str, x: str) -> str:
        b, f, t = self.b, REGISTER[old], REGISTER[kind]
        if kind == "b1":
            return b(f"fcmp une {f} {x}, 0.0") if old in self.builders else b(f"icmp ne {f} {x}, 0")
        if old == "b1":
            return b(f"zext i1 {x} to i64") if kind == "i8" else b(f"uitofp i1 {x} to {t}")
        if old == "i8":
            return b(f"sitofp i64 {x} to {t}")
        if kind == "i8":
            return b(f"call i64 @llvm.fptosi.sat.i64.{'f64' if old == 'f8' else 'f32'}({f} {x})")
        return b(f"{'fpext' if kind == 'f8' else 'fptrunc'} {f} {x} to {t}")
