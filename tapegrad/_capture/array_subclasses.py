"""Classes of subarrays: the members of a subclass of `np.ndarray` over `TrackedSubarray`.

The shadow C' of a subclass C is derived from C, so C code makes plain arrays of it. The class of its
subarrays has the members of C' and, at the place of `np.ndarray`, `TrackedSubarray` (_dispatch/subarrays.py).
It looks into C' at each access, so both classes always agree."""

from typing import Any

import numpy as np

from .._core.primitive import is_tracked
from .._core.registry import late
from .._core.scope import OPEN
from .._core.variable import SUBARRAYS, Subarray
from .._dispatch.subarrays import TrackedSubarray
from .deferred import DEFERRED, SPECIAL, SUBARRAY, WrittenThroughMember, without_hooks
from .kinds import EMPTY, NOTHING, SLOTS, bases_of, dict_of, is_user_class, original, space_of


class SubclassMember:
    """Stands for a member of a subclass of ndarray, in the class of its subarrays."""

    __slots__ = ("home", "name")

    def __init__(self, name: str, home: type):
        self.name, self.home = name, home

    def member(self) -> Any:
        value = space_of(self.home).get(self.name, EMPTY)
        if value is EMPTY:
            raise AttributeError(f"type object {self.home.__name__!r} has no attribute {self.name!r}")
        return value.member() if type(value) in DEFERRED else value

    def __get__(self, x: Any, kind: Any = None) -> Any:
        value = self.member()
        get = getattr(type(value), "__get__", None)
        return value if get is None else get(value, x, kind._tg_of)


class SubclassData(WrittenThroughMember, SubclassMember):
    """Stands for a property, or another descriptor that is asked before the attributes of an object."""

    __slots__ = ()


def is_followed(c: type) -> bool:
    """Are arrays of this class, np.ndarray or a subclass of it, followed?"""
    if c is np.ndarray or c is np.memmap:
        return True
    above = [b for b in bases_of(c) if issubclass(b, np.ndarray)]
    return is_user_class(c) and np.memmap not in above and all(map(is_followed, above))


def member_for(name: str, home: type, value: Any) -> Any:
    value = space_of(original(home)).get(name, value)
    data = hasattr(type(value), "__set__") or hasattr(type(value), "__delete__")
    return (SubclassData if data else SubclassMember)(name, home)


def subarray_class(c: Any) -> Any:
    """The class of the subarrays of a subclass of ndarray that is followed; None for another class."""
    if issubclass(c, Subarray):
        return c
    found = space_of(c).get(SUBARRAY)
    if found is None and c is not np.ndarray and issubclass(c, np.ndarray) and is_followed(original(c)):
        found = new_subarray_class(c)
        type.__setattr__(c, SUBARRAY, found)
    return found


late.subarray_class = subarray_class


def followed(f: Any) -> Any:
    """NumPy's Python function with the names that code sees which is followed."""
    if not OPEN.shadows:
        return f
    shadow = OPEN.shadows[-1]
    return shadow.seen.get(id(f)) or shadow.rebuilt(f, shadow.globals_of(f.__globals__))


late.followed = followed


def new_subarray_class(c: type) -> Any:
    real = original(c)
    above: dict = {original(b): b for b in bases_of(c) if b is not real}
    above = {b: subarray_class(s) or s for b, s in above.items()} | {np.ndarray: TrackedSubarray}
    bases = [above.get(b, b) for b in bases_of(real)]
    space = {name: member_for(name, c, v) for name, v in space_of(c).items() if name not in SPECIAL}
    space |= {"__module__": c.__module__, "__qualname__": c.__qualname__, "_tg_of": c, SLOTS: NOTHING}
    made = without_hooks(c, type(c), tuple(bases), space)
    SUBARRAYS.add(made)
    return made


def handed_back(x: Any, back: Any) -> Any:
    """The array of the user's class for which x stood."""
    array = back(x._array)
    if is_tracked(array):
        return x  # a value of an outer transform stays what it is
    new: Any = np.asarray(array).view(original(type(x)._tg_of))
    back.memo[id(x)] = x, new
    dict_of(new).update({name: back(v) for name, v in dict_of(x).items()})
    return new
