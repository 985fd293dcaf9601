"""Sorting, and what finds elements by value.  An order is found on plain values and then applied as a constant permutation; equal
elements keep their order, so that the derivative of `sort` is the same on every library."""

from typing import Any

import numpy as np

from .._array import F8, xp_of
from .._primitive import plain
from ..errors import ArgumentError
from ._define import dtype, implements, linear, ndim, primitive, rules, shape, xp
from .elementwise import select
from .elementwise_more import floor
from .indexing import scatter_add
from .products import flat
from .shaping import arrays_of, astype, concatenate, reshape, zeros_like

# --- elements by an index along one axis ---


@primitive(shapes=(0,))
def taken(x, *, at, axis):
    """The elements of x at the indices `at`, an array with as many axes, along one axis."""
    return xp_of(x).take_along_axis(x, at, axis)


@primitive(shapes=(0,))
def taken_back(x, *, at, axis, like):
    """The adjoint of `taken`: elements of equal index are added."""
    library = xp_of(x)
    out = library.zeros(like, x.dtype)
    where = [library.arange(n).reshape((n,) + (1,) * (len(like) - 1 - i)) for i, n in enumerate(like)]
    where[axis] = at
    for i, n in enumerate(like):
        if i != axis and at.shape[i] != n:
            where[i] = where[i][:1] * 0
    if library is np:
        np.add.at(out, tuple(where), x)
    else:
        scatter_add(out, tuple(where), x)
    return out


rules(taken, lambda g, out, x, at, axis: taken_back(g, at=at, axis=axis, like=shape(x)), jvp=linear)
rules(taken_back, lambda g, out, x, at, axis, like: taken(g, at=at, axis=axis), jvp=linear)


@implements(np.take_along_axis)
def take_along_axis(arr, indices, axis=-1):
    at = plain(indices)
    if axis is None:
        return taken(flat(arr), at=at, axis=0)
    n = ndim(arr)
    axis = int(axis) % n
    s, r = list(shape(arr)), list(at.shape)
    s[axis], r[axis] = 1, 1
    if s != r:  # the other axes are broadcast
        both = list(np.broadcast_shapes(tuple(s), tuple(r)))
        library = xp(arr)
        full = list(both)
        full[axis] = at.shape[axis]
        at = library.broadcast_to(at, full)
        if both != s:
            both[axis] = shape(arr)[axis]
            arr = broadcast(arr, tuple(both))
    return taken(arr, at=at.copy(), axis=axis)


def broadcast(x: Any, to: tuple) -> Any:
    return x + xp(x).zeros(to, plain(x).dtype)


# --- sorting ---


def _order(a: Any, axis: int) -> Any:
    a = plain(a)
    return np.argsort(a, axis, kind="stable") if xp_of(a) is np else xp_of(a).argsort(a, axis)


def _along(a: Any, axis: Any) -> tuple:
    """(array, axis) with NumPy's axis=None made axis 0 of the flat array."""
    a = a if hasattr(a, "shape") else arrays_of([a])[0]
    if axis is None:
        return flat(a), 0
    if not -ndim(a) <= axis < ndim(a):
        raise np.exceptions.AxisError(axis, ndim(a))
    return a, int(axis) % ndim(a)


def without_fields(name: str, order: Any) -> None:
    if order is not None:
        raise ArgumentError(f"numpy.{name}: order= names fields, and an array of floats has none")


@implements(np.sort)
def sort(a, axis=-1, kind=None, order=None, *, stable=None):
    without_fields("sort", order)
    a, axis = _along(a, axis)
    return taken(a, at=_order(a, axis), axis=axis)


@implements(np.sort_complex)
def sort_complex(a):
    return sort(a) * (1 + 0j)


@implements(np.partition)
def partition(a, kth, axis=-1, kind="introselect", order=None):
    without_fields("partition", order)
    if kind != "introselect":
        raise ArgumentError(f"numpy.partition: kind={kind!r}; it is 'introselect'")
    a, axis = _along(a, axis)
    return taken(a, at=xp(a).argpartition(plain(a), kth, axis), axis=axis)


@implements(np.unique)
def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True, sorted=True):
    """Of equal elements the first takes the derivative."""
    x = plain(ar)
    if axis is not None or ndim(ar) == 0:
        raise ArgumentError("numpy.unique: of a tracked Variable only flat, without axis=")
    rest = {"equal_nan": equal_nan} if xp_of(x) is np else {}
    found = xp_of(x).unique(x, True, return_inverse, return_counts, **rest)
    first, rest = found[1], list(found[2:])
    values = taken(flat(ar), at=first, axis=0)
    out = [values] + ([first] if return_index else []) + rest
    return tuple(out) if len(out) > 1 else values


@implements(np.interp)
def interp(x, xp, fp, left=None, right=None, period=None):
    """Piecewise linear; outside the range of xp constant.  At a node the slope is that of the piece to its right."""
    x, xp, fp = [a if dtype(a) == F8 or dtype(a).kind == "c" else astype(a, to=F8) for a in arrays_of((x, xp, fp))]
    if period is not None:
        period = abs(period)
        x, xp = x - period * floor(x / period), xp - period * floor(xp / period)
        order = _order(xp, 0)
        xp, fp = taken(xp, at=order, axis=0), taken(fp, at=order, axis=0)
        n = shape(xp)[0]
        xp = concatenate(xp[n - 1 :] - period, xp, xp[:1] + period)
        fp = concatenate(fp[n - 1 :], fp, fp[:1])
        left = right = None
    n, values, nodes = shape(xp)[0], plain(x), plain(xp)
    library = xp_of(nodes)
    left, right = fp[0] if left is None else left, fp[n - 1] if right is None else right
    if n == 1:
        y = fp[0] + zeros_like(x)
    else:
        at = library.clip(library.searchsorted(nodes, values, "right") - 1, 0, n - 2)
        at = reshape(at, to=shape(x))
        a, b, u, v = fp[at], fp[at + 1], xp[at], xp[at + 1]
        y = a + (x - u) * ((b - a) / (v - u))
    return select(values > nodes[n - 1], right, select(values < nodes[0], left, y))
