"""The models of the library with closed forms and arguments for their tests."""

import mpmath
import numpy as np
import scipy.stats
from raw_device import noted_launches  # noqa: F401 (a fixture)

from tapegrad.kernels import gaussian, mixture, regression, student_t

CHUNK = 128  # so many terms are added up in float32 by the CUDA C

RNG = np.random.default_rng(0)


DESIGN = np.column_stack([np.ones(40), RNG.normal(size=(40, 2))])


COUNTS = RNG.poisson(np.exp(DESIGN @ [0.6, 0.4, -0.5]))


YES = RNG.random(40) < 0.4


SAMPLE = np.concatenate([RNG.normal(-1, 0.5, 25), RNG.normal(2, 1.0, 15)])


def mp_gaussian(th, x):
    d = len(x)
    return sum(
        -(((x[k] - th[k]) / th[d + k]) ** 2) / 2 - mpmath.log(th[d + k]) - mpmath.log(2 * mpmath.pi) / 2
        for k in range(d)
    )


def mp_student(th, x):
    m, s, v = th
    constant = (
        mpmath.loggamma((v + 1) / 2) - mpmath.loggamma(v / 2) - mpmath.log(mpmath.pi * v) / 2 - mpmath.log(s)
    )
    return constant - (v + 1) / 2 * mpmath.log(1 + ((x[0] - m) / s) ** 2 / v)


def mp_poisson(th, x):
    eta = mpmath.fdot(th, x[:3])
    return x[3] * eta - mpmath.exp(eta) - mpmath.loggamma(x[3] + 1)


def mp_logistic(th, x):
    eta = mpmath.fdot(th, x[:3])
    return x[3] * eta - mpmath.log(1 + mpmath.exp(eta))


def mp_mixture(th, x):
    k = len(th) // 3
    a, m, r = th[:k], th[k : 2 * k], th[2 * k :]
    density = sum(mpmath.exp(a[j] - r[j] - ((x[0] - m[j]) / mpmath.exp(r[j])) ** 2 / 2) for j in range(k))
    return mpmath.log(density / sum(map(mpmath.exp, a)) / mpmath.sqrt(2 * mpmath.pi))


def scipy_mixture(th, x):
    a, m, r = th.reshape(3, -1)
    w = np.exp(a) / np.exp(a).sum()
    return np.log(np.sum(w[:, None] * scipy.stats.norm(m[:, None], np.exp(r)[:, None]).pdf(x), axis=0)).sum()


BERNOULLI = lambda th, x: scipy.stats.bernoulli(1 / (1 + np.exp(-th @ x[:3]))).logpmf(x[3]).sum()


MODELS = {
    "gaussian": (gaussian.loglik, [0.3, -0.4, 0.8, 1.3], RNG.normal(size=(2, 40)),
                 lambda th, x: scipy.stats.norm(th[:2, None], th[2:, None]).logpdf(x).sum(), mp_gaussian),
    "student_t": (student_t.loglik, [0.2, 0.9, 3.7], SAMPLE[None],
                  lambda th, x: scipy.stats.t(th[2], th[0], th[1]).logpdf(x).sum(), mp_student),
    "poisson": (regression.poisson, [0.5, 0.3, -0.4], regression.poisson_data(DESIGN, COUNTS),
                lambda th, x: scipy.stats.poisson(np.exp(th @ x[:3])).logpmf(x[3]).sum(), mp_poisson),
    "logistic": (regression.logistic, [-0.5, 0.7, -0.1], regression.logistic_data(DESIGN, YES), BERNOULLI,
    mp_logistic),
    "mixture": (mixture.loglik, [0.3, -0.2, 0.1, -1.1, 0.2, 1.8, -0.6, 0.4, 0.1], SAMPLE[None], scipy_mixture,
    mp_mixture),
}  # fmt: skip


BY_HAND = ("gaussian", "student_t")  # whose first derivative on a device is CUDA C


def batch_of(name, n, seed=1):
    """Parameters of n samples near those of the table."""
    centre = np.array(MODELS[name][1])[:, None]
    return centre + 0.1 * np.random.default_rng(seed).uniform(-1, 1, size=(len(centre), n))


INVALID = {
    "gaussian": (2, -1.0),
    "student_t": (1, 0.0),
    "poisson": (0, np.nan),
    "logistic": (0, np.inf),
    "mixture": (4, np.nan),
}


def arrays(name, real, each, missing, batch=300, n=CHUNK + 45):
    _, _, x, _, _ = MODELS[name]
    x, theta = np.resize(x.T, (n, len(x))).T.copy(), batch_of(name, batch)
    theta[INVALID[name][0], 7] = INVALID[name][1]
    if each:
        x = x[:, :, None] + np.zeros(batch)
        x[0] += 0.01 * np.arange(batch)
    if missing:
        x[0, 3], x[-1, CHUNK] = np.nan, np.nan
        if each:
            x[0, 5, 100:200] = np.nan
    return np.ascontiguousarray(theta, real), np.ascontiguousarray(x, real)


def by_source(k, theta, data, value=False):
    """Value and gradient, or the value alone, by the CUDA C, run on this processor."""
    kernels = k.kernels(theta.shape[0], data.shape[0], data.ndim == 3, bool(np.isnan(data).any()))
    return kernels[0](theta, data) if value else kernels[1](theta, data)


def agree(found, expected):
    """Values and gradients by two compilers: within 1e-13 of the value, and of the largest entry of the
    sample's gradient."""
    wide = expected[0].dtype == np.float64
    for a, b, tolerance in zip(found, expected, (1e-13, 1e-13) if wide else (3e-6, 1e-4), strict=True):
        assert a.dtype == b.dtype and np.array_equal(np.isfinite(a), np.isfinite(b))
        with np.errstate(invalid="ignore"):
            off = np.where(a == b, 0, np.abs(a - b))
        size = np.abs(b) if b.ndim == 1 else np.abs(b).max(axis=0, initial=0.0)
        assert (off <= tolerance * size).all(), (off / size).max()
