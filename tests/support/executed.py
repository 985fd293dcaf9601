"""What the lines of the tables give, executed by public names: see coverage_table.py.

`on_numpy(line)` and `on_cupy(line, cupy)` say of each mode "right" or what happened.  On NumPy the reference is differences of the plain
function, of the fourth order, and for the second order (forward over reverse) differences of the gradient; on CuPy it is what NumPy gives
of the same line."""

import numpy as np
from written import Cupy, Numpy, written

import tapegrad as tg
from tapegrad._tree import leaves
from tapegrad.testing import direction_like, host, inner

FORWARD, REVERSE, SECOND, RIGHT = "forward", "reverse", "second", "right"
WEIGHTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))


def numbers(y):
    """The floating point numbers of a result, as real vectors."""
    parts = []
    for v in leaves(y):
        plain = tg.value(v)
        if type(plain) in (float, complex):
            v = np.float64(0.0) + v
        if getattr(tg.value(v), "dtype", np.dtype(object)).kind in "fc":
            parts += [v.real.reshape(-1), v.imag.reshape(-1)] if v.dtype.kind == "c" else [v.reshape(-1)]
    return tuple(parts)


def vector(parts):
    return np.concatenate([np.zeros(0), *[host(p).astype(float) for p in parts]])


class Problem:
    """A line in one library, as a function of its floating point inputs; its point and directions are the same in both libraries."""

    def __init__(self, line, library):
        self.f, self.library = written(line.f, library), library
        self.inputs = line.inputs
        self.places = [n for n, a in enumerate(line.inputs) if np.asarray(a).dtype.kind in "fc"]
        self.x = tuple([line.inputs[n] for n in self.places])
        self.v = direction_like(self.x, np.random.default_rng(0))

    def put(self, x):
        return self.library.array(x.copy()) if isinstance(x, np.ndarray) else x

    def __call__(self, *xs):
        given = [self.put(a) for a in self.inputs]
        for n, x in zip(self.places, xs, strict=True):
            given[n] = x
        return numbers(self.f(*given))

    def plain(self, h=0.0):
        return vector(self(*[self.put(a + h * d) if h else self.put(a) for a, d in zip(self.x, self.v, strict=True)]))

    def at(self, h=0.0):
        return tuple([self.put(a + h * d if h else a) for a, d in zip(self.x, self.v, strict=True)])

    def forward(self):
        """(values, tangents)"""
        values, tangents = tg.jvp(self, self.at(), tuple(map(self.put, self.v)))
        return vector(values), vector([p * 0.0 if t is None else t for p, t in zip(values, tangents, strict=True)])

    def gradient(self, weights):
        """The function of the point: cotangents of the weighted sum of all numbers."""
        weights = list(map(self.put, weights))
        return tg.grad(lambda *xs: sum([(w * p).sum() for w, p in zip(weights, self(*xs), strict=True)]), tuple(range(len(self.x))))

    def reverse(self, weights):
        return vector(numbers(self.gradient(weights)(*self.at())))

    def second(self, weights):
        return vector(numbers(tg.jvp(self.gradient(weights), self.at(), tuple(map(self.put, self.v)))[1]))


def weights_of(p):
    """Of the numbers that a line gives on NumPy."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal(len(n)) for n in p(*p.at())]


def near(found, wanted, rtol):
    scale = max(1.0, np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0))
    if found.shape != wanted.shape:
        return f"WRONG: {found.shape} numbers for {wanted.shape}"
    worst = np.max(np.abs(found - wanted) / scale, initial=0.0)
    return RIGHT if worst <= rtol else f"WRONG: off by {worst:.2g}"


def tried(f):
    try:
        return f()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def slope(f, h):
    return sum([c / h * f(k * h) for k, c in WEIGHTS])


def on_numpy(line, second=True):
    p = Problem(line, Numpy())
    h, rtol = line.options.get("h", 1e-3), line.options.get("rtol", 1e-6)
    weights = weights_of(p)

    def forward():
        values, tangents = p.forward()
        plain = near(values, p.plain(), line.options.get("exact", 1e-9))
        return near(tangents, slope(p.plain, h), rtol) if plain == RIGHT else f"value: {plain}"

    def reverse():
        along = np.array([float(host(inner(p.v, p.gradient(weights)(*p.at()))))])
        return near(along, np.array([vector(weights) @ slope(p.plain, h)]), rtol)

    def twice():
        gradient = p.gradient(weights)
        return near(p.second(weights), slope(lambda h: vector(numbers(gradient(*p.at(h)))), h), 10 * rtol)

    return {FORWARD: tried(forward), REVERSE: tried(reverse), **({SECOND: tried(twice)} if second else {})}


def on_cupy(line, cupy, second=True):
    """Absent is raised where CuPy has no function of a name in it."""
    p, q = Problem(line, Numpy()), Problem(line, Cupy(cupy))
    rtol, weights = max(1e-8, 1e-2 * line.options.get("rtol", 1e-6)), weights_of(p)

    def forward():
        values, tangents = q.forward()
        wanted, slopes = p.forward()
        plain = near(values, wanted, max(1e-9, line.options.get("exact", 0.0)))
        return near(tangents, slopes, rtol) if plain == RIGHT else f"value: {plain}"

    def reverse():
        return near(q.reverse(weights), p.reverse(weights), rtol)

    def twice():
        return near(q.second(weights), p.second(weights), rtol)

    return {FORWARD: tried(forward), REVERSE: tried(reverse), **({SECOND: tried(twice)} if second else {})}
