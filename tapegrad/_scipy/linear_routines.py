"""Routines of BLAS and LAPACK for tracked values, as `scipy.linalg.lapack`, `scipy.linalg.blas` and
`get_lapack_funcs` give them.

A setting without a parameter here raises for tracked values: `clean`, strides, offsets."""

from collections.abc import Callable
from typing import Any

import numpy as plain_np
import scipy.linalg

from .. import numpy as np
from .._core.lent_memory import lend
from .._core.primitive import values_of
from ..ops.declare import dtype
from ..ops.indexing.views import layout_source
from ..scipy import linalg
from .namespaces import holds_tracked

RULES: dict = {}  # routine of SciPy -> ours


class LinearRoutine:
    """A routine that gets plain arrays, or tracked ones if it has a rule.  (Of any other object it takes what
    `__array__` gives for a copy, which it overwrites.)"""

    def __init__(self, f: Any, rule: Callable):
        self.f, self.rule = f, rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if holds_tracked(args, kwargs):
            return self.rule(*args, **kwargs)
        return self.f(*lend(args), **lend(kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.f, name)


def of(f: Any) -> LinearRoutine:
    return LinearRoutine(f, RULES.get(f, f))


def routine(library: Any) -> Callable:
    """Declare the rule of the routine with its name in all precisions."""

    def declare(rule: Callable) -> Callable:
        for kind in "sdcz":
            f = getattr(library, kind + rule.__name__, None)
            if f is not None:
                RULES[f] = rule
        return rule

    return declare


def stored(y: Any, x: Any, overwrite: Any) -> Any:
    """y in Fortran's order; it is also written into x where LAPACK does so."""
    y = np.asfortranarray(y)
    if overwrite and layout_source(x).flags.f_contiguous:
        x[...] = y
    return y


def solved(f: Callable, *args: Any) -> tuple:
    """The result and LAPACK's `info`."""
    try:
        return f(*args), 0
    except plain_np.linalg.LinAlgError:
        return None, 1


@routine(scipy.linalg.lapack)
def potrf(a: Any, lower: Any = 0, *, overwrite_a: Any = 0) -> tuple:
    c, failed = solved(linalg.cholesky, a, lower)
    return (None if failed else stored(c, a, overwrite_a)), failed


@routine(scipy.linalg.lapack)
def potri(c: Any, lower: Any = 0, overwrite_c: Any = 0) -> tuple:
    """Only one triangle of the inverse is stored; the other one keeps what c has there."""
    inverse = linalg.cho_solve((c, lower), plain_np.eye(len(c), dtype=dtype(c)))
    both = np.tril(inverse) + np.triu(c, 1) if lower else np.triu(inverse) + np.tril(c, -1)
    return stored(both, c, overwrite_c), 0


@routine(scipy.linalg.lapack)
def potrs(c: Any, b: Any, lower: Any = 0, overwrite_b: Any = 0) -> tuple:
    return stored(linalg.cho_solve((c, lower), b), b, overwrite_b), 0


@routine(scipy.linalg.lapack)
def trtrs(
    a: Any, b: Any, lower: Any = 0, trans: Any = 0, unitdiag: Any = 0, *, overwrite_b: Any = 0
) -> tuple:
    x, failed = solved(linalg.solve_triangular, a, b, trans, lower, unitdiag)
    return (None if failed else stored(x, b, overwrite_b)), failed


@routine(scipy.linalg.lapack)
def gesv(a: Any, b: Any) -> tuple:
    """The factors are not computed."""
    return None, None, *solved(linalg.solve, a, b)


@routine(scipy.linalg.blas)
def dot(x: Any, y: Any) -> Any:
    return np.dot(np.ravel(x), np.ravel(y))


@routine(scipy.linalg.blas)
def gemm(
    alpha: Any, a: Any, b: Any, beta: Any = 0.0, c: Any = 0.0, trans_a: Any = 0, trans_b: Any = 0
) -> Any:
    a, b = [(x, np.transpose(x), np.conj(np.transpose(x)))[t] for x, t in ((a, trans_a), (b, trans_b))]
    return np.asfortranarray(alpha * (a @ b) + beta * c)


@routine(scipy.linalg.blas)
def gemv(alpha: Any, a: Any, x: Any, beta: Any = 0.0, y: Any = 0.0, *, trans: Any = 0) -> Any:
    return gemm(alpha, a, np.reshape(x, (-1, 1)), trans_a=trans)[:, 0] + beta * y


def chosen(choose: Callable, names: Any, arrays: Any = (), *args: Any, **kwargs: Any) -> Any:
    """The routines of these names for arrays of this precision."""
    found = choose(names, tuple([values_of(a) for a in arrays]), *args, **kwargs)
    return [of(f) for f in found] if isinstance(found, list) else of(found)
