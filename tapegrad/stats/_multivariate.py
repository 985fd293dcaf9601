"""Distributions of vectors and matrices."""

import math
from typing import Any

import numpy as np

from .._core.errors import ArgumentError, NotPositiveDefiniteError, ShapeError
from .._core.primitive import is_tracked, primal_of, values_of
from ..ops import shaping
from ..ops.declare import dtype, ndim, primitive, shape, xp
from ..ops.elementwise import exp, log, select, square
from ..ops.linalg import factorizations
from ..ops.products import matmul
from ..ops.special.bessel_relatives import ive
from ..ops.special.declare import valued
from ..ops.special.error_functions import xlogy
from ..ops.special.gamma import gammaln, multigammaln
from ._classic import LOG_2PI, LOG_PI
from ._families import Distribution, array_argument, number_like, scipy_stats, tracked_method, wide


@primitive()
def scipys_law(*xs, name, call, singular=False):
    """What SciPy's law of this name gives for plain values."""
    return np.asarray(getattr(getattr(scipy_stats(), name), call)(*xs, **({"allow_singular": True} if singular else {})))[()]


class MultivariateNormal(Distribution):
    """`logpdf(x, mean, cov)` and `pdf`: x (..., d), mean a number or (..., d), cov a number, (d,) variances
    or (..., d, d).

    Leading axes broadcast.  The density is that of the symmetric part of cov, so the gradient in cov is
    symmetric.
    """

    def __init__(self):
        self.name = "multivariate_normal"

    def parameters(self, frozen: Any) -> dict:
        """Those of SciPy's frozen law."""
        return {"mean": frozen.mean, "cov": frozen.cov_object.covariance, "allow_singular": frozen.allow_singular}

    @tracked_method
    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """
        >>> import numpy as np, tapegrad as tg
        >>> from tapegrad.stats import multivariate_normal
        >>> S = np.array([[2.0, 0.5], [0.5, 1.0]])
        >>> float(multivariate_normal.logpdf(np.array([0.3, -0.7]), 0.0, S).round(6))
        -2.483399
        """
        return self._answer("logpdf", x, mean, cov, allow_singular)

    @tracked_method
    def pdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        return self._answer("pdf", x, mean, cov, allow_singular)

    def _answer(self, call: str, x: Any, mean: Any, cov: Any, allow_singular: bool) -> Any:
        x = wide(array_argument(x))
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

    def _log(self, x: Any, mean: Any, cov: Any, allow_singular: bool) -> tuple:
        """(The log density, is it that of a singular cov?)."""
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
            return -0.5 * shaping.sum(square(r) / cov + log(cov) + LOG_2PI, -1), False
        if allow_singular and ndim(cov) == 2 and not is_tracked(cov):
            y = self._of_singular(r, values_of(cov))
            if y is not None:
                return y, True
        batch = np.broadcast_shapes(shape(r)[:-1], shape(cov)[:-2])
        L = factorizations.cholesky(cov)
        if shape(cov)[:-2] == () and len(batch) > 0:  # one factor for all: columns of one triangular system
            flat = shaping.reshape(r, to=(math.prod(batch), d))
            z = shaping.swapped(factorizations.solve_triangular(L, shaping.swapped(flat), lower=True))
            quad = shaping.reshape(shaping.sum(square(z), -1), to=batch)
        else:
            z = factorizations.solve_triangular(L, shaping.reshape(r, to=(*shape(r), 1)), lower=True)
            quad = shaping.sum(square(z), (-2, -1))
        return -0.5 * quad - log_diagonal(L, d) - 0.5 * d * LOG_2PI, False

    def _of_singular(self, r: Any, cov: np.ndarray) -> Any:
        """The log density in the space that a constant cov spans, or None where it is regular.  The limit is
        SciPy's."""
        w, u = np.linalg.eigh(cov)
        kept = w > 1e6 * np.finfo(w.dtype).eps * abs(w).max()
        if kept.all():
            return None
        z = matmul(r, u[:, kept] / np.sqrt(w[kept]))
        return -0.5 * (shaping.sum(square(z), -1) + np.log(w[kept]).sum() + kept.sum() * LOG_2PI)


def log_diagonal(L: Any, d: int) -> Any:
    """The sum of the logarithms of the diagonal."""
    eye = xp(L).eye(d, dtype=dtype(L))
    return shaping.sum(log(shaping.sum(L * eye, -1)), -1)


multivariate_normal = MultivariateNormal()


# --- laws of shares, counts and matrices ---


class Law(Distribution):
    """A law by its log density `log` of (value, parameters), given by their names; `mass`: of counts, whose
    functions are logpmf, pmf."""

    def __init__(self, name: str, names: str, log: Any, mass: bool = False):
        self.name, self.names, self._log = name, names.split(), log
        self._mass = mass

    def parameters(self, frozen: Any) -> dict:
        """Those of SciPy's frozen law."""
        if hasattr(frozen, "_shapes"):
            return dict(zip(self.names[1:], frozen._shapes, strict=True))
        return {n: getattr(frozen, n) for n in self.names}

    def _evaluated(self, call: str, x: Any, args: tuple, given: dict) -> Any:
        if call.endswith("pmf") != self._mass:
            raise ArgumentError(f"scipy.stats.{self.name} has {'logpmf and pmf' if self._mass else 'logpdf and pdf'}, not {call}")
        args = [*args, *[given.pop(n) for n in self.names[len(args) :] if n in given]]
        if given or len(args) > len(self.names):
            raise ArgumentError(f"{self.name}.{call} takes (x, {', '.join(self.names)}); got more, or {', '.join(given)}")
        y = self._log(array_argument(x), *[array_argument(a) for a in args])
        y = exp(y) if call in ("pdf", "pmf") else y
        if xp(y) is not np:
            return y
        own = scipys_law(*[primal_of(array_argument(v)) for v in (x, *args)], name=self.name, call=call)
        return valued(shaping.reshape(y, to=shape(own)), own)

    @tracked_method
    def logpdf(self, x: Any, *args: Any, **given: Any) -> Any:
        return self._evaluated("logpdf", x, args, given)

    @tracked_method
    def pdf(self, x: Any, *args: Any, **given: Any) -> Any:
        return self._evaluated("pdf", x, args, given)

    @tracked_method
    def logpmf(self, x: Any, *args: Any, **given: Any) -> Any:
        return self._evaluated("logpmf", x, args, given)

    @tracked_method
    def pmf(self, x: Any, *args: Any, **given: Any) -> Any:
        return self._evaluated("pmf", x, args, given)


def dirichlet_log(x: Any, alpha: Any) -> Any:
    """x (n,) or (n, samples), or without its last element, which is what is left of 1."""
    if shape(x)[0] == shape(alpha)[0] - 1:
        x = shaping.concatenate(x, shaping.reshape(1.0 - shaping.sum(x, 0), to=(1, *shape(x)[1:])))
    a = shaping.reshape(alpha, to=(-1,) + (1,) * (ndim(x) - 1))
    constant = shaping.sum(gammaln(alpha)) - gammaln(shaping.sum(alpha))
    return shaping.sum(xlogy(a - 1.0, x), 0) - constant


def multinomial_log(x: Any, n: Any, p: Any) -> Any:
    return gammaln(n + 1.0) + shaping.sum(xlogy(x, p) - gammaln(x + 1.0), -1)


def dirichlet_multinomial_log(x: Any, alpha: Any, n: Any) -> Any:
    total = shaping.sum(alpha, -1)
    each = gammaln(x + alpha) - gammaln(alpha) - gammaln(x + 1.0)
    return gammaln(total) + gammaln(n + 1.0) - gammaln(n + total) + shaping.sum(each, -1)


def multivariate_t_log(x: Any, loc: Any = None, shape_: Any = 1.0, df: Any = 1.0) -> Any:
    d = shape(shape_)[-1] if ndim(shape_) else 1
    L = factorizations.cholesky(shape_) if ndim(shape_) else shape_**0.5 * np.eye(1)
    r = x if loc is None else x - loc
    z = factorizations.solve_triangular(L, shaping.reshape(r, to=(-1, d)).T, lower=True)
    quad = shaping.reshape(shaping.sum(square(z), 0), to=shape(r)[:-1] if ndim(r) else ())
    c = gammaln(0.5 * (df + d)) - gammaln(0.5 * df) - 0.5 * d * log(df * math.pi) - log_diagonal(L, d)
    return c - 0.5 * (df + d) * log(1.0 + quad / df)


def wishart_log(x: Any, df: Any, scale: Any) -> Any:
    d = shape(scale)[-1]
    L, C = factorizations.cholesky(x), factorizations.cholesky(scale)
    trace = shaping.sum(square(factorizations.solve_triangular(C, L, lower=True)))
    halves = 0.5 * df * d * math.log(2.0) + multigammaln(0.5 * df, d)
    return (df - d - 1.0) * log_diagonal(L, d) - 0.5 * trace - df * log_diagonal(C, d) - halves


def invwishart_log(x: Any, df: Any, scale: Any) -> Any:
    d = shape(scale)[-1]
    L, C = factorizations.cholesky(x), factorizations.cholesky(scale)
    trace = shaping.sum(square(factorizations.solve_triangular(L, C, lower=True)))
    halves = 0.5 * df * d * math.log(2.0) + multigammaln(0.5 * df, d)
    return df * log_diagonal(C, d) - (df + d + 1.0) * log_diagonal(L, d) - 0.5 * trace - halves


def matrix_normal_log(x: Any, mean: Any = None, rowcov: Any = 1, colcov: Any = 1) -> Any:
    n, k = shape(x)[-2:]
    R, C = (
        factorizations.cholesky(rowcov if ndim(rowcov) else rowcov * np.eye(n)),
        factorizations.cholesky(colcov if ndim(colcov) else colcov * np.eye(k)),
    )
    e = factorizations.solve_triangular(R, x if mean is None else x - mean, lower=True)
    z = factorizations.solve_triangular(C, e.T, lower=True)
    return -0.5 * shaping.sum(square(z)) - 0.5 * n * k * LOG_2PI - k * log_diagonal(R, n) - n * log_diagonal(C, k)


def matrix_t_log(x: Any, mean: Any = None, row_spread: Any = 1, col_spread: Any = 1, df: Any = 1) -> Any:
    n, k = shape(x)[-2:]
    R, C = (
        factorizations.cholesky(row_spread if ndim(row_spread) else row_spread * np.eye(n)),
        factorizations.cholesky(col_spread if ndim(col_spread) else col_spread * np.eye(k)),
    )
    z = factorizations.solve_triangular(C, factorizations.solve_triangular(R, x if mean is None else x - mean, lower=True).T, lower=True)
    inner = factorizations.cholesky(np.eye(k) + z @ z.T)
    half = 0.5 * (df + n + k - 1.0)
    constant = multigammaln(half, k) - multigammaln(half - 0.5 * n, k) - 0.5 * n * k * LOG_PI
    return constant - 2.0 * half * log_diagonal(inner, k) - k * log_diagonal(R, n) - n * log_diagonal(C, k)


def normal_inverse_gamma_log(x: Any, s2: Any, mu: Any = 0.0, lmbda: Any = 1.0, a: Any = 1.0, b: Any = 1.0) -> Any:
    front = 0.5 * (log(lmbda) - LOG_2PI) + a * log(b) - gammaln(a * 1.0)
    return front - (a + 1.5) * log(s2) - (2.0 * b + lmbda * square(x - mu)) / (2.0 * s2)


def vonmises_fisher_log(x: Any, mu: Any = None, kappa: Any = 1.0) -> Any:
    half = 0.5 * shape(mu)[-1]
    return (half - 1.0) * log(kappa) - half * LOG_2PI - log(ive(half - 1.0, kappa)) - kappa + kappa * shaping.sum(x * mu, -1)


def poisson_binom_log(k: Any, p: Any) -> Any:
    """The coefficients of the product of 1 - p + p t."""
    if ndim(p) != 1:
        raise ArgumentError("scipy.stats.poisson_binom: with probabilities of one axis only on a tracked Variable")
    y = np.ones(1)
    for j in range(shape(p)[0]):
        y = shaping.concatenate(y * (1.0 - p[j]), np.zeros(1)) + shaping.concatenate(np.zeros(1), y * p[j])
    at = np.asarray(primal_of(k))
    inside = (at >= 0) & (at <= shape(p)[0]) & (at == np.floor(at))
    found = y[np.where(inside, at, 0).astype(int)]
    return select(inside, log(found), -math.inf)


matrix_t = Law("matrix_t", "mean row_spread col_spread df", matrix_t_log)
normal_inverse_gamma = Law("normal_inverse_gamma", "s2 mu lmbda a b", normal_inverse_gamma_log)
vonmises_fisher = Law("vonmises_fisher", "mu kappa", vonmises_fisher_log)
poisson_binom = Law("poisson_binom", "p", poisson_binom_log, mass=True)
dirichlet = Law("dirichlet", "alpha", dirichlet_log)
multinomial = Law("multinomial", "n p", multinomial_log, mass=True)
dirichlet_multinomial = Law("dirichlet_multinomial", "alpha n", dirichlet_multinomial_log, mass=True)
multivariate_t = Law("multivariate_t", "loc shape df", multivariate_t_log)
wishart = Law("wishart", "df scale", wishart_log)
invwishart = Law("invwishart", "df scale", invwishart_log)
matrix_normal = Law("matrix_normal", "mean rowcov colcov", matrix_normal_log)
