"""The trace of `vmap`: one run for all samples.

At this level the slot of a Variable is the stack of its values, one level down, with the samples along
a first axis. Its value is an abstract value with shape, dtype and memory order of one sample
(_core/abstract_arrays.py).

An operation runs on stacks by the batching rule that its declaration names (`Primitive.batch`),
otherwise on one sample after another. See rules.py, and captured_marks.py for
captured arrays.

Control flow can depend on errors, and on warnings that the function can observe. So they must be the
same for all samples, like a condition (`compare`)."""

import warnings
from typing import Any

import numpy as np
from numpy import ndarray

from ..._capture.snapshots import content_of
from ..._core.abstract_arrays import hollow, hollow_number, read_only_as
from ..._core.arrays import NUMBERS, is_array, is_scalar, xp_of
from ..._core.errors import BatchError, OfTracked, callers_line, let_through
from ..._core.float_errors import LOUD, ErrorListener, ending, looked_at
from ..._core.primitive import (
    HIDDEN,
    READ,
    SAMPLED,
    EndedTrace,
    Primitive,
    Trace,
    TransparentTrace,
    bind,
    handles_of,
    is_tracked,
    layout_of,
    live,
    primal_of,
    values_of,
)
from ..._core.scope import OPEN, now
from ..._core.typing import AnyDict, AnyList
from ..._core.variable import Variable, View, bottom, copied, frozen, like_layout, variable
from ...ops import shaping as s
from ...ops.declare import ndim
from .captured_marks import CapturedBuffer, Marks
from .rules import (
    OWN,
    CustomRule,
    as_stack,
    empty_stack,
    is_gathered,
    laid_as_one,
    sample_strides,
    samples_first,
    sequential_rule,
    way_of,
)

SAMPLES: AnyDict = {}  # (shape, dtype, strides) of a stack -> the abstract value of a sample


def unmarked(x: Any) -> tuple[Any, Any]:
    """A value without the marks of an outer `vmap`, and the Variable at the level of that, or None."""
    if not isinstance(x, Variable) or x._trace is None:
        return x, None
    slot = x._slot
    if type(slot) is CapturedBuffer:
        return variable(x._value, x._trace, slot.value) if slot.batched else slot.value, x
    below, marked = unmarked(x._value)
    return x if marked is None else variable(below, x._trace, slot), marked


def marked_again(x: Any, marked: Variable) -> Variable:
    """A value with these marks at their level, below the transforms within that `vmap`."""
    trace, marks = marked._trace, marked._slot.marks
    if isinstance(x, Variable) and x._trace is not None:
        if x._trace is trace:
            return variable(marked._value, trace, CapturedBuffer(x._slot, True, marks))
        if x._trace.level > trace.level:
            return variable(marked_again(x._value, marked), x._trace, x._slot)
    return variable(marked._value, trace, CapturedBuffer(x, False, marks))


class Batch(Trace):
    __slots__ = ()
    visibility = SAMPLED
    holds = True

    def __init__(self, call: str, count: int) -> None:
        super().__init__()
        self.call, self.count = call, count
        self.adopted: AnyList = []  # captured arrays: (handle, its fields before)
        self.noted: AnyDict = {}  # id -> (an object that is not followed, its content when first met)
        self.handed = False  # was read-only memory lent?
        self.doubts: AnyList = []  # errors of operations that only some samples would have met
        self.outside = self.filters = warnings.filters
        self.setting, self.loud = self, False  # can the function observe a warning or a floating-point error?
        self.pointed: AnyList = []  # lent memory whose address was taken: (array, a copy)

    # --- interface for other modules ---

    def made(self, stack: Any, whole: bool = False) -> Variable:
        """A Variable of this stack. `whole`: a sample without axes is an array, not a number."""
        if type(stack) is ndarray and stack.ndim > 1:  # the usual case
            key = stack.shape, stack.dtype, stack.strides
            like = SAMPLES.get(key)
            if like is None:
                if len(SAMPLES) > 999:
                    SAMPLES.clear()
                like = SAMPLES[key] = hollow(np, key[0][1:], key[1], sample_strides(stack))
            return variable(like, self, stack)
        if type(stack) is View:
            layout_of(stack)
            stack = frozen(stack)
        b = stack if type(stack) is ndarray else bottom(stack)
        to, d = b.shape, b.dtype
        if len(to) == 1 and not whole and xp_of(b) is np:
            return variable(hollow_number(d), self, stack)
        return variable(hollow(xp_of(b), to[1:], d, sample_strides(b)), self, stack)

    def watch(self, value: Any, axis: int) -> Variable:
        """An argument, with the samples along this axis."""
        value = (
            live(value) if isinstance(value, Variable) else value if is_array(value) else np.asarray(value)
        )
        if axis:
            order = (axis, *[k for k in range(ndim(value)) if k != axis])
            value = s.transpose(value, axes=order)
        x = self.made(samples_first(value))
        x._value = read_only_as(bottom(value), x._value)
        x._saved = True
        return x

    def held(self, x: Variable) -> Any:
        return getattr(x._slot, "value", x._slot)

    def taken(self, x: Variable) -> Variable:
        """x as an argument of an inner transform. Its marks begin anew, as written by every sample, so
        writes are allowed."""
        y = frozen(x)
        if type(y._slot) is CapturedBuffer:
            y._slot.marks.on_read((), None)
            marks = Marks(self.call, x)
            marks.own = True
            y._slot = CapturedBuffer(y._slot.value, y._slot.batched, marks)
        return y

    def adopt(self, x: Variable) -> None:
        """Begin to mark reads and writes of a captured array."""
        if type(x) is View:
            x._seen, x._value, x = -1, None, x._base
        trace, value = x._trace, x._value
        b = bottom(x)
        if (
            trace is self
            or not is_array(b)
            or (xp_of(b) is np and not b.flags.writeable)
            or isinstance(trace, TransparentTrace)
        ):
            return
        if getattr(x, "_version", None) is None:
            x._version = 0
        below = frozen(x) if trace is not None else value
        held, marked = unmarked(below)
        self.adopted.append((x, value, trace, x._slot, getattr(x, "_saved", False), marked))
        if isinstance(held, Variable):
            held._saved = True
        x._slot = CapturedBuffer(
            held, False, Marks(self.call, x, None if marked is None else marked._slot.marks)
        )
        x._value, x._trace = hollow(xp_of(b), b.shape, b.dtype, b.strides), self

    def note(self, x: Any) -> None:
        """Note an object that is not followed and may be changed."""
        if id(x) not in self.noted and self.count > 1:
            content = content_of(x)
            if content is not None:
                self.noted[id(x)] = x, content

    def advance(self) -> None:
        if self.count > 1:
            raise BatchError(
                f"{self.call}: {callers_line()}: the function takes an item of an iterator that was made "
                "outside of it: a loop over the samples would give each of them another. Make the iterator "
                "inside, or pass the items as an argument"
            )

    def adopt_outer(self) -> None:
        """Adopt the arrays that outer transforms have captured."""
        for shadow in OPEN.shadows:
            for _, x in shadow.arrays:
                self.adopt(x)
            for x in shadow.hold:
                if isinstance(x, Variable):
                    self.adopt(x)
            for x in (*shadow.left, *[x for kind, x, new, *_ in shadow.changes if x is new]):
                self.note(x)

    def hand_back(self, x: Variable, value: Any, trace: Any, slot: Any, saved: bool, marked: Any) -> None:
        """Restore an adopted array after the function."""
        if x._slot.marks.written is False:
            x._value, x._trace, x._slot, x._saved = value, trace, slot, saved
        elif marked is not None:
            below = marked_again(self.beneath(x), marked)
            x._become(below)
            x._saved = True
            below._trace.risen.append(x)
        else:
            self.risen.append(x)

    def sample(self, x: Variable, k: int) -> Any:
        """The value of x in one sample, one level down."""
        if type(x._slot) is CapturedBuffer:
            value = x._slot.value
            return (
                value
                if not x._slot.batched
                else bind(READ, (value,), {"path": (), "at": (k,) if ndim(value) == 1 else k, "copy": True})
            )
        return bind(READ, (x._slot,), {"path": (), "at": (k,) if ndim(x._slot) == 1 else k, "copy": True})

    def stacked(self, y: Any) -> Any:
        """The stack of a result of any level."""
        if isinstance(y, Variable):
            y = live(y)
            if y._trace is self:
                if type(y._slot) is not CapturedBuffer:
                    return y._slot
                y._slot.marks.on_read((), None)
                return as_stack(self, y._slot.value, y._slot.batched)
            if y._trace is None:
                y = bottom(y)
        return as_stack(self, y, False)

    def without_derivatives(self, x: Variable) -> Variable:
        x = live(x)
        slot = x._slot.value if type(x._slot) is CapturedBuffer else x._slot
        if primal_of(slot) is slot:
            return x
        return self.made(primal_of(self.stacked(x)), is_array(x._value))

    def beneath(self, x: Variable) -> Any:
        """The value of the handle after the run: that of the last sample, as a loop over the samples
        leaves it."""
        if not self.count:
            return s.zeros_like(x)
        y = self.sample(x, -1)
        return (
            frozen(y)
            if isinstance(y, Variable)
            else np.asarray(y)
            if is_array(x._value) and not is_array(y)
            else y
        )

    def memory(self, slot: Any) -> Any:
        return slot.value if type(slot) is CapturedBuffer else slot

    def is_plain(self, x: Variable) -> bool:
        slot = x._slot
        return type(slot) is CapturedBuffer and not slot.batched and not is_tracked(slot.value)

    def copied_slot(self, slot: Any, x: Variable) -> Any:
        if type(slot) is CapturedBuffer:
            return CapturedBuffer(
                samples_first(copied(slot.value)) if slot.batched else copied(slot.value),
                slot.batched,
                slot.marks,
            )
        return samples_first(copied(slot))

    def laid_slot(self, stack: Any, value: Any) -> Any:
        """The stack, with each sample in the memory order of `value`."""
        if type(stack) is CapturedBuffer:
            stack.marks.on_read((), None)
            stack = stack.value if stack.batched else as_stack(self, stack.value, False)
        return like_layout(stack, empty_stack(self.count, value))

    def picks(self, x: Any) -> Any:
        """Is x not captured, and different from sample to sample?"""
        v = primal_of(x._slot)
        if isinstance(v, Variable):
            return True
        return not bool((v == v[:1]).all())

    def agreed(self, slot: Any, what: str) -> Any:
        """The value that all samples share. Raises if they differ."""
        if type(slot) is CapturedBuffer:
            slot.marks.on_read((), None)
            if not slot.batched:
                return slot.value
            slot = slot.value
        v = values_of(slot)
        if not len(v):
            raise BatchError(
                f"{self.call}: {callers_line()}: {what} of a stack without samples; return early for an "
                "empty stack"
            )
        if bool((v == v[:1]).all()):
            return v[-1]
        if v.dtype.kind == "b":
            n = int(v.sum()) if v.ndim == 1 else None
            counts = f" (true for {n} of {len(v)})" if n is not None else ""
        else:
            counts = ""
        raise BatchError(f"{self.call}: {callers_line()}: {what} that differs between samples{counts}{CURE}")

    def values(self, x: Any) -> Any:
        v = self.agreed(x._slot, "a value is asked for (by `if`, an index, a count, a shape or a conversion)")
        return np.asarray(v) if isinstance(v, np.generic) and is_array(layout_of(x)) else v

    def truth(self, x: Any) -> Any:
        return bool(values_of(self.agreed(x._slot, "`if`, `while`, `and`, `or` or `not` on a condition")))

    def close(self) -> None:
        for x, *before in self.adopted:
            if x._trace is self:
                self.hand_back(x, *before)
        self.adopted = []
        for x in self.risen:
            if x._trace is self:
                x._value = self.beneath(x)
        super().close()
        self.__class__ = EndedBatch  # type: ignore[assignment]

    def draws(self, name: Any) -> None:
        """Raises: in a loop each sample would draw other numbers."""
        raise BatchError(
            f"{self.call}: {callers_line()}: numpy.random: {name}() would give all samples the same numbers, "
            "for tg.vmap runs the function once for all of them: draw the numbers outside and pass them as "
            "an argument, or make the generator inside of the function with a seed"
        )

    # --- operations ---

    def step(self, prim: Any, args: Any, inputs: Any, slots: Any, params: Any) -> Any:
        setting = now()
        if setting is not self.setting or warnings.filters is not self.filters:
            self.setting, self.filters = setting, warnings.filters
            self.loud = LOUD in looked_at(setting, self.outside)
        if self.loud:
            return self.listened(prim, args, inputs, slots, params)
        try:
            out = self.in_place(prim, inputs, slots, params) if prim.batch == "elementwise" else None
            return self.done(prim, args, inputs, slots, params) if out is None else self.made(out)
        except Exception as error:
            self.compare(error, [], prim, inputs, slots, params)
            raise

    def listened(self, prim: Any, args: Any, inputs: Any, slots: Any, params: Any) -> Any:
        """The operation, if the function can observe its errors or warnings."""
        with ErrorListener() as told:
            try:
                out = self.done(prim, args, inputs, slots, params)
            except Exception as error:
                self.compare(error, told.heard, prim, inputs, slots, params)
                raise
        if told.heard:
            self.compare(None, told.heard, prim, inputs, slots, params)
        return out

    def compare(self, error: Any, heard: Any, prim: Any, inputs: Any, slots: Any, params: Any) -> None:
        """Compare how an operation ended with how it ends for each sample. A difference is a BatchError,
        unless the error leaves the function: code that catches it would handle all samples like one."""
        if isinstance(error, OfTracked) or prim.batch == "inside" or self.count < 2:
            return
        ends = [] if prim.writes else [self.end_of(k, prim, inputs, slots, params) for k in range(self.count)]
        if (
            ends
            and all([e == ends[0] for e in ends])
            and ends[0][0] is type(error)
            and [*ends[0][2:]] == heard
        ):
            return
        what = (
            f"raises {type(error).__name__}"
            if error is not None
            else "gives a warning, or a floating-point error,"
        )
        count = sum([e[0] is not type(None) or len(e) > 2 for e in ends])
        known = (
            f"for {count} of {len(ends)} samples"
            if ends and count < len(ends)
            else "that may differ between samples"
        )
        text = (
            f"{self.call}: {callers_line()}: {prim} {what} {known}, and the function goes on from there, for "
            "all samples at once: give tg.vmap(f, chunk=1), which runs each sample by itself, or write the "
            "function so that no sample raises or warns"
        )
        self.doubts.append(text)
        BatchError(text)  # raised after the function, if it returns

    def end_of(self, k: Any, prim: Any, inputs: Any, slots: Any, params: Any) -> Any:
        """How the operation ends for sample number k."""
        error = None
        with ErrorListener(True) as told:
            try:
                samples = [
                    v if t is None else self.sample(variable(None, self, t), k)
                    for v, t in zip(inputs, slots, strict=True)
                ]
                bind(prim, samples, params)
            except Exception as e:
                let_through(e)
                error = e
        return ending(error, told.heard)

    def done(self, prim: Any, args: Any, inputs: Any, slots: Any, params: Any) -> Any:
        if prim.batch == "inside":
            return prim.run(*args, **params)
        given, target = [], None
        for k, t in enumerate(slots):
            if type(t) is not CapturedBuffer:
                given.append((inputs[k], False) if t is None else (t, True))
                continue
            given.append((t.value, t.batched))
            if prim.writes and k == 0:
                target = t
            else:
                t.marks.met(prim, params, k)
        if target is not None:  # after the reads, which may be of the same array
            target.marks.met(prim, params, 0)
        if True not in [batched for _, batched in given]:
            return self.not_batched(prim, [v for v, _ in given], params, inputs[0], target)
        out = (
            NotImplemented
            if prim.batch is None and prim not in OWN
            else way_of(prim)(self, prim, given, params)
        )
        if out is NotImplemented:
            out = sequential_rule(self, prim, given, params)
        elif (
            is_gathered(params["at"])
            if prim is READ
            else type(prim.batch) is not CustomRule
            and prim.batch != "elementwise"
            and (prim not in OWN or prim in JOINED)
        ):
            out = laid_as_one(self, prim, out, given, params)
        if type(out) is tuple:
            return tuple([self.made(o) for o in out])
        if target is not None:
            return variable(inputs[0], self, CapturedBuffer(out, True, target.marks))
        if prim.writes:
            return self.made(out, is_array(inputs[0]))
        whole = ndim(out) == 1 and (is_array_of(prim, params) or (prim in KEEPING and is_array(inputs[0])))
        return self.made(out, whole)

    def in_place(self, prim: Primitive, inputs: Any, slots: Any, params: AnyDict) -> Any:
        """The fast path for elementwise operations on plain stacks with equal numbers of axes, and
        constants with no more. None for others."""
        given, rank, most = [], -1, 0
        for v, t in zip(inputs, slots, strict=True):
            kind = type(t)
            if kind is ndarray:
                if rank < 0:
                    rank = t.ndim
                elif t.ndim != rank:
                    return None
            else:
                if kind is CapturedBuffer:
                    v = t.value
                    if t.batched or type(v) is not ndarray:
                        return None
                    t.marks.on_read((), None)
                elif t is not None:
                    return None
                n = v.ndim if type(v) is ndarray else 0 if type(v) in NUMBERS or is_scalar(v) else 99
                if n > most:
                    most = n
                t = v
            given.append(t)
        if most >= rank or (rank == 1 and prim in ARRAYS):
            return None
        return prim.run(*given, **params)

    def not_batched(self, prim: Primitive, given: AnyList, params: AnyDict, shown: Any, target: Any) -> Any:
        """An operation on captured arrays that are still the same for all samples."""
        out = bind(prim, given, params)
        if target is not None:
            return variable(shown, self, CapturedBuffer(out, False, target.marks))
        return handles_of(out)


CURE = (
    ", and tg.vmap runs the function once for all of them; write numpy.where(condition, a, b), or loop"
    " over the samples"
)


class EndedBatch(EndedTrace):
    """A batch after its function: its Variables are the values of the last sample."""

    __slots__ = ()
    visibility = HIDDEN
    beneath, sample, memory = Batch.beneath, Batch.sample, Batch.memory


def is_array_of(prim: Primitive, params: AnyDict) -> bool:
    """Does the operation return an array even without axes?"""
    if prim is READ:
        return params["at"] is None or params["at"] is Ellipsis
    return prim is s.array_of.prim or (prim.batch == "moves" and prim not in KEEPING)


# return an array for an array, a number for a number
KEEPING = frozenset([f.prim for f in (s.copy, s.astype, s.reshape, s.transpose)])
JOINED = frozenset([f.prim for f in (s.layered, s.concatenate)])
ARRAYS = KEEPING | {s.array_of.prim}
