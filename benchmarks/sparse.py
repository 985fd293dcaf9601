"""Sparse Jacobians: pattern, colours and values of the Brusselator with up to 8,192 unknowns.

    python benchmarks/sparse.py [--save] [--quick] [--only brusselator]

The right-hand side in the form of the SciML suite.  `sparsejac` is given the pattern and colours it; `asdex`
finds pattern and colours; both run compiled functions of JAX.  SciPy's differences are those in groups of
columns, with the pattern given.  What is recorded or compiled once, and the first call, are rows of their
own."""

import importlib.util
import time

import _harness as bench
import numpy as np
import scipy.sparse
from scipy.optimize._numdiff import approx_derivative, group_columns

import tapegrad as tg
from tapegrad.sparse._coloring import best_coloring
from tapegrad.sparse._decompress import Entries


def system(library, n):
    """The right-hand side for n x n points, of a vector, and where it starts."""
    alpha = 10.0 * (n - 1) ** 2
    grid = np.linspace(0, 1, n)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    start = np.stack([22 * (y * (1 - y)) ** 1.5, 27 * (x * (1 - x)) ** 1.5], axis=-1).reshape(-1)

    def laplacian(w):
        return (
            library.roll(w, 1, 0)
            + library.roll(w, -1, 0)
            + library.roll(w, 1, 1)
            + library.roll(w, -1, 1)
            - 4 * w
        )

    def f(z):
        u, v = z.reshape(n, n, 2)[..., 0], z.reshape(n, n, 2)[..., 1]
        du = alpha * laplacian(u) + 1.0 + u**2 * v - 4.4 * u
        dv = alpha * laplacian(v) + 3.4 * u - u**2 * v
        return library.stack([du, dv], axis=-1).reshape(-1)

    return f, start


def in_place(n):
    """The same, written into a captured array through views."""
    alpha = 10.0 * (n - 1) ** 2
    change = np.zeros((n, n, 2))

    def f(z):
        state = z.reshape(n, n, 2)
        for k in (0, 1):
            w, out = state[..., k], change[..., k]
            out[...] = -4 * alpha * w
            out[1:] += alpha * w[:-1]
            out[0] += alpha * w[-1]
            out[:-1] += alpha * w[1:]
            out[-1] += alpha * w[0]
            out[:, 1:] += alpha * w[:, :-1]
            out[:, 0] += alpha * w[:, -1]
            out[:, :-1] += alpha * w[:, 1:]
            out[:, -1] += alpha * w[:, 0]
        u, v = state[..., 0], state[..., 1]
        change[..., 0] += 1.0 + u**2 * v - 4.4 * u
        change[..., 1] += 3.4 * u - u**2 * v
        return change.reshape(-1) * 1.0

    return f


def of_jax(n, pattern):
    """The values by each package of JAX's that is there: name -> a function of no arguments that gives the
    entries in the order of rows."""
    jax = bench.jax()
    jobs, once = {"sparsejac": bench.NOT_INSTALLED, "asdex": bench.NOT_INSTALLED}, {}
    if jax is None:
        return jobs, once
    f, start = system(jax.numpy, n)
    x = jax.numpy.asarray(start)
    if importlib.util.find_spec("sparsejac"):
        import sparsejac
        from jax.experimental import sparse

        known = sparse.BCOO.from_scipy_sparse(scipy.sparse.coo_matrix(pattern.astype(float)))
        begin = time.perf_counter()
        compiled = jax.jit(sparsejac.jacfwd(f, known))
        compiled(x).data.block_until_ready()
        once["sparsejac"] = time.perf_counter() - begin
        jobs["sparsejac"] = lambda: compiled(x).data.block_until_ready()
    if importlib.util.find_spec("asdex"):
        import asdex

        begin = time.perf_counter()
        colored = asdex.jacobian_coloring(f, x)
        once["asdex, pattern and colours"] = time.perf_counter() - begin
        begin = time.perf_counter()
        given = jax.jit(asdex.jacobian_from_coloring(f, colored))
        given(x).data.block_until_ready()
        once["asdex"] = time.perf_counter() - begin
        jobs["asdex"] = lambda: given(x).data.block_until_ready()
    return jobs, once


def parts_of(f, x):
    """What is done once, each part by itself."""
    plan = tg.sparse.prepare_jacobian(f, x)
    found = plan.found
    return plan, {
        "pattern (carried through the recording)": lambda: found.read(found.carried((x,))).indices,
        "colours": lambda: best_coloring(plan.pattern, "natural").columns,
        "table of entries": lambda: Entries(plan.pattern, plan.coloring, "csr").table,
        "all of prepare_jacobian": lambda: tg.sparse.prepare_jacobian(f, x).coloring.columns,
    }


def brusselator(report):
    sizes = (16,) if report.quick else (16, 32, 64)
    figures = {}
    for n in sizes:
        f, x = system(np, n)
        for name, g in (("out of place", f), ("in place", in_place(n))):
            plan, parts = parts_of(g, x)
            report.table(f"{x.size} unknowns, {name}: milliseconds, once", ["", "tapegrad"], f"{plan!r}")
            for part, job in parts.items():
                t = bench.measure({"tapegrad": job})["tapegrad"]
                report.row(part, 1e3 * t)
                figures[part, name] = 1e3 * t
        plan = tg.sparse.prepare_jacobian(f, x, compile=False)
        compiled = tg.sparse.prepare_jacobian(f, x, compile=True)
        written = tg.sparse.prepare_jacobian(in_place(n), x, compile=True)
        for known in (plan, compiled, written):  # the second replay makes the text, and compiles it
            begin = time.process_time()
            for _ in range(2):
                known(x)
            if known is not plan:
                name = "out of place" if known is compiled else "in place"
                report.row(f"compilation of the products, {name}", 1e3 * (time.process_time() - begin))
        peers, once = of_jax(n, plan.pattern)
        groups = group_columns(scipy.sparse.csr_matrix(plan.pattern.astype(np.int8)))
        for peer, seconds in once.items():
            report.row(f"{peer}, compilation included", 1e3 * seconds)
        jobs = {
            "tapegrad": lambda: plan(x).data,
            "tapegrad, compiled": lambda: compiled(x).data,
            "in place, compiled": lambda: written(x).data,
            "sparsejac": peers["sparsejac"],
            "asdex": peers["asdex"],
            "SciPy, differences": lambda: (
                approx_derivative(f, x, sparsity=(plan.pattern.astype(np.int8), groups)).data
            ),
        }
        report.table(f"{x.size} unknowns: microseconds for the values", list(jobs))
        t = bench.measure(
            {k: job for k, job in jobs.items() if "tapegrad" in k or "in place" in k}, rtol=1e-9
        )
        t |= bench.measure({k: job for k, job in jobs.items() if k not in t}, compare=False, rtol=1e-6)
        report.row(*[bench.times(t[k], 1e6) for k in jobs])
        figures["values"] = 1e6 * t["tapegrad, compiled"]
        report.say(
            f"\nOne plain call of f: {1e6 * bench.measure({'f': lambda: f(x)})['f']:.0f} microseconds."
        )
    report.say()
    if not report.quick:
        report.goal(
            "G6, pattern of 8,192 unknowns, ms",
            figures["pattern (carried through the recording)", "out of place"],
            3.0,
        )
        report.goal(
            "G6, the same in place, ms", figures["pattern (carried through the recording)", "in place"], 3.0
        )
        report.goal("G6, colours, ms", figures["colours", "out of place"], 1.0)
        report.goal("G6, values, microseconds", figures["values"], 30.0)


def main():
    bench.start(__doc__).run(brusselator)


if __name__ == "__main__":
    main()
