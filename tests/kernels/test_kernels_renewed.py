"""Kernels whose captured numbers change: under interrupts, while threads call, hundreds of times."""

import gc
import inspect
import itertools
import sys
import threading
import time

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import cache
from tapegrad.kernels.launch import cpu
from tapegrad.kernels.trace.captured import CapturedState

THETA, DATA = np.array([[0.7], [1.3]]), np.array([0.5, -0.25])


def scaled(c):
    """A kernel that reads c["c"], and its value and gradient in plain NumPy."""
    k = tg.kernels.likelihood(lambda t, y: -t[0] * (y - t[1] * c["c"]) ** 2)

    def right():
        r = DATA - THETA[1] * c["c"]
        return -THETA[0, 0] * (r**2).sum(), [-(r**2).sum(), 2 * THETA[0, 0] * (r * c["c"]).sum()]

    def check():
        value, gradient = k.value_and_grad(THETA, DATA)
        np.testing.assert_allclose(value[0], right()[0], rtol=1e-13)
        np.testing.assert_allclose(gradient[:, 0], right()[1], rtol=1e-13)

    return k, check


# --- interrupts ---


def interrupted_at(n, call):
    """Run call(), with a KeyboardInterrupt at the nth line that runs in the package.  Was there such a line?"""
    lines = itertools.count()

    def trace(frame, event, arg):
        if "tapegrad" not in frame.f_code.co_filename or frame.f_code.co_flags & inspect.CO_GENERATOR:
            return None  # (Python drops what is raised where a generator is closed)
        if next(lines) == n:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def after_interrupts(places):
    c = {"c": 1.0}
    k, check = scaled(c)
    check()
    met = 0
    for n in places:
        c["c"] += 1.0
        met += interrupted_at(n, lambda: k.value_and_grad(THETA, DATA))
        check()
        check()
    return met


def test_an_interrupt_while_a_kernel_is_traced_anew():
    places = np.random.default_rng(0).integers(0, 12_000, 12)
    assert after_interrupts([1, 5, 20, 60, 200, *places]) > 5


@pytest.mark.long
def test_many_interrupts():
    assert after_interrupts(range(0, 60_000, 97)) > 50


# --- threads ---


def calls_meanwhile(changes, threads):
    """Threads call while the number goes up: each gets a number that it was during the call."""
    c, wrong, stop = {"c": 1.0}, [], threading.Event()
    k = tg.kernels.likelihood(lambda t, y: -t[0] * c["c"])

    def call():
        while not stop.is_set():
            before = c["c"]
            got = -k(np.ones((1, 1)), np.ones(1))[0]
            if not before <= got <= c["c"]:
                wrong.append((before, got, c["c"]))

    running = [threading.Thread(target=call) for _ in range(threads)]
    for t in running:
        t.start()
    rng = np.random.default_rng(0)
    for _ in range(changes):
        time.sleep(rng.exponential(0.01))
        c["c"] += 1.0
    stop.set()
    for t in running:
        t.join()
    assert not wrong
    assert k(np.ones((1, 1)), np.ones(1))[0] == -c["c"]


@pytest.mark.parametrize(
    "make, call",
    [
        (tg.kernels.likelihood, lambda k: k(THETA, DATA)),
        (tg.kernels.likelihood, lambda k: k.contributions(THETA, DATA)),
        (tg.kernels.likelihood, lambda k: tg.grad(lambda t: k(t, DATA).sum())(THETA)),
        (tg.kernels.map, lambda k: k(THETA)),
    ],
    ids=["value", "contributions", "gradient", "map"],
)
def test_a_call_that_begins_during_a_trace(make, call, monkeypatch):
    """The trace has read a number that is older than the call: the call waits, and traces anew."""
    c, settle, found, later = {"c": 1.0}, CapturedState.settle, [], []
    k = make(lambda t, *y: -(t * c["c"]).sum())

    def slowly(self, kernel):
        if not later:
            c["c"] = 2.0
            later.append(threading.Thread(target=lambda: found.append(call(k))))
            later[0].start()
            later[0].join(0.3)
        return settle(self, kernel)

    monkeypatch.setattr(CapturedState, "settle", slowly)
    call(k)
    later[0].join()
    assert np.array_equal(found[0], call(make(lambda t, *y: -(t * 2.0).sum())))


def test_a_trace_that_fails_leaves_nothing_behind():
    k = tg.kernels.likelihood(lambda t, y: t[0] * {}["no"])
    for _ in range(2):
        with pytest.raises(KeyError):
            k(THETA, DATA)
    assert not k._captured


def test_threads_get_numbers_of_their_time():
    calls_meanwhile(15, 3)


@pytest.mark.long
def test_many_threads_get_numbers_of_their_time():
    calls_meanwhile(500, 6)


# --- numbers as arguments of the code ---


def programs(c):
    """Kernels of several kinds that read numbers and arrays of c: (a kernel of it, theta, data)."""
    theta, data = np.array([[0.3, 0.5, 0.1], [0.2, 0.9, 0.7]]), np.linspace(-1.0, 1.0, 7)

    def loglik(t, y):
        m = c["w"] @ np.stack([t[0] * y, t[1]]) + c["c"]
        return -np.sum(m * m) * c["d"] + np.exp(-t[0] * c["c"])

    def init(t):
        return c["d"] * t[0]

    def step(m, t, y):
        m = t[1] * np.tanh(m * c["c"]) + c["w"][0, 1] * y
        return m, -c["d"] * (y - m) ** 2

    yield tg.kernels.likelihood(loglik), theta, data
    yield tg.kernels.likelihood(loglik, sums=np.float64), theta.astype(np.float32), data.astype(np.float32)
    yield tg.kernels.recursion(init, step), theta, data
    yield tg.kernels.recursion(init, step), theta.astype(np.float32), data.astype(np.float32)

    def large(t, y):
        A = c["A"] + t[0] * np.eye(len(c["A"]))
        return -y * (A @ (A @ c["A"][0]))[0] * t[1]

    yield tg.kernels.likelihood(large), theta, data


def all_of(k, theta, data):
    return [*k.value_and_grad(theta[:, :1], data), *k.value_and_grad(np.repeat(theta, 9, axis=1), data)]


def drawn(rng, c):
    for name, v in c.items():
        c[name] = float(rng.normal()) if isinstance(v, float) else rng.normal(size=v.shape)


def bits_agree(which, draws):
    rng, c = np.random.default_rng(1), {"c": 1.5, "d": 0.5, "w": np.ones((2, 2)), "A": np.ones((12, 12))}
    drawn(rng, c)
    old = list(programs(c))
    for k in which:
        all_of(*old[k])
    for _ in range(draws):
        drawn(rng, c)
        new = list(programs(c))
        for k in which:
            for a, b in zip(all_of(*old[k]), all_of(*new[k]), strict=True):
                np.testing.assert_array_equal(a, b)


def test_numbers_that_changed_give_the_bits_of_a_new_kernel():
    bits_agree((0, 3), 1)


@pytest.mark.long
def test_changed_numbers_of_more_kernels():
    bits_agree(range(5), 5)


def test_many_numbers_need_little_code(monkeypatch, tmp_path):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    compiled, object_code = [], cpu.object_code
    monkeypatch.setattr(cpu, "object_code", lambda *args: compiled.append(1) or object_code(*args))
    c = {"c": 0.5, "w": np.array([1.5, 2.5])}
    k = tg.kernels.likelihood(lambda t, y: -t[0] * (y - t[1] * c["c"]) ** 2 * (c["w"] @ c["w"]))
    for n in range(12):
        c["c"], c["w"] = 0.3 + n, np.array([1.7, 2.3 + n])
        value = -THETA[0, 0] * ((DATA - THETA[1] * c["c"]) ** 2).sum() * (c["w"] @ c["w"])
        np.testing.assert_allclose(k(THETA, DATA)[0], value, rtol=1e-13)
    assert len(compiled) <= 3 and cache.info().files == len(list(tmp_path.iterdir())) <= 3


# --- caches with bounds ---


def kernel_of(c):
    return tg.kernels.likelihood(lambda t, y: -t[0] * (y - c) ** 2)


def test_machine_code_that_nobody_holds_is_dropped(monkeypatch, tmp_path):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "MOST_ENGINES", 3)
    kernels = [kernel_of(0.5 + n) for n in range(8)]
    theta = THETA[:1]
    for n, k in enumerate(kernels):
        assert k(theta, DATA)[0] == pytest.approx(-0.7 * ((DATA - 0.5 - n) ** 2).sum())
    assert cache.info().engines == 3
    alive = len(cpu.ALIVE)
    for n, k in enumerate(kernels):  # those that are held work on
        assert k(theta, DATA)[0] == pytest.approx(-0.7 * ((DATA - 0.5 - n) ** 2).sum())
    del kernels, k
    gc.collect()
    assert len(cpu.ALIVE) <= alive - 5
