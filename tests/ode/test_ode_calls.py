"""Calls of tapegrad.ode: arguments, batches, transforms, failures, errors."""

import numpy as np
import pytest
from _cuda_host import array_library  # noqa: F401

import tapegrad as tg
from tapegrad import ode
from tapegrad.errors import (
    ArgumentError,
    ConvergenceError,
    DataError,
    DroppedDerivativeError,
    KernelError,
    ReplayWarning,
    RouteError,
    ShapeError,
    TapegradError,
)

TIMES = np.array([0.0, 1.0, 2.0])
Y0, RATES = np.array([1.0, 0.5]), np.array([0.8, 0.3])


def growth(t, y, k):
    return k * y * (1 - y / (1 + t))


def solver(f=growth, **settings):
    return ode.solver(f, **{"save_at": TIMES, "rtol": 1e-9, "atol": 1e-11, **settings})


def last(k, y0=Y0, **settings):
    return (solver(**settings)(y0, k).y[:, -1] ** 2).sum()


def differences(g, x, v, h=1e-4):
    return (8 * (g(x + h * v) - g(x - h * v)) - (g(x + 2 * h * v) - g(x - 2 * h * v))) / (12 * h)


# --- arguments ---


@pytest.mark.smoke
def test_a_batch_is_its_trajectories():
    solve, rng = solver(rtol=1e-6, atol=1e-8), np.random.default_rng(0)
    Y, K = Y0[:, None] * rng.uniform(0.5, 2, 13), RATES[:, None] * rng.uniform(0.5, 2, 13)
    many = solve(Y, K)
    assert many.y.shape == (2, 3, 13) and many.success.all() and many.success.shape == (13,)
    for b in range(13):
        one = solve(Y[:, b].copy(), K[:, b].copy())
        assert one.y.shape == (2, 3) and one.success
        np.testing.assert_allclose(many.y[..., b], one.y, rtol=1e-13)
        assert (one.accepted, one.rejected) == (many.accepted[b], many.rejected[b])


def test_the_first_column_is_the_start():
    found = solver()(Y0, RATES)
    np.testing.assert_array_equal(found.y[:, 0], Y0)
    np.testing.assert_array_equal(found.t, TIMES)
    assert repr(found) == f"<Solution y (2, 3): {found.accepted:.0f} steps, {found.rejected:.0f} rejected>"


def test_forms_of_the_right_hand_side():
    def filling(dy, t, y, k):
        for i in range(2):
            dy[i] = k[i] * y[i] * (1 - y[i] / (1 + t))

    def separate(t, y, a, b):
        return [a * y[0] * (1 - y[0] / (1 + t)), b * y[1] * (1 - y[1] / (1 + t))]

    def named(t, y, tree):
        return growth(t, y, np.stack([tree["a"], tree["b"][0]]) * tree["n"])

    expected = solver()(Y0, RATES).y
    np.testing.assert_array_equal(solver(filling)(Y0, RATES).y, expected)
    np.testing.assert_array_equal(solver(separate)(Y0, *RATES).y, expected)
    tree = {"a": 0.8, "b": np.array([0.3]), "n": 1}
    np.testing.assert_array_equal(solver(named)(Y0, tree).y, expected)
    slope = tg.grad(lambda x: solver(named)(Y0, {**tree, "b": x}).y[1, -1])(np.array([0.3]))
    np.testing.assert_allclose(slope, tg.grad(lambda k: solver()(Y0, k).y[1, -1])(RATES)[1:], rtol=1e-12)


@pytest.mark.long
def test_right_hand_sides_without_arguments_or_without_the_state():
    np.testing.assert_allclose(solver(lambda t, y: -y)(Y0).y[:, -1], Y0 * np.exp(-2), rtol=1e-8)
    np.testing.assert_allclose(solver(lambda t, y: [1.0, 2 * t])(Y0).y[:, -1], Y0 + [2, 4], rtol=1e-12)
    np.testing.assert_allclose(
        solver(lambda t, y: [1.0, 2 * t], method="rodas5p")(Y0).y[:, -1], Y0 + [2, 4], rtol=1e-12
    )


def test_numbers_are_shared_and_arrays_have_the_samples_last():
    solve = solver(lambda t, y, k, c: -c * k * y)
    y = solve(np.ones((1, 3)), np.array([1.0, 2.0, 3.0]), 0.5).y[0, -1]
    np.testing.assert_allclose(y, np.exp(-np.array([1.0, 2.0, 3.0])), rtol=1e-7)
    both = solver(lambda t, y, k: -k[0] * k[1] * y)
    np.testing.assert_allclose(
        both(np.ones((1, 3)), np.array([1.0, 0.5])[:, None]).y[0, -1], np.exp(-1), rtol=1e-7
    )
    with pytest.raises(ShapeError, match=r"theta\[..., None\]"):
        both(np.ones((1, 3)), np.array([1.0, 0.5]))


def test_a_tolerance_for_each_state():
    """A component of size 1e-8 beside one of size 1."""
    y0, f = np.array([1.0, 1e-8]), lambda t, y: np.stack([-y[0], y[1] * np.cos(3 * t)])
    exact = y0 * np.exp([-2.0, np.sin(6.0) / 3])
    error = lambda atol: np.abs(solver(f, rtol=1e-9, atol=atol)(y0).y[:, -1] / exact - 1)
    assert error(np.array([1e-9, 1e-17])).max() < 1e-7
    with pytest.raises(ShapeError, match=r"atol has shape \(3,\)"):
        solver(f, atol=np.ones(3))(y0)


def test_the_state_that_f_writes_is_its_own():
    def doubled(t, y, k):
        y *= 2.0
        return k * y

    np.testing.assert_allclose(solver(doubled)(Y0, RATES).y[:, -1], Y0 * np.exp(4 * RATES), rtol=1e-7)


def test_captured_numbers_are_read_anew():
    k = np.array([1.0])
    solve = solver(lambda t, y: -k * y)
    assert abs(solve(np.ones(1)).y[0, -1] - np.exp(-2)) < 1e-8
    k[0] = 2.0
    assert abs(solve(np.ones(1)).y[0, -1] - np.exp(-4)) < 1e-8


def test_backwards_in_time_and_from_another_time():
    solve = solver()
    y = solve(Y0, RATES).y
    np.testing.assert_allclose(solve(y[:, -1].copy(), RATES, save_at=TIMES[::-1]).y[:, ::-1], y, rtol=1e-7)
    np.testing.assert_allclose(solve(Y0, RATES, save_at=[2.0], t0=0.0).y[:, 0], y[:, -1], rtol=1e-7)
    assert solve(Y0, RATES, save_at=[1.0, 1.0, 1.0]).y.std(1).max() == 0.0


# --- derivatives ---


@pytest.mark.long
@pytest.mark.parametrize("method", ["tsit5", pytest.param("rodas5p", marks=pytest.mark.long)])
def test_first_and_second_derivatives(method):
    f = lambda k: last(k, method=method)
    g, v = tg.grad(f), np.array([0.6, -1.1])
    np.testing.assert_allclose(g(RATES) @ v, differences(f, RATES, v), rtol=1e-7)
    np.testing.assert_allclose(tg.jvp(f, (RATES,), (v,))[1], g(RATES) @ v, rtol=1e-10)
    expected = differences(g, RATES, v)
    np.testing.assert_allclose(tg.hvp(f, RATES, v), expected, rtol=1e-6)
    np.testing.assert_allclose(tg.jvp(g, (RATES,), (v,))[1], expected, rtol=1e-6)
    np.testing.assert_allclose(tg.hessian(f)(RATES) @ v, expected, rtol=1e-6)


DECAY = ode.solver(lambda t, y, k, c: -c * k * y, "tsit5", rtol=1e-10, atol=1e-12, save_at=[0.0, 0.4, 1.0])


def decay_by(k):
    return DECAY(Y0, k, np.array(2.0)).y


def test_samples_of_derivatives_of_one_trajectory():
    """y' = -2 k y, under vmap outside and inside of gradients, tangents and pullbacks; third derivatives."""
    K, ts = np.array([RATES, 1.5 * RATES]), np.array([0.0, 0.4, 1.0])
    W = np.random.default_rng(0).normal(size=(2, 2, 3))
    y = Y0[:, None] * np.exp(-2 * K[:, :, None] * ts)
    slopes = -2 * ts * y
    loss = lambda k, w: (w * decay_by(k)).sum()
    expected = (W * slopes).sum(2)
    np.testing.assert_allclose(tg.vmap(tg.grad(loss))(K, W), expected, rtol=1e-8)
    np.testing.assert_allclose(tg.grad(lambda K: tg.vmap(loss)(K, W).sum())(K), expected, rtol=1e-8)
    moved = tg.vmap(lambda k, v: tg.jvp(decay_by, (k,), (v,))[1])(K, K)
    np.testing.assert_allclose(moved, K[:, :, None] * slopes, rtol=1e-8)
    pulled = tg.vmap(tg.vjp(decay_by, RATES)[1])(W)
    np.testing.assert_allclose(pulled, (W * slopes[0]).sum(2), rtol=1e-8)
    third = tg.grad(lambda k: tg.hvp(lambda k: loss(k, W[0]), k, np.ones(2)).sum())(RATES)
    np.testing.assert_allclose(third, (W[0] * (-2 * ts) ** 3 * y[0]).sum(1), rtol=1e-6)


def test_a_repeated_solve_has_its_own_steps():
    """Later solves, with other numbers and other times, leave earlier pullbacks alone."""
    W, kept = np.ones((2, 3)), []
    for k in RATES, 2 * RATES, 3 * RATES, -RATES:
        for _ in range(2):
            kept.append((k, tg.vjp(decay_by, k)[1]))
            DECAY(Y0, k, np.array(2.0), save_at=np.array([0.0, 0.1]))
            tg.grad(lambda k: DECAY(Y0, k, np.array(2.0), save_at=np.array([0.0, 0.1])).y.sum())(k)
    for k, pullback in kept[::-1] + kept:
        ts = np.array([0.0, 0.4, 1.0])
        expected = (-2 * ts * Y0[:, None] * np.exp(-2 * k[:, None] * ts)).sum(1)
        np.testing.assert_allclose(pullback(W), expected, rtol=1e-7)
        moved = tg.grad(lambda t, k=k: DECAY(Y0, k, np.array(2.0), save_at=np.stack([0.0, t])).y[0, -1])(0.7)
        np.testing.assert_allclose(moved, -2 * k[0] * Y0[0] * np.exp(-1.4 * k[0]), rtol=1e-7)


@pytest.mark.parametrize("method", ["tsit5", "rodas5p"])
def test_derivatives_by_times(method):
    """y' = -t y: the times of the start, between, of an interval without length, and of the end."""
    solve = ode.solver(lambda t, y: -t * y, method, rtol=1e-9, atol=1e-12)
    exact = lambda a, b: np.exp((a**2 - b**2) / 2)
    end = lambda ts: solve(np.ones(1), save_at=ts[1:], t0=ts[0]).y[0]
    ts = np.array([0.5, 0.5, 0.9, 1.6])
    J = tg.jacobian(end)(ts)
    expected = np.zeros((3, 4))
    for i, b in enumerate(ts[1:]):
        expected[i, 0], expected[i, i + 1] = 0.5 * exact(0.5, b), -b * exact(0.5, b)
    np.testing.assert_allclose(J, expected, atol=1e-7)
    H = tg.hessian(lambda a, b: solve(np.ones(1), save_at=[b], t0=a).y[0, 0], (0, 1))(0.5, 1.6)
    value = exact(0.5, 1.6)
    np.testing.assert_allclose(H, value * np.array([[1 + 0.25, -0.8], [-0.8, 1.6**2 - 1]]), atol=1e-6)


@pytest.mark.filterwarnings("error::tapegrad.errors.ReplayWarning")
def test_samples_and_recordings_have_times_of_their_own():
    solve = ode.solver(lambda t, y, k: -k * y, "tsit5", rtol=1e-10, atol=1e-12)
    f = lambda x: solve(x[:1], x[1], t0=x[2], save_at=x[3:5], doses=(x[5:6], x[6:][None])).y[0]

    def exact(x):
        y, k, a, b, c, s, d = x
        return np.array([y * np.exp(-k * (b - a)), y * np.exp(-k * (c - a)) + d * np.exp(-k * (c - s))])

    x = np.array([2.0, 0.7, 0.2, 0.8, 1.4, 1.0, 0.5])
    slopes = lambda x: np.stack([exact(x + 1e-20j * e).imag for e in np.eye(7)], 1) * 1e20
    X = x * np.linspace(0.9, 1.1, 5)[:, None]
    np.testing.assert_allclose(tg.vmap(tg.jacobian(f))(X), [slopes(x) for x in X], rtol=1e-7, atol=1e-9)
    prepared = tg.prepare(f, x)
    for x in X:
        np.testing.assert_allclose(prepared.jacobian(x), slopes(x), rtol=1e-7, atol=1e-9)
    times = lambda x: solve(x[:1], x[1], t0=x[2], save_at=x[3:5])
    np.testing.assert_array_equal(tg.vmap(lambda x: times(x).t)(X), X[:, 3:5])
    X[2, 4] = 0.0
    with pytest.raises(tg.errors.BatchError, match="differs between samples"):
        tg.vmap(lambda x: times(x).y)(X)
    with pytest.raises(DataError, match="rise or fall"):
        tg.prepare(lambda x: times(x).y, x)(X[2])


@pytest.mark.long
def test_the_gradient_of_a_batch_and_shared_arguments():
    Y = Y0[:, None] * np.array([0.5, 1.0, 2.0])
    g = tg.grad(lambda k: last(k[:, None] * np.ones(3), Y))(RATES)
    np.testing.assert_allclose(g, sum(tg.grad(last)(RATES, y) for y in Y.T.copy()), rtol=1e-8)
    shared = tg.grad(lambda k: last(k[:, None], Y))(RATES)
    np.testing.assert_allclose(shared, g, rtol=1e-12)


@pytest.mark.long
def test_vmap_and_prepare():
    K = np.stack([RATES, 1.3 * RATES, 0.7 * RATES])
    each = np.array([last(k) for k in K])
    np.testing.assert_allclose(tg.vmap(last)(K), each, rtol=1e-12)
    np.testing.assert_allclose(tg.vmap(tg.grad(last))(K), [tg.grad(last)(k) for k in K], rtol=1e-10)
    p = tg.prepare(last, RATES)
    for k in K:
        np.testing.assert_allclose(p.value(k), last(k), rtol=1e-13)
        np.testing.assert_allclose(p.grad(k), tg.grad(last)(k), rtol=1e-12)
        np.testing.assert_allclose(p.hvp(k, k), tg.hvp(last, k, k), rtol=1e-10)


def test_sizes_of_steps_have_no_derivative():
    """y' = k: each step is exact, so any derivative of a size would show in the second digit or not at
    all."""
    solve = solver(lambda t, y, k: k + 0.0 * y, first_step=0.3, rtol=1e-3)
    assert tg.grad(lambda k: solve(np.zeros(1), k).y[0, -1])(1.7) == pytest.approx(2.0, abs=1e-15)
    assert tg.grad(tg.grad(lambda k: solve(np.zeros(1), k).y[0, -1]))(1.7) == 0.0


# --- failures ---

BLOWS = np.array([[0.1, 1.0, 0.2, 2.0]])  # y' = y^2 ends at t = 1 / y0


def test_a_failure_names_sample_and_time():
    with pytest.raises(
        ConvergenceError, match=r"sample 1 of 4 \(2 failed\).*until t = 1(\.0*)?: the step size fell"
    ):
        solver(lambda t, y: y * y, rtol=1e-6)(BLOWS)
    with pytest.raises(ConvergenceError, match=r"until t = 0\.61370.*not finite"):
        solver(lambda t, y: -1 - np.sqrt(y))(np.ones(1))
    with pytest.raises(ConvergenceError, match=r"max_steps=50 .*rodas5p"):
        solver(lambda t, y: -1e6 * (y - np.cos(t)), method="tsit5", max_steps=50)(np.ones(1))
    with pytest.raises(ConvergenceError, match=r"until t = 0: f is not finite"):
        solver(lambda t, y: -y)(np.array([np.nan]))


def test_samples_of_vmap_that_cannot_be_solved_raise():
    solve = tg.ode.solver(lambda t, y, k: k * y * y, save_at=[0.0, 1.0], rtol=1e-6)
    last = lambda k: solve(np.ones(1), k).y[0, -1]
    for ks in ([0.1, 0.5, 1.5], [1.5, 1.6, 1.7]):
        for f in (last, tg.grad(last)):
            with pytest.raises(ConvergenceError, match="for some samples of tg.vmap"):
                tg.vmap(f)(np.array(ks))
    found = tg.vmap(tg.grad(last))(np.array([0.1, 0.5]))
    np.testing.assert_allclose(found, 1 / (1 - np.array([0.1, 0.5])) ** 2, rtol=1e-5)


def test_explicit_steps_of_many_states_are_prepared():
    """Where they turn out to be stiff, the call is run as it is."""
    y0 = np.sin(np.arange(150.0))
    solve = solver(lambda t, y, rate: -rate * y, rtol=1e-6, atol=1e-8)
    last = lambda rate: solve(y0, rate).y[:, -1]
    prepared = tg.prepare(last, 1.0)
    np.testing.assert_array_equal(prepared(1.5), last(1.5))
    stiff = last(1e6)
    with pytest.warns(ReplayWarning, match="is run as it is"):
        for _ in range(24):  # another recording waits until as many calls have paid for it
            np.testing.assert_array_equal(prepared(1e6), stiff)


def test_other_samples_survive_a_failure():
    solve = solver(lambda t, y: y * y, on_failure="nan")
    found = solve(BLOWS)
    np.testing.assert_array_equal(found.success, [True, False, True, False])
    np.testing.assert_allclose(found.y[0, :, 0], 1 / (10 - TIMES), rtol=1e-7)
    np.testing.assert_allclose(found.y[0, :, 3], [2.0, np.nan, np.nan])
    g = tg.grad(lambda y: np.nansum(solve(y).y[0, -1]))(BLOWS)
    np.testing.assert_allclose(g, [[1 / (1 - 0.2) ** 2, 0, 1 / (1 - 0.4) ** 2, 0]], rtol=1e-6)


def test_bad_input():
    rng = np.random.default_rng(0)
    solve = solver()
    for make, error, words in [
        (
            lambda: solver(lambda t, y, k: y[0])(Y0, RATES),
            ShapeError,
            r"returned shape \(\) for a state of shape \(2,\)",
        ),
        (lambda: solver(lambda t, y, k: y[:1])(Y0, RATES), ShapeError, r"returned shape \(1,\)"),
        (lambda: solver(lambda t, y: y + rng.normal())(Y0), KernelError, "random numbers"),
        (lambda: solver(lambda t, y: y if len(range(y[0])) > 0 else -y)(Y0), KernelError, r"np\.where"),
        (lambda: solve(Y0), ArgumentError, "lacks an argument"),
        (lambda: solve(Y0, RATES, RATES), ArgumentError, r"neither \(t, y\) nor \(dy, t, y\)"),
        (lambda: solve(Y0 * 1j, RATES), ArgumentError, "complex128"),
        (lambda: solve(np.ones((2, 1, 1)), RATES), ShapeError, r"\(n, B\)"),
        (lambda: solve(Y0, RATES, save_at=[0.0, 2.0, 1.0]), DataError, "rise or fall"),
        (lambda: solve(Y0, RATES, save_at=[0.0, 1.0], t0=0.5), DataError, "rise or fall"),
        (lambda: solve(Y0, RATES, save_at=[0.0, np.inf]), DataError, "finite"),
        (lambda: solve(Y0, RATES, save_at=[]), DataError, "rise or fall"),
        (lambda: ode.solver(growth)(Y0, RATES), ArgumentError, "save_at="),
        (lambda: ode.solver(growth, "rk4"), ArgumentError, r"\['auto', 'tsit5', 'rodas5p'\]"),
        (lambda: ode.solver(growth, rtol=0), ArgumentError, "rtol"),
        (lambda: ode.solver(growth, on_failure="skip"), ArgumentError, "on_failure"),
    ]:
        with pytest.raises(error, match=words):
            make()
    np.testing.assert_array_equal(solve(Y0, RATES).y[:, 0], Y0)  # nothing was harmed


def test_a_derivative_of_a_captured_number_is_not_lost_in_silence():
    with pytest.raises(TapegradError):
        tg.grad(lambda k: solver(lambda t, y: -k * y)(np.ones(1)).y[0, -1])(1.5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("states", "names_it"),
    [(1, "captures an array"), (1001, "captured array `scale`"), (1, "other contents")],
)
def test_a_captured_solver_sees_no_write_in_silence(states, names_it):
    """The shadow of the function waits from call to call; a call that writes what f reads raises."""
    scale, offset, writes = np.ones(1), 0.0, False
    solve = ode.solver(lambda t, y, k: -k * scale[0] * y + offset, "tsit5", save_at=[0.0, 1.0])

    def loss(k):
        nonlocal offset
        if writes and "contents" in names_it:
            offset = k
        elif writes:
            scale[0] = k
        return solve(np.ones(states), k).y[0, -1]

    gradient = tg.grad(loss)
    for _ in range(5):
        np.testing.assert_allclose(gradient(2.0), -np.exp(-2.0), rtol=1e-5)
    writes = True
    with pytest.raises((DroppedDerivativeError, RouteError), match=names_it):
        gradient(2.0)
    writes, scale[0] = False, 3.0
    np.testing.assert_allclose(gradient(2.0), -3.0 * np.exp(-6.0), rtol=1e-5)


def test_no_samples():
    assert solver()(np.ones((2, 0)), np.ones((2, 0))).y.shape == (2, 3, 0)


# --- doses ---


def decayed(t, doses, rate):
    """y' = -rate y from 0: the sum of what is left of each dose given before t."""
    times, amounts = doses
    return sum(
        (np.exp(-rate * (t - s)) * a if s < t else 0.0 * a) for s, a in zip(times, amounts.T, strict=True)
    )


def test_doses():
    """One at the start, one at a saved time (saved before it), one between, two at once, one after the
    end."""
    times, amounts = np.array([0.0, 1.0, 1.5, 1.5, 3.0]), np.arange(1.0, 11.0).reshape(2, 5)
    solve = ode.solver(lambda t, y, k: -k * y, save_at=[0.0, 1.0, 1.6, 2.5], rtol=1e-10, atol=1e-12)
    found = solve(np.zeros(2), 0.7, doses=(times, amounts))
    assert found.y.shape == (2, 4) and found.success
    np.testing.assert_allclose(
        found.y.T, [decayed(t, (times, amounts), 0.7) for t in found.t], rtol=1e-8, atol=1e-12
    )
    backwards = solve(found.y[:, -1], 0.7, save_at=[2.5, 1.6], doses=(np.array([1.9]), np.ones((2, 1))))
    np.testing.assert_allclose(
        backwards.y[:, 1], found.y[:, -1] * np.exp(0.7 * 0.9) + np.exp(0.7 * 0.3), rtol=1e-8
    )


def test_derivatives_by_doses():
    times, amounts = np.array([0.0, 1.0, 1.5]), np.array([[2.0, 1.0, 3.0]])
    solve = ode.solver(lambda t, y, k: -k * y, save_at=[0.0, 2.0], rtol=1e-10, atol=1e-12)
    end = lambda s, a, k: solve(np.zeros(1), k, doses=(s, a)).y[0, 1]
    by_time, by_amount, by_rate = tg.grad(end, (0, 1, 2))(times, amounts, 0.7)
    left = np.exp(-0.7 * (2.0 - times))
    np.testing.assert_allclose(by_amount, left[None], rtol=1e-8)
    np.testing.assert_allclose(by_time[1:], (0.7 * amounts[0] * left)[1:], rtol=1e-7)
    np.testing.assert_allclose(by_rate, -((2.0 - times) * amounts[0] * left).sum(), rtol=1e-7)


def test_doses_of_a_batch():
    solve = ode.solver(lambda t, y, k: -k * y, save_at=[0.0, 2.0], rtol=1e-10, atol=1e-12)
    amounts, rates = np.arange(6.0).reshape(1, 2, 3), np.array([0.3, 0.7, 1.1])
    y = solve(np.zeros((1, 3)), rates, doses=([0.5, 1.0], amounts)).y[0, -1]
    np.testing.assert_allclose(
        y, amounts[0, 0] * np.exp(-1.5 * rates) + amounts[0, 1] * np.exp(-rates), rtol=1e-7
    )
    with pytest.raises(ShapeError, match=r"\(1, 2\), or \(1, 2, B\)"):
        solve(np.zeros(1), 0.7, doses=([0.5, 1.0], np.ones(2)))
    with pytest.raises(DataError, match="before the time of y0"):
        solve(np.zeros(1), 0.7, doses=([-0.5], np.ones((1, 1))))


# --- devices, and solvers made inside a transform ---


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["tsit5", "rodas5p"])
def test_arrays_of_a_device(cupy, method):
    """The kernel as CUDA C; its numbers are those of the processor."""
    solve = solver(method=method, rtol=1e-6)
    Y, K = Y0[:, None] * np.array([0.5, 1.0, 2.0]), RATES[:, None] * np.ones(3)
    found = solve(cupy.asarray(Y), cupy.asarray(K))
    np.testing.assert_allclose(found.y.get(), solve(Y, K).y, rtol=1e-12)
    g = tg.grad(lambda k: (solve(cupy.asarray(Y), k).y[:, -1] ** 2).sum())(cupy.asarray(K))
    np.testing.assert_allclose(g.get(), tg.grad(lambda k: (solve(Y, k).y[:, -1] ** 2).sum())(K), rtol=1e-12)


def test_a_solver_made_inside_a_transform():
    A = np.array([[-1.0, 0.5], [0.2, -0.7]])

    def f(t, y, k):
        return np.array([k * (A[0] @ y), np.linalg.norm(A[1]) * y[1]])

    def inside(k):
        return solver(f)(Y0, k).y[0, -1]

    outside = solver(f)
    assert tg.grad(inside)(0.7) == tg.grad(lambda k: outside(Y0, k).y[0, -1])(0.7)


@pytest.mark.parametrize(("method", "most"), [("tsit5", 16), ("rodas5p", 24)])
def test_the_right_hand_side_is_traced_a_few_times(method, most):
    """Twice for each stage, and for the slope at the start: the loops of a solver are traced once."""
    calls = []

    def f(t, y, k):
        calls.append(1)
        return -k * y

    solve = ode.solver(f, method, save_at=TIMES)
    gradient = tg.grad(lambda k: solve(Y0, k).y[:, -1].sum())(RATES)
    np.testing.assert_allclose(gradient, -2 * Y0 * np.exp(-2 * RATES), rtol=1e-5)
    assert len(calls) <= most


@pytest.mark.parametrize("method", ["tsit5", "rodas5p"])
@pytest.mark.parametrize(
    "seen", [lambda n: n == 1, lambda n: n, lambda n: n % 2], ids=["first", "count", "parity"]
)
def test_a_right_hand_side_that_counts_its_calls_is_refused(method, seen):
    calls = []

    def f(t, y, k):
        calls.append(1)
        return -k * y + float(seen(len(calls)))

    with pytest.raises(KernelError, match="f .* gives something else when it runs again"):
        ode.solver(f, method, save_at=TIMES)(Y0, RATES)
