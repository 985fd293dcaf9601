"""Views at a hidden index: x[i], where NumPy gives a view and i differs between samples.

The view stands for elements that lie elsewhere in each sample. So its handle has a trace of its own: a read
takes the elements out of x, if x was written since the last read, and a write goes through to x."""

import math
from typing import Any

from ..._core.arrays import is_array
from ..._core.errors import BatchError
from ..._core.primitive import (
    ASSIGN,
    READ,
    TransparentTrace,
    bind,
    layout_of,
    live,
    path_to_owner,
    view,
    write,
)
from ..._core.variable import ArrayVariable, Variable, View, copied, frozen, new, variable
from ..declare import dtype, ndim
from ..shaping import copy
from .regions import FLAT
from .traced_indices import indexed_copy, with_written


def is_view_at(x, at) -> bool:
    """Does NumPy answer x[at] with a view, for an index that holds hidden numbers?"""
    parts = [i for i in (at if type(at) is tuple else (at,)) if i is not None]
    numbers = [i for i in parts if i is not Ellipsis and type(i) is not slice]
    return (len(numbers) < ndim(x) or len(numbers) < len([i for i in parts if type(i) is not slice])) and all(
        [type(i) is int or is_number(i) for i in numbers]
    )


def is_number(i) -> bool:
    return isinstance(i, Variable) and not issubclass(type(i), ArrayVariable) and dtype(i).kind in "iu"


class RegionVersion(int):
    """The version of a handle at a hidden index. A view of it is out of date if another one was read since,
    or the array was written since this one was read."""

    owner: Variable
    read: Any

    @property
    def is_stale(self) -> bool:
        """Was the array written since?"""
        return self.read is None or bool(self.read != self.owner._version)

    def __ne__(self, other) -> bool:
        return other is not self or self.is_stale

    def __eq__(self, other) -> bool:
        return not self != other

    __hash__ = int.__hash__


def version(owner: Variable, read) -> RegionVersion:
    v = RegionVersion(1)
    v.owner, v.read = owner, read
    return v


class HiddenRegion(TransparentTrace):
    """The trace of the handle of x[at]. It acts before all others."""

    lent = True

    def __init__(self, x: Variable, at):
        super().__init__()
        self.level, self.array, self.at = math.inf, x, at

    def beneath(self, x: Variable):
        """The elements; x is the handle."""
        if x._version.is_stale:
            owner, _ = path_to_owner(self.array)
            array = copy(self.array) if type(self.array) is View else self.array
            now = indexed_copy(array, self.at)
            x._value = now if isinstance(now, Variable) else variable(now)
            x._value._saved = True
            x._version = version(owner, owner._version)
        return x._value

    def apply(self, prim, args, params):
        """(The first step of a path leads to all elements.)"""
        if prim is not READ:
            return super().apply(prim, args, params)
        now, path, at = self.beneath(args[0]), params["path"][1:], params["at"]
        return bind(READ, (now,), {"path": path, "at": at, "copy": False}) if path or at is not None else now

    def write(self, prim, x: Variable, path, y, at) -> None:
        """Write into the elements, and those into the array."""
        if not layout_of(self.array).flags.writeable:
            raise ValueError("assignment destination is read-only")
        part = whole = copied(self.beneath(x))
        if not FLAT.isdisjoint([kind for kind, _ in path]) and not in_order(self.array, self.at):
            raise BatchError(
                "a reshaped view of x[i] is written under tg.vmap, where i differs between samples and NumPy "
                "may reshape a copy; write x[i, j] = y, or take x[i].copy()"
            )
        for step in path:
            part = view(part, step)
        write(prim, part, frozen(live(y)) if isinstance(y, Variable) else y, at)
        write(ASSIGN, self.array, with_written(self.array, whole, self.at), Ellipsis)


def in_order(x: Variable, at) -> bool:
    """Do the elements x[at] lie in C order, one beside the other, as in the copy?"""
    chosen = [0 if isinstance(i, Variable) else i for i in (at if type(at) is tuple else (at,))]
    part = layout_of(x)[tuple(chosen)]
    return bool(is_array(part) and part.flags.c_contiguous)


def region_at(x: Variable, at) -> View:
    """x[at] as a view."""
    owner, _ = path_to_owner(x)
    owner._version = getattr(owner, "_version", 0)
    y: Variable = new(ArrayVariable)
    y._trace, y._slot, y._version = HiddenRegion(x, at), None, version(owner, None)
    y._trace.beneath(y)
    return view(y, ("at", Ellipsis))


def is_read_at(y, x: Variable, at) -> bool:
    """Is y, unchanged, the view x[at]?"""
    trace = y._base._trace if type(y) is View and len(y._path) == 1 else None
    return isinstance(trace, HiddenRegion) and trace.array is x and trace.at is at
