"""Box and Jenkins' airline model against R's arima, and sums of components against the same models by
hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tapegrad as tg
from tapegrad import statespace as ss

AIRLINE = np.loadtxt(
    Path(__file__).parents[2] / "examples" / "data" / "airline.csv", delimiter=",", skiprows=3, usecols=1
)


def test_airline_model():
    """R: arima(log(AirPassengers), c(0, 1, 1), list(order = c(0, 1, 1), period = 12)); Stata: log likelihood
    244.69651."""
    y = pd.Series(np.log(AIRLINE), index=pd.date_range("1949", periods=144, freq="MS"), name="passengers")
    fit = ss.sarimax(y, order=(0, 1, 1), seasonal_order=(0, 1, 1, 12)).fit()
    assert fit.names == ["ma.L1", "ma.S.L12", "sigma2"]
    np.testing.assert_allclose(fit.estimates, [-0.4018, -0.5569, 0.001348], atol=5e-5)
    np.testing.assert_allclose(fit.standard_errors[:2], [0.0896, 0.0731], atol=5e-5)
    np.testing.assert_allclose([fit.loglik, fit.aic, fit.bic], [244.6965, -483.393, -474.767], atol=5e-4)
    assert fit.diffuse_states == 13 and "13 observations begin the differences" in fit.summary()
    ahead = fit.forecast(12)
    assert str(ahead.dates[-1])[:10] == "1961-12-01"
    # R: predict(fit, n.ahead = 3)
    np.testing.assert_allclose(ahead.mean.iloc[:3], [6.110186, 6.053775, 6.171715], atol=2e-6)
    np.testing.assert_allclose(ahead.standard_errors.iloc[:3], [0.0367156, 0.0427829, 0.0480908], rtol=1e-3)


def test_structural_model_of_the_airline_data():
    """The basic structural model of A. C. Harvey (1989), 4.5.3: no slope noise, a seasonal pattern that
    changes slowly; by hand and as a sum the same."""
    y = np.log(AIRLINE)[:96]
    fit = ss.fit(ss.level() + ss.trend(var=0) + ss.seasonal(12), y)
    assert not fit.at_bound and fit.problem.described.title == "level + trend + seasonal(12)"
    T = np.zeros((13, 13))
    T[:2, :2] = [[1, 1], [0, 1]]
    T[2, 2:], T[3:, 2:-1] = -1, np.eye(10)
    R = np.zeros((13, 2))
    R[0, 0] = R[2, 1] = 1
    Z = np.r_[1.0, 0.0, 1.0, np.zeros(10)]

    def build(p):
        return ss.LinearGaussian(T, Z, tg.numpy.stack([p["level"], p["seasonal"]]), p["noise"], R)

    by_hand = ss.fit(build, y, {"noise": 1e-4, "level": 1e-4, "seasonal": 1e-5}, ss.positive())
    np.testing.assert_allclose(fit.estimates, by_hand.estimates, rtol=1e-6)
    np.testing.assert_allclose(fit.standard_errors, by_hand.standard_errors, rtol=1e-5)
    np.testing.assert_allclose(
        fit.components()["seasonal"].mean, ss.smooth(by_hand.model, y).mean[:, 2], atol=1e-7
    )


@pytest.mark.parametrize("varying", [False, True])
def test_regression_in_both_ways(varying):
    """A slope that is a parameter, or a diffuse state that stays: the same estimate; and its random walk,
    simulated, is followed."""
    rng = np.random.default_rng(8)
    x, drift = rng.normal(size=120), np.cumsum(0.2 * rng.normal(size=120))
    y = 2.0 + x * (1.5 + drift * varying) + 0.5 * rng.normal(size=120)
    if not varying:
        fixed = ss.fit(ss.level(var=0) + ss.regression(x), y)
        state = ss.fit(ss.level(var=0) + ss.regression(x, varying=True, var=0), y)
        np.testing.assert_allclose(state.components()["beta.x1"].mean, fixed.params["beta"][0], rtol=1e-8)
    else:
        fit = ss.fit(ss.level(var=0) + ss.regression(x, varying=True), y)
        beta = fit.components()["beta.x1"]
        inside = abs(beta.mean - 1.5 - drift) < 3 * beta.standard_errors
        assert inside.mean() > 0.95 and fit.names[-1] == "sigma2.beta.x1" and fit.estimates[-1] < 0.2


def test_cycle():
    """A damped cycle of period 9, simulated: its period is found, its start is stationary."""
    rng = np.random.default_rng(6)
    model = ss.cycle(period=9.0, damping=0.95, var=0.5) + ss.level(var=0) + ss.noise(var=0.1)
    turn = 0.95 * np.array(
        [[np.cos(2 * np.pi / 9), np.sin(2 * np.pi / 9)], [-np.sin(2 * np.pi / 9), np.cos(2 * np.pi / 9)]]
    )
    by_hand = ss.LinearGaussian(turn, np.array([1.0, 0.0]), 0.5, 0.1, start=ss.Start(stationary=True))
    y = ss.simulate(by_hand, 150, rng=rng).observations[0, :, 0] + 3.0
    fit = ss.fit(ss.level(var=0) + ss.cycle(period=(3, 40)), y)
    assert abs(fit.params["period.cycle"] - 9) < 3 * fit.standard_errors[fit.names.index("period.cycle")] < 3
    assert str(model) == "cycle + level + noise"
    cov = fit.model.start.cov[1:, 1:]
    Q = fit.params["sigma2.cycle"] * np.eye(2)
    T = fit.model.transition[1:, 1:]
    np.testing.assert_allclose(cov, T @ cov @ T.T + Q, rtol=1e-9, atol=1e-12)
