"""The functions of cupyx.scipy whose kernels are written in CUDA and compiled for the device, done by SciPy's
of the same name.

Each takes what CuPy's takes: numbers, settings and CuPy arrays, no array of the host but where CuPy converts
it (`asarray`)."""

import functools
import importlib
import inspect

import cupy
import cupyx.scipy.sparse.linalg
import numpy as np
import scipy.signal
import scipy.sparse.linalg

from ..._core.trees import nested
from .kernels import host_view, to_device
from .runtime import count_kernel

NAMES = {
    "signal": """symiirorder1 symiirorder2 cspline1d qspline1d cspline2d qspline2d spline_filter cspline1d_eval
        qspline1d_eval find_peaks peak_prominences peak_widths upfirdn order_filter medfilt medfilt2d sepfir2d
        firwin resample_poly decimate""",
    "signal.windows": "kaiser general_cosine general_hamming hann hamming blackman get_window",
    "ndimage": """correlate1d convolve1d correlate convolve spline_filter1d spline_filter map_coordinates affine_transform shift zoom rotate
        maximum_filter minimum_filter maximum_filter1d minimum_filter1d median_filter percentile_filter rank_filter uniform_filter1d
        gaussian_filter1d label""",
    "fft": "dct idct dst idst dctn idctn dstn idstn",
}
SPARSE = "spsolve spsolve_triangular lsqr lsmr eigsh svds lobpcg cg cgs gmres bicgstab minres"
CONVERSIONS = "tocsr tocsc tocoo toarray"
CLASSES = {
    "spatial": "Delaunay KDTree",
    "interpolate": "NearestNDInterpolator CloughTocher2DInterpolator UnivariateSpline",
}
RENAMED = {"a": "A", "tol": "rtol", "input": "signal"}  # parameters of CuPy's, and their names in SciPy
TYPES = "Only {}-II and {}-III have been implemented."


@nested
def on_host(x):
    if isinstance(x, cupy.ndarray):
        return host_view(x)
    if cupyx.scipy.sparse.issparse(x):
        where = {"coo": ("row", "col"), "dia": ("offsets",)}.get(x.format, ("indices", "indptr"))
        where = [host_view(getattr(x, name)) for name in where]
        given = (host_view(x.data), tuple(where)) if x.format == "coo" else (host_view(x.data), *where)
        return getattr(scipy.sparse, type(x).__name__)(given, shape=x.shape)
    if isinstance(x, cupyx.scipy.sparse.linalg.LinearOperator):
        products = [functools.partial(product, x, name) for name in ("matvec", "rmatvec", "matmat")]
        return scipy.sparse.linalg.LinearOperator(x.shape, *products, dtype=x.dtype)
    return x


def product(operator, name, v):
    return host_view(getattr(operator, name)(to_device(v)))


@nested
def on_device(x):
    if isinstance(x, np.ndarray):
        return to_device(x)
    if scipy.sparse.issparse(x):
        return getattr(cupyx.scipy.sparse, type(x).__name__)(x)
    return x


def as_cupys(real, theirs):
    """SciPy's function with the parameters of CuPy's: their names, their order, no others."""
    signature, known = inspect.signature(theirs), inspect.signature(real).parameters

    def called(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        return real(**{n if n in known else RENAMED[n]: v for n, v in given.items()})

    return functools.wraps(theirs)(called)


def hosted(real):
    @functools.wraps(real)
    def run(*args, **kwargs):
        count_kernel()
        output = kwargs.pop("output", None)
        if real.__name__[:3] in ("dct", "dst") and kwargs.get(
            "type", args[1] if len(args) > 1 else 2
        ) not in (2, 3):
            raise NotImplementedError(TYPES.replace("{}", real.__name__[:3].upper()))  # (as CuPy has it)
        with np.errstate(all="ignore"):
            found = on_device(real(*on_host(args), **on_host(kwargs)))
        if isinstance(output, cupy.ndarray):
            output[...] = found
            return output
        return found if output is None else found.astype(output)

    return run


def hosted_class(real, name=None):
    """A class whose objects are called: those of SciPy's within."""

    class Hosted:
        def __init__(self, *args, **kwargs):
            count_kernel()
            self._real = real(*on_host([getattr(x, "_real", x) for x in args]), **on_host(kwargs))

        def __call__(self, *args, **kwargs):
            return on_device(self._real(*on_host(args), **on_host(kwargs)))

        def __getattr__(self, name):
            found = getattr(self._real, name)
            return hosted(found) if callable(found) else on_device(found)

    Hosted.__name__ = Hosted.__qualname__ = name or real.__name__
    Hosted.__module__ = f"cupyx.{real.__module__}"
    return Hosted


def conversion(name):
    def run(self, *args, **kwargs):
        return on_device(getattr(on_host(self), name)(*args, **kwargs))

    return run


def times(self, other):
    return on_device(on_host(self) @ on_host(other))


Factors = hosted_class(scipy.sparse.linalg.splu, "SuperLU")


def splu(A, *args, **kwargs):
    return Factors(A, *args, **kwargs)


def lfilter(b, a, x, axis=-1, zi=None):
    """The state is CuPy's: the last inputs, then the last outputs."""
    b, a, x = map(on_host, (b, a, x))
    count_kernel()
    if zi is None:
        return to_device(scipy.signal.lfilter(b, a, x, axis))
    m = len(b) - 1
    past = np.moveaxis(host_view(zi), axis, -1)
    start = lambda z: scipy.signal.lfiltic(b / a[0], a / a[0], z[m:][::-1], z[:m][::-1])
    y = scipy.signal.lfilter(b, a, x, axis, np.moveaxis(np.apply_along_axis(start, -1, past), -1, axis))[0]
    last = [np.moveaxis(v, axis, -1)[..., v.shape[axis] + 1 - len(c) :] for v, c in ((x, b), (y, a))]
    return to_device(y), to_device(np.moveaxis(np.concatenate(last, -1), -1, axis))


def lfilter_zi(b, a):
    b, a = on_host(b), on_host(a)
    return to_device(np.concatenate([np.ones(len(b) - 1), np.full(len(a) - 1, b.sum() / a.sum())]))


def sosfilt(sos, x, axis=-1, zi=None):
    ends = []
    for k, row in enumerate(sos):
        x = lfilter(row[:3], row[3:], x, axis, None if zi is None else zi[k])
        x, end = x if zi is not None else (x, None)
        ends.append(end)
    return x if zi is None else (x, cupy.stack(ends))


def sosfilt_zi(sos):
    scale, rows = 1.0, []
    for row in on_host(sos):
        gain = row[:3].sum() / row[3:].sum()
        rows.append(scale * np.array([1.0, 1.0, gain, gain]))
        scale *= gain
    return to_device(np.stack(rows))


OWN = {"cupyx.scipy.signal": (lfilter, lfilter_zi, sosfilt, sosfilt_zi)}


def trim_zeros(filt, trim="fb"):
    return to_device(np.trim_zeros(host_view(filt), trim))


class Descriptor:
    """What cuSPARSE is told of a matrix: nothing here."""

    @classmethod
    def create(cls):
        return cls()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args: None


def dot_convolve(a1, a2, mode):
    return to_device(np.convolve(host_view(a1), host_view(a2), mode))


def scipys():
    """(module of CuPy's, name, what stands for it)"""
    for space, names in NAMES.items():
        theirs, real = [importlib.import_module(f"{root}scipy.{space}") for root in ("cupyx.", "")]
        for name in names.split():
            if hasattr(theirs, name):
                ours, given = getattr(real, name), getattr(theirs, name)
                yield theirs, name, hosted(ours if inspect.isbuiltin(ours) else as_cupys(ours, given))
    for space, names in CLASSES.items():
        theirs, real = [importlib.import_module(f"{root}scipy.{space}") for root in ("cupyx.", "")]
        for name in names.split():
            yield theirs, name, hosted_class(getattr(real, name))
    theirs = cupyx.scipy.sparse.linalg
    for name in SPARSE.split():
        yield theirs, name, hosted(as_cupys(getattr(scipy.sparse.linalg, name), getattr(theirs, name)))
    yield cupyx.scipy.sparse.linalg, "splu", splu
    for form in ("csr", "csc", "coo"):
        for name in CONVERSIONS.split():
            setattr(getattr(cupyx.scipy.sparse, f"{form}_matrix"), name, conversion(name))
        getattr(cupyx.scipy.sparse, f"{form}_matrix")._matmul_dispatch = times
    yield importlib.import_module("cupyx.cusparse"), "MatDescriptor", Descriptor
    for space, functions in OWN.items():
        for f in functions:
            yield importlib.import_module(space), f.__name__, f
    yield cupy, "trim_zeros", trim_zeros
    yield cupy._math.misc, "_dot_convolve", dot_convolve
