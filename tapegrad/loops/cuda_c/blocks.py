"""The body of a C function as a graph of blocks, for `scalar_frame`."""

from collections.abc import Iterable
from typing import NamedTuple

from ..numba_ir import graph_of_blocks
from ..program import LoopRefused
from .parser import CFunction, CNode, CVariable, found_in, nodes

TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


class CountedLoop(NamedTuple):
    """for (v = ..; v `compare` stop; v += step): `latch` is the block that steps."""

    variable: CVariable
    compare: str
    stop: CNode
    sign: int
    step: CNode
    latch: int


class CBlock:
    """Statements, and ("jump", target), ("branch", test, then, other) or ("return", expression or None)."""

    def __init__(self) -> None:
        self.statements: list[CNode] = []
        self.end: tuple = ()
        self.line = 0
        self.counted: CountedLoop | None = None

    @property
    def terminator(self) -> "CBlock":
        return self

    def get_targets(self) -> tuple:
        return {"jump": self.end[1:], "branch": self.end[2:]}.get(self.end[0], ())


class BlockGraph:
    """The blocks of a function; the first has the number 0."""

    def __init__(self, f: CFunction):
        self.blocks: dict[int, CBlock] = {}
        self.open = self.new()
        self.targets: list[tuple[int, int]] = []  # of break and continue
        self.statement(f.body)
        self.close(("return", None), f.line)
        reached, todo = set(), [0]
        while todo:
            b = todo.pop()
            if b not in reached:
                reached.add(b)
                todo += self.blocks[b].get_targets()
        self.blocks = {b: x for b, x in self.blocks.items() if b in reached}
        self.flow = graph_of_blocks(self.blocks)

    def new(self) -> int:
        self.blocks[len(self.blocks)] = CBlock()
        return len(self.blocks) - 1

    def close(self, end: tuple, line: int, following: int | None = None) -> None:
        """End the open block; `following`, or a block that nothing reaches, is open then."""
        self.blocks[self.open].end, self.blocks[self.open].line = end, line
        self.open = self.new() if following is None else following

    def statement(self, s: CNode) -> None:
        match s.kind:
            case "block":
                for t in s.parts:
                    self.statement(t)
            case "if":
                test, then, other = s.parts
                first, second, join = self.new(), self.new(), self.new()
                self.close(("branch", test, first, second), s.line, first)
                self.statement(then)
                self.close(("jump", join), s.line, second)
                if other is not None:
                    self.statement(other)
                self.close(("jump", join), s.line, join)
            case "for":
                self.loop(s)
            case "do":
                body, test, after = self.new(), self.new(), self.new()
                self.close(("jump", body), s.line, body)
                self.targets.append((after, test))
                self.statement(s.parts[0])
                self.close(("jump", test), s.line, test)
                self.close(("branch", s.parts[1], body, after), s.line, after)
                self.targets.pop()
            case "return":
                self.close(("return", s.parts[0]), s.line)
            case "break" | "continue":
                if not self.targets:
                    raise LoopRefused(f"line {s.line}: {s.kind} outside of a loop")
                self.close(("jump", self.targets[-1][s.kind == "continue"]), s.line)
            case _:
                self.blocks[self.open].statements.append(s)

    def loop(self, s: CNode) -> None:
        first, test, step, body = s.parts
        for t in first:
            self.statement(t)
        header, inner, latch, after = self.new(), self.new(), self.new(), self.new()
        self.close(("jump", header), s.line, header)
        end = ("jump", inner) if test is None else ("branch", test, inner, after)
        self.close(end, s.line, inner)
        self.targets.append((after, latch))
        self.statement(body)
        self.close(("jump", latch), s.line, latch)
        if step is not None:
            self.blocks[self.open].statements.append(CNode("expression", s.line, (step,)))
        self.close(("jump", header), s.line, after)
        self.targets.pop()
        if first and test is not None and step is not None:
            self.blocks[header].counted = counted_loop(first, test, step, body, latch)


def variables_set(x) -> set[CVariable]:
    """The variables that a tree declares or assigns."""
    found = set()
    for n in nodes(x):
        target = {"assign": 1, "step": 1, "declare": 0}.get(n.kind)
        if target is not None:
            v = n.parts[target]
            while isinstance(v, CNode):
                v = v.parts[0] if v.kind == "name" else None
            if v is not None and not isinstance(v, str):
                found.add(v)
    return found


def counted_loop(first: tuple, test: CNode, step: CNode, body: CNode, latch: int) -> CountedLoop | None:
    """The loop as one over a range, if it is such a loop."""
    if first[0].kind != "declare" or test.kind != "binary" or test.parts[0] not in TURNED:
        return None
    v, (compare, left, right) = first[0].parts[0], test.parts
    starts = dict([d.parts for d in first if d.kind == "declare"])
    if right == CNode("name", right.line, (v,)):
        compare, left, right = TURNED[compare], right, left
    if step.kind == "step":
        sign, amount, target = step.parts[0], CNode("number", step.line, ("i4", 1)), step.parts[1]
    elif step.kind == "assign" and step.parts[0] in ("+", "-"):
        sign, target, amount = step.parts
    else:
        return None
    if amount.kind == "name" and amount.parts[0] not in variables_set(body):
        amount = starts.get(amount.parts[0]) or amount
    if amount.kind == "unary" and amount.parts[0] == "-" and amount.parts[1].kind == "number":
        sign, amount = "-" if sign == "+" else "+", amount.parts[1]
    down = sign == "-"
    known = left.kind == target.kind == "name" and left.parts[0] is target.parts[0] is v
    changed = variables_set(body) | {v}

    def stays(n: CNode) -> bool:
        """Is the value of n the same in each trip?"""
        match n.kind:
            case "name":
                return n.parts[0] not in changed
            case "element":
                base = n.parts[0]
                return base.kind == "name" and isinstance(base.parts[0], CVariable) and base.parts[0].constant
            case "assign" | "step" | "call" | "unary":
                return n.kind == "unary" and n.parts[0] in "-+~!"
        return True

    if not known or v.type[0] not in "iu" or v.pointer or v in variables_set(body):
        return None
    if (v.type[0] == "u" and down) or down != (compare[0] == ">"):
        return None
    if found_in((right, amount), lambda n: not stays(n)):
        return None
    return CountedLoop(v, compare, right, -1 if down else 1, amount, latch)


def assigned_in(blocks: Iterable[CBlock]) -> set[CVariable]:
    return set().union(*[variables_set((b.statements, b.end)) for b in blocks])
