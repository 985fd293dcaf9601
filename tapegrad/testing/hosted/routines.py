"""The routines of CuPy that do not go through its kernel hooks, done by NumPy and SciPy.

These are the routines that call cuBLAS, cuSOLVER, cuFFT, Thrust or a hand-launched kernel. Each replacement
checks its arguments as CuPy does (arrays must be CuPy arrays, TypeError otherwise) and is put in every
place where CuPy's modules keep a reference to the original.
"""

import functools
import importlib
import inspect
import re
import sys
import types
import warnings
from pathlib import Path

import cupy
import cupyx
import cupyx.scipy.linalg
import cupyx.scipy.special
import numpy as np
import scipy.linalg
import scipy.special
from cuda import pathfinder
from cupy.linalg import _util

from .kernels import host_view, to_device, unknown
from .random_numbers import generators
from .runtime import count_kernel, count_transfer
from .scipy_functions import as_cupys, scipys

_METHODS = {}  # name -> replacement of a method of cupy.ndarray
_ROUTINES = []  # (module, name, replacement)


def method(function):
    _METHODS[function.__name__] = function
    return function


def routine(module):
    def register(function):
        _ROUTINES.append((module, function.__name__, function))
        return function

    return register


def typed(**arguments):
    """The TypeError of a compiled function whose argument is declared to be a CuPy array."""
    for name, x in arguments.items():
        if not isinstance(x, cupy.ndarray) and x is not None:
            kind = type(x).__name__
            raise TypeError(
                f"Argument '{name}' has incorrect type (expected cupy._core.core._ndarray_base, got {kind})"
            )


def host(function, *args, **kwargs):
    """Call a NumPy function on views of the arrays in `args`, in silence; the result is still NumPy's."""
    count_kernel()
    views = [host_view(x) if isinstance(x, cupy.ndarray) else x for x in args]
    with np.errstate(all="ignore"):
        return function(*views, **kwargs)


def finish(result, out=None):
    """A result of NumPy as CuPy array: new, or in `out`."""
    if out is None:
        return to_device(result)
    if out.shape != np.shape(result):
        raise ValueError("Out shape is mismatched")
    host_view(out)[...] = result
    return out


# -------------------------------------------------------------------------------------------------- products


@routine(cupy._core)
@routine(cupy._core._routines_linalg)
def dot(a, b, out=None):
    typed(a=a, b=b, out=out)
    if a.ndim == 0 or b.ndim == 0:
        return cupy.multiply(a, b, out=out)
    if out is not None and np.result_type(a.dtype, b.dtype) != out.dtype:
        raise ValueError("Not supported dtype combination.")
    if out is not None and not out.flags.c_contiguous:
        raise ValueError("Output array must be C-contiguous")
    if a.shape[-1] != b.shape[0 if b.ndim == 1 else -2]:
        raise ValueError("Axis dimension mismatch")
    return finish(host(np.dot, a, b), out)


@routine(cupy._core)
@routine(cupy._core._routines_linalg)
def tensordot_core(a, b, out, n, m, k, ret_shape):
    """Sum over the first axis of `a`, seen as (k, n), and of `b`, seen as (k, m)."""
    typed(a=a, b=b, out=out)
    product = host(lambda x, y: np.dot(x.reshape(k, n).T, y.reshape(k, m)), a, b) if k else np.zeros((n, m))
    dtype = np.promote_types(a.dtype, b.dtype)
    return finish(np.asarray(product, dtype).reshape(tuple(ret_shape)), out)


@routine(cupy._core)
@routine(cupy._core._routines_linalg)
def matmul(a, b, out=None):
    typed(a=a, b=b, out=out)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError("Scalar operands are not allowed, use '*' instead")
    return finish(host(np.matmul, a, b), out)


def _method_dot(self, b, out=None):
    return dot(self, b, out)


_METHODS["dot"] = _method_dot
_refused_matmul = cupy.ndarray.__matmul__  # CuPy's own way to treat what is no CuPy array


@method
def __matmul__(self, other):
    return matmul(self, other) if isinstance(other, cupy.ndarray) else _refused_matmul(self, other)


@routine(cupy._core)
def asfortranarray(a, dtype=None):
    typed(a=a)
    dtype = a.dtype if dtype is None else np.dtype(dtype)
    if a.flags.f_contiguous and a.dtype == dtype:
        return a
    return to_device(host(np.asarray, a, dtype), order="F")


# ----------------------------------------------------------------------------------------- scans and sorting


def _scan_dtype(a, dtype):
    if dtype is not None:
        return np.dtype(dtype)
    return {"b": np.dtype("int64"), "i": np.dtype("int64"), "u": np.dtype("uint64")}.get(
        a.dtype.kind, a.dtype
    )


@routine(cupy._core._routines_math)
def scan_core(a, axis, op, dtype=None, out=None):
    typed(a=a, out=out)
    function = np.cumsum if op == cupy._core._routines_math.scan_op.SCAN_SUM else np.cumprod
    dtype = out.dtype if out is not None else _scan_dtype(a, dtype)
    return finish(host(function, a, axis=axis, dtype=dtype), out)


def _plain_kind(kind):
    if kind not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")


@method
def sort(self, axis=-1, kind=None):
    _plain_kind(kind)
    if self.ndim == 0:
        raise np.exceptions.AxisError("Sorting arrays with the rank of zero is not supported")
    if not self.flags.c_contiguous:
        raise NotImplementedError("Sorting non-contiguous array is not supported.")
    host(lambda x: x.sort(axis=axis, kind="stable"), self)


@method
def argsort(self, axis=-1, kind=None):
    _plain_kind(kind)
    return finish(host(np.argsort, self, axis=axis, kind="stable").astype(np.intp))


@method
def partition(self, kth, axis=-1):
    """Sorts: a partition at every position."""
    host(lambda x: x.sort(axis=axis), self)


@method
def argpartition(self, kth, axis=-1):
    return finish(host(np.argsort, self, axis=axis, kind="stable"))


@routine(cupy)
def fill_diagonal(a, val, wrap=False):
    """CuPy goes through a.flat, whose kernel does not tell its hook how far to go."""
    typed(a=a)
    host(np.fill_diagonal, a, val, wrap=wrap)


@routine(cupy)
def lexsort(keys):
    if keys.ndim > 2:  # (of a tuple, an AttributeError, as CuPy has it)
        raise NotImplementedError("Keys with the rank of three or more is not supported in lexsort")
    typed(keys=keys)
    return finish(host(np.lexsort, keys))


# ------------------------------------------------------------------------------------------------ statistics


def _spread(function):
    def spread(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False):
        typed(self=self, out=out)
        return finish(host(function, self, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims), out)

    spread.__name__ = function.__name__
    return spread


for _function in (np.var, np.std):
    method(_spread(_function))
for _function in (np.nanvar, np.nanstd):
    routine(cupy)(_spread(_function))


def _order_statistic(name):
    real, theirs = getattr(np, name), getattr(cupy, name)
    signature = inspect.signature(theirs)

    @functools.wraps(theirs)
    def statistic(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        out = given.pop("out", None)
        given.pop("overwrite_input", None)
        typed(a=given["a"], out=out)
        arrays = [given.pop(n) for n in ("a", "q") if n in given]
        return finish(host(real, *arrays, **given), out)

    return statistic


for _name in ("median", "nanmedian", "quantile", "percentile"):
    _ROUTINES.append((cupy, _name, _order_statistic(_name)))


@routine(cupyx.scipy.special)
def log_softmax(x, axis=None):
    typed(x=x)
    return finish(host(scipy.special.log_softmax, x, axis=axis).astype(np.promote_types(x.dtype, np.float16)))


# -------------------------------------------------------------------------------------------- linear algebra
#
# CuPy reports no failure: a singular or indefinite matrix leaves numbers without meaning, unless the user
# asks for an exception by cupyx.errstate(linalg="raise"), which then costs a synchronisation.


def _check(*arrays, square=True):
    _util._assert_cupy_array(*arrays)
    _util._assert_stacked_2d(arrays[0])
    if square:
        _util._assert_stacked_square(arrays[0])


def _report(failed):
    """What follows a call of cuSOLVER: nothing, or a look at its status on the host."""
    if cupyx._ufunc_config.get_config_linalg() == "ignore":
        return
    count_transfer()
    if failed:
        raise np.linalg.LinAlgError(
            "Error reported by a cuSOLVER routine: the matrix is singular or not definite"
        )


def _compute_type(*arrays):
    return _util.linalg_common_type(*arrays)[0]


def _by_matrix(function, failure, shape, *operands):
    """`function` on each matrix of the batch; where NumPy raises, `failure` gives what a GPU would leave.
    `shape`: of one result."""
    batch = operands[0].shape[:-2]
    failed = False
    results = []
    for index in np.ndindex(*batch):
        matrices = [x[index] for x in operands]
        try:
            results.append(function(*matrices))
        except np.linalg.LinAlgError:
            failed = True
            results.append(failure(*matrices))
    _report(failed)
    dtype = operands[-1].dtype
    if not results:
        return to_device(np.empty(batch + shape, dtype))
    return to_device(np.asarray(results, dtype).reshape(batch + np.shape(results[0])))


def _views(dtype, *arrays):
    count_kernel()
    return [host_view(x).astype(dtype, copy=False) for x in arrays]


def _nan_like(*operands):
    return np.full(operands[-1].shape, np.nan, operands[-1].dtype)


def _half_done_cholesky(a):
    """What a factorisation leaves that stops at the first pivot which is not positive: no nan, no factor
    either."""
    a = np.tril(a)
    for j in range(len(a)):
        pivot = a[j, j].real - np.sum(np.abs(a[j, :j]) ** 2)
        if not pivot > 0:
            break
        a[j, j] = np.sqrt(pivot)
        a[j + 1 :, j] = (a[j + 1 :, j] - a[j + 1 :, :j] @ a[j, :j].conj()) / a[j, j]
    return a


@routine(cupy.linalg)
def cholesky(a):
    _check(a)
    (x,) = _views(_compute_type(a), a)
    return _by_matrix(np.linalg.cholesky, _half_done_cholesky, a.shape[-2:], x)


def _solve_operand(a, b):
    """The right-hand side in the shape that CuPy gives it: a vector is one for the whole batch."""
    if b.ndim == 0:
        raise ValueError("b must have at least one dimension")
    if b.ndim == 1 and a.shape[-1] == b.size:
        return cupy.broadcast_to(b, a.shape[:-1])
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError("a must have (..., M, M) shape and b must have (M,) or (..., M, K)")
    return b


@routine(cupy.linalg)
def solve(a, b):
    _check(a, b)
    b = _solve_operand(a, b)
    x, y = _views(_compute_type(a, b), a, b)
    return _by_matrix(np.linalg.solve, _nan_like, b.shape[a.ndim - 2 :], x, y)


@routine(cupy.linalg)
def inv(a):
    _check(a)
    (x,) = _views(_compute_type(a), a)
    return _by_matrix(np.linalg.inv, _nan_like, a.shape[-2:], x)


def _as_complex(x):
    """Complex whatever the eigenvalues: the device cannot look whether they are real."""
    return np.asarray(x, np.promote_types(np.asarray(x).dtype, np.complex64))


def _by_numpy(name, square=True, convert=np.asarray):
    """NumPy's function of a stack of matrices, with the parameters of CuPy's."""
    theirs = getattr(cupy.linalg, name)
    real = as_cupys(getattr(np.linalg, name), theirs)

    @functools.wraps(theirs)
    def run(a, *settings, **named):
        _check(a, square=square)
        found = host(real, *_views(_compute_type(a), a), *settings, **named)
        if isinstance(found, tuple):
            return tuple([finish(convert(r)) for r in found])
        return finish(convert(found))

    return run


for _name in ("slogdet", "eigh", "eigvalsh"):
    _ROUTINES.append((cupy.linalg, _name, _by_numpy(_name)))
for _name in ("qr", "svd"):
    _ROUTINES.append((cupy.linalg, _name, _by_numpy(_name, square=False)))
for _name in ("eig", "eigvals"):
    _ROUTINES.append((cupy.linalg, _name, _by_numpy(_name, convert=_as_complex)))


def _triangular(x, y, trans, lower, unit_diagonal):
    solved = scipy.linalg.solve_triangular(x, y, trans, lower, unit_diagonal, check_finite=False)
    return np.asarray(solved, y.dtype)


@routine(cupyx.scipy.linalg)
def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, check_finite=False):
    _util._assert_cupy_array(a, b)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError("expected one square matrix or a batch of square matrices")
    if a.shape[:-2] != b.shape[: a.ndim - 2]:
        raise ValueError("incompatible batch count")
    if b.ndim < a.ndim - 1 or a.shape[-2] != b.shape[a.ndim - 2]:
        raise ValueError("incompatible dimensions")
    if check_finite and not (cupy.isfinite(a).all() and cupy.isfinite(b).all()):
        raise ValueError("array must not contain infs or NaNs")
    dtype = a.dtype if a.dtype.char in "fd" else np.promote_types(a.dtype.char, "f")
    x, y = _views(dtype, a, b)
    return _by_matrix(
        lambda p, q: _triangular(p, q, trans, lower, unit_diagonal), _nan_like, b.shape[a.ndim - 2 :], x, y
    )


@routine(cupyx.scipy.linalg)
def lu_factor(a, overwrite_a=False, check_finite=True):
    _util._assert_cupy_array(a)
    _util._assert_2d(a)
    factor, pivots = host(scipy.linalg.lapack.get_lapack_funcs("getrf", dtype=_lu_type(a.dtype)), a)[:2]
    return finish(factor), finish(pivots.astype(np.int32))


def _lu_type(dtype):
    if dtype.char not in "fdFD":
        raise NotImplementedError("Only float32, float64, complex64 and complex128 are supported.")
    return dtype


@routine(cupyx.scipy.linalg)
def lu_solve(lu_and_piv, b, trans=0, overwrite_b=False, check_finite=True):
    lu, pivots = lu_and_piv
    _util._assert_cupy_array(lu, pivots, b)
    if lu.shape[0] != b.shape[0]:
        raise ValueError("incompatible dimensions.")
    _lu_type(lu.dtype)
    factors = host_view(lu), host_view(pivots)
    return finish(
        host(lambda y: scipy.linalg.lu_solve(factors, y, trans, check_finite=False), b).astype(lu.dtype)
    )


# ---------------------------------------------------------------------------------------- Fourier transforms


def _cufft_stub():
    """The constants and the one function of cupy.cuda.cufft that CuPy's Python code needs to reach
    `_exec_fft`."""
    stub = types.ModuleType("cupy.cuda.cufft")
    stub.CUFFT_FORWARD, stub.CUFFT_INVERSE = -1, 1
    stub.CUFFT_C2C, stub.CUFFT_R2C, stub.CUFFT_C2R = 0x29, 0x2A, 0x2C
    stub.CUFFT_Z2Z, stub.CUFFT_D2Z, stub.CUFFT_Z2D = 0x69, 0x6A, 0x6C
    stub.PlanNd = stub.Plan1d = type("Plan", (), {})
    stub.get_current_plan = lambda: None
    return stub


def _transform(value_type, direction):
    if value_type == "R2C":
        return np.fft.rfft
    if value_type == "C2R":
        return np.fft.irfft
    return np.fft.fft if direction < 0 else np.fft.ifft


@routine(cupy.fft._fft)
def _exec_fft(a, direction, value_type, norm, axis, overwrite_x, out_size=None, out=None, plan=None):
    if a.shape[axis] < 1:
        raise ValueError(f"Invalid number of FFT data points ({a.shape[axis]}) specified.")
    return finish(host(_transform(value_type, direction), a, n=out_size, axis=axis, norm=norm), out)


@routine(cupy.fft._fft)
def _default_fft_func(a, s=None, axes=None, plan=None, value_type="C2C"):
    """Always one axis after the other: the plans over several axes are cuFFT's."""
    return cupy.fft._fft._fft


# ---------------------------------------------------------------------------------------------- the patching


def _run_unfused(self, *args):
    """A function under cupy.fuse runs as the kernels it is written in, not as one."""
    return self.func(*args)


@routine(pathfinder)
def find_nvidia_header_directory(libname):
    """CuPy asks for CUDA's headers before it compiles; nothing is compiled here."""
    return str(Path(cupy.__file__).parent)


@routine(cupy.cuda.compiler)
def _compile_module_with_cache(source, *args, **kwargs):
    """Whatever no hook has caught would be compiled here for the device."""
    names = re.findall(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)", source)
    error = unknown("kernel", ", ".join(names) or "(no name found)")
    if any([name.startswith("cupy_") and "__" in name for name in names]):
        error.add_note("For a function of a number, give it as an array: cupy.sqrt(cupy.asarray(3.0)).")
    raise error


class Device(cupy.cuda.Device):
    """The host is one device."""

    def __init__(self, device=None):
        if device not in (None, 0) and int(device) != 0:
            raise NotImplementedError(f"host_cupy() has one device, number 0; device {device} was asked for")


_ROUTINES.append((cupy.cuda, "Device", Device))


def _replace_everywhere(module, name, new):
    """Put `new` wherever a module of CuPy has the original of that name."""
    old = getattr(module, name)
    if hasattr(new, "__module__"):
        new.__module__ = getattr(old, "__module__", None) or module.__name__  # as users see it
        new.__name__ = name
    for full, place in list(sys.modules.items()):
        if full.split(".")[0] in ("cupy", "cupyx") and getattr(place, "__dict__", {}).get(name) is old:
            setattr(place, name, new)
    setattr(module, name, new)


def install_routines():
    for name, function in _METHODS.items():
        setattr(cupy.ndarray, name, function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # CuPy's, of a compiler that it has besides
        further = [*scipys(), *generators()]
    for module, name, function in (*_ROUTINES, *further):
        _replace_everywhere(module, name, function)
    cupy.matmul._func = matmul
    cupy._core.fusion.Fusion.__call__ = _run_unfused
    try:
        importlib.import_module("cupy.cuda.cufft")
    except ImportError:
        sys.modules["cupy.cuda.cufft"] = cupy.cuda.cufft = _cufft_stub()
