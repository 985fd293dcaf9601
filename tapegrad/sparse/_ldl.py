"""The factor L D L' of a symmetric positive definite matrix, solutions, and its selected inverse.

The factor is computed row by row, the selected inverse by Takahashi's recursion. `factor_of_lanes` and
`inverse_of_lanes` do the same for truncated polynomials in several directions, which gives derivatives. Lane
s of a number is its derivative along the directions whose bits are set in s."""

from typing import Any

import numba
import numpy as np

from .._core.arrays import same_bits
from .._core.errors import ArgumentError, NotPositiveDefiniteError
from ._elimination import Analysis

KEPT_FACTORS = 4  # factors of one pattern
ASYMMETRY = 1e-8  # of the largest entry, above which a matrix is not symmetric


@numba.njit(cache=True)
def factor(starts, rows, data, parent, columns, below):  # pragma: no cover (compiled)
    """Return (entries of L, D, -1), or the column with a pivot that is not positive in place of -1."""
    n = parent.size
    lower, d, y = np.empty(below.size), np.empty(n), np.zeros(n)
    stack, path = np.empty(n, np.int64), np.empty(n, np.int64)
    mark, end = np.full(n, -1, np.int64), columns[:-1].copy()
    for k in range(n):
        top, pivot = n, 0.0
        mark[k] = k
        for p in range(starts[k], starts[k + 1]):
            i = rows[p]
            if i == k:
                pivot = data[p]
                continue
            y[i] = data[p]
            m = 0
            while mark[i] != k:
                path[m] = i
                m += 1
                mark[i] = k
                i = parent[i]
            while m > 0:
                m -= 1
                top -= 1
                stack[top] = path[m]
        for t in range(top, n):
            i = stack[t]
            value, last = y[i], end[i]
            y[i] = 0.0
            for p in range(columns[i], last):
                y[below[p]] -= lower[p] * value
            lower[last] = value / d[i]
            pivot -= lower[last] * value
            end[i] = last + 1
        if not pivot > 0.0:
            return lower, d, k
        d[k] = pivot
    return lower, d, -1


@numba.njit(cache=True)
def solution(columns, below, lower, d, order, b):  # pragma: no cover (compiled)
    """Return the solutions for the rows of b."""
    n, out = d.size, np.empty_like(b)
    x = np.empty(n)
    for r in range(b.shape[0]):
        for k in range(n):
            x[k] = b[r, order[k]]
        for j in range(n):
            value = x[j]
            for p in range(columns[j], columns[j + 1]):
                x[below[p]] -= lower[p] * value
        for j in range(n - 1, -1, -1):
            value = x[j] / d[j]
            for p in range(columns[j], columns[j + 1]):
                value -= lower[p] * x[below[p]]
            x[j] = value
        for k in range(n):
            out[r, order[k]] = x[k]
    return out


@numba.njit(cache=True)
def backward(columns, below, lower, d, order, e):  # pragma: no cover (compiled)
    """Return P' L'^-1 D^-1/2 e."""
    n = d.size
    x, out = e / np.sqrt(d), np.empty(n)
    for j in range(n - 1, -1, -1):
        for p in range(columns[j], columns[j + 1]):
            x[j] -= lower[p] * x[below[p]]
        out[order[j]] = x[j]
    return out


@numba.njit(cache=True)
def selected_inverse(columns, below, lower, d, places):  # pragma: no cover (compiled)
    """Return the entries of the inverse at the places of the matrix."""
    n = d.size
    z, diagonal, line, total = np.empty(below.size), np.empty(n), np.zeros(n), np.zeros(n)
    for j in range(n - 1, -1, -1):
        a, b = columns[j], columns[j + 1]
        for p in range(a, b):
            line[below[p]], total[below[p]] = lower[p], 0.0
        for p in range(a, b):
            k, factor_entry = below[p], lower[p]
            own = diagonal[k] * factor_entry
            for q in range(columns[k], columns[k + 1]):
                i = below[q]
                own += z[q] * line[i]
                total[i] += z[q] * factor_entry
            total[k] += own
        here = 1.0 / d[j]
        for p in range(a, b):
            z[p] = -total[below[p]]
            here -= z[p] * lower[p]
        diagonal[j] = here
        for p in range(a, b):
            line[below[p]] = 0.0
    out = np.empty(places.size)
    for p in range(places.size):
        out[p] = z[places[p]] if places[p] >= 0 else diagonal[-1 - places[p]]
    return out


# --- the same for truncated polynomials ---


@numba.njit(cache=True)
def subtract_product(out, a, b):  # pragma: no cover (compiled)
    for s in range(out.size):
        t, total = s, a[0] * b[s]
        while t:
            total += a[t] * b[s ^ t]
            t = (t - 1) & s
        out[s] -= total


@numba.njit(cache=True)
def factor_of_lanes(starts, rows, data, parent, columns, below):  # pragma: no cover (compiled)
    """Return (entries of L, 1 / D), each with lanes; `data` holds a positive definite matrix."""
    n, lanes = parent.size, data.shape[1]
    lower, d, reciprocal = np.zeros((below.size, lanes)), np.zeros((n, lanes)), np.zeros((n, lanes))
    y, stack, path = np.zeros((n, lanes)), np.empty(n, np.int64), np.empty(n, np.int64)
    mark, end = np.full(n, -1, np.int64), columns[:-1].copy()
    for k in range(n):
        top = n
        mark[k] = k
        for p in range(starts[k], starts[k + 1]):
            i = rows[p]
            if i == k:
                d[k] = data[p]
                continue
            y[i] = data[p]
            m = 0
            while mark[i] != k:
                path[m] = i
                m += 1
                mark[i] = k
                i = parent[i]
            while m > 0:
                m -= 1
                top -= 1
                stack[top] = path[m]
        for t in range(top, n):
            i = stack[t]
            last = end[i]
            for p in range(columns[i], last):
                subtract_product(y[below[p]], lower[p], y[i])
            subtract_product(lower[last], reciprocal[i], y[i])
            lower[last] = -lower[last]
            subtract_product(d[k], lower[last], y[i])
            y[i] = 0.0
            end[i] = last + 1
        reciprocal[k, 0] = 1.0 / d[k, 0]
        for s in range(1, lanes):
            t, total = s, 0.0
            while t:
                total += d[k, t] * reciprocal[k, s ^ t]
                t = (t - 1) & s
            reciprocal[k, s] = -reciprocal[k, 0] * total
    return lower, reciprocal


@numba.njit(cache=True)
def inverse_of_lanes(columns, below, lower, reciprocal, places):  # pragma: no cover (compiled)
    """Return the last lane of the entries of the inverse at the places of the matrix."""
    n, lanes = reciprocal.shape
    z, diagonal, at = np.zeros((below.size, lanes)), np.zeros((n, lanes)), np.full(n, -1, np.int64)
    for j in range(n - 1, -1, -1):
        a, b = columns[j], columns[j + 1]
        for p in range(a, b):
            at[below[p]] = p
        for p in range(a, b):
            k = below[p]
            subtract_product(z[p], diagonal[k], lower[p])
            for q in range(columns[k], columns[k + 1]):
                other = at[below[q]]
                if other >= 0:
                    subtract_product(z[p], z[q], lower[other])
                    subtract_product(z[other], z[q], lower[p])
        diagonal[j] = reciprocal[j]
        for p in range(a, b):
            subtract_product(diagonal[j], z[p], lower[p])
        for p in range(a, b):
            at[below[p]] = -1
    out = np.empty(places.size)
    for p in range(places.size):
        out[p] = z[places[p], lanes - 1] if places[p] >= 0 else diagonal[-1 - places[p], lanes - 1]
    return out


class Factor:
    """The factor of one matrix."""

    def __init__(self, analysis: Analysis, values: np.ndarray):
        self.analysis, a = analysis, analysis
        self.lower, self.d, bad = factor(
            a.starts, a.upper_rows, values[a.entries], a.parent, a.columns, a.below
        )
        if bad >= 0:
            raise NotPositiveDefiniteError(
                f"sparse.cholesky: the matrix is not positive definite: the pivot of row {a.order[bad]} fails"
            )
        self.inverse: Any = None

    def logdet(self) -> float:
        return float(np.log(self.d).sum())

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return the solutions for the rows of b, of shape (k, n)."""
        a = self.analysis
        return solution(a.columns, a.below, self.lower, self.d, a.order, np.ascontiguousarray(b, float))

    def selected_inverse(self) -> np.ndarray:
        """Return the entries of the inverse at the places of the matrix; not to be written."""
        if self.inverse is None:
            a = self.analysis
            self.inverse = selected_inverse(a.columns, a.below, self.lower, self.d, a.places)
        return self.inverse

    def sample(self, e: np.ndarray) -> np.ndarray:
        a = self.analysis
        return backward(a.columns, a.below, self.lower, self.d, a.order, e)


def symmetrised(analysis: Analysis, values: np.ndarray) -> np.ndarray:
    """Return the symmetric part of a matrix."""
    return 0.5 * (values + values[analysis.mirror])


def factored(analysis: Analysis, values: np.ndarray) -> Factor:
    """Return the factor of a symmetric matrix; the last ones of each pattern are kept."""
    values = np.ascontiguousarray(values, float)
    for known, found in analysis.kept:
        if same_bits(known, values):
            return found
    whole = symmetrised(analysis, values)
    difference = abs(values - whole)
    if difference.size and difference.max() > ASYMMETRY * abs(values).max():
        k = int(np.argmax(difference))
        raise ArgumentError(
            f"sparse.cholesky: the matrix is not symmetric: entries ({analysis.rows[k]}, "
            f"{analysis.indices[k]}) and its mirror image are {values[k]} and {values[analysis.mirror[k]]}"
        )
    found = Factor(analysis, whole)
    analysis.kept = [(values.copy(), found), *analysis.kept[: KEPT_FACTORS - 1]]
    return found


def inverse_derivative(analysis: Analysis, values: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return the derivative of the selected inverse along the directions, the rows of an array, together."""
    found = factored(analysis, values)
    if not len(directions):
        return found.selected_inverse().copy()
    lanes = 1 << len(directions)
    data = np.zeros((values.size, lanes))
    data[:, 0] = symmetrised(analysis, values)
    for k, w in enumerate(directions):
        data[:, 1 << k] = symmetrised(analysis, w)
    a = analysis
    lower, reciprocal = factor_of_lanes(a.starts, a.upper_rows, data[a.entries], a.parent, a.columns, a.below)
    return inverse_of_lanes(a.columns, a.below, lower, reciprocal, a.places)
