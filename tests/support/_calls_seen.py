"""The calls of NumPy's and SciPy's functions that tests/support/cases_*.py make: (function, arguments,
keywords), on plain arrays."""

import functools
import inspect

import numpy as np
from cases import all_cases

import tapegrad as tg
from tapegrad._core.primitive import values_of
from tapegrad.ops import protocols
from tapegrad.ops.declare import NUMPY


def plain_of(x):
    if isinstance(x, (list, tuple)):
        return type(x)([plain_of(v) for v in x]) if type(x) in (list, tuple) else x
    x = values_of(x)
    return x.copy() if isinstance(x, np.ndarray) else x


def described(x):
    """What tells one call from another."""
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype.str
    return tuple([described(v) for v in x]) if isinstance(x, (list, tuple)) else repr(x)


def active(x):
    return isinstance(x, float) or (isinstance(x, np.ndarray) and x.dtype.kind in "fc")


@functools.cache
def calls():
    """Each different call once."""
    seen: dict = {}
    before = dict(NUMPY)

    def noted(f, ours):
        @functools.wraps(ours)
        def run(*args, **kwargs):
            a, k = plain_of(args), {n: plain_of(v) for n, v in kwargs.items()}
            seen.setdefault((f.__name__, described(a), described(tuple(k.items()))), (f, a, k))
            return ours(*args, **kwargs)

        run.__signature__ = inspect.signature(ours)
        return run

    adapters = dict(protocols.ADAPTERS)
    try:
        protocols.ADAPTERS.clear()
        NUMPY.update({f: noted(f, ours) for f, ours in before.items()})
        with np.errstate(all="ignore"):
            for case in all_cases():
                x = [a.copy() if isinstance(a, np.ndarray) else a for a in case.inputs]
                with tg.Tape() as tape:
                    case.f(*[tape.watch(a) if active(a) else a for a in x])
    finally:
        NUMPY.update(before)
        protocols.ADAPTERS.clear()
        protocols.ADAPTERS.update(adapters)
    return list(seen.values())
