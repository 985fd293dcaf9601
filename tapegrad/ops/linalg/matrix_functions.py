"""Functions of matrices, polar factors, eigenvalues of general matrices, and matrices made from vectors."""

from collections import namedtuple
from collections.abc import Callable

import numpy as np
import scipy.linalg

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, SingularError
from ..._core.primitive import primal_of
from ..declare import NUMPY, dtype, followed, primitive, rules, shape, xp
from ..elementwise import absolute, arccos, arcsin, select
from ..indexing.gathering import diag
from ..nondifferentiable import holds_somewhere
from ..products import H, column, diagonals, matmul, row_vector
from ..shaping import concatenate, conj, real, reshape, sum
from ..special.declare import implements_special
from ..zero_derivative import argmax
from .block_matrices import of_stacks
from .decompositions import eigh, eigvalsh, pinv, qr, svd
from .equations import from_band, whole_band
from .factorizations import check_square, inv, solve
from .norms import expm, frechet, log_of, root_of, sylvester

# --- eigenvalues ---


def eigen_steps(a, v, steps: int) -> tuple:
    """Eigenvalues and eigenvectors with derivatives, from exact constant vectors v. v^-1 a v is diagonal,
    and changes with a. Each step corrects v to make it diagonal again, to twice the order. Callers
    take real parts."""
    eye = xp(a).eye(shape(a)[-1])
    for _ in range(steps):
        c = solve(v, matmul(a, v))
        d = diagonals(c)
        gaps = row_vector(d) - column(d) + eye
        v = v + matmul(v, c * (1.0 - eye) / gaps)
    return diagonals(solve(v, matmul(a, v))), v


@primitive(multi=2, batch="matrix", by_values=True)
def general_spectrum(x):
    """Eigenvalues and eigenvectors of primal values."""
    return tuple(xp_of(x).linalg.eig(x))


@primitive(batch="matrix", by_values=True)
def general_eigenvalues(x):
    return xp_of(x).linalg.eigvals(x)


@primitive(batch="matrix")
def apart(w):
    """1 for each set of distinct eigenvalues, nan for one with two that are equal up to rounding."""
    library, size, eps = xp_of(w), abs(w)[..., None], np.finfo(w.dtype).eps
    gaps = abs(w[..., :, None] - w[..., None, :]) + library.eye(w.shape[-1]) * (1.0 + size)
    largest = size.max(-2, keepdims=True) if size.size else size
    least = eps * library.maximum(450.0 * size, 4.0 * largest)
    return library.where((gaps <= least).any((-2, -1)), np.nan, 1.0)[()]


def eigen_start(name: str, a) -> tuple:
    check_square(name, a)
    w, v = general_spectrum(primal_of(a))
    if xp(a) is not np:  # no test on a device, which would synchronise: the results are nan
        return w, v * reshape(apart(w), to=(*shape(w)[:-1], 1, 1))
    if holds_somewhere(apart(w) != 1.0):
        raise SingularError(
            f"{name}: two eigenvalues are equal, and have no derivative; if the matrix is symmetric, write "
            f"eigh"
        )
    return w, v


def with_value(exact, x):
    """The numbers of exact, to their last bit, with the derivatives of x: conjugate pairs stay conjugate."""
    return exact + (x - primal_of(x))


EigResult = namedtuple("EigResult", "eigenvalues eigenvectors")


@implements_special(np.linalg.eig)
def eig(a):
    """Each eigenvector has length 1. Its largest element keeps its phase, because LAPACK makes it real."""
    if primal_of(a) is a:  # there is no derivative, and equal eigenvalues need none
        check_square("eig", a)
        return EigResult(*general_spectrum(a))
    w0, v0 = eigen_start("eig", a)
    w, v = eigen_steps(a, v0, 2)
    v = v / row_vector(sum(real(v * conj(v)), -2) ** 0.5)
    if dtype(v0).kind == "c":
        size = absolute(v0)
        largest = argmax(size, -2)
        first, was = [
            sum(select(xp(v0).arange(shape(v0)[-1])[:, None] == row_vector(largest), x, 0.0 * x), -2)
            for x in (v, v0)
        ]
        v = v * row_vector(conj(first) / absolute(first) * was / absolute(was))
    return EigResult(with_value(w0, w), with_value(v0, v))


@implements_special(np.linalg.eigvals)
def eigvals(a):
    if primal_of(a) is a:
        check_square("eigvals", a)
        return general_eigenvalues(a)
    w0, v0 = eigen_start("eigvals", a)
    return with_value(w0, eigen_steps(a, v0, 1)[0])


@implements_special(scipy.linalg.eig)
def scipy_eig(
    a,
    b=None,
    left=False,
    right=True,
    check_finite=True,
    homogeneous_eigvals=False,
):
    if left or homogeneous_eigvals:
        raise ArgumentError(
            "scipy.linalg.eig: left= and homogeneous_eigvals= are not supported on a tracked Variable"
        )
    w, v = eig(a if b is None else solve(b, a))
    return (w + 0j, v) if right else w + 0j


@implements_special(scipy.linalg.eigvals)
def scipy_eigvals(a, b=None, check_finite=True, homogeneous_eigvals=False):
    if homogeneous_eigvals:
        raise ArgumentError(
            "scipy.linalg.eigvals: homogeneous_eigvals= is not supported on a tracked Variable"
        )
    return eigvals(a if b is None else solve(b, a)) + 0j


def selected_eigenvalues(name: str, select, select_range) -> slice:
    """The slice of the requested eigenvalues, counted from the smallest."""
    if select in ("i", "index", 2):
        return slice(int(select_range[0]), int(select_range[1]) + 1)
    if select not in ("a", "all", 0):
        raise ArgumentError(
            f"scipy.linalg.{name}: select={select!r} is not supported on a tracked Variable; take a part of "
            f"all of them"
        )
    return slice(None)


@primitive()
def turns(v, *of, theirs, settings):
    """Factors that turn the eigenvectors v into those of SciPy's function: signs, or phases. On a device,
    which lacks the function, they make the largest element of each vector positive."""
    library = xp_of(v)
    if library is not np:
        largest = library.take_along_axis(v, abs(v).argmax(0)[None], 0)[0]
        return largest.conj() / abs(largest)
    product = np.sum(v.conj() * theirs(*of, **dict(settings))[1], 0)
    return product / abs(product)


def eigen_part(a, part: slice, values_only: bool, of: tuple, theirs: Callable, **settings):
    """Eigenvalues and eigenvectors of a symmetric matrix, with the signs of SciPy's function of `of`."""
    if values_only:
        return eigvalsh(a)[part]
    w, v = eigh(a)
    v = v[:, part]
    return w[part], v * turns(
        primal_of(v), *[primal_of(x) for x in of], theirs=theirs, settings=tuple(settings.items())
    )


@implements_special(scipy.linalg.eigh_tridiagonal)
@of_stacks(1, 1)
def eigh_tridiagonal(
    d, e, eigvals_only=False, select="a", select_range=None, check_finite=True, tol=0.0, lapack_driver="auto",
):  # fmt: skip
    part, a = selected_eigenvalues("eigh_tridiagonal", select, select_range), diag(d) + diag(e, -1)
    settings = {"select": select, "select_range": select_range}
    return eigen_part(a, part, eigvals_only, (d, e), scipy.linalg.eigh_tridiagonal, **settings)


@implements_special(scipy.linalg.eigvalsh_tridiagonal)
def eigvalsh_tridiagonal(
    d, e, select="a", select_range=None, check_finite=True, tol=0.0, lapack_driver="auto"
):
    return eigh_tridiagonal(d, e, True, select, select_range)


@implements_special(scipy.linalg.eig_banded)
@of_stacks(2)
def eig_banded(
    a_band, lower=False, eigvals_only=False, select="a", select_range=None, max_ev=0,
    check_finite=True
):  # fmt: skip
    part, u = selected_eigenvalues("eig_banded", select, select_range), shape(a_band)[0] - 1
    a = from_band(whole_band(a_band, lower), u, u)
    settings = {"lower": lower, "select": select, "select_range": select_range}
    return eigen_part(a, part, eigvals_only, (a_band,), scipy.linalg.eig_banded, **settings)


@implements_special(scipy.linalg.eigvals_banded)
def eigvals_banded(a_band, lower=False, select="a", select_range=None, check_finite=True):
    return eig_banded(a_band, lower, True, select=select, select_range=select_range)


# --- bases and angles ---


def full_rank(name: str, s, rcond) -> None:
    """Raise if singular values are zero or cut off: the result then jumps nearby."""
    s = primal_of(s)
    least = np.finfo(dtype(s)).eps * 8 * len(s) if rcond is None else rcond
    if holds_somewhere(s[-1:] <= least * s[:1]):
        raise SingularError(
            f"scipy.linalg.{name}: the matrix has not full rank, and the result would jump nearby"
        )


@implements_special(scipy.linalg.orth)
def orth(A, rcond=None):
    u, s, _ = svd(A, full_matrices=False)
    full_rank("orth", s, rcond)
    return u


@implements_special(scipy.linalg.null_space)
@of_stacks(2)
def null_space(A, rcond=None, *, check_finite=True, lapack_driver="gesdd"):
    """The basis that changes as little as possible (`decompositions.complement`)."""
    n, k = shape(A)
    _, s, vh = svd(A)
    full_rank("null_space", s, rcond)
    return H(vh[min(n, k) :])


@implements_special(scipy.linalg.subspace_angles)
@of_stacks(2, 2)
def subspace_angles(A, B):
    """From the cosines; small angles from the sines."""
    a, b = orth(A), orth(B)
    cosines = matmul(H(a), b)
    c = svd(cosines, compute_uv=False)
    rest = b - matmul(a, cosines) if shape(a)[1] >= shape(b)[1] else a - matmul(b, H(cosines))
    s = svd(rest, compute_uv=False)[: shape(c)[0]]
    c = c[::-1]
    small = primal_of(c) ** 2 >= 0.5
    half = 0.5 + 0.0 * c
    return select(small, arcsin(select(small, s, half)), arccos(select(small, half, c)))


@implements_special(scipy.linalg.rq)
@of_stacks(2)
def rq(a, mode="full", check_finite=True):
    """a = r q, from the QR factors of the reversed matrix, with SciPy's signs."""
    n, k = shape(a)
    if mode not in ("full", "economic", "r") or n > k or (mode != "economic" and n < k):
        raise ArgumentError(
            f"scipy.linalg.rq: mode={mode!r} of shape {(n, k)} has no derivative; a square matrix has, or "
            f"mode='economic'"
        )
    q, r = qr(H(a[::-1]))
    size = absolute(primal_of(r))
    if holds_somewhere(diagonals(size) <= np.finfo(dtype(r)).eps * n * NUMPY[np.max](size)):
        raise SingularError("scipy.linalg.rq: the matrix has not full rank, and its factors are not unique")
    r, q = H(r)[::-1, ::-1], H(q)[::-1]
    turn = signs_of_rq(primal_of(a), primal_of(r))
    r = r * row_vector(turn)
    return r if mode == "r" else (r, q * column(conj(turn)))


@primitive()
def signs_of_rq(a, r):
    """Factors of modulus 1 by which the columns of SciPy's r differ."""
    theirs = scipy.linalg.rq(a, mode="economic")[0]
    return np.diagonal(theirs) / np.diagonal(r)


# --- functions of matrices ---


@implements_special(scipy.linalg.signm)
def signm(A, disp=None):
    """A (A^2)^(-1/2)."""
    if disp is not None and not disp:
        raise ArgumentError("scipy.linalg.signm: disp=False is not supported on a tracked Variable")
    size = absolute(general_eigenvalues(primal_of(A)))
    if holds_somewhere(NUMPY[np.min](size, -1) <= 1e-7 * NUMPY[np.max](size, -1)):
        raise SingularError(
            "scipy.linalg.signm: an eigenvalue is 0 up to rounding, and its sign has no derivative"
        )
    return matmul(A, inv(root_of(matmul(A, A))))


@implements_special(scipy.linalg.fractional_matrix_power)
def fractional_matrix_power(A, t):
    check_square("fractional_matrix_power", A)
    return expm(t * log_of(A))


@implements_special(scipy.linalg.expm_frechet)
def expm_frechet(A, E, method=None, compute_expm=True, check_finite=True):
    slope = frechet(expm, A, E)
    return (expm(A), slope) if compute_expm else slope


@implements_special(scipy.linalg.pinvh)
def pinvh(a, atol=None, rtol=None, lower=True, return_rank=False, check_finite=True):
    if atol is not None or return_rank or not lower:
        raise ArgumentError(
            "scipy.linalg.pinvh: atol=, lower=False and return_rank= are not supported; symmetrise, and "
            "write pinv"
        )
    return (
        pinv(a, None, True, rtol=rtol)
        if rtol is not None
        else pinv(a, max(shape(a)) * np.finfo(dtype(a)).eps, True)
    )


@implements_special(scipy.linalg.polar)
@of_stacks(2)
def polar(a, side="right"):
    """a = u p with p = (a^H a)^(1/2), or a = p u with p = (a a^H)^(1/2)."""
    if side not in ("right", "left"):
        raise ValueError("side must be either 'right' or 'left'")
    n, k = shape(a)
    if (n < k) if side == "right" else (k < n):
        raise ArgumentError(
            f"scipy.linalg.polar: side={side!r} of shape {(n, k)} has a singular p: take the other side"
        )
    if primal_of(a) is not a:
        full_rank("polar", svd(primal_of(a), compute_uv=False), None)
    if side == "right":
        u = unitary_factor(a)
        return u, hermitian_part(matmul(H(u), a))
    u = H(unitary_factor(H(a)))
    return u, hermitian_part(matmul(a, H(u)))


def hermitian_part(x):
    return 0.5 * (x + H(x))


@primitive(holomorphic=False)
def unitary_factor(a):
    """The nearest matrix with orthonormal columns."""
    w, _, vh = xp_of(a).linalg.svd(a, full_matrices=False)
    return w @ vh


def moved_unitary_factor(t, u, a):
    """The derivative of u along t. The map is its own transpose. With p = u^H a, x = u^H du solves
    p x + x p = u^H t - t^H u. Outside of the columns of u, du is (t - u u^H t) p^-1."""
    p, m = hermitian_part(matmul(H(u), a)), matmul(H(u), t)
    x = sylvester(p, p, m - H(m))
    moved = matmul(u, 0.5 * (x - H(x)))
    n, k = shape(a)
    return moved if n == k else moved + H(solve(p, H(t - matmul(u, m))))


rules(
    unitary_factor,
    moved_unitary_factor,
    jvp=lambda t, out, a: moved_unitary_factor(t[0], out, a),
)


@implements_special(scipy.linalg.orthogonal_procrustes)
@of_stacks(2, 2)
def orthogonal_procrustes(A, B, check_finite=True):
    u, p = polar(matmul(H(A), B))
    return u, sum(diagonals(p))


# --- matrices made of vectors ---


@implements_special(scipy.linalg.companion)
@of_stacks(1)
def companion(a):
    n = shape(a)[0]
    first = reshape(-a[1:] / a[0], to=(1, n - 1))
    return concatenate(first, xp(a).eye(n - 2, n - 1, dtype=np.result_type(dtype(a), 0.0)))


@implements_special(scipy.linalg.convolution_matrix)
def convolution_matrix(a, n, mode="full"):
    """The matrix of the convolution of a with vectors of n elements."""
    k = shape(a)[0]
    low, high = {"full": (0, n + k - 1), "same": ((min(n, k) - 1) // 2, (min(n, k) - 1) // 2 + max(n, k)),
                 "valid": (min(n, k) - 1, max(n, k))}[mode]  # fmt: skip
    at = np.arange(low, high)[:, None] - np.arange(n)
    return a[np.clip(at, 0, k - 1)] * xp(a).asarray((at >= 0) & (at < k))


for _f in (
    scipy.linalg.cosm, scipy.linalg.sinm, scipy.linalg.tanm, scipy.linalg.coshm, scipy.linalg.sinhm,
    scipy.linalg.tanhm, scipy.linalg.hankel, scipy.linalg.fiedler, scipy.linalg.fiedler_companion,
    scipy.linalg.diagsvd, scipy.linalg.cdf2rdf, scipy.linalg.leslie, scipy.linalg.khatri_rao,
):  # fmt: skip
    implements_special(_f)(followed(_f, __name__))
