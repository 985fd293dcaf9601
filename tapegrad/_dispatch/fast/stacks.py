"""Nested lists of numbers as arrays, on a tape at any level, and in forward mode."""

from typing import Any

import numpy as np
from numpy import float64, ndarray

from ..._core.forward import Dual
from ..._core.primitive import RECORDED
from ..._core.reverse import REGION, Tape, add_cotangents
from ..._core.variable import DIRECT, HANDLES, ArrayVariable, bottom, new, variable
from ...ops import shaping
from ...ops.shaping import packed, reshape
from .replacing import before, replaces

joined_generally = before(shaping.joined)
SEQUENCES, TANGENTS = frozenset((list, tuple)), frozenset((float64, type(None)))


def pull_packed(G: list, owned: set, k: int, g, slots: list, _, out, x, y) -> None:
    """The pullback of numbers packed in an array: each gets its element of the cotangent."""
    parts: Any
    if type(g) is ndarray:
        parts = g.ravel()
    else:
        g = g if len(g.shape) == 1 else reshape(g, to=(-1,))
        parts = [g[n] for n in range(len(slots))]
    for s, c in zip(slots, parts, strict=True):
        if s is not None:
            h = G[s]
            G[s] = (
                c if h is None else h + c if type(h) is float64 is type(c) else add_cotangents(h, c, s, owned)
            )


vars(pull_packed)["prim"] = packed.prim


@replaces(shaping.joined)
def joined(x):
    flat, to = x, (len(x),)
    if type(x[0]) in SEQUENCES:
        flat, to = [], (len(x), len(x[0]))
        for row in x:
            if type(row) not in SEQUENCES or len(row) != to[1]:
                return joined_generally(x)
            flat += row
    trace, deep, values, slots = None, False, [], []
    for e in flat:
        slot, kind = None, type(e)
        if kind in DIRECT:
            other, slot, e = e._trace, e._slot, e._value
            if other is not trace and other is not None:
                if trace is not None:
                    return joined_generally(x)
                trace = other
            kind = type(e)
            if kind in HANDLES and slot is not None and issubclass(type(bottom(e)), float64):
                deep, kind = True, float64
            # what shows no values
            elif slot is not None and trace.visibility == RECORDED and issubclass(kind, float64):
                kind = float64
        if kind is not float64 and (kind is not float or slot is not None):
            return joined_generally(x)
        values.append(e)
        slots.append(slot)
    kind = type(trace)
    if kind is Dual and not deep and TANGENTS.issuperset(map(type, slots)):
        tangents = np.array([0.0 if t is None else t for t in slots])
        return variable(np.array(values).reshape(to), trace, tangents.reshape(to))
    if not isinstance(trace, Tape):
        if trace is not None and trace.visibility == RECORDED and None not in slots:
            return trace.step(packed.prim, flat, values, tuple(slots), {"to": to})
        return joined_generally(x)
    y = new(ArrayVariable)
    below = values[0]._trace if deep and type(values[0]) in DIRECT else None
    if (
        below is not None
        and below.visibility == RECORDED
        and all([type(e) in DIRECT and e._trace is below for e in values])
    ):
        y._value = below.step(packed.prim, values, values, tuple([e._slot for e in values]), {"to": to})
    elif deep:  # numbers of lower levels
        y._value = joined(
            values if flat is x else [values[n : n + to[1]] for n in range(0, len(values), to[1])]
        )
    else:
        y._value = np.array(values).reshape(to)
    y._trace = trace
    records = trace.records
    y._slot = len(records)
    records.append((pull_packed, slots, REGION, None, None, None, None))
    return y
