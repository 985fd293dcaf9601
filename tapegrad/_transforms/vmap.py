"""`vmap`: a function of one sample run once for all of them."""

import itertools
import random
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np

from .._core.arrays import is_array
from .._core.errors import ArgumentError, BatchError, ShapeError, TapegradError, heard, let_through, take_back
from .._core.primitive import layout_of, live
from .._core.scope import OPEN, scope_block
from .._core.trees import Const, children, describe_tree, is_node, leaves, tree_map
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple, Array, Node, Number
from .._core.variable import Variable, copied, frozen, variable
from ..ops import shaping
from ..ops.declare import ndim, shape
from .arguments import Inputs, enter_leaf, overlapping, user_name, where_of
from .batching.trace import Batch
from .call import returned, run_once, value_out
from .side_effects import counted_in, counts_before, kept_in, lies_on, run_beside
from .transform import Transform

N = TypeVar("N", bound=Node)


@overload
def vmap(
    f: Callable[..., Array | Number],
    in_axes: object = 0,
    out_axes: object = 0,
    chunk: int | None = None,
    *,
    shadow: bool = True,
) -> Callable[..., Array]: ...
@overload
def vmap(
    f: Callable[..., N],
    in_axes: object = 0,
    out_axes: object = 0,
    chunk: int | None = None,
    *,
    shadow: bool = True,
) -> Callable[..., N]: ...
def vmap(
    f: AnyFunction, in_axes: Any = 0, out_axes: Any = 0, chunk: int | None = None, *, shadow: bool = True
) -> AnyFunction:
    """Make a function of many samples from a function of one sample.

    f runs once, and each operation runs on the stack of all samples. The results are those of a loop over
    the samples, stacked. In-place writes, views and captured arrays behave as in the loop: a captured array
    that f writes ends with what the last sample leaves there. If f stores values in names, attributes or
    containers and may read them before writing them, f runs again, to check that no sample depends on the
    previous one.

    Parameters
    ----------
    f : callable
        A function of one sample. It returns an array, a number or a tree of these.
    in_axes : int, None, tuple or tree, default 0
        The axis of each argument along which its samples lie; None for an argument that all samples share.
        One value holds for all positional arguments; a tuple has one entry for each, which may be a tree
        like its argument. Keyword arguments are shared.
    out_axes : int, None or tree, default 0
        The axis of the samples in the results; None for a result that is the same for all samples.
    chunk : int, optional
        f runs once for so many samples at a time, which bounds the memory.
    shadow : bool, default True
        Whether arrays that f captured are followed.

    Returns
    -------
    callable
        The function of all samples.

    Raises
    ------
    BatchError
        If one run cannot replace the loop: a value is carried from sample to sample, or an ``if`` depends on
        a condition that differs between samples (write numpy.where).
    ShapeError
        If the arguments have different numbers of samples.

    See Also
    --------
    tapegrad.kernels.map : A compiled function of many samples.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.vmap(tg.grad(lambda x: (x ** 3).sum()))(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[ 3., 12.],
           [27., 48.]])
    """
    if chunk is not None and (
        isinstance(chunk, bool) or not isinstance(chunk, (int, np.integer)) or chunk < 1
    ):
        raise ArgumentError(
            f"vmap({user_name(f)}): chunk={chunk!r}; it is None, or how many samples to take at a time"
        )
    return Transform("vmap", _vmap, f if shadow else Const(f), in_axes, out_axes, chunk)


def _vmap(call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict) -> Any:
    in_axes, out_axes, chunk = settings
    if OPEN.inside is not None:
        raise ArgumentError(f"{call}: a kernel is a function of one sample; map it by tapegrad.kernels.map")
    axes = axes_of_arguments(call, in_axes, args)
    count = sample_count(call, args, axes)
    if chunk is None or count <= chunk:
        return batched(call, f, args, axes, kwargs, count, out_axes)
    parts = []
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        some = tuple([sample_slice(a, x, start, stop) for a, x in zip(args, axes, strict=True)])
        parts.append(batched(call, f, some, axes, kwargs, stop - start, out_axes))
    return tree_map(
        lambda axis, *ys: ys[0] if axis is None else shaping.concatenate(*ys, axis=axis),
        *out_tree(call, out_axes, parts),
    )


def out_tree(call: str, out_axes: Any, parts: AnyList) -> AnyTuple:
    """The results of chunks, behind the tree of their axes."""
    flat = iter(axes_of_results(call, out_axes, parts[0]))
    return tree_map(lambda y: None if y is None else mapped_axis(next(flat), y), parts[0]), *parts


def mapped_axis(axis: int | None, y: Any) -> int | None:
    return axis if axis is None else axis % ndim(y)


def sample_slice(a: Any, axes: AnyList, start: int, stop: int) -> Any:
    """The samples from `start` to `stop` of an argument."""
    each = iter(axes)
    if isinstance(a, Const):
        return a

    def cut(x: Any) -> Any:
        axis = next(each)
        return x if axis is None else x[(slice(None),) * (axis % ndim(x)) + (slice(start, stop),)]

    return tree_map(cut, a)


# --- axes ---


def is_axis(axis: Any) -> bool:
    return axis is None or (isinstance(axis, (int, np.integer)) and not isinstance(axis, bool))


def axes_of_tree(call: str, what: str, axes: Any, tree: Any) -> AnyList:
    """One axis for each leaf of a tree, from a tree of axes that may end above the leaves."""
    if is_axis(axes):
        return [axes] * len(leaves(tree))
    if not is_node(axes):
        raise ArgumentError(f"{call}: {what} is {axes!r}; an axis is an int, or None")
    alike = (
        is_node(tree)
        and isinstance(axes, dict) == isinstance(tree, dict)
        and len(children(axes)) == len(children(tree))
    )
    if not alike or (isinstance(axes, dict) and set(axes) != set(tree)):
        raise ArgumentError(f"{call}: {what} is {axes!r}, which does not fit {describe_tree(tree)}")
    pairs = (
        [(axes[k], tree[k]) for k in tree]
        if isinstance(tree, dict)
        else zip(children(axes), children(tree), strict=True)
    )
    return [axis for a, t in pairs for axis in axes_of_tree(call, what, a, t)]


def axes_of_arguments(call: str, in_axes: Any, args: AnyTuple) -> AnyList:
    if not args:
        raise ArgumentError(
            f"{call}: no argument to map over; arguments by keyword are the same for all samples"
        )
    if is_axis(in_axes):
        in_axes = (in_axes,) * len(args)
    if not isinstance(in_axes, (tuple, list)) or len(in_axes) != len(args):
        raise ArgumentError(
            f"{call}: in_axes={in_axes!r} does not fit a call with {len(args)} positional arguments"
        )
    return [
        [None] if isinstance(a, Const) else axes_of_tree(call, f"in_axes of argument {n}", axes, a)
        for n, (a, axes) in enumerate(zip(args, in_axes, strict=True))
    ]


def sample_count(call: str, args: AnyTuple, axes: AnyList) -> int:
    """How many samples there are."""
    sizes: dict[int, AnyTuple] = {}
    for n, (a, each) in enumerate(zip(args, axes, strict=True)):
        for x, axis in zip(leaves(a) if not isinstance(a, Const) else [a], each, strict=True):
            if axis is None:
                continue
            to = shape(x) if isinstance(x, Variable) or is_array(layout_of(x)) else None
            if to is None or not -len(to) <= axis < len(to):
                have = f"shape {to}" if to is not None else f"{type(x).__name__}, which has no axes"
                raise ShapeError(
                    f"{call}: argument {n}: axis {axis} is out of range for {have}; in_axes says where the "
                    "samples lie, None for an argument that is the same for all"
                )
            sizes.setdefault(to[axis], (n, axis))
    if not sizes:
        raise ArgumentError(f"{call}: in_axes maps no argument: one at least must have an axis")
    if len(sizes) > 1:
        found = ", ".join(f"{size} along axis {axis} of argument {n}" for size, (n, axis) in sizes.items())
        raise ShapeError(f"{call}: the numbers of samples differ: {found}")
    return next(iter(sizes))


# --- one run ---


class MappedInputs(Inputs):
    """The arguments of a call whose leaves are mapped by `axes`."""

    def __init__(self, call: str, args: AnyTuple, axes: AnyList):
        self.call, self.args, self.axes = call, args, axes
        self.given, self.fresh = [], []
        self.constants = [a.value for a in args if type(a) is Const]
        self.outer = OPEN.aliased
        pairs = [
            zip(leaves(a), each, strict=True)
            for a, each in zip(args, axes, strict=True)
            if not isinstance(a, Const)
        ]
        # as the transforms around have them
        self.stacks = [enter_leaf(x, call) for pair in pairs for x, axis in pair if axis is not None]

    def enter(self, watch: AnyFunction) -> AnyList:
        shared = (
            overlapping([x for a in self.args for x in leaves(a)])
            if len(self.args) > 1 or is_node(self.args[0])
            else ()
        )
        axes, stacks = itertools.chain.from_iterable(self.axes), iter(self.stacks)

        def new(x: Any) -> Any:
            axis = next(axes)
            if axis is not None:
                return watch(next(stacks), axis % ndim(x))
            if id(x) not in shared:
                return x
            v = variable(x)
            v._saved = True
            return v

        return self.replaced(new, shared)

    def anew(self, trace: Batch, around: Any) -> AnyList:
        """The arguments once more, for the function run again."""
        known = len(self.given)
        around.args = self.enter(trace.watch)
        around.given += self.given[known:]
        return around.borrow()  # type: ignore[no-any-return]


def in_terms_of_samples(call: str, trace: Batch, count: int, refused: Exception) -> BatchError | None:
    """Return what an error of the function means for samples, where another text says more."""
    if isinstance(refused, TapegradError):
        return None
    if not count:
        return BatchError(
            f"{call}: the stack has no samples, and the function needs one "
            f"({type(refused).__name__}: {refused}): return early for an empty stack"
        )
    written = (
        isinstance(refused, (ValueError, TypeError)) and "only" in str(refused) and "read" in str(refused)
    )
    if written and trace.handed:
        return BatchError(
            f"{call}: {refused}: memory that the function handed out (x.data, numpy.asarray, a "
            f"compiled function) would be written "
            "there, for all samples at once: write the array by its name, or loop over the samples"
        )
    return None


def check_shared_state(call: str, trace: Batch, drawn: Any) -> None:
    """Raise where the function changed for all samples at once what they share."""
    if random.getstate() != drawn:
        raise BatchError(
            f"{call}: the function draws from Python's `random`, which gives all samples the same "
            f"numbers, for tg.vmap runs it once "
            "for all of them: draw the numbers outside and pass them as an argument"
        )
    if any([a.tobytes() != before.tobytes() for a, before in trace.pointed]):
        raise BatchError(
            f"{call}: memory that the function handed out by its address (x.ctypes) was written there, "
            "for all samples at once: write the array by its name, or loop over the samples"
        )


def batched(
    call: str, f: AnyFunction, args: AnyTuple, axes: AnyList, kwargs: AnyDict, count: int, out_axes: Any
) -> Any:
    inputs = MappedInputs(call, args, axes)
    found: AnyList = []

    def read(y: Any) -> Any:
        y = returned(y)
        each = iter(axes_of_results(call, out_axes, y))
        found.extend((y, [stacked_result(call, f, trace, v, next(each)) for v in leaves(y) if v is not None]))

    def lift(g: Any) -> Any:
        def run(*given: Any, **named: Any) -> Any:
            around = OPEN.shadows[-1]
            y = around.settle(g(*given, **named))
            kept, where = kept_in(trace)
            where = where or (counted_in(trace, counts) if count > 1 else "")
            if where:
                read(y)
                again = lambda: around.settle(g(*inputs.anew(trace, around), **named))
                run_beside(trace, y, kept, where, again)
            return y

        return run

    with scope_block():
        trace = Batch(call, count)
        waiting = OPEN.unfinished
        OPEN.unfinished = (*waiting, trace)
        trace.adopt_outer()
        entered_args = inputs.enter(trace.watch)
        counts = counts_before(trace)
        drawn, known = random.getstate(), heard()
        try:
            shadow = run_once(
                f,
                trace,
                inputs,
                entered_args,
                kwargs,
                lambda y: found or read(y),
                None if isinstance(f, Const) else lift,
            )
        except Exception as refused:
            let_through(refused)
            if not isinstance(refused, BatchError):
                take_back(known, trace.doubts)  # an error that leaves the function would leave a loop, too
            error = in_terms_of_samples(call, trace, count, refused)
            if error is None:
                raise
            raise error from refused
        check_shared_state(call, trace, drawn)
        tree, stacks = found[0], iter([value_out(v) for v in found[1]])
        shadow.finish()
        OPEN.unfinished = waiting  # the trace is closed
        return tree_map(lambda v: None if v is None else next(stacks), tree)


def axes_of_results(call: str, out_axes: Any, y: Any) -> AnyList:
    return [
        axis
        for axis, v in zip(axes_of_tree(call, "out_axes", out_axes, y), leaves(y), strict=True)
        if v is not None
    ]


def stacked_result(call: str, f: AnyFunction, trace: Batch, y: Any, axis: int | None) -> Any:
    """One leaf of what f returned, for all samples."""
    if isinstance(y, Variable):
        y = live(y)
        if y._trace is trace and trace.is_plain(y):
            y = copied(y._slot.value)
    else:
        a = y if is_array(y) else np.asarray(y)
        if a.dtype.kind not in "biufc":
            raise ArgumentError(
                f"{call}: {user_name(f)}{where_of(f)} returned {describe_tree(y)}, of which there is no stack"
            )
        y = a
    if axis is None:
        if lies_on(y, trace):
            raise ArgumentError(
                f"{call}: out_axes=None for a result that depends on the sample; give the axis for its "
                f"samples"
            )
        return frozen(y) if isinstance(y, Variable) else y
    stack = trace.stacked(y)
    n = ndim(stack)
    if not -n <= axis < n:
        raise ShapeError(
            f"{call}: out_axes={axis} is out of range for a result of shape {shape(stack)[1:]} for each "
            f"sample"
        )
    axis %= n
    return shaping.transpose(stack, axes=(*range(1, axis + 1), 0, *range(axis + 1, n))) if axis else stack
