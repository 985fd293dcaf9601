"""Functions whose derivative is zero, or whose result is no array: they run on the values.  (Comparisons, indices, counts,
tests, facts of shape and dtype.)

None of them gives floats: a result of floats that depends on a tracked argument (the weights of `bincount`) has a rule, or raises."""

from typing import Any

import numpy as np

from .._array import F8, is_array, is_differentiable, xp_of
from .._primitive import is_tracked, plain
from ..errors import ArgumentError, NoRuleError
from ._define import NUMPY, implements, shape
from .creation import linspace
from .products import flat
from .reductions import amax, amin, sum
from .shaping import arrays_of, astype
from .sorting import taken_back

NAMES = (
    "all", "any", "nonzero", "flatnonzero", "argwhere", "count_nonzero", "array_equal", "array_equiv", "allclose", "isclose", "shape",
    "ndim", "size", "iscomplexobj", "isrealobj", "iscomplex", "isreal", "isneginf", "isposinf", "isin", "result_type", "can_cast",
    "common_type", "may_share_memory", "array_repr", "array_str", "array2string", "digitize", "tril_indices_from",
    "triu_indices_from", "diag_indices_from", "argmax", "argmin", "nanargmax", "nanargmin", "argsort", "argpartition", "lexsort",
    "searchsorted", "isnan", "isinf", "isfinite", "signbit", "logical_and", "logical_or", "logical_not", "logical_xor", "equal",
    "not_equal", "less", "less_equal", "greater", "greater_equal",
    "unravel_index", "ravel_multi_index", "indices", "min_scalar_type", "iterable", "isscalar", "broadcast_shapes",
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


def tracked(xs: Any) -> bool:
    return any(tracked(x.values() if type(x) is dict else x) if type(x) in (list, tuple, dict) else is_tracked(x) for x in xs)


def has_floats(y: Any) -> bool:
    """Is there a float or complex array or number in a result?"""
    if isinstance(y, (list, tuple)):
        return any(has_floats(v) for v in y)
    return is_differentiable(y)


def _constant(f):
    name = f.__name__

    def on_values(*args, **kwargs):
        plain_args = [values(a) for a in args]
        y = getattr(library_of(plain_args), name)(*plain_args, **{k: values(v) for k, v in kwargs.items()})
        if has_floats(y) and f not in STEPS and (tracked(args) or tracked(kwargs.values())):
            raise NoRuleError(
                f"numpy.{name} gives floats here, which depend on a tracked Variable, and has no derivative rule for them; compose it "
                "of other operations, or cut the derivative with tapegrad.value(x)"
            )
        return y

    on_values.__name__ = name
    return on_values


STEPS = (np.fix,)  # floats, constant between steps
for _name in NAMES:
    _f = getattr(np, _name)
    if _f not in NUMPY:
        NUMPY[_f] = _constant(_f)


@implements(np.bincount)
def bincount(x, /, weights=None, minlength=0):
    """Linear in the weights."""
    at = values(x)
    at = at if is_array(at) else np.asarray(at)
    if weights is None or not tracked([weights]):
        return xp_of(at).bincount(at, values(weights), minlength)
    w = arrays_of([weights])[0]
    if shape(w) != at.shape or at.ndim != 1:
        raise ValueError("numpy.bincount: x and weights must be vectors of the same length")
    size = len(xp_of(at).bincount(at, None, minlength))
    return taken_back(astype(w, to=F8), at=at.astype(np.intp), axis=0, like=(size,))


@implements(np.histogram)
def histogram(a, bins=10, range=None, density=None, weights=None):
    """Counts have derivative zero.  Linear in the weights; the edges move with what they are made from, with density= the bars too."""
    x = plain(arrays_of([a])[0])
    counts, edges = xp_of(x).histogram(x, values(bins), values(range), weights=values(weights))
    if type(bins) is not str and np.ndim(values(bins)):
        moved = arrays_of([bins])[0] if tracked([bins]) else edges
    elif not tracked([a] if range is None else range):
        moved = edges
    elif type(bins) is str:
        raise ArgumentError(
            f"numpy.histogram: bins={bins!r} chooses the edges by the data, and has no derivative; give their number, or the edges"
        )
    else:
        low, high = (amin(a), amax(a)) if range is None else range
        same = 0.5 * (plain(low) == plain(high))
        moved = linspace(low - same, high + same, len(edges))
    if tracked([weights]):
        x, w = x.ravel(), flat(arrays_of([weights])[0])
        if not is_differentiable(plain(w)) or plain(w).dtype.kind == "c":
            raise ArgumentError("numpy.histogram: weights of complex numbers; take the histograms of their real and imaginary parts")
        inside = (x >= edges[0]) & (x <= edges[-1])
        at = xp_of(x).searchsorted(edges, x[inside], "right") - 1
        counts = bincount(at - (at == len(edges) - 1), w[inside], len(edges) - 1)
    return (counts / sum(counts) / (moved[1:] - moved[:-1]) if density else counts), moved
