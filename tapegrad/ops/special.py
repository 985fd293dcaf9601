"""scipy.special in both modes.  Where SciPy and CuPy have the function, the body is theirs.

A parameter without a rule (the order of a Bessel function, the first argument of gammainc) raises when its derivative is asked."""

import math
from typing import Any

import numpy as np
import scipy.special as sp

from .._array import is_array, xp_of
from .._primitive import is_tracked, primal_of, seen, values_of
from ..errors import ArgumentError, NoRuleError
from ._define import NUMPY, Written, dtype, implements, primitive, rules, same
from .corners import expit, hypot, logaddexp, part_of_hypot, special_of
from .elementwise import LN10, absolute, cbrt, cos, exp, exp2, expm1, log, log1p, over0, select, sin, times0, xp_of2, zero_of

ROOT_PI, ROOT_2PI = math.sqrt(math.pi), math.sqrt(2 * math.pi)


def special_of2(x, y):
    return special_of(x if is_array(x) else y)


def no_rule_in(name: str, parameter: str):
    raise NoRuleError(
        f"scipy.special.{name} has no derivative in {parameter}; pass tapegrad.value({parameter}), or give the function a rule "
        "with tapegrad.rule"
    )


# --- far out, where derivatives as differences would cancel ---


def tail_sum(x, *, terms, p, q, m):
    total = 0.0
    for k in reversed(range(len(terms))):
        total = total * x**-q + terms[k] * math.prod([-(p + q * k + j) for j in range(m)])
    return total * x ** -(p + m)


@primitive(scalar=tail_sum)
def tail(x, *, terms, p, q, m=0):
    """The derivative of order m of the sum of terms[k] x^(-p - q k) at a large x > 0: each term's own."""
    return tail_sum(x, terms=terms, p=p, q=q, m=m).astype(x.dtype)


rules(tail, lambda g, out, x, terms, p, q, m: g * tail(x, terms=terms, p=p, q=q, m=m + 1), jvp=same)


def beyond(far: Any, x: Any, away: Any, near: Any) -> Any:
    """near(x); away(x) where the mask `far` holds.  On the host neither is taken for nothing."""
    if seen(far) is not None and not far.any():
        return near(x)
    one = dtype(x).type(1)
    return select(far, away(select(far, x, 100 * one)), near(select(far, one, x)))


# --- gamma and its kin ---


@primitive(sp.gammaln, scalar="lgamma")
def gammaln(x):
    return special_of(x).gammaln(x)


@implements(sp.loggamma)
def loggamma(z):
    of_real("loggamma", z)
    return gammaln(z)


def of_real(name: str, z: Any) -> None:
    if dtype(z).kind == "c":
        raise NoRuleError(f"scipy.special.{name} of complex numbers has no derivative rule in tapegrad")


@primitive(sp.digamma, scalar="digamma")
def digamma(x):
    return special_of(x).digamma(x)


# Of a Bernoulli number B_2k: B_2k / (2k)!, for the asymptotic series of the polygamma functions.
BERNOULLI = [
    b / math.factorial(2 * k + 2)
    for k, b in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330))
]


def polygamma_in_kernels(x, *, n):
    """By the asymptotic series at z = x + 8 and the recurrence back (Abramowitz & Stegun 6.4.11, 6.4.6); on the left by reflection
    (6.4.7), where the derivatives of cot are polynomials in it: cot' = -1 - cot^2."""
    left = x < 0.0
    a = np.where(left, 1.0 - x, x)
    r, f = 1.0 / (a + 8.0), math.factorial
    tail = 0.0
    for k in range(len(BERNOULLI), 0, -1):
        tail = tail * (r * r) + f(2 * k + n - 1) * BERNOULLI[k - 1]
    y = r**n * (f(n - 1) + r * (0.5 * f(n) + r * tail))
    for k in range(7, -1, -1):
        y = y + f(n) * (1.0 / (a + float(k))) ** (n + 1)
    p = [0, 1]  # coefficients of the derivative in cot
    for _ in range(n):
        p = [-(j + 1) * (p[j + 1] if j + 1 < len(p) else 0) - (j - 1) * (p[j - 1] if j else 0) for j in range(len(p) + 1)]
    u = math.pi * (x - np.floor(x + 0.5))
    c, square = 0.0, 1.0 / (np.sin(u) * np.sin(u)) - 1.0
    for b in reversed(p[(n + 1) % 2 :: 2]):  # even or odd, as n + 1 is
        c = c * square + float(b)
    if n % 2 == 0:
        c = c * (np.cos(u) / np.sin(u))
    return np.where(left, -(math.pi ** (n + 1)) * c - y, y if n % 2 else -y)


@primitive(scalar=polygamma_in_kernels)
def polygamma_n(x, *, n):
    of_real("polygamma", x)
    r = sp.polygamma(n, x) if xp_of(x) is np else special_of(x).polygamma(xp_of(x).asarray(n), x)
    return r.astype(x.dtype)


@implements(sp.polygamma)
def polygamma(n, x):
    """n, an integer or an array of integers, is a constant."""
    if is_tracked(n):
        raise NoRuleError("scipy.special.polygamma has no derivative in n; pass tapegrad.value(n)")
    return polygamma_n(x, n=values_of(n))


def gamma_in_kernels(x):
    """By the logarithm: a relative error of |log Gamma(x)| units of rounding."""
    whole = np.floor(x)
    flipped = np.logical_and(x < 0.0, whole - 2.0 * np.floor(0.5 * whole) == 1.0)
    size = np.exp(sp.gammaln(x))
    return np.where(np.logical_and(x < 0.0, whole == x), math.nan, np.where(flipped, -size, size))


@primitive(sp.gamma, scalar=gamma_in_kernels)
def gamma(x):
    return special_of(x).gamma(x)


@primitive(sp.rgamma)
def rgamma(x):
    return special_of(x).rgamma(x)


@primitive(sp.beta)
def beta(a, b):
    return special_of2(a, b).beta(a, b)


@primitive(sp.betaln, scalar=Written(lambda a, b: sp.gammaln(a) + sp.gammaln(b) - sp.gammaln(a + b)))
def betaln(a, b):
    return special_of2(a, b).betaln(a, b)


SHIFT = 20


@primitive()
def psi_gap(a, b, *, n=0):
    """polygamma(n, a + b) - polygamma(n, a).  Where b is small beside a > 0 the two would cancel: there the differences are taken term
    by term, in the recurrence up to a + 20 and in the asymptotic series, by (a + b)^-p - a^-p = a^-p expm1(-p log(1 + b / a))."""
    xp = special_xp(a, b)
    near = (a > 0) & (abs(b) < 0.1 * a)
    u, v = xp.where(near, a, 1.0), xp.where(near, b, 0.0)
    sign = (-1.0) ** (n + 1)

    def gap(x, p):
        return x**-p * xp.expm1(-p * xp.log1p(v / x))

    total = 0.0
    for j in range(SHIFT):
        total = total + sign * math.factorial(n) * gap(u + j, n + 1.0)
    x = u + SHIFT
    first = xp.log1p(v / x) if n == 0 else sign * math.factorial(n - 1) * gap(x, float(n))
    total = total + first + sign * math.factorial(n) / 2 * gap(x, n + 1.0)
    for k, c in enumerate(BERNOULLI[:8], 1):
        total = total + sign * c * math.factorial(2 * k + n - 1) * gap(x, 2.0 * k + n)
    f = special_of2(a, b)
    psi = f.digamma if n == 0 else lambda x: f.polygamma(n if f is sp else xp.asarray(n), x)
    return xp.where(near, total, psi(a + b) - psi(a)).astype(np.result_type(a, b))[()]


def special_xp(a, b):
    return xp_of(a) if is_array(a) else xp_of(b)


rules(
    psi_gap,
    lambda g, out, a, b, n: times0(g, psi_gap(a, b, n=n + 1)),
    lambda g, out, a, b, n: times0(g, polygamma_n(a + b, n=n + 1)),
    jvp=same,
)


def rgamma_slope(x: Any) -> Any:
    """The derivative of 1 / gamma; on the left, where the poles of gamma are its zeros, by gamma(1 - x) sin(pi x) / pi."""
    left = primal_of(x) < 0.5
    u, v = select(left, x, zero_of(x)), select(left, zero_of(x) + 1, x)
    mirrored = gamma(1.0 - u) * (cos(math.pi * u) - digamma(1.0 - u) * sin(math.pi * u) * (1 / math.pi))
    return select(left, mirrored, -rgamma(v) * digamma(v))


rules(gammaln, lambda g, out, x: times0(g, digamma(x)), jvp=same)
rules(digamma, lambda g, out, x: times0(g, polygamma_n(x, n=1)), jvp=same)
rules(polygamma_n, lambda g, out, x, n: times0(g, polygamma_n(x, n=n + 1)), jvp=same)
rules(gamma, lambda g, out, x: times0(g, out * digamma(x)), jvp=same)
rules(rgamma, lambda g, out, x: times0(g, rgamma_slope(x)), jvp=same)
rules(
    beta,
    lambda g, out, a, b: -times0(g, out * psi_gap(a, b)),
    lambda g, out, a, b: -times0(g, out * psi_gap(b, a)),
    jvp=same,
)
rules(
    betaln,
    lambda g, out, a, b: -times0(g, psi_gap(a, b)),
    lambda g, out, a, b: -times0(g, psi_gap(b, a)),
    jvp=same,
)


@primitive(sp.gammasgn)
def gammasgn(x):
    return special_of(x).gammasgn(x)


@primitive(sp.binom)
def binom(n, k):
    return special_of2(n, k).binom(n, k)


@primitive(sp.poch)
def poch(z, m):
    return special_of2(z, m).poch(z, m)


rules(
    binom,
    lambda g, out, n, k: times0(g, -out * psi_gap(n + 1.0, -k)),
    lambda g, out, n, k: times0(g, out * (digamma(n - k + 1.0) - digamma(k + 1.0))),
    jvp=same,
)
rules(
    poch,
    lambda g, out, z, m: times0(g, out * psi_gap(z, m)),
    lambda g, out, z, m: times0(g, out * digamma(z + m)),
    jvp=same,
)


@implements(sp.multigammaln)
def multigammaln(a, d):
    total = 0.25 * d * (d - 1) * math.log(math.pi)
    for j in range(int(d)):
        total = total + gammaln(a - 0.5 * j)
    return total


@implements(sp.factorial)
def factorial(n, exact=False):
    if exact:
        raise ArgumentError("scipy.special.factorial: exact=True gives integers, which have no derivative")
    return gamma(n + 1.0)


@primitive()
def hurwitz(x, q):
    return special_of2(x, q).zeta(x, q)


rules(hurwitz, lambda g, out, x, q: no_rule_in("zeta", "x"), lambda g, out, x, q: times0(g, -x * hurwitz(x + 1.0, q)), jvp=same)


@implements(sp.zeta)
def zeta(x, q=None):
    """In q; in x there is no rule."""
    return hurwitz(x, 1.0 if q is None else q)


# --- incomplete gamma and beta functions, in their last argument ---


@primitive(sp.gammainc)
def gammainc(a, x):
    return special_of2(a, x).gammainc(a, x)


@primitive(sp.gammaincc)
def gammaincc(a, x):
    return special_of2(a, x).gammaincc(a, x)


@primitive(sp.gammaincinv)
def gammaincinv(a, y):
    return special_of2(a, y).gammaincinv(a, y)


@primitive(sp.gammainccinv)
def gammainccinv(a, y):
    return special_of2(a, y).gammainccinv(a, y)


@primitive(sp.betainc)
def betainc(a, b, x):
    return special_of(next((v for v in (a, b, x) if is_array(v)), x)).betainc(a, b, x)


@primitive(sp.betaincinv)
def betaincinv(a, b, y):
    return special_of(next((v for v in (a, b, y) if is_array(v)), y)).betaincinv(a, b, y)


@primitive(sp.betaincc)
def betaincc(a, b, x):
    return special_of(next((v for v in (a, b, x) if is_array(v)), x)).betaincc(a, b, x)


@primitive(sp.stdtr)
def stdtr(df, t):
    """Student's distribution function."""
    return special_of2(df, t).stdtr(df, t)


def student_density(df: Any, t: Any) -> Any:
    c = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * log(math.pi * df)
    return exp(c - 0.5 * (df + 1.0) * log1p(t * t / df))


def gamma_density(a: Any, x: Any) -> Any:
    return exp(xlogy(a - 1.0, x) - x - gammaln(a))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    return exp(xlogy(a - 1.0, x) + xlog1py(b - 1.0, -x) - betaln(a, b))


rules(gammainc, lambda g, out, a, x: no_rule_in("gammainc", "a"), lambda g, out, a, x: times0(g, gamma_density(a, x)), jvp=same)
rules(gammaincc, lambda g, out, a, x: no_rule_in("gammaincc", "a"), lambda g, out, a, x: -times0(g, gamma_density(a, x)), jvp=same)
rules(gammaincinv, lambda g, out, a, y: no_rule_in("gammaincinv", "a"), lambda g, out, a, y: over0(g, gamma_density(a, out)), jvp=same)
rules(gammainccinv, lambda g, out, a, y: no_rule_in("gammainccinv", "a"), lambda g, out, a, y: -over0(g, gamma_density(a, out)), jvp=same)
rules(
    betainc,
    lambda g, out, a, b, x: no_rule_in("betainc", "a"),
    lambda g, out, a, b, x: no_rule_in("betainc", "b"),
    lambda g, out, a, b, x: times0(g, beta_density(a, b, x)),
    jvp=same,
)
rules(
    betaincc,
    lambda g, out, a, b, x: no_rule_in("betaincc", "a"),
    lambda g, out, a, b, x: no_rule_in("betaincc", "b"),
    lambda g, out, a, b, x: -times0(g, beta_density(a, b, x)),
    jvp=same,
)
rules(stdtr, lambda g, out, df, t: no_rule_in("stdtr", "df"), lambda g, out, df, t: g * student_density(df, t), jvp=same)
rules(
    betaincinv,
    lambda g, out, a, b, y: no_rule_in("betaincinv", "a"),
    lambda g, out, a, b, y: no_rule_in("betaincinv", "b"),
    lambda g, out, a, b, y: over0(g, beta_density(a, b, out)),
    jvp=same,
)

# --- error function and normal distribution ---


@primitive(sp.erf, scalar="erf")
def erf(x):
    return special_of(x).erf(x)


@primitive(sp.erfc, scalar="erfc")
def erfc(x):
    return special_of(x).erfc(x)


@primitive(sp.erfcx, scalar="erfcx")
def erfcx(x):
    return special_of(x).erfcx(x)


@primitive(sp.erfi)
def erfi(x):
    return special_of(x).erfi(x)


@primitive(sp.dawsn)
def dawsn(x):
    return special_of(x).dawsn(x)


@primitive(sp.erfinv)
def erfinv(x):
    return special_of(x).erfinv(x)


@primitive(sp.erfcinv)
def erfcinv(x):
    return special_of(x).erfcinv(x)


@primitive(sp.ndtr, scalar="ndtr")
def ndtr(x):
    return special_of(x).ndtr(x)


@primitive(sp.ndtri)
def ndtri(x):
    return special_of(x).ndtri(x)


@primitive(sp.ndtri_exp)
def ndtri_exp(x):
    return special_of(x).ndtri_exp(x)


@primitive(sp.log_ndtr, scalar="log_ndtr")
def log_ndtr(x):
    return special_of(x).log_ndtr(x)


@primitive(scalar=lambda x: math.sqrt(2 / math.pi) / sp.erfcx(x * -math.sqrt(0.5)))
def inverse_mills(x):
    """phi(x) / Phi(x), the derivative of log Phi; its own derivative is -r (r + x)."""
    return (math.sqrt(2 / math.pi) / special_of(x).erfcx(x * -math.sqrt(0.5))).astype(x.dtype)


def far_out(x: Any, single: float) -> float:
    """From where on the series below are right to rounding; for float32 `single`."""
    return single if dtype(x).itemsize <= 4 else 12.0


ODD = [math.prod(range(1, 2 * k, 2)) for k in range(17)]  # (2 k - 1)!!
# erfcx(x) = sum of these x^(-1 - 2 k), Dawson's integral, and inverse_mills(-x) - x = 1 / x - 2 / x^3 + 10 / x^5 ..., from the series
# 1 - 1 / x^2 + 3 / x^4 ... of which x over inverse_mills(-x) is the sum
ERFCX_TAIL = tuple([(-1) ** k * n / 2**k / ROOT_PI for k, n in enumerate(ODD)])
DAWSN_TAIL = tuple([n / 2 ** (k + 1) for k, n in enumerate(ODD)])


def _mills_tail() -> tuple:
    made = [1]
    for k in range(1, len(ODD)):
        made.append(-sum([(-1) ** j * ODD[j] * made[k - j] for j in range(1, k + 1)]))
    return tuple(map(float, made[1:]))


MILLS_TAIL = _mills_tail()


def odd_tail(x: Any, terms: tuple) -> Any:
    return tail(x, terms=terms, p=1, q=2, m=1)


def erfcx_slope(x: Any) -> Any:
    return beyond(primal_of(x) > far_out(x, 4.5), x, lambda x: odd_tail(x, ERFCX_TAIL), lambda x: 2.0 * x * erfcx(x) - 2 / ROOT_PI)


def dawsn_slope(x: Any) -> Any:
    return beyond(abs(primal_of(x)) > far_out(x, 4.5), x, lambda x: odd_tail(absolute(x), DAWSN_TAIL), lambda x: 1.0 - 2.0 * x * dawsn(x))


def mills_slope(x: Any) -> Any:
    def near(x):
        r = inverse_mills(x)
        return -r * (r + x)

    return beyond(primal_of(x) < -far_out(x, 6.5), x, lambda x: -1.0 - odd_tail(absolute(x), MILLS_TAIL), near)


rules(erf, lambda g, out, x: (2 / ROOT_PI) * (g * exp(-(x * x))), jvp=same)
rules(erfc, lambda g, out, x: (-2 / ROOT_PI) * (g * exp(-(x * x))), jvp=same)
rules(erfcx, lambda g, out, x: times0(g, erfcx_slope(x)), jvp=same)
rules(erfi, lambda g, out, x: times0((2 / ROOT_PI) * g, exp(x * x)), jvp=same)
rules(dawsn, lambda g, out, x: g * dawsn_slope(x), jvp=same)
rules(erfinv, lambda g, out, x: times0((ROOT_PI / 2) * g, exp(out * out)), jvp=same)
rules(erfcinv, lambda g, out, x: times0((-ROOT_PI / 2) * g, exp(out * out)), jvp=same)
rules(ndtr, lambda g, out, x: (1 / ROOT_2PI) * (g * exp(-0.5 * (x * x))), jvp=same)
rules(ndtri, lambda g, out, x: times0(ROOT_2PI * g, exp(0.5 * (out * out))), jvp=same)
rules(ndtri_exp, lambda g, out, x: over0(g, inverse_mills(out)), jvp=same)
rules(log_ndtr, lambda g, out, x: times0(g, inverse_mills(x)), jvp=same)
rules(inverse_mills, lambda g, out, x: times0(g, mills_slope(x)), jvp=same)

# --- logistic function, entropies ---


def logit_in_kernels(x):
    """log(x / (1 - x)); near 1/2, where that is small, by 2 x - 1, which is exact there."""
    d = 2.0 * x - 1.0
    return np.where(abs(d) < 0.5, np.log1p(d) - np.log1p(-d), np.log(x / (1.0 - x)))


@primitive(sp.logit, scalar=logit_in_kernels)
def logit(x):
    return special_of(x).logit(x)


@primitive(sp.log_expit, scalar="log_expit")
def log_expit(x):
    return special_of(x).log_expit(x)


def of_zero(x, bad, product):
    """In a kernel: `product`, but 0 where x is 0 and the logarithm is not finite.  Where it is finite the derivative by x is kept."""
    return np.where(np.logical_and(x == 0.0, bad), 0.0, product)


@primitive(sp.xlogy, scalar=Written(lambda x, y: of_zero(x, y <= 0.0, x * np.log(y))))
def xlogy(x, y):
    return special_of2(x, y).xlogy(x, y)


@primitive(sp.xlog1py, scalar=Written(lambda x, y: of_zero(x, y <= -1.0, x * np.log1p(y))))
def xlog1py(x, y):
    return special_of2(x, y).xlog1py(x, y)


@primitive(sp.entr, scalar=Written(lambda x: np.where(x > 0.0, -x * np.log(x), np.where(x == 0.0, 0.0, -math.inf))))
def entr(x):
    return special_of(x).entr(x)


@primitive(sp.rel_entr)
def rel_entr(x, y):
    return special_of2(x, y).rel_entr(x, y)


@primitive(sp.kl_div)
def kl_div(x, y):
    return special_of2(x, y).kl_div(x, y)


rules(logit, lambda g, out, x: over0(g, x * (1.0 - x)), jvp=same)
rules(log_expit, lambda g, out, x: g * expit(-x), jvp=same)
rules(xlogy, lambda g, out, x, y: times0(g, log(y)), lambda g, out, x, y: over0(g * x, y), jvp=same)
rules(xlog1py, lambda g, out, x, y: times0(g, log1p(y)), lambda g, out, x, y: over0(g * x, 1.0 + y), jvp=same)
rules(entr, lambda g, out, x: -times0(g, log(x) + 1.0), jvp=same)
rules(rel_entr, lambda g, out, x, y: times0(g, log(x / y) + 1.0), lambda g, out, x, y: -over0(g * x, y), jvp=same)
rules(kl_div, lambda g, out, x, y: times0(g, log(x / y)), lambda g, out, x, y: times0(g, 1.0 - over0(x, y)), jvp=same)


@implements(sp.huber)
def huber(delta, r):
    a = absolute(r)
    return select(a <= delta, 0.5 * (r * r), delta * (a - 0.5 * delta))


@primitive()
def half_tangent(r, delta):
    """r / (hypot + delta): the tangent of half the angle of the point (delta, r)."""
    return (r / (xp_of2(r, delta).hypot(r, delta) + delta))[()]


@primitive(sp.pseudo_huber)
def pseudo_huber(delta, r):
    """delta (hypot(delta, r) - delta)."""
    return (delta * r * (r / (xp_of2(r, delta).hypot(r, delta) + delta)))[()]


rules(
    half_tangent,
    lambda g, out, r, delta: over0(g * part_of_hypot(delta, r, primal_of(hypot(r, delta))), hypot(r, delta) + delta),
    lambda g, out, r, delta: -over0(g * out, hypot(r, delta)),
    jvp=same,
)
rules(
    pseudo_huber,
    lambda g, out, delta, r: g * half_tangent(r, delta) * half_tangent(r, delta) * part_of_hypot(r, delta, primal_of(hypot(r, delta))) * r,
    lambda g, out, delta, r: g * delta * part_of_hypot(r, delta, primal_of(hypot(r, delta))),
    jvp=same,
)


if hasattr(sp, "softplus"):

    @implements(sp.softplus)
    def softplus(x):
        return logaddexp(x, 0.0)


# --- exponential integrals and elementary functions ---


@primitive(sp.expi)
def expi(x):
    return special_of(x).expi(x)


@primitive(sp.exp1)
def exp1(x):
    return special_of(x).exp1(x)


@primitive(sp.expn)
def expn(n, x):
    return special_of2(x, n).expn(n, x)


@primitive(sp.exp10, scalar=Written(lambda x: np.exp(x * LN10)))
def exp10(x):
    return special_of(x).exp10(x)


@primitive(sp.cosm1, scalar=lambda x: -2.0 * np.sin(0.5 * x) * np.sin(0.5 * x))
def cosm1(x):
    return special_of(x).cosm1(x)


def exprel_in_kernels(x, *, n):
    f = np.where(x == 0.0, 1.0, np.expm1(x) / x)
    return f if n == 0 else exprel_derivative(np, x, f, n)


@primitive(scalar=exprel_in_kernels)
def exprel_n(x, *, n):
    """The derivative of order n of (exp(x) - 1) / x: the integral of s^n exp(s x) for s from 0 to 1."""
    f = special_of(x).exprel(x)
    return f if n == 0 else exprel_derivative(xp_of(x), x, f, n).astype(x.dtype)[()]


def exprel_derivative(xp, x, f, n):
    """By series of positive terms, x^k / (k! (n + k + 1)) or exp(x) (-x)^k n! / (n + k + 1)!, where x is small; else by
    n f_(n-1) + x f_n = exp(x)."""
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
    """w + log w = x for real x: two iterations of the fourth order (Fritsch, Shafer & Crowley, Comm. ACM 16, 1973) from an expansion at 0
    or at infinity.  What is left to correct is log(exp(x) / w) - w for small x, where x - log w would lose digits."""
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


@primitive(sp.wrightomega, scalar=wrightomega_in_kernels)
def wrightomega(z):
    return special_of(z).wrightomega(z)


def _expn_rule(g, out, n, x):
    """E_n' = -E_(n-1) down to E_0 = exp(-x) / x, which is elementary.  (A fraction of n is cut off, as SciPy does.)"""
    n = values_of(n)
    n = n.astype(int) if is_array(n) else int(n)
    e = exp(-x) / x
    return times0(g, select(n > 0, -expn((n - 1) * (n > 0), x), -e * (1.0 + 1.0 / x)))


rules(expi, lambda g, out, x: times0(g, exp(x) / x), jvp=same)
rules(exp1, lambda g, out, x: -times0(g, exp(-x) / x), jvp=same)
rules(expn, lambda g, out, n, x: no_rule_in("expn", "n"), _expn_rule, jvp=same)


def wrightomega_slope(w):
    """w / (1 + w), of which the derivatives do not cancel at large w."""
    return beyond(primal_of(w) > 1.0, w, lambda w: 1.0 / (1.0 + 1.0 / w), lambda w: w / (1.0 + w))


rules(wrightomega, lambda g, out, z: times0(g, wrightomega_slope(out)), jvp=same)
rules(exp10, lambda g, out, x: LN10 * g * out, jvp=same)
rules(cosm1, lambda g, out, x: -g * sin(x), jvp=same)
rules(exprel_n, lambda g, out, x, n: times0(g, exprel_n(x, n=n + 1)), jvp=same)


@implements(sp.exprel)
def exprel(x):
    """(exp(x) - 1) / x."""
    return exprel_n(x, n=0)


NUMPY.update({sp.cbrt: cbrt, sp.exp2: exp2, sp.expm1: expm1, sp.log1p: log1p})
