"""The rows of a recorded product J v as expressions of the elements of v; `_direct` compiles them.

No intermediate value is stored: each is defined by other values at other places, as in
`replay/fusion/regions.py`. Cuts divide the output into boxes, and all elements of a box share one expression.
A reshaped value is read in the shape in which it was made."""

import copy
import math

import numpy as np

from .._core.primitive import ADD_AT, READ
from ..ops.indexing.regions import basic, region
from ..ops.shaping import copy as copied
from ..ops.shaping import reshape
from ..replay.buffer_pool import packed
from ..replay.costs import COSTLY_OPERATIONS
from ..replay.fusion.groups import GroupDefinitions
from ..replay.fusion.regions import (
    STEPS,
    Computed,
    Element,
    RegionPiece,
    RegionView,
    WrittenSum,
    cuts_of,
    identity_map,
    of_view,
    reach,
    spread_of,
)
from ..replay.program import Program
from ..replay.record.instructions import LAID, Instruction

RECOMPUTED = 256  # costly elements that cost less than a call that precomputes them
MOST_CUT_ROWS = 16  # rows that a reshape joins, each with cuts of its own
UNMOVED = frozenset((reshape.prim, copied.prim, LAID))  # what leaves elements where they are, in C order


class NotRowwise(Exception):
    """The product has no row-by-row form."""


class ReshapedValue(Computed):
    """A value read in another shape, in C order."""

    cost = 0

    def __init__(self, k: int, shape: tuple, to: tuple):
        self.k, self.shape, self.to = k, shape, to
        self.strides, self.steps = packed(to, 1), packed(shape, 1)

    def sources(self) -> list:
        return [(self.k, None)]

    def needs(self, place: tuple, extents: tuple) -> list:
        first = sum([s * start for s, (start, _) in zip(self.strides, place, strict=True)])
        steps = [
            sum([s * own[d] for s, (_, own) in zip(self.strides, place, strict=True)])
            for d in range(len(extents))
        ]
        found = []
        for n, stride in zip(self.shape, self.steps, strict=True):
            here = tuple([s // stride if stride and s % stride == 0 else 0 for s in steps])
            steps = [0 if h else s for s, h in zip(steps, here, strict=True)]
            at = (first // stride if stride else 0, here)
            low, high = reach(at, extents)
            if low < 0 or high >= n:
                raise NotRowwise("a reshape whose rows do not lie side by side")
            found.append(at)
            first %= max(stride, 1)
        if any(steps) or first:
            raise NotRowwise("a reshape whose rows do not lie side by side")
        return [(self.k, tuple(found))]

    def node(self, g, x: list) -> int:
        return x[0]

    def cuts(self, known: tuple | None) -> tuple | None:
        """Translate cuts into cuts of the leading axis of the other shape; None if they do not fit."""
        if known is None or not any(known):
            return None if known is None else ((),) * len(self.to)
        last = max([a for a, c in enumerate(known) if c])
        rows, row = math.prod(self.shape[:last]), math.prod(self.shape[last:])
        if not self.to or rows > MOST_CUT_ROWS:
            return None
        starts = [r * row + c * self.steps[last] for r in range(rows) for c in (0, *known[last])]
        stride = self.strides[0]
        if any([f % stride for f in starts]):
            return None
        return tuple([f // stride for f in starts if f]), *((),) * (len(self.to) - 1)


class RowwiseValues:
    """The values of a program that its `outputs` need.

    `values` maps a number to its definition, in order. `held` maps a number to the shape in which the value
    was made. `roots` maps a reshaped value to its source."""

    def __init__(self, program: Program, outputs: list, direction: int):
        self.program, self.kinds = program, GroupDefinitions(program, 0)
        self.shown, self.direction = self.kinds.shown, direction
        for k, _ in program.code:  # a number is an array without axes, unless it is in memory
            numpys, shape, strides, dtype, own = self.shown[k]
            if numpys is None and dtype is not None:
                self.shown[k] = (True, shape, strides, dtype, own)
        self.values = {}
        self.held = {}
        self.roots = {}  # reshaped value -> the value that it was made of
        self.cuts = {}
        self.spread = {}
        self.turned = {}
        self.gathered = {}  # elements of the direction gathered by a table of columns
        self.scattered = {}  # a sum of one value and of a second one, scattered by a table of rows
        self.number = program.size
        self.depends = {direction}
        needed = set(outputs)
        for k, i in reversed(program.code):
            if k in needed:
                needed.update(i.args)
        for k, i in program.code:
            if k in needed:
                if not self.depends.isdisjoint(i.args):
                    self.depends.add(k)
                self.define(k, i)

    def shape(self, k: int) -> tuple:
        return self.shown[k][1]

    def root(self, k: int) -> int:
        return self.roots.get(k, k)

    def shape_of(self, k: int) -> tuple:
        return self.held[k] if k in self.held else self.shape(k)

    def known(self, d, held: tuple, like: int) -> int:
        """Add a new value and return its number."""
        k, self.number = self.number, self.number + 1
        self.shown[k] = (True, held, packed(held, self.shown[like][3].itemsize), self.shown[like][3], True)
        self.add(k, d, held)
        return k

    def add(self, k: int, d, held: tuple) -> None:
        sources = [s for s, _ in d.sources()]
        if type(d) is ReshapedValue:
            self.cuts[k], self.spread[k] = d.cuts(self.cuts.get(d.k, ())), self.spread.get(d.k, {})
        elif any([self.cuts.get(s, ()) is None for s in sources]):
            self.cuts[k], self.spread[k] = None, {}
        else:
            self.cuts[k] = cuts_of(d, held, self.cuts)
            spread = (
                {}
                if any([type(self.values.get(s)) is ReshapedValue for s in sources])
                else spread_of(d, held, self.spread)
            )
            if d.cost >= COSTLY_OPERATIONS and k not in self.depends:
                spread[k] = {(0,) * len(held)}
            self.spread[k] = spread
        self.values[k], self.held[k] = d, held

    def counted(self, k: int, shape: tuple) -> int:
        """Return the number of the value k read in this shape."""
        root = self.root(k)
        held = self.shape_of(root)
        if held == shape:
            return root
        if math.prod(held) != math.prod(shape):
            raise AssertionError("another size")
        if (root, shape) not in self.turned:
            self.turned[root, shape] = self.known(ReshapedValue(root, held, shape), shape, root)
        return self.turned[root, shape]

    def define(self, k: int, i: Instruction) -> None:
        if i.prim is READ:
            self.read(k, i)
            return
        if i.prim is ADD_AT and not basic(i.params["at"]):
            self.scatter(k, i)
            return
        if i.prim in UNMOVED:
            if self.kinds.bits(k) is not None and self.shown[i.args[0]][3] == self.shown[k][3]:
                self.roots[k] = self.root(i.args[0])
            return
        d, shape = self.kinds.definition(k, i), self.shape(k)
        if type(d) is Element:
            self.element(k, d, shape)
        elif type(d) is RegionView:
            self.moved(k, d, shape)
        elif type(d) is WrittenSum:
            d.terms = [(self.counted(a, self.shape(a)), m) for a, m in d.terms]
            self.add(k, d, shape)

    def moved(self, k: int, d: RegionView, shape: tuple) -> None:
        form = lambda a: d.form if d.form and a == d.base else self.shape(a)
        pieces = [
            RegionPiece(p.box, *[(self.counted(a, form(a)), m) for a, m in p.sources]) for p in d.pieces
        ]
        self.add(k, RegionView(*pieces), d.form if d.form and d.turned else shape)

    def is_view(self, kind: str, what) -> bool:
        return kind in STEPS and (kind != "at" or basic(what))

    def read(self, k: int, i: Instruction) -> None:
        """Define a view, one step at a time."""
        path, at = list(i.params["path"]), i.params["at"]
        path += [] if at is None else [("at", at)]
        if self.kinds.bits(k) is None or self.shown[i.args[0]][3] != self.shown[k][3]:
            return
        if i.args == (self.direction,) and not all(
            [kind == "reshape" or self.is_view(kind, what) for kind, what in path]
        ):
            self.gathered[k] = self.table(self.direction, i)
            return
        now, shape, n = i.args[0], self.shape(i.args[0]), 0
        while n < len(path):
            kind, what = path[n]
            if kind == "reshape":
                shape, n = full_box(what, math.prod(shape)), n + 1
                continue
            steps = []
            while n < len(path) and self.is_view(*path[n]):
                steps.append(as_view(*path[n]))
                n += 1
            found = of_view(lambda x, steps=tuple(steps): region(x, steps), shape) if steps else None
            if found is None:
                return
            source = self.counted(now, shape)
            shape = found[0]
            now = self.known(RegionView(RegionPiece(None, (source, found[1]))), shape, k)
        self.roots[k] = self.root(now)

    def table(self, k: int, i: Instruction) -> np.ndarray:
        """Return the flat indices that a view selects."""
        numbers = region(np.arange(math.prod(self.shape(k))).reshape(self.shape(k)), i.params["path"])
        return numbers if i.params["at"] is None else np.asarray(numbers[i.params["at"]])

    def scatter(self, k: int, i: Instruction) -> None:
        base, value = i.args[:2]
        if len(i.args) == 2 and self.kinds.bits(k) is not None and self.shown[value][3] == self.shown[k][3]:
            table = self.table(base, i)
            if table.shape == self.shape(value):
                self.scattered[k] = base, value, table

    def element(self, k: int, d: Element, shape: tuple) -> None:
        """Define an elementwise value in the shape in which an operand was made, if the other operands
        fit."""
        held, sources = shape, d.sources()
        if shape and all([self.shape(a) in (shape, ()) or math.prod(self.shape(a)) == 1 for a, _ in sources]):
            made = [self.shape_of(self.root(a)) for a, _ in sources if self.shape(a) == shape]
            held = max(made, key=len, default=shape)
            held = held if len(held) > len(shape) else shape
        found = []
        for a, m in sources:
            if held == shape or self.shape(a) != shape:
                own = self.shape(a)
                m = m if held == shape else tuple([(0, (0,) * len(held))] * len(own))
                found.append((self.counted(a, own), m))
            else:
                found.append((self.counted(a, held), identity_map(held)))
        self.add(k, Element(d.i, found, d.cost), held)

    # --- queries ---

    def again(self, outputs: list) -> set:
        """Return costly values without the direction that several places would recompute; precompute
        these."""
        found = set()
        for k in outputs:
            found.update(
                [
                    v
                    for v, shifts in self.spread.get(self.root(k), {}).items()
                    if v is not None and (len(shifts) - 1) * math.prod(self.shape_of(v)) > RECOMPUTED
                ]
            )
        return {v for v in found if v < self.program.size}

    def parts(self, k: int) -> list:
        """Return the pieces of an output: (number, shape in which it was made, first row or table of
        rows)."""
        root = self.root(k)
        d, shape = self.values.get(root), self.shape_of(root)
        if root in self.scattered:
            base, value, table = self.scattered[root]
            return [*self.parts(base), (self.counted(value, table.shape), table.shape, table)]
        if type(d) is ReshapedValue:
            return self.parts(d.k)
        if type(d) is not RegionView or len(d.pieces) < 2 or d.pieces[-1].box is None or not shape:
            return [(root, shape, 0)]
        found, stride = [], packed(shape, 1)[0]
        for p in d.pieces:
            if p.box is None or p.box[1:] != tuple([(0, n) for n in shape[1:]]) or len(p.sources) != 1:
                return [(root, shape, 0)]
            start, stop = p.box[0]
            a, m = p.sources[0]
            own, lies = self.shape_of(a), identity_map(shape)
            if own != (stop - start, *shape[1:]) or m != ((-start, lies[0][1]), *lies[1:]):
                return [(root, shape, 0)]
            found += [(b, held, rows + start * stride) for b, held, rows in self.parts(a)]
        return found

    def used(self, outputs: list, given: set) -> tuple:
        """Return (definitions that the outputs need, numbers to read as inputs)."""
        needed, values, rest = set(outputs), {}, set()
        for k in reversed(self.values):
            if k in needed and k not in given:
                values[k] = copy.copy(self.values[k])
                needed.update([s for s, _ in values[k].sources()])
        rest = needed.difference(values)
        lost = [k for k in rest if k in self.depends and k != self.direction and k not in self.gathered]
        if lost:
            raise NotRowwise(self.name(min(lost)))
        return dict(reversed(values.items())), rest

    def name(self, k: int) -> str:
        i = dict(self.program.code)[k]
        return i.name


def as_view(kind: str, what) -> tuple:
    """Return a step that gives an array where NumPy would give a scalar."""
    if kind != "at":
        return kind, what
    index = what if type(what) is tuple else (what,)
    return kind, index if any([a is Ellipsis for a in index]) else (*index, Ellipsis)


def full_box(to, size: int) -> tuple:
    form = tuple(to) if type(to) in (tuple, list) else (to,)
    return tuple([size // -math.prod(form) if n == -1 else n for n in form])
