"""The arguments of generated kernels: dtypes, shapes, trees of parameters, missing data, output arrays."""

import math
import weakref

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError, ShapeError
from ..._core.primitive import is_tracked, values_of
from ..._core.registry import load
from ..._core.trees import Const, is_node
from ..._core.variable import Variable
from ...ops import shaping
from ..emit.lower import SUMS
from ..launch.cpu import Launcher
from .derivatives import derivative_library

FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


def kernel_name(f) -> str:
    return getattr(f, "__name__", type(f).__name__)


def as_float(x, what: str):
    """Return a tracked Variable or an array of float64 or float32.

    Lists and numbers are converted. A Const is not tracked."""
    if type(x) is np.ndarray and x.dtype in FLOATS:
        return x
    if isinstance(x, Const):
        x = values_of(x.value)
    if isinstance(x, Variable):
        if is_tracked(x):
            return x
        x = values_of(x)
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentError(
            f"{what} is a masked array, and kernels see no mask; mark missing data by nan: "
            f"x.filled(numpy.nan)"
        )
    if not is_array(x):
        x = np.asarray(x)
    if x.dtype in FLOATS:
        return x
    if x.dtype.kind in "biu" or x.dtype.newbyteorder("=") in FLOATS:  # (FITS files are big-endian)
        return x.astype(np.float32 if x.dtype.newbyteorder("=") == FLOATS[1] else np.float64)
    raise ArgumentError(f"{what} has dtype {x.dtype}; a kernel computes in float64 or float32")


def contiguous_argument(x, dtype: np.dtype):
    return x if x.dtype == dtype and x.flags.c_contiguous else xp_of(x).ascontiguousarray(x, dtype=dtype)


def launcher_of(*arrays) -> type:
    """Return the class that launches on these arrays; CuPy is imported only for CuPy arrays."""
    return (
        Launcher if derivative_library(*arrays) is np else load("tapegrad.kernels.launch.cuda").CudaLauncher
    )


def is_tree(theta) -> bool:
    """Return whether theta is a structure with names; lists and plain tuples of numbers are arrays."""
    return is_node(theta) and not (isinstance(theta, (list, tuple)) and not hasattr(theta, "_fields"))


def batch_of(name: str, arrays: list) -> int:
    sizes = {a.shape[-1] for a in arrays if a.ndim}
    if len(sizes) > 1:
        raise ShapeError(
            f"{name}: the last axis is the sample, and the arguments have {sorted(sizes)} samples"
        )
    if not sizes:
        raise ShapeError(f"{name}: no argument has an axis of samples; map works on arrays (..., B)")
    return sizes.pop()


def stacked_rows(arrays: list, batch: int, dtype: np.dtype, xp=np):
    """Stack the arguments as rows, (rows, B); without any, return empty rows of the library `xp`."""
    if not arrays:
        return xp.zeros((0, batch), dtype)
    parts = [
        shaping.broadcast_to(a, (1, batch)) if a.ndim == 0 else a.reshape((math.prod(a.shape[:-1]), batch))
        for a in arrays
    ]
    return parts[0] if len(parts) == 1 else shaping.concatenate(*parts)


def with_ways(data, ways: tuple | list):
    """Append directions in the space of the data as further components of each datum."""
    if not len(ways):
        return data
    xp = derivative_library(data, *ways)
    parts = [data, *[w.astype(data.dtype, copy=False) for w in ways]]
    return xp.stack(parts) if data.ndim == 1 else xp.concatenate(parts)


def list_of(out) -> list | None:
    return None if out is None else list(out) if isinstance(out, (tuple, list)) else [out]


def sums_of(sums) -> bool:
    """Return whether `sums` is float64; None is not."""
    if sums is None:
        return False
    try:
        found = np.dtype(sums)
    except TypeError:
        found = sums
    if found != SUMS or not isinstance(found, np.dtype):
        raise ArgumentError(
            f"sums={sums!r}: np.float64, the dtype in which terms of float32 may be added, or None for that "
            f"of theta"
        )
    return True


def checked_outs(name: str, outs: list, rows: list, batch: int, types: list) -> list:
    if len(outs) != len(rows):
        raise ArgumentError(f"{name}: out= needs {len(rows)} arrays")
    made = []
    for k, (o, n, dtype) in enumerate(zip(outs, rows, types, strict=True)):
        want = (batch,) if k == 0 else (n, batch)
        if (
            not is_array(o)
            or o.shape != want
            or o.dtype != dtype
            or not o.flags.c_contiguous
            or not getattr(o.flags, "writeable", True)
        ):
            raise ShapeError(
                f"{name}: out[{k}] must be a writable, C-contiguous {dtype} array of shape {want}"
            )
        made.append(o.reshape(n, batch))
    return made


# size up to which BLAS checks for nan fastest; above it BLAS waits for other threads
DOT_CHECKED_NUMBERS = 8192


class MissingCheck:
    """Checks data for nan, and remembers data that cannot have changed.

    `rows`: only the first rows can be missing data; the rows below are arguments."""

    def __init__(self, name: str, rows: int | None = None):
        self.name, self.rows = name, rows
        self.clean = {}

    def __call__(self, data) -> bool:
        """Return whether the data contain nan; raise for infinite data."""
        if self.rows is not None and self.rows < len(data):
            data = data[: self.rows]
        xp = np if type(data) is np.ndarray else xp_of(data)
        if xp is not np:
            return self.on_device(xp, data)
        known = self.clean.get(id(data))
        if known is not None and known[0]() is data and not data.flags.writeable:
            return False  # read-only data that own their memory are checked once
        flat = data if data.ndim == 1 else data.ravel()
        with np.errstate(all="ignore"):
            check = float(flat.dot(flat) if flat.size < DOT_CHECKED_NUMBERS else flat.sum())
        if check - check == 0.0:
            if not data.flags.writeable and data.base is None:
                self.clean = {id(data): (weakref.ref(data), 0, False)}
            return False
        self.refuse_inf(bool(xp.isinf(flat).any()))
        return bool(xp.isnan(flat).any())

    def count(self, data: np.ndarray) -> int:
        """Return how many numbers of contiguous data are checked."""
        return data.size if self.rows is None or data.ndim == 1 else data[: self.rows].size

    def on_device(self, xp, data) -> bool:
        """Check an array on a device when it is first met, and only then, because the host must wait."""
        known = self.clean.get(id(data))
        if known is not None and known[0]() is data and known[1] == data.data.ptr:
            return known[2]
        self.refuse_inf(bool(xp.isinf(data).any()))
        missing = bool(xp.isnan(data).any())
        self.clean = {id(data): (weakref.ref(data), data.data.ptr, missing)}
        return missing

    def holds_for(self, view, data) -> None:
        """Store the result for data on a device under this view of all of them as well."""
        found = self(data)
        self.clean = {id(data): self.clean[id(data)], id(view): (weakref.ref(view), view.data.ptr, found)}

    def refuse_inf(self, found: bool) -> None:
        if found:
            raise ArgumentError(f"{self.name}: the data hold inf; mark missing data by nan")
