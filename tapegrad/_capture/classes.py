"""Classes with shadows of their members, and instances with shadows of their attributes.

The shadow of a class C(B) has the bases (C, shadow of B): each class stands behind its own shadow in the
order of resolution (C', C, B', B), so that whatever overrides what in the user's classes does so here,
members without a shadow included.  Code that asks for what comes after C must start from C itself: see
`super_` in builtin.py.

A shadow class is made by `type.__new__`, past the user's metaclass, and with `__init_subclass__` out of
sight: making it has no effect that the user could see.  It has every member of its class; members and
attributes of instances are made when code reads them (deferred.py).  `ShadowMeta`, which its metaclass is
derived from, answers for `__mro__`, `__bases__` and `__dict__`, so code that goes through classes and their
namespaces meets each of them once, as its shadow.  Its bases never change afterwards.  A class is a cycle, so
one made for each call would be left to the cyclic collector: a shadow class at rest waits on the class itself
for the next call with the same bases."""

import abc
import functools
import operator
import threading
import types
from typing import Any

import numpy as np

from .._core.primitive import is_subarray
from .._core.scope import OPEN
from .._core.variable import SUBARRAYS, PlainSubarray
from .._dispatch import stand_ins
from .deferred import (
    DEFERRED,
    KEPT_CLASSES,
    OF_ARRAYS,
    POOL,
    PROTOCOLS,
    SOURCE,
    SPECIAL,
    MemberSource,
    ShadowMeta,
    Unread,
    is_unread,
    loaded,
    put_member,
    put_unread,
    read,
    unread_class,
    without_hooks,
)
from .kinds import (
    EMPTY,
    NOTHING,
    READ,
    REAL,
    SLOTS,
    Capture,
    Holder,
    bases_of,
    clear_attributes,
    dict_of,
    drop_state,
    is_unchanged,
    is_user_class,
    module_of,
    put_state,
    slots_of,
    space_of,
    stands_for,
    state_of,
)
from .objects import parts_of
from .type_queries import METAS

METAS[ShadowMeta] = type
abstract_methods = operator.attrgetter("__abstractmethods__")


@functools.cache
def seeing(meta: type) -> type:
    """A metaclass of Python or of a package, as that of shadows."""
    if meta is type:
        return ShadowMeta
    above = [seeing(b) for b in meta.__bases__ if issubclass(b, type)]
    new = type(meta.__name__, (*above, meta), {"__module__": meta.__module__, "__slots__": ()})
    METAS[new] = meta
    return new


class ArrayShadowMeta(ShadowMeta):
    """The metaclass of shadows of subclasses of ndarray."""

    def __call__(c, *args, **kwargs):
        """`type.__call__` does not initialise what `__new__` makes as a subarray, because that is no instance
        of the shadow."""
        made: Any = super().__call__(*args, **kwargs)
        if is_subarray(made) and not issubclass(type(made), c) and issubclass(type(made)._tg_of, c):
            made.__init__(*args, **kwargs)
        return made


METAS[ArrayShadowMeta] = type


def of_arrays(meta: type) -> type:
    """The metaclass of shadows of subclasses of ndarray; `meta`: of their other shadows."""
    if meta is ShadowMeta or issubclass(meta, ArrayShadowMeta):  # (of a class of an outer transform)
        return ArrayShadowMeta if meta is ShadowMeta else meta
    if OF_ARRAYS not in space_of(meta):
        space = {"__module__": meta.__module__, "__slots__": (), READ: METAS.get(meta, meta)}
        type.__setattr__(meta, OF_ARRAYS, type(meta.__name__, (meta, ArrayShadowMeta), space))
    return space_of(meta)[OF_ARRAYS]


def metaclass(bases: tuple, wanted: Any) -> Any:
    """That of a class which the function derives from shadows and others; `wanted` unless theirs conflict
    because of the shadows."""
    metas = [type(b) for b in bases if isinstance(b, type)] + ([wanted] if isinstance(wanted, type) else [])
    if METAS.keys().isdisjoint(metas) or any([all([issubclass(m, k) for k in metas]) for m in metas]):
        return wanted
    theirs = [METAS.get(m, m) for m in metas]
    return next((seeing(m) for m in theirs if all([issubclass(m, k) for k in theirs])), wanted)


class Members(Holder):
    """(Members, class, its shadow, the bases and the members that this was made with)"""

    words = "an attribute of a class"

    @staticmethod
    def bound(new: type, before: dict) -> dict:
        space = space_of(new)
        if space[SOURCE].is_untouched():
            return {}
        return {
            n: v
            for n, v in space.items()
            if v is not before.get(n) and n not in SPECIAL and type(v) not in DEFERRED
        }

    @staticmethod
    def named(change: tuple) -> list:
        return list(Members.bound(change[2], change[4]).items())

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        _, c, new, _, before = change
        if space_of(new)[SOURCE].is_untouched():
            return False
        own = [(space_of(c).get(name, EMPTY), v) for name, v in before.items() if type(v) not in DEFERRED]
        past = any(
            [v is not w and id(v) not in shadow.seen and not hasattr(type(v), "__get__") for v, w in own]
        )
        return past or bool(Members.bound(new, before))

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        _, c, new, _, before = change
        if not back.undo:
            for name, v in Members.bound(new, before).items():
                setattr(c, name, back(v))

    @staticmethod
    def with_number(change: tuple, name: str, number: Any) -> tuple:
        setattr(change[1], name, number)
        change[4][name] = number
        return change

    @staticmethod
    def places(change: tuple, side: int) -> list:
        return [("classes", change[side])]

    @staticmethod
    def is_unmodified(shadow: Any, change: tuple) -> bool:
        _, c, new, _, before = change
        read = {
            name: getattr(v, "method", v) if name in PROTOCOLS else v
            for name, v in before.items()
            if type(v) not in DEFERRED
        }
        held = [space_of(c).get(name, EMPTY) for name in read]
        stands = stands_for(shadow, held, read.values()) and not Members.bound(new, before)
        return stands and all([space_of(new).get(name) is v for name, v in before.items()])


class InstanceState(Holder):
    """(State, object, its shadow, the attributes that this was made with)"""

    words = "an attribute of a {0.__class__.__name__}"

    @staticmethod
    def bound(now: dict, before: dict) -> dict:
        """Those that f has bound, and as `EMPTY` those that it has deleted."""
        found = {name: v for name, v in now.items() if v is not before.get(name, EMPTY)}
        return (
            found
            if len(now) - len(found) == len(before)
            else found | {name: EMPTY for name in before if name not in now}
        )

    @staticmethod
    def named(change: tuple) -> list:
        return (
            [] if is_unread(change[2]) else list(InstanceState.bound(state_of(change[2]), change[3]).items())
        )

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        _, x, new, before = change
        if is_unread(new):
            return False
        own = state_of(x, type(new))
        return bool(InstanceState.bound(state_of(new), before)) or not is_unchanged(
            shadow, own.values(), [before.get(name, EMPTY) for name in own]
        )

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        """A shadow that leaked becomes one of the user's class."""
        _, x, new, before = change
        if is_unread(new):
            return
        kind = type(new)
        now = state_of(new)
        if now or before:
            other = {} if back.undo else InstanceState.bound(now, before)
            bound = {name: back(v) for name, v in other.items() if v is not EMPTY}
            if bound:
                put_state(x, bound, kind)
            for name in other.keys() - bound.keys():
                drop_state(x, name)
            back.do(refill_attributes, new, state_of(x, kind), kind)
        if kind is not type(x) and not is_subarray(new):
            users_own(new, type(x))

    @staticmethod
    def with_number(change: tuple, name: str, number: Any) -> tuple:
        put_state(change[1], {name: number}, type(change[2]))
        change[3][name] = number
        return change

    @staticmethod
    def places(change: tuple, side: int) -> list:
        x, new = change[side], change[2]
        if type(x) is types.FunctionType:
            return [("functions", x), *[("dicts", d) for d in (x.__dict__, x.__kwdefaults__) if d]]
        if is_unread(new):
            return [("unread", x)]
        slots, space = slots_of(type(new)), dict_of(x)
        held = [("slots", (x, slots))] if slots else []
        return [("objects", x), *held, *([("dicts", space)] if space is not NOTHING else ())]

    @staticmethod
    def is_unmodified(shadow: Any, change: tuple) -> bool:
        _, x, new, before = change
        if is_unread(new):
            return True
        held = state_of(x, type(new))
        made = [before.get(name, EMPTY) for name in held]
        return not InstanceState.bound(state_of(new), before) and stands_for(shadow, held.values(), made)


def refill_attributes(new: Any, state: dict, kind: type) -> None:
    clear_attributes(new)
    put_state(new, state, kind)


def users_own(v: Any, kind: type) -> bool:
    """Make an instance of a shadow class one of the user's class; a few layouts (of Generic's children) do
    not allow it."""
    try:
        object.__setattr__(read(v), "__class__", kind)
    except TypeError:
        return False
    return True


class ClassCapture(Capture):
    """The part of a `Shadow` that replaces classes and instances."""

    classes: dict  # shadow class -> class

    def klass(self, c: type) -> Any:
        if not is_user_class(c):
            return stand_ins.function_stand_in(c) or c
        if issubclass(c, BaseException) or c in self.classes:
            return c
        real = space_of(c).get(REAL)  # of the shadow of an outer transform: its own shadow comes before both
        above = [PlainSubarray if b is np.ndarray else self(b) for b in bases_of(c) if b is not real]
        if PlainSubarray in above:  # C code makes arrays of the new class
            SUBARRAYS.add(PlainSubarray)
        bases = (c, *[s for s in above if isinstance(s, type) and s not in bases_of(c)])
        meta = self(type(c))
        if id(c) in self.seen:  # a base, or the metaclass, leads to it
            return self.seen[id(c)]
        if not issubclass(meta, ShadowMeta):
            meta = seeing(meta)
        if issubclass(c, np.ndarray):
            meta = of_arrays(meta)
        new = self.pooled(c, meta, bases)
        if new is None:
            try:
                new = new_shadow_class(c, meta, bases)
            except TypeError:  # of an extension module, or final
                return self.leave(c)
        self.seen[id(c)] = new
        self.hold.append(c)
        self.classes[new] = c
        source = space_of(new)[SOURCE]
        before = source.begin(self)
        if self.watch is not None:
            self.watch.enter(c, new, before)
        self.changes.append((Members, c, new, bases, before))
        members = space_of(c).get("_member_map_")
        if members is not None or issubclass(c, type) or self.reads_all:
            loaded(new)
        for name, value in (members or {}).items():  # an enumeration
            put_member(new, name, self(value))
            before[name] = space_of(new)[name]
        return new

    def pooled(self, c: type, meta: type, bases: tuple) -> Any:
        free = space_of(c).get(POOL, ())
        for k in range(len(free) - 1, -1, -1):
            try:
                entry = free.pop(k)
            except IndexError:  # another thread took it
                continue
            if entry[1] == bases and type(entry[0]) is meta:
                if space_of(entry[0])[SOURCE].holds():
                    return entry[0]
            else:
                free.insert(k, entry)
        return None

    def property(self, m: Any) -> Any:
        parts = parts_of(m)
        shadows = self.each(parts)
        kind = self(type(m))
        if kind is type(m) and all(a is b for a, b in zip(parts, shadows, strict=True)):
            return m
        base = next(b for b in (property, staticmethod, classmethod) if isinstance(m, b))
        new = base.__new__(kind)
        base.__init__(new, *shadows)
        self.seen[id(m)] = new
        self.hold.append(m)
        put_state(new, {k: self(v) for k, v in state_of(m).items()})
        return new

    def instance(self, x: Any) -> Any:
        kind = type(x)
        if kind in self.classes:
            return x
        if is_unread(x):  # it leaked out of another call
            kind = type(read(x))
        c = self(kind) if is_user_class(kind) else kind
        if c is kind and is_user_class(kind):
            return self.leave(x)
        bare: Any = next(b for b in BARE if issubclass(c, b))
        later = unread_class(c) if bare is object and c is not kind and not self.reads_all else None
        try:
            new = bare.__new__(later or c)
        except TypeError:
            return self.leave(x)
        self.seen[id(x)] = new
        self.hold.append(x)
        if later is not None:
            self.classes[later] = kind
            before: dict = {}
            put_unread(new, Unread(x, self, before))
            self.changes.append((InstanceState, x, new, before))
            return new
        self.attributes_of(x, new, **CACHES.get(kind, {}))
        return new

    def read_all(self) -> None:
        """Code may ask for attributes by `object.__getattribute__`, past the class of an instance."""
        for shadow in (*OPEN.shadows, self):
            shadow.reads_all = True
            for kind, _, new, *_ in [*shadow.changes]:
                if kind is InstanceState:
                    read(new)

    def attributes_of(self, x: Any, new: Any, **other: Any) -> None:
        before = {
            name: self(value) for name, value in state_of(x, type(new)).items() if name not in other
        } | other
        put_state(new, before)
        self.changes.append((InstanceState, x, new, before))


# of methods of single objects, from Python 3.12 on
CACHES = {functools.singledispatchmethod: {"_method_cache": None}}
BARE = (types.SimpleNamespace, threading.local, object)  # where the making of an instance begins


def new_shadow_class(c: type, meta: type, bases: tuple) -> type:
    """A new, empty shadow class."""
    if POOL not in c.__dict__:
        type.__setattr__(c, POOL, [])
        if not issubclass(c, type) and not c.__dict__.get("_is_protocol"):
            type.__setattr__(c, "__subclasses__", classmethod(subclasses))
    slots = slots_of(c)
    space = {
        "__slots__": (),
        "__module__": module_of(c),
        "__qualname__": c.__qualname__,
        "__doc__": c.__doc__,
        REAL: c,
        SLOTS: slots,
    }
    space["__slotnames__"] = list(slots)  # what `copy` keeps of an instance
    if "__type_params__" in c.__dict__:  # Python 3.12: `class C[T]`, which a subclass does not inherit
        space["__type_params__"] = c.__dict__["__type_params__"]
    if issubclass(c, type) and not issubclass(c, ShadowMeta):
        # those of classes whose metaclass is a base of c, so that a class may derive from both
        theirs = [seeing(b) for b in bases_of(c) if issubclass(b, type) and not is_user_class(b)]
        bases = (*bases, *(theirs or [ShadowMeta]))
    new = without_hooks(c, meta, bases, space)
    if "__slots__" in c.__dict__:
        # for whoever reads it: the places are made
        type.__setattr__(new, "__slots__", c.__dict__["__slots__"])
    else:
        type.__delattr__(new, "__slots__")
    if issubclass(meta, abc.ABCMeta):
        type.__setattr__(new, "__abstractmethods__", abstract_methods(c))
    MemberSource(c, new)
    return new


def retire_class(c: type, new: type, bases: tuple, reusable: bool) -> None:
    """Empty a shadow class and put it by, unless the user has made classes from it, or instances that
    stay."""
    space_of(new)[SOURCE].end()
    derived: list[Any] = type.__subclasses__(new)
    if not reusable or any(REAL not in space_of(s) for s in derived):
        return
    free = space_of(c)[POOL]
    free.append((new, bases))
    del free[:-KEPT_CLASSES]


def subclasses(kind: type) -> list:
    """What `type.__subclasses__` would give if no class had shadows."""
    layers: list[Any] = [kind]
    while (real := space_of(layers[-1]).get(REAL)) is not None:
        layers.append(real)
    found = [s for c in layers for s in type.__subclasses__(c) if REAL not in space_of(s)]
    for shadow in OPEN.shadows:
        if any(c in shadow.classes for c in layers):
            found = [shadow(s) for s in found]
    return found
