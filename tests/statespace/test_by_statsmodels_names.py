"""Vector ARMA processes, factors of months and quarters, structural models by name, concentrated scales,
and news: each against statsmodels at the same parameters."""

import warnings

import numpy as np
import pandas as pd
import pytest
from statsmodels.datasets import macrodata
from statsmodels.tsa.statespace.dynamic_factor_mq import DynamicFactorMQ
from statsmodels.tsa.statespace.initialization import Initialization
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.structural import UnobservedComponents
from statsmodels.tsa.statespace.varmax import VARMAX

from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, DataError, ShapeError

TABLE = macrodata.load_pandas().data
GROWTH = (100 * np.log(TABLE[["realgdp", "realcons"]])).diff().iloc[1:101].reset_index(drop=True)
GROWTH.index = pd.period_range("1959Q2", periods=100, freq="Q")


def start_of(specified):
    problem = specified.model.problem(specified.data, None, None, False, None)
    return problem.parameters.tree(problem.parameters.start)


def vector_of(specified, p):
    """The parameters in statsmodels' order."""
    parts = [np.stack([p[name] for name in specified.model.terms], 1)] if specified.model.terms else []
    parts += [p[name] for name in ("coefficients", "ma", "beta") if name in p]
    L = np.diag(p["sqrt.var"]).copy()
    L[1, 0] = p["sqrt.cov"][0]
    parts += [L[np.tril_indices(2)], p.get("sigma2.measurement", [])]
    return np.concatenate([np.ravel(x) for x in parts])


def varmax_of(y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels warns that such models are hard to estimate
        return VARMAX(y, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"order": (1, 1)},
        {"order": (0, 1), "trend": "n"},
        {"order": (2, 2), "trend": "c"},
        {"order": (1, 0), "measurement_error": True},
        {"order": (0, 2), "measurement_error": True},
    ],
    ids=str,
)
def test_vector_processes_against_statsmodels(options):
    y = GROWTH.copy()
    y.iloc[[3, 40], [0, 1]] = np.nan
    specified = ss.varmax(y, **options)
    p, reference = start_of(specified), varmax_of(y, **options)
    v = vector_of(specified, p)
    np.testing.assert_allclose(ss.loglik(specified.model(p), y), reference.loglike(v), rtol=1e-9)
    ahead = reference.smooth(v).get_forecast(3)
    found = ss.forecast(specified.model(p), y, 3)
    np.testing.assert_allclose(found.mean, ahead.predicted_mean, rtol=1e-8)
    errors = np.sqrt(np.diagonal(found.cov, axis1=1, axis2=2))
    np.testing.assert_allclose(errors, ahead.se_mean, rtol=1e-8)


def test_trends_of_a_vector_process():
    """The mean of each step, from the definition: on a line and a regressor."""
    X = np.sin(np.arange(100.0))
    specified = ss.varmax(GROWTH, order=(2, 1), trend="ct", exog=pd.Series(X, GROWTH.index, name="wave"))
    p = start_of(specified)
    assert list(p)[:3] == ["intercept", "drift", "beta"]
    model = specified.model.extended(4, np.ones((4, 1)))(p)
    A, X = p["coefficients"], np.r_[X, np.ones(4)]
    inputs = p["intercept"] + np.outer(np.arange(104), p["drift"]) + np.outer(X, p["beta"][:, 0])
    path = [np.linalg.solve(np.eye(2) - A[:, :2] - A[:, 2:], inputs[0])] * 2
    for t in range(1, 104):
        path.append(A[:, :2] @ path[-1] + A[:, 2:] @ path[-2] + inputs[t])
    path = np.array(path[1:])
    np.testing.assert_allclose(ss.forecast(model, path[:100], 4).mean, path[100:], rtol=1e-9)
    plain = ss.varmax(GROWTH - path[:100], order=(2, 1), trend="n")
    rest = {name: x for name, x in p.items() if name not in ("intercept", "drift", "beta")}
    np.testing.assert_allclose(
        ss.loglik(specified.model(p), GROWTH), ss.loglik(plain.model(rest), GROWTH - path[:100]), rtol=1e-10
    )


def test_a_fitted_vector_process(tmp_path):
    specified = ss.varmax(GROWTH, order=(1, 1))
    fit, reference = specified.fit(), varmax_of(GROWTH, order=(1, 1))
    best = reference.loglike(vector_of(specified, fit.params))
    assert fit.gradient < 1e-9 and "compiled filter" in fit.report()
    np.testing.assert_allclose(fit.loglik, best, rtol=1e-9)
    for step in np.eye(len(fit.names))[::3] * 1e-2:  # no direction of statsmodels' function leads up
        assert reference.loglike(vector_of(specified, fit.params) + step) < best + 1e-9
    assert fit.names[2:8] == [f"L1.{a}.{b}" for b in GROWTH for a in GROWTH] + [
        "L1.e(realgdp).realgdp",
        "L1.e(realcons).realgdp",
    ]
    assert "VARMA(1, 1) of 2 series" in fit.summary()
    fit.save(tmp_path / "fit")
    np.testing.assert_array_equal(ss.load(tmp_path / "fit").forecast(2).mean, fit.forecast(2).mean)
    more = GROWTH.iloc[:0].reindex(pd.period_range("1984Q2", periods=1, freq="Q")).fillna(1.0)
    np.testing.assert_allclose(fit.append(more).forecast(2).mean, fit.extend(more).forecast(2).mean)


def test_parameters_that_are_not_determined_are_named():
    """A moving average of two lags with noise is one without, for other coefficients."""
    with pytest.raises(
        DataError, match=r"depend on L1\.e\(realgdp\)\.realgdp.*sigma2\.measurement\.realcons"
    ):
        ss.varmax(GROWTH, order=(0, 1), measurement_error=True).fit()


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"order": 2}, ArgumentError, r"order=2; wanted two whole numbers, \(p, q\)"),
        ({"order": (0, 0)}, ArgumentError, "not both 0"),
        ({"order": (1, -1)}, ArgumentError, "order=-1; wanted a whole number, at least 0"),
        ({"trend": "ctt"}, ArgumentError, "trend='ctt'; wanted 'c', 'n', 't', 'ct'"),
        ({"measurement_error": 0.5}, ArgumentError, "measurement_error=0.5; wanted True or False"),
        ({"exog": np.ones((99, 1))}, ShapeError, "exog has 99 rows and Y has 100"),
        (
            {"exog": np.ones((100, 1))},
            DataError,
            "x1 is a sum of those before, or 0, or belongs to the interc",
        ),
        ({"order": (30, 30)}, DataError, "100 steps without missing values are too few for VARMA"),
    ],
)
def test_bad_orders(options, error, message):
    with pytest.raises(error, match=f"^varmax: .*{message}"):
        ss.varmax(GROWTH, **options)


# --- months and quarters ---


@pytest.fixture(scope="module")
def mixed():
    """Three monthly series and one of quarters with a common factor, 120 months."""
    g, n = np.random.default_rng(1), 120
    f, e = np.zeros(n), np.zeros((n, 4))
    for t in range(1, n):
        f[t], e[t] = 0.7 * f[t - 1] + g.normal(), 0.3 * e[t - 1] + g.normal(size=4)
    y = [0.8, 0.5, 1.0, 0.6] * f[:, None] + e
    y[4:, 3] = sum([w * y[4 - lag : n - lag, 3] for lag, w in enumerate([1, 2, 3, 2, 1])])
    y[:4, 3] = y[np.arange(n) % 3 != 2, 3] = y[-2:, 0] = np.nan
    return pd.DataFrame(y, pd.period_range("2000-01", periods=n, freq="M"), ["a", "b", "c", "gdp"])


def mixed_model_of_statsmodels(data, error_order):
    """The model of statsmodels, and the function from our parameters to its own."""
    quarters = data[["gdp"]].iloc[2::3]
    quarters.index = pd.period_range("2000Q1", periods=40, freq="Q")
    reference = DynamicFactorMQ(
        data[["a", "b", "c"]],
        endog_quarterly=quarters,
        factors=1,
        factor_orders=1,
        idiosyncratic_ar1=bool(error_order),
        standardize=False,
    )

    def params(p):
        own = {"L1.0->0": p["transition"][0], "fb(0).cov.chol[1,1]": 1.0}
        for i, name in enumerate(data):
            own |= {f"loading.0->{name}": p["loadings"][i], f"sigma2.{name}": p["sigma2"][i]}
            own[f"L1.eps_{'Q' if name == 'gdp' else 'M'}.{name}"] = p.get(f"error_ar.{name}", [0.0])[0]
        return [own[name] for name in reference.param_names]

    return reference, params


@pytest.mark.parametrize("error_order", [0, 1])
def test_months_and_quarters_against_statsmodels(mixed, error_order):
    reference, params = mixed_model_of_statsmodels(mixed, error_order)
    specified = ss.dynamic_factor(mixed, error_order=error_order, trend="n", quarterly=["gdp"])
    p = start_of(specified)
    if error_order:
        p["error_ar.gdp"] = np.array([0.4])
    found = reference.smooth(params(p))
    np.testing.assert_allclose(ss.loglik(specified.model(p), mixed), found.llf, rtol=1e-10)
    ahead = ss.forecast(specified.model(p), mixed, 4).mean
    np.testing.assert_allclose(ahead, found.forecast(4), rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("error_order", [0, 1])
def test_maxima_of_months_and_quarters_against_statsmodels(mixed, error_order):
    """The two likelihoods are one where both start from the stationary distribution, and ours ends higher.

    By default, EM estimates the distribution of the first states too, which is another model."""
    reference, params = mixed_model_of_statsmodels(mixed, error_order)
    fit = ss.dynamic_factor(mixed, error_order=error_order, trend="n", quarterly=["gdp"]).fit()
    np.testing.assert_allclose(reference.loglike(params(fit.params)), fit.loglik, rtol=1e-12)
    for em in ({"em_initialization": False}, {}):
        theirs = reference.fit(maxiter=500, disp=0, **em)
        assert fit.loglik > reference.loglike(theirs.params) - 1e-8


@pytest.mark.long
def test_a_fit_of_months_and_quarters(mixed, tmp_path):
    fit = ss.dynamic_factor(mixed + 2.0, quarterly=[3]).fit()
    assert fit.gradient < 1e-9
    np.testing.assert_allclose(fit.params["transition"], 0.7, atol=0.2)
    assert "of 4 series, 1 of them quarterly" in fit.summary()
    known = mixed["gdp"].notna()
    estimate = np.asarray(fit.smoothed.signal)[:, 3]
    np.testing.assert_allclose(estimate[known], mixed["gdp"][known] + 2.0, rtol=1e-8)
    assert np.isfinite(estimate).all()  # what a quarter that ends in any month would have had
    fit.save(tmp_path / "fit")
    np.testing.assert_allclose(ss.load(tmp_path / "fit").loglik, fit.loglik, rtol=1e-14)


def test_bad_quarters(mixed):
    for quarterly, error, message in (
        (["gnp"], ArgumentError, "'gnp' is no column of Y, which has a, b, c, gdp"),
        ([4], ArgumentError, "4 is no column of Y"),
        (
            ["a"],
            DataError,
            "the quarterly series a has values at the steps 0 and 1; wanted nan but for the last",
        ),
    ):
        with pytest.raises(error, match=message):
            ss.dynamic_factor(mixed, quarterly=quarterly)
    with pytest.raises(ArgumentError, match="factors=2 for 3 series, 1 of them monthly"):
        ss.dynamic_factor(
            mixed[["a", "gdp", "gdp"]].set_axis(["a", "q", "r"], axis=1), 2, quarterly=["q", "r"]
        )


# --- structural models by name ---

SERIES = GROWTH["realgdp"].cumsum() + 2 * np.sin(np.arange(100) / 4.0)
WAVES = np.stack([np.sin(np.arange(100.0)), np.cos(np.arange(100.0) ** 1.5)], axis=1)
NAMES = """irregular, ntrend, fixed intercept, deterministic constant, dconstant, local level, llevel, random walk,
rwalk, fixed slope, deterministic trend, dtrend, local linear deterministic trend, lldtrend, random walk with drift,
rwdrift, local linear trend, lltrend, smooth trend, strend, random trend, rtrend"""
STRUCTURAL = [{"level": name} for name in NAMES.replace("\n", " ").split(", ")] + [
    {"level": "lltrend", "seasonal": 4},
    {"level": "llevel", "seasonal": 4, "stochastic_seasonal": False},
    {"level": "llevel", "freq_seasonal": [{"period": 12, "harmonics": 2}, {"period": 5}]},
    {"level": "llevel", "freq_seasonal": [{"period": 7}], "stochastic_freq_seasonal": [False]},
    {"level": "dconstant", "cycle": True},
    {"level": "llevel", "cycle": True, "stochastic_cycle": True, "cycle_period_bounds": (6, 40)},
    {"level": "rwalk", "cycle": True, "stochastic_cycle": True, "damped_cycle": True},
    {"level": "llevel", "autoregressive": 2, "exog": WAVES},
    {"level": "llevel", "exog": WAVES, "mle_regression": False},
    {"level": True, "trend": True, "stochastic_trend": True, "irregular": True},
    {"trend": True},
    {"seasonal": 4, "autoregressive": 1},
]


@pytest.mark.parametrize("options", STRUCTURAL, ids=lambda x: ", ".join([str(v)[:30] for v in x.values()]))
def test_structural_models_against_statsmodels(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels adds noise, or a level, with a warning
        reference = UnobservedComponents(SERIES, **options, use_exact_diffuse=True)
    if "damped_cycle" in options:  # here such a cycle has a stationary start
        start = Initialization(3)
        start.set((0, 1), "diffuse")
        start.set((1, 3), "stationary")
        reference.ssm.initialization = start
    specified = ss.unobserved_components(SERIES, **options)
    problem = specified.model.problem(specified.data, None, None, False, None)
    p = problem.parameters
    u = p.start + 0.1 * np.cos(np.arange(p.start.size))
    found = dict(zip(p.names, p.flat(u), strict=True))
    found |= {"frequency.cycle": 2 * np.pi / found["period.cycle"]} if "period.cycle" in found else {}
    if "cycle_period_bounds" not in options and "period.cycle" in found:
        assert reference.cycle_frequency_bound == (2 * np.pi / 48, 2 * np.pi / 6)
        assert problem.parameters.constraint_of[p.names.index("period.cycle")].name == "interval(6.0, 48.0)"
    assert {x for x in found if not x.startswith("period")} == set(reference.param_names)
    expected = reference.loglike(np.array([found[name] for name in reference.param_names]))
    np.testing.assert_allclose(ss.loglik(problem.model(p.values(u)), SERIES), expected, rtol=1e-8)


@pytest.mark.long
def test_a_structural_fit_by_name():
    fit = ss.unobserved_components(SERIES, "local linear trend", cycle=True, stochastic_cycle=True).fit()
    own = ss.fit(ss.level() + ss.trend() + ss.cycle((6, 48), 1.0), SERIES)
    assert fit.loglik == own.loglik and fit.names == own.names
    for options, message in (
        ({"level": "llvl"}, "level='llvl'; wanted True, False or one of 'irregular', 'ntrend'"),
        ({"level": "rwalk", "irregular": True}, "leave them out"),
        ({"cycle": True, "damped_cycle": True}, "a damped cycle without noise dies out"),
        ({"freq_seasonal": [12]}, "freq_seasonal holds 12; wanted"),
        (
            {"freq_seasonal": [{"period": 4}], "stochastic_freq_seasonal": []},
            "has 0 elements; wanted one for each",
        ),
    ):
        with pytest.raises(ArgumentError, match=message):
            ss.unobserved_components(SERIES, **options)


# --- a scale that is no parameter ---


def test_concentrated_scale_against_statsmodels():
    options = {"order": (1, 1, 1), "exog": WAVES[:, 0]}
    whole = ss.sarimax(SERIES, **options).fit()
    fit = ss.sarimax(SERIES, **options, concentrate_scale=True).fit()
    reference = SARIMAX(SERIES, **options, concentrate_scale=True, simple_differencing=True).smooth(
        fit.estimates
    )
    assert fit.names == ["x1", "ar.L1", "ma.L1"] == whole.names[:3]
    np.testing.assert_allclose([fit.llf, fit.aic, fit.scale], [reference.llf, reference.aic, reference.scale])
    np.testing.assert_allclose([whole.aic, whole.params["sigma2"]], [fit.aic, fit.scale])
    for kind in ("exact", "opg", "robust"):
        np.testing.assert_allclose(fit.cov(kind), whole.cov(kind)[:3, :3])
    assert fit.wald_test(lambda p: p["ma"][0]).statistic == whole.wald_test({"ma.L1": 0.0}).statistic
    ratio = fit.likelihood_ratio_test({"ma.L1": 0.0})
    assert (ratio.degrees, ratio.statistic) == (1, whole.likelihood_ratio_test({"ma.L1": 0.0}).statistic)
    assert "the scale" in fit.summary() and whole.scale == 1.0
    np.testing.assert_allclose(fit.forecast(2, exog=[0.0, 1.0]).mean, whole.forecast(2, exog=[0.0, 1.0]).mean)
    held = ss.sarimax(SERIES, **options, concentrate_scale=True).fit(fixed={"sigma2": 1.0})
    assert held.names == fit.names and held.scale == 1.0
    with pytest.raises(ArgumentError, match="no common scale"):
        ss.sarimax(SERIES, concentrate_scale=True, measurement_error=True)


# --- news ---


def test_news_against_statsmodels():
    """Two new quarters, one value that was missing, one still missing, one revised."""
    old, new = GROWTH.iloc[:80].copy(), GROWTH.iloc[:82].copy()
    for x in (old, new):
        x.iloc[50, 0] = np.nan
    old.iloc[-1, 1] = new.iloc[-1, 0] = np.nan
    new.iloc[76, 0] += 0.3
    specified = ss.varmax(old, order=(1, 1), measurement_error=True)
    held = start_of(specified)
    fit = specified.fit(fixed={name: held[name] for name in held if name != "intercept"})
    reference = varmax_of(old, order=(1, 1), measurement_error=True).smooth(vector_of(specified, fit.params))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        wanted = reference.news(new, start="1978Q3", end="1980Q1", comparison_type="updated")
    found = fit.news(new, "1978Q3", "1980Q1")
    assert [str(x) for x in found.dates] == [str(x) for x in wanted.total_impacts.index]
    np.testing.assert_allclose(found.previous, wanted.prev_impacted_forecasts, rtol=1e-8)
    np.testing.assert_allclose(found.updated, wanted.post_impacted_forecasts, rtol=1e-8)
    np.testing.assert_allclose(found.revisions.impacts.sum(0), wanted.revision_impacts, atol=1e-9)
    np.testing.assert_allclose(found.updates.impacts.sum(0), wanted.update_impacts, atol=1e-9)
    np.testing.assert_allclose(found.updates.news, wanted.news.to_numpy(), rtol=1e-8)
    np.testing.assert_allclose(
        found.updates.weights, wanted.weights.to_numpy().reshape(found.updates.weights.shape), atol=1e-9
    )
    assert (found.revisions.series, found.revisions.observed - found.revisions.expected) == (
        ["realgdp"],
        pytest.approx([0.3]),
    )
    frame = found.frame()
    np.testing.assert_allclose(frame["estimate (prev)"] + frame["total impact"], frame["estimate (new)"])
    details = found.details()
    np.testing.assert_allclose(details["impact"], details["news"] * details["weight"])
    assert len(details) == (4 + 1) * 7 * 2 and "1980Q1" in str(found)


def test_news_of_a_series_with_regressors():
    y = SERIES.to_numpy()
    fit = ss.sarimax(y[:80], (1, 1, 0), exog=WAVES[:80]).fit()
    found = fit.news(y[:83], end=84, exog=WAVES[80:85])
    np.testing.assert_array_equal(found.dates, [80, 81, 82, 83, 84])
    np.testing.assert_allclose(found.previous[:, 0], fit.forecast(5, exog=WAVES[80:85]).mean, rtol=1e-9)
    later = fit.append(y[80:83], exog=WAVES[80:83])
    np.testing.assert_allclose(found.updated[3:, 0], later.forecast(2, exog=WAVES[83:85]).mean, rtol=1e-9)
    np.testing.assert_allclose(found.updated, found.previous + found.updates.impacts.sum(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(fit.news(later, exog=WAVES[80:83]).updated, found.updated[:3])
    np.testing.assert_allclose(fit.news(later).updated, found.updated[:3], rtol=1e-12)
    np.testing.assert_allclose(fit.news(later, end=84, exog=WAVES[83:85]).updated, found.updated, rtol=1e-12)


def test_bad_news():
    fit = ss.fit(ss.level(), SERIES[:50])
    gone = SERIES[:52].copy()
    gone.iloc[7] = np.nan
    for updated, error, message in (
        (SERIES[:49], ShapeError, "49 steps of 1 series; wanted at least 50 of 1"),
        (SERIES[1:60], DataError, "the new table has other dates than y"),
        (gone, DataError, "the updated data lack realgdp of step 7"),
    ):
        with pytest.raises(error, match=message):
            fit.news(updated)
    with pytest.raises(ArgumentError, match="the steps end at 10, before their start at 20"):
        fit.news(SERIES[:51], 20, 10)


# --- dates and regressors that do not fit ---


def test_tables_that_do_not_follow():
    months = pd.date_range("2000-01", periods=60, freq="MS")
    y = pd.Series(SERIES.to_numpy()[:60], months)
    X = pd.DataFrame(WAVES[:60], months, ["price", "income"])
    fit = ss.sarimax(y, (1, 0, 0), exog=X).fit()
    quarter = pd.Series([1.0], pd.date_range("2005-01", periods=1, freq="QS"))
    days = pd.Series([1.0, 2.0], pd.date_range("2005-01-01", periods=2, freq="D"))
    named = "y has the frequency QS-JAN, and the data MS"  # its first day is that of the next month
    for new, message in (
        (quarter, named),
        (days, "y is for 2005-01-01 to 2005-01-02 in steps of D, not MS; the data end"),
    ):
        for call in (fit.append, fit.extend):
            with pytest.raises(DataError, match=message):
                call(new, exog=WAVES[: len(new)])
    for wrong in (pd.concat([y, y.iloc[-1:]]), y[::-1]):
        for call in (lambda x: ss.sarimax(x, (1, 0, 0)), fit.news):
            with pytest.raises(DataError, match="its dates do not increase from row to row"):
                call(wrong)
    ahead = pd.DataFrame(np.ones((3, 1)), pd.date_range("2005-01", periods=3, freq="MS"), ["price"])
    with pytest.raises(DataError, match="exog has the columns price, .*: no income"):
        fit.forecast(3, exog=ahead)
    with pytest.raises(DataError, match="collinear: where there are data, total is a sum of those before"):
        ss.varmax(
            GROWTH, exog=pd.DataFrame(WAVES @ [[1, 0, 1], [0, 1, 2]], GROWTH.index, ["a", "b", "total"])
        )
