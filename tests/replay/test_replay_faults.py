"""Replays that raise: errors of operations are those of a plain call, faults of ours are shown once and cost
time only."""

import os
import sys

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._capture import dependencies
from tapegrad.errors import GuardError, ReplayWarning
from tapegrad.replay import cached_program, emitted, form, program

X = np.array([2.0, 1.0, 3.0])


def cubes(x):
    return (x**3).sum()


def failing(*args):
    raise ValueError("a fault")


def test_a_text_that_cannot_be_written_is_told_once(monkeypatch):
    p = tg.prepare(cubes, X)
    p.grad(X), p.grad(X)
    monkeypatch.setattr(emitted.EmittedProgram, "emit", failing)
    with pytest.warns(
        ReplayWarning,
        match=r"prepare\(cubes\): .* by a fault of tapegrad: ValueError: a fault; its operations are called",
    ):
        found = p.grad(X + 1)
    monkeypatch.undo()
    assert np.array_equal(found, 3 * (X + 1) ** 2)
    for k in range(3):
        assert np.array_equal(p.grad(X + k), 3 * (X + k) ** 2)
    assert "bound calls" in p.report() and p.forms["grad"].recordings == 1


def test_a_text_that_fails_at_a_call_is_told_once():
    p, written = tg.prepare(cubes, X), np.zeros(1)
    for _ in range(3):
        p.grad(X)
    p.forms["grad"].programs[0].emitted.run = failing
    with pytest.warns(ReplayWarning, match="a fault"):
        assert np.array_equal(p.grad(X + 1), 3 * (X + 1) ** 2)
    assert np.array_equal(p.grad(X), 3 * X**2) and written == 0


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    def load(_):
        raise ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite")

    monkeypatch.setattr(cached_program, "load", load)
    p = tg.prepare(cubes, X, compile=True)
    text = "nothing is compiled: .* called one after the other from now on. .* pip install llvmlite$"
    with pytest.warns(ReplayWarning, match=text):
        for _ in range(3):
            assert np.array_equal(p.grad(X), 3 * X**2)
    assert np.array_equal(p.grad(X), 3 * X**2)


def test_a_program_that_fails_where_the_function_does_not_is_told_once(monkeypatch):
    p = tg.prepare(cubes, X)
    p.grad(X)
    monkeypatch.setattr(program.Program, "run", failing)
    with pytest.warns(ReplayWarning, match="the function is run as it is from now on"):
        assert np.array_equal(p.grad(X + 1), 3 * (X + 1) ** 2)
    assert np.array_equal(p.grad(X), 3 * X**2)
    assert "run as it is, not recorded: a replay of it failed: ValueError: a fault" in p.report()


def test_a_product_at_a_point_is_told_once():
    p = tg.prepare(cubes, X)
    here, v = p.at(X), np.array([1.0, 0.0, -1.0])
    here.hvp(v), here.hvp(v)
    here.folded["hvp"].rest.emitted.run = failing
    with pytest.warns(ReplayWarning, match="a fault"):
        assert np.array_equal(here.hvp(v), 6 * X * v)
    assert np.array_equal(here.hvp(v), 6 * X * v)


def positive(x):
    """log det of the diagonal matrix of x, or 7 times the sum where that is not positive."""
    try:
        return 2 * np.log(np.linalg.cholesky(np.diag(x)).diagonal()).sum()
    except np.linalg.LinAlgError:
        return 7 * x.sum()


@pytest.mark.parametrize("replays", [1, 4])
def test_an_error_that_the_function_deals_with_is_none(replays):
    p = tg.prepare(positive, X)
    for _ in range(replays):
        np.testing.assert_allclose(p.grad(X), 1 / X, rtol=1e-12)
    for _ in range(2):
        assert np.array_equal(p.grad(-X), np.full(3, 7.0))
        np.testing.assert_allclose(p.grad(X), 1 / X, rtol=1e-12)
        assert np.array_equal(p.at(-X).grad(), np.full(3, 7.0))
    here = p.at(-X)
    for _ in range(3):
        assert np.array_equal(here.hvp(X), np.zeros(3))


@pytest.mark.parametrize("replays", [1, 4])
def test_an_error_that_the_function_does_not_deal_with_is_that_of_a_plain_call(replays):
    a = np.arange(3.0)
    p = tg.prepare(lambda x, at: (x * a[at]).sum(), X, np.array([0, 1, 2]))
    for k in range(replays):
        p.grad(X, np.array([k % 3, 1, 2]))
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        p.grad(X, np.array([0, 1, 3]))
    assert np.array_equal(p.grad(X, np.array([2, 1, 0])), a[::-1])


ADDS = "def f(x):\n    total[:] += x\n    return (total * x).sum()\n"
PACKAGE = os.path.dirname(tg.__file__)


def with_fault(n):
    """(gradient or None, what f has written, calls of ours), with a fault put in at the n-th of these; f is a
    new one."""
    space = {"total": np.zeros(2)}
    exec(compile(ADDS, "<adds>", "exec"), space)
    p, calls = tg.prepare(space["f"], np.ones(2)), 0

    def trace(frame, event, arg):
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls += 1
            if calls == n:
                raise MemoryError("put in")

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        g = p.grad(np.array([1.0, 2.0]))
    except MemoryError:
        g = None
    finally:
        sys.settrace(before)
    return g, space["total"].tolist(), calls


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # where the fault meets what a collector runs
def test_a_fault_in_a_recording_runs_the_function_at_most_once():
    """Wherever it is: the error, and the buffer as before or after one call, or the right result."""
    calls = with_fault(0)[2]
    assert calls > 500
    for n in range(calls // 2, calls, 6):
        g, total, _ = with_fault(n)
        assert total in ([0.0, 0.0], [1.0, 2.0]), (n, g, total)
        assert g is None or (np.array_equal(g, [2.0, 4.0]) and total == [1.0, 2.0]), (n, g, total)


def test_a_function_of_which_nothing_can_be_told_is_not_looked_through(monkeypatch):
    """The walk ends with the first doubt, however much there is to be met; and nothing is recorded."""
    visited, visit = [], dependencies.DependencyWalk.visit
    monkeypatch.setattr(
        dependencies.DependencyWalk, "visit", lambda walk, x: (visited.append(x), visit(walk, x))
    )
    monkeypatch.setattr(form, "Recording", failing)
    world = [[float(k)] for k in range(5000)]

    def reads(x):
        return (x * len(eval("world"))).sum() + len(world)

    p = tg.prepare(reads, X)
    for _ in range(2):
        np.testing.assert_array_equal(p.grad(X), np.full(3, 5000.0))
    assert (
        len(visited) < 200
        and "run as it is, not recorded: it reads what the code reads by `eval`" in p.report()
    )
    with pytest.raises(GuardError, match="cannot be recorded: it reads"):
        tg.prepare(reads, X, on_change="raise").grad(X)
