"""Draws against the dense Gaussian algebra of test_statespace: means and covariances over time, missing
values, diffuse starts."""

import numpy as np
import pytest
from test_statespace import NILE, NILE_START, Dense, host, nile_build

from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, DataError
from tapegrad.statespace.filters import compiled

pytestmark = pytest.mark.smoke

DRAWS = 40000


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("p, mark", [(1, [True, False]), (2, [False, False]), (3, [True, True])])
def test_draws_of_states_given_data(p, mark, first):
    dense = Dense(7 * p + sum(mark), 2, p, 5, first, mark)
    draws = ss.simulate_smoother(dense.model, dense.y, DRAWS, rng=1)
    x = draws.states.reshape(DRAWS, -1)
    mean, cov = dense.state, dense.state_cov
    error = np.sqrt(np.diag(cov))
    assert (abs(x.mean(0) - mean) < 5 * error / DRAWS**0.5).all()
    found = np.cov(x.T)
    assert (abs(found - cov) < 6 * np.outer(error, error) / DRAWS**0.5).all()
    seen = ~np.isnan(dense.y)
    assert (draws.observations[:, seen] == dense.y[seen]).all() and np.isfinite(draws.observations).all()


@pytest.mark.parametrize("kind", ["diffuse", "gaps", "varies, first step a transition"])
def test_draws_by_the_compiled_filter(kind, monkeypatch):
    """Those that the filter on arrays gives."""
    g, first = np.random.default_rng(3), kind.startswith("varies")
    T = 0.8 * np.linalg.qr(g.normal(size=(3, 3)))[0] * (g.uniform(0.5, 1.0, (12, 1, 1)) if first else 1.0)
    start = ss.Start(
        g.normal(size=3), np.eye(3), [kind == "diffuse", False, kind != "gaps"], predict_first=first
    )
    model = ss.LinearGaussian(
        T, g.normal(size=(2, 3)), np.ones(3), [[1.0, 0.3], [0.3, 2.0]], None, g.normal(size=3), 0.5, start
    )
    y = g.normal(size=(12, 2))
    y[[0, 4, 4], [1, 0, 1]] = np.nan if kind == "gaps" else 0.0
    wanted = ss.simulate_smoother(model, y, 5, rng=1)
    monkeypatch.setattr(compiled, "FILTERED", 0)
    monkeypatch.setattr(compiled, "ArrayFilter", None)  # not called
    found = ss.simulate_smoother(model, y, 5, rng=1)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("known", [0, 1])
def test_draws_of_missing_elements(known):
    """One of two elements of a step is missing, their noise correlated: mean and variance by conditioning the
    joint distribution."""
    H = np.array([[1.0, 0.8], [0.8, 2.0]])
    model = ss.LinearGaussian(0.7, np.array([[1.0], [-0.5]]), 0.5, H, start=ss.Start(0.3, 1.5))
    y = np.array([[0.4, -1.0], [np.nan, np.nan], [1.2, 0.1]])
    y[1, known] = 0.9
    var, states = np.empty((3, 3)), np.empty(3)
    powers = [1.0, 0.7, 0.49]
    marginal = [1.5]
    for _ in range(2):
        marginal.append(0.49 * marginal[-1] + 0.5)
    for i in range(3):
        states[i] = 0.3 * powers[i]
        for j in range(3):
            var[i, j] = marginal[min(i, j)] * powers[abs(i - j)]
    Z = np.kron(np.eye(3), [[1.0], [-0.5]])
    mean, cov = Z @ states, Z @ var @ Z.T + np.kron(np.eye(3), H)
    seen = np.flatnonzero(~np.isnan(y.reshape(-1)))
    at = 2 + (1 - known)
    gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[seen, at])
    expected, spread = (
        mean[at] + gain @ (y.reshape(-1)[seen] - mean[seen]),
        cov[at, at] - gain @ cov[seen, at],
    )
    x = ss.simulate_smoother(model, y, DRAWS, rng=3).observations[:, 1, 1 - known]
    assert abs(x.mean() - expected) < 5 * (spread / DRAWS) ** 0.5
    assert abs(x.var() / spread - 1) < 6 * (2 / DRAWS) ** 0.5


def test_draws_of_a_model():
    model = ss.arma(np.array([0.6]), np.array([0.3]), 2.0, mean=5.0)
    y = ss.simulate(model, steps=4, draws=DRAWS, rng=2).observations[:, :, 0]
    variance = 2.0 * (1 + 2 * 0.6 * 0.3 + 0.09) / (1 - 0.36)
    first = 0.6 * variance + 0.3 * 2.0
    expected = np.array([variance, first, 0.6 * first, 0.36 * first])
    assert (abs(y.mean(0) - 5.0) < 5 * (variance / DRAWS) ** 0.5).all()
    assert (abs(np.cov(y.T)[0] - expected) < 6 * variance * (2 / DRAWS) ** 0.5).all()
    again = ss.simulate(model, steps=4, draws=2, rng=np.random.default_rng(9)).observations
    np.testing.assert_array_equal(again, ss.simulate(model, steps=4, draws=2, rng=9).observations)


def test_draws_of_what_comes(xp):
    fit = ss.fit(nile_build, xp.asarray(NILE[:30]), NILE_START, ss.positive())
    draws, ahead = fit.simulate(3, draws=5000, rng=4), fit.forecast(3)
    assert draws.shape == (5000, 3)
    assert (abs(draws.mean(0) - ahead.mean) < 5 * ahead.standard_errors / 5000**0.5).all()
    assert (abs(draws.std(0) / ahead.standard_errors - 1) < 6 / 5000**0.5).all()
    states = fit.simulate_states(1000, rng=5)[:, :, 0]
    mean, var = host(fit.smoothed.mean)[:, 0], host(fit.smoothed.cov)[:, 0, 0]
    assert states.shape == (1000, 30)
    assert (abs(states.mean(0) - mean) < 5 * (var / 1000) ** 0.5).all()


def test_draws_that_cannot_be():
    model = ss.LinearGaussian(np.eye(2), np.array([1.0, 0.0]), 1.0, 1.0)
    with pytest.raises(DataError, match="simulate_smoother: the data do not determine"):
        ss.simulate_smoother(model, NILE)
    with pytest.raises(ArgumentError, match=r"simulate_smoother\(draws=0\)"):
        ss.simulate_smoother(ss.local_level(1.0, 1.0), NILE, draws=0)
    with pytest.raises(ArgumentError, match=r"simulate\(steps=1.5\)"):
        ss.simulate(ss.local_level(1.0, 1.0), steps=1.5)
