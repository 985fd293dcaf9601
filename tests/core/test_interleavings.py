"""Another thread changes what a function reads, at any line of a call. Each result belongs to a state
during the call, and each later one to the state then."""

import functools
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from interleavings import count_lines, interleaved

import tapegrad as tg
from tapegrad.replay.cached_program import CachedProgram

X = np.array([0.3, -0.7, 1.1])
THETA, DATA = np.array([[0.7, 0.2], [1.3, 0.1]]), np.array([0.5, -0.25, 0.3])
FEW, MANY = 6, 150


def prepared_gradient(c):
    p = tg.prepare(lambda x: np.sum(np.sin(x) * c["c"] + x**2), X)
    return lambda: p.grad(X), lambda: np.cos(X) * c["c"] + 2 * X


def likelihood(c):
    k = tg.kernels.likelihood(lambda t, y: -((t[0] * c["c"] - y * t[1]) ** 2))
    return lambda: k(THETA, DATA), lambda: -((THETA[0] * c["c"] - np.outer(DATA, THETA[1])) ** 2).sum(0)


def recursion(c):
    k = tg.kernels.recursion(lambda t: t[0], lambda h, t, y: (h * c["c"] + y, h * t[1]))

    def expected():
        h, total = THETA[0], 0.0
        for y in DATA:
            h, total = h * c["c"] + y, total + h * THETA[1]
        return total

    return lambda: k(THETA, DATA), expected


def mapped(c):
    k = tg.kernels.map(lambda t: np.sin(t[0]) * c["c"] + t[1])
    return lambda: k(THETA), lambda: np.sin(THETA[0]) * c["c"] + THETA[1]


MADE = [prepared_gradient, likelihood, recursion, mapped]


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_a_number_that_is_another_for_a_while(make, count):
    """Before and after the first call it is 1.5, in between -2.5."""
    rng = np.random.default_rng(0)
    lines = count_lines(lambda: make({"c": 1.5})[0])
    for n in rng.integers(1, lines, count):
        c = {"c": 1.5}
        call, expected = make(c)
        states = [expected()]
        c["c"] = -2.5
        states.append(expected())
        c["c"] = 1.5
        back = n + int(rng.integers(1, lines // 2))
        found = interleaved(call, {n: lambda: c.update(c=-2.5), back: lambda: c.update(c=1.5)})
        c["c"] = 1.5  # where the call ended before
        assert any([np.allclose(found, state, rtol=1e-12) for state in states]), n
        for _ in range(3):
            np.testing.assert_allclose(call(), states[0], rtol=1e-12, err_msg=str((n, back)))


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("warm", [False, True])
def test_a_replay_reads_an_array_once(warm, count, monkeypatch):
    """f reads the array twice. Another thread writes it back only before or after a replay."""
    monkeypatch.setattr(CachedProgram, "writing_cost", np.inf)  # calls of NumPy, and lines between them
    rng, seen = np.random.default_rng(1), set()

    def made():
        a = np.array([1.0, 2.0, 3.0])

        def g(x):
            a[:] += 1.0
            return np.sum(a * x)

        p, q = tg.prepare(lambda x: np.sum(np.sin(x) * a) + np.sum(x**2 * a), X), tg.prepare(g, X)
        for _ in range(4):
            p.grad(X)
        if warm:
            q.grad(X), q.grad(X), q.grad(X)
        a[:] = 1.0, 2.0, 3.0
        return a, p, (lambda: q.grad(X)) if warm else (lambda: tg.grad(g)(X))

    def replay():
        p = made()[1]
        return lambda: p.grad(X)

    lines = count_lines(replay)
    for n in rng.integers(1, lines, count):
        a, p, write = made()
        slope, before = np.cos(X) + 2 * X, a.copy()
        found = interleaved(lambda p=p: p.grad(X), {n: write})
        assert (a == before + 1.0).all()
        fits = [np.allclose(found, slope * state, rtol=1e-12) for state in (before, a)]
        assert any(fits), n
        seen.add(fits.index(True))
        np.testing.assert_allclose(p.grad(X), slope * a, rtol=1e-12)
    assert 0 in seen


@pytest.mark.parametrize("other", ["plain", "prepared"])
@pytest.mark.parametrize("kind", ["jvp", "grad", "prepared"])
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_two_threads_write_one_buffer(kind, other, count):
    """Both write all of the buffer before they read it: neither is refused, and both are right."""
    rng, v = np.random.default_rng(2), np.array([1.0, -0.5, 2.0])

    def calls():
        buf = np.zeros(3)

        def f(x):
            buf[:] = np.sin(x)
            buf[1:] += buf[:-1] * x[1:]
            return np.sum(buf * x)

        p = tg.prepare(f, X)
        for _ in range(3):
            p.grad(X)
        ways = {
            "jvp": lambda x: tg.jvp(f, (x,), (v,))[1],
            "grad": tg.grad(f),
            "plain": tg.grad(f),
            "prepared": p.grad,
        }
        return ways[kind], ways[other]

    a, b = calls()
    of_x, of_y = a(X), b(X + 0.5)
    lines = count_lines(lambda: functools.partial(calls()[0], X))
    for n in rng.integers(1, lines, count):
        a, b = calls()
        found = []
        np.testing.assert_allclose(
            interleaved(lambda a=a: a(X), {n: lambda b=b: found.append(b(X + 0.5))}), of_x
        )
        np.testing.assert_allclose(found, [of_y])


@pytest.mark.long
def test_threads_with_other_shapes():
    """Threads call one prepared function with arrays of four layouts."""
    c, before, wrong = {"c": 1.5}, sys.getswitchinterval(), []
    arrays = [np.linspace(0, 1, n) for n in (3, 5, 3000)] + [np.linspace(0, 1, 4, dtype=np.float32)]

    def work(p, seed):
        for k in np.random.default_rng(seed).integers(0, 4, 60):
            found, expected = p.grad(arrays[k]), 1.5 * np.cos(1.5 * arrays[k])
            if found.dtype != arrays[k].dtype or not np.allclose(found, expected, rtol=1e-5):
                wrong.append((k, found))

    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            p = tg.prepare(lambda x: np.sin(x * c["c"]).sum(), arrays[0])
            with ThreadPoolExecutor(4) as threads:
                for done in [threads.submit(work, p, seed) for seed in range(4)]:
                    done.result(60)
            assert len(p.forms["grad"].programs) <= 8
    finally:
        sys.setswitchinterval(before)
    assert not wrong
