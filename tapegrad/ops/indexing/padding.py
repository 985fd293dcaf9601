"""`numpy.pad`. Zeros are an operation of their own; for other modes NumPy's code is followed."""

import numpy as np

from ..declare import followed, implements, ndim
from .gathering import array_like, constant_index, pad_zeros


def pad_widths(pad_width, n: int) -> tuple:
    if isinstance(pad_width, dict):
        width = [(0, 0)] * n
        for axis, w in pad_width.items():
            width[axis] = (w, w) if isinstance(w, (int, np.integer)) else tuple(w)
        return tuple(width)
    return tuple([(int(i), int(j)) for i, j in np.broadcast_to(constant_index(pad_width), (n, 2))])


padded = followed(np.pad, __name__)


@implements(np.pad, layout="asked")
def pad(array, pad_width, mode="constant", **settings):
    x, value = array_like(array), settings.get("constant_values", 0)
    if mode == "constant" and type(value) in (int, float) and value == 0:
        return pad_zeros(x, width=pad_widths(pad_width, ndim(x)))
    return padded(x, pad_width, mode, **settings)
