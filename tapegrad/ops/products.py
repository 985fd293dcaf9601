"""Products of vectors, matrices and tensors: matmul and its compositions; convolution. (einsum.py has
einsum.)

Rules are transposes; for complex arrays the engine conjugates."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from .._core.arrays import xp_of
from .._core.primitive import hook, layout_of
from .._core.variable import Variable
from .declare import axes_of, follow, implements, linear, ndim, primitive, rules, shape, sum_of_given, xp
from .reductions import cast_operand
from .shaping import arrays_of, concatenate, conj, fit_to_shape, reshape, slice_of, sum, transpose


def matrix_batch(run, xs: list, params: dict):
    """The batching rule of operations on two matrices, or batches of matrices, where an operand with one
    axis is a vector."""
    n, m = [v.ndim - 1 for v in xs]
    xs = [xs[0][:, None] if n == 1 else xs[0], xs[1][..., None] if m == 1 else xs[1]]
    rank = max(v.ndim for v in xs)
    out = run(*[v.reshape(v.shape[:1] + (1,) * (rank - v.ndim) + v.shape[1:]) for v in xs], **params)
    out = out[..., 0, :] if n == 1 else out
    return out[..., 0] if m == 1 else out


matrix_batch.of_matrices = True  # type: ignore[attr-defined]


@primitive(batch=matrix_batch, total=True, infix="@", reduces="products")
def matmul(x, y):
    return xp_of(y).matmul(x, y)


def T(x: Any) -> Any:
    """The transpose of each matrix in a batch."""
    if type(x) is np.ndarray:
        return x.T if x.ndim == 2 else x.swapaxes(-1, -2)
    n = ndim(x)
    return transpose(x, axes=(*range(n - 2), n - 1, n - 2))


def H(x):
    """The conjugate transpose of each matrix in a batch."""
    return conjugate(T(x))


def conjugate(x):
    return conj(x) if layout_of(x).dtype.kind == "c" else x


def column(x):
    return reshape(x, to=(*shape(x), 1))


def row_vector(x):
    s = shape(x)
    return reshape(x, to=(*s[:-1], 1, s[-1]))


def _matmul_left(g, out, x, y):
    if type(g) is type(y) is ndarray and x.ndim == 2 and y.ndim < 3:
        return g.dot(y.T) if y.ndim == 2 else g[:, None].dot(y[None])
    n, m = ndim(x), ndim(y)
    if m == 1:
        if n == 1:
            return g * y
        c = matmul(column(g), row_vector(y))
    elif n == 1:
        c = matmul(y, g) if m == 2 else reshape(matmul(y, column(g)), to=shape(y)[:-1])
    else:
        c = matmul(g, T(y))
    return fit_to_shape(c, shape(x), None)


def _matmul_right(g, out, x, y):
    if type(g) is type(x) is ndarray and x.ndim == 2 and y.ndim < 3:
        return x.T.dot(g)
    n, m = ndim(x), ndim(y)
    if n == 1:
        if m == 1:
            return g * x
        c = matmul(column(x), row_vector(g))
    elif m == 1:
        c = matmul(flat_rows(g, 0), flat_rows(x, 1))
    elif m == 2 < n:
        c = matmul(T(flat_rows(x, 1)), flat_rows(g, 1))
    else:
        c = matmul(T(x), g)
    return fit_to_shape(c, shape(y), None)


def flat_rows(x, kept: int):
    """x with all axes but the last `kept` flattened into one."""
    s = shape(x)
    n = len(s) - kept
    return x if n == 1 else reshape(x, to=(int(np.prod(s[:n])), *s[n:]))


def bilinear_forward(f: Callable) -> Callable:
    """The forward rule of a bilinear operation."""

    def push(t, out, a, b, **settings):
        return sum_of_given(
            [f(x, y, **settings) for x, y in ((t[0], b), (a, t[1])) if x is not None and y is not None]
        )

    return push


rules(matmul, _matmul_left, _matmul_right, jvp=bilinear_forward(matmul))


@implements(np.matmul, np.linalg.matmul, layout="own")
@hook
def product(x, y):
    """x @ y."""
    return matmul(x, y)


# --- composed of matmul ---


def two_operands(a, b) -> tuple:
    """Two operands as arrays or Variables."""
    return (a, b) if isinstance(a, Variable) and isinstance(b, Variable) else tuple(arrays_of((a, b)))


@implements(np.dot, layout="own")
def dot(a, b, out=None):
    a, b = two_operands(a, b)
    n, m = ndim(a), ndim(b)
    if n == 0 or m == 0:
        return a * b
    return product(a, b) if m <= 2 else inner(a, T(b))


@implements(np.vdot)
def vdot(a, b):
    a, b = [flat_operand(x) for x in two_operands(a, b)]
    return matmul(conjugate(a), b)


def flat_operand(x):
    s = shape(x)
    return x if len(s) == 1 else reshape(x, to=(int(np.prod(s)),))


@implements(np.inner)
def inner(a, b):
    a, b = two_operands(a, b)
    if ndim(a) == 0 or ndim(b) == 0:
        return a * b
    left, right = [x if ndim(x) == 1 else flat_rows(x, 1) for x in (a, b)]
    y = matmul(left, right if ndim(b) == 1 else T(right))
    to = shape(a)[:-1] + shape(b)[:-1]
    return y if shape(y) == to else reshape(y, to=to)


@implements(np.outer)
def outer(a, b, out=None):
    a, b = two_operands(a, b)
    return column(flat_operand(a)) * flat_operand(b)


def reordered(x, axes: tuple):
    return x if axes == tuple(range(len(axes))) else transpose(x, axes=axes)


@implements(np.kron)
def kron(a, b):
    a, b = two_operands(a, b)
    s, r = shape(a), shape(b)
    n = max(len(s), len(r))
    s, r = (1,) * (n - len(s)) + s, (1,) * (n - len(r)) + r
    x = reshape(a, to=tuple(itertools.chain(*[(k, 1) for k in s])))
    y = reshape(b, to=tuple(itertools.chain(*[(1, k) for k in r])))
    return reshape(x * y, to=tuple([i * j for i, j in zip(s, r, strict=True)]))


def move_axis(x, source: int, to: int):
    """np.moveaxis for one axis."""
    n = ndim(x)
    source, to = source % n, to % n
    if source == to:
        return x
    axes = [i for i in range(n) if i != source]
    axes.insert(to, source)
    return transpose(x, axes=tuple(axes))


@primitive(batch="matrix")
def take_last(x, *, at):
    """x[..., at] for a tuple of indices."""
    return x[..., list(at)]


@primitive(batch="matrix")
def put_last(x, *, at, size):
    """The adjoint of `take_last`, for distinct indices."""
    out = xp_of(x).zeros((*x.shape[:-1], size), x.dtype)
    out[..., list(at)] = x
    return out


rules(take_last, lambda g, out, x, at: put_last(g, at=at, size=shape(x)[-1]), jvp=linear)
rules(put_last, lambda g, out, x, at, size: take_last(g, at=at), jvp=linear)


@implements(np.cross, np.linalg.cross, layout="asked")
def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = two_operands(a, b)
    a, b = move_axis(a, axisa, -1), move_axis(b, axisb, -1)
    n, m = shape(a)[-1], shape(b)[-1]
    if n not in (2, 3) or m not in (2, 3):
        raise ValueError(f"cross: vectors must have 2 or 3 elements, not {n} and {m}")
    if n == 2 == m:
        c = a * take_last(b, at=(1, 0))
        return reshape(
            slice_of(c, axis=ndim(c) - 1, start=0, stop=1) - slice_of(c, axis=ndim(c) - 1, start=1, stop=2),
            to=shape(c)[:-1],
        )
    a, b = [x if k == 3 else put_last(x, at=(0, 1), size=3) for x, k in ((a, n), (b, m))]
    c = take_last(a, at=(1, 2, 0)) * take_last(b, at=(2, 0, 1)) - take_last(a, at=(2, 0, 1)) * take_last(
        b, at=(1, 2, 0)
    )
    return move_axis(c, -1, axisc)


@implements(np.vecdot, np.linalg.vecdot)
def vecdot(x1, x2, axis=-1):
    x1, x2 = two_operands(x1, x2)
    a, b = [move_axis(x, axis, -1) for x in (x1, x2)]
    c = conjugate(a) * b
    return sum(c, ndim(c) - 1)


@implements(np.matvec)
def matvec(a, v):
    c = matmul(*two_operands(a, column(two_operands(a, v)[1])))
    return reshape(c, to=shape(c)[:-1])


@implements(np.vecmat)
def vecmat(v, a):
    v, a = two_operands(v, a)
    c = matmul(row_vector(conj(v)), a)
    return reshape(c, to=(*shape(c)[:-2], shape(c)[-1]))


# --- diagonals, trace ---


@primitive(batch="matrix")
def diagonals(x, *, offset=0):
    """The diagonal of each matrix."""
    return xp_of(x).diagonal(x, offset, -2, -1).copy()


@primitive(batch="matrix")
def with_diagonals(x, *, to, offset=0):
    """Matrices of shape `to` with one nonzero diagonal: the adjoint of `diagonals`."""
    out = xp_of(x).zeros((*x.shape[:-1], *to), x.dtype)
    k = xp_of(x).arange(x.shape[-1])
    out[..., k + max(0, -offset), k + max(0, offset)] = x
    return out


rules(diagonals, lambda g, out, x, offset: with_diagonals(g, to=shape(x)[-2:], offset=offset), jvp=linear)
rules(with_diagonals, lambda g, out, x, to, offset: diagonals(g, offset=offset), jvp=linear)


@implements(np.trace)
def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    n = ndim(a)
    if n < 2:
        raise ValueError("numpy.trace: the array needs at least two axes")
    axis1, axis2 = axes_of((axis1, axis2), n)
    a = reordered(a, tuple([i for i in range(n) if i not in (axis1, axis2)]) + (axis1, axis2))
    return sum(cast_operand(diagonals(a, offset=int(offset)), dtype), n - 2)


# --- chains and powers ---


# --- convolution and polynomials ---


@primitive(batch="matrix")
def backwards(x):
    return x[..., ::-1].copy()


def _convolve_stacked(run, xs, params):
    x, y = sorted(xs, key=lambda v: -shape(v)[1])
    count, m, zeros = shape(x)[0], shape(y)[1], xp(x).zeros
    total = None
    for k in range(m):  # the contribution of each element of the shorter one
        share = x * y[:, k : k + 1]
        share = concatenate(
            zeros((count, k), share.dtype), share, zeros((count, m - 1 - k), share.dtype), axis=1
        )
        total = share if total is None else total + share
    return total


@primitive(batch=_convolve_stacked, total=True)
def convolve_full(x, y):
    return xp_of(x).convolve(x, y, "full")


def _middle(c, start: int, length: int):
    return (
        c if start == 0 and length == shape(c)[0] else slice_of(c, axis=0, start=start, stop=start + length)
    )


rules(backwards, lambda g, out, x: backwards(g), jvp=linear)
rules(
    convolve_full,
    lambda g, out, x, y: _middle(convolve_full(g, backwards(y)), shape(y)[0] - 1, shape(x)[0]),
    lambda g, out, x, y: _middle(convolve_full(g, backwards(x)), shape(x)[0] - 1, shape(y)[0]),
    jvp=bilinear_forward(convolve_full),
)
matmul.prim.multilinear = convolve_full.prim.multilinear = True


def _moded(a, v, mode, same_start: int):
    """The part of the full convolution for NumPy's `mode`."""
    n, m = shape(a)[0], shape(v)[0]
    c = convolve_full(a, v)
    mode = {0: "valid", 1: "same", 2: "full"}.get(mode, mode)
    if mode == "full":
        return c
    if mode == "same":
        return _middle(c, same_start, max(n, m))
    if mode == "valid":
        return _middle(c, min(n, m) - 1, max(n, m) - min(n, m) + 1)
    raise ValueError(f"convolve: mode must be 'full', 'same' or 'valid', not {mode!r}")


@implements(np.convolve)
def convolve(a, v, mode="full"):
    a, v = [flat_operand(x) if ndim(x) == 0 else x for x in two_operands(a, v)]
    return _moded(a, v, mode, (min(shape(a)[0], shape(v)[0]) - 1) // 2)


@implements(np.correlate)
def correlate(a, v, mode="valid"):
    """sum_n a[n + k] conj(v[n]): the convolution with conj(v) read backwards."""
    a, v = two_operands(a, v)
    n, m = shape(a)[0], shape(v)[0]
    return _moded(a, conj(backwards(v)), mode, (m - 1) // 2 if n >= m else n // 2)


follow(
    __name__, np.tensordot, np.linalg.tensordot, np.linalg.multi_dot, np.linalg.outer, np.linalg.trace,
    np.polyval,
)  # fmt: skip
