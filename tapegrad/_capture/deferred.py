"""Members of shadow classes, and attributes of their instances, that are made when they are first read.

A class may lead to thousands of objects of which a call reads a few.  So its shadow begins with a descriptor for
each member.  The descriptor makes the shadow of the member at the first read, and puts it in its own place.  A
shadow class at rest (classes.py) keeps its descriptors, so that the next call begins where this one began.

The member is read from the class at that moment.  Nothing of the class is remembered but the names of its
members, their types, and what can never change."""

import abc
import enum
import operator
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.arrays import IMMUTABLE
from .._core.variable import variable
from .._dispatch import stand_ins
from .kinds import (
    EMPTY,
    READ,
    REAL,
    SLOTS,
    base_of,
    bases_of,
    drop_state,
    mro_of,
    original,
    put_state,
    slots_of,
    space_of,
    state_of,
)

UNREAD = "_abc_tapegrad_unread"  # in a shadow class: the class of its instances that were not read yet
RAW = "_abc_tapegrad_raw"  # in that class: the descriptor of the dict of an instance, or of a slot
QUIET = "_abc_tapegrad_quiet"  # in a shadow class: what keeps `__init_subclass__` out of sight (there: None)
SUBARRAY = "_abc_tapegrad_subarray"  # in a shadow class of a subclass of ndarray: the class of its subarrays
SOURCE = "_abc_tapegrad_source"  # in a shadow class: its `MemberSource`
POOL = "_abc_tapegrad_shadows"  # in a class: its shadows at rest, with their bases
KEPT_CLASSES = 16  # of them
OF_ARRAYS = "_tg_of_arrays"  # of a metaclass: the one that `classes.of_arrays` makes of it
SPECIAL = frozenset((
    "__dict__", "__weakref__", "__module__", "__doc__", "__slots__", "__qualname__", "__abstractmethods__",
    "_abc_impl",
    "__static_attributes__", "__firstlineno__", "__parameters__", "__orig_bases__",
    "__match_args__",
    "__slotnames__", "__dataclass_fields__", "__dataclass_params__", "__type_params__", "__protocol_attrs__",
    "__non_callable_proto_members__", "__subclasses__", REAL, SLOTS, POOL, SOURCE, UNREAD, QUIET, SUBARRAY,
    OF_ARRAYS,
)) | {
    name for name, v in type.__dict__.items() if hasattr(type(v), "__set__") and name != "__annotations__"
}  # fmt: skip


class ShadowMeta(type):
    """The metaclass of shadows, and of what the function derives from them: a class's place among others is
    that in a plain call."""

    def seen(c) -> list:
        """The order of resolution without the classes that stand behind their own shadows."""
        order = mro_of(c)
        behind = {space_of(k).get(REAL) for k in order}
        return [
            k
            for k in order
            if k not in behind and space_of(k).get(QUIET, k) is not None and READ not in space_of(k)
        ]

    def stands(c, kinds: tuple) -> tuple:
        found = {original(k): k for k in ShadowMeta.seen(c)}
        return tuple([found.get(original(k), k) for k in kinds])

    def mro(c):
        # Python asks for it while a class is made
        if mro_of(c) is not None:
            return ShadowMeta.seen(c)
        order = type.mro(c)
        quiet = space_of(c).get(QUIET)
        return order if quiet is None else [c, quiet, *order[1:]]

    __mro__ = property(lambda c: tuple(ShadowMeta.seen(c)))
    __base__ = property(lambda c: ShadowMeta.stands(c, (base_of(original(c)),))[0])
    __bases__ = property(
        lambda c: ShadowMeta.stands(c, bases_of(original(c))),
        lambda c, bases: type.__dict__["__bases__"].__set__(c, bases),
    )
    locals()["__dict__"] = property(
        lambda c: loaded(c)
    )  # (checkers of types take the name for one of theirs)


def put_member(c: type, name: str, value: Any) -> None:
    """Bind an attribute of a shadow class, or delete it (`EMPTY`), past a property of its metaclass."""
    meta = type(c)
    hidden = any([hasattr(type(space_of(m)[name]), "__set__") for m in mro_of(meta) if name in space_of(m)])
    if hidden:
        CLASS_OF.__set__(c, ShadowMeta)
    try:
        if value is EMPTY:
            type.__delattr__(c, name)
        else:
            type.__setattr__(c, name, value)
    finally:
        if hidden:
            CLASS_OF.__set__(c, meta)


init_abstract = operator.attrgetter("_abc_init")(abc)
CLASS_OF: Any = object.__dict__["__class__"]


THEMSELVES = frozenset((type(None), types.MemberDescriptorType, types.GetSetDescriptorType))


PROTOCOLS = frozenset(("__array_finalize__", "__array_ufunc__", "__array_function__"))


def protocol(method: Any) -> Any:
    """A method that NumPy calls. It gets an array, or a function, as code that is followed sees one."""

    def run(x: Any, f: Any, *args: Any, **params: Any) -> Any:
        f = variable(f) if type(f) is np.ndarray else stand_ins.function_stand_in(f) or f
        return method(x, f, *args, **params)

    run.method = method  # type: ignore[attr-defined]
    return run


class Deferred:
    """Stands for a member of a class, in the namespace of its shadow."""

    __slots__ = ("name", "source")

    def __init__(self, name: str, source: "MemberSource"):
        self.name, self.source = name, source

    def member(self) -> Any:
        """The shadow of the member, from now on in the place of this."""
        source, name = self.source, self.name
        value = space_of(source.real).get(name, EMPTY)
        if value is EMPTY:
            raise AttributeError(f"type object {source.real.__name__!r} has no attribute {name!r}")
        shadow = source.shadow
        if shadow is None or shadow.seen is None:  # the call has ended; the class leaked out of it
            return value
        new = shadow(value)
        if name in PROTOCOLS and value is not None:
            new = protocol(new)
        if source.before.get(name) is self:
            source.before[name] = new
            if space_of(source.new).get(name) is self:
                put_member(source.new, name, new)
        return new

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Python calls the `__get__` of a class unbound
        return self.member()(*args, **kwargs)


class DeferredMember(Deferred):
    """Stands for a member that is read through the class."""

    __slots__ = ()

    def __get__(self, x: Any, kind: Any = None) -> Any:
        value = self.member()
        get = getattr(type(value), "__get__", None)
        return value if get is None else get(value, x, kind)


class WrittenThroughMember:
    """The part of what stands for a descriptor that sets and deletes."""

    __slots__ = ()

    if TYPE_CHECKING:

        def member(self) -> Any: ...

    def __set__(self, x: Any, value: Any) -> None:
        member = self.member()
        type(member).__set__(member, x, value)

    def __delete__(self, x: Any) -> None:
        member = self.member()
        type(member).__delete__(member, x)


class DeferredSetter(WrittenThroughMember, Deferred):
    """Stands for a descriptor without `__get__`: what it sets is read from the attributes of the object."""

    __slots__ = ()


class DeferredData(DeferredMember, DeferredSetter):
    """Stands for a property, or another descriptor that is asked before the attributes of an object."""

    __slots__ = ()


class WatchedAttribute:
    """Stands for an attribute of the instances of a shadow class, behaves as that does, and notes whether it
    is first read or written (attribute_watch.py)."""

    __slots__ = ("name", "read", "rest", "written")

    def __init__(self, name: str, rest: Any):
        """`rest`: the member of the class of that name, or `EMPTY`."""
        self.name, self.rest = name, rest
        # ids of instances whose attribute was read first, and of those where it was written
        self.read: set = set()
        self.written: set = set()

    def __get__(self, x: Any, kind: Any = None) -> Any:
        if x is None:
            return self.of_class(kind)
        self.note_read(x)
        found = state_of(x).get(self.name, EMPTY)
        return self.of_class(type(x)) if found is EMPTY else found

    def __set__(self, x: Any, value: Any) -> None:
        if id(x) not in self.read:
            self.written.add(id(x))
        put_state(x, {self.name: value})

    def __delete__(self, x: Any) -> None:
        self.note_read(x)
        if self.name not in state_of(x):
            raise AttributeError(self.name)
        drop_state(x, self.name)

    def note_read(self, x: Any) -> None:
        if id(x) not in self.written:
            self.read.add(id(x))

    def member(self) -> Any:
        return self

    def of_class(self, kind: Any) -> Any:
        """The value that the classes have."""
        members = [self.rest, *[space_of(c).get(self.name, EMPTY) for c in mro_of(kind)]]
        for value in members:
            if value is not EMPTY and not is_place(value):
                return value.member() if type(value) in DEFERRED else value
        raise AttributeError(f"{kind.__name__!r} object has no attribute {self.name!r}")


def is_place(member: Any) -> bool:
    """Return whether a member of a class is only the place of an attribute."""
    return type(member) is WatchedAttribute or type(member) is types.MemberDescriptorType


DEFERRED = frozenset((DeferredMember, DeferredSetter, DeferredData, WatchedAttribute))


class MemberSource:
    """Where the members of a shadow class come from."""

    __slots__ = ("real", "new", "names", "types", "first", "kept", "before", "shadow", "rest")

    def __init__(self, real: type, new: type):
        """`first`: what stands in the shadow class at rest, by name."""
        self.real, self.new, self.shadow = real, new, None
        self.before: dict = {}
        type.__setattr__(new, SOURCE, self)
        space = space_of(real)
        self.names, self.types = list(space), [*map(type, space.values())]
        self.first = {name: self.place(name, v) for name, v in space.items() if name not in SPECIAL}
        self.kept = [(name, v) for name, v in self.first.items() if type(v) not in DEFERRED]
        for name, v in self.first.items():
            put_member(new, name, v)
        self.rest: list = []

    def place(self, name: str, value: Any) -> Any:
        """(C code reads names such as `__hash__` past descriptors.)"""
        kind: Any = type(value)
        if kind in THEMSELVES or (kind in IMMUTABLE and name.startswith("__")):
            return value
        if not (hasattr(kind, "__set__") or hasattr(kind, "__delete__")):
            return DeferredMember(name, self)
        return (DeferredData if hasattr(kind, "__get__") else DeferredSetter)(name, self)

    def holds(self) -> bool:
        """Has the class the same members as before, by name and type?"""
        space = space_of(self.real)
        return (
            list(space) == self.names
            and [*map(type, space.values())] == self.types
            and all([space[name] is v for name, v in self.kept])
        )

    def begin(self, shadow: Any) -> dict:
        """A call begins; gives what each member was made with, now and later."""
        self.before, self.shadow = dict(self.first), shadow
        self.rest = [*space_of(self.new).values()]
        return self.before

    def is_untouched(self) -> bool:
        """Was no member read, or bound?"""
        now, rest = space_of(self.new).values(), self.rest
        return len(now) == len(rest) and all(map(operator.is_, now, rest))

    def end(self) -> None:
        """The shadow class is as it was at first."""
        first = self.first
        if self.is_untouched():
            self.before, self.shadow, self.rest = {}, None, []
            return
        for name, v in [*space_of(self.new).items()]:
            if name not in SPECIAL and first.get(name, EMPTY) is not v:
                put_member(self.new, name, first.get(name, EMPTY))
        for name in first.keys() - space_of(self.new).keys():
            put_member(self.new, name, first[name])
        self.before, self.shadow, self.rest = {}, None, []


def loaded(c: type) -> Any:
    """The namespace of a class, with all its members."""
    space = space_of(c)
    for v in [*space.values()]:
        if type(v) in DEFERRED:
            v.member()
    return space


# --- instances ---


class Unread:
    """What the shadow of an instance holds until code touches it: the instance, the `Shadow` of the call, and
    the attributes that the shadow is made with, once they are known."""

    __slots__ = ("before", "real", "shadow")

    def __init__(self, real: Any, shadow: Any, before: dict):
        self.real, self.shadow, self.before = real, shadow, before


def put_unread(x: Any, unread: Unread) -> None:
    place = space_of(type(x))[RAW]
    if type(place) is types.MemberDescriptorType:
        place.__set__(x, unread)
    else:
        place.__get__(x)[UNREAD] = unread


def unread_of(x: Any) -> Any:
    """The `Unread` that x holds, if it does."""
    place = space_of(type(x))[RAW]
    if type(place) is not types.MemberDescriptorType:
        return place.__get__(x).get(UNREAD)
    try:
        found = place.__get__(x)
    except AttributeError:
        return None
    return found if type(found) is Unread else None


def is_unread(x: Any) -> bool:
    return READ in space_of(type(x))


def read(x: Any) -> Any:
    """x, which gets the class and the attributes that it stands for.  (Attributes first: another thread, or what
    they lead to, may ask for them meanwhile.)"""
    before = type(x)
    kind: Any = space_of(before).get(READ)
    if kind is None:
        return x
    unread = unread_of(x)
    if unread is not None:
        shadow, state = unread.shadow, state_of(unread.real, kind)
        if shadow.seen is None:  # the call has ended; this instance leaked out of it
            kind = type(unread.real)
        else:
            unread.before.update({name: shadow(v) for name, v in state.items()})
            state = unread.before
        if type(x) is before:
            fill_unread(x, state)
    if type(x) is before:
        CLASS_OF.__set__(x, kind)
    return x


def fill_unread(x: Any, state: dict) -> None:
    """The attributes of x, but those that it has already; it holds no `Unread` afterwards."""
    place, slots = space_of(type(x))[RAW], slots_of(type(x))
    last = place if type(place) is types.MemberDescriptorType else None
    for name, slot in slots.items():
        if slot is not last and name in state and not is_set(slot, x):
            slot.__set__(x, state[name])
    if last is None:
        space = place.__get__(x)
        space.update({name: v for name, v in state.items() if name not in slots and name not in space})
        space.pop(UNREAD, None)
    elif last.__name__ in state:
        last.__set__(x, state[last.__name__])
    elif is_set(last, x):
        last.__delete__(x)


def is_set(slot: Any, x: Any) -> bool:
    try:
        slot.__get__(x)
    except AttributeError:
        return False
    return True


METHODS: dict = {
    "__getattribute__": lambda x, name: getattr(read(x), name),
    "__setattr__": lambda x, name, value: setattr(read(x), name, value),
    "__delattr__": lambda x, name: delattr(read(x), name),
    "__dict__": property(lambda x: read(x).__dict__),
    "__slots__": (),
}


def unread_class(c: type) -> Any:
    """The class of instances of a shadow class that were not read yet: every way to an attribute reads them.  None:
    they are made at once."""
    found = space_of(c).get(UNREAD, EMPTY)
    if found is EMPTY:
        found = new_unread_class(c)
        type.__setattr__(c, UNREAD, found)
    return found


def new_unread_class(c: type) -> Any:
    spaces = [space_of(k) for k in mro_of(c)]
    first = next((slot for name, slot in slots_of(c).items() if slot.__name__ == name), None)
    raw = next((space["__dict__"] for space in spaces if "__dict__" in space), first)
    if (
        type(raw) not in THEMSELVES
        or raw is None
        or issubclass(c, enum.Enum)
        or any(["__del__" in space for space in spaces])
    ):
        return None
    space = {
        **METHODS,
        "__module__": c.__module__,
        "__qualname__": c.__qualname__,
        REAL: original(c),
        SLOTS: slots_of(c),
        READ: c,
        RAW: raw,
    }
    try:
        new = without_hooks(c, type(c), (c,), space)
        CLASS_OF.__set__(object.__new__(new), c)  # (a few layouts do not allow it)
    except TypeError:
        return None
    return new


def without_hooks(c: type, meta: type, bases: tuple, space: dict) -> type:
    """A new class derived from `bases`.  No `__init_subclass__` is called."""
    quiet: Any = None
    if any(["__init_subclass__" in space_of(b) for b in mro_of(c)[:-1]]):  # found first, and harmless
        quiet = type(
            "quiet", (), {"__slots__": (), QUIET: None, "__init_subclass__": lambda kind, **options: None}
        )
        space = {**space, QUIET: quiet}
    new: Any = type.__new__(meta, c.__name__, bases, space)
    if quiet is not None:
        del quiet.__init_subclass__
    if issubclass(meta, abc.ABCMeta):
        init_abstract(new)
    return new
