"""One operation in a loop of 300 steps on 6 numbers, value and gradient, prepared with default settings.

    python benchmarks/operations_in_loops.py [--save] [--quick] [--only PART]

PART: table.  A step is ``z = tanh(A @ op(z)) + W[t] + x0``.  Figures are microseconds a step, when nothing
more is compiled.  A program that replay breaks into calls of Python shows here as a multiple of `none`."""

import time

import _harness as bench
import numpy as np
import scipy.special

import tapegrad as tg

STEPS, SIZE = 300, 6
SEED = np.random.default_rng(0)
A = 0.3 * np.eye(SIZE) + 0.05 * SEED.normal(size=(SIZE, SIZE))
X0 = SEED.random(SIZE) + 0.5
W = 0.1 * SEED.normal(size=(STEPS, SIZE))
INDICES = SEED.integers(0, SIZE, SIZE)
GRID = np.linspace(-3.0, 3.0, 9)
HEIGHTS = np.sin(GRID)
FILTER = np.array([0.2, 0.5, 0.3])
EYE = np.eye(SIZE)
SPREAD = np.diag(np.arange(float(SIZE)))
SMALL = 0.01  # keeps the results of operations of any size near 1


def matrix(z, xp):
    return EYE + 0.1 * xp.outer(z, z)


# name -> the operation of z, NumPy (or JAX's), scipy.special (or JAX's)
OPERATIONS = {
    "none": lambda z, xp, special: z,
    "norm": lambda z, xp, special: z / xp.linalg.norm(z),
    "interp": lambda z, xp, special: xp.interp(z, GRID, HEIGHTS),
    "clip": lambda z, xp, special: xp.clip(z, -2.0, 2.0),
    "arctan2": lambda z, xp, special: xp.arctan2(z, 1.5),
    "logsumexp": lambda z, xp, special: z - special.logsumexp(z),
    "floor": lambda z, xp, special: z - 0.1 * xp.floor(z),
    "where": lambda z, xp, special: xp.where(z > 0, z, 0.1 * z),
    "convolve": lambda z, xp, special: xp.convolve(z, FILTER, "same"),
    "max": lambda z, xp, special: z - z.max() + 0.5,
    "min": lambda z, xp, special: z - z.min() + 0.5,
    "maximum": lambda z, xp, special: xp.maximum(z, 0.01),
    "expit": lambda z, xp, special: special.expit(z),
    "cholesky": lambda z, xp, special: xp.linalg.cholesky(matrix(z, xp)) @ z,
    "arctan": lambda z, xp, special: xp.arctan(z),
    "sort": lambda z, xp, special: xp.sort(z),
    "logaddexp": lambda z, xp, special: xp.logaddexp(z, 0.1),
    "power 1.5": lambda z, xp, special: (z * z + 0.1) ** 1.5,
    "solve": lambda z, xp, special: xp.linalg.solve(matrix(z, xp), z),
    "abs": lambda z, xp, special: xp.abs(z),
    "hypot": lambda z, xp, special: xp.hypot(z, 0.5),
    "mod": lambda z, xp, special: xp.mod(z, 0.7),
    "cross": lambda z, xp, special: xp.concatenate((xp.cross(z[:3], z[3:]), z[3:])),
    "power 3": lambda z, xp, special: z**3,
    "sign": lambda z, xp, special: z + 0.1 * xp.sign(z),
    "slogdet": lambda z, xp, special: z + SMALL * xp.linalg.slogdet(matrix(z, xp))[1],
    "erf": lambda z, xp, special: special.erf(z),
    "exp": lambda z, xp, special: xp.exp(-z),
    "log": lambda z, xp, special: xp.log(z * z + 0.1),
    "sqrt": lambda z, xp, special: xp.sqrt(z * z + 0.1),
    "sin": lambda z, xp, special: xp.sin(z),
    "sum": lambda z, xp, special: z - SMALL * z.sum(),
    "cumsum": lambda z, xp, special: 0.2 * xp.cumsum(z),
    "prod": lambda z, xp, special: z + SMALL * xp.prod(z),
    "std": lambda z, xp, special: z / (1.0 + xp.std(z)),
    "take": lambda z, xp, special: z[INDICES],
    "outer": lambda z, xp, special: xp.outer(z, z) @ z,
    "inv": lambda z, xp, special: xp.linalg.inv(matrix(z, xp)) @ z,
    "argsort": lambda z, xp, special: z[xp.argsort(-z)],
    "argmax": lambda z, xp, special: z + SMALL * z[xp.argmax(A * z, axis=1)],
    "median": lambda z, xp, special: z - xp.median(z),
    "digitize": lambda z, xp, special: z + SMALL * xp.digitize(z, GRID),
    "choose": lambda z, xp, special: xp.choose((z > 0.5).astype(int), [z, 0.5 * z], mode="clip"),
    "round": lambda z, xp, special: z - SMALL * xp.round(z, 1),
    "modf": lambda z, xp, special: xp.modf(z)[0],
    "nan_to_num": lambda z, xp, special: xp.nan_to_num(z),
    "sinc": lambda z, xp, special: xp.sinc(z),
    "betaln": lambda z, xp, special: special.betaln(2.0 + z * z, 3.0),
    "eigvalsh": lambda z, xp, special: z + SMALL * xp.linalg.eigvalsh(matrix(z, xp) + SPREAD),
    "svd": lambda z, xp, special: z + SMALL * xp.linalg.svd(matrix(z, xp) + SPREAD)[1],
    "qr": lambda z, xp, special: z + SMALL * xp.linalg.qr(matrix(z, xp))[1][0],
    "det": lambda z, xp, special: z + SMALL * xp.linalg.det(matrix(z, xp)),
    "pinv": lambda z, xp, special: z + SMALL * xp.linalg.pinv(matrix(z, xp))[0],
    "complex": lambda z, xp, special: xp.abs((z + 0.5j) ** 2),
    "fft": lambda z, xp, special: 0.5 * xp.fft.fft(z).real,
}  # fmt: skip


def loop(operation):
    def f(z):
        for t in range(STEPS):
            z = np.tanh(A @ operation(z, np, scipy.special)) + W[t] + X0
        return (z * z).sum()

    return f


def scan(operation, jax):
    """The same for JAX, which compiles one step."""
    xp, special = jax.numpy, jax.scipy.special

    def f(z):
        step = lambda z, w: (xp.tanh(A @ operation(z, xp, special)) + w + X0, None)
        z, _ = jax.lax.scan(step, z, xp.asarray(W))
        return (z * z).sum()

    return jax.jit(jax.value_and_grad(f))


def table(report):
    jax, shares = bench.jax(), []
    report.table(
        "a loop of 300 steps on 6 numbers, value and gradient: microseconds a step",
        ["operation", "prepared", "JAX jit", "prepared / JAX"],
    )
    for name, operation in OPERATIONS.items():
        p = tg.prepare(loop(operation), X0)
        begin = time.process_time()
        while time.process_time() - begin < 0.5:
            p.value_and_grad(X0)
        jobs = {"tapegrad": lambda p=p: p.value_and_grad(X0), "JAX": bench.NOT_INSTALLED}
        if jax is not None:
            compiled = scan(operation, jax)
            jobs["JAX"] = lambda compiled=compiled: jax.block_until_ready(compiled(X0))
        t = bench.measure(jobs, seconds=0.3, rounds=(3, 9), rtol=1e-8)
        share = bench.ratio(t["tapegrad"], t["JAX"])
        shares.append(share)
        report.row(name, bench.times(t["tapegrad"], 1e6 / STEPS), bench.times(t["JAX"], 1e6 / STEPS), share)
    if jax is not None:
        report.goal("G5o: the largest share of JAX's time", max(shares), 0.8)


if __name__ == "__main__":
    bench.start(__doc__).run(table)
