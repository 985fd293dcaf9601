"""Filters whose arguments have a value for each step.

Their kernels take them as rows of theta, (T n, B), which no recursion has.  For the generated kernel they are data of each sample,
and a derivative along a direction v of theta is one along the part of v that is theta there plus one along the part that is data:

    D^n f [v1, ..]  =  sum over all choices of a part for each direction

the gradient by such rows being one by the data."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._array import xp_of
from .arguments import surely_finite


class ByStep:
    """`modes` (0, 1 or 2) and `rows` of the arguments, `observed` numbers at a step; `run(kind, n, arrays)`: launches the generated
    kernel for which all modes 1 are 2."""

    def __init__(self, modes: tuple, rows: list, observed: int, run: Callable):
        self.arguments, self.observed, self.run = list(zip(modes, rows, strict=True)), observed, run

    def __call__(self, kind: str, n: tuple, arrays: tuple) -> Any:
        theta, data = arrays[:2]
        xp, steps = xp_of(theta), data.shape[1]
        own = data if data.ndim == 3 else xp.broadcast_to(data[:, :, None], (*data.shape, theta.shape[1]))
        there = self.split(xp, steps, theta, own)
        if n == (0, 0) and kind in ("VG", "R"):
            value, gradient, slopes = self.run("VGD", n, there)
            gradient = self.joined(xp, steps, gradient, slopes)
            return gradient if kind == "R" else (value, gradient)
        parts = [self.split(xp, steps, v, xp.zeros_like(own)) for v in arrays[2 : 2 + n[0]]]
        rest = [(None, self.split(xp, steps, xp.zeros_like(theta), self.each(xp, y, own))[1]) for y in arrays[2 + n[0] : 2 + sum(n)]]
        w = arrays[2 + sum(n)] if kind == "D" else None
        found: list = []
        for choice in itertools.product(*[(0, 1) for _ in parts], *[(1,) for _ in rest]):
            chosen = list(zip(choice, parts + rest, strict=True))
            vs, ys = [part[0] for at, part in chosen if at == 0], [part[1] for at, part in chosen if at == 1]
            found.append(self.term(kind, (*there, *vs, *ys), (len(vs), len(ys)), w))
        made = [sum(terms) for terms in zip(*found, strict=True)]
        if kind == "F":
            return made[0]
        if kind == "R":
            return self.joined(xp, steps, *made)
        by_data = self.joined(xp, steps, xp.zeros_like(there[0]), made[0], of_data=True)
        return by_data if data.ndim == 3 else by_data.sum(axis=2)

    def term(self, kind: str, arrays: tuple, n: tuple, w: Any) -> tuple:
        """What is asked for, of one choice: F, or the gradients by theta and by the data, or that by the data alone."""
        if kind == "F":
            return (self.run("F", n, arrays),)
        if kind == "D":
            return (self.run("D", n, (*arrays, w)),)
        ones = xp_of(arrays[0]).ones(arrays[0].shape[1], arrays[0].dtype)
        return self.run("R", n, arrays), self.run("D", n, (*arrays, ones))

    def each(self, xp: Any, y: Any, own: Any) -> Any:
        return y if y.ndim == 3 else xp.broadcast_to(y[:, :, None], own.shape)

    def split(self, xp: Any, steps: int, theta: Any, data: Any) -> tuple:
        """Theta and data (d, T, B) of the generated kernel."""
        row, line, kept, lines = 0, self.observed, [], [data[: self.observed]]
        for mode, n in self.arguments:
            count = (n, n * steps, 0)[mode]
            x, row = theta[row : row + count], row + count
            if mode == 0:
                kept.append(x)
            elif mode == 1:
                lines.append(x.reshape(steps, n, -1).swapaxes(0, 1))
            else:
                lines.append(data[line : line + n])
                line += n
        made, at = xp.empty((sum([len(x) for x in lines]), steps, theta.shape[1]), theta.dtype), 0
        for x in lines:
            made[at : at + len(x)], at = x, at + len(x)
        return xp.concatenate(kept), finite_or_nan(xp, made)

    def joined(self, xp: Any, steps: int, theta: Any, data: Any, of_data: bool = False) -> Any:
        """The inverse of `split`: theta, or the data."""
        row, line, lines = 0, self.observed, [data[: self.observed]]
        made, at = xp.empty((sum([(n, n * steps, 0)[mode] for mode, n in self.arguments]), data.shape[-1]), theta.dtype), 0
        for mode, n in self.arguments:
            if mode == 0:
                made[at : at + n] = theta[row : row + n]
                row, at = row + n, at + n
                continue
            x, line = data[line : line + n], line + n
            if mode == 1:
                made[at : at + n * steps].reshape(steps, n, -1)[...] = x.swapaxes(0, 1)
                at += n * steps
            else:
                lines.append(x)
        return xp.concatenate(lines) if of_data else made


def finite_or_nan(xp: Any, x: Any) -> Any:
    """inf in data would be an error for all samples: nan rejects that one alone."""
    if xp is np and surely_finite(x):
        return x
    return xp.where(xp.isinf(x), np.nan, x)
