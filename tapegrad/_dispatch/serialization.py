"""Functions of `json` and NumPy that write texts and files of tracked values, and those that read numbers."""

import functools
import json
from collections.abc import Callable

import numpy as np

from .._core.primitive import any_tracked, is_tracked, values_of
from .._core.serialized import note_written, refuse_written
from .._core.trees import nested
from .._core.variable import HANDLES

WRITERS = frozenset((
    json.dump, json.dumps, np.save, np.savez, np.savez_compressed, np.savetxt, np.array2string, np.array_repr,
    np.array_str, np.format_float_positional, np.format_float_scientific,
))  # fmt: skip
READERS = frozenset((json.load, json.loads, np.load, np.loadtxt, np.genfromtxt, np.fromfile, np.fromstring))


@nested
def note_values(x):
    if type(x) in HANDLES and is_tracked(x):
        values = np.asarray(values_of(x))
        note_written(values)
        if not values.shape:
            note_written(repr(values.item()))
    return x


def writer(f: Callable, run: Callable) -> Callable:
    """`run`, the stand-in for a function f that writes its arguments."""

    @functools.wraps(f)
    def write(*args, **kwargs):
        y = run(*args, **kwargs)
        if any_tracked((args, kwargs)):
            note_values([*args, *kwargs.values()])
            if isinstance(y, str):
                note_written(y)
        return y

    return write


def reader(f: Callable, run: Callable) -> Callable:
    """`run`, the stand-in for a function f that reads numbers.  It raises where they were tracked."""

    @functools.wraps(f)
    def read(*args, **kwargs):
        y = run(*args, **kwargs)
        members = y.values() if isinstance(y, np.lib.npyio.NpzFile) else [values_of(y)]
        for x in (*args[:1], *[x if isinstance(x, np.ndarray) else str(x) for x in members]):
            if isinstance(x, (str, bytes, np.ndarray)):
                refuse_written(x, f"{f.__module__}.{f.__name__}")
        return y

    return read


def noting(f: Callable, run):
    """The stand-in of a function, with what it writes or reads noted or compared."""
    return writer(f, run) if f in WRITERS else reader(f, run) if f in READERS else run
