"""Steps of an econometrician's week in the style of statsmodels' examples; each number is compared with
statsmodels at the same parameters."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from statsmodels.datasets import macrodata, nile
from statsmodels.regression.recursive_ls import RecursiveLS
from statsmodels.tsa.statespace.mlemodel import MLEModel
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.structural import UnobservedComponents
from statsmodels.tsa.statespace.varmax import VARMAX

from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError

MACRO = macrodata.load_pandas().data
MACRO.index = pd.period_range("1959Q1", periods=len(MACRO), freq="Q")
NILE = pd.Series(nile.load_pandas().data["volume"].to_numpy(), pd.period_range("1871", periods=100, freq="Y"))
GROWTH = 100 * np.log(MACRO[["realgdp", "realcons"]]).diff().iloc[1:]


def theirs(model, fit):
    """statsmodels' result at the estimates of a fit."""
    return model.smooth(np.array([float(fit.params[name]) for name in model.param_names]))


@pytest.mark.parametrize("information", ["predicted", "filtered", "smoothed"])
@pytest.mark.parametrize("signal", [False, True], ids=["", "signal"])
def test_predictions_from_each_set_of_data(information, signal):
    fit = ss.unobserved_components(NILE, "local level").fit()
    reference = theirs(UnobservedComponents(NILE, "local level", use_exact_diffuse=True), fit)
    options = {"information_set": information, "signal_only": signal}
    for span in (("1950", "1975"), (5, 20)):
        ours, other = fit.get_prediction(*span, **options), reference.get_prediction(*span, **options)
        assert_allclose(ours.predicted_mean, other.predicted_mean, rtol=1e-8)
        assert_allclose(ours.se_mean, other.se_mean, rtol=1e-7)


def test_a_signal_has_no_regressors():
    y, X = MACRO["infl"], MACRO[["tbilrate"]]
    fit = ss.sarimax(y, (1, 0, 0), exog=X).fit()
    reference = theirs(SARIMAX(y, X, order=(1, 0, 0)), fit)
    for options in ({}, {"signal_only": True}, {"information_set": "smoothed"}):
        ours = fit.predict("2009Q1", "2010Q1", exog=np.ones((2, 1)), **options)
        other = reference.predict("2009Q1", "2010Q1", exog=np.ones((2, 1)), **options)
        assert_allclose(ours, other, rtol=1e-8)
    assert_allclose(fit.predicted_state, reference.predicted_state, rtol=1e-7, atol=1e-9)
    assert_allclose(fit.predicted_state_cov, reference.predicted_state_cov, rtol=1e-7)
    with pytest.raises(ArgumentError, match="information_set='all': wanted 'predicted', 'filtered' or"):
        fit.get_prediction(information_set="all")
    with pytest.raises(ArgumentError, match="a scenario has no information_set"):
        fit.get_prediction("2009Q3", "2010Q1", exog=np.ones((2, 1)), given=[1.0], signal_only=True)


@pytest.mark.long
def test_tests_of_residuals_by_both_methods():
    fit = ss.sarimax(GROWTH["realgdp"], (1, 0, 1), trend="c").fit()
    reference = theirs(SARIMAX(GROWTH["realgdp"], order=(1, 0, 1), trend="c"), fit)
    for method in ("ljungbox", "boxpierce"):
        other = reference.test_serial_correlation(method, lags=6)
        assert_allclose(fit.test_serial_correlation(method, lags=6), other, rtol=1e-6)


@pytest.mark.long
def test_news_of_one_variable():
    past = GROWTH.iloc[:-2]
    updated = GROWTH.iloc[:-1].copy()
    updated.iloc[-1, 1] = np.nan
    fit = ss.varmax(past, order=(1, 0), trend="c").fit()
    span = {"start": "2009Q2", "end": "2009Q4"}
    whole, part = fit.news(updated, **span), fit.news(updated, **span, impacted_variable="realcons")
    assert list(part.total_impacts) == ["realcons"]
    assert_allclose(part.total_impacts["realcons"], whole.total_impacts["realcons"], rtol=1e-12)
    reference = theirs(VARMAX(past, order=(1, 0)), fit)
    other = reference.news(
        reference.apply(updated), comparison_type="updated", impacted_variable="realcons", **span
    )
    assert_allclose(part.total_impacts, other.total_impacts[["realcons"]], rtol=1e-7, atol=1e-10)
    ours, reference = part.details_by_impact["impact"], other.details_by_impact["impact"]
    assert_allclose(ours, reference, rtol=1e-7, atol=1e-10)
    with pytest.raises(ArgumentError, match="impacted_variable='gdp'; the series are realgdp, realcons"):
        fit.news(updated, impacted_variable="gdp")


def test_frames_of_one_series():
    fit = ss.varmax(GROWTH, order=(1, 0), trend="c").fit()
    other = theirs(VARMAX(GROWTH, order=(1, 0)), fit).get_forecast(4)
    for k in range(2):
        assert_allclose(fit.get_forecast(4).summary_frame(endog=k), other.summary_frame(endog=k), rtol=1e-7)


def test_recursive_least_squares():
    X = MACRO[["unemp", "tbilrate"]].assign(one=1.0)
    fit = ss.fit(ss.noise() + ss.regression(X, varying=True, var=0), MACRO["infl"])
    other = RecursiveLS(MACRO["infl"], X).fit()
    assert_allclose(fit.llf, other.llf, rtol=1e-9)
    found = fit.components(filtered=True)["beta.unemp"].mean[5:]
    assert_allclose(found, other.recursive_coefficients.filtered[0][5:], rtol=1e-6)
    residuals = fit.standardised[5:, 0] * np.sqrt(fit.params["sigma2.irregular"])
    assert_allclose(residuals, other.resid_recursive[5:], rtol=1e-6)


class VaryingCoefficient(MLEModel):
    """A level and a coefficient that is a random walk."""

    param_names = ["sigma2.irregular", "sigma2.level", "sigma2.beta.unemp"]
    start_params = np.ones(3)

    def __init__(self, y, x):
        super().__init__(y, k_states=2)
        self.ssm.initialize_diffuse()
        self["design"] = np.stack([np.ones(len(y)), x])[None]
        self["transition"] = self["selection"] = np.eye(2)

    def update(self, params, **options):
        self["obs_cov", 0, 0] = params[0]
        self["state_cov"] = np.diag(params[1:])


def test_a_coefficient_that_varies():
    y, x = MACRO["infl"], MACRO["unemp"]
    fit = ss.fit(ss.level() + ss.regression(x.to_frame(), varying=True), y)
    other = theirs(VaryingCoefficient(y.to_numpy(), x.to_numpy()), fit)
    assert_allclose(fit.llf, other.llf, rtol=1e-8)
    assert_allclose(fit.components()["beta.unemp"].mean, other.smoothed_state[1], rtol=1e-6)
    assert_allclose(fit.smoothed_state_cov, other.smoothed_state_cov, rtol=1e-5)


@pytest.mark.long
def test_a_loop_of_forecasts():
    y = MACRO["infl"]
    fit = ss.sarimax(y[:"1999Q4"], (1, 0, 0), trend="c").fit()
    other = theirs(SARIMAX(y[:"1999Q4"], order=(1, 0, 0), trend="c"), fit)
    for date in y["2000Q1":].index:
        assert_allclose(fit.forecast(4).mean, other.forecast(4), rtol=1e-8)
        fit, other = fit.append(y[date:date]), other.append(y[date:date])


@pytest.mark.long
def test_draws_from_the_end():
    fit = ss.unobserved_components(NILE, "local level").fit()
    other = theirs(UnobservedComponents(NILE, "local level", use_exact_diffuse=True), fit)
    found = np.asarray(fit.simulate(5, anchor="end", repetitions=20000, rng=0))
    ahead = other.get_forecast(5)
    assert_allclose(found.mean(axis=1), ahead.predicted_mean, rtol=5e-3)
    assert_allclose(found.std(axis=1), ahead.se_mean, rtol=2e-2)
