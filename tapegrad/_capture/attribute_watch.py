"""Which attributes of objects a call writes before it reads them.

Such an attribute is an output of the call: its value before the call cannot matter.  For the length of one call,
the shadow class of the object has a descriptor in the place of the attribute, which notes the first read or
write.  Code that reads attributes past descriptors is told by its names (`PAST_DESCRIPTORS`)."""

from collections.abc import Iterable
from typing import Any

from .classes import InstanceState
from .deferred import WatchedAttribute, is_place, is_unread, put_member
from .kinds import EMPTY, mro_of, space_of, state_of

PAST_DESCRIPTORS = frozenset((
    "__dict__", "vars", "dir", "__reduce__", "__reduce_ex__", "__getstate__", "get_referents", "getattr_static",
))  # fmt: skip


class AttributeWatch:
    """The attributes of a call that are watched.  `places`: (id of an object, name) -> the object."""

    def __init__(self, places: dict):
        self.places = places
        self.names: dict = {}  # id of a class -> names
        for (_, name), x in places.items():
            self.names.setdefault(id(type(x)), {})[name] = None

    def enter(self, c: type, new: type, before: dict) -> None:
        """`new` is the shadow of the class c, and begins with the members `before`."""
        for name in self.names.get(id(c), ()):
            before[name] = watched = WatchedAttribute(name, space_of(new).get(name, EMPTY))
            put_member(new, name, watched)

    def outputs(self, shadow: Any) -> tuple[list, list]:
        """Return the attributes that the call has written before it read them, as (object, name, value), and
        those of which that cannot be told, as keys of `places`.

        Objects that are left alone may lead to an object past its shadow."""
        found, unsure = [], []
        for (key, name), x in self.places.items():
            new = shadow.seen.get(key)
            if shadow.near:
                unsure.append((key, name))
            elif new is None or is_unread(new):
                continue
            watched = space_of(type(new)).get(name)
            if type(watched) is not WatchedAttribute or id(new) in watched.read:
                unsure.append((key, name))
            elif id(new) in watched.written:
                value = state_of(new).get(name, EMPTY)
                if value is EMPTY:
                    unsure.append((key, name))
                else:
                    found.append((x, name, value))
        return found, unsure


def bound_attributes(shadow: Any) -> dict:
    """Return (id, name) -> object for the attributes that the function has bound in objects from outside, and
    that can be watched."""
    return {
        (id(change[1]), name): change[1]
        for change in shadow.changes
        if change[0] is InstanceState and type(change[2]) in shadow.classes
        for name, v in InstanceState.named(change)
        if v is not EMPTY and is_watchable(type(change[1]), name)
    }


def describe_attributes(bound: dict) -> str:
    names = sorted({f"`{name}` of {type(x).__name__}" for (_, name), x in bound.items()})
    return f"the attribute{'s' if len(names) > 1 else ''} {', '.join(names)}"


def is_watchable(kind: type, name: str) -> bool:
    members: Iterable = [space_of(c)[name] for c in mro_of(kind) if name in space_of(c)]
    return all([is_place(m) or not (hasattr(type(m), "__get__") or hasattr(type(m), "__set__")) for m in members])
