"""Products of splines on a grid."""

import inspect
import math

import numpy as plain_np
import scipy.interpolate as itp
from scipy.interpolate import _rgi_cython as rgi_compiled

from ... import numpy as np
from ..._core.errors import ArgumentError
from ..._core.primitive import primal_of
from ...ops.creation import as_variable
from ...ops.declare import ndim, shape
from ...ops.nondifferentiable import holds_somewhere
from ..linear_maps import AxisMap, mapped, rows_of
from ..namespaces import (
    CarrierType,
    as_float_array,
    constant_like,
    holds_tracked,
    plain_argument,
    refusal_text,
)
from .piecewise import (
    FOLLOWED,
    INTERPOLATE,
    Interpolant,
    bspline_basis,
    differentiated,
    dtype_like,
    piece_numbers,
    trailing,
)
from .splines import made_spline


def grid_weights(t, x, k: int) -> tuple:
    """(places of the first coefficients, the k + 1 weights along a last axis) of points on an axis with these
    knots."""
    at = piece_numbers(t, x, k, shape(t)[0] - k - 2)
    return at - k, np.stack(bspline_basis(t, x, at, k), -1)


def tensor_product_sum(c, axes: list):
    """The sum over the neighbours of points in a grid of coefficients; axes: (place of the first, weights)
    for each leading axis."""
    flat, d = 0, len(axes)
    to = shape(c)
    for i, (first, w) in enumerate(axes):
        at = np.expand_dims(first, -1) + constant_like(plain_np.arange(shape(w)[-1]), w)
        flat = flat + at[(slice(None),) + (None,) * i + (slice(None),) + (None,) * (d - 1 - i)] * math.prod(
            to[i + 1 : d]
        )
    values = np.take(np.reshape(c, (math.prod(to[:d]), *to[d:])), flat, 0)
    for _, w in reversed(axes):
        wide = ndim(values) - len(to[d:]) - 2
        values = np.sum(values * trailing(w[(slice(None),) + (None,) * wide], len(to[d:])), 1 + wide)
    return values


def find_indices(grid, xi) -> tuple:
    """(the cell of each point, the part of the cell before the point), along each axis. SciPy's cell on an
    axis of one node is -1."""
    cells, parts = [], []
    for p, x in zip(grid, xi, strict=True):
        last = shape(p)[0] - 2
        at = np.clip(np.searchsorted(primal_of(p), primal_of(x), side="right") - 1, min(last, 0), last)
        low = np.take(p, at)
        cells.append(at)
        parts.append((x - low) / (np.take(p, at + 1) - low) if last >= 0 else 0.0 * low)
    return np.stack(cells), np.stack(parts)


def evaluate_linear_2d(values, indices, norm_distances, grid, out):
    (i, j), (s, t) = indices, norm_distances
    low, high = [values[i, k] + s * (values[i + 1, k] - values[i, k]) for k in (j, j + 1)]
    return low + t * (high - low)


def by_axes(run):
    """SciPy solves one system for all axes by iterations, with errors of 1e-6."""

    def _construct_spline(self, method, solver=None, **solver_args):
        k = (self._SPLINE_DEGREE_MAP[method],) * len(self.grid)
        c, knots = coefficients_on_grid(self.grid, self.values, k)
        return NdBSpline(knots, c, k)

    return _construct_spline


def coefficients_on_grid(points, values, degrees: tuple) -> tuple:
    """(coefficients of the product of interpolating splines, their knots)."""
    c, knots = values, []
    for i, (p, k) in enumerate(zip(points, degrees, strict=True)):
        spline = made_spline(p, np.moveaxis(c, i, 0) if i else c, k, name="RegularGridInterpolator")
        c = np.moveaxis(spline.c, 0, i) if i else spline.c
        knots.append(spline.t)
    return c, knots


for _f in (find_indices, evaluate_linear_2d):
    FOLLOWED.leaf(getattr(rgi_compiled, _f.__name__), _f)
FOLLOWED.decorate(itp.RegularGridInterpolator._construct_spline, by_axes)
INTERPOLATE.rule(itp.RegularGridInterpolator)(FOLLOWED.klass(itp.RegularGridInterpolator))


class RectBivariateSpline(Interpolant, metaclass=CarrierType):
    """Through all data of a grid (s = 0)."""

    _theirs = itp.RectBivariateSpline
    names = ("tx", "ty", "c")

    def __init__(self, x, y, z, bbox=(None,) * 4, kx=3, ky=3, s=0, maxit=20):
        if s != 0 or tuple(bbox) != (None,) * 4:
            raise refusal_text(
                "scipy.interpolate.RectBivariateSpline",
                "with s > 0 its knots are chosen by the data",
                "s=0 and no bbox",
            )
        like = dtype_like(x, y, z)
        self.degrees = kx, ky
        self.c, (self.tx, self.ty) = coefficients_on_grid(
            (as_float_array(x, like), as_float_array(y, like)), as_float_array(z, like), (kx, ky)
        )

    @classmethod
    def _of(cls, x, shadow):
        new = object.__new__(RectBivariateSpline)
        tx, ty, c = x.tck
        new.degrees = kx, ky = x.degrees
        new.tx, new.ty, new.c = shadow(tx), shadow(ty), shadow(c.reshape(len(tx) - kx - 1, len(ty) - ky - 1))
        return new

    def _plain(self):
        tck = plain_argument(self.tx), plain_argument(self.ty), plain_np.ravel(plain_argument(self.c))
        return itp.BivariateSpline._from_tck((*tck, *self.degrees))

    def __call__(self, x, y, dx=0, dy=0, grid=True):
        if not holds_tracked(x, y) and not self._tracked():
            return as_variable(self._plain()(plain_argument(x), plain_argument(y), dx, dy, grid))
        like = dtype_like(x, y, self.c, self.tx, self.ty)
        x, y = as_float_array(x, like), as_float_array(y, like)
        if grid:
            p, q = np.reshape(x, -1), np.reshape(y, -1)
            x = np.reshape(p[:, None] + np.zeros(shape(q)), -1)
            y = np.reshape(q[None, :] + np.zeros((shape(p)[0], 1)), -1)
            return np.reshape(self._at(x, y, dx, dy), (shape(p)[0], shape(q)[0]))
        to = plain_np.broadcast_shapes(shape(x), shape(y))
        x, y = [np.reshape(np.broadcast_to(v, to), -1) for v in (x, y)]
        return np.reshape(self._at(x, y, dx, dy), to)

    def ev(self, xi, yi, dx=0, dy=0):
        return self(xi, yi, dx, dy, grid=False)

    def _at(self, x, y, dx: int, dy: int):
        c, (kx, ky) = self.c, self.degrees
        x, y = [np.clip(v, t[k], t[shape(t)[0] - k - 1]) for v, t, k in ((x, self.tx, kx), (y, self.ty, ky))]
        tx, c, kx = differentiated(self.tx, c, kx, dx)
        ty, c, ky = differentiated(self.ty, np.transpose(c), ky, dy)
        return tensor_product_sum(
            np.transpose(c), [grid_weights(t, v, k) for t, v, k in ((tx, x, kx), (ty, y, ky))]
        )


INTERPOLATE.rule(itp.RectBivariateSpline)(RectBivariateSpline)


def given_by_tck(real) -> type:
    """A class whose knots are chosen by its data: with plain data, differentiated by the point."""

    def __init__(self, *args, **kwargs):
        if holds_tracked(args, kwargs):
            why = "its knots are chosen by the data"
            raise refusal_text(
                f"scipy.interpolate.{real.__name__}", why, "RectBivariateSpline or RBFInterpolator"
            )
        self.__dict__.update(
            RectBivariateSpline._of(
                real(*plain_argument(args), **plain_argument(kwargs)), lambda x: x
            ).__dict__
        )

    return CarrierType(
        real.__name__,
        (RectBivariateSpline,),
        {"_theirs": real, "__init__": __init__, "__doc__": real.__doc__},
    )


for _real in (itp.BivariateSpline, itp.SmoothBivariateSpline, itp.LSQBivariateSpline):
    INTERPOLATE.rule(_real)(given_by_tck(_real))


class SphereSpline(RectBivariateSpline):
    """On a sphere: for places, weights and knots that stay, the coefficients are linear in the data."""

    def __init__(self, *args, **kwargs):
        real = type(self)._theirs
        given = inspect.signature(real).bind(*args, **kwargs).arguments
        r = given.pop("r")
        if (
            holds_tracked(given)
            or holds_tracked(r)
            and (real is itp.SmoothSphereBivariateSpline or given.get("s"))
        ):
            raise refusal_text(
                f"scipy.interpolate.{real.__name__}",
                "by anything but the data, or with s > 0",
                "it with plain places, and s=0",
            )
        given = plain_argument(given)
        coefficients = lambda y: plain_np.array(
            [real(**given, r=row.reshape(shape(r))).tck[2] for row in rows_of(y)]
        )
        self.tx, self.ty, c = real(
            **given, r=plain_np.ones(shape(r)) if holds_tracked(r) else plain_argument(r)
        ).tck  # (the knots are of the places)
        self.degrees = kx, ky = 3, 3
        if holds_tracked(r):
            n = math.prod(shape(r))
            c = mapped(
                np.reshape(as_float_array(r), -1),
                map=AxisMap(lambda y: coefficients(y).reshape(*y.shape[:-1], -1), n),
            )
        self.c = np.reshape(c, (len(self.tx) - kx - 1, len(self.ty) - ky - 1))

    def __call__(self, theta, phi, dtheta=0, dphi=0, grid=True):
        for name, angle, most in (("theta", theta, math.pi), ("phi", phi, 2 * math.pi)):
            angle = np.asarray(angle)
            if holds_somewhere((angle < 0) | (angle > most)):
                raise ValueError(f"scipy.interpolate: requested {name} out of bounds.")
        return RectBivariateSpline.__call__(self, theta, phi, dtheta, dphi, grid)

    def ev(self, theta, phi, dtheta=0, dphi=0):
        return self(theta, phi, dtheta, dphi, grid=False)


for _real in (itp.RectSphereBivariateSpline, itp.LSQSphereBivariateSpline, itp.SmoothSphereBivariateSpline):
    INTERPOLATE.rule(_real)(
        CarrierType(_real.__name__, (SphereSpline,), {"_theirs": _real, "__doc__": _real.__doc__})
    )


@INTERPOLATE.rule(itp.bisplev)
def bisplev(x, y, tck, dx=0, dy=0):
    tx, ty, c, kx, ky = tck
    like = dtype_like(x, y, c, tx, ty)
    spline = object.__new__(RectBivariateSpline)
    spline.tx, spline.ty, spline.degrees = as_float_array(tx, like), as_float_array(ty, like), (kx, ky)
    spline.c = np.reshape(as_float_array(c, like), (shape(tx)[0] - kx - 1, shape(ty)[0] - ky - 1))
    x, y = [np.atleast_1d(as_float_array(v, like)) for v in (x, y)]
    z = spline(x, y, dx, dy)
    return z if shape(z)[0] > 1 and shape(z)[1] > 1 else z[0, 0] if shape(z) == (1, 1) else np.reshape(z, -1)


class NdBSpline(Interpolant, metaclass=CarrierType):
    _theirs = itp.NdBSpline
    names = ("t", "c")

    def __init__(self, t, c, k, *, extrapolate=None):
        like = dtype_like(t, c)
        self.t, self.c = tuple([as_float_array(v, like) for v in t]), as_float_array(c, like)
        self.k = (int(k),) * len(self.t) if plain_np.ndim(k) == 0 else tuple([int(v) for v in k])
        self.extrapolate = True if extrapolate is None else bool(extrapolate)

    @classmethod
    def _of(cls, x, shadow):
        return cls([shadow(v) for v in x.t], shadow(x.c), x.k, extrapolate=x.extrapolate)

    def _plain(self):
        return itp.NdBSpline(
            plain_argument(self.t), plain_argument(self.c), self.k, extrapolate=self.extrapolate
        )

    def __call__(self, xi, *, nu=None, extrapolate=None):
        if self._answers(xi):
            return as_variable(self._plain()(plain_argument(xi), nu=nu, extrapolate=extrapolate))
        if nu is not None and plain_np.any(nu):
            raise ArgumentError("scipy.interpolate.NdBSpline: nu= has no derivative here")
        xi = as_float_array(xi, dtype_like(xi, self.c, self.t))
        d, to = len(self.t), shape(xi)[:-1]
        flat = np.reshape(xi, (-1, d))
        c = self.c[tuple([slice(shape(t)[0] - k - 1) for t, k in zip(self.t, self.k, strict=True)])]
        axes = [grid_weights(t, flat[:, i], k) for i, (t, k) in enumerate(zip(self.t, self.k, strict=True))]
        y = tensor_product_sum(c, axes)
        if not (self.extrapolate if extrapolate is None else extrapolate):
            for i, (t, k) in enumerate(zip(self.t, self.k, strict=True)):
                out = (flat[:, i] < t[k]) | (flat[:, i] > t[shape(t)[0] - k - 1])
                y = np.where(trailing(out, ndim(y) - 1), plain_np.nan, y)
        return np.reshape(y, to + shape(self.c)[d:])


INTERPOLATE.rule(itp.NdBSpline)(NdBSpline)
