"""Arguments of a solver: states, parameters and times as the arrays of a kernel."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as plain_np

from .. import numpy as np
from .._core.arrays import xp_of
from .._core.errors import ArgumentError, DataError, ShapeError
from .._core.primitive import layout_of, values_of
from .._core.registry import FROZEN
from .._core.trees import is_node, leaves, tree_map, with_leaves
from .._core.variable import HANDLES, Variable
from .._transforms.tape import value
from ..ops.shaping import concatenate

FLOAT64 = plain_np.dtype(float)
CACHED_STATES = 128  # of which the layout is kept: a recording that is refused has changed nothing


class ArgumentLayout:
    """How the arguments of one trajectory are made of its numbers.

    Leaves that hold no real number, such as integers and functions, are constants of the code."""

    def __init__(self, args: tuple, single: bool):
        shapes = []
        constants = []
        for x in leaves(args):
            kind = getattr(getattr(x, "dtype", None), "kind", "")
            real = kind != "" and kind in "fiuc" or isinstance(x, float)
            shape = tuple(x.shape) if kind else ()
            shapes.append((shape if single else shape[:-1]) if real else None)
            constants.append(None if real else x)
        self.shapes: tuple = tuple(shapes)  # of each leaf of one sample; None: a constant
        self.constants = tuple(constants)
        self.tree = with_leaves(args, iter(range(len(self.shapes))))
        nested = any([is_node(x) for x in args])
        self.key = (repr(self.tree) if nested else len(args), self.shapes)
        self.count = sum([math.prod(s) for s in self.shapes if s is not None])

    def arrays(self, args: tuple) -> list:
        """Return the arrays in such arguments."""
        return [real_array(x) for x, s in zip(leaves(args), self.shapes, strict=True) if s is not None]

    def has_constants_of(self, other: "ArgumentLayout") -> bool:
        """Return whether the constants are the same objects, or equal numbers or texts."""
        pairs = zip(self.constants, other.constants, strict=True)
        return all(
            [a is b or (type(a) is type(b) and isinstance(a, (int, str)) and a == b) for a, b in pairs]
        )

    def restored(self, numbers):
        """Return the arguments, with the numbers in place."""
        sizes = [0 if s is None else math.prod(s) for s in self.shapes]
        ends = plain_np.cumsum(sizes)

        def leaf(k: int):
            shape, last = self.shapes[k], ends[k]
            if shape is None:
                return self.constants[k]
            return numbers[last - sizes[k] : last].reshape(shape) if shape else numbers[last - 1]

        return tree_map(leaf, self.tree)

    def leaves_of(self, tree) -> list:
        """Return the leaves of a result that is like the first argument; a list may stand for an array."""
        found = []
        tree_map(lambda _, x: found.append(x), self.tree[0], tree)
        return found

    def parts(self, rows):
        """Return rows (numbers, ...) as a tree like the first argument."""
        if self.tree == (0,) and len(self.shapes[0]) == 1:
            return rows
        sizes = [math.prod(s) for s in self.shapes]
        ends, rest = plain_np.cumsum(sizes), tuple(layout_of(rows).shape[1:])
        return tree_map(
            lambda k: rows[ends[k] - sizes[k] : ends[k]].reshape(self.shapes[k] + rest), self.tree[0]
        )

    def rows(self, tree):
        """Return a tree of arrays as rows (numbers, ...)."""
        given = []
        tree_map(lambda k, x: given.append(self._row(self.shapes[k], real_array(x))), self.tree, tree)
        return np.concatenate(given)

    @staticmethod
    def _row(shape: tuple, x):
        found = tuple(layout_of(x).shape)
        if found[: len(shape)] != shape or len(found) == len(shape):
            raise ShapeError(
                f"ode: an amount has shape {found} for a state of shape {shape}; the times follow"
            )
        return np.reshape(x, (math.prod(shape), *found[len(shape) :]))


FROZEN.add(ArgumentLayout)


def layouts_of(known: dict, y0, args: tuple) -> tuple:
    """Return whether there is one trajectory, the layouts of state and arguments, their kernels, and the
    arrays.

    `known` holds the layouts by the shapes of the arrays; the kernels of each are found there too."""
    given = (y0, *args)
    below = [layout_of(x) if type(x) in HANDLES else x for x in given]
    shapes = tuple([x.shape if type(x) is plain_np.ndarray and x.dtype is FLOAT64 else None for x in below])
    found = known.get(shapes)
    if found is not None:
        return (*found, given)
    y0 = state_tree(y0)
    single = is_single(y0)
    state, layout = ArgumentLayout((y0,), single), ArgumentLayout(args, single)
    if None not in shapes and state.count <= CACHED_STATES:
        known[shapes] = single, state, layout, {}
    return single, state, layout, {}, (*state.arrays((y0,)), *layout.arrays(args))


def real_array(x):
    """Return an argument as an array of float64."""
    if not hasattr(x, "dtype"):
        x = np.asarray(x)
    dtype = layout_of(x).dtype
    if dtype.kind not in "fiu":
        raise ArgumentError(f"ode: states, arguments and times are real; one has dtype {dtype}")
    return x if dtype is FLOAT64 else x.astype(FLOAT64)


def state_tree(y0):
    """Return a start as a tree of arrays of float64; a list of numbers is one array."""
    if type(y0) in (list, tuple) and not any([is_node(x) or getattr(x, "ndim", 0) for x in y0]):
        y0 = np.stack([real_array(x) for x in y0]) if len(y0) else plain_np.zeros(0)
    return tree_map(real_array, y0)


def is_single(y0) -> bool:
    """Return whether a start is that of one trajectory: no array in it has two axes."""
    shapes = [tuple(layout_of(x).shape) for x in leaves(y0)]
    depth = max(map(len, shapes), default=0)
    if (
        not shapes
        or depth > 2
        or (shapes == [()] and not is_node(y0))
        or (depth == 2 and any([len(s) == 1 for s in shapes]))
    ):
        raise ShapeError(
            f"ode: y0 has shape {', '.join(map(str, shapes))}; it is (n,), or (n, B) for B trajectories. In "
            "a tree each array is like that, and a number is shared"
        )
    return depth < 2


def kernel_rows(arrays: Sequence, single: bool):
    """Return the arrays of a call as rows, (numbers,) or (numbers, B)."""
    arrays = in_library_of_state(arrays)
    if not single:
        return stacked_samples(arrays)
    return concatenate(*[x if len(x.shape) == 1 else np.reshape(x, (-1,)) for x in arrays])


def in_library_of_state(arrays: Sequence) -> tuple:
    """Return the arrays of a call, all of the library of the state."""
    xp = xp_of(layout_of(arrays[0]))
    return tuple(arrays) if xp is plain_np else tuple([in_library(xp, x) for x in arrays])


def in_library(xp, x):
    """Return x in the library of the state, if it is a plain array of NumPy."""
    return xp.asarray(x) if xp is not plain_np and isinstance(x, (plain_np.ndarray, plain_np.generic)) else x


def stacked_samples(arrays: Sequence):
    """Return rows (numbers, B) of arrays whose last axis is that of the samples; numbers are shared."""
    shapes = [tuple(layout_of(x).shape) or (1,) for x in arrays]
    counts = [s[-1] for s in shapes]
    batch = next((c for c in counts if c != 1), 1)
    for s in shapes:
        if s[-1] not in (1, batch):
            raise ShapeError(
                f"ode: an array of shape {s} has {s[-1]} samples, and there are {batch}. With y0 (n, B) the "
                "last axis of each array is that of the samples; give an array that all share as theta[..., "
                "None]"
            )
    rows = [
        x if len(s) == 2 == layout_of(x).ndim else np.reshape(x, (math.prod(s[:-1]), s[-1]))
        for x, s in zip(arrays, shapes, strict=True)
    ]
    return concatenate(
        *[
            x if layout_of(x).shape[1] == batch else np.broadcast_to(x, (layout_of(x).shape[0], batch))
            for x in rows
        ]
    )


class Intervals:
    """The intervals between the saved times and the times of doses.

    A datum is the start and the end of an interval, and what is added to the state at its start."""

    def __init__(self, save_at, t0, doses=None, n: int = 0):
        if save_at is None:
            raise ArgumentError("ode: give the times of the result, save_at=, to solver or call")
        ends = np.reshape(real_array(save_at), (-1,))
        first = ends[:1] if t0 is None else np.reshape(real_array(t0), (1,))
        self.times = plain_times(ends)
        self.saved: Any = None  # the intervals that end at a saved time, if not all do
        check_order(plain_times(first), self.times)
        if doses is None:
            self.data = np.stack([np.concatenate([first, ends[:-1]]), ends])
            if type(self.data) is plain_np.ndarray:
                self.data.flags.writeable = False  # it is checked once
        else:
            self.data = self._with_doses(first, ends, n, *doses)

    def _with_doses(self, first, ends, n: int, at, amounts):
        at, amounts = np.reshape(real_array(at), (-1,)), real_array(amounts)
        shape, where = tuple(layout_of(amounts).shape), plain_times(at)
        count = len(where)
        if shape[:2] != (n, count) or len(shape) > 3:
            raise ShapeError(
                f"ode: doses=(times, amounts): amounts have shape {shape}; for {count} times they are ({n}, "
                f"{count}), or ({n}, {count}, B)"
            )
        way = -1.0 if self.times[-1] < plain_times(first)[0] else 1.0
        if not np.isfinite(where).all() or (way * where < way * plain_times(first)[0]).any():
            raise DataError(f"ode: a dose at {where} is not finite, or before the time of y0")
        order = values_of(np.argsort(way * np.concatenate([self.times, where]), kind="stable"))
        order = order[
            : int(plain_np.flatnonzero(order == len(self.times) - 1)[0]) + 1
        ]  # up to the last saved time
        self.saved = plain_np.flatnonzero(order < len(self.times))
        number = plain_np.concatenate(
            [[count], order[:-1] - len(self.times)]
        )  # of the dose at the start; else `count`
        number = plain_np.where(number < 0, count, number)
        added = np.concatenate([amounts, plain_np.zeros((n, 1, *shape[2:]))], 1)[:, number]
        grid = np.concatenate([ends, at])[order]
        limits = np.stack([np.concatenate([first, grid[:-1]]), grid])
        if len(shape) == 3:
            limits = np.broadcast_to(limits[:, :, None], (2, len(order), shape[2]))
        return np.concatenate([limits, added])


def plain_times(times):
    """Return a copy of the times without derivatives. What an open transform hides stays hidden."""
    times = value(times)
    if not isinstance(times, Variable):
        times = plain_np.array(times)
        times.flags.writeable = False
    return times


def check_order(first, times) -> None:
    """Raise if the times do not rise or fall from the first one."""
    lengths = np.diff(times, prepend=first)
    ordered = len(times) and ((lengths >= 0).all() or (lengths <= 0).all())
    if not ordered or not np.isfinite(lengths).all():
        raise DataError(f"ode: t0 and save_at must be finite, and rise or fall; they are {first} and {times}")
