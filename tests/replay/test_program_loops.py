"""Loops that were recorded trip by trip: three trips are worked out, and the others follow; values are those
of the bound calls."""

import numpy as np
import pytest
import test_loop_rerolling

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.replay import emitted
from tapegrad.replay.cached_program import CachedProgram
from tapegrad.replay.interpreter import blocks, instruction_kinds, trip_rows

WRITING_COST = CachedProgram.writing_cost  # which no other test waits for
X = np.array([0.3, -0.7, 1.2])
A = np.array([[0.9, 0.2, 0.0], [-0.3, 0.7, 0.1], [0.05, -0.2, 0.8]])


@pytest.fixture(autouse=True)
def blocks_that_do_not_pay(monkeypatch):
    monkeypatch.setattr(instruction_kinds, "TRANSFER_ROWS", 0)


@pytest.fixture
def made(monkeypatch):
    """The loops that are made, and what is written out instruction by instruction."""
    found, written = [], []
    init, one = trip_rows.TripRows.__init__, blocks.InstructionBlock.instruction
    monkeypatch.setattr(
        trip_rows.TripRows, "__init__", lambda self, *args: init(self, *args) or found.append(self)
    )
    monkeypatch.setattr(
        blocks.InstructionBlock,
        "instruction",
        lambda self, n, *rest: written.append(n) or one(self, n, *rest),
    )
    return found, written


def judged(f, *points, method="grad", compile=False):
    """f at each point by blocks, and by the bound calls of the same program; captured arrays hold what a
    plain call leaves."""
    p = tg.prepare(f, *points[0], compile=compile)
    for _ in range(3):
        getattr(p, method)(*points[0])
    kept = p.forms[method].programs[0]
    assert kept.emitted.blocks and not kept.failures
    for args in (*points, points[0]):
        got, (want, _) = leaves(getattr(p, method)(*args)), kept.program.run([*args])
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, 1e-12, 1e-12 * np.abs(b).max(initial=0))
            assert type(a) is type(b)
    assert not kept.failures and not kept.refusals
    return kept


def test_only_three_trips_are_written_out(made):
    loops, written = made

    def f(x):
        for _ in range(500):
            x = A @ np.tanh(x) + 0.1 * X
        return x @ x

    kept = judged(f, (X,), (X * 2,))
    assert len(loops) == 2 and len(written) < 60 < len(kept.program.code)
    assert sum([loop.trips * loop.loop.period for loop in loops]) > 0.9 * len(kept.program.code)


@pytest.mark.parametrize("back", [1, 2, 3, 8, 12, 24])  # (12: the seasons of a year)
def test_values_of_some_trips_before(made, back):
    def f(x):
        path = [x * (1 + 0.1 * k) for k in range(back)]
        for _ in range(30 + back):
            path.append(0.5 * path[-back] + 0.2 * np.sin(path[-1]) * path[-back])
        return sum([(v * v).sum() for v in path[-3:]])

    judged(f, (X,), (X + 1,))
    assert made[0]


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_trip_of_several_alike_parts(made, stages):
    """The stages of a method of Runge and Kutta do the same, and each reads the value before the first."""
    loops, written = made

    def f(x):
        for _ in range(40):
            y = x
            for k in range(stages):
                y = x + np.tanh(A @ y) * (0.1 / (stages - k))
            x = y
        return x @ x

    kept = judged(f, (X,), (X * 2,))
    assert len(loops) == 2 and 2 * len(written) < len(kept.program.code)


def test_an_argument_whose_number_would_follow_the_step(made):
    """The first trip reads the argument where the others read a sum of the trip before."""

    def f(x):
        s = np.zeros((10, 12))
        for _ in range(20):
            s = s * 0.9 + np.outer(x[:10], x)
            x = x + 0.01 * (s.T * x[:10]).sum(1)
        return (s * s).sum()

    judged(f, (0.1 * np.ones(12),), (np.linspace(0.2, 0.1, 12),), method="value_and_grad")
    assert made[0]


def test_values_of_too_many_trips_before_are_no_loop():
    def f(x):
        path = [x * (1 + 0.1 * k) for k in range(30)]
        for _ in range(60):
            path.append(0.5 * path[-30] + 0.2 * np.sin(path[-1]))
        return (path[-1] ** 2).sum()

    judged(f, (X,), (X + 1,))


def test_constants_of_each_trip(made):
    numbers = np.linspace(0.1, 2.0, 40).tolist()

    def f(x):
        for k, c in enumerate(numbers):
            a = np.cos(np.arange(9.0) * k).reshape(3, 3)
            x = c * x + 0.1 * (a @ np.cos(x))
        return x @ x

    judged(f, (X,), (X * 0.5,))
    assert made[0]


def test_whole_numbers_that_floats_do_not_tell():
    """One of them is beyond 2**53, so that this trip is another."""
    numbers = [*range(3, 40)]
    numbers[20] = 2**53 + 1

    def f(x):
        total = x[0]
        for n in numbers:
            total = 0.5 * total * x[2] + x[1] * (n % 7) + x[2] * x[0] * n * 1e-16
        return total

    judged(f, (X,), (X + 1,))


def test_arrays_of_whole_numbers_that_floats_do_not_tell():
    counts = [np.array([k, 2 * k, 3]) for k in range(40)]
    counts[20] = np.array([2**53 + 1, 1, 2])

    def f(x):
        total = x * 1.0
        for n in counts:
            total = 0.5 * total * x[2] + np.where(np.maximum(n, n - 1) == 2**53 + 1, x, 0.1 * x)
        return total.sum()

    judged(f, (X,), (X + 1,))


@pytest.mark.parametrize(
    "places", [[0, 1, 2, 9, 4, 5, 3, 7, 8, 6, 10, 11], [11, 10, 9, 8, 2, 6, 5, 4, 3, 7, 1, 0]], ids=str
)
def test_an_index_that_leaves_its_step_within_the_loop(places):
    """The first two places, and the last one, are those of a steady loop."""

    def f(x):
        s = np.zeros(12)
        for k in places:
            s[k] = x[0] * x[1]
            x = 0.9 * x + 0.1 * s[k]
        return (s * np.arange(12.0)).sum() + x.sum()

    judged(f, (X,), (X + 1,))


def test_indices_from_the_end_and_over_zero():
    def f(x):
        y = np.tile(x, 10)
        total = 0.0
        for k in range(-15, 15):
            total = 0.9 * total + y[k] * y[-k - 1]
        return total

    judged(f, (X,), (X + 1,))


def test_a_value_of_one_trip_is_read_afterwards():
    def f(x):
        kept = None
        for k in range(40):
            x = A @ np.tanh(x) + 0.01
            if k == 17:
                kept = x
        return x @ kept

    judged(f, (X,), (X + 1,))


def test_a_view_of_a_buffer_that_the_next_trip_writes():
    def f(x):
        s, views = x[:1] * 1.0, []
        for _ in range(20):
            s[-1] = s[0] * 0.9 + x[1]
            views.append(s.reshape(1, 1).copy())
        return sum([(v * v).sum() for v in views])

    judged(f, (X,), (X + 1,), method="value_and_grad")


def test_captured_buffers_are_written(made):
    trace, total = np.zeros((40, 3)), np.zeros(3)

    def f(x):
        for t in range(40):
            x = 0.9 * x + 0.1 * x[::-1] * x
            trace[t] = x
            total[1:] += x[1:]
        return x.sum()

    judged(f, (X,), (X * 0.3,))
    found = trace.copy(), total.copy()
    trace[:], total[:] = 0, 0
    p = tg.prepare(f, X, compile=False)
    for _ in range(4):
        total[:] = 0
        p.grad(X * 0.4)
    found = trace.copy(), total.copy()
    total[:] = 0
    f(X * 0.4)
    np.testing.assert_allclose(found[0], trace, 1e-13)
    np.testing.assert_allclose(found[1], total, 1e-13)
    assert made[0]


def test_a_guard_that_fails_in_the_middle(made):
    def f(x, at):
        total = 0.0
        for t in range(40):
            x = 0.9 * x + 0.01
            total = total + (x[0] if (x - at[t]).sum() > 0 else x[1] * x[2])
        return total

    at, p = np.full(40, -50.0), tg.prepare(f, X, np.full(40, -50.0), compile=False)
    for k in (None, None, None, 0, 1, 17, 38, 39):
        now = at.copy()
        if k is not None:
            now[k] = 50.0
        np.testing.assert_allclose(p.grad(X, now), tg.grad(f)(X, now), 1e-12)
    assert made[0]


def test_what_is_not_finite_in_one_trip():
    def f(x):
        total = 0.0
        for _ in range(30):
            x = x * 3.0
            total = total + np.where(x > 1e6, 0.0, np.tanh(np.exp(x))).sum()
        return total

    p = tg.prepare(f, X, compile=False)
    for x in (X * 1e-12, X * 1e-12, X * 1e-12, X, X * 1e-9):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(p.value(x), f(x), 1e-12)


@pytest.mark.parametrize("n", [40, 700])
def test_longer_lines(made, n):
    w = np.random.default_rng(0).normal(size=(25, n))

    def f(x):
        y = np.ones(n) * x[0]
        for t in range(25):
            y = np.exp(-0.1 * y * y) * x[1] + w[t] * x[2]
        return (y * y).sum()

    judged(f, (X,), (X + 1,))
    assert made[0]


def test_random_loops():
    for seed in range(1000, 1012):
        f, (x, z, v) = test_loop_rerolling.program(seed)
        judged(f, (x,), (z,), method="value")
        judged(f, (x,), (z,))
        judged(f, (x, v), (z, v), method="hvp")


@pytest.mark.long
def test_many_random_loops():
    for seed in range(2000, 2400):
        f, (x, z, v) = test_loop_rerolling.program(seed)
        for method, points in {"value": [(x,), (z,)], "grad": [(x,), (z,)], "hvp": [(x, v), (z, v)]}.items():
            try:
                judged(f, *points, method=method, compile=bool(seed % 2))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {method}: {error}") from error


@pytest.mark.parametrize("steps", [200, 3])
def test_a_program_that_repeats_is_written_for_the_first_replay(steps):
    """Preparing costs little then; else the bound calls come first."""

    def f(x):
        for _ in range(steps):
            x = A @ np.tanh(x) + 0.1 * X
        return x @ x

    p = tg.prepare(f, X)
    for _ in range(2):
        p.grad(X)
    assert (p.forms["grad"].programs[0].emitted is not None) == (steps == 200)


def test_a_program_that_does_not_repeat_is_not_analysed_for_the_first_replay(monkeypatch):
    """Each of its trips has another size. An analysis would take as long as several calls."""
    monkeypatch.setattr(CachedProgram, "writing_cost", WRITING_COST)
    seen, made = [], instruction_kinds.InstructionKinds.__init__
    monkeypatch.setattr(
        instruction_kinds.InstructionKinds,
        "__init__",
        lambda self, *args, **given: seen.append(self) or made(self, *args, **given),
    )

    def f(x):
        while len(x) > 1:
            x = np.maximum(0.5 * (x[1:] + x[:-1]) * x[1:] - 0.1, np.tanh(x[:-1]))
        return x.sum()

    x = np.linspace(0.1, 0.9, 50)
    p = tg.prepare(f, x)
    for _ in range(2):
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-12)
    kept = p.forms["grad"].programs[0]
    assert len(kept.program.code) > 500 and not seen


@pytest.mark.parametrize("repeated", [True, False])
def test_the_cost_of_a_text_is_that_of_what_repeats(repeated):
    def f(x):
        for k in range(100):
            x = np.tanh(A @ x) + 0.1 * X if repeated or k % 7 < k % 5 else np.sin(x * X)
        return x @ x

    p = tg.prepare(f, X)
    p.grad(X)
    kept = p.forms["grad"].programs[0]
    exact = emitted.unlike_instructions(instruction_kinds.InstructionKinds(kept.text_program))
    assert kept.unlike <= exact and (kept.unlike < 0.2 * len(kept.program.code)) == repeated


@pytest.mark.parametrize("compile", [True, False])
def test_views_of_what_another_loop_has_read(compile):
    """They lie in the memory of the array, which stays until they are read."""
    rng = np.random.default_rng(0)
    points, scale = rng.normal(size=(20, 6)), rng.normal(size=(20, 6))

    def f(y):
        y, total, rows, seen = np.sin(y), np.sum(scale[0]), [], []
        for k in range(20):
            rows.append(y[k])
            total = np.tanh(total + (y[k] * y[k]).sum() * 0.1) - np.cos(total)
        for k in range(20):
            seen.append(np.roll(rows[k], 1))
            total = np.tanh(total + seen[k].sum() * 0.01) - np.cos(total)
        grown = np.exp(scale * total)
        other = np.cos(grown) * total
        return (other * np.concatenate(seen).reshape(20, 6)).sum() + (grown * total).sum()

    p = tg.prepare(f, points, compile=compile)
    for _ in range(4):
        np.testing.assert_allclose(p(points), f(points), rtol=1e-12)
