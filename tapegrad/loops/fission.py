"""Innermost loops that accumulate into several places are cut, so that LLVM can vectorise each part.

The adjoint of a stencil adds to neighbouring elements in one trip; the trips then depend on each other. A
loop that only adds to one place in each trip does not. The sums are the same up to the order of their
terms."""

import functools
from collections import Counter

from .program import (
    Accumulate,
    Allocate,
    Block,
    Compute,
    For,
    Load,
    LoopArray,
    LoopProgram,
    Scalar,
    Store,
    copied,
    walk,
)
from .writer import ONE, ZERO, StatementWriter

STRAIGHT = 2  # places from which on a loop is cut


def split_accumulations(p: LoopProgram) -> LoopProgram:
    """The program with such loops cut; p is left as it is."""

    def block(b: Block, new: dict) -> Block:
        made = Block()
        for s in b.statements:
            c = copied(s, new, lambda _, inner: block(inner, new))
            made.statements += cut(c) if isinstance(c, For) else [c]
        made.yields = [new.get(y, y) for y in b.yields]
        return made

    if not any(isinstance(s, Accumulate) for s in walk(p.body)):
        return p
    return LoopProgram(p.name, p.params, block(p.body, {}), p.outs, p.file)


def cut(s: For) -> list:
    """The loop, followed by loops for its accumulations."""
    body = s.body.statements
    if any(t.blocks or isinstance(t, Allocate) for t in body) or (s.bounds[0], s.bounds[2]) != (ZERO, ONE):
        return [s]
    defined = {o: t for t in body for o in t.outs}
    kinds: dict = {}
    for t in body:
        if isinstance(t, (Load, Store)):
            kinds.setdefault(t.array, Counter())[type(t) is Accumulate] += 1
    moved: dict = {}  # (array, index) -> the accumulations there
    for t in body:
        if (
            isinstance(t, Accumulate)
            and kinds[t.array][False] == 0
            and t.value in defined
            and all(slope(i, s, defined) is not None for i in t.index)
        ):
            moved.setdefault((t.array, t.index), []).append(t)
    places = Counter(array for array, _ in moved)
    moved = {place: ts for place, ts in moved.items() if places[place[0]] >= STRAIGHT}
    if not moved:
        return [s]
    gone = {t for ts in moved.values() for t in ts}
    w = StatementWriter(Block([t for t in body if t not in gone]))
    w.line = s.line
    backwards = any(slope(i, s, defined) == -1 for _, index in moved for i in index)
    n, at = s.bounds[1], s.index
    if backwards:
        at = w.compute("sub", w.compute("sub", n, ONE), s.index)
    kept: dict = {}  # sums of terms -> their array
    for ts in moved.values():
        terms = tuple([t.value for t in ts])
        if terms not in kept:
            kept[terms] = LoopArray(terms[0].type, [n], "terms")
            w.store(kept[terms], (at,), functools.reduce(lambda a, b: w.compute("add", a, b), terms))
    w.block.yields = s.body.yields
    made: list = [Allocate(a, False, line=s.line) for a in kept.values()]
    made.append(For(s.args, s.inits, w.block, s.results, s.index, s.bounds, line=s.line))
    for (array, place), ts in moved.items():
        index, again = Scalar("i8"), StatementWriter()
        again.line = ts[0].line
        new = {s.index: index}
        for d in body:
            if isinstance(d, Compute) and needed_by(ts[0], d, defined):
                again.put(copied(d, new, lambda *_: Block()))
        at = again.compute("sub", again.compute("sub", n, ONE), index) if backwards else index
        value = again.load(kept[tuple([t.value for t in ts])], (at,))
        again.accumulate(array, [new.get(i, i) for i in place], value)
        made.append(For([], [], again.block, [], index, s.bounds, line=again.line))
    return made


def slope(v: Scalar, s: For, defined: dict) -> int | None:
    """The factor of the loop's index in v, if v is computed from it and values from outside alone."""
    d = defined.get(v)
    if d is None:
        return None if v in s.args else int(v is s.index)
    if not isinstance(d, Compute) or d.op not in ("add", "sub", "mul"):
        return None
    a, b = [slope(x, s, defined) for x in d.args]
    if a is None or b is None or d.op == "mul":
        return 0 if a == b == 0 else None
    return a + b if d.op == "add" else a - b


def needed_by(t: Accumulate, d: Compute, defined: dict) -> bool:
    """Does the index of t need the statement d?"""
    todo, seen = list(t.index), set()
    while todo:
        u = defined.get(todo.pop())
        if u is not None and u not in seen:
            seen.add(u)
            todo += u.operands
    return d in seen
