"""The batching rule of raw kernels.

If the declaration names the dimension of the samples, the samples of `vmap` are stacked along it, and one
launch computes them. Otherwise they run one after the other."""

from collections.abc import Callable

import numpy as np

from ..._core.errors import KernelError
from ..._core.primitive import bind, primal_of
from ..._core.variable import Variable
from ..._transforms.batching.rules import as_stack
from ...ops import shaping as s
from ...ops.declare import shape
from .transpose import sample_axis


def in_one_launch(k) -> Callable:
    """Return the batching rule of the kernel k (`_transforms.batching.rules.CustomRule`)."""

    def run(trace, prim, operands, params):
        count = trace.count
        if not count or not laid_by_samples(k, [batched for _, batched in operands]):
            return NotImplemented
        over = k.threads.samples.text
        known = {name: n * count if name == over else n for name, n in params["known"].items()}
        values = [
            move_samples(trace, a, sample_axis(k, a), o, over) for a, o in zip(k.given, operands, strict=True)
        ]
        out = bind(prim, values, {"known": known})
        parts = [
            split_samples(y, sample_axis(k, a), count)
            for a, y in zip(k.outs, out if type(out) is tuple else (out,), strict=True)
        ]
        check_apart(k, prim, operands, params, parts)
        return tuple(parts) if type(out) is tuple else parts[0]

    return run


def laid_by_samples(k, batched: list) -> bool:
    """Return whether everything batched, and each output, has the samples as one axis, and nothing else
    depends on it."""
    over = k.threads.samples
    if over is None or not over.alone:
        return False
    for a in k.args:
        others = [d for n, d in enumerate(a.dims or ()) if over.text in d.names and n != sample_axis(k, a)]
        if others and a.role != "work":
            return False
    differing = [a for a, yes in zip(k.given, batched, strict=True) if yes]
    return all([sample_axis(k, a) is not None for a in (*differing, *k.outs)])


def move_samples(trace, a, axis: int | None, operand: tuple, over: str):
    v, batched = operand
    if axis is None:
        return v * trace.count if a.name == over else v
    v = as_stack(trace, v, batched)
    if axis:
        v = s.transpose(v, axes=(*range(1, axis + 1), 0, *range(axis + 1, len(shape(v)))))
    to = shape(v)
    return s.reshape(v, to=(*to[:axis], to[axis] * to[axis + 1], *to[axis + 2 :]))


def split_samples(y, axis, count: int):
    to = shape(y)
    y = s.reshape(y, to=(*to[:axis], count, to[axis] // count, *to[axis + 1 :]))
    return s.transpose(y, axes=(axis, *range(axis), *range(axis + 1, len(to) + 1))) if axis else y


def check_apart(k, prim, operands: list, params: dict, parts: list) -> None:
    """Check the first and the last sample by themselves, once a kernel, if values can be read."""
    seen = [(primal_of(v), batched) for v, batched in operands]
    if "vmap" in k.independent or any([isinstance(v, Variable) for v, _ in seen]):
        return
    for at in (0, -1):
        alone = prim.run(*[v[at] if batched else v for v, batched in seen], **params)
        for one, many in zip(alone if type(alone) is tuple else (alone,), parts, strict=True):
            found = primal_of(many)[at]
            near = np.finfo(one.dtype).eps * 256 * abs(one) if one.dtype.kind == "f" else 0
            if not bool(
                ((found == one) | (abs(found - one) <= near) | ((found != found) & (one != one))).all()
            ):
                raise KernelError(
                    f"{k.__name__}: samples={k.threads.samples.text!r} says that each sample has its own "
                    f"thread, and under tg.vmap what "
                    "one gives depends on those beside it. Say threads= in place of samples="
                )
    k.independent.add("vmap")
