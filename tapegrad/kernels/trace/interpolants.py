"""Interpolants and polynomials of SciPy and NumPy that a kernel function captures.

A bisection finds the piece in which a point lies. There the value is a sum of powers, by Horner's rule, or of
B-splines, by de Boor's. Breakpoints and coefficients are constants of the kernel, or its parameters."""

import math
from typing import Any

import numpy as np
import scipy.interpolate as itp

from ..._core.errors import KernelError
from ..._core.variable import Variable
from .composite_functions import searchsorted, symbolic_interp
from .symbolic import Sym, lift, symbolic_where


class FunctionOfOneNumber:
    """The stand-in for an object of a library that is called with a number, or with a vector of them."""

    def __init__(self, theirs: Any, read: Any):
        """`read` returns what stands for an array, or an object, that `theirs` holds (a `Rebuilder`)."""
        self._theirs, self._read = theirs, read

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._theirs, name)
        if not callable(value):
            return self._read(value)
        if not is_plain(self._theirs):
            raise KernelError(
                f"{type(self._theirs).__name__}.{name} in a kernel: call it outside, and capture the result"
            )
        return lambda *args, **kwargs: self._read(value(*args, **kwargs))

    def __call__(self, t, *args, **kwargs):
        if not isinstance(t, Sym):
            if is_plain(self._theirs):
                return self._theirs(t, *args, **kwargs)
            t = lift(self._read.g, t)
        if t.ndim and getattr(self._theirs, "axis", 0):
            raise KernelError(
                f"{type(self._theirs).__name__} along axis {self._theirs.axis} in a kernel takes one number"
            )
        found = [self._at(v, *args, **kwargs) for v in t.reshape(-1)]
        return lift(t.g, found).reshape((*t.shape, *found[0].shape)) if t.ndim else found[0]

    def _held(self, *xs) -> list[Sym]:
        """Return arrays that the object holds as symbols."""
        return [lift(self._read.g, self._read(x)) for x in xs]

    def _at(self, t: Sym) -> Sym:
        raise NotImplementedError


def is_plain(x: Any) -> bool:
    """Does this object, with those that it holds, hold no Variables?"""
    if isinstance(x, (tuple, list)):
        return all(map(is_plain, x))
    held = vars(x).values() if type(x) in STAND_INS else ()
    return not isinstance(x, Variable) and all(map(is_plain, held))


def brought_inside(f: Any, extrapolate, t: Sym, first: Sym, last: Sym, way: Any = 1.0) -> tuple:
    """Return the point at which to evaluate f, and the condition that it must meet, or None.

    `extrapolate`: None for the setting of f. `way`: -1 where the breakpoints descend."""
    extrapolate = f.extrapolate if extrapolate is None else extrapolate
    if extrapolate == "periodic":
        return first + (t - first) % (last - first), None
    return t, None if extrapolate else (way * (t - first) >= 0.0) & (way * (t - last) <= 0.0)


class PolynomialPieces(FunctionOfOneNumber):
    """A PPoly: the sum of c[k, i] (t - x[i])^(K - k) in the piece i. Its breakpoints ascend or descend."""

    def _at(self, t: Sym, nu: int = 0, extrapolate=None) -> Sym:
        x, c = self._held(self._theirs.x, self._theirs.c)
        way = symbolic_where(x[0] > x[-1], -1.0, 1.0)
        t, inside = brought_inside(self._theirs, extrapolate, t, x[0], x[-1], way)
        at = searchsorted(way * x[1:-1], way * t, "right")
        s, degree = t - x[at], len(c) - 1
        out = lift(t.g, np.zeros(c.shape[2:]))
        for k in range(degree + 1 - nu):
            out = out * s + c[k][at] * float(math.perm(degree - k, nu))
        return out if inside is None else symbolic_where(inside, out, np.nan)


class BasisSpline(FunctionOfOneNumber):
    """A BSpline."""

    def _at(self, t: Sym, nu: int = 0, extrapolate=None) -> Sym:
        k, (knots, c) = self._theirs.k, self._held(self._theirs.t, self._theirs.c)
        t, inside = brought_inside(self._theirs, extrapolate, t, knots[k], knots[len(knots) - k - 1])
        out = spline_value(knots, c, k, t, nu)
        return out if inside is None else symbolic_where(inside, out, np.nan)


def spline_value(knots: Sym, c: Sym, k: int, t: Sym, nu: int = 0) -> Sym:
    """Return the derivative of order nu of a spline at t.

    C. de Boor, A Practical Guide to Splines, 1978, chapter X."""
    n = len(knots) - k - 1
    piece = searchsorted(knots[k + 1 : n], t, "right") + k
    near = [knots[piece + (j + 1 - k)] for j in range(2 * k)]
    d = [c[piece + (j - k)] for j in range(k + 1)]
    for r in range(1, k + 1):
        for j in range(k, r - 1, -1):
            low, high = near[j - 1], near[j + k - r]
            if r <= nu:
                d[j] = (d[j] - d[j - 1]) * (float(k + 1 - r) / (high - low))
            else:
                share = (t - low) / (high - low)
                d[j] = d[j - 1] + share * (d[j] - d[j - 1])
    return d[k] if nu <= k else 0.0 * d[k]


class FittedSpline(FunctionOfOneNumber):
    """A UnivariateSpline. Its setting `ext` tells what holds outside of the interval."""

    def _at(self, t: Sym, nu: int = 0, ext=None) -> Sym:
        given, c, k = self._theirs._eval_args
        knots, c = self._held(given, c)
        n = len(knots) - k - 1
        ext = self._theirs.ext if ext is None else ext
        first, last = knots[k], knots[n]
        if ext in (3, "const") and not nu:
            t = symbolic_where(t < first, first, symbolic_where(t > last, last, t))
        elif ext not in (0, "extrapolate", 1, "zeros"):
            raise KernelError(f"{type(self._theirs).__name__} with ext={ext!r} in a kernel: use ext=0")
        out = spline_value(knots, c[:n], k, t, nu)
        return symbolic_where((t >= first) & (t <= last), out, 0.0) if ext in (1, "zeros") else out


class Interpolation(FunctionOfOneNumber):
    """An interp1d of numbers, linear or by a spline."""

    def _at(self, t: Sym) -> Sym:
        f = self._theirs
        x, y = self._held(f.x, f.y)
        if y.ndim > 1:
            raise KernelError("interp1d of arrays in a kernel: use make_interp_spline(x, y, k=1)")
        if f._kind == "spline":
            out = self._read(f._spline)(t).reshape(())
        elif f._kind == "linear":
            out = symbolic_interp(t, x, y)
        else:
            raise KernelError(f"interp1d of kind {f._kind!r} has no translation into a kernel")
        outside = [t < x[0], t > x[-1]]
        if not f._extrapolate:
            values = [v.reshape(-1)[0] for v in self._held(f._fill_value_below, f._fill_value_above)]
        elif f._kind == "linear":
            ends = (0, 1), (-2, -1)
            values = [y[i] + (t - x[i]) * ((y[k] - y[i]) / (x[k] - x[i])) for i, k in ends]
        else:
            return out
        return symbolic_where(outside[0], values[0], symbolic_where(outside[1], values[1], out))


class Powers(FunctionOfOneNumber):
    """A Polynomial, or a poly1d."""

    def _at(self, t: Sym) -> Sym:
        f, s = self._theirs, t
        c = getattr(f, "coeffs", None)  # of a poly1d
        if c is None:
            usual = np.array([-1.0, 1.0])
            c, *maps = self._held(f.coef, *[vars(f).get(name, usual) for name in ("domain", "window")])
            (a, b), (first, last) = maps
            c, s = c[::-1], (b * first - a * last) / (b - a) + (last - first) / (b - a) * t
        else:
            (c,) = self._held(c)
        out = c[0] + 0.0 * s
        for v in c[1:]:
            out = out * s + v
        return out


STAND_INS: dict[type, type] = {
    **dict.fromkeys(
        (itp.PPoly, itp.CubicHermiteSpline, itp.PchipInterpolator, itp.Akima1DInterpolator, itp.CubicSpline),
        PolynomialPieces,
    ),
    **dict.fromkeys(
        (itp.UnivariateSpline, itp.InterpolatedUnivariateSpline, itp.LSQUnivariateSpline), FittedSpline
    ),
    itp.BSpline: BasisSpline,
    itp.interp1d: Interpolation,
    np.polynomial.Polynomial: Powers,
    np.poly1d: Powers,
}
