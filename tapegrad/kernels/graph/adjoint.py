"""Forward and reverse mode on programs.

Forward mode gives each loop a second carry, the tangent of the first. The result is again a program of the
same kind. The n-th directional derivative is therefore n applications of forward mode. One reverse sweep over
it gives its gradient (n = 1: Hessian times vector).

The reverse of straight code is straight code. The reverse of a loop with a carry is a loop backwards over the
stored carries. For nodes outside of the loop (parameters and all hoisted code) it only sums adjoints. The
code outside is reversed once, afterwards. The reverse of a loop without a carry, or with a carry of data
alone, is more sums in the same loop.

A step with inner loops is reversed like a program. Its sweep runs the inner loops again from the stored carry
of the step, and then backwards.

A step that only other samples take must add nothing, whatever its derivatives are; 0 times nan is nan. The
adjoints of such a step are therefore skipped as a whole where `going` is false. The same holds for a loop
whose result np.where discards in this sample.

Derivatives with respect to the data, and of step outputs, always take a second loop. Its step output holds
adjoints of the data, and its step input holds cotangents of step outputs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from ..._core.errors import KernelError
from .nodes import LEAVES, WITHOUT_DERIVATIVE, Congruence, Graph
from .program import KernelProgram, OuterNodes, ProgramLoop, copies, nested_loops, relate, stages

PASSES_NONE = LEAVES | WITHOUT_DERIVATIVE
FACTORED = frozenset(("cholesky", "trisolve", "lusolve", "logdet", "det"))


def forward(p: KernelProgram, group: int | None) -> KernelProgram:
    """Return the derivative of all outputs in a new direction.

    The direction belongs to input array `group` and is appended to the inputs. With None it belongs to the
    data and is appended to them."""
    g, inputs, ways = p.g, list(p.inputs), p.ways
    if group is None:
        ways += 1
        t = dict(zip(p.data(), p.data(ways), strict=True))
    else:
        thetas = p.thetas(group)
        t = dict(zip(thetas, g.parameters_like(sum(p.inputs), thetas), strict=True))
        inputs.append(p.inputs[group])
    loops = forward_loops(g, p.loops, t)
    tangents(g, p.outputs, t)
    groups = [[g.spread(t[o], g.shape[o]) for o in group] for group in p.groups]
    return replace(p, inputs=inputs, loops=loops, groups=groups, ways=ways, order=p.order + 1)


def forward_loops(
    g: Graph, loops: list[ProgramLoop], t: dict, first: dict | None = None
) -> list[ProgramLoop]:
    """Return the loops with the tangents of their carries and sums, and add these tangents to t.

    `first`: number of a loop -> number of components of its carry without tangents in other directions."""
    made = []
    for old in loops:
        loop = old.copy()
        tangents(g, loop.start, t)
        count = len(old.carry) if first is None else first[old.id]
        varying = [
            k
            for k in sorted(active_components(g, loop, {i for i, d in t.items() if d != g.zero})[0])
            if k < count
        ]
        fresh = {}
        for k in varying:
            fresh[k] = len(loop.carry)
            t[loop.carry[k]] = loop.add_carry(g, t[loop.start[k]], g.shape[loop.carry[k]])
        loop.inner = forward_loops(g, loop.inner, t, first)
        tangents(g, loop.next[:count] + loop.inc + loop.each, t)
        loop.each = [t[e] for e in loop.each]
        for k, j in fresh.items():
            loop.next[j] = t[loop.next[k]]
            t[loop.final[k]] = loop.final[j]
        for k in range(len(old.inc)):
            d = t[old.inc[k]]
            if d != g.zero:
                t[old.sums[k]] = loop.add_sum(g, d)
        made.append(loop)
    relate(made)
    return made


def tangents(g: Graph, outs: list[int], t: dict) -> None:
    """Fill t with the tangents of all nodes under outs."""
    for i in g.reach(outs, stop=t):
        if i not in t:
            t[i] = g.zero if g.op[i] in LEAVES else g.pushed(i, t)


def active_components(g: Graph, loop: ProgramLoop, active: set[int]) -> tuple[set[int], set[int]]:
    """Return the components of the carry that depend on `active`, and all nodes that do, steps included."""
    found = {k for k, s in enumerate(loop.start) if s in active}
    while True:
        inside = reached(
            g, loop.inner, loop.next + loop.inc + loop.each, active | {loop.carry[k] for k in found}
        )
        more = {k for k, n in enumerate(loop.next) if n in inside} - found
        if not more:
            return found, inside
        found |= more


def dependents(g: Graph, outs: list[int], on: set[int]) -> set[int]:
    """Return the nodes under outs that depend on one of `on`; comparisons pass no derivative."""
    found = set()
    for i in g.reach(outs, stop=on):
        if i in on or (g.op[i] not in PASSES_NONE and any(j in found for j in g.args[i])):
            found.add(i)
    return found


def sum_of_adjoints(g: Graph, a: int, b: int) -> int:
    """Return a + b, as zero where np.where takes neither: products with it are zero there, whatever their
    other factor is (`Graph.mul`)."""
    total, one, other = g.add(a, b), g.taken(a), g.taken(b)
    if one is None or other is None or g.shape[total]:
        return total
    return g.select(g.either(one, other), total, g.zero)


class Adjoints(dict):
    """node -> its adjoint so far; one number stands for all elements of a block."""

    def __init__(self, g: Graph):
        super().__init__()
        self.g = g
        self.elements = {}  # block -> {element: adjoint}, until the sweep comes to the block

    def include(self, i: int, bar: int) -> None:
        if bar != self.g.zero:
            self[i] = sum_of_adjoints(self.g, self[i], bar) if i in self else bar

    def sweep(self, order: list[int], active: set[int], outside: bool = False, whole: bool = True) -> None:
        """Pull the adjoints of these nodes, given in descending order, to their operands.

        Outside of loops a zero adjoint stays zero through an infinite derivative; it costs nothing there.
        `whole`: congruences are swept as such."""
        g = self.g
        together = self.together(order) if whole else {}
        done = set()
        for i in order:
            if i in together and i not in done:
                self.through(together[i], active)
                done.update(j for row in together[i].product for j in row)
            if i in done:
                continue
            self.settle(i)
            bar = self.get(i)
            if bar is None or g.op[i] in LEAVES:
                continue
            if g.op[i] == "elem":
                (block,) = g.args[i]
                if block in active:
                    self.elements.setdefault(block, {})[g.meta[i]] = bar
                continue
            for j, share in g.pulled(i, bar):
                if j in active:
                    if outside and g.singular(i):
                        share = g.select(g.compare("eq", bar, g.zero), g.zero, share)
                    elif outside and g.op[i] in FACTORED and share != g.zero:
                        share = g.select(self.all_zero(bar), g.zero, share)
                    self.include(j, share)
        for block in list(self.elements):
            self.settle(block)

    def together(self, order: list[int]) -> dict:
        """Return the congruences that can be swept as a whole, by the element that the sweep meets first.

        All users of their elements lie above them. They consist of the elements of A and P themselves, not of
        multiples or branches of these, as after signs were pulled out."""
        g, here, found = self.g, set(order), {}
        for names, x in g.congruences.items() if g.sweeps_whole else ():
            if not names <= here:
                continue
            first, last = max(names), min(names)
            if any(last < i < first and i not in names and not names.isdisjoint(g.args[i]) for i in order):
                continue
            made_of, under = {i for row in x.left + x.middle for i in row}, set(g.reach(names))
            if names.isdisjoint(made_of) and all(i in under or g.op[i] == "const" for i in made_of):
                found[first] = x
        return found

    def through(self, x: Congruence, active: set[int]) -> None:
        """With N = A P A' and T the adjoint of N, each pair of elements having one and those on the diagonal
        twice theirs,

            B = T A        adjoint of A: B P        of P: A' B, each pair having one, and half of it on the
            diagonal

        which takes half of the products that the rules of all the single ones would."""
        g, size, inner = self.g, range(len(x.left)), range(len(x.middle))
        T = [[g.mul(g.const(1.0 + (i == j)), self.get(x.product[i][j], g.zero)) for j in size] for i in size]

        def dot(pairs) -> int:
            return reduce(lambda total, pair: g.add(total, g.mul(*pair)), pairs, g.zero)

        B = [[dot([(T[i][j], x.left[j][p]) for j in size]) for p in inner] for i in size]
        for i in size:
            for p in inner:
                if x.left[i][p] in active:
                    self.include(x.left[i][p], dot([(B[i][q], x.middle[q][p]) for q in inner]))
        for q in inner:
            for p in range(q + 1):
                if x.middle[p][q] in active:
                    share = dot([(x.left[i][p], B[i][q]) for i in size])
                    self.include(x.middle[p][q], g.mul(g.const(0.5), share) if p == q else share)

    def all_zero(self, bar: int) -> int:
        g = self.g
        size = g.node("abs", bar)
        return g.compare("eq", g.sum(size) if g.shape[size] else size, g.zero)

    def settle(self, block: int) -> None:
        """Add the adjoints of single elements to that of their block."""
        found = self.elements.pop(block, None)
        if found:
            names = np.full(self.g.shape[block], self.g.zero, np.int64)
            for k, bar in found.items():
                names.flat[k] = bar
            self.include(block, self.g.pack_or_zero(names))


def reverse(
    p: KernelProgram, wrt: list[int], seeds: list[int], by_data: bool = False
) -> tuple[KernelProgram, list[int]]:
    """Return the gradient of sum(seeds * outputs) + sum(step input * step output) with respect to `wrt`.

    The results are the program with the loops that compute it, and its nodes. `by_data`: the gradient with
    respect to the data becomes the step output."""
    g, data = p.g, p.data() if by_data else []
    g.sweeps_whole = not p.order  # tangents share products with the rules of the single elements
    loops = [loop.copy() for loop in p.loops]
    streams = p.step_rows
    for loop in loops:
        loop.each = []
    if any(loop.of is not None for loop in nested_loops(p.loops)):
        raise KernelError(
            "scores(theta, data) of a function with a loop in it can be differentiated forwards only: "
            "use tapegrad.jvp, or differentiate the value twice"
        )
    active = reached(g, p.loops, p.outputs, {*wrt, *data})
    adj = Adjoints(g)
    for o, seed in zip(p.outputs, seeds, strict=True):
        if o in active:
            adj.include(o, seed)
    back: list[ProgramLoop] = []

    each = {loop.id: loop.each for loop in p.loops}

    def turn(loop: ProgramLoop) -> None:
        if any(c in active for c in loop.carry) or (loop.data and (data or streams)):
            back.append(_swept_back(g, loop, adj, active, 0, data if loop.data else [], each[loop.id]))
        else:
            _more_sums(g, loop, adj, active)

    _staged(g, loops, adj, active, 0, turn)
    program = replace(p, loops=loops + back, by_data=by_data, streams=streams)
    return program, [g.spread(adj.get(w, g.zero), g.shape[w]) for w in wrt]


def _staged(
    g: Graph,
    loops: list[ProgramLoop],
    adj: "Adjoints",
    active: set[int],
    depth: int,
    turn: Callable,
    lowest: int | None = None,
) -> None:
    """Pull adjoints through the code at this depth, the last part first.

    turn(loop) pulls the adjoints of a loop's results to its operands. `lowest`: code from this depth on is
    swept (None: only from `depth` on)."""
    lowest = depth if lowest is None else lowest
    if not loops and depth:
        order = [i for i in g.reach(list(adj), stop=OuterNodes(g, lowest)) if g.level(i) >= lowest]
        adj.sweep(order[::-1], active)
        return
    stage = stages(g, loops)
    for n in range(len(loops), -1, -1):
        here = [
            i
            for i in g.reach(list(adj), stop=EarlierNodes(stage, n))
            if stage.get(i, -1) == n and lowest <= g.level(i) <= depth
        ]
        adj.sweep(here[::-1], active, outside=depth == 0)
        if n:
            turn(loops[n - 1])


class EarlierNodes:
    """The nodes of earlier stages, and nodes made after the stages were counted.

    The latter are adjoints and never differentiated."""

    def __init__(self, stage: dict, n: int):
        self.stage, self.n = stage, n

    def __contains__(self, i: int) -> bool:
        return self.stage.get(i, -1) < self.n


def reached(g: Graph, loops: list[ProgramLoop], outputs: list[int], on: set[int]) -> set[int]:
    """Return all nodes that depend on `on`, through the loops."""
    active = set(on)
    for loop in loops:
        active |= dependents(g, loop.start, active)
        found, inside = active_components(g, loop, active)
        active |= inside | {loop.carry[k] for k in found} | {loop.final[k] for k in found}
        active |= {s for s, inc in zip(loop.sums, loop.inc, strict=True) if inc in inside}
    return active | dependents(g, outputs, active)


def _body_adjoints(
    g: Graph, holder: ProgramLoop, seeds: list[tuple[int, int]], active: set[int], lowest: int | None = None
) -> Adjoints:
    """Return the adjoints, through one step, of carries and of nodes outside of the loop.

    The body of `holder`, which has the loops of the step, gets the loops that sweep back over them."""
    bars, depth = Adjoints(g), g.depth[holder.id]
    for i, bar in seeds:
        if i in active:
            bars.include(i, bar)
    loops = [loop for loop in holder.inner if loop.of is None]
    _staged(
        g,
        loops,
        bars,
        active,
        depth,
        lambda loop: holder.inner.append(_swept_back(g, loop, bars, active, holder.id)),
        lowest,
    )
    return bars


def step_gradient(g: Graph, loop: ProgramLoop, inc: int, wrt: list[int]) -> list[int]:
    """Return the derivatives of one term with respect to nodes outside of the loop, within the step."""
    active = reached(g, loop.inner, [inc], set(wrt))
    adj = _body_adjoints(g, loop, [(inc, g.one)], active, 0)
    return [adj.get(w, g.zero) for w in wrt]


def _more_sums(g: Graph, loop: ProgramLoop, adj: Adjoints, active: set[int]) -> None:
    """d/df of s = sum_t inc_t is sum_t d inc_t / df, for each node f outside the loop; the adjoint of s does
    not vary with t."""
    for s, inc in list(zip(loop.sums, loop.inc, strict=True)):
        bar = adj.pop(s, None)
        if bar is None:
            continue
        if g.shape[s]:
            raise AssertionError("the sum of a loop that is differentiated again is a block")
        bars = _body_adjoints(g, loop, [(inc, g.one)], active)
        for f in sorted(bars):
            if g.mask[f] == 0:
                adj.include(f, g.mul(bar, loop.add_sum(g, bars[f])))


def _swept_back(
    g: Graph,
    loop: ProgramLoop,
    adj: Adjoints,
    active: set[int],
    holder: int,
    data: Sequence[int] = (),
    each: Sequence[int] = (),
) -> ProgramLoop:
    """Return the loop of adjoints b: b_t = b_{t+1} d next/d carry + sbar d inc/d carry.

    It gives the derivatives with respect to the data for each step as well. It belongs into the body of the
    loop `holder`, or outside of loops (0)."""
    on = [k for k, c in enumerate(loop.carry) if c in active]
    within = 1 << holder | g.within[holder] if holder else 0
    sweep = ProgramLoop(
        g.new_loop(within),
        loop.steps,
        None,
        loop.cap,
        loop,
        inner=copies([x for x in loop.inner if x.of is None]),
    )
    g.depth[sweep.id] = g.depth[loop.id]
    given = [adj.pop(loop.final[k], g.zero) for k in on]
    b = {k: sweep.add_carry(g, bar, g.shape[loop.carry[k]]) for k, bar in zip(on, given, strict=True)}
    seeds = [(_taken(g, loop, k), b[k]) for k in on]
    seeds += [(inc, adj.pop(s)) for s, inc in zip(loop.sums, loop.inc, strict=True) if s in adj]
    seeds += [(e, g.input("e", loop.id, k)) for k, e in enumerate(each)]
    bars = _body_adjoints(g, sweep, seeds, active)
    gate = g.bool(True) if loop.going is None else loop.going
    if len(seeds) == len(on) and not loop.data:
        gate = g.both(gate, g.negation(reduce(g.both, map(adj.all_zero, given), g.bool(True))))

    def gated(bar: int, otherwise: int) -> int:
        return g.select(gate, bar, otherwise)

    sweep.next = [gated(bars.get(loop.carry[k], g.zero), b[k]) for k in on]
    sweep.each = [bars.get(y, g.zero) for y in data]
    for f in sorted(bars):
        if g.level(f) < g.depth[loop.id]:
            adj.include(f, sweep.add_sum(g, gated(bars[f], g.zero)))
    for k, f in zip(on, sweep.final, strict=True):
        start = loop.start[k]
        if start in active:
            adj.include(start, f if g.shape[start] == g.shape[f] else g.sum(f))
    return sweep


def _taken(g: Graph, loop: ProgramLoop, k: int) -> int:
    """Return component k of the next carry in a step that this sample takes."""
    i = loop.next[k]
    x = g.args[i]
    return x[1] if g.op[i] == "select" and x[0] == loop.going and x[2] == loop.carry[k] else i
