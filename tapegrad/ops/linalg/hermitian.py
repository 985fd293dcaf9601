"""Derivatives of functions that read one triangle of a matrix (cholesky, eigh).

A matrix that is Hermitian in value and not diagonal is taken as a Hermitian matrix. Its tangent T
counts as (T + T^H) / 2, and its cotangent is Hermitian. Any other matrix represents the Hermitian
matrix of its triangle, as NumPy reads it: off-diagonal entries count twice, the other triangle not at
all. Diagonal matrices are of the second kind, because a program that fills one triangle may start with
one. The two kinds agree for a Hermitian tangent, so they differ only in derivatives of single entries.

The kind is decided from the values, for each matrix of a batch, and has no derivative."""

from math import sqrt

import numpy as np

from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..._core.variable import Variable
from ..declare import linear, primitive, rules
from ..elementwise import select
from ..products import H


def hermitian(x):
    return (x + H(x)) * 0.5


def symmetric(x):
    """Which matrices of x are Hermitian, up to rounding, and not diagonal: booleans of shape (..., 1, 1).
    On the host it is True or False if all agree. On a device, and for hidden values, the values are
    not read on the host."""
    with np.errstate(all="ignore"):
        return alike_of(x)


def alike_of(x):
    """The same without floating-point flags, for use in sweeps. Quick tests come first, for the hot path
    of a filter: equal bits; a small matrix pair by pair; entries without a zero that are near their
    opposites."""
    x = x if type(x) is np.ndarray else primal_of(x)
    if isinstance(x, Variable):
        return alike_each(x)
    n = x.shape[-1]
    if n < 2:
        return True  # both kinds agree
    if type(x) is np.ndarray and x.ndim == 2 and x.dtype.kind == "f":
        if x.item(1) and x.tobytes() == x.tobytes("F"):
            return True
        if n <= 5:
            return alike_rows(x.tolist(), tolerance(x))
        if x.item(1):
            gaps = ((x - x.T) / x).ravel()
            if gaps.dot(gaps) < tolerance(x) ** 2:
                return True
    library = xp_of(x)
    y = x.swapaxes(-1, -2).conj()
    root = library.sqrt(abs(library.diagonal(x, 0, -2, -1)))
    scale = library.maximum(abs(x), root[..., :, None] * root[..., None, :])
    # an exact zero opposite to a nonzero entry means that this triangle was never filled
    alike = (x == y) | ((x != 0) & (y != 0) & (abs(x - y) <= tolerance(x) * scale))
    some = (x != 0) & ~library.eye(n, dtype=bool)
    found = alike.all((-2, -1), keepdims=True) & some.any((-2, -1), keepdims=True)
    if library is not np:
        return found
    return True if found.all() else found if found.any() else False


@primitive(batch="matrix")
def alike_each(x):
    library = xp_of(x)
    return library.broadcast_to(library.asarray(symmetric(x)), (*x.shape[:-2], 1, 1))


def alike_rows(rows: list, bound: float) -> bool:
    """The same for one real matrix, given as lists."""
    some = False
    for i, row in enumerate(rows):
        for j in range(i):
            a, b = row[j], rows[j][i]
            if a != b:
                gap = a - b if a > b else b - a
                if not gap <= bound * (a if a > 0.0 else -a):
                    if not a or not b or not gap <= bound * sqrt(abs(row[i])) * sqrt(abs(rows[j][j])):
                        return False
                some = True
            elif a:
                some = True
    return some


def tolerance(x) -> float:
    """The relative tolerance: 8 n units of rounding."""
    return x.shape[-1] * (9.5e-7 if x.dtype.char in "fF" else 1.8e-15)


def _choose(alike, x, y):
    return y if alike is False else xp_of(x).where(alike, x, y)


def _parts(x, lower: bool) -> tuple:
    """(library, x^H, mask of the triangle that is read without its diagonal, mask of the other one)."""
    library = xp_of(x)
    mask = library.tri(x.shape[-1], k=-1, dtype=bool)
    return (
        (library, x.swapaxes(-1, -2).conj(), mask, mask.T)
        if lower
        else (library, x.swapaxes(-1, -2).conj(), mask.T, mask)
    )


@primitive(holomorphic=False, batch="matrix")
def mirrored(x, *, alike, lower):
    """The Hermitian matrix that x represents."""
    library, h, near, far = _parts(x, lower)
    return _choose(alike, (x + h) * 0.5, library.where(near, x, library.where(far, h, x.real)))


@primitive(holomorphic=False, batch="matrix")
def folded(g, *, alike, lower):
    """The adjoint of `mirrored`."""
    library, h, near, far = _parts(g, lower)
    return _choose(alike, (g + h) * 0.5, library.where(near, g + h, library.where(far, 0, g.real)))


rules(
    mirrored,
    lambda g, out, x, alike, lower: folded(g, alike=alike, lower=lower),
    jvp=linear,
)
rules(
    folded,
    lambda c, out, g, alike, lower: mirrored(c, alike=alike, lower=lower),
    jvp=linear,
)


def as_read(t, alike, lower: bool = True):
    """A tangent as the matrix counts it."""
    if isinstance(alike, Variable):
        return select(alike, hermitian(t), mirrored(t, alike=False, lower=lower))
    return hermitian(t) if alike is True else mirrored(t, alike=alike, lower=lower)


def to_read(g, alike, lower: bool = True):
    """The cotangent of the entries that are read, from that of the Hermitian matrix."""
    if isinstance(alike, Variable):
        return select(alike, g, folded(g, alike=False, lower=lower))
    return g if alike is True else folded(g, alike=alike, lower=lower)
