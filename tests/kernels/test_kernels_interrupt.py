"""A launch on the CPU answers an interrupt, leaves nothing open, and the next one works."""

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.kernels.launch import waiting

kernels = tg.kernels
RNG = np.random.default_rng(0)


def sines(theta, y):
    for _ in range(60):
        y = np.sin(y) * theta[0] + np.cos(y * theta[1])
    return y


def carry(theta):
    return theta[0]


def turn(m, theta, y):
    for _ in range(20):
        m = np.sin(m * theta[1]) + 0.1 * y
    return m, -((y - m) ** 2)


class Interrupt(Exception):
    pass


LATE = 2.0  # seconds, on a machine that is busy; an uninterrupted launch takes longer


def interrupted(launch, after=0.3):
    """Seconds from the signal to the exception; the launch takes longer than that."""

    def stop(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, after)
    start = time.monotonic()
    try:
        with pytest.raises(Interrupt):
            launch()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return time.monotonic() - start - after


def sized(launch, seconds):
    """How large n must be for launch(n) to take about so long."""
    n = 64
    launch(n)
    while True:
        taken = min(seconds_of(launch, n), seconds_of(launch, n))  # the first may compile
        if taken > 0.05:
            return int(n * seconds / taken)
        n *= 4


def seconds_of(launch, n):
    start = time.monotonic()
    launch(n)
    return time.monotonic() - start


def cases():
    many = np.ascontiguousarray(np.abs(RNG.normal(size=(2, 2048))) * 0.1)
    few = many[:, :40].copy()
    one = many[:, :1].copy()
    k, r = kernels.likelihood(sines), kernels.recursion(carry, turn)
    m = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: np.sin(s) * x, x))
    counts = np.full(64, 1.0)
    theta = np.array([[0.1], [0.2], [0.3], [0.4]]) * np.ones(512)
    yield "many samples", lambda n: k(many, np.ones(n))
    yield "gradient", lambda n: k.value_and_grad(many, np.ones(n))
    yield "out", lambda n: k(few, np.ones(n), out=np.empty(40))
    yield "few samples", lambda n: k(few, np.ones(n))
    yield "one sample", lambda n: k(one, np.ones(n))
    yield "recursion", lambda n: r.value_and_grad(many, np.ones(n))
    yield "by the data", lambda n: tg.grad(lambda y: k(many, y).sum())(np.ones(n))
    yield "loop in the run", lambda n: m(few[0, :40], counts[:40] * 40 * n)
    yield "library", lambda n: kernels.garch.loglik.value_and_grad(theta, np.ones(40 * n))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("launch", [pytest.param(launch, id=name) for name, launch in cases()])
def test_an_interrupt_is_answered(launch):
    n = sized(launch, 4.5)
    late = interrupted(lambda: launch(n))
    assert late < LATE
    for _ in range(2):  # what is left running stands in nobody's way
        start = time.monotonic()
        launch(max(n // 100, 1))
        assert time.monotonic() - start < 3.0
    assert all(not t.name.startswith("tapegrad_") or t.daemon for t in threading.enumerate())


def test_what_is_left_running_writes_into_nothing_of_the_caller():
    """One long block cannot be cut: it runs to its end, on arrays of its own."""
    k = kernels.likelihood(sines)
    theta = np.abs(RNG.normal(size=(2, 8))) * 0.1
    n = sized(lambda n: k(theta, np.ones(n)), 2.5)
    room = np.full(8, 7.0)
    late = interrupted(lambda: k(theta, np.ones(n), out=room), 0.2)
    assert late < LATE
    old = [t for t in threading.enumerate() if t.name.startswith("tapegrad_")]
    for t in old:
        t.join(60)
    assert np.array_equal(room, np.full(8, 7.0))
    assert not [t for t in old if t.is_alive() and t not in waiting.workers().threads]
    expected = k(theta, np.ones(10))
    assert np.array_equal(k(theta, np.ones(10), out=room), expected) and np.array_equal(room, expected)


def test_work_is_not_handed_to_threads_that_are_dismissed_meanwhile(monkeypatch):
    """Another thread dismisses the workers just before a task is put into their queue."""
    put, others = waiting.Workers.submit, []

    def late(self, call):
        if not others:
            others.append(threading.Thread(target=waiting.dismiss, daemon=True))
            others[0].start()
            others[0].join(0.2)
        return put(self, call)

    monkeypatch.setattr(waiting.Workers, "submit", late)
    found = []
    caller = threading.Thread(
        target=lambda: found.append(waiting.run_in_turn([lambda: 1, lambda: 2])), daemon=True
    )
    caller.start()
    caller.join(10)
    others[0].join(10)
    assert found == [[1, 2]] and not others[0].is_alive()


def test_an_interrupted_transform_leaves_no_level_open():
    k = kernels.likelihood(sines)
    theta = np.abs(RNG.normal(size=(2, 1024))) * 0.1
    n = sized(lambda n: k.value_and_grad(theta, np.ones(n)), 4.5)
    buffer = np.zeros(1)

    def f(x, y):
        buffer[0] = x
        return k(x * theta, y).sum() + buffer[0]

    assert interrupted(lambda: tg.grad(f)(1.0, np.ones(n))) < LATE
    assert type(buffer) is np.ndarray and buffer[0] == 1.0
    step = 1e-6
    expected = (f(1.0 + step, np.ones(5)) - f(1.0 - step, np.ones(5))) / (2 * step)
    assert tg.grad(f)(1.0, np.ones(5)) == pytest.approx(expected, rel=1e-6)


COMPILING = """
import threading, traceback
import numpy as np
import tapegrad as tg
from llvmlite.binding import ffi

found = []

def note():
    if threading.current_thread() is threading.main_thread():
        found.append("".join(traceback.format_stack()))

ffi.register_lock_callback(note, lambda: None)
x, rows = np.linspace(0.0, 1.0, 40), np.ones((600, 40))
held = [
    tg.kernels.map(lambda x: tg.kernels.loop(20, lambda i, s: np.sin(s) * x, x)),
    tg.prepare(lambda x: (np.sin(x) * x).sum(), x, compile=True),
    tg.prepare(lambda x: np.sin(rows * x).sum(axis=1).max(), x, compile=True),
]
for f in held:
    for _ in range(4):
        f(x)
assert not found, found[0]
"""


def test_the_main_thread_never_holds_the_lock_of_llvm():
    """An interrupt in llvmlite's lock, which is written in Python, would leave it locked."""
    subprocess.run([sys.executable, "-c", COMPILING], check=True, timeout=300)


SLOW = """
extern "C" __global__ void slow(const real* x, real* y, long long n, long long B) {
  const long long threads = (long long)gridDim.x * blockDim.x;
  for (long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; b < B; b += threads) {
    real s = x[b];
    for (long long k = 0; k < n; ++k) s = sin(s) + x[b];
    y[b] = s;
  }
}"""


def test_raw_kernels():
    k = kernels.raw(
        SLOW,
        "slow",
        ["in real x[B]", "out real y[B]", "const long long n", "size B"],
        vjp=lambda g, y, x, n: (g, None),
    )
    x = RNG.normal(size=40)
    n = sized(lambda n: k(x, n), 4.5)
    expected = k(x, 10)
    assert interrupted(lambda: k(x, n)) < LATE
    assert np.array_equal(k(x, 10), expected)


def test_memory_of_raw_kernels_is_kept_while_they_run(monkeypatch):
    """The launch that was interrupted goes on to write: not into memory that is free, or another array's by
    then."""
    k = kernels.raw(
        SLOW,
        "slow",
        ["in real x[B]", "out real y[B]", "const long long n", "size B"],
        vjp=lambda g, y, x, n: (g, None),
    )
    x, go = [RNG.normal(size=40)], threading.Event()
    host = k.on_host(np.dtype(float))
    # It takes until `go`. Kernels of one source share this object.
    monkeypatch.setattr(host, "quick", -1)
    monkeypatch.setattr(host, "launcher", lambda *_: go.wait(60) and None)
    kept = weakref.ref(x[0])
    interrupted(lambda: k(x[0], 10))
    x.clear()
    gc.collect()
    assert kept() is not None
    go.set()
    until = time.monotonic() + 60
    while kept() is not None and time.monotonic() < until:
        time.sleep(0.01)
    assert kept() is None


def test_in_another_thread_nothing_waits():
    k, found = kernels.likelihood(sines), []
    theta = np.abs(RNG.normal(size=(2, 1024))) * 0.1
    expected = k(theta, np.ones(300))
    t = threading.Thread(target=lambda: found.append(k(theta, np.ones(300))))
    t.start()
    t.join()
    assert np.array_equal(found[0], expected)


def test_an_error_in_one_part_is_raised():
    def run(first, last):
        raise ValueError("here")

    for work in (1.0, 1e7, 1e9):
        with pytest.raises(ValueError, match="here"):
            waiting.run_blocks(4, work, run)


@pytest.mark.parametrize("work", [1.0, 1e7, 1e9, 1e11])
@pytest.mark.parametrize("blocks", [0, 1, 2, 7, 1000])
def test_each_block_is_done_once(blocks, work):
    lock, done = threading.Lock(), []

    def run(first, last):
        assert first < last
        with lock:
            done.extend(range(first, last))

    waiting.run_blocks(blocks, work, run)
    assert sorted(done) == list(range(blocks))
