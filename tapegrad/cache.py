"""What was compiled, kernels and generated texts, on disk under a hash of everything that it depends on.

What is read is executed.  So a file counts only if it is a regular file of this user that nobody else may
write, and if it holds the key under which it was asked for and a hash of key and content: then it is whole,
and made for this.  What does not count is ignored and made again.  A file is written under another name and
renamed, so that processes never see half of one.  TAPEGRAD_CACHE names the folder ("" : none); by default it
is ~/.cache/tapegrad.

The folder holds at most `MOST_BYTES` and `MOST_FILES`; the files that were used least recently are deleted.
A process keeps `MOST_ENGINES` pieces of machine code of kernels that nobody holds any more, by the same
rule."""

import hashlib
import os
import re
import stat
import tempfile
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._core.errors import Attempt

__all__ = ["CacheInfo", "clear", "info"]

VERSION = "2"
SIZE = hashlib.sha256().digest_size
NAME = re.compile(r"[0-9a-f]{64}\.o")
MOST_BYTES, MOST_FILES, MOST_ENGINES = 1 << 29, 20_000, 512
EVICTED_SHARE = 0.75  # of the limits, what is left when files are deleted
WRITES_BETWEEN_CHECKS = 256  # files written by this process, after which it looks again how many there are
TOUCH_AGE_SECONDS = 3600.0  # seconds; a file that is read says so by its time where that is older
# name -> machine code in memory, the least recently used first
ENGINES: OrderedDict[str, Any] = OrderedDict()
LOCK = threading.RLock()  # an engine that is dropped may end other objects
UNUSABLE = OSError, ValueError  # raised for a folder that cannot be used
WRITTEN = [0]  # files, by this process


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class CacheInfo:
    """The size of the compiled code that is kept.

    Attributes
    ----------
    folder : Path or None
        The folder on disk.
    files, bytes : int
        The number of files, and their size.
    most_files, most_bytes : int
        The limits, beyond which the least recently used files are deleted.
    engines, most_engines : int
        The number of compiled kernels in memory, and its limit.

    Examples
    --------
    >>> import tapegrad as tg
    >>> tg.cache.info().most_engines
    512
    """

    folder: Path | None
    files: int
    bytes: int
    most_files: int
    most_bytes: int
    engines: int
    most_engines: int


def info() -> CacheInfo:
    """Return how much compiled code is kept, on disk and in memory, and the limits.

    Returns
    -------
    CacheInfo

    See Also
    --------
    clear : Deletes it.

    Examples
    --------
    >>> import tapegrad as tg
    >>> found = tg.cache.info()
    >>> found.files <= found.most_files
    True
    """
    found = stored()
    size = sum([status.st_size for _, status in found])
    where = folder()
    return CacheInfo(
        Path(where) if where else None, len(found), size, MOST_FILES, MOST_BYTES, len(ENGINES), MOST_ENGINES
    )


def clear() -> int:
    """Delete the files, and drop the machine code that nothing refers to.

    Kernels that exist continue to work. Files of other users, and files of another kind, stay.

    Returns
    -------
    int
        The number of files deleted.

    See Also
    --------
    info : How much is kept.

    Examples
    --------
    >>> import os, tempfile, unittest.mock
    >>> import tapegrad as tg
    >>> with tempfile.TemporaryDirectory() as empty, unittest.mock.patch.dict(os.environ, TAPEGRAD_CACHE=empty):
    ...     tg.cache.clear()
    0
    """
    with LOCK:
        ENGINES.clear()
    return sum([removed(path) for path, _ in stored()])


def keep_code(name: str, engine: Any) -> None:
    """Machine code that was used now."""
    with LOCK:
        ENGINES[name] = engine
        ENGINES.move_to_end(name)
        while len(ENGINES) > MOST_ENGINES:
            ENGINES.popitem(last=False)


def stored() -> list[Any]:
    """(path, status) of our files in the folder."""
    where = folder()
    found = []
    with Attempt(of=UNUSABLE):
        for entry in [] if where is None else os.scandir(where):
            with Attempt(of=OSError):
                if NAME.fullmatch(entry.name) and is_ours(status := entry.stat(follow_symlinks=False)):
                    found.append((entry.path, status))
    return found


def removed(path: str) -> bool:
    with Attempt(of=OSError) as tried:  # another process may be first
        os.unlink(path)
    return not tried.failed


def evict() -> None:
    """Delete the files that were used least recently, if there are too many."""
    found = sorted(stored(), key=lambda file: file[1].st_mtime)
    size = sum([status.st_size for _, status in found])
    if len(found) <= MOST_FILES and size <= MOST_BYTES:
        return
    for k, (path, status) in enumerate(found):
        if len(found) - k <= EVICTED_SHARE * MOST_FILES and size <= EVICTED_SHARE * MOST_BYTES:
            return
        removed(path)
        size -= status.st_size


def folder() -> str | None:
    """The folder on disk; None if there is none, for example because this user has no home."""
    name = os.environ.get("TAPEGRAD_CACHE")
    if name is not None:
        return name or None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return None if home.startswith("~") else os.path.join(home, "tapegrad")


def key(*parts: str) -> str:
    return hashlib.sha256("\0".join([VERSION, *parts]).encode()).hexdigest()


def head(name: str) -> bytes:
    return b"tapegrad kernel " + name.encode() + b"\n"


def sealed(name: str, content: bytes) -> bytes:
    """What a file of this name holds."""
    whole = head(name) + content
    return whole + hashlib.sha256(whole).digest()


def is_ours(status: os.stat_result) -> bool:
    """Is it a regular file of this user that nobody else may write?"""
    if not stat.S_ISREG(status.st_mode):
        return False
    return not hasattr(os, "geteuid") or (
        status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def load_code(name: str) -> bytes | None:
    """The stored bytes, or None."""
    where = folder()
    if where is None:
        return None
    path = os.path.join(where, f"{name}.o")
    content = b""
    with Attempt(of=UNUSABLE):
        # without waiting for the other end, should it be a pipe; what is looked at is the file that is read
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(handle)
            content = os.read(handle, status.st_size) if is_ours(status) else b""
        finally:
            os.close(handle)
        if content and time.time() - status.st_mtime > TOUCH_AGE_SECONDS:
            with Attempt(of=OSError):
                os.utime(path)
    inner = content[len(head(name)) : -SIZE]
    return inner if inner and content == sealed(name, inner) else None


def save(name: str, content: bytes) -> None:
    where = folder()
    if where is None:
        return
    path = None
    with Attempt(of=UNUSABLE) as tried:  # in a read-only home: compile anew each time
        os.makedirs(where, 0o700, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=where)
        with os.fdopen(handle, "wb") as file:
            file.write(sealed(name, content))
        os.replace(path, os.path.join(where, f"{name}.o"))
        path = None
        if WRITTEN[0] % WRITES_BETWEEN_CHECKS == 0:
            evict()
        WRITTEN[0] += 1
    if tried.failed and path is not None:
        removed(path)
