"""Registers and spilled bytes of the generated kernels, by NVRTC for devices that need not be there, and the
budget for them.

Write the budget anew, after a change that is meant to move it:

    PYTHONPATH=. python tests/support/_nvrtc.py        (two minutes; then read the diff of tests/support/register_budget.txt)
"""

import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np
from _cuda_host import FOLDER
from _kernel_cases import CASES, MAPS, WAYS, fresh, program

from tapegrad.kernels import emit_cuda
from tapegrad.kernels.emit.cuda_split import emit_split, splittable
from tapegrad.kernels.launch.cuda import OPTIONS, cubin, nvrtc

FILE = Path(__file__).with_name("register_budget.txt")
ARCHS = (75, 80, 86, 89, 90, 100, 120)
DTYPES = (np.float32, np.float64)
HEAD = """# Registers, and where there are some, bytes of spill stores, of each generated kernel: 255+80 is 255 registers and 80 bytes.
# F0 value, VG0 value and gradient, R1 Hessian times a vector (of a map: R0 pullback); divided: the kernels of a divided sum;
# segments: one in 8 steps is stored; sums: these are float64.  Written by tests/support/_nvrtc.py.
"""


def version() -> str:
    return "NVRTC {}.{}".format(*nvrtc.getVersion())


def kernels() -> list[tuple]:
    """(key, source) of all kernels of the list."""
    found = []
    for name in CASES:
        k = fresh(name)
        wide = type(k)(dataclasses.replace(k._parts, sums=np.float64))
        low = program(wide, name, "VG", 0, dtype=np.float32)
        found.append((f"{name} sums, VG0, float32", emit_cuda(low, np.float32)[0]))
        if splittable(low):
            found.append((f"{name} sums divided, VG0, float32", emit_split(low, np.float32)[0]))
    for name in [*CASES, *MAPS]:
        k = fresh(name)
        for kind, order in WAYS:
            low = program(k, name, kind, order)
            for dtype in DTYPES:
                key = f"{name}, {kind}{order}, {np.dtype(dtype).name}"
                found.append((key, emit_cuda(low, dtype)[0]))
                if kind == "VG" and any(b.loop.stored for b in low.bodies):
                    found.append((key.replace(",", " segments,", 1), emit_cuda(low, dtype, every=8)[0]))
                if splittable(low):
                    found.append((key.replace(",", " divided,", 1), emit_split(low, dtype)[0]))
    return found


def figures(source: str, arch: int) -> tuple[int, int]:
    """(registers, bytes of spill stores) of the kernel that has most, kept on disk by source and compiler."""
    options = (*OPTIONS, "--ptxas-options=-v")
    name = hashlib.sha256("\0".join([source, str(arch), version(), *options]).encode()).hexdigest()[:24]
    kept = FOLDER / f"{name}.log"
    if not kept.exists():
        FOLDER.mkdir(exist_ok=True)
        _, log = cubin(source, arch, options)
        kept.write_text(log)
    log = kept.read_text()
    return tuple(
        max(int(n) for n in re.findall(what, log))
        for what in (r"Used (\d+) registers", r"(\d+) bytes spill stores")
    )


def read(text: str) -> tuple[str, dict]:
    """The compiler of a budget, and (key, arch) -> (registers, spilled bytes)."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    compiler, *archs = [x.strip() for x in lines[0].split("|")]
    found = {}
    for line in lines[1:]:
        key, *cells = [x.strip() for x in line.split("|")]
        for arch, cell in zip(archs, cells, strict=True):
            registers, _, spilled = cell.partition("+")
            found[key, int(arch.removeprefix("sm_"))] = int(registers), int(spilled or 0)
    return compiler, found


def written(measured: dict) -> str:
    """The text of a budget; `measured`: key -> figures for each architecture."""
    cells = {key: [f"{r}+{s}" if s else str(r) for r, s in row] for key, row in measured.items()}
    rows = [[version(), *[f"sm_{arch}" for arch in ARCHS]]] + [[key, *row] for key, row in cells.items()]
    return HEAD + "".join(" | ".join([f"{row[0]:<32}", *[f"{c:>8}" for c in row[1:]]]) + "\n" for row in rows)


def excess(arch: int, compiler: str, budget: dict, every: int = 1) -> list[str]:
    """What is wrong with the kernels for one architecture; one in `every` is compiled.
    Another compiler may need 8 registers and a quarter more."""
    slack, factor = (0, 1.0) if compiler == version() else (8, 1.25)
    wrong, seen = [], set()
    for k, (key, source) in enumerate(kernels()):
        seen.add(key)
        if (key, arch) not in budget:
            wrong.append(f"{key}, sm_{arch}: has no budget")
            continue
        if k % every:
            continue
        registers, spilled = figures(source, arch)
        most, bytes_ = budget[key, arch]
        if registers > min(most + slack, 255) or spilled > bytes_ * factor:
            wrong.append(
                f"{key}, sm_{arch}: {registers} registers, {spilled} bytes spilled; the budget is {most}, "
                f"{bytes_}"
            )
    wrong += [
        f"{key}: is in the budget, but there is no such kernel"
        for key, a in budget
        if a == arch and key not in seen
    ]
    return wrong


if __name__ == "__main__":
    FILE.write_text(written({key: [figures(source, arch) for arch in ARCHS] for key, source in kernels()}))
