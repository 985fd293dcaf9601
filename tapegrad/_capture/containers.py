"""Containers with shadows of what they hold.

What can hold objects is told by its base type (`objects.KINDS`), which says how parts are listed and put
back; so subclasses, the user's included, need no more than their name.  Keys are shadowed like values: what f
looks up is a shadow too."""

import itertools
import operator
import weakref
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE
from .kinds import Capture, Holder, dict_of, is_unchanged, is_user_class, stands_for
from .objects import FILLED, kind_of, parts_of, unlisted
from .unread_containers import MANY, UnreadDict, UnreadList, WatchedDict, WatchedList, is_worth_waiting

# of these only subclasses by the user are replaced where nothing inside is
FIXED = (tuple, frozenset, int, float, complex, str, bytes)


class Contents(Holder):
    """(Contents, container, its shadow, what that was filled with); of one that is its own shadow, and held
    numbers only, None."""

    words = "a {0.__class__.__name__}"

    @staticmethod
    def put(change: tuple) -> list:
        _, _, new, first = change
        return [v for v in kind_of(new).parts(new) if not any([v is w for w in first or ()])]

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        _, x, new, first = change
        return first is not None and (
            differ(new, first) or not is_unchanged(shadow, kind_of(x).parts(x), first)
        )

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        _, x, new, first = change
        kind = type(x)
        if (
            first is None
            and (kind is list or kind is dict)
            and IMMUTABLE.issuperset(map(type, x.values() if kind is dict else x))
        ):
            return  # it holds only numbers and strings still
        base = kind_of(x)
        there = base if type(new) is kind else kind_of(new)
        if first is None:
            now = there.parts(new)
            if not IMMUTABLE.issuperset(map(type, now)):
                back.do(base.put, x, [back(v) for v in now])
            return
        if not back.undo and differ(new, first):
            back.do(base.put, x, [back(v) for v in there.parts(new)])
        if kind is dict is type(new):
            back.do(refill_container, new, x)
        elif kind is list is type(new):
            new[:] = x
        else:
            back.do(there.put, new, base.parts(x))

    @staticmethod
    def places(change: tuple, side: int) -> list:
        if change[3] is None:  # it is its own shadow
            return [("numbers", change[1])]
        fields: Any = {list: "lists", dict: "dicts"}
        return [(fields.get(type(change[1]), "filled"), change[side])]

    @staticmethod
    def is_unmodified(shadow: Any, change: tuple) -> bool:
        _, x, new, first = change
        if kind_of(x).kind not in FILLED:
            return False
        now = kind_of(x).parts(x)
        if first is None:
            return IMMUTABLE.issuperset(map(type, now))
        if differ(new, first):
            return False
        if type(x) is set:  # its shadow has another order
            return {id(shadow.seen.get(id(v), v)) for v in now} == {*map(id, first)}
        return stands_for(shadow, now, first)


def refill_container(new: dict, x: dict) -> None:
    new.clear()
    new.update(x)


def differ(new: Any, first: list) -> bool:
    """Does a container hold other things than at first?"""
    now = kind_of(new).parts(new)
    return len(now) != len(first) or not all(map(operator.is_, now, first))


class ContainerCapture(Capture):
    """The part of a `Shadow` that replaces containers."""

    def as_it_is(self, x: Any) -> Any:
        """A container of numbers and strings, remembered: when it is met again it may hold Variables."""
        self.changes.append((Contents, x, x, None))
        self.remember(x, x)
        if self.watch is not None:
            self.watch.note(x)
        self.noted(x)
        return x

    def list_(self, x: list) -> Any:
        if self.watch is not None and id(x) in self.watch.objects:
            return self.unread(x, WatchedList(x, self))
        if IMMUTABLE.issuperset(map(type, x)):
            return self.as_it_is(x)
        if is_worth_waiting(x):
            return self.unread(x, UnreadList(x, self))
        new: list = []
        self.seen[id(x)] = new
        self.hold.append(x)
        first = self.each(x)
        new += first
        self.changes.append((Contents, x, new, first))
        return new

    def dict_(self, x: dict) -> Any:
        if self.watch is not None and id(x) in self.watch.objects and IMMUTABLE.issuperset(map(type, x)):
            return self.unread(x, WatchedDict(x, self))
        named = IMMUTABLE.issuperset(map(type, x))
        if named and IMMUTABLE.issuperset(map(type, x.values())):
            return self.as_it_is(x)
        if is_worth_waiting(x.values()) or (not named and len(x) >= MANY):
            return self.unread(x, UnreadDict(x, self, named))
        new: dict = {}
        self.seen[id(x)] = new
        self.hold.append(x)
        new.update(
            zip(x, self.each(x.values()), strict=True) if named else {self(k): self(v) for k, v in x.items()}
        )
        self.changes.append((Contents, x, new, [*itertools.chain.from_iterable(new.items())]))
        return new

    def unread(self, x: Any, new: Any) -> Any:
        self.changes.append(new.change)
        self.remember(x, new)
        return new

    def container(self, x: Any) -> Any:
        """Any other that can be altered."""
        base = kind_of(x)
        flat = base.parts(x)
        kind = type(x)
        c = self(kind) if is_user_class(kind) else kind
        if (
            c is kind
            and kind is base.kind
            and IMMUTABLE.issuperset(map(type, (*flat, *base.settings(x))))
            and not dict_of(x)
        ):
            return self.as_it_is(x)
        try:
            new = base.kind.__new__(c)
        except TypeError:  # a class that C code has derived from a dict
            return self.leave(x)
        self.remember(x, new)
        base.kind.__init__(new, *[self(v) for v in base.settings(x)])
        self.attributes_of(x, new)
        base.put(new, [self(v) for v in flat])
        self.changes.append((Contents, x, new, base.parts(new)))
        return new

    def weak(self, x: Any) -> Any:
        """A Variable cannot be referred to weakly: seen from f, such a table is an ordinary one."""
        base = kind_of(x)
        return (
            self.leave(x)
            if unlisted(x, base)
            else self.replaced(x, {} if base.pairs else set(), base.parts(x))
        )

    def objects_of(self, x: np.ndarray) -> Any:
        """An object array."""
        if x.base is not None:
            return self.leave(x)
        new = np.empty(x.shape, object, order="F" if x.flags.fnc else "C")
        return self.replaced(x, new, parts_of(x))

    def replaced(self, x: Any, new: Any, flat: list) -> Any:
        """x by `new`, which gets the shadows of its parts."""
        self.remember(x, new)
        kind = kind_of(new)
        kind.put(new, self.each(flat))
        self.changes.append((Contents, x, new, kind.parts(new)))
        return new

    def of_parts(self, x: Any) -> Any:
        """An object that never changes, as one of the shadows of its parts."""
        if type(x) is tuple and IMMUTABLE.issuperset(map(type, x)):
            return x
        kind = kind_of(x)
        parts = kind.parts(x)
        shadows = self.each(parts)
        same = all(map(operator.is_, parts, shadows))
        rest = () if type(x) is tuple else unlisted(x, kind)
        attributes = {id(v) for v in dict_of(x).values()} if kind.kind is not weakref.ref else set()
        if rest and (same or not attributes.issuperset(map(id, rest))):
            return self.leave(x)  # nobody knows how another one is made that holds these
        if same:
            return x
        new = kind.make(x, shadows)
        if rest:
            self.remember(x, new)
            self.attributes_of(x, new, **dict_of(new))
        return new

    def fixed(self, x: Any) -> Any:
        """An object of a subclass of tuple, str, int ..."""
        kind = type(x)
        base = next(b for b in FIXED if isinstance(x, b))
        c = self(kind) if is_user_class(kind) else kind
        parts = parts_of(x)
        shadows = self.each(parts)
        if c is kind and all(map(operator.is_, parts, shadows)):
            return x
        new = base.__new__(c, shadows if parts else x)
        self.remember(x, new)
        if kind is not c:
            self.attributes_of(x, new)
        return new
