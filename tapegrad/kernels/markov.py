"""Hidden Markov models of K states, by the forward algorithm.

loglik(theta, y)             normal observations: theta (K^2 + 3 K, B), y (N,) or (1, N, B): (B,)
loglik_given(theta, b)       any observations: theta (K^2 + K, B), b (K, N) or (K, N, B) the log density of each datum in each state

theta: K logits of the first state, K x K logits of the next state, the row being the state before, and for normal observations the K
means and K standard deviations.  Logits are taken to probabilities by softmax, so the logarithms of probabilities serve, and -inf
forbids a move.  `value_and_grad` gives (B,) and a gradient of theta's shape.  Where y, or any element of b at a step, is nan the datum
is missing.  Standard deviations must be positive.  K is 1 to 8.

Source: Rabiner, A tutorial on hidden Markov models, Proc. IEEE 77 (1989), sections III.A and V.A.

>>> import numpy as np, tapegrad as tg
>>> theta = np.concatenate([np.log([0.5, 0.5, 0.9, 0.1, 0.2, 0.8]), [0.0, 3.0], [1.0, 1.0]])
>>> value, gradient = tg.kernels.markov.loglik.value_and_grad(theta, np.array([0.1, 2.9, 3.1]))
>>> gradient[6:].round(4)                                       # by the means and the standard deviations
array([ 0.1454, -0.3046, -0.7406, -1.1797])
"""

import numpy as np

from ._api import recursion
from ._lanes import LANES, LOG_2_PI, add_product, cube, product
from ._library import HandwrittenRecursion, twin

MOST = 8
SMALLEST = -1e30


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def states(theta, extra):
    """K, from K (K + extra) parameters."""
    return next(K for K in range(1, MOST + 1) if K * (K + extra) == len(theta))


def normal(theta, y, K):
    """The log densities but for log(2 pi) / 2, whether there is a datum, and whether the parameters are valid."""
    mu, sigma = theta[K * K + K : K * K + 2 * K], theta[K * K + 2 * K :]
    z = (np.where(np.isnan(y[0]), 0.0, y[0]) - mu) / sigma
    finite = np.max(np.maximum(np.abs(mu), sigma)) < np.inf
    return -0.5 * z * z - np.log(sigma), ~np.isnan(y[0]), np.where(finite, np.min(sigma), 0.0) > 0


def given(theta, b, K):
    missing = np.isnan(np.sum(b))
    return np.where(missing, 0.0, b), ~missing, True


def formula(densities, extra, offset):
    """init and step for `recursion`: the distribution of the state before each datum."""

    def start(theta):
        return softmax(theta[: states(theta, extra)])

    def step(p, theta, y):
        K = len(p)
        A = np.stack([softmax(row) for row in theta[K : K + K * K].reshape(K, K)])
        b, here, valid = densities(theta, y, K)
        top = np.max(np.where(p > 0, b, SMALLEST))
        w = np.where(p > 0, p * np.exp(b - top), 0.0)
        total = np.sum(w)
        f = np.where(here, w / total, p)
        return f @ A, np.where(valid, np.where(here, top + np.log(total) - offset, 0.0), np.nan)

    return start, step


# --- the twin of markov.cu ---


@twin
def softmax_rows(x, i, K, n):
    """exp(x) / sum exp(x) of the rows i .. i + K, in place."""
    for l in range(n):
        top, total = x[i, l], x.dtype.type(0)
        for j in range(i, i + K):
            top = x[j, l] if x[j, l] > top else top
        for j in range(i, i + K):
            x[j, l] = np.exp(x[j, l] - top)
            total = total + x[j, l]
        for j in range(i, i + K):
            x[j, l] = x[j, l] / total


@twin
def model(theta, s, n, K, normal, x, scale, valid):
    """Rows of x: the start, A, the means and the standard deviations."""
    valid[:] = True
    for i in range(len(theta)):
        for l in range(n):
            x[i, l] = theta[i, s + l]
    for i in range(0, K + K * K, K):
        softmax_rows(x, i, K, n)
    for i in range(K if normal else 0):
        mu, sigma = x[K * K + K + i], x[K * K + 2 * K + i]
        for l in range(n):
            scale[i, l] = np.log(sigma[l])
            valid[l] = valid[l] and sigma[l] > 0 and sigma[l] - sigma[l] == 0 and mu[l] - mu[l] == 0
    for i in range(K + K * K):
        for l in range(n):
            valid[l] = valid[l] and x[i, l] == x[i, l]


@twin
def densities(x, scale, data, t, s, n, K, normal, b, z, here):
    half = x.dtype.type(0.5)
    here[:] = True
    for i in range(K):
        for l in range(n):
            y = data[0 if normal else i, t, s + l if data.shape[2] > 1 else 0]
            here[l] = here[l] and y == y
            b[i, l] = y
        if normal:
            mu, sigma = x[K * K + K + i], x[K * K + 2 * K + i]
            for l in range(n):
                z[i, l] = (b[i, l] - mu[l]) / sigma[l]
                b[i, l] = -(half * (z[i, l] * z[i, l])) - scale[i, l]


@twin
def filtered(p, b, w, f, top, total, here, K, n):
    zero, smallest = p.dtype.type(0), p.dtype.type(SMALLEST)
    for l in range(n):
        top[l] = smallest
        total[l] = zero
    for i in range(K):
        for l in range(n):
            top[l] = b[i, l] if p[i, l] > 0 and b[i, l] > top[l] else top[l]
    for i in range(K):
        for l in range(n):
            w[i, l] = np.exp(b[i, l] - top[l]) if p[i, l] > 0 else zero
            total[l] = total[l] + p[i, l] * w[i, l]
    for i in range(K):
        for l in range(n):
            f[i, l] = p[i, l] * w[i, l] / total[l] if here[l] else p[i, l]


@twin
def forward(data, value, tape, s, n, K, normal, x, scale, work, here, valid):
    """The samples s .. s + n; stores the distributions if the tape is not empty."""
    p, b, w, f, z, sums = work
    top, total = sums[0], sums[1]
    log_likelihood, seen = np.zeros(LANES), np.zeros(LANES, np.int64)
    p[:, :n] = x[:K, :n]
    for t in range(data.shape[1]):
        if tape.size:
            tape[t, :, :n] = p[:, :n]
        densities(x, scale, data, t, s, n, K, normal, b, z, here)
        filtered(p, b, w, f, top, total, here, K, n)
        for l in range(n):
            log_likelihood[l] += np.float64(top[l] + np.log(total[l])) if here[l] else 0.0
            seen[l] += here[l]
        for j in range(K):
            product(p, j, f, 0, x, K + j, n)
            for i in range(1, K):
                add_product(p, j, f, i, x, K + i * K + j, n)
    for l in range(n):
        v = value.dtype.type(log_likelihood[l] - 0.5 * (seen[l] * LOG_2_PI) if normal else log_likelihood[l])
        value[s + l] = v if valid[l] and v == v else -np.inf
        valid[l] = valid[l] and v - v == 0


@twin
def step_adjoint(p_bar, bars, x, work, here, f_bar, mean, K, normal, n):
    p, b, w, f, z, sums = work
    one, zero = p.dtype.type(1), p.dtype.type(0)
    for l in range(n):
        mean[l] = 0
    for i in range(K):
        product(f_bar, i, x, K + i * K, p_bar, 0, n)
        for j in range(1, K):
            add_product(f_bar, i, x, K + i * K + j, p_bar, j, n)
        for j in range(K):
            add_product(bars, K + i * K + j, f, i, p_bar, j, n)
        for l in range(n):
            mean[l] = mean[l] + f[i, l] * f_bar[i, l]
    for i in range(K):
        for l in range(n):
            e = f_bar[i, l] - mean[l] + one
            p_bar[i, l] = e * w[i, l] / sums[1, l] if here[l] else f_bar[i, l]
            f_bar[i, l] = e * f[i, l] if here[l] else zero
        if normal:
            mu_bar, sigma_bar, sigma = bars[K * K + K + i], bars[K * K + 2 * K + i], x[K * K + 2 * K + i]
            for l in range(n):
                mu_bar[l] = mu_bar[l] + (f_bar[i, l] * z[i, l] / sigma[l] if here[l] else zero)
                sigma_bar[l] = sigma_bar[l] + (f_bar[i, l] * (z[i, l] * z[i, l] - one) / sigma[l] if here[l] else zero)


@twin
def backward(data, gradient, tape, s, n, K, normal, x, scale, bars, work, here, valid):
    p, b, w, f, z, sums = work
    p_bar, f_bar, mean = np.zeros_like(p), np.empty_like(p), np.empty_like(sums[0])
    bars[:] = 0
    for t in range(data.shape[1] - 1, -1, -1):
        p[:, :n] = tape[t, :, :n]
        densities(x, scale, data, t, s, n, K, normal, b, z, here)
        filtered(p, b, w, f, sums[0], sums[1], here, K, n)
        step_adjoint(p_bar, bars, x, work, here, f_bar, mean, K, normal, n)
    bars[:K] = p_bar
    for i in range(0, K + K * K, K):  # from probabilities to logits
        mean[:] = 0
        for j in range(i, i + K):
            for l in range(n):
                mean[l] = mean[l] + x[j, l] * bars[j, l]
        for j in range(i, i + K):
            for l in range(n):
                bars[j, l] = x[j, l] * (bars[j, l] - mean[l])
    for i in range(len(gradient)):
        for l in range(n):
            gradient[i, s + l] = bars[i, l] if valid[l] else 0


@twin
def arrays(K, dtype):
    """p, b, w, f, z and (top, sum)."""
    p = np.empty((K, LANES), dtype)
    return p, np.empty_like(p), np.empty_like(p), np.empty_like(p), np.empty_like(p), np.empty((2, LANES), dtype)


def markov(theta, data, value, gradient, tape, B, K, normal):
    """As in markov.cu; without a gradient if that is empty."""
    data, x, bars = cube(data), np.empty((len(theta), LANES), theta.dtype), np.empty((len(theta), LANES), theta.dtype)
    scale, work = np.empty((K, LANES), theta.dtype), arrays(K, theta.dtype)
    here, valid = np.empty(LANES, np.bool_), np.empty(LANES, np.bool_)
    for s in range(0, B, LANES):
        n = min(LANES, B - s)
        model(theta, s, n, K, normal, x, scale, valid)
        forward(data, value, tape, s, n, K, normal, x, scale, work, here, valid)
        if gradient.size:
            backward(data, gradient, tape, s, n, K, normal, x, scale, bars, work, here, valid)


def twins(normal):
    def value(theta, data, value, B, N):
        none = np.empty((0, 0), theta.dtype)
        markov(theta, data, value, none, np.empty((0, 0, 0), theta.dtype), B, states(theta, 3 if normal else 1), normal)

    def both(theta, data, value, gradient, tape, B, N):
        markov(theta, data, value, gradient, tape, B, states(theta, 3 if normal else 1), normal)

    return value, both


def kernel(normal_, densities_, wants):
    """The two functions of markov.cu with GAUSSIAN 1 or 0."""
    extra = 3 if normal_ else 1
    sizes = {K * (K + extra): K for K in range(1, MOST + 1)}

    def fit(p, d):
        if p not in sizes or d != (1 if normal_ else sizes[p]):
            return None
        return {"K": sizes[p], "GAUSSIAN": int(normal_)}

    init, step = formula(densities_, extra, 0.5 * LOG_2_PI if normal_ else 0.0)
    return HandwrittenRecursion(
        "markov", "markov", recursion(init, step, missing="step"), fit, wants, *twins(normal_),
        lambda p, d: (f"work real tape[N, {sizes[p]}, slots]",), LANES,
    )  # fmt: skip


loglik = kernel(True, normal, "theta (K^2 + 3 K, B) and y (N,) or (1, N, B), K 1 to 8")
loglik_given = kernel(False, given, "theta (K^2 + K, B) and b (K, N) or (K, N, B), K 1 to 8")
