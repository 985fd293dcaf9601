"""Iterators that were made outside of the function.

The user's own iterator gives its items, so afterwards it stands where a plain call leaves it.  Each item is
shadowed like anything else that is captured.

If no code of the user runs for an item, the iterator is no other way to an array.  What remains is a list or
dict that it walks along: f changes the shadow of that, and the iterator does not see it.  `Shadow.walked`
keeps these containers, and routes.py judges them.  Generators and other iterators with code are left alone
too: what their code reads is found at the end.

`map`, `filter` and the views of a dict keep nothing but their parts, so they are rows of the table of kinds
(objects.py)."""

import copy
import gc
import itertools
import types
from collections import OrderedDict, deque
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE
from .kinds import Capture, module_of
from .routes import behind

HOMES = ("builtins", "itertools", "collections", "_collections")  # modules of Python's own iterators
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


def is_iterator(kind: type) -> bool:
    return module_of(kind) in HOMES and hasattr(kind, "__next__")


def walked_containers(x: Any) -> list | None:
    """The containers along which an iterator walks; None: code of the user's may run for its items.

    Python's collector shows what an iterator holds: containers, other iterators, and, if it calls any,
    functions."""
    found, todo = [], [x]
    for r in todo:
        kind = type(r)
        parts = gc.get_referents(r)
        if kind is tuple and parts and all([is_iterator(type(part)) for part in parts]):
            todo += parts  # of `zip`
        elif kind in ITERABLE:
            found.append(r)
        elif (is_iterator(kind) and kind is not types.GeneratorType) or kind.__name__ == "_tee_dataobject":
            todo += [] if kind is itertools.repeat else parts
            if kind is itertools.chain:
                todo += [
                    v for part in parts for c in gc.get_referents(part) if type(c) in ITERABLE for v in c
                ]
        elif kind not in IMMUTABLE and not isinstance(r, type):
            return None
    return found
