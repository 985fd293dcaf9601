"""What the instructions of a recording are, and how operations are done in it."""

import operator
from typing import Any

from numpy import ndarray

from ..._core.arrays import NUMBERS, is_array, is_scalar
from ..._core.primitive import READ, Primitive
from ..._dispatch.random import DRAW
from ...ops.zero_derivative import ArgumentPlaceholder

ARGUMENT, CAPTURED, CONSTANT, PART, LAID = "argument", "captured", "constant", "part", "laid"


def vector_product(x: Any, y: Any) -> Any:
    """Of NumPy's vectors and matrices `dot` is the same BLAS call as `@`, with half of the way to it."""
    return x.dot(y) if type(x) is type(y) is ndarray and 0 < x.ndim < 3 and 0 < y.ndim < 3 else x @ y


SHORTER = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "@": vector_product,
}  # by operator, of two arrays
WAYS: dict = {}  # how they are done (`instruction_form`)


def is_pure(prim: Primitive) -> bool:
    """Is it an operation of tapegrad's own that acts on its results alone?  (A function of the user's may count
    its calls.)"""
    if prim.external:
        return False
    return prim.declared or (prim.vjp is None and prim is not DRAW)


def instruction_form(prim: Primitive) -> tuple:
    """(its body, is it pure?, does its result own its memory, and that alone?)"""
    found = WAYS.get(prim)
    if found is None:
        run = SHORTER.get(prim.infix, prim.run) if len(prim.vjp or ()) == 2 else prim.run
        found = run, is_pure(prim), not (prim.writes or prim.aliases or prim is READ)
        if found[1]:
            WAYS[prim] = found
    return found


WORDS = ("elementwise", "axis", "moves")  # of `batch`, of which `total` follows


def is_total(prim: Any) -> bool:
    """Does it give a result for all numbers?  (Of integers, which may be indices, that is not said.)"""
    return type(prim) is str or prim.total or (is_pure(prim) and prim.batch in WORDS)


def ufunc_of(i: Any) -> Any:
    """The ufunc of an instruction without a derivative, where its operands are arrays and numbers and nothing
    is set."""
    prim, params = i.prim, i.params
    if (
        type(prim) is str
        or prim.vjp is not None
        or type(params) is not dict
        or params.keys() != {"args", "kwargs"}
    ):
        return None
    plain = not params["kwargs"] and all(
        [type(a) is ArgumentPlaceholder or type(a) in NUMBERS for a in params["args"]]
    )
    return prim.ufunc if plain else None


def is_of_another(out: Any, values: list) -> bool:
    """May the result lie in the memory of an operand?  (It does not if it owns its memory, and is none of
    them.)"""
    if is_array(out):
        return out.base is not None or any([out is v for v in values])
    return not is_scalar(out)
