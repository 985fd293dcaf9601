"""Integers in compiled loops, and elements at places that a loop computes.

An integer is a float64 within a loop. Where it may not be exact, or an index is out of bounds, the loop sets
its flag, and the bound calls run instead."""

import math
from typing import Any

import numpy as np

from ...ops.indexing.traced_indices import ELEMENT_NUMBERS, HOLE
from ...ops.shaping import ASTYPE
from ...ops.sorting import ADDED_BY, TAKEN_BY
from ..costs import INDEX_BYTES, INDEX_OPERATIONS
from ..record.instructions import Instruction
from ..scalar_graph import Exact, of_truth
from .regions import Computed, Element, broadcast, identity_map, operand_place

F8, I8, I4 = [np.dtype(name) for name in ("f8", "i8", "i4")]
EXACT_BELOW = {I8: 2.0**53, I4: 2.0**31}  # integers whose magnitudes are less are exact in a loop
EXACT_OPERATIONS = frozenset(
    ("in", "const", "bool", "add", "sub", "mul", "neg", "abs", "floor", "select", "and", "or", "not", "isnan")
    + ("lt", "le", "gt", "ge", "eq", "ne")
)


def is_exact(g: Exact, x: list, out: int) -> bool:
    """Is a result, of operands that are integers, the integer that NumPy gives, if all are below the bound?"""
    found = g.reach([out], x)
    return all([g.op[n] in EXACT_OPERATIONS for n in found]) and all(
        [g.args[n][0] % 1 == 0 for n in found if g.op[n] == "const"]
    )


class IntegerElement(Element):
    """An elementwise instruction that makes integers, or truths of integers."""

    def __init__(self, i: Instruction, sources: list, dtypes: list, dtype: np.dtype, cost: int = 3):
        super().__init__(i, sources, cost)
        own = [EXACT_BELOW[d] if d == I8 else None for d in dtypes]
        self.below = [*own, EXACT_BELOW.get(dtype)]  # bounds of the magnitudes of operands and result

    def node(self, g: Exact, x: list) -> int:
        n = x[0] if self.i.prim is ASTYPE else super().node(g, x)
        if self.below[-1] is None:
            return n
        if self.i.prim is ASTYPE and not g.boolean(n) and g.op[n] != "floor":
            floors = [g.raw("floor", m) for m in (n, g.neg(n))]
            n = g.select(g.compare("lt", n, g.zero), g.neg(floors[1]), floors[0])
        n = of_truth(g, n) if g.boolean(n) else n
        return g.raw("add", n, g.zero)  # (an integer has no negative zero)

    def conditions(self, g: Exact, x: list, n: int) -> list:
        return [
            g.both(g.compare("lt", g.const(-limit), m), g.compare("lt", m, g.const(limit)))
            for m, limit in zip((*x, n), self.below, strict=True)
            if limit is not None
        ]


def in_range(g: Exact, at: int, n: int) -> tuple[int, int]:
    """(an index of n elements counted from the first, 0 where there is no such element; is there one?)"""
    if g.below.get(at) == n:
        return at, g.bool(True)
    size = g.const(float(n))
    own = g.select(g.compare("lt", at, g.zero), g.add(at, size), at)
    there = g.both(g.compare("le", g.zero, own), g.compare("lt", own, size))
    return g.select(there, own, g.zero), there


class Indexed(Computed):
    """What is made of indices. `counts`: how many elements each of these is an index of."""

    cost = INDEX_OPERATIONS

    def __init__(self, sources: list, counts: list):
        self.list, self.counts = sources, counts

    def sources(self) -> list:
        return self.list

    def key(self) -> tuple:
        """What its code depends on, beside its operands."""
        return (type(self).__name__, tuple(self.counts))

    def conditions(self, g: Exact, x: list, n: int) -> list:
        return [in_range(g, at, count)[1] for at, count in zip(x, self.counts, strict=True)]


class ElementNumbers(Indexed):
    """The numbers of elements x[i, j, ...]."""

    def node(self, g: Exact, x: list) -> int:
        total = None
        for k, (at, n) in enumerate(zip(x, self.counts, strict=True)):
            step = g.const(float(math.prod(self.counts[k + 1 :])))
            part = g.mul(in_range(g, at, n)[0], step)
            total = part if total is None else g.add(total, part)
        g.below[total] = math.prod(self.counts)
        return total


class Gather(Indexed):
    """Elements of `gathered`, which lies in memory, at indices along an axis; `map`: where they are along the
    others."""

    def __init__(self, base: int, m: tuple, at: tuple, axis: int, count: int):
        super().__init__([at], [count])
        self.gathered, self.map, self.axis = base, m, axis

    def key(self) -> tuple:
        return (*super().key(), self.axis)

    def sources(self) -> list:
        return [*self.list, (self.gathered, self.map)]

    def needs(self, place: tuple, extents: tuple) -> list:
        return [(k, operand_place(m, place, len(extents))) for k, m in self.list]


class ScatteredSum(Indexed):
    """The sum of what is added to zeros at indices along an axis. `k`: what is added, of this shape."""

    axes, how, cost = (), "add", INDEX_OPERATIONS

    def __init__(self, k: int, at: tuple, axis: int, shape: tuple, like: tuple):
        super().__init__([at, (k, identity_map(shape))], [like[axis]])
        self.k, self.axis, self.shape, self.like = k, axis, shape, like

    def key(self) -> tuple:
        return (*super().key(), self.axis, self.shape, self.like)


def indexed(kinds: Any, k: int, i: Instruction) -> Any:
    """The definition of an instruction that has indices as operands, or None."""
    if kinds.on_device or not kinds.extended or not all([kinds.is_ours(a) for a in (k, *i.args)]):
        return None
    shape, of = kinds.shown[k][1], lambda a: kinds.shown[a][1]
    number = lambda a: kinds.operand(a) in EXACT_BELOW
    size = math.prod(of(i.args[0]) if i.prim is ADDED_BY else shape)
    if size < kinds.small:
        return None
    if i.prim is ELEMENT_NUMBERS:
        at, to = i.params["at"], i.params["to"]
        fit = len(at) == len(to) and all([x is HOLE for x in at]) and all(map(number, i.args))
        return ElementNumbers([(a, broadcast(of(a), shape)) for a in i.args], list(to)) if fit else None
    (x, at), axis = i.args, i.params["axis"]
    dtypes = {kinds.operand(x), kinds.shown[k][3]}
    numbers = dtypes == {F8} or (len(dtypes) == 1 and dtypes <= {*EXACT_BELOW} and i.prim is TAKEN_BY)
    if not numbers or not number(at) or not len(of(x)) == len(of(at)) == len(shape):
        return None
    if i.prim is ADDED_BY:
        outside = [
            n for j, (n, m) in enumerate(zip(shape, of(at), strict=True)) if j != axis and n not in (1, m)
        ]
        if outside or of(x) != of(at):
            return None
        return ScatteredSum(x, (at, identity_map(of(x))), axis, of(x), shape)
    one = (*of(x)[:axis], 1, *of(x)[axis + 1 :])
    if np.broadcast_shapes(one, of(at)) != shape or math.prod(of(x)) * 8 >= INDEX_BYTES:
        return None
    return Gather(x, broadcast(one, shape), (at, broadcast(of(at), shape)), axis, of(x)[axis])


INDEXED = frozenset((TAKEN_BY, ADDED_BY, ELEMENT_NUMBERS))
