"""Transforms in several threads over one captured array: each has the derivative of the numbers that it saw,
at whatever point the others write the array back; the last to finish leaves its contents."""

import sys
import threading
import time

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._capture import restore, threads
from tapegrad._capture.remembered import memory_of
from tapegrad._core.scope import OPEN


def test_threads_are_forgotten():
    assert threads.THREADS == set()


class Gate:
    """Called, it lets the other thread run its transform, and waits for the end of it.  (f reaches the gate,
    not the thread.)"""

    def __init__(self):
        self.go, self.done = threading.Event(), threading.Event()

    def __call__(self):
        self.done.clear()
        self.go.set()
        assert self.done.wait(20)


@pytest.fixture
def writer(xp):
    """`writer(buf, value)`: a gate; another thread fills buf with the value by a transform of its own at each
    call."""
    started, errors, stop = [], [], threading.Event()

    def make(buf, value):
        gate, library = Gate(), np if isinstance(buf, np.ndarray) else xp

        def g(x):
            buf[...] = value
            return (buf * x).sum()

        def run():
            while True:
                gate.go.wait()
                gate.go.clear()
                if stop.is_set():
                    return
                try:
                    tg.grad(g)(library.ones(buf.shape))
                except BaseException as error:
                    errors.append(error)
                gate.done.set()

        started.append((threading.Thread(target=run), gate))
        started[-1][0].start()
        return gate

    yield make
    stop.set()
    for thread, gate in started:
        gate.go.set()
        thread.join(20)
        assert not thread.is_alive()
    assert errors == []
    assert threads.THREADS == set()


@pytest.fixture(params=["whole", "row", "reversed", "column", "zero_d"])
def buf(request, xp):
    """A captured array, owning its memory or a view, in any layout."""
    b = xp.asarray(np.arange(1.0, 13.0).reshape(3, 4))
    return {
        "whole": b,
        "row": b[1],
        "reversed": b[::-1, ::-1],
        "column": b[:, 1],
        "zero_d": xp.asarray(np.array(2.0)),
    }[request.param]


def numbers(a):
    return a.get() if hasattr(a, "get") else np.asarray(a)


def test_written_between_value_and_sweep(buf, xp, writer):
    before = numbers(buf).copy()
    other = writer(buf, 100.0)

    def f(x):
        y = (buf * x * x).sum()
        other()
        return y

    assert np.array_equal(numbers(tg.grad(f)(xp.ones(buf.shape))), 2 * before)
    assert np.array_equal(numbers(buf), np.full(buf.shape, 100.0))


def test_what_is_read_afterwards_is_what_was_read_before(buf, xp, writer):
    before = numbers(buf).copy()
    other = writer(buf, 100.0)

    def f(x):
        part = buf[..., None]
        y = (part[..., 0] * x * x).sum()
        other()
        return y + (part[..., 0] * x).sum() + (buf * x).sum()

    assert np.array_equal(numbers(tg.grad(f)(xp.ones(buf.shape))), 4 * before)
    assert np.array_equal(numbers(buf), np.full(buf.shape, 100.0))


def test_pullback_and_forward(buf, xp, writer):
    before = numbers(buf).copy()
    other = writer(buf, 100.0)

    def f(x):
        y = buf * x * x
        other()
        return y.sum()

    x = xp.ones(buf.shape)
    _, pullback = tg.vjp(f, x)
    assert np.array_equal(numbers(pullback(xp.asarray(1.0) if xp is not np else 1.0)), 2 * before)
    buf[...] = xp.asarray(before)
    assert tg.jvp(f, (x,), (x,))[1] == 2 * before.sum()


def test_both_write_and_the_last_leaves_its_contents(buf, xp, writer):
    before = numbers(buf).copy()
    other = writer(buf, 100.0)

    def f(x):
        y = (buf * x * x).sum()
        buf[...] = buf * x
        other()
        return y + (buf * x).sum()

    assert np.array_equal(numbers(tg.grad(f)(xp.ones(buf.shape) * 2)), 8 * before)
    assert np.array_equal(numbers(buf), 2 * before)


def test_written_after_the_other_has_written(buf, xp, writer):
    before = numbers(buf).copy()
    other = writer(buf, 100.0)

    def f(x):
        other()
        buf[...] = buf * x
        return (buf * x).sum()

    assert np.array_equal(numbers(tg.grad(f)(xp.ones(buf.shape) * 2)), 4 * before)
    assert np.array_equal(numbers(buf), 2 * before)


def test_captured_before_and_written_after(writer):
    buf = np.array([1.0, 2.0])
    other = writer(buf, 100.0)

    def f(x):
        y = (buf * x).sum()
        other()
        buf[0] = buf[0] * x[0]
        return y + (buf * x).sum()

    assert tg.grad(f)(np.array([2.0, 3.0])).tolist() == [5.0, 4.0]
    assert buf.tolist() == [2.0, 2.0]


def test_nested_tapes(writer):
    buf = np.array([1.0, 2.0])
    other = writer(buf, 100.0)

    def inner(x):
        y = (buf * x**3).sum()
        other()
        return y

    x = np.array([1.0, 2.0])
    assert np.array_equal(tg.hvp(inner, x, np.ones(2)), 6 * np.array([1.0, 2.0]) * x)
    buf[:] = [1.0, 2.0]
    assert np.array_equal(tg.hessian(inner)(x), np.diag(6 * np.array([1.0, 2.0]) * x))
    buf[:] = [1.0, 2.0]

    def outer(x):
        g = tg.grad(lambda x: (buf * x**3).sum())(x)
        other()
        return (g * buf).sum()

    assert np.array_equal(tg.grad(outer)(x), 6 * np.array([1.0, 4.0]) * x)


def test_a_write_waits_for_the_end_of_a_sweep():
    """The sweep stops in a rule of the user's until the other thread wants to write back."""
    buf = np.array([3.0, 5.0])
    reached, done, order = threading.Event(), threading.Event(), []

    def g(x):
        buf[:] = 100.0
        reached.set()
        return (buf * x).sum()

    def transform():
        tg.grad(g)(np.ones(2))
        order.append("written")
        done.set()

    other = threading.Thread(target=transform)

    def vjp(c, out, x):
        other.start()
        assert reached.wait(20)
        assert not done.wait(0.2)  # it waits
        order.append("swept")
        return c * x

    slow = tg.rule(lambda x: (x * x).sum() / 2, vjp=vjp)

    def f(x):
        return slow(buf * x)

    assert tg.grad(f)(np.ones(2)).tolist() == [9.0, 25.0]
    other.join(20)
    assert order == ["swept", "written"]
    assert buf.tolist() == [100.0, 100.0]


def test_two_sweeps_that_wait_for_each_other_are_told():
    buf = np.array([3.0, 5.0])
    meet = threading.Barrier(2, timeout=20)
    results = []

    def inner(v):
        buf[:] = 7.0
        return (buf * v).sum()

    def vjp(c, out, x):
        meet.wait()
        tg.grad(inner)(np.ones(2))  # a transform from within the sweep, which writes the array
        return c * x

    slow = tg.rule(lambda x: (x * x).sum() / 2, vjp=vjp)

    def run():
        try:
            results.append(tg.grad(lambda x: slow(buf * x))(np.ones(2)))
        except tg.errors.RouteError as error:
            results.append(error)

    both = [threading.Thread(target=run) for _ in range(2)]
    for t in both:
        t.start()
    for t in both:
        t.join(20)
        assert not t.is_alive()
    errors = [r for r in results if isinstance(r, tg.errors.RouteError)]
    assert errors
    assert any(
        "two threads share the captured array of shape (2,)" in str(e) or "was changed while" in str(e)
        for e in errors
    )
    assert threads.THREADS == set()


def test_a_warm_function_while_another_thread_writes_back(monkeypatch):
    """A shadow that has waited meets a thread that has begun to write."""
    buf, begun = np.ones(5), threading.Event()

    def read(x):
        y = (buf * x).sum()
        time.sleep(0.2)
        return y

    def write(x):
        buf[:] = 7
        return (buf * x * x).sum()

    warm = tg.value_and_grad(read)
    for _ in range(4):
        warm(np.ones(5))
    assert memory_of(read).waiting

    def slow(shadow, write_back=restore.write_back):
        begun.set()
        time.sleep(0.1)  # within the sleep of the other, if that does not wait for this thread
        return write_back(shadow)

    def late(shadow, enter=threads.enter):  # the other begins after the shadow was taken up
        monkeypatch.setattr(threads, "enter", enter)
        other.start()
        begun.wait(5)
        enter(shadow)

    other = threading.Thread(target=tg.grad(write), args=(np.ones(5),))
    monkeypatch.setattr(restore, "write_back", slow)
    monkeypatch.setattr(threads, "enter", late)
    value, g = warm(np.ones(5))
    other.join(5)
    assert (g == value / 5).all()
    assert (buf == 7).all()
    monkeypatch.undo()
    value, g = warm(np.ones(5))
    assert value == 35 and (g == 7).all()
    assert threads.THREADS == set() and not threads.WRITERS


@pytest.fixture
def restless():
    """Python changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_many_threads_at_random(restless):
    """Each thread's gradient belongs to the numbers that its own value was computed from."""
    buf = np.ones(50)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)

        def read(x):
            return (buf * x).sum()  # the gradient is buf as it was when the value was computed

        def write(x):
            buf[:] = rng.integers(1, 100)
            return (buf * x * x).sum()

        for _ in range(60):
            if rng.random() < 0.5:
                value, g = tg.value_and_grad(read)(np.ones(50))
                if g.sum() != value or (g != g[0]).any():
                    wrong.append((value, g))
            else:
                value, g = tg.value_and_grad(write)(np.ones(50))
                if g.sum() != 2 * value:
                    wrong.append((value, g))

    several = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in several:
        t.start()
    for t in several:
        t.join(60)
        assert not t.is_alive()
    assert wrong == []
    assert threads.THREADS == set()
    assert getattr(OPEN, "depth", 0) == 0
