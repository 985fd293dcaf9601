"""A kernel is traced anew when anything that its function reads has changed, by whatever route: programs made
at random, each judged by a plain Python loop over data and samples; routes one by one; and what must not lead
to a new trace."""

import abc
import collections
import contextvars
import copy
import dataclasses
import enum
import fractions
import functools
import gc
import itertools
import logging
import operator
import os
import random
import sys
import threading
import types
import weakref
from array import array

import numpy as np
import pytest
from frames import frames_of
from scipy.interpolate import CubicSpline

import tapegrad as tg
from tapegrad.errors import KernelError
from tapegrad.kernels.trace import tracing

kernels = tg.kernels
THETA = np.array([[0.2, -0.1], [0.3, 0.5]])
DATA = np.array([0.4, 1.1, -0.3])


def plain(f):
    return np.array([sum(float(f(THETA[:, b], u)) for u in DATA) for b in range(THETA.shape[1])])


def agree(k, f):
    np.testing.assert_allclose(k(THETA, DATA), plain(f), rtol=1e-12)
    np.testing.assert_allclose(k.value_and_grad(THETA, DATA)[0], plain(f), rtol=1e-12)


def module(**content):
    m = types.ModuleType("settings_of_a_test")
    vars(m).update(content)
    return m


class Box:
    def __init__(self, x):
        self.x = x


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


@dataclasses.dataclass
class Record:
    x: object
    other: object = None


class Shown(Box):
    @property
    def shown(self):
        return self.x

    def get(self):
        return self.shown

    def __getitem__(self, n):
        return self.x

    def __call__(self):
        return self.x


class Delegating:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


class Meta(type):
    def get(cls):
        return cls.x


# --- programs at random ---


def of_list(v):
    x = [1.0, v]
    return x, lambda h: h[1], lambda h, w: h.__setitem__(1, w)


def of_dict(v):
    return {"a": v, 3: 2.0}, lambda h: h["a"], lambda h, w: h.__setitem__("a", w)


def of_deque(v):
    return collections.deque([v, 1.0]), lambda h: h[0], lambda h, w: h.__setitem__(0, w)


def of_default(v):
    d = collections.defaultdict(float, a=v)
    return d, lambda h: h["a"], lambda h, w: h.update(a=w)


def of_object(v):
    return Box(v), lambda h: h.x, lambda h, w: setattr(h, "x", w)


def of_slots(v):
    return Slotted(v), lambda h: h.x, lambda h, w: setattr(h, "x", w)


def of_record(v):
    return Record(v), lambda h: h.x, lambda h, w: setattr(h, "x", w)


def of_property(v):
    return Shown(v), lambda h: h.shown, lambda h, w: setattr(h, "x", w)


def of_method(v):
    return Shown(v), lambda h: h.get(), lambda h, w: setattr(h, "x", w)


def of_item(v):
    return Shown(v), lambda h: h["any"], lambda h, w: setattr(h, "x", w)


def of_call(v):
    return Shown(v), lambda h: h(), lambda h, w: setattr(h, "x", w)


def of_bound(v):
    s = Shown(v)
    return s.get, lambda h: h(), lambda h, w: setattr(h.__self__, "x", w)


def of_class(v):
    return type("Settings", (), {"x": v}), lambda h: h.x, lambda h, w: setattr(h, "x", w)


def of_base(v):
    return (
        type("Derived", (type("Base", (), {"x": v}),), {}),
        lambda h: h.x,
        lambda h, w: setattr(h.__mro__[1], "x", w),
    )


def of_shadowed(v):
    c = type("Hidden", (), {"x": v})()
    return c, lambda h: h.x, lambda h, w: setattr(h, "x", w)  # of the object, in front of that of the class


def of_between(v):
    a = type("A", (), {"x": v})
    b = type("B", (a,), {})
    return type("C", (b,), {})(), lambda h: h.x, lambda h, w: setattr(type(h).__mro__[1], "x", w)


def of_meta(v):
    return Meta("Made", (), {"x": v}), lambda h: h.get(), lambda h, w: setattr(h, "x", w)


def of_module(v):
    return module(x=v), lambda h: h.x, lambda h, w: setattr(h, "x", w)


def of_module_function(v):
    m = module(x=v)
    exec("def get(): return x", vars(m))
    return m, lambda h: h.get(), lambda h, w: setattr(h, "x", w)


def of_imported_function(v):
    m = module(x=v)
    exec("def get(): return x", vars(m))
    return m.get, lambda h: h(), lambda h, w: h.__globals__.__setitem__("x", w)


def of_default_argument(v):
    def get(x=v):
        return x

    return get, lambda h: h(), lambda h, w: setattr(h, "__defaults__", (w,))


def of_keyword_default(v):
    def get(*, x=v):
        return x

    return get, lambda h: h(), lambda h, w: h.__kwdefaults__.update(x=w)


def of_closure(v):
    def get():
        return v

    return get, lambda h: h(), lambda h, w: setattr(h.__closure__[0], "cell_contents", w)


def of_nested_closure(v):
    def get():
        def inner():
            return v

        return inner()

    return get, lambda h: h(), lambda h, w: setattr(h.__closure__[0], "cell_contents", w)


def of_code(v):
    def get():
        return v

    def other():
        again = v
        return again

    return (
        get,
        lambda h: h(),
        lambda h, w: (setattr(h, "__code__", other.__code__), setattr(h.__closure__[0], "cell_contents", w)),
    )


def of_function_attribute(v):
    def get():
        return None

    get.x = v
    return get, lambda h: h.x, lambda h, w: setattr(h, "x", w)


def of_partial(v):
    p = functools.partial(lambda box, n: box.x, Box(v))
    return p, lambda h: h(1), lambda h, w: setattr(h.args[0], "x", w)


def of_namespace(v):
    return types.SimpleNamespace(x=v), lambda h: h.x, lambda h, w: setattr(h, "x", w)


def of_proxy(v):
    d = {"x": v}
    return (types.MappingProxyType(d), d), lambda h: h[0]["x"], lambda h, w: h[1].update(x=w)


def of_weak(v):
    b = Box(v)
    return (weakref.ref(b), b), lambda h: h[0]().x, lambda h, w: setattr(h[1], "x", w)


def of_context(v):
    c = contextvars.ContextVar("c")
    c.set(v)
    return c, lambda h: h.get(), lambda h, w: h.set(w)


def of_local(v):
    t = threading.local()
    t.x = v
    return t, lambda h: h.x, lambda h, w: setattr(h, "x", w)


def of_getattr(v):
    return Box(v), lambda h: getattr(h, "".join(["x"])), lambda h, w: setattr(h, "x", w)


def of_getter(v):
    return (operator.attrgetter("x"), Box(v)), lambda h: h[0](h[1]), lambda h, w: setattr(h[1], "x", w)


def of_vars(v):
    return Box(v), lambda h: vars(h)["x"], lambda h, w: setattr(h, "x", w)


def of_delegation(v):
    return Delegating(Box(v)), lambda h: h.x, lambda h, w: setattr(h._inner, "x", w)


def of_attribute_by_default(v):
    return Box(v), lambda h: getattr(h, "later", h.x), lambda h, w: setattr(h, "later", w)


def of_missing_attribute(v):
    def read(h):
        try:
            return h.later
        except AttributeError:
            return h.x

    return Box(v), read, lambda h, w: setattr(h, "later", w)


def of_cache(v):
    @functools.lru_cache
    def get():
        return Box(v)

    get()
    return get, lambda h: h().x, lambda h, w: setattr(h(), "x", w)


def of_wrapped(v):
    def inner():
        return v

    @functools.wraps(np.sum)
    def outer():
        return inner()

    return outer, lambda h: h(), lambda h, w: setattr(inner.__closure__[0], "cell_contents", w)


def of_object_array(v):
    a = np.empty(2, object)
    a[1] = v
    return a, lambda h: h[1], lambda h, w: h.__setitem__(1, w)


def of_chain(v):
    return collections.ChainMap({"y": 1.0}, {"x": v}), lambda h: h["x"], lambda h, w: h.maps[1].update(x=w)


def of_const(v):
    b = Box(v)
    return (tg.Const(b), b), lambda h: h[0].value.x, lambda h, w: setattr(h[1], "x", w)


LAYERS = [f for name, f in sorted(globals().items()) if name.startswith("of_")]
LEAVES = ("number", "array", "bytes", "object array")


def leaf(kind):
    if kind == "number":
        return 2.0, lambda v: v, None
    if kind == "array":
        return np.array([2.0, 1.0]), lambda v: v[0], lambda v, w: v.__setitem__(0, w)
    if kind == "bytes":
        return array("d", [2.0]), lambda v: v[0], lambda v, w: v.__setitem__(0, w)
    a = np.empty(1, object)
    a[0] = 2.0
    return a, lambda v: v[0], lambda v, w: v.__setitem__(0, w)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("of", LAYERS, ids=lambda of: of.__name__)
@pytest.mark.parametrize("kind", LEAVES)
def test_each_layer(of, kind):
    value, final, poke = leaf(kind)
    holder, read, write = of(value)
    f = lambda t, u: final(read(holder)) * u * t[0] + t[1]
    k = kernels.likelihood(f)
    agree(k, f)
    if poke is not None:
        poke(value, 5.0)
        agree(k, f)
    new, _, put = leaf(kind)
    if put is None:
        new = 11.0
    else:
        put(new, 11.0)
    before = plain(f)
    write(holder, new)
    agree(k, f)
    assert not np.allclose(before, plain(f))


class Program:
    """A number behind layers chosen at random, read by a function that gets hold of them in one of five
    ways."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.kind = rng.choice(LEAVES)
        self.layers = [rng.choice(LAYERS) for _ in range(rng.randint(1, 4))]
        self.value, self.final, self.poke = leaf(self.kind)
        self.parts = self.built(self.value, len(self.layers))
        self.f = self.reader(rng.choice(("closure", "default", "method", "global", "module")))

    def built(self, value, count):
        """(holder, read, write) of the first layers, from the inside."""
        parts = []
        for layer_of in self.layers[:count]:
            parts.append(layer_of(value))
            value = parts[-1][0]
        return parts

    def reader(self, route):
        final, reads, held = (
            self.final,
            tuple([read for _, read, _ in reversed(self.parts)]),
            self.parts[-1][0],
        )

        def number(h):
            for read in reads:
                h = read(h)
            return final(h)

        if route == "closure":
            return lambda t, u: number(held) * u * t[0] + t[1]
        if route == "default":
            return lambda t, u, h=held: number(h) * u * t[0] + t[1]
        if route == "method":
            model = type("Model", (), {"loglik": lambda self, t, u: number(self.held) * u * t[0] + t[1]})()
            model.held = held
            return model.loglik
        space = {"held": held, "number": number, "settings": module(held=held)}
        exec(
            f"def f(t, u): return number({'held' if route == 'global' else 'settings.held'}) * u * t[0] + "
            f"t[1]",
            space,
        )
        return space["f"]

    def change(self):
        n = self.rng.randrange(len(self.parts) + (self.poke is not None))
        number = self.rng.uniform(3, 9)
        if n == len(self.parts):
            self.poke(self.value, number)
            return
        value, _, poke = leaf(self.kind)
        if poke is None:
            value = number
        else:
            poke(value, number)
        inner = self.built(value, n)
        holder, _, write = self.parts[n]
        write(holder, inner[-1][0] if inner else value)
        self.value = value
        self.parts[:n] = inner


def search(seeds):
    """How many of the programs run (a function found through an object is a method, and may want another
    argument)."""
    count = 0
    for seed in seeds:
        p = Program(seed)
        try:
            plain(p.f)
        except TypeError:
            continue
        count += 1
        k = kernels.likelihood(p.f)
        try:
            agree(k, p.f)
            for _ in range(2):
                before = plain(p.f)
                p.change()
                assert not np.allclose(before, plain(p.f))
                agree(k, p.f)
        except Exception as error:
            error.add_note(f"seed {seed}: {p.kind} behind {[layer_of.__name__ for layer_of in p.layers]}")
            raise
    return count


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore:functools.partial will be a method:FutureWarning"
)  # (of Python 3.13, of a plain call)
def test_programs_at_random():
    assert search(range(80)) > 60


@pytest.mark.long
def test_more_programs_at_random():
    assert search(range(1000, 4500)) > 3000


# --- routes that names do not tell ---


class Base:
    shared = 2.0

    @classmethod
    def asked(cls):
        return cls.shared


class Descriptor:
    def __init__(self, w):
        self.w = w

    def __get__(self, instance, owner=None):
        return self.w


class Colour(enum.Enum):
    RED = 2.0


def routes():
    """Name, function, change."""
    box, numbers, d = Box(2.0), [2.0], Descriptor(2.0)
    derived, owner = type("Derived", (Base,), {}), type("Owner", (), {"v": d})()
    hidden = np.frompyfunc(lambda a: a * numbers[0], 1, 1)
    vectorized = np.vectorize(lambda a: a * numbers[0])
    inner = kernels.map(lambda x: x * box.x)
    slope = tg.grad(lambda x: box.x * x * x)
    spline = CubicSpline([0.0, 1.0, 2.0], [1.0, 2.0, 5.0])
    m = module(x=2.0)
    lazy = module()
    exec("content = {'x': 2.0}\ndef __getattr__(name): return content[name]", vars(lazy))
    sys.modules["settings_of_a_test"] = m
    half = fractions.Fraction(1, 2)
    rates = {Colour.RED: half}

    def imported(t, u):
        import settings_of_a_test as s

        return s.x * t[0] * u + t[1]

    def imported_from(t, u):
        from settings_of_a_test import x

        return x * t[0] * u + t[1]

    def of(read):
        return lambda t, u: read() * t[0] * u + t[1]

    yield "frompyfunc", of(lambda: float(hidden(1.0))), lambda: numbers.__setitem__(0, 3.0)
    yield "vectorize", of(lambda: float(vectorized(1.0))), lambda: numbers.__setitem__(0, 4.0)
    yield (
        "environment",
        of(lambda: float(os.environ["OF_A_TEST"])),
        lambda: os.environ.update(OF_A_TEST="3.5"),
    )
    yield "copy", of(lambda: copy.copy(box).x), lambda: setattr(box, "x", 3.0)
    yield "globals()", of(lambda: globals()["Base"].shared), lambda: setattr(Base, "shared", 3.0)
    yield "sys.modules", of(lambda: sys.modules["settings_of_a_test"].x), lambda: setattr(m, "x", 3.0)
    yield "import", imported, lambda: setattr(m, "x", 4.0)
    yield "from import", imported_from, lambda: setattr(m, "x", 5.0)
    yield (
        "another module of that name",
        imported,
        lambda: sys.modules.update(settings_of_a_test=module(x=6.0)),
    )
    yield "lazy module", of(lambda: lazy.x), lambda: lazy.content.update(x=6.0)
    yield "object of SciPy", of(lambda: float(spline(0.5))), lambda: spline.c.__imul__(2.0)
    yield "kernel in a kernel", of(lambda: float(inner(np.ones(1))[0])), lambda: setattr(box, "x", 5.0)
    yield "gradient in a kernel", of(lambda: float(slope(1.0))), lambda: setattr(box, "x", 6.0)
    yield "class method", of(lambda: derived.asked()), lambda: setattr(derived, "shared", 7.0)
    yield "other base classes", of(lambda: derived.asked()), lambda: setattr(derived, "shared", 8.0)
    yield "descriptor", of(lambda: owner.v), lambda: setattr(d, "w", 7.0)
    yield (
        "member of an enumeration",
        of(lambda: float(rates[Colour.RED])),
        lambda: rates.update({Colour.RED: 2 * half}),
    )
    yield "a name before a builtin", of(lambda: lazy_max([1.0, 2.0])), lambda: vars(names).update(max=sum)
    yield (
        "dataclass by replace",
        of(lambda: dataclasses.replace(record, other=1.0).x),
        lambda: setattr(record, "x", 7.0),
    )
    yield "attribute of a method", of(lambda: Shown.get.x), lambda: setattr(Shown.get, "x", 7.0)
    yield "abstract class", of(lambda: concrete.both()), lambda: setattr(Abstract, "weight", 9.0)


names = module()
exec("def largest(x): return max(x)", vars(names))
lazy_max = names.largest
record = Record(2.0)
Shown.get.x = 2.0


class Abstract(abc.ABC):
    weight = 2.0

    @abc.abstractmethod
    def one(self): ...

    def both(self):
        return self.one() * self.weight


class Concrete(Abstract):
    def one(self):
        return 1.5


concrete = Concrete()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("n", range(21))
def test_routes_that_names_do_not_tell(n, monkeypatch):
    monkeypatch.setenv("OF_A_TEST", "2.5")
    monkeypatch.setitem(sys.modules, "settings_of_a_test", None)
    name, f, change = next(itertools.islice(routes(), n, None))
    k = kernels.likelihood(f)
    agree(k, f)
    before = plain(f)
    change()
    assert not np.allclose(before, plain(f)), name
    agree(k, f)


def test_all_routes_are_counted():
    assert len(list(routes())) == 21


# --- random numbers ---


class Drawing:
    def __init__(self):
        self.rng, self.old, self.plain = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)

    def one(self, t, u):
        return t[0] * u * self.rng.normal()

    def two(self, t, u):
        return t[0] * u * self.old.uniform()

    def three(self, t, u):
        return t[0] * u * self.plain.random()

    def none(self, t, u):
        return t[0] * u * (2.0 if self.rng is not None else 1.0)


DRAWING = Drawing()
uniform, gauss, normal = random.random, random.gauss, DRAWING.rng.normal
elsewhere = module(np=np, random=random)
exec("def one(): return np.random.normal()\ndef two(): return random.random()", vars(elsewhere))


@pytest.mark.parametrize("f", [
    DRAWING.one, DRAWING.two, DRAWING.three, lambda t, u: t[0] * u * uniform(), lambda t,
    u: t[0] * u * gauss(0.0, 1.0),
    lambda t, u: t[0] * u * normal(), lambda t, u: t[0] * u * elsewhere.one(), lambda t,
    u: t[0] * u * elsewhere.two(),
    lambda t, u: t[0] * u * np.random.normal(), lambda t, u: t[0] * u * DRAWING.rng.normal(),
])  # fmt: skip
def test_random_numbers_are_refused(f):
    k = kernels.likelihood(f)
    for _ in range(2):
        with pytest.raises(KernelError, match="random numbers"):
            k(THETA[:1], DATA)
    np.testing.assert_allclose(kernels.likelihood(DRAWING.none)(THETA[:1], DATA), 2.4 * THETA[0])


# --- what must not lead to a new trace ---


def test_what_is_not_read_may_change(monkeypatch):
    class Station:
        unread = 1.0

        def __init__(self):
            self.log, self.lock, self.weight, self.calls = (
                logging.getLogger("of a test"),
                threading.Lock(),
                np.array([2.0]),
                0,
            )
            self.data, self.children = np.zeros(10), [Box(1.0)]

        def loglik(self, t, u):
            with self.lock:
                self.log.debug("a step")
                return settings.scale * self.weight[0] * t[0] * u + t[1]

        def plot(self):
            return self.data, self.unread, self.children, self.calls

    settings = module(scale=1.5, other=2.0)
    s, count, traced = Station(), [], tracing.Tracer.run
    monkeypatch.setattr(tracing.Tracer, "run", lambda self, *args: count.append(1) or traced(self, *args))
    k = kernels.likelihood(s.loglik)
    agree(k, s.loglik)
    first = len(count)
    settings.other, s.data[0], s.calls, Station.unread, s.children[0].x = 3.0, 1.0, 5, 2.0, 7.0
    s.log.setLevel("ERROR")
    s.more, settings.more = 1.0, 2.0
    agree(k, s.loglik)
    s.weight, settings.scale = np.array([2.0]), float("1.5")  # other objects of equal value
    agree(k, s.loglik)
    agree(k, s.loglik)
    assert len(count) == first
    s.weight[0] = 3.0  # of the new array
    agree(k, s.loglik)
    assert len(count) == 2 * first


def test_a_large_object_graph_is_compared_by_one_function():
    box = Box([Box(float(n)) for n in range(200)])
    f = lambda t, u: sum([b.x for b in box.x]) * t[0] * u + t[1]
    k = kernels.likelihood(f)
    agree(k, f)
    assert not k._captured[0].changed()
    assert len(frames_of(k._captured[0].changed)) <= 3
    box.x[117].x = -5.0
    agree(k, f)


def test_what_was_compared_is_not_kept_for_ever():
    held = [np.zeros(1000)]
    k = kernels.likelihood(lambda t, u: held[0][0] * t[0] + u * t[1])
    k(THETA, DATA)
    before, content = weakref.ref(k._captured[0].environment.walk), weakref.ref(held[0])
    held[0] = np.ones(2)
    k(THETA, DATA)
    gc.collect()
    assert before() is None and content() is None
