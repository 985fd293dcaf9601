"""Reverse rules for a number that met a small array: product and sum in one step, if the result is
finite."""

from numpy import float64, ndarray, vecdot

from ..._core.arrays import F8
from ..._core.reverse import AdaptedRule
from ...ops.elementwise import add, divide, multiply, subtract
from ...ops.shaping import PAIRWISE, ones


def flat_sum(g: ndarray) -> float64:
    return ones(g.size).dot(g.ravel())


ROW = 8 * PAIRWISE  # BLAS adds this many numbers in several dozen partial sums


def dot_all(x: ndarray, y: ndarray) -> float64:
    """The sum of the products of all elements, by BLAS. Long arrays are summed row by row, because one
    sum of all would be less exact."""
    x, y = x.ravel(), y.ravel()
    n = x.size
    if n <= ROW:
        return x.dot(y)
    rows = n // ROW
    k = rows * ROW
    c = vecdot(x[:k].reshape(rows, ROW), y[:k].reshape(rows, ROW)).sum()
    return c if k == n else c + x[k:].dot(y[k:])


LONG = {  # for arrays of any size
    multiply.prim.vjp[0]: lambda g, out, x, y: dot_all(g, y),
    multiply.prim.vjp[1]: lambda g, out, x, y: dot_all(g, x),
    divide.prim.vjp[1]: lambda g, out, x, y: -dot_all(g, out) / y,
}
SUMS = {
    **LONG,
    add.prim.vjp[0]: lambda g, out, x, y: flat_sum(g),
    add.prim.vjp[1]: lambda g, out, x, y: flat_sum(g),
    subtract.prim.vjp[0]: lambda g, out, x, y: flat_sum(g),
    subtract.prim.vjp[1]: lambda g, out, x, y: -flat_sum(g),
}
SHORT: dict = {}  # rule -> its version for a number


def summed_rule(rule, summed):
    def short(g, out, x, y):
        if type(g) is ndarray:
            c = summed(g, out, x, y)
            if c - c == 0:
                return c
        return FOLDS[rule](g, out, x, y)

    vars(short).update(prim=rule.prim, turned=False, general=FOLDS[rule])
    return short


FOLDS = {rule: AdaptedRule(rule, float64(), rule.prim.holomorphic) for rule in SUMS}
for _rule, _summed in SUMS.items():
    SHORT[_rule] = summed_rule(_rule, _summed)


def fit_rule(rule, v, out, holomorphic: bool):
    """The rule of an argument v whose shape or dtype differs from the result's."""
    if (
        type(v) is float64
        and type(out) is ndarray
        and out.dtype is F8
        and (0 < out.size <= PAIRWISE or rule in LONG)
        and rule in SHORT
    ):
        return SHORT[rule]
    return AdaptedRule(rule, v, holomorphic)
