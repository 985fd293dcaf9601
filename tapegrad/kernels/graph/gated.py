"""Operations that have a meaning for derivatives only: `times0` and `primal`.

`times0` is the product of a tangent with a derivative that may be nan where the tangent is zero. An example
is the derivative of x**n with respect to n where x < 0, for a direction that does not change n. The product
remains one operation until all derivatives have been taken (`expanded`), because a zero tangent may have a
nonzero derivative."""

from collections.abc import Callable


def gate_zero(g, a: int, value: int) -> int:
    return g.select(g.compare("eq", a, g.zero), g.zero, value)


class Primal:
    """`primal(x)`: x without its derivatives; it is x again once all derivatives have been taken."""

    length, singular = 0, False

    def value(self, c: float) -> float:
        return c

    def form(self, g, x: int) -> int:
        return x


class Times0:
    """`times0(a, b)`: a b, and zero where a is zero."""

    length, singular = 2, True

    def value(self, *c: float) -> None:
        """Return None: products with constants are folded in `Graph.times0`."""

    def form(self, g, a: int, b: int) -> int:
        return gate_zero(g, a, g.mul(a, b))

    def pull(self, k: int) -> Callable:
        if k == 0:
            return lambda g, bar, i, a, b: g.times0(bar, b)
        return lambda g, bar, i, a, b: gate_zero(g, a, g.mul(a, bar))

    def partial(self, k: int) -> Callable:
        return lambda g, i, a, b: (b, a)[k]
