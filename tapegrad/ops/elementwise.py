"""NumPy's ufuncs.  Rules are written as transposes for real arrays; for complex ones the engine conjugates (see `_define.Fold`).

Where a derivative is singular the rule multiplies by `times0` or divides by `over0`, which leave a zero cotangent zero: so
`where(x > 0, sqrt(x), 0)` has no nan."""

import math

import numpy as np

from .._array import is_array, xp_of
from ._define import primitive, rules, same, xp
from .shaping import conj, real


@primitive(np.add, infix="+")
def add(x, y):
    return xp_of2(x, y).add(x, y)


def xp_of2(x, y):
    return xp_of(x) if is_array(x) else xp_of(y)


@primitive(np.subtract, infix="-")
def subtract(x, y):
    return xp_of2(x, y).subtract(x, y)


@primitive(np.multiply, infix="*")
def multiply(x, y):
    return xp_of2(x, y).multiply(x, y)


@primitive(np.negative)
def negative(x):
    return xp_of(x).negative(x)


@primitive()
def times0(g, d):
    """g d, and zero where g is zero whatever d is."""
    r = g * d
    return r if finite(r) else settle(g, r)


@primitive()
def over0(g, d):
    """g / d, and zero where g is zero whatever d is."""
    r = g / d
    return r if finite(r) else settle(g, r)


def finite(r) -> bool:
    """Is every element of r known to be finite?  (Never asked on a device: that would synchronise.)"""
    if type(r) is np.ndarray:
        s = np.vdot(r, r)
        return s - s == 0
    return isinstance(r, (np.generic, float)) and not isinstance(r, np.complexfloating) and math.isfinite(r)


def settle(g, r):
    xp = xp_of2(g, r)
    return xp.where(g == 0, xp.zeros((), r.dtype), r)[()]


@primitive(np.true_divide, infix="/")
def divide(x, y):
    return xp_of2(x, y).true_divide(x, y)


@primitive(np.sin)
def sin(x):
    return xp_of(x).sin(x)


@primitive(np.cos)
def cos(x):
    return xp_of(x).cos(x)


@primitive(np.exp)
def exp(x):
    return xp_of(x).exp(x)


@primitive(np.log)
def log(x):
    return xp_of(x).log(x)


@primitive(np.sqrt)
def sqrt(x):
    return xp_of(x).sqrt(x)


rules(add, lambda g, out, x, y: g, lambda g, out, x, y: g, jvp=same)
rules(subtract, lambda g, out, x, y: g, lambda g, out, x, y: -g, jvp=same)
rules(multiply, lambda g, out, x, y: g * y, lambda g, out, x, y: x * g, jvp=same)
rules(negative, lambda g, out, x: -g, jvp=same)
rules(times0, lambda c, out, g, d: times0(c, d), lambda c, out, g, d: times0(g, c), jvp=same)
rules(over0, lambda c, out, g, d: over0(c, d), lambda c, out, g, d: -times0(c, over0(over0(g, d), d)), jvp=same)
rules(divide, lambda g, out, x, y: over0(g, y), lambda g, out, x, y: -times0(g, out / y), jvp=same)
rules(sin, lambda g, out, x: g * cos(x), jvp=same)
rules(cos, lambda g, out, x: -g * sin(x), jvp=same)
rules(exp, lambda g, out, x: g * out, jvp=same)
rules(log, lambda g, out, x: over0(g, x), jvp=same)
rules(sqrt, lambda g, out, x: over0(0.5 * g, out), jvp=same)
