"""NumPy's views of a Variable. Where NumPy returns a view, these functions return a `View`, so writes
through either are seen by both.

Each function takes NumPy's arguments. For a plain array it returns NumPy's or CuPy's own view."""

import operator

import numpy as np

from ..._core.arrays import in_order_of_memory, is_array, may_share_memory, overlaps
from ..._core.errors import ArgumentError
from ..._core.primitive import (
    READ,
    bind,
    handle,
    hook,
    is_subarray,
    layout_of,
    path_to_owner,
    values_of,
    view,
)
from ..._core.registry import late
from ..._core.scope import OPEN
from ..._core.variable import ArrayVariable, Variable, View
from .. import shaping as s
from ..declare import axes_of, dtype, follow, implements, shape, xp
from ..declare import shape as dim
from ..shaping import arrays_of
from . import regions as ix
from .hidden_regions import is_view_at, region_at
from .traced_indices import indexed_copy, is_hidden
from .traced_masks import is_mask, is_recorded, selected


def layout_source(x: Variable):
    """The value under x, for its shape and layout only: an unread view stays unread."""
    if type(x) is View:
        return ix.region(layout_of(x._base), x._path)
    return layout_of(x)


late.shown = layout_source


def index(at):
    """An index with Variables replaced by their values (an index has derivative zero). A bare None
    becomes (None,), because None in a record means no index."""
    if type(at) is slice:
        return unchanging(at)
    if at is None:
        return (None,)
    if isinstance(at, Variable):
        return values_of(at)
    if isinstance(at, tuple):
        return tuple([i if i is None or type(i) is int else index(i) for i in at])
    if isinstance(at, list):
        return index_list(at)
    return index(at._array) if is_subarray(at) else at


def unchanging(at: slice) -> slice:
    """A slice with constant bounds. Bounds that are arrays could change before the view is read."""
    start, stop, step = at.start, at.stop, at.step
    if (
        (start is None or type(start) is int)
        and (stop is None or type(stop) is int)
        and (step is None or type(step) is int)
    ):
        return at
    return slice(*[None if i is None else whole_number(i) for i in (start, stop, step)])


def index_list(at: list) -> list:
    return [
        index_list(i) if isinstance(i, list) else values_of(i) if isinstance(i, Variable) else i for i in at
    ]


@hook
def getitem(x, at):
    """x[at]: a view for a basic index, else an element or a copy."""
    kind = type(at)
    if kind is int or kind is slice:
        rank = len(x.shape)
        if rank and kind is slice:
            return view(x, ("at", unchanging(at)))
        if not rank and kind is int:
            raise IndexError(
                f"a number has no elements: x[i] of shape () ({type(layout_source(x)).__name__})"
            )
        # CuPy returns a view even for one element
        if rank > 1 or (rank and xp(x._base if type(x) is View else x) is not np):
            layout_source(x)[at]  # raises as NumPy does
            return view(x, ("at", at))
    else:
        if is_hidden(at):
            if is_view_at(x, at):
                return region_at(x, at)
            x = s.copy(x) if type(x) is View else x
            return selected(x, at) if is_mask(x, at) else indexed_copy(x, at)
        if OPEN.hiding and is_mask(x, at) and is_recorded(at):
            return selected(s.copy(x) if type(x) is View else x, at)
        at = index(at)
        # a view, not an element; for a number a new array
        if ix.basic(at) and is_array(layout_source(x)[at]):
            return view(x if is_array(layout_source(x)) else s.array_of(x), ("at", at))
    base, path = path_to_owner(x)
    try:
        base._version  # noqa: B018 (unset until it matters)
    except AttributeError:
        base._version = 0
    return bind(READ, (base,), {"path": path, "at": at, "copy": False})


def is_element(at: tuple, rank: int) -> bool:
    return len(at) == rank and all([type(i) is int for i in at])


def slice_of(x, at: tuple):
    """x[at] for slices; x may be plain."""
    return view(x, ("at", at)) if isinstance(x, Variable) else x[at]


def array_like(a):
    """A Variable or array unchanged, anything else as an array."""
    return a if isinstance(a, Variable) or is_array(a) else s.nested_to_array(a)


def axis_sizes(to) -> tuple:
    to = values_of(to)
    to = to.tolist() if is_array(to) else to
    return tuple([whole_number(n) for n in to]) if isinstance(to, (tuple, list)) else (whole_number(to),)


def whole_number(n) -> int:
    n = n if type(n) is int else values_of(n)
    return operator.index(n.item() if is_array(n) else n)  # CuPy's arrays of one integer have no `__index__`


# --- shape ---


@implements(np.reshape, layout="own")
def reshape(a, shape=None, order="C", *, newshape=None, copy=None):
    """A view where NumPy returns one, else a reshaped copy. `newshape`: the older name of the shape,
    before NumPy 2.4."""
    a, shape = array_like(a), shape if newshape is None else newshape
    to = dim(a) if shape is None else axis_sizes(shape)
    if order == "A":
        flags = getattr(layout_source(a) if isinstance(a, Variable) else a, "flags", None)
        order = "F" if flags is not None and flags.f_contiguous and not flags.c_contiguous else "C"
    if order == "F":
        n = getattr(layout_of(a), "size", 1)
        if -1 in to:
            known = int(np.prod([k for k in to if k != -1]))
            to = tuple([n // max(known, 1) if k == -1 else k for k in to])
        return transpose(reshape(transpose(a), to[::-1], copy=copy))
    if order != "C":
        raise ArgumentError(f"reshape: order={order!r} is not supported; use 'C' or 'F'")
    if not isinstance(a, Variable):
        return a.reshape(to)
    here = layout_source(a)
    there = here.reshape(to)
    if not is_array(here):
        return s.reshape(a, to=there.shape)
    if copy is not True and (may_share_memory(here, there) or here.size == 0):
        return view(a, ("reshape", there.shape))
    if copy is False:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return s.reshape(s.copy(a, "C"), to=there.shape)


@implements(np.ravel, layout="own")
def ravel(a, order="C"):
    """A view of contiguous memory, else a copy."""
    a = array_like(a)
    here = layout_source(a) if isinstance(a, Variable) else a
    if order == "K" and is_array(here):  # the axes in memory order
        a, order = permuted_view(a, tuple(in_order_of_memory(here.shape, here.strides))), "C"
        here = layout_source(a) if isinstance(a, Variable) else a
    elif order == "A" and is_array(here):
        order = "F" if here.flags.f_contiguous else "C"
    if (
        is_array(here)
        and order in ("C", "F")
        and not (here.flags.f_contiguous if order == "F" else here.flags.c_contiguous)
    ):
        # NumPy copies non-contiguous arrays, even where a view is possible
        return reshape(s.copy(a), (-1,), order)
    return reshape(a, (-1,), order)


def permuted_view(x, axes: tuple):
    if not isinstance(x, Variable):
        return x.transpose(axes)
    return view(x, ("transpose", axes)) if axes and is_array(layout_source(x)) else x


DIAGONAL = ("diagonal", (0, 0, 1))


@hook
def reversed_axes(x: Variable):
    """The transpose x.T."""
    return transpose(x)


@hook
def diagonal_of(x: Variable) -> View:
    """The diagonal of a matrix."""
    return view(x, DIAGONAL)


@implements(np.transpose, layout="own")
def transpose(a, axes=None):
    a = array_like(a)
    n = len(shape(a))
    if axes is None:
        return permuted_view(a, tuple(range(n))[::-1])
    axes = axis_sizes(axes)
    if len(axes) != n:
        raise ValueError(f"axes {axes} do not permute the axes of an array of shape {shape(a)}")
    return permuted_view(a, axes_of(axes, n))


implements(np.permute_dims, layout="own")(transpose)


@implements(np.matrix_transpose, np.linalg.matrix_transpose, layout="own")
def matrix_transpose(x):
    x = array_like(x)
    n = len(shape(x))
    if n < 2:
        raise ValueError("matrix_transpose: the array needs at least two axes")
    return permuted_view(x, (*range(n - 2), n - 1, n - 2))


@implements(np.swapaxes, layout="own")
def swapaxes(a, axis1, axis2):
    a = array_like(a)
    axes = list(range(len(shape(a))))
    i, j = axes_of(axis1, len(axes))[0], axes_of(axis2, len(axes))[0]
    axes[i], axes[j] = axes[j], axes[i]
    return permuted_view(a, tuple(axes))


@implements(np.moveaxis, layout="own")
def moveaxis(a, source, destination):
    a = array_like(a)
    n = len(shape(a))
    source, destination = axes_of(source, n), axes_of(destination, n)
    if len(source) != len(destination):
        raise ValueError("moveaxis: source and destination must have the same number of axes")
    order = [k for k in range(n) if k not in source]
    for d, k in sorted(zip(destination, source, strict=True)):
        order.insert(d, k)
    return permuted_view(a, tuple(order))


@implements(np.expand_dims, layout="own")
def expand_dims(a, axis):
    a = array_like(a)
    here = shape(a)
    n = len(here) + (1 if isinstance(axis, (int, np.integer)) else len(axis))
    new, rest = axes_of(axis, n), iter(here)
    return reshape(a, tuple([1 if k in new else next(rest) for k in range(n)]))


@implements(np.squeeze, layout="own")
def squeeze(a, axis=None):
    a = array_like(a)
    here = shape(a)
    if not here and isinstance(axis, (int, np.integer)) and axis in (0, -1):
        axis = None  # as in NumPy
    gone = (
        tuple([k for k, size in enumerate(here) if size == 1]) if axis is None else axes_of(axis, len(here))
    )
    if any(here[k] != 1 for k in gone):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshape(a, tuple([size for k, size in enumerate(here) if k not in gone]))


def of_rank(rank: int):
    def at_least(a):
        a = array_like(a)
        s = shape(a)
        if len(s) >= rank:
            return a
        if rank == 3:
            return reshape(a, {0: (1, 1, 1), 1: (1, *s, 1), 2: (*s, 1)}[len(s)])
        return reshape(a, (1,) * (rank - len(s)) + s)

    def of(*arys):
        return at_least(arys[0]) if len(arys) == 1 else tuple([at_least(a) for a in arys])

    return of


atleast_1d, atleast_2d, atleast_3d = [
    implements(f, layout="own")(of_rank(n + 1))
    for n, f in enumerate((np.atleast_1d, np.atleast_2d, np.atleast_3d))
]


# --- broadcasting, diagonals, parts of complex numbers ---


@implements(np.broadcast_to, layout="own")
def broadcast_to(array, shape, subok=False):
    """A read-only view, as in NumPy."""
    x, to = array_like(array), axis_sizes(shape)
    if not isinstance(x, Variable):
        return xp(x).broadcast_to(x, to)
    here = layout_source(x)
    # raises as NumPy does
    np.broadcast_to(np.int8(0) if not np.shape(here) else np.broadcast_to(np.int8(0), np.shape(here)), to)
    return view(x, ("broadcast", to)) if is_array(here) else s.broadcast_to(x, to=to)


@implements(np.broadcast_arrays, layout="own")
def broadcast_arrays(*args, subok=False):
    xs = [x if is_array(layout_of(x)) else s.array_of(x) for x in arrays_of(args)]
    to = np.broadcast_shapes(*[shape(x) for x in xs])
    return tuple([x if shape(x) == to else broadcast_to(x, to) for x in xs])


@implements(np.diagonal, layout="own")
def diagonal(a, offset=0, axis1=0, axis2=1):
    """A read-only view, as in NumPy."""
    a = array_like(a)
    if not isinstance(a, Variable):
        return xp(a).diagonal(a, offset, axis1, axis2)
    here = a._value
    if (
        type(a) is ArrayVariable
        and type(here) is np.ndarray
        and here.ndim == 2
        and offset == axis1 == 0
        and axis2 == 1
    ):
        return diagonal_of(a)
    layout_source(a).diagonal(offset, axis1, axis2)
    return view(a, ("diagonal", (offset, axis1, axis2)))


@implements(np.lib.stride_tricks.sliding_window_view, layout="own")
def sliding_window_view(x, window_shape, axis=None, *, subok=False, writeable=False):
    """A view, read-only unless `writeable` is set, as in NumPy."""
    x = array_like(x)
    size, axis = [a if a is None or type(a) is int else axis_sizes(a) for a in (window_shape, axis)]
    if not isinstance(x, Variable):
        return xp(x).lib.stride_tricks.sliding_window_view(x, size, axis, subok=subok, writeable=writeable)
    if writeable:
        raise ArgumentError(
            "sliding_window_view: writeable=True, whose elements share memory with each other: write the "
            "array itself"
        )
    ix.windows(np.broadcast_to(np.int8(0), dim(x)), size, axis)  # raises as NumPy does
    return view(x, ("windows", (size, axis)))


@implements(np.lib.stride_tricks.as_strided, layout="own")
def as_strided(x, shape=None, strides=None, subok=False, writeable=True):
    x = array_like(x)
    layout = layout_source(x)
    shape = layout.shape if shape is None else axis_sizes(shape)
    # without strides NumPy packs the shape, for it takes an array in C order
    strides = np.empty(shape, layout.dtype).strides if strides is None else axis_sizes(strides)
    steps = tuple([s // layout.itemsize for s in strides])
    last = sum([(n - 1) * s for n, s in zip(shape, steps, strict=True) if n])
    if (
        not layout.flags.c_contiguous
        or min(strides, default=0) < 0
        or any([s % layout.itemsize for s in strides])
        or last >= layout.size
    ):
        raise ArgumentError(
            "as_strided of a tracked array: it is in C order, steps are positive and stay in it; else use "
            "x[i]"
        )
    y = view(x, ("sliding" if overlaps(shape, strides, layout.itemsize) else "window", (shape, 0, steps)))
    return y if writeable else view(y, ("broadcast", shape))


@implements(np.linalg.diagonal, layout="own")
def linalg_diagonal(x, *, offset=0):
    return diagonal(x, offset, -2, -1)


@implements(np.real, layout="own")
def real(val):
    x = array_like(val)
    if not isinstance(x, Variable):
        return x.real
    if dtype(x).kind != "c":
        return x
    return view(x, ("real", None)) if is_array(layout_source(x)) else s.real(x)


@implements(np.imag, layout="own")
def imag(val):
    x = array_like(val)
    if not isinstance(x, Variable):
        return x.imag
    if dtype(x).kind != "c":
        here = layout_source(x)
        return handle(
            xp(x).zeros(here.shape, here.dtype, "F" if here.flags.fnc else "C")
            if is_array(here)
            else here.dtype.type(0)
        )
    return view(x, ("imag", None)) if is_array(layout_source(x)) else s.imag(x)


# --- reversed axes ---


@implements(np.flip, layout="own")
def flip(m, axis=None):
    m = array_like(m)
    n = len(shape(m))
    gone = range(n) if axis is None else axes_of(axis, n)
    if not n:
        return m[()]
    return slice_of(m, tuple([slice(None, None, -1 if k in gone else None) for k in range(n)]))


@implements(np.rot90, layout="own")
def rot90(m, k=1, axes=(0, 1)):
    m = array_like(m)
    a, b = axes_of(axes, len(shape(m)))
    k %= 4
    if k == 0:
        return slice_of(m, (Ellipsis,))
    if k == 2:
        return flip(flip(m, a), b)
    return swapaxes(flip(m, b), a, b) if k == 1 else flip(swapaxes(m, a, b), b)


# --- split ---


follow(
    __name__, np.rollaxis, np.fliplr, np.flipud, np.unstack, np.array_split,
    np.split, np.hsplit, np.vsplit, np.dsplit,
)  # fmt: skip
