"""Schur, QZ, Hessenberg and LDL factors, updates of QR, and functions of matrices through their
eigenvalues.

A factorisation leaves signs, phases, rotations in a plane and the order of eigenvalues open. All
follow SciPy: its factors are constants, and the factors with derivatives are rotated to them by
constants."""

from typing import Any

import numpy as np
import scipy.linalg

from ..._core.errors import ArgumentError, SingularError
from ..._core.primitive import primal_of, values_of
from ..declare import dtype, primitive, shape, takes_lists
from ..elementwise import arctan, cos, sin, sqrt
from ..indexing.gathering import diag, without
from ..piecewise import arctan2
from ..products import H, column, diagonals, matmul, row_vector
from ..shaping import concatenate, conj, embed, real, reshape, sum
from ..special.declare import host_only, implements_special
from .block_matrices import block_diag, of_stacks
from .decompositions import complement, qr, scipy_qr, svd, svdvals
from .factorizations import check_square, inv, solve, triangle
from .matrix_functions import eig, eigen_steps
from .norms import expm, frechet, scipy_norm


def values(name: str, *xs) -> list:
    host_only(f"scipy.linalg.{name}", *xs)
    return [np.asarray(values_of(x)) for x in xs]


def rotate_columns(q, like: np.ndarray):
    """The orthonormal q, with each column multiplied by the constant of modulus 1 that brings its values
    to those of `like`."""
    return q * phases(q, like)


def phases(q, like: np.ndarray):
    """The constants of modulus 1 by which the columns of q differ from those of `like`."""
    phase = (primal_of(q).conj() * like).sum(0)
    return phase / abs(phase)


# --- Schur and QZ, by the eigenvectors ---


def eigenvectors(name: str, t: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The eigenvectors of z t z^H with upper triangular t, in the order of t."""
    w, n = np.diagonal(t), len(t)
    gaps = abs(w[:, None] - w) + np.eye(n) * (1.0 + abs(w).max(initial=0.0))
    if (gaps <= 1e-12 * abs(w).max(initial=0.0)).any():
        raise SingularError(
            f"scipy.linalg.{name}: two eigenvalues are equal, and the factors have no derivative"
        )
    v = np.eye(n, dtype=t.dtype)
    for k in range(1, n):
        v[:k, k] = scipy.linalg.solve_triangular(t[:k, :k] - w[k] * np.eye(k), -t[:k, k])
    return z @ (v / np.linalg.norm(v, axis=0))


def block_starts(t: np.ndarray) -> list:
    """The first rows of the 2 x 2 blocks of a real Schur form."""
    return [k for k in range(len(t) - 1) if t[k + 1, k] != 0]


def real_basis(v, t: np.ndarray):
    """The real and imaginary part of the first vector of each conjugate pair."""
    n = len(t)
    parts = np.eye(n, dtype=complex)
    for k in block_starts(t):
        parts[k : k + 2, k : k + 2] = [[1.0, -1j], [0.0, 0.0]]
    return real(matmul(v, parts))


def standard(b, z, t: np.ndarray):
    """z rotated in the planes of pairs, so that the two diagonal elements of z^T b z are equal."""
    n, pairs = len(t), block_starts(t)
    if not pairs:
        return z
    m, turn = matmul(H(z), matmul(b, z)), np.eye(n)
    for k in pairs:
        if abs(t[k, k + 1] + t[k + 1, k]) <= 1e-12 * abs(t[k, k + 1]):
            raise SingularError(
                "scipy.linalg.schur: of a pair of eigenvalues any basis is standard, so the factors have no "
                "derivative; write output='complex'"
            )
        p, q, r, s = m[k, k], m[k, k + 1], m[k + 1, k], m[k + 1, k + 1]
        angle = -0.5 * arctan((p - s) / (q + r))
        first, last = [np.zeros((n, n)) for _ in range(2)]
        first[k, k] = first[k + 1, k + 1] = last[k + 1, k] = 1.0
        last[k, k + 1] = -1.0
        rest = np.eye(n) - np.diag(np.diag(first))
        turn = matmul(turn, cos(angle) * first + sin(angle) * last + rest)
    return matmul(z, turn)


def triangular_structure(t: np.ndarray) -> np.ndarray:
    """1 where a quasi-triangular matrix may be nonzero."""
    return np.triu(np.ones(t.shape)) + np.diag(np.diagonal(t, -1) != 0, -1)


@implements_special(scipy.linalg.schur)
@of_stacks(2)
def schur(a, output="real", sort=None, check_finite=True):
    check_square("schur", a)
    (plain,) = values("schur", a)
    t, z, *dimension = scipy.linalg.schur(plain, output, sort=sort)
    if t.dtype.kind == "c" or not block_starts(t):
        v = eigen_steps(a, eigenvectors("schur", t, z), 2)[1]
        z = rotate_columns(qr(v).Q, z)
    else:
        upper, whole = scipy.linalg.rsf2csf(t, z)
        near = qr(real_basis(eigen_steps(a, eigenvectors("schur", upper, whole), 2)[1], t)).Q
        turn = np.asarray(values_of(near)).T @ z  # a rotation within blocks, up to rounding
        z = standard(a, matmul(near, turn * (triangular_structure(t) * triangular_structure(t.T))), t)
    return matmul(H(z), matmul(a, z)) * triangular_structure(t), z, *dimension


@primitive(multi=3)
def scipy_qz(a, b, *, name, settings):
    """SciPy's Q and Z of primal values, and the eigenvectors of b^-1 a in their order."""
    aa, bb, *_, q, z = getattr(scipy.linalg, name)(a, b, *settings)
    if aa.dtype.kind != "c" and block_starts(aa):
        raise ArgumentError(
            f"scipy.linalg.{name}: of complex eigenvalues with output='real' has no derivative; write "
            f"output='complex'"
        )
    return q, z, eigenvectors(name, np.triu(np.linalg.solve(bb, aa)), z)


def generalised(name: str, a, b, *settings) -> tuple:
    host_only(f"scipy.linalg.{name}", a, b)
    q, z, v = scipy_qz(primal_of(a), primal_of(b), name=name, settings=settings)
    z = rotate_columns(qr(eigen_steps(solve(b, a), v, 2)[1]).Q, z)
    q = rotate_columns(qr(matmul(b, z)).Q, q)
    return tuple([triangle(matmul(H(q), matmul(m, z)), lower=False) for m in (a, b)]) + (q, z)


@implements_special(scipy.linalg.qz)
@of_stacks(2, 2)
def qz(A, B, output="real", sort=None, check_finite=True):
    return generalised("qz", A, B, output)


@implements_special(scipy.linalg.ordqz)
def ordqz(A, B, sort="lhp", output="real", check_finite=True):
    aa, bb, q, z = generalised("ordqz", A, B, sort, output)
    return aa, bb, diagonals(aa) + 0j, diagonals(bb), q, z


@implements_special(scipy.linalg.rsf2csf)
def rsf2csf(T, Z, check_finite=True):
    """One plane rotation for each pair, from below. The order of the eigenvalues is LAPACK's."""
    t, z, n = T + 0j, Z + 0j, shape(T)[0]
    for m in range(n - 1, 0, -1):
        (plain,) = values("rsf2csf", t)
        if abs(plain[m, m - 1]) <= np.finfo(float).eps * (abs(plain[m - 1, m - 1]) + abs(plain[m, m])):
            continue
        p, q, r, s = t[m - 1, m - 1], t[m - 1, m], t[m, m - 1], t[m, m]
        half = 0.5 * (p - s)
        root = sqrt(half * half + q * r)
        first = np.linalg.eigvals(plain[m - 1 : m + 1, m - 1 : m + 1])[0] - plain[m, m]
        near = values_of(half)
        sign = 1.0 if abs(near + values_of(root) - first) < abs(near - values_of(root) - first) else -1.0
        mu = half + sign * root
        length = sqrt(real(mu * conj(mu)) + real(r * conj(r)))
        c, d = mu / length, r / length
        e = np.eye(n)
        place = lambda i, j, e=e: np.outer(e[i], e[j])
        rest = e - place(m - 1, m - 1) - place(m, m)
        g = conj(c) * place(m - 1, m - 1) + d * place(m - 1, m) - d * place(m, m - 1) + c * place(m, m) + rest
        t, z = matmul(g, matmul(t, H(g))), matmul(z, H(g))
    return triangle(t, lower=False), z


# --- Hessenberg form, balance, LDL ---


@implements_special(scipy.linalg.hessenberg)
@of_stacks(2)
def hessenberg(a, calc_q=False, check_finite=True):
    """Householder's reflections 1 - tau w w^H with w[0] = 1, as LAPACK chooses them."""
    check_square("hessenberg", a)
    n = shape(a)[0]
    h, q, given = a * 1.0, np.eye(n), np.asarray(values_of(a))
    least = n * np.finfo(given.dtype).eps * abs(given).max(initial=0)
    for k in range(n - 1):
        x = h[k + 1 :, k]
        plain = np.asarray(values_of(x))
        if not plain[1:].any() and not plain[0].imag:
            if k < n - 2:  # with another column, a reflection changes signs
                h, q = [without(m, x[1:]) for m in (h, q)]
            continue
        if abs(plain).max() <= least:
            raise SingularError(
                "scipy.linalg.hessenberg: a column is zero up to rounding; Q has no derivative"
            )
        beta = -np.copysign(1.0, plain[0].real) * sqrt(sum(real(x * conj(x))))
        w = concatenate(np.ones(1), x[1:] / (x[0] - beta))
        tau = (beta - x[0]) / beta
        w = embed(w, axis=0, start=k + 1, size=n)
        p = np.eye(n) - tau * column(w) * conj(w)
        h, q = matmul(H(p), matmul(h, p)), matmul(q, p)
    h = triangle(h, lower=False) + diag(diag(h, -1), -1) if n > 1 else h
    return (h, q) if calc_q else h


@implements_special(scipy.linalg.matrix_balance)
def matrix_balance(A, permute=True, scale=True, separate=False):
    """Permutations and powers of two; both are constants."""
    plain = values("matrix_balance", A)[0]
    _, t = scipy.linalg.matrix_balance(plain, permute, scale)
    b = matmul(np.linalg.inv(t), matmul(A, t))
    return b, scipy.linalg.matrix_balance(plain, permute, scale, True)[1] if separate else t


@implements_special(scipy.linalg.ldl)
@of_stacks(2)
def ldl(A, lower=True, hermitian=True, check_finite=True):
    """The pivoting order and the 2 x 2 blocks are constants. One triangle of A is read."""
    plain = values("ldl", A)[0]
    _, blocks, order = scipy.linalg.ldl(plain, lower, hermitian)
    turn = H if hermitian else lambda x: x.T
    half = triangle(A, lower=lower, strict=True)
    on = diagonals(A)
    a = half + turn(half) + diag(real(on) if hermitian and dtype(A).kind == "c" else on)
    sequence = order if lower else order[::-1]
    rest, n, start = a[sequence][:, sequence], len(order), 0
    steps = np.diagonal(blocks, -1) != 0
    steps = steps if lower else steps[::-1]
    factor: Any = 0.0
    middle: Any = 0.0
    while start < n:
        size = 2 if start < n - 1 and steps[start] else 1
        d, below = rest[:size, :size], rest[size:, :size]
        left = concatenate(np.eye(size), matmul(below, inv(d)))
        factor = factor + placed_block(left, start, start, n)
        middle = middle + placed_block(d, start, start, n)
        rest = rest[size:, size:] - matmul(matmul(left[size:], d), turn(left[size:]))
        start += size
    if not lower:
        factor, middle = factor[::-1, ::-1], middle[::-1, ::-1]
    return factor[np.argsort(order)], middle, order


def placed_block(x, i: int, j: int, n: int):
    return embed(embed(x, axis=0, start=i, size=n), axis=1, start=j, size=n)


# --- cosines and sines of a unitary matrix ---


def halves(x, p, q) -> tuple:
    """The four blocks of x, which must be square and of equal size."""
    blocks = (
        tuple(x)
        if p is None and q is None and isinstance(x, (list, tuple))
        else (x[:p, :q], x[:p, q:], x[p:, :q], x[p:, q:])
    )
    if len({shape(b) for b in blocks}) > 1 or shape(blocks[0])[0] != shape(blocks[0])[1]:
        raise ArgumentError(
            "scipy.linalg.cossin: with four blocks that are square, of one size, only on a tracked Variable"
        )
    return blocks


@implements_special(scipy.linalg.cossin)
@takes_lists
def cossin(X, p=None, q=None, separate=False, swap_sign=False, compute_u=True, compute_vh=True):
    """For unitary x: x11 = u1 c v1, x21 = u2 s v1, x12 = -u1 s v2, x22 = u2 c v2."""
    if swap_sign:
        raise ArgumentError("scipy.linalg.cossin: swap_sign=True is not supported on a tracked Variable")
    a, b, c, d = halves(X, p, q)
    theirs = scipy.linalg.cossin(values("cossin", a, b, c, d), separate=True)
    u1, _, v1 = svd(a)
    phase = phases(u1, theirs[0][0])
    u1, v1 = u1 * phase, column(phase.conj()) * v1
    s_u2 = matmul(c, H(v1))
    sines = sum(real(s_u2 * conj(s_u2)), -2) ** 0.5
    cosines = real(diagonals(matmul(H(u1), matmul(a, H(v1)))))
    u2 = s_u2 / row_vector(sines)
    v2 = column(cosines) * matmul(H(u2), d) - column(sines) * matmul(H(u1), b)
    if separate:
        return (u1, u2), arctan2(sines, cosines), (v1, v2)
    c, s = diag(cosines), diag(sines)
    middle = concatenate(concatenate(c, -s, axis=1), concatenate(s, c, axis=1))
    return (block_diag(u1, u2) if compute_u else None), middle, (block_diag(v1, v2) if compute_vh else None)


# --- QR of a changed matrix ---


def with_signs_of(name: str, a, q: np.ndarray, r: np.ndarray) -> tuple:
    """The factors of a with the signs of q and r. The last columns of a full q change as little as
    possible."""
    n, k = shape(a)
    first, upper = qr(a)
    m = min(n, k)
    phase = phases(first, q[:, :m])
    first, upper = first * phase, upper * column(np.conj(phase))
    if q.shape[1] > m:
        first = concatenate(first, complement(first, q[:, m:]), axis=1)
        upper = embed(upper, axis=0, start=0, size=n)
    return first, upper


@implements_special(scipy.linalg.qr_delete)
def qr_delete(Q, R, k, p=1, which="row", check_finite=True):
    found = scipy.linalg.qr_delete(*values("qr_delete", Q, R), k, p, which)
    a = matmul(Q, R)
    axis = 0 if which == "row" else 1
    kept = np.delete(np.arange(shape(a)[axis]), np.arange(int(k), int(k) + int(p)))
    return with_signs_of("qr_delete", a[kept] if axis == 0 else a[:, kept], *found)


@implements_special(scipy.linalg.qr_insert)
def qr_insert(Q, R, u, k, which="row", rcond=None, check_finite=True):
    found = scipy.linalg.qr_insert(*values("qr_insert", Q, R, u), k, which, rcond)
    a, axis, k = matmul(Q, R), 0 if which == "row" else 1, int(k)
    if len(shape(u)) == 1:
        u = reshape(u, to=(1, -1) if axis == 0 else (-1, 1))
    parts = (a[:k], u, a[k:]) if axis == 0 else (a[:, :k], u, a[:, k:])
    return with_signs_of("qr_insert", concatenate(*parts, axis=axis), *found)


@implements_special(scipy.linalg.qr_update)
def qr_update(Q, R, u, v, check_finite=True):
    found = scipy.linalg.qr_update(*values("qr_update", Q, R, u, v))
    u, v = [column(x) if len(shape(x)) == 1 else x for x in (u, v)]
    return with_signs_of("qr_update", matmul(Q, R) + matmul(u, H(v)), *found)


@implements_special(scipy.linalg.qr_multiply)
def qr_multiply(a, c, mode="right", pivoting=False, conjugate=False):
    q, *more = scipy_qr(a, mode="economic", pivoting=pivoting)
    q = conj(q) if conjugate else q
    return (matmul(q, c) if mode == "left" else matmul(c, q), *more)


# --- functions of matrices ---


@implements_special(scipy.linalg.funm)
def funm(A, func, disp=True):
    """The matrix function V f(w) V^-1."""
    check_square("funm", A)
    if not disp:
        raise ArgumentError("scipy.linalg.funm: disp=False is not supported on a tracked Variable")
    w, v = eig(A + 0j)
    y = matmul(v * row_vector(func(w)), inv(v))
    return real(y) if dtype(A).kind != "c" else y


@implements_special(scipy.linalg.expm_cond)
@of_stacks(2)
def expm_cond(A, check_finite=True):
    """The norm of the derivative of expm, times |A| / |expm(A)|."""
    check_square("expm_cond", A)
    n = shape(A)[0]
    units = np.reshape(np.eye(n * n), (n * n, n, n))
    whole = reshape(frechet(expm, A + 0.0 * units, units), to=(n * n, n * n))
    return svdvals(whole)[0] * scipy_norm(A) / scipy_norm(expm(A))
