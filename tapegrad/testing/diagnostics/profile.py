"""`profile`: time and memory of a gradient, for each line of the user's code."""

import collections
import itertools
import math
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._capture import is_foreign, names_in
from ..._capture.kinds import EMPTY, drop_state, is_user_class, put_state, state_of
from ..._capture.objects import GENERATORS, content_of, parts_of, put_back, restore, snapshot
from ..._capture.routes import walk
from ..._core.arrays import is_array
from ..._core.errors import ArgumentError, spelt, users_place
from ..._core.reverse import ShapeStandIn, Tape
from ..._core.scope import OPEN, entry
from ..._core.trees import leaves, tree_map
from ..._core.variable import Variable, bottom
from ..._transforms.arguments import checked_argnums, positions, user_name
from ..._transforms.batching.watched_traces import Watcher, source_line
from ..._transforms.products import vjp
from ..._transforms.wrapped import partial_call
from ...ops.declare import dtype, shape, xp

TIMED_RUNS = 3


@dataclass
class Line:
    """The costs of one line: operations recorded, seconds forward and backward, bytes that the records
    keep."""

    place: tuple
    operations: int = 0
    forward: float = 0.0
    backward: float = 0.0
    kept: int = 0

    @property
    def text(self) -> str:
        return source_line(self.place)


class TimedRecords(list):
    """The records of a tape, with times. In the forward pass, the time since the last record belongs to
    the line of the next. In a sweep, the time until the next record is fetched belongs to the line of
    the last. The cost of finding the lines is excluded."""

    def __init__(self, records: list, watcher: "Costs"):
        super().__init__(records)
        self.watcher = watcher
        self.places: list = [None] * len(records)
        self.since = time.perf_counter()
        self.swept: Any = None

    def append(self, record) -> None:
        spent = time.perf_counter() - self.since
        super().append(record)
        place = users_place()
        self.places.append(place)
        line = self.watcher.line(place)
        line.operations += 1
        line.forward += spent
        line.kept += self.watcher.kept(record)
        self.since = time.perf_counter()

    def __getitem__(self, k):
        self.end()
        self.swept = self.places[k]
        record = super().__getitem__(k)
        self.since = time.perf_counter()
        return record

    def end(self) -> None:
        if self.swept is not None:
            self.watcher.line(self.swept).backward += time.perf_counter() - self.since


class Costs(Watcher):
    def __init__(self):
        self.lines: dict = {}
        self.seen: dict = {}  # the arrays that records keep, by identity
        self.tapes: list = []

    def opened(self, trace) -> None:
        if type(trace) is Tape:
            trace.records = TimedRecords(trace.records, self)
            self.tapes.append(trace.records)

    def line(self, place: tuple) -> Line:
        found = self.lines.get(place)
        if found is None:
            found = self.lines[place] = Line(place)
        return found

    def kept(self, record: tuple) -> int:
        """Bytes of the arrays that no earlier record keeps."""
        total = 0
        for held in record[4:]:
            for v in held if isinstance(held, (list, tuple)) else (held,):
                b = bottom(v) if isinstance(v, Variable) else v
                if type(b) is not ShapeStandIn and is_array(b) and id(b) not in self.seen:
                    self.seen[id(b)] = b  # a reference, so that no other object gets its id
                    total += b.nbytes
        return total


class Profile:
    """The report of `tg.profile`: `lines` (the most expensive first), and `plain` and `total`, the
    seconds for f alone and for value and gradient."""

    def __init__(self, name: str, lines: list, plain: float, total: float):
        self.name, self.plain, self.total = name, plain, total
        self.lines = sorted(lines, key=lambda line: -(line.forward + line.backward))

    @property
    def kept(self) -> int:
        return sum(line.kept for line in self.lines)

    @property
    def operations(self) -> int:
        return sum(line.operations for line in self.lines)

    def __str__(self) -> str:
        ratio = f", {self.total / self.plain:.1f} times f alone" if self.plain > 0 else ""
        head = (
            f"profile({self.name}): {self.operations} operations recorded, {in_bytes(self.kept)} kept; value "
            f"and gradient take {in_time(self.total)}{ratio}"
        )
        rows = [("line", "operations", "forward", "backward", "kept", "")]
        for line in self.lines:
            cells = (
                str(line.operations),
                in_time(line.forward),
                in_time(line.backward),
                in_bytes(line.kept),
                line.text,
            )
            rows.append((spelt(line.place), *cells))
        return "\n".join([head, *table(rows)])

    __repr__ = __str__


@entry
def profile(f: Callable[..., object], *args: object, argnums: int | tuple[int, ...] | None = None) -> Profile:
    """Measure time and memory of the value and gradient of a function, for each line of your code.

    f runs nine times, and what it captures is left as it was. The cost of measuring, about 5 microseconds an
    operation, is not counted.

    Parameters
    ----------
    f : callable
        A function of `args`. If it returns an array, the cotangent consists of ones.
    *args : object
        Its arguments.
    argnums : int or tuple of int, optional
        The arguments to differentiate. By default all with float leaves.

    Returns
    -------
    Profile
        The report; print it. It has `lines`, `operations`, `kept` (bytes), `total` and `plain` (seconds).

    Raises
    ------
    ArgumentError
        If f is not a function, or no argument has float leaves.

    See Also
    --------
    graph : The operations one by one.
    checkpoint : Spends time instead of memory.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> report = tg.profile(lambda x: np.sin(x).sum(), np.ones(1000))
    >>> report.operations, report.kept
    (2, 8000)
    """
    nums = active_numbers("profile", f, args, argnums)
    keeper = ArrayRestorer()
    OPEN.unfinished = (*OPEN.unfinished, StateSnapshot(f), keeper)
    run = gradient_of(f, args, nums)
    with keeper:
        run()
        keeper.put_back()
        run()  # a warm-up run
    keeper.put_back()
    plain = best(lambda: partial_call(f, args, nums)(*[args[n] for n in nums]), keeper)
    total = best(run, keeper)
    costs = Costs()
    with costs:
        run()
    for records in costs.tapes:
        records.end()
    keeper.put_back()
    return Profile(user_name(f), list(costs.lines.values()), plain, total)


class StateSnapshot:
    """The present state of everything except float arrays that f can change: names, attributes,
    containers, integers, generators. `end` restores it."""

    def __init__(self, f):
        self.spaces: list = []  # (namespace, its names with their values)
        self.others: list = []  # (object, a function that restores its content, the arguments of that)
        for x in itertools.islice(walk([f], {}), MOST_WALKED_OBJECTS):
            kind = type(x)
            if kind is types.FunctionType:
                if not is_foreign(x.__globals__.get("__name__")):
                    self.spaces.append(
                        (x.__globals__, {n: x.__globals__.get(n, EMPTY) for n in names_in(x.__code__)})
                    )
                self.others += [(put_back, c, parts_of(c)) for c in x.__closure__ or ()]
            elif isinstance(x, GENERATORS):
                self.others.append((restore, x, snapshot(x)))
            elif kind in CONTAINERS or (kind is np.ndarray and x.dtype.kind in "biu" and x.flags.writeable):
                if kind is not dict or "__builtins__" not in x:  # not the namespace of a module
                    self.others.append((put_back, x, content_of(x, math.inf)))
            elif is_user_class(kind) and not isinstance(x, type):
                self.others.append((put_all_state, x, state_of(x)))

    def end(self, error=None) -> None:
        for space, names in self.spaces:
            for n, v in names.items():
                if v is EMPTY:
                    space.pop(n, None)
                elif space.get(n, EMPTY) is not v:
                    space[n] = v
        for back, x, held in self.others:
            back(x, held)


MOST_WALKED_OBJECTS = 100_000  # the number of objects that are searched
CONTAINERS = frozenset((dict, list, set, collections.deque))


def put_all_state(x, held: dict) -> None:
    now = state_of(x)
    for name in now.keys() - held.keys():
        drop_state(x, name)
    put_state(x, {name: v for name, v in held.items() if now.get(name, EMPTY) is not v})


class ArrayRestorer(Watcher):
    """Holds the first content of captured arrays. `put_back` restores it."""

    def __init__(self):
        self.arrays: dict = {}
        self.handles: list = []  # (id of an array, its handle)

    def captured(self, array, x) -> None:
        self.handles.append((id(array), x))
        if id(array) not in self.arrays:
            self.arrays[id(array)] = array, array.copy()

    def written(self) -> set:
        """ids of the arrays that were written, even with equal content."""
        return {key for key, x in self.handles if getattr(x, "_version", 0) != 0}

    def end(self, error) -> None:
        self.put_back()

    def put_back(self) -> None:
        for array, before in self.arrays.values():
            if not (
                isinstance(array, np.ndarray)
                and (not array.flags.writeable or np.array_equal(array, before, equal_nan=True))
            ):
                array[...] = before


def best(call: Callable, keeper: ArrayRestorer) -> float:
    """The shortest time of a few calls, in seconds."""
    spent = []
    for _ in range(TIMED_RUNS):
        begun = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begun)
        keeper.put_back()
    return min(spent)


def active_numbers(what: str, f: Callable, args: tuple, argnums) -> tuple:
    """The arguments to differentiate."""
    if not callable(f):
        raise ArgumentError(f"{what}(f, *args): the first argument is {type(f).__name__}, not a function")
    if argnums is not None:
        return positions(what, checked_argnums(what, argnums), len(args))
    found = tuple([n for n, a in enumerate(args) if any(is_float_array(x) for x in leaves(a))])
    if not found:
        raise ArgumentError(
            f"{what}({user_name(f)}): no argument has floats; give {what}(f, x) with a float array x"
        )
    return found


def is_float_array(x) -> bool:
    return type(x) in (float, complex) or getattr(getattr(x, "dtype", None), "kind", "") in tuple("fc")


def gradient_of(f: Callable, args: tuple, nums: tuple) -> Callable:
    """A call that computes value and gradient once."""
    active = partial_call(f, args, nums)

    def run():
        value, pullback = vjp(active, *[args[n] for n in nums])
        return value, pullback(unit_seed(value))

    return run


def unit_seed(value):
    return tree_map(lambda y: xp(y).ones(shape(y), dtype(y)) if is_float_array(y) else None, value)


# --- texts ---


def in_time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def in_bytes(n: float) -> str:
    for size, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} B"


def table(rows: list) -> list:
    """The rows as aligned columns: the first left-aligned, the last as it is, the others right-aligned."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]) - 1)]
    lines = []
    for first, *cells, last in rows:
        right = [cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right, last]).rstrip())
    return lines
