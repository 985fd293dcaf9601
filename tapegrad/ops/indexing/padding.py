"""`numpy.pad` in all its modes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.errors import ArgumentError
from ..._core.variable import Variable
from ..declare import dtype, implements, ndim, shape, xp
from ..reductions import amax, amin, mean
from ..shaping import broadcast_to as spread_to
from ..shaping import concatenate as end_to_end
from ..shaping import reshape as reshaped
from ..shaping import slice_of
from ..statistics import median
from . import views
from .gathering import array_like, constant_index, fit_dtype, pad_zeros, take_along

STATISTICS = {"mean": mean, "maximum": amax, "minimum": amin, "median": median}
MODES = ("edge", "reflect", "symmetric", "wrap")


def pad_widths(pad_width: Any, n: int) -> tuple:
    if isinstance(pad_width, dict):
        width = [(0, 0)] * n
        for axis, w in pad_width.items():
            width[axis] = (w, w) if isinstance(w, (int, np.integer)) else tuple(w)
        return tuple(width)
    return tuple([(int(i), int(j)) for i, j in np.broadcast_to(constant_index(pad_width), (n, 2))])


def per_edge(x: Any, values: Any, n: int, name: str) -> Any:
    """One value for each edge, as an array (n, 2)."""
    if isinstance(values, dict):
        raise ArgumentError(f"pad: {name} as a dict is not supported; give an array of shape (ndim, 2)")
    return views.broadcast_to(values if isinstance(values, Variable) else xp(x).asarray(values), (n, 2))


def join_padding(before: Any, x: Any, after: Any, axis: int) -> Any:
    return fit_dtype(end_to_end(before, x, after, axis=axis), dtype(x))


def pad_block(value: Any, x: Any, axis: int, k: int) -> Any:
    """k copies of a value, given for each line along the axis or for all lines."""
    s = shape(x)
    return spread_to(value, to=s[:axis] + (k,) + s[axis + 1 :])


def reflected_edge(x: Any, axis: int, width: tuple, mode: str) -> Any:
    """The elements beyond an edge, reflected about the edge's value (`reflect_type='odd'`)."""
    n = shape(x)[axis]
    first, low, high = (1, *width) if mode == "reflect" else (0, *width)
    if max(width) > n - first:
        raise ArgumentError(
            "pad: reflect_type='odd' beyond the length of the axis is not supported on a tracked Variable"
        )
    before = take_along(x, np.arange(first, first + low)[::-1], axis)
    after = take_along(x, np.arange(n - first - high, n - first)[::-1], axis)
    left, right = slice_of(x, axis=axis, start=0, stop=1), slice_of(x, axis=axis, start=n - 1, stop=n)
    return join_padding(2 * left - before, x, 2 * right - after, axis)


def ramps(x: Any, axis: int, width: tuple, ends: Any) -> Any:
    """Linear ramps from the end values to the edges."""
    n, made = shape(x)[axis], []
    for e, k in enumerate(width):
        edge = slice_of(x, axis=axis, start=(n - 1) * e, stop=(n - 1) * e + 1)
        end = reshaped(ends[axis, e], to=(1,) * ndim(x))
        steps = np.arange(k) / max(k, 1)
        steps = (
            xp(x)
            .asarray(steps[::-1] if e else steps)
            .reshape((1,) * axis + (k,) + (1,) * (ndim(x) - axis - 1))
        )
        made.append(end + (edge - end) * steps)
    return join_padding(made[0], x, made[1], axis)


def by_statistic(x: Any, axis: int, width: tuple, f: Any, lengths: Any) -> Any:
    n, made = shape(x)[axis], []
    for e, k in enumerate(width):
        m = n if lengths is None else min(n, int(lengths[axis, e]))
        made.append(
            pad_block(
                f(slice_of(x, axis=axis, start=(n - m) * e, stop=m + (n - m) * e), axis, keepdims=True),
                x,
                axis,
                k,
            )
        )
    return join_padding(made[0], x, made[1], axis)


def by_function(x: Any, width: tuple, f: Callable, settings: dict) -> Any:
    """Each line of the padded array is given to f, which writes it."""
    x = pad_zeros(x, width=width)
    for axis, w in enumerate(width):
        lines = views.moveaxis(x, axis, -1)
        for at in np.ndindex(shape(lines)[:-1]):
            f(lines[(*at, ...)], w, axis, settings)
    return x


@implements(np.pad, layout="asked")
def pad(array, pad_width, mode="constant", **settings):
    x = array_like(array)
    width = pad_widths(pad_width, ndim(x))
    return by_function(x, width, mode, settings) if callable(mode) else by_mode(x, width, mode, **settings)


def by_mode(
    x: Any,
    width: tuple,
    mode: Any,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
) -> Any:
    n = ndim(x)
    if mode == "constant":
        plain = not isinstance(constant_values, (Variable, dict))
        if plain and np.all(np.asarray(constant_index(constant_values)) == 0):
            return pad_zeros(x, width=width)
        edges = per_edge(x, constant_values, n, "constant_values")
        for axis, w in enumerate(width):
            before, after = [pad_block(reshaped(edges[axis, e], to=(1,) * n), x, axis, w[e]) for e in (0, 1)]
            x = join_padding(before, x, after, axis)
        return x
    if mode not in (*MODES, *STATISTICS, "linear_ramp"):
        raise ArgumentError(f"pad: mode={mode!r} is not supported on a tracked Variable")
    lengths = None if stat_length is None else np.broadcast_to(constant_index(stat_length), (n, 2))
    for axis, w in enumerate(width):
        if w == (0, 0):
            continue
        if mode in STATISTICS:
            x = by_statistic(x, axis, w, STATISTICS[mode], lengths)
        elif mode == "linear_ramp":
            x = ramps(x, axis, w, per_edge(x, end_values, n, "end_values"))
        elif reflect_type == "odd" and mode in ("reflect", "symmetric"):
            x = reflected_edge(x, axis, w, mode)
        else:
            x = take_along(x, np.pad(np.arange(shape(x)[axis]), w, mode), axis)
    return x
