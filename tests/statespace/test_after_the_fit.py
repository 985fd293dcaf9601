"""What is done with a fit: other data, predictions, scenarios, fixed parameters, tests; against statsmodels
and dense normals."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.varmax import VARMAX

from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, DataError, ShapeError
from tapegrad.statespace.results.diagnostics import ljung_box

MONTHS = pd.period_range("2000-01", periods=150, freq="M")
RNG = np.random.default_rng(3)
X = pd.DataFrame(RNG.normal(size=(150, 2)), MONTHS, ["a", "b"])
Y = (pd.Series(RNG.normal(size=150).cumsum(), MONTHS) + X["a"]).rename("z")
SEEN = Y[:120].copy()
SEEN.iloc[[5, 40]] = np.nan


@pytest.fixture(scope="module")
def pair():
    """A fit, and statsmodels' results at the same parameters."""
    fit = ss.sarimax(SEEN, (1, 0, 1), exog=X[:120], trend="c").fit()
    p = fit.params
    their = SARIMAX(SEEN, order=(1, 0, 1), exog=X[:120], trend="c")
    return fit, their.smooth(np.r_[p["intercept"], p["beta"], p["ar"], p["ma"], p["sigma2"]])


def agree(ours, theirs, rtol=1e-9):
    assert_allclose(np.asarray(ours, float), np.asarray(theirs, float), rtol=rtol, atol=1e-11)
    if hasattr(ours, "index"):
        assert ours.index.equals(theirs.index)


SPANS = [
    ({}, 0),
    ({"start": 100, "end": 119}, 0),
    ({"start": 100, "end": 130}, 11),
    ({"start": 100, "end": 130, "dynamic": 5}, 11),
    ({"start": 110, "end": 125, "dynamic": True}, 6),
    ({"start": -5}, 0),
    ({"start": 122, "end": 130}, 11),
    ({"start": "2008-05", "end": "2010-12"}, 12),
    ({"start": "2008-05", "end": "2010-12", "dynamic": "2009-01"}, 12),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("span", "ahead"), SPANS)
def test_predictions_are_those_of_statsmodels(pair, span, ahead):
    fit, their = pair
    exog = X[120 : 120 + ahead] if ahead else None
    ours, theirs = fit.get_prediction(**span, exog=exog), their.get_prediction(**span, exog=exog)
    agree(ours.predicted_mean, theirs.predicted_mean)
    agree(ours.se_mean, theirs.se_mean)
    agree(ours.conf_int(0.1), theirs.conf_int(alpha=0.1))
    agree(ours.summary_frame(), theirs.summary_frame())
    agree(fit.predict(**span, exog=exog), theirs.predicted_mean)


def test_names_of_statsmodels(pair):
    fit, their = pair
    agree(fit.llf, their.llf)
    agree(fit.fittedvalues, their.fittedvalues)
    agree(fit.resid, their.resid)
    assert fit.nobs == their.nobs and fit.param_names == fit.names
    assert list(fit.bse.index) == list(fit.pvalues.index) == list(fit.cov_params().columns) == fit.names
    agree(fit.bse.to_numpy(), np.sqrt(np.diag(fit.cov())))
    agree(fit.zvalues.to_numpy(), fit.estimates / fit.standard_errors)
    agree(fit.aic, their.aic)
    agree(fit.bic, fit.aic + (np.log(118) - 2) * 6)  # statsmodels counts the missing months too
    plain = ss.fit(ss.level(), Y.to_numpy())
    assert (
        type(plain.bse) is np.ndarray and plain.cov_params().shape == (2, 2) and plain.resid.shape == (150,)
    )


def test_other_data_at_the_same_parameters(pair):
    fit, their = pair
    for name in ("append", "extend"):
        ours = getattr(fit, name)(Y[120:140], exog=X[120:140])
        theirs = getattr(their, name)(Y[120:140], exog=X[120:140])
        agree(ours.llf, theirs.llf)
        agree(ours.forecast("2012-03", exog=X[140:147]).mean, theirs.forecast(7, exog=X[140:147]))
        agree(ours.fittedvalues, theirs.fittedvalues)
        assert_allclose(ours.bse, fit.bse, rtol=0)
        assert ours.origin is fit and "those of other data, 120 steps" in str(ours)
    index = pd.period_range("1990-01", periods=50, freq="M")
    series, exog = (
        pd.Series(np.sin(np.arange(50.0)), index),
        pd.DataFrame({"b": np.cos(np.arange(50.0)), "a": np.arange(50.0) % 7}, index),
    )
    there = fit.apply(series, exog=exog)  # columns by their names
    agree(there.llf, their.apply(series, exog=exog[["a", "b"]]).llf)
    again = fit.apply(Y, exog=X, refit=True)
    assert_allclose(again.llf, ss.sarimax(Y, (1, 0, 1), exog=X, trend="c").fit().llf, rtol=1e-10)


KINDS = {
    "ima": lambda y, exog: ss.sarimax(y, (0, 1, 1)).fit(),
    "airline": lambda y, exog: ss.sarimax(y, (0, 1, 1), (0, 1, 1, 12)).fit(),
    "drift": lambda y, exog: ss.sarimax(y, (1, 1, 0), trend="t").fit(),
    "structural": lambda y, exog: ss.fit(
        ss.level() + ss.trend(var=0) + ss.seasonal(4) + ss.regression(exog), y
    ),
    "regressors vary": lambda y, exog: ss.fit(ss.level() + ss.regression(exog, varying=True, var=0.0), y),
    "of the user": lambda y, exog: ss.fit(
        lambda p: ss.local_level(p["a"], p["b"]), y, {"a": 1.0, "b": 1.0}, ss.positive()
    ),
    "state before the first": lambda y, exog: ss.fit(
        lambda p: ss.LinearGaussian(0.9, 1.0, p["q"], 1.0, start=ss.Start(0.0, 4.0, predict_first=True)),
        y,
        {"q": 1.0},
        ss.positive(),
    ),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", KINDS)
def test_month_by_month_is_all_at_once(name):
    """Append, extend one by one, and apply to all are one likelihood, one forecast, one set of states."""
    fit = KINDS[name](SEEN, X[:120])
    regressors = name in ("structural", "regressors vary")

    def exog(a, b):
        return {"exog": X[a:b]} if regressors else {}

    whole = fit.apply(pd.concat([SEEN, Y[120:123]]), **exog(0, 123))
    appended, extended, total = fit, fit, fit.llf
    for t in range(120, 123):
        appended = appended.append(Y[t : t + 1], **exog(t, t + 1))
        extended = extended.extend(Y[t : t + 1], **exog(t, t + 1))
        total += extended.llf
    agree(appended.llf, whole.llf)
    agree(total, whole.llf)
    for one in (appended, extended, fit.extend(Y[120:123], **exog(120, 123))):
        ahead, wanted = one.forecast(4, **exog(123, 127)), whole.forecast(4, **exog(123, 127))
        agree(ahead.mean, wanted.mean)
        agree(ahead.standard_errors, wanted.standard_errors)
    assert extended.nobs == 1 and appended.nobs == 123
    agree(extended.states.filtered, appended.states.filtered.iloc[-1:], rtol=1e-7)
    with pytest.raises(ArgumentError, match="start from the state that earlier ones imply"):
        extended.append(Y[123:124], **exog(123, 124), refit=True)


def test_components_after_extend():
    fit = KINDS["structural"](SEEN, X[:120])
    a, b = fit.append(Y[120:125], exog=X[120:125]), fit.extend(Y[120:125], exog=X[120:125])
    for name, part in b.components().items():
        agree(part.mean.iloc[-1], a.components()[name].mean.iloc[-1], rtol=1e-7)


def dense(y, p, steps, noise, level):
    """Mean and covariance of a stationary AR(1) with observation noise, conditioned on what is known of
    `y`."""
    t = np.arange(steps)
    cov = level / (1 - p**2) * p ** abs(t[:, None] - t)
    spread = cov + noise * np.eye(steps)
    seen = np.flatnonzero(~np.isnan(y))
    gain = spread[:, seen] @ np.linalg.inv(spread[np.ix_(seen, seen)])
    return gain @ y[seen], spread - gain @ spread[seen]


def test_a_scenario_is_the_normal_given_all():
    def build(p):
        return ss.LinearGaussian(0.8, 1.0, p["q"], 0.5, start=ss.Start(stationary=True))

    fit = ss.fit(build, Y.to_numpy()[:60], {"q": 1.0}, ss.positive())
    given = [np.nan, 2.0, np.nan, np.nan, -1.0]
    y = np.r_[Y.to_numpy()[:60], given, np.nan]
    mean, cov = dense(y, 0.8, 66, 0.5, float(fit.params["q"]))
    found = fit.forecast(6, given=given)
    assert_allclose(found.mean, mean[60:], rtol=1e-9)
    assert_allclose(found.standard_errors, np.sqrt(np.maximum(np.diag(cov)[60:], 0)), rtol=1e-8, atol=1e-7)
    with pytest.raises(ShapeError, match="given: 7 steps of 1 series; wanted at most 6 of 1"):
        fit.forecast(6, given=np.zeros(7))


def test_a_scenario_of_one_of_two_series():
    """Noise of the series is correlated: what one says of the other at the same step counts."""
    H = np.array([[1.0, 0.6], [0.6, 2.0]])
    T = np.array([[0.5, 0.2], [0.0, 0.7]])

    def build(p):
        return ss.LinearGaussian(T, np.eye(2), p["q"] * np.eye(2), H, start=ss.Start(np.zeros(2), np.eye(2)))

    data = RNG.normal(size=(30, 2))
    fit = ss.fit(build, data, {"q": 1.0}, ss.positive())
    found = fit.forecast(2, given=[[np.nan, 1.5], [0.3, np.nan]])
    q, n = float(fit.params["q"]), 32
    state = np.zeros((2 * n, 2 * n))
    P = np.eye(2)
    for t in range(n):
        block = P
        for s in range(t, n):
            state[2 * s : 2 * s + 2, 2 * t : 2 * t + 2] = block
            state[2 * t : 2 * t + 2, 2 * s : 2 * s + 2] = block.T
            block = T @ block
        P = T @ P @ T.T + q * np.eye(2)
    spread = state + np.kron(np.eye(n), H)
    y = np.r_[data.ravel(), np.nan, 1.5, 0.3, np.nan]
    seen = np.flatnonzero(~np.isnan(y))
    gain = spread[:, seen] @ np.linalg.inv(spread[np.ix_(seen, seen)])
    assert_allclose(found.mean.ravel(), (gain @ y[seen])[60:], rtol=1e-9)
    left = spread - gain @ spread[seen]
    assert_allclose(found.cov[0], left[60:62, 60:62], atol=1e-9)
    assert_allclose(found.cov[1], left[62:, 62:], atol=1e-9)


def test_responses_to_shocks(pair):
    fit, their = pair
    agree(fit.impulse_responses(8), their.impulse_responses(8))
    settings = {"orthogonalized": True, "cumulative": True}
    agree(fit.impulse_responses(5, **settings), their.impulse_responses(5, **settings))
    two = pd.DataFrame(RNG.normal(size=(100, 2)), MONTHS[:100], ["u", "v"])
    fit = ss.var(two, 2).fit()
    p = fit.params
    their = VARMAX(two, order=(2, 0), trend="c").smooth(
        np.r_[p["intercept"], p["coefficients"].ravel(), p["sqrt.var"][0], p["sqrt.cov"], p["sqrt.var"][1]]
    )
    agree(
        fit.impulse_responses(5, 1, orthogonalized=True).to_numpy(),
        their.impulse_responses(5, 1, orthogonalized=True),
    )
    agree(fit.impulse_responses(5, [1.0, -2.0]).to_numpy(), their.impulse_responses(5, [1.0, -2.0]))
    agree(
        fit.get_prediction(90, 105, dynamic=4).mean, their.get_prediction(90, 105, dynamic=4).predicted_mean
    )
    with pytest.raises(ArgumentError, match="impulse=2; the states have 2 noises"):
        fit.impulse_responses(5, 2)


def test_responses_where_the_transition_varies():
    T = np.linspace(0.1, 0.9, 20)[:, None, None]
    fit = ss.fit(
        lambda p: ss.LinearGaussian(T, 1.0, p["q"], 1.0, start=ss.Start(0.0, 1.0)),
        Y.to_numpy()[:20],
        {"q": 1.0},
        ss.positive(),
    )
    assert_allclose(fit.impulse_responses(3, anchor=5), np.cumprod(np.r_[1.0, T[5:8, 0, 0]]), rtol=1e-14)
    with pytest.raises(ArgumentError, match="varies over time and is known for 20 steps"):
        fit.impulse_responses(30)


# --- fixed parameters and tests of hypotheses ---------------------------------------------------------------


def test_fixed_parameters_against_statsmodels():
    y = Y.to_numpy()
    for order, fixed, held in [
        ((2, 0, 1), {"ma.L1": 0.3}, {"ma.L1": 0.3}),
        ((1, 1, 1), {"ar": [0.4]}, {"ar.L1": 0.4}),
    ]:
        fit = ss.sarimax(y, order).fit(fixed=fixed)
        their = SARIMAX(y, order=order, simple_differencing=True).fit_constrained(
            held, disp=0, method="nm", maxiter=4000, xtol=1e-12, ftol=1e-12
        )
        assert_allclose(fit.llf, their.llf, rtol=1e-9)
        assert fit.fixed == held and not set(held) & set(fit.names)
        assert_allclose(fit.aic, their.aic, rtol=1e-8)
        assert "not estimated: " + next(iter(held)) in str(fit)
        assert_allclose(fit.cov("opg").shape, (len(fit.names),) * 2)
    own = ss.fit(
        lambda p: ss.local_level(p["v"][0], p["v"][1]),
        y,
        {"v": np.ones(2)},
        ss.positive(),
        fixed={"v[1]": 0.0},
    )
    assert own.names == ["v[0]"] and own.params["v"][1] == 0.0
    assert_allclose(own.llf, ss.fit(ss.level(var=0.0), y).llf, rtol=1e-10)


def test_what_cannot_be_fixed():
    model = ss.sarimax(Y, (2, 0, 1))
    with pytest.raises(ArgumentError, match=r"ar.L1 belongs with ar.L2 by stationary\(\): fix all of them"):
        model.fit(fixed={"ar.L1": 0.3})
    free = model.fit(fixed={"ar.L2": 0.0}, constraints={"ar": ss.unconstrained()})
    assert free.names == ["ar.L1", "ma.L1", "sigma2"]
    with pytest.raises(
        ArgumentError, match="'ar.L3' is not a parameter; wanted one of ar.L1, ar.L2, ma.L1, sigma2"
    ):
        model.fit(fixed={"ar.L3": 0.3})
    with pytest.raises(ArgumentError, match="sigma2 is nan; wanted finite numbers"):
        model.fit(fixed={"sigma2": np.nan})
    with pytest.raises(ArgumentError, match="nothing to estimate"):
        ss.fit(ss.level(), Y, fixed={"sigma2.level": 1.0, "sigma2.irregular": 1.0})


def test_wald_and_likelihood_ratio(pair):
    fit, _ = pair
    at = fit.names.index("beta.b") if "beta.b" in fit.names else fit.names.index("b")
    one = fit.wald_test({fit.names[at]: 0.0})
    assert_allclose(one.statistic, (fit.estimates[at] / fit.standard_errors[at]) ** 2, rtol=1e-10)
    assert_allclose(one.p_value, fit.pvalues.iloc[at], rtol=1e-9)
    R = np.zeros((2, len(fit.names)))
    R[0, at], R[1, 0], R[1, 1] = 1.0, 1.0, -1.0
    for cov in ("exact", "robust"):
        their_way = (R @ fit.estimates - [0.1, 0.2]) @ np.linalg.solve(
            R @ fit.cov(cov) @ R.T, R @ fit.estimates - [0.1, 0.2]
        )
        assert_allclose(fit.wald_test((R, [0.1, 0.2]), cov).statistic, their_way, rtol=1e-9)
    # the delta method, with derivatives by hand
    ar, ma = fit.params["ar"][0], fit.params["ma"][0]
    i, j = fit.names.index("ar.L1"), fit.names.index("ma.L1")
    V = fit.cov()[np.ix_([i, j], [i, j])]
    slope = np.array([ma, ar])
    nonlinear = fit.wald_test(lambda p: p["ar"][0] * p["ma"][0] - 0.1)
    assert_allclose(nonlinear.statistic, (ar * ma - 0.1) ** 2 / (slope @ V @ slope), rtol=1e-9)
    name = fit.names[at]
    for text, same in [
        (f"{name} = 0", one),
        ("ar.L1 * ma.L1 = 0.1", nonlinear),
        (f"{name}=.1, {fit.names[0]} - 1 * {fit.names[1]} = 2 / 10", fit.wald_test((R, [0.1, 0.2]))),
    ]:
        found = fit.wald_test(text)
        assert_allclose([found.statistic, found.p_value], [same.statistic, same.p_value], rtol=1e-9)
    less = ss.sarimax(SEEN, (1, 0, 1), exog=X[["a"]][:120], trend="c").fit()
    ratio = fit.likelihood_ratio_test(less)
    assert_allclose(ratio.statistic, 2 * (fit.llf - less.llf), rtol=1e-10)
    assert_allclose(fit.likelihood_ratio_test({fit.names[at]: 0.0}).statistic, ratio.statistic, rtol=1e-6)
    assert ratio.degrees == 1 and one.degrees == 1
    for call, words in [
        (lambda: fit.wald_test({"c": 0.0}), "'c' is not an estimated parameter"),
        (lambda: fit.wald_test(np.ones((2, len(fit.names)))), "depend on each other"),
        (lambda: fit.wald_test(np.ones(3)), r"R has shape \(1, 3\)"),
        *[
            (lambda text=text: fit.wald_test(text), "wanted equations such as")
            for text in ("ar.L3 = 0", "ar.L1 == 0", "exp(ar.L1) = 1", "ar.L1 = 'x'", "")
        ],
        (lambda: less.likelihood_ratio_test(fit), "call it on the fit with more parameters"),
        (lambda: fit.likelihood_ratio_test(ss.fit(ss.level(), Y)), "of different data"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            call()


def test_tests_of_residuals(pair):
    fit, _ = pair
    whole = ss.sarimax(Y, (1, 0, 1), exog=X).fit()
    their = SARIMAX(Y, order=(1, 0, 1), exog=X).smooth(
        np.r_[whole.params["beta"], whole.params["ar"], whole.params["ma"], whole.params["sigma2"]]
    )
    agree(whole.test_normality(), their.test_normality("jarquebera"), rtol=1e-7)
    for alternative in ("two-sided", "increasing", "decreasing"):
        agree(
            whole.test_heteroskedasticity("breakvar", alternative),
            their.test_heteroskedasticity("breakvar", alternative),
            rtol=1e-7,
        )
    agree(whole.test_serial_correlation(lags=7), their.test_serial_correlation("ljungbox", lags=7), rtol=1e-7)
    assert np.isfinite(fit.test_serial_correlation(lags=3)).all()  # with missing months
    with pytest.raises(ArgumentError, match="method='durbin'; wanted 'ljungbox'"):
        fit.test_serial_correlation("durbin")
    with pytest.raises(ArgumentError, match="alternative='up'"):
        fit.test_heteroskedasticity(alternative="up")


def test_autocorrelation_with_gaps_has_its_distribution():
    """Of white noise with a third missing, regular and at random, the mean is the degrees of freedom."""
    rng = np.random.default_rng(8)
    for gaps in (np.arange(300) % 3 == 0, rng.random(300) < 0.35):
        found = []
        for e in rng.normal(size=(400, 300)):
            e[gaps] = np.nan
            found.append(ljung_box(e, [6])[0])
        lags = [k for k in range(1, 7) if (~gaps[k:] & ~gaps[:-k]).any()]
        assert abs(np.mean([x.statistic for x in found]) - len(lags)) < 4 * np.sqrt(2 * len(lags) / 400)
        assert 0.02 < np.mean([x.p_value < 0.05 for x in found]) < 0.085


# --- dates, draws, states, bad input ------------------------------------------------------------------------


def test_draws_from_a_step_in_the_sample(pair):
    fit, _ = pair
    draws = fit.simulate(6, 20_000, 0, anchor="2009-01")
    wanted = fit.get_prediction("2009-01", "2009-06", dynamic=True)
    assert draws.shape == (20_000, 6)
    assert_allclose(draws.mean(0), wanted.mean, atol=5 * wanted.se_mean.max() / np.sqrt(20_000))
    assert_allclose(draws.std(0), wanted.se_mean, rtol=0.03)
    with pytest.raises(ArgumentError, match="anchor=0; wanted a step after the first"):
        fit.simulate(6, anchor=0)


def test_states_carry_dates_and_names():
    fit = ss.fit(ss.level() + ss.trend(), SEEN)
    assert list(fit.states.smoothed.columns) == ["level", "trend"] and fit.states.predicted.index.equals(
        SEEN.index
    )
    np.testing.assert_array_equal(fit.states.filtered, fit.filtered.filtered_mean)
    assert type(ss.fit(ss.level(), SEEN.to_numpy()).states.smoothed) is np.ndarray


def test_places_by_date():
    daily = pd.Series(np.sin(np.arange(90.0)), pd.date_range("2024-01-01", periods=90, freq="D"))
    fit = ss.fit(ss.level(), daily)
    assert len(fit.predict("2024-02", "2024-02")) == 29  # a month of days
    assert str(fit.forecast("2024-06").dates[-1].date()) == "2024-06-30"
    assert len(fit.forecast(pd.Timestamp("2024-04-02")).dates) == 3
    for call, words in [
        (lambda: fit.forecast("2024-02-01"), "wanted a date after the data"),
        (lambda: fit.predict("2023-01"), "no step has this date; y has 2024-01-01 to 2024-03-30"),
        (lambda: fit.predict("January"), "January"),
        (lambda: fit.predict(-91), "start=-91: there are 90 steps"),
        (lambda: fit.predict(50, 40), "ends at step 40, before its start at step 50"),
        (lambda: fit.predict(0, 3, exog=[1.0]), "the prediction ends before"),
        (lambda: fit.get_prediction(0, 3, dynamic=True), "no data before the first step"),
        (lambda: ss.fit(ss.level(), daily.to_numpy()).forecast("2024-06"), "y has no dates"),
    ]:
        with pytest.raises((ArgumentError, DataError), match=words):
            call()


def test_data_that_do_not_follow(pair):
    fit, _ = pair
    with pytest.raises(
        DataError,
        match="append: y is for 2010-02 to 2010-04; the data end at 2009-12, and the next steps are 2010-01",
    ):
        fit.append(Y[121:124], exog=X[121:124])
    with pytest.raises(DataError, match="append: y is for 2010Q1 to 2010Q2"):
        fit.append(pd.Series([1.0, 2.0], pd.period_range("2010Q1", periods=2, freq="Q")), exog=X[120:122])
    with pytest.raises(DataError, match="append: y is for 2009-12"):
        fit.append(Y[119:122], exog=X[119:122])
    with pytest.raises(DataError, match="do not increase"):
        fit.append(Y[120:122].iloc[::-1], exog=X[120:122])
    with pytest.raises(
        DataError, match=r"exog is for 2010-02 to 2010-03, and the steps ahead are 2010-01 to 2010-02"
    ):
        fit.append(Y[120:122], exog=X[121:123])
    with pytest.raises(
        ArgumentError,
        match="the model has regressors; give their values at the steps ahead, exog=X of 2 rows: a, b",
    ):
        fit.append(Y[120:122])
    with pytest.raises(DataError, match="exog has the columns a, and the regressors are a, b: no b"):
        fit.forecast(2, exog=X[["a"]][120:122])
    with pytest.raises(ShapeError, match="append: y has 2 series, and the data have 1"):
        fit.append(np.zeros((3, 2)), exog=X[120:123])
    with pytest.raises(DataError, match="apply: exog has other dates"):
        fit.apply(Y[:50], exog=X[10:60])
    with pytest.raises(DataError, match="simulate: exog is for 2010-02"):
        fit.simulate(2, exog=X[121:123])
    with pytest.raises(DataError, match="news: exog is for 2010-02"):
        fit.news(fit.data, "2010-02", "2010-02", exog=X[121:123])
    assert fit.append(1.0, exog=X[120:121]).data.labels.index[-1] == MONTHS[120]
