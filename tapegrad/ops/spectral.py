"""Spectral and orthogonal decompositions: eigh, svd, qr, and what is composed of them: pinv, lstsq.

Equal eigenvalues.  A smooth function of a Hermitian matrix, written with its eigenvectors, depends on them only up to a
rotation within each eigenspace.  Its reverse rule divides K, the anti-Hermitian part of V^H V', by differences of eigenvalues;
for equal ones this is 0/0, whose limit is dK/d(w_j - w_i) and cannot be found from K alone: sum(V exp(w) V^T) at the identity
needs exp(w), the derivative of what multiplied V.  So where eigenvalues meet, `eigh` returns w + eta k: eta is an infinitesimal
below all transforms (forward mode of level 1/2), k differs between equal eigenvalues, and whatever is computed from w carries
its first order in eta along.  The rule then finds K = eta K1 and divides by eta (k_j - k_i), exactly.  In forward mode the
eigenvectors are instead turned within the eigenspace until the tangent is diagonal there.  If K does not vanish, or a further
derivative is asked for, there is no answer: nan and a RuntimeWarning.

Sources: Giles (2008); Wan & Zhang, "Automatic differentiation for complex valued SVD" (2019)."""

import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import scipy.linalg

from .._array import xp_of
from .._dual import Dual
from .._primitive import Ended, Trace, bind, live, plain
from .._tape import Tape
from .._variable import Variable, variable
from ..errors import ArgumentError
from ._define import dtype, implements, ndim, primitive, rules, shape, xp
from .elementwise import over0
from .linalg import cholesky, hermitian, matrices, solve, solve_triangular, square, triangle
from .products import H, column, diagonals, matmul, row, two, with_diagonals
from .shaping import concatenate, conj, real, reshape, slice_of, sum

# --- division by differences of eigenvalues ---


class Infinitesimal(Dual, Ended):
    """Forward mode in eta, below every transform.  Results are read without it, like those of an ended transform."""

    __slots__ = ()

    def apply(self, prim, args, params):
        return quotient_in_eta(self, *args) if prim is quotient.prim else Dual.apply(self, prim, args, params)


ETA = Infinitesimal()
ETA.level = 0.5


@primitive(holomorphic=False)
def quotient(k, w):
    """k_ij / (w_j - w_i) for anti-Hermitian k, zero on the diagonal."""
    return divided(k, None, w, None)


def quotient_in_eta(eta, k, w):
    """The same, to order 0 in eta: what the rules of eigh and svd ask for."""
    (k0, k1), (w0, w1) = [(a._value, a._slot) if isinstance(a, Variable) and a._trace is eta else (a, None) for a in (k, w)]
    return divided(k0, k1, w0, w1)


def divided(k, k1, w, w1):
    library = xp_of(k)
    gap = w[..., None, :] - w[..., :, None]
    close = abs(gap) <= tolerance(w)[..., None, None]
    scale = abs(k).max((-2, -1), initial=0)[..., None, None] if k.size else 0
    q = library.where(close, 0, k) / library.where(close, 1, gap)
    rounding = 1e3 * np.finfo(w.dtype).eps
    if w1 is not None:
        step = w1[..., None, :] - w1[..., :, None]
        met = close & (step != 0)
        q = library.where(met, (0 if k1 is None else k1) / library.where(met, step, 1), q)
        scale = library.maximum(scale, abs(k1).max((-2, -1), initial=0)[..., None, None]) if k1 is not None and k.size else scale
        lost = close & (abs(k) > rounding * scale)
    else:
        lost = close & (abs(k) > rounding * scale)
    if library is np and lost.any():
        warnings.warn(
            "the derivative of eigenvectors or singular vectors was asked for where it does not exist: eigenvalues are equal, "
            "or the function depends on the sign or phase of a vector; it is nan",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip
    return library.where(lost, np.nan, q).astype(k.dtype, copy=False)


def tolerance(w):
    """Eigenvalues that differ by less count as equal."""
    return 1e-8 * abs(w).max(-1, initial=0) if w.dtype.itemsize == 8 else 1e-4 * abs(w).max(-1, initial=0)


@primitive(holomorphic=False)
def quotient_of_gaps(k, w):
    """k_ij / (w_j - w_i)^2 for the derivative of `quotient` in w; nan where eigenvalues are equal and k is not zero."""
    gap = w[..., None, :] - w[..., :, None]
    close = abs(gap) <= tolerance(w)[..., None, None]
    library = xp_of(k)
    return library.where(close, library.where(k == 0, 0, np.nan), k / library.where(close, 1, gap * gap))


def _gaps(w):
    return row(w) - column(w)
