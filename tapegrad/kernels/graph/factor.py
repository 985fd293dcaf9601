"""Loop-invariant factors moved out of sums over steps.

Each summand is written as coefficient * basis + ..., with the coefficient outside of the loop. Equal bases
are summed once. The density of a bivariate Gaussian and its derivatives with respect to two means and two
scales then need four sums. A sum of a varying and a fixed term, such as x - mu, is never expanded under a
factor, because sum(x^2) - 2 mu sum(x) + n mu^2 would cancel."""

from collections.abc import Iterable
from dataclasses import replace

from .nodes import Graph
from .program import KernelProgram, ProgramLoop, relate

ONE = -1  # the basis 1
MOST_SPLIT_SUMS = 48  # above this number of sums no cheaper splitting is searched


def factor_sums(p: KernelProgram) -> KernelProgram:
    """Return the program with the sums of its loops over data factored."""
    g = p.g
    new = {}
    loops = []
    for old in p.loops:
        loop = old.copy()
        g.substitute(loop.reads(), new)
        loop.rewrite(new)
        if loop.inc and loop.data:
            _factor(g, loop, new)
        loops.append(loop)
    relate(loops)
    outputs = p.outputs
    g.substitute(outputs, new)
    return replace(p, loops=loops, groups=[[new[o] for o in group] for group in p.groups])


def _factor(g: Graph, loop: ProgramLoop, new: dict) -> None:
    parts = cheapest_splitting(g, loop.inc, loop.next + loop.each)
    bases = sorted({b for part in parts for b in part if b != ONE})
    count = g.input("N", 0, 0)
    sums = {b: g.input("s", loop.id, 10**6 + k, g.shape[b]) for k, b in enumerate(bases)}
    for s, part in zip(loop.sums, parts, strict=True):
        total = g.zero
        for b, c in part.items():
            total = g.add(total, g.mul(c, count if b == ONE else sums[b]))
        new[s] = total
    loop.inc, loop.sums = bases, [sums[b] for b in bases]


def added_cost(g: Graph, outs: Iterable[int], known: frozenset[int]) -> int:
    """Return the number of operations that these nodes add to a loop that computes the known ones."""
    return sum([g.mask[i] != 0 and g.op[i] != "in" for i in g.reach(outs, known) if i not in known])


def split_node(g: Graph, node: int, fine: bool) -> dict:
    """Return node as {basis: coefficient}; `fine` splits sums of varying terms too."""
    out = {}

    def include(basis: int, c: int, gates: tuple) -> None:
        for condition, left in reversed(gates):
            if g.mask[condition] == 0:  # all steps make the same choice
                c = g.select(condition, c, g.zero) if left else g.select(condition, g.zero, c)
            else:
                basis = g.one if basis == ONE else basis
                basis = g.select(condition, basis, g.zero) if left else g.select(condition, g.zero, basis)
        out[basis] = g.add(out[basis], c) if basis in out else c

    # (node, coefficient, was a fixed factor taken out?, the selects around it)
    stack: list[tuple] = [(node, g.one, False, ())]
    while stack:
        i, c, scaled, gates = stack.pop()
        op, args = g.op[i], g.args[i]
        if g.mask[i] == 0:
            include(ONE, g.mul(c, i), gates)
        elif op in ("add", "sub"):
            fixed = g.mask[args[0]] == 0 or g.mask[args[1]] == 0
            if (fine and not fixed) or (fixed and not scaled):
                stack.append((args[1], c if op == "add" else g.neg(c), scaled, gates))
                stack.append((args[0], c, scaled, gates))
            else:
                include(i, c, gates)
        elif op == "select" and g.zero in args[1:]:
            left = args[2] == g.zero
            stack.append((args[1] if left else args[2], c, True, (*gates, (args[0], left))))
        else:
            sign, factors = signed_factors(g, i)
            fixed = [f for f in factors if g.mask[f] == 0]
            rest = [f for f in factors if g.mask[f]]
            c = g.mul(c, g.mul(g.const(sign), product_node(g, fixed)))
            if len(rest) == 1 and rest[0] != i and g.op[rest[0]] in ("add", "sub", "select"):
                stack.append((rest[0], c, scaled or bool(fixed), gates))
            else:
                include(product_node(g, rest), c, gates)
    return out


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


def product_node(g: Graph, factors: Iterable[int]) -> int:
    out = g.one
    for f in factors:
        out = g.mul(out, f)
    return out


def cheapest_splitting(g: Graph, outs: list[int], others: list[int]) -> list[dict]:
    """Return the coarse or the fine splitting of each output, whichever makes the loop cheaper."""
    coarse = [split_node(g, o, False) for o in outs]
    if len(outs) > MOST_SPLIT_SUMS:
        return coarse
    fine, known = [split_node(g, o, True) for o in outs], frozenset(g.reach(others))

    def of(parts):
        bases = {b for part in parts for b in part if b != ONE}
        return added_cost(g, bases, known) + 2 * len(bases)

    best, chosen, improved = of(coarse), list(coarse), True
    while improved:
        improved = False
        for k in range(len(outs)):
            if chosen[k] is coarse[k] and fine[k].keys() != coarse[k].keys():
                trial = list(chosen)
                trial[k] = fine[k]
                c = of(trial)
                if c < best:
                    best, chosen, improved = c, trial, True
    return fine if of(fine) < best else chosen
