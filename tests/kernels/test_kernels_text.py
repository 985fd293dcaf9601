"""The graph of a kernel, its code on the CPU in every form, the cache."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from _kernel_cases import CASES, MATRICES, case
from kernel_programs import GAUSSIAN

import tapegrad as tg
from tapegrad import cache
from tapegrad.kernels.emit.lower import lower_program
from tapegrad.kernels.graph.nodes import Graph
from tapegrad.kernels.launch import waiting
from tapegrad.kernels.launch.cpu import Launcher, function_address

kernels = tg.kernels


class Named(np.ndarray):
    """A subclass, whose data may be anywhere."""


@pytest.mark.one_in(9)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [*CASES, *MATRICES])
def test_one_sample_gets_the_bits_that_it_gets_among_others(name, dtype):
    """The scalar form against the vector form."""
    k, theta, data = case(name)
    theta, data = np.ascontiguousarray(theta, dtype), data.astype(dtype)
    low = k.lowered(theta.shape[0], 0 if data.ndim == 1 else data.shape[0])
    launcher = Launcher(low, np.dtype(dtype), False)
    many, single = [[np.empty((rows, n), dtype) for rows in launcher.outputs] for n in (theta.shape[1], 1)]
    launcher([theta], data, data.shape[-1], many, theta.shape[1])
    launcher([np.ascontiguousarray(theta[:, :1])], data, data.shape[-1], single, 1)
    for a, b in zip(many, single, strict=True):
        assert np.isfinite(a).all() and np.array_equal(a[:, :1], b)


def test_blocks_are_narrow_where_rows_are_many():
    """The time of code generation grows with the cube of the vectors that one block loads and stores."""
    widths = []
    for n in (4, 8, 14):
        k = kernels.map(np.triu)
        x = np.random.default_rng(n).normal(size=(n, n, 70))
        assert np.array_equal(k(x), np.triu(x.transpose(2, 0, 1)).transpose(1, 2, 0))
        ((family, _),) = k._families.values()
        widths += [launcher.width for launcher in family.launchers.values()]
    assert widths == [32, 16, 8]


def test_threads_give_the_same_bits(monkeypatch):
    rng = np.random.default_rng(0)
    theta, x = np.abs(rng.normal(size=(4, 3001))) + 0.5, rng.normal(size=(2, 2000))
    monkeypatch.setattr(waiting, "THREADS", 1)
    one = GAUSSIAN.value_and_grad(theta, x)
    monkeypatch.setattr(waiting, "THREADS", 3)
    for a, b in zip(one, GAUSSIAN.value_and_grad(theta, x), strict=True):
        assert np.array_equal(a, b)
    each = rng.normal(size=(2, 500, 3001))
    three = GAUSSIAN.value_and_grad(theta, each)
    monkeypatch.setattr(waiting, "THREADS", 1)
    for a, b in zip(three, GAUSSIAN.value_and_grad(theta, each), strict=True):
        assert np.array_equal(a, b)


def test_a_remembered_launch_keeps_its_workspace():
    """The same kernel, called on the tape with another number of steps, takes a new one."""
    k, theta, y = case("local level")
    one = theta[:, :1].copy()
    value, gradient = k.value_and_grad(one, y[:60])
    tg.grad(lambda t: k(t, y).sum())(one)
    _, (_, _, room), table = k._launches.VG.kept
    tape = int(table[1])
    assert room.ctypes.data <= tape < room.ctypes.data + room.nbytes
    again = k.value_and_grad(one, y[:60])
    assert np.array_equal(again[0], value) and np.array_equal(again[1], gradient)


@pytest.mark.long
def test_calls_in_any_order_are_those_of_a_new_kernel():
    """Values, and values and gradients, of arrays that do and do not fit what the last call left."""
    k, points, y = case("local level")
    rng = np.random.default_rng(0)
    theta = points[:, :1] + 0.1 * rng.normal(size=(2, 32))
    shared = y[:60].copy()
    shared.flags.writeable = False
    gap = shared.copy()
    gap[7] = np.nan
    thetas = [
        theta[:, :1],
        theta[:, 0],
        theta[:, :16],
        theta[:, :16] + 0.1,
        theta[:, :3],
        theta[:, :32:2],
        theta[:, :0],
    ]
    thetas = [t.astype(d) for t in thetas for d in (np.float64, np.float32)] + [
        np.asfortranarray(theta[:, :16]),
        theta[:, :16].view(Named),
    ]
    datas = [
        shared,
        y[:60],
        y[:59],
        y[:120:2],
        shared.astype(np.float32),
        shared[None],
        np.stack([y[:60]] * 16, axis=-1)[None],
    ]
    datas = [d.view(Named) for d in datas[:1]] + datas
    for _ in range(150):
        t, d = thetas[rng.integers(len(thetas))], datas[rng.integers(len(datas))]
        if d.ndim == 3 and t.shape[1:] != (16,):
            continue
        new = case("local level")[0]
        if rng.random() < 0.5:
            ours, expected = [k(t, d)], [new(t, d)]
        else:
            ours, expected = k.value_and_grad(t, d), new.value_and_grad(t, d)
        for a, b in zip(ours, expected, strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    for d in (
        shared,
        gap,
        y[:60] + 0.0,
        gap + 0.0,
    ):  # a missing datum is seen before a launch like the last one
        assert np.array_equal(k(theta, d), case("local level")[0](theta, d))


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
        np.testing.assert_allclose(
            gradient[j], (k(theta + e, y) - k(theta - e, y)) / (2 * h), rtol=1e-6, atol=1e-7
        )


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
    cache.save("a", b"content")
    assert cache.load_code("a") == b"content"
    (tmp_path / "a.o").write_bytes(b"damaged")
    assert cache.load_code("a") is None
    monkeypatch.setenv("TAPEGRAD_CACHE", "")
    cache.save("b", b"content")
    assert cache.load_code("b") is None


def test_kernels_come_back_from_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    text = "define i64 @kernel(i64 %x) {\n  %y = mul i64 %x, 12345\n  ret i64 %y\n}\n"
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(function_address(text))
    assert function(2) == 24690
    assert len(list(tmp_path.glob("*.o"))) == 1


@pytest.mark.long
def test_processes_share_a_folder(tmp_path):
    program = "import numpy as np, tapegrad as tg; k = tg.kernels.likelihood(lambda t, x: -((x - t[0]) ** 2)); print(k(np.ones(1), np.zeros(3)))"
    environment = {
        **os.environ,
        "TAPEGRAD_CACHE": str(tmp_path),
        "PYTHONPATH": str(Path(tg.__file__).parents[1]),
    }
    for _ in range(2):  # made by several at once, then read
        started = [
            subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
            for _ in range(3)
        ]
        assert [p.communicate()[0].split() for p in started] == [[b"-3.0"]] * 3
    assert len(list(tmp_path.iterdir())) == 2  # the kernel, and the code that calls it again


def test_a_sweep_back_reads_what_is_long_to_compute():
    """A product of matrices in a step is stored for the sweep, as many numbers as the carry has at most; the
    bits are those of a sweep that computes it again."""
    k, theta, data = case("kalman 4")
    shapes = theta.shape[0], 0 if data.ndim == 1 else data.shape[0]
    plain, kept = (
        lower_program(k._family.derived("VG", 0, (*shapes, False))),
        lower_program(k._family.derived("VG", 0, (*shapes, False)), keep=True),
    )
    forward, back = kept.loops
    assert not plain.loops[0].kept and 8 <= len(forward.kept) <= len(forward.carry)
    assert len(kept.bodies[1].code) + 3 * len(forward.kept) <= len(plain.bodies[1].code)
    assert not {i for i, _, _ in kept.bodies[1].code} & set(forward.kept)
    outs = []
    for low in (plain, kept):
        outs.append([np.empty((rows, theta.shape[1])) for rows in (1, len(theta))])
        Launcher(low, np.dtype(float), False)([theta], data, data.shape[-1], outs[-1], theta.shape[1])
    for a, b in zip(*outs, strict=True):
        assert np.array_equal(a, b) and np.isfinite(a).all()
