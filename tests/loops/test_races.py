"""Races of kernels: planted ones are found, and kernels without races pass."""

import numpy as np
import pytest
from device_kernels import block_norms, histogram, late_barrier, log_likelihood, prefix_sum, tiled_product
from numba import cuda, float64

import tapegrad as tg
from tapegrad.errors import KernelError
from tapegrad.loops.adjoint import adjoint
from tapegrad.loops.cuda_c.kernel_program import KernelText
from tapegrad.loops.cuda_c.thread_text import ThreadText
from tapegrad.loops.inspection import program_of
from tapegrad.loops.program import Accumulate, Barrier
from tapegrad.loops.races import search_races
from tapegrad.loops.reference import interpreted
from tapegrad.loops.writer import StatementWriter

R = np.random.default_rng(0)


@cuda.jit
def all_write_one(x, out):
    i = cuda.grid(1)
    out[0] = x[i]


@cuda.jit
def add_without_atomic(x, out):
    i = cuda.grid(1)
    out[i // 2] += x[i]


@cuda.jit
def reads_neighbour(x, out):
    i = cuda.grid(1)
    if i > 0:
        out[i] = x[i - 1]
        x[i] = 0.0


@cuda.jit
def missing_barrier(x, out):
    s = cuda.shared.array(8, float64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    out[t] = s[(t + 1) % cuda.blockDim.x]


@cuda.jit
def missing_barrier_in_loop(x, out):
    """A barrier before the reading, and none after it."""
    s = cuda.shared.array(8, float64)
    t = cuda.threadIdx.x
    v = 0.0
    for k in range(3):
        s[t] = x[t] * k
        cuda.syncthreads()
        v += s[(t + 1) % cuda.blockDim.x]
    out[t] = v


@cuda.jit
def other_block(x, out):
    i = cuda.grid(1)
    out[i] = x[i]
    cuda.syncthreads()
    x[i] = out[(i + cuda.blockDim.x) % out.shape[0]]


@cuda.jit
def read_after_atomic(x, out):
    i = cuda.grid(1)
    cuda.atomic.add(out, 0, x[i])
    x[i] = out[0]


@cuda.jit
def atomic_and_store(x, out):
    i = cuda.grid(1)
    if i == 3:
        out[0] = 1.0
    cuda.atomic.max(out, 0, x[i])


@cuda.jit
def rare(x, out):
    """Two of many threads meet."""
    i = cuda.grid(1)
    at = i if i != 5 else 2
    out[at] = x[i]


@cuda.jit
def largest(x, out):
    s = cuda.shared.array(1, float64)
    i = cuda.grid(1)
    if cuda.threadIdx.x == 0:
        s[0] = -1e300
    cuda.syncthreads()
    if i < x.shape[0]:
        cuda.atomic.max(s, 0, x[i] * x[i])
        cuda.atomic.min(out, 1, x[i])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.max(out, 0, s[0])


PLANTED = [
    (all_write_one, (1, 8), r"out\[0\]"),
    (all_write_one, (8, 1), r"out\[0\]: block \(0, 0, 0\) writes it"),
    (add_without_atomic, (1, 8), r"thread \(0, 0, 0\) writes it in line \d+ and thread \(1, 0, 0\) reads it"),
    (add_without_atomic, (8, 1), "block"),
    (reads_neighbour, (1, 8), "a race"),
    (reads_neighbour, (2, 4), "a race"),
    (missing_barrier, (1, 8), "a race at shared"),
    (missing_barrier_in_loop, (1, 8), "a race at shared"),
    (other_block, (2, 4), "block"),
    (read_after_atomic, (1, 8), "changes it by an atomic"),
    (atomic_and_store, (1, 8), "changes it by an atomic"),
    (rare, (1, 8), "thread \\(2, 0, 0\\) writes it in line"),
    (late_barrier, (1, 8), "not all threads of block"),
]
GOOD = [
    (log_likelihood, (2, 2), (np.zeros(3), R.random((4, 3)) + 0.5, R.random((2, 5)), 5, 3)),
    (tiled_product, ((2, 2), (4, 4)), (R.random((6, 7)), R.random((7, 5)), np.zeros((6, 5)))),
    (block_norms, (3, 8), (R.random(21), np.zeros(1))),
    (histogram, (2, 3), (R.random(7), np.array([0, 2, 2, 1, 0, 3, 1]), np.zeros(4))),
    (prefix_sum, (1, 8), (R.random(6), np.zeros(6))),
    (largest, (3, 4), (R.random(10), np.zeros(2))),
]


def program_for(kernel, launch, args):
    return program_of(kernel, args, launch, of_thread=True)


@pytest.mark.parametrize("kernel, launch, says", PLANTED, ids=lambda x: getattr(x, "__name__", None))
def test_planted_races_are_found(kernel, launch, says):
    x = np.where(np.arange(8) % 2 == 0, 1.0, -1.0)
    with pytest.raises(KernelError, match=says):
        search_races(*program_for(kernel, launch, (x, np.zeros(8))))


def taken_out(p):
    """Copies of a program of threads, each without one of its barriers, or with one sum that is no atomic."""
    places = [(b, k) for b in blocks(p.body) for k, s in enumerate(b.statements) if is_guard(s)]
    for b, k in places:
        kept, s = list(b.statements), b.statements[k]
        b.statements[k : k + 1] = plain_sum(s) if isinstance(s, Accumulate) else []
        yield s
        b.statements[:] = kept


def blocks(b):
    yield b
    for s in b.statements:
        for inner in s.blocks:
            yield from blocks(inner)


def is_guard(s):
    return isinstance(s, (Accumulate, Barrier))


def plain_sum(s):
    w = StatementWriter()
    w.line = s.line
    w.store(s.array, s.index, w.compute("add", w.load(s.array, s.index), s.value))
    return w.block.statements


@pytest.mark.parametrize("kernel, launch, args", GOOD, ids=lambda x: getattr(x, "__name__", None))
def test_kernels_without_races_and_each_of_their_guards(kernel, launch, args):
    p, values = program_for(kernel, launch, args)
    search_races(p, values)
    for s in taken_out(p):
        with pytest.raises(KernelError, match="a race at"):
            search_races(p, values)
            pytest.fail(f"{type(s).__name__} in line {s.line} was taken out")


def test_check_tells_of_races():
    x = R.random(8)
    assert "no two threads meet" in tg.loops.check(largest, x, np.zeros(2), launch=(1, 8))[-1]
    with pytest.raises(KernelError, match="Put a barrier between them"):
        tg.loops.check(missing_barrier, x, np.zeros(8), launch=(1, 8))


def test_atomic_extremes():
    x = np.array([0.3, -1.2, 0.9, 0.4, 1.1])

    def f(x):
        out = np.array([0.0, 5.0])
        largest[2, 4](x, out)
        return 2.0 * out[0] + out[1] * out[1]

    value, g = tg.value_and_grad(f)(x)
    np.testing.assert_allclose(value, 2 * 1.44 + 1.44)
    np.testing.assert_allclose(g, [0.0, -4.8 - 2.4, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(tg.hvp(f, x, np.ones(5)), [0.0, 4.0 + 2.0, 0.0, 0.0, 0.0])
    with pytest.raises(KernelError, match=r"line \d+ of .*: cuda\.atomic\.exch"):
        tg.grad(lambda x: exchanged(x))(x)
    with pytest.raises(KernelError, match="exch.*File .*test_races"):
        tg.grad(lambda x: exchanged(x, 1.0))(x)


@cuda.jit
def exchange(x, taken, out):
    i = cuda.grid(1)
    cuda.atomic.exch(taken, 0, i)
    out[i] = x[i] * x[i]


def exchanged(x, of=1):
    out = np.zeros(5)
    exchange[1, 5](x, np.array([of]), out)
    return out.sum()


C_LARGEST = """
extern "C" __global__ void largest(const double* x, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicMax(&out[0], x[i] * x[i]);
}
"""


def test_races_and_extremes_in_c():
    text = KernelText(C_LARGEST, "<largest>")
    values = [np.array([0.3, -1.2, 0.9]), np.zeros(1), 3, 1, 1, 2, 1, 1, 2]
    search_races(text.program("largest", True), values)
    (found,) = interpreted(text.program("largest", False), values)
    assert found[0] == 1.44
    A = adjoint(text.program("largest", False), (0, 1))
    bars = interpreted(A, [*values[:1], np.zeros(1), *values[2:], np.zeros(3), np.ones(1)])
    np.testing.assert_array_equal(bars[0], [0.0, -2.4, 0.0])
    with pytest.raises(KernelError, match="line 4: the derivative of atomicMax or atomicMin depends"):
        ThreadText(adjoint(text.program("largest", True), (0, 1)))
    racy = KernelText(C_LARGEST.replace("atomicMax(&out[0], x[i] * x[i])", "out[0] = x[i]"), "<racy>")
    with pytest.raises(KernelError, match=r"a race at out\[0\]: thread .* writes it in line 4"):
        search_races(racy.program("largest", True), values)


ALL_WRITE = """
extern "C" __global__ void f(const double* x, double* y, long long N) {
  long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) y[0] = x[0] * x[0];
}
"""


def test_a_race_of_equal_values_is_found_by_the_check_of_a_derived_kernel():
    """The result does not depend on the order of threads; the adjoint on a device would."""
    declared = ["in double x[N]", "out double y[1]", "size N"]
    for text, threads in ((ALL_WRITE.replace("i < N", "i == 0"), 3), (ALL_WRITE, 3)):
        k = tg.kernels.raw(text, "f", declared, vjp="derive", threads="N")
        if text == ALL_WRITE:
            with pytest.raises(KernelError, match=r"a race at y\[0\]: thread .* writes it in line 4 and"):
                k.check(np.ones(threads))
        else:
            assert any("no two threads meet" in line for line in k.check(np.ones(threads)))
