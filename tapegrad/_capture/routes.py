"""Other ways to the memory of captured arrays.  A shadow does not follow them, and they must not be silent.

Everything that a followed object holds is followed or left alone.  So a way that the engine does not see passes
through an object left alone, and the search starts from these (`Shadow.left`; mostly none of them holds
anything).  It goes on by what Python's garbage collector shows, so containers of C, iterators, generators and
caches need no list.  The search finds three things:

- Memory of an array that f wrote, reached through an object left alone.  What f read there was old (`finding`).
- A holder (an object, a list, a module, a cell) that was changed by f, or past its shadow, reached in the same
  way (`altered`).
- Captured memory that changed under the engine.  Its checksum is taken when the array is first written, or is
  met behind an object left alone.  It is compared at the end.

An object left alone is also looked into when it is met (`leave_unshadowed`), up to `GLANCE` objects: an
iterator or a queue may have given away what it held by the end.  Variables that f has stored there are found by
`strays` and become plain.

Reading order: `walk` and `contents`; `leave_unshadowed`, `capture_array` and `first_write`, which take notes;
`finding`, which judges; the words."""

import array
import collections
import ctypes
import functools
import gc
import itertools
import logging
import mmap
import sys
import threading
import types
import typing
import weakref
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE, checksum, extent, is_array
from .._core.errors import AliasError, RouteError
from .._core.primitive import is_tracked
from .._core.registry import FROZEN
from .._core.scope import OPEN, lock
from .._core.variable import HANDLES, Variable
from .builtin import GlobalNames, ModuleGlobals, names_in, texts_in
from .kinds import bases_of, holders, is_foreign, module_of
from .objects import parts_of
from .references import References, is_unsearchable

LOCK = lock()  # whoever holds it writes captured memory, or takes its checksums
GLANCE = 64  # objects
SEARCH_STEPS: Any = 1000  # after which two arrays count as sharing memory
LOCKS = (type(threading.Lock()), type(threading.RLock()))
LEAVES = IMMUTABLE | {
    *HANDLES, ModuleGlobals, types.CodeType, types.FrameType, types.TracebackType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    type(vars(collections.namedtuple("Pair", "first"))["first"]), np.bool_, np.float32, np.int32, object, typing.TypeVar, *LOCKS,
    logging.Manager,  # leads from each logger to all others
}  # fmt: skip
QUIET = frozenset(
    (
        "logging",
        "_io",
        "io",
        "numpy.random._generator",
        "numpy.random.mtrand",
        "numpy.random.bit_generator",
        "random",
    )
)
ENGINE = frozenset(
    f"tapegrad.{m}"
    for m in (
        "_transforms.call",
        "_transforms.arguments",
        "_core.reverse",
        "_core.forward",
        "_core.primitive",
        "_capture.core",
        "_capture.deferred",
    )
)  # their objects know f
PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
BUFFERS = (
    bytearray,
    array.array,
    mmap.mmap,
    memoryview,
    ctypes.Array,
    ctypes.Structure,
    ctypes.Union,
    ctypes._SimpleCData,
)


# --- what an object leads to ---


def contents(x: Any, most: int | None = None) -> list:
    """What f may reach through an object (of an object array `most` elements).  Modules, types and functions
    of packages left alone end the way."""
    kind = type(x)
    if kind is types.FunctionType:
        return [child for _, child in of_function(x)]
    if issubclass(kind, type):
        return [] if is_foreign(module_of(x)) else [*vars(x).values(), *bases_of(x), kind]
    if issubclass(kind, types.ModuleType):
        return [] if is_foreign(x.__name__) else list(vars(x).values())
    if module_of(kind) in ENGINE:
        return []
    if kind is dict and "__builtins__" in x and "__name__" in x:
        return []  # the globals of a module
    if issubclass(kind, np.ndarray):
        return [
            *(x.ravel()[:most].tolist() if x.dtype.hasobject else ()),
            x.base,
            getattr(x, "__dict__", None),
        ]
    if kind is np.flatiter:
        return [x.base]
    if kind is np.nditer:
        return list(x.operands)
    if kind is np.broadcast:
        return list(x.iters)
    if kind is memoryview:
        return [x.obj]
    if kind in PROXIES:
        return behind(x)
    found = gc.get_referents(x)
    if issubclass(kind, (weakref.ref, ContextVar)):
        found += parts_of(x)
    elif issubclass(kind, threading.local):
        found.append(threading.local.__getattribute__(x, "__dict__"))
    return found


def behind(proxy: Any) -> list:
    """The object of a weak proxy: it answers by the methods of that object."""
    try:
        return [proxy.__reduce_ex__.__self__]
    except (ReferenceError, AttributeError):
        return []


def named_in(code: types.CodeType) -> frozenset:
    """The names in the code, and its texts that are names of modules: `sys.modules["m"]`,
    `import_module("m")`."""
    return names_in(code) | (texts_in(code) & sys.modules.keys())


def of_function(f: Any) -> list:
    """(name, object) for what the code of f may read: the names in it, and of a user's module those
    attributes only that the code names; its cells, defaults and attributes."""
    found: list = []
    for n, c in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            found.append((f"`{n}`", c.cell_contents))
        except ValueError:  # empty
            pass
    space = f.__globals__
    if type(space) is not ModuleGlobals and not is_foreign(space.get("__name__")):
        names = named_in(f.__code__)
        for n in names:
            value = space[n] if n in space else sys.modules.get(n)  # imported by the code itself
            if isinstance(value, types.ModuleType):
                if not is_foreign(value.__name__):
                    inside = [(f"`{n}.{m}`", vars(value)[m]) for m in names if m in vars(value)]
                    found += inside or [(f"`{n}`", value)]  # it may give the module away
            elif value is not None:
                found.append((f"`{n}`", value))
    defaults = f.__defaults__ or ()
    found += zip(
        [f"`{n}`" for n in f.__code__.co_varnames[f.__code__.co_argcount - len(defaults) :]],
        defaults,
        strict=False,
    )
    found += [(f"`{k}`", d) for k, d in (f.__kwdefaults__ or {}).items()]
    return found + [(f"`{k}`", v) for k, v in vars(f).items()]


def walk(starts: list, parents: dict, most: int | None = None, handles: list | None = None) -> Iterator:
    """All that can be reached from `starts`, the nearest first; `parents` gets the object from which each was
    reached, `handles` the pairs (object, Variable in it), where the engine's own objects are not entered.
    `most`: so many objects besides `starts` are enough."""
    waiting, limit = deque(starts), len(starts) + (most or 0)
    for x in starts:
        parents[id(x)] = None
    alive = []  # so that no id is given twice
    while waiting:
        x = waiting.popleft()
        alive.append(x)
        yield x
        if handles is not None and is_own(x):
            continue
        for child in contents(x, most):
            kind = type(child)
            if kind in LEAVES:
                if handles is not None and kind in HANDLES:
                    handles.append((x, child))
            elif id(child) not in parents and (most is None or len(parents) < limit):
                parents[id(child)] = x
                waiting.append(child)


def is_own(x: Any) -> bool:
    """Is this an object, or a function, of tapegrad's?"""
    return (
        str(x.__module__ if type(x) is types.FunctionType else type(x).__module__).partition(".")[0]
        == "tapegrad"
    )


def memory_range(x: Any) -> Any:
    """The addresses (first, past the last) of the memory that x gives access to by itself, if any."""
    kind = type(x)
    if issubclass(kind, ctypes._Pointer):
        address = ctypes.cast(x, ctypes.c_void_p).value
        return address and (address, address + 1)
    if issubclass(kind, BUFFERS):
        try:
            x = np.frombuffer(x, np.uint8)
        except (TypeError, ValueError, BufferError):  # empty, closed, or not in one piece
            return None
    elif not is_array(x):
        return None
    return extent(x) if x.size else None


def shares_memory_with(x: Any, y: Any) -> bool:
    """Do two arrays, or an array and another holder of memory, share memory?  (In doubt: yes.)"""
    if type(x) is type(y) is np.ndarray and (
        (x.flags.owndata and y.flags.owndata and x is not y) or not np.may_share_memory(x, y)
    ):
        return False
    a, b = memory_range(x), memory_range(y)
    if a is None or b is None or a[0] >= b[1] or b[0] >= a[1]:
        return False
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        try:
            return np.shares_memory(x, y, max_work=SEARCH_STEPS)
        except np.exceptions.TooHardError:
            return True
    return True


def leads_away(kind: Any) -> bool:
    """Is an object of this class of ctypes, or something in it, the address of other memory?"""
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return any([leads_away(field[1]) for c in kind.__mro__ for field in c.__dict__.get("_fields_", ())])
    if issubclass(kind, ctypes.Array):
        return leads_away(kind._type_)
    return issubclass(kind, ctypes._Pointer) or (
        issubclass(kind, ctypes._SimpleCData) and kind._type_ in "PzZO"
    )


# --- what is noted on the way ---


def watch_memory(shadow: Any, a: Any) -> None:
    """From here on the memory of `a` may be changed by the engine only."""
    with LOCK:
        if not shadow.sums:
            shadow.sums = {}
        if id(a) not in shadow.sums:
            shadow.sums[id(a)] = [a, checksum(a)]


def is_whole(x: Any) -> bool:
    """Is this an array of integers or truth values that owns its memory?"""
    return type(x) is np.ndarray and x.base is None and x.dtype.kind in "biu"


def near_objects(x: Any, parents: dict | None = None, handles: list | None = None) -> list:
    """The first objects that x leads to, x itself among them."""
    return [*itertools.islice(walk([x], {} if parents is None else parents, GLANCE, handles), GLANCE)]


def leave_unshadowed(shadow: Any, x: Any) -> None:
    """x is left alone."""
    kind = type(x)
    if shadow.left and shadow.left[-1] is x:
        return
    if kind in LEAVES or issubclass(kind, types.ModuleType):
        return
    if kind is types.BuiltinFunctionType and type(x.__self__) is types.ModuleType and not is_unsearchable(x):
        return
    if issubclass(kind, type) and is_foreign(module_of(x)):
        return
    shadow.left.append(x)
    shadow.noted(x)
    if (
        kind is types.FunctionType
        or kind in FROZEN
        or module_of(kind) in QUIET
        or kind is np.ndarray
        and is_whole(x if x.base is None else x.base)
    ):
        return
    parents: dict = {}
    handles: list = []
    near = near_objects(x, parents, handles)
    shadow.near.append((near, parents))
    for found in near:
        if memory_range(found) is not None:
            shadow.reached += ((found, chain(found, parents)),)
            for a, v in shadow.arrays:
                if not v._version and shares_memory_with(a, found):
                    watch_memory(shadow, a)
    if (shadow, *OPEN.shadows)[:2][-1] is not shadow:  # it is not the outermost
        shadow.theirs += [v for _, v in handles]


def capture_array(shadow: Any, a: Any) -> None:
    """The array `a` is captured."""
    for w in shadow.wrote:
        if shares_memory_with(w, a):
            raise alias_error(shadow, a)
    for found, _ in shadow.reached:
        if shares_memory_with(a, found):
            watch_memory(shadow, a)


def first_write(shadow: Any, x: Variable) -> None:
    """A handle is about to be written for the first time."""
    for given, v in shadow.given:
        if v is x:
            for other, _ in shadow.arrays:
                if shares_memory_with(given, other):
                    raise alias_error(shadow, other)
            shadow.wrote += (given,)
            return
    if getattr(x, "_version", None) != 0:
        return  # made inside
    a = x._value  # mostly the array itself
    if shadow.seen.get(id(a)) is not x:
        a = next((a for a, v in shadow.arrays if v is x), None)
    if a is not None:
        for given, _ in shadow.given:
            if shares_memory_with(given, a):
                raise alias_error(shadow, a)
        watch_memory(shadow, a)


# --- what is found at the end ---


def strays(shadow: Any) -> tuple:
    """Objects behind what was left alone in which f has stored Variables, and these."""
    known = set(map(id, shadow.theirs))
    found: dict = {}
    stored: dict = {}
    for near, _ in shadow.near:
        parents: dict = {}
        handles: list = []
        alive = list(itertools.islice(walk(near, parents, GLANCE, handles), len(near) + GLANCE))
        for x, v in handles:
            if id(v) not in known:
                while type(x) in (tuple, frozenset) and (up := parents[id(x)]) is not None:
                    x = up  # which is to hold another one
                found[id(x)] = x
                stored[id(v)] = v
        del alive
    return list(found.values()), stored


def array_was_written(shadow: Any, v: Variable) -> bool:
    """(A handle that was turned to a copy, for another thread wrote the array, was not written by f.)"""
    return v._version > (id(v) in shadow.turned) if shadow.turned else v._version > 0


def written_arrays(shadow: Any) -> list:
    turned = shadow.turned
    return [a for a, v in shadow.arrays if v._version and (not turned or array_was_written(shadow, v))]


def finding(shadow: Any) -> RouteError | None:
    """Was an array written, or a holder given other contents, that f can reach by another way, or was an
    array changed by one?"""
    arrays = written_arrays(shadow) if shadow.left or shadow.reached else []
    if arrays:
        references = References(shadow, arrays)
        if all([module_of(type(x)) in QUIET for x in shadow.left]):
            # (of other objects, functions may share a cell or a list with f)
            arrays = [a for a in arrays if not references.is_followed(a)]
    looks = shadow.near or shadow.walked or not FROZEN.isdisjoint(map(type, shadow.left))
    changed = altered(shadow) if looks else {}
    if changed:
        for x, iterator in shadow.walked:
            if leads(x, changed):
                return two_ways(shadow, x, [iterator, x])
        for near, parents in shadow.near:
            for x in near:
                if leads(x, changed):
                    return two_ways(shadow, x, chain(x, parents))
    if arrays or changed:
        parents = {}
        closed: list = []  # ways to objects of C, which cannot be searched
        for x, way in itertools.chain(((x, None) for x in walk(shadow.left, parents)), shadow.reached):
            if changed and way is None and leads(x, changed):
                return two_ways(shadow, x, chain(x, parents))
            if arrays and memory_range(x) is not None:
                for a in arrays:
                    if shares_memory_with(a, x):
                        return reachable(shadow, a, way or chain(x, parents))
            if arrays and is_unsearchable(x):
                closed.append(way or chain(x, parents))
        if arrays and closed:
            a = references.kept_unseen(arrays, tuple([id(way[-1]) for way in closed]))
            if a is not None:
                return kept_unseen(shadow, a, closed[0])
    a = changed_meanwhile(shadow) if shadow.sums else None
    return (
        None
        if a is None
        else RouteError(
            f"{describe_place(shadow, a)} was changed while the function ran, by a way that tapegrad "
            "does not see (an extension module, a pointer, an object that is left alone): what the "
            f"function read of it may be old. {KEPT} Write it through its own name, or give the function "
            "tg.Const(array.copy()) of what is only read"
        )
    )


def changed_meanwhile(shadow: Any) -> Any:
    """Return an array whose checksum has changed, or None. (A transform of another thread that writes the
    array renews the checksum.)"""
    with LOCK:
        for a, before in shadow.sums.values():
            if before is not None and checksum(a) != before:
                return a
    return None


def altered(shadow: Any) -> dict:
    """(id -> None) holders whose contents are not what they were.  Of the namespace of a module, id -> the
    names.  By a way that was left alone f may have read there what they held before."""
    found = [change for change in holders(shadow) if change[0].altered(shadow, change)]
    return {
        id(holder): GlobalNames.other(new) if kind is GlobalNames else None for kind, holder, new, *_ in found
    }


def leads(x: Any, holders: dict) -> bool:
    """Is x one of these holders (as `altered` gives them), or a module or a function that reads one?"""
    kind = type(x)
    if kind is types.FunctionType:
        return (
            id(x) in holders
            or any([id(c) in holders for c in x.__closure__ or ()])
            or reads_rebound_name(x, holders)
        )
    if issubclass(kind, types.ModuleType):
        return id(vars(x)) in holders
    return id(x) in holders and holders[id(x)] is None


def reads_rebound_name(f: Any, holders: dict) -> bool:
    """Does the code of f name one of the names that were bound anew in its module, or in a module that it
    names?"""
    space = f.__globals__
    if not any(holders.values()) or type(space) is ModuleGlobals or is_foreign(space.get("__name__")):
        return False
    used = named_in(f.__code__)
    modules = [space[n] if n in space else sys.modules.get(n) for n in used]
    spaces = [space, *[vars(m) for m in modules if isinstance(m, types.ModuleType)]]
    return any([not used.isdisjoint(holders.get(id(s)) or ()) for s in spaces])


KEPT = "Nothing was written back."


def way_of(shadow: Any, way: list) -> str:
    """In words how the function reaches the end of a way that begins at an object left alone."""
    start = chain_between([shadow.f], way[0])
    return spelled(start + way[1:] if start else [None, *way])


def reachable(shadow: Any, a: Any, way: list) -> RouteError:
    return RouteError(
        f"{describe_place(shadow, a)} was written, and the function can reach the same memory as "
        f"{way_of(shadow, way)}, a way that is not followed: what it reads there is old. {KEPT} Reach the "
        "array by one way: through its name, an attribute, a list or a dict; or wrap what only needs its "
        "old numbers as tg.Const(array.copy())"
    )


def kept_unseen(shadow: Any, a: Any, way: list) -> RouteError:
    return RouteError(
        f"{describe_place(shadow, a)} was written, and something that does not show itself keeps it too. The "
        f"function can reach an object of compiled code, {way_of(shadow, way)}, which may read old numbers "
        f"there. {KEPT} Give that object a copy of the array, make it inside the function, or wrap the call "
        "by tapegrad.rule"
    )


def two_ways(shadow: Any, x: Any, way: list) -> RouteError:
    own = chain_between([shadow.f], x)
    what = f"the {type(x).__name__} {spelled(own) if own else ''}".rstrip()
    return RouteError(
        f"{function_name(shadow)}: {what} was given other contents, and the function can reach it as "
        f"{way_of(shadow, way)} too, a way that is not followed: what it reads by the one is not what it "
        f"stored by the other. {KEPT} Reach the object by one way: through its name, an attribute, a list or "
        "a dict"
    )


def alias_error(shadow: Any, a: Any) -> AliasError:
    return AliasError(
        f"{describe_place(shadow, a)} is captured by the function and shares memory with an argument, and "
        "one of the two is written: for NumPy they are one array, for a derivative two. Pass x.copy(), or "
        "use only the argument, or only the captured array, inside the function"
    )


def chain(x: Any, parents: dict) -> list:
    """From the start of a walk to x."""
    way = [x]
    while (parent := parents.get(id(way[-1]))) is not None:
        way.append(parent)
    return way[::-1]


def chain_between(starts: list, goal: Any) -> list:
    """The shortest way, or nothing."""
    parents: dict = {}
    for x in walk(starts, parents):
        if x is goal:
            return chain(x, parents)
    return []


def way_to(f: Any, goal: Any) -> str:
    """In words how f reaches an object; nothing if it cannot be told."""
    return spelled(chain_between([f], goal))


def way_to_tracked(f: Any) -> str:
    """How f reaches a tracked value."""
    parents: dict = {}
    handles: list = []
    deque(walk([f], parents, None, handles), 0)
    return next((spelled([*chain(x, parents), v]) for x, v in handles if is_tracked(v)), "a value")


def function_name(shadow: Any) -> str:
    f = shadow.f.func if isinstance(shadow.f, functools.partial) else shadow.f
    return getattr(f, "__name__", type(f).__name__)


def describe_place(shadow: Any, a: Any) -> str:
    """The captured array in words: how f reaches it, shape and dtype."""
    way = way_to(shadow.f, a)
    return (
        f"{function_name(shadow)}: the captured array {way + ' ' if way else ''}(shape {a.shape}, {a.dtype})"
    )


def spelled(way: list) -> str:
    """'item 0 of the deque `history` of `model`', for the objects from f to what is named."""
    words: list = []
    owner = None
    for n, (x, child) in enumerate(itertools.pairwise(way)):
        last, kind = n == len(way) - 2, type(child)
        if not last and kind is dict and child is own_dict(x):
            owner = x  # its attributes: the next one names them
            continue
        label = label_of(x if owner is None else owner, child)
        owner = None
        if last:
            words.append(label or "the contents")
        elif is_foreign(module_of(kind)) and kind is not types.FunctionType:
            words.append(f"the {kind.__name__} {label or ''}".rstrip())
        else:
            words.append(label or f"an object of {kind.__name__}")
    return " of ".join(words[::-1])


def own_dict(x: Any) -> Any:
    try:
        return object.__getattribute__(x, "__dict__")
    except (AttributeError, TypeError):
        return None


def label_of(x: Any, child: Any) -> str | None:
    """How a child is called within x, where that can be told."""
    kind = type(x)
    if kind is types.FunctionType:
        return next((name for name, c in of_function(x) if c is child), None)
    if issubclass(kind, dict):
        return next((f"item {k!r}" for k, v in x.items() if v is child), "a key")
    if issubclass(kind, (list, tuple, deque)) or issubclass(kind, np.ndarray) and x.dtype == object:
        return next(
            (f"item {n}" for n, v in enumerate(x.ravel() if isinstance(x, np.ndarray) else x) if v is child),
            None,
        )
    space = own_dict(x)
    if space is not None:
        return next((f"`{k}`" for k, v in space.items() if v is child), None)
    return None
