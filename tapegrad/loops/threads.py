"""The threads of a block as loops: a barrier ends one loop over the threads and begins another.

What is the same for all threads is computed once for the block. A value of a thread that is used in another
loop over the threads lives in an array with an element for each thread. A loop or branch with a barrier
inside must be the same for all threads."""

from collections.abc import Callable
from typing import Any

from .program import (
    Allocate,
    Barrier,
    Block,
    Compute,
    DoWhile,
    For,
    If,
    Load,
    Loop,
    LoopArray,
    LoopRefused,
    Scalar,
    Store,
    captured,
    copied,
    copied_block,
    walk,
)
from .writer import StatementWriter


def has_barrier(s) -> bool:
    return isinstance(s, Barrier) or any(has_barrier(t) for b in s.blocks for t in b.statements)


def control_of(s) -> tuple:
    """What decides which statements within s run."""
    return (s.test,) if isinstance(s, (If, DoWhile)) else s.bounds if isinstance(s, For) else ()


class Segment:
    """Statements that each thread runs; then its values go to these cells."""

    def __init__(self, statements: list, stores: list):
        self.statements, self.stores = statements, stores
        no_test: Any = None
        made = If(no_test, Block(statements), Block(), [])
        self.defined = dict.fromkeys(o for s in statements for o in s.outs)  # in order
        self.used = [*captured(made), *[v for _, v in stores if v.number is None and v not in self.defined]]


class ThreadSplitter:
    """One block of threads: `index` and `size` are (z, y, x)."""

    def __init__(self, w: StatementWriter, body: Block, index: tuple, size: tuple):
        self.w, self.index, self.size = w, index, size
        self.kept = {s.array for s in walk(body) if isinstance(s, Store)}
        self.varying = set(index)
        count = -1
        while count != len(self.varying):
            count = len(self.varying)
            self.spread(body)
        self.cells: dict = {}
        self.segments: list[Segment] = []
        self.ending: list = []  # what the segment at the end of a block stores
        plan = self.block(body)
        used_in = {}
        for k, part in enumerate(self.segments):
            for v in part.used:
                used_in.setdefault(v, set()).add(k)
        for k, part in enumerate(self.segments):
            for v in part.defined:
                if used_in.get(v, set()) - {k}:
                    self.cells.setdefault(v, None)
        self.total = w.compute("mul", w.compute("mul", size[0], size[1]), size[2])
        self.private = self.arrays_kept()
        for v, cell in list(self.cells.items()):
            if cell is None:
                self.cells[v] = LoopArray(v.type, (self.total,), v.name)
        for cell in dict.fromkeys(self.cells.values()):
            cell.shape = (self.total,)
            w.put(Allocate(cell))
        for a in self.private:
            w.put(Allocate(self.private[a]))
        self.put(plan)

    # --- what differs between threads ---

    def differs(self, v) -> bool:
        return v in self.varying

    def spread(self, block: Block) -> None:
        on = self.varying
        for s in block.statements:
            free = isinstance(s, Load) and s.array not in self.kept and not s.array.shared
            if isinstance(s, (Compute, Load)) and (
                any(map(self.differs, s.operands)) or (isinstance(s, Load) and not free)
            ):
                on.update(s.outs)
            if isinstance(s, Loop):
                all_of_them = any(map(self.differs, control_of(s)))
                if all_of_them and isinstance(s, For):
                    on.add(s.index)
                for a, i, y, r in zip(s.args, s.inits, s.body.yields, s.results, strict=True):
                    if all_of_them or any(map(self.differs, (a, i, y))):
                        on.update((a, r))
            if isinstance(s, If):
                for r, a, b in zip(s.results, s.then.yields, s.other.yields, strict=True):
                    if any(map(self.differs, (s.test, a, b))):
                        on.add(r)
            for b in s.blocks:
                self.spread(b)

    def is_common(self, s) -> bool:
        """Is the statement the same for all threads, and without effects?"""
        if isinstance(s, (Store, Barrier, Allocate)) or any(map(self.differs, (*s.operands, *s.outs))):
            return False
        return all(self.is_common(t) for b in s.blocks for t in b.statements)

    def arrays_kept(self) -> dict:
        """Arrays of a thread that several segments use; array -> one with a layer for each thread."""
        found = {}
        for k, part in enumerate(self.segments):
            for s in walk(Block(part.statements)):
                if isinstance(s, (Allocate, Load, Store)):
                    found.setdefault(s.array, set()).add((k, isinstance(s, Allocate)))
        own = {a for a, uses in found.items() if any(made for _, made in uses)}
        return {
            a: LoopArray(a.type, (self.total, *a.shape), a.name)
            for a in own
            if len({k for k, _ in found[a]}) > 1
        }

    # --- the plan: segments, statements of the block, and what has a barrier inside ---

    def block(self, block: Block) -> list:
        plan: list = []
        waiting = []

        def flush(stores=()) -> None:
            if waiting or stores:
                plan.append(Segment(list(waiting), list(stores)))
                self.segments.append(plan[-1])
                waiting.clear()

        for s in block.statements:
            if isinstance(s, Barrier):
                flush()
            elif (isinstance(s, Allocate) and s.array.shared) or self.is_common(s):
                plan.append(s)
            elif not has_barrier(s) and (
                any(map(self.differs, control_of(s))) or all(map(self.differs, s.outs))
            ):
                waiting.append(s)
            else:
                if any(map(self.differs, control_of(s))):
                    raise LoopRefused(
                        f"line {s.line}: a barrier in a loop or branch that differs between threads"
                    )
                own = [k for k, r in enumerate(s.results) if self.differs(r)]
                for k in own:
                    cell = LoopArray(s.results[k].type, (), s.results[k].name)
                    self.cells[s.results[k]] = cell
                    if isinstance(s, Loop):
                        self.cells[s.args[k]] = cell
                cells = [self.cells[s.results[k]] for k in own]
                flush(
                    [(c, s.inits[k]) for c, k in zip(cells, own, strict=True)] if isinstance(s, Loop) else ()
                )
                inner = [self.inside(b, cells, own) for b in s.blocks]
                plan.append((s, own, inner))
        flush(self.ending)
        return plan

    def inside(self, b: Block, cells: list, own: list) -> list:
        before, self.ending = self.ending, [(c, b.yields[k]) for c, k in zip(cells, own, strict=True)]
        try:
            return self.block(b)
        finally:
            self.ending = before

    # --- the code ---

    def put(self, plan: list) -> None:
        for part in plan:
            if isinstance(part, Segment):
                self.threads(part)
            elif isinstance(part, tuple):
                self.around(*part)
            else:
                self.w.put(part)

    def around(self, s, own: list, inner: list) -> None:
        common = [k for k in range(len(s.results)) if k not in own]
        blocks = []
        for b, plan in zip(s.blocks, inner, strict=True):
            made = Block()
            self.w.within(made, self.put, plan)
            made.yields = [b.yields[k] for k in common]
            blocks.append(made)
        results = [s.results[k] for k in common]
        if isinstance(s, If):
            self.w.put(If(s.test, blocks[0], blocks[1], results, line=s.line))
            return
        head = [s.args[k] for k in common], [s.inits[k] for k in common], blocks[0], results
        self.w.put(
            For(*head, s.index, s.bounds, line=s.line)
            if isinstance(s, For)
            else DoWhile(*head, s.test, line=s.line)
        )

    def threads(self, part: Segment) -> None:
        w = self.w
        new = {}

        def change(s, inner: Callable) -> list:
            return [] if self.is_layer(s) else [self.moved(copied(s, new, inner))]

        def thread(z: Scalar, y: Scalar, x: Scalar) -> None:
            new.update(zip(self.index, (z, y, x), strict=True))
            self.number = w.compute(
                "add",
                w.compute("mul", w.compute("add", w.compute("mul", z, self.size[1]), y), self.size[2]),
                x,
            )
            for v in part.used:
                if v in self.cells:
                    new[v] = w.load(self.cells[v], (self.number,))
            for s in part.statements:
                for c in copied_block(Block([s]), new, change).statements:
                    w.put(c)
                for v in s.outs:
                    if v in self.cells:
                        w.store(self.cells[v], (self.number,), new[v])
            for cell, v in [(c, new.get(v, v)) for c, v in part.stores]:
                w.store(cell, (self.number,), v)

        w.count(
            self.size[0],
            lambda z: w.count(self.size[1], lambda y: w.count(self.size[2], lambda x: thread(z, y, x))),
        )

    def is_layer(self, s) -> bool:
        return isinstance(s, Allocate) and s.array in self.private

    def moved(self, s):
        """A statement on the thread's layer of an array."""
        if isinstance(s, (Load, Store)) and s.array in self.private:
            s.index = (self.number, *s.index)
            s.array = self.private[s.array]
        return s


def split_threads(w: StatementWriter, body: Block, index: tuple, size: tuple) -> None:
    """Write the threads of one block, which all run `body`."""
    ThreadSplitter(w, body, index, size)
