"""The filter as a kernel: one step of the recursion, written once for all models, and compiled for the pattern of a model's matrices.

A matrix entry is a place in a pool of numbers: the constants 0, 1 and -1, the numbers that the kernel gets for all steps (`theta`),
and those of a step (a row of data each).  The places alone tell the kernel, so models of one form share it, and it is on disk from an
earlier process.  Zeros and ones cost nothing: what they multiply is never computed.

    theta   the first state (m,), the upper triangle of its covariance, then the other numbers
    row     y (p,), with gaps 1 or 0 for each element, then what varies over time
"""

import functools
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..kernels.generated.kernel import Recursion, named_recursion

CONSTANTS = (0.0, 1.0, -1.0)
LETTERS = "TZQHcd"


class Layout(NamedTuple):
    """`places`: for each letter the places of its entries, as bytes of an int64 array; `gaps`: are elements missing?  `apart`: are the
    errors of the elements independent?  `joseph`: the longer update of the covariance."""

    states: int
    width: int
    places: tuple[bytes, ...]
    gaps: bool
    apart: bool
    joseph: bool


def key_of(layout: Layout) -> str:
    return "filter " + hashlib.sha256(repr(layout).encode()).hexdigest()


@functools.lru_cache(maxsize=64)
def compiled(layout: Layout) -> Recursion:
    """The kernel of this pattern: value, gradient and all that kernels give, at theta (q,) or (q, B) and rows (r, n)."""
    return named_recursion(key_of(layout), *definition(layout))


def triangle(m: int) -> tuple[np.ndarray, np.ndarray]:
    """The upper triangle of an m x m matrix, as flat places; and of each entry of the matrix its place among them."""
    upper = np.flatnonzero(np.triu(np.ones((m, m), bool)))
    number = np.zeros(m * m, np.int64)
    number[upper] = np.arange(upper.size)
    number = number.reshape(m, m)
    return upper, np.triu(number) + np.triu(number, 1).T


def definition(layout: Layout) -> tuple[Callable, Callable]:
    """init(theta) and step(carry, theta, row) of the filter."""
    m, p, gaps = layout.states, layout.width, layout.gaps
    shapes = {"T": (m, m), "Z": (p, m), "Q": (m, m), "H": (p, p), "c": (m,), "d": (p,)}
    T, Z, Q, H, c, d = (np.frombuffer(x, np.int64).reshape(shapes[name]) for name, x in zip(LETTERS, layout.places, strict=True))
    update = _one_by_one if layout.apart else _together
    joseph, full, first = layout.joseph, triangle(m)[1], m + m * (m + 1) // 2
    constants = np.array(CONSTANTS)

    def init(theta: Any) -> Any:
        return theta[:m], theta[m:first][full]

    def step(carry: Any, theta: Any, row: Any) -> Any:
        a, P = carry
        pool = np.concatenate([constants, theta[first:], row])
        seen = row[p : 2 * p] if gaps else None
        a, P, term = update(a, P, pool[Z], pool[H], row[:p] - pool[d], seen, joseph)
        Tt = pool[T]
        return (Tt @ a + pool[c], Tt @ P @ Tt.T + pool[Q]), -0.5 * term

    return init, step


def _one_by_one(a: Any, P: Any, Z: Any, H: Any, y: Any, seen: Any, joseph: bool) -> tuple[Any, Any, Any]:
    """The elements of an observation with independent errors, one after the other; and log 2 pi F + v^2 / F of them all."""
    term = 0.0
    for i in range(y.shape[0]):
        z, h = Z[i], H[i, i]
        v = y[i] - z @ a
        M = P @ z
        F = z @ M + h
        if seen is None:
            gain = 1.0 / F
            term = term + np.log(2 * np.pi * F) + v * v * gain
        else:  # a gain of 0, and a logarithm of 1
            gain = np.where(seen[i] > 0.5, 1.0 / F, 0.0)
            term = term + np.where(seen[i] > 0.5, np.log(2 * np.pi * F), 0.0) + v * v * gain
        K = M * gain
        a = a + K * v
        if joseph:
            G = np.eye(a.shape[0]) - np.outer(K, z)
            P = G @ P @ G.T + np.outer(K, K) * h
        else:
            P = P - np.outer(M, M) * gain
    return a, P, term


def _together(a: Any, P: Any, Z: Any, H: Any, y: Any, seen: Any, joseph: bool) -> tuple[Any, Any, Any]:
    """An observation with correlated errors.  A missing element is seen as nothing (z = 0, v = 0) with an error of its own, of
    variance 1: its term is 0."""
    v = y - Z @ a
    count = 1.0 * y.shape[0]
    if seen is not None:
        Z, v, count = Z * seen[:, None], v * seen, seen.sum()
        H = H * np.outer(seen, seen) + np.diag(1.0 - seen)
    U = Z @ P
    S = U @ Z.T + H
    G = np.linalg.solve(S, U)
    L = np.linalg.cholesky(S)
    term = count * np.log(2 * np.pi) + 2.0 * np.log(np.diag(L)).sum() + v @ np.linalg.solve(S, v)
    if joseph:
        I_KZ = np.eye(a.shape[0]) - G.T @ Z
        P = I_KZ @ P @ I_KZ.T + G.T @ H @ G
    else:
        P = P - U.T @ G
    return a + v @ G, P, term
