"""Innermost loops that accumulate into several places are cut, so that LLVM can vectorise each part.

The adjoint of a stencil adds to neighbouring elements in one trip; the trips then depend on each other. A
loop that adds to one row in each trip does not. The sums are the same up to the order of their terms. An
element that is cleared and then added to is stored once.

A loop over several layers of one array is compiled twice: once for layers that differ. Names that are
swapped stand for layers, by numbers that are known at run time. Layers that differ are arrays of their own."""

import functools
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial

from .places import AffineForms
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
    copied_block,
    literal,
    walk,
)
from .writer import ONE, ZERO, StatementWriter

STRAIGHT = 2  # places from which on a loop is cut
FARTHEST = 4  # elements between places that are added to in one loop


def split_accumulations(p: LoopProgram) -> LoopProgram:
    """The program with such loops cut; p is left as it is."""

    new = {}

    def change(s, inner: Callable) -> list:
        c = copied(s, new, inner)
        for b in c.blocks:
            b.statements = stored_once(b.statements)
        return cut(c) if isinstance(c, For) else [c]

    if not any(isinstance(s, Accumulate) for s in walk(p.body)):
        return p
    body = copied_block(p.body, new, change)
    body.statements = stored_once(body.statements)
    return LoopProgram(p.name, p.params, body, p.outs, p.file)


def stored_once(body: list) -> list:
    """The statements, without clearing what is added to next, and without storing what was just loaded."""
    forms = AffineForms(body)
    made = []
    for t in body:
        before = previous_access(t, made, forms) if type(t) is Accumulate and not t.atomic else None
        if type(before) is Store and not before.atomic and before.value.number == 0:
            made.remove(before)
            old = previous_access(t, made, forms)
            if not isinstance(old, Load) or old.out is not t.value:
                made.append(Store(t.array, t.index, t.value, line=t.line))
        else:
            made.append(t)
    return made


def previous_access(t: Store, body: list, forms: AffineForms):
    """The last access to the element of t, if it is to this element alone."""
    for s in reversed(body):
        if s.blocks:
            return None
        if isinstance(s, (Load, Store)) and s.array is t.array:
            apart = forms.apart(s.index, t.index)
            if not any(apart):
                return None if None in apart else s
    return None


def cut(s: For) -> list:
    """The loop, followed by loops for its accumulations."""
    body = s.body.statements
    if any(t.blocks or isinstance(t, Allocate) for t in body) or (s.bounds[0], s.bounds[2]) != (ZERO, ONE):
        return [s]
    moved = moved_accumulations(s)
    return CutLoop(s, moved).made if moved else [s]


def moved_accumulations(s: For) -> dict:
    """(array, index) -> the accumulations there that may follow the loop."""
    body = s.body.statements
    defined = {o: t for t in body for o in t.outs}
    kinds = {}
    for t in body:
        if isinstance(t, (Load, Store)):
            kinds.setdefault(t.array, Counter())[type(t) is Accumulate] += 1
    moved = {}
    for t in body:
        if (
            isinstance(t, Accumulate)
            and kinds[t.array][False] == 0
            and t.value in defined
            and all(slope(i, s, defined) is not None for i in t.index)
        ):
            moved.setdefault((t.array, t.index), []).append(t)
    places = Counter(array for array, _ in moved)
    return {place: ts for place, ts in moved.items() if places[place[0]] >= STRAIGHT}


class CutLoop:
    """A loop that keeps the terms of its sums, and a loop for each row of places that they are added to."""

    def __init__(self, s: For, moved: dict):
        self.s, self.body = s, s.body.statements
        self.defined = {o: t for t in self.body for o in t.outs}
        along = {place: [slope(i, s, self.defined) for i in place[1]] for place in moved}
        self.backwards = any(k == -1 for slopes in along.values() for k in slopes)
        rows = neighbours(moved, along, -1 if self.backwards else 1, AffineForms(self.body))
        self.w = StatementWriter()
        self.w.line = s.line
        self.n = self.w.compute("max", s.bounds[1], ZERO)
        self.kept = {}  # terms -> the array of their sums in each trip, with zeros at both ends
        self.wide = max([far for row in rows for far in row])
        gone = {t for ts in moved.values() for t in ts}
        block = Block([t for t in self.body if t not in gone], s.body.yields)
        for row in rows:
            for ts in row.values():
                self.keep(tuple([t.value for t in ts]), block)
        self.w.put(For(s.args, s.inits, block, s.results, s.index, s.bounds, line=s.line))
        for row in rows:
            self.add(row)
        self.made = self.w.block.statements

    def reversed(self, i: Scalar) -> Scalar:
        """The trip that is at place i in memory, or the place of trip i."""
        w = self.w
        return w.compute("sub", w.compute("sub", self.n, ONE), i) if self.backwards else i

    def keep(self, terms: tuple, block: Block) -> None:
        if terms in self.kept:
            return
        w, kind, ends = self.w, terms[0].type, 2 * self.wide
        kept = self.kept[terms] = LoopArray(kind, [w.compute("add", self.n, literal(ends, "i8"))], "terms")
        w.put(Allocate(kept, False))
        for k in range(ends):
            at = literal(k, "i8") if k < self.wide else w.compute("add", self.n, literal(k, "i8"))
            w.store(kept, (at,), literal(0, kind))

        def trip() -> None:
            at = w.compute("add", self.reversed(self.s.index), literal(self.wide, "i8"))
            w.store(kept, (at,), functools.reduce(partial(w.compute, "add"), terms))

        w.within(block, trip)

    def add(self, row: dict[int, list]) -> None:
        """Add to each element of a row what several trips have for it."""
        w, first, far = self.w, row[0][0], max(row)
        w.line = first.line
        count = self.n
        if far:
            some = w.compute("gt", self.n, ZERO)
            count = w.compute("select", some, w.compute("add", self.n, literal(far, "i8")), ZERO)

        def element(x: Scalar) -> None:
            new = {self.s.index: self.reversed(x)}
            for d in self.body:
                if isinstance(d, Compute) and needed_by(first, d, self.defined):
                    w.put(copied(d, new, lambda *_: Block()))
            terms = []
            for k, ts in row.items():
                at = w.compute("add", x, literal(self.wide - k, "i8"))
                terms.append(w.load(self.kept[tuple([t.value for t in ts])], (at,)))
            total = functools.reduce(partial(w.compute, "add"), terms)
            w.accumulate(first.array, [new.get(i, i) for i in first.index], total)

        w.count(count, element)


def neighbours(moved: dict, along: dict, step: int, forms: AffineForms) -> list[dict[int, list]]:
    """The accumulations to each place, by rows: how far a place is from the first of its row -> those there.

    Places are in one row if only their last index moves with the loop, by `step`; `along`: how they move."""
    rows: list[dict] = []
    for (array, index), ts in moved.items():
        for row in rows:
            first = row[0][0]
            if array is first.array and [*map(abs, along[array, index])] == [*[0] * (len(index) - 1), 1]:
                *others, k = forms.apart(index, first.index)
                same = along[array, index][-1] == along[array, first.index][-1] == step
                if same and k is not None and abs(k) <= FARTHEST and all(d == 0 for d in others):
                    row.setdefault(k, []).extend(ts)
                    break
        else:
            rows.append({0: list(ts)})
    return [{k - min(row): ts for k, ts in sorted(row.items())} for row in rows]


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

    new = {}

    def change(s, inner: Callable) -> list:
        found = layers_in(s) if isinstance(s, For) else {}
        return doubled(s, found, new) if found else [copied(s, new, inner)]

    return LoopProgram(p.name, p.params, copied_block(p.body, new, change), p.outs, p.file)


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
    parts = {}
    for a, layers in found.items():
        there = new.get(a, a)
        values = [new.get(v, v) for v in layers]
        tests += [w.compute("lt", v, there.shape[0]) for v in values]
        tests += [w.compute("ge", v, ZERO) for v in values]
        tests += [w.compute("ne", *pair) for pair in itertools.combinations(values, 2)]
        for v, value in zip(layers, values, strict=True):
            parts[a, v] = LoopArray(a.type, there.shape[1:], a.name)
            fast.statements.append(LayerOf(parts[a, v], there, value, line=s.line))

    def change(t, inner: Callable) -> list:
        if isinstance(t, (Load, Store)) and t.array in found:
            t = on_layer(t, parts[t.array, t.index[0]])
        return [copied(t, known, inner)]

    slow = Block()
    for side, way in ((fast, change), (slow, None)):
        known = dict(new)
        copy = copied_block(Block([s]), known, way)
        side.statements += copy.statements
        side.yields = side.statements[-1].results
    test = tests[0]
    for other in tests[1:]:
        test = w.compute("and", test, other, type="b1")
    results = [Scalar(r.type, r.name) for r in s.results]
    new.update(zip(s.results, results, strict=True))
    return [*w.block.statements, If(test, fast, slow, results, line=s.line)]


def on_layer(t: Load | Store, part: LoopArray) -> Load | Store:
    if isinstance(t, Load):
        return Load(t.out, part, t.index[1:], line=t.line, atomic=t.atomic)
    return type(t)(part, t.index[1:], t.value, line=t.line, atomic=t.atomic)
