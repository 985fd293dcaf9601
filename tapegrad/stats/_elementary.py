"""Families whose functions are elementary, and those of pieces or with a special function for a constant."""

import math

from .._core.primitive import primal_of
from ..ops.elementwise import (
    absolute,
    arcsin,
    cos,
    exp,
    expm1,
    log,
    log1p,
    power,
    select,
    sign,
    sin,
    sqrt,
    square,
)
from ..ops.piecewise import hypot, logaddexp, maximum, minimum
from ..ops.special import error_functions as sp
from ..ops.special import gamma as ga
from ..ops.special import incomplete as inc
from ..ops.special.bessel_relatives import kve
from ._classic import LOG_2PI, LOG_PI, gamma
from ._continuous import vonmises
from ._families import LOG_2, Continuous, is_finite

# --- of elementary functions ---

halfcauchy = Continuous("halfcauchy", low=0.0, follows="logpdf cdf sf ppf isf")
foldcauchy = Continuous(
    "foldcauchy",
    "c",
    valid=lambda c: c >= 0,
    low=0.0,
    follows="cdf sf",
    logpdf=lambda z, c: -LOG_PI + log(1.0 / (1.0 + square(z - c)) + 1.0 / (1.0 + square(z + c))),
)
hypsecant = Continuous(
    "hypsecant", follows="cdf sf ppf isf", logpdf=lambda z: LOG_2 - LOG_PI - logaddexp(z, -z)
)
loguniform = Continuous(
    "loguniform",
    "a b",
    valid=lambda a, b: (a > 0) & (b > a),
    low=lambda a, b: a,
    high=lambda a, b: b,
    follows="logpdf",
    cdf=lambda z, a, b: log(z / a) / log(b / a),
    sf=lambda z, a, b: log(b / z) / log(b / a),
    ppf=lambda q, a, b: a * exp(q * log(b / a)),
    isf=lambda q, a, b: b * exp(-q * log(b / a)),
)
reciprocal = Continuous(
    "reciprocal", "a b", loguniform.low, loguniform.high, valid=loguniform.valid, **loguniform.functions
)
arcsine = Continuous(
    "arcsine",
    low=0.0,
    high=1.0,
    follows="cdf ppf",
    logpdf=lambda z: -LOG_PI - 0.5 * (log(z) + log1p(-z)),
    sf=lambda z: 2.0 / math.pi * arcsin(sqrt(1.0 - z)),
    isf=lambda q: square(cos(0.5 * math.pi * q)),
)
anglit = Continuous(
    "anglit",
    low=-math.pi / 4,
    high=math.pi / 4,
    follows="cdf sf ppf",
    logpdf=lambda z: log(cos(2.0 * z)),
    isf=lambda q: math.pi / 4 - arcsin(sqrt(q)),
)
semicircular = Continuous(
    "semicircular",
    low=-1.0,
    high=1.0,
    follows="logpdf cdf",
    symmetric=True,
)
cosine = Continuous(
    "cosine",
    low=-math.pi,
    high=math.pi,
    logpdf=lambda z: log(square(cos(0.5 * z))) - LOG_PI,
    cdf=lambda z: (math.pi + z + sin(z)) / (2 * math.pi),
    symmetric=True,
)
bradford = Continuous(
    "bradford",
    "c",
    low=0.0,
    high=1.0,
    follows="cdf ppf",
    logpdf=lambda z, c: log(c) - log1p(c * z) - log(log1p(c)),
)
truncexpon = Continuous("truncexpon", "b", low=0.0, high=lambda b: b, follows="logpdf cdf sf ppf")
truncpareto = Continuous(
    "truncpareto",
    "b c",
    valid=lambda b, c: (b != 0) & (c > 1),
    low=1.0,
    high=lambda b, c: c,
    follows="logpdf",
    cdf=lambda z, b, c: expm1(-b * log(z)) / expm1(-b * log(c)),
    ppf=lambda q, b, c: exp(-log1p(q * expm1(-b * log(c))) / b),
)
loglaplace = Continuous(
    "loglaplace",
    "c",
    low=0.0,
    follows="ppf isf",
    logpdf=lambda z, c: log(0.5 * c) - log(z) - c * absolute(log(z)),
    cdf=lambda z, c: select(
        primal_of(z) < 1, 0.5 * power(minimum(z, 1.0), c), 1.0 - 0.5 * power(maximum(z, 1.0), -c)
    ),
    sf=lambda z, c: select(
        primal_of(z) < 1, 1.0 - 0.5 * power(minimum(z, 1.0), c), 0.5 * power(maximum(z, 1.0), -c)
    ),
)
laplace_asymmetric = Continuous(
    "laplace_asymmetric",
    "kappa",
    follows="logpdf",
    cdf=lambda z, k: (
        select(primal_of(z) < 0, k * k * exp(minimum(z, 0.0) / k), 1.0 + k * k - exp(-maximum(z, 0.0) * k))
        / (1.0 + k * k)
    ),
    sf=lambda z, k: (
        select(primal_of(z) < 0, 1.0 + k * k - k * k * exp(minimum(z, 0.0) / k), exp(-maximum(z, 0.0) * k))
        / (1.0 + k * k)
    ),
)
triang = Continuous(
    "triang",
    "c",
    valid=lambda c: (c >= 0) & (c <= 1),
    low=0.0,
    high=1.0,
    follows="ppf",
    logpdf=lambda z, c: LOG_2 + select(primal_of(z) < primal_of(c), log(z) - log(c), log1p(-z) - log1p(-c)),
    cdf=lambda z, c: select(primal_of(z) < primal_of(c), square(z) / c, 1.0 - square(1.0 - z) / (1.0 - c)),
    sf=lambda z, c: select(primal_of(z) < primal_of(c), 1.0 - square(z) / c, square(1.0 - z) / (1.0 - c)),
    isf=lambda q, c: select(
        primal_of(q) > 1.0 - primal_of(c), sqrt(c * (1.0 - q)), 1.0 - sqrt((1.0 - c) * q)
    ),
)
skewcauchy = Continuous(
    "skewcauchy",
    "a",
    valid=lambda a: abs(a) < 1,
    follows="cdf",
    logpdf=lambda z, a: -LOG_PI - log1p(square(z / (1.0 + a * sign(z)))),
)
wrapcauchy = Continuous(
    "wrapcauchy",
    "c",
    valid=lambda c: (c > 0) & (c < 1),
    low=0.0,
    high=2 * math.pi,
    logpdf=lambda z, c: log1p(-square(c)) - LOG_2PI - log(square(1.0 - c) + 4.0 * c * square(sin(0.5 * z))),
)
genexpon = Continuous(
    "genexpon",
    "a b c",
    low=0.0,
    follows="logpdf",
    logsf=lambda z, a, b, c: -(a + b) * z - b * expm1(-c * z) / c,
)

# --- pieces, and densities whose constant is a special function ---


def half_normal_mass(chi):
    """Phi(chi) - chi phi(chi) - 1 / 2."""
    return 0.5 * inc.gammainc(1.5, 0.5 * square(chi))


argus = Continuous(
    "argus",
    "chi",
    low=0.0,
    high=1.0,
    follows="logpdf",
    sf=lambda z, chi: half_normal_mass(chi * sqrt(1.0 - square(z))) / half_normal_mass(chi),
)
trapezoid = Continuous(
    "trapezoid",
    "c d",
    valid=lambda c, d: (c >= 0) & (d >= c) & (d <= 1),
    low=0.0,
    high=1.0,
    logpdf=lambda z, c, d: (
        LOG_2
        - log(1.0 + d - c)
        + select(
            primal_of(z) < primal_of(c),
            log(z) - log(c),
            select(primal_of(z) > primal_of(d), log1p(-z) - log1p(-d), 0.0 * z),
        )
    ),
    cdf=lambda z, c, d: (
        select(
            primal_of(z) < primal_of(c),
            square(z) / c,
            select(primal_of(z) > primal_of(d), 1.0 + d - c - square(1.0 - z) / (1.0 - d), 2.0 * z - c),
        )
        / (1.0 + d - c)
    ),
)
truncweibull_min = Continuous(
    "truncweibull_min",
    "c a b",
    valid=lambda c, a, b: (c > 0) & (a >= 0) & (b > a),
    low=lambda c, a, b: a,
    high=lambda c, a, b: b,
    follows="logpdf",
    cdf=lambda z, c, a, b: expm1(power(a, c) - power(z, c)) / expm1(power(a, c) - power(b, c)),
)
pearson3 = Continuous(
    "pearson3",
    "skew",
    valid=lambda skew: skew == skew,
    logpdf=lambda z, k: (
        log(2.0 / absolute(k)) + gamma.functions["logpdf"](2.0 / k * (z + 2.0 / k), square(2.0 / k))
    ),
    cdf=lambda z, k: select(
        primal_of(k) > 0,
        inc.gammainc(square(2.0 / k), 2.0 / k * (z + 2.0 / k)),
        inc.gammaincc(square(2.0 / k), 2.0 / k * (z + 2.0 / k)),
    ),
)
jf_skew_t = Continuous(
    "jf_skew_t",
    "a b",
    follows="cdf",
    logpdf=lambda z, a, b: (
        (a + 0.5) * log1p(z / sqrt(a + b + square(z)))
        + (b + 0.5) * log1p(-z / sqrt(a + b + square(z)))
        - (a + b - 1.0) * LOG_2
        - ga.betaln(a, b)
        - 0.5 * log(a + b)
    ),
    sf=lambda z, a, b: inc.betainc(b, a, 0.5 * (1.0 - z / sqrt(a + b + square(z)))),
)
rel_breitwigner = Continuous(
    "rel_breitwigner",
    "rho",
    low=0.0,
    logpdf=lambda z, rho: (
        0.5 * (LOG_2 + log1p(square(1.0 / rho)) - log1p(hypot(1.0, 1.0 / rho)))
        + LOG_2
        - LOG_PI
        - log1p(square((z - rho) * (z + rho) / rho))
    ),
)
geninvgauss = Continuous(
    "geninvgauss",
    "p b",
    valid=lambda p, b: (b > 0) & (abs(p) < math.inf),
    low=0.0,
    logpdf=lambda z, p, b: (p - 1.0) * log(z) - 0.5 * b * square(z - 1.0) / z - LOG_2 - log(kve(p, b)),
)
genhyperbolic = Continuous(
    "genhyperbolic",
    "p a b",
    valid=lambda p, a, b: (abs(b) < a) & (abs(p) < math.inf),
    logpdf=lambda z, p, a, b: (
        0.5 * p * log((a - b) * (a + b))
        - 0.5 * LOG_2PI
        - (p - 0.5) * log(a)
        - log(kve(p, sqrt((a - b) * (a + b))))
        + sqrt((a - b) * (a + b))
        + b * z
        + log(kve(p - 0.5, a * hypot(1.0, z)))
        - a * hypot(1.0, z)
        + (p - 0.5) * log(hypot(1.0, z))
    ),
)
tukeylambda = Continuous("tukeylambda", "lam", valid=is_finite, follows="ppf")
vonmises_line = Continuous(
    "vonmises_line",
    "kappa",
    valid=lambda kappa: kappa >= 0,
    low=-math.pi,
    high=math.pi,
    logpdf=vonmises.functions["logpdf"],
)


def ball_norm(beta, m):
    return m / beta / (m - 1.0) * exp(-0.5 * square(beta)) + math.sqrt(2 * math.pi) * sp.ndtr(beta)


def ball_tail(z, beta, m, power_of):
    return (
        power(m / beta, m) * exp(-0.5 * square(beta)) * power(m / beta - beta - minimum(z, -beta), -power_of)
    )


crystalball = Continuous(
    "crystalball",
    "beta m",
    valid=lambda beta, m: (beta > 0) & (m > 1),
    logpdf=lambda z, beta, m: (
        select(primal_of(z) > -primal_of(beta), -0.5 * square(z), log(ball_tail(z, beta, m, m)))
        - log(ball_norm(beta, m))
    ),
    cdf=lambda z, beta, m: (
        (
            ball_tail(z, beta, m, m - 1.0) / (m - 1.0)
            + math.sqrt(2 * math.pi) * (sp.ndtr(maximum(z, -beta)) - sp.ndtr(-beta))
        )
        / ball_norm(beta, m)
    ),
)
