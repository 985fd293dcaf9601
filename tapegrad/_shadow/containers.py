"""Containers with shadows of what they hold."""

from typing import Any

from .kinds import ATOMS


class Containers:
    """The part of a `Shadow` that replaces containers."""

    __slots__ = ()

    def list_(self, x: list) -> Any:
        if ATOMS.issuperset(map(type, x)):
            self.lists.append((x, x, None))
            return x
        new: list = []
        self.seen[id(x)] = new
        self.hold.append(x)
        new.extend([self(v) for v in x])
        self.lists.append((x, new, list(new)))
        return new

    def tuple_(self, x: tuple) -> Any:
        new = tuple([self(v) for v in x])
        return x if all(a is b for a, b in zip(x, new, strict=True)) else new

    def named_tuple(self, x: Any) -> Any:
        new = [self(v) for v in x]
        return x if all(a is b for a, b in zip(x, new, strict=True)) else type(x)(*new)

    def dict_(self, x: dict) -> Any:
        if ATOMS.issuperset(map(type, x.values())):
            self.lists.append((x, x, None))
            return x
        new: dict = {}
        self.seen[id(x)] = new
        self.hold.append(x)
        new.update({k: self(v) for k, v in x.items()})
        self.lists.append((x, new, dict(new)))
        return new
