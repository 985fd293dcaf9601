"""exp, log, erf, log Gamma and related functions in elementary operations, shared by both emitters.

CPU and GPU therefore give the same bits. Each function takes a builder `b` with the operations of an emitter:
arithmetic in the working type, and bit operations on integers of the same width. It returns the result.
Errors are at most 2 units in the last place, and 4 for special functions. Zeros of special functions on the
negative axis are an exception. The tests check this in multiple precision. Zeros, infinities and nan are
those of NumPy."""

import collections
import functools
import math
import re
from collections.abc import Iterable
from typing import Any

from ..graph.expanded import EXPANDED_OPERATIONS, is_expanded
from ..graph.nodes import COMPARE, OPERATIONS
from .far_angles import LIMIT

LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
LN2_HIGH32, LN2_LOW32 = 0.693359375, -2.12194440e-4
# in two parts
LOG10_2 = {64: (0.3010299956639812, -2.8037281277851704e-18), 32: (0.3010300099849701, -1.4320988897559699e-08)}


def horner_code(b: Any, x: Any, coefficients: list) -> Any:
    """Evaluate a polynomial by Horner's rule, the highest coefficient first."""
    out = b.c(coefficients[0])
    for k in coefficients[1:]:
        out = b.fma(out, x, b.c(k))
    return out


def _reduced(b: Any, x: Any) -> tuple:
    """Return k and r with x = k ln 2 + r."""
    k = b.floor(b.fma(x, b.c(1.4426950408889634), b.c(0.5)))
    high, low = (LN2_HIGH, LN2_LOW) if b.bits == 64 else (LN2_HIGH32, LN2_LOW32)
    return k, b.fnma(k, b.c(low), b.fnma(k, b.c(high), x))


def _power_of_two(b: Any, k: Any) -> Any:
    """Return 2^k for an integer k within the range of exponents."""
    bias, shift = (1023, 52) if b.bits == 64 else (127, 23)
    return b.from_bits(b.shl(b.iadd(b.to_int(k), bias), shift))


def _expm1_of_reduced(b: Any, r: Any) -> Any:
    n = 13 if b.bits == 64 else 7
    p = horner_code(b, r, [1 / math.factorial(k) for k in range(n, 1, -1)])
    return b.fma(b.mul(p, r), r, r)


def _clamped(b: Any, x: Any, low: float, high: float) -> Any:
    inside = b.select(b.lt(x, b.c(low)), b.c(low), b.select(b.gt(x, b.c(high)), b.c(high), x))
    return b.select(b.isnan(x), b.c(0.0), inside)


def emit_exponential(b: Any, x: Any, low: float, high: float, reduced: Any = _reduced, minus: int = 0) -> Any:
    """Return 2^-minus e^x, or a power of 2 or 10 with another `reduced`.

    The result is 0 below `low` and infinite above `high`."""
    k, r = reduced(b, _clamped(b, x, low, high))
    p = b.add(b.c(1.0), _expm1_of_reduced(b, r))
    half = b.floor(b.mul(k, b.c(0.5)))  # 2^k in two factors: denormal results, and k = 1024
    rest = b.sub(k, half)
    y = b.mul(b.mul(p, _power_of_two(b, half)), _power_of_two(b, b.sub(rest, b.c(float(minus))) if minus else rest))
    y = b.select(b.gt(x, b.c(high)), b.c(math.inf), b.select(b.lt(x, b.c(low)), b.c(0.0), y))
    return b.select(b.isnan(x), x, y)


def emit_exp(b: Any, x: Any) -> Any:
    return emit_exponential(b, x, *((-745.2, 709.79) if b.bits == 64 else (-103.98, 88.73)))


def emit_exp2(b: Any, x: Any) -> Any:
    def reduced(b: Any, x: Any) -> tuple:
        k = b.floor(b.add(x, b.c(0.5)))
        return k, b.mul(b.sub(x, k), b.c(math.log(2)))

    return emit_exponential(b, x, *((-1075.5, 1024.0) if b.bits == 64 else (-150.5, 128.0)), reduced)


def emit_exp10(b: Any, x: Any) -> Any:
    def reduced(b: Any, x: Any) -> tuple:
        k = b.floor(b.fma(x, b.c(1 / LOG10_2[64][0]), b.c(0.5)))
        high, low = LOG10_2[b.bits]
        return k, b.mul(b.fnma(k, b.c(low), b.fnma(k, b.c(high), x)), b.c(math.log(10)))

    return emit_exponential(b, x, *((-323.7, 308.26) if b.bits == 64 else (-45.2, 38.54)), reduced)


def _expm1(b: Any, x: Any, low: float, high: float, minus: int = 0) -> Any:
    """Return 2^-minus (e^x - 1)."""
    one = b.c(2.0**-minus)
    k, r = _reduced(b, _clamped(b, x, low, high))
    half = b.floor(b.mul(k, b.c(0.5)))
    rest = b.sub(k, half)
    s, t = _power_of_two(b, half), _power_of_two(b, b.sub(rest, b.c(float(minus))) if minus else rest)
    p = _expm1_of_reduced(b, r)
    y = b.select(b.gt(k, b.c(1000.0 if b.bits == 64 else 100.0)), b.mul(b.mul(b.add(p, b.c(1.0)), s), t),
                 b.fma(p, b.mul(s, t), b.sub(b.mul(s, t), one)))  # fmt: skip
    y = b.select(b.eq(k, b.c(0.0)), b.mul(p, one) if minus else p, y)
    return b.select(b.gt(x, b.c(high)), b.c(math.inf), b.select(b.lt(x, b.c(low)), b.neg(one), y))


def emit_expm1(b: Any, x: Any) -> Any:
    y = _expm1(b, x, *((-40.0, 709.79) if b.bits == 64 else (-20.0, 88.73)))
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(0.0))), x, y)


def _half_overflows(b: Any) -> float:
    """Return the threshold above which e^x / 2 is infinite."""
    return 710.475860073944 if b.bits == 64 else 89.4159862326283


def emit_cosh(b: Any, x: Any) -> Any:
    """Return h + 1 / (4 h) with h = e^|x| / 2."""
    h = emit_exponential(b, b.abs(x), -1.0, _half_overflows(b), minus=1)
    return b.add(h, b.div(b.c(0.25), h))


def emit_sinh(b: Any, x: Any) -> Any:
    """Return h + h / (2 h + 1) with h = (e^|x| - 1) / 2, with the sign of x."""
    h = _expm1(b, b.abs(x), -1.0, _half_overflows(b), minus=1)
    y = b.add(h, b.div(h, b.fma(h, b.c(2.0), b.c(1.0))))
    y = b.select(b.gt(h, b.c(2.0 ** (1000 if b.bits == 64 else 100))), h, b.select(b.lt(b.abs(x), b.c(2.0**-30)), b.abs(x), y))
    y = b.select(b.lt(x, b.c(0.0)), b.neg(y), y)
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(0.0))), x, y)


LG64 = [1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
        2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01]  # fmt: skip
LG32 = [0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693]


def _log_parts(b: Any, x: Any, carried: Any) -> Any:
    """Return log(x) of a positive finite normal x; `carried` is added to the argument's low part (log1p)."""
    one, cut, shift, bias, keep = (
        (0x3FF0000000000000, 0x3FE6A09E667F3BCD, 52, 1023, 0x000FFFFFFFFFFFFF)
        if b.bits == 64 else (0x3F800000, 0x3F3504F3, 23, 127, 0x007FFFFF)
    )  # fmt: skip
    bits = b.iadd(b.to_bits(x), one - cut)  # the mantissa lies in [sqrt(1/2), sqrt(2))
    e = b.from_int(b.iadd(b.shr(bits, shift), -bias))
    m = b.from_bits(b.iadd(b.iand(bits, keep), cut))
    f = b.sub(m, b.c(1.0))
    s = b.div(f, b.add(f, b.c(2.0)))
    z = b.mul(s, s)
    tail = b.mul(z, horner_code(b, z, LG64 if b.bits == 64 else LG32))
    h = b.mul(b.mul(f, f), b.c(0.5))
    high, low = (LN2_HIGH, LN2_LOW) if b.bits == 64 else (LN2_HIGH32, LN2_LOW32)
    rest = b.fma(s, b.add(h, tail), b.mul(e, b.c(low)))
    if carried is not None:
        rest = b.add(rest, carried)
    return b.fma(e, b.c(high), b.sub(f, b.sub(h, rest)))


def emit_log(b: Any, x: Any) -> Any:
    tiny, scale, power = (2.2250738585072014e-308, 2.0**54, 54.0) if b.bits == 64 else (1.17549435e-38, 2.0**25, 25.0)
    denormal = b.lt(x, b.c(tiny))
    y = _log_parts(b, b.select(denormal, b.mul(x, b.c(scale)), x), None)
    high, low = (LN2_HIGH, LN2_LOW) if b.bits == 64 else (LN2_HIGH32, LN2_LOW32)
    y = b.select(denormal, b.sub(b.sub(y, b.c(power * high)), b.c(power * low)), y)
    y = b.select(b.eq(x, b.c(0.0)), b.c(-math.inf), b.select(b.lt(x, b.c(0.0)), b.c(math.nan), y))
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(math.inf))), x, y)


def emit_log1p(b: Any, x: Any) -> Any:
    u = b.add(b.c(1.0), x)
    lost = b.select(b.gt(x, b.c(1.0)), b.sub(b.c(1.0), b.sub(u, x)), b.sub(x, b.sub(u, b.c(1.0))))
    y = _log_parts(b, u, b.div(lost, u))
    y = b.select(b.eq(u, b.c(1.0)), x, y)
    y = b.select(b.eq(x, b.c(-1.0)), b.c(-math.inf), b.select(b.lt(x, b.c(-1.0)), b.c(math.nan), y))
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(math.inf))), x, y)


def _twice_below(b: Any, x: Any) -> tuple:
    """Return exp(-2 |x|) - 1 and exp(-2 |x|); the latter is accurate for large |x| too."""
    far = b.c(_far(b))
    a = b.abs(x)
    k, r = _reduced(b, b.mul(b.select(b.lt(a, far), a, far), b.c(-2.0)))
    s, p = _power_of_two(b, k), _expm1_of_reduced(b, r)
    return b.fma(p, s, b.sub(s, b.c(1.0))), b.fma(p, s, s)


def _far(b: Any) -> float:
    """Return the threshold above which exp(-2 x) is nearly denormal."""
    return 354.0 if b.bits == 64 else 43.0


def emit_tanh(b: Any, x: Any) -> Any:
    """Return -em / (em + 2) with em = exp(-2 |x|) - 1, with the sign of x."""
    em, _ = _twice_below(b, x)
    y = b.div(b.neg(em), b.add(em, b.c(2.0)))
    y = b.select(b.lt(x, b.c(0.0)), b.neg(y), y)
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(0.0))), x, y)


def emit_tanh_slope(b: Any, x: Any) -> Any:
    """Return 1 / cosh(x)^2 = e (1 + |tanh(x)|)^2 with e = exp(-2 |x|); it shares subexpressions with tanh."""
    em, e = _twice_below(b, x)
    t = b.add(b.div(b.neg(em), b.add(em, b.c(2.0))), b.c(1.0))
    y = b.select(b.gt(b.abs(x), b.c(_far(b))), b.c(0.0), b.mul(e, b.mul(t, t)))
    return b.select(b.isnan(x), x, y)


def scale_argument(b: Any, q: Any, small: float, large: float) -> Any:
    high, low = (1000, -900) if b.bits == 64 else (100, -80)
    return b.select(b.gt(q, b.c(2.0**high)), b.c(small), b.select(b.lt(q, b.c(2.0**low)), b.c(large), b.c(1.0)))


def emit_scale(b: Any, q: Any) -> Any:
    """Return a power of 2 that scales a vector with the sum of squares q, so that no square overflows or
    underflows."""
    return scale_argument(b, q, *((2.0**-540, 2.0**600) if b.bits == 64 else (2.0**-75, 2.0**100)))


def emit_unscale(b: Any, q: Any) -> Any:
    """Return 1 / scale."""
    return scale_argument(b, q, *((2.0**540, 2.0**-600) if b.bits == 64 else (2.0**75, 2.0**-100)))


HALF_PI = [1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33]
HALF_PI32 = [1.5707964, -4.371139e-08, -1.7151245e-15]
SIN64 = [1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
         8.33333333332248946124e-03, -1.66666666666666324348e-01]  # fmt: skip
COS64 = [-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
         -1.38888888888741095749e-03, 4.16666666666666019037e-02]  # fmt: skip
SIN32 = [2.718311493989822e-06, -1.9839334836096632e-04, 8.333329385889463e-03, -0.16666666641626524]
COS32 = [2.439044879627741e-05, -1.388676377460993e-03, 4.166662332373906e-02]


def _of_reduced(b: Any, q: Any, r: Any) -> Any:
    """Return sin(q pi/2 + r) for |r| <= pi/4."""
    z = b.mul(r, r)
    sin = b.fma(b.mul(z, r), horner_code(b, z, SIN64 if b.bits == 64 else SIN32), r)
    cos = b.fma(b.mul(z, z), horner_code(b, z, COS64 if b.bits == 64 else COS32), b.fma(z, b.c(-0.5), b.c(1.0)))
    y = b.select(b.odd(q), cos, sin)
    return b.select(b.odd(b.shr(q, 1)), b.neg(y), y)


def _near(b: Any, x: Any) -> Any:
    return b.lt(b.abs(x), b.c(2.0 ** LIMIT[b.bits]))


def _quadrant(b: Any, x: Any, plus: int, small: bool = False) -> Any:
    """Return sin(x + plus pi/2), with an error of one unit in the last place of 1.

    The first step of the reduction is exact below 2^LIMIT. `small` asserts that x is below. For larger angles
    the builder has `far_quadrant`, or gives nan."""
    k = b.floor(b.fma(x, b.c(2 / math.pi), b.c(0.5)))
    parts = HALF_PI if b.bits == 64 else HALF_PI32
    r = x
    for part in parts:
        r = b.fnma(k, b.c(part), r)
    near = _near(b, x)
    y = _of_reduced(b, b.iadd(b.to_int(b.select(near, k, b.c(0.0))), plus), r)
    return y if small else b.far(near, x, y, plus)


def far_quadrant(b: Any, x: Any, y: Any, plus: int) -> Any:
    """Return sin(x + plus pi/2) for a finite x from 2^LIMIT on, otherwise y."""
    q, r = b.far_turns(x)
    return b.select(b.or_(_near(b, x), b.isnan(b.sub(x, x))), y, _of_reduced(b, b.iadd(q, plus), r))


def emit_sin(b: Any, x: Any) -> Any:
    return b.select(b.eq(x, b.c(0.0)), x, _quadrant(b, x, 0))  # a zero keeps its sign


def emit_cos(b: Any, x: Any) -> Any:
    return _quadrant(b, x, 1)


# (arctan(r) / r - 1) / r^2 in r^2 for |r| <= tan(pi / 8): interpolated at Chebyshev points with mpmath at 60
# digits
ATAN64 = [0.016285756855221028, -0.034570561981427744, 0.04551593220626549, -0.05230454270650244, 0.05878928997834775,
          -0.06666424885738255, 0.07692296375032143, -0.09090908753500877, 0.11111111105155447, -0.14285714285659828,
          0.19999999999999804, -0.3333333333333333]  # fmt: skip
ATAN32 = [-0.06451928208121749, 0.10743731490791084, -0.1426395559798464, 0.19999540483648964, -0.3333333176116852]


def emit_arctan(b: Any, x: Any) -> Any:
    """Use arctan(a) = pi/4 + arctan((a - 1) / (a + 1)) = pi/2 - arctan(1 / a)."""
    a, one = b.abs(x), b.c(1.0)
    middle, large = b.gt(a, b.c(math.sqrt(2) - 1)), b.gt(a, b.c(math.sqrt(2) + 1))
    over = b.select(large, b.c(-1.0), b.select(middle, b.sub(a, one), a))
    r = b.div(over, b.select(large, a, b.select(middle, b.add(a, one), one)))
    high, low, _ = HALF_PI if b.bits == 64 else HALF_PI32
    share = b.select(large, one, b.select(middle, b.c(0.5), b.c(0.0)))
    z = b.mul(r, r)
    tail = b.fma(b.mul(z, r), horner_code(b, z, ATAN64 if b.bits == 64 else ATAN32), b.mul(share, b.c(low)))
    y = b.add(b.mul(share, b.c(high)), b.add(r, tail))
    y = b.select(b.lt(x, b.c(0.0)), b.neg(y), y)
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(0.0))), x, y)


# --- the error function and the normal distribution ---
#
# The coefficients below are Chebyshev interpolants computed with mpmath at 50 digits: of (1 + 2 x) exp(x^2)
# erfc(x) in t = (x - 3.75) / (x + 3.75), which takes x >= 0 to [-1, 1] (Shepherd & Laframboise, Math. Comp.
# 36, 1981); of erf(x) / x in x^2 on [0, 1]; of log Gamma(1.75 + u) / (u - 1/4) for |u| <= 1/2; of digamma(1.5
# + u) over its distance from its zero, for |u| <= 1/2.

ERFCX64 = [
    4.434975547330949e-10, 3.110325628823725e-10, -5.28429592896545e-09, -3.7435761311584635e-09, 3.896547354259527e-08,
    2.3261932272107377e-08, -2.5910699664744594e-07, -5.7215997775202406e-08, 1.7520579932107891e-06, -9.735618806671925e-07,
    -1.1444412451489902e-05, 2.2384240303078713e-05, 5.1649211394979334e-05, -0.0002901540809756577, 0.0002937136342840641,
    0.0017556258530008716, -0.009746579552504117, 0.02836227741894078, -0.05869339859021238, 0.09230432116037876, -0.10880393014171785,
    0.08227673849014516, 0.003585415485463775, -0.14024059858554697, 1.2375126308378275,
]  # fmt: skip
ERFCX32 = [
    2.363482006846269e-05, -0.00022405204951954951, 0.00032538846455351867, 0.0016757342508064283, -0.009764690497787632,
    0.02840943039147911, -0.05868825204940161, 0.09229069167207876, -0.10880456454860984, 0.08227843390475284, 0.003585438016476337,
    -0.14024065901788993, 1.2375126308378275,
]  # fmt: skip
ERF64 = [
    -7.795898827002142e-10, 1.3720064546777686e-08, -1.6208483801871705e-07, 1.6447424703317362e-06, -1.492473690741966e-05,
    0.00012055294904839707, -0.0008548325975389692, 0.0052239776071164225, -0.02686617064323777, 0.11283791670945006,
    -0.37612638903183543, 1.1283791670955126,
]  # fmt: skip
ERF32 = [
    7.875875062685488e-05, -0.000801686428716587, 0.005189087423433974, -0.026854212010626412, 0.11283594715160218,
    -0.37612626666720334, 1.1283791658483509,
]  # fmt: skip
LGAMMA64 = [
    8.890417043351835e-07, -1.6353063437447517e-06, 1.9046917046709517e-06, -3.534812996967893e-06, 7.174859076093071e-06,
    -1.3403408371559853e-05, 2.4984751421705352e-05, -4.7167361582436495e-05, 8.967152973619217e-05, -0.00017180475341275868,
    0.00033250395056263793, -0.00065189321760162, 0.0013001093262531979, -0.0026545437204075492, 0.0056067248307645895,
    -0.01247168001121724, 0.030229978825824396, -0.08609125122636119, 0.36052812214032426, 0.3376044840819422,
]  # fmt: skip
LGAMMA32 = [
    -0.00020869951873582476, 0.00040251306415470804, -0.000642292601467934, 0.001281901076618984, -0.0026556132771519097,
    0.005608752869017331, -0.01247163182494505, 0.03022988746743633, -0.08609125183083034, 0.36052812328631484, 0.3376044840819422,
]  # fmt: skip
DIGAMMA64 = [
    0.00011881232908510335, -0.0001782188548855923, 9.653646261410062e-05, -0.00014480643368061614, 0.00032395945401345196,
    -0.00048595039220036254, 0.0006909255761282986, -0.0010364584817312839, 0.0015633696313653504, -0.0023454947397380833,
    0.003518106563802472, -0.005279937255532708, 0.007927021796868154, -0.011908220105959716, 0.017907248317313294,
    -0.026975796659787055, 0.040760833940846085, -0.06192213327548831, 0.09498872445289039, -0.14840492305388092, 0.24054248424078697,
    -0.4236274212814606, 0.9510558760318328,
]  # fmt: skip
DIGAMMA32 = [
    -0.007476843099039942, 0.01122315637643749, -0.011247037333869003, 0.016915223738038547, -0.027064258800657295, 0.0408935606644924,
    -0.06191686333003683, 0.09498081754904339, -0.14840503688922396, 0.240542655036541, -0.42362742088558825, 0.9510558754378758,
]  # fmt: skip
# of digamma
ZERO = {64: (1.4616321449683622, 9.549995429965697e-17), 32: (1.4616321325302124, 1.243815006546356e-08)}
ROOT_HALF, ROOT_2_BY_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)


def _table(b: Any, name64: list, name32: list) -> list:
    return name64 if b.bits == 64 else name32


def square_in_two(b: Any, a: Any) -> tuple:
    """Return a^2 in two parts."""
    high = b.mul(a, a)
    return high, b.fma(a, a, b.neg(high))


def _erfcx_of(b: Any, a: Any) -> Any:
    """Return exp(a^2) erfc(a) for a >= 0."""
    near = b.select(b.lt(a, b.c(2.0**60)), a, b.c(2.0**60))
    t = b.div(b.sub(near, b.c(3.75)), b.add(near, b.c(3.75)))
    return b.div(horner_code(b, t, _table(b, ERFCX64, ERFCX32)), b.fma(a, b.c(2.0), b.c(1.0)))


def _erfc_of(b: Any, a: Any) -> Any:
    """Return erfc(a) for a >= 0."""
    end = b.c(28.0 if b.bits == 64 else 11.0)
    a = b.select(b.lt(a, end), a, end)
    high, low = square_in_two(b, a)
    e = emit_exp(b, b.neg(high))
    return b.mul(b.fnma(e, low, e), _erfcx_of(b, a))


def _erf_near_zero(b: Any, x: Any) -> Any:
    """Return erf(x) for |x| <= 1."""
    return b.mul(x, horner_code(b, b.mul(x, x), _table(b, ERF64, ERF32)))


def emit_erf(b: Any, x: Any) -> Any:
    a = b.abs(x)
    y = b.sub(b.c(1.0), _erfc_of(b, a))
    y = b.select(b.lt(x, b.c(0.0)), b.neg(y), y)
    y = b.select(b.lt(a, b.c(1.0)), _erf_near_zero(b, x), y)
    return b.select(b.isnan(x), x, y)


def emit_erfc(b: Any, x: Any) -> Any:
    a = b.abs(x)
    y = _erfc_of(b, a)
    y = b.select(b.lt(x, b.c(0.0)), b.sub(b.c(2.0), y), y)
    y = b.select(b.lt(a, b.c(0.5)), b.sub(b.c(1.0), _erf_near_zero(b, x)), y)
    return b.select(b.isnan(x), x, y)


def emit_erfcx(b: Any, x: Any) -> Any:
    a, negative, end = b.abs(x), b.lt(x, b.c(0.0)), b.c(27.0 if b.bits == 64 else 10.0)
    y = _erfcx_of(b, a)
    high, low = square_in_two(b, b.select(b.lt(a, end), a, end))
    e = b.mul(emit_exp(b, high), b.add(b.c(1.0), low))
    y = b.select(negative, b.sub(b.mul(b.c(2.0), e), y), y)
    return b.select(b.isnan(x), x, y)


def _upper_tail(b: Any, a: Any) -> tuple:
    """Return P(Z > a) of a standard normal Z for a >= 0, and the same times exp(a^2 / 2)."""
    end, half, z = b.c(39.0 if b.bits == 64 else 15.0), b.c(0.5), b.mul(a, b.c(ROOT_HALF))
    inside = b.select(b.lt(a, end), a, end)
    high, low = square_in_two(b, inside)
    e = emit_exp(b, b.neg(b.mul(high, half)))
    e = b.fnma(e, b.mul(low, half), e)
    scaled = b.mul(half, _erfcx_of(b, z))
    near = b.fnma(_erf_near_zero(b, z), half, half)
    return b.select(b.lt(a, b.c(1.0)), near, b.mul(e, scaled)), scaled


def emit_ndtr(b: Any, x: Any) -> Any:
    """Return the distribution function of the standard normal."""
    tail, _ = _upper_tail(b, b.abs(x))
    y = b.select(b.lt(x, b.c(0.0)), tail, b.sub(b.c(1.0), tail))
    return b.select(b.isnan(x), x, y)


def emit_log_ndtr(b: Any, x: Any) -> Any:
    a, zero = b.abs(x), b.c(0.0)
    tail, scaled = _upper_tail(b, a)
    near = b.lt(a, b.c(1.0))
    below = emit_log(b, b.select(near, tail, scaled))
    below = b.fnma(b.select(near, zero, b.mul(a, b.c(0.5))), a, below)
    y = b.select(b.lt(x, zero), below, emit_log1p(b, b.neg(tail)))
    y = b.select(b.eq(x, b.c(-math.inf)), x, y)
    return b.select(b.isnan(x), x, y)


def emit_expit(b: Any, x: Any) -> Any:
    e = emit_exp(b, b.neg(b.abs(x)))
    y = b.div(b.c(1.0), b.add(b.c(1.0), e))
    return b.select(b.lt(x, b.c(0.0)), b.mul(e, y), y)


def emit_log_expit(b: Any, x: Any) -> Any:
    rest = emit_log1p(b, emit_exp(b, b.neg(b.abs(x))))
    y = b.sub(b.select(b.lt(x, b.c(0.0)), x, b.c(0.0)), rest)
    return b.select(b.isnan(x), x, y)


# --- log Gamma and its derivative ---
#
# From 8 on Stirling's series (Abramowitz & Stegun 6.1.40 and 6.3.18); below, the recurrence to the interval
# of the polynomial; for negative arguments the reflection formulas (6.1.17, 6.3.7).

STIRLING = [-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12]
BERNOULLI = [-174611 / 6600, 43867 / 14364, -3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12]


def _circle(b: Any, x: Any) -> tuple:
    """Return sin and cos of pi x up to a common sign, and whether x is an integer."""
    r = b.sub(x, b.floor(b.add(x, b.c(0.5))))
    angle = b.mul(r, b.c(math.pi))
    return _quadrant(b, angle, 0, True), _quadrant(b, angle, 1, True), b.eq(r, b.c(0.0))


def emit_lgamma(b: Any, x: Any) -> Any:
    """Return log |Gamma(x)|."""
    a, one = b.abs(x), b.c(1.0)
    small, middle = b.lt(a, b.c(0.25)), b.lt(a, b.c(1.25))
    n = b.floor(b.sub(a, b.c(1.25)))
    n = b.select(b.lt(n, b.c(6.0)), n, b.c(6.0))
    up = b.select(small, b.mul(a, b.add(a, one)), a)  # Gamma(a) = Gamma(a + 1 or 2) / up for a < 1.25,
    down = one  # and Gamma(a - n) down from 2.25 on
    for j in range(1, 7):
        down = b.mul(down, b.select(b.lt(n, b.c(float(j))), one, b.sub(a, b.c(float(j)))))
    u = b.select(small, a, b.select(middle, b.sub(a, one), b.sub(b.sub(a, n), b.c(2.0))))
    large = b.gt(a, b.c(8.0))
    lg = emit_log(b, b.select(large, a, b.select(middle, up, down)))
    y = b.mul(u, horner_code(b, b.add(u, b.c(0.25)), _table(b, LGAMMA64, LGAMMA32)))
    y = b.select(middle, b.sub(y, lg), b.add(y, lg))
    r = b.div(one, a)
    tail = b.fma(r, horner_code(b, b.mul(r, r), STIRLING if b.bits == 64 else STIRLING[4:]), b.c(0.4189385332046727))
    y = b.select(large, b.fma(b.sub(a, b.c(0.5)), b.sub(lg, one), tail), y)
    s, _, whole = _circle(b, a)
    mirrored = b.sub(b.neg(emit_log(b, b.mul(b.mul(b.abs(s), b.c(1 / math.pi)), a))), y)
    y = b.select(b.lt(x, b.c(0.0)), b.select(whole, b.c(math.inf), mirrored), y)
    y = b.select(b.eq(a, b.c(math.inf)), a, y)
    return b.select(b.isnan(x), x, y)


def emit_digamma(b: Any, x: Any) -> Any:
    a, one = b.abs(x), b.c(1.0)
    below, large = b.lt(a, one), b.gt(a, b.c(8.0))
    n = b.sub(b.floor(a), one)
    n = b.select(b.lt(n, b.c(6.0)), n, b.c(6.0))
    w = b.select(below, b.add(a, one), b.sub(a, n))  # in [1, 2]
    high, low = ZERO[b.bits]
    y = b.sub(b.sub(w, b.c(high)), b.c(low))
    y = b.mul(y, horner_code(b, b.sub(w, b.c(1.5)), _table(b, DIGAMMA64, DIGAMMA32)))
    r = b.div(one, a)
    for j in range(6, 0, -1):
        y = b.add(y, b.select(b.lt(n, b.c(float(j))), b.c(0.0), b.div(one, b.sub(a, b.c(float(j))))))
    y = b.select(below, b.sub(y, r), y)
    z = b.mul(r, r)
    series = b.fnma(z, horner_code(b, z, BERNOULLI if b.bits == 64 else BERNOULLI[5:]), b.fnma(r, b.c(0.5), emit_log(b, a)))
    y = b.select(large, series, y)
    s, c, whole = _circle(b, x)
    mirrored = b.add(b.add(y, r), b.neg(b.div(b.mul(c, b.c(math.pi)), s)))
    y = b.select(b.lt(x, b.c(0.0)), b.select(whole, b.c(math.nan), mirrored), y)
    y = b.select(b.eq(x, b.c(0.0)), b.neg(b.div(one, x)), b.select(b.eq(x, b.c(math.inf)), x, y))
    return b.select(b.isnan(x), x, y)


FUNCTIONS = {
    "exp": emit_exp, "exp2": emit_exp2, "exp10": emit_exp10, "cosh": emit_cosh, "sinh": emit_sinh,
    "expm1": emit_expm1, "log": emit_log, "log1p": emit_log1p, "tanh": emit_tanh, "sin": emit_sin, "cos": emit_cos, "arctan": emit_arctan,
    "erf": emit_erf,
    "erfc": emit_erfc, "erfcx": emit_erfcx, "ndtr": emit_ndtr, "log_ndtr": emit_log_ndtr, "expit": emit_expit, "log_expit": emit_log_expit,
    "lgamma": emit_lgamma,
    "digamma": emit_digamma, "tanh_slope": emit_tanh_slope, "scale": emit_scale, "unscale": emit_unscale,
}  # fmt: skip


def is_called_function(op: str) -> bool:
    return op in FUNCTIONS or is_expanded(op)


def identifier(op: str) -> str:
    return re.sub(r"\W+", "_", op)


def parameters(op: str) -> list[str]:
    return ["x"] if op in FUNCTIONS else [f"x_{k}" for k in range(OPERATIONS[op].n)]


def emit_function(b: Any, op: str, *x: Any) -> Any:
    """Write a function: one of the above, or an operation that is called instead of inlined
    (`graph/expanded`)."""
    if op in FUNCTIONS:
        return FUNCTIONS[op](b, *x)
    form, made = OPERATIONS[op].form, list(x)
    for name, args in form.steps:
        if name == "const":
            made.append(b.c(*args))
            continue
        given = [made[j] for j in args]
        if is_called_function(name):
            made.append(emit_function(b, name, *given))
        elif name in COMPARE:
            made.append(b.compare(name, *given))
        else:
            made.append(getattr(b, name + "_" if name in ("and", "or", "not") else name)(*given))
    return made[form.out]


class Counter:
    """A builder that counts operations."""

    bits = 64

    def __init__(self) -> None:
        self.n = 0

    def __getattr__(self, name: str) -> Any:
        def operation(*x):
            self.n += name != "c"
            return 0.0

        return operation


@functools.cache
def length(name: str) -> int:
    """Return the number of operations of a function."""
    b = Counter()
    FUNCTIONS[name](b, 0.0)
    return b.n


def called_functions(uses: Iterable[str]) -> set[str]:
    """The functions that are used so often that their code would be too long for a compiler; `uses`: the
    operation of each use.

    >>> called_functions(["exp"] * 10 + ["lgamma"] * 40)
    {'lgamma'}
    """
    counted = collections.Counter(uses).items()
    return {name for name, n in counted if (n * length(name) > EXPANDED_OPERATIONS if name in FUNCTIONS else is_expanded(name))}
