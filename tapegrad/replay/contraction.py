"""Sums of products, `einsum` of two arrays, as a product of two matrices: the text, for arrays of given
shapes."""

import math
from collections.abc import Callable


def product_text(subscripts: str, x: str, y: str, shapes: list, given: Callable) -> str | None:
    """`given`: gives a tuple a name in the text.  None where it is none: a label is in all three, twice in
    one, or in one alone."""
    inputs, out = subscripts.split("->")
    a, b = inputs.split(",")
    if (
        any([len(set(s)) < len(s) for s in (a, b, out)])
        or set(out) != set(a) ^ set(b)
        or not out
        or "." in subscripts
    ):
        return None
    if out[0] in b:
        a, b, x, y, shapes = b, a, y, x, shapes[::-1]
    size = dict(zip(a + b, (*shapes[0], *shapes[1]), strict=True))
    rows, columns = [[c for c in out if c in s] for s in (a, b)]
    summed = [c for c in a if c in b]
    count = [math.prod([size[c] for c in labels]) for labels in (rows, summed, columns)]
    if not summed or 0 in count:
        return None

    def turned(name: str, now: list, then: list, to: tuple) -> str:
        axes = tuple([now.index(c) for c in then])
        name += "" if axes == tuple(range(len(axes))) else f".transpose({given(axes)})"
        return name if tuple([size[c] for c in then]) == to else f"{name}.reshape({given(to)})"

    left = turned(x, list(a), rows + summed, (count[0], count[1]))
    right = turned(y, list(b), summed + columns, (count[1], count[2]) if columns else (count[1],))
    made, text = rows + columns, f"{left}.dot({right})"
    if len(rows) != 1 or len(columns) > 1:
        text += f".reshape({given(tuple([size[c] for c in made]))})"
    if made != list(out):
        text = f"{turned(text, made, list(out), tuple([size[c] for c in out]))}.copy()"
    return text
