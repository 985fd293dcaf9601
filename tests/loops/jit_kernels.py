"""Kernels in Python for cupyx.jit, with the same by NumPy, for complex arguments too."""

import warnings

import cupy as cp
import numpy as np
from cupyx import jit

warnings.filterwarnings("ignore", "cupyx.jit.rawkernel is experimental", FutureWarning)
WIDTH = 4
R = np.random.default_rng(5)
THETAS = np.array([[0.5, 0.6, 0.7], [0.5, 0.4, 0.3], [0.1, 0.2, 0.15], [0.1, 0.2, 0.25]])
X = np.array([[0.0, 0.5, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]])


@jit.rawkernel(device=True)
def square(d):
    return d * d


@jit.rawkernel()
def log_likelihood(logLs, thetas, x, N, batch_size):
    """The kernel of a discussion among users, line by line in Python."""
    idx = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    if idx < batch_size:
        mu1 = thetas[0, idx]
        mu2 = thetas[1, idx]
        sigma_1 = thetas[2, idx]
        sigma_2 = thetas[3, idx]
        inv_sigma1 = np.float32(1.0) / sigma_1
        inv_sigma2 = np.float32(1.0) / sigma_2
        quad = np.float32(0.0) * mu1
        for i in range(N):
            d1 = (x[0, i] - mu1) * inv_sigma1
            d2 = (x[1, i] - mu2) * inv_sigma2
            quad += square(d1) + d2 * d2
        logLs[idx] = -0.5 * quad - N * (cp.log(sigma_1) + cp.log(sigma_2)) - N * np.log(2.0 * np.pi)


@jit.rawkernel()
def tiled(a, b, c):
    s = jit.shared_memory(np.float64, WIDTH * WIDTH)
    t = jit.shared_memory(np.float64, WIDTH * WIDTH)
    tx, ty = np.int32(jit.threadIdx.x), np.int32(jit.threadIdx.y)
    col, row = jit.grid(2)
    sum = np.float64(0.0) * a[0, 0]
    for k in range(0, a.shape[1], WIDTH):
        s[ty * WIDTH + tx] = a[row, k + tx] if row < a.shape[0] and k + tx < a.shape[1] else 0.0
        t[ty * WIDTH + tx] = b[k + ty][col] if col < len(b[0]) and k + ty < len(b) else 0.0
        jit.syncthreads()
        for j in range(WIDTH):
            sum += s[ty * WIDTH + j] * t[j * WIDTH + tx]
        jit.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = sum


@jit.rawkernel()
def block_norms(x, out):
    s = jit.shared_memory(np.float64, 8)
    t = jit.threadIdx.x
    i = jit.grid(1)
    s[t] = x[i] * x[i] if i < x.size else 0.0
    jit.syncthreads()
    h = np.int32(jit.blockDim.x) // 2
    while h > 0:
        if np.int32(t) < h:
            s[t] = s[t] + s[np.int32(t) + h]
        jit.syncthreads()
        h //= 2
    if t == 0:
        jit.atomic_add(out, 0, cp.sqrt(s[0]))


@jit.rawkernel()
def bins(x, which, out):
    for k in range(jit.grid(1), x.size, jit.gridsize(1)):
        jit.atomic_add(out, (which[k] % 3, which[k] // 3), x[k] ** 3)


@jit.rawkernel()
def steps(x, out):
    """Rows of an array, trips backwards and by twos, the smaller and the larger, an exponent of the call."""
    i = jit.grid(1)
    if i < x.shape[0]:
        row = x[i]
        at = (i, 1)
        total = x[at] * row[2]
        for j in range(x.shape[1] - 1, -1, -1):
            if row[j] > 1.5:
                continue
            total = total * min(row[j], 0.9) + max(row[j], 0.2)
        for k in range(1, x.shape[1], i + 2):
            total /= 1.0 + cp.abs(row[k])
            if k > 3:
                break
        out[i] = total**2 + row[0] ** (i + 1.5) + total // 0.1 + row[3] % 0.7


def log_likelihood_there(thetas, x):
    out = cp.zeros(thetas.shape[1], thetas.dtype)
    log_likelihood[1, 256](out, thetas, x, x.shape[1], thetas.shape[1])
    return out


def log_likelihood_here(thetas, x):
    d = (x[:, :, None] - thetas[:2, None]) / thetas[2:, None]
    n = x.shape[1]
    return -0.5 * (d * d).sum((0, 1)) - n * np.log(thetas[2:]).sum(0) - n * np.log(2 * np.pi)


def tiled_there(a, b):
    c = cp.zeros((a.shape[0], b.shape[1]))
    tiled[(2, 2), (WIDTH, WIDTH)](a, b, c)
    return c


def block_norms_there(x):
    out = cp.zeros(1)
    block_norms((3,), (8,), (x, out))
    return out


def block_norms_here(x):
    parts = [x[k : k + 8] for k in (0, 8, 16)]
    return np.array([sum(np.sqrt((p * p).sum()) for p in parts)])


WHICH = np.array([5, 0, 3, 3, 1, 5, 2])


def bins_there(x):
    out = cp.zeros((3, 2))
    bins[2, 2](x, cp.asarray(WHICH), out)
    return out


def bins_here(x):
    out = np.zeros((3, 2), np.result_type(x))
    np.add.at(out, (WHICH % 3, WHICH // 3), x**3)
    return out


def steps_there(x):
    out = cp.zeros(x.shape[0])
    steps[1, 32](x, out)
    return out


def steps_here(x):
    out = []
    for i, row in enumerate(x):
        total = row[1] * row[2]
        for r in row[::-1]:
            if r.real <= 1.5:
                total = total * (r if r.real < 0.9 else 0.9) + (r if r.real > 0.2 else 0.2)
        for j in range(1, len(row), i + 2):
            total = total / (1.0 + (r if (r := row[j]).real > 0 else -r))
            if j > 3:
                break
        remainder = row[3] - 0.7 * np.floor(row[3].real / 0.7)
        out.append(total**2 + row[0] ** (i + 1.5) + np.floor(total.real / 0.1) + remainder)
    return np.array(out)


CASES = {
    "log likelihood": (log_likelihood_there, log_likelihood_here, (THETAS, X)),
    "tiled product": (tiled_there, lambda a, b: a @ b, (R.random((6, 7)), R.random((7, 5)))),
    "block norms": (block_norms_there, block_norms_here, (R.random(21),)),
    "bins": (bins_there, bins_here, (R.random(7),)),
    "steps": (steps_there, steps_here, (2.0 * R.random((4, 7)),)),
}


@jit.rawkernel()
def first_thread(x, out):
    i = jit.grid(1)
    jit.syncwarp()
    out[i] = x[i]


@jit.rawkernel()
def whole(x, out):
    t = jit.grid(1)
    if t < x.shape[0]:
        row = x[t]
    else:
        row = out[t]
    out[t, 0] = row[1]


@jit.rawkernel()
def racy(x, out):
    out[0] = x[jit.grid(1)]


@cp.vectorize
def bump(x, y):
    if x > y:
        return x * x - y
    return cp.exp(x) * min(x, 2.0 * y)


@jit.rawkernel()
def no_attribute(x):
    x[0] = x.flags
