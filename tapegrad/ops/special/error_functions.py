"""scipy.special in both modes: error functions, normal distribution, logistic function, entropies and
others. gamma.py and bessel.py have the rest. The body is SciPy's or CuPy's function where it exists.

A parameter without a rule (the order of a Bessel function, for example) raises when its derivative is
needed."""

import functools
import math

import numpy as np
import scipy.special as sp

from ..._core.arrays import is_array, xp_of
from ..._core.primitive import primal_of, values_of
from ..declare import NUMPY, ComposedScalar, dtype, implements, primitive, rules, same
from ..elementwise import (
    LN10,
    absolute,
    cbrt,
    exp,
    exp2,
    expm1,
    log,
    log1p,
    over0,
    select,
    sin,
    times0,
    xp_of2,
)
from ..piecewise import expit, hypot, logaddexp, minimum, part_of_hypot, special_of, special_ufunc
from .asymptotic import near_or_far, no_rule_in, special_of2, tail
from .declare import slopes

ROOT_PI, ROOT_2PI = math.sqrt(math.pi), math.sqrt(2 * math.pi)

# --- error function and normal distribution ---


def bell(square, width: float):
    """exp(-width * square). Far out, at infinity too, it is zero with all its derivatives."""
    return exp(-width * minimum(square, 1e6))


erf = special_ufunc(sp.erf, lambda g, out, x: times0(bell(x * x, 1.0), (2 / ROOT_PI) * g), scalar="erf")
erfc = special_ufunc(sp.erfc, lambda g, out, x: times0(bell(x * x, 1.0), (-2 / ROOT_PI) * g), scalar="erfc")
erfcx = special_ufunc(sp.erfcx, lambda g, out, x: times0(g, erfcx_slope(x)), scalar="erfcx")
erfi = special_ufunc(sp.erfi, lambda g, out, x: times0((2 / ROOT_PI) * g, exp(x * x)))
dawsn = special_ufunc(sp.dawsn, lambda g, out, x: g * dawsn_slope(x))
# Rational functions of algorithm AS 241 (Wichura 1988, PPND16): about the median; in the tails for
# sqrt(-log p) below and above 5. Coefficients of rising powers, those of the denominator after 1.
MEDIAN = (
    (3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125,
     45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727),
    (42.313330701600911252, 687.18700749205790830, 5394.1960214247511077, 21213.794301586595867,
     39307.895800092710610, 28729.085735721942674, 5226.4952788528545610),
)  # fmt: skip
NEAR_TAIL = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
     1.27045825245236838258, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
FAR_TAIL = (
    (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5,
     2.01033439929228813265e-7),
    (5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)  # fmt: skip


def quantile_in_kernels(q, p):
    """In a kernel: the quantile at 0.5 + q, where p is the distance from 0 or 1, whichever is nearer."""

    def ratio(coefficients, x):
        above, below = [functools.reduce(lambda total, c: total * x + c, c[::-1]) for c in coefficients]
        return above / (below * x + 1.0)

    t = np.sqrt(-np.log(p))
    tail = np.where(t <= 5.0, ratio(NEAR_TAIL, t - 1.6), ratio(FAR_TAIL, t - 5.0))
    tail = np.where(p == 0.0, math.inf, tail)
    return np.where(
        abs(q) <= 0.425, q * ratio(MEDIAN, (0.425 - q) * (0.425 + q)), np.where(q < 0.0, -tail, tail)
    )


erfinv = special_ufunc(
    sp.erfinv,
    lambda g, out, x: times0((ROOT_PI / 2) * g, exp(out * out)),
    scalar=lambda x: math.sqrt(0.5) * quantile_in_kernels(0.5 * x, 0.5 * (1.0 - abs(x))),
    rough=True,
)
erfcinv = special_ufunc(
    sp.erfcinv,
    lambda g, out, x: times0((-ROOT_PI / 2) * g, exp(out * out)),
    scalar=lambda x: math.sqrt(0.5) * quantile_in_kernels(0.5 * (1.0 - x), 0.5 * np.minimum(x, 2.0 - x)),
    rough=True,
)
ndtr = special_ufunc(sp.ndtr, lambda g, out, x: times0(bell(x * x, 0.5), (1 / ROOT_2PI) * g), scalar="ndtr")
ndtri = special_ufunc(
    sp.ndtri,
    lambda g, out, x: times0(ROOT_2PI * g, exp(0.5 * (out * out))),
    scalar=lambda p: quantile_in_kernels(p - 0.5, np.minimum(p, 1.0 - p)),
    rough=True,
)
ndtri_exp = special_ufunc(sp.ndtri_exp, lambda g, out, x: over0(g, inverse_mills(out)))
log_ndtr = special_ufunc(sp.log_ndtr, lambda g, out, x: times0(inverse_mills(x), g), scalar="log_ndtr")


def mills_in_kernels(x):
    return np.where(x == -math.inf, 0.0, math.sqrt(2 / math.pi) / sp.erfcx(x * -math.sqrt(0.5)))


@primitive(scalar=mills_in_kernels)
def inverse_mills(x):
    """phi(x) / Phi(x), the derivative of log Phi; its own derivative is -r (r + x). At minus infinity, where
    log Phi is flat, it is 0."""
    ratio = math.sqrt(2 / math.pi) / special_of(x).erfcx(x * -math.sqrt(0.5))
    return xp_of(x).where(x == -math.inf, 0.0, ratio).astype(x.dtype)[()]


def far_out(x) -> float:
    """The threshold above which the series below is exact up to rounding."""
    return 4.5 if dtype(x).itemsize <= 4 else 12.0


ODD = [math.prod(range(1, 2 * k, 2)) for k in range(17)]  # (2 k - 1)!!
# Dawson's integral is the sum of these x^(-1 - 2 k)
DAWSN_TAIL = tuple([n / 2 ** (k + 1) for k, n in enumerate(ODD)])


def dawsn_tail(x):
    return tail(x, terms=DAWSN_TAIL, p=1, q=2, m=1)


def ratio_in_kernels(x, *, n):
    """The continued fraction as p / q: with s_k = 2 x I_k / I_(k - 1), s_k = 1 / (1 + 2 (k + 1) s_(k + 1)
    / (2 x)^2), starting from s = 0 at a large k."""
    half = 0.5 / x
    w, p, q = half * half, 0.0 * half, 0.0 * half + 1.0
    for k in reversed(range(n, n + RATIO_TERMS)):
        p, q = q, q + (2.0 * (k + 1)) * w * p
    return p / q * half


RATIO_TERMS = 51  # right to rounding from RATIO_FROM on, and q is no larger than 1e30
RATIO_FROM = 2.5


@primitive(scalar=ratio_in_kernels, rough=True)
def erfcx_ratio(x, *, n):
    """I_n / I_(n - 1) at x >= RATIO_FROM, where I_0 = erfcx(x) and I_n is exp(x^2) times the n-th
    repeated integral of erfc. All are positive, and I_(n - 2) = 2 x I_(n - 1) + 2 n I_n. The
    derivative of I_n is -2 (n + 1) I_(n + 1), without cancellation."""
    return ratio_in_kernels(x, n=n).astype(x.dtype)


def erfcx_slope(x):
    def far(x):
        return -2.0 * erfcx(x) * erfcx_ratio(x, n=1)

    return near_or_far(primal_of(x) > RATIO_FROM, x, far, lambda x: 2.0 * x * erfcx(x) - 2 / ROOT_PI)


def dawsn_slope(x):
    return near_or_far(
        abs(primal_of(x)) > far_out(x),
        x,
        lambda x: dawsn_tail(absolute(x)),
        lambda x: 1.0 - 2.0 * x * dawsn(x),
    )


def mills_slope(x):
    def near(x):
        r = inverse_mills(x)
        return -times0(r, r + x)  # 0 at infinity

    def far(x):
        x = -absolute(x)
        return -math.sqrt(2) * inverse_mills(x) * erfcx_ratio(x * -math.sqrt(0.5), n=1)

    return near_or_far(primal_of(x) < -math.sqrt(2) * RATIO_FROM, x, far, near)


rules(
    erfcx_ratio,
    lambda g, out, x, n: g * (out * (2.0 * n * out - 2.0 * (n + 1) * erfcx_ratio(x, n=n + 1))),
    jvp=same,
)
rules(inverse_mills, lambda g, out, x: times0(mills_slope(x), g), jvp=same)

# --- logistic function, entropies ---


def logit_in_kernels(x):
    """log(x / (1 - x)). Near 1/2, where it is small, it is computed from 2 x - 1, which is exact there."""
    d = 2.0 * x - 1.0
    return np.where(abs(d) < 0.5, np.log1p(d) - np.log1p(-d), np.log(x / (1.0 - x)))


logit = special_ufunc(sp.logit, lambda g, out, x: over0(g, x * (1.0 - x)), scalar=logit_in_kernels)
log_expit = special_ufunc(sp.log_expit, lambda g, out, x: g * expit(-x), scalar="log_expit")


def of_zero(x, bad, product):
    """In a kernel: `product`, but 0 where x is 0 and the logarithm is not finite. Where it is finite, the
    derivative with respect to x is kept."""
    return np.where(np.logical_and(x == 0.0, bad), 0.0, product)


xlogy = special_ufunc(
    sp.xlogy,
    lambda g, out, x, y: times0(g, log(y)),
    lambda g, out, x, y: over0(g * x, y),
    scalar=ComposedScalar(lambda x, y: of_zero(x, y <= 0.0, x * np.log(y))),
)
xlog1py = special_ufunc(
    sp.xlog1py,
    lambda g, out, x, y: times0(g, log1p(y)),
    lambda g, out, x, y: over0(g * x, 1.0 + y),
    scalar=ComposedScalar(lambda x, y: of_zero(x, y <= -1.0, x * np.log1p(y))),
)


def entr_in_kernels(x):
    return np.where(x > 0.0, -x * np.log(x), np.where(x == 0.0, 0.0, np.where(x < 0.0, -math.inf, math.nan)))


entr = special_ufunc(sp.entr, lambda g, out, x: -times0(g, log(x) + 1.0), scalar=entr_in_kernels)


def divergence_in_kernels(x, y, usual, limit):
    """In a kernel: `usual` for positive numbers, `limit` at x = 0."""
    value = np.where(np.logical_and(x == 0.0, y >= 0.0), limit, math.inf)
    value = np.where(np.logical_and(x > 0.0, y > 0.0), usual, value)
    return np.where(np.logical_or(np.isnan(x), np.isnan(y)), math.nan, value)


rel_entr = special_ufunc(
    sp.rel_entr,
    lambda g, out, x, y: times0(g, log(x / y) + 1.0),
    lambda g, out, x, y: -times0(g, over0(x, y)),
    scalar=lambda x, y: divergence_in_kernels(x, y, x * np.log(x / y), 0.0),
    rough=True,
)
kl_div = special_ufunc(
    sp.kl_div,
    lambda g, out, x, y: times0(g, log(x / y)),
    lambda g, out, x, y: times0(g, 1.0 - over0(x, y)),
    scalar=lambda x, y: divergence_in_kernels(x, y, x * np.log(x / y) - x + y, y),
    rough=True,
)


@implements(sp.huber)
def huber(delta, r):
    a = absolute(r)
    return select(delta < 0.0, math.inf, select(a <= delta, 0.5 * (r * r), delta * (a - 0.5 * delta)))


@primitive()
def half_tangent(r, delta):
    """r / (hypot + delta): the tangent of half the angle of the point (delta, r)."""
    return (r / (xp_of2(r, delta).hypot(r, delta) + delta))[()]


@primitive(sp.pseudo_huber)
def pseudo_huber(delta, r):
    """delta (hypot(delta, r) - delta)."""
    xp = xp_of2(r, delta)
    usual = (delta > 0.0) & xp.isfinite(delta) & xp.isfinite(r)
    y = delta * r * (r / xp.where(usual, xp.hypot(r, delta) + delta, 1.0))
    return xp.where(usual, y, special_of2(delta, r).pseudo_huber(delta, r))[()]


rules(
    half_tangent,
    lambda g, out, r, delta: over0(
        g * part_of_hypot(delta, r, primal_of(hypot(r, delta))), hypot(r, delta) + delta
    ),
    lambda g, out, r, delta: -over0(g * out, hypot(r, delta)),
    jvp=same,
)
rules(
    pseudo_huber,
    lambda g, out, delta, r: (
        g
        * half_tangent(r, delta)
        * half_tangent(r, delta)
        * part_of_hypot(r, delta, primal_of(hypot(r, delta)))
        * r
    ),
    lambda g, out, delta, r: g * delta * part_of_hypot(r, delta, primal_of(hypot(r, delta))),
    jvp=same,
)


if hasattr(sp, "softplus"):

    @implements(sp.softplus)
    def softplus(x):
        return logaddexp(x, 0.0)


# --- exponential integrals and elementary functions ---


expi = special_ufunc(sp.expi, lambda g, out, x: times0(g, exp(x) / x))


def exp1_in_kernels(x):
    """The series up to 1.5, else the continued fraction (Abramowitz & Stegun 5.1.11, 5.1.22)."""
    near, total, fraction = np.minimum(x, 1.5), 0.0, np.maximum(x, 1.5) + 2.0 * EXP1_TERMS + 1.0
    for k in range(24, 0, -1):
        total = total * near + (-1.0) ** (k + 1) / (k * math.factorial(k))
    for k in range(EXP1_TERMS, 0, -1):
        fraction = np.maximum(x, 1.5) + (2.0 * k - 1.0) - k * k / fraction
    series = near * total - np.euler_gamma - np.log(near)
    return np.where(x <= 1.5, np.where(x == 0.0, math.inf, series), np.exp(-x) / fraction)


EXP1_TERMS = 60
exp1 = special_ufunc(sp.exp1, lambda g, out, x: -times0(g, exp(-x) / x), scalar=exp1_in_kernels, rough=True)
expn = special_ufunc(sp.expn)
exp10 = special_ufunc(sp.exp10, lambda g, out, x: LN10 * g * out, scalar="exp10")
cosm1 = special_ufunc(
    sp.cosm1, lambda g, out, x: -g * sin(x), scalar=lambda x: -2.0 * np.sin(0.5 * x) * np.sin(0.5 * x)
)


def exprel_in_kernels(x, *, n):
    f = np.where(x == 0.0, 1.0, np.expm1(x) / x)
    return f if n == 0 else exprel_derivative(np, x, f, n)


@primitive(scalar=exprel_in_kernels, rough=True)
def exprel_n(x, *, n):
    """The derivative of order n of (exp(x) - 1) / x: the integral of s^n exp(s x) for s from 0 to 1."""
    f = special_of(x).exprel(x)
    return f if n == 0 else exprel_derivative(xp_of(x), x, f, n).astype(x.dtype)[()]


def exprel_derivative(xp, x, f, n):
    """By n f_(n-1) + x f_n = exp(x). Where x is small, by series of positive terms: x^k / (k! (n + k +
    1)) or exp(x) (-x)^k n! / (n + k + 1)!."""
    bound = n + 2.0
    y = xp.where(abs(x) < bound, abs(x), 0.0)
    up = down = 0.0
    for k in range(40 + 2 * n, -1, -1):
        up = up * y + 1.0 / (math.factorial(k) * (n + k + 1))
        down = down * y + math.factorial(n) / math.factorial(n + k + 1)
    far = xp.where(abs(x) < bound, bound, x)
    g = xp.where(abs(x) < bound, 0.0, f)
    for k in range(1, n + 1):
        g = (xp.exp(far) - k * g) / far
    return xp.where(abs(x) < bound, xp.where(x < 0, xp.exp(x) * down, up), g)


def wrightomega_in_kernels(x):
    """The solution w of w + log w = x for real x. Two fourth-order iterations (Fritsch, Shafer & Crowley,
    Comm. ACM 16, 1973) start from an expansion at 0 or infinity. For small x the residual is
    log(exp(x) / w) - w, because x - log w would lose digits."""
    near, far = x < 1.0, x > 1e18
    y = np.where(far, 1e18, np.where(x < -50.0, -50.0, x))
    u, z = np.exp(np.where(near, y, 0.0)), np.where(near, 1.0, y)
    log_z = np.log(z)
    w = np.where(near, u * (1.0 + u * (4 / 3)) / (1.0 + u * (7 / 3 + u * (5 / 6))), z - log_z + log_z / z)
    for _ in range(2):
        log_w = np.log(np.where(near, u / w, w))
        r = np.where(near, log_w - w, y - w - log_w)
        s = (1.0 + w) * (1.0 + w + r * (2 / 3))
        w = w * (1.0 + r / (1.0 + w) * (s - 0.5 * r) / (s - r))
    return np.where(far, x, np.where(x < -50.0, np.exp(x), w))


wrightomega = special_ufunc(
    sp.wrightomega, lambda g, out, z: times0(g, wrightomega_slope(out)), scalar=wrightomega_in_kernels
)


def _expn_rule(g, out, n, x):
    """E_n' = -E_(n-1), down to the elementary E_0 = exp(-x) / x. (A fractional n is truncated, as in
    SciPy.)"""
    n = values_of(n)
    n = n.astype(int) if is_array(n) else int(n)
    e = exp(-x) / x
    return times0(g, select(n > 0, -expn((n - 1) * (n > 0), x), -e * (1.0 + 1.0 / x)))


rules(expn, lambda g, out, n, x: no_rule_in("expn", "n"), _expn_rule, jvp=same)


def wrightomega_slope(w):
    """w / (1 + w), in a form whose derivatives do not cancel at large w."""
    return near_or_far(primal_of(w) > 1.0, w, lambda w: 1.0 / (1.0 + 1.0 / w), lambda w: w / (1.0 + w))


slopes(exprel_n, lambda out, x, n: exprel_n(x, n=n + 1))


@implements(sp.exprel)
def exprel(x):
    """(exp(x) - 1) / x."""
    return expm1(x) / x if dtype(x).kind == "c" else exprel_n(x, n=0)


NUMPY.update({sp.cbrt: cbrt, sp.exp2: exp2, sp.expm1: expm1, sp.log1p: log1p})
