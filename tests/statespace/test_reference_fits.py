"""Fits of known data against statsmodels 0.15, whose searches were driven on to the last digit by Nelder and
Mead's method (its defaults
stop after four digits or so).  Standard errors of the airline model there by complex steps."""

from pathlib import Path

import numpy as np
import pytest
from test_compiled_filter import structural

from tapegrad import statespace as ss

pytestmark = pytest.mark.smoke

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


def column(name):
    return np.loadtxt(DATA / f"{name}.csv", delimiter=",", skiprows=3, usecols=1)


@pytest.fixture(scope="module")
def passengers():
    return np.log(column("airline"))


def test_airline_model(passengers):
    """(0,1,1)(0,1,1)12: G. E. P. Box and G. M. Jenkins' own example; differenced by hand, and by
    `sarimax`."""
    y = np.diff(passengers)
    y = y[12:] - y[:-12]

    def build(p):
        ma = np.concatenate(
            [np.stack([p["ma"]]), np.zeros(10), np.stack([p["season"], p["ma"] * p["season"]])]
        )
        return ss.arma((), ma, p["var"])

    start = {"ma": -0.1, "season": -0.1, "var": 1e-3}
    by_hand = ss.fit(
        build, y, start, {"ma": ss.correlation(), "season": ss.correlation(), "var": ss.positive()}
    )
    assert by_hand.report().startswith("compiled filter: 14 states")
    for r in (by_hand, ss.sarimax(passengers, order=(0, 1, 1), seasonal_order=(0, 1, 1, 12)).fit()):
        np.testing.assert_allclose(r.loglik, 244.69648683286084, rtol=1e-12)
        np.testing.assert_allclose(r.estimates, [-0.401823135, -0.556936506, 0.00134809901], rtol=1e-7)
        np.testing.assert_allclose(r.standard_errors, [0.0896447, 0.0731051, 0.000167202], rtol=3e-6)


def test_arma_of_the_sunspots():
    y = column("sunspots")
    start = {"mean": 40.0, "ar": np.zeros(2), "ma": np.zeros(1), "var": 1000.0}
    constraints = {"ar": ss.stationary(), "ma": ss.stationary(), "var": ss.positive()}
    r = ss.fit(lambda p: ss.arma(p["ar"], p["ma"], p["var"], p["mean"]), y, start, constraints)
    np.testing.assert_allclose(r.loglik, -1269.1563258952092, rtol=1e-12)
    np.testing.assert_allclose(
        r.estimates, [49.8147795, 1.46231183, -0.750321138, -0.143047772, 274.519723], rtol=2e-7
    )


def test_structural_model_of_the_passengers(passengers):
    """Level, slope and season, with statsmodels' exact diffuse start.  The slope does not vary: its variance runs to 0, and
    statsmodels' own search stops at 217.4199 with 1e-8 for it."""
    start = {"level": 1e-3, "slope": 1e-5, "seasonal": 1e-5, "irregular": 1e-3}
    r = ss.fit(structural, passengers, start, ss.positive())
    np.testing.assert_allclose(r.loglik, 217.42040190615037, rtol=1e-11)
    at = dict(zip(r.names, r.estimates, strict=True))
    np.testing.assert_allclose(
        [at["irregular"], at["level"], at["seasonal"]],
        [0.000129510552, 0.000699449295, 6.41291548e-05],
        rtol=1e-6,
    )
    assert at["slope"] < 1e-12 and r.at_bound == ["slope"] and np.isnan(r.standard_errors[1])


def test_passengers_in_two_ways(passengers):
    """The parts of the library make the same likelihood as the matrices by hand."""
    parts = ss.fit(ss.level() + ss.trend() + ss.seasonal(12), passengers)
    np.testing.assert_allclose(parts.loglik, 217.42040190615037, rtol=1e-9)
