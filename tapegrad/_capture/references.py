"""Who holds a captured array: the references that Python counts, and those that it can show.

An object of C may keep an array, or its memory, without telling Python's collector.  No search finds the
array there.  The array's count of references shows that somebody has one."""

import functools
import gc
import itertools
import sys
import types
import weakref
from collections import Counter
from typing import Any

import numpy as np

from .._core.arrays import is_array, xp_of
from .builtin import GlobalNames
from .kinds import HEAP, module_of

# Does this build count references exactly?  (Without a global lock they are counted by thread, and some
# objects are not counted.)
EXACT = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
HONEST = sys.stdlib_module_names | {"builtins", "numpy", "tapegrad"}
CAPSULE = type(np.zeros(1).__array_struct__)


def reference_count(holder: list, k: int) -> int:
    return sys.getrefcount(holder[k])


ONCE = reference_count([np.zeros(1)], 0)  # what is counted of an array to which one list refers


@functools.lru_cache(1024)
def may_hide_references(kind: Any) -> bool:
    """May an object of this class, made by an extension module, hold references that the collector is not
    told of?"""
    return kind is CAPSULE or any(
        [is_compiled(c) for c in kind.__mro__ if str(module_of(c)).partition(".")[0] not in HONEST]
    )


def is_compiled(kind: type) -> bool:
    if not kind.__flags__ & HEAP:
        return True
    path = getattr(sys.modules.get(module_of(kind)), "__file__", None) or ""
    return path.endswith((".so", ".pyd"))


def is_unsearchable(x: Any) -> bool:
    """Is x such an object, or a function of an extension module of the user's?"""
    owner = getattr(x, "__self__", None) if type(x) is types.BuiltinFunctionType else None
    if type(owner) is types.ModuleType:
        return owner.__name__.partition(".")[0] not in HONEST
    kind: Any = type(x)
    return may_hide_references(kind)


class References:
    """The references to the arrays that f wrote: `excess` of each is how many nobody has that the engine or
    f's own objects know of."""

    def __init__(self, shadow: Any, arrays: list):
        lists = (shadow.arrays, shadow.hold, shadow.changes)
        spaces = [change[2].met for change in shadow.changes if change[0] is GlobalNames]
        handles = [v for _, v in shadow.arrays]
        known: list = [*lists, *spaces, *handles, *(shadow.sums.values() if shadow.sums else ())]
        known += [o for o in itertools.chain(*lists) if not is_array(o)]
        self.holders = {id(o): o for o in known}
        inner = [r for o in known for r in gc.get_referents(o) if type(r) is dict or type(r) is tuple]
        self.holders.update({id(r): r for r in inner})
        held = dict.fromkeys(map(id, arrays), 0)
        referents = [id(r) for o in self.holders.values() for r in gc.get_referents(o)]
        for key in [*referents, *[id(x.base) for x in shadow.hold if is_array(x) and x.base is not None]]:
            if key in held:
                held[key] += 1
        self.excess = {
            id(arrays[k]): reference_count(arrays, k) - ONCE - held[id(arrays[k])] for k in range(len(arrays))
        }

    def is_followed(self, a: Any) -> bool:
        """Does the array own its memory, and has nobody else a reference to it?"""
        return EXACT and xp_of(a) is np and a.base is None and not self.excess[id(a)]

    def kept_unseen(self, arrays: list, closed: tuple) -> Any:
        """One of the arrays to which somebody refers who does not show: neither in a frame, nor in an object
        that the collector searches. `closed`: ids of the objects in reach that may do so.  The search takes
        long, so its answer is kept while the counts stay."""
        if not EXACT:
            return arrays[0]
        level = [
            a for a in arrays if xp_of(a) is np and self.excess[id(a)] > 0 and not self.is_harmless(a, closed)
        ]
        harmless = [
            (id(a), weakref.ref(a, functools.partial(HARMLESS.pop, id(a))), self.excess[id(a)], closed)
            for a in level
        ]
        first = {id(a): k for k, a in enumerate(level)}  # by id, which of these arrays it leads to
        for _ in range(LEVELS if level else 0):  # what refers to an array may itself be kept unseen
            found, leads = referrer_counts(level)
            for k in range(len(level)):
                if reference_count(level, k) - ONCE > found[id(level[k])]:
                    return harmless[first[id(level[k])]][1]()
            level = [o for o, _ in leads if id(o) not in self.holders and not is_end(o)]
            first = {id(o): first[key] for o, key in leads}
            del leads
        HARMLESS.update({key: known for key, *known in harmless})
        return None

    def is_harmless(self, a: Any, closed: tuple) -> bool:
        reference, *known = HARMLESS.get(id(a), (None,))
        return reference is not None and reference() is a and known == [self.excess[id(a)], closed]


LEVELS = 4  # one refers to the next: cell, closure, function
# id of an array -> [weak reference to it, its excess, closed objects] of the last search that found all
# references
HARMLESS: dict = {}
# the collector does not know of them where they hold nothing that it knows
UNTRACKED = (dict, tuple, np.ndarray)


def is_end(x: Any) -> bool:
    """Is it a module, its namespace, a class, a frame, an object of tapegrad's, or an iterator, which a loop
    refers to unseen?"""
    if isinstance(x, (type, types.ModuleType, types.FrameType, type(None))) or hasattr(type(x), "__next__"):
        return True
    return (type(x) is dict and "__builtins__" in x) or type(x).__module__.partition(".")[0] == "tapegrad"


def referrer_counts(level: list) -> tuple:
    """(how often objects that the collector searches, and the frames that are running, refer to each of these
    objects, by id; pairs of another object that does and the id of one to which it refers)"""
    keys, inner, leads = set(map(id, level)), [], []
    met: set = set()
    found: Counter = Counter()

    def look(holder: Any, referents: list) -> None:
        here = [id(r) for r in referents if id(r) in keys]
        if here:
            found.update(here)
            if id(holder) not in keys:
                leads.append((holder, here[0]))
        inner.extend([r for r in referents if type(r) in UNTRACKED and not gc.is_tracked(r)])

    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_flags & 1:  # (else its names are a dict, which is searched)
            space = frame.f_locals
            look(None, [space.get(n) for n in code.co_varnames if n not in code.co_cellvars])
            if type(space) is dict and sys.getrefcount(space) == 3:
                space.clear()  # before Python 3.13 the frame keeps this copy
        frame = frame.f_back
    for o in gc.get_objects():
        kind: Any = type(o)
        if o is not level and o is not inner and not may_hide_references(kind):
            look(o, gc.get_referents(o))
    for r in inner:
        if id(r) not in met:
            met.add(id(r))
            look(r, [r.base] if type(r) is np.ndarray else gc.get_referents(r))
    return found, leads
