"""Calls of every function and keyword (keyword_calls.py) with operands in any memory order, and whether the
results lie as NumPy's do.

Whether a reshape is a view or a copy depends on it, so a program that writes through one gives another
number."""

import warnings

import numpy as np
from keyword_calls import Host, floats, members, run

import tapegrad as tg
from tapegrad._core.arrays import is_array, packed_steps, room_laid
from tapegrad._core.variable import Variable
from tapegrad.ops.indexing import views

KINDS = ("C", "F", "gaps", "columns", "turned", "mixed", "repeated")


def relaid(v, kind, rng):
    """The array v (or for `repeated` one that repeats a part of it) in another memory order."""
    if not isinstance(v, np.ndarray) or not v.ndim:
        return v
    if kind == "C":
        return v.copy()
    if kind == "F":
        return v.copy(order="F")
    if kind == "repeated":
        axis = rng.integers(v.ndim)
        return np.broadcast_to(v.take([0], axis).copy(), v.shape)
    n = v.ndim
    order = rng.permutation(n) if kind in ("turned", "mixed") else np.arange(n)
    steps = {
        "gaps": [1] * (n - 1) + [2],
        "columns": [1] * n,
        "turned": [1] * n,
        "mixed": rng.choice([1, 2, -1, -2], n),
    }[kind]
    more = [kind == "columns"] * n if kind != "mixed" else rng.integers(0, 2, n)
    room = np.empty([v.shape[k] * abs(steps[k]) + more[k] for k in order], v.dtype).transpose(
        np.argsort(order)
    )
    at = (
        [slice(m, None) for m in more]
        if kind == "columns"
        else [slice(0, s * k) for s, k in zip(np.abs(steps), v.shape, strict=True)]
    )
    room = room[tuple(at)][tuple([slice(None, None, s) for s in steps])]
    room[...] = v
    return room


def mapped(x, how):
    if isinstance(x, (list, tuple)):
        return type(x)([mapped(e, how) for e in x])
    return {k: mapped(v, how) for k, v in x.items()} if isinstance(x, dict) else how(x)


def lies(x):
    """All that can be asked of the layout of an array."""
    return packed_steps(x.shape, x.strides, x.itemsize, True)[:2], x.flags.c_contiguous, x.flags.f_contiguous


def shown(x):
    return views.layout_source(x) if isinstance(x, Variable) else x


def stacked(v):
    """A matrix as a stack of two."""
    return (
        np.stack([v, v * 0.9 if v.dtype.kind in "fc" else v])
        if isinstance(v, np.ndarray) and v.ndim == 2
        else v
    )


def laid(call, kind, seed, deep=False):
    """The call with each array in that order.  `deep`: of stacks of matrices."""
    rng = np.random.default_rng(seed)
    return mapped((call.args, call.kwargs), lambda v: relaid(stacked(v) if deep else v, kind, rng))


def again(x, values):
    """Nested arguments with other floats, in their own memory order."""
    if isinstance(x, (list, tuple)):
        return type(x)([again(e, values) for e in x])
    if isinstance(x, dict):
        return {k: again(e, values) for k, e in x.items()}
    return next(values) if floats(x) else x


def compared(call, kind, seed, transform, deep=False):
    """None where the call is not one of NumPy's or not of ours, else a list of (ours, NumPy's) layouts that
    differ."""
    args, kwargs = laid(call, kind, seed, deep)
    if "out" in kwargs:
        return None
    values = floats((args, kwargs))
    if not any(isinstance(v, np.ndarray) for v in values):
        return None
    theirs, seen = Host.face(call), []
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            given = mapped((args, kwargs), lambda v: v)
            plain = list(members(run(call, call.f, *laid(call, kind, seed, deep), np.zeros)))
    except Exception:
        return None

    def g(*xs):
        a, k = again(given, iter(xs))
        y = run(call, theirs, a, k, Host.faced_zeros)
        seen[:] = [(shown(v), v) for v in members(y)]
        return xs[0] * 1.0

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            transform(g, values)
    except Exception:
        return None
    found = []
    if len(seen) < len(plain):  # it was not run
        return None
    for (a, _), b in zip(seen, plain, strict=True):
        if (
            isinstance(b, np.ndarray)
            and is_array(a)
            and a.shape == b.shape
            and b.size > 1
            and lies(a) != lies(b)
        ):
            found.append((a.strides, b.strides))
    return found


def forward(g, values):
    tg.jvp(
        tg.Const(g), tuple(values), tuple([np.zeros(np.shape(v), np.asarray(v).dtype)[()] for v in values])
    )


def backward(g, values):
    tg.vjp(tg.Const(g), *values)


def prepared(g, values):
    tg.prepare(tg.Const(g), *values)(*values)


def batched(g, values):
    tg.vmap(tg.Const(g))(*[stack_of(v) for v in values])


def stack_of(v):
    """Two samples, each of which lies as v does."""
    if not isinstance(v, np.ndarray) or not v.ndim:
        return np.array([v, v])
    stack = room_laid(np, v.shape, v.strides, v.dtype, True, 2)
    stack[...] = v
    return stack


MODES = {"forward": forward, "backward": backward, "recorded": prepared, "batched": batched}
