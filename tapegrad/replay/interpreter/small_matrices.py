"""Operations on small matrices as rows of the interpreter: factorisations and solutions of up to 4
unknowns.

`b` is the block, `to` the places of the result, `at` those of the operands.  The first two axes are those of
a matrix. Further axes are a stack, and a row does all of it.  A pivot that is zero gives what is not finite,
and so the whole run to NumPy, which raises."""

import numpy as np

from ...ops.linalg import factorizations


def cholesky_code(b, to, a) -> None:
    n, stack = len(to), to.shape[2:]
    b.row("copy", to, b.nothing)
    for j in range(n):
        column, product = b.temporary(n - j, *stack), b.temporary(n - j, *stack)
        b.row("copy", column, a[j:, j])
        for p in range(j):
            b.row("mul", product, to[j:, p], to[j, p])
            b.row("sub", column, column, product)
        b.row("div", product[:1], b.number(1.0), column[:1])  # a pivot of zero is not positive
        b.row("sqrt", to[j : j + 1, j], column[:1])
        b.row("div", to[j + 1 :, j], column[1:], to[j, j])


def substitution_code(b, a, x, lower: bool, unit: bool) -> None:
    """x becomes the solution for a triangle."""
    n = len(a)
    for j in range(n) if lower else reversed(range(n)):
        if not unit:
            b.row("div", x[j], x[j], a[j, j])
        rest = slice(j + 1, n) if lower else slice(0, j)
        eliminated(b, x[rest], a[rest, j], x[j])


def eliminated(b, x, factors, row) -> None:
    """x -= factors row."""
    product = b.temporary(*x.shape)
    b.row("mul", product, factors[:, None], row)
    b.row("sub", x, x, product)


def triangular(b, to, a, y, trans=0, lower: bool = False, unit_diagonal: bool = False, **_) -> None:
    trans = factorizations.TRANS[trans]
    b.row("copy", to, y)
    substitution_code(
        b,
        a.swapaxes(0, 1) if trans else a,
        to if to.ndim == a.ndim else to[:, None],
        bool(lower) != bool(trans),
        bool(unit_diagonal),
    )


def solve_code(b, to, a, y) -> None:
    """By elimination; the larger of two candidates becomes the pivot."""
    w, x = b.temporary(*a.shape), to if to.ndim == a.ndim else to[:, None]
    b.row("copy", w, a)
    b.row("copy", to, y)
    for j in range(len(a)):
        for k in range(j + 1, len(a)):
            larger = larger_code(b, w, j, k)
            exchanged(b, w[:, j:], larger, j, k)
            exchanged(b, x, larger, j, k)
        eliminated(b, x[j + 1 :], column_eliminated(b, w, j), x[j])
    substitution_code(b, w, x, False, False)


def det_code(b, to, a) -> None:
    """By the same elimination."""
    w, stack = b.temporary(*a.shape), a.shape[2:]
    b.row("copy", w, a)
    b.row("copy", to, b.number(1.0))
    for j in range(len(a)):
        for k in range(j + 1, len(a)):
            larger, opposite = larger_code(b, w, j, k), b.temporary(*stack)
            exchanged(b, w[:, j:], larger, j, k)
            b.row("neg", opposite, to)
            b.row("select", to, larger, opposite, to)
        b.row("mul", to, to, w[j, j])
        if j + 1 < len(a):
            column_eliminated(b, w, j)


def column_eliminated(b, w, j: int):
    """Eliminate column j below the diagonal; return the factors of the rows."""
    factors = b.temporary(len(w) - j - 1, *w.shape[2:])
    b.row("div", factors, w[j + 1 :, j], w[j, j])
    eliminated(b, w[j + 1 :, j + 1 :], factors, w[j, j + 1 :])
    return factors


def larger_code(b, w, j: int, k: int):
    """Is the candidate in row k the larger one?"""
    sizes, larger = b.temporary(2, *w.shape[2:]), b.temporary(*w.shape[2:])
    b.row("abs", sizes, np.stack([w[j, j], w[k, j]]))
    b.row("lt", larger, sizes[0], sizes[1])
    return larger


def exchanged(b, rows, larger, j: int, k: int) -> None:
    first, second = b.temporary(*rows.shape[1:]), b.temporary(*rows.shape[1:])
    b.row("select", first, larger, rows[k], rows[j])
    b.row("select", second, larger, rows[j], rows[k])
    b.row("copy", rows[j], first)
    b.row("copy", rows[k], second)


def inv_code(b, to, a) -> None:
    n = len(a)
    solve_code(b, to, a, np.broadcast_to(b.constant(np.eye(n)).reshape(n, n, *[1] * (a.ndim - 2)), to.shape))
