"""Functions made of a user's function.  Transforms follow their code as if it were the user's
(`_capture.kinds.OWN`), and so what his function captured."""

from typing import Any

from .._core.trees import Const, leaves
from .._core.typing import AnyFunction, AnyTuple
from ..ops import shaping
from ..ops.declare import dtype
from .gradient import grad
from .products import jvp


def inner_product(a: Any, b: Any) -> Any:
    """Re <a, b> over the leaves of two alike trees; leaves that are None in a count as zero."""
    total = 0.0
    for u, v in zip(leaves(a), leaves(b), strict=True):
        if u is None or v is None:
            continue
        if dtype(u).kind == "c" or dtype(v).kind == "c":
            term = shaping.sum(shaping.real(u) * shaping.real(v) + shaping.imag(u) * shaping.imag(v))
        else:
            term = shaping.sum(u * v)
        total = term + total
    return total


def partial_call(f: AnyFunction, args: AnyTuple, nums: AnyTuple) -> AnyFunction:
    """f of the arguments `nums` alone; the others are those of `args`."""

    # the former are not captured
    rest = [None if n in nums else a.value if isinstance(a, Const) else a for n, a in enumerate(args)]

    def call(*xs: Any) -> Any:
        given = list(rest)
        for n, x in zip(nums, xs, strict=True):
            given[n] = x
        return f(*given)

    call.__name__ = getattr(f, "__name__", type(f).__name__)
    return call


def weighted_output(f: AnyFunction, w: Any) -> AnyFunction:
    """Re <w, f>: one number."""
    return lambda *xs: inner_product(w, f(*xs))


def directional(phi: AnyFunction, v: AnyTuple, letter: str) -> AnyFunction:
    """The derivative of the scalar function phi along v, forward (F) or in reverse (R): a scalar function."""
    if letter == "F":
        return lambda *xs: jvp(phi, xs, v)[1]
    nums = tuple(range(len(v)))
    return lambda *xs: inner_product(v, grad(phi, nums)(*xs))
