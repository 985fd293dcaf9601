"""Complex numbers and arrays in kernels: pairs of real symbols.

Arithmetic and functions are those of textbooks, with the branch cuts of NumPy. A function that is linear over
the real numbers (sums, moves of elements) is applied to both parts. What a kernel returns and what its loops
carry is real."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.errors import KernelError
from .symbolic import (
    COMPLEX,
    Sym,
    Symbolic,
    UnsupportedFunction,
    as_real_symbol,
    as_symbol_array,
    lift,
    public_name,
)

Pair = tuple[Any, Any]  # the real and the imaginary part


def part_of_pair(k: int) -> property:
    """Return an attribute for one part, which is a view and can be written as in NumPy."""

    def put(x, value) -> None:
        x.parts[k][...] = value

    return property(lambda x: x.parts[k], put)


class ComplexSym(Symbolic):
    """A complex symbolic array."""

    __array_priority__ = 3000

    def __init__(self, real: Sym, imag: Sym):
        self.g, self.parts = real.g, (real, imag)

    real, imag = part_of_pair(0), part_of_pair(1)
    __class__ = property(lambda self: np.ndarray if self.ndim else np.complex128)
    shape = property(lambda self: self.real.shape)
    ndim = property(lambda self: self.real.ndim)
    size = property(lambda self: self.real.size)
    dtype = property(lambda self: np.dtype(complex))
    T = property(lambda self: np.transpose(self))

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self):
        return map(ComplexSym, self.real, self.imag)

    def __repr__(self) -> str:
        return f"ComplexSym{self.shape}"

    def __getitem__(self, key) -> "ComplexSym":
        return ComplexSym(self.real[key], self.imag[key])

    def __setitem__(self, key, value) -> None:
        self.real[key], self.imag[key] = as_pair(self.g, value)

    def copy(self) -> "ComplexSym":
        return ComplexSym(self.real.copy(), self.imag.copy())

    __copy__ = copy

    def astype(self, dtype, copy: bool = True) -> "ComplexSym":
        if np.dtype(dtype).kind == "c":
            return self.copy() if copy else self
        raise KernelError("a complex number becomes real by z.real, z.imag or np.abs(z)")

    def conjugate(self):
        return np.conjugate(self)

    conj = conjugate

    def _as_function(name: Any):
        f = getattr(np, name)
        return lambda self, *args, **kwargs: f(self, *args, **kwargs)

    for _name in (
        "sum",
        "prod",
        "mean",
        "reshape",
        "ravel",
        "transpose",
        "squeeze",
        "dot",
        "trace",
        "diagonal",
    ):
        locals()[_name] = _as_function(_name)
    del _name, _as_function

    def _refused(self, *args, **kwargs):
        raise self.g.refused(
            KernelError(
                "a complex number where a kernel takes real ones (its results, what its loops carry, "
                "conditions, arrays made outside): write z.real, z.imag or np.abs(z)"
            )
        )

    __array__ = __bool__ = __float__ = __int__ = __index__ = __complex__ = _refused
    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc, method: str, *x, **kwargs):
        out = kwargs.pop("out", None)
        if method != "__call__" or kwargs:
            raise self.g.refused(UnsupportedFunction(f"{public_name(ufunc)}.{method} of complex numbers"))
        y = complex_ufunc(self.g, ufunc, x)
        if out is None or not y.ndim:
            return y
        out[0][...] = y
        return out[0]

    def __array_function__(self, f: Callable, types, args: tuple, kwargs: dict):
        return complex_function(self.g, f, args, kwargs)


def as_pair(g, x) -> Pair:
    """Return the parts of a number, an array or a nested list as real symbols."""
    if type(x) is ComplexSym:
        return x.parts
    if isinstance(x, (list, tuple)):
        pairs = [as_pair(g, v) for v in x]
        return lift(g, [a for a, _ in pairs]), lift(g, [b for _, b in pairs])
    if isinstance(x, Sym):
        return as_real_symbol(x), lift(g, np.zeros(x.shape))
    return lift(g, np.real(x) * 1.0), lift(g, np.imag(x) * 1.0)


def complex_or_real(parts):
    """Return a complex symbol of two parts, or a real one as it is."""
    return ComplexSym(*parts) if isinstance(parts, tuple) else parts


# --- elementwise ---


def pair_product(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def pair_quotient(x: Pair, y: Pair) -> Pair:
    """Smith's algorithm: nothing overflows that the quotient does not."""
    (a, b), (c, d) = x, y
    wide = abs(c) >= abs(d)
    large: Any = np.where(wide, c, d)
    small: Any = np.where(wide, d, c)
    r = np.where((c == 0.0) & (d == 0.0), 0.0, small / large)
    scale = 1.0 / (large + small * r)
    first: Any = np.where(wide, a, b)
    second: Any = np.where(wide, b, a)
    imag = second - first * r
    return (first + second * r) * scale, np.where(wide, imag, -imag) * scale


def complex_exp(x: Pair) -> Pair:
    size = np.exp(x[0])
    return size * np.cos(x[1]), size * np.sin(x[1])


def complex_log(x: Pair) -> Pair:
    """Near the unit circle log|x| = log1p(|x|^2 - 1) / 2."""
    a, b = x
    size = np.hypot(a, b)
    near = (size > 0.5) & (size < 2.0)
    excess = np.where(near, (a - 1.0) * (a + 1.0) + b * b, 0.0)
    return np.where(near, 0.5 * np.log1p(excess), np.log(size)), np.arctan2(b, a)


def complex_sqrt(x: Pair) -> Pair:
    """The larger part is sqrt((|a| + |x|) / 2), the other b over twice that; 0 at 0.

    (|a| is written so that its derivative at 0 is that of the branch which is taken.)"""
    a, b = x
    right, side = a >= 0.0, np.copysign(1.0, b)
    t = np.sqrt(0.5 * (np.where(right, a, -a) + np.hypot(a, b)))
    other = np.where(t == 0.0, 0.0, 0.5 * b / t)
    return np.where(right, t, side * other), np.where(right, other, side * t)


def sine_and_cosine(x: Pair) -> tuple[Pair, Pair]:
    a, b = x
    s, c, up, even = np.sin(a), np.cos(a), np.sinh(b), np.cosh(b)
    return (s * even, c * up), (c * even, -s * up)


def sinh_and_cosh(x: Pair) -> tuple[Pair, Pair]:
    """sinh(x) = -i sin(i x), cosh(x) = cos(i x)."""
    (s, t), cosine = sine_and_cosine((-x[1], x[0]))
    return (t, -s), cosine


def complex_tanh(x: Pair) -> Pair:
    """sinh(2 a) and sin(2 b) over cosh(2 a) + cos(2 b), both divided by exp(2 |a|)."""
    a, b = x
    side = np.copysign(1.0, a)  # (an absolute value would lose the derivative at 0)
    e = np.exp(-2.0 * side * a)
    below = 1.0 + 2.0 * np.cos(2.0 * b) * e + e * e
    return side * -np.expm1(-4.0 * side * a) / below, 2.0 * np.sin(2.0 * b) * e / below


def complex_tan(x: Pair) -> Pair:
    a, b = complex_tanh((-x[1], x[0]))  # tan(x) = -i tanh(i x)
    return b, -a


def complex_power(x: Pair, y) -> Pair:
    """Whole powers are products; others are exp(y log x). A power of 0 is 0 if y has a positive real part,
    1 for y = 0, else nan."""
    c, d = y[0].constant(), y[1].constant()
    whole = c is not None and c.ndim == 0 and d is not None and not d.any() and c == int(c) and abs(c) <= 64
    if whole and c >= 0:
        return whole_power(x, int(c))
    zero = (x[0] == 0.0) & (x[1] == 0.0)
    none, base = (y[0] == 0.0) & (y[1] == 0.0), (np.where(zero, 1.0, x[0]), x[1])
    there = np.where((y[0] > 0.0) | none, 0.0, math.nan)
    a, b = whole_power(base, int(c)) if whole else complex_exp(pair_product(y, complex_log(base)))
    return np.where(zero, there + np.where(none, 1.0, 0.0), a), np.where(zero, there, b)


def whole_power(x: Pair, n: int) -> Pair:
    g, shape = x[0].g, x[0].shape
    found = lift(g, np.ones(shape)), lift(g, np.zeros(shape))
    if n < 0:
        return pair_quotient(found, whole_power(x, -n))
    for bit in f"{n:b}" if n else "":
        found = pair_product(found, found)
        found = pair_product(found, x) if bit == "1" else found
    return found


def complex_log_times(factor: float) -> Callable:
    def run(x):
        a, b = complex_log(x)
        return a * factor, b * factor

    return run


UFUNCS: dict = {  # of the parts of the operands; a result that is no tuple is real
    np.add: lambda x, y: (x[0] + y[0], x[1] + y[1]), np.subtract: lambda x, y: (x[0] - y[0], x[1] - y[1]),
    np.multiply: pair_product, np.true_divide: pair_quotient, np.negative: lambda x: (-x[0], -x[1]),
    np.positive: lambda x: (+x[0], +x[1]), np.conjugate: lambda x: (+x[0], -x[1]),
    np.absolute: lambda x: np.hypot(*x),
    np.square: lambda x: pair_product(x, x), np.reciprocal: lambda x: pair_quotient((1.0, 0.0), x),
    np.power: complex_power, np.sqrt: complex_sqrt, np.exp: complex_exp, np.log: complex_log,
    np.log10: complex_log_times(1 / math.log(10)), np.log2: complex_log_times(1 / math.log(2)),
    np.sin: lambda x: sine_and_cosine(x)[0], np.cos: lambda x: sine_and_cosine(x)[1], np.tan: complex_tan,
    np.sinh: lambda x: sinh_and_cosh(x)[0], np.cosh: lambda x: sinh_and_cosh(x)[1], np.tanh: complex_tanh,
    np.equal: lambda x, y: (x[0] == y[0]) & (x[1] == y[1]),
    np.not_equal: lambda x, y: (x[0] != y[0]) | (x[1] != y[1]),
    np.isnan: lambda x: np.isnan(x[0]) | np.isnan(x[1]),
    np.isinf: lambda x: np.isinf(x[0]) | np.isinf(x[1]),
    np.isfinite: lambda x: np.isfinite(x[0]) & np.isfinite(x[1]),
}  # fmt: skip


def complex_ufunc(g, ufunc, x: tuple):
    """Apply a ufunc to operands of which one is complex."""
    if ufunc is np.matmul:
        return product_of_arrays(g, np.matmul, x)
    if ufunc not in UFUNCS:
        raise g.refused(UnsupportedFunction(f"{public_name(ufunc)} of complex numbers"))
    return complex_or_real(UFUNCS[ufunc](*[as_pair(g, v) for v in x]))


# --- functions of arrays ---

LINEAR = {
    getattr(np, name)
    for name in (
        "sum", "mean", "cumsum", "diff", "reshape", "ravel", "transpose", "squeeze", "expand_dims",
        "concatenate", "stack", "vstack", "hstack", "column_stack", "take", "flip", "roll", "trace",
        "diagonal", "diag", "swapaxes", "moveaxis", "broadcast_to", "repeat", "tile", "atleast_1d",
        "atleast_2d", "tril", "triu", "zeros_like",
    )
}  # fmt: skip
BILINEAR = {np.dot, np.inner, np.outer, np.kron, np.convolve}
OF_PARTS: dict = {
    np.real: lambda x: x[0], np.imag: lambda x: x[1],
    np.prod: lambda x: functools.reduce(pair_product, zip(*map(np.ravel, x), strict=True)),
    np.angle: lambda x, deg=False: np.arctan2(x[1], x[0]) * (180 / math.pi if deg else 1.0),
}  # fmt: skip


def product_of_arrays(g, f: Callable, x: tuple):
    (a, b), (c, d) = [as_pair(g, v) for v in x]
    return complex_or_real((f(a, c) - f(b, d), f(a, d) + f(b, c)))


def complex_function(g, f: Callable, args: tuple, kwargs: dict):
    """Apply a function of arrays, of which one is complex."""
    if f in LINEAR:
        x: Any = args[0]
        joined = isinstance(x, (list, tuple))
        sides = zip(*[as_pair(g, v) for v in x], strict=True) if joined else as_pair(g, x)
        return complex_or_real(tuple([f(side, *args[1:], **kwargs) for side in sides]))
    if f in BILINEAR and not kwargs:
        return product_of_arrays(g, f, args)
    if f is np.vdot:
        return product_of_arrays(g, np.dot, (np.conjugate(args[0]), args[1]))
    if f is np.where and len(args) == 3:
        x, y = [as_pair(g, v) for v in args[1:]]
        return complex_or_real((np.where(args[0], x[0], y[0]), np.where(args[0], x[1], y[1])))
    if f is np.linalg.solve or f is np.linalg.inv:
        return complex_solve(g, *args, *[np.eye(len(args[0]))] * (f is np.linalg.inv))
    if f in OF_PARTS:
        return complex_or_real(OF_PARTS[f](as_pair(g, args[0]), *args[1:], **kwargs))
    raise g.refused(UnsupportedFunction(f"{public_name(f)} of complex numbers"))


def complex_solve(g, A, b) -> ComplexSym:
    """Solve the real system of twice as many equations."""
    (P, Q), (c, d) = as_pair(g, A), as_pair(g, b)
    whole = np.concatenate([np.concatenate([P, -Q], 1), np.concatenate([Q, P], 1)])
    n = len(P)
    x: Any = np.linalg.solve(whole, np.concatenate([c, d]))
    return ComplexSym(x[:n], x[n:])


def complex_array(g, x, copy: bool = True) -> ComplexSym:
    """np.array of complex values, of which some may be symbols."""
    if type(x) is ComplexSym and not copy:
        return x
    return ComplexSym(*[as_symbol_array(part.copy()) for part in as_pair(g, x)])


COMPLEX.update(ufunc=complex_ufunc, function=complex_function)
