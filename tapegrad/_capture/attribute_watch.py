"""Which attributes of objects, and members of lists and dicts, a call writes before it reads them.

Such a place is an output of the call: what it held before the call cannot matter.  For the length of one call,
the shadow class of an object has a descriptor in the place of the attribute, which notes the first read or
write.  Code that reads attributes past descriptors is told by its names (`PAST_DESCRIPTORS`).  The shadow of a
list or dict notes what is read from it."""

import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

from .._core.arrays import IMMUTABLE
from .classes import InstanceState
from .deferred import WatchedAttribute, is_place, is_unread, put_member
from .kinds import EMPTY, Holder, mro_of, space_of, state_of
from .unread_containers import DICT, LIST, UNREAD, WatchedDict, WatchedList, parts

PAST_DESCRIPTORS = frozenset((
    "__dict__", "vars", "dir", "__reduce__", "__reduce_ex__", "__getstate__", "get_referents", "getattr_static",
))  # fmt: skip


class AttributeWatch:
    """The attributes and members of a call that are watched.

    `places`: (id of an object, name or key) -> the object; of a list, which is watched as a whole, the name is
    None."""

    def __init__(self, places: dict):
        self.places = places
        self.names: dict = {}  # id of a class -> names
        self.members: set = set()  # ids of lists and dicts
        self.held: dict = {}  # id of a list or dict that is its own shadow -> what it held
        for (key, name), x in places.items():
            if type(x) in (list, dict):
                self.members.add(key)
            else:
                self.names.setdefault(id(type(x)), {})[name] = None

    def enter(self, c: type, new: type, before: dict) -> None:
        """`new` is the shadow of the class c, and begins with the members `before`."""
        for name in self.names.get(id(c), ()):
            before[name] = watched = WatchedAttribute(name, space_of(new).get(name, EMPTY))
            put_member(new, name, watched)

    def note(self, x: Any) -> None:
        """A list or dict of numbers is its own shadow."""
        self.held[id(x)] = parts(x)

    def outputs(self, shadow: Any) -> tuple[list, list]:
        """Return what the call has written before it read it, as (object, name, value), and the keys of
        `places` of which that cannot be told.

        The name of a list, or of a dict that was emptied, is None, for all that it holds.  Objects that are left
        alone may lead to an object past its shadow."""
        if shadow.near:
            return [], [*self.places]
        found, unsure = [], []
        for (key, name), x in self.places.items():
            new = shadow.seen.get(key)
            if new is None or is_unread(new):
                continue
            value = member_value(new, name) if type(x) in (list, dict) else attribute_value(new, name)
            if value is EMPTY:
                unsure.append((key, name))
            elif value is not UNREAD:
                found.append((x, None if getattr(new, "cleared", False) else name, value))
        return found, unsure


def attribute_value(new: Any, name: str) -> Any:
    """The value that the call leaves in an attribute; `UNREAD`: it has not met it; `EMPTY`: it has read it."""
    watched = space_of(type(new)).get(name)
    if type(watched) is not WatchedAttribute or id(new) in watched.read:
        return EMPTY
    return state_of(new).get(name, EMPTY) if id(new) in watched.written else UNREAD


def member_value(new: Any, name: Any) -> Any:
    """The same of a member of a dict, or of all that a list or a dict that was emptied holds."""
    if type(new) is WatchedList:
        return EMPTY if new.read else UNREAD if new.shadow is not None else [*LIST.__iter__(new)]
    if type(new) is not WatchedDict or new.read is None or name in new.read:
        return EMPTY
    if new.cleared:
        return DICT.copy(new)
    return DICT.get(new, name, EMPTY) if name in new.wrote else UNREAD


class BoundPlace(NamedTuple):
    """What a function has bound: a place of `x`, to a constant or not; x is None where it cannot be watched."""

    x: Any
    constant: bool
    words: str


def bound_places(shadow: Any, watch: AttributeWatch) -> dict:
    """Return what the function has bound outside: (id, name) -> `BoundPlace`."""
    found: dict = {}
    for change in shadow.changes:
        kind, x, new, *rest = change
        words, watched = kind.words.format(x), type(x) in (list, dict) and kind.named is Holder.named
        if watched:
            before = rest[0] if rest[0] is not None else watch.held.get(id(x), ())
            named = bound_members(parts(before), parts(new), type(x))
        else:
            named = [(n, v) for n, v in kind.named(change) if v is not EMPTY]
        for name, v in named:
            if kind is InstanceState:
                words = f"the attribute `{name}` of {type(x).__name__}"
                watched = type(new) in shadow.classes and is_watchable(type(x), name)
            found[id(x), name] = BoundPlace(x if watched else None, type(v) in IMMUTABLE, words)
    return found


def bound_members(before: list, now: list, kind: type) -> list:
    """(key, value) of members of a dict; (None, None) for a list."""
    if len(before) == len(now) and all(map(operator.is_, before, now)):
        return []
    if kind is list:
        return [(None, None if IMMUTABLE.issuperset(map(type, now)) else now)]
    held = dict(zip(before[::2], before[1::2], strict=True))
    if not IMMUTABLE.issuperset(map(type, (*now[::2], *held))):
        return []
    return [(k, v) for k, v in zip(now[::2], now[1::2], strict=True) if held.get(k, EMPTY) is not v]


def describe_places(bound: dict) -> str:
    return ", ".join(sorted({place.words for place in bound.values()}))


def is_watchable(kind: type, name: str) -> bool:
    members: Iterable = [space_of(c)[name] for c in mro_of(kind) if name in space_of(c)]
    return all(
        [is_place(m) or not (hasattr(type(m), "__get__") or hasattr(type(m), "__set__")) for m in members]
    )
