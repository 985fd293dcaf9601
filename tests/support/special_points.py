"""A call at special points: recorded at its own point, its values and derivatives there are those of the call
itself; and these agree with differences, if differences of several steps and of both sides agree with each other. What raises,
or is not finite, is loud."""

import random

import numpy as np
from looped import weighed

import tapegrad as tg

STEPS = (1e-3, 2.5e-4, 5e-5)


def put(a, n, value):
    a = a.copy()
    if a.size:
        a.flat[n % a.size] = value
    return a


def repeated(a):
    return np.concatenate([a[:-1], a[:1]]) if a.ndim and len(a) else a.copy()


POINTS = {
    "zeros": np.zeros_like,
    "negative zeros": lambda a: -np.zeros_like(a),
    "a zero": lambda a: put(a, 1, 0.0),
    "first zero": lambda a: put(a, 0, 0.0),
    "last zero": lambda a: put(a, -1, 0.0),
    "first one": lambda a: put(a, 0, 1.0),
    "last one": lambda a: put(a, -1, 1.0),
    "ones": np.ones_like,
    "equal": lambda a: np.full_like(a, a.flat[0] if a.size else 0.0),
    "repeated": repeated,
    "swapped": lambda a: a[::-1].copy() if a.ndim else -a,
    "negated": np.negative,
    "integers": np.round,
    "halves": lambda a: np.round(2 * a) / 2,
    "denormal": lambda a: put(a, 0, 5e-324),
    "nan": lambda a: put(a, 0, np.nan),
    "inf": lambda a: put(a, 0, np.inf),
    "unit": lambda a: np.eye(*a.shape) if a.ndim == 2 else put(np.zeros_like(a), 0, 1.0),
}


def of_floats(f, inputs):
    """(f as a number made of its floating-point arguments, which come as a tuple; these)"""
    active = [k for k, a in enumerate(inputs) if np.asarray(a).dtype.kind in "fc"]
    g = lambda v: weighed(f(*[v[active.index(k)] if k in active else a for k, a in enumerate(inputs)]))
    return lambda v: g(v) + 0.0, tuple([np.asarray(inputs[k]) * 1.0 for k in active])


def points(xs, seed, count):
    """Some of: one argument at a special point, or all of them."""
    every = [
        (name, k, tuple([at(x) if k in (n, None) else x for n, x in enumerate(xs)]))
        for name, at in POINTS.items()
        for k in (*range(len(xs)), None)
    ]
    return random.Random(seed).sample(every, count)


def outcome(f, *args):
    """A flat array, or None if f raises."""
    try:
        y = f(*args)
    except Exception:
        return None
    parts = y if isinstance(y, tuple) else (y,)
    return np.concatenate([np.asarray(v, complex).reshape(-1) for v in parts])


def disagrees(found, wanted, rtol=1e-6):
    """Is a finite number of `found` another one? (The arguments are about 1: below 1e-9 may be rounding.)"""
    if found is None:
        return False
    if wanted is None or found.shape != wanted.shape:
        return bool(np.isfinite(found).any())
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-9)
    return bool((np.isfinite(found) & ~np.isclose(found, wanted, rtol, rtol * size)).any())


def slope(g, x, v):
    """The derivative along v by differences, or None if it cannot be told."""
    along = lambda e: float(g(tuple([a + e * d for a, d in zip(x, v, strict=True)])))
    try:
        sides = np.array([[(along(h) - along(0.0)) / h, (along(0.0) - along(-h)) / h] for h in STEPS])
    except Exception:
        return None
    centred, gap = sides.mean(1), np.abs(sides[:, 0] - sides[:, 1])
    size = 1e-5 * (1 + abs(centred[-1]))
    smooth = np.isfinite(sides).all() and gap[2] <= 0.3 * gap[0] + size
    return centred[-1] if smooth and abs(centred[-1] - centred[-2]) < size else None


def faults(call, seed=0, count=3):
    """What is silently wrong at some special points of a line of a table (name, f, inputs, ..)."""
    name, f, inputs = call[:3]
    g, xs = of_floats(f, inputs)
    if not xs or any(x.size > 400 or x.dtype.kind == "c" for x in xs):
        return
    v = tuple([np.where(np.arange(x.size) % 2, 0.7, -0.4).reshape(x.shape) for x in xs])
    prepared, push = tg.prepare(g, xs), lambda x: tg.jvp(g, (x,), (v,))[1]
    ways = {"value": (g, prepared.value), "gradient": (tg.grad(g), prepared.grad)}
    for eager, replayed in ways.values():
        if outcome(eager, xs) is None or outcome(replayed, xs) is None:
            return
    for point, k, x in points(xs, f"{name} {seed}", count):
        plain = outcome(g, x)
        if plain is None or not np.isfinite(plain).all():
            continue
        for way, (eager, replayed) in ways.items():
            if disagrees(outcome(replayed, x), outcome(eager, x)):
                yield f"{name}: {way} replayed at {point} of {k}"
        finite = all([np.isfinite(a).all() for a in x])
        gradient, tangent, wanted = outcome(tg.grad(g), x), outcome(push, x), slope(g, x, v)
        if wanted is None or not finite:  # what is nan, or infinite, has no neighbours
            continue
        swept = None if gradient is None else gradient @ np.concatenate([d.reshape(-1) for d in v])
        product = outcome(lambda x: tg.linearize(g, x)[1](v), x)
        for mode, found in (
            ("reverse", swept),
            ("forward", None if tangent is None else tangent[0]),
            ("linearized", None if product is None else product[0]),
        ):
            bound = 1e-3 * (1 + abs(wanted)) + 1e-9 * abs(plain[0])
            if found is not None and np.isfinite(found) and abs(found - wanted) > bound:
                yield f"{name}: {mode} at {point} of {k}: {found}, by differences {wanted}"
