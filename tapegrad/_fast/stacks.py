"""Nested lists of numbers as arrays, with one tape open."""

from typing import Any

import numpy as np
from numpy import float64, ndarray

from .._tape import REGION, Tape, summed
from .._variable import Variable, new
from ..ops import shaping
from ..ops.shaping import packed, reshape
from .replacing import before, replaces

joined_generally = before(shaping.joined)
SEQUENCES = frozenset((list, tuple))


def pull_packed(G: list, owned: set, k: int, g: Any, slots: list, _: Any, out: Any, x: Any, y: Any) -> None:
    """The rule of numbers in an array: each has its element of the cotangent."""
    if type(g) is ndarray:
        parts = g.ravel()
    else:
        g = reshape(g, to=(-1,))
        parts = [g[n] for n in range(len(slots))]
    for s, c in zip(slots, parts, strict=True):
        if s is not None:
            h = G[s]
            G[s] = c if h is None else h + c if type(h) is float64 is type(c) else summed(h, c, s, owned)


pull_packed.prim = packed.prim


@replaces(shaping.joined)
def joined(x):
    rows = x if type(x[0]) in SEQUENCES else (x,)
    size = len(rows[0])
    trace, values, slots = None, [], []
    for row in rows:
        if type(row) not in SEQUENCES or len(row) != size:
            return joined_generally(x)
        for e in row:
            kind = type(e)
            slot = None
            if kind is Variable:
                other = e._trace
                if other is not None:
                    if other is not trace:
                        if trace is not None:
                            return joined_generally(x)
                        trace = other
                    slot = e._slot
                e = e._value
                kind = type(e)
            if kind is not float64 and (kind is not float or slot is not None):
                return joined_generally(x)
            values.append(e)
            slots.append(slot)
    if type(trace) is not Tape:
        return joined_generally(x)
    out = np.array(values)
    y = new(Variable)
    y._value = out if rows is not x else out.reshape(len(rows), size)
    y._trace = trace
    records = trace.records
    y._slot = len(records)
    records.append((pull_packed, slots, REGION, None, None, None, None))
    return y
