"""Eigenvalues and singular values of sparse matrices: SciPy's, with the derivatives of the exact pairs near
them.

A pair is a solution of A v = w B v that is as long as SciPy's; each of Newton's steps from there is one
linear system, whose matrix is that of the equations, and gives the derivatives of one order more."""

import numpy as plain_np
import scipy.sparse as sps
import scipy.sparse.linalg as sla

from ... import numpy as np
from ..._core.arrays import xp_of
from ..namespaces import as_float_array, bare, refusal_text
from .linear_systems import library_solver, operator_matrix, solve_sparse
from .matrices import FACES, LINALG, SPARSE, SparseMatrix, sparse

EIGENPAIR_NEWTON_STEPS = 3  # of Newton's method: derivatives of up to the seventh order


def distinct(w, name: str) -> None:
    library = xp_of(w)
    apart = abs(w[:, None] - w[None, :]) + library.diag(library.full(len(w), plain_np.inf))
    if len(w) and float(apart.min()) < 1e-9 * max(1.0, float(abs(w).max())):
        raise refusal_text(
            name, "with equal eigenvalues", "a function of the matrix that does not tell them apart"
        )


def refined(A: SparseMatrix, B, w, v, symmetric: bool) -> tuple:
    """A v = w B v with v^T B v = 1 where both are symmetric; else with v as long as SciPy's, and of its
    phase."""
    n, start = A.shape[0], v
    for _ in range(EIGENPAIR_NEWTON_STEPS):
        Bv = v if B is None else B @ v
        shifted = A - (sparse(sps.eye_array(n, format="csr")) if B is None else B) * w
        row = Bv if symmetric else start.conj()
        length = 0.5 * (np.sum(v * Bv) - 1.0) if symmetric else np.sum(row * v) - 1.0
        column, across = [FACES[sps.csc_array](np.reshape(as_float_array(x), (-1, 1))) for x in (Bv, row)]
        K = SPARSE.rules[sps.block_array]([[shifted, column], [across.T, None]], format="csc")
        d = solve_sparse(K, np.concatenate([A @ v - Bv * w, np.reshape(length, 1)]), "scipy.sparse.linalg")
        v, w = v - d[:n], w + d[n]
    return w, v if symmetric else v / np.sqrt(np.sum(np.abs(v) ** 2))


def sorted_pairs(pairs: list, vectors: bool):
    values = np.stack([p[0] for p in pairs])
    return (values, np.stack([p[1] for p in pairs], 1)) if vectors else values


def check_matrices(A, B, name: str, symmetric: bool) -> tuple:
    A, B = operator_matrix(A, name), None if B is None else operator_matrix(B, name)
    if symmetric and "c" in (A.dtype.kind, "f" if B is None else B.dtype.kind):
        raise refusal_text(name, "of a complex matrix", "numpy.linalg.eigh(A.toarray())")
    return ((A + A.T) * 0.5, B if B is None else (B + B.T) * 0.5) if symmetric else (A, B)


def plain_matrix(B):
    return None if B is None else B._plain()


def arpack(f, symmetric: bool):
    name = f"scipy.sparse.linalg.{f.__name__}"

    def run(
        A,
        k=6,
        M=None,
        sigma=None,
        which="LM",
        v0=None,
        ncv=None,
        maxiter=None,
        tol=0,
        return_eigenvectors=True,
        **settings,
    ):
        A, B = check_matrices(A, M, name, symmetric)
        given = {
            "M": plain_matrix(B),
            "sigma": bare(sigma),
            "which": which,
            "v0": bare(v0),
            "ncv": ncv,
            "maxiter": maxiter,
            "tol": tol,
        }
        w, V = library_solver(f, name, A._plain(), k, **given, **bare(settings))
        distinct(w, name)
        if not symmetric:
            A = A * (1 + 0j)
        return sorted_pairs(
            [refined(A, B, w[i], V[:, i], symmetric) for i in range(len(w))], return_eigenvectors
        )

    return run


LINALG.rule(sla.eigsh)(arpack(sla.eigsh, True))
LINALG.rule(sla.eigs)(arpack(sla.eigs, False))


@LINALG.rule(sla.lobpcg)
def lobpcg(A, X, B=None, M=None, Y=None, tol=None, maxiter=None, largest=True, verbosityLevel=0, **histories):
    name = "scipy.sparse.linalg.lobpcg"
    if Y is not None or any(histories.values()):
        raise refusal_text(f"{name}(Y=)", "within a subspace, or with histories", "it without them")
    A, B = check_matrices(A, B, name, True)
    given = plain_matrix(B), None if M is None else bare(M), None, tol, maxiter, largest, verbosityLevel
    w, V = library_solver(sla.lobpcg, name, A._plain(), bare(X), *given)
    distinct(w, name)
    return sorted_pairs([refined(A, B, w[i], V[:, i], True) for i in range(len(w))], True)


@LINALG.rule(sla.svds)
def svds(
    A, k=6, ncv=None, tol=0, which="LM", v0=None, maxiter=None, return_singular_vectors=True, **settings
):
    """The singular values are eigenvalues of [[0, A], [A^T, 0]], the vectors those of A above those of
    A^T."""
    name = "scipy.sparse.linalg.svds"
    A = operator_matrix(A, name)
    if A.dtype.kind == "c":
        raise refusal_text(name, "of a complex matrix", "numpy.linalg.svd(A.toarray())")
    given = {"ncv": ncv, "tol": tol, "which": which, "v0": bare(v0), "maxiter": maxiter}
    u, s, vt = library_solver(sla.svds, name, A._plain(), k, **given, **bare(settings))
    distinct(s, name)
    m = A.shape[0]
    H = SPARSE.rules[sps.block_array]([[None, A], [A.T, None]], format="csc")
    pairs = [
        refined(H, None, s[i], plain_np.concatenate([u[:, i], vt[i]]) / plain_np.sqrt(2), True)
        for i in range(len(s))
    ]
    values, Z = sorted_pairs(pairs, True)
    if not return_singular_vectors:
        return values
    Z = Z * plain_np.sqrt(2)
    return (
        (Z[:m] if return_singular_vectors != "vh" else None),
        values,
        (Z[m:].T if return_singular_vectors != "u" else None),
    )
