"""Hypergeometric functions, Wright's and Struve's functions, with derivatives with respect to their
parameters.

Each term of a series is the previous one times (a + k) z / ((b + k) (k + 1)). Its derivatives with
respect to a and b follow from the product rule, without a division by zero. The series are used where
their terms do not cancel (Kummer's and Pfaff's transformations). Elsewhere, and where they diverge,
the derivative with respect to a parameter is nan."""

import math
from typing import Any

import numpy as np
import scipy.special as sp

from ..._core.primitive import primal_of, seen
from ..declare import primitive, xp
from ..elementwise import exp, log, log1p, select
from ..shaping import sum
from .declare import at_real, greatest, raised, slopes, special_function, with_last_axis
from .gamma import digamma, gammaln

MOST_SERIES_TERMS = 4000  # terms


def risen(d, x, k, axis):
    """The derivatives d[i] of a term with respect to x, after a multiplication by x + k."""
    d = np.moveaxis(d, axis, 0)
    out = d * (x + k)
    for i in range(1, len(d)):
        out[i] += i * d[i - 1]
    return np.moveaxis(out, 0, axis)


def fallen(d, x, k, axis):
    """The same after a division by x + k."""
    d = np.moveaxis(d, axis, 0)
    out = np.empty_like(d)
    for i in range(len(d)):
        out[i] = (d[i] - (i * out[i - 1] if i else 0.0)) / (x + k)
    return np.moveaxis(out, 0, axis)


@primitive(batch="elementwise")
def series_of(a, b, c, z, *, orders):
    """The derivative of these orders of the sum of (a)_k (b)_k / ((c)_k k!) z^k, or for b = inf of (a)_k
    / ((c)_k k!) z^k."""
    kind = np.result_type(a, b, c, z)
    a, b, c, z = np.broadcast_arrays(*[np.asarray(x, float) for x in (a, b, c, z)])
    one = np.isinf(b)
    ok = np.isfinite(a) & np.isfinite(c) & (one | (abs(z) < 0.995)) & (abs(z) < 600.0)
    a, b, c, z = [np.where(ok, x, y) for x, y in ((a, 1.0), (np.where(one, 0.0, b), 1.0), (c, 1.0), (z, 0.0))]
    shape = [m + 1 for m in orders[:3]]
    d = np.zeros((*shape, *z.shape))
    d[0, 0, 0] = 1.0
    m, total, quiet = orders[3], np.zeros(z.shape), 0
    for k in range(MOST_SERIES_TERMS):
        if k >= m:
            part = d[-1, -1, -1] * math.perm(k, m)
            total = total + part
            quiet = quiet + 1 if np.all(abs(part) <= 1e-17 * abs(total)) else 0
            if quiet > 3 and k > 4:
                break
        d = risen(d, a, k, 0)
        d = np.where(one, d, risen(d, b, k, 1)) if orders[1] == 0 else risen(d, b, k, 1)
        d = fallen(d, c, k, 2) * ((z if k >= m else 1.0) / (k + 1.0))
    else:
        ok = ok & np.all(abs(part) <= 1e-13 * abs(total))
    return np.where(ok, total, np.nan).astype(kind)[()]


def by_argument(k):
    """The rule of argument k."""
    return lambda out, a, b, c, z, orders: series_of(a, b, c, z, orders=raised(orders, k))


slopes(series_of, *map(by_argument, range(4)))


def kummer(a, b, z, orders):
    return series_of(a, math.inf, b, z, orders=(orders[0], 0, orders[1], 0))


def hyp1f1_by_a(out, a, b, x):
    """For x < 0 from exp(x) M(b - a, b, -x)."""
    right = primal_of(x) >= 0
    y = select(right, x, 0.0)
    z = select(right, 0.0, x)
    return select(right, kummer(a, b, y, (1, 0)), -exp(z) * kummer(b - a, b, -z, (1, 0)))


def hyp1f1_by_b(out, a, b, x):
    right = primal_of(x) >= 0
    y = select(right, x, 0.0)
    z = select(right, 0.0, x)
    left = exp(z) * (kummer(b - a, b, -z, (1, 0)) + kummer(b - a, b, -z, (0, 1)))
    return select(right, kummer(a, b, y, (0, 1)), left)


hyp1f1: Any = special_function(
    sp.hyp1f1,
    at_real(hyp1f1_by_a),
    at_real(hyp1f1_by_b),
    lambda out, a, b, x: a / b * hyp1f1(a + 1.0, b + 1.0, x),
)


def gauss(direct, pfaff):
    """A partial derivative by the series; for z < 0 from (1 - z)^-a F(a, c - b; c; z / (z - 1))."""

    def partial(out, a, b, c, z):
        right = primal_of(z) >= 0
        y = select(right, z, 0.0)
        v = select(right, 0.0, z)
        w = v / (v - 1.0)
        f = lambda *orders: series_of(a, c - b, c, w, orders=orders)
        front = exp(-a * log1p(-v))
        return select(right, series_of(a, b, c, y, orders=direct), front * pfaff(f, log1p(-v)))

    return at_real(partial)


hyp2f1: Any = special_function(
    sp.hyp2f1,
    gauss((1, 0, 0, 0), lambda f, u: f(1, 0, 0, 0) - u * f(0, 0, 0, 0)),
    gauss((0, 1, 0, 0), lambda f, u: -f(0, 1, 0, 0)),
    gauss((0, 0, 1, 0), lambda f, u: f(0, 1, 0, 0) + f(0, 0, 1, 0)),
    lambda out, a, b, c, z: a * b / c * hyp2f1(a + 1.0, b + 1.0, c + 1.0, z),
)

# --- Tricomi's function, for a > 0 an integral over t > 0 of exp(-x t) t^(a - 1) (1 + t)^(b - a - 1) / Gamma(a) ---

STEPS = np.linspace(-5.5, 3.5, 400)
TIMES = np.exp(0.5 * math.pi * np.sinh(STEPS))
LENGTHS = 0.5 * math.pi * np.cosh(STEPS) * (STEPS[1] - STEPS[0])


def over_times(f, a, b, x):
    a = select(primal_of(a) > 0, a, math.nan)
    weight = exp(
        -with_last_axis(x) * TIMES
        + with_last_axis(a) * np.log(TIMES)
        + with_last_axis(b - a - 1.0) * np.log1p(TIMES)
        - with_last_axis(gammaln(a))
    )
    return sum(weight * f * LENGTHS, -1)


hyperu: Any = special_function(
    sp.hyperu,
    lambda out, a, b, x: over_times(np.log(TIMES) - np.log1p(TIMES), a, b, x) - digamma(a) * out,
    lambda out, a, b, x: over_times(np.log1p(TIMES), a, b, x),
    lambda out, a, b, x: -a * hyperu(a + 1.0, b + 1.0, x),
)

# --- Wright's function, the sum of x^k / (k! Gamma(a k + b)) ---


def wright_moment(a, b, x, by_a, shift):
    """The sum of the terms over exp(shift), each multiplied by -psi(a k + b), or by k times that."""
    known = seen(primal_of(x))
    size = 60 + int(4.0 * (50.0 if known is None else greatest(known)))
    k = xp(x).arange(by_a * 1.0, size)
    at = with_last_axis(a) * k + with_last_axis(b)
    terms = exp(k * log(with_last_axis(x)) - gammaln(k + 1.0) - gammaln(at) - with_last_axis(shift))
    inside = select((primal_of(x) > 0) & (primal_of(x) < 0.25 * size), 1.0, math.nan)
    return -inside * sum(terms * digamma(at) * (k if by_a else 1.0), -1)


wright_bessel: Any = special_function(
    sp.wright_bessel,
    lambda out, a, b, x: wright_moment(a, b, x, True, 0.0),
    lambda out, a, b, x: wright_moment(a, b, x, False, 0.0),
    lambda out, a, b, x: wright_bessel(a, a + b, x),
)
log_wright_bessel: Any = special_function(
    sp.log_wright_bessel,
    lambda out, a, b, x: wright_moment(a, b, x, True, out),
    lambda out, a, b, x: wright_moment(a, b, x, False, out),
    lambda out, a, b, x: exp(log_wright_bessel(a, a + b, x) - out),
)
