"""Calls of every function that tapegrad answers for, one for each keyword of its signature, and what judges
them.

`calls()` gives them: each has the required arguments (by the parameter's name, or the line of the function in
ARGUMENTS) and one
    **{f: (5, np.array(0.5)) for f in (np.fft.fftfreq, np.fft.rfftfreq, scipy.fft.fftfreq, scipy.fft.rfftfreq)},
keyword, at its default or at another value from OTHERS.  `judge` runs one by NumPy or SciPy and by tapegrad, and compares
value, dtype, shape, the tangent with differences and the cotangents with the tangent."""

import contextlib
import importlib
import inspect
import warnings
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import scipy.special
from cases import declared_late, distinct, normal, of_subpackage

import tapegrad as tg
import tapegrad.numpy  # fills the registry
from tapegrad._core.arrays import is_array
from tapegrad._dispatch.faces import face
from tapegrad.errors import TapegradError
from tapegrad.ops.declare import NUMPY
from tapegrad.ops.protocols import signature_of

A = distinct(3, 4) + 0.03
V = distinct(5) * 0.4 + 0.02
SQUARE = normal(3, 3) * 0.4 + 2 * np.eye(3)
SYMMETRIC = SQUARE + SQUARE.T + 2 * np.eye(3)
RANGE = np.array([0.1, 0.4, 0.9, 1.7])
INTS = np.array([0, 2, 1, 2, 3])
MASK = A > 0.1

# The value of a required parameter, by its name.
REQUIRED = {
    "axis": 0, "axis1": 0, "axis2": 1, "source": 0, "destination": 1, "shape": (3, 2), "reps": (2, 1),
    "repeats": 2, "shift": 1,
    "new_shape": (4, 5), "pad_width": 1, "indices_or_sections": 2, "decimals": 1, "dtype": np.float32,
    "kth": 1, "q": 0.37,
    "condition": MASK, "mask": MASK, "arrays": [A, A * 0.5], "tup": [A, A * 0.5], "num": 5, "values": A * 0.3,
    "obj": 1, "n": 2,
    "indices": np.array([[0, 2, 1, 0]]), "x": A, "a": A, "m": A, "v": A, "A": A, "arr": A, "ary": A, "z": A,
    "val": A, "f": A, "p": V,
    "array": A, "x1": A, "x2": A * 0.7 + 0.1, "y": A, "b": A * 0.7 + 0.1, "filt": V, "to": np.float64,
    "element": A, "y2": V,
    "test_elements": V, "prototype": A, "ar": A, "keys": (V, V), "object": [A, A], "fill_value": 0.7, "d": 2,
}  # fmt: skip
# Functions that need other arguments.
NUMPY_24 = (
    np.lib.NumpyVersion(np.__version__) >= "2.4.0"
)  # has another default, and another signature in places
L, C3 = np.linalg, (SQUARE, np.array([0.3, -0.8, 0.5]))
LINE = (np.array([0.2, 0.35, 1.2]), RANGE, np.array([0.3, -0.4, 0.5, 0.1]))
ARGUMENTS = {
    np.matmul: (SQUARE, A), L.matmul: (SQUARE, A), np.dot: (SQUARE, A), np.inner: (A, A * 0.5), np.vdot: (V,
    V * 0.5 + 1),
    np.kron: (SQUARE, V), np.tensordot: (np.ones((2, 3, 4)) * A, A[:, :2, None] * np.ones((3, 2, 4)) * [1, 2,
    0.5, 3]),
    L.tensordot: (np.ones((2, 3, 4)) * A, A[:, :2, None] * np.ones((3, 2, 4)) * [1, 2, 0.5, 3]), L.outer: (V,
    V),
    np.cross: (SQUARE, SYMMETRIC), L.cross: (SQUARE, SYMMETRIC), np.einsum: ("ij,kj->ik", A, SQUARE @ A),
    L.multi_dot: ([SQUARE, A, A.T],), np.convolve: (V, V[:3]), np.correlate: (V, V[:3]), np.polyval: (V, A),
    L.vecdot: (A, A * 0.5),
    np.zeros: ((3, 2),), np.ones: ((3, 2),), np.empty: ((3, 2),), np.full: ((3, 2), 0.7), np.eye: (3,),
    np.identity: (3,), np.tri: (3,),
    np.fromfunction: (lambda i, j: i + j * 0.5, (3, 2)), np.fromiter: ([0.5, 1.5], float), np.linspace: (0.3,
    1.7), np.arange: (0.5, 3.1),
    np.logspace: (0.3, 1.1), np.geomspace: (0.3, 2.7), np.reshape: (A, (2, 6)), np.expand_dims: (A, 1),
    np.squeeze: (A[:, None],),
    np.broadcast_to: (V, (2, 5)), np.broadcast_arrays: (A, A[:1]), np.clip: (A, -0.4, 0.5), np.where: (MASK,
    A, A * 0.5),
    np.nan_to_num: (np.where(MASK, A, np.nan),), np.dsplit: (A[:, :, None] * [1.0, 2.0], 2), np.unstack: (A,),
    np.meshgrid: (V, RANGE),
    np.take: (A, np.array([0, 2])), np.compress: ([True, False, True], A[:, :3].T), np.extract: (MASK, A),
    np.delete: (V, 1),
    np.insert: (V, 1, 0.7), np.select: ([MASK, A > -0.4], [A, A * 2]), np.choose: (INTS[:4], [A[0], A[1],
    A[2], A[0] * 2]),
    np.piecewise: (A, [MASK], [0.3, 2.0]), np.append: (A, A * 0.3), np.roll: (A, 1), np.block: ([[A, A * 2],
    [A * 3, A]],),
    np.trapezoid: (A,), np.gradient: (A,), np.interp: LINE, np.trim_zeros: (np.array([0.0, 0.3, 0.4, 0.0]),),
    np.vander: (V,),
    np.min_scalar_type: (A,), np.take_along_axis: (A, np.array([[0, 2, 1, 0]]), *[-1][NUMPY_24:]),
    np.quantile: (A, 0.37), np.percentile: (A, 37.3), np.nanquantile: (A, 0.37),
    np.nanpercentile: (A, 37.3), np.real_if_close: (A + 0j,), np.shares_memory: (A, A),
    np.asarray_chkfinite: (A,), np.diag: (SQUARE,),
    scipy.linalg.solve_triangular: C3, scipy.linalg.solve: C3, L.solve: C3, scipy.linalg.inv: (SQUARE,),
    L.inv: (SQUARE,),
    scipy.linalg.det: (SQUARE,), L.det: (SQUARE,), L.slogdet: (SQUARE,), L.matrix_power: (SQUARE, 3),
    L.cholesky: (SYMMETRIC,),
    scipy.linalg.cholesky: (SYMMETRIC,), scipy.linalg.cho_factor: (SYMMETRIC,),
    scipy.linalg.cho_solve: ((SQUARE, True), V[:3]),
    L.tensorinv: (SQUARE[:, :, None] * np.ones((1, 1, 1)), 1), L.tensorsolve: C3, L.eigh: (SYMMETRIC,),
    L.eigvalsh: (SYMMETRIC,),
    scipy.linalg.eigh: (SYMMETRIC,), scipy.linalg.eigvalsh: (SYMMETRIC,), L.svd: (SQUARE,),
    scipy.linalg.svd: (SQUARE,), L.qr: (SQUARE,),
    scipy.linalg.qr: (SQUARE,), L.pinv: (A,), scipy.linalg.pinv: (A,), L.lstsq: (A.T, V[:4]), L.cond: (SQUARE,
    ),
    scipy.linalg.expm: (SQUARE,), scipy.linalg.sqrtm: (SYMMETRIC,), scipy.linalg.logm: (SYMMETRIC,),
    L.matrix_rank: (SQUARE,),
    scipy.linalg.toeplitz: (V,), scipy.linalg.block_diag: (A, SQUARE), scipy.special.polygamma: (1, A + 3),
    scipy.special.multigammaln: (A + 5, 2), scipy.special.factorial: (RANGE,), scipy.special.zeta: (2.5,
    A + 3), np.cov: (A,),
    np.corrcoef: (A,), np.put: (A, [1, 4], [0.7, 0.8]), np.place: (A, MASK, [0.7, 0.8]), np.putmask: (A, MASK,
    A * 0.5),
    np.copyto: (A, A * 0.5), np.put_along_axis: (A, np.array([[0, 2, 1, 0]]), 0.7, 0), np.fill_diagonal: (A,
    0.7), np.result_type: (A, 1),
    np.can_cast: (np.float32, np.float64), np.digitize: (A, RANGE), np.bincount: (INTS,), np.lexsort: ((V, V),
    ),
    np.histogram: (np.sin(3 * A) + 0.1 * A,),
    np.searchsorted: (RANGE, A), np.unravel_index: (3, (2, 3)), np.ravel_multi_index: (([1, 0], [0, 2]), (2,
    3)),
    np.ix_: ([0, 1], [2, 1]), np.indices: ((2, 3),), np.broadcast_shapes: ((2, 1), (3,)),
    np.einsum_path: ("ij,jk->ik", A, A.T),
    np.fft.irfft: (A + 0j,), np.fft.hfft: (A + 0j,), scipy.fft.irfft: (A + 0j,), scipy.fft.hfft: (A + 0j,),
    np.count_nonzero: (A,),
    np.flip: (A,), np.tril_indices_from: (SQUARE,), np.triu_indices_from: (SQUARE,),
    np.diag_indices_from: (SQUARE,),
    np.common_type: (A,), L.svdvals: (A,), scipy.linalg.svdvals: (A,), np.astype: (A, np.float32),
    np.ediff1d: (A,),
    np.sort_complex: (V,), np.isclose: (A, A + 1e-9), np.allclose: (A, A + 1e-9), np.array_equal: (A, A),
    np.array_equiv: (A, A),
    np.moveaxis: (A, 0, 1), np.resize: (A, (4, 5)), np.ldexp: (A, 2), np.left_shift: (INTS, 1),
    np.right_shift: (INTS, 1),
    np.gcd: (INTS, 2), np.lcm: (INTS, 2), np.bitwise_count: (INTS,), np.bitwise_and: (INTS, 1),
    np.bitwise_or: (INTS, 1),
    np.bitwise_xor: (INTS, 1), np.invert: (INTS,), np.isnat: (np.array(["2001-01-01"], "M8[D]"),),
    np.vecdot: (A, A * 0.5),
    np.lib.stride_tricks.sliding_window_view: (A, (2, 3)),
    np.matvec: (SQUARE, A.T), np.vecmat: (A.T, SQUARE), scipy.special.expn: (2, abs(A)),
}  # fmt: skip
IN_PLACE = (np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal)
WHERE = np.array([[True, False, True, True], [False, True, True, True], [True, True, False, True]])
QUANTILES = "lower higher midpoint nearest hazen weibull median_unbiased normal_unbiased interpolated_inverted_cdf".split()
QUANTILES += ["inverted_cdf", "averaged_inverted_cdf", "closest_observation"]
MODES = "wrap clip full same valid reduced r complete economic edge reflect symmetric mean median maximum minimum linear_ramp raw".split()
# Other values of a keyword, by its name; (function, name) where the name says too little.
OTHERS = {
    "axis": [0, -1, (0, 1)], "axes": [0, (1, 0)], "keepdims": [True], "dtype": [np.float32, np.complex128,
    int], "out": ["result"],
    "where": [WHERE], "initial": [0.3], "casting": ["no", "same_kind", "unsafe"], "order": ["C", "F", "A"],
    "subok": [False, True],
    "copy": [False, True, None], "like": [A], "device": ["cpu"], "ddof": [1], "correction": [1, 0.5],
    "mean": [A.mean()],
    "weights": [abs(A)], "returned": [True], "method": QUANTILES, "overwrite_input": [True, False],
    "interpolation": ["lower"],
    "mode": MODES, "k": [1, -1], "offset": [1], "axis1": [1], "axis2": [0], "axisa": [0], "axisb": [0],
    "axisc": [0], "n": [1, 3, 6],
    "s": [(2, 3), (4, 6)], "norm": ["ortho", "forward", "backward"], "overwrite_x": [True],
    "overwrite_a": [True], "overwrite_b": [True],
    "check_finite": [False], "workers": [1], "plan": [], "optimize": [True, "optimal"], "fweights": [[1, 2, 1,
    3]],
    "aweights": [abs(A[0]) + 0.1], "rowvar": [False], "bias": [True], "equal_nan": [True, False],
    "rtol": [1e-3], "atol": [1e-3],
    "tol": [1e-3], "rcond": [1e-3, None, -1], "hermitian": [True], "full_matrices": [False],
    "compute_uv": [False], "UPLO": ["U"],
    "upper": [True], "lower": [True, False], "trans": [1, 2, "T"], "unit_diagonal": [True],
    "assume_a": ["gen", "sym", "her", "pos", "diagonal", "tridiagonal", "banded", "upper triangular",
    "lower triangular"],
    "transposed": [True], "eigvals_only": [True], "type": [2, 3], "subset_by_index": [[0, 1]],
    "subset_by_value": [[-1.0, 3.0]],
    "driver": ["ev", "evr"], "lapack_driver": ["gesvd"], "lwork": [100], "pivoting": [True],
    "return_rank": [True],
    "ord": [1, 2, np.inf, -np.inf, "fro", "nuc", 3, 2.5, 0, -1, -2], "p": [1, 2, np.inf, "fro", "nuc"],
    "disp": [False, True],
    "blocksize": [32], "kind": ["stable", "mergesort", "sort"], "stable": [True, False], "descending": [True],
    "return_index": [True],
    "return_inverse": [True], "return_counts": [True], "sorted": [True, False],
    "left": [0.3], "period": [3.0], "exact": [True], "extend": ["complex"], "q": [2.5],
    "prepend": [0.3, A[:, :1]], "append": [0.3, A[:, :1]], "to_end": [0.3, V], "to_begin": [0.3, V],
    "x": [RANGE], "dx": [0.5],
    "edge_order": [2], "r": [RANGE], "b": [SYMMETRIC], "return_sign": [True], "deg": [True], "nan": [0.7],
    "posinf": [0.7],
    "neginf": [0.7], "a_min": [-0.3], "a_max": [0.3], "min": [-0.3], "max": [0.3], "num": [4],
    "endpoint": [False], "retstep": [True],
    "base": [2.5, [2.0, 3.0]], "start": [1], "stop": [4.7], "step": [0.5], "N": [3], "M": [4],
    "increasing": [True], "sparse": [True],
    "indexing": ["ij"], "default": [0.7], "trim": ["f"], "ndmin": [3], "ndmax": [2], "requirements": ["C",
    "F"],
    "include_initial": [True], "max_work": [0], "assume_unique": [True], "invert": [True], "right": [True,
    0.4], "minlength": [7],
    "side": ["right"], "sorter": [np.arange(4)], "max_line_width": [40], "precision": [3],
    "suppress_small": [True], "separator": [";"],
    "prefix": [">"], "formatter": [{"float": str}], "threshold": [3], "edgeitems": [1], "sign": ["+"],
    "floatmode": ["fixed"],
    "suffix": ["<"], "legacy": ["1.13"], "einsum_call": [], "count": [1], "decimals": [2], "condition": [],
    "y": [A * 0.5], "ind": [1],
    "wrap": [True], "shape": [(2, 2)], "args": [], "kw": [], "kwargs": [], "varargs": [],
    "test_elements": [V], "constant_values": [0.3],
    "style": [], "newshape": [],  # before NumPy 2.4
    "end_values": [0.4], "stat_length": [2], "reflect_type": ["odd"],
    "strides": [(0, 8)], (np.lib.stride_tricks.as_strided, "shape"): [(2, 2)],
    (np.lib.stride_tricks.as_strided, "writeable"): [False],
    (np.lib.stride_tricks.sliding_window_view, "axis"): [(1, 0)], (np.lib.stride_tricks.sliding_window_view,
    "writeable"): [False],
    "check_bounds": [True],
    "bins": [RANGE], "xi": [], "fill": [], (np.bincount, "weights"): [V], (np.average, "weights"): [abs(A)],
    (np.quantile, "weights"): [abs(A)], (np.roll, "axis"): [0, 1], (np.flip, "axis"): [0, 1, (0, 1)],
    (scipy.special.logsumexp, "b"): [abs(A)], (np.where, "x"): [], (np.where, "y"): [], (np.einsum,
    "kwargs"): [],
    "range": [(-0.4, 0.6)], "density": [True], (np.histogram, "bins"): [4, RANGE, "auto"], (np.histogram,
    "weights"): [abs(A) + 0.1],
    (scipy.linalg.pinv, "atol"): [1e-3, 0.7], (scipy.linalg.pinv, "rtol"): [1e-3, 0.4],
    (np.cov, "y"): [A * 0.5 + A**2], (np.corrcoef, "y"): [A * 0.5 + A**2], (L.tensorsolve, "axes"): [(0,)],
    (np.squeeze, "axis"): [1],
    (scipy.linalg.eigh, "b"): [SQUARE @ SQUARE.T], (np.transpose, "axes"): [(1, 0)], (np.rot90, "axes"): [(1,
    0)],
    (scipy.linalg.eigvalsh, "b"): [SQUARE @ SQUARE.T], (np.tensordot, "axes"): [([1], [0]), ([0, 1], [1, 0])],
    (np.cross, "axis"): [0], (np.trim_zeros, "axis"): [0, -1],
    (np.diff, "n"): [2, 3], (np.cumulative_sum, "axis"): [0], (np.clip, "a_min"): [], (np.clip, "a_max"): [],
    (np.dsplit, "axis"): [], "d": [], "xp": [],
}  # fmt: skip


NOT_AS_DECLARED = {(np.array, "ndmax")}  # its default is not the number that the signature shows
if not NUMPY_24:  # takes other names of modes for these
    NOT_AS_DECLARED |= {(np.convolve, "mode"), (np.correlate, "mode")}


@dataclass
class Call:
    f: object
    args: tuple
    kwargs: dict = field(default_factory=dict)
    method: bool = False
    ufunc: str = ""

    def __repr__(self):
        given = ", ".join(
            f"{k}={v if not isinstance(v, np.ndarray) else 'array'}" for k, v in self.kwargs.items()
        )
        name = getattr(self.f, "__name__", str(self.f))
        module = (
            "ndarray"
            if self.method
            else (getattr(self.f, "__module__", None) or "numpy").replace("._", "!").split("!")[0]
        )
        return f"{module}.{self.ufunc + '.' if self.ufunc else ''}{name}({given})"


def required(f, signature):
    if f in ARGUMENTS:
        return ARGUMENTS[f]
    args = []
    for p in signature.parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            args += [A, A * 0.5]
        elif p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            args.append(REQUIRED[p.name])
    return tuple(args)


def others(f, name):
    return OTHERS[f, name] if (f, name) in OTHERS else OTHERS[name]


FACTS_OF_MEMORY = {np.shares_memory, np.may_share_memory}  # the judge copies what it gives


def is_late(ours):
    return declared_late(ours) or of_subpackage(ours)


def functions():
    found = [
        f
        for f, ours in NUMPY.items()
        if not isinstance(f, np.ufunc) and f not in FACTS_OF_MEMORY and not is_late(ours)
    ]
    return [
        f for f in found if not f.__name__.startswith(("save", "assert_", "format_float"))
    ]  # they write, or give text


def calls():
    """Every function of the registry that is no ufunc, with each keyword at its default and at other
    values."""
    for f in functions():
        signature = signature_of(f)
        args = required(f, signature)
        yield Call(f, args)
        for n, p in enumerate(signature.parameters.values()):
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) or (
                n < len(args) and p.kind is not p.KEYWORD_ONLY
            ):
                continue
            for value in [] if (f, p.name) in NOT_AS_DECLARED else [p.default, *others(f, p.name)]:
                yield Call(f, args, {p.name: value})


U = np.array([[0.31, 0.52, 0.74], [0.22, 0.43, 0.67]])
DOMAIN = {
    np.arccosh: (U + 1,),
    scipy.special.ndtri_exp: (-U - 0.1,),
    np.sign: (U - 0.5,),
    np.isnat: ARGUMENTS[np.isnat],
}
KEEP = np.array([[True, False, True], [False, True, True]])
DTYPES = (np.float32, np.float64, np.complex128, int, bool)


def ufunc_calls():
    """Every ufunc of the registry, with each keyword of ufuncs; its methods with theirs."""
    for f, ours in NUMPY.items():
        if not isinstance(f, np.ufunc) or is_late(ours):
            continue
        args = ARGUMENTS.get(f) or DOMAIN.get(f) or tuple([U + 0.057 * k for k in range(f.nin)])
        yield Call(f, args)
        given = [
            dict(out="result"),
            dict(casting="unsafe"),
            dict(casting="no"),
            dict(order="C"),
            dict(subok=False),
        ]
        given += [dict(dtype=d) for d in DTYPES] + [
            dict(dtype=np.float32, casting="unsafe"),
            dict(dtype=int, casting="unsafe"),
        ]
        given += (
            [dict(axis=-1), dict(keepdims=True), dict(axes=[-1, -1, ()])]
            if f.signature
            else [dict(out="result", where=KEEP)]
        )
        if f.__name__ in dir(scipy.special):  # where= makes some of SciPy's own write beyond their memory
            given = [g for g in given if "where" not in g]
        yield from [Call(f, args, g) for g in given]
        if f.signature or f.nin != 2 or f.nout != 1:
            continue
        for name, more in (
            ("reduce", ()),
            ("accumulate", ()),
            ("reduceat", ([0, 2],)),
            ("outer", (args[-1],)),
        ):
            method = getattr(f, name)
            yield Call(method, (args[0], *more), ufunc=f.__name__)
            given = [dict(dtype=np.float32), dict(out="result")] + (
                [] if name == "outer" else [dict(axis=0), dict(axis=1)]
            )
            if name == "reduce":
                given += [dict(axis=(0, 1)), dict(keepdims=True), dict(initial=0.7)]
                given += (
                    []
                    if f.__name__ in dir(scipy.special)
                    else [dict(where=KEEP), dict(where=KEEP, initial=0.3)]
                )
            yield from [Call(method, (args[0], *more), g, ufunc=f.__name__) for g in given]


# Required arguments of the methods of ndarray.
METHODS = {
    "astype": (np.float32,), "choose": ([V[:4], V[:4] * 2, V[:4], V[:4], V[:4]],), "compress": ([True, False,
    True],), "dot": (A.T,),
    "argpartition": (1,), "partition": (1,), "put": ([1, 2], [0.5, 0.7]), "repeat": (2,), "reshape": (4, 3),
    "searchsorted": (V,),
    "swapaxes": (0, 1), "take": ([0, 2],), "fill": (0.7,), "resize": (2, 6), "item": (0,), "setfield": (0.3,
    float), "getfield": (float,),
    "to_device": ("cpu",), "view": (), "dump": ("",), "tofile": ("",),
}  # fmt: skip
CHANGED = {
    "fill",
    "put",
    "sort",
    "partition",
    "resize",
    "byteswap",
    "setfield",
}  # the array itself is the result
MORE = ("stream", "inplace", "refcheck", "kwargs", "args", "shape", "axes", "new_shape")
LEFT_OUT = {
    "setflags",
    "dump",
    "dumps",
    "tofile",
    "tobytes",
    "choose",
}  # `choose` is a method of arrays of integers


def method_of(name):
    def run(a, *args, **kwargs):
        y = getattr(a, name)(*args, **kwargs)
        return a if name in CHANGED else y

    run.__name__ = name
    return run


def method_calls():
    """Every method of ndarray, with each of its keywords by name, and by place where NumPy takes it so."""
    for name in dir(np.ndarray):
        method = getattr(np.ndarray, name)
        if name.startswith("_") or name in LEFT_OUT or not callable(method):
            continue
        run = method_of(name)
        start = (
            RANGE
            if name == "searchsorted"
            else INTS[:4]
            if name == "choose"
            else A[:1]
            if name == "squeeze"
            else A,
        )
        args = (*start, *METHODS.get(name, ()))
        yield Call(run, args, method=True)
        try:
            params = list(inspect.signature(method).parameters.values())
        except ValueError:  # NumPy before 2.4 does not tell those of methods
            continue
        kind = getattr(np, name, None)
        more = [
            n
            for n in ("keepdims", "initial", "where")
            if name in ("max", "min", "sum", "prod", "mean", "std", "var")
        ]
        more += ["mean"] if name in ("std", "var") else []
        for n in [p.name for p in params[len(args) :]] + more:
            for value in others(kind, n) if n not in MORE else []:
                yield Call(run, args, {n: value}, method=True)
        for n, p in enumerate(params):
            placed = n >= len(args) and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            if placed and not {p.name, name} & {*MORE, "out", "all", "any"}:
                given = [q.default for q in params[len(args) : n]]
                yield from [Call(run, (*args, *given, v), method=True) for v in others(kind, p.name)]


# --- the judge ---


def floats(x):
    """The float arrays and numbers in nested arguments, in order."""
    if isinstance(x, (list, tuple)):
        return [v for e in x for v in floats(e)]
    if isinstance(x, dict):
        return [v for e in x.values() for v in floats(e)]
    return (
        [x]
        if isinstance(x, (float, np.floating)) or isinstance(x, np.ndarray) and x.dtype.kind in "fc"
        else []
    )


def alone(call):
    """Each float argument tracked alone; of a method, beside the array itself."""
    return [[0, k] if call.method and k else [k] for k in range(len(floats((call.args, call.kwargs))))]


def rebuilt(x, values):
    if isinstance(x, (list, tuple)):
        return type(x)([rebuilt(e, values) for e in x])
    if isinstance(x, dict):
        return {k: rebuilt(e, values) for k, e in x.items()}
    if floats(x):
        x = next(values)
    return x.copy() if isinstance(x, np.ndarray) else x


def members(y):
    return [v for e in y for v in members(e)] if isinstance(y, (tuple, list)) else [y]


def results(call, y):
    """The members of a result, without what is a matter of choice."""
    if call.f is scipy.linalg.cho_factor:
        y = (np.tril if y[1] else np.triu)(y[0])
    return [CHOSEN[call.f](v) if call.f in CHOSEN and is_array(tg.value(v)) else v for v in members(y)]


def is_float(y):
    return (is_array(y) or isinstance(y, np.generic)) and y.dtype.kind in "fc" or type(y) in (float, complex)


def run(call, f, args, kwargs, zeros):
    if call.f in IN_PLACE and not call.method:
        args = (args[0].copy(), *args[1:])
    if isinstance(kwargs.get("out"), tuple) or isinstance(kwargs.get("out"), list):
        outs = [zeros(s, d) for s, d in kwargs["out"]]
        kwargs = {**kwargs, "out": outs[0] if len(outs) == 1 else tuple(outs)}
    y = f(*args, **kwargs)
    return args[0] if call.f in IN_PLACE and not call.method else y


class Host:
    """Where a call runs: on NumPy's arrays."""

    zeros, faced_zeros = staticmethod(np.zeros), staticmethod(tg.numpy.zeros)
    put = take = staticmethod(lambda x: x)

    @staticmethod
    def function(call):
        return call.f

    @staticmethod
    def face(call):
        return call.f if call.method or call.ufunc else face(call.f)


class Device:
    """The same call by CuPy's function of that name, on CuPy's arrays; what it gives is looked at on the
    host."""

    MODULES = {"numpy": "cupy", "scipy": "cupyx.scipy"}

    def __init__(self, cupy):
        self.cupy, self.zeros, self.faced_zeros = cupy, cupy.zeros, face(cupy.zeros, np.zeros)

    def function(self, call):
        """CuPy's function, or None."""
        if call.method:
            return call.f if hasattr(self.cupy.ndarray, call.f.__name__) else None
        if call.ufunc:
            return None
        for home, theirs in self.MODULES.items():
            module = (getattr(call.f, "__module__", None) or home).partition("._")[0]
            module = (
                "scipy.special" if call.f in SPECIAL else "numpy" if isinstance(call.f, np.ufunc) else module
            )
            if module.split(".")[0] == home:
                with contextlib.suppress(ImportError):
                    return getattr(
                        importlib.import_module(theirs + module[len(home) :]), call.f.__name__, None
                    )
        return None

    def face(self, call):
        return call.f if call.method else face(self.function(call), call.f)

    def put(self, x):
        if isinstance(x, (list, tuple)):
            return type(x)([self.put(e) for e in x])
        if isinstance(x, dict):
            return {k: self.put(v) for k, v in x.items()}
        return self.cupy.asarray(x) if isinstance(x, np.ndarray) and x.dtype.kind in "fcbiu" else x

    def take(self, x):
        if isinstance(x, (list, tuple)):
            return (
                type(x)([self.take(e) for e in x])
                if type(x) in (list, tuple)
                else tuple([self.take(e) for e in x])
            )
        return x.get() if is_array(x) and not isinstance(x, np.ndarray) else x


SPECIAL = {f for f in vars(scipy.special).values() if isinstance(f, np.ufunc)}


def plain_result(call, values=None, where=Host):
    args, kwargs = rebuilt(
        (call.args, call.kwargs), iter(floats((call.args, call.kwargs)) if values is None else values)
    )
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return where.take(run(call, where.function(call), where.put(args), where.put(kwargs), where.zeros))


def given_out(call, where=Host):
    """out= of the right shape and dtype."""
    if call.kwargs.get("out") == "result":
        y = members(
            plain_result(
                Call(call.f, call.args, {k: v for k, v in call.kwargs.items() if k != "out"}, call.method),
                None,
                where,
            )
        )
        call.kwargs = {**call.kwargs, "out": [(np.shape(v), np.asarray(v).dtype) for v in y]}


# Vectors whose sign is a matter of choice are compared by their moduli, a triangle that nobody reads is left
# out.
CHOSEN = {
    np.linalg.eigh: abs, scipy.linalg.eigh: abs, np.linalg.svd: abs, scipy.linalg.svd: abs,
    np.empty: np.zeros_like,
    np.empty_like: np.zeros_like,
}  # fmt: skip
SYMMETRISED = {
    np.linalg.cholesky, scipy.linalg.cholesky, scipy.linalg.cho_factor, np.linalg.eigh, np.linalg.eigvalsh,
    scipy.linalg.eigh,
    scipy.linalg.eigvalsh,
}  # fmt: skip
REFUSED = (TapegradError,)
ORDINARY = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


def judge(call, tracked=None, eps=1e-6, where=Host):
    """'right', 'refused' (an error of tapegrad's own, or the plain call's), or what is wrong.  `tracked`: which of the float
    arguments are watched.  What a device's library refuses is compared with NumPy's, and so is
    a `dtype=` by which CuPy picks the first loop with that result, whatever becomes of the operand
    (`cupyx.scipy.special.log1p(x, dtype=float)` may compute with booleans)."""
    theirs, expected = where.face(call), None
    for judged in dict.fromkeys((where, Host)):
        try:
            given_out(call, judged)
            plain = plain_result(call, None, judged)
            break
        except Exception as error:
            expected, plain = expected or error, None
    else:
        judged = None
    values = floats((call.args, call.kwargs))
    tracked = range(len(values)) if tracked is None else tracked
    x0 = [where.put(values[k]) for k in tracked]
    seen = []

    def g(*xs):
        now = list(values)
        for k, x in zip(tracked, xs, strict=True):
            now[k] = x
        args, kwargs = rebuilt((call.args, call.kwargs), iter(now))
        y = run(call, theirs, where.put(args), where.put(kwargs), where.faced_zeros)
        seen[:] = results(call, y)
        return tuple([v + 0.0 for v in seen if is_float(tg.value(v))])

    rng = np.random.default_rng(7)
    directions = [
        np.asarray(rng.standard_normal(np.shape(values[k])), np.asarray(values[k]).dtype)[()] for k in tracked
    ]
    if call.f in SYMMETRISED or call.kwargs.get("assume_a") == "pos" or call.kwargs.get("hermitian"):
        directions = [d + d.T if np.ndim(d) == 2 and len(d) == len(d.T) else d for d in directions]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if x0:
                _, ts = tg.jvp(tg.Const(g), tuple(x0), where.put(tuple(directions)))
            else:
                tg.jvp(tg.Const(lambda x: (g(), x)[1]), (1.0,), (1.0,))
                ts = ()
            ours = where.take([tg.value(v) for v in seen])
    except REFUSED as error:
        return f"refused: {type(error).__name__}: {error}"
    except Exception as error:
        if isinstance(error.__cause__, REFUSED):
            return f"refused: {type(error.__cause__).__name__}: {error.__cause__}"
        if expected is not None and isinstance(error, (*ORDINARY, NotImplementedError)):
            return "refused: as the plain call"
        if where is not Host and isinstance(error, ORDINARY):
            return "refused: as by NumPy"
        return f"WRONG: {type(error).__name__}: {error}" + (
            f" (plain: {type(expected).__name__}: {expected})" if expected else ""
        )
    if judged is None:
        return f"WRONG: the plain call raises {type(expected).__name__}: {expected}"
    problem = problem_of(ours, results(call, plain), call, where)
    if problem is not None and judged is not Host and "dtype" in call.kwargs:
        judged = Host
        problem = problem_of(ours, results(call, plain_result(call)), call, where)
    if problem is not None:
        return f"WRONG: {problem}"
    if not x0:
        return "right"
    return (
        derivative_problem(call, g, values, tracked, x0, directions, where.take(ts), eps, where, judged)
        or "right"
    )


def problem_of(ours, wanted, call, where):
    if len(ours) != len(wanted):
        return f"{len(ours)} results for {len(wanted)}"
    return next(
        (p for a, b in zip(ours, wanted, strict=True) if (p := different(a, b, call, where)) is not None),
        None,
    )


def different(a, b, call, where):
    if isinstance(b, (np.ndarray, np.generic, float, int, complex)) and not isinstance(b, (bool, np.bool_)):
        if np.shape(a) != np.shape(b):
            return f"shape {np.shape(a)} for {np.shape(b)}"
        if (
            where is Host
            and isinstance(a, np.ndarray) != isinstance(b, np.ndarray)
            and isinstance(b, (np.ndarray, np.generic))
        ):
            return f"{type(a)} for {type(b)}"
        if np.asarray(a).dtype != np.asarray(b).dtype:
            return f"dtype {np.asarray(a).dtype} for {np.asarray(b).dtype}"
        rtol = 1e-4 if np.asarray(b).dtype.itemsize < 8 and is_float(b) else 1e-10
        if not np.allclose(a, b, rtol=rtol, atol=rtol * 1e-2, equal_nan=is_float(b)):
            return f"value {a} for {b}"
        return None
    same = (
        np.array_equal(a, b)
        if isinstance(b, np.ndarray)
        else type(a) is type(b) and (a == b or isinstance(b, type) and a is b)
    )
    return None if same else f"{a!r} for {b!r}"


def derivative_problem(call, g, values, tracked, x0, directions, ts, eps, where, judged):
    def moved(h):
        now = list(values)
        for k, d in zip(tracked, directions, strict=True):
            x = values[k]
            now[k] = x + h * d if not isinstance(x, float) else float(x + h * d)
        return [np.asarray(v) for v in results(call, plain_result(call, now, judged)) if is_float(v)]

    single = any(
        np.asarray(v).dtype.itemsize < 8
        for v in results(call, plain_result(call, None, judged))
        if is_float(v)
    )
    h, close = (1e-3, dict(rtol=2e-2, atol=2e-2)) if single else (eps, dict(rtol=1e-5, atol=1e-7))
    high, low = moved(h), moved(-h)
    for t, a, b in zip(ts, high, low, strict=True):
        d = (a - b) / (2 * h)
        if np.shape(d) == np.shape(t) and not np.allclose(np.asarray(t), d, **close, equal_nan=True):
            return f"WRONG: tangent {np.asarray(t)} for {d}"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            ys, pull = tg.vjp(tg.Const(g), *x0)
            rng = np.random.default_rng(8)
            ws = [np.asarray(rng.standard_normal(np.shape(y)), where.take(y).dtype)[()] for y in ys]
            cs = where.take(pull(where.put(tuple(ws))) if ys else [0.0 * x for x in x0])
        except REFUSED as error:
            return f"refused in reverse: {type(error).__name__}: {error}"
        except Exception as error:
            return f"WRONG in reverse: {type(error).__name__}: {error}"
    cs = cs if isinstance(cs, (tuple, list)) else (cs,)
    left = sum(np.real(np.vdot(w, t)) for w, t in zip(ws, ts, strict=True)) if ys else 0.0
    right = sum(np.real(np.vdot(c, d)) for c, d in zip(cs, directions, strict=True))
    if np.isfinite(left) and not np.isclose(
        left, right, rtol=1e-3 if single else 1e-8, atol=1e-4 if single else 1e-9
    ):
        return f"WRONG: cotangents give {right}, tangents {left}"
    return None
