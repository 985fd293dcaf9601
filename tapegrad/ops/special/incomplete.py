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

import numpy as np
import scipy.special as sp

from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..declare import primitive, rules, same
from ..elementwise import exp, log, log1p, select, times0
from ..piecewise import maximum, minimum, special_of
from .asymptotic import special_of2
from .declare import complement, first_array, inverse, slopes, special_function
from .error_functions import xlog1py, xlogy
from .gamma import (
    betaln,
    digamma,
    gammaln,
    log_half_step,
    polygamma_in_kernels,
    polygamma_n,
    psi_gap,
    psi_gap_in_kernels,
)

GAUSS_NODES = 60
NEGLIGIBLE = 60.0  # a density whose logarithm has fallen by this is negligible
EXPONENTIAL_TAIL = 40.0  # this far left of an integration limit the densities behave as exp(a s)
NEWTON = 30  # Newton steps to find that point


# --- moments of the logarithms on part of the line ---


def integer_power(x, n: int):
    return math.prod([x] * n) if n else 1.0


@functools.cache
def nodes_and_weights(n: int) -> tuple:
    return np.polynomial.legendre.leggauss(n)


def integral(xp, f, low, high):
    """The integral of f from low to high (arrays), by Gauss-Legendre quadrature."""
    nodes, weights = [xp.asarray(v) for v in nodes_and_weights(GAUSS_NODES)]
    half = 0.5 * (high - low)
    return (f(0.5 * (high + low)[..., None] + half[..., None] * nodes) * weights).sum(-1) * half


def tail_of(xp, h, slope, s, level):
    """The point where a concave h has fallen to `level`, on the side of s from the maximum. Newton's
    iteration starts outside."""
    for _ in range(NEWTON):
        s = s - (h(s) - level) / slope(s)
    return s


def central_moment(cumulant, n: int, m: int = 0):
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


def polygamma_gain(n: int, x, step=None):
    """The polygamma function of order n at x, or what it gains from x to x + step."""
    if step is not None:
        return psi_gap(x, step, n=n)
    return polygamma_n(x, n=n) if n else digamma(x)


def polygamma_gain_in_kernels(n: int, x, step=None):
    """The same of symbols."""
    if step is not None:
        return psi_gap_in_kernels(x, step, n=n)
    return polygamma_in_kernels(x, n=n) if n else sp.digamma(x)


def log_peak(xp, special, a):
    """log(a^a exp(-a) / Gamma(a)); for large a by Stirling's series."""
    r = 1.0 / xp.maximum(a, 20.0)
    series = r * (1 / 12 - r * r * (1 / 360 - r * r * (1 / 1260 - r * r * (1 / 1680 - r * r / 1188))))
    return xp.where(
        a > 20.0, 0.5 * xp.log(a / (2 * math.pi)) - series, a * xp.log(a) - a - special.gammaln(a)
    )


def gamma_integral(xp, special, psi, a, x, n: int, *, tail: bool = False):
    """L_n(a, x), of numbers, arrays or symbols. In s = log t the density is exp(a s - exp(s)) / Gamma(a),
    with its maximum at log a. `tail`: the integral from x to infinity."""
    ok = (a > 0) & (x > 0) & (x < np.inf)
    a1, x1 = xp.where(a > 0, a, 1.0), xp.where(ok, x, 1.0)
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
        density = xp.exp(a1[..., None] * (u - xp.expm1(u)) + factor[..., None])
        return density * integer_power(t - centre[..., None], n)

    middle = xp.maximum(low, s - EXPONENTIAL_TAIL)
    part = integral(xp, moment, low, middle) + integral(xp, moment, middle, high)
    whole = central_moment(lambda i, _: psi(i - 1, a1), n)
    y = xp.where(lower, *(whole - part, part) if tail else (part, whole - part))
    edge = xp.where(x == (np.inf if tail else 0), 0.0, xp.where(x == (0 if tail else np.inf), whole, np.nan))
    return xp.where(ok, y, xp.where(a > 0, edge, np.nan))


def of_float_arrays(integral, *given, **orders):
    """The value of `gamma_integral` or `beta_integral`, in the arguments' dtype."""
    xp, special, kind = xp_of(first_array(*given)), special_of(first_array(*given)), np.result_type(*given)
    arrays = xp.broadcast_arrays(*[xp.asarray(v, dtype=float) for v in given])
    return integral(xp, special, polygamma_gain, *arrays, **orders).astype(kind)[()]


def moment_in_kernels(integral, **fixed):
    """`gamma_integral` or `beta_integral` of symbols."""
    return functools.partial(integral, np, sp, polygamma_gain_in_kernels, **fixed)


@primitive(batch="elementwise", scalar=moment_in_kernels(gamma_integral), rough=True)
def gamma_moment(a, x, *, n):
    """L_n(a, x)."""
    return of_float_arrays(gamma_integral, a, x, n=n)


def beta_integral(xp, special, psi, a, b, x, n: int, m: int, *, tail: bool = False):
    """The integral from 0 to x (`tail`: from x to 1) of the beta density times (log t - c)^n (log(1 - t) -
    d)^m, with c and d the means of the logarithms."""
    inside = (x > 0) & (x < 1)
    x1 = xp.where(inside, x, 0.5)
    ends = xp.where(x == 0, -np.inf, xp.where(x == 1, np.inf, np.nan))
    s = xp.where(inside, xp.log(x1) - xp.log1p(-x1), ends)
    return integral_to_logit(xp, special, psi, a, b, s, n, m, tail=tail)


def integral_to_logit(xp, special, psi, a, b, s, n: int, m: int, *, tail: bool = False):
    """`beta_integral` by s = logit x. In logit t the density is log-concave. Its maximum is at log(a / b)."""
    valid = (a > 0) & (b > 0)
    ok, to = valid & (abs(s) < np.inf), s
    p, q, s = xp.where(valid, a, 1.0), xp.where(valid, b, 1.0), xp.where(ok, s, 0.0)
    top = xp.log(p / q)
    lower = s < top
    turn = xp.where(lower, 1.0, -1.0)  # right of the maximum the line is reversed, with a and b exchanged
    p1, q1, s, top = xp.where(lower, p, q), xp.where(lower, q, p), s * turn, top * turn

    def logs(s):
        e = xp.log1p(xp.exp(-abs(s)))
        return xp.minimum(s, 0.0) - e, xp.minimum(-s, 0.0) - e  # log t, log(1 - t)

    def h(s):
        u, v = logs(s)
        return p1 * u + q1 * v

    def slope(s):
        return p1 * special.expit(-s) - q1 * special.expit(s)

    end = tail_of(xp, h, slope, s - 70.0 / p1, h(s) - NEGLIGIBLE)
    means, factor = (-psi(0, p, q), -psi(0, q, p)), special.betaln(p, q)
    c, d = xp.where(lower, means[0], means[1])[..., None], xp.where(lower, means[1], means[0])[..., None]
    own = xp.where(lower, 1.0, 0.0)[..., None]
    other = 1.0 - own

    def moment(s):
        u, v = logs(s)
        k, r = u - c, v - d
        k, r = own * k + other * r, own * r + other * k
        density = xp.exp(p1[..., None] * u + q1[..., None] * v - factor[..., None])
        return density * integer_power(k, n) * integer_power(r, m)

    middle = xp.maximum(end, s - EXPONENTIAL_TAIL)
    part = integral(xp, moment, end, middle) + integral(xp, moment, middle, s)
    whole = central_moment(
        lambda i, j: -(psi(i - 1, p, q) if j == 0 else psi(j - 1, q, p) if i == 0 else psi(i + j - 1, p + q)),
        n,
        m,
    )
    y = xp.where(lower, *(whole - part, part) if tail else (part, whole - part))
    end = np.inf if tail else -np.inf
    edge = xp.where(to == end, 0.0, xp.where(to == -end, whole, np.nan))
    return xp.where(ok, y, xp.where(valid, edge, np.nan))


@primitive(batch="elementwise", scalar=moment_in_kernels(beta_integral), rough=True)
def beta_moment(a, b, x, *, n, m):
    """The value of `beta_integral`."""
    return of_float_arrays(beta_integral, a, b, x, n=n, m=m)


def gamma_density(a, x):
    x = minimum(x, 1e38)  # at infinity the density and its derivatives are 0
    return exp(xlogy(a - 1.0, x) - x - gammaln(a))


def beta_density(a, b, x):
    return exp(xlogy(a - 1.0, x) + xlog1py(b - 1.0, -x) - betaln(a, b))


slopes(
    gamma_moment,
    lambda out, a, x, n: (
        gamma_moment(a, x, n=n + 1) - (n * polygamma_n(a, n=1) * gamma_moment(a, x, n=n - 1) if n else 0.0)
    ),
    lambda out, a, x, n: gamma_density(a, x) * integer_power(log(x) - digamma(a), n),
)


def _beta_by_a(out, a, b, x, n, m):
    y = beta_moment(a, b, x, n=n + 1, m=m)
    if n:
        y = y - n * (polygamma_n(a, n=1) - polygamma_n(a + b, n=1)) * beta_moment(a, b, x, n=n - 1, m=m)
    return y + m * polygamma_n(a + b, n=1) * beta_moment(a, b, x, n=n, m=m - 1) if m else y


def _beta_by_b(out, a, b, x, n, m):
    y = beta_moment(a, b, x, n=n, m=m + 1)
    if m:
        y = y - m * (polygamma_n(b, n=1) - polygamma_n(a + b, n=1)) * beta_moment(a, b, x, n=n, m=m - 1)
    return y + n * polygamma_n(a + b, n=1) * beta_moment(a, b, x, n=n - 1, m=m) if n else y


def _beta_by_x(out, a, b, x, n, m):
    return (
        beta_density(a, b, x)
        * integer_power(log(x) + psi_gap(a, b), n)
        * integer_power(log1p(-x) + psi_gap(b, a), m)
    )


slopes(beta_moment, _beta_by_a, _beta_by_b, _beta_by_x)

# --- the functions ---


def distribution_in_kernels(integral, *, tail: bool = False) -> dict:
    """The words of `primitive` for a distribution function: the integral of the density itself."""
    orders = {"n": 0} if integral is gamma_integral else {"n": 0, "m": 0}
    return {"scalar": moment_in_kernels(integral, tail=tail, **orders), "rough": True}


gammainc = special_function(
    sp.gammainc,
    lambda out, a, x: gamma_moment(a, x, n=1),
    lambda out, a, x: gamma_density(a, x),
    **distribution_in_kernels(gamma_integral),
)
gammaincc = complement(sp.gammaincc, gammainc, **distribution_in_kernels(gamma_integral, tail=True))
gammaincinv = inverse(sp.gammaincinv, gammainc, 1, 1)
gammainccinv = inverse(sp.gammainccinv, gammainc, 1, 1, tail=True)
betainc = special_function(
    sp.betainc,
    lambda out, a, b, x: beta_moment(a, b, x, n=1, m=0),
    lambda out, a, b, x: beta_moment(a, b, x, n=0, m=1),
    lambda out, a, b, x: beta_density(a, b, x),
    **distribution_in_kernels(beta_integral),
)
betaincc = complement(sp.betaincc, betainc, **distribution_in_kernels(beta_integral, tail=True))
betaincinv = inverse(sp.betaincinv, betainc, 2, 2)
betainccinv = inverse(sp.betainccinv, betainc, 2, 2, tail=True)


def student_in_kernels(df, t):
    """On the left half of what the beta distribution has right of t^2 / (df + t^2), whose logit keeps all
    digits, on the right 1 minus it; for infinite df the normal distribution."""
    tail = moment_in_kernels(integral_to_logit, n=0, m=0, tail=True)
    half = 0.5 * tail(0.5 + 0.0 * df, 0.5 * df, 2.0 * np.log(abs(t)) - np.log(df))
    return np.where(df == np.inf, sp.ndtr(t), np.where(t < 0.0, half, 1.0 - half))


@primitive(sp.stdtr, scalar=student_in_kernels, rough=True)
def stdtr(df, t):
    """Student's distribution function."""
    return special_of2(df, t).stdtr(df, t)


def student_density(df, t):
    return exp(log_half_step(0.5 * df) - 0.5 * (math.log(2 * math.pi) + (df + 1.0) * log1p(t * t / df)))


def power_series(x, *coefficients):
    y = 0.0
    for c in reversed(coefficients):
        y = y * x + c
    return y


def student_by_df(df, t):
    """The derivative with respect to df. For t < 0 the function is betainc(df / 2, 1 / 2, w) / 2 with w =
    df / (df + t^2), or (1 - betainc(1 / 2, df / 2, 1 - w)) / 2; it is odd about t = 0. For many degrees of
    freedom the terms cancel."""
    s, half, a = df + t * t, 0.5 * df, 0.5 + 0.0 * t
    w, v, by_s = df / s, t * t / s, t * t / (s * s)
    far = 0.25 * beta_moment(half, a, w, n=1, m=0) + 0.5 * beta_density(half, a, w) * by_s
    near = 0.5 * beta_density(a, half, v) * by_s - 0.25 * beta_moment(a, half, v, n=0, m=1)
    left = select(primal_of(t) * primal_of(t) < 1.0, near, far)
    at_zero = 0.5 * t * student_density(df, 0.0 * t) * (psi_gap(half, a) - 1.0 / df)
    sided = select(primal_of(t) == 0, at_zero, select(primal_of(t) < 0, left, -left))
    normal = (primal_of(df) > 1e3) & (primal_of(t) * primal_of(t) < 0.05 * primal_of(df))
    return select(normal, student_density(df, t) * normal_quantile_by_df(df, t), sided)


def normal_quantile_by_df(df, t):
    """z_df / z_t for the z with stdtr(df, t) = ndtr(z), by Hill's series (1970): with x = t^2 / df,
    a = df - 1/2, b = 48 a^2 and q = a log1p(x), it is z = sqrt(q) (1 + (q + 3) / b - c / b^2)."""
    df = maximum(df, 1e3)
    x, a = minimum(t * t / df, 0.05), df - 0.5
    log_over = power_series(x, *[(-1) ** k / (k + 1) for k in range(12)])  # log1p(x) / x
    gap = x * power_series(x, *[(-1) ** k * (k + 1) / (k + 2) for k in range(12)])  # log_over - 1 / (1 + x)
    q, b = a * x * log_over, 48.0 * a * a
    c = power_series(q, 85.5, 24.0, 3.3, 0.4)
    slope = (
        0.5 + (1.5 * (q + 1.0) - power_series(q, 42.75, 36.0, 8.25, 1.4) / b) / b
    )  # of z by sqrt(q), halved
    by_b = 2.0 * (2.0 * c / b - (q + 3.0)) / b
    return 0.5 * t * (1.0 + x) / a * (gap + 0.5 / (df * (1.0 + x)) + log_over * by_b / slope)


rules(
    stdtr,
    lambda g, out, df, t: times0(g, student_by_df(df, t)),
    lambda g, out, df, t: g * student_density(df, t),
    jvp=same,
)
