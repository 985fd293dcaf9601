"""Batching rules of kernels: the samples of `vmap` become further samples of one launch.

The arrays of a kernel's operations have the kernel's samples as their last axis, (..., B). A stack of n of
them becomes (..., n B). Data that all samples share stay as they are. Other data become (d, N, n B)."""

import functools

from ..._core.primitive import Primitive, bind
from ..._transforms.batching.rules import CustomRule, as_stack, samples_first
from ...ops import shaping
from ...ops.declare import shape
from .recorded import RecordedRun


class ScalarData:
    """Runs a kernel whose data are one number a step; if each sample has its own, they have shape (1, N,
    B)."""

    def __init__(self, run):
        self.run = run

    def __call__(self, kind: str, n: tuple, arrays: tuple):
        return self.run(kind, n, arrays, numbers=True)


def merge_samples(trace, operand: tuple):
    """Convert (..., B) of each sample to (..., n B)."""
    v = as_stack(trace, *operand)
    to = shape(v)
    moved = shaping.transpose(v, axes=(*range(1, len(to) - 1), 0, len(to) - 1))
    return shaping.reshape(moved, to=(*to[1:-1], to[0] * to[-1]))


def unmerge_samples(trace, y, batch: int):
    """Convert (..., n B) to a stack of (..., B)."""
    to = shape(y)
    y = shaping.reshape(y, to=(*to[:-1], trace.count, batch))
    k = len(to) - 1
    return samples_first(shaping.transpose(y, axes=(k, *range(k), k + 1)))


def of_their_own(trace, operand: tuple, batch: int):
    """Return data with samples of their own, (d, N, n B)."""
    v = as_stack(trace, *operand)
    n, to = trace.count, shape(v)[1:]
    if len(to) < 3:
        d, steps = (1, *to) if len(to) == 1 else to
        v = shaping.broadcast_to(shaping.reshape(v, to=(n, d, steps, 1)), to=(n, d, steps, batch))
    return merge_samples(trace, (v, True))


def batched_as(kind: str, n: tuple, data_of_samples: bool) -> CustomRule:
    """Return the batching rule of an operation (`derivatives`).

    `data_of_samples`: the last axis of its second argument holds the samples."""

    def way(trace, prim: Primitive, operands: list, params: dict):
        sample = lambda operand: shape(operand[0])[1:] if operand[1] else shape(operand[0])
        batch, to = sample(operands[0])[1], sample(operands[1])
        ways = [1, *range(2 + n[0], 2 + n[0] + n[1])]
        own = kind == "D" or len(to) == 3 or any([operands[k][1] for k in ways])
        if data_of_samples or not own:
            arrays = [
                v if k in ways and not data_of_samples else merge_samples(trace, (v, b))
                for k, (v, b) in enumerate(operands)
            ]
        else:
            arrays = [
                of_their_own(trace, o, batch) if k in ways else merge_samples(trace, o)
                for k, o in enumerate(operands)
            ]
            if len(to) == 1:
                if type(params["run"]) not in (functools.partial, RecordedRun):  # a handwritten kernel
                    return NotImplemented
                params = {"run": ScalarData(params["run"])}
        y = bind(prim, arrays, params)
        if kind != "D":
            return (
                tuple([unmerge_samples(trace, o, batch) for o in y])
                if type(y) is tuple
                else unmerge_samples(trace, y, batch)
            )
        # of each sample; a sum where the kernel's samples share the data
        y = unmerge_samples(trace, y, batch)
        if len(to) == 3:
            return y
        y = y.sum(axis=-1)
        return shaping.reshape(y, to=(trace.count, *to)) if len(to) == 1 else y

    return CustomRule(way, (kind, n, data_of_samples))
