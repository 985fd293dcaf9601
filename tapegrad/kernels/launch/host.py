"""CUDA C on the CPU: g++ compiles the source after a header that defines CUDA's keywords.

The library is stored on disk under a hash of source, header, compiler and processor. It is loaded from a file
of its own, so processes never see a partial one. Tests and checks run it in several orders of its threads."""

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ... import cache
from ..._core.errors import KernelError
from ..._core.scope import lock
from .cpu import processor
from .waiting import patiently, run_in_turn

HEADER = Path(__file__).with_name("cuda_on_host.h")
FLAGS: tuple[str, ...] = ("-O2", "-std=c++17", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-march=native")
if sys.platform == "linux":  # a kernel may be named like a function of the C library, such as step
    FLAGS += ("-Wl,-Bsymbolic",)
DYNAMIC = re.compile(r"extern\s+__shared__\s+((?:__align__\(\d+\)\s+)?[\w \t]+?)\s+(\w+)\s*\[\s*\]\s*;")
BARRIER = re.compile(r"\b(__sync\w+|__\w+_sync)\s*\(")
BLOCK = re.compile(
    r"\b(blockDim\s*\.\s*[yz]|threadIdx\s*\.\s*[yz]|__shared__|__launch_bounds__\s*\([^)]*,)|\b(__sync\w+|__\w+_sync)\s*\("
)
LOCK = lock()
QUICK_SECONDS = 0.01  # seconds; a run of as many numbers that took less stays in its thread
LIBRARIES: dict = {}
COMPILER: dict = {}


def uses_block(source: str) -> bool:
    """Return whether the threads of a block cooperate."""
    return BLOCK.search(source) is not None


def compiler() -> str:
    """Return the path and version of g++ as text; raise KernelError without one."""
    path = shutil.which(os.environ.get("CXX", "g++"))
    if path is None:
        raise KernelError(
            "running CUDA C on NumPy arrays needs g++ (install it, or name another compiler in CXX), or a "
            "function for the CPU: pass cpu="
        )
    if path not in COMPILER:
        COMPILER[path] = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.partition(
            "\n"
        )[0]
    return path


def host_source(source: str, entry: str, real: str, name: str) -> str:
    """Return the text that g++ compiles; line numbers are those of the user's source."""

    def pointer(m):
        kind, line = m.group(1), source.count("\n", 0, m.end()) + 1
        if source.count("{", 0, m.start()) > source.count("}", 0, m.start()):
            return f"{kind}* {m.group(2)} = ({kind}*)tapegrad_host::dynamic_shared;"
        return f'\n#define {m.group(2)} (({kind}*)tapegrad_host::dynamic_shared)\n#line {line} "{name}"\n'

    source = DYNAMIC.sub(pointer, source)
    return f'{HEADER.read_text()}\ntypedef {real} real;\n#line 1 "{name}"\n{source}\n#line 1 "export"\nTAPEGRAD_EXPORT({entry})\n'


def compile_error(kernel: str, source: str, log: str, name: str) -> KernelError:
    """Return the compiler's messages about the user's source, each with its line."""
    lines, said = source.split("\n"), []
    for m in re.finditer(rf"{re.escape(name)}[:(](\d+)(?::(\d+))?\)?:\s*((?:fatal )?error:?.*)", log):
        line = lines[int(m.group(1)) - 1] if int(m.group(1)) <= len(lines) else ""
        said.append(f"  {name}, line {m.group(1)}: {m.group(3)}\n    {line.strip()}")
    return KernelError(f"{kernel}: the source does not compile\n" + ("\n".join(said[:5]) or log[:2000]))


class HostCode:
    """The code of one kernel, compiled for the CPU."""

    def __init__(self, kernel: str, source: str, entry: str, real: str, name: str, flags: tuple = ()):
        self.kernel, self.quick = kernel, 0.0  # `quick`: as many numbers were met in less than QUICK seconds
        self.barriers = BARRIER.search(source) is not None
        self.atomics = re.search(r"\batomic\w+\s*\(", source) is not None
        self.library = self._load(source, entry, real, name, (*FLAGS, *flags))
        self.launcher = self.library.tapegrad_launch
        self.launcher.restype = ctypes.c_char_p
        u64 = ctypes.c_uint64
        self.launcher.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_size_t,
            u64,
            u64,
            ctypes.c_void_p,
        ]
        found = (ctypes.c_int * 640)()
        n = self.library.tapegrad_signature(found)
        # pointer, constant, bytes, floating, signed
        self.signature = [tuple(found[5 * k : 5 * k + 5]) for k in range(n)]

    def _load(self, source: str, entry: str, real: str, name: str, flags: tuple) -> ctypes.CDLL:
        text, path = host_source(source, entry, real, name), compiler()
        key = cache.key("host", text, path, COMPILER[path], processor().description, *flags)
        code = cache.load_code(key)
        if code is None:
            code = self._build(path, text, source, name, flags)
            cache.save(key, code)
        with tempfile.TemporaryDirectory() as place:
            library = Path(place) / f"{key[:16]}.so"
            library.write_bytes(code)
            return ctypes.CDLL(str(library))

    def _build(self, path: str, text: str, source: str, name: str, flags: tuple) -> bytes:
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "kernel.cpp").write_text(text)
            made = Path(place) / "kernel.so"
            run = subprocess.run(
                [path, *flags, "kernel.cpp", "-o", str(made)], cwd=place, capture_output=True, text=True
            )
            if run.returncode:
                raise compile_error(self.kernel, source, run.stderr, name)
            return made.read_bytes()

    def __call__(
        self,
        grid: tuple,
        block: tuple,
        values: list,
        shared: int = 0,
        order: int = 0,
        workers: int = 1,
        met: float = np.inf,
    ) -> None:
        """Run all threads.

        `values` holds NumPy arrays, and scalars of the right NumPy type. `order` is 0 for forwards, 1 for
        backwards, more for shuffled orders. `workers` is the number of CPU threads that share the blocks.
        `met` estimates how many numbers the launch touches."""
        holds = [np.array(v.ctypes.data if isinstance(v, np.ndarray) else v) for v in values]
        pointers = (ctypes.c_void_p * max(len(holds), 1))(*[h.ctypes.data for h in holds])
        shape = (ctypes.c_uint * 6)(*grid, *block)
        blocks = int(np.prod([int(g) for g in grid], dtype=object))
        parts = 1 if order or self.atomics else min(workers, blocks)
        cuts = [blocks * k // parts for k in range(parts + 1)]

        def run(k, kept=(holds, values)):  # until it ends, even if nobody waits for it
            return self.launcher(
                shape, self.barriers, order, shared, cuts[k], cuts[k + 1] - cuts[k], pointers
            )

        quick, start = met <= self.quick, time.perf_counter()
        errors = (run_in_turn if quick else patiently)([functools.partial(run, k) for k in range(parts)])
        if time.perf_counter() - start < QUICK_SECONDS and met < np.inf:
            self.quick = max(self.quick, met)
        for e in errors:
            if e:
                raise KernelError(f"{self.kernel}: {e.decode()}")


def host_code(kernel: str, source: str, entry: str, real: str, name: str, flags: tuple = ()) -> HostCode:
    """Return the code, compiled once in a process."""
    key = source, entry, real, name, flags
    found = LIBRARIES.get(key)
    if found is None:
        with LOCK:
            found = LIBRARIES.get(key)
            if found is None:
                found = LIBRARIES[key] = HostCode(kernel, source, entry, real, name, flags)
    return found


MAIN = r"""
#include <stdio.h>
int main(int, char** argv) {
  FILE* f = fopen(argv[1], "rb");
  long long head[11], part[2];
  if (!f || fread(head, sizeof head, 1, f) != 1) return 3;
  void** values = (void**)malloc(sizeof(void*) * head[0]);
  for (long long k = 0; k < head[0]; ++k) {  // arrays of exactly their size
    if (fread(part, sizeof part, 1, f) != 1) return 3;
    void* p = malloc(part[1]);
    if (part[1] && fread(p, part[1], 1, f) != 1) return 3;
    values[k] = part[0] ? memcpy(malloc(sizeof p), &p, sizeof p) : p;
  }
  unsigned shape[6];
  for (int k = 0; k < 6; ++k) shape[k] = (unsigned)head[1 + k];
  const char* e = tapegrad_launch(shape, (int)head[7], 0, (size_t)head[8], 0, (uint64_t)head[9], values);
  if (e) fprintf(stderr, "%s", e);
  return e ? 2 : 0;
}
"""
SANITIZE = (
    "-O1",
    "-g",
    "-std=c++17",
    "-w",
    "-ffp-contract=off",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)


def sanitized(
    kernel: str,
    source: str,
    entry: str,
    real: str,
    name: str,
    grid: tuple,
    block: tuple,
    values: list,
    shared: int,
) -> str:
    """Run once in a separate process under the sanitizers; return their findings as text."""
    blocks = int(np.prod([int(g) for g in grid], dtype=object))
    head = [len(values), *grid, *block, int(BARRIER.search(source) is not None), shared, blocks, 0]
    with tempfile.TemporaryDirectory() as place:
        where = Path(place)
        (where / "kernel.cpp").write_text(host_source(source, entry, real, name) + MAIN)
        build = subprocess.run(
            [compiler(), *SANITIZE, "kernel.cpp", "-o", "kernel"], cwd=place, capture_output=True, text=True
        )
        if build.returncode:
            raise KernelError(
                f"{kernel}: g++ did not build it with sanitizers; check without "
                f"sanitize=True\n{build.stderr[:2000]}"
            )
        with open(where / "values", "wb") as file:
            file.write(np.array(head, np.int64).tobytes())
            for v in values:
                data = v.tobytes()
                file.write(np.array([isinstance(v, np.ndarray), len(data)], np.int64).tobytes() + data)
        options = {
            **os.environ,
            "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        run = subprocess.run(
            [str(where / "kernel"), "values"], cwd=place, capture_output=True, text=True, env=options
        )
    if not run.returncode:
        return ""
    fault = re.search(r"AddressSanitizer: (\S+)|runtime error: (.*)", run.stderr)
    line = re.search(rf"{re.escape(name)}:(\d+)", run.stderr)
    access = re.search(r"(READ|WRITE) of size \d+", run.stderr)
    text = (
        (fault.group(1) or fault.group(2)) if fault else run.stderr[:500] or f"exit status {run.returncode}"
    )
    if access:
        text += f", a {access.group(0).lower()}"
    return text + (
        f", {name}, line {line.group(1)}: {source.splitlines()[int(line.group(1)) - 1].strip()}"
        if line
        else ""
    )
