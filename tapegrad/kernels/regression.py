"""Poisson and logistic regression.

    data = poisson_data(x, y)                       x (N, k) the design, y (N,) counts
    poisson(theta, data)                            theta (k, B): (B,)
    poisson.value_and_grad(theta, data)             (B,), (k, B)
    logistic(theta, logistic_data(x, y))            y 0 or 1

Both links are canonical: minus the Hessian is the Fisher information, `-poisson.hessian(theta, data)`, (B, k, k)."""

from typing import Any

import numpy as np

from .._array import is_array, xp_of
from ..errors import ArgumentError, ShapeError
from ..ops.special import gammaln
from ._api import FLOATS, likelihood
from ._elementary import exp, fma, log1p
from ._library import CHUNK, HandwrittenLikelihood, aligned, twin, with_samples
from ._library_cpu import Shared

WIDTH = 256  # samples side by side


def poisson_formula(theta, x):
    """The log probability of one datum: the design, the count y, log(y!)."""
    k = len(theta)
    eta = theta @ x[:k]
    return x[k] * eta - np.exp(eta) - x[k + 1]


def logistic_formula(theta, x):
    """The log probability of one datum: the design and the response."""
    k = len(theta)
    eta = theta @ x[:k]
    return x[k] * eta - np.where(eta > 0, eta + np.log1p(np.exp(-eta)), np.log1p(np.exp(eta)))


def _columns(name: str, x: Any, y: Any) -> tuple:
    x, y = x if is_array(x) else np.asarray(x), y if is_array(y) else np.asarray(y)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ShapeError(f"{name}: the design has shape {x.shape} and the responses {y.shape}; wanted are (N, k) and (N,)")
    dtype = x.dtype if x.dtype in FLOATS else np.dtype(np.float64)
    return xp_of(x).ascontiguousarray(x.T, dtype=dtype), y.astype(dtype)


def poisson_data(x: Any, y: Any) -> Any:
    """The data of `poisson`, (k + 2, N), from a design (N, k) and counts (N,); nan marks what is missing.

    >>> poisson_data([[1.0, 0.5]], [2]).round(4)
    array([[1.    ],
           [0.5   ],
           [2.    ],
           [0.6931]])
    """
    rows, y = _columns("poisson_data", x, y)
    xp = xp_of(rows)
    if bool(((y < 0) | ((y != xp.floor(y)) & (y == y))).any()):
        raise ArgumentError("poisson_data: the responses must be counts: 0, 1, 2, ...")
    return xp.concatenate([rows, y[None], gammaln(y + 1)[None]])


def logistic_data(x: Any, y: Any) -> Any:
    """The data of `logistic`, (k + 1, N), from a design (N, k) and responses (N,) from 0 to 1; nan marks what is missing.

    >>> logistic_data([[1.0, 0.5]], [True])
    array([[1. ],
           [0.5],
           [1. ]])
    """
    rows, y = _columns("logistic_data", x, y)
    xp = xp_of(rows)
    if bool(((y < 0) | (y > 1)).any()):
        raise ArgumentError("logistic_data: the responses must lie between 0 and 1")
    return xp.concatenate([rows, y[None]])


@twin
def link(eta, y, log_factorial, here, values, residuals, w, logistic):
    """Adds the terms to `values`, 0 where a datum is missing."""
    one, none = eta.dtype.type(1), eta.dtype.type(0)
    if logistic:
        for l in range(w):
            t = exp(-eta[l] if eta[l] > 0 else eta[l])
            term = y[l] * eta[l] - (eta[l] if eta[l] > 0 else none) - log1p(t)
            values[l] += term if here[l] else none
            residuals[l] = y[l] - (one if eta[l] > 0 else t) / (one + t) if here[l] else none
    else:
        for l in range(w):
            mean = exp(eta[l])
            term = y[l] * eta[l] - mean - log_factorial[l]
            values[l] += term if here[l] else none
            residuals[l] = y[l] - mean if here[l] else none


@twin
def add_shared(data, n, b, slopes, rest, here, w, logistic):
    """The terms of datum n of all samples.  Rows of `rest`: eta, y, log(y!), residuals, values."""
    k = len(b)
    for i in range(data.shape[0]):
        if not data[i, n, 0] == data[i, n, 0]:
            return
    rest[0] = 0
    for i in range(k):
        x, eta, row = data[i, n, 0], rest[0], b[i]
        for l in range(w):
            eta[l] = fma(x, row[l], eta[l])
    rest[1], rest[2], here[:] = data[k, n, 0], data[-1, n, 0], True
    link(rest[0], rest[1], rest[2], here, rest[4], rest[3], w, logistic)
    for i in range(k):
        x, residual, row = data[i, n, 0], rest[3], slopes[i]
        for l in range(w):
            row[l] = fma(x, residual[l], row[l])


@twin
def add_each(data, n, b, slopes, rest, here, w, logistic):
    """The same where each sample has its own data, (d, N, w)."""
    k = len(b)
    here[:], rest[0] = True, 0
    for i in range(data.shape[0]):
        for l in range(w):
            here[l] = here[l] and data[i, n, l] == data[i, n, l]
    for i in range(k):
        for l in range(w):
            rest[0, l] = fma(data[i, n, l], b[i, l], rest[0, l])
    rest[1, :w], rest[2, :w] = data[k, n], data[-1, n]
    link(rest[0], rest[1], rest[2], here, rest[4], rest[3], w, logistic)
    for i in range(k):
        for l in range(w):
            if here[l]:
                slopes[i, l] = fma(data[i, n, l], rest[3, l], slopes[i, l])


@twin
def regression(theta, data, value, gradient, B, N, first, last, logistic):
    """As in regression.cu; data (d, N, B) or (d, N, 1)."""
    k = len(theta)
    b, slopes, rest, here = aligned(k, WIDTH, theta), aligned(k, WIDTH, theta), aligned(5, WIDTH, theta), np.empty(WIDTH, np.bool_)
    totals, sums = np.empty(WIDTH), np.empty((k, WIDTH))
    for s in range(first, last, WIDTH):
        w = min(WIDTH, B - s)
        b[:, :w] = theta[:, s : s + w]
        totals[:], sums[:] = 0, 0
        for begin in range(0, N, CHUNK):
            rest[4], slopes[:] = 0, 0
            for n in range(begin, min(begin + CHUNK, N)):
                if data.shape[2] > 1:
                    add_each(data[:, :, s : s + w], n, b, slopes, rest, here, w, logistic)
                else:
                    add_shared(data, n, b, slopes, rest, here, w, logistic)
            totals += rest[4]
            sums += slopes
        for l in range(w):
            valid = totals[l] - totals[l] == 0
            value[s + l] = totals[l] if valid else -np.inf
            for i in range(k):
                gradient[i, s + l] = sums[i, l] if valid else 0


@twin
def poisson_value(theta, data, value, B, N, first, last):
    regression(theta, with_samples(data), value, np.empty_like(theta), B, N, first, last, False)


@twin
def poisson_value_and_grad(theta, data, value, gradient, B, N, first, last):
    regression(theta, with_samples(data), value, gradient, B, N, first, last, False)


@twin
def logistic_value(theta, data, value, B, N, first, last):
    regression(theta, with_samples(data), value, np.empty_like(theta), B, N, first, last, True)


@twin
def logistic_value_and_grad(theta, data, value, gradient, B, N, first, last):
    regression(theta, with_samples(data), value, gradient, B, N, first, last, True)


poisson = HandwrittenLikelihood(
    "poisson",
    "regression",
    likelihood(poisson_formula),
    lambda p, d: {"K": p} if d == p + 2 and p else None,
    "theta (k, B) and data (k + 2, N) or (k + 2, N, B) as poisson_data(x, y) makes them",
    Shared(poisson_value, WIDTH, lambda p: 30 + 2 * p),
    Shared(poisson_value_and_grad, WIDTH, lambda p: 30 + 2 * p),
)
logistic = HandwrittenLikelihood(
    "logistic",
    "regression",
    likelihood(logistic_formula),
    lambda p, d: {"K": p} if d == p + 1 and p else None,
    "theta (k, B) and data (k + 1, N) or (k + 1, N, B) as logistic_data(x, y) makes them",
    Shared(logistic_value, WIDTH, lambda p: 60 + 2 * p),
    Shared(logistic_value_and_grad, WIDTH, lambda p: 60 + 2 * p),
)
