"""The most usual distributions, by their formulas; those that kernels take are among them."""

import math

import numpy as np

from .._core.primitive import primal_of
from ..ops.elementwise import absolute, exp, log, log1p, negative, power, select, square, tan
from ..ops.piecewise import arctan2, expit, maximum, minimum
from ..ops.special import error_functions as sp
from ..ops.special import gamma as ga
from ..ops.special import incomplete as inc
from ._families import LOG_2, Continuous, Discrete, image

LOG_2PI, LOG_PI = math.log(2 * math.pi), math.log(math.pi)


def log_phi(z):
    return -0.5 * square(z) - 0.5 * LOG_2PI


norm = Continuous("norm", logpdf=log_phi, cdf=sp.ndtr, logcdf=sp.log_ndtr, ppf=sp.ndtri, symmetric=True)
halfnorm = Continuous(
    "halfnorm",
    low=0.0,
    logpdf=lambda z: -0.5 * square(z) + (0.5 * LOG_2 - 0.5 * LOG_PI),
    cdf=lambda z: sp.erf(z * math.sqrt(0.5)),
    sf=lambda z: sp.erfc(z * math.sqrt(0.5)),
    ppf=lambda q: math.sqrt(2.0) * sp.erfinv(q),
    isf=lambda q: math.sqrt(2.0) * sp.erfcinv(q),
)
lognorm = Continuous(
    "lognorm",
    "s",
    low=0.0,
    logpdf=lambda z, s: -0.5 * square(log(z) / s) - log(s) - log(z) - 0.5 * LOG_2PI,
    **image(norm, lambda z, s: log(z) / s, lambda y, s: exp(s * y)),
)
expon = Continuous("expon", low=0.0, logpdf=negative, logsf=negative, from_logsf=negative)
weibull_min = Continuous(
    "weibull_min",
    "c",
    low=0.0,
    logpdf=lambda z, c: log(c) + sp.xlogy(c - 1.0, z) - power(z, c),
    logsf=lambda z, c: -power(z, c),
    from_logsf=lambda y, c: power(-y, 1.0 / c),
)
gamma = Continuous(
    "gamma",
    "a",
    low=0.0,
    logpdf=lambda z, a: sp.xlogy(a - 1.0, z) - z - ga.gammaln(a),
    cdf=lambda z, a: inc.gammainc(a, z),
    sf=lambda z, a: inc.gammaincc(a, z),
    ppf=lambda q, a: inc.gammaincinv(a, q),
    isf=lambda q, a: inc.gammainccinv(a, q),
)
chi2 = Continuous(
    "chi2",
    "df",
    low=0.0,
    logpdf=lambda z, df: sp.xlogy(0.5 * df - 1.0, z) - 0.5 * z - ga.gammaln(0.5 * df) - 0.5 * LOG_2 * df,
    cdf=lambda z, df: inc.gammainc(0.5 * df, 0.5 * z),
    sf=lambda z, df: inc.gammaincc(0.5 * df, 0.5 * z),
    ppf=lambda q, df: 2.0 * inc.gammaincinv(0.5 * df, q),
    isf=lambda q, df: 2.0 * inc.gammainccinv(0.5 * df, q),
)
invgamma = Continuous(
    "invgamma",
    "a",
    low=0.0,
    logpdf=lambda z, a: -(a + 1.0) * log(z) - ga.gammaln(a) - 1.0 / z,
    cdf=lambda z, a: inc.gammaincc(a, 1.0 / z),
    sf=lambda z, a: inc.gammainc(a, 1.0 / z),
    ppf=lambda q, a: 1.0 / inc.gammainccinv(a, q),
    isf=lambda q, a: 1.0 / inc.gammaincinv(a, q),
)
beta = Continuous(
    "beta",
    "a b",
    low=0.0,
    high=1.0,
    logpdf=lambda z, a, b: sp.xlogy(a - 1.0, z) + sp.xlog1py(b - 1.0, -z) - ga.betaln(a, b),
    cdf=lambda z, a, b: inc.betainc(a, b, z),
    sf=lambda z, a, b: inc.betainc(b, a, 1.0 - z),
    ppf=lambda q, a, b: inc.betaincinv(a, b, q),
    isf=lambda q, a, b: 1.0 - inc.betaincinv(b, a, q),
)
uniform = Continuous(
    "uniform",
    low=0.0,
    high=1.0,
    logpdf=lambda z: 0.0 * z,
    cdf=lambda z: z,
    ppf=lambda q: q,
)


t = Continuous(
    "t",
    "df",
    logpdf=lambda z, df: ga.log_half_step(0.5 * df) - 0.5 * (LOG_2PI + (df + 1.0) * log1p(square(z) / df)),
    cdf=lambda z, df: inc.stdtr(df, z),
    symmetric=True,
)
cauchy = Continuous(
    "cauchy",
    logpdf=lambda z: -LOG_PI - log1p(square(z)),
    cdf=lambda z: arctan2(1.0, -z) / math.pi,
    ppf=lambda q: -1.0 / tan(math.pi * q),
    symmetric=True,
)
laplace = Continuous(
    "laplace",
    logpdf=lambda z: -absolute(z) - LOG_2,
    cdf=lambda z: select(z > 0, 1.0 - 0.5 * exp(-maximum(z, 0.0)), 0.5 * exp(minimum(z, 0.0))),
    ppf=lambda q: select(q > 0.5, -log(2.0 - 2.0 * q), log(2.0 * q)),
    symmetric=True,
)
logistic = Continuous(
    "logistic",
    logpdf=lambda z: sp.log_expit(z) + sp.log_expit(-z),
    cdf=expit,
    logcdf=sp.log_expit,
    ppf=sp.logit,
    symmetric=True,
)


poisson = Discrete(
    "poisson",
    "mu",
    lambda k, mu: sp.xlogy(k, mu) - ga.gammaln(k + 1.0) - mu,
    valid=lambda mu: mu >= 0,
    cdf=lambda k, mu: inc.gammaincc(k + 1.0, mu),
    sf=lambda k, mu: inc.gammainc(k + 1.0, mu),
)
binom = Discrete(
    "binom",
    "n p",
    lambda k, n, p: (
        ga.gammaln(n + 1.0)
        - ga.gammaln(k + 1.0)
        - ga.gammaln(n - k + 1.0)
        + sp.xlogy(k, p)
        + sp.xlog1py(n - k, -p)
    ),
    last=lambda n, p: n,
    valid=lambda n, p: (n >= 0) & (n == np.floor(n)) & (p >= 0) & (p <= 1),
    cdf=lambda k, n, p: select(
        k >= primal_of(n), 1.0, inc.betainc(select(k >= primal_of(n), 1.0, n - k), k + 1.0, 1.0 - p)
    ),
    sf=lambda k, n, p: select(
        k >= primal_of(n), 0.0, inc.betainc(k + 1.0, select(k >= primal_of(n), 1.0, n - k), p)
    ),
)
bernoulli = Discrete(
    "bernoulli",
    "p",
    lambda k, p: sp.xlogy(k, p) + sp.xlog1py(1.0 - k, -p),
    last=lambda p: 1,
    valid=lambda p: (p >= 0) & (p <= 1),
    cdf=lambda k, p: select(k >= 1.0, 1.0, 1.0 - p),
    sf=lambda k, p: select(k >= 1.0, 0.0, p),
)
