"""NumPy's smooth ufuncs: arithmetic, powers, exponentials, trigonometry. piecewise.py has kinks, choices
and rounding.

Rules are written as transposes for real arrays; for complex arrays the engine conjugates
(`_core.reverse.AdaptedRule`). Where a derivative is singular, the rule multiplies with `times0` or divides
with `over0`. Both keep a zero cotangent zero, so `where(x > 0, sqrt(x), 0)` has no nan."""

import copy
import functools
import math
from typing import Any

import numpy as np

from .._core.arrays import F8, is_array, xp_of
from .._core.errors import NoRuleError, callers_line
from .._core.primitive import primal_of, seen
from .._core.registry import late
from .._core.reverse import AdaptedRule, has_nan, is_differentiated
from .._core.variable import Variable
from .declare import (
    ComposedScalar,
    GatedProduct,
    dtype,
    elementwise,
    implements,
    primitive,
    rules,
    same,
    shape,
    sum_of_given,
)
from .nondifferentiable import meets_nonzero, note_zero, warn_nondifferentiable
from .shaping import astype, conj, imag, real, reshape, spread_over_axes, zeros_like
from .shaping import sum as sum_of

LN2, LN10 = math.log(2.0), math.log(10.0)


def xp_of2(x, y):
    return xp_of(x) if is_array(x) else xp_of(y)


# --- arithmetic ---


add = elementwise(np.add, lambda g, out, x, y: g, lambda g, out, x, y: g, scalar="add", infix="+")
subtract = elementwise(np.subtract, lambda g, out, x, y: g, lambda g, out, x, y: -g, scalar="sub", infix="-")
multiply = elementwise(
    np.multiply, lambda g, out, x, y: g * y, lambda g, out, x, y: x * g, scalar="mul", infix="*"
)
negative = elementwise(np.negative, lambda g, out, x: -g, scalar="neg", infix="-")


@primitive(scalar=GatedProduct(np.multiply), known_as="multiply")
def times0(g, d):
    """g d, but zero where g is zero, for any d."""
    r = g * d
    return r if is_known_finite(r) else zero_where_gated(g, r)


@primitive(scalar=GatedProduct(np.multiply, gates=2))
def times00(g, d):
    """g d, but zero where either is zero, for any value of the other."""
    r = g * d
    return r if is_known_finite(r) else zero_where_gated(g, zero_where_gated(d, r))


@primitive(scalar=GatedProduct(np.true_divide))
def over0(g, d):
    """g / d, but zero where g is zero, for any d."""
    r = g / d
    return r if type(d) is np.float64 and d != 0 == d - d or is_known_finite(r) else zero_where_gated(g, r)


def is_known_finite(r) -> bool:
    """Is every element of r known to be finite? (False on a device, which would have to synchronise.)"""
    if type(r) is np.float64:
        return math.isfinite(r)
    if type(r) is np.ndarray:
        if r.dtype is F8:
            r = r if r.ndim == 1 else r.ravel("K")
            return math.isfinite(r.dot(r))
        s: Any = np.vdot(r, r)
        return s - s == 0
    return (
        issubclass(type(r), (np.generic, float))
        and not issubclass(type(r), np.complexfloating)
        and math.isfinite(r)
    )


def zero_where_gated(g, r):
    """r, with zero where g is zero."""
    xp = xp_of2(g, r)
    return xp.where(xp.asarray(g == 0), xp.zeros((), r.dtype), r)[()]


divide = elementwise(np.true_divide, scalar=ComposedScalar(lambda x, y: x * np.reciprocal(y)), infix="/")


def _divisor(g, out, x, y):
    """-g out / y. Plain arrays reuse one buffer for all steps, because for large arrays memory costs more
    than arithmetic."""
    if type(g) is type(out) is np.ndarray and g.dtype is out.dtype is F8 and g.shape == out.shape:
        r = out / y
        r *= g
        if is_known_finite(r):
            return np.negative(r, r)
    return -times0(g, out / y)


# a zero cotangent c stays zero even for infinite g: under a derivative of forward mode, c is a tangent
rules(times0, lambda c, out, g, d: times0(c, d), lambda c, out, g, d: times00(g, c), jvp=same)
rules(times00, lambda c, out, g, d: times00(c, d), lambda c, out, g, d: times00(g, c), jvp=same)
rules(
    over0, lambda c, out, g, d: over0(c, d), lambda c, out, g, d: -times00(g, over0(over0(c, d), d)), jvp=same
)
rules(divide, lambda g, out, x, y: over0(g, y), _divisor, jvp=same)


positive = elementwise(np.positive, lambda g, out, x: g, scalar=ComposedScalar(lambda x: x))
square = elementwise(np.square, lambda g, out, x: 2.0 * g * x, scalar=ComposedScalar(lambda x: x * x))
reciprocal = elementwise(np.reciprocal, scalar="rcp")


rules(reciprocal, lambda g, out, x: -times0(times0(g, out), out), jvp=same)  # out * out may overflow

# --- choices, which mask derivatives ---


@primitive(scalar="select", known_as="where")
def select(c, x, y):
    """x where c holds, else y."""
    xp = xp_of(c) if is_array(c) else xp_of2(x, y)
    r = xp.where(c if xp is np else xp.asarray(c), x, y)
    return r if r.ndim or is_array(x) or is_array(y) else r[()]


rules(
    select,
    lambda g, out, c, x, y: None,
    lambda g, out, c, x, y: where_so(c, g),
    lambda g, out, c, x, y: where_not(c, g),
    jvp=same,
)


def where_so(c, g):
    """g where c holds, else 0."""
    return np.where(c, g, g.dtype.type(0)) if type(g) is type(c) is np.ndarray else select(c, g, zero_of(g))


def where_not(c, g):
    return np.where(c, g.dtype.type(0), g) if type(g) is type(c) is np.ndarray else select(c, zero_of(g), g)


def zero_of(g):
    """A zero that does not change the dtype of g."""
    return dtype(g).type(0)


def filled(x, v: float):
    """x, with non-finite elements replaced by v."""
    if not (is_array(x) or isinstance(x, (Variable, np.generic))):
        return x
    r = primal_of(x)
    return select(r - r == 0, x, zero_of(x) + v)


def unreached(g, c):
    """The cotangent c of a stack of matrices, zero where it is nan and the results have zero cotangents g.

    A finite element stays: zero cotangents may be tracked, and have derivatives."""
    lead, count = shape(c)[:-2], 0
    for h in [primal_of(h) for h in (g if type(g) is list else [g]) if h is not None]:
        if not lead or shape(h)[: len(lead)] != lead:
            return c
        marks = select(h == 0, zeros_like(h), zeros_like(h) + 1)
        count = count + abs(sum_of(marks, tuple(range(len(lead), len(shape(h)))), False))
    p = primal_of(c)
    return select((reshape(count, to=(*lead, 1, 1)) == 0) & (p != p), zero_of(c), c)


def without_irrelevant(terms, *others) -> list:
    """`terms`; where both of the others agree, what made them differ is irrelevant."""
    found = zip(terms, *others, strict=True)
    return [c if c is None else select(primal_of(x) == primal_of(y), x, c) for c, x, y in found]


def careful(rule, squares: bool | None, alone: bool | None):
    """A reverse rule that keeps a zero cotangent zero, in further derivatives too, where the factor is
    not finite. `squares`: None, or whether it is one of an operation on twice the same operand, whose
    cotangents are infinite at zeros of roots only (`even`). `alone`: are the other operands constants? None: it
    is not known."""
    rule = getattr(rule, "general", rule)
    if type(rule) is AdaptedRule:
        rule = copy.copy(rule)
        rule.rule = careful(rule.rule, squares, alone)
        return rule
    prim: Any = getattr(rule, "prim", None)

    def settled(g, *values, **params):
        def pulled(g, values):
            c = rule(g, *values, **params)
            return tuple(c) if prim.joint else (c,)

        terms = pulled(g, values)
        product = prim is multiply.prim or prim is divide.prim
        constant = alone is not None and (product or alone and prim.multilinear)
        if constant and any(map(has_nan, terms)) and not any([is_differentiated(x) for x in values]):
            # x * 0 and 0 / x are constant in x, whatever the slope of what follows
            steady = without_irrelevant(terms, *[pulled(filled(g, v), values) for v in (1.0, 2.0)])
            known = alone or prim is divide.prim or (values[1] != 0) | (values[2] != 0)
            terms = [c if c is None else select(known, d, c) for c, d in zip(terms, steady, strict=True)]
        if prim.multilinear:
            if any(map(has_nan, terms)):  # an irrelevant factor may be any number
                others = [pulled(g, [filled(x, v) for x in values]) for v in (1.0, 2.0)]
                terms = without_irrelevant(terms, *others)
        elif getattr(prim.batch, "of_matrices", prim.batch == "matrix"):
            terms = [c if c is None else unreached(g, c) for c in terms]
        elif prim.batch in ("elementwise", "axis") and not prim.multi:
            h, plain = primal_of(g), list(map(primal_of, values))
            zero = zeros_like(h)
            slopes = pulled(zero + 1, plain)
            if any([d is not None and has_nan(d - d) for d in slopes]):
                mark = select(h == 0, zero, zero + math.nan)
                if prim.batch == "elementwise":
                    reached = [mark] * len(terms)
                elif "keepdims" in (
                    given := {**dict(zip(rule.__code__.co_varnames[1:], values, strict=False)), **params}
                ):
                    reached = [
                        spread_over_axes(mark, shape(c), given["axis"], given["keepdims"]) for c in terms
                    ]
                else:
                    reached = pulled(mark, [filled(x, 1.0) for x in plain])
                found = zip(terms, map(primal_of, terms), slopes, reached, strict=True)
                terms = [  # (a number stays: it may have derivatives)
                    c if c is None else select((p != p) & (d - d != 0) & (r == r), zero_of(c), c)
                    for c, p, d, r in found
                ]
        if squares is not None and not prim.joint:
            terms = [even(prim, squares, params, g, values, terms[0])]
        return terms if prim.joint else terms[0]

    return settled if prim else rule


def even(prim, squares: bool, params: dict, g, values: tuple, c):
    """The cotangent c of x. A function of x * x is even in x, so its slope at zero is 0, or it has two
    opposite ones, with 0 between them. Only what is no square remains nan there, and what is under
    anything but a root."""
    if c is None or dtype(c).kind != "f":
        return c
    n, h, p = params.get("n", values[-1]) if prim is power_n.prim else 0, primal_of(g), primal_of(c)
    n = n if type(n) in (int, float) else 0
    product = prim.multilinear and len(shape(c)) == 1 and shape(h) == ()
    if prim is square.prim or n > 0 == n % 2 or squares and (prim is multiply.prim or product):
        zero = (primal_of(values[1]) == 0) & (abs(h) == math.inf)
        return note_zero(select(zero, zero_of(c), c), values[1], zero, "root of squares")
    if prim.batch != "elementwise" or prim is sqrt.prim or 0.5 <= n < 1:
        return c
    return select((abs(p) == math.inf) & (h - h == 0), zero_of(c) + math.nan, c)


def unless_nan(g, other):
    """The cotangent g, and the other one where it is nan."""
    if g is None or not has_nan(g):
        return g
    p = primal_of(g)
    return select(p == p, g, other)


late.careful, late.unless_nan = careful, unless_nan


# --- absolute value, and lengths, whose derivative at zero is zero ---


absolute = elementwise(np.absolute, scalar="abs", holomorphic=False)


@primitive(np.sign, scalar=ComposedScalar(lambda x: np.where(x > 0.0, 1.0, np.where(x < 0.0, -1.0, abs(x)))))
def sign(x):
    """The sign of real numbers; its derivative is zero."""
    if x.dtype.kind == "c":
        raise NoRuleError(
            "numpy.sign of complex numbers has no derivative rule in tapegrad; write z / abs(z)"
        )
    return xp_of(x).sign(x)


@functools.cache
def safe_range(d: np.dtype) -> tuple:
    """Bounds for lengths of this dtype: between the first two a length is neither subnormal nor near
    infinity. The third is a power of 2 that scales lengths into that range."""
    info = np.finfo(d)
    return 4.0 * float(info.tiny), 0.25 * float(info.max), float(info.eps)


def share_of(x, r, length):
    """x[0] / r for a length r = length(*x), all plain; 0 where r is 0. If r is infinite or subnormal, x
    is first scaled by a power of 2."""
    (low, high, eps), xp = safe_range(r.dtype), xp_of(r)
    if xp is np and (low < r < high if r.ndim == 0 else not r.size or (low < r.min() and r.max() < high)):
        return x[0] / r
    s = xp.where(r > high, r.dtype.type(eps), xp.where(r < low, r.dtype.type(1 / eps), r.dtype.type(1)))
    x = [v * s for v in x]
    r = length(*x)
    return (x[0] / xp.where(r == 0, r.dtype.type(1), r))[()]


@primitive(holomorphic=False, batch="elementwise")
def phase_of(x):
    """x / |x| of complex x, the derivative of |x|; 0 at 0. A tangent rotates it: the parallel part of the
    tangent is left out instead of subtracted."""
    return share_of((x,), abs(x), abs)


def unless_zero(r):
    """A length, with 1 in place of 0. Then 0 divided by it is 0, in every further derivative too."""
    zero = primal_of(r) == 0
    if seen(zero) is not None and not zero.any():
        return r
    return select(zero, zero_of(r) + 1, r)


def _turned(t, out, x):
    return 1j * (out * imag(conj(out) * t)) / unless_zero(absolute(x))


rules(phase_of, _turned, jvp=lambda t, out, x: _turned(t[0], out, x))


def _absolute_vjp(g, out, x):
    if dtype(x).kind == "c":
        return note_zero(g * phase_of(x), x, primal_of(out) == 0, "abs of complex numbers")
    return g * sign(x)


def _absolute_jvp(t, out, x):
    if dtype(x).kind == "c":
        u = conj(phase_of(x))
        return note_zero(
            real(u * t[0]), x, primal_of(out) == 0, "abs of complex numbers", pulled=False, pushed=t[0]
        )
    return t[0] * sign(x)


rules(absolute, _absolute_vjp, jvp=_absolute_jvp)

# --- floor and remainder ---


def quotient_and_rest(a, b) -> tuple:
    """In a kernel: floor(a / b), and the remainder a - b floor(a / b), which has the sign of b and is
    smaller, but for rounding. A quotient that was rounded up to an integer is corrected. If the quotient is
    so large that its error is greater, the remainder is nan."""
    q = np.floor(a / b)
    r = a - q * b
    side, within = np.where(b < 0.0, -1.0, 1.0), abs(a) < abs(b)  # a quotient of 0 or -1 is exact
    short, long = r * side < 0.0, np.where(within, False, (r - b) * side >= 0.0)
    rest = np.where(short, r + b, np.where(long, r - b, r))
    off = np.logical_or(rest * side < 0.0, np.where(within, False, (rest - b) * side >= 0.0))
    return q + np.where(long, 1.0, 0.0) - np.where(short, 1.0, 0.0), np.where(off, math.nan, rest)


floor_divide = elementwise(
    np.floor_divide, scalar=ComposedScalar(lambda x, y: quotient_and_rest(x, y)[0]), rough=True
)
remainder = elementwise(
    np.remainder,
    lambda g, out, x, y: g,
    lambda g, out, x, y: -times0(g, floor_divide(x, y)),
    scalar=ComposedScalar(lambda x, y: quotient_and_rest(x, y)[1]),
    rough=True,
)


# --- powers ---


def power_in_kernels(x, n):
    """exp(n log x). For negative x, n must be an integer. -0.0 and -inf get the sign that such an n
    gives."""
    a, half = abs(x), 0.5 * n
    size = np.where(a == 1.0, 1.0, np.exp(n * np.log(a)))
    other = np.where(np.logical_or(x == 0.0, np.logical_or(a == np.inf, abs(n) == np.inf)), size, math.nan)
    mirrored = np.where(np.floor(n) == n, np.where(np.floor(half) == half, size, -size), other)
    return np.where(
        np.logical_or(n == 0.0, x == 1.0), 1.0, np.where(np.where(x == 0.0, 1.0 / x, x) < 0.0, mirrored, size)
    )


@primitive(scalar=power_in_kernels, rough=True, known_as="power")
def power_of(x, n):
    """x ** y for two arrays."""
    return xp_of2(x, n).power(x, n)


@primitive(
    scalar=ComposedScalar(lambda x, *, n: x**n),
    infix="**",
    rough=lambda n: n not in range(9),
    known_as="power",
)
def power_n(x, *, n):
    """x ** n for a Python number n."""
    return x**n


@implements(np.power, layout="own")
def power(x1, x2):
    if type(x2) is int or type(x2) is float:
        return square(x1) if x2 == 2 and dtype(x1).kind in "fc" else power_n(x1, n=x2)
    return power_of(x1, x2)


def _power_n_rule(g, out, x, n):
    if n == 0:
        return zeros_like(g)
    if n == 1:
        return g
    d = n * power(x, n - 1)
    return g * d if n > 1 and n % 1 == 0 else times0(g, d)


def _power_x(g, out, x, n):
    """g n x^(n-1). At x = n = 0 it is 0 x^1, so no negative power of zero occurs, in further derivatives
    either."""
    lower = n - 1 if dtype(n).kind != "u" else n - (n > 0)
    lower = select(x == 0, select(n == 0, zero_of(n) + 1, lower), lower)
    return times0(g, n * power_of(x, lower))


def _power_y(g, out, x, n):
    """g x^n log x. In the limit x = 0, n > 0 it is zero, like x^n; at x = n = 0 it is set to zero. The
    factor itself is zero there, not only its product with the cotangent, because the rule may be
    differentiated with respect to the cotangent."""
    return times0(g, out * log(select(x == 0, zero_of(x) + 1, x)))


rules(power_n, _power_n_rule, jvp=same)
rules(power_of, _power_x, _power_y, jvp=same)


@implements(np.float_power)
def float_power(x1, x2):
    double = [
        astype(x, to=np.dtype("D" if dtype(x).kind == "c" else "d")) if hasattr(x, "dtype") else x
        for x in (x1, x2)
    ]
    return power(*double)


sqrt = elementwise(np.sqrt, lambda g, out, x: _sqrt_rule(g, out, x), scalar="sqrt")


def cbrt_in_kernels(x):
    """The cube root: a logarithm and one Newton step."""
    a = abs(x)
    y = np.exp(np.log(a) * (1 / 3))
    y = y - (y - a / (y * y)) * (1 / 3)
    return np.where(np.logical_or(a == 0.0, a == math.inf), x, np.where(x < 0.0, -y, y))


cbrt = elementwise(np.cbrt, lambda g, out, x: over0(g, 3.0 * (out * out)), scalar=cbrt_in_kernels, rough=True)


@primitive(batch="elementwise", scalar=GatedProduct(lambda g, r: 0.5 * g / r))
def root_slope(g, r):
    """g / (2 r), the derivative of the root r; zero where g is zero. If both are zero, the limit is
    unknown."""
    return over0(0.5 * g, r)


def _root_slope_vjp(c, out, g, r):
    """The tangent of a root of x @ x vanishes at zero, and c does too. If the root is only masked there,
    c is nonzero, unless the direction is zero there. In that case the warning is superfluous."""
    gate = seen(unknown_limit(g, r))
    if gate is not None and seen(c) is not None and bool((gate & (seen(c) == 0)).any()):
        warn_nondifferentiable("sqrt", callers_line())
    return root_slope(c, r)


def _root_slope_jvp(t, out, g, r):
    """A root that is zero, with a zero tangent, is that of a square or of a sum of squares. If the
    tangent is infinite, it is neither."""
    gate, (c, e) = unknown_limit(g, r), t
    if seen(gate) is not None and gate.any():
        if (c is not None and meets_nonzero(c, gate)) or (
            e is not None and seen(e) is not None and bool((gate & (seen(e) == 0)).any())
        ):
            warn_nondifferentiable("sqrt", callers_line())
    a = None if c is None else root_slope(select(gate, zero_of(c), c), r)
    b = None if e is None else -times00(2.0 * e, over0(out, 2.0 * r))
    return sum_of_given((a, b))


def unknown_limit(g, r):
    """Where is g / r of the form 0 / 0?"""
    return (primal_of(g) == 0) & (primal_of(r) == 0)


def _sqrt_rule(g, out, x):
    return (
        root_slope(g, out) if isinstance(g, Variable) and isinstance(out, Variable) else over0(0.5 * g, out)
    )


rules(
    root_slope,
    _root_slope_vjp,
    lambda c, out, g, r: -times00(g, over0(over0(0.5 * c, r), r)),
    jvp=_root_slope_jvp,
)

# --- exponentials and logarithms ---


exp = elementwise(np.exp, lambda g, out, x: g * out, scalar="exp")
exp2 = elementwise(np.exp2, lambda g, out, x: LN2 * g * out, scalar="exp2")
expm1 = elementwise(np.expm1, lambda g, out, x: g * exp(x), scalar="expm1")
log = elementwise(np.log, lambda g, out, x: over0(g, x), scalar="log")
log2 = elementwise(
    np.log2, lambda g, out, x: over0(g / LN2, x), scalar=ComposedScalar(lambda x: np.log(x) * (1 / LN2))
)
log10 = elementwise(
    np.log10, lambda g, out, x: over0(g / LN10, x), scalar=ComposedScalar(lambda x: np.log(x) * (1 / LN10))
)
log1p = elementwise(np.log1p, lambda g, out, x: over0(g, 1.0 + x), scalar="log1p")


# --- trigonometry ---

SQUARE_ABSORBS_ONE = 1e18  # 1 + x^2 = x^2 above this, in float64 and float32


def arcsinh_in_kernels(x):
    a = abs(x)
    y = np.where(a > SQUARE_ABSORBS_ONE, np.log(a) + LN2, np.log1p(a + a * a / (1.0 + np.sqrt(1.0 + a * a))))
    return np.where(x == 0.0, x, np.where(x < 0.0, -y, y))


def arccosh_in_kernels(x):
    t = np.where(x < 1.0, math.nan, x - 1.0)
    return np.where(x > SQUARE_ABSORBS_ONE, np.log(x) + LN2, np.log1p(t + np.sqrt(t * (t + 2.0))))


sin = elementwise(np.sin, lambda g, out, x: g * cos(x), scalar="sin")
cos: Any = elementwise(np.cos, lambda g, out, x: -g * sin(x), scalar="cos")
tan = elementwise(np.tan, lambda g, out, x: g * (1.0 + out * out), scalar=lambda x: np.sin(x) / np.cos(x))
arcsin = elementwise(
    np.arcsin,
    lambda g, out, x: over0(g, other_leg(x)),
    scalar=lambda x: 2.0 * np.arctan(x / (1.0 + np.sqrt((1.0 - x) * (1.0 + x)))),
)
arccos = elementwise(
    np.arccos,
    lambda g, out, x: -over0(g, other_leg(x)),
    scalar=lambda x: 2.0 * np.arctan(np.sqrt((1.0 - x) / (1.0 + x))),
)
arctan = elementwise(np.arctan, lambda g, out, x: times0(g, bell(x)), scalar="arctan")
sinh = elementwise(np.sinh, lambda g, out, x: g * cosh(x), scalar="sinh")
cosh: Any = elementwise(np.cosh, lambda g, out, x: g * sinh(x), scalar="cosh")
tanh = elementwise(np.tanh, lambda g, out, x: g * tanh_slope(x, primal_of(out)), scalar="tanh")
arcsinh = elementwise(np.arcsinh, scalar=arcsinh_in_kernels)
arccosh = elementwise(
    np.arccosh, lambda g, out, x: over0(g, sqrt(x - 1.0) * sqrt(x + 1.0)), scalar=arccosh_in_kernels
)


def arctanh_in_kernels(x):
    a = abs(x)
    return np.where(x == 0.0, x, np.where(x < 0.0, -0.5, 0.5) * np.log1p(2.0 * a / (1.0 - a)))


arctanh = elementwise(np.arctanh, lambda g, out, x: over0(g, less_square(x)), scalar=arctanh_in_kernels)


# Differences whose derivative, as written, would cancel near zero down to rounding errors of 1.
@primitive()
def other_leg(x):
    """sqrt(1 - x) sqrt(1 + x), not sqrt(1 - x^2): this has the branch of arcsin in the complex plane."""
    if (
        getattr(x, "dtype", F8).kind == "c"
    ):  # the sign of zero chooses the side of a cut, and 1 - x has not that of x
        return sqrt(-(x - 1.0)) * sqrt(-(-x - 1.0))
    return sqrt(1.0 - x) * sqrt(1.0 + x)


@primitive()
def less_square(x):
    """(1 - x) (1 + x)."""
    return (1.0 - x) * (1.0 + x)


@primitive(scalar=ComposedScalar(lambda x: 1.0 / (1.0 + x * x)))
def bell(x):
    """1 / (1 + x^2). Its derivative -2 x out^2 is multiplied in an order without overflow, if the product
    is finite."""
    return 1.0 / (1.0 + x * x)


@primitive(scalar=("tanh_slope", 1))
def tanh_slope(x, y):
    """1 / cosh(x)^2, given the plain y = tanh(x). It is not computed as 1 - y^2 where that would be
    rounding error or zero."""
    if isinstance(y, float):
        d = 1.0 - y * y
        return d if d > 0.01 else (1.0 / np.cosh(x)) ** 2
    xp = xp_of(x)
    if y.dtype.kind == "c":
        far = abs(x.real) > 20.0
        e, r = xp.exp(-2.0 * xp.where(x.real < 0, -x, x)), 1.0 / xp.cosh(xp.where(far, 0.0, x))
        return xp.where(far, 4.0 * e, r * r)[()]
    if xp is not np or y.ndim == 0:
        return xp.square(1.0 / xp.cosh(x))
    d = y * y
    if not d.size or d.item(d.argmax()) < 0.99:
        return np.subtract(1.0, d, out=d)
    tail = ~(d < 0.99)
    np.subtract(1.0, d, out=d)
    d[tail] = np.square(1.0 / np.cosh(x[tail]))
    return d


rules(tanh_slope, lambda g, out, x, y: -2.0 * (g * out) * tanh(x), lambda g, out, x, y: None, jvp=same)
rules(bell, lambda g, out, x: -2.0 * ((g * out) * times00(x, out)), jvp=same)
rules(other_leg, lambda g, out, x: -over0(g * x, out), jvp=same)
rules(less_square, lambda g, out, x: -2.0 * g * x, jvp=same)


@primitive(np.deg2rad, np.radians, scalar=ComposedScalar(lambda x: x * (math.pi / 180)))
def deg2rad(x):
    return xp_of(x).deg2rad(x)


@primitive(np.rad2deg, np.degrees, scalar=ComposedScalar(lambda x: x * (180 / math.pi)))
def rad2deg(x):
    return xp_of(x).rad2deg(x)


rules(deg2rad, lambda g, out, x: (math.pi / 180.0) * g, jvp=same)
rules(rad2deg, lambda g, out, x: (180.0 / math.pi) * g, jvp=same)


# d^n/du^n sin(u)/u, since sinc is smooth at zero and must stay so in every derivative.  From u s = sin u
# follows u s_n + n s_(n-1) = sin(u + n pi/2), an upward recurrence, which is stable for |u| > n/2; below, the
# Taylor series.
def sinc_derivative(xp, x, n):
    u = math.pi * x
    small = abs(u) < max(2.0, n / 2)
    v = xp.where(small, u, 0.0)
    first = (n + 1) // 2
    terms = [(-1) ** k / (2 * k + 1) / math.factorial(2 * k - n) for k in range(first, first + 14 + n)]
    series = terms[-1]
    for c in terms[-2::-1]:
        series = series * (v * v) + c
    series = series * v ** (2 * first - n)
    safe, sin, cos = xp.where(small, 1.0, u), xp.sin(u), xp.cos(u)
    s = sin / safe
    for k in range(1, n + 1):
        sin, cos = cos, -sin
        s = (sin - k * s) / safe
    return xp.where(small, series, s)


def sinc_in_kernels(x, *, n):
    u = math.pi * x
    return sinc_derivative(np, x, n) if n else np.where(u == 0.0, 1.0, np.sin(u) / u)


@primitive(np.sinc, scalar=sinc_in_kernels)
def sinc(x, *, n=0):
    xp = xp_of(x)
    return xp.sinc(x) if n == 0 else sinc_derivative(xp, x, n).astype(x.dtype)[()]


rules(sinc, lambda g, out, x, n: math.pi * g * sinc(x, n=n + 1), jvp=same)
