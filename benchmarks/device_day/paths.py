"""The ways by which work reaches a device, each as a small program `path(xp)` that gives arrays.

A path runs with CuPy and with NumPy; the results must agree."""

import numpy as np

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.kernels import gaussian

RAW = r"""
extern "C" __global__ void normal(const real* theta, const real* x, real* value, long long B, long long N) {
  for (long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; b < B; b += (long long)gridDim.x * blockDim.x) {
    real sum = 0;
    for (long long i = 0; i < N; ++i) { const real z = (x[i] - theta[b]) / theta[B + b]; sum += z * z; }
    value[b] = -sum / 2 - N * log(theta[B + b]);
  }
}
extern "C" __global__ void normal_vjp(const real* theta, const real* x, const real* value_bar, real* theta_bar,
                                      long long B, long long N) {
  for (long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; b < B; b += (long long)gridDim.x * blockDim.x) {
    const real sigma = theta[B + b];
    real s = 0, q = 0;
    for (long long i = 0; i < N; ++i) { const real z = (x[i] - theta[b]) / sigma; s += z; q += z * z; }
    theta_bar[b] = value_bar[b] * s / sigma;
    theta_bar[B + b] = value_bar[b] * (q - N) / sigma;
  }
}
"""


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def density(theta, y):
    z = (y - theta[0]) / np.exp(theta[1])
    return -0.5 * z * z - theta[1]


def level(theta):
    return np.array([0.0, 1e3])


def level_step(carry, theta, y):
    a, p = carry
    f = p + np.exp(theta[0])
    gain = p / f
    return np.array([a + gain * (y - a), p * (1 - gain) + np.exp(theta[1])]), -0.5 * (
        np.log(f) + (y - a) ** 2 / f
    )


def kepler(theta, datum):
    t, v = datum
    mean, e = t * theta[0], 0.3 * theta[1]
    miss = lambda E: E - e * np.sin(E) - mean
    E = tg.kernels.while_loop(
        lambda E: np.abs(miss(E)) > 1e-9, lambda E: E - miss(E) / (1.0 - e * np.cos(E)), mean, 200
    )
    return -0.5 * (v - np.cos(E)) ** 2


def program(xp):
    """A function of a vector with writes into a captured buffer."""
    A, buffer = xp.asarray(numbers(4, 4)), xp.zeros(4)

    def f(x):
        y = A @ xp.sin(x)
        buffer[1:] = y[:-1] * x[1:]
        buffer[0] += 1.0
        return (xp.exp(-y * y) * x + buffer**2).sum()

    return f, buffer


def operations(xp):
    x, v = xp.asarray(numbers(4, seed=1)), xp.asarray(numbers(4, seed=2))
    f, buffer = program(xp)
    return tg.grad(f)(x), tg.hvp(f, x, v), tg.jvp(f, (x,), (v,))[1], tg.hessian(f)(x), buffer


def matrices(xp):
    def f(a):
        s = a @ a.T + 4.0 * xp.eye(4)
        w, _ = xp.linalg.eigh(s)
        return (
            xp.log(w).sum()
            + xp.linalg.solve(s, a)[0].sum()
            + xp.linalg.cholesky(s)[3, 0]
            + xp.linalg.norm(xp.linalg.inv(s))
        )

    return tg.grad(f)(xp.asarray(numbers(4, 4))), tg.hvp(
        f, xp.asarray(numbers(4, 4)), xp.asarray(numbers(4, 4, seed=3))
    )


def transforms_of_fourier(xp):
    return (tg.grad(lambda x: (xp.abs(xp.fft.rfft(x)) ** 2 * xp.arange(9.0)).sum())(xp.asarray(numbers(16))),)


def samples(xp):
    f, _ = program(xp)
    return tg.vmap(tg.grad(lambda x: (xp.sin(x) ** 2).sum()))(xp.asarray(numbers(5, 4))), tg.hmp(
        f, xp.ones(4), xp.asarray(numbers(3, 4))
    )


def likelihood(xp, dtype=float, samples=300, data=40):
    theta, y = xp.asarray(0.1 * numbers(2, samples), dtype), xp.asarray(numbers(data, seed=1), dtype)
    k = tg.kernels.likelihood(density)
    return *k.value_and_grad(theta, y), k.hvp(theta, theta, y), k.hessian(theta, y)


def likelihood_float32(xp):
    return likelihood(xp, np.float32)


def likelihood_of_few_samples(xp):
    return likelihood(xp, samples=2, data=300_000)


def recursion(xp):
    theta, y = xp.asarray(0.1 * numbers(2, 5000)), xp.asarray(numbers(100, seed=1).cumsum())
    k = tg.kernels.recursion(level, level_step)
    return *k.value_and_grad(theta, y), k.hvp(theta, theta, y), k.contributions(theta, y)


def counted_loop(xp):
    theta, data = (
        xp.asarray(1.0 + 0.1 * numbers(2, 70)),
        xp.asarray(np.stack([np.linspace(0, 9, 20), numbers(20)])),
    )
    return tg.kernels.likelihood(kepler).value_and_grad(theta, data)


def map_of_samples(xp):
    k = tg.kernels.map(lambda x: np.array([x[0] * np.exp(x[1]), np.sin(x[0])]))
    x = xp.asarray(numbers(2, 1000))
    return k(x), tg.grad(lambda x: (k(x) ** 2).sum())(x)


def model_by_hand(xp):
    theta, y = xp.asarray(np.abs(numbers(4, 200)) + 0.5), xp.asarray(numbers(2, 50, seed=1))
    return gaussian.loglik(theta, y), tg.grad(lambda t: gaussian.loglik(t, y).sum())(theta)


def raw_kernel(xp):
    sizes = ["size B", "size N"]
    inputs = ["in real theta[2, B]", "const real x[N]"]
    adjoint = tg.kernels.raw(
        RAW, "normal_vjp", [*inputs, "in real value_bar[B]", "out real theta_bar[2, B]", *sizes]
    )
    normal = tg.kernels.raw(RAW, "normal", [*inputs, "out unsaved real value[B]", *sizes], vjp=adjoint)
    theta, x = xp.asarray(np.abs(numbers(2, 300)) + 0.5), xp.asarray(numbers(40, seed=1))
    return normal(theta, x), tg.grad(lambda t: normal(t, x).sum())(theta)


def replayed(xp, **how):
    f, buffer = program(xp)
    p, found = tg.prepare(f, xp.asarray(numbers(4)), **how), []
    for k in range(5):
        x = xp.asarray(numbers(4, seed=k))
        found += [p.value(x), p.grad(x), p.hvp(x, x)]
    return *found, buffer


def fused(xp):
    f = lambda x: (xp.exp(-(xp.sin(x) ** 2)) * x + xp.sqrt(1 + x * x)).sum()
    p, found = tg.prepare(f, xp.asarray(numbers(100_000)), compile=True), []
    for k in range(4):
        x = xp.asarray(numbers(100_000, seed=k))
        found += [p.value(x), p.grad(x), p.hvp(x, x)]
    return found


def cuda_graph(xp):
    f = lambda x: (xp.exp(-(xp.sin(x) ** 2)) * x).sum()
    p, found = tg.prepare(f, xp.asarray(numbers(1000)), cuda_graph=xp is not np), []
    streams = [xp.cuda.Stream(non_blocking=True) for _ in range(2)] if xp is not np else []
    for k in range(8):
        x = xp.asarray(numbers(1000, seed=k))
        if streams:
            xp.cuda.Device().synchronize()
            with streams[k % 2]:
                found.append(p.grad(x))
        else:
            found.append(p.grad(x))
    for stream in streams:
        stream.synchronize()
    return found


def state_space(xp):
    y = xp.asarray(numbers(60).cumsum())
    build = lambda p: ss.local_level(xp.exp(p[0]), xp.exp(p[1]))
    f = lambda p: ss.loglik(build(p), y)
    p = xp.asarray(np.array([0.1, -0.2]))
    return f(p), tg.grad(f)(p), tg.hessian(f)(p)


PATHS = {
    f.__name__: f
    for f in (
        operations, matrices, transforms_of_fourier, samples, likelihood, likelihood_float32,
        likelihood_of_few_samples, recursion,
        counted_loop, map_of_samples, model_by_hand, raw_kernel, replayed, fused, cuda_graph, state_space,
    )
}  # fmt: skip


def difference(xp, path):
    """The largest difference from NumPy's results, each relative to the largest number of its array; inf for
    other shapes."""
    worst = 0.0
    host = [np.asarray(a) for a in PATHS[path](np)]
    for a, b in zip(PATHS[path](xp), host, strict=True):
        a = np.asarray(a.get() if hasattr(a, "get") else a)
        if a.shape != b.shape or a.dtype != b.dtype or not np.array_equal(np.isnan(a), np.isnan(b)):
            return float("inf")
        worst = max(
            worst,
            float(
                np.nan_to_num(np.abs(a - b)).max(initial=0.0)
                / (np.abs(np.nan_to_num(b)).max(initial=0.0) or 1.0)
            ),
        )
    return worst


def tolerance(path):
    return 1e-4 if path.endswith("float32") else 1e-10
