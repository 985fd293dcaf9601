"""scipy.integrate.solve_ivp as a kernel: events, dense output, and intervals whose ends are tracked."""

import functools

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

import tapegrad as tg
from tapegrad._scipy.integrate import ivp_kernel
from tapegrad.errors import BatchError
from tests.support.frames import frames_of
from tests.support.random_events import K, Problem

METHODS = ("RK23", "RK45", "DOP853", "Radau", "BDF")
G, LOSS = 9.81, 0.8
RATES = np.array([2.0, 0.1, 1.0])


def fall(t, y, g):
    return [y[1], -g]


def floor(t, y, g):
    return y[0]


floor.terminal, floor.direction = True, -1


def end_at_zero(t, y):
    return y[0]


end_at_zero.terminal = True


def hits(p, method="RK45", count=3):
    """The times at which a ball hits the floor. It starts at the height p[0], with the gravity p[1]."""
    t, y, found = 0.0 * p[0], np.stack([p[0], 0.0 * p[1]]), []
    for _ in range(count):
        s = solve_ivp(fall, (t, 10.0), y, method, events=floor, args=(p[1],), rtol=1e-9, atol=1e-11)
        t, y = s.t_events[0][0], np.stack([0.0, -LOSS]) * s.y_events[0][0]
        found.append(t)
    return np.stack(found)


def exact_hits(p, count=3):
    first = np.sqrt(2 * p[0] / p[1])
    return np.stack([first * (1 + 2 * sum(LOSS ** (j + 1) for j in range(k))) for k in range(count)])


def spring(k, **given):
    f = lambda t, y: np.stack([y[1], -k[0] * y[0] - k[1] * y[1]])
    return solve_ivp(f, (0.0, 3.0), np.stack([k[2], 0.0 * k[2]]), rtol=1e-9, atol=1e-11, **given)


@pytest.mark.parametrize("method", ["RK45", *[pytest.param(m, marks=pytest.mark.long) for m in METHODS[2:]]])
def test_a_bouncing_ball_runs_no_python(method):
    """Each segment starts where the last one has ended. Times and two orders of derivatives are exact."""
    p, ball = np.array([1.0, G]), functools.partial(hits, method=method)
    jacobian = tg.prepare(lambda p: tg.jacobian(ball)(p), p)
    for scale in (1.0, 1.1, 0.9):
        found = jacobian(scale * p)
        np.testing.assert_allclose(found, tg.jacobian(exact_hits)(scale * p), rtol=1e-6, atol=1e-9)
    assert "fall" not in frames_of(lambda: jacobian(1.05 * p))
    once = tg.prepare(lambda p: tg.hessian(lambda p: ball(p, count=1)[0])(p), p)
    expected = tg.hessian(lambda p: exact_hits(p)[0])
    np.testing.assert_allclose([once(p), once(1.1 * p)], [expected(p), expected(1.1 * p)], rtol=1e-6)


def test_what_a_result_says():
    """The status and the message of a solution that an event has ended, in a recording too."""
    said = []

    def end(p):
        s = solve_ivp(fall, (0.0, 10.0), np.stack([p[0], 0.0 * p[0]]), events=floor, args=(p[1],))
        said.append((s.status, s.success, s.message, len(s.t_events), len(s.y_events[0])))
        return s.t[-1] + s.y[0, -1] + s.y[1, 0]

    p = np.array([1.0, G])
    assert tg.prepare(end, p)(p) == pytest.approx(end(p), rel=1e-9)
    assert said[0] == said[1] == (1, True, "A termination event occurred.", 1, 1)


@pytest.mark.long
def test_balls_by_the_hundred():
    points = np.array([1.0, G]) * np.linspace(0.9, 1.1, 70)[:, None]
    times = tg.vmap(hits)(points)
    np.testing.assert_allclose(times, tg.vmap(exact_hits)(points), rtol=1e-8)
    rows = tg.vmap(tg.jacobian(hits))(points)
    np.testing.assert_allclose(rows, tg.vmap(tg.jacobian(exact_hits))(points), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", [1, *[pytest.param(n, marks=pytest.mark.long) for n in (0, *range(2, 90))]])
def test_random_calls_are_right(seed):
    """Prepared calls have SciPy's values, and the derivatives of accurate solutions."""
    problem = Problem(seed, (*METHODS, "LSODA"))
    expected = problem.by_differences(K)
    assert expected is not None, "the number of events changes beside the point: take another seed"
    p = tg.prepare(problem, 1.001 * K)
    p.value_and_grad(1.001 * K)
    value, gradient = p.value_and_grad(K)
    assert value == pytest.approx(problem(K), rel=1e-7, abs=1e-7)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-4 * abs(expected).max())
    np.testing.assert_allclose(tg.grad(problem)(K), expected, rtol=0, atol=1e-4 * abs(expected).max())


def test_the_number_of_events_changes():
    """A recording holds for one number of events, and another number is recorded anew."""

    def loss(k):
        s = spring(k, events=lambda t, y: y[0], t_eval=[1.0])
        return s.t_events[0].sum() + 10.0 * len(s.t_events[0]) + s.y.sum()

    p = tg.prepare(loss, RATES)
    counts = set()
    for rate in (2.0, 2.2, 9.0, 9.5, 0.1, 2.1):
        k = np.array([rate, 0.1, 1.0])
        counts.add(len(spring(k, events=lambda t, y: y[0]).t_events[0]))
        assert p(k) == pytest.approx(loss(k), rel=1e-9)
    assert len(counts) > 2


@pytest.mark.parametrize("method", ["RK45", "LSODA"])
def test_the_dense_output_is_that_of_the_call(method):
    """What the right-hand side reads may change before the solution is asked for."""

    def mean(k, way):
        rate, scale = np.array([1.0]), [2.0]
        f = lambda t, y: -k[0] * rate * scale[0] * y
        s = solve_ivp(f, (0.0, 1.0), [1.0], method, rtol=1e-10, atol=1e-12, dense_output=True)
        rate[0], scale[0] = 5.0, 7.0
        if way == "quad":
            return quad(lambda t: s.sol(t)[0], 0.0, 1.0)[0]
        return s.sol(np.array([0.7, 0.2, 0.4]))[0] @ [1.0, 2.0, 3.0] + s.sol(k[0] / 4)[0]

    def exact(k, way):
        if way == "quad":
            return (1 - np.exp(-2 * k[0])) / (2 * k[0])
        return np.exp(-2 * k[0] * np.array([0.7, 0.2, 0.4])) @ [1.0, 2.0, 3.0] + np.exp(-(k[0] ** 2) / 2)

    for way in ("times", "quad")[: 1 + (method == "RK45")]:
        p = tg.prepare(lambda k, way=way: mean(k, way), np.ones(1))
        points = np.linspace(0.5, 1.5, 70)[:, None]
        many = tg.vmap(tg.grad(lambda k, way=way: mean(k, way)))(points) if way == "times" else None
        for k in (np.array([0.8]), np.array([1.3])):
            expected = tg.value_and_grad(lambda k, way=way: exact(k, way))(k)
            for found, right in zip(p.value_and_grad(k), expected, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-7)
        if many is not None:
            np.testing.assert_allclose(many[7], tg.grad(lambda k: exact(k, "times"))(points[7]), rtol=1e-7)


def test_a_solution_beyond_its_ends():
    """SciPy extends the first and the last step. A kernel does so as well, but not beyond a terminal event."""
    of = lambda t, **given: lambda k: spring(k, dense_output=True, **given).sol(t)[0]
    points = RATES * np.linspace(0.95, 1.05, 66)[:, None]
    outside = np.array([-0.02, 3.03, 1.0, -0.01])
    np.testing.assert_allclose(
        tg.vmap(of(outside))(points), [of(outside)(k) for k in points], rtol=1e-9
    )  # fmt: skip
    ended = of(1.5, events=[end_at_zero])
    with pytest.raises(BatchError, match="after the event"):
        tg.vmap(ended)(points)
    with pytest.warns(tg.errors.ReplayWarning, match="after the event"):
        assert tg.prepare(ended, RATES)(RATES) == ended(RATES)


@pytest.mark.parametrize("method", ["RK45", pytest.param("LSODA", marks=pytest.mark.long)])
def test_repeated_calls_with_events_are_a_kernel(method, monkeypatch):
    """SciPy's values stay. The derivatives are those of a kernel, with respect to the ends as well."""
    monkeypatch.setattr(ivp_kernel, "COMPILATION", 1)
    monkeypatch.setattr(ivp_kernel, "CANDIDATES", [])
    values, gradients = [], []
    for _ in range(4):
        moving = lambda p: solve_ivp(
            fall, (0.1 * p[0], p[0]), p, method, dense_output=True, args=(p[1],), rtol=1e-9, atol=1e-11
        )
        loss = lambda p: (hits(p, method) ** 2).sum() + moving(p).y[0, -1] + moving(p).sol(0.5)[0]
        value, gradient = tg.value_and_grad(loss)(np.array([1.0, G]))
        values.append(value)
        gradients.append(gradient)
    assert ivp_kernel.CANDIDATES and all([c.states.traced for c in ivp_kernel.CANDIDATES])
    np.testing.assert_allclose(values, values[:1] * 4, rtol=1e-12)
    position = lambda p, t: p[0] + p[1] * (t - 0.1 * p[0]) - p[1] * (t - 0.1 * p[0]) ** 2 / 2
    loss = lambda p: (exact_hits(p) ** 2).sum() + position(p, p[0]) + position(p, 0.5)
    exact = tg.grad(loss)(np.array([1.0, G]))
    np.testing.assert_allclose(gradients, [exact] * 4, rtol=1e-5)


def test_what_event_functions_leave_behind_is_left_to_scipy():
    """They run in Python then, as often as SciPy calls them."""
    seen = []

    def counted(t, y):
        seen.append(1)
        return y[0]

    loss = lambda k: spring(k, events=counted).t_events[0].sum()
    p = tg.prepare(loss, RATES)
    for k in (RATES, 1.1 * RATES):
        counts = []
        for f in (p, loss):
            seen.clear()
            value = f(k)
            counts.append((len(seen), value))
        assert counts[0] == counts[1]


def test_an_end_at_the_second_crossing():
    def second(t, y):
        return y[0]

    second.terminal = 2
    end = lambda k: spring(k, events=second).t[-1]
    k = np.array([9.0, 0.0, 1.0])
    assert tg.prepare(end, k)(k) == pytest.approx(end(k), rel=1e-13) == pytest.approx(np.pi / 2, rel=1e-7)
    p = tg.prepare(end, k)
    for _ in range(2):
        np.testing.assert_allclose(p.grad(k)[0], -np.pi / 36, rtol=1e-6)
    assert "second" not in frames_of(lambda: p.grad(1.01 * k))


def test_lsoda_with_events_and_dense_output():
    """Where values are hidden, SciPy's values stay to the last bit, and nothing runs step by step."""

    def loss(k, **given):
        f, g = (lambda t, y: np.stack([y[1], -k[0] * y[0] - k[1] * y[1]])), lambda t, y: y[0] - 0.1 * k[2]
        s = solve_ivp(f, (0.0, 3.0), np.stack([k[2], 0.0 * k[2]]), events=[g], dense_output=True, **given)
        return s.t_events[0].sum() + s.y_events[0][0, 1] + (s.sol(np.array([2.0, 0.5, 2.0])) ** 2).sum()

    by_lsoda = lambda k: loss(k, method="LSODA", rtol=1e-8, atol=1e-10)
    exact = tg.grad(lambda k: loss(k, method="DOP853", rtol=1e-12, atol=1e-13))
    points = RATES * np.linspace(0.95, 1.05, 66)[:, None]
    p = tg.prepare(by_lsoda, RATES)
    for k in points[::20]:
        value, gradient = p.value_and_grad(k)
        assert value == by_lsoda(k)
        np.testing.assert_allclose(gradient, exact(k), rtol=1e-5)
    assert frames_of(lambda: p.value_and_grad(RATES)).count("solve_ivp") == 2  # one for the states of `sol`
    values, gradients = tg.vmap(tg.value_and_grad(by_lsoda))(points)
    np.testing.assert_array_equal(values, list(map(by_lsoda, points)))
    np.testing.assert_allclose(gradients[::20], list(map(exact, points[::20])), rtol=1e-5)


@pytest.mark.parametrize("changes", [False, True])
def test_segments_share_a_kernel(changes, monkeypatch):
    """Calls of one recording that read the same are one kernel. What changes between them is seen."""
    made = []
    kernel = ivp_kernel.KernelCall.kernel
    monkeypatch.setattr(ivp_kernel.KernelCall, "kernel", lambda self: made.append(1) or kernel(self))

    def total(k):
        rate, y, found = [1.0], np.ones(1), 0.0
        for j in range(4):
            s = solve_ivp(
                lambda t, y: -k[0] * rate[0] * y, (j, j + 1.0), y, rtol=1e-10, atol=1e-12, t_eval=[j + 1.0]
            )
            y = s.y[:, -1]
            found = found + y[0]
            if changes:
                rate[0] *= 1.5
        return found

    rates = np.cumsum([1.5**j if changes else 1.0 for j in range(4)])
    p = tg.prepare(total, np.ones(1))
    for k in (np.array([0.4]), np.array([0.7])):
        value, gradient = p.value_and_grad(k)
        assert value == pytest.approx(np.exp(-k[0] * rates).sum(), rel=1e-8)
        assert gradient[0] == pytest.approx(-(rates * np.exp(-k[0] * rates)).sum(), rel=1e-7)
    assert len(made) == (4 if changes else 1)


@pytest.mark.parametrize("method", ["RK45", pytest.param("LSODA", marks=pytest.mark.long)])
def test_the_number_of_events_differs_between_samples(method):
    """The first and the last event can be read where each sample has one, and the states where some have none."""

    def solved(k, rtol=1e-8, method=method):
        f = lambda t, y: np.stack([y[1], -k[0] * y[0] - k[1] * y[1]])
        y0 = np.stack([k[2], 0.0 * k[2]])
        return solve_ivp(f, (0.0, 3.0), y0, method, events=[lambda t, y: y[0]], rtol=rtol, atol=1e-2 * rtol)

    def loss(k, *given):
        s = solved(k, *given)
        return (
            2.0 * s.t_events[0][0]
            + s.t_events[0][-1]
            + s.y_events[0][0, 1]
            + s.y_events[0][-1][1]
            + s.y[0, -1]
        )

    last = lambda k: solved(k).y[1, -1]
    points = np.array([1.0, 0.1, 1.0]) * np.linspace(0.6, 9.0, 66)[:, None] ** [1, 0, 0]
    counts = [len(solved(k).t_events[0]) for k in points]
    assert min(counts) == 1 < max(counts)
    values, gradients = tg.vmap(tg.value_and_grad(loss))(points)
    np.testing.assert_allclose(values, list(map(loss, points)), rtol=1e-10)
    exact = [tg.grad(loss)(k, 1e-12, "DOP853") for k in points[::13]]
    np.testing.assert_allclose(gradients[::13], exact, rtol=1e-5, atol=1e-6)
    few = points * [0.2, 1.0, 1.0]
    np.testing.assert_allclose(tg.vmap(last)(few), list(map(last, few)), rtol=1e-10)
    with pytest.raises(BatchError, match="another number of events"):
        tg.vmap(lambda k: solved(k).t_events[0].sum())(few)
