"""`type`, `hasattr` and `memoryview` in functions that are followed: they answer for the class that a tracked
value stands for.

`isinstance`, `match` and `singledispatch` ask for `__class__` and need no stand-in."""

import sys
import types
import weakref
from typing import Any

import numpy as np

from .._core.arrays import is_array
from .._core.errors import DroppedDerivativeError
from .._core.lent_memory import lend
from .._core.primitive import is_subarray, is_tracked, layout_of
from .._core.registry import late
from .._core.variable import HANDLES
from .._dispatch.faces import UfuncFace
from .._dispatch.numbers import NUMBER_TYPES
from .._dispatch.stand_ins import library_object
from ..numpy import ndarray
from .kinds import READ, space_of
from .objects import Reference
from .unread_containers import UnreadDict, UnreadList

FACES = {types.FunctionType, UfuncFace, *UfuncFace.__subclasses__()}  # of functions of libraries
METAS: dict = {}  # metaclass of a shadow (classes.py) -> the one for which it stands

MEANT: dict = {
    np.ndarray: ndarray,
    UnreadList: list,
    UnreadDict: dict,
    Reference: weakref.ref,
    **NUMBER_TYPES,
}  # what the names of these mean there


def meant(x: Any) -> Any:
    """The ufunc, or other function of a library, that a function stands for; another x itself."""
    return library_object(x) if type(x) in FACES else x


def queried_class(x: Any) -> type:
    x = meant(x)
    return class_meant(x.__class__ if type(x) in HANDLES or is_subarray(x) else type(x))


def class_meant(kind: Any) -> type:
    return MEANT.get(kind) or METAS.get(kind) or space_of(kind).get(READ, kind)


late.class_meant = class_meant


def hasattr_(x: Any, name: str, /) -> bool:
    """Names such as `__array_interface__`, by which libraries take memory, are not attributes of a Variable,
    nor is `__array_ufunc__` one of a number; and `__iter__ = None` stops Python from iterating over a number
    by `__getitem__`."""
    if type(x) in HANDLES and (kind := x.__class__) is not type(x):
        return hasattr(kind((0,) * x.ndim if is_array(layout_of(x)) else 0), name)
    return hasattr(x, name)


class Type(type):
    """`type_(x)` asks; `type_(name, bases, space)`, `class Meta(type_)` and `isinstance(c, type_)` are those
    of `type`."""

    def __call__(cls, *args, **options):
        if cls is not type_:
            return type.__call__(cls, *args, **options)
        if len(args) == 1 and not options:
            return queried_class(*args)
        if len(args) == 3:  # the class is of the caller's module
            args = *args[:2], {"__module__": sys._getframe(1).f_globals.get("__name__"), **args[2]}
        return type(*args, **options)

    def __instancecheck__(cls, x):
        return isinstance(x, type) if cls is type_ else type.__instancecheck__(cls, x)

    def __subclasscheck__(cls, c):
        return issubclass(c, type) if cls is type_ else type.__subclasscheck__(cls, c)

    def __eq__(cls, other):
        return cls is other or (cls is type_ and other is type)

    def __hash__(cls):
        return hash(type) if cls is type_ else type.__hash__(cls)


class type_(type, metaclass=Type):
    pass


class MemoryviewType(type):
    """`memoryview_(x)` asks; `isinstance(m, memoryview_)` is that of `memoryview`."""

    def __call__(cls, x):
        if type(x) in HANDLES and is_tracked(x):
            raise DroppedDerivativeError(
                "memoryview(x) of a tracked value would drop its derivative in silence; write "
                "tapegrad.value(x)"
            )
        return memoryview(lend(x) if type(x) in HANDLES else x)

    def __instancecheck__(cls, x):
        return isinstance(x, memoryview)

    def __subclasscheck__(cls, c):
        return issubclass(c, memoryview)


class memoryview_(metaclass=MemoryviewType):
    pass
