"""Lengths of vectors, correct even where the squares of their elements overflow or underflow.

The elements are multiplied by a power of 2, `scale`, before they are squared. The scale is piecewise constant
and has no derivative. It must not multiply tangents, because the square of a scaled tangent may overflow.
Lengths are therefore expanded only after all derivatives have been taken (`expanded`). Until then a length is
one node. The length of two numbers is `hypot`, with the rules of ops/. The length of more numbers, or of a
block, is `length`, with the rules below. With r = |x| and u = x / r:

    dr = sum u_k dx_k        du_k = dx_k / r - u_k dr / r

The quotient x / r is one node too, `over_length`. Its operands are x, r, the scale s of the vector and the
length l of the scaled vector: (x s) / l. Where the length is zero, s is 0, l is 1 and all derivatives are
0."""

import math
from collections.abc import Callable


def squares(g, x: list[int]) -> int:
    total = g.zero
    for v in x:
        square = g.mul(v, v)
        total = g.add(total, g.sum(square) if g.shape[square] else square)
    return total


def scaled_length(g, x) -> tuple[int, int, int]:
    """Return the sum of squares, the scale, and the length of the scaled vector."""
    q = squares(g, x)
    s = g.node("scale", q)
    return q, s, g.node("sqrt", squares(g, [g.mul(v, s) for v in x]))


def where_zero(g, length: int, value: int, otherwise: int) -> int:
    return g.select(g.compare("eq", length, g.zero), value, otherwise)


def length_written(g, *x: int) -> int:
    q, _, l = scaled_length(g, x)
    return g.mul(l, g.node("unscale", q))


def part_written(g, x: int, y: int) -> int:
    """Return x / hypot(x, y)."""
    _, s, l = scaled_length(g, (x, y))
    return g.mul(g.mul(x, s), g.rcp(where_zero(g, l, g.one, l)))


# instructions of ops/ that are written out in `scale` and `unscale`
WRITTEN = {"hypot": length_written, "part_of_hypot": part_written}


def length_node(g, *numbers) -> int:
    """Return the length of these numbers, or of one block."""
    x = [v for v in numbers if v != g.zero]
    if any(g.shape[v] for v in x):
        return g.raw("length", *x, shape=())
    known = [g.value(v) for v in x]
    if None not in known:
        return g.const(math.hypot(*known))
    return g.node("abs", *x) if len(x) == 1 else g.node("hypot", *x) if len(x) == 2 else g.raw("length", *x)


def unit_components(g, i: int, x: tuple) -> list[int]:
    """Return x_k / |x| for the node i of |x|."""
    _, s, l = scaled_length(g, x)
    s, l = where_zero(g, l, g.zero, s), where_zero(g, l, g.one, l)
    return [g.node("over_length", v, i, s, l) for v in x]


class Length:
    """The operation `length`: its expansion and its derivatives."""

    form = staticmethod(length_written)
    length, singular = 8, False

    def pulled(self, g, i: int, bar: int) -> list:
        x = g.args[i]
        return [(v, g.mul(bar, u)) for v, u in zip(x, unit_components(g, i, x), strict=True)]

    def pushed(self, g, i: int, t: list) -> int:
        total = g.zero
        for u, d in zip(unit_components(g, i, g.args[i]), t, strict=True):
            term = g.mul(u, d)
            total = g.add(total, g.sum(term) if g.shape[term] else term)
        return total


class OverLength:
    """The operation `over_length`; its derivatives are such quotients again."""

    length, singular = 2, False

    def value(self, *c: float) -> None:
        """Return None: constants were folded with the length."""

    def form(self, g, x: int, r: int, s: int, l: int) -> int:
        return g.mul(g.mul(x, s), g.rcp(l))

    def pull(self, k: int) -> Callable:
        def by_x(g, bar: int, i: int, x: int, r: int, *scaling: int) -> int:
            return g.node("over_length", bar, r, *scaling)

        def by_r(g, bar: int, i: int, x: int, r: int, *scaling: int) -> int:
            return g.neg(g.node("over_length", g.mul(bar, i), r, *scaling))

        return (by_x, by_r)[k] if k < 2 else lambda g, *x: g.zero

    def partial(self, k: int) -> Callable:
        return lambda g, *x: self.pull(k)(g, g.one, *x)
