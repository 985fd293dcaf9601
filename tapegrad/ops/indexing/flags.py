"""`x.flags` and `x.setflags` of a Variable."""

from typing import Any

import numpy as np

from ..._core.abstract_arrays import Hollow, hollow
from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.variable import ArrayVariable, Variable, View, bottom, frozen
from .views import layout_source

NUMPY_FLAGS = type(np.empty(0).flags)


class DeviceFlags:
    """The flags of a CuPy array, with NumPy's other name of `c_contiguous`, and that it may be written, which
    SciPy's code reads."""

    writeable = True

    def __init__(self, theirs):
        self.theirs = theirs

    @property
    def contiguous(self) -> bool:
        return self.theirs.c_contiguous

    def __getattr__(self, name: str):
        return getattr(self.theirs, name)


class HiddenFlags:
    """The flags of an array whose values a trace hides. All arrays of a layout have one abstract value: a
    flag that is set gives x another one."""

    __slots__ = ("x",)
    x: Any

    def __init__(self, x):
        object.__setattr__(self, "x", x)

    @property
    def owndata(self) -> bool:
        return type(self.x) is not View

    def __getattr__(self, name: str):
        return getattr(layout_source(self.x).flags, name)

    def __setattr__(self, name: str, value) -> None:
        if name != "writeable" or type(self.x) is View:
            raise ArgumentError(
                f"x.flags.{name} = {value!r}: under vmap and in a recording an array that is no view can be "
                "made read-only, and no other flag can be set"
            )
        x = self.x
        while isinstance(x._value, Variable):  # of other transforms
            x = x._value
        v = x._value
        x._value = hollow(np, v.shape, v.dtype, v.strides, bool(value))

    def __getitem__(self, name: str):
        return self.owndata if name in ("O", "OWNDATA") else layout_source(self.x).flags[name]

    def __setitem__(self, name: str, value) -> None:
        setattr(self, "writeable" if name in ("W", "WRITEABLE") else name, value)


def flags_of(x):
    found = layout_source(x)
    if type(found) is Hollow:
        return HiddenFlags(x)
    return found.flags if type(found.flags) is NUMPY_FLAGS else DeviceFlags(found.flags)


def other_array(x):
    """The same value in an array object of its own, over the same memory."""
    if type(x) is not ArrayVariable:
        return x.view() if type(x) is np.ndarray else x
    y = frozen(x)
    y._value = other_array(y._value)
    return y


def set_flags(x, write=None, align=None, uic=None) -> None:
    """The flags of x alone. A view that NumPy makes read-only stays so: a write raises. CuPy has no such
    flags, and SciPy's code, which sets them, runs there too."""
    if type(x) is not ArrayVariable or xp_of(bottom(x)) is not np:
        return
    if not write:
        x._value = other_array(x._value)  # others may hold the array
    found = layout_source(x)
    if type(found) is not Hollow:
        found.setflags(write, align, uic)
    elif write is not None:
        HiddenFlags(x).writeable = write
