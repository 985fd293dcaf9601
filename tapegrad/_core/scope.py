"""The state that calls of tapegrad have open in a thread, and the one place that restores it.

`OPEN` holds the state. A call changes it in a block `with opened():`. `leave_block` restores it, with
floating-point settings and captured arrays. An interrupt may strike at any point, also during the exit of the
block. So nothing relies on code at the end of the block. The frame of the block holds the only reference to
an exit object. When the frame drops that object, for any reason, `leave_abandoned_blocks` restores the state.
If that is interrupted too, the next call completes it."""

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


class ThreadScope(threading.local):
    """The open state of this thread. Its namespace is restored in one step."""

    depth: int  # how many transforms are open
    shadows: AnyTuple  # theirs (_capture)
    hiding: Any  # those that hide values
    # of each tape by hand, the copies that were made for writes (_transforms.tape.Tape.snapshots)
    copies: AnyTuple
    of_one: bool  # is a call for all samples, or replays, run for one of them (implicit.sequential.py)?
    sweeping: Any  # the tape that is being swept (_core.reverse)
    apart: bool  # is the next call of a transform a part of a sweep (_transforms.call.RecordedCall)?
    watcher: Any  # the watcher of each operation (testing.diagnostics.anomalies)
    within: bool  # is an operation running that the watcher will be told of?
    again: bool  # are functions called again that SciPy has called before (_transforms.rebind.once_more)?
    inside: Any  # the transforms that are used while a kernel is traced (kernels.trace.derivatives)
    tracer: Any  # the trace of a kernel (kernels.trace.tracing)
    source: bool  # do raw kernels run their CUDA C even where there is a function for the CPU?
    aliased: Any  # id -> handle of arguments that share memory (_transforms.call)
    listener: Any  # who notes what operations raise (_core.float_errors.ErrorListener)
    dropped: Any  # errors raised since the innermost transform began; None outside of all (errors)
    # what replays have found unchanged, in a block in which nothing else runs (replay.signature)
    compared: Any
    # the comparisons that found equal numbers in a call of followed code (_core.equal_numbers)
    equalities: Any
    sweeps: int  # how many sweeps run that other threads wait for (_capture.threads)
    unfinished: AnyTuple  # objects whose `end(error)` is due when the block is left
    block: Any  # the innermost block
    outside: Any  # the state outside of all blocks

    def __init__(self) -> None:
        self.__dict__.update(CLOSED, outside=CLOSED)


CLOSED: dict[str, Any] = {
    **dict.fromkeys(("depth", "sweeps"), 0),
    **dict.fromkeys(("shadows", "hiding", "copies", "unfinished"), ()),
    **dict.fromkeys(("of_one", "within", "again", "source", "apart"), False),
    **dict.fromkeys(
        (
            "sweeping",
            "watcher",
            "inside",
            "tracer",
            "listener",
            "dropped",
            "compared",
            "equalities",
            "block",
            "outside",
        )
    ),
    "aliased": MappingProxyType({}),
}
OPEN = ThreadScope()
WATCHERS: AnyList = []  # those of all threads: empty, which is asked sooner than OPEN, nearly always


# --- floating-point settings ---
# NumPy keeps the setting in a context variable. `np.errstate` makes a new setting on each use, which
# costs more than most operations on small arrays. The variable is identified as the one that
# `np.errstate` changes in the context.


def error_of_block() -> Any:
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


VARIABLE = error_of_block()
# `now()` returns the current setting, an immutable object. `put(setting)` makes it current. Both are
# compiled functions, so no interrupt can come between `finally:` and `put(before)`.
now: Callable[[], Any] = _told if VARIABLE is None else VARIABLE.get
put: Callable[[Any], Any] = _put if VARIABLE is None else VARIABLE.set


def setting(**modes: Any) -> Any:
    """The setting that `np.errstate(**modes)` makes, for `put`."""
    with np.errstate(**modes):
        return now()


quiet = partial(np.errstate, all="ignore")


# --- blocks ---


# A block is a list: a weak reference to the object that its frame holds, the state before, and the
# floating-point setting before.


class ScopeBlock:
    """A context whose exit is held only by the frame of its `with` statement."""

    __slots__ = ("__enter__", "__exit__")
    __enter__: Any
    __exit__: Callable[..., None]


def scope_block() -> ScopeBlock:
    """A context. On exit it closes everything that its block opened in this thread."""
    state = OPEN.__dict__
    outer = state["block"]
    if outer is None:
        block = [None, state["outside"], now()]
    else:
        if outer[0]() is None:
            leave_abandoned_blocks()
        block = [None, state.copy(), now()]
    context = ScopeBlock()
    context.__exit__ = leave = partial(leave_block, block)
    context.__enter__ = partial(state.__setitem__, "block", block)
    block[0] = ref(leave, leave_abandoned_blocks)
    return context


def changed(**fields: Any) -> ScopeBlock:
    """The same context, with new values of fields of `OPEN` inside the block."""
    context = scope_block()
    block = context.__enter__.args[1]
    leave = partial(restore_fields, block)
    block[0] = ref(leave, leave_abandoned_blocks)
    context.__enter__, context.__exit__ = partial(OPEN.__dict__.update, fields, block=block), leave
    return context


def leave_block(block: AnyList, kind: Any, error: Any, traceback: Any) -> None:
    """Exit of a block."""
    state, before = OPEN.__dict__, block[1]
    if error is None and state["unfinished"] is before["unfinished"]:
        state["block"], block[0] = before["block"], None
    else:
        close(state, block, error)


def restore_fields(block: AnyList, kind: Any, error: Any, traceback: Any) -> None:
    """Exit of a block that changed fields."""
    close(OPEN.__dict__, block, error)


def entry(f: Callable[P, R]) -> Callable[P, R]:
    """A decorator: each call of the function is a block."""

    @functools.wraps(f)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with scope_block():
            return f(*args, **kwargs)

    return called


def outside(**changes: Any) -> None:
    """Change the state outside of all blocks."""
    state = OPEN.__dict__
    state.update(changes)
    if state["block"] is None:
        state["outside"] = {**state, "outside": None}


def close(state: AnyDict, block: AnyList, error: Any) -> None:
    """Restore the state before the block. An exception on the way becomes a note on `error`, if there is
    one. May be repeated."""
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


class UnknownError(BaseException):
    """Stands for the error that ended a block, if it is no longer known."""


def leave_abandoned_blocks(_: Any = None) -> None:
    """Exit the blocks whose frames have dropped them without a regular exit."""
    state = OPEN.__dict__
    while state["block"] is not None and state["block"][0]() is None:
        close(state, state["block"], UnknownError())


class Exit:
    """The method `__exit__` of contexts that users open. It calls `leave_block(*error)`, which may be
    repeated. If `__enter__` calls `hold`, the exit runs even if an interrupt comes first."""

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
    """Run `call(*args)` in a `__del__`. Python only prints an exception there, so an interrupt would be
    lost. It is raised again afterwards."""
    try:
        call(*args)
    except KeyboardInterrupt:
        call(*args)
        # (the new thread waits until this one continues)
        _thread.start_new_thread(_thread.interrupt_main, ())


def at_the_end_of(owner: Any, name: str) -> None:
    """Run `finish()` of an attribute so; it is lacking if an exception ended the constructor."""
    if (value := getattr(owner, name, None)) is not None:
        at_the_end_of_an_object(value.finish)


# --- locks ---

LOCKS: WeakSet[Any] = WeakSet()


def lock() -> Any:
    """A reentrant lock. It is free in a child process, even if a thread of the parent held it. (Its
    methods are compiled, so no interrupt can come between acquiring it and the block.)"""
    made = threading.RLock()
    LOCKS.add(made)
    return made


def reset_scopes() -> None:
    """Free the locks in a forked child, which has none of the parent's other threads."""
    for made in LOCKS:
        made._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_scopes)
