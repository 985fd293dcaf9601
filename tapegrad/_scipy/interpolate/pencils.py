"""Generalised eigenvalues, by which SciPy finds the poles and roots of rational approximants."""

from typing import Any

import numpy as plain_np
import scipy.linalg

from ... import numpy as np
from ..namespaces import bare


def pencil_eigenvalues(A, B):
    """Of A v = w B v, where B may be singular: those that SciPy finds, each made a function of A and B by
    Newton's steps."""
    w, right = scipy.linalg.eig(bare(A), bare(B))
    found, zero = [], plain_np.zeros((1, 1))
    for value, v in zip(w, right.T, strict=True):
        pair: Any = np.concatenate([v + 0j, [value]]) if plain_np.isfinite(value) else None
        for _ in range(3 if pair is not None else 0):  # each has the derivatives of one order more
            x, e = pair[:-1], pair[-1]
            Bx, row = B @ x, v.conj()
            K = np.concatenate(
                [
                    np.concatenate([A - e * B, -np.reshape(Bx, (-1, 1))], 1),
                    np.concatenate([row[None], zero], 1),
                ],
                0,
            )
            pair = pair - np.linalg.solve(
                K, np.concatenate([A @ x - e * Bx, np.reshape(np.sum(row * x) - 1.0, 1)])
            )
        found.append(pair[-1] if pair is not None else value)
    return np.stack(found)
