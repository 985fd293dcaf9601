"""What a call leaves in objects, under `prepare`: that of a plain call of the transform."""

import collections
import copy
import dataclasses
import types
import warnings

import numpy as np
import pytest
from keeping_methods import random_method

import tapegrad as tg
from tapegrad.errors import GuardError, ReplayWarning

X = np.array([0.5, 0.25, 1.5])
POINTS = [X, 1.1 * X, np.array([-1.5, 0.25, 0.4]), X, 0.9 * X, np.array([2.0, -1.0, 0.1]), 0.8 * X, 1.2 * X]
FORMS = {
    "value": (lambda p, x: p.value(x), lambda f, x: f(x.copy())),
    "value_and_grad": (lambda p, x: p.value_and_grad(x), lambda f, x: tg.value_and_grad(f)(x)),
    "jvp": (lambda p, x: p.jvp(x, X), lambda f, x: tg.jvp(f, (x,), (X,))),
    "hvp": (lambda p, x: p.hvp(x, X), lambda f, x: tg.hvp(f, x, X)),
    "hessian": (lambda p, x: p.hessian(x), lambda f, x: tg.hessian(f)(x)),
}


class Inner:
    def __init__(self):
        self.y = None


class Slotted:
    __slots__ = ("last", "n")


class Careful:
    def __setattr__(self, name, value):
        object.__setattr__(self, "named_" + name, value)


class Strict:
    def __init__(self):
        self._y = 0.0

    @property
    def y(self):
        return self._y

    @y.setter
    def y(self, value):
        self._y = 2.0 * value


@dataclasses.dataclass
class Record:
    last: float = 0.0
    all: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    last: float = 0.0


class Machine:
    """Methods that keep something of a call."""

    kind = "machine"
    default = None

    def __init__(self):
        self.y = self.k = self.old = None
        self.buffer, self.counts = np.zeros(3), np.arange(3)
        self.inner, self.slotted, self.record, self.frozen = Inner(), Slotted(), Record(), Frozen()
        self.strict, self.careful = Strict(), Careful()
        self.h, self.d, self.steps = [], {}, 0

    def array(self, x):
        self.y = np.sin(x)
        return (self.y * x).sum()

    def anew(self, x):
        self.y = np.sin(x)
        self.y = self.y * x
        self.y += 1.0
        self.y[0] = x[1]
        return self.y.sum()

    def number(self, x):
        self.loss = (x**2).sum()
        return self.loss

    def count(self, x):
        y = x * 1.0
        for k in range(50):  # noqa: B007
            if (y**2).sum() < 1e-3:
                break
            y = y * 0.7
        self.k = k
        return (x * y).sum()

    def branch(self, x):
        self.positive = bool(x[0] > 0)
        if x[1] > 0:
            self.y = x * 2
        else:
            self.z = x * 3
        return (x**2).sum()

    def views(self, x):
        self.whole = x * 2
        self.tail, self.again, self.turned = self.whole[1:], self.whole, np.outer(x, x).T
        self.tail[0] = x[0]
        return self.whole.sum() + self.turned[0].sum()

    def captured(self, x):
        self.same, self.part, self.integers, self.some = (
            self.buffer,
            self.buffer[1:],
            self.counts,
            self.counts[1:],
        )
        self.buffer[:] = x**2
        return self.buffer.sum()

    def integers(self, x):
        self.order, self.grid = np.argsort(x), np.arange(6).reshape(2, 3)
        self.row, self.flags = self.grid[1], x > 0
        return x[self.order[0]] ** 2

    def trees(self, x):
        y = x * 2
        self.out = {"y": y, "n": 3, "pair": (y, [x[0] * 1.0, y])}
        self.twice = self.out
        return y.sum()

    def appended(self, x):
        self.items = []
        for i in range(3):
            self.items.append(x[i] ** 2)
        return sum(self.items)

    def nested(self, x):
        self.inner.y = x**2
        self.inner.total = self.inner.y.sum()
        return self.inner.total

    def slots(self, x):
        self.slotted.last, self.slotted.n = x * 2, x.size
        return self.slotted.last.sum()

    def dataclass(self, x):
        self.record.last = (x**3).sum()
        return self.record.last * 2.0

    def of_frozen(self, x):
        object.__setattr__(self.frozen, "last", (x**2).sum())
        return self.frozen.last

    def by_property(self, x):
        self.strict.y = x**2
        return self.strict.y.sum()

    def by_setattr(self, x):
        self.careful.y = x**2
        setattr(self, "by_name", x[0] * 2)  # noqa: B010
        return self.careful.named_y.sum()

    def class_default(self, x):
        self.default = x * 3
        return self.default.sum()

    def changed_later(self, x):
        y = x * 2
        self.y = y
        y[0] = x[1] ** 2
        return self.y.sum()

    def constants(self, x):
        self.name, self.nothing, self.scale = "a" + self.kind, None, np.float64(2.0)
        self.ones = np.ones(2)
        return (x**2).sum()

    def given(self, x):
        self.x = x
        return (self.x**2).sum()

    def caught(self, x):
        try:
            self.y = np.log(x[0])
            if x[0] < 0:
                raise ValueError
            self.good = True
        except ValueError:
            self.good = False
        return (x**2).sum()

    def delete(self, x):
        self.scratch = x * 2
        y = self.scratch.sum()
        del self.scratch
        return y * y

    # what is read first

    def counter(self, x):
        self.steps += 1
        return (x**2).sum()

    def memo(self, x):
        if self.y is None:
            self.y = np.ones(3)
        return (self.y * x).sum()

    def previous(self, x):
        new = (x**2).sum()
        self.change = 0.0 if self.old is None else new - self.old
        self.old = new
        return new

    def asked(self, x):
        first = not hasattr(self, "seen")
        self.seen = True
        return (x**2).sum() * (2.0 if first else 1.0)

    def by_space(self, x):
        n = len(vars(self))
        self.fresh = x * 2
        return (x**2).sum() * n

    def copied(self, x):
        other = copy.copy(self)
        self.y = x * 2
        return (x**2).sum() if other.y is None else (x**3).sum()

    def warm(self, x):
        y = np.zeros(3) if self.y is None else self.y
        for _ in range(5):
            y = np.cos(y) * x
        self.y = y
        return (y * x).sum()


METHODS = [name for name, v in vars(Machine).items() if callable(v) and name[0] != "_"]
READ_FIRST = ("counter", "memo", "previous", "asked", "by_space", "copied", "warm", "delete")
RECORDED = [name for name in METHODS if name not in READ_FIRST]


def is_ours(x):
    return type(x).__module__ in (__name__, "keeping_methods")


def parts(x, path="", found=None):
    """(path, object) of all that an object holds."""
    found = [] if found is None else found
    found.append((path, x))
    if isinstance(x, (list, tuple, collections.deque)):
        for k, v in enumerate(x):
            parts(v, f"{path}[{k}]", found)
    elif isinstance(x, dict):
        for k, v in x.items():
            parts(v, f"{path}[{k!r}]", found)
    if is_ours(x):
        names = [*getattr(x, "__dict__", ()), *getattr(type(x), "__slots__", ())]
        for k in sorted(names):
            if hasattr(x, k):
                parts(getattr(x, k), f"{path}.{k}", found)
    return found


def assert_same_state(a, b, exact=True):
    """The objects a and b hold the same, with the same members that are one object or share memory."""
    of_a, of_b = parts(a), parts(b)
    assert [path for path, _ in of_a] == [path for path, _ in of_b]
    for (path, v), (_, w) in zip(of_a, of_b, strict=True):
        numbers = isinstance(w, (float, np.floating))
        assert type(v) is type(w) or (numbers and not exact), (path, type(v), type(w))
        if isinstance(v, (np.ndarray, np.generic, float)):
            assert np.shape(v) == np.shape(w) and np.asarray(v).dtype == np.asarray(w).dtype, path
            np.testing.assert_allclose(v, w, rtol=1e-12, atol=1e-14, err_msg=path)
        elif isinstance(v, (int, str, bool, type(None))):
            assert v == w, path
        if isinstance(v, np.ndarray):
            assert v.flags.writeable == w.flags.writeable, path
            assert v.strides == w.strides, path
    if exact:
        assert relations(of_a) == relations(of_b)


def relations(found):
    held = [(path, v) for path, v in found if isinstance(v, (np.ndarray, list, dict)) or is_ours(v)]
    return [
        (p, q, v is w, isinstance(v, np.ndarray) and isinstance(w, np.ndarray) and np.shares_memory(v, w))
        for n, (p, v) in enumerate(held)
        for q, w in held[:n]
    ]


def compare(name, form, points=POINTS, make=Machine, between=None, **options):
    a, b = make(), make()
    prepared, plain = FORMS[form]
    p = tg.prepare(getattr(a, name), X, **options)
    for k, x in enumerate(points):
        for each in (a, b) if between is not None and k % 3 == 2 else ():
            between(each, k)
        found, expected = prepared(p, x), plain(getattr(b, name), x)
        for v, w in zip(tg.tree.flatten(found)[0], tg.tree.flatten(expected)[0], strict=True):
            np.testing.assert_allclose(v, w, rtol=1e-12, atol=1e-13)
        assert_same_state(a, b, form != "value")
    return p


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", METHODS)
def test_state_after_each_call(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for form in FORMS:
            p = compare(name, form)
            if name in RECORDED:
                assert "run as it is" not in p.report(), p.report()


BETWEEN = (
    None, None, lambda m, k: setattr(m, "a", np.full(3, 0.1 * k)), lambda m, k: setattr(m, "s", 0.2 * k),
    lambda m, k: m.h.append(0.3 * k), lambda m, k: m.d.update(s=0.1 * k), lambda m, k: setattr(m, "k", k),
    lambda m, k: setattr(m, "h", [0.1 * k]), lambda m, k: m.buffer.fill(0.1 * k), lambda m, k: m.a.fill(0.2),
    lambda m, k: setattr(m.box, "a", np.full(3, 0.2 * k)), lambda m, k: setattr(m, "fixed", np.arange(3.0)),
    lambda m, k: setattr(m, "box", type(m.box)()), lambda m, k: setattr(m, "d", dict(m.d)),
    lambda m, k: m.d.clear() or m.d.update(t=1.0, s=0.1 * k, a=np.ones(3)),
)  # fmt: skip  # what the user does to the object between calls


@pytest.mark.parametrize("name", ["array", "views", "trees", "number"])
def test_state_after_products_at_one_point(name):
    a, b = Machine(), Machine()
    p = tg.prepare(getattr(a, name), X)
    for x in POINTS[:3]:
        here = p.at(x)
        for v in np.eye(3):
            np.testing.assert_allclose(here.hvp(v), tg.hvp(getattr(b, name), x, v), rtol=1e-12, atol=1e-13)
            assert_same_state(a, b)
            a.y = b.y = a.whole = b.whole = 0.0
    assert "run as it is" not in p.report()


def test_state_belongs_to_nobody_else():
    """No later replay, and no write into a result, changes what a call has left, nor the other way round."""
    m = Machine()

    def f(x):
        m.y = x * 2
        m.pair = [m.y, m.y[1:]]
        return m.y

    p, left = tg.prepare(f, X), []
    for x in POINTS:
        y = p.value(x)
        y[:] = 9.0
        left.append((x, m.y, m.pair))
        m.y[0] += 1.0
    for x, y, pair in left:
        np.testing.assert_array_equal(y, 2 * x + [1, 0, 0])
        assert pair[0] is y and pair[1].base is y


def test_what_is_read_first_is_named():
    for name, words in (
        ("counter", "the attribute `steps` of Machine"),
        ("previous", "the attribute `old` of Machine"),
    ):
        m = Machine()
        p = tg.prepare(getattr(m, name), X)
        with pytest.warns(ReplayWarning, match=words):
            for k in range(5):
                p.grad(X * (k + 1))
        assert words in p.report()


def test_on_change_raise():
    m = Machine()
    p = tg.prepare(m.array, X, on_change="raise")
    for x in POINTS:
        p.value_and_grad(x)
        np.testing.assert_allclose(m.y, np.sin(x))
    with pytest.raises(GuardError, match="`steps` of Machine"):
        tg.prepare(m.counter, X, on_change="raise").grad(X)


def test_error_in_the_middle():
    """The state after an error is that of a plain call, and so is the next call."""

    class Half:
        def f(self, x):
            self.y = x * 2
            self.z = np.linalg.cholesky(np.diag(x))
            self.w = x * 3
            return self.z.sum()

    a, b = Half(), Half()
    p = tg.prepare(a.f, X)
    for x in [X, X * 2, X * 3, -X, X * 4, -X, X]:
        for f in (p.grad, tg.grad(b.f)):
            if x[0] < 0:
                with pytest.raises(np.linalg.LinAlgError):
                    f(x)
            else:
                f(x)
        assert vars(a).keys() == vars(b).keys()
        for k, v in vars(a).items():
            np.testing.assert_allclose(v, vars(b)[k], rtol=1e-12)


def test_names_outside_are_not_left_as_they_were():
    """What cannot be an output, as a name of an outer function, is no reason to leave old values."""
    last = None
    space = types.SimpleNamespace(last=None)

    def f(x):
        nonlocal last
        last = space.last = (x**2).sum()
        return last

    p = tg.prepare(f, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in (X, X, X, 2 * X, 3 * X):
            assert p.value(x) == last == space.last == (x**2).sum()


def test_equal_objects_do_not_stand_for_each_other():
    """An object that is left in an attribute is the one that is there now."""
    m = Machine()

    def f(x):
        m.chosen = m.counts
        m.first = m.inner
        return (x**2).sum()

    p = tg.prepare(f, X)
    for k in range(6):
        if k % 2:
            m.counts, m.inner = np.arange(3), Inner()
        p.grad(X * (k + 1))
        assert m.chosen is m.counts and m.first is m.inner


class Table(dict):
    def f(self, x):
        self["k"], self.sum = x * 2, x.sum()
        return self["k"].sum() * self.sum


class Window:
    def __init__(self):
        self.last = collections.deque(maxlen=3)

    def f(self, x):
        self.last.clear()
        self.last.append(x[0])
        return self.last[0] ** 2


class Keyed:
    def __init__(self):
        self.of = {(0, 1): 1.0}

    def f(self, x):
        self.of[0, 1] = x.sum()
        return self.of[0, 1] ** 2


@pytest.mark.parametrize("make", [Table, Window, Keyed])
def test_other_containers(make):
    """They are no outputs, and nothing old is left in them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for form in FORMS:
            compare("f", form, [X, X, X, *POINTS], make)


def test_an_argument_that_is_kept_is_plain():
    m = Machine()

    def f(x, b):
        m.x, m.part = x, x[1:]
        return (x * b).sum()

    tg.value_and_grad(f)(X, np.ones(3))
    assert type(m.x) is type(m.part) is np.ndarray and m.x is not X


def judged(seed, form):
    """Compare random method number `seed`; return whether it was recorded."""
    kind, text = random_method(seed)
    between = BETWEEN[seed % len(BETWEEN)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            one = kind()
            for k, x in enumerate(POINTS):
                if between is not None and k % 3 == 2:
                    between(one, k)
                FORMS[form][1](one.f, x)
        except Exception:
            return None
        try:
            p = compare("f", form, make=kind, between=between)
        except BaseException as error:
            error.add_note(f"seed {seed}, {form}\n{text}")
            raise
    return "run as it is" not in p.report()


def test_random_methods():
    forms = ("value_and_grad", "hvp", "jvp", "value")
    assert [judged(seed, forms[seed % 4]) for seed in range(24)].count(True) > 8


@pytest.mark.long
def test_many_random_methods():
    found = [judged(seed, form) for seed in range(20, 420) for form in ("value_and_grad", "jvp", "hvp")]
    assert found.count(True) > 300


def test_another_object_in_the_same_place():
    """An equal object does not stand for the one that the recording writes into."""
    held = {"o": Inner(), "list": [], "dict": {}}

    def f(x):
        held["o"].y = 2.0 * x
        held["list"][:] = [x]
        held["dict"]["x"] = x
        return (held["o"].y ** 3).sum()

    p = tg.prepare(f, X)
    for k in range(8):
        if k % 2:
            held.update(o=Inner(), list=[], dict={})
        x = X * (k + 1)
        p.value(x)
        np.testing.assert_array_equal(held["o"].y, 2.0 * x)
        np.testing.assert_array_equal([held["list"][0], held["dict"]["x"]], [x, x])
