"""Innermost loops that accumulate into several places are cut, so that LLVM can vectorise each part.

The adjoint of a stencil adds to neighbouring elements in one trip; the trips then depend on each other. A
loop that only adds to one place in each trip does not. The sums are the same up to the order of their
terms."""

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
from .writer import ONE, ZERO

STRAIGHT = 2  # accumulations from which on a loop is cut


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
    moved = [
        t
        for t in body
        if isinstance(t, Accumulate)
        and kinds[t.array][False] == 0
        and t.value in defined
        and all(is_plain(i, s, defined) for i in t.index)
    ]
    if len(moved) < STRAIGHT or max(Counter(t.array for t in moved).values()) < STRAIGHT:
        return [s]
    n = s.bounds[1]
    kept = {t.value: LoopArray(t.value.type, [n], "terms") for t in moved}
    main = [t for t in body if t not in moved] + [
        Store(a, (s.index,), v, line=s.line) for v, a in kept.items()
    ]
    made: list = [Allocate(a, False, line=s.line) for a in kept.values()]
    made.append(For(s.args, s.inits, Block(main, s.body.yields), s.results, s.index, s.bounds, line=s.line))
    for t in moved:
        index, value = Scalar("i8"), Scalar(t.value.type)
        new = {s.index: index}
        again = [
            copied(d, new, lambda *_: Block())
            for d in body
            if isinstance(d, Compute) and needed_by(t, d, defined)
        ]
        again += [Load(value, kept[t.value], (index,), line=t.line)]
        again.append(Accumulate(t.array, tuple([new.get(i, i) for i in t.index]), value, line=t.line))
        made.append(For([], [], Block(again), [], index, s.bounds, line=t.line))
    return made


def is_plain(v: Scalar, s: For, defined: dict) -> bool:
    """Is this value computed from the loop's index and values from outside alone?"""
    d = defined.get(v)
    if d is None:
        return v not in s.args
    return (
        isinstance(d, Compute)
        and d.op in ("add", "sub", "mul")
        and all(is_plain(a, s, defined) for a in d.args)
    )


def needed_by(t: Accumulate, d: Compute, defined: dict) -> bool:
    """Does the index of t need the statement d?"""
    todo, seen = list(t.index), set()
    while todo:
        u = defined.get(todo.pop())
        if u is not None and u not in seen:
            seen.add(u)
            todo += u.operands
    return d in seen
