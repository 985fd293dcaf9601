"""The coefficients of an expression that is linear in some of its leaves.

`_direct` calls this module. The product of a Jacobian and a direction is linear in the elements of the
direction. The coefficient of each element is built from its leaf upwards through the graph. The values of the
direction are never read. A condition may depend on the direction: a zero tangent stops a nan, for example.
Such a condition is evaluated for the unit vector of the element."""

from ..kernels.graph.nodes import BOOLS, LEAVES
from ..replay.scalar_graph import Exact

DIRECTION = "w"  # kind of the inputs that are elements of the direction
ASKED = object()  # marks a condition that depends on the direction


class NotLinear(Exception):
    """The graph cannot be shown to be linear in the direction."""


class LinearCoefficients:
    """The coefficients of each node: a dict from leaf to coefficient node, or None without a dependence."""

    def __init__(self, g: Exact):
        self.g = g
        self.known = {}

    def of(self, n: int) -> dict:
        for m in self.g.reach([n], self.known):
            if m not in self.known:
                self.known[m] = self.made(m)
        found = self.known[n]
        if found is ASKED:
            raise NotLinear("a truth that depends on the direction")
        return found or {}

    def made(self, n: int):
        g, op, args = self.g, self.g.op[n], self.g.args[n]
        if op in LEAVES:
            return {n: g.one} if op == "in" and args[0] == DIRECTION else None
        x = [self.known[a] for a in args]
        if all([p is None for p in x]):
            return None
        if op in BOOLS:
            return ASKED
        rule = RULES.get(op)
        if rule is None:
            raise NotLinear(op)
        return rule(self, args, x)

    def under(self, c: int, leaf: int) -> int:
        """Return a condition evaluated for the unit vector of this leaf."""
        if self.known[c] is None:
            return c
        g, op, args = self.g, self.g.op[c], self.g.args[c]
        if self.known[c] is not ASKED:
            return self.known[c].get(leaf, g.zero)
        if op not in BOOLS:
            raise NotLinear(op)
        return g.node(op, *[self.under(a, leaf) for a in args])

    def sum(self, args: tuple, x: list) -> dict:
        found = dict(x[0] or {})
        for leaf, c in (x[1] or {}).items():
            found[leaf] = self.g.add(found[leaf], c) if leaf in found else c
        return found

    def difference(self, args: tuple, x: list) -> dict:
        found = dict(x[0] or {})
        for leaf, c in (x[1] or {}).items():
            found[leaf] = self.g.sub(found[leaf], c) if leaf in found else self.g.neg(c)
        return found

    def negative(self, args: tuple, x: list) -> dict:
        return {leaf: self.g.neg(c) for leaf, c in x[0].items()}

    def product(self, args: tuple, x: list) -> dict:
        if None not in x:
            raise NotLinear("mul")
        if x[1] is None:
            return {leaf: self.g.mul(c, args[1]) for leaf, c in x[0].items()}
        return {leaf: self.g.mul(args[0], c) for leaf, c in x[1].items()}

    def quotient(self, args: tuple, x: list) -> dict:
        if x[1] is not None:
            raise NotLinear("div")
        return {leaf: self.g.div(c, args[1]) for leaf, c in x[0].items()}

    def select(self, args: tuple, x: list):
        if self.g.boolean(args[1]) or ASKED in x[1:]:
            return ASKED
        for a, p in zip(args[1:], x[1:], strict=True):
            if p is None and a != self.g.zero:
                raise NotLinear("select")
        leaves = dict.fromkeys([*(x[1] or ()), *(x[2] or ())])
        one, two = [p or {} for p in x[1:]]
        zero = self.g.zero
        return {
            leaf: self.g.select(self.under(args[0], leaf), one.get(leaf, zero), two.get(leaf, zero))
            for leaf in leaves
        }


RULES = {
    "add": LinearCoefficients.sum,
    "sub": LinearCoefficients.difference,
    "neg": LinearCoefficients.negative,
    "mul": LinearCoefficients.product,
    "div": LinearCoefficients.quotient,
    "select": LinearCoefficients.select,
}
