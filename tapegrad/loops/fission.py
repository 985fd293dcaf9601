"""Innermost loops that accumulate into several places are cut, so that LLVM can vectorise each part.

The adjoint of a stencil adds to neighbouring elements in one trip; the trips then depend on each other. A
loop that only adds to one place in each trip does not. The sums are the same up to the order of their
terms.

A loop over several layers of one array is compiled twice: once for layers that differ. Names that are
swapped stand for layers, by numbers that are known at run time. Layers that differ are arrays of their own."""

import functools
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from .program import (
    Accumulate,
    Allocate,
    Block,
    Compute,
    For,
    If,
    LayerOf,
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


MOST = 4  # layers that are compared with each other


def separated_layers(p: LoopProgram) -> LoopProgram:
    """The program with such loops doubled; p is left as it is."""
    if not any(isinstance(s, Load) and is_layered(s.array) for s in walk(p.body)):
        return p

    def block(b: Block, new: dict) -> Block:
        made = Block()
        for s in b.statements:
            found = layers_in(s) if isinstance(s, For) else {}
            if found:
                made.statements += doubled(s, found, new)
            else:
                made.statements.append(copied(s, new, lambda _, inner: block(inner, new)))
        made.yields = [new.get(y, y) for y in b.yields]
        return made

    return LoopProgram(p.name, p.params, block(p.body, {}), p.outs, p.file)


def is_layered(a: LoopArray) -> bool:
    return len(a.shape) > 1 and a.shape[0].number is not None and 1 < a.shape[0].number <= MOST


def layers_in(s: For) -> dict[LoopArray, list[Scalar]]:
    """The layers of each array that a loop uses, where there are several and all are known before it."""
    inside = {
        s.index,
        *s.args,
        *[v for t in walk(s.body) for v in (*t.outs, *(t.entering if t.blocks else ()))],
    }
    found: dict[LoopArray, dict] = {}
    for t in walk(s.body):
        if isinstance(t, (Load, Store)) and is_layered(t.array):
            found.setdefault(t.array, {})[t.index[0]] = None
    return {
        a: list(layers)
        for a, layers in found.items()
        if 1 < len(layers) <= MOST and not any(v in inside for v in layers)
    }


def doubled(s: For, found: dict[LoopArray, list[Scalar]], new: dict) -> list:
    """The loop for layers that differ, and for others."""
    w = StatementWriter()
    w.line = s.line
    tests, fast = [], Block()
    parts: dict = {}
    for a, layers in found.items():
        there = new.get(a, a)
        values = [new.get(v, v) for v in layers]
        tests += [w.compute("lt", v, there.shape[0]) for v in values]
        tests += [w.compute("ge", v, ZERO) for v in values]
        tests += [w.compute("ne", *pair) for pair in itertools.combinations(values, 2)]
        for v, value in zip(layers, values, strict=True):
            parts[a, v] = LoopArray(a.type, there.shape[1:], a.name)
            fast.statements.append(LayerOf(parts[a, v], there, value, line=s.line))

    def inner(b: Block, new: dict) -> Block:
        made = Block()
        for t in b.statements:
            if isinstance(t, (Load, Store)) and t.array in found:
                t = on_layer(t, parts[t.array, t.index[0]])
            made.statements.append(copied(t, new, lambda _, b: inner(b, new)))
        made.yields = [new.get(y, y) for y in b.yields]
        return made

    slow = Block()
    for side, way in ((fast, inner), (slow, plain)):
        known = dict(new)
        side.statements.append(copied(s, known, functools.partial(copied_block, way, known)))
        side.yields = side.statements[-1].results
    test = tests[0]
    for other in tests[1:]:
        test = w.compute("and", test, other, type="b1")
    results = [Scalar(r.type, r.name) for r in s.results]
    new.update(zip(s.results, results, strict=True))
    return [*w.block.statements, If(test, fast, slow, results, line=s.line)]


def copied_block(way: Callable, new: dict, _: Any, b: Block) -> Block:
    return way(b, new)


def plain(b: Block, new: dict) -> Block:
    made = Block([copied(t, new, lambda _, inner: plain(inner, new)) for t in b.statements])
    made.yields = [new.get(y, y) for y in b.yields]
    return made


def on_layer(t: Load | Store, part: LoopArray) -> Load | Store:
    if isinstance(t, Load):
        return Load(t.out, part, t.index[1:], line=t.line, atomic=t.atomic)
    return type(t)(part, t.index[1:], t.value, line=t.line, atomic=t.atomic)
