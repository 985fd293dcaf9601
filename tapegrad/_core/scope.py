"""What a call of tapegrad has open in its thread, and the one place where all of it is put back.

`OPEN` holds this state.  A call changes it in a block `with opened():`, and `left` puts it back as it was, floating-point settings and
captured arrays included.  An interrupt can strike anywhere, also on the way out of the block.  So nothing relies on code that runs at
the end of the block: the block itself holds the only reference to an object, and when the frame lets go of that object, by whatever
way, what was not put back is put back.  Should this be interrupted too, then the next call completes it (`complete`)."""

import _thread
import contextvars
import functools
import os
import threading
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet, ref

import numpy as np

from .typing import AnyDict, AnyFunction, AnyList, AnyTuple

P = ParamSpec("P")
R = TypeVar("R")


class Open(threading.local):
    """What is open in this thread.  Its namespace is put back in one step."""

    depth: int  # how many transforms are open
    shadows: AnyTuple  # theirs (_capture)
    hiding: Any  # those that hide values
    copies: AnyTuple  # of each tape by hand, the copies that were made for writes (_transforms.tape.Tape.snapshots)
    of_one: bool  # is a call for all samples, or replays, run for one of them (implicit.sequential.py)?
    sweeping: Any  # is a tape being swept (_core.reverse)?
    watcher: Any  # who looks at each operation (_debug.anomalies)
    within: bool  # is an operation being done that the watcher is told of?
    again: bool  # are functions called again that SciPy has called (_transforms.rebind.once_more)?
    inside: Any  # what transforms are while a kernel is traced (kernels.trace.derivatives)
    tracer: Any  # the trace of a kernel (kernels.trace.tracing)
    source: bool  # do raw kernels run their CUDA C even where there is a function for the CPU?
    aliased: Any  # id -> handle of arguments that share memory (_transforms.call)
    listener: Any  # who notes what operations raise (_core.float_errors.Listening)
    dropped: Any  # errors raised since the innermost transform began; None outside of all (errors)
    sweeps: int  # how many sweeps run that other threads wait for (_capture.threads)
    unfinished: AnyTuple  # objects whose `end(error)` is due when the block is left
    block: Any  # the innermost block
    outside: Any  # what is open outside of all blocks

    def __init__(self) -> None:
        self.__dict__.update(CLOSED, outside=CLOSED)


CLOSED: dict[str, Any] = {
    **dict.fromkeys(("depth", "sweeps"), 0),
    **dict.fromkeys(("shadows", "hiding", "copies", "unfinished"), ()),
    **dict.fromkeys(("of_one", "within", "again", "source"), False),
    **dict.fromkeys(("sweeping", "watcher", "inside", "tracer", "listener", "dropped", "block", "outside")),
    "aliased": MappingProxyType({}),
}
OPEN = Open()
WATCHERS: AnyList = []  # those of all threads: empty, which is asked sooner than OPEN, nearly always


# --- floating-point settings ---
# NumPy keeps the setting in a context variable, and `np.errstate` makes it anew each time, which costs more than most operations on
# small arrays.  The variable is found by looking at what `np.errstate` changes in the context.


def _found() -> Any:
    before = contextvars.copy_context()
    with np.errstate(all="ignore"):
        inside = contextvars.copy_context()
    changed = [v for v in inside if inside[v] is not before.get(v)]
    return changed[0] if len(changed) == 1 else None


def _told() -> AnyTuple:
    return np.geterr(), np.geterrcall()


def _put(setting: AnyTuple) -> None:
    np.seterr(**setting[0])
    np.seterrcall(setting[1])


VARIABLE = _found()
# `now()`: the setting in force, an object that is never altered.  `put(setting)`: it is in force.  Both are compiled functions, so that
# no interrupt comes between `finally:` and `put(before)`.
now: Callable[[], Any] = _told if VARIABLE is None else VARIABLE.get
put: Callable[[Any], Any] = _put if VARIABLE is None else VARIABLE.set


def setting(**modes: Any) -> Any:
    """What `np.errstate(**modes)` sets, for `put`."""
    with np.errstate(**modes):
        return now()


# --- blocks ---


# A block is a list: a weak reference to what its frame holds, what was open before, and the floating-point settings of that time.


class Block:
    """A context of which nothing but the frame of its `with` statement holds the exit."""

    __slots__ = ("__enter__", "__exit__")
    __enter__: Any
    __exit__: Callable[..., None]


def opened() -> Block:
    """A context: what its block opens in this thread is closed when it is left."""
    state = OPEN.__dict__
    outer = state["block"]
    if outer is None:
        block = [None, state["outside"], now()]
    else:
        if outer[0]() is None:
            complete()
        block = [None, state.copy(), now()]
    context = Block()
    context.__exit__ = leave = partial(left, block)
    context.__enter__ = partial(state.__setitem__, "block", block)
    block[0] = ref(leave, complete)
    return context


def changed(**fields: Any) -> Block:
    """A context: the same, and in the block fields of `OPEN` have other values."""
    context = opened()
    block = context.__enter__.args[1]
    leave = partial(restored, block)
    block[0] = ref(leave, complete)
    context.__enter__, context.__exit__ = partial(OPEN.__dict__.update, fields, block=block), leave
    return context


def left(block: AnyList, kind: Any, error: Any, traceback: Any) -> None:
    """The block is left."""
    state, before = OPEN.__dict__, block[1]
    if error is None and state["unfinished"] is before["unfinished"]:
        state["block"], block[0] = before["block"], None
    else:
        close(state, block, error)


def restored(block: AnyList, kind: Any, error: Any, traceback: Any) -> None:
    """A block is left that has changed fields."""
    close(OPEN.__dict__, block, error)


def entry(f: Callable[P, R]) -> Callable[P, R]:
    """Each call of the function is a block."""

    @functools.wraps(f)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with opened():
            return f(*args, **kwargs)

    return called


def outside(**changes: Any) -> None:
    """What is open outside of all blocks changes."""
    state = OPEN.__dict__
    state.update(changes)
    if state["block"] is None:
        state["outside"] = {**state, "outside": None}


def close(state: AnyDict, block: AnyList, error: Any) -> None:
    """Put back what was open before the block.  What fails on the way is a note on the error, if there is one.  May be repeated."""
    before, watcher = block[1], state["watcher"]
    while watcher is not None and watcher is not before["watcher"]:
        if watcher in WATCHERS:
            WATCHERS.remove(watcher)
        watcher = watcher.outer
    if error is not None:
        put(block[2])
    now_outside, unfinished = state["outside"], len(before["unfinished"])
    state.update({**before, "unfinished": state["unfinished"], "block": block, "outside": now_outside})
    while len(state["unfinished"]) > unfinished:
        *others, last = state["unfinished"]
        try:
            last.end(error)
        except Exception as late:
            if error is None:
                raise
            error.add_note(f"{type(late).__name__}: {late}")
        state["unfinished"] = tuple(others)
    state.update({**before, "outside": now_outside})
    block[0] = None


class Interrupted(BaseException):
    """Stands for the error that ended a block and is no longer known."""


def complete(_: Any = None) -> None:
    """Blocks whose frames have let go of them, and that were not left in order, are left now."""
    state = OPEN.__dict__
    while state["block"] is not None and state["block"][0]() is None:
        close(state, state["block"], Interrupted())


class Exit:
    """The method `__exit__` of a context of which users write the block: it calls `left(*error)`, which may be repeated.  With `hold` in
    its `__enter__` that is called even if an interrupt comes before it."""

    def __get__(self, context: Any, owner: Any) -> Any:
        if context is None:
            return owner.left
        leave = partial(Exit.taken, context)
        context._exit_asked = ref(leave)
        return leave

    @staticmethod
    def taken(context: Any, *error: Any) -> None:
        context.left(*error)
        context._exit_held = None

    @staticmethod
    def hold(context: Any) -> None:
        if getattr(context, "_exit_asked", bool)():  # a `with` statement has asked for the exit, and holds it
            context._exit_held = ref(context._exit_asked(), lambda _: context.left())


def at_the_end_of_an_object(call: AnyFunction, *args: Any) -> None:
    """`call(*args)` in a `__del__`.  An interrupt there would be lost, for Python only prints it: it comes again afterwards."""
    try:
        call(*args)
    except KeyboardInterrupt:
        call(*args)
        _thread.start_new_thread(_thread.interrupt_main, ())  # (it waits until this thread has gone on)


# --- locks ---

LOCKS: WeakSet[Any] = WeakSet()


def lock() -> Any:
    """A reentrant lock.  In a child process it is free, whichever thread of the parent held it.  (Its methods are compiled: no interrupt
    comes between taking it and the block.)"""
    made = threading.RLock()
    LOCKS.add(made)
    return made


def forked() -> None:
    """A child has none of the parent's other threads."""
    for made in LOCKS:
        made._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)
