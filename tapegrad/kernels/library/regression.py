"""Poisson and logistic regression.

    data = poisson_data(x, y)                       x (N, k) the design, y (N,) counts
    poisson(theta, data)                            theta (k, B): (B,)
    poisson.value_and_grad(theta, data)             (B,), (k, B)
    logistic(theta, logistic_data(x, y))            y 0 or 1

Both links are canonical: minus the Hessian is the Fisher information, `-poisson.hessian(theta, data)`, (B, k,
k)."""

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError, ShapeError
from ...ops.special.gamma import gammaln
from ..generated.arguments import FLOATS
from ..generated.kernel import likelihood
from .models import Definition, ModelLikelihood


def poisson_formula(theta, x):
    """The log probability of one datum: the design, the count y, log(y!)."""
    k = len(theta)
    eta = theta @ x[:k]
    return x[k] * eta - np.exp(eta) - x[k + 1]


def logistic_formula(theta, x):
    """The log probability of one datum: the design and the response."""
    k = len(theta)
    eta = theta @ x[:k]
    return x[k] * eta - np.where(eta > 0, eta, 0.0) - np.log1p(np.exp(np.where(eta > 0, -eta, eta)))


def design_columns(name: str, x, y) -> tuple:
    x, y = x if is_array(x) else np.asarray(x), y if is_array(y) else np.asarray(y)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ShapeError(
            f"{name}: the design has shape {x.shape} and the responses {y.shape}; wanted are (N, k) and (N,)"
        )
    dtype = x.dtype if x.dtype in FLOATS else np.dtype(np.float64)
    return xp_of(x).ascontiguousarray(x.T, dtype=dtype), y.astype(dtype)


def poisson_data(x, y):
    """The data of `poisson`, (k + 2, N), from a design (N, k) and counts (N,); nan marks what is missing.

    >>> poisson_data([[1.0, 0.5]], [2]).round(4)
    array([[1.    ],
           [0.5   ],
           [2.    ],
           [0.6931]])
    """
    rows, y = design_columns("poisson_data", x, y)
    xp = xp_of(rows)
    if bool(((y < 0) | ((y != xp.floor(y)) & (y == y))).any()):
        raise ArgumentError("poisson_data: the responses must be counts: 0, 1, 2, ...")
    return xp.concatenate([rows, y[None], gammaln(y + 1)[None]])


def logistic_data(x, y):
    """The data of `logistic`, (k + 1, N), from a design (N, k) and responses (N,) from 0 to 1; nan marks what
    is missing.

    >>> logistic_data([[1.0, 0.5]], [True])
    array([[1. ],
           [0.5],
           [1. ]])
    """
    rows, y = design_columns("logistic_data", x, y)
    xp = xp_of(rows)
    if bool(((y < 0) | (y > 1)).any()):
        raise ArgumentError("logistic_data: the responses must lie between 0 and 1")
    return xp.concatenate([rows, y[None]])


poisson = ModelLikelihood(
    Definition(
        name="poisson",
        formula=likelihood(poisson_formula),
        fits=lambda p, d: d == p + 2 > 2,
        wants="theta (k, B) and data (k + 2, N) or (k + 2, N, B) as poisson_data(x, y) makes them",
    )
)
logistic = ModelLikelihood(
    Definition(
        name="logistic",
        formula=likelihood(logistic_formula),
        fits=lambda p, d: d == p + 1 > 1,
        wants="theta (k, B) and data (k + 1, N) or (k + 1, N, B) as logistic_data(x, y) makes them",
    )
)
