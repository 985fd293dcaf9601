"""Elements at a hidden index, x[i] where i differs from sample to sample or from replay to replay. They
are read, written and added to by their positions."""

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import BatchError
from ..._core.primitive import SAMPLED, layout_of, primal_of, values_of
from ..._core.scope import OPEN
from ..._core.variable import Variable
from ..declare import dtype, ndim, primitive, shape, xp
from ..piecewise import where
from ..shaping import broadcast_to, fit_to_shape, nested_to_array, reshape, transpose
from ..sorting import take_sorted, taken_back


def is_hidden(at) -> bool:
    """Does this index contain a number or array that differs between samples or replays?"""
    return bool(OPEN.hiding) and hidden_parts(at)


def hidden_parts(at) -> bool:
    if type(at) in (tuple, list):
        return any([hidden_parts(i) for i in at])
    if not isinstance(at, Variable):
        return False
    at = primal_of(at)
    return isinstance(at, Variable) and at._trace.picks(at)


def is_hidden_mask(x, at, y) -> bool:
    """Does x[at] = y equal an elementwise choice, for a mask that differs between replays?"""
    at = primal_of(at) if OPEN.hiding else None
    if not isinstance(at, Variable) or at._trace.visibility == SAMPLED or dtype(at).kind != "b":
        return False
    return 0 < ndim(at) and shape(at) == shape(x)[: ndim(at)] and np.ndim(layout_of(y)) <= ndim(x) - ndim(at)


class IndexPlaceholder:
    """Stands for the next hidden part of an index."""


HOLE = IndexPlaceholder()


def with_hidden_parts(at: tuple, parts) -> tuple:
    return tuple([next(parts) if i is HOLE else i for i in at])


def _stacked_places(run, stacks: list, params: dict):
    """The batching rule: the hidden parts have one more axis, and so do the parts broadcast with them."""
    at, to = params["at"], params["to"]
    rank = max([ndim(x) - 1 for x in stacks] + [np.ndim(i) for i in at if is_array(i)])
    y = run(
        *[reshape(x, to=shape(x)[:1] + (1,) * (rank + 1 - ndim(x)) + shape(x)[1:]) for x in stacks], **params
    )
    arrays = [k for k, i in enumerate(at) if not (i is None or i is Ellipsis or type(i) is slice)]
    if arrays[-1] - arrays[0] >= len(arrays):  # NumPy puts the axes of such an index first
        return y
    named = sum([i is not None and i is not Ellipsis for i in at])
    before = sum([1 if i is not Ellipsis else len(to) - named for i in at[: arrays[0]]])
    return transpose(y, axes=(before, *[k for k in range(ndim(y)) if k != before]))


@primitive(batch=_stacked_places)
def places_of(*parts, at, to):
    """The numbers of the elements that the index selects in an array of shape `to`."""
    library = xp_of(parts[0])
    return library.asarray(library.arange(int(np.prod(to))).reshape(to)[with_hidden_parts(at, iter(parts))])


ELEMENT_NUMBERS = places_of.prim


def element_numbers(x, at):
    """The numbers of the elements of x[at]."""
    parts = []

    def part(i):
        if isinstance(i, list):
            i = nested_to_array(i)
        if not isinstance(i, Variable):
            return i
        i = primal_of(i)
        if not isinstance(i, Variable):
            return i
        if dtype(i).kind == "b" and i._trace.visibility == SAMPLED:
            return agreed(i)
        if not i._trace.picks(i):
            return values_of(i)
        parts.append(i)
        return HOLE

    at = [part(i) for i in (at if type(at) is tuple else (at,))]
    at = tuple([i for j in at for i in (j.nonzero() if is_array(j) and j.dtype.kind == "b" else (j,))])
    if not parts:
        to = shape(x)
        return xp(x).arange(int(np.prod(to))).reshape(to)[at]
    return places_of(*parts, at=at, to=shape(x))


def agreed(mask: Variable):
    """A mask that is the same for all samples. If another trace hides it too, that trace is asked."""
    try:
        return values_of(mask)
    except BatchError as error:
        told = error
    raise BatchError(
        f"{told.args[0].partition(': a value is asked for')[0]}: x[mask] under tg.vmap, with a mask that "
        "differs between samples, would have a shape of its own for each; write numpy.where(mask, x, 0.0), "
        "or x[...] = numpy.where(mask, y, x)"
    )


def indexed_copy(x, at):
    """x[at], as a copy."""
    k, i = axis_and_index(x, at)
    if i is not None:  # whole slices
        before, after = shape(x)[:k], shape(x)[k + 1 :]
        if ndim(i) > 1:
            x = reshape(x, to=(*before, shape(x)[k], *(1,) * (ndim(i) - 1), *after))
        if before or after:
            i = reshape(i, to=(1,) * k + shape(i) + (1,) * len(after))
            i = broadcast_to(i, to=(*before, *shape(i)[k : ndim(i) - len(after)], *after))
        return take_sorted(x, i, k)
    n = element_numbers(x, at)
    if shape(n) == ():
        return take_sorted(reshape(x, to=(-1,)), reshape(n, to=(-1,)), 0)[0]
    return take_sorted(reshape(x, to=(-1,) + (1,) * (ndim(n) - 1)), n, 0)


def axis_and_index(x, at) -> tuple:
    """(axis, index) if `at` is one array that differs between replays, after full slices only; else (0,
    None)."""
    at = at if type(at) is tuple else (at,)
    k = len(at) - 1
    if (
        k >= ndim(x)
        or not all([type(i) is slice and i == slice(None) for i in at[:k]])
        or not isinstance(at[k], Variable)
    ):
        return 0, None
    i = primal_of(at[k])
    return (
        (k, i)
        if isinstance(i, Variable) and i._trace.visibility != SAMPLED and i._trace.picks(i)
        else (0, None)
    )


def _last_writers(run, stacks, params):
    """The batching rule: all samples as one array, with consecutive element numbers."""
    (n,), size = stacks, params["size"]
    count, m = shape(n)
    each = xp(n).arange(count)[:, None]
    y = reshape(run(reshape(n + each * size, to=(-1,)), size=count * size), to=(count, size))
    return where(y >= 0, y - each * m, -1)


@primitive(batch=_last_writers)
def last_writer(n, *, size):
    """For each of `size` elements, the last position in n that names it; -1 if none does."""
    y = xp_of(n).full(size, -1)
    y[n] = xp_of(n).arange(n.size)
    return y


def with_written(x, y, at):
    """The value of x after x[at] = y."""
    mask = primal_of(at) if isinstance(at, Variable) else at
    if isinstance(mask, Variable) and dtype(mask).kind == "b":
        extra = ndim(x) - ndim(mask)
        if ndim(y) > extra:
            return with_written(x, y, agreed(mask))
        return where(reshape(mask, to=shape(mask) + (1,) * extra), y, x)
    n = element_numbers(x, at)
    size = int(np.prod(shape(x)))
    writer = last_writer(reshape(n, to=(-1,)), size=size)
    y = reshape(
        broadcast_to(y if isinstance(y, Variable) or is_array(y) else xp(x).asarray(y), to=shape(n)), to=(-1,)
    )
    new = where(
        writer >= 0,
        take_sorted(fit_to_shape(y, shape(y), dtype(x)), np.maximum(writer, 0), 0),
        reshape(x, to=(-1,)),
    )
    return reshape(new, to=shape(x))


def with_added(x, y, at):
    """The value of x after numpy.add.at(x, at, y)."""
    n = element_numbers(x, at)
    y = reshape(
        broadcast_to(
            y if isinstance(y, Variable) or is_array(y) else xp(x).asarray(y, dtype=dtype(x)), to=shape(n)
        ),
        to=(-1,),
    )
    size = int(np.prod(shape(x)))
    return x + reshape(taken_back(y, reshape(n, to=(-1,)), 0, (size,)), to=shape(x))
