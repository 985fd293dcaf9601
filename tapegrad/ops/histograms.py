"""NumPy's multidimensional histograms. They are linear in the weights, and the edges follow the values
that define them, as in `np.histogram`."""

import math

import numpy as np

from .._core.arrays import xp_of
from .._core.primitive import values_of
from .declare import ndim, shape
from .reductions import sum
from .shaping import array_operand, reshape
from .sorting import bincount
from .special.declare import implements_special
from .statistics import histogram


def sample_columns(sample) -> list:
    """The columns of a sample: an array (n, axes) or a sequence of arrays (n)."""
    if not isinstance(sample, (list, tuple)) and ndim(sample) == 2:
        return [sample[:, k] for k in range(shape(sample)[1])]
    rows = sample if isinstance(sample, (list, tuple)) else [sample]
    return [array_operand(x) for x in rows]


@implements_special(np.histogramdd)
def histogramdd(sample, bins=10, range=None, density=None, weights=None):
    xs = sample_columns(sample)
    bins = [bins] * len(xs) if isinstance(bins, (int, np.integer)) else list(bins)
    limits = [None] * len(xs) if range is None else list(range)
    if len(bins) != len(xs) or len(limits) != len(xs):
        raise ValueError("numpy.histogramdd: bins and range must have one entry for each axis of the sample")
    edges = [histogram(x, b, r)[1] for x, b, r in zip(xs, bins, limits, strict=True)]
    at, inside, sizes = 0, True, [shape(e)[0] - 1 for e in edges]
    for x, e, n in zip(xs, edges, sizes, strict=True):
        x, e = values_of(x), values_of(e)
        library = xp_of(x)
        x, e = library.asarray(x), library.asarray(e)
        cell = library.searchsorted(e, x, "right") - 1 - (x == e[-1])
        inside = inside & (cell >= 0) & (cell < n)
        at = at * n + library.clip(cell, 0, n - 1)
    w = inside * 1.0
    if weights is not None:
        w = w * array_operand(weights)
    counts = reshape(bincount(at, w, math.prod(sizes)), to=tuple(sizes))
    if density:
        counts = counts / sum(counts)
        for k, e in enumerate(edges):
            counts = counts / reshape(
                e[1:] - e[:-1], to=tuple([-1 if j == k else 1 for j in np.arange(len(edges))])
            )
    return counts, edges


@implements_special(np.histogram2d)
def histogram2d(x, y, bins=10, range=None, density=None, weights=None):
    if not isinstance(bins, (int, np.integer)):
        bins = list(bins) * 2 if len(bins) == 1 else [bins, bins] if len(bins) > 2 else bins
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, *edges
