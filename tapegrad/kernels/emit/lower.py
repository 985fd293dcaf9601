"""Lowering: the last form before text, shared by both emitters.

The result is lists of instructions. The compilers of CPU and CUDA code may contract a * b + c differently,
which changes the last bit. Lowering chooses multiply-add instead, node by node, independently of the rest of
the program. The compilers are told not to contract. CPU and GPU then agree bit for bit."""

import bisect
import functools
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..graph.blocks import BLOCK_OPS, element_total
from ..graph.expanded import expand_program
from ..graph.factor import factor_sums
from ..graph.nodes import LEAVES, PER_STEP, Graph
from ..graph.program import KernelProgram, ProgramLoop, carried, pruned
from ..graph.wide_sums import widen_sums
from .arena import Placement, node_cost
from .elementary import FUNCTIONS, is_called_function

Instruction = tuple  # (node, operation, operands)
COSTLY = 4  # instructions saved, at least, by storing a number of a step
SLOW = {"rcp": 8, "sqrt": 8, **dict.fromkeys(FUNCTIONS, 16)}  # approximate cost of these, in instructions
SUMS = np.dtype(np.float64)
GUESSED_STEPS = 16  # assumed steps of a loop whose count only the run tells
CHUNK = 64  # sums have two levels: over 64 steps, then over the chunks


@dataclass
class Body:
    """One step of a loop.

    `number` counts all bodies, an outer one before its inner ones. `sections[k]` is the code between inner
    loops k - 1 and k. `terms` holds what is added to each sum: (x,), or (x, y) for a product added by one
    multiply-add."""

    loop: ProgramLoop
    number: int
    depth: int
    sections: list[list[Instruction]] = field(default_factory=list)
    inner: list["Body"] = field(default_factory=list)
    terms: list[tuple] = field(default_factory=list)

    blocks: bool = False  # does the step handle blocks?
    source: Any = None  # body of the stored loop that this one sweeps back over
    label: str = ""  # unique name for declarations in the text

    @property
    def code(self) -> list[Instruction]:
        return [instruction for section in self.sections for instruction in section]

    def split(self) -> tuple[int, list[Instruction], list[Instruction]]:
        """Return where the step of a while loop may end: a section, its code before the exit and after it.

        The exit comes as early as possible. Blocks are an exception, because their places are planned for the
        given order of the code."""
        at = {i: k for k, code in enumerate(self.sections) for i, _, _ in code}
        n = len(self.sections) - 1 if self.blocks else at.get(self.loop.active, 0)
        needed, code = {self.loop.active}, self.sections[n]
        for i, _, args in reversed(code):
            if i in needed:
                needed.update(args)
        first = [x for x in code if self.blocks or x[0] in needed]
        return n, first, [x for x in code if x not in first]

    def own(self, g: Graph, i: int) -> bool:
        """Return whether input node i is a value of this loop's step, such as its counter."""
        return g.args[i][0] in PER_STEP and g.level(i) == self.depth

    def outs(self) -> list[int]:
        """Return the nodes that the step hands on."""
        return carried(self.loop) + [j for term in self.terms for j in term]

    def used(self) -> set[int]:
        """Return the nodes that the step reads or hands on, including those that its inner loops read."""
        found = {j for _, _, x in self.code for j in x} | {j for term in self.terms for j in term}
        for body in self.inner:
            found |= body.used() | body.entered()
        return found | set(carried(self.loop))

    def entered(self) -> set[int]:
        """Return the nodes that are read before the first step."""
        return {*self.loop.start, *([self.loop.steps] if isinstance(self.loop.steps, int) else [])}


@dataclass
class LoweredProgram:
    """A lowered program.

    `sections[k]` is the code between outer loops k - 1 and k. `outer` holds the bodies of these loops,
    `bodies` those of all loops. `operations` counts the operations of one step, which determine widths.
    `name` is the name in errors. `placement` holds the places of blocks.

    `general`: numbers are arguments of the code, so other numbers reuse it.

    `precise` says which groups of outputs are float64 in a float32 program with float64 sums; otherwise it is
    None. `wide` holds the float64 nodes of such a program (`graph/wide_sums`)."""

    program: KernelProgram
    sections: list[list[Instruction]]
    outer: list[Body]
    bodies: list[Body]
    name: str = "kernel"
    general: bool = False
    precise: tuple[bool, ...] | None = None
    wide: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.placement = Placement(self.program.g, self.sections, self.outer, self.program.outputs, self.wide)

    def sums_wide(self, loop: ProgramLoop) -> bool:
        """Return whether the sums of this loop are float64 in a float32 program."""
        return any(s in self.wide for s in loop.sums)

    def types(self, dtype: np.dtype) -> list[np.dtype]:
        """Return the dtype of each output of a program of this dtype."""
        if self.precise is None:
            return [dtype] * len(self.program.groups)
        return [SUMS if keep else dtype for keep in self.precise]

    @property
    def arena(self) -> int:
        """Return the elements of workspace that blocks need before the stored carries."""
        return self.placement.size

    def offsets(self, loop: ProgramLoop) -> list[int]:
        """Return the offset of each component of the carry in a stored step, and the size of the step."""
        places = [0]
        for c in loop.carry + loop.kept:
            places.append(places[-1] + element_total(self.program.g.shape[c]))
        return places

    def taped(self) -> list[tuple]:
        """Return (number, elements of a step, loop) of the loops whose carries are stored."""
        return [(n, self.offsets(b.loop)[-1], b.loop) for n, b in enumerate(self.bodies) if b.loop.stored]

    @functools.cached_property
    def recalled(self) -> dict:
        """Return the bodies of inner loops that a sweep need not run again, with those of the forward pass
        (`recalled`)."""
        sweeps = [x for x in self.outer if x.source is not None and x.loop.data]
        pairs = [(x, y) for s in sweeps for x in s.inner for y in self.bodies[s.source or 0].inner]
        return {
            x.number: y.number
            for x, y in pairs
            if x.loop.id == y.loop.id
            and x.loop.stored > y.loop.stored
            and not x.loop.sums
            and set() < {*x.loop.carry} <= {*y.loop.carry}
        }

    @property
    def separable(self) -> bool:
        """Return whether a backward sweep over the data needs the stored steps only: it can be a launch."""
        if len(self.outer) != 2 or not self.recalled or self.program.by_data:
            return False
        first = self.outer[0]
        later = {j for code in self.sections[1:] for _, _, x in code for j in x} | {*self.program.outputs}
        later |= self.outer[1].used() | self.outer[1].entered()
        taped = {n for n, *_ in self.taped()}
        return taped <= {first.number, *self.recalled} and later.isdisjoint(
            first.loop.final + first.loop.sums
        )

    def leave_to_tape(self) -> None:
        """Remove what a sweep would need to run its inner loops again, and the stored numbers that it never
        reads."""
        for r in self.recalled:
            loop, self.bodies[r].sections = self.bodies[r].loop, [[]]
            loop.start, loop.next, loop.active = [], [], None
        read = self.outer[1].used()
        for r in self.recalled:
            loop = self.bodies[r].loop
            kept = [x for x in zip(loop.carry, loop.final, strict=True) if not read.isdisjoint(x)]
            loop.carry, loop.final = [list(x) for x in zip(*kept, strict=True)]

    @property
    def loops(self) -> list[ProgramLoop]:
        return [b.loop for b in self.bodies]

    @property
    def counted(self) -> list[int]:
        """Return the loops whose number of stored steps only the run tells."""
        return [
            n for n, b in enumerate(self.bodies) if b.loop.stored and not b.loop.data and b.loop.cap is None
        ]

    @property
    def operations(self) -> int:
        return max([self._work(b.code) for b in self.bodies] + [self._work(self.sections[0])])

    @property
    def work(self) -> int:
        """Estimate the operations of one datum, or of one sample without data, to choose the number of
        threads."""
        return int(max([self._steps(b) for b in self.outer] + [self._work(self.sections[0])]))

    @property
    def most(self) -> float:
        """Return the same estimate for loops that take as many steps as they may."""
        return max([self._steps(b, math.inf) for b in self.outer] + [self._work(self.sections[0])])

    def _steps(self, body: Body, unknown: float = GUESSED_STEPS) -> float:
        loop = body.loop.of or body.loop
        trips: float = 1
        if isinstance(loop.steps, int):
            stack = loop.active is not None or not self.recalled.keys().isdisjoint((body.number, body.source))
            known = None if stack else self.program.g.value(loop.steps)
            bound = loop.cap if unknown > GUESSED_STEPS and loop.cap is not None else unknown
            trips = bound if known is None else int(known)
        return (
            trips * max(self._work(body.code) + sum([self._steps(b, unknown) for b in body.inner]), 1)
            if trips
            else 0
        )

    @property
    def nested(self) -> bool:
        """Return whether there are loops within loops."""
        return len(self.outer) < len(self.bodies)

    @property
    def instructions(self) -> int:
        """Return the number of instructions of all code."""
        return sum([len(b.code) for b in self.bodies] + [len(code) for code in self.sections])

    @property
    def overruns(self) -> bool:
        """Return whether the count of a loop may depend on a counted loop before it.

        The earlier loop then takes all of its steps, including those for which the tape has no room."""
        return bool(self.counted) and (self.nested or len(self.counted) > 1)

    def _work(self, code: list) -> int:
        g = self.program.g
        return sum(node_cost(g, i) if g.shape[i] or op in BLOCK_OPS else 1 for i, op, _ in code)

    def used(self) -> set[int]:
        """Return all nodes that any part reads."""
        found = set(self.program.outputs)
        for code in self.sections:
            found.update(j for _, _, x in code for j in x)
        for body in self.outer:
            found |= body.used() | body.entered()
        return found

    def functions(self, wide: bool = False) -> list[str]:
        """Return the operations of the instructions of the program's dtype, or of float64 beside it."""
        parts = [*self.sections, *[b.code for b in self.bodies]]
        found = [op for code in parts for i, op, _ in code if (i in self.wide) == wide]
        return [*found, "log"] if "logdet" in found else found

    def parameters(self) -> list[tuple]:
        """Return (node, input array, row in it) of the parameters in use, in order."""
        found, g = [], self.program.g
        firsts = list(itertools.accumulate(self.program.inputs, initial=0))
        for i in self.used():
            if g.op[i] == "in" and g.args[i][0] == "th":
                row = g.args[i][2]
                group = bisect.bisect_right(firsts, row) - 1
                found.append((i, group, row - firsts[group]))
        return sorted(found, key=lambda x: x[1:])


def fused(g: Graph, i: int) -> tuple[str, tuple]:
    """Return node i as an instruction; a sum with a product becomes one multiply-add.

    The product must be computed in the same loop as the sum."""
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


def lower_program(
    p: KernelProgram, precise: tuple[bool, ...] | None = None, keep: bool = False
) -> LoweredProgram:
    """Lower a program.

    `precise` says that sums are float64, and which groups of outputs are. `keep` stores, with the carry of a
    step, values that the backward sweep would take long to recompute."""
    p = pruned(factor_sums(expand_program(pruned(p))))
    lowering = Lowering(p, precise, keep)
    sections, outer, _ = lowering.region(p.loops, p.outputs, 0)
    for body in lowering.bodies:
        alike = [b.number for b in lowering.bodies if b.loop.id == body.loop.id]
        body.label = str(body.loop.id) + (f"_{body.number}_" if len(alike) > 1 else "")
    return LoweredProgram(
        lowering.program, sections, outer, lowering.bodies, precise=precise, wide=frozenset(lowering.wide)
    )


class Lowering:
    """The state of one lowering.

    `form` holds each node as an instruction, `bodies` all bodies so far. `known` holds nodes that a step
    loads from memory. `wide` holds float64 nodes of a float32 program, `narrowed` nodes rounded from
    others."""

    def __init__(self, program: KernelProgram, precise: tuple[bool, ...] | None, keep: bool):
        self.program, self.g, self.precise, self.keep = program, program.g, precise, keep
        self.bodies: list[Body] = []
        self.form = {}
        self.known: frozenset[int] = frozenset()
        self.wide: set[int] = set()
        self.narrowed = {}

    def region(
        self, loops: list[ProgramLoop], outs: list[int], depth: int
    ) -> tuple[list, list[Body], list[int]]:
        """Return the code and the bodies of what `outs` and the loops need at this depth.

        The third result holds the nodes from outside that they use."""
        at, todo = {}, []
        inner = []
        for loop in loops:
            body, used = self.body(loop, depth + 1, inner)
            inner.append(body)
            todo += used + loop.start + ([loop.steps] if isinstance(loop.steps, int) else [])
        if depth == 0 and self.precise is not None:
            self.program, self.wide, self.narrowed = widen_sums(self.program, self.precise, todo)
            outs = self.program.outputs
        for n, loop in enumerate(loops):
            at.update(dict.fromkeys(loop.final + loop.sums, n + 1))
        here, outside = self.live(outs + todo, depth)
        stage = {}
        for i in sorted(here, key=lambda i: (self.narrowed.get(i, i), i in self.narrowed)):  # in order
            stage[i] = max([stage.get(j, 0) for j in self.form[i][1]]) if i in self.form else at.get(i, 0)
        if self.wide:
            deferred(stage, self.form, self.wide, len(loops))
        sections: list[list[Instruction]] = [[] for _ in range(len(loops) + 1)]
        for i in stage:
            if i in self.form:
                sections[stage[i]].append((i, *self.form[i]))
        return sections, inner, outside

    def body(self, loop: ProgramLoop, depth: int, siblings: list[Body]) -> tuple[Body, list[int]]:
        g = self.g
        made = Body(loop, len(self.bodies), depth)
        self.bodies.append(made)
        first = next((b for b in siblings if b.loop is loop.of), None)
        made.source = None if first is None else first.number
        made.terms = [g.args[i] if g.op[i] == "mul" and g.level(i) == depth else (i,) for i in loop.inc]
        outs = made.outs()
        more = []
        if (
            self.keep
            and first is not None
            and loop.of.stored
            and depth == 1
            and not (loop.inner or first.inner)
        ):
            loop.of.kept = self.worth_keeping(loop.of, outs)
            if loop.of.kept:
                first.sections, _, more = self.region([], first.outs() + loop.of.kept, depth)
                self.known = frozenset(loop.of.kept)
        made.sections, made.inner, outside = self.region(loop.inner, outs, depth)
        self.known = frozenset()
        made.blocks = any(g.shape[i] for i in [i for i, _, _ in made.code] + outside)
        return made, outside + more

    def worth_keeping(self, source: ProgramLoop, outs: list[int]) -> list[int]:
        """Return the values that a backward sweep over `source` should load instead of recomputing.

        Each saves at least COSTLY instructions. There are at most as many as the carry has numbers."""
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
            alone = {}  # the work that only this node needs
            for i in rebuilt:
                if i in users:
                    op, x = self.form[i]
                    alone[i] = SLOW.get(op, 16 if is_called_function(op) else 1) + sum(
                        [alone[j] for j in set(x) if j in alone and users[j] == 1]
                    )
            best = max(alone.values(), default=0)
            if best < COSTLY:
                break
            more = [i for i, n in alone.items() if n == best]
            found += ([i for i in more if users[i] > 1] or more)[: len(source.carry) - len(found)]
        self.known = frozenset()
        return sorted(found)

    def late(self, source: ProgramLoop, nodes: list[int]) -> set[int]:
        """Return the nodes that depend on a result of this loop or a later one, as a gate on the sum may.

        No step of the loop can compute these."""
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
        """Return the nodes that are computed at this depth for `outs`, and the outside nodes that they
        use."""
        g, seen, outside, stack, form = self.g, set(), set(), list(outs), self.form
        masks, levels = g.mask, g.levels
        while stack:
            i = stack.pop()
            if i in seen or i in outside or i in self.known:
                continue
            level = levels.get(masks[i])
            if (g.level(i) if level is None else level) < depth:
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
    """Move float64 nodes to the section that reads them; alive in a loop they would take two registers."""
    first = {}
    for i in reversed(stage):
        if i in wide and i in form:
            stage[i] = first.get(i, last)
        for j in form[i][1] if i in form else ():
            first[j] = min(stage[i], first.get(j, last))
