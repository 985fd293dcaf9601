"""Batching rules: how operations run on stacks, the arrays of all samples along a first axis
(_transforms/batching/trace.py).

A batching rule takes (trace, prim, operands, params) and returns the stack of the result. Each operand
is a pair (value, is it a stack?). Each word of `Primitive.batch` has a rule; some operations have
their own. Reading order: operands; the words; operations; regions of a buffer, whose paths and indices
move by one axis."""

from typing import Any

import numpy as np

from ..._core.abstract_arrays import hollow
from ..._core.arrays import has_repeating_axis, is_array, repeat_elements, room_laid, xp_of
from ..._core.errors import BatchError, callers_line
from ..._core.primitive import ADD_AT, ASSIGN, READ, Primitive, bind, layout_of
from ..._core.scope import OPEN
from ..._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from ..._core.variable import Variable, bottom, like_layout
from ...ops import shaping as s
from ...ops.declare import dtype, ndim, shape, xp
from ...ops.indexing import regions as ix
from ...ops.layouts import stand_in
from ...ops.products import T, matmul
from .captured_marks import host_index

# --- operands ---


def empty_stack(count: int, value: Any) -> Any:
    """Empty memory for `count` samples, each in the memory order of `value`."""
    b = layout_of(value)
    return room_laid(xp_of(b), b.shape, getattr(b, "strides", ()), b.dtype, count=count)


def samples_first(stack: Any) -> Any:
    """A copy of the stack in which each sample is contiguous."""
    b = bottom(stack)
    if b.ndim < 2 or not b.size or (b.strides[0] >= max(b.strides[1:]) and min(b.strides) > 0):
        return stack
    # repeated elements stay repeated, and read-only
    if type(stack) is np.ndarray and has_repeating_axis(b.shape[1:], b.strides[1:]):
        return repeat_elements(stack, room_laid(np, b.shape[1:], b.strides[1:], b.dtype, True, b.shape[0]))
    return like_layout(stack, empty_stack(b.shape[0], b[0] if b.ndim > 1 else b))


def sample_rank(given: AnyTuple) -> int:
    v, batched = given
    return int(ndim(v) - batched)


def with_inner_axes(v: Any, n: int) -> Any:
    """A stack whose samples have n axes, with new ones in front."""
    to = shape(v)
    return v if len(to) > n else s.reshape(v, to=(to[0], *(1,) * (n + 1 - len(to)), *to[1:]))


def aligned(operands: AnyList) -> AnyList:
    """The operands as stacks that broadcast like the operands of one sample."""
    n = max([sample_rank(o) for o in operands])
    return [with_inner_axes(v, n) if batched else v for v, batched in operands]


def as_stack(trace: Any, v: Any, batched: bool) -> Any:
    """An operand as a stack."""
    if batched:
        return v
    if not isinstance(v, Variable) and not is_array(v):
        v = np.asarray(v)
    to = (trace.count, *shape(v))
    if isinstance(v, Variable):
        return s.broadcast_to(v, to=to)
    # an empty array has no repeated elements
    return xp_of(v).broadcast_to(v, to) if v.size else xp_of(v).empty(to, v.dtype)


def run_of(prim: Primitive) -> AnyFunction:
    return lambda *xs, **params: bind(prim, xs, params)


# --- the words ---


def elementwise_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    return bind(prim, aligned(operands), params)


def batched_axis(axis: Any, n: int) -> Any:
    """The axis of a stack for an axis of a sample with n axes; also for several axes, or None for all."""
    if axis is None:
        return tuple(range(1, n + 1))
    if isinstance(axis, (tuple, list)):
        return tuple([batched_axis(a, n) for a in axis])
    if not -n <= axis < n:
        raise np.exceptions.AxisError(int(axis), n)
    return axis if axis < 0 else axis + 1


def axis_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    n = sample_rank(operands[0])
    if not n:  # some NumPy functions accept an axis of a 0-d array
        return sequential_rule(trace, prim, operands, params)
    params = {k: batched_axis(a, n) if k in ("axis", "axes") else a for k, a in params.items()}
    return bind(prim, [as_stack(trace, v, b) for v, b in operands], params)


def on_matrices(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    return bind(prim, [as_stack(trace, v, b) for v, b in operands], params)


def stacked_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    """The batching function of the operation itself."""
    return prim.batch(run_of(prim), [as_stack(trace, v, b) for v, b in operands], params)


class CustomRule:
    """A batching rule of the operation's own, as a value of `Primitive.batch`. `kernel` describes an
    operation of a kernel: (kind, orders, are the samples the last axis of its second argument?). `shares`
    says for which settings all samples at once cost much less than one after another."""

    __slots__ = ("run", "kernel", "shares")

    def __init__(
        self, run: AnyFunction, kernel: AnyTuple | None = None, shares: AnyFunction = lambda params: False
    ) -> None:
        self.run, self.kernel, self.shares = run, kernel, shares


def pieces_moved(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    """For operations that move elements the same way in all samples. The body runs once on element
    numbers; the number 0 stands for a zero."""
    library = xp(operands[0][0])
    flats, numbers, n = [], [], 1
    for v, b in operands:
        v = as_stack(trace, v, b)
        to = shape(v)[1:]
        size = int(np.prod(to))
        numbers.append(library.arange(n, n + size).reshape(to))
        flats.append(s.reshape(v, to=(trace.count, size)))
        n += size
    zero = library.zeros((trace.count, 1), dtype(flats[0]))
    where = library.asarray(prim.run(*numbers, **params))
    return bind(
        READ, (s.concatenate(zero, *flats, axis=1),), {"path": (), "at": (slice(None), where), "copy": True}
    )


def sequential_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    """Run the operation on one sample after another."""
    if not trace.count:
        raise BatchError(f"{trace.call}: {prim} runs sample by sample, and there are none")
    for outer in OPEN.hiding:
        outer.looped(prim.name)
    stacks = [
        (v if is_array(v) else np.asarray(v), b) if not isinstance(v, Variable) else (v, b)
        for v, b in operands
        if b
    ]
    each = []
    for k in range(trace.count):
        at = iter(
            [
                bind(READ, (v,), {"path": (), "at": (k,) if ndim(v) == 1 else k, "copy": True})
                for v, _ in stacks
            ]
        )
        try:
            each.append(bind(prim, [next(at) if b else v for v, b in operands], params))
        except Exception as error:
            error.add_note(f"in sample {k} of {trace.count} of {trace.call}")
            raise
    if type(each[0]) is tuple:
        return tuple([apply_to_stacks(trace, prim, column) for column in zip(*each, strict=True)])
    return apply_to_stacks(trace, prim, each)


def apply_to_stacks(trace: Any, prim: Primitive, each: Any) -> Any:
    each = [v if isinstance(v, Variable) or is_array(v) else np.asarray(v) for v in each]
    if any(shape(v) != shape(each[0]) for v in each):
        name = prim.name
        name = name if "." in name else f"numpy.{name}"
        raise BatchError(
            f"{trace.call}: {callers_line()}: {name} gives shapes that differ between samples, "
            f"{', '.join(sorted({str(shape(v)) for v in each})[:4])}; loop over the samples"
        )
    y = s.layered(*each, axis=0)
    return like_layout(y, empty_stack(trace.count, each[0])) if ndim(y) > 2 else y


def way_of(prim: Primitive) -> AnyFunction:
    """The batching rule of an operation."""
    word = prim.batch
    return OWN.get(prim) or WORDS.get(word) or (word.run if type(word) is CustomRule else stacked_rule)


WORDS = {"elementwise": elementwise_rule, "axis": axis_rule, "matrix": on_matrices, "moves": pieces_moved}

# --- memory order of the result ---


def sample_strides(stack: Any) -> Any:
    """The strides of one sample. (Those of an array without elements are 0.)"""
    return stack.strides[1:] if stack.shape[0] else np.empty(stack.shape[1:], stack.dtype).strides


ORDERS: AnyDict = {}  # a call on one sample -> the strides of its result


def laid_as_one(trace: Any, prim: Any, out: Any, operands: Any, params: Any) -> Any:
    """The stack of a result, with each sample in the memory order that the operation gives to a single
    sample. A later reshape is a view or a copy depending on it."""
    if type(out) is tuple:
        return tuple([laid_as_one(trace, prim, o, operands, {**params, LAYER: k}) for k, o in enumerate(out)])
    b = bottom(out)
    if not is_array(b) or b.ndim < 2 or prim.aliases or (b.ndim == 2 and b.strides[1] == b.itemsize):
        return out
    samples = [sample_of(v) if batched else layout_of(v) for v, batched in operands]
    strides = order_of_one(prim, samples, params)
    if strides is None or strides == b.strides[1:]:
        return out
    return like_layout(out, empty_stack(trace.count, hollow(xp_of(b), b.shape[1:], b.dtype, strides)))


def is_gathered(at: Any) -> bool:
    return at is not None and not ix.basic(at)


LAYER = "which of the results"


def order_of_one(prim: Primitive, samples: AnyList, params: AnyDict) -> Any:
    """The strides of the body's result for such samples; None if they are unknown."""
    key: Any = (
        prim,
        *[(xp_of(x), x.shape, x.dtype, x.strides) if is_array(x) else type(x) for x in samples],
        *params.items(),
    )
    try:
        if key in ORDERS:
            return ORDERS[key]
    except TypeError:  # arrays in the settings
        key = None
    params = dict(params)
    layer = params.pop(LAYER, None)
    try:
        with np.errstate(all="ignore"):
            y = prim.run(*[stand_in(x) for x in samples], **params)
        strides = (y if layer is None else y[layer]).strides
    except (ArithmeticError, LookupError, TypeError, ValueError):  # because of the values
        strides = None
    if key is not None:
        if len(ORDERS) > 999:
            ORDERS.clear()
        ORDERS[key] = strides
    return strides


# --- operations with a batching rule of their own ---


def reshape_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    return s.reshape(operands[0][0], to=(trace.count, *params["to"]))


def broadcast_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    return s.broadcast_to(with_inner_axes(operands[0][0], len(params["to"])), to=(trace.count, *params["to"]))


def transpose_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    return s.transpose(operands[0][0], axes=(0, *[a + 1 for a in params["axes"]]))


def concatenate_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    axis = params["axis"]
    return s.concatenate(*[as_stack(trace, v, b) for v, b in operands], axis=axis + 1 if axis >= 0 else axis)


def pack_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    y = s.layered(*[as_stack(trace, v, b) for v, b in operands], axis=1)
    return s.reshape(y, to=(trace.count, *params["to"])) if len(params["to"]) > 1 else y


def stack_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    return s.layered(*[as_stack(trace, v, b) for v, b in operands], axis=params["axis"] + 1)


def layer_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    return bind(prim, [operands[0][0]], {**params, "axis": params["axis"] + 1})


def matmul_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    """A product with a matrix that all samples share, as one matrix product."""
    (x, bx), (y, by) = operands
    n, m = sample_rank(operands[0]), sample_rank(operands[1])
    if not bx and n == 2 and m == 1:
        return matmul(y, T(x))
    if not by and m == 2 and n == 1:
        return matmul(x, y)
    return stacked_rule(trace, prim, operands, params)


# --- regions ---

SIMPLE = frozenset(("at", "reshape", "transpose", "broadcast", "diagonal", "real", "imag"))


def one_axis_further(path: AnyTuple, trace: Any, x: Any) -> AnyTuple:
    """The path from a sample x, as a path from the stack."""
    out = []
    if not path:
        return path
    here = plain_layout(x)
    for kind, step in path:
        if kind == "broadcast" and len(step) > here.ndim:  # new axes come after the axis of samples
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


def further(trace: Any, x: Any, path: AnyTuple, at: Any) -> AnyTuple:
    """(path, index) in a stack for the region of one sample x."""
    if not SIMPLE.issuperset([kind for kind, _ in path]) or (
        not ix.basic(at) and at is not None and is_split(at)
    ):
        # an element without axes is indexed as an element of a vector
        alone = () if x.shape else (("reshape", (trace.count, 1)),)
        places = ix.coordinates_of(plainly(x), path, Ellipsis if at is None else at)
        if not x.shape and not path and at is not None and type(at) is not tuple:
            places = tuple([k.reshape(-1) for k in places])  # a number that one truth value chooses, or not
        return alone, (slice(None), *places)
    if at is None or at is Ellipsis:
        return one_axis_further(path, trace, x), at
    return one_axis_further(path, trace, x), (slice(None), *(at if type(at) is tuple else (at,)))


def in_two(path: AnyTuple, at: Any) -> int | None:
    """The position at which to split a path, so that one part can be given by element positions. None if no
    split is needed."""
    kinds = [kind for kind, _ in path]
    if ix.PARTS.isdisjoint(kinds):
        return None
    if not SIMPLE.issuperset(kinds):
        return ix.beside_parts(path)
    return len(path) if at is not None and not ix.basic(at) and is_split(at) else None


def plainly(x: Any) -> Any:
    return ix.as_flat_source(x.view(np.ndarray) if isinstance(x, np.ndarray) else x)


def is_split(at: Any) -> bool:
    """Is it an index with arrays that are not adjacent, or of a special kind?"""
    if type(at) is not tuple:
        return isinstance(at, (bool, np.bool_)) or (is_array(at) and at.ndim == 0 and at.dtype.kind == "b")
    if any(
        [isinstance(i, (bool, np.bool_)) or (is_array(i) and i.ndim == 0 and i.dtype.kind == "b") for i in at]
    ):
        return True
    arrays = [k for k, i in enumerate(at) if not (i is None or i is Ellipsis or type(i) is slice)]
    return bool(arrays) and arrays[-1] - arrays[0] >= len(arrays)


def sample_of(v: Any) -> Any:
    """An abstract value of one sample of this stack."""
    b = bottom(v)
    return hollow(xp_of(b), b.shape[1:], b.dtype, sample_strides(b))


def read_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    v, path, at = operands[0][0], params["path"], params["at"]
    if type(at) is int and type(v) is np.ndarray and v.ndim == 2 and not path:  # one number of each sample
        return v[:, at].copy()
    cut = in_two(path, at)
    if cut is not None:
        v = read_rule(trace, prim, [(v, True)], {"path": path[:cut], "at": None, "copy": True})
        return read_rule(trace, prim, [(v, True)], {**params, "path": path[cut:]})
    x = sample_of(v)
    place, chosen = further(trace, x, path, at)
    y = bind(
        READ,
        (v,),
        {
            "path": place,
            "at": chosen,
            "copy": params["copy"] or (chosen is not None and chosen is not Ellipsis),
        },
    )
    if path and len(place) < len(path):  # an index by positions: its layout in NumPy depends on them
        here = ix.region(plain_layout(x), path)
        here = here if at is None else here[host_index(at)]
        return like_layout(
            y, room_laid(xp_of(bottom(v)), here.shape, here.strides, here.dtype, count=trace.count)
        )
    return y


def write_rule(trace: Any, prim: Any, operands: Any, params: Any) -> Any:
    (v, batched), (y, by) = operands
    path, at = params["path"], params["at"]
    if (
        type(at) is int
        and batched
        and by
        and type(v) is type(y) is np.ndarray
        and v.ndim == 2
        and v.dtype is y.dtype
        and not path
    ):
        if prim is ASSIGN and y.ndim == 1:
            v[:, at] = y
            return v
    if not batched:  # the buffer becomes a stack
        v = like_layout(as_stack(trace, v, False), empty_stack(trace.count, v))
    cut = in_two(path, at)
    if cut is not None:
        first = {"path": path[:cut], "at": Ellipsis}
        part = read_rule(trace, READ, [(v, True)], {**first, "at": None, "copy": True})
        if prim is ADD_AT:  # windows may contain an element several times
            part = s.zeros_like(part)
        part = write_rule(trace, prim, [(part, True), (y, by)], {"path": path[cut:], "at": at})
        return write_rule(trace, prim, [(v, True), (part, True)], first)
    x = sample_of(v)
    if by:
        y = with_inner_axes(
            y,
            len(x.shape)
            if not path and at is Ellipsis
            else ix.region(plain_layout(x), path)[host_index(at)].ndim,
        )
    path, at = further(trace, x, path, at)
    return bind(prim, [v, y], {"path": path, "at": at})


def plain_layout(x: Any) -> Any:
    """x as a NumPy array, for its shape and memory order."""
    return hollow(np, x.shape, x.dtype, x.strides).view(np.ndarray)


OWN = {
    s.reshape.prim: reshape_rule, s.broadcast_to.prim: broadcast_rule, s.transpose.prim: transpose_rule,
    s.concatenate.prim: concatenate_rule,
    s.packed.prim: pack_rule, s.layered.prim: stack_rule, s.layer.prim: layer_rule,
    s.as_layer.prim: layer_rule, matmul.prim: matmul_rule,
    READ: read_rule, ASSIGN: write_rule, ADD_AT: write_rule,
}  # fmt: skip
