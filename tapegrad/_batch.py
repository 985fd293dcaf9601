"""Batching: all samples at once.  At this level a Variable's slot is the stack of its values for all samples, the samples along a
first axis, one level down; what lies under it has shape, dtype and memory order of one sample, and no values (_hollow.py).

An operation runs on stacks as the word of its declaration says (`Primitive.batch`), and where there is none, on one sample after the
other.  Reading order: `Batch`; the words; operations with a way of their own; regions.  Arrays that the function captured: _carried.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ._array import NUMBERS, is_array, is_scalar, xp_of
from ._carried import Buffer, Marks
from ._hollow import hollow, hollow_number
from ._primitive import ADD_AT, ASSIGN, OPEN, READ, Ended, Primitive, Trace, bind, handle, is_tracked, layout_of, live, primal_of, values_of
from ._variable import Variable, View, bottom, copied, frozen, like_layout, variable
from .errors import BatchError, callers_line
from .ops import indexing as ix
from .ops import shaping as s
from .ops._define import dtype, ndim, shape, xp
from .ops.products import T, matmul


class Batch(Trace):
    __slots__ = ()
    hides = True
    holds = True
    samples = True

    def __init__(self, call: str, count: int):
        super().__init__()
        self.call, self.count = call, count
        self.adopted: list = []  # captured arrays: (handle, its fields as they were)

    # --- what it is for others ---

    def made(self, stack: Any, whole: bool = False) -> Variable:
        """A Variable of this stack.  `whole`: one without axes is an array, not a number."""
        if type(stack) is View:
            layout_of(stack)
            stack = frozen(stack)
        b = stack if type(stack) is ndarray else bottom(stack)
        to, d = b.shape, b.dtype
        if len(to) == 1 and not whole and xp_of(b) is np:
            return variable(hollow_number(d), self, stack)
        return variable(hollow(xp_of(b), to[1:], d, b.strides[1:]), self, stack)

    def watch(self, value: Any, axis: int) -> Variable:
        """An argument, with the samples along this axis."""
        value = value if isinstance(value, Variable) or is_array(value) else np.asarray(value)
        if axis:
            order = (axis, *[k for k in range(ndim(value)) if k != axis])
            value = s.transpose(value, axes=order)
        x = self.made(samples_first(value))
        x._saved = True
        return x

    def adopt(self, x: Variable) -> None:
        """An array that the function captured: what is read of it and written is marked from now on."""
        if type(x) is View:
            x._seen, x._value, x = -1, None, x._base
        trace, value = x._trace, x._value
        b = bottom(x)
        if trace is self or not is_array(b) or (xp_of(b) is np and not b.flags.writeable) or isinstance(trace, Ended):
            return
        if getattr(x, "_version", None) is None:
            x._version = 0
        outer = x._slot if trace is not None and trace.samples and type(x._slot) is Buffer else None
        self.adopted.append((x, value, trace, x._slot, getattr(x, "_saved", False)))
        if trace is None:
            held = value
        elif outer is None:
            held = frozen(x)
        else:
            held = variable(value, trace, outer.value) if outer.batched else outer.value
        if isinstance(held, Variable):
            held._saved = True
        x._slot = Buffer(held, False, Marks(self.call, x, None if outer is None else outer.marks))
        x._value, x._trace = hollow(xp_of(b), b.shape, b.dtype, b.strides), self

    def adopt_outer(self) -> None:
        """What the transforms around this one have captured."""
        for shadow in getattr(OPEN, "shadows", ()):
            for _, x in shadow.arrays:
                self.adopt(x)
            for x in shadow.hold:
                if isinstance(x, Variable):
                    self.adopt(x)

    def hand_back(self, x: Variable, value: Any, trace: Any, slot: Any, saved: bool) -> None:
        """What was adopted, after the function."""
        if x._slot.marks.written is False:
            x._value, x._trace, x._slot, x._saved = value, trace, slot, saved
        elif trace is not None and trace.samples and type(slot) is Buffer:
            below = self.beneath(x)
            batched = isinstance(below, Variable) and below._trace is trace
            x._become(variable(value, trace, Buffer(below._slot if batched else below, batched, slot.marks)))
            x._saved = True
        else:
            self.risen.append(x)

    def sample(self, x: Variable, k: int) -> Any:
        """x of one sample, one level down."""
        if type(x._slot) is Buffer:
            value = x._slot.value
            return value if not x._slot.batched else bind(READ, (value,), {"path": (), "at": (k,) if ndim(value) == 1 else k, "copy": True})
        return bind(READ, (x._slot,), {"path": (), "at": (k,) if ndim(x._slot) == 1 else k, "copy": True})

    def stacked(self, y: Any) -> Any:
        """The stack of a result of whatever level."""
        if isinstance(y, Variable):
            y = live(y)
            if y._trace is self:
                if type(y._slot) is not Buffer:
                    return y._slot
                y._slot.marks.on_read((), None)
                return spread(self, y._slot.value, y._slot.batched)
            if y._trace is None:
                y = bottom(y)
        return spread(self, y, False)

    def beneath(self, x: Variable) -> Any:
        """What the handle is afterwards: as a loop over the samples leaves it."""
        if not self.count:
            return s.zeros_like(x)
        y = self.sample(x, -1)
        return frozen(y) if isinstance(y, Variable) else np.asarray(y) if is_array(x._value) and not is_array(y) else y

    def memory(self, slot: Any) -> Any:
        return slot.value if type(slot) is Buffer else slot

    def is_plain(self, x: Variable) -> bool:
        slot = x._slot
        return type(slot) is Buffer and not slot.batched and not is_tracked(slot.value)

    def copied_slot(self, slot: Any, x: Variable) -> Any:
        if type(slot) is Buffer:
            return Buffer(samples_first(copied(slot.value)) if slot.batched else copied(slot.value), slot.batched, slot.marks)
        return samples_first(copied(slot))

    def laid_slot(self, stack: Any, value: Any) -> Any:
        """The stack, each sample in the memory order of `value`."""
        if type(stack) is Buffer:
            stack.marks.on_read((), None)
            stack = stack.value if stack.batched else spread(self, stack.value, False)
        return like_layout(stack, room_for(self.count, value))

    def differs(self, x: Variable) -> bool:
        """Is x, which is not captured, not the same for all samples?"""
        v = primal_of(x._slot)
        if isinstance(v, Variable):
            return True
        return not bool((v == v[:1]).all())

    def agreed(self, slot: Any, what: str) -> Any:
        """What is the same for all samples."""
        if type(slot) is Buffer:
            slot.marks.on_read((), None)
            if not slot.batched:
                return slot.value
            slot = slot.value
        v = values_of(slot)
        if len(v) and bool((v == v[:1]).all()):
            return v[-1]
        if len(v) and v.dtype.kind == "b":
            n = int(v.sum()) if v.ndim == 1 else None
            counts = f" (true for {n} of {len(v)})" if n is not None else ""
        else:
            counts = ""
        raise BatchError(f"{self.call}: {callers_line()}: {what} that differs between samples{counts}{CURE}")

    def values(self, x):
        return self.agreed(x._slot, "a value is asked for (by `if`, an index, a count, a shape or a conversion)")

    def truth(self, x):
        return bool(values_of(self.agreed(x._slot, "`if`, `while`, `and`, `or` or `not` on a condition")))

    def close(self):
        for x, *before in self.adopted:
            if x._trace is self:
                self.hand_back(x, *before)
        self.adopted = []
        for x in self.risen:
            if x._trace is self:
                x._value = self.beneath(x)
        super().close()
        self.__class__ = Closed

    # --- what an operation is ---

    def step(self, prim, args, inputs, slots, params):
        if prim.batch == "elementwise":
            out = self.in_place(prim, inputs, slots, params)
            if out is not None:
                return self.made(out)
        elif prim.batch == "inside":
            return prim.run(*args, **params)
        given, target = [], None
        for k, t in enumerate(slots):
            if type(t) is not Buffer:
                given.append((inputs[k], False) if t is None else (t, True))
                continue
            given.append((t.value, t.batched))
            if prim.writes and k == 0:
                target = t
            t.marks.met(prim, params, k)
        if True not in [batched for _, batched in given]:
            return self.not_batched(prim, [v for v, _ in given], params, inputs[0], target)
        way = OWN.get(prim) or WORDS.get(prim.batch) or (one_by_one if prim.batch is None else stacked_rule)
        out = way(self, prim, given, params)
        if out is NotImplemented:
            out = one_by_one(self, prim, given, params)
        if type(out) is tuple:
            return tuple([self.made(o) for o in out])
        if target is not None:
            return variable(inputs[0], self, Buffer(out, True, target.marks))
        if prim.writes:
            return self.made(out, is_array(inputs[0]))
        whole = ndim(out) == 1 and (is_array_of(prim, params) or (prim in KEEPING and is_array(inputs[0])))
        return self.made(out, whole)

    def in_place(self, prim: Primitive, inputs: Any, slots: Any, params: dict) -> Any:
        """The usual elementwise operation: plain stacks of as many axes, and constants of no more.  None: another one."""
        given, rank, most = [], -1, 0
        for v, t in zip(inputs, slots, strict=True):
            if t is None:
                t, n = v, v.ndim if type(v) is ndarray else 0 if type(v) in NUMBERS or is_scalar(v) else -2
                if n < 0:
                    return None
                most = n if n > most else most
            elif type(t) is not ndarray or (rank >= 0 and t.ndim != rank):
                return None
            else:
                rank = t.ndim
            given.append(t)
        if most >= rank or (rank == 1 and prim in ARRAYS):
            return None
        return prim.run(*given, **params)

    def not_batched(self, prim: Primitive, given: list, params: dict, shown: Any, target: Any) -> Any:
        """An operation on captured arrays that are the same for all samples yet."""
        out = bind(prim, given, params)
        if target is not None:
            return variable(shown, self, Buffer(out, False, target.marks))
        return tuple([handle(o) for o in out]) if type(out) is tuple else handle(out)


CURE = ", and tg.vmap runs the function once for all of them; write numpy.where(condition, a, b), or loop over the samples"


class Closed(Ended):
    """A batch after its function: its Variables are the values of the last sample."""

    __slots__ = ()
    hides = True
    beneath, sample, memory = Batch.beneath, Batch.sample, Batch.memory

    def values(self, x):
        return self.beneath(x)


def is_array_of(prim: Primitive, params: dict) -> bool:
    """Does the operation give an array also where there are no axes?"""
    if prim is READ:
        return params["at"] is None or params["at"] is Ellipsis
    return prim.batch == "moves" or prim is s.array_of.prim


KEEPING = frozenset([f.prim for f in (s.copy, s.astype)])
ARRAYS = KEEPING | {s.array_of.prim}


def room_for(count: int, value: Any) -> Any:
    """Memory for so many samples, each in the order in which `value` lies."""
    b = layout_of(value)
    library, to, strides = xp_of(b), b.shape, getattr(b, "strides", ())
    order = sorted(range(len(to)), key=lambda k: -abs(strides[k]))
    room = library.empty((count, *[to[k] for k in order]), b.dtype)
    return room.transpose((0, *[1 + k for k in s.argsort(tuple(order))]))


def samples_first(stack: Any) -> Any:
    """A stack in memory of its own in which each sample lies by itself."""
    b = bottom(stack)
    if b.ndim < 2 or not b.size or (b.strides[0] >= max(b.strides[1:]) and min(b.strides) > 0):
        return stack
    return like_layout(stack, room_for(b.shape[0], b[0] if b.ndim > 1 else b))


# --- operands ---


def rank(given: tuple) -> int:
    v, batched = given
    return ndim(v) - batched


def padded(v: Any, n: int) -> Any:
    """A stack of samples of n axes, the new ones in front."""
    to = shape(v)
    return v if len(to) > n else s.reshape(v, to=(to[0], *(1,) * (n + 1 - len(to)), *to[1:]))


def aligned(operands: list) -> list:
    """Operands that broadcast as those of one sample do."""
    n = max([rank(o) for o in operands])
    return [padded(v, n) if batched else v for v, batched in operands]


def spread(trace: Batch, v: Any, batched: bool) -> Any:
    """An operand as a stack."""
    if batched:
        return v
    if not isinstance(v, Variable) and not is_array(v):
        v = np.asarray(v)
    to = (trace.count, *shape(v))
    return s.broadcast_to(v, to=to) if isinstance(v, Variable) else xp_of(v).broadcast_to(v, to)


def run_of(prim: Primitive) -> Callable:
    return lambda *xs, **params: bind(prim, xs, params)


# --- the words ---


def elementwise(trace, prim, operands, params):
    return bind(prim, aligned(operands), params)


def moved(axis: Any, n: int) -> Any:
    """An axis of a sample of n axes, or several, or None for all, as those of a stack."""
    if axis is None:
        return tuple(range(1, n + 1))
    if isinstance(axis, (tuple, list)):
        return tuple([moved(a, n) for a in axis])
    return axis if axis < 0 else axis + 1


def along_axis(trace, prim, operands, params):
    n = rank(operands[0])
    params = {k: moved(a, n) if k in ("axis", "axes") else a for k, a in params.items()}
    return bind(prim, [spread(trace, v, b) for v, b in operands], params)


def on_matrices(trace, prim, operands, params):
    return bind(prim, [spread(trace, v, b) for v, b in operands], params)


def stacked_rule(trace, prim, operands, params):
    """The operation's own rule."""
    return prim.batch(run_of(prim), [spread(trace, v, b) for v, b in operands], params)


def pieces_moved(trace, prim, operands, params):
    """Where each element of the result comes from is the same for all samples: the body is run on the elements' numbers, the last
    one standing for zero."""
    library = xp(operands[0][0])
    flats, numbers, n = [], [], 1
    for v, b in operands:
        v = spread(trace, v, b)
        to = shape(v)[1:]
        size = int(np.prod(to))
        numbers.append(library.arange(n, n + size).reshape(to))
        flats.append(s.reshape(v, to=(trace.count, size)))
        n += size
    zero = library.zeros((trace.count, 1), dtype(flats[0]))
    where = library.asarray(prim.run(*numbers, **params))
    return bind(READ, (s.concatenate(zero, *flats, axis=1),), {"path": (), "at": (slice(None), where), "copy": True})


def one_by_one(trace, prim, operands, params):
    """One sample after the other."""
    if not trace.count:
        raise BatchError(f"{trace.call}: {prim.name} runs sample by sample, and there are none")
    stacks = [(v if is_array(v) else np.asarray(v), b) if not isinstance(v, Variable) else (v, b) for v, b in operands if b]
    each = []
    for k in range(trace.count):
        at = iter([bind(READ, (v,), {"path": (), "at": (k,) if ndim(v) == 1 else k, "copy": True}) for v, _ in stacks])
        each.append(bind(prim, [next(at) if b else v for v, b in operands], params))
    if type(each[0]) is tuple:
        return tuple([together(trace, prim, column) for column in zip(*each, strict=True)])
    return together(trace, prim, each)


def together(trace: Batch, prim: Primitive, each: Any) -> Any:
    each = [v if isinstance(v, Variable) or is_array(v) else np.asarray(v) for v in each]
    if any(shape(v) != shape(each[0]) for v in each):
        raise BatchError(
            f"{trace.call}: {callers_line()}: numpy.{prim.name} gives shapes that differ between samples, "
            f"{', '.join(sorted({str(shape(v)) for v in each})[:4])}; loop over the samples"
        )
    return s.layered(*each, axis=0)


WORDS = {"elementwise": elementwise, "axis": along_axis, "matrix": on_matrices, "moves": pieces_moved}

# --- operations with a way of their own ---


def reshaped(trace, prim, operands, params):
    return s.reshape(operands[0][0], to=(trace.count, *params["to"]))


def broadcast(trace, prim, operands, params):
    return s.broadcast_to(padded(operands[0][0], len(params["to"])), to=(trace.count, *params["to"]))


def transposed(trace, prim, operands, params):
    return s.transpose(operands[0][0], axes=(0, *[a + 1 for a in params["axes"]]))


def joined(trace, prim, operands, params):
    axis = params["axis"]
    return s.concatenate(*[spread(trace, v, b) for v, b in operands], axis=axis + 1 if axis >= 0 else axis)


def packed(trace, prim, operands, params):
    y = s.layered(*[spread(trace, v, b) for v, b in operands], axis=1)
    return s.reshape(y, to=(trace.count, *params["to"])) if len(params["to"]) > 1 else y


def layered(trace, prim, operands, params):
    return s.layered(*[spread(trace, v, b) for v, b in operands], axis=params["axis"] + 1)


def next_axis(trace, prim, operands, params):
    return bind(prim, [operands[0][0]], {**params, "axis": params["axis"] + 1})


def multiplied(trace, prim, operands, params):
    """A matrix that is the same for all samples: one product."""
    (x, bx), (y, by) = operands
    n, m = rank(operands[0]), rank(operands[1])
    if not bx and n == 2 and m == 1:
        return matmul(y, T(x))
    if not by and m == 2 and n == 1:
        return matmul(x, y)
    return stacked_rule(trace, prim, operands, params)


# --- regions ---

SIMPLE = frozenset(("at", "reshape", "transpose", "broadcast", "diagonal", "real", "imag"))


def one_axis_further(path: tuple, trace: Batch, x: Any) -> tuple:
    """The steps of a path from the sample x as those from a stack."""
    out = []
    if not path:
        return path
    here = hollow(np, x.shape, x.dtype, x.strides).view(np.ndarray)
    for kind, step in path:
        if kind == "broadcast" and len(step) > here.ndim:  # the new axes stand after that of the samples
            out.append(("reshape", (trace.count, *(1,) * (len(step) - here.ndim), *here.shape)))
        if kind == "at":
            out.append(("at", (slice(None), *(step if type(step) is tuple else (step,)))))
        elif kind in ("reshape", "broadcast"):
            out.append((kind, (trace.count, *step)))
        elif kind == "transpose":
            out.append((kind, (0, *[a + 1 for a in step])))
        elif kind == "diagonal":
            out.append((kind, (step[0], *[a + 1 if a >= 0 else a for a in step[1:]])))
        else:
            out.append((kind, step))
        here = ix.STEPS[kind](here, step)
    return tuple(out)


def further(trace: Batch, x: Any, path: tuple, at: Any) -> tuple:
    """(path, index) in a stack of the region of one sample x."""
    if not all([kind in SIMPLE for kind, _ in path]):
        rest = [k for k, (kind, _) in enumerate(path) if kind not in SIMPLE][-1] + 1
        if any(kind in ("real", "imag") for kind, _ in path):
            raise NotImplementedError(f"path {path}")
        where = ix._places(plainly(x), path, Ellipsis if at is None else at)
        del rest
        return (), (slice(None), *where)
    if at is None or at is Ellipsis:
        return one_axis_further(path, trace, x), at
    if not ix.basic(at) and is_split(at):  # NumPy puts the axes of such an index first
        if any(kind in ("real", "imag") for kind, _ in path):
            raise NotImplementedError(f"path {path}")
        return (), (slice(None), *ix._places(plainly(x), path, at))
    return one_axis_further(path, trace, x), (slice(None), *(at if type(at) is tuple else (at,)))


def plainly(x: Any) -> Any:
    return ix.flat_of(x.view(np.ndarray) if isinstance(x, np.ndarray) else x)


def is_split(at: Any) -> bool:
    """An index with arrays that do not stand side by side, or of a kind of its own."""
    if type(at) is not tuple:
        return isinstance(at, (bool, np.bool_)) or (is_array(at) and at.ndim == 0 and at.dtype.kind == "b")
    if any([isinstance(i, (bool, np.bool_)) or (is_array(i) and i.ndim == 0 and i.dtype.kind == "b") for i in at]):
        return True
    arrays = [k for k, i in enumerate(at) if not (i is None or i is Ellipsis or type(i) is slice)]
    return bool(arrays) and arrays[-1] - arrays[0] >= len(arrays)


def read(trace, prim, operands, params):
    ((v, _),) = operands
    b = bottom(v)
    x = hollow(xp_of(b), b.shape[1:], b.dtype, b.strides[1:])
    path, at = further(trace, x, params["path"], params["at"])
    copy = params["copy"] or (at is not None and at is not Ellipsis)
    return bind(READ, (v,), {"path": path, "at": at, "copy": copy})


def written(trace, prim, operands, params):
    (v, batched), (y, by) = operands
    if not batched:  # the buffer becomes one for each sample
        v = like_layout(spread(trace, v, False), room_for(trace.count, v))
    b = bottom(v)
    x = hollow(xp_of(b), b.shape[1:], b.dtype, b.strides[1:])
    path, at = further(trace, x, params["path"], params["at"])
    if by and ndim(y) - 1 < len(x.shape) + 1:  # as many axes as the region has
        region = ix.region(x.view(np.ndarray) if xp_of(x) is np else x, params["path"])[params["at"]]
        y = padded(y, len(getattr(region, "shape", ())))
    return bind(prim, [v, y], {"path": path, "at": at})


OWN = {
    s.reshape.prim: reshaped, s.broadcast_to.prim: broadcast, s.transpose.prim: transposed, s.concatenate.prim: joined,
    s.packed.prim: packed, s.layered.prim: layered, s.layer.prim: next_axis, s.as_layer.prim: next_axis, matmul.prim: multiplied,
    READ: read, ASSIGN: written, ADD_AT: written,
}  # fmt: skip
