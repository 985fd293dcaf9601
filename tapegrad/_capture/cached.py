"""`functools.lru_cache` in a rebuilt function.  The user's own cache answers, so each call gives the same
object."""

import gc
import types
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE, checksum
from .._core.errors import RouteError, callers_line
from .._core.variable import HANDLES, Variable
from .kinds import holders
from .routes import altered, leads, walk


class CacheCapture:
    """Stands for the cache of a function.

    The user's cache is asked if all arguments are the user's own objects, and what it gives is shadowed.  The
    rebuilt function runs instead if an argument is a Variable, or if the cache has no answer yet and the
    function
    may read what this call has written.  Such a result is kept for this call only: a cache keeps no Variable.  A function that runs for the
    cache must not change what the shadow has met."""

    def __init__(self, cache: Any, shadow: Any):
        self.cache, self.shadow = cache, shadow
        self.kept: dict = {}
        self.__name__ = getattr(cache, "__name__", "cached")
        self.__doc__, self.__module__ = cache.__doc__, cache.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        shadow = self.shadow
        if shadow.seen is None:
            return self.cache(*args, **kwargs)
        try:
            key = (args, tuple(sorted(kwargs.items())))
            if key in self.kept:
                return self.kept[key]
        except TypeError:
            key = None
        given = real = [*args, *kwargs.values()]
        if not IMMUTABLE.issuperset(map(type, given)):
            real = [a if type(a) in IMMUTABLE else shadow.original(a) for a in given]
        known = not any(r is None and a is not None for r, a in zip(real, given, strict=True))
        if known:
            n = len(args)
            given, named = real[:n], dict(zip(kwargs, real[n:], strict=True))
            if self.holds(given, named):  # no code runs
                return shadow(self.cache(*given, **named))
            if not reaches_written(shadow, [self.cache.__wrapped__, *real], self.cache):
                return shadow(self.first(given, named))
        made = shadow(self.cache.__wrapped__)(*args, **kwargs)
        if key is not None and known:
            self.kept[key] = made
        return made

    def holds(self, args: list, kwargs: dict) -> bool:
        """Is the user's cache known to hold what these give?  (It does not say; but its dict is seen by the
        cyclic collector.)"""
        if kwargs or self.cache.cache_parameters()["typed"]:
            return False
        key = args[0] if len(args) == 1 and type(args[0]) in (int, str) else tuple(args)
        try:
            return any(
                [
                    type(d) is dict and d is not self.cache.__dict__ and key in d
                    for d in gc.get_referents(self.cache)
                ]
            )
        except TypeError:
            return False

    def first(self, args: list, kwargs: dict) -> Any:
        """The user's function runs, among the user's objects.  What it alters there, the shadow must not have
        met: it holds the old."""
        shadow = self.shadow
        before = self.altered()
        value = self.cache(*args, **kwargs)
        if shadow.seen is not None and (
            new := [words for key, words in self.altered().items() if key not in before]
        ):
            raise RouteError(
                f"{callers_line()}: {self.__name__} of functools.lru_cache, called for the first time, "
                f"alters {new[0]}, which the function has read before: it has seen the old contents. Call it "
                "once before the transform, or leave out the cache"
            )
        return value

    def altered(self) -> dict:
        """What holds other things than at first, in words; a captured array by its numbers."""
        shadow = self.shadow
        found = {(id(c), 0): c[0].words.format(c[1]) for c in holders(shadow) if c[0].altered(shadow, c)}
        for a, v in shadow.arrays:
            if type(a) is np.ndarray and not memory_was_replaced(v):
                found[id(a), checksum(a)] = f"a captured array of shape {a.shape}"
        return found

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    @property
    def __wrapped__(self) -> Any:
        return self.shadow(self.cache.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)


def memory_was_replaced(v: Variable) -> bool:
    """Is the memory under a captured array another one than at first?"""
    base = getattr(v, "_base", v)
    return bool(getattr(base, "_version", 0)) or base._trace is not None


def reaches_written(shadow: Any, starts: list, cache: Any) -> bool:
    """Do these objects lead to anything that this call has written, past what the cache itself keeps?"""

    def is_written(new: Any) -> bool:
        return type(new) in HANDLES and memory_was_replaced(new)

    changed = altered(shadow)
    if not changed and not any(map(is_written, shadow.seen.values())):
        return False
    return any(
        leads(x, changed) or is_written(shadow.seen.get(id(x))) for x in walk(starts, {id(cache): None})
    )
