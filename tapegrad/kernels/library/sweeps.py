"""A recursion over the data of a library kernel, forth and, for the gradient, back: its sweeps, by the `Steps` of one model.

The steps are functions of vectors of samples (vectors.py) and of sizes.  Numba compiles them with sizes that are numbers at run
time (`looping`); straight_line_code.py runs them once in Python for given sizes and keeps what they compute.  Both do the same
operations in the same order, those of the CUDA C, and so give the same bits.

A step finds its arguments in

    room       vectors that are kept from step to step, and scratch
    outside    theta, data of each sample, the address of shared data, N, 0, whether each sample has its own data, the gradient
    t          which step
    layout     (arguments, 3): mode, rows, and first row of each argument, as in filters.cu
    sizes      a tuple of whole numbers"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from .handwritten import CHUNK, inlined, twin
from .sample_loops import LOG_2_PI
from .vectors import double, fma, narrow, number, rows, splat, table, where


@dataclass(frozen=True)
class Steps:
    """`begin`: whether the parameters are valid; `observe`: the term of a datum (-2 times its part of the log-likelihood), how many
    numbers it holds, whether it is valid; `save`, `restore`(room, stored, sizes): what the way back needs; `recall`: what `observe`
    left in the room; `move`, `move_adjoint`: between one datum and the next; `store`, `finish`: write gradients of one step, and of all;
    `flush`: after each CHUNK of data on the way back.  All that is not said is (room, outside, t, layout, sizes)."""

    begin: Callable
    observe: Callable
    move: Callable
    save: Callable
    restore: Callable
    recall: Callable
    move_adjoint: Callable
    observe_adjoint: Callable
    store: Callable
    flush: Callable
    finish: Callable


@dataclass(frozen=True)
class Sums:
    """Where the gradient needs no way back: `begin`, `observe` as above, but without results; `flush`: after each CHUNK of data;
    `finish`(room, outside, layout, sizes) writes the value, outside[7], and the gradient.  The last of the sizes says whether that is
    wanted.  `first`: in place of `observe` for the first data, how many is told beside the steps; t is a number there."""

    begin: Callable
    observe: Callable
    flush: Callable
    finish: Callable
    first: Callable


class Frame(NamedTuple):
    """What the sweeps of a model are made for.  `modes` (arguments, 2): mode and rows of each argument; `lines`: rows of the data before
    those of arguments; `stored`: vectors that are stored for each step, or, of `Sums`, how many data are the first."""

    sizes: tuple
    modes: Any
    lines: int
    stored: int


class Block(NamedTuple):
    """What one run is of: `blocks` blocks of `width` samples, of B with N data, its own ones or (`each` 0) shared ones; a number has
    `item` bytes.  The arrays are addresses, that of a gradient which is not wanted 0."""

    theta: int
    data: int
    value: int
    gradient: int
    scratch: int
    B: int
    N: int
    blocks: int
    each: bool
    width: int
    item: int


@inlined
def datum(outside, line, t):
    """Row `line` of datum t."""
    at = line * outside[3] + t
    if outside[5]:
        return outside[1][at]
    return splat(number(outside[2], at, outside[4]), outside[0][0])


@inlined
def dot(a, b, n):
    """The product of two rows."""
    x = a[0] * b[0]
    for j in range(1, n):
        x = fma(a[j], b[j], x)
    return x


@inlined
def dot_column(a, b, step, n):
    """The product of a row and a column."""
    x = a[0] * b[0]
    for j in range(1, n):
        x = fma(a[j], b[j * step], x)
    return x


@twin
def nothing(room, outside, t, layout, sizes):
    """Where a model has no such step."""


@twin
def nothing_stored(room, outside, t, layout, valid, sizes):
    """Where no argument has a value for each step."""


@inlined
def outcome(total, seen, valid, like):
    """The log-likelihood from minus twice the sum of its terms, and where the gradient is not to be 0."""
    v = narrow(-0.5 * fma(seen, LOG_2_PI, total), like)
    good = valid & (v == v)
    return where(good, v, -np.inf), good & (v - v == 0)


@twin
def placed(modes, N, first):
    """The layout: for each argument mode, rows, and first row, in theta or (mode 2) the data from row `first` on."""
    layout = np.empty((len(modes), 3), np.int64)
    row, line = 0, first
    for a in range(len(modes)):
        mode, n = modes[a]
        layout[a, 0], layout[a, 1], layout[a, 2] = mode, n, line if mode == 2 else row
        if mode == 2:
            line += n
        else:
            row += n * (N if mode == 1 else 1)
    return layout


def looping(steps: Steps) -> Callable:
    """The sweeps with sizes at run time: run(0, block, frame)."""
    begin, observe, move, save, restore, recall, move_adjoint, observe_adjoint, store, flush, finish = [
        getattr(steps, f.name) for f in fields(Steps)
    ]

    @twin
    def forward(value, tape, room, outside, layout, gradients, stored, sizes):
        valid = begin(room, outside, layout, sizes)
        total = splat(0, double(outside[0][0]))
        seen = total
        for t in range(outside[3]):
            if gradients:
                save(room, tape + t * stored, sizes)
            term, count, good = observe(room, outside, t, layout, sizes)
            valid, total, seen = valid & good, total + double(term), seen + double(count)
            if t + 1 < outside[3]:
                move(room, outside, t, layout, sizes)
        value[0], valid = outcome(total, seen, valid, outside[0][0])
        return valid

    @twin
    def backward(tape, room, outside, layout, valid, stored, sizes):
        for t in range(outside[3] - 1, -1, -1):
            restore(room, tape + t * stored, sizes)
            recall(room, outside, t, layout, sizes)
            if t + 1 < outside[3]:
                move_adjoint(room, outside, t, layout, sizes)
            observe_adjoint(room, outside, t, layout, sizes)
            store(room, outside, t, layout, valid, sizes)
            if t % CHUNK == 0:
                flush(room, outside, t, layout, sizes)
        finish(room, outside, layout, valid, sizes)

    @twin
    def run(zero, block, frame):
        B, N, sizes, stored, wanted = block.B, block.N, frame.sizes, frame.stored, block.gradient != 0
        layout = placed(frame.modes, N, frame.lines)
        tape = rows(block.scratch, zero)
        room = tape + (N * stored if wanted else 0)
        for k in range(block.blocks):
            s = k * block.width * block.item
            theta, data, slope = block.theta + s, block.data + s, block.gradient + s
            outside = table(theta, B, zero), table(data, B, zero), block.data, N, zero, block.each, table(slope, B, zero)
            valid = forward(table(block.value + s, 0, zero), tape, room, outside, layout, wanted, stored, sizes)
            if wanted:
                backward(tape, room, outside, layout, valid, stored, sizes)

    return run


def looping_sums(sums: Sums) -> Callable:
    """As `looping`."""
    begin, observe, flush, finish, first = [getattr(sums, f.name) for f in fields(Sums)]

    @twin
    def run(zero, block, frame):
        B, N, sizes, special = block.B, block.N, frame.sizes, frame.stored
        layout, room = placed(frame.modes, N, frame.lines), rows(block.scratch, zero)
        for k in range(block.blocks):
            s = k * block.width * block.item
            theta, data, slope = block.theta + s, block.data + s, block.gradient + s
            outside = (
                table(theta, B, zero), table(data, B, zero), block.data, N, zero, block.each, table(slope, B, zero),
                table(block.value + s, 0, zero),
            )  # fmt: skip
            begin(room, outside, layout, sizes)
            for t in range(min(special, N)):
                first(room, outside, t, layout, sizes)
            for start in range(special, N, CHUNK):
                for t in range(start, min(start + CHUNK, N)):
                    observe(room, outside, t, layout, sizes)
                flush(room, outside, start, layout, sizes)
            finish(room, outside, layout, sizes)

    return run
