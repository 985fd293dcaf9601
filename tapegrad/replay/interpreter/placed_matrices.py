"""Bodies of matrices, and of operations that ask for values or call a library, as rows of the interpreter."""

import functools
import math
from collections.abc import Callable

import numpy as np

from ..._core.registry import load
from ...kernels.trace.small_matrices import eliminated, lower_factor, substituted
from ...ops import elementwise, piecewise, reductions, shaping, sorting
from ...ops.einsum import FEW_MULTIPLICATIONS, as_matrices
from ...ops.indexing import traced_masks
from ...ops.indexing.traced_indices import ELEMENT_NUMBERS
from ...ops.linalg import decompositions, determinants, equations, factorizations, hermitian
from ...ops.linalg.hermitian import tolerance
from ..costs import BUFFER_ELEMENTS, MATRIX_UNKNOWNS, SMALL_FACTORS, UNBLOCKED_COLUMNS, WRITTEN_OUT_PRODUCTS
from .foreign_calls import NO, YES, ufunc_loop
from .placed_arrays import (
    DTYPES,
    FUNCTIONS,
    NotPlaced,
    PlacedArray,
    all_placed,
    chosen,
    composed,
    joined,
    new_array,
    placed,
    triangle_of,
    zeros,
)
from .placed_complex import bilinear, phase
from .placed_orders import (
    added_at,
    check_ordered,
    element_numbers,
    first_chosen,
    gathered,
    scattered,
)

EPSILON = float(np.finfo(float).eps)


def scale_of(x, axis):
    """(Another power of 2 than the body's, of which the quotient of scaled numbers has the same bits.)"""
    top = abs(x).max(axis, True)
    return np.where(
        top > 1e100, 2.0**-600, np.where(np.logical_not(top == 0.0) * (top < 1e-100), 2.0**600, 1.0)
    )


def part_of_hypot(x, y, r):
    zero = r == 0.0
    return np.where(zero, 0.0, x / np.where(zero, 1.0, r))


def convolve_full(x, y) -> PlacedArray:
    if len(x) < len(y):
        x, y = y, x
    b, to = x.b, zeros(x.b, len(x) + len(y) - 1)
    for k in range(len(y)):
        b.row("muladd", to[k : k + len(x)], x.at, y.at[k])
    return PlacedArray(b, to)


def contracted(subscripts: str, *xs: PlacedArray) -> PlacedArray:
    """einsum of one or two arrays."""
    given, to_labels = subscripts.replace(" ", "").split("->")
    labels = given.split(",")
    xs = tuple(all_placed(*xs))
    b = xs[0].b
    sizes = {
        label: n for x, names in zip(xs, labels, strict=True) for label, n in zip(names, x.shape, strict=True)
    }
    order = [label for label in sizes if label not in to_labels] + [*to_labels]
    shape = tuple([sizes[label] for label in order])
    if "." in subscripts or not {x.kind for x in xs} <= {"f", "c"}:
        raise NotPlaced("einsum")
    if any([x.kind == "c" for x in xs]):
        of_parts = functools.partial(contracted, subscripts)
        return (
            composed(of_parts(xs[0].real), of_parts(xs[0].imag)) if len(xs) == 1 else bilinear(of_parts, *xs)
        )
    how = as_matrices(subscripts) if len(xs) == 2 and math.prod(shape) > FEW_MULTIPLICATIONS else None
    if how is not None:
        return how.product(*xs)
    if math.prod(shape) > BUFFER_ELEMENTS:
        raise NotPlaced("einsum")
    to, wide = zeros(b, *[sizes[label] for label in to_labels]), []
    for x, names in zip(xs, labels, strict=True):
        at = x.at.transpose([names.index(label) for label in order if label in names])
        wide.append(
            np.broadcast_to(at.reshape([sizes[label] if label in names else 1 for label in order]), shape)
        )
    b.row("muladd" if len(xs) > 1 else "addto", np.broadcast_to(to, shape), *wide)
    return PlacedArray(b, to)


def symmetric(x: PlacedArray) -> PlacedArray:
    """Is the matrix Hermitian to rounding, and not diagonal?"""
    n, mirror = len(x), x.T.conj()
    size, filled = abs(x), x != 0.0
    root = np.sqrt(size[np.arange(n), np.arange(n)])
    root = root[:, None] * root
    gap = abs(x - mirror)
    near = (gap <= np.where(size < root, root, size) * tolerance(np.zeros((n, n)))) * filled * filled.T
    same = np.where(x == mirror, x == mirror, near).sum(None) == float(n * n)
    return (same * (0.0 < filled[~np.eye(n, dtype=bool)].sum(0))).reshape(1, 1)


def of_matrices(name: str, by_rows: Callable | None = None) -> Callable:
    """A function of NumPy's of matrices: by rows for a few unknowns, else by its loop."""

    def f(*x, **settings):
        x = tuple(all_placed(*x))
        b = x[0].b
        check_ordered(*[v for v in x if v.kind == "f"])
        kind = "c" if any([v.kind == "c" for v in x]) else "f"
        if x[0].ndim > 2 and by_rows is not None:
            return of_stack(name, by_rows, *x, **settings)
        n, columns = len(x[0]), x[-1].shape[1:]
        if x[0].shape != (n, n) or not 0 < x[-1].ndim < 3 or not x[-1].size or len(x[-1]) != n:
            raise NotPlaced(name)
        shape = () if name in ("det", "slogdet") else x[-1].shape
        made = [new_array(b, shape, kind) for _ in range(1 + (name == "slogdet"))]
        if (
            kind == "f"
            and by_rows is not None
            and (not name or n <= MATRIX_UNKNOWNS)
            and n * x[-1].size <= WRITTEN_OUT_PRODUCTS
        ):
            b.row("copy", made[0].at, by_rows(*x, **settings).at)
        else:
            x = tuple([v.astype(DTYPES[kind]) for v in x])
            ufunc = getattr(
                load("numpy.linalg._umath_linalg"), f"{name}1" if len(x) > 1 and not columns else name, None
            )
            types = "" if kind == "f" else f"{'D' * len(x)}->{'D' * len(made)}"
            if ufunc is None or ufunc_loop(ufunc, types) is None:
                raise NotPlaced(name)
            b.of_matrices(ufunc, [v.places for v in made], *[v.places for v in x], kind=types)
        return made[0] if len(made) == 1 else tuple(made)

    return f


def decomposed(name: str, a: PlacedArray, *shapes: tuple) -> tuple:
    """The results of a loop of NumPy's that decomposes one matrix. What is not finite becomes zero there, for
    LAPACK might not end, and ends the run."""
    ufunc = getattr(load("numpy.linalg._umath_linalg"), name, None)
    if a.ndim != 2 or not a.size or ufunc is None or ufunc_loop(ufunc) is None:
        raise NotPlaced(name)
    check_ordered(a)
    made = [a.b.temporary(*shape) for shape in shapes]
    a.b.of_matrices(ufunc, made, chosen(abs(a) < np.inf, a, 0.0).at)
    return tuple([PlacedArray(a.b, to) for to in made])


def placed_eigh(a: PlacedArray, UPLO: str = "L") -> tuple:
    return decomposed("eigh_lo" if UPLO.upper() == "L" else "eigh_up", a, a.shape[:1], a.shape)


def placed_svd(a: PlacedArray) -> tuple:
    rank = min(a.shape)
    return decomposed("svd_s", a, (a.shape[0], rank), (rank,), (rank, a.shape[-1]))


def placed_pinv(a: PlacedArray, rcond, hermitian: bool):
    if hermitian:
        raise NotPlaced("pinv of hermitian matrices")
    u, s, vt = placed_svd(a)
    least = (max(a.shape) * EPSILON if rcond is None else float(rcond)) * s.max()
    inverse = np.where(s > least, 1.0 / np.where(s > least, s, 1.0), 0.0)
    return vt.T @ (inverse[:, None] * u.T)


def placed_cofactor(a: PlacedArray) -> PlacedArray:
    """(A singular matrix of four rows or more ends the run.)"""
    if 1 < a.shape[-1] < 4:
        return determinants.cofactor.prim.run(a)
    if a.ndim != 2 or len(a) < 4:
        raise NotPlaced("cofactor")
    return np.linalg.det(a) * np.linalg.inv(a).T


def placed_lu(a: PlacedArray) -> tuple:
    """By columns. `a`: a square matrix whose rows are in the order of the pivots."""
    n = len(a)
    if a.ndim != 2 or n > SMALL_FACTORS:
        raise NotPlaced("the factors of a large matrix")
    check_ordered(a)
    zero, one = a.b.number(0.0), a.b.number(1.0)
    low, up = np.where(np.eye(n, dtype=bool), one, zero), np.full((n, n), zero)
    for k in range(n):
        up[k, k:] = a.at[0]
        column = a[1:, :1] / a[:1, :1]
        low[k + 1 :, k] = column.at[:, 0]
        a = a[1:, 1:] - column * a[:1, 1:]
    return PlacedArray(a.b, low), PlacedArray(a.b, up)


def placed_qr(a: PlacedArray) -> tuple:
    """(LAPACK's own unblocked functions, which NumPy's call for matrices that are not large.)"""
    if a.ndim != 2 or len(a) < a.shape[1] or not a.size or a.shape[1] > UNBLOCKED_COLUMNS:
        raise NotPlaced("qr")
    b, (m, n) = a.b, a.shape
    check_ordered(a)
    packed, r = b.temporary(n + 2, m), b.temporary(n, n)  # the columns, then scales and working memory
    b.row("copy", packed[:n], a.at.T)
    b.lapack("dgeqr2", packed[:n], packed, m, n)
    b.row("copy", r, packed[:n, :n].T)
    b.lapack("dorg2r", packed[:n], packed, m, n)
    return PlacedArray(b, packed[:n].T), triangle_of(PlacedArray(b, r), 0, False)


def placed_factors(a: PlacedArray) -> PlacedArray:
    n = len(a)
    check_ordered(a)
    packed = a.b.temporary(n + 1, n)
    a.b.row("copy", packed[:n], a.at.T)
    a.b.lapack("dgetrf", packed, packed, n, n)
    return PlacedArray(a.b, packed)


def placed_solution(packed: PlacedArray, y: PlacedArray, transposed: bool) -> PlacedArray:
    b, n = y.b, y.shape[0]
    check_ordered(y)
    columns = b.temporary(*y.shape[::-1])  # one after the other
    b.row("copy", columns, y.at.T)
    b.lapack("dgetrs", columns, packed.at, n, columns.size // n, YES if transposed else NO)
    return PlacedArray(b, columns.T)


def placed_band_solution(ab: PlacedArray, y: PlacedArray, low: int, up: int) -> PlacedArray:
    b, n, height = y.b, len(y), 2 * low + up + 1
    check_ordered(ab, y)
    packed, columns = b.temporary(n * height + n), b.temporary(*y.shape[::-1])
    b.row("copy", packed[: n * height].reshape(n, height)[:, low:], ab.at.T)
    b.row("copy", columns, y.at.T)
    b.lapack("dgbsv", columns, packed, n, columns.size // n, NO, low, up, height)
    return PlacedArray(b, columns.T)


def of_stack(name: str, by_rows: Callable, a: PlacedArray, *y: PlacedArray, **settings) -> PlacedArray:
    """The same for a stack of matrices of a few unknowns: its axes become the last ones."""
    n, vector = a.shape[-1], bool(y) and y[0].ndim == 1
    given = [a, *[v[:, None] if vector else v for v in y]]
    shapes = [v.shape[-2:] for v in given]
    if not 0 < n <= MATRIX_UNKNOWNS or any([len(s) != 2 or s[0] != n for s in shapes]) or shapes[0][1] != n:
        raise NotPlaced(name)
    stack = np.broadcast_shapes(*[v.shape[:-2] for v in given])
    if not given[-1].size or n * n * math.prod(stack) > BUFFER_ELEMENTS:
        raise NotPlaced(name)
    wide = [v.moved(np.broadcast_to, (*stack, *v.shape[-2:])) for v in given]
    found = by_rows(*[v.moved(np.moveaxis, (-2, -1), (0, 1)) for v in wide], **settings)
    made = new_array(a.b, found.shape, "f")
    a.b.row("copy", made.at, found.at)
    made = made if name == "det" else made.moved(np.moveaxis, (0, 1), (-2, -1))
    return made[..., 0] if vector else made


def small_cholesky(a: PlacedArray) -> PlacedArray:
    """(A pivot of zero is not positive; what is not finite gives the whole run to NumPy, which raises.)"""
    found = lower_factor(a)
    1.0 / found[np.arange(len(a)), np.arange(len(a))]
    return found


def small_inverse(a: PlacedArray) -> PlacedArray:
    unit = np.eye(len(a)).reshape(*a.shape[:2], *[1] * (a.ndim - 2))
    return eliminated(a).solution(placed(a.b, np.broadcast_to(unit, a.shape)))


def small_triangular(a, y, trans=0, lower: bool = False, unit_diagonal: bool = False, **_) -> PlacedArray:
    turned = bool(factorizations.TRANS[trans])
    return substituted(a.swapaxes(0, 1) if turned else a, y, bool(lower) != turned, bool(unit_diagonal))


FUNCTIONS |= {
    np.take_along_axis: lambda x, at, axis: gathered(x, at, axis),
    np.convolve: lambda x, y, mode: convolve_full(x, y),
    np.einsum: contracted,
    np.linalg.cholesky: of_matrices("cholesky_lo", small_cholesky),
    np.linalg.solve: of_matrices("solve", lambda a, b: eliminated(a).solution(b)),
    np.linalg.inv: of_matrices("inv", small_inverse),
    np.linalg.det: of_matrices("det", lambda a: eliminated(a).determinant()),
    np.linalg.slogdet: of_matrices("slogdet"),
    np.linalg.eigh: placed_eigh,
    np.linalg.pinv: placed_pinv,
}
TRANSLATED: dict = {
    reductions.scale_of.prim: scale_of,
    elementwise.phase_of.prim: phase,
    piecewise.part_of_hypot.prim: part_of_hypot,
    shaping.packed.prim: lambda *xs, to=(-1,): joined([x.reshape(1) for x in xs]).reshape(to),
    sorting.added_at.prim: added_at,
    hermitian.alike_each.prim: symmetric,
    ELEMENT_NUMBERS: element_numbers,
    traced_masks.first_chosen.prim: first_chosen,
    sorting.added_by.prim: scattered,
    factorizations.solve_triangular.prim: of_matrices("", small_triangular),
    factorizations.FACTORS: placed_factors,
    determinants.cofactor.prim: placed_cofactor,
    decompositions.singular.prim: placed_svd,
    equations.lu_of.prim: placed_lu,
    decompositions.qr_of.prim: placed_qr,
    factorizations.SOLUTION: placed_solution,
    equations.solve_band.prim: placed_band_solution,
}
