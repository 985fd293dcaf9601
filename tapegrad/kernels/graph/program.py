"""Programs: straight code with loops in between, all in one graph; one program computes one result of a
kernel.

The loops are ordered. Code that depends on no step of a loop runs before, between or after the loops, as
early as possible (`stages`). Values of parameters alone are therefore computed once. A loop has a carry, sums
over its steps, or both:

    for t in steps:                     # backwards where the loop sweeps back over another one
        carry, sums += next(carry, datum t), inc(carry, datum t)
        step output t = each(carry, datum t)

A step is again straight code with loops in between (`inner`). These loops have a carry and no data.

A loop that sweeps back over another one (`of`) reads the datum, counter and carry of the same step. The first
loop has stored the carry of each step. Both loops stand in the same body. An inner loop of a loop that is
swept back therefore stands in the sweep as well, where it runs again before its own sweep.

Read `ProgramLoop` first, then `forward` and `reverse` in `adjoint`."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .blocks import element_total
from .nodes import LEAVES, Graph

LISTS = ("carry", "start", "next", "final", "inc", "sums", "each")


@dataclass
class ProgramLoop:
    """One loop of a program.

    `steps` is "data" (one step for each datum), or the node of the number of steps of this sample. `active`
    is a node that says whether this sample continues (a while loop). `cap` is the largest number of steps
    (None: the number of data, or counted). `going` is a node that is false in a step that only other samples
    take; the carry then stays."""

    id: int
    steps: Any
    active: Any = None
    cap: int | None = None
    of: "ProgramLoop | Any" = None
    going: int | None = None
    carry: list[int] = field(default_factory=list)  # input nodes: the carry in a step
    start: list[int] = field(default_factory=list)
    next: list[int] = field(default_factory=list)
    final: list[int] = field(default_factory=list)  # input nodes: the carry after the loop
    inc: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)  # input nodes: the sums after the loop
    each: list[int] = field(default_factory=list)  # rows of the step output
    inner: list["ProgramLoop"] = field(default_factory=list)  # the loops in a step, in order
    stored: bool = False  # a backward sweep reads the carry of each step
    kept: list[int] = field(default_factory=list)  # further stored values of a step

    def copy(self) -> "ProgramLoop":
        lists: dict[str, Any] = {k: list(getattr(self, k)) for k in LISTS}
        return replace(self, **lists, inner=copies(self.inner))

    @property
    def data(self) -> bool:
        return (self.of or self).steps == "data"

    def add_carry(self, g: Graph, start: int, shape: tuple) -> int:
        """Add a component; its start may be one number for all elements of a block."""
        k = len(self.carry)
        self.carry.append(g.input("c", self.id, k, shape))
        self.final.append(g.input("co", self.id, k, shape))
        self.start.append(start)
        self.next.append(self.carry[-1])
        return self.carry[-1]

    def add_sum(self, g: Graph, inc: int) -> int:
        """Return the node of the sum of `inc` over the steps, and add it to `sums` if it is new."""
        if g.mask[inc] == 0 and self.data:
            return g.mul(inc, g.input("N", 0, 0))
        if inc in self.inc:
            return self.sums[self.inc.index(inc)]
        self.inc.append(inc)
        self.sums.append(g.input("s", self.id, len(self.sums), g.shape[inc]))
        return self.sums[-1]

    def reads(self) -> list[int]:
        """Return the nodes of all expressions, including those of inner loops."""
        found = self.start + self.next + self.inc + self.each
        found += [i for i in (self.active, self.going, self.steps) if isinstance(i, int)]
        return found + [i for loop in self.inner for i in loop.reads()]

    def rewrite(self, new: dict) -> None:
        """Replace each expression i by new[i]."""
        for name in ("start", "next", "inc", "each"):
            setattr(self, name, [new[i] for i in getattr(self, name)])
        for name in ("active", "going", "steps"):
            if isinstance(getattr(self, name), int):
                setattr(self, name, new[getattr(self, name)])
        for loop in self.inner:
            loop.rewrite(new)


def copies(loops: list[ProgramLoop]) -> list[ProgramLoop]:
    """Return copies of the loops of one body; their sweeps refer to the copies."""
    made = [loop.copy() for loop in loops]
    relate(made)
    return made


def relate(loops: list[ProgramLoop]) -> None:
    """Let sweeps refer to the loops of this list."""
    by_id = {loop.id: loop for loop in loops}
    for loop in loops:
        if loop.of is not None:
            loop.of = by_id.get(loop.of.id, loop.of)


def nested_loops(loops: list[ProgramLoop]) -> Iterator[ProgramLoop]:
    """Yield all loops, each before those in its body."""
    for loop in loops:
        yield loop
        yield from nested_loops(loop.inner)


@dataclass
class KernelProgram:
    """A program.

    `groups` lists the output nodes of each output array. `inputs` holds the number of rows of each input
    array, `rows` the number of components of a datum (0: a plain number).

    At most one loop has a step output, (rows, steps, samples). `by_data`: the program is a derivative with
    respect to the data, summed over samples that share them. `streams` counts the rows of the step input,
    which holds numbers of each step and sample. `ways` counts the directions in data space; their rows follow
    those of the data. `layout` is the tree of the outputs, where the user wants one. `order` counts the
    applications of forward mode."""

    g: Graph
    inputs: list[int]
    rows: int
    loops: list[ProgramLoop]
    groups: list[list[int]]
    by_data: bool = False
    streams: int = 0
    ways: int = 0
    layout: Any = None
    order: int = 0

    def __post_init__(self) -> None:
        self._deepen(self.loops, 1)

    def is_like(self, other: "KernelProgram | None") -> bool:
        """Return whether a trace of the same function gave the same nodes."""
        nodes = lambda p: repr((p.g.op, p.g.args, p.g.meta, p.groups))
        return other is not None and nodes(self) == nodes(other)

    def _deepen(self, loops: list[ProgramLoop], depth: int) -> None:
        for loop in loops:
            self.g.depth[loop.id] = depth
            self._deepen(loop.inner, depth + 1)

    @property
    def outputs(self) -> list[int]:
        return [o for group in self.groups for o in group]

    def thetas(self, group: int) -> list[int]:
        return self.g.parameters(sum(self.inputs[:group]), self.inputs[group])

    def rows_of(self, group: int) -> int:
        """Return the number of rows of output array `group`."""
        return sum(element_total(self.g.shape[o]) for o in self.groups[group])

    def data(self, way: int = 0) -> list[int]:
        """Return the nodes of a datum, or of direction number `way` in its space."""
        n = max(self.rows, 1)
        over = [loop for loop in self.loops if loop.steps == "data" and loop.of is None]
        return [self.g.input("y", loop.id, way * n + k) for loop in over for k in range(n)]

    @property
    def step_rows(self) -> int:
        """Return the number of rows of the step output."""
        return sum([len(loop.each) for loop in self.loops])


def stages(g: Graph, loops: list[ProgramLoop]) -> dict:
    """Return, for every node, the number of loops that must run before it."""
    at = {}
    for n, loop in enumerate(loops):
        at.update(dict.fromkeys(loop.final + loop.sums, n + 1))
    stage = {}
    for i in range(len(g.mask)):
        if g.op[i] in LEAVES:
            stage[i] = at.get(i, 0)
        else:
            stage[i] = max([stage[j] for j in g.args[i]])
    return stage


def carried(loop: ProgramLoop) -> list[int]:
    """Return what a step must compute beside its sums."""
    return loop.next + loop.each + ([loop.active] if loop.active is not None else [])


class OuterNodes:
    """The nodes computed outside of the loops at this depth, as a set to stop at."""

    def __init__(self, g: Graph, depth: int):
        self.level, self.depth = g.level, depth

    def __contains__(self, i: int) -> bool:
        return self.level(i) < self.depth


def pruned(p: KernelProgram) -> KernelProgram:
    """Remove carries, sums, loops and stored steps that no output needs (dead code)."""
    return replace(p, loops=_kept(p.g, p.loops, p.outputs)[0])


def _kept(g: Graph, loops: list[ProgramLoop], outs: list[int]) -> tuple[list[ProgramLoop], set[int]]:
    """Return the live parts of the loops, and all needed nodes.

    outs are nodes of the code around the loops. The loops are visited from the last to the first, so every
    user of a loop is visited before it."""
    needed = set(g.reach(outs))
    kept: list[ProgramLoop] = []
    inside: dict[int, set] = {}  # sweep -> nodes that its steps need
    for loop in [loop.copy() for loop in reversed(loops)]:
        back = [r for r in kept if r.of is not None and r.of.id == loop.id]
        keep = {
            k
            for k, (c, f) in enumerate(zip(loop.carry, loop.final, strict=True))
            if c in needed or f in needed
        }
        sums = [k for k, s in enumerate(loop.sums) if s in needed]
        if not (keep or sums or loop.each or any(not r.data for r in back)):
            continue
        inner: list[ProgramLoop] = []
        used: set[int] = set()
        while True:
            step = [loop.next[k] for k in sorted(keep)] + [loop.inc[k] for k in sums] + loop.each
            step += [loop.active] if loop.active is not None else []
            if loop.inner:
                inner, used = _kept(g, loop.inner, step)
            else:
                used.update(g.reach(step, used))
            more = {k for k, c in enumerate(loop.carry) if c in used} - keep
            if not more:
                break
            keep |= more
        for name in ("carry", "start", "next", "final"):
            setattr(loop, name, [getattr(loop, name)[k] for k in sorted(keep)])
        loop.inc, loop.sums, loop.inner = [loop.inc[k] for k in sums], [loop.sums[k] for k in sums], inner
        loop.stored = any(c in inside[r.id] for r in back for c in loop.carry)
        inside[loop.id] = used
        needed |= used
        needed.update(
            g.reach(loop.start + ([loop.steps] if isinstance(loop.steps, int) else []), stop=needed)
        )
        kept.insert(0, loop)
    relate(kept)
    return kept, needed
