"""Lists and dicts of many objects, with shadows of those members that code reads.

Their classes derive from `list` and `dict`.  A member that was not read yet is `UNREAD`; the length and the
keys are there at once.  A method that reads one member makes the shadow of that one.  Any other method makes
all of them first.  Python's C code reads an object of a derived class by its methods, if these are
overridden.  Other C code meets `UNREAD`, which raises."""

import itertools
import operator
import types
from typing import Any

from .._core.arrays import IMMUTABLE
from .kinds import EMPTY, Holder, is_data, same

MANY = 32  # members, below which all are made at once
AT_ONCE = IMMUTABLE | {types.FunctionType}
LIST: Any = list
DICT: Any = dict


def refuse(_: Any, name: Any = None, *__: Any) -> Any:
    kind = AttributeError if isinstance(name, str) and name.startswith("__") else TypeError
    raise kind(
        "compiled code reads a captured list or dict past its methods, where its members are not known yet; "
        "give that code a copy: list(x) or dict(x)"
    )


METHODS = (
    "__eq__ __lt__ __gt__ __le__ __ge__ __hash__ __bool__ __iter__ __len__ __call__ __getitem__ "
    "__getattr__ __float__"
)
UNREAD: Any = type("UNREAD", (), dict.fromkeys(METHODS.split(), refuse))()


class UnreadContents(Holder):
    """(UnreadContents, container, its shadow, what the shadow was filled with, what the container held)

    The last two are a list and a tuple, or two dicts.  Where the third holds `UNREAD`, it stands for the
    member of the last."""

    words = "a {0.__class__.__name__}"

    @staticmethod
    def is_changed(change: tuple) -> bool:
        """Has f put other things into the shadow?"""
        return not same([*members(change[2])], [*members(change[3])])

    @staticmethod
    def put(change: tuple) -> list:
        known = {id(v) for v in parts(change[3])}
        return [v for v in parts(change[2]) if id(v) not in known]

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        now, held = parts(change[1]), parts(change[4])
        pairs = itertools.zip_longest(now, held)
        return any([v is not w and is_data(v) for v, w in pairs]) or UnreadContents.is_changed(change)

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        _, x, new, _, _ = change
        if not back.undo and UnreadContents.is_changed(change):
            held = change[4]
            now: Any
            if type(x) is list:
                now = [held[k] if v is UNREAD else back(v) for k, v in enumerate(LIST.__iter__(new))]
            else:
                now = {back(k): held[k] if v is UNREAD else back(v) for k, v in DICT.items(new)}
            back.do(refill, x, now)
        back.do(refill, new, x)
        new.change = new.shadow = None

    @staticmethod
    def places(change: tuple, side: int) -> list:
        return [("lists" if type(change[1]) is list else "dicts", change[side])]

    @staticmethod
    def is_unmodified(shadow: Any, change: tuple) -> bool:
        return same(parts(change[1]), parts(change[4])) and not UnreadContents.is_changed(change)


def members(x: Any) -> Any:
    """None is made."""
    return LIST.__iter__(x) if isinstance(x, list) else DICT.values(x)


def parts(x: Any) -> list:
    """The members of a list or tuple; the keys and values of a dict by turns.  None is made."""
    if isinstance(x, dict):
        return [*itertools.chain.from_iterable(DICT.items(x))]
    return [*(LIST.__iter__(x) if isinstance(x, list) else x)]


def refill(x: Any, other: Any) -> None:
    if isinstance(x, list):
        LIST.__setitem__(x, slice(None), other)
    else:
        DICT.clear(x)
        DICT.update(x, other)


class UnreadList(list):
    """The shadow of a list."""

    __slots__ = ("change", "shadow")

    def __new__(cls, x: Any = (), shadow: Any = None):
        """(Whoever makes another one like this gets a list.)"""
        return list(x) if shadow is None else LIST.__new__(cls)

    def __init__(self, x: list, shadow: Any):
        first = [UNREAD] * len(x)
        LIST.__init__(self, first)
        self.change, self.shadow = (UnreadContents, x, self, first, tuple(x)), shadow

    def fill(self) -> None:
        """Make all members."""
        if self.shadow is not None:
            _, _, _, first, held = self.change
            unread = [k for k, v in enumerate(LIST.__iter__(self)) if v is UNREAD]
            for k, v in zip(unread, self.shadow.each([held[k] for k in unread]), strict=True):
                first[k] = v
                LIST.__setitem__(self, k, v)
            self.shadow = None

    def __getitem__(self, k):
        if type(k) is slice:
            self.fill()
        v = LIST.__getitem__(self, k)
        if v is not UNREAD:
            return v
        k = operator.index(k)
        _, _, _, first, held = self.change
        first[k] = v = self.shadow(held[k])
        LIST.__setitem__(self, k, v)
        return v

    def __setitem__(self, k, v):
        if type(k) is slice:
            self.fill()
        LIST.__setitem__(self, k, v)

    def __radd__(self, other):
        return other + [*self] if isinstance(other, list) else NotImplemented

    def __reduce_ex__(self, protocol):
        return list, (), None, iter(self)


class UnreadDict(dict):
    """The shadow of a dict.

    Keys that are objects are those of the user at first.  Their shadows are equal to them, and have the same
    hash unless that is one of identity.  So where a key is not found, all are made, and it is looked up
    again."""

    __slots__ = ("change", "named", "shadow")

    def __new__(cls, x: Any = (), shadow: Any = None, named: bool = True):
        return dict(x) if shadow is None else DICT.__new__(cls)

    def __init__(self, x: dict, shadow: Any, named: bool):
        """`named`: are all keys numbers and strings?"""
        self.named = named
        first = DICT.fromkeys(x, UNREAD)
        DICT.update(self, first)
        self.change, self.shadow = (UnreadContents, x, self, first, DICT.copy(x)), shadow

    def fill(self) -> None:
        """Make all keys and members."""
        if self.shadow is not None:
            _, _, _, first, held = self.change
            unread = [k for k, v in DICT.items(self) if v is UNREAD]
            for k, v in zip(unread, self.shadow.each([held[k] for k in unread]), strict=True):
                first[k] = v
                DICT.__setitem__(self, k, v)
            if not self.named:
                keys = self.shadow.each([*held])
                refill(self, [*zip(keys, DICT.values(self), strict=True)])
                refill(first, [*zip(keys, first.values(), strict=True)])
            self.named, self.shadow = True, None

    def __getitem__(self, key):
        v = self.get(key, EMPTY)
        return DICT.__getitem__(self, key) if v is EMPTY else v

    def get(self, key, default=None):
        v = DICT.get(self, key, EMPTY)
        if v is EMPTY and not self.named:
            self.fill()
            v = DICT.get(self, key, EMPTY)
        if v is UNREAD:
            _, _, _, first, held = self.change
            first[key] = v = self.shadow(held[key])
            DICT.__setitem__(self, key, v)
        return default if v is EMPTY else v

    def __contains__(self, key):
        if not self.named and not DICT.__contains__(self, key):
            self.fill()
        return DICT.__contains__(self, key)

    def __setitem__(self, key, value):
        key in self  # noqa: B015 (where it is not found, all keys are made)
        DICT.__setitem__(self, key, value)

    def __reduce_ex__(self, protocol):
        return dict, (), None, None, iter(self.items())


class WatchedList(UnreadList):
    """The shadow of a list that a call may empty before it reads it (attribute_watch.py)."""

    __slots__ = ("read",)

    def __init__(self, x: list, shadow: Any):
        LIST.__init__(self, [UNREAD])
        self.change, self.shadow, self.read = (UnreadContents, x, self, [UNREAD], tuple(x)), shadow, False

    def fill(self) -> None:
        if self.shadow is not None:
            self.read, first = True, self.change[3]
            first[:] = self.shadow.each(self.change[4])
            LIST.__setitem__(self, slice(None), first)
            self.shadow = None

    def __setitem__(self, k, v):
        if type(k) is slice and k == slice(None):
            v, self.shadow = [*v], None
        self.fill()
        LIST.__setitem__(self, k, v)

    def __delitem__(self, k):
        self[k if type(k) is slice else slice(k, k + 1 or None)] = ()

    def clear(self):
        self[:] = ()


class WatchedDict(UnreadDict):
    """The shadow of a dict that a call may empty, or write members of, before it reads them.  `read`: keys,
    or None for all."""

    __slots__ = ("cleared", "read", "wrote")

    def __init__(self, x: dict, shadow: Any):
        UnreadDict.__init__(self, x, shadow, True)
        self.cleared = False
        self.read: Any = set()
        self.wrote: set = set()

    def fill(self) -> None:
        self.read = self.read if self.cleared else None
        UnreadDict.fill(self)

    def note(self, key: Any) -> None:
        if self.read is not None and key not in self.wrote and not self.cleared:
            self.read.add(key)

    def get(self, key, default=None):
        self.note(key)
        return UnreadDict.get(self, key, default)

    def __contains__(self, key):
        self.note(key)
        return DICT.__contains__(self, key)

    def __setitem__(self, key, value):
        self.wrote.add(key)
        DICT.__setitem__(self, key, value)

    def update(self, *args, **more):
        for key, value in dict(*args, **more).items():
            self[key] = value

    def clear(self):
        self.cleared, self.shadow = True, None
        DICT.clear(self)


def after_filling(method: Any) -> Any:
    """A method of `list` or `dict` that needs all members."""

    def run(self, *args, **kwargs):
        self.fill()
        return method(self, *args, **kwargs)

    run.__name__ = method.__name__
    return run


for kind, names in (
    (WatchedList, "__len__ __getitem__ append"),
    (WatchedDict, "__len__"),
    (
        UnreadList,
        "__iter__ __reversed__ __contains__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __add__ __iadd__ "
        "__mul__ __rmul__ __imul__ __delitem__ __repr__ extend insert pop remove clear index count "
        "sort reverse copy",
    ),
    (
        UnreadDict,
        "__iter__ __reversed__ keys __eq__ __ne__ __or__ __ror__ __ior__ __delitem__ __repr__ values items "
        "pop popitem update setdefault clear copy",
    ),
):
    for name in names.split():
        setattr(kind, name, after_filling(getattr(list if issubclass(kind, list) else dict, name)))


def is_worth_waiting(members: Any) -> bool:
    """Are these many objects other than numbers and functions?"""
    return len(members) >= MANY and not AT_ONCE.issuperset(map(type, members))
