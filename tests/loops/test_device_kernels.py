"""Kernels of numba.cuda on NumPy arrays, against their Python code run by threads with a complex step."""

import numpy as np
import pytest
from device_kernels import (
    block_norms,
    by_threads,
    histogram,
    late_barrier,
    log_likelihood,
    prefix_sum,
    tiled_product,
)
from numba import cuda

import tapegrad as tg

R = np.random.default_rng(2)
THETAS = np.array([[0.5, 0.6, 0.7], [0.5, 0.4, 0.3], [0.1, 0.2, 0.15], [0.1, 0.2, 0.25]])
X = np.array([[0.0, 0.5, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]])
BINS = np.array([0, 2, 2, 1, 0, 3, 1])
W = R.standard_normal((6, 5))

# kernel, blocks, threads, shape of the output, fixed arguments after the differentiated ones, loss of the
# output
KERNELS = {
    "log_likelihood": (log_likelihood, 1, 8, (3,), (THETAS,), (X, 5, 3), lambda y: y.sum()),
    "log_likelihood, blocks": (log_likelihood, 2, 2, (3,), (THETAS,), (X, 5, 3), lambda y: (y * y).sum()),
    "tiled_product": (
        tiled_product,
        (2, 2),
        (4, 4),
        (6, 5),
        (R.random((6, 7)), R.random((7, 5))),
        (),
        lambda y: (y * W).sum(),
    ),
    "block_norms": (block_norms, 3, 8, (1,), (R.random(21),), (), lambda y: y[0] ** 2),
    "histogram": (histogram, 1, 3, (4,), (R.random(7),), (BINS,), lambda y: (y * y).sum()),
    "prefix_sum": (prefix_sum, 1, 8, (6,), (R.random(6),), (), lambda y: (y * np.arange(6.0)).sum()),
}


def launched(name):
    kernel, blocks, threads, shape, args, fixed, loss = KERNELS[name]
    first = kernel.py_func.__code__.co_varnames[0] in ("logLs",)

    def f(*x):
        out = np.zeros(shape)
        kernel[blocks, threads](*((out, *x, *fixed) if first else (*x, *fixed, out)))
        return loss(out)

    def python(*x):
        out = np.zeros(shape, complex)
        by_threads(kernel, blocks, threads, *((out, *x, *fixed) if first else (*x, *fixed, out)))
        return loss(out)

    return f, python, args


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", KERNELS)
def test_derivatives(name):
    f, python, args = launched(name)
    d = [R.standard_normal(a.shape) for a in args]
    want = python(*[a + 1e-30j * t for a, t in zip(args, d, strict=True)])
    value, g = tg.value_and_grad(f, argnums=tuple(range(len(args))))(*args)
    slope = sum(np.sum(a * b) for a, b in zip(g, d, strict=True))
    np.testing.assert_allclose(value, want.real, rtol=1e-13)
    np.testing.assert_allclose(slope, want.imag / 1e-30, rtol=1e-12)
    np.testing.assert_allclose(tg.jvp(f, args, tuple(d))[1], slope, rtol=1e-12)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["block_norms", "prefix_sum", "log_likelihood"])
def test_second_order(name):
    f, _, (x, *rest) = launched(name)
    v, h, g = R.standard_normal(x.shape), 1e-4, tg.grad(f)
    want = (
        sum(
            w * (g(x + k * h * v) - g(x - k * h * v))
            for k, w in enumerate((4 / 5, -1 / 5, 4 / 105, -1 / 280), 1)
        )
        / h
    )
    np.testing.assert_allclose(tg.hvp(f, x, v), want, rtol=1e-6, atol=1e-6)


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_kernel_of_the_discussion(dtype):
    """Its value, gradient for each sample, and products with the Hessian, against the formulas."""
    thetas, x = THETAS.astype(dtype), X.astype(dtype)

    def logLs(thetas):
        out = np.zeros(thetas.shape[1], dtype)
        log_likelihood[1, 256](out, thetas, x, x.shape[1], thetas.shape[1])
        return out

    tol = 1e-12 if dtype is np.float64 else 2e-5
    value, pullback = tg.vjp(logLs, thetas)
    (g,) = (
        pullback(np.ones(3, dtype))
        if isinstance(pullback(np.ones(3, dtype)), tuple)
        else (pullback(np.ones(3, dtype)),)
    )
    assert value.dtype == g.dtype == dtype
    np.testing.assert_allclose(value[0], -28.663534402106272, rtol=tol)
    np.testing.assert_allclose(g[:, 0], [-80.0, 150.0, 250.0, 500.0], rtol=tol)
    mu, sigma = THETAS[:2], THETAS[2:]
    r = X[:, :, None] - mu[:, None]
    np.testing.assert_allclose(g[:2], (r / sigma[:, None] ** 2).sum(1), rtol=10 * tol)
    np.testing.assert_allclose(g[2:], (r**2 / sigma[:, None] ** 3).sum(1) - 5 / sigma, rtol=10 * tol)
    v = R.standard_normal(thetas.shape).astype(dtype)
    hv = tg.hvp(lambda t: logLs(t).sum(), thetas, v)
    a, b = v[:2], v[2:]
    s2, s3, s4 = (r.sum(1) / sigma**3, 5 / sigma**2, (r**2).sum(1) / sigma**4)
    np.testing.assert_allclose(hv[:2], -s3 * a - 2 * s2 * b, rtol=50 * tol, atol=500 * tol)
    np.testing.assert_allclose(hv[2:], -2 * s2 * a + (s3 - 3 * s4) * b, rtol=50 * tol, atol=500 * tol)
    one = lambda theta: logLs(theta[:, None])[0]
    np.testing.assert_allclose(tg.vmap(tg.grad(one), in_axes=1, out_axes=1)(thetas), g, rtol=10 * tol)


def test_what_is_refused():
    with pytest.raises(
        tg.errors.KernelError, match="a barrier in a loop or branch that differs between threads"
    ):
        tg.grad(lambda x: late(x).sum())(np.ones(4))
    with pytest.raises(tg.errors.KernelError, match="launch it as"):
        tg.grad(lambda x: histogram(x, BINS, np.zeros(4)))(np.ones(7))
    with pytest.raises(tg.errors.KernelError, match="overlaps with another argument"):
        tg.grad(lambda x: shared_memory(x * 1.0))(np.ones(7))
    with pytest.raises(tg.errors.KernelError, match="out of bounds"):
        tg.grad(lambda x: bins_of(x, BINS + 1))(np.ones(7))


def late(x):
    out = np.zeros(4)
    late_barrier[1, 4](x, out)
    return out


def shared_memory(z):
    histogram[1, 4](z, BINS, z[2:])
    return z.sum()


def bins_of(x, bins):
    out = np.zeros(4)
    histogram[2, 4](x, bins, out)
    return out.sum()


@pytest.mark.parametrize(
    "name", ["log_likelihood", "prefix_sum", *[pytest.param(n, marks=pytest.mark.long) for n in KERNELS]]
)
def test_on_arrays_of_a_device(name):
    """The same on CuPy arrays (over host memory): the adjoint is CUDA C."""
    pytest.importorskip("cupy")
    kernel, blocks, threads, shape, args, fixed, loss = KERNELS[name]
    first = kernel.py_func.__code__.co_varnames[0] == "logLs"
    reference, _, _ = launched(name)
    n = tuple(range(len(args)))
    value, wanted = tg.value_and_grad(reference, argnums=n)(*args)
    with tg.testing.host_cupy() as cp:
        there = lambda x: cp.asarray(x) if isinstance(x, np.ndarray) else x

        def f(*x):
            out = cp.zeros(shape)
            more = [there(y) for y in fixed]
            kernel[blocks, threads](*((out, *x, *more) if first else (*x, *more, out)))
            y = out if name != "tiled_product" else out * cp.asarray(W)
            return y.sum() if name == "tiled_product" else loss_there(cp, loss, y)

        found, g = tg.value_and_grad(f, argnums=n)(*map(there, args))
        np.testing.assert_allclose(float(found), value, rtol=1e-13)
        for a, b in zip(g, wanted, strict=True):
            np.testing.assert_allclose(a.get(), b, rtol=1e-12, atol=1e-13)


def loss_there(cp, loss, y):
    return (y * cp.arange(6.0)).sum() if y.shape == (6,) else loss(y)


@cuda.jit
def binned(place, x, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        cuda.atomic.add(out, int(place[i] * out.shape[0]), x[i] ** 2)


def test_casts_by_functions_of_numba():
    """int() is a function of Numba's own, which it would compile for a device."""
    place, x = np.linspace(0.05, 0.95, 7), np.arange(1.0, 8.0)

    def loss(x):
        out = np.zeros(3)
        binned[2, 4](place, x, out)
        return (out**2).sum()

    which = (place * 3).astype(int)
    sums = np.bincount(which, x**2)
    np.testing.assert_allclose(tg.grad(loss)(x), 4 * sums[which] * x, rtol=1e-14)
