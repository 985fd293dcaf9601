"""Ellipsoidal harmonics of both kinds and their norms, differentiable in all arguments except degree and
order.

With t = s^2, a Lame function is a product of roots of t, t - h^2 and t - k^2 and a polynomial. The
coefficients of the polynomial are an eigenvector of a tridiagonal matrix (Heun's equation). SciPy
normalises the leading coefficient to 1."""

import math

import numpy as np
import scipy.special as sp

from ..._core.errors import ArgumentError
from ..._core.primitive import primal_of, values_of
from ..declare import shape
from ..elementwise import absolute, power, sqrt, square
from ..linalg.matrix_functions import eigen_start, eigen_steps
from ..products import column
from ..shaping import sum
from .declare import implements_special, with_last_axis


def lame(name, h2, k2, n, p):
    """(powers of s^2, |s^2 - h^2| and |s^2 - k^2| in front of the polynomial, its coefficients from the
    lowest power)."""
    n, p = [np.asarray(values_of(x)) for x in (n, p)]
    if n.size != 1 or p.size != 1 or shape(h2) or shape(k2) or not 1 <= p <= 2 * n + 1:
        raise ArgumentError(
            f"scipy.special.{name}: with one ellipsoid, one degree n and one order 1 <= p <= 2 n + 1 on a "
            f"tracked Variable"
        )
    n, r, p = int(n), int(n) // 2, int(p) - 1
    kinds = [
        (n - 2 * r, 0, 0, r + 1),
        (1 - n + 2 * r, 1, 0, n - r),
        (1 - n + 2 * r, 0, 1, n - r),
        (n - 2 * r, 1, 1, r),
    ]
    while p >= kinds[0][3]:
        p -= kinds.pop(0)[3]
    *powers, size = kinds[0]
    a, b, c = [x + 0.5 for x in powers]
    j = np.arange(size * 1.0)
    rises = 4.0 * (j * (j - 1.0) + (a + b + c) * j)
    up = np.diag((rises - rises[-1])[:-1], -1)
    middle = -4.0 * np.diag(j * (j - 1.0)), -4.0 * np.diag(j)
    down = 4.0 * np.diag((j * (j - 1.0 + a))[1:], 1)
    m = up + middle[0] * (h2 + k2) + middle[1] * (a * (h2 + k2) + b * k2 + c * h2) + down * (h2 * k2)
    w, v = eigen_start(f"scipy.special.{name}", m)
    order = np.argsort(-np.real(values_of(w)))
    v = eigen_steps(m, np.real(values_of(v))[:, order], 2)[1][:, p]
    return powers, v / v[-1]


def ellipsoidal_harmonic(series, h2, k2, s):
    powers, coefficients = series
    t = square(s)
    y = sum(coefficients * power(with_last_axis(t), np.arange(shape(coefficients)[0] * 1.0)), -1)
    y = y * s if powers[0] else y
    y = y * sqrt(absolute(t - h2)) if powers[1] else y
    return y * sqrt(absolute(t - k2)) if powers[2] else y


@implements_special(sp.ellip_harm)
def ellip_harm(h2, k2, n, p, s, signm=1, signn=1):
    series = lame("ellip_harm", h2, k2, n, p)
    sign = (signm if series[0][1] else 1) * (signn if series[0][2] else 1)
    return sign * ellipsoidal_harmonic(series, h2, k2, s)


NODES, WEIGHTS = [0.5 * x for x in np.polynomial.legendre.leggauss(120)]
NODES = NODES + 0.5


@implements_special(sp.ellip_harm_2)
def ellip_harm_2(h2, k2, n, p, s):
    """(2 n + 1) E(s) times the integral of 1 / (E^2 sqrt((s^2 - h^2) (s^2 - k^2))) from s to infinity."""
    series = lame("ellip_harm_2", h2, k2, n, p)
    at = with_last_axis(s) / NODES
    f = ellipsoidal_harmonic(series, h2, k2, at)
    rest = sum(WEIGHTS / (square(f) * sqrt((1.0 - k2 / square(at)) * (1.0 - h2 / square(at)))), -1) / s
    return (2.0 * primal_of(n) + 1.0) * ellipsoidal_harmonic(series, h2, k2, s) * rest


ANGLES = (np.arange(200) + 0.5) * (math.pi / 400)


@implements_special(sp.ellip_normal)
def ellip_normal(h2, k2, n, p):
    """8 times the integral of E(x)^2 E(y)^2 (y^2 - x^2) / ((k^2 - x^2)^(1/2) y) over two angles. These
    are the angles of x = h sin and of y^2 = h^2 + (k^2 - h^2) sin^2. The integrand is periodic, so the rule
    of equal steps converges exponentially."""
    series = lame("ellip_normal", h2, k2, n, p)
    turns = np.sin(ANGLES)
    x, y = sqrt(h2) * turns, sqrt(h2 + (k2 - h2) * square(turns))
    f, g = [square(ellipsoidal_harmonic(series, h2, k2, z)) for z in (x, y)]
    whole = column(f / sqrt(k2 - square(x))) * (g / y) * (square(y) - column(square(x)))
    return 8.0 * (math.pi / 400) ** 2 * sum(sum(whole, -1), -1)
