"""Values that a function under `vmap` keeps beyond its call, in names, attributes and containers: does one of
them hand something on?

A loop might show each sample what the one before has kept.  So the function is run again, each sample beside
what the one before kept in the first run.  If it gives the same results and keeps the same values, then by
induction over the samples the loop does, too: the first sample was right in the first run, and each further
one has now seen what the loop would have shown it.

Counts, integers and strings that no sample makes its own, may go on with each run.  In the second run a
`Tally` stands for each count that has a name, and notes whether code does more than add to it.  If code does,
or if the count has no name, there are as many runs as samples: a condition on a count may hold for any of
them.

Where derivatives are taken around the call, equal values are not enough.  Then there is a third run beside
other numbers, whose derivatives are followed: nothing may depend on them."""

import collections
import operator
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._capture.ambient import ContextValue
from .._capture.builtin import GlobalNames
from .._capture.classes import Members
from .._capture.containers import Contents
from .._capture.functions import Cell
from .._capture.kinds import HELD, is_user_class, module_of, put_state, state_of
from .._capture.objects import kind_of, parts_of, put_back
from .._capture.snapshots import CONTAINERS as COUNTED
from .._capture.snapshots import ObjectSnapshot, content_of, is_same
from .._capture.type_queries import METAS
from .._core.arrays import IMMUTABLE, is_array, xp_of
from .._core.errors import BatchError, TapegradError, let_through
from .._core.forward import Dual
from .._core.primitive import READ, SAMPLED, bind, handle, live, primal_of, truth_of
from .._core.scope import OPEN
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple, Params
from .._core.variable import Variable, View, bottom, like_layout
from ..ops import shaping as s
from ..ops.declare import dtype, ndim, shape
from .batching.captured_marks import CapturedBuffer, Marks
from .batching.rules import empty_stack
from .batching.trace import Batch

# --- what is kept ---


def lies_on(x: Any, trace: Any) -> bool:
    while isinstance(x, Variable):
        if x._trace is trace:
            return True
        x = x._value
    return False


def put_by(change: AnyTuple, trace: Batch) -> Any:
    """What the function has put into a holder; of a container that held numbers only, all that it holds now
    if these are others."""
    kind, x, new, *first = change
    if kind is not Contents or first != [None]:
        return kind.put(change)
    return [] if id(x) in trace.noted and is_same(*trace.noted[id(x)]) else kind_of(new).parts(new)


CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
COLLECTIONS = frozenset(CONTAINERS)


def inside(x: Any) -> AnyList:
    """What x holds."""
    if isinstance(x, Variable):
        return []
    if hasattr(type(x), "plain_elements"):  # those that a mask chose
        return [x.full, x.mask]
    if type(x) is types.FunctionType:
        return [v for c in x.__closure__ or () for v in parts_of(c)]
    parts = parts_of(x)
    return [*parts, *state_of(x).values()] if is_user_class(type(x)) or type(x) in HELD else parts


def flatten_graph(x: Any, met: AnyDict) -> Iterator[Any]:
    """x and all that it holds, each once; then again as the number under which it was met."""
    todo = [x]
    while todo:
        x = todo.pop()
        if type(x) in IMMUTABLE:
            yield x
        elif id(x) in met:
            yield BackReference(met[id(x)][0])
        else:
            met[id(x)] = len(met), x
            yield x
            todo += reversed(inside(x))


class BackReference(int):
    """The number of an object that was met before."""


def changes() -> AnyList:
    return [change for shadow in OPEN.shadows for change in shadow.changes]


NUMBERS = frozenset((float, complex, np.float64))


def is_tracked_value(x: Any) -> bool:
    """A value that a loop might show to the next sample: also one that is the same for all."""
    return isinstance(x, Variable) or type(x) in NUMBERS or is_array(x) or is_value(x)


def is_value(x: Any) -> bool:
    """A number of NumPy's, a date, a fraction, a slice: what it is equal to says what it is."""
    kind = type(x)
    if kind in IMMUTABLE or issubclass(kind, CONTAINERS):
        return False
    if issubclass(kind, np.generic) or kind is slice:
        return True
    known = str(module_of(kind)).partition(".")[0] in sys.stdlib_module_names and kind.__hash__ is not None
    return known and kind.__eq__ is not object.__eq__ and not issubclass(kind, type)  # type: ignore[comparison-overlap]


def kept_in(trace: Batch) -> AnyTuple:
    """(the handles that hold values which differ between samples, where the first value is kept; nothing
    where none is)"""
    found: AnyList = []
    met: AnyDict = {}
    where = ""
    for change in changes():
        for v in put_by(change, trace):
            for x in flatten_graph(v, met):
                if is_tracked_value(x):
                    where = where or change[0].words.format(change[1])
                    if lies_on(x, trace):
                        found.append(x)
    return found, where


COUNTS = IMMUTABLE - NUMBERS


class Tally:
    """Stands for a count, an integer or a string, while the function is run: it notes in `asked` when code
    does more than add to it."""

    __slots__ = ("_value", "_first", "_asked")

    def __init__(self, value: Any, first: Any, asked: AnyList):
        self._value, self._first, self._asked = value, first, asked

    def __add__(self, more: Any) -> Any:
        if type(more) is not type(self._value):
            return self._told() + more
        return type(self)(self._value + more, self._first, self._asked)

    def __sub__(self, less: Any) -> Any:
        return self + -less if type(less) is int else self._told() - less

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.array(self._told())

    def __array_ufunc__(self, f: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(f, method)(*[a._told() if issubclass(type(a), Tally) else a for a in args], **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._told(), name)

    def _told(self) -> Any:
        self._asked.append(self)
        return self._value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._first)


def asking(name: str) -> AnyFunction:
    """The special method of this name, which asks for the count."""
    f, reflected = getattr(operator, name, None), getattr(operator, f"__{name[3:]}", None)
    if f is not None:
        return lambda self, *args: f(self._told(), *args)
    if reflected is not None and name[:3] == "__r":
        return lambda self, other: reflected(other, self._told())
    return lambda self, *args: getattr(self._told(), name)(*args)


KEPT = frozenset((*object.__dict__, *Tally.__dict__)) - {
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__repr__", "__str__",
    "__format__", "__reduce__",
    "__reduce_ex__",
}  # fmt: skip  # what a tally answers by itself
TALLIES = {
    kind: type(f"Tally_{kind.__name__}", (Tally,), {
        "__slots__": (), "__radd__": asking("__radd__"),
        **{n: asking(n) for n in kind.__dict__.keys() - KEPT if callable(getattr(kind, n))},
    })
    for kind in (int, str)
}  # fmt: skip
METAS.update({tally: kind for kind, tally in TALLIES.items()})


def is_count(x: Any, depth: int = 8) -> bool:
    """An integer, a string and the like, or a collection of such."""
    kind = type(x)
    if kind in COUNTS or issubclass(kind, Tally):
        return True
    return depth > 0 and kind in COLLECTIONS and all([is_count(v, depth - 1) for v in parts_of(x)])


def frozen_count(x: Any) -> AnyTuple:
    """What a count, or a container of some, holds now, to be compared with what it will hold; of what is no
    count, the type."""
    if type(x) in COUNTS:
        return type(x), x
    if issubclass(type(x), Tally):
        return type(x._first), x._first
    parts = [frozen_count(v) if is_count(v) else type(v) for v in (x.items() if isinstance(x, dict) else x)]
    return type(x), frozenset(parts) if isinstance(x, (set, frozenset)) else tuple(parts)


def counts_of(change: AnyTuple, trace: Batch) -> AnyList:
    """Those among the values, and in objects and collections of other things."""
    return [
        x
        for v in put_by(change, trace)
        for x in ([v] if is_count(v) else flatten_graph(v, {}))
        if is_count(x)
    ]


def counts_before(trace: Batch) -> AnyDict:
    """(id of a holder: what the functions of transforms around this one have put there)"""
    return {id(change): frozen_count(counts_of(change, trace)) for change in changes()}


def counted_in(trace: Batch, before: AnyDict) -> str:
    """Where f has put other integers, strings and the like; nothing if nowhere."""
    for change in changes():
        if frozen_count(counts_of(change, trace)) != before.get(id(change), (list, ())):
            return change[0].words.format(change[1])  # type: ignore[no-any-return]
    return next((f"a {type(x).__name__}" for x, before in trace.noted.values() if not is_same(x, before)), "")


def bind_in(change: AnyTuple, name: str, v: Any) -> None:
    kind, _, new, *_ = change
    if kind is GlobalNames:
        dict.__setitem__(new, name, v)
    elif kind is Cell:
        new.cell_contents = v
    elif kind is ContextValue:
        new.set(v)
    elif kind is Members:
        setattr(new, name, v)
    else:
        put_state(new, {name: v})


# --- the same in another run? ---


class SampleStack:
    """A value of each sample."""

    __slots__ = ("values",)

    def __init__(self, values: Any):
        self.values = values


def seen_as(trace: Batch, x: Any) -> Any:
    """What of an object another run must give again."""
    if isinstance(x, Variable):
        y = live(x)
        base = x._base if type(x) is View else x
        if base._trace is trace and type(base._slot) is CapturedBuffer:
            return "captured", id(base), x._path if type(x) is View else ()
        if y._trace is trace and type(y._slot) is not CapturedBuffer:
            return SampleStack(primal_of(y._slot))
        return ("followed", id(y)) if y._trace is not trace and lies_on(y, trace) else primal_of(y)
    if type(x) in IMMUTABLE or isinstance(x, BackReference):
        return type(x), repr(x)
    if is_array(x) and x.dtype.kind != "O":
        return x.copy()
    return type(x), (repr(x) if isinstance(x, np.generic) else x) if is_value(x) else len(inside(x))


def one_for_all(v: Any) -> Any:
    return s.reshape(v, to=(1, *shape(v)))


def equal(a: Any, b: Any) -> bool:
    """(nan is equal to itself)"""
    same = (a == b) | ((a != a) & (b != b))
    return truth_of(same.all() if ndim(same) else same)


def same_structure(a: Any, b: Any) -> bool:
    if type(a) is SampleStack or type(b) is SampleStack:
        a, b = [
            v.values if type(v) is SampleStack else v if type(v) is tuple else one_for_all(v) for v in (a, b)
        ]
        # one that is the same for all samples may become one of each, and the same
        if shape(a)[:1] == (1,) or shape(b)[:1] == (1,):
            return shape(a)[1:] == shape(b)[1:] and dtype(a) == dtype(b) and equal(a, b)
    if type(a) is tuple or type(b) is tuple:
        return type(a) is type(b) and a == b
    return shape(a) == shape(b) and dtype(a) == dtype(b) and equal(a, b)


class RunOutcome:
    """What a run has given and left: its result, what is kept in holders, and captured arrays."""

    def __init__(self, trace: Batch, y: Any, members: AnyList, adopted: AnyList):
        self.met: AnyDict = {}
        kept = [[v for v in put_by(change, trace) if not is_count(v)] for change in members]
        self.seen = [seen_as(trace, x) for v in (y, *kept) for x in flatten_graph(v, self.met)]
        self.arrays = [(x._slot.value, x._slot.batched, *x._slot.marks.begun()) for x, *_ in adopted]

    def agrees(self, other: "RunOutcome", adopted: AnyList) -> bool:
        if len(self.seen) != len(other.seen) or not all(
            [same_structure(a, b) for a, b in zip(self.seen, other.seen, strict=True)]
        ):
            return False
        return all(
            [
                left_alike(x._slot.marks, a, b)
                for (x, *_), a, b in zip(adopted, self.arrays, other.arrays, strict=True)
            ]
        )


def left_alike(marks: Marks, first: AnyTuple, second: AnyTuple) -> bool:
    """Is a captured array after two runs what a loop leaves there?"""
    value, batched, written, _ = first
    if (
        batched != second[1]
        or not same_structure(primal_of(value), primal_of(second[0]))
        or marks.overlap(True, marks.read, ~_mask(written))
    ):
        return False
    if not batched:
        return True
    only_first = _mask(written) & ~_mask(second[2])  # by the first sample, in a loop
    ends = [bind(READ, (primal_of(value),), {"path": (), "at": k, "copy": True}) for k in (0, -1)]
    library = xp_of(bottom(value))
    differ = (ends[0] != ends[1]) & library.broadcast_to(library.asarray(only_first), shape(ends[0]))
    return not truth_of(differ.any() if ndim(differ) else differ)


def _mask(some: Any) -> Any:
    return np.asarray(some)


class DependenceTrace(Dual):
    """Who depends on what was kept?  A tangent that is zero, whatever outer transforms vary, is none."""

    __slots__ = ()

    def apply(self, prim: Any, args: Any, params: Params) -> Any:
        out = super().apply(prim, args, params)
        return tuple([self.pruned(o) for o in out]) if type(out) is tuple else self.pruned(out)

    def pruned(self, y: Any) -> Any:
        if not isinstance(y, Variable) or y._trace is not self:
            return y
        t = live(y._slot) if isinstance(y._slot, Variable) else y._slot
        t = (
            t._slot
            if isinstance(t, Variable) and t._trace is not None and t._trace.visibility == SAMPLED
            else t
        )
        if primal_of(t) is not t:
            return y
        nonzero = (t != 0).any() if ndim(t) else t != 0
        return y if truth_of(nonzero) else handle(y._value)


class Counts:
    """The integers, strings and the like that a first run has left in holders."""

    def __init__(self, trace: Batch):
        self.left = [
            (change, [(name, v) for name, v in change[0].named(change) if is_count(v)])
            for change in changes()
        ]
        found = [*[x for x, _ in trace.noted.values()], *[v for _, pairs in self.left for _, v in pairs]]
        self.noted = [
            (x, content_of(x))
            for x in [*found, *nested_collections([v for x in found for v in parts_of(x)])]
            if content_of(x) is not None
        ]
        self.mixed = [
            (new, kind_of(new).parts(new))
            for kind, _, new, *first in changes()
            if kind is Contents and first != [None]
        ]
        self.last = self.now(trace)
        self.asked: AnyList = []

    def hide(self) -> None:
        """In the next run tallies stand for those that have names."""
        for change, found in self.left:
            for name, v in found:
                if type(v) in TALLIES:
                    bind_in(change, name, TALLIES[type(v)](v, v, self.asked))

    def show(self) -> None:
        for change in changes():
            for name, v in change[0].named(change):
                if issubclass(type(v), Tally):
                    bind_in(change, name, v._value)

    def moved(self, trace: Batch) -> bool:
        """Are they others than after the run before?  Those that nobody has asked for do not matter."""
        if self.asked:
            self.show()
        before, self.last = self.last, self.now(trace)
        self.show()
        return before != self.last

    def now(self, trace: Batch) -> AnyTuple:
        return counts_before(trace), [frozen_count(x) for x, _ in self.noted if isinstance(x, COUNTED)]

    def went_on(self) -> bool:
        """Are arrays of integers, bytes and the like others after another run?  A loop would leave them as
        they are after many."""
        return any(
            [
                not is_same(x, content)
                for x, content in self.noted
                if type(content) is ObjectSnapshot or not isinstance(x, COUNTED)
            ]
        )

    def put_back(self) -> None:
        """A function that counts its runs has counted one."""
        for change, found in self.left:
            for name, v in found:
                bind_in(change, name, v)
        for x, content in self.noted:
            if type(content) is ObjectSnapshot:
                continue
            if not isinstance(x, COUNTED) or not objects_in(x) + objects_in(content):
                put_back(x, content)
        for new, flat in self.mixed:
            now = kind_of(new).parts(new)
            if len(now) != len(flat) and objects_in(now) == objects_in(flat):
                kind_of(new).put(new, flat)


def nested_collections(values: AnyList) -> Iterator[Any]:
    """The collections among these and in them."""
    for x in values:
        if type(x) in COLLECTIONS and is_count(x):
            yield x
            yield from nested_collections(parts_of(x))


def objects_in(x: Any) -> AnyList:
    """(ids) What a container holds besides numbers and strings."""
    return [
        id(v) for v in (x.values() if isinstance(x, dict) else x) if not (type(v) in IMMUTABLE or is_count(v))
    ]


# --- the runs ---

# samples, for each of which the function is run to see that what it counts does not matter
MOST_TRIED_SAMPLES = 32


def handed_on(trace: Batch, handles: AnyList, told: Any) -> None:
    """Each sample gets what the one before kept; the first one, which has been right, that of the last.
    `told`: other numbers."""
    met, noise = set(), np.random.default_rng(0)
    for x in handles:
        base = x._base if type(x) is View else x
        y = live(base)
        if id(base) in met or y._trace is not trace or type(y._slot) is CapturedBuffer:
            continue
        met.add(id(base))
        stack = y._slot
        library = xp_of(bottom(stack))
        stack = bind(
            READ,
            (stack,),
            {"path": (), "at": library.asarray(np.roll(np.arange(trace.count), 1)), "copy": True},
        )
        varied = told is not None and dtype(stack).kind in "fc"
        if varied:
            stack = primal_of(stack)
            stack = (
                stack * library.asarray(1 + 0.1 * noise.normal(size=shape(stack))).astype(dtype(stack)) + 0.01
            )
        new = trace.made(like_layout(stack, empty_stack(trace.count, y._value)), is_array(y._value))
        if varied:
            to = shape(new)
            t = (
                library.asarray(noise.normal(size=to)).astype(dtype(new))
                if is_array(y._value)
                else dtype(new).type(noise.normal())
            )
            new = told.watch(new, t)
        base._become(new)
        base._saved = True


def run_beside(trace: Batch, first: Any, handles: AnyList, where: str, again: AnyFunction) -> None:
    """After a first run that gave `first`, and kept values in these handles.  `again()` gives the result of
    another.  Raises BatchError where a loop would give others."""
    if trace.count == 1:
        return
    if not trace.count:
        refuse(trace, where)
    members, counts = changes(), Counts(trace)
    adopted = [*trace.adopted]
    for x in (*[v for v in flatten_graph(first, {}) if isinstance(v, Variable)], *[x for x, *_ in adopted]):
        (x._base if type(x) is View else x)._saved = True
    before = RunOutcome(trace, first, members, adopted)
    told, runs = None, 1
    try:
        counts.hide()
        while True:
            handed_on(trace, handles, told)
            with np.errstate(all="ignore"):
                try:
                    after = RunOutcome(trace, again(), members, adopted)
                except Exception as error:
                    let_through(error)
                    if isinstance(error, TapegradError) or runs > 1:
                        raise
                    raise refusal_of_counts(trace, where) from error  # compiled code takes no tally
            handles = kept_in(trace)[0]
            free = told is None or not any([lies_on(x, told) for x in (*handles, *[x for x, *_ in adopted])])
            if not free or not before.agrees(after, adopted) or counts.went_on():
                refuse(trace, where)
            runs += 1
            # the next sample finds others again
            if counts.moved(trace) and told is None and runs < trace.count:
                if trace.count > MOST_TRIED_SAMPLES:
                    raise refusal_of_counts(trace, where)
                continue
            if told is not None or OPEN.depth < 2:
                return
            told = DependenceTrace()
    finally:
        counts.put_back()
        if told is not None:
            told.close()
        for (x, *_), (_, _, written, own) in zip(adopted, before.arrays, strict=True):
            x._slot.marks.joined_with(written, own)


def refusal_of_counts(trace: Batch, where: str) -> BatchError:
    return BatchError(
        f"{trace.call}: the function counts on in {where}, which outlives the call, and its code may read "
        f"what it has counted: for {trace.count} samples that cannot be tried (for {MOST_TRIED_SAMPLES} it "
        "is). Pass what depends on the number of the sample as an argument, np.arange(n), or count outside"
    )


def refuse(trace: Batch, where: str) -> None:
    raise BatchError(
        f"{trace.call}: the function keeps a value in {where}, which outlives the call, and what it gives "
        "depends on what was kept there: a loop over the samples would show it to the next one, and tg.vmap "
        "runs the function for all "
        "of them at once. Return it, or write it into a captured array, name[...] = value"
    )
