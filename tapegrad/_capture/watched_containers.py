"""Lists and dicts whose members a call is expected to write before it reads them (attribute_watch.py).

The shadow of such a list holds `UNREAD` until code reads it, or empties it.  That of a dict holds it in the
place of each member that is watched."""

from typing import Any

from .kinds import Holder, is_unchanged
from .unread_containers import DICT, LIST, UNREAD, parts, refill


class WatchedContents(Holder):
    """(WatchedContents, container, its shadow)"""

    words = "a {0.__class__.__name__}"

    @staticmethod
    def put(change: tuple) -> list:
        return [v for v in parts(change[2]) if v is not UNREAD]

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        _, x, new = change
        return new.is_changed() or not is_unchanged(shadow, parts(x), new.first)

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        _, x, new = change
        if not back.undo and new.is_changed():
            back.do(refill, x, new.handed_back(back))
        new.end()


class WatchedList(list):
    """The shadow of a list.  `first`: what was read from it, `pending`: was it neither read nor emptied?"""

    __slots__ = ("first", "pending", "read", "shadow", "source")

    def __new__(cls, x: Any = (), shadow: Any = None):
        """(Whoever makes another one like this gets a list.)"""
        return list(x) if shadow is None else LIST.__new__(cls)

    def __init__(self, x: list, shadow: Any):
        LIST.__init__(self, [UNREAD])
        self.source, self.shadow, self.first = x, shadow, [UNREAD]
        self.pending, self.read = True, False

    def note(self) -> None:
        """Note that it is read."""
        if self.pending:
            self.pending, self.read = False, True
            self.first = self.shadow.each(self.source)
            LIST.__setitem__(self, slice(None), self.first)

    def is_changed(self) -> bool:
        now, first = parts(self), self.first
        return len(now) != len(first) or any([v is not w for v, w in zip(now, first, strict=True)])

    def handed_back(self, back: Any) -> list:
        return [*map(back, LIST.__iter__(self))]

    def end(self) -> None:
        """The call is over."""
        self.pending = False
        LIST.__setitem__(self, slice(None), self.source)
        self.first, self.shadow = [], None

    def clear(self):
        self[:] = ()

    def __setitem__(self, k, v):
        if self.pending and isinstance(k, slice) and k == slice(None):
            v = [*v]
            self.pending = False
        self.note()
        LIST.__setitem__(self, k, v)

    def __delitem__(self, k):
        self.__setitem__(k, ()) if isinstance(k, slice) and k == slice(None) else LIST.__delitem__(
            noted(self), k
        )

    def __radd__(self, other):
        return other + [*self] if isinstance(other, list) else NotImplemented

    def __reduce_ex__(self, protocol):
        return list, (), None, iter(self)


class WatchedDict(dict):
    """The shadow of a dict.  `keys_watched`: the keys that are watched; `pending`: those of which nothing is known;
    `read`: those that were read first."""

    __slots__ = ("cleared", "first", "keys_watched", "pending", "read", "shadow", "source")

    def __new__(cls, x: Any = (), shadow: Any = None, keys: Any = ()):
        return dict(x) if shadow is None else DICT.__new__(cls)

    def __init__(self, x: dict, shadow: Any, keys: Any):
        self.source, self.shadow, self.keys_watched = x, shadow, frozenset(keys)
        self.pending: set = set(keys)
        self.read: set = set()
        self.cleared = False
        rest = [k for k in x if k not in self.keys_watched]
        made = dict(zip(rest, shadow.each([x[k] for k in rest]), strict=True))
        DICT.update(self, {k: made.get(k, UNREAD) for k in x})
        self.first = parts(self)

    def note_member(self, key: Any) -> None:
        if key in self.pending:
            self.pending.remove(key)
            self.read.add(key)
            if key in self.source:
                DICT.__setitem__(self, key, self.shadow(self.source[key]))

    def note(self) -> None:
        """Note that all of it is read, and the order of its keys."""
        if not self.cleared:
            for key in [*self.pending]:
                self.note_member(key)
            self.read |= self.keys_watched

    def written(self) -> list:
        """The keys that were written first, in their order."""
        return [
            k for k in DICT.__iter__(self) if k in self.keys_watched and k not in self.pending | self.read
        ]

    def lost(self) -> set:
        """Keys that were written, and are there no more."""
        return {k for k in self.keys_watched - self.pending - self.read if not DICT.__contains__(self, k)}

    def is_changed(self) -> bool:
        now = parts(self)
        return len(now) != len(self.first) or any([v is not w for v, w in zip(now, self.first, strict=True)])

    def handed_back(self, back: Any) -> dict:
        return {back(k): self.source[k] if v is UNREAD else back(v) for k, v in DICT.items(self)}

    def end(self) -> None:
        self.pending, self.cleared, self.first = set(), True, []
        refill(self, self.source)

    def clear(self):
        self.pending, self.cleared = set(), True
        DICT.clear(self)

    def __setitem__(self, key, value):
        self.pending.discard(key)
        DICT.__setitem__(self, key, value)

    def update(self, *args, **more):
        for key, value in dict(*args, **more).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def __reduce_ex__(self, protocol):
        return dict, (), None, None, iter(self.items())


def noted(x: Any) -> Any:
    x.note()
    return x


def after_note(method: Any, of_member: bool) -> Any:
    """A method of `list` or `dict` that reads the container; `of_member`: one member."""

    def run(self, *args, **kwargs):
        self.note_member(args[0]) if of_member and args else self.note()
        return method(self, *args, **kwargs)

    run.__name__ = method.__name__
    return run


ITERATION = "__iter__ __reversed__ __len__ __eq__ __ne__ __repr__ copy "
for kind, names, of_member in (
    (
        WatchedList,
        ITERATION
        + "__contains__ __lt__ __le__ __gt__ __ge__ __add__ __iadd__ __mul__ __rmul__ __imul__ __getitem__ "
        "append extend insert pop remove index count sort reverse",
        False,
    ),
    (WatchedDict, ITERATION + "keys values items popitem __or__ __ror__", False),
    (WatchedDict, "__getitem__ get __contains__ __delitem__ pop setdefault", True),
):
    for name in names.split():
        setattr(kind, name, after_note(getattr(kind.__base__, name), of_member))
