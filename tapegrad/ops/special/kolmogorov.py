"""Kolmogorov's and Smirnov's distribution functions, Tukey's lambda distribution, and their inverses.

The inverses are SciPy's values as constants, followed by two Newton steps."""

import math

import numpy as np
import scipy.special as sp

from ..._core.primitive import primal_of, values_of
from ..declare import shape
from ..elementwise import exp, log, log1p, power, select, square
from ..linalg.norms import frechet
from ..piecewise import maximum
from ..products import column
from ..shaping import reshape, stack, sum
from .declare import greatest, implements_special, plain_value, valued, with_last_axis, with_own_value
from .error_functions import exprel
from .gamma import gammaln

TERMS = np.arange(1.0, 7.0)
ODD = np.arange(1.0, 13.0, 2)
SIGNS = np.array([1.0, -1.0] * 3)


def kolmogorov_series(x, far, near):
    """The series of exp(-2 k^2 x^2), or its transform, of exp(-k^2 pi^2 / (8 x^2)) for odd k, whichever
    converges faster."""
    large = primal_of(x) > 0.9
    low = primal_of(x) <= 0
    y = with_last_axis(select(large, x, 1.0))
    z = with_last_axis(select(large | low, 1.0, x))
    return select(
        large, sum(SIGNS * far(y, TERMS), -1), select(low, 0.0, sum(near(z, 0.5 * ODD * math.pi), -1))
    )


def kolmogorov_rest(x):
    """The distribution function."""
    left = kolmogorov_series(
        x, lambda x, k: 0.0 * x * k, lambda x, k: math.sqrt(2 * math.pi) / x * exp(-0.5 * square(k / x))
    )
    return select(primal_of(x) > 0.9, 1.0 - kolmogorov_tail(x), left)


def kolmogorov_tail(x):
    return kolmogorov_series(x, lambda x, k: 2.0 * exp(-2.0 * square(k * x)), lambda x, k: 0.0 * x * k)


def kolmogorov_density(x):
    return kolmogorov_series(
        x,
        lambda x, k: 8.0 * x * square(k) * exp(-2.0 * square(k * x)),
        lambda x, k: math.sqrt(2 * math.pi) / square(x) * (square(k / x) - 1.0) * exp(-0.5 * square(k / x)),
    )


@implements_special(sp.kolmogorov)
def kolmogorov(x):
    return with_own_value(
        "kolmogorov", select(primal_of(x) > 0.9, kolmogorov_tail(x), 1.0 - kolmogorov_rest(x)), x
    )


@implements_special(sp.kolmogi)
def kolmogi(p):
    x = own = plain_value("kolmogi", p)
    for _ in range(2):
        x = x + (kolmogorov(x) - p) / kolmogorov_density(x)
    return valued(x, own)


def smirnov_terms(n, d):
    """(v / n, terms, logarithmic derivatives of the terms) along a last axis. The terms v = 0, ..,
    floor(n (1 - d)) are C(n, v) d (d + v / n)^(v - 1) (1 - d - v / n)^(n - v)."""
    n, d = with_last_axis(primal_of(n) * 1.0), with_last_axis(d)
    v = np.arange(int(greatest(values_of(n))) + 1.0)
    part = v / n
    inside = (primal_of(d) + part < 1.0) & (primal_of(d) > 0)
    d, rest = select(inside, d, 0.5), select(inside, 1.0 - d - part, 0.5)
    choose = gammaln(n + 1.0) - gammaln(v + 1.0) - gammaln(np.maximum(n - v, 0.0) + 1.0)
    y = exp(choose + log(d) + (v - 1.0) * log(d + part) + (n - v) * log(rest))
    return select(inside, y, 0.0), 1.0 / d + (v - 1.0) / (d + part) - (n - v) / rest


@implements_special(sp.smirnov)
def smirnov(n, d):
    return with_own_value("smirnov", select(primal_of(d) <= 0, 1.0, sum(smirnov_terms(n, d)[0], -1)), n, d)


def smirnov_density(n, d):
    y, slope = smirnov_terms(n, d)
    return -sum(y * slope, -1)


@implements_special(sp.smirnovi)
def smirnovi(n, p):
    d = own = plain_value("smirnovi", n, p)
    for _ in range(2):
        d = d + (smirnov(n, d) - p) / smirnov_density(n, d)
    return valued(d, own)


@implements_special(sp.tklmbda)
def tklmbda(x, lmbda):
    """The solution p of x = (p^lmbda - (1 - p)^lmbda) / lmbda, or of x = log(p) - log(1 - p) for lmbda =
    0."""
    own = plain_value("tklmbda", x, lmbda)
    inside = (own > 0) & (own < 1)
    p = select(inside, own, 0.5)
    y = p
    for _ in range(2):
        up, down = log(y), log1p(-y)
        off = up * exprel(lmbda * up) - down * exprel(lmbda * down) - x
        y = y - off / (exp((lmbda - 1.0) * up) + exp((lmbda - 1.0) * down))
    return valued(select(inside, y, 0.0), own)


# --- the two-sided statistic of a sample: an element of a power of a matrix (Marsaglia, Tsang & Wang, J. Stat. Softw. 8, 2003) ---


def durbin(n, d):
    """(k, the matrix, its derivative with respect to d). The scale makes the distribution function
    element (k - 1, k - 1) of power n of the matrix."""
    k = int(math.ceil(n * float(values_of(d))))
    h, m = k - n * d, 2 * k - 1
    j = np.arange(1.0, m + 1.0)
    over = np.exp(-gammaln(j + 1.0))
    v, dv = (1.0 - power(h, j)) * over, -j * power(h, j - 1.0) * over
    last_one = np.arange(m) == m - 1
    far = maximum(2.0 * h - 1.0, 0.0)
    v = v + last_one * over * (far**m - power(h, 1.0 * m))
    dv = dv + last_one * over * (2.0 * m * far ** (m - 1) - m * power(h, m - 1.0))
    base, first, below = np.zeros((m, m)), np.eye(m)[0], np.eye(m)[-1]
    for i in range(1, m):
        base[i - 1 :, i] = np.append(1.0, over)[: m - i + 1]
    base[-1] = 0.0
    corner = np.outer(below, first)
    scale = math.exp((math.lgamma(n + 1.0) - n * math.log(n)) / n)

    def bordered(x, inner):
        return (inner + column(x) * first + below[:, None] * x[::-1] - corner * x[-1]) * scale

    return k, bordered(v, base), -n * bordered(dv, 0.0)


def for_each_number(f, n, d):
    """f(n, d) for each pair of elements of arrays."""
    n = np.asarray(values_of(n))
    places = np.broadcast_shapes(n.shape, shape(d))
    d, n = d + np.zeros(places), np.broadcast_to(n, places)
    return reshape(stack([f(int(n[i]), d[i]) for i in np.ndindex(*places)]), to=places)


def of_sample(n, d):
    plain = float(values_of(d))
    if plain >= 1.0 or n * plain <= 0.5:
        return 0.0 * d + float(plain >= 1.0)
    if plain >= 0.5:
        return 1.0 - 2.0 * smirnov(n, d)
    k, h, _ = durbin(n, d)
    return np.linalg.matrix_power(h, n)[k - 1, k - 1]


def density_of_sample(n, d):
    plain = float(values_of(d))
    if plain >= 1.0 or n * plain <= 0.5:
        return 0.0 * d
    if plain >= 0.5:
        return 2.0 * smirnov_density(n, d)
    k, h, dh = durbin(n, d)
    return frechet(lambda x: np.linalg.matrix_power(x, n), h, dh)[k - 1, k - 1]
