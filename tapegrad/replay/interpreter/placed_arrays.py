"""Bodies of operations as rows of the interpreter: a body runs once on arrays of places.

A `PlacedArray` acts as an array of NumPy.  Views, reshapes and broadcasts give other places.  A ufunc, a
reduction or a scan becomes a row, or a call of NumPy's own loop (interpreter.foreign_calls.py).  A body that
asks for a value, or calls what is not here, raises `NotPlaced`.  The operation then stays with Python."""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.arrays import F8
from ..._core.registry import load
from ...ops import piecewise, products, reductions, sorting
from ...ops.einsum import FEW_MULTIPLICATIONS, as_matrices
from ...ops.indexing import traced_masks
from ...ops.indexing.traced_indices import ELEMENT_NUMBERS, HOLE
from ...ops.linalg import block_matrices, decompositions, equations, factorizations, hermitian
from ...ops.linalg.hermitian import tolerance
from ..costs import (
    BLOCK_MATRICES,
    BLOCK_PRODUCTS,
    BUFFER_ELEMENTS,
    MATRIX_UNKNOWNS,
    SMALL_FACTORS,
    SORT_ELEMENTS,
    STABLE_SORT_ELEMENTS,
    WRITTEN_OUT_PRODUCTS,
)
from .foreign_calls import ufunc_loop
from .machine_code import LIBM
from .small_matrices import cholesky_code, det_code, inv_code, solve_code, triangular

# ufuncs that are a row: its name
ROWS = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "div", np.negative: "neg",
    np.absolute: "abs",
    np.sqrt: "sqrt", np.less: "lt", np.less_equal: "le", np.equal: "eq", np.not_equal: "ne",
    **{getattr(np, name): name for name in LIBM},
}  # fmt: skip
# ufuncs that are other ones
SPELT: dict = {
    np.greater: lambda x, y: np.less(y, x),
    np.greater_equal: lambda x, y: np.less_equal(y, x),
    np.isnan: lambda x: x != x,
    np.isfinite: lambda x: abs(x) < np.inf,
    np.isinf: lambda x: abs(x) == np.inf,
    np.square: lambda x: x * x,
    np.reciprocal: lambda x: 1.0 / x,
    np.positive: lambda x: x,
    np.conjugate: lambda x: x,
    np.logical_not: lambda x: x == 0.0,
    np.invert: lambda x: of_truths(x) == 0.0,
    np.logical_and: lambda x, y: x.astype(bool) * y.astype(bool),
    np.logical_or: lambda x, y: x.astype(bool) + y.astype(bool),
    np.sign: lambda x: np.where(x < 0.0, -1.0, np.where(x > 0.0, 1.0, abs(x))),
    np.deg2rad: lambda x: x * (math.pi / 180.0),
    np.rad2deg: lambda x: x * (180.0 / math.pi),
    np.bitwise_and: lambda x, y: of_truths(x) * of_truths(y),
    np.fabs: abs,
}


def of_truths(x: Any) -> Any:
    if x.dtype != bool:
        raise NotPlaced("bits of numbers")
    return x


TRUTHS = frozenset(("lt", "le", "eq", "ne"))
# exponents for which NumPy's operator ** is another ufunc
POWERS = {1.0: np.positive, 2.0: np.square, 0.5: np.sqrt, -1.0: np.reciprocal}
MOVES = (
    np.reshape,
    np.transpose,
    np.moveaxis,
    np.swapaxes,
    np.squeeze,
    np.expand_dims,
    np.broadcast_to,
    np.ravel,
    np.flip,
    np.diagonal,
)
KINDS = {F8: "f", np.dtype(bool): "b", np.dtype(np.int64): "i"}
EXTREMES = (np.maximum, np.minimum)
# ufuncs whose loops for floats give whole numbers of whole numbers; a divisor of zero gives nan, and ends the run
WHOLE_OF_WHOLE = (*EXTREMES, np.remainder, np.floor_divide)
# rows that give whole numbers of whole numbers
EXACT_OF_WHOLE = frozenset(("add", "sub", "mul", "neg", "abs"))
FLOAT_BITS = 53  # whole numbers of fewer bits are floats


class NotPlaced(TypeError):
    """What the body asks for is known only when the program runs, or is no row."""


class PlacedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Places of the arena, as an array of NumPy.  `b`: the block that gets the rows; `kind`: that of the
    dtype."""

    def __init__(self, b: Any, at: Any, kind: str = "f"):
        self.b, self.at, self.kind = b, at, kind

    shape = property(lambda self: self.at.shape)
    ndim = property(lambda self: self.at.ndim)
    size = property(lambda self: self.at.size)
    dtype = property(
        lambda self: F8 if self.kind == "f" else np.dtype(bool if self.kind == "b" else np.int64)
    )
    real = property(operator.pos)
    T = property(lambda self: self.moved(np.transpose))

    def moved(self, f: Callable, *args: Any, **kwargs: Any) -> "PlacedArray":
        return PlacedArray(self.b, np.asarray(f(self.at, *args, **kwargs)), self.kind)

    def __getitem__(self, key: Any) -> "PlacedArray":
        return self.moved(operator.getitem, key)

    def __len__(self) -> int:
        return len(self.at)

    def reshape(self, *shape: Any) -> "PlacedArray":
        return self.moved(np.ndarray.reshape, *shape)

    def transpose(self, *axes: Any) -> "PlacedArray":
        return self.moved(np.ndarray.transpose, *axes)

    def swapaxes(self, *axes: int) -> "PlacedArray":
        return self.moved(np.swapaxes, *axes)

    def conj(self) -> "PlacedArray":
        return self

    def squeeze(self, axis: Any = None) -> "PlacedArray":
        return self.moved(np.squeeze, axis)

    def copy(self, order: str = "C") -> "PlacedArray":
        return self

    def astype(self, dtype: Any, copy: bool = True) -> "PlacedArray":
        kind = KINDS.get(np.dtype(dtype), "-")
        if kind == "b" != self.kind:
            return self != 0.0
        if kind == "i" and self.kind == "f":
            return whole(self)
        if kind not in "f" + self.kind and (self.kind, kind) != ("b", "i"):
            raise NotPlaced(f"astype({dtype})")
        return PlacedArray(self.b, self.at, kind)

    def sum(self, axis: Any = None, keepdims: bool = False) -> "PlacedArray":
        return reduced(np.add, self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> "PlacedArray":
        return reduced(np.maximum, self, axis, keepdims)

    def argmax(self, axis: Any = None) -> "PlacedArray":
        return first_extreme(np.maximum, self, axis, False)

    def any(self, axis: Any = None, keepdims: bool = False) -> "PlacedArray":
        return self.astype(bool).sum(axis, keepdims) > 0

    def all(self, axis: Any = None, keepdims: bool = False) -> "PlacedArray":
        return np.logical_not((self == 0.0).any(axis, keepdims))

    def min(self, axis: Any = None, keepdims: bool = False) -> "PlacedArray":
        return reduced(np.minimum, self, axis, keepdims)

    def cumsum(self, axis: int) -> "PlacedArray":
        return scanned(np.add, self, axis)

    def __pow__(self, n: Any) -> Any:
        if type(n) in (int, float) and n in POWERS:
            return POWERS[n](self)
        return by_products(self, int(n)) if n in range(3, 9) else np.power(self, n)

    def __bool__(self) -> bool:
        raise NotPlaced("a condition on a value")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotPlaced("an array of NumPy")

    def __array_ufunc__(self, ufunc: Any, method: str, *x: Any, **kwargs: Any) -> Any:
        if method == "reduce" and not kwargs.keys() - {"axis", "keepdims"}:
            return reduced(ufunc, x[0], kwargs.get("axis", 0), kwargs.get("keepdims", False))
        if method != "__call__" or kwargs:
            raise NotPlaced(f"{ufunc.__name__}.{method}")
        return SPELT[ufunc](*x) if ufunc in SPELT else computed(ufunc, *[placed(self.b, v) for v in x])

    def __array_function__(self, f: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        if f in MOVES:
            return args[0].moved(f, *args[1:], **kwargs)
        if f not in FUNCTIONS:
            raise NotPlaced(f.__name__)
        return FUNCTIONS[f](*args, **kwargs)


def placed(b: Any, v: Any) -> PlacedArray:
    """A value of a body, with its places."""
    if isinstance(v, PlacedArray):
        return v
    v = np.asarray(v)
    if v.dtype.kind not in "bif" or v.dtype.itemsize > F8.itemsize:
        raise NotPlaced(f"a value of {v.dtype}")
    return PlacedArray(b, b.number(float(v)) if not v.ndim else b.constant(v.astype(F8)), v.dtype.kind)


def computed(ufunc: Any, *x: PlacedArray) -> PlacedArray:
    """A ufunc, element by element."""
    b, kinds = x[0].b, {v.kind for v in x}
    name, kind = ROWS.get(ufunc), "f" if "f" in kinds else "i" if "i" in kinds else "b"
    if name in TRUTHS:
        kind = "b"
    elif kind == "b" and (ufunc is np.add or ufunc is np.bitwise_or):
        return chosen(x[0], *x)
    elif kind == "b" and name == "mul":
        kind = "b"
    elif name == "div":
        kind = "f"
    elif kind != "f" and (kind == "b" or (name not in EXACT_OF_WHOLE and ufunc not in WHOLE_OF_WHOLE)):
        raise NotPlaced(f"{ufunc.__name__} of whole numbers")
    to = b.temporary(*np.broadcast_shapes(*[v.shape for v in x]))
    if name is not None:
        b.row(name, to, *[v.at for v in x])
    elif ufunc.signature is None and ufunc.nout == 1 and ufunc_loop(ufunc) is not None:
        b.called(ufunc, to, *[v.at for v in x])
    else:
        raise NotPlaced(ufunc.__name__)
    if kind == "i":
        check_exact(b, to)
    return PlacedArray(b, to, kind)


def check_exact(b: Any, at: Any) -> None:
    """What floats do not count one by one is not finite after this, and the run ends."""
    b.row("mul", b.temporary(*at.shape), at, b.number(2.0 ** (1024 - FLOAT_BITS)))


def whole(x: PlacedArray) -> PlacedArray:
    """The whole numbers towards zero."""
    cut = np.floor(abs(x))
    made = np.where(x < 0.0, -cut, cut) + 0.0  # there is no -0
    check_exact(x.b, made.at)
    return PlacedArray(x.b, made.at, "i")


def chosen(c: Any, x: Any, y: Any) -> PlacedArray:
    b = next(v.b for v in (c, x, y) if isinstance(v, PlacedArray))
    c, x, y = [placed(b, v) for v in (c, x, y)]
    to, kinds = b.temporary(*np.broadcast_shapes(c.shape, x.shape, y.shape)), {x.kind, y.kind}
    b.row("select", to, c.at, x.at, y.at)
    return PlacedArray(b, to, "f" if "f" in kinds else "i" if "i" in kinds else "b")


def joined(arrays: Any, axis: int = 0) -> PlacedArray:
    b = next(v.b for v in arrays if isinstance(v, PlacedArray))
    xs = [placed(b, v) for v in arrays]
    if len({x.kind for x in xs}) > 1:
        raise NotPlaced("concatenate of several kinds")
    return PlacedArray(b, np.concatenate([x.at for x in xs], axis), xs[0].kind)


def by_slices(x: PlacedArray, axis: Any) -> tuple:
    """(the places with the axes that are reduced first, as one axis; the shape that is kept)"""
    axes = tuple(range(x.ndim)) if axis is None else axis if type(axis) is tuple else (axis,)
    axes = tuple([n % x.ndim for n in axes])
    first = np.moveaxis(x.at, axes, tuple(range(len(axes))))
    rest = first.shape[len(axes) :]
    return first.reshape((-1, *rest)), tuple([1 if n in axes else size for n, size in enumerate(x.shape)])


def reduced(ufunc: Any, x: PlacedArray, axis: Any = None, keepdims: bool = False) -> PlacedArray:
    b, (slices, kept) = x.b, by_slices(x, axis)
    to = b.temporary(*slices.shape[1:])
    if ufunc is np.add:
        b.row("copy", to, b.nothing)
        b.row("addto", np.broadcast_to(to, slices.shape), slices)
        if x.kind == "i":
            check_exact(b, to)
    elif ufunc in EXTREMES and x.kind != "b" and len(slices):
        b.row("copy", to, slices[0])
        if len(slices) > to.size:  # each along a line of its own
            for place, line in zip(to.ravel(), slices[1:].reshape(len(slices) - 1, -1).T, strict=True):
                fold = np.broadcast_to(place, line.shape)
                b.called(ufunc, fold, fold, line)
        else:
            for line in slices[1:]:
                b.called(ufunc, to, to, line)
    else:
        raise NotPlaced(f"{ufunc.__name__}.reduce")
    return PlacedArray(b, to.reshape(kept) if keepdims else to, "f" if x.kind == "f" else "i")


def scanned(ufunc: Any, x: PlacedArray, axis: int) -> PlacedArray:
    if x.kind != "f":
        raise NotPlaced(f"{ufunc.__name__}.accumulate of whole numbers")
    b, given = x.b, np.moveaxis(x.at, axis, 0)
    if len(given) > max(BLOCK_MATRICES, x.size // len(given)):
        return scanned_by_loop(ufunc, x, axis)
    to = b.temporary(*x.shape)
    made = np.moveaxis(to, axis, 0)
    b.row("copy", made[:1], given[:1])
    for n in range(1, len(given)):
        b.row(ROWS[ufunc], made[n], made[n - 1], given[n])
    return PlacedArray(b, to)


def scanned_by_loop(ufunc: Any, x: PlacedArray, axis: int) -> PlacedArray:
    """Long lines: NumPy's loop reads what it wrote just before, as it does for `accumulate`.  The lines are
    consecutive, which is where it looks for such an overlap."""
    b, given = x.b, np.moveaxis(x.at, axis, -1)
    lines, made = b.temporary(*given.shape), b.temporary(*given.shape)
    b.row("copy", lines, given)
    b.row("copy", made[..., 0], given[..., 0])
    for k in np.ndindex(given.shape[:-1]):
        b.called(ufunc, made[k][1:], made[k][:-1], lines[k][1:])
    return PlacedArray(b, np.moveaxis(made, -1, axis))


def triangle_of(x: PlacedArray, k: int, lower: bool) -> PlacedArray:
    mask = np.tri(x.shape[-2], x.shape[-1], k if lower else k - 1, dtype=bool)
    return chosen(mask, x, 0.0) if lower else chosen(mask, 0.0, x)


def by_products(x: Any, n: int) -> Any:
    """x ** n."""
    half = x if n < 4 else by_products(x, n // 2)
    return x * (half * half) if n % 2 else half * half


def product_of_matrices(x: Any, y: Any) -> PlacedArray:
    b = next(v.b for v in (x, y) if isinstance(v, PlacedArray))
    x, y = placed(b, x), placed(b, y)
    if min(x.ndim, y.ndim) < 2 or {x.kind, y.kind} != {"f"}:
        raise NotPlaced("a product of vectors")
    count = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    to = b.temporary(*count, x.shape[-2], y.shape[-1])
    if products_of_stack(x.shape, y.shape) > BLOCK_PRODUCTS:
        raise NotPlaced("a large product of matrices")
    b.matmul(to, x.at, y.at)
    return PlacedArray(b, to)


def products_of_stack(x: tuple, y: tuple) -> float:
    """How many multiplications of numbers; infinite for a long stack of matrices that are not small."""
    count = math.prod(np.broadcast_shapes(x[:-2], y[:-2]))
    each = math.prod(x[-2:]) * (y[-1] if len(y) > 1 else 1)
    return count * each if count <= BLOCK_MATRICES or each <= BLOCK_MATRICES else math.inf


SPELT[np.matmul] = product_of_matrices
FUNCTIONS: dict = {
    np.where: chosen,
    np.tril: lambda x, k=0: triangle_of(x, k, True),
    np.triu: lambda x, k=0: triangle_of(x, k, False),
    np.concatenate: joined,
    np.real: operator.pos,
    np.any: lambda x, axis=None, keepdims=False: x.any(axis, keepdims),
    np.all: lambda x, axis=None, keepdims=False: x.all(axis, keepdims),
    np.searchsorted: lambda a, v, side="left": placed_searchsorted(a, v, side),
    np.argsort: lambda x, axis=-1, kind=None, *, stable=None: placed_argsort(x, axis, kind, stable),
    np.argmax: lambda x, axis=None, keepdims=False: first_extreme(np.maximum, x, axis, keepdims),
    np.argmin: lambda x, axis=None, keepdims=False: first_extreme(np.minimum, x, axis, keepdims),
    np.count_nonzero: lambda x, axis=None, *, keepdims=False: (x != 0).sum(axis, keepdims),
    np.digitize: lambda x, bins, right=False: placed_digitize(x, bins, right),
    np.around: lambda x, decimals=0: rounded(x, decimals),
    np.round: lambda x, decimals=0: rounded(x, decimals),
    np.nan_to_num: lambda x, copy=True, nan=0.0, posinf=None, neginf=None: without_nan(
        x, nan, posinf, neginf
    ),
    np.sinc: lambda x: sinc_of(math.pi * x),
    np.result_type: lambda *xs: np.result_type(*[x.dtype if isinstance(x, PlacedArray) else x for x in xs]),
    np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
}


def rounded(x: PlacedArray, decimals: int) -> PlacedArray:
    """(By NumPy's own steps.)"""
    if x.kind != "f":
        raise NotPlaced("round of whole numbers")
    scale = 10.0 ** abs(decimals)
    if not decimals:
        return np.rint(x)
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


def without_nan(x: PlacedArray, nan: float, posinf: Any, neginf: Any) -> PlacedArray:
    if x.kind != "f":
        raise NotPlaced("nan_to_num of whole numbers")
    high = np.finfo(float).max if posinf is None else posinf
    low = np.finfo(float).min if neginf is None else neginf
    return np.where(x != x, nan, np.where(x == np.inf, high, np.where(x == -np.inf, low, x)))


def sinc_of(x: PlacedArray) -> PlacedArray:
    y = np.where(x == 0.0, np.finfo(float).eps, x)
    return np.sin(y) / y


# --- places that are found when the program runs ---


def first_extreme(ufunc: Any, x: PlacedArray, axis: Any, keepdims: bool) -> PlacedArray:
    """Where the largest, or smallest, element is first."""
    if not x.size:
        raise NotPlaced("argmax of nothing")
    x = x.astype(F8) if x.kind == "b" else x
    if axis is None:
        found = first_extreme(ufunc, x.reshape(-1), 0, False)
        return found.reshape((1,) * x.ndim) if keepdims else found
    n, after = x.shape[axis], x.ndim - 1 - axis % x.ndim
    numbers = placed(x.b, np.arange(n)).reshape((n,) + (1,) * after)
    at = np.where(x == reduced(ufunc, x, axis, True), numbers, n)
    return reduced(np.minimum, at, axis, keepdims)


def placed_digitize(x: PlacedArray, bins: Any, right: bool) -> PlacedArray:
    bins = placed(x.b, bins)
    1.0 / (bins[:-1] <= bins[1:])  # (the quotient is not finite for bins of another order: the run ends)
    return placed_searchsorted(bins, x, "left" if right else "right")


def placed_searchsorted(a: Any, v: Any, side: str) -> PlacedArray:
    """By counting the elements that are less."""
    b = next(x.b for x in (a, v) if isinstance(x, PlacedArray))
    a, v = placed(b, a), placed(b, v)
    if a.ndim != 1 or a.size * v.size > WRITTEN_OUT_PRODUCTS or {a.kind, v.kind} != {"f"}:
        raise NotPlaced("searchsorted")
    check_ordered(a, v)
    at = a.reshape((-1,) + (1,) * v.ndim)
    return (at < v if side == "left" else at <= v).sum(0)


def placed_argsort(x: PlacedArray, axis: int, kind: Any = None, stable: Any = None) -> PlacedArray:
    is_stable = kind in ("stable", "mergesort") or stable is True
    longest = STABLE_SORT_ELEMENTS if is_stable else SORT_ELEMENTS
    if not x.ndim or x.kind != "f" or not 0 < x.shape[axis] <= longest or axis is None:
        raise NotPlaced("argsort")
    to = x.b.temporary(*x.shape)
    lines, made = np.moveaxis(x.at, axis, -1), np.moveaxis(to, axis, -1)
    for k in np.ndindex(lines.shape[:-1]):
        x.b.ordered(made[k], lines[k], is_stable)
    return PlacedArray(x.b, to, "i")


def check_ordered(*x: PlacedArray) -> None:
    """(nan is not less, nor is it equal: the run ends.)"""
    for v in x:
        v - v


def gathered(x: Any, at: PlacedArray, axis: int) -> PlacedArray:
    b, x = at.b, placed(at.b, x)
    shape = [*x.shape]
    shape[axis] = at.shape[axis]
    to = b.temporary(*shape)
    return by_indices(b, "gathered", to, x, at, axis, to)


def first_chosen(flags: PlacedArray, rows: PlacedArray) -> PlacedArray:
    if rows.ndim != 1:
        raise NotPlaced("rows that are chosen")
    return gathered(rows, flags.argmax().reshape(1), 0).reshape(())


def element_numbers(*parts: PlacedArray, at: tuple, to: tuple) -> PlacedArray:
    """The places of a[i, j, ...] in an array of this shape."""
    if any([i is not HOLE for i in at]) or not parts or len(parts) > len(to):
        raise NotPlaced("an index of other kinds")
    rest = np.arange(math.prod(to[len(parts) :])).reshape(to[len(parts) :])
    lines = [
        gathered(np.arange(n) * math.prod(to[axis + 1 :]), i.reshape(-1), 0).reshape(i.shape)
        for axis, (n, i) in enumerate(zip(to, parts, strict=False))
    ]
    first, *others = lines
    for line in others:
        first = first + line
    return first.reshape(*first.shape, *[1] * rest.ndim) + rest if rest.ndim else first


def scattered(x: PlacedArray, at: PlacedArray, axis: int, like: tuple) -> PlacedArray:
    to = x.b.temporary(*like)
    x.b.row("copy", to, x.b.nothing)
    return by_indices(x.b, "scattered", to, x, at, axis, x.at)


def by_indices(
    b: Any, name: str, to: Any, x: PlacedArray, at: PlacedArray, axis: int, beside: Any
) -> PlacedArray:
    """A row for each line along the axis.  `beside`: what lies as the indices do."""
    if at.kind != "i" or at.shape != beside.shape:
        raise NotPlaced("indices of another shape")
    lines = [np.moveaxis(v, axis, -1) for v in (to, x.at, at.at)]
    for k in np.ndindex(lines[0].shape[:-1]):
        b.indexed(name, *[line[k] for line in lines])
    return PlacedArray(b, to, x.kind)


def added_in_turn(x: PlacedArray, at: Any, shape: tuple) -> PlacedArray:
    """Elements of x are added at places that are known, which may be equal."""
    to = x.b.temporary(*shape)
    x.b.row("copy", to, x.b.nothing)
    x.b.row("addto", to[at], x.at)
    return PlacedArray(x.b, to)


def added_at(x: PlacedArray, at: Any, axis: int, like: tuple) -> PlacedArray:
    where = [*np.ogrid[tuple([slice(n) for n in at.shape])]]
    where[axis] = at
    return added_in_turn(x, tuple(where), like)


# --- operations whose bodies ask for values, or call a library ---


def scale_of(x: Any, axis: Any) -> Any:
    """(Another power of 2 than the body's, of which the quotient of scaled numbers has the same bits.)"""
    top = abs(x).max(axis, True)
    return np.where(
        top > 1e100, 2.0**-600, np.where(np.logical_not(top == 0.0) * (top < 1e-100), 2.0**600, 1.0)
    )


def part_of_hypot(x: Any, y: Any, r: Any) -> Any:
    zero = r == 0.0
    return np.where(zero, 0.0, x / np.where(zero, 1.0, r))


def convolve_full(x: Any, y: Any) -> PlacedArray:
    if len(x) < len(y):
        x, y = y, x
    b, to = x.b, x.b.temporary(len(x) + len(y) - 1)
    b.row("copy", to, b.nothing)
    for k in range(len(y)):
        b.row("muladd", to[k : k + len(x)], x.at, y.at[k])
    return PlacedArray(b, to)


def contracted(subscripts: str, *xs: PlacedArray, optimize: Any) -> PlacedArray:
    """einsum of one or two arrays."""
    given, to_labels = subscripts.replace(" ", "").split("->")
    labels = given.split(",")
    b = next(x.b for x in xs if isinstance(x, PlacedArray))
    xs = tuple([placed(b, x) for x in xs])
    sizes = {
        label: n for x, names in zip(xs, labels, strict=True) for label, n in zip(names, x.shape, strict=True)
    }
    order = [label for label in sizes if label not in to_labels] + [*to_labels]
    shape = tuple([sizes[label] for label in order])
    if len(xs) > 2 or "." in subscripts or any([x.kind != "f" for x in xs]):
        raise NotPlaced("einsum")
    how = as_matrices(subscripts) if len(xs) == 2 and math.prod(shape) > FEW_MULTIPLICATIONS else None
    if how is not None:
        return how.product(*xs)
    if math.prod(shape) > BUFFER_ELEMENTS:
        raise NotPlaced("einsum")
    to, wide = b.temporary(*[sizes[label] for label in to_labels]), []
    for x, names in zip(xs, labels, strict=True):
        at = x.at.transpose([names.index(label) for label in order if label in names])
        wide.append(
            np.broadcast_to(at.reshape([sizes[label] if label in names else 1 for label in order]), shape)
        )
    b.row("copy", to, b.nothing)
    b.row("muladd" if len(xs) > 1 else "addto", np.broadcast_to(to, shape), *wide)
    return PlacedArray(b, to)


def symmetric(x: PlacedArray) -> PlacedArray:
    """Is the matrix symmetric to rounding, and not diagonal?"""
    n = len(x)
    size, filled = abs(x), x != 0.0
    root = np.sqrt(size[np.arange(n), np.arange(n)])
    root = root[:, None] * root
    gap = abs(x - x.T)
    near = (gap <= np.where(size < root, root, size) * tolerance(np.zeros((n, n)))) * filled * filled.T
    same = np.where(x == x.T, x == x.T, near).sum(None) == float(n * n)
    return (same * (0.0 < filled[~np.eye(n, dtype=bool)].sum(0))).reshape(1, 1)


def of_matrices(name: str, by_rows: Callable | None = None) -> Callable:
    """A function of NumPy's of matrices: by rows for a few unknowns, else by its loop."""

    def f(*x: Any, **settings: Any) -> Any:
        b = next(v.b for v in x if isinstance(v, PlacedArray))
        x = tuple([placed(b, v) for v in x])
        if x[0].ndim > 2 and by_rows is not None:
            return of_stack(b, name, by_rows, *[v.at for v in x], **settings)
        n, columns = len(x[0]), x[-1].shape[1:]
        if x[0].shape != (n, n) or not 0 < x[-1].ndim < 3 or not x[-1].size or len(x[-1]) != n:
            raise NotPlaced(name)
        number = name in ("det", "slogdet")
        made = [b.temporary(*(() if number else x[-1].shape)) for _ in range(1 + (name == "slogdet"))]
        if (
            by_rows is not None
            and (not name or n <= MATRIX_UNKNOWNS)
            and n * x[-1].size <= WRITTEN_OUT_PRODUCTS
        ):
            by_rows(b, made[0], *[v.at for v in x], **settings)
        else:
            ufunc = getattr(
                load("numpy.linalg._umath_linalg"), f"{name}1" if len(x) > 1 and not columns else name, None
            )
            if ufunc is None or ufunc_loop(ufunc) is None:
                raise NotPlaced(name)
            b.of_matrices(ufunc, made, *[v.at for v in x])
        return PlacedArray(b, made[0]) if len(made) == 1 else tuple([PlacedArray(b, to) for to in made])

    return f


def decomposed(name: str, a: PlacedArray, *shapes: tuple) -> tuple:
    """The results of a loop of NumPy's that decomposes one matrix. What is not finite becomes zero there, for
    LAPACK might not end, and ends the run."""
    ufunc = getattr(load("numpy.linalg._umath_linalg"), name, None)
    if a.ndim != 2 or not a.size or ufunc is None or ufunc_loop(ufunc) is None:
        raise NotPlaced(name)
    check_ordered(a)
    made = [a.b.temporary(*shape) for shape in shapes]
    a.b.of_matrices(ufunc, made, np.where(abs(a) < np.inf, a, 0.0).at)
    return tuple([PlacedArray(a.b, to) for to in made])


def placed_eigh(a: PlacedArray, UPLO: str = "L") -> tuple:
    return decomposed("eigh_lo" if UPLO.upper() == "L" else "eigh_up", a, a.shape[:1], a.shape)


def placed_svd(a: PlacedArray) -> tuple:
    rank = min(a.shape)
    return decomposed("svd_s", a, (a.shape[0], rank), (rank,), (rank, a.shape[-1]))


def placed_cofactor(a: PlacedArray) -> PlacedArray:
    """(A singular matrix ends the run.)"""
    if a.ndim != 2 or len(a) < 4:
        raise NotPlaced("cofactor")
    return np.linalg.det(a) * np.linalg.inv(a).T


def placed_lu(a: PlacedArray) -> tuple:
    """By columns. `a`: a square matrix whose rows are in the order of the pivots."""
    n = len(a)
    if a.ndim != 2 or n > SMALL_FACTORS:
        raise NotPlaced("the factors of a large matrix")
    zero, one = a.b.number(0.0), a.b.number(1.0)
    low, up = np.where(np.eye(n, dtype=bool), one, zero), np.full((n, n), zero)
    for k in range(n):
        up[k, k:] = a.at[0]
        column = a[1:, :1] / a[:1, :1]
        low[k + 1 :, k] = column.at[:, 0]
        a = a[1:, 1:] - column * a[:1, 1:]
    return PlacedArray(a.b, low), PlacedArray(a.b, up)


def placed_factors(a: PlacedArray) -> PlacedArray:
    n = len(a)
    packed = a.b.temporary(n + 1, n)
    a.b.row("copy", packed[:n], a.at.T)
    a.b.lapack("dgetrf", packed, packed, n)
    return PlacedArray(a.b, packed)


def placed_solution(packed: PlacedArray, y: PlacedArray, transposed: bool) -> PlacedArray:
    b, n = y.b, y.shape[0]
    columns = b.temporary(*y.shape[::-1])  # one after the other
    b.row("copy", columns, y.at.T)
    b.lapack("dgetrs", columns, packed.at, n, transposed)
    return PlacedArray(b, columns.T)


def of_stack(b: Any, name: str, by_rows: Callable, a: Any, *y: Any, **settings: Any) -> PlacedArray:
    """The same for a stack of matrices of a few unknowns: its axes become the last ones."""
    n, vector = a.shape[-1], bool(y) and y[0].ndim == 1
    y = tuple([at[:, None] if vector else at for at in y])
    shapes = [at.shape[-2:] for at in (a, *y)]
    if not 0 < n <= MATRIX_UNKNOWNS or any([len(s) != 2 or s[0] != n for s in shapes]) or shapes[0][1] != n:
        raise NotPlaced(name)
    stack = np.broadcast_shapes(*[at.shape[:-2] for at in (a, *y)])
    given = [np.moveaxis(np.broadcast_to(at, (*stack, *at.shape[-2:])), (-2, -1), (0, 1)) for at in (a, *y)]
    to = b.temporary(*(() if name == "det" else given[-1].shape[:2]), *stack)
    if not to.size or n * n * math.prod(stack) > BUFFER_ELEMENTS:
        raise NotPlaced(name)
    by_rows(b, to, *given, **settings)
    if name != "det":
        to = np.moveaxis(to, (0, 1), (-2, -1))
    return PlacedArray(b, to[..., 0] if vector else to)


FUNCTIONS |= {
    np.einsum: contracted,
    np.linalg.cholesky: of_matrices("cholesky_lo", cholesky_code),
    np.linalg.solve: of_matrices("solve", solve_code),
    np.linalg.inv: of_matrices("inv", inv_code),
    np.linalg.det: of_matrices("det", det_code),
    np.linalg.slogdet: of_matrices("slogdet"),
    np.linalg.eigh: placed_eigh,
}
TRANSLATED: dict = {
    reductions.scale_of.prim: scale_of,
    piecewise.part_of_hypot.prim: part_of_hypot,
    piecewise.fraction.prim: lambda x: np.copysign(x - np.trunc(x), x),
    block_matrices.gathered_back.prim: lambda x, at, size: added_in_turn(x.reshape(-1), [*at], (size,)),
    sorting.added_at.prim: added_at,
    products.convolve_full.prim: convolve_full,
    hermitian.alike_each.prim: symmetric,
    ELEMENT_NUMBERS: element_numbers,
    sorting.taken_by.prim: gathered,
    traced_masks.first_chosen.prim: first_chosen,
    sorting.added_by.prim: scattered,
    factorizations.solve_triangular.prim: of_matrices("", triangular),
    factorizations.FACTORS: placed_factors,
    factorizations.cofactor.prim: placed_cofactor,
    decompositions.singular.prim: placed_svd,
    equations.lu_of.prim: placed_lu,
    factorizations.SOLUTION: placed_solution,
}
