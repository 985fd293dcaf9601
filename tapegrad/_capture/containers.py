"""Containers with shadows of what they hold.

What can hold objects is told by its base type, of which `BASES` says how contents are read and put back; so subclasses, the user's
included, need no more than their name.  Keys are shadowed like values: what f looks up is a shadow too."""

import collections
import functools
import gc
import itertools
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .kinds import ATOMS, Holder, is_user_class, same


class Base(NamedTuple):
    """A type that holds objects: `read` gives them as a flat list, `put` fills an emptied one."""

    kind: type
    read: Callable
    put: Callable
    pairs: bool = False


def put_pairs(kind: type) -> Callable:
    def put(x: Any, flat: list) -> None:
        kind.clear(x)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        if kind is dict:
            dict.update(x, pairs)
        else:
            for k, v in pairs:
                kind.__setitem__(x, k, v)

    return put


def pairs_of(kind: type) -> Callable:
    return lambda x: [*itertools.chain.from_iterable(kind.items(x))]


def put_all(kind: type, add: Callable) -> Callable:
    def put(x: Any, flat: list) -> None:
        kind.clear(x)
        add(x, flat)

    return put


def put_objects(x: Any, flat: list) -> None:
    x = x if x.ndim else x.reshape(1)
    for at, v in zip(np.ndindex(x.shape), flat, strict=True):
        x[at] = v


def mapping(kind: type) -> Base:
    return Base(kind, pairs_of(kind), put_pairs(kind), True)


def drain(kind: type) -> Callable:
    return lambda x: list(kind.__iter__(x))


BASES = (
    mapping(collections.OrderedDict),
    mapping(collections.defaultdict),
    mapping(dict),
    Base(list, drain(list), put_all(list, list.extend)),
    Base(collections.deque, drain(collections.deque), put_all(collections.deque, collections.deque.extend)),
    Base(set, drain(set), put_all(set, set.update)),
    Base(np.ndarray, lambda x: [x[at] for at in np.ndindex(x.shape)], put_objects),
    mapping(weakref.WeakValueDictionary),
    mapping(weakref.WeakKeyDictionary),
    Base(weakref.WeakSet, drain(weakref.WeakSet), put_all(weakref.WeakSet, weakref.WeakSet.update)),
)
LIST, DICT = [next(b for b in BASES if b.kind is kind) for kind in (list, dict)]
FIXED = (tuple, frozenset, int, float, complex, str, bytes)  # of these only subclasses by the user are replaced where nothing inside is


@functools.cache
def plain_base(kind: type) -> Base:
    """The base of a container that is not of a class of the user's."""
    return next(b for b in BASES if issubclass(kind, b.kind))


def base_of(x: Any) -> Base:
    kind = type(x)
    if kind is list or kind is dict:
        return LIST if kind is list else DICT
    return plain_base(type(x)) if not is_user_class(type(x)) else next(b for b in BASES if isinstance(x, b.kind))


class Contents(Holder):
    """(Contents, container, its shadow, what that was filled with); of one that is its own shadow, and held numbers only, None."""

    words = "a {0.__class__.__name__}"

    @staticmethod
    def put(change: tuple) -> list:
        _, _, new, first = change
        return [v for v in base_of(new).read(new) if not any([v is w for w in first or ()])]

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        _, x, new, first = change
        return first is not None and (differ(new, first) or not same(shadow, base_of(x).read(x), first))

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        _, x, new, first = change
        kind = type(x)
        if first is None and (kind is list or kind is dict) and ATOMS.issuperset(map(type, x.values() if kind is dict else x)):
            return  # it holds only numbers and strings still
        base = base_of(x)
        there = base if type(new) is kind else base_of(new)
        if first is None:
            now = there.read(new)
            if not ATOMS.issuperset(map(type, now)):
                back.do(base.put, x, [back(v) for v in now])
            return
        if not back.undo and differ(new, first):
            back.do(base.put, x, [back(v) for v in there.read(new)])
        if kind is dict is type(new):
            back.do(refill, new, x)
        elif kind is list is type(new):
            new[:] = x
        else:
            back.do(there.put, new, base.read(x))


def refill(new: dict, x: dict) -> None:
    new.clear()
    new.update(x)


def differ(new: Any, first: list) -> bool:
    """Does a container hold other things than at first?"""
    now = base_of(new).read(new)
    return len(now) != len(first) or not all(map(operator.is_, now, first))


class Reference:
    """What answers like a weak reference.  (A function would be bound to an instance where it is an attribute of a class.)"""

    __slots__ = ("target",)

    def __init__(self, target: Any):
        self.target = target

    def __call__(self):
        return self.target


class Containers:
    """The part of a `Shadow` that replaces containers."""

    __slots__ = ()

    def as_it_is(self, x: Any) -> Any:
        """A container of numbers and strings, remembered: when it is met again it may hold Variables."""
        self.changes.append((Contents, x, x, None))
        self.seen[id(x)] = x
        self.hold.append(x)
        self.noted(x)
        return x

    def list_(self, x: list) -> Any:
        if ATOMS.issuperset(map(type, x)):
            return self.as_it_is(x)
        new: list = []
        self.seen[id(x)] = new
        self.hold.append(x)
        first = self.each(x)
        new += first
        self.changes.append((Contents, x, new, first))
        return new

    def dict_(self, x: dict) -> Any:
        named = ATOMS.issuperset(map(type, x))
        if named and ATOMS.issuperset(map(type, x.values())):
            return self.as_it_is(x)
        new: dict = {}
        self.seen[id(x)] = new
        self.hold.append(x)
        new.update(zip(x, self.each(x.values()), strict=True) if named else {self(k): self(v) for k, v in x.items()})
        self.changes.append((Contents, x, new, [*itertools.chain.from_iterable(new.items())]))
        return new

    def container(self, x: Any) -> Any:
        """Any other that can be altered."""
        base = base_of(x)
        flat = base.read(x)
        kind = type(x)
        c = self(kind) if is_user_class(kind) else kind
        if c is kind and kind is base.kind and ATOMS.issuperset(map(type, flat)) and not getattr(x, "default_factory", None):
            return self.as_it_is(x)
        new = base.kind.__new__(c)
        self.hold.append(x)
        self.seen[id(x)] = new
        if base.kind is collections.deque:
            collections.deque.__init__(new, (), x.maxlen)
        elif isinstance(x, collections.defaultdict):
            collections.defaultdict.__init__(new, self(x.default_factory))
        self.attributes_of(x, new)
        base.put(new, [self(v) for v in flat])
        self.changes.append((Contents, x, new, base.read(new)))
        return new

    def weak(self, x: Any) -> Any:
        """A Variable cannot be referred to weakly: seen from f, such a table is an ordinary one."""
        base = base_of(x)
        new: Any = {} if base.pairs else set()
        self.hold.append(x)
        self.seen[id(x)] = new
        base_of(new).put(new, [self(v) for v in base.read(x)])
        self.changes.append((Contents, x, new, base_of(new).read(new)))
        return new

    def objects_of(self, x: np.ndarray) -> Any:
        """An object array."""
        if x.base is not None:
            return self.leave(x)
        new = np.empty(x.shape, object, order="F" if x.flags.fnc else "C")
        self.seen[id(x)] = new
        self.hold.append(x)
        base = base_of(x)
        base.put(new, [self(v) for v in base.read(x)])
        self.changes.append((Contents, x, new, base.read(new)))
        return new

    def tuple_(self, x: tuple) -> Any:
        new = tuple(self.each(x))
        return x if all(a is b for a, b in zip(x, new, strict=True)) else new

    def frozenset_(self, x: frozenset) -> Any:
        new = [self(v) for v in x]
        return x if all(a is b for a, b in zip(x, new, strict=True)) else frozenset(new)

    def fixed(self, x: Any) -> Any:
        """An object of a subclass of tuple, str, int ..."""
        kind = type(x)
        base = next(b for b in FIXED if isinstance(x, b))
        c = self(kind) if is_user_class(kind) else kind
        flat = list(base.__iter__(x)) if base in (tuple, frozenset) else None
        new = flat and [self(v) for v in flat]
        if c is kind and (not flat or all(a is b for a, b in zip(flat, new, strict=True))):
            return x
        new = base.__new__(c, x if new is None else new)
        self.seen[id(x)] = new
        self.hold.append(x)
        if kind is not c:
            self.attributes_of(x, new)
        return new

    def proxy(self, x: types.MappingProxyType) -> Any:
        under = gc.get_referents(x)[0]
        new = self(under)
        return x if new is under else types.MappingProxyType(new)

    def reference(self, x: Any) -> Any:
        """A weak reference; a Variable cannot be referred to weakly, so its stand-in only answers like one."""
        target = x()
        if target is None:
            return x
        new = self(target)
        return x if new is target else Reference(new)
