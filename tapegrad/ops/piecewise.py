"""NumPy's ufuncs with kinks, choices or rounding (hypot, maximum, clip, where, logaddexp, floor, modf,
frexp and others), and those without a derivative: comparisons, logical and bitwise operations, tests
for nan.

Subgradients: ties of maximum and minimum share equally; the derivative of hypot at the origin is 0."""

import functools
import math
import operator
from collections.abc import Callable

import numpy as np
import scipy.special
from numpy._core import umath

from .._core.arrays import is_array, xp_of
from .._core.errors import ArgumentError
from .._core.primitive import layout_of, primal_of, seen, values_of
from .._core.registry import load
from .declare import ComposedScalar, dtype, elementwise, follow, implements, primitive, rules, same
from .elementwise import (
    LN2,
    arcsinh,
    divide,
    floor_divide,
    over0,
    quotient_and_rest,
    remainder,
    select,
    share_of,
    sign,
    sqrt,
    tanh,
    times0,
    unless_zero,
    xp_of2,
    zero_of,
)
from .nondifferentiable import note_zero
from .shaping import array_of, array_operand
from .shaping import copy as copied


@functools.cache
def _cupy_special():
    return load("cupyx.scipy.special")


def special_of(x):
    """scipy.special, or CuPy's version."""
    return scipy.special if xp_of(x) is np else _cupy_special()


special_ufunc = functools.partial(elementwise, library=special_of)

# --- lengths, whose derivative at zero is zero ---


fabs = elementwise(np.fabs, lambda g, out, x: g * sign(x), scalar="abs")
hypot = elementwise(
    np.hypot,
    lambda g, out, x, y: _hypot_part(g, out, x, y),
    lambda g, out, x, y: _hypot_part(g, out, y, x),
    scalar="hypot",
)


@primitive(scalar=("part_of_hypot", 2))
def part_of_hypot(x, y, r):
    """x / hypot(x, y), given the plain r = hypot(x, y); 0 at the origin. Its derivatives are products of
    such quotients, where 1 - (x / r)^2 would cancel."""
    return share_of((x, y), r, xp_of2(x, y).hypot)


def _across(g, a, b, x, y):
    r = hypot(x, y)
    p = primal_of(r)
    return g * part_of_hypot(a, b, p) * part_of_hypot(y, x, p) / unless_zero(r)


rules(
    part_of_hypot,
    lambda g, out, x, y, r: _across(g, y, x, x, y),
    lambda g, out, x, y, r: -_across(g, x, y, x, y),
    lambda g, out, x, y, r: None,
    jvp=same,
)


def _hypot_part(g, out, x, y):
    r = primal_of(out)
    u, zero = g * part_of_hypot(x, y, r), r == 0
    return note_zero(note_zero(u, x, zero, "hypot", pushed=g), y, zero, "hypot", pushed=g)


rules(
    arcsinh,
    lambda g, out, x: over0(g, hypot(x, 1.0) if dtype(x).kind == "f" else sqrt(-(-(x * x) - 1.0))),
    jvp=same,
)

# --- the angle, whose derivative at the origin is set to zero too ---


def arctan2_in_kernels(y, x):
    """0 at the origin, with derivative 0. The sign of a zero y chooses the side of the cut."""
    below, left = np.where(y == 0.0, 1.0 / y, y) < 0.0, np.where(x == 0.0, 1.0 / x, x) < 0.0
    up, across = np.where(below, -y, y), np.where(left, -x, x)
    steep = up > across
    over, under = np.where(steep, across, up), np.where(steep, up, across)
    far = np.where(over < np.inf, 0.0, np.where(over == np.inf, 1.0, math.nan))
    slope = np.where(under == np.inf, far, over / under)
    a = np.arctan(np.where(under == 0.0, np.where(over == 0.0, 0.0, math.nan), slope))
    a = np.where(steep, math.pi / 2 - a, a)
    a = np.where(left, math.pi - a, a)
    return np.where(below, -a, a)


arctan2 = elementwise(
    np.arctan2,
    lambda g, out, y, x: _angle_part(g, x, y),
    lambda g, out, y, x: -_angle_part(g, y, x),
    scalar=ComposedScalar(arctan2_in_kernels),
)


def _angle_part(g, x, y):
    """g x / (x^2 + y^2), by two divisions, which do not overflow where the squares would."""
    r = hypot(x, y)
    zero = primal_of(r) == 0
    d = times0(g, part_of_hypot(x, y, primal_of(r)) / unless_zero(r))
    return note_zero(note_zero(d, x, zero, "arctan2", pushed=g), y, zero, "arctan2", pushed=g)


# --- maximum and minimum ---


@primitive(
    np.maximum,
    scalar=ComposedScalar(  # halved where both are equal, for the sake of derivatives
        lambda x, y: np.where(x > y, x, np.where(y > x, y, 0.5 * x + 0.5 * y)),
        lambda x, y: np.where(x > y, x, np.where(y >= x, y, x + y)),
    ),
)
def maximum(x, y):
    return xp_of2(x, y).maximum(x, y)


minimum = elementwise(
    np.minimum,
    lambda g, out, x, y: tie_share(g, x, y, operator.gt),
    lambda g, out, x, y: tie_share(g, y, x, operator.gt),
    scalar=ComposedScalar(
        lambda x, y: np.where(x < y, x, np.where(y < x, y, 0.5 * x + 0.5 * y)),
        lambda x, y: np.where(x < y, x, np.where(y <= x, y, x + y)),
    ),
)
fmax = elementwise(
    np.fmax,
    lambda g, out, x, y: share_f(g, x, y),
    lambda g, out, x, y: share_f(g, y, x),
    scalar=ComposedScalar(lambda x, y: np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.maximum(x, y)))),
)
fmin = elementwise(
    np.fmin,
    lambda g, out, x, y: share_f(g, x, y, operator.lt),
    lambda g, out, x, y: share_f(g, y, x, operator.lt),
    scalar=ComposedScalar(lambda x, y: np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.minimum(x, y)))),
)


def tie_share(g, x, y, loses=operator.lt):
    """The part of g that belongs to x in max(x, y): half at a tie, and zero (for any g) where x `loses`
    against y. If one is nan, both get all of g."""
    x, y = primal_of(x), primal_of(y)
    return shared_at_ties(x == y, g, select(loses(x, y), zero_of(g), g))


def shared_at_ties(tied, g, part):
    """`part`, but half of g where two arguments are equal."""
    ties = seen(tied)
    return part if ties is not None and not ties.any() else select(tied, dtype(g).type(0.5) * g, part)


def share_f(g, x, y, wins=operator.gt):
    """The same for functions that ignore nan."""
    x, y = primal_of(x), primal_of(y)
    return shared_at_ties(x == y, g, select(wins(x, y) | ((y != y) & (x == x)), g, zero_of(g)))


rules(maximum, lambda g, out, x, y: tie_share(g, x, y), lambda g, out, x, y: tie_share(g, y, x), jvp=same)


@implements(np.clip, vars(umath)["clip"])
def clip(a, a_min=None, a_max=None, *, min=None, max=None, dtype=None):
    if (a_min is not None or a_max is not None) and (min is not None or max is not None):
        raise ValueError("numpy.clip: give a_min and a_max, or min and max")
    low, high = a_min if min is None else min, a_max if max is None else max
    if low is None and high is None:
        return copied(a)
    for limit, extreme, ufunc in ((low, maximum, np.maximum), (high, minimum, np.minimum)):
        if limit is not None:
            a = extreme(a, limit) if dtype is None else ufunc(a, limit, dtype=dtype)
            if a is NotImplemented:  # an operator would now ask the other operand
                raise TypeError(f"numpy.clip: a limit is of {type(limit)}, which is no number or array")
    return a


# --- where ---


@implements(np.where, layout="own")
def where(condition, x=None, y=None):
    if x is None and y is None:
        condition = values_of(condition)
        return xp_of(condition).where(condition)
    condition = primal_of(condition)
    if x is None or y is None:
        raise ArgumentError("numpy.where: give both x and y, or neither")
    # (`isinstance` would ask a Variable for its class)
    x, y = [array_operand(v) for v in (x, y)]
    r = select(condition, x, y)
    return r if is_array(layout_of(r)) else array_of(r)


# --- sums of exponentials ---


@primitive(scipy.special.expit, scalar="expit")
def expit(x):
    return special_of(x).expit(x)


def logaddexp_in_kernels(x, y):
    high, low = np.where(x > y, x, y), np.where(x > y, y, x)
    infinite = np.logical_and(x == y, abs(x) == np.inf)
    return np.where(infinite, 0.5 * x + 0.5 * y, high + np.log1p(np.exp(low - high)))


logaddexp = elementwise(
    np.logaddexp,
    lambda g, out, x, y: times0(g, expit(x - y)),
    lambda g, out, x, y: times0(g, expit(y - x)),
    scalar=ComposedScalar(logaddexp_in_kernels),
)
logaddexp2 = elementwise(
    np.logaddexp2,
    lambda g, out, x, y: times0(g, expit(LN2 * (x - y))),
    lambda g, out, x, y: times0(g, expit(LN2 * (y - x))),
    scalar=ComposedScalar(lambda x, y: np.logaddexp(x * LN2, y * LN2) * (1 / LN2)),
    rough=True,
)


@primitive(scalar=ComposedScalar(lambda x: scipy.special.expit(x) * scipy.special.expit(-x)))
def logistic_slope(x):
    """The derivative of expit. It uses expit(-x), not 1 - expit(x), which is rounding error in the tail.
    Its logarithmic derivative is -tanh(x / 2)."""
    return expit(x) * expit(-x)


rules(logistic_slope, lambda g, out, x: -(g * out) * tanh(0.5 * x), jvp=same)
rules(expit, lambda g, out, x: g * logistic_slope(x), jvp=same)

# --- rounding and remainders ---


def _constant(ufunc: np.ufunc, scalar=None) -> Callable:
    """The operation of a ufunc whose derivative is zero."""
    name = ufunc.__name__

    def of_one(x):
        return getattr(xp_of(x), name)(x)

    def of_two(x, y):
        return getattr(xp_of2(x, y), name)(x, y)

    body = of_one if ufunc.nin == 1 else of_two
    body.__name__ = name
    return primitive(ufunc, scalar=scalar)(body)


def rint_in_kernels(x):
    """Halves round to even; a negative x gives -0.0, not 0.0."""
    low, high = np.floor(x), -np.floor(-x)
    rest, odd = x - low, low - 2.0 * np.floor(0.5 * low)
    return np.where(np.logical_or(rest > 0.5, np.logical_and(rest == 0.5, odd == 1.0)), high, low)


floor = _constant(np.floor, "floor")
ceil = _constant(np.ceil, ComposedScalar(lambda x: -np.floor(-x)))
trunc = _constant(np.trunc, ComposedScalar(lambda x: np.where(x < 0.0, -np.floor(-x), np.floor(x))))
rint = _constant(np.rint, ComposedScalar(rint_in_kernels))
spacing, signbit = _constant(np.spacing), _constant(np.signbit)
isnan = _constant(np.isnan, "isnan")
isinf = _constant(np.isinf, ComposedScalar(lambda x: abs(x) == np.inf))
isfinite = _constant(np.isfinite, ComposedScalar(lambda x: abs(x) < np.inf))  # x - x would be simplified to 0
less, less_equal, greater = (
    _constant(np.less, "lt"),
    _constant(np.less_equal, "le"),
    _constant(np.greater, "gt"),
)
greater_equal, equal, not_equal = (
    _constant(np.greater_equal, "ge"),
    _constant(np.equal, "eq"),
    _constant(np.not_equal, "ne"),
)
logical_and, logical_or = _constant(np.logical_and, "and"), _constant(np.logical_or, "or")
logical_xor, logical_not = _constant(np.logical_xor), _constant(np.logical_not, "not")


@primitive(np.nextafter)
def nextafter(x, y):
    """x plus one unit of rounding, which is constant between powers of two."""
    return xp_of2(x, y).nextafter(x, y)


rules(nextafter, lambda g, out, x, y: g, lambda g, out, x, y: 0.0 * g, jvp=same)


def _rounded(run, stacks, params):
    """The batching rule of `rint` and others. (Not "elementwise", because they keep the memory order only
    of arrays with two axes.)"""
    return run(*stacks, **params)


@primitive(np.round, np.around, batch=_rounded, total=True)
def around(x, decimals=0):
    return xp_of(x).around(x, decimals)


@primitive(batch=_rounded, total=True)
def without_noise(x, *, decimals):
    """x rounded to more decimals than its differences show: they have the slope of x."""
    return xp_of(x).around(x, decimals)


rules(without_noise, lambda g, out, x, decimals: g, jvp=same)


def fmod_in_kernels(x, y):
    """The remainder with the sign of x."""
    below = x < 0.0
    r = quotient_and_rest(np.where(below, -x, x), np.where(y < 0.0, -y, y))[1]
    return np.where(below, -r, r)


fmod = elementwise(
    np.fmod,
    lambda g, out, x, y: g,
    lambda g, out, x, y: -times0(g, rint(divide(x - out, y))),
    scalar=ComposedScalar(fmod_in_kernels),
    rough=True,
)


@primitive()
def fraction(x):
    return xp_of(x).modf(x)[0]


rules(fraction, lambda g, out, x: g, jvp=same)


@implements(np.divmod)
def divmod(x1, x2):
    return floor_divide(x1, x2), remainder(x1, x2)


@implements(np.modf)
def modf(x):
    return fraction(x), trunc(x)


# --- parts of a floating-point number ---


@primitive()
def scaled(x, n):
    """x 2^n for integers n."""
    return xp_of2(x, n).ldexp(x, n)


def copysign_in_kernels(x, y):
    negative = np.logical_or(y < 0.0, np.logical_and(y == 0.0, 1.0 / y < 0.0))
    return np.where(negative, -abs(x), abs(x))


copysign = elementwise(
    np.copysign,
    lambda g, out, x, y: g * sign_bit(x) * sign_bit(y),
    lambda g, out, x, y: 0.0 * g,
    scalar=copysign_in_kernels,
)
heaviside = elementwise(
    np.heaviside,
    lambda g, out, x, y: 0.0 * g,
    lambda g, out, x, y: select(x == 0, g, zero_of(g)),
    scalar=ComposedScalar(
        lambda x, y: np.where(x < 0.0, 0.0, np.where(x > 0.0, 1.0, np.where(x == 0.0, y, x)))
    ),
)


rules(scaled, lambda g, out, x, n: scaled(g, n), lambda g, out, x, n: None, jvp=same)


def sign_bit(x):
    """1 or -1; a zero has a sign too."""
    return copysign(dtype(x).type(1), primal_of(x))


@primitive(batch="elementwise")
def exponent(x):
    return xp_of(x).frexp(x)[1]


@implements(np.ldexp)
def ldexp(x1, x2):
    return scaled(x1, primal_of(x2))


@implements(np.frexp)
def frexp(x):
    n = exponent(primal_of(x))
    return scaled(x, -n), n


@primitive()
def with_finite(x, *, nan, posinf, neginf):
    """Real numbers, with others in place of nan and the infinities."""
    return xp_of(x).nan_to_num(x, copy=True, nan=nan, posinf=posinf, neginf=neginf)


rules(with_finite, lambda g, out, x, nan, posinf, neginf: select(isfinite(x), g, zero_of(g)), jvp=same)


@implements(np.nan_to_num)
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    x = array_operand(x)
    parts = (x.real, x.imag) if dtype(x).kind == "c" else (x,)
    y, *imaginary = [with_finite(part, nan=nan, posinf=posinf, neginf=neginf) for part in parts]
    for part in imaginary:
        y = y + 1j * part
    if copy:
        return y
    x[...] = y
    return x


# --- numpy.emath: complex where the result is not real ---

emath = np.emath
follow(
    __name__, np.angle, emath.sqrt, emath.log, emath.log2, emath.log10, emath.logn, emath.power, emath.arccos,
    emath.arcsin, emath.arctanh,
)  # fmt: skip
