"""The CUDA C of generated kernels without a GPU: the order of the threads, the bounds of arrays, the
parameters, large indices."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from _cuda_host import BACKWARDS, CONST, FLOAT, POINTER, SHUFFLED, HostKernel, needs_compiler, run_on_host
from _kernel_cases import CASES, MAPS, WAYS, case, dense_kalman, lowered
from kernel_on_host import prepared

import tapegrad as tg
from tapegrad.kernels import emit_cuda
from tapegrad.kernels.launch.cpu import Launcher

kernels = tg.kernels
SUPPORT = Path(__file__).parents[1] / "support"
NO_RESERVE = 0x4000  # mmap.MAP_NORESERVE from Python 3.13 on
KINDS = {"real*": POINTER | FLOAT, "i64": 8, "i64*": POINTER | 8}


@needs_compiler
@pytest.mark.parametrize("name", [*CASES, *MAPS])
def test_threads_in_any_order_give_the_same_bits(name):
    """64 threads on 45 samples, and 8 on them."""
    *_, source, entry, _, given, outs = prepared(name)
    kernel = HostKernel(source, entry)
    kernel((2,), (32,), given)
    expected = [x.copy() for x in outs]
    assert all(np.isfinite(x).all() for x in expected)
    for order in (BACKWARDS, SHUFFLED, SHUFFLED + 1):
        for grid, block in [((2,), (32,)), ((2,), (4,)), ((1,), (1,))]:
            for x in outs:
                x.fill(7.0)
            kernel.order = order
            kernel(grid, block, given)
            assert all(np.array_equal(a, b) for a, b in zip(outs, expected, strict=True))


@pytest.mark.smoke
@needs_compiler
@pytest.mark.parametrize("every", [1, 3, 64])
@pytest.mark.parametrize(
    "name, per_sample", [("local level", True), ("kalman 3", False), ("kepler", False), ("substeps", True)]
)
def test_the_source_gives_the_bits_of_the_cpu_kernel(name, per_sample, every):
    """Without CuPy; more kernels, and the launcher, in test_kernels_device.py."""
    _, theta, data = case(name)
    if per_sample:
        rows = data.reshape(-1, data.shape[-1], 1)
        data = np.concatenate([rows[:1] * (1 + 0.01 * np.arange(11)), np.repeat(rows[1:], 11, axis=-1)])
    low, steps = lowered(name, "VG", 0), data.shape[data.ndim > 1]
    launcher = Launcher(low, np.dtype(np.float64), per_sample)
    ours = [np.empty((rows, 11)) for rows in launcher.outputs]
    launcher([theta], data, steps, ours, 11)
    for a, b in zip(
        ours, run_on_host(low, np.float64, [theta], data, steps, 11, per_sample, every), strict=True
    ):
        assert np.isfinite(a).all() and np.array_equal(a, b)


@pytest.mark.one_in(3)
@needs_compiler
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("every", [1, 3])
def test_sums_that_have_no_registers(dtype, every):
    """A filter of six states: in float64 the sums of a chunk lie in memory."""
    k, theta, data = dense_kalman(6)
    low = k.lowered(theta.shape[0], 0)
    held = "volatile real held" in emit_cuda(low, dtype)[0]
    assert held == (dtype is np.float64)
    theta = (theta * (1 + 0.05 * np.random.default_rng(0).normal(size=(1, 9)))).astype(dtype)
    data = np.tile(data, 7).astype(dtype)
    launcher = Launcher(low, np.dtype(dtype), False)
    expected = [np.empty((rows, 9), dtype) for rows in launcher.outputs]
    launcher([theta], data, len(data), expected, 9)
    for a, b in zip(run_on_host(low, dtype, [theta], data, len(data), 9, every=every), expected, strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b)


def placed(x, offset):
    """A copy that begins `offset` numbers behind a multiple of 16 bytes."""
    room = np.empty(x.size + 8, x.dtype)
    first = -room.ctypes.data % 16 // x.itemsize + offset
    room[first : first + x.size] = x.ravel()
    return room[first : first + x.size].reshape(x.shape)


@pytest.mark.one_in(3)
@needs_compiler
@pytest.mark.parametrize("sums", [None, np.float64])
@pytest.mark.parametrize("rows", [0, 2])
def test_data_loaded_by_four(rows, sums):
    """Whatever the number of data and wherever they begin: the bits are those of the CPU kernel, which loads
    them one by one."""
    f = lambda theta, x: (
        -((x - theta[0]) ** 2) if not rows else -((x[0] - theta[0]) ** 2) * x[1] + np.sin(theta[1]) * x[1]
    )
    k = kernels.likelihood(f, sums=sums)
    rng = np.random.default_rng(0)
    p = 2 if rows else 1
    theta = rng.normal(size=(p, 9)).astype(np.float32)
    low = k.lowered(p, rows, dtype=np.float32)
    assert (
        "Four" in emit_cuda(low, np.float32)[0]
        and "Four" not in emit_cuda(low, np.float32, per_sample=True)[0]
    )
    assert "Four" not in emit_cuda(k.lowered(p, rows), np.float64)[0]
    for steps in (0, 1, 3, 4, 63, 64, 66, 68, 131, 132):
        data = rng.normal(size=(rows, steps) if rows else steps).astype(np.float32)
        launcher = Launcher(low, np.dtype(np.float32), False)
        expected = [np.empty((n, 9), kind) for n, kind in zip(launcher.outputs, launcher.types, strict=True)]
        launcher([theta], data, steps, expected, 9)
        for offset in range(4):
            found = run_on_host(low, np.float32, [theta], placed(data, offset), steps, 9)
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_parameters_are_what_the_compiler_sees(dtype):
    for name in ("gaussian", "local level", "power sum"):
        for kind, order in WAYS:
            _, source, entry, signature, _, _ = prepared(name, kind, order, dtype)
            size = np.dtype(dtype).itemsize
            kinds = [
                KINDS[c.removeprefix("const ")] | (CONST if c.startswith("const") else 0)
                for _, c, _ in signature.parameters
            ]
            expected = [k | size if k & FLOAT else k for k in kinds]
            assert HostKernel(source, entry).signature == expected
            assert all(
                c.startswith("const") == (role in ("input", "data"))
                for _, c, role in signature.parameters
                if "*" in c
            )


@needs_compiler
@pytest.mark.parametrize(
    "right, planted, message",
    [
        ("i64 batch", "int batch", "number of int64"),
        ("i64 T", "unsigned short T", "number of int64"),
        ("const real* __restrict__ data", "const float* __restrict__ data", "array of float64"),
    ],
)
def test_a_parameter_of_the_wrong_size_is_found(right, planted, message):
    _, source, entry, _, given, _ = prepared("local level")
    assert source.count(right) == 1
    with pytest.raises(TypeError, match=message):
        HostKernel(source.replace(right, planted), entry)((1,), (32,), given)


@needs_compiler
def test_arguments_that_a_device_would_take_silently():
    _, source, entry, _, given, _ = prepared("gaussian")
    kernel = HostKernel(source, entry)
    place = [x.dtype for x in given].index(np.dtype(np.int64))
    for wrong, message in [
        (given[:-1], "parameters and got"),
        ([*given[:place], np.int32(4), *given[place + 1 :]], "number of int32"),
        ([*given[:place], 4, *given[place + 1 :]], "Python number"),
        ([given[0].astype(np.float32), *given[1:]], "array of float32"),
        ([given[0][:, ::2], *given[1:]], "not contiguous"),
    ]:
        with pytest.raises(TypeError, match=message):
            kernel((1,), (32,), wrong)
    with pytest.raises(RuntimeError, match="1024"):
        kernel((1,), (2048,), given)


def sanitized(*planted):
    """The output of _sanitized.py and how it ended."""
    runtime = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",
        "NUMBA_DISABLE_JIT": "1",
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(tg.__file__).parents[1]), str(SUPPORT)])
    command = [sys.executable, str(SUPPORT / "_sanitized.py"), *planted]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.long
@needs_compiler
def test_address_sanitizer_finds_nothing():
    code, text = sanitized()
    assert code == 0 and "all sizes ran" in text, text[-2000:]


@pytest.mark.long
@needs_compiler
def test_address_sanitizer_finds_a_planted_write():
    code, text = sanitized("plant")
    assert code != 0 and "heap-buffer-overflow" in text and "all sizes ran" not in text


@needs_compiler
@pytest.mark.skipif(
    sys.platform != "linux", reason="NOT RUN: index arithmetic beyond 2^31 needs memory that is only reserved"
)
def test_more_than_two_to_the_31_elements():
    """The last samples of a batch of 2^29 + 32 with 5 parameters, in memory of which only these columns
    exist: on the CPU, and in CUDA C by the last threads of a launch."""
    stride, rows = 2**29 + 32, 5
    size = 4 * stride * rows
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    theta = np.frombuffer(memory, np.float32).reshape(rows, stride)
    theta[:, -64:] = np.arange(5.0)[:, None] + np.arange(64.0)
    low = kernels.likelihood(lambda theta, x: x * theta[0] + theta[4]).lowered(5, 0, "F")
    launcher = Launcher(low, np.dtype(np.float32), False)
    out = np.empty((1, stride), np.float32)
    launcher.run(
        launcher.width, [theta], np.ones(3, np.float32), 3, [out], stride, 64 // launcher.width, stride - 64
    )
    assert np.array_equal(out[0, -64:], 12 + 6 * np.arange(64.0))

    source, entry, _ = emit_cuda(low, np.float32)
    kernel, out = HostKernel(source, entry), np.empty((1, stride), np.float32)
    kernel.last = 64
    kernel((stride // 32,), (32,), (theta, np.ones(3, np.float32), out, np.int64(stride), np.int64(3)))
    assert np.array_equal(out[0, -64:], 12 + 6 * np.arange(64.0))
    assert "int " not in source.partition("__global__")[2]
