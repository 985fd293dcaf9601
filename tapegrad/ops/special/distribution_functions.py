"""Distribution functions of scipy.special and their inverses: those of the gamma and beta families are the
incomplete functions."""

from typing import Any

import numpy as np
import scipy.special as sp

from ..._core.primitive import primal_of
from ..elementwise import absolute, exp, log, over0, power, select, sqrt
from ..piecewise import floor
from ..shaping import sum
from .bessel_orders import bessel_i_order, bessel_j_order
from .declare import (
    IntegerArgument,
    at_real,
    complement,
    implements_special,
    inverse,
    special_function,
    with_last_axis,
    with_own_value,
    with_partials,
)
from .error_functions import ndtri
from .gamma import digamma, factorial, gammaln, poch
from .incomplete import (
    beta_density,
    beta_moment,
    betainc,
    gamma_density,
    gamma_moment,
    stdtr,
    student_by_df,
    student_density,
)

with_partials(stdtr, lambda out, df, t: student_by_df(df, t), lambda out, df, t: student_density(df, t))
COUNT = IntegerArgument("counts are constants")


def composed_in_kernels(form) -> dict:
    """The words of `primitive` for a function that kernels compute by this one."""
    return {"scalar": form, "rough": True}


# --- gamma: of x, with rate a and shape b; chi-square; Poisson ---

gdtr = special_function(
    sp.gdtr,
    lambda out, a, b, x: x * gamma_density(b, a * x),
    lambda out, a, b, x: gamma_moment(b, a * x, n=1),
    lambda out, a, b, x: a * gamma_density(b, a * x),
    **composed_in_kernels(lambda a, b, x: sp.gammainc(b, a * x)),
)
gdtrc = complement(sp.gdtrc, gdtr, **composed_in_kernels(lambda a, b, x: sp.gammaincc(b, a * x)))
gdtria = inverse(sp.gdtria, gdtr, 0, 0)
gdtrib = inverse(sp.gdtrib, gdtr, 1, 1)
gdtrix = inverse(sp.gdtrix, gdtr, 2, 2)
chdtr = special_function(
    sp.chdtr,
    lambda out, v, x: 0.5 * gamma_moment(0.5 * v, 0.5 * x, n=1),
    lambda out, v, x: 0.5 * gamma_density(0.5 * v, 0.5 * x),
    **composed_in_kernels(lambda v, x: sp.gammainc(0.5 * v, 0.5 * x)),
)
chdtrc = complement(sp.chdtrc, chdtr, **composed_in_kernels(lambda v, x: sp.gammaincc(0.5 * v, 0.5 * x)))
chdtri = inverse(sp.chdtri, chdtr, 1, 1, tail=True)
chdtriv = inverse(sp.chdtriv, chdtr, 0, 0)
pdtr = special_function(
    sp.pdtr,
    COUNT,
    lambda out, k, m: -gamma_density(floor(primal_of(k)) + 1.0, m),
    **composed_in_kernels(lambda k, m: sp.gammaincc(np.floor(k) + 1.0, m)),
)
pdtrc = special_function(
    sp.pdtrc,
    COUNT,
    lambda out, k, m: gamma_density(floor(primal_of(k)) + 1.0, m),
    **composed_in_kernels(lambda k, m: sp.gammainc(np.floor(k) + 1.0, m)),
)
pdtri = special_function(
    sp.pdtri, COUNT, lambda out, k, y: -over0(1.0, gamma_density(floor(primal_of(k)) + 1.0, out))
)

# --- beta: binomial, negative binomial, F, Student ---


def successes(n, k, p):
    """The derivative with respect to p of the probability of more than k successes in n trials."""
    k = floor(primal_of(k))
    return select(k >= primal_of(n), 0.0, beta_density(k + 1.0, select(k >= primal_of(n), 1.0, n - k), p))


bdtr = special_function(sp.bdtr, COUNT, COUNT, lambda out, k, n, p: -successes(n, k, p))
bdtrc = special_function(sp.bdtrc, COUNT, COUNT, lambda out, k, n, p: successes(n, k, p))
for _name, _slope in (  # those that scipy.stats calls
    ("_binom_cdf", lambda out, k, n, p: -successes(n, k, p)),
    ("_binom_sf", lambda out, k, n, p: successes(n, k, p)),
    ("_binom_pmf", lambda out, k, n, p: out * (k - n * p) / (p * (1.0 - p))),
):
    _ufunc = getattr(sp._ufuncs, _name)
    special_function(_ufunc, COUNT, COUNT, _slope, body=_ufunc, name=_name)
for _name in ("_binom_ppf", "_binom_isf", "_nbinom_ppf", "_nbinom_isf"):  # whole numbers
    _ufunc = getattr(sp._ufuncs, _name)
    special_function(_ufunc, *(lambda out, q, n, p: 0.0 * out,) * 3, body=_ufunc, name=_name)
bdtri = special_function(sp.bdtri, COUNT, COUNT, lambda out, k, n, y: -over0(1.0, successes(n, k, out)))
nbdtr = special_function(
    sp.nbdtr, COUNT, COUNT, lambda out, k, n, p: beta_density(n, floor(primal_of(k)) + 1.0, p)
)
nbdtrc = special_function(
    sp.nbdtrc, COUNT, COUNT, lambda out, k, n, p: -beta_density(n, floor(primal_of(k)) + 1.0, p)
)
nbdtri = special_function(
    sp.nbdtri, COUNT, COUNT, lambda out, k, n, y: over0(1.0, beta_density(n, floor(primal_of(k)) + 1.0, out))
)
btdtria = inverse(sp.btdtria, betainc, 0, 0)
btdtrib = inverse(sp.btdtrib, betainc, 1, 1)


def share(n, d, x):
    """The argument with which the F distribution function is an incomplete beta function of (n / 2, d /
    2)."""
    return n * x / (d + n * x)


fdtr = special_function(
    sp.fdtr,
    lambda out, n, d, x: (
        0.5 * beta_moment(0.5 * n, 0.5 * d, share(n, d, x), n=1, m=0)
        + beta_density(0.5 * n, 0.5 * d, share(n, d, x)) * d * x / ((d + n * x) * (d + n * x))
    ),
    lambda out, n, d, x: (
        0.5 * beta_moment(0.5 * n, 0.5 * d, share(n, d, x), n=0, m=1)
        - beta_density(0.5 * n, 0.5 * d, share(n, d, x)) * n * x / ((d + n * x) * (d + n * x))
    ),
    lambda out, n, d, x: beta_density(0.5 * n, 0.5 * d, share(n, d, x)) * d * n / ((d + n * x) * (d + n * x)),
    **composed_in_kernels(lambda n, d, x: sp.betainc(0.5 * n, 0.5 * d, share(n, d, x))),
)
fdtrc = complement(
    sp.fdtrc, fdtr, **composed_in_kernels(lambda n, d, x: sp.betaincc(0.5 * n, 0.5 * d, share(n, d, x)))
)
fdtri = inverse(sp.fdtri, fdtr, 2, 2)
fdtridfd = inverse(sp.fdtridfd, fdtr, 1, 1)
stdtrit = inverse(sp.stdtrit, stdtr, 1, 1)
stdtridf = inverse(sp.stdtridf, stdtr, 0, 0)

# --- normal: its mean and deviation from a probability ---


@implements_special(sp.nrdtrimn)
def nrdtrimn(p, std, x):
    return with_own_value("nrdtrimn", x - std * ndtri(p), p, std, x)


@implements_special(sp.nrdtrisd)
def nrdtrisd(mn, p, x):
    return with_own_value("nrdtrisd", (x - mn) / ndtri(p), mn, p, x)


# --- the confluent limit function, a Bessel function of 2 |z|^(1/2) ---

SMALL = np.arange(24.0)


def hyp0f1_by_parameter(out, v, z):
    """The derivative with respect to v: by the series near 0, else from z^((1 - v) / 2) Gamma(v)
    I_(v-1)(2 z^(1/2)), with J for z < 0."""
    near, up = absolute(primal_of(z)) < 1.0, primal_of(z) > 0
    y = with_last_axis(select(near, z, 0.5))
    k = with_last_axis(v) + SMALL
    terms = (
        power(y, SMALL)
        / (poch(with_last_axis(v), SMALL) * factorial(SMALL))
        * (digamma(with_last_axis(v)) - digamma(k))
    )
    size = select(near, 2.0, absolute(z))
    x = 2.0 * sqrt(size)
    front = exp(gammaln(v) + 0.5 * (1.0 - v) * log(size)) * (
        1.0 - 2.0 * (primal_of(v) < 0) * (floor(primal_of(v)) % 2 != 0)
    )
    slope = select(up, exp(x) * bessel_i_order(v - 1.0, x, n=1), bessel_j_order(v - 1.0, x, n=1))
    return select(near, sum(terms, -1), out * (digamma(v) - 0.5 * log(size)) + front * slope)


hyp0f1: Any = special_function(
    sp.hyp0f1, at_real(hyp0f1_by_parameter), lambda out, v, z: hyp0f1(v + 1.0, z) / v
)
