"""Independent Gaussians.

loglik(theta, x)                    theta (2 d, B): d means, then d scales; x (d, N), (N,) or (d, N, B)
loglik.value_and_grad(theta, x)     (B,), (2 d, B)"""

import math

import numpy as np

from ._api import likelihood
from ._library import CHUNK, HandwrittenLikelihood, fma, power_of_two, twin

HALF_LOG_2_PI = 0.91893853320467274178
MOST = 2.0**125
WIDTH = 256  # samples side by side


def formula(theta, x):
    """The log density of one datum."""
    d = len(x)
    return sum([-0.5 * ((x[k] - theta[k]) / theta[d + k]) ** 2 - np.log(theta[d + k]) - HALF_LOG_2_PI for k in range(d)])


@twin
def add(x, c, mc, sums, squares, w, gradient):
    """The terms of the data in the tuple x, for w samples."""
    for l in range(w):
        square = squares[l]
        total = sums[l]
        for u in range(len(x)):
            e = fma(x[u], c[l], mc[l])
            if gradient.ndim == 2:
                total += e
            square = fma(e, e, square)
        squares[l] = square
        if gradient.ndim == 2:
            sums[l] = total


@twin
def add_row(x, here, c, mc, sums, squares, w, gradient):
    """The terms of a chunk of data that all samples share: four at once, so that their sums stay in registers."""
    n = 0
    while n < len(x):
        if n + 4 <= len(x) and here[n] and here[n + 1] and here[n + 2] and here[n + 3]:
            add((x[n], x[n + 1], x[n + 2], x[n + 3]), c, mc, sums, squares, w, gradient)
            n += 4
        else:
            if here[n]:
                add((x[n],), c, mc, sums, squares, w, gradient)
            n += 1


@twin
def add_each(x, c, mc, sums, squares, seen, gradient):
    """The terms of a chunk of data (d, n, w) of which each sample has its own."""
    d, n, w = x.shape
    here = np.empty(w, np.bool_)
    for i in range(n):
        here[:] = True
        for k in range(d):
            for l in range(w):
                here[l] = here[l] and x[k, i, l] == x[k, i, l]
        for l in range(w):
            seen[l] -= not here[l]
        for k in range(d):
            for l in range(w):
                e = fma(x[k, i, l], c[k, l], mc[k, l])
                if here[l]:
                    squares[k, l] = fma(e, e, squares[k, l])
                    if gradient.ndim == 2:
                        sums[k, l] += e


@twin
def gaussian(theta, data, value, gradient, B, N):
    """As in gaussian.cu; without a gradient if `gradient` has one axis."""
    d = data.shape[0]
    c, mc = np.empty((d, WIDTH), theta.dtype), np.empty((d, WIDTH), theta.dtype)
    sum_, square = np.empty((d, WIDTH), theta.dtype), np.empty((d, WIDTH), theta.dtype)
    sums, squares, seen = np.empty((d, WIDTH)), np.empty((d, WIDTH)), np.empty(WIDTH, np.int64)
    here = np.empty(CHUNK, np.bool_)
    for s in range(0, B, WIDTH):
        w = min(WIDTH, B - s)
        for k in range(d):
            for l in range(w):
                c[k, l] = power_of_two(min(1 / theta[d + k, s + l], theta.dtype.type(MOST)))
                mc[k, l] = -theta[k, s + l] * c[k, l]
        sums[:], squares[:], seen[:] = 0, 0, N
        for begin in range(0, N, CHUNK):
            end = min(begin + CHUNK, N)
            sum_[:], square[:] = 0, 0
            if data.ndim == 3:
                add_each(data[:, begin:end, s : s + w], c, mc, sum_, square, seen, gradient)
            else:
                here[:] = True
                for k in range(d):
                    for n in range(begin, end):
                        here[n - begin] = here[n - begin] and data[k, n] == data[k, n]
                seen -= end - begin - np.sum(here[: end - begin])
                for k in range(d):
                    add_row(data[k, begin:end], here, c[k], mc[k], sum_[k], square[k], w, gradient)
            for k in range(d):
                for l in range(w):
                    sums[k, l] += sum_[k, l]
                    squares[k, l] += square[k, l]
        finish(theta[:, s : s + w], c, sums, squares, seen, value[s : s + w], gradient[..., s : s + w])


@twin
def finish(theta, c, sums, squares, seen, value, gradient):
    d, w = len(theta) // 2, len(value)
    for l in range(w):
        total, valid = 0.0, True
        for k in range(d):
            scale = np.float64(theta[d + k, l])
            r = 1 / (scale * c[k, l])
            squares[k, l] *= r * r
            sums[k, l] *= r
            total -= 0.5 * squares[k, l] + seen[l] * (math.log(scale) + HALF_LOG_2_PI)
            valid = valid and scale > 0
        valid = valid and total - total == 0
        value[l] = total if valid else -np.inf
        if gradient.ndim == 2:
            for k in range(d):
                scale = np.float64(theta[d + k, l])
                gradient[k, l] = sums[k, l] / scale if valid else 0
                gradient[d + k, l] = (squares[k, l] - seen[l]) / scale if valid else 0


@twin
def gaussian_value(theta, data, value, B, N):
    gaussian(theta, data, value, value, B, N)


@twin
def gaussian_value_and_grad(theta, data, value, gradient, B, N):
    gaussian(theta, data, value, gradient, B, N)


loglik = HandwrittenLikelihood(
    "gaussian",
    "gaussian",
    likelihood(formula),
    lambda p, d: {"D": d} if p == 2 * d else None,
    "theta (2 d, B), d means, then d scales, and data (d, N), (N,) or (d, N, B)",
    gaussian_value,
    gaussian_value_and_grad,
)
