"""Derivatives of plain NumPy programs by nilpotent numbers in object arrays: a reference that shares nothing
with the engine.

A `Jet` is a + sum of d_i e_i with e_i e_j = 0; a and d_i are numbers, or jets of an outer level, so that levels nest.  Jets never
change, and NumPy itself moves them about: views, overlapping writes and out= have NumPy's meaning because
NumPy carries them out. Derivatives are exact but for rounding; in multiple precision they tell how much of a
result in double precision is rounding.

Reading order: `derivatives`; `Jet`; `Transforms`, what stands for tapegrad; `Library`, what stands for
NumPy."""

import itertools
import math
import operator
from dataclasses import dataclass

import mpmath
import numpy as np

from tapegrad._core.arrays import packed_steps

REAL = (float, int, np.floating, np.integer, mpmath.mpf)
EXACT, SINGLE = 169, 24  # bits of 50 digits, and of float32


def derivatives(make, x, v, bits=53):
    """(f(x), gradient, Hessian times v) of `f = make(library, transforms)`, by one run with numbers of so
    many bits."""
    with mpmath.workprec(bits):
        number = float if bits == 53 else mpmath.mpf
        transforms = Transforms()
        outer, inner = transforms.level(), transforms.level()
        z = objects(
            [
                Jet(inner, Jet(outer, number(a), {0: number(b)}), {k: 1.0})
                for k, (a, b) in enumerate(zip(x, v, strict=True))
            ]
        )
        z = laid_like(z, x)
        y = make(Library(), transforms)(z)
        slopes = [slope(y, inner, k) for k in range(len(x))]
        return (
            float(bottom(y)),
            np.array([float(bottom(s)) for s in slopes]),
            np.array([float(slope(s, outer, 0)) for s in slopes]),
        )


# --- numbers ---


@dataclass(eq=False)
class Level:
    """One transform that is running.  Values that outlive it are constants."""

    number: int
    ended: bool = False


class Jet:
    __slots__ = ("level", "a", "d")

    def __init__(self, level, a, d):
        self.level, self.a, self.d = level, a, d

    def __repr__(self):
        return f"Jet({bottom(self)})"

    def __neg__(self):
        return unary(self, operator.neg, lambda a: -1.0)

    def __add__(self, other):
        return binary(self, other, operator.add, lambda a, b: 1.0, lambda a, b: 1.0)

    def __sub__(self, other):
        return binary(self, other, operator.sub, lambda a, b: 1.0, lambda a, b: -1.0)

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        if isinstance(other, complex):
            return Complex.of(self) * other
        return binary(self, other, operator.mul, lambda a, b: b, lambda a, b: a)

    def __truediv__(self, other):
        return binary(self, other, operator.truediv, lambda a, b: 1.0 / b, lambda a, b: -a / (b * b))

    def __rtruediv__(self, other):
        return power(self, -1) * other

    def __pow__(self, other):
        if isinstance(other, REAL):
            return power(self, int(other) if other == int(other) else other)
        return binary(self, other, operator.pow, lambda a, b: b * a ** (b - 1.0), lambda a, b: log(a) * a**b)

    def __rpow__(self, other):
        return exp(self * log(other))

    def __lt__(self, other):
        return bottom(self) < bottom(other)

    def __gt__(self, other):
        return bottom(self) > bottom(other)

    __radd__, __rmul__ = __add__, __mul__


def power(x, n):
    return unary(x, lambda a: a**n, lambda a: n * a ** (n - 1) if n != 1 else 1.0)


def elementary(name, slope):
    """A function of numbers and of jets of any depth."""

    def f(x):
        x = live(x)
        return (
            unary(x, f, slope)
            if type(x) is Jet
            else getattr(mpmath if type(x) is mpmath.mpf else math, name)(x)
        )

    return f


exp = elementary("exp", lambda a: exp(a))
log = elementary("log", lambda a: 1.0 / a)
sin = elementary("sin", lambda a: cos(a))
cos = elementary("cos", lambda a: -sin(a))
tanh = elementary("tanh", lambda a: 1.0 - power(tanh(a), 2))
sqrt = elementary("sqrt", lambda a: 0.5 / sqrt(a))


def live(x):
    while type(x) is Jet and x.level.ended:
        x = x.a
    return x


def bottom(x):
    while type(x) is Jet:
        x = x.a
    return x


def parts(x, level):
    return (x.a, x.d) if type(x) is Jet and x.level is level else (x, {})


def slope(x, level, k):
    """The coefficient of e_k of that level, which may have ended."""
    while type(x) is Jet and x.level is not level and x.level.ended:
        x = x.a
    return live(parts(x, level)[1].get(k, 0.0))


def unary(x, f, df):
    x = live(x)
    if type(x) is not Jet:
        return f(x)
    by = df(x.a)
    return Jet(x.level, f(x.a), {k: by * d for k, d in x.d.items()})


def binary(x, y, f, dx, dy):
    if not isinstance(y, (Jet, *REAL)):
        return NotImplemented
    x, y = live(x), live(y)
    levels = [z.level for z in (x, y) if type(z) is Jet]
    if not levels:
        return f(x, y)
    level = max(levels, key=lambda found: found.number)
    (a, da), (b, db) = parts(x, level), parts(y, level)
    d = {}
    if da:
        by = dx(a, b)
        d = {k: by * t for k, t in da.items()}
    if db:
        by = dy(a, b)
        for k, t in db.items():
            d[k] = d[k] + by * t if k in d else by * t
    return Jet(level, f(a, b), d)


# --- transforms within the program ---


class Transforms:
    """Stands for tapegrad in the program: forward mode at as many levels as are open."""

    def __init__(self):
        self.numbers = itertools.count()

    def level(self):
        return Level(next(self.numbers))

    def run(self, h, z, *seeds):
        """h at z + sum of the seeds, each a list of (key, tangent) for each element of z; (levels, h's
        value)."""
        levels = [self.level() for _ in seeds]
        elements = list(np.ravel(z))
        for level, seed in zip(levels, seeds, strict=True):
            elements = [Jet(level, e, dict(s)) for e, s in zip(elements, seed, strict=True)]
        return levels, h(laid_like(shaped(elements, z), z))

    def grad(self, h):
        def gradient(z):
            n = np.size(z)
            (level,), y = self.run(h, z, [[(k, 1.0)] for k in range(n)])
            level.ended = True
            return shaped([slope(scalar(y), level, k) for k in range(n)], z)

        return gradient

    def jvp(self, h, primals, tangents):
        (z,), (t,) = primals, tangents
        (level,), y = self.run(h, z, [[(0, d)] for d in np.ravel(t)])
        level.ended = True
        found = list(np.ravel(y))
        return shaped([live(e) for e in found], y), shaped([slope(e, level, 0) for e in found], y)

    def vjp(self, h, z):
        n = np.size(z)
        (level,), y = self.run(h, z, [[(k, 1.0)] for k in range(n)])
        level.ended = True
        rows = [[slope(e, level, k) for k in range(n)] for e in np.ravel(y)]
        return shaped([live(e) for e in np.ravel(y)], y), lambda w: shaped(
            [sum(g * row[k] for g, row in zip(np.ravel(w), rows, strict=True)) for k in range(n)], z
        )

    def hvp(self, h, z, v):
        n = np.size(z)
        (outer, inner), y = self.run(h, z, [[(0, d)] for d in np.ravel(v)], [[(k, 1.0)] for k in range(n)])
        slopes = [slope(scalar(y), inner, k) for k in range(n)]
        inner.ended = outer.ended = True
        return shaped([slope(s, outer, 0) for s in slopes], z)


def scalar(y):
    return y[()] if isinstance(y, np.ndarray) else y


def objects(elements):
    a = np.empty(len(elements), object)
    a[:] = elements
    return a.view(Objects)


def shaped(elements, like):
    return objects(elements).reshape(np.shape(like)) if isinstance(like, np.ndarray) else elements[0]


def laid_like(z, x):
    """A copy of the array z of any dtype that lies in memory as x does, so that what is a view of the one is
    a view of the other."""
    if not isinstance(z, np.ndarray) or not z.ndim or not z.size:
        return z
    first, steps, room = packed_steps(x.shape, x.strides, x.itemsize, False)
    y = np.lib.stride_tricks.as_strided(
        np.empty(room, z.dtype)[first:], x.shape, [s * z.itemsize for s in steps]
    )
    y[...] = z
    return y.view(type(z))


# --- arrays ---


class Objects(np.ndarray):
    """An array of jets and numbers.  With a complex number it gives a `Complex`."""

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return array[()] if return_scalar else array.view(Objects) if array.dtype == object else array

    def __setitem__(self, at, x):
        super().__setitem__(
            at, scalar(x) if np.ndim(x) == 0 else x
        )  # NumPy would put the 0-d array itself there

    def __add__(self, other):
        return Complex.of(self) + other if isinstance(other, (complex, Complex)) else super().__add__(other)

    def __mul__(self, other):
        return Complex.of(self) * other if isinstance(other, complex) else super().__mul__(other)

    def __rmul__(self, other):
        return Complex.of(self) * other if isinstance(other, complex) else super().__rmul__(other)


class Complex:
    """A complex array: real and imaginary parts side by side, as in memory."""

    def __init__(self, real, imag):
        real, imag = np.broadcast_arrays(np.asarray(real, object), np.asarray(imag, object))
        self.both = np.stack([real, imag], axis=-1).view(Objects)

    @classmethod
    def of(cls, x):
        return (
            x
            if isinstance(x, Complex)
            else cls(x.real, x.imag)
            if isinstance(x, complex)
            else cls(x, np.zeros(np.shape(x)))
        )

    @property
    def real(self):
        return self.both[..., 0]

    @real.setter
    def real(self, x):
        self.both[..., 0] = x

    @property
    def imag(self):
        return self.both[..., 1]

    @imag.setter
    def imag(self, x):
        self.both[..., 1] = x

    def __getitem__(self, at):
        new = Complex.__new__(Complex)
        new.both = self.both[at]
        return new

    def conj(self):
        return Complex(self.real, -self.imag)

    def __add__(self, other):
        other = Complex.of(other)
        return Complex(self.real + other.real, self.imag + other.imag)

    def __mul__(self, other):
        other = Complex.of(other)
        return Complex(
            self.real * other.real - self.imag * other.imag, self.real * other.imag + self.imag * other.real
        )

    def __imul__(self, other):
        self.both[...] = (self * other).both
        return self


class Library:
    """Stands for NumPy in the program: new arrays hold jets, and so do results that would be subclasses no
    more."""

    sin, exp, tanh, sqrt = [np.frompyfunc(f, 1, 1) for f in (sin, exp, tanh, sqrt)]

    def __getattr__(self, name):
        f = getattr(np, name)
        if isinstance(f, np.ufunc):
            return f
        settings = (
            {"dtype": object}
            if name in ("zeros", "ones", "full", "empty")
            else {"subok": True}
            if name == "broadcast_to"
            else {}
        )
        return lambda *args, **kwargs: ours(f(*args, **settings, **kwargs))


def ours(x):
    if isinstance(x, (list, tuple)):
        return [ours(a) for a in x]
    return x.view(Objects) if isinstance(x, np.ndarray) and x.dtype == object else x
