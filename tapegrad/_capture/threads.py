"""Several threads over one captured array: each transform keeps the numbers that it has seen, the last to
finish leaves its own.

Records hold captured memory as it lies.  So before a shadow writes an array back, every other thread's shadow
that captured the same memory gets a copy of it as it was, a `MemoryCopy`: its handle turns to the copy at
once (its version rises, so that views are read anew), and its records do so before they are swept.  Where
that thread is sweeping just now, the writing waits for the end of the sweep; two threads that write back from
within their sweeps, each waiting for the other, are told so.  A replay (`replay_reading`) counts as a sweep
over the captured arrays of its program, and writes them as a shadow does (`replay_writing`).

All this is asked only while more than one thread has captured something: a transform alone pays two entries
in sets."""

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from .._core.arrays import checksum, is_array, without_class, xp_of
from .._core.errors import RouteError
from .._core.scope import OPEN
from .routes import KEPT, LOCK, memory_range, shares_memory_with

CHANGED = threading.Condition(LOCK)
GRACE = 0.001  # seconds for an operation under way in another thread
# seconds after which a thread that waits looks anew: who ought to tell it may have been interrupted
POLL = 0.1
WRITERS: list = []  # shadows that are writing back, or waiting to
REPLAYS: list = []  # weak references to the `ReplayedMemory` of each replay that is under way
THREADS: set = set()  # the `ThreadState` of each thread with an open shadow that has captured arrays


class ThreadState:
    """One thread: its open shadows, what is open there, whether it waits for sweeps of others, and whether it
    was given a stash. `with mine:` is a sweep."""

    __slots__ = ("shadows", "state", "waits", "stashed")

    def __init__(self):
        self.shadows, self.state, self.waits, self.stashed = set(), OPEN.__dict__, False, False

    @property
    def sweeps(self) -> int:
        """How many sweeps it is in."""
        return self.state["sweeps"]

    def __enter__(self):
        self.state["sweeps"] += 1
        return self

    def __exit__(self, *error):
        self.state["sweeps"] -= 1
        if len(THREADS) > 1:
            with LOCK:
                CHANGED.notify_all()


def reset_threads() -> None:
    """A child has none of the parent's other threads."""
    THREADS.intersection_update((mine(),))
    WRITERS.clear()
    REPLAYS[:] = [known for known in REPLAYS if (found := known()) is not None and found.mine is mine()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_threads)


def mine() -> ThreadState:
    try:
        return OPEN.mine
    except AttributeError:
        OPEN.mine = ThreadState()
        return OPEN.mine


def enter(shadow: Any) -> None:
    """The shadow captures its first array."""
    shadow.mine = own = mine()
    own.shadows.add(shadow)
    THREADS.add(own)


def set_shared_aside(shadow: Any) -> None:
    """A shadow that has waited was taken up while other threads have captured arrays, or one of them is
    writing: of what they share it takes a copy at once. (Who begins to write from now on meets it.)"""
    with LOCK:
        for a, v in shadow.arrays:
            if other_captures(shadow, [a]):
                set_aside(shadow, a, v)


def leave_thread(shadow: Any) -> None:
    own = shadow.mine
    WRITERS[:] = [s for s in WRITERS if s is not shadow]
    own.shadows.discard(shadow)
    if not own.shadows:
        own.stashed = False
        THREADS.discard(own)


class MemoryCopy:
    """The memory of a captured array as it was, and views of that."""

    def __init__(self, a: Any):
        self.array = a
        self.low, self.high = memory_range(a)
        size = self.high - self.low
        if xp_of(a) is np:
            self.memory = np.frombuffer((ctypes.c_char * size).from_address(self.low), np.uint8).copy()
        else:
            xp = xp_of(a)
            start = xp.cuda.MemoryPointer(a.data.mem, self.low - a.data.mem.ptr)
            self.memory = xp.ndarray((size,), np.uint8, start).copy()

    def of(self, x: Any) -> Any:
        """x, or what lies at its place here, if x lies within the array."""
        if not is_array(x) or not x.size:
            return x
        low, high = memory_range(x)
        if low < self.low or high > self.high:
            return x
        if xp_of(x) is np:
            return np.ndarray(
                x.shape, x.dtype, self.memory, x.__array_interface__["data"][0] - self.low, x.strides
            )
        return xp_of(x).ndarray(x.shape, x.dtype, self.memory.data + (x.data.ptr - self.low), x.strides)


def protect(records: list) -> None:
    """At the start of a sweep, which says so first: who begins to write from now on sees it, and who writes
    already holds the lock.  What was written since the recording is replaced by what the records have
    seen."""
    if len(THREADS) > 1:
        with LOCK:
            pass
    own = mine()
    if own.stashed:
        turn(records, tuple([stash for s in own.shadows for stash in s.stashes]))


def turn(records: list, stashes: tuple) -> None:
    """Let records hold the stashes instead of the memory that was written since."""

    def aside(v):
        for stash in stashes:
            v = stash.of(v)
        return v

    replace_in(records, aside)


def replace_in(records: list, change: Callable) -> None:
    """The arrays that records hold are those that `change` gives for them."""
    for k, r in enumerate(records):
        if r is None:
            continue
        if type(r[5]) is list:
            r[5][:] = [change(v) for v in r[5]]
        held = tuple([change(v) if is_array(v) else v for v in r[4:]])
        if any([v is not w for v, w in zip(held, r[4:], strict=True)]):
            records[k] = r[:4] + held


def snapshot_captured(shadow: Any, a: Any, v: Any) -> None:
    """The shadow has captured an array while other threads have captured some, or one of them is writing: of
    what they share it takes a copy at once."""
    with LOCK:
        if a.size and other_captures(shadow, [a]):
            v._value = MemoryCopy(a).of(v._value)


class ReplayedMemory:
    """The captured arrays that a replay reads or writes. Only the frame of the replay holds this object, so
    an interrupt ends it too."""

    __slots__ = ("arrays", "mine", "__weakref__")

    def __init__(self, arrays: list):
        self.arrays, self.mine = arrays, mine()


def replay_reading(arrays: list, replay: Callable, *args: Any) -> Any:
    """`replay(*args)`, which reads captured arrays, while no other thread writes them back."""
    if not arrays:
        return replay(*args)
    reading = ReplayedMemory(arrays)
    try:
        REPLAYS.append(ref(reading, REPLAYS.remove))
        if WRITERS:  # one that begins later sees this replay
            with LOCK:
                pass
        return replay(*args)
    finally:
        del reading


def replay_writing(written: list) -> None:
    """Write the values of (captured array, value), while no other thread reads the arrays."""
    arrays = [array for array, _ in written]
    exclusively(ReplayedMemory(arrays), arrays, write_arrays, written)


def write_arrays(_: Any, written: list) -> None:
    for array, v in written:
        without_class(array)[...] = v


def exclusively(writer: Any, arrays: list, write: Callable, *args: Any) -> Any:
    """`write(writer, *args)`, which writes captured arrays, while no other thread sweeps over them."""
    if not arrays:
        return None
    with LOCK:
        try:
            # who captures from now on looks at this, and who has captured before is met below
            WRITERS.append(writer)
            if not REPLAYS and THREADS <= {writer.mine}:
                return write(writer, *args)
            wait_for_sweeps(writer, arrays)
            met = other_captures(writer, arrays)
            if any([set_aside(s, a, v) for s, a, v in met]):
                time.sleep(GRACE)
            result = write(writer, *args)
            for s, a, _ in met:
                if s.sums and id(a) in s.sums:
                    s.sums[id(a)] = [a, checksum(a)]
            return result
        finally:
            if writer in WRITERS:  # an interrupt may have come before
                WRITERS.remove(writer)


def other_captures(shadow: Any, arrays: list) -> list:
    """(shadow, array, handle) of other threads that captured the same memory."""
    return [
        (s, a, v)
        for other in tuple(THREADS)
        if other is not shadow.mine
        for s in tuple(other.shadows)
        for a, v in tuple(s.arrays or ())
        if any([shares_memory_with(a, b) for b in arrays])
    ]


def replays() -> list:
    """Those that are under way."""
    return [found for known in tuple(REPLAYS) if (found := known()) is not None]


def other_replays(writer: Any, arrays: list) -> list:
    """The `ThreadState` of other threads in whose replays these arrays are read."""
    others = [r for r in replays() if r.mine is not writer.mine]
    return [r.mine for r in others if any([shares_memory_with(a, b) for a in r.arrays for b in arrays])]


def wait_for_sweeps(writer: Any, arrays: list) -> None:
    """Until no other thread sweeps over the arrays, or replays a program that reads them."""
    own = writer.mine
    own_replays = [r for r in replays() if r.mine is own]
    while True:
        replaying = other_replays(writer, arrays)
        busy = [*replaying, *[s.mine for s, _, _ in other_captures(writer, arrays) if s.mine.sweeps]]
        if not busy:
            return
        if (own.sweeps or own_replays) and any([m.waits for m in busy]):
            raise RouteError(
                f"two threads share the captured array of shape {arrays[0].shape}: each is within a backward "
                f"sweep that reads it, and would write it. {KEPT} Give each thread a copy of its own"
            )
        own.waits = True
        try:
            CHANGED.wait(GRACE if replaying else POLL)
        finally:
            own.waits = False


def set_aside(s: Any, a: Any, v: Any) -> bool:
    """The shadow s of another thread keeps the array as it is now; is that new?  (Between the question
    whether f has written its handle and the turning of it no other thread runs: no call lies between.)"""
    if not a.size or any([stash.array is a for stash in s.stashes]):
        return False
    stash = MemoryCopy(a)
    s.stashes, s.mine.stashed = (*s.stashes, stash), True
    value, turned = stash.of(v._value), {*s.turned, id(v)}
    if not v._version and v._trace is None:
        v._value, v._version, s.turned = value, 1, turned
    return True
