"""Piecewise polynomials and splines in the forms of scipy.interpolate: PPoly, BPoly, BSpline, and what is
made of them.

An object of ours stands for one of SciPy's: over the same arrays where the function captured it, else made of
tracked values.  A point is found in the breakpoints by its value; within a piece all is arithmetic, in the
data, the breakpoints and the point."""

import functools
import math
import operator
from typing import Any

import numpy as plain_np
import scipy.interpolate as itp
import scipy.linalg
from scipy.interpolate import _dierckx as dierckx
from scipy.interpolate import _interpnd as interpnd
from scipy.interpolate import _ppoly as ppoly

from ... import numpy as np
from ... import scipy as faces
from ..._core.arrays import xp_of
from ..._core.primitive import primal_of, seen
from ..._core.registry import load
from ...ops.declare import dtype, ndim, shape
from ..followed import FollowedObject, Follower, FunctionOverlay
from ..linear_maps import AxisMap, mapped, rows_of
from ..namespaces import (
    Carrier,
    SciPyNamespace,
    as_float_array,
    bare,
    constant_like,
    holds_tracked,
    kind_of,
    lost_imaginary_part,
    on_a_device,
    plain_argument,
    refusal_text,
)
from ..spatial import KDTree
from .pencils import pencil_eigenvalues

INTERPOLATE = SciPyNamespace(itp, "cupyx.scipy.interpolate")
FOLLOWED = Follower(
    "scipy.interpolate",
    "numpy.lib",
    KDTree=KDTree,
    scipy=FunctionOverlay(faces, linalg=FunctionOverlay(faces.linalg, eigvals=pencil_eigenvalues)),
    unique=lambda x: x if seen(x) is None else plain_np.unique(seen(x)),  # (BSpline counts its knots)
)


def dtype_like(*xs):
    return next((x for x in xs if holds_tracked(x)), next((x for x in xs if on_a_device((x,))), None))


def by_equations(*xs) -> bool:
    """Are coefficients solved for by operations of ours: of what is tracked, or lies on a device, where SciPy
    does not run?"""
    return holds_tracked(*xs) or on_a_device(xs)


class Interpolant(Carrier):
    """What all have.  `names`: the attributes that make the object, in the order in which SciPy's class takes
    them."""

    names: tuple
    _theirs: Any

    def __init_subclass__(cls) -> None:
        """Its call takes real points."""
        own = vars(cls).get("__call__")
        if own is None:
            return

        @functools.wraps(own)
        def call(self, *args, **kwargs):
            if "c" in map(kind_of, (*args, *kwargs.values())):
                raise lost_imaginary_part(type(self)._theirs.__name__)
            return own(self, *args, **kwargs)

        cls.__call__ = call  # type: ignore[method-assign]

    def _tracked(self) -> bool:
        return holds_tracked(*[getattr(self, n) for n in self.names])

    def _plain(self):
        raise NotImplementedError

    def _answers(self, *xs) -> bool:
        """Does SciPy's own object answer, since nothing is tracked and all lies on the host?"""
        return not holds_tracked(xs) and not self._tracked() and not on_a_device((xs, vars(self)))

    def _real(self, theirs=None):
        """The class of SciPy's, or of CuPy's of that name, for an object over these arrays."""
        theirs = theirs or type(self)._theirs
        return (
            getattr(load("cupyx.scipy.interpolate"), theirs.__name__)
            if on_a_device((vars(self),))
            else theirs
        )

    def __getattr__(self, name: str):
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


class ConstructedObject(FollowedObject):
    """An object that SciPy's `construct_fast` makes of its parts.  CuPy's class has the same constructor."""

    _parts: tuple[str, ...]

    def _plain(self):
        parts = plain_argument([getattr(self, name) for name in self._parts])
        theirs = type(self)._theirs
        if on_a_device(parts):
            theirs = getattr(load("cupyx.scipy.interpolate"), theirs.__name__)
        return theirs.construct_fast(*parts)

    @classmethod
    def _of(cls, x, shadow):
        return cls._made(*[shadow(getattr(x, name)) for name in cls._parts])

    @classmethod
    def _made(cls, *parts):
        there = on_a_device(parts) and cls.__dict__.get("_on_device")
        kind: Any = there() if there else cls
        return kind.construct_fast(*parts)


def follow_class(theirs: type):
    """Declare the followed class as the rule.  The library makes what is plain."""
    ours = INTERPOLATE.rule(theirs)(FOLLOWED.klass(theirs))
    ours._plain_by_library = True
    return ours


def piece_numbers(points, x, first: int, last: int):
    """The number i, from first to last, of the piece of the breakpoints in which each x lies, points[i] <= x
    < points[i + 1]."""
    inner = primal_of(points[first + 1 : last + 1])
    return np.searchsorted(inner, primal_of(x), side="right") + first


def arranged(y, n: int, axis: int):
    """The axes of the points, which stand first, where the axis of the interpolation was."""
    if not axis:
        return y
    order = list(range(ndim(y)))
    return np.transpose(y, order[n : n + axis] + order[:n] + order[n + axis :])


def trailing(v, n: int):
    return np.reshape(v, shape(v) + (1,) * n) if n else v


# --- piecewise polynomials: SciPy's classes are followed; these are the rules of what they call ---


def in_pieces(x, p) -> tuple:
    """(The number of the piece in which each point lies, is it outside of all?)  Breakpoints may descend."""
    x, p, n = primal_of(x), primal_of(p), shape(x)[0]
    first, last = x[0], x[n - 1]
    if first <= last:
        return np.searchsorted(x[1 : n - 1], p, side="right"), (p < first) | (p > last)
    return n - 2 - np.searchsorted(x[n - 2 : 0 : -1], p), (p > first) | (p < last)


def power_sum(c, s, nu: int):
    """The derivative of order nu of sum_k c[k] s^(K - k)."""
    degree = shape(c)[0] - 1
    terms = [c[k] * float(math.perm(degree - k, nu)) for k in range(degree + 1 - nu)]
    y = terms[0] if terms else 0.0 * c[0]
    for term in terms[1:]:
        y = y * s + term
    return y if len(terms) > 1 else y + 0.0 * s


def bernstein_sum(c, s):
    degree = shape(c)[0] - 1
    return sum([c[k] * math.comb(degree, k) * s**k * (1 - s) ** (degree - k) for k in range(degree + 1)])


def fill_points(out, y, outside, extrapolate: bool) -> None:
    out[...] = y if extrapolate else np.where(outside[:, None], plain_np.nan, y)


def evaluate(c, x, p, nu: int, extrapolate: bool, out) -> None:
    if nu < 0:
        raise ValueError("Order of derivative cannot be negative")
    at, outside = in_pieces(x, p)
    fill_points(out, power_sum(np.take(c, at, 1), (p - np.take(x, at))[:, None], nu), outside, extrapolate)


def evaluate_bernstein(c, x, p, nu: int, extrapolate: bool, out) -> None:
    h = (x[1:] - x[:-1])[:, None]
    for _ in range(nu):
        degree = shape(c)[0] - 1
        c = degree * (c[1:] - c[:-1]) / h if degree else 0.0 * c
    at, outside = in_pieces(x, p)
    s = (p - np.take(x, at))[:, None] / np.take(h, at, 0)
    fill_points(out, bernstein_sum(np.take(c, at, 1), s), outside, extrapolate)


def point_coordinates(points, ndim: int | None = None, like=None):
    """Points, the coordinates along the last axis, of an array or a tuple of coordinates."""
    like = dtype_like(points) if like is None else like
    if isinstance(points, tuple):
        points = points[0] if len(points) == 1 else points
    if isinstance(points, tuple):
        return np.stack(np.broadcast_arrays(*[as_float_array(v, like) for v in points]), -1)
    points = as_float_array(points, like)
    return points if len(shape(points)) > 1 else np.reshape(points, (-1, ndim or 1))


def evaluate_nd(c, xs: tuple, degrees, p, nu, extrapolate: bool, out) -> None:
    """A polynomial in each box of a grid: sum of c[k..., i...] prod (p - x_i)^(K - k)."""
    found = [in_pieces(x, p[:, i]) for i, x in enumerate(xs)]
    steps = [
        (p[:, i] - np.take(x, at))[:, None] for i, (x, (at, _)) in enumerate(zip(xs, found, strict=True))
    ]
    c = np.reshape(c, (*[int(k) for k in degrees], *[shape(x)[0] - 1 for x in xs], -1))
    c = c[(slice(None),) * len(xs) + tuple([at for at, _ in found])]
    for s, m in zip(steps, nu, strict=True):
        c = power_sum(c, s, int(m))
    fill_points(out, c, functools.reduce(operator.or_, [outside for _, outside in found]), extrapolate)


def fix_continuity(c, x, order: int) -> None:
    """The derivatives up to this order at the start of each piece become those at the end of the piece
    before."""
    h, n = (x[1:-1] - x[:-2])[:, None], shape(c)[0]
    for d in range(min(order, n - 1), -1, -1):
        ends = sum([math.comb(m, d) * c[n - 1 - m, :-1] * h ** (m - d) for m in range(d + 1, n)])
        c[n - 1 - d, 1:] = c[n - 1 - d, :1] + np.cumsum(ends, 0)


def integrate(c, x, a, b, extrapolate: bool, out) -> None:
    n = shape(c)[0]
    whole = np.concatenate([c / constant_like(plain_np.arange(n, 0.0, -1)[:, None, None], c), 0.0 * c[:1]], 0)
    fix_continuity(whole, x, 0)
    ends = np.stack([a, b])
    at, outside = in_pieces(x, ends)
    y = power_sum(np.take(whole, at, 1), (ends - np.take(x, at))[:, None], 0)
    out[...] = y[1] - y[0] if extrapolate else np.where(np.any(outside), plain_np.nan, y[1] - y[0])


def real_roots(c, x, y, discontinuity: bool, extrapolate: bool) -> list:
    """The roots that SciPy finds, made better by Newton's steps, which have the derivative of the root.  A
    jump over y counts as a root; it moves with its breakpoint."""
    roots = []
    for j, p in enumerate(ppoly.real_roots(bare(c), bare(x), bare(y), discontinuity, extrapolate)):
        at, _ = in_pieces(x, p)
        pieces, start = np.take(c[:, :, j], at, 1), np.take(x, at)
        size = abs(bare(y)) + power_sum(abs(bare(pieces)), abs(p - bare(start)), 0)
        is_jump = abs(power_sum(bare(pieces), p - bare(start), 0) - bare(y)) > 1e-6 * size
        for _ in range(3):
            s = p - start
            p = p - (power_sum(pieces, s, 0) - y) / power_sum(pieces, s, 1)
        roots.append(np.where(is_jump, start, p))
    return roots


def of_slopes(constructor):
    """A cubic with these slopes.  What SciPy's other classes give it has been checked."""

    def __init__(self, x, y, dydx, axis=0, extrapolate=None):
        if type(self)._theirs is itp.CubicHermiteSpline:
            return constructor(self, x, y, dydx, axis, extrapolate)
        h = trailing(x[1:] - x[:-1], ndim(y) - 1)
        slope = (y[1:] - y[:-1]) / h
        t = (dydx[:-1] + dydx[1:] - 2 * slope) / h
        c = np.stack([t / h, (slope - dydx[:-1]) / h - t, dydx[:-1], y[:-1]])
        vars(self).update(vars(self._made(c, x, extrapolate, axis)))

    return __init__


FOLLOWED.decorate(itp.CubicHermiteSpline.__init__, of_slopes)


def solve_banded(bands: tuple, ab, b, **_):
    """(CuPy has none.)"""
    if not on_a_device((ab, b)):
        return faces.linalg.solve_banded(bands, ab, b)
    at = plain_np.arange(shape(ab)[1])
    row = bands[1] + at[:, None] - at
    inside = (row >= 0) & (row < shape(ab)[0])
    return np.linalg.solve(np.where(constant_like(inside, b), ab[plain_np.where(inside, row, 0), at], 0.0), b)


FOLLOWED.leaf(interpnd._ndim_coords_from_arrays, point_coordinates)
FOLLOWED.leaf(scipy.linalg.solve_banded, solve_banded)
for _f in (evaluate, evaluate_bernstein, evaluate_nd, fix_continuity, integrate, real_roots):
    FOLLOWED.leaf(getattr(ppoly, _f.__name__), _f)


class PieceObject(ConstructedObject):
    _parts = "c", "x", "extrapolate", "axis"


class BoxObject(ConstructedObject):
    _parts = "c", "x", "extrapolate"


FOLLOWED.bases |= {
    itp.PPoly.__mro__[-2]: PieceObject,
    itp.BPoly.__mro__[-2]: PieceObject,
    itp.NdPPoly: BoxObject,
}
for _kind in (
    itp.PPoly, itp.BPoly, itp.NdPPoly, itp.CubicHermiteSpline, itp.CubicSpline, itp.PchipInterpolator,
    itp.Akima1DInterpolator,
):  # fmt: skip
    follow_class(_kind)

PPoly = INTERPOLATE.rules[itp.PPoly]

# --- B-splines ---


def bspline_basis(t, x, at, k: int) -> list:
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


def differentiated(t, c, k: int, order: int = 1) -> tuple:
    """(knots, coefficients, degree) of a derivative; it is 0 between knots that coincide."""
    for _ in range(order):
        n = shape(t)[0] - k - 1
        if k == 0:
            return t, 0.0 * c, 0
        width = t[k + 1 : n + k] - t[1:n]
        c = (c[1:n] - c[: n - 1]) * trailing(k / np.where(primal_of(width) == 0, 1.0, width), ndim(c) - 1)
        t, k = t[1:-1], k - 1
    return t, c, k


def evaluate_spline(t, c, k: int, x, nu: int = 0, extrapolate: bool = True, out=None):
    """At points x; the other axes of c stand last.  (SciPy before 1.16 gives `out`.)"""
    first, last = t[k], t[shape(t)[0] - k - 1]
    t, c, k = differentiated(t, c, k, nu)
    at = piece_numbers(t, x, k, shape(t)[0] - k - 2)
    y = 0.0
    for j, w in enumerate(bspline_basis(t, x, at, k)):
        y = y + trailing(w, ndim(c) - 1) * np.take(c, at + (j - k), 0)
    if not extrapolate:
        y = np.where(trailing((x < first) | (x > last), ndim(y) - 1), plain_np.nan, y)
    if out is not None:
        out[...] = y
    return y


def find_interval(t, k: int, x, *settings) -> int:
    return dierckx.find_interval(bare(t), k, float(bare(x)), *settings)


class KnotObject(ConstructedObject):
    _parts = "t", "c", "k", "extrapolate", "axis"


def by_real_parts(evaluate):
    """A spline with complex coefficients is the sum of two.  (SciPy takes their memory as real numbers.)"""

    def __call__(self, x, nu=0, extrapolate=None):
        if dtype(self.c).kind != "c":
            return evaluate(self, x, nu, extrapolate)
        parts = [
            self._made(self.t, c, self.k, self.extrapolate, self.axis) for c in (self.c.real, self.c.imag)
        ]
        re, im = [part(x, nu, extrapolate) for part in parts]
        return re + 1j * im

    return __call__


FOLLOWED.bases[itp.BSpline] = KnotObject
FOLLOWED.decorate(itp.BSpline.__call__, by_real_parts)
for _leaf in (evaluate_spline, find_interval):
    FOLLOWED.leaf(getattr(dierckx, _leaf.__name__), _leaf)
BSpline = follow_class(itp.BSpline)
# --- coefficients: linear in the data for nodes that stay ---


@functools.lru_cache(64)
def of_nodes(kind: str, x: bytes, n: int, settings) -> AxisMap:
    return AxisMap(KINDS[kind](plain_np.frombuffer(x), *settings), n)


def fit_interpolant(kind: str, x, y, settings: tuple = ()):
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


def by_rows(f):
    """f of one row, of each."""
    return lambda y: plain_np.array([f(row) for row in rows_of(y)]).reshape(*y.shape[:-1], -1)


def closed(y):
    """The last datum is the first."""
    return plain_np.concatenate([y[..., :-1], y[..., :1]], -1)


KINDS: dict[str, Any] = {
    "slopes": lambda x, bc: lambda y: itp.CubicSpline(x, closed(y) if bc == "periodic" else y, -1, bc)(x, 1),
    "coefficients": lambda x, k, bc: lambda y: plain_np.moveaxis(
        itp.make_interp_spline(x, closed(y) if bc == "periodic" else y, k, None, bc, -1).c, 0, -1
    ),
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
