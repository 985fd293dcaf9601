"""Which attributes of objects, and members of lists and dicts, a call writes before it reads them.

Such a place is an output of the call: what it held before the call cannot matter.  For the length of one
call, the shadow class of an object has a descriptor in the place of the attribute, which notes the first read
or write.  Code that reads attributes past descriptors is told by its names (`PAST_DESCRIPTORS`).  The shadow
of a list or dict notes what is read from it."""

import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

from .._core.arrays import IMMUTABLE
from .classes import InstanceState
from .containers import Contents
from .deferred import WatchedAttribute, is_place, is_unread, put_member
from .kinds import EMPTY, mro_of, space_of, state_of
from .objects import parts_of
from .unread_containers import DICT, LIST, UNREAD, UnreadContents, WatchedDict, WatchedList, parts

PAST_DESCRIPTORS = frozenset((
    "__dict__", "vars", "dir", "__reduce__", "__reduce_ex__", "__getstate__", "get_referents",
    "getattr_static",
))  # fmt: skip


class AttributeWatch:
    """The attributes and members of a call that are watched.

    `places`: (id of an object, name or key) -> the object; of a list, which is watched as a whole, the name
    is None."""

    def __init__(self, places: dict):
        self.places = places
        self.objects = {key: x for (key, _), x in places.items()}
        self.held: dict = {}  # id of a list or dict that is its own shadow -> what it held

    def enter(self, c: type, new: type, before: dict) -> None:
        """`new` is the shadow of the class c, and begins with the members `before`."""
        for name in {name for (_, name), x in self.places.items() if type(x) is c}:
            before[name] = watched = WatchedAttribute(name, space_of(new).get(name, EMPTY))
            put_member(new, name, watched)

    def note(self, x: Any) -> None:
        """A list or dict of numbers is its own shadow."""
        self.held[id(x)] = parts(x)

    def outputs(self, shadow: Any) -> tuple[dict, set]:
        """Return what the call has written before it read it, as (id, name) -> value, and the keys of
        `places` of which that cannot be told.

        The name of a list, or of a dict that was emptied, is None, for all that it holds.  Objects that are
        left alone may lead to an object past its shadow."""
        found, unsure = {}, set()
        for key, name in self.places:
            new = shadow.seen.get(key)
            value = (
                EMPTY if shadow.near else UNREAD if new is None or is_unread(new) else value_left(new, name)
            )
            if value is EMPTY:
                unsure.add((key, name))
            elif value is not UNREAD:
                found[key, None if type(new) is WatchedDict and new.cleared else name] = value
        return found, unsure


def value_left(new: Any, name: Any) -> Any:
    """What the call leaves in a place: an attribute, a member of a dict, all of a list or of a dict that was
    emptied.  `UNREAD`: it has not met it; `EMPTY`: it has read it first, or that cannot be told."""
    kind = type(new)
    if kind is WatchedList:
        return EMPTY if new.read else UNREAD if new.shadow is not None else [*LIST.__iter__(new)]
    if kind is WatchedDict:
        if new.read is None or name in new.read:
            return EMPTY
        return DICT.copy(new) if new.cleared else DICT.get(new, name, EMPTY) if name in new.wrote else UNREAD
    watched = space_of(kind).get(name)
    if type(watched) is not WatchedAttribute or id(new) in watched.read:
        return EMPTY
    return state_of(new).get(name, EMPTY) if id(new) in watched.written else UNREAD


class BoundPlace(NamedTuple):
    """What a function has bound: a place of `x`, to a constant or not; x is None where that cannot be
    watched."""

    x: Any
    constant: bool
    words: str


def bound_places(shadow: Any, watch: AttributeWatch) -> dict:
    """Return what the function has bound outside: (id, name) -> `BoundPlace`."""
    found: dict = {}
    for change in shadow.changes:
        kind, x, new, *rest = change
        words, watched = kind.words.format(x), False
        named: Any = [(n, v) for n, v in kind.named(change) if v is not EMPTY]
        if kind in (Contents, UnreadContents):
            before, now = parts(rest[0] if rest[0] is not None else watch.held.get(id(x), ())), parts_of(new)
            watched = type(x) in (list, dict)
            known = set(map(id, before))
            others = enumerate([v for v in now if id(v) not in known])
            named = bound_members(before, now, type(x)) if watched else others
        for name, v in named:
            if kind is InstanceState:
                words = f"the attribute `{name}` of {type(x).__name__}"
                watched = type(new) in shadow.classes and is_watchable(type(x), name)
            found[id(x), name] = BoundPlace(x if watched else None, type(v) in IMMUTABLE, words)
    return found


def bound_members(before: list, now: list, kind: type) -> list:
    """(key, value) of members of a dict; one pair without a key for a list, or for a dict with other keys
    than numbers and texts."""
    if len(before) == len(now) and all(map(operator.is_, before, now)):
        return []
    if kind is list:
        return [(None, None if IMMUTABLE.issuperset(map(type, now)) else now)]
    held = dict(zip(before[::2], before[1::2], strict=True))
    if not IMMUTABLE.issuperset(map(type, (*now[::2], *held))):
        return [(None, now)]
    return [(k, v) for k, v in zip(now[::2], now[1::2], strict=True) if held.get(k, EMPTY) is not v]


def describe_places(bound: dict) -> str:
    return ", ".join(sorted({place.words for place in bound.values()}))


def is_watchable(kind: type, name: str) -> bool:
    members: Iterable = [space_of(c)[name] for c in mro_of(kind) if name in space_of(c)]
    return all(
        [is_place(m) or not (hasattr(type(m), "__get__") or hasattr(type(m), "__set__")) for m in members]
    )
