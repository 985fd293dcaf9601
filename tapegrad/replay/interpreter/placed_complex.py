"""Arithmetic of complex numbers as rows of the interpreter, by the formulas of NumPy's own loops.

A number that is real has the imaginary part 0, as NumPy casts it.  Functions that are not here are NumPy's
loops, or are composed of these."""

import functools
import math

import numpy as np

from ..._core.arrays import C16
from ..._core.registry import load
from ..costs import BLAS_MATRIX_PRODUCTS, COMPLEX_ELEMENTS
from .foreign_calls import ufunc_loop
from .placed_arrays import (
    FUNCTIONS,
    OF_COMPLEX,
    NotPlaced,
    PlacedArray,
    chosen,
    composed,
    new_array,
    product_of_matrices,
)

LEAST_SQUARE = 1e-280  # a square of a length below has fewer digits


def by_parts(name: str, *x: PlacedArray) -> PlacedArray:
    """A row of the real and one of the imaginary parts."""
    b, made = x[0].b, new(*x)
    for to, *of in zip(made.parts(), *[v.parts() for v in x], strict=True):
        b.row(name, to, *of)
    return made


def new(*x: PlacedArray) -> PlacedArray:
    return new_array(x[0].b, np.broadcast_shapes(*[v.shape for v in x]), "c")


def conjugate(x: PlacedArray) -> PlacedArray:
    made = new(x)
    (re, im), (u, v) = x.parts(), made.parts()
    x.b.row("copy", u, re)
    x.b.row("neg", v, im)
    return made


def product(x: PlacedArray, y: PlacedArray) -> PlacedArray:
    b, made = x.b, new(x, y)
    (xr, xi), (yr, yi), (re, im) = x.parts(), y.parts(), made.parts()
    both = b.temporary(*made.shape)
    b.row("mul", both, xi, yi)
    b.row("mul", re, xr, yr)
    b.row("sub", re, re, both)
    b.row("mul", im, xr, yi)
    b.row("muladd", im, xi, yr)
    return made


def quotient(x: PlacedArray, y: PlacedArray) -> PlacedArray:
    """(R. L. Smith, Algorithm 116: Complex division, CACM 5, 1962)"""
    (p, q), (u, v) = (x.real, x.imag), (y.real, y.imag)
    if y.kind != "c":
        share, scale = v / u, 1.0 / u
        return composed((p + q * share) * scale, (q - p * share) * scale)
    flat = abs(v) <= abs(u)
    small, large = chosen(flat, v, u), chosen(flat, u, v)
    share = small / large
    scale = 1.0 / (large + small * share)
    p, q = chosen(flat, p, q), chosen(flat, q, p)
    across = (q - p * share) * scale
    return composed((p + q * share) * scale, chosen(flat, across, -across))


def length(x: PlacedArray):
    """(A square that is too small for its digits ends the run.)"""
    b, (re, im) = x.b, x.parts()
    square, lost = b.temporary(*x.shape), b.temporary(*x.shape)
    b.row("mul", square, re, re)
    b.row("muladd", square, im, im)
    no_number = b.number(math.nan)
    b.row("select", lost, re, no_number, b.nothing)
    b.row("select", lost, im, no_number, lost)
    small = PlacedArray(b, square) < LEAST_SQUARE
    b.row("select", lost, small.at, lost, b.nothing)
    b.row("add", lost, lost, lost)
    return np.sqrt(PlacedArray(b, square))


def phase(x: PlacedArray):
    r = abs(x)
    return x / np.where(r == 0.0, 1.0, r)


def exponential(x: PlacedArray) -> PlacedArray:
    size, turn = np.exp(x.real), x.imag
    return composed(size * np.cos(turn), size * np.sin(turn))


def are_equal(x: PlacedArray, y: PlacedArray):
    return (x.real == y.real) * (x.imag == y.imag)


def matrix_product(x: PlacedArray, y: PlacedArray) -> PlacedArray:
    """By products of the parts."""
    shape = (*x.shape[:-2], *x.shape[-2:-1], *y.shape[-1:]) if y.ndim > 1 else x.shape[:-1]
    if x.ndim == 1:
        x = x[None]
    if y.ndim == 1:
        y = y[:, None]
    if x.ndim == y.ndim == 2 and x.size * y.shape[1] >= BLAS_MATRIX_PRODUCTS:
        x, y = x.astype(C16), y.astype(C16)
        made = new_array(x.b, (len(x), y.shape[1]), "c")
        x.b.of_matrices(np.matmul, [made.places], x.places, y.places, kind="DD->D")
    else:
        made = bilinear(product_of_matrices, x, y)
    return made.reshape(shape) if made.ndim == 2 else made


def bilinear(f, x: PlacedArray, y: PlacedArray) -> PlacedArray:
    if x.kind != "c":
        return composed(f(x, y.real), f(x, y.imag))
    if y.kind != "c":
        return composed(f(x.real, y), f(x.imag, y))
    return composed(f(x.real, y.real) - f(x.imag, y.imag), f(x.real, y.imag) + f(x.imag, y.real))


def by_loop(ufunc, *x: PlacedArray) -> PlacedArray:
    """NumPy's own loop."""
    kind = f"{'D' * len(x)}->{'d' if ufunc is np.absolute else 'D'}"
    if ufunc_loop(ufunc, kind) is None:
        raise NotPlaced(ufunc.__name__)
    x = tuple([v.astype(C16) for v in x])
    shape = np.broadcast_shapes(*[v.shape for v in x])
    made = new_array(x[0].b, shape, "c" if kind[-1] == "D" else "f")
    x[0].b.called(ufunc, made.places, *[v.places for v in x], kind=kind)
    return made


ROWS: dict = {
    np.add: lambda x, y: by_parts("add", x, y),
    np.subtract: lambda x, y: by_parts("sub", x, y),
    np.negative: lambda x: by_parts("neg", x),
    np.multiply: product,
    np.divide: quotient,
    np.conjugate: conjugate,
    np.absolute: length,
    np.exp: exponential,
}
LOOPS = (np.power, np.sqrt, np.log, np.log1p, np.expm1, np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh)


def of_complex(ufunc, *x: PlacedArray) -> PlacedArray:
    """By rows, or NumPy's loop, which is faster for many elements."""
    few = math.prod(np.broadcast_shapes(*[v.shape for v in x])) < COMPLEX_ELEMENTS
    return ROWS[ufunc](*x) if few and ufunc in ROWS else by_loop(ufunc, *x)


OF_COMPLEX |= {ufunc: functools.partial(of_complex, ufunc) for ufunc in (*ROWS, *LOOPS)}
OF_COMPLEX |= {
    np.equal: are_equal,
    np.not_equal: lambda x, y: are_equal(x, y) == 0.0,
    np.matmul: matrix_product,
}


# --- Fourier transforms ---


def fourier(name: str, kind: str, x: PlacedArray, axis: int, size: int) -> PlacedArray:
    """NumPy's loop `name` along an axis, with `size` numbers in each result."""
    ufunc = getattr(load("numpy.fft._pocketfft_umath"), name, None)
    if ufunc is None or ufunc_loop(ufunc, kind) is None or not x.size:
        raise NotPlaced(name)
    x = x.astype(C16) if kind[0] == "D" else x
    lines = x.moved(np.moveaxis, axis, -1)
    made = new_array(x.b, (*lines.shape[:-1], size), "c" if kind[-1] == "D" else "f")
    to, given = made.places.reshape(-1, size), lines.places.reshape(-1, lines.shape[-1])
    x.b.of_matrices(ufunc, [to], given, x.b.number(1.0), kind=kind, lines=len(to))
    return made.moved(np.moveaxis, -1, axis)


def along_all(name: str):
    def f(x: PlacedArray, axes, norm: str) -> PlacedArray:
        for axis in axes[::-1]:
            x = fourier(name, "Dd->D", x, axis, x.shape[axis])
        return x

    return f


def half_spectrum(x: PlacedArray, axis: int, norm: str) -> PlacedArray:
    n = x.shape[axis]
    return fourier(f"rfft_n_{'odd' if n % 2 else 'even'}", "dd->D", x, axis, n // 2 + 1)


FUNCTIONS |= {
    np.fft.fftn: along_all("fft"),
    np.fft.ifftn: along_all("ifft"),
    np.fft.rfft: half_spectrum,
    np.fft.irfft: lambda x, n, axis, norm: fourier("irfft", "Dd->d", x, axis, n),
}
