"""Fits of the 45 models of wholesale prices that Stata estimates in statsmodels' tests (its table is read
from there).

They have maxima at the bound of invertibility, several maxima, roots that nearly cancel, and t^3 as a
regressor."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from statsmodels.datasets import macrodata
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.tests.results import results_sarimax

from tapegrad import statespace as ss
from tapegrad.errors import ConvergenceError

TABLE = pd.read_csv(Path(results_sarimax.__file__).parent / "results_sarimax_coverage.csv")
PRICES = np.asarray(results_sarimax.wpi1_data, float)
TIME = np.arange(1.0, PRICES.size + 1)
REGRESSORS = {"c": np.ones(PRICES.size), "t": TIME, "t3": TIME**3, "x": (PRICES - np.floor(PRICES)) ** 2}
MODELS = [i for i, command in enumerate(TABLE["mod"]) if "diffuse" not in command and "D.wpi" not in command]
# The log-likelihood rises without end towards a root of both polynomials at -1.
UNIT_ROOT = 16
# At a bound: one, two, at the third lag; several maxima; a scale of 1e6; nearly a unit root.
SHORT = [8, 9, 11, 13, 17, 19, 21, 33, 34]


def of_stata(i):
    command, loglik, _ = TABLE.iloc[i]
    head, options = command.split(",", 1)
    names = head.split()[2:]

    def orders(kind, default):
        found = re.search(rf"\b{kind}\(([\d,]+)\)", options)
        return tuple(map(int, found.group(1).split(","))) if found else default

    X = np.column_stack([REGRESSORS[name] for name in names]) if names else None
    return ss.sarimax(PRICES, orders("arima", (0, 0, 0)), orders("sarima", (0, 0, 0, 0)), exog=X), loglik


def test_there_are_45():
    assert len(MODELS) == 45 and set(SHORT) <= set(MODELS)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "i", [pytest.param(i, marks=() if i in SHORT else pytest.mark.long) for i in MODELS if i != UNIT_ROOT]
)
def test_as_high_as_stata(i):
    model, loglik = of_stata(i)
    fit = model.fit()
    assert fit.loglik > loglik - 1.5e-4  # printed with four digits
    assert fit.gradient < 1e-7
    errors = np.asarray(fit.standard_errors)
    assert (np.isnan(errors) == np.isin(fit.names, fit.at_bound)).all()


@pytest.mark.long
@pytest.mark.parametrize("seed", [None, 0, 4, 8])
def test_a_ridge_towards_a_unit_root(seed, monkeypatch):
    """There is no maximum: the highest log-likelihood given a common root -r of both polynomials rises with r.

    In 40 decimal digits it is -142.1629928 at r = 1 - 1e-3, -142.1485878 at 1 - 1e-5, -142.1484288 at 1 - 1e-7
    and -142.1484272374 at 1 - 1e-12. Rounding of the data decides nothing."""
    noise = 0.0 if seed is None else 1e-12 * np.random.default_rng(seed).normal(size=PRICES.size)
    monkeypatch.setitem(globals(), "PRICES", PRICES * (1 + noise))
    with pytest.raises(ConvergenceError, match=r"It ran towards a unit root, by ar\.L2:") as caught:
        of_stata(UNIT_ROOT)[0].fit()
    assert -142.14844 < caught.value.loglik < -142.148427


def test_a_bound_is_named_and_said():
    fit = of_stata(13)[0].fit()
    assert fit.at_bound == ["ma.L3"] and "at the bound of the constraint, no standard error: ma.L3" in str(
        fit
    )
    assert "the highest of the maxima found from" in str(fit) and fit.stop.starts > 1
    root = np.roots(np.r_[1.0, fit.params["ma"]])
    assert_allclose(abs(root).max(), 1.0, atol=1e-6)


def test_a_variance_of_zero_is_a_fit_without_it():
    y = np.random.default_rng(0).normal(size=150)
    fit = ss.fit(ss.level(), y)
    assert fit.at_bound == ["sigma2.level"] and fit.stop.starts > 1
    none = ss.fit(ss.level(var=0.0), y)
    assert_allclose(fit.loglik, none.loglik, rtol=1e-10)
    assert_allclose(fit.standard_errors[0], none.standard_errors[0], rtol=1e-6)


def test_scales_do_not_matter():
    """A regressor of size 1e6 and a series of size 1e-5 have the fit of the same data in other units."""
    rng = np.random.default_rng(4)
    x, e = rng.normal(size=80), rng.normal(size=80).cumsum()
    one = ss.sarimax(x + e, (1, 0, 1), exog=x).fit()
    other = ss.sarimax(1e-5 * (x + e), (1, 0, 1), exog=1e6 * x).fit()
    assert_allclose(other.loglik, one.loglik + 80 * np.log(1e5), rtol=1e-10)
    assert_allclose(other.params["beta"] * 1e11, one.params["beta"], rtol=1e-6)
    assert_allclose(other.zvalues[1:3], one.zvalues[1:3], rtol=1e-5)


# --- several maxima away from the bounds: as high as the best of 25 searches from random points ---

MACRO = macrodata.load_pandas().data
GROWTH = 100 * np.log(MACRO[["realgdp", "realcons", "realinv", "realgovt", "realdpi", "m1"]]).diff().iloc[1:]


@pytest.mark.parametrize(
    "y, order, seasonal_order, best",
    [
        (GROWTH["realgdp"], (1, 1, 2), (0, 0, 0, 0), -249.7222),  # one search: -257.80, statsmodels: -257.80
        pytest.param(
            GROWTH["realinv"], (2, 0, 1), (0, 0, 0, 0), -593.9121, marks=pytest.mark.long
        ),  # -595.36, -595.36
        pytest.param(
            MACRO["unemp"], (1, 0, 1), (1, 0, 1, 4), -16.1176, marks=pytest.mark.long
        ),  # -23.82, -22.51
    ],
)
def test_processes_with_several_maxima(y, order, seasonal_order, best):
    y = np.asarray(y, float)
    fit = ss.sarimax(y, order, seasonal_order, trend=None if order[1] else "c").fit()
    assert fit.loglik > best - 1e-3 and fit.stop.starts > 1
    if order[1]:  # the value itself is statsmodels'
        reference = SARIMAX(np.diff(y), order=(order[0], 0, order[2]))
        assert_allclose(reference.loglike(fit.estimates), fit.loglik, rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("name, order, n", [("realinv", (2, 0, 1), 150), ("m1", (2, 0, 2), 60)])
def test_estimated_again_as_high_as_at_first(name, order, n):
    """A search from the old estimates alone ends up to 0.9 lower."""
    y = np.asarray(GROWTH[name], float)
    fresh = ss.sarimax(y, order).fit()
    again = ss.sarimax(y[:n], order).fit().append(y[n:], refit=True)
    assert abs(again.loglik - fresh.loglik) < 1e-8


@pytest.mark.long
def test_factors_with_several_maxima():
    """A single search ends 60 units lower, at a factor that is one of the series."""
    Y = GROWTH.drop(columns="m1")
    Y = ((Y - Y.mean()) / Y.std()).to_numpy()
    fit = ss.dynamic_factor(Y, factors=2, trend="n").fit()
    assert fit.loglik > -1154.7085  # statsmodels: -1154.70842
    assert "the highest of the maxima found from" in fit.summary()
