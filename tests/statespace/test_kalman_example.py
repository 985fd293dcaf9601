"""Discussion 0, a Kalman filter as its author would write it: three gains, two updates, the Nile data.

Expected numbers come from multiple precision arithmetic, statsmodels and the published estimates."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from _modes import check_first, check_second
from comparison import close, host

import tapegrad as tg
from tapegrad.testing.hosted import reset_counts, stats

pytestmark = pytest.mark.one_in(4)  # its cases compile

LOG2PI = 1.8378770664093453
NILE_FILE = Path(__file__).parents[2] / "examples" / "data" / "nile.csv"
NILE = np.loadtxt(NILE_FILE, delimiter=",", skiprows=3)[:, 1]
GAINS = ("lu", "cholesky", "inverse")


def linalg_of(xp):
    return scipy.linalg if xp is np else importlib.import_module("cupyx.scipy.linalg")


# --- the user's program ---


@dataclass
class Gaussian:
    mean: Any
    cov: Any


@dataclass
class Process:
    matrix: Any
    cov: Any

    def __post_init__(self):
        if not self.matrix.shape[0] == self.cov.shape[0] == self.cov.shape[1]:
            raise ValueError("matrix and covariance do not fit")


@dataclass
class Model:
    transition: Process
    observation: Process


def filter_of(xp, gain="lu", joseph=False):
    """The discussion's filter: predict, correct, add the log density of the residual."""
    solve_triangular = linalg_of(xp).solve_triangular

    def kalman_gain(PBt, S):
        if gain == "lu":
            return xp.linalg.solve(S, PBt.T).T
        if gain == "inverse":
            return PBt @ xp.linalg.inv(S)
        L = xp.linalg.cholesky(S)
        return solve_triangular(L, solve_triangular(L, PBt.T, lower=True), lower=True, trans="T").T

    def predict(state, process):
        A = process.matrix
        cov = A @ (state.cov[:, None] * A.T) if state.cov.ndim == 1 else A @ state.cov @ A.T
        return Gaussian(A @ state.mean, cov + process.cov)

    def correct(state, obs, process):
        B, R = process.matrix, process.cov
        residual = obs - B @ state.mean
        S = B @ state.cov @ B.T + R
        K = kalman_gain(state.cov @ B.T, S)
        left = xp.eye(len(state.mean)) - K @ B
        cov = left @ state.cov @ left.T + K @ R @ K.T if joseph else left @ state.cov
        return Gaussian(state.mean + K @ residual, cov), residual, S

    def logpdf(residual, S):
        half = residual @ xp.linalg.solve(S, residual)
        return -0.5 * (half + xp.linalg.slogdet(S)[1] + len(residual) * LOG2PI)

    def kalman_filter(model, state, observations):
        log_evidence = 0.0
        for obs in observations:
            state = predict(state, model.transition)
            state, residual, S = correct(state, obs, model.observation)
            log_evidence += logpdf(residual, S)
        return log_evidence

    return kalman_filter


def local_level(xp, gain="lu", joseph=False, vector_start=False):
    kalman_filter = filter_of(xp, gain, joseph)

    def build_model(theta):
        return Model(Process(xp.ones((1, 1)), xp.diag(theta)), Process(xp.eye(1), xp.diag(xp.ones(1))))

    def loglik(theta, data):
        init = Gaussian(xp.zeros(1), xp.ones(1) if vector_start else xp.diag(xp.ones(1)))
        return kalman_filter(build_model(theta), init, data)

    return loglik


def three_states(xp, gain="lu", joseph=False, vector_start=False):
    kalman_filter = filter_of(xp, gain, joseph)
    A = xp.array([[0.9, 0.2, 0.0], [-0.1, 0.8, 0.1], [0.0, 0.3, 0.7]])
    B = xp.array([[1.0, 0.0, 0.5], [0.0, 1.0, -0.5]])

    def loglik(theta, data):
        model = Model(Process(A, xp.diag(theta[:3])), Process(B, xp.diag(theta[3:])))
        init = Gaussian(xp.zeros(3), xp.ones(3) if vector_start else xp.eye(3))
        return kalman_filter(model, init, data)

    return loglik


def random_walk(xp):
    g = np.random.default_rng(1234)
    data = np.cumsum(g.standard_normal(100)) + g.standard_normal(100)
    assert data[0] == pytest.approx(0.65008865, abs=1e-8) and data[-1] == pytest.approx(14.748322481872176)
    return xp.asarray(data.reshape(-1, 1))


F3_THETA = (0.5, 0.4, 0.3, 0.2, 0.1)
F3_GRAD = (83.8771163277034, 336.302610875576, 51.3564499458087, -10.7764668751798, 65.7581750196756)


def f3_data(xp):
    return xp.asarray(np.random.default_rng(7).standard_normal((50, 2)).cumsum(0))


# --- F1: the discussion's call ---


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "theta, value, score, curvature",
    [
        (1.0, -196.36523965659015, 3.59705917364765, -19.12383466855),
        (0.5, -202.73953733707801, 30.2189564241375, -133.464823682),
        (2.0, -197.56440234984705, -3.53117957396105, -2.116400997624),
    ],
)
def test_f1_local_level(xp, theta, value, score, curvature):
    loglik, x, data = local_level(xp), xp.array([theta]), random_walk(xp)
    y, g = tg.value_and_grad(loglik)(x, tg.Const(data))
    close(y, value)
    close(g, [score])
    close(tg.hessian(loglik)(x, tg.Const(data)), [[curvature]], rtol=1e-12)
    if xp is np:
        f = lambda th: loglik(th, data)
        check_first(f, x, [score])
        check_second(f, x, xp.array([2.0]), [2 * curvature], rtol=1e-12)


def test_f1_maximum():
    data = random_walk(np)
    loglik = local_level(np)
    both = tg.value_and_grad(lambda u: -loglik(np.exp(u), data))
    fit = scipy.optimize.minimize(both, np.zeros(1), jac=True, method="BFGS", options={"gtol": 1e-9})
    close(np.exp(fit.x), [1.2632213502966], rtol=1e-9)


# --- F2, F3: gains, updates, start ---


@pytest.mark.one_in(7)
@pytest.mark.parametrize("start", ["matrix", "variances"])
@pytest.mark.parametrize("joseph", [False, True], ids=["plain", "joseph"])
@pytest.mark.parametrize("gain", GAINS)
def test_f2_f3_every_gain_and_update(xp, gain, joseph, start):
    loglik = three_states(xp, gain, joseph, start == "variances")
    value, gradient = tg.value_and_grad(loglik)(xp.array(F3_THETA), tg.Const(f3_data(xp)))
    close(value, -324.69365170678088, rtol=1e-13)
    close(gradient, F3_GRAD, rtol=1e-11)


@pytest.mark.parametrize("gain", GAINS)
def test_f2_local_level_gains(xp, gain):
    loglik = local_level(xp, gain, joseph=True, vector_start=True)
    close(tg.grad(loglik)(xp.array([1.0]), tg.Const(random_walk(xp))), [3.59705917364765], rtol=1e-11)


def test_f2_wrong_shapes_raise(xp):
    loglik = three_states(xp)
    with pytest.raises(ValueError, match="do not fit"):
        tg.grad(lambda theta: loglik(theta[:4], f3_data(xp)))(xp.array(F3_THETA[:3] + (0.1, 0.2, 0.3)))
    with pytest.raises(ValueError):
        tg.grad(loglik)(xp.array(F3_THETA), xp.zeros((50, 3)))
    close(tg.grad(loglik)(xp.array(F3_THETA), f3_data(xp)), F3_GRAD)


def test_f3_every_mode(xp):
    loglik, data, theta = three_states(xp), f3_data(xp)[:12], xp.array(F3_THETA)

    def f(th):
        return loglik(th, data)

    reference = tg.grad(f)(theta)
    check_first(f, theta, reference, rtol=1e-11)
    v = xp.array([0.3, -1.0, 0.5, 2.0, -0.7])
    step = 1e-4
    difference = (
        8 * (tg.grad(f)(theta + step * v) - tg.grad(f)(theta - step * v))
        - (tg.grad(f)(theta + 2 * step * v) - tg.grad(f)(theta - 2 * step * v))
    ) / (12 * step)
    check_second(f, theta, v, difference, rtol=1e-8)
    products = [p for _, p in _second(f, theta, v)]
    for p in products[1:]:
        close(p, products[0], rtol=1e-11)


def _second(f, x, v):
    yield "forward over reverse", tg.jvp(tg.grad(f), (x,), (v,))[1]
    yield "reverse over reverse", tg.grad(lambda z: tg.grad(f)(z) @ v)(x)
    yield "reverse over forward", tg.grad(lambda z: tg.jvp(f, (z,), (v,))[1])(x)


def test_f3_full_gradient_in_forward_mode(xp):
    loglik, data, theta = three_states(xp), f3_data(xp), xp.array(F3_THETA)
    for k in range(5):
        _, slope = tg.jvp(lambda th: loglik(th, data), (theta,), (xp.eye(5)[k],))
        close(slope, F3_GRAD[k], rtol=1e-11)


@pytest.mark.parametrize("xp", ["hosted-cupy"], indirect=True)
@pytest.mark.parametrize("gain", GAINS)
def test_no_hidden_round_trip(xp, gain):
    """The gradient of F3 on device arrays moves nothing to the host."""
    loglik, data, theta = three_states(xp, gain), f3_data(xp), xp.array(F3_THETA)
    reset_counts()
    gradient = tg.grad(loglik)(theta, tg.Const(data))
    assert stats["syncs"] == 0 and stats["kernels"] > 50 * 10
    close(gradient, F3_GRAD, rtol=1e-11)


# --- F4: a log density ---


def test_f4_multivariate_normal(xp):
    S, r = xp.array([[2.0, 0.5], [0.5, 1.0]]), xp.array([0.3, -0.7])

    def f(r, S):
        return tg.stats.multivariate_normal.logpdf(r, 0, S)

    value, (dr, dS) = tg.value_and_grad(f, argnums=(0, 1))(r, S)
    close(value, -2.4833992460913423)
    close(dr, [-0.371428571428571, 0.885714285714286], rtol=2e-15)
    expected = [[-0.216734693877551, -0.021632653061224], [-0.021632653061224, -0.179183673469388]]
    close(dS, expected, rtol=5e-15)
    close(tg.hessian(f)(r, S), -np.linalg.inv(host(S)))
    check_first(lambda r: f(r, S), r, [-0.371428571428571, 0.885714285714286], rtol=2e-15)
    check_second(lambda r: f(r, S), r, xp.array([1.0, 2.0]), -np.linalg.inv(host(S)) @ [1.0, 2.0])
    _, slope = tg.jvp(lambda S: f(r, S), (S,), (xp.array([[0.0, 1.0], [1.0, 0.0]]),))
    close(slope, -2 * 0.021632653061224, rtol=1e-13)


# --- F5 to F9: the Nile, as a plain loop over numbers ---


def nile_loop(y, mean, variance, first):
    """Log likelihood of the local level model with a known or, by `first=1`, a diffuse start."""

    def loglik(theta):
        noise, drift = theta[0], theta[1]
        a, P = mean, variance
        if first == 1:
            a, P = y[0], noise + drift
        else:
            P = P + 0 * noise
        total = -0.5 * len(y) * LOG2PI
        for t in range(first, len(y)):
            F = P + noise
            residual = y[t] - a
            total = total - 0.5 * (np.log(F) + residual * residual / F)
            K = P / F
            a = a + K * residual
            P = P * (1 - K) + drift
        return total

    return loglik


def nile(xp):
    """The same for either library: the loop's numbers are 0-d arrays there."""
    y = xp.asarray(NILE)

    def loglik(theta):
        noise, drift = theta[0], theta[1]
        a, P = y[0], noise + drift
        total = -0.5 * len(y) * LOG2PI
        for t in range(1, len(y)):
            F = P + noise
            residual = y[t] - a
            total = total - 0.5 * (xp.log(F) + residual**2 / F)
            K = P / F
            a = a + K * residual
            P = P * (1 - K) + drift
        return total

    return loglik


F5 = (
    (15099.0, 1469.1),
    -633.464563648878371,
    (-5.9113952775617e-8, -4.2021454701408e-8),
    (-1.60967337373e-7, -2.41270448566e-7, -9.71662936135e-7),
)
F6 = (
    (10000.0, 1000.0),
    -638.204406204717274,
    (0.0021166153900217, 0.0037634132111984),
    (-7.42510205441e-7, -1.00286967229e-6, -5.05072023292e-6),
)


@pytest.mark.parametrize("theta, value, score, curvature", [F5, F6], ids=["F5", "F6"])
def test_f5_f6_nile(xp, theta, value, score, curvature):
    f, x = nile(xp), xp.array(theta)
    y, g = tg.value_and_grad(f)(x)
    close(y, value, rtol=1e-13)
    close(g, score, rtol=1e-12, atol=1e-15)
    xx, xy, yy = curvature
    close(tg.hessian(f)(x), [[xx, xy], [xy, yy]], rtol=2e-11)
    if xp is np:
        check_first(f, x, score, atol=1e-15)
        check_second(f, x, xp.array([2.0, -1.0]), [2 * xx - xy, 2 * xy - yy], rtol=5e-11)


def test_f6_in_logarithms(xp):
    f = nile(xp)
    g = tg.grad(lambda u: -f(xp.exp(u)))(xp.log(xp.array([1e4, 1e3])))
    close(g, [-21.1661539, -3.76341321], rtol=1e-8)


@pytest.mark.parametrize(
    "theta, value, score",
    [
        ((15099.0, 1469.1), -641.585578459415321, (-3.431403613161e-8, -4.1713943560361e-7)),
        ((10000.0, 1000.0), -646.325375603490326, (0.0021166549415388, 0.0037628993419063)),
    ],
)
def test_f9_known_large_variance(theta, value, score):
    f, x = nile_loop(NILE, 0.0, 1e7, first=0), np.array(theta)
    y, g = tg.value_and_grad(f)(x)
    close(y, value, rtol=1e-13)
    close(g, score, rtol=1e-12, atol=1e-15)
    check_first(f, x, score, atol=1e-15)


MLE = (15098.518324096, 1469.1763603095)
METHODS = {
    "BFGS": {"gtol": 1e-6},
    "L-BFGS-B": {"ftol": 1e-15, "gtol": 1e-6},
    "Newton-CG": {"xtol": 1e-10},
    "trust-ncg": {"gtol": 1e-8},
    "trust-exact": {"gtol": 1e-8},
}


@pytest.mark.parametrize("method", METHODS)
def test_f7_maximum_likelihood(method):
    f = nile_loop(NILE, None, None, first=1)

    def objective(u):
        return -f(np.exp(u))

    more = {}
    if method in ("Newton-CG", "trust-ncg"):
        more["hessp"] = lambda u, v: tg.hvp(objective, u, v)
    if method == "trust-exact":
        more["hess"] = tg.hessian(objective)
    fit = scipy.optimize.minimize(
        tg.value_and_grad(objective),
        np.log([1e4, 1e3]),
        jac=True,
        method=method,
        options=METHODS[method],
        **more,
    )
    assert abs(-fit.fun - -633.4645636362457) < 1e-6
    assert fit.nit <= 12
    np.testing.assert_allclose(np.exp(fit.x), MLE, rtol=1e-4)


def test_f7_standard_errors():
    f, x = nile_loop(NILE, None, None, first=1), np.array(MLE)
    u = np.log(MLE)
    for _ in range(3):  # Newton steps in logarithms, to the last digits
        g, H = tg.grad(lambda u: -f(np.exp(u)))(u), tg.hessian(lambda u: -f(np.exp(u)))(u)
        u = u - np.linalg.solve(H, g)
    close(np.exp(u), MLE, rtol=1e-9)
    cov = np.linalg.inv(-tg.hessian(f)(x))
    errors = np.sqrt(np.diag(cov))
    close(errors, [3145.547863, 1280.375413], rtol=1e-8)
    close(cov[0, 1] / errors.prod(), -0.6100738, rtol=1e-6)
