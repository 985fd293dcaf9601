"""Hand-written kernels as operations: the founding Gaussian, rules of all kinds, calls, errors, memory, threads, CuPy."""

import mmap
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import sympy
from numba import njit
from raw_kernels import (
    GAUSSIAN,
    GIVEN,
    GRADIENT,
    LOOP,
    SECOND,
    SIZES,
    THETA,
    VALUE,
    X,
    gaussian,
    kernel,
    linear,
    linear_formula,
    raw,
    recursion,
    reduction,
    scale,
    stencil,
    while_loop,
)

import tapegrad as tg
from tapegrad.errors import ArgumentError, DeviceError, KernelError, NoRuleError, ShapeError
from tapegrad.testing import check_grads

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="NOT RUN: raw kernels on the CPU, for there is no g++")
REALS = [np.float64, np.float32]

# --- discussion 1 ---


@pytest.mark.parametrize("real", REALS)
def test_founding_gaussian(real):
    theta, x = THETA.astype(real), X.astype(real)
    k = gaussian()
    value, pullback = tg.vjp(lambda theta: k(theta, tg.Const(x)), theta)
    gradient = pullback(np.ones(3, real))
    exact = VALUE if real is np.float64 else [-28.663532390449643, -10.720006040067712, -21.794532757470965]
    np.testing.assert_allclose(value, exact, rtol=1e-15 if real is np.float64 else 2e-6)
    np.testing.assert_allclose(gradient, GRADIENT, rtol=1e-13 if real is np.float64 else 2e-6)
    assert value.dtype == gradient.dtype == real
    assert np.array_equal(tg.grad(lambda theta: k(theta, tg.Const(x)).sum())(theta), gradient)
    # forward mode from the adjoint: the sum of each column
    tangent = tg.jvp(lambda theta: k(theta, x), (theta,), (np.ones_like(theta),))[1]
    np.testing.assert_allclose(tangent, gradient.sum(axis=0), rtol=1e-14 if real is np.float64 else 1e-6)


def test_output_that_is_not_needed_is_not_kept():
    k = gaussian()
    with tg.Tape() as tape:
        theta = tape.watch(THETA)
        y = k(theta, tg.Const(X)).sum()
    records = [r for r in tape._trace.records if r[0] is k.prim]
    assert records[0][4] is None  # the output
    np.testing.assert_allclose(tape.grad(y, theta), GRADIENT)


def test_a_rule_that_reads_what_is_not_kept():
    args = ["in unsaved real theta[4, B]", GIVEN[1], "out real value[B]", *SIZES]
    fits = raw(GAUSSIAN, "gaussian", args, vjp=lambda g, value, theta, x: (np.zeros(theta.shape, theta.dtype) + g, None))
    assert tg.grad(lambda theta: fits(theta, X).sum())(THETA).tolist() == np.ones((4, 3)).tolist()
    for use in (lambda t: t * 2.0, lambda t: np.exp(t), lambda t: np.sum(t), lambda t: X.sum() * t, lambda t: t[0], lambda t: t.sum()):
        k = raw(GAUSSIAN, "gaussian", args, vjp=lambda g, value, theta, x: (use(theta), None))
        with pytest.raises(KernelError, match="gaussian: a rule read theta, which is declared 'in unsaved real theta"):
            tg.grad(lambda theta: k(theta, X).sum())(THETA)


def test_second_derivatives():
    k = gaussian(2)
    total = lambda theta: k(theta, X).sum()
    pairs = [(0, 0), (1, 1), (2, 2), (3, 3), (0, 2), (1, 3)]
    H = tg.hessian(total)(THETA)
    for sample in range(3):
        got = [H[i, sample, j, sample] for i, j in pairs]
        np.testing.assert_allclose(got, SECOND[sample], rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(H[:, 0, :, 1], 0)
    check_grads(total, (THETA,))
    check_grads(lambda theta: k(theta, X) ** 2, (THETA,), rtol=1e-8, atol=1e-6)


def test_a_derivative_beyond_the_last_kernel_names_it():
    with pytest.raises(NoRuleError, match="raw kernel gaussian_vjp was to be differentiated and has no rule"):
        tg.hessian(lambda theta: gaussian()(theta, X).sum())(THETA)
    with pytest.raises(NoRuleError, match="raw kernel gaussian was"):
        tg.grad(lambda theta: gaussian(0)(theta, X).sum())(THETA)
    with pytest.raises(NoRuleError, match="pass jvp="):
        tg.jvp(lambda theta: gaussian(0)(theta, X), (THETA,), (THETA,))
    third = lambda theta: (tg.grad(lambda t: tg.hvp(lambda s: gaussian(2)(s, X).sum(), t, THETA).sum())(theta)).sum()
    with pytest.raises(NoRuleError, match="gaussian_vjp_vjp"):
        third(THETA)


# --- rules of other kinds ---


def test_stencil():
    x = np.random.default_rng(0).normal(size=300)
    k = stencil()
    reference = lambda x: 2 * x - np.concatenate([[0.0], x[:-1]]) - np.concatenate([x[1:] ** 2, [0.0]])
    np.testing.assert_allclose(k(x), reference(x), rtol=1e-14)
    w = np.cos(np.arange(300.0))
    np.testing.assert_allclose(tg.grad(lambda x: (w * k(x)).sum())(x), tg.grad(lambda x: (w * reference(x)).sum())(x), rtol=1e-14)
    with pytest.raises(NoRuleError, match="would take 300 launches"):
        tg.jvp(k, (x,), (x,))
    np.testing.assert_allclose(tg.jvp(k, (x[:50],), (w[:50],))[1], tg.jvp(reference, (x[:50],), (w[:50],))[1], rtol=1e-13)
    with_jvp = stencil(jvp=lambda t, y, x: tg.jvp(reference, (x,), (t[0],))[1])
    np.testing.assert_allclose(tg.jvp(with_jvp, (x,), (w,))[1], tg.jvp(reference, (x,), (w,))[1])


def test_samples_that_are_not_independent_are_noticed():
    for n in (2, 3, 50):
        with pytest.raises(KernelError, match="a seed for one sample reached the derivatives of another"):
            tg.jvp(stencil("samples"), (np.linspace(1, 2, n),), (np.ones(n),))


def test_shared_arguments_integers_and_scalars():
    rng = np.random.default_rng(0)
    c, x, which = rng.normal(size=3), rng.normal(size=(3, 40)), rng.integers(-1, 3, 40).astype(np.int32)
    k = linear()
    np.testing.assert_allclose(k(c, x, which, 2.5), linear_formula(c, x, which, 2.5), rtol=1e-14)
    for f in (lambda k, c, x: k(c, x, which, 2.5), lambda k, c, x: k(c, x, scale=2.5, which=which)):
        ours, theirs = [tg.grad(lambda c, x: (f(k, c, x) ** 2).sum(), (0, 1))(c, x) for k in (k, linear_formula)]
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    check_grads(lambda c, x: k(c, x, which, 2.5), (c, x), order=1)
    assert any("agree" in line for line in k.check(c, x, which, 2.5))


def test_loops_with_a_bound_known_at_run_time():
    k = recursion()
    x = np.array([1.5, 2.0])
    np.testing.assert_allclose(tg.grad(lambda x: k(x, 3).sum())(x), [7.487055434113092, 17.45818963356281], rtol=1e-15)
    many = np.linspace(0.1, 1.2, 1000)
    one = tg.grad(lambda x: k(x, 7).sum())(many)
    np.testing.assert_allclose(one, [tg.grad(lambda x: k(x, 7).sum())(many[i : i + 1])[0] for i in range(1000)], rtol=0)
    assert tg.grad(lambda x: k(x, 0).sum())(x).tolist() == [0, 0]


PRODUCT = kernel(
    "product",
    "const real* x, real* y, long long N",
    "if (threadIdx.x == 0) { real p = 1; for (long long i = 0; i < N; ++i) p *= x[i]; y[0] = p; }",
) + kernel(
    "product_vjp",
    "const real* x, const real* y_bar, real* x_bar, long long N",
    """  if (threadIdx.x) return;
  real p = 1;
  for (long long i = 0; i < N; ++i) { x_bar[i] = y_bar[0] * p; p *= x[i]; }
  p = 1;
  for (long long i = N - 1; i >= 0; --i) { x_bar[i] *= p; p *= x[i]; }""",
)


def test_product_loop_and_an_argument_overwritten_after_its_use():
    adjoint = raw(PRODUCT, "product_vjp", ["in real x[N]", "in real y_bar[]", "out real x_bar[N]", "size N"], grid=1)
    k = raw(PRODUCT, "product", ["in real x[N]", "out real y[]", "size N"], vjp=adjoint, grid=1)
    assert tg.grad(k)(np.full(3, 2.0)).tolist() == [4, 4, 4]
    assert tg.grad(k)(np.array([0.0, 3, 0.0])).tolist() == [0, 0, 0]
    np.testing.assert_allclose(tg.jvp(k, (np.arange(1.0, 5),), (np.ones(4),))[1], 50)
    k.check(np.arange(1.0, 5))
    source = kernel("square", "real* a, real* y, long long B", f"{LOOP} {{ y[b] = a[b] * a[b]; a[b] = 1; }}")
    k = raw(source, "square", ["inout real a[B]", "out real y[B]", "size B"], vjp=lambda g, out, a: 2 * a * g[1])
    assert tg.grad(lambda a: k(a)[1].sum())(np.array([1.0, 2, 3])).tolist() == [2, 4, 6]


def test_while_loop_by_its_forward_rule():
    k = while_loop()
    x = np.array([1.5, 2.0])
    assert tg.jvp(k, (x,), (np.ones(2),))[1].tolist() == [45.5625, 32.0]
    assert tg.grad(lambda x: k(x).sum())(x).tolist() == [45.5625, 32.0]
    assert tg.jacobian(k)(x).tolist() == [[45.5625, 0], [0, 32]]


def test_kernel_that_writes_in_place():
    k = scale()
    a, b = np.array([1.0, 2, 3]), np.array([4.0, 5, 6])
    assert tg.grad(lambda b: k(a, b).sum())(b).tolist() == [1, 2, 3]
    assert tg.grad(lambda a: k(a, b).sum())(a).tolist() == [4, 5, 6]
    assert a.tolist() == [1, 2, 3]
    assert tg.grad(lambda a: k(k(a, a), a).sum())(a).tolist() == (3 * a * a).tolist()
    zero = lambda y: k(y, np.zeros(2))

    def launches(a):  # y = a a, then a = 0: the gradient is that of the first launch
        y = k(a, a)
        zero(a)
        return y.sum()

    assert tg.grad(launches)(np.array([1.0, 2.0])).tolist() == [2, 4]
    assert any("agree" in line for line in k.check(a, b))


def test_block_reduction():
    x = np.random.default_rng(0).normal(size=1000)
    k = reduction()
    np.testing.assert_allclose(k(x), (x * x).sum(), rtol=1e-13)
    assert isinstance(k(x), np.float64)
    np.testing.assert_allclose(tg.grad(k)(x), 2 * x)
    check_grads(k, (x,))  # the rule is NumPy code: any order
    assert tg.grad(k)(x.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("outside", [False, True])
def test_dynamic_shared_memory(outside):
    declared = "extern __shared__ real s[];"
    body = """const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < N ? x[i] : 0;
  __syncthreads();
  for (int k = blockDim.x / 2; k; k /= 2) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) part[blockIdx.x] = s[0];"""
    source = kernel("sums", "const real* x, real* part, long long N", body if outside else declared + body, declared if outside else "")
    spread = lambda g, part, x: np.repeat(g, 64)[: x.size]
    k = raw(
        source,
        "sums",
        ["in real x[N]", "out real part[(N + 63) // 64]", "size N"],
        vjp=spread,
        threads="N",
        block=64,
        shared="threads * real",
    )
    x = np.arange(200.0)
    assert k(x).tolist() == [x[i : i + 64].sum() for i in range(0, 200, 64)]
    assert tg.grad(lambda x: (k(x) * [1.0, 2, 3, 4]).sum())(x).tolist() == np.repeat([1.0, 2, 3, 4], 64)[:200].tolist()
    k.check(x, sanitize=True)


def test_assertions_and_large_local_arrays():
    body = f"""{LOOP} {{
    real a[4096];
    for (int i = 0; i < 4096; ++i) a[i] = x[b] * i;
    assert(x[b] < 10);
    __syncwarp();
    real sum = 0;
    for (int i = 0; i < 4096; ++i) sum += a[i];
    y[b] = sum;
  }}"""
    k = raw(kernel("f", "const real* x, real* y, long long B", body), "f", ["in real x[B]", "out real y[B]", "size B"], block=32)
    assert k(np.arange(8.0)).tolist() == (np.arange(8.0) * 4096 * 4095 / 2).tolist()
    with pytest.raises(KernelError, match="f: the assertion `x.b. < 10` in line 7 failed"):
        k(np.arange(20.0))


def test_a_cotangent_declared_const_still_transposes():
    """An adjoint with a rule of its own, but none by its cotangent: forward mode of the primal does not use that rule."""
    args = [*GIVEN, "const real value_bar[B]", "out real theta_bar[4, B]", *SIZES]
    adjoint = raw(GAUSSIAN, "gaussian_vjp", args, vjp=lambda g, out, *args: (g, None, None))
    k = raw(GAUSSIAN, "gaussian", [*GIVEN, "out real value[B]", *SIZES], vjp=adjoint)
    np.testing.assert_allclose(tg.jvp(lambda t: k(t, X), (THETA,), (THETA,))[1], (GRADIENT * THETA).sum(axis=0))


MANY = kernel(
    "many",
    "const real* x, real* y, int* where, real* z, long long B",
    f"{LOOP} {{ y[b] = x[b] * x[b]; where[b] = x[b] > 0; z[b] = x[b] * x[b] * x[b]; }}",
)


def many(vjp=None, **more):
    args = ["in real x[B]", "out unsaved real y[B]", "out int where[B]", "out unsaved real z[B]", "size B"]
    return raw(MANY, "many", args, vjp=vjp or (lambda g, out, x: 2 * x * g[0] + 3 * x * x * g[2]), **more)


def test_several_outputs():
    k, x = many(), np.array([1.0, -2.0, 3.0])
    y, where, z = k(x)
    assert where.dtype == np.int32 and where.tolist() == [1, 0, 1] and z.tolist() == [1, -8, 27]
    assert tg.grad(lambda x: k(x)[0].sum())(x).tolist() == (2 * x).tolist()
    assert tg.grad(lambda x: k(x)[2].sum())(x).tolist() == (3 * x * x).tolist()
    assert tg.grad(lambda x: (k(x)[2] * k(x)[1]).sum())(x).tolist() == [3, 0, 27]
    check_grads(lambda x: k(x)[0] * k(x)[2], (x,))
    source = MANY + kernel(
        "many_vjp",
        "const real* x, const real* y_bar, const real* z_bar, real* x_bar, long long B",
        f"{LOOP} x_bar[b] = 2 * x[b] * y_bar[b] + 3 * x[b] * x[b] * z_bar[b];",
    )
    adjoint = raw(source, "many_vjp", ["in real x[B]", "in real y_bar[B]", "in real z_bar[B]", "out real x_bar[B]", "size B"])
    check_grads(lambda x: many(adjoint)(x)[0] * many(adjoint)(x)[2], (x,), order=1)
    with pytest.raises(ShapeError, match="vjp returned shape"):
        tg.grad(lambda x: many(lambda g, out, x: 2 * g[0][:2])(x)[0].sum())(x)


def test_rules_in_python_with_kernels_inside():
    both = raw(GAUSSIAN, "gaussian_vjp", [*GIVEN, "in real value_bar[B]", "out real theta_bar[4, B]", *SIZES])
    k = raw(
        GAUSSIAN, "gaussian", [*GIVEN, "out real value[B]", *SIZES], vjp=lambda g, out, theta, x: (g * both(theta, x, np.ones(3)), None)
    )
    np.testing.assert_allclose(tg.grad(lambda theta: k(theta, X).sum())(THETA), GRADIENT)
    np.testing.assert_allclose(tg.jvp(lambda theta: k(theta, X), (THETA,), (THETA,))[1], (GRADIENT * THETA).sum(axis=0))


# --- mutation, shadows ---


def test_arguments_written_after_the_call():
    k = gaussian()

    def f(theta, x):
        v = k(theta, x)
        theta[...] = 1.0
        x[...] = 5.0
        return v.sum()

    np.testing.assert_allclose(tg.grad(lambda theta: f(theta, X.copy()))(THETA), GRADIENT)
    x, buffer = X.copy(), np.zeros(3)

    def g(theta):
        buffer[:] = k(theta, x)
        x[...] = 0.0
        return (buffer * buffer).sum()

    np.testing.assert_allclose(tg.grad(g)(THETA), 2 * np.array(VALUE) * GRADIENT)
    np.testing.assert_allclose(buffer, VALUE)
    assert not x.any()


def test_layouts_and_sizes():
    k = gaussian()
    wide = np.zeros((8, 6))
    wide[::2, ::2] = THETA
    np.testing.assert_allclose(k(wide[::2, ::2], np.asfortranarray(X)), VALUE)
    frozen = THETA.copy()
    frozen.flags.writeable = False
    np.testing.assert_allclose(k(frozen, X), VALUE)
    np.testing.assert_allclose(tg.grad(lambda theta: k(theta, X).sum())(wide[::2, ::2]), GRADIENT)
    assert k(np.zeros((4, 0)), X).shape == (0,)
    assert tg.grad(lambda theta: k(theta, X).sum())(np.zeros((4, 0))).shape == (4, 0)
    np.testing.assert_allclose(k(THETA[:, :1], X), VALUE[:1])
    assert k(THETA, np.zeros((2, 0))).tolist() == [0, 0, 0]
    c = tg.grad(lambda c: linear()(c, np.zeros((3, 0)), np.zeros(0, np.int32), 1.0).sum())(np.ones(3))
    assert c.tolist() == [0, 0, 0]
    assert reduction()(np.zeros(0)) == 0
    rng = np.random.default_rng(0)
    theta, x = 1 + rng.random((4, 3000)), rng.normal(size=(2, 200))
    reference = -0.5 * (((x[:, None] - theta[:2, :, None]) / theta[2:, :, None]) ** 2).sum((0, 2)) - 200 * np.log(
        2 * np.pi * theta[2] * theta[3]
    )
    np.testing.assert_allclose(k(theta, x), reference, rtol=1e-12)


NO_RESERVE = 0x4000  # mmap.MAP_NORESERVE from Python 3.13 on


@pytest.mark.skipif(sys.platform != "linux", reason="NOT RUN: index arithmetic beyond 2^31 needs memory that is only reserved")
def test_more_than_two_to_the_31_elements():
    """The last samples of a batch of 2^29 + 64 with 5 parameters, in memory of which only these columns exist."""
    batch, rows = 2**29 + 64, 5
    memory = mmap.mmap(-1, 4 * batch * rows, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    theta = np.frombuffer(memory, np.float32).reshape(rows, batch)
    theta[:, -64:] = np.arange(5.0)[:, None] + np.arange(64.0)
    source = kernel(
        "tail",
        "const real* theta, long long first, real* value, long long B",
        LOOP.replace("long long b = ", "long long b = first + ") + " value[b] = theta[b] + theta[4 * B + b];",
    )
    k = raw(source, "tail", ["in real theta[5, B]", "const long long first", "out real value[B]", "size B"])
    assert np.array_equal(k(theta, batch - 64)[-64:], 4 + 2 * np.arange(64.0))
    with pytest.raises(KernelError, match="above the limit"):
        raw(source, "tail", ["in real theta[5, B]", "const long long first", "out real value[B]", "size B"], threads="B * 4096")(theta, 0)


# --- a function for the CPU ---


@njit(error_model="numpy")
def recursion_twin(x, n, s, B):
    for b in range(B):
        r = x.dtype.type(1)
        for _ in range(n):
            r = r * x[b] + np.sin(r)
        s[b] = r


def test_cpu_function():
    args = ["in real x[B]", "const int n", "out real s[B]", "size B"]
    calls = []

    def cpu(*values):
        calls.append(values)
        recursion_twin(*values)

    k = raw(recursion().source, "recursion", args, cpu=cpu)
    x = np.array([1.5, 2.0])
    np.testing.assert_array_equal(k(x, 3), recursion()(x, 3))
    assert [type(v) for v in calls[0]] == [np.ndarray, int, np.ndarray, int]
    k.check(x, 3)
    np.testing.assert_array_equal(raw(recursion().source, "recursion", args, cpu=recursion_twin)(x, 3), recursion()(x, 3))


def test_cpu_function_that_returns():
    source = kernel("f", "const real* x, real* y, long long B", f"{LOOP} y[b] = 2 * x[b];")
    k = raw(source, "f", ["in real x[B]", "out real y[B]", "size B"], cpu=lambda x, y, B: 2 * x)
    with pytest.raises(KernelError, match="cpu= returned ndarray; it is to fill its outputs"):
        k(np.ones(2))


def test_slots_of_a_cpu_function():
    seen = []

    def cpu(x, work, y, B, p):
        seen.append((work.shape, work.dtype))
        y[:] = 2 * x

    source = kernel("twice", "const real* x, double* work, real* y, long long B, int p", f"{LOOP} y[b] = 2 * x[b];")
    args = ["in real x[B]", "work double work[B + 1, 2*p, slots]", "out real y[B]", "size B", "const int p"]
    raw(source, "twice", args, cpu=cpu)(np.ones(3), 4)
    raw(source, "twice", args, cpu=cpu, workers=5)(np.ones(3), 4)
    assert seen == [((4, 8, 1), np.float64), ((4, 8, 5), np.float64)]
    raw(source, "twice", args).check(np.ones(3), 4)


# --- errors of calls ---


def test_calls_are_checked():
    k = gaussian()
    cases = [
        (lambda: k(THETA, X.astype(np.float32)), ArgumentError, r"x has dtype float32; declared is 'const real x\[2, N\]', wanted float64"),
        (lambda: k(THETA.astype(int), X), ArgumentError, "argument theta is an array of int64"),
        (lambda: k(THETA, [[1.0], [2.0]]), ArgumentError, r"argument x is \[\[1.0\], \[2.0\]\] \(list\)"),
        (lambda: k(THETA, X[0]), ShapeError, r"argument x has shape \(5,\), declared is 'const real x\[2, N\]'"),
        (lambda: k(THETA[:3], X), ShapeError, r"argument theta has shape \(3, 3\)"),
        (lambda: k(THETA), ArgumentError, "takes 2 arguments: theta, x"),
        (lambda: k(THETA, X, X), ArgumentError, "takes 2 arguments, 3 were given"),
        (lambda: k(THETA, y=X), ArgumentError, "the argument y is unknown"),
        (lambda: k(THETA, X, x=X), ArgumentError, "the argument x is given twice"),
        (lambda: tg.grad(lambda x: k(THETA, x).sum())(X), ArgumentError, "x is declared 'const real x"),
        (lambda: recursion()(np.ones(2), 2.0), ArgumentError, "argument n is 2.0 .*wanted a whole number"),
        (lambda: recursion()(np.ones(2), 2**31), ArgumentError, "2147483648, which int cannot hold"),
        (lambda: linear()(np.ones(2), np.ones((3, 4)), np.zeros(4, np.int32), 1.0), ShapeError, "argument x has shape .*, p is 2 by c"),
        (lambda: linear()(np.ones(2), np.ones((2, 4)), np.zeros(4, int), 1.0), ArgumentError, "which has dtype int64.* wanted int32"),
        (lambda: linear()(np.ones(2), np.ones((2, 4)), np.zeros(4, np.int32), np.ones(2)), ArgumentError, "argument scale is an array"),
        (lambda: k(np.ma.array(THETA), X), ArgumentError, "argument theta is a masked array"),
        (lambda: recursion().vjp(np.ones(2), -1, np.ones(2)), ShapeError, r"tape, declared .*would have shape \(-1,"),
        (lambda: k(THETA.astype(">f8"), X), ArgumentError, "argument theta is an array of >f8"),
    ]  # fmt: skip
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            call()


def test_a_tracked_value_for_a_cotangent_declared_const():
    args = [*GIVEN, "const real value_bar[B]", "out real theta_bar[4, B]", *SIZES]
    adjoint = raw(GAUSSIAN, "gaussian_vjp", args, vjp=lambda g, out, *args: (g, None, None))
    k = raw(GAUSSIAN, "gaussian", [*GIVEN, "out real value[B]", *SIZES], vjp=adjoint)
    with pytest.raises(ArgumentError, match="a derivative by value_bar is needed, which is declared 'const real value_bar"):
        tg.hessian(lambda theta: (k(theta, X) ** 2).sum())(THETA)


# --- errors of declarations ---


@pytest.mark.parametrize(
    "text, column, message",
    [
        ("input real x[B]", 0, "a declaration begins with one of in, const, out"),
        ("", 0, "a declaration begins with"),
        ("in reel x[B]", 3, "wanted is a type: real, float"),
        ("in long x[B]", 3, "wanted is a type"),
        ("in real [B]", 7, "wanted is the name"),
        ("in real x y[B]", 10, "wanted are the dimensions"),
        ("in real x[B", 11, "wanted is ]"),
        ("in real x[B] z", 13, "nothing may follow"),
        ("in real x[2, B / 2]", 13, "a dimension is a name, a number"),
        ("in real x[2, ]", 13, "a dimension is a name"),
        ("in real x[slots]", 10, "the number of threads, is a dimension of work arrays only"),
        ("out real x", 10, "an array of role out needs its dimensions"),
        ("work unsaved real x[B]", 5, "a work array is never saved"),
        ("in int n[B]", 3, "whole numbers have no derivative: declare them const"),
        ("size B C", 7, 'wanted is "size" and the name'),
        ("size B[2]", 6, 'wanted is "size"'),
    ],
)
def test_declarations(text, column, message):
    with pytest.raises(KernelError, match=re.escape(message)) as caught:
        raw(GAUSSIAN, "gaussian", [text])
    shown = str(caught.value).split("\n")
    assert shown[1] == f"    {text}" and shown[2].index("^") == 4 + column


def test_declarations_and_source():
    args = [*GIVEN, "out real value[B]", *SIZES]
    bounded = GAUSSIAN.replace("void gaussian", "void __launch_bounds__(128, 2) gaussian")
    whole = [*args[:3], "const int B", "size N"]
    cases = [
        (lambda: raw(GAUSSIAN, "gauss", args), "no __global__ function 'gauss'; it has gaussian, gaussian_vjp, gaussian_vjp_vjp"),
        (lambda: raw("__global__ void f(real* y) {}", "f", ["out real y[2]"], grid=1), 'write extern "C" __global__ void f'),
        (lambda: raw(bounded, "gaussian", args[:4]), "4 parameters are declared, the C function has 5"),
        (lambda: raw(GAUSSIAN, "gaussian", whole), "is declared 'const int B', which is int; the C text is `long long B`"),
        (lambda: raw(GAUSSIAN, "gaussian", ["in real theta", *args[1:]]), "parameter 0 is declared 'in real theta', a value"),
        (lambda: raw(GAUSSIAN, "gaussian", [args[0], "out real x[2, B]", *args[2:]]), "to be written; the C text is `const real"),
        (lambda: raw(GAUSSIAN, "gaussian", [*args[:2], "out real value[M]", *args[3:]]), "or `const` argument tells the dimension M"),
        (lambda: raw(GAUSSIAN, "gaussian", [*args[:4], "size M"]), "tells the dimension M"),
        (lambda: raw(GAUSSIAN, "gaussian", [*args[:4], "size B"]), "the name B is declared twice"),
        (lambda: raw(GAUSSIAN, "gaussian", args, samples="M"), "samples='M' is to say how many threads start"),
        (lambda: raw(GAUSSIAN, "gaussian", args, samples="2 B"), "samples='2 B'; wanted is a dimension"),
        (lambda: raw(GAUSSIAN, "gaussian", args, block=(64, 32)), "block=(64, 32) is not 1 to 1024 threads"),
        (lambda: raw(GAUSSIAN, "gaussian", [*GIVEN, "in real value[B]", *SIZES]), "no output is declared"),
    ]  # fmt: skip
    for make, text in cases:
        with pytest.raises(KernelError, match=re.escape(text)):
            make()


def test_rules_must_fit():
    first = [*GIVEN, "in real value_bar[B]", "out real theta_bar[4, B]", *SIZES]
    args = [*GIVEN, "out real value[B]", *SIZES]

    def with_rule(old, new, which="vjp"):
        source = re.sub(rf"\b{old}\b", new, GAUSSIAN)
        rule = raw(source, "gaussian_vjp", [re.sub(rf"\b{old}\b", new, a) for a in first])
        return raw(GAUSSIAN, "gaussian", args, **{which: rule})

    for old, new, text in [
        ("value_bar", "v_bar", "takes v_bar, which is neither an input or output of gaussian .* nor one of value_bar"),
        ("theta_bar", "t_bar", "does not give theta_bar"),
    ]:
        with pytest.raises(KernelError, match=text):
            with_rule(old, new)
    with pytest.raises(KernelError, match="its jvp, the kernel gaussian_vjp, takes value_bar"):
        with_rule("value_bar", "value_bar", "jvp")
    short = raw(GAUSSIAN, "gaussian_vjp", [*GIVEN, "in real value_bar[B]", "out real theta_bar[B]", *SIZES])
    with pytest.raises(KernelError, match=r"gives 'out real theta_bar\[B\]', which does not fit 'in real theta"):
        raw(GAUSSIAN, "gaussian", args, vjp=short)


def test_compile_errors_name_the_line():
    bad = GAUSSIAN.replace("logs += log(", "logs += lag(")
    line = [n for n, text in enumerate(bad.split("\n"), 1) if "lag(" in text][0]
    with pytest.raises(KernelError, match=rf"(?s)gaussian.cu, line {line}: error: .*lag.*\n    logs \+= lag\(theta"):
        gaussian(0, bad)(THETA, X)


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    source = kernel("never_compiled", "const real* x, real* y, long long B", f"{LOOP} y[b] = x[b];")
    with pytest.raises(KernelError, match=r"needs g\+\+ \(install it.*pass cpu="):
        raw(source, "never_compiled", ["in real x[B]", "out real y[B]", "size B"])(np.ones(2))


# --- threads, processes, files ---


def test_source_from_a_file(tmp_path):
    (tmp_path / "mine.cu").write_text(kernel("f", "const real* x, real* y, long long B", f"{LOOP} y[b] = x[b] + wrong;"))
    with pytest.raises(KernelError, match="mine.cu, line 4"):
        raw(tmp_path / "mine.cu", "f", ["in real x[B]", "out real y[B]", "size B"])(np.ones(2))


def test_python_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    source = GAUSSIAN + "// compiled by several threads at once\n"
    k, found = gaussian(1, source), []

    def work(n):
        found.append(tg.grad(lambda theta: k(theta, X).sum())(THETA + n * 1e-3))

    threads = [threading.Thread(target=work, args=(0,)) for _ in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(found) == 6 and all(np.array_equal(f, found[0]) for f in found)
    assert len(list(tmp_path.glob("*.o"))) == 2


def test_barriers_in_several_threads():
    """Each thread has its own fibers, its own shared memory."""
    k, xs, found = reduction(), [np.random.default_rng(n).normal(size=5000) for n in range(4)], {}
    one = [k(x) for x in xs]
    threads = [threading.Thread(target=lambda n=n: found.update({n: [k(xs[n]) for _ in range(20)]})) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(found[n] == [one[n]] * 20 for n in range(4))


def test_workers_share_the_samples(monkeypatch):
    monkeypatch.setattr(tg.kernels._raw, "WORTH", 0)
    monkeypatch.setattr(tg.kernels._raw, "THREADS", 3)
    y = np.linspace(0.1, 1.2, 1001)
    x, d, r = y, np.zeros(1001), np.ones(1001)
    for _ in range(5):
        d, r = d * x + r + np.cos(r) * d, r * x + np.sin(r)
    np.testing.assert_allclose(tg.grad(lambda y: recursion()(y, 5).sum())(y), d, rtol=1e-12)
    np.testing.assert_allclose(gaussian()(THETA, X), VALUE)


def test_processes_share_a_folder(tmp_path):
    program = (
        "import numpy as np, raw_kernels as r, tapegrad as tg; "
        "print(tg.grad(lambda t: r.gaussian(1)(t, r.X).sum())(r.THETA).round(6).tolist())"
    )
    path = os.pathsep.join([str(Path(tg.__file__).parents[1]), str(Path(__file__).parent)])
    environment = {**os.environ, "TAPEGRAD_CACHE": str(tmp_path), "PYTHONPATH": path}
    for _ in range(2):
        started = [subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) for _ in range(2)]
        assert [p.communicate()[0].decode().strip() for p in started] == [str(GRADIENT.round(6).tolist())] * 2
    assert len(list(tmp_path.iterdir())) == 2
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged")
    run = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
    assert run.stdout.decode().strip() == str(GRADIENT.round(6).tolist())


# --- CuPy ---


class OnHost:
    """What `loaded` gives, run by the host: the memory of hosted CuPy is the host's."""

    def __init__(self, view, launches, text, entry, options=(), name="kernel.cu"):
        head, _, source = text.partition("\n#line 1 ")
        self.run = tg.kernels._host.host_kernel(entry, source.partition("\n")[2], entry, head.split()[1], name)
        self.view, self.launches, self.entry = view, launches, entry

    def __call__(self, grid, block, values, shared_mem=0):
        self.launches.append((self.entry, grid, block))
        self.run(grid, block, [self.view(v) if hasattr(v, "get") else v for v in values], shared_mem)


@pytest.fixture
def device(xp, monkeypatch):
    """(library, the launches): on hosted CuPy a launch runs the host's code on the same memory."""
    launches = []
    if xp is not np and getattr(xp.cuda.runtime, "_hosted", False):
        import hosted_cupy

        from tapegrad.kernels import _raw_cuda

        made = {}

        def loaded(*args):
            return made.setdefault(args, OnHost(hosted_cupy.host_view, launches, *args))

        monkeypatch.setattr(_raw_cuda, "loaded", loaded)
        monkeypatch.setattr(_raw_cuda, "limits", lambda function: (256, 40))
        monkeypatch.setattr(_raw_cuda, "blocks_at_once", lambda function, threads, shared: 65536 // (40 * threads))
    return xp, launches


def host(a):
    return a.get() if hasattr(a, "get") else np.asarray(a)


@pytest.mark.parametrize("real", REALS)
def test_founding_gaussian_on_both_libraries(device, real):
    xp, launches = device
    theta, x = xp.asarray(THETA, real), xp.asarray(X, real)
    k = gaussian(2)
    tight = 1e-12 if real is np.float64 else 1e-5
    value, gradient = tg.value_and_grad(lambda theta: k(theta, tg.Const(x)).sum())(theta)
    assert isinstance(gradient, xp.ndarray) and gradient.dtype == real
    np.testing.assert_allclose(host(gradient), GRADIENT, rtol=tight)
    np.testing.assert_allclose(host(value), sum(VALUE), rtol=tight)
    if launches:
        assert [name for name, *_ in launches] == ["gaussian", "gaussian_vjp"] and launches[0][2] == (128, 1, 1)
    H = host(tg.hvp(lambda theta: k(theta, x).sum(), theta, xp.ones_like(theta)))
    both = np.array(SECOND)[:, [0, 1, 2, 3]] + np.array(SECOND)[:, [4, 5, 4, 5]]
    np.testing.assert_allclose(H, both.T, rtol=10 * tight)
    tangent = tg.jvp(lambda theta: k(theta, x), (theta,), (xp.ones_like(theta),))[1]
    np.testing.assert_allclose(host(tangent), GRADIENT.sum(axis=0), rtol=10 * tight)


def test_other_kernels_on_both_libraries(device):
    xp, launches = device
    rng = np.random.default_rng(0)
    c, x, which = rng.normal(size=3), rng.normal(size=(3, 700)), rng.integers(-1, 3, 700).astype(np.int32)
    k = linear()
    g = tg.grad(lambda c: (k(c, xp.asarray(x), xp.asarray(which), 2.5) ** 2).sum())(xp.asarray(c))
    np.testing.assert_allclose(host(g), tg.grad(lambda c: (linear_formula(c, x, which, 2.5) ** 2).sum())(c), rtol=1e-12)
    y = np.linspace(0.1, 1.2, 2000)
    g = tg.grad(lambda y: recursion()(y, 5).sum())(xp.asarray(y))
    np.testing.assert_allclose(host(g), tg.grad(lambda y: recursion()(y, 5).sum())(y), rtol=1e-12)
    total = reduction()(xp.asarray(y))
    assert total.shape == ()
    np.testing.assert_allclose(host(total), (y * y).sum())
    s = stencil()
    np.testing.assert_allclose(
        host(tg.grad(lambda y: (s(y) ** 2).sum())(xp.asarray(y))), tg.grad(lambda y: (s(y) ** 2).sum())(y), rtol=1e-12
    )
    assert tg.grad(lambda a: scale()(a, a).sum())(xp.asarray(y[:3])).tolist() == (2 * y[:3]).tolist()
    assert k(xp.ones(3), xp.ones((3, 0)), xp.zeros(0, np.int32), 1.0).shape == (0,)
    wide = xp.asarray(np.repeat(THETA, 2, axis=1))[:, ::2]
    np.testing.assert_allclose(host(gaussian()(wide, xp.asarray(X))), VALUE, rtol=1e-12)
    if launches:
        blocks = {name: (grid[0], block[0]) for name, grid, block in launches}
        assert blocks["reduction"] == (1, 64) and blocks["stencil"] == (16, 128)


@pytest.mark.cupy_only
def test_devices_are_checked(device):
    xp, launches = device
    k = gaussian()
    with pytest.raises(DeviceError, match="gaussian: theta is on device 0, x is on the host"):
        k(xp.asarray(THETA), X)
    with pytest.raises(ArgumentError, match=r'wanted a number \(for an array: "const double scale\[\]"\)'):
        linear()(xp.ones(2), xp.ones((2, 3)), xp.zeros(3, np.int32), xp.asarray(1.0))


@pytest.mark.cupy_only
def test_blocks_are_bounded_by_registers(device, monkeypatch):
    xp, _ = device
    raw_cuda = pytest.importorskip("tapegrad.kernels._raw_cuda")
    monkeypatch.setattr(raw_cuda, "limits", lambda function: (256, 255))
    with pytest.raises(KernelError, match="a block of 512 threads was asked for, its 255 registers allow 256; pass a smaller block="):
        gaussian(0, block=512)(xp.asarray(THETA), xp.asarray(X))
    monkeypatch.setattr(raw_cuda, "limits", lambda function: (100, 255))
    np.testing.assert_allclose(host(gaussian(0)(xp.asarray(THETA), xp.asarray(X))), VALUE)


@pytest.mark.cupy_only
def test_slots_are_bounded_by_residency(device, monkeypatch):
    xp, launches = device
    if not getattr(xp.cuda.runtime, "_hosted", False):
        pytest.skip("looks at the launches of the stand-in")
    from tapegrad.kernels import _raw_cuda

    tg.grad(lambda x: recursion()(x, 3).sum())(xp.ones(300_000))
    grid = {name: grid[0] for name, grid, _ in launches}
    assert grid["recursion"] == -(-300_000 // 128) and grid["recursion_vjp"] == 132 * (65536 // (40 * 128))
    monkeypatch.setattr(_raw_cuda.cupy.cuda.runtime, "memGetInfo", lambda: (1 << 16, 1 << 20))
    tg.grad(lambda x: recursion()(x, 3).sum())(xp.ones(300_000))
    assert launches[-1][1][0] == 10  # half of 64 KiB holds 10 blocks of 128 slots of 3 doubles
    monkeypatch.setattr(_raw_cuda.cupy.cuda.runtime, "memGetInfo", lambda: (1 << 10, 1 << 20))
    with pytest.raises(KernelError, match="the work arrays of 128 threads need 3072 bytes"):
        tg.grad(lambda x: recursion()(x, 3).sum())(xp.ones(300))


@pytest.mark.parametrize("arch", [75, 90, 120])
@pytest.mark.parametrize("make", [gaussian, stencil, reduction, linear, recursion, while_loop, scale])
def test_nvrtc_compiles(make, arch):
    pytest.importorskip("cupy")
    from tapegrad.kernels._cuda import cubin

    for real in REALS:
        assert cubin(make().text(np.dtype(real)), arch)[0][:4] == b"\x7fELF"


# --- random formulas ---


def random_formula(seed):
    """A smooth formula of p parameters and a datum, by sympy."""
    rng = np.random.default_rng(seed)
    theta, x = sympy.symbols(f"t0:{2 + seed % 2}"), sympy.Symbol("x")
    e = x
    for _ in range(5):
        a, b = [theta[i] for i in rng.integers(0, len(theta), 2)]
        e = [lambda: sympy.sin(e * a) + b, lambda: e * a + b * x, lambda: sympy.exp(-((e - a) ** 2)) * b, lambda: e / (1 + a * a)][
            rng.integers(4)
        ]()
    return theta, x, e * theta[0] + theta[1] ** 2


def formula_kernels(theta, x, e):
    """value = sum over data of the formula, its adjoint, and the adjoint of that, written by sympy."""
    p = len(theta)
    u = sympy.symbols(f"u0:{p}")
    gradient = [sympy.diff(e, t) for t in theta]
    slope = sum(g * v for g, v in zip(gradient, u, strict=True))
    curved = [sympy.diff(slope, t) for t in theta]

    def text(name, parameters, sums, outs):
        load = "".join(f"const real t{k} = theta[{k} * B + b];" for k in range(p))
        load += "".join(f"const real u{k} = theta_bar_bar[{k} * B + b];" for k in range(p)) if "theta_bar_bar" in parameters else ""
        lines = [f"real s{k} = 0;" for k in range(len(sums))]
        adds = "".join(f"s{k} += {sympy.ccode(s)};" for k, s in enumerate(sums))
        lines.append(f"for (long long i = 0; i < N; ++i) {{ const real x = data[i]; {adds} }}")
        body = f"{LOOP} {{ {load} {' '.join(lines)} {' '.join(outs)} }}"
        return kernel(name, f"const real* theta, const real* data, {parameters}, long long B, long long N", body)

    bars = [f"theta_bar[{k} * B + b] = value_bar[b] * s{k};" for k in range(p)]
    source = text("f", "real* value", [e], ["value[b] = s0;"])
    source += text("f_vjp", "const real* value_bar, real* theta_bar", gradient, bars)
    second = "const real* value_bar, const real* theta_bar_bar, real* theta_bar, real* value_bar_bar"
    source += text("f_vjp_vjp", second, [*curved, slope], [*bars, f"value_bar_bar[b] = s{p};"])
    given, sizes = [f"in real theta[{p}, B]", "const real data[N]"], ["size B", "size N"]
    first = [*given, "in real value_bar[B]"]
    outs = [f"out real theta_bar[{p}, B]", "out real value_bar_bar[B]"]
    two = raw(source, "f_vjp_vjp", [*first, f"in real theta_bar_bar[{p}, B]", *outs, *sizes])
    one = raw(source, "f_vjp", [*first, outs[0], *sizes], vjp=two)
    return raw(source, "f", [*given, "out real value[B]", *sizes], vjp=one)


@pytest.mark.parametrize("seed", range(4))
def test_random_formulas(seed):
    """Value and all derivatives of two orders against the array tape, within programs that write and take parts."""
    theta, x, e = random_formula(seed)
    k, formula = formula_kernels(theta, x, e), sympy.lambdify([*theta, x], e, "numpy")
    rng = np.random.default_rng(seed)
    point, data, w = rng.uniform(0.3, 1.2, (len(theta), 5)), rng.uniform(-1, 1, 7), rng.normal(size=5)

    def tape(theta, data):
        return formula(*[t[:, None] for t in theta], data).sum(axis=1)

    def program(f):
        def run(theta):
            buffer = np.zeros(5)
            buffer[1:] = f(theta * 1.0, data)[1:]
            buffer[:2] += f(np.sin(theta), data)[:2] * w[:2]
            return (buffer**2 * w).sum()

        return run

    ours, theirs = program(k), program(tape)
    np.testing.assert_allclose(k(point, data), tape(point, data), rtol=1e-13)
    np.testing.assert_allclose(tg.grad(ours)(point), tg.grad(theirs)(point), rtol=1e-10, atol=1e-12)
    v = rng.normal(size=point.shape)
    np.testing.assert_allclose(tg.jvp(ours, (point,), (v,))[1], tg.jvp(theirs, (point,), (v,))[1], rtol=1e-10)
    np.testing.assert_allclose(tg.hvp(ours, point, v), tg.hvp(theirs, point, v), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(tg.hessian(ours)(point), tg.hessian(theirs)(point), rtol=1e-9, atol=1e-10)
