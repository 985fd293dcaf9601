"""Extended and unscented filters: the linear case is the Kalman filter, and non-linear ones are recomputed in
plain NumPy."""

import math

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, DataError, NotPositiveDefiniteError, ShapeError

pytestmark = pytest.mark.one_in(4)  # its cases compile

KINDS = [ss.extended, ss.unscented]
T = np.array([[0.9, 0.2], [-0.1, 0.7]])
Z = np.array([[1.0, 0.5], [0.0, 1.0], [0.3, 0.3]])
Q = np.array([[0.3, 0.1], [0.1, 0.2]])
R = np.array([[0.5, 0.1, 0.0], [0.1, 0.4, 0.0], [0.0, 0.0, 0.3]])
MEAN, COV = np.array([0.1, 0.2]), np.array([[1.0, 0.3], [0.3, 0.8]])
P0 = np.array([0.95, 1.3])


def data(seed=0, n=20, p=3, gaps=True):
    y = np.random.default_rng(seed).normal(size=(n, p))
    if gaps:
        y[3, 1] = y[5, 0] = y[5, 2] = y[7] = np.nan
    return y


def linear(p):
    return ss.LinearGaussian(T * p[0], Z, Q * p[1], R, start=ss.Start(MEAN, COV))


def as_nonlinear(kind, **options):
    return kind(
        lambda x, p, t: T @ x * p[0], lambda x, p, t: Z @ x, lambda p, t: Q * p[1], R, (MEAN, COV), **options
    )


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        as_nonlinear(ss.extended),
        as_nonlinear(ss.unscented),
        as_nonlinear(ss.unscented, alpha=0.7, beta=1.5, kappa=1.0),
    ],
)
def test_the_linear_case_is_the_kalman_filter(model, gaps):
    y = data(gaps=gaps)
    expected = lambda p: ss.loglik(linear(p), y)
    np.testing.assert_allclose(model.loglik(P0, y), expected(P0), rtol=1e-12)
    np.testing.assert_allclose(tg.grad(model.loglik)(P0, y), tg.grad(expected)(P0), rtol=1e-11)
    np.testing.assert_allclose(
        tg.hessian(lambda p: model.loglik(p, y[:8]))(P0),
        tg.hessian(lambda p: ss.loglik(linear(p), y[:8]))(P0),
        rtol=1e-9,
    )
    found, known = model.filter(P0, y), ss.filter(linear(P0), y)
    for name in (
        "predicted_mean",
        "predicted_cov",
        "filtered_mean",
        "filtered_cov",
        "innovation_cov",
        "loglik_terms",
        "loglik",
    ):
        np.testing.assert_allclose(
            getattr(found, name), getattr(known, name), rtol=1e-10, atol=1e-12, err_msg=name
        )
    np.testing.assert_allclose(found.innovations, known.innovations, rtol=1e-11, atol=1e-12, equal_nan=True)
    k = model.kernel()
    theta = np.stack([P0, P0 * 0.9], axis=1)
    value, gradient = k.value_and_grad(theta, y.T)
    for b in range(2):
        np.testing.assert_allclose(value[b], expected(theta[:, b]), rtol=1e-12)
        np.testing.assert_allclose(gradient[:, b], tg.grad(expected)(theta[:, b]), rtol=1e-10)
    np.testing.assert_allclose(k.hessian(theta, y.T)[0], tg.hessian(expected)(P0), rtol=1e-9)


# --- a pendulum with friction, observed through sines, recomputed by hand ---

STEP = 0.05


def swing(x, p, t):
    return np.array([x[0] + STEP * x[1], x[1] - STEP * (p[0] * np.sin(x[0]) + p[1] * x[1] * abs(x[1]))])


def look(x, p, t):
    return np.array([np.sin(x[0]), x[1] * (1 + 0.01 * t)])


def swing_jacobian(x, p):
    return np.array([[1, STEP], [-STEP * p[0] * np.cos(x[0]), 1 - 2 * STEP * p[1] * abs(x[1])]])


def look_jacobian(x, p, t):
    return np.array([[np.cos(x[0]), 0], [0, 1 + 0.01 * t]])


NOISE, SEEN = np.diag([1e-5, 1e-3]), np.diag([0.02, 0.05])
START = (np.array([0.5, 0.0]), np.array([[0.2, 0.02], [0.02, 0.1]]))
TRUE = np.array([9.8, 0.3])


def pendulum(n=60):
    rng, x, y = np.random.default_rng(5), np.array([0.8, 0.0]), []
    for t in range(n):
        y.append(look(x, TRUE, t) + np.sqrt(np.diag(SEEN)) * rng.normal(size=2))
        x = swing(x, TRUE, t) + np.sqrt(np.diag(NOISE)) * rng.normal(size=2)
    return np.array(y)


def normal(v, S):
    return -0.5 * (len(v) * math.log(2 * math.pi) + np.log(np.linalg.det(S)) + v @ np.linalg.inv(S) @ v)


def extended_by_hand(p, y):
    (x, P), total, means = START, 0.0, []
    for t in range(len(y)):
        H = look_jacobian(x, p, t)
        S = H @ P @ H.T + SEEN
        v = y[t] - look(x, p, t)
        K = P @ H.T @ np.linalg.inv(S)
        total += normal(v, S)
        x, P = x + K @ v, (np.eye(2) - K @ H) @ P
        means.append(x)
        F = swing_jacobian(x, p)
        x, P = swing(x, p, t), F @ P @ F.T + NOISE
    return total, np.array(means)


def points(x, P, alpha, beta, kappa):
    m = len(x)
    lam = alpha**2 * (m + kappa) - m
    L = np.linalg.cholesky((m + lam) * P)
    X = np.array([x, *[x + L[:, i] for i in range(m)], *[x - L[:, i] for i in range(m)]])
    wm = np.full(2 * m + 1, 0.5 / (m + lam))
    wc = wm.copy()
    wm[0], wc[0] = lam / (m + lam), lam / (m + lam) + 1 - alpha**2 + beta
    return X, wm, wc


def unscented_by_hand(p, y, *weights):
    (x, P), total, means = START, 0.0, []
    for t in range(len(y)):
        X, wm, wc = points(x, P, *weights)
        Y = np.array([look(s, p, t) for s in X])
        mean = wm @ Y
        S = sum(w * np.outer(a - mean, a - mean) for w, a in zip(wc, Y, strict=True)) + SEEN
        C = sum(w * np.outer(s - x, a - mean) for w, s, a in zip(wc, X, Y, strict=True))
        K = C @ np.linalg.inv(S)
        total += normal(y[t] - mean, S)
        x, P = x + K @ (y[t] - mean), P - K @ S @ K.T
        means.append(x)
        X, wm, wc = points(x, P, *weights)
        Y = np.array([swing(s, p, t) for s in X])
        x = wm @ Y
        P = sum(w * np.outer(a - x, a - x) for w, a in zip(wc, Y, strict=True)) + NOISE
    return total, np.array(means)


MODELS = {
    "extended": (ss.extended(swing, look, NOISE, SEEN, START), extended_by_hand),
    "unscented": (
        ss.unscented(swing, look, NOISE, SEEN, START),
        lambda p, y: unscented_by_hand(p, y, 1.0, 2.0, 0.0),
    ),
    "narrow": (
        ss.unscented(swing, look, NOISE, SEEN, START, 0.5, 2.0, 1.0),
        lambda p, y: unscented_by_hand(p, y, 0.5, 2.0, 1.0),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_a_pendulum(name):
    model, by_hand = MODELS[name]
    y = pendulum()
    total, means = by_hand(TRUE, y)
    np.testing.assert_allclose(model.loglik(TRUE, y), total, rtol=1e-10)
    found = model.filter(TRUE, y)
    np.testing.assert_allclose(found.filtered_mean, means, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.loglik_terms.sum(), total, rtol=1e-10)
    gradient = tg.grad(model.loglik)(TRUE, y)
    for k in range(2):
        h = 1e-5 * np.eye(2)[k]
        slope = (by_hand(TRUE + h, y)[0] - by_hand(TRUE - h, y)[0]) / 2e-5
        np.testing.assert_allclose(gradient[k], slope, rtol=1e-5)
    theta = np.stack([TRUE, [8.0, 0.5], [11.0, 0.1]], axis=1)
    value, gradients = model.kernel().value_and_grad(theta, y.T)
    np.testing.assert_allclose(value, [by_hand(p, y)[0] for p in theta.T], rtol=1e-10)
    np.testing.assert_allclose(gradients[:, 0], gradient, rtol=1e-9)
    assert np.isfinite(model.kernel().hessian(theta, y.T)).all()


def test_the_final_carry_of_the_kernel():
    model, y = MODELS["extended"][0], pendulum(10)
    mean, cov, steps = model.kernel().final(TRUE[:, None], y.T)
    known = model.filter(TRUE, np.concatenate([y, np.full((1, 2), np.nan)]))
    np.testing.assert_allclose(mean[:, 0], known.predicted_mean[-1], rtol=1e-10)
    np.testing.assert_allclose(cov[..., 0], known.predicted_cov[-1], rtol=1e-10)
    assert steps[0] == 10


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_fitted_by_the_batched_optimiser(kind):
    """From several starts at once, and the same as one by one."""
    y = pendulum(80)
    model = kind(swing, look, NOISE, SEEN, START)
    k = model.kernel()
    starts = np.array([[6.0, 12.0, 9.0], [0.1, 0.5, 0.0]])
    r = tg.optimize.minimize_many(lambda p: -k(p, y.T), starts, vectorized=True, gtol=1e-6)
    assert r.converged.all() and np.ptp(r.x, axis=1).max() < 1e-6
    alone = tg.optimize.minimize(
        lambda p: -model.loglik(p, y), TRUE, method="trust-exact", options={"gtol": 1e-5}
    )
    np.testing.assert_allclose(r.x[:, 0], alone.x, rtol=1e-5)


def test_parameters_with_names_scalars_and_starts():
    y = np.array([0.2, 0.3, np.nan, 0.5, 0.7, 0.75])

    def grow(x, p, t):
        return x + p["r"] * x * (1 - x / p["K"])

    def start(p):
        return [p["K"] * 0.2], 0.01

    for kind in KINDS:
        model = kind(
            grow, lambda x, p, t: x[0], lambda p, t: 0.001 * (1 + 0.1 * t), lambda p, t: p["s"], start
        )
        p = {"r": 0.5, "K": 1.1, "s": 0.02}
        value, gradient = tg.value_and_grad(model.loglik)(p, y)
        many = {name: np.array([v, v]) for name, v in p.items()}
        values, gradients = model.kernel().value_and_grad(many, y)
        np.testing.assert_allclose(values, value, rtol=1e-12)
        for name in p:
            np.testing.assert_allclose(gradients[name][1], gradient[name], rtol=1e-10)
            h = 1e-6
            up, down = [model.loglik({**p, name: p[name] + d}, y) for d in (h, -h)]
            np.testing.assert_allclose(gradient[name], (up - down) / (2 * h), rtol=1e-6)


def test_captured_buffers_in_the_models_functions():
    work = np.zeros(2)

    def f(x, p, t):
        work[0] = x[0] + STEP * x[1]
        work[1] = x[1] - STEP * (p[0] * np.sin(x[0]) + p[1] * x[1] * abs(x[1]))
        return work.copy()

    y = pendulum(15)
    model = ss.extended(f, look, NOISE, SEEN, START)
    v, g = tg.value_and_grad(model.loglik)(TRUE, y)
    expected = tg.value_and_grad(MODELS["extended"][0].loglik)(TRUE, y)
    np.testing.assert_allclose(v, expected[0], rtol=1e-12)
    np.testing.assert_allclose(g, expected[1], rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_on_the_library(kind, xp):
    def f(x, p, t):
        return xp.sin(x) * p[0]

    def h(x, p, t):
        return x + 0.1 * x**3

    y = np.array([[0.3, 0.1], [np.nan, 0.4], [0.2, -0.2]])
    p = np.array([0.9])
    model = kind(
        f, h, 0.1, np.array([0.2, 0.3]) if xp is np else xp.asarray([0.2, 0.3]), (xp.zeros(2), xp.eye(2))
    )
    plain = kind(lambda x, p, t: np.sin(x) * p[0], h, 0.1, np.array([0.2, 0.3]), (np.zeros(2), np.eye(2)))
    value, gradient = tg.value_and_grad(model.loglik)(xp.asarray(p), xp.asarray(y))
    expected = tg.value_and_grad(plain.loglik)(p, y)
    np.testing.assert_allclose(float(value), expected[0], rtol=1e-12)
    np.testing.assert_allclose(float(gradient[0]), expected[1][0], rtol=1e-11)
    assert type(model.filter(xp.asarray(p), xp.asarray(y)).filtered_mean) is xp.ndarray


STATE = (np.zeros(2), np.eye(2))
same = lambda x, p, t: x
first = lambda x, p, t: x[0]


@pytest.mark.parametrize(
    "model, y, error, text",
    [
        (
            ss.extended(same, same, 0.1, 0.1, ss.Start(diffuse=True)),
            np.ones((3, 2)),
            ArgumentError,
            "neither diffuse nor stationary",
        ),
        (
            ss.extended(same, same, 0.1, 0.1, np.zeros(2)),
            np.ones((3, 2)),
            ArgumentError,
            r"start: wanted \(mean, cov\)",
        ),
        (
            ss.extended(same, same, 0.1, 0.1, STATE),
            np.ones((3, 3)),
            ShapeError,
            "observation: .* 2 numbers, and 3 numbers are observed",
        ),
        (
            ss.extended(lambda x, p, t: x[:1], same, 0.1, 0.1, STATE),
            np.ones((3, 2)),
            ShapeError,
            "transition: .* 1 numbers, and 2 states",
        ),
        (
            ss.extended(same, same, np.ones(3), 0.1, STATE),
            np.ones((3, 2)),
            ShapeError,
            r"transition_cov: shape \(3,\)",
        ),
        (
            ss.extended(same, same, 0.1, 0.1, (np.zeros(2), np.ones(3))),
            np.ones((3, 2)),
            ShapeError,
            r"start: cov: shape \(3,\)",
        ),
        (
            ss.extended(same, same, 0.1, -5.0, STATE),
            np.ones((3, 2)),
            NotPositiveDefiniteError,
            "step 0 of the filter: ",
        ),
        (
            ss.extended(same, lambda x, p, t: x[0], 0.1, -5.0, STATE),
            np.ones(3),
            NotPositiveDefiniteError,
            "step 0",
        ),
        (
            ss.extended(lambda x, p, t: np.log(x), lambda x, p, t: x[0], 0.1, 0.5, STATE),
            -np.ones(3),
            NotPositiveDefiniteError,
            "step 1 .* not finite",
        ),
        (ss.extended(same, same, 0.1, 0.1, STATE), np.full((3, 2), np.inf), DataError, "infinite"),
    ],
)
def test_bad_input(model, y, error, text):
    with pytest.raises(error, match=text), np.errstate(all="ignore"):
        model.loglik(None, y)


def test_bad_weights():
    with pytest.raises(ArgumentError, match="alpha=0"):
        ss.unscented(same, same, 0.1, 0.1, STATE, alpha=0)
