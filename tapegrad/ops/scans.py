"""The methods `reduce`, `accumulate` and `reduceat` of ufuncs without a function of their own for them.

If the order does not matter, halves are combined, or elements at distances 1, 2, 4, ...; the number of
operations is the logarithm of the length. Otherwise the elements are combined one after another."""

from collections.abc import Callable

import numpy as np

from .._core.errors import ArgumentError
from .declare import NUMPY, axes_of, axis_of, ndim, shape
from .shaping import concatenate, reshape, slice_of

ASSOCIATIVE = {np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot}
FOLLOWED = ASSOCIATIVE | {np.subtract, np.divide}


def axis_slice(x, axis: int, start: int, stop: int):
    return slice_of(x, axis=axis, start=start, stop=stop)


def merge_axes(f, x, axis) -> tuple:
    """(x with the reduced axes joined into one, the place of that axis, the shape of the result with
    these axes as 1)."""
    n = ndim(x)
    axes = axes_of(axis, n)
    kept = tuple([1 if a in axes else k for a, k in enumerate(shape(x))])
    if len(axes) == 1:
        return x, axes[0], kept
    if f not in ASSOCIATIVE:
        raise ValueError(
            f"reduction operation '{f.__name__}' is not reorderable, so at most one axis may be specified"
        )
    rest = [a for a in range(n) if a not in axes]
    x = NUMPY[np.transpose](x, (*axes, *rest))
    return reshape(x, to=(-1, *[shape(x)[k] for k in range(len(axes), n)])), 0, kept


def reduce_axis(f, entry: Callable, x, axis, keepdims: bool, initial=None):
    axes = axes_of(axis, ndim(x))
    x, axis, kept = merge_axes(f, x, axis)
    n = shape(x)[axis]
    to = kept if keepdims else tuple([k for a, k in enumerate(kept) if a not in axes])
    if n == 0:
        if initial is None and f.identity is None:
            raise ValueError(f"zero-size array to reduction operation {f.__name__} which has no identity")
        return np.full(to, f.identity if initial is None else initial) + 0.0 * NUMPY[np.sum](x)
    while f in ASSOCIATIVE and n > 1:
        half = n // 2
        y = entry(axis_slice(x, axis, 0, half), axis_slice(x, axis, half, 2 * half))
        x, n = (concatenate(y, axis_slice(x, axis, n - 1, n), axis=axis), half + 1) if n % 2 else (y, half)
    y = axis_slice(x, axis, 0, 1)
    y = y if initial is None else entry(initial, y)
    for k in range(1, n):
        y = entry(y, axis_slice(x, axis, k, k + 1))
    return reshape(y, to=to)[()]


def accumulated(f, entry: Callable, x, axis: int = 0):
    axis %= ndim(x)
    n = shape(x)[axis]
    if f in ASSOCIATIVE:
        k = 1
        while k < n:
            x = concatenate(
                axis_slice(x, axis, 0, k),
                entry(axis_slice(x, axis, 0, n - k), axis_slice(x, axis, k, n)),
                axis=axis,
            )
            k *= 2
        return x
    rows = [axis_slice(x, axis, 0, 1)]
    for k in range(1, n):
        rows.append(entry(rows[-1], axis_slice(x, axis, k, k + 1)))
    return concatenate(*rows, axis=axis) if n else x


def reduced_at(f, reduce: Callable, x, indices, axis: int):
    """`reduce(part)`, with the axis kept, for each part from one index to the next. If the next index is
    not larger, the element at the index."""
    axis = axis_of(axis, ndim(x))
    n = shape(x)[axis]
    at = np.asarray(indices).tolist()
    if any(not -n <= k < n for k in at):
        raise IndexError(f"numpy.{f.__name__}.reduceat: an index is out of range for {n} elements")
    at = [k % n for k in at]
    ends = [*at[1:], n]
    pieces = [reduce(axis_slice(x, axis, a, b if a < b else a + 1)) for a, b in zip(at, ends, strict=True)]
    return concatenate(*pieces, axis=axis)


def refuse_where(f, where) -> None:
    if where is not None and where is not True:
        raise ArgumentError(
            f"numpy.{f.__name__}.reduce: where= is not supported on a tracked Variable; write numpy.where "
            f"with its identity"
        )
