"""Further families of densities.

`follows` names the functions whose formula is SciPy's own code.  The others are given as functions of the
standardised z; what follows from them is not written (`_families.completed`).  Sources: Johnson, Kotz &
Balakrishnan, "Continuous Univariate Distributions"; SciPy's parameters."""

import math

from .._core.primitive import primal_of
from ..ops.elementwise import (
    absolute,
    arcsinh,
    exp,
    expm1,
    log,
    log1p,
    power,
    select,
    sqrt,
    square,
    tanh,
)
from ..ops.piecewise import expit, hypot, logaddexp
from ..ops.special import error_functions as sp
from ..ops.special import gamma as ga
from ..ops.special import incomplete as inc
from ..ops.special.bessel import i0e, k1e
from ..ops.special.bessel_relatives import ive
from ..ops.special.integrals import log1p_over, owens_t
from ..ops.special.noncentral import chndtr
from ._classic import LOG_2PI, LOG_PI, gamma, log_phi, logistic, norm
from ._families import LOG_2, Continuous, image, is_finite, log1mexp

# --- a tail, and where it has a given logarithm ---

gumbel_r = Continuous("gumbel_r", follows="logpdf logcdf ppf isf")
gumbel_l = Continuous("gumbel_l", follows="logpdf logsf ppf isf")
genextreme = Continuous(
    "genextreme",
    "c",
    valid=is_finite,
    low=lambda c: select(c < 0, 1.0 / select(c < 0, c, -1.0), -math.inf),
    high=lambda c: select(c > 0, 1.0 / select(c > 0, c, 1.0), math.inf),
    logpdf=lambda z, c: (1.0 - c) * extreme_value_term(z, c) - exp(extreme_value_term(z, c)),
    logcdf=lambda z, c: -exp(extreme_value_term(z, c)),
    from_logcdf=lambda y, c: -log(-y) * sp.exprel(c * log(-y)),
)


def extreme_value_term(z, c):
    """log(1 - c z) / c, which is -z for c = 0."""
    return -z * log1p_over(-c * z)


genpareto = Continuous(
    "genpareto",
    "c",
    valid=is_finite,
    low=0.0,
    high=lambda c: -genextreme.low(c),
    logpdf=lambda z, c: -(1.0 + c) * z * log1p_over(c * z),
    logsf=lambda z, c: -z * log1p_over(c * z),
    from_logsf=lambda y, c: -y * sp.exprel(-c * y),
)
pareto = Continuous(
    "pareto",
    "b",
    low=1.0,
    logpdf=lambda z, b: log(b) - (b + 1.0) * log(z),
    logsf=lambda z, b: -b * log(z),
    from_logsf=lambda y, b: exp(-y / b),
)
lomax = Continuous("lomax", "c", low=0.0, follows="logpdf logsf", from_logsf=lambda y, c: expm1(-y / c))
rayleigh = Continuous("rayleigh", low=0.0, follows="logpdf logsf ppf isf")
gompertz = Continuous("gompertz", "c", low=0.0, follows="logpdf ppf isf", logsf=lambda z, c: -c * expm1(z))
powerlaw = Continuous(
    "powerlaw", "a", low=0.0, high=1.0, follows="logpdf logcdf", from_logcdf=lambda y, a: exp(y / a)
)
invweibull = Continuous(
    "invweibull",
    "c",
    low=0.0,
    follows="ppf isf",
    logpdf=lambda z, c: log(c) - (c + 1.0) * log(z) - power(z, -c),
    logcdf=lambda z, c: -power(z, -c),
)
weibull_max = Continuous(
    "weibull_max", "c", high=0.0, follows="logpdf logcdf", from_logcdf=lambda y, c: -power(-y, 1.0 / c)
)
exponweib = Continuous(
    "exponweib",
    "a c",
    low=0.0,
    follows="logpdf",
    logcdf=lambda z, a, c: a * log1mexp(-power(z, c)),
    from_logcdf=lambda y, a, c: power(-log1mexp(y / a), 1.0 / c),
)
exponpow = Continuous(
    "exponpow", "b", low=0.0, follows="logpdf ppf isf", logsf=lambda z, b: -expm1(power(z, b))
)
fisk = Continuous(
    "fisk",
    "c",
    low=0.0,
    follows="logpdf",
    **image(logistic, lambda z, c: c * log(z), lambda y, c: exp(y / c)),
)
burr = Continuous(
    "burr",
    "c d",
    low=0.0,
    logpdf=lambda z, c, d: (
        log(c) + log(d) - log(z) + d * sp.log_expit(c * log(z)) + sp.log_expit(-c * log(z))
    ),
    logcdf=lambda z, c, d: d * sp.log_expit(c * log(z)),
    from_logcdf=lambda y, c, d: exp((y / d - log1mexp(y / d)) / c),
)
burr12 = Continuous(
    "burr12",
    "c d",
    low=0.0,
    logpdf=lambda z, c, d: (
        log(c) + log(d) - log(z) + sp.log_expit(c * log(z)) + d * sp.log_expit(-c * log(z))
    ),
    logsf=lambda z, c, d: d * sp.log_expit(-c * log(z)),
    from_logsf=lambda y, c, d: exp((log1mexp(y / d) - y / d) / c),
)
mielke = Continuous(
    "mielke",
    "k s",
    low=0.0,
    follows="logpdf",
    logcdf=lambda z, k, s: k / s * sp.log_expit(s * log(z)),
    from_logcdf=lambda y, k, s: exp((y * s / k - log1mexp(y * s / k)) / s),
)
kappa3 = Continuous(
    "kappa3",
    "a",
    low=0.0,
    logpdf=lambda z, a: log(a) - (1.0 + 1.0 / a) * log(a + power(z, a)),
    logcdf=lambda z, a: sp.log_expit(a * log(z) - log(a)) / a,
    from_logcdf=lambda y, a: exp((log(a) + a * y - log1mexp(a * y)) / a),
)
genlogistic = Continuous(
    "genlogistic",
    "c",
    follows="logpdf",
    logcdf=lambda z, c: c * sp.log_expit(z),
    from_logcdf=lambda y, c: y / c - log1mexp(y / c),
)
halflogistic = Continuous(
    "halflogistic",
    low=0.0,
    follows="logpdf cdf sf ppf",
    logsf=lambda z: LOG_2 + sp.log_expit(-z),
    isf=lambda q: -sp.logit(0.5 * q),
)
powernorm = Continuous("powernorm", "c", follows="logpdf logsf", from_logsf=lambda y, c: -sp.ndtri_exp(y / c))
powerlognorm = Continuous(
    "powerlognorm",
    "c s",
    low=0.0,
    follows="logpdf logsf",
    from_logsf=lambda y, c, s: exp(-s * sp.ndtri_exp(y / c)),
)
genhalflogistic = Continuous(
    "genhalflogistic",
    "c",
    low=0.0,
    high=lambda c: 1.0 / c,
    logpdf=lambda z, c: (
        LOG_2 + (1.0 - c) * extreme_value_term(z, c) - 2.0 * log1p(exp(extreme_value_term(z, c)))
    ),
    sf=lambda z, c: 2.0 * expit(extreme_value_term(z, c)),
    cdf=lambda z, c: -tanh(0.5 * extreme_value_term(z, c)),
    logsf=lambda z, c: LOG_2 + sp.log_expit(extreme_value_term(z, c)),
    isf=lambda q, c: -sp.logit(0.5 * q) * sp.exprel(c * sp.logit(0.5 * q)),
    ppf=lambda q, c: (log1p(q) - log1p(-q)) * sp.exprel(-c * (log1p(q) - log1p(-q))),
)

# --- of the normal distribution ---


gibrat = Continuous("gibrat", low=0.0, follows="logpdf cdf sf ppf isf")
johnsonsu = Continuous(
    "johnsonsu",
    "a b",
    valid=lambda a, b: b > 0,
    follows="cdf sf ppf isf",
    logpdf=lambda z, a, b: log(b) - 0.5 * log1p(square(z)) + log_phi(a + b * arcsinh(z)),
    **image(norm, lambda z, a, b: a + b * arcsinh(z)),
)
johnsonsb = Continuous(
    "johnsonsb",
    "a b",
    valid=lambda a, b: b > 0,
    low=0.0,
    high=1.0,
    follows="cdf sf ppf isf",
    logpdf=lambda z, a, b: log(b) - log(z) - log1p(-z) + log_phi(a + b * sp.logit(z)),
    **image(norm, lambda z, a, b: a + b * sp.logit(z)),
)
fatiguelife = Continuous(
    "fatiguelife",
    "c",
    low=0.0,
    follows="cdf sf ppf isf",
    logpdf=lambda z, c: log1p(z) - log(2.0 * c) - 1.5 * log(z) + log_phi((sqrt(z) - 1.0 / sqrt(z)) / c),
    **image(norm, lambda z, c: (sqrt(z) - 1.0 / sqrt(z)) / c),
)
skewnorm = Continuous(
    "skewnorm",
    "a",
    valid=is_finite,
    logpdf=lambda z, a: LOG_2 + log_phi(z) + sp.log_ndtr(a * z),
    cdf=lambda z, a: sp.ndtr(z) - 2.0 * owens_t(z, a),
    sf=lambda z, a: sp.ndtr(-z) + 2.0 * owens_t(z, a),
)
exponnorm = Continuous(
    "exponnorm",
    "K",
    follows="cdf sf",
    logpdf=lambda z, K: -log(K) + (0.5 / K - z) / K + sp.log_ndtr(z - 1.0 / K),
)


def log_mass(a, b):
    """The logarithm of the normal probability between a and b, taken in the tail where they are."""
    right = primal_of(a) > 0
    low, high = select(right, -b, a), select(right, -a, b)
    more, less = sp.log_ndtr(high), sp.log_ndtr(low)
    return more + log1mexp(less - more)


truncnorm = Continuous(
    "truncnorm",
    "a b",
    valid=lambda a, b: a < b,
    low=lambda a, b: a,
    high=lambda a, b: b,
    logpdf=lambda z, a, b: log_phi(z) - log_mass(a, b),
    logcdf=lambda z, a, b: log_mass(a, z) - log_mass(a, b),
    logsf=lambda z, a, b: log_mass(z, b) - log_mass(a, b),
)
foldnorm = Continuous(
    "foldnorm",
    "c",
    valid=lambda c: c >= 0,
    low=0.0,
    follows="sf",
    logpdf=lambda z, c: logaddexp(log_phi(z - c), log_phi(z + c)),
    cdf=lambda z, c: sp.ndtr(z - c) - sp.ndtr(-z - c),
)
invgauss = Continuous(
    "invgauss",
    "mu",
    low=0.0,
    follows="cdf",
    logpdf=lambda z, mu: -0.5 * LOG_2PI - 1.5 * log(z) - 0.5 * square(z / mu - 1.0) / z,
    sf=lambda z, mu: (
        sp.ndtr((1.0 - z / mu) / sqrt(z)) - exp(2.0 / mu + sp.log_ndtr(-(z / mu + 1.0) / sqrt(z)))
    ),
)
wald = Continuous("wald", low=0.0, follows="logpdf cdf sf")
recipinvgauss = Continuous(
    "recipinvgauss",
    "mu",
    low=0.0,
    follows="cdf sf",
    logpdf=lambda z, mu: -0.5 * LOG_2PI - 0.5 * log(z) - 0.5 * square(1.0 / mu - z) / z,
)
levy = Continuous(
    "levy", low=0.0, follows="cdf sf ppf isf", logpdf=lambda z: -0.5 * LOG_2PI - 1.5 * log(z) - 0.5 / z
)
levy_l = Continuous(
    "levy_l",
    high=0.0,
    follows="sf isf",
    logpdf=lambda z: -0.5 * LOG_2PI - 1.5 * log(-z) + 0.5 / z,
    cdf=lambda z: sp.erf(sqrt(-0.5 / z)),
    ppf=lambda q: -0.5 / square(sp.erfinv(q)),
)
moyal = Continuous(
    "moyal",
    follows="cdf sf ppf",
    logpdf=lambda z: -0.5 * (z + exp(-z)) - 0.5 * LOG_2PI,
    isf=lambda q: -2.0 * log(math.sqrt(2.0) * sp.erfinv(q)),
)
alpha = Continuous(
    "alpha",
    "a",
    low=0.0,
    follows="logpdf",
    logcdf=lambda z, a: sp.log_ndtr(a - 1.0 / z) - sp.log_ndtr(a),
    from_logcdf=lambda y, a: 1.0 / (a - sp.ndtri_exp(y + sp.log_ndtr(a))),
)

# --- of the gamma and beta distributions ---

erlang = Continuous("erlang", "a", low=0.0, **gamma.functions)
maxwell = Continuous("maxwell", low=0.0, follows="logpdf cdf sf ppf isf")
chi = Continuous("chi", "df", low=0.0, follows="logpdf cdf sf ppf isf")
nakagami = Continuous("nakagami", "nu", low=0.0, follows="logpdf cdf sf ppf isf")
gengamma = Continuous(
    "gengamma",
    "a c",
    valid=lambda a, c: (a > 0) & (c != 0),
    low=0.0,
    follows="cdf sf ppf isf",
    logpdf=lambda z, a, c: log(absolute(c)) + sp.xlogy(c * a - 1.0, z) - power(z, c) - ga.gammaln(a),
)
loggamma = Continuous(
    "loggamma",
    "c",
    follows="logpdf",
    cdf=lambda z, c: inc.gammainc(c, exp(z)),
    sf=lambda z, c: inc.gammaincc(c, exp(z)),
    ppf=lambda q, c: log(inc.gammaincinv(c, q)),
    isf=lambda q, c: log(inc.gammainccinv(c, q)),
)
halfgennorm = Continuous("halfgennorm", "beta", low=0.0, follows="logpdf cdf sf ppf isf")


gennorm = Continuous("gennorm", "beta", follows="logpdf cdf sf")
dgamma = Continuous("dgamma", "a", follows="logpdf cdf sf")
dweibull = Continuous("dweibull", "c", follows="logpdf cdf sf")
rdist = Continuous(
    "rdist",
    "c",
    low=-1.0,
    high=1.0,
    follows="cdf ppf",
    logpdf=lambda z, c: (0.5 * c - 1.0) * log1p(-square(z)) - ga.betaln(0.5, 0.5 * c),
    symmetric=True,
)
betaprime = Continuous(
    "betaprime",
    "a b",
    low=0.0,
    follows="logpdf",
    cdf=lambda z, a, b: inc.betainc(a, b, z / (1.0 + z)),
    sf=lambda z, a, b: inc.betainc(b, a, 1.0 / (1.0 + z)),
    ppf=lambda q, a, b: exp(sp.logit(inc.betaincinv(a, b, q))),
    isf=lambda q, a, b: exp(-sp.logit(inc.betaincinv(b, a, q))),
)
f = Continuous("f", "dfn dfd", low=0.0, follows="logpdf cdf sf ppf")
ncx2 = Continuous(
    "ncx2",
    "df nc",
    valid=lambda df, nc: (df > 0) & (nc >= 0),
    low=0.0,
    logpdf=lambda z, df, nc: (
        -LOG_2
        - 0.5 * square(sqrt(z) - sqrt(nc))
        + (0.25 * df - 0.5) * log(z / nc)
        + log(ive(0.5 * df - 1.0, sqrt(z * nc)))
    ),
    cdf=chndtr,
)
rice = Continuous(
    "rice",
    "b",
    valid=lambda b: b >= 0,
    low=0.0,
    follows="cdf",
    logpdf=lambda z, b: log(z) - 0.5 * square(z - b) + log(i0e(z * b)),
)
norminvgauss = Continuous(
    "norminvgauss",
    "a b",
    valid=lambda a, b: a > abs(b),
    logpdf=lambda z, a, b: (
        log(a)
        - LOG_PI
        + log(k1e(a * hypot(1.0, z)))
        - a * hypot(1.0, z)
        + sqrt((a - b) * (a + b))
        + b * z
        - log(hypot(1.0, z))
    ),
)
vonmises = Continuous("vonmises", "kappa", valid=lambda kappa: kappa >= 0, follows="logpdf")
