"""CuPy's own names: functions that were long in coming, calls by CuPy's parameters, kernels of the user's,
cupyx."""

import functools
import importlib
import re

import keyword_calls
import numpy as np
import pytest
import scipy.special as sp

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.errors import NoRuleError
from tapegrad.testing import check_grads
from tapegrad.testing.hosted import real_device

pytestmark = pytest.mark.cupy_only

X = np.array([[0.3, 1.1, 0.8], [0.7, 0.4, 1.6]])
SQUARE = np.array([[0.4, 1.1, -0.3], [-1.2, 0.5, 0.8], [0.2, -0.7, 0.9]])  # (two eigenvalues are complex)


def special(xp):
    return sp if xp is np else importlib.import_module("cupyx.scipy.special")


# name -> (f(library, its special functions, x), x): compared with NumPy, where the derivative is compared
# with differences elsewhere
CALLS = {
    "sici": (lambda xp, s, x: s.sici(x)[0] * s.sici(x)[1], X),
    "shichi": (lambda xp, s, x: s.shichi(x)[0] * s.shichi(x)[1], X),
    "lambertw": (lambda xp, s, x: abs(s.lambertw(x)), X),
    "yn": (lambda xp, s, x: s.yn(0, x) + s.yn(2, x), X + 0.5),
    "spherical_yn": (lambda xp, s, x: s.spherical_yn(2, x) + s.spherical_yn(0, x), X + 0.5),
    "sph_harm_y": (lambda xp, s, x: s.sph_harm_y(3, -2, x, x * x).real + abs(s.sph_harm_y(2, 2, x, x)), X),
    "bdtr": (lambda xp, s, x: s.bdtr(2, 5, x / 2) + s.pdtr(2, x) + s.nbdtrc(2, 5, x / 2), X),
    "expn": (lambda xp, s, x: s.expn(2, x) * s.polygamma(1, x), X),
    "wright_bessel": (lambda xp, s, x: s.wright_bessel(x, x + 0.3, x + 0.2), X),
    "lpmv": (lambda xp, s, x: s.lpmv(1, 3, x / 2), X),
    "ellipk": (lambda xp, s, x: s.ellipk(x / 2) * s.ellipkm1(x / 2), X),
    "poly": (lambda xp, s, x: xp.poly(x[0]) * 1.3, X),
    "poly of a matrix": (lambda xp, s, x: xp.poly(x), SQUARE),
    "roots": (lambda xp, s, x: xp.sort(abs(xp.roots(x.ravel()))), X),
    "eigvals": (lambda xp, s, x: abs(xp.linalg.eigvals(x) + 0.3), SQUARE),
    "eig": (lambda xp, s, x: abs(xp.linalg.eig(x)[1] ** 2 + 0.3), SQUARE),
    "histogramdd": (lambda xp, s, x: xp.histogramdd(xp.asarray(X.T), bins=2, weights=x[0])[0], X),
    "histogram2d": (lambda xp, s, x: xp.histogram2d(x[0], x[1], bins=2)[1], X),
    "setxor1d": (lambda xp, s, x: xp.setxor1d(x[0], x[1, :2]), X),
    "asarray_chkfinite": (lambda xp, s, x: xp.asarray_chkfinite(x) ** 2, X),
    "apply_along_axis": (lambda xp, s, x: xp.apply_along_axis(lambda r: (r * r).sum(), 1, x), X),
    "apply_over_axes": (lambda xp, s, x: xp.apply_over_axes(xp.sum, x * x, (0, 1)), X),
    "kaiser": (lambda xp, s, x: xp.kaiser(5, x[0, 0] * 3), X),
    "r_": (lambda xp, s, x: xp.r_[x[0], 1.0, x[1] ** 2], X),
    "c_": (lambda xp, s, x: xp.c_[x[0], x[1] ** 2], X),
}


def of(name, xp):
    f, _ = CALLS[name]
    return lambda x: (f(xp, special(xp), x) ** 2).sum()


@functools.cache
def by_numpy(name):
    f, x = of(name, np), CALLS[name][1]
    return tg.value_and_grad(f)(x), tg.hvp(f, x, np.cos(x))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CALLS)
def test_derivatives_are_numpys(xp, name):
    x = xp.asarray(CALLS[name][1])
    f = of(name, xp)
    (value, gradient), along = by_numpy(name)
    got, slope = tg.value_and_grad(f)(x)
    assert isinstance(slope, xp.ndarray)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-11)
    close(got.get(), value, rtol=1e-6 if name == "kaiser" else 1e-11)  # (CuPy's own is of single precision)
    close(slope.get(), gradient)
    close(tg.jvp(f, (x,), (xp.cos(x),))[1].get(), (gradient * np.cos(CALLS[name][1])).sum())
    close(tg.hvp(f, x, xp.cos(x)).get(), along)


def test_equal_eigenvalues_give_nan(xp):
    """To look at them would wait for the device."""
    assert np.isnan(tg.grad(lambda a: abs(xp.linalg.eigvals(a)).sum())(xp.eye(2)).get()).all()


# --- CuPy's parameters ---

BY_CUPYS = {
    "stack": lambda cp, x: cp.stack(tup=[x, x * x]),
    "concatenate": lambda cp, x: cp.concatenate(tup=(x, x * x), axis=1),
    "flip": lambda cp, x: cp.flip(a=x * x, axis=1),
    "reshape": lambda cp, x: cp.reshape(x * x, newshape=(3, 2)),
    "cov": lambda cp, x: cp.cov(a=x),
    "delete": lambda cp, x: cp.delete(x * x, indices=1, axis=1),
    "extract": lambda cp, x: cp.extract(x > 0.5, a=x * x),
    "matrix_power": lambda cp, x: cp.linalg.matrix_power(M=x[:, :2], n=2),
    "array": lambda cp, x: cp.array(x * x, None, True, "C", False, 3),
    "histogramdd": lambda cp, x: cp.histogramdd(cp.asarray(X.T), 2, None, x[0])[
        0
    ],  # (NumPy's fourth is density)
    "histogram2d": lambda cp, x: cp.histogram2d(cp.asarray(X[0]), cp.asarray(X[1]), 2, None, x[0])[0],
    "take_along_axis": lambda cp, x: cp.take_along_axis(
        a=x * x, indices=cp.asarray([[0, 2], [1, 1]]), axis=1
    ),
    "trapz": lambda cp, x: cp.trapz(x * x),
    "product": lambda cp, x: cp.product(x, axis=0),
    "btdtr": lambda cp, x: special(cp).btdtr(x, x + 0.3, x / 2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BY_CUPYS)
def test_parameters_are_cupys(xp, name):
    f = functools.partial(BY_CUPYS[name], xp)
    check_grads(f, (xp.asarray(X),), order=1)
    assert (tg.value_and_grad(lambda x: f(x).sum())(xp.asarray(X))[0] == f(xp.asarray(X)).sum()).get()


def test_defaults_are_cupys(xp):
    """An index beyond the end is wrapped by `cupy.put`, and an error in NumPy."""

    def f(x):
        y = x * 2.0
        xp.put(y, [1, 8], x[0, :2] * 3.0)
        return y

    assert (tg.value_and_grad(lambda x: f(x).sum())(xp.asarray(X))[0] == f(xp.asarray(X)).sum()).get()
    with pytest.raises(TypeError, match=r"stack\(\)"):
        tg.grad(lambda x: xp.stack(arrays=[x, x]).sum())(xp.asarray(X))


# --- cupyx ---


def extremes(scatter, xp, x, y):
    out = x * 1.0
    scatter(out, xp.asarray([0, 1, 1, 1]), y * y)
    return out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_scatter(xp, name):
    """Repeated indices too; equal ones share the derivative of the largest, as those of `maximum` do."""
    cupyx = importlib.import_module("cupyx")
    scatter = getattr(cupyx, f"scatter_{name}")
    at = {"add": np.add, "max": np.maximum, "min": np.minimum}[name].at
    x, y = np.array([0.4, -0.2, 1.0]), np.array([0.5, 0.1, -0.9, 0.9])
    f, g = functools.partial(extremes, at, np), functools.partial(extremes, scatter, xp)
    want = tg.vjp(f, x, y)[1](np.array([1.0, 2.0, 3.0]))
    got = tg.vjp(g, xp.asarray(x), xp.asarray(y))[1](xp.asarray([1.0, 2.0, 3.0]))
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b.get())
    if name == "max":  # 0.81 is brought twice
        np.testing.assert_allclose(want[1], [0.0, 0.0, -0.9 * 2, 0.9 * 2])
    y = np.array([0.5, 0.1, -0.9, 0.8])
    check_grads(f, (x, y), order=2)
    if name == "add" or not real_device():  # there CuPy's own extremes are rounded to single precision
        check_grads(g, (xp.asarray(x), xp.asarray(y)), order=2)
    stacks = np.stack([x, 0.7 * x]), np.stack([y, 0.7 * y])
    np.testing.assert_array_equal(tg.vmap(f)(*stacks), [f(*[s[k] for s in stacks]) for k in range(2)])


def test_rsqrt(xp):
    cupyx = importlib.import_module("cupyx")
    check_grads(lambda x: cupyx.rsqrt(x), (xp.asarray(X),), order=2)


def test_cupyx_linalg(xp):
    cupyx, a = importlib.import_module("cupyx"), SQUARE @ SQUARE.T + np.eye(3)
    of = lambda inv: tg.grad(lambda a: (inv(a) ** 2).sum())
    np.testing.assert_allclose(
        of(lambda a: cupyx.linalg.invh(a))(xp.asarray(a)).get(), of(np.linalg.inv)(a), rtol=1e-10
    )
    solve = lambda a: cupyx.linalg.cho_solve((xp.linalg.cholesky(a), True), xp.asarray(X.T))
    want = of(lambda a: np.linalg.solve(a, X.T))(a)
    np.testing.assert_allclose(of(solve)(xp.asarray(a)).get(), 0.5 * (want + want.T), rtol=1e-10)


def test_a_function_that_cupy_gave_the_name_of_another(xp):
    from cupyx.scipy.special import ellipk

    got = tg.value_and_grad(lambda x: ellipk(x / 2).sum())(xp.asarray(X))
    want = tg.value_and_grad(lambda x: sp.ellipk(x / 2).sum())(X)
    np.testing.assert_allclose(got[0].get(), want[0], rtol=1e-14)
    np.testing.assert_allclose(got[1].get(), want[1], rtol=1e-12)
    from cupy.linalg import cross  # it calls itself linalg_cross

    check_grads(cross, (xp.asarray(X), xp.asarray(X[::-1] ** 2)), order=1)
    with pytest.raises(NoRuleError, match="sph_harm"):
        tg.grad(lambda x: special(xp).sph_harm(1, 2, x, x).real.sum())(xp.asarray(X))


# --- kernels of the user's ---


def kernels(cp):
    cupyx = importlib.import_module("cupyx")
    jit = importlib.import_module("cupyx.jit")

    def no_barrier(x):
        jit.syncwarp()

    return {
        "ReductionKernel squares": (
            cp.ReductionKernel("T x", "T y", "x * x", "atomic(a, b)", "y = a", "0", "squares"),
            "cupy's functions",
        ),
        "ElementwiseKernel square": (
            cp.ElementwiseKernel("T x", "T y", "complex<T> z = x; y = x * x", "square"),
            "tapegrad.kernels.map",
        ),
        "RawKernel f": (
            cp.RawKernel('template <class T> extern "C" __global__ void f(double* x) {}', "f"),
            "tapegrad.kernels.raw",
        ),
        "vectorize": (cp.vectorize(lambda x: x * x, otypes="d"), "tapegrad.kernels.map"),
        "GeneralizedUFunc": (cupyx.GeneralizedUFunc(lambda a: a * 2, "(i)->(i)"), "cupy's functions"),
        "JitRawKernel": (jit.rawkernel()(no_barrier), "tapegrad.kernels.raw"),
    }


def launched(name, k, x):
    return k((1,), (1,), (x,)) if "Raw" in name else k(x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "ReductionKernel squares",
        "ElementwiseKernel square",
        "RawKernel f",
        "vectorize",
        "GeneralizedUFunc",
        "JitRawKernel",
    ],
)
def test_a_kernel_says_what_to_write(xp, name):
    k, instead = kernels(xp)[name]
    with pytest.raises(NoRuleError, match=f"(?s){name}.*{instead}.*tapegrad.rule"):
        tg.grad(lambda x: launched(name, k, x).sum())(xp.asarray(X))


def test_a_kernel_made_inside(xp):
    with pytest.raises(NoRuleError, match="ElementwiseKernel square"):
        tg.grad(lambda x: xp.ElementwiseKernel("T x", "T y", "y = other(x)", "square")(x).sum())(
            xp.asarray(X)
        )

    def f(x):
        k = xp.ElementwiseKernel(
            "T x", "T y", "y = x * x", "cupy_fill"
        )  # (a kernel that the hosted CuPy knows)
        assert isinstance(k, xp.ElementwiseKernel) and k.name == "cupy_fill"
        return (x * k(xp.asarray(X))).sum()

    want = X if getattr(xp.cuda.runtime, "_hosted", False) else X * X
    np.testing.assert_array_equal(tg.grad(f)(xp.asarray(X)).get(), want)


def test_fused(xp):
    """What `cupy.fuse` has made is followed, where other arguments are plain arrays too."""

    def sine_of(x, y):  # CuPy names the kernel after the function
        return xp.sin(x) * y

    def square(x):
        return x * x

    fused, other = xp.fuse(sine_of), xp.asarray(X)
    check_grads(lambda x: fused(x, other), (xp.asarray(X),), order=2)
    check_grads(lambda x: xp.fuse()(square)(x), (xp.asarray(X),), order=2)


WAITING = ("roots", "setxor1d", "histogram2d", "histogramdd", "asarray_chkfinite")  # as those of CuPy do
QUIET = [n for n in CALLS if n not in WAITING]


MORE = {
    "nanvar": lambda xp, x: xp.nanvar(x),
    "eigh_tridiagonal": lambda xp, x: tg.scipy.linalg.eigh_tridiagonal(x[0], x[1, :2])[1][
        0
    ].sum(),  # (CuPy has none)
}


@pytest.mark.parametrize("name", [*QUIET, *MORE])
def test_nobody_waits_for_the_device(xp, name):
    hosted = pytest.importorskip("tapegrad.testing.hosted")
    f = of(name, xp) if name in CALLS else functools.partial(MORE[name], xp)
    x = xp.asarray(CALLS.get(name, ("", X))[1])
    for run in (lambda: tg.value_and_grad(f)(x), lambda: tg.jvp(f, (x,), (x,))):
        run()
        hosted.reset_counts()
        run()
        assert hosted.stats["syncs"] == 0


# --- every keyword of NumPy's functions, as CuPy takes it ---

SPACES = {
    "numpy": "cupy",
    "numpy.linalg": "cupy.linalg",
    "numpy.fft": "cupy.fft",
    "scipy.special": "cupyx.scipy.special",
}
APART = {
    *keyword_calls.IN_PLACE,
    *keyword_calls.SYMMETRISED,
    *keyword_calls.CHOSEN,
    np.ldexp,
    np.trim_zeros,
    np.real_if_close,
}
REFUSED = "nan_to_num.*copy=False|weights subtracts|qr: mode=|AxisError|axis .* is out of bounds|only 'C' or 'F'|of complex numbers"


def as_cupys(xp):
    """(call of keyword_calls.py, CuPy's module and name)"""
    homes = {}
    for theirs, ours in SPACES.items():
        theirs, ours = importlib.import_module(theirs), importlib.import_module(ours)
        for name in set(dir(theirs)) & set(dir(ours)):
            f = getattr(theirs, name)
            if callable(f) and not isinstance(f, type) and callable(getattr(ours, name)):
                homes.setdefault(f, (ours, name))
    for call in (*keyword_calls.calls(), *keyword_calls.ufunc_calls()):
        result = any([isinstance(v, str) and v == "result" for v in call.kwargs.values()])
        loop = (
            isinstance(call.f, np.ufunc) and "dtype" in call.kwargs
        )  # CuPy rounds the operands for a loop of another dtype
        if not (call.method or call.ufunc or call.f in APART or call.f not in homes or result or loop):
            yield call, *homes[call.f]


def moved(xp, x):
    if isinstance(x, np.ndarray):
        return xp.asarray(x)
    return type(x)([moved(xp, v) for v in x]) if type(x) in (list, tuple) else x


def vector(y):
    parts = [np.ravel(v.get() if hasattr(v, "get") else v) for v in leaves(y)]
    parts = [p for p in parts if p.dtype.kind in "fc"]
    return np.concatenate(
        [np.zeros(0), *[np.concatenate([p.real, p.imag]) if p.dtype.kind == "c" else p for p in parts]]
    )


def weighted(xp, y, w):
    total = 0.0
    for v in leaves(y):
        if getattr(v, "dtype", np.dtype(float)).kind in "fc":
            for p in (v.real, v.imag) if getattr(v, "dtype", np.dtype(float)).kind == "c" else (v,):
                n = getattr(p, "size", 1)
                total = total + (
                    (xp.reshape(p, -1) * xp.asarray(w[:n])).sum()
                    if getattr(p, "ndim", 0)
                    else p * float(w[0])
                )
                w = w[n:]
    return total


def by_keyword(xp, call, module, name, rng):
    """What is wrong; None where CuPy does not take the call, or it has no derivative."""
    active = [i for i, a in enumerate(call.args) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    args, kwargs = moved(xp, call.args), {k: moved(xp, v) for k, v in call.kwargs.items()}
    space = {"M": module, "kwargs": kwargs}
    exec(f"def program(*args): return M.{name}(*args, **kwargs)", space)
    try:
        plain = space["program"](*args)
    except Exception:
        return None  # CuPy does not take this
    value = vector(plain)
    if not active or not len(value) or not np.isfinite(value).all():
        return None
    w, v = rng.standard_normal(len(value)), [rng.standard_normal(call.args[i].shape) for i in active]

    def at(*xs):
        given = list(args)
        for i, x in zip(active, xs, strict=True):
            given[i] = x
        return space["program"](*given)

    phi, x = lambda *xs: weighted(xp, at(*xs), w), tuple([args[i] for i in active])
    directions = tuple([xp.asarray(d) for d in v])
    try:
        got, gradient = tg.value_and_grad(phi, tuple(range(len(x))))(*x)
        slope = float(tg.jvp(phi, x, directions)[1])
    except Exception as error:
        return (
            None
            if re.search(REFUSED, f"{type(error).__name__}: {error}")
            else f"{type(error).__name__}: {error}"
        )
    back = float(sum([(g * d).sum() for g, d in zip(gradient, directions, strict=True)]))
    h, single = (
        1e-4,
        any(
            [
                p.dtype.itemsize // (2 if p.dtype.kind == "c" else 1) < 8
                for p in leaves(plain)
                if hasattr(p, "dtype")
            ]
        ),
    )
    moved_by = lambda k: w @ vector(at(*[a + k * h * d for a, d in zip(x, directions, strict=True)]))
    numeric = sum([c / h * moved_by(k) for k, c in ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))])
    scale = max(1.0, abs(slope))
    near = [abs(float(got) - w @ value) <= 1e-6 * max(1.0, abs(w @ value)), abs(back - slope) <= 1e-6 * scale]
    near.append(single or "dtype" in kwargs or abs(numeric - slope) <= 1e-5 * scale)
    return "" if all(near) else f"value, modes, differences: {near}"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_keywords(xp):
    rng = np.random.default_rng(0)
    found = {repr(call): by_keyword(xp, call, module, name, rng) for call, module, name in as_cupys(xp)}
    assert {call: why for call, why in found.items() if why} == {}
    assert list(found.values()).count("") > 1000
