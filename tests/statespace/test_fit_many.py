"""fit_many against fit, series by series; gaps and lengths of their own; what fails alone; bad input."""

import numpy as np
import pandas as pd
import pytest
from test_compiled_filter import level, structural

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.errors import DataError

LEVEL = {"noise": 1.0, "level": 1.0}


def walks(k, n, seed=0):
    g = np.random.default_rng(seed)
    return (0.7 * g.normal(size=(k, n))).cumsum(axis=1) + g.normal(size=(k, n))


def assert_as_one_by_one(r, build, Y, start, constraints, rtol=1e-6):
    assert r.converged.all(), r.message
    for b, y in enumerate(Y):
        one = ss.fit(build, y, start, constraints)
        np.testing.assert_allclose(r.loglik[b], one.loglik, rtol=1e-10)
        free = ~np.isnan(one.standard_errors)
        np.testing.assert_allclose(r.estimates[b][free], one.estimates[free], rtol=rtol, atol=1e-9)
        np.testing.assert_array_equal(np.isnan(r.standard_errors[b]), ~free)
        np.testing.assert_allclose(
            r.standard_errors[b][free], one.standard_errors[free], rtol=10 * rtol, atol=1e-9
        )


def test_local_levels():
    Y = walks(12, 60)
    r = ss.fit_many(level, Y, LEVEL, ss.positive())
    assert r.names == ["noise", "level"] and r.estimates.shape == r.standard_errors.shape == (12, 2)
    assert r.report().startswith("one compiled filter for 12 series: 1 states, 4 numbers\n12 of 12")
    assert_as_one_by_one(r, level, Y, LEVEL, ss.positive())


def test_gaps_and_lengths():
    """Gaps of their own, series of several lengths, and some whose first observations are missing."""
    Y = list(walks(9, 60, seed=1))
    g = np.random.default_rng(2)
    for b, y in enumerate(Y):
        y[1:][g.random(59) < 0.2] = np.nan
        Y[b] = y[: 40 + 2 * b]
    Y[3][:2] = Y[5][:1] = Y[6][:2] = np.nan
    r = ss.fit_many(level, Y, LEVEL, ss.positive())
    assert "for 9 series" in r.report() and "one by one" not in r.report()
    assert_as_one_by_one(r, level, Y, LEVEL, ss.positive())


def damped(p):
    """A trend whose slope dies away: the transition depends on a parameter, and the start is diffuse."""
    T = np.array([[1.0, 1.0], [0.0, 0.0]]) + np.array([[0.0, 0.0], [0.0, 1.0]]) * p["phi"]
    return ss.LinearGaussian(T, np.array([1.0, 0.0]), p["level"] * np.array([1.0, 0.3]), p["noise"])


@pytest.mark.long
def test_transitions_that_depend_on_parameters():
    """Then the state behind the first steps does, too, which are part of the kernels; whatever is missing
    there."""
    g = np.random.default_rng(8)
    slope = np.zeros((6, 80))
    for t in range(1, 80):
        slope[:, t] = 0.7 * slope[:, t - 1] + g.normal(size=6)
    Y = slope.cumsum(axis=1) + g.normal(size=(6, 80)) + 0.7 * g.normal(size=(6, 80)).cumsum(axis=1)
    Y[1, 1] = Y[3, 1] = Y[2, 0] = Y[4, 30] = np.nan
    start, constraints = (
        {"phi": 0.5, "level": 1.0, "noise": 1.0},
        {"level": ss.positive(), "noise": ss.positive()},
    )
    r = ss.fit_many(damped, Y, start, constraints)
    assert "for 6 series" in r.report() and "one by one" not in r.report()
    assert_as_one_by_one(r, damped, Y, start, constraints, rtol=1e-5)


def waves(p):
    """A level and two waves of 40 steps, which the first five observations hardly tell from each other."""
    turn = lambda w: np.array([[np.cos(w), np.sin(w)], [-np.sin(w), np.cos(w)]])
    T = np.zeros((5, 5))
    T[0, 0], T[1:3, 1:3], T[3:, 3:] = 1.0, turn(2 * np.pi / 40), turn(4 * np.pi / 40)
    Q = p["level"] * np.array([1.0, 0.0, 0.0, 0.0, 0.0]) + p["wave"] * np.array([0.0, 1.0, 1.0, 1.0, 1.0])
    return ss.LinearGaussian(T, np.array([1.0, 1.0, 0.0, 1.0, 0.0]), Q, p["noise"])


@pytest.mark.long
@pytest.mark.parametrize("n", [30, 90])  # the whole sample is augmented; the start is collapsed
def test_waves_of_long_periods(n):
    """The augmented filter runs over the same first steps of all series, whatever is missing there."""
    g = np.random.default_rng(n)
    Y = walks(4, n, seed=2) + np.sin(np.arange(n) * np.pi / 20) + 0.3 * g.normal(size=(4, n)).cumsum(axis=1)
    Y[1, :3] = Y[2, 4:9] = np.nan
    start = {"level": 0.5, "wave": 0.01, "noise": 1.0}
    r = ss.fit_many(waves, Y, start, ss.positive())
    assert "for 4 series" in r.report()
    for b, y in enumerate(Y):
        if r.converged[b]:
            np.testing.assert_allclose(r.loglik[b], ss.fit(waves, y, start, ss.positive()).loglik, rtol=1e-7)
    assert r.converged.sum() >= 3


def test_first_step_a_transition():
    Y = walks(3, 50, seed=7)

    def build(p):
        return ss.LinearGaussian(
            1.0, 1.0, p["level"], p["noise"], start=ss.Start(0.0, p["level"], predict_first=True)
        )

    r = ss.fit_many(build, Y, LEVEL, ss.positive())
    assert r.report().startswith("one compiled filter for 3 series")
    assert_as_one_by_one(r, build, Y, LEVEL, ss.positive())


@pytest.mark.long
def test_structural_models():
    """Thirteen steps of constant gains: the state behind them differs by series."""
    g = np.random.default_rng(3)
    season = np.sin(np.arange(96) * np.pi / 6)
    Y = walks(4, 96, seed=4) + 3 * season + g.normal(size=(4, 96)) + np.arange(96) * 0.1
    start = {"level": 0.5, "slope": 0.01, "seasonal": 0.01, "irregular": 1.0}
    r = ss.fit_many(structural, Y, start, ss.positive())
    for b, y in enumerate(Y):
        np.testing.assert_allclose(r.loglik[b], ss.fit(structural, y, start, ss.positive()).loglik, rtol=1e-8)


def test_regressors_of_all_series():
    """The model of one series, with its regressors, fitted to others."""
    g = np.random.default_rng(6)
    X = g.normal(size=(70, 2))
    Y = X @ [1.0, -0.5] + g.normal(size=(4, 70))
    Y[1, 5] = np.nan
    build = ss.sarimax(Y[0], order=(1, 0, 0), exog=X, trend="t").model
    start = {"drift": 0.0, "beta": np.zeros(2), "ar": np.zeros(1), "sigma2": 1.0}
    constraints = {"ar": ss.stationary(), "sigma2": ss.positive()}
    r = ss.fit_many(build, Y, start, constraints)
    assert r.report().startswith("one compiled filter for 4 series: 1 states")
    assert_as_one_by_one(r, build, Y, start, constraints)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("order", [(2, 1), (0, 4)])
def test_stationary_models(order):
    g = np.random.default_rng(5)
    e = g.normal(size=(5, 203))
    Y = e[:, 3:] + 0.6 * e[:, 2:-1] - 0.2 * e[:, 1:-2] + 0.3 * e[:, :-3] + 2.0

    def build(p):
        return ss.arma(p["ar"] if order[0] else (), -p["ma"] if order[1] else (), p["var"], p["mean"])

    start = (
        {"var": 1.0, "mean": 1.0}
        | ({"ar": 0.1 * np.ones(order[0])} if order[0] else {})
        | ({"ma": 0.1 * np.ones(order[1])})
    )
    constraints = {"var": ss.positive(), "ar": ss.stationary(), "ma": ss.stationary()}
    constraints = {name: c for name, c in constraints.items() if name in start}
    r = ss.fit_many(build, Y, start, constraints)
    assert r.report().startswith("one compiled filter")
    assert_as_one_by_one(r, build, Y, start, constraints, rtol=1e-5)


def test_known_start_and_regression():
    """A start of given mean and variance that depend on the parameters, and an observation matrix that varies
    over time."""
    g = np.random.default_rng(6)
    x = g.normal(size=(50, 1, 1))
    Y = 1.5 * x[:, 0, 0] + g.normal(size=(6, 50))

    def build(p):
        return ss.LinearGaussian(1.0, x, 0.01, p["var"], start=ss.Start(p["slope"], 0.1 * p["var"]))

    start = {"slope": 1.0, "var": 1.0}
    r = ss.fit_many(build, Y, start, {"var": ss.positive()})
    assert r.report().startswith("one compiled filter")
    assert_as_one_by_one(r, build, Y, start, {"var": ss.positive()})


def test_what_cannot_be_traced_goes_one_by_one():
    Y = walks(2, 40)

    def build(p):
        return level({**p, "noise": p["noise"] ** 2}) if float(p["noise"]) > 0.1 else level(p)

    r = ss.fit_many(build, Y, LEVEL, ss.positive())
    assert r.report().startswith("series by series, for ") and "np.where" in r.report()
    assert_as_one_by_one(r, build, Y, LEVEL, ss.positive())


def test_a_series_that_fails_stops_no_other():
    Y = walks(4, 40)
    Y[2] = 1.0
    r = ss.fit_many(level, Y, LEVEL, ss.positive())
    assert r.converged.tolist() == [True, True, False, True]
    assert np.isnan(r.standard_errors[2]).all() and "not" in r.message[2]
    assert_as_one_by_one(
        ss.fit_many(level, Y[[0, 1, 3]], LEVEL, ss.positive()), level, Y[[0, 1, 3]], LEVEL, ss.positive()
    )


def test_a_series_that_says_nothing_has_not_converged():
    """Its only observation settles the diffuse start."""
    Y = walks(3, 30)
    r = ss.fit_many(level, [Y[0], [1.0], Y[2]], LEVEL, ss.positive())
    assert r.converged.tolist() == [True, False, True] and "do not determine" in r.message[1]
    assert np.isnan(r.standard_errors[1]).all() and np.isfinite(r.standard_errors[[0, 2]]).all()


def test_data_that_a_transform_hides_are_refused():
    Y = walks(2, 12)

    def loglik(y):
        return ss.loglik(ss.local_level(0.5, 0.3), y)

    with pytest.raises(tg.errors.ArgumentError, match="hide the data"):
        tg.vmap(loglik)(Y)


def test_a_parameter_without_effect_is_named():
    """Where the search began and ended, the transition is a constant."""

    def build(p):
        T = np.maximum(0.3 * p["slope"], 0.2)
        return ss.LinearGaussian(T, 1.0, 1.0, p["noise"], start=ss.Start(0.0, 10.0))

    start = {"slope": 0.4, "noise": 1.0}
    Y = walks(2, 40)
    r = ss.fit_many(build, Y, start, ss.positive())
    assert not r.converged.any() and np.isnan(r.standard_errors).all()
    assert all(["does not depend on slope" in text for text in r.failures.values()])
    with pytest.raises(DataError, match="slope"):
        ss.fit(build, Y[0], start, ss.positive())
    start["slope"] = 2.0
    assert_as_one_by_one(ss.fit_many(build, Y, start, ss.positive()), build, Y, start, ss.positive())


@pytest.mark.parametrize(
    "Y, error, words",
    [
        (np.ones(5), tg.errors.ShapeError, "wanted \\(k, T\\), a row for each series"),
        (np.ones((2, 3, 4)), tg.errors.ShapeError, "\\(2, 3, 4\\)"),
        ([], tg.errors.ShapeError, "a list of series"),
        (["a", "b"], tg.errors.ArgumentError, "wanted \\(k, T\\) numbers"),
        (3, tg.errors.ArgumentError, "Y is a int"),
        (np.array([[1.0, np.inf], [0.0, 1.0]]), tg.errors.DataError, "Y\\[0, 1\\] is inf"),
        (
            np.array([[1.0, 2.0], [np.nan, np.nan]]),
            tg.errors.DataError,
            "all observations of series 1 are missing",
        ),
    ],
)
def test_bad_input(Y, error, words):
    with pytest.raises(error, match=words):
        ss.fit_many(level, Y, LEVEL, ss.positive())


def test_bad_arguments():
    Y = walks(2, 30)
    with pytest.raises(
        tg.errors.ArgumentError, match="fit_many: build is a ndarray.*the model function comes first"
    ):
        ss.fit_many(Y, level, LEVEL, ss.positive())
    for build in (level, lambda y: y.mean(), lambda y: ss.var(np.stack([y, -y], axis=1), order=1)):
        with pytest.raises(tg.errors.ArgumentError, match=r"start is missing; wanted.*lambda y: ss.sarimax"):
            ss.fit_many(build, Y)
    orders = iter([(0, 1, 1), (0, 1, 2)])
    with pytest.raises(tg.errors.ArgumentError, match=r"series 1 has the parameters ma.L1, ma.L2, sigma2"):
        ss.fit_many(lambda y: ss.sarimax(y, order=next(orders)), Y)
    with pytest.raises(
        tg.errors.ArgumentError, match="fit_many: build asks for the parameter 'level'; start has noise"
    ):
        ss.fit_many(level, Y, {"noise": 1.0}, ss.positive())
    with pytest.raises(
        tg.errors.ArgumentError, match="fit_many: build returned a tuple; wanted a LinearGaussian"
    ):
        ss.fit_many(lambda p: (1.0, 2.0), Y, LEVEL)
    with pytest.raises(tg.errors.ArgumentError, match="start of noise is -1"):
        ss.fit_many(level, Y, {"noise": -1.0, "level": 1.0}, ss.positive())


def test_series_have_names_and_failures_are_listed():
    """A DataFrame has a series in each column, a dict under each key; a constant series fails alone."""
    g = np.random.default_rng(6)
    frame = pd.DataFrame(
        g.normal(size=(60, 3)).cumsum(axis=0) + g.normal(size=(60, 3)), columns=["a", "b", "c"]
    )
    settings = ({"v": 1.0, "w": 1.0}, ss.positive())

    def build(p):
        return ss.local_level(p["v"], p["w"])

    fits = ss.fit_many(build, frame, *settings)
    table = fits.frame()
    assert list(table.index) == ["a", "b", "c"] and list(table.columns) == [
        "v",
        "w",
        "se(v)",
        "se(w)",
        "loglik",
        "converged",
    ]
    for name in frame:
        one = ss.fit(build, frame[name], *settings)
        np.testing.assert_allclose(table.loc[name, ["v", "w"]].astype(float), one.estimates, rtol=1e-6)
        np.testing.assert_allclose(table.loc[name, "loglik"], one.loglik, rtol=1e-9)
    fits = ss.fit_many(build, {"walk": frame["a"], "constant": np.ones(40)}, *settings)
    assert (
        list(fits.failures) == ["constant"]
        and fits.failures["constant"]
        and fits.converged.tolist() == [True, False]
    )
    assert np.isnan(fits.to_frame().loc["constant", "se(v)"])


def test_parts_in_one_process(monkeypatch):
    """Parts bound the memory; they change nothing else."""
    Y = np.random.default_rng(8).normal(size=(5, 60)).cumsum(axis=1)
    whole = ss.fit_many(level, Y, LEVEL, ss.positive())
    monkeypatch.setattr("tapegrad.statespace._panel.SERIES_AT_ONCE", 2)
    parts = ss.fit_many(level, Y, LEVEL, ss.positive(), progress=False)
    assert "3 parts of up to 2 series" in parts.report() and "parts" not in whole.report()
    np.testing.assert_allclose(parts.estimates, whole.estimates, rtol=1e-7, atol=1e-12)
    with pytest.raises(tg.errors.ArgumentError, match="progress='yes'"):
        ss.fit_many(level, Y, LEVEL, ss.positive(), progress="yes")


def uneven(k, n):
    """Series of several scales and lengths, with gaps, and one that is constant."""
    Y = walks(k, n)
    Y[1] *= 100.0
    Y[2] /= 1000.0
    Y[3, 5:9] = Y[4, -7:] = Y[5, 0] = np.nan
    Y[6] = 3.0
    return Y


MODELS = {
    "level": (ss.level(), lambda y: ss.fit(ss.level(), y)),
    "seasonal": (ss.level() + ss.seasonal(4, var=0), lambda y: ss.fit(ss.level() + ss.seasonal(4, var=0), y)),
    "arima": (
        lambda y: ss.sarimax(y, order=(1, 0, 1), trend="c"),
        lambda y: ss.sarimax(y, order=(1, 0, 1), trend="c").fit(),
    ),
    "airline": (
        lambda y: ss.sarimax(y, order=(0, 1, 1), seasonal_order=(0, 1, 1, 4)),
        lambda y: ss.sarimax(y, order=(0, 1, 1), seasonal_order=(0, 1, 1, 4)).fit(),
    ),
}


@pytest.mark.parametrize(
    "name", ["level", *[pytest.param(n, marks=pytest.mark.long) for n in list(MODELS)[1:]]]
)
def test_library_models_are_those_of_single_fits(name):
    together, alone = MODELS[name]
    Y = uneven(12, 60)
    fits = ss.fit_many(together, Y)
    assert fits.report().startswith("one compiled filter for ")
    assert list(fits.failures) == [6] and "equal" in fits.failures[6] or "constant" in fits.failures[6]
    for b in fits.converged.nonzero()[0]:
        one = alone(Y[b][: np.isfinite(Y[b]).nonzero()[0][-1] + 1])
        assert abs(fits.loglik[b] - one.loglik) < 1e-6  # where each search rests
        np.testing.assert_allclose(fits.standard_errors[b], one.standard_errors, rtol=1e-3)


def test_library_models_with_regressors_are_fitted_alone():
    Y, x = walks(3, 40), np.arange(40.0) ** 2
    fits = ss.fit_many(lambda y: ss.sarimax(y, order=(0, 1, 1), exog=x), Y)
    assert fits.report().startswith("series by series: they have regressors") and fits.converged.all()
    one = ss.sarimax(Y[2], order=(0, 1, 1), exog=x).fit()
    np.testing.assert_allclose(fits.estimates[2], one.estimates, rtol=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{}, {"exog": np.arange(60.0) ** 2}], ids=["", "regressor"])
def test_a_scale_left_out(options):
    """As single fits; the first series has a lower maximum where a search that is not in doubt ends."""
    Y = np.random.default_rng(3).normal(size=(4, 60)).cumsum(axis=1)
    model = lambda y: ss.sarimax(y, order=(1, 1, 1), concentrate_scale=True, **options)
    fits, single = ss.fit_many(model, Y), [model(y).fit() for y in Y]
    assert fits.names == single[0].names and "sigma2" not in fits.to_frame()
    assert fits.converged.all()
    np.testing.assert_allclose(fits.loglik, [fit.loglik for fit in single], rtol=0, atol=1e-7)
    for found, wanted, rtol in (
        (fits.estimates, [fit.estimates for fit in single], 1e-4),
        (fits.standard_errors, [fit.standard_errors for fit in single], 1e-3),
    ):
        np.testing.assert_allclose(found, wanted, rtol=rtol, equal_nan=True)


def test_parameters_at_bounds():
    """Short series, of which most have a variance that is zero: the maxima are those of single fits."""
    Y = np.random.default_rng(5).normal(size=(6, 30))
    Y[::3] = Y[::3].cumsum(axis=1)
    model = ss.level() + ss.trend()
    many = ss.fit_many(model, Y)
    single = [ss.fit(model, y) for y in Y]
    assert many.converged.all() and np.isnan(many.standard_errors).any(axis=1).sum() >= 4
    np.testing.assert_allclose(many.loglik, [fit.loglik for fit in single], rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        many.standard_errors, [fit.standard_errors for fit in single], rtol=1e-5, equal_nan=True
    )
