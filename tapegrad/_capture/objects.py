"""The kinds of Python objects that hold other objects, in one table.

A row of `KINDS` says how the parts of an object are listed, how it is filled, and how another one is made of
other parts.  Everybody who goes through objects reads the table: shadows (core.py, containers.py),
dependencies (dependencies.py), routes (routes.py), caches (cached.py), and `_transforms.side_effects`.
Functions, classes, modules and instances have code of their own.

No row is believed: `unlisted` asks Python's collector what else an object holds.

The state of generators of random numbers, which hold no objects, is here too."""

import array
import collections
import collections.abc
import functools
import gc
import itertools
import operator
import random
import types
import typing
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from .._core.arrays import IMMUTABLE, checksum, is_array, same_bits, without_class, xp_of
from .kinds import dict_of, mro_of


class Kind(NamedTuple):
    """A type whose objects hold others.

    `text` is an expression for the parts of an object {0}, and `parts` lists them.  `put` fills an object that
    may change.  `make` gives an object like x of other parts.  `settings` lists what else an object is made
    with, as arguments of its `__init__`."""

    kind: type
    text: str
    parts: Callable
    put: Callable | None = None
    make: Callable | None = None
    pairs: bool = False  # are the parts keys and values by turns?
    settings: Callable = lambda x: ()


# of texts
NAMES: dict = {
    "flat": itertools.chain.from_iterable,
    "referents": gc.get_referents,
    "EMPTY": types.CellType(),
}


def kind(c: Any, text: str, put: Callable | None = None, make: Callable | None = None, **more: Any) -> Kind:
    NAMES[c.__name__] = c
    return Kind(c, text, eval(f"lambda x: [*({text.format('x')})]", NAMES), put, make, **more)


def mapping(c: Any, **more: Any) -> Kind:
    def put(x: Any, flat: list) -> None:
        c.clear(x)
        for k, v in zip(flat[::2], flat[1::2], strict=True):
            c.__setitem__(x, k, v)

    return kind(c, f"flat({c.__name__}.items({{0}}))", put, pairs=True, **more)


def collection(c: Any, add: Callable, **more: Any) -> Kind:
    def put(x: Any, flat: list) -> None:
        c.clear(x)
        add(x, flat)

    return kind(c, f"{c.__name__}.__iter__({{0}})", put, **more)


def put_objects(x: Any, flat: list) -> None:
    x = x if x.ndim else x.reshape(1)
    for at, v in zip(np.ndindex(x.shape), flat, strict=True):
        x[at] = v


def fill(c: Any, parts: list) -> None:
    if parts:
        c.cell_contents = parts[0]
    else:
        del c.cell_contents


def partial_of(function: Any, args: tuple, keywords: dict) -> functools.partial:
    """A partial object that holds this very dict of keywords, which may be written later."""
    new = functools.partial(function)
    new.__setstate__((function, args, keywords, {}))  # type: ignore[attr-defined]
    return new


GENERIC_ALIAS: type = type(typing.List[int])  # noqa: UP006


def generic_alias(x: Any, parts: list) -> Any:
    """A generic class of `typing` with other parameters."""
    new = object.__new__(type(x))
    vars(new).update(vars(x), __origin__=parts[0], __args__=tuple(parts[1:]))
    return new


class Reference:
    """What answers like a weak reference.  (A function would be bound to an instance where it is an attribute
    of a class.)"""

    __slots__ = ("target", "__callback__")
    __class__: Any = property(lambda self: weakref.ref)

    def __init__(self, target: Any, callback: Any = None):
        self.target, self.__callback__ = target, callback

    def __call__(self):
        return self.target


VIEWS = {
    type(getattr(c(), name)()): name
    for c in (dict, collections.OrderedDict)
    for name in ("keys", "values", "items")
}
KINDS = (
    mapping(collections.OrderedDict),
    mapping(collections.defaultdict, settings=lambda x: (x.default_factory,)),
    mapping(dict),
    collection(list, list.extend),
    collection(collections.deque, collections.deque.extend, settings=lambda x: ("", x.maxlen)),
    collection(set, set.update),
    kind(np.ndarray, "{0}.ravel().tolist() if {0}.dtype.hasobject else ()", put_objects),
    mapping(weakref.WeakValueDictionary),
    mapping(weakref.WeakKeyDictionary),
    collection(weakref.WeakSet, weakref.WeakSet.update),
    kind(tuple, "tuple.__iter__({0})", make=lambda x, parts: tuple.__new__(type(x), parts)),
    kind(frozenset, "frozenset.__iter__({0})", make=lambda x, parts: frozenset.__new__(type(x), parts)),
    kind(slice, "{0}.start, {0}.stop, {0}.step", make=lambda x, parts: slice(*parts)),
    kind(
        functools.partial,
        "{0}.func, {0}.args, {0}.keywords",
        make=lambda x, parts: partial_of(*parts),
    ),
    kind(staticmethod, "{0}.__func__,", make=lambda x, parts: staticmethod(*parts)),
    kind(classmethod, "{0}.__func__,", make=lambda x, parts: classmethod(*parts)),
    kind(types.MappingProxyType, "referents({0})[:1]", make=lambda x, parts: types.MappingProxyType(*parts)),
    kind(weakref.ref, "{0}(), {0}.__callback__", make=lambda x, parts: Reference(*parts)),
    kind(
        types.GenericAlias,
        "{0}.__origin__, *{0}.__args__",
        make=lambda x, parts: types.GenericAlias(parts[0], tuple(parts[1:])),
    ),
    kind(GENERIC_ALIAS, "{0}.__origin__, *{0}.__args__", make=generic_alias),
    kind(
        type(typing.Annotated[int, 0]),
        "{0}.__origin__, *{0}.__metadata__",
        make=lambda x, parts: type(x)(parts[0], tuple(parts[1:])),
    ),
    kind(types.UnionType, "{0}.__args__", make=lambda x, parts: functools.reduce(operator.or_, parts)),
    kind(
        type(collections.abc.Callable[[int], int]),
        "{0}.__origin__, *{0}.__args__",
        make=lambda x, parts: type(x)(parts[0], (parts[1:-1], parts[-1])),
    ),
    kind(types.MethodType, "{0}.__func__, {0}.__self__", make=lambda x, parts: types.MethodType(*parts)),
    kind(property, "{0}.fget, {0}.fset, {0}.fdel, {0}.__doc__"),
    kind(types.CellType, "({0}.cell_contents,) if {0} != EMPTY else ()", fill),
    kind(ContextVar, "{0}.get(None), *referents({0})", lambda x, parts: x.set(parts[0])),
    kind(map, "{0}.__reduce__()[1]", make=lambda x, parts: map(*parts)),
    kind(filter, "{0}.__reduce__()[1]", make=lambda x, parts: filter(*parts)),
    kind(type(iter(int, 1)), "{0}.__reduce__()[1]", make=lambda x, parts: iter(*parts)),
    *[
        kind(view, "referents({0})", make=lambda x, parts: getattr(parts[0], VIEWS[type(x)])())
        for view in VIEWS
    ],
)
BY_TYPE = {k.kind: k for k in KINDS}
FILLED = frozenset((collections.OrderedDict, collections.defaultdict, collections.deque, dict, list, set))
FIXED = frozenset(
    [k.kind for k in KINDS if k.make and k.kind is not weakref.ref]
)  # whose objects never change


def kind_of(x: Any) -> Any:
    """The kind of x, None if it is of none."""
    kind = BY_TYPE.get(type(x))
    return next((BY_TYPE[c] for c in mro_of(type(x)) if c in BY_TYPE), None) if kind is None else kind


def parts_of(x: Any) -> list:
    """What x holds, if it is of one of the kinds."""
    kind = kind_of(x)
    return [] if kind is None else kind.parts(x)


# containers that Python code made: the attributes by which they hold their parts
WEAK = weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet
INNER: dict = {c: frozenset(vars(c())) for c in WEAK}
WRAPPED = frozenset(
    functools.WRAPPER_ASSIGNMENTS
)  # what a static or class method takes over from its function


def unlisted(x: Any, kind: Kind) -> list:
    """What x holds besides what its kind lists: attributes, for one.  The answer is that of Python's
    collector, so it holds for rows that are not complete."""
    space = dict_of(x)
    names = space.keys() - INNER.get(kind.kind, WRAPPED if kind.kind in (staticmethod, classmethod) else ())
    held = [r for r in gc.get_referents(x) if r is not space] if kind.kind not in INNER else []
    known = {*map(id, kind.parts(x)), *map(id, kind.settings(x)), id(type(x))}
    found = [
        v
        for v in (*held, *[space[name] for name in names])
        if type(v) not in IMMUTABLE and id(v) not in known
    ]
    return [v for v in found if type(v) is not tuple or not known.issuperset(map(id, v))]


# --- what an object holds, to be compared and put back ---

BYTES = (bytearray, array.array)


def is_numeric(x: Any) -> bool:
    return is_array(x) and not getattr(x.dtype, "hasobject", False)


def content_of(x: Any, most: float = 4096) -> Any:
    """What an array, bytes or a container holds: of an array of more than `most` bytes a checksum, of one on
    a device None."""
    if is_numeric(x):
        x = without_class(x)
        return checksum(x) if x.nbytes > most or xp_of(x) is not np else x.copy()
    return x[:] if isinstance(x, BYTES) else parts_of(x)


def is_same(x: Any, content: Any) -> bool:
    """Does x hold this still?  (Not asked of a device, where it would wait.)"""
    if is_numeric(x):
        x = without_class(x)
        if type(content) is not np.ndarray:
            return content is None or checksum(x) == content
        return x.shape == content.shape and same_bits(x, content)
    if isinstance(x, BYTES):
        return x == content
    now = parts_of(x)
    return len(now) == len(content) and all(
        [
            a is b or (type(a) in IMMUTABLE and type(a) is type(b) and a == b)
            for a, b in zip(now, content, strict=True)
        ]
    )


def put_back(x: Any, content: Any) -> None:
    """x holds this again, if it does not.  (Of what was summed up only, nothing is known.)"""
    if is_same(x, content):
        return
    if not is_numeric(x):
        kind = kind_of(x)
        if kind is None:
            x[:] = content
        else:
            kind.put(x, content)
    elif isinstance(content, np.ndarray):
        without_class(x)[...] = content


# --- generators of random numbers ---

GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)


def snapshot(x: Any) -> Any:
    """The state of a generator, or of what stands for one, for `restore`."""
    x = getattr(x, "real", x)
    if isinstance(x, np.random.Generator):
        return x.bit_generator.state
    if isinstance(x, np.random.RandomState):
        return x.get_state(legacy=False)
    return x.getstate() if isinstance(x, random.Random) else x.state


def restore(x: Any, before: Any) -> None:
    x = getattr(x, "real", x)
    if isinstance(x, np.random.Generator):
        x.bit_generator.state = before
    elif isinstance(x, np.random.RandomState):
        x.set_state(before)
    elif isinstance(x, random.Random):
        x.setstate(before)
    else:
        x.state = before
