"""Generated kernels beside JAX's and PyTorch's compiled programs: one series, thousands of parameter vectors, Hessians, sums over data.

    python benchmarks/kernels.py [--save] [--quick]

JAX gets its best spelling: a jitted `lax.scan` with Python scalars unrolled where that helps, `vmap` over parameter vectors.  The
first call of a kernel (tracing, differentiating, compiling, running) is timed with nothing on disk."""

import os

os.environ["TAPEGRAD_CACHE"] = ""  # first calls compile

import time
from pathlib import Path

import _harness as bench
import numpy as np

import tapegrad as tg

NILE = np.loadtxt(Path(__file__).resolve().parent.parent / "examples" / "data" / "nile.csv", delimiter=",", skiprows=3)[:, 1]
LOG2PI = float(np.log(2 * np.pi))
H = np.array([[1.0, 0.0, 0.5, 0.2], [0.0, 1.0, -0.3, 0.4]])


# --- the models, one text for NumPy and JAX ---


def level(np):
    def init(theta):
        return 0.0 * theta[0], 1e7 + 0.0 * theta[0]

    def step(carry, theta, y):
        a, P = carry
        obs, drift = np.exp(theta[0]), np.exp(theta[1])
        F, v = P + obs, y - a
        K = P / F
        return (a + K * v, P - K * P + drift), -0.5 * (LOG2PI + np.log(F) + v * v / F)

    return init, step


def four_states(np):
    """22 parameters: the 4 x 4 transition, four log variances of the states, two of the observations."""

    def init(theta):
        return np.zeros(4), np.eye(4)

    def step(carry, theta, y):
        m, P = carry
        A = theta[:16].reshape((4, 4))
        m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[16:20]))
        v, PH = y - H @ m, P @ H.T
        S = H @ PH + np.diag(np.exp(theta[20:]))
        a, b, c = S[0, 0], S[0, 1], S[1, 1]
        det = a * c - b * b
        Si = np.array([[c, -b], [-b, a]]) / det
        K = PH @ Si
        P = P - K @ PH.T
        return (m + K @ v, 0.5 * (P + P.T)), -0.5 * (np.log(det) + v @ Si @ v + 2 * LOG2PI)

    return init, step


def dense(n):
    """n states, two observations, all of the n x n transition and n log variances are parameters."""

    def model(np):
        rows = H.repeat(-(-n // 4), axis=1)[:, :n] * 4 / n

        def init(theta):
            return np.zeros(n), np.eye(n)

        def step(carry, theta, y):
            m, P = carry
            A = theta[: n * n].reshape((n, n))
            m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[n * n :]))
            v, PH = y - rows @ m, P @ rows.T
            S = rows @ PH + 0.5 * np.eye(2)
            Si = np.linalg.inv(S)
            K = PH @ Si
            P = P - K @ PH.T
            return (m + K @ v, 0.5 * (P + P.T)), -0.5 * (np.linalg.slogdet(S)[1] + v @ Si @ v + 2 * LOG2PI)

        return init, step

    return model


def gaussian(theta, x):
    mu1, mu2, s1, s2 = theta
    d1, d2 = (x[0] - mu1) / s1, (x[1] - mu2) / s2
    return -0.5 * (d1 * d1 + d2 * d2) - np.log(s1) - np.log(s2) - LOG2PI


def scanned(jax, model, y):
    init, step = model(jax.numpy)

    def loglik(theta):
        carry, terms = jax.lax.scan(lambda c, obs: step(c, theta, obs), init(theta), y)
        return terms.sum()

    return loglik


def first_call(make, *args):
    begin = time.perf_counter()
    make()(*args)
    return time.perf_counter() - begin


def jobs_of(kernel, theta, data, f, jax):
    """tapegrad and JAX for one batch: value and gradient."""
    jobs = {"tapegrad value": lambda: kernel(theta, data), "tapegrad": lambda: kernel.value_and_grad(theta, data)}
    if jax is None:
        return {**jobs, "JAX": bench.NOT_INSTALLED}
    if theta.shape[1] == 1:
        g = jax.jit(jax.value_and_grad(f))
        vector = jax.numpy.asarray(theta[:, 0])
        return {**jobs, "JAX": lambda: [np.asarray(x) for x in g(vector)]}
    g = jax.jit(jax.vmap(jax.value_and_grad(f), in_axes=1, out_axes=(0, 1)))
    many = jax.numpy.asarray(theta)
    return {**jobs, "JAX": lambda: [np.asarray(x) for x in g(many)]}


def filters(report, jax):
    rng = np.random.default_rng(0)
    columns = ["model", "batch", "tapegrad value ms", "value and gradient ms", "JAX ms", "JAX / tapegrad"]
    report.table("Filters, value and gradient", columns)
    A = 0.8 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    centre = np.concatenate([A.ravel(), np.log(np.full(4, 0.3)), np.log(np.full(2, 0.5))])[:, None]
    y = rng.normal(size=(1000, 2)).cumsum(axis=0) * 0.1
    data = np.ascontiguousarray(y.T)
    nile = NILE.copy()
    nile.flags.writeable = False
    small, big = tg.kernels.recursion(*level(np)), tg.kernels.recursion(*four_states(np))
    rows = [("local level, T = 100", small, level, np.log([[1e4], [1e3]]), nile, NILE, 1)]
    sizes = (1, 1000) if report.quick else (1, 1000, 10_000)
    rows += [("4 states, 2 observations, T = 1000", big, four_states, centre, data, y, n) for n in sizes]
    for name, kernel, model, middle, ours, theirs, n in rows:
        theta = np.ascontiguousarray(middle + (0.02 * rng.normal(size=(len(middle), n)) if n > 1 else 0))
        f = None if jax is None else scanned(jax, model, jax.numpy.asarray(theirs))
        jobs = jobs_of(kernel, theta, ours, f, jax)
        check(jobs)
        figures = bench.measure(jobs, rounds=(3, 31), compare=False)
        both, value, peer = figures["tapegrad"], figures["tapegrad value"], figures["JAX"]
        report.row(name, n, value * 1e3, both * 1e3, bench.times(peer, 1e3), bench.ratio(peer, both))
        bound = 1 / 4 if model is level else 1 / 25 if n == 1 else 1 / 50
        report.goal(f"{name}, batch {n}: tapegrad / JAX", bench.ratio(both, peer), bound)
    launcher = big._family.launcher("VG", 0, (22, 2, False), np.dtype(float), False)
    report.goal("stored steps of a thread, MB", launcher.tape_bytes / 1e6, 2.0)
    fresh = lambda model: lambda: tg.kernels.recursion(*model(np)).value_and_grad
    report.goal("first call, local level, s", first_call(fresh(level), np.log([[1e4], [1e3]]), nile), 0.15)
    report.goal("first call, 4 states, s", first_call(fresh(four_states), centre, data), 0.3)
    hessians(report, jax, big, centre, data, y)
    matrices(report, jax, data, y)


def matrices(report, jax, data, y):
    """Matrices that are kept whole."""
    rng = np.random.default_rng(1)
    report.table("Filters with large matrices, value and gradient, T = 100", ["states", "batch", "tapegrad ms", "JAX ms", "JAX / tapegrad"])
    short, theirs = np.ascontiguousarray(data[:, :100]), y[:100]
    for n in (12, 20) if report.quick else (12, 20, 40):
        A = 0.8 * np.linalg.qr(rng.normal(size=(n, n)))[0]
        centre = np.concatenate([A.ravel(), np.log(np.full(n, 0.3))])[:, None]
        kernel = tg.kernels.recursion(*dense(n)(np))
        fresh = lambda: tg.kernels.recursion(*dense(n)(np)).value_and_grad
        report.goal(f"first call, {n} states, s", first_call(fresh, centre, short), 1.0)
        f = None if jax is None else scanned(jax, dense(n), jax.numpy.asarray(theirs))
        for batch in (1,) if n == 40 else (1, 1000):
            theta = np.ascontiguousarray(centre + (0.002 * rng.normal(size=(len(centre), batch)) if batch > 1 else 0))
            jobs = jobs_of(kernel, theta, short, f, jax)
            check(jobs)
            figures = bench.measure(jobs, rounds=(3, 11), compare=False)
            both, peer = figures["tapegrad"], figures["JAX"]
            report.row(n, batch, both * 1e3, bench.times(peer, 1e3), bench.ratio(peer, both))


def hessians(report, jax, big, centre, data, y):
    jobs = {"tapegrad": lambda: big.hessian(centre, data)[0], "JAX": bench.NOT_INSTALLED}
    if jax is not None:
        h = jax.jit(jax.hessian(scanned(jax, four_states, jax.numpy.asarray(y))))
        vector = jax.numpy.asarray(centre[:, 0])
        jobs["JAX"] = lambda: np.asarray(h(vector))
    figures = bench.measure(jobs, rounds=(3, 21))
    report.table("Hessian, 22 x 22", ["tapegrad ms", "JAX ms"])
    report.row(figures["tapegrad"] * 1e3, bench.times(figures["JAX"], 1e3))
    report.goal("Hessian: tapegrad / JAX", bench.ratio(figures["tapegrad"], figures["JAX"]), 1 / 15)


def check(jobs):
    """Values and gradients agree."""
    if isinstance(jobs["JAX"], bench.Absent):
        return
    for a, b in zip(jobs["tapegrad"](), jobs["JAX"](), strict=True):
        b = np.asarray(b).reshape(a.shape)
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.abs(b).max())


def sums(report, jax, torch):
    rng = np.random.default_rng(0)
    batch, n = (1000, 1000) if report.quick else (10_000, 1000)
    theta, x = np.abs(rng.normal(size=(4, batch))) + 0.5, rng.normal(size=(2, n))
    k = tg.kernels.likelihood(gaussian)
    jobs = {"tapegrad value": lambda: k(theta, x), "tapegrad": lambda: k.value_and_grad(theta, x)}
    jobs["JAX"] = jax_gaussian(jax, theta, x)
    jobs["PyTorch eager"], jobs["PyTorch compiled"] = torch_gaussians(torch, theta, x)
    check(jobs)
    figures = bench.measure(jobs, rounds=(3, 31), compare=False)
    report.table(f"Gaussian of 4 parameters, batch {batch}, {n} data", ["job", "ms"])
    for name, seconds in figures.items():
        report.row(name, bench.times(seconds, 1e3))
    report.goal("value and gradient / value", figures["tapegrad"] / figures["tapegrad value"], 1.5)
    report.goal("tapegrad / JAX", bench.ratio(figures["tapegrad"], figures["JAX"]), 1 / 100)
    report.goal("tapegrad / torch.compile", bench.ratio(figures["tapegrad"], figures["PyTorch compiled"]), 1 / 2.5)
    report.say("- Warp, Dr.Jit: not run here")


def jax_gaussian(jax, theta, x):
    if jax is None:
        return bench.NOT_INSTALLED
    jnp = jax.numpy

    def loglik(th, x):
        d1, d2 = (x[0] - th[0]) / th[2], (x[1] - th[1]) / th[3]
        return jnp.sum(-0.5 * (d1 * d1 + d2 * d2)) - x.shape[1] * (jnp.log(th[2]) + jnp.log(th[3]) + LOG2PI)

    g = jax.jit(jax.vmap(jax.value_and_grad(loglik), in_axes=(1, None), out_axes=(0, 1)))
    many, data = jnp.asarray(theta), jnp.asarray(x)
    return lambda: [np.asarray(a) for a in g(many, data)]


def torch_gaussians(torch, theta, x):
    if torch is None:
        return bench.NOT_INSTALLED, bench.NOT_INSTALLED
    t, data = torch.tensor(theta), torch.tensor(x)

    def value_and_grad(th):
        d1, d2 = (data[0] - th[0][:, None]) / th[2][:, None], (data[1] - th[1][:, None]) / th[3][:, None]
        v = (-0.5 * (d1 * d1 + d2 * d2)).sum(1) - data.shape[1] * (torch.log(th[2]) + torch.log(th[3]) + LOG2PI)
        return v

    def run(f):
        leaf = t.clone().requires_grad_()
        v = f(leaf)
        (g,) = torch.autograd.grad(v.sum(), leaf)
        return [v.detach().numpy(), g.numpy()]

    compiled = torch.compile(value_and_grad)
    try:
        run(compiled)
        second = lambda: run(compiled)
    except Exception:  # no compiler for it here
        second = bench.CANNOT
    return lambda: run(value_and_grad), second


def main():
    report = bench.start(__doc__)
    jax, torch = bench.jax(), bench.torch()
    filters(report, jax)
    sums(report, jax, torch)
    report.close()


if __name__ == "__main__":
    main()
