"""The arguments of sparse matrices: how a plan takes them, and what they must be."""

from collections.abc import Callable

import numpy as np

from .._core.arrays import is_array
from .._core.errors import ArgumentError
from .._core.primitive import live, seen
from .._core.trees import describe_tree, leaves
from .._core.variable import Variable
from .._transforms.arguments import user_name, where_of
from .._transforms.tape import value as value_of
from ..replay.form import any_variable

HIDDEN = (
    "{}: vmap and recording hide the values that decide the pattern; prepare the plan before, and call it "
    "there"
)


def argnum_of(call: str, argnum, args: tuple) -> int:
    if type(argnum) is not int or not -len(args) <= argnum < len(args):
        raise ArgumentError(f"{call}: argnum={argnum!r}, and {len(args)} arguments were given")
    return argnum % len(args)


def enter_arguments(args: tuple, argnum: int, dtype) -> tuple:
    """Return the arguments, the differentiated one first; other numbers become NumPy scalars, which may
    vary."""
    args = tuple([value_of(a) if isinstance(a, Variable) and live(a)._trace is None else a for a in args])
    x = args[argnum]
    if any_variable(args):
        return (x, *[a for k, a in enumerate(args) if k != argnum])
    if not is_array(x):
        x = np.asarray(x, dtype)
    elif dtype is not None and x.dtype.kind in "iu":
        x = x.astype(dtype)
    rest = [
        x.dtype.type(a) if type(a) is float and x.dtype.kind in "fc" else a
        for k, a in enumerate(args)
        if k != argnum
    ]
    return (x, *rest)


def layouts_of(args: tuple) -> tuple:
    """Return (shapes, strides) of the arrays among the arguments."""
    arrays = [a for a in args if is_array(a)]
    return tuple([a.shape for a in arrays]), tuple([a.strides for a in arrays])


def with_argument_first(f: Callable, argnum: int) -> Callable:
    """Return f with that argument first, and f itself second.

    As an argument, f has its captured objects followed like those of any function."""

    def first(x, f, *rest):
        return f(*rest[:argnum], x, *rest[argnum:])

    first.__name__ = user_name(f)
    return first


def checked_input(call: str, x) -> None:
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentError(f"{call}: x is a masked array, and masks have no derivative; pass x.filled(v)")
    if x.dtype.kind not in "fc":
        raise ArgumentError(
            f"{call}: x has dtype {x.dtype}, which has no derivative; pass an array of floats, "
            f"x.astype(float)"
        )


def checked_output(call: str, f: Callable, dtype, holomorphic: bool, y) -> None:
    if not (is_array(y) or isinstance(y, (np.generic, float, complex))):
        raise ArgumentError(
            f"{call}: {user_name(f)}{where_of(f)} returned {describe_tree(y)}, {len(leaves(y))} leaves; a "
            "sparse matrix is that of one array: join them by numpy.concatenate"
        )
    if dtype.kind == "c" and not (
        holomorphic and np.asarray(y).dtype.kind == "c"
        if not is_array(y)
        else holomorphic and y.dtype.kind == "c"
    ):
        raise ArgumentError(
            f"{call}: a function of complex arguments needs holomorphic=True, and a complex value; else "
            f"split it in two"
        )


def leaf_dtype(y) -> str:
    return y.dtype.kind if hasattr(y, "dtype") else np.asarray(y).dtype.kind


def plain_point(x):
    """Return the plain value of an argument, in C order, or None if a trace hides it."""
    if not isinstance(x, Variable):
        return x
    plain = seen(x)
    return plain if plain is None or isinstance(plain, np.generic) else np.asarray(plain, order="C")


def plain_point_of(call: str, args: tuple) -> tuple:
    """Return the plain values of the arguments; raise where a trace hides them."""
    point = tuple([plain_point(a) for a in args])
    if any([a is None for a in point]):
        raise ArgumentError(HIDDEN.format(call))
    return point
