"""What functions read is unchanged, changed or unknown: objects of many kinds, by many routes, changed
between calls of whatever keeps results.  The answer is that of a plain call, or an error of tapegrad's."""

import array
import collections
import contextvars
import ctypes
import decimal
import dis
import fractions
import functools
import inspect
import io
import itertools
import mmap
import operator
import os
import pathlib
import queue
import random
import re
import sys
import threading
import types
import weakref

import numpy as np
import pandas
import pytest
import scipy.interpolate
import scipy.sparse
import scipy.stats

import tapegrad as tg
from tapegrad._capture.builtin import codes_in
from tapegrad._capture.dependencies import Environment, Status
from tapegrad._capture.dependencies.names import outer_names
from tapegrad._capture.dependencies.walk import DependencyWalk, is_open
from tapegrad.errors import TapegradError

LEVEL = 1.5


class Box:
    def __init__(self, x):
        self.x = x


class Slotted:
    __slots__ = ("__weakref__", "x")

    def __init__(self, x):
        self.x = x


class Meta(type):
    def __getattr__(cls, name):
        if name not in LEVELS:
            raise AttributeError(name)
        return LEVELS[name]


class Named(metaclass=Meta):
    pass


class Own(random.Random):
    pass


LEVELS = {"level": 1.5}


def held(make, read, change):
    """A kind of object: how it is made, what of it is read, and how it is changed so that this is v."""
    return make, read, change


def frame(**more):
    return pandas.DataFrame({"w": [1.5, 2.0], "n": [3, 4]}, **more)


def structured():
    x = np.zeros(2, [("a", float), ("b", int)])
    x["a"] = 1.5
    return x


def read_only():
    base = np.array([1.5, 2.0])
    view = base[:]
    view.flags.writeable = False
    return base, view


def masked():
    return np.ma.array([1.5, 2.5], mask=[False, True])


def in_memory():
    m = mmap.mmap(-1, 8)
    m[0] = 3
    return m


def view_of(x):
    return x, memoryview(x)


def pointer():
    x = ctypes.c_double(1.5)
    return x, ctypes.pointer(x)


def variable():
    x = contextvars.ContextVar("of_a_test")
    x.set(1.5)
    return x


def queued():
    q = queue.Queue()
    q.put(1.5)
    return q


def local():
    x = threading.local()
    x.a = 1.5
    return x


def stored(*names):
    """A file with a number, in a folder of this test."""
    path = pathlib.Path(os.environ["OF_A_TEST"]) / "_".join(names)
    path.write_text("1.5")
    return path


def random_own():
    r = Own(1)
    r.rate = 1.5
    return r


def rewritten(s, v):
    s.seek(0)
    s.write(f"{v:6}")


def closed(text):
    with text:
        return float(text.read())


def put(name):
    return lambda h, v: setattr(h, name, v)


def first(h, v):
    h[0] = v


KINDS = {
    "frame, at": held(frame, lambda h: h.at[0, "w"], lambda h, v: h.__setitem__("w", [v, 2.0])),
    "frame, to_numpy": held(
        frame, lambda h: h["w"].to_numpy()[0], lambda h, v: h.loc.__setitem__((0, "w"), v)
    ),
    "frame, whole": held(frame, lambda h: h["n"].sum(), lambda h, v: h.__setitem__("n", [3, int(v)])),
    "frame, index": held(
        lambda: frame(index=[1.5, 2.0]), lambda h: h.index[0], lambda h, v: setattr(h, "index", [v, 2.0])
    ),
    "frame, columns": held(frame, lambda h: float(len(h.columns)), lambda h, v: h.__setitem__(f"c{v}", v)),
    "frame, attrs": held(frame, lambda h: h.attrs.get("a", 1.5), lambda h, v: h.attrs.update(a=v)),
    "frame in a subclass": held(
        lambda: Table({"w": [1.5]}), lambda h: h["w"][0], lambda h, v: h.__setitem__("w", [v])
    ),
    "series": held(lambda: pandas.Series([1.5, 2.0]), lambda h: h.iloc[0], first),
    "series, mean": held(lambda: pandas.Series([1.5, 2.0]), lambda h: h.mean(), first),
    "environ": held(
        lambda: os,
        lambda h: float(os.environ.get("OF_A_KIND", "1.5")),
        lambda h, v: h.environ.update(OF_A_KIND=str(v + float(h.environ["OF_A_KIND"]))),
    ),
    "getenv": held(
        lambda: os,
        lambda h: float(os.getenv("OF_A_KIND", "1.5")),
        lambda h, v: h.environ.update(OF_A_KIND=str(v + float(h.environ["OF_A_KIND"]))),
    ),
    "frozen, args": held(
        lambda: scipy.stats.norm(1.5, 1.0), lambda h: h.args[0], lambda h, v: setattr(h, "args", (v, 1.0))
    ),
    "frozen, mean": held(
        lambda: scipy.stats.gamma(1.5), lambda h: float(h.mean()), lambda h, v: setattr(h, "args", (v,))
    ),
    "frozen, keywords": held(
        lambda: scipy.stats.norm(loc=1.5), lambda h: float(h.mean()), lambda h, v: h.kwds.update(loc=v)
    ),
    "frozen of vectors": held(
        lambda: scipy.stats.multivariate_normal(np.ones(2)),
        lambda h: float(h.mean[0]),
        lambda h, v: first(h.mean, v),
    ),
    "array.array": held(lambda: array.array("d", [1.5]), lambda h: h[0], first),
    "bytearray": held(lambda: bytearray(b"3"), lambda h: float(h[0]), lambda h, v: first(h, int(v))),
    "ctypes": held(lambda: ctypes.c_double(1.5), lambda h: h.value, put("value")),
    "pointer": held(pointer, lambda h: h[1][0], lambda h, v: setattr(h[0], "value", v)),
    "memoryview": held(lambda: view_of(np.array([1.5])), lambda h: h[1][0], lambda h, v: first(h[0], v)),
    "mmap": held(in_memory, lambda h: float(h[0]), lambda h, v: first(h, int(v))),
    "read-only view": held(read_only, lambda h: float(h[1][0]), lambda h, v: first(h[0], v)),
    "masked array": held(
        masked, lambda h: float(h.filled(1.0).sum()), lambda h, v: h.__setitem__(int(v) % 2, v)
    ),
    "mask": held(
        masked, lambda h: float(h.mask.sum()) + 1.0, lambda h, v: setattr(h, "mask", [v > 5, v > 5])
    ),
    "fill value": held(masked, lambda h: float(h.filled()[1]), put("fill_value")),
    "structured array": held(structured, lambda h: float(h["a"][0]), lambda h, v: first(h["a"], v)),
    "array of objects": held(lambda: np.array([1.5, None], object), lambda h: h[0], first),
    "array of integers": held(lambda: np.array([3, 4]), lambda h: int(h[0]), lambda h, v: first(h, int(v))),
    "dates": held(
        lambda: np.array(["1980-01-02"], "M8[D]"),
        lambda h: int(h[0].astype(int)),
        lambda h, v: first(h, np.datetime64(int(v), "D")),
    ),
    "sparse matrix": held(
        lambda: scipy.sparse.csr_array([[3.0, 0.0]]),
        lambda h: int(h.indices[0]) + 1.0,
        lambda h, v: first(h.indices, 1 - h.indices[0]),
    ),
    "spline": held(
        lambda: scipy.interpolate.BSpline([0, 0, 1, 1], [1.5, 2.0], 1),
        lambda h: h.k + h.t[-1] * 1.0,
        lambda h, v: first(h.t[-1:], v),
    ),
    "random, attribute": held(random_own, lambda h: h.rate, put("rate")),
    "random, state": held(
        lambda: random.Random(1), lambda h: float(h.getstate()[1][-1]), lambda h, v: h.random()
    ),
    "eval": held(lambda: globals(), lambda h: eval("LEVEL"), lambda h, v: h.update(LEVEL=v)),
    "globals()": held(lambda: globals(), lambda h: globals()["LEVEL"], lambda h, v: h.update(LEVEL=v)),
    "globals().get": held(
        lambda: globals(), lambda h: globals().get("LEVEL"), lambda h, v: h.update(LEVEL=v)
    ),
    "sys.modules": held(
        lambda: globals(), lambda h: sys.modules[__name__].LEVEL, lambda h, v: h.update(LEVEL=v)
    ),
    "vars": held(lambda: Box(1.5), lambda h: vars(h)["x"], put("x")),
    "getattr": held(lambda: Box(1.5), lambda h: getattr(h, "".join("x")), put("x")),
    "attrgetter": held(lambda: Box(1.5), operator.attrgetter("x"), put("x")),
    "slots": held(lambda: Slotted(1.5), lambda h: h.x, put("x")),
    "format": held(lambda: Box(1.5), lambda h: float(f"{h.x}"), put("x")),
    "proxy": held(lambda: view_of_object(weakref.proxy), lambda h: h[1].x, lambda h, v: put("x")(h[0], v)),
    "reference": held(
        lambda: view_of_object(weakref.ref), lambda h: h[1]().x, lambda h, v: put("x")(h[0], v)
    ),
    "weak values": held(
        lambda: view_of_object(lambda b: weakref.WeakValueDictionary(a=b)),
        lambda h: h[1]["a"].x,
        lambda h, v: put("x")(h[0], v),
    ),
    "context variable": held(variable, lambda h: h.get(), lambda h, v: h.set(v)),
    "thread's own": held(local, lambda h: h.a, put("a")),
    "view of a dict": held(
        lambda: view_of_dict(dict.values), lambda h: sum(h[1]), lambda h, v: h[0].update(a=v)
    ),
    "proxy of a dict": held(
        lambda: view_of_dict(types.MappingProxyType), lambda h: h[1]["a"], lambda h, v: h[0].update(a=v)
    ),
    "chain": held(
        lambda: collections.ChainMap({}, {"a": 1.5}), lambda h: h["a"], lambda h, v: h.maps[1].update(a=v)
    ),
    "counter": held(
        lambda: collections.Counter(a=3), lambda h: float(h["a"]), lambda h, v: h.update(a=int(v))
    ),
    "user's dict": held(lambda: collections.UserDict(a=1.5), lambda h: h["a"], lambda h, v: h.update(a=v)),
    "queue": held(queued, lambda h: h.queue[0], lambda h, v: first(h.queue, v)),
    "simple queue": held(queue.SimpleQueue, lambda h: h.qsize() + 1.5, lambda h, v: h.put(v)),
    "event": held(
        threading.Event,
        lambda h: 2.5 if h.is_set() else 1.5,
        lambda h, v: h.clear() if h.is_set() else h.set(),
    ),
    "text in memory": held(lambda: io.StringIO("   1.5"), lambda h: float(h.getvalue()), rewritten),
    "file, path": held(
        lambda: stored("path"), lambda h: float(h.read_text()), lambda h, v: h.write_text(str(v))
    ),
    "file, open": held(lambda: stored("open"), lambda h: closed(open(h)), lambda h, v: h.write_text(str(v))),
    "file, loadtxt": held(
        lambda: stored("loadtxt"), lambda h: float(np.loadtxt(h)), lambda h, v: h.write_text(str(v))
    ),
    "file, size": held(
        lambda: stored("size"), lambda h: float(os.path.getsize(h)), lambda h, v: h.write_text("1" * int(v))
    ),
    "partial": held(
        lambda: functools.partial(dict.get, {"a": 1.5}), lambda h: h("a"), lambda h, v: h.args[0].update(a=v)
    ),
    "cached": held(
        lambda: functools.lru_cache(lambda: LEVELS["level"]),
        lambda h: h(),
        lambda h, v: (LEVELS.update(level=v), h.cache_clear()),
    ),
    "iterator": held(
        lambda: view_of_list(iter), lambda h: h[1].__reduce__()[1][0][0], lambda h, v: first(h[0], v)
    ),
    "fraction": held(
        lambda: [fractions.Fraction(3, 2)],
        lambda h: float(h[0]),
        lambda h, v: first(h, fractions.Fraction(int(v), 2)),
    ),
    "decimal": held(
        lambda: [decimal.Decimal("1.5")],
        lambda h: float(h[0]),
        lambda h, v: first(h, decimal.Decimal(str(v))),
    ),
    "decimal context": held(
        lambda: decimal.Context(prec=2),
        lambda h: float(h.divide(decimal.Decimal(1), decimal.Decimal(3))),
        lambda h, v: setattr(h, "prec", int(v)),
    ),
    "pattern": held(
        lambda: [re.compile("1+")],
        lambda h: float(h[0].match("11222").end()),
        lambda h, v: first(h, re.compile(f".{{{int(v) % 4}}}")),
    ),
    "vectorised": held(
        lambda: np.vectorize(lambda k: LEVELS["level"]),
        lambda h: float(h(0.0)),
        lambda h, v: LEVELS.update(level=v),
    ),
    "frompyfunc": held(
        lambda: np.frompyfunc(lambda k: LEVELS["level"], 1, 1),
        lambda h: float(h(0)),
        lambda h, v: LEVELS.update(level=v),
    ),
    "polynomial": held(
        lambda: Box(np.poly1d([1.5, 1.0])),
        lambda h: float(h.x.order) + 1.0,
        lambda h, v: put("x")(h, np.poly1d(np.ones(int(v)))),
    ),
    "class by its metaclass": held(lambda: Named, lambda h: h.level, lambda h, v: LEVELS.update(level=v)),
    "recursion limit": held(
        lambda: sys, lambda h: float(sys.getrecursionlimit()), lambda h, v: h.setrecursionlimit(1000 + int(v))
    ),
    "errstate": held(
        lambda: np,
        lambda h: 1.5 if np.geterr()["under"] == "ignore" else 3.5,
        lambda h, v: h.seterr(under="warn" if v < 6 else "ignore"),
    ),
    "one of ours": held(
        lambda: view_of(np.array([1.5, 2.0])),
        lambda h: float(tg.value(h[0]).max()),
        lambda h, v: first(h[0], v),
    ),
}


class Table(pandas.DataFrame):
    pass


def view_of_object(make):
    b = Box(1.5)
    return b, make(b)


def view_of_dict(make):
    d = {"a": 1.5}
    return d, make(d)


def view_of_list(make):
    x = [1.5]
    return x, make(x)


class Reader:
    def __init__(self, h, read):
        self.h, self.read = h, read

    def get(self):
        return self.read(self.h)

    @property
    def now(self):
        return self.read(self.h)

    def __call__(self):
        return self.get()


def by_default(h, read):
    def get(h=h):
        return read(h)

    return get


def by_module(h, read):
    m = types.ModuleType("of_a_test")
    m.h = h
    return lambda: read(m.h)


ROUTES = (
    lambda h, read: lambda: read(h), lambda h, read: functools.partial(read, h), lambda h, read: Reader(h,
    read),
    lambda h, read: Reader(h, read).get, by_default, by_module, lambda h,
    read: (lambda b: lambda: read(b.x))(Box(h)),
    lambda h, read: (lambda b: lambda: read(b[0]))([h]), lambda h,
    read: (lambda b: lambda: read(b["a"]["b"]))({"a": {"b": h}}),
    lambda h, read: (lambda r: lambda: r.now)(Reader(h, read)),
)  # fmt: skip

X = np.array([0.5, 1.5])
THETA, DATA = np.array([[0.3, 0.5]]), np.array([0.4, 1.1])


def of_prepare(get):
    p = tg.prepare(lambda x: (x * x).sum() * get(), X)
    return lambda: p.grad(X), lambda: 2 * X * get()


def of_strict_prepare(get):
    p = tg.prepare(lambda x: (x * x).sum() * get(), X, on_change="raise")
    return lambda: p.grad(X), lambda: 2 * X * get()


def of_operator(get):
    H = tg.operators.hessian(lambda x: (x * x).sum() * get(), X)
    return lambda: H @ np.ones(2), lambda: 2 * np.ones(2) * get()


def of_jacobian(get):
    J = tg.operators.jacobian(lambda x: x * x * get(), X)
    return lambda: J.vjp(np.ones(2)), lambda: 2 * X * get()


def of_plan(get):
    plan = tg.sparse.prepare_jacobian(lambda x: x * x * get(), X)
    return lambda: plan(X).toarray(), lambda: np.diag(2 * X * get())


def of_pattern(get):
    plan = tg.sparse.prepare_hessian(lambda x: (x**3).sum() * get(), X, pattern=np.eye(2))
    return lambda: plan(X).toarray(), lambda: np.diag(6 * X * get())


def of_likelihood(get):
    k = tg.kernels.likelihood(lambda t, y: -((y - t[0]) ** 2) * get())
    return lambda: k.value_and_grad(THETA, DATA)[1], lambda: 2 * sum([y - THETA for y in DATA]) * get()


def of_recursion(get):
    k = tg.kernels.recursion(lambda t: 0.0 * t[0], lambda m, t, y: (m, -((y - t[0]) ** 2) * get()))
    return lambda: k(THETA, DATA), lambda: -sum([(y - THETA[0]) ** 2 for y in DATA]) * get()


def of_map(get):
    k = tg.kernels.map(lambda a: a * a * get())
    return lambda: k(X), lambda: X * X * get()


CHEAP = (of_prepare, of_strict_prepare, of_operator, of_jacobian)
COMPILED = (of_plan, of_pattern, of_likelihood, of_recursion, of_map)


@pytest.fixture(autouse=True)
def as_it_was(tmp_path, monkeypatch):
    """Files of a test lie in its folder, and what it changes everywhere is put back."""
    monkeypatch.setenv("OF_A_TEST", str(tmp_path))
    monkeypatch.setenv("OF_A_KIND", "1.5")
    monkeypatch.setitem(globals(), "LEVEL", 1.5)
    monkeypatch.setitem(LEVELS, "level", 1.5)
    limit, errors = sys.getrecursionlimit(), np.geterr()
    yield
    sys.setrecursionlimit(limit)
    np.seterr(**errors)


def outcome(name, route, consumer):
    """One object, read by one route, is changed twice: results are those of plain calls, or an error of
    tapegrad's comes."""
    make, read, change = KINDS[name]
    globals()["LEVEL"] = LEVELS["level"] = 1.5
    os.environ["OF_A_KIND"] = "1.5"
    h = make()
    get = ROUTES[route](h, read)
    try:
        run, right = consumer(get)
        for _ in range(3):
            np.testing.assert_allclose(run(), right(), rtol=1e-12)
        for v in (5.0, 7.0):
            before = get()
            change(h, v)
            assert get() != before, "the change is none"
            for _ in range(2):
                np.testing.assert_allclose(run(), right(), rtol=1e-12)
    except TapegradError:
        return "loud"
    return "right"


def test_no_kind_of_object_is_stale():
    rng = np.random.default_rng(0)
    for name in KINDS:
        assert outcome(name, int(rng.integers(len(ROUTES))), of_prepare) == "right", name
        outcome(name, int(rng.integers(len(ROUTES))), CHEAP[int(rng.integers(1, len(CHEAP)))])
    for name in rng.choice(list(KINDS), 12, replace=False):
        outcome(name, int(rng.integers(len(ROUTES))), COMPILED[int(rng.integers(len(COMPILED)))])


@pytest.mark.long
@pytest.mark.parametrize("consumer", CHEAP + COMPILED)
def test_each_kind_by_each_route(consumer):
    for name, route in itertools.product(KINDS, range(len(ROUTES))):
        outcome(name, route, consumer)


# --- the classes of which all is known ---


def test_compiled_ufuncs_do_not_change():
    """Names of other modules than numpy and scipy.special, too: `numpy.frompyfunc` alone keeps a function."""
    names, length, x = np.array(["a", "bcd"]), np.strings.str_len, np.array([0.5, 2.0])
    f = lambda x: (length(names) * x).sum()
    p = tg.prepare(f, x)
    assert p.value(x) == f(x) and p.value(2 * x) == f(2 * x) and p.forms["value"].eager is None


def test_a_class_is_searched_only_where_all_of_its_memory_is_known():
    """Classes made at random: those with a class of C among their bases that keeps more are not open, however
    many lie between."""
    rng = np.random.default_rng(0)
    known = [
        object,
        int,
        float,
        str,
        bytes,
        tuple,
        list,
        dict,
        set,
        Exception,
        types.SimpleNamespace,
        np.ndarray,
        collections.deque,
    ]
    more = [
        array.array,
        io.StringIO,
        random.Random,
        operator.attrgetter,
        io.BytesIO,
        decimal.Decimal,
        itertools.count,
        ctypes.c_double,
    ]
    for n in range(400):
        base = (known, more)[n % 2][int(rng.integers(len((known, more)[n % 2])))]
        if base is operator.attrgetter:
            assert not is_open(base)
            continue
        kind = base
        for k in range(int(rng.integers(4))):
            body = (
                {}
                if rng.random() < 0.5 or base in (int, bytes, tuple)
                else {"__slots__": [f"s{n}_{k}_{j}" for j in range(int(rng.integers(4)))]}
            )
            kind = types.new_class(f"K{k}", (kind,), {}, lambda space, body=body: space.update(body))
        assert is_open(kind) is (n % 2 == 0), kind.__mro__


def test_an_interrupt_leaves_what_was_known():
    """A change is found although the question was broken off, at whatever line."""
    held = {"a": 1.0}
    for n in range(60):
        e, lines = Environment([lambda: held["a"]]), itertools.count()

        def trace(frame, event, arg, n=n, lines=lines):
            if frame.f_code.co_flags & inspect.CO_GENERATOR:
                return None  # Python drops what is raised where a generator is closed
            if frame.f_code.co_filename.endswith("_reads.py") and next(lines) == 7 * n:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        held["a"] += 1.0
        sys.settrace(trace)
        try:
            e.status()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert e.status() is Status.CHANGED


@pytest.mark.parametrize("alters", [False, True])
def test_a_recording_walks_again_only_where_something_has_changed(monkeypatch, alters):
    counts, scale = np.array([1, 2, 3]), np.array([0.5, 1.0, 2.0])

    def f(x):
        if alters:
            counts[0] += 1
        return (counts * scale * x).sum()

    walks, begin = [], DependencyWalk.__init__
    monkeypatch.setattr(DependencyWalk, "__init__", lambda w, *a: (walks.append(w), begin(w, *a))[1])
    p = tg.prepare(f, np.ones(3))
    value = p.value(np.ones(3))
    assert value == (9.0 if alters else 8.5)
    assert (len(walks) == 1) is not alters
    scale[1] = 10.0  # read anew by a program, and by a plain call
    counts[2] = 5  # compared by its content
    assert p.value(np.ones(3)) == f(np.ones(3)) - 0.5 * alters


def test_environments_share_a_walk_only_where_arrays_are_read_alike():
    held = [np.ones(3)]
    first = Environment([held], lambda x: True)
    same = Environment([held], lambda x: True, before=first)
    other = Environment([held], lambda x: False, before=first)
    assert same.walk is first.walk
    assert other.walk is not first.walk
    held[0][0] = 2.0
    assert [e.status() for e in (same, other)] == [Status.UNCHANGED, Status.CHANGED]
    held.append(1.0)
    assert Environment([held], lambda x: True, before=first).walk is not first.walk


@pytest.mark.parametrize("module", [dis, inspect, types])
def test_names_read_from_bytes_are_those_of_dis(module):
    code = compile(inspect.getsource(module), module.__name__, "exec")
    expected = {}
    for c in codes_in(code):
        steps = [i for i in dis.get_instructions(c) if i.opname != "EXTENDED_ARG"]
        for k, i in enumerate(steps):
            if i.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                read = itertools.takewhile(lambda j: j.opname in ("LOAD_ATTR", "LOAD_METHOD"), steps[k + 1 :])
                expected.setdefault(i.argval, set()).add(tuple([j.argval for j in read]))
    names, modules = outer_names(code)
    assert names == expected
    assert {*modules} == {
        i.argval for c in codes_in(code) for i in dis.get_instructions(c) if i.opname == "IMPORT_NAME"
    }
