"""A transform that is called again keeps what it made of the captured objects (`_capture.remembered`): it must
see every change between two calls, and nothing may show that it keeps anything."""

import functools
import gc
import subprocess
import sys
import threading
import types
import typing
import warnings
import weakref

import numba
import numpy as np
import pytest
import scipy.stats

import tapegrad as tg
from tapegrad._capture.remembered import MOST_FUNCTIONS, memory_of

X = np.array([0.3, -0.7, 1.1])


def warm(f, calls=3):
    """A transform whose shadow waits."""
    v = tg.value_and_grad(f)
    for _ in range(calls):
        v(X)
    assert memory_of(f).waiting
    return v


def unremembered(f):
    """The same function, of which no call has been seen."""
    return types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)


def agrees(v, f, x=X):
    value, gradient = v(x)
    expected, slope = tg.value_and_grad(unremembered(f))(x)
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(gradient, slope)
    np.testing.assert_allclose(value, f(x), rtol=1e-12)


class Part:
    scale = 2.0

    def __init__(self, k):
        self.weight, self.number, self.name = np.full(3, 0.5 + k), 0.1 * k, f"part{k}"

    def of(self, x):
        return self.scale * np.sum(np.sin(self.weight * x) + self.number)


class Other(Part):
    def of(self, x):
        return np.sum(self.weight * x**2)


class Model:
    def __init__(self, parts=3):
        self.parts = [Part(k) for k in range(parts)]
        self.table = {f"key{k}": np.full(3, 1.0 + k) for k in range(4)}
        self.many = {k: np.full(3, 0.2 * k) for k in range(50)}
        self.options = {"power": 2, "chosen": "key1"}
        self.pair = (np.array([1.0, 2.0, 3.0]), [1.0, 2.0])
        self.matrix = np.arange(9.0).reshape(3, 3) / 9

    def __call__(self, x):
        return self.value(x)

    def value(self, x):
        found = sum([part.of(x) for part in self.parts])
        found = found + np.sum(self.table[self.options["chosen"]] * x ** self.options["power"])
        found = found + np.sum(self.many[7] * np.cos(x)) + np.dot(self.pair[0], x) * sum(self.pair[1])
        return found + x @ self.matrix @ x


def made(model=None):
    model = model or Model()
    return model, lambda x: model.value(x)


class Slotted:
    __slots__ = ("a", "b", "__weakref__")

    def __init__(self):
        self.a, self.b = np.ones(3), 2.0

    def value(self, x):
        return np.sum(self.a * x) * self.b


CHANGES = {
    "a number": lambda m: setattr(m.parts[1], "number", 5.0),
    "an array": lambda m: setattr(m.parts[1], "weight", np.full(3, 7.0)),
    "elements": lambda m: m.parts[1].weight.__setitem__(0, 9.0),
    "a member of a list": lambda m: m.parts.__setitem__(0, Part(8)),
    "a longer list": lambda m: m.parts.append(Part(4)),
    "a shorter list": lambda m: m.parts.pop(),
    "a permuted list": lambda m: m.parts.reverse(),
    "a value of a dict": lambda m: m.table.update(key1=np.full(3, -4.0)),
    "a value of a long dict": lambda m: m.many.__setitem__(7, np.full(3, -4.0)),
    "an option": lambda m: m.options.update(power=3),
    "a choice": lambda m: m.options.update(chosen="key3"),
    "the numbers in a list": lambda m: m.pair[1].append(4.0),
    "an array in a list of numbers": lambda m: m.pair[1].append(np.float64(2.0)),
    "a class of an object": lambda m: setattr(m.parts[-1], "__class__", Other),
    "a member hidden by an attribute": lambda m: setattr(m.parts[0], "scale", np.full(3, 3.0).sum()),
    "a method of an object": lambda m: setattr(m.parts[0], "of", lambda x: np.sum(x**3)),
    "an alias": lambda m: setattr(m.parts[0], "weight", m.table["key1"]),
    "a view": lambda m: setattr(m.parts[0], "weight", m.matrix[0]),
    "a number for an array": lambda m: setattr(m.parts[0], "weight", 1.5),
    "an attribute deleted": lambda m: (setattr(m, "parts", m.parts[:2]), delattr(m.parts[0], "name")),
    "everything": lambda m: vars(m).update(vars(Model(4))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_between_calls_are_seen(change):
    model, f = made()
    v = warm(f)
    agrees(v, f)
    change(model)
    for _ in range(3):
        agrees(v, f)


def test_changed_classes_and_functions_are_seen(monkeypatch):
    def helper(x, scale=1.0):
        return scale * np.sum(x**2)

    model, _ = made()
    f = lambda x: model.value(x) + helper(x)
    v = warm(f)
    monkeypatch.setattr(Part, "scale", 3.0)
    agrees(v, f)
    agrees(v, f)
    monkeypatch.setattr(Part, "of", lambda self, x: np.sum(self.weight * x**4))
    agrees(v, f)
    agrees(v, f)
    helper.__defaults__ = (4.0,)
    agrees(v, f)
    agrees(v, f)
    helper.__code__ = (lambda x, scale=1.0: scale * np.sum(x**5)).__code__
    agrees(v, f)
    agrees(v, f)
    model = Model(1)  # the cell
    agrees(v, f)
    agrees(v, f)


GLOBAL = np.ones(3)


def test_changed_globals_are_seen(monkeypatch):
    f = lambda x: np.sum(GLOBAL * np.sin(x))
    v = warm(f)
    monkeypatch.setitem(globals(), "GLOBAL", np.full(3, 4.0))
    agrees(v, f)
    GLOBAL[1] = -1.0
    agrees(v, f)
    monkeypatch.setitem(globals(), "GLOBAL", 2.5)
    agrees(v, f)
    monkeypatch.setitem(globals(), "sum", lambda xs: 7.0)  # hides a builtin
    g = lambda x: np.sum(x) * sum([1.0, 2.0])
    w = warm(g)
    monkeypatch.delitem(globals(), "sum")
    agrees(w, g)
    agrees(w, g)


def test_slots_and_deleted_names():
    s = Slotted()
    f = lambda x: np.sum(s.a * x) * s.b
    v = warm(f)
    s.b = 3.0
    agrees(v, f)
    s.a = np.full(3, 2.0)
    agrees(v, f)
    del s.b
    with pytest.raises(AttributeError):
        v(X)
    s.b = 1.0
    agrees(v, f)
    del s
    with pytest.raises(NameError):
        v(X)
    s = Slotted()
    agrees(v, f)


def as_function(model):
    return lambda x: model.value(x)


KINDS_OF_FUNCTIONS = {
    "function": as_function,
    "method": lambda model: model.value,
    "callable": lambda model: model,
}
FIRST_ORDERS = {
    "value_and_grad": lambda f: tg.value_and_grad(f)(X),
    "grad": lambda f: (f(X), tg.grad(f)(X)),
    "jvp": lambda f: (f(X), np.array([tg.jvp(f, (X,), (e,))[1] for e in np.eye(3)])),
    "vjp": lambda f: (f(X), tg.vjp(f, X)[1](1.0)),
    "jacobian": lambda f: (f(X), tg.jacobian(f)(X)),
    "linearize": lambda f: (f(X), tg.linearize(f, X)[1].T(1.0)),
    "second order": lambda f: (tg.hvp(f, X, np.ones(3)), tg.hessian(f)(X).sum(0)),
}


@pytest.mark.parametrize("seed", [0, *[pytest.param(k, marks=pytest.mark.long) for k in range(1, 30)]])
@pytest.mark.parametrize("kind", KINDS_OF_FUNCTIONS)
def test_random_changes(kind, seed):
    """Two equal worlds: in one all transforms use a memory, in the other no function is called twice."""
    rng = np.random.default_rng([seed, len(kind)])
    worlds = Model(), Model()
    f = KINDS_OF_FUNCTIONS[kind](worlds[0])
    names = [name for name in CHANGES if name not in ("an attribute deleted", "a shorter list")]
    reused, kept = 0, []
    for _ in range(60):
        f = worlds[0].value if kind == "method" else f
        reused += bool(memory_of(f).waiting)
        order = rng.choice([*FIRST_ORDERS])
        results = FIRST_ORDERS[order](f), FIRST_ORDERS[order](as_function(worlds[1]))
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)
        kept = [*kept[-2:], (tg.vjp(f, X)[1], tg.grad(as_function(worlds[1]))(X))]
        for pullback, gradient in kept:  # what was changed meanwhile does not matter
            np.testing.assert_allclose(pullback(1.0), gradient, rtol=1e-13)
        memory_of(f).failures = 0
        if rng.uniform() < 0.2:
            name = names[rng.integers(len(names))]
            for m in worlds:
                CHANGES[name](m)
    assert reused > 15


def test_writes_are_handed_back_in_each_call():
    class Counter:
        def __init__(self):
            self.calls, self.buffer, self.log, self.last = 0, np.zeros(3), [], None
            self.numbers = {"first": 1.0}

    c = Counter()

    def f(x):
        if c.calls % 4 == 3:
            c.numbers["seen"] = x[1]
            c.buffer[1] += 1.0
            c.last = x * 2
            c.log.append(x[0])
        return np.sum(x**2 * (1 + c.buffer)) * c.numbers["first"]

    v = tg.value_and_grad(f)
    for n in range(16):
        c.calls = n
        before = c.buffer.copy()
        value, gradient = v(X)
        if n % 4 == 3:
            before[1] += 1
            assert type(c.last) is np.ndarray and type(c.log[-1]) is np.float64
            assert type(c.numbers["seen"]) is np.float64
        np.testing.assert_array_equal(c.buffer, before)
        np.testing.assert_allclose(gradient, 2 * X * (1 + before))
        np.testing.assert_allclose(value, np.sum(X**2 * (1 + before)))
    assert c.buffer[1] == 4 and len(c.log) == 4


def test_an_array_is_written_that_became_an_alias():
    """Both are read before the write; afterwards they are views of one memory."""
    model = types.SimpleNamespace(a=np.zeros(3), b=np.zeros(3), write=False)

    def f(x):
        if model.write:
            model.a[:] = x
        return np.sum(model.a * x) + np.sum(model.b * x**2)

    v = warm(f)
    whole = np.zeros(6)
    model.a, model.b, model.write = whole[:3], whole[1:4], True
    value, gradient = v(X)
    y = np.append(X[1:], 0.0)
    np.testing.assert_allclose(value, np.sum(X * X) + np.sum(y * X**2))
    np.testing.assert_allclose(gradient, 2 * X + np.append(0.0, X[:2] ** 2) + 2 * X * y)


def test_a_view_whose_base_is_named_later():
    base = np.arange(6.0)
    model = types.SimpleNamespace(part=base[1:4], other=np.zeros(3), write=False)
    del base

    def f(x):
        if model.write:
            model.part[:] = x * 2
        return np.sum(model.part * x) + np.sum(model.other * x)

    v = warm(f)
    model.other, model.write = model.part.base[2:5], True
    value, gradient = v(X)
    other = np.array([2 * X[1], 2 * X[2], 4.0])
    np.testing.assert_allclose(value, np.sum(2 * X * X) + np.sum(other * X))
    np.testing.assert_allclose(gradient, 4 * X + other + np.array([0, 2 * X[0], 2 * X[1]]))


def test_a_shadow_waits_on_where_a_view_of_its_arrays_vanishes():
    base = np.arange(6.0)
    part, others = base[1:4], [base[2:], base[3:]]

    def f(x):
        return np.sum(part * x**2)

    v = warm(f)
    (shadow,) = memory_of(f).waiting
    others.pop()
    agrees(v, f)
    assert memory_of(f).waiting == [shadow]
    others += [base[:2], base[:3]]  # more than there were
    agrees(v, f)
    assert shadow not in memory_of(f).waiting


def test_errors_do_not_spoil_later_calls():
    model, f = made()
    v = warm(f)
    model.options["power"] = "two"
    with pytest.raises(TypeError):
        v(X)
    with pytest.raises(TypeError):
        f(X)
    model.options["power"] = 2
    agrees(v, f)
    with pytest.raises(ValueError):
        v(np.ones(5))
    agrees(v, f)
    agrees(v, f)


def test_what_leaks_is_the_users_own():
    """What f hands to somebody else holds plain values afterwards, and the next call does not touch it."""
    model, leaked = Model(), []

    def run(x):
        value = model.value(x)
        if leak:
            sink(model.parts[0], model.table)
        return value

    def sink(*objects):
        leaked.append(objects)

    leak = False
    f = lambda x: run(x)
    v = warm(f)
    leak = True
    for _ in range(3):
        v(X)
    assert len(leaked) == 3
    for part, table in leaked:
        assert part is model.parts[0] and table is model.table
    leak = False
    agrees(v, f)
    agrees(v, f)


def test_an_exception_that_keeps_the_frame():
    model, f = made()
    v = warm(f)
    errors = []

    def g(x):
        try:
            raise ValueError(model.parts[0])
        except ValueError as error:
            errors.append(error)
        return f(x)

    w = tg.value_and_grad(g)
    for _ in range(4):
        w(X)
    agrees(v, f)
    assert all([type(e.args[0]) is Part for e in errors])
    assert all([type(e.args[0].weight) is np.ndarray for e in errors])


def test_threads_share_a_transform():
    model, f = made()
    v, expected = warm(f), tg.value_and_grad(unremembered(f))
    wrong = []

    def work(k):
        for n in range(12):
            x = X + 0.01 * (n + k)
            for a, b in zip(v(x), expected(x), strict=True):
                if not np.array_equal(a, b):
                    wrong.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong
    agrees(v, f)


def test_nothing_stays_after_the_transform():
    model, f = made()
    v = warm(f)
    met = weakref.ref(model), weakref.ref(model.parts[0])
    gc.disable()
    try:
        del model, f, v
        assert [r() for r in met] == [None, None]
    finally:
        gc.enable()


def anew(f):
    """A transform that is made for each call."""
    return lambda x: tg.value_and_grad(f)(x)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_new_transform_for_each_call_sees_changes(change):
    model, f = made()
    warm(f)
    shadow = memory_of(f).waiting[0].shadow
    tg.grad(f)(X)
    assert memory_of(f).waiting[0].shadow is shadow
    change(model)
    for _ in range(3):
        agrees(anew(f), f)


def test_a_changed_function_is_seen():
    table = {"k": np.full(3, 2.0)}

    def f(x, scale=1.0):
        return scale * np.sum(table["k"] * x**2)

    def other(x, scale=1.0):
        return scale * np.sum(table["k"] * np.sin(x))

    warm(f)
    for name, new in {
        "__defaults__": (3.0,),
        "__code__": other.__code__,
        "__dict__": {"weight": np.full(3, 2.0)},
    }.items():
        setattr(f, name, new)
        for _ in range(3):
            agrees(anew(f), f)


@pytest.mark.parametrize("kind", KINDS_OF_FUNCTIONS)
def test_functions_live_no_longer_than_without(kind):
    model = Model()
    f = KINDS_OF_FUNCTIONS[kind](model)
    for run in (*FIRST_ORDERS.values(), *FIRST_ORDERS.values()):
        run(f)
    assert memory_of(f).waiting
    met = weakref.ref(model), weakref.ref(f)
    gc.disable()
    try:
        del model, f
        assert [r() for r in met] == [None, None]
    finally:
        gc.enable()


def test_methods_of_an_object_with_slots():
    s = Slotted()
    for b in (2.0, 2.0, 2.0, 3.0, 3.0, 4.0):
        s.b = b
        np.testing.assert_array_equal(tg.grad(s.value)(X), np.full(3, b))
    assert memory_of(s.value).waiting
    other = Slotted()
    other.b = 7.0
    np.testing.assert_array_equal(tg.grad(other.value)(X), np.full(3, 7.0))
    gone = weakref.ref(s)
    del s
    assert gone() is None


def test_two_methods_of_an_object_have_two_memories():
    class Two:
        def __init__(self):
            self.a = np.full(3, 2.0)

        def first(self, x):
            return np.sum(self.a * x)

        def second(self, x):
            return np.sum(self.a * x**2)

    both = Two()
    for k in range(6):
        both.a[0] = k
        np.testing.assert_array_equal(tg.grad(both.first)(X), both.a)
        np.testing.assert_array_equal(tg.grad(both.second)(X), 2 * both.a * X)
    assert memory_of(both.first).waiting and memory_of(both.second).waiting


def test_functions_that_reach_themselves_are_let_go():
    def one():
        model, _ = made()

        def f(x):
            return model.value(x) if f else 0.0

        for _ in range(4):
            anew(f)(X)
        return weakref.ref(model)

    first = one()
    kept = [(lambda x, k=k: k * np.sum(x)) for k in range(MOST_FUNCTIONS)]
    for g in kept:
        anew(g)(X)
    gc.collect()
    assert first() is None


def test_one_call_keeps_nothing():
    model, f = made()
    v = tg.value_and_grad(f)
    v(X)
    part = weakref.ref(model.parts[2])
    del model.parts[2]
    assert part() is None


def test_a_warm_transform_within_others():
    model, f = made()
    g = tg.grad(f)
    for _ in range(4):
        g(X)
    assert memory_of(f).waiting
    slope = tg.jacobian(g)(X)
    np.testing.assert_allclose(slope, tg.hessian(f)(X), rtol=1e-12)
    np.testing.assert_allclose(tg.jvp(g, (X,), (X,))[1], slope @ X, rtol=1e-12)
    np.testing.assert_allclose(tg.vmap(g)(np.stack([X, 2 * X]))[1], g(2 * X), rtol=1e-12)
    np.testing.assert_allclose(tg.prepare(g, X)(X), g(X), rtol=1e-12)
    agrees(tg.value_and_grad(f), f)


def test_isinstance_and_subclasses_while_a_shadow_waits():
    model, f = made()
    before = Part.__subclasses__(), type(model.parts[0]), list(vars(model))
    v = warm(f)
    assert before == (Part.__subclasses__(), type(model.parts[0]), list(vars(model)))
    assert not any(["shadow" in str(k) for k in Part.__subclasses__()])
    agrees(v, f)


def test_arrays_that_share_memory_by_chance_raise_in_each_call():
    """They cannot be views of one Variable, which holds for one call."""
    raw = bytearray(8 * 6)
    a, b = np.frombuffer(raw, float), np.frombuffer(raw, np.float32)
    model = types.SimpleNamespace(write=False)

    def f(x):
        if model.write:
            a[:3] = x
        return np.sum(a[:3] * x) + np.sum(b[:3] * x)

    v = tg.value_and_grad(f)
    for _ in range(4):
        v(X)
    model.write = True
    for _ in range(4):
        with pytest.raises(tg.errors.AliasError):
            v(X)


def test_different_branches_in_turn():
    model, f = made()
    branch = iter(range(1000))

    def g(x):
        k = state["k"]
        return f(x) if k % 3 else np.sum(model.many[k % 50] * x) + np.sum(model.table[f"key{k % 4}"] * x**2)

    state = {"k": 0}
    v = tg.value_and_grad(g)
    for k in branch:
        if k == 60:
            break
        state["k"] = k
        agrees(v, g)
    assert memory_of(g).failures <= 12


def test_a_later_call_writes_what_holds_only_numbers():
    store, log, buffer = {"a": 1.0}, [1.0], np.zeros(3)

    def f(x):
        if x[0] > 1.0:
            store["b"], buffer[1] = x[1] * 2, x[2]
            log.append(x[2])
        return np.sum(x**2) * store["a"] * log[0] + np.sum(buffer * x)

    v = warm(f)
    value, gradient = v(X + 1)
    assert type(store["b"]) is np.float64 and type(log[1]) is np.float64 and type(buffer) is np.ndarray
    np.testing.assert_allclose(buffer, [0.0, X[2] + 1, 0.0])
    np.testing.assert_allclose(gradient, 2 * (X + 1) + [0.0, X[2] + 1, X[1] + 1])
    agrees(v, f)
    agrees(v, f)


COMPILED = """
import numba
import numpy as np
import tapegrad as tg

@numba.njit
def count(a):
    return a.sum()

def compiled(x):
    return x.sum() * count(np.full(4, 2))

def shrunk(x):
    out = x * 1.0
    while not (out < 0.3).all():
        out = np.where(out < 0.3, out, out * 0.6)
    return (out**2).sum()

for f in (shrunk, compiled):
    for _ in range(6):
        tg.value_and_grad(f)(np.ones(5))
"""


@pytest.mark.long
def test_the_end_of_a_process_is_silent():
    """Modules that a copy would need are gone when the last objects of a process go."""
    ended = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


class Row:
    """Fields by name; one that is missing is a KeyError."""

    def __init__(self, **fields):
        self.fields = fields

    def __getattr__(self, name):
        if name == "fields":
            raise AttributeError(name)
        return self.fields[name]


def test_questions_about_an_object_do_not_run_its_getattr():
    row = Row(scale=np.array([1.0, 2.0, 3.0]))

    def f(x):
        return np.sum(row.scale * x**2)

    for _ in range(4):
        np.testing.assert_array_equal(tg.grad(f)(X), 2 * row.fields["scale"] * X)


def test_an_annotation_shows_the_class_that_the_function_sees():
    class Length:
        size = np.array([1.0, 2.0, 3.0])

    alias = typing.Annotated[Length, Length.size]

    def f(x):
        kind, size = alias.__origin__, alias.__metadata__[0]
        assert kind is Length
        Length.size[0] = 5.0
        return np.sum(x * size * kind.size)

    np.testing.assert_array_equal(tg.grad(f)(X), [25.0, 4.0, 9.0])


class Cell:
    """Is asked for its hash by what holds it, and knows other cells."""

    def __init__(self, k):
        self.k, self.near = k, []

    def __hash__(self):
        return hash(self.k)


CELLS = [Cell(k) for k in range(6)]
for cell in CELLS:
    cell.near += CELLS
SOME = {"first": CELLS[0]}


def test_what_no_call_reads_is_not_read_between_calls():
    f = lambda x: np.sum(SOME["first"].k + x**2)
    v = warm(f)
    (waiting,) = memory_of(f).waiting
    met = len(waiting.shadow.seen)
    for _ in range(3):
        v(X)
        assert memory_of(f).waiting == [waiting] and len(waiting.shadow.seen) == met
    SOME["first"].k = 3.0
    try:
        agrees(v, f)
    finally:
        SOME["first"].k = 0


def test_what_a_cycle_of_the_call_holds_has_not_leaked():
    class Node:
        def __init__(self, get):
            self.get, self.own = get, self

    square = lambda x: x**2

    def f(x):
        node = Node(square)
        gc.collect()  # it is old when the call ends
        return np.sum(node.get(x))

    agrees(warm(f), f)


def test_a_wrapper_of_what_numba_compiled_waits():
    compiled = numba.njit(lambda x: 2.0 * x)

    @functools.wraps(compiled)
    def outer(x):
        return compiled(x)

    f = lambda x: outer(x[0]) * x[1]
    v = warm(f)
    assert not memory_of(f).waiting[0].shadow.left
    outer.scale = 2.0
    agrees(v, f)


LAWS = {"law": scipy.stats.norm}
SCALED = numba.vectorize(lambda t: 3.0 * t)


def test_what_stands_for_a_librarys_object_waits():
    f = lambda x: np.sum(LAWS["law"].logpdf(x) * SCALED(x))
    v = warm(f)
    agrees(v, f)
    LAWS["law"] = scipy.stats.logistic
    agrees(v, f)
    LAWS["law"] = scipy.stats.norm


def test_a_shadow_waits_where_python_has_noted_a_warning():
    def f(x):
        warnings.warn("an old function", stacklevel=1)
        return np.sum(x**2)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        agrees(warm(f), f)
    assert len(told) == 1


class Counted:
    made, scale = 0, 2.0

    def __init__(self):
        self.calls = 0

    def value(self, x):
        Counted.made += 1
        self.calls += 1
        return Counted.made * np.sum(x**2) + self.calls * np.sum(x)


COUNTS = 0


def test_a_shadow_waits_where_a_call_counts(monkeypatch):
    monkeypatch.setattr(Counted, "made", 0)
    calls, model = 0, Counted()

    def f(x):
        nonlocal calls
        global COUNTS
        calls += 1
        COUNTS += 1
        return model.value(x) + calls * COUNTS * x[0]

    monkeypatch.setitem(f.__globals__, "COUNTS", 0)
    v, first = tg.value_and_grad(f), np.array([1.0, 0.0, 0.0])
    for n in range(1, 6):
        _, gradient = v(X)
        np.testing.assert_allclose(gradient, 2 * n * X + n + n * n * first, rtol=1e-14)
        assert (calls, COUNTS, model.calls, Counted.made) == (n, n, n, n)
    assert memory_of(f).waiting
    calls, Counted.made, model.calls = 10, 20, 30
    _, gradient = v(X)
    np.testing.assert_allclose(gradient, 42 * X + 31 + 11 * 6 * first, rtol=1e-14)


def test_a_shadow_waits_with_what_belongs_to_a_thread():
    own = threading.local()
    own.scale = np.full(3, 2.0)
    v = warm(lambda x: np.sum(own.scale * x**2))
    found = []

    def elsewhere():
        own.scale = np.full(3, 5.0)
        found.append([v(X)[1] for _ in range(3)])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    np.testing.assert_allclose(found, 10 * np.broadcast_to(X, (1, 3, 3)), rtol=1e-14)
    np.testing.assert_allclose(v(X)[1], 4 * X, rtol=1e-14)


def test_a_shadow_waits_where_each_call_makes_a_class():
    def f(x):
        class Squared:
            def __call__(self, y):
                return np.sum(y**2)

        return Squared()(x)

    v = warm(f, 5)
    gc.collect()
    for _ in range(12):
        v(X)
    assert memory_of(f).waiting
