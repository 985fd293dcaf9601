"""One step of a linear Gaussian filter, shared by `kalman`, `kalman_vector` and `tapegrad.statespace`.

The state is N(a, P), the observation y = Z a + e. `seen` says which elements of y are present, or is None for
all; the values of the others do not matter. `univariate_update` and `joint_update` return mean and covariance
of the state given the observation. They also return the log determinant of 2 pi F, with F the covariance of
the innovations, and factors v and g. The sum of v^2 g is the square of the innovations in units of F.

With the identity `eye` the covariance is updated in the form of Joseph, which loses no digits.

The mean may be a matrix (m, k), and y is then (p, k): k series with the same covariances, as in the augmented
filter."""

from typing import Any

import numpy as np

from ...ops.linalg.factorizations import solve_triangular
from ..trace.small_matrices import substituted
from ..trace.symbolic import Sym

ROWWISE_SOLVE_ORDER = 8  # elements up to which a kernel solves a triangular system row by row


def observation_step(a, P, T, Q, Z, H, y, seen, apart: bool, c=None, joseph: bool = False) -> tuple:
    """Return mean and covariance of the next state, and the log density of y; `apart` as in `measured`."""
    a, P, size, v, g = measured(a, P, Z, H, y, seen, apart, joseph)
    square = v[0] @ v[0] if g is None else sum([x * x * gain for x, gain in zip(v, g, strict=True)])
    return predicted(a, P, T, Q, c), -0.5 * (size + square)


def measured(a, P, Z, H, y, seen, apart: bool, joseph: bool) -> tuple:
    """Return the results of `univariate_update` if the errors are independent (`apart`), otherwise of
    `joint_update`, with None for the gains.

    H holds the variances of independent errors."""
    if apart:
        return univariate_update(a, P, Z, H, y, seen, np.eye(len(P)) if joseph else None)
    if (
        seen is not None
    ):  # a missing element counts as z = 0 and y = 0 with an independent error of variance 1
        here = np.where(seen, 1.0, 0.0)
        Z, y = Z * here[:, None], y * (here if y.ndim == 1 else here[:, None])
        H = H * np.outer(here, here) + np.diag(1.0 - here)
    v, U, S = innovations(a, P, Z, H, y)
    a, P, L, z = joint_update(a, P, U, S, v, (Z, H) if joseph else None)
    return a, P, log_determinant(L, seen), [z], None


def whitened(v: list, g: list | None):
    """Return the innovations in units of F, (p, k)."""
    return v[0] if g is None else np.stack([x * np.sqrt(gain) for x, gain in zip(v, g, strict=True)])


def predicted(a, P, T, Q, c=None) -> tuple[Any, Any]:
    """Return mean and covariance after one transition."""
    return T @ a if c is None else T @ a + c, T @ P @ T.T + Q


def update(a, P, z, h, y, seen=None, eye=None) -> tuple[Any, Any, Any, Any]:
    """Mean and covariance given one number y = z x and an error of variance h; the innovation, and its
    variance F."""
    M = P @ z
    v, F = y - z @ a, z @ M + h
    if seen is not None:  # what is missing tells nothing
        v, F = np.where(seen, v, 0.0), np.where(seen, F, np.inf)
    K = M / F
    a = a + (K * v if a.ndim == 1 else np.outer(K, v))
    if eye is not None:
        G = eye - np.outer(K, z)
        return a, G @ P @ G.T + np.outer(K, K) * h, v, F
    return a, P - np.outer(K, M), v, F


def univariate_update(a, P, Z, variances, y, seen, eye=None) -> tuple[Any, Any, Any, list, list]:
    """Update by the elements of an observation with independent errors, one after the other."""
    size: Any = 0.0
    innovations, gains = [], []
    for i in range(len(y)):
        here = None if seen is None else seen[i]
        a, P, v, F = update(a, P, Z[i], variances[i], y[i], here, eye)
        log = np.log(2 * np.pi * F)
        size = size + (log if here is None else np.where(here, log, 0.0))
        innovations.append(v)
        gains.append(1.0 / F)
    return a, P, size, innovations, gains


def innovations(a, P, Z, H, y) -> tuple[Any, Any, Any]:
    """Innovations y - Z a, their covariance with the state, transposed, and their covariance."""
    U = Z @ P
    return y - Z @ a, U, U @ np.swapaxes(Z, -1, -2) + H


def joint_update(a, P, U, S, v, joseph: tuple | None = None) -> tuple[Any, Any, Any, Any]:
    """Update by innovations v of covariance S, with U the transposed covariance of state and innovations.

    The last results are the Cholesky factor of S, and v in units of S. `joseph` holds Z and H, if the
    covariance is to have the form of Joseph."""
    L = np.linalg.cholesky(S)
    W, z = lower_solve(L, U), lower_solve(L, v)
    if joseph is None:
        P = P - W.T @ W
    else:
        Z, H = joseph
        G = solve_triangular(L, W, trans=1, lower=True)
        I_KZ = np.eye(P.shape[0]) - G.T @ Z
        P = I_KZ @ P @ I_KZ.T + G.T @ H @ G
    return a + W.T @ z, P, L, z


def log_determinant(L, seen=None):
    """Return the log determinants of 2 pi times covariances with these Cholesky factors (..., p, p)."""
    count = 1.0 * L.shape[-1] if seen is None else np.where(seen, 1.0, 0.0).sum()
    diagonal = np.diag(L) if L.ndim == 2 else np.diagonal(L, axis1=-2, axis2=-1)
    return count * np.log(2 * np.pi) + 2.0 * np.log(diagonal).sum(axis=-1)


def lower_solve(L, b):
    """Return L^-1 b for a lower triangle L."""
    if isinstance(L, Sym) and len(L) <= ROWWISE_SOLVE_ORDER:
        return substituted(L, b, True)
    return solve_triangular(L, b, lower=True)
