"""The generated text: own exp, log, ... against multiple precision; CUDA C run on the CPU, bit for bit the LLVM code's results;
NVRTC for many devices; the graph; the cache."""

import ctypes
import hashlib
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import mpmath
import numpy as np
import pytest
from test_kernels_likelihood import GAUSSIAN, THETA, X
from test_kernels_recursion import DIFFUSE, KNOWN, MODELS, NILE, POINTS

import tapegrad as tg
from tapegrad.kernels import _cache, _cpu, emit_cuda
from tapegrad.kernels._cpu import Launcher, compiled
from tapegrad.kernels._cuda import cubin
from tapegrad.kernels._graph import Graph
from tapegrad.kernels._lower import lowered

kernels = tg.kernels
NO_RESERVE = 0x4000  # mmap.MAP_NORESERVE from Python 3.13 on
FOLDER = Path(tempfile.gettempdir()) / f"tapegrad_text_{os.getuid() if hasattr(os, 'getuid') else 0}"

# --- elementary functions ---

RANGES = {
    "exp": [(-745, 709), (-1, 1)], "log": [(1e-300, 1e300), (0.5, 2.0)], "log1p": [(-0.999, 10), (-1e-8, 1e-8)],
    "expm1": [(-40, 700), (-1e-3, 1e-3)], "tanh": [(-25, 25), (-1e-2, 1e-2)], "sin": [(-1e5, 1e5), (-3, 3)], "cos": [(-1e5, 1e5), (-3, 3)],
}  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_elementary_functions(name, dtype):
    k = kernels.map(getattr(np, name))
    rng = np.random.default_rng(0)
    for low, high in RANGES[name]:
        if dtype is np.float32:
            low, high = max(low, -85 if name != "tanh" else low), min(high, 85 if name not in ("log",) else 1e30)
            low = 1e-30 if name == "log" and low < 1e-30 else low
        x = rng.uniform(low, high, 400) if name != "log" else np.exp(rng.uniform(np.log(low), np.log(high), 400))
        x = x.astype(dtype)
        exact = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
        error = np.abs(k(x).astype(float) - exact) / np.spacing(np.abs(exact).astype(dtype)).astype(float)
        far = name in ("sin", "cos") and high > 10  # near a zero far from the origin only the absolute error is small
        bound = np.abs(k(x).astype(float) - exact).max() / np.finfo(dtype).eps if far else error.max()
        assert bound < (2.5 if dtype is np.float64 else 4.0), (name, low, high, bound)


@pytest.mark.parametrize("name", RANGES)
def test_elementary_functions_at_the_edges(name):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324, -5e-324, 2.2e-308, -1.0, 710.0, -746.0, -740.0])
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    if name in ("sin", "cos"):
        keep = np.abs(x) < 1e9
        x, expected = x[keep], expected[keep]
    np.testing.assert_allclose(kernels.map(getattr(np, name))(x), expected, rtol=1e-15, atol=5e-324)


# --- CUDA C on the CPU ---

SHIM = r"""
#include <cmath>
#include <cstring>
using std::fma; using std::floor; using std::sqrt; using std::fabs; using std::fmin; using std::fmax;
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;
static unsigned long long atomicMax(unsigned long long* p, unsigned long long v) { auto old = *p; if (v > old) *p = v; return old; }
"""


def host_kernel(source, signature):
    """The source compiled by g++: a function that runs all threads one after the other."""
    names = [name for name, _, _ in signature.parameters]
    types = ", ".join(f"{kind} {name}" for name, kind, _ in signature.parameters)
    launch = f"""
extern "C" void launch(unsigned grid, unsigned block, {types}) {{
  gridDim.x = grid; blockDim.x = block;
  for (unsigned b = 0; b < grid; ++b) for (unsigned t = 0; t < block; ++t) {{
    blockIdx.x = b; threadIdx.x = t; kernel({", ".join(names)}); }}
}}"""
    text = SHIM + source + launch
    flags = ["-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-march=native"]
    FOLDER.mkdir(exist_ok=True)
    library = FOLDER / (hashlib.sha256((text + str(flags)).encode()).hexdigest()[:24] + ".so")
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=FOLDER) as place:
            (Path(place) / "k.cpp").write_text(text)
            subprocess.run(["g++", *flags, str(Path(place) / "k.cpp"), "-o", str(Path(place) / "k.so")], check=True)
            os.replace(Path(place) / "k.so", library)
    return ctypes.CDLL(str(library)).launch


def run_on_host(low, dtype, inputs, data, steps, batch, per_sample=False, grid=2, block=4):
    source, _, signature = emit_cuda(low, dtype, per_sample)
    caps, size = np.zeros(2 * len(low.bodies) + 2, np.int64), low.arena
    for n, carry, loop in low.taped():
        cap = steps if loop.data else loop.cap or 64
        caps[2 * n], caps[2 * n + 1] = size, cap
        size += cap * carry
    tape, needed = np.full(max(size * grid * block, 1), np.nan, dtype), np.zeros(8, np.int64)
    outs = [np.full((rows, batch), 7.0, dtype) for rows in signature.outputs]
    arrays = [*inputs, data if data is not None else inputs[0], *outs, tape]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    tail = [ctypes.c_void_p(a.ctypes.data) for a in (caps, needed)]
    host_kernel(source, signature)(grid, block, *pointers, ctypes.c_longlong(batch), ctypes.c_longlong(steps), *tail)
    return outs


def cases():
    rng = np.random.default_rng(0)
    yield "gaussian", GAUSSIAN, np.repeat(THETA, 7, axis=1), X
    yield "known", KNOWN, np.repeat(POINTS, 9, axis=1) + 0.1 * rng.normal(size=(2, 18)), NILE
    holes = NILE[1:].copy()
    holes[[3, 70]] = np.nan
    yield "holes", DIFFUSE, POINTS, holes
    for name, make in MODELS.items():
        init, step, theta, data = make()
        yield name, kernels.recursion(init, step), theta[:, None] + 0.02 * rng.normal(size=(theta.size, 11)), data


CASES = {name: rest for name, *rest in cases()}
QUICK = ("gaussian", "holes", "garch")


@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT RUN: CUDA C on the CPU, for there is no g++")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name, kind, order", [(name, "VG", 0) for name in CASES] + [(name, "R", 1) for name in QUICK])
def test_cuda_source_gives_the_bits_of_the_cpu_kernel(name, kind, order, dtype):
    k, theta, data = CASES[name]
    rng = np.random.default_rng(1)
    inputs = [np.ascontiguousarray(x, dtype) for x in [theta] + [rng.normal(size=theta.shape)] * order]
    data = np.ascontiguousarray(data, dtype)
    rows = 0 if data.ndim == 1 else data.shape[0]
    low = k.lowered(theta.shape[0], rows, kind, order, bool(np.isnan(data).any()))
    batch, steps = theta.shape[1], data.shape[-1]
    launcher = Launcher(low, np.dtype(dtype), False)
    ours = [np.empty((r, batch), dtype) for r in launcher.outputs]
    launcher(inputs, data, steps, ours, batch)
    for a, b in zip(ours, run_on_host(low, dtype, inputs, data, steps, batch), strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b)
    single = [np.empty((r, 1), dtype) for r in launcher.outputs]  # the scalar form
    launcher([np.ascontiguousarray(x[:, :1]) for x in inputs], data, steps, single, 1)
    for a, b in zip(ours, single, strict=True):
        assert np.array_equal(a[:, :1], b)


@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT RUN: CUDA C on the CPU, for there is no g++")
def test_cuda_loops():
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s * x + np.sin(s) * i, 1.0))
    x, n = np.linspace(0.5, 1.5, 13), np.arange(13.0)
    value = k(x, n.astype(int))
    (family, _) = k._families[((), ()), (False, True)]
    low = lowered(family.derived("R", 0, ()))
    ones = np.ones((1, 13))
    (gradient,) = run_on_host(low, np.float64, [x[None].copy(), n[None].copy(), ones], None, 0, 13)
    assert np.array_equal(gradient[0], tg.grad(lambda a: k(a, n.astype(int)).sum())(x))
    (again,) = run_on_host(lowered(family.derived("F", 0, ())), np.float64, [x[None].copy(), n[None].copy()], None, 0, 13)
    assert np.array_equal(again[0], value)


@pytest.mark.parametrize("name", ["gaussian", "known", "kalman inv"])
@pytest.mark.parametrize("arch", [75, 80, 86, 89, 90, 100, 120])
def test_nvrtc_compiles(name, arch):
    pytest.importorskip("cupy")
    k, theta, data = CASES[name]
    for dtype in (np.float32, np.float64):
        source, _, _ = emit_cuda(k.lowered(theta.shape[0], 0 if data.ndim == 1 else data.shape[0]), dtype)
        code, log = cubin(source, arch, ("-std=c++17", "-fmad=false", "-default-device", "--ptxas-options=-v"))
        assert code[:4] == b"\x7fELF"
        if name != "kalman inv":
            assert "0 bytes spill stores" in log


# --- graph and cache ---


@pytest.mark.skipif(sys.platform != "linux", reason="NOT RUN: index arithmetic beyond 2^31 needs memory that is only reserved")
def test_more_than_two_to_the_31_elements():
    """The last samples of a batch of 2^29 + 32 with 5 parameters, in memory of which only these columns exist."""
    stride, rows = 2**29 + 32, 5
    size = 4 * stride * rows
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    theta = np.frombuffer(memory, np.float32).reshape(rows, stride)
    theta[:, -64:] = np.arange(5.0)[:, None] + np.arange(64.0)
    k = kernels.likelihood(lambda theta, x: x * theta[0] + theta[4])
    launcher = Launcher(k.lowered(5, 0, "F"), np.dtype(np.float32), False)
    out = np.empty((1, stride), np.float32)
    launcher.run(launcher.width, [theta], np.ones(3, np.float32), 3, [out], stride, 64 // launcher.width, stride - 64)
    assert np.array_equal(out[0, -64:], 12 + 6 * np.arange(64.0))
    source, _, _ = emit_cuda(k.lowered(5, 0))
    assert "in0[4LL * batch + s]" in source and "int " not in source.partition("__global__")[2]


def test_threads_give_the_same_bits(monkeypatch):
    rng = np.random.default_rng(0)
    theta, x = np.abs(rng.normal(size=(4, 3001))) + 0.5, rng.normal(size=(2, 2000))
    monkeypatch.setattr(_cpu, "THREADS", 1)
    one = GAUSSIAN.value_and_grad(theta, x)
    monkeypatch.setattr(_cpu, "THREADS", 3)
    for a, b in zip(one, GAUSSIAN.value_and_grad(theta, x), strict=True):
        assert np.array_equal(a, b)
    each = rng.normal(size=(2, 500, 3001))
    three = GAUSSIAN.value_and_grad(theta, each)
    monkeypatch.setattr(_cpu, "THREADS", 1)
    for a, b in zip(three, GAUSSIAN.value_and_grad(theta, each), strict=True):
        assert np.array_equal(a, b)


def test_large_matrices_compile_in_seconds():
    """A dense Kalman filter of 12 states."""

    def step(carry, theta, y):
        m, P = carry
        A = theta[:144].reshape(12, 12)
        m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[144:156]))
        S = P[0, 0] + 1.0
        v = y - m[0]
        return (m + P[:, 0] * (v / S), P - np.outer(P[:, 0], P[:, 0]) / S), -0.5 * (np.log(S) + v * v / S)

    rng = np.random.default_rng(0)
    theta = np.concatenate([0.7 * np.linalg.qr(rng.normal(size=(12, 12)))[0].ravel(), np.zeros(12)])
    k = kernels.recursion(lambda theta: (np.zeros(12), np.eye(12)), step)
    y, h = rng.normal(size=20), 1e-6
    gradient = k.grad(theta, y)
    for j in (0, 77, 150):
        e = h * (np.arange(156) == j)
        np.testing.assert_allclose(gradient[j], (k(theta + e, y) - k(theta - e, y)) / (2 * h), rtol=1e-6, atol=1e-7)


def test_graph_simplifies_at_birth():
    g = Graph()
    x, y, c = g.input("th", 0, 0), g.input("th", 0, 1), g.input("th", 0, 2)
    assert g.mul(x, y) == g.mul(y, x)
    assert g.add(g.mul(g.const(2.0), x), g.mul(g.const(3.0), x)) == g.mul(g.const(5.0), x)
    assert g.sub(x, x) == g.zero and g.mul(g.zero, x) == g.zero
    assert g.mul(g.neg(x), g.neg(y)) == g.mul(x, y)
    m = g.compare("gt", c, g.zero)
    gated = g.mul(g.select(m, x, g.zero), y)
    assert g.op[gated] == "select" and g.args[gated][1] == g.mul(x, y)
    assert g.power(x, 4) == g.mul(g.mul(x, x), g.mul(x, x))


def test_cache_ignores_damaged_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    _cache.save("a", b"content")
    assert _cache.load("a") == b"content"
    (tmp_path / "a.o").write_bytes(b"damaged")
    assert _cache.load("a") is None
    monkeypatch.setenv("TAPEGRAD_CACHE", "")
    _cache.save("b", b"content")
    assert _cache.load("b") is None


def test_kernels_come_back_from_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    text = "define i64 @kernel(i64 %x) {\n  %y = mul i64 %x, 12345\n  ret i64 %y\n}\n"
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(compiled(text))
    assert function(2) == 24690
    assert len(list(tmp_path.glob("*.o"))) == 1


def test_processes_share_a_folder(tmp_path):
    program = (
        "import numpy as np, tapegrad as tg; k = tg.kernels.likelihood(lambda t, x: -((x - t[0]) ** 2)); print(k(np.ones(1), np.zeros(3)))"
    )
    environment = {**os.environ, "TAPEGRAD_CACHE": str(tmp_path), "PYTHONPATH": str(Path(tg.__file__).parents[1])}
    for _ in range(2):  # made by several at once, then read
        started = [subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) for _ in range(3)]
        assert [p.communicate()[0].split() for p in started] == [[b"-3.0"]] * 3
    assert len(list(tmp_path.iterdir())) == 1
