"""Sweeps for many directions: by a batch of them at once, or one after another where they are few or a rule
refuses."""

from typing import Any

import numpy as np

from .._core.arrays import is_array, xp_of
from .._core.errors import Attempt, TapegradError
from .._core.primitive import Primitive, layout_of
from .._core.scope import scope_block
from .._core.typing import AnyDict, AnyFunction, AnyList
from ..ops import shaping
from ..ops.declare import dtype, shape, xp
from .batching.rules import CustomRule
from .batching.trace import Batch
from .call import RecordedCall

FEW_SWEEPS = 8  # sweeps that are done one after another sooner than at once
SWEEP_BYTES = 1 << 19  # bytes of an array for all samples of a sweep; beyond, nothing is gained
SHARED_SWEEPS = 4  # sweeps at once where an operation shares work among them
IN_TURN = 16  # directions of which a replay does one after another sooner


def few_or_many(call: str, r: RecordedCall, sweep: AnyFunction, V: Any) -> AnyDict:
    """`for_each` of a recording that is replayed: there a few directions are one text."""
    if shape(V)[0] > IN_TURN:
        return for_each(call, r, sweep, [V])
    return sweep_in_turn(sweep, [V], shape(V)[0])


def empty_rows(x: Any) -> Any:
    return xp_of(layout_of(x)).zeros((0, *shape(x)), dtype(x))


def for_each(call: str, r: RecordedCall, sweep: AnyFunction, rows: AnyList) -> AnyDict:
    """key -> stacked results of `sweep`, which takes one of the rows of each array and gives a dict."""
    count, least = shape(rows[0])[0], FEW_SWEEPS
    if shares_work(r):
        least = min(count, SHARED_SWEEPS)
    if count >= max(least, 2):
        at_once = max(1, SWEEP_BYTES // max(largest_cotangent(r), 1))
        if at_once >= FEW_SWEEPS or least < FEW_SWEEPS:
            at_once = max(at_once, least)
            found = swept_at_once(call, sweep, rows, count, at_once)
            if found is not None:
                return found
    return sweep_in_turn(sweep, rows, count)


def sweep_in_turn(sweep: AnyFunction, rows: AnyList, count: int) -> AnyDict:
    each = [sweep([v[n] for v in rows]) for n in range(count)]
    return {key: shaping.stack([found[key] for found in each]) for key in each[0]}


def largest_cotangent(r: RecordedCall) -> int:
    """Bytes of the largest cotangent of the sweep, as far as its records tell."""
    most = max([8 * int(np.prod(shape(x))) for x in r.inputs.watched.values()], default=1)
    for record in r.tape.records:
        if record is not None:
            _, i, _, j, out, x, y = record
            if type(out) is np.ndarray and out.nbytes > most:
                most = out.nbytes
            if i is not None and type(x) is np.ndarray and x.nbytes > most:
                most = x.nbytes
            if j is not None and type(y) is np.ndarray and y.nbytes > most:
                most = y.nbytes
    return most


def shares_work(r: RecordedCall) -> bool:
    """Does an operation of the recording cost much less for several sweeps at once?"""
    return any(
        [
            type(prim) is Primitive and type(prim.batch) is CustomRule and prim.batch.shares(record[-1])
            for record in r.tape.records
            if record is not None
            for prim in record[:1]
        ]
    )


def swept_at_once(call: str, sweep: AnyFunction, rows: AnyList, count: int, at_once: int) -> AnyDict | None:
    """By a batch of sweeps.  None where a rule needs what a batch does not give: then one after another."""
    parts = []
    for start in range(0, count, at_once):
        some = [v[start : start + at_once] for v in rows]
        # a rule of the user's, say, may take plain arrays only
        with Attempt(of=(TapegradError, TypeError)) as tried:
            with scope_block():
                trace = Batch(call, shape(some[0])[0])
                found = sweep([trace.watch(v, 0) for v in some])
                parts.append({key: trace.stacked(v) for key, v in found.items()})
                trace.close()
        if tried.failed:
            return None
    return (
        parts[0]
        if len(parts) == 1
        else {key: shaping.concatenate(*[p[key] for p in parts], axis=0) for key in parts[0]}
    )


def basis(x: Any) -> Any:
    """The unit arrays of the shape of x, as rows."""
    s = shape(x)
    library = xp(x) if is_array(layout_of(x)) else np
    n = int(np.prod(s))
    return library.eye(n, dtype=dtype(x)).reshape((n, *s))
