"""From the tree of a kernel in CUDA C to a loop program.

Numbers have C's types. An unsigned number may be held as its value modulo 2^32 or 2^64 (`lazy`): it is
brought into range where that matters."""

from collections.abc import Callable

import numpy as np

from ..program import COMPARISONS, SIGNS, Block, LoopRefused, Scalar, literal
from ..scalar_frame import ScalarFrame
from ..writer import ONE, ZERO, NameScope
from .blocks import BlockGraph, assigned_in
from .parser import CFunction, CNode, CVariable, found_in
from .values import CNumber, CPointer, KernelSource, common_type, is_not_free, stored_type

MASK = literal(2**32 - 1, "i8")
OPERATIONS_OF_C = {sign: op for op, sign in SIGNS.items()}
CONSTANTS_OF_C = {
    "M_PI": np.pi, "M_E": np.e, "M_PI_2": np.pi / 2, "M_PI_4": np.pi / 4, "M_LN2": np.log(2.0),
    "M_SQRT2": np.sqrt(2.0), "M_1_PI": 1 / np.pi, "INFINITY": np.inf, "NAN": np.nan,
}  # fmt: skip
STATE = " at"  # the offset of a pointer


class KernelFrameOfC(ScalarFrame):
    """One call of a C function."""

    def __init__(self, source: KernelSource, f: CFunction, args: tuple, callers: tuple = ()):
        self.source, self.w, self.f, self.args = source, source.w, f, args
        self.ranges, self.callers = source.ranges, (*callers, f.name)
        self.prefix = f"{f.name}.{next(source.numbers)}." if callers else ""
        graph = BlockGraph(f)
        self.blocks = graph.blocks
        self.skipped: set[int] = set()
        super().__init__(graph.flow, source.regions)

    def run(self):
        if not self.prefix:
            for v in self.source.parsed.shared:
                self.source.shared[v] = self.new_array(v, None)
            for n in self.source.parsed.globals:
                self.statement(n)
        for v, x in zip(self.f.params, self.args, strict=True):
            self.assign_to(v, x)
        self.region(0, {})
        return self.w.scope.find(self.prefix + "return")

    def refuse(self, what: str) -> LoopRefused:
        return LoopRefused(f"{self.f.name}, line {self.w.line}: {what}")

    def key(self, v: CVariable) -> str:
        return v.name if v in self.source.names else self.prefix + v.name

    # --- of ControlFlow ---

    def moves(self, source, target) -> None:
        pass

    def statements(self, b) -> None:
        if b not in self.skipped:
            for s in self.blocks[b].statements:
                self.statement(s)

    def ending(self, b) -> tuple:
        block = self.blocks[b]
        self.w.line = block.line
        if block.end[0] == "branch":
            return "branch", self.truth(block.end[1]), *block.end[2:]
        if block.end[0] == "return" and block.end[1] is not None:
            self.w.set(self.prefix + "return", self.converted(self.number(block.end[1]), self.f.type).v)
        return block.end[:2] if block.end[0] == "jump" else ("return",)

    def assigned(self, blocks) -> set:
        names = {self.key(v) for v in assigned_in([self.blocks[b] for b in blocks])}
        return names | {n + STATE for n in names} | {self.prefix + "return"}

    def counted(self, header) -> tuple | None:
        block = self.blocks[header]
        c = block.counted
        if c is None:
            return None
        self.w.line = block.line
        one, stop = self.variable(c.variable), self.number(c.stop)
        kind = common_type(one, stop)
        if kind[0] == "f" or c.latch not in self.blocks:
            return None
        start, stop_at = (v.v if v.type in ("i4", "i8") else self.in_type(v, kind) for v in (one, stop))
        step = self.converted(self.number(c.step), "i8").v
        if c.sign < 0:
            step = self.learned("neg", (step,)) if step.number is None else literal(-step.number, "i8")
        if c.compare in ("<=", ">="):
            stop_at = self.learned("add" if c.compare == "<=" else "sub", (stop_at, ONE))
        low = self.ranges.of(start if c.sign > 0 else stop_at)
        self.skipped.add(c.latch)

        def enter(index: Scalar) -> None:
            if low is not None:
                self.ranges.least[index] = low
            self.w.set(self.key(c.variable), index)

        return (start, stop_at, step), enter, block.end[2], block.end[3]

    # --- statements ---

    def statement(self, s: CNode) -> None:
        self.w.line = s.line
        if s.kind == "declare":
            self.declared(*s.parts)
        elif s.parts[0].kind == "call":
            self.called(s.parts[0].parts[0], s.parts[0].parts[1], used=False)
        else:
            self.evaluate(s.parts[0])

    def declared(self, v: CVariable, init) -> None:
        if v.shared:
            if init is not None:
                raise self.refuse("a shared array with initial values")
            self.w.set(self.key(v), self.source.shared[v].base)
            self.w.set(self.key(v) + STATE, ZERO)
        elif v.dims:
            p = self.new_array(v, init)
            self.w.set(self.key(v), p)
            self.w.set(self.key(v) + STATE, ZERO)
        elif init is not None:
            if isinstance(init, list):
                raise self.refuse("braces around a number")
            self.assign_to(v, self.evaluate(init))

    def new_array(self, v: CVariable, init) -> CPointer:
        shape = []
        for d in v.dims or (CNode("number", 0, ("i4", 1)),):
            if d is None:
                size = {"f4": 4, "i4": 4, "u4": 4, "b1": 1}.get(v.type, 8)
                n = literal(self.source.dynamic_bytes // size, "i8")
            else:
                n = self.number(d).v
            if n.number is None or n.number < 1:
                raise self.refuse(f"the length of the array {v.name.split('.')[0]} is no number above 0")
            shape.append(n)
        array = self.w.allocate(stored_type(v.type), shape, v.name.split(".")[0], v.shared)
        p = CPointer(array, v.type, tuple([ZERO] * (len(shape) - 1)), ZERO)
        for k, x in enumerate(init or ()):
            if isinstance(x, list) or len(shape) > 1:
                raise self.refuse("initial values of an array of several axes")
            self.w.store(array, (literal(k, "i8"),), self.converted(self.number(x), v.type).v)
        return p

    def assign_to(self, v: CVariable, x):
        if v.pointer or v.dims:
            if not isinstance(x, CPointer) or x.type != v.type:
                raise self.refuse(
                    f"{v.name.split('.')[0]} is set to something else than a pointer of its type"
                )
            self.w.set(self.key(v), x.base)
            self.w.set(self.key(v) + STATE, x.at)
            return x
        if not isinstance(x, CNumber):
            raise self.refuse(f"{v.name.split('.')[0]} is set to something that is no number")
        if v.type == "same":
            v.type = x.type
        x = self.converted(x, v.type)
        if v.type == "u4":
            x = CNumber(self.in_range(x), "u4")
        x.v.name = x.v.name or v.name.split(".")[0]
        self.w.set(self.key(v), x.v)
        return x

    def called(self, name: str, args: tuple, used: bool):
        raise NotImplementedError

    # --- numbers ---

    def number(self, n: CNode) -> CNumber:
        x = self.evaluate(n)
        if not isinstance(x, CNumber):
            raise self.refuse("a pointer is used as a number")
        return x

    def pointer(self, n: CNode, what: str) -> CPointer:
        p = self.evaluate(n)
        if not isinstance(p, CPointer):
            raise self.refuse(f"{what} of something that is no pointer")
        return p

    def truth(self, n: CNode) -> Scalar:
        return self.converted(self.number(n), "b1").v

    def is_positive(self, v: Scalar) -> bool:
        low = self.ranges.of(v)
        return low is not None and low >= 0

    def in_range(self, x: CNumber) -> Scalar:
        """The value of an unsigned number of 32 bits, or of a signed one."""
        if x.type == "u4" and (x.state == "lazy" or (x.state == "index" and not self.is_positive(x.v))):
            v = self.w.compute("and", x.v, MASK)
            self.ranges.least[v] = 0
            return v
        if x.type == "u8" and x.state:
            raise self.refuse("an unsigned number of 64 bits that may be above 2^63")
        return x.v

    def in_type(self, x: CNumber, type: str) -> Scalar:
        """The value as a number of this type, in its range."""
        return self.in_range(self.converted(x, type))

    def converted(self, x: CNumber, type: str) -> CNumber:
        """C's conversion."""
        w, old = self.w, x.type
        if type == old:
            return x
        if type == "void":
            raise self.refuse("a value of type void")
        if type == "b1":
            return CNumber(w.cast(self.in_range(x) if old == "u4" else x.v, "b1"), type)
        if type[0] == "f":
            return CNumber(w.cast(self.in_range(x), type), type)
        if old in ("f4", "f8", "b1"):
            return CNumber(w.cast(x.v, "i8"), type, "lazy" if type[0] == "u" and old != "b1" else "")
        if type == "i4" and x.state != "index":
            half = literal(2**31, "i8")
            v = x.v.number
            if v is not None:
                return CNumber(literal((v + 2**31) % 2**32 - 2**31, "i8"), type)
            return CNumber(w.compute("sub", w.compute("and", w.compute("add", x.v, half), MASK), half), type)
        if type[0] == "i":
            v = self.in_range(x) if (old, type) == ("u4", "i8") else x.v
            return CNumber(v, type, x.state if x.state == "index" and type == "i8" else "")
        v = self.in_range(x) if type == "u8" and old == "u4" else x.v
        small = old in ("i4", "u4") and self.is_positive(v)
        return CNumber(v, type, "" if small or (type, old) == ("u8", "u4") else "lazy")

    # --- expressions ---

    def evaluate(self, n: CNode):
        self.w.line = n.line or self.w.line
        return getattr(self, "on_" + n.kind.replace(" ", "_"))(*n.parts)

    def on_number(self, type: str, value) -> CNumber:
        return CNumber(literal(value, stored_type(type)), type)

    def on_name(self, v):
        if isinstance(v, str):
            if v not in CONSTANTS_OF_C:
                raise self.refuse(f"{v} is not defined")
            return CNumber(literal(CONSTANTS_OF_C[v], "f8"), "f8")
        return self.variable(v)

    def variable(self, v: CVariable):
        if v in self.source.shared and not v.dims:  # a shared number
            return self.loaded(self.source.shared[v])
        if v in self.source.shared:
            return self.source.shared[v]
        x = self.w.get(self.key(v))
        if isinstance(x, CPointer):
            return x._replace(at=self.w.get(self.key(v) + STATE))
        if v.type == "u4":
            self.ranges.least.setdefault(x, 0)
        return CNumber(x, v.type, "lazy" if v.type == "u8" and not self.is_positive(x) else "")

    def on_index_of_thread(self, name: str) -> CNumber:
        if name not in self.source.special:
            raise self.refuse(f"{name} is not known")
        return CNumber(self.source.special[name], "u4", "index")

    def on_comma(self, a: CNode, b: CNode):
        self.evaluate(a)
        return self.evaluate(b)

    def on_cast(self, type: str, pointer: bool, n: CNode):
        x = self.evaluate(n)
        if isinstance(x, CPointer) or pointer:
            if not (pointer and isinstance(x, CPointer) and x.type == type):
                raise self.refuse("a cast of a pointer to another type")
            return x
        return self.converted(x, type)

    def on_element(self, base: CNode, at: CNode):
        return self.loaded(self.pointer_to(CNode("element", self.w.line, (base, at))))

    def index_of(self, x: CNumber) -> Scalar:
        if x.type[0] == "f":
            raise self.refuse("an index that is no integer")
        return self.w.cast(x.v, "i8")

    def moved(self, p: CPointer, by: Scalar) -> CPointer:
        return p._replace(at=by if p.at.number == 0 else self.learned("add", (p.at, by)))

    def loaded(self, p: CPointer):
        return CNumber(self.w.load(p.array, p.place), p.type)

    def pointer_to(self, n: CNode):
        """The place of a node that can be assigned to; a variable, or a pointer."""
        self.w.line = n.line
        if n.kind == "name" and isinstance(n.parts[0], CVariable):
            v = n.parts[0]
            return self.source.shared[v] if v in self.source.shared and not v.dims else v
        if n.kind == "unary" and n.parts[0] == "*":
            p = self.evaluate(n.parts[1])
        elif n.kind == "element":
            chain, at = n, list[Scalar]()
            while chain.kind == "element":
                at.insert(0, self.index_of(self.number(chain.parts[1])))
                chain = chain.parts[0]
            p = self.evaluate(chain)
            if isinstance(p, CPointer):
                return self.placed(p, at)
        else:
            p = None
        if not isinstance(p, CPointer):
            raise self.refuse("an assignment to something that has no place")
        return p

    def placed(self, p: CPointer, at: list[Scalar]) -> CPointer:
        """p[at[0]][at[1]].. of an array, or of a pointer."""
        axes = len(p.array.shape)
        if len(at) == axes == 1:
            return self.moved(p, at[0])
        if len(at) != axes:
            raise self.refuse(f"{len(at)} indices of an array of {axes} axes")
        return p._replace(lead=tuple(at[:-1]), at=at[-1])

    def on_assign(self, op: str, target: CNode, value: CNode):
        x = self.evaluate(value)
        place = self.pointer_to(target)
        if op:
            old = self.variable(place) if isinstance(place, CVariable) else self.loaded(place)
            x = self.binary(op, old, x)
        if isinstance(place, CVariable):
            return self.assign_to(place, x)
        if not isinstance(x, CNumber):
            raise self.refuse("a pointer is stored in an array")
        x = self.converted(x, place.type)
        self.w.store(place.array, place.place, self.in_range(x))
        return x

    def on_step(self, sign: str, target: CNode, before: bool):
        place = self.pointer_to(target)
        old = self.variable(place) if isinstance(place, CVariable) else self.loaded(place)
        new = self.on_assign(sign, target, CNode("number", self.w.line, ("i4", 1)))
        return new if before else old

    def on_unary(self, op: str, n: CNode):
        if op == "&":
            p = self.pointer_to(n)
            if isinstance(p, CVariable):
                raise self.refuse("the address of a variable")
            return p
        if op == "*":
            return self.loaded(self.pointer(n, "*"))
        x = self.number(n)
        if op == "!":
            return CNumber(self.w.compute("not", self.converted(x, "b1").v), "b1")
        if op == "-" and x.type[0] == "f":
            return CNumber(
                literal(-x.v.number, x.type) if x.v.number is not None else self.w.compute("neg", x.v), x.type
            )
        return x if op == "+" else self.binary("-", CNumber(literal(-1 if op == "~" else 0, "i8"), "i4"), x)

    def on_binary(self, op: str, a: CNode, b: CNode):
        if op in ("&&", "||"):
            return self.both(op, a, b)
        x = self.evaluate(a)
        return self.binary(op, x, self.evaluate(b))

    def both(self, op: str, a: CNode, b: CNode) -> CNumber:
        x = self.truth(a)
        if not found_in(b, is_not_free):
            return CNumber(self.w.compute("and" if op == "&&" else "or", x, self.truth(b), type="b1"), "b1")
        known = lambda: literal(op == "||", "b1")
        way = (lambda: self.truth(b), known) if op == "&&" else (known, lambda: self.truth(b))
        return CNumber(self.either(x, *way), "b1")

    def either(self, test: Scalar, then: Callable, other: Callable) -> Scalar:
        w, name = self.w, f"{self.prefix}either{next(self.source.numbers)}"
        w.branch(test, lambda: w.set(name, then()), lambda: w.set(name, other()))
        return w.get(name)

    def on_choose(self, test: CNode, a: CNode, b: CNode) -> CNumber:
        c, w = self.truth(test), self.w
        if found_in((a, b), lambda n: n.kind in ("assign", "step")):
            raise self.refuse("an assignment within ?:")
        trial = lambda n: w.scoped(Block(), NameScope(w.scope), lambda: self.number(n))
        kind = common_type(trial(a), trial(b))
        if c.number is not None:
            return self.converted(self.number(a if c.number else b), kind)
        x, y = [lambda n=n: self.in_type(self.number(n), kind) for n in (a, b)]
        if found_in((a, b), is_not_free):
            return CNumber(self.either(c, x, y), kind)
        return CNumber(w.compute("select", c, x(), y(), type=stored_type(kind)), kind)

    def binary(self, op: str, x, y):
        if isinstance(x, CPointer) or isinstance(y, CPointer):
            return self.pointers(op, x, y)
        kind = common_type(x, y) if op not in ("<<", ">>") else common_type(x, x)
        name = OPERATIONS_OF_C.get(op, op)
        if kind[0] == "f":
            if op not in ("+", "-", "*", "/") and name not in COMPARISONS:
                raise self.refuse(f"{op} of numbers that are no integers")
            a, b = self.converted(x, kind).v, self.converted(y, kind).v
            return CNumber(self.w.compute(name, a, b), "b1" if name in COMPARISONS else kind)
        if name in COMPARISONS:
            return CNumber(self.compared(name, x, y, kind), "b1")
        if op in ("/", "%"):
            return CNumber(self.divided(op, self.in_type(x, kind), self.in_type(y, kind)), kind)
        a, b = self.w.cast(x.v, "i8"), self.w.cast(y.v, "i8")
        if op == ">>":
            return self.shifted_right(x, a, b, kind)
        small = kind in ("u4", "i8") and op in ("+", "-", "*") and self.are_indices(op, kind, (x, y))
        if kind == "u8":  # lengths and indices are far from 2^63, unless a large number is at work
            small = op in ("+", "*") and all(self.is_small(v) for v in (x, y))
        if kind[0] == "u" and not small:
            return CNumber(self.w.compute(name, a, b), kind, "lazy")
        return CNumber(self.learned(name, (a, b)), kind, "index" if small and kind != "u8" else "")

    def are_indices(self, op: str, kind: str, given: tuple[CNumber, CNumber]) -> bool:
        """Is the result far from the limits of 32 bits?  Grids are."""
        return any(v.state == "index" for v in given) and all(
            v.state == "index"
            or abs(v.v.number if v.v.number is not None else 2**31) < 2**16
            or (kind == "u4" and op != "*" and v.type in ("i4", "b1"))
            for v in given
        )

    def is_small(self, x: CNumber) -> bool:
        if x.v.number is not None:
            return 0 <= x.v.number < 2**31
        return x.state != "lazy" and (x.type[0] == "u" or self.is_positive(x.v))

    def compared(self, name: str, x: CNumber, y: CNumber, kind: str) -> Scalar:
        if kind == "u8":
            a, b = self.converted(x, kind), self.converted(y, kind)
            low = literal(-(2**63), "i8")
            if a.state or b.state:
                return self.w.compute(name, *[self.w.compute("xor", v.v, low) for v in (a, b)])
            return self.w.compute(name, a.v, b.v)
        return self.w.compute(name, self.in_type(x, kind), self.in_type(y, kind))

    def shifted_right(self, x: CNumber, a: Scalar, b: Scalar, kind: str) -> CNumber:
        if kind == "u8" and x.state:
            if not b.number:
                raise self.refuse("an unsigned number of 64 bits is shifted by a number that is computed")
            return CNumber(
                self.w.compute("and", self.learned("shr", (a, b)), literal(2 ** (64 - b.number) - 1, "i8")),
                kind,
            )
        return CNumber(self.learned("shr", (self.in_type(x, kind), b)), kind)

    def divided(self, op: str, a: Scalar, b: Scalar) -> Scalar:
        """C's division, towards zero."""
        w = self.w
        if a.number is not None and b.number:
            q = abs(a.number) // abs(b.number) * (1 if (a.number < 0) == (b.number < 0) else -1)
            return literal(q if op == "/" else a.number - q * b.number, "i8")
        if self.is_positive(a) and self.is_positive(b):
            return self.learned("floordiv" if op == "/" else "mod", (a, b))
        q = w.compute("floordiv", w.compute("abs", a), w.compute("abs", b))
        differ = w.compute(
            "ne", w.cast(w.compute("lt", a, ZERO), "i8"), w.cast(w.compute("lt", b, ZERO), "i8")
        )
        q = w.compute("select", differ, w.compute("neg", q), q, type="i8")
        return q if op == "/" else w.compute("sub", a, w.compute("mul", q, b))

    def pointers(self, op: str, x, y):
        if op == "+" and isinstance(y, CPointer):
            x, y = y, x
        if isinstance(y, CNumber) and op in ("+", "-"):
            by = self.index_of(y)
            return self.moved(x, self.learned("sub", (ZERO, by)) if op == "-" else by)
        if op == "-" and isinstance(x, CPointer) and isinstance(y, CPointer) and x.base == y.base:
            return CNumber(self.w.compute("sub", x.at, y.at), "i8")
        raise self.refuse(f"{op} of pointers")
