"""Continuous autoregressions with moving averages, CARMA(p, q), at irregular times, in O(N p^2).

    loglik = process(p=2, q=1, mean=True)
    data = light_curve(t, y, variance)          as for `celerite`: nan in y is missing
    loglik(theta, data)                         theta (p + q + 1 + 1, B): (B,)
    loglik.value_and_grad(theta, data)          (B,), (p + q + 2, B)

The process solves  alpha(D) y = sigma beta(D) w'  with D = d/dt, w' white noise of unit intensity, beta(z) =
1 + beta_1 z + ... + beta_q z^q, and alpha(z) a product of factors z^2 + alpha_1 z + alpha_0, and z + alpha_0
if p is odd.  Rows of theta, in this order:

    alpha_0, alpha_1        of each of p // 2 quadratic factors
    alpha_0                 of the linear factor, if p is odd
    beta_1 ... beta_q       any numbers: the likelihood depends on |beta(i w)| alone
    sigma
    jitter, mean            if asked for, as in `celerite`

CARMA(1, 0) is the damped random walk, with the covariance sigma^2 / (2 alpha_0) exp(-alpha_0 tau); CARMA(2,
1) the damped and driven oscillator.  The process is stationary where every alpha_0 and alpha_1 is positive;
others are not valid, nor is sigma <= 0.  The covariance is a sum of one quadratic or real term of `celerite`
for each factor.  These are smooth where the two roots of a factor meet. Where roots of two factors meet, the
terms grow without bound and cancel, which costs digits of the value and more of its gradient: parameters for
which the sizes of the terms add up to more than eps^(-1/5) times the variance of the process, 1351 times in
float64 and 24 times in float32, are not valid; the gradient keeps half of its digits, and second derivatives
fewer.  In float64 such roots differ by some thousandths at least; p > 2 in float32 is of little use.

Sources: Kelly, Becker, Sobolewska, Siemiginowska and Uttley, Flexible and scalable methods for quantifying
stochastic variability in the era of massive time-domain astronomical data sets, Astrophysical Journal 788:33
(2014), whose roots are here taken by factors.

>>> import numpy as np, tapegrad as tg
>>> carma = tg.kernels.carma
>>> data = carma.light_curve([0.0, 0.3, 1.1, 1.2], [0.5, np.nan, -0.2, -0.1], 0.01)
>>> value, gradient = carma.process(p=2, q=1).value_and_grad(np.array([[1.0], [0.5], [0.2], [0.8]]), data)
>>> value.round(4), gradient[:, 0].round(4)
(array([-1.1752]), array([ 0.5914,  1.4315, -0.2513, -1.6789]))
"""

import functools

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, ShapeError
from ..._core.primitive import layout_of, values_of
from ..._transforms.hessian_products import hvp
from ..generated.arguments import as_float
from ..generated.map import map_
from .celerite import MOST_TERMS
from .celerite import light_curve as light_curve
from .celerite import process as terms_process
from .models import LibraryKernel

# --- numbers x + y e with e^2 = -s: values of polynomials at both roots -c +- e of a quadratic factor ---


def complex_product(a: tuple, b: tuple, s) -> tuple:
    return a[0] * b[0] - s * (a[1] * b[1]), a[0] * b[1] + a[1] * b[0]


def complex_quotient(a: tuple, b: tuple, s) -> tuple:
    norm = b[0] * b[0] + s * (b[1] * b[1])
    x, y = complex_product(a, (b[0], -b[1]), s)
    return x / norm, y / norm


def moving_average_polynomial(beta: list, z: tuple, s) -> tuple:
    """Return 1 + beta_1 z + ... + beta_q z^q."""
    total = 0 * z[0], 0 * z[0]
    for b in reversed(beta):
        total = complex_product((total[0] + b, total[1]), z, s)
    return total[0] + 1, total[1]


def quadratic_term(n: int, factors: list, rate, beta: list) -> tuple:
    """Return a and b of the term of factor n for sigma = 1, from the residues at both of its roots.

    `factors` are pairs of w and c."""
    w, c = factors[n]
    s = w - c * c
    one = 1 + 0 * c
    below = 4 * c * c, -4 * c  # alpha(-z) times the other factors of alpha(z)
    for k, (wk, ck) in enumerate(factors):
        if k != n:
            near, far = ck - c, ck + c
            below = complex_product(below, (wk - w - 2 * c * near, 2 * near), s)
            below = complex_product(below, (wk - w + 2 * c * far, -2 * far), s)
    if rate is not None:
        below = complex_product(complex_product(below, (rate - c, one), s), (rate + c, -one), s)
    above = complex_product(
        moving_average_polynomial(beta, (-c, one), s), moving_average_polynomial(beta, (c, -one), s), s
    )
    b, a = complex_quotient(above, below, s)
    return a, b


def linear_term(factors: list, rate, beta: list):
    """Return a of the term of the linear factor, for sigma = 1."""
    zero = 0 * rate
    below = 2 * rate
    for w, c in factors:
        below = below * (rate * rate - 2 * c * rate + w) * (rate * rate + 2 * c * rate + w)
    return (
        moving_average_polynomial(beta, (rate, zero), zero)[0]
        * moving_average_polynomial(beta, (-rate, zero), zero)[0]
        / below
    )


class CarmaKernel(LibraryKernel):
    """CARMA(p, q); made by `process`."""

    def __init__(self, p: int, q: int, jitter: int, mean: int, invalid: str = "reject"):
        self.__name__ = f"carma({p}, {q})"
        self.p, self.q, self._more, self._invalid = p, q, jitter + mean, invalid
        self._sizes = p, q, jitter, mean
        kernel = terms_process(real=p % 2, quadratic=p // 2, jitter=bool(jitter), mean=bool(mean))
        self.kernel = kernel if invalid == "reject" else kernel.options(invalid=invalid)
        self._map = map_(self._rows)
        inside = [x for k in range(p // 2) for x in (2.0 * (k + 1) ** 2, 2.0 * (k + 1))] + [0.5] * (p % 2)
        self._inside = np.array(inside + [0.0] * q + [1.0] + [0.0] * self._more)[:, None]  # valid parameters

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"

    def options(self, *, invalid: str = "reject") -> "CarmaKernel":
        """This kernel with `invalid='nan'`: a sample with parameters that are not valid has value and
        derivatives nan."""
        return self._with(CarmaKernel(*self._sizes, invalid), invalid=invalid)

    # --- calls ---

    def __call__(self, theta, data):
        """The log-likelihood of each sample, (B,); theta (rows, B), or (rows,) for one number."""
        theta = self._checked(theta)
        value = self.kernel(self._mapped(theta)[0], self._curves(data))
        return value[0] if theta.ndim == 1 else value

    def value_and_grad(self, theta, data) -> tuple:
        """(B,) and (rows, B)."""
        theta = self._checked(theta)
        rows, pull = self._mapped(theta)
        value, gradient = self.kernel.value_and_grad(rows, self._curves(data))
        gradient = pull(gradient)
        if self._invalid == "nan":
            gradient = np.where(np.isnan(values_of(value)), np.nan, gradient)
        return (value[0], gradient[:, 0]) if theta.ndim == 1 else (value, gradient)

    def grad(self, theta, data):
        """(rows, B)."""
        return self.value_and_grad(theta, data)[1]

    def hvp(self, theta, v, data):
        """The Hessian of each sample times v[:, sample], (rows, B)."""
        theta = self._checked(theta)
        v = as_float(v, f"{self.__name__}.hvp: v")
        if tuple(v.shape) != tuple(theta.shape):
            raise ShapeError(f"{self.__name__}.hvp: v has shape {tuple(v.shape)}, theta {tuple(theta.shape)}")
        return hvp(lambda x: self(x, data).sum(), theta, v)

    def hessian(self, theta, data):
        """(B, rows, rows)."""
        theta = self._checked(theta)
        xp = xp_of(layout_of(theta))
        units = xp.eye(len(theta), dtype=layout_of(theta).dtype)
        columns = [
            self.hvp(theta, unit if theta.ndim == 1 else unit[:, None] + 0 * values_of(theta), data)
            for unit in units
        ]
        return xp.stack(columns) if theta.ndim == 1 else xp.stack(columns).transpose((2, 0, 1))

    def terms(self, theta):
        """The parameters of the terms for `celerite.process`, differentiable by theta; nan where that is not
        valid."""
        theta = self._checked(theta)
        rows = self._mapped(theta)[0]
        return rows[:, 0] if theta.ndim == 1 else rows

    # --- parts ---

    def _checked(self, theta):
        theta = as_float(theta, f"{self.__name__}: theta")
        wanted = self.p + self.q + 1 + self._more
        if theta.ndim not in (1, 2) or theta.shape[0] != wanted:
            raise ShapeError(
                f"{self.__name__}: theta has shape {tuple(theta.shape)}; wanted is ({wanted}, B) or "
                f"({wanted},)"
            )
        return theta

    def _curves(self, data):
        data = as_float(data, f"{self.__name__}: data")
        if data.ndim not in (2, 3) or data.shape[0] != 3:
            raise ShapeError(
                f"{self.__name__}: the data have shape {tuple(data.shape)}; wanted is that of light_curve, "
                f"(3, N) or (3, N, B)"
            )
        return data

    def _mapped(self, theta) -> tuple:
        """Return the rows for the kernel, nan where theta is invalid, and their pullback; theta is (rows,
        B)."""
        theta = theta.reshape((-1, 1)) if theta.ndim == 1 else theta
        at = values_of(theta)
        xp, (size, batch) = xp_of(at), at.shape
        family, _ = self._map._family(((size,),), (False,))
        run, rest = self._map._launch(family), xp.zeros((0, batch), at.dtype)
        with np.errstate(all="ignore"):
            valid = (at[: self.p] > 0).all(axis=0) & (at[self.p + self.q] > 0) & xp.isfinite(at).all(axis=0)
            valid = valid & self._keeps_digits(xp, run("F", (0, 0), (at, rest)))
        if xp is not np or not valid.all():
            theta = np.where(valid, theta, xp.asarray(self._inside, at.dtype))
        rows = np.where(valid, family.F(run, theta, rest), np.nan)
        return rows, lambda g: family.gradient("R", run, theta, rest, (), (), np.where(valid, g, 0.0))

    def _rows(self, theta):
        """Return the rows of one sample, valid where the roots of different factors differ."""
        p, q = self.p, self.q
        factors = [(theta[2 * k], 0.5 * theta[2 * k + 1]) for k in range(p // 2)]
        rate, beta = theta[p - 1] if p % 2 else None, [theta[p + k] for k in range(q)]
        power = theta[p + q] * theta[p + q]
        rows = [] if rate is None else [power * linear_term(factors, rate, beta), rate]
        for n, (w, c) in enumerate(factors):
            a, b = quadratic_term(n, factors, rate, beta)
            rows += [power * a, power * b, c, w]
        return np.stack(rows + [theta[p + q + 1 + k] for k in range(self._more)])

    def _keeps_digits(self, xp, rows):
        """Return whether the terms are not much larger than their sum, the variance of the process."""
        first = 2 * (self.p % 2)
        total, size = sum(rows[0:first:2]) + 0 * rows[0], sum(abs(rows[0:first:2])) + 0 * rows[0]
        for k in range(first, first + 4 * (self.p // 2), 4):
            a, b, c, w = rows[k : k + 4]
            total, size = total + a, size + abs(a) + abs(b) / xp.maximum(c, xp.sqrt(abs(w - c * c)))
        return xp.isfinite(size) & (size * float(np.finfo(rows.dtype).eps) ** 0.2 <= total)


def process(*, p: int, q: int = 0, jitter: bool = False, mean: bool = False) -> CarmaKernel:
    """The kernel of CARMA(p, q), 0 <= q < p <= 12; the same arguments give the same kernel.

    >>> data = light_curve([0.0, 1.0, 3.0], [0.2, 0.5, -0.3], 0.1)
    >>> process(p=1)(np.array([0.2, 0.6]), data).round(4)       # a damped random walk
    np.float64(-2.5608)
    """
    if not all([isinstance(n, (int, np.integer)) for n in (p, q)]) or not 0 <= q < p <= MOST_TERMS:
        raise ArgumentError(
            f"carma.process(p={p!r}, q={q!r}): wanted are whole numbers with 0 <= q < p <= {MOST_TERMS}"
        )
    return carma_kernel(int(p), int(q), int(bool(jitter)), int(bool(mean)))


@functools.cache
def carma_kernel(p: int, q: int, jitter: int, mean: int) -> CarmaKernel:
    made = CarmaKernel(p, q, jitter, mean)
    made._place = carma_kernel, (p, q, jitter, mean)
    return made
