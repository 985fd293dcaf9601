"""Distributions of vectors and matrices."""

import math
from typing import Any

import numpy as np

from .._primitive import primal_of
from ..errors import ArgumentError, NotPositiveDefiniteError, ShapeError
from ..ops import linalg, shaping
from ..ops._define import dtype, ndim, shape, xp
from ..ops.elementwise import exp, log, square
from ._classic import LOG_2PI
from ._families import Distribution, array_of, derived, number_like


class MultivariateNormal(Distribution):
    """`logpdf(x, mean, cov)` and `pdf`: x (..., d), mean a number or (..., d), cov a number, (d,) variances or (..., d, d).

    Leading axes broadcast.  The density is that of the symmetric part of cov, so the gradient in cov is symmetric.
    """

    def __init__(self):
        self.name = "multivariate_normal"

    @derived
    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """
        >>> import numpy as np, tapegrad as tg
        >>> from tapegrad.stats import multivariate_normal
        >>> S = np.array([[2.0, 0.5], [0.5, 1.0]])
        >>> float(multivariate_normal.logpdf(np.array([0.3, -0.7]), 0.0, S).round(6))
        -2.483399
        """
        if allow_singular:
            raise ArgumentError("multivariate_normal.logpdf: allow_singular=True is not supported on a tracked Variable")
        x = array_of(x)
        mean, cov = number_like(0.0 if mean is None else mean, x), number_like(cov, x)
        d = shape(cov)[-1] if ndim(cov) else shape(mean)[-1] if ndim(mean) else 1
        if ndim(cov) >= 2 and shape(cov)[-2] != d:
            raise ShapeError(f"multivariate_normal.logpdf: cov has shape {shape(cov)}; its last two axes must be equal")
        r = x - mean
        if d == 1 and (ndim(r) == 0 or shape(r)[-1] != 1):
            r = shaping.reshape(r, to=(*shape(r), 1))
        if ndim(r) == 0 or shape(r)[-1] != d:
            raise ShapeError(
                f"multivariate_normal.logpdf: x has shape {shape(x)}, mean {shape(mean)}, cov {shape(cov)}; "
                f"the last axis of x and of mean must have length {d}"
            )
        if ndim(cov) < 2:
            if ndim(cov) == 0 and d > 1:
                cov = shaping.broadcast_to(cov, to=(d,))
            variances = primal_of(cov)
            if issubclass(type(variances), (np.ndarray, float)) and not np.all(variances > 0):
                raise NotPositiveDefiniteError("multivariate_normal.logpdf: cov has a variance that is not positive")
            return -0.5 * shaping.sum(square(r) / cov + log(cov) + LOG_2PI, -1)
        batch = np.broadcast_shapes(shape(r)[:-1], shape(cov)[:-2])
        L = linalg.cholesky(cov)
        if shape(cov)[:-2] == () and len(batch) > 0:  # one factor for all: columns of one triangular system
            flat = shaping.reshape(r, to=(math.prod(batch), d))
            z = shaping.swapped(linalg.solve_triangular(L, shaping.swapped(flat), lower=True))
            quad = shaping.reshape(shaping.sum(square(z), -1), to=batch)
        else:
            z = linalg.solve_triangular(L, shaping.reshape(r, to=(*shape(r), 1)), lower=True)
            quad = shaping.sum(square(z), (-2, -1))
        return -0.5 * quad - log_diagonal(L, d) - 0.5 * d * LOG_2PI

    @derived
    def pdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        return exp(self.logpdf(x, mean, cov, allow_singular))


def log_diagonal(L: Any, d: int) -> Any:
    """The sum of the logarithms of the diagonal."""
    eye = xp(L).eye(d, dtype=dtype(L))
    return shaping.sum(log(shaping.sum(L * eye, -1)), -1)


multivariate_normal = MultivariateNormal()
