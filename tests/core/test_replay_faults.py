"""Replays that raise: errors of operations are those of a plain call, faults of ours are shown once and cost time only."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ReplayWarning
from tapegrad.replay import _emitted, _program

X = np.array([2.0, 1.0, 3.0])


def cubes(x):
    return (x**3).sum()


def failing(*args):
    raise ValueError("a fault")


def test_a_text_that_cannot_be_written_is_told_once(monkeypatch):
    p = tg.prepare(cubes, X)
    p.grad(X), p.grad(X)
    monkeypatch.setattr(_emitted.Emitted, "emit", failing)
    with pytest.warns(ReplayWarning, match=r"prepare\(cubes\): .* by a fault of tapegrad: ValueError: a fault; its operations are called"):
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


def test_a_program_that_fails_where_the_function_does_not_is_told_once(monkeypatch):
    p = tg.prepare(cubes, X)
    p.grad(X)
    monkeypatch.setattr(_program.Program, "run", failing)
    with pytest.warns(ReplayWarning, match="the function is run as it is from now on"):
        assert np.array_equal(p.grad(X + 1), 3 * (X + 1) ** 2)
    assert np.array_equal(p.grad(X), 3 * X**2)
    assert "run as it is, not recorded: a replay of it failed: ValueError: a fault" in p.report()


def test_a_product_at_a_point_is_told_once():
    p = tg.prepare(cubes, X)
    here, v = p.at(X), np.array([1.0, 0.0, -1.0])
    here.hvp(v), here.hvp(v)
    here.folded["hvp"].run = failing
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
