"""Arrays as a front end sees them: a view of an array of the program, with places that are fixed and
ranges."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .program import LoopArray, LoopRefused, Scalar, literal
from .writer import ONE, ZERO, StatementWriter


@dataclass(frozen=True)
class Known:
    """An object that is known while a program is written."""

    object: Any


@dataclass(frozen=True)
class TupleMembers:
    """A tuple."""

    items: tuple


@dataclass(frozen=True)
class Slice:
    """start, stop, step; None where nothing is given."""

    items: tuple


@dataclass(frozen=True)
class Range:
    """A range that is iterated over; in a loop with several ways out, `name` holds the number of trips so
    far.

    `member` gives what a number of the range stands for, if that is not the number."""

    bounds: tuple[Scalar, Scalar, Scalar]
    name: str = ""
    member: Callable[[Scalar], Any] | None = None


@dataclass(frozen=True)
class ArrayView:
    """For each axis of `array` a scalar (fixed), or (start, step, length).

    `origins` says which arrays it may be. In a `layered` view, these are layers of one array, which the first
    part chooses."""

    array: LoopArray
    parts: tuple
    origins: frozenset = frozenset()
    layered: bool = False

    @property
    def shape(self) -> tuple[Scalar, ...]:
        return tuple([p[2] for p in self.parts if isinstance(p, tuple)])


class Ranges:
    """Lower bounds of integers, where they are known; an index below zero counts from the end."""

    def __init__(self, w: StatementWriter):
        self.w = w
        self.least: dict[Scalar, int] = {}

    def of(self, v: Scalar) -> int | None:
        return v.number if v.number is not None else self.least.get(v)

    def learn(self, out: Scalar, op: str, x: tuple) -> None:
        low: Any = [self.of(v) for v in x if v.type == "i8"]
        known = len(low) == 2 and None not in low
        if op == "add" and known:
            self.least[out] = low[0] + low[1]
        elif op == "sub" and known and x[1].number is not None:
            self.least[out] = low[0] - x[1].number
        elif (op in ("mul", "floordiv", "shr") and known and min(low) >= 0) or (
            op == "mod" and (low[-1] or 0) > 0
        ):
            self.least[out] = 0

    def place(self, i: Scalar, n: Scalar) -> Scalar:
        """The place that index i stands for on an axis of length n."""
        low = self.of(i)
        if low is not None and low >= 0:
            return i
        w = self.w
        if i.number is not None:
            return w.compute("add", n, i)
        return w.compute("select", w.compute("lt", i, ZERO), w.compute("add", i, n), i)

    def indexed(self, view: ArrayView, at: tuple) -> ArrayView:
        """The view at integers and slices."""
        w, given, parts = self.w, list(at), []
        axes = sum(isinstance(p, tuple) for p in view.parts)
        if any(isinstance(i, Known) and i.object is Ellipsis for i in given):
            k = next(k for k, i in enumerate(given) if isinstance(i, Known) and i.object is Ellipsis)
            given[k : k + 1] = [Known(slice(None))] * (axes - len(given) + 1)
        if len(given) > axes:
            raise LoopRefused(f"line {w.line}: more indices than axes")
        for p in view.parts:
            if not isinstance(p, tuple) or not given:
                parts.append(p)
                continue
            i, (start, step, n) = given.pop(0), p
            if isinstance(i, Scalar):
                place = self.place(i, n)
                parts.append(
                    place
                    if start is ZERO and step is ONE
                    else w.compute("add", start, w.compute("mul", place, step))
                )
            else:
                parts.append(self.sliced(p, i))
        return replace(view, parts=tuple(parts))

    def sliced(self, part: tuple, at) -> tuple:
        """A slice (start, stop, step) of scalars, None where nothing is given."""
        w, (start, step, n) = self.w, part
        if isinstance(at, Known) and isinstance(at.object, slice):
            at = Slice(
                tuple(
                    [
                        None if x is None else literal(x, "i8")
                        for x in (at.object.start, at.object.stop, at.object.step)
                    ]
                )
            )
        if not isinstance(at, Slice) or (at.items[2] is not None and at.items[2].number != 1):
            raise LoopRefused(f"line {w.line}: an index that is no integer and no slice of step 1")
        first, last = (self.cut(x, n, default) for x, default in zip(at.items[:2], (ZERO, n), strict=True))
        length = last if first is ZERO else w.compute("max", w.compute("sub", last, first), ZERO)
        begin = w.compute("add", start, first if step is ONE else w.compute("mul", first, step))
        self.least[length] = 0
        return (first if start is ZERO and step is ONE else begin), step, length

    def cut(self, x: Scalar | None, n: Scalar, default: Scalar) -> Scalar:
        if x is None:
            return default
        if x.number == 0:
            return ZERO
        w = self.w
        made = x if (self.of(x) or -1) > 0 else w.compute("max", self.place(x, n), ZERO)
        made = w.compute("min", made, n)
        self.least[made] = 0
        return made

    def element(self, view: ArrayView) -> tuple:
        """The index of an element, a view without axes."""
        if any(isinstance(p, tuple) for p in view.parts):
            raise LoopRefused(f"line {self.w.line}: a part of an array is used as a number")
        return view.parts
