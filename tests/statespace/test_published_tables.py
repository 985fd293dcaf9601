"""Published numbers of Stata, R (KFAS, FKF), Gauss (Kim and Nelson) and Matlab (Durbin and Koopman), as
statsmodels' tests keep them.

They are read from the installed package: 8,000 numbers in all. Likelihoods and states agree at the printed
digits. Estimates of other programs are where their searches stopped: they are within a hundredth of a
standard error of the maximum."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from statsmodels import datasets
from statsmodels.tsa.statespace.tests import results
from statsmodels.tsa.statespace.tests.results import (
    results_dynamic_factor,
    results_kalman_filter,
    results_sarimax,
    results_structural,
    results_varmax,
)

from tapegrad import statespace as ss

pytestmark = pytest.mark.one_in(4)  # its cases compile

FOLDER = Path(results.__file__).parent
MACRO = datasets.macrodata.load_pandas().data
GROWTH = 400 * np.diff(np.log(MACRO[["realgdp", "realcons"]].to_numpy()[:21]), axis=0)
GERMANY = pd.DataFrame(
    np.diff(np.log(results_varmax.lutkepohl_data), axis=0)[:75], columns=["dln_inv", "dln_inc", "dln_consump"]
)
LOG_2PI = np.log(2 * np.pi)


def decimals(x):
    """The place of the last printed digit of x."""
    digits, _, exponent = f"{x!r}".partition("e")
    return len(digits.partition(".")[2]) - int(exponent or 0)


def printed(found, wanted, units=1.0, digits=15):
    """Compare at the printed digits: `units` in the last place of the longest number of each column.

    Zeros at the end are not printed, so that the longest number tells the places. No number has more than
    `digits`."""
    wanted = np.asarray(wanted, float)
    found = np.asarray(found, float)
    assert found.shape == wanted.shape
    for x, y in zip(found.reshape(len(wanted), -1).T, wanted.reshape(len(wanted), -1).T, strict=True):
        given = np.flatnonzero(~np.isnan(y))
        last = 10.0 ** -max(decimals(float(v)) for v in y[given])
        size = 10.0 ** (np.floor(np.log10(np.maximum(abs(y[given]), 1e-300))) + 1 - digits)
        size = np.maximum(size, size.max() if digits == 15 else 1e-15)
        wrong = abs(x[given] - y[given]) > units * np.maximum(last, size)
        assert not wrong.any(), (x[given][wrong], y[given][wrong])
    return int((~np.isnan(wanted)).sum())


def near_maximum(fit, published, names=None):
    """The published estimates are near those of the fit, in units of standard errors."""
    rows = [fit.names.index(name) for name in names or fit.names]
    np.testing.assert_allclose(
        (np.array(published) - fit.estimates[rows]) / fit.standard_errors[rows], 0.0, atol=0.01
    )


# --- KFAS: exact diffuse starts -----------------------------------------------------------------------------

RISE = np.r_[10.2394, np.ones(9)]
BOTH = np.column_stack([RISE, np.r_[8.2304, np.ones(9)]])
PHI, NOISE = np.array([[0.5, 0.3], [0.2, 0.4]]), np.diag([2.0, 3.0])
MISSING = GROWTH.copy()
MISSING[:5, 0] = np.nan
MISSING[8:12] = np.nan
TREND = np.r_[10.2394, 4.2039, 6.123123, np.ones(7)]
LATE = TREND.copy()
LATE[1] = np.nan
MIXED = ss.Start(0.0, np.diag([0.0, 2.0]), [True, False])
EXACT = {
    "local_level": (ss.local_level(1.993, 8.253), RISE),
    "local_linear_trend": (ss.local_linear_trend(1.993, 8.253, 2.334), TREND),
    "local_linear_trend_missing": (ss.local_linear_trend(1.993, 8.253, 2.334), LATE),
    "common_level": (
        ss.LinearGaussian(np.eye(2), np.array([[1.0, 0.0], [0.1111, 1.0]]), [3.2324, 0.0], np.ones(2)),
        BOTH,
    ),
    "common_level_restricted": (
        ss.LinearGaussian(1.0, np.array([[1.0], [0.1111]]), 3.2324, np.ones(2)),
        BOTH,
    ),
    "var1": (ss.LinearGaussian(PHI, np.eye(2), NOISE, np.zeros(2)), GROWTH),
    "var1_missing": (ss.LinearGaussian(PHI, np.eye(2), NOISE, np.zeros(2)), MISSING),
    "var1_measurement_error": (ss.LinearGaussian(PHI, np.eye(2), NOISE, np.array([4.0, 5.0])), GROWTH),
    "dfm": (
        ss.LinearGaussian(
            np.array([[0.9, 0.1], [1.0, 0.0]]),
            np.array([[0.5, 0.0], [1.0, 0.0]]),
            1.0,
            np.array([1.5, 2.0]),
            np.array([[1.0], [0.0]]),
        ),
        GROWTH,
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_diffuse_starts_of_kfas(name):
    """Filtered and smoothed states and log-likelihood.

    KFAS leaves out log(2 pi) / 2 for each diffuse element. Its states of the diffuse steps are wrong where
    two observations see one diffuse element, as statsmodels' authors found too; `test_multiple_precision`
    covers such starts."""
    model, y = EXACT[name]
    table = pd.read_csv(FOLDER / f"results_exact_initial_{name}_R.csv")
    filtered, smoothed, n = ss.filter(model, y), ss.smooth(model, y), len(y)
    m = filtered.filtered_mean.shape[1]
    first = filtered.diffuse_steps if name in ("dfm", "common_level_restricted") else 0
    of = lambda prefix, k: table[[f"{prefix}_{i + 1}" for i in range(k)]].to_numpy()[first:n]
    np.testing.assert_allclose(filtered.loglik, table["llf"][0] - LOG_2PI / 2 * m, rtol=1e-12)
    counted = 1 + printed(smoothed.mean[first:], of("alphahat", m), 1e6)
    later = max(first, filtered.diffuse_steps)
    counted += printed(filtered.predicted_mean[later:], of("a", m)[later - first :], 1e6)
    if "sumV" in table:
        counted += printed(smoothed.cov[first:].sum(axis=(1, 2)), table["sumV"].to_numpy()[first:n], 1e6)
        counted += printed(
            filtered.predicted_cov[later:].sum(axis=(1, 2)), table["sumP"].to_numpy()[later:n], 1e6
        )
    else:
        counted += printed(smoothed.cov[first:].reshape(n - first, -1), of("V", m * m), 1e6)
        counted += printed(
            filtered.predicted_cov[later:].reshape(n - later, -1), of("P", m * m)[later - first :], 1e6
        )
    assert counted > 30


# --- KFAS: structural models --------------------------------------------------------------------------------

UNEMPLOYED = MACRO["unemp"].to_numpy()
DIFFUSE = {
    "local_level": 1,
    "random_walk": 1,
    "local_linear_trend": 2,
    "smooth_trend": 2,
    "random_trend": 2,
    "rtrend_ar1": 2,
}
DIFFUSE |= {
    "irregular": 0,
    "deterministic_constant": 1,
    "deterministic_trend": 2,
    "local_linear_deterministic_trend": 2,
}
DIFFUSE |= {"random_walk_with_drift": 2}
STRUCTURAL = {
    "irregular": ss.Structural((ss.noise().parts[0],)),
    "deterministic_constant": ss.level(var=0),
    "local_level": ss.level(),
    "random_walk": ss.level() + ss.noise(var=0),
    "deterministic_trend": ss.level(var=0) + ss.trend(var=0),
    "local_linear_deterministic_trend": ss.level() + ss.trend(var=0),
    "random_walk_with_drift": ss.level() + ss.trend(var=0) + ss.noise(var=0),
    "local_linear_trend": ss.level() + ss.trend(),
    "smooth_trend": ss.level(var=0) + ss.trend(),
    "random_trend": ss.level(var=0) + ss.trend() + ss.noise(var=0),
    "rtrend_ar1": ss.level(var=0)
    + ss.trend()
    + ss.ar(1)
    + ss.noise(var=0),  # the highest point is at a unit root
}


@pytest.mark.parametrize("name", STRUCTURAL)
def test_structural_models_of_kfas(name):
    """The unemployment rate of the United States; KFAS' searches stopped within 1e-4 of the maxima."""
    true = getattr(results_structural, name)
    fit = ss.fit(STRUCTURAL[name], UNEMPLOYED)
    published = true["llf"] - LOG_2PI / 2 * DIFFUSE[name]
    assert fit.loglik > published - 1e-6
    if not fit.at_bound:
        np.testing.assert_allclose(fit.loglik, published, atol=2e-5)
        near_maximum(fit, sorted(true["params"]), [fit.names[i] for i in np.argsort(fit.estimates)])


# --- Stata: ARIMA -------------------------------------------------------------------------------------------


KINDS = {"oim": "exact", "opg": "opg", "robust": "robust"}


def of_stata(true, *parts):
    return np.concatenate([np.ravel(true[part]) for part in parts])


@pytest.mark.long
def test_prices_with_three_lags():
    true = results_sarimax.wpi1_ar3
    fit = ss.sarimax(true["data"], order=(3, 1, 0)).fit()
    near_maximum(fit, of_stata(true, "params_ar", "params_variance"))
    np.testing.assert_allclose(fit.standard_errors, of_stata(true, "se_ar", "se_variance"), rtol=1e-4)
    assert printed([fit.loglik], [true["loglike"]], 2) and printed(
        [fit.aic, fit.bic], [true["aic"], true["bic"]], 2
    )


@pytest.mark.parametrize("name", ["wpi1_stationary", "wpi1_seasonal"])
def test_prices(name):
    true = getattr(results_sarimax, name)
    if name == "wpi1_stationary":
        model = ss.sarimax(true["data"], order=(1, 1, 1), trend="c")
    else:
        model = ss.sarimax(np.log(true["data"]), order=(1, 1, [1, 4]), trend="c")
    fit = model.fit()
    found, J = (
        [fit.params["intercept"] / (1 - fit.params["ar"][0]), *fit.estimates[1:]],
        np.eye(len(fit.names)),
    )
    J[0, :2] = [1 / (1 - fit.params["ar"][0]), found[0] / (1 - fit.params["ar"][0])]
    J[-1, -1] = 0.5 / fit.params["sigma2"] ** 0.5
    errors = {kind: np.sqrt(np.diag(J @ fit.cov(cov) @ J.T)) for kind, cov in KINDS.items()}
    wanted = of_stata(true, "params_mean", "params_ar", "params_ma")
    np.testing.assert_allclose((wanted - found[:-1]) / errors["oim"][:-1], 0.0, atol=0.01)
    np.testing.assert_allclose(fit.params["sigma2"], true["params_variance"][0], rtol=2e-4)
    for kind, error in errors.items():
        for part, at in (("mean", [0]), ("ar", [1]), ("ma", range(2, len(found) - 1)), ("stddev", [-1])):
            if f"se_{part}_{kind}" in true:
                np.testing.assert_allclose(error[list(at)], true[f"se_{part}_{kind}"], rtol=5e-3)
    printed([fit.loglik], [true["loglike"]], 2)
    printed([fit.aic, fit.bic], [true["aic"], true["bic"]], 2)


def test_passengers():
    true = results_sarimax.air2_stationary
    fit = ss.sarimax(np.log(true["data"]), order=(0, 1, 1), seasonal_order=(0, 1, 1, 12)).fit()
    near_maximum(fit, of_stata(true, "params_ma", "params_seasonal_ma", "params_variance"))
    for kind in ("oim", "opg"):
        errors = np.sqrt(np.diag(fit.cov(KINDS[kind])))
        np.testing.assert_allclose(
            errors[:2], of_stata(true, f"se_ma_{kind}", f"se_seasonal_ma_{kind}"), rtol=1e-4
        )
        np.testing.assert_allclose(
            errors[2] / 2 / fit.params["sigma2"] ** 0.5, true[f"se_stddev_{kind}"][0], rtol=1e-4
        )
    printed([fit.loglik], [true["loglike"]], 3)
    printed([fit.aic, fit.bic], [true["aic"], true["bic"]], 2)


def friedman(true, rows=slice(None)):
    consumption, money = np.array(true["data"]["consump"])[rows], np.array(true["data"]["m2"])[rows]
    return ss.sarimax(consumption, order=(1, 0, 1), exog=np.column_stack([np.ones(consumption.size), money]))


@pytest.mark.long
def test_consumption():
    true = results_sarimax.friedman2_mle
    fit = friedman(true).fit()
    near_maximum(fit, of_stata(true, "params_exog", "params_ar", "params_ma", "params_variance"))
    errors = np.sqrt(np.diag(fit.cov("opg")))[:4]
    np.testing.assert_allclose(errors, of_stata(true, "se_exog_opg", "se_ar_opg", "se_ma_opg"), rtol=1e-3)
    printed([fit.loglik], [true["loglike"]], 2)
    printed([fit.aic, fit.bic], [true["aic"], true["bic"]], 2)


def at(model, params, like):
    """The fit `like`, on the data of a model, at other parameters."""
    return replace(like, params=params, model=like.problem.model(params))


def test_consumption_predicted():
    """Predictions from one quarter to the next, and from 1978 on from their own past, at Stata's printed
    parameters."""
    true = results_sarimax.friedman2_predict
    blocks = {
        "ar": true["params_ar"],
        "ma": true["params_ma"],
        "beta": true["params_exog"],
        "sigma2": true["params_variance"],
    }
    fit = friedman(true).fit(
        fixed={"x1": blocks["beta"][0], "x2": blocks["beta"][1], "ar.L1": blocks["ar"][0]}
    )
    params = {name: np.array(x) if name != "sigma2" else x[0] for name, x in blocks.items()}
    fit = at(fit.problem.described, params, fit)
    n = len(true["predict"])
    assert printed(fit.get_prediction().mean, true["predict"], digits=7) == n
    assert printed(fit.get_prediction(dynamic=n - 16).mean, true["dynamic_predict"], digits=7) == n
    missing, money = np.array(true["data"]["consump"]), np.array(true["data"]["m2"])
    missing[-15:] = np.nan
    ahead = fit.apply(missing, exog=np.column_stack([np.ones(n), money]))
    assert printed(ahead.get_prediction().mean, true["forecast"], digits=7) == n


# --- Stata: several series ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
def test_vector_autoregressions(order):
    true, k = getattr(results_varmax, f"lutkepohl_var{order}"), {1: 3, 2: 2}[order]
    fit = ss.var(GERMANY.iloc[:, :k], order=order, trend="n").fit()
    n = k * k * order
    near_maximum(fit, true["params"][:n], fit.names[:n])
    np.testing.assert_allclose(fit.standard_errors[:n] ** 2, true["var_oim"][:n], rtol=5e-3)
    L = np.diag(fit.params["sqrt.var"])
    L[np.tril_indices(k, -1)] = fit.params["sqrt.cov"]
    np.testing.assert_allclose(L[np.tril_indices(k)], true["params"][n:], rtol=1e-3)
    np.testing.assert_allclose(fit.loglik, true["loglike"], rtol=1e-6)


FACTORS = {
    "lutkepohl_dfm": dict(factors=1, order=2, trend="n"),
    "lutkepohl_dfm_ar2": dict(factors=1, order=1, error_order=2, trend="n"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FACTORS)
def test_dynamic_factors(name):
    true = getattr(results_dynamic_factor, name)
    fit = ss.dynamic_factor(GERMANY, **FACTORS[name]).fit()
    sign = np.where(np.arange(len(fit.names)) < 3, np.sign(fit.estimates[0]), 1.0)
    near_maximum(fit, sign * true["params"])
    np.testing.assert_allclose(fit.loglik, true["loglike"], rtol=1e-6)  # Stata's data have seven digits
    errors = true.get("bse_oim") or np.sqrt(true["var_oim"])
    np.testing.assert_allclose(fit.standard_errors, errors, rtol=2e-2)
    printed([fit.aic, fit.bic], [true["aic"], true["bic"]], 2)


@pytest.mark.long
def test_dynamic_factor_with_means():
    """Its published maximum is one of two. There is a higher one, where the variance of consumption is
    zero."""
    true, model = results_dynamic_factor.lutkepohl_dfm_exog1, ss.dynamic_factor(GERMANY, factors=1, order=1)
    loadings, mean, sigma2, transition = np.split(np.array(true["params"]), [3, 6, 9])
    start = {"mean": mean, "loadings": loadings, "sigma2": sigma2, "transition": transition}
    fit = model.fit(start, method="BFGS")  # this method searches from one start
    near_maximum(fit, np.concatenate([mean, loadings, sigma2, transition]))
    errors = np.sqrt(true["var_oim"])
    np.testing.assert_allclose(fit.standard_errors, errors[[3, 4, 5, 0, 1, 2, 6, 7, 8, 9]], rtol=1e-2)
    np.testing.assert_allclose(fit.loglik, true["loglike"], rtol=1e-6)
    higher = model.fit()
    assert higher.loglik > true["loglike"] + 0.2 and higher.at_bound == ["sigma2.dln_consump"]


# --- Kim and Nelson, Durbin and Koopman ---------------------------------------------------------------------


def clark(true, y):
    """Clark's model: a random walk with a drift that wanders, and an autoregression; the start is N(0, 100)
    before the first transition."""
    v, e, w, one, two = true["parameters"]
    T = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, one, two, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    start = ss.Start(0.0, T @ (100 * np.eye(4)) @ T.T)
    return ss.filter(
        ss.LinearGaussian(
            T, np.array([1.0, 1.0, 0.0, 0.0]), np.array([v**2, e**2, 0.0, w**2]), 0.0, start=start
        ),
        y,
    )


def test_clarks_model_of_output():
    """C.-J. Kim and C. R. Nelson, State-Space Models with Regime Switching (1999), chapter 3."""
    true = results_kalman_filter.uc_uni
    found, first = clark(true, np.log(true["data"])), true["start"]
    np.testing.assert_allclose(found.loglik_terms[first:].sum(), true["loglike"], atol=2e-6)
    assert (
        printed(found.filtered_mean[first:, [0, 1, 3]], true["states"], 60) > 500
    )  # the parameters have four digits


def test_clarks_model_of_output_and_unemployment():
    """The likelihood is that of R's FKF: that of the Gauss code lacks a factor 2 pi."""
    true = results_kalman_filter.uc_bi
    data = np.array(true["data"])
    y = np.column_stack([np.log(data[:, 0]), data[:, 1] / 100])[4:]
    v, e, w, vl, ec, p1, p2, a1, a2, a3 = true["parameters"]
    T = np.zeros((6, 6))
    T[[0, 0, 1, 1, 2, 3, 4, 5], [0, 4, 1, 2, 1, 2, 4, 5]] = [1, 1, p1, p2, 1, 1, 1, 1]
    Z = np.array([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, a1, a2, a3, 0.0, 1.0]])
    start = ss.Start(0.0, T @ (100 * np.eye(6)) @ T.T)
    found = ss.filter(
        ss.LinearGaussian(T, Z, np.array([v, e, 0, 0, w, vl]) ** 2, np.array([0.0, ec**2]), start=start), y
    )
    np.testing.assert_allclose(found.loglik, true["loglike"], atol=2e-3)
    assert printed(found.filtered_mean[true["start"] :][:, [0, 1, 4, 5]], true["states"], 60) > 500


def test_states_of_an_autoregression_of_prices():
    """Stata's `sspace`, and J. Durbin and S. J. Koopman's functions for Matlab, at Stata's printed
    parameters.

    The states are those of Hamilton's form: the last values of the series."""
    stata = pd.read_csv(FOLDER / "results_wpi1_ar3_stata.csv")
    names = [
        "a1",
        "a2",
        "a3",
        "detP",
        "alphahat1",
        "alphahat2",
        "alphahat3",
        "detV",
        "eps",
        "epsvar",
        "eta",
        "etavar",
    ]
    matlab = pd.read_csv(FOLDER / "results_wpi1_ar3_matlab_ssm.csv", header=None, names=names)
    y = np.diff(stata["wpi"].to_numpy().astype(np.float32).astype(float))
    T = np.array([[0.5270715, 0.0952613, 0.2580355], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    model = ss.LinearGaussian(
        T, np.array([1.0, 0.0, 0.0]), 0.5307459, 0.0, np.eye(3)[:, :1], start=ss.Start(stationary=True)
    )
    filtered, smoothed = ss.filter(model, y), ss.smooth(model, y)
    rows = stata.iloc[1:]
    counted = printed(filtered.predicted_mean, rows[["sp1", "sp2", "sp3"]], 3, digits=7)
    counted += printed(filtered.filtered_mean, rows[["sf1", "sf2", "sf3"]], 3, digits=7)
    counted += printed(
        filtered.innovations[:, 0] / np.sqrt(filtered.innovation_cov[:, 0, 0]), rows["sr1"], 3, digits=7
    )
    np.testing.assert_allclose(
        smoothed.mean, matlab[["alphahat1", "alphahat2", "alphahat3"]], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(filtered.predicted_mean, matlab[["a1", "a2", "a3"]], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.linalg.det(filtered.predicted_cov), matlab["detP"], atol=1e-5)
    assert counted > 800


def test_states_of_an_autoregression_of_output():
    """Stata: twelve lags of the growth of real output from 1932 on."""
    table = pd.read_csv(FOLDER / "results_realgdpar_stata.csv")
    phi = [0.40725515, 0.18782621, -0.01514009, -0.01027267, -0.03642297, 0.11576416]
    phi += [0.02573029, -0.00766572, 0.13506498, 0.08649569, 0.06942822, -0.10685783]
    y = np.diff(np.log(table["value"].to_numpy()))
    T = np.eye(12, k=-1)
    T[0] = phi
    first = np.eye(12)[0]
    model = ss.LinearGaussian(T, first, 0.00007999607, 0.0, first[:, None], start=ss.Start(stationary=True))
    found = ss.filter(model, y)
    np.testing.assert_allclose(
        found.filtered_mean, table.iloc[1:][[f"u{i + 1}" for i in range(12)]], atol=1e-6
    )
    np.testing.assert_allclose(
        found.innovations[:, 0] / np.sqrt(found.innovation_cov[:, 0, 0]), table["rstd"].iloc[1:], atol=1e-3
    )
