"""NumPy's functions of polynomial coefficients (highest power first), of sets of values, and `unwrap`."""

import numpy as np

from .._core.arrays import xp_of
from .._core.errors import SingularError
from .._core.primitive import primal_of, values_of
from .declare import NUMPY, axis_of, dtype, followed, ndim, primitive, shape, xp
from .elementwise import absolute, select
from .indexing.gathering import vstack, without_zeros
from .linalg.matrix_functions import eigvals
from .nondifferentiable import holds_somewhere
from .piecewise import floor, maximum
from .products import convolve, trace
from .reductions import cumsum
from .shaping import (
    array_operand,
    concatenate,
    conj,
    embed,
    nested_to_array,
    real,
    reshape,
    slice_of,
    zeros_like,
)
from .special.bessel import i0
from .special.declare import implements_special


def as_vector(x):
    """x as a one-dimensional array."""
    x = array_operand(x)
    return x if ndim(x) == 1 else reshape(x if hasattr(x, "shape") else np.asarray(x), to=(-1,))


@implements_special(np.poly)
def poly(seq_of_zeros):
    z = array_operand(seq_of_zeros)
    if ndim(z) == 2:
        return characteristic_polynomial(z)
    z = as_vector(z)
    library = xp(z)
    p, none = library.ones(1, np.result_type(dtype(z), 0.0)), library.zeros(1)
    for k in range(shape(z)[0]):
        p = concatenate(p, none) - concatenate(none, z[k] * p)
    if dtype(z).kind != "c" or library is not np:  # (CuPy returns complex coefficients)
        return p
    zeros = primal_of(z)
    return p if holds_somewhere(NUMPY[np.sort](zeros) != NUMPY[np.sort](conj(zeros))) else real(p)


SMALL_MATRIX_ROWS = 12  # the largest matrix for which the recursion loses no precision


def characteristic_polynomial(a):
    """The coefficients of det(x - A). The recursion c[k] = -tr(A M) / k, M <- A M + c[k]
    (Faddeev-LeVerrier) is smooth at equal eigenvalues. A large matrix takes the eigenvalues."""
    n = shape(a)[0]
    if n > SMALL_MATRIX_ROWS:
        p = poly(eigvals(a))
        return real(p) if dtype(p).kind == "c" and dtype(a).kind != "c" else p
    m = eye = xp(a).eye(n)
    found = [1.0]
    for k in range(1, n + 1):
        m = a @ m
        c = trace(m) / -k
        found.append(c)
        m = m + c * eye
    return nested_to_array(found)


polyval = NUMPY[np.polyval]
polyder, _ = [implements_special(f)(followed(f, __name__)) for f in (np.polyder, np.polyint)]


@primitive(by_values=True)
def simple_roots(p):
    """NumPy's roots. On a device, CuPy's function accepts few polynomials, so these are the eigenvalues
    of the companion matrix."""
    library = xp_of(p)
    if library is np:
        return np.roots(p)
    lead = (p != 0).argmax()  # CuPy's own function looks for it too
    p = p[int(lead) :]
    companion = library.eye(len(p) - 1, k=-1, dtype=p.dtype)
    companion[:1] = -p[1:] / p[0]
    return library.linalg.eigvals(companion) if len(p) > 1 else companion[0]


@implements_special(np.roots)
def roots(p):
    """NumPy's roots as constants, followed by two Newton steps. The steps give derivatives up to the
    third order."""
    p = as_vector(p)
    known, slope = primal_of(p), polyder(p)
    r = simple_roots(known)
    if known is p or not shape(r)[0]:
        return r
    steep = primal_of(slope)
    if holds_somewhere(absolute(polyval(steep, r)) <= 1e-10 * polyval(absolute(steep), absolute(r))):
        raise SingularError("numpy.roots: a root is multiple, and has no derivative")
    for _ in range(2):
        r = r - polyval(p, r) / polyval(slope, r)
    return r


@implements_special(np.polymul)
def polymul(a1, a2):
    return convolve(*[without_zeros(as_vector(a), "f") for a in (a1, a2)])  # as `poly1d` has them


@implements_special(np.polydiv)
def polydiv(u, v):
    u, v = as_vector(u), as_vector(v)
    n, m = shape(u)[0], shape(v)[0]
    rest, found = u + 0.0 * v[0], []
    for k in range(n - m + 1):
        q = rest[k] / v[0]
        found.append(q)
        rest = rest - embed(q * v, axis=0, start=k, size=n)
    quotient = nested_to_array(found) if found else zeros_like(v[:1])
    kept = values_of(rest[max(0, n - m + 1) :])
    first = next((k for k in range(len(kept) - 1) if abs(kept[k]) > 1e-14), max(0, len(kept) - 1))
    rest = rest[max(0, n - m + 1) + first :]
    return quotient, rest if shape(rest)[0] else zeros_like(v[:1])


@implements_special(np.kaiser)
def kaiser(M, beta):
    n = xp(beta).arange(M)
    half = (M - 1) / 2.0
    return i0(beta * np.sqrt(1 - ((n - half) / half) ** 2.0)) / i0(beta) if M > 1 else n + 1.0 + 0.0 * beta


@implements_special(np.unwrap)
def unwrap(p, discont=None, axis=-1, *, period=6.283185307179586):
    """Each element is shifted by a whole number of periods, which is a constant."""
    axis, plain, whole = axis_of(axis, ndim(p)), primal_of(p), primal_of(period)
    n = shape(p)[axis]
    d = slice_of(plain, axis=axis, start=1, stop=n) - slice_of(plain, axis=axis, start=0, stop=n - 1)
    turns = -floor((d + 0.5 * whole) / whole)
    turns = select((d + turns * whole == -0.5 * whole) & (d > 0), turns + 1.0, turns)
    if discont is not None:
        turns = select(absolute(d) < maximum(primal_of(discont), 0.5 * whole), 0.0, turns)
    turns = cumsum(embed(turns, axis=axis, start=1, size=n), axis)
    return p + turns * period


if hasattr(np, "row_stack"):
    implements_special(np.row_stack)(vstack)


for _f in (
    np.polyadd, np.polysub, np.polyfit, np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d,
    np.unique_values, np.unique_counts, np.unique_inverse, np.unique_all,
):  # fmt: skip
    implements_special(_f)(followed(_f, __name__))
