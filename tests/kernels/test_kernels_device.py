"""Generated kernels on CuPy arrays, end to end: the launcher, its shapes and workspace, retries, errors,
streams, the tape.

Each test runs on CuPy over host memory, its kernels compiled by g++, and with -m gpu on a device; the
reference is the CPU kernel, whose bits the device's are to be."""

import math
import threading

import numpy as np
import pytest
from _cuda_host import BACKWARDS, SHUFFLED, array_library  # noqa: F401
from _kernel_cases import CASES, ESCAPE, MATRICES, POWER_SUM, case
from kernel_programs import GAUSSIAN, THETA, X, gaussian
from kernel_recursions import DIFFUSE, KNOWN, NILE, POINTS

import tapegrad as tg
from tapegrad.errors import ArgumentError, DeviceError, KernelError, ShapeError
from tapegrad.kernels.launch import cuda
from tapegrad.testing import hosted as hosted_cupy

pytestmark = pytest.mark.one_in(4)  # its cases compile

kernels = tg.kernels


def same(ours, reference):
    """The same bits."""
    ours, reference = [x if isinstance(x, tuple) else (x,) for x in (ours, reference)]
    for a, b in zip(ours, reference, strict=True):
        a = a.get()
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.array_equal(a, b, equal_nan=True), np.abs(a - b).max()


def close(ours, reference, tolerance=1e-13):
    reference = np.asarray(reference)
    np.testing.assert_allclose(
        ours.get(), reference, rtol=tolerance, atol=tolerance * np.abs(reference).max(initial=0.0)
    )


# --- values and derivatives ---


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "exp2", "sinh", "cosh"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_functions_at_all_sizes(cupy, name, dtype):
    k, last = kernels.map(getattr(np, name)), 1023 if dtype is np.float64 else 127
    powers = np.random.default_rng(0).uniform(-30, last if name in ("sin", "cos", "tan") else 11, 3000)
    x = (2.0**powers * np.random.default_rng(1).choice([-1, 1], 3000)).astype(dtype)
    x[:4] = np.inf, -np.inf, np.nan, -0.0
    same(k(cupy.asarray(x)), k(x))


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_value_gradient_and_hessian_product(cupy, name, dtype):
    k, theta, data = case(name)
    theta, data = theta.astype(dtype), data.astype(dtype)
    v = np.random.default_rng(1).normal(size=theta.shape).astype(dtype)
    on_device, d, w = cupy.asarray(theta), cupy.asarray(data), cupy.asarray(v)
    value = k(theta, data)
    assert np.isfinite(value).all()
    same(k(on_device, d), value)
    same(k.value_and_grad(on_device, d), k.value_and_grad(theta, data))
    same(k.hvp(on_device, w, d), k.hvp(theta, v, data))
    if theta.shape[0] < 8:
        same(k.hessian(on_device, d), k.hessian(theta, data))
    assert isinstance(k.grad(on_device, d), cupy.ndarray)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_larger_models(cupy, name, dtype):
    k, theta, data = case(name)
    theta, data = theta.astype(dtype), data.astype(dtype)
    same(k.value_and_grad(cupy.asarray(theta), cupy.asarray(data)), k.value_and_grad(theta, data))


@pytest.mark.parametrize("name", ["gaussian", "local level", "kalman 2"])
def test_through_the_tape(cupy, name):
    k, theta, data = case(name)
    on_device, d = cupy.asarray(theta), cupy.asarray(data)
    scale = 1.0 / np.abs(k(theta, data)).max()
    f = lambda t, x: ((k(t, x) * scale) ** 2).sum()
    v = np.random.default_rng(2).normal(size=theta.shape)
    close(tg.grad(lambda t: f(t, d))(on_device), tg.grad(lambda t: f(t, data))(theta))
    ours = tg.jvp(lambda t: f(t, d), (on_device,), (cupy.asarray(v),))[1]
    close(ours, tg.jvp(lambda t: f(t, data), (theta,), (v,))[1])
    close(
        tg.hvp(lambda t: f(t, d), on_device, cupy.asarray(v)), tg.hvp(lambda t: f(t, data), theta, v), 1e-12
    )


def test_third_order(cupy):
    f = lambda t, x: (GAUSSIAN(t, x) ** 2).sum() * 1e-3
    v, w = np.random.default_rng(3).normal(size=(2, 4, 3))
    third = lambda t, x, v, w: tg.jvp(lambda t: tg.hvp(lambda t: f(t, x), t, v), (t,), (w,))[1]
    close(
        third(cupy.asarray(THETA), cupy.asarray(X), cupy.asarray(v), cupy.asarray(w)),
        third(THETA, X, v, w),
        1e-11,
    )


def test_scores_and_fisher(cupy):
    t, x = cupy.asarray(THETA), cupy.asarray(X)
    close(GAUSSIAN.scores(t, x), GAUSSIAN.scores(THETA, X))
    close(GAUSSIAN.fisher(t, x), GAUSSIAN.fisher(THETA, X))
    normal = kernels.likelihood(lambda theta, x: -0.5 * ((x - theta[0]) / theta[1]) ** 2 - np.log(theta[1]))
    close(normal.scores(t[:2], x[0]), normal.scores(THETA[:2], X[0]))


# --- data and parameters of every kind ---


def test_missing_data(cupy):
    holes = NILE[1:].copy()
    holes[[3, 4, 70]] = np.nan
    same(
        DIFFUSE.value_and_grad(cupy.asarray(POINTS), cupy.asarray(holes)),
        DIFFUSE.value_and_grad(POINTS, holes),
    )
    with_holes = np.insert(X, 2, np.nan, axis=1)
    same(
        GAUSSIAN.value_and_grad(cupy.asarray(THETA), cupy.asarray(with_holes)),
        GAUSSIAN.value_and_grad(THETA, with_holes),
    )
    with pytest.raises(KernelError, match="missing="):
        plain = kernels.recursion(lambda th: 0.0, lambda m, th, y: (th[0] * y, -((y - m) ** 2)))
        plain(cupy.ones((1, 2)), cupy.asarray(holes))
    with_holes[0, 2] = np.inf
    with pytest.raises(ArgumentError, match="inf"):
        GAUSSIAN(cupy.asarray(THETA), cupy.asarray(with_holes))


def test_invalid_samples(cupy):
    theta = THETA.copy()
    theta[2, 1] = -0.2
    value, gradient = GAUSSIAN.value_and_grad(cupy.asarray(theta), cupy.asarray(X))
    assert value.get()[1] == -np.inf and not gradient.get()[:, 1].any()
    same((value, gradient), GAUSSIAN.value_and_grad(theta, X))


def test_data_of_each_sample(cupy):
    each = X[:, :, None] + np.array([0.0, 0.1, 0.2])
    t, d = cupy.asarray(THETA), cupy.asarray(each)
    same(GAUSSIAN.value_and_grad(t, d), GAUSSIAN.value_and_grad(THETA, each))
    same(GAUSSIAN.hessian(t, d), GAUSSIAN.hessian(THETA, each))
    rows = NILE[None, :, None] + np.arange(2.0)
    k = kernels.recursion(lambda th: 0.0, lambda m, th, y: (m + th[0] * (y[0] - m), -0.5 * (y[0] - m) ** 2))
    same(
        k.value_and_grad(cupy.asarray(POINTS[:1] / 20), cupy.asarray(rows)),
        k.value_and_grad(POINTS[:1] / 20, rows),
    )


@pytest.mark.parametrize("batch", [0, 1, 2, 31, 33, 128, 1000, 5000])
def test_batches(cupy, batch):
    theta = np.tile(THETA, 1700)[:, :batch] * (1 + 0.001 * np.arange(batch))
    value, gradient = GAUSSIAN.value_and_grad(cupy.asarray(theta), cupy.asarray(X))
    assert value.shape == (batch,) and gradient.shape == (4, batch)
    same((value, gradient), GAUSSIAN.value_and_grad(theta, X))


@pytest.mark.parametrize("steps", [0, 1, 63, 64, 65])
def test_numbers_of_data(cupy, steps):
    data = np.tile(NILE, 2)[:steps]
    same(KNOWN.value_and_grad(cupy.asarray(POINTS), cupy.asarray(data)), KNOWN.value_and_grad(POINTS, data))
    rows = np.random.default_rng(4).normal(size=(2, steps))
    same(
        GAUSSIAN.value_and_grad(cupy.asarray(THETA), cupy.asarray(rows)), GAUSSIAN.value_and_grad(THETA, rows)
    )


def test_vectors_trees_layouts_and_out(cupy):
    value, gradient = GAUSSIAN.value_and_grad(cupy.asarray(THETA[:, 0]), cupy.asarray(X))
    assert value.shape == () and gradient.shape == (4,)
    close(gradient, GAUSSIAN.grad(THETA[:, 0], X))

    k = kernels.likelihood(lambda t, x: gaussian([*t["mu"], *t["sigma"]], x))
    tree = {"mu": cupy.asarray(THETA[:2]), "sigma": cupy.asarray(THETA[2:])}
    value, gradient = k.value_and_grad(tree, cupy.asarray(X))
    same(gradient["sigma"], GAUSSIAN.grad(THETA, X)[2:])
    close(tg.grad(lambda t: k(t, cupy.asarray(X)).sum())(tree)["mu"], GAUSSIAN.grad(THETA, X)[:2])

    out = cupy.empty(3), cupy.empty((4, 3))
    turned = cupy.asarray(np.ascontiguousarray(THETA.T)).T, cupy.asarray(np.ascontiguousarray(X.T)).T
    assert GAUSSIAN.value_and_grad(*turned, out=out)[1] is out[1]
    same(out, GAUSSIAN.value_and_grad(THETA, X))
    with pytest.raises(ShapeError, match=r"out\[1\]"):
        GAUSSIAN.value_and_grad(*turned, out=(out[0], out[1].T))


def test_arrays_of_two_libraries(cupy):
    for theta, data in [(cupy.asarray(THETA), X), (THETA, cupy.asarray(X))]:
        with pytest.raises(DeviceError, match="cupy.asarray"):
            GAUSSIAN(theta, data)


# --- maps and loops ---


def test_while_loop(cupy):
    x, y = np.linspace(-1.5, 0.4, 40), np.linspace(-0.9, 0.8, 40)
    dx, dy = cupy.asarray(x), cupy.asarray(y)
    value = ESCAPE(x, y)
    assert np.isfinite(value).all()
    same(ESCAPE(dx, dy), value)
    ours = tg.grad(lambda a, b: ESCAPE(a, b).sum(), (0, 1))(dx, dy)
    same(tuple(ours), tuple(tg.grad(lambda a, b: ESCAPE(a, b).sum(), (0, 1))(x, y)))


def test_steps_are_counted_and_the_room_for_them_is_found(cupy):
    x, n = np.linspace(0.9, 1.1, 13), np.arange(13) * 30
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: 0.5 * s * x + np.sin(s), 1.0))
    f = lambda lib, x, n: tg.grad(lambda a: k(a, n).sum())(x)
    expected = f(np, x, n)
    dx, dn = cupy.asarray(x), cupy.asarray(n)
    same(f(cupy, dx, dn), expected)
    if cupy.hosted:
        assert len(cupy.loader.launches) == 3, "value, gradient with too little room, gradient"
        same(f(cupy, dx, dn), expected)
        assert len(cupy.loader.launches) == 5, "the room is kept"
    close(
        tg.hvp(lambda a: k(a, dn).sum(), dx, cupy.ones(13)),
        tg.hvp(lambda a: k(a, n).sum(), x, np.ones(13)),
        1e-12,
    )


def test_maps(cupy):
    rng = np.random.default_rng(5)
    A, b = rng.normal(size=(3, 3, 40)), rng.normal(size=(3, 40))
    k = kernels.map(lambda A, b: {"x": np.linalg.solve(A, b), "d": np.linalg.det(A)})
    out = k(cupy.asarray(A), cupy.asarray(b))
    for name, expected in k(A, b).items():
        same(out[name], expected)
    f = lambda A, b: (k(A, b)["x"] ** 2).sum() + k(A, b)["d"].sum()
    ours, reference = tg.grad(f, (0, 1))(cupy.asarray(A), cupy.asarray(b)), tg.grad(f, (0, 1))(A, b)
    for a, c in zip(ours, reference, strict=True):
        close(a, c, 1e-12)
    same(POWER_SUM(cupy.asarray(b[0]), cupy.arange(40)), POWER_SUM(b[0], np.arange(40)))
    same(kernels.map(lambda a, s: a * s)(cupy.asarray(b[0]), 2.0), b[0] * 2)
    same(kernels.map(lambda n: n * 2)(cupy.arange(3)), np.array([0.0, 2.0, 4.0]))
    assert kernels.map(lambda a: a + 1.0)(cupy.empty(0)).shape == (0,)


# --- few samples and many data ---


@pytest.mark.parametrize("batch, steps", [(1, 256), (3, 5000), (11, 70_001), (4000, 700)])
def test_a_divided_sum_has_the_bits_of_the_undivided(cupy, batch, steps):
    rng = np.random.default_rng(7)
    theta = np.tile(THETA, 1400)[:, :batch] * (1 + 0.01 * rng.normal(size=(4, batch)))
    data = rng.normal(size=(2, steps))
    v = rng.normal(size=theta.shape)
    t, d = cupy.asarray(theta), cupy.asarray(data)
    same(GAUSSIAN.value_and_grad(t, d), GAUSSIAN.value_and_grad(theta, data))
    if cupy.hosted:
        assert {k.entry for k in cupy.loader.kernels.values()} == {"partial", "gather", "finish"}
        cupy.loader.order = SHUFFLED
    same(GAUSSIAN.hvp(t, cupy.asarray(v), d), GAUSSIAN.hvp(theta, v, data))
    same(GAUSSIAN(t.astype(np.float32), d), GAUSSIAN(theta.astype(np.float32), data))


def test_a_divided_sum_in_slabs(cupy, monkeypatch):
    """As many chunks at a time as there is room for."""
    monkeypatch.setattr(cuda, "SMALL_WORKSPACE_BYTES", 0)
    monkeypatch.setattr(cuda, "device_limits", lambda device: (1, 64, 65536))
    data = np.random.default_rng(8).normal(size=(2, 64 * 33 + 5))
    same(
        GAUSSIAN.value_and_grad(cupy.asarray(THETA), cupy.asarray(data)), GAUSSIAN.value_and_grad(THETA, data)
    )
    if cupy.hosted:
        assert len(cupy.loader.launches) == 2 * 4 + 1, "34 chunks, 10 threads for each sample"


def test_a_divided_sum_of_other_data(cupy):
    rng = np.random.default_rng(9)
    holes = rng.normal(size=(2, 1000))
    holes[0, ::7] = np.nan
    same(
        GAUSSIAN.value_and_grad(cupy.asarray(THETA), cupy.asarray(holes)),
        GAUSSIAN.value_and_grad(THETA, holes),
    )
    each = rng.normal(size=(2, 1000, 3))
    same(
        GAUSSIAN.value_and_grad(cupy.asarray(THETA), cupy.asarray(each)), GAUSSIAN.value_and_grad(THETA, each)
    )
    k = kernels.likelihood(
        lambda th, x: np.where(x > th[0], np.exp(-th[1] * x) * np.sin(x * th[0]), th[2]) - np.log(th[1])
    )
    theta, x = np.abs(THETA[1:]), rng.normal(size=3000)
    same(k.value_and_grad(cupy.asarray(theta), cupy.asarray(x)), k.value_and_grad(theta, x))
    same(k.hessian(cupy.asarray(theta), cupy.asarray(x)), k.hessian(theta, x))
    empty = kernels.likelihood(lambda th, x: th[0] * th[1] + 0 * th[2])
    same(empty.value_and_grad(cupy.asarray(theta), cupy.asarray(x)), empty.value_and_grad(theta, x))


def test_a_divided_sum_with_a_loop_in_each_term(cupy):
    """The value is divided; the gradient, which stores steps, is not."""
    k, theta, data = case("kepler")
    theta, data = theta[:, :3].copy(), np.tile(data, 20)
    t, d = cupy.asarray(theta), cupy.asarray(data)
    same(k(t, d), k(theta, data))
    if cupy.hosted:
        assert {x.entry for x in cupy.loader.kernels.values()} == {"partial", "gather", "finish"}
    same(k.value_and_grad(t, d), k.value_and_grad(theta, data))


def test_steps_of_an_inner_loop_are_counted(cupy):
    """As many as any sample took in any step of the loop around."""
    x, n = np.linspace(0.9, 1.1, 13), np.arange(13) * 9
    k = kernels.map(
        lambda x, n: kernels.loop(
            n, lambda i, s: kernels.loop(i, lambda j, u: 0.5 * u * x + np.sin(u), s), 1.0
        )
    )
    f = lambda x, n: tg.grad(lambda a: k(a, n).sum())(x)
    dx, dn = cupy.asarray(x), cupy.asarray(n)
    same(f(dx, dn), f(x, n))
    if cupy.hosted:
        assert len(cupy.loader.launches) == 3, "value, gradient with too little room, gradient"
    same(f(dx, dn), f(x, n))


# --- the launch ---


def test_a_few_resident_threads_do_all_samples_in_any_order(cupy, monkeypatch):
    """Threads stride over the samples, and reuse their part of the workspace."""
    k, theta, data = case("kalman 2")
    theta = np.tile(theta, 40)
    expected = k.value_and_grad(theta, data)
    monkeypatch.setattr(cuda, "resident_blocks", lambda threads, registers, device: 3)
    t, d = cupy.asarray(theta), cupy.asarray(data)
    same(k.value_and_grad(t, d), expected)
    if cupy.hosted:
        assert cupy.loader.launches[-1] == ((3,), (32,))
        for order in (BACKWARDS, SHUFFLED):
            cupy.loader.order = order
            same(k.value_and_grad(t, d), expected)


@pytest.mark.long
def test_workspace_is_bounded_by_residency_and_by_free_memory(cupy, monkeypatch):
    k, theta, data = case("kalman 2")
    made = []
    empty = cuda.cupy.empty
    monkeypatch.setattr(
        cuda.cupy, "empty", lambda n, dtype: made.append(n * np.dtype(dtype).itemsize) or empty(n, dtype)
    )
    monkeypatch.setattr(cuda, "device_limits", lambda device: (2, 2048, 65536))
    long = cupy.asarray(np.tile(data, 40))
    step = 5 * 8  # five numbers of the carry; the totals of the sums would be eight
    assert len(k.lowered(7, 0).bodies[1].loop.sums) < 8
    k.value_and_grad(cupy.asarray(np.tile(theta, 3000)), long)
    assert made[-1] <= 2 * 2048 * step * long.size
    monkeypatch.setattr(cuda, "SMALL_WORKSPACE_BYTES", 0)
    monkeypatch.setattr(cuda, "INTERVALS", (1,))
    monkeypatch.setattr(cuda, "free_bytes", lambda: 2 * 65 * step * long.size)
    same(
        k.value_and_grad(cupy.asarray(np.tile(theta, 30)), long),
        k.value_and_grad(np.tile(theta, 30), np.tile(data, 40)),
    )
    assert made[-1] == 64 * step * long.size
    monkeypatch.setattr(cuda, "free_bytes", lambda: 2 * 31 * step * long.size)
    with pytest.raises(KernelError, match="32 samples need"):
        k.value_and_grad(cupy.asarray(theta), long)


@pytest.mark.parametrize("name", ["kalman 2", "kalman 4", "local level", "hidden markov"])
def test_steps_that_have_no_room_are_computed_again(cupy, monkeypatch, name):
    """Every 8th or 64th carry is stored; the bits are the same."""
    k, theta, data = case(name)
    theta, data = np.tile(theta, 3), np.tile(data, 1610 // data.size)
    carry = len(k.lowered(theta.shape[0], 0).loops[0].carry)
    made = []
    empty = cuda.cupy.empty
    monkeypatch.setattr(cuda.cupy, "empty", lambda n, dtype: made.append(n) or empty(n, dtype))
    monkeypatch.setattr(cuda, "SMALL_WORKSPACE_BYTES", 0)
    t, d, expected = cupy.asarray(theta), cupy.asarray(data), k.value_and_grad(theta, data)
    for every in (1, 8, 64):
        totals = len(k.lowered(theta.shape[0], 0).loops[1].sums)
        rows = (data.size if every == 1 else -(-data.size // every) + every) * carry + (
            totals if totals >= 8 else 0
        )
        monkeypatch.setattr(cuda, "free_bytes", lambda rows=rows: 2 * 64 * 8 * rows)
        same(k.value_and_grad(t, d), expected)
        assert made[-1] == 64 * rows
    monkeypatch.setattr(cuda, "free_bytes", lambda: 2 * 64 * 8 * (3 * rows))
    same(k.hvp(t, t, d), k.hvp(theta, theta, data))
    monkeypatch.setattr(cuda, "free_bytes", lambda: 2 * 32 * 8 * 8 * carry)
    with pytest.raises(KernelError, match="32 samples need"):
        k.value_and_grad(t, d)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["kalman 2", "kalman 4", "hidden markov"])
@pytest.mark.parametrize("given", [0.6, 0.1, 0.0])
def test_memory_that_another_process_took_meanwhile(cupy, monkeypatch, name, given):
    """The device reports more than it gives: the launch asks for half, again and again, and gives the same
    bits."""
    k, theta, data = case(name)
    theta, data = np.tile(theta, 30), np.tile(data, 20)
    t, d, expected = cupy.asarray(theta), cupy.asarray(data), k.value_and_grad(theta, data)
    asked, limit, empty = [], [math.inf], cuda.cupy.empty

    def limited(n, dtype):
        if isinstance(n, int):  # a workspace
            asked.append(n)
            if n > limit[0]:
                raise cuda.OutOfMemoryError(n, 0)
        return empty(n, dtype)

    monkeypatch.setattr(cuda.cupy, "empty", limited)
    k.value_and_grad(t, d)
    limit[0] = given * asked[0]
    if given:
        same(k.value_and_grad(t, d), expected)
        assert len(asked) > 2 and asked[-1] <= limit[0]
    else:
        with pytest.raises(KernelError, match="32 samples need"):
            k.value_and_grad(t, d)


def test_the_interval_is_not_raised_for_nothing(cupy, monkeypatch):
    """With 391 steps one in 64 would take more rows than one in 8, as there are 64 of a segment."""
    k, theta, data = case("kalman 2")
    data = np.tile(data, 17)
    monkeypatch.setattr(cuda, "SMALL_WORKSPACE_BYTES", 0)
    monkeypatch.setattr(cuda, "free_bytes", lambda: 2 * 32 * 8 * 5 * (49 + 8))
    theta = np.tile(theta, 6)
    same(k.value_and_grad(cupy.asarray(theta), cupy.asarray(data)), k.value_and_grad(theta, data))
    if cupy.hosted:
        assert cupy.loader.launches[-1] == ((1,), (32,)), "a warp at a time has room"


@pytest.mark.parametrize("length", [1, 7, 8, 9, 63, 64, 65, 130])
def test_segments_of_every_length(cupy, monkeypatch, length):
    monkeypatch.setattr(cuda, "INTERVALS", (8,))
    same(
        KNOWN.value_and_grad(cupy.asarray(POINTS), cupy.asarray(np.tile(NILE, 2)[:length])),
        KNOWN.value_and_grad(POINTS, np.tile(NILE, 2)[:length]),
    )
    f = lambda x, y: tg.grad(lambda a, b: ESCAPE(a, b).sum(), (0, 1))(x, y)
    x, y = np.linspace(-1.5, 0.4, 40), np.linspace(-0.9, 0.8, 40)
    same(tuple(f(cupy.asarray(x), cupy.asarray(y))), tuple(f(x, y)))
    g = lambda x, n: tg.grad(lambda a: POWER_SUM(a, n).sum())(x)
    x, n = np.linspace(0.9, 1.1, 5), np.full(5, length)
    same(g(cupy.asarray(x), cupy.asarray(n)), g(x, n))


@pytest.mark.parametrize("registers", [24, 64, 128, 168, 255])
def test_block_and_registers_fit_a_processor(registers, monkeypatch):
    monkeypatch.setattr(cuda, "device_limits", lambda device: (132, 2048, 65536))
    for threads in (32, 64, 128):
        blocks = cuda.resident_blocks(threads, registers, 0)
        assert blocks % 132 == 0 and blocks
        each = blocks // 132
        assert each * threads <= 2048 and each * threads * registers <= 65536 and each <= 32
    with pytest.raises(KernelError, match="registers"):
        cuda.resident_blocks(1024, 168, 0)


def test_few_samples_take_small_blocks():
    assert [cuda.block_size(n, 132, 128) for n in (1, 132 * 32, 132 * 32 + 1, 132 * 64 + 1, 10**6)] == [
        32,
        32,
        64,
        128,
        128,
    ]


def test_streams_and_no_hidden_wait(cupy):
    t, d = cupy.asarray(THETA), cupy.asarray(X)
    expected = GAUSSIAN.value_and_grad(THETA, X)
    GAUSSIAN.value_and_grad(t, d)  # the data are looked at once
    with cupy.cuda.Stream(non_blocking=True) as stream:
        if cupy.hosted:
            before = cupy.stats["syncs"]
        got = GAUSSIAN.value_and_grad(t, d)
        GAUSSIAN.hvp(t, t, d)
        if cupy.hosted:
            assert cupy.stats["syncs"] == before
        stream.synchronize()
    same(got, expected)


def test_debug_mode_waits_and_errors_name_the_kernel(cupy, monkeypatch):
    t, d = cupy.asarray(THETA), cupy.asarray(X)
    GAUSSIAN(t, d)
    monkeypatch.setattr(cuda, "DEBUG", True)
    if cupy.hosted:
        before = cupy.stats["syncs"]
        GAUSSIAN(t, d)
        assert cupy.stats["syncs"] == before + 1
    else:
        GAUSSIAN(t, d)

    class Failing:
        registers = 64

        def __call__(self, grid, block, args):
            raise cuda.runtime.CUDARuntimeError(700)

    monkeypatch.setattr(cuda, "loaded", lambda source, entry: Failing())
    with pytest.raises(DeviceError, match=r"gaussian\.F0, 1 blocks of 32 threads: cudaErrorIllegalAddress"):
        GAUSSIAN(t, d)
    monkeypatch.setattr(cuda, "DEBUG", False)
    with pytest.raises(DeviceError, match="TAPEGRAD_DEBUG=1"):
        GAUSSIAN(t, d)


def test_a_kernel_is_compiled_once_and_kept_on_disk(tmp_path, monkeypatch):
    """The loader itself, but for the driver."""
    if hosted_cupy.real_device():
        pytest.skip("a CUDA device answers")
    hosted_cupy.install()
    loads, launches = [], []

    class Function:
        ptr = 1234

        def __call__(self, *args, **options):
            launches.append((args, options))

    class Module:
        def load(self, code):
            loads.append(code)

        def get_function(self, entry):
            return Function()

    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(cuda, "over_host_memory", lambda: False)
    monkeypatch.setattr(cuda, "Module", Module)
    monkeypatch.setattr(cuda, "MODULES", {})
    asked = []
    monkeypatch.setattr(cuda.driver, "funcGetAttribute", lambda what, of: asked.append((what, of)) or 40)
    source = 'extern "C" __global__ void k(int* x) { x[threadIdx.x] = 1; }'
    kernel = cuda.loaded(source, "k")
    assert kernel is cuda.loaded(source, "k") and kernel.registers == 40
    assert asked == [(cuda.driver.CU_FUNC_ATTRIBUTE_NUM_REGS, 1234)]
    kernel((1,), (32,), ("x",))
    assert launches == [(((1,), (32,), ("x",)), {"shared_mem": 0})]
    monkeypatch.setattr(cuda, "MODULES", {})
    monkeypatch.setattr(cuda, "cubin", None)
    cuda.loaded(source, "k")
    assert (
        len(loads) == 2
        and loads[0] == loads[1]
        and loads[0][:4] == b"\x7fELF"
        and len(list(tmp_path.iterdir())) == 1
    )


def test_threads_share_a_kernel(cupy):
    """Loops whose room grows meanwhile included."""
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: 0.5 * s * x + np.sin(s), 1.0))
    x = np.linspace(0.9, 1.1, 5)
    bounds = [40, 400, 90, 700]
    expected = [tg.grad(lambda a: k(a, np.full(5, n)).sum())(x) for n in bounds]
    found: list = [None] * 4

    def work(j):
        n = cupy.full(5, bounds[j])
        found[j] = tg.grad(lambda a: k(a, n).sum())(cupy.asarray(x)).get()

    threads = [threading.Thread(target=work, args=(j,)) for j in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b)
