"""The compiler's own output, PTX, run on the CPU: with -fmad=false the bits of the source in float64, with
contraction close."""

import numpy as np
import pytest

pytest.importorskip("cupy", reason="NOT RUN: NVRTC, which is called through CuPy")

from _cuda_host import BlockKernel, HostKernel, arguments, needs_compiler
from _kernel_cases import CASES, MAPS, WAYS, case, lowered
from _ptx import PtxKernel, converted, statement, to_c
from kernel_on_host import prepared

from tapegrad import kernels
from tapegrad.kernels import emit_cuda
from tapegrad.kernels.emit.cuda_split import emit_split, gather_text

pytestmark = [needs_compiler, pytest.mark.one_in(4)]
LIST = [(name, kind, order) for name in [*CASES, *MAPS] for kind, order in WAYS]
QUICK = (
    "gaussian",
    "local level",
    "kalman 2",
    "hidden markov",
    "power sum",
)  # in float32 and with contraction; all with -m long


def slow(what, quick: bool):
    return what if quick else pytest.param(*what, marks=pytest.mark.long)


def outputs(make, name, kind, order, dtype, **options):
    _, source, entry, _, given, outs = prepared(name, kind, order, dtype)
    make(source, entry, **options)((2,), (32,), given)
    return outs


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name, kind, order, dtype",
    [slow((*x, np.float64), x[0] in QUICK or x[1] == "VG") for x in LIST]
    + [slow((*x, np.float32), x[0] in QUICK and x[1] == "VG") for x in LIST],
)
def test_without_contraction_the_bits_are_those_of_the_source(name, kind, order, dtype):
    expected = outputs(HostKernel, name, kind, order, dtype)
    assert all(np.isfinite(x).all() and np.ptp(x) > 0 for x in expected)
    for a, b in zip(outputs(PtxKernel, name, kind, order, dtype), expected, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize(
    "name, dtype, bound",
    [
        slow((name, *x), name in QUICK)
        for name in [*CASES, *MAPS]
        for x in ((np.float64, 3e-13), (np.float32, 2e-3))
    ],
)
def test_with_contraction_the_results_are_close(name, dtype, bound):
    expected = outputs(HostKernel, name, "VG", 0, dtype)
    found = outputs(PtxKernel, name, "VG", 0, dtype, fmad=True)
    for a, b in zip(found, expected, strict=True):
        assert np.max(np.abs(a - b) / np.abs(b).max(axis=1, keepdims=True)) < bound


def test_a_divided_sum():
    """The kernels one after the other, by the source and by the PTX; `gather`, which has barriers, by the
    source."""
    source, _ = emit_split(lowered("gaussian", "VG", 0), np.float64)
    _, theta, data = case("gaussian")
    data, theta = np.ascontiguousarray(np.tile(data, 3)), np.ascontiguousarray(theta)
    batch, steps, rows, chunks = theta.shape[1], data.shape[1], 4 * theta.shape[1], -(-data.shape[1] // 64)
    found = []
    for make in (HostKernel, PtxKernel):
        sums, totals, outs = (
            np.full(rows * chunks, np.nan),
            np.zeros(rows),
            (np.empty((1, batch)), np.empty((4, batch))),
        )
        make(source, "partial")(
            (2,), (32,), (theta, data, sums, *[np.int64(x) for x in (batch, steps, 0, chunks, 3)])
        )
        gather = BlockKernel(gather_text(np.float64), "gather")
        gather((-(-rows // 32),), (512,), (sums, totals, np.int64(rows), np.int64(chunks)))
        make(source, "finish")((2,), (32,), (theta, *outs, totals, np.int64(batch), np.int64(steps)))
        found.append(outs)
    assert chunks == 8 and np.isfinite(found[0][0]).all()
    for a, b in zip(*found, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("chunks", [1, 63, 64, 65, 200, 64 * 9 + 5])
def test_chunks_are_added_in_order(chunks):
    rows, g = 40, np.random.default_rng(chunks)
    sums, totals = g.normal(size=(chunks, rows)), g.normal(size=rows)
    expected = totals.copy()
    for row in sums:
        expected += row
    BlockKernel(gather_text(np.float64), "gather")(
        (2,), (512,), (sums, totals, np.int64(rows), np.int64(chunks))
    )
    assert np.array_equal(totals, expected)


@pytest.mark.parametrize("sums", [None, np.float64])
def test_data_loaded_by_four_and_sums_of_float64(sums):
    k = kernels.likelihood(
        lambda theta, x: -(((x[0] - theta[0]) * theta[1]) ** 2) - np.log(theta[1]) * x[1], sums=sums
    )
    low = k.lowered(2, 2, dtype=np.float32)
    source, entry, signature = emit_cuda(low, np.float32)
    rng = np.random.default_rng(0)
    theta = (rng.normal(size=(2, 40)) ** 2 + 0.5).astype(np.float32)
    room = np.empty(2 * 132 + 8, np.float32)
    first = -room.ctypes.data % 16 // 4
    for start in (first, first + 1):
        data = room[start : start + 2 * 132].reshape(2, 132)
        data[...] = rng.normal(size=data.shape)
        found = []
        for make in (HostKernel, PtxKernel):
            given, outs = arguments(low, signature, np.float32, [theta], data, 132, 40, 64)
            kernel = make(source, entry)
            kernel((2,), (32,), given)
            found.append(outs)
        assert "ld.global.nc.v4.f32" in kernel.ptx and ("cvt.f64.f32" in kernel.ptx) == (sums is not None)
        for a, b in zip(*found, strict=True):
            assert np.isfinite(a).all() and np.array_equal(a, b)


def test_contraction_is_seen():
    """a b - b a is 0, but for one of the products rounded and the other not."""
    source = (
        'extern "C" __global__ void k(const double* a, double* out) { out[0] = a[0] * a[1] - a[2] * a[3]; }'
    )
    x, out = np.array([1 / 3, 3.0, 3.0, 1 / 3]), np.zeros(1)
    PtxKernel(source, "k")((1,), (1,), (x, out))
    assert out[0] == 0.0
    PtxKernel(source, "k", fmad=True)((1,), (1,), (x, out))
    assert abs(out[0]) == 2.0**-54


def test_unknown_opcodes_raise():
    for text in (
        "ex2.approx.ftz.f32 %f1, %f2", "add.rz.f64 %fd1, %fd2, %fd3", "bar.sync 0", "shfl.sync.bfly.b32 "
        "%r1|%p1, %r2, 1, 31, -1",
        "mul.f32x2 %rd1, %rd2, %rd3", "ld.shared.f64 %fd1, [%r1]", "mov.b64 {%r1, %r2}, %rd1",
        "add.ftz.f32 %f1, %f2, %f3",
        "setp.lt.and.f64 %p1, %fd1, %fd2, %p2", "ld.global.v2.f64 {%fd1, %fd2}, [%rd1]",
        "st.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4}", "mad.hi.s32 %r1, %r2, %r3, %r4",
        "rcp.approx.f64 %fd1, %fd2",
    ):  # fmt: skip
        with pytest.raises(NotImplementedError):
            statement(text, {})
    with pytest.raises(NotImplementedError):
        converted(["rm"], "f32", "f64", "x")


INTEGERS = r"""
extern "C" __global__ void k(const long long* a, const double* x, long long* out, double* y) {
  const int t = threadIdx.x;
  const long long u = a[t];
  const int v = (int)u;
  const unsigned long long w = (unsigned long long)u;
  long long* o = out + 16 * t;
  o[0] = u >> 5; o[1] = (long long)(w >> 7); o[2] = u << 3; o[3] = -u; o[4] = ~u; o[5] = u * 37 + v; o[6] = v * 91;
  o[7] = (long long)v * v; o[8] = w / 1000003; o[9] = u < 0 ? 5 : u; o[10] = (v >> 4) ^ (v & 0x0ff0) | 3;
  o[11] = (long long)x[t]; o[12] = (int)x[t]; o[13] = max(u, 7LL); o[14] = (unsigned)v >> 9; o[15] = x[t] != x[t];
  y[4 * t] = floor(x[t]); y[4 * t + 1] = (double)u; y[4 * t + 2] = fmin(x[t], 2.5) + fmax(x[t], -2.5); y[4 * t + 3] = -fabs(x[t]);
}
"""


def test_integers_and_conversions_against_numpy():
    a = np.array([0, 1, -1, 123456789012, -987654321098, 2**62, -(2**63), 77], np.int64)
    x = np.array([0.5, -0.5, 1e300, -1e300, np.inf, -3.7, 2.0**40 + 0.5, 1e9])
    out, y = np.zeros((8, 16), np.int64), np.zeros((8, 4))
    PtxKernel(INTEGERS, "k")((1,), (8,), (a, x, out, y))
    v, w = a.astype(np.int32), a.astype(np.uint64)
    with np.errstate(over="ignore"):
        low, high = -(2**63), 2**63 - 1
        whole = [int(np.clip(z, -1e18, 1e18)) if abs(z) < 1e18 else (high if z > 0 else low) for z in x]
        v_as_u = v.view(np.uint32)
        expected = [
            a >> 5, (w >> np.uint64(7)).astype(np.int64), a << 3, -a, ~a, a * 37 + v,
            (v * np.int32(91)).astype(np.int64),
            v.astype(np.int64) ** 2, (w // np.uint64(1000003)).astype(np.int64), np.where(a < 0, 5, a),
            ((v >> 4) ^ (v & 0x0FF0) | 3).astype(np.int64), np.array(whole), np.clip(whole, -(2**31),
            2**31 - 1), np.maximum(a, 7),
            (v_as_u >> 9).astype(np.int64), np.zeros(8, np.int64),
        ]  # fmt: skip
    for n, column in enumerate(expected):
        assert np.array_equal(out[:, n], column), n
    assert np.array_equal(
        y.T, [np.floor(x), a.astype(float), np.minimum(x, 2.5) + np.maximum(x, -2.5), -np.abs(x)]
    )
    assert "k(uint64_t" in to_c(PtxKernel(INTEGERS, "k").ptx, "k")
