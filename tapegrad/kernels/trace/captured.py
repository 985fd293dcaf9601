"""Captured objects of a kernel function, and a check that they are as they were when it was traced.

Captured objects are constants of the compiled code. They are compared before each launch
(`_capture.dependencies`). If one has changed, the kernel is traced again. If a function under differentiation
writes a captured array, the kernel raises, because the derivative through that array would be lost."""

from collections.abc import Callable
from typing import Any

from ..._capture.dependencies import Environment, OtherThreads, Status, state
from ..._core.errors import DroppedDerivativeError, KernelError
from ..._core.scope import OPEN, lock

MOST_TRACES = 10  # traces that met two states of objects that other threads change


class UnstableTrace(KernelError):
    """A second trace gave another program, and captured objects have changed meanwhile."""


class TraceInProgress:
    """A trace that is not complete, in place of its CapturedState.

    A call that begins meanwhile waits for the end: what the trace has read may be older than the call."""

    def __init__(self) -> None:
        self.lock = lock()
        self.made: CapturedState | None = None

    def changed(self) -> bool:
        with self.lock:
            return self.made is not None and self.made.changed()

    def enter(self, kernel: str) -> None:
        with self.lock:
            if self.made is not None:
                self.made.enter(kernel)


def steadily(trace: Callable[[], Any], kernel: str, captured: list):
    """Return the program of `trace`; list in `captured` what it has read."""
    pending = TraceInProgress()
    with pending.lock:
        captured.append(pending)
        try:
            made = stable_program(trace)
            found = pending.made = made.g.captured
            if found is not None:
                found.settle(kernel)
                if found not in captured:
                    captured.append(found)
        finally:
            captured.remove(pending)
    return made


def stable_program(trace: Callable[[], Any]):
    """Trace again while other threads change captured objects.

    If another thread has run during a trace, a second one must be alike. Otherwise the program is valid for
    this call alone."""
    before = None
    for left in range(MOST_TRACES - 1, -1, -1):
        others = OtherThreads()
        try:
            made = trace()
        except UnstableTrace:
            if not left:
                raise
            continue
        captured = made.g.captured
        if captured is None or not others.have_run() or made.is_like(before):
            return made
        before = made
    captured.steady = False
    return made


class CapturedState:
    """The objects that the functions of one trace can read."""

    def __init__(self) -> None:
        self.roots: list = []  # the functions that were traced
        self.before: list = []  # the objects that each could read before
        self.environment: Any = None  # the objects that all of them can read
        self.sources = []  # generators of random numbers, in their former state
        self.steady = True  # did nothing change during the trace?
        self.others = OtherThreads()

    def root(self, f: Callable) -> None:
        """Register f before it is traced."""
        if not any([f is g for g in self.roots]):
            self.roots.append(f)
            self.before.append(Environment([f]))
            self.sources += [(x, state(x)) for x in self.before[-1].walk.sources]

    def settle(self, kernel: str) -> bool:
        """Complete the trace; return whether it is valid for later calls.

        It is not if another thread may have changed something meanwhile."""
        if self.environment is None:
            self.environment = Environment(self.roots)
            self.enter(kernel)
            self.refuse_draws(kernel)
            self.steady = self.steady and self.is_steady()
            self.before = []
        return self.steady

    def is_steady(self) -> bool:
        """Return whether everything is as before the trace, except for changes by the function itself."""
        return not self.others.have_run() or all([e.status() is not Status.CHANGED for e in self.before])

    def refuse_draws(self, kernel: str) -> None:
        """Raise KernelError if random numbers were drawn since the functions were registered."""
        if any([state(x) != before for x, before in self.sources]):
            raise KernelError(
                f"{kernel}: random numbers were drawn while the function was traced. That happens once, and "
                "they would be the same in every launch: draw them outside and pass them as data"
            )

    def changed(self) -> bool:
        """Would the functions read anything else than they did, or can nobody tell?

        >>> import numpy as np
        >>> a = np.array([1.0, 2.0])
        >>> c = CapturedState()
        >>> c.root({"scale": a})
        >>> c.settle("scaled")
        True
        >>> before = c.changed()
        >>> a[0] = 3.0
        >>> before, c.changed()
        (False, True)
        """
        return not (
            self.steady and (self.environment.seen[1]() or self.environment.status() is Status.UNCHANGED)
        )

    def enter(self, kernel: str) -> None:
        """Tell open recordings, before a call, that the arrays captured here are constants.

        Raise DroppedDerivativeError if an open transform has written, or moved, one of them."""
        walk = self.environment.walk
        for trace in OPEN.hiding:
            for x in walk.arrays:
                trace.freeze(x)
        unknown = walk.unknown
        for shadow in OPEN.shadows if walk.arrays or unknown is not None else ():
            if unknown is not None and any([v._version for _, v in shadow.arrays]):
                raise DroppedDerivativeError(
                    f"the kernel {kernel} reads {unknown}, and nothing tells whether that leads to an array "
                    "that the function under differentiation has written. What a kernel captures is "
                    "constant: pass arrays as data or as parameters of the kernel"
                )
            for x in walk.arrays:
                if getattr(shadow.seen.get(id(x)), "_version", 0):
                    raise DroppedDerivativeError(
                        f"the kernel {kernel} captures an array of shape {x.shape} that the function under "
                        "differentiation has written. What a kernel captures is constant: pass the array as "
                        "data or as parameters of the kernel"
                    )
