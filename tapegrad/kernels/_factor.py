"""Sums over steps with what does not vary taken out.

Each summand is written as coefficient * basis + ..., the coefficient outside of the loop, and equal bases are summed once: the
value of a Gaussian in two dimensions and its derivatives by two means and two scales need four sums.  A sum of a varying and a
fixed term, such as x - mu, is never torn apart under a factor: sum(x^2) - 2 mu sum(x) + n mu^2 would cancel."""

from collections.abc import Iterable

from ._graph import Graph
from ._program import Loop, Program

ONE = -1  # the basis 1
MANY = 48  # more sums than this are not searched for cheaper splittings


def factored(p: Program) -> Program:
    """The program with the sums of its loops over data factored."""
    g, new = p.g, {}
    loops = []
    for old in p.loops:
        loop = old.copy()
        lists = [loop.start, loop.next, loop.inc] + [[x] for x in (loop.active, loop.steps) if isinstance(x, int)]
        g.substitute([i for x in lists for i in x], new)
        loop.start, loop.next, loop.inc = [[new[i] for i in x] for x in lists[:3]]
        if loop.active is not None:
            loop.active = new[loop.active]
        if isinstance(loop.steps, int):
            loop.steps = new[loop.steps]
        if loop.of is not None:
            loop.of = next(made for made in loops if made.id == loop.of.id)
        if loop.inc and loop.data:
            _factor(g, loop, new)
        loops.append(loop)
    outputs = p.outputs
    g.substitute(outputs, new)
    return Program(g, p.inputs, p.rows, loops, [[new[o] for o in group] for group in p.groups])


def _factor(g: Graph, loop: Loop, new: dict) -> None:
    parts = choose(g, loop.inc, loop.next)
    bases = sorted({b for part in parts for b in part if b != ONE})
    count = g.input("N", 0, 0)
    sums = {b: g.input("s", loop.id, 10**6 + k, g.shape[b]) for k, b in enumerate(bases)}
    for s, part in zip(loop.sums, parts, strict=True):
        total = g.zero
        for b, c in part.items():
            total = g.add(total, g.mul(c, count if b == ONE else sums[b]))
        new[s] = total
    loop.inc, loop.sums = bases, [sums[b] for b in bases]


def split(g: Graph, node: int, fine: bool, scaled: bool = False) -> dict:
    """node as {basis: coefficient}.  `fine`: sums of varying terms are split too."""
    if g.mask[node] == 0:
        return {ONE: node}
    op, args = g.op[node], g.args[node]
    out: dict = {}

    def include(parts: dict, factor: int) -> None:
        for b, c in parts.items():
            c = g.mul(factor, c)
            out[b] = g.add(out[b], c) if b in out else c

    if op in ("add", "sub"):
        fixed = g.mask[args[0]] == 0 or g.mask[args[1]] == 0
        if (fine and not fixed) or (fixed and not scaled):
            include(split(g, args[0], fine, scaled), g.one)
            include(split(g, args[1], fine, scaled), g.one if op == "add" else g.const(-1.0))
            return out
        return {node: g.one}
    if op == "select" and g.zero in args[1:]:
        left = args[2] == g.zero
        for b, c in split(g, args[1] if left else args[2], fine, True).items():
            if g.mask[args[0]] == 0:  # the choice is the same in all steps
                include({b: g.select(args[0], c, g.zero) if left else g.select(args[0], g.zero, c)}, g.one)
                continue
            b = g.one if b == ONE else b
            include({g.select(args[0], b, g.zero) if left else g.select(args[0], g.zero, b): c}, g.one)
        return out
    sign, factors = signed_factors(g, node)
    fixed = [f for f in factors if g.mask[f] == 0]
    rest = [f for f in factors if g.mask[f]]
    coefficient = g.mul(g.const(sign), product(g, fixed))
    if len(rest) == 1 and rest[0] != node and g.op[rest[0]] in ("add", "sub", "select"):
        include(split(g, rest[0], fine, scaled or bool(fixed)), coefficient)
        return out
    return {product(g, rest): coefficient}


def signed_factors(g: Graph, node: int) -> tuple[float, list[int]]:
    c, factors, stack = 1.0, [], [node]
    while stack:
        i = stack.pop()
        if g.op[i] == "mul":
            stack.extend(g.args[i])
        elif g.op[i] == "neg":
            c = -c
            stack.append(g.args[i][0])
        elif g.op[i] == "const":
            c *= g.args[i][0]
        else:
            factors.append(i)
    return c, sorted(factors)


def product(g: Graph, factors: Iterable[int]) -> int:
    out = g.one
    for f in factors:
        out = g.mul(out, f)
    return out


def choose(g: Graph, outs: list[int], others: list[int]) -> list[dict]:
    """For each output the coarse or the fine splitting, whichever makes the loop cheaper."""
    coarse = [split(g, o, False) for o in outs]
    if len(outs) > MANY:
        return coarse
    fine = [split(g, o, True) for o in outs]

    def cost(parts):
        bases = {b for part in parts for b in part if b != ONE}
        return sum(g.mask[i] != 0 and g.op[i] != "in" for i in g.reach([*bases, *others])) + 2 * len(bases)

    best, chosen, improved = cost(coarse), list(coarse), True
    while improved:
        improved = False
        for k in range(len(outs)):
            if chosen[k] is coarse[k] and fine[k].keys() != coarse[k].keys():
                trial = list(chosen)
                trial[k] = fine[k]
                c = cost(trial)
                if c < best:
                    best, chosen, improved = c, trial, True
    return fine if cost(fine) < best else chosen
