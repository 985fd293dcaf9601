"""Steps for the first hours on a CUDA device: see README.md in this folder."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]
PACKAGES = (
    "numpy",
    "scipy",
    "numba",
    "llvmlite",
    "cupy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "nvidia-cuda-nvrtc",
    "jax",
    "torch",
    "pytest",
)
PROPERTIES = (
    "name",
    "major",
    "minor",
    "totalGlobalMem",
    "multiProcessorCount",
    "l2CacheSize",
    "clockRate",
    "memoryClockRate",
)
CHECKS = ("memcheck", "initcheck", "racecheck")
GPU_FAILURES = 5  # pytest: no test was collected


class Step:
    """One step: its results, its time, and which parts are left."""

    def __init__(self, name, args):
        self.name, self.only, self.failed = name, args.only, 0
        self.end = time.monotonic() + 60 * args.minutes
        self.file = Path(args.out) / f"{name}.jsonl"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if args.again:
            self.file.unlink(missing_ok=True)
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.done = {json.loads(line)["name"] for line in lines}

    def seconds_left(self):
        return self.end - time.monotonic()

    def parts(self, names):
        """The parts that are left, until the time is over."""
        left = [name for name in names if name not in self.done and (self.only is None or self.only in name)]
        for k, name in enumerate(left):
            if self.seconds_left() < 5:
                print(f"{self.name}: time is over, {len(left) - k} parts left; call it again")
                return
            yield name
        print(f"{self.name}: all done, {self.failed} failed")

    def note(self, name, ok=True, **facts):
        row = {"name": name, "ok": bool(ok), **facts}
        self.failed += not ok
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            " ".join([name, "ok" if ok else "FAILED", *[f"{k}={v}" for k, v in facts.items()]])[:400],
            flush=True,
        )

    def command(self, name, command, most, **facts):
        """Run a command as one part; what it printed last is kept where it fails."""
        begin = time.monotonic()
        try:
            run = subprocess.run(
                command,
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=min(most, max(self.seconds_left(), 5)),
            )
        except subprocess.TimeoutExpired:
            return self.note(name, False, why=f"not done after {time.monotonic() - begin:.0f} s", **facts)
        said = (run.stdout + run.stderr).strip().splitlines()
        facts |= {"seconds": round(time.monotonic() - begin, 1), "last": said[-1] if said else ""}
        if run.returncode:
            facts["output"] = "\n".join(said[-60:])
        return self.note(name, run.returncode == 0, **facts)


def cupy_on_device():
    """CuPy, where a device answers."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceProperties(0)
    except Exception as error:
        raise SystemExit(f"no CUDA device answers: {error}") from None
    return cupy


def versions(step):
    """What is installed, and what the device is; runs without one, too."""
    facts = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.processor(),
        "cores": os.cpu_count(),
    }
    for package in PACKAGES:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package] = None
    facts["cupy"] = facts["cupy"] or facts["cupy-cuda13x"] or facts["cupy-cuda12x"]
    facts["compute-sanitizer"] = shutil.which("compute-sanitizer")
    try:
        cupy = cupy_on_device()
    except SystemExit as error:
        facts["device"] = str(error)
    else:
        found = cupy.cuda.runtime.getDeviceProperties(0)
        facts["device"] = {key: str(found[key]) for key in PROPERTIES if key in found}
        facts["driver"], facts["runtime"] = (
            cupy.cuda.runtime.driverGetVersion(),
            cupy.cuda.runtime.runtimeGetVersion(),
        )
        facts["free bytes"] = cupy.cuda.runtime.memGetInfo()[0]
    for name in step.parts(facts):
        step.note(name, value=facts[name])


def probe(step):
    """Each way of launching, against NumPy."""
    cupy_on_device()
    import paths

    for name in step.parts(paths.PATHS):
        step.command(name, [sys.executable, str(HERE), "path", "--only", name], 120)


def path(step):
    """One way of launching, in this process (`probe` calls it)."""
    cupy = cupy_on_device()
    import paths

    for name in [name for name in paths.PATHS if name == step.only]:
        found = paths.difference(cupy, name)
        print(f"largest relative difference {found:.2e}")
        step.failed += not found <= paths.tolerance(name)


def tests(step):
    """`pytest -m gpu`, file by file."""
    cupy_on_device()
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py"))
    files = [
        name
        for name in files
        if any(word in (ROOT / name).read_text() for word in ("xp", "cupy", "mark.gpu", "device"))
    ]
    for name in step.parts(files):
        workers = str(min(8, os.cpu_count() or 1))
        begin = time.monotonic()
        try:
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "-m", "gpu", "-n", workers, "-q", "--tb=short", name],
                cwd=ROOT, capture_output=True, text=True, timeout=max(step.seconds_left(), 5),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            if begin + 300 < time.monotonic():
                step.note(name, False, why="not done after five minutes")
            continue
        said = run.stdout.strip().splitlines()
        facts = {
            "seconds": round(time.monotonic() - begin, 1),
            "last": said[-1] if said else run.stderr[-300:],
        }
        if run.returncode not in (0, GPU_FAILURES):
            facts["output"] = "\n".join(said[-150:])
        step.note(name, run.returncode in (0, GPU_FAILURES), **facts)


def sanitizer(step):
    """The paths of `probe` under compute-sanitizer."""
    cupy_on_device()
    import paths

    tool = shutil.which("compute-sanitizer")
    if tool is None:
        raise SystemExit("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    for name in step.parts([f"{check} {name}" for check in CHECKS for name in paths.PATHS]):
        check, _, one = name.partition(" ")
        command = [
            tool,
            "--tool",
            check,
            "--error-exitcode",
            "9",
            sys.executable,
            str(HERE),
            "path",
            "--only",
            one,
        ]
        step.command(name, command, 180)


def table(step):
    """The table of benchmarks/device.py."""
    cupy_on_device()
    script = str(ROOT / "benchmarks" / "device.py")
    for name in step.parts(["quick", "full"]):
        step.command(name, [sys.executable, script, "--save", *(["--quick"] if name == "quick" else [])], 560)


def occupancy(step):
    """Registers, spilled bytes and resident blocks of each generated kernel of the list of the tests."""
    cupy = cupy_on_device()
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    import _nvrtc
    from cupy_backends.cuda.api import driver

    from tapegrad.kernels.launch import cuda

    arch = int(cupy.cuda.Device().compute_capability)
    sources = dict(_nvrtc.kernels())
    threads = 128
    for name in step.parts(sources):
        registers, spilled = _nvrtc.figures(sources[name], arch)
        entry = sources[name].rpartition("__global__ void ")[2].partition("(")[0].split(")")[-1].strip()
        code = cuda.loaded(sources[name], entry)
        blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(code.ptr, threads, 0)
        ours = (
            cuda.resident_blocks(threads, code.registers, cupy.cuda.Device().id)
            // cuda.device_limits(cupy.cuda.Device().id)[0]
        )
        step.note(name, ours == blocks, registers=registers, spilled=spilled, blocks=blocks, counted=ours)


STEPS = {f.__name__: f for f in (versions, probe, tests, sanitizer, table, occupancy, path)}


def main():
    parser = argparse.ArgumentParser(prog="python benchmarks/device_day", description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--out", default="device_day")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only")
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    step = Step(args.step, args)
    STEPS[args.step](step)
    sys.exit(1 if step.failed else 0)


if __name__ == "__main__":
    main()
