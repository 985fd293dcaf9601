"""Solutions inside kernels, and fits of models that are differential equations."""

import numpy as np
import pytest
import scipy.optimize

import tapegrad as tg
from tapegrad import ode
from tapegrad.errors import KernelError, ShapeError

TIMES = np.array([0.5, 1.5, 3.0])
decay = ode.solver(lambda t, y, k: -k * y, save_at=TIMES, rtol=1e-9, atol=1e-12)


def curve(t, amount, rate):
    return decay(np.stack([amount]), rate, t0=0.0).y[0]


def squares(q, d):
    return ((decay(q[:1], q[1], t0=0.0).y[0] - d) ** 2).sum()


@pytest.mark.long
def test_a_solver_is_part_of_a_kernel():
    """Its values and derivatives are those outside, and captured numbers are read anew."""
    kernel, rng = tg.kernels.map(squares), np.random.default_rng(0)
    q, d = rng.uniform(0.5, 2.0, (2, 4)), rng.uniform(0.1, 1.0, (3, 4))
    each = lambda f: np.stack([f(q[:, b].copy(), d[:, b].copy()) for b in range(4)], -1)
    np.testing.assert_allclose(kernel(q, d), each(squares), rtol=1e-12)
    np.testing.assert_allclose(tg.grad(lambda q: kernel(q, d).sum())(q), each(tg.grad(squares)), rtol=1e-10)
    with pytest.raises(ShapeError, match="one trajectory"):
        tg.kernels.map(lambda k: decay(np.ones((1, 2)), k, t0=0.0).y.sum())(d[0])
    with pytest.raises(KernelError, match="traced value"):
        tg.kernels.map(lambda k: decay(np.ones(1), 1.0, t0=k).y.sum())(d[0])
    c = np.array([1.0])
    solve = ode.solver(lambda t, y, k: -c * k * y, save_at=[0.0, 1.0])
    end = tg.kernels.map(lambda k: solve(np.ones(1), k).y[0, 1])
    np.testing.assert_allclose(end(np.array([1.0, 2.0])), np.exp([-1.0, -2.0]), rtol=1e-5)
    c[0] = 2.0
    np.testing.assert_allclose(end(np.array([1.0, 2.0])), np.exp([-2.0, -4.0]), rtol=1e-5)


@pytest.mark.long
def test_events_and_failures_inside_a_kernel():
    """A failure is nan there, because a kernel raises no error for one sample."""
    event = ode.Event(lambda t, y, g: y[0], direction=-1, change=lambda t, y, g: [0.0, -0.5 * y[1]])
    fall = ode.solver(lambda t, y, g: [y[1], -g], save_at=[0.0, 1.0], events=event, max_events=2, rtol=1e-9)
    heights = np.array([1.0, 2.0, 0.01])
    inside = lambda h: fall([h, 0.0], 9.81)
    first = tg.kernels.map(lambda h: inside(h).events[0].t[0])
    np.testing.assert_allclose(first(heights), np.sqrt(2 * heights / 9.81), rtol=1e-10)
    np.testing.assert_allclose(
        tg.grad(lambda h: first(h).sum())(heights), 1 / np.sqrt(2 * 9.81 * heights), rtol=1e-8
    )
    end = tg.kernels.map(lambda h: np.stack([*inside(h).y[:, 1], inside(h).status]))(heights)
    assert np.isnan(end[:2, 2]).all() and np.isfinite(end[:, :2]).all()
    np.testing.assert_array_equal(end[2], [0, 0, -1])


def test_curve_fit_and_least_squares():
    exact = np.array([2.0, 0.8])
    data = exact[0] * np.exp(-exact[1] * TIMES)
    popt, _ = tg.optimize.curve_fit(curve, TIMES, data, p0=[1.0, 1.0])
    np.testing.assert_allclose(popt, exact, rtol=1e-7)
    fit = tg.optimize.least_squares(lambda q: curve(TIMES, q[0], q[1]) - data, np.ones(2))
    np.testing.assert_allclose(fit.x, exact, rtol=1e-7)


@pytest.mark.long
def test_many_fits_at_once():
    rng = np.random.default_rng(1)
    exact = rng.uniform(0.5, 2.0, (2, 30))
    data = exact[0] * np.exp(-exact[1] * TIMES[:, None]) * np.exp(0.01 * rng.standard_normal((3, 30)))
    found = tg.optimize.minimize_many(squares, np.ones((2, 30)), data)
    assert found.converged.all()
    residuals = lambda q, d: decay(q[:1], q[1], t0=0.0).y[0] - d
    np.testing.assert_allclose(
        tg.optimize.least_squares_many(residuals, np.ones((2, 30)), data).x, found.x, rtol=1e-6
    )
    for b in range(0, 30, 10):
        one = scipy.optimize.curve_fit(
            lambda t, a, k: a * np.exp(-k * t), TIMES, data[:, b], p0=[1.0, 1.0], xtol=1e-12
        )[0]
        np.testing.assert_allclose(found.x[:, b], one, rtol=1e-6)
