"""Riemann's and Hurwitz's zeta function, in both arguments.

The sum of log(q + k)^n (q + k)^-x is (-1)^n times the derivative of order n with respect to x. This
family is closed under derivatives."""

import math

import numpy as np
import scipy.special as sp

from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..declare import implements, primitive
from ..elementwise import cos, select, sin
from ..piecewise import minimum, special_of
from .asymptotic import special_of2
from .declare import of_floats, slopes
from .gamma import BERNOULLI, digamma, gamma, real_only

ZETA_SHIFT = 12


@primitive()
def hurwitz(x, q):
    return special_of2(x, q).zeta(x, q)


@primitive(batch="elementwise")
@of_floats(lambda x, q: (x > 1) & (q > 0) | (x >= -0.5) & (x != 1) & (q == 1), 2.0, 1.0)  # (continued)
def zeta_order(s, a, *, n):
    """The derivative of order n with respect to x of the sum of (q + k)^-x, x > 1, by Euler-Maclaurin
    summation from k = 12 on. With u = log t the m-th derivative of u^n t^-x is t^(-x - m) p_m(u),
    where p_(m + 1) = p_m' - (x + m) p_m. The integral is a sum of the same kind."""
    xp = xp_of(a)
    total = sum(xp.log(a + k) ** n * (a + k) ** -s for k in range(ZETA_SHIFT))
    t = a + ZETA_SHIFT
    u = xp.log(t)
    total = total + 0.5 * u**n * t**-s
    total = total + t ** (1.0 - s) * sum(
        math.perm(n, j) * u ** (n - j) / (s - 1.0) ** (j + 1) for j in range(n + 1)
    )
    p = [0.0 * s + (i == n) for i in range(n + 1)]  # coefficients of p_m
    for m in range(2 * len(BERNOULLI) - 1):
        p = [((i + 1) * p[i + 1] if i < n else 0.0) - (s + m) * p[i] for i in range(n + 1)]
        if m % 2 == 0:
            total = total - BERNOULLI[m // 2] * t ** (-s - m - 1) * sum(c * u**i for i, c in enumerate(p))
    return (-1.0) ** n * total


def by_q(x, q, n: int):
    """d/dq d^n/dx^n of the sum of (q + k)^-x: -d^n/dx^n x zeta(x + 1, q)."""
    y = -x * zeta_order(x + 1.0, q, n=n)
    return y - n * zeta_order(x + 1.0, q, n=n - 1) if n else y


slopes(hurwitz, lambda out, x, q: zeta_order(x, q, n=1), lambda out, x, q: -x * hurwitz(x + 1.0, q))
slopes(zeta_order, lambda out, x, q, n: zeta_order(x, q, n=n + 1), lambda out, x, q, n: by_q(x, q, n))


@primitive()
def riemann(x):
    return special_of(x).zeta(x) if xp_of(x) is np else hurwitz(x, 1.0)


def riemann_slope(x):
    """For x < -1/2 by the functional equation, zeta(x) = c(x) sin(pi x / 2) zeta(1 - x)."""
    low, at = primal_of(x) < -0.5, minimum(x, -0.5)
    y = zeta_order(select(low, 1.0 - x, x), 1.0, n=1)
    c, turn = 2.0**at * math.pi ** (at - 1.0) * gamma(1.0 - at), 0.5 * math.pi * at
    slope = (math.log(2 * math.pi) - digamma(1.0 - at)) * sin(turn) + 0.5 * math.pi * cos(turn)
    return select(low, c * (slope * riemann(1.0 - at) - sin(turn) * y), y)


slopes(riemann, lambda out, x: riemann_slope(x))


@implements(sp.zeta)
def zeta(x, q=None):
    real_only("zeta", x)
    return riemann(x) if q is None else hurwitz(x, q)
