"""A product of a tangent with a derivative that may be no number where the tangent is zero: of x**n by n where x < 0, for a direction that
leaves n alone.

It is an operation until all derivatives have been taken (expanded.py): a tangent that is zero may have a derivative that is not."""

from collections.abc import Callable
from typing import Any


def unless_zero(g: Any, a: int, value: int) -> int:
    return g.select(g.compare("eq", a, g.zero), g.zero, value)


class Times0:
    """`times0(a, b)`: a b, and zero where a is zero."""

    length, singular = 2, True

    def value(self, *c: float) -> None:
        """Products with constants are made as such (`Graph.times0`)."""

    def form(self, g: Any, a: int, b: int) -> int:
        return unless_zero(g, a, g.mul(a, b))

    def pull(self, k: int) -> Callable:
        if k == 0:
            return lambda g, bar, i, a, b: g.times0(bar, b)
        return lambda g, bar, i, a, b: unless_zero(g, a, g.mul(a, bar))

    def partial(self, k: int) -> Callable:
        return lambda g, i, a, b: (b, a)[k]
