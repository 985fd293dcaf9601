"""Loops that Numba compiles: value and gradient beside the plain loop, and the memory that the gradient
takes.

    python benchmarks/loops.py [--save] [--quick]

`wave` is a wave equation with leapfrog steps, differentiated by its initial fields, and by the wave speed
too. `heat` is a nonlinear equation whose arrays swap their names; its temperatures are positive, or the
solution grows without bound. A ratio compares with the plain loop of the
same row. Memory is what the process takes in addition while the gradient runs."""

import operator

import _harness as bench
import _loop_peers as peers
import numba
import numpy as np

import tapegrad as tg

RNG = np.random.default_rng(0)


@numba.njit
def lap(u, i, j):
    return u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * u[i, j]


@numba.njit
def wave(u, v, c2, dt, steps):
    n, m = u.shape
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                v[i, j] += dt * c2[i, j] * lap(u, i, j)
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                u[i, j] += dt * v[i, j]
    s = 0.0
    for i in range(n):
        for j in range(m):
            s += u[i, j] ** 2
    return s


@numba.njit
def heat(u, new, k, steps):
    n, m = u.shape
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                new[i, j] = u[i, j] + k * u[i, j] * lap(u, i, j)
        u, new = new, u
    s = 0.0
    for i in range(n):
        for j in range(m):
            s += u[i, j] ** 2
    return s


def programs(n, steps):
    u, v, c2 = RNG.normal(size=(n, n)), RNG.normal(size=(n, n)), 1 + RNG.random((n, n))
    warm = RNG.random((n, n))
    whole = lambda u, v, c2: wave(u.copy(), v.copy(), c2, 0.01, steps)
    return {
        "wave: u, v": (lambda u, v: whole(u, v, c2), (u, v)),
        "wave: u, v, c2": (whole, (u, v, c2)),
        "heat: u": (lambda u: heat(u.copy(), u.copy(), 1e-4, steps), (warm,)),
    }


def gradients(report):
    columns = ("program", "plain, ms", "value and gradient, ms", "ratio", "MB")
    report.table("Loops over grids", columns, "All arguments are copied first, in both columns.")
    for n, steps in [(32, 20)] if report.quick else [(32, 20), (128, 200), (512, 1000)]:
        for name, (f, args) in programs(n, steps).items():
            both = tg.value_and_grad(f, argnums=tuple(range(len(args))))
            jobs = {
                "plain": lambda f=f, args=args: f(*args),
                "gradient": lambda both=both, args=args: both(*args),
            }
            t = bench.measure(jobs, compare=False, rounds=(3, 41))
            share = bench.ratio(t["gradient"], t["plain"])
            if not np.isfinite(f(*args)):
                raise ArithmeticError(f"{name}: the program has no finite value")
            memory = bench.rise(jobs["gradient"]) / 2**20
            report.row(f"{name}, {n} x {n} x {steps}", 1e3 * t["plain"], 1e3 * t["gradient"], share, memory)
            if n == 512:
                report.goal(f"{name}: plain loops", share, 6)
                report.goal(f"{name}: MB", memory, 250)


def beside(report):
    """The equations in other ways: adjoints by hand, JAX and Enzyme, each beside its own plain loop."""
    columns = ("way", "plain, ms", "value and gradient, ms", "ratio")
    n, steps = (32, 20) if report.quick else (512, 100)
    states = np.empty((int(np.sqrt(steps)) + 1, n, n))

    def rows(name, more):
        f, args = programs(n, steps)[name]
        want = tg.value_and_grad(f, argnums=tuple(range(len(args))))(*args)[1]
        report.table(f"{name}, in other ways", columns, "")
        for way, (plain, gradient, of) in more(f, args).items():
            for a, b in zip(of(gradient()), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.max(np.abs(b)))
            t = bench.measure({"plain": plain, "gradient": gradient}, compare=False, rounds=(3, 41))
            report.row(way, 1e3 * t["plain"], 1e3 * t["gradient"], bench.ratio(t["gradient"], t["plain"]))

    second = operator.itemgetter(1)

    def of_wave(f, args):
        u, v, c2 = args
        by_hand = lambda: peers.wave_by_hand(u.copy(), v.copy(), c2, 0.01, steps, states)
        ways = {"by hand, in Numba": (lambda: f(*args), by_hand, lambda r: r[1:])}
        jax = bench.jax()
        if jax is not None:
            jax.config.update("jax_enable_x64", True)
            for name, made in (("JAX", peers.wave_jax), ("Enzyme, C++", peers.wave_enzyme)):
                if (pair := made(jax, steps)) is not None:
                    ways[name] = (*[lambda f=f: jax.block_until_ready(f(*args)) for f in pair[::-1]], second)
        return ways

    def of_heat(f, args):
        (u,) = args
        by_hand = lambda: peers.heat_by_hand(u.copy(), u.copy(), 1e-4, steps, states)
        return {"by hand, in Numba": (lambda: f(u), by_hand, lambda r: r[1:])}

    rows("wave: u, v, c2", of_wave)
    rows("heat: u", of_heat)


if __name__ == "__main__":
    bench.start(__doc__).run(gradients, beside)
