"""Where the elements of a value come from, told by integers: how a view, a write into a region, a shift by
one moves them.

A place is, for each axis of a value, (first, steps): its index is first + sum of steps[d] times the d-th
counter of a loop.  A map says the same of the axes of an operand, by the axes of the result.  So the views of
a program, and its writes, become other places at which its operands are read, and no loop is made for
them."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.primitive import ADD_AT, ASSIGN, READ
from ...ops.indexing.regions import basic, region
from ...ops.products import put_last, take_last
from ...ops.shaping import (
    as_layer,
    broadcast_to,
    concatenate,
    copy,
    embed,
    layer,
    layered,
    packed,
    reshape,
    rolled,
    slice_of,
    transpose,
)
from ..record.instructions import LAID, Instruction
from ..scalar_graph import scalar_of


@functools.cache
def identity_map(shape: tuple) -> tuple:
    """The map of an operand that lies as the result does."""
    return tuple([(0, tuple([int(a == j) for a in range(len(shape))])) for j in range(len(shape))])


@functools.cache
def broadcast(shape: tuple, to: tuple) -> tuple:
    """The map of an operand that is broadcast."""
    ahead = len(to) - len(shape)
    return tuple(
        [(0, tuple([int(a == j + ahead and n > 1) for a in range(len(to))])) for j, n in enumerate(shape)]
    )


def of_view(view: Callable, shape: tuple) -> tuple | None:
    """(the shape of view(x), its map) for x of this shape; None where it is no view.  Each axis by itself is
    laid out in bytes."""
    found, to = [], shape
    for line, x in lines_of(shape):
        v = view(x)
        to = v.shape
        if not v.size or v.base is None:
            return None
        first = v.__array_interface__["data"][0] - line
        found.append((first, tuple([s if m > 1 else 0 for s, m in zip(v.strides, to, strict=True)])))
    return to, tuple(found)


@functools.lru_cache(256)
def lines_of(shape: tuple) -> list:
    """For each axis an array of this shape whose elements lie in a line along it, and where that begins."""
    found = []
    for j, n in enumerate(shape):
        line = np.empty(n, np.int8)
        x = np.broadcast_to(line.reshape([n if k == j else 1 for k in range(len(shape))]), shape)
        found.append((line.__array_interface__["data"][0], x))
    return found


def operand_place(m: tuple, place: tuple, counters: int) -> tuple:
    """The place in the operand."""
    found = []
    for first, steps in m:
        total = [0] * counters
        for s, (start, own) in zip(steps, place, strict=True):
            if s:
                first += s * start
                total = [t + s * o for t, o in zip(total, own, strict=True)]
        found.append((first, tuple(total)))
    return tuple(found)


def reach(at: tuple, extents: tuple) -> tuple[int, int]:
    """The least and the greatest index."""
    first, steps = at
    ends = [s * (n - 1) for s, n in zip(steps, extents, strict=True)]
    return first + sum([min(e, 0) for e in ends]), first + sum([max(e, 0) for e in ends])


class RegionPiece:
    """Elements of the result in `box` ((start, stop) for each axis; None: all) are the sum of the sources:
    (operand, map)."""

    __slots__ = ("box", "sources")

    def __init__(self, box: tuple | None, *sources: tuple):
        self.box, self.sources = box, sources

    def holds(self, place: tuple, extents: tuple) -> bool:
        """Does it hold all of these elements?  (False: none of them.)"""
        if self.box is None:
            return True
        inside = True
        for at, (start, stop) in zip(place, self.box, strict=True):
            low, high = reach(at, extents)
            if high < start or low >= stop:
                return False
            inside &= start <= low and high < stop
        if not inside:
            raise AssertionError("a box was not cut")
        return True


class Computed:
    """A value of which each element is computed from elements of its operands. `gathered`: the operand that
    is read at computed places."""

    gathered: int | None = None

    def sources(self) -> list:
        raise NotImplementedError

    def conditions(self, g, x: list, n: int) -> list:
        """What is to hold at each element; else the loops are of no use."""
        return []

    def needs(self, place: tuple, extents: tuple) -> list:
        return [(k, operand_place(m, place, len(extents))) for k, m in self.sources()]


class RegionView(Computed):
    """A value whose elements are those of others, or sums of two: of the first piece that holds them.
    `form`: the shape in which the operand is counted, which lies in C order, and with `turned` the value
    itself, where that is not their own."""

    cost = 0

    def __init__(
        self, *pieces: RegionPiece, form: tuple | None = None, turned: bool = False, base: int | None = None
    ):
        self.pieces, self.form, self.turned, self.base = pieces, form, turned, base
        # of a write, which is done where the buffer lies
        box = pieces[0].box if pieces[-1].box is None else None
        self.region = None if box is None else math.prod([stop - start for start, stop in box])
        self.is_view = len(pieces) == 1 and len(pieces[0].sources) == 1

    def needs(self, place: tuple, extents: tuple) -> list:
        piece = next(p for p in self.pieces if p.holds(place, extents))
        return [(k, operand_place(m, place, len(extents))) for k, m in piece.sources]

    def node(self, g, x: list) -> int:
        return g.add(*x) if len(x) == 2 else x[0] if x else g.zero

    def sources(self) -> list:
        return [s for p in self.pieces for s in p.sources]


class WrittenSum(Computed):
    """A sum over short axes, written out term by term."""

    def __init__(self, k: int, shape: tuple, axes: tuple, keepdims: bool):
        kept = [j for j in range(len(shape)) if j not in axes]
        own = {j: j if keepdims else kept.index(j) for j in kept}
        count = len(shape) if keepdims else len(kept)
        self.terms = []
        for index in np.ndindex(*[shape[j] for j in axes]):
            at = dict(zip(axes, index, strict=True))
            m = [
                (at[j], (0,) * count) if j in at else (0, tuple([int(a == own[j]) for a in range(count)]))
                for j in range(len(shape))
            ]
            self.terms.append((k, tuple(m)))
        self.cost = len(self.terms)

    def key(self) -> tuple:
        return ("sum",)

    def node(self, g, x: list) -> int:
        out = x[0]
        for term in x[1:]:
            out = g.add(out, term)
        return out

    def sources(self) -> list:
        return self.terms


class Element(Computed):
    """An elementwise instruction: its operands, and their maps.  `bounded`: does it end where NumPy's
    function goes on?"""

    def __init__(self, i: Instruction, sources: list, cost: int, bounded: bool = False):
        self.i, self.list, self.cost, self.bounded = i, sources, cost, bounded

    def sources(self) -> list:
        return self.list

    def node(self, g, x: list) -> int:
        return scalar_of(g, self.i, x)


STEPS = frozenset(("at", "transpose"))
MOST_PACKED = 16  # numbers made into an array, up to which each is a piece of its own


def view_region(i: Instruction) -> Callable | None:
    """The view that an instruction takes of its operand."""
    prim = i.prim
    if prim is READ:
        path, at = i.params["path"], i.params["at"]
        if not all([kind in STEPS and (kind != "at" or basic(what)) for kind, what in path]) or not (
            at is None or basic(at)
        ):
            return None
        return lambda x: region(x, path) if at is None else region(x, path)[at]
    view = VIEWS.get(prim)
    return None if view is None else lambda x: view(x, *i.params.values())


VIEWS: dict[Any, Callable] = {transpose.prim: np.transpose, broadcast_to.prim: np.broadcast_to}


def moved_region(i: Instruction, shapes: list, shape: tuple) -> RegionView | None:
    """What an instruction is that but moves elements, for operands of these shapes."""
    rule = RULES.get(i.prim)
    return None if rule is None else rule(i, shapes, shape)


def of_region(rule: Callable) -> Callable:
    """That of a read or write, also by a reshape."""

    return lambda i, *shapes: (
        reshaped_region if "reshape" in [kind for kind, _ in i.params["path"][:1]] else rule
    )(i, *shapes)


def as_view(i, shapes, shape):
    view = view_region(i)
    found = None if view is None else of_view(view, shapes[0])
    return (
        None if found is None or found[0] != shape else RegionView(RegionPiece(None, (i.args[0], found[1])))
    )


def spread(i, shapes, shape):
    return RegionView(RegionPiece(None, (i.args[0], broadcast(shapes[0], shape))))


def as_it_lies(i, shapes, shape):
    return RegionView(RegionPiece(None, (i.args[0], identity_map(shape))))


def reshaped(i, shapes, shape):
    """Axes of one element come and go."""
    if [n for n in shapes[0] if n != 1] != [n for n in shape if n != 1]:
        return None
    axes = iter([a for a, n in enumerate(shape) if n != 1])
    m = tuple([(0, unit(next(axes), len(shape)) if n != 1 else (0,) * len(shape)) for n in shapes[0]])
    return RegionView(RegionPiece(None, (i.args[0], m)))


def shift_map(i, shapes, shape):
    shift, axis = i.params["shift"], i.params["axis"]
    if type(shift) is not int or (type(axis) is not int and len(shape) != 1):
        return None
    axis = (axis or 0) % len(shape)
    n, k = shape[axis], i.args[0]
    return parts_along(axis, shape, [(shift % n, k, n - shift % n), (n - shift % n, k, 0)])


def concatenated(i, shapes, shape):
    axis = i.params["axis"] % len(shape)
    return parts_along(axis, shape, [(s[axis], k, 0) for k, s in zip(i.args, shapes, strict=True)])


def picked_region(i, shapes, shape):
    """Some of the last axis, or their places among zeros."""
    (k,), at = i.args, [*i.params["at"]]
    starts = [at.index(n) if n in at else None for n in range(shape[-1])] if "size" in i.params else at
    parts = [(1, None, 0) if start is None else (1, k, start) for start in starts]
    return parts_along(len(shape) - 1, shape, parts)


def sliced(i, shapes, shape):
    """A slice along an axis, or one among zeros."""
    axis, start = i.params["axis"] % len(shape), i.params["start"] or 0
    (k,), own = i.args, shapes[0][axis]
    start = start if start >= 0 else start + own
    if "size" not in i.params:
        return parts_along(axis, shape, [(shape[axis], k, start)])
    return parts_along(axis, shape, among_zeros(start, (own, k, 0), shape[axis]))


def layer_of(i, shapes, shape):
    """One of the arrays along an axis."""
    m = list(identity_map(shape))
    m.insert(i.params["axis"], (i.params["at"], (0,) * len(shape)))
    return RegionView(RegionPiece(None, (i.args[0], tuple(m))))


def stacked_region(i, shapes, shape):
    """Arrays along a new axis, or one among zeros."""
    axis, parts = i.params["axis"], [(1, k, None) for k in i.args]
    if "at" in i.params:
        parts = among_zeros(i.params["at"], parts[0], shape[axis])
    return parts_along(axis, shape, parts)


def among_zeros(start: int, part: tuple, size: int) -> list:
    return [(start, None, 0), part, (size - start - part[0], None, 0)]


def packed_region(i, shapes, shape):
    """Numbers as an array."""
    if len(shapes) > MOST_PACKED or any(shapes):
        return None
    boxes = [tuple([(a, a + 1) for a in at]) for at in np.ndindex(shape)]
    return RegionView(*[RegionPiece(box, (k, ())) for box, k in zip(boxes, i.args, strict=True)])


def reshaped_region(i, shapes, shape):
    """A view of an array, or a write to it, that goes by a reshape of it."""
    to, size = i.params["path"][0][1], math.prod(shapes[0])
    form = tuple(to) if type(to) in (tuple, list) else (to,)
    if -1 in form:
        form = tuple([size // -math.prod(form) if n == -1 else n for n in form])
    if math.prod(form) != size or i.args[0] in i.args[1:]:
        return None
    inner = Instruction(i.prim, i.args, {**i.params, "path": i.params["path"][1:]})
    d = moved_region(inner, [form, *shapes[1:]], shape if i.prim is READ else form)
    return (
        None
        if d is None or d.form
        else RegionView(*d.pieces, form=form, turned=i.prim is not READ, base=i.args[0])
    )


def unit(a: int, n: int) -> tuple:
    return tuple([int(k == a) for k in range(n)])


def parts_along(axis: int, shape: tuple, parts: list) -> RegionView | None:
    """Parts one after the other along an axis: (elements, operand, or None for zeros, first element of the
    operand there, or None if it has not this axis)."""
    pieces, place = [], 0
    for count, k, start in parts:
        if count:
            box = tuple([(place, place + count) if a == axis else (0, n) for a, n in enumerate(shape)])
            m = [
                (first + start - place if a == axis else first, steps)
                for a, (first, steps) in enumerate(identity_map(shape))
                if a != axis or start is not None
            ]
            sources = () if k is None else ((k, tuple(m)),)
            pieces.append(RegionPiece(None if count == shape[axis] else box, *sources))
            place += count
    return RegionView(*pieces) if pieces else None


def written_region(i, shapes, shape):
    """A write into a region without gaps."""
    path, at = i.params["path"], i.params["at"]
    if not all([kind in STEPS and (kind != "at" or basic(what)) for kind, what in path]) or not basic(at):
        return None
    index = at if type(at) is tuple else (at,)
    index = index if any([a is Ellipsis for a in index]) else (*index, Ellipsis)
    found = of_view(lambda x: region(x, path)[index], shape)
    if found is None:
        return None
    to, m = found
    box, back = [], [(0, (0,) * len(shape))] * len(to)
    for j, (first, steps) in enumerate(m):
        moving = [(a, s) for a, s in enumerate(steps) if s]
        if not moving:
            box.append((first, first + 1))
            continue
        if len(moving) > 1 or abs(moving[0][1]) > 1:
            return None
        a, s = moving[0]
        last = first + s * (to[a] - 1)
        box.append((min(first, last), max(first, last) + 1))
        back[a] = (-first * s, tuple([s * (k == j) for k in range(len(shape))]))
    ahead = len(to) - len(shapes[1])
    own = tuple([back[ahead + a] if n > 1 else (0, (0,) * len(shape)) for a, n in enumerate(shapes[1])])
    base, what = (i.args[0], identity_map(shape)), (i.args[1], own)
    full = box == [(0, n) for n in shape]
    inside = RegionPiece(None if full else tuple(box), *((what,) if i.prim is ASSIGN else (base, what)))
    return RegionView(inside) if full else RegionView(inside, RegionPiece(None, base))


RULES: dict = {
    **{word: of_region(rule) for word, rule in ((READ, as_view), (ASSIGN, written_region), (ADD_AT,
    written_region))},
    LAID: as_it_lies,
    **{
        entry.prim: rule
        for rule, *entries in (
            (as_it_lies, copy), (spread, broadcast_to), (as_view, transpose), (reshaped, reshape), (shift_map,
            rolled),
            (concatenated, concatenate), (stacked_region, layered, as_layer), (layer_of, layer), (sliced,
            slice_of, embed),
            (picked_region, take_last, put_last), (packed_region, packed),
        )
        for entry in entries
    },
}  # fmt: skip


# --- where loops are to be cut, and how far apart an operand is read ---


def cuts_of(d, shape: tuple, known: dict) -> tuple:
    """For each axis the places between 0 and its end where the text for one element changes; `known`: those
    of the operands."""
    found = [set() for _ in shape]
    for piece in getattr(d, "pieces", ()):
        for cuts, ends in zip(found, piece.box or (), strict=False):
            cuts.update(ends)
    for k, m in d.sources():
        for (first, steps), cuts in zip(m, known.get(k) or ((),) * len(m), strict=True):
            moving = [(a, s) for a, s in enumerate(steps) if s]
            if cuts and len(moving) == 1:
                a, s = moving[0]
                found[a].update(
                    [math.ceil((c - first) / s) if s > 0 else math.floor((first - c) / -s) + 1 for c in cuts]
                )
    return tuple(
        [tuple(sorted([c for c in cuts if 0 < c < n])) for cuts, n in zip(found, shape, strict=True)]
    )


def spread_of(d, shape: tuple, known: dict) -> dict:
    """The distances at which elements are read: of operands in memory (None), and of costly values; `known`:
    those of the operands."""
    found = {}
    for k, m in d.sources():
        for origin, shifts in (known.get(k) or {None: ((0,) * len(m),)}).items():
            found.setdefault(origin, set()).update([shifted_map(m, shift, len(shape)) for shift in shifts])
    return found


def shifted_map(m: tuple, shift: tuple, count: int) -> tuple:
    own = [0] * count
    for (first, steps), s in zip(m, shift, strict=True):
        for a, step in enumerate(steps):
            if step:
                own[a] += (first + s) * step
    return tuple(own)


def cells(shape: tuple, cuts: tuple) -> list:
    """The boxes between the cuts: (starts, extents)."""
    found: list = [((), ())]
    for n, c in zip(shape, cuts, strict=True):
        ends = list(zip((0, *c), (*c, n), strict=True))
        found = [((*starts, a), (*sizes, b - a)) for starts, sizes in found for a, b in ends]
    return found
