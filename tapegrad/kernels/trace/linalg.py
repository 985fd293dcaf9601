"""Linear algebra of symbolic matrices: cholesky, solve, inv, det, slogdet, triangular solves.

Large matrices are blocks, small ones are unrolled. `symbolic_solve`, `symbolic_inv` and `symbolic_det` pivot:
selects exchange rows without a branch, and each sample has its own order. 2 x 2 matrices use Cramer's rule,
and determinants up to 4 x 4 are sums of products. A matrix without a Cholesky factor gives nan for its
sample; nothing raises."""

import math

import numpy as np

from ..._core.errors import KernelError
from .small_matrices import Elimination, eliminated, lower_factor, substituted
from .symbolic import (
    Sym,
    large,
    lift,
    lifted,
    symbolic_where,
)

# rows of a matrix whose elimination is a block: unrolled it is no faster, and compiles for seconds
ELIMINATED_WHOLE = 12


def one_matrix(a) -> Sym:
    """Return a as a symbolic matrix; raise for a stack of matrices."""
    (a,) = lifted(a)
    if a.ndim != 2:
        raise KernelError(
            f"linear algebra of an array of shape {a.shape} in a kernel: one matrix at a time; "
            "loop over a stack"
        )
    return a


def symbolic_cholesky(a) -> Sym:
    a = one_matrix(a)
    g = a.g
    if g.limits.large(a.size):
        return Sym(g, g.names(g.cholesky(g.pack(a.ids)), a.shape))
    return lower_factor(a)


def symbolic_solve_triangular(a, b, trans=0, lower: bool = False, unit_diagonal: bool = False, **_) -> Sym:
    a, b = lifted(a, b)
    g = one_matrix(a).g
    transpose = trans in (1, "T", 2, "C")
    if g.limits.large(a.size) or large(g, b.ids):
        right = b.reshape(-1, 1) if b.ndim == 1 else b
        return Sym(
            g, g.names(g.trisolve(g.pack(a.ids), g.pack(right.ids), lower, transpose, unit_diagonal), b.shape)
        )
    if transpose:
        a, lower = a.T, not lower
    return substituted(a, b, lower, unit_diagonal)


def _elimination(a: Sym, numbers: int = 0) -> Elimination:
    """Eliminate, for right-hand sides of so many numbers; a matrix that is met again is not traced again."""
    g, n, key = a.g, len(a), a.ids.tobytes()
    if key not in g.eliminated:
        # choices of rows, products and differences
        g.allow(4 * n**3 // 3 + 3 * n * numbers if n < ELIMINATED_WHOLE else math.inf)
        g.eliminated[key] = eliminated(a)
    return g.eliminated[key]


def symbolic_solve(a, b) -> Sym:
    a, b = lifted(a, b)
    g, n = one_matrix(a).g, len(a)
    if n == 1:
        return b / a[0, 0]
    if n == 2:
        d = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
        r = 1.0 / d
        return lift(g, [(a[1, 1] * b[0] - a[0, 1] * b[1]) * r, (a[0, 0] * b[1] - a[1, 0] * b[0]) * r])
    if g.limits.large(a.size) or large(g, b.ids):
        right = b.reshape(-1, 1) if b.ndim == 1 else b
        return Sym(g, g.names(g.lusolve(g.pack(a.ids), g.pack(right.ids)), b.shape))
    key = a.ids.tobytes(), b.ids.tobytes(), b.shape
    if key not in g.eliminated:  # a step is traced several times
        g.eliminated[key] = _elimination(a, b.size).solution(b)
    return g.eliminated[key].copy()


def symbolic_inv(a) -> Sym:
    a = one_matrix(a)
    g, n = a.g, len(a)
    if n == 2:
        r = 1.0 / (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])
        return lift(g, [[a[1, 1] * r, -(a[0, 1] * r)], [-(a[1, 0] * r), a[0, 0] * r]])
    return symbolic_solve(a, np.eye(n))


def symbolic_det(a) -> Sym:
    a = one_matrix(a)
    g, n = a.g, len(a)
    if n <= 4:
        return sum_of_minors(a, tuple(range(n)))
    if g.limits.large(a.size):
        block = g.pack(a.ids)
        return Sym(g, g.det(block, g.lu(block)))
    return _elimination(a).determinant()


def sum_of_minors(a: Sym, columns: tuple) -> Sym:
    """The determinant of the last rows of a in these columns, by its first row. No pivot divides, so that of
    a singular matrix has its derivatives, too."""
    row, terms = len(a) - len(columns), []
    for k, c in enumerate(columns):
        rest = columns[:k] + columns[k + 1 :]
        terms.append(a[row, c] * sum_of_minors(a, rest) if rest else a[row, c])
    total = terms[0]
    for k, term in enumerate(terms[1:]):
        total = total + term if k % 2 else total - term
    return total


def symbolic_slogdet(a) -> tuple[Sym, Sym]:
    """Return the sign and the logarithm of the absolute value."""
    a = one_matrix(a)
    g, n = a.g, len(a)
    if n <= 2:
        d = a[0, 0] if n == 1 else symbolic_det(a)
        parts, sign = [d], lift(g, 1.0)
    elif g.limits.large(a.size):
        block = g.pack(a.ids)
        factors = g.lu(block)
        return Sym(g, g.detsign(factors)), Sym(g, g.logdet(block, factors))
    else:
        found = _elimination(a)
        parts, sign = [found.upper[k, k] for k in range(n)], found.sign()
    logabs = lift(g, 0.0)
    for d in parts:
        sign = symbolic_where(d < 0, -sign, symbolic_where(d > 0, sign, d * 0.0))
        logabs = logabs + np.log(abs(d))
    return sign, logabs
