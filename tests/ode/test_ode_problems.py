"""Problems of the DETEST and IVP test sets: values and gradients against closed forms and SciPy at tight
tolerances."""

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

import tapegrad as tg

RTOL = 1e-8
FIVE = np.linspace(0.0, 5.0, 6)


def predator_prey(t, y, k):
    return np.array([k[0] * (y[0] - y[0] * y[1]), -k[1] * (y[1] - y[0] * y[1])])


def linear_chemistry(t, y, k):
    return np.array([-k[0] * y[0] + y[1], y[0] - 2 * k[1] * y[1] + y[2], y[1] - y[2]])


def rigid_body(t, y, k):
    return np.array([y[1] * y[2], -y[0] * y[2], -k[0] * y[0] * y[1]])


def two_bodies(t, y, k):
    r3 = (y[0] ** 2 + y[1] ** 2) ** 1.5
    return np.array([y[2], y[3], -k[0] * y[0] / r3, -k[0] * y[1] / r3])


def van_der_pol(t, y, k):
    return np.array([y[1], k[0] * (1 - y[0] ** 2) * y[1] - y[0]])


def lorenz(t, y, k):
    return np.array([k[0] * (y[1] - y[0]), y[0] * (k[1] - y[2]) - y[1], y[0] * y[1] - k[2] * y[2]])


def switched(t, y, k):
    return np.where(t < 1.0, k[0], -k[1]) * y + 0.1


def robertson(t, y, k):
    a, b, c = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return np.array([-a + b, a - b - c, c])


def oregonator(t, y, k):
    return np.array([
        k[0] * (y[1] + y[0] * (1 - 8.375e-6 * y[0] - y[1])), (y[2] - (1 + y[0]) * y[1]) / k[0],
        k[1] * (y[0] - y[2]),
    ])  # fmt: skip


def prothero_robinson(t, y, k):
    return -k[0] * (y - np.cos(t)) - np.sin(t)


def hires(t, y, k):
    return np.array([
        -k[0] * y[0] + 0.43 * y[1] + 8.32 * y[2] + 0.0007, 1.71 * y[0] - 8.75 * y[1],
        -10.03 * y[2] + 0.43 * y[3] + 0.035 * y[4],
        8.32 * y[1] + 1.71 * y[2] - 1.12 * y[3], -1.745 * y[4] + 0.43 * y[5] + 0.43 * y[6],
        -280 * y[5] * y[7] + 0.69 * y[3] + 1.71 * y[4] - 0.43 * y[5] + 0.69 * y[6],
        280 * y[5] * y[7] - k[1] * y[6],
        -280 * y[5] * y[7] + k[1] * y[6],
    ])  # fmt: skip


def switched_exactly(t, y, k):
    until = (y + 0.1 / k[0]) * np.exp(k[0]) - 0.1 / k[0]
    return np.where(
        t <= 1,
        (y + 0.1 / k[0]) * np.exp(k[0] * t) - 0.1 / k[0],
        (until - 0.1 / k[1]) * np.exp(-k[1] * (t - 1)) + 0.1 / k[1],
    )


# name: (f, y0, k, times, closed form)
EXPLICIT = {
    "A1": (lambda t, y, k: -k[0] * y, [1.0], [1.0], FIVE, lambda t, y, k: y * np.exp(-k[0] * t)),
    "A2": (lambda t, y, k: -k[0] * y**3, [1.0], [0.5], FIVE, lambda t, y,
    k: y / np.sqrt(1 + 2 * k[0] * t * y**2)),
    "A3": (lambda t, y, k: k[0] * y * np.cos(t), [1.0], [1.0], FIVE, lambda t, y,
    k: y * np.exp(k[0] * np.sin(t))),
    "A4": (
        lambda t, y, k: k[0] * y * (1 - y / k[1]), [1.0], [0.25, 20.0], FIVE,
        lambda t, y, k: k[1] / (1 + (k[1] / y - 1) * np.exp(-k[0] * t)),
    ),
    "A5": (lambda t, y, k: (y - k[0] * t) / (y + t), [4.0], [1.0], FIVE, None),
    "B1": (predator_prey, [1.0, 3.0], [2.0, 1.0], FIVE, None),
    "B2": (linear_chemistry, [2.0, 0.0, 1.0], [1.0, 1.0], FIVE, None),
    "B5": (rigid_body, [0.0, 1.0, 1.0], [0.51], FIVE, None),
    "D1": (two_bodies, [0.9, 0.0, 0.0, np.sqrt(1.1 / 0.9)], [1.0], FIVE, None),
    "E2": (van_der_pol, [2.0, 0.0], [1.0], FIVE, None),
    "Lorenz, a short span": (lorenz, [1.0, 1.0, 20.0], [10.0, 28.0, 8 / 3], np.linspace(0, 1, 3), None),
    "a switch at a saved time": (
        switched, [1.0, 2.0], [1.0, 0.5], np.array([0.0, 1.0, 2.0]),
        switched_exactly,
    ),
}  # fmt: skip
STIFF = {
    "Robertson": (robertson, [1.0, 0.0, 0.0], [0.04, 1e4, 3e7], np.array([0.0, 0.4, 40.0, 4e3]), None),
    "Oregonator": (oregonator, [1.0, 2.0, 3.0], [77.27, 0.161], np.array([0.0, 10.0, 30.0]), None),
    "van der Pol, mu = 100": (van_der_pol, [2.0, 0.0], [100.0], np.array([0.0, 40.0, 80.0]), None),
    "Prothero and Robinson": (
        prothero_robinson,
        [1.0],
        [1e6],
        FIVE,
        lambda t, y, k: np.cos(t) + (y - 1) * np.exp(-k[0] * t),
    ),
    "HIRES": (hires, [1.0, 0, 0, 0, 0, 0, 0, 0.0057], [1.71, 1.81], np.array([0.0, 5.0, 300.0]), None),
}


STEP = 1e-30  # of the complex step


def reference(problem, method, y0, k, times):
    """States (n, times), and their derivatives at the last time by y0 (n, n) and k (n, p).

    The sensitivities are solved by SciPy with the states; products with Jacobians are complex steps."""
    f, *_, exact = problem
    n, p = len(y0), len(k)
    ways = np.eye(n + p)
    if exact is not None:
        of = lambda d: exact(times[-1], y0 + 1j * STEP * d[:n], k + 1j * STEP * d[n:]).imag / STEP
        return np.stack([exact(t, y0, k) for t in times], 1), np.stack([of(d) for d in ways], 1)

    def slopes(t, z):
        y, S = z[:n], z[n:].reshape(-1, n)
        moved = [
            f(t, y + 1j * STEP * s, k + 1j * STEP * d[n:]).imag / STEP for s, d in zip(S, ways, strict=True)
        ]
        return np.concatenate([f(t, y, k), *moved])

    start = np.concatenate([y0, ways[:, :n].ravel()])
    scale = np.concatenate([np.full(n, 1e-15), np.full(len(start) - n, 1e-11)])
    z = scipy.integrate.solve_ivp(
        slopes, (times[0], times[-1]), start, method, times, rtol=1e-12, atol=scale
    ).y
    return z[:n], z[n:, -1].reshape(-1, n).T


def check(problem, method, theirs):
    f, y0, k, times, _ = problem
    y0, k = np.array(y0), np.array(k)
    solve = tg.ode.solver(f, method, save_at=times, rtol=RTOL, atol=1e-13 if theirs == "LSODA" else 1e-11)
    expected, J = reference(problem, theirs, y0, k, times)
    scale = np.abs(expected).max(1, keepdims=True)
    assert np.all(np.abs(solve(y0, k).y - expected) < 10 * RTOL * scale)
    found = np.concatenate(tg.jacobian(lambda y, k: solve(y, k).y[:, -1], (0, 1))(y0, k), 1)
    sizes = np.concatenate([np.full(len(y0), np.abs(y0).max()), k])
    assert np.all(
        np.abs((found - J) * sizes) < 100 * RTOL * np.maximum(scale, np.abs(J * sizes).max(1, keepdims=True))
    )


ALL = [(name, "tsit5", "DOP853") for name in EXPLICIT] + [(name, "rodas5p", "LSODA") for name in STIFF]


@pytest.mark.long
@pytest.mark.parametrize(("name", "method", "theirs"), ALL)
def test_derivatives_by_the_ends_of_the_span(name, method, theirs):
    """By the end it is the slope there; by the start, the slope there carried along, with the opposite
    sign."""
    problem = (EXPLICIT | STIFF)[name]
    f, y0, k, times, _ = problem
    y0, k, span = np.array(y0), np.array(k), times[-1] - times[0]
    solve = tg.ode.solver(f, method, rtol=RTOL, atol=1e-13 if theirs == "LSODA" else 1e-11)
    states = lambda a, b: solve(y0, k, t0=a, save_at=[b]).y[:, 0]
    by_start, by_end = tg.jacobian(states, (0, 1))(times[0], times[-1])
    end = states(times[0], times[-1])  # (a stiff slope amplifies the error of the state)
    expected, J = reference(problem, theirs, y0, k, times)
    scale = np.abs(expected).max(1)
    for found, exact in (
        (by_end, f(times[-1], end, k)),
        (by_start, -J[:, : len(y0)] @ f(times[0], y0, k)),
    ):
        assert np.all(np.abs(found - exact) * span < 100 * RTOL * np.maximum(scale, np.abs(exact) * span))


@pytest.mark.long
@pytest.mark.parametrize(("name", "method", "theirs"), ALL)
def test_second_derivatives(name, method, theirs):
    """Along a direction of parameters, and of the start where that is smooth, against differences of the
    gradient."""
    f, y0, k, times, _ = (EXPLICIT | STIFF)[name]
    y0, k, rng = np.array(y0), np.array(k), np.random.default_rng(0)
    solve = tg.ode.solver(f, method, save_at=times, rtol=1e-11, atol=1e-14, max_steps=100_000)
    weights, n, scale = rng.normal(size=len(y0)), len(y0), np.abs(y0).max()
    loss = lambda x: weights @ solve(x[:n] * scale, x[n:] * k).y[:, -1]
    x, v, gradient = np.concatenate([y0 / scale, np.ones(len(k))]), rng.normal(size=n + len(k)), tg.grad(loss)
    h = 2e-4 if name in STIFF else 1e-3
    if name in STIFF:
        v[:n] = 0.0
    g = [gradient(x + i * h * v) for i in (-2, -1, 1, 2)]
    expected = (8 * (g[2] - g[1]) - (g[3] - g[0])) / (12 * h)
    bound = 1e-5 * np.abs(expected).max() + 1e-7 * np.abs(g[0]).max() + 1e-9 * np.abs(loss(x))
    np.testing.assert_allclose(tg.hvp(loss, x, v), expected, rtol=0, atol=bound)


@pytest.mark.long
@pytest.mark.parametrize("method", ["tsit5", pytest.param("rodas5p", marks=pytest.mark.long)])
def test_a_switch_between_saved_times(method):
    """The slope jumps with a state that an event changes.  This gives the derivative by its time, too."""
    event = tg.ode.Event(lambda t, y, k: t - k[2], change=lambda t, y, k: [y[0], y[1], 0.0])
    f = lambda t, y, k: [
        (y[2] * k[0] - (1 - y[2]) * k[1]) * y[0] + 0.1,
        (y[2] * k[0] - (1 - y[2]) * k[1]) * y[1] + 0.1,
        0.0,
    ]
    solve = tg.ode.solver(f, method, save_at=[0.0, 0.7, 2.0], events=event, rtol=RTOL, atol=1e-11)
    y0, k = np.array([1.0, 2.0, 1.0]), np.array([1.0, 0.5, 1.0])
    exact = np.stack([switched_exactly(t, y0[:2], k) for t in (0.0, 0.7, 2.0)], 1)
    np.testing.assert_allclose(solve(y0, k).y[:2], exact, rtol=10 * RTOL)
    found = tg.jacobian(lambda k: solve(y0, k).y[:2, 2])(k)
    np.testing.assert_allclose(
        found[:, 2], (k[0] + k[1]) * switched_exactly(1.0, y0[:2], k) * np.exp(-k[1]), rtol=100 * RTOL
    )
    step = lambda i: (switched_exactly(2.0, y0[:2], k + 1j * STEP * np.eye(3)[i]) / STEP).imag
    np.testing.assert_allclose(found[:, :2], np.stack([step(0), step(1)], 1), rtol=100 * RTOL)


@pytest.mark.long
def test_friction_that_jumps():
    """x'' = -x - mu sign(x'), whose sign an event turns: after k half periods, x is (-1)^k (x0 - 2 k mu)."""
    turns = tg.ode.Event(lambda t, y, mu: y[1], change=lambda t, y, mu: [y[0], y[1], -y[2]])
    solve = tg.ode.solver(
        lambda t, y, mu: [y[1], -y[0] - mu * y[2], 0.0],
        save_at=np.pi * np.arange(4) + 0.5,
        events=turns,
        rtol=RTOL,
        atol=1e-11,
    )
    end = lambda x0, mu: solve(np.stack([x0, 0.0, -1.0]), mu, t0=0.0).y[0]
    exact = lambda x0, mu: np.stack(
        [(-1) ** k * ((x0 - (2 * k + 1) * mu) * np.cos(0.5) + mu) for k in range(4)]
    )
    np.testing.assert_allclose(end(2.0, 0.1), exact(2.0, 0.1), rtol=10 * RTOL)
    found = np.stack(tg.jacobian(end, (0, 1))(2.0, 0.1))
    np.testing.assert_allclose(
        found, np.stack(tg.jacobian(exact, (0, 1))(2.0, 0.1)), rtol=100 * RTOL, atol=100 * RTOL
    )


@pytest.mark.long
@pytest.mark.parametrize("method", ["tsit5", "rodas5p"])
def test_a_thermostat(method):
    """Heating until 1, cooling until 0.5: the times of the switches, and their derivatives by both rates."""
    heats = tg.ode.Event(lambda t, y, k: y[0] - 0.5, direction=-1, change=lambda t, y, k: [y[0], 1.0])
    cools = tg.ode.Event(lambda t, y, k: y[0] - 1.0, direction=1, change=lambda t, y, k: [y[0], 0.0])
    f = lambda t, y, k: [-k[0] * y[0] + k[1] * y[1], 0.0]
    solve = tg.ode.solver(f, method, save_at=[0.0, 4.0], events=[heats, cools], rtol=RTOL, atol=1e-11)
    off = lambda k: np.log(2.0) / k[0]
    on = lambda k: np.log((k[1] / k[0] - 0.5) / (k[1] / k[0] - 1.0)) / k[0]

    def times(k):
        first, second = solve(np.array([1.0, 0.0]), k).events
        return np.stack([first.t[0], second.t[0], first.t[1]])

    exact = lambda k: np.stack([off(k), off(k) + on(k), 2 * off(k) + on(k)])
    k = np.array([0.8, 2.0])
    np.testing.assert_allclose(times(k), exact(k), rtol=10 * RTOL)
    np.testing.assert_allclose(tg.jacobian(times)(k), tg.jacobian(exact)(k), rtol=100 * RTOL, atol=100 * RTOL)


def by_default(names, few):
    """The names, all but a few of which run with -m long."""
    return [n if n in few else pytest.param(n, marks=pytest.mark.long) for n in names]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", by_default(EXPLICIT, ("A3", "B1", "E2")))
def test_tsitouras(name):
    check(EXPLICIT[name], "tsit5", "DOP853")


@pytest.mark.parametrize("name", by_default(STIFF, ("Robertson", "van der Pol")))
def test_rodas5p(name):
    check(STIFF[name], "rodas5p", "LSODA")


@pytest.mark.long
@pytest.mark.parametrize("name", ["A5", "B1"])
def test_rodas5p_where_tsitouras_serves(name):
    check(EXPLICIT[name], "rodas5p", "DOP853")


@pytest.mark.long
@pytest.mark.parametrize("method", ["tsit5", "rodas5p"])
def test_matrices_that_are_not_unrolled(method):
    """Heat in a rod of 12 cells, by the exponential of its matrix; the derivative is that of a scaled
    time."""
    A = np.diag(np.full(11, 1.0), -1) - 2 * np.eye(12) + np.diag(np.full(11, 1.0), 1)
    solve = tg.ode.solver(lambda t, y, k: k * (A @ y), method, save_at=[0.0, 2.0], rtol=RTOL, atol=1e-12)
    y0 = np.sin(np.arange(12.0))
    value, slope = tg.jvp(lambda k: solve(y0, k).y[:, -1], (1.5,), (1.0,))
    expected = scipy.linalg.expm(3.0 * A) @ y0
    np.testing.assert_allclose(value, expected, atol=1e-7)
    np.testing.assert_allclose(slope, 2.0 * A @ expected, atol=1e-6)
    gradient = tg.grad(lambda y: solve(y, 1.5).y[0, -1])(y0)
    np.testing.assert_allclose(gradient, scipy.linalg.expm(3.0 * A)[0], atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("method", ["tsit5", "rodas5p"])
def test_the_order_is_five(method):
    """Fixed steps, by tolerances that accept each: half the step has an error 32 times smaller."""
    errors = []
    for count in (8, 16, 32):
        times = np.linspace(0.0, 2.0, count + 1)
        solve = tg.ode.solver(
            lambda t, y: y * np.cos(t) - y**2 * t, method, save_at=times, atol=1e9, first_step=9.0
        )
        fine = tg.ode.solver(lambda t, y: y * np.cos(t) - y**2 * t, save_at=times, rtol=1e-13, atol=1e-15)
        found = solve(np.array([1.0]))
        assert found.accepted == count + 1  # and one of length zero at the first time
        errors.append(abs(found.y[0, -1] - fine(np.array([1.0])).y[0, -1]))
    assert np.all(np.log2(np.array(errors[:-1]) / errors[1:]) > 4.6)


@pytest.mark.parametrize("method", ["tsit5", pytest.param("rodas5p", marks=pytest.mark.long)])
def test_times_at_which_the_slope_jumps(method):
    """y' is 1 before t = 1 and 5 from there on: derivatives by the times are slopes at these times."""
    solve = tg.ode.solver(lambda t, y: np.where(t < 1.0, 1.0, 5.0) * np.ones(1), method, rtol=1e-8)
    states = lambda times, t0=0.0: solve(np.zeros(1), save_at=times, t0=t0).y[0]
    by_end = tg.jacobian(lambda e: states(np.stack([e, 2.0])))(1.0)
    np.testing.assert_allclose(by_end, [5.0, 0.0], atol=1e-9)
    by_start = tg.grad(lambda t0: states(np.array([2.0]), t0)[0])
    np.testing.assert_allclose([by_start(0.0), by_start(1.0)], [-1.0, -5.0], rtol=1e-9)
    assert tg.grad(lambda e: states(np.stack([e]))[0])(2.0) == pytest.approx(5.0, rel=1e-9)
