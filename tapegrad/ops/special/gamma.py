"""The gamma function and related functions in both modes: psi, beta, zeta."""

import functools
import math

import numpy as np
import scipy.special as sp

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, NoRuleError
from ..._core.primitive import is_tracked, primal_of, values_of
from ..declare import dtype, implements, primitive
from ..elementwise import cos, log, select, sin, square, times0, xp_of2, zero_of
from ..nondifferentiable import holds_somewhere
from ..piecewise import special_of, special_ufunc
from .asymptotic import special_of2
from .declare import slopes

# --- gamma and its kin ---


gammaln = special_ufunc(sp.gammaln, lambda g, out, x: times0(g, digamma(x)), scalar="lgamma")


def log_half_step(a):
    """log(gamma(a + 1/2) / (gamma(a) sqrt(a))), for large a by its asymptotic series."""
    far = primal_of(a) > 20.0
    r = 1.0 / select(far, a, 20.0)
    series = r * (
        square(r) * (1.0 / 192.0 - square(r) * (1.0 / 640.0 - square(r) * (17.0 / 14336.0))) - 0.125
    )
    return select(far, series, gammaln(a + 0.5) - gammaln(a) - 0.5 * log(a))


loggamma = special_ufunc(
    sp.loggamma,
    lambda g, out, x: times0(g, digamma(x)),
    scalar=lambda x: np.where(x < 0.0, math.nan, sp.gammaln(x)),
)


def real_only(name: str, z) -> None:
    if dtype(z).kind == "c":
        raise NoRuleError(f"scipy.special.{name} of complex numbers has no derivative rule in tapegrad")


@primitive(sp.digamma, scalar="digamma")
def digamma(x):
    return special_of(x).digamma(x)


# B_2k / (2k)! with the Bernoulli numbers B_2k, for the asymptotic series of the polygamma functions.
BERNOULLI = [
    b / math.factorial(2 * k + 2)
    for k, b in enumerate(
        (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
    )
]

SERIES_ORDER = 6  # up to here the series is as exact as SciPy's zeta: 6 units in the last place and 7
SERIES_ELEMENTS = 250  # from here NumPy adds up the series in less time


def polygamma_in_kernels(x, *, n):
    """The asymptotic series at z = x + 8, followed by the recurrence (Abramowitz & Stegun 6.4.11, 6.4.6).
    For negative x the reflection formula (6.4.7), where the derivatives of cot are polynomials in cot:
    cot' = -1 - cot^2."""
    return polygamma_series(x, x < 0.0, math.pi * (x - np.floor(x + 0.5)), n)


def polygamma_of_complex(x, n):
    """The same.  Far from the real axis cot is the limit that it has at a distance of 12."""
    a, b = x.real, np.clip(x.imag, -12.0, 12.0)
    return polygamma_series(x, a < 0.0, math.pi * (a - np.floor(a + 0.5) + 1j * b), n).astype(x.dtype)


def positive_polygamma(a, n):
    """(-1)^(n + 1) times the function, for a of positive real part."""
    r, f = 1.0 / (a + 8.0), math.factorial
    tail = 0.0
    for k in range(len(BERNOULLI), 0, -1):
        tail = tail * (r * r) + f(2 * k + n - 1) * BERNOULLI[k - 1]
    y = r**n * (f(n - 1) + r * (0.5 * f(n) + r * tail))
    for k in range(7, -1, -1):
        y = y + f(n) * (1.0 / (a + float(k))) ** (n + 1)
    return y


def polygamma_series(x, left, u, n):
    """`left`: is x, or its real part, negative?  cot(u) is cot(pi x)."""
    y = positive_polygamma(np.where(left, 1.0 - x, x), n)
    p = [0, 1]  # polynomial coefficients in cot
    for _ in range(n):
        p = [
            -(j + 1) * (p[j + 1] if j + 1 < len(p) else 0) - (j - 1) * (p[j - 1] if j else 0)
            for j in range(len(p) + 1)
        ]
    c, square = 0.0, 1.0 / (np.sin(u) * np.sin(u)) - 1.0
    for b in reversed(p[(n + 1) % 2 :: 2]):  # even or odd, as n + 1 is
        c = c * square + float(b)
    if n % 2 == 0:
        c = c * (np.cos(u) / np.sin(u))
    return np.where(left, -(math.pi ** (n + 1)) * c - y, y if n % 2 else -y)


@primitive(scalar=polygamma_in_kernels, rough=True)
def polygamma_n(x, *, n):
    if isinstance(n, int) and n > 0 and x.dtype.kind == "c":
        return polygamma_of_complex(x, n)
    real_only("polygamma", x)
    if isinstance(n, int) and 0 < n <= SERIES_ORDER and xp_of(x) is np and np.size(x) >= SERIES_ELEMENTS:
        if (x > 0.0).all():
            with np.errstate(all="ignore"):
                y = positive_polygamma(x.astype(np.float64), n)
                return (y if n % 2 else -y).astype(x.dtype)
    if isinstance(n, int) and n > 0:  # SciPy's text works out digamma too
        return ((-1.0) ** (n + 1) * sp.gamma(n + 1.0) * special_of(x).zeta(n + 1.0, x)).astype(x.dtype)
    r = sp.polygamma(n, x) if xp_of(x) is np else special_of(x).polygamma(xp_of(x).asarray(n), x)
    return r.astype(x.dtype)


@implements(sp.polygamma, layout="asked")
def polygamma(n, x):
    """The polygamma function. n, an integer or an array of integers, is a constant."""
    if is_tracked(n):
        raise NoRuleError("scipy.special.polygamma has no derivative in n; pass tapegrad.value(n)")
    return polygamma_n(x, n=values_of(n))


def gamma_in_kernels(x):
    """From the logarithm. The relative error is |log Gamma(x)| units of rounding."""
    whole = np.floor(x)
    flipped = np.logical_and(x < 0.0, whole - 2.0 * np.floor(0.5 * whole) == 1.0)
    size = np.exp(sp.gammaln(x))
    return np.where(np.logical_and(x < 0.0, whole == x), math.nan, np.where(flipped, -size, size))


gamma = special_ufunc(
    sp.gamma, lambda g, out, x: times0(g, out * digamma(x)), scalar=gamma_in_kernels, rough=True
)
rgamma = special_ufunc(sp.rgamma, lambda g, out, x: times0(g, rgamma_slope(x)))
beta = special_ufunc(
    sp.beta,
    lambda g, out, a, b: -times0(g, out * psi_gap(a, b)),
    lambda g, out, a, b: -times0(g, out * psi_gap(b, a)),
    scalar=lambda a, b: np.where(
        np.minimum(a, b) > 0.0, np.exp(sp.betaln(a, b)), sp.gamma(a) * sp.gamma(b) / sp.gamma(a + b)
    ),
    rough=True,
)


def gaps_in_kernels(x, v, p):
    """(x + v)^-q - x^-q for q = 1, ..., p. With u = 1 + v / x it is -(v / x) (1 + u + ... + u^(q - 1)) /
    (x + v)^q."""
    t, r = v / x, 1.0 / (x + v)
    u, total, power, made = 1.0 + t, 1.0, r, []
    for _ in range(p):
        made.append(-t * total * power)
        total, power = total * u + 1.0, power * r
    return made


def psi_gap_in_kernels(a, b, *, n=0):
    """The same algorithm as the body; n = -1 stands for log Gamma."""
    near = np.logical_and(a > 0.0, abs(b) < 0.1 * a)
    u, v, sign = np.where(near, a, 1.0), np.where(near, b, 0.0), (-1.0) ** (n + 1)
    x, total = u + SHIFT_IN_KERNELS, 0.0
    each = gaps_in_kernels(x, v, 16 + n)
    if n < 0:
        product = math.prod([1.0 + v / (u + float(j)) for j in range(SHIFT_IN_KERNELS)])
        total = (x - 0.5) * np.log1p(v / x) + v * (np.log(x + v) - 1.0) - np.log(product)
        f = sp.gammaln
    else:
        recurred = sum([gaps_in_kernels(u + float(j), v, n + 1)[n] for j in range(SHIFT_IN_KERNELS)])
        first = np.log1p(v / x) if n == 0 else sign * math.factorial(n - 1) * each[n - 1]
        total = first + sign * math.factorial(n) * (recurred + 0.5 * each[n])
        f = sp.digamma if n == 0 else functools.partial(polygamma_in_kernels, n=n)
    for k, c in enumerate(BERNOULLI[:8], 1):
        total = total + sign * c * math.factorial(2 * k + n - 1) * each[2 * k + n - 1]
    return np.where(near, total, f(a + b) - f(a))


SHIFT_IN_KERNELS = 8


def betaln_in_kernels(a, b):
    a, b = np.maximum(a, b), np.minimum(a, b)
    return sp.gammaln(b) - psi_gap_in_kernels(a, b, n=-1)


betaln = special_ufunc(
    sp.betaln,
    lambda g, out, a, b: -times0(g, psi_gap(a, b)),
    lambda g, out, a, b: -times0(g, psi_gap(b, a)),
    scalar=betaln_in_kernels,
    rough=True,
)


DIGAMMA_SHIFT = 20


def mirrored_poles(xp, a, b, n):
    """x, y, s with polygamma(n, a + b) - polygamma(n, a) = s (polygamma(n, y) - polygamma(n, x)). If a and
    a + b are poles, the reflected arguments 1 - a and 1 - a - b are none. For whole b the cotangents of the
    reflection cancel."""
    s = a + b
    start = s - b  # a, or an array of it where b is one
    poles = (a <= 0) & (s <= 0) & (start == a) & (xp.floor(start) == start) & (xp.floor(s) == s)
    return xp.where(poles, 1 - a, a), xp.where(poles, 1 - s, s), xp.where(poles, (-1.0) ** n, 1.0)


@primitive(scalar=psi_gap_in_kernels, rough=True)
def psi_gap(a, b, *, n=0):
    """polygamma(n, a + b) - polygamma(n, a). If b is small relative to a > 0, the difference would
    cancel. Then it is taken term by term, in the recurrence up to a + 20 and in the asymptotic series,
    by (a + b)^-p - a^-p = a^-p expm1(-p log(1 + b / a))."""
    xp = xp_of2(a, b)
    near = (a > 0) & (abs(b) < 0.1 * a)
    u, v = xp.where(near, a, 1.0), xp.where(near, b, 0.0)
    sign = (-1.0) ** (n + 1)

    def gap(x, p):
        return x**-p * xp.expm1(-p * xp.log1p(v / x))

    total = 0.0
    for j in range(DIGAMMA_SHIFT):
        total = total + sign * math.factorial(n) * gap(u + j, n + 1.0)
    x = u + DIGAMMA_SHIFT
    first = xp.log1p(v / x) if n == 0 else sign * math.factorial(n - 1) * gap(x, float(n))
    total = total + first + sign * math.factorial(n) / 2 * gap(x, n + 1.0)
    for k, c in enumerate(BERNOULLI[:8], 1):
        total = total + sign * c * math.factorial(2 * k + n - 1) * gap(x, 2.0 * k + n)
    f = special_of2(a, b)
    psi = f.digamma if n == 0 else lambda x: f.polygamma(n if f is sp else xp.asarray(n), x)
    x, y, turned = mirrored_poles(xp, a, b, n)
    return xp.where(near, total, turned * (psi(y) - psi(x))).astype(np.result_type(a, b))[()]


slopes(psi_gap, lambda out, a, b, n: psi_gap(a, b, n=n + 1), lambda out, a, b, n: polygamma_n(a + b, n=n + 1))


def rgamma_slope(x):
    """The derivative of 1 / gamma. On the left, where the poles of gamma are its zeros, from gamma(1 - x)
    sin(pi x) / pi."""
    left = primal_of(x) < 0.5
    u, v = select(left, x, zero_of(x)), select(left, zero_of(x) + 1, x)
    mirrored = gamma(1.0 - u) * (cos(math.pi * u) - digamma(1.0 - u) * sin(math.pi * u) * (1 / math.pi))
    return select(left, mirrored, -rgamma(v) * digamma(v))


slopes(digamma, lambda out, x: polygamma_n(x, n=1))
slopes(polygamma_n, lambda out, x, n: polygamma_n(x, n=n + 1))


gammasgn = special_ufunc(sp.gammasgn)
binom = special_ufunc(
    sp.binom,
    lambda g, out, n, k: times0(g, -out * psi_gap(n + 1.0, -k)),
    lambda g, out, n, k: times0(g, out * (digamma(n - k + 1.0) - digamma(k + 1.0))),
)
poch = special_ufunc(
    sp.poch,
    lambda g, out, z, m: times0(g, out * psi_gap(z, m)),
    lambda g, out, z, m: times0(g, out * digamma(z + m)),
)


@implements(sp.multigammaln)
def multigammaln(a, d):
    if holds_somewhere(a <= 0.5 * (d - 1)):
        raise ValueError(f"condition a ({a}) > 0.5 * (d-1) ({0.5 * (d - 1)}) not met")
    total = 0.25 * d * (d - 1) * math.log(math.pi)
    for j in range(int(d)):
        total = total + gammaln(a - 0.5 * j)
    return total


@implements(sp.factorial, layout="asked")
def factorial(n, exact=False):
    if exact:
        raise ArgumentError("scipy.special.factorial: exact=True gives integers, which have no derivative")
    return select(n < 0, 0.0, gamma(n + 1.0))  # as SciPy extends it
