"""Rules of the compiled functions of scipy.ndimage, which SciPy's own Python code calls.

Each takes what SciPy passes: a mode as a number, a neighbourhood of all axes, an array to fill."""

import functools
import itertools
import math

import numpy as plain_np
import scipy.ndimage as ndi
from scipy.ndimage import _nd_image as library
from scipy.ndimage._ni_support import _get_output as get_output

from ... import numpy as np
from ..._core.arrays import is_array, to_host, xp_of
from ..._core.variable import variable
from ...ops.declare import dtype, ndim, shape, xp
from ...ops.nondifferentiable import at_users_line
from ...ops.protocols import store
from ..followed import Follower
from ..linear_maps import SettingsFunction, apply_linear, axes_last, overlap
from ..namespaces import (
    as_float_array,
    bare,
    constant_like,
    holds_tracked,
    on_a_device,
    plain_setting,
    tracked_among,
)


def output_for(output, x, shape=None, complex_output: bool = False):
    """What SciPy's `_get_output` gives, in the library of x."""
    to = x.shape if shape is None else tuple(shape)
    if output is None or isinstance(output, (type, plain_np.dtype, str)):
        kind = get_output(output, plain_np.zeros((), dtype(x)), (), complex_output).dtype
        return variable(xp(x).zeros(to, kind))
    output = np.asarray(output)
    if output.shape != to:
        raise RuntimeError("output shape not correct")
    if complex_output and dtype(output).kind != "c":
        raise RuntimeError("output must have complex dtype")
    return output


def on_any_library(name: str, a):
    """CuPy's arrays lack what SciPy's code asks of NumPy's; Variables over them have it. A footprint becomes
    an array of truths, which no Variable holds."""
    if name == "footprint" and on_a_device((a,)):
        return to_host(bare(a))
    return variable(a) if is_array(a) and xp_of(a) is not plain_np else a


def fourier_output(theirs):
    """SciPy's function that makes the result of a filter of frequencies, in the library of x."""

    def made(output, x):
        if output is not None and not isinstance(output, (type, plain_np.dtype)):
            return output_for(output, x)
        return variable(xp(x).zeros(x.shape, theirs(output, plain_np.zeros((), dtype(x))).dtype))

    return made


class ImageFollower(Follower):
    """Follows code that computes by the rules below alone: its arrays may be of any library."""

    def function(self, f):
        if f.__module__ == MEASUREMENTS:
            return super().function(f)
        followed = self.rebuilt(f)

        @functools.wraps(followed)
        def run(*args, **kwargs):
            given = [on_any_library(*pair) for pair in zip(f.__code__.co_varnames, args, strict=False)]
            kwargs = {name: on_any_library(name, a) for name, a in kwargs.items()}
            return at_users_line(followed, *given, **kwargs)

        return run


MEASUREMENTS = "scipy.ndimage._measurements"
FOURIER_OUTPUTS = ("_get_output_fourier", "_get_output_fourier_complex")
FOLLOWED = ImageFollower(
    "scipy.ndimage",
    _get_output=output_for,
    **{name: fourier_output(getattr(ndi._fourier, name)) for name in FOURIER_OUTPUTS},
)

NEAREST, WRAP, REFLECT, MIRROR, CONSTANT, GRID_WRAP, GRID_CONSTANT = range(7)
PAD = ("edge", "wrap", "symmetric", "reflect", "constant", "wrap", "constant")


def fills(position: int):
    """A rule that returns what SciPy's function stores in the argument `position`."""

    def declared(rule):
        def run(*args):
            given = [*args[:position], *args[position + 1 :]]
            store(args[position], rule(*given))

        FOLLOWED.leaf(getattr(library, rule.__name__), run)
        return rule

    return declared


# --- filters: neighbourhoods ---


def padded(x, size, origins, mode: int, cval):
    """x with what a neighbourhood of this size reaches outside of it."""
    width = [(m // 2 + o, m - 1 - m // 2 - o) for m, o in zip(size, origins, strict=True)]
    return np.pad(x, width, PAD[mode], **({"constant_values": cval} if PAD[mode] == "constant" else {}))


def neighbours(x, footprint, mode: int, cval, origins):
    """The elements where the footprint is true around each element, along a new first axis."""
    wide = padded(x, footprint.shape, origins, mode, cval)
    at = [p for p in itertools.product(*[range(m) for m in footprint.shape]) if footprint[p]]
    return np.stack([wide[tuple([slice(i, i + n) for i, n in zip(p, shape(x), strict=True)])] for p in at])


def along(axis: int, x, value: int, other: int) -> list:
    """The value for one axis, and another for the others."""
    return [value if i == axis % ndim(x) else other for i in range(ndim(x))]


@fills(2)
def correlate(x, weights, mode, cval, origins):
    """sum_k w[k] x[n + k - size // 2 - origin]"""
    like = x if holds_tracked(x) else weights
    x, weights = as_float_array(x, like), as_float_array(weights, like)
    x = padded(x, shape(weights), origins, mode, cval)
    used = tuple([i for i, m in enumerate(shape(weights)) if m > 1])
    if not used:
        return x * np.reshape(weights, ())
    x, back = axes_last(x, used)
    y = overlap(x, axes_last(weights, used)[0], k=len(used))
    return y if back is None else np.transpose(y, back)


@fills(3)
def correlate1d(x, weights, axis, mode, cval, origin):
    return correlate(x, np.reshape(weights, along(axis, x, -1, 1)), mode, cval, along(axis, x, origin, 0))


@fills(3)
def uniform_filter1d(x, size, axis, mode, cval, origin):
    return correlate1d(x, constant_like(plain_np.full(size, 1 / size), x), axis, mode, cval, origin)


@fills(3)
def min_or_max_filter(x, footprint, structure, mode, cval, origins, minimum):
    found = neighbours(as_float_array(x, structure), bare(footprint), mode, cval, origins)
    if structure is not None:
        shifts = np.reshape(structure[bare(footprint)], (-1,) + (1,) * ndim(x))
        found = found - shifts if minimum else found + shifts
    return (np.min if minimum else np.max)(found, 0)


@fills(3)
def min_or_max_filter1d(x, size, axis, mode, cval, origin, minimum):
    line = plain_np.ones(along(axis, x, size, 1), bool)
    return min_or_max_filter(x, line, None, mode, cval, along(axis, x, origin, 0), minimum)


@fills(3)
def rank_filter(x, rank, footprint, mode, cval, origins):
    return np.sort(neighbours(x, bare(footprint), mode, cval, origins), 0)[int(bare(rank))]


def rank_filter_of_line(x, rank, size, output, mode, cval, origin):
    store(output, rank_filter(x, rank, plain_np.ones(size, bool), mode, bare(cval), [origin]))


if hasattr(ndi._filters, "_rank_filter_1d"):
    FOLLOWED.leaf(ndi._filters._rank_filter_1d.rank_filter, rank_filter_of_line)


@fills(3)
def generic_filter(x, function, footprint, mode, cval, origins, arguments, keywords):
    windows = np.reshape(
        neighbours(x, bare(footprint), mode, cval, origins), (int(bare(footprint).sum()), -1)
    )
    each = [
        as_float_array(function(windows[:, i], *arguments, **keywords), x) for i in range(shape(windows)[1])
    ]
    return np.reshape(np.stack(each), shape(x))


@fills(4)
def generic_filter1d(x, function, size, axis, mode, cval, origin, arguments, keywords):
    """The function gets a line, longer than the result, and writes the result into its second argument."""
    wide = np.moveaxis(padded(x, along(axis, x, size, 1), along(axis, x, origin, 0), mode, cval), axis, -1)
    lines, n = np.reshape(wide, (-1, shape(wide)[-1])), shape(x)[axis]
    found = []
    for i in range(shape(lines)[0]):
        line = np.zeros(n)
        function(lines[i], line, *arguments, **keywords)
        found.append(line)
    return np.moveaxis(np.reshape(np.stack(found), (*shape(wide)[:-1], n)), -1, axis)


def gaussian_weights(sigma, order: int, radius: int):
    """exp(-x^2 / (2 sigma^2)), normalised, times the polynomial that the derivatives of this order bring."""
    x = plain_np.arange(-radius, radius + 1.0)
    phi = np.exp(-0.5 * x**2 / sigma**2)
    phi = phi / np.sum(phi)
    q = [1.0] + [0.0] * order  # coefficients of the polynomial; d/dx: q' - x q / sigma^2
    for _ in range(order):
        slope = [(k + 1) * c for k, c in enumerate(q[1:])] + [0.0]
        q = [d - c / sigma**2 for d, c in zip(slope, [0.0, *q[:-1]], strict=True)]
    return phi * sum([c * x**k for k, c in enumerate(q)]) if order else phi


# SciPy's multiplies a plain matrix by a tracked one with the method `dot`
FOLLOWED.leaf(ndi._filters._gaussian_kernel1d, gaussian_weights)


# --- in the frequency domain: a factor for each frequency ---


@fills(4)
def fourier_filter(x, setting, n, axis, kind):
    y = to_host(plain_np.ones(shape(x)))  # (SciPy's function reads and writes arrays of the host)
    library.fourier_filter(
        y,
        to_host(plain_setting(setting, "scipy.ndimage.fourier_*", "its setting")),
        n,
        axis,
        y,
        kind,
    )
    return x * constant_like(y, x)


@fills(4)
def fourier_shift(x, shift, n, axis):
    y = to_host(plain_np.ones(shape(x), complex))
    library.fourier_shift(
        y,
        to_host(plain_setting(shift, "scipy.ndimage.fourier_shift", "shift")),
        n,
        axis,
        y,
    )
    return x * constant_like(y, x)


# --- splines on images ---


class SplineFilter(SettingsFunction):
    """The coefficients along the last axis."""

    def __call__(self, x):
        return self.on(x)(x, **self.settings, axis=-1, output=x.dtype)


MODES = ("nearest", "wrap", "reflect", "mirror", "constant", "grid-wrap", "grid-constant")


@fills(3)
def spline_filter1d(x, order, axis, mode):
    return apply_linear(
        SplineFilter(ndi.spline_filter1d, order=order, mode=MODES[mode]), as_float_array(x), axis
    )


def spline_weights(s, order: int) -> list:
    """The values at s, in [0, 1], of the order + 1 cardinal B-splines that are not zero there."""
    w = [1.0 + 0.0 * s]
    for k in range(1, order + 1):
        w = [
            ((s + (k - j)) * w[j - 1] if j else 0.0) + ((j + 1 - s) * w[j] if j < k else 0.0)
            for j in range(k + 1)
        ]
        w = [v / k for v in w]
    return w


def extended_index(i, n: int, mode: int):
    """Where in 0, .., n - 1 the number i lies, extended by the mode."""
    if mode in (MIRROR, CONSTANT, WRAP):
        period = max(2 * n - 2, 1)
        i = i % period
        return np.where(i > n - 1, period - i, i)
    if mode == REFLECT:
        i = i % (2 * n)
        return np.where(i > n - 1, 2 * n - 1 - i, i)
    if mode == GRID_WRAP:
        return i % n
    return np.clip(i, 0, n - 1)


def brought_in(c, n: int, mode: int):
    """Coordinates brought into the image, as ndimage does; those of the modes 'constant' stay. Of 'nearest'
    the coefficients are brought in, not the coordinate: what lies far outside only stays a legal integer."""
    if mode == NEAREST:
        return np.clip(c, -9.0, n + 8.0)
    if mode in (CONSTANT, GRID_CONSTANT) or n == 1:
        return c if mode in (CONSTANT, GRID_CONSTANT) else 0.0 * c
    if mode == WRAP:
        turns = c / (n - 1.0)  # a whole number of turns below zero ends at the last sample
        turns = np.where(c < 0, -np.floor(-turns) - 1.0, np.where(c > n - 1, np.floor(turns), 0.0))
        return c - turns * (n - 1.0)
    if mode == GRID_WRAP:
        inside = (c >= 0) & (c <= n - 1)
        return c - np.where(inside, 0.0, np.floor(c / n)) * float(n)
    if mode == MIRROR:
        c = c - np.floor(c / (2.0 * n - 2)) * (2.0 * n - 2)
        return np.where(c > n - 1, 2.0 * n - 2 - c, c)
    c = c + 0.5 - np.floor((c + 0.5) / (2.0 * n)) * (2.0 * n)
    return np.where(c > n, 2.0 * n - c, c) - 0.5


def sampled(x, coordinates: list, order: int, mode: int, cval, pad: int):
    """The spline with coefficients x, an image padded on all sides, at arrays of coordinates of one shape."""
    outside, flat, weights, off = None, 0, [], None
    to = shape(coordinates[0])
    for i, (c, whole) in enumerate(zip(coordinates, shape(x), strict=True)):
        c = np.reshape(c, -1)
        if mode == CONSTANT:
            out = (c < 0) | (c > whole - 1)
            outside = out if outside is None else outside | out
        c = brought_in(c + float(pad) if pad else c, whole, mode)
        first = np.floor(c if order % 2 else c + 0.5)
        s = c - first if order % 2 else c - first + 0.5
        at = np.expand_dims(np.astype(first, int), -1) + constant_like(
            plain_np.arange(order + 1) - order // 2, c
        )
        weights.append(
            np.stack([w * np.ones(shape(c)) if not shape(w) else w for w in spline_weights(s, order)], -1)
        )
        beyond = (at < 0) | (at > whole - 1)
        at = extended_index(at, whole, mode)
        spread = (slice(None),) + (None,) * i + (slice(None),) + (None,) * (len(coordinates) - 1 - i)
        flat = flat + at[spread] * math.prod(shape(x)[i + 1 :])
        if mode == GRID_CONSTANT:
            off = beyond[spread] if off is None else off | beyond[spread]
    values = np.take(np.reshape(x, -1), flat)
    if off is not None:
        values = np.where(off, cval, values)
    for w in reversed(weights):  # the last axis of the neighbours first
        n = ndim(values)
        values = np.sum(values * w[(slice(None),) + (None,) * (n - 2) + (slice(None),)], -1)
    return np.reshape(values if outside is None else np.where(outside, cval, values), to)


def grid(to: tuple, like) -> list:
    points = plain_np.meshgrid(*[plain_np.arange(n, dtype=float) for n in to], indexing="ij")
    return [constant_like(p, like) for p in points]


def geometric_transform(
    x, mapping, coordinates, matrix, offset, output, order, mode, cval, pad, arguments, keywords
):
    like = tracked_among(x, coordinates, matrix, offset)
    x, n, to = as_float_array(x, like), ndim(x), shape(output)
    if mapping is not None:
        points = [mapping(at, *arguments, **keywords) for at in plain_np.ndindex(to)]
        c = [np.reshape(np.stack([as_float_array(p[i], x) for p in points]), to) for i in range(n)]
    elif coordinates is not None:
        c = [as_float_array(coordinates[i], like) for i in range(n)]
    else:
        g = grid(to, x)
        c = [sum([matrix[i, j] * g[j] for j in range(len(g))]) + offset[i] for i in range(n)]
    store(output, sampled(x, c, order, mode, cval, pad))


def zoom_shift(x, zoom, shift, output, order, mode, cval, pad, grid_mode):
    like = tracked_among(x, zoom, shift)
    x, c = as_float_array(x, like), grid(shape(output), like)
    if shift is not None:
        c = [g + shift[i] for i, g in enumerate(c)]
    if zoom is not None:
        c = [(g + 0.5) * zoom[i] - 0.5 if grid_mode else g * zoom[i] for i, g in enumerate(c)]
        if shift is None and not grid_mode:  # the last lies on the edge, whatever is rounded
            c = [np.minimum(v, n - 2.0 * pad - 1.0) for v, n in zip(c, shape(x), strict=True)]
    store(output, sampled(x, c, order, mode, cval, pad))


FOLLOWED.leaf(library.geometric_transform, geometric_transform)
FOLLOWED.leaf(library.zoom_shift, zoom_shift)
