"""Student's t distribution.

loglik(theta, x)                    theta (3, B): location, scale, degrees of freedom; x (N,), (1, N) or (1, N, B)
loglik.value_and_grad(theta, x)     (B,), (3, B)"""

import numpy as np
from scipy.special import gammaln

from ._api import likelihood
from ._elementary import log, log1p
from ._library import CHUNK, HandwrittenLikelihood, aligned, twin, with_samples
from ._library_cpu import Shared

HALF_LOG_2_PI = 0.91893853320467274178
WIDTH = 256  # samples side by side
# Rows of a block: the datum; location, 1 / scale, 1 / degrees of freedom; and three sums
MEAN, INVERSE, OVER, LOGS, PARTS, MEANS = np.arange(1, 7, dtype=np.uint64) * np.uint64(WIDTH)


def formula(theta, x):
    """The log density of one datum."""
    mean, scale, df = theta
    half = 0.5 * (df + 1)
    constant = gammaln(half) - gammaln(0.5 * df) - 0.5 * np.log(np.pi * df) - np.log(scale)
    return constant - half * np.log1p(((x[0] - mean) / scale) ** 2 / df)


@twin
def gamma_ratio(a):
    product, more = 1.0, 0.0
    while a < 10:
        middle, both = a + 0.5, a * (a + 1)
        product *= both / (middle * middle)
        more += 0.25 / (both * middle)
        a += 1
    r = 1 / a
    w = r * r
    h = 0.5 * log(product) + r * (
        -1 / 8 + w * (1 / 192 + w * (-1 / 640 + w * (17 / 14336 + w * (-31 / 18432 + w * (691 / 180224 + w * (-5461 / 425984))))))
    )
    dh = more + w * (1 / 8 + w * (-1 / 64 + w * (1 / 128 + w * (-17 / 2048 + w * (31 / 2048 + w * (-691 / 16384 + w * (5461 / 32768)))))))
    return h, dh


@twin
def add(a, w):
    """The terms of the datum in the first row; nan adds nothing."""
    one, none = a.dtype.type(1), a.dtype.type(0)
    for l in range(w):
        i = np.uint64(l)
        z = (a[i] - a[i + MEAN]) * a[i + INVERSE] if a[i] == a[i] else none
        u = z * z * a[i + OVER]
        a[i + LOGS] += log1p(u)
        q = one / (one + u)
        a[i + PARTS] += u * q
        a[i + MEANS] += z * q


@twin
def finish(theta, seen, sums, value, gradient):
    """Value and gradient from the sums."""
    for l in range(len(value)):
        location, scale, df = np.float64(theta[0, l]), np.float64(theta[1, l]), np.float64(theta[2, l])
        logs, parts, means = sums[0, l], sums[1, l], sums[2, l]
        h, dh = gamma_ratio(0.5 * df if df > 0 else 1.0)
        total = seen[l] * (h - HALF_LOG_2_PI - log(scale)) - 0.5 * (df + 1) * logs
        valid = scale > 0 and df > 0 and location - location == 0 and total - total == 0
        value[l] = total if valid else -np.inf
        gradient[0, l] = (df + 1) * means / (df * scale) if valid else 0
        gradient[1, l] = ((df + 1) * parts - seen[l]) / scale if valid else 0
        gradient[2, l] = 0.5 * (seen[l] * dh - logs + (df + 1) * parts / df) if valid else 0


@twin
def student_t(theta, data, value, gradient, B, N, first, last):
    """As in student_t.cu; data (1, N, B) or (1, N, 1)."""
    block = aligned(7, WIDTH, theta)
    a = block.ravel()
    sums, seen = np.empty((3, WIDTH)), np.empty(WIDTH, np.int64)
    for s in range(first, last, WIDTH):
        w = min(WIDTH, B - s)
        for l in range(w):
            block[1, l], block[2, l], block[3, l] = theta[0, s + l], 1 / theta[1, s + l], 1 / theta[2, s + l]
        sums[:], seen[:] = 0, 0
        for begin in range(0, N, CHUNK):
            block[4:] = 0
            for n in range(begin, min(begin + CHUNK, N)):
                if data.shape[2] > 1:
                    block[0, :w] = data[0, n, s : s + w]
                    for l in range(w):
                        seen[l] += block[0, l] == block[0, l]
                    add(a, w)
                elif data[0, n, 0] == data[0, n, 0]:
                    block[0] = data[0, n, 0]
                    seen += 1
                    add(a, w)
            for k in range(3):
                for l in range(w):
                    sums[k, l] += block[4 + k, l]
        finish(theta[:, s : s + w], seen, sums, value[s : s + w], gradient[:, s : s + w])


@twin
def student_t_value(theta, data, value, B, N, first, last):
    student_t(theta, with_samples(data), value, np.empty_like(theta), B, N, first, last)


@twin
def student_t_value_and_grad(theta, data, value, gradient, B, N, first, last):
    student_t(theta, with_samples(data), value, gradient, B, N, first, last)


loglik = HandwrittenLikelihood(
    "student_t",
    "student_t",
    likelihood(formula),
    lambda p, d: {} if p == 3 and d == 1 else None,
    "theta (3, B), location, scale and degrees of freedom, and data (N,), (1, N) or (1, N, B)",
    Shared(student_t_value, WIDTH, lambda p: 40),
    Shared(student_t_value_and_grad, WIDTH, lambda p: 40),
)
