"""Splines of one variable through data: by the data, by the nodes where they are smooth, and by the point."""

import math
from typing import Any

import numpy as plain_np
import scipy.interpolate as itp

from ... import numpy as np
from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import primal_of, seen
from ...ops.creation import as_variable
from ...ops.declare import axis_of, ndim, shape
from ...ops.nondifferentiable import warn_user
from ..namespaces import (
    CarrierType,
    as_float_array,
    bare,
    constant_like,
    holds_tracked,
    plain_argument,
    refusal_text,
)
from .piecewise import (
    INTERPOLATE,
    BSpline,
    Interpolant,
    arranged,
    bspline_basis,
    by_equations,
    dtype_like,
    evaluate_spline,
    fit_interpolant,
    piece_numbers,
    trailing,
)


def prepared(x: Any, y: Any, axis: int, name: str) -> tuple:
    """x, y with the axis first, the axis counted from the front."""
    like = dtype_like(x, y)
    x, y = as_float_array(x, like), as_float_array(y, like)
    axis = axis_of(axis, ndim(y))
    if ndim(x) != 1 or shape(x)[0] < 2 or shape(x)[0] != shape(y)[axis]:
        raise ValueError(
            f"{name}: x has shape {shape(x)}, y {shape(y)}; they must have the same length along axis "
            f"{axis}, at least 2"
        )
    if not holds_tracked(x) and not bool((bare(x)[1:] > bare(x)[:-1]).all()):
        raise ValueError(f"{name}: x must be strictly increasing sequence.")
    return x, np.moveaxis(y, axis, 0) if axis else y, axis


# --- B-splines through data ---


def interpolating_knots(x: Any, k: int) -> Any:
    """The nodes as knots, but for those near the ends, which are repeated instead."""
    n = shape(x)[0]
    if k == 0:
        return np.concatenate([x, x[-1:]])
    if k == 1:
        return np.concatenate([x[:1], x, x[-1:]])
    inner = x[(k + 1) // 2 : n - (k + 1) // 2] if k % 2 else ((x[1:] + x[:-1]) / 2)[k // 2 : n - 1 - k // 2]
    return np.concatenate([*[x[:1]] * (k + 1), inner, *[x[-1:]] * (k + 1)])


def collocation(t: Any, x: Any, k: int) -> Any:
    """The matrix of the B-splines at the nodes."""
    n, m = shape(t)[0] - k - 1, shape(x)[0]
    at = piece_numbers(t, x, k, n - 1)
    A = np.zeros((m, n), like=x if holds_tracked(x) else t)
    for j, w in enumerate(bspline_basis(t, x, at, k)):
        A[constant_like(plain_np.arange(m), t), at + (j - k)] = w
    return A


def made_spline(
    x: Any,
    y: Any,
    k: int = 3,
    t: Any = None,
    bc_type: Any = None,
    axis: int = 0,
    name: str = "make_interp_spline",
) -> Any:
    x, y, axis = prepared(x, y, axis, f"scipy.interpolate.{name}")
    if not by_equations(x, t):
        knots = itp.make_interp_spline(
            bare(x), plain_np.zeros(shape(x)), k, None if t is None else bare(t), bc_type
        ).t
        if t is None:
            c = fit_interpolant("coefficients", x, y, (k, bc_type))
        else:
            c = fit_interpolant("knotted", x, y, (k, tuple(plain_np.asarray(bare(t)).tolist())))
        return BSpline._made(
            constant_like(knots, y), c, k, "periodic" if bc_type == "periodic" else True, axis
        )
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
    x, y, axis = prepared(x, y, axis, "scipy.interpolate.make_lsq_spline")
    if by_equations(x, t, w):
        B, like = collocation(as_float_array(t, x), x, k), y
        W = 1.0 if w is None else trailing(as_float_array(w, like), 1)
        Y = y * (1.0 if w is None else trailing(as_float_array(w, like), ndim(y) - 1))
        G = W * B
        return BSpline._made(
            as_float_array(t, x), np.linalg.solve(G.T @ G, np.tensordot(G, Y, (0, 0))), k, True, axis
        )
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
    if lam is None or holds_tracked(x, w, lam):
        raise refusal_text(
            name, "by nodes, weights and a penalty that is searched for", "lam=, and plain nodes"
        )
    x, y, axis = prepared(x, y, axis, name)
    w = None if w is None else tuple(plain_np.asarray(bare(w)).tolist())
    t = itp.make_smoothing_spline(bare(x), plain_np.zeros(shape(x)), None, float(bare(lam))).t
    return BSpline._made(
        constant_like(t, y), fit_interpolant("smoothed", x, y, (w, float(bare(lam)))), 3, True, axis
    )


# --- interp1d ---

ORDERS = {"zero": 0, "slinear": 1, "quadratic": 2, "cubic": 3}


class interp1d(Interpolant, metaclass=CarrierType):
    _theirs = itp.interp1d
    names = ("x", "y")

    def __init__(
        self,
        x,
        y,
        kind="linear",
        axis=-1,
        copy=True,
        bounds_error=None,
        fill_value=plain_np.nan,
        assume_sorted=False,
    ):
        like = dtype_like(x, y)
        x, y = as_float_array(x, like), as_float_array(y, like)
        self.kind, self.axis, self.bounds_error, self.fill_value = (
            kind,
            axis_of(axis, ndim(y)),
            bounds_error,
            fill_value,
        )
        if shape(x)[0] != shape(y)[self.axis]:
            raise ValueError(
                "scipy.interpolate.interp1d: x and y arrays must be equal in length along interpolation axis."
            )
        y = np.moveaxis(y, self.axis, 0) if self.axis else y
        if not assume_sorted:
            order = np.argsort(primal_of(x), kind="stable")
            x, y = x[order], y[order]
        self.x, self._y = x, y
        self.extrapolate = isinstance(fill_value, str) and fill_value == "extrapolate"
        if self.extrapolate and bounds_error:
            raise ValueError("scipy.interpolate.interp1d: Cannot extrapolate and raise at the same time.")
        order = ORDERS.get(kind, kind)
        self._spline = None
        if not isinstance(order, str) and order > 1:
            self._spline = made_spline(x, y, int(order), name="interp1d")

    y = property(lambda self: np.moveaxis(self._y, 0, self.axis) if self.axis else self._y)

    @classmethod
    def _of(cls, x: Any, shadow: Any) -> Any:
        y = shadow(x.y)
        kind = x._spline.k if x._kind == "spline" else x._kind
        fill = "extrapolate" if x._extrapolate else x.fill_value
        return cls(
            shadow(x.x), y, kind, x.axis, bounds_error=x.bounds_error, fill_value=fill, assume_sorted=True
        )

    def _plain(self) -> Any:
        return self._real()(
            plain_argument(self.x),
            plain_argument(self.y),
            self.kind,
            self.axis,
            True,
            self.bounds_error,
            bare(self.fill_value),
            assume_sorted=True,
        )

    def __call__(self, x):
        if self._answers(x, self.fill_value):
            return as_variable(self._plain()(plain_argument(x)))
        x = as_float_array(x, dtype_like(x, self.x, self._y, self.fill_value))
        to, x = shape(x), np.reshape(x, -1)
        n = shape(self.x)[0]
        low, high = x < self.x[0], x > self.x[n - 1]
        strict = (
            is_nan(self.fill_value) and not self.extrapolate
            if self.bounds_error is None
            else self.bounds_error
        )
        if strict and bool(np.any(low | high)):
            raise ValueError(
                "scipy.interpolate.interp1d: a value in x_new is outside of the interpolation range."
            )
        y = self._inside(x, n)
        if not self.extrapolate:
            below, above = self.fill_value if isinstance(self.fill_value, tuple) else (self.fill_value,) * 2
            wide = ndim(y) - 1
            y = np.where(trailing(low, wide), below, np.where(trailing(high, wide), above, y))
        return arranged(np.reshape(y, to + shape(self._y)[1:]), len(to), self.axis)

    def _inside(self, x: Any, n: int) -> Any:
        if self._spline is not None:
            return self._spline(x)
        v = primal_of(x)
        nodes = primal_of(self.x)
        if self.kind in ("linear", "slinear", 1):
            at = np.clip(np.searchsorted(nodes, v), 1, n - 1)
            x0, x1, y0, y1 = [np.take(v, i, 0) for v in (self.x, self._y) for i in (at - 1, at)]
            return y0 + trailing((x - x0) / (x1 - x0), ndim(self._y) - 1) * (y1 - y0)
        if self.kind in ("nearest", "nearest-up"):
            middle = (nodes[1:] + nodes[:-1]) / 2
            at = np.searchsorted(middle, v, side="left" if self.kind == "nearest" else "right")
        elif self.kind == "next":
            at = np.searchsorted(nodes, v, side="left")
        else:
            at = np.searchsorted(nodes, v, side="right") - 1
        return np.take(self._y, np.clip(at, 0, n - 1), 0) + trailing(0.0 * x, ndim(self._y) - 1)


def is_nan(v: Any) -> bool:
    return isinstance(v, float) and math.isnan(v)


INTERPOLATE.rule(itp.interp1d)(interp1d)

# --- polynomials through all nodes ---


def newton_columns(xi: Any, yi: Any) -> list:
    """The divided differences from the first node on."""
    n = shape(xi)[0]
    column = [yi[i] for i in range(n)]
    top = [column[0]]
    for d in range(1, n):
        column = [(column[i + 1] - column[i]) / (xi[i + d] - xi[i]) for i in range(n - d)]
        top.append(column[0])
    return top


def newton_form(xi: Any, yi: Any, x: Any) -> Any:
    """By divided differences, along the first axis."""
    n, top = shape(xi)[0], newton_columns(xi, yi)
    wide = ndim(yi) - 1
    y = top[-1] + trailing(0.0 * x, wide)
    for d in range(n - 2, -1, -1):
        y = y * trailing(x - xi[d], wide) + top[d]
    return y


def through_all(xi: Any, yi: Any, x: Any, axis: int) -> Any:
    like = dtype_like(xi, yi, x)
    xi, yi, x = as_float_array(xi, like), as_float_array(yi, like), as_float_array(x, like)
    axis = axis_of(axis, ndim(yi))
    y = newton_form(xi, np.moveaxis(yi, axis, 0) if axis else yi, np.reshape(x, -1))
    return arranged(np.reshape(y, shape(x) + shape(y)[1:]), ndim(x), axis)


@INTERPOLATE.rule(itp.barycentric_interpolate)
def barycentric_interpolate(xi, yi, x, axis=0, *, der=0, rng=None):
    if der != 0:
        raise ArgumentError("scipy.interpolate.barycentric_interpolate: der= has no derivative here")
    return through_all(xi, yi, x, axis)


@INTERPOLATE.rule(itp.krogh_interpolate)
def krogh_interpolate(xi, yi, x, der=0, axis=0):
    nodes = seen(xi) if holds_tracked(xi) else xp_of(plain_argument(xi)).asarray(plain_argument(xi))
    if der != 0 or nodes is not None and len(set(nodes.tolist())) < len(nodes):
        raise ArgumentError(
            "scipy.interpolate.krogh_interpolate: der=, and nodes that are given twice, have no derivative "
            "here"
        )
    return through_all(xi, yi, x, axis)


class DataPolynomial(Interpolant):
    """The polynomial through all data, by divided differences."""

    names = ("xi", "_yi")

    def _take(self, xi: Any, yi: Any, axis: int) -> None:
        like = dtype_like(xi, yi)
        self.xi, yi = as_float_array(xi, like), as_float_array(yi, like)
        self._axis = axis_of(axis, ndim(yi))
        self._yi = np.moveaxis(yi, self._axis, 0) if self._axis else yi
        if shape(self.xi)[0] != shape(self._yi)[0]:
            raise ValueError(
                f"scipy.interpolate.{type(self)._theirs.__name__}: xi and yi do not fit together"
            )

    yi = property(lambda self: np.moveaxis(self._yi, 0, self._axis) if self._axis else self._yi)

    def _plain(self) -> Any:
        return self._real()(plain_argument(self.xi), plain_argument(self.yi), self._axis)

    def __call__(self, x):
        if self._answers(x):
            return as_variable(self._plain()(plain_argument(x)))
        return through_all(self.xi, self.yi, x, self._axis)

    def derivatives(self, x, der=None):
        """Of all orders at x: those of the polynomials left by division, each at x, times the factorial."""
        n = shape(self.xi)[0]
        count, x = n if der is None else int(der), as_float_array(x, dtype_like(x, self.xi, self._yi))
        flat, wide = np.reshape(x, -1), ndim(self._yi) - 1
        columns, found = newton_columns(self.xi, self._yi), [0.0] * count
        for d in range(n - 1, -1, -1):  # Horner's scheme, with the derivatives of what was summed so far
            for j in range(count - 1, 0, -1):
                found[j] = found[j] * trailing(flat - self.xi[d], wide) + j * found[j - 1]
            found[0] = found[0] * trailing(flat - self.xi[d], wide) + columns[d]
        zero = trailing(0.0 * flat, wide)
        return np.stack(
            [
                arranged(np.reshape(v + zero, shape(x) + shape(v + zero)[1:]), ndim(x), self._axis)
                for v in found
            ]
        )

    def derivative(self, x, der=1):
        return self.derivatives(x, der + 1)[der]


class BarycentricInterpolator(DataPolynomial, metaclass=CarrierType):
    _theirs = itp.BarycentricInterpolator

    def __init__(self, xi, yi=None, axis=0, *, wi=None, rng=None, random_state=None):
        if yi is None:
            raise refusal_text(
                "scipy.interpolate.BarycentricInterpolator",
                "without its data",
                "BarycentricInterpolator(xi, yi)",
            )
        self._take(xi, yi, axis)

    @classmethod
    def _of(cls, x: Any, shadow: Any) -> Any:
        new = object.__new__(cls)
        new._take(shadow(x.xi), np.reshape(shadow(x.yi), (len(x.xi), *x._y_extra_shape)), 0)
        new._axis = x._y_axis
        return new


class KroghInterpolator(DataPolynomial, metaclass=CarrierType):
    _theirs = itp.KroghInterpolator

    def __init__(self, xi, yi, axis=0):
        nodes = seen(xi) if holds_tracked(xi) else xp_of(plain_argument(xi)).asarray(plain_argument(xi))
        if nodes is not None and len(set(nodes.tolist())) < len(nodes):
            raise refusal_text(
                "scipy.interpolate.KroghInterpolator", "with nodes given twice", "CubicHermiteSpline"
            )
        self._take(xi, yi, axis)
        if shape(self.xi)[0] > 30:
            warn_user(
                "KroghInterpolator: more than about thirty degrees cause problems with numerical instability",
                UserWarning,
            )


for _ours in (BarycentricInterpolator, KroghInterpolator):
    INTERPOLATE.rule(_ours._theirs)(_ours)
