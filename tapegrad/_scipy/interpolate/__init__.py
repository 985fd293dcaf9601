"""scipy.interpolate: scattered data; splines of one variable stand in interpolate.splines.py, those on grids
in interpolate.gridded.py."""

import sys

import numpy as plain_np
import scipy.interpolate as itp
import scipy.spatial

from ... import numpy as np
from ..._core.registry import load
from ...ops.creation import as_variable
from ...ops.declare import ndim, shape, xp
from ..linear_maps import AxisMap, mapped, rows_of
from ..namespaces import (
    CarrierType,
    as_float_array,
    bare,
    holds_tracked,
    on_a_device,
    plain_argument,
    refusal_text,
)
from . import fitpack as fitpack
from . import gridded as gridded
from . import radial as radial
from . import splines as splines
from .piecewise import FOLLOWED, INTERPOLATE, Interpolant, dtype_like, point_coordinates, trailing


class ScatteredInterpolant(Interpolant, metaclass=CarrierType):
    """Through points anywhere. `offset` and `scale`: of the coordinates in which the points are given, as
    SciPy's object holds them after `rescale`; None for their own."""

    names = ("points", "values")
    offset = scale = None

    def _rescaled(self, points, rescale: bool):
        if rescale:
            self.offset, size = bare(points).mean(0), np.ptp(bare(points), axis=0)
            self.scale = xp(size).where(size > 0, size, 1.0)
        return self._in_scale(points)

    def _in_scale(self, points):
        return points if self.scale is None else (points - self.offset) / self.scale

    def _like(self, x):
        """This object, or SciPy's, in the scale of x."""
        self.offset, self.scale = getattr(x, "offset", None), x.scale
        return self


class LinearNDInterpolator(ScatteredInterpolant, metaclass=CarrierType):
    """Linear on each simplex of a triangulation, which is found by the values of the nodes."""

    _theirs = itp.LinearNDInterpolator

    def __init__(self, points, values, fill_value=plain_np.nan, rescale=False):
        like = dtype_like(points, values)
        if hasattr(points, "simplices"):  # a triangulation
            self._tri, points = points, points.points
        else:
            points = self._rescaled(point_coordinates(points, like=like), rescale)
            self._tri = (load("cupyx.scipy.spatial") if on_a_device((points,)) else scipy.spatial).Delaunay(
                bare(points)
            )
        self.points, self.values, self.fill_value = (
            as_float_array(points, like),
            as_float_array(values, like),
            fill_value,
        )

    @classmethod
    def _of(cls, x, shadow):
        new = ScatteredInterpolant._like(object.__new__(LinearNDInterpolator), x)
        values = shadow(x.values)
        new._tri, new.points = x.tri, shadow(x.points)
        new.values, new.fill_value = np.reshape(values, (shape(values)[0], *x.values_shape)), x.fill_value
        return new

    def _plain(self):
        real = self._real()(self._tri, plain_argument(self.values), self.fill_value)
        return ScatteredInterpolant._like(real, self)

    def __call__(self, *args, simplex_tolerance=None):
        more = {} if simplex_tolerance is None else {"simplex_tolerance": simplex_tolerance}
        if self._answers(args):
            return as_variable(self._plain()(*plain_argument(args), **more))
        like = dtype_like(args, self.points, self.values)
        x = self._in_scale(point_coordinates(args, shape(self.points)[1], like))
        to, flat = shape(x)[:-1], np.reshape(x, (-1, shape(x)[-1]))
        # as in SciPy, a multiple of find_simplex's default
        tol = None if simplex_tolerance is None else 100.0 * sys.float_info.epsilon * simplex_tolerance
        where = self._tri.find_simplex(bare(flat), tol=tol)
        corners = self._tri.simplices[where.clip(0)]
        nodes = self.points[corners]  # (points, corners, coordinates)
        last = shape(nodes)[1] - 1
        edges = np.swapaxes(nodes[:, :last] - nodes[:, last:], 1, 2)
        w = np.linalg.solve(edges, (flat - nodes[:, last])[..., None])[..., 0]
        w = np.concatenate([w, 1.0 - np.sum(w, -1, keepdims=True)], -1)
        wide = ndim(self.values) - 1
        y = np.sum(trailing(w, wide) * self.values[corners], 1)
        y = np.where(trailing(where < 0, wide), self.fill_value, y)
        return np.reshape(y, to + shape(self.values)[1:])


class NearestNDInterpolator(ScatteredInterpolant, metaclass=CarrierType):
    _theirs = itp.NearestNDInterpolator

    def __init__(self, x, y, rescale=False, tree_options=None):
        like = dtype_like(x, y)
        self.points = self._rescaled(point_coordinates(x, like=like), rescale)
        self.values, self._options = as_float_array(y, like), tree_options

    @classmethod
    def _of(cls, x, shadow):
        new = ScatteredInterpolant._like(object.__new__(NearestNDInterpolator), x)
        new.points, new.values, new._options = shadow(x.points), shadow(x.values), None
        return new

    def _plain(self):
        return self._through(plain_argument(self.values))

    def _through(self, values):
        real = self._real()(plain_argument(bare(self.points)), values, False, self._options)
        return ScatteredInterpolant._like(real, self)

    def __call__(self, *args, **query_options):
        library = xp(self.points)
        at = self._through(library.arange(shape(self.values)[0]))(*bare(args), **query_options)
        far = library.isnan(at)  # farther than `distance_upper_bound`
        y = self.values[library.where(far, 0, at).astype(int)]
        return np.where(trailing(far, ndim(self.values) - 1), plain_np.nan, y) if far.any() else y


for _ours in (LinearNDInterpolator, NearestNDInterpolator):
    INTERPOLATE.rule(_ours._theirs)(_ours)


INTERPOLATE.rule(itp.approximate_taylor_polynomial, of_functions=True)(
    FOLLOWED.function(itp.approximate_taylor_polynomial)
)
INTERPOLATE.constant(itp.interp2d)  # it is no more, and only says so


class CloughTocher2DInterpolator(ScatteredInterpolant, metaclass=CarrierType):
    """Linear in the values, for points and places that stay."""

    _theirs = itp.CloughTocher2DInterpolator

    def __init__(self, points, values, fill_value=plain_np.nan, tol=1e-06, maxiter=400, rescale=False):
        self.points, self.values, self._settings = (
            points,
            as_float_array(values),
            (fill_value, min(tol, 1e-12), max(maxiter, 4000), rescale),
        )
        if holds_tracked(points):
            raise refusal_text(
                "scipy.interpolate.CloughTocher2DInterpolator", "by its points", "RBFInterpolator"
            )

    @classmethod
    def _of(cls, x, shadow):
        values = np.reshape(shadow(x.values), (shape(x.values)[0], *x.values_shape))
        return cls(x.tri, values, x.fill_value)._like(x)

    def _tracked(self) -> bool:
        return holds_tracked(self.values)

    def _plain(self):
        real = self._real()(self.points, plain_argument(self.values), *self._settings)
        return real if self.scale is None else ScatteredInterpolant._like(real, self)

    def __call__(self, *args, simplex_tolerance=None):
        more = {} if simplex_tolerance is None else {"simplex_tolerance": simplex_tolerance}
        if holds_tracked(args):
            raise refusal_text(
                "scipy.interpolate.CloughTocher2DInterpolator", "by the place", "RBFInterpolator"
            )
        if not self._tracked():
            return as_variable(self._plain()(*plain_argument(args), **more))
        fill, *settings = self._settings
        library, real, rows = xp(self.values), self._real(), shape(self.values)[0]
        points = self.points if hasattr(self.points, "simplices") else bare(self.points)
        places = bare(self._in_scale(point_coordinates(args, 2, self.values)))
        flat = rows_of(places)
        on = lambda v: real(points, v, 0.0, *settings)(flat, **more)
        columns = AxisMap(
            lambda v: library.stack([on(row) for row in v.reshape(-1, rows)]).reshape(*v.shape[:-1], -1), rows
        )
        y = np.moveaxis(mapped(np.moveaxis(self.values, 0, -1), map=columns), -1, 0)
        outside = library.isnan(real(points, library.zeros(rows))(flat, **more))
        y = np.where(trailing(outside, ndim(y) - 1), fill, y)
        return np.reshape(y, places.shape[:-1] + shape(self.values)[1:])


INTERPOLATE.rule(itp.CloughTocher2DInterpolator)(CloughTocher2DInterpolator)
INTERPOLATE.refuse(
    "its knots are chosen by FITPACK in two variables", "RectBivariateSpline, LSQBivariateSpline or "
    "SmoothBivariateSpline",
    itp.bisplrep,
)  # fmt: skip
INTERPOLATE.follow(FOLLOWED)


stand_in = INTERPOLATE.stand_in("tapegrad.scipy.interpolate")
