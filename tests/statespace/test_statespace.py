"""State space models: the founding numbers, dense Gaussian algebra as an independent reference, and every
error."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from comparison import host
from scipy.stats import multivariate_normal

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, ConvergenceError, DataError, NotPositiveDefiniteError, ShapeError

pytestmark = [pytest.mark.smoke, pytest.mark.one_in(4)]

try:
    from tapegrad.testing import hosted as hosted_cupy
except ImportError:
    hosted_cupy = None

ROOT = Path(__file__).parents[2]
YEAR, NILE = np.loadtxt(ROOT / "examples" / "data" / "nile.csv", delimiter=",", skiprows=3, unpack=True)
METHODS = {  # iterations from the start of F7, as measured; the bound leaves room for another SciPy
    "BFGS": 7,
    "L-BFGS-B": 8,
    "Newton-CG": 9,
    "trust-ncg": 8,
    "trust-krylov": 8,
    "trust-exact": 6,
    "trust-constr": 30,
    "CG": 25,
    "TNC": 20,
    "SLSQP": 15,
}


DIFFUSE = ss.Start(diffuse=True)


def nile_loglik(v, start=DIFFUSE):
    return ss.loglik(ss.local_level(v[0], v[1], start), NILE)


def nile_build(p):
    return ss.local_level(p["observation_var"], p["level_var"])


NILE_START = {"observation_var": 1e4, "level_var": 1e3}


# --- founding numbers ---------------------------------------------------------------------------------------


def test_data_file():
    assert NILE.sum() == 91935 and len(NILE) == 100
    assert YEAR[0] == 1871 and YEAR[-1] == 1970


def test_f1_local_level_with_known_start():
    g = np.random.default_rng(1234)
    data = np.cumsum(g.standard_normal(100)) + g.standard_normal(100)
    start = ss.Start(np.zeros(1), np.eye(1), predict_first=True)

    def f(theta):
        return ss.loglik(
            ss.LinearGaussian(np.eye(1), np.eye(1), theta[:, None], np.eye(1), start=start), data
        )

    for theta, value, score, curvature in [
        (1.0, -196.36523965659015, 3.59705917364765, -19.12383466855),
        (0.5, -202.73953733707801, 30.2189564241375, -133.464823682),
        (2.0, -197.56440234984706, -3.53117957396105, -2.116400997624),
    ]:
        v, g = tg.value_and_grad(f)(np.array([theta]))
        np.testing.assert_allclose(v, value, rtol=1e-12)
        np.testing.assert_allclose(g, [score], rtol=1e-11)
        np.testing.assert_allclose(tg.hessian(f)(np.array([theta])), [[curvature]], rtol=1e-11)
    r = ss.fit(
        lambda p: ss.LinearGaussian(1.0, 1.0, p["q"], 1.0, start=start), data, {"q": 1.0}, ss.positive()
    )
    np.testing.assert_allclose(r.params["q"], 1.2632213502966, rtol=1e-12)


@pytest.mark.parametrize("joseph", [False, True])
@pytest.mark.parametrize("vectors", [False, True])
def test_f3_three_states_two_observations(joseph, vectors):
    A = np.array([[0.9, 0.2, 0], [-0.1, 0.8, 0.1], [0, 0.3, 0.7]])
    B = np.array([[1, 0, 0.5], [0, 1, -0.5]])
    y = np.random.default_rng(7).standard_normal((50, 2)).cumsum(0)
    start = ss.Start(np.zeros(3), np.ones(3) if vectors else np.eye(3), predict_first=True)

    def f(th):
        Q, R = (th[:3], th[3:]) if vectors else (th[:3] * np.eye(3), th[3:] * np.eye(2))
        return ss.loglik(ss.LinearGaussian(A, B, Q, R, start=start), y, joseph=joseph)

    value, gradient = tg.value_and_grad(f)(np.array([0.5, 0.4, 0.3, 0.2, 0.1]))
    np.testing.assert_allclose(value, -324.69365170678088, rtol=1e-12)
    expected = [83.8771163277034, 336.302610875576, 51.3564499458087, -10.7764668751798, 65.7581750196756]
    np.testing.assert_allclose(gradient, expected, rtol=1e-11)


@pytest.mark.parametrize(
    "theta, value, score, hessian",
    [
        (  # F5
            (15099.0, 1469.1),
            -633.464563648878371,
            (-5.9113952775617e-8, -4.2021454701408e-8),
            (-1.60967337373e-7, -2.41270448566e-7, -9.71662936135e-7),
        ),
        (  # F6
            (10000.0, 1000.0),
            -638.204406204717274,
            (0.0021166153900217, 0.0037634132111984),
            (-7.42510205441e-7, -1.00286967229e-6, -5.05072023292e-6),
        ),
    ],
)
def test_f5_f6_nile_diffuse(theta, value, score, hessian):
    theta = np.array(theta)
    v, g = tg.value_and_grad(nile_loglik)(theta)
    np.testing.assert_allclose(v, value, rtol=1e-14)
    np.testing.assert_allclose(g, score, rtol=1e-11, atol=1e-15)
    a, b, c = hessian
    np.testing.assert_allclose(tg.hessian(nile_loglik)(theta), [[a, b], [b, c]], rtol=1e-11)
    product = tg.hvp(nile_loglik, theta, np.array([2.0, -1.0]))
    np.testing.assert_allclose(product, [2 * a - b, 2 * b - c], rtol=1e-10)


def test_f6_in_logarithms():
    g = tg.grad(lambda u: -nile_loglik(tg.numpy.exp(u)))(np.log([1e4, 1e3]))
    np.testing.assert_allclose(g, [-21.1661539, -3.76341321], rtol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_f7_nile_fit(method):
    r = ss.fit(nile_build, NILE, NILE_START, ss.positive(), method=method)
    assert r.gradient < 1e-9
    assert r.iterations <= METHODS[method]
    np.testing.assert_allclose(r.estimates, [15098.518324096, 1469.1763603095], rtol=1e-9)
    np.testing.assert_allclose(r.loglik, -633.4645636362457, rtol=1e-13)
    np.testing.assert_allclose(r.standard_errors, [3145.547863, 1280.375413], rtol=1e-9)
    np.testing.assert_allclose(r.correlation, [[1, -0.6100738], [-0.6100738, 1]], atol=5e-8)
    np.testing.assert_allclose(ss.loglik(r.model, NILE), r.loglik, rtol=1e-14)


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "Newton-CG", "trust-ncg", "trust-exact"])
def test_f7_minimize(method):
    r = tg.optimize.minimize(
        lambda p: -ss.loglik(ss.local_level(tg.numpy.exp(p["a"]), tg.numpy.exp(p["b"])), NILE),
        {"a": np.log(1e4), "b": np.log(1e3)},
        method=method,
        options={"gtol": 1e-5} if method != "Newton-CG" else {"xtol": 1e-8},
    )
    np.testing.assert_allclose(r.fun, 633.4645636362457, rtol=0, atol=1e-6)
    assert set(r.x) == {"a", "b"} and r.success and r.evaluations <= 20


@pytest.mark.parametrize(
    "theta, value, score",
    [
        ((15099.0, 1469.1), -641.585578459415321, (-3.431403613161e-8, -4.1713943560361e-7)),
        ((10000.0, 1000.0), -646.325375603490326, (0.0021166549415388, 0.0037628993419063)),
    ],
)
def test_f9_nile_with_large_variance(theta, value, score):
    v, g = tg.value_and_grad(lambda v: nile_loglik(v, ss.Start(0.0, 1e7)))(np.array(theta))
    np.testing.assert_allclose(v, value, rtol=1e-14)
    np.testing.assert_allclose(g, score, rtol=1e-11, atol=1e-15)


# --- values recorded from statsmodels 0.15.0 ----------------------------------------------------------------
# UnobservedComponents(y, ..., use_exact_diffuse=True).smooth(params), ARIMA(y - 900, (2, 0, 1), trend="n").


def test_local_linear_trend_against_statsmodels():
    model = ss.local_linear_trend(15000.0, 1400.0, 10.0)
    np.testing.assert_allclose(ss.loglik(model, NILE), -633.1674106173145, rtol=1e-13)
    smoothed = ss.smooth(model, NILE)
    np.testing.assert_allclose(
        smoothed.mean[[0, 50, 99], 0], [1124.28773894787, 827.70845519777, 782.194617577979], rtol=1e-10
    )
    np.testing.assert_allclose(
        smoothed.mean[[0, 50, 99], 1], [-4.46878823288711, -1.82624976904091, -7.02793958752621], rtol=1e-9
    )
    expected = [[4738.92109303704, -320.329241938151], [-320.329241938151, 137.93910854185]]
    np.testing.assert_allclose(smoothed.cov[0], expected, rtol=1e-9)
    filtered = ss.filter(model, NILE)
    assert filtered.diffuse_steps == 2
    np.testing.assert_allclose(filtered.filtered_mean[1], [1160.0, 40.0], rtol=1e-12)
    np.testing.assert_allclose(filtered.filtered_mean[99], [782.194617577979, -7.02793958752621], rtol=1e-10)
    ahead = ss.forecast(model, NILE, steps=3)
    np.testing.assert_allclose(
        ahead.mean[:, 0], [775.166677990453, 768.138738402927, 761.1107988154], rtol=1e-11
    )
    np.testing.assert_allclose(
        ahead.cov[:, 0, 0], [21927.5186854552, 24421.9944949571, 27242.3485215427], rtol=1e-11
    )


def test_local_level_against_statsmodels():
    model = ss.local_level(15099.0, 1469.1)
    smoothed, filtered = ss.smooth(model, NILE), ss.filter(model, NILE)
    at = [0, 42, 99]
    np.testing.assert_allclose(
        smoothed.mean[at, 0], [1111.6683191268, 799.453269250902, 798.370292608358], rtol=1e-12
    )
    np.testing.assert_allclose(
        smoothed.cov[at, 0, 0], [4032.15794180848, 2326.75686982195, 4032.15794180878], rtol=1e-12
    )
    np.testing.assert_allclose(
        filtered.filtered_mean[at, 0], [1120.0, 749.420449653841, 798.370292608358], rtol=1e-12
    )
    np.testing.assert_allclose(
        filtered.filtered_cov[at, 0, 0], [15099.0, 4032.15794183223, 4032.15794180878], rtol=1e-12
    )


def test_missing_years_against_statsmodels():
    y = NILE.copy()
    y[20:40] = y[60:80] = np.nan
    model = ss.local_level(15099.0, 1469.1)
    np.testing.assert_allclose(ss.loglik(model, y), -381.5060013085083, rtol=1e-13)
    smoothed, at = ss.smooth(model, y), [0, 30, 70, 99]
    expected = [1111.32094657359, 893.791944845498, 837.406117952811, 798.315114618078]
    np.testing.assert_allclose(smoothed.mean[at, 0], expected, rtol=1e-12)
    expected = [4032.18679744825, 9715.00554901136, 9715.0059024614, 4032.18679744825]
    np.testing.assert_allclose(smoothed.cov[at, 0, 0], expected, rtol=1e-12)


def test_arma_against_statsmodels():
    model = ss.arma(np.array([0.5, 0.2]), np.array([0.3]), 20000.0)
    np.testing.assert_allclose(ss.loglik(model, NILE - 900), -646.2237796386072, rtol=1e-12)
    shifted = ss.arma(np.array([0.5, 0.2]), np.array([0.3]), 20000.0, mean=900.0)
    np.testing.assert_allclose(ss.loglik(shifted, NILE), -646.2237796386072, rtol=1e-12)


# --- dense Gaussian algebra ---------------------------------------------------------------------------------


def spd(rng, n, k):
    A = rng.normal(size=(n, k, k))
    return A @ A.transpose(0, 2, 1) + 0.1 * np.eye(k)


class Dense:
    """A random model with time-varying matrices, and the joint distribution of all its states and
    observations.

    The diffuse elements enter as regression coefficients with a flat prior: generalised least squares."""

    def __init__(self, seed, m, p, n, first, mark, missing=0.25, ahead=0):
        rng = np.random.default_rng(seed)
        N = n + ahead
        self.n, self.m, self.p = n, m, p
        T, Z = rng.normal(size=(N, m, m)) / np.sqrt(m), rng.normal(size=(N, p, m))
        c, d, Q, H = rng.normal(size=(N, m)), rng.normal(size=(N, p)), spd(rng, N, m), spd(rng, N, p)
        mean0, cov0, mark = rng.normal(size=m), spd(rng, 1, m)[0], np.array(mark)
        self.y = rng.normal(size=(n, p))
        self.y[rng.random((n, p)) < missing] = np.nan
        self.model = ss.LinearGaussian(
            T, Z, Q, H, None, c, d, ss.Start(mean0, cov0, mark, predict_first=first)
        )
        mean, cov, D = np.zeros((N, m)), np.zeros((N, m, N, m)), np.zeros((N, m, mark.sum()))
        a, P, load = mean0 * ~mark, cov0 * np.outer(~mark, ~mark), np.eye(m)[:, mark]
        for t in range(N):
            if t or first:
                i = t if first else t - 1
                a, P, load = T[i] @ a + c[i], T[i] @ P @ T[i].T + Q[i], T[i] @ load
                for s in range(t):
                    cov[t, :, s] = T[i] @ cov[t - 1, :, s]
                    cov[s, :, t] = cov[t, :, s].T
            mean[t], cov[t, :, t], D[t] = a, P, load
        cov, self.mean, D = cov.reshape(N * m, N * m), mean.reshape(-1), D.reshape(N * m, -1)
        big_Z, big_H = np.zeros((N * p, N * m)), np.zeros((N * p, N * p))
        for t in range(N):
            big_Z[t * p : t * p + p, t * m : t * m + m] = Z[t]
            big_H[t * p : t * p + p, t * p : t * p + p] = H[t]
        self.cov, self.D, self.Z, self.H, self.d = cov, D, big_Z, big_H, d.reshape(-1)
        self._condition()

    def _condition(self):
        seen = np.flatnonzero(~np.isnan(self.y.reshape(-1)))
        Z = self.Z[seen]
        S, e = (
            Z @ self.cov @ Z.T + self.H[np.ix_(seen, seen)],
            self.y.reshape(-1)[seen] - Z @ self.mean - self.d[seen],
        )
        X, C = Z @ self.D, self.cov @ Z.T
        information = X.T @ np.linalg.solve(S, X)
        b = np.linalg.solve(information, X.T @ np.linalg.solve(S, e))
        residual = e - X @ b
        log_det = np.linalg.slogdet(information)[1] if b.size else 0.0
        # DK keep the constant of the normal density for the observations that the coefficients use up
        self.loglik = multivariate_normal(cov=S).logpdf(residual) - 0.5 * log_det
        gain = np.linalg.solve(S, C.T).T
        self.state = self.mean + self.D @ b + gain @ residual
        R = self.D - gain @ X
        self.state_cov = self.cov - gain @ C.T + R @ np.linalg.solve(information, R.T)

    def at(self, t):
        s = slice(t * self.m, (t + 1) * self.m)
        return self.state[s], self.state_cov[s, s]

    def check(self, joseph=False):
        r, filtered = ss.smooth(self.model, self.y, joseph), ss.filter(self.model, self.y, joseph)
        np.testing.assert_allclose(ss.loglik(self.model, self.y, joseph), self.loglik, rtol=1e-9)
        np.testing.assert_allclose(filtered.loglik_terms.sum(), self.loglik, rtol=1e-9)
        np.testing.assert_allclose(filtered.loglik, self.loglik, rtol=1e-9)
        for t in range(self.n):
            mean, cov = self.at(t)
            np.testing.assert_allclose(r.mean[t], mean, rtol=1e-7, atol=1e-7 * abs(mean).max())
            np.testing.assert_allclose(r.cov[t], cov, rtol=1e-6, atol=1e-6 * abs(cov).max())
        np.testing.assert_array_equal(r.cov, r.cov.transpose(0, 2, 1))
        np.testing.assert_allclose(filtered.filtered_mean[-1], self.at(self.n - 1)[0], rtol=1e-7)
        np.testing.assert_allclose(filtered.filtered_cov[-1], self.at(self.n - 1)[1], rtol=1e-6, atol=1e-6)
        return filtered


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("joseph", [False, True])
@pytest.mark.parametrize("m, p", [(1, 1), (1, 2), (3, 1), (3, 2), (2, 4)])
def test_known_start_against_dense(m, p, joseph, first):
    filtered = Dense(10 * m + p, m, p, 9, first, [False] * m).check(joseph)
    assert filtered.diffuse_steps == 0


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "p, mark",
    [
        (p, mark)
        for p in (1, 2, 4)
        for mark in ([True, True, True], [True, False, True], [False, True, False])
    ],
)
def test_diffuse_start_against_least_squares(p, mark, first):
    filtered = Dense(100 * p + sum(mark), 3, p, 10, first, mark).check()
    assert filtered.diffuse_steps >= 1
    assert filtered.predicted_diffuse_cov.shape == (filtered.diffuse_steps, 3, 3)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("mark", [[False, False], [True, True]])
def test_forecast_against_dense(first, mark):
    dense = Dense(5, 2, 2, 8, first, mark, ahead=3)
    r = ss.forecast(dense.model, dense.y, steps=3)
    Z = dense.Z[16:]
    np.testing.assert_allclose(r.mean.reshape(-1), Z @ dense.state + dense.d[16:], rtol=1e-9)
    cov = Z @ dense.state_cov @ Z.T + dense.H[16:, 16:]
    for k in range(3):
        np.testing.assert_allclose(r.cov[k], cov[2 * k : 2 * k + 2, 2 * k : 2 * k + 2], rtol=1e-8)
        np.testing.assert_allclose(r.state_mean[k], dense.at(8 + k)[0], rtol=1e-9)


def test_diffuse_is_the_limit_of_large_variances():
    """log L(kappa) + q/2 log kappa tends to the diffuse value like 1 / kappa; Richardson takes that term
    away."""
    model = ss.local_linear_trend(1.5, 0.7, 0.2)
    y = np.random.default_rng(3).normal(size=20).cumsum()

    def at(kappa):
        known = ss.local_linear_trend(1.5, 0.7, 0.2, ss.Start(0.0, kappa))
        return ss.loglik(known, y, joseph=True) + np.log(kappa)

    np.testing.assert_allclose(2 * at(2e5) - at(1e5), ss.loglik(model, y), rtol=1e-8)


def test_diffuse_element_that_is_seen_late():
    """The slope shows only in the second observation, the second element of y repeats the first."""
    model = ss.LinearGaussian(
        np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([0.5, 0.1]), 1.0
    )
    y = np.random.default_rng(1).normal(size=(12, 2))
    y[0] = np.nan
    y[3, 1] = np.nan
    assert ss.filter(model, y).diffuse_steps == 3
    scale, rest = np.array([1.0, 2.0]), y[1:]
    # the same from one observation a step where both are there: (y1 + 2 y2) / 5 = x + noise of variance 1 / 5
    both = rest @ scale / 5
    single = ss.LinearGaussian(
        model.transition, np.array([1.0, 0.0]), model.transition_cov, np.full((11, 1, 1), 0.2)
    )
    single.observation_cov[2] = 1.0
    both[2] = y[3, 0]
    a, b = ss.smooth(model, y), ss.smooth(single, both)
    np.testing.assert_allclose(a.mean[1:], b.mean, rtol=1e-9)
    np.testing.assert_allclose(a.cov[1:], b.cov, rtol=1e-9, atol=1e-12)


def test_noise_without_rank():
    """Noise variances of zero and perfectly correlated noise are fine as long as the innovations have full
    rank."""
    H = np.array([[1.0, 1.0], [1.0, 1.0]])
    y = np.random.default_rng(2).normal(size=(8, 2))
    Z = np.array([[1.0, 0.0], [0.0, 1.0]])
    diffuse = ss.LinearGaussian(np.eye(2), Z, np.array([1.0, 0.5]), H)
    known = ss.LinearGaussian(
        np.eye(2), Z, np.array([1.0, 0.5]), H, start=ss.Start(y[0], np.diag([1.0, 0.5]) + H)
    )
    late = ss.loglik(known, y[1:])
    np.testing.assert_allclose(ss.loglik(diffuse, y), late - np.log(2 * np.pi), rtol=1e-12)


def test_joseph_keeps_digits():
    """A state of variance 1e12 seen through noise of variance 1: exact values by the scalar recursion P h /
    (P + h)."""
    model = ss.LinearGaussian(
        np.eye(2), np.array([1.0, 0.0]), 0.0, 1.0, start=ss.Start(0.0, np.array([1e12, 1.0]))
    )
    cov = ss.filter(model, [1.0, 2.0], joseph=True).filtered_cov
    np.testing.assert_allclose(cov[0, 0, 0], 1e12 / (1e12 + 1), rtol=1e-14)
    np.testing.assert_allclose(cov[1, 0, 0], 1e12 / (2e12 + 1), rtol=1e-12)


@pytest.mark.parametrize("mark", [[False, False], [True, False], [True, True]])
def test_forms_of_one_model(mark):
    """Scalars, vectors of variances, matrices, repeated matrices and a selection matrix say the same."""
    y = np.random.default_rng(4).normal(size=(7, 2))
    T, Z, R = (
        np.array([[1.0, 0.3], [0.0, 0.8]]),
        np.array([[1.0, 0.2], [0.0, 1.0]]),
        np.array([[1.0, 0.0], [0.5, 1.0]]),
    )
    start = ss.Start(0.5, 2.0, mark)
    models = [
        ss.LinearGaussian(T, Z, 0.4, 0.7, R, start=start),
        ss.LinearGaussian(T, Z, np.full(2, 0.4), np.full(2, 0.7), R, 0.0, np.zeros(2), start=start),
        ss.LinearGaussian(
            T, Z, 0.4 * R @ R.T, 0.7 * np.eye(2), start=ss.Start(np.full(2, 0.5), 2 * np.eye(2), mark)
        ),
        ss.LinearGaussian(
            np.stack([T] * 7),
            np.stack([Z] * 9),
            0.4,
            np.stack([0.7 * np.eye(2)] * 7),
            np.stack([R] * 7),
            start=start,
        ),
        ss.LinearGaussian(T.tolist(), Z.tolist(), [0.4, 0.4], [0.7, 0.7], R.tolist(), start=start),
    ]
    values = [ss.loglik(model, y) for model in models]
    np.testing.assert_allclose(values, values[0], rtol=1e-13)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("diffuse", [False, True])
def test_scalar_path_agrees_with_matrices(first, diffuse):
    """The recursion in numbers against the general one (a second, idle state keeps it from being chosen)."""
    y = np.random.default_rng(6).normal(size=9)
    y[[0, 4]] = np.nan
    one = (1.0, 1.0) if diffuse else (0.9, 1.3)
    start = ss.Start(0.2, 1.5, diffuse, predict_first=first)
    small = ss.LinearGaussian(*one, 0.5, 0.8, None, 0.1, -0.3, start)
    idle = ss.Start(np.array([0.2, 0.0]), np.diag([1.5, 1.0]), [diffuse, False], predict_first=first)
    T, Z, c = np.diag([one[0], 0.5]), np.array([one[1], 0.0]), np.array([0.1, 0.0])
    large = ss.LinearGaussian(T, Z, np.array([0.5, 1.0]), 0.8, None, c, -0.3, idle)
    np.testing.assert_allclose(ss.loglik(small, y), ss.loglik(large, y), rtol=1e-13)
    np.testing.assert_allclose(ss.filter(small, y).loglik, ss.loglik(large, y), rtol=1e-13)
    varying = ss.LinearGaussian(
        *(np.full((9, 1, 1), x) for x in (*one, 0.5, 0.8)),
        None,
        np.full((9, 1), 0.1),
        np.full((9, 1), -0.3),
        start,
    )
    np.testing.assert_allclose(ss.loglik(varying, y), ss.loglik(large, y), rtol=1e-13)


# --- derivatives --------------------------------------------------------------------------------------------


def twin(theta, y):
    """A textbook filter in plain NumPy for `build_random`, fit for complex numbers."""
    T, Z, Q, H, c, d, a, P = matrices(np, theta)
    total = 0.0
    for t in range(len(y)):
        seen = ~np.isnan(y[t])
        if seen.any():
            z, v = Z[seen], y[t][seen] - Z[seen] @ a - d[seen]
            F = z @ P @ z.T + H[np.ix_(seen, seen)]
            K = np.linalg.solve(F.T, z @ P).T
            total = total - 0.5 * (
                seen.sum() * np.log(2 * np.pi) + np.log(np.linalg.det(F)) + v @ np.linalg.solve(F, v)
            )
            a, P = a + K @ v, P - K @ z @ P
        a, P = T @ a + c, T @ P @ T.T + Q
    return total


def matrices(xp, th):
    T = xp.stack([xp.stack([th[0], th[1]]), xp.stack([-th[1], th[0]])])
    Z = xp.stack([xp.stack([th[2], th[3]]), xp.stack([th[3] * 0 + 1.0, th[2] * th[2]])])
    Q = xp.stack([xp.stack([th[4], th[5]]), xp.stack([th[5], 2 * th[4]])])
    H = xp.stack([xp.stack([th[6], th[7] * th[6]]), xp.stack([th[7] * th[6], th[6] * 1.5])])
    return T, Z, Q, H, th[0:2] * 0.1, th[2:4] * 0.2, th[4:6], xp.eye(2) * (1.0 + th[6] ** 2)


THETA = np.array([0.8, 0.3, 1.0, 0.5, 0.6, 0.2, 0.9, 0.4])


def random_data():
    y = np.random.default_rng(8).normal(size=(12, 2))
    y[3, 0] = y[5, 1] = np.nan
    y[7] = np.nan
    return y


def random_loglik(theta, joseph=False):
    T, Z, Q, H, c, d, a, P = matrices(tg.numpy, theta)
    return ss.loglik(ss.LinearGaussian(T, Z, Q, H, None, c, d, ss.Start(a, P)), random_data(), joseph)


@pytest.mark.parametrize("joseph", [False, True])
def test_gradient_against_complex_step(joseph):
    y, h = random_data(), 1e-200
    expected = [twin(THETA + 1j * h * e, y).imag / h for e in np.eye(8)]
    value, gradient = tg.value_and_grad(lambda th: random_loglik(th, joseph))(THETA)
    np.testing.assert_allclose(value, twin(THETA, y), rtol=1e-13)
    np.testing.assert_allclose(gradient, expected, rtol=1e-11)
    forward = [tg.jvp(lambda th: random_loglik(th, joseph), (THETA,), (e,))[1] for e in np.eye(8)]
    np.testing.assert_allclose(forward, expected, rtol=1e-11)


def differences(f, x, h=1e-5):
    """Central differences of order four."""
    return np.array(
        [
            (8 * (f(x + h * e) - f(x - h * e)) - f(x + 2 * h * e) + f(x - 2 * h * e)) / (12 * h)
            for e in np.eye(x.size)
        ]
    )


def test_hessian_in_all_nestings():
    H = tg.hessian(random_loglik)(THETA)
    np.testing.assert_allclose(H, differences(tg.grad(random_loglik), THETA, 1e-3), rtol=1e-7, atol=1e-7)
    v = np.linspace(-1, 1, 8)
    expected = H @ v
    g = tg.grad(random_loglik)

    def forward(x):
        return tg.jvp(random_loglik, (x,), (v,))[1]

    np.testing.assert_allclose(tg.jvp(g, (THETA,), (v,))[1], expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        tg.grad(lambda x: tg.numpy.sum(g(x) * v))(THETA), expected, rtol=1e-10, atol=1e-10
    )
    np.testing.assert_allclose(tg.grad(forward)(THETA), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(tg.jvp(forward, (THETA,), (v,))[1], v @ expected, rtol=1e-10)


@pytest.mark.parametrize("mark", [[True, True], [True, False]])
def test_derivatives_through_a_diffuse_start(mark):
    def f(theta):
        T, Z, Q, H, c, d, a, P = matrices(tg.numpy, theta)
        return ss.loglik(ss.LinearGaussian(T, Z, Q, H, None, c, d, ss.Start(a, P, mark)), random_data())

    np.testing.assert_allclose(tg.grad(f)(THETA), differences(f, THETA, 1e-3), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        tg.hessian(f)(THETA), differences(tg.grad(f), THETA, 1e-3), rtol=1e-7, atol=1e-7
    )


def test_derivatives_of_filter_smoother_and_forecast():
    y = random_data()

    def f(theta):
        T, Z, Q, H, c, d, _, _ = matrices(tg.numpy, theta)
        model = ss.LinearGaussian(T, Z, Q, H, None, c, d)
        s, a = ss.smooth(model, y), ss.forecast(model, y, steps=2)
        r = ss.filter(model, y)
        return (
            (s.mean**2).sum()
            + s.cov.sum()
            + a.mean.sum() * a.cov.sum()
            + r.filtered_cov.sum()
            + r.loglik_terms[3]
        )

    np.testing.assert_allclose(tg.grad(f)(THETA), differences(f, THETA, 1e-3), rtol=1e-7, atol=1e-7)


def test_derivative_by_the_data():
    model = ss.local_linear_trend(1.0, 0.5, 0.1)
    y = np.random.default_rng(9).normal(size=8)

    def f(y):
        return ss.loglik(model, y)

    np.testing.assert_allclose(tg.grad(f)(y), differences(f, y, 1e-2), rtol=1e-9, atol=1e-9)


# --- NumPy and CuPy alike -----------------------------------------------------------------------------------


def test_nile_on_any_device(xp):
    y = xp.asarray(NILE)

    def f(v):
        return ss.loglik(ss.local_level(v[0], v[1]), y)

    theta = xp.asarray(np.array([10000.0, 1000.0]))
    value, gradient = tg.value_and_grad(f)(theta)
    assert isinstance(gradient, xp.ndarray)
    np.testing.assert_allclose(host(value), -638.204406204717274, rtol=1e-13)
    np.testing.assert_allclose(host(gradient), (0.0021166153900217, 0.0037634132111984), rtol=1e-10)
    r = ss.fit(nile_build, y, NILE_START, ss.positive())
    np.testing.assert_allclose(r.estimates, [15098.518324096, 1469.1763603095], rtol=1e-9)
    np.testing.assert_allclose(r.standard_errors, [3145.547863, 1280.375413], rtol=1e-9)


def test_diffuse_smoother_and_forecast_on_any_device(xp):
    y, model = xp.asarray(NILE), ss.local_linear_trend(15000.0, 1400.0, 10.0)
    smoothed = ss.smooth(model, y)
    assert isinstance(smoothed.mean, xp.ndarray) and isinstance(smoothed.cov, xp.ndarray)
    expected = [1124.28773894787, 827.70845519777, 782.194617577979]
    np.testing.assert_allclose(host(smoothed.mean)[[0, 50, 99], 0], expected, rtol=1e-10)
    ahead = ss.forecast(model, y, steps=2)
    np.testing.assert_allclose(host(ahead.mean)[:, 0], [775.166677990453, 768.138738402927], rtol=1e-11)


UNKNOWN = ss.Start(diffuse=True)


def test_a_diffuse_start_of_two_series_on_any_device(xp):
    """The second element of a step meets a finite variance; errors are correlated, one number is missing.  The likelihood is that of a
    start with a large variance, less what that adds, to the first order in its inverse."""
    Y = np.random.default_rng(6).normal(size=(9, 2)).cumsum(axis=0)
    Y[2, 0] = np.nan

    def build(q, lib, start):
        H = lib.asarray(np.array([[1.0, 0.3], [0.3, 0.5]])) * q[0]
        T, Z = (lib.asarray(np.array(x)) for x in ([[1.0, 1.0], [0.0, 0.9]], [[1.0, 0.0], [1.0, 0.0]]))
        return ss.LinearGaussian(T, Z, q[1:], H, start=start)

    def f(q, lib=xp, start=UNKNOWN, more=0.0):
        model, y = build(q, lib, start), lib.asarray(Y)
        return (
            ss.loglik(model, y)
            + more
            + (ss.smooth(model, y).mean ** 2).sum()
            + ss.filter(model, y).filtered_cov[4:].sum()
        )

    q, large = np.array([0.7, 0.4, 0.2]), [1e6, 1e7]
    found = tg.value_and_grad(f)(xp.asarray(q))
    assert isinstance(found[1], xp.ndarray)
    by = [tg.value_and_grad(lambda q, k=k: f(q, np, ss.Start(0.0, k), np.log(k)))(q) for k in large]
    for k in range(2):
        limit = (10 * by[1][k] - by[0][k]) / 9
        np.testing.assert_allclose(host(found[k]), limit, rtol=1e-7)


def test_a_diffuse_element_that_is_left_out_before_it_is_seen():
    """The second state is seen at no step, and enters none: later states are known, the first is not."""
    T = np.array([[1.0, 0.0], [0.0, 0.0]])
    model = ss.LinearGaussian(T, np.array([1.0, 0.0]), [0.5, 1.0], 1.0)
    alone = ss.local_level(1.0, 0.5)
    np.testing.assert_allclose(ss.loglik(model, NILE), ss.loglik(alone, NILE), rtol=1e-12)
    for n in (6, 100):  # on arrays, and with a kernel where that is on disk
        for call in (ss.smooth, ss.simulate_smoother):
            with pytest.raises(
                DataError,
                match=f"{call.__name__}: the transition leaves out 1 of 2 diffuse elements of the start",
            ):
                call(model, NILE[:n])


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda y: ss.loglik(ss.LinearGaussian("one", 1.0, 1.0, 1.0), y),
            ArgumentError,
            "transition: a str that is no real number",
        ),
        (
            lambda y: ss.filter(ss.LinearGaussian(1.0, 1j, 1.0, 1.0), y),
            ArgumentError,
            "observation: a complex that is no real number",
        ),
        (
            lambda y: ss.smooth(ss.LinearGaussian(np.eye(2) * 1j, np.ones(2), 1.0, 1.0), y),
            ArgumentError,
            "transition: dtype complex128",
        ),
        (
            lambda y: ss.loglik(y, ss.local_level(1.0, 1.0)),
            ArgumentError,
            "loglik: the model is a ndarray; wanted a LinearGaussian",
        ),
        (lambda y: ss.simulate_smoother([1.0], y), ArgumentError, "simulate_smoother: the model is a list"),
        (
            lambda y: ss.forecast(ss.local_level(1.0, 1.0), y, 2.5),
            ArgumentError,
            r"steps=2.5\): wanted a whole number, at least 1",
        ),
        (
            lambda y: ss.loglik(stationary(1.0), y),
            NotPositiveDefiniteError,
            "eigenvalue of the transition has size 1,",
        ),
        (
            lambda y: ss.loglik(stationary(-1.0), y[:3]),
            NotPositiveDefiniteError,
            "eigenvalue of the transition has size 1,",
        ),
        (
            lambda y: ss.loglik(stationary(1.1), y[:3]),
            NotPositiveDefiniteError,
            "eigenvalue of the transition has size 1.1,",
        ),
        (
            lambda y: ss.loglik(stationary([[0.5, 9.0], [0.0, -1.5]]), y),
            NotPositiveDefiniteError,
            "the transition has size 1.5,",
        ),
        (
            lambda y: ss.loglik(stationary(np.diag([0.5, 2.0, 0.1])), y),
            NotPositiveDefiniteError,
            "the transition has size 2,",
        ),
        (
            lambda y: ss.loglik(noisy([[1.0, 3.0], [3.0, 1.0]]), y),
            NotPositiveDefiniteError,
            "transition_cov: .* eigenvalue -2",
        ),
        (
            lambda y: ss.simulate(ss.local_level(-1.0, 1.0), 5),
            NotPositiveDefiniteError,
            "observation_cov: a variance of -1",
        ),
        (
            lambda y: ss.fit(with_a_stranger, y, dict(a=1.5e4, b=1.5e3, c=1.0), ss.positive()),
            DataError,
            "does not depend on c; leave it out",
        ),
    ],
)
def test_what_cannot_be_a_model(call, error, message):
    with pytest.raises(error, match=message):
        call(NILE[:40])


def stationary(T):
    return ss.LinearGaussian(T, np.ones(np.shape(T)[:1]), 1.0, 1.0, start=ss.Start(stationary=True))


def noisy(Q):
    return ss.LinearGaussian(0.5 * np.eye(2), np.ones(2), Q, 1.0, start=ss.Start(0.0, 1.0))


def with_a_stranger(p):
    return ss.local_level(p["a"], p["b"])


def test_f3_on_any_device_without_round_trip(xp):
    A, B = (
        xp.asarray([[0.9, 0.2, 0], [-0.1, 0.8, 0.1], [0, 0.3, 0.7]]),
        xp.asarray([[1, 0, 0.5], [0, 1, -0.5]]),
    )
    data = ss.Observations(xp.asarray(np.random.default_rng(7).standard_normal((50, 2)).cumsum(0)))
    start = ss.Start(0.0, 1.0, predict_first=True)
    theta = xp.asarray([0.5, 0.4, 0.3, 0.2, 0.1])
    if hosted_cupy is not None:
        hosted_cupy.reset_counts()
    g = tg.grad(lambda th: ss.loglik(ss.LinearGaussian(A, B, th[:3], th[3:], start=start), data))(theta)
    if hosted_cupy is not None:
        assert hosted_cupy.stats["syncs"] == 0
    expected = [83.8771163277034, 336.302610875576, 51.3564499458087, -10.7764668751798, 65.7581750196756]
    np.testing.assert_allclose(host(g), expected, rtol=1e-11)


# --- fitting ------------------------------------------------------------------------------------------------


def test_result_and_summary():
    r = ss.fit(nile_build, NILE, NILE_START, ss.positive())
    text = r.summary()
    assert "15098.51832" in text and "1469.17636" in text and "3145.547863" in text and "-633.4645636" in text
    assert r.names == ["observation_var", "level_var"] and r.observations == 100 and not r.at_bound
    np.testing.assert_allclose(
        [r.aic, r.bic], [2 * 633.4645636362 + 6, 2 * 633.4645636362 + 3 * np.log(100)], rtol=1e-12
    )
    assert type(r.params["level_var"]) is np.float64 and r.evaluations >= r.iterations and str(r) == text


def test_standard_errors_in_the_parameters_themselves():
    """The covariance is the inverse of the observed information, whatever the constraint."""
    free = ss.fit(nile_build, NILE, {"observation_var": 15000.0, "level_var": 1470.0})
    bounded = ss.fit(
        nile_build, NILE, NILE_START, {"observation_var": ss.interval(0.0, 1e5), "level_var": ss.positive()}
    )
    H = tg.hessian(lambda v: -nile_loglik(v))(free.estimates)
    np.testing.assert_allclose(free.covariance, np.linalg.inv(H), rtol=1e-6)
    np.testing.assert_allclose(bounded.covariance, np.linalg.inv(H), rtol=1e-6)


def test_vector_start_and_list_of_constraints():
    r = ss.fit(
        lambda v: ss.local_level(v[0], v[1]), NILE, np.array([1e4, 1e3]), [ss.positive(), ss.positive()]
    )
    assert r.names == ["theta[0]", "theta[1]"]
    np.testing.assert_allclose(r.params, [15098.518324096, 1469.1763603095], rtol=1e-9)


def test_build_in_plain_numpy():
    """A user's `build` writes numpy, fills a captured buffer, and gets exact derivatives all the same."""
    T = np.zeros((2, 2))
    y = np.random.default_rng(14).normal(size=40).cumsum()

    def build(p):
        T[0] = np.array([p["phi"], 1.0])
        T[1, 1] = 0.5
        return ss.LinearGaussian(
            T, np.array([1.0, 0.0]), np.array([1.0, 0.3]), 1.0, start=ss.Start(0.0, 10.0)
        )

    r = ss.fit(build, y, {"phi": 0.5}, {"phi": ss.correlation()})
    nll = [-ss.loglik(build({"phi": r.params["phi"] + h}), y) for h in (-1e-4, 0.0, 1e-4)]
    assert nll[1] < nll[0] and nll[1] < nll[2]
    np.testing.assert_allclose(r.standard_errors, 1e-4 / np.sqrt(nll[0] - 2 * nll[1] + nll[2]), rtol=1e-4)
    assert type(T) is np.ndarray


def test_stationary_autoregression():
    """An AR(2) about a mean with noise, simulated; compared with the same likelihood maximised without
    derivatives."""
    rng = np.random.default_rng(11)
    y = np.zeros(300)
    for t in range(2, 300):
        y[t] = 1.2 * y[t - 1] - 0.5 * y[t - 2] + rng.normal()
    y = y[100:] + 3.0
    r = ss.fit(
        lambda p: ss.arma(p["ar"], (), p["var"], p["mean"]),
        y,
        {"ar": np.array([0.3, 0.1]), "var": 2.0, "mean": 0.0},
        {"ar": ss.stationary(), "var": ss.positive()},
    )
    assert r.names == ["ar[0]", "ar[1]", "var", "mean"]
    assert (abs(r.estimates - [1.2, -0.5, 1.0, 3.0]) < 3 * r.standard_errors).all()
    slope = differences(lambda v: ss.loglik(ss.arma(v[:2], (), v[2], v[3]), y), r.estimates, 1e-3)
    np.testing.assert_allclose(slope, 0, atol=1e-6)


@pytest.mark.parametrize(
    "constraint, x",
    [
        (ss.positive(), [1e-3, 2.0, 1e5]),
        (ss.correlation(), [-0.99, 0.0, 0.5]),
        (ss.interval(-3.0, 2.0), [-2.9, 0.0, 1.9]),
        (ss.unconstrained(), [-1e3, 0.0, 5.0]),
        (ss.stationary(), [0.5]),
        (ss.stationary(), [1.2, -0.5]),
        (ss.stationary(), [0.4, 0.3, -0.2, 0.1]),
    ],
)
def test_constraints_go_there_and_back(constraint, x):
    x = np.array(x)
    u = constraint.start("x", x)
    np.testing.assert_allclose(constraint.natural(u), x, rtol=1e-12, atol=1e-15)
    J = tg.jacobian(constraint.natural)(u)
    np.testing.assert_allclose(J.T, differences(constraint.natural, u, 1e-4), rtol=1e-7, atol=1e-8)


def test_stationary_covers_the_stationary_region():
    rng = np.random.default_rng(12)
    for k in (1, 2, 3, 5):
        phi = ss.stationary().natural(rng.normal(size=k) * 2)
        assert (abs(np.roots(np.concatenate([[1.0], -phi]))) < 1).all()


def test_parameter_at_its_bound():
    """White noise: the variance of the level goes to zero.  The other standard error is that of a constant
    level."""
    y = np.random.default_rng(13).normal(size=50)
    y = y - 0.05 * np.linspace(-1, 1, 50) * 0 + np.where(np.arange(50) % 2, 0.5, -0.5)
    r = ss.fit(nile_build, y, {"observation_var": 1.0, "level_var": 0.01}, ss.positive())
    assert r.at_bound == ["level_var"] and "at the bound" in r.summary()
    np.testing.assert_allclose(r.params["observation_var"], y.var(ddof=1), rtol=1e-4)
    assert np.isnan(r.standard_errors[1])
    np.testing.assert_allclose(r.standard_errors[0], y.var(ddof=1) * np.sqrt(2 / 49), rtol=1e-3)


def test_progress_bar(capsys):
    ss.fit(nile_build, NILE, NILE_START, ss.positive(), progress=False)
    assert capsys.readouterr().err == ""
    if pytest.importorskip("tqdm"):
        ss.fit(nile_build, NILE, NILE_START, ss.positive(), progress=True)
        assert "log-likelihood" in capsys.readouterr().err


def test_arguments_are_left_alone():
    y = random_data()
    kept = y.copy()
    start = {"observation_var": np.array(1e4), "level_var": np.array(1e3)}
    ss.smooth(ss.local_linear_trend(1.0, 0.5, 0.1), y[:, 0])
    ss.fit(nile_build, NILE, start, ss.positive())
    np.testing.assert_array_equal(y, kept)
    assert start["observation_var"] == 1e4


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, text",
    [
        ({"transition": np.ones((2, 3))}, r"transition: shape \(2, 3\); wanted \(3, 3\)"),
        (
            {"observation": np.ones((2, 3))},
            r"observation: shape \(2, 3\); wanted \(2, 2\) or \(10 or more, 2, 2\) for one that",
        ),
        (
            {"transition_cov": np.ones(3)},
            r"transition_cov: shape \(3,\); wanted \(2, 2\) or \(2,\) or a scalar",
        ),
        (
            {"observation_cov": np.ones((9, 2, 2))},
            r"observation_cov: shape \(9, 2, 2\); wanted .* \(10 or more, 2, 2\)",
        ),
        ({"selection": np.ones((3, 2))}, r"selection: shape \(3, 2\); wanted \(2, 2\)"),
        ({"transition_offset": np.ones(3)}, r"transition_offset: shape \(3,\); wanted \(2,\) or a scalar"),
        (
            {"observation_offset": np.ones(10)},
            r"observation_offset: shape \(10,\); wanted .* 2 states and 2 observations",
        ),
        ({"start": ss.Start(np.zeros(3))}, r"start.mean: shape \(3,\); wanted \(2,\) or a scalar"),
        (
            {"start": ss.Start(0.0, np.eye(3))},
            r"start.cov: shape \(3, 3\); wanted \(2, 2\) or \(2,\) or a scalar",
        ),
        ({"start": ss.Start(diffuse=[True])}, r"start.diffuse: shape \(1,\); wanted one boolean or \(2,\)"),
    ],
)
def test_matrices_that_do_not_fit(change, text):
    fields = {
        "transition": np.eye(2),
        "observation": np.eye(2),
        "transition_cov": 1.0,
        "observation_cov": 1.0,
    } | change
    for call in (ss.loglik, ss.filter, ss.smooth, lambda model, y: tg.grad(lambda y: ss.loglik(model, y))(y)):
        with pytest.raises(ShapeError, match=text):
            call(ss.LinearGaussian(**fields), np.zeros((10, 2)))


def test_one_state_start_that_does_not_fit():
    with pytest.raises(ShapeError, match=r"start.mean: shape \(2,\); wanted \(1,\) or a scalar"):
        ss.loglik(ss.local_level(1.0, 1.0, ss.Start(np.zeros(2))), NILE)


def test_bad_data():
    assert issubclass(DataError, ValueError)
    assert not issubclass(DataError, TypeError)
    model = ss.local_level(1.0, 1.0)
    with pytest.raises(DataError, match=r"y\[2, 0\] is inf"):
        ss.loglik(model, [1.0, np.nan, np.inf])
    with pytest.raises(DataError, match=r"y\[1, 1\] is -inf"):
        ss.loglik(model, [[1.0, 2.0], [3.0, -np.inf]])
    with pytest.raises(ShapeError, match=r"y: shape \(2, 2, 2\)"):
        ss.loglik(model, np.zeros((2, 2, 2)))
    with pytest.raises(ShapeError, match=r"y: shape \(0, 1\)"):
        ss.loglik(model, np.zeros(0))
    with pytest.raises(ArgumentError, match="complex"):
        ss.loglik(model, np.zeros(3, complex))
    assert ss.loglik(model, np.array([1, 2, 3])) == ss.loglik(model, [1.0, 2.0, 3.0])


def test_variances_that_are_not_positive():
    for n in (3, 40):
        for variances in ((-1.0, 1.0), (-0.1, 0.5), (0.5, -0.1)):  # those of what is observed may be positive
            with pytest.raises(
                NotPositiveDefiniteError, match=f"a variance of {min(variances)}".rstrip("0").rstrip(".")
            ):
                ss.loglik(ss.local_level(*variances), NILE[:n])
    flat = ss.LinearGaussian(np.eye(2), np.array([1.0, 0.0]), 0.0, 0.0, start=ss.Start(0.0, 0.0))
    with pytest.raises(NotPositiveDefiniteError, match=r"variance of y\[0\] given the past is 0"):
        ss.smooth(flat, [1.0, 2.0])
    both = ss.LinearGaussian(np.eye(2), np.eye(2), 0.0, 0.0, start=ss.Start(0.0, 0.0))
    with pytest.raises(NotPositiveDefiniteError, match=r"covariance of y\[0\] given the past"):
        ss.filter(both, np.zeros((3, 2)))
    with pytest.raises(NotPositiveDefiniteError):
        tg.grad(lambda v: ss.loglik(ss.local_level(v, v), [1.0, 2.0, 3.0]))(-1.0)


def test_diffuse_element_that_is_never_seen():
    model = ss.LinearGaussian(np.eye(2), np.array([1.0, 0.0]), 1.0, 1.0)
    assert ss.filter(model, NILE).diffuse_steps == 100
    with pytest.raises(DataError, match="smooth: the data do not determine every diffuse element"):
        ss.smooth(model, NILE)
    with pytest.raises(DataError, match="forecast: the data do not determine"):
        ss.forecast(model, NILE, steps=1)
    with pytest.raises(ArgumentError, match=r"steps=0"):
        ss.forecast(ss.local_level(1.0, 1.0), NILE, steps=0)


def test_stationary_start_that_cannot_be():
    with pytest.raises(ArgumentError, match="start.stationary"):
        ss.loglik(
            ss.LinearGaussian(np.full((100, 1, 1), 0.5), 1.0, 1.0, 1.0, start=ss.Start(stationary=True)), NILE
        )


def test_fit_errors():
    with pytest.raises(
        ArgumentError, match=r"start of level_var is -1.0; positive\(\) wants numbers above 0"
    ):
        ss.fit(nile_build, NILE, {"observation_var": 1.0, "level_var": -1.0}, ss.positive())
    with pytest.raises(
        ArgumentError, match=r"start of ar is \[1.2 0. \]; stationary\(\) wants the coefficients"
    ):
        ss.fit(lambda p: ss.arma(p["ar"]), NILE, {"ar": np.array([1.2, 0.0])}, ss.stationary())
    with pytest.raises(ArgumentError, match="log-likelihood at start = .* is nan"):
        ss.fit(lambda p: ss.local_level(p["a"] * np.nan, 1.0), NILE, {"a": 1.0})
    with pytest.raises(NotPositiveDefiniteError, match="observation_cov: a variance of -1"):
        ss.fit(nile_build, NILE, {"observation_var": -1.0, "level_var": 0.1})
    with pytest.raises(ShapeError, match="transition_cov"):
        ss.fit(lambda p: ss.LinearGaussian(1.0, 1.0, p["a"], 1.0), NILE, {"a": np.ones(2)})
    with pytest.raises(ArgumentError, match="method='simplex'.*trust-exact"):
        ss.fit(nile_build, NILE, NILE_START, ss.positive(), method="simplex")
    with pytest.raises(
        ArgumentError, match="'level' is not a parameter; start has observation_var, level_var"
    ):
        ss.fit(nile_build, NILE, NILE_START, {"level": ss.positive()})
    with pytest.raises(ArgumentError, match="2 for 3 parameters"):
        ss.fit(nile_build, NILE, np.ones(3), [ss.positive()] * 2)
    with pytest.raises(ArgumentError, match="wanted low < high"):
        ss.interval(1.0, 1.0)
    with pytest.raises(ArgumentError, match="progress='yes'"):
        ss.fit(nile_build, NILE, NILE_START, ss.positive(), progress="yes")
    with pytest.raises(ArgumentError, match="hess='exact'"):
        tg.optimize.minimize(lambda x: x * x, 1.0, hess="exact")
    with pytest.raises(ConvergenceError, match="not finite at the starting point"):
        tg.optimize.minimize(lambda x: x / 0.0 if False else x * np.inf, 1.0)


def test_optimiser_that_fails():
    """Stopped at once where the Hessian is indefinite: the error says how far it came."""
    with pytest.raises(
        ConvergenceError,
        match=r"no maximum reached.*iterations has been exceeded.*largest entry of the gradient",
    ):
        ss.fit(
            nile_build,
            NILE,
            {"observation_var": 1.0, "level_var": 1e-4},
            ss.positive(),
            method="BFGS",
            options={"maxiter": 1},
        )


def test_likelihood_without_maximum():
    """The level of a constant series observed exactly: the likelihood grows without bound as both variances
    go to zero."""
    with pytest.raises((ConvergenceError, NotPositiveDefiniteError)):
        ss.fit(nile_build, np.ones(10), {"observation_var": 1.0, "level_var": 1.0}, ss.positive())


# --- data as users have them --------------------------------------------------------------------------------

GAPS = np.where(np.arange(12) % 5 == 2, np.nan, np.sin(np.arange(12.0)) * 3)
MASK = np.ma.masked_invalid(GAPS)
FORMS = {
    "masked": lambda: MASK,
    "masked whole numbers": lambda: np.ma.array(MASK.filled(0).astype(int), mask=MASK.mask),
    "a masked matrix": lambda: MASK[:, None],
    "list with None": lambda: [None if np.isnan(v) else v for v in GAPS],
    "Series": lambda: pd.Series(GAPS, index=pd.period_range("2001", periods=12, freq="M")),
    "nullable Series": lambda: pd.Series(GAPS).convert_dtypes(),
    "frame": lambda: pd.DataFrame({"y": GAPS}),
    "Const": lambda: tg.Const(GAPS),
    "float32": lambda: GAPS.astype(np.float32),
}


@pytest.mark.parametrize("name", FORMS)
def test_missing_data_in_every_form(name):
    y, model = FORMS[name](), ss.local_level(1.0, 0.5)
    plain = np.trunc(GAPS) if "whole" in name else GAPS
    tolerance = 1e-5 if name == "float32" else 1e-13
    for call in (
        ss.loglik,
        lambda m, y: ss.smooth(m, y).mean,
        lambda m, y: ss.filter(m, y).filtered_mean,
        lambda m, y: ss.forecast(m, y, 2).mean,
    ):
        np.testing.assert_allclose(call(model, y), call(model, plain), rtol=tolerance, atol=tolerance)
    g = tg.grad(lambda v: ss.loglik(ss.local_level(v[0], v[1]), y))(np.array([1.0, 0.5]))
    np.testing.assert_allclose(
        g, tg.grad(lambda v: ss.loglik(ss.local_level(v[0], v[1]), plain))(np.array([1.0, 0.5])), rtol=1e-4
    )


@pytest.mark.parametrize(
    "y, error, words",
    [
        (np.full(20, np.nan), DataError, "all 20 observations are missing"),
        (np.ma.array([1.0, 2.0], mask=True), DataError, "all 2 observations are missing"),
        ([1.0, np.nan, np.nan], DataError, "do not determine the parameters"),
        ([], ShapeError, "(0, 1)"),
        (np.zeros((3, 0)), ShapeError, "(3, 0)"),
        (np.zeros((2, 2, 2)), ShapeError, "(2, 2, 2)"),
        ([1.0, np.inf], DataError, "inf"),
        ([1j, 2.0], ArgumentError, "real numbers"),
        (["a", "b"], ArgumentError, "real numbers"),
        (pd.Series(["a", "b"]), ArgumentError, "Series"),
        (np.array([1j, 2]), ArgumentError, "complex"),
    ],
)
def test_data_that_cannot_be_fitted(y, error, words):
    with pytest.raises(error, match=re.escape(words)):
        ss.fit(nile_build, y, {"observation_var": 1.0, "level_var": 1.0}, ss.positive())


def test_masked_parameters_are_refused():
    with pytest.raises(ArgumentError, match="filled"):
        ss.loglik(ss.local_level(np.ma.array(1.0, mask=True), 1.0), NILE)


# --- the example --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["trust-exact", "BFGS"])
def test_example(tmp_path, method):
    picture = tmp_path / "nile.png"
    command = [
        sys.executable,
        str(ROOT / "examples" / "kalman_mle.py"),
        "--output",
        str(picture),
        "--method",
        method,
    ]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)},
    )
    assert run.returncode == 0, run.stderr
    assert "15098.51832" in run.stdout and "1469.17636" in run.stdout and "-633.46456" in run.stdout
    assert "checked: level_var 1469.18, published 1469.1" in run.stdout
    assert picture.exists() or "pip install 'tapegrad[plot]'" in run.stdout
