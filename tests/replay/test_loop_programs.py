"""Random loops of a user's operations: a prepared program gives what the eager one gives."""

import loop_programs
import numpy as np
import pytest

import tapegrad as tg


@pytest.mark.one_in(3)
@pytest.mark.parametrize("first", range(0, 24, 4))
def test_random_loops(first):
    assert [fault for seed in range(first, first + 4) if (fault := loop_programs.fault_of(seed))] == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 4000, 100))
def test_random_loops_long(first):
    assert [fault for seed in range(first, first + 100) if (fault := loop_programs.fault_of(seed))] == []


def test_a_constant_false_is_no_operand():
    """A row's constant 0.0 equals the number 0 of the first operand."""

    def f(x):
        s = x * 1.0
        for _ in range(5):
            s = np.fmax(np.tanh(s), -0.2) + 0.1 * (False & (s == s))
        return s.sum()

    points = np.random.default_rng(0).normal(size=(4, 6))
    p = tg.prepare(f, points[0])
    for x in [*points, *points]:
        np.testing.assert_allclose(p.value(x), f(x), rtol=1e-14)
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-14)


def test_the_search_for_nan_overflows_nowhere():
    """Gradients of 1e200 under errstate: a square of them would raise what the user may catch."""

    def f(x):
        return (x * 1e200).sum() + (x * x).sum()

    x = np.ones(3)
    p, plan = tg.prepare(f, x), tg.sparse.prepare_jacobian(lambda x: x * 1e200, x)
    with np.errstate(all="raise"):
        for n in range(4):
            np.testing.assert_array_equal(p.grad(n * x), tg.grad(f)(n * x))
            np.testing.assert_array_equal(plan(n * x).toarray(), 1e200 * np.eye(3))
