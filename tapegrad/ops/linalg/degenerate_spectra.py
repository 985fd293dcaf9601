"""The rules of eigh and svd at equal eigenvalues: divisions by their differences, and the choice of
vectors.

A smooth function of a Hermitian matrix may be written with its eigenvectors. It depends on them only
up to a rotation within each eigenspace. Its reverse rule divides K, the anti-Hermitian part of V^H V',
by differences of eigenvalues. At equal ones this is 0/0. The limit dK/d(w_j - w_i) cannot be found
from K alone: sum(V exp(w) V^T) at the identity needs exp(w), the derivative of exp.

So where eigenvalues are equal, `eigh` returns w + eta k. Here eta is an infinitesimal below all
transforms (forward mode of level 1/2), and k differs between equal eigenvalues. Every function of w
carries its first order in eta along. The rule then finds K = eta K1 and divides by eta (k_j - k_i),
exactly. In forward mode the eigenvectors are instead rotated within the eigenspace until the tangent
is diagonal there. If K does not vanish, or a further derivative is needed, the derivative does not
exist: the result is nan, with a RuntimeWarning.

A function that depends on the choice of vectors within an eigenspace has no derivative either. To
detect this, `eigh` returns the vectors V (1 + eps R). Here eps is a second infinitesimal, and R is
anti-Hermitian and mixes equal eigenvalues only. A function independent of the choice has a cotangent
V' that rotates with V, so V' (1 + eps R)^H is free of eps. In forward mode, its value and tangent are
free of eps.

A single one of several equal eigenvalues has no derivative, but subgradients, like a tie of maxima.
Reverse mode returns one of them, forward mode the derivative along the tangent."""

import functools
import math
from typing import Any

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import BatchError
from ..._core.forward import Dual
from ..._core.primitive import RECORDED, TransparentTrace, layout_of, live, primal_of, values_of
from ..._core.reverse import Tape
from ..._core.variable import Variable, View, variable
from ..declare import ndim, primitive, rules, same
from ..elementwise import absolute, over0, select
from ..nondifferentiable import warn_user
from ..products import H, column, matmul, row_vector
from ..shaping import conj, real, sum
from .hermitian import hermitian


class EmptyRecords(list):
    """A list that stays empty. Handles that rise to eta are read without it anyway."""

    def append(self, x):
        pass


class SplittingTrace(Dual, TransparentTrace):
    """Forward mode in eta, below every transform. As with an ended transform, results are read without
    eta."""

    __slots__ = ()

    def apply(self, prim, args, params):
        if prim is quotient.prim or prim is limit_over.prim:
            (m, m1), (w, w1) = [
                (a._value, a._slot) if isinstance(a, Variable) and a._trace is self else (a, None)
                for a in args
            ]
            if prim is quotient.prim:
                return divided(anti(m), abs(m), w, None if m1 is None else anti(m1), w1)
            if w1 is None:
                return limit_over(m, w)
            if m1 is None:
                return over0(m, w)
            zero = (m == 0) & (w == 0)
            return over0(select(zero, m1, m), select(zero, w1, w))
        if prim is without_eta.prim:
            return args[0]._value
        if prim is steady.prim:  # the first order in eta rotates with the vectors in any case
            return variable(steady(args[0]._value, **params), self, at_rest(args[0]._slot))
        return Dual.apply(self, prim, args, params)


class GaugeTrace(Dual, TransparentTrace):
    """Forward mode in eps, a rotation of the vectors of equal eigenvalues, below every transform and
    below eta."""

    __slots__ = ()

    def apply(self, prim, args, params):
        if prim is steady.prim:
            x, e, part = args[0]._value, args[0]._slot, params["part"]
            if part == "none" or (part == "tangent" and self is TURN) or not x.size:
                return x
            return x * spoilt(largest_modulus(x), largest_modulus(anti(e) if part == "anti" else e))
        return Dual.apply(self, prim, args, params)


ETA, TURN, REST = SplittingTrace(), GaugeTrace(), GaugeTrace()
ETA.level, ETA.risen = 0.5, EmptyRecords()
TURN.level, TURN.risen = 0.25, EmptyRecords()
REST.level, REST.risen = 0.125, EmptyRecords()


@primitive(holomorphic=False, aliases=True, batch="elementwise")
def steady(x, *, part="all"):
    """x without eps; nan if it depends on eps. `part` names the part that must not depend on it. "anti":
    the anti-Hermitian part. "tangent": only under the rotations that the tangent leaves open, because
    x belongs to one choice of vectors. "none": nothing."""
    return x


@primitive(holomorphic=False, aliases=True, batch="elementwise")
def with_steady_cotangent(x):
    """x.  Its cotangent is nan if that depends on eps."""
    return x


@primitive(holomorphic=False, aliases=True, batch="elementwise")
def without_eta(x):
    return x


@primitive(holomorphic=False, batch="matrix")
def quotient(m, w):
    """k_ij / (w_j - w_i) for the anti-Hermitian part k of m, or its limit at equal eigenvalues. Zero on
    the diagonal."""
    return divided(anti(m), abs(m), w)


@primitive(batch="elementwise")
def limit_over(m, w):
    """m / w, or its limit where both are zero: nan where they have no first order in eta."""
    return over0(select((m == 0) & (w == 0), math.nan, m), w)


@primitive(holomorphic=False, batch="matrix")
def over_gaps(k, w):
    """k_ij / (w_j - w_i) off the diagonal. At equal eigenvalues it is zero if k is, else nan."""
    n = w.shape[-1]
    return divided(k * (1 - xp_of(k).eye(n, dtype=w.dtype)), abs(k), w)


def largest_modulus(x):
    """The largest modulus of an element in each matrix."""
    return abs(x).max((-2, -1), keepdims=True)


def spoilt(size, e):
    """1, or nan where the derivative e with respect to eps is not negligible relative to `size`."""
    library, rounding = xp_of(e), np.finfo(e.dtype).eps
    lost = abs(e) > 64 * rounding + rounding**0.5 * size
    if library is np and lost.any():
        warn_degenerate()
    return library.where(lost, np.nan, 1.0).astype(abs(e).dtype)


def at_rest(x):
    """x without eps."""
    while isinstance(x, Variable) and isinstance(x._trace, GaugeTrace):
        x = x._value
    return x


def infinitesimal_parts(x) -> tuple:
    """(plain value of x, its derivatives with respect to both eps), with None for missing ones."""
    x, found = live(x) if type(x) is View else x, {}
    x = x._value if type(x) is View else x
    while isinstance(x, Variable):
        found[x._trace] = x._slot
        x = x._value
    return x, found.get(TURN), found.get(REST)


def free_of_gauge(value: Any, tangent: Any) -> Any:
    """A tangent from forward mode. It is nan if it depends on the choice of vectors of equal eigenvalues,
    or if the value does, which would make it infinite."""
    if not (isinstance(value, Variable) or isinstance(tangent, Variable)):
        return tangent
    (v, *dv), (t, _, dt) = infinitesimal_parts(value), infinitesimal_parts(tangent)
    for e in (*dv, dt):
        e = values_of(at_rest(e))
        if e is not None and e.size:
            tangent = tangent * spoilt(abs(v).max() + abs(t).max(), e)
    return tangent


@functools.cache
def random_matrix(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, n))


def turning(same, eps: GaugeTrace, d):
    """1 + eps R for vectors of dtype d, where R mixes vectors marked as `same`."""
    library, n = xp_of(same), same.shape[-1]
    r = random_matrix(n) - random_matrix(n).T
    if d.kind == "c":
        r = r + 0.5j * (random_matrix(n) + random_matrix(n).T)
    one = library.eye(n, dtype=d) + library.zeros(same.shape, d)
    off = same & ~library.eye(n, dtype=bool)
    return variable(one, eps, library.where(off, library.asarray(r, d), library.zeros((), d)))


def vector_rotations(w, alike, d):
    """The rotations of vectors of equal eigenvalues: all of them, and those under which the tangent is
    unchanged."""
    turn = turning(equal_pairs(w), TURN, d)
    return turn if alike is None else matmul(turn, turning(alike, REST, d))


def anti(m):
    return (m - H(m)) * 0.5


def divided(k, size, w, k1=None, w1=None):
    """k / gaps. At equal eigenvalues k1 / gaps of w1, the first orders in eta. nan where k does not
    vanish with the gap."""
    library = xp_of(k)
    gap = w[..., None, :] - w[..., :, None]
    if (
        type(k) is np.ndarray
        and k.ndim == 2
        and k.dtype.kind == "f"
        and k1 is None
        and is_simple(w)
        and not k.diagonal().any()
    ):
        gap.reshape(-1)[:: len(w) + 1] = 1
        return k / gap
    close, rounding = equal_pairs(w), 100 * np.finfo(w.dtype).eps * max(w.shape[-1], 10)
    scale = size.max((-2, -1), keepdims=True) if k.size else 0
    q = library.where(close, 0, k) / library.where(close, 1, gap)
    if k1 is not None and w1 is not None:
        step = w1[..., None, :] - w1[..., :, None]
        q = library.where(close & (step != 0), k1 / library.where(step != 0, step, 1), q)
    lost = close & (abs(k - gap * q) > rounding * scale)
    if library is np and lost.any():
        warn_degenerate()
    return library.where(lost, np.nan, q).astype(k.dtype, copy=False)


def closeness(w) -> float:
    return 2e-8 if w.dtype.itemsize == 8 else 1e-3


def is_simple(w: np.ndarray) -> bool:
    """Are these values monotone, with no two that count as equal? (A quick test for the usual case.)"""
    steps, bound = w[1:] - w[:-1], closeness(w) * max(abs(w[0]), abs(w[-1]))
    return steps.size > 0 and bool(steps.min() > bound or steps.max() < -bound)


def equal_pairs(w):
    """Which pairs of eigenvalues count as equal: in float64 those that differ by less than 2e-8 of the
    largest."""
    bound = closeness(w) * (abs(w).max(-1) if w.shape[-1] else w.sum(-1))
    return abs(w[..., None, :] - w[..., :, None]) <= bound[..., None, None]


def _by_w(h):
    """The cotangent of w, given that of its differences w_j - w_i."""
    n = ndim(h)
    return sum(h, n - 2) - sum(h, n - 1)


def _gaps(w):
    return row_vector(w) - column(w)


def _over_gaps_w(g, q, w):
    return -_by_w(over_gaps(real(conj(g) * q), w))


def over_gaps_of(t: tuple, out, w):
    """The tangent of q = k / gap: dq = (dk - q dgap) / gap."""
    k = t[0]
    if t[1] is not None:
        d = without_eta(out) * _gaps(without_eta(t[1]))
        k = -d if k is None else without_eta(k) - d
    return over_gaps(without_eta(k), without_eta(w))


rules(without_eta, lambda g, out, x: without_eta(g), jvp=lambda t, out, x: without_eta(t[0]))
rules(
    steady,
    lambda g, out, x, part: steady(g, part="none"),
    jvp=lambda t, out, x, part: steady(t[0], part="tangent"),
)
rules(with_steady_cotangent, lambda g, out, x: steady(g), jvp=lambda t, out, x: t[0])
rules(
    over_gaps,
    lambda g, out, k, w: over_gaps(without_eta(g), without_eta(w)),
    lambda g, out, k, w: _over_gaps_w(without_eta(g), out, without_eta(w)),
    jvp=lambda t, out, k, w: over_gaps_of(t, out, w),
)
rules(
    limit_over,
    lambda g, out, m, w: over0(without_eta(g), without_eta(w)),
    lambda g, out, m, w: -over0(without_eta(g) * out, without_eta(w)),
    jvp=same,
)
rules(
    quotient,
    lambda g, out, m, w: anti(over_gaps(without_eta(g), without_eta(w))),
    lambda g, out, m, w: _over_gaps_w(without_eta(g), out, without_eta(w)),
    jvp=lambda t, out, m, w: _quotient_jvp(t, out, m, w),
)


@primitive(batch="matrix")
def unknown(m, w):
    """nan at equal eigenvalues, unless m is zero there. The derivative of the limit would need a second
    order."""
    library = xp_of(m)
    lost = equal_pairs(w) & ~library.eye(w.shape[-1], dtype=bool) & (m != 0).any((-2, -1), keepdims=True)
    if library is np and lost.any():
        warn_degenerate()
    return library.where(lost, np.nan, 0.0).astype(w.dtype)


def warn_degenerate():
    warn_user(
        "a derivative of eigenvectors or singular vectors that does not exist, or that tapegrad cannot "
        "find: eigenvalues are equal, or the function depends on the sign or phase of a vector; it is nan",
        RuntimeWarning,
    )


def _quotient_jvp(t, out, m, w):
    d = over_gaps_of((None if t[0] is None else anti(t[0]), t[1]), out, w)
    return d + unknown(without_eta(m if t[0] is None else absolute(m) + absolute(t[0])), without_eta(w))


def hidden(w) -> bool:
    """Does a trace hide the eigenvalues? Then equal ones cannot be detected. Derivatives that need eta,
    or a rotation of the vectors, are nan."""
    return isinstance(primal_of(w), Variable)


@primitive(batch="matrix")
def has_zero_values(w):
    """Are any of these values zero?"""
    return (w == 0).any(-1)


@primitive(batch="matrix")
def has_close_values(w):
    """Are any of these values, which are sorted, equal?"""
    if w.shape[-1] < 2:
        return w.sum(-1) != w.sum(-1)
    ends = abs(w[..., :: w.shape[-1] - 1]).max(-1)
    return abs(w[..., 1:] - w[..., :-1]).min(-1) <= closeness(w) * ends


def end_recording_of_equal_values(a, w, vectors: bool, zeros: bool = False) -> None:
    """Raise in a recording if some eigenvalues of a are equal, and a derivative must know that. The call
    then runs plainly. A replay compares, and departs once some are equal. Reverse mode of the values alone
    needs no such knowledge. `zeros`: so where some are zero."""
    if not isinstance(w, Variable) or w._trace is None or w._trace.visibility != RECORDED:
        return
    followed = False
    while isinstance(a, Variable) and a._trace is not w._trace:
        followed = followed or isinstance(a._trace, Dual) or (vectors and isinstance(a._trace, Tape))
        a = a._value
    if not followed:
        return
    asked = [f(w) for f in (has_close_values, has_zero_values)[: 1 + zeros]]
    if any([bool(found.any() if ndim(found) else found) for found in asked]):
        raise BatchError("derivatives at equal eigenvalues or singular values are not recorded")


def lost_by(e, w) -> tuple:
    """Terms to add to the slopes of the eigenvalues w, and to the rotation of their vectors: nan where
    some are equal and e is not zero."""
    lost = unknown(e, w)
    return sum(lost, ndim(lost) - 1), lost


def levels(a) -> tuple:
    """(does a tape watch a?, the outermost tangent of a or None)."""
    layout_of(a)
    taped, tangent = False, None
    while isinstance(a, Variable):
        taped = taped or isinstance(a._trace, Tape)
        if isinstance(a._trace, Dual) and tangent is None:
            tangent = a._slot
        a = a._value
    return taped, None if tangent is None else values_of(tangent)


def rotate_equal_vectors(e, w) -> tuple:
    """(unitary matrix, mask). The matrix mixes equal eigenvalues only, and makes the Hermitian tangent e
    diagonal among them. The mask holds the pairs that e leaves equal. These are rotated at random,
    because no choice of vectors is preferred."""
    library, same = xp_of(e), equal_pairs(w)
    r = diagonalising(e, same)
    slopes = library.diagonal(H(r) @ e @ r, 0, -2, -1).real
    alike = same & (abs(slopes[..., None, :] - slopes[..., :, None]) <= closeness(w) * largest_modulus(e))
    random = library.asarray(random_matrix(w.shape[-1]) + random_matrix(w.shape[-1]).T, e.dtype)
    return r @ diagonalising(random, alike), alike


def diagonalising(e, same):
    """A unitary matrix that mixes only neighbours marked as `same` and makes the Hermitian e diagonal
    among them. The blocks of e are diagonalised together, after each is shifted by its own multiple of
    the identity."""
    library = xp_of(e)
    e = library.where(same, e, 0)
    block = library.cumsum(
        ~library.concatenate([library.ones_like(same[..., :1, 0]), library.diagonal(same, 1, -2, -1)], -1), -1
    )
    shift = block * (4 * library.sqrt((abs(e) ** 2).sum((-2, -1))))[..., None]
    r = library.linalg.eigh(e + library.eye(e.shape[-1], dtype=shift.dtype) * shift[..., None, :])[1]
    d = library.diagonal(r, 0, -2, -1)
    phase = library.where(abs(d) > 0, d, 1) / library.where(abs(d) > 0, abs(d), 1)
    return library.where(same, r, 0) * phase.conj()[..., None, :]


def splitting(w):
    """Numbers that differ between equal eigenvalues, with mean zero among them."""
    same, at = equal_pairs(w).astype(w.dtype), xp_of(w).arange(w.shape[-1], dtype=w.dtype)
    return at - same @ at / same.sum(-1)


def choices_among_equals(a, w, project, d, sums: bool = False) -> tuple:
    """(numbers that split equal values w of the matrix a; the rotation of their vectors, of dtype d; the
    rotation that makes the tangent diagonal among them), with None for what is not needed. The Hermitian
    part of `project(tangent)` is the tangent between the vectors. `sums`: the numbers split zeros from their
    opposites, too."""
    if hidden(w):
        return None, None, None
    equal, zero = has_equal_values(w), (w == 0) & sums
    taped, tangent = levels(a)
    split = splitting(w) + zero.astype(w.dtype) * w.shape[-1] if taped and (equal or zero.any()) else None
    if not (equal and (taped or tangent is not None)):
        return split, None, None
    r, alike = (None, None) if tangent is None else rotate_equal_vectors(hermitian(project(tangent)), w)
    return split, vector_rotations(w, alike, d), r


def split_eigenvalues(w, split):
    """w + eta split."""
    return w if split is None else w + variable(split * 0, ETA, split)


def has_equal_values(w) -> bool:
    """Are any eigenvalues equal? (True on a device, to avoid synchronising.)"""
    if type(w) is np.ndarray and w.shape[-1] > 1 and w.ndim == 1 and is_simple(w):
        return False
    return w.shape[-1] > 1 and (
        xp_of(w) is not np or bool((equal_pairs(w).sum((-2, -1)) > w.shape[-1]).any())
    )
