"""CuPy's kernels done by NumPy on views of the arrays' memory.

Three kinds of kernel reach the two hooks at the bottom, through CuPy's own override protocol: ufuncs,
elementwise kernels and simple reductions. For each the type decisions are CuPy's own (its tables of loops
are asked), only the loop body is NumPy's. A kernel that is not in a table raises NotImplementedError with
its name.
"""

import functools

import cupy
import numpy as np
import scipy.special
from cupy._core._scalar import CScalar

from .runtime import count_kernel, count_unknown

ELEMENTWISE_HOOK = "__cupy_override_elementwise_kernel__"
REDUCTION_HOOK = "__cupy_override_reduction_kernel__"
PREFIXES = ("cupyx_scipy_special_", "cupyx_scipy_", "cupy_")  # the longest first


# ---------------------------------------------------------------------------------------------------- memory


class _Memory:
    """What NumPy needs to see memory it does not own; keeps the owner alive."""

    def __init__(self, address, shape, dtype, strides, owner):
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "typestr": dtype.str,
            "strides": strides,
        }


def memory_view(address, shape, dtype, strides=None, owner=None):
    """A NumPy array over the memory at `address`."""
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(_Memory(address, shape, np.dtype(dtype), strides, owner))


def host_view(a):
    """A NumPy view on the memory of a CuPy array: nothing is copied, no transfer is counted."""
    return memory_view(a.data.ptr, a.shape, a.dtype, a.strides, a)


def to_device(x, order="C"):
    """A CuPy array with the values of the NumPy array or scalar `x`, always a new one."""
    x = np.asarray(x)
    a = cupy.ndarray(x.shape, x.dtype, order=order)
    host_view(a)[...] = x
    return a


def as_array(x):
    """`x` as a CuPy array if it is one or offers one (as CuPy converts kernel arguments), else None."""
    if isinstance(x, cupy.ndarray):
        return x
    if hasattr(x, "__cuda_array_interface__") or hasattr(x, "__cupy_get_ndarray__"):
        return cupy.asarray(x)
    return None


def _typed(x):
    """A kernel argument as CuPy's type tables want it; TypeError for what CuPy does not take."""
    a = as_array(x)
    return CScalar(x) if a is None else a


def unknown(kind, name):
    count_unknown(name)
    return NotImplementedError(
        f"host_cupy: the {kind} {name} runs on a device only: it has no counterpart in NumPy here"
    )


def _bare_name(name):
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


# ---------------------------------------------------------------------------------------------------- ufuncs


def _power(x, y):
    """CuPy gives 0 or +-1 for negative powers of integers, NumPy refuses them."""
    if x.dtype.kind != "i" or not np.any(y < 0):
        return np.power(x, y)
    sign_or_one = np.where(x == -1, np.where(y & 1, -1, 1), x == 1)
    return np.where(y < 0, sign_or_one, np.power(x, np.maximum(y, 0)))


def _arange(start, step, shape):
    return start + np.arange(shape[0]) * step


def _linspace(start, step, *rest):
    div, shape = rest if len(rest) == 2 else (1, *rest)
    return start + np.arange(shape[0]) * step / div


def _clip(x, low, high):
    """nan stays nan, and a bound that is nan bounds nothing."""
    return np.where(low > high, high, np.where(x < low, low, np.where(x > high, high, x)))


def _is_close(a, b, rtol, atol, equal_nan):
    return np.isclose(a, b, rtol, atol, bool(equal_nan))


def _round(x, decimals):
    return np.round(x, int(decimals))


def _nan_to_num(x, nan, posinf, neginf):
    x = np.where(np.isnan(x), nan, x)
    return np.where(x == np.inf, posinf, np.where(x == -np.inf, neginf, x))


UFUNCS = {
    "copy": lambda x: x,
    "clip": _clip,
    "power": _power,
    "is_close": _is_close,
    "is_close_complex": _is_close,
    "angle_deg": lambda z: np.angle(z, deg=True),
    "nan_to_num_": _nan_to_num,
    "round": _round,
    "log1p": np.log1p,
    "btdtr": scipy.special.betainc,
    "btdtri": scipy.special.betaincinv,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "lambertw_scalar": scipy.special.lambertw,
    "spherical_yn_real": scipy.special.spherical_yn,
    "spherical_dyn_real": lambda n, z: scipy.special.spherical_yn(n, z, True),
    "ellipk": scipy.special.ellipkm1,  # CuPy exchanged the names of these two kernels
    "ellipkm1": scipy.special.ellipk,
}
INDEXED_UFUNCS = {"arange": _arange, "linspace": _linspace}  # their loops use the position of the element


def _sph_harm(m, n, theta, phi):
    """nan, not 0, for an order beyond the degree."""
    return np.where((abs(m) > n) | (n < 0), np.nan, scipy.special.sph_harm_y(n, m, phi, theta))


@functools.cache
def _ufunc_body(name, nin):
    """The NumPy or SciPy function that computes ufunc `name`, or None."""
    bare = _bare_name(name)
    if bare == "lpmv" and nin == 4:
        return _sph_harm  # CuPy gave this kernel the name of another
    if bare in UFUNCS:
        return UFUNCS[bare]
    places = (scipy.special, np) if name.startswith("cupyx") else (np, scipy.special)
    for place in places:
        if hasattr(place, bare):
            return getattr(place, bare)
    return None


def _operand(x, dtype):
    """A kernel input as NumPy array of the loop's type."""
    if isinstance(x, cupy.ndarray):
        return host_view(x).astype(dtype, copy=False)
    return np.asarray(x).astype(dtype)


def _checked_outputs(outs, nout, dtypes, shape, casting):
    """The given output arrays, checked as CuPy does, and new ones where none is given."""
    outs = list(outs) + [None] * (nout - len(outs))
    for i, (out, dtype) in enumerate(zip(outs, dtypes, strict=True)):
        if out is None:
            outs[i] = cupy.ndarray(shape, dtype)
            continue
        if not isinstance(out, cupy.ndarray):
            raise TypeError("Output arguments type must be cupy.ndarray")
        if out.shape != shape:
            raise ValueError("Out shape is mismatched")
        if not np.can_cast(dtype, out.dtype, casting):
            raise TypeError(
                f"Cannot cast ufunc output from {dtype!r} to {out.dtype!r} with casting rule {casting!r}"
            )
    return outs


def _broadcast_shape(operands):
    shapes = [x.shape for x in operands if isinstance(x, cupy.ndarray)]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " ".join(map(str, shapes))
        raise ValueError(f"operands could not be broadcast together with shapes {listed}") from None


def _split_ufunc_arguments(kernel, args, out):
    if not kernel.nin <= len(args) <= kernel.nargs:
        raise TypeError(f"Wrong number of arguments for {kernel.name!r}")
    if out is None:
        return args[: kernel.nin], args[kernel.nin :]
    if len(args) > kernel.nin:
        raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
    return args, out if isinstance(out, tuple) else (out,)


def _call_body(body, operands, indexed, shape):
    with np.errstate(all="ignore"):  # CuPy never warns
        result = body(*operands, shape) if indexed else body(*operands)
    return result if isinstance(result, tuple) else (result,)


def run_ufunc(kernel, args, out=None, dtype=None, casting=None, _where=None):
    """ufunc.__call__ of CuPy's _kernel.pyx, with NumPy for the loop."""
    ins, outs = _split_ufunc_arguments(kernel, args, out)
    typed = [_typed(x) for x in ins]
    ins = [x if isinstance(t, CScalar) else t for x, t in zip(ins, typed, strict=True)]
    dtype = None if dtype is None else np.dtype(dtype)
    loop = kernel._ops.guess_routine(kernel.name, kernel._routine_cache, typed, dtype, kernel._out_ops)
    in_types, out_types = loop.resolve_dtypes(typed, list(outs))
    given = [o for o in outs if o is not None]
    mask = [] if _where is None else [_where]
    shape = _broadcast_shape(ins + mask + given)
    outs = _checked_outputs(outs, kernel.nout, out_types, shape, casting or kernel._default_casting)
    count_kernel()
    bare = _bare_name(kernel.name)
    body = INDEXED_UFUNCS.get(bare) or _ufunc_body(kernel.name, kernel.nin)
    if body is None:
        raise unknown("ufunc", kernel.name)
    operands = [_operand(x, t) for x, t in zip(ins, in_types, strict=True)]
    results = _call_body(body, operands, bare in INDEXED_UFUNCS, shape)
    where = True if _where is None else _operand(_where, bool)
    for target, t, value in zip(outs, out_types, results, strict=True):
        with np.errstate(all="ignore"):
            value = np.asarray(value).astype(t).astype(target.dtype)
        np.copyto(host_view(target), value, where=where)
    return outs[0] if kernel.nout == 1 else tuple(outs)


# --------------------------------------------------------------------------------------- elementwise kernels
#
# One function per kernel, with the kernel's own parameters in its order: inputs, then outputs. Arrays
# arrive as NumPy views, those that the kernel indexes by itself ("raw") as they are, the others broadcast
# to the shape of the loop.


def _fills(value):
    """The body of a kernel that gives its last array the content `value(...)`."""

    def body(*args):
        args[-1][...] = value(*args)

    return body


def _positions(shape):
    return np.arange(int(np.prod(shape))).reshape(shape)


def _take(a, indices, ldim, cdim, rdim, index_range, out):
    """Out-of-range indices wrap, silently."""
    i = _positions(out.shape)
    source = np.asarray(indices % index_range, np.int64)
    source = (source + i // (cdim * rdim) * index_range) * rdim + i % rdim
    out[...] = a.reshape(-1)[source]


def _add_at(a, index, v):
    np.add.at(a, index, v)


def _update_at(a, index, v):
    """With duplicates the first writer wins: as good an arbitrary choice as the last, and code that counts
    on the last is found out."""
    a[tuple(i[::-1] for i in index)] = v[::-1]


SCATTER = {
    "update": _update_at,
    "add": _add_at,
    "sub": np.subtract.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
    "and": np.bitwise_and.at,
    "or": np.bitwise_or.at,
    "xor": np.bitwise_xor.at,
}


def _scatter(operation):
    def scatter(v, indices, cdim, rdim, adim, a):
        i = _positions(v.shape)
        target = (i // (rdim * cdim) * adim + indices % adim) * rdim + i % rdim
        SCATTER[operation](a, np.unravel_index(target.reshape(-1).astype(np.int64), a.shape), v.reshape(-1))

    return scatter


def _scatter_mask(operation):
    def scatter(v, mask, scanned, a):
        values = v.reshape(-1)[scanned[mask] - 1]
        SCATTER[operation](a, np.nonzero(mask), values)

    return scatter


def _segment(ufunc):
    """tapegrad's own: runs of equal targets."""
    return lambda at, y, n, r: ufunc.at(r, at[:n], y[:n])


def _getitem_mask(a, mask, scanned, out):
    out.reshape(-1)[scanned[mask] - 1] = a[mask]


def _wrap_index(s, length, stride, out):
    out += stride * (s % length)


def _concatenate_same_size(pointers, base, out):
    rows = out.reshape(-1, pointers.size, base) if base else out
    shape = (rows.shape[0], base)
    for j, address in enumerate(pointers):
        rows[:, j, :] = memory_view(int(address), shape, out.dtype)


def _concatenate(pointers, axis, starts, strides, out):
    ends = [*starts[1:], out.shape[axis]]
    for address, start, end, steps in zip(pointers, starts, ends, strides, strict=True):
        part = np.moveaxis(out, axis, 0)[start:end]
        shape = list(out.shape)
        shape[axis] = int(end - start)
        source = memory_view(int(address), tuple(shape), out.dtype, tuple(int(s) for s in steps))
        part[...] = np.moveaxis(source, axis, 0)


def _put(fix):
    def put(indices, values, n_values, n, data, error=None):
        index, bad = fix(indices.astype(np.int64), n)
        if error is not None:
            error[...] = bad.any()
        flat = np.unravel_index(index[~bad], data.shape)
        _update_at(data, flat, values.reshape(-1)[_positions(indices.shape) % n_values][~bad])

    return put


def _never(index):
    return np.zeros(index.shape, bool)


def _searchsorted(x, bins, n_bins, right, assume_increasing, out):
    if assume_increasing or n_bins < 2 or bins[0] <= bins[-1]:
        out[...] = np.searchsorted(bins, x, "right" if right else "left")
    else:
        out[...] = n_bins - np.searchsorted(bins[::-1], x, "left" if right else "right")


def _exists(x, bins, n_bins, invert, out, position=None):
    out[...] = np.isin(x, bins, invert=bool(invert))
    if position is not None:
        position[...] = np.searchsorted(bins, x)


def _set_xor(x, size, out):
    """Of sorted numbers: which of them stand there once."""
    x = x[:size]
    out[...] = np.concatenate([[True], x[1:] != x[:-1]]) & np.concatenate([x[1:] != x[:-1], [True]])


def _interp(x, indices, xp, fp, length, left, right, out):
    first, last = (np.ravel(v)[0] for v in (left, right))
    out[...] = np.interp(x, xp, fp, first, last)


def _histogram(x, bins, n_bins, *weights_and_out):
    *weights, out = weights_and_out
    out += np.histogram(x, bins, weights=weights[0] if weights else None)[0].astype(out.dtype)


ELEMENTWISE = {
    "cupy_take": _take,
    "cupy_take_scalar": _take,
    "cupy_getitem_mask": _getitem_mask,
    "cupy_prepare_array_indexing": _wrap_index,
    "cupy_concatenate_same_size": _concatenate_same_size,
    "cupy_concatenate": _concatenate,
    "cupy_put_raise": _put(lambda i, n: (np.where(i < 0, i + n, i), (i < -n) | (i >= n))),
    "cupy_put_wrap": _put(lambda i, n: (i % n, _never(i))),
    "cupy_put_clip": _put(lambda i, n: (np.clip(i, 0, n - 1), _never(i))),
    "cupy_bincount_kernel": lambda x, out: np.add.at(out, x, 1),
    "cupy_bincount_with_weight_kernel": lambda x, weights, out: np.add.at(out, x, weights),
    "cupy_searchsorted_kernel": _searchsorted,
    "cupy_histogram_kernel": _histogram,
    "cupy_weighted_histogram_kernel": _histogram,
    "setxorkernel": _set_xor,
    "cupy_exists_kernel": _exists,
    "cupy_exists_and_searchsorted_kernel": _exists,
    "cupy_interp": _interp,
}
# What the last array becomes. A prefix sum has two passes: totals of blocks of 512, then all sums.
VALUES = {
    "cupy_nonzero_kernel": lambda a, scanned, out: np.argwhere(a),
    "cupy_bsum_shfl": lambda a, out: np.add.reduceat(a, np.arange(0, a.size, 512), dtype=out.dtype),
    "cupy_scan_naive": lambda block_sums, a, out: np.cumsum(a, dtype=out.dtype),
    "cupy_tri": lambda m, k, out: np.tri(out.shape[0], out.shape[1], k),
    "cupy_kaiser": lambda beta, alpha, out: np.kaiser(out.size, np.float32(beta)),  # in single precision
    "cupy_tril_kernel": lambda k, x: np.tril(x, k),
    "cupy_triu_kernel": lambda k, x: np.triu(x, k),
    "cupy_fill": lambda x, out: x,
    "cupy_replace_nan": lambda a, value, out: np.where(np.isnan(a), value, a),
    "cupy_choose": lambda a, choices, n, out: choices.reshape(-1)[_positions(out.shape) + n * a],
    "cupy_resize": lambda x, size, out: np.resize(x, out.shape),
    "cupy_putmask_kernel": lambda mask, values, n, out: np.where(
        mask, values.reshape(-1)[_positions(out.shape) % n], out
    ),
}
VALUES["cupy_nonzero_kernel_incomplete_scan"] = VALUES["cupy_nonzero_kernel"]
VALUES["cupy_bsum_smem"], VALUES["cupy_scan_btree"] = VALUES["cupy_bsum_shfl"], VALUES["cupy_scan_naive"]
ELEMENTWISE |= {name: _fills(value) for name, value in VALUES.items()}
ELEMENTWISE |= {f"tapegrad_segment_{f.__name__}": _segment(f) for f in (np.add, np.maximum, np.minimum)}
ELEMENTWISE |= {f"cupy_scatter_{name}": _scatter(name) for name in SCATTER}
ELEMENTWISE |= {f"cupy_scatter_{name}_mask": _scatter_mask(name) for name in SCATTER}


def _elementwise_body(kernel):
    if kernel.name == "cupy_scatter_add_mask" and "in0 - in1" in kernel.operation:
        return _scatter_mask("sub")  # CuPy gives this kernel the name of the other
    try:
        return ELEMENTWISE[kernel.name]
    except KeyError:
        raise unknown("elementwise kernel", kernel.name) from None


def _elementwise_argument(x, parameter, shape):
    if not isinstance(x, cupy.ndarray):
        return x
    view = host_view(x)
    return view if parameter.raw or view.shape == shape else np.broadcast_to(view, shape)


def run_elementwise(kernel, args):
    """ElementwiseKernel.__call__ of CuPy's _kernel.pyx, with NumPy for the loop."""
    body = _elementwise_body(kernel)
    args = [x if isinstance(t, CScalar) else t for x, t in ((x, _typed(x)) for x in args)]
    dtypes = tuple(x.dtype if isinstance(x, cupy.ndarray) else None for x in args)
    params = kernel.params[: kernel.nargs]
    loop = [x for x, p in zip(args, params, strict=False) if isinstance(x, cupy.ndarray) and not p.raw]
    shape = _broadcast_shape(loop)
    outs = args[kernel.nin :]
    if not outs:
        _, out_types, _ = kernel._decide_params_type(dtypes[: kernel.nin], dtypes[kernel.nin :])
        outs = [cupy.ndarray(shape, t) for t in out_types]
    count_kernel()
    every = args[: kernel.nin] + outs
    views = [_elementwise_argument(x, p, shape) for x, p in zip(every, params, strict=True)]
    if not loop or 0 not in shape:  # kernels whose arrays are all raw have no shape of their own
        with np.errstate(all="ignore"):
            body(*views)
    if kernel.no_return:
        return None
    return outs[0] if kernel.nout == 1 and not kernel.return_tuple else tuple(outs)


# ------------------------------------------------------------------------------------------------ reductions


def _norm2(x, axis, keepdims):
    return np.sqrt(np.sum((x * x.conj()).real, axis=axis, keepdims=keepdims))


def _count_non_nan(x, axis, keepdims):
    return np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)


def _arg(function):
    """argmax and argmin of NumPy take one axis or none, not a tuple."""

    def reduce(x, axis, keepdims):
        if axis is None or len(axis) == x.ndim:
            return function(x, axis=None, keepdims=keepdims)
        if len(axis) > 1:
            raise unknown("reduction", "argmax or argmin over several axes")
        return function(x, axis=axis[0], keepdims=keepdims)

    return reduce


REDUCTIONS = {
    "cupy_count_non_nan": _count_non_nan,
    "_norm_ord2": _norm2,
    "_norm_ord2_complex": _norm2,
}
OF_AXES = "sum prod nansum nanprod max min nanmax nanmin any all mean nanmean count_nonzero".split()
REDUCTIONS |= {f"cupy_{name}": getattr(np, name) for name in OF_AXES}
REDUCTIONS |= {f"cupy_{f.__name__}": _arg(f) for f in (np.argmax, np.argmin, np.nanargmax, np.nanargmin)}


ACCUMULATING = ("sum", "prod", "mean")  # computed in the type of the result, the others in that of the array


def _reduction_body(name):
    for suffix in ("_with_dtype", "_complex_dtype", "_keep_dtype", "_empty"):
        name = name.removesuffix(suffix)
    return REDUCTIONS.get(name)


def _axes(axis, ndim):
    if axis is None:
        return tuple(range(ndim))
    return np.lib.array_utils.normalize_axis_tuple(axis, ndim)


def run_reduction(kernel, a, axis, dtype, out, keepdims):
    """_SimpleReductionKernel.__call__ of CuPy's _reduction.pyx. The result is an array, of no axes if need
    be."""
    body = _reduction_body(kernel.name)
    if body is None:
        raise unknown("reduction", kernel.name)
    dtype = None if dtype is None else np.dtype(dtype)
    loop = kernel._ops.guess_routine(kernel.name, kernel._routine_cache, [a], dtype, kernel._ops)
    count_kernel()
    x = host_view(a)
    if x.dtype.kind == "c" and np.dtype(loop.in_types[0]).kind != "c":
        x = x.real
    if any(word in kernel.name for word in ACCUMULATING):
        work = np.dtype(loop.out_types[0])
        x = x.astype(np.float32 if work.char == "e" else work, copy=False)  # CuPy adds float16 in float32
    with np.errstate(all="ignore"):
        r = body(x, axis=_axes(axis, a.ndim), keepdims=bool(keepdims))
        r = np.asarray(r).astype(loop.out_types[0])
    if out is None:
        return to_device(r)
    if out.shape != r.shape:
        raise ValueError("Out shape is mismatched")
    host_view(out)[...] = r
    return out


# ----------------------------------------------------------------------------------------------------- hooks


def _elementwise_hook(self, kernel, *args, **kwargs):
    """Called by CuPy for the first array among the arguments. On a device arrays have no such hook, so that
    of a foreign object anywhere in the list is the first that CuPy sees: it goes first here too."""
    for x in args:
        if not isinstance(x, cupy.ndarray) and hasattr(x, ELEMENTWISE_HOOK):
            return getattr(x, ELEMENTWISE_HOOK)(kernel, *args, **kwargs)
    if isinstance(kernel, cupy.ufunc):
        return run_ufunc(kernel, args, **kwargs)
    return run_elementwise(kernel, args)


def _reduction_hook(self, kernel, axis, dtype, out, keepdims):
    return run_reduction(kernel, self, axis, dtype, out, keepdims)


def install_hooks():
    setattr(cupy.ndarray, ELEMENTWISE_HOOK, _elementwise_hook)
    setattr(cupy.ndarray, REDUCTION_HOOK, _reduction_hook)
    cupy._core.set_elementwise_accelerators([])
    cupy._core.set_reduction_accelerators([])
    cupy._core.set_routine_accelerators([])
