"""`loop`: a loop over time whose derivative keeps few states, by a binomial schedule.

All steps but the last are one operation, a function of values: of the state and of the Variables that the
step captured. Its first run takes snapshots. Its reverse rule goes back step by step, from snapshot to
snapshot (`schedules`). The last step is a plain call, which the open transforms record."""

import operator
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np

from .._capture.objects import is_same, put_back, restore, snapshot
from .._capture.routes import strays
from .._core.arrays import IMMUTABLE, copy_with_layout, is_array, is_differentiable, same_bits, xp_of
from .._core.errors import ArgumentError, ShapeError
from .._core.primitive import bind, layout_of, live, primal_of
from .._core.reverse import Tape
from .._core.scope import OPEN, changed, scope_block
from .._core.trees import Const, describe_tree, is_node, leaves, tree_map, with_leaves
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from .._core.variable import Variable, bottom, frozen, variable
from ..ops.indexing.flat import FlatIterator
from .arguments import check_function, numpy_number, user_name
from .call import arrays_of_tables, constant_like
from .checkpoint import CheckpointCall, mark
from .products import vjp
from .rebind import (
    Rebind,
    RecordedIterator,
    captured_result,
    ended,
    left_by_error,
    note_carried,
    out_of,
    with_all,
)
from .schedules import advance_length, first_snapshots

S = TypeVar("S")
SNAPSHOT_BUDGET = 2**28  # bytes that the snapshots of a loop take if their number is not given


def loop(
    n: int,
    step: Callable[[int, S], S],
    state: S,
    snapshots: int | None = None,
    store: str | os.PathLike[str] | None = None,
) -> S:
    """Run ``state = step(i, state)`` for i from 0 to n - 1, and keep few states for the derivative.

    The value is that of the plain loop. In reverse mode only some states are kept. The others are computed
    again in the sweep, by a binomial schedule, which needs the fewest steps. Forward mode keeps nothing.

    The step may read and write captured arrays, as under `checkpoint`. It may read captured parameters, whose
    cotangents are summed over the steps, and draw from captured random generators. Arrays that it writes are
    part of the state. Reverse over reverse records the sweep; `hvp` and `hessian` do not.

    Parameters
    ----------
    n : int
        The number of steps.
    step : callable
        ``step(i, state)`` returns the next state, with the same tree, shapes and dtypes. It may write into
        the state that it was given.
    state : tree
        The first state. It is left unchanged.
    snapshots : int, optional
        How many states are kept at most, 1 or more. By default as many as fit into 256 MiB, and at least
        log2(n).
    store : str or path, optional
        Where snapshots are kept: a folder, or ``"host"`` for CuPy arrays that move to host memory. By
        default they stay where they are. A snapshot's file is deleted after use. Values with tangents, as
        in `hvp`, stay in memory.

    Returns
    -------
    tree
        The state after n steps.

    Raises
    ------
    ArgumentError
        If n, snapshots or store is not valid. If the step changes something other than its state and
        captured arrays, or takes items from an iterator.
    ShapeError
        If the step changes the tree, the shapes or the dtypes of the state.
    GuardError
        In the sweep, if what the step reads has changed, or it gives other values than before.

    See Also
    --------
    checkpoint : Recomputes one function.
    kernels.loop : A loop inside a compiled kernel.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> def cooled(rate):
    ...     return tg.loop(1000, lambda i, T: T - rate * T, np.array([1.0, 2.0]), snapshots=5).sum()
    >>> bool(np.isclose(tg.grad(cooled)(0.001), -3000 * 0.999**999))
    True
    """
    name = f"loop({user_name(step)})"
    check_function("loop", step)
    n, snapshots = count_of(name, "n", n, 0), snapshots and count_of(name, "snapshots", snapshots, 1)
    if snapshots == 0:
        count_of(name, "snapshots", 0, 1)
    if store is not None and not isinstance(store, (str, os.PathLike)):
        raise ArgumentError(f'{name}: store is {store!r:.60}; give a folder, or "host"')
    form = StateForm(name, state)
    members = [as_value(v, ()) for v in leaves(state)]
    if OPEN.depth and n > 1:
        members = LoopCall.run_all(n, step, form, members, snapshots, store)
        members = form.stepped(step, n - 1, members)
    else:
        for i in range(n):
            members = form.stepped(step, i, members)
    last: S = form.tree(members)
    return last


def count_of(name: str, what: str, value: Any, least: int) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        found = least - 1
    if found < least or isinstance(value, bool):
        raise ArgumentError(f"{name}: {what} is {value!r:.60}; it must be an integer of at least {least}")
    return found


def as_value(v: Any, own: AnyTuple | AnyList) -> Any:
    """A leaf of the state as a value that later writes to other arrays do not alter. `own`: arrays that
    nobody else holds."""
    if isinstance(v, Variable):
        return frozen(live(v))
    if is_array(v):
        v = v if any([v is x for x in own]) else copy_with_layout(v)
    else:
        v = numpy_number(v)
    return variable(v) if OPEN.depth and is_differentiable(v) else v


class StateForm:
    """The tree of a state, with shapes and dtypes of its leaves, which no step may change."""

    def __init__(self, name: str, state: Any):
        self.name, self.like = name, tree_map(lambda v: None, state)
        flat = leaves(state)
        self.layouts = [self.layout(v) for v in flat]
        self.active = [k for k, v in enumerate(flat) if is_differentiable(layout_of(v))]

    def layout(self, v: Any) -> AnyTuple | None:
        """Shape and dtype of a leaf. None for what has no derivative and passes from step to step."""
        v = numpy_number(layout_of(v))
        if is_array(v) or isinstance(v, np.generic):
            return v.shape, v.dtype
        if type(v) not in IMMUTABLE:
            raise ArgumentError(
                f"{self.name}: the state holds {describe_tree(v)}; a state is a tree of arrays, numbers, "
                f"strings and None: make the class a dataclass, or see register_tree"
            )
        return None

    def tree(self, members: AnyList) -> Any:
        return with_leaves(self.like, iter(members))

    def stepped(self, step: AnyFunction, i: int, members: AnyList, like: Any = None) -> AnyList:
        """The leaves of the next state. `like`: the tree in the classes that `step` knows."""
        like = self.like if like is None else like
        y, flat = step(i, with_leaves(like, iter(members))), []
        try:
            tree_map(lambda _, v: flat.append(arrays_of_tables(v, True)), like, y)
        except ArgumentError:
            flat = []
        if len(flat) != len(members) or any(map(is_node, flat)):
            raise ShapeError(
                f"{self.name}: step {i} returned {describe_tree(y)}, but the state is "
                f"{describe_tree(self.tree(members))}: return a state of the same tree"
            )
        for k, (v, layout) in enumerate(zip(flat, self.layouts, strict=True)):
            now = self.layout(v)
            if now != layout:
                raise ShapeError(
                    f"{self.name}: step {i} changed leaf {k} of the state from {words_of(layout)} to "
                    f"{words_of(now)}: give the first state the shape and dtype that the step returns"
                )
        own, found = [*members], []
        for v in flat:
            found.append(as_value(v, own))
            own = [x for x in own if x is not v]
        return found


def words_of(layout: AnyTuple | None) -> str:
    return "an object that is no array" if layout is None else f"shape {layout[0]}, {layout[1]}"


class StoredArray:
    """An array that waits outside of its memory: in a file, or on the host."""

    def __init__(self, a: Any, store: Any):
        self.xp, self.host = xp_of(a), None
        self.path = ""
        if store == "host":
            self.host = a.get()
            return
        os.makedirs(store, exist_ok=True)
        number, self.path = tempfile.mkstemp(".npy", "snapshot-", os.path.abspath(store))
        with os.fdopen(number, "wb") as file:
            np.save(file, a if self.xp is np else a.get(), allow_pickle=False)

    def __del__(self) -> None:
        path = getattr(self, "path", "")
        if path:
            with suppress(OSError):
                os.unlink(path)

    def load(self) -> Any:
        return self.xp.asarray(np.load(self.path, allow_pickle=False) if self.host is None else self.host)


class Snapshot:
    """What a step begins with: values of the captured Variables, leaves of the state, states of random
    generators. Arrays may be stored elsewhere."""

    def __init__(self, values: AnyList, members: AnyList, draws: AnyList):
        self.values, self.members, self.draws = values, members, draws

    def put_into(self, store: Any, shared: AnyList) -> "Snapshot":
        """The same with its large arrays in the store. `shared`: values that are held anyway."""

        def put(held: AnyList) -> AnyList:
            return [
                StoredArray(v, store)
                if is_array(v)
                and v.nbytes >= LEAST_STORED
                and (store != "host" or xp_of(v) is not np)
                and not any([v is x for x in shared])
                else v
                for v in held
            ]

        return self if store is None else Snapshot(put(self.values), put(self.members), self.draws)

    def loaded(self) -> "Snapshot":
        """The same with all arrays in their memory. Its lists belong to the caller."""

        def load(held: AnyList) -> AnyList:
            return [v.load() if isinstance(v, StoredArray) else v for v in held]

        return Snapshot(load(self.values), load(self.members), self.draws)


LEAST_STORED = 4096  # bytes; smaller arrays stay in memory


class StepRuns:
    """Runs of a step, one after another, within one shadow of it."""

    def __init__(self, call: "LoopCall", shadow: Rebind, step: AnyFunction, like: Any):
        self.call, self.shadow, self.step, self.like = call, shadow, step, like
        self.values: AnyList = [*shadow.values]
        self.versions: AnyDict = {}
        self.members: AnyList = []

    def handle(self, k: int) -> Any:
        """The stand-in of a captured Variable; None if the step has not met it."""
        place = self.shadow.places.get(k)
        return None if place is None else self.shadow.handles[place][1]

    def load(self, at: Snapshot) -> None:
        """Go on from there."""
        self.values, self.members, self.versions = [*at.values], [as_variable(v) for v in at.members], {}
        self.shadow.values = tuple(self.values)
        for k, v in enumerate(self.values):
            y = self.handle(k)
            if y is not None:
                y._become(as_variable(v))
                y._saved = True
                self.versions[k] = y._version
        for r, state in self.call.draws:
            restore(r, next((s for g, s in at.draws if g is r), state))

    def one(self, i: int) -> None:
        self.members = self.call.form.stepped(self.step, i, self.members, self.like)

    def written(self) -> set[int]:
        """Which captured Variables have been written since `load`."""
        return {
            k
            for k in range(len(self.values))
            if (y := self.handle(k)) is not None and y._version > self.versions.get(k, 0)
        }

    def now(self) -> AnyTuple:
        """Captured Variables and leaves of the state as they are now, as frozen Variables."""
        written = self.written()
        return (
            [frozen(live(self.handle(k))) if k in written else v for k, v in enumerate(self.values)],
            self.members,
        )

    def taken(self) -> Snapshot:
        values, members = self.now()
        draws = [(r, snapshot(r)) for r, _ in self.call.draws or self.shadow.generators]
        return Snapshot([lowered(v) for v in values], [lowered(v) for v in members], draws)


def as_variable(v: Any) -> Any:
    """A value as a Variable whose memory others hold."""
    return frozen(v if isinstance(v, Variable) else variable(v)) if is_differentiable(layout_of(v)) else v


def lowered(v: Any) -> Any:
    """The value of a Variable, which later writes do not alter."""
    if not isinstance(v, Variable):
        return v
    v = frozen(v)
    return bottom(v) if v._trace is None else v


class LoopCall(CheckpointCall):
    """All steps of a loop but the last one, as one function of values: of the captured Variables and of the
    leaves of the state, to what the steps leave there."""

    def __init__(self, first: Rebind, step: AnyTuple, kept: AnyTuple, form: StateForm, n: int):
        super().__init__(first, step, kept, form.name)
        self.form, self.n = form, n
        self.snapshots, self.store, self.keeps = 1, None, False
        self.constants: AnyList = []  # the other leaves of the first state
        self.after: AnyList = []  # those after the last step
        self.begin: AnyTuple = ()  # the inputs of the first run
        self.taken: AnyList = []  # its snapshots: (step, Snapshot)
        self.carried: list[int] = []  # the inputs that the steps change

    @staticmethod
    def run_all(
        n: int, step: AnyFunction, form: StateForm, members: AnyList, snapshots: Any, store: Any
    ) -> AnyList:
        """The leaves of the state before step n - 1."""
        first = Rebind(step, [form.like])
        with first as (g, (like,)):
            first.arrays = []
        call = LoopCall(first, (step, form.like), (g, like), form, n - 1)
        state = [members[k] for k in form.active]
        call.snapshots = snapshots or affordable(n, sum([layout_of(v).nbytes for v in state]))
        call.store, call.constants = store, members
        inputs = [*[x for x, _ in first.handles], *state]
        call.keeps = any([isinstance(live(v)._trace, Tape) for v in inputs])
        try:
            handles, outs = with_all(first, lambda values: bind(call.primitive(), [*values, *state], {}))
        except Exception as error:
            note_carried(error, [(v,) for v in inputs])
            raise
        for k, x in enumerate(handles):
            if k in call.carried and isinstance(outs[k], Variable):
                captured_result(x, outs[k])
        return call.all_members([as_value(v, ()) for v in outs[len(handles) :]], call.after)

    def all_members(self, state: AnyList, others: AnyList) -> AnyList:
        found = [*others]
        for k, v in zip(self.form.active, state, strict=True):
            found[k] = v
        return found

    def start(self, inputs: AnyTuple) -> Snapshot:
        count = len(inputs) - len(self.form.active)
        return Snapshot([*inputs[:count]], self.all_members([*inputs[count:]], self.constants), self.draws)

    def outputs(self, runs: StepRuns) -> AnyList:
        values, members = runs.now()
        return [*values, *[members[k] for k in self.form.active]]

    @contextmanager
    def runs(self, start: Snapshot) -> Iterator[StepRuns]:
        """Runs of the step, from `start` on. All but those of the first pass leave everything as it is."""
        first = self.marks is None
        step, like = self.run
        before = [(r, snapshot(r)) for r, _ in self.draws]
        shadow = Rebind(step, [like], self.first, tuple(start.values))
        with shadow as (g, (like,)):
            shadow.arrays = []
            runs = StepRuns(self, shadow, g, like)
            runs.load(start)
            done = False
            try:
                yield runs
                shadow.check_all(self.name)
                done = True
            except Exception:
                if first:
                    left_by_error(shadow, self.name, runs.written())
                raise
            finally:
                if not (first and done):
                    for r, state in [*shadow.generators, *before]:
                        restore(r, state)
                    for x, held in shadow.state:
                        put_back(x, held)
        shadow.arrays = []
        if first:
            shadow.finish()
        else:
            ended(shadow)

    def __call__(self, *inputs: Any) -> AnyTuple:
        if self.marks is None:
            return self.passed(inputs)
        with scope_block():
            self.as_before()
            return self.passed(inputs)

    def passed(self, inputs: AnyTuple) -> AnyTuple:
        """All steps. The first time, snapshots are taken on the way."""
        first = self.marks is None
        at = first_snapshots(self.n + 1, self.snapshots) if first and self.keeps else []
        taken: AnyList = []
        with self.runs(self.start(inputs)) as runs:
            for i in range(self.n):
                if len(taken) < len(at) and at[len(taken)] == i:
                    taken.append((i, runs.taken().put_into(self.store, [*inputs])))
                runs.one(i)
            written = runs.written()
            outs = [out_of(v) for v in self.outputs(runs)]
            self.check_levels(inputs, outs)
            if first:
                self.check_effects(runs.shadow)
                count = len(inputs) - len(self.form.active)
                self.carried = sorted({*written, *range(count, len(inputs))})
                self.draws, self.after = [*runs.shadow.generators], [lowered(v) for v in runs.members]
                self.before = [(x, held, False) for x, held in runs.shadow.state]
                self.run, self.taken, self.begin = self.kept, taken, inputs
            marks = [mark(outs[k]) for k in self.carried]
            if first:
                self.marks = marks
            else:
                self.check_values(marks)
        return tuple(outs)

    def check_effects(self, shadow: Rebind) -> None:
        """Raise if the steps have changed something that no snapshot holds."""
        shadow.check(self.name)
        altered = [type(x).__name__ for x, held in shadow.state if not is_same(x, held)]
        altered += [
            change[0].words.format(change[1])
            for change in shadow.changes
            if change[0].altered(shadow, change)
        ]
        seen = shadow.seen.values()
        if any([type(x) is RecordedIterator and x.items or isinstance(x, FlatIterator) for x in seen]):
            altered.append("an iterator")
        altered += ["an object"] if shadow.near and strays(shadow)[1] else []
        if altered:
            raise ArgumentError(
                f"{self.name}: the step changes {altered[0]} outside of its state. Some steps are run again "
                f"for the derivative: carry it in the state, write it into an array, or read data by the "
                f"step's number"
            )

    def flat(self, at: Snapshot) -> AnyList:
        return [*at.values, *[at.members[k] for k in self.form.active]]

    def from_inputs(self, flat: AnyList, at: Snapshot) -> Snapshot:
        """`at` with other values."""
        count = len(at.values)
        return Snapshot(flat[:count], self.all_members(flat[count:], at.members), at.draws)

    def reverse_rule(self, g: Any, out: Any, need: Any, *inputs: Any) -> AnyTuple:
        active = sorted({*self.carried, *[k for k, needed in enumerate(need) if needed]})
        G = [constant_like(inputs[k], 0) if g[k] is None else g[k] for k in active]
        known = len(inputs) == len(self.begin) and all(
            [a is b for a, b in zip(inputs, self.begin, strict=True)]
        )
        start = self.start(inputs)
        stack = self.taken if known and self.taken else [(0, start)]
        self.taken, self.begin = [], ()
        end, later = self.n, None
        with scope_block():
            self.as_before()
            with self.runs(start) as runs:
                while stack:
                    at = self.advanced(runs, stack, end, [*inputs])
                    end -= 1
                    if stack[-1][0] == end:
                        stack.pop()
                    y, G = self.step_back(runs, end, at, active, G)
                    self.check_step([v for k, v in zip(active, y, strict=True) if k in self.carried], later)
                    flat = self.flat(at)
                    later = [flat[k] for k in self.carried]
        terms: AnyList = [None] * len(inputs)
        for k, c in zip(active, G, strict=True):
            terms[k] = c
        return self.poisoned(tuple(terms))

    def advanced(self, runs: StepRuns, stack: AnyList, end: int, shared: AnyList) -> Snapshot:
        """What step end - 1 begins with, from the last snapshot on. New ones are taken on the way."""
        a, kept = stack[-1]
        at: Snapshot = kept.loaded()
        if end - a > 1:
            runs.load(at)
        while end - a > 1:
            free = self.snapshots - len(stack)
            for i in range(a, a := a + advance_length(end - a, free + 1)):
                runs.one(i)
            at = runs.taken()
            if free:
                stack.append((a, at.put_into(self.store, shared)))
        return at

    def step_back(self, runs: StepRuns, i: int, at: Snapshot, active: AnyList, G: AnyList) -> AnyTuple:
        """The active outputs of step i, and the cotangents of its active inputs."""
        flat = self.flat(at)

        def step(*xs: Any) -> AnyTuple:
            given = [*flat]
            for k, x in zip(active, xs, strict=True):
                given[k] = x
            runs.load(self.from_inputs(given, at))
            runs.one(i)
            outs = self.outputs(runs)
            return tuple([outs[k] for k in active])

        with changed(apart=True):
            y, pullback = vjp(Const(step), *[flat[k] for k in active])
        terms = pullback(tuple(G))
        return y, [*terms] if len(active) > 1 else [terms]

    def check_step(self, values: AnyList, later: AnyList | None) -> None:
        """Are the results of a step what the next one began with?"""
        if later is None:
            self.check_values([mark(v) for v in values])
            return
        for v, w in zip(values, later, strict=True):
            v, w = primal_of(v), primal_of(w)
            if not (type(v) is type(w) is np.ndarray and v.shape == w.shape and same_bits(v, w)):
                self.check_values([mark(v)], [mark(w)])


def affordable(n: int, size: int) -> int:
    """How many states of so many bytes a loop of n steps keeps by default."""
    return max(1, min(n - 1, max(n.bit_length(), SNAPSHOT_BUDGET // max(size, 1))))
