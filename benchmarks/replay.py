"""Programs recorded once and replayed by `tg.prepare`, beside compiled and eager peers.

    python benchmarks/replay.py [--save] [--quick] [--only chains | programs | gm3 | kalman | calls]

The functions are those of `overhead.py`, `mutation.py` and `kalman.py`.  The name in front of a goal is the goal's in the design."""

import time

import _harness as bench
import _programs
import kalman as filters
import mutation
import numpy as np
import overhead

import tapegrad as tg

OPERATIONS = 999


def spent(job):
    begin = time.process_time()
    job()
    return time.process_time() - begin


def chains(report):
    report.table(
        "a chain of 999 operations on vectors, value and gradient: microseconds an operation",
        ["numbers", "tapegrad eager", "replayed", "PyTorch eager", "HIPS autograd", "JAX jit", "replayed / JAX",
         "recording, us an instruction", "first replay, ms", "JAX compiling, s"],
        "sin(x * c) + b, again and again.",
    )  # fmt: skip
    for n in (3,) if report.quick else (1, 3, 10, 1000):
        c, b, x = np.linspace(1.01, 1.03, n), np.linspace(0.01, 0.03, n), np.linspace(0.3, 0.9, n)
        ours = overhead.arrays(np, OPERATIONS, c, b)
        p = tg.prepare(ours, x)
        recording = spent(lambda p=p, x=x: p.value_and_grad(x))
        first = spent(lambda p=p, x=x: p.value_and_grad(x))
        size = p.forms["value_and_grad"].programs[0].program.recorded
        jobs = {"eager": lambda ours=ours, x=x: tg.value_and_grad(ours)(x), "tapegrad": lambda p=p, x=x: p.value_and_grad(x)}
        jobs |= dict.fromkeys(("PyTorch", "autograd", "JAX"), bench.NOT_INSTALLED)
        torch, autograd, jax, compiling = bench.torch(), bench.autograd(), bench.jax(), bench.NOT_INSTALLED
        if torch is not None:
            theirs, leaf = overhead.arrays(torch, OPERATIONS, torch.tensor(c), torch.tensor(b)), torch.tensor(x, requires_grad=True)
            jobs["PyTorch"] = lambda f=theirs, leaf=leaf: (y := f(leaf), torch.autograd.grad(y, leaf)[0])
        if autograd is not None:
            functional = autograd.value_and_grad(overhead.arrays(autograd.numpy, OPERATIONS, c, b))
            jobs["autograd"] = lambda f=functional, x=x: f(x)
        if jax is not None and not report.quick:
            jitted = jax.jit(jax.value_and_grad(overhead.arrays(jax.numpy, OPERATIONS, c, b)))
            compiling = spent(lambda f=jitted, x=x: jax.block_until_ready(f(x)))
            jobs["JAX"] = lambda f=jitted, x=x: jax.block_until_ready(f(x))
        t = bench.measure(jobs, seconds=1, rounds=(5, 21))
        share = bench.ratio(t["tapegrad"], t["JAX"])
        each = [bench.times(s, 1e6 / OPERATIONS) for s in t.values()]
        report.row(n, *each, share, recording / size * 1e6, first * 1e3, compiling)
        report.goal(f"G5r, {n} numbers: share of JAX's time", share, 1 if n == 1 else 0.7)
        report.goal(f"G5r, {n} numbers: first replay, ms", first * 1e3, 10)


def programs(report):
    report.table(
        "usual programs, gradient: milliseconds",
        ["program", "NumPy value alone", "replayed", "PyTorch eager", "HIPS autograd", "JAX jit", "tapegrad eager", "replayed / eager",
         "/ JAX"],
    )  # fmt: skip
    shares = []
    for program in _programs.programs()[:: 4 if report.quick else 1]:
        jobs = overhead.program_jobs(program)
        several = tuple(range(len(program.at)))
        eager = jobs["tapegrad"]
        p = tg.prepare(program.text(np, *program.data), *program.at, argnums=several)
        jobs["tapegrad"] = lambda p=p, at=program.at: p.grad(*at)
        for _ in range(3):
            p.grad(*program.at)
        t = bench.measure({"NumPy": jobs.pop("NumPy")}, seconds=0.1) | bench.measure(jobs | {"eager": eager}, seconds=1, rounds=(5, 21))
        ratios = bench.ratio(t["tapegrad"], t["eager"]), bench.ratio(t["tapegrad"], t["JAX"])
        shares.append(ratios[1])
        report.row(program.title, *[bench.times(s, 1e3) for s in t.values()], *ratios)
    found = [s for s in shares if not isinstance(s, bench.Absent)]
    if found:
        report.goal("G5p, replayed: geometric mean of the shares of JAX's time", float(np.exp(np.mean(np.log(found)))), 1)


def gm3(report):
    report.table(
        f"gm3!, six captured buffers, {mutation.STEPS} Euler steps, gradient for the six parameters: milliseconds",
        ["N", "tapegrad eager", "replayed", "PyTorch, functional", "JAX jit", "replayed / JAX"],
    )
    for N in (8,) if report.quick else (32, 128):
        f, parts = mutation.gm3_loss(N), mutation.constants(N)
        p = tg.prepare(f, mutation.P)
        for _ in range(3):
            p.grad(mutation.P)
        jobs = {"eager": lambda f=f: tg.grad(f)(mutation.P), "tapegrad": lambda p=p: p.grad(mutation.P)}
        torch, jax = bench.torch(), bench.jax()
        jobs |= dict.fromkeys(("PyTorch", "JAX"), bench.NOT_INSTALLED)
        if torch is not None:
            jobs["PyTorch"] = mutation.torch_grad(torch, mutation.gm3_functional(torch, *[torch.tensor(c) for c in parts]), mutation.P)
        if jax is not None:
            compiled = mutation.gm3_jax(jax, *parts)
            jobs["JAX"] = lambda g=compiled: jax.block_until_ready(g(mutation.P))
        t = bench.measure(jobs, seconds=2, rounds=(3, 21))
        share = bench.ratio(t["tapegrad"], t["JAX"])
        report.row(N, *[bench.times(s, 1e3) for s in t.values()], share)
        report.goal(f"G4a, gm3! with N = {N}, replayed: share of JAX's time", share, 0.75)


def kalman(report):
    report.table(
        "Kalman filters in array code, value and gradient: milliseconds",
        ["model", "NumPy, value alone", "replayed", "PyTorch", "HIPS autograd", "JAX jit", "tapegrad eager", "replayed / JAX"],
    )
    models = {"4 states, 2 observations": (filters.four_states, 1000), "the same in element form": (filters.four_states_elements, 100)}
    for title, (model, T) in models.items():  # (in element form rounding grows with T until nothing is left)
        y, theta = filters.simulated(50 if report.quick else T)
        jobs, _ = filters.jobs_of(model, filters.four_states_jax, theta, y, filters.B)
        eager = jobs["tapegrad"]
        p = tg.prepare(model(np, y, filters.B), theta)
        jobs["tapegrad"] = lambda p=p: p.value_and_grad(theta)
        for _ in range(3):
            p.value_and_grad(theta)
        t = bench.measure(jobs | {"eager": eager}, seconds=3, rounds=(3, 21))
        share = bench.ratio(t["tapegrad"], t["JAX jit"])
        report.row(f"{title}, T = {len(y)}", *[bench.times(s, 1e3) for s in t.values()], share)
        report.goal(f"G1d, {title}, replayed: share of JAX's time", share, 1 / 3)


def calls(report):
    report.table(
        "the cost of a call that does next to nothing, gradient: microseconds", ["what f reads", "eager", "replayed", "guards alone"]
    )
    x, a, big = np.array([1.0, 2.0, 3.0]), np.ones(3), np.ones(100_000)
    order = np.arange(3)
    for title, f in {
        "nothing": lambda x: (x * x).sum(),
        "an array of 3": lambda x: (a * x).sum(),
        "an array of 100,000": lambda x: (x * big[:3]).sum(),
        "integers of 3": lambda x: (x[order] * x).sum(),
    }.items():
        p, g = tg.prepare(f, x), tg.grad(f)
        for _ in range(3):
            p.grad(x)
        guards = p.forms["grad"].programs[0].surroundings.changed
        t = bench.measure({"eager": lambda g=g: g(x), "tapegrad": lambda p=p: p.grad(x)}, seconds=0.3)
        count = 2000
        alone = min([spent(lambda f=guards: [f() for _ in range(count)]) / count for _ in range(5)])
        report.row(title, *[s * 1e6 for s in t.values()], alone * 1e6)


def main():
    bench.start(__doc__).run(chains, programs, gm3, kalman, calls)


if __name__ == "__main__":
    main()
