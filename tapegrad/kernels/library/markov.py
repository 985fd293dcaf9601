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

from ..generated.kernel import recursion
from .handwritten import Definition, HandwrittenRecursion, inlined, twin
from .on_cpu import Sized, Sweeps
from .sample_loops import LOG_2_PI
from .sweeps import Frame, Steps, datum, dot, dot_column, nothing, nothing_stored
from .vectors import exp, fma, log, splat, where, whole

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


# --- the twin of markov.cu; sizes: K, and whether the observations are normal ---


@inlined
def parts(room, K):
    """The start and A, mu, 1 / sigma, log sigma; p; w, f, z; the sum and whether there is a datum; cotangents of p, f, A, mu, sigma."""
    x = room
    mu = x + (K + K * K)
    p = mu + 3 * K
    w = p + K
    left = w + 3 * K
    p_bar = left + 2
    bars = p_bar + 2 * K
    return x, mu, mu + K, mu + 2 * K, p, w, w + K, w + 2 * K, left, p_bar, p_bar + K, bars, bars + K * K, bars + (K * K + K)


@twin
def softmax_row(x, K):
    """exp(x) / sum exp(x), in place."""
    top, total = x[0], splat(0, x[0])
    for i in range(K):
        top = where(x[i] > top, x[i], top)
    for i in range(K):
        x[i] = exp(x[i] - top)
        total = total + x[i]
    for i in range(K):
        x[i] = x[i] / total


@twin
def begin(room, outside, layout, sizes):
    K, normal = sizes
    theta = outside[0]
    x, mu, inverse, scale, p, _, _, _, _, p_bar, _, A_bar, mu_bar, sigma_bar = parts(room, K)
    valid = whole(theta[0], True)
    for i in range(K + K * K):
        x[i] = theta[i]
    for i in range(K + 1):
        softmax_row(x + i * K, K)
    for i in range(K):
        p[i] = x[i]
        p_bar[i] = 0
        mu_bar[i] = 0
        sigma_bar[i] = 0
        if normal:
            mu[i] = theta[K * K + K + i]
            sigma = theta[K * K + 2 * K + i]
            inverse[i] = 1 / sigma
            scale[i] = log(sigma)
            valid = valid & (sigma > 0) & (sigma - sigma == 0) & (mu[i] - mu[i] == 0)
    for i in range(K * K):
        A_bar[i] = 0
    for i in range(K + K * K):
        valid = valid & (x[i] == x[i])
    return valid


@twin
def filtered(room, outside, t, sizes):
    """Leaves w, f, z, the sum of p w, and 1 where there is a datum; the largest log density."""
    K, normal = sizes
    _, mu, inverse, scale, p, w, f, z, left, _, _, _, _, _ = parts(room, K)
    here = whole(p[0], True)
    for i in range(K):
        y = datum(outside, 0 if normal else i, t)
        here = here & (y == y)
        w[i] = y
        if normal:
            z[i] = where(here, (y - mu[i]) * inverse[i], 0)
            w[i] = fma(-0.5 * z[i], z[i], -scale[i])
    top = splat(SMALLEST, p[0])
    for i in range(K):
        top = where((p[i] > 0) & (w[i] > top), w[i], top)
    total = splat(0, p[0])
    for i in range(K):
        w[i] = where(p[i] > 0, exp(w[i] - top), 0)
        total = fma(p[i], w[i], total)
    for i in range(K):
        f[i] = where(here, p[i] * w[i] / total, p[i])
    left[0], left[1] = total, where(here, splat(1, total), 0)
    return top


@twin
def observe(room, outside, t, layout, sizes):
    top, left = filtered(room, outside, t, sizes), parts(room, sizes[0])[8]
    here = left[1] > 0
    count = left[1] if sizes[1] else 0 * left[1]
    return where(here, -2 * (top + log(left[0])), 0), count, whole(top, True)


@twin
def recall(room, outside, t, layout, sizes):
    filtered(room, outside, t, sizes)


@twin
def move(room, outside, t, layout, sizes):
    K = sizes[0]
    x, _, _, _, p, _, f, _, _, _, _, _, _, _ = parts(room, K)
    for j in range(K):
        p[j] = dot_column(f, x + (K + j), K, K)


@twin
def save(room, stored, sizes):
    p = parts(room, sizes[0])[4]
    for i in range(sizes[0]):
        stored[i] = p[i]


@twin
def restore(room, stored, sizes):
    p = parts(room, sizes[0])[4]
    for i in range(sizes[0]):
        p[i] = stored[i]


@twin
def observe_adjoint(room, outside, t, layout, sizes):
    K, normal = sizes
    x, _, inverse, _, _, w, f, z, left, p_bar, f_bar, A_bar, mu_bar, sigma_bar = parts(room, K)
    here, mean = left[1] > 0, splat(0, left[0])
    for i in range(K):
        f_bar[i] = dot(x + (K + i * K), p_bar, K)
        for j in range(K):
            A_bar[i * K + j] = fma(f[i], p_bar[j], A_bar[i * K + j])
        mean = fma(f[i], f_bar[i], mean)
    for i in range(K):
        e = f_bar[i] - mean + 1  # of the logarithm of w, over f
        p_bar[i] = where(here, e * w[i] / left[0], f_bar[i])
        if normal:
            b_bar = where(here, e * f[i], 0) * inverse[i]
            mu_bar[i] = fma(b_bar, z[i], mu_bar[i])
            sigma_bar[i] = fma(b_bar, fma(z[i], z[i], -1), sigma_bar[i])


@twin
def softmax_adjoint(gradient, at, p, p_bar, valid, K):
    """The gradient by logits from that by the probabilities."""
    mean = splat(0, p[0])
    for i in range(K):
        mean = fma(p[i], p_bar[i], mean)
    for i in range(K):
        gradient[at + i] = where(valid, p[i] * (p_bar[i] - mean), 0)


@twin
def finish(room, outside, layout, valid, sizes):
    K, normal = sizes
    x, _, _, _, _, _, _, _, _, p_bar, _, A_bar, mu_bar, sigma_bar = parts(room, K)
    gradient = outside[6]
    softmax_adjoint(gradient, 0, x, p_bar, valid, K)
    for i in range(K):
        softmax_adjoint(gradient, K + i * K, x + (K + i * K), A_bar + i * K, valid, K)
        if normal:
            gradient[K * K + K + i] = where(valid, mu_bar[i], 0)
            gradient[K * K + 2 * K + i] = where(valid, sigma_bar[i], 0)


STEPS = Steps(begin, observe, move, save, restore, recall, nothing, observe_adjoint, nothing_stored, nothing, finish)


def sweeps(rows, normal):
    """On NumPy arrays, for so many rows of theta."""
    K = states(range(rows), 3 if normal else 1)
    frame = Frame(sizes=(K, int(normal)), modes=[(0, rows)], lines=1 if normal else K, stored=K)
    return Sweeps(STEPS, frame, room=2 * K * K + 12 * K + 2, cost=3 * K * K + 20 * K)


def kernel(normal_, densities_, wants):
    """The two functions of markov.cu with GAUSSIAN 1 or 0."""
    extra = 3 if normal_ else 1
    sizes = {K * (K + extra): K for K in range(1, MOST + 1)}

    def fit(p, d):
        if p not in sizes or d != (1 if normal_ else sizes[p]):
            return None
        return {"K": sizes[p], "GAUSSIAN": int(normal_)}

    run = Sized(lambda rows: sweeps(rows, normal_))
    init, step = formula(densities_, extra, 0.5 * LOG_2_PI if normal_ else 0.0)
    return HandwrittenRecursion(
        Definition(
            name="markov",
            stem="markov",
            formula=recursion(init, step, missing="step"),
            fit=fit,
            wants=wants,
            value=run.value,
            both=run.both,
            work=lambda p, d: (f"work real tape[N, {sizes[p]}, slots]",),
            workers=0,
        )
    )


loglik = kernel(True, normal, "theta (K^2 + 3 K, B) and y (N,) or (1, N, B), K 1 to 8")
loglik_given = kernel(False, given, "theta (K^2 + K, B) and b (K, N) or (K, N, B), K 1 to 8")
