"""`functools.lru_cache` seen from a rebuilt function: the user's own cache answers, so the same object comes
each time."""

import gc
import types
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE, checksum
from .._core.errors import RouteError, callers_line
from .._core.variable import HANDLES, Variable
from .builtin import GlobalNames, ModuleGlobals, names_in
from .classes import InstanceState
from .containers import Contents, differ
from .kinds import is_foreign, state_of
from .objects import parts_of

PLAIN = (types.ModuleType, types.BuiltinFunctionType)


class CacheCapture:
    """Values that the transform knows nothing of are asked of the user's cache, and what it holds is shadowed
    like anything else captured.  A call with a Variable, or of a function that may read what has been written
    in this call, runs rebuilt, and is forgotten: a cache keeps no Variable.  What the user's function alters
    when it runs for the cache must not be known yet."""

    def __init__(self, cache: Any, shadow: Any):
        self.cache, self.shadow, self.kept = cache, shadow, {}
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
        back = {id(new): old for old in shadow.hold if (new := shadow.seen.get(id(old))) is not None}
        given = [*args, *kwargs.values()]
        real = [a if type(a) in IMMUTABLE else back.get(id(a)) for a in given]
        known = not any(r is None and a is not None for r, a in zip(real, given, strict=True))
        if known and not WriteReach(shadow, self.cache.__wrapped__).finds_written([self.cache.__wrapped__, *real]):
            n = len(args)
            given, named = real[:n], dict(zip(kwargs, real[n:], strict=True))
            return shadow(self.cache(*given, **named) if self.holds(given, named) else self.first(given, named))
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
            return any([type(d) is dict and d is not self.cache.__dict__ and key in d for d in gc.get_referents(self.cache)])
        except TypeError:
            return False

    def first(self, args: list, kwargs: dict) -> Any:
        """The user's function runs, among the user's objects.  What it alters there, the shadow must not have
        met: it holds the old."""
        shadow = self.shadow
        before = self.altered()
        value = self.cache(*args, **kwargs)
        if shadow.seen is not None and (new := [words for key, words in self.altered().items() if key not in before]):
            raise RouteError(
                f"{callers_line()}: {self.__name__} of functools.lru_cache, called for the first time, alters {new[0]}, which the function "
                "has read before: it has seen the old contents. Call it once before the transform, or leave out the cache"
            )
        return value

    def altered(self) -> dict:
        """What holds other things than at first, in words; a captured array by its numbers."""
        shadow = self.shadow
        found = {(id(c), 0): c[0].words.format(c[1]) for c in [*shadow.changes] if c[0].altered(shadow, c)}
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


def is_variable(x: Any) -> bool:
    return type(x) in HANDLES


def memory_was_replaced(v: Variable) -> bool:
    """Is the memory under a captured array another one than at first?"""
    base = getattr(v, "_base", v)
    return bool(getattr(base, "_version", 0)) or base._trace is not None


class WriteReach:
    """Does a function, by the names in its code, lead to anything that this call has written?"""

    def __init__(self, shadow: Any, f: Any):
        self.shadow, self.met = shadow, set()
        self.written = set()
        for kind, old, now, *first in shadow.changes:
            if kind is InstanceState and InstanceState.bound(state_of(now), first[0]):
                self.written.add(id(old))
            elif kind is Contents and first[0] is not None and differ(now, first[0]):
                self.written.add(id(old))
        self.spaces = {id(s.real): s for s in shadow.seen.values() if type(s) is ModuleGlobals}

    def finds_written(self, todo: list) -> bool:
        names = any([kind is GlobalNames and GlobalNames.bound(now) for kind, _, now, *_ in self.shadow.changes])
        if not (self.written or names or any([memory_was_replaced(v) for v in self.shadow.seen.values() if is_variable(v)])):
            return False
        while todo:
            x = todo.pop()
            if type(x) in IMMUTABLE or id(x) in self.met or isinstance(x, (*PLAIN, type)):
                continue
            self.met.add(id(x))
            new = self.shadow.seen.get(id(x))
            if id(x) in self.written or is_variable(new) and memory_was_replaced(new):
                return True
            todo += self.inside(x)
        return False

    def inside(self, x: Any) -> list:
        if isinstance(x, types.FunctionType):
            if is_foreign(x.__globals__.get("__name__")):
                return []
            found = [v for c in x.__closure__ or () for v in parts_of(c)]
            found += [*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()]
            space, mine = x.__globals__, self.spaces.get(id(x.__globals__), {})
            used = [n for n in names_in(x.__code__) if n in space]
            if any(dict.__contains__(mine, n) and mine[n] is not self.shadow.seen.get(id(space[n]), space[n]) for n in used):
                self.written.add(id(x.__code__))  # a global was bound anew
                return [x.__code__]
            return found + [space[n] for n in used]
        if is_foreign(type(x).__module__):
            return parts_of(x)
        methods = [m for c in type(x).__mro__ for m in c.__dict__.values() if isinstance(m, types.FunctionType)]
        return [*parts_of(x), *state_of(x).values(), *methods]
