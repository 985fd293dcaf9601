"""The tape by hand, `value`, which cuts a derivative, and `ravel`, which makes a tree one vector."""

import math
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np

from .._core import reverse as reverse
from .._core.arrays import is_array, is_differentiable, owned
from .._core.errors import ArgumentError, ShapeError
from .._core.foreign import check_constants
from .._core.primitive import EndedTrace, layout_of, primal_of, values_of, watched
from .._core.registry import late
from .._core.scope import OPEN, Exit, outside
from .._core.searches import tell_searches
from .._core.trees import leaves, tree_map
from .._core.typing import AnyDict, AnyList, AnyTuple, Array, Number
from .._core.variable import Variable, View, bottom, frozen
from ..ops import shaping
from ..ops import variable_methods as variable_methods  # it gives Variables their methods
from ..ops.declare import dtype, shape
from .arguments import Inputs, enter_leaf
from .call import (
    RecordedCall,
    arrays_of_tables,
    cast_leaves,
    cast_to_primal,
    check_scalar,
    constant_like,
    derivative_out,
    leaves_like,
    value_out,
)
from .jacobian import Mode, check_mode, jacobian_of
from .linearize import Products, RetainedRecord, SecondOrder, leaves_by_number

Y = TypeVar("Y")

# --- the tape by hand ---


class Snapshot:
    """A copy that was made because an array was written while somebody else held its memory.

    `bytes`: its size.  `line`: 'file:line' of the write.  `record`: what on the tape held the memory, as
    'number: operation'; None where it was a view or another name.  `array`: the memory that was kept,
    read-only; None when nobody holds it any more."""

    __slots__ = ("array", "record", "line", "bytes")

    def __init__(self, array: Any, record: str | None, line: str, size: int):
        self.array, self.record, self.line, self.bytes = array, record, line, size

    def __repr__(self) -> str:
        what = "an array" if self.array is None else f"{self.array.dtype} {self.array.shape}"
        return f"<{self.bytes} bytes, {what}, kept by {self.record or 'a view or another name'}, copied at {self.line}>"


class TapeCall(RecordedCall):
    """Values y and watched leaves x of a tape by hand, as a transform has its outputs and inputs."""

    def __init__(self, call: str, tape: "Tape", y: Any, x: Any):
        trace, y = tape._trace, arrays_of_tables(y)
        self.tape, self.tree = trace, y
        self.low = [tape._found(v) for v in leaves(y)]
        if all([s is None for _, s in self.low]):
            raise ArgumentError(
                f"{call}: y does not depend on anything that the tape watched. After the with block values "
                "are plain: compute y, sums and indexing included, inside it"
            )
        self.slots, self.watched, self.x = {}, {}, x
        for key, v in enumerate(leaves(x)):
            if not isinstance(v, Variable) or v._trace is not trace or v._slot not in tape._leaves:
                raise ArgumentError(
                    f"{call}: x was not watched by this tape, or was written since; keep what tape.watch "
                    f"returned"
                )
            self.slots[key], self.watched[key] = v._slot, tape._leaves[v._slot]
        if trace.searches:
            tell_searches(trace, self.size_of)

    inputs: Any = property(lambda self: self)

    def results(self, found: AnyDict) -> Any:
        """In the tree of x."""
        each = iter(self.watched)
        return tree_map(lambda _: found[next(each)], self.x)

    def tangents(self, call: str, what: str, v: Any) -> AnyList:
        """One tangent, or None, for each leaf of x."""
        return cast_leaves(call, what, leaves_like(call, what, v, self.x), list(self.watched.values()))


class Tape:
    """A tape by hand: watch arrays, compute, and ask for derivatives as often as you like.

    NumPy's names are not replaced here. Use `tapegrad.numpy`, or NumPy functions through their protocols.
    In the methods, y is any value computed inside the ``with`` block, and x is what `watch` returned. Both
    may be trees.

    See Also
    --------
    grad : The gradient of a function, without a tape by hand.
    Dual : Forward mode by hand.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> with tg.Tape() as tape:
    ...     x = tape.watch(np.array([1.0, 2.0]))
    ...     y = (x * x).sum()
    >>> tape.grad(y, x)
    array([2., 4.])
    >>> tape.hvp(y, x, np.array([1.0, 0.0]))
    array([2., 0.])
    """

    def __init__(self) -> None:
        self._trace = watched(reverse.Tape())
        self._leaves: AnyDict = {}
        self._copies: AnyList = []
        # id -> the handle of a buffer that fell when the tape was closed, its version, value and slot
        self._buffers: AnyDict = {}
        self._trace.leaves, self._trace.gradients, self._trace.kind = self._leaves, {}, type(self._trace)

    __exit__ = Exit()

    def __enter__(self) -> "Tape":
        Exit.hold(self)
        outside(copies=(*OPEN.copies, self._copies), depth=OPEN.depth + 1)
        return self

    def left(self, *error: Any) -> None:
        copies = tuple([c for c in OPEN.copies if c is not self._copies])
        if len(copies) < len(OPEN.copies):
            outside(copies=copies, depth=OPEN.depth - 1)
        risen = [(x, x._value, x._slot) for x in self._trace.risen if x._trace is self._trace]
        self._trace.close()
        self._buffers = {id(x): (x, x._version, value, slot) for x, value, slot in risen}

    @property
    def saved_bytes(self) -> int:
        """The bytes of the arrays that the records keep."""
        return reverse.saved_bytes(self._trace)

    @property
    def snapshots(self) -> list[Snapshot]:
        """The copies that in-place writes in the ``with`` block have cost: the record, your line, the bytes.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> with tg.Tape() as tape:
        ...     x = tape.watch(np.ones(3))
        ...     y = x * x
        ...     x[0] = 5.0
        >>> [(copy.record, copy.bytes) for copy in tape.snapshots]
        [('1: multiply', 24)]
        """
        held: AnyDict = {}
        for k, record in enumerate(self._trace.records):
            for value in RetainedRecord(k, record).values:
                held.setdefault(id(bottom(value)), f"{k}: {reverse.primitive_of(record).name}")  # type: ignore[union-attr]
        found = []
        for reference, line, size in self._copies:
            array = reference()
            record = None if array is None else held.get(id(array))
            if array is not None:
                array = array.view()
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False
            found.append(Snapshot(array, record, line, size))
        return found

    def watch(self, array: Array | Number | Variable) -> Variable:
        """Make a Variable over a copy of an array, and record what is computed from it."""
        inputs = Inputs("tape.watch", 0, (array,))
        if isinstance(self._trace, EndedTrace):
            raise ArgumentError("tape.watch: the tape is closed; watch arrays inside its with block")
        value = enter_leaf(inputs.args[0])
        x: Variable = self._trace.watch(value)
        self._leaves[x._slot] = value
        return x

    @overload
    def grad(self, y: Variable, x: Variable, seed: object = None) -> Array: ...
    @overload
    def grad(self, y: Variable, x: Y, seed: object = None) -> Y: ...
    def grad(self, y: Any, x: Any, seed: Any = None) -> Any:
        """Compute the gradient of y with respect to x.

        Parameters
        ----------
        y : Variable or tree
            A real scalar computed in the ``with`` block, or with `seed` any array.
        x : Variable or tree
            What `watch` returned.
        seed : array, optional
            The cotangent of y; the result is then J^H seed.

        Returns
        -------
        tree
            The gradient, like x. The method may be called again.

        Raises
        ------
        ArgumentError
            If y does not depend on the tape. What is computed after the ``with`` block is plain.
        """
        if seed is not None:
            return self._pulled("tape.grad(y, x)", "seed", y, seed, x)
        check_scalar("tape.grad", self.grad, y)
        return self._pulled("tape.grad(y, x)", "seed", y, constant_like(y, 1), x)

    def _found(self, y: Any) -> AnyTuple:
        """The value of y below this tape, and its slot, or None."""
        trace: Any = self._trace
        # read now, as it would have been inside the with block
        if type(y) is View and y._base._trace is trace and isinstance(trace, EndedTrace):
            trace.__class__, ended = self._trace.kind, trace.__class__
            try:
                layout_of(y)
            finally:
                trace.__class__ = ended
        layout_of(y)
        if isinstance(y, Variable) and y._trace is trace:
            return y._value, y._slot
        # of a buffer that was written inside
        x, version, value, slot = self._buffers.get(id(y), (None, 0, None, None))
        return (value, slot) if x is y and x._version == version else (values_of(y), None)

    def _pulled(self, call: str, what: str, y: Any, w: Any, x: Any) -> Any:
        r = TapeCall(call, self, y, x)
        return r.results(r.gradient(r.cotangents(call.partition("(")[0], w, what)))

    def vjp(self, y: Any, w: Any, x: Y) -> Y:
        """Compute J^H w for the Jacobian J of y with respect to x; w has the tree and shapes of y.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> with tg.Tape() as tape:
        ...     x = tape.watch(np.array([1.0, 3.0]))
        ...     y = x * x
        >>> tape.vjp(y, np.array([1.0, 10.0]), x)
        array([ 2., 60.])
        """
        return self._pulled("tape.vjp(y, w, x)", "cotangent", y, w, x)  # type: ignore[no-any-return]

    def jvp(self, y: Y, x: Any, v: Any) -> Y:
        """Compute J v for the Jacobian J of y with respect to x; v has the tree and shapes of x.

        The records are swept twice, because one sweep gives J^H w.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> with tg.Tape() as tape:
        ...     x = tape.watch(np.array([1.0, 3.0]))
        ...     y = x * x
        >>> tape.jvp(y, x, np.array([1.0, 10.0]))
        array([ 2., 60.])
        """
        r = TapeCall("tape.jvp(y, x, v)", self, y, x)
        tangents = r.tangents("tape.jvp", "tangent", v)
        found = Products(r).forward(dict(zip(r.watched, tangents, strict=True)))
        return leaves_by_number(found, y)  # type: ignore[no-any-return]

    def jacobian(self, y: Any, x: Any, mode: Mode = "auto", holomorphic: bool = False) -> Any:
        """Compute the Jacobian of y with respect to x, of shape y.shape + x.shape; see `tapegrad.jacobian`.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> with tg.Tape() as tape:
        ...     x = tape.watch(np.array([1.0, 3.0]))
        ...     y = x * x
        >>> tape.jacobian(y, x)
        array([[2., 0.],
               [0., 6.]])
        """
        check_mode("tape.jacobian", mode)
        return jacobian_of(
            "tape.jacobian", self.jacobian, TapeCall("tape.jacobian(y, x)", self, y, x), mode, holomorphic
        )

    def hvp(self, y: Any, x: Y, v: Any) -> Y:
        """Compute H v for the Hessian H of the scalar y with respect to x; v has the tree and shapes of x.

        Raises
        ------
        NoRuleError
            If the tape holds an operation that was made for its call (`tapegrad.rule`, `checkpoint`,
            kernels). Call `tapegrad.hvp` there.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> with tg.Tape() as tape:
        ...     x = tape.watch(np.array([1.0, 3.0]))
        ...     y = (x ** 3).sum()
        >>> tape.hvp(y, x, np.array([1.0, 10.0]))
        array([  6., 180.])
        """
        check_scalar("tape.hvp", self.hvp, y)
        r = TapeCall("tape.hvp(y, x, v)", self, y, x)
        tangents = r.tangents("tape.hvp", "direction", v)
        ((value, slot),) = r.low
        found = SecondOrder("tape.hvp(y, x, v)", self._trace, slot).product(
            value, slot, list(zip(r.slots.values(), tangents, strict=True))
        )
        return r.results(  # type: ignore[no-any-return]
            {key: derivative_out(t, x) for (key, x), t in zip(r.watched.items(), found, strict=True)}
        )


def by_hand(x: Variable, name: str) -> Any:
    """The trace of the tape by hand to which x belongs."""
    layout_of(x)
    trace = x._trace
    if trace is None or not hasattr(trace, "gradients"):
        raise AttributeError(
            f"{name} is known under a tape by hand: with tapegrad.Tape() as tape: x = tape.watch(a); y = "
            "f(x); then tape.grad(y, x), or y.backward() and x.grad. In a function that is differentiated "
            "return y, and call tapegrad.grad(f)(x)"
        )
    return trace


class Backward:
    """`y.backward(seed=None)`: add the gradient of the scalar y (or J^H seed) to `x.grad` of each x that its
    tape watched."""

    __slots__ = ("y", "trace")

    def __init__(self, y: Variable):
        self.y, self.trace = y, by_hand(y, "y.backward()")

    def __call__(self, seed: Any = None) -> None:
        if seed is None:
            check_scalar("y.backward", self, self.y)
        seed = (
            constant_like(self.y, 1) if seed is None else cast_to_primal("y.backward", "seed", seed, self.y)
        )
        G, gradients = reverse.pull(self.trace, [(self.y._slot, seed)]), self.trace.gradients
        for slot, value in self.trace.leaves.items():
            g = derivative_out(G[slot] if slot < len(G) else None, value)
            gradients[slot] = g if slot not in gradients else gradients[slot] + g


def accumulated_gradient(x: Variable) -> Any:
    """What `y.backward()` has added up for this x, or None."""
    g = by_hand(x, "x.grad").gradients.get(x._slot)
    return g if g is None else value_out(g)


late.backward, late.gradient = Backward, accumulated_gradient


# --- small things ---


@overload
def value(x: Variable) -> Array: ...
@overload
def value(x: Y) -> Y: ...
def value(x: Any) -> Any:
    """Return the plain array of a tracked value, which drops its derivative on purpose.

    Parameters
    ----------
    x : object
        A tracked value. Other objects are returned unchanged.

    Returns
    -------
    array or number
        The value, of NumPy or CuPy. Under nested transforms it is the value outside all of them.

    See Also
    --------
    Const : Marks an argument or a function as constant.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: x * tg.value(x))(3.0)
    np.float64(3.0)
    """
    if not isinstance(x, Variable):
        return x if OPEN.inside is None else OPEN.inside.primal(x)
    x = primal_of(x)
    return frozen(x) if isinstance(x, Variable) else owned(x) if is_array(x) else x


def ravel(tree: Y) -> tuple[Array, Callable[[Array], Y]]:
    """Concatenate all float arrays of a tree into one vector; both directions are differentiable.

    Parameters
    ----------
    tree : tree
        Arrays and numbers of float dtype, in tuples, lists, dicts or dataclasses.

    Returns
    -------
    flat : array
        The vector, of shape (n,).
    restore : callable
        ``restore(flat)`` returns a tree like `tree`.

    See Also
    --------
    register_tree : Declares a class of yours to be a tree.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> flat, restore = tg.ravel({"a": 1.0, "b": np.array([2.0, 3.0])})
    >>> flat, restore(flat * 10)["b"]
    (array([1., 2., 3.]), array([20., 30.]))
    """
    check_constants("ravel: a leaf", tree)
    members = leaves(tree)
    active = [is_differentiable(layout_of(m)) for m in members]
    shapes = [shape(m) for m in members]
    kinds = [type(layout_of(m)) for m in members]
    dtypes = [dtype(m) if a else None for m, a in zip(members, active, strict=True)]
    pieces = [
        shaping.reshape(m, to=(-1,)) if is_array(layout_of(m)) else np.reshape(m, (1,))
        for m, a in zip(members, active, strict=True)
        if a
    ]
    flat = shaping.concatenate(*pieces) if pieces else np.zeros(0)
    sizes = [math.prod(s) if a else 0 for s, a in zip(shapes, active, strict=True)]
    total = sum(sizes)

    def restore(vector: Any) -> Any:
        if shape(vector) != (total,):
            raise ShapeError(f"restore: the vector has shape {shape(vector)}, the tree needs ({total},)")
        start = 0
        made = []
        for m, s, n, a, kind, dt in zip(members, shapes, sizes, active, kinds, dtypes, strict=True):
            if not a:
                made.append(m)
                continue
            piece = shaping.slice_of(vector, axis=0, start=start, stop=start + n)
            start += n
            piece = shaping.reshape(piece, to=s)
            if not isinstance(piece, Variable) and issubclass(kind, (float, complex, np.generic)):
                piece = piece[()]
            made.append(piece if dtype(piece) == dt else shaping.fit_to_shape(piece, s, dt))
        parts = iter(made)
        return tree_map(lambda _: next(parts), tree)

    return flat, restore
