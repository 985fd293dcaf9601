"""What a kernel function can read from its surroundings, as it was when it was traced.

It is constant in the compiled code.  So before each launch it is compared with what it is now (_capture/dependencies.py): a kernel whose
surroundings
have changed is traced anew, and one whose captured array is being written by a function under differentiation refuses, for the
derivative through that array would be lost."""

import threading
from collections.abc import Callable
from typing import Any

from ..._capture.dependencies import Environment, Status, state
from ..._core.errors import DroppedDerivativeError, KernelError
from ..._core.scope import OPEN

TRIES = 10  # traces that met two states of what other threads change


class Unsteady(KernelError):
    """A function gave something else when it was traced again, and what it reads has changed meanwhile."""


def steadily(trace: Callable[[], Any], kernel: str) -> Any:
    """The program that `trace` gives, and whether it holds for more than this call."""
    for left in range(TRIES - 1, -1, -1):
        try:
            made = trace()
        except Unsteady:
            if not left:
                raise
            continue
        if made.g.captured is not None:
            made.g.captured.settle(kernel)
        return made


def is_alone() -> bool:
    """Does no other thread run Python code that may change something?"""
    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    return all([t.name.startswith("tapegrad_") for t in others])


class Captured:
    """What the functions of one trace can read."""

    def __init__(self) -> None:
        self.roots: list = []  # the functions that were traced
        self.before: list = []  # what each could read before
        self.environment: Any = None  # what all of them can read
        self.sources: list = []  # of random numbers, as they were before
        self.steady = True  # did nothing change while it was traced?
        self.alone = is_alone()

    def root(self, f: Callable) -> None:
        """f is about to be traced."""
        if not any([f is g for g in self.roots]):
            self.roots.append(f)
            self.before.append(Environment([f]))
            self.sources += [(x, state(x)) for x in self.before[-1].walk.sources]

    def settle(self, kernel: str) -> bool:
        """The trace is done.  Is it known that no other thread has changed anything meanwhile?  If not, it holds for one call only."""
        if self.environment is None:
            self.environment = Environment(self.roots)
            self.refuse_written(kernel)
            self.refuse_draws(kernel)
            self.steady = self.is_steady()
            self.before = []
        return self.steady

    def is_steady(self) -> bool:
        """Is all as it was before the trace, so far as can be told, but for what the function itself has changed?"""
        return self.alone and is_alone() or all([e.status() is not Status.CHANGED for e in self.before])

    def refuse_draws(self, kernel: str) -> None:
        """Raises KernelError where random numbers were drawn since the functions were met."""
        if any([state(x) != before for x, before in self.sources]):
            raise KernelError(
                f"{kernel}: random numbers were drawn while the function was traced. That happens once, and they would be the same in "
                "every launch: draw them outside and pass them as data"
            )

    def changed(self) -> bool:
        """Would the functions read anything else than they did, or can nobody tell?

        >>> import numpy as np
        >>> a = np.array([1.0, 2.0])
        >>> c = Captured()
        >>> c.root({"scale": a})
        >>> c.settle("scaled")
        True
        >>> before = c.changed()
        >>> a[0] = 3.0
        >>> before, c.changed()
        (False, True)
        """
        return not (self.steady and (self.environment.seen[1]() or self.environment.status() is Status.UNCHANGED))

    def refuse_written(self, kernel: str) -> None:
        """Raises DroppedDerivativeError where an open transform has written, or holds in another place, an array captured here."""
        unknown = self.environment.unknown
        for shadow in OPEN.shadows:
            if unknown is not None and any([v._version for _, v in shadow.arrays]):
                raise DroppedDerivativeError(
                    f"the kernel {kernel} reads {unknown}, and nothing tells whether that leads to an array that the function under "
                    "differentiation has written. What a kernel captures is constant: pass arrays as data or as parameters of the kernel"
                )
            for x in self.environment.walk.arrays:
                if getattr(shadow.seen.get(id(x)), "_version", 0):
                    raise DroppedDerivativeError(
                        f"the kernel {kernel} captures an array of shape {x.shape} that the function under differentiation has written. "
                        "What a kernel captures is constant: pass the array as data or as parameters of the kernel"
                    )
