"""A forward pass that stores its steps, and the backward sweep that reads them, as two launches.

Each block of samples has a tape of its own, with room for the steps of all data. The memory is bounded. Where
it is too small, the derivative runs the forward pass again."""

from typing import Any

import numpy as np

from ..emit.lower import LoweredProgram
from .cpu import HEADER, Launcher, data_pointer
from .repeat import LastLaunch, by_objects, fits_launch, launch_table

BYTES = 2**25  # of the tapes of a launch


class StepRecorder(Launcher):
    """The launcher of the forward pass; `second` is that of the sweep. Copies hold the tapes of a call."""

    tapes: Any
    start: int  # the first address of the tapes, a multiple of 64
    room: int  # of a stack, in steps
    needed: list  # of each run, the places of its loops and its longest stacks
    extent: tuple = (0, 0)  # the numbers of steps and samples for which there is room
    last: LastLaunch | None = None

    def __init__(self, low: LoweredProgram, dtype: np.dtype, per_sample: bool, phase: str = "record"):
        self.phase, self.separable = phase, low.separable
        if self.separable and phase == "record":
            low.leave_to_tape()
        super().__init__(low, dtype, per_sample)
        if phase == "record":
            self.outputs, self.types, self.streams = [], [], 0
            self.second = StepRecorder(low, dtype, per_sample, "sweep")
        else:
            self.step_rows = 0
        self.counted = []
        self.free = []  # at most one copy that no call uses
        self.placed = {}  # the places of the loops of the last launch
        self.held = sum([carry for _, carry, data, _ in self.plan.taped if data])  # for each datum
        self.stacked = sum([carry for _, carry in self.plan.recalled])  # for each step
        self.lengths = {}  # of the stacks that a launch had no room for, by the number of samples

    def begun(self, steps: int, batch: int) -> "StepRecorder | None":
        """Return a copy with tapes for a launch, or None if there is not enough memory."""
        made = self.free_copy()
        if made is None or made.extent != (steps, batch):
            width = self.width_for(batch)
            samples = -(-batch // width) * width
            left = BYTES // max(samples * self.dtype.itemsize, 1) - self.plan.arena - steps * self.held
            room = left // self.stacked - 1
            if room <= self.lengths.get(batch, steps):
                return None
            made = made or self.copy()
            made.room = made.second.room = room
            made.extent = steps, batch
        made.needed = []
        return made

    def free_copy(self) -> "StepRecorder | None":
        """Return the copy that no call uses, if there is one."""
        try:
            return self.free.pop()
        except IndexError:
            return None

    def copy(self) -> "StepRecorder":
        """Return a copy with tapes of its own."""
        tapes = np.empty(BYTES + 64, np.uint8)
        start = data_pointer(tapes)
        own = {"tapes": tapes, "start": start + -start % 64}
        return self.like(second=self.second.like(**own), **own)

    def like(self, **own) -> "StepRecorder":
        """Return a copy with attributes of its own."""
        made = StepRecorder.__new__(StepRecorder)
        made.__dict__.update(self.__dict__, free=None, **own)
        return made

    def take_back(self, copy: "StepRecorder") -> None:
        """Let another call use a copy."""
        if not self.free:
            self.free.append(copy)

    def fits(self) -> bool:
        """Return whether the tapes hold all steps of the launch."""
        longest = 0
        for _, needed in self.needed:
            longest = max(longest, *needed.tolist())
        if longest >= self.room:
            self.lengths[self.extent[1]], self.extent = longest, (0, 0)
        return longest < self.room

    def sweeper(self) -> "StepRecorder":
        """Return the launcher of the sweep over these tapes."""
        self.second.needed = []
        return self.second

    def repeated(self, arrays: tuple):
        """Return the result of the last launch for other arrays; None if they differ in more than numbers."""
        last = self.last
        if last is None or not fits_launch(last, arrays[0], arrays[1]):
            return None
        cotangents, result, run = last.kept[:3]
        for x in arrays[2:]:
            if type(x) is not np.ndarray or x.dtype is not last.dtype or x.shape != cotangents:
                return None
        for x in arrays:
            if not x.flags.c_contiguous:
                return None
        run[1].fill(0)
        out = np.empty(result, last.value)
        if not last.run(*map(id, arrays), id(out), last.table):
            return None
        self.needed = [run]
        return out

    def remember(self, arrays: tuple, found: np.ndarray) -> None:
        """Store what another launch on arrays of these shapes takes."""
        theta, data, *others = arrays
        batch, steps = theta.shape[1], data.shape[-1 if data.ndim < 3 else 1]
        width, self.last = self.width_for(batch), None
        # quickly compiled code is replaced later
        if not HEADER or len(self.needed) != 1 or batch % width or width in self.quick:
            return
        if self.is_simple(batch, steps) and theta.dtype is data.dtype:
            caps, needed = self.needed[0]
            places = self.start, data_pointer(caps), data_pointer(needed)
            table = launch_table(self, width, batch, steps, places, data.size)
            kept = others and others[0].shape, found.shape, self.needed[0], table
            run, at = by_objects(1 + len(others), 8 * theta.itemsize), data_pointer(table)
            self.last = LastLaunch(theta.shape, data.shape, theta.dtype, batch, found.dtype, run, at, kept)

    def workspace(self, local: dict, width: int, steps: int, first: int) -> tuple:
        """Return the addresses of caps, needed and the tape of the block with the first sample."""
        key = width, steps, self.room
        found = self.placed.get(key)
        if found is None:
            caps, size = self.layout(width, steps)
            self.placed.clear()
            found = self.placed[key] = caps, data_pointer(caps), size * width * self.dtype.itemsize
        caps, at_caps, size = found
        needed = np.zeros(self.plan.bodies + 1, np.int64)
        self.needed.append((caps, needed))
        return at_caps, (data_pointer(needed), needed), self.start + -(-first // width) * size

    def layout(self, width: int, steps: int) -> tuple:
        """Return the places of the loops on a tape, and its size."""
        bodies, size = self.plan.bodies, self.plan.arena
        given = np.frombuffer(self.numbers.get(width, b""), np.int64)
        caps = np.concatenate([np.zeros(2 * bodies + 2, np.int64), given])
        for n, carry, data, _ in self.plan.taped:
            caps[2 * n], caps[2 * n + 1] = size, steps if data else 2**62  # (the others lie on stacks)
            size += steps * carry * data
        for n, carry in self.plan.recalled:
            caps[2 * n], caps[2 * n + 1] = size, self.room
            size += (self.room + 1) * carry  # the last one holds the length of the stack
        caps[2 * bodies] = size
        return caps, size
