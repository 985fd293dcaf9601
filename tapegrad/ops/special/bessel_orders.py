"""Derivatives of Bessel functions with respect to the order, at positive arguments.

They are Schlaefli's contour integrals with powers of the angle, or the power series, whichever does
not cancel (Watson, "A Treatise on the Theory of Bessel Functions", 6.2; DLMF 10.9)."""

import math

import numpy as np
import scipy.special as sp

from ..declare import primitive
from .declare import greatest, of_floats, slopes
from .incomplete import GAUSS_NODES, central_moment, nodes_and_weights

INTEGRAL_STEPS = 200
MOST_NODES = 4000  # nodes of an integral over a fully oscillating integrand


at_positive = of_floats(lambda v, z: (z > 0) & np.isfinite(v) & (z < np.inf), 1.0, 1.0)


# --- K ---


@primitive(batch="elementwise")
@at_positive
def bessel_k_moment(v, z, *, n, m):
    """exp(z) K_v(z), differentiated m times with respect to v, and n times with respect to z under the
    integral without the factor exp(z).

    It is the integral of exp(-z (cosh t - 1)) (1 - cosh t)^n t^m cosh(v t) over t > 0, with sinh for
    odd m. The rule of equal steps converges exponentially."""
    w = abs(v)
    end = np.arcsinh(w / z) + 1.0
    for _ in range(20):
        end = np.arccosh(1.0 + (50.0 + w * end) / z)
    t = (end / INTEGRAL_STEPS)[..., None] * np.arange(INTEGRAL_STEPS + 1)
    fall = -2.0 * np.sinh(0.5 * t) ** 2
    part = 0.5 * (
        np.exp(z[..., None] * fall + w[..., None] * t)
        + (-1) ** m * np.exp(z[..., None] * fall - w[..., None] * t)
    )
    f = part * fall**n * t**m
    y = (f.sum(-1) - 0.5 * f[..., 0]) * (end / INTEGRAL_STEPS)
    return np.where(v < 0, (-1) ** m * y, y)


slopes(
    bessel_k_moment,
    lambda out, v, z, n, m: bessel_k_moment(v, z, n=n, m=m + 1),
    lambda out, v, z, n, m: bessel_k_moment(v, z, n=n + 1, m=m),
)


# --- J, Y, I ---


def over_angles(v, z, f):
    """The integral of f(angle) from 0 to pi."""
    count = min(MOST_NODES, 64 + int(greatest(z + abs(v))))
    nodes, weights = nodes_and_weights(count)
    return (f(0.5 * math.pi * (nodes + 1.0)) * weights).sum(-1) * (0.5 * math.pi)


def over_line(v, z, k, rise):
    """The integral of t^k exp(-v t - z rise(t)) for t > 0, rise = sinh or cosh + 1; v may be negative."""
    end = np.full(z.shape, 1.0)
    for _ in range(20):
        end = np.arcsinh((50.0 + np.maximum(-v, 0.0) * end) / z)
    top = np.minimum(end, np.arccosh(np.maximum(-v / z, 1.0)) + 1.0)  # beyond the maximum
    total, (nodes, weights) = 0.0, nodes_and_weights(GAUSS_NODES)
    for low, high in ((0.0 * top, top), (top, end)):
        half = 0.5 * (high - low)
        t = 0.5 * (high + low)[..., None] + half[..., None] * nodes
        total = total + (t**k * np.exp(-v[..., None] * t - z[..., None] * rise(t)) * weights).sum(-1) * half
    return total


def order_derivative_term(v, n, wave, part):
    """The derivative of order n with respect to v of wave(pi v) times an integral. The integral's
    derivative of order k is (-1)^k part(k)."""
    return sum(
        math.comb(n, k)
        * math.pi ** (n - k)
        * wave(math.pi * v + 0.5 * math.pi * (n - k))
        * (-1) ** k
        * part(k)
        for k in range(n + 1)
    )


def by_series(v, z, n, signum):
    """The derivative of order n with respect to v of the sum of signum^k (z / 2)^(2 k + v) / (k! Gamma(v
    + k + 1)), v > -1. Each term is an exponential in v. Its derivatives are moments with the cumulants
    log(z / 2) - psi(v + k + 1), -psi'(v + k + 1), ..."""
    total, low = 0.0, np.log(0.5 * z)
    for k in range(int(1.5 * greatest(z)) + 40):
        at = v + k + 1.0
        size = np.exp((2 * k + v) * low - sp.gammaln(at) - math.lgamma(k + 1.0))
        mean = low - sp.digamma(at)
        moments = sum(
            math.comb(n, j)
            * mean ** (n - j)
            * central_moment(lambda i, _, at=at: -sp.polygamma(i - 1, at), j)
            for j in range(n + 1)
        )
        total = total + signum**k * size * moments
    return total


def j_by_integral(v, z, n):
    angles = over_angles(
        v, z, lambda a: a**n * np.cos(v[..., None] * a - z[..., None] * np.sin(a) + 0.5 * math.pi * n)
    )
    return (angles - order_derivative_term(v, n, np.sin, lambda k: over_line(v, z, k, np.sinh))) / math.pi


def y_by_integral(v, z, n):
    angles = over_angles(
        v, z, lambda a: (-a) ** n * np.sin(z[..., None] * np.sin(a) - v[..., None] * a + 0.5 * math.pi * n)
    )
    return (
        angles
        - over_line(-v, z, n, np.sinh)
        - order_derivative_term(v, n, np.cos, lambda k: over_line(v, z, k, np.sinh))
    ) / math.pi


def i_by_integral(v, z, n):
    angles = over_angles(
        v,
        z,
        lambda a: (
            a**n
            * np.exp(-2.0 * z[..., None] * np.sin(0.5 * a) ** 2)
            * np.cos(v[..., None] * a + 0.5 * math.pi * n)
        ),
    )
    return (
        angles - order_derivative_term(v, n, np.sin, lambda k: over_line(v, z, k, lambda t: np.cosh(t) + 1.0))
    ) / math.pi


def series_or_integral(v, z, n, first, signum, integral, scale):
    """The series where `first` holds, else the integral. Each gets only its own arguments."""
    y = np.empty(v.shape)
    y[first] = by_series(v[first], z[first], n, signum) * scale(z[first])
    y[~first] = integral(v[~first], z[~first], n)
    return y


@primitive(batch="elementwise")
@at_positive
def bessel_j_order(v, z, *, n):
    """The derivative of order n > 0 of J_v(z) with respect to v."""
    first = (v > -1.0) & (z * z < 48.0 * (v + 1.0))
    return series_or_integral(v, z, n, first, -1.0, j_by_integral, np.ones_like)


@primitive(batch="elementwise")
@at_positive
def bessel_y_order(v, z, *, n):
    return y_by_integral(v, z, n)


@primitive(batch="elementwise")
@at_positive
def bessel_i_order(v, z, *, n):
    """The derivative of order n > 0 of exp(-z) I_v(z) with respect to v."""
    first = (v > -1.0) & ((z < 30.0) | (z < v))
    return series_or_integral(v, z, n, first, 1.0, i_by_integral, lambda z: np.exp(-z))


def order_rules(f, sign):
    """The rules of a function with f' = (f_(v-1) + sign f_(v+1)) / 2; with sign 1 it is scaled by exp(-z)."""

    def by_argument(out, v, z, n):
        slope = 0.5 * (f(v - 1.0, z, n=n) + sign * f(v + 1.0, z, n=n))
        return slope - out if sign > 0 else slope

    slopes(f, lambda out, v, z, n: f(v, z, n=n + 1), by_argument)


order_rules(bessel_j_order, -1)
order_rules(bessel_y_order, -1)
order_rules(bessel_i_order, 1)
