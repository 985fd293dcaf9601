"""Pickling and copying of objects that hold user functions: as the call that rebuilds them."""

import copy
import pickle
import sys
import types
from typing import Any

from .errors import ArgumentError, let_through, stack
from .typing import AnyDict, AnyFunction, AnyTuple

BY_VALUE = frozenset(("cloudpickle", "dill"))  # packages that pickle functions by value


class PickledByCall:
    """Base class of objects pickled as the constructor call that rebuilds them. If the object replaced a
    module-level function, as a decorator does, it is pickled as that name."""

    __slots__ = ()

    def _made(self) -> tuple[AnyFunction, AnyTuple]:
        """A module-level function and the arguments with which it rebuilds this object."""
        raise NotImplementedError

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", None)
        if isinstance(name, str) and global_object(getattr(self, "__module__", None), name) is self:
            return name
        make, args = self._made()
        try:
            pickle.dumps(args)
        except ArgumentError:
            raise
        except Exception as error:
            let_through(error)
            if not by_value():
                raise ArgumentError(
                    f"{getattr(self, '__name__', type(self).__name__)} cannot be pickled, for what it is "
                    f"made of cannot: {error}. Define the functions by def at the top level of a module, and "
                    "pass what they capture as arguments"
                ) from error
        return make, args

    def __copy__(self) -> Any:
        make, args = self._made()
        return make(*args)

    def __deepcopy__(self, memo: AnyDict) -> Any:
        make, args = self._made()
        return make(*copy.deepcopy(args, memo))


def named_like(x: Any, f: Any) -> None:
    """Give x the names of f, because x may replace f in its module."""
    if type(f) is types.FunctionType and type(f.__module__) is str:
        x.__module__, x.__qualname__ = f.__module__, f.__qualname__
        return
    for name in ("__module__", "__qualname__"):
        value = getattr(f, name, None)
        if isinstance(value, str):
            setattr(x, name, value)


def global_object(module: Any, name: str) -> Any:
    """The object of this name in a module, or None."""
    x = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split("."):
        x = getattr(x, part, None)
    return x


def by_value() -> bool:
    """Is the caller a package that pickles functions by value?"""
    return any(
        [not BY_VALUE.isdisjoint(str(frame.f_globals.get("__name__")).split(".")) for frame in stack()]
    )
