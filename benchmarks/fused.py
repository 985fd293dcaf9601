"""Large arrays in compiled loops, `tg.prepare(compile=True)`, beside compilers and loops by hand.

    python benchmarks/fused.py [--save] [--quick] [--only chain | stencils | logistic | programs | gm3 | loops
    | threads | compiling]

The name in front of a goal is the goal's in the design.  Loops by hand are compiled by Numba, one pass,
without its fast-math."""

import math
import os
import time

import _harness as bench
import _programs
import kalman as filters
import mutation
import numba
import numpy as np
import overhead
from scipy import special

import tapegrad as tg
from tapegrad.kernels.launch import cpu, waiting


def prepared(f, *args, argnums=0, methods=("grad",)):
    """(f prepared, seconds that its text and machine code took), ready."""
    p, compiling = tg.prepare(f, *args, argnums=argnums, compile=True), 0.0
    for method in methods:
        given, spent = (args[0], args[0]) if method == "hvp" else args, []
        for _ in range(4):  # recorded; replayed; compiled; replayed
            begin = time.process_time()
            getattr(p, method)(*given)
            spent.append(time.process_time() - begin)
        compiling = max(compiling, spent[2] - spent[3])
    return p, compiling


def compiled_torch(f, n, *args):
    """value_and_grad of f by torch.compile, or an Absent."""
    torch = bench.torch()
    if torch is None:
        return bench.NOT_INSTALLED
    try:
        g = torch.compile(torch.func.grad_and_value(f, argnums=n))
        leaves = [torch.tensor(a) for a in args]
        g(*leaves)
    except Exception:
        return bench.CANNOT
    return lambda: g(*leaves)[::-1]


# --- a chain of elementwise functions ---


def chain_of(np):
    def f(x, w, b):
        h = np.tanh(x * w + b)
        return (h * h * np.exp(-(x * x))).sum()

    return f


@numba.njit
def chain_by_hand(x, w, b, g):
    value = by_w = by_b = 0.0
    for k in range(len(x)):
        h, e = math.tanh(x[k] * w + b), math.exp(-(x[k] * x[k]))
        value += h * h * e
        d = 2.0 * h * e * (1.0 - h * h)
        g[k] = d * w - 2.0 * x[k] * h * h * e
        by_w += d * x[k]
        by_b += d
    return value, g, by_w, by_b


def chain(report):
    report.table(
        "a chain of elementwise functions, value and gradient for x, w, b: milliseconds",
        [
            "n",
            "replayed",
            "compiled",
            "JAX jit",
            "PyTorch compiled",
            "Numba by hand",
            "compiled / JAX",
            "/ by hand",
            "compiling, s",
        ],
        "sum(tanh(x w + b)^2 exp(-x^2))",
    )
    for n in (10**5,) if report.quick else (10**3, 10**5, 10**7):
        at = (np.random.default_rng(7).normal(size=n), 1.3, 0.2)
        f, jax, g = chain_of(np), bench.jax(), np.empty(n)
        plain = tg.prepare(f, *at, argnums=(0, 1, 2), compile=False)
        p, compiling = prepared(f, *at, argnums=(0, 1, 2), methods=("value_and_grad",))
        flat = lambda found: (found[0], *found[1])
        jobs = {
            "replayed": lambda p=plain, at=at: flat(p.value_and_grad(*at)),
            "tapegrad": lambda p=p, at=at: flat(p.value_and_grad(*at)),
        }
        jobs |= {
            "JAX": bench.NOT_INSTALLED,
            "PyTorch": compiled_torch(chain_of(bench.torch()), (0, 1, 2), *at)
            if bench.torch()
            else bench.NOT_INSTALLED,
        }
        if jax is not None:
            jitted, given = (
                jax.jit(jax.value_and_grad(chain_of(jax.numpy), argnums=(0, 1, 2))),
                [jax.numpy.asarray(a) for a in at],
            )
            jobs["JAX"] = lambda f=jitted, a=given: jax.block_until_ready(f(*a))
        jobs["hand"] = lambda at=at, g=g: chain_by_hand(*at, g)
        t = bench.measure(jobs, seconds=2, rounds=(5, 21), rtol=1e-9)
        share, hand = bench.ratio(t["tapegrad"], t["JAX"]), bench.ratio(t["tapegrad"], t["hand"])
        report.row(n, *[bench.times(s, 1e3) for s in t.values()], share, hand, compiling)
        if n == 10**7:
            report.goal("G7: share of JAX's time", share, 0.5)
            report.goal("G7: times the loop by hand", hand, 1.3)


# --- n = 10^6: the norm, and Rosenbrock's function ---


def norm_of(np):
    return lambda x: np.sqrt(np.sum(x * x)) ** 3 * x[-1] + x[0] ** 2


def rosenbrock_of(np):
    return lambda x: np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@numba.njit
def rosenbrock_by_hand(x, g):
    g[:] = 0.0
    for k in range(len(x) - 1):
        r = x[k + 1] - x[k] * x[k]
        g[k] += -400.0 * r * x[k] - 2.0 * (1.0 - x[k])
        g[k + 1] += 200.0 * r
    return g


def stencils(report):
    report.table(
        "the norm and Rosenbrock's function: milliseconds",
        [
            "function",
            "of",
            "replayed",
            "compiled",
            "JAX jit",
            "Numba by hand",
            "compiled / JAX",
            "compiling, s",
        ],
    )
    n, jax, rng = 10**5 if report.quick else 10**6, bench.jax(), np.random.default_rng(3)
    x, v = rng.normal(size=n), rng.normal(size=n)
    for name, text in {"norm": norm_of, "Rosenbrock": rosenbrock_of}.items():
        f = text(np)
        at = x * 1e-2 if name == "norm" else x
        for method, given in {"grad": (at,), "hvp": (at, v)}.items():
            plain = tg.prepare(f, at, compile=False)
            p, compiling = prepared(f, at, methods=(method,))
            call = lambda p, m=method, given=given: lambda: getattr(p, m)(*given)
            jobs = {
                "replayed": call(plain),
                "tapegrad": call(p),
                "JAX": bench.NOT_INSTALLED,
                "hand": bench.Absent(""),
            }
            if jax is not None:
                g = jax.grad(text(jax.numpy))
                j = jax.jit(g if method == "grad" else lambda x, v, g=g: jax.jvp(g, (x,), (v,))[1])
                theirs = [jax.numpy.asarray(a) for a in given]
                jobs["JAX"] = lambda j=j, theirs=theirs: jax.block_until_ready(j(*theirs))
            if (name, method) == ("Rosenbrock", "grad"):
                out = np.empty(n)
                jobs["hand"] = lambda at=at, out=out: rosenbrock_by_hand(at, out)
            t = bench.measure(jobs, seconds=2, rounds=(5, 21), rtol=1e-9)
            share = bench.ratio(t["tapegrad"], t["JAX"])
            report.row(name, method, *[bench.times(s, 1e3) for s in t.values()], share, compiling)
            report.goal(f"G3v, {name}, {method}: share of JAX's time", share, 0.7)


# --- logistic regression ---


def logistic(report):
    report.table(
        "logistic regression: milliseconds",
        [
            "data",
            "value",
            "gradient",
            "H v",
            "H v at a fixed point",
            "JAX, gradient",
            "JAX, H v",
            "gradient / value",
            "H v / value",
            "/ JAX",
            "/ JAX",
        ],
    )
    M, n = (2000, 100) if report.quick else (20_000, 500)
    rng, jax = np.random.default_rng(0), bench.jax()
    X, y = rng.normal(size=(M, n)) / np.sqrt(n), np.where(rng.random(M) < 0.5, -1.0, 1.0)
    w, v = rng.normal(size=n), rng.normal(size=n)
    X.flags.writeable = False  # so that it is not compared at each call
    f = lambda w: np.sum(np.logaddexp(0.0, -y * (X @ w)))
    p, _ = prepared(f, w, methods=("value", "grad", "hvp"))
    here = p.at(w)
    here.hvp(v)
    jobs = {
        "value": lambda: p.value(w),
        "grad": lambda: p.grad(w),
        "hvp": lambda: p.hvp(w, v),
        "fixed": lambda: here.hvp(v),
    }
    jobs |= {"JAX": bench.NOT_INSTALLED, "JAX hvp": bench.NOT_INSTALLED}
    if jax is not None:
        g = jax.grad(lambda w, X, y: jax.nn.softplus(-y * (X @ w)).sum())
        given = [jax.numpy.asarray(a) for a in (w, X, y)]
        first, second = jax.jit(g), jax.jit(lambda w, X, y, v: jax.jvp(lambda z: g(z, X, y), (w,), (v,))[1])
        jobs["JAX"] = lambda: jax.block_until_ready(first(*given))
        jobs["JAX hvp"] = lambda: jax.block_until_ready(second(*given, v))
    t = bench.measure(jobs, seconds=3, rounds=(5, 21), compare=False)
    shares = [bench.ratio(t["grad"], t["value"]), bench.ratio(t["hvp"], t["value"])]
    theirs = [bench.ratio(t["grad"], t["JAX"]), bench.ratio(t["hvp"], t["JAX hvp"])]
    report.row(f"{M} x {n}", *[bench.times(s, 1e3) for s in t.values()], *shares, *theirs)
    for what, share, most in zip(("gradient / value", "H v / value"), shares, (1.3, 1.6), strict=True):
        report.goal(f"G3, {what}", share, most)


# --- usual programs ---


def programs(report):
    report.table(
        "usual programs, gradient: milliseconds",
        ["program", "replayed", "compiled", "JAX jit", "compiled / replayed", "/ JAX", "compiled loops"],
    )
    shares = []
    for program in _programs.programs()[:: 4 if report.quick else 1]:
        several = tuple(range(len(program.at)))
        f = program.text(np, *program.data)
        plain = tg.prepare(f, *program.at, argnums=several, compile=False)
        p, _ = prepared(f, *program.at, argnums=several)
        jax = overhead.program_jobs(program)["JAX"]
        jobs = {
            "replayed": lambda p=plain, at=program.at: p.grad(*at),
            "tapegrad": lambda p=p, at=program.at: p.grad(*at),
            "JAX": jax,
        }
        t = bench.measure(jobs, seconds=1, rounds=(5, 21))
        ratios = bench.ratio(t["tapegrad"], t["replayed"]), bench.ratio(t["tapegrad"], t["JAX"])
        shares.append(ratios[1])
        report.row(program.title, *[bench.times(s, 1e3) for s in t.values()], *ratios, loops_of(p, "grad"))
    found = [s for s in shares if not isinstance(s, bench.Absent)]
    if found:
        report.goal(
            "G5p, compiled: geometric mean of the shares of JAX's time",
            float(np.exp(np.mean(np.log(found)))),
            1,
        )


def loops_of(p, method):
    kept = p.forms[method].programs
    return len(kept[0].emitted.groups) if kept and kept[0].emitted is not None else "run plainly"


def gm3(report):
    report.table(
        f"gm3!, six captured buffers, {mutation.STEPS} Euler steps, gradient for the six parameters: "
        f"milliseconds",
        ["N", "replayed", "compiled", "JAX jit", "compiled / JAX", "compiling, s"],
    )
    for N in (8,) if report.quick else (32, 128):
        f, parts, jax = mutation.gm3_loss(N), mutation.constants(N), bench.jax()
        plain = tg.prepare(f, mutation.P, compile=False)
        p, compiling = prepared(f, mutation.P)
        jobs = {
            "replayed": lambda p=plain: p.grad(mutation.P),
            "tapegrad": lambda p=p: p.grad(mutation.P),
            "JAX": bench.NOT_INSTALLED,
        }
        if jax is not None:
            compiled = mutation.gm3_jax(jax, *parts)
            jobs["JAX"] = lambda g=compiled: jax.block_until_ready(g(mutation.P))
        t = bench.measure(jobs, seconds=2, rounds=(3, 21))
        share = bench.ratio(t["tapegrad"], t["JAX"])
        report.row(N, *[bench.times(s, 1e3) for s in t.values()], share, compiling)
        report.goal(f"G4a, gm3! with N = {N}, compiled: share of JAX's time", share, 0.75)


# --- loops of Python, rolled ---


def loops(report):
    report.table(
        "Kalman filters in array code, a step of a Python loop a time: value and gradient, milliseconds",
        ["model", "replayed", "rolled", "JAX scan", "rolled / JAX", "recording and compiling, s"],
    )
    models = {
        "4 states, 2 observations": (filters.four_states, 1000),
        "the same in element form": (filters.four_states_elements, 100),
    }
    for title, (model, T) in models.items():
        y, theta = filters.simulated(50 if report.quick else T)
        found, _ = filters.jobs_of(model, filters.four_states_jax, theta, y, filters.B)
        f = model(np, y, filters.B)
        plain, p, begin = (
            tg.prepare(f, theta, compile=False),
            tg.prepare(f, theta, compile=True),
            time.process_time(),
        )
        for _ in range(3):
            p.value_and_grad(theta)
        spent = time.process_time() - begin
        jobs = {
            "replayed": lambda p=plain, at=theta: p.value_and_grad(at),
            "tapegrad": lambda p=p, at=theta: p.value_and_grad(at),
        }
        t = bench.measure(jobs | {"JAX": found["JAX jit"]}, seconds=3, rounds=(3, 21))
        share = bench.ratio(t["tapegrad"], t["JAX"])
        report.row(f"{title}, T = {len(y)}", *[bench.times(s, 1e3) for s in t.values()], share, spent)
        report.goal(f"G1d, {title}, rolled: share of JAX's time", share, 0.1)


# --- threads, and compilers ---


def threads(report):
    report.table(
        "two threads on two cores: wall time, milliseconds",
        ["function", "one thread", "two", "one / two", "the same bits"],
        "Least of interleaved calls.",
    )
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, range(os.cpu_count()))
    n, rng = 10**5 if report.quick else 4 * 10**6, np.random.default_rng(3)
    x, X = rng.normal(size=n), rng.normal(size=(n // 400, 400)) / 20
    work = {
        "chain": (chain_of(np), (x, 1.3, 0.2), (0, 1, 2)),
        "Rosenbrock": (rosenbrock_of(np), (x,), 0),
        "norm": (norm_of(np), (x * 1e-2,), 0),
    }
    work["logistic"] = lambda w: np.sum(np.logaddexp(0.0, X @ w)), (x[:400],), 0
    try:
        for name, (f, at, argnums) in work.items():
            p, _ = prepared(f, *at, argnums=argnums)
            spent, found = {1: [], 2: []}, {}
            for _ in range(30):
                for count, times in spent.items():
                    waiting.THREADS = count
                    begin = time.perf_counter()
                    found[count] = p.grad(*at)
                    times.append(time.perf_counter() - begin)
            one, two = [min(times) for times in spent.values()]
            same = all(
                [
                    np.array_equal(a, b)
                    for a, b in zip(*[g if type(g) is tuple else (g,) for g in found.values()], strict=True)
                ]
            )
            report.row(name, one * 1e3, two * 1e3, one / two, "yes" if same else "NO")
            report.goal(f"{name}: the bits of two threads are those of one", float(not same), 0)
    finally:
        waiting.THREADS = 1
        os.sched_setaffinity(0, cores)


def compiling(report):
    report.table(
        "text and machine code of a gradient that no disk has: seconds of processor time",
        [
            "function",
            "compiled loops",
            "rolled loops",
            "recording and first replays",
            "text and machine code",
            "of the machine code",
        ],
    )
    n, fresh = 10**4, time.time_ns() % 10**9 * 1e-9  # a number of its own makes a text of its own
    x = np.random.default_rng(3).normal(size=n)
    y, theta = filters.simulated(50)
    stencil = lambda u: np.sum(
        (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]) ** 2
    )
    work = {
        "chain": (lambda x: chain_of(np)(x, 1.3 + fresh, 0.2), x),
        "Rosenbrock": (lambda x: rosenbrock_of(np)(x * (1.0 + fresh)), x),
        "a stencil of five points": (lambda x: stencil(x.reshape(100, 100) * (1.0 + fresh)), x),
        "erf, lgamma and digamma": (
            lambda x: np.sum(special.erf(x) * special.gammaln(x * x + 1.0 + fresh)),
            x,
        ),
        "Kalman filter, 50 steps": (
            lambda x: filters.four_states(np, y, filters.B)(x * (1.0 + fresh)),
            theta,
        ),
    }
    for name, (f, at) in work.items():
        p, spent, inside = tg.prepare(f, at, compile=True), [], []
        real = cpu.object_code
        cpu.object_code = lambda *a, real=real, inside=inside: timed(real, inside, *a)
        try:
            for _ in range(4):
                begin = time.process_time()
                p.grad(at)
                spent.append(time.process_time() - begin)
        finally:
            cpu.object_code = real
        emitted = p.forms["grad"].programs[0].emitted
        report.row(
            name, len(emitted.groups), len(emitted.loops), sum(spent[:2]), spent[2] - spent[3], sum(inside)
        )
        # the text of a rolled loop has no numbers of the function's: it may be on disk from an earlier run
        if inside:
            report.goal(f"machine code of a loop, {name}: seconds", max(inside), 0.3)


def timed(f, spent, *args):
    begin = time.process_time()
    found = f(*args)
    spent.append(time.process_time() - begin)
    return found


def main():
    bench.start(__doc__).run(chain, stencils, logistic, programs, gm3, loops, threads, compiling)


if __name__ == "__main__":
    main()
