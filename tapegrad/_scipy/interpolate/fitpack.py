"""FITPACK's forms of splines: (t, c, k) and UnivariateSpline."""

import functools
import inspect

import numpy as plain_np
import scipy.interpolate as itp
from scipy.interpolate import _fitpack_impl as fitpack

from ... import numpy as np
from ..._core.errors import ArgumentError
from ..._core.registry import load
from ...ops.declare import ndim, shape
from ...ops.nondifferentiable import at_users_line
from ..followed import device_rule
from ..namespaces import (
    as_float_array,
    bare,
    holds_tracked,
    on_a_device,
    plain_argument,
    refusal_text,
)
from .piecewise import FOLLOWED, INTERPOLATE, BSpline, dtype_like, evaluate_spline, trailing
from .smoothing import smoothed
from .splines import made_spline, make_lsq_spline


def representation(x, y, w, k: int, s, found: tuple) -> tuple:
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


def arrays_of(tck, *more) -> tuple:
    """(knots, coefficients, degree), and `more`, as arrays of one kind."""
    t, c, k = tck
    like = dtype_like(t, c, *more)
    t, c, *rest = [as_float_array(v, like) for v in (t, c, *more)]
    return t, c[: shape(t)[0] - k - 1], k, *rest


def componentwise(at: int):
    """Of a curve, whose coefficients are a list, for each of its components.  `at`: which argument is it?"""

    def declare(rule):
        @functools.wraps(rule)
        def run(*args, **settings):
            t, c, k = args[at]
            if not isinstance(c, (list, tuple)):
                return rule(*args, **settings)
            return [rule(*args[:at], (t, part, k), *args[at + 1 :], **settings) for part in c]

        FOLLOWED.leaf(getattr(fitpack, rule.__name__), run)
        return run

    return declare


@componentwise(1)
def splev(x, tck, der=0, ext=0):
    t, c, k, x = arrays_of(tck, x)
    n, to = shape(t)[0] - k - 1, shape(x)
    x = np.reshape(x, -1)
    if ext == 3 and not der:  # (FITPACK extends derivatives)
        x = np.clip(x, t[k], t[n])
    outside = (x < t[k]) | (x > t[n])
    if ext == 2 and bool(np.any(outside)):
        raise ValueError("Found x value not in the domain")
    y = evaluate_spline(t, c, k, x, der)
    return np.reshape(np.where(outside, 0.0, y) if ext == 1 else y, to)


@componentwise(2)
def splint(a, b, tck, full_output=0):
    if full_output:
        raise ArgumentError("scipy.interpolate.splint: full_output= is not supported on a tracked Variable")
    t, c, k, a, b = arrays_of(tck, a, b)
    a, b = [np.clip(v, t[k], t[shape(t)[0] - k - 1]) for v in (a, b)]
    return BSpline._made(t, c, k, True, 0).integrate(a, b)[()]


@componentwise(0)
def sproot(tck, mest=10):
    """The roots that FITPACK finds, made better by Newton's steps."""
    t, c, k = arrays_of(tck)
    found = itp.sproot((bare(t), plain_np.concatenate([bare(c), plain_np.zeros(k + 1)]), k), mest)
    for _ in range(3):
        found = found - evaluate_spline(t, c, k, found) / evaluate_spline(t, c, k, found, 1)
    return found


@componentwise(1)
def spalde(x, tck):
    x = np.atleast_1d(as_float_array(x, dtype_like(x, tck)))
    values = np.stack([splev(x, tck, nu) for nu in range(tck[2] + 1)], -1)
    return values[0] if len(values) == 1 else list(values)


@componentwise(1)
def insert(x, tck, m=1, per=0):
    """One knot after the other: each new coefficient lies between two of the old ones."""
    if per:
        raise refusal_text("scipy.interpolate.insert(per=)", "", "it without per=")
    t, c, k, x = arrays_of(tck, x)
    if not bare(t)[k] <= bare(x) <= bare(t)[-k - 1]:
        raise ValueError("scipy.interpolate.insert: the new knot lies outside of the spline")
    for _ in range(m):
        n = shape(t)[0] - k - 1
        at = int(plain_np.clip(plain_np.searchsorted(bare(t), bare(x), side="right") - 1, k, n - 1))
        i = plain_np.arange(at - k + 1, at + 1)
        width = t[i + k] - t[i]
        none = bare(width) == 0
        share = trailing(np.where(none, 1.0, (x - t[i]) / np.where(none, 1.0, width)), ndim(c) - 1)
        c = np.concatenate([c[: at - k + 1], share * c[i] + (1 - share) * c[i - 1], c[at:n]])
        t = np.concatenate([t[: at + 1], np.reshape(x, 1), t[at + 1 :]])
    return t, np.concatenate([c, plain_np.zeros((k + 1, *shape(c)[1:]))]), k


# --- UnivariateSpline: its knots are those of the library, its coefficients are functions of the data ---


def fitted(theirs, x, y, w, ends: list, k: int, s, t) -> tuple:
    """(knots, coefficients): the library chooses the knots if it smooths."""
    if t is not None:
        like = dtype_like(x, y, t, w)
        low, high = [
            np.reshape(as_float_array(x[at] if end is None else end, like), 1)
            for at, end in zip((0, -1), ends, strict=True)
        ]
        t = np.concatenate([*[low] * (k + 1), as_float_array(t, like), *[high] * (k + 1)])
        spline = make_lsq_spline(x, y, t, k, w)
    elif not holds_tracked(s) and s == 0 and ends == [None, None]:
        spline = made_spline(x, y, k, name="UnivariateSpline")
    else:
        t, c, _ = at_users_line(theirs, *bare([x, y, w]), ends, k, bare(s))._eval_args
        return smoothed(x, y, w, t, k, c, s if holds_tracked(s) else None)
    return spline.t, spline.c


def fitted_by_library(constructor):
    signature = inspect.signature(constructor)

    def __init__(self, *args, **kwargs):
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        x, y, *_ = values = list(bound.arguments.values())[1:]
        there, theirs = on_a_device((x, y)), type(self)._theirs
        theirs = getattr(load("cupyx.scipy.interpolate"), theirs.__name__) if there else theirs
        if not holds_tracked(values):
            real = at_users_line(theirs, *plain_argument(values))
            vars(self).update(_eval_args=real._eval_args, _data=real._data, ext=real.ext)
            return
        given = {"s": 0, "t": None, **bound.arguments}
        w, ends, k, s = given["w"], list(given["bbox"]), given["k"], given["s"]
        x, y, w, _, self.ext = self.validate_input(x, y, w, ends, k, s, given["ext"], given["check_finite"])
        t, c = (device_rule(fitted) if there else fitted)(theirs, x, y, w, ends, k, s, given["t"])
        off = (y - evaluate_spline(t, c, k, x)) * (1.0 if w is None else w)
        c = np.concatenate([c, np.zeros(k + 1, like=c)])
        self._eval_args = t, c, k
        self._data = x, y, w, *ends, k, s, shape(t)[0], t, c, np.sum(off * off), None, None, 0

    return __init__


for _kind in (itp.UnivariateSpline, itp.InterpolatedUnivariateSpline, itp.LSQUnivariateSpline):
    FOLLOWED.decorate(_kind.__init__, fitted_by_library)
    INTERPOLATE.rule(_kind)(FOLLOWED.klass(_kind))


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
