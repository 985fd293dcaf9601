"""Functions whose derivative is zero, or whose result is no array: they run on the values.  (Comparisons, indices, counts,
tests, facts of shape and dtype.)"""

from typing import Any

import numpy as np

from .._array import is_array, xp_of
from .._primitive import plain
from ._define import NUMPY

NAMES = (
    "all", "any", "nonzero", "flatnonzero", "argwhere", "count_nonzero", "array_equal", "array_equiv", "allclose", "isclose", "shape",
    "ndim", "size", "iscomplexobj", "isrealobj", "iscomplex", "isreal", "isneginf", "isposinf", "isin", "result_type", "can_cast",
    "common_type", "may_share_memory", "array_repr", "array_str", "array2string", "digitize", "bincount", "tril_indices_from",
    "triu_indices_from", "diag_indices_from", "argmax", "argmin", "nanargmax", "nanargmin", "argsort", "argpartition", "lexsort",
    "searchsorted", "isnan", "isinf", "isfinite", "signbit", "logical_and", "logical_or", "logical_not", "logical_xor", "equal",
    "not_equal", "less", "less_equal", "greater", "greater_equal",
    "unravel_index", "ravel_multi_index", "ix_", "indices", "min_scalar_type", "iterable", "isscalar", "broadcast_shapes",
    "fix", "einsum_path", "isfortran",
)  # fmt: skip


def values(x: Any) -> Any:
    if type(x) in (list, tuple):
        return type(x)([values(v) for v in x])
    return plain(x)


def library_of(xs: Any) -> Any:
    for x in xs:
        if type(x) in (list, tuple):
            found = library_of(x)
            if found is not np:
                return found
        elif is_array(x) and xp_of(x) is not np:
            return xp_of(x)
    return np


def _constant(f):
    name = f.__name__

    def on_values(*args, **kwargs):
        args = [values(a) for a in args]
        library = library_of(args)
        return getattr(library, name)(*args, **{k: values(v) for k, v in kwargs.items()})

    on_values.__name__ = name
    return on_values


for _name in NAMES:
    _f = getattr(np, _name)
    if _f not in NUMPY:
        NUMPY[_f] = _constant(_f)
