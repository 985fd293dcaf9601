"""solve_ivp by explicit methods with so many states that no Jacobian is kept: each stage is replayed."""

import tracemalloc

import numpy as np
import pytest
import scipy.integrate as itg

import tapegrad as tg
from tapegrad._scipy.integrate import ivp_by_steps, stage_sweeps

N = 70
A = np.diag(np.full(N, -1.0)) + 0.3 * np.diag(np.ones(N - 1), 1) + 0.2 * np.diag(np.ones(N - 1), -1)
START, X = np.linspace(1.0, 2.0, N), np.array([0.7, 1.1])
scratch, calls = np.zeros(N), [0]


def coupled(t, y, x):
    return A @ y * x[0] - 0.1 * np.sin(y) * t


def switched(t, y, x):
    return A @ y * x[0] if t < 0.4 else A @ y * x[0] - 0.1 * x[1] * y**2


def buffered(t, y, x):
    np.matmul(A, y, out=scratch)
    scratch[:] *= x[0]
    return scratch - 0.1 * np.sin(y) * t


def counted(t, y, x):
    calls[0] += 1
    return coupled(t, y, x)


def turned(t, y, x):
    return 1j * coupled(t, y, x)


def sum_of_squares(f, method="RK45"):
    start = START + 0j if f is turned else START
    weights = np.arange(N)[:, None]

    def of(x):
        span, times = (0.1 * x[1], 1.0), [0.2, 0.5, 1.0]
        y = itg.solve_ivp(f, span, start * x[1], method, times, args=(x,), rtol=1e-6, atol=1e-9).y
        return (np.abs(y) ** 2 * weights).sum()

    return of


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["RK23", "RK45", "DOP853"])
@pytest.mark.parametrize("f", [coupled, switched, buffered, counted, turned])
def test_derivatives_are_those_by_matrices(f, method, monkeypatch):
    of = sum_of_squares(f, method)
    transforms = tg.grad(of), tg.jacobian(of, mode="forward"), lambda x: tg.hvp(of, x, np.ones(2))
    by_stages = [transform(X) for transform in transforms]
    monkeypatch.setattr(ivp_by_steps, "DENSE_STATES", N)
    for found, transform in zip(by_stages, transforms, strict=True):
        np.testing.assert_allclose(found, transform(X), rtol=1e-10)


def test_stacks_of_directions_and_samples(monkeypatch):
    def ends(x):
        return itg.solve_ivp(coupled, (0.0, 1.0), START, args=(x,), t_eval=[0.5, 1.0], rtol=1e-6).y[:3]

    xs = np.stack([X, 1.1 * X])
    kinds = [lambda x, mode=mode: tg.vmap(tg.jacobian(ends, mode=mode))(x) for mode in ("forward", "reverse")]
    found = [kind(xs) for kind in kinds]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10, atol=1e-14)
    monkeypatch.setattr(ivp_by_steps, "DENSE_STATES", N)
    np.testing.assert_allclose(found[0], kinds[0](xs), rtol=1e-10, atol=1e-14)


def test_the_pullback_replays_what_was_solved():
    """A later change of an array does not alter it, and f runs again to be recorded only."""
    B, count = A.copy(), []

    def f(t, y, x):
        count.append(t)
        return B @ y * x[0]

    of = lambda x: (itg.solve_ivp(f, (0.0, 1.0), START, args=(x,)).y[:, -1] ** 2).sum()
    of_twice = lambda x: (itg.solve_ivp(g, (0.0, 1.0), START, args=(x, 2 * A)).y[:, -1] ** 2).sum()
    g = lambda t, y, x, M: 0.5 * (M @ y * x[0])
    pull, solved = tg.vjp(of, X)[1], len(count)
    B *= 2
    np.testing.assert_allclose(pull(1.0)[0], tg.grad(of_twice)(X)[0], rtol=1e-9)
    assert len(count) - solved < 5


def test_a_right_hand_side_that_draws_is_refused():
    rng = np.random.default_rng(0)
    of = sum_of_squares(lambda t, y, x: A @ y * x[0] + 1e-3 * rng.normal())
    with pytest.raises(tg.errors.GuardError, match="other values"):
        tg.grad(of)(X)


LONG = [pytest.param(f, m, marks=pytest.mark.long) for f in (coupled, counted) for m in ("RK45", "DOP853")]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("f", "method"), [(switched, "RK45"), (buffered, "RK23"), (turned, "DOP853"), *LONG])
def test_slopes_that_are_computed_again(f, method, monkeypatch):
    of = sum_of_squares(f, method)
    transforms = tg.grad(of), tg.jacobian(of, mode="forward"), lambda x: tg.hvp(of, x, np.ones(2))
    by_kept = [transform(X) for transform in transforms]
    monkeypatch.setattr(ivp_by_steps, "KEPT_SLOPES", 0)
    monkeypatch.setattr(ivp_by_steps, "DENSE_NUMBERS", 0)
    for found, transform in zip(by_kept, transforms, strict=True):
        np.testing.assert_allclose(found, transform(X), rtol=1e-10)


def peak_of_a_gradient(n, steps):
    """The largest number of bytes that are allocated at once, and the gradient."""

    def end(x):
        f = lambda t, y, x: x[0] * (np.roll(y, 1) - y) - x[1] * np.sin(y)
        step, start = 1.0 / steps, np.linspace(0.0, 1.0, n)
        found = itg.solve_ivp(f, (0.0, 1.0), start, t_eval=[1.0], args=(x,), max_step=step, first_step=step)
        return (found.y**2).sum()

    tg.grad(end)(X)
    tracemalloc.start()
    try:
        return tg.grad(end)(X), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_the_memory_of_a_long_solution(monkeypatch):
    """Without the slopes of the stages it is that of a few arrays of states for each step."""
    n, steps = 4000, 100
    kept, most = peak_of_a_gradient(n, steps)
    monkeypatch.setattr(ivp_by_steps, "KEPT_SLOPES", 1 << 18)
    found, least = peak_of_a_gradient(n, steps)
    np.testing.assert_allclose(found, kept, rtol=1e-11)
    states = 8 * n * steps
    assert most > 14 * states > 0 and least < 6 * states


@pytest.mark.parametrize("times", [[0.15, 0.5, 1.0], [1.0], None])
def test_states_within_steps(times, monkeypatch):
    """Only slopes of steps in which there are times are asked for; events and dense output ask for all."""

    def rows(x, **more):
        found = itg.solve_ivp(coupled, (0.0, 1.0), START * x[1], t_eval=times, args=(x,), rtol=1e-6, **more)
        return (found.sol(np.linspace(0.0, 1.0, 7)) if more else found.y)[::10]

    found = [tg.jacobian(lambda x, m=m: rows(x, **m))(X) for m in ({}, {"dense_output": True})]
    monkeypatch.setattr(ivp_by_steps, "DENSE_STATES", N)
    for k, more in enumerate(({}, {"dense_output": True})):
        want = tg.jacobian(lambda x, m=more: rows(x, **m))(X)
        np.testing.assert_allclose(found[k], want, rtol=1e-9, atol=1e-13)


def test_recordings_are_kept_while_f_reads_the_same(monkeypatch):
    """What f reads besides arrays of a transform and its parameters is compared; else it is recorded anew."""
    monkeypatch.setattr(stage_sweeps, "KEPT", [])
    count, start = 60, np.linspace(1.0, 2.0, 60)
    order, factors, flags, weights = (
        np.arange(60)[::-1].copy(),
        [1.0],
        {"on": True},
        np.linspace(0.5, 1.0, 60),
    )
    scratch, rates = np.zeros(count), np.array([0.7, 0.2])

    def f(t, y, p):
        scratch[:] = y * weights * factors[0]
        return -p[0] * scratch - p[1] * y[order] if flags["on"] else -p[0] * scratch

    end = lambda p: (itg.solve_ivp(f, (0, 1), start, args=(p[:2] * p[2],), t_eval=[1.0]).y ** 2).sum()
    gradient = lambda: tg.grad(end)(np.array([*rates, 1.0]))

    def change(what):
        if what == "weights":
            weights[:] *= 1.1
        elif what == "factors":
            factors[0] = 1.2
        elif what == "flags":
            flags["on"] = False
        elif what == "order":
            order[:2] = 1, 1
            flags["on"] = True

    known = {}
    for what in (None, "weights", "factors", "flags", "order", None):
        change(what)
        kept = gradient()
        known[what] = len(stage_sweeps.KEPT)
        mine, stage_sweeps.KEPT[:] = [*stage_sweeps.KEPT], []
        np.testing.assert_allclose(kept, gradient(), rtol=1e-12)
        stage_sweeps.KEPT[:] = mine
    assert known == {"weights": 1, "factors": 2, "flags": 3, "order": 4, None: 4}
