"""Loops within a tape over a recording, swept by the trip.

A loop of Python leaves records that repeat, trip by trip.  The sweep of one trip is determined by its records
and by the cotangents that it finds.  So if the records of a trip are those of the one swept last, but for
numbers that have moved on, and if the cotangents between the last two trips were the same but for that, too,
then what the rules of this trip would do is known without asking them: the instructions of the last trip,
with their operands moved.  They are done by their numbers.

What is compared is all that the rules see: a number of the recording has moved as its place in the records
says, or it is the same one; anything else is equal."""

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from ..._core.arrays import copy_with_layout, is_array, is_scalar, same_bits
from ..._core.primitive import ADD_AT, ASSIGN, READ, EndedTrace, Primitive
from ..._core.reverse import PART as ONE_OF_SEVERAL
from ..._core.reverse import REGION, AdaptedRule, RecordMark, ShapeStandIn, primitive_of
from ..._core.variable import HANDLES
from ...ops.indexing.regions import basic, laid_out_copy
from ..costs import (
    ALIKE_RECORDS,
    COMPARED_RECORDS,
    FORM_SHARE,
    SWEEP_RECORDS,
    SWEEP_TRIP_RECORDS,
    SWEEP_TRIPS,
    TRIP_MULTIPLES,
    TRIPS_TRIED,
)
from .instructions import CONSTANT, PART, instruction_form, is_pure

REGIONS = frozenset((READ, ASSIGN, ADD_AT))


class TripMismatch(Exception):
    """Two trips are not the same."""


# --- which records repeat ---


def record_codes(records: list) -> ndarray:
    keys = [
        (r[0].rule if type(r[0]) is AdaptedRule else r[0], r[2].rule if type(r[2]) is AdaptedRule else r[2])
        for r in records
    ]
    code = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    return np.array([code[key] for key in keys])


def record_distances(codes: ndarray) -> list:
    """The most frequent distances from some codes to the next that are the same."""
    h = np.zeros(len(codes) - ALIKE_RECORDS + 1, np.int64)
    for k in range(ALIKE_RECORDS):
        h = h * (codes.max() + 1) + codes[k : k + len(h)]
    order = np.argsort(h, kind="stable")
    near = np.diff(order)[h[order[1:]] == h[order[:-1]]]
    found, counts = np.unique(near[near <= SWEEP_TRIP_RECORDS], return_counts=True)
    return found[np.argsort(-counts, kind="stable")][:12].tolist()


def longest(codes: ndarray) -> tuple | None:
    """(start, period, trips) of the longest run of codes that repeat."""
    best, most = None, 0
    for p in record_distances(codes):
        edges = np.concatenate([[-1], np.flatnonzero(codes[:-p] != codes[p:]), [len(codes) - p]])
        gaps = np.diff(edges) - 1
        n = int(gaps.argmax())
        if gaps[n] > most and gaps[n] >= (SWEEP_TRIPS - 1) * p:
            best, most = (int(edges[n]) + 1, p, (int(gaps[n]) + p) // p), gaps[n]
    return best


def repeated_runs(codes: ndarray, first: int = 0) -> Iterator[tuple]:
    """Runs of codes that repeat, from the last to the first."""
    found = longest(codes) if len(codes) > 4 * SWEEP_TRIPS else None
    if found is not None:
        start, period, trips = found
        stop = start + period * trips
        yield from repeated_runs(codes[stop:], first + stop)
        yield first + start, period, trips
        yield from repeated_runs(codes[:start], first)


# --- are two trips the same? ---


class TripShift:
    """How numbers of one trip have moved in another; `below`: the recording; `start`: the first record of the
    loop."""

    def __init__(self, below: Any, start: int):
        self.below, self.start, self.to = below, start, {}

    def number(self, a: int, b: int) -> None:
        looks = self.below.looks
        if self.to.setdefault(a, b) != b or looks[a][3] != looks[b][3]:
            raise TripMismatch

    def compare(self, a: Any, b: Any) -> None:
        """Is b, of the other trip, what a is?"""
        kind = type(a)
        if kind is not type(b):
            raise TripMismatch
        if kind in HANDLES:
            if a._trace is not self.below or b._trace is not self.below:
                raise TripMismatch
            self.number(a._slot, b._slot)
        elif a is b:
            return
        elif kind is tuple or kind is list:
            if len(a) != len(b):
                raise TripMismatch
            for u, v in zip(a, b, strict=True):
                if u is not v or type(u) in HANDLES:
                    self.compare(u, v)
        elif kind is dict:
            self.compare(tuple(a.items()), tuple(b.items()))
        elif kind is slice:  # (of plain numbers: views.unchanging)
            if a != b:
                raise TripMismatch
        elif kind is AdaptedRule:
            self.compare((a.rule, a.shape, a.dtype, a.conjugate), (b.rule, b.shape, b.dtype, b.conjugate))
        elif kind is ShapeStandIn:
            self.compare((a.shape, a.dtype), (b.shape, b.dtype))
        elif kind is ndarray:
            if a.shape != b.shape or a.strides != b.strides or a.dtype != b.dtype or not same_bits(a, b):
                raise TripMismatch
        elif kind is float or kind is complex or is_scalar(a):
            if repr(a) != repr(b):
                raise TripMismatch
        elif a != b or not (kind in (int, bool, str) or isinstance(a, np.dtype)):
            raise TripMismatch

    def records(self, records: list, first: int, other: int, period: int) -> None:
        """Are the records from `other` on those from `first` on?"""
        by, start, to, looks, below = other - first, self.start, self.to, self.below.looks, self.below
        for one, two in zip(records[first : first + period], records[other : other + period], strict=True):
            rule, i, second, j, out, x, y = one
            rule2, i2, second2, j2, out2, x2, y2 = two
            if rule is None and second is None:
                raise TripMismatch  # a leaf
            if rule is not rule2:
                self.compare(rule, rule2)
            if second is not second2:
                self.compare(second, second2)
            if type(i) is not int or i2 != (i + by if i >= start else i):
                self.slots(i, i2, by)
            if type(j) is not int or second is ONE_OF_SEVERAL:
                if j is not j2 or j is not None:
                    self.compare(j, j2)
            elif j2 != (j + by if j >= start else j):
                raise TripMismatch
            if second is REGION and rule.prim in REGIONS:
                # layouts, shapes and steps
                if (out is not out2 and out != out2) or (x is not x2 and x != x2):
                    raise TripMismatch
                self.compare(y, y2)
                continue
            if type(out) in HANDLES and type(out2) in HANDLES and out._trace is below is out2._trace:
                k, n = out._slot, out2._slot
                if to.setdefault(k, n) != n or looks[k][3] != looks[n][3]:
                    raise TripMismatch
            elif out is not out2 or type(out) in HANDLES:
                self.compare(out, out2)
            if type(x) in HANDLES and type(x2) in HANDLES and x._trace is below is x2._trace:
                k, n = x._slot, x2._slot
                if to.setdefault(k, n) != n or looks[k][3] != looks[n][3]:
                    raise TripMismatch
            elif x is not x2 or type(x) in HANDLES:
                self.compare(x, x2)
            if type(y) in HANDLES and type(y2) in HANDLES and y._trace is below is y2._trace:
                k, n = y._slot, y2._slot
                if to.setdefault(k, n) != n or looks[k][3] != looks[n][3]:
                    raise TripMismatch
            elif y is not y2 or type(y) in HANDLES:
                self.compare(y, y2)

    def slots(self, a: Any, b: Any, by: int) -> None:
        """Values made in the loop have moved on, those made before are the same."""
        if type(a) is list and type(b) is list and len(a) == len(b):
            for u, v in zip(a, b, strict=True):
                self.slots(u, v, by)
        elif a is None or b is None:
            if a is not b:
                raise TripMismatch
        elif type(a) is not int or type(b) is not int or b != (a + by if a >= self.start else a):
            raise TripMismatch

    def follow(self, a: int, b: int, depth: int = 3) -> None:
        """Is the value number b what a is?  One that no record names is known by how it was made."""
        if self.to.get(a, b) != b:
            raise TripMismatch
        if a in self.to:
            return
        if a != b:
            what, operands = self.below.what, self.below.operands
            prim = what[a][0]
            if (
                not depth
                or type(prim) is not Primitive
                or prim is not what[b][0]
                or prim.writes
                or not instruction_form(prim)[1]
            ):
                raise TripMismatch
            self.compare(what[a], what[b])
            for u, v in zip(operands[a], operands[b], strict=True):
                self.follow(u, v, depth - 1)
        self.number(a, b)


# --- the sweep ---


class Trip:
    """What the sweep of one trip has done: instructions low to high of the recording, and the cotangents that
    it left, `owned` or not."""

    def __init__(self, low: int, high: int, state: dict, owned: set):
        self.low, self.high, self.state, self.owned = low, high, state, owned


class SweepLoop:
    """`run(k, stop)` sweeps the records from k down to, but without, `stop`; `base`: the first instruction of
    the sweep."""

    def __init__(self, below: Any, records: list, G: list, owned: set, loop: tuple, run: Callable, base: int):
        self.below, self.G, self.owned, self.run, self.base = below, G, owned, run, base
        self.start, self.period, self.trips = loop
        self.records = records[self.start : self.start + self.period * self.trips]

    def sweep(self) -> tuple:
        """(first record that is left to be swept, have trips been repeated?)"""
        before, tried, t, done = None, 0, self.trips - 1, 0
        while t > 2 and tried < TRIPS_TRIED:
            trip = self.trip(t)
            t -= 1
            tried += 1
            if trip is not None and before is not None:
                done = self.repeated(before, trip, t + 1)
                if done:
                    t -= done
                    break
            before = trip
        return self.start + self.period * (t + 1) - 1, done > 0

    def trip(self, t: int) -> Trip | None:
        below, first = self.below, self.start + self.period * t
        low, asked = len(below.known), below.asked
        self.run(first + self.period - 1, first - 1)
        state = {j: g for j, g in enumerate(self.G[:first]) if g is not None}
        if below.same or below.asked != asked:
            return None
        if not all([g._trace is below if type(g) in HANDLES else is_scalar(g) for g in state.values()]):
            return None
        return Trip(low, len(below.known), state, self.owned.intersection(state))

    def repeated(self, before: Trip, trip: Trip, t: int) -> int:
        """How many further trips were done as this one, number t."""
        first = self.period * t
        if not all(
            [
                prim is None or is_pure(prim)
                for prim in map(primitive_of, self.records[first : first + self.period])
            ]
        ):
            return 0  # a rule of the user's, which may count its calls
        try:
            moved = TripShift(self.below, self.start)
            moved.records(self.records, first + self.period, first, self.period)
            steps = self.steps(before, trip, moved)
        except TripMismatch:
            return 0
        base, size, below = self.base, trip.high - trip.low, self.below
        given = [(k, d) for k, d in steps.items() if k < base or not d]
        carried = [k for k, d in steps.items() if k >= base and d and k < trip.low]  # made by the trip before
        again, n, numbers = RepeatedTrip(below, trip, [*[k for k, _ in given], *carried]), 0, None
        while t - n > 2:
            try:
                to = self.places(trip, given, t, n + 1)
            except TripMismatch:
                break
            n += 1
            numbers = [*[to[k] for k, _ in given], *[k + n * size for k in carried]]
            below.alone.difference_update(numbers)
            numbers += range(len(below.known), len(below.known) + size)
            again.do(numbers)
        if numbers is not None:
            self.hand_on(trip, {k: numbers[r] for k, r in again.place.items()}, n)
        return n

    def steps(self, before: Trip, trip: Trip, moved: TripShift) -> dict:
        """Each number that the instructions of a trip, or the cotangents that it leaves, name: by how much it
        has moved since the last."""
        what, operands, looks, placed = (
            self.below.what,
            self.below.operands,
            self.below.looks,
            self.below.placed,
        )
        size, found = trip.high - trip.low, {}
        if before.high - before.low != size:
            raise TripMismatch

        def step(a: int, b: int) -> None:
            d = b - a
            if b >= self.base:
                if not (d == size and a >= before.low - size and b < trip.high) and not (
                    d == 0 and b < before.low
                ):
                    raise TripMismatch
            else:
                moved.follow(a, b)
            if found.setdefault(b, d) != d:
                raise TripMismatch

        for k in range(trip.low, trip.high):
            prim = what[k][0]
            if (
                what[k - size][0] is not prim
                or ((k - size) in placed) != (k in placed)
                or looks[k][3] != looks[k - size][3]
            ):
                raise TripMismatch
            if prim is CONSTANT:
                moved.compare(self.below.known[k - size], self.below.known[k])
                continue
            if prim is not PART and not (type(prim) is Primitive and instruction_form(prim)[1]):
                raise TripMismatch
            moved.compare(what[k - size], what[k])
            for a, b in zip(operands[k - size], operands[k], strict=True):
                step(a, b)
        if len(before.state) != len(trip.state):
            raise TripMismatch
        for j, g in trip.state.items():
            i = j + self.period if j >= self.start else j
            if i not in before.state or (i in before.owned) != (j in trip.owned):
                raise TripMismatch
            if type(g) in HANDLES and type(before.state[i]) in HANDLES:
                step(before.state[i]._slot, g._slot)
            else:
                moved.compare(before.state[i], g)
        return found

    def places(self, trip: Trip, given: list, t: int, n: int) -> dict:
        """What the numbers of a trip, but those that it makes itself, are n trips further down, if its
        records are those of that."""
        moved = TripShift(self.below, self.start)
        moved.records(self.records, self.period * t, self.period * (t - n), self.period)
        base, to = self.base, moved.to
        for k, d in given:
            if k >= base:
                to[k] = k
            elif k not in to:
                if not 0 <= k + d * n < base:
                    raise TripMismatch
                moved.follow(k, k + d * n)
        if any([self.start <= j < self.start + self.period * n for j in trip.state]):
            raise TripMismatch
        return to

    def hand_on(self, trip: Trip, to: dict, n: int) -> None:
        """The cotangents as the last of n further trips leaves them."""
        G, by = self.G, n * self.period
        for j in trip.state:
            G[j] = None
            self.owned.discard(j)
        for j, g in trip.state.items():
            i = j - by if j >= self.start else j
            G[i] = self.below.handles(to[g._slot]) if type(g) in HANDLES else g
            if j in trip.owned:
                self.owned.add(i)


class RepeatedTrip:
    """The instructions of a trip, to be done with other operands.  These stand in a list, and so do their
    numbers: first `operands`, which the trip finds, then what it makes.  `place`: number in the trip -> place
    in that list."""

    def __init__(self, below: Any, trip: Trip, operands: list):
        self.below, self.count = below, len(operands)
        self.place = place = {k: n for n, k in enumerate([*operands, *range(trip.low, trip.high)])}
        known = below.known
        self.looks = below.looks[trip.low : trip.high]
        self.what = below.what[trip.low : trip.high]
        self.operands: list = []  # (how many, their places); more than two in a tuple; 0: a constant's
        self.code: list = []  # (number of operands, function, places); 0: what it gives
        for k in range(trip.low, trip.high):
            prim, params, _ = below.what[k]
            if prim is CONSTANT:
                self.operands.append((0, 0, 0))
                self.code.append((0, None, known[k], None))
                continue
            places = tuple([place[j] for j in below.operands[k]])
            self.operands.append((len(places), *places, 0)[:3] if 0 < len(places) < 3 else (3, places, 0))
            run = operator.itemgetter(params) if prim is PART else body_of(prim, params)
            if prim is not PART and prim.writes and k not in below.placed:
                self.code.append((3, run, *places))
            elif 0 < len(places) < 3:
                self.code.append((len(places), run, *places, *places[:1])[:4])
            else:
                self.code.append((4, run, places, None))

    def do(self, numbers: list) -> None:
        """`numbers`: of the operands, and of what is made."""
        below = self.below
        values = [below.known[k] for k in numbers[: self.count]]
        made = values.append
        for count, run, a, b in self.code:
            if count == 2:
                made(run(values[a], values[b]))
            elif count == 1:
                made(run(values[a]))
            elif count == 3:
                made(run(copy_with_layout(values[a]), values[b]))
            elif count == 4:
                made(run(*[values[r] for r in a]))
            else:
                made(a)
        below.known += values[self.count :]
        below.looks += self.looks
        below.what += self.what
        below.operands += [
            (numbers[a], numbers[b])
            if count == 2
            else (numbers[a],)
            if count == 1
            else tuple([numbers[r] for r in a])
            if count
            else None
            for count, a, b in self.operands
        ]


def body_of(prim: Primitive, params: Any) -> Callable:
    """The body of an operation with these settings, which are told beforehand; of a plain region, what it
    comes down to."""
    run = instruction_form(prim)[0]
    if not params:
        return run
    if prim in REGIONS:
        path, at = params["path"], params["at"]
        if len(path) == 1 and path[0][0] == "at" and (at is None or at is Ellipsis):
            path, at = (), path[0][1]
        if not path and at is not None and basic(at):
            if prim is READ:
                return operator.itemgetter(at) if not params["copy"] else lambda x: array_part(x, at)
            return functools.partial(scatter_to if prim is ASSIGN else put_more, at)
    return functools.partial(run, **params)


def array_part(x: Any, at: Any) -> Any:
    part = x[at]
    return laid_out_copy(part) if is_array(part) and part.base is not None else part


def scatter_to(at: Any, x: Any, y: Any) -> Any:
    x[at] = y
    return x


def put_more(at: Any, x: Any, y: Any) -> Any:
    x[at] += y
    return x


def sweep(below: Any, records: list, G: list, owned: set, top: int, run: Callable) -> None:
    """All of a tape over the recording `below`, from the record `top` on."""
    simple = (
        top < SWEEP_RECORDS or FORM_SHARE * sum([type(record[2]) is RecordMark for record in records]) < top
    )
    if not (simple or isinstance(below, EndedTrace) or below.same or below.weak):
        base = len(below.known)
        for start, period, trips in repeated_runs(record_codes(records[: top + 1])):
            stop = start + period * trips
            run(top, stop - 1)
            top, period = stop - 1, period * max(1, COMPARED_RECORDS // period)
            for several in range(1, TRIP_MULTIPLES + 1):  # what looks like one trip may be a part of one
                trips = (top + 1 - start) // (period * several)
                first = top + 1 - trips * period * several
                top, done = SweepLoop(
                    below, records, G, owned, (first, period * several, trips), run, base
                ).sweep()
                if done:
                    break
    run(top, -1)
