"""Recipe: the operations of a function of symbolic numbers, replayable on other nodes in any graph.

The function runs once, on symbols, in a graph of its own. Each use repeats the few operations of that graph
and simplifies them."""

from collections.abc import Callable

from .nodes import Graph


class Recipe:
    """make(g, *nodes), with n nodes, gives a node of g.

    >>> bell = Recipe(lambda g, x: g.rcp(g.add(g.one, g.mul(x, x))), 1)
    >>> g = Graph()
    >>> g.value(bell(g, g.const(2.0)))
    0.2
    """

    def __init__(self, make: Callable, n: int, logical: tuple = ()):
        """Run `make` once on n nodes; `logical` lists those that are boolean."""
        g = Graph()
        x = [g.input("th", 0, k) for k in range(n)]
        x = [g.isnan(i) if k in logical else i for k, i in enumerate(x)]
        out = make(g, *x)
        order = [i for i in g.reach([out], x) if i not in x]
        place = {i: k for k, i in enumerate([*x, *order])}
        self.steps = [
            (g.op[i], g.args[i] if g.op[i] in ("const", "bool") else tuple([place[j] for j in g.args[i]]))
            for i in order
        ]
        self.out = place[out]

    def __call__(self, g: Graph, *x: int) -> int:
        if not self.steps:
            return x[self.out]
        made = list(x)
        for op, args in self.steps:
            if op == "const":
                made.append(g.const(*args))
            elif op == "bool":
                made.append(g.bool(bool(args[0])))
            else:
                made.append(g.node(op, *[made[j] for j in args]))
        return made[self.out]
