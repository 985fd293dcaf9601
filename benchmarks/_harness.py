"""What the benchmarks share: one pinned core, peers that may be absent, interleaved medians, and a table in
Markdown.

    jobs = {"NumPy": lambda: f(x), "tapegrad": lambda: tg.grad(f)(x), "PyTorch": ...}
    measure(jobs) -> {"NumPy": 1.2e-3, "tapegrad": ..., ...}            # seconds, after comparing the answers

All jobs of a row run in turn, round by round, so that a slow moment of the machine hits every system; a
figure is the median of the rounds, and a ratio is the median of the quotients of the rounds.  A short job is
called once untimed and then up to five times in each round, for the caches that it finds are those of the
system before it. What is measured is processor time of the process, so that other work on the machine does
not count.  Import this file before numpy: it sets thread counts."""

# ruff: noqa: E402
import os

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
os.environ.update(dict.fromkeys(THREADS, "1"))
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import argparse
import datetime
import gc
import platform
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PEERS = ("PyTorch", "autograd", "JAX")


class Absent:
    """A job that was not run, and why."""

    def __init__(self, why):
        self.why = why


NOT_INSTALLED = Absent("not installed")
CANNOT = Absent("raises")  # the system refuses this program


METHOD = (
    "one pinned core, one thread, float64; processor time, medians of interleaved rounds, ratios from pairs "
    "of one round; answers agree to 1e-10 before any timing"
)


class Seconds(float):
    """A median, with the rounds that it was taken from."""

    rounds: list

    @classmethod
    def of(cls, rounds):
        self = cls(statistics.median(rounds))
        self.rounds = rounds
        return self


def start(doc, method=METHOD):
    """Read the command line, pin the process to one core, open the report."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/NAME-DATE.md")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: to see that it runs")
    parser.add_argument("--only", help="the part to run, by the name of its function")
    parser.add_argument("--core", type=int, help="the core to run on (the last one allowed)")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0)) if args.core is None else args.core})
    return Report(Path(sys.argv[0]).stem, doc.partition("\n")[0], args, method)


def torch():
    """PyTorch on one thread, or None."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    return torch


def jax():
    try:
        import jax
    except ImportError:
        return None
    return jax


def autograd():
    try:
        import autograd
        import autograd.numpy
    except ImportError:
        return None
    return autograd


def flat(answer):
    """A job's answer as one vector of NumPy numbers."""
    if isinstance(answer, (tuple, list)):
        return np.concatenate([flat(a) for a in answer])
    if hasattr(answer, "detach"):
        answer = answer.detach().numpy()
    return np.asarray(answer, dtype=float).ravel()


def measure(jobs, seconds=1.5, rounds=(5, 41), rtol=1e-10, compare=True, most=5, answers=None):
    """Median seconds of each job.  The answers are compared first, with tapegrad's; a job may be an Absent.
    `answers`: a dict for the first answers.
    `most`: so many calls of a short job are timed together; by five alone, what the collection before them
    did to the caches is timed, too."""
    live = {name: job for name, job in jobs.items() if not isinstance(job, Absent)}
    answers, calls, spent = {} if answers is None else answers, {}, 0.0
    for name, job in live.items():
        answer = flat(job())
        begin = time.process_time()
        again = flat(job())  # a second call must agree with the first
        once = time.process_time() - begin
        calls[name] = int(min(max(0.03 / once, 1), most))
        spent += (calls[name] + (calls[name] > 1)) * once
        np.testing.assert_allclose(
            again, answer, rtol=rtol, atol=1e-12, err_msg=f"{name}: the second call differs"
        )
        answers[name] = answer
    if compare and "tapegrad" in answers:
        ours = answers["tapegrad"]
        for name, answer in answers.items():
            theirs = answer if len(answer) == len(ours) else answer[: len(ours)]
            scale = np.abs(ours[: len(theirs)]).max()
            np.testing.assert_allclose(
                theirs, ours[: len(theirs)], rtol=rtol, atol=rtol * scale, err_msg=f"tapegrad and {name}"
            )
    n = int(min(max(seconds / max(spent, 1e-9), rounds[0]), rounds[1]))
    times = {name: [] for name in live}
    gc.freeze()  # a collection looks at what the rounds made, not at all that the peers have loaded
    for _ in range(n):
        for name, job in live.items():
            gc.collect()
            if calls[name] > 1:
                job()  # the caches are the last system's
            begin = time.process_time()
            for _ in range(calls[name]):
                job()
            times[name].append((time.process_time() - begin) / calls[name])
    return {name: Seconds.of(times[name]) if name in live else job for name, job in jobs.items()}


class Report:
    """Prints as it goes, and keeps what it printed for `--save`."""

    def __init__(self, name, title, args, method=METHOD):
        self.name, self.quick, self.save, self.only, self.lines = name, args.quick, args.save, args.only, []
        self.missed = []
        self.say(f"# {name}: {title}\n\n{facts(method)}")

    def say(self, text=""):
        print(text, flush=True)
        self.lines.append(text)

    def run(self, *parts):
        for part in parts:
            if self.only in (None, part.__name__):
                part(self)
        self.close()

    def table(self, title, columns, note=""):
        self.say(f"\n## {title}\n" + (f"\n{note}\n" if note else ""))
        self.say("| " + " | ".join(columns) + " |")
        self.say("|" + "---|" * len(columns))
        return self

    def row(self, *cells):
        self.say("| " + " | ".join(cell(c) for c in cells) + " |")

    def goal(self, text, figure, bound):
        """A figure beside the bound that it should not pass."""
        if isinstance(figure, Absent):
            self.say(f"- {text}: {figure.why}")
            return
        held = figure <= bound
        self.say(f"- {text}: {figure:.3g}, goal at most {bound:g}: {'held' if held else '**missed**'}")
        if not held:
            self.missed.append(text)

    def close(self):
        self.say(
            "\nAll goals held." if not self.missed else "\nGoals missed: " + "; ".join(self.missed) + "."
        )
        if self.save:
            path = HERE / "results" / f"{self.name}-{datetime.date.today()}.md"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(self.lines) + "\n")
            print(f"\nwritten: {path.relative_to(HERE.parent)}")


def cell(x):
    if isinstance(x, Absent):
        return x.why
    if isinstance(x, float):
        return f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"
    return str(x)


def ratio(a, b):
    """a / b, or the Absent that stands for one of them.  Two jobs of one row are compared round by round."""
    absent = next((x for x in (a, b) if isinstance(x, Absent)), None)
    if (
        absent is None
        and isinstance(a, Seconds)
        and isinstance(b, Seconds)
        and len(a.rounds) == len(b.rounds)
    ):
        return statistics.median([x / y for x, y in zip(a.rounds, b.rounds, strict=True)])
    return absent or a / b


def times(x, factor):
    return x if isinstance(x, Absent) else x * factor


def facts(method):
    """Date, commit, machine and versions, as a list."""
    versions = [f"Python {platform.python_version()}"]
    for package in ("numpy", "scipy", "torch", "jax", "autograd", "warp-lang", "drjit", "statsmodels"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    return "\n".join(
        [
            f"- date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC; commit: {commit()}",
            f"- machine: {processor()}, {os.cpu_count()} cores, {memory()}, {platform.system()} "
            f"{platform.machine()}",
            f"- versions: {', '.join(versions)}",
            f"- method: {method}",
        ]
    )


def commit():
    def git(*words):
        return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True).stdout.strip()

    return (
        git("rev-parse", "--short", "HEAD")
        + (" with changes" if git("status", "--porcelain", "--", "../tapegrad") else "")
    ) or "unknown"


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def memory():
    try:
        kilobytes = int(Path("/proc/meminfo").read_text().split()[1])
    except (OSError, ValueError):
        return "memory unknown"
    return f"{kilobytes / 2**20:.0f} GiB"


def settle(job, seconds=1.0):
    """Calls a prepared job for this processor time: then its texts are written, and nothing more is compiled."""
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        job()


def peak_memory(script, *words):
    """Megabytes by which the resident set of a fresh process rises at its peak while it runs `python script
    --memory words`."""
    done = subprocess.run([sys.executable, script, "--memory", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return float(done.stdout.split()[-1]) / 2**20


def rise(job):
    """Bytes by which the resident set of this process rises at its peak during job() (Linux)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS")
    job()
    return status("VmHWM") - before


def status(key):
    text = Path("/proc/self/status").read_text()
    return int(text.partition(key + ":")[2].split()[0]) * 1024
