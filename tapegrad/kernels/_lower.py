"""The last form before text, the same for both emitters: lists of instructions, with multiply-add chosen here.

CPU and CUDA compilers may each contract a * b + c as they like, which changes the last bit.  We choose ourselves, node by node
and whatever the rest of the program, and forbid them to: so kernels agree bit for bit."""

import bisect
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._block_plan import Plan, cost
from ._blocks import BLOCK_OPS, size_of
from ._factor import factored
from ._graph import LEAVES, Graph
from ._math import FUNCTIONS
from ._program import Loop, Program, carried, pruned
from ._widen import widened

Instruction = tuple  # (node, operation, operands)
COSTLY = 4  # instructions that it must save to store a number of a step rather than to compute it again
SLOW = {"rcp": 8, "sqrt": 8, **dict.fromkeys(FUNCTIONS, 16)}  # about as many instructions as these take
SUMS = np.dtype(np.float64)
CHUNK = 64  # sums are taken in two levels: over 64 steps, then over the chunks


@dataclass
class Body:
    """One step.  `terms`: what each sum takes up, (x,) or (x, y) for the product, which is added by one multiply-add."""

    loop: Loop
    code: list[Instruction] = field(default_factory=list)
    terms: list[tuple] = field(default_factory=list)

    blocks: bool = False  # does it handle blocks?

    def used(self) -> set[int]:
        """The nodes that the step reads or hands on."""
        found = {j for _, _, x in self.code for j in x} | {j for term in self.terms for j in term}
        return found | set(carried(self.loop))


@dataclass
class Lowered:
    """`sections[k]`: the code between loop k - 1 and loop k.  `operations`: how many one step needs, for the choice of widths;
    `name`: what an error calls it; `plan`: where blocks live.

    `precise`: where sums are float64 in a kernel of float32, which groups of outputs are float64, too; `wide`: its nodes of that
    type (_widen.py)."""

    program: Program
    sections: list[list[Instruction]]
    bodies: list[Body]
    name: str = "kernel"
    precise: tuple[bool, ...] | None = None
    wide: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.plan = Plan(self.program.g, self.sections, self.bodies, self.program.outputs, self.wide)

    def types(self, dtype: np.dtype) -> list[np.dtype]:
        """The dtype of each output of a kernel of this dtype."""
        if self.precise is None:
            return [dtype] * len(self.program.groups)
        return [SUMS if keep else dtype for keep in self.precise]

    @property
    def arena(self) -> int:
        """Elements of the workspace that blocks need, before the stored carries."""
        return self.plan.size

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
    def instructions(self) -> int:
        """The length of the longest straight code."""
        return max([len(b.code) for b in self.bodies] + [len(self.sections[0])])

    def _work(self, code: list) -> int:
        g = self.program.g
        return sum(cost(g, i) if g.shape[i] or op in BLOCK_OPS else 1 for i, op, _ in code)

    def used(self) -> set[int]:
        """All nodes that any part reads."""
        found = set(self.program.outputs)
        for code in self.sections:
            found.update(j for _, _, x in code for j in x)
        for body in self.bodies:
            found |= body.used() | set(body.loop.start)
            if isinstance(body.loop.steps, int):
                found.add(body.loop.steps)
        return found

    def functions(self, wide: bool = False) -> list[str]:
        """The operation of each instruction of the kernel's dtype, or of float64 beside it."""
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
    """Node i as an instruction: a sum with a product becomes one multiply-add (unless the product is computed outside the loop)."""
    op, args = g.op[i], g.args[i]
    if op not in ("add", "sub"):
        return op, args
    for k in (1, 0):
        m = args[k]
        if g.op[m] == "mul" and (g.mask[m] or not g.mask[i]):
            a, b = g.args[m]
            other = args[1 - k]
            if op == "add":
                return "fma", (a, b, other)
            return ("fnma", (a, b, other)) if k == 1 else ("fms", (a, b, other))
    return op, args


def lowered(p: Program, precise: tuple[bool, ...] | None = None, keep: bool = False) -> Lowered:
    """`precise`: sums are to be float64, and of the groups of outputs those for which it is true; `keep`: store with the carry of a
    step what takes a sweep back long to compute again."""
    p = pruned(factored(pruned(p)))
    g = p.g
    form: dict = {}
    bodies = []
    todo: list[int] = []
    for loop in p.loops:
        terms = [g.args[i] if g.op[i] == "mul" and g.mask[i] else (i,) for i in loop.inc]
        outs = carried(loop) + [i for term in terms for i in term]
        source = loop.of if keep and loop.of is not None and loop.of.stored else None
        if source is not None:
            first = next(body for body in bodies if body.loop is source)
            source.kept = worth_keeping(g, source, _live(g, outs, form)[0], outs, form)
            if source.kept:
                again = carried(source) + [i for term in first.terms for i in term] + source.kept
                inside, hoisted = _live(g, again, form)
                first.code = [(i, *form[i]) for i in inside]
                todo += hoisted
        inside, hoisted = _live(g, outs, form, set(source.kept) if source is not None else set())
        blocks = any(g.shape[i] for i in [*inside, *hoisted])
        bodies.append(Body(loop, [(i, *form[i]) for i in inside], terms, blocks))
        todo += hoisted + loop.start
        if isinstance(loop.steps, int):
            todo.append(loop.steps)
    wide: set[int] = set()
    narrowed: dict = {}
    if precise is not None:
        p, wide, narrowed = widened(p, precise, todo)
    stage = _stages(g, p, p.outputs + todo, form, narrowed)
    _late(stage, form, wide, len(p.loops))  # `stage` is in the order of computing
    sections: list[list[Instruction]] = [[] for _ in range(len(p.loops) + 1)]
    for i in stage:
        if i in form:
            sections[stage[i]].append((i, *form[i]))
    return Lowered(p, sections, bodies, precise=precise, wide=frozenset(wide))


def worth_keeping(g: Graph, source: Loop, inside: list[int], outs: list[int], form: dict) -> list[int]:
    """What a sweep back over `source` takes from memory rather than to compute it again, where that saves COSTLY instructions or
    more for a number; at most as many numbers as the carry has."""
    mine = 1 << source.id
    rebuilt = [i for i in inside if g.mask[i] == mine and not g.boolean(i)]
    if any(g.shape[i] for i in [*rebuilt, *source.carry]):
        return []
    found: list[int] = []
    while len(found) < len(source.carry):
        live = set(_live(g, outs, form, set(found))[0])
        users = dict.fromkeys(live, 0)
        for i in live:
            for j in form[i][1]:
                if j in users:
                    users[j] += 1
        for i in outs:
            if i in users:
                users[i] += 2
        alone = {}  # the work that only this node needs
        for i in rebuilt:
            if i in live:
                alone[i] = SLOW.get(form[i][0], 1) + sum([alone[j] for j in set(form[i][1]) if j in alone and users[j] == 1])
        best = max(alone.values(), default=0)
        more = [i for i, n in alone.items() if n == best and users[i] > 1] or [i for i, n in alone.items() if n == best]
        if best < COSTLY:
            break
        found += more[: len(source.carry) - len(found)]
    return sorted(found)


def _live(g: Graph, outs: list[int], form: dict, known: Any = ()) -> tuple[list[int], list[int]]:
    """The nodes that a step computes for `outs`, but for what is `known`, and those outside the loop that it uses."""
    seen, stack, hoisted = set(), list(outs), set()
    while stack:
        i = stack.pop()
        if i in seen or i in hoisted or i in known:
            continue
        if g.mask[i] == 0:
            hoisted.add(i)
            continue
        seen.add(i)
        if g.op[i] not in LEAVES:
            form[i] = fused(g, i)
            stack.extend(form[i][1])
    return [i for i in sorted(seen) if g.op[i] not in LEAVES], sorted(hoisted)


def _late(stage: dict, form: dict, wide: set[int], last: int) -> None:
    """What is float64 is computed in the section where it is read: alive in a loop it would cost two registers there."""
    first: dict = {}
    for i in reversed(stage):
        if i in wide and i in form:
            stage[i] = first.get(i, last)
        for j in form[i][1] if i in form else ():
            first[j] = min(stage[i], first.get(j, last))


def _stages(g: Graph, p: Program, outs: list[int], form: dict, narrowed: dict) -> dict:
    """All nodes outside of loops that are needed, in the order of computing, with their sections; `narrowed`: those that are
    rounded from others."""
    at: dict = {}
    for n, loop in enumerate(p.loops):
        at.update(dict.fromkeys(loop.final + loop.sums, n + 1))
    needed, stack = set(), list(outs)
    while stack:
        i = stack.pop()
        if i in needed:
            continue
        needed.add(i)
        if i in narrowed:
            form[i] = "same" if g.boolean(i) else "narrow", (narrowed[i],)
            stack.append(narrowed[i])
        elif g.op[i] not in LEAVES:
            form[i] = fused(g, i)
            stack.extend(form[i][1])
    stage: dict = {}
    for i in sorted(needed, key=lambda i: (narrowed.get(i, i), i in narrowed)):
        stage[i] = max([stage[j] for j in form[i][1]]) if i in form else at.get(i, 0)
    return stage
