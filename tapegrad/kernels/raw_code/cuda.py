"""Raw kernels on CuPy arrays: block size, residency, the launch on CuPy's current stream."""

import math

import cupy
from cupy.cuda.memory import OutOfMemoryError

from ..._core.errors import KernelError
from ..launch.cuda import free_bytes, loaded
from .declare import SLOTS
from .plan import CallPlan

BLOCK_THREADS = 128
SHARED = 48 << 10  # bytes of dynamic shared memory that need no request


def launch(kernel, values: list, plan: CallPlan) -> list:
    """Return the new outputs of one call; the device of the arrays is current."""
    function = loaded(kernel.code.text(plan.real), kernel.code.entry, kernel.code.options, kernel.code.file)
    most = function.most_threads()
    block = kernel.threads.of(kernel.threads.block or max(min(BLOCK_THREADS, most // 32 * 32), 32))
    threads = math.prod(block)
    if threads > most:
        raise KernelError(
            f"{kernel.__name__}: a block of {threads} threads was asked for, its {function.registers} "
            f"registers allow {most}; pass a smaller block="
        )
    shared = kernel.threads.shared_bytes(plan.known, block, plan.real)
    most_blocks = resident_of_kernel(kernel, plan, function, threads, shared)
    while True:
        grid = kernel.threads.blocks(plan.known, block, most_blocks)
        try:
            parameters, outs = plan.parameters(values, math.prod(grid) * threads)
            break
        except OutOfMemoryError:  # another process may have taken memory that was reported free
            if most_blocks is None or grid[0] == 1:
                raise
            most_blocks = grid[0] // 2
    if any([o.size for o in outs]):
        if shared > SHARED:
            function.allow_shared(shared)
        function(grid, block, tuple(parameters), shared_mem=shared)
    return outs


def resident_of_kernel(kernel, plan: CallPlan, function, threads: int, shared: int) -> int | None:
    """Return the blocks of a launch over samples, limited by resident threads and memory if threads have
    scratch."""
    if kernel.threads.samples is None:
        return None
    known = {**plan.known, SLOTS: threads}
    work = [a for a in kernel.args if a.role == "work" and SLOTS in a.names]
    one = sum([math.prod(a.shape(known)) * a.dtype(plan.real).itemsize for a in work])
    if not one:
        return 2**31 - 1
    room = free_bytes() // 2 // one
    if room < 1:
        raise KernelError(
            f"{kernel.__name__}: the work arrays of {threads} threads need {one} bytes, more than the "
            f"device has free"
        )
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    return int(min(processors * max(function.blocks_at_once(threads, shared), 1), room))
