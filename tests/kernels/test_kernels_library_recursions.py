"""Library kernels for time series: the Nile, statsmodels, dense Gaussians, enumeration, mpmath, differences,
the generated kernels, and the CUDA C of each."""

import itertools
import shutil

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from comparison import close, host
from kernel_recursions import DIFFUSE, KNOWN, MANY, NILE, formula
from library_models import agree, by_source
from library_recursions import (
    BY_HAND,
    CASES,
    consts,
    garch_theta,
    markov_theta,
    model,
    partial,
    series,
    varying,
)
from raw_device import noted_launches  # noqa: F401 (the fixture `device`)

import tapegrad as tg
from tapegrad.errors import ArgumentError, ShapeError
from tapegrad.kernels import autoregression, garch, kalman, kalman_vector, markov
from tapegrad.kernels.launch import waiting
from tapegrad.kernels.library.filters import kalman_start, kalman_step

pytestmark = pytest.mark.one_in(4)  # its cases compile

REALS = [np.float64, np.float32]


SMALL = ["kalman 1", "vector 3, 2", "garch", "autoregression 4", "markov 3", "markov given"]


# Of which g++ compiles the CUDA C in the default run.
COMPILED = {"markov 3", "markov given"}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]()


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT RUN: CUDA C on the CPU, for there is no g++")
@pytest.mark.parametrize("real", [np.float64, pytest.param(np.float32, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "case",
    [n if n in COMPILED else pytest.param(n, marks=pytest.mark.long) for n in CASES if n.startswith(BY_HAND)],
    indirect=True,
)
def test_cuda_source_and_generated_kernel(case, real):
    k, theta, data = case
    theta, data = theta.astype(real), data.astype(real)
    ours, theirs = k.value_and_grad(theta, data), by_source(k, theta, data)
    assert (
        np.isfinite(ours[0]).all() and np.isfinite(ours[1]).all() and ours[0].dtype == ours[1].dtype == real
    )
    agree(theirs, ours)
    close(k(theta, data), ours[0], 1e-14 if real is np.float64 else 1e-6)
    assert np.array_equal(by_source(k, theta, data, value=True), theirs[0])
    one = k.value_and_grad(
        np.ascontiguousarray(theta[:, 1:2]), np.ascontiguousarray(data[:, :, 1:2] if data.ndim == 3 else data)
    )
    assert one[0][0] == ours[0][1] and np.array_equal(one[1][:, 0], ours[1][:, 1])


@pytest.mark.parametrize("name", ["kalman 3", "vector 3, 2", "garch", "autoregression 4", "markov 3"])
def test_threads_do_not_change_the_bits(name, monkeypatch):
    k, theta, data = CASES[name]()
    theta = np.concatenate([theta, theta[:, :61] * 0.9], axis=1)  # no whole number of blocks
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(waiting, "THREADS", threads)
        monkeypatch.setattr(waiting, "THREADED_OPERATIONS", 0)
        monkeypatch.setitem(waiting.STATE, "workers", waiting.Workers(threads))
        found.append((*k.value_and_grad(theta, data), k(theta, data)))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.one_in(7)
def test_generated_kernel_of_the_formula(case):
    """Value and gradient by hand and from the model in plain Python; its Hessian against differences of the
    gradient by hand."""
    k, theta, data = case
    if len(theta) > 100:
        # 8 states or 8 hidden states: minutes of compilation; differences and sums over paths check those
        return
    value, gradient = k.value_and_grad(theta, data)
    expected, slope = k.definition.formula.value_and_grad(theta, data)
    close(value, expected, 1e-11)
    close(gradient, slope, 1e-10)
    if len(theta) > 40:
        return  # second derivatives of the larger models compile for tens of seconds
    v, h = np.random.default_rng(5).normal(size=theta.shape), 1e-6
    differences = (k.grad(theta + h * v, data) - k.grad(theta - h * v, data)) / (2 * h)
    close(k.hvp(theta, v, data), differences, 3e-6)
    close(tg.hvp(lambda theta: k(theta, data).sum(), theta, v), differences, 3e-6)


def test_differences(case):
    k, theta, data = case
    gradient, v, h = k.grad(theta, data), np.random.default_rng(6).normal(size=theta.shape), 1e-6
    differences = (k(theta + h * v, data) - k(theta - h * v, data)) / (2 * h)
    close((gradient * v).sum(axis=0), differences, 1e-6)


@pytest.mark.one_in(7)
def test_float32(case):
    """Values relative to their own size, gradients to that of their sample's gradient."""
    k, theta, data = case
    theta, data = theta.astype(np.float32), data.astype(np.float32)
    value, gradient = k.value_and_grad(theta, data)
    expected, slope = k.value_and_grad(theta.astype(float), data.astype(float))
    close(value, expected, 3e-6)
    error = np.linalg.norm(gradient - slope, axis=0) / np.linalg.norm(slope, axis=0).clip(1e-9)
    assert error.max() < 2e-4


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "arch", [90, *[pytest.param(a, marks=pytest.mark.long) for a in (75, 80, 86, 89, 100, 120)]]
)
@pytest.mark.parametrize("name", ["markov 3", "markov given"])
def test_nvrtc_compiles(name, arch):
    pytest.importorskip("cupy")
    from tapegrad.kernels.launch.cuda import cubin

    k, theta, data = CASES[name]()
    for kernel in k.kernels(len(theta), len(data), data.ndim == 3, bool(np.isnan(data).any())):
        for real in REALS:
            assert cubin(kernel.code.text(np.dtype(real)), arch)[0][:4] == b"\x7fELF"


# --- the Nile ---


def level(theta, start):
    """The local level model of log variances (2, B)."""
    obs, level = np.exp(theta)
    one, zero = np.ones((1, 1)), np.zeros(1)
    m0, P0 = (zero, 1e7 * one) if start == "known" else (zero + NILE[0], (obs + level)[None, None])
    return kalman.Model(one, np.ones(1), level[None, None], obs, m0, P0)


@pytest.mark.parametrize("vector", [False, True])
def test_founding_nile(vector):
    """F5, F6 and F9, by variances."""
    s = np.array([[15099.0, 1e4], [1469.1, 1e3]])

    def loglik(s, start, y):
        M = level(np.log(s), start)
        if vector:
            M = kalman_vector.Model(M.A, M.c[None], M.Q, M.r[None, None], M.m0, M.P0)
        return (kalman_vector if vector else kalman).loglik(M, y[None] if vector else y)

    half_log_2_pi = 0.5 * np.log(2 * np.pi)
    close(loglik(s, "diffuse", NILE[1:]) - half_log_2_pi, [-633.464563648878371, -638.204406204717274], 1e-13)
    close(loglik(s, "known", NILE), [-641.585578459415321, -646.325375603490326], 1e-13)
    g = tg.grad(lambda s: loglik(s, "diffuse", NILE[1:]).sum())(s)
    np.testing.assert_allclose(g[:, 1], [0.0021166153900217, 0.0037634132111984], rtol=1e-10)
    np.testing.assert_allclose(g[:, 0], [-5.9113952775617e-8, -4.2021454701408e-8], atol=1e-14)
    g = tg.grad(lambda s: loglik(s, "known", NILE).sum())(s)
    np.testing.assert_allclose(g[:, 1], [0.0021166549415388, 0.0037628993419063], rtol=1e-10)
    np.testing.assert_allclose(g[:, 0], [-3.431403613161e-8, -4.1713943560361e-7], atol=1e-14)
    H = tg.hessian(lambda s: loglik(s, "diffuse", NILE[1:]))(s[:, 1].copy())
    np.testing.assert_allclose(
        H[[0, 0, 1], [0, 1, 1]], [-7.42510205441e-7, -1.00286967229e-6, -5.05072023292e-6], rtol=1e-9
    )


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("start, generated", [("known", KNOWN), ("diffuse", DIFFUSE)])
def test_f11_thousands_of_samples(start, generated, holes):
    y = NILE.copy() if start == "known" else NILE[1:].copy()
    if holes:
        y[[5, 20, 21, 22, 98]] = np.nan

    def loglik(theta):
        return kalman.loglik(level(theta, start), y)

    expected, slope = formula(MANY, y, start)
    close(loglik(MANY), expected, 1e-10)
    gradient = tg.grad(lambda theta: loglik(theta).sum())(MANY)
    assert np.max(np.abs(gradient - slope) / np.abs(slope).max(axis=0)) < 1e-10
    close(gradient, generated.grad(MANY, y), 1e-9)
    if start == "diffuse":
        small = level(MANY, start)
        small = small._replace(**{name: x.astype(np.float32) for name, x in small._asdict().items()})
        value, g = kalman.loglik.value_and_grad(small, y.astype(np.float32))
        np.testing.assert_allclose(value, expected, rtol=2e-6)
        obs, lev = np.exp(MANY)
        g = np.stack([(g.r + g.P0[0, 0]) * obs, (g.Q[0, 0] + g.P0[0, 0]) * lev])
        assert (np.linalg.norm(g - slope, axis=0) / np.linalg.norm(slope, axis=0)).max() < 2e-4


def predicted(theta, A, C, R):
    """Predict first: N(0, I) is the state before the first step."""
    k = len(A)
    Q = np.diag(theta[:k])
    return A, C, Q, R, np.zeros(k), A @ A.T + Q


def test_founding_discussion():
    """F1 and F3, which predict before they update."""
    g = np.random.default_rng(1234)
    data = np.cumsum(g.standard_normal(100)) + g.standard_normal(100)
    one = np.ones((1, 1))

    def loglik(theta):
        return kalman.loglik(
            kalman.Model(one, np.ones(1), theta.reshape(1, 1), 1.0, np.zeros(1), 1.0 + theta.reshape(1, 1)),
            data,
        )

    for theta, value, score, curvature in [
        (1.0, -196.36523965659015, 3.59705917364765, -19.12383466855),
        (0.5, -202.73953733707801, 30.2189564241375, -133.464823682),
        (2.0, -197.56440234984705, -3.53117957396105, -2.116400997624),
    ]:
        v, s = tg.value_and_grad(loglik)(np.array([theta]))
        np.testing.assert_allclose([v, s[0]], [value, score], rtol=1e-12)
        np.testing.assert_allclose(tg.hessian(loglik)(np.array([theta]))[0, 0], curvature, rtol=1e-10)

    A = np.array([[0.9, 0.2, 0], [-0.1, 0.8, 0.1], [0, 0.3, 0.7]])
    C = np.array([[1, 0, 0.5], [0, 1, -0.5]])
    y = np.random.default_rng(7).standard_normal((50, 2)).cumsum(0)
    th = np.array([0.5, 0.4, 0.3, 0.2, 0.1])
    value, gradient = tg.value_and_grad(
        lambda th: kalman_vector.loglik(
            kalman_vector.Model(*predicted(th, A, C, np.diag(th[3:]))), y.T.copy()
        )
    )(th)
    np.testing.assert_allclose(value, -324.69365170678088, rtol=1e-12)
    np.testing.assert_allclose(
        gradient,
        [83.8771163277034, 336.302610875576, 51.3564499458087, -10.7764668751798, 65.7581750196756],
        rtol=1e-12,
    )


# --- dense Gaussians and statsmodels ---


def at(x, base, t, b):
    """Argument x of sample b at step t."""
    if x.ndim == base:
        return x
    return x[..., b % x.shape[-1]] if x.ndim == base + 1 else x[t, ..., b % x.shape[-1]]


def dense(M, y, b):
    """The log density of the whole series as one normal vector; y (d, T)."""
    d, steps = y.shape
    scalar = isinstance(M, kalman.Model)
    k = M.A.shape[-2] if M.A.ndim == 3 else M.A.shape[-1] if M.A.ndim == 2 else M.A.shape[-2]
    mean, cov = at(M.m0, 1, 0, b), at(M.P0, 2, 0, b)
    means, blocks, G = [], np.zeros((steps, steps, d, d)), []
    states = []
    for t in range(steps):
        states.append((mean, cov))
        A, Q = at(M.A, 2, t, b), at(M.Q, 2, t, b)
        mean, cov = A @ mean, A @ cov @ A.T + Q
    for t in range(steps):
        C = at(M[1], 1, t, b)[None] if scalar else at(M[1], 2, t, b)
        R = at(M[3], 0, t, b).reshape(1, 1) if scalar else at(M[3], 2, t, b)
        G.append((C, R))
        means.append(C @ states[t][0])
    for t in range(steps):
        moved = np.eye(k)
        for u in range(t, steps):
            blocks[u, t] = G[u][0] @ moved @ states[t][1] @ G[t][0].T
            blocks[t, u] = blocks[u, t].T
            moved = at(M.A, 2, u, b) @ moved
        blocks[t, t] += G[t][1]
    whole = blocks.transpose(0, 2, 1, 3).reshape(steps * d, steps * d)
    flat = y.T.ravel()
    seen = ~np.isnan(flat)
    return scipy.stats.multivariate_normal.logpdf(
        flat[seen], np.concatenate(means)[seen], whole[np.ix_(seen, seen)]
    )


@pytest.mark.parametrize("steps_of", ["", "r", "AcQr"])
@pytest.mark.parametrize("d", [None, 1, 3])
def test_whole_series_as_one_normal_vector(d, steps_of):
    M = model(3, 4, d)
    names = steps_of if d is None else steps_of.replace("c", "C").replace("r", "R")
    M = varying(M, 6, names, 4)
    y = series(6, holes=[2]) if d is None else series(d, 6, holes=[(0, 2), (slice(None), 4)])
    value = (kalman if d is None else kalman_vector).loglik(M, y)
    close(value, [dense(M, y[None] if d is None else y, b) for b in range(4)], 1e-11)


@pytest.mark.parametrize("d", [1, 2])
def test_statsmodels(d):
    """Its filter of known start, value and central differences."""
    filters = pytest.importorskip("statsmodels.tsa.statespace.kalman_filter")
    M, y, k = model(3, 1, 2), series(2, 60, holes=[(0, 5), (slice(None), 9)])[:d], 3
    M = M._replace(C=M.C[:d], R=M.R[:d, :d])

    def theirs(M):
        f = filters.KalmanFilter(k_endog=d, k_states=k, k_posdef=k, loglikelihood_burn=0)
        f.bind(np.asfortranarray(y))
        f["transition"], f["design"], f["state_cov"], f["obs_cov"], f["selection"] = (
            M.A,
            M.C,
            M.Q,
            M.R,
            np.eye(k),
        )
        f.initialize_known(M.m0, M.P0)
        f.tolerance = 0.0  # no short cut to the steady state
        return f.loglike()

    def ours(M):
        if d == 2:
            return kalman_vector.loglik(M, y)
        return kalman.loglik(kalman.Model(M.A, M.C[0], M.Q, M.R[0, 0], M.m0, M.P0), y[0])

    M = type(M)(*[x[..., 0] for x in M])
    value, gradient = tg.value_and_grad(lambda M: ours(type(M)(*M)))(M)
    np.testing.assert_allclose(value, theirs(M), rtol=1e-12)
    rng = np.random.default_rng(0)
    for n, x in enumerate(M):
        v = rng.normal(size=x.shape)
        v = v + v.T if M._fields[n] in ("Q", "R", "P0") else v
        h = 1e-5
        up, down = [theirs(M._replace(**{M._fields[n]: x + s * h * v})) for s in (1, -1)]
        np.testing.assert_allclose((gradient[n] * v).sum(), (up - down) / (2 * h), rtol=1e-7)


def test_autoregression_as_one_normal_vector():
    """Against autocovariances from the companion form's Lyapunov equation; then with `kalman`, also of a
    series with holes."""
    for P in (1, 2, 5):
        theta, y = partial(P, 4), series(12)
        value = autoregression.loglik(theta, y)
        for b in range(4):
            mu, phi, v = theta[0, b], theta[1:-1, b], theta[-1, b]
            A = np.zeros((P, P))
            A[0], A[1:, :-1] = phi, np.eye(P - 1)
            Q = np.zeros((P, P))
            Q[0, 0] = v
            P0 = scipy.linalg.solve_discrete_lyapunov(A, Q)
            covariance = [(np.linalg.matrix_power(A, lag) @ P0)[0, 0] for lag in range(12)]
            np.testing.assert_allclose(
                value[b],
                scipy.stats.multivariate_normal.logpdf(y, np.full(12, mu), scipy.linalg.toeplitz(covariance)),
                rtol=1e-10,
            )
            other = kalman.loglik(kalman.Model(A, np.eye(P)[0], Q, 0.0, np.zeros(P), P0), y - mu)
            np.testing.assert_allclose(value[b], other, rtol=1e-10)


def test_autoregression_statsmodels():
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax")
    theta, y = partial(3, 2), series(80)
    for b in range(2):
        fit = sarimax.SARIMAX(y - theta[0, b], order=(3, 0, 0))
        np.testing.assert_allclose(
            autoregression.loglik(theta[:, b], y), fit.loglike(theta[1:, b]), rtol=1e-9
        )


# --- GARCH and hidden Markov models ---


def test_garch_in_multiple_precision():
    theta, y = garch_theta(3), series(30, holes=[4, 5])

    def exact(*theta):
        mu, omega, alpha, beta = theta
        h, total = omega / (1 - alpha - beta), mpmath.mpf(0)
        for x in y:
            e = mpmath.mpf(x) - mu if x == x else None
            total -= 0 if e is None else (mpmath.log(2 * mpmath.pi * h) + e * e / h) / 2
            h = omega + alpha * (h if e is None else e * e) + beta * h
        return total

    value, gradient = garch.loglik.value_and_grad(theta, y)
    with mpmath.workdps(40):
        for b in range(3):
            point = [mpmath.mpf(x) for x in theta[:, b]]
            np.testing.assert_allclose(value[b], float(exact(*point)), rtol=1e-13)
            slopes = [
                float(mpmath.diff(exact, point, tuple(int(i == j) for i in range(4)))) for j in range(4)
            ]
            np.testing.assert_allclose(gradient[:, b], slopes, rtol=1e-11)


def enumerated(start, A, densities):
    """The sum over all paths, in multiple precision; None is a missing datum."""
    K, total = len(start), mpmath.mpf(0)
    for path in itertools.product(range(K), repeat=len(densities)):
        p = mpmath.mpf(start[path[0]])
        for t, i in enumerate(path):
            p *= 1 if densities[t] is None else mpmath.exp(densities[t][i])
            p *= mpmath.mpf(A[i][path[t + 1]]) if t + 1 < len(path) else 1
        total += p
    return float(mpmath.log(total))


def probabilities(logits):
    with np.errstate(divide="ignore"):
        return np.exp(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


def test_markov_by_enumeration():
    K, theta = 3, markov_theta(3, 2)
    theta[3 + 1, 1] = -np.inf  # a forbidden move
    y = np.array([0.3, -1.0, np.nan, 2.0, 0.1, np.nan])
    b = series(3, 6, seed=4)
    b[:, 2], b[1, 5] = np.nan, np.nan
    value, gradient = markov.loglik.value_and_grad(theta, y)
    other = markov.loglik_given(theta[: K + K * K].copy(), b)
    for n in range(2):
        start, A = probabilities(theta[:K, n]), probabilities(theta[K : K + K * K, n].reshape(K, K))
        mu, sigma = theta[12:15, n], theta[15:, n]
        normal = [None if np.isnan(x) else list(scipy.stats.norm.logpdf(x, mu, sigma)) for x in y]
        np.testing.assert_allclose(value[n], enumerated(start, A, normal), rtol=1e-13)
        given = [None if np.isnan(x).any() else list(x) for x in b.T]
        np.testing.assert_allclose(other[n], enumerated(start, A, given), rtol=1e-13)
    assert np.isfinite(gradient).all() and gradient[4, 1] == 0


def test_markov_does_not_underflow():
    """A datum that is far from all states but the forbidden one, and densities of e^-2000."""
    logits = np.array([0.0, -np.inf, 0.0, -np.inf, 0.0, 0.0])
    theta = np.concatenate([logits, [0.0, 500.0], [1.0, 1.0]])
    value, gradient = markov.loglik.value_and_grad(theta, np.array([500.0, 0.0]))
    np.testing.assert_allclose(value, scipy.stats.norm.logpdf([500.0, 0.0], 0.0, 1.0).sum(), rtol=1e-13)
    np.testing.assert_allclose(gradient[6], 500.0)
    np.testing.assert_allclose(markov.loglik_given(np.zeros(6), np.full((2, 50), -2000.0)), -1e5)


# --- calls ---


def test_arguments_shared_each_and_of_steps():
    """What is shared, given to each sample, or repeated for each step has the same value; gradients add
    up."""
    steps, M = 15, model(2, 1)
    shared, y = kalman.Model(*[x[..., 0] for x in M]), series(15, holes=[4])
    alone, g = kalman.loglik.value_and_grad(shared, y)
    assert np.ndim(alone) == 0 and [x.shape for x in g] == [x.shape for x in shared]
    close(g.Q, g.Q.T)
    each = kalman.Model(*[np.repeat(x, 4, axis=-1) for x in M])
    for name in [*kalman.Model._fields, None]:
        some = each if name is None else shared._replace(**{name: getattr(each, name)})
        value, gradient = kalman.loglik.value_and_grad(some, y)
        close(value, np.full(4, alone), 1e-14)
        for a, b in zip(gradient, g, strict=True):
            close(a, np.repeat(b[..., None], 4, axis=-1), 1e-13)
    for name in "AcQr":
        long = np.repeat(getattr(M, name)[None], steps, axis=0)
        value, gradient = kalman.loglik.value_and_grad(shared._replace(**{name: long}), y)
        close(value, [alone], 1e-14)
        close(getattr(gradient, name).sum(axis=0)[..., 0], getattr(g, name), 1e-12)
        fixed = shared._replace(**{name: tg.Const(long)})
        close(kalman.loglik.value_and_grad(fixed, y)[1].m0[..., 0], g.m0)
        assert getattr(kalman.loglik.value_and_grad(fixed, y)[1], name) is None
    twice = kalman.loglik(shared, np.stack([y, y], axis=1))
    close(twice, [alone, alone], 1e-14)


@pytest.mark.parametrize("d", [None, 2])
def test_gradients_of_each_step(d):
    M = varying(model(2, 3, d), 8, "AcQr" if d is None else "ACQR", 3)
    kernel, y = (
        (kalman, series(8, holes=[2]))
        if d is None
        else (kalman_vector, series(2, 8, holes=[(0, 2), (slice(None), 4)]))
    )
    gradient = kernel.loglik.grad(M, y)
    rng, h = np.random.default_rng(0), 1e-6
    for name, x in M._asdict().items():
        v = rng.normal(size=x.shape)
        up, down = [kernel.loglik(M._replace(**{name: x + s * h * v}), y) for s in (1, -1)]
        close((getattr(gradient, name) * v).reshape(-1, 3).sum(axis=0), (up - down) / (2 * h), 1e-6)
    assert (
        not gradient.A[-1].any() and not gradient.Q[-1].any()
    )  # after the last observation nothing is predicted
    traced = tg.grad(lambda A: kernel.loglik(M._replace(A=A), y).sum())(M.A)
    close(traced, gradient.A, 1e-14)


@pytest.mark.long
def test_transforms_of_the_filter():
    """Derivatives by parameters behind the arguments, in every nesting, against the same from the generated
    kernel's functions."""
    y = series(20, holes=[3])

    def build(theta):
        a, q, r = np.tanh(theta[0]), np.exp(theta[1]), np.exp(theta[2])
        A = np.zeros((2, 2, theta.shape[1]))
        A[0, 0], A[0, 1], A[1, 0] = a, -0.4 * a, 1.0
        Q = np.zeros((2, 2, theta.shape[1]))
        Q[0, 0] = q
        return kalman.Model(
            A, np.array([1.0, 0.3]), Q + 1e-3 * np.eye(2)[:, :, None], r, np.zeros(2), np.eye(2)
        )

    def init(theta):
        return kalman_start(kalman.Model(None, None, None, None, np.zeros(2), np.eye(2)))

    def step(carry, theta, datum):
        a, q, r = np.tanh(theta[0]), np.exp(theta[1]), np.exp(theta[2])
        A = np.array([[a, -0.4 * a], [1.0, 0.0]])
        Q = np.array([[q + 1e-3, 0.0], [0.0, 1e-3]])
        return kalman_step(carry, kalman.Model(A, np.array([1.0, 0.3]), Q, r, None, None), datum)

    generated = tg.kernels.recursion(init, step, missing="step")
    theta = np.random.default_rng(0).normal(size=(3, 5))
    f = lambda theta: kalman.loglik(build(theta), y)
    value, gradient = generated.value_and_grad(theta, y)
    close(f(theta), value, 1e-13)
    close(tg.grad(lambda t: f(t).sum())(theta), gradient, 1e-11)
    close(tg.jvp(f, (theta,), (np.ones_like(theta),))[1], gradient.sum(axis=0), 1e-11)
    w = np.arange(1.0, 6.0)
    close(tg.vjp(f, theta)[1](w), gradient * w, 1e-11)
    v = np.random.default_rng(1).normal(size=theta.shape)
    product = generated.hvp(theta, v, y)
    total = lambda t: f(t).sum()
    close(tg.hvp(total, theta, v), product, 1e-10)
    close(tg.grad(lambda t: tg.jvp(total, (t,), (v,))[1])(theta), product, 1e-10)
    close(tg.grad(lambda t: (tg.grad(total)(t) * v).sum())(theta), product, 1e-10)
    close(tg.jvp(lambda t: tg.jvp(total, (t,), (v,))[1], (theta,), (v,))[1], (product * v).sum(), 1e-10)
    third = tg.grad(lambda t: (tg.hvp(total, t, v) * v).sum())(theta)
    expected = tg.grad(lambda t: (tg.hvp(lambda u: generated(u, y).sum(), t, v) * v).sum())(theta)
    close(third, expected, 1e-9)


def test_hvp_of_a_model():
    M, y = consts(model(2, 3), ["c"]), series(10)
    rng, h = np.random.default_rng(0), 1e-6
    v = kalman.Model(
        *[None if name in ("c", "m0") else rng.normal(size=getattr(M, name).shape) for name in M._fields]
    )
    moved = [
        kalman.Model(*[x if d is None else x + s * h * d for x, d in zip(M, v, strict=True)]) for s in (1, -1)
    ]
    up, down = [kalman.loglik.grad(m, y) for m in moved]
    product = kalman.loglik.hvp(M, v, y)
    assert product.c is None
    for name in ("A", "Q", "r", "m0", "P0"):
        close(getattr(product, name), (getattr(up, name) - getattr(down, name)) / (2 * h), 1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_empty(name):
    k, theta, data = CASES[name]()
    value, gradient = k.value_and_grad(theta[:, :0], data)
    assert value.shape == (0,) and gradient.shape == (len(theta), 0)
    value, gradient = k.value_and_grad(theta, data[:, :0])
    assert np.array_equal(value, np.zeros(theta.shape[1])) and not gradient.any()
    value, gradient = k.value_and_grad(theta[:, 0], data)
    expected, slope = k.value_and_grad(theta, data)
    assert np.ndim(value) == 0 and value == expected[0] and np.array_equal(gradient, slope[:, 0])


INVALID = {
    "kalman 1": [(2, -1.0), (3, -0.5), (5, -2.0), (0, np.nan)],  # Q, r, P0, A
    "vector 3, 2": [(15, -1.0), (21, -0.5), (22, 50.0), (27, -1.0)],  # Q, R, an indefinite R, P0
    "garch": [(1, 0.0), (1, -0.1), (2, -0.01), (3, -0.01), (2, 0.99), (0, np.nan)],
    "autoregression 4": [(5, 0.0), (5, -1.0), (4, 1.5), (1, 40.0), (0, np.inf)],
    "markov 3": [(15, 0.0), (16, -1.0), (0, np.nan), (12, np.inf)],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name, row, wrong", [(name, *rest) for name, all in INVALID.items() for rest in all])
def test_invalid_parameters(name, row, wrong):
    """-inf and 0 in that sample alone, by hand and from the formula; or nan."""
    k, theta, data = CASES[name]()
    value, gradient = k.value_and_grad(theta, data)
    bad = theta.copy()
    bad[row, 3] = wrong
    v, g = k.value_and_grad(bad, data)
    others = np.arange(theta.shape[1]) != 3
    assert v[3] == -np.inf and not g[:, 3].any()
    assert np.array_equal(v[others], value[others]) and np.array_equal(g[:, others], gradient[:, others])
    assert k(bad, data)[3] == -np.inf
    assert (
        not np.isfinite(k.definition.formula(bad, data)[3])
        and not k.definition.formula.grad(bad, data)[:, 3].any()
    )
    v, g = k.options(invalid="nan").value_and_grad(bad, data)
    assert np.isnan(v[3]) and np.isnan(g[:, 3]).all() and np.array_equal(v[others], value[others])


def test_invalid_models():
    M, y = model(2, 3), series(10)
    r = M.r.copy()
    r[1] = -5.0
    v, g = kalman.loglik.value_and_grad(M._replace(r=r), y)
    assert v[1] == -np.inf and np.isfinite(v[[0, 2]]).all() and not any(x[..., 1].any() for x in g)
    v, g = kalman.loglik.options(invalid="nan").value_and_grad(M._replace(r=r), y)
    assert np.isnan(v[1]) and np.isnan(g.A[..., 1]).all() and np.isfinite(g.A[..., 0]).all()
    with pytest.raises(ArgumentError, match="invalid="):
        kalman.loglik.options(invalid="raise")


def test_wrong_calls():
    M, y = model(2, 3), series(10)
    loglik = kalman.loglik
    infinite = y.copy()
    infinite[3] = np.inf
    with pytest.raises(ArgumentError, match="kalman: the data hold inf"):
        loglik(M, infinite)
    with pytest.raises(ArgumentError, match=r"the model is Model\(A, c, Q, r, m0, P0\), got ndarray"):
        loglik(M.A, y)
    with pytest.raises(
        ShapeError, match=r"kalman: c has shape \(3,\); wanted is \(2\), \(2, B\), or \(10, 2, B or 1\)"
    ):
        loglik(M._replace(c=np.ones(3)), y)
    with pytest.raises(ShapeError, match=r"have \[3, 4\] samples"):
        loglik(M._replace(r=np.ones(4)), y)
    with pytest.raises(ShapeError, match=r"y has shape \(10, 3, 1\); wanted is \(T\) or \(T, B\)"):
        loglik(M, np.ones((10, 3, 1)))
    with pytest.raises(ShapeError, match="k = 9; the kernel is made for 1 to 8"):
        loglik(model(9, 1), y)
    with pytest.raises(ArgumentError, match="A has dtype complex128"):
        loglik(M._replace(A=M.A + 0j), y)
    holes = np.ones((10, 1))
    holes[2] = np.nan
    with pytest.raises(ArgumentError, match="r holds nan; only y may"):
        loglik(M._replace(r=holes), y)
    with pytest.raises(ShapeError, match="v must have the shapes of the model"):
        loglik.hvp(M, M._replace(A=np.ones((10, 2, 2, 3))), y)
    with pytest.raises(ShapeError, match=r"y has shape \(3, 10\); wanted is \(2, T\) or \(2, T, B\)"):
        kalman_vector.loglik(model(2, 3, 2), series(3, 10))
    with pytest.raises(ShapeError, match=r"garch: theta has shape \(3, 5\)"):
        garch.loglik(np.ones((3, 5)), y)
    with pytest.raises(ShapeError, match="P 1 to 8"):
        autoregression.loglik(np.ones((11, 5)), y)
    with pytest.raises(ShapeError, match="K 1 to 8"):
        markov.loglik(np.ones((11, 5)), y)
    with pytest.raises(ArgumentError, match="with missing data use kernels.kalman"):
        autoregression.loglik(partial(2, 3), series(10, holes=[3]))
    for k, theta in [
        (garch.loglik, garch_theta(3)),
        (markov.loglik, markov_theta(2, 3)),
        (autoregression.loglik, partial(2, 3)),
    ]:
        with pytest.raises(ArgumentError, match="the data hold inf"):
            k(theta, infinite)
        with pytest.raises(ArgumentError, match="has dtype"):
            k(theta + 0j, y)


def test_derivatives_by_the_data():
    """Of the kernels that are generated from the same models, against differences of those by hand."""
    y = series(12)
    for k, theta in [
        (garch.loglik, garch_theta(3)),
        (markov.loglik, markov_theta(2, 3)),
        (autoregression.loglik, partial(2, 3)),
    ]:
        found = tg.grad(lambda y, k=k, theta=theta: k(theta, y).sum())(y)
        steps = 1e-5 * np.eye(12)
        slope = (
            np.array(
                [
                    8 * (k(theta, y + h) - k(theta, y - h)) - k(theta, y + 2 * h) + k(theta, y - 2 * h)
                    for h in steps
                ]
            ).sum(1)
            / 12e-5
        )
        np.testing.assert_allclose(found, slope, rtol=1e-7, atol=1e-7 * np.abs(slope).max())


@pytest.mark.parametrize("name", ["kalman 3", "vector 3, 2", "garch", "autoregression 4", "markov 3"])
def test_many_samples_on_both_libraries(device, name):
    """More samples than one block has threads; on CuPy each thread has a slot of its own in the scratch."""
    xp, _ = device
    k, theta, data = CASES[name]()
    theta = np.tile(theta, 5)
    value, gradient = k.value_and_grad(xp.asarray(theta), xp.asarray(data))
    assert isinstance(gradient, xp.ndarray)
    expected, slope = k.value_and_grad(theta, data)
    close(host(value), expected, 1e-10)
    close(host(gradient), slope, 1e-9)


def test_models_on_both_libraries(device):
    """Arguments that are small NumPy arrays go where the others are."""
    xp, _ = device
    M, y = model(2, 300), series(20, holes=[3])
    moved = M._replace(
        A=xp.asarray(M.A),
        c=np.ones(2),
        r=xp.asarray(M.r),
        Q=xp.asarray(M.Q),
        m0=xp.asarray(M.m0),
        P0=np.eye(2),
    )
    value, gradient = kalman.loglik.value_and_grad(moved, xp.asarray(y))
    expected, slope = kalman.loglik.value_and_grad(M._replace(c=np.ones(2), P0=np.eye(2)), y)
    close(host(value), expected, 1e-10)
    for a, b in zip(gradient, slope, strict=True):
        assert isinstance(a, xp.ndarray)
        close(host(a), b, 1e-9)
    traced = tg.grad(lambda r: kalman.loglik(moved._replace(r=r), xp.asarray(y)).sum())(moved.r)
    close(host(traced), slope.r, 1e-9)
