"""Bessel functions of any order and related functions: scaled, spherical, Airy, Kelvin, Struve, parabolic
cylinder functions, and integrals.

Derivatives with respect to the argument are neighbours of the function, or follow from its
differential equation. For the order see bessel_orders.py."""

import math
from typing import Any

import numpy as np
import scipy.special as sp

from ..._core.primitive import primal_of, seen
from ..declare import followed
from ..elementwise import exp, log, power, select, sqrt
from ..shaping import sum
from .bessel import k0, side_of_zero, y0
from .bessel_orders import bessel_i_order, bessel_j_order, bessel_k_moment, bessel_y_order
from .declare import (
    IntegerArgument,
    at_real,
    greatest,
    implements_special,
    library_function,
    several_results,
    special_function,
    unit_nodes,
    with_last_axis,
    with_own_value,
)
from .gamma import digamma, gammaln, real_only, rgamma

# --- cylinder functions of real order ---


def cylinder_function(scipys, by_order, factor, sign, further=0.0):
    """f' = factor (f_(v-1) + sign f_(v+1)) + further f."""

    def slope(out, v, z):
        between = factor * (f(v - 1, z) + sign * f(v + 1, z))
        return between + further * out if further else between

    f = special_function(scipys, at_real(by_order), slope)
    return f


jv = cylinder_function(sp.jv, lambda out, v, z: bessel_j_order(v, z, n=1), 0.5, -1)
yv = cylinder_function(sp.yv, lambda out, v, z: bessel_y_order(v, z, n=1), 0.5, -1)
iv = cylinder_function(sp.iv, lambda out, v, z: exp(z) * bessel_i_order(v, z, n=1), 0.5, 1)
kv = cylinder_function(sp.kv, lambda out, v, z: exp(-z) * bessel_k_moment(v, z, n=0, m=1), -0.5, 1)
ive: Any = special_function(
    sp.ive,
    at_real(lambda out, v, z: bessel_i_order(v, z, n=1)),
    at_real(lambda out, v, z: 0.5 * (ive(v - 1, z) + ive(v + 1, z)) - side_of_zero(z) * out),
)
kve = special_function(
    sp.kve,
    at_real(lambda out, v, z: bessel_k_moment(v, z, n=0, m=1)),
    at_real(lambda out, v, z: bessel_k_moment(v, z, n=1, m=0)),
)
kn = special_function(
    sp.kn,
    IntegerArgument("it is a whole number; kv has a derivative"),
    lambda out, n, x: -0.5 * (kv(n - 1.0, x) + kv(n + 1.0, x)),
)
yn = special_function(
    sp.yn,
    IntegerArgument("it is a whole number; yv has a derivative"),
    lambda out, n, x: 0.5 * (yn_of(n - 1, x) - yn_of(n + 1, x)),
)


def yn_of(n, x):
    """Y_n for orders of any sign: Y_(-n) = (-1)^n Y_n. CuPy returns nan for negative ones."""
    n = primal_of(n)
    return (1.0 - 2.0 * ((n < 0) & (n % 2 == 1))) * yn(abs(n), x)


@implements_special(sp.jve)
def jve(v, z):
    """The scaled function. For real z the scale factor is 1."""
    real_only("jve", z)
    return with_own_value("jve", jv(v, z), v, z)


@implements_special(sp.yve)
def yve(v, z):
    real_only("yve", z)
    return with_own_value("yve", yv(v, z), v, z)


def hankel_order(sign, scaled):
    """The derivative of J + i Y, or J - i Y, with respect to the order."""

    def partial(out, v, z):
        y = bessel_j_order(v, z, n=1) + sign * 1j * bessel_y_order(v, z, n=1)
        return exp(-sign * 1j * z) * y if scaled else y

    return partial


hankel1 = cylinder_function(sp.hankel1, hankel_order(1, False), 0.5, -1)
hankel2 = cylinder_function(sp.hankel2, hankel_order(-1, False), 0.5, -1)
hankel1e = cylinder_function(sp.hankel1e, hankel_order(1, True), 0.5, -1, -1j)
hankel2e = cylinder_function(sp.hankel2e, hankel_order(-1, True), 0.5, -1, 1j)
jvp, yvp, ivp, kvp, h1vp, h2vp = [
    implements_special(f)(followed(f, __name__)) for f in (sp.jvp, sp.yvp, sp.ivp, sp.kvp, sp.h1vp, sp.h2vp)
]

# --- spherical functions: (2 n + 1) f_n' = n f_(n-1) + s (n + 1) f_(n+1), for k with the opposite sign
# ---


def spherical(scipys, signum, whole):
    name = scipys.__name__ + "_of"

    def slope(out, n, z):
        n = primal_of(n)
        return whole * (n * f(n - (n > 0), z) + signum * (n + 1.0) * f(n + 1, z)) / (2.0 * n + 1.0)

    f = special_function(
        None, IntegerArgument("it is a whole number"), slope, body=library_function(scipys), name=name
    )

    def of(n, z, derivative=False):
        return slope(None, n, z) if derivative else f(n, z)

    return implements_special(scipys)(of)


spherical_jn = spherical(sp.spherical_jn, -1, 1.0)
spherical_yn = spherical(sp.spherical_yn, -1, 1.0)
spherical_in = spherical(sp.spherical_in, 1, 1.0)
spherical_kn = spherical(sp.spherical_kn, 1, -1.0)

# --- from second-order differential equations ---

airy_parts: list
airye_parts: list
airy_parts, airy = several_results(
    sp.airy,
    lambda out, z: airy_parts[1](z),
    lambda out, z: z * airy_parts[0](z),
    lambda out, z: airy_parts[3](z),
    lambda out, z: z * airy_parts[2](z),
)
airye_parts, airye = several_results(
    sp.airye,
    lambda out, z: airye_parts[1](z) + sqrt(z) * out,
    lambda out, z: z * airye_parts[0](z) + sqrt(z) * out,
    at_real(lambda out, z: airye_parts[3](z) - decay(z) * out),
    at_real(lambda out, z: z * airye_parts[2](z) - decay(z) * out),
)


def decay(z):
    """The derivative of |Re(2/3 z^(3/2))|, whose exponential scales Bi and Bi'."""
    return sqrt(select(primal_of(z) > 0, z, 0.0))


def kelvins(names, real, imaginary):
    """For w = ber + i bei, or ker + i kei: x^2 w'' + x w' = i x^2 w."""
    f, df, h, dh = [getattr(sp, n) for n in names]
    a = special_function(f, lambda out, x: da(x))
    da = special_function(df, lambda out, x: -b(x) - over_x(out, x, real))
    b = special_function(h, lambda out, x: db(x))
    db = special_function(dh, lambda out, x: a(x) - over_x(out, x, imaginary))
    return a, da, b, db


def over_x(out, x, at_zero):
    """out / x, with its limit at 0."""
    zero = primal_of(x) == 0
    return select(zero, at_zero, out / select(zero, 1.0, x))


ber, berp, bei, beip = kelvins(("ber", "berp", "bei", "beip"), 0.0, 0.5)
ker, kerp, kei, keip = kelvins(("ker", "kerp", "kei", "keip"), math.inf, math.inf)


@implements_special(sp.kelvin)
def kelvin(x):
    return ber(x) + 1j * bei(x), ker(x) + 1j * kei(x), berp(x) + 1j * beip(x), kerp(x) + 1j * keip(x)


# --- Struve functions ---


def recurrence_rest(v, x):
    """The inhomogeneous term of the recurrence: (x / 2)^v / (sqrt(pi) Gamma(v + 3 / 2))."""
    return power(0.5 * x, v) * rgamma(v + 1.5) / math.sqrt(math.pi)


# nodes of the double exponential rule for integrals over t > 0
HALF_LINE = np.exp(0.5 * math.pi * np.sinh(np.linspace(-4.5, 3.2, 300)))
HALF_LINE_WEIGHTS = 0.5 * math.pi * np.cosh(np.linspace(-4.5, 3.2, 300)) * HALF_LINE * (7.7 / 299)


def struve_order(out, v, x):
    """The derivative with respect to v, from H = Y + 2 (x / 2)^v / (sqrt(pi) Gamma(v + 1 / 2)) times the
    integral of exp(-x t) (1 + t^2)^(v - 1 / 2)."""
    t, rise = HALF_LINE, np.log1p(HALF_LINE * HALF_LINE)
    weight = HALF_LINE_WEIGHTS * exp(-with_last_axis(x) * t + with_last_axis(v - 0.5) * rise)
    front = 2.0 / math.sqrt(math.pi) * power(0.5 * x, v) * rgamma(v + 0.5)
    slope = (log(0.5 * x) - digamma(v + 0.5)) * sum(weight, -1) + sum(weight * rise, -1)
    return bessel_y_order(v, x, n=1) + front * slope


def modstruve_order(out, v, x):
    """The derivative with respect to v, by the series with positive terms (x / 2)^(2 k + v + 1) /
    (Gamma(k + 3 / 2) Gamma(k + v + 3 / 2))."""
    known = seen(primal_of(x))
    size = 60.0 if known is None else greatest(known)
    k = np.arange(int(1.5 * size) + 40.0)
    at, low = k + 1.5 + with_last_axis(v), log(0.5 * with_last_axis(x))
    terms = exp((2.0 * k + 1.0 + with_last_axis(v)) * low - gammaln(k + 1.5) - gammaln(at))
    return select(primal_of(x) <= size, sum(terms * (low - digamma(at)), -1), math.nan)


struve: Any = special_function(
    sp.struve,
    at_real(struve_order),
    lambda out, v, x: 0.5 * (struve(v - 1.0, x) - struve(v + 1.0, x) + recurrence_rest(v, x)),
)
modstruve: Any = special_function(
    sp.modstruve,
    at_real(modstruve_order),
    lambda out, v, x: 0.5 * (modstruve(v - 1.0, x) + modstruve(v + 1.0, x) + recurrence_rest(v, x)),
)

# --- integrals of these functions ---


_, itj0y0 = several_results(sp.itj0y0, lambda out, x: jv(0.0, x), lambda out, x: y0(x))
_, iti0k0 = several_results(sp.iti0k0, lambda out, x: iv(0.0, x), lambda out, x: k0(x))
_, it2j0y0 = several_results(sp.it2j0y0, lambda out, x: (1.0 - jv(0.0, x)) / x, lambda out, x: -y0(x) / x)
_, it2i0k0 = several_results(sp.it2i0k0, lambda out, x: (iv(0.0, x) - 1.0) / x, lambda out, x: -k0(x) / x)
_, itairy = several_results(
    sp.itairy,
    lambda out, x: airy_parts[0](x),
    lambda out, x: airy_parts[2](x),
    lambda out, x: airy_parts[0](-x),
    lambda out, x: airy_parts[2](-x),
)
itstruve0 = special_function(sp.itstruve0, lambda out, x: struve(0.0, x))
it2struve0 = special_function(sp.it2struve0, lambda out, x: -struve(0.0, x) / x)
itmodstruve0 = special_function(sp.itmodstruve0, lambda out, x: modstruve(0.0, x))


def fresnel_pair(scipys, sign):
    """The integral F of exp(sign i t^2) from x to infinity, and K = exp(-sign i (x^2 + pi / 4)) F /
    sqrt(pi)."""
    turn = np.exp(-0.25j * sign * math.pi) / math.sqrt(math.pi)
    return several_results(
        scipys, lambda out, x: -exp(sign * 1j * x * x), lambda out, x: -turn - sign * 2j * x * out
    )[1]


modfresnelp = fresnel_pair(sp.modfresnelp, 1)
modfresnelm = fresnel_pair(sp.modfresnelm, -1)


def bessel_integral(f, a, lmb, nu):
    """The integral of x^lmb f(nu, 2 a x) over x from 0 to 1. f may be a derivative of J with respect to
    the order, and log x a factor."""
    x, _, w = unit_nodes()
    return sum(
        w * power(x, with_last_axis(lmb)) * f(with_last_axis(nu), 2.0 * with_last_axis(a) * x, np.log(x)), -1
    )


besselpoly: Any = special_function(
    sp.besselpoly,
    lambda out, a, lmb, nu: besselpoly(a, lmb + 1.0, nu - 1.0) - besselpoly(a, lmb + 1.0, nu + 1.0),
    lambda out, a, lmb, nu: bessel_integral(lambda v, z, log_x: log_x * jv(v, z), a, lmb, nu),
    lambda out, a, lmb, nu: bessel_integral(lambda v, z, _: bessel_j_order(v, z, n=1), a, lmb, nu),
)
