"""What a user does by hand: the tape, cutting a derivative, a tree as one vector."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np

from . import _tape as reverse
from ._array import is_array, is_differentiable, owned
from ._calls import (
    Inputs,
    cast,
    check_scalar,
    derivative_out,
    entered,
    full_like,
)
from ._primitive import Trace, layout_of, primal_of, watched
from ._scope import OPEN, Exit, outside
from ._tree import leaves, tree_map
from ._types import Array, Number
from ._variable import Variable, frozen
from .errors import ArgumentError, ShapeError
from .ops import shaping
from .ops._define import dtype, shape

Y = TypeVar("Y")

# --- the tape by hand ---


class Tape:
    """A tape by hand: watch arrays, compute, ask for gradients.  NumPy's names are not shadowed here: use `tapegrad.numpy`, or
    numpy functions through their protocols.

    >>> import numpy as np, tapegrad as tg
    >>> with tg.Tape() as tape:
    ...     x = tape.watch(np.array([1.0, 2.0]))
    ...     y = (x * x).sum()
    >>> tape.grad(y, x)
    array([2., 4.])
    """

    def __init__(self) -> None:
        self._trace = watched(reverse.Tape())
        self._leaves: dict = {}

    __exit__ = Exit()

    def __enter__(self) -> "Tape":
        Exit.hold(self)
        outside(tapes=(*OPEN.tapes, self), depth=OPEN.depth + 1)
        return self

    def left(self, *error: Any) -> None:
        if self in OPEN.tapes:
            outside(tapes=tuple([t for t in OPEN.tapes if t is not self]), depth=OPEN.depth - 1)
        self._trace.close()

    @property
    def saved_bytes(self) -> int:
        """Bytes of arrays that the records keep."""
        return reverse.saved_bytes(self._trace)

    def watch(self, array: Array | Number | Variable) -> Variable:
        """A Variable over a copy of the array."""
        inputs = Inputs("tape.watch", 0, (array,))
        if self._trace.over:
            raise ArgumentError("tape.watch: the tape is closed; watch arrays inside its with block")
        value = entered(inputs.args[0])
        x = self._trace.watch(value)
        self._leaves[x._slot] = value
        return x

    @overload
    def grad(self, y: Variable, x: Variable, seed: object = None) -> Array: ...
    @overload
    def grad(self, y: Variable, x: Y, seed: object = None) -> Y: ...
    def grad(self, y: Any, x: Any, seed: Any = None) -> Any:
        """Gradient of the scalar y (or J^H seed of an array y) for the watched x, or a tree of such; repeatable.

        Raises ArgumentError where y does not depend on the tape: what is computed after the with block is plain."""
        slot = y._slot if isinstance(y, Variable) and (live_on(y, self._trace)) else None
        if seed is None:
            check_scalar("tape.grad", self.grad, y)
            seed = full_like(y, 1)
        else:
            seed = cast("tape.grad", "seed", seed, y)
        if slot is None:
            raise ArgumentError(
                "tape.grad(y, x): y does not depend on anything that the tape watched. After the with block values are plain: "
                "compute y, sums and indexing included, inside it"
            )
        G = reverse.pull(self._trace, [(slot, seed)])

        def of(v):
            if not isinstance(v, Variable) or v._trace is not self._trace or v._slot not in self._leaves:
                raise ArgumentError("tape.grad(y, x): x was not watched by this tape, or was written since; keep what tape.watch returned")
            return derivative_out(G[v._slot] if v._slot < len(G) else None, self._leaves[v._slot])

        return tree_map(of, x)


def live_on(y: Variable, trace: Trace) -> bool:
    layout_of(y)
    return y._trace is trace


# --- small things ---


@overload
def value(x: Variable) -> Array: ...
@overload
def value(x: Y) -> Y: ...
def value(x: Any) -> Any:
    """The plain array behind a tracked Variable: the derivative is cut on purpose.  Other objects pass through.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: x * tg.value(x))(3.0)
    np.float64(3.0)
    """
    if not isinstance(x, Variable):
        return x
    x = primal_of(x)
    return frozen(x) if isinstance(x, Variable) else owned(x) if is_array(x) else x


def ravel(tree: Y) -> tuple[Array, Callable[[Array], Y]]:
    """(flat vector, restore): all float arrays of a tree as one vector, and the way back; both differentiable.

    >>> import numpy as np, tapegrad as tg
    >>> flat, restore = tg.ravel({"a": 1.0, "b": np.array([2.0, 3.0])})
    >>> flat, restore(flat * 10)["b"]
    (array([1., 2., 3.]), array([20., 30.]))
    """
    members = leaves(tree)
    active = [is_differentiable(layout_of(m)) for m in members]
    shapes = [shape(m) for m in members]
    kinds = [type(layout_of(m)) for m in members]
    dtypes = [dtype(m) if a else None for m, a in zip(members, active, strict=True)]
    pieces = [
        shaping.reshape(m, to=(-1,)) if is_array(layout_of(m)) else np.reshape(m, (1,)) for m, a in zip(members, active, strict=True) if a
    ]
    flat = shaping.concatenate(*pieces) if pieces else np.zeros(0)

    def restore(vector: Any) -> Any:
        total = sum(int(np.prod(s)) for s, a in zip(shapes, active, strict=True) if a)
        if shape(vector) != (total,):
            raise ShapeError(f"restore: the vector has shape {shape(vector)}, the tree needs ({total},)")
        start = 0
        made = []
        for m, s, a, kind, dt in zip(members, shapes, active, kinds, dtypes, strict=True):
            if not a:
                made.append(m)
                continue
            n = int(np.prod(s))
            piece = shaping.slice_of(vector, axis=0, start=start, stop=start + n)
            start += n
            piece = shaping.reshape(piece, to=s)
            if not isinstance(piece, Variable) and issubclass(kind, (float, complex, np.generic)):
                piece = piece[()]
            made.append(piece if dtype(piece) == dt else shaping.fit(piece, s, dt))
        parts = iter(made)
        return tree_map(lambda _: next(parts), tree)

    return flat, restore
