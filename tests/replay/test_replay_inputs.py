"""What is an input of a recorded program, so that it differs from replay to replay: index arrays, masks,
random numbers."""

import array
import collections
import concurrent.futures
import ctypes
import dataclasses
import itertools
import logging
import math
import random
import threading

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import GuardError

X = np.array([0.5, 1.0, 2.0, -1.5])
A = np.arange(20.0).reshape(5, 4) / 7
B = np.random.default_rng(0).normal(size=(3, 4, 2))
PARENT, LOGGER = logging.getLogger("replayed"), logging.getLogger("replayed.inputs")
FORMS = ("value", "grad", "hvp", "jvp")


def plainly(form, f, x, *args):
    if form == "value":
        return f(x, *args)
    if form == "grad":
        return tg.grad(f)(x, *args)
    return tg.hvp(f, x, X, args) if form == "hvp" else tg.jvp(lambda y: f(y, *args), (x,), (X,))


def replayed(form, p, x, *args):
    return getattr(p, form)(x, X, args) if form in ("hvp", "jvp") else getattr(p, form)(x, *args)


def close(a, b):
    return all(
        np.allclose(u, v, rtol=1e-12, atol=1e-13, equal_nan=True)
        for u, v in zip(np.atleast_1d(a), np.atleast_1d(b), strict=True)
    )


# --- indices ---


def written(x, i):
    y = x * x
    y[i] = x[: len(i)] ** 3
    y[i] += 1.5
    return (y * X).sum()


def rows_written(x, i):
    y = A * x
    y[:, i] = x[: len(i)]
    y[i] *= 2.0
    return (y**2).sum()


def added(x, i):
    y = np.zeros(4)
    np.add.at(y, i, x[: len(i)] ** 2)
    np.subtract.at(y, i, 3.0)
    return (y * X).sum()


INDEXED = {
    "rows": lambda x, i: ((A[i] @ x) ** 2).sum(),
    "columns": lambda x, i: ((A[:, i] * x[i]) ** 2).sum(),
    "middle": lambda x, i: (B[:, i] ** 2).sum() * (x[i] ** 2).sum(),
    "beside a slice": lambda x, i: (
        ((A[i, 1:3] + x[i[0] * 0 :][:2]) ** 2).sum() if len(i) < 0 else ((A[i, 1:3] * x[1:3]) ** 2).sum()
    ),
    "two arrays": lambda x, i: (np.outer(x, x)[i, i[::-1]] ** 2).sum(),
    "a table": lambda x, i: (x[np.stack([i, i])] ** 3).sum(),
    "of a view": lambda x, i: (x[::-1][i] ** 3 * X[: len(i)]).sum(),
    "taken": lambda x, i: (np.take(x, i) ** 2 * np.take(A, i, axis=1)).sum(),
    "computed": lambda x, i: (x[(i + 1) % 4] ** 3).sum(),
    "sorted": lambda x, i: (x[np.argsort(x)] * X).sum() * x[i][0] ** 2,
    "written": written,
    "rows written": rows_written,
    "added": added,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_array_is_an_input(name, form):
    f = INDEXED[name]
    p = tg.prepare(f, X, np.array([0, 2, 1]), on_change="raise")
    for k, i in enumerate(([0, 2, 1], [3, 3, 0], [1, 2, 3], [-1, 0, -1], [2, 2, 2])):
        x, i = X * (1 - 0.3 * k), np.array(i)
        assert close(replayed(form, p, x, i), plainly(form, f, x, i)), i
    assert p.forms[form].recordings == 1 and p.forms[form].replays == 4


def test_an_index_out_of_bounds_raises_as_it_does_plainly():
    p = tg.prepare(INDEXED["rows"], X, np.array([0, 1]))
    for _ in range(3):
        p.grad(X, np.array([0, 1]))
    with pytest.raises(IndexError):
        p.grad(X, np.array([0, 5]))
    assert close(p.grad(X, np.array([0, 4])), tg.grad(INDEXED["rows"])(X, np.array([0, 4])))


def test_a_number_that_tells_a_view_is_guarded():
    def f(x, i):
        row = (A * x)[i[0]]
        row[:] = row**2
        return row.sum()

    p = tg.prepare(f, X, np.array([0, 1]))
    for i in 4 * [[0, 1], [0, 2], [3, 2], [0, 4]]:
        assert close(p.grad(X, np.array(i)), tg.grad(f)(X, np.array(i)))
    assert p.forms["grad"].recordings == 2


@pytest.mark.parametrize("form", FORMS)
def test_a_mask_that_is_written_by_is_no_guard(form):
    def f(x):
        y, z = x**2, A * x
        y[x < 0.7] = 0.25
        z[z > 1.0] = x[0] * 3.0
        z[x[:1].repeat(5) > 0] = x**3
        return (y * X).sum() + (z**2).sum()

    p = tg.prepare(f, X, on_change="raise")
    for x in (X, -X, X[::-1].copy(), X * 0.1, X + 9):
        assert close(replayed(form, p, x), plainly(form, f, x))
    assert p.forms[form].recordings == 1


def test_a_mask_with_as_many_numbers_as_it_is_true_is_guarded():
    def f(x):
        y = x**2
        y[x > 0] = np.arange(3.0)[: int((x > 0).sum())]
        return (y * X).sum()

    p = tg.prepare(f, X)
    for x in (X, X + 0.1, -X, X):
        assert close(p.grad(x), tg.grad(f)(x))


def test_a_mask_of_another_shape_raises_as_it_does_plainly():
    def f(x, m):
        y = x**2
        y[m > 0] = 1.0
        return y.sum()

    for run in (f, tg.grad(f), tg.prepare(f, X, np.ones(2)).grad):
        with pytest.raises(IndexError):
            run(X, np.ones(2))


# --- random numbers ---


def state(rng):
    return repr(rng.bit_generator.state if isinstance(rng, np.random.Generator) else rng.get_state())


def normal(rng):
    return lambda x: (x**2 * rng.standard_normal(4)).sum()


def unused(rng):
    def f(x):
        rng.normal()
        return (x**2 * rng.normal(2.0, size=4)).sum() * rng.random()

    return f


def batches(rng):
    def f(x):
        i, j = rng.permutation(5)[:3], rng.integers(0, 5, 4)
        return (
            ((A[i] @ x) ** 2).sum()
            + (A[j] @ x**2).sum()
            + (A[rng.choice(5, 2, replace=False), 1:] @ x[1:] ** 2).sum()
        )

    return f


def orders(rng):
    def f(x):
        y = x**2
        rng.shuffle(y)
        return (
            y[0] * 3
            + (rng.permutation(x) * x)[1]
            + rng.permuted(x * x)[2]
            + (rng.choice(x, 3, p=[0.1, 0.2, 0.3, 0.4]) ** 3).sum()
        )

    return f


def branches(rng):
    return lambda x: (
        (x**2).sum() * rng.normal() if rng.random() < 0.5 else (x**3).sum() * rng.normal(size=2)[1]
    )


def scaled(rng):
    scale = np.array([1.0, 2.0, 3.0, 4.0])
    return lambda x: (x**2 * rng.normal(0.0, scale)).sum() + (x * rng.poisson(scale)).sum()


def filled(rng):
    buffer = np.zeros(4)

    def f(x):
        rng.standard_normal(out=buffer)
        return (x**2 * buffer).sum()

    return f


def warned(rng):
    return lambda x: (rng.normal() * x**2).sum() + np.sqrt(x[0] - 0.6).sum() * rng.random()


def order_of_its_own(rng):
    def f(x):
        i = np.arange(4)
        rng.shuffle(i)
        return (x[i] ** 2 * X).sum()

    return f


def seeded_within(rng):
    return lambda x: (x**2 * np.random.Generator(np.random.PCG64(5)).normal(size=4)).sum() * rng.random()


def behind_its_back(rng):
    return lambda x: (x**2).sum() * (rng.bit_generator.random_raw() % 7) + rng.normal() * x[0]


PLAIN = (order_of_its_own, seeded_within, behind_its_back)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "make",
    [normal, unused, batches, orders, branches, scaled, filled, warned, *PLAIN],
    ids=lambda make: make.__name__,
)
def test_random_numbers_are_those_of_plain_calls(make, form):
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    f, g = make(ours), make(theirs)
    p = tg.prepare(f, X)
    for k in range(7):
        x = X * (1 + 0.1 * (k % 4))
        assert close(replayed(form, p, x), plainly(form, g, x)), k
        assert state(ours) == state(theirs), k
    assert (p.forms[form].eager is not None) is (make in PLAIN)
    assert make in PLAIN or ("random numbers drawn" in p.report() and p.forms[form].replays)


def test_numbers_of_the_module_are_those_of_plain_calls():
    def g(x):
        return (x**2 * np.random.randn(4)).sum() * np.random.rand()

    p, found = tg.prepare(g, X), []
    for run in (p.grad, tg.grad(g)):
        np.random.seed(3)
        found.append([run(X) for _ in range(6)])
    assert np.array_equal(*found) and p.forms["grad"].replays


def test_a_generator_that_is_an_argument():
    def f(x, rng):
        return (x**2 * rng.normal(size=4)).sum()

    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    p = tg.prepare(f, X, ours)
    for _ in range(5):
        assert np.array_equal(p.grad(X, ours), tg.grad(f)(X, theirs))
    other, same = np.random.RandomState(4), np.random.RandomState(4)
    for _ in range(5):
        assert np.array_equal(p.grad(X, other), tg.grad(f)(X, same))


def test_what_was_drawn_before_a_branch_flips_is_not_drawn_twice():
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    f = lambda rng: (
        lambda x: (x**2).sum() * rng.normal() if rng.normal() > x[0] else (x * rng.normal(size=4)).sum()
    )
    p, strict = tg.prepare(f(ours), X), tg.prepare(f(ours), X, on_change="raise")
    for k in range(12):
        x = X * (-1) ** k
        assert np.array_equal(p.grad(x), tg.grad(f(theirs))(x))
    strict.grad(np.full(4, 9.0))
    before = state(ours)
    with pytest.raises(GuardError):
        strict.grad(np.full(4, -9.0))
    assert state(ours) == before


def test_tracked_parameters_are_refused_as_plainly():
    rng = np.random.default_rng(3)
    f = lambda x: rng.vonmises(x, 1.0).sum()
    p = tg.prepare(f, X)
    for run in (tg.grad(f), p.grad):
        with pytest.raises(tg.errors.NoRuleError):
            run(X)
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    q = tg.prepare(lambda x: ours.normal(x).sum(), X)
    for k in range(4):
        assert q.value(X * k) == theirs.normal(X * k).sum()


# --- Python numbers ---


def stepped(x, h, n=6):
    y = np.array([1.0, 0.5])
    for _ in range(n):
        k = np.array([y[1], -x[0] * y[0] - x[1] * y[1] * x[2]])
        y = y + h / 2 * k + h**2 / 6 * k * x[3]
    return (y**2).sum()


NUMBERS = {
    "a step": stepped,
    "a rate": lambda x, h: ((x - h * (A.T @ (A @ x)) / 20) ** 2).sum(),
    "in an array": lambda x, h: (x * np.array([h, 1.0, h * h, 0.0]) * np.full(4, h)).sum() ** 2,
    "an exponent": lambda x, h: (np.abs(x) ** h).sum(),
    "in a tree": lambda x, p: (x * p["a"] * p["b"][0]).sum() ** 2,
    "of its own": lambda x, h: (x**2).sum() * (1 / h) + (h - 1) // 1,
    "through a function": lambda x, h: (x * np.sqrt(h) * np.linspace(0, h, 4)).sum() ** 2,
    "complex": lambda x, h: np.abs((x * (h * 1j)).sum()) ** 2,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_python_number_is_an_input(name, form):
    f = NUMBERS[name]
    p = tg.prepare(f, X, {"a": 0.1, "b": [0.2]} if name == "in a tree" else 0.1)
    for k in range(6):
        h = 0.1 * (k + 1)
        h = {"a": h, "b": [h * h]} if name == "in a tree" else h
        want = plainly(form, f, X, h)
        assert close(replayed(form, p, X, h), want)
    assert p.forms[form].recordings <= 2 and p.forms[form].replays >= 4


def test_a_python_number_that_is_used_up_is_guarded():
    def f(x, h):
        n = int(1 / h)
        return (x**2).sum() * h if n > 3 else (x**3).sum() * h * n

    p = tg.prepare(f, X, 0.1)
    for h in (0.1, 0.2, 0.2, 0.5, 0.1, 0.5, 0.2, 1.0):
        assert close(p.grad(X, h), tg.grad(f)(X, h))
    strict = tg.prepare(lambda x, h: (x * h).sum() if h < 1 else (x**2).sum(), X, 0.5, on_change="raise")
    assert close(strict.grad(X, 0.5), np.full(4, 0.5)) and close(strict.grad(X, 0.25), np.full(4, 0.25))
    with pytest.raises(GuardError):
        strict.grad(X, 2.0)


@pytest.mark.parametrize("on_change", ["record", "raise"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, h: (x * h).astype("f4") * (2 * h),
        lambda x, h: np.ones(3, np.float32) * h,
        lambda x, h: x * h,
    ],
)
def test_single_precision_stays_single(f, on_change):
    x = np.ones(3, np.float32)
    p = tg.prepare(f, x, 0.5, on_change=on_change)
    for h in (0.5,) * 3 if on_change == "raise" else (0.5, 0.25, 0.125, 0.1):
        got, want = p.value(x, h), f(x, h)
        assert got.dtype == want.dtype == np.float32 and np.array_equal(got, want)


def test_pythons_arithmetic_raises_as_it_does_plainly():
    def f(x, h):
        return (x**2).sum() * (1 / h)

    p = tg.prepare(f, X, 0.5)
    with np.errstate(all="ignore"):
        for h in (0.5, 0.25, 0.125, 0.0625):
            assert close(p.grad(X, h), tg.grad(f)(X, h))
        with pytest.raises(ZeroDivisionError):
            p.grad(X, 0.0)
        assert close(p.grad(X, 0.3), tg.grad(f)(X, 0.3))


def test_a_number_that_is_asked_for_as_one_is_guarded_beside_one_that_is_not():
    f = lambda x, h, c: (x * math.floor(h) * c).sum() + float(h)
    p = tg.prepare(f, X, 4.0, 1.0, on_change="raise")
    for c in (1.0, 2.0, 3.0):
        assert close(p.grad(X, 4.0, c), tg.grad(f)(X, 4.0, c))
    with pytest.raises(GuardError, match="a value that the function asked for is no longer"):
        p.grad(X, 9.0, 1.0)


def test_a_number_that_is_converted_is_no_question():
    f = lambda x, h, c: (x * math.sqrt(h) * c).sum() + float(h)
    p = tg.prepare(f, X, 4.0, 1.0, on_change="raise")
    for h, c in ((4.0, 1.0), (4.0, 2.0), (9.0, 3.0), (2.0, 1.0)):
        assert p(X, h, c) == f(X, h, c) and close(p.grad(X, h, c), tg.grad(f)(X, h, c))


# --- programs at random ---

LINES = (
    "y = y + h * x",
    "y = y * (h / 2) + x**2 * h**2",
    "y[i] = x[j] * h",
    "y[i] += z[0, j] * 0.5",
    "y[y > h] = 0.25",
    "y[x < 0] = y[0] * h",
    "z[:, i] = y[j]",
    "z[i] *= h",
    "z[z > y] = x[1]",
    "y = y + z[i].sum(axis=0) * 0.1",
    "y = y + z[i, j].sum() * 0.1",
    "y[:3] = z[1, i] + np.take(x, j)",
    "np.add.at(y, i, x[j] * h)",
    "y = y[rng.permutation(4)] * 1.1",
    "y = y + rng.normal(size=4) * x",
    "y[rng.integers(0, 4, 2)] = x[:2] * rng.random()",
    "y = y + z[rng.choice(4, 2), i[:2]].sum() * 0.1",
    "rng.shuffle(y)",
    "y = np.sin(y) if y[0] > h else np.cos(y)",
    "y = y[np.argsort(x)]",
    "b[:] = y * 0.5",
    "y = y + b[i].sum() * x",
    "y = y / (1 + h) - np.full(4, h * 0.1)",
    "v = y[1:]; v[i % 3] = x[j] * 0.3",
    "y = y * (2.0 if h > 0.25 else 3.0)",
)


def program(seed):
    r = np.random.default_rng(seed)
    body = "".join([f"    {LINES[k]}\n" for k in r.integers(0, len(LINES), r.integers(3, 9))])
    text = f"def f(x, h, i, j):\n    y, z = x * 1.0, np.outer(x, x + h)\n{body}    return (y * w).sum() + (z**2).sum() * 0.1 + h * y[0]\n"
    space = {
        "np": np,
        "rng": np.random.default_rng(seed),
        "b": np.full(4, 0.3),
        "w": np.array([1.0, -0.5, 0.3, 0.8]),
    }
    exec(text, space)
    return space["f"], space, text


def judged(seeds):
    eager = replays = 0
    for seed in seeds:
        r = np.random.default_rng(seed + 1)
        calls = [
            (r.normal(size=4), float(r.uniform(0.1, 0.5)), r.integers(-4, 4, 3), r.integers(0, 4, 3))
            for _ in range(4)
        ]
        for form in FORMS:
            (f, ours, text), (g, theirs, _) = program(seed), program(seed)
            p = tg.prepare(f, *calls[0])
            for x, *more in (*calls, *calls[:2]):
                with np.errstate(all="ignore"):
                    got, want = replayed(form, p, x, *more), plainly(form, g, x, *more)
                assert all(
                    np.allclose(a, c, rtol=1e-9, atol=1e-12)
                    for a, c in zip(np.atleast_1d(got), np.atleast_1d(want), strict=True)
                ), f"seed {seed}, {form}: {got} instead of {want}\n{text}"
                assert np.allclose(ours["b"], theirs["b"]) and state(ours["rng"]) == state(theirs["rng"]), (
                    f"seed {seed}, {form}\n{text}"
                )
            eager += p.forms[form].eager is not None
            replays += p.forms[form].replays
    assert eager <= 0.02 * 4 * len(seeds) and replays > 1.5 * 4 * len(seeds), (eager, replays)


def test_programs():
    judged(range(5))


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(1000, 4000, 250)], ids=str)
def test_thousands_of_programs(seeds):
    judged(seeds)


def test_several_threads_give_their_own_inputs():
    f = lambda x, h, i: (np.sin(x[i]) * h + x[:3] ** 3 * h**2).sum()
    p, wrong = tg.prepare(f, X, 0.1, np.array([0, 1, 2])), []

    def work(seed):
        r = np.random.default_rng(seed)
        for _ in range(40):
            x, h, i = r.normal(size=4), float(r.uniform()), r.integers(0, 4, 3)
            if not close(p.grad(x, h, i), tg.grad(f)(x, h, i)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and p.forms["grad"].replays > 100


def test_products_at_a_point_know_its_inputs():
    f = lambda x, h, i: (np.sin(x[i]) * h + x[:3] ** 3 * h**2).sum()
    p = tg.prepare(f, X, 0.1, np.array([0, 1, 2]))
    for k in range(4):
        more = 0.1 * (k + 1), np.array([k, 1, 2])
        here = p.at(X, *more)
        for v in (X, X[::-1].copy(), X):
            assert close(here.hvp(v), tg.hvp(f, X, v, more))
            assert close(here.jvp(v), tg.jvp(lambda x, more=more: f(x, *more), (X,), (v,)))
    ours, theirs = np.random.default_rng(0), np.random.default_rng(0)
    here = tg.prepare(scaled(ours), X).at(X)
    for _ in range(5):
        assert close(here.hvp(X), tg.hvp(scaled(theirs), X, X))


LOOKS = {
    "a key": lambda x, h: (x * {0.5: 1.0, 0.25: 2.0}.get(h, 3.0)).sum(),
    "a member": lambda x, h: (x * h).sum() if h in {0.5, 1.0} else (x**2).sum(),
    "its class": lambda x, h: (x * h).sum() ** 2 if type(h) is float and isinstance(h, float) else x.sum(),
    "as text": lambda x, h: (x * len(f"{h:.2g}")).sum() + len(str(h)),
    "text of an array": lambda x, h: (x * h).sum() * len(f"{x[0]:.4g}"),
    "the class of an array": lambda x, h: (
        (x * h).sum() if type(x) is np.ndarray and type(x.sum()) is np.float64 else x[0]
    ),
    "is it one": lambda x, h: (x * (h or 2.0)).sum() if h is not None and np.isscalar(h) else x.sum(),
}


@pytest.mark.parametrize("form", ["value", "grad"])
@pytest.mark.parametrize("name", LOOKS)
def test_what_is_seen_of_an_input_is_that_of_a_plain_call(name, form):
    f = LOOKS[name]
    p = tg.prepare(f, X, 0.5)
    for x, h in zip((X, X, X, X * 1.3125, X, X), (0.5, 0.25, 0.125, 0.5, 10.0, 0.25), strict=True):
        assert close(replayed(form, p, x, h), np.asarray(plainly(form, f, x, h)))


def through_an_exception():
    held = {"a": np.linspace(0.1, 0.9, 3)}
    error = ValueError(held)
    return lambda: error.args[0]


def through_a_future():
    future = concurrent.futures.Future()
    future.set_result({"a": np.linspace(0.1, 0.9, 3)})
    return future.result


def through_a_method_of_an_iterator():
    return itertools.repeat({"a": np.linspace(0.1, 0.9, 3)}).__next__


def through_an_iterator_of_calls():
    held = {"a": np.linspace(0.1, 0.9, 3)}
    each = iter(lambda: held, None)
    return lambda: next(each)


def of_a_masked_array():
    a = np.ma.masked_array([1.0, 2.0, 3.0], [0, 0, 1])

    def get():
        a[0] += 1.0
        return {"a": float(a.sum())}

    return get


def of_a_number_of_c():
    a = ctypes.c_double(1.0)

    def get():
        a.value += 1.0
        return {"a": a.value}

    return get


WAYS = [
    through_an_exception,
    through_a_future,
    through_a_method_of_an_iterator,
    through_an_iterator_of_calls,
    of_a_masked_array,
    of_a_number_of_c,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_what_a_call_changes_by_any_way(way):
    """Each call finds what the one before has left."""

    def made():
        get = way()

        def f(x):
            held = get()
            held["a"] = held["a"] * x[1]
            return np.sum(get()["a"] * x[0])

        return f

    points = [np.array(p) for p in ([0.7, -0.6, 0.9], [0.6, -0.5, 0.8], [0.71, -0.62, 0.95])]
    plain, prepared = made(), tg.prepare(made(), points[0])
    for x in points:
        assert np.allclose(prepared.value(x), plain(x))
    plain, prepared = made(), tg.prepare(made(), points[0])
    for x in points:
        assert np.allclose(prepared.grad(x), tg.grad(plain)(x))


class Fields(ctypes.Structure):
    _fields_ = [("at", ctypes.POINTER(ctypes.c_double)), ("number", ctypes.c_double)]


class Numbers(array.array):
    pass


class Raw(bytearray):
    pass


class Table(collections.UserDict):
    pass


class Row(collections.UserList):
    pass


class Die(random.Random):
    pass


def holders():
    """name -> (what a function reads, what alters it); of memory that classes of C keep, under the user's own
    classes"""
    doubles, number, fields, numbers = (
        (ctypes.c_double * 2)(1.0, 2.0),
        ctypes.c_double(1.0),
        Fields(None, 1.0),
        Numbers("d", [1.0]),
    )
    raw, table, row, die = Raw(b"\1\2"), Table(a=1.0), Row([1.0]), Die(0)
    pointer, cast, fields.at = (
        ctypes.pointer(number),
        ctypes.cast(doubles, ctypes.POINTER(ctypes.c_double)),
        ctypes.pointer(number),
    )
    row.twice = lambda: row[0] * 2.0

    def puts(x, k):
        return lambda v: x.__setitem__(k, v)

    return {
        "an array of C": (lambda: doubles[1], puts(doubles, 1)),
        "as an array": (lambda: np.ctypeslib.as_array(doubles).sum(), puts(doubles, 0)),
        "a pointer": (lambda: pointer.contents.value, lambda v: setattr(number, "value", v)),
        "a pointer to an array": (lambda: cast[1], puts(doubles, 1)),
        "a pointer in a structure": (lambda: fields.at.contents.value, lambda v: setattr(number, "value", v)),
        "a structure": (lambda: fields.number, lambda v: setattr(fields, "number", v)),
        "array.array": (lambda: numbers[0], puts(numbers, 0)),
        "bytes": (lambda: raw[1], puts(raw, 1)),
        "UserDict": (lambda: table["a"], puts(table, "a")),
        "UserList": (lambda: row[0], puts(row, 0)),
        "a function in it": (lambda: row.twice(), puts(row, 0)),
        "random numbers": (lambda: die.random(), die.seed),
        "the level of a logger": (lambda: LOGGER.getEffectiveLevel(), PARENT.setLevel),
        "what a logger shows": (lambda: float(LOGGER.isEnabledFor(5)), LOGGER.setLevel),
        "a logger by its name": (lambda: logging.getLogger("replayed.inputs").level, LOGGER.setLevel),
    }


@pytest.mark.parametrize("form", ("value", "grad"))
@pytest.mark.parametrize("name", holders())
def test_what_is_altered_in_between(name, form):
    get, put = holders()[name]
    f = lambda x: (x**2).sum() * get()
    p = tg.prepare(f, X)
    for _ in range(3):
        replayed(form, p, X)
    for v in (3, 7, 5):
        put(v)
        got = replayed(form, p, X)
        put(v)
        assert close(got, plainly(form, f, X)), v


# --- arguments are values, also where a function is run as it is ---


def drawing(x, y):
    x *= RANDOM.random() + 1
    return x.sum() + y.sum()


def of_a_file(x, y):
    with open(__file__) as file:
        x[0] = len(file.read(3))
    y[...] = x[::-1]
    return (x * y).sum()


def of_a_list(x, y):
    x += y
    return sum([float(v) for v in tg.value(x)])


def of_arrays(x, y):
    x += y
    return x.sum()


RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("f", [drawing, of_a_file, of_a_list, of_arrays], ids=lambda f: f.__name__)
def test_a_call_does_not_alter_its_arguments(f):
    x, y = np.array([0.7, -0.6, 0.9]), np.array([1.0, 2.0, 3.0])
    p = tg.prepare(f, x, y)
    for _ in range(4):
        p(x, y), p.value(x, y)
        assert x.tolist() == [0.7, -0.6, 0.9] and y.tolist() == [1.0, 2.0, 3.0]
    if f is not drawing:
        assert p(x, y) == f(x.copy(), y.copy())
    if f in (of_a_list, of_arrays):
        assert p(x, x) == f(*[x.copy()] * 2)  # one array stays one
        assert x.tolist() == [0.7, -0.6, 0.9]


def test_a_call_within_a_transform_does_not_alter_its_arguments():
    def f(x):
        x *= 2.0
        return (x * x).sum()

    x = np.array([0.7, -0.6, 0.9])
    p = tg.prepare(f, x)

    def around(x):
        y = x * 1.0
        return p(y) + 10.0 * y.sum() + p(y[1:])

    wanted = 8.0 * x * np.array([1.0, 2.0, 2.0]) + 10.0
    for g in (
        tg.grad(around)(x),
        tg.vmap(tg.grad(around))(np.stack([x, x]))[1],
        tg.prepare(around, x).grad(x),
    ):
        np.testing.assert_allclose(g, wanted)


def test_a_ninth_shape_in_turn_warns_once():
    """Each call would be recorded anew; after some of them eight shapes are replayed, and others run as they
    are."""
    p = tg.prepare(lambda x: (x * x).sum(), np.ones(3))
    with pytest.warns(tg.errors.ReplayWarning, match="had arguments of another kind") as told:
        for _ in range(40):
            for n in range(1, 10):
                np.testing.assert_array_equal(p.grad(np.ones(n)), 2 * np.ones(n))
    assert (
        len(told) == 1
        and told[0].filename == __file__
        and "calls of other kinds are run as they are" in p.report()
    )
    form = p.forms["grad"]
    before = form.recordings, form.replays
    for n in range(1, 10):
        p.grad(np.ones(n))
    assert (form.recordings, form.replays) == (before[0], before[1] + 8)


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Box:
    held: object
    others: list


def leaves_of(tree):
    return tg.tree.flatten(tree)[0]


def random_tree(rng, leaf, depth=3):
    """A tree of nodes of all kinds."""
    if depth == 0 or rng.random() < 0.2:
        return leaf()
    members = [random_tree(rng, leaf, depth - 1) for _ in range(rng.integers(1, 4))]
    kind = rng.integers(0, 5)
    if kind == 0:
        return {f"k{n}": m for n, m in enumerate(members)}
    if kind == 1:
        return Pair(members[0], tuple(members[1:]))
    return Box(members[0], members[1:]) if kind == 2 else (tuple if kind == 3 else list)(members)


@pytest.mark.parametrize("seed", range(6))
def test_trees_are_taken_apart_and_put_together(seed):
    """Nodes of all kinds, arrays that are laid out in other ways, and the same members in another order."""
    rng = np.random.default_rng(seed)
    tree = {"x": rng.normal(size=(2, 3)), "tree": random_tree(rng, lambda: rng.normal(size=(2, 3)))}
    f = lambda t: sum((n + 1) * (np.sin(v) * t["x"]).sum() for n, v in enumerate(leaves_of(t["tree"])))
    p = tg.prepare(f, tree)
    turned = tg.tree.map(np.asfortranarray, tree)
    other = {"tree": tree["tree"], "x": 2 * tree["x"]}
    for t in (tree, tree, tg.tree.map(lambda v: v + 1, tree), turned, other, tree, turned, other):
        value, found = p.value_and_grad(t)
        assert np.isclose(value, f(t), rtol=1e-13)
        want = tg.grad(f)(t)
        assert repr(tg.tree.map(np.shape, found)) == repr(tg.tree.map(np.shape, want))
        assert all(map(np.allclose, leaves_of(found), leaves_of(want)))
    with pytest.raises(TypeError):
        p.value_and_grad({**tree, "x": "text"})
    assert p.forms["value_and_grad"].recordings == 3


# --- captured arrays that the program reads, and something else has taken as constants ---


def by_a_map(a):
    return tg.kernels.map(lambda u: np.sin(u * a[1]) + a[0])


def by_a_likelihood(a):
    kernel = tg.kernels.likelihood(
        lambda theta, y: -((y - theta[0] * a[1]) ** 2) - theta[1] * theta[2] * a[0]
    )
    return lambda x: kernel(x[:3], np.array([0.3, 1.2]))


def by_an_ode(a):
    solve = tg.ode.solver(lambda t, y, p: -p[0] * y * a[1] + a[0], rtol=1e-8, atol=1e-10, save_at=[0.0, 1.0])
    return lambda x: solve(np.ones(1), x[:1]).y


def by_a_rule(a):
    return tg.rule(lambda x: x**2 * a[1] + a, vjp=lambda g, out, x: (2 * g * x * float(a[1]),))


LONG = [pytest.param(made, marks=pytest.mark.long) for made in (by_a_map, by_an_ode)]


@pytest.mark.parametrize("made", [by_a_likelihood, by_a_rule, *LONG])
def test_a_captured_array_that_is_read_in_two_ways(made):
    """What a kernel has captured is a constant of its code, and what a rule reads in the sweep of one sample
    is a number: where the program reads the same array itself, its content is compared."""
    a = np.array([0.5, 1.2, -0.4, 0.8])
    inner = made(a)
    f = lambda x: np.sum(inner(x)) + np.sum(a * x)
    one, many = tg.prepare(f, X), tg.prepare(tg.vmap(tg.grad(f)), np.stack([X, 2 * X]))
    for scale in (1.0, 1.5, -1.0, 1.5):
        a[:] = scale * np.array([0.5, 1.2, -0.4, 0.8])
        expected = tg.grad(lambda x: np.sum(made(a.copy())(x)) + np.sum(a.copy() * x))(X)
        assert np.allclose(one.grad(X), expected, rtol=1e-9)
        assert np.allclose(one.value(X), f(X), rtol=1e-9)
        assert np.allclose(many.value(np.stack([X, 2 * X]))[0], expected, rtol=1e-9)
