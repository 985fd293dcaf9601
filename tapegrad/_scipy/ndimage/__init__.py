"""scipy.ndimage: filters by weights, and images seen through splines."""

import math
from typing import Any

import numpy as plain_np
import scipy.ndimage as ndi
from scipy.ndimage._filters import _gaussian_kernel1d as gaussian_kernel

from ... import numpy as np
from ..._core.errors import ArgumentError
from ...ops.declare import dtype, ndim, shape
from ..followed import Follower
from ..linear_maps import SettingsFunction, apply_linear, overlap
from ..namespaces import as_float_array, as_integer, bare, constant_like, holds_tracked, plain_setting
from .labelled_regions import NDIMAGE, filter_axes, finished, modes_by_axis, origin_of, padded_input, per_axis

# --- filters by weights ---


def weighed(x: Any, weights: Any, mode: Any, cval: Any, origin: list, name: str) -> Any:
    """sum_k w[k] x[n + k - size // 2 - origin], x and w of as many axes; along those where w has length 1
    nothing is done."""
    width = [(m // 2 + o, m - 1 - m // 2 - o) for m, o in zip(shape(weights), origin, strict=True)]
    for (low, high), m in zip(width, shape(weights), strict=True):
        if low < 0 or high < 0 and m:
            raise ValueError(f"{name}: invalid origin")
    x = padded_input(x, width, mode, cval, name)
    used = tuple([i for i, m in enumerate(shape(weights)) if m > 1])
    if not used:
        return x * np.reshape(weights, ())
    order = tuple([i for i in range(ndim(x)) if i not in used]) + used
    if order == tuple(range(ndim(x))):
        return overlap(x, weights, k=len(used))
    y = overlap(np.transpose(x, order), np.transpose(weights, order), k=len(used))
    return np.transpose(y, tuple(plain_np.argsort(order)))


def correlated(flip: bool, name: str) -> Any:
    def run(input, weights, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None):
        like = input if holds_tracked(input) else weights
        x, w = as_float_array(input, like), as_float_array(weights, like)
        origins = origin_of(origin, axes, x)
        used = filter_axes(x, axes)
        if ndim(w) != len(used):
            raise RuntimeError(f"{name}: filter weights array has incorrect shape")
        if ndim(w) < ndim(x):
            w = np.expand_dims(w, tuple([i for i in range(ndim(x)) if i not in used]))
        if flip:
            w = w[(slice(None, None, -1),) * ndim(w)]
            origins = [-o - (1 if m % 2 == 0 else 0) for o, m in zip(origins, shape(w), strict=True)]
        return finished(weighed(x, w, modes_by_axis(mode, axes, x), cval, origins, name), output)

    return run


correlate = NDIMAGE.rule(ndi.correlate)(correlated(False, "scipy.ndimage.correlate"))
convolve = NDIMAGE.rule(ndi.convolve)(correlated(True, "scipy.ndimage.convolve"))


def per_axis_rule(whole: Any) -> Any:
    def run(input, weights, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
        return whole(input, weights, output, mode, cval, origin, axes=(axis,))

    return run


correlate1d, convolve1d = (
    NDIMAGE.rule(ndi.correlate1d)(per_axis_rule(correlate)),
    NDIMAGE.rule(ndi.convolve1d)(per_axis_rule(convolve)),
)


def gaussian_weights(sigma: Any, order: int, radius: int) -> Any:
    """exp(-x^2 / (2 sigma^2)), normalised, times the polynomial that the derivatives of this order bring."""
    x = plain_np.arange(-radius, radius + 1.0)
    phi = np.exp(-0.5 * x**2 / sigma**2)
    phi = phi / np.sum(phi)
    q = [1.0] + [0.0] * order  # coefficients of the polynomial; d/dx: q' - x q / sigma^2
    for _ in range(order):
        slope = [(k + 1) * c for k, c in enumerate(q[1:])] + [0.0]
        q = [d - c / sigma**2 for d, c in zip(slope, [0.0, *q[:-1]], strict=True)]
    return phi * sum([c * x**k for k, c in enumerate(q)]) if order else phi


@NDIMAGE.rule(ndi.uniform_filter1d)
def uniform_filter1d(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    x = as_float_array(input)
    return correlate1d(
        x,
        constant_like(plain_np.full(as_integer(size), 1 / as_integer(size)), x),
        axis,
        output,
        mode,
        cval,
        origin,
    )


# --- in the frequency domain: a factor for each frequency ---


def by_factor(f: Any) -> Any:
    def run(input, setting, n=-1, axis=-1, output=None):
        x = as_float_array(input)
        ones = plain_np.ones(shape(x), complex if f is ndi.fourier_shift else float)
        factor = f(ones, plain_setting(setting, f"scipy.ndimage.{f.__name__}", "its setting"), n, axis)
        return finished(x * constant_like(factor, x), output)

    return run


for _f in (ndi.fourier_gaussian, ndi.fourier_uniform, ndi.fourier_ellipsoid, ndi.fourier_shift):
    NDIMAGE.rule(_f)(by_factor(_f))

# --- splines on images ---


@NDIMAGE.rule(ndi.spline_filter1d)
def spline_filter1d(input, order=3, axis=-1, output=None, mode="mirror"):
    x = as_float_array(input)
    if as_integer(order) in (0, 1):
        return finished(x, None if output is plain_np.float64 else output)
    if dtype(x).kind == "c":
        return spline_filter1d(x.real, order, axis, None, mode) + 1j * spline_filter1d(
            x.imag, order, axis, None, mode
        )
    return finished(
        apply_linear(FilterFunction(as_integer(order), mode), x, axis),
        None if output is plain_np.float64 else output,
    )


class FilterFunction(SettingsFunction):
    def __init__(self, order: int, mode: str):
        super().__init__(ndi.spline_filter1d, order=order, mode=mode)

    def __call__(self, x: Any) -> Any:
        return self.on(x)(x, **self.settings, axis=-1, output=x.dtype)


@NDIMAGE.rule(ndi.spline_filter)
def spline_filter(input, order=3, output=None, mode="mirror"):
    x = as_float_array(input)
    for i in range(ndim(x)):
        x = spline_filter1d(x, order, i, None, mode)
    return finished(x, None if output is plain_np.float64 else output)


def spline_weights(s: Any, order: int) -> list:
    """The values at s, in [0, 1], of the order + 1 cardinal B-splines that are not zero there."""
    w = [1.0 + 0.0 * s]
    for k in range(1, order + 1):
        w = [
            ((s + (k - j)) * w[j - 1] if j else 0.0) + ((j + 1 - s) * w[j] if j < k else 0.0)
            for j in range(k + 1)
        ]
        w = [v / k for v in w]
    return w


def extended_index(i: Any, n: int, mode: str) -> Any:
    """Where in 0, .., n - 1 the number i lies, extended by the mode."""
    if mode == "mirror":
        period = max(2 * n - 2, 1)
        i = i % period
        return np.where(i > n - 1, period - i, i)
    if mode in ("reflect", "grid-mirror"):
        i = i % (2 * n)
        return np.where(i > n - 1, 2 * n - 1 - i, i)
    if mode == "grid-wrap":
        return i % n
    return np.clip(i, 0, n - 1)


def brought_in(c: Any, n: int, mode: str) -> Any:
    """Coordinates brought into the image, as ndimage does; those of the modes 'constant' stay."""
    if mode == "nearest":
        return np.clip(c, 0.0, n - 1.0)
    if mode in ("constant", "grid-constant") or n == 1:
        return c if mode in ("constant", "grid-constant") else 0.0 * c
    if mode == "wrap":
        turns = np.where((c < 0) | (c > n - 1), np.floor(c / (n - 1.0)), 0.0)
        return c - turns * (n - 1.0)
    if mode == "grid-wrap":
        inside = (c >= 0) & (c <= n - 1)
        return c - np.where(inside, 0.0, np.floor(c / n)) * float(n)
    if mode == "mirror":
        c = c - np.floor(c / (2.0 * n - 2)) * (2.0 * n - 2)
        return np.where(c > n - 1, 2.0 * n - 2 - c, c)
    c = c + 0.5 - np.floor((c + 0.5) / (2.0 * n)) * (2.0 * n)
    return np.where(c > n, 2.0 * n - c, c) - 0.5


MODES = ("reflect", "grid-mirror", "constant", "grid-constant", "nearest", "mirror", "grid-wrap", "wrap")
# so far the image is continued before it is made a spline, where there is no exact condition at the edge
EDGE = 12


def sampled(x: Any, coordinates: list, order: Any, mode: str, cval: Any, prefilter: bool, name: str) -> Any:
    """The spline through the image x, of as many axes as there are coordinates, at these, arrays of one
    shape."""
    order = as_integer(order)
    if not 0 <= order <= 5:
        raise RuntimeError(f"{name}: spline order not supported")
    if mode not in MODES:
        raise RuntimeError(f"{name}: boundary mode {mode!r} not supported")
    outside, base = None, 0
    if mode == "constant":
        for c, n in zip(coordinates, shape(x), strict=True):
            out = (c < 0) | (c > n - 1)
            outside = out if outside is None else outside | out
    if prefilter and order > 1:
        if mode in ("nearest", "grid-constant"):
            base = EDGE
            x = padded_input(x, [(EDGE, EDGE)] * ndim(x), mode, cval, name)
        x = spline_filter(x, order, None, mode)
    within = {"constant": "mirror", "wrap": "mirror"}.get(mode, mode)
    flat, weights, off = 0, [], None
    for i, (c, whole) in enumerate(zip(coordinates, shape(x), strict=True)):
        c = brought_in(c + float(base) if base else c, whole, mode)
        first = np.floor(c if order % 2 else c + 0.5)
        s = c - first if order % 2 else c - first + 0.5
        at = np.expand_dims(np.astype(first, int), -1) + constant_like(
            plain_np.arange(order + 1) - order // 2, c
        )
        weights.append(
            np.stack([w * np.ones(shape(c)) if not shape(w) else w for w in spline_weights(s, order)], -1)
        )
        beyond = (at < 0) | (at > whole - 1)
        at = extended_index(at, whole, within)
        spread = (slice(None),) + (None,) * i + (slice(None),) + (None,) * (len(coordinates) - 1 - i)
        flat = flat + at[spread] * math.prod(shape(x)[i + 1 :])
        if mode == "grid-constant":
            off = beyond[spread] if off is None else off | beyond[spread]
    values = np.take(np.reshape(x, -1), flat)
    if off is not None:
        values = np.where(off, cval, values)
    for w in reversed(weights):  # the last axis of the neighbours first
        n = ndim(values)
        values = np.sum(values * w[(slice(None),) + (None,) * (n - 2) + (slice(None),)], -1)
    return values if outside is None else np.where(outside, cval, values)


def at_points(
    x: Any,
    coordinates: Any,
    to: tuple,
    order: Any,
    mode: str,
    cval: Any,
    prefilter: bool,
    output: Any,
    name: str,
) -> Any:
    flat = [np.reshape(c, -1) for c in coordinates]
    like = x if holds_tracked(x) else next((c for c in flat if holds_tracked(c)), x)
    y = np.reshape(sampled(as_float_array(x, like), flat, order, mode, cval, prefilter, name), to)
    return finished(y, output if not isinstance(output, tuple) else None)


@NDIMAGE.rule(ndi.map_coordinates)
def map_coordinates(input, coordinates, output=None, order=3, mode="constant", cval=0.0, prefilter=True):
    c = as_float_array(coordinates, coordinates if holds_tracked(coordinates) else input)
    if shape(c)[0] != len(shape(input)):
        raise RuntimeError("scipy.ndimage.map_coordinates: invalid shape for coordinate array")
    parts = [c[i] for i in range(shape(c)[0])]
    return at_points(
        input, parts, shape(c)[1:], order, mode, cval, prefilter, output, "scipy.ndimage.map_coordinates"
    )


def grid(to: tuple) -> list:
    return list(plain_np.meshgrid(*[plain_np.arange(n, dtype=float) for n in to], indexing="ij"))


def shape_for(output: Any, output_shape: Any, x: Any) -> tuple:
    if output_shape is not None:
        return tuple([as_integer(n) for n in output_shape])
    return shape(output) if hasattr(output, "shape") and not isinstance(output, type) else shape(x)


@NDIMAGE.rule(ndi.shift)
def shift(input, shift, output=None, order=3, mode="constant", cval=0.0, prefilter=True):
    x = as_float_array(input, input if holds_tracked(input) else shift)
    by = per_axis(shift, ndim(x))
    c = [g - s for g, s in zip(grid(shape(x)), by, strict=True)]
    return at_points(x, c, shape(x), order, mode, cval, prefilter, output, "scipy.ndimage.shift")


@NDIMAGE.rule(ndi.zoom)
def zoom(input, zoom, output=None, order=3, mode="constant", cval=0.0, prefilter=True, *, grid_mode=False):
    x = as_float_array(input)
    by = [float(z) for z in per_axis(plain_setting(zoom, "scipy.ndimage.zoom", "zoom"), ndim(x))]
    to = tuple([int(round(n * z)) for n, z in zip(shape(x), by, strict=True)])
    if grid_mode:
        c = [(g + 0.5) * (n / m) - 0.5 for g, n, m in zip(grid(to), shape(x), to, strict=True)]
    else:
        c = [
            g * ((n - 1) / (m - 1) if m > 1 else 1.0) for g, n, m in zip(grid(to), shape(x), to, strict=True)
        ]
        # the last lies on the edge, whatever is rounded
        c = [np.minimum(v, n - 1.0) for v, n in zip(c, shape(x), strict=True)]
    return at_points(x, c, to, order, mode, cval, prefilter, output, "scipy.ndimage.zoom")


@NDIMAGE.rule(ndi.affine_transform)
def affine_transform(
    input, matrix, offset=0.0, output_shape=None, output=None, order=3, mode="constant", cval=0.0,
    prefilter=True
):  # fmt: skip
    like = next((v for v in (input, matrix, offset) if holds_tracked(v)), input)
    x, M = as_float_array(input, like), as_float_array(matrix, like)
    n = ndim(x)
    offset = per_axis(as_float_array(offset, like) if isinstance(offset, (list, tuple)) else offset, n)
    if ndim(M) == 2 and shape(M)[1] == n + 1 and shape(M)[0] in (n, n + 1):
        offset, M = [M[i, n] for i in range(n)], M[:n, :n]
    to = shape_for(output, output_shape, x)
    g = grid(to)
    if ndim(M) == 1:
        c = [M[i] * g[i] + offset[i] for i in range(n)]
    else:
        c = [sum([M[i, j] * g[j] for j in range(n)]) + offset[i] for i in range(n)]
    return at_points(x, c, to, order, mode, cval, prefilter, output, "scipy.ndimage.affine_transform")


@NDIMAGE.rule(ndi.rotate)
def rotate(
    input, angle, axes=(1, 0), reshape=True, output=None, order=3, mode="constant", cval=0.0, prefilter=True
):
    x = as_float_array(input, input if holds_tracked(input) else angle)
    p, q = sorted(filter_axes(x, axes))
    size = n = shape(x)[p], shape(x)[q]
    turn = np.deg2rad(angle)
    c, s = np.cos(turn), np.sin(turn)
    if reshape:
        t = math.radians(float(bare(angle)))
        along, across = abs(math.cos(t)), abs(math.sin(t))
        size = int(along * n[0] + across * n[1] + 0.5), int(across * n[0] + along * n[1] + 0.5)
    to = tuple([size[0] if i == p else size[1] if i == q else m for i, m in enumerate(shape(x))])
    g = grid(to)
    a, b = g[p] - (size[0] - 1) / 2, g[q] - (size[1] - 1) / 2
    g[p], g[q] = c * a + s * b + (n[0] - 1) / 2, c * b - s * a + (n[1] - 1) / 2
    if ndim(x) == 2:
        return at_points(x, g, to, order, mode, cval, prefilter, output, "scipy.ndimage.rotate")
    rest = tuple([i for i in range(ndim(x)) if i not in (p, q)])
    planes = np.reshape(np.transpose(x, (*rest, p, q)), (-1, *n))
    at = (0,) * len(rest)
    flat = [np.reshape(np.transpose(g[i], (*rest, p, q))[at], -1) for i in (p, q)]
    turned = [
        sampled(planes[k], flat, order, mode, cval, prefilter, "scipy.ndimage.rotate")
        for k in range(shape(planes)[0])
    ]
    y = np.reshape(np.stack(turned), (*[shape(x)[i] for i in rest], *size))
    return finished(np.transpose(y, tuple(plain_np.argsort((*rest, p, q)))), output)


@NDIMAGE.rule(ndi.geometric_transform)
def geometric_transform(
    input, mapping, output_shape=None, output=None, order=3, mode="constant", cval=0.0, prefilter=True,
    extra_arguments=(),
    extra_keywords=None,
):  # fmt: skip
    if not callable(mapping):
        raise ArgumentError(
            "scipy.ndimage.geometric_transform: give a Python function; compiled callbacks have no derivative"
        )
    x = as_float_array(input)
    to = shape_for(output, output_shape, x)
    points = [mapping(at, *extra_arguments, **(extra_keywords or {})) for at in plain_np.ndindex(to)]
    c = [np.stack([as_float_array(p[i], x) for p in points]) for i in range(ndim(x))]
    return at_points(x, c, to, order, mode, cval, prefilter, output, "scipy.ndimage.geometric_transform")


FOLLOWED = Follower("scipy.ndimage")
FOLLOWED.leaf(gaussian_kernel, gaussian_weights)
NDIMAGE.follow(FOLLOWED)

stand_in = NDIMAGE.stand_in("tapegrad.scipy.ndimage")
