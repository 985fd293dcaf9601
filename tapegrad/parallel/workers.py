"""The scheduler of independent work on several processes, behind every ``client=`` and ``store=``.

Work is a list of parts, which do not depend on how many workers there are, so that results do not either. A
task is a run of parts, as long as a worker needs for it about `TASK_SECONDS`. The results of the parts that a
store holds are read from there. Everything else is done once more, if a worker has died.
"""

import hashlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from .._core.errors import ArgumentError

try:
    import cloudpickle
except ImportError:
    cloudpickle = None
try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

TASK_SECONDS = 1.0
AHEAD = 2  # tasks for each worker that are under way at a time
BROKEN_POOLS = 3  # pools that may break without a finished part in between
DIGEST = 20  # bytes


def run_parts(
    f: Callable, parts: Sequence, client=None, *, store=None, progress: bool | str = "auto"
) -> list:
    """Return ``[f(part) for part in parts]``, computed by several processes.

    Parameters
    ----------
    f : callable
        A function of one part. It is pickled, so define it by ``def`` at the top level of a module, unless
        the package cloudpickle is installed.
    parts : sequence
        The arguments. They are pickled.
    client : dask.distributed.Client or concurrent.futures.Executor, optional
        Who computes. Default: this process.
    store : path, optional
        A folder for results. Each finished part is a file there, with a checksum. A later run with the same
        function and parts reads them, and computes only the rest. A damaged file is computed again.
    progress : bool or 'auto', default 'auto'
        Whether a progress bar is shown (package tqdm). 'auto': in a terminal, after two seconds.

    Returns
    -------
    list
        The results, in the order of the parts.

    Raises
    ------
    ArgumentError
        If `f` or a part cannot be pickled, with the reason, or `client` is neither of the two.

    See Also
    --------
    bootstrap : A statistic of resampled data.
    tapegrad.statespace.fit_many : One model for many series; it takes ``client=`` and ``store=``.

    Notes
    -----
    The parts of a worker that died are computed again. A process pool that has broken is replaced by another
    one with as many processes. An error of f ends the run; the parts finished before are in the store.

    Examples
    --------
    >>> import tapegrad as tg
    >>> tg.parallel.run_parts(abs, [1.0, -2.0])
    [1.0, 2.0]
    """
    results = [None] * len(parts)
    folder = None if store is None else ResultStore(store, f, parts)
    left = []
    for n in range(len(parts)):
        found = None if folder is None else folder.load(n)
        if found is None:
            left.append(n)
        else:
            results[n] = found[0]
    with ProgressBar(progress, len(parts), len(parts) - len(left)) as bar:

        def keep(n: int, result) -> None:
            if folder is not None:
                folder.save(n, result)
            results[n] = result
            bar.update(1)

        if client is None:
            for n in left:
                keep(n, f(parts[n]))
        else:
            Tasks(f, parts, left, client, keep).run()
    return results


# --- tasks ---


def dumped(x, what: str) -> bytes:
    """x by pickle, functions by value where cloudpickle is installed."""
    try:
        return bytes(pickle.dumps(x) if cloudpickle is None else cloudpickle.dumps(x))
    except Exception as error:
        raise ArgumentError(
            f"run_parts: {what} cannot be pickled, so no other process can have it: {type(error).__name__}: "
            f"{error}. Define functions by "
            "def at the top level of a module, and pass open files and communicators by name"
        ) from error


def run_task(f: bytes, parts: bytes) -> tuple:
    """(results of the parts, seconds), in a worker."""
    begin = time.perf_counter()
    call = pickle.loads(f)
    return [call(part) for part in pickle.loads(parts)], time.perf_counter() - begin


class Tasks:
    """The parts that are left, and the tasks under way."""

    def __init__(self, f: Callable, parts: Sequence, left: list, client, keep: Callable):
        self.f, self.parts, self.left, self.keep = dumped(f, "the function"), parts, left[::-1], keep
        self.executor, self.workers = executor_of(client)
        self.own = False  # was the executor made here?
        self.seconds: float | None = None  # of one part, as measured
        self.under_way = {}  # future -> numbers of its parts

    def run(self) -> None:
        broken = 0
        try:
            while self.left or self.under_way:
                before = len(self.left) + sum(map(len, self.under_way.values()))
                try:
                    while self.left and len(self.under_way) < AHEAD * self.workers:
                        self.submit()
                    self.collect()
                except BrokenProcessPool:
                    now = len(self.left) + sum(map(len, self.under_way.values()))
                    broken = broken + 1 if now == before else 1
                    if broken >= BROKEN_POOLS:
                        raise
                    self.renew()
        finally:
            for future in self.under_way:
                future.cancel()
            if self.own:
                self.executor.shutdown(wait=False, cancel_futures=True)

    def submit(self) -> None:
        """One more task: of one part until the cost of a part is known, and of less at the end."""
        share = max(1, len(self.left) // (AHEAD * self.workers))
        count = 1 if self.seconds is None else max(1, min(share, int(TASK_SECONDS / max(self.seconds, 1e-9))))
        numbers = [self.left.pop() for _ in range(min(count, len(self.left)))]
        try:
            future = self.executor.submit(
                run_task, self.f, dumped([self.parts[n] for n in numbers], "a part")
            )
        except BaseException:
            self.left += numbers[::-1]
            raise
        self.under_way[future] = numbers

    def collect(self) -> None:
        """Wait for a task, and keep what has come."""
        for future in wait(self.under_way, return_when=FIRST_COMPLETED)[0]:
            results, seconds = future.result()
            numbers = self.under_way.pop(future)
            cost = seconds / len(numbers)
            self.seconds = cost if self.seconds is None else (self.seconds + cost) / 2
            for n, result in zip(numbers, results, strict=True):
                self.keep(n, result)

    def renew(self) -> None:
        """A process has died, and its pool with it: another pool, for what it has not finished."""
        for future, numbers in self.under_way.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                for n, result in zip(numbers, future.result()[0], strict=True):
                    self.keep(n, result)
            else:
                self.left += numbers[::-1]
        self.under_way = {}
        if self.own:
            self.executor.shutdown(wait=False, cancel_futures=True)
        context = getattr(self.executor, "_mp_context", None)
        self.executor, self.own = ProcessPoolExecutor(self.workers, mp_context=context), True


def executor_of(client) -> tuple[Any, int]:
    """The executor that stands for `client`, and the number of its workers."""
    if isinstance(client, Executor):
        return client, int(getattr(client, "_max_workers", None) or os.cpu_count() or 1)
    if hasattr(client, "get_executor") and hasattr(client, "scheduler_info"):
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        return client.get_executor(pure=False), max(1, sum([w["nthreads"] for w in workers]))
    raise ArgumentError(
        f"client is a {type(client).__name__}; pass a dask.distributed.Client or a "
        "concurrent.futures.Executor, such as ProcessPoolExecutor()"
    )


# --- results on disk ---


class ResultStore:
    """Finished parts in a folder.

    The name of a file tells the function and the part, and its first bytes are a checksum."""

    def __init__(self, folder, f: Callable, parts: Sequence):
        self.folder, self.parts = Path(folder), parts
        self.folder.mkdir(parents=True, exist_ok=True)
        self.of_f = hashlib.blake2b(dumped(f, "the function"), digest_size=DIGEST)

    def path(self, n: int) -> Path:
        digest = self.of_f.copy()
        digest.update(dumped(self.parts[n], "a part"))
        return self.folder / f"part-{n:06d}-{digest.hexdigest()}.result"

    def load(self, n: int) -> tuple | None:
        """(the result,), or None."""
        try:
            content = self.path(n).read_bytes()
        except FileNotFoundError:
            return None
        head, body = content[:DIGEST], content[DIGEST:]
        if head != hashlib.blake2b(body, digest_size=DIGEST).digest():
            return None
        return (pickle.loads(body),)

    def save(self, n: int, result) -> None:
        body = dumped(result, "a result")
        descriptor, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.blake2b(body, digest_size=DIGEST).digest() + body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path(n))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


# --- progress ---


class ProgressBar:
    """A bar of parts, where it is wanted and tqdm is there."""

    def __init__(self, progress: bool | str, total: int, done: int):
        if progress not in (True, False, "auto"):
            raise ArgumentError(f"progress={progress!r}; it is True, False or 'auto'")
        wanted = progress is True or (progress == "auto" and sys.stderr.isatty())
        self.bar = (
            tqdm(total=total, initial=done, delay=0 if progress is True else 2, unit="part")
            if wanted and tqdm is not None
            else None
        )

    def __enter__(self) -> "ProgressBar":
        return self

    def update(self, count: int) -> None:
        if self.bar is not None:
            self.bar.update(count)

    def __exit__(self, *error) -> None:
        if self.bar is not None:
            self.bar.close()
