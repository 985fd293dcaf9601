"""Independent Gaussians.

loglik(theta, x)                    theta (2 d, B): d means, then d scales; x (d, N), (N,) or (d, N, B)
loglik.value_and_grad(theta, x)     (B,), (2 d, B)"""

import numpy as np

from ..generated.kernel import likelihood
from .handwritten import CHUNK, Definition, HandwrittenLikelihood, aligned, twin, with_samples
from .on_cpu import Shared
from .own_functions import fma, log, power_of_two

HALF_LOG_2_PI = 0.91893853320467274178
LARGE = 2.0**256
WIDTH = 256  # samples side by side


def formula(theta, x):
    """The log density of one datum."""
    d = len(x)
    return sum([-0.5 * ((x[k] - theta[k]) / theta[d + k]) ** 2 - np.log(theta[d + k]) - HALF_LOG_2_PI for k in range(d)])


@twin
def is_plain(s, real_bytes):
    large = LARGE if real_bytes == 8 else 2.0**20
    return s <= large and s >= 1 / large


@twin
def add(x, mean, sums, squares, w, gradient):
    """The terms of the data in the tuple x, for w samples; fma(x, 1, -mean) is x - mean."""
    for l in range(w):
        square = squares[l]
        total = sums[l]
        for u in range(len(x)):
            e = x[u] - mean[l]
            if gradient.ndim == 2:
                total += e
            square = fma(e, e, square)
        squares[l] = square
        if gradient.ndim == 2:
            sums[l] = total


@twin
def add_row(x, here, mean, sums, squares, w, gradient):
    """The terms of a chunk of data that all samples share, c being 1: four at once, so that their sums stay in registers."""
    n = 0
    while n < len(x):
        if n + 4 <= len(x) and here[n] and here[n + 1] and here[n + 2] and here[n + 3]:
            add((x[n], x[n + 1], x[n + 2], x[n + 3]), mean, sums, squares, w, gradient)
            n += 4
        else:
            if here[n]:
                add((x[n],), mean, sums, squares, w, gradient)
            n += 1


@twin
def add_each(x, here, c, mean, sums, squares, w, gradient):
    """The terms of a chunk of data (n, w), or (n, 1) for all samples; here (n, w) or (n, 1)."""
    last = x.shape[1] - 1
    for n in range(len(x)):
        for l in range(w):
            each = min(l, last)
            if here[n, each]:
                e = fma(x[n, each], c[l], -mean[l] * c[l])
                squares[l] = fma(e, e, squares[l])
                if gradient.ndim == 2:
                    sums[l] += e


@twin
def is_here(data, here):
    """Which data (d, n, w) hold no nan."""
    here[:] = True
    for k in range(data.shape[0]):
        for n in range(data.shape[1]):
            for l in range(data.shape[2]):
                here[n, l] = here[n, l] and data[k, n, l] == data[k, n, l]


@twin
def finish(theta, c, sums, squares, seen, value, gradient):
    """Value and gradient from the sums."""
    d = len(c)
    for l in range(len(value)):
        total, logs, product, valid = 0.0, 0.0, 1.0, True
        for k in range(d):
            scale = np.float64(theta[d + k, l])
            r = 1 / (scale * c[k, l])
            squares[k, l] *= r * r
            sums[k, l] *= r
            total += squares[k, l]
            valid = valid and scale > 0
            product *= scale if is_plain(scale, 8) else 1
            if not is_plain(scale, 8):
                logs += log(scale)
            if not is_plain(product, 8) or k == d - 1:
                logs += log(product)
                product = 1.0
        total = -0.5 * total - seen[l] * (logs + d * HALF_LOG_2_PI)
        valid = valid and total - total == 0
        value[l] = total if valid else -np.inf
        if gradient.ndim == 2:
            for k in range(d):
                scale = np.float64(theta[d + k, l])
                gradient[k, l] = sums[k, l] / scale if valid else 0
                gradient[d + k, l] = (squares[k, l] - seen[l]) / scale if valid else 0


@twin
def gaussian(theta, data, value, gradient, B, N, first, last):
    """As in gaussian.cu; data (d, N, B) or (d, N, 1); without a gradient if `gradient` has one axis."""
    d, _, each = data.shape
    c, mean, sum_, square = [aligned(d, WIDTH, theta) for _ in range(4)]
    sums, squares, seen, plain = np.empty((d, WIDTH)), np.empty((d, WIDTH)), np.empty(WIDTH, np.int64), np.empty(d, np.bool_)
    most = theta.dtype.type(2.0**1021 if theta.itemsize == 8 else 2.0**125)
    here = np.empty((CHUNK, WIDTH) if each > 1 else (N, 1), np.bool_)
    if each == 1:
        is_here(data, here)
    for s in range(first, last, WIDTH):
        w = min(WIDTH, B - s)
        for k in range(d):
            plain[k] = each == 1
            for l in range(w):
                mean[k, l], scale = theta[k, s + l], theta[d + k, s + l]
                c[k, l] = 1 if is_plain(scale, theta.itemsize) else power_of_two(min(1 / scale, most))
                plain[k] = plain[k] and c[k, l] == 1
        sums[:], squares[:], seen[:] = 0, 0, np.sum(here) if each == 1 else 0
        for begin in range(0, N, CHUNK):
            chunk, there = data[:, begin : begin + CHUNK], here[begin : begin + CHUNK]
            if each > 1:
                chunk, there = chunk[:, :, s : s + w], here[: chunk.shape[1]]
                is_here(chunk, there)
                for i in range(chunk.shape[1]):
                    for l in range(w):
                        seen[l] += there[i, l]
            for k in range(d):
                sum_[k], square[k] = 0, 0
                if plain[k]:
                    add_row(chunk[k, :, 0], there[:, 0], mean[k], sum_[k], square[k], w, gradient)
                else:
                    add_each(chunk[k], there, c[k], mean[k], sum_[k], square[k], w, gradient)
                for l in range(w):
                    sums[k, l] += sum_[k, l]
                    squares[k, l] += square[k, l]
        finish(theta[:, s : s + w], c, sums, squares, seen, value[s : s + w], gradient[..., s : s + w])


@twin
def gaussian_value(theta, data, value, B, N, first, last):
    gaussian(theta, with_samples(data), value, value, B, N, first, last)


@twin
def gaussian_value_and_grad(theta, data, value, gradient, B, N, first, last):
    gaussian(theta, with_samples(data), value, gradient, B, N, first, last)


loglik = HandwrittenLikelihood(
    Definition(
        name="gaussian",
        stem="gaussian",
        formula=likelihood(formula),
        fit=lambda p, d: {"D": d} if p == 2 * d else None,
        wants="theta (2 d, B), d means, then d scales, and data (d, N), (N,) or (d, N, B)",
        value=Shared(gaussian_value, WIDTH, lambda p: 2 * p),
        both=Shared(gaussian_value_and_grad, WIDTH, lambda p: 2 * p),
    )
)
