"""What a kernel function can read from its surroundings, as it was when it was traced.

It is constant in the compiled code.  So before each launch it is compared with what it is now (_reads.py): a kernel whose surroundings
have changed is traced anew, and one whose captured array is being written by a function under differentiation refuses, for the
derivative through that array would be lost."""

from collections.abc import Callable

from ..._reads import state, walked
from ..._scope import OPEN
from ...errors import DroppedDerivativeError, KernelError


class Captured:
    """What the functions of one trace can read."""

    def __init__(self) -> None:
        self.roots: list = []  # the functions that were traced
        self.sources: list = []  # of random numbers, as they were before

    def root(self, f: Callable) -> None:
        """f is about to be traced."""
        if not any([f is g for g in self.roots]):
            self.roots.append(f)
            self.sources += [(x, state(x)) for x in walked([f]).sources]

    def settle(self, kernel: str) -> None:
        """The trace is done: what the function itself did to lists of its own is part of it."""
        self._look()
        self.refuse_written(kernel)
        self.refuse_draws(kernel)

    def refuse_draws(self, kernel: str) -> None:
        """Raises KernelError where random numbers were drawn since the functions were met."""
        if any([state(x) != before for x, before in self.sources]):
            raise KernelError(
                f"{kernel}: random numbers were drawn while the function was traced. That happens once, and they would be the same in "
                "every launch: draw them outside and pass them as data"
            )

    def _look(self) -> None:
        self.walk = walked(self.roots)
        self.same = self.walk.check()  # is all as it was?  If not, it may still be equal

    def changed(self) -> bool:
        """Would the functions read anything else than they did?

        >>> import numpy as np
        >>> a = np.array([1.0, 2.0])
        >>> c = Captured()
        >>> c.root({"scale": a})
        >>> c.settle("scaled")
        >>> before = c.changed()
        >>> a[0] = 3.0
        >>> before, c.changed()
        (False, True)
        """
        if self.same():
            return False
        before = self.walk
        self._look()
        if before.volatile or self.walk.volatile or before.form != self.walk.form:
            self.walk, self.same = before, bool  # stays changed
            return True
        return False

    def refuse_written(self, kernel: str) -> None:
        """Raises DroppedDerivativeError where an open transform has written, or holds in another place, an array captured here."""
        for shadow in OPEN.shadows:
            for x in self.walk.arrays:
                if getattr(shadow.seen.get(id(x)), "_version", 0):
                    raise DroppedDerivativeError(
                        f"the kernel {kernel} captures an array of shape {x.shape} that the function under differentiation has written. "
                        "What a kernel captures is constant: pass the array as data or as parameters of the kernel"
                    )
