"""CUDA C to a loaded kernel, and the launch on CuPy arrays.

The source is compiled by NVRTC here and not by `cupy.RawModule`, which would add -ftz=true and -fmad=true.  The workspace for the
stored carries is bounded by the threads that are resident, whatever the batch; all launches go to CuPy's current stream, in whose
order its memory pool hands the workspace on.

Errors of a kernel surface at a later call.  TAPEGRAD_DEBUG=1 waits after each launch and names the kernel that failed."""

import functools
import os
import threading
from typing import Any

import numpy as np

from ..errors import DeviceError, KernelError
from . import _cache
from ._emit_cuda import emit_cuda
from ._lower import Lowered

try:
    import cupy
    from cupy.cuda import driver, runtime
    from cupy.cuda.function import Module
    from cupy_backends.cuda.libs import nvrtc
except ImportError:  # CuPy is an extra; without it no CuPy array comes here
    cupy = None

OPTIONS = ("-std=c++17", "-fmad=false", "-default-device")
LOCK = threading.RLock()
PART_BYTES = 2**28  # memory for the sums of each thread where a step output is summed over samples
MODULES: dict = {}
DEBUG = os.environ.get("TAPEGRAD_DEBUG") == "1"
WARP = 32
SMALL = 1 << 26  # bytes of workspace for which the free memory is not asked


def cubin(source: str, arch: int | str, options: tuple = OPTIONS, name: str = "kernel.cu") -> tuple[bytes, str]:
    """Machine code for compute capability `arch` (90 for sm_90) and the compiler's log; no device is needed.

    Raises KernelError with the log if the source does not compile."""
    return translated(source, (*options, f"-arch=sm_{arch}"), name)


def translated(source: str, options: tuple, name: str = "kernel.cu") -> tuple[bytes, str]:
    """What NVRTC makes of the source, machine code or (for -arch=compute_..) PTX, and its log."""
    if cupy is None:
        raise KernelError("compiling CUDA C needs CuPy: pip install 'tapegrad[cuda13x]'")
    program = nvrtc.createProgram(source, name, [], [])
    try:
        nvrtc.compileProgram(program, list(options))
        virtual = any(option.startswith("-arch=compute") for option in options)
        code = nvrtc.getPTX(program) if virtual else nvrtc.getCUBIN(program)
        return code, nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        raise KernelError(f"NVRTC could not compile {name}, {options[-1]}:\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)


class Loaded:
    """A kernel on the current device; called with a grid, a block and the arguments."""

    def __init__(self, code: bytes, entry: str):
        self.module = Module()
        self.module.load(code)
        self.function = self.module.get_function(entry)
        self.ptr = self.function.ptr
        self.registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, self.ptr)

    def __call__(self, grid: tuple, block: tuple, args: tuple, shared_mem: int = 0) -> None:
        self.function(grid, block, args, shared_mem=shared_mem)


def with_options(more: tuple) -> tuple:
    """OPTIONS and more, which go first where both say the same."""
    said = {option.partition("=")[0] for option in more}
    return (*[option for option in OPTIONS if option.partition("=")[0] not in said], *more)


def loaded(source: str, entry: str, options: tuple = (), name: str = "kernel.cu") -> Loaded:
    """The kernel on the current device; compiled once for each architecture, and kept on disk."""
    device = cupy.cuda.Device()
    options = with_options(options)
    key = _cache.key(source, device.compute_capability, str(nvrtc.getVersion()), *options)
    with LOCK:
        found = MODULES.get((key, entry, device.id))
        if found is None:
            code = _cache.load(key)
            if code is None:
                code, _ = cubin(source, device.compute_capability, options, name)
                _cache.save(key, code)
            found = MODULES[key, entry, device.id] = Loaded(code, entry)
    return found


@functools.cache
def limits(device: int) -> tuple[int, int, int]:
    """Processors of a device, and the threads and registers of each."""
    return tuple(runtime.deviceGetAttribute(what, device) for what in (16, 39, 82))


def block_size(work: int, processors: int, most: int) -> int:
    """Threads of a block: as many as leave a block for each processor."""
    threads = most
    while threads > WARP and work <= processors * (threads // 2):
        threads //= 2
    return threads


def resident(threads: int, registers: int, device: int) -> int:
    """Blocks of so many threads that a device holds at once.  A warp's registers are given out by the 256."""
    processors, most_threads, most_registers = limits(device)
    each = -(-max(registers, 16) * WARP // 256) * 256 * (threads // WARP)
    if each > most_registers:
        raise KernelError(f"{threads} threads of {registers} registers need more than the {most_registers} of a processor")
    return processors * min(most_threads // threads, most_registers // each, 32)


def free_bytes() -> int:
    """Free memory of the current device, that which CuPy holds included."""
    return runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()


class CudaLauncher:
    """One program for one dtype on CUDA devices; called as `_cpu.Launcher`."""

    def __init__(self, low: Lowered, dtype: np.dtype, per_sample: bool):
        self.low, self.dtype, self.per_sample, self.name = low, dtype, per_sample, low.name
        self.source, self.entry, self.signature = emit_cuda(low, dtype, per_sample)
        self.outputs = list(self.signature.outputs)
        p = low.program
        self.streams, self.step_rows = p.streams, p.step_rows
        self.summed = p.by_data and p.step_rows > 0 and not per_sample
        self.taped = [(n, len(b.loop.carry), b.loop) for n, b in enumerate(low.bodies) if b.loop.stored]
        self.room = dict.fromkeys(low.counted, 64)

    def __call__(self, inputs: list, data: Any, steps: int, outs: list, batch: int, each: Any = None, steps_out: Any = None) -> None:
        """Fill outs[k] (rows, batch) from inputs[k] (rows, batch), and steps_out from each, which go with the steps."""
        arrays = [*inputs, data if data is not None else inputs[0], *([each] if self.streams else []), *outs]
        arrays += [steps_out] if self.step_rows else []
        if any(not isinstance(x, cupy.ndarray) for x in arrays) or len({x.device.id for x in arrays}) > 1:
            raise DeviceError(f"{self.name} met arrays of two devices or libraries: move all to one with cupy.asarray(x)")
        with arrays[0].device:
            kernel = loaded(self.source, self.entry)
            room = self.room  # another thread may put another dict there
            needed = self.launch(kernel, arrays, steps, batch, room)
            while needed is not None:
                wanted = dict(zip(self.low.counted, cupy.asnumpy(needed).tolist(), strict=True))
                if all(wanted[n] <= room[n] for n in wanted):
                    return
                room = self.room = {n: max(wanted[n], room[n]) for n in wanted}
                needed = self.launch(kernel, arrays, steps, batch, room)

    def launch(self, kernel: Any, arrays: list, steps: int, batch: int, room: dict) -> Any:
        """Returns the counted steps of each loop, on the device, or None where there is nothing to count."""
        starts, rooms, size = {}, {}, self.signature.totals
        for n, carry, loop in self.taped:
            starts[n], rooms[n] = size, steps if loop.data else loop.cap if loop.cap is not None else room[n]
            size += rooms[n] * carry
        blocks, threads = self.shape(batch, kernel.registers, size)
        if self.summed:  # each thread sums its samples, in order; then the threads are summed
            one = self.step_rows * steps * threads * self.dtype.itemsize
            blocks = min(blocks, 4096, max(PART_BYTES // max(one, 1), 1))
            *arrays, total = arrays
            sums = cupy.zeros((self.step_rows, steps, blocks * threads), self.dtype)
            arrays.append(sums)
        tail: list = [np.int64(batch), np.int64(steps)]
        if self.taped or self.signature.totals:
            tail += [cupy.empty(max(size * blocks * threads, 1), self.dtype), np.int64(size)]
            tail += [np.int64(x) for n, _, _ in self.taped for x in (starts[n], rooms[n])]
        needed = cupy.zeros(len(room), np.int64) if room else None
        if needed is not None:
            tail.append(needed)
        start(kernel, self.name, blocks, threads, (*arrays, *tail))
        if self.summed:
            total[...] = sums.sum(axis=-1)
        return needed

    def shape(self, batch: int, registers: int, size: int) -> tuple[int, int]:
        """Blocks and threads of a launch, `size` being the stored numbers of a sample: one thread for each sample; or as many as
        are resident and half of the free memory has room for."""
        device = cupy.cuda.Device().id
        threads = block_size(batch, limits(device)[0], self.signature.threads)
        wanted = min(-(-batch // threads), 2**31 - 1)
        if not size:
            return wanted, threads
        blocks = min(wanted, resident(threads, registers, device))
        need = size * threads * self.dtype.itemsize
        if need * blocks > SMALL:
            room = free_bytes() // 2
            while need > room and threads > WARP:
                threads, need = threads // 2, need // 2
            if need > room:
                raise KernelError(
                    f"{self.name}: the stored steps of {threads} samples need {need} bytes, more than half of what the device has free"
                )
            blocks = min(blocks, room // need)
        return int(blocks), threads


def start(kernel: Any, name: str, blocks: int, threads: int, args: tuple) -> None:
    """A launch on the current stream."""
    try:
        kernel((blocks,), (threads,), args)
        if DEBUG:
            cupy.cuda.get_current_stream().synchronize()
    except (driver.CUDADriverError, runtime.CUDARuntimeError) as error:
        when = "" if DEBUG else " (perhaps of an earlier kernel: TAPEGRAD_DEBUG=1 tells)"
        raise DeviceError(f"{name}, {blocks} blocks of {threads} threads: {error}{when}") from error
