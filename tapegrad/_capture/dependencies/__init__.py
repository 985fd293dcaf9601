"""What the code of a function can read: the objects behind its names, by every route, and their values
now.

A walk starts at the function and follows all that its code may read. These are globals that it names,
cells, defaults and modules. Of objects and classes it follows the attributes, slots and methods whose
names occur in any code met on the way, and the members that syntax reads. It follows all members of
containers, and what partial objects, bound methods, weak references and caches lead to. So it finds a
superset of what a run reads, without running anything. Where names do not tell what is read (getattr,
vars), it follows all attributes.

The walk does not search code of the packages in `names.TRUSTED`. It searches all other code, the standard
library included. An object counts as searched only if all of its memory is known: attributes, slots, and
what a known C class holds. Anything else makes the walk `unknown`: a DataFrame, a clock, a file, an open
generator, globals(). An unknown object is never taken for unchanged.

A walk writes a `check`: a generated function that compares identities at some 30 nanoseconds a place.
`Environment` is the interface: it tells whether what functions can read is unchanged, changed, or unknown."""

import enum
import pickle
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ..._core.arrays import IMMUTABLE
from ..objects import snapshot
from .names import ANYTHING
from .walk import CompleteWalk, DependencyWalk, walk_with_names

# the lowest bits of Linux's number for the clock of a thread: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED
THREAD_CLOCK = 6


class Status(enum.Enum):
    """What is known of what functions can read."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    UNKNOWN = "unknown"


class Environment:
    """What the functions of `roots` can read outside of their arguments, as it was when it was looked at.

    `read_anew`, `names`, `apart`: see `DependencyWalk`. `before`: an environment of the same roots. Its walk
    is taken over where nothing has changed since then, and `read_anew` gives the same answers. `walk` and
    `same` are bound in one step: an interrupt leaves the old ones or the new ones.

    >>> box = {"a": 1.0}
    >>> e = Environment([box])
    >>> before = e.status()
    >>> box["a"] = 2.0
    >>> before, e.status()
    (<Status.UNCHANGED: 'unchanged'>, <Status.CHANGED: 'changed'>)
    """

    def __init__(
        self,
        roots: list,
        read_anew: Callable | None = None,
        names: frozenset = frozenset(),
        before: "Environment | None" = None,
        apart: Collection = (),
    ):
        self.roots, self.read_anew, self.names, self.apart = roots, read_anew, names, apart
        # places of the form that may change; None: nobody knows which
        self.free: frozenset | None = frozenset()
        self.seen: tuple = before.seen if before is not None and before.serves(read_anew) else self.looked()

    def serves(self, read_anew: Any) -> bool:
        """Return whether a walk with this `read_anew` would find now what this one has found."""
        walk, same = self.seen
        return same() and all([read_anew(x) == anew for x, anew in walk.decided])

    def looked(self) -> tuple:
        walk = walk_with_names(self.roots, self.read_anew, names=self.names, apart=self.apart)
        self.names = walk.names
        return walk, walk.check()

    @property
    def walk(self) -> DependencyWalk:
        return self.seen[0]

    @property
    def unknown(self) -> str | None:
        """What it is that cannot be told; None where all can."""
        return self.walk.unknown

    def status(self) -> Status:
        """The one answer to the question whether the functions would read now what they could read then."""
        walk, same = self.seen
        if same():
            return Status.UNCHANGED
        if walk.unknown is not None:
            return Status.UNKNOWN
        now = self.looked()
        if now[0].unknown is not None:
            return Status.UNKNOWN
        if now[0].form != walk.form:
            places = differing(walk.form, now[0].form)
            if self.free and places is not None and places <= self.free:
                return Status.UNCHANGED
            return Status.UNKNOWN if self.free is None else Status.CHANGED
        self.seen = now  # other objects of equal value
        return Status.UNCHANGED

    def after(self) -> "Environment":
        """The functions have run.  What they have changed themselves is free to change again."""
        if self.status() is Status.UNCHANGED:
            return self
        later = Environment(self.roots, self.read_anew)
        places = differing(self.walk.form, later.walk.form)
        atoms = places is not None and all([is_atom(later.walk.form[k]) for k in places])
        later.free = places if atoms else None
        return later


class OtherThreads:
    """What other threads have run so far.

    An environment may be the same before and after a call although another thread changed something in
    between. It cannot if no other thread has run. (Threads of tapegrad run no code that changes objects.)

    >>> OtherThreads().have_run()
    False
    """

    def __init__(self) -> None:
        self.times = self.now()

    @staticmethod
    def now() -> dict:
        here = threading.current_thread()
        others = [t for t in threading.enumerate() if t is not here and not t.name.startswith("tapegrad_")]
        return {t: processor_time(t) for t in others}

    def have_run(self) -> bool:
        """Return whether another thread has run since this object was made, or may have."""
        return self.now() != self.times


def processor_time(thread: threading.Thread) -> Any:
    """The time that a thread has run, in ns; an object equal to no other where nobody tells."""
    if thread.native_id is None or sys.platform != "linux":
        return object()
    try:
        return time.clock_gettime_ns(~thread.native_id << 3 | THREAD_CLOCK)
    except OSError:  # it has ended
        return object()


def differing(a: list, b: list) -> frozenset | None:
    """The places at which two forms differ; None where they have no places in common."""
    return (
        frozenset([k for k, (x, y) in enumerate(zip(a, b, strict=True)) if x != y])
        if len(a) == len(b)
        else None
    )


def is_atom(entry: Any) -> bool:
    """Is this entry of a form that of one number or text?"""
    return (
        type(entry) is tuple
        and len(entry) == 2
        and type(entry[0]) is type
        and (entry[0] in IMMUTABLE or issubclass(entry[0], np.generic))
    )


def held_by(x: Any) -> list:
    """What an object holds, all of its attributes included, so far as that can be told."""
    walk = CompleteWalk([x], ANYTHING)
    return [*walk.form, *[state(source) for source in walk.sources]]


def state(x: Any) -> bytes:
    """That of a source of random numbers, for comparison; empty for one that has none."""
    try:
        return pickle.dumps(snapshot(x))
    except NotImplementedError:
        return b""
