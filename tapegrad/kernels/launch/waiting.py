"""Work on blocks of samples: in this thread, shared with others, or by others while the main thread waits.

Python answers Ctrl-C between two bytecodes of the main thread, and a launch is one C call. The main thread
therefore runs no long call itself; it submits pieces and waits. If there is one thread, and blocks are
short, it runs the pieces. An interrupt, or any other exception of a signal handler, ends the wait. Pieces
that have not begun are then dropped. A piece that is running ends by itself, and nobody uses the memory that
it writes."""

import functools
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from ..._core.scope import lock

LOCK = lock()
STATE: dict = {}
THREADED_OPERATIONS = 5_000_000  # operations below which a launch stays in its thread
WAITING_OPERATIONS = 50_000_000  # operations above which the main thread waits: 10 to 100 ms
# operations of a block up to which the only thread works itself, and looks for signals between blocks
BLOCK_OPERATIONS = 500_000_000
PIECE_SECONDS = 0.005  # between checks for a stop, if a block does not take longer
POLL, GRACE = 0.05, 0.4  # seconds between checks for signals; seconds for running pieces to end


def usable_cores() -> int:
    wanted = os.environ.get("TAPEGRAD_THREADS")
    if wanted:
        return max(int(wanted), 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


THREADS = usable_cores()


class Task:
    """A call to be made by a worker."""

    __slots__ = ("call", "error", "lock", "value")

    def __init__(self, call: Callable):
        self.call: Any = call
        self.value, self.lock = None, threading.Lock()
        self.error: BaseException | None = None
        self.lock.acquire()

    def run(self) -> None:
        try:
            self.value = self.call()
        except BaseException as error:
            self.error = error
        self.call = None
        self.lock.release()

    def done(self) -> bool:
        return not self.lock.locked()

    def result(self):
        """Return the value or raise the error; a signal is answered within POLL seconds on every system."""
        while not self.lock.acquire(timeout=POLL):
            pass
        self.lock.release()
        if self.error is not None:
            raise self.error
        return self.value


class Workers:
    """Threads that wait for work; they do not keep Python from ending."""

    def __init__(self, count: int):
        self.tasks: queue.SimpleQueue = queue.SimpleQueue()
        self.threads = [
            threading.Thread(target=self.serve, name=f"tapegrad_{k}", daemon=True) for k in range(count)
        ]
        for t in self.threads:
            t.start()

    def submit(self, call: Callable) -> Task:
        task = Task(call)
        self.tasks.put(task)
        return task

    def serve(self) -> None:
        for task in iter(self.tasks.get, None):
            task.run()
            del task

    def end(self) -> None:
        """Let each thread end after its work."""
        for _ in self.threads:
            self.tasks.put(None)


def workers() -> Workers:
    with LOCK:
        if "workers" not in STATE:
            STATE["workers"] = Workers(THREADS)
        return STATE["workers"]


def submit(call: Callable) -> Task:
    """(Under the lock.  Workers that another thread dismisses meanwhile would never come to it.)"""
    with LOCK:
        return workers().submit(call)


def dismiss() -> None:
    """Use new threads for the next launch; some of these are busy with an interrupted one."""
    with LOCK:
        old = STATE.pop("workers", None)
    if old is not None:
        old.end()


def reset_workers() -> None:
    """Forget the threads, which do not survive a fork."""
    STATE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_workers)


def is_long(work: float) -> bool:
    """Return whether the main thread waits for this many operations."""
    return work > WAITING_OPERATIONS and threading.current_thread() is threading.main_thread()


def run_blocks(blocks: int, work: float, run: Callable, most: float = 0.0) -> None:
    """Call run(first, last) for all blocks; `work` operations in all, or up to `most`.

    The bits must not depend on the division."""
    parts = min(THREADS, blocks) if work > THREADED_OPERATIONS else min(blocks, 1)
    cuts = [blocks * k // max(parts, 1) for k in range(parts + 1)]
    shares = list(itertools.pairwise(cuts))
    most, stop = max(work, most), threading.Event()
    if parts == 1 and is_long(most) and most <= BLOCK_OPERATIONS * blocks:
        in_pieces(run, 0, blocks, stop)  # an interrupt is answered after a block
    elif is_long(most):
        wait_for_tasks([submit(functools.partial(in_pieces, run, *share, stop)) for share in shares], stop)
    else:
        run_in_turn([functools.partial(run, *share) for share in shares])


def run_in_turn(tasks: list) -> list:
    """Return the results of tasks; this thread runs the first one."""
    others = [submit(task) for task in tasks[1:]]
    return [task() for task in tasks[:1]] + [other.result() for other in others]


def patiently(tasks: list) -> list:
    """Return the results of tasks; the main thread waits and answers interrupts."""
    if threading.current_thread() is not threading.main_thread():
        return run_in_turn(tasks)
    return wait_for_tasks([submit(task) for task in tasks], threading.Event())


def in_pieces(run: Callable, first: int, last: int, stop: threading.Event) -> None:
    """Run blocks in pieces that grow while they are short."""
    count = 1
    while first < last and not stop.is_set():
        begin, end = time.perf_counter(), min(first + count, last)
        run(first, end)
        first = end
        count = 8 * count if time.perf_counter() - begin < PIECE_SECONDS / 8 else max(count // 2, 1)


def wait_for_tasks(tasks: list, stop: threading.Event) -> list:
    """Return the results while signals are answered."""
    try:
        return [task.result() for task in tasks]
    except BaseException:
        stop.set()
        until = time.monotonic() + GRACE
        while any([not task.done() for task in tasks]) and time.monotonic() < until:
            time.sleep(0.005)
        if any([not task.done() for task in tasks]):
            dismiss()
        raise
