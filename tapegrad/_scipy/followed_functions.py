"""The follower of the functions that `ops.declare.follow` declares."""

from numpy.lib import _arraypad_impl
from numpy.linalg import _linalg

from .. import numpy as np
from .._core.arrays import to_host
from ..ops.fft import transform_axis
from .followed import Follower, FunctionOverlay
from .namespaces import bare, clip_rounding

PAIRS = vars(_arraypad_impl)["_as_pairs"]


class ArrayConverter:
    """NumPy's compiled class of this name: the arguments of a function as arrays."""

    def __init__(self, *xs):
        self.xs = tuple(map(np.asanyarray, xs))

    def __getitem__(self, k: int):
        return self.xs[k]

    def as_arrays(self, **_) -> tuple:
        return self.xs

    def wrap(self, y, to_scalar=None):
        return y


def pairs_of_axes(x, ndim: int, as_index: bool = False):
    """`numpy.pad`'s argument for each axis: numbers before and after it. Counts are numbers of the host."""
    if as_index:
        return PAIRS(x if x is None else to_host(bare(x)), ndim, True)
    return [list(pair) for pair in np.broadcast_to(x, (ndim, 2))]


FOLLOWED = Follower(
    "numpy.lib", "numpy._core", "numpy.linalg", "numpy.fft", "scipy.linalg", "scipy.special",
    _array_converter=ArrayConverter, _as_pairs=pairs_of_axes, _raw_fft=transform_axis,
    _makearray=lambda a: (np.asarray(a), np.asarray),
)  # fmt: skip
FOLLOWED.given["numpy"] = FunctionOverlay(np, clip=clip_rounding)  # on the host
FOLLOWED.leaf(vars(_linalg)["_umath_linalg"].inv, lambda x, **_: np.linalg.inv(x))
