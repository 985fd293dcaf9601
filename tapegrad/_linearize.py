"""A function recorded at one point: products with its Jacobian and with the transpose, f not run again."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from . import _tape as reverse
from ._array import is_differentiable
from ._calls import Recorded, cast, derivative_out, full_like, leaves_like, lowered, name_of, number
from ._primitive import layout_of, watched
from ._scope import OPEN, opened
from ._tree import tree_map
from .errors import ArgumentError
from .ops.degenerate import free_of_gauge

Y = TypeVar("Y")


class Products:
    """J v and J^H w of a function that was recorded.

    The records give w -> J^H w.  It is linear in w, so J v is its transpose: it is recorded once, when the first J v is asked for, at
    w = 0, and pulled back through, which costs one sweep as J^H w does."""

    def __init__(self, r: Recorded):
        self.recorded, self.again = r, None

    def backward(self, cotangents: list) -> dict:
        """By key of the arguments, J^H w; one cotangent, or None, for each leaf of the output."""
        return self.recorded.gradient(cotangents)

    def forward(self, tangents: dict) -> list:
        """For each leaf of the output J v (None where it has no derivative), v being one tangent, or None, for each key."""
        if self.again is None:
            self.again = self.transposed()
        tape, ws, slots = self.again
        seeds = [(slots[key], t) for key, t in tangents.items() if t is not None and slots[key] is not None]
        G = reverse.pull(tape, seeds) if seeds else []
        found = []
        for (y, _), w in zip(self.recorded.low, ws, strict=True):
            if w is None:
                found.append(None)
                continue
            t = G[w._slot] if w._slot < len(G) else None
            found.append(derivative_out(t if t is None else free_of_gauge(y, t), number(y)))
        return found

    def transposed(self) -> tuple:
        tape = watched(reverse.Tape())
        ws = [tape.watch(full_like(number(y), 0)) if is_differentiable(layout_of(y)) else None for y, _ in self.recorded.low]
        pulled = self.recorded.pull(ws)
        slots = {key: None if pulled.get(key) is None else lowered(pulled[key], tape)[1] for key in self.recorded.inputs.watched}
        tape.close()
        return tape, ws, slots


def recorded(call: str, f: Callable, argnums: Any, args: tuple, lift: Callable | None = None, read: Callable | None = None) -> Recorded:
    """f recorded once, by records that outlive the call.  `read` sees it before captured arrays hold plain data again."""
    with opened():
        r = Recorded(call, f, argnums, args, {}, lift=lift, swept=False)
        if read is not None:
            read(r)
        r.shadow.release(r.tape.records)
        r.shadow.finish()
    r.shadow.f = r.shadow.args = None  # f may know who keeps the records
    return r


class LinearMap(Generic[Y]):
    """v -> J v of a function at one point, or w -> J^H w; `T` is the other."""

    __slots__ = ("name", "products", "forward")

    def __init__(self, name: str, products: Products, forward: bool = True):
        self.name, self.products, self.forward = name, products, forward

    @property
    def T(self) -> "LinearMap[Any]":
        """w -> J^H w, in the trees of the arguments; its own `T` is J again."""
        return LinearMap(self.name, self.products, not self.forward)

    def __call__(self, *given: object) -> Y:
        r = self.products.recorded
        inputs = r.inputs
        if not self.forward:
            if len(given) != 1:
                raise ArgumentError(f"{self!r}: give one cotangent, in the tree of the value; got {len(given)}")
            ws = leaves_like(repr(self), "cotangent", given[0], r.tree)
            return inputs.results(self.products.backward(self.checked("cotangent", ws, [y if s is not None else None for y, s in r.low])))
        if len(given) != len(inputs.nums):
            raise ArgumentError(f"{self!r}: give one tangent for each of the {len(inputs.nums)} primals; got {len(given)}")
        flat = [t for v, n in zip(given, inputs.nums, strict=True) for t in leaves_like(repr(self), "tangent", v, inputs.args[n])]
        watched = [inputs.watched.get(key) for key in range(len(flat))]
        tangents = dict(enumerate(self.checked("tangent", flat, watched)))
        each = iter(self.products.forward({key: tangents[key] for key in inputs.watched}))
        return tree_map(lambda _: next(each), r.tree)

    def checked(self, what: str, given: list, primals: list) -> list:
        return [None if v is None or p is None else cast(repr(self), what, v, p) for v, p in zip(given, primals, strict=True)]

    def __repr__(self) -> str:
        return self.name if self.forward else f"{self.name}.T"


def linearize(f: Callable[..., Y], *primals: object) -> tuple[Y, LinearMap[Y]]:
    """(f(*primals), J): the value and the linear map `J(v)`, for several primals `J(v1, v2, ...)`.  f runs once.

    `J.T(w)` gives J^H w: one tree for one primal, else a tuple.  Each product costs one sweep over what was recorded; captured arrays
    and the primals are as they were at the call, whatever was written since.

    >>> import numpy as np, tapegrad as tg
    >>> y, J = tg.linearize(lambda x: x * x, np.array([1.0, 3.0]))
    >>> J(np.array([1.0, 10.0])), J.T(np.array([1.0, 1.0]))
    (array([ 2., 60.]), array([2., 6.]))
    """
    call = f"linearize({name_of(f)})"
    if OPEN.inside is not None:
        raise ArgumentError(f"{call}: a kernel has no linear maps that outlive a call; write tg.jvp or tg.vjp there")
    if not primals:
        raise ArgumentError(f"{call}: give the primals, linearize(f, x)")
    values: list = []
    r = recorded(call, f, 0 if len(primals) == 1 else tuple(range(len(primals))), primals, read=lambda r: values.append(r.value()))
    return values[0], LinearMap(call, Products(r))
