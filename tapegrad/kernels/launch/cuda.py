"""CUDA C to loaded code, and the launch on CuPy arrays.

The source is compiled by NVRTC directly, because `cupy.RawModule` would add -ftz=true and -fmad=true. The
workspace of stored carries is bounded by the resident threads, for any batch. All launches use CuPy's current
stream, whose memory pool reuses the workspace in the order of the stream. For few samples and many data
several threads share the data of a sum. Their sums are added in a fixed order, so the bits do not depend on
the division.

Errors of a kernel surface at a later call. TAPEGRAD_DEBUG=1 waits after each launch and names the kernel that
failed."""

import functools
import os
import re

import numpy as np

from ... import cache
from ..._core.errors import DeviceError, KernelError
from ..._core.scope import lock
from ..emit.cuda import KernelSignature, emit_cuda
from ..emit.cuda_builder import WARP
from ..emit.cuda_split import GATHER_ROWS, GATHER_THREADS, emit_split, gather_text, splittable
from ..emit.lower import CHUNK, SUMS, LoweredProgram
from .host import host_code

try:
    import cupy
    from cupy.cuda import driver, runtime
    from cupy.cuda.function import Module
    from cupy.cuda.memory import OutOfMemoryError
    from cupy_backends.cuda.libs import nvrtc
except ImportError:  # CuPy is optional; without it no CuPy array reaches this module
    cupy = None

MOST_THREADS, DYNAMIC_SHARED = 0, 8  # enum CUfunction_attribute
OPTIONS = ("-std=c++17", "-fmad=false", "-default-device")
LOCK = lock()
PART_BYTES = 2**28  # bytes for the sums of each thread, where a step output is summed over samples
MODULES: dict = {}
DEBUG = os.environ.get("TAPEGRAD_DEBUG") == "1"
# bytes of workspace up to which free memory is not queried; most bytes for sums of parts
SMALL_WORKSPACE_BYTES = 1 << 26
INTERVALS = (1, 8, 64)  # of stored steps; the first with room for all resident threads is used
SPLIT_PARTS = 4  # number of parts below which a sum is not divided


def cubin(
    source: str, arch: int | str, options: tuple = OPTIONS, name: str = "kernel.cu"
) -> tuple[bytes, str]:
    """Machine code for compute capability `arch` (90 for sm_90) and the compiler's log; no device is needed.

    Raises KernelError with the log if the source does not compile."""
    return nvrtc_output(source, (*options, f"-arch=sm_{arch}"), name)


def nvrtc_output(source: str, options: tuple, name: str = "kernel.cu") -> tuple[bytes, str]:
    """Return the output of NVRTC, machine code or (for -arch=compute_..) PTX, and its log."""
    if cupy is None:
        raise KernelError("compiling CUDA C needs CuPy: pip install 'tapegrad[cuda13x]'")
    program = nvrtc.createProgram(source, name, [], [])
    try:
        nvrtc.compileProgram(program, list(options))
        virtual = any(option.startswith("-arch=compute") for option in options)
        code = nvrtc.getPTX(program) if virtual else nvrtc.getCUBIN(program)
        return code, nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        arch = options[-1].removeprefix("-arch=")
        raise KernelError(
            f"NVRTC could not compile {name} for {arch}:\n{nvrtc.getProgramLog(program)}"
        ) from error
    finally:
        nvrtc.destroyProgram(program)


class LoadedCode:
    """Code on the current device; called with a grid, a block and the arguments."""

    def __init__(self, code: bytes, entry: str):
        self.entry, self.module = entry, Module()
        self.module.load(code)
        self.function = self.module.get_function(entry)
        self.ptr = self.function.ptr
        self.registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, self.ptr)

    def __call__(self, grid: tuple, block: tuple, args: tuple, shared_mem: int = 0) -> None:
        self.function(grid, block, args, shared_mem=shared_mem)

    def most_threads(self) -> int:
        """Return the most threads that a block may have."""
        return driver.funcGetAttribute(MOST_THREADS, self.ptr)

    def blocks_at_once(self, threads: int, shared: int) -> int:
        """Return how many blocks one multiprocessor runs at once."""
        return driver.occupancyMaxActiveBlocksPerMultiprocessor(self.ptr, threads, shared)

    def allow_shared(self, size: int) -> None:
        """Request `size` bytes of dynamic shared memory."""
        driver.funcSetAttribute(self.ptr, DYNAMIC_SHARED, size)


class HostedCode:
    """The same for CuPy over host memory (`tg.testing.host_cupy`): g++ compiles the source, the CPU runs
    it."""

    registers = 40  # of a thread, as on a device of 64 Ki registers for each multiprocessor

    def __init__(self, source: str, entry: str, name: str):
        real = re.search(r"^typedef (\w+) real;$", source, re.MULTILINE)
        self.entry, self.code = entry, host_code(entry, source, entry, real[1] if real else "double", name)

    def __call__(self, grid: tuple, block: tuple, args: tuple, shared_mem: int = 0) -> None:
        values = [np.uintp(a.data.ptr) if isinstance(a, cupy.ndarray) else a for a in args]
        self.code((*grid, 1, 1)[:3], (*block, 1, 1)[:3], values, shared_mem)

    def most_threads(self) -> int:
        return 256

    def blocks_at_once(self, threads: int, shared: int) -> int:
        return (1 << 16) // (self.registers * threads)

    def allow_shared(self, size: int) -> None:
        pass


def over_host_memory() -> bool:
    """Return whether CuPy's arrays are in host memory."""
    return getattr(runtime, "_hosted", False)


def with_options(more: tuple) -> tuple:
    """Return OPTIONS and more; on conflict, `more` wins."""
    said = {option.partition("=")[0] for option in more}
    return (*[option for option in OPTIONS if option.partition("=")[0] not in said], *more)


def loaded(source: str, entry: str, options: tuple = (), name: str = "kernel.cu") -> LoadedCode | HostedCode:
    """Return the code on the current device, compiled once for each architecture and stored on disk."""
    if over_host_memory():
        return HostedCode(source, entry, name)
    device = cupy.cuda.Device()
    options = with_options(options)
    key = cache.key(source, device.compute_capability, str(nvrtc.getVersion()), *options)
    with LOCK:
        found = MODULES.get((key, entry, device.id))
        if found is None:
            code = cache.load_code(key)
            if code is None:
                code, _ = cubin(source, device.compute_capability, options, name)
                cache.save(key, code)
            found = MODULES[key, entry, device.id] = LoadedCode(code, entry)
    return found


@functools.cache
def device_limits(device: int) -> tuple[int, int, int]:
    """Return the multiprocessors of a device, and the threads and registers of each."""
    return tuple(runtime.deviceGetAttribute(what, device) for what in (16, 39, 82))


def block_size(work: int, processors: int, most: int) -> int:
    """Return the threads of a block: as many as leave a block for each multiprocessor."""
    threads = most
    while threads > WARP and work <= processors * (threads // 2):
        threads //= 2
    return threads


def blocks_for(work: int, threads: int) -> int:
    """Return the number of blocks that gives each unit of work a thread, within the limit of a grid."""
    return min(-(-work // threads), 2**31 - 1)


def resident_blocks(threads: int, registers: int, device: int) -> int:
    """Return the number of blocks that a device holds at once; registers are allocated to a warp by 256."""
    processors, most_threads, most_registers = device_limits(device)
    each = -(-max(registers, 16) * WARP // 256) * 256 * (threads // WARP)
    if each > most_registers:
        raise KernelError(
            f"{threads} threads of {registers} registers need more than the {most_registers} of a processor"
        )
    return processors * min(most_threads // threads, most_registers // each, 32)


def free_bytes() -> int:
    """Return the free memory of the current device, including that held by CuPy."""
    return runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()


class CudaLauncher:
    """One program for one dtype on CUDA devices; it is called like `cpu.Launcher`."""

    def __init__(self, low: LoweredProgram, dtype: np.dtype, per_sample: bool):
        self.low, self.dtype, self.per_sample, self.name = low, dtype, per_sample, low.name
        self.forms = {1: emit_cuda(low, dtype, per_sample)}  # by the interval of stored steps
        self.signature = self.forms[1][2]
        self.outputs, self.types = list(self.signature.outputs), low.types(dtype)
        self.sums = dtype if low.precise is None else SUMS  # their dtype
        p = low.program
        self.streams, self.step_rows = p.streams, p.step_rows
        self.summed = p.by_data and p.step_rows > 0 and not per_sample
        self.taped = low.taped()
        self.room = dict.fromkeys(low.counted, 64)
        self.divided: tuple | None = None  # source and signatures of the kernels of a divided sum

    def __call__(
        self, inputs: list, data, steps: int, outs: list, batch: int, each=None, steps_out=None
    ) -> None:
        """Fill outs[k] (rows, batch) from inputs[k] (rows, batch), and steps_out from each, if there are
        steps."""
        arrays = [*inputs, data if data is not None else inputs[0], *outs]
        stepped = {"step input": each} if self.streams else {}
        stepped |= {"step output": steps_out} if self.step_rows else {}
        met = [*arrays, *stepped.values()]
        if any(not isinstance(x, cupy.ndarray) for x in met) or len({x.device.id for x in met}) > 1:
            raise DeviceError(
                f"{self.name} met arrays of two devices or libraries: move all to one with cupy.asarray(x)"
            )
        with arrays[0].device:
            parts = self.parts(batch, steps)
            if parts >= SPLIT_PARTS:
                return self.launch_divided(arrays, steps, batch, parts)
            room = self.room  # another thread may replace the dict
            needed = self.launch(arrays, stepped, steps, batch, room)
            while needed is not None:
                wanted = dict(zip(self.low.counted, cupy.asnumpy(needed).tolist(), strict=True))
                if all(wanted[n] <= room[n] for n in wanted):
                    return
                room = self.room = {n: max(wanted[n], room[n]) for n in wanted}
                needed = self.launch(arrays, stepped, steps, batch, room)

    def form(self, every: int) -> tuple:
        """Return source, entry and parameters of the code that stores one step in `every`."""
        with LOCK:
            if every not in self.forms:
                self.forms[every] = emit_cuda(self.low, self.dtype, self.per_sample, every=every)
        return self.forms[every]

    def layout(self, rooms: dict, every: int) -> tuple[dict, int]:
        """Return the start of each stored loop on the tape, and the rows of the tape."""
        starts, size = {}, self.signature.totals + self.low.arena
        for n, carry, _ in self.taped:
            starts[n] = size
            size += (rooms[n] if every == 1 else -(-rooms[n] // every) + every) * carry
        return starts, size

    def workspace(self, rooms: dict, batch: int) -> tuple:
        """Return (code, signature, starts of the loops, stored numbers of a sample, blocks, threads, memory
        or None)."""
        available = None  # bytes; None: half of the free memory of the device, where that matters
        while True:
            size = -1
            for every in INTERVALS if not self.low.arena else (1,):
                layout = self.layout(rooms, every)
                if -1 < size <= layout[1]:  # no gain with so few steps
                    break
                (starts, size), (source, entry, signature) = layout, self.form(every)
                code = loaded(source, entry)
                blocks, threads, tight = self.shape(batch, code.registers, size, available)
                if not tight:
                    break
            if not blocks:
                need = size * threads * self.dtype.itemsize
                raise KernelError(
                    f"{self.name}: the stored steps of {threads} samples need {need} bytes, more than half "
                    f"of what the device has free"
                )
            try:
                tape = (
                    cupy.empty(max(size, 1) * blocks * threads, self.dtype)
                    if "tape" in signature.roles()
                    else None
                )
                return code, signature, starts, size, blocks, threads, tape
            except OutOfMemoryError:  # another process may have taken memory that was reported free
                available = size * blocks * threads * self.dtype.itemsize // 2

    def launch(self, arrays: list, stepped: dict, steps: int, batch: int, room: dict):
        """Launch; return the counted steps of each loop, on the device, or None if nothing is counted."""
        rooms = {
            n: steps if loop.data else loop.cap if loop.cap is not None else room[n]
            for n, _, loop in self.taped
        }
        code, signature, starts, size, blocks, threads, tape = self.workspace(rooms, batch)
        given = {f"start{n}": np.int64(x) for n, x in starts.items()} | {
            f"room{n}": np.int64(x) for n, x in rooms.items()
        }
        given |= {"batch": np.int64(batch), "steps": np.int64(steps), "size": np.int64(size), **stepped}
        if self.summed:  # each thread sums its samples in order; then the threads are summed
            one = self.step_rows * steps * threads * self.sums.itemsize
            blocks = min(blocks, 4096, max(PART_BYTES // max(one, 1), 1))
            given["step output"] = cupy.zeros((self.step_rows, steps, blocks * threads), self.sums)
        if tape is not None:
            given["tape"] = tape
        if room:
            given["needed"] = cupy.zeros(len(room), np.int64)
        launch_async(code, self.name, blocks, threads, self.arguments(signature, arrays, given))
        if self.summed:
            stepped["step output"][...] = given["step output"].sum(axis=-1)
        return given.get("needed")

    def parts(self, batch: int, steps: int) -> int:
        """Return the best number of parts of the data, so that half of the threads of a device have work."""
        if not splittable(self.low):
            return 1
        processors, threads, _ = device_limits(cupy.cuda.Device().id)
        return max(1, min(-(-steps // CHUNK), processors * threads // 2 // batch))

    def launch_divided(self, arrays: list, steps: int, batch: int, parts: int) -> None:
        """Compute the chunks of the sum by `parts` threads for each sample, then what follows the sum.

        As many chunks as there is memory for run at a time."""
        with LOCK:
            if self.divided is None:
                self.divided = emit_split(self.low, self.dtype, self.per_sample)
        source, signatures = self.divided
        rows, chunks = len(self.low.loops[0].sums) * batch, -(-steps // CHUNK)
        slab = min(chunks, max(parts, SMALL_WORKSPACE_BYTES // (rows * self.sums.itemsize)))
        given = {"sums": cupy.empty(slab * rows, self.sums), "totals": cupy.zeros(rows, self.sums)}
        given |= {"batch": np.int64(batch), "steps": np.int64(steps)}
        partial, finish = (loaded(source, entry) for entry in ("partial", "finish"))
        gather = loaded(gather_text(self.sums), "gather")
        for first in range(0, chunks, slab):
            count = min(slab, chunks - first)
            each = -(-count // parts)
            given |= {"first": np.int64(first), "chunks": np.int64(count), "each": np.int64(each)}
            self.start(
                partial, batch * -(-count // each), self.arguments(signatures["partial"], arrays, given)
            )
            sums = given["sums"], given["totals"], np.int64(rows), np.int64(count)
            launch_async(gather, self.name, blocks_for(rows, GATHER_ROWS), GATHER_THREADS, sums)
        self.start(finish, batch, self.arguments(signatures["finish"], arrays, given))

    def arguments(self, signature: KernelSignature, arrays: list, given: dict) -> tuple:
        """Return the arguments of code in the order of its parameters; `arrays`: inputs, data, outputs."""
        n = len(self.low.program.inputs)
        rest = {"input": iter(arrays[:n]), "data": iter(arrays[n : n + 1]), "output": iter(arrays[n + 1 :])}
        return tuple([next(rest[role]) if role in rest else given[role] for role in signature.roles()])

    def start(self, code, work: int, args: tuple) -> None:
        """Launch code without a workspace, with one thread for each unit of work."""
        threads = block_size(work, device_limits(cupy.cuda.Device().id)[0], self.signature.threads)
        launch_async(code, self.name, blocks_for(work, threads), threads, args)

    def shape(
        self, batch: int, registers: int, size: int, available: int | None = None
    ) -> tuple[int, int, bool]:
        """Return blocks and threads of a launch, and whether memory limits them.

        `size` counts the stored numbers of a sample. Without stored numbers each sample has a thread.
        Otherwise the launch has as many threads as are resident, or as `available` bytes have room for (0
        blocks: none). By default half of the free memory is available."""
        device = cupy.cuda.Device().id
        threads = block_size(batch, device_limits(device)[0], self.signature.threads)
        if not size:
            return blocks_for(batch, threads), threads, False
        need = size * threads * self.dtype.itemsize
        most = min(blocks_for(batch, threads), resident_blocks(threads, registers, device))
        if available is None and need * most <= SMALL_WORKSPACE_BYTES:
            return most, threads, False
        room = free_bytes() // 2 if available is None else available
        if need * most <= room:
            return most, threads, False
        while need > room and threads > WARP:
            threads, need = threads // 2, need // 2
        return (
            min(blocks_for(batch, threads), resident_blocks(threads, registers, device), room // need),
            threads,
            True,
        )


def launch_async(code, name: str, blocks: int, threads: int, args: tuple) -> None:
    """Launch on the current stream."""
    try:
        code((blocks,), (threads,), args)
        if DEBUG:
            cupy.cuda.get_current_stream().synchronize()
    except (driver.CUDADriverError, runtime.CUDARuntimeError) as error:
        when = "" if DEBUG else " (perhaps of an earlier kernel: TAPEGRAD_DEBUG=1 tells)"
        raise DeviceError(f"{name}, {blocks} blocks of {threads} threads: {error}{when}") from error
