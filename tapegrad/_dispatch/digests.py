"""`hashlib`, `zlib` and `xxhash` get captured arrays as they are.

The digest of a tracked array is a `Content`, a key for memos."""

import functools
import sys
import types
from typing import Any

from .._core.array_content import Content, content_of
from .._core.lent_memory import lend

NAMES = "hashlib", "zlib", "xxhash"


def digesting(f: Any, owner: "Digest | None" = None) -> Any:
    """A function that gives a digest, or an object that does; a method of the `owner`."""

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = [content_of(x) for x in args]
        level = max([x.level for x in (*given, owner) if isinstance(x, (Content, Digest))], default=0.0)
        found = f(*lend(tuple([x.content if type(x) is Content else x for x in given])), **kwargs)
        if owner is not None:
            owner.level = level
        if hasattr(found, "update"):
            return Digest(found, level)
        return Content(level, found) if level and found is not None else found

    return run


class Digest:
    """An object of `hashlib` or the like. `level`: of what it has met."""

    def __init__(self, theirs: Any, level: float):
        self._theirs, self.level = theirs, level

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._theirs, name)
        return digesting(found, self) if callable(found) else found


class DigestModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        found = getattr(sys.modules[self.__name__], name)
        return digesting(found) if callable(found) and not name.startswith("_") else found


DIGESTS = {name: DigestModule(name) for name in NAMES}
