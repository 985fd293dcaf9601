"""Programs recorded once and replayed by `tg.prepare`, beside compiled and eager peers.

    python benchmarks/replay.py [--save] [--quick] [--only PART]

PART: chains, programs, gm3, kalman, logistic, elementwise, directions, costs or calls.  The functions are
those of `overhead.py`, `mutation.py`, `kalman.py`, `operators.py` and `batched.py`.  The name in front of a
goal is the goal's in the design."""

import time

import _harness as bench
import _programs
import batched
import kalman as filters
import mutation
import numpy as np
import operators
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
        ["numbers", "tapegrad eager", "replayed", "PyTorch eager", "HIPS autograd", "JAX jit",
        "replayed / JAX",
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
        for _ in range(100):  # the first text of a process is written after some dozen calls
            p.value_and_grad(x)
        jobs = {
            "eager": lambda ours=ours, x=x: tg.value_and_grad(ours)(x),
            "tapegrad": lambda p=p, x=x: p.value_and_grad(x),
        }
        jobs |= dict.fromkeys(("PyTorch", "autograd", "JAX"), bench.NOT_INSTALLED)
        torch, autograd, jax, compiling = bench.torch(), bench.autograd(), bench.jax(), bench.NOT_INSTALLED
        if torch is not None:
            theirs, leaf = (
                overhead.arrays(torch, OPERATIONS, torch.tensor(c), torch.tensor(b)),
                torch.tensor(x, requires_grad=True),
            )
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
        ["program", "NumPy value alone", "replayed", "PyTorch eager", "HIPS autograd", "JAX jit",
        "tapegrad eager", "replayed / eager",
         "/ JAX"],
    )  # fmt: skip
    shares = []
    for program in _programs.programs()[:: 4 if report.quick else 1]:
        jobs = overhead.program_jobs(program)
        several = tuple(range(len(program.at)))
        eager = jobs["tapegrad"]
        p = tg.prepare(program.text(np, *program.data), *program.at, argnums=several)
        jobs["tapegrad"] = lambda p=p, at=program.at: p.grad(*at)
        bench.settle(jobs["tapegrad"])
        t = bench.measure({"NumPy": jobs.pop("NumPy")}, seconds=0.1) | bench.measure(
            jobs | {"eager": eager}, seconds=1, rounds=(5, 21)
        )
        ratios = bench.ratio(t["tapegrad"], t["eager"]), bench.ratio(t["tapegrad"], t["JAX"])
        shares.append(ratios[1])
        report.row(program.title, *[bench.times(s, 1e3) for s in t.values()], *ratios)
    found = [s for s in shares if not isinstance(s, bench.Absent)]
    if found:
        report.goal(
            "G5p, replayed: geometric mean of the shares of JAX's time",
            float(np.exp(np.mean(np.log(found)))),
            1,
        )


def gm3(report):
    report.table(
        f"gm3!, six captured buffers, {mutation.STEPS} Euler steps, gradient for the six parameters: "
        f"milliseconds",
        ["N", "tapegrad eager", "replayed", "PyTorch, functional", "JAX jit", "replayed / JAX"],
        "Its two matrices have three diagonals each. All multiply by them as they are.",
    )
    for N in (8,) if report.quick else (32, 128):
        f, parts = mutation.gm3_loss(N), mutation.constants(N)
        p = tg.prepare(f, mutation.P)
        jobs = {"eager": lambda f=f: tg.grad(f)(mutation.P), "tapegrad": lambda p=p: p.grad(mutation.P)}
        bench.settle(jobs["tapegrad"])
        torch, jax = bench.torch(), bench.jax()
        jobs |= dict.fromkeys(("PyTorch", "JAX"), bench.NOT_INSTALLED)
        if torch is not None:
            jobs["PyTorch"] = mutation.torch_grad(
                torch, mutation.gm3_functional(torch, *[torch.tensor(c) for c in parts]), mutation.P
            )
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
        [
            "model",
            "NumPy, value alone",
            "replayed",
            "PyTorch",
            "HIPS autograd",
            "JAX jit",
            "tapegrad eager",
            "replayed / JAX",
        ],
    )
    models = {
        "4 states, 2 observations": (filters.four_states, 1000),
        "the same in element form": (filters.four_states_elements, 100),
    }
    for title, (model, T) in models.items():  # (in element form rounding grows with T until nothing is left)
        y, theta = filters.simulated(50 if report.quick else T)
        jobs, _ = filters.jobs_of(model, filters.four_states_jax, theta, y, filters.B)
        eager = jobs["tapegrad"]
        p = tg.prepare(model(np, y, filters.B), theta)
        jobs["tapegrad"] = lambda p=p: p.value_and_grad(theta)
        bench.settle(jobs["tapegrad"])
        t = bench.measure(jobs | {"eager": eager}, seconds=3, rounds=(3, 21))
        share = bench.ratio(t["tapegrad"], t["JAX jit"])
        report.row(f"{title}, T = {len(y)}", *[bench.times(s, 1e3) for s in t.values()], share)
        report.goal(f"G1d, {title}, replayed: share of JAX's time", share, 1 / 3)


def compiled_by_torch(f, *args, argnums=0):
    """(value, gradient) of f by torch.compile; an Absent where it is not installed, or refuses f."""
    torch = bench.torch()
    if torch is None:
        return bench.NOT_INSTALLED
    try:
        g, given = (
            torch.compile(torch.func.grad_and_value(f(torch), argnums=argnums)),
            [torch.tensor(a) for a in args],
        )
        g(*given)
    except Exception:
        return bench.CANNOT
    return lambda: g(*given)[::-1]


def ready(p, method, *args):
    """The method, replayed in its last form: until its loops are compiled, if that is worth as many
    replays."""
    for k in range(100):
        getattr(p, method)(*args)
        if k > 1 and p.forms[method].programs[0].due > 100:
            break
    return lambda: getattr(p, method)(*args)


def logistic(report):
    m, n = (200, 20) if report.quick else (20_000, 500)
    report.table(
        f"logistic regression, {m} x {n}: milliseconds; shares are those of the value alone, and at a fixed "
        f"point of two products with A",
        ["what", "replayed", "eager", "PyTorch compiled", "JAX jit", "replayed / value"],
    )
    f, x, V = operators.logistic(np, m, n)
    A, v, jax = f.__closure__[0].cell_contents, V[0], bench.jax()
    p = tg.prepare(f, x)
    here = p.at(x)
    here.hvp(v)
    H = tg.operators.hessian(f, x)
    of_jax = operators.of_jax(jax, operators.logistic, m, n) if jax is not None else {}

    def of_torch(torch):
        data = torch.tensor(A)
        return lambda x: torch.log1p(torch.exp(-(data @ x))).sum() + 0.5 * (x * x).sum()

    uses = {
        "value and gradient": (
            ready(p, "value_and_grad", x),
            lambda: tg.value_and_grad(f)(x),
            compiled_by_torch(of_torch, x),
        ),
        "product at a new point": (ready(p, "hvp", x, v), lambda: tg.hvp(f, x, v), bench.Absent("")),
        "product at a fixed point": (lambda: here.hvp(v), lambda: H @ v, bench.Absent("")),
    }
    names = {
        "product at a new point": "one at a new point",
        "product at a fixed point": "one at a fixed point",
    }
    shares = []
    for use, (job, eager, torch) in uses.items():
        alone = (lambda: A.T @ (A @ v)) if use == "product at a fixed point" else (lambda: f(x))
        jobs = {"tapegrad": job, "eager": eager, "PyTorch": torch}
        jobs["JAX"] = of_jax.get(names.get(use), bench.NOT_INSTALLED if jax is None else bench.Absent(""))
        t = bench.measure(jobs)
        both = bench.measure({"tapegrad": job, "alone": alone}, compare=False)
        shares.append(bench.ratio(both["tapegrad"], both["alone"]))
        report.row(use, *[bench.times(s, 1e3) for s in t.values()], shares[-1])
    report.goal("G3, replayed: value and gradient by the value", shares[0], 1.3)
    report.goal("G3, replayed: a product at a new point by the value", shares[1], 1.6)
    report.goal("G3, replayed: a product at a fixed point by its two products", shares[2], 1.1)


def elementwise(report):
    n = 10_000 if report.quick else 10_000_000
    report.table(
        f"a chain of elementwise functions over {n:,} numbers, value and gradient, nothing compiled: "
        f"milliseconds",
        [
            "replayed",
            "eager",
            "PyTorch eager",
            "PyTorch compiled",
            "JAX jit",
            "replayed / JAX",
            "memory, MiB: replayed",
            "eager",
        ],
        "h = tanh(x w + b); the sum of h h exp(-x x); by x, w and b.",
    )

    def of(library):
        def f(x, w, b):
            h = library.tanh(x * w + b)
            return (h * h * library.exp(-(x * x))).sum()

        return f

    f, x, every = of(np), np.random.default_rng(7).normal(size=n), (0, 1, 2)
    p, jax, torch = tg.prepare(of(np), x, 1.3, 0.2, argnums=every), bench.jax(), bench.torch()
    eager = lambda: tg.value_and_grad(f, argnums=every)(x, 1.3, 0.2)
    jobs = {"tapegrad": ready(p, "value_and_grad", x, 1.3, 0.2), "eager": eager}
    jobs |= {
        "PyTorch": bench.NOT_INSTALLED,
        "compiled": compiled_by_torch(of, x, 1.3, 0.2, argnums=every),
        "JAX": bench.NOT_INSTALLED,
    }
    if torch is not None:
        given = [torch.tensor(a, requires_grad=True) for a in (x, 1.3, 0.2)]
        theirs = of(torch)
        jobs["PyTorch"] = lambda: (y := theirs(*given), *torch.autograd.grad(y, given))
    if jax is not None:
        jitted, xs = jax.jit(jax.value_and_grad(of(jax.numpy), argnums=every)), jax.numpy.asarray(x)
        jobs["JAX"] = lambda: jax.block_until_ready(jitted(xs, 1.3, 0.2))
    memory = [bench.rise(jobs[name]) / 2**20 for name in ("tapegrad", "eager")]
    t = bench.measure(jobs, seconds=8, rounds=(3, 9))
    share = bench.ratio(t["tapegrad"], t["JAX"])
    report.row(*[bench.times(s, 1e3) for s in t.values()], share, *memory)
    report.goal("G7, replayed, nothing compiled: share of JAX's time", share, 0.9)


def directions(report):
    report.table(
        "50 numbers to 50, twelve operations: milliseconds",
        ["what", "replayed", "batched, eager", "PyTorch", "JAX jit", "replayed / JAX"],
    )
    x = np.random.default_rng(1).normal(size=50)
    shares = []
    for kind, method, f in (("Jacobian", "jacobian", batched.steps), ("Hessian", "hessian", batched.squares)):
        jobs = {"tapegrad": ready(tg.prepare(f(np, batched.W), x), method, x), "eager": batched.ours(kind, x)}
        jobs |= {"PyTorch": batched.torch_job(kind, x), "JAX": batched.jax_job(kind, x)}
        t = bench.measure(jobs, seconds=0.3 if report.quick else 1.5)
        shares.append((kind, bench.ratio(t["tapegrad"], t["JAX"])))
        report.row(kind, *[bench.times(s, 1e3) for s in t.values()], shares[-1][1])
    for kind, share in shares:
        report.goal(f"G8, {kind}, replayed: share of JAX's time", share, 0.5)


def stepping(h=0.1, n=50):
    """Runge and Kutta's method for a damped swing, in place."""

    def f(x):
        y = np.array([1.0, 0.0])
        slope = lambda y: np.array([y[1], -x[0] * y[0] - x[1] * y[1]])
        for _ in range(n):
            a = slope(y)
            b = slope(y + h / 2 * a)
            c = slope(y + h / 2 * b)
            y += h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))
        return (y * y).sum()

    return f, np.array([1.0, 0.2])


def costs(report):
    report.table(
        "what a recording costs, value and gradient: microseconds for each of its instructions",
        [
            "program",
            "instructions",
            "recording",
            "less the eager call",
            "first replay",
            "writing out",
            "a replay",
            "MiB more at the peak",
        ],
    )
    n = 3
    c, b, x = np.linspace(1.01, 1.03, n), np.linspace(0.01, 0.03, n), np.linspace(0.3, 0.9, n)
    gm3_loss, extra = (mutation.gm3_loss(8), mutation.P), []
    for title, f, at in (
        ("a chain of 999 operations on 3 numbers", overhead.arrays(np, OPERATIONS, c, b), x),
        ("Runge and Kutta, 50 steps", *stepping()),
        ("gm3!, N = 8", *gm3_loss),
    ):
        found = []
        for _ in range(3 if report.quick else 9):
            eager = spent(lambda f=f, at=at: tg.value_and_grad(f)(at))
            p = tg.prepare(f, at)
            peak = bench.rise(lambda p=p, at=at: p.value_and_grad(at)) / 2**20
            p = tg.prepare(f, at)
            found.append([eager, *[spent(lambda p=p, at=at: p.value_and_grad(at)) for _ in range(4)], peak])
        eager, recording, first, second, third, _ = np.min(found, axis=0)
        size = p.forms["value_and_grad"].programs[0].program.recorded
        each = [s / size * 1e6 for s in (recording, recording - eager, first, second - third, third)]
        report.row(title, size, *each, float(np.median([row[-1] for row in found])))
        extra.append((title, each[1]))
    for title, cost in extra:
        report.goal(f"recording {title}, less the eager call, us an instruction", cost, 3)


def calls(report):
    report.table(
        "the cost of a call that does next to nothing, gradient: microseconds",
        ["what f reads", "eager", "replayed", "guards alone"],
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
        bench.settle(lambda p=p, x=x: p.grad(x), 0.3)
        guards = p.forms["grad"].programs[0].surroundings.changed
        t = bench.measure({"eager": lambda g=g: g(x), "tapegrad": lambda p=p: p.grad(x)}, seconds=0.3)
        count = 2000
        alone = min([spent(lambda f=guards: [f() for _ in range(count)]) / count for _ in range(5)])
        report.row(title, *[s * 1e6 for s in t.values()], alone * 1e6)


def main():
    bench.start(__doc__).run(chains, programs, gm3, kalman, logistic, elementwise, directions, costs, calls)


if __name__ == "__main__":
    main()
