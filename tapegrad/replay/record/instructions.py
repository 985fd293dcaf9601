"""What the instructions of a recording are, and how operations are done in it."""

import operator
from typing import Any

from numpy import ndarray

from ..._core.arrays import is_array, is_scalar
from ..._core.primitive import READ, Primitive
from ..._dispatch.random import DRAW
from ...ops import elementwise as e
from ...ops.declare import PRIMITIVES
from ...ops.products import matmul

ARGUMENT, CAPTURED, CONSTANT, PART, LAID = "argument", "captured", "constant", "part", "laid"


def product(x: Any, y: Any) -> Any:
    """Of NumPy's vectors and matrices `dot` is the same BLAS call as `@`, with half of the way to it."""
    return x.dot(y) if type(x) is type(y) is ndarray and 0 < x.ndim < 3 and 0 < y.ndim < 3 else x @ y


SHORTER = {
    e.add.prim: operator.add,
    e.subtract.prim: operator.sub,
    e.multiply.prim: operator.mul,
    e.divide.prim: operator.truediv,
    matmul.prim: product,
}
PURE: set = set()  # operations of tapegrad's own
WAYS: dict = {}  # how they are done (`ways_of`)


def is_pure(prim: Primitive) -> bool:
    """Is it an operation of tapegrad's own?  (A function of the user's may count its calls.)"""
    if prim in PURE:
        return True
    if prim is DRAW:
        return False
    if getattr(PRIMITIVES.get(prim.name), "prim", None) is prim:
        PURE.add(prim)
        return True
    return prim.vjp is None


def ways_of(prim: Primitive) -> tuple:
    """(its body, is it pure?, does its result own its memory, and that alone?)"""
    found = WAYS.get(prim)
    if found is None:
        found = SHORTER.get(prim, prim.run), is_pure(prim), not (prim.writes or prim.aliases or prim is READ)
        if found[1]:
            WAYS[prim] = found
    return found


WORDS = frozenset(("elementwise", "axis", "moves"))
TOTAL = frozenset((
    "assign", "around", "copy", "relaid", "noted", "matmul", "contract", "convolve_full", "det", "sign_and_log", "take_last", "put_last",
    "diagonals", "with_diagonals", "backwards", "lower_part", "upper_part", "diagonal_of", "on_diagonal", "mirrored", "triangle",
    "cofactor", "add_at", "extreme_at", "added_at", "added_by", "gathered_back",
))  # fmt: skip


def is_total(prim: Any) -> bool:
    """Does it give a result for all numbers?  (Of integers, which may be indices, that is not said.)"""
    return type(prim) is str or (is_pure(prim) and (prim.batch in WORDS if type(prim.batch) is str else False) or prim.name in TOTAL)


def is_of_another(out: Any, values: list) -> bool:
    """May the result lie in the memory of an operand?  (It does not if it owns its memory, and is none of them.)"""
    if is_array(out):
        return out.base is not None or any([out is v for v in values])
    return not is_scalar(out)
