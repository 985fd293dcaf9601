"""Integers, strings, lists of such, arrays of integers, bytes and iterators that a function under `tg.vmap`
alters: what it gives does not depend on them, or it is told; counts are of one run."""

import array
import collections
import contextvars
import copy
import ctypes
import functools
import itertools
import json
import math
import mmap
import os
import pickle
import random
import struct
import types
from queue import Queue

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import BatchError

X = np.arange(6.0).reshape(3, 2) + 1
GLOBAL = 1


class Owner:
    shared = 1

    def __init__(self):
        self.count, self.inner = 1, types.SimpleNamespace(count=1)


class Pair(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int), ("number", ctypes.c_double)]


class Single:
    only = None

    def __new__(cls):
        if cls.only is None:
            cls.only = super().__new__(cls)
            cls.only.count = 0
        cls.only.count += 1
        return cls.only


def counters():
    """(its name, a function that goes one further and gives a number)"""
    owner, numbers, words, mixed = Owner(), [1], ["a"], [np.ones(2)]
    named, met, queue = {"n": 1}, {0}, collections.deque([1])
    flags, integers, raw, doubles = (
        np.ones(3, bool),
        np.ones((2, 2), int),
        bytearray(b"\1"),
        array.array("i", [1]),
    )
    cell = 1

    def of_cell():
        nonlocal cell
        cell += 1
        return cell

    def of_global():
        global GLOBAL
        GLOBAL += 1
        return GLOBAL

    def attribute():
        owner.count += 1
        return owner.count

    def attribute_of_attribute():
        owner.inner.count += 1
        return owner.inner.count

    def of_class():
        Owner.shared += 1
        return Owner.shared

    def of_function():
        of_function.count = getattr(of_function, "count", 0) + 1
        return of_function.count

    def member():
        numbers[0] += 1
        return numbers[0]

    def appended():
        words.append("a")
        return len(words)

    def beside_an_array():
        mixed.append(1)
        return len(mixed)

    def by_key():
        named["n"] = (5 * named["n"] + 4) % 7
        return named["n"]

    def of_a_set():
        met.add(len(met))
        return len(met)

    def of_a_queue():
        queue.append(queue[-1] * 2)
        return queue[-1]

    def default(held=[1]):  # noqa: B006
        held[0] += 1
        return held[0]

    numbered, chosen, failure, setting = (
        (),
        frozenset(),
        ValueError(0),
        contextvars.ContextVar("setting", default=0),
    )
    waiting, die, doubles_of_c = Queue(), random.Random(0), (ctypes.c_double * 2)(1.0, 1.0)
    pair, mapped = Pair(1, 1.0), mmap.mmap(-1, 8)
    waiting.put(1)
    surroundings = os.environ
    surroundings["RUNS"] = "0"
    Single.only = None

    def in_a_tuple():
        nonlocal numbered
        numbered = (*numbered, 1)
        return len(numbered)

    def in_a_frozenset():
        nonlocal chosen
        chosen = chosen | {len(chosen)}
        return len(chosen)

    def of_an_exception():
        failure.args = (failure.args[0] + 1,)
        return failure.args[0]

    def of_a_context():
        setting.set(setting.get() + 1)
        return setting.get()

    def of_the_process():
        surroundings["RUNS"] = str(int(surroundings["RUNS"]) + 1)
        return int(surroundings["RUNS"])

    def waited_for():
        n = waiting.get()
        waiting.put(n + 1)
        return n

    def field():
        pair.count += 1
        return pair.count

    def number():
        pair.number += 1
        return int(pair.number)

    kept_aside = [
        in_a_tuple, in_a_frozenset, of_an_exception, of_a_context, of_the_process, waited_for, field, number,
        lambda: Single().count,
        lambda: die.randint(1, 10**6), functools.partial(of_array, doubles_of_c, 1),
        functools.partial(of_array, mapped, 3),
        functools.partial(of_array, memoryview(bytearray(4)), 2), functools.partial(of_array,
        memoryview(bytearray(16)).cast("d"), 1),
    ]  # fmt: skip
    return [attribute, attribute_of_attribute, of_class, of_function, of_cell, of_global, member, appended,
    beside_an_array, of_a_set,
            of_a_queue, default], [by_key], [
        functools.partial(of_array, integers, (1, 0)), functools.partial(of_array, raw, 0),
        functools.partial(of_array, doubles, 0),
        functools.partial(of_array, flags, 1),
    ], kept_aside  # fmt: skip


def of_array(x, at):
    x[at] = (x[at] * 3 + 1) % 2 if isinstance(x, np.ndarray) and x.dtype == bool else x[at] + 1
    return int(x[at])


KINDS = [(k, n) for k, kind in enumerate(counters()) for n in range(len(kind))]
FORMS = {
    "vmap": tg.vmap,
    "vmap of grad": lambda f: tg.vmap(tg.grad(lambda x: f(x).sum())),
    "grad of vmap": lambda f: tg.grad(lambda X: tg.vmap(f)(X).sum()),
    "prepare": lambda f: lambda X: tg.prepare(tg.vmap(f), X).value(X),
    "vmap of vmap": lambda f: lambda X: tg.vmap(tg.vmap(f))(np.stack([X, X])),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k, n", KINDS)
def test_what_hands_a_count_on_is_told(k, n, form):
    goes_on = counters()[k][n]
    with pytest.raises(BatchError, match="keeps a value in"):
        FORMS[form](lambda x: x * goes_on())(X)


def test_a_value_in_a_context_variable():
    last = contextvars.ContextVar("last", default=0.0)

    def bound_first(x):
        last.set(x.sum())
        return (x * last.get()).sum()

    def read_first(x):
        y = (x * last.get()).sum()
        last.set(x.sum())
        return y

    np.testing.assert_array_equal(tg.vmap(tg.grad(bound_first))(X), [tg.grad(bound_first)(x) for x in X])
    assert last.get() == X[-1].sum()
    for form in ("vmap", "vmap of grad"):
        with pytest.raises(BatchError, match="keeps a value in a context variable"):
            FORMS[form](read_first)(X)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", range(len(counters()[0])))
def test_what_only_counts_runs_counts_one(n, form):
    goes_on = counters()[0][n]
    want = FORMS[form](lambda x: x * 2.0)(X)
    before = goes_on()

    def f(x):
        goes_on()
        return x * 2.0

    np.testing.assert_array_equal(FORMS[form](f)(X), want)
    assert goes_on() in (before + 2, 4 * before)  # (the queue doubles)


def test_arrays_of_integers_that_only_count_are_told():
    """They are captured arrays, which a loop would leave otherwise."""
    hits = np.zeros(3, int)

    def f(x):
        hits[1] += 1
        return x * 2.0

    with pytest.raises(BatchError, match="keeps a value in a ndarray"):
        tg.vmap(f)(X)


def test_arrays_of_integers_that_end_as_a_loop_leaves_them():
    order, chosen = np.zeros(2, int), np.zeros(2, bool)

    def f(x):
        order[:] = [1, 0]
        chosen[:] = order > 0
        return x[order] * chosen

    np.testing.assert_array_equal(tg.vmap(f)(X), [[2.0, 0.0], [4.0, 0.0], [6.0, 0.0]])
    assert order.tolist() == [1, 0] and chosen.tolist() == [True, False]


def test_what_is_filled_once_is_right():
    def f(x, held={}):  # noqa: B006
        if "n" not in held:
            held["n"], held["w"] = 3, np.array([1.0, 2.0])
        return (x * held["w"]).sum() * held["n"]

    np.testing.assert_array_equal(tg.vmap(f)(X), 3 * (X @ [1.0, 2.0]))


def test_a_switch_that_the_first_sample_finds_is_told():
    held = {"first": True}

    def f(x):
        if held["first"]:
            held["first"] = False
            return x * 10.0
        return x

    with pytest.raises(BatchError, match="keeps a value in a dict"):
        tg.vmap(f)(X)


ITERATORS = [
    lambda: iter([1.0, 2.0, 3.0]),
    itertools.count,
    lambda: (float(k) for k in range(9)),
    lambda: map(float, range(5)),
    lambda: iter(X.T),
]


@pytest.mark.parametrize("made", ITERATORS)
def test_iterators_from_outside_are_told(made):
    outside = made()
    f = lambda x, it: (x * np.sum(next(it))).sum()
    with pytest.raises(BatchError, match="an iterator that was made outside"):
        tg.vmap(lambda x: f(x, outside))(X)
    want = [f(x, made()) for x in X]
    np.testing.assert_array_equal(tg.vmap(lambda x: f(x, made()))(X), want)
    inside = tg.vmap(lambda x: (lambda it: tg.grad(lambda y: f(y, it))(x))(made()))(X)
    np.testing.assert_array_equal(inside, tg.vmap(tg.grad(lambda x: f(x, made())))(X))


def test_one_sample_may_do_it():
    numbers, it = [1], itertools.count(5)

    def f(x):
        numbers[0] += 1
        return x * numbers[0] * next(it)

    np.testing.assert_array_equal(tg.vmap(f)(X[:1]), X[:1] * 10)
    assert numbers == [2] and next(it) == 6


def test_no_sample_counts_nothing_wrong():
    numbers = [1]

    def f(x):
        numbers[0] += 1
        return x * 2.0

    assert tg.vmap(f)(X[:0]).shape == (0, 2)


def test_runs(capsys):
    """Once, where the function around has counted; twice, where its own counts are not read."""
    owner = Owner()

    def inner(x):
        print("run")
        return x * owner.count

    def outer(X):
        owner.count += 1
        return tg.vmap(inner)(X).sum()

    def counts(x):
        owner.inner.count += 1
        return inner(x)

    np.testing.assert_array_equal(tg.grad(outer)(X), np.full(X.shape, 2.0))
    assert capsys.readouterr().out.count("run") == 1
    np.testing.assert_array_equal(tg.vmap(counts)(X), X * 2)
    assert capsys.readouterr().out.count("run") == 2 and owner.inner.count == 2


# --- counts that go on ---

CONDITIONS = {
    "from some on": lambda n, k: n > k,
    "one": lambda n, k: n == k,
    "each k-th": lambda n, k: n % k == 0,
    "a table": lambda n, k: str(k) in str(n),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("n", range(len(counters()[0])))
def test_a_condition_on_a_count_is_told(n, name):
    """Whichever sample meets it: the results are those of a loop, or it is told."""
    rng, told = np.random.default_rng(n), 0
    for count in (2, 5, 9, 33):
        stack = rng.normal(size=(count, 2))

        def function(k, n=n):
            global GLOBAL
            GLOBAL = Owner.shared = 1
            goes_on = counters()[0][n]
            return lambda x: x * 2.0 if CONDITIONS[name](goes_on(), k) else x

        for k in rng.integers(1, count + 3, 2):
            want = np.stack([f(x) for f in [function(k)] for x in stack])
            try:
                np.testing.assert_array_equal(tg.vmap(function(k))(stack), want)
            except BatchError as error:
                told += 1
                assert "keeps a value in" in str(error) or "counts on in" in str(error)
    assert told


def test_a_count_that_nobody_reads_counts_one_run():
    class Inner:
        pass

    class Solver:
        def __init__(self):
            self.calls, self.told, self.inner = 0, "a", Inner()

        def __call__(self, x):
            self.calls += 1
            self.calls = self.calls + 2
            self.told += "b"
            self.inner.steps = 0
            self.inner.steps += 1
            return self.energy(x)

        def energy(self, x):
            nonlocal inside
            global GLOBAL
            inside += 1
            GLOBAL -= 1
            return (x**2).sum()

    inside, before, solver = 0, GLOBAL, Solver()
    stack = np.arange(120.0).reshape(60, 2)
    np.testing.assert_array_equal(tg.vmap(solver)(stack), (stack**2).sum(1))
    assert (inside, GLOBAL, solver.calls, solver.told, solver.inner.steps) == (1, before - 1, 3, "ab", 1)


READERS = {
    "compared": lambda n: float(n > 2), "equal": lambda n: n == 2,
    "truth": lambda n: 1.0 if n - 2 else 3.0, "negative": lambda n: -n, "times": lambda n: n * 1.5,
    "behind": lambda n: 2.0 - n, "behind an array": lambda n: np.arange(2.0) * n,
    "divmod": lambda n: divmod(n, 2)[1], "reflected divmod": lambda n: divmod(7, n)[1],
    "power": lambda n: 2.0**n, "index": lambda n: (5.0, 6.0, 8.0, 9.0)[n],
    "of an array": lambda n: np.arange(9.0)[n], "slice": lambda n: len("abcdef"[n:]),
    "range": lambda n: sum(range(n)), "size": lambda n: np.ones(n).sum(),
    "key": lambda n: {2: 5.0}.get(n, 1.0), "member": lambda n: n in {2}, "float": float, "int": int,
    "array": lambda n: np.array(n), "ufunc": lambda n: np.sqrt(n), "math": math.sqrt,
    "text": lambda n: len("x" * n), "str": lambda n: int(str(n)), "format": lambda n: int(f"{n:d}"),
    "percent": lambda n: int(f"{n:02d}"), "json": lambda n: int(json.dumps(n)),
    "pickle": lambda n: pickle.loads(pickle.dumps(n)), "copy": lambda n: copy.deepcopy([n])[0],
    "attribute": lambda n: n.real, "method": lambda n: n.bit_length(),
    "sorted": lambda n: sorted([2, n])[0], "hash": hash, "round": round, "sum": lambda n: sum([n, 0.5]),
    "struct": lambda n: struct.pack("b", n)[0], "of a class": lambda n: int(n),
    "kind": lambda n: 2.0 if type(n) is int and isinstance(n, int) else float(n),
    "join": lambda n: len(",".join("ab"[:n])),
}  # fmt: skip


@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
def test_whoever_reads_a_count_is_found(read):
    """A stand-in for the count notes each way to its value: the results are those of a loop, or it is
    told."""

    def function():
        owner = types.SimpleNamespace(n=0)

        def f(x):
            owner.n += 1
            return x * read(owner.n)

        return f

    want = [f(x) for f in [function()] for x in X]
    try:
        np.testing.assert_array_equal(tg.vmap(function())(X), want)
    except BatchError as error:
        assert "keeps a value in" in str(error) or "counts on in" in str(error)
        assert read is not READERS["kind"]


@pytest.mark.parametrize("form", FORMS)
def test_logs_are_of_one_run(form):
    log, by_name, kept = [], {}, types.SimpleNamespace(lines=[])

    def f(x):
        log.append(("step", len(x.shape), [True]))
        by_name.setdefault("shapes", []).append(x.shape)
        kept.lines.append({"n": x.shape[0]})
        return np.sin(x)

    want = FORMS[form](np.sin)(X)
    np.testing.assert_array_equal(FORMS[form](f)(X), want)
    assert log == [("step", 1, [True])] and by_name == {"shapes": [(2,)]} and kept.lines == [{"n": 2}]


def test_a_count_that_many_samples_may_read_is_told():
    owner = Owner()

    def f(x):
        owner.count += 1
        return np.sin(x) if owner.count < 1000 else x

    with pytest.raises(BatchError, match="counts on in an attribute of a Owner.*33 samples"):
        tg.vmap(f)(np.ones((33, 2)))
    np.testing.assert_array_equal(tg.vmap(f)(np.ones((32, 2))), np.sin(np.ones((32, 2))))
