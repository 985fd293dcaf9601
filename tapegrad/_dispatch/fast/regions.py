"""Fast paths for views, elements, diagonals and writes into a buffer, with one open transform."""

from typing import Any

import numpy as np
from numpy import float64, ndarray

from ..._core.abstract_arrays import Hollow
from ..._core.arrays import F8, NUMBERS, zeros_laid_out
from ..._core.forward import Dual
from ..._core.primitive import ADD_AT, ASSIGN, READ, RECORDED, bind, own_memory, refresh, view
from ..._core.reverse import ELEMENT, REGION, Tape, setting_copy
from ..._core.variable import CLASSES, DIRECT, FLOAT, ArrayVariable, Variable, View, bottom, new, variable
from ...ops import protocols
from ...ops.indexing import regions, views, writes
from ...ops.indexing.regions import (
    ALL,
    laid_out_copy,
    layout_of_buffer,
    pull_diagonal,
    pull_element,
    pull_read,
    pull_turned,
    read,
    region,
    zeros_of_buffer,
)
from ...ops.indexing.views import DIAGONAL, is_element, layout_source, transpose, unchanging
from .replacing import before, replaces

# --- views and elements ---

TRANSPOSED = ("transpose", (1, 0))
refresh_generally, getitem_generally = before(refresh), before(views.getitem)
run_read, pull_assign, pull_add_at = read.prim.run, ASSIGN.vjp[0], ADD_AT.vjp[0]


def slot_read(trace, slot, value, path: tuple, at, copy: bool):
    """The slot, on a tape or a dual, of a region of a buffer with this slot and value."""
    if type(trace) is Dual:
        return bind(READ, (slot,), {"path": path, "at": at, "copy": copy})
    records = trace.records
    k = len(records)
    layout = layout_of_buffer(value) if at is None else trace.layout(value)
    records.append((pull_read, slot, REGION, None, layout, path, at))
    if k > trace.look:
        trace.grown()
    return k


@replaces(views.reversed_axes)
def reversed_axes(x):
    """The transpose of a matrix as an unread view. Until it is read, its value field holds x."""
    # (an unread value may stay unread)
    v = layout_source(x) if type(x) is View and x._seen != x._base._version else x._value
    while isinstance(v, Variable):
        v = v._value
    if getattr(v, "ndim", 0) != 2:
        return transpose(x)
    y = view(x, TRANSPOSED)
    if type(x) is not View or x._seen != -1 or x._value is None:  # x itself is not such an unread view
        y._value = x
    return y


def unread_transpose(y: View) -> Variable | None:
    """The matrix whose transpose is y, an unread result of `reversed_axes`. None unless the matrix may be
    read by alias: it was never written, and at most one tape is open."""
    source = y._value
    if y._base._version:
        return None
    if type(source) is View and source._seen:
        refresh(source)
    trace = source._trace
    return source if type(source._value) is ndarray and (trace is None or type(trace) is Tape) else None


@replaces(refresh)
def refreshed(y):
    base = y._base
    source = unread_transpose(y) if y._seen == -1 and y._value is not None else None
    if source is not None:
        base._saved = True
        y._value, y._trace, y._seen = source._value.T, source._trace, 0
        if y._trace is None:
            y._slot = None
        else:
            records = y._trace.records
            y._slot = len(records)
            records.append((pull_turned, source._slot, None, None, None, None, None))
        return
    value, trace = base._value, base._trace
    if type(value) is not ndarray or not (trace is None or type(trace) is Tape or type(trace) is Dual):
        refresh_generally(y)
        return
    hot = base._version > 0
    if not hot:
        base._saved = True
    path = y._path
    part = value[path[0][1]] if len(path) == 1 and path[0][0] == "at" else region(value, path)
    y._value = laid_out_copy(part) if hot and type(part) is ndarray else part
    y._trace, y._slot = (
        trace,
        None if trace is None else slot_read(trace, base._slot, value, y._path, None, hot),
    )
    y._seen = base._version


SLICED = frozenset((int, slice))


def are_places(at: tuple) -> bool:
    """Are all of these arrays of integers?"""
    return all([type(i) is ndarray and i.dtype.kind == "i" for i in at])


def is_region(at, value) -> bool:
    """Does this index, of slices or of slices and numbers, choose a part of the array and not one
    element? Raises as NumPy does."""
    kind = type(at)
    if kind is slice:
        return value.ndim > 0
    if (
        kind is int
        and value.ndim > 1
        or kind is tuple
        and SLICED.issuperset(map(type, at))
        and slice in map(type, at)
    ):
        value[at]
        return True
    return False


def part_unread(x: Variable, at) -> View:
    kind = type(at)
    if kind is tuple:
        at = tuple([i if type(i) is int else unchanging(i) for i in at])
    return view(x, ("at", unchanging(at) if kind is slice else at))


@replaces(views.getitem)
def getitem(x, at):
    if type(x) is ArrayVariable:
        value = x._value
        if type(value) is ndarray:
            kind, rank = type(at), value.ndim
            one = rank == 1 if kind is int else kind is tuple and len(at) == rank
            if kind is tuple:
                for i in at:
                    if type(i) is not int:
                        one = False
            if one:
                element, trace = value[at], x._trace
                if trace is None:
                    return element
                if type(trace) is Tape:
                    records, known = trace.records, trace.layouts.get(id(value))
                    k = len(records)
                    layout = known[1] if known is not None and known[0] is value else trace.layout(value)
                    records.append((pull_element, x._slot, ELEMENT, None, layout, (), at))
                    if k > trace.look:
                        trace.grown()
                    y = new(FLOAT if type(element) is float64 else CLASSES[type(element)])
                    y._value = element
                    y._trace = trace
                    y._slot = k
                    return y
                if type(trace) is Dual:
                    slot = x._slot
                    slot = slot[at] if type(slot) is ndarray else slot_read(trace, slot, value, (), at, False)
                    return variable(element, trace, slot)
                y = trace.element(x, at)
                if y is not None:
                    return y
            elif rank and kind is slice:
                return view(x, ("at", unchanging(at)))
            elif rank and kind is int:
                part = value[at]  # raises as NumPy does
                y = view(x, ("at", at))
                # read at once: a write to x moves it first
                if x._trace is None and not x._version and getattr(x, "_saved", False):
                    y._value, y._seen = part, 0
                return y
            elif kind is tuple and SLICED.issuperset(map(type, at)) and slice in map(type, at):
                value[at]
                return part_unread(x, at)
            elif (
                type(x._trace) is Tape
                and (kind is ndarray or kind is tuple and at)
                and are_places(at if kind is tuple else (at,))
            ):
                trace, taken = x._trace, run_read(value, path=(), at=at, copy=False)
                return variable(taken, trace, slot_read(trace, x._slot, value, (), setting_copy(at), False))
        elif type(value) is Hollow:  # the value of a trace that hides its values
            one = value.ndim == 1 if type(at) is int else type(at) is tuple and is_element(at, value.ndim)
            y = x._trace.element(x, at) if one else None
            if y is not None:
                return y
            if is_region(at, value):
                return part_unread(x, at)
        elif type(value) is ArrayVariable and isinstance(x._trace, Tape):  # a tape over other transforms
            trace = x._trace
            below = bottom(value)
            rank = below.ndim if type(below) in (ndarray, Hollow) else None
            if rank == 1 if type(at) is int else rank and type(at) is tuple and is_element(at, rank):
                y = trace.element(x, at)
                if y is not None:
                    return y
                y = variable(getitem(value, at), trace, len(trace.records))
                trace.records.append((pull_element, x._slot, ELEMENT, None, trace.layout(below), (), at))
                if y._slot > trace.look:
                    trace.grown()
                return y
            if rank and is_region(at, below):
                return part_unread(x, at)
    return getitem_generally(x, at)


@replaces(regions.pull_element)
def pull_one(G, owned, k, g, i, _, layout, path, at):
    h = G[i]
    if type(g) is float64:
        if h is None:
            G[i] = h = zeros_laid_out(*layout)
            owned.add(i)
            h[at] = g
            return
    elif type(g) is FLOAT and type(g._trace) is Dual and type(g._value) is type(g._slot) is float64:  # dual
        trace = g._trace
        if h is None:
            h, tangent = zeros_laid_out(*layout), zeros_laid_out(*layout)
            h[at], tangent[at] = g._value, g._slot
            G[i] = variable(h, trace, tangent)
            owned.add(i)
            return
        if (
            type(h) is ArrayVariable
            and i in owned
            and h._trace is trace
            and type(h._value) is type(h._slot) is ndarray
        ):
            h._value[at] += g._value
            h._slot[at] += g._slot
            return
    pull_read(G, owned, k, g, i, None, layout, path, at)


@replaces(views.diagonal_of)
def diagonal_of(x):
    """The diagonal of a matrix, read at once if an alias is safe: it was never written, and at most one
    tape is open."""
    y = view(x, DIAGONAL)
    trace = x._trace
    if x._version or not (trace is None or type(trace) is Tape):
        return y
    x._saved = True
    y._value, y._trace, y._seen = x._value.diagonal(), trace, 0
    if trace is not None:
        records = trace.records
        y._slot = len(records)
        records.append((pull_diagonal, x._slot, REGION, None, layout_of_buffer(x._value), None, None))
    return y


# --- writes ---

NUMBER = ((), F8)  # shape and dtype of a number


def record_write(x: Variable, trace: Tape, record: tuple) -> None:
    """Make x the output of the record."""
    records = trace.records
    x._slot = k = len(records)
    records.append(record)
    if x._trace is None:
        x._trace = trace
        trace.risen.append(x)
    if k > trace.look:
        trace.grown()


def written_forward(x: Variable, v, t, at, trace: Dual) -> bool:
    """The same in forward mode. The tangent of the buffer belongs to the handle too, so it is written in
    place like the value."""
    tangent = zeros_of_buffer(x) if x._trace is None else x._slot
    if (
        type(tangent) is not np.ndarray
        or tangent.dtype is not F8
        or (t is not None and getattr(t, "dtype", None) is not F8)
    ):
        return False
    if isinstance(t, Variable):  # the tangent belongs to another level
        return False
    x._value[at] = v
    tangent[at] = 0.0 if t is None else t
    if x._trace is None:
        x._trace, x._slot = trace, tangent
        trace.risen.append(x)
    x._version += 1
    return True


def takes_over(x: Variable, y: Variable) -> bool:
    """A write of y to all of the buffer x, if x was written before: x takes over the memory and slot of
    y. Both are saved, so a write to either moves it first."""
    value, v = x._value, y._value
    if (
        not getattr(x, "_version", 0)
        or v.strides != value.strides
        or v.shape != value.shape
        or v.base is not None
        or not v.flags.writeable
    ):
        return False
    if x._trace is None:
        y._trace.risen.append(x)
    x._value, x._trace, x._slot = v, y._trace, y._slot
    x._saved = y._saved = True
    x._version += 1
    return True


def takes_over_unseen(x: Variable, y: Variable) -> bool:
    """The same for hidden values of a recording, directly or under a tape: x takes over the value and
    slot of y."""
    v, w = (x._value, y._value) if isinstance(x._trace, Tape) else (x, y)
    below = v._trace if type(v) is ArrayVariable else None
    if below is None or below.visibility != RECORDED or type(w) is not ArrayVariable or w._trace is not below:
        return False
    hollow: Any = w._value
    if type(w._value) is not Hollow or not hollow.flags.writeable or not below.alike(v._slot, w._slot):
        return False
    x._value, x._slot = y._value, y._slot
    x._saved = y._saved = True
    x._version += 1
    return True


def written_unseen(x: Variable, y, at, trace) -> bool:
    """Write all of a buffer whose values are hidden, as a loop does. Handles only buffers that were written
    before. Returns whether it was done."""
    whole = at is Ellipsis or type(at) is slice and at == ALL
    written = whole and bool(getattr(x, "_version", 0))
    return written and type(y) is ArrayVariable and y._trace is trace and takes_over_unseen(x, y)


@replaces(writes.fast_write)
def fast_write(x: Variable, y, at) -> bool:
    """The fast path for writes in loops: a number, row, slice or all of a float64 buffer, with at most
    one open transform."""
    value, trace = x._value, x._trace  # type: Any, Any
    if type(value) is not np.ndarray or value.dtype is not F8:
        return trace is not None and written_unseen(x, y, at, trace)
    if not (trace is None or type(trace) is Tape or type(trace) is Dual):
        return False
    kind = type(at)
    if kind is int:
        to = value.shape[1:]
    elif kind is slice:
        to = value[at].shape
        if at == ALL:
            at = Ellipsis
    elif kind is tuple and is_element(at, value.ndim):
        to = ()
    elif at is Ellipsis:
        to = value.shape
    elif kind is tuple and SLICED.issuperset(map(type, at)):
        to = value[at].shape
    else:
        return False
    slot = like = None
    if type(y) in DIRECT:
        v, other = y._value, y._trace
        if (
            getattr(v, "dtype", None) is not F8
            or isinstance(v, Variable)
            or y is x
            or (v.shape != to and v.shape != ())
        ):
            return False
        if other is not None:
            if other is not trace and (trace is not None or not (type(other) is Tape or type(other) is Dual)):
                return False
            if at is Ellipsis and type(other) is Tape and takes_over(x, y):
                return True
            trace, slot, like = other, y._slot, NUMBER if v.shape == () else (v.shape, F8)
    elif type(y) in NUMBERS or type(y) is np.float64:
        v = y
    else:
        return False
    if not getattr(x, "_version", 0) or getattr(x, "_saved", False):
        if not value.flags.writeable:
            return False
        own_memory(x)
        value = x._value
    if type(trace) is Dual:
        return written_forward(x, v, slot, at, trace)
    value[at] = v
    if trace is not None:
        record_write(x, trace, (pull_assign, x._slot, REGION, slot, trace.layout(value), like, ((), at)))
    x._version += 1
    return True


@replaces(protocols.fast_add_at)
def fast_add_at(x, at, y):
    """`np.add.at(x, at, y)` for an owned float64 vector, numbers of one tape and as many positions."""
    value, trace = x._value, getattr(x, "_trace", None)
    if (
        type(x) is not ArrayVariable
        or type(y) is not ArrayVariable
        or type(at) is not ndarray
        or at.dtype.kind != "i"
        or y is x
    ):
        return False
    v, other = y._value, y._trace
    if (
        type(value) is not ndarray
        or type(v) is not ndarray
        or not (value.dtype is v.dtype is F8)
        or value.ndim != 1
        or v.shape != at.shape
    ):
        return False
    if type(other) is not Tape or not (trace is None or trace is other):
        return False
    own_memory(x)
    value, trace = x._value, other
    np.add.at(value, at, v)
    record_write(
        x,
        trace,
        (pull_add_at, x._slot, REGION, y._slot, trace.layout(value), (v.shape, F8), ((), setting_copy(at))),
    )
    x._version += 1
    return True
