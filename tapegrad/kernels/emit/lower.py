"""The last form before text, the same for both emitters: lists of instructions, with multiply-add chosen here.

CPU and CUDA compilers may each contract a * b + c as they like, which changes the last bit.  We choose ourselves, node by node
and whatever the rest of the program, and forbid them to: so CPU and GPU agree bit for bit."""

import bisect
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..graph.blocks import BLOCK_OPS, size_of
from ..graph.expanded import expanded
from ..graph.factor import factored
from ..graph.nodes import LEAVES, PER_STEP, Graph
from ..graph.program import Loop, Program, carried, pruned
from ..graph.wide_sums import widened
from .arena import Placement, cost
from .elementary import FUNCTIONS, is_function

Instruction = tuple  # (node, operation, operands)
COSTLY = 4  # instructions that it must save to store a number of a step rather than to compute it again
SLOW = {"rcp": 8, "sqrt": 8, **dict.fromkeys(FUNCTIONS, 16)}  # about as many instructions as these take
SUMS = np.dtype(np.float64)
GUESS = 16  # steps of a loop of which only the run tells how many it takes
CHUNK = 64  # sums are taken in two levels: over 64 steps, then over the chunks


@dataclass
class Body:
    """One step.  `number`: its place among all bodies, an outer one before the inner; `sections[k]`: the code between inner loop
    k - 1 and k; `terms`: what each sum takes up, (x,) or (x, y) for the product, which is added by one multiply-add."""

    loop: Loop
    number: int
    depth: int
    sections: list[list[Instruction]] = field(default_factory=list)
    inner: list["Body"] = field(default_factory=list)
    terms: list[tuple] = field(default_factory=list)

    blocks: bool = False  # does it handle blocks?
    source: int | None = None  # the body of the loop that this one sweeps back over, if that is stored
    label: str = ""  # a name of its own for what the text declares

    @property
    def code(self) -> list[Instruction]:
        return [instruction for section in self.sections for instruction in section]

    def split(self) -> tuple[int, list[Instruction], list[Instruction]]:
        """Where the step of a while loop may end: the number of a section, and its code up to there and from there on.  The
        condition comes as early as it can, but for blocks, whose places are planned for the code as it stands."""
        at = {i: k for k, code in enumerate(self.sections) for i, _, _ in code}
        n = len(self.sections) - 1 if self.blocks else at.get(self.loop.active, 0)
        needed, code = {self.loop.active}, self.sections[n]
        for i, _, args in reversed(code):
            if i in needed:
                needed.update(args)
        first = [x for x in code if self.blocks or x[0] in needed]
        return n, first, [x for x in code if x not in first]

    def own(self, g: Graph, i: int) -> bool:
        """Does input node i hold what this loop has in a step, such as its counter?"""
        return g.args[i][0] in PER_STEP and g.level(i) == self.depth

    def outs(self) -> list[int]:
        """The nodes that the step hands on."""
        return carried(self.loop) + [j for term in self.terms for j in term]

    def used(self) -> set[int]:
        """The nodes that the step reads or hands on, and those that the loops in it read."""
        found = {j for _, _, x in self.code for j in x} | {j for term in self.terms for j in term}
        for body in self.inner:
            found |= body.used() | body.entered()
        return found | set(carried(self.loop))

    def entered(self) -> set[int]:
        """The nodes that are read before the first step."""
        return {*self.loop.start, *([self.loop.steps] if isinstance(self.loop.steps, int) else [])}


@dataclass
class Lowered:
    """`sections[k]`: the code between outer loop k - 1 and k; `outer`: the bodies of these; `bodies`: all.  `operations`: how many
    one step needs, for the choice of widths; `name`: what an error calls it; `placement`: where blocks live.

    `general`: the numbers in it are arguments of its code, so that code for other numbers is the same.

    `precise`: where sums are float64 in a program of float32, which groups of outputs are float64, too; `wide`: its nodes of that
    type (graph/wide_sums.py)."""

    program: Program
    sections: list[list[Instruction]]
    outer: list[Body]
    bodies: list[Body]
    name: str = "kernel"
    general: bool = False
    precise: tuple[bool, ...] | None = None
    wide: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.placement = Placement(self.program.g, self.sections, self.outer, self.program.outputs, self.wide)

    def sums_wide(self, loop: Loop) -> bool:
        """Are the sums of this loop float64 in a program of float32?"""
        return any(s in self.wide for s in loop.sums)

    def types(self, dtype: np.dtype) -> list[np.dtype]:
        """The dtype of each output of a program of this dtype."""
        if self.precise is None:
            return [dtype] * len(self.program.groups)
        return [SUMS if keep else dtype for keep in self.precise]

    @property
    def arena(self) -> int:
        """Elements of the workspace that blocks need, before the stored carries."""
        return self.placement.size

    def offsets(self, loop: Loop) -> list[int]:
        """Where each component of the carry stands in what is stored of a step, and the size of that."""
        places = [0]
        for c in loop.carry + loop.kept:
            places.append(places[-1] + size_of(self.program.g.shape[c]))
        return places

    def taped(self) -> list[tuple]:
        """(number, elements of a step, loop) of the loops whose carries are stored."""
        return [(n, self.offsets(b.loop)[-1], b.loop) for n, b in enumerate(self.bodies) if b.loop.stored]

    @property
    def loops(self) -> list[Loop]:
        return [b.loop for b in self.bodies]

    @property
    def counted(self) -> list[int]:
        """The loops whose stored steps can only be counted in the run."""
        return [n for n, b in enumerate(self.bodies) if b.loop.stored and not b.loop.data and b.loop.cap is None]

    @property
    def operations(self) -> int:
        return max([self._work(b.code) for b in self.bodies] + [self._work(self.sections[0])])

    @property
    def work(self) -> int:
        """Roughly how many operations one datum takes, or without data one sample, for the choice of threads."""
        return int(max([self._steps(b) for b in self.outer] + [self._work(self.sections[0])]))

    @property
    def most(self) -> float:
        """The same where loops take as many steps as they may."""
        return max([self._steps(b, math.inf) for b in self.outer] + [self._work(self.sections[0])])

    def _steps(self, body: Body, unknown: float = GUESS) -> float:
        loop = body.loop.of or body.loop
        if loop.data:
            trips = 1
        else:
            known = self.program.g.value(loop.steps) if loop.active is None else None
            bound = loop.cap if unknown > GUESS and loop.cap is not None else unknown
            trips = bound if known is None else int(known)
        return trips * max(self._work(body.code) + sum([self._steps(b, unknown) for b in body.inner]), 1) if trips else 0

    @property
    def nested(self) -> bool:
        """Are there loops within loops?"""
        return len(self.outer) < len(self.bodies)

    @property
    def instructions(self) -> int:
        """The length of the longest straight code."""
        return max([len(b.code) for b in self.bodies] + [len(self.sections[0])])

    @property
    def overruns(self) -> bool:
        """May a loop count on what a counted loop before it gives?  Then the latter takes all of its steps, also those for which the
        tape has no room."""
        return bool(self.counted) and (self.nested or len(self.counted) > 1)

    def _work(self, code: list) -> int:
        g = self.program.g
        return sum(cost(g, i) if g.shape[i] or op in BLOCK_OPS else 1 for i, op, _ in code)

    def used(self) -> set[int]:
        """All nodes that any part reads."""
        found = set(self.program.outputs)
        for code in self.sections:
            found.update(j for _, _, x in code for j in x)
        for body in self.outer:
            found |= body.used() | body.entered()
        return found

    def functions(self, wide: bool = False) -> list[str]:
        """The operation of each instruction of the program's dtype, or of float64 beside it."""
        parts = [*self.sections, *[b.code for b in self.bodies]]
        found = [op for code in parts for i, op, _ in code if (i in self.wide) == wide]
        return [*found, "log"] if "logdet" in found else found

    def parameters(self) -> list[tuple]:
        """(node, input array, row in it) of the parameters in use, in order."""
        found, g = [], self.program.g
        firsts = list(itertools.accumulate(self.program.inputs, initial=0))
        for i in self.used():
            if g.op[i] == "in" and g.args[i][0] == "th":
                row = g.args[i][2]
                group = bisect.bisect_right(firsts, row) - 1
                found.append((i, group, row - firsts[group]))
        return sorted(found, key=lambda x: x[1:])


def fused(g: Graph, i: int) -> tuple[str, tuple]:
    """Node i as an instruction: a sum with a product becomes one multiply-add (unless the product is computed outside of the loop in
    which the sum is)."""
    op, args = g.op[i], g.args[i]
    if op not in ("add", "sub"):
        return op, args
    for k in (1, 0):
        m = args[k]
        if g.op[m] == "mul" and g.level(m) == g.level(i):
            a, b = g.args[m]
            other = args[1 - k]
            if op == "add":
                return "fma", (a, b, other)
            return ("fnma", (a, b, other)) if k == 1 else ("fms", (a, b, other))
    return op, args


def lowered(p: Program, precise: tuple[bool, ...] | None = None, keep: bool = False) -> Lowered:
    """`precise`: sums are to be float64, and of the groups of outputs those for which it is true; `keep`: store with the carry of a
    step what takes a sweep back long to compute again."""
    p = pruned(factored(expanded(pruned(p))))
    lowering = _Lowering(p, precise, keep)
    sections, outer, _ = lowering.region(p.loops, p.outputs, 0)
    for body in lowering.bodies:
        alike = [b.number for b in lowering.bodies if b.loop.id == body.loop.id]
        body.label = str(body.loop.id) + (f"_{body.number}_" if len(alike) > 1 else "")
    return Lowered(lowering.program, sections, outer, lowering.bodies, precise=precise, wide=frozenset(lowering.wide))


class _Lowering:
    """`form`: each node as an instruction; `bodies`: all bodies so far; `known`: nodes that a step has from memory; `wide`: nodes of
    float64 in a program of float32; `narrowed`: nodes that are rounded from others."""

    def __init__(self, program: Program, precise: tuple[bool, ...] | None, keep: bool):
        self.program, self.g, self.precise, self.keep = program, program.g, precise, keep
        self.bodies: list[Body] = []
        self.form: dict = {}
        self.known: frozenset[int] = frozenset()
        self.wide: set[int] = set()
        self.narrowed: dict = {}

    def region(self, loops: list[Loop], outs: list[int], depth: int) -> tuple[list, list[Body], list[int]]:
        """The code and the bodies of what is computed at this depth for `outs` and the loops, and the nodes from outside of it that
        these use."""
        at, todo = {}, []
        inner: list[Any] = []
        for loop in loops:
            body, used = self.body(loop, depth + 1, inner)
            inner.append(body)
            todo += used + loop.start + ([loop.steps] if isinstance(loop.steps, int) else [])
        if depth == 0 and self.precise is not None:
            self.program, self.wide, self.narrowed = widened(self.program, self.precise, todo)
            outs = self.program.outputs
        for n, loop in enumerate(loops):
            at.update(dict.fromkeys(loop.final + loop.sums, n + 1))
        here, outside = self.live(outs + todo, depth)
        stage: dict = {}
        for i in sorted(here, key=lambda i: (self.narrowed.get(i, i), i in self.narrowed)):  # in the order of computing
            stage[i] = max([stage.get(j, 0) for j in self.form[i][1]]) if i in self.form else at.get(i, 0)
        if self.wide:
            deferred(stage, self.form, self.wide, len(loops))
        sections: list[list[Instruction]] = [[] for _ in range(len(loops) + 1)]
        for i in stage:
            if i in self.form:
                sections[stage[i]].append((i, *self.form[i]))
        return sections, inner, outside

    def body(self, loop: Loop, depth: int, siblings: list[Body]) -> tuple[Body, list[int]]:
        g = self.g
        made = Body(loop, len(self.bodies), depth)
        self.bodies.append(made)
        first = next((b for b in siblings if b.loop is loop.of), None)
        made.source = None if first is None else first.number
        made.terms = [g.args[i] if g.op[i] == "mul" and g.level(i) == depth else (i,) for i in loop.inc]
        outs = made.outs()
        more: list[Any] = []
        if self.keep and first is not None and loop.of.stored and depth == 1 and not (loop.inner or first.inner):
            loop.of.kept = self.worth_keeping(loop.of, outs)
            if loop.of.kept:
                first.sections, _, more = self.region([], first.outs() + loop.of.kept, depth)
                self.known = frozenset(loop.of.kept)
        made.sections, made.inner, outside = self.region(loop.inner, outs, depth)
        self.known = frozenset()
        made.blocks = any(g.shape[i] for i in [i for i, _, _ in made.code] + outside)
        return made, outside + more

    def worth_keeping(self, source: Loop, outs: list[int]) -> list[int]:
        """What a sweep back over `source` takes from memory rather than to compute it again, where that saves COSTLY instructions or
        more for a number; at most as many numbers as the carry has."""
        g, mine = self.g, 1 << source.id
        inside = [i for i in self.live(outs, 1)[0] if i in self.form]
        late = self.late(source, inside)
        rebuilt = [i for i in inside if g.mask[i] == mine and not g.boolean(i) and i not in late]
        if any(g.shape[i] for i in [*rebuilt, *source.carry]):
            return []
        found: list[int] = []
        while len(found) < len(source.carry):
            self.known = frozenset(found)
            users = dict.fromkeys(self.live(outs, 1)[0], 0)
            for j in [j for i in users if i in self.form for j in self.form[i][1]] + 2 * outs:
                if j in users:
                    users[j] += 1
            alone: dict[Any, Any] = {}  # the work that only this node needs
            for i in rebuilt:
                if i in users:
                    op, x = self.form[i]
                    alone[i] = SLOW.get(op, 16 if is_function(op) else 1) + sum([alone[j] for j in set(x) if j in alone and users[j] == 1])
            best = max(alone.values(), default=0)
            if best < COSTLY:
                break
            more = [i for i, n in alone.items() if n == best]
            found += ([i for i in more if users[i] > 1] or more)[: len(source.carry) - len(found)]
        self.known = frozenset()
        return sorted(found)

    def late(self, source: Loop, nodes: list[int]) -> set[int]:
        """Which nodes depend on what this loop or one after it gives, as a gate on the sum may: no step of it can compute these."""
        g, found = self.g, set()
        ids = [loop.id for loop in self.program.loops]
        before = ids[: ids.index(source.id)]
        for i in g.reach(nodes):
            if g.op[i] in LEAVES:
                if g.op[i] == "in" and g.args[i][0] in ("co", "s", "S") and g.args[i][1] not in before:
                    found.add(i)
            elif any(j in found for j in g.args[i]):
                found.add(i)
        return found

    def live(self, outs: list[int], depth: int) -> tuple[list[int], list[int]]:
        """The nodes that are computed at this depth for `outs`, and those outside of it that they use."""
        g, seen, outside, stack, form = self.g, set(), set(), list(outs), self.form
        while stack:
            i = stack.pop()
            if i in seen or i in outside or i in self.known:
                continue
            if g.level(i) < depth:
                outside.add(i)
                continue
            seen.add(i)
            if i in self.narrowed:
                form[i] = "same" if g.boolean(i) else "narrow", (self.narrowed[i],)
                stack.append(self.narrowed[i])
            elif g.op[i] not in LEAVES:
                if i not in form:
                    form[i] = fused(g, i)
                stack.extend(form[i][1])
        return sorted(seen), sorted(outside)


def deferred(stage: dict, form: dict, wide: set[int], last: int) -> None:
    """What is float64 is computed in the section where it is read: alive in a loop it would cost two registers there."""
    first: dict = {}
    for i in reversed(stage):
        if i in wide and i in form:
            stage[i] = first.get(i, last)
        for j in form[i][1] if i in form else ():
            first[j] = min(stage[i], first.get(j, last))
