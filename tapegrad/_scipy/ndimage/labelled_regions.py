"""scipy.ndimage: what is measured of labelled regions, and the filters that pick or add an element of a
neighbourhood."""

import itertools
import math
from typing import Any

import numpy as plain_np
import scipy.ndimage as ndi
import scipy.sparse

from ... import numpy as np
from ..._core.arrays import xp_of
from ...ops.declare import axes_of as axes_in
from ...ops.declare import dtype, ndim, shape
from ...ops.protocols import store
from ..linear_maps import AxisMap, mapped
from ..namespaces import SciPyNamespace, as_float_array, as_integer, bare

NDIMAGE = SciPyNamespace(ndi, "cupyx.scipy.ndimage")

PAD = {
    "reflect": "symmetric", "grid-mirror": "symmetric", "mirror": "reflect", "nearest": "edge",
    "wrap": "wrap", "grid-wrap": "wrap",
    "constant": "constant", "grid-constant": "constant",
}  # fmt: skip


def finished(y: Any, output: Any) -> Any:
    """The result as output= asks for it."""
    if output is None:
        return y
    if hasattr(output, "shape") and not isinstance(output, (type, plain_np.dtype)):
        store(output, y)
        return output
    return np.astype(y, plain_np.dtype(output))


def padded_input(x: Any, width: list, mode: Any, cval: Any, name: str) -> Any:
    modes = [mode] * ndim(x) if isinstance(mode, str) else list(mode)
    for m in modes:
        if m not in PAD:
            raise ValueError(f"{name}: boundary mode {m!r} is not supported")
    if len(set(modes)) == 1:
        how = PAD[modes[0]]
        return np.pad(x, width, how, **({"constant_values": cval} if how == "constant" else {}))
    for i, m in enumerate(modes):
        x = padded_input(x, [w if k == i else (0, 0) for k, w in enumerate(width)], m, cval, name)
    return x


def filter_axes(x: Any, axes: Any) -> tuple:
    n = ndim(x)
    return axes_in(axes, n)


def per_axis(value: Any, count: int) -> list:
    return (
        list(value) if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0 else [value] * count
    )


def expanded_footprint(footprint: Any, axes: tuple, n: int) -> Any:
    """A neighbourhood with axes of length 1 for those of the array that it does not have."""
    return plain_np.expand_dims(footprint, tuple([i for i in range(n) if i not in axes]))


def neighbour_elements(x: Any, footprint: Any, mode: Any, cval: Any, origin: Any, name: str) -> Any:
    """The elements where footprint is true around each element, along a new first axis."""
    origin = per_axis(origin, ndim(x))
    size = footprint.shape
    width = [(m // 2 + o, m - 1 - m // 2 - o) for m, o in zip(size, origin, strict=True)]
    wide = padded_input(x, width, mode, cval, name)
    at = [p for p in itertools.product(*[range(m) for m in size]) if footprint[p]]
    return np.stack([wide[tuple([slice(i, i + n) for i, n in zip(p, shape(x), strict=True)])] for p in at])


def footprint_of(x: Any, size: Any, footprint: Any, axes: Any, name: str) -> Any:
    axes = filter_axes(x, axes)
    if footprint is None:
        if size is None:
            raise RuntimeError(f"{name}: no footprint or filter size provided")
        footprint = plain_np.ones([as_integer(m) for m in per_axis(size, len(axes))], bool)
    return expanded_footprint(plain_np.asarray(bare(footprint)).astype(bool), axes, ndim(x))


def origin_of(origin: Any, axes: Any, x: Any) -> list:
    """By axis of x."""
    found = [0] * ndim(x)
    axes = filter_axes(x, axes)
    for i, o in zip(axes, per_axis(origin, len(axes)), strict=True):
        found[i] = int(o)
    return found


def modes_by_axis(mode: Any, axes: Any, x: Any) -> Any:
    if isinstance(mode, str):
        return mode
    found = ["constant"] * ndim(x)
    for i, m in zip(filter_axes(x, axes), mode, strict=True):
        found[i] = m
    return found


def extreme_rule(pick: Any, name: str) -> Any:
    def run(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None):
        x = as_float_array(input)
        where = footprint_of(x, size, footprint, axes, name)
        origins, modes = origin_of(origin, axes, x), modes_by_axis(mode, axes, x)
        if where.all():  # along one axis after the other
            for i, m in enumerate(where.shape):
                if m > 1:
                    line = plain_np.ones([m if k == i else 1 for k in range(ndim(x))], bool)
                    x = pick(
                        neighbour_elements(
                            x, line, modes, cval, [o if k == i else 0 for k, o in enumerate(origins)], name
                        ),
                        0,
                    )
            return finished(x, output)
        return finished(pick(neighbour_elements(x, where, modes, cval, origins, name), 0), output)

    return run


maximum_filter = NDIMAGE.rule(ndi.maximum_filter)(extreme_rule(np.max, "scipy.ndimage.maximum_filter"))
minimum_filter = NDIMAGE.rule(ndi.minimum_filter)(extreme_rule(np.min, "scipy.ndimage.minimum_filter"))


def extreme1d(whole: Any) -> Any:
    def run(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
        return whole(input, size, None, output, mode, cval, origin, axes=(axis,))

    return run


NDIMAGE.rule(ndi.maximum_filter1d)(extreme1d(maximum_filter))
NDIMAGE.rule(ndi.minimum_filter1d)(extreme1d(minimum_filter))


def ranked(
    x: Any,
    rank: Any,
    size: Any,
    footprint: Any,
    output: Any,
    mode: Any,
    cval: Any,
    origin: Any,
    axes: Any,
    name: str,
) -> Any:
    x = as_float_array(x)
    where = footprint_of(x, size, footprint, axes, name)
    all_ = neighbour_elements(x, where, modes_by_axis(mode, axes, x), cval, origin_of(origin, axes, x), name)
    return finished(np.sort(all_, 0)[rank(int(where.sum()))], output)


@NDIMAGE.rule(ndi.rank_filter)
def rank_filter(
    input, rank, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None
):
    return ranked(
        input,
        lambda n: as_integer(rank),
        size,
        footprint,
        output,
        mode,
        cval,
        origin,
        axes,
        "scipy.ndimage.rank_filter",
    )


@NDIMAGE.rule(ndi.median_filter)
def median_filter(
    input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None
):
    return ranked(
        input,
        lambda n: n // 2,
        size,
        footprint,
        output,
        mode,
        cval,
        origin,
        axes,
        "scipy.ndimage.median_filter",
    )


@NDIMAGE.rule(ndi.percentile_filter)
def percentile_filter(
    input,
    percentile,
    size=None,
    footprint=None,
    output=None,
    mode="reflect",
    cval=0.0,
    origin=0,
    *,
    axes=None,
):
    share = float(bare(percentile)) % 100 if percentile < 0 else float(bare(percentile))
    rank = lambda n: n - 1 if share == 100 else int(n * share / 100)
    return ranked(
        input, rank, size, footprint, output, mode, cval, origin, axes, "scipy.ndimage.percentile_filter"
    )


# --- grey morphology ---


def morphed(sign: int) -> Any:
    """Erosion (-1): the smallest of the neighbours less the structure; dilation (1): the largest of the
    mirrored ones and the structure."""
    name = "scipy.ndimage.grey_dilation" if sign > 0 else "scipy.ndimage.grey_erosion"

    def run(
        input,
        size=None,
        footprint=None,
        structure=None,
        output=None,
        mode="reflect",
        cval=0.0,
        origin=0,
        *,
        axes=None,
    ):
        x = as_float_array(input)
        if footprint is None and structure is not None:
            footprint = plain_np.ones(shape(structure), bool)
        where = footprint_of(x, size, footprint, axes, name)
        origins = origin_of(origin, axes, x)
        flip = (slice(None, None, -1),) * where.ndim
        if sign > 0:
            where = where[flip]
            origins = [-o - (1 if m % 2 == 0 else 0) for o, m in zip(origins, where.shape, strict=True)]
        all_ = neighbour_elements(x, where, modes_by_axis(mode, axes, x), cval, origins, name)
        if structure is not None:
            shifts = np.reshape(as_float_array(structure, x), where.shape)
            shifts = (shifts[flip] if sign > 0 else shifts)[where]
            all_ = all_ + sign * np.reshape(shifts, (-1,) + (1,) * ndim(x))
        return finished((np.max if sign > 0 else np.min)(all_, 0), output)

    return run


NDIMAGE.rule(ndi.grey_dilation)(morphed(1))
NDIMAGE.rule(ndi.grey_erosion)(morphed(-1))


# --- regions ---


class Sums(AxisMap):
    """Sums over the places of each region, which may have places in common."""

    def __init__(self, rows: Any, at: Any, m: int, n: int):
        """Sum k is that of the places at[rows == k] among n, for k < m."""
        self.rows, self.at, self.m, self.n = rows, at, m, n

    def forward(self, x: Any) -> Any:
        return scatter_add(x, self.at, self.rows, self.m)

    def backward(self, g: Any) -> Any:
        return scatter_add(g, self.rows, self.at, self.n)


def scatter_add(x: Any, at: Any, to: Any, n: int) -> Any:
    """y[..., to[k]] += x[..., at[k]]"""
    library, flat = xp_of(x), x.reshape(-1, x.shape[-1])
    if library is plain_np:
        matrix = scipy.sparse.csr_array((plain_np.ones(len(at)), (to, at)), (n, x.shape[-1]))
        return (matrix @ flat.T).T.reshape(*x.shape[:-1], -1).astype(x.dtype)
    y = library.zeros((n, len(flat)), x.dtype)
    library.add.at(y, to, flat.T[at])
    return y.T.reshape(*x.shape[:-1], -1)


def regions_of(x: Any, labels: Any, index: Any) -> tuple:
    """(flat places of each region, the shape of the result)."""
    if labels is None:
        return [plain_np.arange(math.prod(shape(x)))], ()
    labels = plain_np.broadcast_to(plain_np.asarray(bare(labels)), shape(x)).reshape(-1)
    if index is None:
        return [plain_np.flatnonzero(labels > 0)], ()
    index = plain_np.asarray(bare(index))
    return [plain_np.flatnonzero(labels == i) for i in index.reshape(-1)], index.shape


def region_sums(x: Any, regions: list) -> Any:
    flat = np.reshape(x, -1)
    rows = plain_np.repeat(plain_np.arange(len(regions)), [len(r) for r in regions])
    at = plain_np.concatenate(regions) if regions else plain_np.zeros(0, int)
    return mapped(flat, map=Sums(rows, at, len(regions), shape(flat)[0]))


def measure(f: Any) -> Any:
    def run(input, labels=None, index=None):
        x = as_float_array(input)
        regions, to = regions_of(x, labels, index)
        y = f(x, regions)
        return np.reshape(y, to) if to else y[0]

    return run


def counts(regions: list) -> Any:
    return plain_np.array([len(r) for r in regions], float)


def variances(x: Any, regions: list) -> Any:
    n = counts(regions)
    means = region_sums(x, regions) / n
    flat, where = np.reshape(x, -1), plain_np.zeros(math.prod(shape(x)), int)
    for k, r in enumerate(regions):
        where[r] = k
    off = flat - means[where]
    return region_sums(off * np.conj(off) if dtype(off).kind == "c" else off**2, regions) / n


def element_rule(f: Any) -> Any:
    def run(x, regions):
        flat = np.reshape(x, -1)
        return np.stack([f(flat[r]) for r in regions])

    return measure(run)


sum_labels = NDIMAGE.rule(ndi.sum, ndi.sum_labels)(measure(region_sums))
NDIMAGE.rule(ndi.mean)(measure(lambda x, regions: region_sums(x, regions) / counts(regions)))
NDIMAGE.rule(ndi.variance)(measure(variances))
NDIMAGE.rule(ndi.standard_deviation)(measure(lambda x, regions: np.sqrt(variances(x, regions))))
maximum, minimum = (
    NDIMAGE.rule(ndi.maximum)(element_rule(np.max)),
    NDIMAGE.rule(ndi.minimum)(element_rule(np.min)),
)
NDIMAGE.rule(ndi.median)(element_rule(np.median))


@NDIMAGE.rule(ndi.extrema)
def extrema(input, labels=None, index=None):
    low, high = minimum(input, labels, index), maximum(input, labels, index)
    return low, high, *ndi.extrema(bare(input), bare(labels), bare(index))[2:]


@NDIMAGE.rule(ndi.center_of_mass)
def center_of_mass(input, labels=None, index=None):
    x = as_float_array(input)
    total = sum_labels(x, labels, index)
    grids = plain_np.meshgrid(*[plain_np.arange(n, dtype=float) for n in shape(x)], indexing="ij")
    found = [sum_labels(x * g, labels, index) / total for g in grids]
    if not shape(found[0]):
        return tuple(found)
    return [tuple([f[k] for f in found]) for k in range(shape(found[0])[0])]


NDIMAGE.constant(
    ndi.binary_closing, ndi.binary_dilation, ndi.binary_erosion, ndi.binary_fill_holes,
    ndi.binary_hit_or_miss, ndi.binary_opening,
    ndi.binary_propagation, ndi.distance_transform_cdt, ndi.find_objects,
    ndi.generate_binary_structure, ndi.histogram, ndi.iterate_structure, ndi.label, ndi.maximum_position,
    ndi.minimum_position,
    ndi.watershed_ift, *[getattr(ndi, n) for n in ("value_indices",) if hasattr(ndi, n)],
)  # fmt: skip
NDIMAGE.constant(ndi.distance_transform_bf, ndi.distance_transform_edt, but=("sampling",))


# --- functions of the user's ---


def each_window(
    function: Any, x: Any, where: Any, mode: Any, cval: Any, origins: list, name: str, more: tuple
) -> Any:
    windows = neighbour_elements(x, where, mode, cval, origins, name)
    flat = np.reshape(windows, (shape(windows)[0], -1))
    return np.reshape(
        np.stack(
            [as_float_array(function(flat[:, i], *more[0], **more[1]), x) for i in range(shape(flat)[1])]
        ),
        shape(x),
    )


@NDIMAGE.rule(ndi.generic_filter, of_functions=True)
def generic_filter(
    input, function, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0,
    extra_arguments=(), extra_keywords=None,
    *, axes=None,
):  # fmt: skip
    name, x = "scipy.ndimage.generic_filter", as_float_array(input)
    where = footprint_of(x, size, footprint, axes, name)
    more = extra_arguments, extra_keywords or {}
    y = each_window(
        function, x, where, modes_by_axis(mode, axes, x), cval, origin_of(origin, axes, x), name, more
    )
    return finished(y, output)


@NDIMAGE.rule(ndi.generic_filter1d, of_functions=True)
def generic_filter1d(
    input, function, filter_size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0,
    extra_arguments=(), extra_keywords=None
):  # fmt: skip
    """The function gets a line, longer than the result, and writes the result into its second argument."""
    x = np.moveaxis(as_float_array(input), axis, -1)
    low = filter_size // 2 + origin
    wide = padded_input(
        x,
        [(0, 0)] * (ndim(x) - 1) + [(low, filter_size - 1 - low)],
        mode,
        cval,
        "scipy.ndimage.generic_filter1d",
    )
    lines, found = np.reshape(wide, (-1, shape(wide)[-1])), []
    for i in range(shape(lines)[0]):
        line = np.zeros(shape(x)[-1])
        function(lines[i], line, *extra_arguments, **(extra_keywords or {}))
        found.append(line)
    return finished(np.moveaxis(np.reshape(np.stack(found), shape(x)), -1, axis), output)


def vectorized_filter(
    input, function, *, size=None, footprint=None, output=None, mode="reflect", cval=None, origin=None,
    axes=None, batch_memory=2**30
):  # fmt: skip
    name, x = "scipy.ndimage.vectorized_filter", as_float_array(input)
    where = footprint_of(x, size, footprint, axes, name)
    n = len(filter_axes(x, axes))
    windows = neighbour_elements(
        x,
        where,
        modes_by_axis(mode, axes, x),
        0.0 if cval is None else cval,
        origin_of(origin or 0, axes, x),
        name,
    )
    windows = np.moveaxis(windows, 0, -1)
    if footprint is None:
        windows = np.reshape(
            windows,
            (
                *shape(x),
                *[m for m, i in zip(where.shape, range(ndim(x)), strict=True) if i in filter_axes(x, axes)],
            ),
        )
        return finished(as_float_array(function(windows, axis=tuple(range(-n, 0)))), output)
    return finished(as_float_array(function(windows, axis=-1)), output)


if hasattr(ndi, "vectorized_filter"):
    NDIMAGE.rule(ndi.vectorized_filter, of_functions=True)(vectorized_filter)


@NDIMAGE.rule(ndi.labeled_comprehension, of_functions=True)
def labeled_comprehension(input, labels, index, func, out_dtype, default, pass_positions=False):
    x = as_float_array(input)
    flat, places = np.reshape(x, -1), plain_np.arange(int(plain_np.prod(shape(x))))
    labels = plain_np.ones(shape(x), int) if labels is None else plain_np.broadcast_to(bare(labels), shape(x))
    wanted = plain_np.asarray(1 if index is None else bare(index))
    found = []
    for label in wanted.reshape(-1):
        at = plain_np.flatnonzero(
            labels.reshape(-1) > 0 if index is None and labels is not None else labels.reshape(-1) == label
        )
        found.append(
            as_float_array(func(flat[at], places[at]) if pass_positions else func(flat[at]), x)
            if len(at)
            else 0.0 * flat[0] + default
        )
    y = np.reshape(np.stack(found), wanted.shape)
    return np.astype(y, plain_np.dtype(out_dtype)) if plain_np.dtype(out_dtype).kind in "fc" else y
