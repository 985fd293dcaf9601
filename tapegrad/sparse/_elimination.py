"""Which entries the factor of a symmetric positive definite matrix has: ordering, elimination tree, pattern.

The ordering is SuperLU's multiple minimum degree. Reference: Davis, Direct Methods for Sparse Linear Systems
(2006), chapters 4 and 7."""

from typing import Any

import numba
import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from .._core.errors import ArgumentError, NotPositiveDefiniteError

KEPT_ANALYSES = 8  # patterns
MOST_LIGHT_FILL = 4  # entries of a factor for each row, up to which a new factor costs little


@numba.njit(cache=True)
def upper_part(ptr, idx, place):  # pragma: no cover (compiled)
    """Return the upper triangle of the permuted matrix by columns: starts, rows, numbers of the entries.

    `place` is the new number of each row."""
    n = place.size
    starts = np.zeros(n + 1, np.int64)
    for j in range(n):
        for p in range(ptr[j], ptr[j + 1]):
            if place[idx[p]] <= place[j]:
                starts[place[j] + 1] += 1
    starts = np.cumsum(starts)
    rows, entries, following = (
        np.empty(starts[n], np.int64),
        np.empty(starts[n], np.int64),
        starts[:-1].copy(),
    )
    for j in range(n):
        for p in range(ptr[j], ptr[j + 1]):
            i, k = place[idx[p]], place[j]
            if i <= k:
                rows[following[k]], entries[following[k]] = i, p
                following[k] += 1
    return starts, rows, entries


@numba.njit(cache=True)
def factor_pattern(starts, rows):  # pragma: no cover (compiled)
    """Return the elimination tree and the columns of the factor: parents, starts, sorted rows below the
    diagonal."""
    n = starts.size - 1
    parent, mark, count = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.zeros(n + 1, np.int64)
    for k in range(n):
        mark[k] = k
        for p in range(starts[k], starts[k + 1]):
            i = rows[p]
            while mark[i] != k:
                if parent[i] == -1:
                    parent[i] = k
                count[i + 1] += 1
                mark[i] = k
                i = parent[i]
    columns = np.cumsum(count)
    below, following = np.empty(columns[n], np.int64), columns[:-1].copy()
    mark[:] = -1
    for k in range(n):
        mark[k] = k
        for p in range(starts[k], starts[k + 1]):
            i = rows[p]
            while mark[i] != k:
                below[following[i]] = k
                following[i] += 1
                mark[i] = k
                i = parent[i]
    return parent, columns, below


@numba.njit(cache=True)
def places_in_factor(ptr, idx, place, columns, below):  # pragma: no cover (compiled)
    """Return for each entry its place among the entries of the factor, or -1 - k for the diagonal of column
    k."""
    found = np.empty(idx.size, np.int64)
    for j in range(place.size):
        for p in range(ptr[j], ptr[j + 1]):
            a, b = place[idx[p]], place[j]
            if a == b:
                found[p] = -1 - a
            else:
                low, high = min(a, b), max(a, b)
                found[p] = columns[low] + np.searchsorted(below[columns[low] : columns[low + 1]], high)
    return found


class Analysis:
    """The symbolic analysis of one symmetric pattern, in CSR order."""

    def __init__(self, n: int, indptr: np.ndarray, indices: np.ndarray):
        self.n, self.indptr, self.indices = n, indptr.copy(), indices.copy()
        self.rows = np.repeat(np.arange(n), np.diff(indptr))
        self.mirror = np.lexsort((self.rows, indices))
        unequal = (self.rows[self.mirror] != indices) | (indices[self.mirror] != self.rows)
        if unequal.any():
            k = int(np.argmax(unequal))
            raise ArgumentError(
                f"sparse.cholesky: the pattern is not symmetric: near entry ({self.rows[k]}, {indices[k]}) "
                f"the mirror image is missing"
            )
        missing = np.setdiff1d(np.arange(n), self.rows[self.rows == indices])
        if missing.size:
            raise NotPositiveDefiniteError(
                f"sparse.cholesky: the matrix is not positive definite: diagonal entry {missing[0]} is zero"
            )
        self.place = self.ordering()
        self.order = np.argsort(self.place)
        ptr, idx = indptr.astype(np.int64), indices.astype(np.int64)
        self.starts, self.upper_rows, self.entries = upper_part(ptr, idx, self.place)
        self.parent, self.columns, self.below = factor_pattern(self.starts, self.upper_rows)
        self.places = places_in_factor(ptr, idx, self.place, self.columns, self.below)
        self.kept = []  # the last factors

    def ordering(self) -> np.ndarray:
        """Return the new number of each row, by minimum degree."""
        degree = np.diff(self.indptr)
        data = np.where(self.rows == self.indices, degree[self.rows].astype(float) + 1.0, -1.0)
        A = scipy.sparse.csc_array((data, self.indices, self.indptr), shape=(self.n, self.n))
        settings = dict(SymmetricMode=True, DiagPivotThresh=0.0)
        return scipy.sparse.linalg.splu(A, permc_spec="MMD_AT_PLUS_A", options=settings).perm_c.astype(
            np.int64
        )

    @property
    def fill(self) -> int:
        """The number of entries of the factor below the diagonal."""
        return self.below.size

    @property
    def is_filled(self) -> bool:
        """Whether a new factor costs much."""
        return self.fill > MOST_LIGHT_FILL * self.n

    def is_of(self, indptr: np.ndarray, indices: np.ndarray) -> bool:
        return np.array_equal(self.indptr, indptr) and np.array_equal(self.indices, indices)


KEPT: dict[Any, Analysis] = {}


def analysis_of(n: int, indptr: np.ndarray, indices: np.ndarray) -> Analysis:
    """Return the analysis of a pattern, which is kept for the next matrix with this pattern."""
    key = n, indices.size, hash(indptr.tobytes()), hash(indices.tobytes())
    found = KEPT.get(key)
    if found is None or not found.is_of(indptr, indices):
        found = Analysis(n, indptr, indices)
        while len(KEPT) >= KEPT_ANALYSES:
            KEPT.pop(next(iter(KEPT)), None)
        KEPT[key] = found
    return found
