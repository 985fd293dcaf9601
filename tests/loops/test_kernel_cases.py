"""Kernels that other packages for kernels differentiate wrongly, in Numba's and in CUDA C's form."""

import math

import numpy as np
import pytest
from numba import cuda

import tapegrad as tg


@cuda.jit
def product(x, n, out):
    s = 1.0
    for k in range(n):
        s *= x[k]
    out[0] = s


@cuda.jit
def power(x, n, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        s = 1.0
        for _ in range(n):
            s *= x[i]
        out[i] = s


@cuda.jit
def until(x, most, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        s = 1.0
        while s < most:
            s *= x[i]
        out[i] = s


@cuda.jit
def recursion(x, n, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        s = 1.0
        for _ in range(n):
            s = s * x[i] + math.sin(s)
        out[i] = s


@cuda.jit
def overwritten(a, b):
    i = cuda.grid(1)
    if i < a.shape[0]:
        b[i] = a[i] * a[i]
        a[i] = 1.0


@cuda.jit
def scaled(a, b):
    i = cuda.grid(1)
    if i < a.shape[0]:
        a[i] *= b[i]


@cuda.jit
def squared(a, y):
    i = cuda.grid(1)
    if i < a.shape[0]:
        y[i] = a[i] * a[i]


@cuda.jit
def cleared(a, y):
    i = cuda.grid(1)
    if i < a.shape[0]:
        a[i] = 0.0


def of(kernel, *more, size=2):
    def f(x):
        out = np.zeros(size)
        kernel[1, 4](x, *more, out)  # more threads than elements
        return out.sum()

    return f


def writes(x):
    a, b = x.copy(), np.zeros(3)
    overwritten[1, 4](a, b)
    return b.sum()


def scales(b):
    a = np.array([1.0, 2.0, 3.0])
    scaled[1, 4](a, b)
    return a.sum()


def two_launches(x):
    a, y = x.copy(), np.zeros(2)
    squared[1, 2](a, y)
    cleared[1, 2](a, y)
    return y.sum()


CASES = {
    "product": (of(product, 3, size=1), [2.0, 2.0, 2.0], [4.0, 4.0, 4.0]),
    "power": (of(power, 3), [1.5, 2.0], [6.75, 12.0]),
    "while": (of(until, 10.0), [1.5, 2.0], [45.5625, 32.0]),
    "recursion": (of(recursion, 3), [1.5, 2.0], [7.487055434113092, 17.45818963356281]),
    "overwritten argument": (writes, [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]),
    "scaled in place": (scales, [4.0, 5.0, 6.0], [1.0, 2.0, 3.0]),
    "two launches": (two_launches, [1.0, 2.0], [2.0, 4.0]),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    f, x, want = CASES[name]
    np.testing.assert_allclose(tg.grad(f)(np.array(x)), want, rtol=1e-14)


SOURCE = r"""
extern "C" __global__ void power(const double* x, long long n, double* out, long long B) {
  long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < B) { double s = 1.0; for (long long k = 0; k < n; k++) s *= x[i]; out[i] = s; }
}
extern "C" __global__ void until(const double* x, double most, double* out, long long B) {
  long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < B) { double s = 1.0; while (s < most) s *= x[i]; out[i] = s; }
}
extern "C" __global__ void recursion(const double* x, long long n, double* out, long long B) {
  long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < B) { double s = 1.0; for (long long k = 0; k < n; k++) s = s * x[i] + sin(s); out[i] = s; }
}
extern "C" __global__ void product(const double* x, long long n, double* out, long long B) {
  if (threadIdx.x == 0) { double s = 1.0; for (long long k = 0; k < n; k++) s *= x[k]; out[0] = s; }
}
extern "C" __global__ void overwritten(double* a, double* b, long long B) {
  long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < B) { b[i] = a[i] * a[i]; a[i] = 1.0; }
}
extern "C" __global__ void scaled(double* a, const double* b, long long B) {
  long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < B) a[i] *= b[i];
}
extern "C" __global__ void cleared(double* a, long long B) {
  long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < B) a[i] = 0.0;
}
"""


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_gradients_in_c(name):
    _, x, want = CASES[name]
    with tg.testing.host_cupy() as cp:
        get = lambda entry: cp.RawKernel(SOURCE, entry)

        def f(x):
            if name == "overwritten argument":
                a, b = x.copy(), cp.zeros(3)
                get("overwritten")((1,), (4,), (a, b, 3))
                return b.sum()
            if name == "scaled in place":
                a = cp.array([1.0, 2.0, 3.0])
                get("scaled")((1,), (4,), (a, x, 3))
                return a.sum()
            if name == "two launches":
                a, y = x.copy(), cp.zeros(2)
                get("power")((1,), (2,), (a, 2, y, 2))
                get("cleared")((1,), (2,), (a, 2))
                return y.sum()
            out = cp.zeros(1 if name == "product" else x.size)
            n = 10.0 if name == "while" else 3
            entry = "until" if name == "while" else name
            get(entry)((1,), (4,), (x, n, out, x.size))
            return out.sum()

        np.testing.assert_allclose(cp.asnumpy(tg.grad(f)(cp.array(x))), want, rtol=1e-14)
