"""scipy.ndimage: the smallest, largest and middle elements of labelled regions.

Equal elements share a derivative, as in `numpy.max`; SciPy's code would pick one of them."""

import math

import numpy as plain_np
import scipy.ndimage as ndi

from ... import numpy as np
from ...ops.declare import shape
from ..namespaces import SciPyNamespace, as_float_array, bare, present

NDIMAGE = SciPyNamespace(ndi, "cupyx.scipy.ndimage")


def regions_of(x, labels, index) -> tuple:
    """(flat places of each region, the shape of the result)."""
    if labels is None:
        return [plain_np.arange(math.prod(shape(x)))], ()
    labels = plain_np.broadcast_to(plain_np.asarray(bare(labels)), shape(x)).reshape(-1)
    if index is None:
        return [plain_np.flatnonzero(labels > 0)], ()
    index = plain_np.asarray(bare(index))
    return [plain_np.flatnonzero(labels == i) for i in index.reshape(-1)], index.shape


def element_rule(f):
    def run(input, labels=None, index=None):
        x = as_float_array(input)
        regions, to = regions_of(x, labels, index)
        flat = np.reshape(x, -1)
        y = np.stack([f(flat[r]) for r in regions])
        return np.reshape(y, to) if to else y[0]

    return run


maximum = NDIMAGE.rule(ndi.maximum)(element_rule(np.max))
minimum = NDIMAGE.rule(ndi.minimum)(element_rule(np.min))
NDIMAGE.rule(ndi.median)(element_rule(np.median))


@NDIMAGE.rule(ndi.extrema)
def extrema(input, labels=None, index=None):
    low, high = minimum(input, labels, index), maximum(input, labels, index)
    return low, high, *ndi.extrema(bare(input), bare(labels), bare(index))[2:]


NDIMAGE.constant(
    ndi.binary_closing, ndi.binary_dilation, ndi.binary_erosion, ndi.binary_fill_holes,
    ndi.binary_hit_or_miss, ndi.binary_opening,
    ndi.binary_propagation, ndi.distance_transform_cdt, ndi.find_objects,
    ndi.generate_binary_structure, ndi.histogram, ndi.iterate_structure, ndi.label, ndi.maximum_position,
    ndi.minimum_position,
    ndi.watershed_ift, *present(ndi, ("value_indices",)),
)  # fmt: skip
NDIMAGE.constant(ndi.distance_transform_bf, ndi.distance_transform_edt, but=("sampling",))
