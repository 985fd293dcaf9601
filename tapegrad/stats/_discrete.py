"""Further families of probabilities of whole numbers, with derivatives by their parameters."""

import math

import numpy as np

from .._core.primitive import primal_of
from ..ops.elementwise import absolute, expm1, log, log1p, sqrt, tanh
from ..ops.special import error_functions as sp
from ..ops.special import gamma as ga
from ..ops.special import incomplete as inc
from ..ops.special.bessel_relatives import ive
from ..ops.special.zeta import hurwitz
from ._families import Discrete, log1mexp

nbinom = Discrete(
    "nbinom",
    "n p",
    lambda k, n, p: ga.gammaln(n + k) - ga.gammaln(k + 1.0) - ga.gammaln(n) + n * log(p) + sp.xlog1py(k, -p),
    valid=lambda n, p: (n > 0) & (p > 0) & (p <= 1),
    cdf=lambda k, n, p: inc.betainc(n, k + 1.0, p),
    sf=lambda k, n, p: inc.betainc(k + 1.0, n, 1.0 - p),
)
geom = Discrete(
    "geom",
    "p",
    lambda k, p: sp.xlog1py(k - 1.0, -p) + log(p),
    valid=lambda p: (p > 0) & (p <= 1),
    first=1,
    logsf=lambda k, p: k * log1p(-p),
)
planck = Discrete(
    "planck",
    "lambda_",
    lambda k, a: log(-expm1(-a)) - a * k,
    logsf=lambda k, a: -a * (k + 1.0),
)
dlaplace = Discrete(
    "dlaplace",
    "a",
    lambda k, a: log(tanh(0.5 * a)) - a * absolute(k),
    first=-math.inf,
)
boltzmann = Discrete(
    "boltzmann",
    "lambda_ N",
    lambda k, a, N: log1mexp(-a) - log1mexp(-a * N) - a * k,
    last=lambda a, N: N - 1.0,
    valid=lambda a, N: (a > 0) & (N > 0) & (N == np.floor(N)),
    cdf=lambda k, a, N: expm1(-a * (k + 1.0)) / expm1(-a * N),
)
logser = Discrete(
    "logser",
    "p",
    lambda k, p: k * log(p) - log(k) - log(-log1p(-p)),
    valid=lambda p: (p > 0) & (p < 1),
    first=1,
)
yulesimon = Discrete(
    "yulesimon",
    "alpha",
    lambda k, alpha: log(alpha) + ga.betaln(k, alpha + 1.0),
    first=1,
    logsf=lambda k, alpha: log(k) + ga.betaln(k, alpha + 1.0),
)
betabinom = Discrete(
    "betabinom",
    "n a b",
    lambda k, n, a, b: (
        -log(n + 1.0) - ga.betaln(n - k + 1.0, k + 1.0) + ga.betaln(k + a, n - k + b) - ga.betaln(a, b)
    ),
    last=lambda n, a, b: n,
    valid=lambda n, a, b: (n >= 0) & (n == np.floor(n)) & (a > 0) & (b > 0),
)
betanbinom = Discrete(
    "betanbinom",
    "n a b",
    lambda k, n, a, b: -log(n + k) - ga.betaln(n, k + 1.0) + ga.betaln(a + n, b + k) - ga.betaln(a, b),
    valid=betabinom.valid,
)
skellam = Discrete(
    "skellam",
    "mu1 mu2",
    lambda k, mu1, mu2: (
        -((sqrt(mu1) - sqrt(mu2)) ** 2)
        + 0.5 * k * (log(mu1) - log(mu2))
        + log(ive(abs(primal_of(k)), 2.0 * sqrt(mu1 * mu2)))
    ),
    first=-math.inf,
)
zipf = Discrete(
    "zipf",
    "a",
    lambda k, a: -a * log(k) - log(hurwitz(a, 1.0)),
    valid=lambda a: a > 1,
    first=1,
)
