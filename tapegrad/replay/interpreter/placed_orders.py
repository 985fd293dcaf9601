"""Orders, searches and indices that are values, as rows of the interpreter."""

import math
from typing import Any

import numpy as np

from ..._core.arrays import F8
from ...ops import sorting
from ...ops.indexing.traced_indices import HOLE
from ..costs import SORT_ELEMENTS, STABLE_SORT_ELEMENTS
from .placed_arrays import FUNCTIONS, NotPlaced, PlacedArray, all_placed, chosen, placed, reduced, zeros


def first_extreme(ufunc, x: PlacedArray, axis, keepdims: bool) -> PlacedArray:
    """Where the largest, or smallest, element is first."""
    if not x.size:
        raise NotPlaced("argmax of nothing")
    x = x.astype(F8) if x.kind == "b" else x
    if axis is None:
        found = first_extreme(ufunc, x.reshape(-1), 0, False)
        return found.reshape((1,) * x.ndim) if keepdims else found
    n, after = x.shape[axis], x.ndim - 1 - axis % x.ndim
    numbers = placed(x.b, np.arange(n)).reshape((n,) + (1,) * after)
    at = chosen(x == reduced(ufunc, x, axis, True), numbers, n)
    return reduced(np.minimum, at, axis, keepdims)


def placed_searchsorted(a, v, side: str) -> PlacedArray:
    """By bisection, all values in step.  The run ends where the elements do not ascend."""
    a, v = all_placed(a, v)
    if a.ndim != 1 or not a.size or {a.kind, v.kind} != {"f"}:
        raise NotPlaced("searchsorted")
    check_ordered(a, v)
    if a.size > 1:
        1.0 / (a[:-1] <= a[1:])  # (the quotient is not finite)
    before = np.less if side == "left" else np.less_equal
    x, size, at = v.reshape(-1), a.size, placed(a.b, np.zeros(v.size, np.int64))
    while size:  # of the elements from `at` on
        half = (size + 1) // 2
        found: Any = before(gathered(a[half - 1 :], at, 0), x)
        at = PlacedArray(a.b, (at.astype(F8) + found.astype(F8) * float(half)).at, "i")
        size -= half
    return at.reshape(v.shape)


def placed_argsort(x: PlacedArray, axis: int, kind, stable) -> PlacedArray:
    is_stable = kind in ("stable", "mergesort") or stable is True
    longest = STABLE_SORT_ELEMENTS if is_stable else SORT_ELEMENTS
    if not x.ndim or x.kind != "f" or not 0 < x.shape[axis] <= longest or axis is None:
        raise NotPlaced("argsort")
    to = x.b.temporary(*x.shape)
    lines, made = np.moveaxis(x.at, axis, -1), np.moveaxis(to, axis, -1)
    for k in np.ndindex(lines.shape[:-1]):
        x.b.ordered(made[k], lines[k], is_stable)
    return PlacedArray(x.b, to, "i")


def placed_lexsort(keys) -> PlacedArray:
    """By a stable sort for each key."""
    first, *others = [key.astype(F8) for key in all_placed(*keys)]
    order: Any = np.argsort(first, kind="stable")
    for key in others:
        then: Any = np.argsort(gathered(key, order, 0), kind="stable")
        order = gathered(order, then, 0)
    return order


def check_ordered(*x: PlacedArray) -> None:
    """(What is not finite gives no number, and the run ends.)"""
    for v in x:
        v - v


def gathered(x, at: PlacedArray, axis: int) -> PlacedArray:
    b, x = at.b, placed(at.b, x)
    to = b.temporary(*at.shape)
    shape = [*at.shape]
    shape[axis] = x.shape[axis]
    if any([n not in (1, m) for n, m in zip(x.shape, shape, strict=True)]):
        raise NotPlaced("indices of another shape")
    if x.shape != (*shape,):
        x = PlacedArray(b, np.broadcast_to(x.at, shape), x.kind)
    return by_indices(b, "gathered", to, x, at, axis, to)


def first_chosen(flags: PlacedArray, rows: PlacedArray) -> PlacedArray:
    if rows.ndim != 1:
        raise NotPlaced("rows that are chosen")
    return gathered(rows, flags.argmax().reshape(1), 0).reshape(())


def element_numbers(*parts: PlacedArray, at: tuple, to: tuple) -> PlacedArray:
    """The places of a[i, j, ...] in an array of this shape."""
    if any([i is not HOLE and getattr(i, "dtype", F8).kind not in "iu" for i in at]) or len(at) > len(to):
        raise NotPlaced("an index of other kinds")
    rest = np.arange(math.prod(to[len(at) :])).reshape(to[len(at) :])
    numbers: Any = None
    given = iter(parts)
    for axis, (n, i) in enumerate(zip(to, at, strict=False)):
        step = float(math.prod(to[axis + 1 :]))
        line = checked_index(next(given), n) if i is HOLE else (i % n).astype(F8)
        line = line if step == 1 else line * step
        numbers = line if axis == 0 else line + numbers if i is HOLE else numbers + line
    if rest.ndim:
        numbers = numbers.reshape(*numbers.shape, *[1] * rest.ndim) + rest.astype(F8)
    return PlacedArray(numbers.b, numbers.at, "i")


def checked_index(at: PlacedArray, n: int) -> PlacedArray:
    """An index of n elements from the first on, as floats."""
    b, to = at.b, at.b.temporary(*at.shape)
    b.row("index", to, at.at, b.number(float(n)), b.number(math.nan))
    return PlacedArray(b, to)


def with_last_axis(x: PlacedArray, at, axis: int, like: tuple) -> tuple:
    """(x, at, the shape of the result), without axes of one element after this one."""
    if not sorting.is_last(like, axis):
        return x, at, like
    x, at = [y.reshape(sorting.joined_axes(y.shape, axis)) for y in (x, at)]
    return x, at, like[: axis + 1]


def scattered(x: PlacedArray, at: PlacedArray, axis: int, like: tuple) -> PlacedArray:
    x, at, lines = with_last_axis(x, at, axis, like)
    to = zeros(x.b, *lines)
    return by_indices(x.b, "scattered", to, x, at, axis, x.at).reshape(*like)


def by_indices(b, name: str, to, x: PlacedArray, at: PlacedArray, axis: int, beside) -> PlacedArray:
    """A row for each line along the axis.  `beside`: what lies as the indices do."""
    if at.kind != "i" or at.shape != beside.shape:
        raise NotPlaced("indices of another shape")
    lines = [np.moveaxis(v, axis, -1) for v in (to, x.at, at.at)]
    for k in np.ndindex(lines[0].shape[:-1]):
        b.indexed(name, *[line[k] for line in lines])
    return PlacedArray(b, to, x.kind)


def added_in_turn(x: PlacedArray, at, shape: tuple) -> PlacedArray:
    """Elements of x are added at places that are known, which may be equal."""
    to = zeros(x.b, *shape)
    x.b.row("addto", to[at], x.at)
    return PlacedArray(x.b, to)


def added_at(x: PlacedArray, at, axis: int, like: tuple) -> PlacedArray:
    x, at, lines = with_last_axis(x, at, axis, like)
    where = [*np.ogrid[tuple([slice(n) for n in at.shape])]]
    where[axis] = at
    return added_in_turn(x, tuple(where), lines).reshape(*like)


ORDERS: dict = {
    np.argmax: lambda x, axis=None, keepdims=False: first_extreme(np.maximum, x, axis, keepdims),
    np.argmin: lambda x, axis=None, keepdims=False: first_extreme(np.minimum, x, axis, keepdims),
    np.digitize: lambda x, bins, right=False: placed_searchsorted(bins, x, "left" if right else "right"),
    np.searchsorted: lambda a, v, side="left": placed_searchsorted(a, v, side),
    np.lexsort: lambda keys: placed_lexsort(keys),
    np.argsort: lambda x, axis=-1, kind=None, *, stable=None: placed_argsort(x, axis, kind, stable),
}
FUNCTIONS |= ORDERS
