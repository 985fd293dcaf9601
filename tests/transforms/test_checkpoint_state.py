"""tg.checkpoint computes again what it computed, or says that it cannot; tg.rule refuses what it would
lose."""

import collections
import functools
import io
import random

import numpy as np
import pytest
import scipy.sparse

import tapegrad as tg
from tapegrad._core.scope import OPEN
from tapegrad.errors import ArgumentError

x = np.array([0.7, -1.3, 2.1])


def draws(kind):
    """A function that draws three numbers by generators of one kind, seeded anew for each program."""
    if kind == "generator":
        rng = np.random.default_rng(3)
        return lambda: rng.normal(size=3)
    if kind == "bits":
        rng = np.random.Generator(np.random.MT19937(3))
        return lambda: rng.random(3)
    if kind == "random state":
        old = np.random.RandomState(3)
        return lambda: old.standard_normal(3)
    if kind == "global of numpy":
        np.random.seed(3)
        return lambda: np.random.normal(size=3)
    if kind == "global of random":
        random.seed(3)
        return lambda: np.array([random.random() for _ in range(3)])
    own = random.Random(3)
    return lambda: np.array([own.gauss(0, 1) for _ in range(3)])


KINDS = ["generator", "bits", "random state", "global of numpy", "global of random", "random of one's own"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["grad", "jvp", "hvp", "pullback twice"])
def test_random_numbers_are_drawn_again_and_forward(kind, mode):
    results = []
    for wrap in (tg.checkpoint, lambda f: f):
        draw = draws(kind)
        step = wrap(lambda v: (v**3 * draw()).sum())

        def f(v):
            return step(v) + step(v) * step(v)

        if mode == "grad":
            found = tg.grad(f)(x)
        elif mode == "jvp":
            found = np.array(tg.jvp(f, (x,), (np.ones(3),))[1])
        elif mode == "hvp":
            found = tg.hvp(f, x, np.ones(3))
        else:
            _, pullback = tg.vjp(f, x)
            assert np.array_equal(pullback(1.0), pullback(1.0))
            found = pullback(1.0)
        results.append((found, draw()))  # the next numbers are those of a plain call
    (a, next_a), (b, next_b) = results
    assert np.allclose(a, b, rtol=1e-12)
    assert np.array_equal(next_a, next_b)


def changed(kind):
    """(f, change): `change()` alters what the checkpointed f reads."""
    if kind == "list":
        held = [1.0, 2.0]
        return lambda v: (v * v).sum() * held[1], lambda: held.__setitem__(1, 5.0)
    if kind == "dict":
        held = {"k": 1}
        return lambda v: (v * v).sum() * held["k"], lambda: held.update(k=2)
    if kind == "indices":
        at = np.array([0, 1, 2])
        return lambda v: (v[at] * v * np.arange(3)).sum(), lambda: at.__setitem__(slice(None), [1, 2, 0])
    if kind == "mask":
        mask = np.array([True, False, True])
        return lambda v: np.where(mask, v, v * 2).sum(), lambda: mask.__setitem__(0, False)
    if kind == "same value, other slope":
        held = [1.0]
        return lambda v: ((v - tg.value(v)) * held[0]).sum(), lambda: held.__setitem__(0, 3.0)
    if kind == "file":
        lines = io.StringIO("\n".join("123456"))
        return lambda v: (v * v).sum() * float(next(lines)), lambda: None
    rng = np.random.default_rng
    return lambda v: (v * v * rng().normal(size=3)).sum(), lambda: None


@pytest.mark.parametrize(
    "kind", ["list", "dict", "indices", "mask", "same value, other slope", "file", "unseeded"]
)
@pytest.mark.parametrize("mode", ["grad", "hvp"])
def test_what_has_changed_is_told(kind, mode):
    f, change = changed(kind)
    step = tg.checkpoint(f)

    def program(v):
        y = step(v)
        change()
        return y

    with pytest.raises(tg.errors.GuardError, match=r"^checkpoint\(<lambda>\): .*pass"):
        tg.grad(program)(x) if mode == "grad" else tg.hvp(program, x, np.ones(3))
    assert getattr(OPEN, "depth", 0) == 0
    assert tg.grad(lambda v: (v * v).sum())(x).tolist() == (2 * x).tolist()


def test_other_values_raise_and_on_a_device_make_nan(xp):
    def program(v):
        return tg.checkpoint(lambda v: (v * v).sum() * float(next(factors)))(v)

    factors = io.StringIO("2\n2")
    assert np.allclose(np.asarray(tg.grad(program)(xp.asarray(x)).tolist()), 4 * x)
    factors = io.StringIO("1\n2")
    if xp is np:
        with pytest.raises(tg.errors.GuardError, match="gave other values than before"):
            tg.grad(program)(x)
    else:
        assert bool(xp.isnan(tg.grad(program)(xp.asarray(x))).all())


def test_counting_its_own_calls_is_allowed():
    calls = {"n": 0}

    def f(v):
        calls["n"] += 1
        return (v * v).sum()

    assert tg.grad(tg.checkpoint(f))(x).tolist() == (2 * x).tolist()
    assert calls["n"] == 1  # as in a plain call: what the recomputation counts is not kept


def test_nothing_but_a_mark_of_the_outputs_is_kept():
    """A long chain of checkpoints keeps its inputs and no second copy of its outputs."""
    step = tg.checkpoint(lambda v: np.sin(v) * 1.0)

    def chain(v):
        for _ in range(20):
            v = step(v)
        return v.sum()

    big = np.linspace(0, 1, 20_000)
    with tg.Tape() as tape:
        chain(tape.watch(big))
    assert tape.saved_bytes < 21.5 * big.nbytes
    assert np.allclose(tg.grad(chain)(big), derivative_of_chain(big), rtol=1e-10)


def derivative_of_chain(v):
    d = np.ones_like(v)
    for _ in range(20):
        d, v = d * np.cos(v), np.sin(v)
    return d


# --- rules of the user's own ---


class Holder:
    def __init__(self, y):
        self.y = y

    def of(self, v):
        return (v * self.y).sum()

    __call__ = of


def makers():
    def cell(y):
        return lambda v: (v * y).sum()

    def default(y):
        return lambda v, y=y: (v * y).sum()

    def member(y):
        several = {"a": [1.0, y]}
        return lambda v: (v * several["a"][1]).sum()

    def partial(y):
        return functools.partial(lambda y, v: (v * y).sum(), y)

    def method(y):
        return Holder(y).of

    def instance(y):
        return Holder(y)

    def helper(y):
        inner = lambda v: (v * y).sum()
        return lambda v: inner(v)

    return [cell, default, member, partial, method, instance, helper]


@pytest.mark.parametrize("make", makers(), ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["grad", "jvp"])
def test_a_rule_of_a_function_that_captured_a_tracked_value(make, mode):
    def f(v):
        f_with_rule = make(v * 2)
        f_with_rule.__dict__.setdefault("__name__", "with_rule")
        return tg.rule(f_with_rule, vjp=lambda g, out, v: g * v)(v)

    with pytest.raises(
        tg.errors.ArgumentError, match=r"^rule\(.*\): the result depends on .* pass it as an argument"
    ):
        tg.grad(f)(x) if mode == "grad" else tg.jvp(f, (x,), (x,))
    assert getattr(OPEN, "depth", 0) == 0


def test_a_rule_may_capture_what_is_not_tracked():
    scale = np.array([1.0, 2.0, 3.0])

    def f(v):
        plain = tg.value(v * 2)
        return tg.rule(lambda v: (v * plain * scale).sum(), vjp=lambda g, out, v: g * plain * scale)(v)

    assert np.array_equal(tg.grad(f)(x), 2 * x * scale)


class Total:
    total = 0.0


def into_a_list(x):
    kept.append(x * 2.0)
    return (x * x).sum()


def into_a_class(x):
    Total.total = x.sum()
    return (x * x).sum()


kept: list = []


@pytest.mark.parametrize(
    "f, read", [(into_a_list, lambda: kept[-1].sum()), (into_a_class, lambda: Total.total)]
)
def test_values_that_leave_by_holders_are_refused(f, read):
    """By a list or a class their derivative would be lost."""
    with pytest.raises(ArgumentError, match="keeps a value with a derivative outside"):
        tg.grad(lambda x: tg.checkpoint(f)(x) + read())(x)
    kept.clear()
    Total.total = 0.0


class Kept:
    def __init__(self, value):
        self.value = value


def numbers(z):
    yield z * 2.0


HELD = {  # objects that are no tree -> how the value is read
    "an instance": (lambda z: Kept(z * 2.0), lambda r: r.value),
    "in a tree": (lambda z: (1, {"k": [Kept(z * 2.0)]}), lambda r: r[1]["k"][0].value),
    "a closure": (lambda z: lambda: z * 2.0, lambda r: r()),
    "a partial": (lambda z: functools.partial(np.add, z * 2.0), lambda r: r(0.0)),
    "a generator": (numbers, next),
    "an iterator": (lambda z: map(np.negative, [-2.0 * z]), next),
    "a deque": (lambda z: collections.deque([z * 2.0]), lambda r: r[0]),
    "a set": (lambda z: {z[0] * 2.0}, lambda r: r.pop() * np.ones(3)),
    "an exception": (lambda z: ValueError(z * 2.0), lambda r: r.args[0]),
    "a sparse matrix": (lambda z: scipy.sparse.diags_array(z * 2.0), lambda r: r @ np.ones(3)),
    "a polynomial": (lambda z: np.poly1d(z * 2.0), lambda r: r.coeffs),
}


@pytest.mark.parametrize("name", HELD)
def test_values_returned_in_an_object(name):
    """They are not among the results whose derivative is known."""
    make, read = HELD[name]
    f = lambda z: (read(tg.checkpoint(make)(z)) ** 2).sum()
    for run in (tg.grad(f), lambda x: tg.jvp(f, (x,), (x,)), lambda x: tg.vmap(tg.grad(f))(x[None])):
        with pytest.raises(ArgumentError, match="returns it in an object that is no tuple, list"):
            run(x)
    assert f(x) == (read(make(x)) ** 2).sum()


def test_constants_returned_in_an_object():
    """Captured, or made inside."""
    rate = Kept(np.array([1.0, 2.0, 3.0]))
    both = tg.checkpoint(lambda z: (z * rate.value, rate, Kept(4.0)))

    def f(z):
        y, same, other = both(z)
        return (y * same.value).sum() * other.value

    np.testing.assert_array_equal(tg.grad(f)(x), 4.0 * rate.value**2)
