"""Elliptic integrals and functions, and the arithmetic-geometric mean, in all arguments.

Carlson's integrals, of products of powers of t + x_i for t from 0 to infinity, form a family that is
closed under derivatives. No member cancels. Legendre's integrals are members."""

import math

import numpy as np
import scipy.special as sp

from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..declare import primitive
from ..elementwise import cos, over0, select, sin, sqrt
from ..piecewise import floor
from .declare import at_real, first_array, implements_special, raised, result_part, slopes, special_function

TRAPEZOID_POINTS = 400


@primitive(batch="elementwise")
def carlson(x, y, z, w, *, powers):
    """The integral of the product of (t + x_i)^(-p_i) for t from 0 to infinity. With t = exp(s) the
    integrand decays exponentially on both sides and is analytic in a strip around the real line. So
    the rule of equal steps converges exponentially."""
    xp = xp_of(first_array(x, y, z, w))
    kind = np.result_type(x, y, z, w)
    given = [(xp.asarray(v, dtype=float), p) for v, p in zip((x, y, z, w), powers, strict=True) if p]
    values = xp.broadcast_arrays(*[v for v, _ in given])
    sizes = [p for _, p in given]
    ok = sum([(v < 0) | ~(v < np.inf) for v in values]) == 0
    finite = sum([(v == 0) * p for v, p in zip(values, sizes, strict=True)]) < 1
    values = [xp.where(ok & finite, v, 1.0) for v in values]
    least = (
        xp.minimum.reduce([xp.where(v > 0, v, np.inf) for v in values]) if xp is np else _least(xp, values)
    )
    most = values[0]
    for v in values[1:]:
        most = xp.maximum(most, v)
    zeros = sum([(v == 0) * p for v, p in zip(values, sizes, strict=True)])
    low = xp.log(least) - 38.0 / (1.0 - zeros)
    high = xp.log(most) + 38.0 / (sum(sizes) - 1.0)
    step = (high - low) / TRAPEZOID_POINTS
    t = xp.exp(low[..., None] + step[..., None] * xp.arange(TRAPEZOID_POINTS + 1))
    f = t
    for v, p in zip(values, sizes, strict=True):
        f = f * (t + v[..., None]) ** -p
    y = f.sum(-1) * step
    return xp.where(ok, xp.where(finite, y, np.inf), np.nan).astype(kind)[()]


def _least(xp, values):
    least = xp.where(values[0] > 0, values[0], np.inf)
    for v in values[1:]:
        least = xp.minimum(least, xp.where(v > 0, v, np.inf))
    return least


def by_argument(k):
    """The rule of argument k."""
    return lambda out, x, y, z, w, powers: -powers[k] * carlson(x, y, z, w, powers=raised(powers, k))


slopes(carlson, *map(by_argument, range(4)))

HALF = (0.5, 0.5, 0.5, 0.0)
SECOND, THIRD = (0.5, 0.5, 1.5, 0.0), (0.5, 0.5, 0.5, 1.0)


def by(powers, factor, k):
    """The partial derivative of `factor` times the integral with respect to argument k."""
    shape = raised(powers, k)
    if powers[3]:
        return lambda out, x, y, z, w: -factor * powers[k] * carlson(x, y, z, w, powers=shape)
    return lambda out, x, y, z: -factor * powers[k] * carlson(x, y, z, 1.0, powers=shape)


elliprf = special_function(sp.elliprf, *[at_real(by(HALF, 0.5, k)) for k in range(3)])
elliprd = special_function(sp.elliprd, *[at_real(by(SECOND, 1.5, k)) for k in range(3)])
elliprj = special_function(sp.elliprj, *[at_real(by(THIRD, 1.5, k)) for k in range(4)])
elliprc = special_function(
    sp.elliprc,
    at_real(lambda out, x, y: -0.25 * carlson(x, y, 1.0, 1.0, powers=(1.5, 1.0, 0.0, 0.0))),
    at_real(lambda out, x, y: -0.5 * carlson(x, y, 1.0, 1.0, powers=(0.5, 2.0, 0.0, 0.0))),
)


def surface(x, y, z):
    """The derivative of R_G with respect to x: the integral of t / 8 (t + x)^(-3/2) ((t + y) (t +
    z))^(-1/2), with t = (t + x) - x."""
    return 0.125 * (
        carlson(x, y, z, 1.0, powers=HALF) - x * carlson(x, y, z, 1.0, powers=(1.5, 0.5, 0.5, 0.0))
    )


elliprg = special_function(
    sp.elliprg,
    at_real(lambda out, x, y, z: surface(x, y, z)),
    at_real(lambda out, x, y, z: surface(y, x, z)),
    at_real(lambda out, x, y, z: surface(z, x, y)),
)

# --- Legendre's integrals ---


def complete_integral(m, powers):
    return carlson(0.0, 1.0 - m, 1.0, 1.0, powers=powers)


ellipk = special_function(sp.ellipk, lambda out, m: 0.25 * complete_integral(m, (0.5, 1.5, 0.5, 0.0)))
ellipkm1 = special_function(
    sp.ellipkm1, lambda out, p: -0.25 * carlson(0.0, p, 1.0, 1.0, powers=(0.5, 1.5, 0.5, 0.0))
)
ellipe = special_function(sp.ellipe, lambda out, m: -0.25 * complete_integral(m, (0.5, 0.5, 1.5, 0.0)))


def incomplete(phi, m, powers):
    """sin^3 / 4 times the integral, continued over the periods of the sine."""
    periods = primal_floor(phi)
    s, c = sin(phi), cos(phi)
    part = 0.25 * s * s * s * carlson(c * c, 1.0 - m * s * s, 1.0, 1.0, powers=powers)
    sign = 1.0 - 2.0 * abs(periods % 2)
    return select(primal_of(s) == 0, 0.0 * part, sign * part) + 2.0 * periods * 0.25 * complete_integral(
        m, powers
    )


def primal_floor(phi):
    """The integer k for which k pi is nearest to an angle."""
    phi = primal_of(phi)
    return floor(phi / math.pi + 0.5)


ellipkinc = special_function(
    sp.ellipkinc,
    lambda out, phi, m: over0(1.0, sqrt(1.0 - m * sin(phi) * sin(phi))),
    lambda out, phi, m: incomplete(phi, m, (0.5, 1.5, 0.5, 0.0)),
)
ellipeinc = special_function(
    sp.ellipeinc,
    lambda out, phi, m: sqrt(1.0 - m * sin(phi) * sin(phi)),
    lambda out, phi, m: -incomplete(phi, m, (0.5, 0.5, 1.5, 0.0)),
)
amplitude = special_function(
    None,
    lambda out, u, m: sqrt(cos(out) * cos(out) + (1.0 - m) * sin(out) * sin(out)),
    lambda out, u, m: (
        -sqrt(cos(out) * cos(out) + (1.0 - m) * sin(out) * sin(out))
        * incomplete(out, m, (0.5, 1.5, 0.5, 0.0))
    ),
    body=result_part(sp.ellipj, 3),
    name="amplitude",
)


@implements_special(sp.ellipj)
def ellipj(u, m):
    """sn, cn, dn and the amplitude. sn and cn are its sine and cosine, and dn is the root of 1 - m sin^2."""
    phi = amplitude(u, m)
    s, c = sin(phi), cos(phi)
    return s, c, sqrt(c * c + (1.0 - m) * s * s), phi


def mean_slope(out, a, b):
    """The mean is pi / (2 R_F(0, a^2, b^2)), with the sign of both."""
    size = select(primal_of(a) < 0, -1.0, 1.0) * a
    return out * out / math.pi * size * carlson(0.0, a * a, b * b, 1.0, powers=(0.5, 1.5, 0.5, 0.0))


agm = special_function(
    sp.agm, lambda out, a, b: mean_slope(out, a, b), lambda out, a, b: mean_slope(out, b, a)
)
