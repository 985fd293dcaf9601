"""Kernels in CUDA C that run on the CPU, called as CuPy calls them on a device.

`HostKernel` compiles the source with g++ and cuda_on_host.h and takes (grid, block, arguments) with arrays of
CuPy (over host
memory) or NumPy.  It refuses arguments that do not match the parameters as the compiler sees them, which a device would take
silently.  The fixture `cupy` gives a library whose arrays the generated kernels run on: CuPy over host memory with such kernels in
place of loaded ones, and with -m gpu a real device."""

import ctypes
import hashlib
import importlib
import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tapegrad.kernels import emit_cuda
from tapegrad.kernels.launch.cuda import HostedCode
from tapegrad.kernels.launch.host import host_code
from tapegrad.testing import hosted as hosted_cupy

HEADER = Path(__file__).with_name("cuda_on_host.h")
FOLDER = Path(tempfile.gettempdir()) / f"tapegrad_host_{os.getuid() if hasattr(os, 'getuid') else 0}"
FLAGS = ("-O0", "-std=c++17", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-march=native")
SIZE, FLOAT, POINTER, CONST = 0xFF, 1 << 8, 1 << 9, 1 << 10
FORWARDS, BACKWARDS, SHUFFLED = 0, 1, 7

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="NOT RUN: CUDA C on the CPU, for there is no g++"
)


def library(text: str, compiler: str, suffix: str, flags: tuple) -> ctypes.CDLL:
    """A shared library of this text; compiled once for each text, compiler options and header."""
    name = hashlib.sha256("\0".join([text, compiler, *flags, HEADER.read_text()]).encode()).hexdigest()[:24]
    made = FOLDER / f"{name}.so"
    if not made.exists():
        FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as place:
            source, output = Path(place) / f"kernel{suffix}", Path(place) / "kernel.so"
            source.write_text(text)
            command = [compiler, *flags, "-I", str(HEADER.parent), str(source), "-o", str(output), "-lm"]
            subprocess.run(command, check=True)
            os.replace(output, made)
    return ctypes.CDLL(str(made))


class HostKernel:
    """`signature`: for each parameter its size (that of what it points to) and the bits FLOAT, POINTER,
    CONST."""

    registers = 64  # as if a compiler had needed so many

    def __init__(self, source: str, entry: str, flags: tuple = ()):
        text = f'#include "{HEADER.name}"\n{source}\nHOST_KERNEL({entry})\n'
        made = library(text, "g++", ".cpp", FLAGS + flags)
        self.entry, self.order, self.last = (
            entry,
            FORWARDS,
            2**63,
        )  # how many threads run, of all the last ones
        self.start = getattr(made, f"{entry}__launch")
        self.start.restype = ctypes.c_char_p
        found = (ctypes.c_int * 64)()
        self.signature = list(found[: getattr(made, f"{entry}__signature")(found)])
        self.launches: list = []  # (grid, block) of each

    def __call__(self, grid: tuple, block: tuple, args: tuple) -> None:
        if len(args) != len(self.signature):
            raise TypeError(
                f"{self.entry} has {len(self.signature)} parameters and got {len(args)} arguments"
            )
        held = [packed(n, x, kind) for n, (x, kind) in enumerate(zip(args, self.signature, strict=True))]
        shape = (ctypes.c_uint * 6)(*[*grid, 1, 1][:3], *[*block, 1, 1][:3])
        pointers = (ctypes.c_void_p * len(held))(*[ctypes.addressof(x) for x in held])
        self.launches.append((grid, block))
        error = self.start(shape, self.order, ctypes.c_uint64(self.last), pointers)
        if error:
            raise RuntimeError(f"{self.entry}: {error.decode()}")


class BlockKernel(HostedCode):
    """The same for code whose threads wait for each other, as the package itself runs it over host memory."""

    def __init__(self, source: str, entry: str, flags: tuple = ()):
        super().__init__(source, entry, entry)
        if flags:
            self.code = host_code(entry, source, entry, "double", entry, flags)
        self.launches: list = []

    def __call__(self, grid: tuple, block: tuple, args: tuple) -> None:
        self.launches.append((grid, block))
        super().__call__(
            grid, block, [np.uintp(x.ctypes.data) if isinstance(x, np.ndarray) else x for x in args]
        )


def packed(n: int, x, kind: int):
    """The bytes of one argument."""
    if isinstance(x, (int, float)):
        raise TypeError(f"argument {n} is a Python number, which has no size; give np.int64(x)")
    given = x.dtype.itemsize | (FLOAT if x.dtype.kind == "f" else 0)
    array = hasattr(x, "strides") and not isinstance(x, np.generic)
    given |= POINTER if array else 0
    if given != kind & ~CONST:
        raise TypeError(
            f"argument {n}: {'an array' if array else 'a number'} of {x.dtype} for a parameter of kind "
            f"{kind:#x}"
        )
    if not array:
        return (ctypes.c_char * x.dtype.itemsize).from_buffer_copy(x.tobytes())
    if x.size and not x.flags.c_contiguous:
        raise TypeError(f"argument {n} is not contiguous")
    return ctypes.c_void_p(x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr)


class Loader:
    """Stands for `_cuda.loaded`: kernels on the CPU, by source and entry."""

    def __init__(self, flags: tuple = ()):
        self.flags, self.kernels, self.order = flags, {}, FORWARDS

    def __call__(self, source: str, entry: str) -> HostKernel:
        key = source, entry
        if key not in self.kernels:
            waits = entry == "gather"
            self.kernels[key] = BlockKernel(*key) if waits else HostKernel(*key, self.flags)
        self.kernels[key].order = self.order
        return self.kernels[key]

    @property
    def launches(self) -> list:
        return list(itertools.chain.from_iterable(k.launches for k in self.kernels.values()))


def arguments(
    low,
    signature,
    dtype,
    inputs: list,
    data,
    steps: int,
    batch: int,
    slots: int,
    every: int = 1,
    stepped: dict | None = None,
):
    """The arguments of a launch of a generated kernel on NumPy arrays, and those that are its outputs;
    `every`: the interval of its stored steps; `stepped`: the arrays that go with the steps, by their
    roles."""
    dtype = np.dtype(dtype)
    rooms = {
        n: steps if b.loop.data else b.loop.cap or 1000 for n, b in enumerate(low.bodies) if b.loop.stored
    }
    rows = {n: room if every == 1 else -(-room // every) + every for n, room in rooms.items()}
    sizes = {n: k * low.offsets(low.loops[n])[-1] for n, k in rows.items()}
    first = signature.totals + low.arena
    size = first + sum(sizes.values())
    starts = dict(zip(sizes, np.cumsum([first, *sizes.values()]).tolist(), strict=False))
    outs = [
        np.full((rows, batch), 7.0, kind)
        for rows, kind in zip(signature.outputs, low.types(dtype), strict=True)
    ]
    left = {"input": list(inputs), "output": list(outs), "data": [inputs[0] if data is None else data]}
    given = {f"start{n}": np.int64(x) for n, x in starts.items()} | {
        f"room{n}": np.int64(x) for n, x in rooms.items()
    }
    given |= {"batch": np.int64(batch), "steps": np.int64(steps), "size": np.int64(size), **(stepped or {})}
    given |= {
        "tape": np.full(max(size * slots, 1), np.nan, dtype),
        "needed": np.zeros(len(low.counted), np.int64),
    }
    found = [left[role].pop(0) if role in left else given[role] for role in signature.roles()]
    return found, outs


def run_on_host(
    low, dtype, inputs: list, data, steps: int, batch: int, per_sample: bool = False, every: int = 1
) -> list:
    """The outputs of a program's CUDA C on NumPy arrays, by two blocks of 32 threads."""
    source, entry, signature = emit_cuda(low, dtype, per_sample, every=every)
    given, outs = arguments(low, signature, dtype, inputs, data, steps, batch, 64, every)
    HostKernel(source, entry)((2,), (32,), given)
    return outs


@pytest.fixture(name="cupy", params=["hosted", pytest.param("device", marks=pytest.mark.gpu)])
def array_library(request, monkeypatch):
    """The library of the arrays: CuPy over host memory, `cupy.loader` being what loads the kernels there; or
    a device."""
    if request.param == "device":
        if not hosted_cupy.real_device():
            pytest.skip("no CUDA device answers")
        return SimpleNamespace(hosted=False, **vars(pytest.importorskip("cupy")))
    if hosted_cupy.real_device():
        pytest.skip("a CUDA device answers")
    if shutil.which("g++") is None:
        pytest.skip("NOT RUN: CUDA C on the CPU, for there is no g++")
    library = hosted_cupy.install()
    loader = Loader()
    monkeypatch.setattr(importlib.import_module("tapegrad.kernels.launch.cuda"), "loaded", loader)
    return SimpleNamespace(hosted=True, loader=loader, stats=hosted_cupy.stats, **vars(library))
