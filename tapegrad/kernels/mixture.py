"""Mixtures of Gaussians of one variable.

loglik(theta, x)                    theta (3 k, B): k logits of the weights, k means, k log scales; x (N,), (1, N) or (1, N, B)
loglik.value_and_grad(theta, x)     (B,), (3 k, B)"""

import numpy as np

from ._api import likelihood
from ._elementary import exp, fma, log
from ._library import CHUNK, HandwrittenLikelihood, aligned, twin, with_samples
from ._library_cpu import Shared

HALF_LOG_2_PI = 0.91893853320467274178
WIDTH = 256  # samples side by side


def log_sum_exp(q):
    top = q[0]
    for x in q[1:]:
        top = np.maximum(top, x)
    return top + np.log(sum([np.exp(x - top) for x in q]))


def formula(theta, x):
    """The log density of one datum."""
    k = len(theta) // 3
    logits, means, log_scales = theta[:k], theta[k : 2 * k], theta[2 * k :]
    z = (x[0] - means) * np.exp(-log_scales)
    return log_sum_exp(logits - log_scales - 0.5 * z**2) - log_sum_exp(logits) - HALF_LOG_2_PI


@twin
def distances(x, mean, inverse, bias, z, q, w):
    """z and q of one component."""
    half, far = x.dtype.type(-0.5), x.dtype.type(1e150 if x.itemsize == 8 else 1e18)
    for l in range(w):
        y = (x[l] - mean[l]) * inverse[l]
        y = far if y > far else -far if y < -far else y
        z[l] = y
        q[l] = fma(half * y, y, bias[l])


@twin
def add_responsibility(q, over, z, part, first, second, w):
    """The sums of one component."""
    for l in range(w):
        p = q[l] * over[l]
        pz = p * z[l]
        part[l] += p
        first[l] += pz
        second[l] = fma(pz, z[l], second[l])


@twin
def add(x, here, given, z, q, rest, sums, w):
    """The terms of the datum x (w,).  Rows of `rest`: the largest q, the sum of exponentials, the sum of terms."""
    k = len(z)
    most, sum_, some = rest[0], rest[1], rest[2]
    one, none = x.dtype.type(1), x.dtype.type(0)
    for i in range(k):
        distances(x, given[i], given[k + i], given[2 * k + i], z[i], q[i], w)
        row = q[i]
        if i == 0:
            most[:w] = row[:w]
        else:
            for l in range(w):
                most[l] = row[l] if row[l] > most[l] else most[l]
    sum_[:] = 0
    for i in range(k):
        row = q[i]
        for l in range(w):
            row[l] = exp(row[l] - most[l])
            sum_[l] += row[l]
    for l in range(w):
        term = most[l] + log(sum_[l])
        some[l] += term if here[l] else none
    for l in range(w):
        sum_[l] = one / sum_[l] if here[l] else none
    for i in range(k):
        add_responsibility(q[i], sum_, z[i], sums[i], sums[k + i], sums[2 * k + i], w)


@twin
def prepare(theta, given, valid):
    """Means, inverse scales and biases of the components, as rows of `given`."""
    k, w = len(theta) // 3, theta.shape[1]
    for l in range(w):
        top, valid[l] = theta[0, l], True
        for i in range(1, k):
            top = theta[i, l] if theta[i, l] > top else top
        for i in range(k):
            r = np.float64(theta[2 * k + i, l])
            given[i, l] = theta[k + i, l]
            given[k + i, l] = exp(-r)
            given[2 * k + i, l] = np.float64(theta[i, l]) - top - r
            valid[l] = valid[l] and given[i, l] - given[i, l] == 0 and r - r == 0 and given[k + i, l] - given[k + i, l] == 0


@twin
def finish(theta, given, valid, seen, total, sums, value, gradient):
    """Value and gradient from the sums."""
    k = len(theta) // 3
    for l in range(len(value)):
        top, weights = np.float64(theta[0, l]), 0.0
        for i in range(1, k):
            top = theta[i, l] if theta[i, l] > top else top
        for i in range(k):
            weights += exp(theta[i, l] - top)
        all_ = total[l] - seen[l] * (log(weights) + HALF_LOG_2_PI)
        good = valid[l] and all_ - all_ == 0
        value[l] = all_ if good else -np.inf
        for i in range(k):
            gradient[i, l] = sums[i, l] - seen[l] * (exp(theta[i, l] - top) / weights) if good else 0
            gradient[k + i, l] = sums[k + i, l] * given[k + i, l] if good else 0
            gradient[2 * k + i, l] = sums[2 * k + i, l] - sums[i, l] if good else 0


@twin
def mixture(theta, data, value, gradient, B, N, first, last):
    """As in mixture.cu; data (1, N, B) or (1, N, 1)."""
    p = len(theta)
    given, z, q, rest, some = [aligned(n, WIDTH, theta) for n in (p, p // 3, p // 3, 4, p)]
    total, sums, seen = np.empty(WIDTH), np.empty((p, WIDTH)), np.empty(WIDTH, np.int64)
    x, here, valid = rest[3], np.empty(WIDTH, np.bool_), np.empty(WIDTH, np.bool_)
    for s in range(first, last, WIDTH):
        w = min(WIDTH, B - s)
        prepare(theta[:, s : s + w], given, valid)
        total[:], sums[:], seen[:], here[:] = 0, 0, 0, True
        for begin in range(0, N, CHUNK):
            rest[2], some[:] = 0, 0
            for n in range(begin, min(begin + CHUNK, N)):
                if data.shape[2] > 1:
                    for l in range(w):
                        here[l] = data[0, n, s + l] == data[0, n, s + l]
                        x[l] = data[0, n, s + l] if here[l] else 0
                elif data[0, n, 0] == data[0, n, 0]:
                    x[:] = data[0, n, 0]
                else:
                    continue
                seen += here
                add(x, here, given, z, q, rest, some, w)
            total += rest[2]
            sums += some
        finish(theta[:, s : s + w], given, valid, seen, total, sums, value[s : s + w], gradient[:, s : s + w])


@twin
def mixture_value(theta, data, value, B, N, first, last):
    mixture(theta, with_samples(data), value, np.empty_like(theta), B, N, first, last)


@twin
def mixture_value_and_grad(theta, data, value, gradient, B, N, first, last):
    mixture(theta, with_samples(data), value, gradient, B, N, first, last)


loglik = HandwrittenLikelihood(
    "mixture",
    "mixture",
    likelihood(formula),
    lambda p, d: {"K": p // 3} if p and p % 3 == 0 and d == 1 else None,
    "theta (3 k, B), k logits, k means and k log scales, and data (N,), (1, N) or (1, N, B)",
    Shared(mixture_value, WIDTH, lambda p: 12 * p),
    Shared(mixture_value_and_grad, WIDTH, lambda p: 12 * p),
)
