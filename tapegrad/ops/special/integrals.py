"""Integrals of elementary functions, powers and logarithms, Lambert's function."""

import math
from typing import Any

import numpy as np
import scipy.special as sp

from ..._core.arrays import is_array, xp_of
from ..._core.primitive import primal_of
from ..declare import NUMPY, primitive
from ..elementwise import cos, exp, log, log1p, power, select, sin
from .asymptotic import near_or_far, tail
from .declare import (
    IntegerArgument,
    implements_special,
    library_function,
    several_results,
    slopes,
    special_function,
    with_own_value,
)
from .error_functions import DAWSN_TAIL, ROOT_2PI, ROOT_PI, dawsn_tail, erf, exprel, far_out
from .zeta import zeta_order

# --- integrals ---


@primitive(batch="elementwise")
def log1p_over(x, *, n=0):
    """The derivative of order n of log(1 + x) / x: (-1)^n times the integral of n! s^n (1 + s x)^(-n - 1)
    for s from 0 to 1. Near 0 by its series. Elsewhere x f_n + n f_(n-1) is the derivative of order n
    of log(1 + x)."""
    xp = xp_of(x)
    small = abs(x) < 0.25
    y, far, series = xp.where(small, x, 0.0), xp.where(small, 1.0, x), 0.0
    for k in reversed(range(n, n + 28)):
        series = series * y + (-1.0) ** k * math.perm(k, n) / (k + 1)
    f = xp.log1p(far) / far
    for k in range(1, n + 1):
        f = ((-1.0) ** (k - 1) * math.factorial(k - 1) * (1.0 + far) ** -k - k * f) / far
    return xp.where(small, series, f).astype(x.dtype)[()]


slopes(log1p_over, lambda out, x, n: log1p_over(x, n=n + 1))


@primitive(batch="elementwise")
def sine_over(x, *, n=0):
    """The derivative of order n of sin(x) / x, the integral of s^n cos(s x + n pi / 2)."""
    xp = xp_of(x)
    small = abs(x) < n + 2.0
    y, far, series = xp.where(small, x, 0.0), xp.where(small, n + 2.0, x), 0.0
    for k in reversed(range(30)):
        j = 2 * k - n
        if j >= 0:
            series = series + (-1.0) ** k / (math.factorial(j) * (2 * k + 1)) * y**j
    f = xp.sin(far) / far
    for k in range(1, n + 1):
        f = (xp.sin(far + 0.5 * math.pi * k) - k * f) / far
    return xp.where(small, series, f).astype(x.dtype)[()]


slopes(sine_over, lambda out, x, n: sine_over(x, n=n + 1))


def sinh_over(x):
    return 0.5 * (exprel(x) + exprel(-x))


def log_over(z):
    """log(z) / (z - 1). Near 1 by log1p_over, elsewhere directly, because z - 1 is not exact at small z."""
    near = abs(primal_of(z) - 1.0) < 0.5
    far = select(near, 2.0 + 0.0 * z, z)
    return select(near, log1p_over(select(near, z, 1.0 + 0.0 * z) - 1.0), log(far) / (far - 1.0))


spence = special_function(sp.spence, lambda out, z: -log_over(z))
_, sici = several_results(sp.sici, lambda out, x: sine_over(x), lambda out, x: cos(x) / x)
_, shichi = several_results(
    sp.shichi, lambda out, x: sinh_over(x), lambda out, x: 0.5 * (exp(x) + exp(-x)) / x
)
_, fresnel = several_results(
    sp.fresnel,
    lambda out, x: sin(0.5 * math.pi * x * x),
    lambda out, x: cos(0.5 * math.pi * x * x),
)
owens_t = special_function(
    sp.owens_t,
    lambda out, h, a: -0.5 / ROOT_2PI * exp(-0.5 * h * h) * erf(a * h * math.sqrt(0.5)),
    lambda out, h, a: exp(-0.5 * h * h * (1.0 + a * a)) / (2 * math.pi * (1.0 + a * a)),
)


def wofz_slope(z):
    """w'(z) = 2i / sqrt(pi) - 2 z w(z), whose two terms cancel at large z.  There w(z) is 2i / sqrt(pi) times
    the series of Dawson's integral in the upper half plane, and 2 exp(-z^2) - w(-z) in the lower one."""

    def far(z):
        upper = primal_of(z).imag >= 0.0
        below = select(upper, 0.0 * z, z)
        return 2j / ROOT_PI * dawsn_tail(select(upper, z, -z)) - 4.0 * below * exp(-below * below)

    return near_or_far(abs(primal_of(z)) > far_out(z), z, far, lambda z: 2j / ROOT_PI - 2.0 * z * wofz(z))


wofz = special_function(sp.wofz, lambda out, z: wofz_slope(z))


def voigt_point(x, s, c):
    """z = (x + i c) / (s sqrt 2); the profile is Re w(z) / (s sqrt(2 pi))."""
    return (x + 1j * c) / (s * math.sqrt(2))


def voigt_spread(out, x, s, c):
    """The derivative by s is s times the second one by x: the profile solves the equation of heat."""
    z = voigt_point(x, s, c)
    curvature = near_or_far(
        abs(primal_of(z)) > far_out(z),
        z,
        lambda z: 2j / ROOT_PI * tail(z, terms=DAWSN_TAIL, p=1, q=2, m=2),
        lambda z: -2.0 * (wofz(z) + z * wofz_slope(z)),
    )
    return curvature.real / (s * s * 2.0 * ROOT_2PI)


voigt_profile = special_function(
    sp.voigt_profile,
    lambda out, x, s, c: wofz_slope(voigt_point(x, s, c)).real / (s * s * 2.0 * ROOT_PI),
    voigt_spread,
    lambda out, x, s, c: -wofz_slope(voigt_point(x, s, c)).imag / (s * s * 2.0 * ROOT_PI),
)

# --- powers and logarithms ---


@implements_special(sp.boxcox)
def boxcox(x, lmbda):
    """(x^lmbda - 1) / lmbda, log(x) for 0."""
    u = log(x)
    return with_own_value("boxcox", u * exprel(lmbda * u), x, lmbda)


@implements_special(sp.boxcox1p)
def boxcox1p(x, lmbda):
    u = log1p(x)
    return with_own_value("boxcox1p", u * exprel(lmbda * u), x, lmbda)


@implements_special(sp.inv_boxcox)
def inv_boxcox(x, lmbda):
    return with_own_value("inv_boxcox", exp(x * log1p_over(lmbda * x)), x, lmbda)


@implements_special(sp.inv_boxcox1p)
def inv_boxcox1p(x, lmbda):
    return with_own_value("inv_boxcox1p", NUMPY[np.expm1](x * log1p_over(lmbda * x)), x, lmbda)


powm1 = special_function(
    sp.powm1, lambda out, x, y: y * power(x, y - 1.0), lambda out, x, y: power(x, y) * log(x)
)
DEGREE = math.pi / 180
sindg = special_function(sp.sindg, lambda out, x: DEGREE * cosdg(x))
cosdg: Any = special_function(sp.cosdg, lambda out, x: -DEGREE * sindg(x))
tandg = special_function(sp.tandg, lambda out, x: DEGREE * (1.0 + out * out))
cotdg = special_function(sp.cotdg, lambda out, x: -DEGREE * (1.0 + out * out))
radian = special_function(
    sp.radian,
    *[
        lambda out, d, m, s, c=c: c + 0.0 * (primal_of(d) + primal_of(m) + primal_of(s))
        for c in (DEGREE, DEGREE / 60, DEGREE / 3600)
    ],
)
nearest = special_function(sp.round, lambda out, x: 0.0 * out)

# --- Lambert's function ---


def lambertw_slope(out, z, k):
    """w / (z (1 + w)) = exp(-w) / (1 + w)."""
    return exp(-out) / (1.0 + out)


def branch(z, k):
    return library_function(sp.lambertw)(z, k.astype(int) if is_array(k) else int(k))


lambertw_of = special_function(
    None, lambertw_slope, IntegerArgument("branches are numbered"), body=branch, name="lambertw_of"
)


@implements_special(sp.lambertw)
def lambertw(z, k=0, tol=1e-8):
    return lambertw_of(z, k)


zetac = special_function(sp.zetac, lambda out, x: zeta_order(x, 1.0, n=1))
