"""Twenty-seven programs that nobody tuned, in eager mode, prepared with default settings, and in JAX.

    python benchmarks/programs.py [--save] [--quick] [--only PART]

PART: table or memory.  The texts are in `_untuned_loops.py` and `_untuned_models.py`.  Calls go in turn to
four points near the start, as those of an optimiser do.  What a process loads once is loaded before.  The
result is value and gradient; that of `hessian_of_a_likelihood` is the Hessian.  The first calls are the first ten, in a fresh prepared function."""

import statistics
import sys
import time

import _harness as bench
import _untuned_loops
import _untuned_models
import numpy as np

import tapegrad as tg

PROGRAMS = {make.__name__: make for make in _untuned_loops.PROGRAMS + _untuned_models.PROGRAMS}
POINTS, STEP, FIRST_CALLS = 4, 1e-3, 10


def method(name):
    return "hessian" if name.startswith("hessian") else "value_and_grad"


def points(start):
    """The start, and others at the distance of a step."""
    rng = np.random.default_rng(1)
    moved = lambda leaf: leaf + STEP * rng.normal(size=leaf.shape)
    return [start] + [tg.tree.map(moved, start) for _ in range(POINTS - 1)]


def in_turn(call, at):
    """A job that calls at each point once."""
    return lambda: [call(x) for x in at]


def numbers(tree):
    """All numbers of a tree, in the order of their paths: JAX sorts the keys of a dict."""
    pairs = sorted((str(path), leaf) for path, leaf in tg.tree.leaves_with_paths(tree))
    return bench.flat([np.asarray(leaf) for _, leaf in pairs])


def compiled(theirs, name):
    jax = bench.jax()
    function = jax.jit(getattr(jax, method(name))(theirs))
    return lambda x: jax.block_until_ready(function(x))


def seconds(job):
    begin = time.process_time()
    job()
    return time.process_time() - begin


def first_calls(f, theirs, at, name):
    """Processor seconds of the first ten calls: eager, prepared; of the first call: prepared, JAX."""
    ten = [at[k % POINTS] for k in range(FIRST_CALLS)]
    eager = getattr(tg, method(name))(f)
    eager(at[0])
    of_eager = seconds(lambda: [eager(x) for x in ten])
    prepared = getattr(tg.prepare(f, at[0]), method(name))
    once = seconds(lambda: prepared(at[0]))
    rest = seconds(lambda: [prepared(x) for x in ten[1:]])
    if bench.jax() is None:
        return of_eager, once + rest, once, bench.NOT_INSTALLED
    return of_eager, once + rest, once, seconds(lambda: compiled(theirs, name)(at[0]))


def compared(jobs):
    """The answers agree to 1e-10 of the largest number of a leaf tree, at every point."""
    answers = {name: job() for name, job in jobs.items() if not isinstance(job, bench.Absent)}
    for k, ours in enumerate(answers["tapegrad"]):
        ours = numbers(ours)
        for name, others in answers.items():
            scale = np.abs(ours).max()
            message = f"tapegrad and {name}, point {k}"
            np.testing.assert_allclose(numbers(others[k]), ours, rtol=0, atol=1e-10 * scale, err_msg=message)


def prepared_once():
    """Loads the compiler and the interpreter, which a process needs once."""
    x = np.ones(200)
    p = tg.prepare(lambda x: (np.sin(x) * x).sum(), x, compile=True)
    for _ in range(4):
        p.value_and_grad(x)


def table(report):
    prepared_once()
    report.table(
        "value and gradient: milliseconds a call",
        ["program", "NumPy value", "eager", "prepared", "JAX jit", "prepared / JAX", "prepared / eager",
         "ten calls prepared / eager", "first call, ms: prepared", "JAX"],
    )  # fmt: skip
    shares, tens = [], []
    for name, make in list(PROGRAMS.items())[:: 6 if report.quick else 1]:
        f, theirs, start = make(np.random.default_rng(0))
        at = points(start)
        ten_eager, ten_prepared, once, jax_once = first_calls(f, theirs, at, name)
        p = tg.prepare(f, start)
        prepared = getattr(p, method(name))
        jobs = {
            "NumPy": in_turn(f, at),
            "eager": in_turn(getattr(tg, method(name))(f), at),
            "tapegrad": in_turn(prepared, at),
            "JAX": bench.NOT_INSTALLED,
        }
        if bench.jax() is not None:
            jobs["JAX"] = in_turn(compiled(theirs, name), [tg.tree.map(np.array, x) for x in at])
        compared({job: run for job, run in jobs.items() if job != "NumPy"})
        bench.settle(jobs["tapegrad"])
        jobs = {job: run if isinstance(run, bench.Absent) else lambda run=run: (run(), 0)[1]
                for job, run in jobs.items()}  # fmt: skip
        t = bench.measure(jobs, seconds=1.0, rounds=(5, 21))
        share = bench.ratio(t["tapegrad"], t["JAX"])
        shares.append(share)
        tens.append(ten_prepared / ten_eager)
        each = [bench.times(s, 1e3 / POINTS) for s in t.values()]
        report.row(name, *each, share, bench.ratio(t["tapegrad"], t["eager"]), tens[-1],
                   once * 1e3, bench.times(jax_once, 1e3))  # fmt: skip
    found = [s for s in shares if not isinstance(s, bench.Absent)]
    if found:
        report.goal("prepared / JAX, largest", max(found), 1.2)
        report.goal("prepared / JAX, median", statistics.median(found), 0.8)
        report.goal("prepared / JAX, geometric mean", float(np.exp(np.mean(np.log(found)))), 0.5)
    report.goal("ten calls, prepared / eager, largest", max(tens), 1.2)


SYSTEMS = ("eager", "prepared", "JAX")


def memory(report):
    report.table(
        "peak memory of the first five calls: MB above the data",
        ["program", *SYSTEMS],
        "Each in a process of its own, after it has run another program.",
    )
    for name in list(PROGRAMS)[:: 6 if report.quick else 1]:
        systems = SYSTEMS if bench.jax() is not None else SYSTEMS[:2]
        report.row(name, *[bench.peak_memory(__file__, name, system) for system in systems])


def rise(name, system):
    f, theirs, start = PROGRAMS[name](np.random.default_rng(0))
    warm = np.ones(2)
    if system == "JAX":
        call = compiled(theirs, name)
        compiled(lambda x: (x * x).sum(), "warm")(warm)
    elif system == "prepared":
        call = getattr(tg.prepare(f, start), method(name))
        prepared_once()
    else:
        call = getattr(tg, method(name))(f)
        tg.grad(lambda x: (x * x).sum())(warm)
    at = points(start)
    return bench.rise(lambda: [call(at[k % POINTS]) for k in range(5)])


if __name__ == "__main__":
    if "--memory" in sys.argv:
        print(rise(*sys.argv[-2:]))
    else:
        bench.start(__doc__).run(table, memory)
