"""Calls of hand-written kernels: what is checked, twins for the CPU, threads and processes, CuPy."""

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
from comparison import host
from numba import njit
from raw_device import noted_launches  # noqa: F401
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
from tapegrad.errors import ArgumentError, DeviceError, KernelError, ShapeError

pytestmark = [
    pytest.mark.skipif(
        shutil.which("g++") is None, reason="NOT RUN: raw kernels on the CPU, for there is no g++"
    ),
    pytest.mark.one_in(4),
]
REALS = [np.float64, np.float32]


NO_RESERVE = 0x4000  # mmap.MAP_NORESERVE from Python 3.13 on


@pytest.mark.skipif(
    sys.platform != "linux", reason="NOT RUN: index arithmetic beyond 2^31 needs memory that is only reserved"
)
def test_more_than_two_to_the_31_elements():
    """The last samples of a batch of 2^29 + 64 with 5 parameters, in memory of which only these columns
    exist."""
    batch, rows = 2**29 + 64, 5
    memory = mmap.mmap(-1, 4 * batch * rows, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    theta = np.frombuffer(memory, np.float32).reshape(rows, batch)
    theta[:, -64:] = np.arange(5.0)[:, None] + np.arange(64.0)
    source = kernel(
        "tail",
        "const real* theta, long long first, real* value, long long B",
        LOOP.replace("long long b = ", "long long b = first + ")
        + " value[b - first] = theta[b] + theta[4 * B + b];",
    )
    k = raw(source, "tail", ["in real theta[5, B]", "const long long first", "out real value[64]", "size B"])
    assert np.array_equal(k(theta, batch - 64), 4 + 2 * np.arange(64.0))
    with pytest.raises(KernelError, match="above the limit"):
        raw(
            source,
            "tail",
            ["in real theta[5, B]", "const long long first", "out real value[64]", "size B"],
            threads="B * 4096",
        )(theta, 0)


# --- a function for the CPU ---


@njit(error_model="numpy")
def recursion_twin(x, n, s, B):
    for b in range(B):
        r = x.dtype.type(1)
        for _ in range(n):
            r = r * x[b] + np.sin(r)
        s[b] = r


@pytest.mark.long
def test_cpu_function():
    args = ["in real x[B]", "const int n", "out real s[B]", "size B"]
    calls = []

    def cpu(*values):
        calls.append(values)
        recursion_twin(*values)

    k = raw(recursion().code.source, "recursion", args, cpu=cpu)
    x = np.array([1.5, 2.0])
    np.testing.assert_array_equal(k(x, 3), recursion()(x, 3))
    assert [type(v) for v in calls[0]] == [np.ndarray, int, np.ndarray, int]
    k.check(x, 3)
    np.testing.assert_array_equal(
        raw(recursion().code.source, "recursion", args, cpu=recursion_twin)(x, 3), recursion()(x, 3)
    )


def test_cpu_function_that_returns():
    source = kernel("f", "const real* x, real* y, long long B", f"{LOOP} y[b] = 2 * x[b];")
    k = raw(source, "f", ["in real x[B]", "out real y[B]", "size B"], cpu=lambda x, y, B: 2 * x)
    with pytest.raises(KernelError, match="cpu= returned ndarray; it is to fill its outputs"):
        k(np.ones(2))


@pytest.mark.long
def test_slots_of_a_cpu_function():
    seen = []

    def cpu(x, work, y, B, p):
        seen.append((work.shape, work.dtype))
        y[:] = 2 * x

    source = kernel(
        "twice", "const real* x, double* work, real* y, long long B, int p", f"{LOOP} y[b] = 2 * x[b];"
    )
    args = ["in real x[B]", "work double work[B + 1, 2*p, slots]", "out real y[B]", "size B", "const int p"]
    raw(source, "twice", args, cpu=cpu)(np.ones(3), 4)
    raw(source, "twice", args, cpu=cpu, workers=5)(np.ones(3), 4)
    assert seen == [((4, 8, 1), np.float64), ((4, 8, 5), np.float64)]
    raw(source, "twice", args).check(np.ones(3), 4)


# --- errors of calls ---


def test_calls_are_checked():
    k = gaussian()
    cases = [
        (lambda: k(THETA, X.astype(np.float32)), ArgumentError, r"x has dtype float32; declared is 'const "
        r"real x\[2, N\]', wanted float64"),
        (lambda: k(THETA.astype(int), X), ArgumentError, "argument theta is an array of int64"),
        (lambda: k(THETA, [[1.0], [2.0]]), ArgumentError, r"argument x is \[\[1.0\], \[2.0\]\] \(list\)"),
        (lambda: k(THETA, X[0]), ShapeError, r"argument x has shape \(5,\), declared is 'const real x\[2, "
        r"N\]'"),
        (lambda: k(THETA[:3], X), ShapeError, r"argument theta has shape \(3, 3\)"),
        (lambda: k(THETA), ArgumentError, "takes 2 arguments: theta, x"),
        (lambda: k(THETA, X, X), ArgumentError, "takes 2 arguments, 3 were given"),
        (lambda: k(THETA, y=X), ArgumentError, "the argument y is unknown"),
        (lambda: k(THETA, X, x=X), ArgumentError, "the argument x is given twice"),
        (lambda: tg.grad(lambda x: k(THETA, x).sum())(X), ArgumentError, "x is declared 'const real x"),
        (lambda: recursion()(np.ones(2), 2.0), ArgumentError, "argument n is 2.0 .*wanted a whole number"),
        (lambda: recursion()(np.ones(2), 2**31), ArgumentError, "2147483648, which int cannot hold"),
        (lambda: linear()(np.ones(2), np.ones((3, 4)), np.zeros(4, np.int32), 1.0), ShapeError, "argument x "
        "has shape .*, p is 2 by c"),
        (lambda: linear()(np.ones(2), np.ones((2, 4)), np.zeros(4, int), 1.0), ArgumentError, "which has "
        "dtype int64.* wanted int32"),
        (lambda: linear()(np.ones(2), np.ones((2, 4)), np.zeros(4, np.int32), np.ones(2)), ArgumentError,
        "argument scale is an array"),
        (lambda: k(np.ma.array(THETA), X), ArgumentError, "argument theta is a masked array"),
        (lambda: recursion().vjp(np.ones(2), -1, np.ones(2)), ShapeError, r"tape, declared .*would have "
        r"shape \(-1,"),
        (lambda: k(THETA.astype(">f8"), X), ArgumentError, "argument theta is an array of >f8"),
    ]  # fmt: skip
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            call()


def test_a_tracked_value_for_a_cotangent_declared_const():
    args = [*GIVEN, "const real value_bar[B]", "out real theta_bar[4, B]", *SIZES]
    adjoint = raw(GAUSSIAN, "gaussian_vjp", args, vjp=lambda g, out, *args: (g, None, None))
    k = raw(GAUSSIAN, "gaussian", [*GIVEN, "out real value[B]", *SIZES], vjp=adjoint)
    with pytest.raises(
        ArgumentError, match="a derivative by value_bar is needed, which is declared 'const real value_bar"
    ):
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
        (lambda: raw(GAUSSIAN, "gauss", args), "no __global__ function 'gauss'; it has gaussian, "
        "gaussian_vjp, gaussian_vjp_vjp"),
        (lambda: raw("__global__ void f(real* y) {}", "f", ["out real y[2]"], grid=1), 'write extern "C" '
        '__global__ void f'),
        (lambda: raw(bounded, "gaussian", args[:4]), "4 parameters are declared, the C function has 5"),
        (lambda: raw(GAUSSIAN, "gaussian", whole), "is declared 'const int B', which is int; the C text is "
        "`long long B`"),
        (lambda: raw(GAUSSIAN, "gaussian", ["in real theta", *args[1:]]), "parameter 0 is declared 'in real "
        "theta', a value"),
        (lambda: raw(GAUSSIAN, "gaussian", [args[0], "out real x[2, B]", *args[2:]]), "to be written; the C "
        "text is `const real"),
        (lambda: raw(GAUSSIAN, "gaussian", [*args[:2], "out real value[M]", *args[3:]]), "or `const` "
        "argument tells the dimension M"),
        (lambda: raw(GAUSSIAN, "gaussian", [*args[:3], "size N", "size B"]), "is declared 'size N'; in the "
        "C text N is parameter 4"),
        (lambda: raw(GAUSSIAN, "gaussian", [*args[:4], "size M"]), "tells the dimension M"),
        (lambda: raw(GAUSSIAN, "gaussian", [*args[:4], "size B"]), "the name B is declared twice"),
        (lambda: raw(GAUSSIAN, "gaussian", args, samples="M"), "samples='M' is to say how many threads "
        "start"),
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
        (
            "value_bar",
            "v_bar",
            "takes v_bar, which is neither an input or output of gaussian .* nor one of value_bar",
        ),
        ("theta_bar", "t_bar", "does not give theta_bar"),
    ]:
        with pytest.raises(KernelError, match=text):
            with_rule(old, new)
    with pytest.raises(KernelError, match="its jvp, the kernel gaussian_vjp, takes value_bar"):
        with_rule("value_bar", "value_bar", "jvp")
    short = raw(GAUSSIAN, "gaussian_vjp", [*GIVEN, "in real value_bar[B]", "out real theta_bar[B]", *SIZES])
    with pytest.raises(
        KernelError, match=r"gives 'out real theta_bar\[B\]', which does not fit 'in real theta"
    ):
        raw(GAUSSIAN, "gaussian", args, vjp=short)


def test_compile_errors_name_the_line():
    bad = GAUSSIAN.replace("logs += log(", "logs += lag(")
    line = [n for n, text in enumerate(bad.split("\n"), 1) if "lag(" in text][0]
    with pytest.raises(
        KernelError, match=rf"(?s)gaussian.cu, line {line}: error: .*lag.*\n    logs \+= lag\(theta"
    ):
        gaussian(0, bad)(THETA, X)


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    source = kernel("never_compiled", "const real* x, real* y, long long B", f"{LOOP} y[b] = x[b];")
    with pytest.raises(KernelError, match=r"needs g\+\+ \(install it.*pass cpu="):
        raw(source, "never_compiled", ["in real x[B]", "out real y[B]", "size B"])(np.ones(2))


# --- threads, processes, files ---


def test_source_from_a_file(tmp_path):
    (tmp_path / "mine.cu").write_text(
        kernel("f", "const real* x, real* y, long long B", f"{LOOP} y[b] = x[b] + wrong;")
    )
    with pytest.raises(KernelError, match="mine.cu, line 4"):
        raw(tmp_path / "mine.cu", "f", ["in real x[B]", "out real y[B]", "size B"])(np.ones(2))


@pytest.mark.long
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
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: [k(xs[n]) for _ in range(20)]}))
        for n in range(4)
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(found[n] == [one[n]] * 20 for n in range(4))


def test_workers_share_the_samples(monkeypatch):
    monkeypatch.setattr(tg.kernels.raw_code.kernel, "THREADED_NUMBERS", 0)
    monkeypatch.setattr(tg.kernels.raw_code.kernel, "THREADS", 3)
    y = np.linspace(0.1, 1.2, 1001)
    x, d, r = y, np.zeros(1001), np.ones(1001)
    for _ in range(5):
        d, r = d * x + r + np.cos(r) * d, r * x + np.sin(r)
    np.testing.assert_allclose(tg.grad(lambda y: recursion()(y, 5).sum())(y), d, rtol=1e-12)
    np.testing.assert_allclose(gaussian()(THETA, X), VALUE)


@pytest.mark.long
def test_processes_share_a_folder(tmp_path):
    program = (
        "import numpy as np, raw_kernels as r, tapegrad as tg; "
        "print(tg.grad(lambda t: r.gaussian(1)(t, r.X).sum())(r.THETA).round(6).tolist())"
    )
    path = os.pathsep.join([str(Path(tg.__file__).parents[1]), str(Path(__file__).parents[1] / "support")])
    environment = {**os.environ, "TAPEGRAD_CACHE": str(tmp_path), "PYTHONPATH": path}
    for _ in range(2):
        started = [
            subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        assert [p.communicate()[0].decode().strip() for p in started] == [str(GRADIENT.round(6).tolist())] * 2
    assert len(list(tmp_path.iterdir())) == 3  # two programs, and the texts of the tape's operations
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged")
    run = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
    assert run.stdout.decode().strip() == str(GRADIENT.round(6).tolist())


# --- CuPy ---


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
        assert [name for name, *_ in launches] == ["gaussian", "gaussian_vjp"] and launches[0][2] == (
            128,
            1,
            1,
        )
    H = host(tg.hvp(lambda theta: k(theta, x).sum(), theta, xp.ones_like(theta)))
    both = np.array(SECOND)[:, [0, 1, 2, 3]] + np.array(SECOND)[:, [4, 5, 4, 5]]
    np.testing.assert_allclose(H, both.T, rtol=10 * tight)
    tangent = tg.jvp(lambda theta: k(theta, x), (theta,), (xp.ones_like(theta),))[1]
    np.testing.assert_allclose(host(tangent), GRADIENT.sum(axis=0), rtol=10 * tight)


@pytest.mark.long
def test_other_kernels_on_both_libraries(device):
    xp, launches = device
    rng = np.random.default_rng(0)
    c, x, which = rng.normal(size=3), rng.normal(size=(3, 700)), rng.integers(-1, 3, 700).astype(np.int32)
    k = linear()
    g = tg.grad(lambda c: (k(c, xp.asarray(x), xp.asarray(which), 2.5) ** 2).sum())(xp.asarray(c))
    np.testing.assert_allclose(
        host(g), tg.grad(lambda c: (linear_formula(c, x, which, 2.5) ** 2).sum())(c), rtol=1e-12
    )
    y = np.linspace(0.1, 1.2, 2000)
    g = tg.grad(lambda y: recursion()(y, 5).sum())(xp.asarray(y))
    np.testing.assert_allclose(host(g), tg.grad(lambda y: recursion()(y, 5).sum())(y), rtol=1e-12)
    total = reduction()(xp.asarray(y))
    assert total.shape == ()
    np.testing.assert_allclose(host(total), (y * y).sum())
    s = stencil()
    np.testing.assert_allclose(
        host(tg.grad(lambda y: (s(y) ** 2).sum())(xp.asarray(y))),
        tg.grad(lambda y: (s(y) ** 2).sum())(y),
        rtol=1e-12,
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
    cuda = pytest.importorskip("tapegrad.kernels.launch.cuda")
    code = cuda.HostedCode if cuda.over_host_memory() else cuda.LoadedCode
    monkeypatch.setattr(code, "most_threads", lambda self: 256)
    with pytest.raises(
        KernelError,
        match=r"a block of 512 threads was asked for, its \d+ registers allow 256; pass a smaller block=",
    ):
        gaussian(0, block=512)(xp.asarray(THETA), xp.asarray(X))
    monkeypatch.setattr(code, "most_threads", lambda self: 100)
    np.testing.assert_allclose(host(gaussian(0)(xp.asarray(THETA), xp.asarray(X))), VALUE)


@pytest.mark.long
@pytest.mark.cupy_only
def test_slots_are_bounded_by_residency(device, monkeypatch):
    xp, launches = device
    if not getattr(xp.cuda.runtime, "_hosted", False):
        pytest.skip("looks at the launches of the stand-in")
    from tapegrad.kernels.raw_code import cuda as raw_cuda

    tg.grad(lambda x: recursion()(x, 3).sum())(xp.ones(300_000))
    grid = {name: grid[0] for name, grid, _ in launches}
    assert grid["recursion"] == -(-300_000 // 128) and grid["recursion_vjp"] == 132 * (65536 // (40 * 128))
    monkeypatch.setattr(raw_cuda.cupy.cuda.runtime, "memGetInfo", lambda: (1 << 16, 1 << 20))
    tg.grad(lambda x: recursion()(x, 3).sum())(xp.ones(300_000))
    assert launches[-1][1][0] == 10  # half of 64 KiB holds 10 blocks of 128 slots of 3 doubles
    monkeypatch.setattr(raw_cuda.cupy.cuda.runtime, "memGetInfo", lambda: (1 << 10, 1 << 20))
    with pytest.raises(KernelError, match="the work arrays of 128 threads need 3072 bytes"):
        tg.grad(lambda x: recursion()(x, 3).sum())(xp.ones(300))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("arch", [75, 90, 120])
@pytest.mark.parametrize("make", [gaussian, stencil, reduction, linear, recursion, while_loop, scale])
def test_nvrtc_compiles(make, arch):
    pytest.importorskip("cupy")
    from tapegrad.kernels.launch.cuda import cubin

    for real in REALS:
        assert cubin(make().code.text(np.dtype(real)), arch)[0][:4] == b"\x7fELF"
