"""Loops that are recorded: random ones, regular and not, against plain calls; and what is copied of a buffer
that they fill."""

import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.replay import program as _program
from tapegrad.replay.record import recorder

N = 4
X = np.array([0.3, 0.5, 0.2])
M = np.random.default_rng(1).normal(size=(N, N)) / N


def sine(s):
    s.u = s.u + 0.1 * np.sin(s.v * s.p[s.i])


def product(s):
    s.v = 0.9 * s.v + 0.05 * (M @ s.u)


def column(s):
    s.B[:, 0] = s.u * s.p[s.i]
    s.u = s.u + 0.1 * s.B[:, 1]


def added(s):
    s.B[:, 1] += 0.01 * s.v**2


def packed(s):
    w = np.array([s.u[0], s.v[1] * s.p[0]])
    s.u = s.u.copy()
    s.u[:2] += 0.1 * w


def shared(s):
    total = (s.u * s.v).sum()
    s.v = s.v / (1.0 + total * total)
    s.sum = s.sum + total


def out_of_loop(s):
    s.past.append(s.u * s.p[0])


def irregular(s):
    if s.t == s.k:
        s.u = 1.1 * s.u


def trajectory(s):
    s.rows[s.t] = s.u
    s.u = s.u + 0.01 * s.rows[max(s.t - 1, 0)]


def swapped(s):
    s.u, s.v = s.v, s.u


def into(s):
    np.matmul(M, s.u, out=s.captured)
    s.u = s.u + 0.1 * s.captured


def chosen(s):
    s.u = np.where(s.u > s.p[1], s.u, 0.5 * s.u)


def inner(s):
    for _ in range(3):
        s.v = s.v + 0.01 * s.u * s.v


def other_constant(s):
    s.u = s.u * (1.0 + 1e-3 * s.t)


def outer(s):
    s.v = s.v + 0.1 * (s.u[:, None] * s.v[None, :]).sum(0)


def whole(s):
    s.captured[:] = np.tanh(s.u) + s.v
    s.v = 0.9 * s.captured + 0.1 * s.v


REGULAR = (sine, product, column, added, packed, shared, swapped, into, chosen, inner, outer, whole)
OTHERS = (out_of_loop, irregular, trajectory, other_constant)


class State:
    pass


def program(seed):
    rng = np.random.default_rng(seed)
    steps = [REGULAR[k] for k in rng.integers(len(REGULAR), size=rng.integers(2, 6))]
    if rng.random() < 0.4:
        steps.append(OTHERS[rng.integers(len(OTHERS))])
    trips, i, k = int(rng.integers(12, 30)), int(rng.integers(4)), int(rng.integers(1, 9))
    captured, late = np.zeros(N), rng.random() < 0.3

    def f(p):
        s = State()
        s.p, s.i, s.k, s.captured, s.past = p, i, k, captured, []
        s.u, s.v, s.sum = p[0] * np.linspace(0.5, 1.0, N), np.cos(p), 0.0
        s.B, s.rows = np.zeros((N, 2), like=p) + p[2], np.zeros((trips, N), like=p)
        for s.t in range(trips):
            for step in steps:
                step(s)
        y = (s.u * s.v).sum() + s.sum + (s.B * s.B).sum() + (s.rows * s.rows).sum()
        for past in s.past[2:3] if late else s.past:
            y = y + (past * past).sum()
        return y

    return f, rng.normal(size=N)


def judged(seed):
    """Is what is recorded, and replayed, what a plain call gives?"""
    f, x = program(seed)
    v, points = np.cos(np.arange(N)), (x, 0.9 * x)
    p = tg.prepare(f, x)
    for at in points:
        np.testing.assert_allclose(
            p.value_and_grad(at)[1], tg.grad(f)(at), rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}"
        )
        np.testing.assert_allclose(
            p.hvp(at, v), tg.hvp(f, at, v), rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}, hvp"
        )


def test_loops():
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        for seed in range(4):
            judged(seed)


@pytest.mark.long
def test_many_loops():
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        for seed in range(1000, 3000):
            judged(seed)


def test_trips_of_usual_loops():
    """In place, through views and by elements."""
    Ax, buffer = np.linspace(-1.0, 1.0, 36).reshape(6, 6), np.zeros((6, 6))

    def f(p):
        r = np.ones((6, 6, 2))
        for _ in range(40):
            u, v = r[:, :, 0], r[:, :, 1]
            np.matmul(Ax, u, out=buffer)
            u[:] = u + 0.01 * (p[0] * buffer - u * v)
            v[:] = v + 0.01 * p[1] * np.array([p[0], u[0, 0]]).sum()
        return (r * r).sum()

    x = np.array([0.3, 0.7])
    p = tg.prepare(f, x)
    np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-12)
    np.testing.assert_allclose(p.grad(2 * x), tg.grad(f)(2 * x), rtol=1e-12)


def test_copies_are_in_proportion_to_what_is_written(monkeypatch):
    def copied(T):
        """Bytes that are copied of buffers, by a recording and by the first replay."""

        def f(x):
            r = np.zeros((T, 8), like=x)
            r[0] = x
            for t in range(1, T):
                r[t] = 0.9 * r[t - 1] + 0.1 * np.sin(r[t - 1] * r[t - 1, 0])
            return (r * r).sum()

        total = [0]
        for module in (recorder, _program):
            kept = module.copy_with_layout
            monkeypatch.setattr(
                module,
                "copy_with_layout",
                lambda v, kept=kept: (total.__setitem__(0, total[0] + v.nbytes), kept(v))[1],
            )
        x = np.linspace(0.1, 0.8, 8)
        p = tg.prepare(f, x)
        for _ in range(2):
            np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-13)
        monkeypatch.undo()
        return total[0]

    assert copied(80) < 3 * copied(40)


def test_rules_of_the_users_are_called_for_each_trip():
    calls = []

    def vjp(g, out, x):
        calls.append(len(calls))
        return 2 * g * x

    square = tg.rule(lambda x: x * x, vjp=vjp)

    def f(x):
        y = x
        for _ in range(60):
            y = square(np.array([y[0], y[1] * 0.9, y[2]])) * 0.5 + x
        return y.sum()

    x = np.array([0.1, 0.2, 0.15])
    want = tg.grad(f)(x)
    calls.clear()
    np.testing.assert_allclose(tg.prepare(f, x).grad(x), want, rtol=1e-13)
    assert len(calls) == 60


def test_values_that_a_loop_asks_for():
    """A branch in the loop tells trips apart that look the same."""

    def f(p):
        y, z = p * 1.0, np.zeros(3, like=p)
        for _ in range(60):
            z[1:] = y[1:] * p[0]
            y = y * 0.9 + z[[0, 2, 1]] if y[0] > 0.05 else y * 1.5 - z
        return (y * y).sum()

    p = tg.prepare(f, X)
    for at in (X, 1.1 * X, X):
        np.testing.assert_allclose(p.grad(at), tg.grad(f)(at), rtol=1e-12)
