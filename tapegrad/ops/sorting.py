"""Sorting, and functions that find elements by value.

The order is found on primal values and applied as a constant permutation. Equal elements keep their
order, so the derivative of `sort` is the same with every library."""

import math

import numpy as np

from .._core.arrays import F8, is_array, xp_of
from .._core.errors import ArgumentError
from .._core.primitive import nests_variable, primal_of, seen, values_of
from .._core.variable import Variable
from .declare import (
    axis_of,
    dtype,
    follow,
    implements,
    linear,
    ndim,
    primitive,
    rules,
    shape,
    sum_of_given,
    xp,
)
from .elementwise import select
from .indexing.regions import scatter
from .nondifferentiable import holds_somewhere
from .piecewise import floor, maximum, minimum
from .products import flat_operand
from .shaping import arrays_of, astype, broadcast_to, concatenate, reshape, zeros_like
from .zero_derivative import argpartition, argsort, searchsorted

# --- elements by an index along one axis ---

# The index is a setting, or an operand if a trace hides it.


def joined_axes(to: tuple, axis: int) -> tuple:
    """The shape of indices along `axis` with the later axes joined to it."""
    return (*to[:axis], math.prod(to[axis:]))


def is_last(to: tuple, axis: int) -> bool:
    """Do axes of one element follow this one?"""
    return 0 < axis + 1 < len(to) and math.prod(to[axis + 1 :]) == 1


@primitive(batch="moves")
def taken_at(x, *, at, axis):
    """The elements of x at the indices `at` along one axis. `at` has as many axes as x; axes of one element
    are broadcast."""
    if type(x) is np.ndarray and x.ndim == at.ndim == 1:
        return x[at]  # without the preparations of `take_along_axis`
    if is_last(x.shape, axis):  # a vector, or several
        lines = xp_of(x).take_along_axis(
            x.reshape(x.shape[: axis + 1]), at.reshape(joined_axes(at.shape, axis)), axis
        )
        return lines.reshape(*lines.shape[:axis], *at.shape[axis:])
    return xp_of(x).take_along_axis(x, at, axis)


def _added_stacked(run, xs, params):
    """The batching rule of `added_at` and `added_by`: one more axis, for the samples."""
    count, more = len(xs[0]), {"axis": params["axis"] + 1, "like": (len(xs[0]), *params["like"])}
    if len(xs) == 1:
        library = xp(xs[0])
        more["at"] = library.broadcast_to(library.asarray(params["at"]), (count, *params["at"].shape))
    return run(*xs, **more)


@primitive(batch=_added_stacked)
def added_at(x, *, at, axis, like):
    """The adjoint of `taken_at`: elements with equal indices are added."""
    library = xp_of(x)
    out = library.zeros(like, x.dtype)
    if is_last(like, axis):  # a vector, or several
        x, at = [y.reshape(joined_axes(y.shape, axis)) for y in (x, at)]
        like = like[: axis + 1]
    into = out.reshape(like)
    where = [library.arange(n).reshape((n,) + (1,) * (len(like) - 1 - i)) for i, n in enumerate(like)]
    where[axis] = at
    for i, n in enumerate(like):
        if i != axis and at.shape[i] != n:
            where[i] = where[i][:1] * 0
    if library is np:
        np.add.at(into, tuple(where), x)
    else:
        scatter("add", into, tuple(where), x)
    return out


@primitive(shapes=(0,), batch="axis")
def taken_by(x, at, *, axis):
    return taken_at(x, at=at, axis=axis)


@primitive(shapes=(0,), batch=_added_stacked, total=True)
def added_by(x, at, *, axis, like):
    return added_at(x, at=at, axis=axis, like=like)


def take_sorted(x, at, axis: int):
    return taken_by(x, at, axis=axis) if isinstance(at, Variable) else taken_at(x, at=at, axis=axis)


TAKEN_BY, ADDED_BY = taken_by.prim, added_by.prim


def taken_back(x, at, axis: int, like: tuple):
    return (
        added_by(x, at, axis=axis, like=like)
        if isinstance(at, Variable)
        else added_at(x, at=at, axis=axis, like=like)
    )


rules(taken_at, lambda g, out, x, at, axis: taken_back(g, at, axis, shape(x)), jvp=linear)
rules(added_at, lambda g, out, x, at, axis, like: take_sorted(g, at, axis), jvp=linear)
rules(
    taken_by,
    lambda g, out, x, at, axis: taken_back(g, at, axis, shape(x)),
    lambda g, out, x, at, axis: None,
    jvp=lambda t, out, x, at, axis: take_sorted(t[0], at, axis),
)
rules(
    added_by,
    lambda g, out, x, at, axis, like: take_sorted(g, at, axis),
    lambda g, out, x, at, axis, like: None,
    jvp=lambda t, out, x, at, axis, like: taken_back(t[0], at, axis, like),
)


# --- ufunc.at of maximum and minimum: equal elements share the derivative ---


@primitive(total=True)
def extreme_at(x, y, *, at, largest):
    """The vector x after numpy.maximum.at(x, at, y), or minimum.at."""
    out, ufunc = x.copy(), np.maximum if largest else np.minimum
    if xp_of(x) is np:
        with np.errstate(invalid="ignore"):  # comparisons with nan warn, `maximum` itself does not
            ufunc.at(out, at, y)
    else:
        scatter(ufunc.__name__, out, at, y)
    return out


def tie_shares(out, x, y, at) -> tuple:
    """The shares of x and of y in each result."""
    out, x, y = primal_of(out), primal_of(x), primal_of(y)
    own, brought = (x == out) * 1.0, (y == take_sorted(out, at, 0)) * 1.0
    count = maximum(own + taken_back(brought, at, 0, shape(x)), 1.0)
    return own / count, brought / take_sorted(count, at, 0)


def masked_extreme_jvp(t, out, x, y, at, largest):
    parts = [None if d is None else d * s for d, s in zip(t, tie_shares(out, x, y, at), strict=True)]
    return sum_of_given((parts[0], None if parts[1] is None else taken_back(parts[1], at, 0, shape(x))))


rules(
    extreme_at,
    lambda g, out, x, y, at, largest: g * tie_shares(out, x, y, at)[0],
    lambda g, out, x, y, at, largest: take_sorted(g, at, 0) * tie_shares(out, x, y, at)[1],
    jvp=masked_extreme_jvp,
)


def with_extremes(x, y, places, largest: bool):
    """x after numpy.maximum.at, or minimum.at, at the elements with these numbers."""
    y = y if isinstance(y, Variable) or is_array(y) else xp(x).asarray(y)
    y = flat_operand(broadcast_to(astype(y, to=dtype(x)), to=places.shape))
    return reshape(extreme_at(flat_operand(x), y, at=places.ravel(), largest=largest), to=shape(x))


@implements(np.bincount)
def bincount(x, /, weights=None, minlength=0):
    """Linear in the weights."""
    at = values_of(x)
    at = at if is_array(at) else np.asarray(at)
    if weights is None or not isinstance(weights, Variable) and not nests_variable(weights):
        return xp_of(at).bincount(at, weights, minlength)
    w = arrays_of([weights])[0]
    if shape(w) != at.shape or at.ndim != 1:
        raise ValueError("numpy.bincount: x and weights must be vectors of the same length")
    size = len(xp_of(at).bincount(at, None, minlength))
    return taken_back(astype(w, to=F8), at.astype(np.intp), 0, (size,))


# --- sorting ---


def _order(a, axis: int, **direction):
    a = primal_of(a)
    if direction:
        return argsort(a, axis, stable=True, **direction)
    if type(a) is np.ndarray:
        return a.argsort(axis, kind="stable")
    return argsort(a, axis, kind="stable") if xp(a) is np else argsort(a, axis)


def _along(a, axis) -> tuple:
    """(array, axis) with NumPy's axis=None made axis 0 of the flat array."""
    a = a if hasattr(a, "shape") else arrays_of([a])[0]
    if axis is None:
        return flat_operand(a), 0
    return a, axis_of(axis, ndim(a))


def without_fields(name: str, order) -> None:
    if order is not None:
        raise ArgumentError(f"numpy.{name}: order= names fields, and an array of floats has none")


@implements(np.sort)
def sort(a, axis=-1, kind=None, order=None, *, stable=None, descending=None):
    """The sorted array. (NumPy has `descending=` from 2.5 on.)"""
    without_fields("sort", order)
    a, axis = _along(a, axis)
    return take_sorted(a, _order(a, axis, **({"descending": True} if descending else {})), axis)


@implements(np.partition)
def partition(a, kth, axis=-1, kind="introselect", order=None):
    without_fields("partition", order)
    if kind != "introselect":
        raise ArgumentError(f"numpy.partition: kind={kind!r}; it is 'introselect'")
    a, axis = _along(a, axis)
    return take_sorted(a, argpartition(primal_of(a), kth, axis), axis)


@primitive(multi=3)
def places_of_unique(x, *, equal_nan, axis):
    """The position of the first of each distinct element; for each element, the number of its distinct
    value; the counts."""
    rest = {"equal_nan": equal_nan} if xp_of(x) is np else {}
    return tuple(xp_of(x).unique(x, True, True, True, **rest, **({} if axis is None else {"axis": axis}))[1:])


@implements(np.unique)
def unique(
    ar,
    return_index=False,
    return_inverse=False,
    return_counts=False,
    axis=None,
    *,
    equal_nan=True,
    sorted=True,
):
    """Among equal elements, the first gets the derivative."""
    if ndim(ar) == 0:
        raise ArgumentError("numpy.unique: of a tracked number; make it an array of one element")
    axis = None if axis is None else range(ndim(ar))[axis]
    first, inverse, counts = [
        values_of(k) for k in places_of_unique(primal_of(ar), equal_nan=equal_nan, axis=axis)
    ]
    values = take_sorted(flat_operand(ar), first, 0) if axis is None else ar[(slice(None),) * axis + (first,)]
    out = [values] + [
        k for k, on in ((first, return_index), (inverse, return_inverse), (counts, return_counts)) if on
    ]
    return tuple(out) if len(out) > 1 else values


def gather_elements(x, at, to: tuple):
    """The elements of the vector x at the indices `at`, a vector, in the shape `to`."""
    r = take_sorted(x, at, 0)
    return r if len(to) == 1 else reshape(r, to=to) if to else r[0]


@implements(np.interp)
def interp(x, xp, fp, left=None, right=None, period=None):
    """Piecewise linear interpolation, constant outside of the range of xp. At a node the slope is that of
    the piece to its right, at the last one that of the last piece."""
    x, xp, fp = [
        a if dtype(a) == F8 or dtype(a).kind == "c" else astype(a, to=F8) for a in arrays_of((x, xp, fp))
    ]
    if ndim(xp) != 1 or shape(xp) != shape(fp) or not shape(xp)[0]:
        raise ValueError(
            f"numpy.interp: xp and fp of shapes {shape(xp)} and {shape(fp)}, which must be vectors of one "
            f"length, not empty"
        )
    if period is not None:
        period = abs(period)
        x, xp = x - period * floor(x / period), xp - period * floor(xp / period)
        order = _order(xp, 0)
        xp, fp = take_sorted(xp, order, 0), take_sorted(fp, order, 0)
        n = shape(xp)[0]
        xp = concatenate(xp[n - 1 :] - period, xp, xp[:1] + period)
        fp = concatenate(fp[n - 1 :], fp, fp[:1])
        left = right = None
    n, values, nodes = shape(xp)[0], primal_of(x), primal_of(xp)
    if holds_somewhere(nodes[1:] < nodes[:-1]):
        raise ArgumentError("numpy.interp: xp is not increasing, and NumPy's value has no meaning")
    if n == 1:
        y = fp[0] + zeros_like(x)
    else:
        at = minimum(maximum(searchsorted(nodes, values, "right") - 1, 0), n - 2)
        at = at if ndim(at) == 1 else reshape(at, to=(-1,))
        a, b, u, v = [gather_elements(w, k, shape(x)) for w in (fp, xp) for k in (at, at + 1)]
        y = a + (x - u) * ((b - a) / (v - u))
    places, ends = seen(values), seen(nodes)
    if left is right is None and type(ends) is np.ndarray and places is not None:
        if not (np.any(places < ends[0]) or np.any(places > ends[-1])):
            return y
    left, right = fp[0] if left is None else left, fp[n - 1] if right is None else right
    return select(values > nodes[n - 1], right, select(values < nodes[0], left, y))


follow(__name__, np.sort_complex, np.take_along_axis)
