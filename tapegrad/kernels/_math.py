"""exp, log and their kin, written once in elementary operations for both emitters, so that CPU and GPU give the same bits.

Each function gets a builder `b` with the operations of an emitter (arithmetic in the working type, bit operations on integers of
the same width) and returns the result.  At most 2 units in the last place, checked against multiple precision in the tests;
zeros, infinities and nan as in NumPy."""

import math
from typing import Any

LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
LN2_HIGH32, LN2_LOW32 = 0.693359375, -2.12194440e-4


def polynomial(b: Any, x: Any, coefficients: list) -> Any:
    """By Horner's rule, the highest first."""
    out = b.c(coefficients[0])
    for k in coefficients[1:]:
        out = b.fma(out, x, b.c(k))
    return out


def _reduced(b: Any, x: Any) -> tuple:
    """x = k ln 2 + r."""
    k = b.floor(b.fma(x, b.c(1.4426950408889634), b.c(0.5)))
    high, low = (LN2_HIGH, LN2_LOW) if b.bits == 64 else (LN2_HIGH32, LN2_LOW32)
    return k, b.fnma(k, b.c(low), b.fnma(k, b.c(high), x))


def _power_of_two(b: Any, k: Any) -> Any:
    """2^k for a whole number k within the range of exponents."""
    bias, shift = (1023, 52) if b.bits == 64 else (127, 23)
    return b.from_bits(b.shl(b.iadd(b.to_int(k), bias), shift))


def _expm1_of_reduced(b: Any, r: Any) -> Any:
    n = 13 if b.bits == 64 else 7
    p = polynomial(b, r, [1 / math.factorial(k) for k in range(n, 1, -1)])
    return b.fma(b.mul(p, r), r, r)


def exp(b: Any, x: Any) -> Any:
    low, high = (-745.2, 709.79) if b.bits == 64 else (-103.98, 88.73)
    inside = b.select(b.lt(x, b.c(low)), b.c(low), b.select(b.gt(x, b.c(high)), b.c(high), x))
    inside = b.select(b.isnan(x), b.c(0.0), inside)
    k, r = _reduced(b, inside)
    p = b.add(b.c(1.0), _expm1_of_reduced(b, r))
    half = b.floor(b.mul(k, b.c(0.5)))  # 2^k in two factors: denormal results, and k = 1024
    y = b.mul(b.mul(p, _power_of_two(b, half)), _power_of_two(b, b.sub(k, half)))
    y = b.select(b.gt(x, b.c(high)), b.c(math.inf), b.select(b.lt(x, b.c(low)), b.c(0.0), y))
    return b.select(b.isnan(x), x, y)


def expm1(b: Any, x: Any) -> Any:
    low, high = (-40.0, 709.79) if b.bits == 64 else (-20.0, 88.73)
    inside = b.select(b.lt(x, b.c(low)), b.c(low), b.select(b.gt(x, b.c(high)), b.c(high), x))
    inside = b.select(b.isnan(x), b.c(0.0), inside)
    k, r = _reduced(b, inside)
    half = b.floor(b.mul(k, b.c(0.5)))
    s, t = _power_of_two(b, half), _power_of_two(b, b.sub(k, half))
    p = _expm1_of_reduced(b, r)
    y = b.select(b.gt(k, b.c(1000.0 if b.bits == 64 else 100.0)), b.mul(b.mul(b.add(p, b.c(1.0)), s), t),
                 b.fma(p, b.mul(s, t), b.sub(b.mul(s, t), b.c(1.0))))  # fmt: skip
    y = b.select(b.eq(k, b.c(0.0)), p, y)
    y = b.select(b.gt(x, b.c(high)), b.c(math.inf), b.select(b.lt(x, b.c(low)), b.c(-1.0), y))
    return b.select(b.isnan(x), x, y)


LG64 = [1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
        2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01]  # fmt: skip
LG32 = [0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693]


def _log_parts(b: Any, x: Any, carried: Any) -> Any:
    """log(x) for a positive finite x that is no denormal; `carried` is added to the argument's low part (log1p)."""
    one, cut, shift, bias, keep = (
        (0x3FF0000000000000, 0x3FE6A09E667F3BCD, 52, 1023, 0x000FFFFFFFFFFFFF)
        if b.bits == 64 else (0x3F800000, 0x3F3504F3, 23, 127, 0x007FFFFF)
    )  # fmt: skip
    bits = b.iadd(b.to_bits(x), one - cut)  # the mantissa will lie in [sqrt(1/2), sqrt(2))
    e = b.from_int(b.iadd(b.shr(bits, shift), -bias))
    m = b.from_bits(b.iadd(b.iand(bits, keep), cut))
    f = b.sub(m, b.c(1.0))
    s = b.div(f, b.add(f, b.c(2.0)))
    z = b.mul(s, s)
    tail = b.mul(z, polynomial(b, z, LG64 if b.bits == 64 else LG32))
    h = b.mul(b.mul(f, f), b.c(0.5))
    high, low = (LN2_HIGH, LN2_LOW) if b.bits == 64 else (LN2_HIGH32, LN2_LOW32)
    rest = b.fma(s, b.add(h, tail), b.mul(e, b.c(low)))
    if carried is not None:
        rest = b.add(rest, carried)
    return b.fma(e, b.c(high), b.sub(f, b.sub(h, rest)))


def log(b: Any, x: Any) -> Any:
    tiny, scale, power = (2.2250738585072014e-308, 2.0**54, 54.0) if b.bits == 64 else (1.17549435e-38, 2.0**25, 25.0)
    denormal = b.lt(x, b.c(tiny))
    y = _log_parts(b, b.select(denormal, b.mul(x, b.c(scale)), x), None)
    high, low = (LN2_HIGH, LN2_LOW) if b.bits == 64 else (LN2_HIGH32, LN2_LOW32)
    y = b.select(denormal, b.sub(b.sub(y, b.c(power * high)), b.c(power * low)), y)
    y = b.select(b.eq(x, b.c(0.0)), b.c(-math.inf), b.select(b.lt(x, b.c(0.0)), b.c(math.nan), y))
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(math.inf))), x, y)


def log1p(b: Any, x: Any) -> Any:
    u = b.add(b.c(1.0), x)
    lost = b.select(b.gt(x, b.c(1.0)), b.sub(b.c(1.0), b.sub(u, x)), b.sub(x, b.sub(u, b.c(1.0))))
    y = _log_parts(b, u, b.div(lost, u))
    y = b.select(b.eq(u, b.c(1.0)), x, y)
    y = b.select(b.eq(x, b.c(-1.0)), b.c(-math.inf), b.select(b.lt(x, b.c(-1.0)), b.c(math.nan), y))
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(math.inf))), x, y)


def tanh(b: Any, x: Any) -> Any:
    """em / (em + 2) with em = exp(2 x) - 1."""
    a = b.abs(x)
    a = b.select(b.lt(a, b.c(22.0)), a, b.c(22.0))
    k, r = _reduced(b, b.mul(a, b.c(2.0)))
    s = _power_of_two(b, k)
    em = b.fma(_expm1_of_reduced(b, r), s, b.sub(s, b.c(1.0)))
    y = b.div(em, b.add(em, b.c(2.0)))
    y = b.select(b.lt(x, b.c(0.0)), b.neg(y), y)
    return b.select(b.or_(b.isnan(x), b.eq(x, b.c(0.0))), x, y)


HALF_PI = [1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33]
HALF_PI32 = [1.5707964, -4.371139e-08, -1.7151245e-15]
SIN64 = [1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
         8.33333333332248946124e-03, -1.66666666666666324348e-01]  # fmt: skip
COS64 = [-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
         -1.38888888888741095749e-03, 4.16666666666666019037e-02]  # fmt: skip
SIN32 = [2.718311493989822e-06, -1.9839334836096632e-04, 8.333329385889463e-03, -0.16666666641626524]
COS32 = [2.439044879627741e-05, -1.388676377460993e-03, 4.166662332373906e-02]


def _quadrant(b: Any, x: Any, plus: int) -> Any:
    """sin(x + plus pi/2).  Arguments up to about 2^30 in float64 and 2^15 in float32; larger ones lose digits."""
    k = b.floor(b.fma(x, b.c(2 / math.pi), b.c(0.5)))
    parts = HALF_PI if b.bits == 64 else HALF_PI32
    r = x
    for part in parts:
        r = b.fnma(k, b.c(part), r)
    z = b.mul(r, r)
    sin = b.fma(b.mul(z, r), polynomial(b, z, SIN64 if b.bits == 64 else SIN32), r)
    cos = b.fma(b.mul(z, z), polynomial(b, z, COS64 if b.bits == 64 else COS32), b.fma(z, b.c(-0.5), b.c(1.0)))
    finite = b.lt(b.abs(x), b.c(2.0**51 if b.bits == 64 else 2.0**22))
    q = b.iadd(b.to_int(b.select(finite, k, b.c(0.0))), plus)
    y = b.select(b.odd(q), cos, sin)
    y = b.select(b.odd(b.shr(q, 1)), b.neg(y), y)
    return b.select(finite, y, b.mul(x, b.c(math.nan)))


def sin(b: Any, x: Any) -> Any:
    return _quadrant(b, x, 0)


def cos(b: Any, x: Any) -> Any:
    return _quadrant(b, x, 1)


FUNCTIONS = {"exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "tanh": tanh, "sin": sin, "cos": cos}
