"""Matrices of SciPy's whose elements are places in a vector of values, counted from 1, and what SciPy's
functions do to them."""

import copy

import numpy as plain_np
import scipy.sparse as sps

from ... import numpy as np
from ..._core.arrays import is_array, xp_of
from ..._core.primitive import primal_of
from ..._core.registry import load
from ...ops.declare import shape
from ...ops.indexing.gathering import without
from ..linear_maps import Sums
from ..namespaces import Carrier, bare, holds_tracked

EXPLICIT_ZEROS = 100_000  # elements up to which a dense array keeps its zeros as a sparse matrix
MOVES = frozenset((
    "transpose", "tocsr", "tocsc", "todia", "copy", "reshape", "getrow", "getcol", "swapaxes",
    "tobsr", "tolil", "todok",
    "sorted_indices", "tocoo",
))  # fmt: skip
# MOVES of each format that leave several elements at one place
KEEPS_DUPLICATES = {
    "csr": {"copy", "transpose", "tocsr", "tocsc", "tocoo", "sorted_indices"},
    "csc": {"copy", "transpose", "tocsr", "tocsc", "tocoo", "sorted_indices"},
    "coo": {"copy", "transpose", "tocoo", "reshape"},
    "dia": MOVES,
    "bsr": {"copy", "transpose", "tobsr"},
}
ELEMENTWISE = frozenset((  # f(0) = 0
    "sqrt", "sin", "tan", "arcsin", "arctan", "sinh", "tanh", "arcsinh", "arctanh", "expm1", "log1p",
    "deg2rad", "rad2deg", "sign", "floor",
    "ceil", "rint", "trunc",
))  # fmt: skip
CHANGES = frozenset(("resize", "set_shape"))
# the matrix is the same one after it
TIDYING = frozenset(("prune", "check_format"))
STRUCTURE = frozenset(("getnnz", "getformat", "get_shape", "getmaxprint", "has_sorted_indices"))
OF_VALUES = frozenset(("count_nonzero", "nonzero"))  # which of them are zero is known; it has no derivative
ARRAYS = {
    "coo": ("row", "col"),
    "csr": ("indices", "indptr"),
    "csc": ("indices", "indptr"),
    "dia": ("offsets",),
}


def element_or_zero(values, at):
    """values[at - 1], 0 where at is 0."""
    at = plain_np.asarray(at)
    at = at.astype(int)
    if at.size and at.min() > 0:
        if at.ndim == 1 and at.size == shape(values)[0] and bool((plain_np.diff(at) == 1).all()):
            return values
        return np.take(values, at - 1)
    return np.take(np.concatenate([0 * values[:1], values]) if shape(values)[0] else np.zeros(1), at)


def is_counted(places, size: int | None = None) -> bool:
    """Are these the places 1, 2, ..., `size` (None: as many as there are)?"""
    right = size is None or places.size == size
    return right and bool((places.reshape(-1) == plain_np.arange(1, 1 + places.size)).all())


def counted(data):
    return plain_np.arange(1.0, 1 + data.size).reshape(data.shape)


def with_counted(places):
    """A matrix of the same form, whose elements are counted in the order of its data."""
    new = copy.copy(places)  # the arrays of indices are the same
    new.data = counted(places.data)
    return new


def with_ones(places):
    """A matrix of the same form, whose elements are 1."""
    new = copy.copy(places)
    new.data = plain_np.ones(places.data.shape)
    return new


def moved_behind(places, count):
    """A copy, whose elements are behind `count` others."""
    new = places.copy()
    new.data = plain_np.where(new.data > 0, new.data + count, 0.0)
    return new


def in_order_of(like, places):
    """`places`, sorted, with its elements in the order in which `like` has them."""
    if like.format != places.format or like.nnz != places.nnz or like.has_sorted_indices:
        return places
    at = with_counted(like).copy()
    at.sort_indices()
    data = plain_np.empty(like.nnz)
    data[at.data.astype(int) - 1] = places.data
    return type(places)((data, like.indices, like.indptr), shape=places.shape)


def changed_copy(A, change, value):
    A = A.copy()
    change(A, value)
    return A


def host_matrix(x):
    if isinstance(x, (tuple, list)):
        return type(x)([host_matrix(v) for v in x])
    return x if not is_array(x) or xp_of(x) is plain_np else x.get()


def explicit_elements(flat) -> tuple:
    """Return the elements of a dense array that a sparse matrix keeps, and their places."""
    at = plain_np.arange(flat.size)
    if flat.size <= EXPLICIT_ZEROS:
        return np.take(flat, at), at
    on = host_matrix(bare(primal_of(flat) != 0))  # as in all samples
    on[0] |= not on.any()
    at, zeros = on.nonzero()[0], (~on).nonzero()[0]
    values = np.take(flat, at)
    return (without(values, np.take(flat, zeros)) if len(zeros) else values), at


def is_device_matrix(x) -> bool:
    return type(x).__module__.startswith("cupyx.")


def device_matrix(places, data):
    """CuPy's matrix of these values."""
    library, at = xp_of(data), places.data.astype(int) - 1
    where = [library.asarray(getattr(places, name)) for name in ARRAYS[places.format]]
    values = data[library.asarray(at)]
    given = (values, tuple(where)) if places.format == "coo" else (values, *where)
    return getattr(load("cupyx.scipy.sparse"), f"{places.format}_matrix")(given, shape=places.shape)


def merging(places) -> tuple | None:
    """What adds the elements at one place: (which are added, their sums, the places of the sums). None if
    each has a place of its own."""
    if places.format == "dia" or places.has_canonical_format:
        return None
    coo = places.tocoo()
    coords = [plain_np.asarray(c, int) for c in coo.coords]
    flat = plain_np.ravel_multi_index(coords, coo.shape) if coo.nnz else plain_np.zeros(0, int)
    unique, which = plain_np.unique(flat, return_inverse=True)
    if len(unique) == len(flat):
        return None
    sums = Sums(which, plain_np.arange(len(flat)), len(unique), len(flat))
    count = plain_np.arange(1.0, len(unique) + 1)
    made = type(coo)((count, plain_np.unravel_index(unique, coo.shape)), shape=coo.shape)
    return coo.data, sums, made.asformat(places.format)


def first_tracked(xs):
    return next((x for x in xs if holds_tracked(x)), None)


def is_scalar_operand(x) -> bool:
    return not isinstance(x, Carrier) and shape(x) == () and not sps.issparse(x)


def minus(A, B):
    """The sum in the order of elements of a difference, which SciPy may compute in another way."""
    return A - -B
