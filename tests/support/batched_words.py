"""What a primitive's word `batch` claims: how its body runs on samples stacked along a first axis."""

import numpy as np
from hidden_values import Escaped, Hidden, at_both
from third_trace import Calls

import tapegrad as tg
from tapegrad.errors import DroppedDerivativeError
from tapegrad.ops.declare import PRIMITIVES
from tapegrad.ops.indexing.regions import PARTS


def padded(x, rank):
    """A stack of samples with ones behind its first axis, so that the samples broadcast as they did."""
    return x.reshape(x.shape[:1] + (1,) * (rank - x.ndim + 1) + x.shape[1:])


def elementwise(run, stacks, params):
    """As one row of numbers, backwards: no element knows of its neighbours."""
    rank = max(x.ndim - 1 for x in stacks if x is not None)
    to = np.broadcast_shapes(*[padded(x, rank).shape for x in stacks if x is not None])
    rows = [x if x is None else np.broadcast_to(padded(x, rank), to).ravel()[::-1] for x in stacks]
    return lambda constants: run(
        *[c if x is None else x for x, c in zip(rows, constants, strict=True)], **params
    )[::-1].reshape(to)


def matrix(run, stacks, params):
    return lambda constants: run(
        *[c if x is None else x for x, c in zip(stacks, constants, strict=True)], **params
    )


def shifted(axis, rank):
    """An axis of a sample, or several, or None for all, as those of a stack."""
    if axis is None:
        return tuple(range(1, rank + 1))
    if isinstance(axis, (tuple, list)):
        return tuple([shifted(a, rank) for a in axis])
    return axis if axis < 0 else axis + 1


def axis(run, stacks, params):
    rank = next(x.ndim - 1 for x in stacks if x is not None)
    params = {k: shifted(v, rank) if k in ("axis", "axes") else v for k, v in params.items()}
    return matrix(run, stacks, params)


def moves(run, stacks, params):
    """Where each element of the result comes from is the same for all samples: the body is run on the
    elements' numbers, zero standing for zero."""

    def result(constants):
        pools, numbers, n = [], [], 1
        for x in stacks:
            size = int(np.prod(x.shape[1:]))
            numbers.append(np.arange(n, n + size).reshape(x.shape[1:]))
            pools.append(x.reshape(len(x), -1))
            n += size
        pool = np.concatenate([np.zeros_like(pools[0][:, :1]), *pools], 1)
        return pool[:, np.asarray(run(*numbers, **params))]

    return result


WORDS = {"elementwise": elementwise, "axis": axis, "matrix": matrix, "moves": moves}


def samples_of(inputs, count):
    """`count` variants of the inputs of one call, each array with other numbers; its structure (sign,
    symmetry, order) stays."""
    scales = 1.0 - 0.07 * np.arange(count)

    def variants(x):
        if not isinstance(x, (np.ndarray, np.generic)) or x.dtype.kind not in "fcb":
            return [x] * count if not isinstance(x, (np.ndarray, np.generic)) else [np.asarray(x)] * count
        if x.dtype.kind == "b":
            return [np.asarray(x) if k % 2 == 0 else ~np.asarray(x) for k in range(count)]
        return [np.asarray(x * x.dtype.type(s)) for s in scales]

    return list(zip(*[variants(x) for x in inputs], strict=True))


def holds(word, prim, inputs, params, count):
    """Does the word hold for this call, on `count` samples stacked?"""
    samples = samples_of(inputs, count)
    looped = [prim.run(*[x.copy() if isinstance(x, np.ndarray) else x for x in s], **params) for s in samples]
    stacks = [np.stack(xs) if isinstance(xs[0], np.ndarray) else None for xs in zip(*samples, strict=True)]
    if all(x is None for x in stacks):
        return True
    found = (
        WORDS[word](prim.run, stacks, params)(samples[0])
        if isinstance(word, str)
        else word(prim.run, stacks, params)
    )
    if type(looped[0]) is not tuple:
        looped, found = [(y,) for y in looped], (found,)
    for n, part in enumerate(found):
        right = np.stack([y[n] for y in looped])
        part = np.asarray(part)
        if part.shape != right.shape or part.dtype != right.dtype:
            return False
        scale = np.max(np.abs(right), initial=1e-300, where=np.isfinite(right)) if right.size else 1.0
        if not np.allclose(
            part,
            right,
            rtol=1e-11,
            atol=1e-13 * scale if right.dtype.itemsize > 4 else 1e-5 * scale,
            equal_nan=True,
        ):
            return False
    return True


# --- the calls that lines of the table make ---

MOST = 12  # calls of an operation, of different shapes and settings


def declared():
    return {entry.prim for entry in PRIMITIVES.values()}


class HiddenCalls(Hidden):
    """Keeps what primitives are given where values are hidden: orders, masks and kinds of matrices are found
    by operations there."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def step(self, prim, args, inputs, slots, params):
        self.calls.append(
            (prim, [v if s is None else s[0] for v, s in zip(inputs, slots, strict=True)], params)
        )
        return super().step(prim, args, inputs, slots, params)


def watched_calls(case, calls):
    """Adds the calls of primitives that the line's value, tangent and cotangents make."""
    active = [
        n
        for n, a in enumerate(case.inputs)
        if np.asarray(a).dtype.kind in "fc" and not isinstance(a, (list, tuple))
    ]

    def f(*xs):
        given = list(case.inputs)
        for n, x in zip(active, xs, strict=True):
            given[n] = x
        return case.f(*given)

    for reverse in (False, True):
        trace = Calls()
        xs = tuple([trace.watch(np.array(case.inputs[n])) for n in active])
        if reverse:
            y, pullback = tg.vjp(f, *xs)
            pullback(y)
        else:
            tg.jvp(f, xs, xs)
        trace.close()
        keep(trace.calls, calls)
    xs = tuple([np.asarray(case.inputs[n]) for n in active])
    for way in (
        lambda *xs: tg.jvp(f, xs, xs),
        lambda *xs: (lambda y, pullback: pullback(y))(*tg.vjp(f, *xs)),
    ):
        hidden = HiddenCalls()
        try:
            at_both(way, xs, xs, lambda hidden=hidden: hidden)
        except (Escaped, DroppedDerivativeError):  # or a plain array of NumPy's code takes a hidden value
            pass
        keep(hidden.calls, calls)


def keep(found, calls):
    known = declared()
    for prim, inputs, params in [call for call in found if call[0] in known]:
        kept = calls[prim.name]
        if len(kept) < MOST:
            kinds = [(getattr(a, "shape", None), getattr(a, "dtype", type(a))) for a in inputs]
            kept.setdefault(repr((kinds, params))[:200], (prim, inputs, params))


def failing(word, calls):
    """The first of the calls for which the word does not hold, at two or three samples; three is also the
    length of many axes."""
    for prim, inputs, params in calls:
        if not PARTS.isdisjoint([kind for kind, _ in params.get("path", ())]):
            continue  # real and imaginary parts are no elements (ops/indexing/regions.py)
        for count in (2, 3):
            try:
                good = holds(word, prim, inputs, params, count)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            if not good:
                return [getattr(a, "shape", a) for a in inputs], params
    return None
