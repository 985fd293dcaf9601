"""FITPACK's forms of splines: (t, c, k) and UnivariateSpline."""

from typing import Any

import numpy as plain_np
import scipy.interpolate as itp

from ... import numpy as np
from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.registry import load
from ...ops.creation import as_variable
from ...ops.declare import ndim, shape
from ...ops.nondifferentiable import at_users_line
from ..followed import device_rule
from ..namespaces import (
    CarrierType,
    as_float_array,
    bare,
    holds_tracked,
    on_a_device,
    plain_argument,
    refusal_text,
)
from .piecewise import INTERPOLATE, BSpline, Interpolant, dtype_like, trailing
from .smoothing import smoothed
from .splines import made_spline, make_lsq_spline


def representation(x: Any, y: Any, w: Any, k: int, s: Any, found: tuple) -> tuple:
    """(t, c, k) of FITPACK's."""
    t, c = smoothed(x, y, w, found[0], k, found[1], s if holds_tracked(s) else None)
    return t, np.concatenate([c, plain_np.zeros(k + 1)]), k


@INTERPOLATE.rule(itp.splrep)
def splrep(x, y, w=None, xb=None, xe=None, k=3, task=0, s=None, t=None, full_output=0, per=0, quiet=1):
    if not (xb is None and xe is None) or full_output or per or task:
        raise refusal_text(
            "scipy.interpolate.splrep(xb=, xe=, per=, task=, full_output=)",
            "",
            "it without them, or make_interp_spline",
        )
    smooth = s is not None and (holds_tracked(s) or s > 0) or s is None and w is not None
    if smooth and t is None:
        return representation(
            x, y, w, k, s, itp.splrep(*[bare(v) for v in (x, y, w)], k=k, s=bare(s), quiet=quiet)
        )
    if t is not None:
        x = as_float_array(x)
        ends = [x[:1]] * (k + 1), [x[-1:]] * (k + 1)
        spline = make_lsq_spline(x, y, np.concatenate([*ends[0], as_float_array(t, x), *ends[1]]), k, w)
    else:
        spline = made_spline(x, y, k, name="splrep")
    return spline.t, np.concatenate([spline.c, plain_np.zeros(k + 1)]), k


@INTERPOLATE.rule(itp.splev)
def splev(x, tck, der=0, ext=0):
    if isinstance(tck, BSpline):
        return tck(x, der)
    t, c, k = tck
    if isinstance(c, (list, tuple)):
        return [splev(x, (t, part, k), der, ext) for part in c]
    n = shape(t)[0] - k - 1
    like = dtype_like(x, t, c)
    x, t = as_float_array(x, like), as_float_array(t, like)
    if ext == 3:
        x = np.clip(x, t[k], t[n])
    y = BSpline.construct_fast(t, as_float_array(c, like)[:n], k)(x, der)
    outside = (x < t[k]) | (x > t[n])
    if ext == 2 and bool(np.any(outside)):
        raise ValueError(
            "scipy.interpolate.splev: a point lies outside of the interval of the spline (ext=2)"
        )
    return np.where(outside, 0.0, y) if ext == 1 else y


def spline_of(tck: Any) -> Any:
    if isinstance(tck, BSpline):
        return tck
    t, c, k = tck
    like = dtype_like(t, c)
    return BSpline.construct_fast(as_float_array(t, like), as_float_array(c, like)[: shape(t)[0] - k - 1], k)


def in_form(spline: Any, like: Any) -> Any:
    return (
        spline
        if isinstance(like, BSpline)
        else (spline.t, np.concatenate([spline.c, plain_np.zeros(spline.k + 1)]), spline.k)
    )


@INTERPOLATE.rule(itp.splder)
def splder(tck, n=1):
    return in_form(spline_of(tck).derivative(n), tck)


@INTERPOLATE.rule(itp.splantider)
def splantider(tck, n=1):
    return in_form(spline_of(tck).antiderivative(n), tck)


@INTERPOLATE.rule(itp.splint)
def splint(a, b, tck, full_output=0):
    if full_output:
        raise ArgumentError("scipy.interpolate.splint: full_output= is not supported on a tracked Variable")
    return spline_of(tck).integrate(a, b, False)


@INTERPOLATE.rule(itp.spalde)
def spalde(x, tck):
    spline = spline_of(tck)
    x = as_float_array(x, dtype_like(x, spline))
    values = np.stack([spline(x, nu) for nu in range(spline.k + 1)], -1)
    return values if ndim(x) == 0 else [values[i] for i in range(shape(x)[0])]


class UnivariateSpline(Interpolant, metaclass=CarrierType):
    """t, c, k with FITPACK's ways outside of the interval."""

    _theirs = itp.UnivariateSpline
    names = ("t", "c")

    def __init__(self, x, y, w=None, bbox=(None, None), k=3, s=None, ext=0, check_finite=False):
        there = on_a_device((x, y))
        real = load("cupyx.scipy.interpolate").UnivariateSpline if there else itp.UnivariateSpline
        if not holds_tracked(x, y, w, s):
            self._take(
                at_users_line(
                    real,
                    plain_argument(x),
                    plain_argument(y),
                    plain_argument(w),
                    list(bbox),
                    k,
                    plain_argument(s),
                    ext,
                    check_finite,
                )
            )
        elif s == 0 and tuple(bbox) == (None, None):
            spline = made_spline(x, y, k, name="UnivariateSpline")
            self.t, self.c, self.k, self.ext = spline.t, spline.c, k, EXT[ext]
        else:
            if tuple(bbox) != (None, None):
                raise refusal_text("scipy.interpolate.UnivariateSpline(bbox=)", "", "it without bbox=")
            found = at_users_line(
                real, bare(x), bare(y), bare(w), list(bbox), k, bare(s), ext, check_finite
            )._eval_args[:2]
            self.t, c, self.k = (device_rule(representation) if there else representation)(
                x, y, w, k, s, found
            )
            self.c, self.ext = c[: shape(self.t)[0] - k - 1], EXT[ext]

    def _take(self, real: Any, shadow: Any = lambda x: x) -> None:
        t, c, self.k = real._eval_args
        self.t, self.c, self.ext = shadow(t), shadow(c[: len(t) - self.k - 1]), real.ext

    @classmethod
    def _of(cls, x: Any, shadow: Any) -> Any:
        new = object.__new__(UnivariateSpline)
        new._take(x, shadow)
        return new

    def _plain(self) -> Any:
        c, theirs = plain_argument(self.c), self._real(itp.UnivariateSpline)
        c = xp_of(c).concatenate([c, xp_of(c).zeros(self.k + 1)])
        return theirs._from_tck((plain_argument(self.t), c, self.k), self.ext)

    def __call__(self, x, nu=0, ext=None):
        if self._answers(x):
            return as_variable(self._plain()(plain_argument(x), nu, ext))
        return splev(x, (self.t, self.c, self.k), nu, self.ext if ext is None else EXT[ext])

    def derivative(self, n=1):
        return self._with(BSpline.construct_fast(self.t, self.c, self.k).derivative(n))

    def antiderivative(self, n=1):
        return self._with(BSpline.construct_fast(self.t, self.c, self.k).antiderivative(n))

    def _with(self, spline: Any) -> Any:
        new = object.__new__(UnivariateSpline)
        new.t, new.c, new.k, new.ext = spline.t, spline.c, spline.k, self.ext
        return new

    def integral(self, a, b):
        return splint(a, b, (self.t, self.c, self.k))

    def derivatives(self, x):
        return spalde(x, (self.t, self.c, self.k))

    def get_coeffs(self):
        return self.c

    def get_knots(self):
        return self.t[self.k : shape(self.t)[0] - self.k]


EXT = {0: 0, 1: 1, 2: 2, 3: 3, "extrapolate": 0, "zeros": 1, "raise": 2, "const": 3}


class InterpolatedUnivariateSpline(UnivariateSpline, metaclass=CarrierType):
    _theirs = itp.InterpolatedUnivariateSpline

    def __init__(self, x, y, w=None, bbox=(None, None), k=3, ext=0, check_finite=False):
        UnivariateSpline.__init__(self, x, y, w, bbox, k, 0, ext, check_finite)


class LSQUnivariateSpline(UnivariateSpline, metaclass=CarrierType):
    _theirs = itp.LSQUnivariateSpline

    def __init__(self, x, y, t, w=None, bbox=(None, None), k=3, ext=0, check_finite=False):
        x = as_float_array(x, dtype_like(x, y, t, w))
        ends = [as_float_array(x[at] if b is None else b, x) for at, b in zip((0, -1), bbox, strict=True)]
        ends = [[np.reshape(e, 1)] * (k + 1) for e in ends]
        spline = make_lsq_spline(x, y, np.concatenate([*ends[0], as_float_array(t, x), *ends[1]]), k, w)
        self.t, self.c, self.k, self.ext = spline.t, spline.c, k, EXT[ext]


for _ours in (UnivariateSpline, InterpolatedUnivariateSpline, LSQUnivariateSpline):
    INTERPOLATE.rule(_ours._theirs)(_ours)


@INTERPOLATE.rule(itp.splprep)
def splprep(
    x, w=None, u=None, ub=None, ue=None, k=3, task=0, s=None, t=None, full_output=0, nest=None, per=0, quiet=1
):
    name = "scipy.interpolate.splprep"
    if per or task or t is not None or full_output or not (ub is None and ue is None):
        raise refusal_text(f"{name}(per=, task=, t=, ub=, ue=)", "", "make_splprep")
    like = dtype_like(x, w, u, s)
    y = np.stack([as_float_array(v, like) for v in x], 1)
    if u is None:
        step = y[1:] - y[:-1]
        length = np.cumsum(np.sqrt(np.sum(step * step, 1)))
        u = np.concatenate([plain_np.zeros(1), length / length[-1]])
    (knots, c, _), _ = itp.splprep(
        list(bare(y).T), bare(w), bare(u), None, None, k, 0, bare(s), nest=nest, quiet=quiet
    )
    n = len(knots) - k - 1
    T, found = smoothed(u, y, w, knots, k, plain_np.stack(c, 1)[:n], s if holds_tracked(s) else None)
    return [T, [found[:, i] for i in range(shape(found)[1])], k], u


@INTERPOLATE.rule(itp.insert)
def insert_knots(x, tck, m=1, per=0):
    """One knot after the other: each new coefficient lies between two of the old ones."""
    if per or isinstance(tck, BSpline):
        raise refusal_text("scipy.interpolate.insert(per=)", "or of a BSpline", "its tck")
    spline = spline_of(tck)
    t, c, k = spline.t, spline.c, spline.k
    like = dtype_like(x, t, c)
    x, t, c = as_float_array(x, like), as_float_array(t, like), as_float_array(c, like)
    for _ in range(m):
        n = shape(t)[0] - k - 1
        at = int(plain_np.clip(plain_np.searchsorted(bare(t), bare(x), side="right") - 1, k, n - 1))
        i = plain_np.arange(at - k + 1, at + 1)
        share = trailing((x - t[i]) / (t[i + k] - t[i]), ndim(c) - 1)
        c = np.concatenate([c[: at - k + 1], share * c[i] + (1 - share) * c[i - 1], c[at:n]])
        t = np.concatenate([t[: at + 1], np.reshape(x, 1), t[at + 1 :]])
    return t, np.concatenate([c, plain_np.zeros((k + 1, *shape(c)[1:]))]), k


@INTERPOLATE.rule(itp.sproot)
def sproot(tck, mest=10):
    """The roots of a cubic spline within its interval."""
    spline = spline_of(tck)
    if spline.k != 3:
        raise ValueError("scipy.interpolate.sproot works only for cubic (k=3) splines")
    found = itp.sproot((bare(spline.t), plain_np.concatenate([bare(spline.c), plain_np.zeros(4)]), 3), mest)
    slope = spline.derivative()
    for _ in range(3):
        found = found - spline(found) / slope(found)
    return found
