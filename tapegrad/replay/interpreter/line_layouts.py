"""How an operation goes along lines of the arena: which axes of its places are one line, and the steps."""

import functools
import operator

import numpy as np

from ..costs import LINE_ELEMENTS, TABLED_LINE_ELEMENTS
from .arena import INDEX_BYTES
from .machine_code import IN_LINES, SUMMED, TABLED


def joined_axes(shape: tuple, forms: tuple) -> list:
    """[elements, steps of the result and the operands] of each axis, those that are one line together joined.
    `forms`: (shape, strides) of the places of the result and the operands, None of one place."""
    steps = [[0] * len(shape) if form is None else broadcast(form[0], form[1], len(shape)) for form in forms]
    axes = [[shape[k], *[step[k] for step in steps]] for k in range(len(shape)) if shape[k] > 1]
    axes.sort(key=lambda axis: axis[1:], reverse=True)
    joined = []
    for size, *step in axes:
        if joined and joined[-1][1:] == [size * s for s in step]:
            size *= joined.pop()[0]
        joined.append([size, *step])
    return joined


def outer_axes(joined: list, axis: list) -> tuple:
    """(numbers of lines, for each of these the steps of result and operands), where a line goes along
    `axis`."""
    outer = [other for other in joined if other is not axis]
    outer += [[1, *[0] * (len(axis) - 1)]] * (2 - len(outer))
    return (outer[0][0], outer[1][0]), (outer[0][1:], outer[1][1:])


@functools.lru_cache(4096)
def in_lines(name: str, shape: tuple, *forms) -> tuple | None:
    """How an operation with a result of this shape goes along lines: (name of the row, elements of a line,
    the `outer_axes`).  None where it does not go, or lines are short."""
    joined = joined_axes(shape, forms)
    best = None
    for axis in joined:
        size, to, *others = axis
        if to == 1 and {0, 1}.issuperset(others):
            row = f"{name} {''.join(map(str, others))}"
        elif to == 0 and name in SUMMED and set(others) == {1}:
            row = SUMMED[name]
        else:
            continue
        if row in IN_LINES and (best is None or size > best[1][0]):
            best = row, axis
    if best is None or len(joined) > 3:
        return None
    row, axis = best
    if axis[0] < LINE_ELEMENTS and len(joined) > 1:
        return None
    return row, axis[0], *outer_axes(joined, axis)


def tabled_lines(name: str, to: np.ndarray, operands: tuple) -> tuple | None:
    """How an operation goes along lines that begin anywhere: (name of the row, elements of a line, where
    the lines of the result and of the operands begin).  None where it does not go."""
    wide = [np.broadcast_to(at, to.shape) for at in (to, *operands)]
    for axis in sorted(range(to.ndim), key=lambda n: -to.shape[n]):
        if TABLED_LINE_ELEMENTS <= to.shape[axis] < to.size:
            lines = [np.moveaxis(at, axis, -1) for at in wide]
            result, *steps = [line_step(at) for at in lines]
            summed = result == 0 and name in SUMMED
            way = "".join(map(str, steps))
            row = f"{SUMMED[name] if summed else f'{name} {way}'} tabled"
            if row in TABLED and (summed and {*steps} == {1} or result == 1):
                return row, to.shape[axis], [np.ascontiguousarray(at[..., 0]).ravel() for at in lines]
    return None


def line_step(lines: np.ndarray) -> int | None:
    """The step between neighbours along the last axis, if it is one."""
    first = int(lines.flat[1] - lines.flat[0])
    return first if (lines[..., 1:] - lines[..., :-1] == first).all() else None


@functools.lru_cache(4096)
def in_calls(shape: tuple, width: int, *forms) -> tuple | None:
    """How a ufunc goes along lines: (elements of a line, the steps of result and operands, the `outer_axes`).
    Results lie one by one, of `width` places each, or are one."""
    joined = joined_axes(shape, forms) or [[1, *[width] * len(forms)]]
    axis = max([axis for axis in joined if axis[1] in (0, width)], key=operator.itemgetter(0), default=None)
    return None if axis is None or len(joined) > 3 else (axis[0], axis[1:], *outer_axes(joined, axis))


def broadcast(shape: tuple, strides: tuple, rank: int) -> list:
    """Steps in places along the axes of a result."""
    return [0] * (rank - len(shape)) + [
        0 if n == 1 else s // INDEX_BYTES for n, s in zip(shape, strides, strict=True)
    ]
