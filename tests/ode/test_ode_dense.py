"""Dense output, accepted steps, the choice of the method, and trajectories in parts."""

import concurrent.futures

import numpy as np
import pytest
import scipy.integrate

import tapegrad as tg
from tapegrad import ode
from tapegrad.errors import ArgumentError, ConvergenceError, DataError, KernelError

TIMES = np.linspace(0.0, 5.0, 9)
START, RATES = np.array([5.0, 1.5]), np.array([1.0, 0.4, 0.2, 0.8])
SPAN = (0.0, 5.0)


def predator_prey(t, y, k):
    return np.stack([k[0] * y[0] - k[1] * y[0] * y[1], k[2] * y[0] * y[1] - k[3] * y[1]])


def reaction(t, y, k):
    a, b, c = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return np.stack([-a + b, a - b - c, c])


def dense(f=predator_prey, **settings):
    return ode.solver(f, **{"dense": True, "rtol": 1e-9, "atol": 1e-11, **settings})


def exact_states(times=TIMES, k=RATES):
    settings = {"args": (k,), "rtol": 1e-12, "atol": 1e-13}
    return scipy.integrate.solve_ivp(predator_prey, SPAN, START, "DOP853", times, **settings).y


# --- dense output and accepted steps ---


@pytest.mark.parametrize("method", ["auto", "rodas5p"])
def test_dense_output_is_as_exact_as_the_steps(method):
    found = dense(method=method)(START, RATES, t_span=SPAN)
    np.testing.assert_allclose(found.sol(TIMES), exact_states(), rtol=1e-7)
    np.testing.assert_array_equal(found.sol(found.t[:-1]), found.y[:, :-1])
    np.testing.assert_allclose(found.sol(SPAN[1]), found.y[:, -1], rtol=1e-12)
    assert found.y.shape == (2, len(found.t)) and len(found.t) == found.stats.accepted + 1
    assert repr(found.sol) == "<DenseSolution from 0 to 5>"


def test_saved_times_of_a_dense_solution_end_no_steps():
    found = dense()(START, RATES, save_at=np.linspace(0.0, 5.0, 501))
    assert found.stats.accepted == dense()(START, RATES, t_span=SPAN).stats.accepted < 100
    np.testing.assert_allclose(found.y[:, ::125], exact_states(found.t[::125]), rtol=1e-7)


@pytest.mark.long
def test_derivatives_of_dense_output():
    """By parameters and by time against a tight solution; by both ends of the span."""
    solve = dense()
    f = lambda k: solve(START, k, t_span=SPAN).sol(TIMES[1:6]).sum()
    tight = ode.solver(predator_prey, "tsit5", rtol=1e-12, atol=1e-13, save_at=TIMES[:6])
    exact = tg.grad(lambda k: tight(START, k).y[:, 1:].sum())(RATES)
    np.testing.assert_allclose(tg.grad(f)(RATES), exact, rtol=1e-6)
    np.testing.assert_allclose(tg.jvp(f, (RATES,), (RATES,))[1], exact @ RATES, rtol=1e-6)
    state = lambda t, a=0.0, b=5.0: solve(START, RATES, t_span=(a, b)).sol(t)[0]
    slope = lambda t: predator_prey(
        t, np.array([state(t), solve(START, RATES, t_span=SPAN).sol(t)[1]]), RATES
    )[0]
    assert tg.grad(state)(3.3) == pytest.approx(slope(3.3), rel=1e-6)
    by_start, by_end = tg.grad(state, (1, 2))(3.3, 0.0, 5.0)
    assert by_start == pytest.approx(-slope(3.3), rel=1e-6) and by_end == 0.0
    last = lambda a, b: solve(START, RATES, t_span=(a, b)).y[0, -1]
    np.testing.assert_allclose(tg.grad(last, (0, 1))(0.0, 5.0), [-slope(5.0), slope(5.0)], rtol=1e-6)


def test_dense_output_of_a_batch():
    """Each trajectory has times of its own; after its last step they are nan."""
    solve, scales = dense(), np.array([1.0, 0.6, 0.2])
    many = solve(START[:, None] * scales, RATES[:, None], t_span=SPAN)
    assert many.y.shape == (2, *many.t.shape) and many.sol(2.0).shape == (2, 3)
    for b, scale in enumerate(scales):
        one = solve(START * scale, RATES, t_span=SPAN)
        steps = len(one.t)
        np.testing.assert_array_equal(many.t[:steps, b], one.t)
        np.testing.assert_array_equal(many.y[:, :steps, b], one.y)
        assert np.isnan(many.t[steps:, b]).all() and np.isnan(many.y[:, steps:, b]).all()
        np.testing.assert_array_equal(many.sol(TIMES)[..., b], one.sol(TIMES))


@pytest.mark.long
def test_more_steps_than_the_first_room():
    found = dense(lambda t, y: [y[1], -400.0 * y[0]])(np.array([1.0, 0.0]), t_span=(0.0, 6.0))
    assert found.stats.accepted > 4 * 64
    np.testing.assert_allclose(found.sol([1.23, 6.0])[0], np.cos([24.6, 120.0]), atol=1e-6)
    with pytest.raises(ConvergenceError, match="max_steps=100"):
        dense(lambda t, y: [y[1], -400.0 * y[0]], max_steps=100)(np.array([1.0, 0.0]), t_span=(0.0, 6.0))


def test_dense_output_backwards_and_of_trees():
    solve = dense(lambda t, s: {"a": -s["b"], "b": s["a"]})
    found = solve({"a": np.array([1.0]), "b": np.array([0.0])}, t_span=(0.0, -2.0))
    assert found.t[0] == 0.0 and (np.diff(found.t) < 0).all()
    np.testing.assert_allclose(found.sol([-0.5, -2.0])["a"][0], np.cos([0.5, 2.0]), rtol=1e-7)
    np.testing.assert_allclose(found.sol(-0.5)["b"], -np.sin([0.5]), rtol=1e-7)


@pytest.mark.long
def test_dense_output_between_events():
    """A ball: the state after a bounce belongs to the time of it; after a terminal event there is none."""
    hit = lambda t, y: y[0]
    bounces = ode.Event(hit, direction=-1, change=lambda t, y: [0.0, -0.9 * y[1]])
    fall = lambda t, y: [y[1], -9.81]
    solve = dense(fall, events=bounces)
    height = lambda x: solve(np.stack([x, 0.0]), t_span=(0.0, 1.2)).sol(1.0)[0]

    def exact(x):
        first = np.sqrt(2 * x / 9.81)
        return 0.9 * 9.81 * first * (1.0 - first) - 0.5 * 9.81 * (1.0 - first) ** 2

    assert height(1.0) == pytest.approx(exact(1.0), rel=1e-9)
    assert tg.grad(height)(1.0) == pytest.approx(tg.grad(exact)(1.0), rel=1e-8)
    ended = dense(fall, events=ode.Event(hit, terminal=True))(np.array([1.0, 0.0]), t_span=(0.0, 1.2))
    assert ended.status == 1 and ended.t[-1] == pytest.approx(np.sqrt(2 / 9.81), rel=1e-12)
    np.testing.assert_allclose(ended.sol([0.4, 1.0])[0], [1 - 0.5 * 9.81 * 0.16, np.nan], rtol=1e-9)


@pytest.mark.long
def test_what_failed_is_nan_in_dense_output():
    solve = dense(lambda t, y: y * y, on_failure="nan")
    found = solve(np.array([[0.2, 1.0]]), t_span=(0.0, 1.5))
    np.testing.assert_array_equal(found.success, [True, False])
    np.testing.assert_allclose(found.sol([0.5, 1.4])[0], [[1 / 4.5, 2.0], [1 / 3.6, np.nan]], rtol=1e-7)
    with pytest.raises(ConvergenceError, match=r"sample 1 of 2 .*until t = 1"):
        dense(lambda t, y: y * y)(np.array([[0.2, 1.0]]), t_span=(0.0, 1.5))


@pytest.mark.long
def test_a_prepared_dense_solution():
    f = lambda k: dense(rtol=1e-6)(START, k, t_span=SPAN).sol(TIMES).sum()
    p = tg.prepare(f, RATES)
    for k in (RATES, 1.1 * RATES):
        np.testing.assert_allclose(p.grad(k), tg.grad(f)(k), rtol=1e-12)


# --- the method ---


def stiff_settings(method):
    return ode.solver(reaction, method, rtol=1e-6, atol=1e-10, save_at=[0.0, 0.4, 40.0])


STIFF_RATES = np.array([0.04, 1e4, 3e7])
MIXED = np.stack([STIFF_RATES, STIFF_RATES * [1, 1e-6, 1e-6], STIFF_RATES], 1)
FIRST = np.array([1.0, 0.0, 0.0])


@pytest.mark.long
@pytest.mark.smoke
def test_the_method_is_chosen_for_each_trajectory():
    """The stiff ones are those of Rodas5P, and the others those of Tsitouras, with their gradients."""
    auto, explicit, implicit = [stiff_settings(method) for method in ("auto", "tsit5", "rodas5p")]
    starts = FIRST[:, None] * np.ones(3)
    found, stiff = auto(starts, MIXED), implicit(starts, MIXED)
    np.testing.assert_array_equal(found.y[..., [0, 2]], stiff.y[..., [0, 2]])
    np.testing.assert_array_equal(found.y[..., 1], explicit(FIRST, MIXED[:, 1].copy()).y)
    np.testing.assert_array_equal(found.stats.jacobians > 0, [True, False, True])
    assert found.stats.jacobians[0] == stiff.stats.jacobians[0] == stiff.accepted[0] + stiff.rejected[0]
    loss = lambda solve: lambda K: (solve(starts, K).y[:, -1] ** 2).sum()
    gradient = tg.grad(loss(auto))(MIXED)
    np.testing.assert_array_equal(gradient[:, [0, 2]], tg.grad(loss(implicit))(MIXED)[:, [0, 2]])
    one = tg.grad(lambda k: (explicit(FIRST, k).y[:, -1] ** 2).sum())(MIXED[:, 1].copy())
    np.testing.assert_allclose(gradient[:, 1], one, rtol=1e-12)
    # where values are hidden both methods run, and each trajectory takes steps with its own
    last = lambda k: auto(FIRST, k).y[:, -1]
    np.testing.assert_array_equal(tg.vmap(last, in_axes=1, out_axes=1)(MIXED), found.y[:, -1])
    np.testing.assert_array_equal(tg.prepare(loss(auto), MIXED).grad(MIXED), gradient)


@pytest.mark.long
def test_dense_output_of_a_chosen_method():
    solve = ode.solver(reaction, rtol=1e-6, atol=1e-10, dense=True)
    found = solve(FIRST[:, None], MIXED, t_span=(0.0, 40.0))
    expected = stiff_settings("auto")(FIRST[:, None], MIXED).y
    np.testing.assert_allclose(found.sol([0.0, 0.4, 40.0]), expected, rtol=1e-4, atol=1e-10)
    np.testing.assert_array_equal(found.stats.jacobians > 0, [True, False, True])


@pytest.mark.long
def test_a_trajectory_of_too_many_steps_is_solved_by_the_other_method():
    """Robertson's equations where no fifteen steps in a row are at the bound of stability."""
    solve = ode.solver(reaction, rtol=1e-7, atol=1e-12, save_at=[0.0, 40.0], max_steps=600)
    found = solve(FIRST, STIFF_RATES * np.exp([0.2, -0.3, 0.3]))
    implicit = ode.solver(reaction, "rodas5p", rtol=1e-7, atol=1e-12, save_at=[0.0, 40.0], max_steps=600)
    np.testing.assert_array_equal(found.y, implicit(FIRST, STIFF_RATES * np.exp([0.2, -0.3, 0.3])).y)
    with pytest.raises(ConvergenceError, match="max_steps=20 "):
        ode.solver(reaction, save_at=[0.0, 40.0], max_steps=20)(FIRST, STIFF_RATES)


@pytest.mark.long
def test_equations_that_are_not_stiff_stay_explicit():
    """At any tolerance, also where steps are long."""
    for f, y0 in (
        (lambda t, y: [y[1], -y[0]], [1.0, 0.0]),
        (lambda t, y: -y, [1.0]),
        (lambda t, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]], [2.0, 0.0]),
        (lambda t, y: [10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]], [1.0, 1.0, 20.0]),
    ):  # fmt: skip
        for rtol in (1e-2, 1e-5, 1e-9):
            assert ode.solver(f, rtol=rtol, save_at=[0.0, 20.0])(np.array(y0)).stats.jacobians == 0


def test_in_a_kernel_function_the_method_is_explicit():
    solve = ode.solver(lambda t, y, k: -k * y, save_at=[0.0, 1.0])
    kernel = tg.kernels.map(lambda k: solve(np.array([1.0]), k).y[0, -1])
    np.testing.assert_allclose(kernel(np.array([0.5, 2.0])), np.exp([-0.5, -2.0]), rtol=1e-5)
    inside = dense(lambda t, y, k: -k * y)
    with pytest.raises((ArgumentError, KernelError), match="in a kernel function"):
        tg.kernels.map(lambda k: inside(np.array([1.0]), k, t_span=SPAN).y[0, -1])(np.array([0.5, 2.0]))


def test_compile_seconds_are_those_of_the_call():
    solve = ode.solver(predator_prey, save_at=TIMES)
    assert solve(START, RATES).stats.compile_seconds > 0.0
    assert solve(START, RATES).stats.compile_seconds == 0.0


# --- parts ---


@pytest.mark.long
def test_trajectories_in_parts():
    """Values and derivatives are those of one batch, bit for bit."""
    K = RATES[:, None] * np.linspace(0.9, 1.1, 1003)
    solve = ode.solver(predator_prey, save_at=[0.0, 1.0], rtol=1e-4)
    whole = lambda K, **given: (solve(START[:, None], K, **given).y[:, -1] ** 2).sum()
    parts = lambda K: whole(K, progress=True)
    np.testing.assert_array_equal(parts(K), whole(K))
    np.testing.assert_array_equal(tg.grad(parts)(K), tg.grad(whole)(K))
    np.testing.assert_array_equal(tg.hvp(parts, K, K), tg.hvp(whole, K, K))
    assert tg.jvp(parts, (K,), (K,))[1] == tg.jvp(whole, (K,), (K,))[1]
    found = stiff_settings("auto")(FIRST[:, None], MIXED, progress=True)
    np.testing.assert_array_equal(found.stats.jacobians > 0, [True, False, True])


@pytest.mark.long
def test_parts_on_workers_and_in_a_store(tmp_path):
    """The second run reads what the first one has stored, values and pullbacks."""
    K = RATES[:, None] * np.linspace(0.9, 1.1, 5)
    solve = ode.solver(predator_prey, save_at=[0.0, 1.0], rtol=1e-4)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        loss = lambda K: (solve(START[:, None], K, client=pool, store=tmp_path).y[:, -1] ** 2).sum()
        gradient = tg.grad(loss)(K)
        assert len(list(tmp_path.iterdir())) == 2
        np.testing.assert_array_equal(tg.grad(loss)(K), gradient)
        assert len(list(tmp_path.iterdir())) == 2
    np.testing.assert_array_equal(
        gradient, tg.grad(lambda K: (solve(START[:, None], K).y[:, -1] ** 2).sum())(K)
    )


# --- bad input ---


def test_bad_input():
    solve = dense()
    found = solve(START, RATES, t_span=SPAN)
    saved = ode.solver(predator_prey, save_at=TIMES)
    for call, error, words in [
        (lambda: found.sol(5.1), DataError, "between 0 and 5"),
        (lambda: found.sol([-0.1, 1.0]), DataError, "between 0 and 5"),
        (lambda: found.sol(np.nan), DataError, "between 0 and 5"),
        (lambda: found.sol(np.ones((2, 2))), DataError, "one axis"),
        (lambda: solve(START, RATES), ArgumentError, r"t_span=\(t0, t1\)"),
        (lambda: solve(START, RATES, t_span=SPAN, t0=0.0), ArgumentError, r"t_span=\(t0, t1\)"),
        (lambda: solve(START, RATES, t_span=(0.0, np.inf)), DataError, "finite"),
        (lambda: solve(START, RATES, save_at=[0.0, 3.0, 9.0], t_span=SPAN), DataError, "between 0 and 5"),
        (lambda: solve(START, RATES, t_span=SPAN, doses=([1.0], np.ones((2, 1)))), ArgumentError, "doses"),
        (lambda: saved(START, RATES, save_at=TIMES, t_span=SPAN), ArgumentError, "dense=True"),
        (lambda: saved(START, RATES, progress=True), ArgumentError, r"y0 \(n, B\)"),
        (lambda: saved(START[:, None], RATES[:, None], client=3), ArgumentError, "client is a int"),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            call()


# --- dense output under vmap ---


@pytest.mark.long
def test_dense_output_of_two_samples():
    solve = dense(method="tsit5")
    f = tg.value_and_grad(lambda k: solve(START, k, t_span=SPAN).sol(0.7 * k[0]).sum())
    ks = np.array([RATES, 1.3 * RATES])
    for found, each in zip(tg.vmap(f)(ks), zip(*map(f, ks), strict=True), strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, {"method": "rodas5p"}, {"events": lambda t, y, k: y[1] - 3.0}])
def test_dense_output_of_samples(settings):
    """Each sample has steps of its own, and times of its own: results and derivatives are those one by one."""
    solve, ks = dense(**settings), RATES * np.array([[1.0], [1.3], [0.4]])

    def states(k):
        found = solve(START, k, t_span=SPAN)
        times = np.stack([0.7 * k[0], k[1], 4.9])
        ends = [z.t[0] for z in found.events] + [found.y[0, 5], found.t[7]]
        return np.concatenate([found.sol(times).reshape(-1), found.sol(k[3]), np.stack(ends)])

    for f in (states, tg.jacobian(states), tg.jacobian(states, mode="forward")):
        np.testing.assert_allclose(tg.vmap(f)(ks), [f(k) for k in ks], rtol=1e-12, atol=1e-14)
    both = tg.vmap(tg.vmap(states))(np.stack([ks, ks[::-1]]))
    np.testing.assert_allclose(both[1], tg.vmap(states)(ks[::-1]), rtol=1e-14)


@pytest.mark.long
def test_dense_output_of_samples_that_fall_fail_and_are_stiff():
    """Backwards in time; a sample that blows up; many steps; Rodas5P for one sample only."""
    back = lambda k: dense()(START, k, save_at=[5.0, 2.0, 0.0]).y[0]
    ks = RATES * np.array([[1.0], [0.9]])
    np.testing.assert_allclose(tg.vmap(back)(ks), [back(k) for k in ks], rtol=1e-14)
    blows = dense(lambda t, y: y * y, on_failure="nan")
    found = tg.vmap(lambda y: blows(y, t_span=(0.0, 1.5)).sol(np.array([0.4, 1.4])))(np.array([[0.5], [1.0]]))
    exact = 1 / (1 / np.array([[0.5], [1.0]]) - [0.4, 1.4])
    np.testing.assert_allclose(found[:, 0], np.where([[True, True], [True, False]], exact, np.nan), rtol=1e-7)
    stiff = dense(reaction, rtol=1e-6, atol=1e-10)
    of = lambda k: stiff(np.array([1.0, 0.0, 0.0]), k, t_span=(0.0, 40.0)).sol(np.array([1.0, 33.0]))
    ks = np.array([[0.04, 1e4, 3e7], [0.04, 1.0, 3.0]])
    np.testing.assert_allclose(tg.vmap(of)(ks), [of(k) for k in ks], rtol=1e-10)


def test_times_that_differ_between_samples():
    """Under vmap over the times only: the steps are plain arrays."""
    solve, t = ode.solver(lambda t, y, k: -k * y, "tsit5", rtol=1e-9, dense=True), np.array([0.0, 0.7, 2.0])
    sol = solve(np.ones((1, 2)), np.array([0.5, 1.0]), t_span=(0.0, 2.0)).sol
    exact = np.exp(-t[:, None] * [0.5, 1.0])
    np.testing.assert_allclose(tg.vmap(sol)(t)[:, 0], exact, rtol=1e-8)
    np.testing.assert_allclose(tg.vmap(tg.grad(lambda t: sol(t).sum()))(t), -exact @ [0.5, 1.0], rtol=1e-8)
    with tg.testing.host_cupy() as cp:
        sol = solve(cp.ones((1, 2)), cp.array([0.5, 1.0]), t_span=(0.0, 2.0)).sol
        np.testing.assert_allclose(sol(t).get()[0], exact, rtol=1e-8)
