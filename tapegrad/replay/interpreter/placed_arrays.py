"""Bodies of operations as rows of the interpreter: a body runs once on arrays of places.

A `PlacedArray` acts as an array of NumPy.  Views, reshapes and broadcasts give other places.  A ufunc, a
reduction or a scan becomes a row, or a call of NumPy's own loop (interpreter.foreign_calls.py).  A body that
asks for a value, or calls what is not here, raises `NotPlaced`.  The operation then stays with Python."""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.arrays import C16, F8
from ..costs import BLOCK_MATRICES, BLOCK_PRODUCTS
from .foreign_calls import ufunc_loop
from .machine_code import LIBM, ROUNDING

# ufuncs that are a row: its name
ROWS = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "div", np.negative: "neg",
    np.absolute: "abs",
    np.sqrt: "sqrt", np.less: "lt", np.less_equal: "le", np.equal: "eq", np.not_equal: "ne",
    **{getattr(np, name): name for name in (*LIBM, *ROUNDING, "copysign")},
}  # fmt: skip
ZEROS = np.zeros(9), -np.zeros(9)
if np.signbit(np.maximum(*ZEROS)).all() and not np.signbit(np.minimum(*ZEROS[::-1])).any():
    # of equal numbers NumPy's loops give the second here
    ROWS |= {np.maximum: "max", np.minimum: "min"}
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
    np.modf: lambda x: (np.copysign(x - np.trunc(x), x), np.trunc(x)),
}


def of_truths(x):
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
KINDS = {F8: "f", np.dtype(bool): "b", np.dtype(np.int64): "i", C16: "c"}
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
EXTREMES = (np.maximum, np.minimum)
# ufuncs whose loops for floats give whole numbers of whole numbers
# (a divisor of zero gives nan, and ends the run)
DIVISIONS = (np.remainder, np.floor_divide)
# rows that give whole numbers of whole numbers
EXACT_OF_WHOLE = frozenset(("add", "sub", "mul", "neg", "abs", "max", "min"))
FLOAT_BITS = 53  # whole numbers of fewer bits are floats


class NotPlaced(TypeError):
    """What the body asks for is known only when the program runs, or is no row."""


class PlacedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Places of the arena, as an array of NumPy.  `b`: the block that gets the rows; `kind`: that of the
    dtype."""

    def __init__(self, b, places, kind: str = "f"):
        self.b, self.places, self.kind = b, places, kind

    shape = property(lambda self: self.places.shape)
    ndim = property(lambda self: self.places.ndim)
    size = property(lambda self: self.places.size)
    dtype = property(lambda self: DTYPES[self.kind])
    real = property(lambda self: PlacedArray(self.b, self.parts()[0], "f" if self.kind == "c" else self.kind))
    imag = property(lambda self: PlacedArray(self.b, np.broadcast_to(self.parts()[1], self.shape)))
    T = property(lambda self: self.moved(np.transpose))

    @property
    def at(self):
        """The places of real numbers."""
        if self.kind == "c":
            raise NotPlaced("complex numbers")
        return self.places

    def parts(self) -> tuple:
        """The places of the real and of the imaginary parts."""
        return self.b.pair_of(self.places, self.kind)

    def moved(self, f: Callable, *args, **kwargs) -> "PlacedArray":
        return PlacedArray(self.b, np.asarray(f(self.places, *args, **kwargs)), self.kind)

    def __getitem__(self, key) -> "PlacedArray":
        return self.moved(operator.getitem, key)

    def __len__(self) -> int:
        return len(self.places)

    def reshape(self, *shape) -> "PlacedArray":
        return self.moved(np.ndarray.reshape, *shape)

    def transpose(self, *axes) -> "PlacedArray":
        return self.moved(np.ndarray.transpose, *axes)

    def swapaxes(self, *axes: int) -> "PlacedArray":
        return self.moved(np.swapaxes, *axes)

    def conj(self):
        return np.conjugate(self)

    def squeeze(self, axis=None) -> "PlacedArray":
        return self.moved(np.squeeze, axis)

    def copy(self, order: str = "C") -> "PlacedArray":
        return self

    def astype(self, dtype, copy: bool = True) -> "PlacedArray":
        kind = KINDS.get(np.dtype(dtype), "-")
        if kind == "b" != self.kind:
            return self != 0.0
        if kind == "c":
            return self if self.kind == "c" else composed(self, self.imag)
        if kind == "i" and self.kind == "f":
            return whole(self)
        if kind not in "f" + self.kind and (self.kind, kind) != ("b", "i"):
            raise NotPlaced(f"astype({dtype})")
        return PlacedArray(self.b, self.at, kind)

    def sum(self, axis=None, keepdims: bool = False) -> "PlacedArray":
        return reduced(np.add, self, axis, keepdims)

    def max(self, axis=None, keepdims: bool = False) -> "PlacedArray":
        return reduced(np.maximum, self, axis, keepdims)

    def argmax(self, axis=None) -> "PlacedArray":
        return np.argmax(self, axis)

    def any(self, axis=None, keepdims: bool = False) -> "PlacedArray":
        return self.astype(bool).sum(axis, keepdims) > 0

    def all(self, axis=None, keepdims: bool = False) -> "PlacedArray":
        return np.logical_not((self == 0.0).any(axis, keepdims))

    def min(self, axis=None, keepdims: bool = False) -> "PlacedArray":
        return reduced(np.minimum, self, axis, keepdims)

    def cumsum(self, axis: int) -> "PlacedArray":
        return scanned(np.add, self, axis)

    def __pow__(self, n):
        if type(n) in (int, float) and n in POWERS:
            return POWERS[n](self)
        return (
            by_products(self, int(n)) if type(n) in (int, float) and n in range(3, 9) else np.power(self, n)
        )

    def __bool__(self) -> bool:
        raise NotPlaced("a condition on a value")

    def __array__(self, *args, **kwargs):
        raise NotPlaced("an array of NumPy")

    def __array_ufunc__(self, ufunc, method: str, *x, **kwargs):
        if method == "reduce" and not kwargs.keys() - {"axis", "keepdims"}:
            return reduced(ufunc, x[0], kwargs.get("axis", 0), kwargs.get("keepdims", False))
        if method != "__call__" or kwargs:
            raise NotPlaced(f"{ufunc.__name__}.{method}")
        if ufunc in OF_COMPLEX and any(map(is_complex, x)):
            return OF_COMPLEX[ufunc](*[placed(self.b, v) for v in x])
        return SPELT[ufunc](*x) if ufunc in SPELT else computed(ufunc, *[placed(self.b, v) for v in x])

    def __array_function__(self, f: Callable, types, args: tuple, kwargs: dict):
        if f in MOVES:
            return args[0].moved(f, *args[1:], **kwargs)
        if f not in FUNCTIONS:
            raise NotPlaced(f.__name__)
        return FUNCTIONS[f](*args, **kwargs)


def is_complex(v) -> bool:
    return v.kind == "c" if isinstance(v, PlacedArray) else np.iscomplexobj(v)


def placed(b, v) -> PlacedArray:
    """A value of a body, with its places."""
    if isinstance(v, PlacedArray):
        return v
    v = np.asarray(v)
    if v.dtype == C16:
        return PlacedArray(b, b.constant(v), "c")
    if v.dtype.kind not in "bif" or v.dtype.itemsize > F8.itemsize:
        raise NotPlaced(f"a value of {v.dtype}")
    return PlacedArray(b, b.number(float(v)) if not v.ndim else b.constant(v.astype(F8)), v.dtype.kind)


def all_placed(*xs) -> list:
    """The same of several values, one of which has places."""
    b = next(x.b for x in xs if isinstance(x, PlacedArray))
    return [placed(b, x) for x in xs]


def zeros(b, *shape: int):
    """Places of zeros, which may be written."""
    to = b.temporary(*shape)
    b.row("copy", to, b.nothing)
    return to


def computed(ufunc, *x: PlacedArray) -> PlacedArray:
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
    elif kind != "f" and (
        kind == "b" or (name not in EXACT_OF_WHOLE and ufunc not in (*EXTREMES, *DIVISIONS))
    ):
        raise NotPlaced(f"{ufunc.__name__} of whole numbers")
    to = b.temporary(*np.broadcast_shapes(*[v.shape for v in x]), as_stack=True)
    if name is not None:
        b.row(name, to, *[v.at for v in x])
    elif ufunc.signature is None and ufunc.nout == 1 and ufunc_loop(ufunc) is not None:
        b.called(ufunc, to, *[v.at for v in x])
    else:
        raise NotPlaced(ufunc.__name__)
    if kind == "i":
        if name in ("mul", "neg") or ufunc in DIVISIONS:
            b.row("add", to, to, b.number(0.0))  # whole numbers have no -0
        check_exact(b, to)
    return PlacedArray(b, to, kind)


def check_exact(b, at) -> None:
    """What floats do not count one by one is no number after this, and the run ends."""
    b.row("within", at, at, b.number(2.0**FLOAT_BITS), b.number(math.nan))


def whole(x: PlacedArray) -> PlacedArray:
    """The whole numbers towards zero."""
    made: Any = np.trunc(x) + 0.0  # there is no -0
    check_exact(x.b, made.at)
    return PlacedArray(x.b, made.at, "i")


def chosen(c, x, y) -> PlacedArray:
    c, x, y = all_placed(c, x, y)
    kinds, shape = {x.kind, y.kind}, np.broadcast_shapes(c.shape, x.shape, y.shape)
    kind = next(kind for kind in "cfib" if kind in kinds)
    made = new_array(c.b, shape, kind)
    for to, *of in [*zip(made.parts(), x.parts(), y.parts(), strict=True)][: 1 + (kind == "c")]:
        c.b.row("select", to, c.at, *of)
    return made


def new_array(b, shape: tuple, kind: str) -> PlacedArray:
    return PlacedArray(b, b.temporary(*shape, width=1 + (kind == "c"), as_stack=True), kind)


def joined(arrays, axis: int = 0) -> PlacedArray:
    xs = all_placed(*arrays)
    kinds = {x.kind for x in xs}
    if len(kinds) > 1:
        dtype = DTYPES[next(kind for kind in "cfi" if kind in kinds)]
        xs = [x.astype(dtype) for x in xs]
    return PlacedArray(xs[0].b, np.concatenate([x.places for x in xs], axis), xs[0].kind)


def by_slices(x: PlacedArray, axis) -> tuple:
    """(the places with the axes that are reduced first, as one axis; the shape that is kept)"""
    axes = tuple(range(x.ndim)) if axis is None else axis if type(axis) is tuple else (axis,)
    axes = tuple([n % x.ndim for n in axes])
    first = np.moveaxis(x.at, axes, tuple(range(len(axes))))
    rest = first.shape[len(axes) :]
    return first.reshape((-1, *rest)), tuple([1 if n in axes else size for n, size in enumerate(x.shape)])


def reduced(ufunc, x: PlacedArray, axis=None, keepdims: bool = False) -> PlacedArray:
    if x.kind == "c" and ufunc is np.add:
        return composed(x.real.sum(axis, keepdims), x.imag.sum(axis, keepdims))
    b, (slices, kept) = x.b, by_slices(x, axis)
    to = b.temporary(*slices.shape[1:], as_stack=True)
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


def scanned(ufunc, x: PlacedArray, axis: int) -> PlacedArray:
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


def scanned_by_loop(ufunc, x: PlacedArray, axis: int) -> PlacedArray:
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


def by_products(x, n: int):
    """x ** n."""
    half = x if n < 4 else by_products(x, n // 2)
    return x * (half * half) if n % 2 else half * half


def product_of_matrices(x, y) -> PlacedArray:
    x, y = all_placed(x, y)
    if min(x.ndim, y.ndim) < 2 or {x.kind, y.kind} != {"f"}:
        raise NotPlaced("a product of vectors")
    count = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    to = x.b.temporary(*count, x.shape[-2], y.shape[-1], as_stack=True)
    if products_of_stack(x.shape, y.shape) > BLOCK_PRODUCTS:
        raise NotPlaced("a large product of matrices")
    x.b.matmul(to, x.at, y.at)
    return PlacedArray(x.b, to)


def products_of_stack(x: tuple, y: tuple) -> float:
    """How many multiplications of numbers; infinite for a long stack of matrices that are not small."""
    count = math.prod(np.broadcast_shapes(x[:-2], y[:-2]))
    each = math.prod(x[-2:]) * (y[-1] if len(y) > 1 else 1)
    return count * each if count <= BLOCK_MATRICES or each <= BLOCK_MATRICES else math.inf


def composed(re: PlacedArray, im: PlacedArray) -> PlacedArray:
    """Complex numbers of these parts, each of the same shape."""
    made = new_array(re.b, re.shape, "c")
    for to, part in zip(made.parts(), (re, im), strict=True):
        re.b.row("copy", to, part.at)
    return made


SPELT[np.matmul] = product_of_matrices
OF_COMPLEX: dict = {}  # ufuncs of complex numbers
FUNCTIONS: dict = {
    np.where: chosen,
    np.tril: lambda x, k=0: triangle_of(x, k, True),
    np.triu: lambda x, k=0: triangle_of(x, k, False),
    np.concatenate: joined,
    np.real: lambda x: x.real,
    np.imag: lambda x: x.imag,
    np.any: lambda x, axis=None, keepdims=False: x.any(axis, keepdims),
    np.all: lambda x, axis=None, keepdims=False: x.all(axis, keepdims),
    np.count_nonzero: lambda x, axis=None, *, keepdims=False: (x != 0).sum(axis, keepdims),
    np.around: lambda x, decimals=0: rounded(x, decimals),
    np.round: lambda x, decimals=0: rounded(x, decimals),
    np.nan_to_num: lambda x, copy=True, nan=0.0, posinf=None, neginf=None: without_nan(
        x, nan, posinf, neginf
    ),
    np.sinc: lambda x: sinc_of(math.pi * x),
    np.result_type: lambda *xs: np.result_type(*[x.dtype if isinstance(x, PlacedArray) else x for x in xs]),
    np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
}


def rounded(x, decimals: int):
    """(By NumPy's own steps.)"""
    if x.kind != "f":
        raise NotPlaced("round of whole numbers")
    scale = 10.0 ** abs(decimals)
    if not decimals:
        return np.rint(x)
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


def without_nan(x: PlacedArray, nan: float, posinf, neginf) -> PlacedArray:
    if x.kind != "f":
        raise NotPlaced("nan_to_num of whole numbers")
    high = np.finfo(float).max if posinf is None else posinf
    low = np.finfo(float).min if neginf is None else neginf
    return chosen(x != x, nan, chosen(x == np.inf, high, chosen(x == -np.inf, low, x)))


def sinc_of(x):
    y = np.where(x == 0.0, np.finfo(float).eps, x)
    return np.sin(y) / y
