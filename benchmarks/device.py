"""Kernels on a CUDA device, beside JAX and PyTorch on the same device and beside the best that it can do.

    python benchmarks/device.py [--save] [--quick]

A figure is the median of rounds of calls with one wait at the end of each round, by the wall clock, arrays
being on the device. The floor is the larger of two times: instructions of one thread per sample over the
measured rate of multiply-adds, and stored steps, once written and once read, over the measured bandwidth of a
copy.  An exp or log counts as one instruction and loads of data as none, so no kernel reaches its floor; what
is known is how far it is away."""

import os

os.environ.setdefault("JAX_PLATFORMS", "")  # the device where JAX has one
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import statistics
import time

import _harness as bench
import kernels as models
import numpy as np

import tapegrad as tg
from tapegrad.kernels.launch import cuda

RATE = """
extern "C" __global__ void fma_rate(real* out, long long steps) {
  real x[8];
  const real a = (real)1 - (real)threadIdx.x * (real)1e-6, b = (real)1e-3;
  for (int k = 0; k < 8; ++k) x[k] = (real)k;
  for (long long t = 0; t < steps; ++t)
    for (int k = 0; k < 8; ++k) x[k] = FMA(x[k], a, b);
  real sum = 0;
  for (int k = 0; k < 8; ++k) sum += x[k];
  out[blockIdx.x * (long long)blockDim.x + threadIdx.x] = sum;
}
"""
REALS = {
    "float64": "#define real double\n#define FMA fma\n",
    "float32": "#define real float\n#define FMA fmaf\n",
}
FULL = {"copy": 2**29, "chains": 20_000, "gaussian": (100_000, 1000), "many": (1_000_000, 1000), "few": (8,
10_000_000),
        "level": 1_000_000, "states": (100_000, 200), "large": (10_000, 100)}  # fmt: skip
QUICK = {"copy": 2**26, "chains": 1000, "gaussian": (10_000, 1000), "many": (100_000, 1000), "few": (8,
1_000_000),
         "level": 100_000, "states": (10_000, 200), "large": (1000, 100)}  # fmt: skip
METHOD = "wall clock, medians of rounds with one wait at the end of each; values and gradients agree with the CPU's before any timing"


class Ceilings:
    """What the device does at best: bytes a second of a copy, multiply-adds a second of each dtype."""

    def __init__(self, cupy, sizes):
        self.cupy = cupy
        a = cupy.zeros(sizes["copy"] // 8)
        b = cupy.empty_like(a)
        self.bandwidth = 2 * a.nbytes / seconds(cupy, lambda: cupy.copyto(b, a))
        self.rate = {}
        processors = cuda.device_limits(cupy.cuda.Device().id)[0]
        for dtype, words in REALS.items():
            kernel = cuda.loaded(words + RATE, "fma_rate")
            out = cupy.empty(processors * 2048, dtype)
            args = out, np.int64(sizes["chains"])
            spent = seconds(cupy, lambda kernel=kernel, args=args: kernel((processors * 8,), (256,), args))
            self.rate[dtype] = 8 * sizes["chains"] * out.size / spent

    def floor(self, low, dtype, batch, steps):
        """Seconds; for programs of scalar code."""
        instructions = sum(len(body.code) + len(body.terms) for body in low.bodies)
        moved = 2 * sum(size for _, size, _ in low.taped()) * np.dtype(dtype).itemsize
        return batch * steps * max(instructions / self.rate[np.dtype(dtype).name], moved / self.bandwidth)


def seconds(cupy, job, wait=None, rounds=9):
    """The median time of a call."""
    wait = wait or cupy.cuda.Device().synchronize
    job()
    wait()
    begin = time.perf_counter()
    job()
    wait()
    calls = int(min(max(0.02 / (time.perf_counter() - begin), 1), 200))
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            job()
        wait()
        found.append((time.perf_counter() - begin) / calls)
    return statistics.median(found)


def same_bits(ours, theirs):
    """'yes', or the largest relative difference of value and gradient from the CPU's."""
    pairs = [(a.get(), b) for a, b in zip(ours, theirs, strict=True)]
    if all(np.array_equal(a, b, equal_nan=True) for a, b in pairs):
        return "yes"
    return float(max(np.abs(a - b).max() / np.abs(b).max() for a, b in pairs))


class Table:
    def __init__(self, report, cupy, sizes, jax, torch):
        self.report, self.cupy, self.sizes, self.jax, self.torch = report, cupy, sizes, jax, torch
        self.best = Ceilings(cupy, sizes)
        rates = ", ".join(
            f"{rate / 1e12:.3g} x 10^12 multiply-adds a second of {dtype}"
            for dtype, rate in self.best.rate.items()
        )
        report.say(
            f"- the device at best, measured: {self.best.bandwidth / 1e12:.3g} TB/s of a copy; {rates}"
        )
        columns = ["model", "batch", "data", "dtype", "value ms", "value and gradient ms", "floor ms",
        "gradient / floor", "registers",
                   "bits of the CPU", "JAX ms", "PyTorch ms"]  # fmt: skip
        report.table("Value and gradient of each sample", columns)

    def row(self, name, kernel, theta, data, dtype=np.float64, jax=None, torch=None, scalar=True):
        cupy = self.cupy
        theta, data = theta.astype(dtype), np.ascontiguousarray(data, dtype)
        on_device, d = cupy.asarray(theta), cupy.asarray(data)
        batch, steps = theta.shape[1], data.shape[-1]
        few = np.ascontiguousarray(theta[:, :64])
        alike = same_bits(kernel.value_and_grad(cupy.asarray(few), d), kernel.value_and_grad(few, data))
        value = seconds(cupy, lambda: kernel(on_device, d))
        both = seconds(cupy, lambda: kernel.value_and_grad(on_device, d))
        low = kernel.lowered(len(theta), 0 if data.ndim == 1 else len(data))
        floor = self.best.floor(low, dtype, batch, steps) if scalar else bench.Absent("")
        registers = self.registers(kernel, theta, data)
        others = [self.jax_time(jax, theta, data), self.torch_time(torch, theta, data)]
        kind = np.dtype(dtype).name
        self.report.row(name, batch, steps, kind, value * 1e3, both * 1e3, bench.times(floor, 1e3),
        bench.ratio(both, floor), registers,
                        alike, *[bench.times(o, 1e3) for o in others])  # fmt: skip

    def registers(self, kernel, theta, data):
        launcher = kernel._family.launcher(
            "VG",
            0,
            (len(theta), 0 if data.ndim == 1 else len(data), False),
            theta.dtype,
            False,
            cuda.CudaLauncher,
        )
        return cuda.loaded(*launcher.forms[1][:2]).registers

    def jax_time(self, make, theta, data):
        if make is None:
            return bench.Absent("")
        if isinstance(self.jax, bench.Absent):
            return self.jax
        jax = self.jax
        many, shared = jax.numpy.asarray(theta), jax.numpy.asarray(data)
        f = jax.jit(jax.vmap(jax.value_and_grad(make(jax)), in_axes=(1, None), out_axes=(0, 1)))
        answer = []

        def job():
            answer[:] = f(many, shared)

        try:
            return seconds(self.cupy, job, lambda: jax.block_until_ready(answer), 5)
        except RuntimeError as error:  # out of memory, as a rule
            return bench.Absent(type(error).__name__)

    def torch_time(self, make, theta, data):
        if make is None:
            return bench.Absent("")
        if isinstance(self.torch, bench.Absent):
            return self.torch
        torch = self.torch
        leaf, shared = (
            torch.tensor(theta, device="cuda", requires_grad=True),
            torch.tensor(data, device="cuda"),
        )
        compiled = torch.compile(make(torch))
        try:
            job = lambda: torch.autograd.grad(compiled(leaf, shared).sum(), leaf)
            return seconds(self.cupy, job, torch.cuda.synchronize, 5)
        except RuntimeError as error:
            return bench.Absent(type(error).__name__)


def gaussian_of(np):
    """For JAX: one sample.  For PyTorch: all."""

    def loglik(th, x):
        d1, d2 = (x[0] - th[0]) / th[2], (x[1] - th[1]) / th[3]
        return (-0.5 * (d1 * d1 + d2 * d2)).sum(-1) - x.shape[1] * (
            np.log(th[2]) + np.log(th[3]) + models.LOG2PI
        ).squeeze(-1)

    return loglik


def jax_scan(model):
    """One sample of a recursion, data (d, T) or (T,)."""

    def make(jax):
        init, step = model(jax.numpy)

        def loglik(theta, data):
            _, terms = jax.lax.scan(lambda c, y: step(c, theta, y), init(theta), data.T)
            return terms.sum()

        return loglik

    return make


def measured(report, cupy, sizes, jax, torch):
    rng = np.random.default_rng(0)
    table = Table(report, cupy, sizes, jax, torch)
    normal = tg.kernels.likelihood(models.gaussian)
    one = lambda jax: lambda th, x: gaussian_of(jax.numpy)(th[:, None], x)
    all_samples = lambda torch: lambda th, x: gaussian_of(torch)(th[:, :, None], x)
    for size, peers in (
        ("gaussian", (one, all_samples)),
        ("many", (None, None)),
        ("few", (one, all_samples)),
    ):
        batch, n = sizes[size]
        theta, x = np.abs(rng.normal(size=(4, batch))) + 0.5, rng.normal(size=(2, n))
        for dtype in (np.float64, np.float32):
            table.row("Gaussian, 4 parameters", normal, theta, x, dtype, *peers)
    level = tg.kernels.recursion(*models.level(np))
    theta = np.log([[1e4], [1e3]]) + 0.02 * rng.normal(size=(2, sizes["level"]))
    table.row("local level", level, theta, models.NILE, np.float64, jax_scan(models.level))
    table.row("local level, one sample", level, theta[:, :1], models.NILE, np.float64, jax_scan(models.level))
    batch, steps = sizes["states"]
    A = 0.8 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    centre = np.concatenate([A.ravel(), np.log(np.full(4, 0.3)), np.log(np.full(2, 0.5))])[:, None]
    theta, y = centre + 0.02 * rng.normal(size=(22, batch)), 0.1 * rng.normal(size=(2, steps)).cumsum(axis=1)
    states = tg.kernels.recursion(*models.four_states(np))
    for dtype in (np.float64, np.float32):
        table.row("4 states, 2 observations", states, theta, y, dtype, jax_scan(models.four_states))
    batch, steps = sizes["large"]
    for n in (12, 20):
        A = 0.8 * np.linalg.qr(rng.normal(size=(n, n)))[0]
        theta = np.concatenate([A.ravel(), np.log(np.full(n, 0.3))])[:, None] + 0.002 * rng.normal(
            size=(n * n + n, batch)
        )
        kernel, data = (
            tg.kernels.recursion(*models.dense(n)(np)),
            0.1 * rng.normal(size=(2, steps)).cumsum(axis=1),
        )
        table.row(
            f"{n} states, 2 observations",
            kernel,
            theta,
            data,
            np.float64,
            jax_scan(models.dense(n)),
            scalar=False,
        )


def on_device(jax, torch):
    """JAX and PyTorch, or why they are not there."""
    if jax is None or jax.default_backend() != "gpu":
        jax = bench.NOT_INSTALLED if jax is None else bench.Absent("no device")
    if torch is None or not torch.cuda.is_available():
        torch = bench.NOT_INSTALLED if torch is None else bench.Absent("no device")
    return jax, torch


def main():
    try:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except Exception as error:
        raise SystemExit(f"no CUDA device answers: {error}") from None
    report = bench.start(__doc__, METHOD)
    report.say(
        f"- device: {name}, CuPy {cupy.__version__}, CUDA driver {cupy.cuda.runtime.driverGetVersion()}"
    )
    measured(report, cupy, QUICK if report.quick else FULL, *on_device(bench.jax(), bench.torch()))
    report.close()


if __name__ == "__main__":
    main()
