"""ARIMA models whose missing values are integrated out of the differenced series."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from tapegrad import statespace as ss

rng = np.random.default_rng(3)
N = 60
SERIES = rng.normal(size=N).cumsum() + 0.1 * np.arange(N) + np.tile([0.0, 1.0, 3.0, -1.0], N // 4)
X = rng.normal(size=(N, 2))


def with_gaps(at):
    y = SERIES.copy()
    y[list(at)] = np.nan
    return y


def problem_of(y, **settings):
    specified = ss.sarimax(y, **settings)
    return specified.model.problem(specified.data, None, None, False, None)


def autocovariances(ar, ma, n):
    """Of an ARMA(1, 1) with noise of variance 1."""
    first = (1 + 2 * ar * ma + ma**2) / (1 - ar**2)
    second = (1 + ar * ma) * (ar + ma) / (1 - ar**2)
    return np.r_[first, second * ar ** np.arange(n - 1)]


@pytest.mark.parametrize("gaps", [(5,), (0, 1, 30), (10, 11, 12, N - 1), (0, N - 2, N - 1)])
def test_against_a_dense_normal(gaps):
    """Differences of successive observed values are sums of the process."""
    y = with_gaps(gaps)
    problem = problem_of(y, order=(1, 1, 1))
    assert problem.missing is not None
    objective = problem.objective()
    params = problem.parameters.tree(objective.start)
    w = scipy.linalg.toeplitz(autocovariances(params["ar"][0], params["ma"][0], N - 1)) * params["sigma2"]
    seen = np.flatnonzero(~np.isnan(y))
    sums = np.array(
        [(np.arange(1, N) > a) & (np.arange(1, N) <= b) for a, b in zip(seen[:-1], seen[1:], strict=True)]
    )
    wanted = scipy.stats.multivariate_normal(cov=sums @ w @ sums.T).logpdf(np.diff(y[seen]))
    assert "missing values" in objective.way
    np.testing.assert_allclose(-objective(objective.start)[0], wanted, rtol=1e-10)


@pytest.mark.parametrize(
    "settings",
    [
        dict(order=(1, 1, 0), exog=X, trend="c"),
        pytest.param(dict(order=(0, 1, 1), seasonal_order=(0, 1, 1, 4)), marks=pytest.mark.long),
        pytest.param(
            dict(order=(1, 2, 0), seasonal_order=(1, 0, 0, 4), concentrate_scale=True),
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_form_of_the_levels_has_the_same_derivatives(settings):
    problem = problem_of(with_gaps([0, 2, 17, 18, 40]), **settings)
    objective, levels = problem.objective(), replace(problem, missing=None).objective()
    for move in (0.0, 0.1, -0.2):
        u = objective.start + move
        (value, gradient), (wanted, slope) = objective(u), levels(u)
        np.testing.assert_allclose(value, wanted, rtol=1e-10)
        np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-9 * abs(slope).max())
        H = levels.hessian(u)
        np.testing.assert_allclose(objective.hessian(u), H, rtol=1e-6, atol=1e-8 * abs(H).max())
    assert "missing values" in objective.way


@pytest.mark.long
def test_values_that_the_differences_do_not_determine():
    """A season that was never observed: any constant may be added to it."""
    y = with_gaps(range(0, N, 4))
    assert problem_of(y, order=(0, 0, 1), seasonal_order=(0, 1, 0, 4)).missing is None
    fit = ss.sarimax(y, order=(0, 0, 1), seasonal_order=(0, 1, 0, 4)).fit()
    assert np.isfinite(fit.loglik) and "missing" not in fit.report()


def test_a_fit_with_gaps_says_what_it_ran_and_keeps_its_covariances():
    y = with_gaps([3, 20, 21])
    fit = ss.sarimax(y, order=(0, 1, 1)).fit()
    assert "3 missing values" in fit.report()
    whole = replace(fit.problem, missing=None)
    scores = whole.scores(fit.stop.u)
    np.testing.assert_allclose(fit.problem.scores(fit.stop.u), scores, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scores.sum(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(fit.loglik, -whole.objective()(fit.stop.u)[0], rtol=1e-10)


def test_gaps_of_data_on_a_device_are_found_by_one_transfer():
    hosted = pytest.importorskip("tapegrad.testing.hosted")
    if hosted.real_device():
        pytest.skip("transfers are counted where CuPy is hosted")
    data = ss.Observations(hosted.install().asarray([[1.0, np.nan], [2.0, 3.0]]))
    hosted.reset_counts()
    assert data.rows == [[0], [0, 1]]
    assert hosted.stats["syncs"] == 0
