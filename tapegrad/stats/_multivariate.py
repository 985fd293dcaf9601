"""Distributions of vectors and matrices."""

import math

import numpy as np

from .._core.errors import NotPositiveDefiniteError, ShapeError
from .._core.primitive import is_tracked, primal_of, values_of
from ..ops import shaping
from ..ops.declare import dtype, ndim, primitive, shape, xp
from ..ops.elementwise import exp, log, square
from ..ops.linalg import factorizations
from ..ops.products import T, matmul
from ..ops.special.declare import valued
from ._classic import LOG_2PI
from ._families import Distribution, array_argument, number_like, scipy_stats, tracked_method, wide


@primitive()
def scipys_law(*xs, name, call, singular=False):
    """What SciPy's law of this name gives for plain values."""
    return np.asarray(
        getattr(getattr(scipy_stats(), name), call)(*xs, **({"allow_singular": True} if singular else {}))
    )[()]


class MultivariateNormal(Distribution):
    """`logpdf(x, mean, cov)` and `pdf`: x (..., d), mean a number or (..., d), cov a number, (d,) variances
    or (..., d, d).

    Leading axes broadcast.  The density is that of the symmetric part of cov, so the gradient in cov is
    symmetric.
    """

    def __init__(self):
        self.name = "multivariate_normal"

    def parameters(self, frozen) -> dict:
        """Those of SciPy's frozen law."""
        return {
            "mean": frozen.mean,
            "cov": frozen.cov_object.covariance,
            "allow_singular": frozen.allow_singular,
        }

    @tracked_method
    def logpdf(self, x, mean=None, cov=1.0, allow_singular: bool = False):
        """
        >>> import numpy as np, tapegrad as tg
        >>> from tapegrad.stats import multivariate_normal
        >>> S = np.array([[2.0, 0.5], [0.5, 1.0]])
        >>> float(multivariate_normal.logpdf(np.array([0.3, -0.7]), 0.0, S).round(6))
        -2.483399
        """
        return self._answer("logpdf", x, mean, cov, allow_singular)

    @tracked_method
    def pdf(self, x, mean=None, cov=1.0, allow_singular: bool = False):
        return self._answer("pdf", x, mean, cov, allow_singular)

    def _answer(self, call: str, x, mean, cov, allow_singular: bool):
        x = wide(array_argument(x))
        if hasattr(cov, "whiten"):  # a `Covariance`
            cov, allow_singular = cov.covariance, cov._allow_singular
        mean, cov = number_like(0.0 if mean is None else mean, x), number_like(cov, x)
        y, singular = self._log(x, mean, cov, allow_singular)
        y = exp(y) if call == "pdf" else y
        # as SciPy takes them, which leaves out axes of length 1
        if xp(y) is np and max(ndim(mean), ndim(cov) - 1) < 2:
            y = shaping.reshape(y, to=tuple([n for n in shape(y) if n != 1]))
            if singular:
                given = [primal_of(v) for v in (x, mean, cov)]
                y = valued(y, scipys_law(*given, name=self.name, call=call, singular=True))
        return y

    def _log(self, x, mean, cov, allow_singular: bool) -> tuple:
        """(The log density, is it that of a singular cov?)."""
        d = shape(cov)[-1] if ndim(cov) else shape(mean)[-1] if ndim(mean) else 1
        if ndim(cov) >= 2 and shape(cov)[-2] != d:
            raise ShapeError(
                f"multivariate_normal.logpdf: cov has shape {shape(cov)}; its last two axes must be equal"
            )
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
                raise NotPositiveDefiniteError(
                    "multivariate_normal.logpdf: cov has a variance that is not positive"
                )
            return -0.5 * shaping.sum(square(r) / cov + log(cov) + LOG_2PI, -1), False
        if allow_singular and ndim(cov) == 2 and not is_tracked(cov):
            y = self._of_singular(r, values_of(cov))
            if y is not None:
                return y, True
        batch = np.broadcast_shapes(shape(r)[:-1], shape(cov)[:-2])
        L = factorizations.cholesky(cov)
        if shape(cov)[:-2] == () and len(batch) > 0:  # one factor for all: columns of one triangular system
            flat = shaping.reshape(r, to=(math.prod(batch), d))
            z = T(factorizations.solve_triangular(L, T(flat), lower=True))
            quad = shaping.reshape(shaping.sum(square(z), -1), to=batch)
        else:
            z = factorizations.solve_triangular(L, shaping.reshape(r, to=(*shape(r), 1)), lower=True)
            quad = shaping.sum(square(z), (-2, -1))
        return -0.5 * quad - log_diagonal(L, d) - 0.5 * d * LOG_2PI, False

    def _of_singular(self, r, cov: np.ndarray):
        """The log density in the space that a constant cov spans, or None where it is regular.  The limit is
        SciPy's."""
        w, u = np.linalg.eigh(cov)
        kept = w > 1e6 * np.finfo(w.dtype).eps * abs(w).max()
        if kept.all():
            return None
        z = matmul(r, u[:, kept] / np.sqrt(w[kept]))
        return -0.5 * (shaping.sum(square(z), -1) + np.log(w[kept]).sum() + kept.sum() * LOG_2PI)


def log_diagonal(L, d: int):
    """The sum of the logarithms of the diagonal."""
    eye = xp(L).eye(d, dtype=dtype(L))
    return shaping.sum(log(shaping.sum(L * eye, -1)), -1)


multivariate_normal = MultivariateNormal()


# --- laws of shares, counts, directions and matrices, by SciPy's own code ---


class FollowedLaw(Distribution):
    """A law without formulas of ours."""

    def __init__(self, name: str):
        self.name = name

    def knows(self, call: str) -> bool:
        return False


matrix_t = FollowedLaw("matrix_t")
normal_inverse_gamma = FollowedLaw("normal_inverse_gamma")
vonmises_fisher = FollowedLaw("vonmises_fisher")
poisson_binom = FollowedLaw("poisson_binom")
dirichlet = FollowedLaw("dirichlet")
multinomial = FollowedLaw("multinomial")
dirichlet_multinomial = FollowedLaw("dirichlet_multinomial")
multivariate_t = FollowedLaw("multivariate_t")
wishart = FollowedLaw("wishart")
invwishart = FollowedLaw("invwishart")
matrix_normal = FollowedLaw("matrix_normal")
