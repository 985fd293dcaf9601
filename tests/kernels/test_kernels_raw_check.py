"""`check` of raw kernels: planted faults, each of which must be caught and named; faultless kernels, which
must pass."""

import re
import shutil

import numpy as np
import pytest
from raw_kernels import (
    GAUSSIAN,
    GIVEN,
    LOOP,
    RECURSION,
    REDUCTION,
    SCALE,
    SIZES,
    STENCIL,
    THETA,
    WHILE,
    X,
    gaussian,
    kernel,
    linear,
    raw,
    recursion,
    reduction,
    scale,
    stencil,
    while_loop,
)

import tapegrad as tg
from tapegrad.errors import KernelError

pytestmark = [
    pytest.mark.skipif(
        shutil.which("g++") is None, reason="NOT RUN: checks of raw kernels, for there is no g++"
    ),
    pytest.mark.one_in(4),
]
V = np.array([0.5, -1.2, 0.8, 2.0, 1.5, -0.3, 0.9])


def changed(source, old, new):
    assert source.count(old) == 1, (old, source.count(old))
    return source.replace(old, new)


# --- without faults ---

SOUND = [
    (lambda: gaussian(2), (THETA, X), ["gaussian", "gaussian_vjp", "gaussian_vjp_vjp"]),
    (stencil, (V,), ["stencil", "stencil_vjp"]),
    (reduction, (np.linspace(-1, 2, 333),), ["reduction"]),
    (
        linear,
        (V[:3], np.arange(12.0).reshape(3, 4), np.array([0, 2, -1, 1], np.int32), 0.7),
        ["linear", "linear_vjp"],
    ),
    (recursion, (V[4:], 4), ["recursion", "recursion_vjp"]),
    (while_loop, (np.array([1.5, 2.2, 3.0]),), ["while_dot", "while_loop"]),
    (scale, (V, V[::-1]), ["scale", "scale_vjp"]),
]


SHORT = ("linear", "recursion", "scale")
CHECKED = [
    pytest.param(*case, id=case[2][0], marks=[] if case[2][0] in SHORT else pytest.mark.long)
    for case in SOUND
]


@pytest.mark.long
@pytest.mark.parametrize("make, args, names", CHECKED)
def test_sound_kernels_pass(make, args, names):
    report = make().check(*args, sanitize=True)
    assert any("rules agree" in line for line in report) and any(
        "no fault found by the address" in line for line in report
    )
    assert sorted({line.partition(":")[0] for line in report}) == names


@pytest.mark.long
def test_what_was_not_run_is_told():
    report = raw(
        STENCIL, "stencil", ["in real x[N]", "out real y[N]", "size N"], threads="N", vjp=lambda g, y, x: x
    ).check(V, derivatives=False)
    assert not any("rules agree" in line for line in report)
    x = np.linspace(0, 1, 300)
    assert any("NOT RUN: forward mode" in line and "300 launches" in line for line in stencil().check(x))


# --- with faults ---


def copy_kernel(body, **more):
    source = kernel("f", "const real* x, real* y, long long B", body)
    return raw(source, "f", ["in real x[B]", "out real y[B]", "size B"], **more)


def wrong_adjoint():
    return gaussian(1, changed(GAUSSIAN, "value_bar[b] * (z.q - N)", "value_bar[b] * (z.q - 1)"))


def wrong_by_a_little():
    return gaussian(1, changed(GAUSSIAN, "value_bar[b] * z.s", "(real)1.0001 * value_bar[b] * z.s"))


def wrong_second_adjoint():
    return gaussian(2, changed(GAUSSIAN, "(-2 * z.s * u", "(-3 * z.s * u"))


def wrong_in_one_precision():
    return gaussian(
        1, changed(GAUSSIAN, "value_bar[b] * z.s", "(sizeof(real) == 4 ? 2 : 1) * value_bar[b] * z.s")
    )


def wrong_jvp():
    source = changed(WHILE, "d = d * x[b] + r * x_dot[b];", "d = d * x[b] - r * x_dot[b];")
    forward = raw(source, "while_dot", ["in real x[B]", "in real x_dot[B]", "out real s_dot[B]", "size B"])
    return raw(source, "while_loop", ["in real x[B]", "out real s[B]", "size B"], jvp=forward)


def no_adjoints():
    more = {"jvp": lambda t, y, x: (2 + 1e-7) * x * t[0], "vjp": lambda g, y, x: 2 * x * g}
    return copy_kernel(f"{LOOP} y[b] = x[b] * x[b];", **more)


def races():
    return copy_kernel(
        f"{LOOP} {{ y[b] = x[b]; if (b) y[b] += y[b - 1]; }}",
    )


def race_to_one_place():
    return copy_kernel(f"{LOOP} {{ y[b] = x[b]; y[0] = x[b]; }}")


def missing_barrier():
    return reduction(changed(REDUCTION, "  __syncthreads();\n", ""))


def divergent_barrier():
    return reduction(changed(REDUCTION, "  __syncthreads();\n", "  if (t < 40) __syncthreads();\n"))


def divergent_shuffle():
    return reduction(
        changed(
            REDUCTION, "for (int k = 16; k; k /= 2) sum", "if (t % 32 < 20) for (int k = 16; k; k /= 2) sum"
        )
    )


def writes_behind():
    return copy_kernel(f"{LOOP} {{ y[b] = x[b]; if (b == B - 1) y[B] = 0; }}")


def writes_before():
    return copy_kernel(f"{LOOP} {{ y[b] = x[b]; if (b == 0) y[-2] = 0; }}")


def writes_behind_the_tape():
    source = changed(RECURSION, "i < n; ++i) { tape[", "i <= n; ++i) { tape[")
    given = ["in real x[B]", "const int n"]
    return raw(
        source,
        "recursion_vjp",
        [*given, "in real s_bar[B]", "out real x_bar[B]", "work real tape[n, slots]", "size B"],
    )


def writes_const():
    return copy_kernel(f"{LOOP} {{ y[b] = x[b]; ((real*)x)[2] = 7; }}")


def whole_numbers_of_two_sizes():
    source = kernel("f", "const real* x, real* y, count B", f"{LOOP} y[b] = x[b];", "typedef int count;")
    return raw(source, "f", ["in real x[B]", "out real y[B]", "size B"])


def float_for_double():
    source = kernel(
        "f",
        "const real* x, scalar a, real* y, long long B",
        f"{LOOP} y[b] = a * x[b];",
        "typedef float scalar;",
    )
    return raw(source, "f", ["in real x[B]", "const double a", "out real y[B]", "size B"])


def unwritten():
    return copy_kernel(f"{LOOP} if (x[b] > 0) y[b] = x[b];")


def added_to_garbage():
    return copy_kernel(f"{LOOP} y[b] += x[b];")


def reads_work_before_writing():
    source = kernel("f", "const real* x, real* w, real* y, long long B", f"{LOOP} y[b] = x[b] + w[0];")
    return raw(source, "f", ["in real x[B]", "work real w[4]", "out real y[B]", "size B"])


def no_loop_over_samples():
    return copy_kernel(
        "long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (b < B) y[b] = x[b];"
    )


def twin_with_another_result():
    def cpu(x, y, B):
        y[:] = x * np.nextafter(1, 2)

    return copy_kernel(f"{LOOP} y[b] = x[b];", cpu=cpu)


def twin_out_of_bounds():
    def cpu(x, y, B):
        y[:] = x
        np.lib.stride_tricks.as_strided(y, (y.size + 1,), y.strides)[-1] = 0

    return copy_kernel(f"{LOOP} y[b] = x[b];", cpu=cpu)


def only_for_the_host():
    return copy_kernel(f"{LOOP} y[b] = std::fabs(x[b]);")


def misdeclared_samples():
    source = STENCIL.replace("const long long i", "long long i")
    for out in ("y[i]", "x_bar[i]"):
        source = changed(
            source, f"  if (i < N) {out}", f"  for (; i < N; i += (long long)gridDim.x * blockDim.x) {out}"
        )
    return stencil("samples", source=source)


def inout_adjoint():
    source = changed(
        SCALE,
        "f_bar[b] = a[b] * a_bar[b]; a_bar[b] *= f[b];",
        "a_bar[b] *= f[b]; f_bar[b] = a[b] * a_bar[b];",
    )
    adjoint = raw(
        source,
        "scale_vjp",
        ["in real a[B]", "in real f[B]", "inout real a_bar[B]", "out real f_bar[B]", "size B"],
    )
    return raw(source, "scale", ["inout real a[B]", "in real f[B]", "size B"], vjp=adjoint)


NUMBER = r"-?\d[\d.e+-]*"
FAULTS = [
    (wrong_adjoint, (THETA, X), rf"is wrong by theta from value: <value_bar, J v> is {NUMBER} by "
    rf"differences, <theta_bar, v> is {NUMBER}"),
    (wrong_by_a_little, (THETA, X), "the vjp is wrong by theta from value"),
    (wrong_second_adjoint, (THETA, X), "check of gaussian_vjp: the vjp is wrong by theta from theta_bar"),
    (wrong_in_one_precision, (THETA, X), "the vjp by theta in float32 is .* away from that in float64"),
    (wrong_jvp, (np.array([1.5, 2.2]),), "the vjp is wrong by x from s"),
    (no_adjoints, (V,), "jvp and vjp are no adjoints by x: <y_bar, jvp v> is .*, <vjp y_bar, v> is"),
    (races, (V,), r"the output y depends on the order of the threads \(run backwards\): a race; element "
    r"\(\d,\) is .* and "),
    (race_to_one_place, (V,), "the output y depends on the order of the threads"),
    (missing_barrier, (np.ones(100),), r"the output total (depends on the order of the threads|holds what "
    r"was in memory before)"),
    (divergent_barrier, (np.ones(100),), r"__syncthreads\(\) was reached by only a part of the block"),
    (divergent_shuffle, (np.ones(100),), "a __sync warp function was reached by only a part of a warp"),
    (writes_behind, (V,), r"memory next to y \('out real y\[B\]', here \(7,\)\) was written: behind it, 1 "
    r"bytes away"),
    (writes_before, (V,), r"memory next to y .* was written: before it, \d+ bytes away"),
    (writes_behind_the_tape, (V, 3, V), r"memory next to tape \('work real tape\[n, slots\]', here \(3, "
    r"32\)\) was written: behind it"),
    (writes_const, (V,), r"x is declared 'in real x\[B\]', and its element \(2,\) was written"),
    (whole_numbers_of_two_sizes, (V,), r"parameter 2 is declared 'size B' \(int64\); the C function takes "
    r"4-byte signed whole numbers"),
    (float_for_double, (V, 2.0), r"is declared 'const double a' \(float64\); the C function takes 4-byte "
    r"floating-point numbers"),
    (unwritten, (V,), r"the output y holds what was in memory before: .*; element \(1,\) is .*, 2 of 7 "
    r"differ"),
    (added_to_garbage, (V,), "the output y holds what was in memory before"),
    (reads_work_before_writing, (V,), "the output y holds what was in memory before"),
    (no_loop_over_samples, (V,), r"the output y (depends on the number of threads \(1 blocks of 1\)|holds "
    r"what was in memory)"),
    (twin_with_another_result, (V,), "the output y is not the same by the source and by the function for "
    "the CPU"),
    (twin_out_of_bounds, (V,), "memory next to y .* was written: behind it"),
    (misdeclared_samples, (V,), "a seed for one sample reached the derivatives of another"),
    (inout_adjoint, (V, V[::-1].copy()), "the vjp is wrong by f from a"),
]  # fmt: skip


@pytest.mark.one_in(7)
@pytest.mark.parametrize("make, args, text", FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_planted_faults(make, args, text):
    with pytest.raises(KernelError, match=text):
        make().check(*args)


def test_what_the_device_compiler_alone_refuses():
    pytest.importorskip("cupy")
    with pytest.raises(KernelError, match=r"(?s)NVRTC could not compile f.cu for sm_75.*f.cu\(4\): error"):
        only_for_the_host().check(V)


SANITIZED = [
    ("y[b] = x[b + 5000000];", r"(SEGV|heap-buffer-overflow).*f.cu, line 3: for"),
    ("y[b] = b < B - 1 ? x[b] : x[b + 1];", r"heap-buffer-overflow, a read of size 8, f.cu, line 3: for"),
    (
        "{ real r[3]; r[1] = r[2] = 1; r[0] = x[b]; y[b] = r[(int)(b % 4)]; }",
        r"(index 3 out of bounds|stack-buffer-overflow)",
    ),
    ("{ int q = (int)B * 1000000000; y[b] = x[b] + q; }", "signed integer overflow"),
]


@pytest.mark.parametrize("body, text", SANITIZED, ids=["far", "near", "local", "overflow"])
def test_sanitizers(body, text):
    with pytest.raises(KernelError, match=f"check of f: .*{text}"):
        copy_kernel(f"{LOOP.replace(chr(10), ' ')} {body}").check(V, sanitize=True)


def test_check_at_registration():
    args = ["in real x[B]", "out real y[B]", "size B"]
    source = kernel("f", "const real* x, real* y, long long B", f"{LOOP} y[b] = x[b] * x[b];")
    raw(source, "f", args, vjp=lambda g, y, x: 2 * g * x, test=(V,))
    with pytest.raises(KernelError, match="check of f: the vjp is wrong by x from y"):
        raw(source, "f", args, vjp=lambda g, y, x: g * x, test=(V,))


@pytest.mark.long
def test_checks_see_the_source_and_not_the_twin():
    """A right function for the CPU does not hide a wrong adjoint in CUDA C."""

    def cpu(theta, x, value_bar, theta_bar, B, N):
        theta_bar[:] = gaussian().vjp(theta, x, value_bar)

    source = changed(
        GAUSSIAN, "theta_bar[k * B + b] = value_bar[b] * z.s", "theta_bar[k * B + b] = 2 * value_bar[b] * z.s"
    )
    adjoint = raw(
        source, "gaussian_vjp", [*GIVEN, "in real value_bar[B]", "out real theta_bar[4, B]", *SIZES], cpu=cpu
    )
    k = raw(source, "gaussian", [*GIVEN, "out real value[B]", *SIZES], vjp=adjoint)
    np.testing.assert_allclose(
        tg.grad(lambda t: k(t, X).sum())(THETA), tg.grad(lambda t: gaussian()(t, X).sum())(THETA)
    )
    with pytest.raises(KernelError, match="check of gaussian: the vjp is wrong by theta from value"):
        k.check(THETA, X)


@pytest.mark.long
def test_tolerance_for_the_cpu_function():
    def cpu(x, y, B):
        y[:] = x * (1 + 1e-9)

    k = copy_kernel(f"{LOOP} y[b] = x[b];", cpu=cpu)
    k.check(V, cpu_rtol=1e-6)
    with pytest.raises(KernelError, match=re.escape("(cpu=)")):
        k.check(V)
