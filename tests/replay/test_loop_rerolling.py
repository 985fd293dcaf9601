"""Recorded loops of Python as compiled loops: the bits of the interpreter, whatever the trips do to their
arrays."""

import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.replay import cached_program, emitted
from tapegrad.replay.interpreter import loop_rerolling, row_writer


@pytest.fixture(autouse=True)
def one_after_the_other(monkeypatch):
    """The interpreter takes sums in the order of their terms, as loops do. It runs from the first replay on:
    NumPy has an order of its own for eight terms and more."""
    monkeypatch.setattr(row_writer, "in_lines", lambda *_: None)
    monkeypatch.setattr(cached_program, "EMITTED_REPLAY", 1)
    monkeypatch.setattr(cached_program, "REPEATED_INSTRUCTIONS", 1 << 30)
    monkeypatch.setattr(cached_program.CachedProgram, "writing_cost", 0.0)


def kept_of(p, method="grad"):
    return p.forms[method].programs[0]


def rolled(f, *points, method="grad", loops=None):
    """f at each point by rolled loops: the bits of the interpreter, and what a plain call gives."""
    plain, p = tg.prepare(f, *points[0], compile=False), tg.prepare(f, *points[0], compile=True)
    call = lambda g, args: getattr(g, method)(*args)
    for args in (points[0], points[0], points[0], *points):
        got, want = leaves(call(p, args)), leaves(call(plain, args))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
            assert type(a) is type(b)
    eager = {
        "value": lambda f: f,
        "grad": tg.grad,
        "value_and_grad": tg.value_and_grad,
        "hvp": lambda f: lambda x, v: tg.hvp(f, x, v),
    }
    for args in points if method in eager else ():
        for a, b in zip(leaves(call(p, args)), leaves(eager[method](f)(*args)), strict=True):
            np.testing.assert_allclose(a, b, 1e-9, 1e-12)
    kept = kept_of(p, method)
    assert not kept.failures
    if loops is not None:
        assert len(kept.emitted.loops) == loops, p.report()
    return p


X = np.array([0.3, -0.7, 1.2])
A = np.array([[0.9, 0.2, 0.0], [-0.3, 0.7, 0.1], [0.05, -0.2, 0.8]])


def trajectory(steps):
    def f(x):
        path = np.zeros((steps + 1, 3))
        path[0] = x
        for t in range(steps):
            path[t + 1] = A @ np.tanh(path[t]) + 0.1 * x
        return (path**2).sum()

    return f


def test_a_trajectory_written_in_place():
    p = rolled(trajectory(40), (X,), (X * 2,), loops=2)
    assert "2 rolled loops: " in p.report() and "trips of" in p.report()


@pytest.mark.parametrize("method", ["value", "value_and_grad"])
def test_methods(method):
    rolled(trajectory(20), (X,), (X + 1,), method=method)


def test_second_order():
    rolled(trajectory(20), (X, X[::-1].copy()), (X + 1, X), method="hvp")


def test_the_text_does_not_depend_on_the_number_of_trips(monkeypatch):
    texts = []
    compiled = loop_rerolling.compile_text
    monkeypatch.setattr(
        loop_rerolling, "compile_text", lambda text, name: texts.append(text) or compiled(text, name)
    )
    rolled(trajectory(20), (X,), loops=2)
    rolled(trajectory(33), (X,), loops=2)
    assert texts[:2] == texts[2:] and len(texts) == 4


def test_data_of_each_trip_and_carried_numbers():
    y, w = np.random.default_rng(0).normal(size=60), np.linspace(0.5, 1.5, 60)

    def f(x):
        level, spread, total = x[0], np.exp(x[1]), 0.0
        for t in range(60):
            gap = y[t] - level
            total = total + w[t] * gap * gap / spread + np.log(spread) + 0.001 * t
            level, spread = level + 0.3 * gap, spread * 0.9 + np.exp(x[2])
        return total

    rolled(f, (X,), (X * 0.5,), loops=2)


def test_a_number_of_one_trip_is_a_number_of_all_trips_elsewhere():
    weights = [0.5] * 17 + [0.1] + [0.5] * 12

    def f(x):
        total = 0.0
        for weight in weights:
            x = np.tanh(np.sin(x) * weight + np.cos(x) * 0.5)
            total = total + (x**2).sum()
        return total

    p = rolled(f, (X,), (X * 0.5,), method="value", loops=1)
    np.testing.assert_allclose(p.value(X), f(X), 1e-12)
    rolled(f, (X,), (X * 0.5,))


def test_trips_that_read_two_trips_back():
    def f(x):
        s = np.zeros(50)
        s[:2] = x[:2]
        for t in range(2, 50):
            s[t] = 0.6 * s[t - 1] - 0.3 * s[t - 2] + x[2] * np.sin(s[t - 1])
        return (s * s).sum()

    rolled(f, (X,), (X - 1,), loops=2)


def test_a_captured_buffer_is_written_at_each_call():
    trace = np.zeros((30, 3))

    def f(x):
        for t in range(30):
            x = 0.9 * x + 0.1 * x[::-1] * x
            trace[t] = x
        return x.sum()

    p = rolled(f, (X,), (X * 0.3,))
    trace[:] = 0
    p.grad(X)
    found = trace.copy()
    f(X)
    np.testing.assert_allclose(found, trace, 1e-13)


def test_loops_within_loops():
    def f(x):
        for _ in range(12):
            y = x
            for _ in range(10):
                y = y - 0.1 * (np.tanh(y) - x)
            x = A @ y
        return x @ x

    p = rolled(f, (X,), (X * 0.5,))
    assert sum([loop.trips * loop.period for loop in kept_of(p).emitted.loops]) > 12 * 50


def test_a_condition_in_each_trip_is_guarded():
    def f(x):
        total = 0.0
        for _ in range(40):
            x = 0.95 * x
            total = total + (x[0] * x[1] if x[0] > 0.05 else x[2])
        return total

    p = tg.prepare(f, X, compile=True)
    points = [X, X, X, X * 2, X, X * 0.9, -X]
    for x in 20 * points:
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), 1e-12)
    assert p.forms["grad"].recordings == 4
    assert kept_of(p).program.guards
    strict = tg.prepare(f, X, compile=True, on_change="raise")
    for _ in range(3):
        strict.grad(X)
    with pytest.raises(
        tg.errors.GuardError, match=r"test_loop_rerolling.py:\d+.*: a condition is no longer True"
    ):
        strict.grad(X * 0.9)


def test_what_a_plain_call_warns_of():
    def f(x):
        for _ in range(20):
            x = np.log(x + 2.0)
        return x.sum()

    p = rolled(f, (X,), (X + 1,))
    for x in (X - 4, np.array([np.inf, 1.0, 2.0]), np.array([np.nan, 1.0, 2.0])):
        with warnings.catch_warnings(record=True) as ours, np.errstate(all="warn"):
            warnings.simplefilter("always")
            got = p.grad(x)
        with warnings.catch_warnings(record=True) as theirs, np.errstate(all="warn"):
            warnings.simplefilter("always")
            want = tg.grad(f)(x)
        np.testing.assert_array_equal(got, want)
        assert {str(w.message) for w in ours} == {str(w.message) for w in theirs}


def test_a_value_that_is_not_finite_in_one_trip_only():
    """It must not get lost behind a choice, or a function with a limit."""

    def f(x):
        total = 0.0
        for _ in range(20):
            x = x * 3.0
            total = total + np.where(x > 1e6, 0.0, np.tanh(np.exp(x))).sum()
        return total

    p = tg.prepare(f, X, compile=True)
    for x in (X * 1e-9, X * 1e-9, X * 1e-9, X, X * 1e-8):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(p.value(x), f(x), 1e-12)


def test_places_that_follow_no_step_stay_with_the_interpreter():
    order = np.random.default_rng(1).permutation(40)

    def f(x):
        s = np.zeros(40)
        for t in order:
            s[t] = x[0] * 1.1
            x = x * 0.9 + s[t] * 0.1
        return (s * x[0]).sum()

    p = rolled(f, (X,), (X * 2,))
    assert "a loop stays with the interpreter: the places of its trips follow no fixed step" in p.report()


def test_trips_that_meet_their_own_places():
    """Where two cells of a trip are one place in some of the trips, memory decides who comes first."""

    def f(x):
        s = np.zeros(30)
        s[:3] = x
        for t in range(26):
            s[t + 3] = s[t] * 0.5 + s[26 - t] * x[1] + x[0]
        return s.sum()

    p = rolled(f, (X,), (X * 0.2,), method="value")
    assert any(loop.meeting for loop in kept_of(p, "value").emitted.loops)
    rolled(f, (X,), (X * 0.2,))


def test_auto_compiles_a_loop_once_that_pays(monkeypatch):
    monkeypatch.setattr(cached_program, "COMPILE_NS", 1e5)
    monkeypatch.setattr(emitted, "LOOP_BUILD_NS", 100)
    monkeypatch.setattr(cached_program, "TRIED_REPLAYS", 1000)
    p = tg.prepare(trajectory(40), X)
    for _ in range(60):
        p.grad(X)
    assert [len(text.loops) for text, _ in kept_of(p).trial] == [0, 2]  # the faster one stays


CALLS = {
    "arctan2": lambda a, b: np.arctan2(a, b + 2.0),
    "max": lambda a, b: a - np.max(a) + b,
    "solve": lambda a, b: np.linalg.solve(np.eye(len(a)) * 3.0 + np.outer(a, b), a + b),
    "cholesky": lambda a, b: np.linalg.cholesky(np.eye(len(a)) + 0.1 * np.outer(a, a)) @ b,
    "argsort": lambda a, b: a[np.argsort(b)] * 0.9,
    "slogdet": lambda a, b: a + 0.1 * np.linalg.slogdet(np.eye(len(a)) * 2.0 + 0.1 * np.outer(a, b))[1],
    "complex": lambda a, b: np.abs(np.exp(1j * a) + b),
    "qr": lambda a, b: a * np.linalg.qr(np.eye(len(a)) * 2.0 + 0.1 * np.outer(a, b))[1][0],
    "floor": lambda a, b: a - 0.3 * np.floor(3.0 * b) + 0.1 * np.ceil(a) + np.trunc(b) - np.rint(a * 2.0) / 4,
    "copysign": lambda a, b: np.copysign(a, b) * 0.5 + np.modf(a)[0],
}


FEW = ("arctan2", "solve", "argsort", "floor")


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.long) for name in CALLS]
)
def test_calls_of_others_within_a_loop(name):
    """They read and write the memory of the interpreter; what they give is carried and kept by trips."""
    call = CALLS[name]

    def f(x):
        path, a, b = np.zeros((14, 3)), x * 1.0, np.tanh(x)
        path[0] = x
        for t in range(1, 14):
            a, b = np.tanh(call(a, b)), 0.5 * a + 0.1 * path[t - 1] + 0.2 * x
            path[t] = call(b, path[t - 1] * 0.5 + a)
        return (path * path).sum() + a @ b

    p = rolled(f, (X,), (X * 0.5,), method="value_and_grad")
    assert len(kept_of(p, "value_and_grad").emitted.loops) >= (name != "argsort"), p.report()


def test_a_call_within_a_loop_that_finds_no_number():
    def f(x):
        for _ in range(20):
            x = 0.3 * np.arccos(x) - 0.2
        return x.sum()

    p = rolled(f, (X * 0.5,), (X * 0.4,), method="value", loops=1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(p.value(X * 9), f(X * 9))
        assert np.isnan(f(X * 9))


@pytest.mark.parametrize("n", [4, pytest.param(2, marks=pytest.mark.long), 11])
def test_lanes_of_every_width(n):
    """Functions of more than three numbers are the kernels' own: 4 ulp of NumPy's."""
    M = np.random.default_rng(n).normal(size=(n, n)) * 0.3
    functions = (np.tanh, np.exp, np.expm1, np.sin, np.cos, np.cosh)

    def f(x):
        total = 0.0
        for _ in range(12):
            x = np.tanh(M @ x) + 0.1 * np.sqrt(x[::-1] * x[::-1] + 1.0) / (1.0 + np.log1p(x * x))
            total = total + np.log(np.sin(x) ** 2 + 0.5).sum()
        return total + sum([g(x).sum() for g in functions])

    x = np.linspace(-1.0, 1.0, n)
    for scale in (1.0, 30.0):  # also where tanh is nearly 1
        p = tg.prepare(f, x, compile=True)
        for _ in range(3):
            got = p.value_and_grad(x * scale)
        assert kept_of(p, "value_and_grad").emitted.loops
        want = tg.value_and_grad(f)(x * scale)
        np.testing.assert_allclose(got[0], want[0], 1e-14)
        np.testing.assert_allclose(got[1], want[1], 1e-13, 1e-14)


# --- searches ---


def program(seed, kinds=14):
    """A loop with arrays in it, some written in place; some call functions of others."""
    rng = np.random.default_rng(seed)
    n, steps = int(rng.integers(1, 4)), int(rng.integers(9, 30))  # NumPy has other functions for longer lines
    M, y = rng.normal(size=(n, n)) * 0.4, rng.normal(size=(steps + 4, n))
    body = [int(k) for k in rng.integers(0, kinds, size=rng.integers(2, 7))]
    numbers = rng.uniform(0.2, 0.9, size=len(body))
    back, start = int(rng.integers(1, 4)), int(rng.integers(0, 3))

    def f(x):
        a, b, total = x * 1.0, np.tanh(x), 0.0
        path = np.zeros((steps + 4, n))
        path[:3] = x
        for t in range(3, steps + 3):
            for k, c in zip(body, numbers, strict=True):
                if k == 0:
                    a = M @ a + c * y[t]
                elif k == 1:
                    path[t] = path[t - back] * c + a
                elif k == 2:
                    path[t, 0] += b[0] * c
                elif k == 3:
                    b = np.tanh(b + c * path[t - 1])
                elif k == 4:
                    total = total + np.sum(a * b) * c
                elif k == 5:
                    a = np.where(a > c, c * a, b)
                elif k == 6:
                    a[-1] = b[0] * c
                elif k == 7:
                    b = a / (1.0 + b * b)
                elif k == 8:
                    path[t] *= c
                elif k == 9:
                    a = np.sqrt(a * a + c) * np.sin(b)
                elif k == 10:
                    b = np.outer(a, b)[:, 0] * c
                elif k == 11:
                    a = np.concatenate([b[1:], a[:1]]) * c
                elif k == 12 and t % 2 == start % 2:
                    b = b + c * path[start]
                elif k == 13:
                    path[steps + 3 - t] += c * a * 0.1
                elif k == 14:
                    a = np.arctan2(a, b + 2.0)
                elif k == 15:
                    path[t] = path[t - 1] - np.max(path[t]) * c + b
                elif k == 16:
                    b = np.linalg.solve(np.eye(n) * 3.0 + M @ M.T * b[0], a)
                elif k == 17:
                    path[t, -1] = np.hypot(path[t - back, 0], c)
                elif k == 18:
                    a = np.floor(2.0 * a) * 0.1 + np.copysign(b, a)
        return total + (path * path).sum() + np.sum(a) * np.sum(b)

    return f, rng.normal(size=(3, n)) * 0.5


def search(seeds, kinds=14):
    found = 0
    for seed in seeds:
        f, (x, z, v) = program(seed, kinds)
        for method, points in {"value": [(x,), (z,)], "grad": [(x,), (z,)], "hvp": [(x, v), (z, v)]}.items():
            try:
                p = rolled(f, *points, method=method)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {method}: {error}") from error
            found += len(kept_of(p, method).emitted.loops)
    return found


@pytest.mark.long
def test_random_loops():
    assert search(range(6)) > 12


@pytest.mark.long
def test_many_random_loops():
    assert search(range(100, 400)) > 600


@pytest.mark.long
def test_many_random_loops_that_call_others():
    assert search(range(1000, 1200), 19) > 400


def test_views_of_a_loop_are_read_after_it():
    """The places of x, which lie in the views of the first loop, are not given to b before the second."""

    def f(x):
        h = x[0] * 0.5
        for t in range(39):
            h = np.tanh(h * x[t])  # nothing of it is read but the views
        b, h = np.zeros_like(x), x[0] * 0.5
        for t in range(39):
            h = np.tanh(h * 0.5 + x[t])
            b[t] = h * t
        return np.sum(b)

    rolled(f, (np.random.default_rng(1).normal(size=(40, 3)),), method="value", loops=2)
