"""Integers in compiled loops, and elements at places that a loop computes.

An integer is a float64 within a loop. Where it may not be exact, or an index is out of bounds, the loop sets
its flag, and the bound calls run instead."""

import math
from dataclasses import dataclass

import numpy as np

from ..._core.primitive import ADD_AT, READ
from ...ops.indexing.traced_indices import ELEMENT_NUMBERS, HOLE
from ...ops.shaping import ASTYPE
from ...ops.sorting import ADDED_BY, TAKEN_BY
from ..costs import GATHERED_BYTES, INDEX_OPERATIONS
from ..record.instructions import Instruction
from ..scalar_graph import Exact, of_truth
from .regions import Computed, Element, broadcast, identity_map, operand_place, unit

F8, I8, I4 = [np.dtype(name) for name in ("f8", "i8", "i4")]
EXACT_BELOW = {I8: 2.0**53, I4: 2.0**31}  # integers whose magnitudes are less are exact in a loop
EXACT_OPERATIONS = frozenset(
    ("in", "const", "bool", "add", "sub", "mul", "neg", "abs", "floor", "select", "and", "or", "not", "isnan")
    + ("lt", "le", "gt", "ge", "eq", "ne")
)


def is_exact(g: Exact, x: list, out: int) -> bool:
    """Is a result of integers the integer that NumPy gives, if all are below the bound?"""
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


def in_range(g: Exact, at: int, n: int | None) -> tuple[int, int]:
    """(an index of n elements counted from the first, 0 where there is no such element; is there one?)"""
    if n is None or g.below.get(at) == n:
        return at, g.bool(True)
    size = g.const(float(n))
    own = g.select(g.compare("lt", at, g.zero), g.add(at, size), at)
    there = g.both(g.compare("le", g.zero, own), g.compare("lt", own, size))
    return g.select(there, own, g.zero), there


class Indexed(Computed):
    """What is made of indices. `counts`: how many elements each of these is an index of; None where it is
    known to be one."""

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
        steps = [g.const(float(math.prod(self.counts[k + 1 :]))) for k in range(len(x))]
        own = [in_range(g, at, n)[0] for at, n in zip(x, self.counts, strict=True)]
        total, *parts = [g.mul(at, step) for at, step in zip(own, steps, strict=True)]
        for part in parts:
            total = g.add(total, part)
        g.below[total] = math.prod(self.counts)
        return total


class Gather(Indexed):
    """Elements of `gathered`, which lies in memory, at indices along an axis; `map`: where they are along the
    others."""

    def __init__(self, base: int, m: tuple, at: tuple, axis: int, count: int | None):
        super().__init__([at], [count])
        self.gathered, self.map, self.axis = base, m, axis

    def key(self) -> tuple:
        return (*super().key(), self.axis)

    def sources(self) -> list:
        return [*self.list, (self.gathered, self.map)]

    def needs(self, place: tuple, extents: tuple) -> list:
        return [(k, operand_place(m, place, len(extents))) for k, m in self.list]


class ScatteredSum(Indexed):
    """`gathered`, or zeros, with what is added at indices along an axis. `k`: what is added, of this shape;
    `own`: which axes of the result are those of k."""

    axes, how = (), "add"

    def __init__(self, k: int, shape: tuple, at: tuple, axis: int, count: int | None, own: dict, base):
        super().__init__([at, (k, identity_map(shape))], [count])
        self.k, self.shape, self.axis, self.own, self.gathered = k, shape, axis, own, base

    def key(self) -> tuple:
        return (*super().key(), self.shape, self.axis, *self.own.items(), self.gathered is None)

    def sources(self) -> list:
        return self.list if self.gathered is None else [*self.list, (self.gathered, ())]


@dataclass(eq=False)
class Indices:
    """Indices along an axis of an array, or along several as one."""

    at: tuple  # (the operand, its map)
    axis: int
    count: int | None  # of elements; None where it is known to be one
    shape: tuple  # of the result
    own: dict  # axes of the array -> those of the result

    def gather(self, x: int, to: tuple) -> Gather:
        none = (0,) * len(self.shape)
        m = tuple(
            [(0, unit(self.own[j], len(self.shape)) if j in self.own else none) for j in range(len(to))]
        )
        return Gather(x, m, self.at, self.axis, self.count)

    def scattered(self, k: int, base) -> ScatteredSum:
        return ScatteredSum(k, self.shape, self.at, self.axis, self.count, self.own, base)


def along_axis(kinds, x: tuple, at: int, axis: int) -> Indices | None:
    """The indices of `numpy.take_along_axis`, for an array of shape x."""
    to = kinds.shown[at][1]
    if kinds.operand(at) not in EXACT_BELOW or len(to) != len(x):
        return None
    one = (*x[:axis], 1, *x[axis + 1 :])
    try:
        shape = np.broadcast_shapes(one, to)
    except ValueError:
        return None
    own = {j: j for j, n in enumerate(one) if n > 1}
    return Indices((at, broadcast(to, shape)), axis, x[axis], shape, own)


def constant_indices(kinds, x: tuple, strides: tuple, at) -> Indices | None:
    """The indices x[:, ..., i, j, ...] by arrays of integers that are constant."""
    parts = [*at] if type(at) is tuple else [at]
    while parts and type(parts[-1]) is slice and parts[-1] == slice(None):
        parts.pop()
    first = next((n for n, i in enumerate(parts) if type(i) is not slice or i != slice(None)), 0)
    arrays, sizes = parts[first:], x[first : len(parts)]
    if (
        not arrays
        or len(parts) > len(x)
        or not all([type(i) is np.ndarray and i.dtype.kind == "i" for i in arrays])
    ):
        return None
    last = len(parts) - 1
    if any([strides[j] != strides[j + 1] * x[j + 1] for j in range(first, last)]):
        return None
    if any([not i.size or i.min() < -n or i.max() >= n for i, n in zip(arrays, sizes, strict=True)]):
        return None
    own = np.broadcast_arrays(*[np.where(i < 0, i + n, i) for i, n in zip(arrays, sizes, strict=True)])
    numbers = np.ravel_multi_index(tuple(own), sizes)
    shape, after = (*x[:first], *numbers.shape, *x[last + 1 :]), first + numbers.ndim - last - 1
    m = tuple([(0, unit(first + j, len(shape))) for j in range(numbers.ndim)])
    axes = {j: j if j < first else j + after for j in range(len(x)) if not first <= j <= last}
    return Indices((kinds.new_constant(numbers.astype(I4)), m), last, None, shape, axes)


def element_numbers(kinds, k: int, i: Instruction) -> ElementNumbers | None:
    shape, at, to = kinds.shown[k][1], i.params["at"], i.params["to"]
    fit = all([x is HOLE for x in at]) and all([kinds.operand(a) in EXACT_BELOW for a in i.args])
    sources = [(a, broadcast(kinds.shown[a][1], shape)) for a in i.args]
    return ElementNumbers(sources, list(to)) if fit and len(at) == len(to) else None


def indexed(kinds, k: int, i: Instruction):
    """The definition of an instruction with indices, or None."""
    prim, x, params = i.prim, i.args[0], i.params
    if kinds.on_device or not kinds.extended or not all([kinds.is_ours(a) for a in (k, x)]):
        return None
    adds, base = prim in ADDING, x if prim is ADD_AT else None
    y = i.args[1] if prim is ADD_AT else x  # what is added
    (_, of, strides, *_), (_, to, *_) = kinds.shown[x], kinds.shown[k]
    if math.prod(kinds.shown[y][1] if adds else to) < kinds.small or math.prod(of) * 8 >= GATHERED_BYTES:
        return None
    if prim is ELEMENT_NUMBERS:
        return element_numbers(kinds, k, i)
    dtypes = {kinds.operand(a) for a in (x, y, k)}
    if len(dtypes) > 1 or (dtypes != {F8} and (adds or dtypes.isdisjoint(EXACT_BELOW))):
        return None
    if prim in (TAKEN_BY, ADDED_BY):
        found = along_axis(kinds, to if adds else of, i.args[1], params["axis"])
    elif params.get("path") or params["at"] is None:
        return None
    else:
        found = constant_indices(kinds, of, strides, params["at"])
    if found is None or found.shape != (kinds.shown[y][1] if adds else to):
        return None
    if not adds:
        return found.gather(x, of)
    zero = base is not None and kinds.constant(base) == 0
    return found.scattered(y, None if zero else base)


ADDING = frozenset((ADDED_BY, ADD_AT))
INDEXED = frozenset((TAKEN_BY, ADDED_BY, ELEMENT_NUMBERS, READ, ADD_AT))
