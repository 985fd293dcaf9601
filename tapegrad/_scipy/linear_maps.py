"""Linear and bilinear operations on which the subpackages are made, each beside its transpose.

`convolved` and `overlap` are the full convolution and its transpose by either factor; they are each other's.
`recursed` is the all-pole filter, whose transpose is itself, run backwards.  `mapped` is any map along the
last axis that does not depend on values."""

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.signal
import scipy.sparse

from .._core.arrays import xp_of
from .._core.errors import ArgumentError
from .._core.primitive import layout_of
from .._core.registry import load
from ..ops.declare import axis_of, linear, ndim, primitive, rules, shape
from ..ops.indexing.gathering import pad_zeros
from ..ops.indexing.regions import scatter
from ..ops.products import backwards, bilinear_forward
from ..ops.shaping import slice_of

plain_convolve: Any = np.convolve


def filter_of(x):
    """The library's lfilter."""
    if xp_of(x) is np:
        return scipy.signal.lfilter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # CuPy's, of a compiler that the module has besides
        return load("cupyx.scipy.signal").lfilter


def remembers(x) -> bool:
    """CuPy's filters keep the last inputs and outputs, in the order of time, where SciPy's keep the state of
    the transposed direct form."""
    return xp_of(layout_of(x)) is not np


def rows_of(x):
    return x.reshape(-1, x.shape[-1])


def flipped(x, k: int):
    return x[(..., *(slice(None, None, -1),) * k)]


def axes_last(x, axes: tuple) -> tuple:
    """x with these axes last, and the axes that undo it."""
    order = tuple([i for i in range(ndim(x)) if i not in axes]) + axes
    return (x, None) if order == tuple(range(ndim(x))) else (x.transpose(order), tuple(np.argsort(order)))


def shared(x, k: int):
    """x with axes of length 1 for those before the last k along which it does not vary (a broadcast
    array)."""
    lead = x.ndim - k
    return x[
        tuple([slice(0, 1) if x.strides[i] == 0 and x.shape[i] > 1 else slice(None) for i in range(lead)])
    ]


def convolution(a, b, k: int, mode: str):
    """Over the last k axes; those before broadcast.  'valid': of b within a."""
    lead = a.ndim - k
    to = np.broadcast_shapes(a.shape[:lead], b.shape[:lead])
    sign = 1 if mode == "full" else -1
    n = tuple(
        [
            max(p + sign * (q - 1) if p and q else 0, 0)
            for p, q in zip(a.shape[lead:], b.shape[lead:], strict=True)
        ]
    )
    library = xp_of(a)
    if 0 in (*to, *n, *a.shape, *b.shape):
        return library.zeros((*to, *n), np.result_type(a, b))
    if k == 0:
        return a * b
    b = shared(b, k)
    if library is not np:
        return correlate_on_device(a, b, k, mode, n)
    if math.prod(b.shape[:lead]) > 1 or min(math.prod(b.shape), math.prod(a.shape[lead:])) > 512:
        if min(math.prod(b.shape[lead:]), math.prod(n)) <= (512 if k == 1 else 64):
            return one_by_one(a, b, to, n, mode)
        return scipy.signal.oaconvolve(a, b, mode, axes=tuple(range(lead, a.ndim)))
    if a.ndim == 1:
        return plain_convolve(a, b, mode)
    if a.ndim == 2 and math.prod(b.shape) <= 64:
        return scipy.signal.convolve2d(a, b, mode)
    return scipy.signal.convolve(a, b, mode, "direct" if math.prod(b.shape) <= 64 else "auto")


def one_by_one(a, b, to: tuple, n: tuple, mode: str):
    """By direct sums: the error of a Fourier transform is relative to the largest number."""
    k, out = len(n), np.empty((*to, *n), np.result_type(a, b))
    a, b = [np.broadcast_to(x, (*to, *x.shape[x.ndim - k :])) for x in (a, b)]
    for at in np.ndindex(to):
        given = a[at], b[at], mode
        out[at] = plain_convolve(*given) if k == 1 else scipy.signal.convolve(*given, "direct")
    return out


def correlate_on_device(a, b, k: int, mode: str, n: tuple):
    """The same of CuPy's arrays: a sum of moved products for a small b, else by the Fourier transform."""
    library, lead, size = xp_of(a), a.ndim - k, b.shape[b.ndim - k :]
    if math.prod(size) <= 64:
        if mode == "full":
            a = library.pad(a, [(0, 0)] * lead + [(m - 1, m - 1) for m in size])
        total = 0
        for at in np.ndindex(size):  # b[at] stands size - 1 - at before the end of what it meets
            part = a[(..., *[slice(m - 1 - i, m - 1 - i + p) for i, m, p in zip(at, size, n, strict=True)])]
            total = total + part * b[(..., *[slice(i, i + 1) for i in at])]
        return total
    to = tuple([p + q - 1 for p, q in zip(a.shape[lead:], size, strict=True)])
    axes = tuple(range(lead, a.ndim))
    if np.result_type(a, b).kind == "c":
        y = library.fft.ifftn(library.fft.fftn(a, to, axes) * library.fft.fftn(b, to, axes), to, axes)
    else:
        y = library.fft.irfftn(library.fft.rfftn(a, to, axes) * library.fft.rfftn(b, to, axes), to, axes)
    first = (0,) * k if mode == "full" else tuple([m - 1 for m in size])
    return y[(..., *[slice(f, f + p) for f, p in zip(first, n, strict=True)])].astype(np.result_type(a, b))


@primitive(batch="matrix")
def convolved(a, b, *, k):
    """The full convolution over the last k axes of arrays of as many axes; those before broadcast."""
    return convolution(a, b, k, "full")


@primitive(batch="matrix")
def overlap(g, b, *, k):
    """sum_j g[n + j] b[j], for the n at which all of b lies within g."""
    return convolution(g, flipped(b, k), k, "valid")


rules(
    convolved,
    lambda g, out, a, b, k: overlap(g, b, k=k),
    lambda g, out, a, b, k: overlap(g, a, k=k),
    jvp=bilinear_forward(convolved),
)
rules(
    overlap,
    lambda t, out, g, b, k: convolved(t, b, k=k),
    lambda t, out, g, b, k: overlap(g, t, k=k),
    jvp=bilinear_forward(overlap),
)


# --- y[n] = v[n] - sum_k a[k - 1] y[n - k] ---


@primitive(batch="matrix")
def recursed(v, a):
    """Along the last axis; v and a have as many axes, those before the last broadcast."""
    library, filtered = xp_of(v), filter_of(v)
    a = shared(a, 1)
    kind = np.result_type(v, a)
    lead = np.broadcast_shapes(v.shape[:-1], a.shape[:-1])
    if 0 in (*lead, *v.shape):
        return library.zeros((*lead, v.shape[-1]), kind)
    one = library.ones(1, kind)
    if math.prod(a.shape[:-1]) == 1:
        y = filtered(one, library.concatenate([one, a.reshape(-1)]), v)
        return y if y.shape[:-1] == lead else library.broadcast_to(y, (*lead, v.shape[-1])).copy()
    out = library.empty((*lead, v.shape[-1]), kind)
    v, a = library.broadcast_to(v, out.shape), library.broadcast_to(a, (*lead, a.shape[-1]))
    for at in np.ndindex(lead):
        out[at] = filtered(one, library.concatenate([one, a[at]]), v[at])
    return out


def recursed_back(g, a):
    return backwards(recursed(backwards(g), a))


def lagged(z, y, m: int):
    """sum_n z[n] y[n - k] for k = 1, .., m."""
    n = ndim(z)
    c = overlap(pad_zeros(z, width=((0, 0),) * (n - 1) + ((0, m),)), y, k=1)
    return slice_of(c, axis=n - 1, start=1, stop=m + 1)


def recursed_push(t, out, v, a):
    """The tangent obeys the same recursion, driven by -sum_k da[k - 1] y[n - k]."""
    drive = t[0]
    if t[1] is not None:
        n, axis = shape(out)[-1], ndim(out) - 1
        moved = convolved(out, pad_zeros(t[1], width=((0, 0),) * axis + ((1, 0),)), k=1)
        moved = slice_of(moved, axis=axis, start=0, stop=n)
        drive = -moved if drive is None else drive - moved
    return recursed(drive, a)


rules(
    recursed,
    lambda g, out, v, a: recursed_back(g, a),
    lambda g, out, v, a: -lagged(recursed_back(g, a), out, shape(a)[-1]),
    jvp=recursed_push,
)

# --- maps along the last axis ---

DENSE_MAP_NUMBERS = 1 << 24  # numbers of a matrix that is kept


class AxisMap:
    """A linear map along the last axis: `f` takes (..., n) to (..., m).  `back`: its transpose; without it
    the matrix is made, of f on unit vectors, when it is first asked for, and kept, sparse where it is; of a
    large one blocks of rows are made each time. `on_host`: CuPy has no such f; its arrays meet the matrix,
    which is made on the host and moved there once."""

    def __init__(self, f: Callable, n: int, back: Callable | None = None, on_host: bool = False):
        self.f, self.n, self.back, self.on_host = f, n, back, on_host
        self.matrix: Any = None
        self.there: Any = None  # the matrix on the device

    def forward(self, x):
        return self.times(x, False) if self.on_host and xp_of(x) is not np else self.f(x)

    def blocks(self, library=np):
        step = max(1, min(self.n, (1 << 20) // max(self.n, 1)))
        for start in range(0, self.n, step):
            yield start, library.asarray(self.f(library.eye(min(step, self.n - start), self.n, start)))

    def kept(self):
        """The matrix, (n, m), dense or sparse; False where it is too large to be kept."""
        if self.matrix is None:
            parts, size = [], 0
            for _, rows in self.blocks():
                part = scipy.sparse.csr_array(rows)
                size += part.nnz
                parts.append(part)
                if size > DENSE_MAP_NUMBERS:
                    break
            self.matrix = False if size > DENSE_MAP_NUMBERS else scipy.sparse.vstack(parts, "csr")
            if self.matrix is not False and self.matrix.nnz > 0.2 * math.prod(self.matrix.shape):
                self.matrix = self.matrix.toarray()
        return self.matrix

    def backward(self, g):
        if self.back is not None:
            return self.back(g)
        library, flat = xp_of(g), rows_of(g)
        if library is not np and self.on_host:
            return self.times(g, True)
        matrix = self.kept() if library is np else self.kept_there(library, flat.shape[1])
        if matrix is not False:
            found = (matrix @ flat.T).T
        else:
            found = library.concatenate([flat @ rows.T for _, rows in self.blocks(library)], 1)
        return library.ascontiguousarray(found, product_dtype(found, g)).reshape(*g.shape[:-1], self.n)

    def kept_there(self, library, m: int):
        """The matrix of a map that CuPy has; False where it is too large to be kept."""
        if self.there is None:
            self.there = (
                library.concatenate([rows for _, rows in self.blocks(library)])
                if self.n * m <= DENSE_MAP_NUMBERS
                else False
            )
        return self.there

    def times(self, x, back: bool):
        """A CuPy array times the matrix of a map of the host, or its transpose."""
        library, flat = xp_of(x), rows_of(x)
        if self.there is None:
            matrix = self.kept()
            if matrix is False:
                raise ArgumentError(
                    f"scipy: CuPy has no such function, and its matrix, of {self.n} columns, is too large; "
                    f"use x.get()"
                )
            if scipy.sparse.issparse(matrix):
                matrix = matrix.tocoo()
                self.there = (
                    tuple([library.asarray(v) for v in (matrix.row, matrix.col, matrix.data)]),
                    matrix.shape,
                )
            else:
                self.there = library.asarray(matrix), matrix.shape
        values, shape = self.there
        if type(values) is tuple:
            rows, columns, data = values
            rows, columns = (rows, columns) if back else (columns, rows)
            found = library.zeros(
                (shape[0 if back else 1], len(flat)), np.result_type(flat.dtype, data.dtype)
            )
            library.add.at(found, rows, data[:, None] * flat.T[columns])
            found = found.T
        else:
            found = flat @ (values.T if back else values)
        return library.ascontiguousarray(found, product_dtype(found, x)).reshape(*x.shape[:-1], -1)


class Sums(AxisMap):
    """Sums over the places of each region, which may have places in common."""

    def __init__(self, rows, at, m: int, n: int):
        """Sum k is that of the places at[rows == k] among n, for k < m."""
        self.rows, self.at, self.m, self.n = rows, at, m, n

    def forward(self, x):
        return scatter_add(x, self.at, self.rows, self.m)

    def backward(self, g):
        return scatter_add(g, self.rows, self.at, self.n)


def scatter_add(x, at, to, n: int):
    """y[..., to[k]] += x[..., at[k]]"""
    library, flat = xp_of(x), rows_of(x)
    if library is np:
        matrix = scipy.sparse.csr_array((np.ones(len(at)), (to, at)), (n, x.shape[-1]))
        return (matrix @ flat.T).T.reshape(*x.shape[:-1], -1).astype(x.dtype)
    y = library.zeros((n, len(flat)), x.dtype)
    scatter("add", y, to, flat.T[at])
    return y.T.reshape(*x.shape[:-1], -1)


def product_dtype(found, x) -> np.dtype:
    """The dtype of a product with x: its precision."""
    return np.result_type(x.dtype, np.complex64) if found.dtype.kind == "c" else x.dtype


@primitive(shapes=(0,), batch="matrix")
def mapped(x, *, map, back=False):
    """The map, or its transpose, along the last axis."""
    return map.backward(x) if back else map.forward(x)


rules(mapped, lambda g, out, x, map, back: mapped(g, map=map, back=not back), jvp=linear)


def apply_linear(f: Callable, x, axis: int = -1, back=None):
    """f, a linear map (..., n) -> (..., m) of the library's (with these settings: it is kept by itself), on x
    along an axis."""
    n, axis = ndim(x), axis_of(axis, ndim(x))
    order = tuple([i for i in range(n) if i != axis] + [axis])
    y = mapped(x if axis == n - 1 else x.transpose(order), map=map_of(f, shape(x)[axis], back))
    return y if axis == n - 1 else y.transpose(tuple(np.argsort(order)))


@functools.lru_cache(64)
def map_of(f: Callable, n: int, back) -> AxisMap:
    return AxisMap(f, n, back)


class SettingsFunction:
    """A function of SciPy's along the last axis, with its settings: one object for equal ones, so that its
    matrix is found again."""

    def __init__(self, f: Callable, **settings):
        self.f, self.settings = f, settings
        known = [(v.tobytes(), v.shape) if isinstance(v, np.ndarray) else repr(v) for v in settings.values()]
        self.key = f, tuple(settings), tuple(known)

    def __call__(self, x):
        return self.on(x)(x, **self.settings, axis=-1)

    def on(self, x) -> Callable:
        """The function of the library of x."""
        if xp_of(x) is np:
            return self.f
        device = (
            "cupyx.scipy.ndimage" if self.f.__module__.startswith("scipy.ndimage") else "cupyx.scipy.signal"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            found = getattr(load(device), self.f.__name__, None)
        if found is None:
            raise ArgumentError(f"scipy: CuPy has no {self.f.__name__}; move the array with x.get()")
        return found

    def __eq__(self, other) -> bool:
        return isinstance(other, SettingsFunction) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)
