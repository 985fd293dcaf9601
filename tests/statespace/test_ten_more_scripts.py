"""Ten scripts in the style of statsmodels' example notebooks, chosen before any was tried; each number is
compared with statsmodels at the same parameters, or with 40 digits where that loses some."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import toeplitz
from scipy.stats import multivariate_normal
from statsmodels.datasets import macrodata
from statsmodels.tsa.statespace.dynamic_factor import DynamicFactor
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.structural import UnobservedComponents
from statsmodels.tsa.statespace.varmax import VARMAX

from tapegrad import statespace as ss

pytestmark = pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.EstimationWarning")
MACRO = macrodata.load_pandas().data
MACRO.index = pd.period_range("1959Q1", periods=len(MACRO), freq="Q")
GROWTH = 100 * np.log(MACRO[["realgdp", "realcons", "realinv", "realdpi"]]).diff().iloc[1:]


def theirs(model, fit, **other):
    """statsmodels' result at the estimates of a fit; `other` are numbers under names of its own."""
    return model.smooth([float(other[x] if x in other else fit.params[x]) for x in model.param_names])


@pytest.mark.long
def test_orders_by_a_criterion():
    y = GROWTH["realgdp"].copy()
    y.iloc[[3, 50, 51, 120]] = np.nan
    for order in ((1, 0, 0), (2, 0, 0), (0, 0, 1), (1, 0, 1), (2, 0, 2)):
        fit = ss.sarimax(y, order, trend="c").fit()
        other = SARIMAX(y, order=order, trend="c")
        assert_allclose(fit.aic, theirs(other, fit).aic, rtol=1e-8)
        assert fit.llf > other.fit(disp=0).llf - 1e-6
        assert_allclose(fit.bic, -2 * fit.llf + len(fit.names) * np.log(y.notna().sum()), rtol=1e-12)


@pytest.mark.long
def test_a_cycle_of_unemployment():
    """The cycle begins in its stationary distribution, as documented; in statsmodels it is diffuse too. The
    differences have a normal density of closed form."""
    y, options = MACRO["unemp"], {"cycle": True, "stochastic_cycle": True, "damped_cycle": True}
    fit = ss.unobserved_components(y, "rwalk", **options).fit()
    level, noise, period, damping = fit.estimates
    steps = np.arange(len(y))
    cycle = noise / (1 - damping**2) * damping**steps * np.cos(2 * np.pi / period * steps)
    D = np.diff(np.eye(len(y)), axis=0)
    cov = D @ toeplitz(cycle) @ D.T + level * np.eye(len(y) - 1)
    known = multivariate_normal(np.zeros(len(y) - 1), cov).logpdf(np.diff(y))
    assert_allclose(fit.llf, known - 0.5 * np.log(2 * np.pi), rtol=1e-10)
    # the cycle given the data: y is a first value, about which nothing is known, plus sums of differences
    given = toeplitz(cycle) @ D.T @ np.linalg.solve(cov, np.diff(y))
    assert_allclose(fit.cycle.smoothed, given, rtol=1e-7, atol=1e-9)
    assert_allclose(fit.level.smoothed + fit.cycle.smoothed, y, rtol=1e-10)


@pytest.mark.long
def test_forecasts_from_each_quarter_on():
    y, n = MACRO["infl"], 150
    fit = ss.sarimax(y.iloc[:n], (2, 0, 0), trend="c").fit()
    other = theirs(SARIMAX(y.iloc[:n], order=(2, 0, 0), trend="c"), fit)
    for t in range(n, n + 8):
        assert_allclose(fit.forecast(4).mean, other.forecast(4), rtol=1e-8)
        fit, other = fit.extend(y.iloc[t : t + 1]), other.extend(y.iloc[t : t + 1])


@pytest.mark.long
def test_responses_of_a_vector_process():
    Y = GROWTH[["realgdp", "realcons"]]
    fit = ss.varmax(Y, order=(1, 1), trend="c").fit()
    other = theirs(VARMAX(Y, order=(1, 1), trend="c"), fit)
    for options in (
        {"orthogonalized": True},
        {"cumulative": True},
        {"impulse": 1, "orthogonalized": True, "cumulative": True},
        {"impulse": np.array([1.0, 0.5])},
    ):
        found = fit.impulse_responses(8, **options)
        assert_allclose(found, other.impulse_responses(8, **options), rtol=1e-7, atol=1e-10)


@pytest.mark.long
def test_two_seasons_of_waves():
    """statsmodels' exact diffuse filter is off by 1.2e-3 here: -134.93743."""
    rng, t = np.random.default_rng(0), np.arange(300.0)
    y = np.cos(t * 2 * np.pi / 10) + 0.5 * np.sin(t * 2 * np.pi / 25)
    y = y + 0.3 * rng.normal(size=300) + 0.1 * rng.normal(size=300).cumsum()
    waves = [{"period": 10, "harmonics": 2}, {"period": 25, "harmonics": 3}]
    fit = ss.unobserved_components(y, "llevel", freq_seasonal=waves).fit()
    assert fit.at_bound == ["sigma2.freq_seasonal_25(3)"]
    assert_allclose(fit.llf, -134.9386107267915, rtol=1e-10)  # a dense normal in 40 digits
    model = UnobservedComponents(y, "llevel", freq_seasonal=waves, use_exact_diffuse=True)
    for found, other in zip(fit.freq_seasonal, theirs(model, fit).freq_seasonal, strict=True):
        assert_allclose(found.smoothed, other.smoothed, atol=2e-3)  # theirs is off


def test_news_of_a_revision():
    y = GROWTH["realgdp"]
    past, revised = y.iloc[:-2], y.copy()
    revised.iloc[-4] += 0.5
    fit = ss.sarimax(past, (1, 0, 1), trend="c").fit()
    reference = theirs(SARIMAX(past, order=(1, 0, 1), trend="c"), fit)
    span = {"start": "2009Q3", "end": "2010Q2"}
    found = fit.news(revised, **span)
    other = reference.news(reference.apply(revised), comparison_type="updated", **span)
    kinds = ("total_impacts", "revision_impacts", "update_impacts")
    for name in (*kinds, "prev_impacted_forecasts", "post_impacted_forecasts"):
        x, wanted = (np.asarray(getattr(r, name), float).ravel() for r in (found, other))
        assert_allclose(x, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.long
def test_a_coefficient_held():
    y = np.log(MACRO["cpi"])
    fit = ss.sarimax(y, (1, 1, 1), trend="c").fit(fixed={"ma.L1": 0.4})
    model = SARIMAX(y, order=(1, 1, 1), trend="c", simple_differencing=True)
    other = model.fit_constrained({"ma.L1": 0.4}, disp=0, method="nm", maxiter=5000)
    assert -1e-9 < fit.llf - other.llf < 1e-5
    assert_allclose(fit.aic, other.aic, atol=1e-4)
    with model.fix_params({"ma.L1": 0.4}):
        approximate = model.smooth(other.params.drop("ma.L1"), cov_type="approx").bse
    assert_allclose(fit.bse["ar.L1"], approximate["ar.L1"], rtol=2e-2)


def test_a_trend_written_by_hand():
    """statsmodels' exact diffuse filter has seven digits here: 649.977352."""
    y = np.log(MACRO["realgdp"])
    y.iloc[100:104] = np.nan

    def build(p):
        noise = np.stack([p["level"], p["slope"]])
        T = np.array([[1.0, 1.0], [0.0, 1.0]])
        return ss.LinearGaussian(T, np.array([1.0, 0.0]), noise, p["noise"], state_names=["level", "slope"])

    fit = ss.fit(build, y, {"level": 1e-4, "slope": 1e-5, "noise": 1e-5}, ss.positive())
    assert_allclose(fit.llf, 649.977291316571, rtol=1e-11)  # a dense normal in 40 digits
    model = UnobservedComponents(y, "lltrend", use_exact_diffuse=True)
    other = model.smooth([float(fit.params[k]) for k in ("noise", "level", "slope")])
    assert_allclose(fit.states.smoothed["slope"], other.smoothed_state[1], atol=2e-7)
    found, wanted = (r.get_prediction("1983Q4", "1985Q1") for r in (fit, other))
    assert_allclose(found.predicted_mean, wanted.predicted_mean, rtol=2e-7)
    assert_allclose(fit.fittedvalues.iloc[2:], other.fittedvalues.iloc[2:], rtol=1e-7)


@pytest.mark.long
def test_an_index_of_the_state_of_the_economy():
    Y = (GROWTH - GROWTH.mean()) / GROWTH.std()
    fit = ss.dynamic_factor(Y, factors=1, order=2, error_order=1, trend="n").fit()
    p = fit.params
    own = np.concatenate(
        [*[np.ravel(p[x]) for x in ("loadings", "sigma2", "transition")], *[p[f"error_ar.{c}"] for c in Y]]
    )
    other = DynamicFactor(Y, k_factors=1, factor_order=2, error_order=1).smooth(own)
    assert_allclose(fit.llf, other.llf, rtol=1e-8)
    assert_allclose(fit.factors.smoothed[0], other.factors.smoothed[0], rtol=1e-6, atol=1e-9)
    assert_allclose(fit.forecast(3).mean, other.forecast(3), rtol=1e-6, atol=1e-9)
    with pytest.raises(AttributeError, match=r"write numpy\.corrcoef") as caught:
        fit.coefficients_of_determination  # noqa: B018
    assert "coefficients_of_determination" in str(caught.value)
    shares = [np.corrcoef(Y[c], fit.factors.smoothed[0])[0, 1] ** 2 for c in Y]
    assert_allclose(shares, other.coefficients_of_determination[:, 0], rtol=1e-4)


@pytest.mark.long
def test_two_paths_of_regressors():
    y, X = MACRO["infl"], MACRO[["unemp", "tbilrate"]]
    fit = ss.sarimax(y, (1, 0, 0), (1, 0, 0, 4), exog=X).fit()
    other = theirs(SARIMAX(y, X, order=(1, 0, 0), seasonal_order=(1, 0, 0, 4)), fit)
    dates = pd.period_range("2009Q4", periods=4, freq="Q")
    for unemployment in (9.0, 11.0):
        path = pd.DataFrame({"unemp": unemployment, "tbilrate": [0.1, 0.2, 0.3, 0.4]}, index=dates)
        found, wanted = (r.get_forecast(4, exog=path) for r in (fit, other))
        pd.testing.assert_frame_equal(
            found.summary_frame(alpha=0.1), wanted.summary_frame(alpha=0.1), rtol=1e-7, check_names=False
        )
        assert_allclose(found.conf_int(alpha=0.2), wanted.conf_int(alpha=0.2), rtol=1e-7)
    b, V = fit.estimates[:2], np.asarray(fit.covariance)[:2, :2]
    assert_allclose(fit.wald_test("unemp = 0, tbilrate = 0").statistic, b @ np.linalg.solve(V, b), rtol=1e-9)
