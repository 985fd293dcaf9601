"""Operations on small matrices as rows of the interpreter: factorisations and solutions of up to 4 unknowns,
and whatever is linear.

`b` is the block, `to` the places of the result, `at` those of the operands.  A pivot that is zero gives what
is not finite, and so the whole run to NumPy, which raises."""

import math
from typing import Any

import numpy as np

from ...ops.linalg import factorizations
from ...ops.linalg.hermitian import alike_each, folded, mirrored, tolerance
from ..costs import MATRIX_COLUMNS, MATRIX_UNKNOWNS, PROBED_ELEMENTS
from ..record.settings_keys import settings_key

COEFFICIENTS: dict = {}


def linear_code(b: Any, to: Any, i: Any, at: list, layout: tuple) -> None:
    """By the coefficients, which unit vectors show."""
    _, shape, strides, _, _ = layout
    key = i.name, shape, strides, settings_key(i.params)
    if key not in COEFFICIENTS:
        columns = []
        for n in range(at[0].size):
            unit = np.zeros(at[0].size)
            unit[n] = 1.0
            columns.append(np.asarray(i.prim.run(laid_like(unit, shape, strides), **i.params)).ravel())
        COEFFICIENTS[key] = np.stack(columns, 1)
    c = COEFFICIENTS[key]
    b.row("copy", to, b.nothing)
    targets, sources = np.nonzero(c)
    if targets.size:
        numbers = np.array([int(b.number(float(v))) for v in c[targets, sources]])
        b.row("muladd", to.ravel()[targets], at[0].ravel()[sources], numbers)


def laid_like(flat: np.ndarray, shape: tuple, strides: tuple) -> np.ndarray:
    order = sorted(range(len(shape)), key=lambda n: -abs(strides[n]))
    fresh = np.empty([shape[n] for n in order]).transpose([order.index(n) for n in range(len(shape))])
    fresh[...] = flat.reshape(shape)
    return fresh


def cholesky_code(b: Any, to: Any, i: Any, at: list, layout: tuple) -> None:
    a, n = at[0], len(to)
    b.row("copy", to, b.nothing)
    for j in range(n):
        column, product = b.temporary(n - j), b.temporary(n - j)
        b.row("copy", column, a[j:, j])
        for p in range(j):
            b.row("mul", product, to[j:, p], to[j, p])
            b.row("sub", column, column, product)
        b.row("div", product[:1], b.number(1.0), column[:1])  # a pivot of zero is not positive
        b.row("sqrt", to[j : j + 1, j], column[:1])
        b.row("div", to[j + 1 :, j], column[1:], to[j, j])


def substitution_code(b: Any, a: Any, x: Any, lower: bool, unit: bool) -> None:
    """x becomes the solution for a triangle."""
    n = len(a)
    for j in range(n) if lower else reversed(range(n)):
        if not unit:
            b.row("div", x[j], x[j], a[j, j])
        rest = slice(j + 1, n) if lower else slice(0, j)
        eliminated(b, x[rest], a[rest, j], x[j])


def eliminated(b: Any, x: Any, factors: Any, row: Any) -> None:
    """x -= factors row."""
    product = b.temporary(*x.shape)
    b.row("mul", product, factors[:, None], row)
    b.row("sub", x, x, product)


def triangular(b: Any, to: Any, i: Any, at: list, layout: tuple) -> None:
    trans = factorizations.TRANS[i.params["trans"]]
    b.row("copy", to, at[1])
    a = at[0].T if trans else at[0]
    substitution_code(b, a, to if to.ndim == 2 else to[:, None], bool(i.params["lower"]) != bool(trans), bool(i.params["unit_diagonal"]))


def solve_code(b: Any, to: Any, i: Any, at: list, layout: tuple) -> None:
    """By elimination; the larger of two candidates becomes the pivot."""
    n = len(at[0])
    w, x = b.temporary(n, n), to if to.ndim == 2 else to[:, None]
    b.row("copy", w, at[0])
    b.row("copy", to, at[1])
    for j in range(n):
        for k in range(j + 1, n):
            sizes, larger = b.temporary(2), b.temporary()
            b.row("abs", sizes, np.stack([w[j, j], w[k, j]]))
            b.row("lt", larger, sizes[0], sizes[1])
            for rows in (w[:, j:], x):
                first, second = b.temporary(rows.shape[1]), b.temporary(rows.shape[1])
                b.row("select", first, larger, rows[k], rows[j])
                b.row("select", second, larger, rows[j], rows[k])
                b.row("copy", rows[j], first)
                b.row("copy", rows[k], second)
        factors = b.temporary(n - j - 1)
        b.row("div", factors, w[j + 1 :, j], w[j, j])
        eliminated(b, w[j + 1 :, j + 1 :], factors, w[j, j + 1 :])
        eliminated(b, x[j + 1 :], factors, x[j])
    substitution_code(b, w, x, False, False)


def is_symmetric_code(b: Any, to: Any, i: Any, at: list, layout: tuple) -> None:
    """Is the matrix symmetric to rounding, and not diagonal?"""
    x, n = at[0], len(at[0])
    made = [b.temporary(n, n) for _ in range(8)]
    same, filled, gap, size, root, beyond, scale, close = made
    b.row("eq", same, x, x.T)
    b.row("ne", filled, x, b.nothing)
    b.row("sub", gap, x, x.T)
    b.row("abs", gap, gap)
    b.row("abs", size, x)
    roots = b.temporary(n)
    b.row("sqrt", roots, size.diagonal())
    b.row("mul", root, roots[:, None], roots)
    b.row("lt", beyond, size, root)
    b.row("select", scale, beyond, root, size)
    b.row("mul", scale, scale, b.number(tolerance(np.zeros((n, n)))))
    b.row("le", close, gap, scale)
    b.row("mul", close, close, filled)
    b.row("mul", close, close, filled.T)
    b.row("select", close, same, same, close)
    sums = b.temporary(2)
    b.row("copy", sums, b.nothing)
    b.row("addto", np.broadcast_to(sums[0], close.shape), close)
    beside = filled[~np.eye(n, dtype=bool)]
    b.row("addto", np.broadcast_to(sums[1], beside.shape), beside)
    b.row("eq", sums[:1], sums[:1], b.number(float(n * n)))
    b.row("lt", sums[1:], b.nothing, sums[1:])
    b.row("mul", to.ravel(), sums[:1], sums[1:])


MATRICES = {
    factorizations.cholesky_lower.prim: cholesky_code,
    factorizations.solve_triangular.prim: triangular,
    factorizations.solve_matrix.prim: solve_code,
    alike_each.prim: is_symmetric_code,
}


def way(i: Any, shapes: list) -> Any:
    """The function that writes this operation out, for operands of these shapes; None if there is none."""
    prim, a = i.prim, shapes[0] if shapes else ()
    if prim in MATRICES:
        fits = len(a) == 2 and 0 < a[0] == a[1] <= MATRIX_UNKNOWNS
        for to in shapes[1:]:
            fits = fits and 0 < len(to) < 3 and to[0] == a[0] and (len(to) == 1 or 0 < to[1] <= MATRIX_COLUMNS)
        return MATRICES[prim] if fits else None
    if not (prim.linear or ((prim is folded.prim or prim is mirrored.prim) and type(i.params["alike"]) is bool)):
        return None
    return linear_code if len(shapes) == 1 and 0 < math.prod(a) <= PROBED_ELEMENTS and is_known(i.params) else None


def is_known(params: dict) -> bool:
    try:
        hash(settings_key(params))
    except TypeError:
        return False
    return True
