"""Replays on CuPy: how many kernels they launch, that nobody waits for the device, and that they may be one
CUDA graph.

The graph itself needs a device; on hosted CuPy one is played that does its work again at each launch."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._capture.dependencies.walk import walk_with_names
from tapegrad._core.trees import leaves
from tapegrad.replay import cuda_graph
from tapegrad.testing.hosted import real_device, stats
from tapegrad.testing.hosted import runtime as _hosted_runtime

pytestmark = pytest.mark.cupy_only
X, V = np.array([0.3, -0.5, 0.7, 1.1]), np.array([1.0, 0.5, -0.3, 2.0])
FORMS = {
    "value": (lambda f: f, ()),
    "grad": (tg.grad, ()),
    "jacobian": (lambda f: tg.jacobian(lambda x: f(x) * x), ()),
    "hvp": (lambda f: lambda x, v: tg.hvp(f, x, v), (V,)),
    "jvp": (lambda f: lambda x, v: tg.jvp(f, (x,), (v,)), (V,)),
}


def counted(run):
    before = stats["kernels"], stats["syncs"]
    y = run()
    return y, stats["kernels"] - before[0], stats["syncs"] - before[1]


def program(cp):
    A, buffer = cp.asarray(np.random.default_rng(0).normal(size=(4, 4))), cp.zeros(4)

    def f(x):
        y = A @ cp.sin(x)
        buffer[1:] = y[:-1] * x[1:]
        buffer[0] += 1.0
        return (cp.exp(-y * y) * x + buffer**2).sum()

    return f, buffer


@pytest.mark.parametrize("form", ["value", "grad", "hvp", "jvp"])
def test_a_replay_launches_no_more_than_the_call_and_waits_for_nothing(form, xp):
    f, _ = program(xp)
    plain, more = FORMS[form]
    more = [xp.asarray(v) for v in more]
    p, x = tg.prepare(f, xp.asarray(X)), xp.asarray(X)
    plain(f)(x, *more)
    _, eager, waits = counted(lambda: plain(f)(x, *more))
    assert waits == 0
    counts = [counted(lambda: getattr(p, form)(x, *more))[1:] for _ in range(4)]
    assert p.forms[form].replays == 3
    assert all(n <= eager + 4 and waits == 0 for n, waits in counts[1:]), (eager, counts)


def test_reading_by_an_index_array_waits_for_nothing(xp):
    table, at = xp.asarray(np.arange(12.0).reshape(6, 2)), xp.asarray(np.array([1, 4]))
    p, x = tg.prepare(lambda x, i: ((table[i] @ x) ** 2).sum(), xp.asarray(X[:2]), at), xp.asarray(X[:2])
    for k in range(4):
        at = xp.asarray(np.array([k, 5 - k]))
        g, _, waits = counted(lambda at=at: p.grad(x, at))
        assert k == 0 or waits == 0
        assert xp.allclose(g, tg.grad(lambda x, at=at: ((table[at] @ x) ** 2).sum())(x))
    assert p.forms["grad"].recordings == 1


class Played:
    """A graph that does its work again, in the memory of the first time."""

    def __init__(self, cp, stream, body):
        self.body, self.owner = body, body.__self__
        written = [(array, array.copy()) for array, _ in self.owner.program.written]
        body()
        self.results = self.owner.results
        for array, before in written:  # while it is captured nothing runs
            array[...] = before
        self.launches = 0

    def launch(self, stream=None):
        self.launches += 1
        self.body()
        for mine, v in zip(self.results, self.owner.results, strict=True):
            mine[...] = v
        self.owner.results = self.results


@pytest.fixture
def played(xp, monkeypatch):
    if xp.__name__ == "cupy" and stats:
        monkeypatch.setattr(cuda_graph, "capture_graph", Played)


@pytest.mark.parametrize("form", ["value", "grad", "hvp", "jvp"])
def test_a_replay_as_one_graph(form, xp, played):
    (f, left), (g, right) = program(xp), program(xp)
    plain, more = FORMS[form]
    more = [xp.asarray(v) for v in more]
    p, kept = tg.prepare(f, xp.asarray(X), cuda_graph=True), []
    for k in range(7):
        x = xp.asarray(X * (1 + 0.1 * k))
        got, want = getattr(p, form)(x, *more), plain(g)(x, *more)
        kept.append((got, want))
        for a, b in kept:  # no later call overwrites a result
            assert all(xp.allclose(u, v, 1e-12, 1e-12) for u, v in zip(leaves(a), leaves(b), strict=True))
        assert xp.array_equal(left, right)
    assert "as one CUDA graph" in p.report() and p.forms[form].programs[0].graph.graph.launches == 1 + 4


@pytest.mark.parametrize("kind", ["forgets", "repeats"])
def test_a_graph_that_differs_is_none(kind, xp, monkeypatch):
    """A first launch that does nothing, or what it did before: the calls go on one after the other."""

    class Wrong(Played):
        def launch(self, stream=None):
            if kind == "repeats":
                super().launch(stream)
                super().launch(stream)

    monkeypatch.setattr(cuda_graph, "capture_graph", Wrong)
    (f, left), (g, right) = program(xp), program(xp)
    p = tg.prepare(f, xp.asarray(X), cuda_graph=True)
    for k in range(6):
        x = xp.asarray(X * (1 + 0.1 * k))
        assert xp.allclose(p.value(x), g(x), 1e-12, 1e-12) and xp.array_equal(left, right)
    assert "no CUDA graph" in p.report() and "first launch gave other values" in p.report()


def test_launches_from_several_streams_wait_for_each_other(xp, played, monkeypatch):
    """All launches share the memory of arguments and results.  A launch waits for the event behind the copies of the last one."""
    A = xp.asarray(np.random.default_rng(0).normal(size=(4, 4)))
    f = lambda x: (xp.exp(-((A @ xp.sin(x)) ** 2)) * x).sum()
    p, x = tg.prepare(f, xp.asarray(X), cuda_graph=True), xp.asarray(X)
    for _ in range(5):
        p.value(x)
    calls, results = [], []
    monkeypatch.setattr(_hosted_runtime, "stream_calls", calls)
    streams = [xp.cuda.Stream(non_blocking=True) for _ in range(3)]
    order = [*streams, *streams[::-1]]
    for k, stream in enumerate(order):
        with stream:
            results.append(p.value(xp.asarray(X * k)))
    for stream in streams:
        stream.synchronize()
    assert all(xp.allclose(v, f(xp.asarray(X * k)), 1e-12, 1e-12) for k, v in enumerate(results))
    if real_device():
        return
    event = calls[[name for name, *_ in calls].index("wait")][2]
    expected = [c for stream in order for c in (("wait", stream.ptr, event), ("record", event, stream.ptr))]
    assert [c for c in calls if event in c] == expected


def test_what_cannot_be_a_graph_is_replayed_without(xp, played):
    x = xp.asarray(X)
    rng = np.random.default_rng(0)
    table = np.ones(4)
    for f, why in (
        (lambda x: (x * x).sum() if x[0] > 0 else x.sum(), "conditions"),
        (lambda x: (x * x).sum() * rng.normal(), "random numbers"),
        (lambda x: (x * x).sum() * (table * 2.0)[0], "arrays of NumPy"),
    ):
        p = tg.prepare(f, x, cuda_graph=True)
        for _ in range(5):
            p.grad(x)
        assert "no CUDA graph: it " in p.report() and why in p.report()
    p = tg.prepare(lambda x, h: (x * h).sum(), x, 0.5, cuda_graph=True)
    for k in range(6):
        assert xp.allclose(p.grad(x, 0.1 * k), 0.1 * k)


def test_an_error_while_it_is_captured_leaves_the_replay(xp, monkeypatch):
    def fails(cp, stream, body):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda_graph, "capture_graph", fails)
    f, _ = program(xp)
    p, x = tg.prepare(f, xp.asarray(X), cuda_graph=True), xp.asarray(X)
    for k in range(5):
        assert xp.allclose(p.grad(x * k), tg.grad(f)(x * k))
    assert "no CUDA graph: RuntimeError: operation not permitted" in p.report()


def test_random_numbers_of_cupy_are_no_operations(xp):
    """(Hosted CuPy has none: what is asked is whether such a function may be recorded.)"""
    from cupy.random import randn

    for f in (lambda x: x * xp.random.randn(3), lambda x: x * randn(3)):
        assert walk_with_names([f]).unknown is not None
    assert walk_with_names([lambda x: x * xp.sin(x)]).unknown is None
