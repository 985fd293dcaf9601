"""What the backward sweep of a program must know of the forward sweep.

A value is recomputed where that takes only parameters, indices of loops and arrays that are not written
later. Others are saved on a stack each, at the end of their block; the backward sweep takes them off at the
beginning
of the same block, so that the order is always right.  Memory that is written later is not read again."""

from typing import Any

from .program import (
    FLOATS,
    Allocate,
    Barrier,
    Block,
    Compute,
    DoWhile,
    For,
    If,
    Load,
    Loop,
    LoopProgram,
    LoopStack,
    Pop,
    Push,
    Scalar,
    Store,
    captured,
    walk,
    written,
)
from .scalars import passes, pull, reads
from .writer import ZERO


class SavedValues:
    """The values that the rules of active statements read, and how each of them is found again."""

    def __init__(self, p: LoopProgram, wrt: Any):
        self.active = active_set(p, wrt)
        self.written = written(p)
        self.top: dict = {}  # statement -> the number of the statement of the body that it is in
        self.last: dict = {}  # array -> the last number that writes it
        outer = [*p.arrays, *[s.array for s in p.body.statements if isinstance(s, Allocate)]]
        for k, s in enumerate(p.body.statements):
            for t in (s, *[t for b in s.blocks for t in walk(b)]):
                self.top[t] = k
                if isinstance(t, Store):
                    self.last[t.array] = k
        self.last = {a: self.last.get(a, -1) for a in outer}
        self.home: dict = {}  # value -> its block
        self.definition: dict = {}
        self.trips: dict = {}  # loop that counts its trips -> the count
        self.arrays: dict = {}  # block -> its active arrays
        self.segmented: dict = {}  # loop in segments -> the arrays that its segments begin with
        self.find_homes(p)
        self.needed: dict = {}
        self.plain: dict = {}
        for s in p.body.statements:
            if p.launch is None and isinstance(s, For) and self.worth_segments(s):
                self.segmented[s] = []
        self.visit(p.body)
        self.saved: dict[Block, list[Scalar]] = {}
        self.again: dict[Block, list] = {}  # statements that are run again
        self.stacks: dict = {}
        self.decide(p)

    def find_homes(self, p: LoopProgram) -> None:
        def visit(block: Block) -> None:
            for s in block.statements:
                if isinstance(s, DoWhile):
                    self.trips[s] = Scalar("i8", "trips")
                    self.home[self.trips[s]] = block
                for o in s.outs:
                    self.home[o], self.definition[o] = block, s
                if isinstance(s, Allocate) and s.array in self.active:
                    self.arrays.setdefault(block, []).append(s)
                for b in s.blocks:
                    for v in s.entering:
                        self.home[v] = b
                        if isinstance(s, For) and v is s.index:
                            self.definition[v] = s
                    visit(b)

        visit(p.body)

    def worth_segments(self, s: For) -> bool:
        inside = list(walk(s.body))
        return (
            any(isinstance(t, (For, DoWhile)) for t in inside)
            and any(isinstance(t, Store) and t.array in self.last for t in inside)
            and is_touched(s, self.active)
        )

    # --- what is needed ---

    def need(self, v: Scalar) -> None:
        if v.number is None and v in self.home and v not in self.needed:
            self.needed[v] = None
            s: Any = self.definition.get(v)
            if self.is_free(v) and not (isinstance(s, For) and v is s.index):
                for a in s.operands:
                    self.need(a)

    def is_free(self, v: Scalar) -> bool:
        """Is v found again without anything saved?"""
        if v.number is not None or v not in self.home:
            return True  # a literal or a parameter
        if v not in self.plain:
            s = self.definition.get(v)
            self.plain[v] = (isinstance(s, For) and v is s.index) or (
                isinstance(s, (Compute, Load))
                and (isinstance(s, Compute) or self.stays(s))
                and all(map(self.is_free, s.operands))
            )
        return self.plain[v]

    def stays(self, s: Load) -> bool:
        """Does the array still hold what was loaded when the backward sweep begins with this statement?"""
        return self.last.get(s.array, self.top[s]) < self.top[s]

    def visit(self, block: Block) -> None:
        for s in block.statements:
            if not is_touched(s, self.active):
                continue
            match s:
                case Compute() if passes(s.op) and s.op != "cast":
                    given = (ZERO, s.out, *s.args)
                    for k, a in enumerate(s.args):
                        if a in self.active:
                            for j in reads(pull(s.op, k), len(given)):
                                self.need(given[j])
                case Load() | Store():
                    for i in s.index:
                        self.need(i)
                case Allocate():
                    for n in s.array.shape:
                        self.need(n)
                case For():
                    for b in s.bounds:
                        self.need(b)
                    if s in self.segmented:
                        for v in captured(s):
                            self.need(v)
                case DoWhile():
                    self.need(self.trips[s])
                case If():
                    self.need(s.test)
            for b in s.blocks:
                self.visit(b)

    # --- how it is found again ---

    def decide(self, p: LoopProgram) -> None:
        def visit(block: Block, entering: Any) -> None:
            saved, again = self.saved.setdefault(block, []), self.again.setdefault(block, [])
            for v in entering:
                if v in self.needed and not self.is_free(v):
                    saved.append(v)
            for s in block.statements:
                outs = [
                    o
                    for o in (*s.outs, *([self.trips[s]] if isinstance(s, DoWhile) else []))
                    if o in self.needed
                ]
                cheap = isinstance(s, Compute) and all(
                    a in self.needed or a.number is not None or a not in self.home for a in s.args
                )
                if outs and (cheap or self.is_free(outs[0])):
                    again.append(s)
                else:
                    saved += outs
                for b in s.blocks:
                    visit(b, s.entering)
            for v in saved:
                self.stacks[v] = LoopStack(v.type, v.name)

        visit(p.body, ())
        for s in self.segmented:
            inside = {t.array for t in walk(s.body) if isinstance(t, Allocate)}
            touched = dict.fromkeys(t.array for t in walk(s.body) if isinstance(t, (Load, Store)))
            self.segmented[s] = [a for a in touched if a in self.written and a not in inside]
        for s in list(self.segmented):
            if not any(self.saved[b] for t in (s, *walk(s.body)) for b in t.blocks) or any(
                isinstance(t, Pop) for t in walk(s.body)
            ):
                del self.segmented[s]


def active_set(p: LoopProgram, wrt: Any) -> set:
    """The active members of the program; `wrt` are active parameters."""
    active = set(wrt)
    size = -1
    while size != len(active):
        size = len(active)
        spread(p.body, active)
    return active


def relate(active: set, pairs: Any) -> None:
    """Mark the second of each pair where the first is active."""
    active.update([b for a, b in pairs if a in active and b.type in FLOATS])


def spread(block: Block, active: set) -> None:
    for s in block.statements:
        match s:
            case Compute() if passes(s.op):
                relate(active, [(a, s.out) for a in s.args])
            case Load():
                relate(active, [(s.array, s.out)])
            case Store():
                relate(active, [(s.value, s.array)])
            case Push():
                relate(active, [(s.value, s.stack)])
            case Pop():
                relate(active, [(s.stack, s.out)])
            case Loop():
                relate(active, zip(s.inits, s.args, strict=True))
                spread(s.body, active)
                relate(active, zip(s.body.yields, s.args, strict=True))
                relate(active, zip([*s.args, *s.inits], [*s.results, *s.results], strict=True))
                relate(active, zip(s.body.yields, s.results, strict=True))
            case If():
                for b in s.blocks:
                    spread(b, active)
                    relate(active, zip(b.yields, s.results, strict=True))


def is_touched(s: Any, active: set) -> bool:
    """Does the adjoint of this statement do anything?"""
    if isinstance(s, (Store, Allocate, Push)):
        return (s.stack if isinstance(s, Push) else s.array) in active
    if isinstance(s, Barrier):
        return True
    return any(v in active for v in s.outs) or any(
        is_touched(t, active) for b in s.blocks for t in b.statements
    )
