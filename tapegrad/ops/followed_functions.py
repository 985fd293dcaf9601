"""Functions that NumPy and SciPy have written in Python. Their own code is followed on tracked values, so that
values, errors and memory order are the library's.

A function is declared here, or beside its family by `implements_special`, if its followed code passes all
tests and is not slow beside rules of its own. `_scipy.followed` follows the code. It is loaded with the first
call."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .._core.registry import load
from .._core.scope import OPEN, changed
from .declare import implements


@functools.cache
def followed_code(f: Callable) -> Callable:
    return load("tapegrad._scipy.followed_functions").FOLLOWED.function(f)


def followed(f: Callable, family: str) -> Callable:
    """f on tracked values, by its own code. `family`: the module that declares it."""

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        if OPEN.depth:
            return followed_code(f)(*args, **kwargs)
        with changed(depth=1):  # arrays that the code makes can hold what a kernel traces
            return followed_code(f)(*args, **kwargs)

    run.__module__ = family
    return run


for _f in (
    np.append, np.delete, np.resize, np.ix_, np.vander, np.column_stack, np.dstack, np.meshgrid, np.rollaxis,
    np.fliplr, np.flipud, np.take_along_axis, np.piecewise, np.real_if_close, np.sort_complex,
    np.gradient, np.diff, np.ediff1d, np.trapezoid, np.angle,
    np.tensordot, np.linalg.tensordot, np.linalg.multi_dot, np.linalg.outer, np.linalg.trace, np.linalg.tensorinv,
    np.emath.sqrt, np.emath.log, np.emath.log2, np.emath.log10, np.emath.logn, np.emath.power, np.emath.arccos,
    np.emath.arcsin, np.emath.arctanh,
):  # fmt: skip
    implements(_f, layout="own")(followed(_f, __name__))
