"""Compiled kernels on disk, under a hash of everything that they depend on.

A file is written under another name and renamed, so that processes never see half of one; what cannot be read is ignored and
made again.  TAPEGRAD_CACHE names the folder ("" : none); by default it is ~/.cache/tapegrad."""

import hashlib
import os
import tempfile
from pathlib import Path

VERSION = "1"


def folder() -> Path | None:
    name = os.environ.get("TAPEGRAD_CACHE")
    if name == "":
        return None
    return Path(name) if name else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tapegrad"


def key(*parts: str) -> str:
    return hashlib.sha256("\0".join([VERSION, *parts]).encode()).hexdigest()


def load(name: str) -> bytes | None:
    """The stored bytes, or None.  They end with their own hash, so that a damaged file is not used."""
    where = folder()
    if where is None:
        return None
    try:
        stored = (where / f"{name}.o").read_bytes()
    except OSError:
        return None
    content, check = stored[:-32], stored[-32:]
    return content if hashlib.sha256(content).digest() == check else None


def save(name: str, content: bytes) -> None:
    where = folder()
    if where is None:
        return
    try:
        where.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=where)
        with os.fdopen(handle, "wb") as file:
            file.write(content + hashlib.sha256(content).digest())
        os.replace(path, where / f"{name}.o")
    except OSError:
        return  # a read-only home: compile anew each time
