"""Raw kernels on CuPy arrays: block size, residency, the launch on CuPy's current stream."""

import math
from typing import TYPE_CHECKING

import cupy
import numpy as np

from ..errors import KernelError
from ._cuda import loaded
from ._declare import SLOTS

if TYPE_CHECKING:
    from ._raw import RawKernel

BLOCK = 128


def launch(kernel: "RawKernel", values: list, known: dict, real: np.dtype) -> list:
    """The new outputs of one call; the device of the arrays is current."""
    function = loaded(kernel.text(real), kernel.entry, kernel.options, kernel.file)
    most = getattr(function, "max_threads_per_block", 1024)
    block = kernel.threads_of(kernel.block or max(min(BLOCK, most // 32 * 32), 32))
    threads = math.prod(block)
    if threads > most:
        raise KernelError(
            f"{kernel.__name__}: a block of {threads} threads was asked for, its {getattr(function, 'num_regs', 'many')} registers allow "
            f"{most}; pass a smaller block="
        )
    grid = kernel.blocks(known, block, resident(kernel, known, real, function, threads))
    parameters, outs = kernel.parameters(values, known, real, math.prod(grid) * threads, cupy)
    if any([o.size for o in outs]):
        function(grid, block, tuple(parameters), shared_mem=kernel.shared_bytes(known, block, real))
    return outs


def resident(kernel: "RawKernel", known: dict, real: np.dtype, function, threads: int) -> int | None:
    """Blocks of a launch over samples: with scratch for each thread, what is resident and half of the free memory has room for."""
    if kernel.samples is None:
        return None
    one = sum(scratch(a, known, real, threads) for a in kernel.args if a.role == "work" and SLOTS in a.names)
    if not one:
        return 2**31 - 1
    attributes = cupy.cuda.Device().attributes
    registers = max(getattr(function, "num_regs", 0), 32) * threads
    each = max(min(attributes.get("MaxThreadsPerMultiProcessor", 2048) // threads, 65536 // registers), 1)
    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    room = free // 2 // one
    if room < 1:
        raise KernelError(f"{kernel.__name__}: the work arrays of {threads} threads need {one} bytes, more than the device has free")
    return int(min(attributes["MultiProcessorCount"] * each, room))


def scratch(a, known: dict, real: np.dtype, slots: int) -> int:
    return math.prod(a.shape({**known, SLOTS: slots})) * a.dtype(real).itemsize
