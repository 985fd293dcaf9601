"""Fits against published figures: R's arima (Box and Jenkins' airline model), Stata's manuals (arima, dfactor, var), as the tests and
the documentation of statsmodels quote them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tapegrad as tg
from tapegrad import statespace as ss


def numbers(text):
    return np.array(text.split(), float)


AIRLINE = np.loadtxt(Path(__file__).parents[2] / "examples" / "data" / "airline.csv", delimiter=",", skiprows=3, usecols=1)
# Quarterly wholesale price index of the United States, 1960 to 1990 (Stata: wpi1, kept there in single precision).
PRICES = (
    numbers("""
    30.7 30.8 30.7 30.7 30.8 30.5 30.5 30.6 30.7 30.6 30.7 30.7 30.6 30.5 30.6 30.7 30.7 30.6 30.7 30.7
    30.9 31.2 31.4 31.6 32.1 32.2 32.6 32.4 32.3 32.3 32.4 32.5 32.9 33.1 33.3 33.4 33.9 34.4 34.7 35.0
    35.5 35.7 35.9 35.9 36.5 36.9 37.2 37.2 37.9 38.3 38.8 39.2 41.1 43.1 44.9 45.3 48.3 50.0 53.6 55.4
    55.4 56.0 57.2 57.8 58.1 59.0 59.7 60.2 61.6 63.0 63.1 63.9 65.4 67.4 68.4 70.0 72.5 75.1 77.4 80.2
    83.9 85.6 88.4 90.4 93.1 95.2 95.9 95.8 96.6 96.7 97.1 97.2 97.3 97.6 98.6 99.1 100.2 100.8 100.6 100.3
    100.1 100.2 99.5 100.1 98.6 96.8 96.3 96.7 97.8 99.4 100.5 101.0 101.6 103.2 104.7 105.2 107.5 109.4 109.0 109.4
    111.0 110.8 112.8 116.2
""")
    .astype(np.float32)
    .astype(float)
)
# West German investment, income and consumption, quarterly from 1960 on (H. Luetkepohl, New Introduction to Multiple Time Series
# Analysis, data set E1).
GERMANY = np.stack(
    [
        numbers("""
    180 179 185 192 211 202 207 214 231 229 234 237 206 250 259 263 264 280 282
    292 286 302 304 307 317 314 306 304 292 275 273 301 280 289 303 322 315 339
    364 371 375 432 453 460 475 496 494 498 526 519 516 531 573 551 538 532 558
    524 525 519 526 510 519 538 549 570 559 584 611 597 603 619 635 658 675 700
"""),
        numbers("""
    451 465 485 493 509 520 521 540 548 558 574 583 591 599 610 627 642 653 660
    694 709 734 751 763 766 779 808 785 794 799 799 812 837 853 876 897 922 949
    979 988 1025 1063 1104 1131 1137 1178 1211 1256 1290 1314 1346 1385 1416 1436 1462 1493 1516
    1557 1613 1642 1690 1759 1756 1780 1807 1831 1873 1897 1910 1943 1976 2018 2040 2070 2121 2132
"""),
        numbers("""
    415 421 434 448 459 458 479 487 497 510 516 525 529 538 546 555 574 574 586
    602 617 639 653 668 679 686 697 688 704 699 709 715 724 746 758 779 798 816
    837 858 881 905 934 968 983 1013 1034 1064 1101 1102 1145 1173 1216 1229 1242 1267 1295
    1317 1355 1371 1402 1452 1485 1516 1549 1567 1588 1631 1650 1685 1722 1752 1774 1807 1831 1842
"""),
    ],
    axis=1,
)
GROWTH = pd.DataFrame(
    np.diff(np.log(GERMANY), axis=0), index=pd.period_range("1960Q2", periods=75, freq="Q"), columns=["dln_inv", "dln_inc", "dln_consump"]
)


def test_airline_model():
    """R: arima(log(AirPassengers), c(0, 1, 1), list(order = c(0, 1, 1), period = 12)); Stata: log likelihood 244.69651."""
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


def test_prices():
    """Stata: arima wpi, arima(1, 1, 1), with standard errors by opg, oim and robust."""
    fit = ss.sarimax(PRICES, order=(1, 1, 1), trend="c").fit()
    intercept, ar, ma, sigma2 = fit.estimates
    np.testing.assert_allclose([intercept / (1 - ar), ar, ma, sigma2**0.5], [0.7498197, 0.8742288, -0.4120458, 0.7250436], atol=2e-4)
    np.testing.assert_allclose([fit.loglik, fit.aic, fit.bic], [-135.35131, 278.7026, 289.9514], atol=5e-5)
    for kind, expected in (("opg", [0.0545435, 0.1000284]), ("exact", [0.0637705, 0.1220756]), ("robust", [0.0811246, 0.1503862])):
        np.testing.assert_allclose(np.sqrt(np.diag(fit.cov(kind)))[1:3], expected, rtol=2e-2 if kind == "robust" else 3e-3)


def test_autoregression_of_prices():
    """Stata: arima wpi, arima(3, 1, 0) noconstant."""
    fit = ss.sarimax(PRICES, order=(3, 1, 0)).fit()
    np.testing.assert_allclose(fit.estimates, [0.52707154, 0.09526127, 0.25803547, 0.53074593], atol=2e-5)
    np.testing.assert_allclose(fit.standard_errors, [0.09031296, 0.10143699, 0.09271067, 0.067705], rtol=1e-4)
    np.testing.assert_allclose(fit.loglik, -136.21782, atol=5e-6)


def test_vector_autoregression():
    """Stata: sspace of a VAR(1) without constant."""
    fit = ss.var(GROWTH, order=1, trend="n").fit()
    expected = [-0.25034303, 0.28759168, 0.81626475, 0.023383, 0.19048278, 0.66502259, -0.01492992, 0.53796097, 0.28114733]
    np.testing.assert_allclose(fit.estimates[:9], expected, atol=2e-4)
    np.testing.assert_allclose(fit.loglik, 587.8481018831948, atol=1e-5)
    assert fit.names[1] == "L1.dln_inc.dln_inv"


def test_dynamic_factor():
    """Stata: dfactor (dln_inv dln_inc dln_consump = , noconstant) (f = , ar(1/2))."""
    fit = ss.dynamic_factor(GROWTH, factors=1, order=2, trend="n").fit()
    sign = np.sign(fit.estimates[0])
    expected = [0.0063728, 0.00660177, 0.00636009, 0.00203899, 0.00009016, 0.00005348, 0.33101874, 0.63927819]
    np.testing.assert_allclose(fit.estimates * np.r_[sign, sign, sign, np.ones(5)], expected, rtol=2e-3)
    np.testing.assert_allclose([fit.loglik, fit.aic, fit.bic], [594.0902026190786, -1172.18, -1153.641], atol=2e-3)
    np.testing.assert_allclose(
        fit.standard_errors, [0.002006, 0.0012514, 0.0012128, 0.0003359, 0.0000184, 0.0000141, 0.1196637, 0.1218577], rtol=2e-2
    )


def test_dynamic_factor_with_means():
    """Stata: dfactor (dln_inv dln_inc dln_consump = ) (f = , ar(1)).  Its maximum is one of two: there is a higher one, where the variance
    of consumption is zero."""
    specified = ss.dynamic_factor(GROWTH, factors=1, order=1)
    published = {
        "mean": np.array([0.01803325, 0.02066737, 0.01983089]),
        "loadings": np.array([-0.01254697, -0.00734604, -0.00671296]),
        "sigma2": np.array([0.00198667, 0.00008426, 0.00005684]),
        "transition": np.array([0.31140829]),
    }
    fit = specified.fit(published)
    np.testing.assert_allclose(fit.loglik, 596.9781590009525, atol=1e-5)
    np.testing.assert_allclose(fit.estimates, np.concatenate(list(published.values())), rtol=2e-3)
    higher = specified.fit()
    assert higher.loglik > 597.2 and higher.at_bound == ["sigma2.dln_consump"]


def test_structural_model_of_the_airline_data():
    """The basic structural model of A. C. Harvey (1989), 4.5.3: no slope noise, a seasonal pattern that changes slowly; by hand and as a
    sum the same."""
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
    np.testing.assert_allclose(fit.components()["seasonal"].mean, ss.smooth(by_hand.model, y).mean[:, 2], atol=1e-7)


@pytest.mark.parametrize("varying", [False, True])
def test_regression_in_both_ways(varying):
    """A slope that is a parameter, or a diffuse state that stays: the same estimate; and its random walk, simulated, is followed."""
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
    turn = 0.95 * np.array([[np.cos(2 * np.pi / 9), np.sin(2 * np.pi / 9)], [-np.sin(2 * np.pi / 9), np.cos(2 * np.pi / 9)]])
    by_hand = ss.LinearGaussian(turn, np.array([1.0, 0.0]), 0.5, 0.1, start=ss.Start(stationary=True))
    y = ss.simulate(by_hand, 150, rng=rng).observations[0, :, 0] + 3.0
    fit = ss.fit(ss.level(var=0) + ss.cycle(period=(3, 40)), y)
    assert abs(fit.params["period.cycle"] - 9) < 3 * fit.standard_errors[fit.names.index("period.cycle")] < 3
    assert str(model) == "cycle + level + noise"
    cov = fit.model.start.cov[1:, 1:]
    Q = fit.params["sigma2.cycle"] * np.eye(2)
    T = fit.model.transition[1:, 1:]
    np.testing.assert_allclose(cov, T @ cov @ T.T + Q, rtol=1e-9, atol=1e-12)
