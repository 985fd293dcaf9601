"""Systems of many states, which run on arrays: heat equations against their eigenmodes, and SciPy."""

import tracemalloc

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.sparse

import tapegrad as tg
from tapegrad import ode
from tapegrad.errors import ArgumentError, ConvergenceError, GuardError
from tapegrad.kernels.trace import loops

N, MODE, RATE, END = 150, 2, 0.7, 0.1
X = np.arange(1, N + 1) / (N + 1)
START = np.sin(MODE * np.pi * X)
DECAY = -4 * (N + 1) ** 2 * np.sin(MODE * np.pi / (2 * N + 2)) ** 2  # the eigenvalue of this mode


def heat(t, u, a):
    du = -2 * u
    du[1:] += u[:-1]
    du[:-1] += u[1:]
    return a * (N + 1) ** 2 * du


def solver(f=heat, method="rodas5p", **settings):
    return ode.solver(f, method, **{"save_at": [0.0, END / 2, END], "rtol": 1e-6, "atol": 1e-8} | settings)


def amount(a, end=END):
    """The product of the last state with the start."""
    return START @ START * np.exp(DECAY * a * end)


@pytest.mark.long
@pytest.mark.parametrize("method", ["rodas5p", "auto"])
def test_an_eigenmode_decays(method):
    solve = solver(method=method)
    found = solve(START, RATE)
    for k, t in enumerate(found.t):
        np.testing.assert_allclose(found.y[:, k], START * np.exp(DECAY * RATE * t), atol=1e-8)
    assert found.stats.jacobians == found.accepted < 100
    f, slope = (lambda a: START @ solve(START, a).y[:, -1]), DECAY * END
    np.testing.assert_allclose(tg.grad(f)(RATE), slope * amount(RATE), rtol=1e-6)
    np.testing.assert_allclose(tg.jvp(f, (RATE,), (1.0,))[1], slope * amount(RATE), rtol=1e-6)
    if method == "rodas5p":
        np.testing.assert_allclose(tg.grad(tg.grad(f))(RATE), slope**2 * amount(RATE), rtol=1e-6)


def test_derivatives_by_start_and_times():
    solve = solver()
    by_start = tg.grad(lambda u: START @ solve(u, RATE).y[:, -1])(START)
    np.testing.assert_allclose(by_start, START * np.exp(DECAY * RATE * END), atol=1e-8)
    state = lambda t0, t1: START @ solve(START, RATE, t0=t0, save_at=[t1]).y[:, 0]
    slope = DECAY * RATE * amount(RATE)
    np.testing.assert_allclose(tg.grad(state, (0, 1))(0.0, END), [-slope, slope], rtol=1e-6)


@pytest.mark.long
def test_a_large_system_has_the_derivatives_of_its_small_parts():
    """Robertson's reaction, 45 times with other rates: one system of 135 states, or 45 trajectories."""
    rates = np.array([0.04, 1e4, 3e7])[:, None] * np.exp(0.3 * np.random.default_rng(0).normal(size=(3, 45)))

    def reactions(t, y, k):
        x, y, z = y
        a, b, c = k[0] * x, k[1] * y * z, k[2] * y * y
        return np.stack([-a + b, a - b - c, c])

    settings = {"save_at": [0.0, 0.4, 40.0], "rtol": 1e-8, "atol": 1e-12}
    large = solver(lambda t, y, k: reactions(t, y.reshape(3, 45), k).reshape(-1), **settings)
    small, start = solver(reactions, **settings), np.zeros((3, 45))
    start[0] = 1.0
    of_large = tg.value_and_grad(lambda k: (large(start.reshape(-1), k).y[:, -1] ** 2).sum())(rates)
    of_small = tg.value_and_grad(lambda k: (small(start, k).y[:, -1] ** 2).sum())(rates)
    np.testing.assert_allclose(of_large[0], of_small[0], rtol=1e-7)
    np.testing.assert_allclose(of_large[1] * rates, of_small[1] * rates, rtol=1e-6, atol=1e-7)


@pytest.mark.long
def test_a_system_that_is_not_sparse():
    """Each state depends on all: y' = A y, by the matrix exponential."""
    A = np.random.default_rng(0).normal(size=(140, 140)) / 12 - 2 * np.eye(140)
    solve = solver(lambda t, y, s: s * (A @ y), save_at=[0.0, 1.0])
    exact = scipy.linalg.expm(A) @ np.ones(140)
    np.testing.assert_allclose(solve(np.ones(140), 1.0).y[:, -1], exact, rtol=1e-6, atol=1e-7)
    slope = tg.grad(lambda s: solve(np.ones(140), s).y[:, -1].sum())(1.0)
    np.testing.assert_allclose(slope, (A @ exact).sum(), rtol=1e-6)


@pytest.mark.long
def test_a_nonlinear_equation_against_scipy_and_differences():
    """Fisher's equation with a source that depends on t; parameters are a field and a number."""

    def fisher(t, u, field, rate):
        return heat(t, u, 0.01) + rate * u * (1 - u) * field * (1 + np.sin(30 * t))

    solve = solver(fisher, save_at=[0.0, 0.5], rtol=1e-9, atol=1e-11)
    u0, field = np.exp(-100 * (X - 0.5) ** 2), 1 + 0.2 * np.cos(5 * X)
    theirs = scipy.integrate.solve_ivp(
        fisher, (0, 0.5), u0, "Radau", args=(field, 3.0), rtol=1e-9, atol=1e-11, jac_sparsity=band(N)
    )
    np.testing.assert_allclose(solve(u0, field, 3.0).y[:, -1], theirs.y[:, -1], atol=1e-7)
    f = lambda field, rate: (solve(u0, field, rate).y[:, -1] ** 2).sum()
    of_field, of_rate = tg.grad(f, (0, 1))(field, 3.0)
    h, way = 1e-4, np.sin(17 * X)
    np.testing.assert_allclose(of_rate, (f(field, 3.0 + h) - f(field, 3.0 - h)) / (2 * h), rtol=1e-6)
    along = (f(field + h * way, 3.0) - f(field - h * way, 3.0)) / (2 * h)
    np.testing.assert_allclose(of_field @ way, along, rtol=1e-6)


def band(n):
    return scipy.sparse.diags_array(np.ones((3, n)), offsets=(-1, 0, 1), shape=(n, n))


def test_branches_scratch_arrays_and_filled_slopes():
    """A rate that halves at a time, by `if`; slopes by way of an array that f has captured."""
    scratch = np.zeros(N)

    def filling(du, t, u, a):
        scratch[:] = u
        du[:] = heat(t, scratch, a)
        if t > 0.03:
            du *= 0.5

    solve = solver(filling, save_at=[0.0, 0.03, END])
    f, whole = (lambda a: START @ solve(START, a).y[:, -1]), 0.03 + (END - 0.03) / 2
    np.testing.assert_allclose(f(RATE), amount(RATE, whole), rtol=1e-6)
    np.testing.assert_allclose(tg.grad(f)(RATE), DECAY * whole * amount(RATE, whole), rtol=1e-6)


@pytest.mark.parametrize("ways", [(tg.jvp, tg.jvp), (tg.jvp, tg.grad), (tg.grad, tg.jvp), (tg.grad, tg.grad)])
def test_second_derivatives_with_a_scratch_array(ways):
    scratch, u0 = np.zeros(1001), np.linspace(1, 2, 1001)

    def decay(du, t, u, a):
        scratch[:] = u
        scratch[:] *= scratch
        du[:] = -a * scratch

    solve = ode.solver(decay, "tsit5", save_at=[0.0, 0.1], rtol=1e-4, atol=1e-6)
    f = lambda a: solve(u0, a).y[:, -1].sum()
    exact = lambda a: (u0 / (1 + 0.1 * a * u0)).sum()
    along = lambda g: lambda a: tg.jvp(g, (a,), (1.0,))[1]
    for way in ways:
        f, exact = [along(g) if way is tg.jvp else tg.grad(g) for g in (f, exact)]
    np.testing.assert_allclose(f(0.7), exact(0.7), rtol=1e-4)


@pytest.mark.long
def test_batches_trees_and_doses():
    solve, rates, starts = solver(), np.array([0.5, 1.0]), np.stack([START, 2 * START], 1)
    found = solve(starts, rates)
    assert found.y.shape == (N, 3, 2) and found.accepted.shape == (2,)
    np.testing.assert_allclose(found.y[:, -1], starts * np.exp(DECAY * END * rates), atol=1e-8)
    g = tg.grad(lambda a: (START @ solve(starts, a).y[:, -1]).sum())(rates)
    np.testing.assert_allclose(g, DECAY * END * amount(rates) * [1, 2], rtol=1e-6)
    tree = solver(lambda t, s, a: {"u": heat(t, s["u"], a), "v": -s["v"]})
    found = tree({"u": START, "v": np.ones(2)}, RATE)
    np.testing.assert_allclose(found.y["v"], np.exp(-found.t) * np.ones((2, 1)), rtol=1e-6)
    given = np.array([END / 4]), START[:, None]
    np.testing.assert_allclose(
        START @ solve(START, RATE, doses=given).y[:, -1], amount(RATE) + amount(RATE, 0.75 * END), rtol=1e-6
    )


@pytest.mark.long
def test_events_and_dense_output():
    """The time at which the state has decayed to a fifth."""
    fifth = ode.Event(lambda t, u, a: u[10] - 0.2 * START[10], terminal=True)
    solve = solver(events=fifth, dense=True, save_at=None)
    exact = lambda a: np.log(0.2) / (DECAY * a)
    found = solve(START, RATE, t_span=(0.0, END))
    assert found.status == 1
    np.testing.assert_allclose(found.events[0].t[0], exact(RATE), rtol=1e-6)
    np.testing.assert_allclose(found.sol(0.01), START * np.exp(DECAY * RATE * 0.01), atol=1e-7)
    time = lambda a: solve(START, a, t_span=(0.0, END)).events[0].t[0]
    np.testing.assert_allclose(tg.grad(time)(RATE), -exact(RATE) / RATE, rtol=1e-6)


def test_explicit_steps_of_many_states():
    rotate = solver(lambda t, y, w: np.concatenate([w * y[600:], -w * y[:600]]), "tsit5", save_at=[0.0, 1.0])
    y0 = np.concatenate([np.ones(600), np.zeros(600)])
    f = lambda w: rotate(y0, w).y[0, -1]
    np.testing.assert_allclose([f(2.0), tg.grad(f)(2.0)], [np.cos(2.0), -np.sin(2.0)], rtol=1e-5)


@pytest.mark.parametrize("measured", [False, pytest.param(True, marks=pytest.mark.long)])
def test_segments_take_less_memory(measured, monkeypatch):
    """Beyond a bound a gradient keeps the starts of segments only. The numbers are the same."""
    u = np.linspace(1.0, 2.0, 1100)
    rtol, most = (1e-9, 400) if measured else (1e-7, 100)
    solve = ode.solver(
        lambda t, u, a: -a * u * np.cos(20 * t), "tsit5", rtol=rtol, save_at=[0.0, 0.5, 2.0], max_steps=most
    )
    ends = lambda a: solve(a[0] * u, a[1]).y[:, 1:].sum(0)
    a, ways = np.array([1.1, 0.7]), np.array([0.3, -1.2])

    def results():
        if measured:
            tracemalloc.start()
        gradient = tg.grad(lambda a: ends(a)[1])(a)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, ends(a), gradient, tg.jvp(ends, (a,), (ways,))[1], tg.hvp(lambda a: ends(a)[1], a, ways)

    steps = solve(u, 0.7).accepted
    assert steps > 60
    if measured:
        results()  # what is kept from a first call
    whole, *expected = results()
    monkeypatch.setattr(loops, "KEPT_NUMBERS", (2 * len(u) + 8) * 8)
    parts, *found = results()
    np.testing.assert_array_equal(found[0], expected[0])
    for x, y in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    assert not measured or whole - parts > 2 * u.nbytes * (steps - 8 - steps / 8 - 16)
    last = a[0] * u.sum() * np.exp(-a[1] * np.sin(40.0) / 20)
    exact = [last / a[0], -last * np.sin(40.0) / 20]
    np.testing.assert_allclose(found[1], exact, rtol=1e-6 if measured else 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("method", ["tsit5", "rodas5p"])
def test_segments_of_a_kernel(method, monkeypatch):
    """The states are the same bits with segments and without; derivatives add in another order."""
    k, ways, y0 = np.array([0.9, 1.1]), np.array([0.3, -1.2]), np.array([[1.0, 1.0], [0.5, 2.0]])
    spring = lambda t, y, k: np.stack([y[1], -k * y[0] - 0.1 * y[0] ** 3])
    event = ode.Event(lambda t, y, k: y[0], change=lambda t, y, k: np.stack([y[0], 0.9 * y[1]]))

    def results():
        solve = ode.solver(spring, method, save_at=[0.0, 1.0, 9.0], rtol=1e-6, max_steps=9999, events=event)
        ends = lambda k: (solve(y0, k).y ** 2).sum((0, 1))
        whole = lambda k: ends(k).sum()
        tangent = tg.jvp(ends, (k,), (ways,))[1]
        return solve(y0, k).y, tg.grad(whole)(k), tangent, tg.hvp(whole, k, ways)

    states, *expected = results()
    monkeypatch.setattr(loops, "segment_steps", lambda *given, **kept: 7)
    found, *derivatives = results()
    np.testing.assert_array_equal(found, states)
    for x, y in zip(derivatives, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)


def test_a_function_that_counts_has_a_dense_jacobian():
    calls = []
    solve = solver(lambda t, u, a: calls.append(t) or heat(t, u, a))
    f = lambda a: START @ solve(START, a).y[:, -1]
    np.testing.assert_allclose(f(RATE), amount(RATE), rtol=1e-6)
    np.testing.assert_allclose(tg.grad(f)(RATE), DECAY * END * amount(RATE), rtol=1e-6)
    assert len(calls) > 100


def test_what_is_refused():
    calls = iter(range(10**6))
    changing = solver(lambda t, y, a: -a * y * (1 + 1e-3 * next(calls)), "tsit5", save_at=[0.0, 1e-3])
    with pytest.raises(GuardError, match="other values"):
        tg.grad(lambda a: changing(np.ones(1200), a).y.sum())(1.0)
    captured = lambda a: solver(lambda t, u: heat(t, u, a))(START).y.sum()
    with pytest.raises(ArgumentError, match="did not get as an argument"):
        tg.grad(captured)(RATE)
    solve = solver()
    with tg.testing.host_cupy() as cp, pytest.raises(ArgumentError, match="give NumPy arrays"):
        solve(cp.asarray(START), RATE)
    with pytest.raises(tg.errors.ShapeError, match="no trajectories"):
        solve(np.ones((N, 0)), RATE)
    with pytest.raises(ConvergenceError, match="more than max_steps=5 "):
        solver(max_steps=5)(START, RATE)


@pytest.mark.long
@pytest.mark.filterwarnings("error::tapegrad.errors.ReplayWarning")
def test_recordings():
    """A solution is one operation of a recording. It reads what f captures anew."""
    scale = np.ones(1)
    solve = solver(lambda t, u, a: heat(t, u, a * scale[0]))
    f, slope = (lambda a: START @ solve(START, a).y[:, -1]), DECAY * END
    prepared = tg.prepare(f, RATE)
    np.testing.assert_allclose(prepared.grad(0.5), slope * amount(0.5), rtol=1e-6)
    scale[0] = 2.0
    np.testing.assert_allclose(prepared.grad(0.5), 2 * slope * amount(1.0), rtol=1e-6)
    np.testing.assert_array_equal(prepared.value(0.6), f(0.6))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_samples_of_vmap(mode):
    solve, rates = solver(), np.array([0.3, 0.5, 0.7, 0.9, 1.1])
    f, slope = (lambda a: START @ solve(START, a).y[:, -1]), DECAY * END
    np.testing.assert_allclose(tg.vmap(f)(rates), amount(rates), rtol=1e-6)
    np.testing.assert_allclose(tg.vmap(tg.jacobian(f, mode=mode))(rates), slope * amount(rates), rtol=1e-6)
    np.testing.assert_allclose(tg.vmap(tg.hessian(f))(rates[:2]), slope**2 * amount(rates[:2]), rtol=1e-6)
    total = lambda a: tg.vmap(f)(a * rates).sum()
    np.testing.assert_allclose(tg.grad(total)(1.0), (slope * rates * amount(rates)).sum(), rtol=1e-6)
    ends = tg.vmap(lambda t: START @ solve(START, RATE, t0=0.0, save_at=[t]).y[:, 0])(rates * END)
    np.testing.assert_allclose(ends, amount(RATE, rates * END), rtol=1e-6)


@pytest.mark.long
def test_failures():
    for method in ("rodas5p", "tsit5"):
        with pytest.raises(ConvergenceError, match="until t = "):
            solver(lambda t, y: y * y, method, save_at=[0.0, 1.5])(np.ones(1100))
    half = solver(lambda t, y: y * y, save_at=[0.0, 1.5], on_failure="nan")
    found = half(np.full((N, 2), [0.2, 1.0]))
    np.testing.assert_array_equal(found.success, [True, False])
    np.testing.assert_allclose(found.y[0, -1, 0], 0.2 / 0.7, rtol=1e-6)
