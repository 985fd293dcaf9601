"""Sealed mode (`pytest --sealed`): every array that a record keeps is hashed when it is recorded, and
compared when it is swept.

`sealed()` is the same for a few lines; a test marked `unsealed` alters what records keep on purpose, to see
what else notices. The tape's list of records becomes a `Sealed`; nothing else differs."""

import contextlib
import hashlib
import types

import numpy as np

from tapegrad._core.arrays import is_array, xp_of
from tapegrad._core.reverse import AdaptedRule, Tape, primitive_of
from tapegrad._core.variable import Variable
from tapegrad.testing.hosted.runtime import uncounted


class BrokenSealError(AssertionError):
    pass


def arrays_in(x, depth=0):
    """The plain arrays that x holds: below all levels, tangents, in containers, in what a rule has closed
    over."""
    if isinstance(x, Variable):
        yield from arrays_in(x._value, depth)
        if x._trace is not None and x._trace.holds:
            yield from arrays_in(x._slot, depth)
    elif is_array(x):
        yield x
    elif isinstance(x, (tuple, list)):
        for v in x:
            yield from arrays_in(v, depth)
    elif isinstance(x, dict):
        yield from arrays_in(list(x.values()), depth)
    elif isinstance(x, slice):
        yield from arrays_in((x.start, x.stop, x.step), depth)
    elif isinstance(x, AdaptedRule):
        yield from arrays_in(x.rule, depth)
    elif isinstance(x, types.FunctionType) and x.__closure__ and depth < 3:
        for cell in x.__closure__:
            with contextlib.suppress(ValueError):  # an empty cell
                yield from arrays_in(cell.cell_contents, depth + 1)


def contents(a):
    """Its bytes; without a copy where that can be, so that the seal takes no memory that a test would
    count."""
    if not a.size:
        return b""
    a = a if xp_of(a) is np else a.get()
    return np.ascontiguousarray(a).view(np.uint8) if not a.dtype.hasobject else a.tobytes()


def seal_of(record):
    with uncounted():
        return [hashlib.blake2b(contents(a)).digest() for a in arrays_in(record)]


def checked(record, seal):
    """The record, if it is as it was when it was sealed."""
    now = seal_of(record)
    if now != seal:
        shapes = [a.shape for a in arrays_in(record)]
        where = [n for n, (a, b) in enumerate(zip(now, seal, strict=False)) if a != b]
        raise BrokenSealError(
            f"a record of {primitive_of(record).name} was altered: kept arrays {where} of shapes {shapes}; "
            f"kept: {record[4:]}"
        )
    return record


class Sealed(list):
    total = 0  # arrays that were sealed, by all tapes

    def __init__(self):
        super().__init__()
        self.seals = []

    def append(self, record):
        super().append(record)
        seal = seal_of(record)
        self.seals.append(seal)
        Sealed.total += len(seal)

    def __getitem__(self, k):
        record = super().__getitem__(k)
        return record if record is None or isinstance(k, slice) else checked(record, self.seals[k])


@contextlib.contextmanager
def sealed(kind=Sealed):
    before, Tape.Records = Tape.Records, kind
    try:
        yield
    finally:
        Tape.Records = before
