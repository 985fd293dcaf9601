"""exp, log, erf, log Gamma and related functions in elementary operations, shared by both emitters.

CPU and GPU therefore give the same bits. Each function takes `b`, the `Expressions` of an emitter's builder:
arithmetic in the working type, and bit operations on integers of the same width. It returns an `Expression`.
Errors are at most 2 units in the last place, 2.4 of `tanh`, and 4 for special functions. Zeros of special
functions on the negative axis are an exception. The tests check this in multiple precision. Zeros, infinities
and nan are those of NumPy."""

import collections
import functools
import math
import re
from collections.abc import Callable, Iterable

from ..graph.expanded import EXPANDED_OPERATIONS, is_expanded
from ..graph.nodes import COMPARE, OPERATIONS
from .builder import Expression, Expressions
from .far_angles import LIMIT

FUNCTIONS: dict[str, Callable] = {}  # name -> its code, a function of (Expressions, Expression)


def elementary_function(keeps: str = "") -> Callable:
    """Register the decorated function; results for nan (`keeps` = "nan"), and for 0 ("nan, 0"), are the
    argument."""

    def declare(f: Callable) -> Callable:
        @functools.wraps(f)
        def code(b, x):
            y = f(b, x)
            return (
                b.select(b.isnan(x) | (x == 0.0) if keeps == "nan, 0" else b.isnan(x), x, y) if keeps else y
            )

        FUNCTIONS[f.__name__.removeprefix("emit_")] = code
        return code

    return declare


# in two parts
LN2 = {64: (0.693147180369123816490, 1.90821492927058770002e-10), 32: (0.693359375, -2.12194440e-4)}
LOG10_2 = {
    64: (0.3010299956639812, -2.8037281277851704e-18),
    32: (0.3010300099849701, -1.4320988897559699e-08),
}


def horner_code(b, x, coefficients: list):
    """Evaluate a polynomial by Horner's rule, the highest coefficient first."""
    return functools.reduce(lambda out, k: b.fma(out, x, k), coefficients[1:], coefficients[0])


def _reduced(b, x) -> tuple:
    """Return k and r with x = k ln 2 + r."""
    k = b.floor(b.fma(x, 1.4426950408889634, 0.5))
    high, low = LN2[b.bits]
    return k, b.fnma(k, low, b.fnma(k, high, x))


def _power_of_two(b, k):
    """Return 2^k for an integer k within the range of exponents."""
    bias, shift = (1023, 52) if b.bits == 64 else (127, 23)
    return b.from_bits(b.shl(b.iadd(b.to_int(k), bias), shift))


def _expm1_of_reduced(b, r):
    n = 13 if b.bits == 64 else 7
    p = horner_code(b, r, [1 / math.factorial(k) for k in range(n, 1, -1)])
    return b.fma(p * r, r, r)


def _clamped(b, x, low: float, high: float, above: float | None = None):
    inside = b.select(x < low, low, b.select(x > high, high if above is None else above, x))
    return b.select(b.isnan(x), 0.0, inside)


def _halved_powers(b, k, minus: int) -> tuple:
    """Return 2^(k - minus) as two factors, for denormal results and for k = 1024."""
    half = b.floor(k * 0.5)
    rest = k - half
    return _power_of_two(b, half), _power_of_two(b, rest - float(minus) if minus else rest)


def emit_exponential(b, x, low: float, high: float, reduced=_reduced, minus: int = 0):
    """Return 2^-minus e^x, or a power of 2 or 10 with another `reduced`.

    The result is 0 below `low` and infinite above `high`, the largest number whose result is finite: an
    infinite argument sets no flag."""
    k, r = reduced(b, _clamped(b, x, low, high))
    p = 1.0 + _expm1_of_reduced(b, r)
    half, rest = _halved_powers(b, k, minus)
    y = b.select(x > high, math.inf, b.select(x < low, 0.0, p * half * rest))
    return b.select(b.isnan(x), x, y)


@elementary_function()
def emit_exp(b, x):
    return emit_exponential(b, x, *((-745.2, 709.782712893384) if b.bits == 64 else (-103.98, 88.7228317)))


@elementary_function()
def emit_exp2(b, x):
    def reduced(b, x) -> tuple:
        k = b.floor(x + 0.5)
        return k, (x - k) * math.log(2)

    return emit_exponential(
        b, x, *((-1075.5, 1023.9999999999999) if b.bits == 64 else (-150.5, 127.999992)), reduced
    )


@elementary_function()
def emit_exp10(b, x):
    def reduced(b, x) -> tuple:
        k = b.floor(b.fma(x, 1 / LOG10_2[64][0], 0.5))
        high, low = LOG10_2[b.bits]
        return k, b.fnma(k, low, b.fnma(k, high, x)) * math.log(10)

    return emit_exponential(
        b, x, *((-323.7, 308.2547155599167) if b.bits == 64 else (-45.2, 38.5318375)), reduced
    )


def _expm1(b, x, low: float, high: float, minus: int = 0):
    """Return 2^-minus (e^x - 1)."""
    one = 2.0**-minus
    k, r = _reduced(b, _clamped(b, x, low, high, above=0.0))  # (2^k overflows near `high`)
    s, t = _halved_powers(b, k, minus)
    p = _expm1_of_reduced(b, r)
    y = b.select(k > (1000.0 if b.bits == 64 else 100.0), (p + 1.0) * s * t, b.fma(p, s * t, s * t - one))
    y = b.select(k == 0.0, p * one if minus else p, y)
    return b.select(x > high, math.inf, b.select(x < low, b.neg(one), y))


@elementary_function("nan, 0")
def emit_expm1(b, x):
    return _expm1(b, x, *((-40.0, 709.782712893384) if b.bits == 64 else (-20.0, 88.7228317)))


def _with_sign(b, x, y):
    return b.select(x < 0.0, -y, y)


def _half_overflows(b) -> float:
    """Return the largest number of which e^x / 2 is finite."""
    return 710.4758600739439 if b.bits == 64 else 89.4159851


@elementary_function()
def emit_cosh(b, x):
    """Return h + 1 / (4 h) with h = e^|x| / 2."""
    h = emit_exponential(b, abs(x), -1.0, _half_overflows(b), minus=1)
    return h + 0.25 / h


@elementary_function("nan, 0")
def emit_sinh(b, x):
    """Return h + h / (2 h + 1) with h = (e^|x| - 1) / 2, with the sign of x."""
    h = _expm1(b, abs(x), -1.0, _half_overflows(b), minus=1)
    y = h + h / b.fma(h, 2.0, 1.0)
    y = b.select(h > 2.0 ** (1000 if b.bits == 64 else 100), h, b.select(abs(x) < 2.0**-30, abs(x), y))
    return _with_sign(b, x, y)


LG_TABLE = {
    64: [1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
    2.222219843214978396e-01,
        2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01],
    32: [0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693],
}  # fmt: skip


def _log_parts(b, x, carried):
    """Return log(x) of a positive finite normal x; `carried` is added to the argument's low part (log1p)."""
    one, cut, shift, bias, keep = (
        (0x3FF0000000000000, 0x3FE6A09E667F3BCD, 52, 1023, 0x000FFFFFFFFFFFFF)
        if b.bits == 64 else (0x3F800000, 0x3F3504F3, 23, 127, 0x007FFFFF)
    )  # fmt: skip
    bits = b.iadd(b.to_bits(x), one - cut)  # the mantissa lies in [sqrt(1/2), sqrt(2))
    e = b.from_int(b.iadd(b.shr(bits, shift), -bias))
    f = b.from_bits(b.iadd(b.iand(bits, keep), cut)) - 1.0
    s = f / (f + 2.0)
    z = s * s
    tail = z * horner_code(b, z, LG_TABLE[b.bits])
    h = f * f * 0.5
    high, low = LN2[b.bits]
    rest = b.fma(s, h + tail, e * low)
    if carried is not None:
        rest = rest + carried
    return b.fma(e, high, f - (h - rest))


@elementary_function()
def emit_log(b, x):
    tiny, scale, power = (
        (2.2250738585072014e-308, 2.0**54, 54.0) if b.bits == 64 else (1.17549435e-38, 2.0**25, 25.0)
    )
    denormal = x < tiny
    y = _log_parts(b, b.select(denormal, x * scale, x), None)
    high, low = LN2[b.bits]
    y = b.select(denormal, y - power * high - power * low, y)
    y = b.select(x == 0.0, -math.inf, b.select(x < 0.0, math.nan, y))
    return b.select(b.isnan(x) | (x == math.inf), x, y)


@elementary_function()
def emit_log1p(b, x):
    u = 1.0 + x
    lost = b.select(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    y = _log_parts(b, u, lost / u)
    y = b.select(u == 1.0, x, y)
    y = b.select(x == -1.0, -math.inf, b.select(x < -1.0, math.nan, y))
    return b.select(b.isnan(x) | (x == math.inf), x, y)


def _twice_below(b, x) -> tuple:
    """Return exp(-2 |x|) - 1 and exp(-2 |x|); the latter is accurate for large |x| too."""
    far, a = _far(b), abs(x)
    k, r = _reduced(b, b.select(a < far, a, far) * -2.0)
    s, p = _power_of_two(b, k), _expm1_of_reduced(b, r)
    return b.fma(p, s, s - 1.0), b.fma(p, s, s)


def _far(b) -> float:
    """Return the threshold above which exp(-2 x) is nearly denormal."""
    return 354.0 if b.bits == 64 else 43.0


@elementary_function("nan, 0")
def emit_tanh(b, x):
    """Return -em / (em + 2) with em = exp(-2 |x|) - 1, with the sign of x."""
    em, _ = _twice_below(b, x)
    y = -em / (em + 2.0)
    return _with_sign(b, x, y)


@elementary_function("nan")
def emit_tanh_slope(b, x):
    """Return 1 / cosh(x)^2 = e (1 + |tanh(x)|)^2 with e = exp(-2 |x|); it shares subexpressions with tanh."""
    em, e = _twice_below(b, x)
    t = -em / (em + 2.0) + 1.0
    return b.select(abs(x) > _far(b), 0.0, e * (t * t))


def scale_argument(b, q, small: float, large: float):
    high, low = (1000, -900) if b.bits == 64 else (100, -80)
    return b.select(q > 2.0**high, small, b.select(q < 2.0**low, large, 1.0))


@elementary_function()
def emit_scale(b, q):
    """Return a power of 2 that scales a vector with the sum of squares q, so that no square overflows or
    underflows."""
    return scale_argument(b, q, *((2.0**-540, 2.0**600) if b.bits == 64 else (2.0**-75, 2.0**100)))


@elementary_function()
def emit_unscale(b, q):
    """Return 1 / scale."""
    return scale_argument(b, q, *((2.0**540, 2.0**-600) if b.bits == 64 else (2.0**75, 2.0**-100)))


HALF_PI = {
    64: [1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33],
    32: [1.5707964, -4.371139e-08, -1.7151245e-15],
}
SIN_TABLE = {
    64: [1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
    -1.98412698298579493134e-04,
         8.33333333332248946124e-03, -1.66666666666666324348e-01],
    32: [2.718311493989822e-06, -1.9839334836096632e-04, 8.333329385889463e-03, -0.16666666641626524],
}  # fmt: skip
COS_TABLE = {
    64: [-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
    2.48015872894767294178e-05,
         -1.38888888888741095749e-03, 4.16666666666666019037e-02],
    32: [2.439044879627741e-05, -1.388676377460993e-03, 4.166662332373906e-02],
}  # fmt: skip


def _of_reduced(b, q, r):
    """Return sin(q pi/2 + r) for |r| <= pi/4."""
    z = r * r
    sin = b.fma(z * r, horner_code(b, z, SIN_TABLE[b.bits]), r)
    cos = b.fma(z * z, horner_code(b, z, COS_TABLE[b.bits]), b.fma(z, -0.5, 1.0))
    y = b.select(b.odd(q), cos, sin)
    return b.select(b.odd(b.shr(q, 1)), -y, y)


def _near(b, x):
    return abs(x) < 2.0 ** LIMIT[b.bits]


def _quadrant(b, x, plus: int, small: bool = False):
    """Return sin(x + plus pi/2), with an error of one unit in the last place of 1.

    The first step of the reduction is exact below 2^LIMIT. `small` asserts that x is below. For larger angles
    the builder has `far_quadrant`, or gives nan."""
    k = b.floor(b.fma(x, 2 / math.pi, 0.5))
    r = x
    for part in HALF_PI[b.bits]:
        r = b.fnma(k, part, r)
    near = _near(b, x)
    y = _of_reduced(b, b.iadd(b.to_int(b.select(near, k, 0.0)), plus), r)
    return y if small else b.far(near, x, y, plus)


def far_quadrant(builder, x, y, plus: int):
    """Return sin(x + plus pi/2) for a finite x from 2^LIMIT on, otherwise y."""

    def code(b, x, y):
        q, r = [Expression(b, part) for part in builder.far_turns(x.text)]
        return b.select(_near(b, x) | b.isnan(x - x), y, _of_reduced(b, b.iadd(q, plus), r))

    return Expressions(builder).written(code, x, y)


@elementary_function()
def emit_sin(b, x):
    return b.select(x == 0.0, x, _quadrant(b, x, 0))  # a zero keeps its sign


@elementary_function()
def emit_cos(b, x):
    return _quadrant(b, x, 1)


# (arctan(r) / r - 1) / r^2 in r^2 for |r| <= tan(pi / 8): interpolated at Chebyshev points with mpmath at 60
# digits
ATAN_TABLE = {
    64: [0.016285756855221028, -0.034570561981427744, 0.04551593220626549, -0.05230454270650244,
    0.05878928997834775,
          -0.06666424885738255, 0.07692296375032143, -0.09090908753500877, 0.11111111105155447,
          -0.14285714285659828,
          0.19999999999999804, -0.3333333333333333],
    32: [-0.06451928208121749, 0.10743731490791084, -0.1426395559798464, 0.19999540483648964,
    -0.3333333176116852],
}  # fmt: skip


@elementary_function("nan, 0")
def emit_arctan(b, x):
    """Use arctan(a) = pi/4 + arctan((a - 1) / (a + 1)) = pi/2 - arctan(1 / a)."""
    a = abs(x)
    middle, large = a > math.sqrt(2) - 1, a > math.sqrt(2) + 1
    over = b.select(large, -1.0, b.select(middle, a - 1.0, a))
    r = over / b.select(large, a, b.select(middle, a + 1.0, 1.0))
    high, low, _ = HALF_PI[b.bits]
    share = b.select(large, 1.0, b.select(middle, 0.5, 0.0))
    z = r * r
    tail = b.fma(z * r, horner_code(b, z, ATAN_TABLE[b.bits]), share * low)
    y = share * high + (r + tail)
    return _with_sign(b, x, y)


# --- the error function and the normal distribution ---
#
# The coefficients below are Chebyshev interpolants computed with mpmath at 50 digits: of (1 + 2 x) exp(x^2)
# erfc(x) in t = (x - 3.75) / (x + 3.75), which takes x >= 0 to [-1, 1] (Shepherd & Laframboise, Math. Comp.
# 36, 1981); of erf(x) / x in x^2 on [0, 1]; of log Gamma(1.75 + u) / (u - 1/4) for |u| <= 1/2; of digamma(1.5
# + u) over its distance from its zero, for |u| <= 1/2.

ERFCX_TABLE = {
    64: [
    4.434975547330949e-10, 3.110325628823725e-10, -5.28429592896545e-09, -3.7435761311584635e-09,
    3.896547354259527e-08,
    2.3261932272107377e-08, -2.5910699664744594e-07, -5.7215997775202406e-08, 1.7520579932107891e-06,
    -9.735618806671925e-07,
    -1.1444412451489902e-05, 2.2384240303078713e-05, 5.1649211394979334e-05, -0.0002901540809756577,
    0.0002937136342840641,
    0.0017556258530008716, -0.009746579552504117, 0.02836227741894078, -0.05869339859021238,
    0.09230432116037876, -0.10880393014171785,
    0.08227673849014516, 0.003585415485463775, -0.14024059858554697, 1.2375126308378275,
],
    32: [
    2.363482006846269e-05, -0.00022405204951954951, 0.00032538846455351867, 0.0016757342508064283,
    -0.009764690497787632,
    0.02840943039147911, -0.05868825204940161, 0.09229069167207876, -0.10880456454860984, 0.08227843390475284,
    0.003585438016476337,
    -0.14024065901788993, 1.2375126308378275,
],
}  # fmt: skip
ERF_TABLE = {
    64: [
    -7.795898827002142e-10, 1.3720064546777686e-08, -1.6208483801871705e-07, 1.6447424703317362e-06,
    -1.492473690741966e-05,
    0.00012055294904839707, -0.0008548325975389692, 0.0052239776071164225, -0.02686617064323777,
    0.11283791670945006,
    -0.37612638903183543, 1.1283791670955126,
],
    32: [
    7.875875062685488e-05, -0.000801686428716587, 0.005189087423433974, -0.026854212010626412,
    0.11283594715160218,
    -0.37612626666720334, 1.1283791658483509,
],
}  # fmt: skip
LGAMMA_TABLE = {
    64: [
    8.890417043351835e-07, -1.6353063437447517e-06, 1.9046917046709517e-06, -3.534812996967893e-06,
    7.174859076093071e-06,
    -1.3403408371559853e-05, 2.4984751421705352e-05, -4.7167361582436495e-05, 8.967152973619217e-05,
    -0.00017180475341275868,
    0.00033250395056263793, -0.00065189321760162, 0.0013001093262531979, -0.0026545437204075492,
    0.0056067248307645895,
    -0.01247168001121724, 0.030229978825824396, -0.08609125122636119, 0.36052812214032426, 0.3376044840819422,
],
    32: [
    -0.00020869951873582476, 0.00040251306415470804, -0.000642292601467934, 0.001281901076618984,
    -0.0026556132771519097,
    0.005608752869017331, -0.01247163182494505, 0.03022988746743633, -0.08609125183083034,
    0.36052812328631484, 0.3376044840819422,
],
}  # fmt: skip
DIGAMMA_TABLE = {
    64: [
    0.00011881232908510335, -0.0001782188548855923, 9.653646261410062e-05, -0.00014480643368061614,
    0.00032395945401345196,
    -0.00048595039220036254, 0.0006909255761282986, -0.0010364584817312839, 0.0015633696313653504,
    -0.0023454947397380833,
    0.003518106563802472, -0.005279937255532708, 0.007927021796868154, -0.011908220105959716,
    0.017907248317313294,
    -0.026975796659787055, 0.040760833940846085, -0.06192213327548831, 0.09498872445289039,
    -0.14840492305388092, 0.24054248424078697,
    -0.4236274212814606, 0.9510558760318328,
],
    32: [
    -0.007476843099039942, 0.01122315637643749, -0.011247037333869003, 0.016915223738038547,
    -0.027064258800657295, 0.0408935606644924,
    -0.06191686333003683, 0.09498081754904339, -0.14840503688922396, 0.240542655036541, -0.42362742088558825,
    0.9510558754378758,
],
}  # fmt: skip
# of digamma
ZERO = {64: (1.4616321449683622, 9.549995429965697e-17), 32: (1.4616321325302124, 1.243815006546356e-08)}
ROOT_HALF = math.sqrt(0.5)


def square_in_two(b, a) -> tuple:
    """Return a^2 in two parts."""
    high = a * a
    return high, b.fma(a, a, -high)


def _erfcx_of(b, a):
    """Return exp(a^2) erfc(a) for a >= 0."""
    near = b.select(a < 2.0**60, a, 2.0**60)
    t = (near - 3.75) / (near + 3.75)
    return horner_code(b, t, ERFCX_TABLE[b.bits]) / b.fma(a, 2.0, 1.0)


def _erfc_of(b, a):
    """Return erfc(a) for a >= 0."""
    end = 28.0 if b.bits == 64 else 11.0
    a = b.select(a < end, a, end)
    high, low = square_in_two(b, a)
    e = emit_exp(b, -high)
    return b.fnma(e, low, e) * _erfcx_of(b, a)


def _erf_near_zero(b, x):
    """Return erf(x) for |x| <= 1."""
    return x * horner_code(b, x * x, ERF_TABLE[b.bits])


@elementary_function("nan")
def emit_erf(b, x):
    a = abs(x)
    y = 1.0 - _erfc_of(b, a)
    y = _with_sign(b, x, y)
    return b.select(a < 1.0, _erf_near_zero(b, x), y)


@elementary_function("nan")
def emit_erfc(b, x):
    a = abs(x)
    y = _erfc_of(b, a)
    y = b.select(x < 0.0, 2.0 - y, y)
    return b.select(a < 0.5, 1.0 - _erf_near_zero(b, x), y)


@elementary_function("nan")
def emit_erfcx(b, x):
    a, negative, end = abs(x), x < 0.0, 27.0 if b.bits == 64 else 10.0
    y = _erfcx_of(b, a)
    high, low = square_in_two(b, b.select(a < end, a, end))
    e = emit_exp(b, high) * (1.0 + low)
    return b.select(negative, 2.0 * e - y, y)


def _upper_tail(b, a) -> tuple:
    """Return P(Z > a) of a standard normal Z for a >= 0, and the same times exp(a^2 / 2)."""
    end, z = 39.0 if b.bits == 64 else 15.0, a * ROOT_HALF
    inside = b.select(a < end, a, end)
    high, low = square_in_two(b, inside)
    e = emit_exp(b, -(high * 0.5))
    e = b.fnma(e, low * 0.5, e)
    scaled = 0.5 * _erfcx_of(b, z)
    near = b.fnma(_erf_near_zero(b, z), 0.5, 0.5)
    return b.select(a < 1.0, near, e * scaled), scaled


@elementary_function("nan")
def emit_ndtr(b, x):
    """Return the distribution function of the standard normal."""
    tail, _ = _upper_tail(b, abs(x))
    return b.select(x < 0.0, tail, 1.0 - tail)


@elementary_function("nan")
def emit_log_ndtr(b, x):
    a = abs(x)
    tail, scaled = _upper_tail(b, a)
    near = a < 1.0
    below = emit_log(b, b.select(near, tail, scaled))
    below = b.fnma(b.select(near, 0.0, a * 0.5), a, below)
    y = b.select(x < 0.0, below, emit_log1p(b, -tail))
    return b.select(x == -math.inf, x, y)


@elementary_function()
def emit_expit(b, x):
    e = emit_exp(b, -abs(x))
    y = 1.0 / (1.0 + e)
    return b.select(x < 0.0, e * y, y)


@elementary_function("nan")
def emit_log_expit(b, x):
    rest = emit_log1p(b, emit_exp(b, -abs(x)))
    return b.select(x < 0.0, x, 0.0) - rest


# --- log Gamma and its derivative ---
#
# From 8 on Stirling's series (Abramowitz & Stegun 6.1.40 and 6.3.18); below, the recurrence to the interval
# of the polynomial; for negative arguments the reflection formulas (6.1.17, 6.3.7).

STIRLING = [-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12]
BERNOULLI = [
    -174611 / 6600,
    43867 / 14364,
    -3617 / 8160,
    1 / 12,
    -691 / 32760,
    1 / 132,
    -1 / 240,
    1 / 252,
    -1 / 120,
    1 / 12,
]


def _circle(b, x) -> tuple:
    """Return sin and cos of pi x up to a common sign, and whether x is an integer."""
    r = x - b.floor(x + 0.5)
    angle = r * math.pi
    return _quadrant(b, angle, 0, True), _quadrant(b, angle, 1, True), r == 0.0


@elementary_function("nan")
def emit_lgamma(b, x):
    """Return log |Gamma(x)|."""
    a = abs(x)
    small, middle = a < 0.25, a < 1.25
    n = b.floor(a - 1.25)
    n = b.select(n < 6.0, n, 6.0)
    up = b.select(small, a * (a + 1.0), a)  # Gamma(a) = Gamma(a + 1 or 2) / up for a < 1.25,
    down = 1.0  # and Gamma(a - n) down from 2.25 on
    for j in range(1, 7):
        down = b.mul(down, b.select(n < float(j), 1.0, a - float(j)))
    u = b.select(small, a, b.select(middle, a - 1.0, a - n - 2.0))
    large = a > 8.0
    lg = emit_log(b, b.select(large, a, b.select(middle, up, down)))
    y = u * horner_code(b, u + 0.25, LGAMMA_TABLE[b.bits])
    y = b.select(middle, y - lg, y + lg)
    r = 1.0 / a
    tail = b.fma(r, horner_code(b, r * r, STIRLING if b.bits == 64 else STIRLING[4:]), 0.4189385332046727)
    y = b.select(large, b.fma(a - 0.5, lg - 1.0, tail), y)
    s, _, whole = _circle(b, a)
    mirrored = -emit_log(b, abs(s) * (1 / math.pi) * a) - y
    y = b.select(x < 0.0, b.select(whole, math.inf, mirrored), y)
    return b.select(a == math.inf, a, y)


@elementary_function("nan")
def emit_digamma(b, x):
    a = abs(x)
    below, large = a < 1.0, a > 8.0
    n = b.floor(a) - 1.0
    n = b.select(n < 6.0, n, 6.0)
    w = b.select(below, a + 1.0, a - n)  # in [1, 2]
    high, low = ZERO[b.bits]
    y = w - high - low
    y = y * horner_code(b, w - 1.5, DIGAMMA_TABLE[b.bits])
    r = 1.0 / a
    for j in range(6, 0, -1):
        y = y + b.select(n < float(j), 0.0, 1.0 / (a - float(j)))
    y = b.select(below, y - r, y)
    z = r * r
    series = b.fnma(
        z, horner_code(b, z, BERNOULLI if b.bits == 64 else BERNOULLI[5:]), b.fnma(r, 0.5, emit_log(b, a))
    )
    y = b.select(large, series, y)
    s, c, whole = _circle(b, x)
    mirrored = y + r + -(c * math.pi / s)
    y = b.select(x < 0.0, b.select(whole, math.nan, mirrored), y)
    return b.select(x == 0.0, -(1.0 / x), b.select(x == math.inf, x, y))


def is_called_function(op: str) -> bool:
    return op in FUNCTIONS or is_expanded(op)


def identifier(op: str) -> str:
    return re.sub(r"\W+", "_", op)


def parameters(op: str) -> list[str]:
    return ["x"] if op in FUNCTIONS else [f"x_{k}" for k in range(OPERATIONS[op].n)]


def emit_function(b, op: str, *x):
    """Write a function: one of the above, or an operation that is called instead of inlined
    (`graph/expanded`)."""
    if op in FUNCTIONS:
        return Expressions(b).written(FUNCTIONS[op], *x)
    form, made = OPERATIONS[op].form, list(x)
    calls = getattr(b, "routines", None) is not None
    often = called_functions([name for name, _ in form.steps if name in FUNCTIONS]) if calls else ()
    for name, args in form.steps:
        if name == "const":
            made.append(b.c(*args))
            continue
        given = [made[j] for j in args]
        made.append(b.call_function(name, *given) if name in often else emit_operation(b, name, *given))
    return made[form.out]


def emit_operation(b, op: str, *x, truths: bool = False):
    """Write any operation; with `truths` a selection is one of truths."""
    if is_called_function(op):
        return emit_function(b, op, *x)
    if op in COMPARE:
        return b.compare(op, *x)
    if op == "select" and truths:
        return b.choose(*x)
    return getattr(b, op + "_" if op in ("and", "or", "not") else op)(*x)


def operand_text(g, b, n: int, env: dict):
    """The text of node n of a graph: a constant, or what `env` tells."""
    op = g.op[n]
    if op == "const":
        return b.c(g.args[n][0])
    return b.truth(g.args[n][0]) if op == "bool" else env[n]


class Counter:
    """A builder that counts operations."""

    bits = 64

    def __init__(self) -> None:
        self.n = 0

    def __getattr__(self, name: str):
        def operation(*x):
            self.n += name != "c"
            return 0.0

        return operation


@functools.cache
def length(name: str) -> int:
    """Return the number of operations of a function."""
    b = Counter()
    emit_function(b, name, 0.0)
    return b.n


def called_functions(uses: Iterable[str]) -> set[str]:
    """The functions that are used so often that their code would be too long for a compiler; `uses`: the
    operation of each use.

    >>> called_functions(["exp"] * 10 + ["lgamma"] * 40)
    {'lgamma'}
    """
    counted = collections.Counter(uses).items()
    return {
        name
        for name, n in counted
        if (n * length(name) > EXPANDED_OPERATIONS if name in FUNCTIONS else is_expanded(name))
    }
