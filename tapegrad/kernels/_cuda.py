"""CUDA C to a loaded kernel, and the launch on CuPy arrays.

The source is compiled by NVRTC here and not by `cupy.RawModule`, which would add -ftz=true and -fmad=true.  The workspace for the
stored carries is bounded by the threads that are resident, whatever the batch; all launches go to CuPy's current stream."""

import threading

import numpy as np

from ..errors import DeviceError, KernelError
from . import _cache
from ._emit_cuda import emit_cuda
from ._lower import Lowered

try:
    import cupy
    from cupy.cuda.function import Module
    from cupy_backends.cuda.libs import nvrtc
except ImportError:  # CuPy is an extra; without it no CuPy array comes here
    cupy = None

OPTIONS = ("-std=c++17", "-fmad=false", "-default-device")
LOCK = threading.RLock()
MODULES: dict = {}


def cubin(source: str, arch: int | str, options: tuple = OPTIONS, name: str = "kernel.cu") -> tuple[bytes, str]:
    """Machine code for compute capability `arch` (90 for sm_90) and the compiler's log; no device is needed.

    Raises KernelError with the log if the source does not compile."""
    if cupy is None:
        raise KernelError("compiling CUDA C needs CuPy: pip install 'tapegrad[cuda13x]'")
    options = (*options, f"-arch=sm_{arch}")
    program = nvrtc.createProgram(source, name, [], [])
    try:
        nvrtc.compileProgram(program, list(options))
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        raise KernelError(f"NVRTC could not compile {name} for sm_{arch}:\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)


def loaded(source: str, entry: str):
    """The kernel on the current device; compiled once for each architecture, and kept on disk."""
    device = cupy.cuda.Device()
    key = _cache.key(source, entry, device.compute_capability, str(nvrtc.getVersion()), *OPTIONS)
    with LOCK:
        found = MODULES.get((key, device.id))
        if found is None:
            code = _cache.load(key)
            if code is None:
                code, _ = cubin(source, device.compute_capability)
                _cache.save(key, code)
            module = Module()
            module.load(code)
            found = MODULES[key, device.id] = module.get_function(entry), module
    return found[0]


class CudaLauncher:
    """One program for one dtype on CUDA devices; called as `_cpu.Launcher`."""

    def __init__(self, low: Lowered, dtype: np.dtype, per_sample: bool):
        self.low, self.dtype, self.per_sample = low, dtype, per_sample
        self.source, self.entry, self.signature = emit_cuda(low, dtype, per_sample)
        self.outputs = list(self.signature.outputs)
        self.taped = low.taped()
        self.counted = [n for n, _, loop in self.taped if not loop.data and loop.cap is None]
        self.room = dict.fromkeys(self.counted, 64)

    def __call__(self, inputs: list, data, steps: int, outs: list, batch: int) -> None:
        arrays = [*inputs, data if data is not None else inputs[0], *outs]
        if any(not isinstance(x, cupy.ndarray) for x in arrays) or len({x.device.id for x in arrays}) > 1:
            raise DeviceError("a kernel met arrays of two devices or libraries: move all to one with cupy.asarray(x)")
        with arrays[0].device:
            kernel = loaded(self.source, self.entry)
            while True:
                needed = self.launch(kernel, arrays, steps, batch)
                if not self.counted:
                    return
                wanted = cupy.asnumpy(needed)
                if all(wanted[n] <= self.room[n] for n in self.counted):
                    return
                self.room = {n: int(wanted[n]) for n in self.counted}

    def launch(self, kernel, arrays: list, steps: int, batch: int):
        threads = self.signature.threads
        caps = np.zeros(2 * len(self.low.bodies) + 2, np.int64)
        size = self.low.arena
        for n, carry, loop in self.taped:
            cap = steps if loop.data else loop.cap if loop.cap is not None else self.room[n]
            caps[2 * n], caps[2 * n + 1] = size, cap
            size += cap * carry
        blocks = self.blocks(batch, threads, size)
        tape = cupy.empty(max(size * blocks * threads, 1), self.dtype)
        needed = cupy.zeros(len(self.low.bodies) + 1, np.int64)
        kernel((blocks,), (threads,), (*arrays, tape, np.int64(batch), np.int64(steps), cupy.asarray(caps), needed))
        return needed

    def blocks(self, batch: int, threads: int, size: int) -> int:
        """Blocks of a launch: all samples at once, or what is resident and half of the free memory has room for."""
        wanted = -(-batch // threads)
        if not size:
            return min(wanted, 2**20)
        processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
        free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
        room = free // 2 // (size * threads * self.dtype.itemsize)
        if room < 1:
            need = size * threads * self.dtype.itemsize
            raise KernelError(f"the stored steps of {threads} samples need {need} bytes, more than the device has free")
        return int(min(wanted, processors * 4, room))
