"""Hidden Markov models of K states, by the forward algorithm.

loglik(theta, y)             normal observations: theta (K^2 + 3 K, B), y (N,) or (1, N, B): (B,)
loglik_given(theta, b)       any observations: theta (K^2 + K, B), b (K, N) or (K, N, B) the log density of
each datum in each state

theta: K logits of the first state, K x K logits of the next state, the row being the state before, and for
normal observations the K means and K standard deviations.  Logits are taken to probabilities by softmax, so
the logarithms of probabilities serve, and -inf forbids a move.  `value_and_grad` gives (B,) and a gradient of
theta's shape.  Where y, or any element of b at a step, is nan the datum is missing.  Standard deviations must
be positive.  K is 1 to 8.

Source: Rabiner, A tutorial on hidden Markov models, Proc. IEEE 77 (1989), sections III.A and V.A.

>>> import numpy as np, tapegrad as tg
>>> theta = np.concatenate([np.log([0.5, 0.5, 0.9, 0.1, 0.2, 0.8]), [0.0, 3.0], [1.0, 1.0]])
>>> value, gradient = tg.kernels.markov.loglik.value_and_grad(theta, np.array([0.1, 2.9, 3.1]))
>>> gradient[6:].round(4)                                       # by the means and the standard deviations
array([ 0.1454, -0.3046, -0.7406, -1.1797])
"""

import numpy as np

from ..generated.kernel import recursion
from .handwritten import HandwrittenDefinition, HandwrittenRecursion
from .models import LOG_2_PI

MOST_STATES = 8
SMALLEST = -1e30


def row_softmax(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def states(theta, extra):
    """Return K, given K (K + extra) parameters."""
    return next(K for K in range(1, MOST_STATES + 1) if K * (K + extra) == len(theta))


def normal(theta, y, K):
    """Return the log densities without log(2 pi) / 2, whether there is a datum, and whether theta is
    valid."""
    mu, sigma = theta[K * K + K : K * K + 2 * K], theta[K * K + 2 * K :]
    z = (np.where(np.isnan(y[0]), 0.0, y[0]) - mu) / sigma
    finite = np.max(np.maximum(np.abs(mu), sigma)) < np.inf
    return -0.5 * z * z - np.log(sigma), ~np.isnan(y[0]), np.where(finite, np.min(sigma), 0.0) > 0


def transition_and_start(theta, b, K):
    missing = np.isnan(np.sum(b))
    return np.where(missing, 0.0, b), ~missing, True


def markov_formula(densities, extra, offset):
    """Return init and step for `recursion`; the carry is the distribution of the state before each datum."""

    def start(theta):
        return row_softmax(theta[: states(theta, extra)])

    def step(p, theta, y):
        K = len(p)
        A = np.stack([row_softmax(row) for row in theta[K : K + K * K].reshape(K, K)])
        b, here, valid = densities(theta, y, K)
        top = np.max(np.where(p > 0, b, SMALLEST))
        w = np.where(p > 0, p * np.exp(b - top), 0.0)
        total = np.sum(w)
        f = np.where(here, w / total, p)
        return f @ A, np.where(valid, np.where(here, top + np.log(total) - offset, 0.0), np.nan)

    return start, step


def kernel(normal_, densities_, wants):
    """Return the kernel of markov.cu with GAUSSIAN 1 or 0."""
    extra = 3 if normal_ else 1
    sizes = {K * (K + extra): K for K in range(1, MOST_STATES + 1)}

    init, step = markov_formula(densities_, extra, 0.5 * LOG_2_PI if normal_ else 0.0)
    return HandwrittenRecursion(
        HandwrittenDefinition(
            name="markov",
            key="normal" if normal_ else "given",
            formula=recursion(init, step, missing="step"),
            fits=lambda p, d: p in sizes and d == (1 if normal_ else sizes[p]),
            wants=wants,
            macros=lambda p, d: {"K": sizes[p], "GAUSSIAN": int(normal_)},
            work=lambda p, d: (f"work real tape[N, {sizes[p]}, slots]",),
        )
    )


loglik = kernel(True, normal, "theta (K^2 + 3 K, B) and y (N,) or (1, N, B), K 1 to 8")
loglik_given = kernel(False, transition_and_start, "theta (K^2 + K, B) and b (K, N) or (K, N, B), K 1 to 8")
