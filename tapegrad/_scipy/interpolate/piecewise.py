"""Piecewise polynomials and splines in the forms of scipy.interpolate: PPoly, BPoly, BSpline, and what is
made of them.

An object of ours stands for one of SciPy's: over the same arrays where the function captured it, else made of
tracked values.  A point is found in the breakpoints by its value; within a piece all is arithmetic, in the
data, the breakpoints and the point."""

import functools
import math
from typing import Any

import numpy as plain_np
import scipy.interpolate as itp

from ... import numpy as np
from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..._core.registry import load
from ...ops.creation import as_variable
from ...ops.declare import ndim, shape
from ..linear_maps import AxisMap, mapped
from ..namespaces import (
    Carrier,
    CarrierType,
    SciPyNamespace,
    as_float_array,
    bare,
    constant_like,
    holds_tracked,
    on_a_device,
    plain_argument,
    refusal_text,
)

INTERPOLATE = SciPyNamespace(itp, "cupyx.scipy.interpolate")


def dtype_like(*xs: Any) -> Any:
    return next((x for x in xs if holds_tracked(x)), next((x for x in xs if on_a_device((x,))), None))


def by_equations(*xs: Any) -> bool:
    """Are coefficients solved for by operations of ours: of what is tracked, or lies on a device, where SciPy
    does not run?"""
    return holds_tracked(*xs) or on_a_device(xs)


class Interpolant(Carrier):
    """What all have.  `names`: the attributes that make the object, in the order in which SciPy's class takes
    them."""

    names: tuple
    _theirs: Any

    def _tracked(self) -> bool:
        return holds_tracked(*[getattr(self, n) for n in self.names])

    def _plain(self) -> Any:
        raise NotImplementedError

    def _answers(self, *xs: Any) -> bool:
        """Does SciPy's own object answer, since nothing is tracked and all lies on the host?"""
        return not holds_tracked(xs) and not self._tracked() and not on_a_device((xs, vars(self)))

    def _real(self, theirs: Any = None) -> Any:
        """The class of SciPy's, or of CuPy's of that name, for an object over these arrays."""
        theirs = theirs or type(self)._theirs
        return (
            getattr(load("cupyx.scipy.interpolate"), theirs.__name__)
            if on_a_device((vars(self),))
            else theirs
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._tracked():
            getattr(type(self)._theirs, name)
            raise refusal_text(
                f"scipy.interpolate.{type(self)._theirs.__name__}.{name}",
                "the spline is tracked",
                "the spline by calling it",
            )
        return getattr(self._plain(), name)

    def __repr__(self) -> str:
        return f"<tapegrad's {type(self)._theirs.__name__}>"


def piece_numbers(points: Any, x: Any, first: int, last: int) -> Any:
    """The number i, from first to last, of the piece of the breakpoints in which each x lies, points[i] <= x
    < points[i + 1]."""
    inner = primal_of(points[first + 1 : last + 1])
    return np.searchsorted(inner, primal_of(x), side="right") + first


def c_contiguous(x: Any) -> Any:
    x = plain_argument(x)
    return xp_of(x).ascontiguousarray(x)


def arranged(y: Any, n: int, axis: int) -> Any:
    """The axes of the points, which stand first, where the axis of the interpolation was."""
    if not axis:
        return y
    order = list(range(ndim(y)))
    return np.transpose(y, order[n : n + axis] + order[:n] + order[n + axis :])


def trailing(v: Any, n: int) -> Any:
    return np.reshape(v, shape(v) + (1,) * n) if n else v


def periodic(x: Any, a: Any, b: Any) -> Any:
    return x - primal_of(np.floor((x - a) / (b - a))) * (b - a)


class PPoly(Interpolant, metaclass=CarrierType):
    """sum_k c[k, i] (x - x[i])^(K - k) for x[i] <= x < x[i + 1]."""

    _theirs = itp.PPoly
    names = ("c", "x")

    def __init__(self, c, x, extrapolate=None, axis=0):
        like = dtype_like(c, x)
        c, x = as_float_array(c, like), as_float_array(x, like)
        axis = axis % (ndim(c) - 1) if axis < 0 else axis
        self.axis, self.extrapolate = axis, True if extrapolate is None else extrapolate
        if axis:
            c = np.moveaxis(np.moveaxis(c, axis + 1, 0), axis + 1, 0)
        if ndim(x) != 1 or shape(x)[0] != shape(c)[1] + 1:
            raise ValueError(
                "scipy.interpolate: number of coefficients and of breakpoints do not fit together"
            )
        self.c, self.x = c, x

    @classmethod
    def construct_fast(cls, c, x, extrapolate=None, axis=0):
        new = object.__new__(cls)
        new.c, new.x, new.extrapolate, new.axis = c, x, True if extrapolate is None else extrapolate, axis
        return new

    @classmethod
    def _of(cls, x: Any, shadow: Any) -> Any:
        return PPoly.construct_fast(shadow(x.c), shadow(x.x), x.extrapolate, x.axis)

    @classmethod
    def from_spline(cls, tck, extrapolate=None):
        t, c, k = (tck.t, tck.c, tck.k) if isinstance(tck, BSpline) else tck
        spline = tck if type(tck) is BSpline else BSpline(t, c[: len(t) - k - 1], k)
        if extrapolate is None:
            extrapolate = spline.extrapolate
        points = spline.t[:-1]
        c = np.stack([spline(points, nu, True) / math.factorial(nu) for nu in range(k, -1, -1)])
        return PPoly.construct_fast(c, spline.t, extrapolate)

    def _plain(self) -> Any:
        return self._real().construct_fast(
            c_contiguous(self.c), c_contiguous(self.x), self.extrapolate, self.axis
        )

    def _located(self, x: Any, extrapolate: Any) -> tuple:
        """(x flat, its pieces, what lies outside)."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        m = shape(self.x)[0] - 1
        if extrapolate == "periodic":
            x, extrapolate = periodic(x, self.x[0], self.x[m]), True
        at = piece_numbers(self.x, x, 0, m - 1)
        return x, at, None if extrapolate else (x < self.x[0]) | (x > self.x[m])

    def __call__(self, x, nu=0, extrapolate=None):
        if self._answers(x):
            return as_variable(self._plain()(plain_argument(x), nu, extrapolate))
        x = as_float_array(x, dtype_like(x, self.c, self.x))
        if nu < 0:
            return self.antiderivative(-nu)(x, 0, extrapolate)
        to = shape(x)
        x, at, outside = self._located(np.reshape(x, -1), extrapolate)
        s = x - np.take(self.x, at)
        y = self._valued(s, at, nu)
        if outside is not None:
            y = np.where(trailing(outside, ndim(y) - 1), plain_np.nan, y)
        return arranged(np.reshape(y, to + shape(self.c)[2:]), len(to), self.axis)

    def _valued(self, s: Any, at: Any, nu: int) -> Any:
        degree = shape(self.c)[0] - 1
        c = np.take(self.c, at, 1)
        s, y = trailing(s, ndim(c) - 2), None
        for k in range(degree + 1 - nu):
            term = c[k] * float(math.perm(degree - k, nu))
            y = term if y is None else y * s + term
        return 0.0 * c[0] if y is None else y + 0.0 * s

    def derivative(self, nu=1):
        if nu < 0:
            return self.antiderivative(-nu)
        degree = shape(self.c)[0] - 1
        kept = max(degree + 1 - nu, 0)
        factors = (
            constant_like([float(math.perm(degree - k, nu)) for k in range(kept)], self.c) if kept else None
        )
        c = self.c[:kept] * trailing(factors, ndim(self.c) - 1) if kept else 0.0 * self.c[:1]
        return PPoly.construct_fast(c, self.x, self.extrapolate, self.axis)

    def antiderivative(self, nu=1):
        if nu <= 0:
            return self.derivative(-nu)
        c, x, n = self.c, self.x, ndim(self.c)
        for _ in range(nu):
            degree = shape(c)[0] - 1
            high = c / trailing(constant_like(plain_np.arange(degree + 1.0, 0, -1), c), n - 1)
            h = trailing(x[1:] - x[:-1], n - 2)
            whole = sum([high[k] * h ** (degree + 1 - k) for k in range(degree + 1)])
            start = np.concatenate([0.0 * whole[:1], np.cumsum(whole, 0)[:-1]], 0)
            c = np.concatenate([high, start[None]], 0)
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        return PPoly.construct_fast(c, x, extrapolate, self.axis)

    def integrate(self, a, b, extrapolate=None):
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        F = PPoly.construct_fast(self.c, self.x, True, 0).antiderivative()
        if extrapolate != "periodic":
            ends = [F(v, 0, bool(extrapolate)) for v in (a, b)]
            return ends[1] - ends[0]
        low, high = self.x[0], self.x[shape(self.x)[0] - 1]
        whole = F(high) - F(low)
        turns = [primal_of(np.floor((v - low) / (high - low))) for v in (a, b)]
        ends = [F(v - n * (high - low)) + n * whole for v, n in zip((a, b), turns, strict=True)]
        return ends[1] - ends[0]

    def solve(self, y=0.0, discontinuity=True, extrapolate=None):
        """The roots that SciPy finds, made better by Newton's steps, which have the derivative of the
        root."""
        real = self._real(itp.PPoly)(bare(self.c), bare(self.x), self.extrapolate, self.axis)
        found = real.solve(bare(y), discontinuity, extrapolate)
        if ndim(self.c) > 2:
            raise refusal_text(
                "scipy.interpolate.PPoly.solve",
                "the spline has several components",
                "take the roots of one of them at a time",
            )
        slope = self.derivative()
        for _ in range(3):
            found = found - (self(found) - y) / slope(found)
        return found

    def roots(self, discontinuity=True, extrapolate=None):
        return self.solve(0.0, discontinuity, extrapolate)


class BPoly(Interpolant, metaclass=CarrierType):
    """sum_k c[k, i] binom(K, k) s^k (1 - s)^(K - k), s = (x - x[i]) / (x[i + 1] - x[i])."""

    _theirs = itp.BPoly
    names = ("c", "x")
    __init__, construct_fast, _located = PPoly.__init__, PPoly.__dict__["construct_fast"], PPoly._located

    @classmethod
    def _of(cls, x: Any, shadow: Any) -> Any:
        return cls.construct_fast(shadow(x.c), shadow(x.x), x.extrapolate, x.axis)

    def _plain(self) -> Any:
        return self._real().construct_fast(
            plain_argument(self.c), plain_argument(self.x), self.extrapolate, self.axis
        )

    def __call__(self, x, nu=0, extrapolate=None):
        if self._answers(x):
            return as_variable(self._plain()(plain_argument(x), nu, extrapolate))
        if nu:
            return self.derivative(nu)(x, 0, extrapolate)
        x = as_float_array(x, dtype_like(x, self.c, self.x))
        to = shape(x)
        x, at, outside = self._located(np.reshape(x, -1), extrapolate)
        c, degree = np.take(self.c, at, 1), shape(self.c)[0] - 1
        s = trailing((x - np.take(self.x, at)) / (np.take(self.x, at + 1) - np.take(self.x, at)), ndim(c) - 2)
        y = sum([c[k] * math.comb(degree, k) * s**k * (1 - s) ** (degree - k) for k in range(degree + 1)])
        if outside is not None:
            y = np.where(trailing(outside, ndim(y) - 1), plain_np.nan, y)
        return arranged(np.reshape(y, to + shape(self.c)[2:]), len(to), self.axis)

    def derivative(self, nu=1):
        c, x = self.c, self.x
        h = trailing(x[1:] - x[:-1], ndim(c) - 2)
        for _ in range(nu):
            degree = shape(c)[0] - 1
            c = degree * (c[1:] - c[:-1]) / h if degree else 0.0 * c
        return BPoly.construct_fast(c, x, self.extrapolate, self.axis)


# --- B-splines ---


def bspline_basis(t: Any, x: Any, at: Any, k: int) -> list:
    """The k + 1 B-splines of degree k on the knots t that are not zero in the pieces `at`, at x."""
    w = [1.0 + 0.0 * x]
    for d in range(1, k + 1):
        new = [0.0] * (d + 1)
        for j in range(d):
            low, high = np.take(t, at + (j + 1 - d)), np.take(t, at + (j + 1))
            width = high - low
            share = w[j] / np.where(primal_of(width) == 0, 1.0, width)
            new[j] = new[j] + (high - x) * share
            new[j + 1] = new[j + 1] + (x - low) * share
        w = new
    return w


class BSpline(Interpolant, metaclass=CarrierType):
    _theirs = itp.BSpline
    names = ("t", "c")

    def __init__(self, t, c, k, extrapolate=True, axis=0):
        like = dtype_like(t, c)
        t, c = as_float_array(t, like), as_float_array(c, like)
        self.k, self.extrapolate = int(k), extrapolate
        self.axis = axis = axis % ndim(c) if axis < 0 else axis
        n = shape(t)[0] - self.k - 1
        if axis:
            c = np.moveaxis(c, axis, 0)
        if n < self.k + 1 or shape(c)[0] < n:
            raise ValueError(
                f"scipy.interpolate.BSpline: {shape(t)[0]} knots and {shape(c)[0]} coefficients do not fit "
                f"degree {k}"
            )
        self.t, self.c = t, c

    @classmethod
    def construct_fast(cls, t, c, k, extrapolate=True, axis=0):
        new = object.__new__(cls)
        new.t, new.c, new.k, new.extrapolate, new.axis = t, c, k, extrapolate, axis
        return new

    @classmethod
    def _of(cls, x: Any, shadow: Any) -> Any:
        return BSpline.construct_fast(shadow(x.t), shadow(x.c), x.k, x.extrapolate, x.axis)

    @classmethod
    def basis_element(cls, t, extrapolate=True):
        t = as_float_array(t, dtype_like(t))
        k = shape(t)[0] - 2
        t = np.concatenate([*[t[:1] - 1] * k, t, *[t[-1:] + 1] * k])
        c = constant_like(plain_np.eye(1, shape(t)[0], k)[0], t)
        return BSpline.construct_fast(t, c, k, extrapolate)

    def _plain(self) -> Any:
        return self._real().construct_fast(
            plain_argument(self.t), c_contiguous(self.c), self.k, self.extrapolate, self.axis
        )

    @property
    def tck(self):
        return self.t, self.c, self.k

    def __call__(self, x, nu=0, extrapolate=None):
        if self._answers(x):
            return as_variable(self._plain()(plain_argument(x), nu, extrapolate))
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        x = as_float_array(x, dtype_like(x, self.t, self.c))
        if nu:
            return self.derivative(nu)(x, 0, extrapolate)
        to, n, k = shape(x), shape(self.t)[0] - self.k - 1, self.k
        x = np.reshape(x, -1)
        if extrapolate == "periodic":
            x, extrapolate = periodic(x, self.t[k], self.t[n]), True
        at = piece_numbers(self.t, x, k, n - 1)
        y = 0.0
        for j, w in enumerate(bspline_basis(self.t, x, at, k)):
            y = y + trailing(w, ndim(self.c) - 1) * np.take(self.c, at + (j - k), 0)
        if not extrapolate:
            outside = (x < self.t[k]) | (x > self.t[n])
            y = np.where(trailing(outside, ndim(y) - 1), plain_np.nan, y)
        return arranged(np.reshape(y, to + shape(self.c)[1:]), len(to), self.axis)

    def derivative(self, nu=1):
        t, c, k = self.t, self.c, self.k
        for _ in range(nu):
            if k == 0:
                return BSpline.construct_fast(t, 0.0 * c, 0, self.extrapolate, self.axis)
            n = shape(t)[0] - k - 1
            width = t[k + 1 : n + k] - t[1:n]
            c = (c[1:n] - c[: n - 1]) * trailing(k / np.where(primal_of(width) == 0, 1.0, width), ndim(c) - 1)
            t, k = t[1:-1], k - 1
        return BSpline.construct_fast(t, c, k, self.extrapolate, self.axis)

    def antiderivative(self, nu=1):
        t, c, k = self.t, self.c, self.k
        for _ in range(nu):
            n = shape(t)[0] - k - 1
            width = trailing((t[k + 1 :] - t[:n]) / (k + 1), ndim(c) - 1)
            total = np.cumsum(c[:n] * width, 0)
            c = np.concatenate([0.0 * total[:1], total], 0)
            t, k = np.concatenate([t[:1], t, t[-1:]]), k + 1
        return BSpline.construct_fast(
            t, c, k, False if self.extrapolate == "periodic" else self.extrapolate, self.axis
        )

    def integrate(self, a, b, extrapolate=None):
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            return PPoly.from_spline(BSpline.construct_fast(self.t, self.c, self.k, "periodic")).integrate(
                a, b
            )
        n = shape(self.t)[0] - self.k - 1
        if not extrapolate:
            a, b = [np.clip(v, self.t[self.k], self.t[n]) for v in (a, b)]
        F = BSpline.construct_fast(self.t, self.c, self.k, True).antiderivative()
        return F(b) - F(a)


# --- coefficients: linear in the data for nodes that stay ---


@functools.lru_cache(64)
def of_nodes(kind: str, x: bytes, n: int, settings: Any) -> AxisMap:
    x = plain_np.frombuffer(x)
    return AxisMap(KINDS[kind](x, *settings), n)


def fit_interpolant(kind: str, x: Any, y: Any, settings: tuple = ()) -> Any:
    """`KINDS[kind]` at the nodes x, plain, of the data y along the first axis."""
    x = bare(x)
    if xp_of(x) is not plain_np:
        raise refusal_text(
            "scipy.interpolate",
            "nodes lie on a device, and CuPy has no such spline",
            "make_interp_spline or make_lsq_spline",
        )
    x = plain_np.ascontiguousarray(x, float)
    found = mapped(
        np.moveaxis(y, 0, -1) if ndim(y) > 1 else y, map=of_nodes(kind, x.tobytes(), shape(y)[0], settings)
    )
    return np.moveaxis(found, -1, 0) if ndim(y) > 1 else found


def by_rows(f: Any) -> Any:
    """f of one row, of each."""
    return lambda y: plain_np.array([f(row) for row in y.reshape(-1, y.shape[-1])]).reshape(*y.shape[:-1], -1)


def closed(y: Any) -> Any:
    """The last datum is the first."""
    return plain_np.concatenate([y[..., :-1], y[..., :1]], -1)


KINDS = {
    "slopes": lambda x, bc: lambda y: itp.CubicSpline(x, closed(y) if bc == "periodic" else y, -1, bc)(x, 1),
    "coefficients": lambda x, k, bc: lambda y: itp.make_interp_spline(x, plain_np.moveaxis(y, -1, 0), k, None,
    bc).c.T.reshape(
        *y.shape[:-1], -1
    ) if y.ndim < 3 else by_rows(lambda row: itp.make_interp_spline(x, row, k, None, bc).c)(y),
    "knotted": lambda x, k, t: by_rows(lambda row: itp.make_interp_spline(x, row, k, plain_np.array(t)).c),
    "least squares": lambda x, k, t, w: by_rows(
        lambda row: itp.make_lsq_spline(x, row, plain_np.array(t), k,
        None if w is None else plain_np.array(w)).c
    ),
    "smoothed": lambda x, w, lam: by_rows(lambda row: itp.make_smoothing_spline(x, row,
    None if w is None else plain_np.array(w), lam).c),
    "fitpack": lambda x, k, w: by_rows(lambda row: itp.splrep(x, row,
    None if w is None else plain_np.array(w), k=k, s=0)[1]),
}  # fmt: skip


for _ours in (PPoly, BPoly, BSpline):
    INTERPOLATE.rule(_ours._theirs)(_ours)
