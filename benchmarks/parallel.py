"""Ranks and workers: a step against the number of ranks, bytes sent, and what a task costs.

    python benchmarks/parallel.py [--ranks 1 2] [--seconds 1.0] [--save]

A step is value and gradient of a logistic regression, by `parallel.value_and_grad` (one message) and by
`grad` of a function with `psum`. A step that is "idle" has no data: it shows what the ranks cost. Bytes are
those that one rank gives to collectives in a step. It starts itself under mpiexec once for each number of
ranks."""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import _harness as bench
import numpy as np

METHOD = (
    "least time of a call by the clock, of the slowest rank; one thread a rank; ranks share memory; bytes are "
    "those that one rank gives to collectives"
)
ROWS, COLUMNS = 40_000, 100


def least(f, seconds):
    """The least time of a call, in microseconds."""
    f()
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return 1e6 * min(times)


def on_all_ranks(f, seconds):
    """The same with one number of calls on all ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    f()
    begin = time.perf_counter()
    f()
    count = comm.bcast(max(5, min(2000, int(seconds / (time.perf_counter() - begin)))))
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return 1e6 * comm.allreduce(min(times), MPI.MAX)


def of_ranks(seconds):
    from mpi4py import MPI

    import tapegrad as tg
    from tapegrad import parallel
    from tapegrad.parallel.ranks import ranks_of

    comm = MPI.COMM_WORLD
    r = np.random.default_rng(0)
    mine = parallel.split(ROWS)
    A, y = r.normal(size=(ROWS, COLUMNS))[mine].copy(), r.choice([-1.0, 1.0], size=ROWS)[mine].copy()
    x = np.zeros(COLUMNS)

    def share(x, A=A, y=y):
        return np.sum(np.log1p(np.exp(-y * (A @ x))))

    none = lambda x: share(x, A[:0], y[:0])
    whole = lambda x: parallel.psum(share(x))
    replayed = parallel.value_and_grad(tg.prepare(share, x))
    replayed_whole, replayed_none = tg.prepare(whole, x), tg.prepare(lambda x: parallel.psum(none(x)), x)
    buffer, result = np.zeros(1 + COLUMNS), np.zeros(1 + COLUMNS)
    steps = {
        "Allreduce of 1 + p numbers": lambda: comm.Allreduce(buffer, result),
        "psum of 1 + p numbers": lambda: parallel.psum(buffer),
        "grad in one process": lambda: tg.value_and_grad(none)(x),
        "parallel.value_and_grad, idle": lambda: parallel.value_and_grad(none)(x),
        "grad of psum, idle": lambda: tg.value_and_grad(lambda x: parallel.psum(none(x)))(x),
        "grad of psum, prepared, idle": lambda: replayed_none.value_and_grad(x),
        "parallel.value_and_grad": lambda: parallel.value_and_grad(share)(x),
        "parallel.value_and_grad, prepared": lambda: replayed(x),
        "grad of psum": lambda: tg.value_and_grad(whole)(x),
        "grad of psum, prepared": lambda: replayed_whole.value_and_grad(x),
    }
    rows = {}
    for name, step in steps.items():
        ranks = ranks_of()
        microseconds = on_all_ranks(step, seconds)
        before = ranks.bytes
        step()
        rows[name] = microseconds, ranks.bytes - before
    if comm.rank == 0:
        print(json.dumps(rows))


def nothing(k):
    return k


def of_tasks(report, seconds):
    from tapegrad import parallel

    with ProcessPoolExecutor(2) as pool:
        parallel.run_parts(nothing, range(4), pool)
        alone = least(lambda: parallel.run_parts(nothing, range(2), pool), seconds) / 2
        many = least(lambda: parallel.run_parts(nothing, range(20_000), pool), seconds) / 20_000
    report.table("Work in two processes, microseconds", ["work", "time"])
    report.row("a task of one part", alone)
    report.row("a part of many in a task", many)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/parallel-DATE.md")
    parser.add_argument("--inside", action="store_true", help="(a rank)")
    given = parser.parse_args()
    if given.inside:
        return of_ranks(given.seconds)
    given.quick = given.only = None
    report = bench.Report("parallel", __doc__.partition("\n")[0], given, METHOD)
    words = [sys.executable, __file__, "--inside", "--seconds", str(given.seconds)]
    tables = []
    for count in given.ranks:
        command = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(count), *words]
        tables.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    report.table(
        "A step, microseconds",
        ["step", *[f"{n} rank{'s' * (n > 1)}" for n in given.ranks], "bytes a rank"],
        f"Logistic regression, {ROWS:,} rows divided over the ranks, {COLUMNS} parameters. Idle: without data.",
    )
    for name in tables[0]:
        report.row(name, *[table[name][0] for table in tables], tables[-1][name][1])
    of_tasks(report, given.seconds)
    report.close()


if __name__ == "__main__":
    main()
