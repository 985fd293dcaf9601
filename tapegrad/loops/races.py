"""Races of a kernel: two threads at one element, without a barrier between them, of which one writes.

The threads of a block run in turn, each up to its next barrier. Those of different blocks never wait for each
other. Threads that only read an element do not race, nor do threads that all change it by atomics."""

import itertools

import numpy as np

from .._core.errors import KernelError
from .numba_device import AXES
from .program import Accumulate, Allocate, Compute, Load, LoopArray, LoopProgram
from .reference import Interpreter


class AccessLog:
    """The accesses of one period: for each element and kind, those of the first two that made one."""

    def __init__(self, p: LoopProgram, who: str):
        self.p, self.who = p, who
        self.known = {}

    def note(self, s, element: tuple, kind: str, actor: tuple) -> None:
        known = self.known.setdefault(element, {})
        for other, found in known.items():
            if kind == other != "write":
                continue
            for before, line in found.items():
                if before != actor:
                    self.fail(s, element[1], (other, before, line), (kind, actor, s.line))
        mine = known.setdefault(kind, {})
        if len(mine) < 2:
            mine.setdefault(actor, s.line)

    def fail(self, s, at: tuple, *both: tuple) -> None:
        name = s.array.name.split(".")[0] or ("a shared array" if s.array.shared else "an array")
        place = ", ".join(map(str, at))
        texts = [f"{self.who} {tuple(actor[::-1])} {DOES[kind]} in line {line}" for kind, actor, line in both]
        raise KernelError(
            f"{self.p.name} in {self.p.file}: a race at {name}[{place}]: {' and '.join(texts)}. "
            f"Put a barrier between them, use an atomic, or let one thread own the element"
        )


DOES = {"read": "reads it", "write": "writes it", "atomic": "changes it by an atomic"}


class ThreadRun(Interpreter):
    """One thread of a kernel. `shared` holds the arrays of its block."""

    def __init__(self, p: LoopProgram, values: list, indices: dict, shared: dict, logs: list):
        super().__init__(p, values)
        self.indices, self.shared, self.logs = indices, shared, logs
        self.own: set[LoopArray] = set()

    def place(self, s) -> tuple:
        at = super().place(s)
        if s.array not in self.own:
            atomic = s.atomic or isinstance(s, Accumulate)
            kind = "atomic" if atomic else "read" if isinstance(s, Load) else "write"
            for log, actor in self.logs[: 1 if s.array.shared else 2]:  # blocks share no shared array
                log.note(s, (id(self.env[s.array]), at), kind, actor)
        return at

    def statement(self, s) -> None:
        if isinstance(s, Compute) and s.op in self.indices:
            self.env[s.out] = self.indices[s.op]
        elif isinstance(s, Allocate) and s.array.shared and s.array in self.shared:
            self.env[s.array] = self.shared[s.array]
        else:
            super().statement(s)
            if isinstance(s, Allocate):
                if s.array.shared:
                    self.shared[s.array] = self.env[s.array]
                else:
                    self.own.add(s.array)


def search_races(p: LoopProgram, values: list) -> None:
    """Run the threads of a launch; `p` tells what one thread does. Raise KernelError at a race."""
    assert p.launch is not None
    values = [x.copy() if isinstance(x, np.ndarray) else x for x in values]
    sizes = [int(n) for n in values[p.launch : p.launch + 6]]
    of_launch = AccessLog(p, "block")
    for block in itertools.product(*map(range, sizes[:3])):
        shared = {}
        runs = {}
        for thread in itertools.product(*map(range, sizes[3:])):
            words = (("blockIdx", block), ("threadIdx", thread))
            indices = {f"{word}.{a}": i for word, at in words for a, i in zip(AXES, at, strict=True)}
            runs[thread] = ThreadRun(p, values, indices, shared, [])
        run_block(p, block, runs, of_launch)


def run_block(p: LoopProgram, block: tuple, runs: dict, of_launch: AccessLog) -> None:
    while runs:
        of_block, waiting = AccessLog(p, "thread"), {}
        for thread, run in runs.items():
            run.logs = [(of_block, thread), (of_launch, block)]
            with np.errstate(all="ignore"):
                barrier = next(run.steps, None)
            if barrier is not None:
                waiting[thread] = barrier
        if waiting and (len(waiting) < len(runs) or len({id(b) for b in waiting.values()}) > 1):
            line = next(iter(waiting.values())).line
            raise KernelError(
                f"{p.name} in {p.file}: not all threads of block {block[::-1]} reach the barrier in "
                f"line {line}"
            )
        runs = {thread: run for thread, run in runs.items() if thread in waiting}
