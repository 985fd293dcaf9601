"""The cost of an operation, usual programs, and the memory of a tape.

    python benchmarks/overhead.py [--save] [--quick] [--only dispatch | programs | memory]

The functions are what a user writes; the chains differ from system to system in the name of the array library
only.  G5, G5p: the goals' names in the design."""

import subprocess
import sys

import _harness as bench
import _programs
import numpy as np

import tapegrad as tg

N = 1000  # operations of a chain
EAGER = 100  # operations of JAX's chain: it is slow
C, B = np.array([1.01, 1.02, 1.03]), np.array([0.01, 0.02, 0.03])


def chain(np, n=N):
    def f(x):
        for _ in range(n // 2):
            x = np.sin(x) * 1.01
        return x.sum()

    return f


def arrays(np, n=N, c=C, b=B):
    def f(x):
        for _ in range(n // 3):
            x = np.sin(x * c) + b
        return x.sum()

    return f


def active(np, n=N):
    def f(x):
        y = x
        for _ in range(n // 2):
            y = y * x + y
        return y.sum()

    return f


def scalar(np, n=N):
    def f(x):
        for _ in range(n // 2):
            x = np.sin(x) * 1.01
        return x

    return f


def jobs_of(make, x, v, what, n):
    """The job of each system for one row, and how many operations it does."""
    ours = make(np, n)
    if what == "value and gradient":
        jobs = {"tapegrad": lambda: tg.value_and_grad(ours)(x)}
    elif what == "jvp":
        jobs = {"tapegrad": lambda: tg.jvp(ours, (x,), (v,))}
    elif what == "hvp, forward over reverse":
        jobs = {"tapegrad": lambda: tg.hvp(ours, x, v)}
    else:
        jobs = {"tapegrad": lambda: tg.grad(lambda x: (tg.grad(ours)(x) * v).sum())(x)}
    return jobs | {
        "PyTorch": torch_job(make, x, v, what, n),
        "autograd": autograd_job(make, x, v, what, n),
        "JAX": jax_job(make, x, v, what),
    }


def torch_job(make, x, v, what, n):
    torch = bench.torch()
    if torch is None:
        return bench.NOT_INSTALLED
    fwd = torch.autograd.forward_ad
    c, b = torch.tensor(C), torch.tensor(B)
    f = make(torch, n, c, b) if make is arrays else make(torch, n)
    leaf, v = torch.tensor(x, requires_grad=True), torch.tensor(v)
    x = leaf.detach()

    def value_and_gradient():
        y = f(leaf)
        return y, torch.autograd.grad(y, leaf)[0]

    def jvp():
        with fwd.dual_level():
            y = fwd.unpack_dual(f(fwd.make_dual(x, v)))
        return y.primal, y.tangent

    def forward_over_reverse():
        with fwd.dual_level():
            dual = fwd.make_dual(leaf, v)
            return fwd.unpack_dual(torch.autograd.grad(f(dual), dual, create_graph=True)[0]).tangent

    def reverse_over_reverse():
        (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
        return torch.autograd.grad((g * v).sum(), leaf)[0]

    return {
        "value and gradient": value_and_gradient,
        "jvp": jvp,
        "hvp, forward over reverse": forward_over_reverse,
    }.get(what, reverse_over_reverse)


def autograd_job(make, x, v, what, n):
    autograd = bench.autograd()
    if autograd is None:
        return bench.NOT_INSTALLED
    f = make(autograd.numpy, n)
    return {
        "value and gradient": lambda: autograd.value_and_grad(f)(x),
        "jvp": lambda: autograd.make_jvp(f)(x)(v),
        "hvp, forward over reverse": lambda: autograd.make_jvp(autograd.grad(f))(x)(v)[1],
        "hvp, reverse over reverse": lambda: autograd.make_hvp(f)(x)[0](v),
    }[what]


def jax_job(make, x, v, what):
    jax = bench.jax()
    if jax is None:
        return bench.NOT_INSTALLED
    f = make(jax.numpy, EAGER)
    x, v = jax.numpy.asarray(x), jax.numpy.asarray(v)
    return {
        "value and gradient": lambda: jax.block_until_ready(jax.value_and_grad(f)(x)),
        "jvp": lambda: jax.block_until_ready(jax.jvp(f, (x,), (v,))),
        "hvp, forward over reverse": lambda: jax.block_until_ready(jax.jvp(jax.grad(f), (x,), (v,))[1]),
        "hvp, reverse over reverse": lambda: jax.block_until_ready(
            jax.grad(lambda x: (jax.grad(f)(x) * v).sum())(x)
        ),
    }[what]


def operations(make, n):
    return n // 3 * 3 if make is arrays else n // 2 * 2


def dispatch(report):
    wanted = ["value and gradient", "jvp", "hvp, forward over reverse", "hvp, reverse over reverse"]
    cases = [(f"x = np.sin(x) * 1.01, {size} numbers", chain, size) for size in (1, 3, 10, 100)]
    cases += [("x = np.sin(x * c) + b, arrays captured, 3 numbers", arrays, 3)]
    cases += [
        ("both arguments active, 3 numbers", active, 3),
        ("x = np.sin(x) * 1.01, a NumPy number", scalar, 0),
    ]
    if report.quick:
        cases = cases[1:2]
    figures = {}
    for what in wanted:
        report.table(
            f"{what}: microseconds an operation, chains of {N} operations",
            [
                "chain",
                "NumPy value alone",
                "tapegrad",
                "PyTorch eager",
                "HIPS autograd",
                "JAX eager",
                "tapegrad / PyTorch",
            ],
            f"JAX runs a chain of {EAGER} operations, not jitted; its answers are compared by a chain of "
            f"that length."
            if what == wanted[0]
            else "",
        )
        for title, make, size in cases:
            x = np.linspace(0.3, 1.1, size) if size else np.float64(0.3)
            v = np.linspace(1.0, 2.0, size) if size else np.float64(1.0)
            jobs = jobs_of(make, x, v, what, N)
            check = {"tapegrad": jobs_of(make, x, v, what, EAGER)["tapegrad"], "JAX": jobs["JAX"]}
            bench.measure(check, seconds=0, rounds=(1, 1))
            slow = jobs.pop("JAX")
            plain = make(np)
            t = bench.measure(jobs)
            t |= bench.measure({"NumPy": lambda: plain(x), "JAX": slow}, rounds=(3, 5), compare=False)
            ops = operations(make, N)
            us = {
                name: bench.times(s, 1e6 / (operations(make, EAGER) if name == "JAX" else ops))
                for name, s in t.items()
            }
            share = bench.ratio(us["tapegrad"], us["PyTorch"])
            report.row(title, us["NumPy"], us["tapegrad"], us["PyTorch"], us["autograd"], us["JAX"], share)
            figures[what, title] = us
    report.say()
    for what in (wanted[0], *wanted[2:]):
        worst = max(
            (share_of_best(figures, what, title) for title, *_ in cases),
            key=lambda r: r.why if isinstance(r, bench.Absent) else r,
        )
        report.goal(
            f"G5, {what}, worst share of PyTorch's time (for hvp: of the faster of PyTorch's two nestings)",
            worst,
            1 / 2.5,
        )


def share_of_best(figures, what, title):
    """tapegrad's time over that of PyTorch's fastest way to the same answer."""
    same = [us["PyTorch"] for (w, t), us in figures.items() if t == title and w[:3] == what[:3]]
    absent = next((s for s in same if isinstance(s, bench.Absent)), None)
    return absent or figures[what, title]["tapegrad"] / min(same)


# --- usual programs ---


def program_jobs(program):
    """The gradient of one program in each system, and its value by NumPy.  All data are converted before."""
    several = tuple(range(len(program.at))) if len(program.at) > 1 else 0
    ours = program.text(np, *program.data)
    jobs = {
        "NumPy": lambda: ours(*program.at),
        "tapegrad": lambda: tg.grad(ours, argnums=several)(*program.at),
    }
    jobs |= dict.fromkeys(("PyTorch", "autograd", "JAX"), bench.NOT_INSTALLED)
    torch, autograd, jax = bench.torch(), bench.autograd(), bench.jax()
    if torch is not None:
        theirs = program.for_system("torch")(
            torch, *[torch.tensor(d) if isinstance(d, np.ndarray) else d for d in program.data]
        )
        leaves = [torch.tensor(a, requires_grad=True) for a in program.at]
        jobs["PyTorch"] = lambda: torch.autograd.grad(theirs(*leaves), leaves)
    if autograd is not None and program.autograd is None:
        jobs["autograd"] = bench.CANNOT
    elif autograd is not None:
        functional = autograd.grad(program.for_system("autograd")(autograd.numpy, *program.data), several)
        jobs["autograd"] = lambda: functional(*program.at)
    if jax is not None:
        data = [jax.numpy.asarray(d) if isinstance(d, np.ndarray) else d for d in program.data]
        jitted = jax.jit(jax.grad(program.for_system("jax")(jax.numpy, *data), several))
        at = [jax.numpy.asarray(a) for a in program.at]
        jobs["JAX"] = lambda: jax.block_until_ready(jitted(*at))
    return jobs


def programs(report):
    report.table(
        "usual programs, gradient: milliseconds",
        [
            "program",
            "NumPy value alone",
            "tapegrad",
            "PyTorch eager",
            "HIPS autograd",
            "JAX jit (compiled)",
            "tapegrad / PyTorch",
            "/ JAX",
        ],
        "Where a system refuses writes into arrays, or has another name or a loop of its own, its users' "
        "text runs.",
    )
    shares = {}
    for program in _programs.programs()[:: 4 if report.quick else 1]:
        jobs = program_jobs(program)
        t = bench.measure({"NumPy": jobs.pop("NumPy")}, seconds=0.1) | bench.measure(
            jobs, seconds=1, rounds=(5, 21)
        )
        shares[program.title] = bench.ratio(t["tapegrad"], t["PyTorch"])
        ratios = shares[program.title], bench.ratio(t["tapegrad"], t["JAX"])
        report.row(program.title, *[bench.times(s, 1e3) for s in t.values()], *ratios)
    report.say()
    for title, share in shares.items():
        report.goal(f"G5p, {title}: share of PyTorch's time", share, 1.15)


# --- the fixed cost of a transform ---


def captured(n, written=False):
    """One operation for each of n captured arrays."""
    arrays = [np.ones(3) for _ in range(n)]

    def f(x):
        for c in arrays:
            if written:
                c[:] = x
            x = x * c
        return x.sum()

    return f


def reached(n, kind):
    """n functions or arrays that f finds in a list and does not touch."""

    def helper():
        return lambda x: x

    things = [helper() if kind == "function" else np.ones(3) for _ in range(n)]

    def f(x):
        return (x * len(things)).sum()

    return f


def named(n, kind):
    """n functions or arrays that f names, as globals of its module, and does not come to."""
    space = {f"thing{k}": (lambda x: x) if kind == "function" else np.ones(3) for k in range(n)} | {
        "__name__": "model"
    }
    exec(
        f"def f(x):\n    if x is None:\n        return {', '.join(list(space)[:n])}\n    return (x * "
        f"2.0).sum()",
        space,
    )
    return space["f"]


def fixed(report):
    report.table(
        "what a transform costs in all: microseconds",
        ["a gradient with three numbers", "tapegrad", "per unit"],
        "`tg.grad(f)(x)`, f of one or two operations. Per unit: what each further leaf, array or function "
        "adds, the operation with it included.",
    )
    x, many, times = np.array([0.3, 0.4, 0.5]), 32, 100

    def job(f, x=x):
        def repeated():
            for _ in range(times):
                g = tg.grad(f)(x)
            return g

        return repeated

    def tree(n):
        return [x.copy() for _ in range(n)]

    cases = {
        "nothing captured": [job(lambda x: (x * x).sum())],
        "a list of arrays": [job(lambda p: (p[0] * p[1]).sum(), tree(n)) for n in (2, 2 + many)],
        "captured arrays that are read": [job(captured(n)) for n in (1, 1 + many)],
        "captured arrays that are written": [job(captured(n, written=True)) for n in (1, 1 + many)],
        "arrays in a captured list, not touched": [job(reached(n, "array")) for n in (1, 1 + many)],
        "functions in a captured list, not touched": [job(reached(n, "function")) for n in (1, 1 + many)],
        "arrays among the globals, not touched": [job(named(n, "array")) for n in (1, 1 + many)],
        "functions among the globals, not touched": [job(named(n, "function")) for n in (1, 1 + many)],
    }
    for title, jobs in cases.items():
        us = [s * 1e6 / times for s in bench.measure(dict(enumerate(jobs)), compare=False).values()]
        report.row(title, us[0], (us[1] - us[0]) / many if len(us) > 1 else "")


# --- memory: each figure is taken in a process of its own, so that no allocator remembers another ---


def wide(np):
    """60 operations on 10^6 numbers: what the tape keeps."""
    return chain(np, 60), 10**6


def deep(np):
    """10^5 operations on 3 numbers: the records themselves."""
    return chain(np, 10**5), 3


SHAPES = {"wide": wide, "deep": deep}


def memory_job(system, shape):
    f, size = SHAPES[shape](np)
    x = np.linspace(0.3, 1.1, size)
    if system == "tapegrad":
        return lambda: tg.grad(f)(x), lambda: tg.grad(chain(np, 4))(x[:3])
    if system == "PyTorch":
        torch = bench.torch()
        f, size = SHAPES[shape](torch)
        x = torch.tensor(x, requires_grad=True)
        return lambda: torch.autograd.grad(f(x), x), lambda: torch.autograd.grad(chain(torch, 4)(x[:3]), x)
    autograd = bench.autograd()
    f, size = SHAPES[shape](autograd.numpy)
    return lambda: autograd.grad(f)(x), lambda: autograd.grad(chain(autograd.numpy, 4))(x[:3])


def memory(report):
    report.table(
        "peak memory of a gradient: megabytes (2^20) above the process before it",
        ["chain", "tapegrad", "PyTorch", "HIPS autograd", "tapegrad / PyTorch"],
        "Rise of the resident set at its peak, each in a fresh process. One array of 10^6 numbers is 7.6; "
        "the rules of the chain's 60 operations need the inputs of 30 sines, 229.",
    )
    for shape, title in {
        "wide": "60 operations on 10^6 numbers",
        "deep": "100,000 operations on 3 numbers",
    }.items():
        row = {}
        for system, module in {
            "tapegrad": tg,
            "PyTorch": bench.torch(),
            "autograd": bench.autograd(),
        }.items():
            row[system] = (
                bench.NOT_INSTALLED if module is None else bench.peak_memory(__file__, system, shape)
            )
        report.row(title, *row.values(), bench.ratio(row["tapegrad"], row["PyTorch"]))


IMPORTED = """import time, numpy, scipy.fft, scipy.linalg, scipy.special
start = time.process_time()
import {}
print(time.process_time() - start)"""


def imported(report):
    report.table(
        "import: seconds of processor time beyond NumPy's and SciPy's own",
        ["tapegrad", "PyTorch", "HIPS autograd", "JAX"],
        "The best of seven fresh processes.",
    )
    installed = {"tapegrad": tg, "torch": bench.torch(), "autograd": bench.autograd(), "jax": bench.jax()}
    row = {}
    for name, module in installed.items():
        command = [sys.executable, "-c", IMPORTED.format(name)]
        seconds = lambda command=command: float(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )
        row[name] = bench.NOT_INSTALLED if module is None else min(seconds() for _ in range(7))
    report.row(*row.values())
    report.goal("import, seconds", row["tapegrad"], 0.3)


def main():
    if sys.argv[1:2] == ["--memory"]:
        job, warm = memory_job(*sys.argv[2:])
        warm()
        print(bench.rise(job))
        return
    bench.start(__doc__).run(dispatch, programs, fixed, memory, imported)


if __name__ == "__main__":
    main()
