"""LLVM text to machine code, and the launch on the caller's arrays, in blocks of samples.

The last block ends with the last sample, and may therefore repeat samples of the block before. If there are
fewer samples than a block has, they are padded."""

import ctypes
import functools
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from llvmlite.binding import context as contexts

from ... import cache
from ..emit.llvm import emit
from ..emit.lower import SUMS, LoweredProgram
from . import waiting

LOGGER = logging.getLogger("tapegrad")
ANNOUNCED_SECONDS = 0.3  # a compilation that takes longer is logged
LOCK = threading.RLock()
STATE: dict = {}
LLVM = getattr(llvm.ffi.lib, "_lock", LOCK)  # the lock of llvmlite, which Numba takes too
ALIVE: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # name -> engine, while in use
PINNED: set = set()  # engines of which only addresses are in use
SCALAR_BATCH = 3  # batches below this run sample by sample,
LONG_PROGRAM = 2000  # and up to two blocks if it has more instructions: vectors take long to compile
# lines of text above which code generation is 8 times as fast, and the code 3 times as slow
LARGE_TEXT_LINES = 12_000
# the seconds of optimising a kernel above which that is left for later, when it has run for as long
DEFERRED_SECONDS = 0.2
# what it takes: for a line of text, and for a choice of a number, which is a branch before AVX-512
SECONDS_PER_LINE, SECONDS_PER_BRANCH = 5e-5, 6e-4
OPTIMIZED = "\n; optimized"  # a comment that gives the code another name
WIDE, NARROW = 48, 160  # operations of a step, or rows, below which 4 and 2 registers hold a block,
STORED_STEP_BATCH = 90  # and below which 2 do if steps are stored: more samples, more memory
# the same of loops within loops, whose steps are long chains: two registers of 64 bytes fill the pipeline. Of
# 32 bytes there are never more than two
NESTED_STEP = 600
SUM_REGISTERS = 24  # of 32, for float64 sums in a float32 program
RECALLED_BYTES = 2**22  # of the tape, for the carries of an inner loop: what a cache holds
# parts of a sum over samples, for any number of threads, if they fit into this memory
PARTS, PART_BYTES = 16, 2**26


# Until a fork is done no other thread compiles: a child would wait for it for ever.  (These methods are
# compiled, so an interrupt cannot come between two of them and leave a lock held.  The last one registered is
# called first.)
if hasattr(os, "register_at_fork"):
    _lock: Any
    for _lock in (getattr(LLVM, "_lock", LLVM), cache.LOCK, LOCK):
        os.register_at_fork(
            before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock._at_fork_reinit
        )


@dataclass(frozen=True)
class Processor:
    """The processor of this machine, as LLVM names it."""

    triple: str
    name: str
    features: str
    wide: bool  # a register holds 64 bytes

    @property
    def description(self) -> str:
        return f"{self.triple} {self.name} {self.features} llvm {llvm.llvm_version_info}"

    def target(self, optimisation: int = 2):
        """Return a code generator."""
        generic = llvm.Target.from_triple(self.triple)
        return generic.create_target_machine(cpu=self.name, features=self.features, opt=optimisation)


def detected_processor() -> Processor:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    return Processor(
        llvm.get_default_triple(),
        llvm.get_host_cpu_name(),
        features.flatten(),
        bool(features.get("avx512f")),
    )


def processor() -> Processor:
    if "processor" not in STATE:
        STATE["processor"] = outside_main_thread(detected_processor)
    return STATE["processor"]


def outside_main_thread(call: Callable):
    """Return the result of a call that uses LLVM.

    An interrupt ends the wait of the main thread at once. It could otherwise come between two bytecodes of
    llvmlite's lock and leave that locked."""
    return waiting.patiently([call])[0]


LLVM_15 = hasattr(llvmlite, "opaque_pointers_enabled")  # llvmlite 0.44: LLVM 15


def parsed(text: str):
    """Return the module of this text, in a context of its own: in LLVM 15 the common one has typed
    pointers."""
    if "context" not in STATE:
        STATE["context"] = (
            contexts.ContextRef(contexts.ffi.lib.LLVMPY_ContextCreate(True))
            if LLVM_15
            else llvm.create_context()
        )
    return llvm.parse_assembly(text, STATE["context"])


def passes_of(module, target) -> Callable:
    """Return a function that runs one pass, stack slots to registers, over a function of the module."""
    if LLVM_15:  # its new pass manager has no such pass
        legacy = llvm.create_function_pass_manager(module)
        legacy.add_sroa_pass()
        return legacy.run
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    return lambda function: passes.run(function, builder)


def object_code(text: str, large: int) -> bytes:
    """Compile with one pass, because the graph is simplified already.

    On a Kalman filter the usual passes would cost 70 ms and gain nothing."""
    target = processor().target(0 if text.count("\n") > large else 2)
    module = parsed(text)
    module.verify()
    run = passes_of(module, target)
    for function in module.functions:
        if not function.is_declaration:
            run(function)
    return target.emit_object(module)


def optimisation_seconds(text: str) -> float:
    """Estimate what the compilation of this text takes, optimised."""
    branches = 0 if processor().wide else text.count("= select i1 ")
    return SECONDS_PER_LINE * text.count("\n") + SECONDS_PER_BRANCH * branches


def code_name(text: str) -> str:
    """Return the name on disk of the machine code of this text on this processor."""
    return cache.key(processor().description, text)


def loaded_engine(name: str, code: bytes):
    """Return the engine that holds this machine code."""
    empty = parsed("")
    engine = llvm.create_mcjit_compiler(empty, processor().target())
    engine.remove_module(empty)  # compiling it would take longer than the rest
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    ALIVE[name] = engine
    cache.keep_code(name, engine)
    return engine


def living_engine(name: str):
    """Return the engine of this name from this process, or None."""
    engine = ALIVE.get(name)
    if engine is not None:
        cache.keep_code(name, engine)
    return engine


def loaded_from_disk(name: str):
    with LOCK:
        engine = living_engine(name)
        if engine is None and (code := cache.load_code(name)) is not None:
            engine = loaded_engine(name, code)
        return engine


def compiled_engine(name: str, text: str, compiled: Callable[[str], bytes]):
    with LOCK:
        engine = loaded_from_disk(name)
        if engine is None:
            start = time.perf_counter()
            code = compiled(text)
            cache.save(name, code)
            if (seconds := time.perf_counter() - start) > ANNOUNCED_SECONDS:
                LOGGER.info(
                    "compiled %d lines of LLVM in %.1f s; later calls and processes use the code",
                    text.count("\n"),
                    seconds,
                )
            engine = loaded_engine(name, code)
        return engine


def stored_engine(name: str):
    """Return the engine of this name from this process or from disk, or None."""
    engine = living_engine(name)
    if engine is None:
        engine = outside_main_thread(functools.partial(loaded_from_disk, name))
    return engine


def engine_of(text: str, large: int = LARGE_TEXT_LINES, compiled: Callable[[str], bytes] | None = None):
    """Return the engine of this text; its addresses are valid while the engine is held.

    Texts of more than `large` lines are compiled for a short compilation time. `compiled` replaces
    `object_code`."""
    name = code_name(text)
    engine = living_engine(name)
    if engine is None:
        compiled = compiled or (lambda text: object_code(text, large))
        engine = outside_main_thread(functools.partial(compiled_engine, name, text, compiled))
    return engine


def add_symbols(places: dict[str, int]) -> None:
    """Tell LLVM the addresses of functions that texts call by name."""

    def add():
        for name, place in places.items():
            llvm.add_symbol(name, place)

    outside_main_thread(add)


def address_in(engine, function: str) -> int:
    return outside_main_thread(functools.partial(engine.get_function_address, function))


def function_address(text: str, function: str = "kernel", large: int = LARGE_TEXT_LINES) -> int:
    """Return the address of a function of this text; it remains valid."""
    engine = engine_of(text, large)
    PINNED.add(engine)
    return address_in(engine, function)


def _pointer_in_header() -> bool:
    """Return whether the address of an array's data follows the object header, as in all NumPy versions so
    far."""
    trial = np.empty(3)
    place = object.__basicsize__
    return ctypes.c_void_p.from_address(id(trial) + place).value == trial.ctypes.data


HEADER = object.__basicsize__ if sys.implementation.name == "cpython" and _pointer_in_header() else 0


at = ctypes.c_void_p.from_address


def data_pointer(x: np.ndarray) -> int:
    """Return the address of x's data; `x.ctypes.data` costs five times as much."""
    return (at(id(x) + HEADER).value or 0) if HEADER else x.ctypes.data


@dataclass(frozen=True)
class LaunchPlan:
    """The facts about a program that a launch needs beside its code: plain numbers, stored with the code.

    `types` are the dtypes of the outputs. `summed` says whether the step output is summed over samples.
    `width` is the number of samples of a block. `taped` lists (number, elements of a step, is it over the
    data?, most steps or None) of the loops whose carries are stored. `recalled` lists (number, elements of a
    step) of the inner loops whose carries are stored for all data. `bodies` counts
    the loops. `wide` says whether sums are float64 in a float32 program."""

    inputs: list[int]
    outputs: list[int]
    types: list[str]
    streams: int
    step_rows: int
    summed: bool
    width: int
    long: bool
    work: int
    most: float
    taped: list[tuple]
    recalled: list[tuple]
    bodies: int
    arena: int
    wide: bool


def planned(low: LoweredProgram, dtype: np.dtype, per_sample: bool) -> LaunchPlan:
    p = low.program
    outputs = [p.rows_of(k) for k in range(len(p.groups))]
    n = max(low.operations, sum(p.inputs) + sum(outputs))  # each row is loaded or stored
    summed = p.by_data and p.step_rows > 0 and not per_sample
    taped = low.taped()
    nested = NESTED_STEP if processor().wide else 0
    two = nested if low.nested else STORED_STEP_BATCH if taped else NARROW
    held = 1 if per_sample or summed or n >= two else 4 if n < WIDE and not taped else 2
    if low.precise is not None:  # a register of terms takes two for each sum
        sums = max([len(loop.sums) for loop in low.loops], default=0)
        held = max(k for k in (1, 2, 4) if k == 1 or (k <= held and 2 * k * sums <= SUM_REGISTERS))
    return LaunchPlan(
        inputs=list(p.inputs),
        outputs=outputs,
        types=[t.char for t in low.types(dtype)],
        streams=p.streams,
        step_rows=p.step_rows,
        summed=summed,
        width=64 // dtype.itemsize * held,
        long=low.instructions > LONG_PROGRAM,
        work=low.work,
        most=low.most,
        taped=[(n, size + (n in low.recalled), loop.data, loop.cap) for n, size, loop in taped],
        recalled=[(m, low.offsets(low.bodies[r].loop)[-1] + 1) for r, m in low.recalled.items()],
        bodies=len(low.bodies),
        arena=low.arena,
        wide=low.precise is not None,
    )


class Launcher:
    """One program for one dtype on this processor; scalar and vector forms are compiled on first use.

    `phase` is that of `emit`."""

    phase = ""

    def __init__(self, low, dtype: np.dtype, per_sample: bool, plan: LaunchPlan | None = None):
        self.low, self.dtype, self.per_sample = low, dtype, per_sample
        self.plan = plan = planned(low, dtype, per_sample) if plan is None else plan
        self.inputs, self.outputs = plan.inputs, plan.outputs
        self.types = [np.dtype(t) for t in plan.types]
        self.streams, self.step_rows = plan.streams, plan.step_rows
        self.summed, self.width = plan.summed, plan.width
        self.work, self.most, self.long = plan.work, plan.most, plan.long
        self.forms = {}
        self.quick = {}  # width of a quickly compiled form -> its text, seconds until it is optimised
        self.numbers = {}  # width of a form -> the bytes of its numeric arguments
        self.local = threading.local()
        self.counted = [n for n, _, data, cap in plan.taped if not data and cap is None]

    def text(self, width: int) -> str:
        """Return the text for blocks of `width` samples, and store its numeric arguments."""
        given, bits = bytearray(), 8 * self.dtype.itemsize
        text = emit(
            self.low,
            width,
            bits,
            self.per_sample,
            processor().triple,
            given=given if self.low.general else None,
            phase=self.phase,
        )
        self.numbers[width] = bytes(given)  # last, because another thread may launch meanwhile
        return text

    def engine(self, width: int):
        """Return the machine code for blocks of `width` samples."""
        text = self.text(width)
        seconds = optimisation_seconds(text)
        if seconds <= DEFERRED_SECONDS:
            return engine_of(text)
        found = stored_engine(code_name(text + OPTIMIZED))
        if found is None:
            self.quick[width] = text, seconds
            found = engine_of(text, 0)
        return found

    def note_run(self, width: int, seconds: float) -> None:
        """Optimise quickly compiled code once it has run for as long as that takes; the bits stay."""
        found = self.quick.pop(width, None)  # one thread has it
        if found is None:
            return
        text, left = found
        if left < seconds:
            self.forms[width] = self.callable(engine_of(text + OPTIMIZED, len(text)))
        else:
            self.quick[width] = text, left - seconds

    def form(self, width: int):
        found = self.forms.get(width)
        if found is None:
            found = self.forms[width] = self.callable(self.engine(width))
        return found

    def callable(self, engine):
        pointers = len(self.inputs) + len(self.outputs) + 2 + bool(self.streams) + bool(self.step_rows)
        kind = ctypes.CFUNCTYPE(
            None, *[ctypes.c_void_p] * pointers, *[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 2
        )
        found: Any = kind(address_in(engine, "kernel"))
        found.engine = engine  # it holds the code
        return found

    def __call__(
        self,
        inputs: list,
        data: np.ndarray | None,
        steps: int,
        outs: list,
        batch: int,
        each=None,
        steps_out=None,
    ) -> None:
        """Fill outs[k] (rows, batch) from inputs[k] (rows, batch), all C-contiguous and of this dtype.

        `each` and `steps_out` are step input and output, (rows, steps, batch), or (rows, steps) if summed
        over samples."""
        width = self.width_for(batch)
        full = batch // width
        if self.summed:
            steps_out[...] = self.sum_over_samples(width, inputs, data, steps, outs, batch, each)
            return
        if self.streams or self.step_rows:
            inputs = [*inputs, *([each] if self.streams else [])]
            outs = [*outs, *([steps_out] if self.step_rows else [])]
        rest = batch - full * width
        if not full:
            self.padded(width, inputs, data, steps, outs, 0, rest)
            return

        def run(first, last):
            if first < full:
                self.run(width, inputs, data, steps, outs, batch, min(last, full) - first, first * width)
            if last > full:
                self.run(width, inputs, data, steps, outs, batch, 1, batch - width)

        blocks = full + bool(rest)
        if self.is_simple(batch, steps):
            run(0, blocks)
        else:
            self.form(width)
            work, most = self.operations(batch, steps)
            waiting.run_blocks(blocks, work, run, most)

    def sum_over_samples(
        self, width: int, inputs: list, data, steps: int, outs: list, batch: int, each
    ) -> np.ndarray:
        """Return the step output summed over samples, (rows, steps).

        Each lane sums in parts of the batch. The results are added over parts, then over lanes. The parts do
        not depend on the number of threads, and neither do the bits."""
        full, rest = divmod(batch, width)
        inputs = [*inputs, *([each] if self.streams else [])]
        dtype = SUMS if self.plan.wide else self.dtype
        one = self.step_rows * steps * width * dtype.itemsize
        count = int(min(max(full, 1), PARTS, max(PART_BYTES // max(one, 1), 1)))
        cuts = np.linspace(0, full, count + 1).astype(int)
        total = np.zeros((count, self.step_rows, steps, width), dtype)
        self.form(width)

        def part(k):
            self.run(
                width,
                inputs,
                data,
                steps,
                [*outs, total[k]],
                batch,
                int(cuts[k + 1] - cuts[k]),
                int(cuts[k]) * width,
            )

        def parts(first, last):
            for k in range(first, last):
                part(k)

        if full:
            work, most = self.operations(batch, steps)
            waiting.run_blocks(count, work, parts, most)
        if rest:
            last = np.zeros(total.shape[1:], dtype)
            self.padded(width, inputs, data, steps, [*outs, last], full * width, rest)
            total[0, ..., :rest] += last[..., :rest]
        return total.sum(axis=0).sum(axis=-1)

    def width_for(self, batch: int) -> int:
        """Return the number of samples of a block."""
        few = 2 * self.width if self.long else SCALAR_BATCH - 1
        return self.width if batch > few else 1

    def operations(self, batch: int, steps: int) -> tuple[float, float]:
        """Estimate how many operations a launch takes, and how many it can take."""
        times = batch * max(steps, 1)
        return times * self.work, times * self.most if times else 0.0

    def overlaps(self, batch: int) -> bool:
        """Return whether some samples are computed twice, so that no output may be an input."""
        return batch % self.width_for(batch) > 0

    def is_simple(self, batch: int, steps: int) -> bool:
        """Return whether a launch stays in its thread."""
        work, most = self.operations(batch, steps)
        return (work <= waiting.THREADED_OPERATIONS or waiting.THREADS == 1) and not waiting.is_long(most)

    def padded(
        self, width: int, inputs: list, data: np.ndarray | None, steps: int, outs: list, first: int, rest: int
    ) -> None:
        """Run the last samples on copies, padded with the last of them."""

        def pad(x):
            wide = np.empty(x.shape[:-1] + (width,), self.dtype)
            wide[..., :rest] = x[..., first:]
            wide[..., rest:] = x[..., -1:]
            return wide

        made = [np.empty((n, width), dtype) for n, dtype in zip(self.outputs, self.types, strict=True)]
        if self.step_rows:  # sums over samples are accumulated in place
            made.append(outs[-1] if self.summed else np.empty((self.step_rows, steps, width), self.dtype))
        self.run(
            width,
            [pad(x) for x in inputs],
            pad(data) if self.per_sample and data is not None else data,
            steps,
            made,
            width,
            1,
        )
        for out, small in zip(outs, made, strict=True):
            if out is not small:
                out[..., first:] = small[..., :rest]

    def run(
        self,
        width: int,
        inputs: list,
        data: np.ndarray | None,
        steps: int,
        outs: list,
        stride: int,
        blocks: int,
        first: int = 0,
    ) -> None:
        """Run `blocks` blocks of samples, beginning with sample `first`."""
        form = self.forms.get(width) or self.form(width)
        place = len(self.inputs)
        addresses = [data_pointer(x) for x in inputs]
        addresses.insert(place, data_pointer(inputs[0] if data is None else data))
        addresses += [data_pointer(x) for x in outs]
        if first:
            sizes = [x.dtype.itemsize for x in (*inputs[:place], inputs[0], *inputs[place:], *outs)]
            still = () if self.per_sample else (place, len(addresses) - 1) if self.summed else (place,)
            addresses = [
                a if k in still else a + first * size
                for k, (a, size) in enumerate(zip(addresses, sizes, strict=True))
            ]
        local = self.local.__dict__
        while True:
            caps, needed, tape = self.workspace(local, width, steps, first)
            begin = time.thread_time() if self.quick else 0.0
            form(*addresses, tape, stride, steps, blocks, caps, needed[0])
            if begin and width in self.quick:
                self.note_run(width, time.thread_time() - begin)
            if not self.counted or all(needed[1][n] <= local["room"].get(n, 0) for n in self.counted):
                return
            local["room"] = {n: int(needed[1][n]) for n in self.counted}
            local.pop("key", None)

    def workspace(self, local: dict, width: int, steps: int, first: int) -> tuple:
        """Return the addresses of caps, needed and tape of this thread, for this number of steps."""
        if local.get("key") == (width, steps):
            return local["found"]
        room = local.setdefault("room", dict.fromkeys(self.counted, 64))
        given = np.frombuffer(self.numbers.get(width, b""), np.int64)
        caps = np.concatenate([np.zeros(2 * self.plan.bodies + 2, np.int64), given])
        size = self.plan.arena
        for n, carry, data, most in self.plan.taped:
            cap = steps if data else most if most is not None else room[n]
            caps[2 * n], caps[2 * n + 1] = size, cap
            size += cap * carry
        for n, carry in self.plan.recalled:
            room = RECALLED_BYTES // (carry * width * self.dtype.itemsize) + 1
            caps[2 * n], caps[2 * n + 1] = size, room
            size += room * carry
        needed = np.zeros(self.plan.bodies + 1, np.int64)
        raw = np.empty(size * width * self.dtype.itemsize + 64, np.uint8)
        place = data_pointer(raw)
        local["hold"] = caps, needed, raw
        local["found"] = data_pointer(caps), (data_pointer(needed), needed), place + -place % 64
        local["key"] = width, steps
        return local["found"]

    @property
    def memory(self) -> tuple | None:
        """Return caps, needed and tape of this thread's last launch."""
        return self.local.__dict__.get("hold")

    @property
    def tape_bytes(self) -> int:
        return self.memory[2].nbytes if self.memory else 0
