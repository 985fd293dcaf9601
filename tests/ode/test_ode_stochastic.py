"""Stochastic equations of tapegrad.ode: strong orders, moments, path derivatives, the same numbers in any
split."""

import numpy as np
import pytest
import scipy.stats
from _cuda_host import array_library  # noqa: F401

import tapegrad as tg
from tapegrad import ode
from tapegrad.errors import ArgumentError, ConvergenceError, DataError, ShapeError

ENDS = np.array([0.0, 1.0])


def drift(t, y, r, s):
    return r * y


def spread(t, y, r, s):
    return s * y


def geometric(method="milstein", step=1 / 64, **settings):
    return ode.stochastic_solver(drift, spread, method, step=step, save_at=ENDS, **settings)


def of_geometric(y0, r, s, w, t=1.0):
    """The closed form for the Wiener process w at time t."""
    return y0 * np.exp((r - s**2 / 2) * t + s * w)


def test_the_generator_is_philox():
    """Word by word, with key (seed, trajectory), in any part, and normal."""
    z = ode.normal_noise(11, (2, 50, 7))
    for b, k, i in [(0, 0, 0), (6, 1, 49), (3, 0, 20)]:
        word = np.random.Philox(key=np.array([11, b], np.uint64)).random_raw(100)[2 * i + k]
        assert z[k, i, b] == scipy.stats.norm.ppf((int(word) // 2048 + 0.5) / 2**53)
    np.testing.assert_array_equal(ode.normal_noise(11, (2, 50, 3), first=4), z[:, :, 4:])
    np.testing.assert_array_equal(ode.normal_noise(11, (2, 20, 7)), z[:, :20])
    np.testing.assert_array_equal(ode.normal_noise(11, (2, 50), first=5), z[:, :, 5])
    many = ode.normal_noise(0, (1, 100, 1000)).ravel()
    assert (
        scipy.stats.kstest(many, "norm").pvalue > 0.01
        and np.abs(np.corrcoef(many[:-1], many[1:])[0, 1]) < 0.01
    )
    for bad in [(-1, (1, 1)), (2**64, (1, 1)), (0, (1,)), (0, (1, -1, 2))]:
        with pytest.raises(ArgumentError, match="normal_noise"):
            ode.normal_noise(*bad)


@pytest.mark.parametrize(("method", "order"), [("euler", 0.5), ("milstein", 1.0)])
def test_the_strong_order(method, order):
    """Steps of twice the size with sums of the same increments: the mean error of paths."""
    fine, errors = ode.normal_noise(1, (1, 256, 2000)), []
    exact = of_geometric(1.0, 0.5, 0.8, fine.sum(1)[0] / 16)
    for k in (4, 2, 1):
        noise = fine.reshape(1, 256 // k, k, 2000).sum(2) / np.sqrt(k)
        y = geometric(method, k / 256)(np.ones((1, 2000)), 0.5, 0.8, noise=noise).y[0, -1]
        errors.append(np.abs(y - exact).mean())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(orders - order) < 0.1), orders


def test_moments_of_geometric_brownian_motion():
    """And of their derivatives: by the drift and by the volatility, path by path."""
    mean = lambda r, s: geometric()(np.ones((1, 1)), r, s, seed=3, samples=20_000).y[0, -1].mean()
    second = lambda r, s: (geometric()(np.ones((1, 1)), r, s, seed=3, samples=20_000).y[0, -1] ** 2).mean()
    assert abs(mean(0.3, 0.4) - np.exp(0.3)) < 0.015
    np.testing.assert_allclose(tg.grad(mean, (0, 1))(0.3, 0.4), [np.exp(0.3), 0.0], atol=0.02)
    exact = np.exp(0.6 + 0.16)
    found = tg.grad(second, (0, 1))(0.3, 0.4)
    np.testing.assert_allclose(found, [2 * exact, 0.8 * exact], rtol=0.1)  # as far as the sample goes
    w = ode.normal_noise(3, (1, 64, 20_000)).sum(1)[0] / 8
    of_sample = tg.grad(lambda r, s: (of_geometric(1.0, r, s, w) ** 2).mean(), (0, 1))(0.3, 0.4)
    np.testing.assert_allclose(found, of_sample, rtol=0.015)


@pytest.mark.long
def test_moments_of_ornstein_and_uhlenbeck():
    solve = ode.stochastic_solver(
        lambda t, y, k, s: -k * y,
        lambda t, y, k, s: np.stack([s]),
        "euler",
        step=1 / 64,
        save_at=[0.0, 0.5, 2.0],
    )
    found = solve(np.ones((1, 1)), 1.5, 0.6, seed=4, samples=20_000)
    assert found.y.shape == (1, 3, 20_000) and found.success.all()
    y, exact = found.y[0], lambda t: 0.6**2 / 3 * (1 - np.exp(-3 * t))
    np.testing.assert_allclose(y.mean(1), np.exp(-1.5 * found.t), atol=0.012)
    np.testing.assert_allclose(y[1:].var(1), exact(found.t[1:]), rtol=0.04)
    assert np.cov(y[1], y[2])[0, 1] == pytest.approx(exact(0.5) * np.exp(-1.5 * 1.5), abs=0.0025)


def test_path_derivatives():
    """To second order, by start, parameters and noise, against differences."""
    solve, z = geometric(), ode.normal_noise(5, (1, 64))
    f = lambda x: np.log(solve(x[:1], x[1], x[2], noise=z).y[0, -1])
    x, v = np.array([1.2, 0.5, 0.3]), np.array([0.3, -1.0, 0.7])
    h, g = 1e-5, tg.grad(f)
    np.testing.assert_allclose(g(x) @ v, (f(x + h * v) - f(x - h * v)) / (2 * h), rtol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (x,), (v,))[1], g(x) @ v, rtol=1e-11)
    np.testing.assert_allclose(tg.hvp(f, x, v), (g(x + h * v) - g(x - h * v)) / (2 * h), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(g(x), [1 / 1.2, 1.0, z.sum() / 8 - 0.3], atol=0.03)
    by_noise = tg.grad(lambda z: np.log(solve(x[:1], x[1], x[2], noise=z).y[0, -1]))(z)
    np.testing.assert_allclose(by_noise, 0.3 / 8, rtol=0.2)


def test_any_split_has_the_same_numbers():
    solve, r = geometric(), np.linspace(0.1, 0.9, 10)
    y0 = np.ones((1, 10))
    whole = solve(y0, r, 0.3, seed=6)
    parts = [solve(y0[:, a:b], r[a:b].copy(), 0.3, seed=6, first=a).y for a, b in ((0, 3), (3, 9), (9, 10))]
    np.testing.assert_allclose(np.concatenate(parts, 2), whole.y, rtol=1e-14)
    one = solve(y0[:, 4], r[4], 0.3, seed=6, first=4)
    np.testing.assert_allclose(one.y, whole.y[:, :, 4], rtol=1e-14)
    longer = solve(y0, r, 0.3, seed=6, save_at=[0.0, 0.5, 1.0, 1.25])
    np.testing.assert_allclose(longer.y[:, 2], whole.y[:, 1], rtol=1e-14)
    assert (
        one.accepted == 64
        and longer.accepted[0] == 80
        and not np.array_equal(whole.y, solve(y0, r, 0.3, seed=7).y)
    )


@pytest.mark.parametrize("method", ["euler", "milstein"])
def test_noise_that_components_share(method):
    """Two assets with the same two sources of noise, which commute: each is a geometric Brownian motion."""
    S = np.array([[0.3, 0.1], [-0.2, 0.4]])
    solve = ode.stochastic_solver(
        lambda t, y, r: r * y, lambda t, y, r: y[:, None] * S, method, step=1 / 400, save_at=ENDS, noises=2
    )
    z = ode.normal_noise(8, (2, 400, 500))
    w = z.sum(1) / 20
    exact = np.exp(0.1 - (S**2).sum(1)[:, None] / 2 + S @ w)
    error = np.abs(solve(np.ones((2, 500)), 0.1, noise=z).y[:, -1] - exact).mean()
    assert error < (2e-3 if method == "milstein" else 1.5e-2)


def test_noise_that_does_not_commute_is_refused():
    cases = [
        ({"noises": 2}, lambda t, y: np.array([[1.0, 0.0], [0.0, y[0]]])),
        ({}, lambda t, y: np.array([y[1], y[0]])),
    ]
    for given, g in cases:
        make = lambda method, **more: ode.stochastic_solver(
            lambda t, y: -y, g, method, step=0.1, save_at=ENDS, **given, **more
        )
        with pytest.raises(ConvergenceError, match="does not commute"):
            make("milstein")(np.ones(2), seed=0)
        assert np.isfinite(make("euler")(np.ones(2), seed=0).y).all()


def test_failures_trees_and_transforms():
    explodes = ode.stochastic_solver(
        lambda t, y: y**3, lambda t, y: 0.1 * y, step=0.1, save_at=[0.0, 5.0], on_failure="nan"
    )
    found = explodes(np.array([[0.1, 9.0]]), seed=0)
    np.testing.assert_array_equal(found.status, [0, -1])
    assert np.isfinite(found.y[0, -1, 0]) and np.isnan(found.y[0, -1, 1])
    with pytest.raises(
        ConvergenceError, match=r"sample 1 of 2 \(1 failed\).*until t = [0-9.]+: the state is not finite"
    ):
        ode.stochastic_solver(lambda t, y: y**3, lambda t, y: 0.1 * y, step=0.1, save_at=[0.0, 5.0])(
            np.array([[0.1, 9.0]]), seed=0
        )
    tree = ode.stochastic_solver(
        lambda t, s: {"a": -s["a"]}, lambda t, s: {"a": 0.2 * s["a"]}, step=0.1, save_at=ENDS
    )
    plain = ode.stochastic_solver(lambda t, y: -y, lambda t, y: 0.2 * y, step=0.1, save_at=ENDS)
    np.testing.assert_array_equal(tree({"a": np.ones(2)}, seed=1).y["a"], plain(np.ones(2), seed=1).y)
    end = lambda r: geometric()(np.ones(1), r, 0.3, seed=2).y[0, -1]
    np.testing.assert_allclose(
        tg.vmap(tg.grad(end))(np.array([0.1, 0.5])), [tg.grad(end)(0.1), tg.grad(end)(0.5)], rtol=1e-12
    )
    p = tg.prepare(end, 0.1)
    np.testing.assert_allclose(p.grad(0.5), tg.grad(end)(0.5), rtol=1e-12)


def test_bad_input():
    solve = geometric()
    y0 = np.ones((1, 2))
    for make, error, words in [
        (lambda: solve(y0, 0.1, 0.2), ArgumentError, "either seed="),
        (lambda: solve(y0, 0.1, 0.2, seed=0, noise=np.ones((1, 64, 2))), ArgumentError, "either seed="),
        (lambda: solve(y0, 0.1, 0.2, noise=np.ones((1, 64))), ShapeError, r"here \(1, 64, 2\)"),
        (lambda: solve(y0, 0.1, 0.2, seed=0, samples=3), ShapeError, r"\(n, 3\)"),
        (lambda: solve(y0, 0.1, 0.2, seed=0, save_at=[1.0, 0.0]), DataError, "forwards"),
        (
            lambda: tg.grad(lambda t: solve(y0, 0.1, 0.2, seed=0, save_at=t).y.sum())(ENDS),
            ArgumentError,
            "no derivative by time",
        ),
        (lambda: ode.stochastic_solver(drift, spread, step=0.0), ArgumentError, "above 0"),
        (lambda: ode.stochastic_solver(drift, spread, "heun", step=0.1), ArgumentError, "milstein"),
        (
            lambda: ode.stochastic_solver(drift, spread, step=0.1, save_at=ENDS)(y0, seed=0),
            ArgumentError,
            r"drift .* takes neither",
        ),
        (
            lambda: ode.stochastic_solver(lambda t, y: y, lambda t, y: y, step=0.1, save_at=ENDS, noises=2)(
                y0, seed=0
            ),
            ShapeError,
            r"\(1, 2\)",
        ),
    ]:
        with pytest.raises(error, match=words):
            make()


def test_paths_on_a_device(cupy):
    solve, y0 = geometric(), np.ones((1, 3))
    plain, found = solve(y0, 0.1, 0.2, seed=0), solve(cupy.asarray(y0), 0.1, 0.2, seed=0)
    np.testing.assert_allclose(found.y.get(), plain.y, rtol=1e-13)
