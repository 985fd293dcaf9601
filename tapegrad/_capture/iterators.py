"""Iterators made outside, seen from f: the user's own gives its items, so it stands afterwards where a plain
call leaves it, and each item is shadowed like anything else captured.

Where no code of the user's runs for an item, that is right by construction, and the iterator is no other way
to an array.  What is left is a list or dict that an iterator walks along: f alters its shadow, and the
iterator does not see it (`Shadow.walked`, which routes.py judges).  Generators and other iterators with code
are left alone as well: what that code reads is found afterwards.

`map` and `filter` keep nothing but a function and iterators, so they are made anew; so are the views of a
dict."""

import copy
import gc
import itertools
import types
from collections import OrderedDict, deque
from typing import Any

import numpy as np

from .kinds import Capture
from .routes import behind

SAMPLES: tuple = (
    [], (), {}, {}.values(), {}.items(), set(), deque(), OrderedDict(), reversed([]), reversed({}), reversed({}.values()),
    reversed({}.items()), reversed(deque()),
)  # fmt: skip
ALONG = tuple([type(iter(x)) for x in SAMPLES])
BY_INDEX = type(iter(np.zeros(1)))  # of whatever has `__getitem__`
MADE = (
    itertools.count, itertools.repeat, itertools.product, itertools.permutations, itertools.combinations,
    itertools.combinations_with_replacement, type(iter(range(0))), type(iter("")),
)  # fmt: skip
OVER: tuple = (
    zip, enumerate, itertools.chain, itertools.cycle, itertools.islice, itertools.zip_longest, itertools.pairwise,
    itertools.compress, type(itertools.tee(())[0]),
)  # fmt: skip
OF_CODE = (
    types.GeneratorType, reversed, itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.filterfalse,
    itertools.accumulate, itertools.groupby,
)  # fmt: skip
ITERATORS = frozenset((*ALONG, BY_INDEX, *MADE, *OVER, *OF_CODE))
ITERABLE = frozenset((list, tuple, dict, set, frozenset, deque, OrderedDict, np.ndarray, str, range))


class UserIterator:
    """One iterator of the user's."""

    __slots__ = ("real", "shadow")

    def __init__(self, real: Any, shadow: Any):
        self.real, self.shadow = real, shadow

    def given(self, item: Any) -> Any:
        return item if self.shadow.seen is None else self.shadow(item)

    def __iter__(self):
        return self

    def __next__(self):
        self.shadow.advanced()
        return self.given(next(self.real))

    def send(self, value):
        self.shadow.advanced()
        return self.given(self.real.send(value))

    def __copy__(self):
        return UserIterator(copy.copy(self.real), self.shadow)

    def __reduce__(self):
        return self.given(self.real.__reduce__())

    __class__: Any = property(lambda self: type(self.real))

    def __getattr__(self, name):
        return getattr(self.real, name)


class IteratorCapture(Capture):
    """The part of a `Shadow` that replaces iterators and weak proxies."""

    __slots__ = ()

    def iterator(self, x: Any) -> Any:
        found = walked_containers(x)
        if found is None:
            self.leave(x)
        else:
            self.walked += [(container, x) for container in found]
        return UserIterator(x, self)

    def proxied(self, x: Any) -> Any:
        """A weak proxy: its object."""
        target = behind(x)
        return self(target[0]) if target else self.leave(x)


def walked_containers(x: Any) -> list | None:
    """The containers along which an iterator walks; None: code of the user's may run for its items."""
    kind = type(x)
    if kind in MADE:
        return []
    if kind in ALONG:
        return [c for c in gc.get_referents(x) if type(c) in ITERABLE]
    if kind is BY_INDEX:
        return [] if all([type(c) in ITERABLE for c in gc.get_referents(x)]) else None
    if kind in OVER:
        return joint_iterator(sources_of(x))
    return [x] if kind in ITERABLE else None


def joint_iterator(parts: list) -> list | None:
    found: Any = [walked_containers(part) for part in parts]
    return None if None in found else [c for part in found for c in part]


def sources_of(x: Any) -> list:
    """What an iterator over others asks for its items, or may ask later."""
    found: list = []
    for part in gc.get_referents(x):
        if type(part).__name__ == "_tee_dataobject" or type(part) is tuple and type(x) in (zip, itertools.zip_longest):
            found += sources_of(part)
        elif hasattr(type(part), "__next__"):
            found.append(part)
            if type(x) is itertools.chain:
                found += [later for c in gc.get_referents(part) if type(c) in ITERABLE for later in c]
    return found
