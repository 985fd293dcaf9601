"""Mixtures of Gaussians of one variable.

loglik(theta, x)                    theta (3 k, B): k logits of the weights, k means, k log scales; x (N,), (1, N) or (1, N, B)
loglik.value_and_grad(theta, x)     (B,), (3 k, B)"""

import numpy as np

from ..generated.kernel import likelihood
from .handwritten import Definition, HandwrittenLikelihood, inlined, twin
from .on_cpu import Sized, Sweeps
from .sweeps import Frame, Sums, datum, nothing
from .vectors import double, doubles, exp, fma, is_wide, log, narrow, splat, where, whole

HALF_LOG_2_PI = 0.91893853320467274178


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


# --- the twin of mixture.cu; sizes: K, and whether the gradient is wanted ---


@inlined
def parts(room, K):
    """Means, inverse scales and biases; z, q; of a chunk the sum of terms, the number of data, three sums; the same in float64."""
    some = room + 5 * K
    total = doubles(some + (3 * K + 2))
    return room, room + K, room + 2 * K, room + 3 * K, room + 4 * K, some, total


@inlined
def largest(theta, K):
    top = theta[0]
    for k in range(1, K):
        top = where(theta[k] > top, theta[k], top)
    return double(top)


@twin
def begin(room, outside, layout, sizes):
    K, theta = sizes[0], outside[0]
    mean, inverse, bias, _, _, some, total = parts(room, K)
    top = largest(theta, K)
    for k in range(K):
        r = double(theta[2 * K + k])
        mean[k] = theta[K + k]
        inverse[k] = narrow(exp(-r), mean[k])
        bias[k] = narrow(double(theta[k]) - top - r, mean[k])
    for k in range(3 * K + 2):
        some[k] = 0
        total[k] = 0


@twin
def observe(room, outside, t, layout, sizes):
    K, gradient = sizes
    mean, inverse, bias, z, q, some, _ = parts(room, K)
    far = 1e150 if is_wide(mean[0]) else 1e18  # so far away a component has density 0, and z^2 is finite
    x = datum(outside, 0, t)
    here = x == x
    x = where(here, x, 0)
    most, total = splat(0, x), splat(0, x)
    for k in range(K):
        y = (x - mean[k]) * inverse[k]
        z[k] = where(y > far, far, where(y < -far, -far, y))
        q[k] = fma(-0.5 * z[k], z[k], bias[k])
        most = where(q[k] > most, q[k], most) if k else q[k]
    for k in range(K):
        q[k] = exp(q[k] - most)
        total = total + q[k]
    some[0] = some[0] + where(here, most + log(total), 0)
    some[1] = some[1] + where(here, splat(1, x), 0)
    if gradient:
        over = where(here, 1 / total, 0)
        for k in range(K):
            p = q[k] * over
            pz = p * z[k]
            some[2 + k] = some[2 + k] + p
            some[2 + K + k] = some[2 + K + k] + pz
            some[2 + 2 * K + k] = fma(pz, z[k], some[2 + 2 * K + k])


@twin
def flush(room, outside, t, layout, sizes):
    K, gradient = sizes
    _, _, _, _, _, some, total = parts(room, K)
    for k in range(2 + (3 * K if gradient else 0)):
        total[k] = total[k] + double(some[k])
        some[k] = 0


@twin
def finish(room, outside, layout, sizes):
    K, gradient = sizes
    theta, slope = outside[0], outside[6]
    mean, inverse, _, _, _, _, sums = parts(room, K)
    top, weights, seen = largest(theta, K), splat(0, sums[0]), sums[1]
    valid = whole(mean[0], True)
    for k in range(K):
        r = theta[2 * K + k]
        weights = weights + exp(double(theta[k]) - top)
        valid = valid & (mean[k] - mean[k] == 0) & (r - r == 0) & (inverse[k] - inverse[k] == 0)
    total = sums[0] - seen * (log(weights) + HALF_LOG_2_PI)
    valid = valid & (total - total == 0)
    outside[7][0] = where(valid, narrow(total, mean[0]), -np.inf)
    if gradient:
        for k in range(K):
            first, second, third = sums[2 + k], sums[2 + K + k], sums[2 + 2 * K + k]
            slope[k] = where(valid, narrow(first - seen * (exp(double(theta[k]) - top) / weights), mean[0]), 0)
            slope[K + k] = where(valid, narrow(second * double(inverse[k]), mean[0]), 0)
            slope[2 * K + k] = where(valid, narrow(third - first, mean[0]), 0)


SUMS = Sums(begin, observe, flush, finish, nothing)


def sweeps(p):
    """On NumPy arrays, for so many rows of theta."""
    frame = Frame(sizes=(p // 3,), modes=[(0, p)], lines=1, stored=0)
    return Sweeps(SUMS, frame, room=5 * (p // 3) + 3 * (p + 2), cost=50 + 12 * p)


ON_HOST = Sized(sweeps)

loglik = HandwrittenLikelihood(
    Definition(
        name="mixture",
        stem="mixture",
        formula=likelihood(formula),
        fit=lambda p, d: {"K": p // 3} if p and p % 3 == 0 and d == 1 else None,
        wants="theta (3 k, B), k logits, k means and k log scales, and data (N,), (1, N) or (1, N, B)",
        value=ON_HOST.value,
        both=ON_HOST.both,
    )
)
