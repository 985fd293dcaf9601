"""Events of tapegrad.ode: their times, their derivatives, and what follows them."""

import numpy as np
import pytest
import scipy.integrate
from _cuda_host import array_library  # noqa: F401

import tapegrad as tg
from tapegrad import ode
from tapegrad.errors import ArgumentError, ConvergenceError, ShapeError

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def falling(t, y, g, e):
    return [y[1], -g]


def bounce(t, y, g, e):
    return [0.0 * y[0], -e * y[1]]


FLOOR = ode.Event(lambda t, y, g, e: y[0], direction=-1, change=bounce)


def ball(times=(0.0, 1.5, 2.1), **settings):
    return ode.solver(falling, save_at=np.array(times), events=FLOOR, **TIGHT, **settings)


def bounces(height, g, e, count):
    """Times of the first bounces of a ball that is dropped."""
    first = np.sqrt(2 * height / g)
    return np.stack([first * (1 + 2 * sum(e**j for j in range(1, k + 1))) for k in range(count)])


def height_at(t, height, g, e, count):
    """The height after `count` bounces."""
    since, speed = t - bounces(height, g, e, count)[-1], np.sqrt(2 * height * g) * e**count
    return speed * since - g * since**2 / 2


def differences(g, x, v, h=1e-4):
    return (8 * (g(x + h * v) - g(x - h * v)) - (g(x + 2 * h * v) - g(x - 2 * h * v))) / (12 * h)


@pytest.mark.parametrize("method", ["tsit5", pytest.param("rodas5p", marks=pytest.mark.long)])
def test_a_bouncing_ball(method):
    """Times, states between, and their first and second derivatives, by the closed form."""
    solve, x = ball(method=method), np.array([1.0, 9.81, 0.9])

    def ours(x):
        found = solve(np.stack([x[0], 0.0]), x[1], x[2])
        return np.concatenate([found.events[0].t[:2], found.y[0, 1:]])

    def theirs(x):
        ends = height_at(1.5, *x, 2), height_at(2.1, *x, 3)
        return np.concatenate([bounces(*x, 2), np.stack(ends)])

    found = solve(np.array([1.0, 0.0]), 9.81, 0.9)
    assert found.events[0].count == 3 and np.isnan(found.events[0].t[3:]).all() and found.status == 0
    np.testing.assert_allclose(found.events[0].t[:3], bounces(*x, 3), rtol=1e-12)
    np.testing.assert_allclose(found.events[0].y[1, :3], -np.sqrt(2 * 9.81) * 0.9 ** np.arange(3), rtol=1e-12)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-11)
    np.testing.assert_allclose(tg.jacobian(ours)(x), tg.jacobian(theirs)(x), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(
        tg.jacobian(ours, mode="forward")(x), tg.jacobian(theirs)(x), rtol=1e-10, atol=1e-11
    )
    w = np.array([0.3, -0.7, 1.1, 0.4])
    np.testing.assert_allclose(
        tg.hessian(lambda x: ours(x) @ w)(x), tg.hessian(lambda x: theirs(x) @ w)(x), rtol=1e-9
    )


@pytest.mark.long
def test_a_batch_of_balls_is_its_balls():
    heights, g, e = np.array([1.0, 0.3, 2.0, 0.05, 1.3]), 9.81, np.array([0.5, 0.9, 0.7, 0.95, 0.6])
    y0 = np.stack([heights, np.zeros(5)])
    solve = ball((0.0, 1.0), on_failure="nan", max_events=4)
    found = solve(y0, g, e)
    assert found.events[0].t.shape == (4, 5) and found.events[0].y.shape == (2, 4, 5)
    np.testing.assert_array_equal(found.status, [0, 0, 0, -1, 0])
    for b in range(5):
        one = solve(y0[:, b].copy(), g, e[b])
        assert one.status == found.status[b] and one.events[0].count == found.events[0].count[b]
        np.testing.assert_allclose(one.y, found.y[..., b], rtol=1e-12)
        np.testing.assert_allclose(one.events[0].t, found.events[0].t[:, b], rtol=1e-12)
        gradient = tg.grad(lambda y, e: solve(y, g, e).y[:, -1].sum(), (0, 1))(y0[:, b].copy(), e[b])
        many = tg.grad(lambda y, e: solve(y, g, e).y[:, -1].sum(), (0, 1))(y0, e)
        np.testing.assert_allclose(many[0][:, b], gradient[0], rtol=1e-9)
        np.testing.assert_allclose(many[1][b], gradient[1], rtol=1e-9)
    with pytest.raises(ConvergenceError, match="sample 3 of 5.*more than max_events=4 zeros"):
        ball((0.0, 1.0), max_events=4)(y0, g, e)


def prey(t, y, k):
    return np.stack([k[0] * (y[0] - y[0] * y[1]), -k[1] * (y[1] - y[0] * y[1])])


@pytest.mark.long
@pytest.mark.parametrize(
    "direction", [pytest.param(0, marks=pytest.mark.long), 1, pytest.param(-1, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("method", ["tsit5", pytest.param("rodas5p", marks=pytest.mark.long)])
def test_zeros_are_those_of_scipy(direction, method):
    def g(t, y, k):
        return y[0] - 1.5

    g.direction = direction
    y0, k = np.array([1.0, 3.0]), np.array([2.0, 1.0])
    found = ode.solver(prey, method, save_at=[0.0, 12.0], events=g, max_events=12, **TIGHT)(y0, k)
    theirs = scipy.integrate.solve_ivp(
        prey, (0, 12), y0, "DOP853", args=(k,), events=g, rtol=1e-12, atol=1e-13
    )
    count = len(theirs.t_events[0])
    assert count > 1 and found.events[0].count == count
    np.testing.assert_allclose(found.events[0].t[:count], theirs.t_events[0], rtol=1e-8)
    np.testing.assert_allclose(found.events[0].y[:, :count].T, theirs.y_events[0], rtol=1e-7)
    plain = ode.solver(prey, method, save_at=[0.0, 12.0], **TIGHT)(y0, k)
    np.testing.assert_array_equal(found.y, plain.y)  # an event that changes nothing moves no step


@pytest.mark.long
def test_derivatives_of_an_event_of_a_nonlinear_equation():
    """The second rising zero, by its own formula: dt = -dg / g', with the sensitivities of the state."""
    g = ode.Event(lambda t, y, k: y[0] - k[1] * np.cos(0.1 * t), direction=1)
    solve = ode.solver(prey, save_at=[0.0, 12.0], events=g, max_events=3, **TIGHT)
    y0, k, v = np.array([1.0, 3.0]), np.array([2.0, 1.0]), np.array([0.4, -0.3])

    def second(k):
        record = solve(y0, k).events[0]
        return record.t[1] + record.y[1, 1] ** 2

    gradient = tg.grad(second)
    np.testing.assert_allclose(gradient(k) @ v, differences(second, k, v), rtol=1e-7)
    np.testing.assert_allclose(tg.jvp(second, (k,), (v,))[1], gradient(k) @ v, rtol=1e-9)
    np.testing.assert_allclose(tg.hvp(second, k, v), differences(gradient, k, v), rtol=1e-6)
    p = tg.prepare(second, k)
    np.testing.assert_allclose(p.grad(1.01 * k), gradient(1.01 * k), rtol=1e-10)
    K = np.stack([k, 1.1 * k])
    np.testing.assert_allclose(tg.vmap(gradient)(K), [gradient(x) for x in K], rtol=1e-9)


DECAY_TIMES = np.array([0.0, 0.5, 2.0, 2.0, 3.0])
DECAY = ode.solver(
    lambda t, y, level: -y,
    save_at=DECAY_TIMES,
    events=ode.Event(lambda t, y, level: y[0] - level, True),
    **TIGHT,
)


def test_a_terminal_event():
    """Decay to a level: nan afterwards."""
    solve = DECAY
    found = solve(np.array([1.0]), 0.4)
    np.testing.assert_allclose(found.y[0], [1.0, np.exp(-0.5), np.nan, np.nan, np.nan], rtol=1e-9)
    assert found.status == 1 and found.success
    np.testing.assert_allclose(found.events[0].t[0], -np.log(0.4), rtol=1e-9)
    time = lambda level: solve(np.array([1.0]), level).events[0].t[0]
    np.testing.assert_allclose(tg.grad(time)(0.4), -1 / 0.4, rtol=1e-7)


@pytest.mark.long
def test_terminal_events_of_a_batch_and_at_the_ends():
    """Second derivatives; the second of two zeros; at a saved time; from the first time on."""
    solve, times = DECAY, DECAY_TIMES
    time = lambda level: solve(np.array([1.0]), level).events[0].t[0]
    np.testing.assert_allclose(tg.grad(tg.grad(time))(0.4), 1 / 0.4**2, rtol=1e-7)
    many = solve(np.ones((1, 3)), np.array([0.4, 0.01, 0.9]))
    np.testing.assert_array_equal(many.status, [1, 0, 1])
    np.testing.assert_allclose(many.y[0, :, 1], np.exp(-times), rtol=1e-9)
    turning = ode.solver(
        lambda t, y: [y[1], -y[0]], save_at=[0.0, 20.0], events=ode.Event(lambda t, y: y[0], 2), **TIGHT
    )
    found = turning(np.array([1.0, 0.0]))
    np.testing.assert_allclose(found.events[0].t[:3], [np.pi / 2, 1.5 * np.pi, np.nan], rtol=1e-9)
    at_end = ode.solver(
        lambda t, y: [1.0], save_at=[0.0, 1.0, 2.0], events=ode.Event(lambda t, y: t - 1.0, True)
    )
    np.testing.assert_allclose(at_end(np.zeros(1)).y[0], [0.0, 1.0, np.nan])


@pytest.mark.long
def test_a_state_is_reset_away_from_the_zero():
    """Integrate and fire: y' = k - y until 1, then 0.  The period is log(k / (k - 1))."""
    fires = ode.Event(lambda t, y, k: y[0] - 1.0, change=lambda t, y, k: 0.0 * y)
    solve = ode.solver(lambda t, y, k: k - y, save_at=[0.0, 4.0], events=fires, **TIGHT)
    times = lambda k: solve(np.zeros(1), k).events[0].t[:3]
    numbers = np.arange(1, 4)
    np.testing.assert_allclose(times(1.8), numbers * np.log(1.8 / 0.8), rtol=1e-9)
    np.testing.assert_allclose(tg.jacobian(times)(1.8), numbers * (1 / 1.8 - 1 / 0.8), rtol=1e-8)


@pytest.mark.long
def test_events_backwards_in_time():
    solve = ode.solver(
        lambda t, y: [1.0], save_at=[2.0, -2.0], events=[lambda t, y: y[0] - 1.5, lambda t, y: t + 1.0]
    )
    found = solve(np.array([2.0]))
    np.testing.assert_allclose([r.t[0] for r in found.events], [1.5, -1.0])
    assert [r.count for r in found.events] == [1, 1]


@pytest.mark.long
def test_two_events_at_once_and_in_turn():
    """A ball in a corner hits both walls at the same time; elsewhere one after the other."""
    walls = [
        ode.Event(lambda t, y: y[0], direction=-1, change=lambda t, y: [y[0], y[1], -y[2], y[3]]),
        ode.Event(lambda t, y: y[1], direction=-1, change=lambda t, y: [y[0], y[1], y[2], -y[3]]),
    ]
    solve = ode.solver(lambda t, y: [y[2], y[3], 0.0, 0.0], save_at=[0.0, 3.0], events=walls, first_step=2.0)
    np.testing.assert_allclose(solve(np.array([1.0, 1.0, -1.0, -1.0])).y[:, -1], [2.0, 2.0, 1.0, 1.0])
    np.testing.assert_allclose(solve(np.array([1.0, 1.5, -1.0, -1.0])).y[:, -1], [2.0, 1.5, 1.0, 1.0])
    np.testing.assert_allclose(solve(np.array([1.0, 0.9, -1.0, -1.0])).y[:, -1], [2.0, 2.1, 1.0, 1.0])


@pytest.mark.long
def test_a_dose_across_a_zero_is_no_event():
    g = lambda t, y: y[0] - 1.0
    solve = ode.solver(lambda t, y: -y, save_at=[0.0, 4.0], events=g, **TIGHT)
    found = solve(np.array([0.5]), doses=([1.0], np.array([[2.0]])))
    height = 0.5 * np.exp(-1) + 2
    assert found.events[0].count == 1
    np.testing.assert_allclose(found.events[0].t[0], 1 + np.log(height), rtol=1e-9)
    by_dose = tg.grad(lambda a: solve(np.array([0.5]), doses=([1.0], a)).events[0].t[0])(np.array([[2.0]]))
    np.testing.assert_allclose(by_dose, [[1 / height]], rtol=1e-8)


@pytest.mark.long
def test_derivatives_by_times_around_an_event():
    solve = ode.solver(falling, events=FLOOR, **TIGHT)

    def end(t):
        found = solve(np.array([1.0, 0.0]), 9.81, 0.9, t0=t[0], save_at=t[1:])
        return np.concatenate([found.y[0], found.events[0].t[:2]])

    t, J = np.array([0.2, 0.8, 1.6]), np.zeros((4, 3))
    velocity = [
        np.sqrt(2 * 9.81) * 0.9**n - 9.81 * (s - 0.2 - bounces(1.0, 9.81, 0.9, n)[-1])
        for n, s in ((1, 0.8), (2, 1.6))
    ]
    J[0, 1], J[1, 2], J[:, 0] = *velocity, [-velocity[0], -velocity[1], 1.0, 1.0]
    np.testing.assert_allclose(tg.jacobian(end)(t), J, atol=1e-8)


@pytest.mark.long
def test_an_event_at_the_start_is_none():
    """A ball thrown from the floor: the function is zero there, and takes the sign of what follows."""
    solve = ode.solver(lambda t, y: [y[1], -2.0], save_at=[0.0, 3.0], events=lambda t, y: y[0])
    record = solve(np.array([0.0, 1.0])).events[0]
    assert record.count == 1 and record.t[0] == pytest.approx(1.0, abs=1e-12)


def tree_slope(t, s, rate):
    return {"v": -rate * s["v"], "w": s["v"].sum() - s["w"]}


def test_trees_of_states():
    solve = ode.solver(tree_slope, save_at=[0.0, 1.0], rtol=1e-8, atol=1e-10)
    many = solve({"v": np.array([[1.0, 0.5], [2.0, 1.0]]), "w": 1}, np.array([0.7, 0.9]))
    assert many.y["v"].shape == (2, 2, 2) and many.y["w"].shape == (2, 2)
    y0 = {"v": np.array([1.0, 2.0]), "w": 1.0}
    np.testing.assert_allclose(many.y["w"][:, 0], solve(y0, 0.7).y["w"], rtol=1e-12)
    gradient = tg.grad(lambda y0: solve(y0, 0.7).y["w"][-1])(y0)
    np.testing.assert_allclose(gradient["w"], np.exp(-1.0), rtol=1e-6)
    np.testing.assert_allclose(gradient["v"], (np.exp(-0.7) - np.exp(-1.0)) / 0.3, rtol=1e-6)
    np.testing.assert_array_equal(ode.solver(lambda t, y: -y, save_at=[0.0])([1, 2.0]).y[:, 0], [1.0, 2.0])


@pytest.mark.long
def test_trees_are_their_arrays():
    """With events and doses, and by a function that fills the slopes."""

    def filling(ds, t, s, rate):
        ds["v"][:] = -rate * s["v"]
        ds["w"] = s["v"].sum() - s["w"]

    def vector(t, y, rate):
        return np.concatenate([-rate * y[:2], [y[:2].sum() - y[2]]])

    settings = {"save_at": [0.0, 1.0], "rtol": 1e-8, "atol": 1e-10}
    y0 = {"v": np.array([1.0, 2.0]), "w": 1}
    doses = np.array([0.5]), {"v": np.array([[0.3], [0.1]]), "w": np.array([0.2])}
    g = ode.Event(lambda t, s, rate: s["w"] - 1.3, change=lambda t, s, rate: {"v": s["v"], "w": 0.5 * s["w"]})
    h = ode.Event(lambda t, y, rate: y[2] - 1.3, change=lambda t, y, rate: np.stack([y[0], y[1], 0.5 * y[2]]))
    expected = ode.solver(vector, events=h, **settings)(
        np.array([1.0, 2.0, 1.0]), 0.7, doses=(doses[0], np.array([[0.3], [0.1], [0.2]]))
    )
    for form in (tree_slope, filling):
        found = ode.solver(form, events=g, **settings)(y0, 0.7, doses=doses)
        np.testing.assert_allclose(found.y["v"], expected.y[:2], rtol=1e-12)
        np.testing.assert_allclose(found.y["w"], expected.y[2], rtol=1e-12)
        np.testing.assert_allclose(found.events[0].y["w"], expected.events[0].y[2], rtol=1e-12)


def test_bad_events_and_trees():
    solver = lambda events, **given: ode.solver(lambda t, y: -y, save_at=[0.0, 2.0], events=events, **given)
    y0 = np.ones(2)
    for make, error, words in [
        (lambda: solver(3.0), ArgumentError, "functions"),
        (lambda: ode.Event(lambda t, y: y[0], direction=2), ArgumentError, "direction"),
        (lambda: ode.Event(lambda t, y: y[0], terminal=-1), ArgumentError, "terminal"),
        (lambda: solver(lambda t, y: y[0], max_events=0), ArgumentError, "max_events"),
        (lambda: solver(lambda t, y: y)(y0), ShapeError, r"event .* shape \(2,\); it returns one number"),
        (
            lambda: solver(ode.Event(lambda t, y: y[0] - 0.5, change=lambda t, y: y[0]))(y0),
            ShapeError,
            r"returned shape \(\)",
        ),
        (
            lambda: solver(lambda t, y: np.sqrt(0.5 - t))(y0),
            ConvergenceError,
            "until t = 0.5: f, or an event function, is not finite",
        ),
        (
            lambda: ode.solver(lambda t, y: y, save_at=[0.0])({"a": y0, "b": np.ones((2, 3))}),
            ShapeError,
            r"\(2,\), \(2, 3\)",
        ),
        (lambda: ode.solver(lambda t, y: [y["a"]], save_at=[0.0])({"a": y0}), ArgumentError, "not alike"),
        (lambda: ode.solver(lambda t, y: y, save_at=[0.0])({}), ShapeError, "y0"),
    ]:
        with pytest.raises(error, match=words):
            make()


@pytest.mark.long
def test_events_on_a_device(cupy):
    solve, heights = ball((0.0, 1.0)), np.array([1.0, 0.3, 2.0])
    y0 = np.stack([heights, np.zeros(3)])
    found, plain = solve(cupy.asarray(y0), 9.81, 0.9), solve(y0, 9.81, 0.9)
    np.testing.assert_allclose(found.events[0].t.get(), plain.events[0].t, rtol=1e-12)
    np.testing.assert_array_equal(found.status.get(), plain.status)
    g = tg.grad(lambda y: (solve(y, 9.81, 0.9).y[:, -1] ** 2).sum())
    np.testing.assert_allclose(g(cupy.asarray(y0)).get(), g(y0), rtol=1e-10)
