"""Families whose functions are sums or integrals without a closed form: each is taken with nodes that are
constants, by operations."""

import math

import numpy as np

from .._core.primitive import primal_of, values_of
from ..ops.elementwise import cos, exp, expm1, log, log1p, power, select, square
from ..ops.piecewise import arctan2, logaddexp
from ..ops.reductions import logsumexp
from ..ops.shaping import sum
from ..ops.special import kolmogorov as ks
from ..ops.special import noncentral
from ..ops.special.declare import unit_nodes, with_last_axis
from ..ops.special.error_functions import exprel, log_ndtr, ndtr, xlog1py, xlogy
from ..ops.special.gamma import gammaln
from ._classic import log_phi
from ._continuous import extreme_value_term, genextreme
from ._families import Continuous, Discrete

# --- closed forms of four parameters ---

kappa4 = Continuous(
    "kappa4",
    "h k",
    valid=lambda h, k: abs(h) + abs(k) < math.inf,
    low=lambda h, k: select(
        h > 0,
        log(select(h > 0, h, 1.0)) * exprel(-k * log(select(h > 0, h, 1.0))),
        genextreme.low(k),
    ),
    high=lambda h, k: genextreme.high(k),
    logpdf=lambda z, h, k: (
        (1.0 - k) * extreme_value_term(z, k)
        + (1.0 - h) * extreme_value_term(exp(extreme_value_term(z, k)), h)
    ),
    logcdf=lambda z, h, k: extreme_value_term(exp(extreme_value_term(z, k)), h),
    from_logcdf=lambda y, h, k: -log(-y * exprel(h * y)) * exprel(k * log(-y * exprel(h * y))),
)


def mills(x):
    """The logarithm of what is left beyond x, over the density there."""
    return log_ndtr(-x) - log_phi(x)


def pareto_tail(z, u, s, a, b):
    """(z / s, the difference that a Pareto tail on either side makes), of the law of exp(normal + exponential
    - exponential)."""
    y = (log(z) - u) / s
    down, up = log_phi(y) + mills(a * s - y), log_phi(y) + mills(b * s + y)
    return y, (b * exp(down) - a * exp(up)) / (a + b)


def log_dpareto(z, u, s, a, b):
    y = (log(z) - u) / s
    x, w = mills(a * s - y), mills(b * s + y)
    return log(a) + log(b) - log(a + b) - log(z) + log_phi(y) + logaddexp(x, w)


def dpareto_cdf(z, *shapes):
    y, gap = pareto_tail(z, *shapes)
    return ndtr(y) - gap


def dpareto_sf(z, *shapes):
    y, gap = pareto_tail(z, *shapes)
    return ndtr(-y) + gap


dpareto_lognorm = Continuous(
    "dpareto_lognorm",
    "u s a b",
    valid=lambda u, s, a, b: (s > 0) & (a > 0) & (b > 0),
    low=0.0,
    logpdf=log_dpareto,
    cdf=dpareto_cdf,
    sf=dpareto_sf,
)


def whole_and_positive(n):
    return (n > 0) & (n == np.floor(n))


# --- Kolmogorov's and Smirnov's statistics, noncentral laws ---

ksone = Continuous(
    "ksone",
    "n",
    valid=whole_and_positive,
    low=0.0,
    high=1.0,
    logpdf=lambda z, n: log(ks.smirnov_density(n, z)),
    sf=lambda z, n: ks.smirnov(n, z),
)
kstwo = Continuous(
    "kstwo",
    "n",
    valid=whole_and_positive,
    low=lambda n: 0.5 / n,
    high=1.0,
    logpdf=lambda z, n: log(ks.for_each_number(ks.density_of_sample, n, z)),
    cdf=lambda z, n: ks.for_each_number(ks.of_sample, n, z),
)
kstwobign = Continuous(
    "kstwobign",
    low=0.0,
    logpdf=lambda z: log(ks.kolmogorov_density(z)),
    cdf=lambda z: ks.kolmogorov_rest(z),
    sf=lambda z: ks.kolmogorov(z * 1.0),
)
ncf = Continuous(
    "ncf",
    "dfn dfd nc",
    valid=lambda n, d, nc: (n > 0) & (d > 0) & (nc >= 0),
    low=0.0,
    logpdf=lambda z, n, d, nc: log(noncentral.ncf_density(None, n, d, nc, z)),
    cdf=lambda z, n, d, nc: noncentral.ncfdtr(n, d, nc, z),
)
nct = Continuous(
    "nct",
    "df nc",
    valid=lambda df, nc: df > 0,
    logpdf=lambda z, df, nc: log(noncentral.nct_density(None, df, nc, z)),
    cdf=lambda z, df, nc: noncentral.nctdtr(df, nc, z),
    sf=lambda z, df, nc: noncentral.nct_tail(df, nc, z),
)

# --- sums of uniform numbers: splines of whole order, by the recurrence of positive terms ---


def splines(z, n, more):
    """B_j of order n + more at z, for whole j from 0 beyond z, along a last axis."""
    n = np.asarray(values_of(n))
    most, z = int(n.max()) + more, with_last_axis(z)
    j = np.arange(2.0 * most)
    y = select((primal_of(z) >= j) & (primal_of(z) < j + 1.0), 1.0, 0.0 * z)
    found = y
    for m in range(2, most + 1):
        first = j[: 1 - m]
        y = ((z - first) * y[..., :-1] + (first + m - z) * y[..., 1:]) / (m - 1.0)
        here = np.reshape(n + more == m, (*n.shape, *[1] * bool(n.ndim)))
        found = select(here, y, found[..., :-1])
    return found


irwinhall = Continuous(
    "irwinhall",
    "n",
    valid=whole_and_positive,
    low=0.0,
    high=lambda n: n,
    logpdf=lambda z, n: log(splines(z, n, 0)[..., 0]),
    cdf=lambda z, n: sum(splines(z, n, 1), -1),
    sf=lambda z, n: sum(splines(primal_of(n) - z, n, 1), -1),
)

# --- integrals ---


def gausshyper_norm(a, b, c, z):
    x, rest, w = unit_nodes()
    return log(
        sum(
            w
            * exp(
                (with_last_axis(a) - 1.0) * np.log(x)
                + (with_last_axis(b) - 1.0) * np.log(rest)
                - with_last_axis(c) * log1p(with_last_axis(z) * x)
            ),
            -1,
        )
    )


gausshyper = Continuous(
    "gausshyper",
    "a b c z",
    valid=lambda a, b, c, z: (a > 0) & (b > 0) & (z > -1),
    low=0.0,
    high=1.0,
    logpdf=lambda x, a, b, c, z: (
        xlogy(a - 1.0, x) + xlog1py(b - 1.0, -x) - c * log1p(z * x) - gausshyper_norm(a, b, c, z)
    ),
)

NORMAL = np.linspace(-8.5, 8.5, 60)
STEP = NORMAL[1] - NORMAL[0]


def between(w):
    """The probability of a normal number between each of NORMAL and w more, from the nearer tail; by the
    density where w is small."""
    w = with_last_axis(w)
    small = primal_of(w) < 1e-6
    v = select(small, 1.0, w)
    gap = select(NORMAL > 0, ndtr(-NORMAL) - ndtr(-NORMAL - v), ndtr(NORMAL + v) - ndtr(NORMAL))
    return select(small, w * exp(log_phi(NORMAL + 0.5 * w)), gap)


def ranges(w, k):
    """The probability that k normal numbers span less than w."""
    k, gap = with_last_axis(k), between(w)
    return STEP * sum(k * exp(log_phi(NORMAL)) * power(gap, k - 1.0), -1)


def range_density(w, k):
    k, gap = with_last_axis(k), between(w)
    return STEP * sum(
        k * (k - 1.0) * exp(log_phi(NORMAL) + log_phi(NORMAL + with_last_axis(w))) * power(gap, k - 2.0), -1
    )


studentized_range = Continuous(
    "studentized_range",
    "k df",
    valid=lambda k, df: (k > 1) & (df > 0),
    low=0.0,
    logpdf=lambda z, k, df: log(
        noncentral.over_chi(lambda s, w: s * range_density(w, with_last_axis(k)), df, 0.0, z, points=120)
    ),
    cdf=lambda z, k, df: noncentral.over_chi(
        lambda s, w: ranges(w, with_last_axis(k)), df, 0.0, z, points=120
    ),
)

LINE = np.arange(0.5, 400.0) * 0.05  # of the contour; beyond it exp(-pi y / 2) is nothing
GAUSS, GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(20)
# from 0 to 1, where u log u is not smooth at 0, and beyond
RIGHT = (
    np.concatenate([unit_nodes()[0], *[k + 0.5 * (GAUSS + 1.0) for k in range(1, 20)]]),
    np.concatenate([unit_nodes()[2], np.tile(0.5 * GAUSS_WEIGHTS, 19)]),
)


def landau_parts(z, over: bool) -> tuple:
    """(The integral of exp(s log s + v s) along a line through its saddle, that of exp(-u log u - v u) sin(pi
    u)), v = pi z / 2 + log(pi / 2); `over`: the integrands over s and u.  The first is right on the left, the
    second on the right."""
    v = 0.5 * math.pi * z + math.log(0.5 * math.pi)
    left = primal_of(v) < 1.0
    near, far = with_last_axis(select(left, v, 1.0)), with_last_axis(select(left, 1.0, v))
    start = exp(-1.0 - primal_of(near))
    size = np.maximum(1.0, np.sqrt(start))  # the width of the saddle
    y = LINE * size
    radius, angle = log(square(start) + square(y)) * 0.5, arctan2(y, start)
    up = exp(start * radius - y * angle + near * start)
    turn = start * angle + y * radius + near * y
    value = cos(turn - angle) * exp(-radius) if over else cos(turn)
    u, w = RIGHT
    sines = w * math.pi * np.sinc(u) * (1.0 if over else u)
    return (
        left,
        sum(up * value * size, -1) * 0.05 / math.pi,
        sum(sines * exp(-u * np.log(u) - far * u), -1) / math.pi,
    )


def landau_density(z):
    left, one, other = landau_parts(z, False)
    return 0.5 * math.pi * select(left, one, other)


def landau_cdf(z):
    left, below, above = landau_parts(z, True)
    return select(left, below, 1.0 - above)


def landau_sf(z):
    left, below, above = landau_parts(z, True)
    return select(left, 1.0 - below, above)


landau = Continuous("landau", logpdf=lambda z: log(landau_density(z)), cdf=landau_cdf, sf=landau_sf)

# --- whole numbers ---


def harmonic_sum(k, a, most):
    """The sum of j^-a for j from 1 to k."""
    j = np.arange(1.0, most + 1.0)
    return sum(select(j <= with_last_axis(primal_of(k)), exp(-with_last_axis(a) * np.log(j)), 0.0), -1)


def largest_integer(n):
    return int(np.max(np.asarray(values_of(n))))


zipfian = Discrete(
    "zipfian",
    "a n",
    lambda k, a, n: -a * log(k) - log(harmonic_sum(n, a, largest_integer(n))),
    last=lambda a, n: n,
    valid=lambda a, n: (a >= 0) & whole_and_positive(n),
    first=1,
    cdf=lambda k, a, n: harmonic_sum(k, a, largest_integer(n)) / harmonic_sum(n, a, largest_integer(n)),
)


def log_binomial(n, k):
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def log_draws(k, M, n, N):
    """The logarithm of the number of ways to draw k of n and N - k of the M - n others; -inf where there is
    none."""
    inside = (k >= np.maximum(0.0, N - M + n)) & (k <= np.minimum(n, N))
    j = np.where(inside, k, np.maximum(0.0, N - M + n))
    return np.where(inside, log_binomial(n, j) + log_binomial(M - n, N - j), -np.inf)


def plain_rule(*xs):
    return [np.asarray(values_of(x)) * 1.0 for x in xs]


def fisher_log(k, M, n, N, odds):
    M, n, N = plain_rule(M, n, N)
    every = np.arange(largest_integer(np.minimum(n, N)) + 1.0)
    total = logsumexp(
        log_draws(every, M[..., None], n[..., None], N[..., None]) + every * log(with_last_axis(odds)), -1
    )
    return log_draws(primal_of(k), M, n, N) + k * log(odds) - total


def wallenius_log(k, M, n, N, odds):
    """Balls of one colour are `odds` times as likely to be the next: an integral over the time until N are
    drawn."""
    M, n, N = plain_rule(M, n, N)
    x, rest, w = unit_nodes()
    time = np.where(x < 0.5, np.log(x), np.log1p(-np.minimum(rest, 0.5)))
    k_, d = primal_of(k), odds * (n - primal_of(k)) + (M - n) - (N - primal_of(k))
    d = select(primal_of(d) > 0, d, 1.0)
    ours, others = log(-expm1(with_last_axis(odds / d) * time)), log(-expm1(with_last_axis(1.0 / d) * time))
    k_, all_ = with_last_axis(k_), with_last_axis(N)
    inside = np.isfinite(log_draws(primal_of(k), M, n, N))
    integral = sum(w * exp(select(with_last_axis(inside), k_ * ours + (all_ - k_) * others, 0.0)), -1)
    return log_draws(primal_of(k), M, n, N) + log(integral)


def possible(k, M, n, N, odds):
    return (k >= np.maximum(0, N - M + n)) & (k <= np.minimum(n, N))


def possible_draws(M, n, N, odds):
    whole = (M == np.floor(M)) & (n == np.floor(n)) & (N == np.floor(N))
    return whole & (n >= 0) & (n <= M) & (N >= 0) & (N <= M) & (odds > 0)


nchypergeom_fisher = Discrete(
    "nchypergeom_fisher", "M n N odds", fisher_log, inside=possible, valid=possible_draws
)
nchypergeom_wallenius = Discrete(
    "nchypergeom_wallenius", "M n N odds", wallenius_log, inside=possible, valid=possible_draws
)
