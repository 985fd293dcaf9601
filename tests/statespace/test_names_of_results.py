"""What statsmodels' users type: each name has statsmodels' value at the same parameters, or says what to
write."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from statsmodels.tsa.statespace.dynamic_factor import DynamicFactor
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.structural import UnobservedComponents
from statsmodels.tsa.statespace.varmax import VARMAX

from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError

G = np.random.default_rng(4)
INDEX = pd.period_range("2000-01", periods=96, freq="M")
T = np.arange(96)
Y = pd.Series(
    0.3 * G.normal(size=96).cumsum() + np.sin(T * np.pi / 6) + 0.4 * G.normal(size=96), INDEX, name="sales"
)
GAPS = Y.mask(np.isin(T, [40, 41, 70]))
X = pd.DataFrame({"price": G.normal(size=96)}, INDEX)
F = np.convolve(G.normal(size=110), 0.8 ** np.arange(15))[14:110]
SEVERAL = pd.DataFrame(np.outer(F, [1.0, 0.6, -0.5]) + G.normal(size=(96, 3)), INDEX, list("abc"))
SEVERAL = SEVERAL - SEVERAL.mean()

CASES = {
    "sarimax": (
        lambda: ss.sarimax(Y, order=(2, 0, 1), seasonal_order=(1, 0, 0, 12)),
        lambda: SARIMAX(Y, order=(2, 0, 1), seasonal_order=(1, 0, 0, 12)),
    ),
    "sarimax with gaps": (
        lambda: ss.sarimax(GAPS, order=(1, 0, 1), exog=X),
        lambda: SARIMAX(GAPS, X, order=(1, 0, 1)),
    ),
    "differences": (
        lambda: ss.sarimax(Y, order=(1, 1, 1)),
        lambda: SARIMAX(Y, order=(1, 1, 1), use_exact_diffuse=True),
    ),
    "structural": (
        lambda: ss.unobserved_components(GAPS, "lltrend", seasonal=4, autoregressive=1),
        lambda: UnobservedComponents(GAPS, "lltrend", seasonal=4, autoregressive=1, use_exact_diffuse=True),
    ),
    "vectors": (
        lambda: ss.varmax(SEVERAL[["a", "b"]], order=(2, 0)),
        lambda: VARMAX(SEVERAL[["a", "b"]], order=(2, 0)),
    ),
    "factor": (
        lambda: ss.dynamic_factor(SEVERAL, order=2, trend="n"),
        lambda: DynamicFactor(SEVERAL, k_factors=1, factor_order=2),
    ),
}
GAPPED = {name: name in ("sarimax with gaps", "structural") for name in CASES}
NUMBERS = "llf nobs nobs_effective sse mse mae aic bic hqic aicc use_t df_model".split()
SERIES = "fittedvalues resid llf_obs forecasts forecasts_error forecasts_error_cov".split()
OF_ARIMA = """arparams maparams seasonalarparams seasonalmaparams polynomial_reduced_ar
polynomial_reduced_ma""".split()
OF_STATES = """filtered_state filtered_state_cov smoothed_state smoothed_state_cov predicted_state
predicted_state_cov""".split()


LONG = ("sarimax", "differences", "factor")


@pytest.fixture(
    scope="module", params=[pytest.param(x, marks=[pytest.mark.long] * (x in LONG)) for x in CASES]
)
def pair(request):
    ours, theirs = CASES[request.param]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit, model = ours().fit(), theirs()
        by_name = fit.fixed | dict(zip(fit.names, fit.estimates, strict=True))
        return request.param, fit, model.smooth([by_name[name] for name in model.param_names])


def test_numbers_and_series(pair):
    """In the diffuse steps, which statsmodels' sums include, ours are nan."""
    name, fit, reference = pair
    skipped = fit.nobs_diffuse
    differenced = name == "differences"  # criteria of the differenced series; statsmodels' of the levels
    for key in NUMBERS:
        if key in ("sse", "mse", "mae") and (skipped or GAPPED[name]):
            e = np.asarray(reference.resid)[skipped:]
            wanted = {"sse": np.nansum(e**2), "mse": np.nanmean(e**2), "mae": np.nanmean(abs(e))}[key]
        elif GAPPED[name] and key in ("bic", "aicc", "hqic"):
            continue  # here the steps with an observation count
        elif differenced and key not in ("nobs", "use_t"):
            continue
        else:
            wanted = getattr(reference, key)
        np.testing.assert_allclose(getattr(fit, key), wanted, rtol=1e-7, err_msg=key)
    for key in SERIES:
        found, wanted = (np.asarray(getattr(x, key)) for x in (fit, reference))
        if key == "llf_obs" and skipped:
            continue
        time = -1 if key.startswith("forecasts") else 0
        rest = [np.moveaxis(x, time, 0)[skipped:] for x in (found, wanted)]
        np.testing.assert_allclose(*rest, rtol=1e-6, atol=1e-8, err_msg=key)
    assert fit.resid.index.equals(INDEX) and fit.fittedvalues.index.equals(INDEX)
    np.testing.assert_allclose(sum(fit.llf_obs) + fit.problem.offset, fit.llf, rtol=1e-10)


def test_states(pair):
    name, fit, reference = pair
    if name == "differences":  # other states, the same series
        Z = np.asarray(fit.model.observation).reshape(-1)
        np.testing.assert_allclose(Z @ fit.smoothed_state, Y, rtol=1e-7)
        return
    for key in OF_STATES[: 4 if "gaps" in name else 6]:  # with regressors, the next state is not known
        found, wanted = (np.moveaxis(getattr(x, key), -1, 0) for x in (fit, reference))
        assert found.shape == wanted.shape, key
        begin = 0 if key.startswith("smoothed") else fit.nobs_diffuse
        np.testing.assert_allclose(found[begin:], wanted[begin:], rtol=1e-5, atol=1e-7, err_msg=key)
    found, wanted = (x.smoothed_measurement_disturbance for x in (fit, reference))
    np.testing.assert_allclose(found, np.where(np.isnan(found), np.nan, wanted), atol=1e-6)


def test_names_of_single_models(pair):
    name, fit, reference = pair
    if name in ("sarimax", "sarimax with gaps", "differences"):
        for key in OF_ARIMA:
            np.testing.assert_allclose(getattr(fit, key), getattr(reference, key), rtol=1e-12, err_msg=key)
        for key in ("arroots", "maroots", "arfreq", "mafreq"):
            found, wanted = np.sort(getattr(fit, key)), np.sort(getattr(reference, key))
            np.testing.assert_allclose(found, wanted, rtol=1e-9, err_msg=key)
    elif name == "structural":
        for key in ("level", "trend", "seasonal", "autoregressive"):
            found, wanted = getattr(fit, key), getattr(reference, key)
            for part in ("smoothed", "smoothed_cov", "filtered", "filtered_cov"):
                begin = 0 if part.startswith("smoothed") else fit.nobs_diffuse
                pairs = getattr(found, part)[begin:], getattr(wanted, part)[begin:]
                np.testing.assert_allclose(*pairs, rtol=1e-6, atol=1e-8, err_msg=f"{key}.{part}")
            assert found.smoothed.index.equals(INDEX)
        assert fit.cycle is None and fit.freq_seasonal == []
    elif name == "vectors":
        np.testing.assert_allclose(fit.coefficient_matrices_var, reference.coefficient_matrices_var)
        assert fit.coefficient_matrices_vma is None
    else:
        np.testing.assert_allclose(fit.coefficient_matrices_var, reference.coefficient_matrices_var)
        for part in ("filtered", "filtered_cov", "smoothed", "smoothed_cov"):
            found, wanted = getattr(fit.factors, part), getattr(reference.factors, part)
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


def test_every_name_of_statsmodels_is_there_or_says_what_to_write(pair):
    name, fit, reference = pair
    if name in ("differences", "sarimax"):
        return  # as with gaps
    unknown = {"k_constant", "model_orders", "param_terms", "forecasts_error_diffuse_cov"}
    for key in {x for x in dir(reference) if x[0] != "_"} - unknown:
        try:
            getattr(fit, key)
        except AttributeError as error:
            assert "; write " in str(error), key
    assert {"llf", "smoothed_state", "resid"} <= set(dir(fit))
    with pytest.raises(AttributeError, match="has no attribute 'arrots'"):
        fit.arrots  # noqa: B018


@pytest.mark.long
def test_names_of_news(pair):
    """New months, a filled gap and no revision, by each name of statsmodels."""
    name, fit, reference = pair
    if name not in ("structural", "vectors"):
        return
    earlier, later = fit.data.raw[:90].copy(), fit.data.raw.copy()
    later[60] = earlier[60]
    earlier[60] = np.nan

    def frame(x):
        return (
            pd.Series(x[:, 0], INDEX[: len(x)], name="sales")
            if x.shape[1] == 1
            else pd.DataFrame(x, INDEX[: len(x)], ["a", "b"])
        )

    span = {"start": "2007-06", "end": "2007-12"}
    found = fit.apply(frame(earlier)).news(frame(later), **span)
    wanted = reference.apply(frame(earlier)).news(reference.apply(frame(later)), **span)
    for key in """total_impacts update_impacts prev_impacted_forecasts post_impacted_forecasts
        news weights update_realized update_forecasts data_updates""".split():
        a, b = getattr(found, key), getattr(wanted, key)
        assert a.shape == b.shape, key
        np.testing.assert_allclose(
            np.asarray(a, float), np.asarray(b, float), rtol=1e-5, atol=1e-8, err_msg=key
        )
    assert found.total_impacts.index.equals(wanted.total_impacts.index)
    assert list(found.news.index) == list(wanted.news.index)
    for key in ("details_by_impact", "details_by_update"):
        a, b = getattr(found, key), getattr(wanted, key)
        assert list(a.index.names) == list(b.index.names)
        np.testing.assert_allclose(a["impact"].sum(), b["impact"].sum(), rtol=1e-6)
    assert not found.revision_impacts.to_numpy().any()
    assert found.revised.size == wanted.revised.size == 0
    # behind the new data statsmodels' weights do not add up to its own total impacts; these do
    span = {"start": "2008-01", "end": "2008-03"}
    found = fit.apply(frame(earlier)).news(frame(later), **span)
    wanted = reference.apply(frame(earlier)).news(reference.apply(frame(later)), **span)
    np.testing.assert_allclose(found.total_impacts, wanted.total_impacts, rtol=1e-6)
    np.testing.assert_allclose(found.update_impacts, wanted.total_impacts, rtol=1e-6)
    only = fit.apply(frame(earlier)).news(frame(later), impact_date="2008-01")
    assert [str(date) for date in only.dates] == ["2008-01"]


def test_what_users_type():
    specified = ss.sarimax(Y, order=(2, 1, 0))
    fit = specified.fit(disp=False)
    assert fit.params["ar.L2"] == fit.params["ar"][1] == fit.estimates[1]
    with pytest.raises(KeyError, match="ar.L9.* wanted one of ar.L1, ar.L2, sigma2"):
        fit.params["ar.L9"]
    with pytest.raises(ArgumentError, match=r"no argument 'maxiter'; write options="):
        specified.fit(maxiter=9)
    with pytest.raises(AttributeError, match=r"no 'fit_constrained'; write fit\(fixed="):
        specified.fit_constrained({})
    with pytest.raises(AttributeError, match=r"no 'iloc'; write .mean.iloc"):
        fit.forecast(3).iloc  # noqa: B018
    np.testing.assert_array_equal(np.exp(fit.forecast(3)), np.exp(fit.forecast(3).mean.to_numpy()))
    draws = fit.simulate(4, repetitions=3000, rng=1)
    assert draws.shape == (4, 3000) and draws.columns[0] == ("sales", 0)
    ahead = fit.forecast(4)
    assert draws.index.equals(ahead.dates)
    assert (abs(draws.mean(axis=1) - ahead.mean) < 4 * ahead.se_mean / 3000**0.5).all()
    assert fit.simulate(4, repetitions=2, anchor="2007-11").index[[0, -1]].astype(str).tolist() == [
        "2007-11",
        "2008-02",
    ]
    assert ss.fit(ss.level(), Y.to_numpy()).simulate(4, repetitions=2).shape == (4, 1, 2)
    head, table, tests = fit.summary().tables
    assert (
        all(line in fit.summary() for line in f"{table}\n{tests}".splitlines()) and "Log-likelihood" in head
    )
    assert table.as_html().count("<tr>") == 4 and "<td>ar.L1</td>" in fit.summary().as_html()


def test_tests_of_restrictions(pair):
    """Against statsmodels' with the same covariance."""
    _, fit, reference = pair
    order = [list(reference.model.param_names).index(name) for name in fit.names]
    k = len(order)
    R = np.eye(k)[:2] + 0.5 * np.eye(k)[1:3]
    whole, V = np.zeros((2, reference.params.size)), np.zeros((reference.params.size,) * 2)
    whole[:, order] = R
    V[np.ix_(order, order)] = fit.covariance
    if np.isnan(V).any():
        with pytest.raises(ArgumentError, match="at the bound of its constraint"):
            fit.t_test(np.eye(k)[[i for i in range(k) if fit.names[i] in fit.at_bound]])
        return
    found, wanted = fit.t_test(R), reference.t_test(whole, cov_p=V)
    for key in ("effect", "sd", "tvalue", "pvalue", "statistic"):
        np.testing.assert_allclose(
            getattr(found, key), np.squeeze(getattr(wanted, key)), rtol=1e-9, err_msg=key
        )
    np.testing.assert_allclose(found.conf_int(0.1), wanted.conf_int(0.1), rtol=1e-9)
    found, wanted = fit.f_test(R), reference.f_test(whole, cov_p=V)
    np.testing.assert_allclose(found.statistic, np.squeeze(wanted.statistic), rtol=1e-9)
    np.testing.assert_allclose(found.pvalue, chi2.sf(2 * found.statistic, 2), rtol=1e-9)
    assert (found.degrees, found.df_denom) == (2, np.inf)
    np.testing.assert_allclose(fit.cov_params(r_matrix=R), R @ fit.covariance @ R.T)
    assert list(fit.conf_int().index) == fit.names and list(fit.conf_int().columns) == [0, 1]
    name = fit.names[0]
    assert fit.t_test(name).effect == fit.t_test(f"{name} = 0").effect == fit.estimates[0]
