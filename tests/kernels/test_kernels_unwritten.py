"""What a kernel was given and did not use, or was to give and did not write: rows of theta behind the last
one read, which mostly means that theta lies on its side, and numbers of the outputs of a hand-written
kernel."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import KernelError, ShapeError
from tapegrad.kernels.raw_code import plan

kernels = tg.kernels
THETA = np.array([[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]])  # two parameters, three samples
DATA = np.array([0.5, 2.0])


def normal(theta, y):
    return -((y - theta[0]) ** 2) * theta[1]


def first(theta):
    return theta[0]


def step(m, theta, y):
    return m * theta[1], -((y - m) ** 2)


def ways(k):
    yield lambda theta: k(theta, DATA)
    yield lambda theta: k.value_and_grad(theta, DATA)
    yield lambda theta: k.hessian(theta, DATA)
    yield lambda theta: k.hvp(theta, theta, DATA)
    yield lambda theta: k.contributions(theta, DATA)
    yield lambda theta: k.scores(theta, DATA)
    yield lambda theta: k.lowered(len(theta), 0)
    yield lambda theta: tg.grad(lambda t: k(t, DATA).sum())(theta)
    yield lambda theta: tg.jvp(lambda t: k(t, DATA), (theta,), (theta,))
    if hasattr(k, "final"):
        yield lambda theta: k.final(theta, DATA)


@pytest.mark.parametrize("make", [lambda: kernels.likelihood(normal), lambda: kernels.recursion(first, step)])
def test_theta_on_its_side(make):
    for n in range(len(list(ways(make())))):
        k = make()
        way = list(ways(k))[n]
        way(THETA)
        for _ in range(2):
            with pytest.raises(
                ShapeError,
                match=r"theta has 3 rows.*reads only the first 2.*for \(B, p\) pass theta\.T.*theta\[:2\]",
            ):
                way(np.ascontiguousarray(THETA.T))
        way(THETA)
    with pytest.raises(ShapeError, match="theta has 5 rows"):
        k(np.ones(5), DATA)


def test_what_reads_no_row_has_gradient_zero():
    value, gradient = kernels.likelihood(lambda theta, y: y * y).value_and_grad(THETA, DATA)
    assert np.array_equal(value, [4.25] * 3) and np.array_equal(gradient, np.zeros((2, 3)))


@pytest.mark.parametrize("f", [
    lambda t, y: t[0] * t[2] * y, lambda t, y: t[0] * t[-1] * y, lambda t, y: t[0] * t[2:][0] * y, lambda t,
    y: (t[0] * t)[2] * y,
    lambda t, y: t[[0, 2]].prod() * y, lambda t, y: t[0] * t[..., 2] * y, lambda t, y: t.reshape(3, 1)[0,
    0] * t[2] * y,
    lambda t, y: np.asarray(t)[0] * np.flip(t)[0] * y, lambda t, y: [*t][0] * [*t][2] * y, lambda t,
    y: t[np.int64(0)] * t[len(t) - 1] * y,
])  # fmt: skip
def test_a_row_between_has_gradient_zero(f):
    theta = np.arange(1.0, 7.0).reshape(3, 2)
    value, gradient = kernels.likelihood(f).value_and_grad(theta, DATA)
    np.testing.assert_allclose(value, theta[0] * theta[2] * 2.5)
    np.testing.assert_allclose(gradient, [theta[2] * 2.5, [0.0, 0.0], theta[0] * 2.5])


def test_a_row_that_is_read_and_does_not_count():
    """It was meant: the function looks at it."""
    value, gradient = kernels.likelihood(lambda t, y: t[0] * y + 0 * t[1]).value_and_grad(THETA, DATA)
    assert np.array_equal(gradient, [[2.5] * 3, [0.0] * 3])


def test_named_entries_may_be_left():
    k = kernels.likelihood(lambda t, y: t["a"] * y)
    value, gradient = k.value_and_grad({"a": THETA[0], "b": THETA[1]}, DATA)
    np.testing.assert_allclose(value, 2.5 * THETA[0])
    assert np.array_equal(gradient["b"], np.zeros(3)) and np.array_equal(gradient["a"], np.full(3, 2.5))


def test_a_row_that_only_the_rule_for_missing_data_reads():
    k = kernels.recursion(first, step, missing=lambda m, theta: m * theta[2])
    theta = np.array([[0.5], [0.9], [2.0]])
    assert np.array_equal(k.value_and_grad(theta, DATA)[1][2], [0.0])
    m, total = 0.5, 0.0
    for y in (0.5, np.nan, 2.0):
        total, m = (total, m * 2.0) if np.isnan(y) else (total - (y - m) ** 2, m * 0.9)
    np.testing.assert_allclose(k(theta, np.array([0.5, np.nan, 2.0])), [total])
    with pytest.raises(ShapeError, match="theta has 4 rows"):
        k(np.ones((4, 1)), DATA)


# --- outputs ---

SOURCE = """
extern "C" __global__ void f(const real* x, real* y, KIND* n, long long B) {
  const long long threads = (long long)gridDim.x * blockDim.x;
  for (long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; b < B; b += threads) { BODY }
}"""
BODIES = {
    "branch": ("if (x[b] > 0) y[b] = x[b]; n[b] = 1;", "y"),
    "added": ("y[b] += x[b]; n[b] = 1;", "y"),
    "last": ("if (b + 1 < B) y[b] = 1; n[b] = 1;", "y"),
    "whole numbers": ("y[b] = 1; if (x[b] > 0) n[b] = 1;", "n"),
}


def kernel(body, kind="long long", cpu=None):
    text = SOURCE.replace("BODY", body).replace("KIND", kind)
    return kernels.raw(text, "f", ["in real x[B]", "out real y[B]", f"out {kind} n[B]", "size B"], cpu=cpu)


@pytest.mark.long
@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", BODIES)
def test_numbers_that_a_kernel_does_not_write(name, dtype):
    body, out = BODIES[name]
    for kind in ("long long", "int"):
        k = kernel(body, kind)
        x = np.array([1.0, 2.0, -1.0, -2.0], dtype)
        if name in ("branch", "whole numbers"):
            y, n = k(np.abs(x))  # all written
            assert np.array_equal(n, np.ones(4))
        for _ in range(3):
            with pytest.raises(
                KernelError,
                match=rf"f: the kernel did not write \d of 4 numbers of its output {out}, the first at "
                rf"\[\d\]",
            ):
                k(x)


def test_nan_is_a_number_like_others():
    """Of whatever payload, other than ours."""
    k = kernel("y[b] = x[b]; n[b] = 1;")
    x = np.array(
        [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001, 0x7FF95AFEC0DEFA10], np.uint64
    ).view(float)
    assert np.isnan(k(x)[0]).all()


def test_functions_for_the_cpu():
    def fill(x, y, n, B):
        y[:2], n[:] = x[:2], 1

    k = kernel(BODIES["branch"][0], cpu=fill)
    k(np.ones(2))
    with pytest.raises(
        KernelError, match=r"did not write 1 of 3 numbers of its output y, the first at \[2\]"
    ):
        k(np.ones(3))


def test_large_outputs_are_looked_at_in_the_first_calls(monkeypatch):
    monkeypatch.setattr(plan, "SMALL", 100)
    k = kernel(BODIES["branch"][0])
    x = np.ones(200)
    for _ in range(3):
        k(x)
    x[17] = -1.0
    with pytest.raises(
        KernelError, match=r"did not write 1 of 200 numbers of its output y, the first at \[17\]"
    ):
        k(x)
    x[17] = 1.0
    assert np.array_equal(k(x)[0], x)


@pytest.mark.long
def test_a_derivative_that_is_not_written():
    pull = """
extern "C" __global__ void g(const real* x, const real* y_bar, real* x_bar, long long B) {
  for (long long b = 0; b < B; ++b) if (x[b] > 0) x_bar[b] = 2 * x[b] * y_bar[b];
}"""
    push = """
extern "C" __global__ void h(const real* x, real* y, long long B) { for (long long b = 0; b < B; ++b) y[b] = x[b] * x[b]; }"""
    g = kernels.raw(
        pull, "g", ["in real x[B]", "in real y_bar[B]", "out real x_bar[B]", "size B"], grid=1, block=1
    )
    h = kernels.raw(push, "h", ["in real x[B]", "out real y[B]", "size B"], vjp=g, grid=1, block=1)
    assert np.array_equal(tg.grad(lambda x: h(x).sum())(np.array([1.0, 2.0])), [2.0, 4.0])
    with pytest.raises(KernelError, match="g: the kernel did not write 1 of 2 numbers of its output x_bar"):
        tg.grad(lambda x: h(x).sum())(np.array([1.0, -2.0]))
