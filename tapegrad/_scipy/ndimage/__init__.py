"""scipy.ndimage: SciPy's own code, followed down to its compiled functions."""

import scipy.ndimage as ndi

from ...ops.declare import ndim
from ..namespaces import as_integer, plain_setting, present
from .compiled import FOLLOWED
from .labelled_regions import NDIMAGE

OF_FUNCTIONS = ("generic_filter", "generic_filter1d", "labeled_comprehension", "vectorized_filter")
for _f in present(ndi, OF_FUNCTIONS):
    NDIMAGE.rule(_f, of_functions=True)(FOLLOWED.function(_f))


@NDIMAGE.rule(ndi.rank_filter)
def rank_filter(input, rank, size=None, *args, **kwargs):
    sizes = size if size is None or not ndim(size) else [as_integer(m) for m in size]
    return followed_rank_filter(input, as_integer(rank), sizes, *args, **kwargs)


@NDIMAGE.rule(ndi.zoom)
def zoom(input, zoom, *args, **kwargs):
    return followed_zoom(input, plain_setting(zoom, "scipy.ndimage.zoom", "zoom"), *args, **kwargs)


followed_rank_filter, followed_zoom = FOLLOWED.function(ndi.rank_filter), FOLLOWED.function(ndi.zoom)
NDIMAGE.follow(FOLLOWED)

stand_in = NDIMAGE.stand_in("tapegrad.scipy.ndimage")
