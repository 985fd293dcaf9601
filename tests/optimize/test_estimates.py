"""What fits tell, against closed forms, SciPy's covariances and intervals found by a search."""

import pickle

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import tapegrad as tg
from tapegrad.errors import ArgumentError, ConvergenceError, ShapeError

X = np.linspace(0.0, 4.0, 25)
Y = 2.5 * np.exp(-1.3 * X) + 0.3 + 0.05 * np.random.default_rng(0).normal(size=25)
TIGHT = {"xtol": 1e-14, "ftol": 1e-14}


def model(x, height, rate, level):
    return height * np.exp(-rate * x) + level


def by_search(f, best, k, goal, reach, others):
    """The ends of a profile interval: f(p) <= goal, the other parameters anew at each trial, by plain
    SciPy."""

    def excess(t):
        at = lambda w: np.insert(w, k, t)
        return (
            scipy.optimize.minimize(lambda w: f(at(w)), others, method="BFGS", options={"gtol": 1e-9}).fun
            - goal
        )

    return [scipy.optimize.brentq(excess, best, best + side * reach, xtol=1e-9) for side in (-1, 1)]


def test_curve_fit_tells():
    fit = tg.optimize.curve_fit(model, X, Y, **TIGHT)
    p, cov = fit
    e = fit.estimates()
    assert isinstance(fit, tuple) and e.names == ["height", "rate", "level"] and e.degrees_of_freedom == 22
    np.testing.assert_allclose(e.cov, cov, rtol=1e-5)
    np.testing.assert_allclose(e.standard_errors, np.sqrt(np.diag(cov)), rtol=1e-5)
    np.testing.assert_allclose(np.diag(e.correlations), 1.0)
    t = scipy.stats.t.ppf(0.95, 22)
    np.testing.assert_allclose(
        e.conf_int(0.1), np.stack([p - t * e.standard_errors, p + t * e.standard_errors], axis=1)
    )
    squares = lambda p: ((model(X, *p) - Y) ** 2).sum()
    goal = squares(p) * (1 + scipy.stats.f.ppf(0.95, 1, 22) / 22)
    profile = e.conf_int(method="profile")
    for k in range(3):
        known = by_search(squares, p[k], k, goal, 8 * e.standard_errors[k], np.delete(p, k))
        np.testing.assert_allclose(profile[k], known, rtol=1e-5)
    text = str(fit)
    assert (
        "height" in text
        and "Student's, 22 degrees" in text
        and "std. error" in repr(e)
        and "correlations above" in text
    )
    assert pickle.loads(pickle.dumps(fit))[0].tolist() == p.tolist()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("sigma", [np.linspace(0.03, 0.1, 25), np.eye(25) * 0.01 + 0.002])
def test_sigma(sigma, absolute):
    fit = tg.optimize.curve_fit(model, X, Y, sigma=sigma, absolute_sigma=absolute, **TIGHT)
    e = fit.estimates()
    np.testing.assert_allclose(e.cov, fit[1], rtol=1e-5)
    assert np.isinf(e.degrees_of_freedom) == absolute
    assert (np.diff(e.conf_int(method="profile"), axis=1) > 0).all()


def test_predictions():
    fit = tg.optimize.curve_fit(model, X, Y, **TIGHT)
    e, new = fit.estimates(), np.array([0.5, 2.0])
    band = e.predict(lambda p: model(new, *p), 0.1)
    J = np.stack([np.exp(-fit[0][1] * new), -fit[0][0] * new * np.exp(-fit[0][1] * new), np.ones(2)], axis=1)
    errors = np.sqrt(np.diag(J @ fit[1] @ J.T))
    np.testing.assert_allclose(band.standard_errors, errors, rtol=1e-5)
    np.testing.assert_allclose(band.upper - band.mean, scipy.stats.t.ppf(0.95, 22) * errors, rtol=1e-5)
    np.testing.assert_allclose(band.mean - band.lower, band.upper - band.mean)


def test_trees_robust_losses_and_bounds():
    fun = lambda p: model(X, p["height"], p["line"][0], p["line"][1]) - Y
    start = {"height": 1.0, "line": np.array([1.0, 0.5])}
    r = tg.optimize.least_squares(fun, start, loss="soft_l1", f_scale=0.1)
    e = r.estimates()
    assert e.names == ["height", "line[0]", "line[1]"] and set(e.x) == {"height", "line"}
    np.testing.assert_allclose(e.cov, np.linalg.inv(r.jac.T @ r.jac) * 2 * r.cost / 22, rtol=1e-5)
    assert (e.conf_int(method="profile")[:, 0] < r.flat).all()
    held = tg.optimize.least_squares(
        fun, {**start, "line": np.array([1.0, 0.2])}, bounds={"line": (None, [5.0, 0.25])}, xtol=1e-14
    )
    e = held.estimates()
    assert np.isnan(e.standard_errors[2]) and "at its bound" in repr(e) and e.degrees_of_freedom == 23
    fixed = tg.optimize.curve_fit(lambda x, a, b: model(x, a, b, 0.25), X, Y)
    np.testing.assert_allclose(e.cov[:2, :2], fixed[1], rtol=1e-4)
    np.testing.assert_allclose(
        e.conf_int(method="profile")[:2], fixed.estimates().conf_int(method="profile"), rtol=1e-4
    )
    assert e.predict(lambda p: p["line"]).standard_errors[1] == 0.0


def again(x):
    return pickle.loads(pickle.dumps(x))


def nll(p, y):
    return len(y) * p["log_sd"] + 0.5 * (((y - p["mean"]) * np.exp(-p["log_sd"])) ** 2).sum()


def test_a_log_likelihood():
    y = np.random.default_rng(1).normal(3.0, 2.0, 40)
    r = tg.optimize.minimize(nll, {"mean": 0.0, "log_sd": 0.0}, (y,), tol=1e-10)
    e = r.estimates()
    np.testing.assert_allclose(e.standard_errors, [y.std() / np.sqrt(40), np.sqrt(1 / 80)], rtol=1e-6)
    assert np.isinf(e.degrees_of_freedom) and e.names == ["mean", "log_sd"]
    rise = scipy.stats.chi2.ppf(0.95, 1)
    half = y.std() * np.sqrt(np.exp(rise / 40) - 1)  # of the mean, in closed form
    np.testing.assert_allclose(e.conf_int(method="profile")[0], [y.mean() - half, y.mean() + half], rtol=1e-6)
    sd = e.predict(lambda p: np.exp(p["log_sd"]))
    np.testing.assert_allclose(sd.standard_errors, y.std() / np.sqrt(80), rtol=1e-6)


def test_what_has_no_end_and_what_is_no_minimum():
    y = np.array([0.0, 0.0, 0.0])  # counts of zero: the rate has no lower end on the log scale
    r = tg.optimize.minimize(
        lambda x: np.exp(x).sum() * 3 - (y * x).sum() + 1e-9 * (x + 20.0).sum() ** 2,
        np.array([-5.0]),
        tol=1e-12,
    )
    assert np.isfinite(r.estimates().conf_int(method="profile")[0, 1])
    stopped = tg.optimize.minimize(
        nll, {"mean": 0.0, "log_sd": 0.0}, (np.arange(9.0),), options={"maxiter": 2}
    )
    with pytest.raises(ConvergenceError, match="fit again"):
        stopped.estimates().conf_int(method="profile")
    flat = tg.optimize.least_squares(
        lambda p: np.stack([p[0] - 1, p[0] - 2, 0 * p[1]]), [0.0, 0.0]
    ).estimates()
    assert np.isinf(flat.cov).all() and "inf" in repr(flat)
    assert flat.conf_int(method="profile")[1].tolist() == [-np.inf, np.inf]


def test_pandas():
    pandas = pytest.importorskip("pandas")
    d = pandas.DataFrame({"t": X, "y": Y})
    known = scipy.optimize.curve_fit(model, X, Y)[0]
    for f in (
        model,
        lambda t, a, b, c: a * np.exp(-t.values * b) + c,
        lambda t, a, b, c: (t * 0 + a) * np.exp(-(t * b)) + c,
    ):
        np.testing.assert_allclose(tg.optimize.curve_fit(f, d["t"], d["y"])[0], known, rtol=1e-6)
    table = lambda D, a, b, c: a * np.exp(-b * D["t"]) + c
    np.testing.assert_allclose(
        tg.optimize.curve_fit(table, d[["t"]], d["y"], np.ones(3))[0], known, rtol=1e-6
    )
    assert tg.optimize.curve_fit(model, d["t"], d["y"]).estimates().names == ["height", "rate", "level"]
    aligned = lambda t, a, b, c: a * np.exp(-b * t) + c + (t - t.shift(1, fill_value=0.0)) * 0
    np.testing.assert_allclose(tg.optimize.curve_fit(aligned, d["t"], d["y"])[0], known, rtol=1e-6)
    line = lambda p: p[0] * d["t"] - d["y"]
    np.testing.assert_allclose(
        tg.optimize.least_squares(line, [1.0]).x, scipy.optimize.least_squares(line, [1.0]).x, rtol=1e-6
    )


def test_propagate():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(3, 3))
    cov, x = 0.001 * A @ A.T, np.array([1.0, 2.0, 0.5])
    f = lambda x: {"product": x[0] * x[1], "powers": np.stack([x[2] ** 2, np.exp(x[0])])}
    J = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0], [np.e, 0.0, 0.0]])
    p = tg.propagate(f, x, cov)
    np.testing.assert_allclose(p.cov, J @ cov @ J.T)
    np.testing.assert_allclose(p.standard_errors["powers"], np.sqrt(np.diag(p.cov))[1:])
    exact = tg.propagate(
        lambda x: x[0] * x[1], x[:2], np.diag([0.3, 0.2]), order=2
    )  # second order is exact here
    np.testing.assert_allclose(exact.cov, 4 * 0.3 + 0.2 + 0.3 * 0.2)
    square = tg.propagate(lambda x: x**2, 3.0, 0.01, order=2)
    np.testing.assert_allclose([square.value, square.cov[0, 0]], [9.01, 4 * 9 * 0.01 + 2 * 0.01**2])
    slope = tg.grad(
        lambda s: tg.propagate(np.exp, np.array([1.0, 2.0]), np.ones(2) * s).standard_errors.sum()
    )(0.25)
    np.testing.assert_allclose(slope, np.exp([1, 2]).sum())


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda e: e.conf_int(1.5), ArgumentError, "alpha=1.5"),
        (lambda e: e.conf_int(method="bootstrap"), ArgumentError, "method='bootstrap'"),
        (lambda e: tg.propagate(np.exp, np.ones(2), np.eye(3)), ShapeError, r"wanted is \(2, 2\)"),
        (
            lambda e: tg.propagate(np.exp, np.ones(2), np.array([[1.0, 0.5], [0.0, 1.0]])),
            ArgumentError,
            "not symmetric",
        ),
        (lambda e: tg.propagate(np.exp, np.ones(2), -np.eye(2)), ArgumentError, "negative variance"),
        (
            lambda e: tg.propagate(np.exp, np.ones(2), np.array([[1.0, 2.0], [2.0, 1.0]])),
            ArgumentError,
            "negative eigenvalue -1",
        ),
        (lambda e: e.predict(np.ones(3)), ArgumentError, "a function of the parameters"),
        (lambda e: tg.propagate(np.exp, np.ones(2), np.eye(2), 3), ArgumentError, "order=3"),
        (
            lambda e: pickle.loads(
                pickle.dumps(tg.optimize.minimize(lambda x: x @ x, np.ones(2)))
            ).estimates(),
            ArgumentError,
            "fit again here",
        ),
        (
            lambda e: tg.optimize.minimize(
                lambda x: x @ x, np.ones(2), constraints={"type": "eq", "fun": lambda x: x[0] - 1}
            ).estimates(),
            ArgumentError,
            "with constraints",
        ),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call(tg.optimize.curve_fit(model, X, Y).estimates())
