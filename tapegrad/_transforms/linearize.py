"""A function recorded at one point: products with its Jacobian and with the transpose, f not run again."""

import itertools
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

from .._core import reverse as reverse
from .._core.arrays import is_differentiable
from .._core.errors import ArgumentError, NoRuleError
from .._core.forward import Dual
from .._core.primitive import layout_of, watched
from .._core.scope import OPEN, scope_block
from .._core.trees import tree_map
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from ..ops.linalg.degenerate_spectra import free_of_gauge
from ..ops.shaping import transpose
from .arguments import all_positions, is_active, numpy_number, user_name
from .call import (
    RecordedCall,
    cast_leaves,
    constant_like,
    derivative_out,
    leaves_like,
    lowered_leaf,
    plain_tree,
)

Y = TypeVar("Y")
A = TypeVar("A")


class Products:
    """J v and J^H w of a function that was recorded.

    The records give w -> J^H w.  It is linear in w, so J v is its transpose: it is recorded once, when the
    first J v is asked for, at w = 0, and pulled back through, which costs one sweep as J^H w does."""

    def __init__(self, r: RecordedCall):
        self.recorded = r
        self.again: Any = None

    def backward(self, cotangents: AnyList) -> AnyDict:
        """By key of the arguments, J^H w; one cotangent, or None, for each leaf of the output."""
        return self.recorded.gradient(cotangents)

    def forward(self, tangents: AnyDict) -> AnyDict:
        """By number of the leaf of the output, if it has a derivative, J v; v is one tangent, or None, for
        each key."""
        if self.again is None:
            self.transposed()
        tape, ws, slots = self.again
        seeds = [(slots[key], t) for key, t in tangents.items() if t is not None and slots[key] is not None]
        G = reverse.pull(tape, seeds) if seeds else []
        found = {}
        for k, (y, w) in ws.items():
            t = G[w._slot] if w._slot < len(G) else None
            found[k] = derivative_out(t if t is None else free_of_gauge(y, t), y)
        return found

    def transposed(self) -> "Products":
        """Record w -> J^H w."""
        tape = watched(reverse.Tape.at_a_point())
        ws = {
            k: (y, tape.watch(constant_like(y, 0)))
            for k, y in enumerate([numpy_number(y) for y, _ in self.recorded.low])
            if is_active(y)
        }
        pulled = self.recorded.pull([ws.get(k, (None, None))[1] for k in range(len(self.recorded.low))])
        slots = {
            key: None if pulled.get(key) is None else lowered_leaf(pulled[key], tape)[1]
            for key in self.recorded.inputs.watched
        }
        tape.close()
        self.again = tape, ws, slots
        return self

    def release(self) -> None:
        """Drop the records of w -> J^H w."""
        self.again[0].release()


def leaves_by_number(found: AnyDict, tree: Any) -> Any:
    """The tree with `found[k]` in the place of leaf k, or None."""
    numbers = itertools.count()
    return tree_map(lambda _: found.get(next(numbers)), tree)


class RetainedRecord:
    """A record, and the values that it keeps, each with the slot that it is the value of.

    `turned`: which of them are the transposes of the values at these slots."""

    __slots__ = ("record", "slots", "values", "turned")
    slots: AnyList
    turned: AnyTuple

    def __init__(self, k: int, record: AnyTuple):
        rule, i, second, j, out, x, y = self.record = record
        outs = [(k + 1 + n, o) for n, o in enumerate(out)] if type(out) is tuple else [(k, out)]
        if second in LINEAR or rule is second is None:
            pairs, self.turned = [], ()
        elif second is reverse.MANY:
            pairs, self.turned = [*zip(i, x, strict=True), *outs], (False,) * (len(x) + len(outs))
        else:
            y_slot = None if second is reverse.SETTINGS or second is None else j
            pairs, self.turned = (
                [(i, x), (y_slot, y), *outs],
                (is_turned(rule), is_turned(second), *[False] * len(outs)),
            )
        self.slots, self.values = [s for s, _ in pairs], [v for _, v in pairs]

    def by_slot(self) -> AnyList:
        """(slot, value, is it the transpose?) of what has a derivative."""
        return [found for found in zip(self.slots, self.values, self.turned, strict=True) if is_kept(*found)]

    def with_values(self, of: AnyFunction) -> AnyTuple:
        """The record with `of(slot, value, turned)` in the place of these values."""
        rule, i, second, j, out, x, y = self.record
        if not self.slots:
            return self.record
        values = [
            of(*found) if is_kept(*found) else found[1]
            for found in zip(self.slots, self.values, self.turned, strict=True)
        ]
        n = len(x) if second is reverse.MANY else 2
        out = tuple(values[n:]) if type(out) is tuple else values[n]
        if second is reverse.MANY:
            return rule, i, second, j, out, values[:n], y
        return rule, i, second, j, out, values[0], values[1]


LINEAR = (reverse.REGION, reverse.ELEMENT, reverse.PART)  # records that keep no values


def is_kept(slot: int | None, value: Any, turned: bool) -> bool:
    return (
        slot is not None and type(value) is not reverse.ShapeStandIn and is_differentiable(layout_of(value))
    )


def is_turned(rule: Any) -> bool:
    return getattr(rule, "turned", False)


def is_declared(record: AnyTuple) -> bool:
    """Do the rules of the record read values from it alone?  Those of declared operations do, and short ways
    of them (_dispatch.fast)."""
    if record[2] in LINEAR or record is reverse.LEAF:
        return True
    prim = reverse.primitive_of(record)
    if prim is None or not prim.declared:
        return False
    if record[2] is reverse.MANY:
        return True
    rules = [
        r.rule if type(r) is reverse.AdaptedRule else r
        for r in (record[0], record[2])
        if r is not None and type(r) is not reverse.RecordMark
    ]
    return all([r in prim.vjp or hasattr(r, "turned") or r is reverse.NONE for r in rules])


class SecondOrder:
    """H v, from the records of one tape alone.

    A sweep is linear in its cotangents.  So one with a cotangent at each value that a record keeps, itself
    recorded, and pulled back, gives the tangents of all these values.  A sweep over the records with values
    and tangents in the place of values gives the tangent of the gradient."""

    def __init__(self, call: str, tape: reverse.Tape, top: int):
        self.tape, records = tape, tape.records[: top + 1]
        for record in records:
            if not is_declared(record):
                name = getattr(reverse.primitive_of(record), "name", "an operation")
                raise NoRuleError(
                    f"{call}: the tape holds {name}, whose record does not tell second derivatives; put what "
                    "was computed into a function f, and call tapegrad.hvp(f, x, v)"
                )
        self.kept = [RetainedRecord(k, record) for k, record in enumerate(records)]

    def product(self, y: Any, slot: int, directions: AnyList) -> AnyList:
        """For each of the pairs (slot of a leaf, tangent or None) the tangent of its cotangent, or None, y
        being the value at `slot`."""
        tangents, dual = self.tangents(directions), Dual()
        again = watched(reverse.Tape())
        again.leaves, again.over_ranks = getattr(self.tape, "leaves", {}), self.tape.over_ranks

        def with_tangent(s: Any, value: Any, turned: Any) -> Any:
            t = tangents.get(s)
            return value if t is None else dual.watch(value, transpose(t, axes=(1, 0)) if turned else t)

        try:
            again.records = [kept.with_values(with_tangent) for kept in self.kept]
            # a Variable: rules take no short ways of plain arrays
            seed = dual.watch(constant_like(y, 1), constant_like(y, 0))
            G = reverse.pull(again, [(slot, seed)])
            found = [
                None if s >= len(G) or G[s] is None else lowered_leaf(G[s], dual)[1] for s, _ in directions
            ]
        finally:
            dual.close()
            again.close()
        return found

    def tangents(self, directions: AnyList) -> AnyDict:
        """slot -> tangent of each value that a record keeps, if it has one."""
        values = {
            s: transpose(v, axes=(1, 0)) if turned else v
            for kept in self.kept
            for s, v, turned in kept.by_slot()
        }
        over = watched(reverse.Tape.at_a_point())
        try:
            seeds = [(s, over.watch(constant_like(numpy_number(value), 0))) for s, value in values.items()]
            G = reverse.pull(self.tape, seeds) if seeds else []
            pulled = [
                (lowered_leaf(G[s], over)[1], v)
                for s, v in directions
                if v is not None and s < len(G) and G[s] is not None
            ]
        finally:
            over.close()
        pulled = [(s, v) for s, v in pulled if s is not None]
        G = reverse.pull(over, pulled) if pulled else []
        return {s: G[w._slot] for s, w in seeds if w._slot < len(G) and G[w._slot] is not None}


def record_linear(
    call: str,
    f: AnyFunction,
    argnums: Any,
    args: AnyTuple,
    lift: AnyFunction | None = None,
    read: AnyFunction | None = None,
    has_aux: bool = False,
) -> RecordedCall:
    """f recorded once, by records that outlive the call.  `read` sees it before captured arrays hold plain
    data again."""
    with scope_block():
        r = RecordedCall(call, f, argnums, args, {}, has_aux, lift, swept=False)
        if read is not None:
            read(r)
        r.shadow.release(r.tape.records)
        r.shadow.finish()
    r.shadow.f, r.shadow.args = None, []  # f may know who keeps the records
    return r


class LinearMap(Generic[Y]):
    """The linear map v -> J v at one point, made by `linearize`; ``J.T`` is the transpose w -> J^H w.

    See Also
    --------
    linearize : Makes it, with an example.
    """

    __slots__ = ("name", "products", "forward")

    def __init__(self, name: str, products: Products, forward: bool = True):
        self.name, self.products, self.forward = name, products, forward

    @property
    def T(self) -> "LinearMap[Any]":
        """The map w -> J^H w, in the trees of the arguments. Its own `T` is J."""
        return LinearMap(self.name, self.products, not self.forward)

    def __call__(self, *given: object) -> Y:
        r = self.products.recorded
        inputs = r.inputs
        if not self.forward:
            if len(given) != 1:
                raise ArgumentError(
                    f"{self!r}: give one cotangent, in the tree of the value; got {len(given)}"
                )
            ws = r.cotangents(repr(self), given[0])
            return inputs.results(self.products.backward(ws))  # type: ignore[no-any-return]
        if len(given) != len(inputs.nums):
            raise ArgumentError(
                f"{self!r}: give one tangent for each of the {len(inputs.nums)} primals; got {len(given)}"
            )
        flat = [
            t
            for v, n in zip(given, inputs.nums, strict=True)
            for t in leaves_like(repr(self), "tangent", v, inputs.args[n])
        ]
        watched = [inputs.watched.get(key) for key in range(len(flat))]
        tangents = dict(enumerate(cast_leaves(repr(self), "tangent", flat, watched)))
        return leaves_by_number(  # type: ignore[no-any-return]
            self.products.forward({key: tangents[key] for key in inputs.watched}), r.tree
        )

    def __repr__(self) -> str:
        return self.name if self.forward else f"{self.name}.T"


@overload
def linearize(
    f: Callable[..., Y],
    *primals: object,
    argnums: int | AnyTuple | None = None,
    has_aux: Literal[False] = False,
) -> tuple[Y, LinearMap[Y]]: ...
@overload
def linearize(
    f: Callable[..., tuple[Y, A]],
    *primals: object,
    argnums: int | AnyTuple | None = None,
    has_aux: Literal[True],
) -> tuple[Y, LinearMap[Y], A]: ...
def linearize(
    f: AnyFunction, *primals: object, argnums: int | AnyTuple | None = None, has_aux: bool = False
) -> AnyTuple:
    """Compute the value of f and its linearisation, the map v -> J v at one point. f runs once.

    Each product costs one sweep over the records. Captured arrays and the primals enter as they were at the
    call, whatever was written since.

    Parameters
    ----------
    f : callable
        A function of `primals` that returns an array, a number or a tree of these.
    *primals : array, number or tree
        The point, of float or complex dtype.
    argnums : int or tuple of int, optional
        Positions of the primals to differentiate; by default all. The others are constants.
    has_aux : bool, default False
        Whether f returns a pair (value, aux). aux is not differentiated.

    Returns
    -------
    value : tree
        ``f(*primals)``.
    J : LinearMap
        ``J(v)``, or ``J(v1, v2, ...)`` for several primals, returns the tangent of the value. ``J.T(w)``
        returns J^H w: one tree for one primal, else a tuple.
    aux : object, with `has_aux`
        The auxiliary output, plain.

    Raises
    ------
    ShapeError
        If a direction or a cotangent has another shape than its primal or the value.

    See Also
    --------
    jvp, vjp : One product.
    tapegrad.operators.jacobian : The same as an operator for SciPy's solvers.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> y, J = tg.linearize(lambda x: x * x, np.array([1.0, 3.0]))
    >>> J(np.array([1.0, 10.0])), J.T(np.array([1.0, 1.0]))
    (array([ 2., 60.]), array([2., 6.]))
    """
    call = f"linearize({user_name(f)})"
    if OPEN.inside is not None:
        raise ArgumentError(
            f"{call}: a kernel has no linear maps that outlive a call; write tg.jvp or tg.vjp there"
        )
    if not primals:
        raise ArgumentError(f"{call}: give the primals, linearize(f, x)")
    values: AnyList = []
    r = record_linear(
        call,
        f,
        all_positions("linearize", argnums, primals),
        primals,
        read=lambda r: values.append(r.value()),
        has_aux=has_aux,
    )
    pair: AnyTuple = (values[0], LinearMap(call, Products(r)))
    return (*pair, plain_tree(r.aux)) if has_aux else pair
