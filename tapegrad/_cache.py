"""What was compiled, kernels and generated texts, on disk under a hash of everything that it depends on.

What is read is executed.  So a file counts only if it is a regular file of this user that nobody else may write, and if it holds the
key under which it was asked for and a hash of key and content: then it is whole, and made for this.  What does not count is ignored
and made again.  A file is written under another name and renamed, so that processes never see half of one.  TAPEGRAD_CACHE names the
folder ("" : none); by default it is ~/.cache/tapegrad."""

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

VERSION = "2"
SIZE = hashlib.sha256().digest_size


def folder() -> Path | None:
    name = os.environ.get("TAPEGRAD_CACHE")
    if name == "":
        return None
    try:
        return Path(name) if name else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tapegrad"
    except RuntimeError:  # this user has no home
        return None


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
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def load(name: str) -> bytes | None:
    """The stored bytes, or None."""
    where = folder()
    if where is None:
        return None
    try:
        # without waiting for the other end, should it be a pipe; what is looked at is the file that is read
        handle = os.open(where / f"{name}.o", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            stored = file.read() if is_ours(os.fstat(file.fileno())) else b""
    except (OSError, ValueError):
        return None
    content = stored[len(head(name)) : -SIZE]
    return content if content and stored == sealed(name, content) else None


def save(name: str, content: bytes) -> None:
    where = folder()
    if where is None:
        return
    path = None
    try:
        where.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, path = tempfile.mkstemp(dir=where)
        with os.fdopen(handle, "wb") as file:
            file.write(sealed(name, content))
        os.replace(path, where / f"{name}.o")
    except (OSError, ValueError):  # a read-only home: compile anew each time
        if path is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)
