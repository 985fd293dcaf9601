"""Reverse rules of a number that met a small array: product and sum at once, where that is finite."""

from typing import Any

import numpy as np
from numpy import float64, ndarray

from .._array import F8
from .._tape import SAFE, Fold
from ..ops.elementwise import add, divide, multiply, subtract

SMALL = 128  # elements; NumPy too adds so many without halving them
ONES = np.ones(SMALL)
ONES.flags.writeable = False


def flat_sum(g: ndarray) -> float64:
    return ONES[: g.size].dot(g.ravel())


SUMS = {
    multiply.prim.vjp[0]: lambda g, out, x, y: g.ravel().dot(y.ravel()),
    multiply.prim.vjp[1]: lambda g, out, x, y: g.ravel().dot(x.ravel()),
    divide.prim.vjp[1]: lambda g, out, x, y: -(g.ravel().dot(out.ravel())) / y,
    add.prim.vjp[0]: lambda g, out, x, y: flat_sum(g),
    add.prim.vjp[1]: lambda g, out, x, y: flat_sum(g),
    subtract.prim.vjp[0]: lambda g, out, x, y: flat_sum(g),
    subtract.prim.vjp[1]: lambda g, out, x, y: -flat_sum(g),
}
SHORT: dict = {}  # rule -> the rule for a number


def shorter(rule: Any, summed: Any) -> Any:
    def short(g, out, x, y):
        if type(g) is ndarray:
            c = summed(g, out, x, y)
            if c - c == 0:
                return c
        return FOLDS[rule](g, out, x, y)

    short.prim = rule.prim
    return short


FOLDS = {rule: Fold(rule, float64(), rule.prim.holomorphic) for rule in SUMS}
for _rule, _summed in SUMS.items():
    SHORT[_rule] = shorter(_rule, _summed)
    if _rule in SAFE:
        SAFE[SHORT[_rule]] = FOLDS[_rule].made_with(SAFE[_rule])


def fitted(rule: Any, v: Any, out: Any, holomorphic: bool) -> Any:
    """The rule of an argument v that has another shape or dtype than the result."""
    if type(v) is float64 and type(out) is ndarray and out.dtype is F8 and 0 < out.size <= SMALL and rule in SHORT:
        return SHORT[rule]
    return Fold(rule, v, holomorphic)
