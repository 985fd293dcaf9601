"""Captured arrays as Variables over the same memory."""

import sys
from typing import Any

import numpy as np

from .._array import is_array, xp_of
from .._primitive import view
from .._variable import Variable, variable
from . import threads
from .routes import captured


class Arrays:
    """The part of a `Shadow` that replaces arrays."""

    __slots__ = ()

    def handle(self, x: Variable) -> Any:
        """A Variable of an outer transform stays what it is, and is remembered: `Back` must not take it for one made inside."""
        self.seen[id(x)] = x
        self.hold.append(x)
        return x

    def array(self, x: Any) -> Any:
        """A float array as a Variable over the same memory; arrays that overlap as views of one base."""
        if x.dtype.kind not in "fc":
            return x
        root = x
        while is_array(root.base):
            root = root.base
        # A view whose root nobody else refers to (three references: x.base, here, and the count itself) overlaps nothing.
        if root is not x and sys.getrefcount(root) > 3:
            return self.window(x, root)
        v = variable(x)
        v._saved = True
        v._version = 0
        if self.borrowed:
            self.given = (*self.given, (x, v))
            return v
        if not self.arrays:
            threads.enter(self)
        self.arrays.append((x, v))
        if self.reached or self.wrote:
            captured(self, x)
        return v

    def window(self, x: Any, root: Any) -> Any:
        """One of several views of one memory, as a view of the Variable that stands for all of it."""
        address = (lambda a: a.__array_interface__["data"][0]) if xp_of(x) is np else (lambda a: a.data.ptr)
        offset, whole = address(x) - address(root), self(root)
        if root.dtype == x.dtype and root.flags.forc:
            return view(whole, ("window", (x.shape, offset, x.strides)))
        part, size = offset % root.itemsize, x.itemsize
        if root.dtype.kind == "c" and root.itemsize == 2 * size and part in (0, size) and root.flags.forc:
            return view(view(whole, ("window", (x.shape, offset - part, x.strides))), ("imag" if part else "real", None))
        return x


def memory_of(x: Any) -> int:
    """The block of memory in which a plain array lies."""
    if xp_of(x) is not np:
        return x.data.mem.ptr
    while isinstance(x.base, np.ndarray):
        x = x.base
    return id(x)
