"""Loops over several layers of one array are compiled twice: once for layers that differ.

Names that are swapped stand for layers of one array, by numbers that are known at run time. Where these
differ, the layers are arrays of their own, which share no memory. So LLVM may vectorise, and loops may be
cut."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

from .program import (
    Block,
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
from .writer import ZERO, StatementWriter

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
