"""Kernels in CUDA C on CuPy arrays (over host memory) and by kernels.raw, against NumPy functions with a
complex step."""

import importlib.util
import pickle

import numpy as np
import pytest
from c_kernels import CASES, LEAPFROG, LOG_LIKELIHOOD, THETAS, TILED, X, leapfrog

import tapegrad as tg
from tapegrad.errors import ArgumentError, KernelError, NoRuleError
from tapegrad.kernels.launch.cuda import HostedCode, cubin
from tapegrad.loops.adjoint import adjoint
from tapegrad.loops.cuda_c.kernel_program import KernelText
from tapegrad.loops.cuda_c.thread_text import ThreadText
from tapegrad.loops.machine import code_of
from tapegrad.loops.program import LoopRefused, Scalar
from tapegrad.loops.reference import interpreted
from tapegrad.loops.tangent import tangent

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="NOT RUN: CuPy is missing"),
    pytest.mark.one_in(4),
]


@pytest.fixture(scope="module")
def cp():
    with tg.testing.host_cupy() as cupy:
        yield cupy


def on_device(cp, x):
    return cp.asarray(x) if isinstance(x, np.ndarray) else x


def on_host(x):
    return x.get() if hasattr(x, "get") else x


def loss_of(cp, name):
    c = CASES[name]
    k = cp.RawKernel(c.source, c.entry)
    want = c.reference(*c.args)
    w = np.cos(np.arange(np.size(want))).reshape(np.shape(want))

    def f(*args):
        y = c.launch(cp, k, *args)
        return (y * y * on_device(cp, w)).sum()

    d = [np.sin(1.0 + np.arange(np.size(x))).reshape(np.shape(x)) for x in c.args]
    step = [x + 1e-30j * t for x, t in zip(c.args, d, strict=True)]
    return f, c, d, (c.reference(*step) ** 2 * w).sum()


@pytest.mark.parametrize("name", CASES)
def test_derivatives(cp, name):
    f, c, d, want = loss_of(cp, name)
    args = [on_device(cp, x) for x in c.args]
    value, g = tg.value_and_grad(f, argnums=tuple(range(len(args))))(*args)
    slope = sum(np.sum(on_host(x) * t) for x, t in zip(g, d, strict=True))
    dots = tuple(on_device(cp, t) if np.ndim(t) else float(t) for t in d)
    np.testing.assert_allclose(float(value), want.real, rtol=1e-13)
    np.testing.assert_allclose(slope, want.imag / 1e-30, rtol=1e-12)
    np.testing.assert_allclose(float(tg.jvp(f, tuple(args), dots)[1]), slope, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["leapfrog", "block sums", *[pytest.param(n, marks=pytest.mark.long) for n in sorted(CASES)]]
)
def test_second_order(cp, name):
    """Forward over reverse, reverse over reverse, and differences of gradients."""
    f, c, d, _ = loss_of(cp, name)
    x, *rest = [on_device(cp, v) for v in c.args]
    v, g = on_device(cp, d[0]), tg.grad(lambda x: f(x, *rest))
    hv = on_host(tg.hvp(lambda x: f(x, *rest), x, v))
    again = on_host(tg.grad(lambda x: (g(x) * v).sum())(x))
    h = 1e-5
    slopes = [on_host(g(x + k * h * v) - g(x - k * h * v)) * w for k, w in ((1, 8.0), (2, -1.0))]
    np.testing.assert_allclose(hv, sum(slopes) / (12 * h), rtol=1e-6, atol=1e-6 * abs(hv).max())
    np.testing.assert_allclose(again, hv, rtol=1e-11, atol=1e-12 * abs(hv).max())


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiled product", "block sums", "hashed bins"])
def test_threads_in_other_orders(cp, name, monkeypatch):
    """The derivatives do not depend on the order in which threads run."""
    f, c, _, _ = loss_of(cp, name)
    args = [on_device(cp, x) for x in c.args]
    want = on_host(tg.grad(f)(*args))
    for order in (1, 6, 7):
        call = lambda self, grid, block, given, shared_mem=0, order=order: self.code(
            (*grid, 1, 1)[:3], (*block, 1, 1)[:3],
            [np.uintp(a.data.ptr) if isinstance(a, cp.ndarray) else a for a in given], shared_mem, order,
        )  # fmt: skip
        monkeypatch.setattr(HostedCode, "__call__", call)
        np.testing.assert_allclose(on_host(tg.grad(f)(*args)), want, rtol=1e-12)


@pytest.mark.long
@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_kernel_of_the_discussion_in_c(cp, dtype):
    """Its text as it stands: as RawKernel, as raw kernel, per sample, and products with the Hessian."""
    source = LOG_LIKELIHOOD
    if dtype is np.float64:
        source = source.replace("float", "double").replace("logf", "log")
    kernel = cp.RawKernel(source, "log_likelihood_kernel")
    tol = 1e-12 if dtype is np.float64 else 2e-5

    def logLs(thetas, x):
        out = cp.zeros(thetas.shape[1], dtype)
        kernel((1,), (256,), (out, thetas, x, np.int32(x.shape[1]), np.int32(thetas.shape[1])))
        return out

    thetas, x = cp.asarray(THETAS.astype(dtype)), cp.asarray(X.astype(dtype))
    (value, pullback) = tg.vjp(lambda t: logLs(t, x), thetas)
    g = on_host(pullback(cp.ones(3, dtype)))
    assert value.dtype == g.dtype == dtype
    np.testing.assert_allclose(on_host(value)[0], -28.663534402106272, rtol=tol)
    np.testing.assert_allclose(g[:, 0], [-80.0, 150.0, 250.0, 500.0], rtol=tol)
    one = tg.grad(lambda theta: logLs(theta[:, None].copy(), x)[0])
    np.testing.assert_allclose(on_host(tg.vmap(one, in_axes=1, out_axes=1)(thetas)), g, rtol=10 * tol)
    args = ["out real l[B]", "in real t[4, B]", "const real x[2, N]", "const int N", "const int B"]
    raw = tg.kernels.raw(
        LOG_LIKELIHOOD.replace("float", "real").replace("logf", "log"),
        "log_likelihood_kernel", args, vjp="derive", threads="B",
    )  # fmt: skip
    total = lambda t: raw(t, on_host(x), 5, 3).sum()
    np.testing.assert_allclose(tg.grad(total)(on_host(thetas)), g, rtol=10 * tol)
    v = np.ones((4, 3), dtype)
    hv = tg.hvp(lambda t: logLs(t, x).sum(), thetas, cp.asarray(v))
    np.testing.assert_allclose(tg.hvp(total, on_host(thetas), v), on_host(hv), rtol=100 * tol)
    np.testing.assert_allclose(on_host(hv)[:, 0], [1100.0, -3500.0, -6900.0, -19000.0], rtol=100 * tol)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_machine_code_is_the_interpreters_and_nvrtc_takes_the_text(name):
    c = CASES[name]
    text = KernelText(c.source, "<kernel>")
    assert text.program(c.entry, False, 64).name == c.entry
    p = text.program(c.entry, True, 64)
    wrt = tuple(k for k, q in enumerate(p.params) if q.type == "f8")
    for q in (
        p,
        adjoint(p, wrt),
        tangent(p, wrt),
        *[x for x in [adjoint(p, wrt).derived["heights"]] if x.outs],
    ):
        made = ThreadText(q)
        assert cubin(made.text, 90)[0] and f"void {made.entry}(" in made.text


def test_division_of_negative_and_of_unsigned_numbers():
    """C's own rules for integers, computed by the interpreter and by machine code."""
    source = """__global__ void f(const int* a, const int* b, double* y, unsigned u, unsigned long long w) {
      for (int i = 0; i < 4; i++) {
        y[i] = a[i] / b[i] + 100.0 * (a[i] % b[i]);
        unsigned int v = a[i];
        y[4 + i] = v / 3u; y[8 + i] = v > u ? 1 : 0; y[12 + i] = (int)(v * 2654435761u) >> 3;
        y[16 + i] = (w * 6364136223846793005ull + a[i]) >> 33;
      }
      y[20] = -7 / 2; y[21] = -7 % 2; y[22] = ~5 & 0xFF; y[23] = 1 << 4 | 3; y[24] = (u - 9) / 2;
    }"""
    p = KernelText(source, "<integers>").program("f", False)
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    v = a % 2**32
    product = v * 2654435761 % 2**32
    want = [
        3 + 100,
        -3 - 100,
        -3 + 100,
        3 - 100,
        *(v // 3),
        *(v > 8),
        *((product - 2**32 * (product >= 2**31)) >> 3),
    ]
    want += [(5 * 6364136223846793005 + int(n)) % 2**64 >> 33 for n in a]
    want += [-3, -1, ~5 & 0xFF, 19, (8 - 9) % 2**32 // 2]
    for run in (interpreted, code_of(p)):
        y = np.zeros(25)
        run(p, [a, b, y, 8, 5, *[1] * 6]) if run is interpreted else run([a, b, y, 8, 5, *[1] * 6])
        np.testing.assert_array_equal(y, np.array(want, float))


# --- CuPy's elementwise and reduction kernels ---


def elementwise(cp):
    return cp.ElementwiseKernel(
        "T x, raw T y, float64 q, int32 power",
        "T z, T w",
        """
        T t = shifted(x);
        if (t > 1) { z = t * y[i % y.size()] * q; } else { z = exp(-t) * n; }
        w = 0;
        for (int k = 1; k <= power; k++) w += pow(x, k) / (k + (i & 1));
        """,
        "shifted_sum",
        preamble="__device__ double shifted(double x) { return x + 0.25; }",
    )


def by_numpy(x, y, q, power):
    n, i = x.size, np.arange(x.size).reshape(x.shape)
    t = x + 0.25
    z = np.where(t.real > 1, t * y[i % y.size] * q, np.exp(-t) * n)
    return z, sum(x**k / (k + (i & 1)) for k in range(1, power + 1))


@pytest.mark.long
def test_an_elementwise_kernel(cp):
    k, r = elementwise(cp), np.random.default_rng(1)
    x, y, q = r.random((3, 4)) * 2, r.random(5), 1.3
    d = [r.standard_normal(np.shape(v)) for v in (x, y, q)]

    def f(x, y, q):
        z, w = k(x.T, y, q, 3)
        return (z * w).sum()

    Z, W = by_numpy(*[(v + 1e-30j * t).T for v, t in ((x, d[0]), (y, d[1]))], q + 1e-30j * d[2], 3)
    want = (Z * W).sum()
    args = (cp.asarray(x), cp.asarray(y), q)
    value, g = tg.value_and_grad(f, argnums=(0, 1, 2))(*args)
    np.testing.assert_allclose(float(value), want.real, rtol=1e-13)
    slope = sum(np.sum(on_host(a) * b) for a, b in zip(g, d, strict=True))
    np.testing.assert_allclose(slope, want.imag / 1e-30, rtol=1e-12)
    tg.testing.check_grads(lambda x, y: f(x, y, q), args[:2])
    rows = lambda x: k(x, args[1], q, 2)[0].sum()
    each = tg.vmap(tg.grad(rows))(args[0])
    np.testing.assert_allclose(on_host(each)[1], on_host(tg.grad(rows)(args[0][1])), rtol=1e-13)


@pytest.mark.long
def test_an_elementwise_kernel_with_outputs_and_a_size(cp):
    axpy = cp.ElementwiseKernel("float64 a, float32 x", "float64 y", "y += a * x", "axpy")
    ramp = cp.ElementwiseKernel("raw float64 x", "raw float64 y", "y[i] = x[n - 1 - i] * i", "ramp")
    x = cp.asarray(np.array([[1.0, 2.0], [3.0, 4.0]]))

    def f(x):
        y = x * x
        axpy(2.0, cp.ones(2, np.float32), y)
        z = cp.zeros(4)
        ramp(x.ravel(), z, size=4)
        return (y * x).sum() + (z * z).sum()

    assert float(f_value(x, np)) == float(tg.value_and_grad(f)(x)[0])
    tg.testing.check_grads(f, (x,))


def f_value(x, np):
    x = x.get()
    return ((x * x + 2.0) * x).sum() + ((x.ravel()[::-1] * np.arange(4)) ** 2).sum()


@pytest.mark.long
def test_reduction_kernels(cp):
    r = np.random.default_rng(3)
    x, y = r.standard_normal((3, 4)), r.random(4) + 0.5
    norm = cp.ReductionKernel("T x, T y", "T z", "x * x * y", "a + b", "z = sqrt(a)", "0", "weighted_norm")
    best = cp.ReductionKernel("T x", "T z", "x", "max(a, b)", "z = a", "", "largest")
    mean = cp.ReductionKernel(
        "T x", "T z", "x", "a + b", "z = a / (_in_ind.size() / _out_ind.size())", "0", "mean"
    )
    X, Y = cp.asarray(x), cp.asarray(y)
    cases = [
        (lambda x: norm(x, Y), lambda x: np.sqrt((x * x * y).sum())),
        (lambda x: (norm(x, Y, axis=1) ** 3).sum(), lambda x: (np.sqrt((x * x * y).sum(1)) ** 3).sum()),
        (lambda x: best(x, axis=0, keepdims=True)[0, 2] + mean(x.T, axis=-1)[1],
         lambda x: x[x.real.argmax(0)[2], 2] + x[:, 1].mean()),
    ]  # fmt: skip
    d = r.standard_normal(x.shape)
    for f, reference in cases:
        want = reference(x + 1e-30j * d)
        value, g = tg.value_and_grad(f)(X)
        np.testing.assert_allclose(float(value), want.real, rtol=1e-14)
        np.testing.assert_allclose(np.sum(on_host(g) * d), want.imag / 1e-30, rtol=1e-12)
        tg.testing.check_grads(f, (X,))


# --- raw kernels whose rules are derived ---


def leapfrog_kernel():
    args = ["inout double q[n]", "in double p[n]", "in double k", "const double end", "const long long n"]
    return tg.kernels.raw(LEAPFROG, "leapfrog", args, vjp="derive", samples="n")


@pytest.mark.long
def test_derived_rules_of_a_raw_kernel(cp):
    k, (q, p, stiffness) = leapfrog_kernel(), CASES["leapfrog"].args
    f = lambda q, p, s: (k(q, p, s, 2.0, 3) ** 2).sum()
    d = [np.array([0.3, -1.0, 0.2]), np.array([0.1, 0.5, -0.7]), 0.4]
    want = (leapfrog(*[v + 1e-30j * t for v, t in zip((q, p, stiffness), d, strict=True)], 2.0) ** 2).sum()
    value, g = tg.value_and_grad(f, argnums=(0, 1, 2))(q, p, stiffness)
    np.testing.assert_allclose(value, want.real, rtol=1e-13)
    np.testing.assert_allclose(
        sum(np.sum(a * b) for a, b in zip(g, d, strict=True)), want.imag / 1e-30, rtol=1e-12
    )
    np.testing.assert_allclose(tg.jvp(f, (q, p, stiffness), tuple(d))[1], want.imag / 1e-30, rtol=1e-12)
    device = tg.grad(f)(cp.asarray(q), cp.asarray(p), stiffness)
    np.testing.assert_allclose(on_host(device), g[0], rtol=1e-13)
    tg.testing.check_grads(lambda q, p: f(q, p, stiffness), (q, p))
    copy = pickle.loads(pickle.dumps(k))
    np.testing.assert_array_equal(
        tg.grad(lambda q: copy(q, p, 1.3, 2.0, 3).sum())(q), tg.grad(lambda q: k(q, p, 1.3, 2.0, 3).sum())(q)
    )


def test_the_text_of_a_derivative():
    text = tg.kernels.source(leapfrog_kernel(), "adjoint")
    assert "x += h * v;" in text and "atomicAdd(&p0_bar[" in text and "yielded0" in text
    assert cubin(text, 80)[0]
    assert tg.kernels.source(leapfrog_kernel(), None).count("__global__") == 1
    assert "float" not in tg.kernels.source(leapfrog_kernel(), "tangent")
    with pytest.raises(ArgumentError, match="vjp='derive'"):
        tg.kernels.source(tg.kernels.raw(LEAPFROG, "leapfrog", leapfrog_kernel()._call[1], samples="n"))
    with pytest.raises(ArgumentError, match="it is 'adjoint', 'tangent' or None"):
        tg.kernels.source(leapfrog_kernel(), "hessian")


# --- what is refused ---

REFUSED = {
    "template <class T> __global__ void f(T* x) {}":
        "line 1: 'template' is not known in kernels",
    "struct P { double x; };\n__global__ void f(double* x) {}":
        "line 1: 'struct'",
    "__global__ void f(double* x) {\n  x[0] = __shfl_down_sync(0xffffffff, x[0], 1);\n}":
        "f, line 2: the function __shfl_down_sync",
    "__global__ void f(double* x) {\n  double old = atomicAdd(x, 1.0);\n}":
        "line 2: atomicAdd: its result depends on the order",
    "__global__ void f(double* x) {\n  atomicExch(x, 1.0);\n}":
        "line 2: atomicExch",
    "__global__ void f(double* x) {\n  float* y = (float*)x;\n}":
        "line 2: a cast of a pointer to another type",
    "__global__ void f(double* x) {\n  if (threadIdx.x > 3) __syncthreads();\n x[threadIdx.x] = 1;}":
        "barrier in a loop or branch that differs",
    "__global__ void f(double* x) {\n  x[0] = y;\n}":
        "line 2: y is not defined",
    "__device__ double g(double x) { return x > 1 ? g(x - 1) : x; }\n"
    "__global__ void f(double* x) { x[0] = g(x[0]); }":
        "g calls itself",
    "#if N > 3\n#endif\n__global__ void f(double* x) {}":
        "line 1: the directive #if",
    "__global__ void f(double* x) {\n  double a;\n  x[0] = a;\n}":
        "line 3: .* is not defined here",
    "__global__ void f(double* x) {\n  switch (1) {}\n}":
        "line 2: 'switch' is not known",
    "__global__ void f(double* x, double* y) {\n  double* p = x;\n  if (threadIdx.x) p = y;\n  *p = 1.0;\n}":
        "line 4: .* different kinds",
}  # fmt: skip


@pytest.mark.parametrize("source", REFUSED)
def test_what_is_refused(source):
    with pytest.raises(LoopRefused, match=f"(?s).*{REFUSED[source]}"):
        KernelText(source, "<f>").program("f", False)


def test_bad_calls(cp):
    x, y = cp.ones(4), cp.ones(4, np.float32)
    text = 'extern "C" __global__ void f(double* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }'
    k = cp.RawKernel(text, "f")
    call = lambda *args: tg.grad(lambda x: twice(k, x, args))(x)
    np.testing.assert_array_equal(on_host(call(4)), [2.0] * 4)
    for args, match in (((), "f takes 2 arguments, 1 were given"), ((2.5,), "n is of type int, and 2.5")):
        with pytest.raises(ArgumentError, match=match):
            call(*args)
    with pytest.raises(ArgumentError, match="x points to double, and an array of float32"):
        tg.grad(lambda x: twice(k, x, (4,)))(y)
    with pytest.raises(ArgumentError, match="x is not contiguous"):
        tg.grad(lambda x: twice(k, x.reshape(2, 2).T, (4,), copied=False))(x)
    with pytest.raises(
        NoRuleError, match=r"(?s)RawKernel g: g: the source has no function.*tapegrad.kernels.raw"
    ):
        tg.grad(lambda x: twice(cp.RawKernel(text, "g"), x, (4,)))(x)
    with pytest.raises(KernelError, match="pass no jvp"):
        tg.kernels.raw(text, "f", ["inout double x[B]", "const int n"], vjp="derive", jvp=twice, threads="B")
    with pytest.raises(LoopRefused, match="template"):
        tg.kernels.raw(
            "template <int n> __global__ void g() {}\n" + text,
            "f",
            ["inout double x[B]", "const int n"],
            vjp="derive",
            threads="B",
        )


def twice(k, x, args, copied=True):
    y = x.copy() if copied else x
    k((1,), (4,), (y, *args))
    return y.sum()


def test_an_index_out_of_bounds_is_an_error():
    text = "__global__ void f(double* x, long long B) {\n  x[blockIdx.x + 1] = 2.0 * x[blockIdx.x];\n}"
    p = KernelText(text, "<f>").program("f", False)
    with pytest.raises(KernelError, match="f, line 2 of <f>: an index is out of bounds"):
        code_of(p)([np.ones(3), 3, 1, 1, 3, 1, 1, 1])
    assert isinstance(p.params[1], Scalar) and TILED
