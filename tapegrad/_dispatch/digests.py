"""`hashlib`, `zlib` and `xxhash` get captured arrays as they are. A tracked array has no digest."""

import functools
import sys
import types
from typing import Any

from .._core.lent_memory import lend
from .._core.primitive import any_tracked

NAMES = "hashlib", "zlib", "xxhash"


def digesting(f: Any) -> Any:
    """A function that gives a digest, or an object that does."""

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        found = f(*(args if any_tracked(args) else lend(args)), **kwargs)
        return Digest(found) if hasattr(found, "update") else found

    return run


class Digest:
    """An object of `hashlib` or the like."""

    def __init__(self, theirs: Any):
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._theirs, name)
        return digesting(found) if callable(found) else found


class DigestModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        found = getattr(sys.modules[self.__name__], name)
        return digesting(found) if callable(found) and not name.startswith("_") else found


DIGESTS = {name: DigestModule(name) for name in NAMES}
