"""Poisson and logistic regression.

    data = poisson_data(x, y)                       x (N, k) the design, y (N,) counts
    poisson(theta, data)                            theta (k, B): (B,)
    poisson.value_and_grad(theta, data)             (B,), (k, B)
    logistic(theta, logistic_data(x, y))            y 0 or 1

Both links are canonical: minus the Hessian is the Fisher information, `-poisson.hessian(theta, data)`, (B, k, k)."""

from typing import Any

import numpy as np

from ..._array import is_array, xp_of
from ...errors import ArgumentError, ShapeError
from ...ops.special import gammaln
from ..generated.kernel import FLOATS, likelihood
from .handwritten import Definition, HandwrittenLikelihood, inlined, twin
from .on_cpu import Sized, Sweeps
from .sweeps import Frame, Sums, datum, nothing
from .vectors import double, doubles, exp, fma, log1p, narrow, splat, where, whole


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


# --- the twin of regression.cu; sizes: k, whether logistic, whether the gradient is wanted ---


@inlined
def parts(room, K):
    """The coefficients, a datum, the sum of a chunk and its gradient; the same of all data in float64."""
    slope = room + (2 * K + 3)
    total = doubles(slope + K)
    return room, room + K, room + (2 * K + 2), slope, total, total + 1


@twin
def begin(room, outside, layout, sizes):
    K = sizes[0]
    b, _, some, slope, total, slopes = parts(room, K)
    some[0], total[0] = 0, 0
    for i in range(K):
        b[i] = outside[0][i]
        slope[i] = 0
        slopes[i] = 0


@inlined
def poisson_term(eta, y, log_factorial):
    mean = exp(eta)
    return y * eta - mean - log_factorial, y - mean


@inlined
def logistic_term(eta, y):
    t, above = exp(where(eta > 0, -eta, eta)), where(eta > 0, eta, 0)
    return y * eta - above - log1p(t), y - where(eta > 0, 1, t) / (1 + t)


@twin
def observe(room, outside, t, layout, sizes):
    K, logistic, gradient = sizes
    b, x, some, slope, _, _ = parts(room, K)
    here, eta = whole(b[0], True), splat(0, b[0])
    for i in range(K + (1 if logistic else 2)):
        x[i] = datum(outside, i, t)
        here = here & (x[i] == x[i])
    for i in range(K):
        eta = fma(x[i], b[i], eta)
    if logistic:
        term, residual = logistic_term(eta, x[K])
    else:
        term, residual = poisson_term(eta, x[K], x[K + 1])
    some[0] = some[0] + where(here, term, 0)
    if gradient:
        residual = where(here, residual, 0)
        for i in range(K):
            slope[i] = fma(where(here, x[i], 0), residual, slope[i])


@twin
def flush(room, outside, t, layout, sizes):
    K, _, gradient = sizes
    _, _, some, slope, total, slopes = parts(room, K)
    total[0] = total[0] + double(some[0])
    some[0] = 0
    for i in range(K if gradient else 0):
        slopes[i] = slopes[i] + double(slope[i])
        slope[i] = 0


@twin
def finish(room, outside, layout, sizes):
    K, _, gradient = sizes
    b, _, _, _, total, slopes = parts(room, K)
    valid = total[0] - total[0] == 0
    outside[7][0] = where(valid, narrow(total[0], b[0]), -np.inf)
    for i in range(K if gradient else 0):
        outside[6][i] = where(valid, narrow(slopes[i], b[0]), 0)


SUMS = Sums(begin, observe, flush, finish, nothing)


def sized(logistic):
    def sweeps(k):
        frame = Frame(sizes=(k, logistic), modes=[(0, k)], lines=k + 2 - logistic, stored=0)
        return Sweeps(SUMS, frame, room=5 * k + 5, cost=40 + 20 * logistic + 4 * k)

    return Sized(sweeps)


ON_HOST = sized(0), sized(1)

poisson = HandwrittenLikelihood(
    Definition(
        name="poisson",
        stem="regression",
        formula=likelihood(poisson_formula),
        fit=lambda p, d: {"K": p} if d == p + 2 and p else None,
        wants="theta (k, B) and data (k + 2, N) or (k + 2, N, B) as poisson_data(x, y) makes them",
        value=ON_HOST[0].value,
        both=ON_HOST[0].both,
    )
)
logistic = HandwrittenLikelihood(
    Definition(
        name="logistic",
        stem="regression",
        formula=likelihood(logistic_formula),
        fit=lambda p, d: {"K": p} if d == p + 1 and p else None,
        wants="theta (k, B) and data (k + 1, N) or (k + 1, N, B) as logistic_data(x, y) makes them",
        value=ON_HOST[1].value,
        both=ON_HOST[1].both,
    )
)
