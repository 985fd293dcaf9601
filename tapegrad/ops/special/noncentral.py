"""Noncentral chi-square, F and t distribution functions in all arguments, their inverses, and inverses
with respect to real counts.

The first two are mixtures of central distributions with Poisson weights. The last is an integral over
the chi distribution. No term is negative."""

import math

import numpy as np
import scipy.special as sp

from ..._core.primitive import primal_of, seen
from ..elementwise import exp, log, power, select, sqrt, square
from ..piecewise import floor, maximum
from ..shaping import sum
from .bessel_relatives import ive
from .declare import greatest, inverse, special_function, with_last_axis, with_partials
from .distribution_functions import hyp0f1
from .error_functions import ROOT_2PI, ndtr, xlogy
from .gamma import digamma, gammaln
from .incomplete import beta_density, beta_moment, betainc, gamma_density, gamma_moment, gammaincc

# --- mixtures ---


def poisson(nc):
    """(j, the Poisson probabilities of j with mean nc / 2) along a last axis, for all j with
    non-negligible probability."""
    m = 0.5 * primal_of(nc)
    known = seen(m)
    most = 2000.0 if known is None else greatest(known)
    width = 9.0 * math.sqrt(most) + 40.0
    first = with_last_axis(floor(maximum(m - width, 0.0) + 0.0 * m))
    j = first + np.arange(int(2 * width) + 1)
    weight = exp(xlogy(j, 0.5 * with_last_axis(nc)) - 0.5 * with_last_axis(nc) - gammaln(j + 1.0))
    return j, select(with_last_axis(m) <= most, weight, math.nan)


def mixed(f, nc, *xs):
    """The sum of f(j, ...) with these weights."""
    j, weight = poisson(nc)
    return sum(weight * f(j, *map(with_last_axis, xs)), -1)


SERIES_RANGE = 1e4


def chndtr_density(x, df, nc):
    """exp(-(x + nc) / 2) (x / nc)^(df / 4 - 1 / 2) I_(df / 2 - 1)(sqrt(x nc)) / 2; as a hypergeometric
    function, which overflows for a large x nc."""
    half, large = 0.5 * df, primal_of(x * nc) > SERIES_RANGE
    y, mean = select(large, x, 1.0), select(large, nc, 1.0)
    bessel = power(y / mean, 0.5 * half - 0.5) * ive(half - 1.0, sqrt(y * mean))
    series = gamma_density(half, 0.5 * x) * exp(-0.5 * nc) * hyp0f1(half, select(large, 0.0, 0.25 * x * nc))
    return 0.5 * select(large, exp(-0.5 * square(sqrt(y) - sqrt(mean))) * bessel, series)


def chndtr_by_df(out, x, df, nc):
    return 0.5 * mixed(lambda j, x, df: gamma_moment(0.5 * df + j, 0.5 * x, n=1), nc, x, df)


CHNDTR_SLOPES = (
    lambda out, x, df, nc: chndtr_density(x, df, nc),
    chndtr_by_df,
    lambda out, x, df, nc: -chndtr_density(x, df + 2.0, nc),
)
chndtr = special_function(sp.chndtr, *CHNDTR_SLOPES)
special_function(  # which scipy.stats calls
    sp._ufuncs._ncx2_sf,
    *[lambda out, x, df, nc, slope=slope: -slope(out, x, df, nc) for slope in CHNDTR_SLOPES],
    body=sp._ufuncs._ncx2_sf,
    name="_ncx2_sf",
)
chndtrix = inverse(sp.chndtrix, chndtr, 0, 0)
chndtridf = inverse(sp.chndtridf, chndtr, 1, 1)
chndtrinc = inverse(sp.chndtrinc, chndtr, 2, 2)


def noncentral_share(dfn, dfd, f):
    return dfn * f / (dfn * f + dfd)


def by_shape(n, m):
    def of(dfn, dfd, nc, f):
        return 0.5 * mixed(
            lambda j, n_, d, y: beta_moment(0.5 * n_ + j, 0.5 * d, y, n=n, m=m),
            nc,
            dfn,
            dfd,
            noncentral_share(dfn, dfd, f),
        )

    return of


def ncf_density_of_share(dfn, dfd, nc, f):
    return mixed(
        lambda j, n, d, y: beta_density(0.5 * n + j, 0.5 * d, y), nc, dfn, dfd, noncentral_share(dfn, dfd, f)
    )


def ncf_by_dfn(out, dfn, dfd, nc, f):
    y = noncentral_share(dfn, dfd, f)
    return by_shape(1, 0)(dfn, dfd, nc, f) + ncf_density_of_share(dfn, dfd, nc, f) * y * (1.0 - y) / dfn


def ncf_by_dfd(out, dfn, dfd, nc, f):
    y = noncentral_share(dfn, dfd, f)
    return by_shape(0, 1)(dfn, dfd, nc, f) - ncf_density_of_share(dfn, dfd, nc, f) * y * (1.0 - y) / dfd


def ncf_by_nc(out, dfn, dfd, nc, f):
    """I_y(a + 1, b) - I_y(a, b) = -y (1 - y) / a times the density."""
    y = noncentral_share(dfn, dfd, f)
    falls = mixed(lambda j, n, d, y: beta_density(0.5 * n + j, 0.5 * d, y) / (0.5 * n + j), nc, dfn, dfd, y)
    return -0.5 * y * (1.0 - y) * falls


def ncf_density(out, dfn, dfd, nc, f):
    y = noncentral_share(dfn, dfd, f)
    return ncf_density_of_share(dfn, dfd, nc, f) * y * (1.0 - y) / f


ncfdtr = special_function(sp.ncfdtr, ncf_by_dfn, ncf_by_dfd, ncf_by_nc, ncf_density)
ncfdtri = inverse(sp.ncfdtri, ncfdtr, 3, 3)
ncfdtridfn = inverse(sp.ncfdtridfn, ncfdtr, 0, 0)
ncfdtridfd = inverse(sp.ncfdtridfd, ncfdtr, 1, 1)
ncfdtrinc = inverse(sp.ncfdtrinc, ncfdtr, 2, 2)

# --- noncentral t: the mean of Phi(t s - nc) over s, distributed as chi / sqrt(df) ---

CHI_POINTS = 1000
MOST_NONCENTRALITY = 150.0  # for |nc|, so that the steps resolve Phi


def over_chi(f, df, nc, t, points=CHI_POINTS):
    """The mean of f(s, t s - nc). With s = exp(u), u = v + 1 - exp(-v), a few equal steps reach the far
    end of small s."""
    d = primal_of(df)
    low, high = -(sqrt(76.0 / d) + 76.0 / d), 0.5 * log(1.0 + 2.0 * sqrt(80.0 / d) + 160.0 / d)
    start, end = -log(1.0 - low), 1.0 + high
    step = with_last_axis((end - start) / (points - 1.0))
    v = with_last_axis(start) + step * np.arange(points)
    u = v + 1.0 - exp(-v)
    s, k = exp(u), with_last_axis(df)
    chi = exp(k * u - 0.5 * k * s * s + 0.5 * k * log(0.5 * k) - gammaln(0.5 * k))
    inside = select(abs(primal_of(nc)) <= MOST_NONCENTRALITY, 1.0, math.nan)
    return (
        2.0
        * inside
        * sum(chi * f(s, with_last_axis(t) * s - with_last_axis(nc)) * (1.0 + exp(-v)) * step, -1)
    )


def gaussian_bell(z):
    return exp(-0.5 * square(z)) / ROOT_2PI


def nct_by_df(out, df, nc, t):
    centre = 0.5 * (log(0.5 * df) + 1.0 - digamma(0.5 * df))
    return over_chi(lambda s, z: (with_last_axis(centre) + log(s) - 0.5 * s * s) * ndtr(z), df, nc, t)


def nct_by_nc(out, df, nc, t):
    return -over_chi(lambda s, z: gaussian_bell(z), df, nc, t)


def nct_density(out, df, nc, t):
    return over_chi(lambda s, z: s * gaussian_bell(z), df, nc, t)


def nct_tail(df, nc, t):
    """The upper tail; the lower one is that of -nc, -t."""
    return over_chi(lambda s, z: ndtr(-z), df, nc, t)


nctdtr = special_function(sp.nctdtr, nct_by_df, nct_by_nc, nct_density)
nctdtridf = inverse(sp.nctdtridf, nctdtr, 0, 0)
nctdtrinc = inverse(sp.nctdtrinc, nctdtr, 1, 1)
nctdtrit = inverse(sp.nctdtrit, nctdtr, 2, 2)

# --- counts as real numbers, from a probability ---


def poisson_of_real(k, m):
    """Q(k + 1, m)."""
    return gammaincc(k + 1.0, m)


def binomial_of_real(k, n, p):
    """I_(1-p)(n - k, k + 1)."""
    return betainc(n - k, k + 1.0, 1.0 - p)


def negative_binomial_of_real(k, n, p):
    """I_p(n, k + 1)."""
    return betainc(n, k + 1.0, p)


with_partials(
    poisson_of_real,
    lambda out, k, m: -gamma_moment(k + 1.0, m, n=1),
    lambda out, k, m: -gamma_density(k + 1.0, m),
)
with_partials(
    binomial_of_real,
    lambda out, k, n, p: (
        beta_moment(n - k, k + 1.0, 1.0 - p, n=0, m=1) - beta_moment(n - k, k + 1.0, 1.0 - p, n=1, m=0)
    ),
    lambda out, k, n, p: beta_moment(n - k, k + 1.0, 1.0 - p, n=1, m=0),
    lambda out, k, n, p: -beta_density(n - k, k + 1.0, 1.0 - p),
)
with_partials(
    negative_binomial_of_real,
    lambda out, k, n, p: beta_moment(n, k + 1.0, p, n=0, m=1),
    lambda out, k, n, p: beta_moment(n, k + 1.0, p, n=1, m=0),
    lambda out, k, n, p: beta_density(n, k + 1.0, p),
)
pdtrik = inverse(sp.pdtrik, poisson_of_real, 0, 0)
bdtrik = inverse(sp.bdtrik, binomial_of_real, 0, 0)
bdtrin = inverse(sp.bdtrin, binomial_of_real, 1, 1)
nbdtrik = inverse(sp.nbdtrik, negative_binomial_of_real, 0, 0)
nbdtrin = inverse(sp.nbdtrin, negative_binomial_of_real, 1, 1)
