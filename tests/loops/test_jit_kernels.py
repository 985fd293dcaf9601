"""Kernels of cupyx.jit.rawkernel on CuPy arrays (over host memory), against NumPy with a complex step."""

import importlib.util

import numpy as np
import pytest

import tapegrad as tg

pytestmark = pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="NOT RUN: CuPy is missing")
NAMES = ["log likelihood", "tiled product", "block norms", "bins"]


@pytest.fixture(scope="module")
def cp():
    with tg.testing.host_cupy() as cupy:
        yield cupy


@pytest.fixture(scope="module")
def kernels(cp):
    import jit_kernels

    return jit_kernels


def on_host(x):
    return x.get() if hasattr(x, "get") else x


@pytest.mark.parametrize("name", ["steps", *[pytest.param(n, marks=pytest.mark.long) for n in NAMES]])
def test_derivatives(cp, kernels, name):
    there, here, args = kernels.CASES[name]
    d = [np.sin(1.0 + np.arange(x.size)).reshape(x.shape) for x in args]
    want = here(*[x + 1e-30j * t for x, t in zip(args, d, strict=True)])
    w = np.cos(np.arange(want.size)).reshape(want.shape)
    want = (want**2 * w).sum()
    loss = lambda *x: (there(*x) ** 2 * cp.asarray(w)).sum()
    xs, ds = (tuple(map(cp.asarray, x)) for x in (args, d))
    value, g = tg.value_and_grad(loss, argnums=tuple(range(len(args))))(*xs)
    slope = sum(np.sum(on_host(x) * t) for x, t in zip(g, d, strict=True))
    np.testing.assert_allclose(float(value), want.real, rtol=1e-12)
    np.testing.assert_allclose(slope, want.imag / 1e-30, rtol=1e-12)
    np.testing.assert_allclose(float(tg.jvp(loss, xs, ds)[1]), slope, rtol=1e-12)
    first = tg.grad(lambda x: loss(x, *xs[1:]))
    hv = on_host(tg.hvp(lambda x: loss(x, *xs[1:]), xs[0], ds[0]))
    h = 1e-5
    slopes = [
        on_host(first(xs[0] + k * h * ds[0]) - first(xs[0] - k * h * ds[0])) * f
        for k, f in ((1, 8.0), (2, -1.0))
    ]
    np.testing.assert_allclose(hv, sum(slopes) / (12 * h), rtol=1e-6, atol=1e-6 * abs(hv).max())


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.long)])
def test_the_kernel_of_the_discussion(cp, kernels, dtype):
    """Its value, gradient for each sample and Hessian products; with captured buffers and within vmap."""
    thetas, x = cp.asarray(kernels.THETAS.astype(dtype)), cp.asarray(kernels.X.astype(dtype))
    tol = 1e-12 if dtype is np.float64 else 2e-5
    logLs = lambda t: kernels.log_likelihood_there(t, x)
    value, pullback = tg.vjp(logLs, thetas)
    g = on_host(pullback(cp.ones(3, dtype)))
    assert value.dtype == g.dtype == dtype
    np.testing.assert_allclose(on_host(value)[0], -28.663534402106272, rtol=tol)
    np.testing.assert_allclose(g[:, 0], [-80.0, 150.0, 250.0, 500.0], rtol=tol)
    hv = on_host(tg.hvp(lambda t: logLs(t).sum(), thetas, cp.ones((4, 3), dtype)))
    np.testing.assert_allclose(hv[:, 0], [1100.0, -3500.0, -6900.0, -19000.0], rtol=100 * tol)
    one = tg.grad(lambda theta: kernels.log_likelihood_there(theta[:, None], x)[0])
    np.testing.assert_allclose(on_host(tg.vmap(one, in_axes=1, out_axes=1)(thetas)), g, rtol=10 * tol)
    out = cp.zeros(3, dtype)

    def into_a_buffer(t):
        kernels.log_likelihood((1,), (256,), (out, t, x, 5, 3))
        return out.sum()

    np.testing.assert_allclose(on_host(tg.grad(into_a_buffer)(thetas)), g, rtol=10 * tol)
    np.testing.assert_allclose(on_host(out), on_host(value), rtol=tol)
    np.testing.assert_allclose(on_host(tg.prepare(into_a_buffer, thetas).grad(thetas)), g, rtol=10 * tol)


@pytest.mark.long
def test_arrays_in_any_order_and_numpy_arrays(cp, kernels):
    x = kernels.CASES["steps"][2][0]
    want = tg.grad(lambda x: kernels.steps_there(x).sum())(cp.asarray(x))
    turned = cp.asarray(x.T.copy())
    found = tg.grad(lambda x: kernels.steps_there(x.T).sum())(turned)
    np.testing.assert_allclose(on_host(found).T, on_host(want), rtol=1e-14)

    def on_the_cpu(x):
        out = np.zeros(4)
        kernels.steps[1, 32](x, out)
        return out.sum()

    np.testing.assert_allclose(tg.grad(on_the_cpu)(x), on_host(want), rtol=1e-14)


def test_a_function_of_vectorize(cp, kernels):
    x, y = np.linspace(-1.0, 2.0, 6).reshape(2, 3), np.array([0.7, -0.25, 0.1])
    there = lambda x, y: kernels.bump(x, y).sum()
    dx, dy = map(on_host, tg.grad(there, argnums=(0, 1))(cp.asarray(x), cp.asarray(y)))
    small = np.minimum(x, 2.0 * y)
    by_x = np.exp(x) * (small + (x < 2.0 * y))
    by_y = np.exp(x) * 2.0 * (x > 2.0 * y)
    np.testing.assert_allclose(dx, np.where(x > y, 2.0 * x, by_x), rtol=1e-14)
    np.testing.assert_allclose(dy, np.where(x > y, -1.0, by_y).sum(0), rtol=1e-13)


def test_what_is_refused_names_the_users_line(cp, kernels):
    x, out = cp.ones((4, 4)), cp.zeros(4)
    line = kernels.first_thread._func.__code__.co_firstlineno + 3
    with pytest.raises(tg.errors.NoRuleError, match=f"first_thread, line {line}: the function __syncwarp"):
        tg.grad(lambda x: (kernels.first_thread[1, 4](x, out), out.sum())[1])(out)
    with pytest.raises(tg.errors.NoRuleError, match="row stands for parts of different arrays"):
        tg.grad(lambda x: (kernels.whole[1, 4](x, x * 1.0), x.sum())[1])(x)
    with pytest.raises(AttributeError, match=r">     x\[0\] = x.flags"):  # CuPy's compiler
        tg.grad(lambda x: (kernels.no_attribute[1, 4](x), x.sum())[1])(x)


@pytest.mark.long
def test_source_and_check(cp, kernels):
    x, out = cp.ones(3), cp.zeros(3)
    text = tg.loops.source(kernels.racy, x, out, derivative="adjoint", launch=(1, 3))
    assert f"# {kernels.racy._func.__code__.co_firstlineno + 2}: out[0] = x[jit.grid(1)]" in text
    with pytest.raises(tg.errors.KernelError, match="threads 0 and 1|race"):
        tg.loops.check(kernels.racy, x, out, launch=(1, 3))
    args = cp.zeros(3), cp.asarray(kernels.THETAS), cp.asarray(kernels.X), 5, 3
    assert len(tg.loops.check(kernels.log_likelihood, *args, launch=(1, 4))) == 4
