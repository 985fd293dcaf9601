"""The missing mode of a raw kernel: J t from launches of J^T, or J^T g from launches of J.

Sample b of the outputs may depend only on sample b of the inputs and on shared inputs. Then one launch with a
seed of ones in one row gives that row's derivative for all samples. A launch with different seeds for the
samples tests this independence: its results must differ likewise. Other kernels take one launch for each
element, of which there may be few."""

from collections.abc import Callable, Iterator

import numpy as np

from ..._core.errors import KernelError, NoRuleError
from ..._core.primitive import primal_of, truth_of
from ...ops import shaping
from ...ops.declare import sum_of_given

MOST_ELEMENT_LAUNCHES = 256  # launches for elements, at most


def sample_axis(k, a) -> int | None:
    """Return the axis of the samples in the array `a`, or None."""
    if k.threads.samples is None:
        return None
    axes = [n for n, d in enumerate(a.dims or ()) if d.text == k.threads.samples.text]
    return axes[0] if len(axes) == 1 else None


def units(xp, shape: tuple, dtype: np.dtype, axis: int | None) -> Iterator:
    """Yield unit arrays: ones in one row for all samples, or in one element."""
    rest = shape if axis is None else shape[:axis] + shape[axis + 1 :]
    for r in np.ndindex(rest):
        seed = xp.zeros(shape, dtype)
        seed[r if axis is None else r[:axis] + (slice(None),) + r[axis:]] = 1
        yield seed


def sample_rows(shape: tuple, axis: int | None) -> int:
    return int(np.prod([n for i, n in enumerate(shape) if i != axis], dtype=object))


def assembled(pieces: list, shape: tuple, axis: int | None):
    """Return an array from its rows, or from its elements."""
    width = 1 if axis is None else shape[axis]
    flat = [p.reshape((1, width)) for p in pieces]
    whole = flat[0] if len(flat) == 1 else shaping.concatenate(*flat)
    if axis is None:
        return shaping.reshape(whole, to=shape)
    whole = shaping.reshape(whole, to=shape[:axis] + shape[axis + 1 :] + (width,))
    order = list(range(len(shape) - 1))
    order.insert(axis, len(shape) - 1)
    return shaping.transpose(whole, axes=tuple(order))


def contracted(c, d, axis: int | None):
    """Return <c, d> for each sample, or in all.

    d lacks the samples that c, partial sums, has as its last axis."""
    if axis is None:
        return (c * d).sum()
    if c.ndim > d.ndim:
        d = d.reshape(d.shape + (1,)) if d.ndim else d
        axis = c.ndim - 1
    return (c * d).sum(axis=tuple([i for i in range(c.ndim) if i != axis]))


def check_independent(k, launch: Callable, key: tuple, xp, batch: int, dtype: np.dtype) -> None:
    """Check that samples are independent.

    `launch(w)` returns derivatives for seeds w[b], as pairs (array, axis of the samples)."""
    if key in k.independent or batch < 2:
        return
    exponents = np.random.default_rng(0).permutation(batch) % 8
    w = xp.asarray(np.ldexp(1.0, exponents), dtype)
    for (one, axis), (many, _) in zip(launch(xp.ones(batch, dtype)), launch(w), strict=True):
        one, many = primal_of(one), primal_of(many)
        wanted = xp.moveaxis(one, axis, -1) * w
        got = xp.moveaxis(many, axis, -1)
        if one.size == 0:
            continue
        finite = xp.isfinite(wanted) & xp.isfinite(got)
        gap = xp.where(finite, xp.abs(xp.where(finite, got, 0) - xp.where(finite, wanted, 0)), 0)
        scale = xp.where(finite, xp.abs(xp.where(finite, wanted, 0)), 0).max()
        if truth_of(gap.max() > 256 * np.finfo(dtype).eps * scale):
            raise KernelError(
                f"{k.__name__}: samples={k.threads.samples.text!r} says that each sample has its own thread "
                "and its own derivatives, but a seed for one sample reached the derivatives of another. Say "
                "threads= in place of samples=, and pass a rule for both modes"
            )
    k.independent.add(key)


def few(k, n: int, missing: str) -> None:
    if n > MOST_ELEMENT_LAUNCHES:
        raise NoRuleError(
            f"the raw kernel {k.__name__} has no {missing}, and its transpose would take {n} launches, one "
            f"for each element; pass {missing}="
        )


def bar_axis(k, n: int) -> int | None:
    """Return the axis of the samples in the adjoint's result for input n."""
    a = k.given[n]
    bar = next(o for o in k.vjp.outs if o.name == f"{a.name}_bar")
    return sample_axis(k, a) if len(bar.dims or ()) == len(a.dims or ()) else sample_axis(k, bar)


def by_samples(k, taken: list) -> bool:
    """Return whether all active outputs, and the derivatives of the inputs `taken`, have an axis of
    samples."""
    return all([sample_axis(k, a) is not None for a in k.outs if a.active]) and all(
        [bar_axis(k, n) is not None for n in taken]
    )


def transposes_in_one(k, t: list, args: tuple, known: dict) -> bool:
    """Return whether one launch of the adjoint suffices."""
    dims = k.dimensions(args, known)
    one = sum([sample_rows(a.shape(dims), sample_axis(k, a)) for a in k.outs if a.active]) == 1
    return one and by_samples(k, [n for n, d in enumerate(t) if d is not None])


def pushforward_kernel(k, t: list, out, args: tuple, known: dict):
    """Return J t, by the kernel of J^T."""
    dims, real, xp = k.dimensions(args, known), k.real_of(args), k.library_of(args)
    outs = out if isinstance(out, tuple) else (out,)
    taken = [n for n, d in enumerate(t) if d is not None]
    axes = [sample_axis(k, a) for a in k.outs]
    own = by_samples(k, taken)
    if own:

        def launch(w):
            gs = [
                spread_to_rows(xp, w, a.shape(dims), axis) if a.active else None
                for a, axis in zip(k.outs, axes, strict=True)
            ]
            bars = k.cotangents(gs, plain_all(out), plain_all(args), known)
            return [(bars[n], bar_axis(k, n)) for n in taken]

        check_independent(
            k, launch, ("bar", real.char, *sorted(dims.items())), xp, k.threads.samples.value(dims), real
        )
    tangents = []
    for m, a in enumerate(k.outs):
        if not a.active:
            tangents.append(None)
            continue
        shape, axis = a.shape(dims), axes[m] if own else None
        if not own:
            few(k, sample_rows(shape, axis), "jvp")
        pieces = []
        for seed in units(xp, shape, a.dtype(real), axis):
            bars = k.cotangents([seed if n == m else None for n in range(len(outs))], out, args, known)
            if not own:
                bars = [None if c is None else k.reduced(b, c) for b, c in zip(k.given, bars, strict=True)]
            pieces.append(
                sum_of_given([contracted(bars[n], t[n], bar_axis(k, n) if own else None) for n in taken])
            )
        tangents.append(assembled(pieces, shape, axis) if pieces else xp.zeros(shape, a.dtype(real)))
    return tuple(tangents) if isinstance(out, tuple) else tangents[0]


def pullback_kernel(k, g, out, need: tuple, args: tuple, known: dict) -> list:
    """Return J^T g, by the kernel of J."""
    dims, real, xp = k.dimensions(args, known), k.real_of(args), k.library_of(args)
    gs = g if isinstance(g, (list, tuple)) else [g]
    live = [m for m, c in enumerate(gs) if c is not None]
    axes = [sample_axis(k, a) for a in k.outs]
    own = k.threads.samples is not None and all([axes[m] is not None for m in live])
    terms = []

    def tangents(n, seed):
        return [seed if i == n else None for i in range(len(args))]

    for n, a in enumerate(k.given):
        if not need[n]:
            terms.append(None)
            continue
        shape, axis = a.shape(dims) if a.dims is not None else (), sample_axis(k, a) if own else None
        if axis is None:
            few(k, sample_rows(shape, axis), "vjp")
        else:

            def launch(w):
                dots = k.tangents_of(
                    tangents(n, spread_to_rows(xp, w, shape, axis)), plain_all(out), plain_all(args), known
                )
                return [(dots[m], axes[m]) for m in live]

            check_independent(k, launch, ("dot", n, real.char, *sorted(dims.items())), xp, shape[axis], real)
        pieces = []
        for seed in units(xp, shape, a.dtype(real), axis):
            dots = k.tangents_of(tangents(n, seed), out, args, known)
            pieces.append(
                sum_of_given([contracted(dots[m], gs[m], None if axis is None else axes[m]) for m in live])
            )
        terms.append(assembled(pieces, shape, axis) if pieces else xp.zeros(shape, a.dtype(real)))
    return terms


def spread_to_rows(xp, w, shape: tuple, axis):
    """Return an array with w[b] in all rows of sample b."""
    return xp.ascontiguousarray(
        xp.broadcast_to(w.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
    )


def plain_all(values):
    """Return the primals."""
    return tuple([primal_of(v) for v in values]) if isinstance(values, (tuple, list)) else primal_of(values)
