"""Bessel functions of scipy.special in both modes.

The rules J_n' = (J_(n-1) - J_(n+1)) / 2 and I_n' = (I_(n-1) + I_(n+1)) / 2 are smooth at zero."""

import functools
import math
from typing import Any

import numpy as np
import scipy.special as sp

from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..declare import implements, primitive, rules, same
from ..elementwise import absolute, select, sign, times0
from ..piecewise import special_of, special_ufunc
from .asymptotic import near_or_far, tail


def _by_order(x, n: int, f0, f1, signum: float):
    """J_n (signum -1) or I_n (1) for CuPy, which has only orders 0 and 1: upward recurrence for large x,
    else the series."""
    xp = xp_of(x)
    small = abs(x) < (max(2.0, n) if signum < 0 else 12.0)
    v = xp.where(small, x, 0.0) / 2
    terms = [signum**k / math.factorial(k) / math.factorial(k + n) for k in range(36)]
    series = terms[-1]
    for c in terms[-2::-1]:
        series = series * (v * v) + c
    safe = xp.where(small, 1.0, x)
    a, b = f0(safe), f1(safe)
    for k in range(1, n):
        a, b = b, signum * (a - 2 * k / safe * b)
    return xp.where(small, series * v**n, b).astype(x.dtype)


def of_order(x, n: int, kind: str, beyond):
    """The function of order n; `beyond(f)` computes it where CuPy's library f has only orders 0 and 1."""
    f = special_of(x)
    if n < 2:
        return getattr(f, kind.replace("v", str(n)))(x)
    return getattr(sp, kind)(n, x).astype(x.dtype) if f is sp else beyond(f)


def bessel_j_in_kernels(x, *, n):
    """The series up to 4, Miller's recurrence from order 60 up to 25, else the expansion of Hankel
    (Abramowitz & Stegun 9.1.10, 9.12, 9.2.5)."""
    v = abs(x)
    near, middle, far = np.minimum(v, 4.0), np.minimum(np.maximum(v, 4.0), 25.0), np.maximum(v, 25.0)
    series, above, here, even, found = 0.0, 0.0 * v, 0.0 * v + 1e-37, 0.0, 0.0
    for k in range(20, -1, -1):
        series = series * (-0.25 * near * near) + 1.0 / math.factorial(k) / math.factorial(k + n)
    for k in range(60, 0, -1):
        above, here = here, 2.0 * k / middle * here - above
        found = here if k - 1 == n else found
        even = even + (1.0 if k == 1 else 2.0) * here if k % 2 else even
    p, q = [
        functools.reduce(lambda y, a: y / (far * far) + a, [(-1) ** j * c[k] for j, k in at][::-1], 0.0)
        for c, at in [(hankel_terms(n), list(enumerate(range(first, 16, 2)))) for first in (0, 1)]
    ]
    c, s = np.cos(far), np.sin(far)
    for _ in range(n % 4):  # by a quarter of a turn
        c, s = s, -c
    beyond = (p * (c + s) - q / far * (s - c)) / np.sqrt(math.pi * far)
    y = np.where(v <= 4.0, series * (0.5 * near) ** n, np.where(v <= 25.0, found / even, beyond))
    return np.where(x < 0.0, -y, y) if n % 2 else y


def hankel_terms(n: int) -> list:
    """The coefficients a_k(n) of Hankel's expansion in 1 / x."""
    return [math.prod([(4 * n * n - (2 * j - 1) ** 2) / (8 * j) for j in range(1, k + 1)]) for k in range(16)]


def bessel_ie_in_kernels(x, *, n):
    """The series up to 30, else the asymptotic one."""
    v = abs(x)
    near, far, series, beyond = np.minimum(v, 30.0), np.maximum(v, 30.0), 0.0, 0.0
    for k in range(56, -1, -1):  # the powers of 100 keep float32 in its range
        series = series * (0.0025 * near * near) + 100.0**k / math.factorial(k) / math.factorial(k + n)
    for c in reversed(bessel_terms(n, -1.0)):
        beyond = beyond / far + c
    y = np.where(v <= 30.0, series * (0.5 * near) ** n * np.exp(-near), beyond / np.sqrt(far))
    return np.where(x < 0.0, -y, y) if n % 2 else y


@primitive(scalar=bessel_j_in_kernels, rough=True)
def bessel_j(x, *, n):
    return of_order(x, n, "jv", lambda f: _by_order(x, n, f.j0, f.j1, -1.0))


@primitive(scalar=lambda x, *, n: bessel_ie_in_kernels(x, n=n) * np.exp(abs(x)), rough=True)
def bessel_i(x, *, n):
    return of_order(x, n, "iv", lambda f: _by_order(x, n, f.i0, f.i1, 1.0))


@primitive(scalar=bessel_ie_in_kernels, rough=True)
def bessel_ie(x, *, n):
    """exp(-|x|) I_n(x)."""
    return of_order(x, n, "ive", lambda f: abs_scaled(x, n, f))


def abs_scaled(x, n: int, f):
    """The scaled function. The recurrence holds for it too; the series is used at moderate x."""
    xp = xp_of(x)
    moderate = abs(x) < 12.0
    safe = xp.where(moderate, 12.0, x)
    a, b = f.i0e(safe), f.i1e(safe)
    for k in range(1, n):
        a, b = b, a - 2 * k / safe * b
    y = xp.where(moderate, x, 0.0)
    return xp.where(moderate, _by_order(y, n, f.i0, f.i1, 1.0) * xp.exp(-abs(y)), b).astype(x.dtype)


rules(
    bessel_j,
    lambda g, out, x, n: (
        g * (0.5 * (bessel_j(x, n=n - 1) - bessel_j(x, n=n + 1)) if n else -bessel_j(x, n=1))
    ),
    jvp=same,
)
rules(
    bessel_i,
    lambda g, out, x, n: g * (0.5 * (bessel_i(x, n=n - 1) + bessel_i(x, n=n + 1)) if n else bessel_i(x, n=1)),
    jvp=same,
)


def bessel_terms(n: int, signum: float) -> tuple:
    """Coefficients in 1 / x of the square root of x times exp(-x) I_n(x) (signum -1) or exp(x) K_n(x)
    (1)."""
    first = math.sqrt(0.5 / math.pi) if signum < 0 else math.sqrt(math.pi / 2)
    return tuple([first * signum**k * a for k, a in enumerate(hankel_terms(n))])


def _slope_beyond(x, n: int, signum: float, near):
    """The derivative of a scaled function; above 50 by its asymptotic series."""

    def away(x):
        d = tail(absolute(x), terms=bessel_terms(n, signum), p=0.5, q=1, m=1)
        return d if n % 2 else sign(x) * d

    return near_or_far(abs(primal_of(x)) > 50.0, x, away, near)


def side_of_zero(x):
    """The sign of x; 1 at 0, where a scaled function has the derivative to the right.

    Laws with a parameter of 0 ask for it."""
    return select(primal_of(x) < 0, -1.0, 1.0)


def _ie_slope(x, n):
    d = 0.5 * (bessel_ie(x, n=n - 1) + bessel_ie(x, n=n + 1)) if n else bessel_ie(x, n=1)
    return d - side_of_zero(x) * bessel_ie(x, n=n)


rules(bessel_ie, lambda g, out, x, n: g * _slope_beyond(x, n, -1.0, lambda x: _ie_slope(x, n)), jvp=same)


def orders(of, *functions) -> list:
    """SciPy's functions of orders 0 and 1, by the operation of any order."""
    return [implements(f)(lambda x, n=n: of(x, n=n)) for n, f in enumerate(functions)]


j0, j1 = orders(bessel_j, sp.j0, sp.j1)
i0, i1 = orders(bessel_i, sp.i0, sp.i1)
i0e, i1e = orders(bessel_ie, sp.i0e, sp.i1e)
implements(np.i0, layout="asked")(i0)
y0 = special_ufunc(sp.y0, lambda g, out, x: -times0(g, y1(x)))
y1: Any = special_ufunc(sp.y1, lambda g, out, x: times0(g, y0(x) - out / x))
k0 = special_ufunc(sp.k0, lambda g, out, x: -times0(g, k1(x)))
k1: Any = special_ufunc(sp.k1, lambda g, out, x: -times0(g, k0(x) + out / x))
k0e: Any = special_ufunc(
    sp.k0e, lambda g, out, x: times0(g, _slope_beyond(x, 0, 1.0, lambda x: k0e(x) - k1e(x)))
)
k1e: Any = special_ufunc(
    sp.k1e, lambda g, out, x: times0(g, _slope_beyond(x, 1, 1.0, lambda x: k1e(x) - k0e(x) - k1e(x) / x))
)
