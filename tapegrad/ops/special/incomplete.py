"""The incomplete gamma and beta functions, their inverses and Student's distribution function, in all
arguments.

The derivatives with respect to the shape parameters are integrals with powers of logarithms, which
form a closed family. With the density of the gamma distribution, c = psi(a) and

    L_n(a, x) = integral from 0 to x of density(t) (log t - c)^n dt,

L_0 is gammainc, dL_n / da = L_(n+1) - n psi'(a) L_(n-1), and dL_n / dx = density(x) (log x - c)^n.
These do not cancel, except where most of the density lies left of x. There L_n is the moment of the
whole line minus that of the rest. The beta distribution has two logarithms."""

import functools
import math
from typing import Any

import numpy as np
import scipy.special as sp

from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..declare import primitive, rules, same
from ..elementwise import exp, log, log1p, select, times0
from ..piecewise import minimum, special_of
from .asymptotic import special_of2
from .declare import complement, first_array, inverse, special_function
from .error_functions import xlog1py, xlogy
from .gamma import betaln, digamma, gammaln, polygamma_n, psi_gap

GAUSS_NODES = 60
NEGLIGIBLE = 60.0  # a density whose logarithm has fallen by this is negligible
EXPONENTIAL_TAIL = 40.0  # this far left of an integration limit the densities behave as exp(a s)
NEWTON = 30  # Newton steps to find that point


# --- moments of the logarithms on part of the line ---


@functools.cache
def nodes_and_weights(n: int) -> tuple:
    return np.polynomial.legendre.leggauss(n)


def integral(xp: Any, f: Any, low: Any, high: Any) -> Any:
    """The integral of f from low to high (arrays), by Gauss-Legendre quadrature."""
    nodes, weights = [xp.asarray(v) for v in nodes_and_weights(GAUSS_NODES)]
    half = 0.5 * (high - low)
    return (f(0.5 * (high + low)[..., None] + half[..., None] * nodes) * weights).sum(-1) * half


def tail_of(xp: Any, h: Any, slope: Any, s: Any, level: Any) -> Any:
    """The point where a concave h has fallen to `level`, on the side of s from the maximum. Newton's
    iteration starts outside."""
    for _ in range(NEWTON):
        s = s - (h(s) - level) / slope(s)
    return s


def central_moment(cumulant: Any, n: int, m: int = 0) -> Any:
    """The central moment of orders n and m of two variables with these joint cumulants."""
    if n == 0:
        return 1.0 if m == 0 else central_moment(lambda i, j: cumulant(j, i), m)
    total = 0.0
    for i in range(n):
        for j in range(m + 1):
            if i + j > 0:
                total = total + math.comb(n - 1, i) * math.comb(m, j) * cumulant(i + 1, j) * central_moment(
                    cumulant, n - 1 - i, m - j
                )
    return total


def polygammas(special: Any, xp: Any) -> Any:
    def psi(n, x):
        return special.digamma(x) if n == 0 else special.polygamma(n if special is sp else xp.asarray(n), x)

    return psi


def log_peak(xp: Any, special: Any, a: Any) -> Any:
    """log(a^a exp(-a) / Gamma(a)); for large a by Stirling's series."""
    r = 1.0 / xp.maximum(a, 20.0)
    series = r * (1 / 12 - r * r * (1 / 360 - r * r * (1 / 1260 - r * r * (1 / 1680 - r * r / 1188))))
    return xp.where(
        a > 20.0, 0.5 * xp.log(a / (2 * math.pi)) - series, a * xp.log(a) - a - special.gammaln(a)
    )


@primitive(batch="elementwise")
def gamma_moment(a, x, *, n):
    """L_n(a, x). In s = log t the density is exp(a s - exp(s)) / Gamma(a), with its maximum at log a."""
    xp, special = xp_of(first_array(a, x)), special_of(first_array(a, x))
    kind = np.result_type(a, x)
    a, x = xp.broadcast_arrays(xp.asarray(a, dtype=float), xp.asarray(x, dtype=float))
    psi = polygammas(special, xp)
    ok = (a > 0) & (x > 0) & (x < np.inf)
    a1, x1 = xp.where(ok, a, 1.0), xp.where(ok, x, 1.0)
    top, s, centre = xp.log(a1), xp.log(x1), psi(0, a1)
    lower = s < top
    factor = log_peak(xp, special, a1)

    def h(s):
        return a1 * (s - top - xp.expm1(s - top))

    start = xp.where(lower, s, xp.maximum(s, top))
    away = xp.where(lower, start - 70.0 / a1, xp.log(xp.exp(start) + 60.0 + 12.0 * xp.sqrt(a1)))
    end = tail_of(xp, h, lambda s: -a1 * xp.expm1(s - top), away, h(start) - NEGLIGIBLE)
    low, high = xp.where(lower, end, s), xp.where(lower, s, end)

    def moment(t):
        u = t - top[..., None]
        return xp.exp(a1[..., None] * (u - xp.expm1(u)) + factor[..., None]) * (t - centre[..., None]) ** n

    middle = xp.maximum(low, s - EXPONENTIAL_TAIL)
    part = integral(xp, moment, low, middle) + integral(xp, moment, middle, high)
    whole = central_moment(lambda i, _: psi(i - 1, a1), n)
    y = xp.where(lower, part, whole - part)
    edge = xp.where(x == 0, 0.0, xp.where(x == np.inf, whole, np.nan))
    return xp.where(ok, y, xp.where(a > 0, edge, np.nan)).astype(kind)[()]


@primitive(batch="elementwise")
def beta_moment(a, b, x, *, n, m):
    """The integral from 0 to x of the beta density times (log t - c)^n (log(1 - t) - d)^m, with c and d
    the means of the logarithms. In s = logit t the density is log-concave, with its maximum at log(a /
    b)."""
    xp, special = xp_of(first_array(a, b, x)), special_of(first_array(a, b, x))
    kind = np.result_type(a, b, x)
    a, b, x = xp.broadcast_arrays(*[xp.asarray(v, dtype=float) for v in (a, b, x)])
    psi = polygammas(special, xp)
    ok = (a > 0) & (b > 0) & (x > 0) & (x < 1)
    p, q, x1 = xp.where(ok, a, 1.0), xp.where(ok, b, 1.0), xp.where(ok, x, 0.5)
    top, s = xp.log(p / q), xp.log(x1) - xp.log1p(-x1)
    lower = s < top
    turn = xp.where(lower, 1.0, -1.0)  # right of the maximum the line is reversed, with a and b exchanged
    p1, q1, s, top = xp.where(lower, p, q), xp.where(lower, q, p), s * turn, top * turn

    def logs(s):
        return -xp.logaddexp(0.0, -s), -xp.logaddexp(0.0, s)  # log t, log(1 - t)

    def h(s):
        u, v = logs(s)
        return p1 * u + q1 * v

    end = tail_of(xp, h, lambda s: p1 - (p1 + q1) * special.expit(s), s - 70.0 / p1, h(s) - NEGLIGIBLE)
    means, factor = (psi(0, p) - psi(0, p + q), psi(0, q) - psi(0, p + q)), special.betaln(p, q)
    c, d = xp.where(lower, means[0], means[1])[..., None], xp.where(lower, means[1], means[0])[..., None]
    left = lower[..., None]

    def moment(s):
        u, v = logs(s)
        k, r = u - c, v - d
        k, r = xp.where(left, k, r), xp.where(left, r, k)
        return xp.exp(p1[..., None] * u + q1[..., None] * v - factor[..., None]) * k**n * r**m

    middle = xp.maximum(end, s - EXPONENTIAL_TAIL)
    part = integral(xp, moment, end, middle) + integral(xp, moment, middle, s)
    whole = central_moment(
        lambda i, j: (
            (psi(i + j - 1, p) if j == 0 else psi(i + j - 1, q) if i == 0 else 0.0) - psi(i + j - 1, p + q)
        ),
        n,
        m,
    )
    y = xp.where(lower, part, whole - part)
    edge = xp.where(x == 0, 0.0, xp.where(x == 1, whole, np.nan))
    return xp.where(ok, y, xp.where((a > 0) & (b > 0), edge, np.nan)).astype(kind)[()]


def gamma_density(a: Any, x: Any) -> Any:
    x = minimum(x, 1e38)  # at infinity the density and its derivatives are 0
    return exp(xlogy(a - 1.0, x) - x - gammaln(a))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    return exp(xlogy(a - 1.0, x) + xlog1py(b - 1.0, -x) - betaln(a, b))


def integer_power(x: Any, n: int) -> Any:
    return math.prod([x] * n) if n else 1.0


rules(
    gamma_moment,
    lambda g, out, a, x, n: times0(
        g, gamma_moment(a, x, n=n + 1) - (n * polygamma_n(a, n=1) * gamma_moment(a, x, n=n - 1) if n else 0.0)
    ),
    lambda g, out, a, x, n: times0(g, gamma_density(a, x) * integer_power(log(x) - digamma(a), n)),
    jvp=same,
)


def _beta_by_a(a, b, x, n, m):
    y = beta_moment(a, b, x, n=n + 1, m=m)
    if n:
        y = y - n * (polygamma_n(a, n=1) - polygamma_n(a + b, n=1)) * beta_moment(a, b, x, n=n - 1, m=m)
    return y + m * polygamma_n(a + b, n=1) * beta_moment(a, b, x, n=n, m=m - 1) if m else y


def _beta_by_b(a, b, x, n, m):
    y = beta_moment(a, b, x, n=n, m=m + 1)
    if m:
        y = y - m * (polygamma_n(b, n=1) - polygamma_n(a + b, n=1)) * beta_moment(a, b, x, n=n, m=m - 1)
    return y + n * polygamma_n(a + b, n=1) * beta_moment(a, b, x, n=n - 1, m=m) if n else y


def _beta_by_x(a, b, x, n, m):
    return (
        beta_density(a, b, x)
        * integer_power(log(x) + psi_gap(a, b), n)
        * integer_power(log1p(-x) + psi_gap(b, a), m)
    )


rules(
    beta_moment,
    lambda g, out, a, b, x, n, m: times0(g, _beta_by_a(a, b, x, n, m)),
    lambda g, out, a, b, x, n, m: times0(g, _beta_by_b(a, b, x, n, m)),
    lambda g, out, a, b, x, n, m: times0(g, _beta_by_x(a, b, x, n, m)),
    jvp=same,
)

# --- the functions ---


gammainc = special_function(
    sp.gammainc, lambda out, a, x: gamma_moment(a, x, n=1), lambda out, a, x: gamma_density(a, x)
)
gammaincc = complement(sp.gammaincc, gammainc)
gammaincinv = inverse(sp.gammaincinv, gammainc, 1, 1)
gammainccinv = inverse(sp.gammainccinv, gammainc, 1, 1, tail=True)
betainc = special_function(
    sp.betainc,
    lambda out, a, b, x: beta_moment(a, b, x, n=1, m=0),
    lambda out, a, b, x: beta_moment(a, b, x, n=0, m=1),
    lambda out, a, b, x: beta_density(a, b, x),
)
betaincc = complement(sp.betaincc, betainc)
betaincinv = inverse(sp.betaincinv, betainc, 2, 2)
betainccinv = inverse(sp.betainccinv, betainc, 2, 2, tail=True)


@primitive(sp.stdtr)
def stdtr(df, t):
    """Student's distribution function."""
    return special_of2(df, t).stdtr(df, t)


def student_density(df: Any, t: Any) -> Any:
    c = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * log(math.pi * df)
    return exp(c - 0.5 * (df + 1.0) * log1p(t * t / df))


def student_by_df(df: Any, t: Any) -> Any:
    """The derivative with respect to df. For t < 0 the function is betainc(df / 2, 1 / 2, w) / 2 with w =
    df / (df + t^2); it is odd about t = 0."""
    s = df + t * t
    w, half, zero = df / s, 0.5 * df, 0.0 * t
    left = 0.25 * beta_moment(half, 0.5 + zero, w, n=1, m=0) + 0.5 * beta_density(half, 0.5 + zero, w) * (
        t * t
    ) / (s * s)
    return select(primal_of(t) == 0, zero, select(primal_of(t) < 0, left, -left))


rules(
    stdtr,
    lambda g, out, df, t: times0(g, student_by_df(df, t)),
    lambda g, out, df, t: g * student_density(df, t),
    jvp=same,
)
