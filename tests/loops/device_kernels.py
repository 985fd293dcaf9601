"""Kernels of numba.cuda, and a run of them by Python's threads: the reference."""

import math
import threading
import types

import numpy as np
from numba import cuda, float32, float64

WIDTH = 4


@cuda.jit(device=True)
def square(d):
    return d * d


@cuda.jit
def log_likelihood(logLs, thetas, x, N, batch_size):
    """The kernel of a discussion among users, line by line in Python."""
    idx = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if idx < batch_size:
        mu1 = thetas[0, idx]
        mu2 = thetas[1, idx]
        sigma_1 = thetas[2, idx]
        sigma_2 = thetas[3, idx]
        inv_sigma1 = float32(1.0) / sigma_1
        inv_sigma2 = float32(1.0) / sigma_2
        quad = float32(0.0)
        for i in range(N):
            d1 = (x[0, i] - mu1) * inv_sigma1
            d2 = (x[1, i] - mu2) * inv_sigma2
            quad += square(d1) + d2 * d2
        logLs[idx] = -0.5 * quad - N * (math.log(sigma_1) + math.log(sigma_2)) - N * math.log(2.0 * math.pi)


@cuda.jit
def tiled_product(A, B, C):
    sA = cuda.shared.array(shape=(WIDTH, WIDTH), dtype=float64)
    sB = cuda.shared.array((WIDTH, WIDTH), float64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    acc = 0.0
    for t in range((A.shape[1] + WIDTH - 1) // WIDTH):
        sA[ty, tx] = A[row, t * WIDTH + tx] if row < A.shape[0] and t * WIDTH + tx < A.shape[1] else 0.0
        sB[ty, tx] = B[t * WIDTH + ty, col] if col < B.shape[1] and t * WIDTH + ty < B.shape[0] else 0.0
        cuda.syncthreads()
        for k in range(WIDTH):
            acc += sA[ty, k] * sB[k, tx]
        cuda.syncthreads()
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = acc


@cuda.jit
def block_norms(x, out):
    s = cuda.shared.array(8, float64)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = x[i] * x[i] if i < x.shape[0] else 0.0
    cuda.syncthreads()
    h = cuda.blockDim.x // 2
    while h > 0:
        if t < h:
            s[t] = s[t] + s[t + h]
        cuda.syncthreads()
        h = h // 2
    if t == 0:
        cuda.atomic.add(out, 0, math.sqrt(s[0]))


@cuda.jit
def histogram(x, bins, out):
    i = cuda.grid(1)
    stride = cuda.gridsize(1)
    for k in range(i, x.shape[0], stride):
        cuda.atomic.add(out, bins[k], x[k] * x[k] * x[k])


@cuda.jit
def prefix_sum(x, out):
    """A value of each thread, and an array of each thread, that are used after barriers."""
    s = cuda.shared.array(8, float64)
    own = cuda.local.array(2, float64)
    t = cuda.threadIdx.x
    if t >= x.shape[0]:
        v = 0.0
    else:
        v = x[t] * x[t]
    own[0] = v
    own[1] = 0.5 * v * v
    s[t] = v
    cuda.syncthreads()
    step = 1
    while step < cuda.blockDim.x:
        other = s[t - step] if t >= step else 0.0
        cuda.syncthreads()
        s[t] += other
        v = v + other * own[1]
        cuda.syncthreads()
        step *= 2
    if t < x.shape[0]:
        out[t] = s[t] * own[0] + v


@cuda.jit
def late_barrier(x, out):
    t = cuda.threadIdx.x
    if x[t] > 0.0:
        cuda.syncthreads()
    out[t] = x[t]


class Threads:
    """numba.cuda for one thread of Python."""

    def __init__(self, sizes, block, thread, barrier, shared, lock):
        names = ("x", "y", "z")
        self.gridDim, self.blockDim = (
            types.SimpleNamespace(**dict(zip(names, n, strict=True))) for n in sizes
        )
        self.blockIdx, self.threadIdx = (
            types.SimpleNamespace(**dict(zip(names, n, strict=True))) for n in (block, thread)
        )
        self.count, self.syncthreads, self.lock = 0, barrier.wait, lock
        self.shared, self.local = (
            types.SimpleNamespace(array=self.share),
            types.SimpleNamespace(array=self.make),
        )
        self.atomic = types.SimpleNamespace(add=self.add)
        self.all_shared = shared

    def make(self, shape, dtype):
        return np.zeros(shape, complex)

    def share(self, shape, dtype):
        self.count += 1
        with self.lock:
            return self.all_shared.setdefault(self.count, self.make(shape, dtype))

    def grid(self, n):
        found = [
            getattr(self.blockIdx, a) * getattr(self.blockDim, a) + getattr(self.threadIdx, a)
            for a in "xyz"[:n]
        ]
        return found[0] if n == 1 else tuple(found)

    def gridsize(self, n):
        return self.gridDim.x * self.blockDim.x

    def add(self, x, at, v):
        with self.lock:
            x[at] += v


def by_threads(kernel, blocks, threads, *args):
    """Run a kernel's Python code by threads, on arrays that may be complex."""
    sizes = [(*(n if isinstance(n, tuple) else (n,)), 1, 1)[:3] for n in (blocks, threads)]
    maths = types.SimpleNamespace(sqrt=np.sqrt, log=np.log, pi=math.pi)
    failed = []
    for block in np.ndindex(sizes[0]):
        barrier, shared, lock = threading.Barrier(int(np.prod(sizes[1]))), {}, threading.Lock()

        def run(thread, block=block, barrier=barrier, shared=shared, lock=lock):
            space = {
                **kernel.py_func.__globals__,
                "cuda": Threads(sizes, block, thread, barrier, shared, lock),
                "math": maths,
            }
            space |= {"square": lambda d: d * d, "float32": lambda v: v}
            try:
                types.FunctionType(kernel.py_func.__code__, space)(*args)
            except Exception as error:
                failed.append(error)
                barrier.abort()

        workers = [threading.Thread(target=run, args=(thread,)) for thread in np.ndindex(sizes[1])]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    if failed:
        raise failed[0]
