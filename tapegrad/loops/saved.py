"""What the backward sweep of a program must know of the forward sweep.

A value is recomputed where that takes only parameters, indices of loops and arrays that are not written
later. Others are saved on a stack each, at the end of their block; the backward sweep takes them off at the
beginning
of the same block, so that the order is always right.

Memory that is written later is not read again, unless its stores are undone: the forward sweep of a segment
saves what a store overwrites, and the backward sweep puts it back.  Then the memory is at each point what it
was there. This is done for the arrays of a loop for which it saves less."""

from collections.abc import Callable
from typing import Any

from .program import (
    BYTES,
    COMPARISONS,
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
from .scalars import partial, passes, pull, reads
from .writer import ZERO

TRIPS = 16  # of a loop, for a guess at what is saved
RESTORING = 1.5  # a value that is put back, in values that are only read
# what is computed again from restored memory
CHEAP = COMPARISONS | {"add", "sub", "mul", "div", "neg", "select", "cast", "abs", "max", "min", "times0"}


class SavedValues:
    """The values that the rules of active statements read, and how each of them is found again."""

    def __init__(self, p: LoopProgram, wrt):
        self.active = active_set(p, wrt)
        self.written = written(p)
        self.top = {}  # statement -> the number of the statement of the body that it is in
        self.last = {}  # array -> the last number that writes it
        outer = [*p.arrays, *[s.array for s in p.body.statements if isinstance(s, Allocate)]]
        for k, s in enumerate(p.body.statements):
            for t in (s, *[t for b in s.blocks for t in walk(b)]):
                self.top[t] = k
                if isinstance(t, Store):
                    self.last[t.array] = k
        self.last = {a: self.last.get(a, -1) for a in outer}
        self.home: dict = {}  # value -> its block
        self.definition = {}
        self.trips = {}  # loop that counts its trips -> the count
        self.arrays = {}  # block -> its active arrays
        self.segmented = {}  # loop in segments -> the arrays that its segments begin with
        self.indices = {
            i
            for t in walk(p.body)
            if isinstance(t, (Load, Store)) and is_touched(t, self.active)
            for i in t.index
        }
        self.find_homes(p)
        for s in p.body.statements:
            if p.launch is None and isinstance(s, For) and self.worth_segments(s):
                self.segmented[s] = []
        self.stores = StoresToUndo(self)
        self.decide(p)
        self.stores.choose(p)
        self.settle_segments()

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
        """Is v found again without anything saved but indices of accesses?"""
        if v.number is not None or v not in self.home:
            return True  # a literal or a parameter
        if v not in self.plain:
            s = self.definition.get(v)
            self.plain[v] = (isinstance(s, For) and v is s.index) or (
                isinstance(s, (Compute, Load))
                and (self.stays(s) if isinstance(s, Load) else self.is_cheap(s))
                and all([a in self.indices or self.is_free(a) for a in s.operands])
            )
        return self.plain[v]

    def stays(self, s: Load) -> bool:
        """Does the array hold what was loaded when the backward sweep begins with this block?"""
        return self.last.get(s.array, self.top[s]) < self.top[s] or self.stores.restored(s)

    def is_cheap(self, s: Compute) -> bool:
        return s.op in CHEAP or not any(map(self.stores.restores, s.args))

    def visit(self, block: Block) -> None:
        for s in block.statements:
            if not is_touched(s, self.active):
                continue
            match s:
                case Compute() if passes(s.op) and s.op != "cast":
                    given = (ZERO, s.out, *s.args)
                    for k, a in enumerate(s.args):
                        if a in self.active:
                            read = [1 + j for j in reads(partial(s.op, k), len(given) - 1)]
                            for j in {*read, *reads(pull(s.op, k), len(given))}:
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
        self.needed = {}
        self.plain = {}
        self.saved: dict[Block, list[Scalar]] = {}
        self.again: dict[Block, list] = {}  # statements that are run again
        self.stacks = {}
        self.visit(p.body)
        self.decide_block(p.body, ())

    def decide_block(self, block: Block, entering) -> None:
        saved, again = self.saved.setdefault(block, []), self.again.setdefault(block, [])
        for v in entering:
            if v in self.needed and not self.is_free(v):
                saved.append(v)
        for s in block.statements:
            outs = [
                o for o in (*s.outs, *([self.trips[s]] if isinstance(s, DoWhile) else [])) if o in self.needed
            ]
            cheap = isinstance(s, Compute) and all(
                a in self.needed or a.number is not None or a not in self.home for a in s.args
            )
            if outs and (cheap or self.is_free(outs[0])):
                again.append(s)
            else:
                saved += outs
            for b in s.blocks:
                self.decide_block(b, s.entering)
        for v in saved:
            self.stacks[v] = LoopStack(v.type, v.name)

    def settle_segments(self) -> None:
        for s in list(self.segmented):
            inside = {t.array for t in walk(s.body) if isinstance(t, Allocate)}
            touched = dict.fromkeys(t.array for t in walk(s.body) if isinstance(t, (Load, Store)))
            self.segmented[s] = [a for a in touched if a in self.written and a not in inside]
            saves = any(self.saved[b] for b in blocks_of(s)) or any(map(self.stores.is_undone, walk(s.body)))
            if not saves or any(isinstance(t, Pop) for t in walk(s.body)):
                del self.segmented[s]


class StoresToUndo:
    """The stores of loops in segments that are undone, and the loads that find their memory restored."""

    def __init__(self, plan: SavedValues):
        self.plan = plan
        self.early = set()  # loads that nothing in their block comes before or between
        self.first = {}  # block -> the stores that are undone before anything else of it
        self.weights = {}  # block -> about how often it is run
        self.arrays = set()  # (number of a loop, array)
        for s in plan.segmented:
            if not any(isinstance(t, Pop) for t in walk(s.body)):
                self.visit(s, 1)

    def visit(self, s, weight: int) -> None:
        for block in s.blocks:
            self.weights[block] = weight * TRIPS if isinstance(s, Loop) else weight
            below = {
                u.array
                for t in block.statements
                for b in t.blocks
                for u in walk(b)
                if isinstance(u, (Load, Store))
            }
            self.first[block] = [t for t in block.statements if isinstance(t, Store) and t.array not in below]
            stored = set()
            for t in block.statements:
                if isinstance(t, Load) and t.array not in stored and t.array not in below:
                    self.early.add(t)
                if isinstance(t, Store):
                    stored.add(t.array)
                self.visit(t, self.weights[block])

    def is_undone(self, s) -> bool:
        return isinstance(s, Store) and (self.plan.top[s], s.array) in self.arrays

    def restored(self, s: Load) -> bool:
        return s in self.early and (self.plan.top[s], s.array) in self.arrays

    def restores(self, v: Scalar) -> bool:
        """Does v depend on restored memory?"""
        return self.depends(v, self.restored)

    def depends(self, v: Scalar, found: Callable) -> bool:
        """Is v computed from a load that is so?"""
        todo, seen = [v], {v}
        while todo:
            d = self.plan.definition.get(todo.pop())
            if isinstance(d, Load) and found(d):
                return True
            if isinstance(d, Compute):
                todo += [a for a in d.args if a not in seen]
                seen.update(d.args)
        return False

    def choose(self, p: LoopProgram) -> None:
        """Undo the stores to those arrays for which less is saved then."""
        plan, found = self.plan, dict[tuple, bool]()
        for block in self.weights:
            for t in block.statements:
                if isinstance(t, Store) and t.array in plan.active and t.array in plan.last:
                    key = plan.top[t], t.array
                    late = any(self.depends(i, self.early.__contains__) for i in t.index)
                    found[key] = found.get(key, True) and not late
        read = {(plan.top[t], t.array) for t in self.early}
        least, best = self.cost(p, set()), set()
        tried = {key for key, fixed in found.items() if fixed and key in read}
        if tried and self.cost(p, tried) < least:
            least, best = self.cost(p, tried), tried
        for key in sorted(tried, key=list(found).index):
            some = best ^ {key}
            if (cost := self.cost(p, some)) < least:
                least, best = cost, some
        self.cost(p, best)

    def cost(self, p: LoopProgram, arrays: set) -> float:
        """About how many bytes are saved if the stores to these arrays are undone, and no others."""
        self.arrays = arrays
        self.plan.decide(p)
        total = 0.0
        for block, weight in self.weights.items():
            total += weight * sum([BYTES[v.type] for v in self.plan.saved[block]])
            undone = filter(self.is_undone, block.statements)
            total += weight * sum([RESTORING * BYTES[t.array.type] for t in undone])
        return total


def blocks_of(s) -> list[Block]:
    return [b for t in (s, *[t for b in s.blocks for t in walk(b)]) for b in t.blocks]


def active_set(p: LoopProgram, wrt) -> set:
    """The active members of the program; `wrt` are active parameters."""
    active = set(wrt)
    size = -1
    while size != len(active):
        size = len(active)
        spread(p.body, active)
    return active


def relate(active: set, pairs) -> None:
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


def is_touched(s, active: set) -> bool:
    """Does the adjoint of this statement do anything?"""
    if isinstance(s, (Store, Allocate, Push)):
        return (s.stack if isinstance(s, Push) else s.array) in active
    if isinstance(s, Barrier):
        return True
    return any(v in active for v in s.outs) or any(
        is_touched(t, active) for b in s.blocks for t in b.statements
    )
