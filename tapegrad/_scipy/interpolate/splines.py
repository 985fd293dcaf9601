"""Splines of one variable through data: by the data, by the nodes where they are smooth, and by the point."""

import numpy as plain_np
import scipy.interpolate as itp

from ... import numpy as np
from ..._core.errors import ArgumentError
from ..._core.primitive import primal_of
from ...ops.declare import axis_of, ndim, shape
from ...ops.nondifferentiable import at_users_line, holds_somewhere
from ..namespaces import (
    as_float_array,
    bare,
    constant_like,
    holds_tracked,
    refusal_text,
)
from .piecewise import (
    FOLLOWED,
    INTERPOLATE,
    BSpline,
    bspline_basis,
    by_equations,
    dtype_like,
    evaluate_spline,
    fit_interpolant,
    follow_class,
    piece_numbers,
    trailing,
)


def prepared(x, y, axis: int, name: str, repeats: bool = False) -> tuple:
    """x, y with the axis first, the axis counted from the front."""
    like = dtype_like(x, y)
    x, y = as_float_array(x, like), as_float_array(y, like)
    axis = axis_of(axis, ndim(y))
    if ndim(x) != 1 or shape(x)[0] < 2 or shape(x)[0] != shape(y)[axis]:
        raise ValueError(
            f"{name}: x has shape {shape(x)}, y {shape(y)}; they must have the same length along axis "
            f"{axis}, at least 2"
        )
    if not bool(np.all(x[1:] >= x[:-1] if repeats else x[1:] > x[:-1])):
        raise ValueError(f"{name}: x must be {'an' if repeats else 'a strictly'} increasing sequence.")
    return x, np.moveaxis(y, axis, 0) if axis else y, axis


# --- B-splines through data ---


def interpolating_knots(x, k: int):
    """The nodes as knots, but for those near the ends, which are repeated instead."""
    n = shape(x)[0]
    if k == 0:
        return np.concatenate([x, x[-1:]])
    if k == 1:
        return np.concatenate([x[:1], x, x[-1:]])
    inner = x[(k + 1) // 2 : n - (k + 1) // 2] if k % 2 else ((x[1:] + x[:-1]) / 2)[k // 2 : n - 1 - k // 2]
    return np.concatenate([*[x[:1]] * (k + 1), inner, *[x[-1:]] * (k + 1)])


def collocation(t, x, k: int):
    """The matrix of the B-splines at the nodes."""
    n, m = shape(t)[0] - k - 1, shape(x)[0]
    at = piece_numbers(t, x, k, n - 1)
    A = np.zeros((m, n), like=x if holds_tracked(x) else t)
    for j, w in enumerate(bspline_basis(t, x, at, k)):
        A[constant_like(plain_np.arange(m), t), at + (j - k)] = w
    return A


def made_spline(
    x,
    y,
    k: int = 3,
    t=None,
    bc_type=None,
    axis: int = 0,
    name: str = "make_interp_spline",
):
    x, y, axis = prepared(x, y, axis, f"scipy.interpolate.{name}")
    if not by_equations(x, t):
        if bc_type == "periodic" and holds_somewhere(~np.isclose(y[0], y[-1], atol=1e-15)):
            raise ValueError(f"scipy.interpolate.{name}: the ends of y differ, where bc_type is 'periodic'")
        data = plain_np.zeros(shape(x))
        theirs = itp.make_interp_spline(bare(x), data, k, None if t is None else bare(t), bc_type)
        if t is None:
            c = fit_interpolant("coefficients", x, y, (k, bc_type))
        else:
            c = fit_interpolant("knotted", x, y, (k, tuple(plain_np.asarray(bare(t)).tolist())))
        return BSpline._made(constant_like(theirs.t, y), c, k, theirs.extrapolate, axis)
    order = {None: 0, "not-a-knot": 0, "clamped": 1, "natural": 2}.get(bc_type)
    if order is None or order and k != 3:
        raise ArgumentError(
            f"scipy.interpolate.{name}: bc_type={bc_type!r} has no derivative by the nodes here, nor on "
            f"CuPy; give None"
        )
    if t is None:
        t = np.concatenate([*[x[:1]] * k, x, *[x[-1:]] * k]) if order else interpolating_knots(x, k)
    t = as_float_array(t, x)
    A = collocation(t, x, k)
    if order:  # a derivative at each end is 0
        n, zero = shape(A)[1], np.zeros((1, *shape(y)[1:]), like=y)
        ends = evaluate_spline(t, constant_like(plain_np.eye(n), t), k, np.stack([x[0], x[-1]]), order)
        A, y = np.concatenate([A, ends]), np.concatenate([y, zero, zero])
    return BSpline._made(t, np.linalg.solve(A, y), k, True, axis)


@INTERPOLATE.rule(itp.make_interp_spline)
def make_interp_spline(x, y, k=3, t=None, bc_type=None, axis=0, check_finite=True):
    if bc_type is not None and not isinstance(bc_type, str):
        raise ArgumentError("scipy.interpolate.make_interp_spline: conditions at the ends must be named here")
    return made_spline(x, y, k, t, bc_type, axis)


@INTERPOLATE.rule(itp.make_lsq_spline)
def make_lsq_spline(x, y, t, k=3, w=None, axis=0, check_finite=True, *, method="qr"):
    x, y, axis = prepared(x, y, axis, "scipy.interpolate.make_lsq_spline", repeats=True)
    if by_equations(x, t, w):
        B, like = collocation(as_float_array(t, x), x, k), y
        W = 1.0 if w is None else trailing(as_float_array(w, like), 1)
        Y = y * (1.0 if w is None else trailing(as_float_array(w, like), ndim(y) - 1))
        c = np.linalg.lstsq(W * B, np.reshape(Y, (shape(Y)[0], -1)))[0]
        return BSpline._made(as_float_array(t, x), np.reshape(c, (-1, *shape(Y)[1:])), k, True, axis)
    settings = (
        k,
        tuple(plain_np.asarray(bare(t)).tolist()),
        None if w is None else tuple(plain_np.asarray(bare(w)).tolist()),
    )
    return BSpline._made(
        constant_like(bare(t), y), fit_interpolant("least squares", x, y, settings), k, True, axis
    )


@INTERPOLATE.rule(itp.make_smoothing_spline)
def make_smoothing_spline(x, y, w=None, lam=None, *, axis=0):
    name = "scipy.interpolate.make_smoothing_spline"
    if lam is None or holds_tracked(x):
        raise refusal_text(name, "by nodes, or with a penalty that is searched for", "lam=, and plain nodes")
    if holds_tracked(w, lam):
        return SMOOTHED(x, y, w, lam, axis=axis)
    x, y, axis = prepared(x, y, axis, name)
    w = None if w is None else tuple(plain_np.asarray(bare(w)).tolist())
    t = itp.make_smoothing_spline(bare(x), plain_np.zeros(shape(x)), None, float(bare(lam))).t
    return BSpline._made(
        constant_like(t, y), fit_interpolant("smoothed", x, y, (w, float(bare(lam)))), 3, True, axis
    )


SMOOTHED = FOLLOWED.function(itp.make_smoothing_spline)

# --- polynomials through all nodes, and interp1d ---


def newton_coefficients(xi, yi) -> list:
    """The divided differences from the first node on."""
    n = shape(xi)[0]
    column = [yi[i] for i in range(n)]
    top = [column[0]]
    for d in range(1, n):
        column = [(column[i + 1] - column[i]) / (xi[i + d] - xi[i]) for i in range(n - d)]
        top.append(column[0])
    return top


def newton_form(xi, c, x):
    y = c[-1] + 0.0 * x[:, None]
    for k in range(len(c) - 2, -1, -1):
        y = y * (x - xi[k])[:, None] + c[k]
    return y


def by_differences(constructor):
    """SciPy writes one coefficient after the other."""

    def __init__(self, xi, yi, axis=0):
        nodes = np.sort(primal_of(np.asarray(xi)))
        equal = bool(np.any(nodes[1:] == nodes[:-1]))
        if equal and holds_tracked(xi):
            raise refusal_text(
                "scipy.interpolate.KroghInterpolator", "by nodes given twice", "CubicHermiteSpline"
            )
        if equal or shape(nodes)[0] > 30:  # (of which it warns)
            return at_users_line(constructor, self, xi, yi, axis)
        self._set_yi(yi, xi=xi, axis=axis)
        self.xi, self.yi = np.asarray(xi), self._reshape_yi(yi)
        self.n, self.r = shape(self.yi)
        c = newton_coefficients(self.xi, self.yi)
        self.c = np.stack([*c, 0.0 * c[0]])

    return __init__


def with_weights(constructor):
    """SciPy multiplies in a random order."""

    def __init__(self, xi, yi=None, axis=0, *, wi=None, rng=None, random_state=None):
        if wi is None:
            x = np.asarray(xi, dtype=float)
            self._inv_capacity = 4.0 / (np.max(x) - np.min(x))
            apart = self._inv_capacity * (x[:, None] - x)
            same = constant_like(plain_np.eye(shape(x)[0], dtype=bool), x)
            products = np.prod(np.where(same, 1.0, apart), 1)
            if bool(np.any(products == 0.0)):
                raise ValueError("Interpolation points xi must be distinct.")
            wi = 1.0 / products
        constructor(self, xi, yi, axis, wi=wi)

    return __init__


def without_poles(_):
    """SciPy divides by the distances to the nodes, which has no derivative at a node. Here each weight is
    multiplied by the distances to the other nodes instead. Both are stable for many nodes."""

    def _evaluate(self, x):
        nodes = primal_of(self.xi)
        apart = 4.0 / (np.max(nodes) - np.min(nodes)) * (x[:, None] - self.xi)
        one = constant_like(plain_np.ones((shape(x)[0], 1)), apart)
        before = np.cumprod(np.concatenate([one, apart[:, :-1]], 1), 1)
        after = np.cumprod(np.concatenate([one, apart[:, :0:-1]], 1), 1)[:, ::-1]
        shares = self.wi * before * after
        return shares @ self.yi / np.sum(shares, 1)[:, None]

    return _evaluate


def at_support_points(run):
    """SciPy sets the value at a support point. Here each weight is multiplied by the distances to the other
    points instead, if a point is one of them."""

    def __call__(self, z):
        points = self._support_points
        z, support = np.asarray(z), primal_of(points)
        if not (holds_tracked((z, points)) and holds_somewhere(primal_of(z)[..., None] == support)):
            return run(self, z)
        apart = (np.reshape(z, (-1, 1)) - points) / np.max(abs(support - support[0]))
        without = [np.prod(np.delete(apart, k, 1), 1) for k in range(shape(points)[0])]
        shares = np.stack(without, 1) * self.weights
        values = np.reshape(self._support_values, (shape(points)[0], -1))
        y = np.reshape(shares @ values / np.sum(shares, 1)[:, None], shape(z) + self._shape)
        return np.moveaxis(y, 0, getattr(self, "_axis", 0)) if ndim(z) else y

    return __call__


def filled_outside(_):
    """(SciPy writes by masks, which differ between the samples of a batch.)"""

    def _evaluate(self, x):
        y = self._call(self, x)
        if self._extrapolate:
            return y
        fills = self._fill_value_below, self._fill_value_above
        for outside, fill in zip(self._check_bounds(x), fills, strict=True):
            y = np.where(trailing(outside, ndim(y) - 1), fill, y)
        return y

    return _evaluate


FOLLOWED.decorate(itp.AAA.__call__, at_support_points)
FOLLOWED.decorate(itp.interp1d._evaluate, filled_outside)
FOLLOWED.decorate(itp.BarycentricInterpolator.__init__, with_weights)
FOLLOWED.decorate(itp.KroghInterpolator.__init__, by_differences)
FOLLOWED.decorate(itp.BarycentricInterpolator._evaluate, without_poles)
FOLLOWED.decorate(
    itp.KroghInterpolator._evaluate, lambda _: lambda self, x: newton_form(self.xi, self.c[: self.n], x)
)
for _kind in (itp.BarycentricInterpolator, itp.KroghInterpolator, itp.interp1d):
    follow_class(_kind)
