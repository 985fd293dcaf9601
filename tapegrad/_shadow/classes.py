"""Classes with shadows of their members, and instances with shadows of their attributes."""

import functools
from typing import Any

from .. import _twins
from .kinds import attribute_names, is_foreign

# Shadow classes at rest.  A class is a cycle, so one made for each call would be left to the cyclic collector; those of
# earlier calls, emptied, serve again.
POOL: dict = {}
SPECIAL = frozenset((
    "__dict__", "__weakref__", "__module__", "__doc__", "__slots__", "__qualname__", "__abstractmethods__", "_abc_impl",
    "__static_attributes__", "__firstlineno__", "__annotations__", "__parameters__", "__orig_bases__", "__match_args__",
    "__dataclass_fields__", "__dataclass_params__",
))  # fmt: skip
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by Python code


class Classes:
    """The part of a `Shadow` that replaces classes and instances."""

    __slots__ = ()

    def shadowable(self, c: type) -> bool:
        """Can a class be rebuilt?  Plain Python classes, all the way up, whose making has no side effects."""
        if type(c).__name__ not in ("type", "ABCMeta") or c is object:
            return False
        ours = [b for b in c.__mro__ if b is not object and b.__name__ not in ("ABC", "Generic", "Protocol")]
        return all(b.__flags__ & HEAP and not is_foreign(b.__module__) and "__init_subclass__" not in b.__dict__ for b in ours)

    def klass(self, c: type) -> Any:
        if is_foreign(c.__module__):
            return _twins.function(c) or c
        if not self.shadowable(c) or issubclass(c, BaseException) or c in self.classes:
            return c
        shadows = [self(b) for b in c.__bases__ if b is not object]
        bases = tuple([b for b in shadows if b not in c.__bases__]) + (c,)
        free = POOL.setdefault(c, [])
        if free:
            new = free.pop()
            if new.__bases__ != bases:
                new.__bases__ = bases
        else:
            space = {"__slots__": (), "__module__": c.__module__, "__qualname__": c.__qualname__, "__doc__": c.__doc__}
            new = type(c)(c.__name__, bases, space)
        self.seen[id(c)] = new
        self.hold.append(c)
        self.classes[new] = c
        for name, value in list(c.__dict__.items()):
            if name in SPECIAL:
                continue
            made = self.member(value)
            if made is not value:
                setattr(new, name, made)
                self.attributes.append((c, None, name, value, made))
        return new

    def member(self, m: Any) -> Any:
        kind = type(m)
        if kind is staticmethod or kind is classmethod:
            return kind(self(m.__func__))
        if kind is property:
            return property(*[g and self(g) for g in (m.fget, m.fset, m.fdel)])
        if kind is functools.cached_property:
            new = functools.cached_property(self(m.func))
            new.attrname = m.attrname
            return new
        return self(m)

    def instance(self, x: Any) -> Any:
        kind = type(x)
        if kind in self.classes:
            return x
        c = self(kind)
        if c is kind:
            return x
        try:
            new = object.__new__(c)
        except TypeError:
            return x
        self.seen[id(x)] = new
        self.hold.append(x)
        before = {}
        for name in attribute_names(x):
            try:
                value = object.__getattribute__(x, name)
            except AttributeError:
                continue
            shadow = self(value)
            before[name] = shadow
            object.__setattr__(new, name, shadow)
        self.objects.append((x, new, before))
        return new
