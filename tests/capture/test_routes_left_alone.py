"""What a shadow does not follow cannot be silent: a written array that another way reaches, or that another
way changes.

Every program here is right or raises RouteError; the holders are of kinds that nobody listed in the
shadow."""

import atexit
import collections
import contextvars
import ctypes
import functools
import gc
import io
import itertools
import logging
import mmap
import operator
import pickle
import queue
import random
import threading
import types
import warnings
import weakref

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._capture import references, routes, threads
from tapegrad._core.scope import OPEN

x, W = np.array([0.7, -1.3, 2.1]), np.array([0.3, 1.7, -0.9])


def foreign(name, bases=(), **members):
    """A class as of a package that is left alone."""
    return type(name, bases, {"__module__": "h5py._hl.dataset", **members})


Dataset = foreign("Dataset", read=lambda self: self.data)
Registry = foreign("Registry")
Proxy = foreign(
    "Proxy",
    __init__=lambda self, o: self.__dict__.update(o=o),
    __getattr__=lambda self, n: getattr(self.__dict__["o"], n),
)


def dataset(buf):
    d = Dataset()
    d.data = buf
    return d


def class_attribute(buf):
    class Table(Registry):
        rows = [buf]

    Table.__module__ = "h5py.tables"
    holder = Table()
    holder.rows = Table.rows
    return holder


def closure_in_foreign_callable(buf):
    return dataset(functools.partial(lambda b, k: b[k:], buf, 0))


def begun(buf):
    def rows():
        mine = [buf]
        while True:
            yield mine[0]

    g = rows()
    next(g)
    return g


def one_item(kind):
    def make(buf):
        q = kind()
        q.put(buf)
        return q

    return make


def local(buf):
    c = threading.local()
    c.a = buf
    return c


def variable(buf):
    c = contextvars.ContextVar("c")
    c.set(buf)
    return c


NEW, GET = ctypes.pythonapi.PyCapsule_New, ctypes.pythonapi.PyCapsule_GetPointer
NEW.restype, NEW.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
GET.restype, GET.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def sealed(thing):
    """An object of C that keeps a thing, and tells nobody."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return NEW(id(thing), None, None)


def opened(capsule):
    return ctypes.cast(GET(capsule, None), ctypes.py_object).value


def forever(thing):
    """A generator: the code in it is left alone."""
    while True:
        yield thing


# holders that an object of C keeps
SEALED = {
    "sealed": (sealed, opened),
    "sealed view": (lambda b: sealed(b[:]), opened),
    "sealed memoryview": (lambda b: sealed(memoryview(b)), lambda c: np.asarray(opened(c))),
    "sealed list": (lambda b: sealed([b]), lambda c: opened(c)[0]),
    "sealed dict": (lambda b: sealed({"k": {"a": b}}), lambda c: opened(c)["k"]["a"]),
    "sealed object": (lambda b: sealed(types.SimpleNamespace(a=b)), lambda c: opened(c).a),
    "sealed function": (lambda b: sealed(lambda: b), lambda c: opened(c)()),
    "sealed method": (lambda b: sealed(b.view), lambda c: opened(c)()),
    "sealed elements": (lambda b: sealed(b.flat), lambda c: opened(c)[:]),
    "sealed in an object": (lambda b: types.SimpleNamespace(a=sealed((b, 2))), lambda c: opened(c.a)[0]),
}
# name -> (the holder of a buffer, how f reads the buffer out of it)
HOLDERS = {
    "cycle": (lambda b: itertools.cycle([b]), next),
    "repeat": (lambda b: itertools.repeat(b), next),
    "chain, exhausted": (lambda b: itertools.chain([b], ()), lambda c: list(c)[0]),
    "iterator of a tuple": (lambda b: iter((b,)), lambda c: list(c)[0]),
    "tee": (lambda b: itertools.tee([b])[0], next),
    "map": (lambda b: map(operator.itemgetter(0), [[b]]), next),
    "zip": (lambda b: zip([b], strict=True), lambda c: next(c)[0]),
    "generator begun": (begun, next),
    "generator": (forever, next),
    "queue, emptied": (one_item(queue.Queue), lambda c: c.get()),
    "simple queue, emptied": (one_item(queue.SimpleQueue), lambda c: c.get()),
    "thread's own": (local, lambda c: c.a),
    "context variable": (variable, lambda c: c.get()),
    "foreign instance": (dataset, lambda c: c.data),
    "method of a foreign instance": (lambda b: dataset(b).read, lambda c: c()),
    "foreign proxy": (lambda b: Proxy(types.SimpleNamespace(a=b)), lambda c: c.a),
    "attribute of a foreign class": (class_attribute, lambda c: c.rows[0]),
    "closure behind a foreign object": (closure_in_foreign_callable, lambda c: c.data()),
    "weak value dictionary": (lambda b: weakref.WeakValueDictionary(a=b), lambda c: c["a"]),
    "weak proxy": (weakref.proxy, lambda c: c * 1.0),
    "weak set in a foreign object": (lambda b: dataset(weakref.ref(b)), lambda c: c.data()),
    "memoryview": (memoryview, np.asarray),
    "flat iterator": (lambda b: b.flat, lambda c: c.base),
    "nditer": (lambda b: np.nditer(b), lambda c: c.operands[0]),
    "integers over the same memory": (lambda b: b.view(np.int64), lambda c: c.view(float)),
    "masked array": (lambda b: np.ma.masked_array(b, [False, False, False]), lambda c: c.data),
    "foreign holder of an object array": (
        lambda b: dataset(np.array([b, None], object)),
        lambda c: c.data[0],
    ),
    "mapping proxy of a foreign dictionary": (
        lambda b: dataset(types.MappingProxyType({"a": b})),
        lambda c: c.data["a"],
    ),
    "ctypes array": (lambda b: np.ctypeslib.as_ctypes(b), lambda c: np.ctypeslib.as_array(c)),
    "pointer": (
        lambda b: b.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
        lambda c: np.ctypeslib.as_array(c, (3,)),
    ),
    "broadcast": (lambda b: np.broadcast(b, 1.0), lambda c: c.iters[0].base),
    "pickle buffer": (pickle.PickleBuffer, lambda c: np.frombuffer(c)),
    **SEALED,
    "constant": (tg.Const, lambda c: c if isinstance(c, np.ndarray) else c.value),
    "chain map": (lambda b: collections.ChainMap({"a": b}), lambda c: c["a"]),
    "user dict": (lambda b: collections.UserDict(a=b), lambda c: c["a"]),
}


def numeric(f):
    """Fourth-order differences of f as NumPy computes it."""
    h, g = 1e-4, np.zeros(3)
    for i, e in enumerate(np.eye(3)):
        g[i] = (8 * (f(x + h * e) - f(x - h * e)) - (f(x + 2 * h * e) - f(x - 2 * h * e))) / (12 * h)
    return g


def writes_then_reads(name):
    make, read = HOLDERS[name]
    buf = np.ones(3)
    c = make(buf)

    def f(x):
        buf[:] = x**2
        return (read(c) * W).sum()

    return f, buf, c


def right_or_route_error(program, right):
    f, buf, *_ = program
    before = buf.copy()
    try:
        got = tg.grad(f)(x)
    except tg.errors.RouteError:
        assert np.array_equal(buf, before)  # nothing is written back
        return True
    except (tg.errors.DroppedDerivativeError, tg.errors.AliasError):
        return True
    assert np.allclose(got, right, rtol=1e-6)
    return False


def few(names, searched):
    """All names; of those that end in a search of the whole process, which takes seconds in one with many
    objects, one by default."""
    late = [name for name in names if name in searched][1:]
    return [pytest.param(name, marks=pytest.mark.long) if name in late else name for name in names]


@pytest.mark.parametrize("name", few(HOLDERS, SEALED))
def test_written_by_name_and_read_behind_a_holder(name):
    right_or_route_error(writes_then_reads(name), 2 * x * W)
    assert getattr(OPEN, "depth", 0) == 0
    assert not getattr(OPEN, "shadows", ())
    assert threads.THREADS == set()


@pytest.mark.parametrize("name", few(SEALED, SEALED))
def test_a_reference_that_nobody_shows_raises(name):
    f, buf, _ = writes_then_reads(name)
    also = [buf, {"a": buf}, buf[1:]]
    with pytest.raises(
        tg.errors.RouteError, match=r"captured array `buf` .* does not show itself keeps it too"
    ):
        tg.grad(f)(x)
    assert buf.tolist() == also[2].tolist() + [1.0]


@pytest.mark.unsealed
@pytest.mark.parametrize("name", [n for n in HOLDERS if n not in ("weak proxy", "constant", *SEALED)])
def test_read_by_name_and_written_behind_a_holder(name):
    """The array is only read by name; a plain write behind the holder would change what the records hold."""
    make, read = HOLDERS[name]
    buf = np.ones(3)
    c = make(buf)

    def f(x):
        s = (buf * x**2).sum()
        inside = read(c)
        inside[...] = 7.0
        return s

    try:
        assert np.allclose(tg.grad(f)(x), 2 * x)
    except tg.errors.TapegradError:
        pass


@pytest.mark.parametrize("transform", ["jvp", "vjp", "hvp", "jacobian", "nested"])
def test_in_every_transform(transform):
    f, buf, _ = writes_then_reads("generator")
    calls = {
        "jvp": lambda: tg.jvp(f, (x,), (x,)),
        "vjp": lambda: tg.vjp(f, x),
        "hvp": lambda: tg.hvp(f, x, x),
        "jacobian": lambda: tg.jacobian(f)(x),
        "nested": lambda: tg.grad(lambda v: (tg.grad(f)(v) * v).sum())(x),
    }
    with pytest.raises(tg.errors.RouteError):
        calls[transform]()
    assert buf.tolist() == [1.0, 1.0, 1.0]
    assert getattr(OPEN, "depth", 0) == 0


class Model:
    def __init__(self, buf):
        self.state, self.history = buf, forever(buf)


def test_the_text_tells_the_route_and_the_remedy():
    model = Model(np.zeros(3))

    def loss(v):
        model.state[:] = v**2
        return (next(model.history) * W).sum()

    with pytest.raises(tg.errors.RouteError) as caught:
        tg.grad(loss)(x)
    text = str(caught.value)
    assert text.startswith("loss: the captured array `state` of `model` (shape (3,), float64) was written")
    assert "of the generator `history` of `model`" in text
    assert "Nothing was written back." in text
    assert "tg.Const(array.copy())" in text


def test_an_array_in_a_foreign_holder_is_named():
    buf = np.zeros(3)
    book = Registry()
    book.pages = [None, buf]

    def f(v):
        buf[:] = v
        return (book.pages[1] * W).sum()

    with pytest.raises(tg.errors.RouteError, match="item 1 of the list `pages` of the Registry `book`"):
        tg.grad(f)(x)


def test_the_error_of_the_function_passes_with_a_note():
    buf = np.ones(3)

    def f(v):
        buf[:] = v
        next(held)
        raise KeyError("mine")

    held = forever(buf)
    with pytest.raises(KeyError, match="mine") as caught:
        tg.grad(f)(x)
    assert ["RouteError: f: the captured array `buf`" in n for n in caught.value.__notes__] == [True]
    assert buf.tolist() == [1.0, 1.0, 1.0]


def test_a_note_on_an_error_of_the_transform():
    buf = np.ones(3)
    held = forever(buf)

    def f(v):
        buf[:] = v
        return next(held)

    with pytest.raises(tg.errors.NotScalarError) as caught:
        tg.grad(f)(x)
    assert "RouteError" in caught.value.__notes__[0]


def test_nothing_is_handed_back_after_the_error():
    """Attributes, items, members, names, cells and functions keep what they held."""
    global bound
    bound, cell = 1.0, 2.0

    class Table:
        rows = 3.0

    def helper():
        pass

    helper.note = 4.0
    model, things, buf = (
        types.SimpleNamespace(a=np.ones(3)),
        [np.ones(3), {"k": None, "a": np.ones(3)}],
        np.ones(3),
    )
    held, first = forever(buf), list(things)

    def f(v):
        global bound
        nonlocal cell
        buf[:] = v
        bound, cell, Table.rows, helper.note, helper.more = v[0], v[1], v[2], v, v
        model.a, model.b, things[0] = model.a * v, v, v * 2.0
        things[1]["k"], things[1]["j"] = v[0], [v]
        things.append(v)
        return (next(held) * v).sum()

    for transform in (tg.grad(f), lambda v: tg.jvp(f, (v,), (v,)), lambda v: tg.hvp(f, v, v)):
        with pytest.raises(tg.errors.RouteError, match="Nothing was written back"):
            transform(x)
        assert (bound, cell, Table.rows, vars(helper)) == (1.0, 2.0, 3.0, {"note": 4.0})
        assert model.a.tolist() == buf.tolist() == [1.0, 1.0, 1.0] and not hasattr(model, "b")
        assert (
            len(things) == 2
            and things[0] is first[0]
            and list(things[1]) == ["k", "a"]
            and things[1]["k"] is None
        )


def test_changed_through_an_address():
    """No object leads to the memory: its checksum tells."""
    buf = np.ones(3)
    address = buf.ctypes.data

    def f(v):
        buf[0] = v[0]
        ctypes.memmove(address + 8, np.array([5.0]).ctypes.data, 8)
        return (buf * W).sum()

    with pytest.raises(
        tg.errors.RouteError, match="was changed while the function ran, by a way that tapegrad does not see"
    ):
        tg.grad(f)(x)
    assert buf.tolist() == [1.0, 5.0, 1.0]


def test_given_by_keyword_and_captured():
    buf = np.ones(3)

    def f(v, w):
        buf[:] = v**2
        return (w * W).sum()

    with pytest.raises(tg.errors.RouteError):
        tg.grad(f)(x, w=buf)
    with pytest.raises(tg.errors.AliasError):
        tg.grad(f)(x, tg.Const(buf))


# --- an array that is captured and an argument ---


@pytest.mark.parametrize("part", [slice(None), slice(0, 2), slice(None, None, -1)])
@pytest.mark.parametrize("which", ["captured", "argument", "reading"])
@pytest.mark.parametrize("argnums", [0, 1])
def test_captured_and_an_argument(part, which, argnums):
    buf = np.array([1.0, 2.0, 3.0])
    given = buf[part]

    def f(u, v):
        if which == "captured":
            buf[:2] *= 2
        if which == "argument":
            v[:] = v * 2
        return (u * u).sum() + (v * v).sum() + (buf * 3).sum()

    if which == "reading":
        expected = 2 * given if argnums else np.full(3, 2.0)
        assert tg.grad(f, argnums)(np.ones(3), given).tolist() == expected.tolist()
    else:
        with pytest.raises(
            tg.errors.AliasError,
            match=r"f: the captured array .*shares memory with an argument.*Pass x.copy\(\)",
        ):
            tg.grad(f, argnums)(np.ones(3), given)
    assert buf.tolist() == [1.0, 2.0, 3.0]
    assert getattr(OPEN, "depth", 0) == 0


STATE = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize("argnums", [0, 1])
def test_a_global_and_an_argument_that_was_written_before_it_was_met(argnums):
    def f(u, v):
        v[:] = v * 2
        return (u * v).sum() + STATE.sum()

    with pytest.raises(tg.errors.AliasError, match="`STATE`"):
        tg.grad(f, argnums)(np.ones(3), STATE)
    assert STATE.tolist() == [1.0, 2.0, 3.0]


def test_disjoint_parts_of_one_array_may_be_written():
    buf = np.arange(6.0)
    mine, given = buf[:3].copy(), np.ones(3)

    def f(v, w):
        w[:] = w * v
        mine[:] = v
        return (w * mine).sum()

    assert tg.grad(f)(x, given).tolist() == (2 * x).tolist()
    assert given.tolist() == [1.0, 1.0, 1.0]


# --- what raises nothing ---


def quiet():
    cache = functools.lru_cache(lambda n: n + 1)
    cache(3)
    stream = io.StringIO()
    return {
        "logger": logging.getLogger("tapegrad.test.routes"),
        "lock": threading.Lock(),
        "condition": threading.Condition(),
        "event": threading.Event(),
        "cache": cache,
        "stream": stream,
        "generator": np.random.default_rng(0),
        "old generator": np.random.RandomState(0),
        "random": random.Random(0),
        "mapped": mmap.mmap(-1, 64),
        "counter": itertools.count(),
        "compiled pattern": __import__("re").compile("a+"),
        "thread": threading.current_thread(),
        "indices": np.arange(3),
        "ufunc": np.sin,
        "foreign class": collections.Counter,
        "registry": atexit,
        "collector": gc,
        "pullback": tg.vjp(lambda v: (v * v).sum(), x)[1],
    }


@pytest.mark.parametrize("name", quiet())
def test_what_is_in_reach_and_harmless_raises_nothing(name):
    buf, thing = np.zeros(3), quiet()[name]

    def f(v):
        buf[:] = v**2
        thing  # noqa: B018
        return (buf * W).sum()

    assert np.allclose(tg.grad(f)(x), 2 * x * W)
    assert np.array_equal(buf, x**2)


class Owner:
    def __init__(self, buf):
        self.buf = buf


@pytest.mark.parametrize("where", ["cell", "attribute", "item", "default"])
def test_references_that_are_all_known_end_the_search(where, monkeypatch):
    """With a logger in reach, which leads to much, nothing is searched where no other object can refer to the
    array."""
    log, owner, table, cell = (
        logging.getLogger("tapegrad.test.routes"),
        Owner(np.zeros(3)),
        {"a": np.zeros(3)},
        np.zeros(3),
    )

    def f(v, of=np.zeros(3)):  # noqa: B008
        log.debug("at work")
        buf = {"cell": cell, "attribute": owner.buf, "item": table["a"], "default": of}[where]
        buf[:] = v**2
        return (buf * W).sum()

    def never(*args):
        raise AssertionError("searched")

    monkeypatch.setattr(routes, "walk", never)
    assert np.allclose(tg.grad(f)(x), 2 * x * W)
    hidden = [cell, owner.buf, table["a"], f.__defaults__[0]]  # noqa: F841
    with pytest.raises(AssertionError, match="searched"):
        tg.grad(f)(x)


def test_the_register_of_loggers_is_no_way(monkeypatch):
    """A logger knows all others, and what these hold."""
    box, log, other = Owner(0.0), logging.getLogger("tapegrad.test.routes"), logging.Logger("other")
    other.box, event = box, threading.Event()
    monkeypatch.setitem(logging.Logger.manager.loggerDict, "other", other)

    def f(v):
        log.debug("at work %d", event.is_set())
        box.buf = v**2
        return (box.buf * W).sum()

    assert np.allclose(tg.grad(f)(x), 2 * x * W)
    assert np.array_equal(box.buf, x**2)


ELSEWHERE = {
    "list": lambda b: [b],
    "dict": lambda b: {"k": {"a": b}},
    "tuple": lambda b: ((b, 1), 2),
    "object": lambda b: types.SimpleNamespace(a=[b]),
    "closure": lambda b: lambda: b,
    "view": lambda b: [b[1:], b.reshape(1, 3)],
    "memoryview": lambda b: {"m": memoryview(b)},
    "itself": lambda b: b,
    "frame": lambda b: (lambda inside: inside)(b),
    "generator": begun,
    "all": lambda b: [ELSEWHERE[k](b) for k in ELSEWHERE if k != "all"],
}


@pytest.mark.parametrize("where", few(ELSEWHERE, ELSEWHERE))
def test_an_object_of_c_in_reach_and_references_that_show_raise_nothing(where, monkeypatch):
    buf, capsule = np.zeros(3), [sealed(np.ones(2))]
    also = ELSEWHERE[where](buf)

    def f(v):
        assert capsule and opened(capsule[0]).sum() == 2
        buf[:] = v**2
        return (buf * W).sum()

    if where == "generator":
        assert next(also) is buf
    assert np.allclose(tg.grad(f)(x), 2 * x * W)
    monkeypatch.setattr(references, "referrer_counts", None)  # the second time nobody searches
    assert np.allclose(tg.grad(f)(x), 2 * x * W)


def test_where_references_are_not_counted_exactly_what_cannot_be_searched_is_refused(monkeypatch):
    monkeypatch.setattr(references, "EXACT", False)
    buf, capsule, log = np.zeros(3), sealed(np.ones(2)), logging.getLogger("tapegrad.test.routes")

    def f(v, read=None):
        log.debug("at work")
        buf[:] = v**2
        return (buf * W).sum() + (0.0 if read is None else opened(read()).sum())

    assert np.allclose(tg.grad(f)(x), 2 * x * W)
    with pytest.raises(tg.errors.RouteError, match="does not show itself"):
        tg.grad(functools.partial(f, read=lambda: capsule))(x)


def test_a_model_of_statsmodels_that_was_called_before():
    """Its compiled filter keeps arrays that its Python code writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that statsmodels imports
        from statsmodels.tsa.arima.model import ARIMA
    model = ARIMA(np.cumsum(np.random.default_rng(1).standard_normal(30)), order=(1, 0, 1))
    point = np.array([0.1, 0.5, 0.2, 1.0])
    before = model.loglike(point)
    with pytest.raises(tg.errors.NoRuleError, match=r"find_best_blas_type has no derivative rule"):
        tg.grad(model.loglike)(point)
    assert model.loglike(point) == before


def test_a_pullback_of_the_same_buffer_raises_nothing():
    buf = np.ones(3)

    def g(v):
        buf[:] = buf * v
        return (buf * v).sum()

    _, pullback = tg.vjp(g, x)

    def f(v):
        buf[:] = v**2
        return (buf * W).sum() + float(pullback(1.0)[0])

    assert np.allclose(tg.grad(f)(x), 2 * x * W)


def test_nothing_is_kept_alive():
    buf = np.ones(3)
    c = forever(buf)

    def f(v):
        buf[:] = v
        return next(c).sum()

    with pytest.raises(tg.errors.RouteError):
        tg.grad(f)(x)
    gone, holder = weakref.ref(buf), weakref.ref(f)
    buf = c = f = None
    gc.collect()
    assert gone() is None and holder() is None


# --- programs that nobody wrote down: a holder in a holder in a holder ---

WRAPS = [
    dataset,
    lambda b: [b],
    lambda b: (1, b),
    lambda b: {"k": b},
    lambda b: types.SimpleNamespace(a=b),
    lambda b: itertools.repeat(b),
    lambda b: functools.partial(max, b),
    lambda b: collections.deque([None, b]),
    lambda b: np.array([b, None], object) if not isinstance(b, np.ndarray) else [b],
    lambda b: lambda: b,
    lambda b: Proxy(b),
    lambda b: types.MappingProxyType({"k": b}),
    lambda b: iter([b]),
    lambda b: operator.methodcaller("f", b),
    lambda b: frozenset([Hashed(b)]),
]


class Hashed:
    def __init__(self, b):
        self.b = b


def unwrapped(c, depth=0):
    """The first array that can be got out of c, as a program in f would."""
    if isinstance(c, (np.ndarray, tg.Variable)) and c.dtype.kind != "O":
        return c
    if depth > 8 or c is None or isinstance(c, (int, str)):
        return None
    if isinstance(c, (Dataset, types.SimpleNamespace, Hashed)):
        inside = list(vars(c).values())
    elif isinstance(c, Proxy):
        inside = [vars(c)["o"]]
    elif isinstance(c, (dict, types.MappingProxyType)):
        inside = list(c.values())
    elif isinstance(c, functools.partial):
        inside = list(c.args)
    elif isinstance(c, types.FunctionType):
        inside = [c()]
    elif isinstance(c, itertools.repeat):
        inside = [next(c)]
    elif isinstance(c, operator.methodcaller):
        inside = list(c.__reduce__()[1])
    else:
        inside = list(c)
    for v in inside:
        found = unwrapped(v, depth + 1)
        if found is not None:
            return found
    return None


def nested_holders(seed):
    rng = random.Random(seed)
    buf = np.ones(3)
    c = buf
    for _ in range(rng.randint(1, 4)):
        c = rng.choice(WRAPS)(c)
    first = rng.random() < 0.3

    def f(v):
        if first:
            held = unwrapped(c)
            buf[:] = v**2
            return (held * W).sum()
        buf[:] = v**2
        return (unwrapped(c) * W).sum()

    return f, buf, c


def search(seeds):
    loud = sum([right_or_route_error(nested_holders(s), 2 * x * W) for s in seeds])
    assert 0 < loud < len(seeds)  # some are followed, some are not


def test_random_holders():
    search(range(300))


@pytest.mark.long
def test_five_thousand_random_holders():
    search(range(300, 5300))


class Annotated(np.memmap):
    """An array with attributes: it is left alone."""


def test_the_function_of_a_ufunc_is_a_route():
    """`numpy.frompyfunc` keeps a Python function where only the garbage collector sees it."""
    buffer = np.zeros(3)
    window, holder = buffer[1:], np.zeros((2, 2)).view(Annotated)
    holder.read = np.frompyfunc(lambda k: window, 1, 1)

    def f(x):
        buffer[:] = x[1] * 0.4
        return holder.read(1).sum()

    with pytest.raises(tg.errors.RouteError):
        tg.grad(f)(np.ones(2))
    assert not buffer.any()
