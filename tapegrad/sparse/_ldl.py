"""The factor L D L' of a symmetric positive definite matrix, solutions, and its selected inverse.

The factor is computed row by row, the selected inverse by Takahashi's recursion. Both work on truncated
polynomials in several directions, which gives derivatives. Lane s of a number is its derivative along the
directions whose bits are set in s. For first derivatives along several directions at once, lane s is that
along direction s alone."""

from typing import Any

import numba
import numpy as np

from .._core.arrays import same_bits
from .._core.errors import ArgumentError, NotPositiveDefiniteError
from ._elimination import Analysis

KEPT_FACTORS = 4  # factors of one pattern
MOST_TANGENTS = 4  # directions of one pass
PLAIN = (0,)  # one lane
MIXED, SINGLE = (), (0,)  # lanes of all products of directions; lanes of one direction each
ASYMMETRY = 1e-8  # of the largest entry, above which a matrix is not symmetric


# The lanes of a number lie side by side in flat arrays. Their count is a constant of the compiled code, the
# length of the tuple `like`. So the code for one lane is that for plain numbers. `kind` is MIXED or SINGLE,
# which the compiled code tells apart by the length.


@numba.njit(cache=True, inline="always")
def lane_of_product(s, a, j, b, k, like, kind):  # pragma: no cover (compiled)
    """Return lane s of the product of the numbers j of a and k of b."""
    m = len(like)
    t, total = s, a[j * m] * b[k * m + s]
    while t:
        total += a[j * m + t] * b[k * m + (s ^ t)]
        t = 0 if len(kind) else (t - 1) & s
    return total


@numba.njit(cache=True, inline="always")
def subtract_product(out, i, a, j, b, k, like, kind):  # pragma: no cover (compiled)
    """Subtract the product of the numbers j of a and k of b from the number i of out."""
    for s in range(len(like)):
        out[i * len(like) + s] -= lane_of_product(s, a, j, b, k, like, kind)


@numba.njit(cache=True)
def factor(starts, rows, data, parent, columns, below, like, kind):  # pragma: no cover (compiled)
    """Return (entries of L, 1 / D, -1), or the column with a pivot that is not positive in place of -1."""
    n, m = parent.size, len(like)
    lower, d, reciprocal = np.empty(below.size * m), np.empty(m), np.empty(n * m)
    y, stack, path = np.zeros(n * m), np.empty(n, np.int64), np.empty(n, np.int64)
    mark, end = np.full(n, -1, np.int64), columns[:-1].copy()
    for k in range(n):
        top = n
        mark[k] = k
        d[:] = 0.0
        for p in range(starts[k], starts[k + 1]):
            i = rows[p]
            if i == k:
                for s in range(m):
                    d[s] = data[p * m + s]
                continue
            for s in range(m):
                y[i * m + s] = data[p * m + s]
            length = 0
            while mark[i] != k:
                path[length] = i
                length += 1
                mark[i] = k
                i = parent[i]
            while length > 0:
                length -= 1
                top -= 1
                stack[top] = path[length]
        for t in range(top, n):
            i = stack[t]
            last = end[i]
            for p in range(columns[i], last):
                subtract_product(y, below[p], lower, p, y, i, like, kind)
            for s in range(m):
                lower[last * m + s] = 0.0
            subtract_product(lower, last, reciprocal, i, y, i, like, kind)
            for s in range(m):
                lower[last * m + s] *= -1.0
            subtract_product(d, 0, lower, last, y, i, like, kind)
            for s in range(m):
                y[i * m + s] = 0.0
            end[i] = last + 1
        if not d[0] > 0.0:
            return lower, reciprocal, k
        reciprocal[k * m] = 1.0 / d[0]
        for s in range(1, m):
            t, total = s, 0.0
            while t:
                total += d[t] * reciprocal[k * m + (s ^ t)]
                t = 0 if len(kind) else (t - 1) & s
            reciprocal[k * m + s] = -reciprocal[k * m] * total
    return lower, reciprocal, -1


@numba.njit(cache=True)
def solution(columns, below, lower, reciprocal, order, b):  # pragma: no cover (compiled)
    """Return the solutions for the rows of b."""
    n, out = order.size, np.empty_like(b)
    x = np.empty(n)
    for r in range(b.shape[0]):
        for k in range(n):
            x[k] = b[r, order[k]]
        for j in range(n):
            value = x[j]
            for p in range(columns[j], columns[j + 1]):
                x[below[p]] -= lower[p] * value
        for j in range(n - 1, -1, -1):
            value = x[j] * reciprocal[j]
            for p in range(columns[j], columns[j + 1]):
                value -= lower[p] * x[below[p]]
            x[j] = value
        for k in range(n):
            out[r, order[k]] = x[k]
    return out


@numba.njit(cache=True)
def backward(columns, below, lower, reciprocal, order, e):  # pragma: no cover (compiled)
    """Return P' L'^-1 D^-1/2 e."""
    n = order.size
    x, out = e * np.sqrt(reciprocal), np.empty(n)
    for j in range(n - 1, -1, -1):
        for p in range(columns[j], columns[j + 1]):
            x[j] -= lower[p] * x[below[p]]
        out[order[j]] = x[j]
    return out


@numba.njit(cache=True)
def selected_inverse(columns, below, lower, reciprocal, places, like, kind):  # pragma: no cover (compiled)
    """Return the entries of the inverse at the places of the matrix, (places, lanes)."""
    n, m = columns.size - 1, len(like)
    z, diagonal = np.empty(below.size * m), np.empty(n * m)
    line, total, own = np.zeros(n * m), np.empty(n * m), np.empty(m)
    for j in range(n - 1, -1, -1):
        a, b = columns[j], columns[j + 1]
        for p in range(a, b):
            for s in range(m):
                line[below[p] * m + s], total[below[p] * m + s] = lower[p * m + s], 0.0
        for p in range(a, b):
            k = below[p]
            value = diagonal[k * m] * lower[p * m]  # lane 0 of `own`, in a register
            for s in range(1, m):
                own[s] = lane_of_product(s, diagonal, k, lower, p, like, kind)
            for q in range(columns[k], columns[k + 1]):
                i = below[q]
                value += z[q * m] * line[i * m]
                for s in range(1, m):
                    own[s] += lane_of_product(s, z, q, line, i, like, kind)
                for s in range(m):
                    total[i * m + s] += lane_of_product(s, z, q, lower, p, like, kind)
            own[0] = value
            for s in range(m):
                total[k * m + s] += own[s]
        for s in range(m):
            diagonal[j * m + s] = reciprocal[j * m + s]
        for p in range(a, b):
            for s in range(m):
                z[p * m + s] = -total[below[p] * m + s]
            subtract_product(diagonal, j, z, p, lower, p, like, kind)
        for p in range(a, b):
            for s in range(m):
                line[below[p] * m + s] = 0.0
    out = np.empty((places.size, m))
    for p in range(places.size):
        k = places[p]
        for s in range(m):
            out[p, s] = z[k * m + s] if k >= 0 else diagonal[(-1 - k) * m + s]
    return out


class Factor:
    """The factor of one matrix."""

    def __init__(self, analysis: Analysis, values: np.ndarray):
        self.analysis, a = analysis, analysis
        self.lower, self.reciprocal, bad = factor(
            a.starts, a.upper_rows, values[a.entries], a.parent, a.columns, a.below, PLAIN, MIXED
        )
        if bad >= 0:
            raise NotPositiveDefiniteError(
                f"sparse.cholesky: the matrix is not positive definite: the pivot of row {a.order[bad]} fails"
            )
        self.inverse: Any = None

    def logdet(self) -> float:
        return -float(np.log(self.reciprocal).sum())

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return the solutions for the rows of b, of shape (k, n)."""
        a = self.analysis
        return solution(
            a.columns, a.below, self.lower, self.reciprocal, a.order, np.ascontiguousarray(b, float)
        )

    def selected_inverse(self) -> np.ndarray:
        """Return the entries of the inverse at the places of the matrix; not to be written."""
        if self.inverse is None:
            a = self.analysis
            found = selected_inverse(a.columns, a.below, self.lower, self.reciprocal, a.places, PLAIN, MIXED)
            self.inverse = found[:, 0]
        return self.inverse

    def sample(self, e: np.ndarray) -> np.ndarray:
        a = self.analysis
        return backward(a.columns, a.below, self.lower, self.reciprocal, a.order, e)


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
    if not len(directions):
        return factored(analysis, values).selected_inverse().copy()
    lanes = 1 << len(directions)
    at, like = [1 << k for k in range(len(directions))], PLAIN * lanes
    lower, reciprocal = factor_lanes(analysis, values, directions, at, like, MIXED)
    a = analysis
    found = selected_inverse(a.columns, a.below, lower, reciprocal, a.places, like, MIXED)
    return np.ascontiguousarray(found[:, -1])


def inverse_derivatives(analysis: Analysis, values: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return the derivatives of the selected inverse along each of the directions, which share its factor."""
    a, found = analysis, []
    for start in range(0, len(directions), MOST_TANGENTS):
        some = directions[start : start + MOST_TANGENTS]
        like = PLAIN * (1 + len(some))
        lower, reciprocal = factor_lanes(a, values, some, range(1, len(like)), like, SINGLE)
        lanes = selected_inverse(a.columns, a.below, lower, reciprocal, a.places, like, SINGLE)
        found.append(lanes[:, 1:].T)
    return np.concatenate(found)


def factor_lanes(
    a: Analysis, values: np.ndarray, directions: np.ndarray, at, like: tuple, kind: tuple
) -> tuple:
    """Return (entries of L, 1 / D) with lanes; the directions lie in the lanes `at`."""
    factored(a, values)  # raise here if the matrix is not symmetric positive definite
    data = np.zeros((values.size, len(like)))
    data[:, 0] = symmetrised(a, values)
    for k, w in zip(at, directions, strict=True):
        data[:, k] = symmetrised(a, w)
    return factor(
        a.starts, a.upper_rows, data[a.entries].reshape(-1), a.parent, a.columns, a.below, like, kind
    )[:2]
