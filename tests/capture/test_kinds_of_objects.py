"""The table of kinds of objects is complete: what it does not list of an object, Python's collector shows.

Random objects of every kind hold marks in each place: as parts, settings, attributes and callbacks.  A mark
that can be reached through an object must be listed by the row, or by `unlisted`."""

import collections
import collections.abc
import contextlib
import functools
import gc
import types
import typing
import weakref
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._capture import objects
from tapegrad._capture.dependencies import Environment, Status
from tapegrad.errors import RouteError

CALLABLE: typing.Any = type(collections.abc.Callable[[int], int])
ANNOTATED: typing.Any = type(typing.Annotated[int, 0])
ALIASES = types.GenericAlias, type(typing.List[int]), ANNOTATED, CALLABLE  # noqa: UP006


class Mark:
    """Something that a part of an object may be; it can be hashed and referred to weakly."""


class Owner:
    """Has a method, and places for attributes."""

    def method(self):
        return self


class Marks:
    """Gives marks, and knows which it gave."""

    def __init__(self, seed):
        self.rng, self.given = np.random.default_rng(seed), []

    def __call__(self):
        self.given.append(Mark())
        return self.given[-1]

    def several(self):
        return [self() for _ in range(self.rng.integers(0, 5))]

    def pairs(self):
        return [(self(), self()) for _ in range(self.rng.integers(0, 5))]

    def function(self):
        f = lambda *args: args
        f.mark = self()
        self.given[-1] = f
        return f


def objects_of(m):
    records = np.zeros(2, [("a", object), ("b", float)])
    records["a"] = [m(), m()]
    array = np.empty(3, object)
    array[:] = [m() for _ in range(3)]
    return {
        collections.OrderedDict: collections.OrderedDict(m.pairs()),
        collections.defaultdict: collections.defaultdict(m.function(), m.pairs()),
        dict: dict(m.pairs()),
        list: m.several(),
        collections.deque: collections.deque(m.several(), 7),
        set: set(m.several()),
        np.ndarray: (array, records),
        weakref.WeakValueDictionary: weakref.WeakValueDictionary(m.pairs()),
        weakref.WeakKeyDictionary: weakref.WeakKeyDictionary(m.pairs()),
        weakref.WeakSet: weakref.WeakSet(m.several()),
        tuple: tuple(m.several()),
        frozenset: frozenset(m.several()),
        slice: slice(m(), m(), m()),
        functools.partial: functools.partial(m.function(), *m.several(), a=m()),
        staticmethod: staticmethod(m.function()),
        classmethod: classmethod(m.function()),
        types.MappingProxyType: types.MappingProxyType(dict(m.pairs())),
        weakref.ref: weakref.ref(m(), m.function()),
        types.GenericAlias: types.GenericAlias(list, (m(), m())),
        type(typing.List[int]): typing.List[m.function()],  # noqa: UP006
        ANNOTATED: typing.Annotated[m.function(), m(), m()],
        types.UnionType: int | types.GenericAlias(list, (m(),)),
        CALLABLE: collections.abc.Callable[[m(), m()], m()],
        types.MethodType: types.MethodType(m.function(), m()),
        property: property(m.function(), m.function(), None, m()),
        types.CellType: types.CellType(m()),
        ContextVar: ContextVar("of_a_test", default=m()),  # noqa: B039
        map: map(m.function(), m.several(), [m()]),
        filter: filter(m.function(), m.several()),
        type(iter(int, 1)): iter(m.function(), m()),
        **{type(view): view for c in (dict, collections.OrderedDict) for view in views(c(m.pairs()))},
    }


def views(x):
    return x.keys(), x.values(), x.items()


def missing(x, marks):
    """The marks to which the collector finds a way from x that passes through nothing that is listed."""
    kind = objects.kind_of(x)
    listed = [*kind.parts(x), *kind.settings(x), *objects.unlisted(x, kind)]
    listed += [v for record in listed if type(record) is tuple for v in record]
    stops, known = {id(v) for v in listed}, {id(v) for v in marks}
    todo, met, found = [x], set(), []
    while todo:
        v = todo.pop()
        if id(v) in met or id(v) in stops or isinstance(v, (type, types.ModuleType)):
            continue
        met.add(id(v))
        if id(v) in known:
            found.append(v)
        elif isinstance(v, weakref.ref):
            todo.append(v())
        todo += v.ravel().tolist() if isinstance(v, np.ndarray) else gc.get_referents(v)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_every_kind_lists_all(seed):
    m = Marks(seed)
    made = objects_of(m)
    assert made.keys() == {k.kind for k in objects.KINDS}, "a new row of the table needs an object here"
    for kind, of_kind in made.items():
        for x in of_kind if type(of_kind) is tuple and kind is not tuple else [of_kind]:
            row = objects.kind_of(x)
            assert row.kind is kind
            assert not objects.unlisted(x, row), f"the row of {kind.__name__} is not complete"
            if kind in ALIASES:
                continue  # an attribute of theirs is one of the class
            if hasattr(x, "__dict__") and kind is not types.MethodType:
                x.of_a_test = m()
            elif kind is not types.MethodType:
                of_user = subclassed(x, kind)
                if of_user is not None:
                    of_user.of_a_test = m()
                    assert m.given[-1] in objects.unlisted(of_user, row)
            assert not missing(x, m.given), kind.__name__


def subclassed(x, kind):
    try:
        return type("OfUser", (kind,), {})(x)
    except TypeError:
        return None


def test_an_incomplete_row_is_seen():
    part = Mark()
    row = objects.kind(functools.partial, "{0}.func,")
    assert [v for v in objects.unlisted(functools.partial(len, part), row) if type(v) is tuple] == [(part,)]


def test_an_incomplete_row_is_no_wrong_number(monkeypatch):
    without = objects.kind(
        functools.partial, "{0}.func, {0}.args", make=lambda x, parts: functools.partial(parts[0], *parts[1])
    )
    monkeypatch.setitem(objects.BY_TYPE, functools.partial, without)
    buffer, new = np.zeros(3), np.zeros(3)
    p = functools.partial(lambda b=new: b[1], b=buffer)

    def f(x):
        buffer[1] = x[0] ** 2
        return p() * x[1]

    with pytest.raises(RouteError):
        tg.grad(f)(np.array([3.0, 5.0]))
    assert not buffer.any()


# --- what is not listed is not silent ---


def partial_with(buffer):
    p = functools.partial(lambda x: x)
    p.buffer = buffer
    return p


def static_with(buffer):
    s = staticmethod(lambda x: x)
    s.buffer = buffer
    return s


def builtin_with(buffer):
    p = functools.partial(len)
    p.buffer = buffer
    return p


def ordered_with(buffer):
    d = collections.OrderedDict(a=1.0)
    d.buffer = buffer
    return d


def weak_with(buffer):
    w = weakref.WeakSet()
    w.buffer = buffer
    return w


HOLDERS = [partial_with, static_with, builtin_with, ordered_with, weak_with]


@pytest.mark.parametrize("make", HOLDERS)
def test_attributes_of_objects_of_the_standard_library_are_followed_or_refused(make):
    buffer = np.zeros(3)
    holder = make(buffer)

    def f(x):
        buffer[1] = x[0] ** 2
        return getattr(holder, "buffer", np.zeros(3))[1] * x[1]

    x = np.array([3.0, 5.0])
    try:
        gradient = tg.grad(f)(x)
    except RouteError:
        assert not buffer.any()
    else:
        np.testing.assert_array_equal(gradient, [2 * 3.0 * 5.0, 9.0])
        assert buffer[1] == 9.0


@pytest.mark.parametrize("make", HOLDERS)
def test_attributes_that_are_written(make):
    holder = make(np.zeros(3))

    def f(x):
        holder.buffer[1] = x[0] ** 2
        return holder.buffer[1] * x[1]

    x = np.array([3.0, 5.0])
    try:
        gradient = tg.grad(f)(x)
    except tg.errors.TapegradError:
        assert not holder.buffer.any()
    else:
        np.testing.assert_array_equal(gradient, [2 * 3.0 * 5.0, 9.0])
        assert holder.buffer[1] == 9.0


@pytest.mark.parametrize("make", HOLDERS)
def test_dependencies_see_attributes(make):
    box = [1.5]
    holder = make(box)
    f = lambda x: x * holder.buffer[0]
    environment = Environment([f])
    assert environment.status() is not Status.CHANGED
    box[0] = 2.5
    assert environment.status() is not Status.UNCHANGED


def test_dependencies_see_objects_in_records():
    records, box = np.zeros(1, [("a", object)]), [1.5]
    records["a"][0] = box
    environment = Environment([lambda x: x * records["a"][0][0]])
    assert environment.status() is not Status.CHANGED
    box[0] = 2.5
    assert environment.status() is not Status.UNCHANGED


# --- what a function keeps is plain afterwards, in whatever it lies ---


class Pair(NamedTuple):
    a: object
    b: object


class OwnTuple(tuple):
    pass


def tagged(y):
    p = functools.partial(max, y)
    p.tag = y
    return p


def attributed(y):
    x = OwnTuple((1, y))
    x.more = y
    return x


KEPT = {
    "tuple": lambda y: (y, 1),
    "named tuple": lambda y: Pair(y, 1),
    "tuple of a class with attributes": attributed,
    "nested": lambda y: [{"a": (Pair(y, [y]),)}],
    "slice": lambda y: slice(y, 1),
    "partial": lambda y: functools.partial(max, y, key=[y]),
    "partial with attributes": tagged,
    "proxy of a dict": lambda y: types.MappingProxyType({"a": y}),
    "view of a dict": lambda y: {"a": y}.values(),
    "method": lambda y: types.MethodType(lambda s: s, [y]),
    "static method": lambda y: staticmethod(lambda: y),
    "cell": lambda y: types.CellType(y),
    "closure": lambda y: lambda: y,
    "cycle": lambda y: cyclic(y),
}


def cyclic(y):
    inner = [y]
    inner.append((inner, y))
    return Pair(inner, y)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_plain(name):
    kept, x = [], np.array([3.0, 5.0])

    def f(x):
        y = x[0] * 2.0
        kept.append(KEPT[name](y))
        return y * x[1]

    np.testing.assert_array_equal(tg.grad(f)(x), [10.0, 6.0])
    found, todo = set(), [kept]
    for v in todo:
        is_namespace = type(v) is dict and "__name__" in v  # of a module
        if id(v) not in found and not isinstance(v, (type, types.ModuleType)) and not is_namespace:
            found.add(id(v))
            assert not isinstance(v, tg.Variable), name
            todo += gc.get_referents(v)
    assert type(kept[0]) is type(KEPT[name](1.0))


def test_methods_made_with_decorators_are_followed():
    """A class method takes over the names and annotations of its function: they are no parts of its own."""

    class Queue:
        open: list = []

        @classmethod
        @contextlib.contextmanager
        def stopped(cls) -> "list[int]":
            before, cls.open = cls.open, []
            yield 2.0
            cls.open = before

        @staticmethod
        @contextlib.contextmanager
        def scaled(k: float) -> "list[int]":
            yield k

    def f(x):
        with Queue.stopped() as a, Queue.scaled(3.0) as b:
            Queue.open.append(x)
            return a * b * (x * Queue.open[0]).sum()

    np.testing.assert_allclose(tg.grad(f)(np.ones(2)), [12.0, 12.0])
    assert Queue.open == []


class Held:
    value = np.zeros(2)


@pytest.mark.parametrize(
    "kind", [Held | None, collections.abc.Callable[[int], Held], collections.abc.Callable[..., Held]]
)
def test_an_array_written_behind_an_annotation(kind):
    def f(x):
        Held.value[:] = x**2
        return np.sum([c for c in kind.__args__ if c is Held][0].value * x)

    x = np.array([2.0, 3.0])
    np.testing.assert_allclose(tg.grad(f)(x), 3 * x**2)
    np.testing.assert_array_equal(Held.value, x**2)
