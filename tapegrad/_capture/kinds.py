"""Which kinds of objects a shadow never enters, and whose code it leaves alone."""

import argparse
import collections
import contextlib
import functools
import inspect
import itertools
import operator
import sys
import threading
import types
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from .._core.arrays import IMMUTABLE, is_array
from .._core.trees import REAL as REAL
from .._core.variable import Variable
from .._dispatch.stand_ins import HEAP, OF_SUBCLASSES
from .._dispatch.stand_ins import module_of as module_of

NUMERIC = frozenset(("numpy", "scipy", "cupy", "cupyx", "cupy_backends", "numba", "llvmlite", "tapegrad"))
FOREIGN = NUMERIC | sys.stdlib_module_names | {
    "torch", "jax", "jaxlib", "tensorflow", "pandas", "matplotlib", "pytest", "_pytest", "hypothesis", "tqdm",
    "h5py", "numexpr",
}  # fmt: skip
# Classes of the standard library that hold the user's objects as attributes, and nothing else that matters.
HELD = frozenset((
    types.SimpleNamespace, threading.local, argparse.Namespace, collections.ChainMap, collections.UserDict,
    collections.UserList,
    inspect.Signature, inspect.Parameter, functools.partialmethod,
    functools.cached_property, functools.singledispatchmethod, contextlib.nullcontext,
))  # fmt: skip
OWN = frozenset(("__main__", "__mp_main__", "tapegrad._transforms.wrapped", "tapegrad.interop.derived"))
EMPTY = object()  # what an empty cell holds
BASE = 1 << 10  # Py_TPFLAGS_BASETYPE, which all classes have that Python code made
READ = (
    "_abc_tapegrad_read"  # in the class of instances that were not read yet: their shadow class (deferred.py)
)
SLOTS = "_abc_tapegrad_slots"  # in a shadow class: `slots_of` it
NOTHING: Any = MappingProxyType({})


def is_foreign(module: Any) -> bool:
    """Is the code of this module left alone?  (`__main__` and unnamed modules are the user's.)"""
    return isinstance(module, str) and foreign_name(module)


@functools.lru_cache(4096)
def foreign_name(module: str) -> bool:
    return module not in OWN and module.partition(".")[0] in FOREIGN and not module.startswith(OF_SUBCLASSES)


def is_user_class(c: Any) -> bool:
    """(A class that compiled code made has a built-in `__new__` of its own.)"""
    return (
        bool(c.__flags__ & HEAP and c.__flags__ & type(c).__flags__ & BASE)
        and not is_foreign(module_of(c))
        and getattr(space_of(c).get("__new__"), "__self__", None) is not c
    )


def is_compiled_by_numba(x: Any) -> bool:
    """(An attribute of another object is not asked for: that could run its `__getattr__`.)"""
    kind = type(x)
    return hasattr(kind, "py_func") or ((module_of(kind) or "").startswith("numba") and hasattr(x, "py_func"))


def is_universal(kind: type) -> bool:
    """Of what `numba.vectorize` and `numba.guvectorize` make."""
    return kind.__name__ in ("DUFunc", "GUFunc") and (module_of(kind) or "").startswith("numba.np.ufunc")


# Of a class, past what its metaclass says (`Seen` in classes.py).
mro_of = type.__dict__["__mro__"].__get__
bases_of = type.__dict__["__bases__"].__get__
base_of = type.__dict__["__base__"].__get__
space_of = type.__dict__["__dict__"].__get__


def original(c: type) -> type:
    """The class that the user wrote, under all shadows."""
    while (real := space_of(c).get(REAL)) is not None:
        c = real
    return c


class Capture:
    """What each part of a `Shadow` (core.py) reads of the whole."""

    seen: dict[int, Any]  # id of what was replaced -> what it became
    hold: list  # keeps those objects alive, so that no id is given twice
    arrays: list  # (array, Variable)
    changes: list  # what holds objects and was replaced: `Holder`
    memories: dict  # (id of an owner of memory, dtype, offset) -> Variable
    strangers: list  # (array, Variable) of which nobody knows the owner
    walked: list  # (container, iterator that walks along it)
    given: list  # (array, Variable) of the arguments
    outer: Any = frozenset()  # ids of what outer transforms made
    vacant: frozenset = frozenset()  # ids of the cells that were empty when they were met
    reached: tuple = ()  # routes.py
    wrote: tuple = ()
    borrowed = False  # are these the arguments?
    once: bool
    reads_all = False  # are attributes of instances made at once? (deferred.py)
    read_all: Any
    on: bool
    watch: Any  # the attributes that are watched
    within_hiding: int  # how many traces that hide values are around it
    __call__: Any  # what becomes of an object
    each: Any
    leave: Any
    instance: Any
    attributes_of: Any
    objects_of: Any
    noted: Any

    def remember(self, x: Any, new: Any) -> None:
        """x became `new`."""
        self.seen[id(x)] = new
        self.hold.append(x)


class Holder:
    """A kind of what holds objects and is replaced for a call.  What was replaced is a change, a tuple (kind,
    holder, its shadow, and what else the kind needs to know what f has put there), in `Shadow.changes`; each
    kind stands beside what makes it."""

    words = "an object"  # for messages, of the holder

    @staticmethod
    def named(change: tuple) -> Iterable:
        """(name, value) of what f has bound in the shadow; `EMPTY` for what it has deleted."""
        return ()

    @classmethod
    def put(cls, change: tuple) -> Iterable:
        """The values that f has put into the shadow."""
        return [v for _, v in cls.named(change) if v is not EMPTY]

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        """Has f put other things into the shadow, or something else into the holder itself?  (Other threads
        may do that too.)"""
        raise NotImplementedError

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        """Hand back what f has put there (`restore.Back`); a shadow that leaked holds afterwards what the
        holder holds."""
        raise NotImplementedError

    # for a shadow that waits for the next call (remembered.py)

    @staticmethod
    def with_number(change: tuple, name: str, number: Any) -> tuple:
        """The change after a number that f has bound is handed back: a counter."""
        return change

    @staticmethod
    def places(change: tuple, side: int) -> list:
        """(field of `remembered.Places`, place) for all places where the holder (side 1), or its shadow
        (side 2), holds something."""
        return []

    @staticmethod
    def is_unmodified(shadow: Any, change: tuple) -> bool:
        """Does the shadow hold what it was made with, and is this what the holder stands for now?"""
        return False


def holders(shadow: Any) -> list:
    """The changes but those of functions without attributes, which are most."""
    return [
        c
        for c in shadow.changes
        if type(c[2]) is not types.FunctionType or c[1].__dict__ or c[2].__dict__ or c[3]
    ]


def is_unchanged(shadow: Any, values: Iterable, first: Iterable) -> bool:
    """Does a holder hold still what its shadow was made with?  (Of other objects than data, what they hold is
    looked at by itself.)"""
    stands = lambda v: shadow.seen.get(id(v), shadow)  # (`first` may hold None)
    pairs = itertools.zip_longest(values, first, fillvalue=EMPTY)
    return all([v is w or stands(v) is w or not is_data(v) for v, w in pairs])


def same(a: Any, b: Any) -> bool:
    """Are these two collections of the same objects?"""
    return len(a) == len(b) and all(map(operator.is_, a, b))


def stands_for(shadow: Any, held: Any, made: Any) -> bool:
    """Are the objects `made` the shadows of those held?"""
    seen = shadow.seen
    return len(held) == len(made) and all([seen.get(id(v), v) is w for v, w in zip(held, made, strict=True)])


def is_data(v: Any) -> bool:
    return type(v) in IMMUTABLE or isinstance(v, Variable) or is_array(v)


# --- the attributes of an object, past properties and `__getattr__` ---


def slots_of(kind: type) -> Any:
    """Name -> descriptor of a class's slots, those included that an attribute of the class hides."""
    known = space_of(kind).get(SLOTS)
    if known is not None or not kind.__flags__ & HEAP:
        return known or NOTHING
    found: dict = {}
    for c in mro_of(kind):
        slots = space_of(c).get("__slots__", ())
        for s in (slots,) if isinstance(slots, str) else slots:
            if s.startswith("__") and not s.endswith("__"):
                s = f"_{c.__name__.lstrip('_')}{s}"
            descriptor = space_of(c).get(s)
            if type(descriptor) is types.MemberDescriptorType:
                found.setdefault(s, descriptor)
    return found


def dict_of(x: Any) -> Any:
    """The namespace of an object; an empty mapping if it has none."""
    if isinstance(x, threading.local):  # this thread's
        return x.__dict__
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return NOTHING


def state_of(x: Any, kind: Any = None) -> dict:
    """Name -> value of all attributes that x itself holds.  `kind`: a class with the same slots, whose names
    are known."""
    state = dict(dict_of(x))
    for name, slot in slots_of(kind or type(x)).items():
        try:
            state[name] = slot.__get__(x)
        except AttributeError:
            pass
    return state


def put_state(x: Any, changes: dict, kind: Any = None) -> None:
    slots = slots_of(kind or type(x))
    if slots:
        for name in slots.keys() & changes.keys():
            slots[name].__set__(x, changes[name])
        changes = {k: v for k, v in changes.items() if k not in slots}
    if changes:
        dict_of(x).update(changes)


def clear_attributes(x: Any) -> None:
    """Forget the attributes in the namespace of an object."""
    space = dict_of(x)
    if space:
        space.clear()


def drop_state(x: Any, name: str) -> None:
    slot = slots_of(type(x)).get(name)
    if slot is not None:
        if name in state_of(x):
            slot.__delete__(x)
    else:
        dict_of(x).pop(name, None)
