"""Routines of BLAS and LAPACK for tracked values, as `scipy.linalg.lapack`, `scipy.linalg.blas` and
`get_lapack_funcs` give them.

A setting without a parameter here raises for tracked values: `clean`, strides, offsets."""

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

    def __init__(self, f):
        self.f = f

    def __call__(self, *args, **kwargs):
        if holds_tracked(args, kwargs):
            return RULES.get(self.f, self.f)(*args, **kwargs)
        return self.f(*lend(args), **lend(kwargs))

    def __getattr__(self, name):
        return getattr(self.f, name)


def routine(rule):
    """Declare the rule of the routine with its name in all precisions."""
    for kind in ("s", "d", "c", "z", "sc", "dz"):
        for library in (scipy.linalg.blas, scipy.linalg.lapack):
            RULES[getattr(library, kind + rule.__name__, None)] = rule
    return rule


def stored(y, x, overwrite):
    """y in Fortran's order; it is also written into x where LAPACK does so."""
    y = np.asfortranarray(y)
    if overwrite and layout_source(x).flags.f_contiguous:
        x[...] = y
    return y


def solved(f, *args):
    """The result and LAPACK's `info`."""
    try:
        return f(*args), 0
    except plain_np.linalg.LinAlgError:
        return None, 1


@routine
def potrf(a, lower=0, *, overwrite_a=0):
    c, failed = solved(linalg.cholesky, a, lower)
    return (c if failed else stored(c, a, overwrite_a)), failed


@routine
def potri(c, lower=0, overwrite_c=0):
    """Only one triangle of the inverse is stored; the other one keeps what c has there."""
    inverse = linalg.cho_solve((c, lower), plain_np.eye(len(c), dtype=dtype(c)))
    both = np.tril(inverse) + np.triu(c, 1) if lower else np.triu(inverse) + np.tril(c, -1)
    return stored(both, c, overwrite_c), 0


@routine
def potrs(c, b, lower=0, overwrite_b=0):
    return stored(linalg.cho_solve((c, lower), b), b, overwrite_b), 0


@routine
def trtrs(a, b, lower=0, trans=0, unitdiag=0, *, overwrite_b=0):
    x, failed = solved(linalg.solve_triangular, a, b, trans, lower, unitdiag)
    return (x if failed else stored(x, b, overwrite_b)), failed


@routine
def gesv(a, b):
    """The factors are not computed."""
    return None, None, *solved(linalg.solve, a, b)


@routine
def dot(x, y):
    return np.dot(np.ravel(x), np.ravel(y))


@routine
def asum(x):
    return np.sum(np.abs(np.real(x)) + np.abs(np.imag(x)))


@routine
def nrm2(x):
    return np.linalg.norm(np.ravel(x))


@routine
def scal(a, x):
    return stored(a * np.asarray(x), x, True)


@routine
def axpy(x, y, *, a=1.0):
    return stored(a * np.asarray(x) + y, y, True)


@routine
def gemv(alpha, a, x, beta=0.0, y=0.0, *, trans=0, overwrite_y=0):
    return gemm(alpha, a, np.ravel(x), beta, y, trans, overwrite_c=overwrite_y)


@routine
def ger(alpha, x, y):
    return np.asfortranarray(alpha * np.outer(x, y))


@routine
def gemm(alpha, a, b, beta=0.0, c=0.0, trans_a=0, trans_b=0, overwrite_c=0):
    a, b = [(x, np.transpose(x), np.conj(np.transpose(x)))[t] for x, t in ((a, trans_a), (b, trans_b))]
    y = alpha * (a @ b)
    return stored(y + beta * c if holds_tracked((beta,), {}) or beta != 0 else y, c, overwrite_c)


def chosen(choose, names, arrays=(), *args, **kwargs):
    """The routines of these names for arrays of this precision."""
    found = choose(names, [values_of(a) for a in arrays], *args, **kwargs)
    return [LinearRoutine(f) for f in found] if isinstance(found, list) else LinearRoutine(found)
