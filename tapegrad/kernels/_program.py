"""A kernel before it is text: a program is straight code with loops in between, all in one graph.

The loops stand in order.  Code that depends on no step of a loop runs before, between or after the loops, as early as it can
(`Program.stage`); so what depends only on parameters is computed once.  A loop has a carry, sums over its steps, or both:

    for t in steps:                     # backwards where the loop sweeps back over another one
        carry, sums += next(carry, datum t), inc(carry, datum t)
        step output t = each(carry, datum t)

A loop that sweeps back over another one (`of`) reads that loop's datum, counter and carry of the same step; the carry of each
step was stored by the loop itself.  Read `Loop`, then `Program.forward` and `Program.reverse` in _differentiate.py."""

from dataclasses import dataclass, field, replace
from typing import Any

from ._blocks import size_of
from ._graph import LEAVES, Graph


@dataclass
class Loop:
    """`steps`: "data" (one for each datum), or the node that holds the number of steps of this sample.  `active`: a node that
    says whether this sample goes on (a while loop).  `cap`: at most so many steps (None: the number of data, or counted)."""

    id: int
    steps: int | str
    active: int | None = None
    cap: int | None = None
    of: "Loop | None" = None
    carry: list[int] = field(default_factory=list)  # in-nodes: the carry in a step
    start: list[int] = field(default_factory=list)
    next: list[int] = field(default_factory=list)
    final: list[int] = field(default_factory=list)  # in-nodes: the carry after the loop
    inc: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)  # in-nodes: the sums after the loop
    each: list[int] = field(default_factory=list)  # what a step hands out, one row of the step output for each
    stored: bool = False  # a sweep back reads the carry of each step
    kept: list[int] = field(default_factory=list)  # what else is stored of a step

    def copy(self) -> "Loop":
        lists = {k: list(getattr(self, k)) for k in ("carry", "start", "next", "final", "inc", "sums", "each")}
        return Loop(self.id, self.steps, self.active, self.cap, self.of, stored=self.stored, **lists)

    @property
    def data(self) -> bool:
        return (self.of or self).steps == "data"

    @property
    def family(self) -> int:
        """The loops whose steps this one's steps see, as bits."""
        return 1 << self.id | (1 << self.of.id if self.of else 0)

    def add_carry(self, g: Graph, start: int, shape: tuple = ()) -> int:
        """A new component; its start may be a number for all elements of a block."""
        k = len(self.carry)
        self.carry.append(g.input("c", self.id, k, shape))
        self.final.append(g.input("co", self.id, k, shape))
        self.start.append(start)
        self.next.append(self.carry[-1])
        return self.carry[-1]

    def add_sum(self, g: Graph, inc: int) -> int:
        """The node of the sum of `inc` over the steps, found in `sums` if it is there already."""
        if g.mask[inc] == 0 and self.data:
            return g.mul(inc, g.input("N", 0, 0))
        if inc in self.inc:
            return self.sums[self.inc.index(inc)]
        self.inc.append(inc)
        self.sums.append(g.input("s", self.id, len(self.sums), g.shape[inc]))
        return self.sums[-1]


@dataclass
class Program:
    """`groups`: the outputs, one list of nodes for each output array; `inputs`: the number of rows of each input array;
    `rows`: the number of components of a datum (0: a plain number).

    One loop at most has a step output, (rows, steps, samples).  `by_data`: it is a derivative by the data, and is summed over the
    samples where these share the data.  `streams`: rows of the step input, which holds numbers of each step and sample.  `ways`:
    directions in data space, whose rows stand below those of the data themselves.  `layout`: the tree that the outputs make up,
    of arrays of their numbers, where the user wants one back."""

    g: Graph
    inputs: list[int]
    rows: int
    loops: list[Loop]
    groups: list[list[int]]
    by_data: bool = False
    streams: int = 0
    ways: int = 0
    layout: Any = None

    @property
    def outputs(self) -> list[int]:
        return [o for group in self.groups for o in group]

    def thetas(self, group: int) -> list[int]:
        return self.g.parameters(sum(self.inputs[:group]), self.inputs[group])

    def rows_of(self, group: int) -> int:
        """How many rows output array `group` has."""
        return sum(size_of(self.g.shape[o]) for o in self.groups[group])

    def data(self, way: int = 0) -> list[int]:
        """The nodes of a datum, or of direction number `way` in its space."""
        n = max(self.rows, 1)
        over = [loop for loop in self.loops if loop.steps == "data" and loop.of is None]
        return [self.g.input("y", loop.id, way * n + k) for loop in over for k in range(n)]

    @property
    def step_rows(self) -> int:
        """Rows of the step output."""
        return sum([len(loop.each) for loop in self.loops])

    def stages(self, outs: list[int] | None = None) -> dict:
        """For every node: after how many loops it can be computed."""
        g, at = self.g, {}
        for n, loop in enumerate(self.loops):
            at.update(dict.fromkeys(loop.final + loop.sums, n + 1))
        stage: dict = {}
        for i in range(len(g.op)):
            if g.op[i] in LEAVES:
                stage[i] = at.get(i, 0)
            else:
                stage[i] = max([stage[j] for j in g.args[i]])
        return stage


def carried(loop: Loop) -> list[int]:
    """What a step must compute beside its sums."""
    return loop.next + loop.each + ([loop.active] if loop.active is not None else [])


class Outside:
    """All nodes that depend on no step of a loop, as a set to stop at."""

    def __init__(self, g: Graph):
        self.mask = g.mask

    def __contains__(self, i: int) -> bool:
        return self.mask[i] == 0


def pruned(p: Program) -> Program:
    """The program without carries, sums, loops and stored steps that no output needs."""
    g = p.g
    loops = [loop.copy() for loop in p.loops]
    needed = _needed(g, loops, p.outputs)
    kept = []
    for loop in loops:
        back = [r for r in loops if r.of is not None and r.of.id == loop.id]
        keep = [k for k, (c, f) in enumerate(zip(loop.carry, loop.final, strict=True)) if c in needed or f in needed]
        for name in ("carry", "start", "next", "final"):
            setattr(loop, name, [getattr(loop, name)[k] for k in keep])
        keep = [k for k, s in enumerate(loop.sums) if s in needed]
        loop.inc, loop.sums = [loop.inc[k] for k in keep], [loop.sums[k] for k in keep]
        loop.stored = any(c in needed_by(g, r) for r in back for c in loop.carry)
        if loop.carry or loop.sums or loop.each or any(is_needed(r, needed) and not r.data for r in back):
            kept.append(loop)
    by_id = {loop.id: loop for loop in kept}
    for loop in kept:
        if loop.of is not None:
            loop.of = by_id.get(loop.of.id, loop.of)
    return replace(p, loops=kept)


def is_needed(loop: Loop, needed: set[int]) -> bool:
    return bool(loop.each) or any(i in needed for i in loop.carry + loop.final + loop.sums)


def needed_by(g: Graph, loop: Loop) -> set[int]:
    return set(g.reach(carried(loop) + loop.inc))


def _needed(g: Graph, loops: list[Loop], outputs: list[int]) -> set[int]:
    """All nodes that the outputs need, through any loop."""
    needed: set[int] = set()
    todo = outputs + [e for loop in loops for e in loop.each]
    seen_final: set = set()
    while todo:
        fresh = [i for i in g.reach(todo, stop=needed) if i not in needed]
        needed.update(fresh)
        todo = []
        for loop in loops:
            for c, f, s, n in zip(loop.carry, loop.final, loop.start, loop.next, strict=True):
                if (c in needed or f in needed) and (loop.id, c) not in seen_final:
                    seen_final.add((loop.id, c))
                    todo += [c, s, n]
            todo += [inc for s, inc in zip(loop.sums, loop.inc, strict=True) if s in needed and inc not in needed]
            if is_needed(loop, needed) and not loop.data:  # a sweep takes as many steps as the loop that it sweeps back over
                source = loop.of or loop
                todo += [x for x in (source.active, source.steps) if x is not None and x not in needed]
    return needed
