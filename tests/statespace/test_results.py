"""What a fit says: covariances, criteria, tests of residuals, profiles, dates, parts; figures of statsmodels
0.15 where named."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_statespace import NILE, NILE_START, nile_build

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, DataError, ShapeError
from tapegrad.statespace.results.diagnostics import diagnostics, ljung_box

TIME = np.arange(100.0)
YEARS = pd.Series(NILE, index=pd.period_range("1871", periods=100, freq="Y"), name="flow")


@pytest.fixture(scope="module")
def fitted():
    return ss.fit(nile_build, YEARS, NILE_START, ss.positive())


# --- UnobservedComponents(NILE, "llevel", use_exact_diffuse=True) at the maximum: complex steps, df_model = 3 ---


def test_covariances_against_statsmodels(fitted):
    exact = [[9894471.359080043, -2457061.3280654117], [-2457061.3280654117, 1639361.1978774893]]
    opg = [[6708580.152120151, -822237.3869033508], [-822237.3869033508, 716478.7954790955]]
    robust = [[17108183.243942555, -6328467.955333998], [-6328467.955333998, 3808484.038583348]]
    for kind, expected in (("exact", exact), ("opg", opg), ("robust", robust)):
        np.testing.assert_allclose(fitted.cov(kind), expected, rtol=1e-7)
    with pytest.raises(ArgumentError, match="cov='hc0': wanted 'exact', 'opg', 'robust'"):
        fitted.cov("hc0")


def test_criteria_against_statsmodels(fitted):
    expected = [1272.929127272492, 1273.179127272492, 1280.7446378304562, 1276.0922050273393]
    np.testing.assert_allclose(fitted.criteria(), expected, rtol=1e-13)
    np.testing.assert_allclose([fitted.aic, fitted.aicc, fitted.bic, fitted.hqic], expected, rtol=1e-13)
    assert fitted.diffuse_states == 1
    np.testing.assert_allclose(fitted.criteria("ignored").aic, expected[0] - 2, rtol=1e-13)
    np.testing.assert_allclose(fitted.criteria(diffuse="ignored").bic, expected[2] - np.log(100), rtol=1e-13)
    with pytest.raises(ArgumentError, match="diffuse='no'"):
        fitted.criteria("no")


def test_diagnostics_against_statsmodels(fitted):
    (d,) = fitted.diagnostics
    np.testing.assert_allclose(
        [d.ljung_box.statistic, d.ljung_box.p_value], [1.35134513212, 0.245043096612], rtol=1e-7
    )
    np.testing.assert_allclose(
        [d.jarque_bera.statistic, d.jarque_bera.p_value], [0.04686343276, 0.976840674609], rtol=1e-7
    )
    np.testing.assert_allclose([d.skewness, d.kurtosis], [-0.030544462049, 3.087344006874], rtol=1e-7)
    np.testing.assert_allclose(
        [d.heteroskedasticity.statistic, d.heteroskedasticity.p_value],
        [0.61296099633, 0.165008436932],
        rtol=1e-7,
    )
    e = fitted.standardised[1:, 0]
    tenth = ljung_box(e, [1, 10])[1]
    np.testing.assert_allclose([tenth.statistic, tenth.p_value], [13.195232470221, 0.212960109903], rtol=1e-7)
    assert np.isnan(ljung_box(e, [1], used=1)[0].p_value)


def test_diagnostics_where_there_is_little():
    d = diagnostics(np.array([np.nan, 0.3, -0.2, np.nan, 0.1, 0.5]))
    assert d.ljung_box.statistic > 0 and d.jarque_bera.p_value > 0.5 and d.heteroskedasticity.statistic > 0
    d = diagnostics(np.array([0.1]))
    assert np.isnan([d.ljung_box.statistic, d.jarque_bera.statistic, d.heteroskedasticity.statistic]).all()


def test_forecasts_with_dates_against_statsmodels(fitted):
    ahead = fitted.forecast(3)
    assert isinstance(ahead.mean, pd.Series) and ahead.mean.name == "flow"
    assert list(map(str, ahead.mean.index)) == ["1971", "1972", "1973"]
    np.testing.assert_allclose(ahead.mean, [798.367293326584] * 3, rtol=1e-9)
    limits = ahead.conf_int()
    assert list(limits.columns) == ["lower flow", "upper flow"] and (limits.index == ahead.mean.index).all()
    expected = [
        [517.060448510144, 1079.674138143023],
        [507.201839625347, 1089.53274702782],
        [497.666275839923, 1099.068310813244],
    ]
    np.testing.assert_allclose(limits, expected, rtol=1e-8)
    assert "1973" in str(ahead) and "1099.07" in str(ahead)
    narrow = ahead.conf_int(alpha=0.32)
    assert (narrow.iloc[:, 0] > limits.iloc[:, 0]).all()
    with pytest.raises(ArgumentError, match="alpha=95"):
        ahead.conf_int(alpha=95)
    with pytest.raises(ArgumentError, match="steps=0"):
        fitted.forecast(0)
    with pytest.raises(ArgumentError, match="exog is for models of the library"):
        fitted.forecast(2, exog=[1.0, 2.0])


def test_residuals_are_the_standardised_innovations(fitted):
    r = ss.filter(fitted.model, NILE)
    expected = r.innovations[:, 0] / np.sqrt(r.innovation_cov[:, 0, 0])
    expected[0] = np.nan
    np.testing.assert_allclose(fitted.residuals, expected, rtol=1e-13)
    assert (fitted.residuals.index == YEARS.index).all()
    np.testing.assert_allclose(fitted.fitted_values[1:], NILE[1:] - r.innovations[1:, 0], rtol=1e-12)
    assert np.isnan(fitted.fitted_values.iloc[0]) and (fitted.fitted_values.index == YEARS.index).all()


def test_summary_and_html(fitted):
    text = fitted.summary()
    for word in (
        "15098.51832",
        "3145.547863",
        "4.800",
        "0.251",
        "8933.358",
        "21263.68",
        "-633.4645636",
        "1272.929127",
        "1871 to 1970",
    ):
        assert word in text, word
    assert (
        "exact diffuse start: 1 element, counted" in text
        and "exact observed information" in text
        and "flow" in text
    )
    assert len({len(line) for line in text.splitlines() if set(line) == {"="}}) == 1
    assert "4136.2" in fitted.summary(cov="robust") and "robust" in fitted.summary(cov="robust")
    assert "not counted" in fitted.summary(diffuse="ignored") and "[0.05 " in fitted.summary(alpha=0.1)
    html = fitted._repr_html_()
    assert (
        html.count("<table>") == html.count("</table>") == 3
        and "<td>15098.51832</td>" in html
        and "P&gt;|z|" in html
    )


# --- profiles -----------------------------------------------------------------------------------------------


def test_profile_is_what_a_search_finds(fitted):
    profile = fitted.profile("level_var", [700.0, 1469.1763603, 3000.0])
    np.testing.assert_allclose(profile.loglik[1], fitted.loglik, rtol=1e-12)
    for value, loglik, (noise, level) in zip(profile.values, profile.loglik, profile.estimates, strict=True):
        held = ss.fit(lambda p: ss.local_level(p["v"], value), NILE, {"v": 15000.0}, ss.positive())
        np.testing.assert_allclose([loglik, noise, level], [held.loglik, held.params["v"], value], rtol=1e-8)
    assert fitted.profile("observation_var").loglik.argmax() == 10
    with pytest.raises(
        ArgumentError, match="'level' is not a parameter; wanted one of observation_var, level_var"
    ):
        fitted.profile("level")


def test_limits_by_the_likelihood(fitted):
    low, high = fitted.conf_int(by="likelihood").loc["level_var"]
    fall = fitted.profile("level_var", [low, high]).loglik - fitted.loglik
    np.testing.assert_allclose(fall, -3.841458820694124 / 2, rtol=1e-6)
    assert 0 < low < 1469 < high
    np.testing.assert_allclose(fitted.conf_int().iloc[0], [8933.35780055, 21263.67884756], rtol=1e-7)
    with pytest.raises(ArgumentError, match="by='bootstrap'"):
        fitted.conf_int(by="bootstrap")


def test_profile_of_coefficients_that_bound_each_other():
    """The first of two coefficients of a stationary autoregression, against a search over the second."""
    y = NILE[:40] / 100 - 9
    fit = ss.sarimax(y, (2, 0, 0)).fit()
    i, value = 0, fit.estimates[0] + 0.1
    found = fit.profile(fit.names[i], [value]).loglik[0]
    held = ss.fit(
        lambda p: ss.arma(tg.numpy.stack([value, p["b"]]), (), p["v"]),
        y,
        {"b": 0.1, "v": 1.5},
        {"v": ss.positive()},
    )
    np.testing.assert_allclose(found, held.loglik, rtol=1e-9)


# --- dates --------------------------------------------------------------------------------------------------

INDEXES = {
    "month ends": (pd.date_range("2001-01-31", periods=12, freq="ME"), "2002-01-31"),
    "quarters": (pd.period_range("2001Q2", periods=12, freq="Q"), "2004Q2"),
    "months without a freq": (pd.DatetimeIndex([f"2001-{m:02d}-01" for m in range(1, 13)]), "2002-01-01"),
    "business days": (pd.date_range("2024-05-01", periods=12, freq="B"), "2024-05-17"),
    "years as numbers": (pd.Index(range(1990, 2002)), "2002"),
    "zone": (
        pd.date_range("2024-01-01", periods=12, freq="h", tz="Europe/Berlin"),
        "2024-01-01 12:00:00+01:00",
    ),
}


@pytest.mark.parametrize("name", INDEXES)
def test_dates_go_on(name):
    index, following = INDEXES[name]
    y = pd.Series(np.sin(np.arange(12.0)), index=index)
    data = ss.Observations(y)
    after = data.labels.after(12, 2)
    assert (
        str(after[0]).removesuffix(" 00:00:00") == following
        and type(after[0]) is type(index[0])
        or name == "years as numbers"
    )
    assert len(index.append(after).unique()) == 14


def test_dates_that_cannot_go_on():
    y = pd.Series(
        [1.0, 2.0, 3.0, 2.0], index=pd.DatetimeIndex(["2001-01-01", "2001-01-02", "2001-01-05", "2001-01-09"])
    )
    with pytest.warns(UserWarning, match=r"every row counts as one step.*y.asfreq"):
        fit = ss.fit(ss.level(var=0), y)
    with pytest.warns(UserWarning, match=r"no constant step.*y.asfreq"):
        assert list(fit.forecast(2).dates) == [4, 5]
    ahead = fit.forecast(2, dates=pd.DatetimeIndex(["2001-01-10", "2001-01-11"]))
    assert str(ahead.mean.index[0])[:10] == "2001-01-10"
    with pytest.raises(ShapeError, match="3 dates for 2 steps"):
        fit.forecast(2, dates=[1, 2, 3])
    with pytest.raises(DataError, match=r"do not increase.*y.sort_index\(\)"):
        ss.fit(ss.level(), y.iloc[::-1])
    with pytest.raises(DataError, match="do not increase"):
        ss.Observations(pd.concat([y, y]))


def test_missing_dates_are_told():
    months = pd.period_range("2001-01", periods=12, freq="M")
    y = pd.Series(np.arange(12.0) % 5, index=months)
    for left_out in (y.drop(months[4]), y.drop(months[4]).to_timestamp()):
        with pytest.warns(UserWarning, match=r"2001-01.* to 2001-12.*, have no constant step"):
            ss.fit(ss.level(var=0), left_out)
        with pytest.warns(UserWarning, match="have no constant step"):
            ss.fit_many(ss.level(var=0), pd.DataFrame({"a": left_out}))
    fit = ss.fit(ss.level(var=0), y.to_timestamp())
    quarters = pd.Series([1.0, 2.0, 3.0], index=pd.date_range("2002-01", periods=3, freq="QS"))
    with pytest.raises(DataError, match="in steps of QS-JAN, not MS; the data end at 2001-12-01"):
        fit.append(quarters)


def test_several_series_keep_their_form():
    index = pd.period_range("2001Q1", periods=30, freq="Q")
    rng = np.random.default_rng(5)
    Y = pd.DataFrame(rng.normal(size=(30, 2)), index=index, columns=["a", "b"])
    Y.iloc[4, 0] = np.nan
    fit = ss.var(Y, trend="n").fit()
    assert (
        fit.names[0] == "L1.a.a"
        and list(fit.residuals.columns) == ["a", "b"]
        and np.isnan(fit.residuals.iloc[4, 0])
    )
    ahead = fit.forecast(2)
    assert list(ahead.mean.columns) == ["a", "b"] and str(ahead.mean.index[1]) == "2008Q4"
    assert list(ahead.conf_int().columns) == ["lower a", "upper a", "lower b", "upper b"]
    assert len(fit.diagnostics) == 2 and "59 of 60" in fit.summary() and str(ahead).count("2008Q4") == 2
    plain = ss.var(Y.to_numpy(), trend="n").fit()
    assert plain.forecast(2).conf_int().shape == (2, 2, 2) and plain.forecast(1).mean.shape == (1, 2)
    np.testing.assert_allclose(plain.forecast(2).mean, ahead.mean, rtol=1e-9)
    r = ss.filter(fit.model, Y)
    expected = np.linalg.solve(np.linalg.cholesky(r.innovation_cov[7]), r.innovations[7])
    np.testing.assert_allclose(fit.residuals.iloc[7], expected, rtol=1e-12)


# --- parts and priors ---------------------------------------------------------------------------------------


def test_components_add_up():
    fit = ss.fit(
        ss.level(var=0) + ss.regression(pd.Series(np.arange(100) >= 28, YEARS.index, float, "dam")), YEARS
    )
    parts = fit.components()
    assert list(parts) == ["level", "beta", "irregular"] and (parts["level"].mean.index == YEARS.index).all()
    np.testing.assert_allclose(sum(part.mean for part in parts.values()), NILE, rtol=1e-12)
    assert fit.names == ["sigma2.irregular", "beta.dam"]
    # ordinary least squares: a step between two means
    np.testing.assert_allclose(fit.params["beta"], NILE[28:].mean() - NILE[:28].mean(), rtol=1e-9)
    np.testing.assert_allclose(parts["beta"].standard_errors.iloc[-1], fit.standard_errors[1], rtol=1e-9)
    ahead = fit.forecast(2, exog=pd.Series([1.0, 0.0]))
    np.testing.assert_allclose(ahead.mean, [NILE[28:].mean(), NILE[:28].mean()], rtol=1e-9)
    next_years = pd.period_range(YEARS.index[-1] + 1, periods=2, freq="Y")
    np.testing.assert_array_equal(
        fit.forecast(2, exog=pd.Series([1.0, 0.0], next_years, name="dam")).mean, ahead.mean
    )
    with pytest.raises(ArgumentError, match="exog=X of 2 rows"):
        fit.forecast(2)
    with pytest.raises(DataError, match="exog has the columns damm, and the regressors are dam"):
        fit.forecast(2, exog=pd.DataFrame({"damm": [1.0, 0.0]}))
    with pytest.raises(DataError, match=r"exog is for 1972 to 1973, and the steps ahead are 1971 to 1972"):
        fit.forecast(2, exog=pd.Series([1.0, 0.0], next_years + 1))
    with pytest.raises(ShapeError, match=r"exog has shape \(3, 1\); wanted \(2, 1\)"):
        fit.forecast(2, exog=[1.0, 2.0, 3.0])


def test_parts_of_a_model_by_hand(fitted):
    with pytest.raises(ArgumentError, match="no sum of parts"):
        fitted.components()


def test_a_sum_is_the_model_by_hand(fitted):
    fit = ss.fit(ss.level(), YEARS)
    assert fit.names == ["sigma2.irregular", "sigma2.level"]
    np.testing.assert_allclose(fit.estimates, fitted.estimates, rtol=1e-8)
    np.testing.assert_allclose(
        fit.components()["level"].mean, ss.smooth(fitted.model, NILE).mean[:, 0], rtol=1e-7
    )


def test_prior_of_a_normal_mean():
    """Known variances: the mode is the mean of data and prior, weighted by their precisions."""
    y = np.array([1.0, 3.0, 2.0, 4.0])

    def build(p):
        return ss.LinearGaussian(0.0, 1.0, 1.0, 0.0, None, 0.0, p["mu"], ss.Start(0.0, 1.0))

    for prior in ({"mu": tg.stats.norm(0.0, 0.5)}, lambda p: -0.5 * (p["mu"] / 0.5) ** 2):
        fit = ss.fit(build, y, {"mu": 1.0}, prior=prior)
        np.testing.assert_allclose([fit.estimates[0], fit.standard_errors[0]], [10 / 8, 8**-0.5], rtol=1e-9)
        np.testing.assert_allclose(fit.loglik, ss.loglik(build(fit.params), y), rtol=1e-13)
        assert "maximum a posteriori" in fit.summary()
    with pytest.raises(ArgumentError, match="prior: 'sigma' is not a parameter; the model has mu"):
        ss.fit(build, y, {"mu": 1.0}, prior={"sigma": tg.stats.norm(0, 1)})
    with pytest.raises(ArgumentError, match=r"prior: 3.0; wanted a function"):
        ss.fit(build, y, {"mu": 1.0}, prior=3.0)


# --- pickles ------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "specified",
    [
        ss.sarimax(YEARS[:30], (1, 1, 1)),
        ss.var(np.random.default_rng(2).normal(size=(20, 2))),
        ss.level() + ss.seasonal(3),
    ],
)
def test_fits_are_pickled(specified):
    fit = ss.fit(specified, YEARS[:30]) if isinstance(specified, ss.Structural) else specified.fit()
    again = pickle.loads(pickle.dumps(fit))
    assert again.summary() == fit.summary()
    np.testing.assert_array_equal(again.forecast(3).mean, fit.forecast(3).mean)
    np.testing.assert_allclose(again.cov("opg"), fit.cov("opg"), rtol=1e-12)


def test_a_fit_without_its_function_is_pickled(fitted):
    again = pickle.loads(pickle.dumps(fitted))  # nile_build has a name
    np.testing.assert_allclose(again.cov("opg"), fitted.cov("opg"), rtol=1e-12)
    own = ss.fit(lambda p: ss.local_level(p["a"], 1.0), NILE, {"a": 1e4}, ss.positive())
    again = pickle.loads(pickle.dumps(own))
    assert again.summary() == own.summary() and (again.forecast(2).mean == own.forecast(2).mean).all()
    with pytest.raises(ArgumentError, match="pickled without its build.*def at the top level"):
        again.cov("opg")


# --- pictures -----------------------------------------------------------------------------------------------


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_picture_of_data_and_forecasts(fitted, pyplot):
    figure = fitted.plot(5)
    (axes,) = figure.axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("flow", "time")
    assert [t.get_text() for t in axes.get_legend().get_texts()] == [
        "flow",
        "one-step forecast",
        "forecast",
        "95 % intervals",
    ]
    data, fit, ahead = axes.get_lines()
    np.testing.assert_array_equal(data.get_ydata(), NILE)
    np.testing.assert_allclose(
        fit.get_ydata(), ss.filter(fitted.model, NILE).predicted_mean[1:, 0], rtol=1e-12
    )
    np.testing.assert_allclose(ahead.get_ydata(), fitted.forecast(5).mean)
    assert str(data.get_xdata()[0])[:4] == "1871" and str(ahead.get_xdata()[-1])[:4] == "1975"
    _, own = pyplot.subplots()
    assert fitted.plot(ax=own) is own.figure and len(own.get_lines()) == 2
    with pytest.raises(ArgumentError, match="ax holds 2 axes and there are 1 series"):
        fitted.plot(ax=pyplot.subplots(2)[1])


def test_picture_of_parts(pyplot):
    fit = ss.fit(ss.level() + ss.regression(np.arange(100.0) >= 28), NILE)
    figure = fit.plot_components(alpha=0.1)
    assert [axes.get_ylabel() for axes in figure.axes] == ["level", "beta", "irregular"]
    assert "90 % interval" in [t.get_text() for t in figure.axes[0].get_legend().get_texts()]
    np.testing.assert_allclose(figure.axes[1].get_lines()[-1].get_ydata(), fit.components()["beta"].mean)
    assert figure.axes[-1].get_xlabel() == "step"


def test_picture_of_residuals(fitted, pyplot):
    figure = fitted.plot_diagnostics(lags=10)
    assert [axes.get_title() for axes in figure.axes] == [
        "standardised residuals of flow",
        "distribution",
        "normal quantiles",
        "autocorrelations",
    ]
    e = fitted.standardised[1:, 0]
    np.testing.assert_array_equal(figure.axes[0].get_lines()[0].get_ydata(), e)
    grid, density = figure.axes[1].get_lines()[0].get_data()
    np.testing.assert_allclose(np.trapezoid(density, grid), 1.0, atol=2e-3)
    r = np.corrcoef(e[1:] - e.mean(), e[:-1] - e.mean())[0, 1]
    assert (
        abs(figure.axes[3].get_lines()[0].get_ydata()[0] - r) < 0.02
        and len(figure.axes[3].get_lines()[0].get_ydata()) == 10
    )
    with pytest.raises(ArgumentError, match="'floods' is not a series; wanted one of flow"):
        fitted.plot_diagnostics("floods")


def test_pictures_without_matplotlib(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ArgumentError, match="pip install matplotlib"):
        fitted.plot()


def test_tables_and_pictures_load_late():
    code = "import sys, tapegrad.statespace as ss; ss.fit(ss.level(), [1., 2., 1., 3.]).summary(); "
    code += "print({'pandas', 'matplotlib'} & set(sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "set()"
    )


# --- bad input ----------------------------------------------------------------------------------------------

DAM = pd.Series(np.arange(100.0) >= 28, YEARS.index, float, "dam")
NILE2 = np.stack([NILE, NILE], axis=1)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: ss.fit(nile_build, NILE), ArgumentError, "start is missing"),
        (lambda: ss.fit(ss.level(), NILE2), ShapeError, "level is a model of one series, and y has 2"),
        (lambda: ss.fit(ss.level() + ss.level(), NILE), ArgumentError, "two parts of one kind (level)"),
        (lambda: ss.level() + 3, ArgumentError, "level + a int: wanted another part"),
        (lambda: ss.level(var=-1), ArgumentError, "level(var=-1): wanted None"),
        (lambda: ss.seasonal(1), ArgumentError, "seasonal(1): wanted a whole number of steps, at least 2"),
        (lambda: ss.seasonal(12, harmonics=7), ArgumentError, "from 1 to half the period"),
        (lambda: ss.cycle(period=(5, 2)), ArgumentError, "wanted a positive number, or (low, high)"),
        (lambda: ss.cycle(damping=1.5), ArgumentError, "at most 1"),
        (lambda: ss.ar(0), ArgumentError, "ar(0)"),
        (
            lambda: ss.regression(np.array([1.0, np.nan])),
            DataError,
            "X[1, 0] is nan; regressors must be known",
        ),
        (lambda: ss.regression(["a", "b"]), ArgumentError, "does not hold real numbers alone"),
        (lambda: ss.fit(ss.level() + ss.regression(np.ones(99)), NILE), ShapeError, "99 rows and y has 100"),
        (lambda: ss.fit(ss.level(), [np.nan] * 5), DataError, "all 5 observations are missing"),
        (lambda: ss.sarimax([np.nan] * 5), DataError, "0 observed values are too few"),
        (lambda: ss.fit(ss.level(), [1.0]), DataError, "1 observed value"),
        (
            lambda: ss.fit(ss.level() + ss.trend(), [1.0, 2.0, 4.0]),
            DataError,
            "3 observed values are too few for level + trend",
        ),
        (
            lambda: ss.fit(ss.level() + ss.regression(np.ones((100, 1))), NILE),
            DataError,
            "data, x1 is a sum",
        ),
        (
            lambda: ss.sarimax(NILE, exog=np.ones((100, 2))),
            DataError,
            "regressors are collinear: where there are data, x2 is",
        ),
        (
            lambda: ss.sarimax(NILE, exog=pd.DataFrame({"a": TIME, "b": 2 * TIME, "c": 0 * TIME})),
            DataError,
            "data, b, c is",
        ),
        (
            lambda: ss.fit(ss.level() + ss.regression(DAM.shift(1, freq="Y")), YEARS),
            DataError,
            "fit: regression has other dates than y",
        ),
        (
            lambda: ss.sarimax(YEARS, exog=DAM.shift(1, freq="Y")),
            DataError,
            "sarimax: exog has other dates than y; write X.reindex",
        ),
        (
            lambda: ss.sarimax(YEARS, exog=pd.Series(NILE**2, range(1, 101))),
            DataError,
            "sarimax: exog has other labels of rows than y",
        ),
        (lambda: ss.fit(NILE, ss.level()), ArgumentError, "build"),
        (lambda: ss.fit(ss.level() + ss.seasonal(99), NILE), DataError, "100 observed values are too few"),
        (lambda: ss.fit(ss.level(), "abc"), ArgumentError, "y: a str; wanted numbers"),
        (lambda: ss.fit(ss.level(), np.ones(9)), DataError, "all observations are equal"),
        (lambda: ss.fit(ss.level(var=1) + ss.noise(var=1), NILE), ArgumentError, "nothing to estimate"),
        (
            lambda: ss.fit(ss.level(), NILE, {"sigma2": 1.0}),
            ArgumentError,
            "'sigma2' is not a parameter of level, which has",
        ),
        (lambda: ss.sarimax(NILE2), ShapeError, "y has 2 series; wanted one (ss.var for several)"),
        (lambda: ss.sarimax(NILE, (1, 0)), ArgumentError, "order=(1, 0); wanted 3 whole numbers, (p, d, q)"),
        (lambda: ss.sarimax(NILE, (1, 0.5, 0)), ArgumentError, "order=(1, 0.5, 0)"),
        (lambda: ss.sarimax(NILE, (1, 0, 0), (1, 0, 0, 1)), ArgumentError, "steps of a season, at least 2"),
        (lambda: ss.sarimax(NILE, trend="ctt"), ArgumentError, "trend='ctt'"),
        (lambda: ss.sarimax(NILE, exog=np.ones(3)), ShapeError, "exog has 3 rows and y has 100"),
        (
            lambda: ss.sarimax([1.0, 2.0, 4.0], (1, 1, 1)),
            DataError,
            "3 observed values are too few for ARIMA(1, 1, 1)",
        ),
        (lambda: ss.sarimax(np.arange(30.0), (1, 1, 0)), DataError, "the differenced series is constant"),
        (lambda: ss.var(NILE), ShapeError, "var: Y has one series"),
        (lambda: ss.var(NILE2, order=0), ArgumentError, "order=0"),
        (lambda: ss.var(NILE2[:3], order=1), DataError, "3 steps without missing values are too few"),
        (lambda: ss.dynamic_factor(NILE2, factors=2), ArgumentError, "factors=2 for 2 series"),
        (lambda: ss.dynamic_factor(NILE2, error_order=-1), ArgumentError, "error_order=-1"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=re.escape(words)):
        call()


@pytest.mark.long
def test_a_maximum_lower_than_where_a_search_failed_is_not_shown():
    """The likelihood rises along a ridge, to a cycle that does not change: another start's maximum is
    lower."""
    with pytest.raises(DataError, match="sigma2.cycle and damping.cycle one by one") as caught:
        ss.fit(ss.level() + ss.cycle(period=(3, 9)), YEARS[:30])
    assert any("a lower one" in note for note in caught.value.__notes__)
    assert caught.value.loglik == pytest.approx(-187.6445, abs=1e-3)


def test_the_table_of_the_tutorial_is_what_is_printed():
    """Numbers to seven digits, because the last ones depend on the processor; not how the search went."""
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "tutorials" / "forecasting.md").read_text(encoding="utf-8")
    table = pd.read_csv(
        root / "examples/data/airline.csv", comment="#", parse_dates=["month"], index_col="month"
    )
    past = np.log(table["passengers"]).asfreq("MS")[:"1958"]
    printed = str(ss.fit(ss.level() + ss.trend(var=0) + ss.seasonal(12), past))
    words = [
        re.sub(r"Search .*?gradient \S+", "", x).split()
        for x in (re.search(r"```text\n(.*?)```", page, re.S)[1], printed)
    ]
    for shown, now in zip(*words, strict=True):
        if shown != now:
            assert float(shown) == pytest.approx(float(now), rel=1e-7)
