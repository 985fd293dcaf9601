"""Rules that read what their function stores: each call counts, not the last one."""

import functools

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg
from tapegrad.errors import DroppedDerivativeError

X = np.array([0.3, 0.7, 1.1])
STACK = np.stack([X, 2 * X, X + 1, X - 0.1, X * X])


def in_a_dict():
    kept = {}

    def run(x):
        kept["e"] = np.exp(x)
        return kept["e"].copy()

    return tg.rule(run, vjp=lambda g, out, x: (g * kept["e"],))


def in_an_array():
    buffer = np.zeros(3)

    def run(x):
        buffer[:] = np.exp(x)
        return buffer.copy()

    return tg.rule(run, vjp=lambda g, out, x: (g * buffer,), jvp=lambda t, out, x: t[0] * buffer)


def in_an_attribute():
    class Exponential:
        kept = None

        def run(self, x):
            self.kept = np.exp(x)
            return self.kept.copy()

        def tangent(self, t, out, x):
            return t[0] * self.kept

    e = Exponential()
    return tg.rule(e.run, jvp=e.tangent)


def cached():
    @functools.cache
    def ones(n):
        return np.ones(n)

    return tg.rule(lambda x: np.exp(x) * ones(3), vjp=lambda g, out, x: (g * np.exp(x) * ones(3),))


def counted():
    calls = {"n": 0}

    def run(x):
        calls["n"] += 1
        return np.exp(x)

    def pull(g, out, x):
        calls["n"] += 1
        return (g * np.exp(x),)

    return tg.rule(run, vjp=pull)


def several(r):
    """Three calls, of which the last one is not the first of the sweep alone."""
    return lambda x: np.sum(r(x) * r(2 * x)) + np.sum(r(x * x))


def gradient(x):
    return 3 * np.exp(3 * x) + 2 * x * np.exp(x * x)


def curvature(x):
    return 9 * np.exp(3 * x) + (2 + 4 * x * x) * np.exp(x * x)


STORING = (in_a_dict, in_an_array, in_an_attribute)


@pytest.mark.parametrize("made", (*STORING, cached, counted))
def test_each_call_has_what_it_stored(made):
    assert np.allclose(tg.grad(several(made()))(X), gradient(X))
    assert np.allclose(tg.jacobian(several(made()), mode="forward")(X), gradient(X))
    assert np.allclose(tg.linearize(several(made()), X)[1](X), gradient(X) @ X)


@pytest.mark.parametrize("made", (in_a_dict, in_an_array, cached, counted))
def test_each_sample_and_replay_has_what_it_stored(made):
    assert np.allclose(tg.vmap(tg.grad(several(made())))(STACK), gradient(STACK))
    p = tg.prepare(several(made()), X)
    for x in (X, 2 * X, X):
        assert np.allclose(p.grad(x), gradient(x))


@pytest.mark.parametrize("made", STORING)
def test_a_derivative_through_what_was_stored_raises(made):
    with pytest.raises(DroppedDerivativeError, match="a rule reads what the function has stored"):
        tg.hvp(several(made()), X, X)


@pytest.mark.parametrize("made", (cached, counted))
def test_caches_and_counters_have_second_derivatives(made):
    assert np.allclose(tg.hvp(several(made()), X, X), curvature(X) * X)
    assert np.allclose(tg.prepare(several(made()), X).hvp(2 * X, X), curvature(2 * X) * X)


def test_a_factorisation_in_a_loop():
    class Solver:
        factors = None

        def solve(self, A, b):
            self.factors = scipy.linalg.lu_factor(A)
            return scipy.linalg.lu_solve(self.factors, b)

        def pull(self, g, out, A, b):
            w = scipy.linalg.lu_solve(self.factors, g, trans=1)
            return -np.outer(w, out), w

    def loss(solve):
        def f(x):
            u = x[:2] * 1.0
            for k in range(1, 4):
                u = solve(np.array([[2.0, 0.3], [0.1, 1.5]]) * k + np.diag(x[2:]), u * k)
            return np.sum(u**2)

        return f

    x, own = np.array([0.3, 0.7, 0.2, 0.4]), Solver()
    f = loss(tg.rule(own.solve, vjp=own.pull))
    assert np.allclose(tg.grad(f)(x), tg.grad(loss(np.linalg.solve))(x), rtol=1e-10)


def test_a_flag_that_the_function_sets():
    class Law:
        large = False

        def run(self, x):
            self.large = bool(x[0] > 0.5)
            return x**2 if self.large else x**3

        def pull(self, g, out, x):
            return (g * (2 * x if self.large else 3 * x**2),)

    law = Law()
    f = several(tg.rule(law.run, vjp=law.pull))
    plain = several(lambda x: x**2 if x[0] > 0.5 else x**3)
    assert np.allclose(tg.grad(f)(X), tg.grad(plain)(X))
    assert np.allclose(tg.hvp(f, X, X), tg.hvp(plain, X, X))


def test_scratch_memory_of_rules_that_are_said_to_be_pure():
    """The rules write the scratch memory before they read it: nothing is lost, and nothing is run again."""
    scratch, runs = np.zeros(3), []

    def f(x):
        runs.append(1)
        scratch[:] = x**2
        return (scratch * x).sum()

    def vjp(g, out, x):
        return g * 3 * x**2

    safe = tg.rule(f, vjp=lambda g, out, x: vjp(g, out, x) + 0 * len(scratch), pure=True)
    assert np.allclose(tg.grad(lambda x: safe(x) + safe(2 * x))(X), 27 * X**2) and len(runs) == 2
    assert np.allclose(tg.hvp(safe, X, X), 6 * X * X)
