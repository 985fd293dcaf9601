"""Calls of SciPy's functions by their public names, in code that knows nothing of tapegrad: values, both
modes, second order and samples, against differences of the plain function.

A line is (name, f, inputs): f is called with the inputs, arrays of floating point numbers."""

import numpy as np

import tapegrad as tg
from tapegrad._core.trees import leaves

H = 1e-3
WEIGHTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))  # of the fourth order


def table(by_values=(), **usual):
    """A list of lines, and the function that adds one, with options that are usual in it.  `by_values`: names of calls that do not run
    for all samples at once, since their values decide what is done."""
    calls = []

    def add(name, f, *x, **options):
        calls.append((name, f, x, {"samples": name not in by_values, **usual, **options}))

    return calls, add


def cat(*xs):
    return np.concatenate([np.reshape(v, -1) for v in xs])


def vector(y):
    """All numbers of a result, as a real vector."""
    parts = [np.asarray(v).reshape(-1) for v in leaves(y)]
    return np.concatenate(
        [
            p.view(p.real.dtype) if p.dtype.kind == "c" else p.astype(float)
            for p in map(np.ascontiguousarray, parts)
        ]
    )


def numbers(y):
    """The same of a tracked result."""
    parts = [np.reshape(v, -1) for v in leaves(y)]
    return np.concatenate(
        [np.stack([v.real, v.imag], -1).reshape(-1) if v.dtype.kind == "c" else v for v in parts]
    )


def slope(f, x, v, h=H):
    return sum(c / h * f(*[a + k * h * d for a, d in zip(x, v, strict=True)]) for k, c in WEIGHTS)


def close(a, b, rtol, what):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, (what, a.shape, b.shape)
    worst = np.max(np.abs(a - b), initial=0.0)
    assert worst <= rtol * max(1.0, np.max(np.abs(b), initial=0.0)), f"{what}: off by {worst:.2g}"


def judged(f, *x, order=2, rtol=1e-7, exact=1e-11, samples=True, h=H, seed=0):
    """`exact`: how near the value is to SciPy's; `samples`: is it run by vmap too?"""
    rng = np.random.default_rng(seed)
    v = [rng.standard_normal(np.shape(a)) for a in x]
    plain = lambda *x: vector(f(*[a.copy() for a in x]))
    value = plain(*x)
    w = rng.standard_normal(value.shape)
    phi = lambda *x: np.sum(w * numbers(f(*x)))
    shapes = []

    def noted(*x):
        y = f(*x)
        shapes.append(getattr(y, "shape", None if isinstance(y, (tuple, list)) else ()))
        return numbers(y)

    noted(*[a.copy() for a in x])
    got, tangent = tg.jvp(noted, x, tuple(v))
    assert shapes[0] == shapes[1], f"shapes of the values: {shapes}"
    close(got, value, exact, "value")
    close(tangent, slope(plain, x, v, h), rtol, "forward")
    every = tuple(range(len(x)))
    inner = lambda gs: sum(np.sum(g * d) for g, d in zip(gs, v, strict=True))
    gradient = tg.grad(phi, every)(*x)
    close(inner(gradient), w @ tangent, 1e-9, "reverse against forward")
    if order > 1:
        along = lambda *x: inner(tg.grad(phi, every)(*x))
        second = slope(lambda *x: np.array([inner(tg.grad(phi, every)(*x))]), x, v, h)[0]
        scale = max(1.0, abs(second))
        close(tg.jvp(along, x, tuple(v))[1] / scale, second / scale, rtol, "forward over reverse")
        close(inner(tg.grad(along, every)(*x)) / scale, second / scale, rtol, "reverse over reverse")
    if samples:
        of_samples(phi, x, every)


def of_samples(phi, x, every):
    stacks = [np.stack([a, a * 0.97]) for a in x]
    for f, what in ((phi, "values"), (tg.grad(phi, every), "gradients")):
        together = tg.vmap(f)(*stacks)
        for k in range(2):
            for a, b in zip(leaves(together), leaves(f(*[s[k] for s in stacks])), strict=True):
                close(a[k], b, 1e-9, f"{what} of samples")
