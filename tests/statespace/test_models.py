"""Sums of parts, ARIMA, vector autoregressions and dynamic factors: likelihood, forecasts and smoothed parts
at given parameters against figures of statsmodels 0.15 (its models named beside them, all with exact diffuse
start), and fits of their own."""

from dataclasses import dataclass

import numpy as np
import pytest
from statsmodels.tsa.statespace.sarimax import SARIMAX
from test_statespace import NILE, host

import tapegrad.numpy as tnp
from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, DataError, ShapeError
from tapegrad.statespace.models.components import ComponentStates, ModelComponent, ParameterBlock

FLOW = NILE[:40] / 100
DAM = (np.arange(40) >= 28).astype(float)
LOG_2PI = np.log(2 * np.pi)


# UnobservedComponents(FLOW, ...): log-likelihood, two forecasts with standard errors, level at 0, 20, 39.
STRUCTURAL = {
    "lltrend, seasonal=4": (
        ss.level() + ss.trend() + ss.seasonal(4),
        {"sigma2.irregular": 1.0, "sigma2.level": 0.5, "sigma2.trend": 0.02, "sigma2.seasonal": 0.1},
        -77.97073378481758,
        ([9.562697416188, 10.471887984209], [1.837041749983, 2.074975828387]),
        [10.876456650393, 11.07776149061, 9.788788505093],
    ),
    "llevel, freq_seasonal 6 with 2 harmonics": (
        ss.level() + ss.seasonal(6, harmonics=2),
        {"sigma2.irregular": 1.0, "sigma2.level": 0.5, "sigma2.seasonal": 0.05},
        -79.17011401861991,
        ([8.706498534669, 9.102738841578], [1.846835479813, 2.042662588587]),
        [11.31691990914, 11.023102300659, 9.360951062409],
    ),
    "smooth trend": (
        ss.trend(),
        {"sigma2.irregular": 1.0, "sigma2.trend": 0.05},
        -79.56638556580435,
        ([10.404780429448, 10.825044750372], [1.40130590336, 1.671559905022]),
        [11.127028019998, 11.195168317866, 9.984516108525],
    ),
    "lldtrend": (
        ss.level() + ss.trend(var=0),
        {"sigma2.irregular": 1.0, "sigma2.level": 0.3},
        -77.41414456489628,
        ([9.482066008372, 9.438888000883], [1.328656447888, 1.453705303195]),
        [11.20918630791, 11.089971283431, 9.52524401586],
    ),
    "dconstant, stochastic cycle": (
        ss.level(var=0) + ss.cycle(damping=1.0),
        {"sigma2.irregular": 1.0, "sigma2.cycle": 0.2, "period.cycle": 9.0},
        -88.52617247974597,
        ([10.889914865935, 10.765091886142], [1.376960404264, 1.49726582774]),
        [10.248062148275] * 3,
    ),
    "llevel, exog": (
        ss.level() + ss.regression(DAM),
        {"sigma2.irregular": 1.0, "sigma2.level": 0.3, "beta": [-2.0]},
        -71.36269418028546,
        ([9.582362167404, 9.582362167404], [1.310683346419, 1.42052484476]),
        [11.149041188895, 11.106638017554, 11.582362167404],
    ),
    "llevel, exog, mle_regression=False": (
        ss.level() + ss.regression(DAM, varying=True, var=0),
        {"sigma2.irregular": 1.0, "sigma2.level": 0.3},
        -70.72751823458984,
        ([9.580637403314, 9.580637403314], [1.310684339248, 1.420525760819]),
        [11.149041488673, 11.116132570279, 12.720038027308],
    ),
    "fixed intercept, autoregressive=2": (
        ss.level(var=0) + ss.ar(2) + ss.noise(var=0),
        {"sigma2.ar": 1.5, "ar": [0.5, 0.2]},
        -76.32865204334999,
        ([10.0355, 10.04625], [1.237985741296, 1.395840092997]),
        [10.301666666667] * 3,
    ),
}


@pytest.mark.parametrize("name", STRUCTURAL)
def test_sums_of_parts_against_statsmodels(name):
    parts, params, loglik, (mean, errors), level = STRUCTURAL[name]
    problem = parts.problem(ss.Observations(FLOW))
    assert {b[0] for b in problem.parameters.blocks} == set(params)
    params = {key: np.asarray(x, float)[()] for key, x in params.items()}
    model = problem.build(params)
    np.testing.assert_allclose(ss.loglik(model, FLOW), loglik, rtol=1e-10)
    np.testing.assert_allclose(ss.smooth(model, FLOW).mean[[0, 20, 39], 0], level, rtol=1e-7)
    exog = np.ones(2) if "exog" in name else None
    ahead = ss.forecast(problem.described.extended(2, exog)(params), FLOW, 2)
    np.testing.assert_allclose(ahead.mean[:, 0], mean, rtol=1e-7)
    np.testing.assert_allclose(np.sqrt(ahead.cov[:, 0, 0]), errors, rtol=1e-6)


GAPS = FLOW.copy()
GAPS[[3, 20]] = np.nan
# SARIMAX(FLOW, ..., use_exact_diffuse=True)
ARIMA = {
    "(1,1,1) c": (
        dict(order=(1, 1, 1), trend="c"),
        {"intercept": 0.1, "ar": [0.3], "ma": [-0.6], "sigma2": 1.7},
        -78.96014808007608,
        ([9.872090493095, 10.026717641024], [1.303840481041, 1.591540134587]),
    ),
    "(1,0,0)(1,1,1,4)": (
        dict(order=(1, 0, 0), seasonal_order=(1, 1, 1, 4)),
        {"ar": [0.4], "seasonal_ar": [0.3], "seasonal_ma": [-0.5], "sigma2": 1.7},
        -83.5440464134738,
        ([7.677626285667, 10.071888749536], [1.303840627076, 1.404279285493]),
    ),
    "(1,0,1)(1,0,2,4)": (
        dict(order=(1, 0, 1), seasonal_order=(1, 0, 2, 4)),
        {"ar": [0.4], "ma": [0.2], "seasonal_ar": [0.3], "seasonal_ma": [-0.5, 0.1], "sigma2": 1.7},
        -511.9163350926599,
        ([4.475198140743, 0.505087321437], [1.3038404811, 1.520526224759]),
    ),
    "(1,1,1) missing": (
        dict(order=(1, 1, 1)),
        {"ar": [0.3], "ma": [-0.6], "sigma2": 1.7},
        -74.94942638262552,
        ([9.622096950023, 9.60172603503], [1.303840481105, 1.591540134675]),
    ),
    "(1,1,0) exog": (
        dict(order=(1, 1, 0), exog=DAM),
        {"beta": [-2.0], "ar": [0.3], "sigma2": 1.7},
        -96.11366932834072,
        ([9.447, 9.3741], [1.303840481041, 2.138457387932]),
    ),
    "(0,2,2)": (
        dict(order=(0, 2, 2)),
        {"ma": [-0.6, 0.2], "sigma2": 1.7},
        -105.46498721155633,
        ([10.030370344652, 9.961817218868], [1.303840481062, 2.243211982884]),
    ),
}


@pytest.mark.parametrize("name", ARIMA)
def test_arima_against_statsmodels(name):
    settings, params, loglik, (mean, errors) = ARIMA[name]
    y = GAPS if "missing" in name else FLOW
    specified = ss.sarimax(y, **settings)
    problem = specified.model.problem(specified.data, None, None, False, None)
    assert [b[0] for b in problem.parameters.blocks] == list(params)
    params = {key: np.asarray(x, float)[()] for key, x in params.items()}
    np.testing.assert_allclose(ss.loglik(specified.model(params), y), loglik, rtol=1e-10)
    lost = settings["order"][1] + np.prod(settings.get("seasonal_order", (0, 0))[1::2])
    assert (
        problem.used_up == lost
        and problem.offset == lost * LOG_2PI / 2
        and (problem.quick is None) == ("missing" in name or not lost)
    )
    if problem.quick is not None:  # the differenced series has the same likelihood
        differenced = ss.loglik(problem.quick.build(params), problem.quick.data)
        np.testing.assert_allclose(differenced, loglik + problem.offset, rtol=1e-10)
    exog = np.ones(2) if "exog" in settings else None
    ahead = ss.forecast(specified.model.extended(2, exog)(params), y, 2)
    np.testing.assert_allclose(ahead.mean[:, 0], mean, rtol=1e-7)
    np.testing.assert_allclose(np.sqrt(ahead.cov[:, 0, 0]), errors, rtol=1e-6)


@pytest.mark.parametrize("order", [(1, 0, 0), (2, 1, 1)])
def test_time_trend_is_that_of_a_regression(order):
    """phi(B) mu = c + b t: the same likelihood with the line mu taken off by hand."""
    params = {"intercept": 0.4, "drift": 0.02, "ar": np.array([0.5, -0.2][: order[0]]), "sigma2": 1.3}
    if order[2]:
        params["ma"] = np.array([0.3])
    specified = ss.sarimax(FLOW, order, trend="ct")
    slope = 0.02 / (1 - params["ar"].sum())
    t = np.arange(40.0)
    lagged = (params["ar"] * np.arange(1, order[0] + 1)).sum()
    line = (0.4 - slope * lagged) / (1 - params["ar"].sum()) + slope * t
    w = FLOW - line if order[1] == 0 else np.diff(FLOW) - line[1:]
    expected = ss.loglik(ss.arma(params["ar"], params.get("ma", ()), 1.3), w)
    np.testing.assert_allclose(
        ss.loglik(specified.model(params), FLOW) + order[1] * LOG_2PI / 2, expected, rtol=1e-11
    )


# Growth of real GDP, consumption and investment of the United States, percent, 1959Q2 to 1969Q1 (macrodata of
# statsmodels, public domain).
MACRO = np.array(
    [
        [2.494, 1.529, 8.021], [-0.119, 1.039, -7.213], [0.349, 0.108, 3.443], [2.219, 0.953, 10.266],
        [-0.468, 1.257, -10.669],
        [0.163, -0.397, -0.598], [-1.291, 0.134, -13.185], [0.592, -0.028, 2.524], [1.853, 1.477, 7.183],
        [1.603, 0.484, 8.045],
        [2.015, 1.982, 1.674], [1.778, 1.059, 5.791], [1.098, 1.222, -0.972], [0.92, 0.806, 1.773], [0.243,
        1.408, -3.415],
        [1.299, 0.671, 5.401], [1.245, 0.95, 1.447], [1.865, 1.352, 3.209], [0.757, 0.835, 1.223], [2.22,
        1.955, 4.03],
        [1.142, 1.742, -0.461], [1.35, 1.82, 2.348], [0.277, 0.281, 0.813], [2.426, 2.199, 9.588], [1.348,
        1.1, -0.006],
        [2.009, 1.703, 3.509], [2.384, 2.773, 0.46], [2.425, 1.467, 8.117], [0.332, 0.255, -1.842], [0.656,
        1.14, -0.996],
        [0.807, 0.415, 0.479], [0.877, 0.58, -2.776], [0.021, 1.354, -4.357], [0.795, 0.511, 2.83], [0.76,
        0.614, 2.14],
        [2.04, 2.361, 2.153], [1.684, 1.521, 3.963], [0.682, 1.863, -3.3], [0.432, 0.458, 1.033], [1.563,
        1.114, 6.38],
    ]
)  # fmt: skip


def test_vector_autoregression_against_statsmodels():
    """VARMAX(MACRO[:, :2], order=(2, 0), trend="c")"""
    specified = ss.var(MACRO[:, :2], order=2)
    problem = specified.model.problem(specified.data, None, None, False, None)
    assert problem.parameters.names[:6] == [
        "intercept.y1",
        "intercept.y2",
        "L1.y1.y1",
        "L1.y2.y1",
        "L2.y1.y1",
        "L2.y2.y1",
    ]
    coefficients = np.array([[0.1, 0.2, -0.1, 0.05], [0.3, 0.1, 0.2, 0.1]])
    cov = np.array([0.4])
    params = {
        "intercept": np.array([0.3, 0.4]),
        "coefficients": coefficients,
        "sqrt.var": np.array([0.9, 0.6]),
        "sqrt.cov": cov,
    }
    model = specified.model(params)
    np.testing.assert_allclose(ss.loglik(model, MACRO[:, :2]), -97.52131606325317, rtol=1e-12)
    np.testing.assert_allclose(
        ss.forecast(model, MACRO[:, :2], 2).mean, [[0.6588, 1.1125], [0.48778, 1.13289]], rtol=1e-12
    )


@pytest.mark.parametrize(
    "settings, params, loglik",
    [
        (
            {"order": 2},
            {"loadings": [0.9, 0.5, 4.0], "sigma2": [0.3, 0.3, 7.0], "transition": [0.3, 0.2]},
            -246.44310630654763,
        ),
        (
            {"error_order": 2},
            {"loadings": [0.9, 0.5, 4.0], "sigma2": [0.3, 0.3, 7.0], "transition": [0.3]}
            | {f"error_ar.y{i}": [0.3, 0.1] for i in (1, 2, 3)},
            -230.13900256327906,
        ),
        (
            {"factors": 2},
            {
                "loadings": [0.9, 0.5, 4.0, 0.3, 1.0],
                "sigma2": [0.3, 0.3, 7.0],
                "transition": [[0.3, 0.1], [0.2, -0.1]],
            },
            -250.2675438177219,
        ),
    ],
)
def test_dynamic_factors_against_statsmodels(settings, params, loglik):
    """DynamicFactor(MACRO, k_factors=, factor_order=, error_order=)"""
    specified = ss.dynamic_factor(MACRO, trend="n", **settings)
    problem = specified.model.problem(specified.data, None, None, False, None)
    assert {b[0] for b in problem.parameters.blocks} == set(params)
    params = {name: np.array(x) for name, x in params.items()}
    np.testing.assert_allclose(ss.loglik(specified.model(params), MACRO), loglik, rtol=1e-10)
    assert np.isfinite(ss.loglik(specified.model(problem.parameters.tree(problem.parameters.start)), MACRO))


WAVES = np.stack([np.sin(np.arange(40.0)), DAM], axis=1)
AHEAD = np.array([[0.7, 1.0], [-0.2, 1.0]])


def assert_regressors_enter(specified, params, loglik, mean, errors):
    """Log-likelihood and forecasts at given parameters; a fit is a maximum, and forecasts from it want the
    regressors to come."""
    params = {name: np.array(x) for name, x in params.items()}
    y = np.asarray(specified.data.raw)
    np.testing.assert_allclose(ss.loglik(specified.model(params), y), loglik, rtol=1e-12)
    ahead = ss.forecast(specified.model.extended(2, AHEAD)(params), y, 2)
    np.testing.assert_allclose(ahead.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(np.diagonal(ahead.cov, axis1=1, axis2=2)), errors, rtol=1e-10)


def test_vector_autoregression_with_regressors_against_statsmodels():
    """VARMAX(MACRO[:40, :2], exog=WAVES, order=(2, 0), trend="c"), its start set to that of regressors that
    were as at the first step"""
    specified = ss.var(MACRO[:40, :2], order=2, exog=WAVES)
    params = {
        "intercept": [0.3, 0.4],
        "beta": [[0.3, -0.2], [0.1, 0.4]],
        "coefficients": [[0.1, 0.2, -0.1, 0.05], [0.3, 0.1, 0.2, 0.1]],
        "sqrt.var": [0.9, 0.6],
        "sqrt.cov": [0.4],
    }
    mean, errors = (
        [[0.6688, 1.5825], [0.32278, 1.56289]],
        [[0.9, 0.7211102550927979], [0.9237423883312923, 0.787210264160726]],
    )
    assert_regressors_enter(specified, params, -108.50428703009126, mean, errors)
    problem = specified.model.problem(specified.data, None, None, False, None)
    assert problem.parameters.names[2:6] == ["beta.x1.y1", "beta.x2.y1", "beta.x1.y2", "beta.x2.y2"]
    assert repr(specified) == "VAR(2) of 2 series + x1 + x2 of 40 steps"


def test_dynamic_factor_with_regressors_against_statsmodels():
    """DynamicFactor(MACRO[:40], k_factors=1, factor_order=1, exog=WAVES, error_order=1)"""
    specified = ss.dynamic_factor(MACRO[:40], error_order=1, trend="n", exog=WAVES)
    params = {
        "beta": [[0.3, -0.2], [0.1, 0.4], [1.0, -0.5]],
        "loadings": [0.9, 0.5, 4.0],
        "sigma2": [0.3, 0.3, 7.0],
        "transition": [0.3],
    } | {f"error_ar.y{i + 1}": [x] for i, x in enumerate([0.3, 0.1, -0.2])}
    mean = [
        [0.4521584152344321, 0.6586304756919809, 1.554127668353251],
        [-0.12735247542967038, 0.4369235764356446, -0.20961495634172017],
    ]
    errors = [
        [1.0535653752852738, 0.7426189494674885, 4.85727924287646],
        [1.0999545445153633, 0.758773526592297, 4.972517633596968],
    ]
    assert_regressors_enter(specified, params, -239.21217093174621, mean, errors)


def test_fits_with_regressors():
    g = np.random.default_rng(0)
    beta, y = np.array([[1.0, 0.5], [0.2, -0.3]]), np.zeros((40, 2))
    for t in range(40):
        y[t] = [[0.5, 0.1], [-0.2, 0.4]] @ y[t - 1] + beta @ WAVES[t] + 0.3 * g.normal(size=2) + 1
    y[[4, 11], [0, 1]] = np.nan
    fit = ss.var(y, exog=WAVES).fit()
    assert fit.gradient < 1e-9 and abs(fit.params["beta"] - beta).max() < 0.4
    with pytest.raises(ArgumentError, match="the model has regressors; give their values at the steps ahead"):
        fit.forecast(2)
    np.testing.assert_allclose(
        fit.forecast(2, exog=AHEAD).mean, ss.forecast(fit.model_ahead(2, AHEAD), y, 2).mean
    )
    for X, error, message in (
        (WAVES[:30], ShapeError, "exog has 30 rows and Y has 40"),
        (np.ones(40), DataError, "collinear.*belongs to the intercept"),
        (np.where(DAM == 1, np.nan, DAM), DataError, "regressors must be known at every step"),
    ):
        with pytest.raises(error, match=message):
            ss.var(y, exog=X)
        with pytest.raises(error, match=message):
            ss.dynamic_factor(y, exog=X)


COMPILED = {
    "slope, seasonal": ss.level() + ss.trend() + ss.seasonal(4),
    "waves": ss.level() + ss.seasonal(6, harmonics=3),
    "autoregression beside a level": ss.level() + ss.ar(1),
    "autoregression beside a slope": ss.level() + ss.trend() + ss.ar(2),
    "cycle": ss.level() + ss.cycle(period=(4, 20)),
    "cycle of known period beside a slope": ss.trend() + ss.cycle(period=8.0),
    "regression": ss.level() + ss.regression(np.stack([DAM, np.sin(np.arange(40.0))], axis=1)),
    "varying regression": ss.level(var=0) + ss.regression(np.sin(np.arange(40.0)), varying=True),
    "ARMA": ss.sarimax(FLOW, (2, 0, 1), trend="ct"),
    "seasonal ARIMA": ss.sarimax(FLOW, (1, 1, 0), (0, 1, 1, 4), exog=DAM),
    "missing": ss.sarimax(GAPS, (0, 1, 1)),
    "VAR": ss.var(MACRO[:, :2], order=2),
    "factor": ss.dynamic_factor(MACRO, order=2),
    "factor, errors": ss.dynamic_factor(MACRO, error_order=1, trend="n"),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_derivatives(name):
    """What the search goes by, gradient, Hessian and scores, against differences of the filter on arrays."""
    model = COMPILED[name]
    if isinstance(model, ss.Structural):
        problem = model.problem(ss.Observations(FLOW))
    else:
        problem = model.model.problem(model.data, None, None, False, None)
    objective = problem.objective()
    u = objective.start + 0.05 * np.cos(np.arange(objective.start.size))
    inner = problem.quick or problem
    assert objective.way.startswith("compiled filter")

    def on_arrays(u):
        return -ss.loglik(problem.build(problem.parameters.tree(u)), problem.data) - problem.offset

    np.testing.assert_allclose(objective(u)[0], on_arrays(u), rtol=1e-10)
    gradient, h = objective(u)[1], 1e-4 * np.eye(u.size)
    expected = [
        (8 * (on_arrays(u + e) - on_arrays(u - e)) - on_arrays(u + 2 * e) + on_arrays(u - 2 * e)) / 12e-4
        for e in h
    ]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6 * abs(gradient).max())
    H = objective.hessian(u)
    expected = [
        (8 * (objective(u + e)[1] - objective(u - e)[1]) - objective(u + 2 * e)[1] + objective(u - 2 * e)[1])
        / 12e-4
        for e in h
    ]
    np.testing.assert_allclose(H, expected, rtol=1e-5, atol=1e-6 * abs(H).max())
    np.testing.assert_allclose(
        -problem.scores(u).sum(axis=0), gradient, rtol=1e-7, atol=1e-7 * abs(gradient).max()
    )
    assert len(problem.scores(u)) == inner.data.steps


def test_parts_of_one_kind_have_names_of_their_own():
    parts = ss.level() + ss.seasonal(4) + ss.seasonal(6) + ss.ar(1) + ss.ar(1, name="slow")
    names = parts.problem(ss.Observations(FLOW)).parameters.names
    assert names[2:4] == ["sigma2.seasonal1", "sigma2.seasonal2"] and "slow.L1" in names and "ar.L1" in names


def test_moving_average_at_its_bound():
    """White noise that was differenced: the moving average ends at -1, where the likelihood piles up; the
    variance is that of the noise."""
    y = np.random.default_rng(0).normal(size=100)
    fit = ss.sarimax(y, (0, 1, 1)).fit()
    assert fit.at_bound == ["ma.L1"] and np.isnan(fit.standard_errors[0])
    np.testing.assert_allclose(fit.estimates, [-1.0, y.var(ddof=1)], rtol=1e-4)


def test_parameters_of_small_unit():
    """A drift whose gradient rounding keeps above the limit: the estimates are those of the scaled series."""
    t = np.arange(200.0)
    y = 8.0 + 0.008 * t + 0.01 * np.random.default_rng(1).normal(size=200).cumsum() * 0.5
    fit = ss.sarimax(y, (1, 0, 0), trend="ct").fit()
    scaled = ss.sarimax(y * 100, (1, 0, 0), trend="ct").fit()
    np.testing.assert_allclose(fit.estimates * [100, 100, 1, 1e4], scaled.estimates, rtol=1e-5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name",
    [
        "autoregression beside a slope",
        "cycle",
        "regression",
        "ARMA",
        "seasonal ARIMA",
        "VAR",
        "factor, errors",
    ],
)
def test_models_on_any_device(xp, name):
    """The same log-likelihood for data on the device, from parameters there."""

    def on(place):
        if isinstance(COMPILED[name], ss.Structural):
            return COMPILED[name].problem(ss.Observations(place(FLOW)))
        made = {
            "ARMA": lambda: ss.sarimax(place(FLOW), (2, 0, 1), trend="ct"),
            "seasonal ARIMA": lambda: ss.sarimax(place(FLOW), (1, 1, 0), (0, 1, 1, 4), exog=DAM),
            "VAR": lambda: ss.var(place(MACRO[:, :2]), order=2),
            "factor, errors": lambda: ss.dynamic_factor(place(MACRO), error_order=1),
        }[name]()
        return made.model.problem(made.data, None, None, False, None)

    here, there = on(np.asarray), on(xp.asarray)
    u = here.parameters.start
    expected = ss.loglik(here.build(here.parameters.tree(u)), here.data)
    found = ss.loglik(there.build(there.parameters.tree(xp.asarray(u))), there.data)
    np.testing.assert_allclose(host(found), expected, rtol=1e-10)


# --- lists of lags, powers of time ---

# SARIMAX(FLOW, ..., simple_differencing=True), with a stationary start
LISTS = {
    "([1, 3], 0, [2])": (
        dict(order=([1, 3], 0, [2])),
        {"ar": [0.58, 0.4], "ma": [0.27], "sigma2": 0.78},
        -102.8774305974151,
    ),
    "([1, 3], 1, [2]) c": (
        dict(order=([1, 3], 1, [2]), trend="c"),
        {"intercept": 0.034, "ar": [-0.395, 0.125], "ma": [-0.18], "sigma2": 0.79},
        -95.50423338922126,
    ),
    "([2], 0, 0)([2], 0, [1, 3], 4)": (
        dict(order=([2], 0, 0), seasonal_order=([2], 0, [1, 3], 4)),
        {"ar": [0.97], "seasonal_ar": [-0.15], "seasonal_ma": [-0.07, 0.12], "sigma2": 1.17},
        -116.08253618685585,
    ),
}
LABELS = {"([2], 0, 0)([2], 0, [1, 3], 4)": ["ar.L2", "ar.S.L8", "ma.S.L4", "ma.S.L12", "sigma2"]}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_lags_against_statsmodels(name):
    settings, params, loglik = LISTS[name]
    specified = ss.sarimax(FLOW, **settings)
    params = {key: np.asarray(x, float)[()] for key, x in params.items()}
    problem = specified.model.problem(specified.data, None, None, False, None)
    inner = problem.quick or problem
    np.testing.assert_allclose(ss.loglik(inner.build(params), inner.data), loglik, rtol=1e-10)
    np.testing.assert_allclose(ss.loglik(specified.model(params), FLOW) + problem.offset, loglik, rtol=1e-9)
    assert name not in LABELS or problem.parameters.names == LABELS[name]


def test_a_list_without_gaps_is_an_order():
    one, other = ss.sarimax(FLOW, ([1, 2], 0, [])), ss.sarimax(FLOW, (2, 0, 0))
    assert repr(one) == repr(other) and one.fit().loglik == other.fit().loglik
    assert repr(ss.sarimax(FLOW, ([3, 1], 0, 0))) == "ARIMA((1, 3), 0, 0) of 40 steps"


def test_gaps_between_lags_are_zeros():
    """With missing data, and in forecasts."""
    fit = ss.sarimax(GAPS, ([1, 3], 0, [2])).fit()
    assert fit.names == ["ar.L1", "ar.L3", "ma.L2", "sigma2"]
    (one, three), (two,) = fit.params["ar"], fit.params["ma"]
    whole = ss.arma(np.array([one, 0.0, three]), np.array([0.0, two]), fit.params["sigma2"])
    np.testing.assert_allclose(ss.loglik(whole, GAPS), fit.loglik, rtol=1e-10)
    np.testing.assert_allclose(ss.forecast(whole, GAPS, 4).mean[:, 0], fit.forecast(4).mean, rtol=1e-10)
    for name, k in (("ar.L3", 1), ("ma.L2", 2)):  # a maximum of what is not zero
        for step in (-1e-3, 1e-3):
            params = {key: np.array(x) for key, x in fit.params.items()}
            params[name[:2]][-1] += step
            assert ss.loglik(fit.problem.build(params), GAPS) < fit.loglik, (name, k)


def test_powers_of_time():
    """phi(B) mu = c + b t^2: the same likelihood with mu taken off by hand, and the same maximum as with
    powers as regressors."""
    phi, t = np.array([0.5, -0.2]), np.arange(40.0)
    at = np.array([2.0, 9.0, 30.0])[:, None]
    lagged = at ** np.arange(3) - sum(c * (at - i) ** np.arange(3) for i, c in enumerate(phi, 1))
    line = np.stack([t**k for k in range(3)], axis=1) @ np.linalg.solve(lagged, 0.4 + 0.01 * at[:, 0] ** 2)
    for d, w in ((0, FLOW - line), (1, np.diff(FLOW) - line[1:])):
        specified = ss.sarimax(FLOW, (2, d, 0), trend=[1, 0, 1])
        params = {"intercept": 0.4, "trend.2": 0.01, "ar": phi, "sigma2": 1.3}
        expected = ss.loglik(ss.arma(phi, (), 1.3), w)
        np.testing.assert_allclose(
            ss.loglik(specified.model(params), FLOW) + d * LOG_2PI / 2, expected, rtol=1e-10
        )
    fit = ss.sarimax(FLOW, (1, 0, 1), trend=[1, 1, 1]).fit()
    assert fit.names[:3] == ["intercept", "drift", "trend.2"]
    regression = lambda n: np.arange(n, n + 40.0)[:, None] ** np.arange(3) / 40.0 ** np.arange(3)
    other = ss.sarimax(FLOW, (1, 0, 1), exog=regression(0)).fit()
    np.testing.assert_allclose(fit.loglik, other.loglik, rtol=1e-10)
    np.testing.assert_allclose(
        fit.forecast(3).mean, other.forecast(3, exog=regression(40)[:3]).mean, rtol=1e-6
    )
    gaps = ss.sarimax(GAPS, (0, 1, 1), trend=[0, 0, 1]).fit()
    assert gaps.names == ["trend.2", "ma.L1", "sigma2"] and np.isfinite(gaps.forecast(2).mean).all()


def test_bad_lists():
    for settings, message in (
        (dict(order=([1, 1], 0, 0)), "different whole numbers, from 1 on"),
        (dict(order=([0, 2], 0, 0)), "different whole numbers, from 1 on"),
        (dict(order=([1.5], 0, 0)), "different whole numbers, from 1 on"),
        (dict(order=(1, [1], 0)), "wanted 3 whole numbers, \\(p, d, q\\)"),
        (dict(seasonal_order=([1], 0, 0, 1)), "at least 2"),
        (dict(trend=[1, 2]), "a 1 for each power of time"),
        (dict(trend={"c": 1}), "or a list as"),
    ):
        with pytest.raises(ArgumentError, match=message):
            ss.sarimax(FLOW, **settings)


@pytest.mark.parametrize("order", [(1, 0, 0), (1, 1, 0)])
def test_arima_with_measurement_error(order):
    """statsmodels' likelihood at our estimates; with differences it lacks the constant of what begins
    them."""
    g = np.random.default_rng(2)
    e, x = g.normal(size=120), np.zeros(120)
    for t in range(1, 120):
        x[t] = 0.8 * x[t - 1] + e[t]
    regressor = g.normal(size=120)
    y = (x.cumsum() if order[1] else x) + g.normal(size=120) + regressor
    fit = ss.sarimax(y, order=order, exog=regressor, measurement_error=True).fit()
    assert fit.names == ["x1", "ar.L1", "sigma2", "sigma2.measurement"] and not fit.at_bound
    theirs = SARIMAX(y, exog=regressor, order=order, measurement_error=True, use_exact_diffuse=order[1] > 0)
    assert theirs.param_names == ["x1", "ar.L1", "var.measurement_error", "sigma2"]
    at = lambda v: theirs.loglike(v[[0, 1, 3, 2]]) + order[1] * np.log(2 * np.pi) / 2
    np.testing.assert_allclose(fit.loglik, at(fit.estimates), rtol=1e-10)
    for k in range(4):
        for step in (-1e-3, 1e-3):
            assert at(fit.estimates + step * np.eye(4)[k]) < fit.loglik
    with pytest.raises(ArgumentError, match="measurement_error=1; wanted True or False"):
        ss.sarimax(y, order=order, measurement_error=1)


@dataclass(frozen=True)
class DampedTrend(ModelComponent):
    """A level whose slope is damped."""

    def blocks(self, sample):
        return {"damping": ParameterBlock(0.8, ss.interval(0.0, 1.0)), **self.variance_block(sample.s2 / 50)}

    def states(self, p):
        T = tnp.array([[1.0, 1.0], [0.0, p["damping"]]])
        return ComponentStates(T, np.array([1.0, 0.0]), np.array([[0.0], [1.0]]), [self.variance_of(p)])


def test_components_that_have_one_level_in_common_are_refused():
    two = ss.level() + ss.Structural((DampedTrend("damped", None, "damped trend"),))
    with pytest.raises(DataError, match=r"only through a sum of them: level, damped.*; leave out the level"):
        ss.fit(two, NILE)


def test_a_season_that_was_never_observed_is_no_reason_to_refuse():
    y = np.where(np.arange(NILE.size) % 4 == 1, np.nan, NILE)
    assert np.isfinite(ss.fit(ss.level() + ss.seasonal(4, var=0), y).loglik)
