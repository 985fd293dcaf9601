"""Kernels beside what others have written: statsmodels' Kalman filter, scipy.stats' densities, dense Gaussian
processes."""

import warnings

import mpmath
import numpy as np
import pytest
import scipy.stats

import tapegrad as tg

pytestmark = pytest.mark.smoke

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that statsmodels imports
    from statsmodels.tsa.statespace.mlemodel import MLEModel

LOG2PI = float(np.log(2 * np.pi))

# --- statsmodels: three filters, value and score ---


class Model(MLEModel):
    """x[0] ~ N(0, 3 I), observed first; matrices by `build(params, np)` -> transition, design, state_cov,
    obs_cov."""

    def __init__(self, y, build):
        self.build, k = build, len(build(np.full(9, 0.3))[0])
        super().__init__(
            y,
            k_states=k,
            k_posdef=k,
            initialization="known",
            constant=np.zeros(k),
            stationary_cov=3 * np.eye(k),
        )
        self["selection"] = np.eye(k)
        self.ssm.loglikelihood_burn, self.ssm.tolerance = 0, 0.0

    def update(self, params, transformed=True, includes_fixed=False, complex_step=False):
        params = super().update(params, transformed, includes_fixed, complex_step)
        self["transition"], self["design"], self["state_cov"], self["obs_cov"] = self.build(params)


def trend(p):
    """Local linear trend."""
    return (
        np.array([[1.0, 1.0], [0.0, 1.0]]),
        np.array([[1.0, 0.0]]),
        np.diag(np.exp(p[:2])),
        np.exp(p[2:3]).reshape(1, 1),
    )


def arma(p):
    """ARMA(2, 1) with noise, in companion form."""
    A = np.array([[p[0], p[1], p[2]], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    G = np.array([1.0, 0.0, 1.0])
    return A, np.array([[1.0, 0.0, 0.0]]), np.exp(p[3]) * np.outer(G, G), np.exp(p[4:5]).reshape(1, 1)


def vector(p):
    """Two correlated states, two observations."""
    A = np.array([[p[0], p[1]], [p[2], p[3]]])
    L = np.array([[np.exp(p[4]), 0.0], [p[5], np.exp(p[6])]])
    return A, np.array([[1.0, 0.5], [-0.3, 1.0]]), L @ L.T, np.diag(np.exp(p[7:9]))


def filter_of(build, observations):
    k = len(build(np.full(9, 0.3))[0])

    def update(carry, theta, y):
        m, P = carry
        A, H, Q, R = build(theta)
        if observations == 1:
            v, F = y - (H @ m)[0], (H @ P @ H.T + R)[0, 0]
            K = P @ H[0] / F
            m, P = m + K * v, P - np.outer(K, H[0] @ P)
            term = -0.5 * (LOG2PI + np.log(F) + v * v / F)
        else:
            v, F = y - H @ m, H @ P @ H.T + R
            L = np.linalg.cholesky(F)
            z, K = np.linalg.solve(L, v), np.linalg.solve(F, H @ P).T
            m, P = m + K @ v, P - K @ H @ P
            term = -0.5 * (observations * LOG2PI + z @ z) - np.log(np.diag(L)).sum()
        return (A @ m, A @ P @ A.T + Q), term

    def predict(carry, theta):
        (m, P), (A, _, Q, _) = carry, build(theta)
        return A @ m, A @ P @ A.T + Q

    return tg.kernels.recursion(lambda theta: (np.zeros(k), 3 * np.eye(k)), update, missing=predict)


FILTERS = {"trend": (trend, 1, [-1.0, -2.0, 0.3]), "arma": (arma, 1, [0.5, -0.3, 0.4, 0.1, -1.0]),
           "vector": (vector, 2, [0.6, 0.2, -0.1, 0.7, -0.3, 0.2, -0.5, -1.0, -0.7])}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FILTERS)
def test_statsmodels(name):
    build, observations, centre = FILTERS[name]
    rng = np.random.default_rng(3)
    y = rng.normal(size=(60, observations)).cumsum(axis=0) * 0.4 + rng.normal(size=(60, observations))
    y[[7, 8, 30]] = np.nan
    theta = np.array(centre)[:, None] + 0.2 * rng.normal(size=(len(centre), 5))
    value, gradient = filter_of(build, observations).value_and_grad(
        theta, np.ascontiguousarray(y.T) if observations > 1 else y[:, 0]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Model(y, build)
        for b, point in enumerate(theta.T):
            assert value[b] == pytest.approx(model.loglike(point), rel=1e-11)
            score = model.score(point, method="approx", approx_complex_step=True)
            np.testing.assert_allclose(gradient[:, b], score, rtol=1e-8, atol=1e-8 * np.abs(score).max())


# --- scipy.stats: log densities as likelihoods ---

SQRT2PI = np.sqrt(2 * np.pi)
DENSITIES = {
    "norm": (lambda x, m, s: -0.5 * ((x - m) / s) ** 2 - np.log(s * SQRT2PI), (0.3, 1.2), lambda m,
    s: dict(loc=m, scale=s)),
    "laplace": (lambda x, m, s: -np.abs(x - m) / s - np.log(2 * s), (0.25, 0.8), lambda m, s: dict(loc=m,
    scale=s)),
    "logistic": (lambda x, m, s: -(x - m) / s - np.log(s) - 2 * np.log1p(np.exp(-(x - m) / s)), (0.1, 0.7),
                 lambda m, s: dict(loc=m, scale=s)),
    "cauchy": (lambda x, m, s: -np.log(np.pi * s) - np.log1p(((x - m) / s) ** 2), (0.2, 1.5), lambda m,
    s: dict(loc=m, scale=s)),
    "gumbel_r": (lambda x, m, s: -(x - m) / s - np.exp(-(x - m) / s) - np.log(s), (0.4, 1.1), lambda m,
    s: dict(loc=m, scale=s)),
    "hypsecant": (lambda x, m, s: -np.log(np.pi * s * np.cosh((x - m) / s)), (0.4, 1.1), lambda m,
    s: dict(loc=m, scale=s)),
    "lognorm": (lambda x, m, s: -0.5 * ((np.log(x) - m) / s) ** 2 - np.log(x * s * SQRT2PI), (0.1, 0.6),
                lambda m, s: dict(s=s, scale=np.exp(m))),
    "weibull_min": (lambda x, c, s: np.log(c / s) + (c - 1) * np.log(x / s) - (x / s) ** c, (1.7, 1.3),
    lambda c, s: dict(c=c, scale=s)),
    "invgauss": (lambda x, mu, s: 0.5 * np.log(s / (2 * np.pi * x**3)) - 0.5 * s * (x - mu * s) ** 2 / (mu * mu * s * s * x), (0.8, 1.4),
                 lambda mu, s: dict(mu=mu, scale=s)),
    "rayleigh": (lambda x, m, s: np.log((x - m) / (s * s)) - 0.5 * ((x - m) / s) ** 2, (-0.5, 1.4), lambda m,
    s: dict(loc=m, scale=s)),
    "pareto": (lambda x, b, s: np.log(b) + b * np.log(s) - (b + 1) * np.log(x), (2.5, 0.01), lambda b,
    s: dict(b=b, scale=s)),
}  # fmt: skip
POSITIVE = ("lognorm", "weibull_min", "invgauss", "rayleigh", "pareto")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", DENSITIES)
def test_scipy_stats(name):
    log_density, centre, names = DENSITIES[name]
    rng = np.random.default_rng(4)
    x = rng.exponential(size=40) + 0.05 if name in POSITIVE else rng.normal(size=40)
    theta = np.array(centre)[:, None] * (1 + 0.1 * rng.normal(size=(2, 6)))
    k = tg.kernels.likelihood(lambda theta, y: log_density(y, *theta))
    value, gradient = k.value_and_grad(theta, x)
    distribution = getattr(scipy.stats, name)

    def total(*p):
        return distribution.logpdf(x, **names(*[float(q) for q in p])).sum()

    for b, point in enumerate(theta.T):
        assert value[b] == pytest.approx(total(*point), rel=1e-12)
        for j in range(2):
            h = 1e-3 * abs(point[j])
            step = np.eye(2)[j] * h
            first, second, third = (
                total(*(point + n * step)) - total(*(point - n * step)) for n in (1, 2, 3)
            )
            slope = (45 * first - 9 * second + third) / (60 * h)  # error of order h^6
            if name != "laplace" or np.abs(x - point[0]).min() > 3 * h or j == 1:
                assert gradient[j, b] == pytest.approx(slope, rel=1e-7, abs=1e-7)


# --- a Gaussian process of celerite's kind, in O(N) (Foreman-Mackey et al., Astronomical Journal 154:220, 2017) ---


def start(theta):
    return np.zeros(2), np.zeros((2, 2)), np.zeros(2), 0.0, 0.0


def step(carry, theta, datum):
    """One point of the semiseparable Cholesky factorisation of k(t) = exp(-c t) (a cos(d t) + b sin(d t)) +
    variance."""
    f, S, W, D, z = carry
    a, b, c, d, jitter = np.exp(theta[0]), theta[1], np.exp(theta[2]), np.exp(theta[3]), np.exp(theta[4])
    t, dt, y, variance = datum
    cos, sin = np.cos(d * t), np.sin(d * t)
    U, V = np.array([a * cos + b * sin, a * sin - b * cos]), np.array([cos, sin])
    phi = np.exp(-c * dt)
    S = phi * phi * (S + D * np.outer(W, W))
    f = phi * (f + W * z)
    D = variance + jitter + a - U @ S @ U
    W = (V - S @ U) / D
    z = y - U @ f
    return (f, S, W, D, z), -0.5 * (np.log(D) + z * z / D + LOG2PI)


def light_curve():
    rng = np.random.default_rng(5)
    t = np.sort(rng.uniform(0, 10, 45))
    y = np.sin(2.1 * t) + 0.2 * rng.normal(size=45)
    return np.stack([t, np.diff(t, prepend=t[0]), y, rng.uniform(0.01, 0.05, 45)])


def dense(theta, data, exp, cos, sin):
    t, _, _, variance = data
    gap = np.abs(t[:, None] - t)
    a, b, c, d, jitter = exp(theta[0]), theta[1], exp(theta[2]), exp(theta[3]), exp(theta[4])
    return exp(-c * gap) * (a * cos(d * gap) + b * sin(d * gap)) + np.diag(variance + jitter)


def test_celerite_against_the_dense_process():
    data = light_curve()
    rng = np.random.default_rng(6)
    theta = np.log([[0.8], [1.0], [0.3], [2.0], [0.02]]) + 0.1 * rng.normal(size=(5, 4))
    theta[1] = 0.02 * rng.normal(size=4)
    k = tg.kernels.recursion(start, step)
    value, gradient = k.value_and_grad(theta, data)
    v = rng.normal(size=theta.shape)
    curvature = k.hvp(theta, v, data)
    y = data[2]

    def score(p):
        """The gradient of the dense log density by complex steps of the covariance: tr((alpha alpha' - K^-1)
        dK) / 2."""
        K = dense(p, data, np.exp, np.cos, np.sin)
        inverse = np.linalg.inv(K)
        alpha = inverse @ y
        steps = (dense(p + 1e-30j * e, data, np.exp, np.cos, np.sin).imag / 1e-30 for e in np.eye(5))
        return np.array([0.5 * np.sum((np.outer(alpha, alpha) - inverse) * dK) for dK in steps])

    for b, point in enumerate(theta.T):
        K = dense(point, data, np.exp, np.cos, np.sin)
        assert value[b] == pytest.approx(
            scipy.stats.multivariate_normal.logpdf(y, np.zeros(45), K), rel=1e-11
        )
        np.testing.assert_allclose(
            gradient[:, b], score(point), rtol=1e-9, atol=1e-9 * np.abs(score(point)).max()
        )
        h = 1e-4
        first, second = (score(point + n * h * v[:, b]) - score(point - n * h * v[:, b]) for n in (1, 2))
        slope = (8 * first - second) / (12 * h)
        np.testing.assert_allclose(curvature[:, b], slope, rtol=1e-7, atol=1e-7 * np.abs(slope).max())


def test_celerite_in_multiple_precision():
    """Six points, fifty digits: the dense log density of one parameter vector and its derivative by log a."""
    data = light_curve()[:, :6].copy()
    theta = np.array([0.1, 0.03, -0.8, 0.6, -3.0])
    k = tg.kernels.recursion(start, step)
    value, gradient = k.value_and_grad(theta, data)
    with mpmath.workdps(50):

        def log_density(first):
            a, b, c, d, jitter = (
                mpmath.exp(first),
                theta[1],
                mpmath.exp(theta[2]),
                mpmath.exp(theta[3]),
                mpmath.exp(theta[4]),
            )
            t = [mpmath.mpf(float(x)) for x in data[0]]
            K = mpmath.matrix(6, 6)
            for i in range(6):
                for j in range(6):
                    gap = abs(t[i] - t[j])
                    K[i, j] = mpmath.exp(-c * gap) * (a * mpmath.cos(d * gap) + b * mpmath.sin(d * gap))
                K[i, i] += jitter + mpmath.mpf(float(data[3, i]))
            y = mpmath.matrix([float(x) for x in data[2]])
            return (
                -(y.T * mpmath.lu_solve(K, y))[0] / 2
                - mpmath.log(mpmath.det(K)) / 2
                - 3 * mpmath.log(2 * mpmath.pi)
            )

        assert value == pytest.approx(float(log_density(mpmath.mpf(theta[0]))), rel=1e-13)
        assert gradient[0] == pytest.approx(float(mpmath.diff(log_density, mpmath.mpf(theta[0]))), rel=1e-11)


def orbit(theta, t):
    """The radial velocity of a star with a companion: amplitude, period, eccentricity, argument and time of
    periastron, drift."""
    K, period, e, w, t0, v0 = theta
    M = (2 * np.pi * (t - t0) / period) % (2 * np.pi)
    miss = lambda E: E - e * np.sin(E) - M
    step = lambda E: E - miss(E) / (1 - e * np.cos(E))
    E = step(tg.kernels.while_loop(lambda E: np.abs(miss(E)) > 1e-9, step, M, max_steps=60))
    f = np.arctan2(np.sqrt(1 - e * e) * np.sin(E), np.cos(E) - e)
    return v0 + K * (np.cos(f + w) + e * np.cos(w))


@pytest.mark.long
def test_radial_velocities():
    """An orbit fitted to sixty velocities: the same program in plain NumPy and SciPy, Newton's method to the
    maximum, the spread of fits to new noise against the errors that the Hessian gives."""
    rng = np.random.default_rng(0)
    true, t = np.array([3.0, 7.3, 0.35, 0.8, 1.2, 0.5]), np.sort(rng.uniform(0, 30, 60))
    curve = tg.kernels.map(lambda t: orbit(true, t))(t)
    np.testing.assert_allclose(curve, [orbit(true, u) for u in t], rtol=1e-12)
    k = tg.kernels.likelihood(lambda theta, d: scipy.stats.norm.logpdf(d[1], orbit(theta, d[0]), 0.3))
    data = np.stack([t, curve + rng.normal(0, 0.3, 60)])
    theta = true[:, None] + 0.01 * rng.normal(size=(6, 40))
    value, gradient = k.value_and_grad(theta, data)
    plain = [scipy.stats.norm.logpdf(data[1], [orbit(p, u) for u in t], 0.3).sum() for p in theta[:, :3].T]
    np.testing.assert_allclose(value[:3], plain, rtol=1e-12)
    for row, e in enumerate(1e-4 * np.eye(6)[:, :, None]):
        slope = (
            8 * (k(theta + e, data) - k(theta - e, data)) - k(theta + 2 * e, data) + k(theta - 2 * e, data)
        ) / 12e-4
        np.testing.assert_allclose(gradient[row], slope, rtol=1e-7, atol=1e-7 * np.abs(gradient[row]).max())

    repeats = np.stack(
        [np.broadcast_to(t[:, None], (60, 400)), curve[:, None] + rng.normal(0, 0.3, (60, 400))]
    )
    fits = np.repeat(true[:, None], 400, axis=1)
    for _ in range(8):
        H = k.hessian(fits, repeats)
        fits = fits - np.linalg.solve(H, k.grad(fits, repeats).T[:, :, None])[:, :, 0].T
    assert np.abs(k.grad(fits, repeats)).max() < 1e-8
    expected = np.sqrt(np.diag(np.linalg.inv(-k.hessian(true, np.stack([t, curve])))))
    np.testing.assert_allclose(
        fits.std(axis=1), expected, rtol=0.15
    )  # 400 draws: 3.5 % each, and the curvature of the model
