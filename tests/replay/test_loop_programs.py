"""Random loops of a user's operations: a prepared program gives what the eager one gives."""

import loop_programs
import numpy as np
import pytest

import tapegrad as tg


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
