"""`inplace`, `stateful` and `checkpoint`: functions that write into memory, as functions of values.

Each returns a callable object. A shadow (see `_capture`) replaces the arrays that the object captured."""

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from .._capture import Shadow
from .._capture.objects import is_same, put_back, restore, snapshot
from .._core.arrays import is_array, is_differentiable, xp_of
from .._core.errors import ArgumentError, GuardError, ShapeError
from .._core.pickling import PickledByCall
from .._core.primitive import Primitive, bind, joint_primitive, layout_of, primal_of
from .._core.registry import SHADOW_MAKERS
from .._core.scope import OPEN, at_the_end_of_an_object, changed, scope_block
from .._core.trees import describe_tree, leaves, tree_map
from .._core.typing import AnyFunction, AnyList, AnyTuple
from .._core.variable import Variable, frozen, variable
from ..ops.declare import dtype, shape
from ..ops.shaping import copy
from .arguments import check_function, user_name
from .call import arrays_of_tables, constant_like, value_out
from .products import jvp, vjp
from .rebind import Rebind, as_they_were, captured_result, confirm, ended, note_carried, out_of, with_all

P = ParamSpec("P")
Y = TypeVar("Y")


class inplace(PickledByCall, Generic[Y]):
    """Make a function with a result from a function that fills its first argument.

    Parameters
    ----------
    f : callable
        ``f(out, x, ...)`` fills `out`, which starts as zeros.
    like : array or tree of arrays
        The shapes and dtypes of `out`.

    Returns
    -------
    callable
        ``g(x, ...)`` returns a new array, or tree of arrays, that f has filled.

    Raises
    ------
    ArgumentError
        If f is not a function.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> def square(out, x):
    ...     out[:] = x * x
    >>> tg.jacobian(tg.inplace(square, np.zeros(2)))(np.array([1.0, 3.0]))
    array([[2., 0.],
           [0., 6.]])
    """

    def __init__(self, f: AnyFunction, like: Y):
        check_function("inplace", f)
        self.f, self.like = f, like
        self.__name__ = f"inplace({user_name(f)})"

    def _made(self) -> AnyTuple:
        return inplace, (self.f, self.like)

    def __call__(self, *args: Any, **kwargs: Any) -> Y:
        out = tree_map(fresh_zeros, self.like)
        self.f(out, *args, **kwargs)
        return out  # type: ignore[no-any-return]


def fresh_zeros(a: Any) -> Any:
    """Zeros like a, as a Variable where a transform is open."""
    if not (is_array(a) or isinstance(a, Variable)):
        return a
    zeros = constant_like(a, 0)
    if not is_array(zeros):
        zeros = layout_of(a).dtype.type(0)
    return variable(zeros) if OPEN.depth and zeros.dtype.kind in "fc" else zeros


class stateful(PickledByCall, Generic[Y]):
    """Make inputs and outputs of the arrays that f captured.

    Parameters
    ----------
    f : callable
        A function that reads and writes captured arrays.
    *arrays : array
        The captured arrays. They are left unchanged.

    Returns
    -------
    callable
        ``g((a0, b0), x)`` returns ``(f(x), (a1, b1))``. f finds a0, b0 in its captured arrays, and a1, b1 are
        what it leaves there.

    Raises
    ------
    ArgumentError
        If f is not a function.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> total = np.zeros(1)
    >>> def add(x):
    ...     total[0] += x
    ...     return total[0] ** 2
    >>> g = tg.stateful(add, total)
    >>> tg.grad(lambda s, x: g((s,), x)[0])(np.array([2.0]), 1.0), total
    (array([6.]), array([0.]))
    """

    def __init__(self, f: Callable[..., Y], *arrays: Any):
        check_function("stateful", f)
        self.f, self.arrays = f, arrays
        self.__name__ = f"stateful({user_name(f)})"
        for a in arrays:
            if not (is_array(a) or isinstance(a, Variable)):
                raise ArgumentError(
                    f"{self.__name__}: name the captured arrays themselves, not {describe_tree(a)}"
                )

    def _made(self) -> AnyTuple:
        return stateful, (self.f, *self.arrays)

    def __call__(self, state: Any, *args: Any, **kwargs: Any) -> tuple[Y, AnyTuple]:
        if not all(isinstance(a, Variable) for a in self.arrays):
            shadow = Shadow(self, list(args))
            with scope_block():
                with shadow as (g, inner):
                    y, after = g(state, *inner, **kwargs)
                y, after = tree_map(value_out, y), tuple([value_out(a) for a in after])
                shadow.finish()
            return y, after
        if not isinstance(state, (tuple, list)) or len(state) != len(self.arrays):
            raise ArgumentError(
                f"{self.__name__}: the state must be a tuple of {len(self.arrays)} arrays, got "
                f"{describe_tree(state)}"
            )
        before = [frozen(a) for a in self.arrays]
        try:
            for a, s in zip(self.arrays, state, strict=True):
                if shape(s) != shape(a) or dtype(s) != dtype(a):
                    raise ShapeError(
                        f"{self.__name__}: a state of shape {shape(s)}, {dtype(s)} for an array of shape "
                        f"{shape(a)}, {dtype(a)}"
                    )
                a._become(copy(s) if isinstance(s, Variable) else variable(s.copy()))
            y = self.f(*args, **kwargs)
            return y, tuple([frozen(a) for a in self.arrays])
        finally:
            for a, b in zip(self.arrays, before, strict=True):
                a._become(b)
                a._saved = True


class checkpoint(PickledByCall, Generic[P, Y]):
    """Recompute f in the backward sweep instead of keeping its records.

    Captured arrays that f writes are followed as usual. Captured random generators draw the same numbers
    again. Nested checkpoints differentiate a loop of T steps in memory O(sqrt T).

    Parameters
    ----------
    f : callable
        The function to recompute.

    Returns
    -------
    callable
        A function like f.

    Raises
    ------
    GuardError
        In the sweep, if a captured number or integer array has changed, or the recomputation gives other
        values. On a device, where comparing would wait, the derivative is nan instead.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> def steps(x):
    ...     for _ in range(100):
    ...         x = np.sin(x)
    ...     return x
    >>> bool(tg.grad(tg.checkpoint(steps))(1.0) == tg.grad(steps)(1.0))
    True
    """

    def __init__(self, f: Callable[P, Y]):
        check_function("checkpoint", f)
        self.f = f
        self.__name__ = f"checkpoint({user_name(f)})"

    def _made(self) -> AnyTuple:
        return checkpoint, (self.f,)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Y:
        if not OPEN.depth:
            return self.f(*args, **kwargs)
        first = Rebind(self.f, [*args, kwargs])
        with first as (g, (*own_args, own_kwargs)):
            first.arrays = []
        step = CheckpointCall(first, (self.f, args, kwargs), (g, own_args, own_kwargs), self.__name__)
        handles, outs = with_all(first, lambda values: bind(step.primitive(), values, {}))
        confirm(step.kept_floats, handles, step)
        for k, x in enumerate(handles):
            out = outs[step.count + k]
            if step.written[k] and isinstance(out, Variable):
                captured_result(x, out)
        if step.raised is not None:
            raised, step.raised = step.raised, None
            try:
                raise raised
            finally:
                raised = None  # it knows this frame
        members = iter(outs[: step.count])
        return tree_map(lambda v: next(members) if v is OUTPUT else v, step.tree)  # type: ignore[no-any-return]


def mark(v: Any) -> AnyTuple:
    """A fingerprint of an output: its shape, its dtype and a few sums. A second run is compared by it, so the
    output need not be kept. The rounding of a sum may differ between runs, with the address of the data.
    On a device the sums stay there. They are None where a trace hides the values."""
    a = primal_of(v)
    if isinstance(a, Variable):
        return shape(a), dtype(a), None
    xp = xp_of(a)
    a = xp.asarray(a)
    flat = a.ravel().view(a.real.dtype)
    finite = xp.isfinite(flat)
    flat = xp.where(finite, flat, 0).astype(np.float64)
    return (
        a.shape,
        a.dtype,
        xp.stack(
            [
                (flat * xp.linspace(1, 2, flat.size)).sum(),
                abs(flat).sum(),
                (finite * xp.arange(flat.size)).sum(),
            ]
        ),
    )


def same_mark(first: AnyTuple, now: AnyTuple) -> Any:
    """Do two fingerprints belong to the same output? On a device the answer stays there."""
    (shape_, kind, a), (shape_now, _, b) = first, now
    if shape_ != shape_now or a is None or b is None:
        return shape_ == shape_now
    # well above rounding, far below a changed number
    tolerance = 4 * np.sqrt(np.finfo(kind).eps) * np.cbrt(np.finfo(kind).eps)
    same = (abs(a - b)[:2] <= tolerance * a[1]).all() & (a[2] == b[2])
    return bool(same) if xp_of(a) is np else same


OUTPUT = object()  # stands in the tree of a step's result for one of its outputs


class CheckpointCall:
    """One call of a checkpointed function, as a function of values.

    Its inputs are the Variables that the function captured or was given. Its outputs are the results, and
    the new contents of these Variables. The first run calls the function itself. Later runs call the copy
    that `first` made, with stand-ins for the Variables; other objects are as they were. They write nothing
    back, so a pullback may run after the transform has ended."""

    def __init__(self, first: Rebind, run: AnyTuple, kept: AnyTuple, name: str):
        """`run` and `kept` are triples: the function, its arguments, its keyword arguments."""
        self.first, self.run, self.kept, self.name = first, run, kept, name
        self.count, self.tree = 0, None
        self.written: list[bool] = []
        self.kept_floats = False  # did the first run keep floats outside of the function?
        self.marks: Any = None  # of the outputs of the first run
        self.before: AnyList = []  # (captured numbers, what they were, whether f itself has altered them)
        self.draws: AnyList = []  # (generator, its state before)
        self.raised: Any = None  # the error of the first run, until it is raised, and its class
        self.raises: Any = type(None)
        self.poison: Any = None  # on a device: nan where a recomputation has given other values

    def __del__(self) -> None:
        if (first := getattr(self, "first", None)) is not None:
            at_the_end_of_an_object(ended, first)  # it knows the function that knows it: ends the cycle

    def __call__(self, *inputs: Any) -> AnyTuple:
        if self.marks is None:
            return self.ran(inputs)
        with scope_block():
            self.as_before()
            return self.ran(inputs)

    def ran(self, inputs: AnyTuple) -> AnyTuple:
        f, args, kwargs = self.run
        again = self.marks is not None
        shadow = Rebind(f, [*args, kwargs], self.first, inputs)
        with shadow as (g, (*args, kwargs)):
            later = [(r, snapshot(r)) for r, _ in self.draws]
            for r, state in self.draws:
                restore(r, state)
            y = raised = None
            try:
                y = arrays_of_tables(g(*args, **kwargs), True)
            except Exception as error:
                if again and type(error) is not self.raises:
                    raise
                raised = error  # what it has written until then is its result
                note_carried(error, self.first.handles)
            finally:
                if again:
                    later += [
                        (r, state)
                        for r, state in shadow.generators
                        if not any([r is known for known, _ in later])
                    ]
                    for r, state in later:
                        restore(r, state)
                else:
                    self.draws = [*shadow.generators]
            ys = [v for v in leaves(y) if is_differentiable(layout_of(v))]
            self.tree = tree_map(lambda v: OUTPUT if is_differentiable(layout_of(v)) else v, y)
            self.count = len(ys)
            if not again and len(self.first.handles) > len(inputs):
                for r, state in self.draws:
                    restore(r, state)
                for x, before in shadow.state:
                    put_back(x, before)
            shadow.check_all(self.name)
            handles = [
                shadow.handles[shadow.places[k]][1] if k in shadow.places else v for k, v in enumerate(inputs)
            ]
            self.written = [getattr(h, "_version", 0) > 0 for h in handles]
            kept_floats = bool(shadow.check(self.name, leaves(y)))
            outs = [out_of(v) for v in ys + handles]
            self.check_levels(inputs, outs)
            marks = [mark(v) for v in ys + [h for h, w in zip(handles, self.written, strict=True) if w]]
            if again:
                if type(raised) is not self.raises:
                    self.refuse_values()
                self.check_values(marks)
            else:
                self.kept_floats = kept_floats
                self.marks, self.before = marks, [(x, b, not is_same(x, b)) for x, b in shadow.state]
                self.run = self.kept
                self.raised, self.raises = raised, type(raised)
            raised = None  # it knows this frame
        shadow.arrays = []  # nothing is written back: what was written is an output
        if again:
            ended(shadow)
        else:
            shadow.finish()
        return tuple(outs)

    def as_before(self) -> None:
        """Restore the captured numbers that f itself alters, until the block ends."""
        for x, before, altered in self.before:
            if not altered and not is_same(x, before):
                raise GuardError(
                    f"{self.name}: what the function reads has changed since it was called: "
                    f"{type(x).__name__} {repr(x)[:60]}. It is run again in the backward sweep: pass what "
                    "changes as an argument, or give each call its own copy"
                )
        as_they_were([(x, before) for x, before, altered in self.before if altered])

    def check_levels(self, inputs: AnyTuple, outs: AnyList) -> None:
        """Raise if an output belongs to a more recent transform than every input: f read that value past the
        stand-ins."""
        if level_of(outs) > level_of(inputs):
            raise ArgumentError(
                f"{self.name}: the function reads tracked values that lie in an object which a checkpoint "
                "does not follow: pass them as arguments, or make the object inside"
            )

    def check_values(self, marks: AnyList, expected: Any = None) -> None:
        """Raise if the fingerprints differ from those of the first run, or from `expected`."""
        before = self.marks if expected is None else expected
        same = [len(marks) == len(before), *[same_mark(a, b) for a, b in zip(before, marks, strict=False)]]
        if any([s is False for s in same]):
            self.refuse_values()
        for s in same:
            if s is not True:
                nan = xp_of(s).where(s, 0.0, np.nan)
                self.poison = nan if self.poison is None else self.poison + nan

    def refuse_values(self) -> None:
        raise GuardError(
            f"{self.name}: run again in the backward sweep, the function gave other values than before. It "
            f"reads something that has "
            "changed (an attribute, a file, an unseeded random generator): pass it as an argument"
        )

    def poisoned(self, terms: AnyTuple) -> AnyTuple:
        """The derivatives, with nan if a run has computed other values than the first."""
        if self.poison is None:
            return terms
        return tuple([c if c is None else c + self.poison.astype(dtype(c)) for c in terms])

    def primitive(self) -> Primitive:
        prim = joint_primitive(self.name, self, self.reverse_rule, self.forward_rule, False)
        prim.batch = "inside"
        return prim

    def reverse_rule(self, g: Any, out: Any, need: Any, *inputs: Any) -> AnyTuple:
        with changed(apart=True):
            y, pullback = vjp(self, *inputs)
        seeds = tuple([constant_like(o, 0) if c is None else c for c, o in zip(g, y, strict=True)])
        terms = pullback(seeds)
        return self.poisoned(terms if len(inputs) > 1 else (terms,))

    def forward_rule(self, t: Any, out: Any, *inputs: Any) -> AnyTuple:
        tangents = tuple([constant_like(v, 0) if d is None else d for d, v in zip(t, inputs, strict=True)])
        return self.poisoned(jvp(self, inputs, tangents)[1])


def level_of(values: Any) -> int:
    return max(
        [v._trace.level for v in values if isinstance(v, Variable) and v._trace is not None], default=0
    )


SHADOW_MAKERS[inplace] = lambda shadow, x: inplace(shadow(x.f), x.like)
SHADOW_MAKERS[stateful] = lambda shadow, x: stateful(shadow(x.f), *[shadow(a) for a in x.arrays])
SHADOW_MAKERS[checkpoint] = lambda shadow, x: checkpoint(shadow(x.f))
