"""Iterators made outside: the user's own gives the items, each as what stands for it; and what reads like
one: views of dicts, weak proxies, functions of elements, context variables, futures, exceptions.  And
captured views keep their layout."""

import collections
import concurrent.futures
import contextvars
import copy
import functools
import gc
import itertools
import operator
import threading
import weakref

import numpy as np
import pytest
import scipy.linalg.blas

import tapegrad as tg
from tapegrad._capture.iterators import walked_containers

x, W = np.array([0.7, -1.3, 2.1]), np.array([0.3, 1.7, -0.9])

MAKERS = {
    "list": lambda b: iter([b] * 4),
    "reversed list": lambda b: reversed([b] * 4),
    "tuple": lambda b: iter((b,) * 4),
    "values": lambda b: iter(dict.fromkeys("abcd", b).values()),
    "deque": lambda b: iter(collections.deque([b] * 4)),
    "repeat": itertools.repeat,
    "cycle": lambda b: itertools.cycle([b]),
    "chain": lambda b: itertools.chain([b], (b,), iter([b, b])),
    "islice": lambda b: itertools.islice([b] * 9, 1, 5),
    "tee": lambda b: itertools.tee([b] * 4)[1],
    "map": lambda b: map([b].__getitem__, itertools.repeat(0)),
    "map over two": lambda b: map(lambda a, k: a[k:], itertools.repeat(b), [0, 0, 0, 0]),
    "filter": lambda b: filter(lambda a: a is b, itertools.cycle([b, 1.0])),
    "compress": lambda b: itertools.compress(itertools.repeat(b), [1, 0, 1, 1, 1]),
    "rows": lambda b: map(operator.itemgetter(0), zip(itertools.repeat(b), itertools.count())),
    "begun": lambda b: (lambda it: (next(it), it)[1])(iter([b] * 5)),
}


def drawn(make, transform):
    """(derivative, what the buffer holds, how many items are left) of a program that writes the buffer by
    name and by item."""
    buf = np.ones(3)
    items = make(buf)

    def f(v):
        buf[:] = v**2
        inside = next(items)
        inside *= v[0]
        return (buf * W).sum() + (next(items) ** 2).sum()

    got = transform(f)
    return got, buf, len(list(itertools.islice(items, 20)))


def exact(v):
    a = v**2 * v[0]
    g = 2 * v * v[0] * (W + 2 * a)
    g[0] += (v**2 * (W + 2 * a)).sum()
    return g


@pytest.mark.parametrize("name", MAKERS)
def test_an_iterator_gives_what_stands_for_its_items(name):
    plain = drawn(MAKERS[name], lambda f: f(x))
    for transform in (tg.grad, lambda f: lambda v: tg.vjp(f, v)[1](1.0)):
        got, buf, left = drawn(MAKERS[name], lambda f, t=transform: t(f)(x))
        assert np.allclose(got, exact(x), rtol=1e-12)
        assert type(buf) is np.ndarray and np.allclose(buf, plain[1], rtol=1e-14)
        assert left == plain[2]
    slope, *_ = drawn(MAKERS[name], lambda f: tg.jvp(f, (x,), (W,))[1])
    assert np.isclose(slope, exact(x) @ W, rtol=1e-12)


def test_a_bound_next():
    buf = np.ones(3)
    draw = itertools.repeat(buf).__next__

    def f(v):
        buf[:] = v**2
        return (draw() * W).sum()

    assert np.allclose(tg.grad(f)(x), 2 * x * W)


def test_batches_out_of_a_captured_iterator():
    """A training loop: each call takes the next batch, and an epoch ends where it would."""
    data = np.arange(12.0).reshape(4, 3)
    batches = iter(data)
    seen = []

    def loss(w):
        batch = next(batches)
        seen.append(float(batch[0]))
        return ((batch * w) ** 2).sum()

    for k in range(4):
        assert np.allclose(tg.grad(loss)(x), 2 * data[k] ** 2 * x)
    assert seen == [0.0, 3.0, 6.0, 9.0]
    with pytest.raises(StopIteration):
        tg.grad(loss)(x)


def test_a_list_that_is_altered_under_its_iterator_raises():
    things = [np.ones(3), np.ones(3)]
    turn = iter(things)

    def f(v):
        things[1] = v * 2.0
        next(turn)
        return (next(turn) * v).sum()

    with pytest.raises(
        tg.errors.RouteError, match="the list .*was given other contents.*the list_iterator `turn`"
    ):
        tg.grad(f)(x)
    assert things[1].tolist() == [1.0, 1.0, 1.0]


def test_a_generator_of_written_arrays_raises_and_one_of_data_does_not():
    buf, data = np.ones(3), np.array([1.0, 2.0, 4.0])

    def rows(a):
        while True:
            yield a

    written, read = rows(buf), rows(data)

    def f(v):
        buf[:] = v
        return (next(written) * v).sum()

    with pytest.raises(tg.errors.RouteError, match="generator `written`"):
        tg.grad(f)(x)
    assert np.allclose(tg.grad(lambda v: (next(read) * v**2).sum())(x), 2 * data * x)


def test_a_fresh_array_out_of_a_generator_may_be_written():
    def made():
        while True:
            yield np.full(3, 2.0)

    source = made()

    def f(v):
        a = next(source)
        a *= v
        return (a * v).sum()

    assert np.allclose(tg.grad(f)(x), 4 * x)


def test_a_chain_with_code_in_it_is_left_alone():
    class Feed:
        def __iter__(self):
            yield from [buf * 2.0]

    buf = np.ones(3)
    feed = itertools.chain([np.zeros(3)], Feed())

    def f(v):
        buf[:] = v
        next(feed)
        return (next(feed) * v).sum()

    try:
        assert np.allclose(tg.grad(f)(x), 4 * x)
    except tg.errors.RouteError:
        pass


def test_copies_of_an_iterator():
    turn = iter([x * 1.0, x * 2.0])

    def f(v):
        again = copy.copy(turn)
        return (next(again) * v**2).sum() + (next(turn) * v).sum()

    assert np.allclose(tg.grad(f)(x), 2 * x * x + x)
    assert np.allclose(next(turn), x * 2)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_views_of_dicts(kind):
    table = kind(a=np.ones(3), b=np.ones(3))
    values, items, keys = table.values(), table.items(), table.keys()

    def f(v):
        table["a"][:] = v**2
        table["b"] = v * W
        table["c"] = v[0]
        assert len(values) == len(items) == 3 and "c" in keys
        return sum(np.sum(a * W) for a in values) + sum(np.sum(a) for k, a in items if k == "b")

    right = 2 * x * W + W * W + W + np.array([W.sum(), 0.0, 0.0])
    assert np.allclose(tg.grad(f)(x), right)
    assert np.allclose(table["b"], x * W) and table["c"] == 0.7 and type(table["a"]) is np.ndarray


def test_a_weak_proxy_is_its_object():
    class Node:
        def __init__(self, parent=None):
            self.state, self.parent = np.ones(3), parent and weakref.proxy(parent)

    root = Node()
    leaf = Node(root)

    def f(v):
        root.state[:] = v**2
        leaf.parent.state *= v
        return (root.state * W).sum()

    assert np.allclose(tg.grad(f)(x), 3 * x**2 * W)
    assert np.allclose(root.state, x**3)


def test_a_weak_reference_in_a_class():
    class Holder:
        state = np.ones(3)

    class Reader:
        held = weakref.ref(Holder)

    def f(v):
        Reader().held().state[:] = v**2
        return (Holder.state * W).sum()

    assert np.allclose(tg.grad(f)(x), 2 * x * W)


def test_methods_of_arrays_as_functions():
    """`numpy.ndarray.fill(a, 2)`, and through the type of an array."""
    buf = np.ones(3)

    def f(v):
        np.ndarray.fill(buf, v[0])
        np.ndarray.__setitem__(buf, 1, v[1])
        type(buf).__imul__(buf, 2.0)
        return sum(map(np.ndarray.sum, [buf * v, v])) + np.ndarray.dot(np.ones(3), v)

    right = 2 * v_times(x) + 2.0
    assert np.allclose(tg.grad(f)(x), right)
    assert np.allclose(buf, 2 * np.array([x[0], x[1], x[0]]))


def v_times(v):
    """The gradient of v0 v0 + v1 v1 + v0 v2."""
    return np.array([2 * v[0] + v[2], 2 * v[1], v[0]])


def test_functions_of_elements():
    """`numpy.vectorize` and `numpy.frompyfunc` outside of f: the function in them reads what f has
    written."""
    buf = np.ones(3)
    each = np.vectorize(lambda a: a * a + buf[0])
    some = np.frompyfunc(lambda a: buf[1] * a, 1, 1)
    typed = np.vectorize(lambda k: k * buf[2], otypes=[float])
    typed(x)  # fills its cache
    state = dict(vars(typed))

    def f(v):
        buf[:] = v
        return each(v).sum() + some(2.0) * v[1] + typed(np.ones(2)).sum()

    assert np.allclose(tg.grad(f)(x), 2 * x + np.array([3.0, 4 * x[1], 2.0]))
    buf[:] = x
    assert vars(typed) == state and np.allclose(typed(np.ones(2)), x[2])


def test_a_function_of_elements_that_gives_objects():
    buf = np.ones(3)
    each = np.vectorize(lambda k: [buf, None, "n"][k], otypes=[object])

    def f(v):
        buf[:] = v**2
        cells = each(np.array([[0, 1], [2, 0]]))
        assert cells.dtype == object and cells.shape == (2, 2) and cells[1, 0] == "n" and cells[0, 1] is None
        return (cells[1, 1] * W).sum()

    assert np.allclose(tg.grad(f)(x), 2 * x * W)


def test_functions_of_elements_with_constants():
    """`excluded`, keywords, and objects that are numbers, a list or a tuple."""
    powers = np.vectorize(lambda a, p: a ** p[0] + p[1], excluded=[1, "p"])
    numbers = np.vectorize(lambda a: a**2, otypes=[object])
    pairs = np.vectorize(lambda a: (a, a**2), otypes=[object])

    def f(v):
        y = powers(v, [2.0, v[0]]) + powers(a=v, p=[3.0, 1.0]) + numbers(v).astype(float)
        return y.sum() + np.array(pairs(v[1]).tolist()).sum() + pairs(v)[2][1]

    h = 1e-6
    wanted = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(tg.value_and_grad(f)(x)[0], f(x))
    np.testing.assert_allclose(tg.grad(f)(x), wanted, rtol=1e-7)


def test_an_object_array_without_axes():
    cell = np.empty((), object)
    cell[()] = np.ones(3)

    def f(v):
        cell[()][:] = v**2
        return (cell[()] * W).sum()

    assert np.allclose(tg.grad(f)(x), 2 * x * W)
    assert np.allclose(cell[()], x**2)


# --- captured views lie as they lie ---

VIEWS = {
    "every second": lambda: np.linspace(0.1, 0.9, 8)[::2],
    "reversed": lambda: np.linspace(0.1, 0.9, 8)[::-2],
    "columns": lambda: np.linspace(0.1, 0.9, 12).reshape(3, 4)[:, 1:3],
    "part of a cube": lambda: np.linspace(0.1, 0.9, 24).reshape(2, 3, 4)[:, 1:, ::2],
    "rows of a Fortran matrix": lambda: np.full((3, 4), 0.4, order="F")[1:],
    "real part": lambda: np.full(4, 0.5 + 0j).real,
    "field": lambda: np.zeros(3, [("a", float), ("b", float)])["b"],
    "transposed": lambda: np.linspace(0.1, 0.9, 12).reshape(3, 4).T,
    "slice": lambda: np.linspace(0.1, 0.9, 8)[1:6],
}
QUESTIONS = {
    "reshape": lambda a: a.reshape(-1),
    "ravel": lambda a: a.ravel(),
    "ravel F": lambda a: a.ravel("F"),
    "reshape F": lambda a: a.reshape(-1, order="F"),
    "turned": lambda a: a.T.reshape(-1),
    "contiguous": lambda a: np.ascontiguousarray(a).reshape(-1),
    "Fortran": lambda a: np.asfortranarray(a).ravel("F"),
}


@pytest.mark.parametrize("written", [False, True], ids=["cold", "written"])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", VIEWS)
def test_a_captured_view_answers_as_it_lies(name, question, written):
    """View or copy: what is scaled by it afterwards is seen in the array, or is not, as in a plain call."""
    ask = QUESTIONS[question]

    def run(transform):
        a = VIEWS[name]()

        def f(t):
            if written:
                a[...] = a * t
            r = ask(a)
            if r.flags.writeable:
                r *= t * t
            return (np.sin(r) * t).sum() + (a * a).sum()

        return transform(f), a

    h = 1e-4
    at = lambda t: run(lambda f: f(t))[0]
    slope = (8 * (at(0.8 + h) - at(0.8 - h)) - (at(0.8 + 2 * h) - at(0.8 - 2 * h))) / (12 * h)
    value, after = run(lambda f: f(0.8))
    (got, derivative), left = run(lambda f: tg.value_and_grad(f)(0.8))
    assert np.isclose(got, value, rtol=1e-13) and np.isclose(derivative, slope, rtol=1e-8)
    assert np.allclose(left, after, rtol=1e-14)


@pytest.mark.parametrize("name", ["every second", "columns", "field"])
def test_a_library_that_writes_asks_the_layout_too(name):
    def run(transform):
        a = VIEWS[name]()

        def f(t):
            scipy.linalg.blas.dscal(0.5, a.reshape(-1))
            return (a * t).sum()

        return transform(f)

    assert np.isclose(run(lambda f: tg.value_and_grad(f)(1.0))[0], run(lambda f: f(1.0)))


def test_a_window_over_a_view_whose_root_nobody_holds():
    a = np.linspace(0.1, 0.9, 8)[1:6]
    windows = np.lib.stride_tricks.sliding_window_view(a, 2)

    def f(v):
        a[:3] = v**2
        return windows.sum(1) @ np.array([1.0, 2.0, 3.0, 4.0])

    assert np.allclose(tg.grad(f)(x), 2 * x * np.array([1.0, 3.0, 5.0]))


def test_reduction_over_a_captured_iterator():
    parts = [np.ones(3), np.full(3, 2.0)]

    def f(v):
        parts[0][:] = v**2
        return (functools.reduce(operator.add, turn) * W).sum()

    turn = iter(parts)
    assert np.allclose(tg.grad(f)(x), 2 * x * W)
    assert next(turn, None) is None


# --- context variables, results of futures, exceptions ---


def test_a_context_variable():
    held, buf = [np.ones(3)], np.ones(3)
    state, settings = contextvars.ContextVar("state"), contextvars.ContextVar("settings", default=held)
    state.set(buf)

    def f(v):
        buf[:] = v**2
        state.get().__imul__(v)
        y = (state.get() * W).sum()
        token = state.set(v * 3.0)
        settings.get()[0] = v
        y = y + (state.get() * settings.get()[0]).sum()
        state.reset(token)
        assert contextvars.ContextVar("none").get(7.0) == 7.0 and state.name == "state"
        state.set([state.get() * v])
        return y

    assert np.allclose(tg.grad(f)(x), 3 * x**2 * W + 6 * x)
    assert np.allclose(buf, x**3) and np.allclose(state.get()[0], x**4) and np.allclose(settings.get()[0], x)
    assert type(state.get()[0]) is type(settings.get()[0]) is np.ndarray


def test_a_context_variable_is_set_back_after_a_route_error():
    state, buf = contextvars.ContextVar("state", default=1.0), np.ones(3)

    def forever():
        while True:
            yield buf

    source = forever()

    def f(v):
        buf[:] = v
        state.set(v)
        return (next(source) * state.get()).sum()

    with pytest.raises(tg.errors.RouteError):
        tg.grad(f)(x)
    assert state.get() == 1.0 and buf.tolist() == [1.0, 1.0, 1.0]


def test_the_result_of_a_future():
    buf = np.ones(3)
    done, running = concurrent.futures.Future(), concurrent.futures.Future()
    done.set_result({"a": buf})

    def f(v):
        buf[:] = v**2
        threading.Timer(0.01, running.set_result, (2.0,)).start()
        return (done.result()["a"] * W).sum() * running.result()

    assert np.allclose(tg.grad(f)(x), 4 * x * W)
    assert np.allclose(done.result()["a"], x**2) and running.result() == 2.0


def test_an_exception_that_holds_an_array():
    class Stop(Exception):
        pass

    buf = np.ones(3)
    found = Stop(buf, "why")
    found.best = [buf]

    def f(v):
        buf[:] = v**2
        try:
            raise found
        except Stop as e:
            assert e.args[1] == "why"
            e.best.append(v)
            return (e.args[0] * W).sum() + e.best[0] @ e.best[1]

    assert np.allclose(tg.grad(f)(x), 2 * x * W + 3 * x**2)
    assert found.args[0] is buf and type(found.best[1]) is np.ndarray and found.__traceback__ is None


# --- random iterators over iterators ---

OVER = {
    "zip": lambda *its: zip(*its, strict=False),
    "enumerate": lambda it, *_: enumerate(it),
    "chain": lambda *its: itertools.chain(*its),
    "chain of a list": lambda *its: itertools.chain.from_iterable([*its]),
    "islice": lambda it, *_: itertools.islice(it, 5),
    "cycle": lambda it, *_: itertools.cycle(it),
    "zip_longest": lambda *its: itertools.zip_longest(*its),
    "tee": lambda it, *_: itertools.tee(it)[1],
    "compress": lambda it, *_: itertools.compress(it, [1, 0, 1]),
    "pairwise": lambda it, *_: itertools.pairwise(it),
    "accumulate": lambda it, *_: itertools.accumulate(it, initial=0.0),
    "groupby": lambda it, *_: itertools.groupby(it),
}
OF_CODE = {
    "starmap": lambda it: itertools.starmap(lambda *a: a, it),
    "takewhile": lambda it: itertools.takewhile(lambda a: True, it),
    "accumulate with a function": lambda it: itertools.accumulate(it, lambda a, b: a),
    "groupby with a key": lambda it: itertools.groupby(it, lambda a: a),
    "map": lambda it: map(operator.neg, it),
    "generator": lambda it: (a for a in it),
}


@pytest.mark.parametrize("seed", range(200))
def test_containers_under_random_iterators(seed):
    rng = np.random.default_rng(seed)
    lists = []

    def drawn(depth):
        if depth == 0 or rng.random() < 0.2:
            lists.append([float(v) for v in rng.random(rng.integers(1, 4))])
            return iter(lists[-1]) if rng.random() < 0.5 else reversed(lists[-1])
        made = OVER[str(rng.choice([*OVER]))](*[drawn(depth - 1) for _ in range(2)])
        return itertools.chain(made, [1.0]) if rng.random() < 0.2 else made

    x = drawn(int(rng.integers(1, 4)))
    inner = gc_reachable(x)
    expected = {id(c) for c in lists if id(c) in inner}  # (some take one of their two arguments only)
    assert expected <= {id(c) for c in walked_containers(x)}
    name = str(rng.choice([*OF_CODE]))
    assert walked_containers(OF_CODE[name](drawn(1))) is None, name
    assert walked_containers(zip(drawn(1), OF_CODE[name](drawn(1)), strict=True)) is None, name


def gc_reachable(x):
    met, todo = set(), [x]
    while todo:
        v = todo.pop()
        if id(v) not in met and not isinstance(v, type):
            met.add(id(v))
            todo += gc.get_referents(v)
    return met
