"""Matrices of which one triangle is read (cholesky, eigh): what their derivative is.

A matrix that is Hermitian in value and not diagonal stands for itself: a tangent T is taken as (T + T^H) / 2, and cotangents come
Hermitian.  Any other one stands for the Hermitian matrix that its triangle makes, as NumPy reads it: off-diagonal entries count
twice, the other triangle not at all.  A diagonal one is of the second kind, for a program that fills one triangle passes through
it.  Where the tangent is Hermitian the two agree, so it matters only to who looks at single entries.

Which kind a matrix is, is a constant of its value, one for each matrix of a batch."""

from math import sqrt
from typing import Any

import numpy as np

from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..._core.variable import Variable
from ..declare import primitive, rules
from ..elementwise import select
from ..products import H


def hermitian(x: Any) -> Any:
    return (x + H(x)) * 0.5


def symmetric(x: Any) -> Any:
    """Which matrices of x are Hermitian, to rounding, and not diagonal: booleans of shape (..., 1, 1).  On the host True or False if
    it is the same for all; on a device, and where a trace hides the values, it is not looked at."""
    with np.errstate(all="ignore"):
        return alike_of(x)


def alike_of(x: Any) -> Any:
    """The same where flags of NumPy's are ignored, as in a sweep.  Short tests first, for the hot path of a filter: the same bits; a
    small matrix pair by pair; entries without a zero that are near their opposites."""
    x = x if type(x) is np.ndarray else primal_of(x)
    if isinstance(x, Variable):
        return alike_each(x)
    n = x.shape[-1]
    if n < 2:
        return True  # the two kinds are the same
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
    # an entry that is exactly zero opposite to one that is not was never filled
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
    """The same of one real matrix, given as lists."""
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


def tolerance(x: Any) -> float:
    """8 n units of rounding."""
    return x.shape[-1] * (9.5e-7 if x.dtype.char in "fF" else 1.8e-15)


def _choose(alike: Any, x: Any, y: Any) -> Any:
    return y if alike is False else xp_of(x).where(alike, x, y)


def _parts(x: Any, lower: bool) -> tuple:
    """(library, x^H, mask of the triangle that is read, without the diagonal, mask of the other)."""
    library = xp_of(x)
    mask = library.tri(x.shape[-1], k=-1, dtype=bool)
    return (library, x.swapaxes(-1, -2).conj(), mask, mask.T) if lower else (library, x.swapaxes(-1, -2).conj(), mask.T, mask)


@primitive(holomorphic=False, batch="matrix", total=True)
def mirrored(x, *, alike, lower):
    """The Hermitian matrix that x stands for."""
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
    jvp=lambda t, out, x, alike, lower: mirrored(t[0], alike=alike, lower=lower),
)
rules(
    folded,
    lambda c, out, g, alike, lower: mirrored(c, alike=alike, lower=lower),
    jvp=lambda t, out, g, alike, lower: folded(t[0], alike=alike, lower=lower),
)


def as_read(t: Any, alike: Any, lower: bool = True) -> Any:
    """A tangent as it is taken."""
    if isinstance(alike, Variable):
        return select(alike, hermitian(t), mirrored(t, alike=False, lower=lower))
    return hermitian(t) if alike is True else mirrored(t, alike=alike, lower=lower)


def to_read(g: Any, alike: Any, lower: bool = True) -> Any:
    """The cotangent of the entries that are read, from that of the Hermitian matrix: Hermitian too."""
    if isinstance(alike, Variable):
        return select(alike, g, folded(g, alike=False, lower=lower))
    return g if alike is True else folded(g, alike=alike, lower=lower)
