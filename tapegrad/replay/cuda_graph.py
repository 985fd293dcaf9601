"""A replay on CuPy as one CUDA graph: its kernels are launched at once, by one call. A first launch must give
what its kernels gave one after the other; otherwise there is no graph.

The graph reads arguments from memory of its own, works in a pool of its own, and writes captured arrays where
they lie; results are copied out.  What is asked of the host meanwhile (conditions, random numbers, arrays of
NumPy) cannot be part of it.

All launches share the memory of arguments and results.  A launch therefore waits, on its stream, for the
event that the launch before it recorded behind its last copy; that launch may have used another stream."""

import threading

import numpy as np

from .._core.arrays import is_array, xp_of
from .program import Program


def unfit(program: Program, values: list) -> str | None:
    """Why the program cannot be a graph."""
    if program.guards:
        return "it looks at conditions or values"
    if program.groups:
        return "it exchanges data with other processes"
    if program.generators:
        return "it draws random numbers"
    if not all([is_array(v) and xp_of(v) is not np for v in values]):
        return "an argument is no array of CuPy"
    if any([program.shown[k][0] for k in program.shown]):
        return "it computes with arrays of NumPy"
    return None


def capture_graph(cp, stream, body):
    """The graph of what `body` launches."""
    stream.begin_capture()
    try:
        body()
    finally:
        graph = stream.end_capture()
    return graph


class CudaGraph:
    """A program, run by `run`, as a graph; raises what CuPy raises where it cannot be one."""

    def __init__(self, program: Program, run, values: list):
        cp, self.device = xp_of(values[0]), values[0].device
        self.cp, self.program, self.run, self.lock = cp, program, run, threading.Lock()
        self.inputs = [v.copy(order="K") for v in values]
        self.results = []
        before = [array.copy(order="K") for array in self.captured()]
        cp.cuda.get_current_stream().synchronize()  # the stream below waits for no other
        stream, self.pool = cp.cuda.Stream(non_blocking=True), cp.cuda.MemoryPool()
        self.copied = cp.cuda.Event(disable_timing=True)
        with stream, cp.cuda.using_allocator(self.pool.malloc):
            try:
                self.body()  # so that the pool has the memory
                wanted = self.host_values()
                self.put(before)
                self.results = []
                stream.synchronize()
                self.graph = capture_graph(cp, stream, self.body)
                self.graph.launch(stream)
                cp.cuda.Device().synchronize()
                found = self.host_values()
            finally:
                self.put(before)
                stream.synchronize()
        if not all(
            [np.allclose(a, b, 1e-6, 0.0, equal_nan=True) for a, b in zip(found, wanted, strict=True)]
        ):
            raise RuntimeError("its first launch gave other values than its operations one after the other")

    def captured(self) -> list:
        """The captured arrays that the program writes."""
        return [array for array, _ in self.program.written]

    def put(self, values: list) -> None:
        """Set the captured arrays that the program writes."""
        for array, v in zip(self.captured(), values, strict=True):
            array[...] = v

    def host_values(self) -> list:
        """The results and the captured arrays that the program writes, on the host."""
        return [v.get() for v in (*filter(is_array, self.results), *self.captured())]

    def body(self) -> None:
        results, written = self.run(*self.inputs)
        for array, v in written:
            array[...] = v
        self.results = results

    def __call__(self, values: list) -> tuple:
        """(results, nothing that is to be written)."""
        with self.lock, self.device:
            stream = self.cp.cuda.get_current_stream()
            stream.wait_event(self.copied)
            for mine, v in zip(self.inputs, values, strict=True):
                mine[...] = v
            self.graph.launch(stream)
            results = [v.copy() if is_array(v) else v for v in self.results]
            self.copied.record(stream)
            return results, []
