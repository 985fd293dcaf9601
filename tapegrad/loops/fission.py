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
from typing import Any

from ..kernels.emit.builder import Affine
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
    duplicate,
    literal,
    walk,
)
from .writer import ONE, ZERO, StatementWriter

STRAIGHT = 2  # places from which on a loop is cut
FARTHEST = 4  # elements between places that are added to in one loop


def split_accumulations(p: LoopProgram) -> LoopProgram:
    """The program with such loops cut; p is left as it is."""
    if any(isinstance(s, Accumulate) for s in walk(p.body)):
        p = duplicate(p)
        cut_loops(p.body)
    return p


def cut_loops(b: Block) -> None:
    made: list = []
    for s in stored_once(b.statements):
        parts = cut(s) if isinstance(s, For) else []
        if not parts:
            for inner in s.blocks:
                cut_loops(inner)
        made += parts or [s]
    b.statements = made


class IndexForms:
    """Integers of a straight block as sums of others."""

    def __init__(self, body: list):
        self.forms: dict[Scalar, Affine] = {}
        for t in body:
            if isinstance(t, Compute) and t.out.type == "i8" and t.op in ("add", "sub"):
                a, b = map(self.form, t.args)
                self.forms[t.out] = a + b if t.op == "add" else a - b

    def form(self, v: Scalar) -> Affine:
        return self.forms.get(v, Affine(0, {v: 1})) if v.number is None else Affine(int(v.number))

    def apart(self, i: tuple, j: tuple) -> list[int | None]:
        """The differences of two indices, as far as they are known numbers."""
        apart = [self.form(v) - self.form(w) for v, w in zip(i, j, strict=True)]
        return [None if d.terms else d.const for d in apart]


def stored_once(body: list) -> list:
    """The statements, without clearing what is added to next, and without storing what was just loaded."""
    forms = IndexForms(body)
    made: list = []
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


def previous_access(t: Store, body: list, forms: IndexForms) -> Any:
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
    """The loops that replace a loop without loops, or one with such a loop in it; none if nothing is gained."""
    within = [t for t in s.body.statements if t.blocks or isinstance(t, Allocate)]
    inner = within[0] if len(within) == 1 else None if within else s
    if not isinstance(inner, For) or any(t.blocks or isinstance(t, Allocate) for t in inner.body.statements):
        return []
    if any((t.bounds[0], t.bounds[2]) != (ZERO, ONE) for t in (s, inner)):
        return []
    inner.body.statements = stored_once(inner.body.statements)
    rows = SummedRows(inner, None if inner is s else s)
    return CutLoop(rows).made if rows.found and (inner is s or rows.deferred) else []


class SummedRows:
    """The accumulations of a loop that may follow it, by the rows that they add to.

    Several trips of the loop around it, `outer`, may add to a row. They do so together, in the last of them.
    `found` has for each row: (trips since then, how far the place is from the first) -> accumulations."""

    def __init__(self, s: For, outer: For | None):
        self.s, self.outer, self.body = s, outer, s.body.statements
        self.inner = {o: t for t in self.body for o in t.outs}
        self.defined = {o: t for t in (outer.body.statements if outer else []) for o in t.outs} | self.inner
        self.moved = self.moved_accumulations()
        self.along = {place: [slope(i, s, self.inner) for i in place[1]] for place in self.moved}
        self.backwards = any(-1 in steps for steps in self.along.values())
        self.found = [self.from_first(row) for row in self.rows()]
        self.deferred, self.wide = [
            max([far[k] for row in self.found for far in row], default=0) for k in (0, 1)
        ]

    def moved_accumulations(self) -> dict:
        """(array, index) -> the accumulations there."""
        whole = self.outer or self.s
        if self.outer and slope(self.s.bounds[1], self.outer, self.defined) != 0:
            return {}
        others = {
            t.array for t in walk(whole.body) if isinstance(t, (Load, Store)) and type(t) is not Accumulate
        }
        moved: dict = {}
        for t in self.body:
            if (
                isinstance(t, Accumulate)
                and t.array not in others
                and t.value in self.inner
                and all(slope(i, self.s, self.inner) is not None for i in t.index)
            ):
                moved.setdefault((t.array, t.index), []).append(t)
        places = Counter(array for array, _ in moved)
        return {place: ts for place, ts in moved.items() if places[place[0]] >= STRAIGHT}

    def rows(self) -> list[dict]:
        """Places that differ along the last axis and that of the outer loop alone, by how far they are there."""
        forms, found = IndexForms(list(self.defined.values())), dict[Any, dict]()
        for (array, index), ts in self.moved.items():
            *others, last = self.along[array, index]
            at, key, place = [forms.form(i) for i in index], index, (0, 0)
            if not any(others) and last == (-1 if self.backwards else 1):
                axis, step = self.axis(index)
                place = step * at[axis].const, at[-1].const
                free = (axis if step else -1, len(at) - 1)
                key = tuple([(*f.terms.items(), 0 if k in free else f.const) for k, f in enumerate(at)])
            row = found.setdefault((array, key), {})
            if any(abs(x - y) > FARTHEST for x, y in zip(place, next(iter(row), place), strict=True)):
                row = found.setdefault((array, index), {})
            row.setdefault(place, []).extend(ts)
        return list(found.values())

    def axis(self, index: tuple) -> tuple[int, int]:
        """(the axis before the last along which each trip of the outer loop makes a step, the step or 0)."""
        steps: Any = [slope(i, self.outer, self.defined) for i in index] if self.outer else []
        moving = [k for k, step in enumerate(steps) if step != 0]
        one = len(moving) == 1 and moving[0] < len(steps) - 1 and steps[moving[0]] in (1, -1)
        return (moving[0], steps[moving[0]]) if one else (0, 0)

    def from_first(self, row: dict) -> dict:
        first = [min(x) for x in zip(*row, strict=True)]
        return {(k - first[0], far - first[1]): row[k, far] for k, far in sorted(row)}


class CutLoop:
    """A loop that keeps the terms of its sums, and a loop for each row of places that they are added to."""

    def __init__(self, rows: SummedRows):
        self.rows, self.s, self.outer, self.w = rows, rows.s, rows.outer, StatementWriter()
        self.w.line = self.s.line
        # the places of the terms of this trip of the outer loop, of the last one, ...
        self.slots = [Scalar("i8") for _ in range(rows.deferred + 1)] if self.outer else []
        known = self.again([self.s.bounds[1]], {}, self.outer.body.statements if self.outer else [])
        self.n = self.w.compute("max", known.get(self.s.bounds[1], self.s.bounds[1]), ZERO)
        self.wide = self.w.compute("add", self.n, literal(2 * rows.wide, "i8"))
        self.kept: dict = {}  # terms -> the array of their sums in each trip, with zeros at both ends
        gone = {t for ts in rows.moved.values() for t in ts}
        self.s.body = Block([t for t in rows.body if t not in gone], self.s.body.yields)
        for row in rows.found:
            for ts in row.values():
                self.keep(tuple([t.value for t in ts]))
        if self.outer is None:
            self.w.put(self.s)
            self.add_rows({}, [])
        else:
            self.put_outer(self.outer)
        self.made = self.w.block.statements

    def put_outer(self, outer: For) -> None:
        """The outer loop, and the rows that its last trips add to."""
        w, trips = self.w, outer.bounds[1]
        outer.args += self.slots
        outer.inits += [literal(k, "i8") for k in range(len(self.slots))]
        outer.body.yields += [self.slots[-1], *self.slots[:-1]]
        ends = [Scalar("i8") for _ in self.slots]
        outer.results += ends
        before, self.made = outer.body.statements, []
        outer.body.statements = []
        for t in before:
            outer.body.statements.append(t)
            if t is self.s:
                w.within(outer.body, self.add_rows, {}, self.slots)
        w.put(outer)
        some = w.compute("gt", trips, ZERO)
        more = w.compute("select", some, literal(self.rows.deferred, "i8"), ZERO)

        def trip(k: Scalar, *slots: Scalar) -> list[Scalar]:
            for kept in self.kept.values():
                w.count(self.wide, lambda x: w.store(kept, (slots[0], x), literal(0, kept.type)))
            new = {outer.index: w.compute("add", trips, k)}
            needed = [i for row in self.rows.found for ts in row.values() for i in ts[0].index]
            self.add_rows(self.again(needed, new, before), list(slots), late=True)
            return [slots[-1], *slots[:-1]]

        w.count(more, trip, ends)

    def again(self, values: list[Scalar], new: dict, body: list) -> dict:
        """Compute these values again, as far as statements of `body` do it; `new` maps values, and learns."""
        todo, needed = list(values), set()
        while todo:
            t = self.rows.defined.get(todo.pop())
            if isinstance(t, Compute) and t not in needed:
                needed.add(t)
                todo += t.args
        for t in body:
            if t in needed:
                self.w.put(copied(t, new, lambda *_: Block()))
        return new

    def reversed(self, i: Scalar) -> Scalar:
        """The trip that is at place i in memory, or the place of trip i."""
        w = self.w
        return w.compute("sub", w.compute("sub", self.n, ONE), i) if self.rows.backwards else i

    def keep(self, terms: tuple) -> None:
        if terms in self.kept:
            return
        w, kind, wide = self.w, terms[0].type, self.rows.wide
        shape = [*[literal(len(self.slots), "i8")] * (self.outer is not None), self.wide]
        kept = self.kept[terms] = w.allocate(kind, shape, "terms", zeroed=self.outer is not None)
        for k in range(0 if self.outer else 2 * wide):
            at = literal(k, "i8") if k < wide else w.compute("add", self.n, literal(k, "i8"))
            w.store(kept, (at,), literal(0, kind))

        def trip() -> None:
            at = w.compute("add", self.reversed(self.s.index), literal(wide, "i8"))
            w.store(kept, (*self.slots[:1], at), functools.reduce(partial(w.compute, "add"), terms))

        w.within(self.s.body, trip)

    def add_rows(self, known: dict, slots: list[Scalar], late: bool = False) -> None:
        """Add to each element of a row what several trips have for it; `late`: to rows of several outer trips."""
        w = self.w
        for row in self.rows.found:
            if late and not any(since for since, _ in row):
                continue
            # the first places along each of two axes
            lead = next(ts[0] for (since, _), ts in row.items() if since == 0)
            low = next(ts[0] for (_, far), ts in row.items() if far == 0)
            w.line, index = lead.line, (*lead.index[:-1], low.index[-1])
            count, far = self.n, max([far for _, far in row])
            if far:
                some = w.compute("gt", self.n, ZERO)
                count = w.compute("select", some, w.compute("add", self.n, literal(far, "i8")), ZERO)

            def element(
                x: Scalar, row: dict = row, index: tuple = index, array: LoopArray = lead.array
            ) -> None:
                new = self.again(list(index), {**known, self.s.index: self.reversed(x)}, self.rows.body)
                terms = []
                for (since, far), ts in row.items():
                    at = w.compute("add", x, literal(self.rows.wide - far, "i8"))
                    place = *slots[since : since + 1], at
                    terms.append(w.load(self.kept[tuple([t.value for t in ts])], place))
                total = functools.reduce(partial(w.compute, "add"), terms)
                w.accumulate(array, [new.get(i, i) for i in index], total)

            w.count(count, element)


def slope(v: Scalar, s: For, defined: dict) -> int | None:
    """The factor of the loop's index in v, if v is computed from it and values from outside alone."""
    d = defined.get(v)
    if d is None:
        return None if v in s.args else int(v is s.index)
    if not isinstance(d, Compute) or d.op not in ("add", "sub", "mul", "max", "min"):
        return None
    a, b = [slope(x, s, defined) for x in d.args]
    if a is None or b is None or d.op not in ("add", "sub"):
        return 0 if a == b == 0 else None
    return a + b if d.op == "add" else a - b


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
