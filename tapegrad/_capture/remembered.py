"""The shadow of a function that a transform calls again and again, kept from one call to the next.

To make a shadow and to hand everything back costs more than most small functions. So after a call that has
altered nothing, the shadow waits for the next call as it is. That call compares what the shadow was made from
with what is there now, object by object. If one of them is another object, a new shadow is made.

A shadow may wait if nobody outside holds a part of it. A call counts the references to each part before
everything is handed back. Afterwards nothing may hold a part, or it has leaked. If a later call meets the same
objects in the same order, and counts the same references, no part of its shadow has leaked.

A function, or a method of one object, has one memory, which all transforms use from its second call on. So a
function that is called once pays nothing, and `grad(f)(x)` may be written anew for each call. The memory does
not keep the function or the object alive: what waits ends with it. One in a reference cycle would live on, so
only those that were used last have a memory. A waiting shadow has left its thread. The call that takes it up
asks, as at a first capture, what other threads do with the captured arrays."""

import collections
import functools
import gc
import itertools
import operator
import sys
import types
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE
from .._core.registry import FROZEN
from .._core.scope import OPEN, WATCHERS, at_the_end_of_an_object
from .._core.variable import ArrayVariable, Subarray, View
from .._dispatch import stand_ins
from . import threads
from .builtin import ModuleGlobals, ModuleShadow
from .cached import CacheCapture
from .core import Shadow
from .deferred import is_set
from .kinds import (
    EMPTY,
    HELD,
    bases_of,
    dict_of,
    is_compiled_by_numba,
    is_universal,
    is_user_class,
    same,
    space_of,
)
from .objects import FILLED, kind_of
from .restore import restore
from .routes import near_objects
from .unread_containers import UnreadDict, UnreadList

YOUNG, OLDEST = 1, 2  # generations of what a call has left in reference cycles, which may hold parts
MOST_FAILURES = 8  # after which a transform makes a new shadow for each call
LASTING = frozenset((
    *HELD, types.CellType, types.FunctionType, types.BuiltinFunctionType,
    types.ModuleType, np.ufunc, type(np.sum), np.ndarray, property, type(functools.lru_cache(len)),
))  # fmt: skip
PASSING = (BaseException, np.ndarray, Subarray, weakref.ref, map, filter, type(iter(int, 1)))
PARTS = HELD | frozenset((
    *FILLED, tuple, UnreadDict, UnreadList, ModuleGlobals, ModuleShadow, CacheCapture, ArrayVariable, View,
    types.CellType, types.MethodType, property, staticmethod, classmethod,
))  # fmt: skip

KEYS, VALUES, MEMBERS = dict.keys, dict.values, list.__iter__
OF_FUNCTION = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__", "__dict__")


RECENT: collections.OrderedDict = collections.OrderedDict()  # ids -> (weak reference, memory)
MOST_FUNCTIONS = 16


def memory_of(f: Any) -> "ShadowMemory":
    """The memory of a function, or of a method of an object."""
    root: Any = f
    key: Any = id(f)
    if type(f) is types.MethodType:
        root, key = f.__self__, (id(f.__self__), id(f.__func__))
    found = RECENT.pop(key, None)
    if found is None:
        forget = lambda _, pop=RECENT.pop: pop(key, None)
        try:
            found = weakref.ref(root, forget), ShadowMemory()
        except TypeError:
            return ShadowMemory()
        while len(RECENT) >= MOST_FUNCTIONS:
            RECENT.popitem(last=False)
    RECENT[key] = found
    return found[1]


class ShadowMemory:
    """The shadow that waits for the next call of one function, if any."""

    __slots__ = ("waiting", "signature", "failures", "is_new")

    def __init__(self) -> None:
        self.is_new = True  # was the function not called yet?
        self.waiting: list = []  # at most one `WaitingShadow`
        self.signature: Any = None  # (ids of what was met, references to each part) of a call without a leak
        self.failures = 0

    def __del__(self, process_ends: Any = sys.is_finalizing) -> None:
        if getattr(self, "waiting", None) and not process_ends():
            at_the_end_of_an_object(self.clear)

    def clear(self) -> None:
        while self.waiting:
            self.waiting.pop().end()

    def shadow(self, f: Any, args: list, given: Sequence, fresh: Sequence) -> Shadow:
        """The shadow for a call: the one that waits, if it stands for what is there now."""
        if self.is_new or OPEN.depth or OPEN.hiding or WATCHERS or threads.THREADS or threads.WRITERS:
            self.is_new = False
            return Shadow(f, args, given, fresh)
        try:
            waiting = self.waiting.pop()
        except IndexError:
            waiting = None
        if waiting is not None:
            waiting.put(f)
            if waiting.is_valid():
                shadow = waiting.shadow
                shadow.args, shadow.given, shadow.fresh = args, list(given), fresh
                shadow.on, shadow.memory = True, self
                return shadow
            self.failures += 2
            waiting.end()
        shadow = Shadow(f, args, given, fresh)
        if self.failures < MOST_FAILURES:
            shadow.memory = self
        return shadow

    def keeps(self, shadow: Shadow) -> bool:
        """The call is over, and nothing was handed back yet.  May the shadow wait as it is?"""
        waiting, shadow.waited = shadow.waited, None
        if not is_unaltered(shadow):
            self.failures += 1
            return False
        if waiting is not None and waiting.is_same():
            self.failures = 0
        else:
            hand_numbers_back(shadow)
            if not is_unmodified(shadow):
                self.failures += 1
                return False
            waiting = None  # which holds parts of the shadow
            gc.collect(YOUNG)  # so that the references are those of a call without cycles
            waiting = WaitingShadow(shadow)
            if waiting.signature != self.signature:
                self.failures += self.signature is not None
                shadow.waited = waiting
                return False
        shadow.over()
        shadow.args, shadow.given, shadow.fresh, shadow.ending, shadow.verdict = [], [], (), (), None
        shadow.waited, shadow.memory = waiting, None
        waiting.put(waiting.function)
        self.clear()  # another thread may have called the function meanwhile
        self.waiting.append(waiting)
        return True

    def learn(self, waiting: "WaitingShadow") -> None:
        """Everything was handed back to what `waiting` was made from.  Has no part of the shadow leaked?"""
        waiting.shadow, waiting.function, waiting.contents, parts = None, None, (), waiting.parts
        drop_unheld(parts)
        for generation in (YOUNG, OLDEST)[: 1 + (self.failures == 0)]:  # (the oldest one takes long)
            if parts:
                drop_cycles(parts, generation)
        if parts:
            self.failures += 1
        else:
            self.signature = waiting.signature


def drop_unheld(parts: list) -> None:
    """Only those stay that something else holds.  (Parts hold each other.)"""
    before = None
    while parts and len(parts) != before:
        before, held = len(parts), []
        while parts:
            part = parts.pop()
            if sys.getrefcount(part) > 2:
                held.append(part)
            del part
        parts += held


def drop_cycles(parts: list, generation: int) -> None:
    """Only those stay that something outside of reference cycles holds."""
    held, references = [], []
    while parts:
        part = parts.pop()
        try:
            references.append(weakref.ref(part))
        except TypeError:
            held.append(part)
        del part
    gc.collect(generation)
    parts += [*held, *[part for part in [r() for r in references] if part is not None]]
    del held
    drop_unheld(parts)


EMPTIES = itertools.repeat(EMPTY)


def in_spaces(places: list) -> list:
    found: list = []
    for space, names in places:
        found += map(space.get, names, EMPTIES)
    return found


def in_dicts(dicts: list) -> list:
    found: list = []
    for d in dicts:
        found += *KEYS(d), *VALUES(d), EMPTY
    return found


def in_lists(lists: list) -> list:
    found: list = []
    for x in lists:
        found += *MEMBERS(x), EMPTY
    return found


def in_filled(places: list) -> list:
    found: list = []
    for x in places:
        found += *kind_of(x).parts(x), EMPTY, *kind_of(x).settings(x)
    return found


def in_objects(objects: list) -> list:
    found: list = []
    for x in objects:
        found += type(x), dict_of(x)
    return found


def in_slots(places: list) -> list:
    return [slot.__get__(x) if is_set(slot, x) else EMPTY for x, slots in places for slot in slots.values()]


def in_classes(places: list) -> list:
    found: list = []
    for c, space in places:
        found += type(c), *bases_of(c), EMPTY, *space, *space.values()
    return found


def in_functions(functions: list) -> list:
    """(What a function's namespace holds is among the dicts, unless that was empty.)"""
    found: list = []
    for parts in map(OF_FUNCTION, functions):
        found += *parts, not parts[-1]
    return found


# of each kind of places: what is held there, in a fixed order. EMPTY stands after parts of any number
HELD_IN: dict = {
    "cells": functools.partial(map, operator.attrgetter("cell_contents")),  # (an empty one: ValueError)
    "names": in_spaces,
    "dicts": in_dicts,
    "lists": in_lists,
    "filled": in_filled,
    "unread": functools.partial(map, type),
    "objects": in_objects,
    "slots": in_slots,
    "classes": in_classes,
    "functions": in_functions,
}


class Places:
    """Where the real objects, or their shadows, hold what they hold; and what that was."""

    __slots__ = ("numbers", "objects", "unread", "slots", "functions", "reads", "held")

    def __init__(self, changes: list, side: int):
        found: dict = {name: [] for name in (*HELD_IN, "numbers")}
        for change in changes:
            for name, place in change[0].places(change, side):
                found[name].append(place)
        found["classes"] = [(c, space_of(c)) for c in found["classes"]]
        self.numbers, self.objects, self.unread = found["numbers"], found["objects"], found["unread"]
        self.slots, self.functions = found["slots"], found["functions"]
        self.reads = [(read, found[name]) for name, read in HELD_IN.items() if found[name]]
        self.held = self.held_now()

    def held_now(self) -> list:
        found: list = []
        for read, places in self.reads:
            found += read(places)
        return found

    def is_same(self) -> bool:
        for x in self.numbers:
            if not IMMUTABLE.issuperset(map(type, x.values() if type(x) is dict else x)):
                return False
        try:
            return same(self.held_now(), self.held)
        except ValueError:
            return False


class WaitingShadow:
    """A shadow between two calls, with what it was made from and what it holds.

    An object that was left alone may alter what the shadow was made from, during the call: where there is one,
    that is compared after each call too.  What such objects lead to is looked at before each call."""

    __slots__ = (
        *("shadow", "arrays", "layouts", "parts", "sources", "contents", "signature", "size"),
        *("function", "change", "places", "slotted"),
    )

    def __init__(self, shadow: Shadow):
        self.shadow: Any = shadow
        f = shadow.f
        self.size, root = len(shadow.changes), f.__self__ if type(f) is types.MethodType else f
        self.function = shadow.seen.get(id(root), root)  # its shadow, in whose place it stands during a call
        met = {id(x): x for x in shadow.hold}
        self.arrays = [x for x in met.values() if type(x) is np.ndarray]
        self.layouts = self.layouts_now()
        self.parts = [shadow.seen[key] for key, x in met.items() if is_part(shadow, x, shadow.seen[key])]
        self.sources = Places(shadow.changes, 1)
        self.contents: Any = Places(shadow.changes, 2)
        self.signature = [*met], self.references()
        self.change = [n for n, change in enumerate(shadow.changes) if change[2] is self.function]
        sources = self.sources
        self.places = [
            (held, n)
            for held in (shadow.hold, sources.functions, sources.objects, sources.unread)
            for n, x in enumerate(held)
            if x is root
        ]
        self.slotted = [n for n, (x, _) in enumerate(sources.slots) if x is root]

    def put(self, f: Any) -> None:
        """Let f stand where the function stands that was called; its shadow while that waits."""
        shadow, root = self.shadow, f.__self__ if type(f) is types.MethodType else f
        shadow.f = f
        for held, n in self.places:
            held[n] = root
        slots = self.sources.slots
        for n in self.slotted:
            slots[n] = root, slots[n][1]
        for n in self.change:
            kind, _, *rest = shadow.changes[n]
            shadow.changes[n] = kind, root, *rest

    def layouts_now(self) -> list:
        """(How many objects refer to the base of a view decides how it is followed.)"""
        return [
            (x.shape, x.strides, x.dtype, 0 if x.base is None else sys.getrefcount(x.base))
            for x in self.arrays
        ]

    def is_laid_out(self) -> bool:
        """Have the arrays their layouts, and their bases no new references? Views that vanish do no harm."""
        now, before = self.layouts_now(), self.layouts
        if now != before:
            if any([x[:3] != y[:3] or x[3] > y[3] for x, y in zip(now, before, strict=True)]):
                return False
            self.layouts = now
        return True

    def references(self) -> list:
        return [*map(sys.getrefcount, self.parts)]

    def is_same(self) -> bool:
        """Has the call met, bound and leaked nothing?"""
        shadow, (met, references) = self.shadow, self.signature
        if len(shadow.changes) != self.size or len(shadow.seen) != len(met) or not self.contents.is_same():
            return False
        if self.references() != references:
            gc.collect(YOUNG)
            if self.references() != references:
                return False
        return FROZEN.issuperset(map(type, shadow.left)) or self.sources.is_same()

    def is_valid(self) -> bool:
        """Is all that the shadow was made from still there?"""
        return (
            self.sources.is_same()
            and (not self.arrays or self.is_laid_out())
            and not self.shadow.stashes  # which another thread may have made at the very end of the call
            and all([same(near_objects(near[0]), near) for near, _ in self.shadow.near])
        )

    def end(self) -> None:
        """The shadow does not wait any longer."""
        shadow, self.shadow, self.function, self.parts, self.contents = self.shadow, None, None, [], ()
        if shadow is not None and shadow.seen is not None:
            restore(shadow, undo=True)


def is_unaltered(shadow: Shadow) -> bool:
    """Has the call written no captured array, and left nothing alone that leads to memory?"""
    return not (
        shadow.once
        or shadow.outer
        or shadow.reached
        or shadow.walked
        or shadow.sums
        or shadow.wrote
        or shadow.strangers
        or shadow.memories
        or shadow.theirs
        or shadow.stashes
        or shadow.turned
        or shadow.vacant
    ) and all([v._value is x and not v._version and v._trace is None for x, v in shadow.arrays])


def hand_numbers_back(shadow: Shadow) -> None:
    """What a call counts need not keep its shadow from waiting."""
    for n, change in enumerate(shadow.changes):
        for name, v in change[0].named(change):
            if type(v) in IMMUTABLE:
                shadow.changes[n] = change[0].with_number(shadow.changes[n], name, v)


def is_unmodified(shadow: Shadow) -> bool:
    """Is each part of the shadow what its real object would become now?"""
    return all(map(is_lasting, shadow.hold)) and (
        all([change[0].is_unmodified(shadow, change) for change in shadow.changes])
        and not any([type(v) is CacheCapture and v.kept for v in shadow.seen.values()])
    )


def is_part(shadow: Shadow, x: Any, new: Any) -> bool:
    """Was `new` made for the shadow, in the place of x?"""
    kind = type(new)
    if kind is types.FunctionType:
        return new is not x and type(new.__globals__) is ModuleGlobals
    return new is not x and (kind in PARTS or (kind in shadow.classes and not issubclass(kind, type)))


def is_lasting(x: Any) -> bool:
    """Does a change of x show in what the kinds of holders list?"""
    kind = type(x)
    if kind in LASTING or is_compiled_by_numba(x) or is_universal(kind) or isinstance(x, type):
        return True
    if is_user_class(kind) or kind_of(x) is not None:
        return not issubclass(kind, PASSING)
    # a function of an extension; a distribution or another callable object of the library
    return kind.__name__ == "cython_function_or_method" or stand_ins.function_stand_in(x) is not None
