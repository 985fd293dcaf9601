"""Derivatives at a point as linear operators of SciPy (of CuPy on a device): products without the matrix.

Reading order: `ReadState` (is what the function read still as it was?); `TreeLayout` (vectors and trees);
`Point` (f recorded at one x); the operators."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg

from ._capture.dependencies import Environment, Status
from ._capture.routes import way_to
from ._core.arrays import (
    PLAIN_ARRAYS,
    copy_with_layout,
    is_array,
    is_differentiable,
    mark_immutable,
    same_bits,
    xp_of,
)
from ._core.errors import ArgumentError, DroppedDerivativeError, GuardError, ShapeError
from ._core.primitive import is_tracked, layout_of
from ._core.registry import load
from ._core.scope import OPEN, changed
from ._core.trees import Const, describe_tree, is_node, leaves, tree_map
from ._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple, Shape
from ._transforms.arguments import user_name, where_of
from ._transforms.call import RecordedCall, cast_to_primal, leaves_like
from ._transforms.gradient import value_and_gradient_body
from ._transforms.linearize import Products, leaves_by_number, record_linear
from ._transforms.many_directions import for_each, largest_cotangent, swept_at_once
from ._transforms.transform import lift_of
from .ops.declare import dtype, shape
from .replay import prepare

__all__ = ["fisher", "gauss_newton", "hessian", "jacobian"]


def __dir__() -> list[str]:
    return __all__


# --- is what the function read as it was? ---


def same_leaves(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return same_bits(a, b) if xp_of(a) is np else bool(((a == b) | ((a != a) & (b != b))).all())


class ReadState:
    """What f read outside of its arguments: float arrays by a copy, all else by what its code can read
    (_capture/dependencies.py).  The numbers that f changes itself are as it leaves them, and may be changed
    again."""

    def __init__(self, call: str, f: Any, before: "ReadState | None" = None):
        """`before`: those of another point, which serve if nothing has changed since."""
        self.call, self.f = call, f
        # (array that f writes, its content after that, where that differs from the one before)
        self.written: AnyList = []
        self.arrays: AnyList = []  # (array, its content)
        self.environment: Environment | None = None
        if (
            before is not None
            and before.environment is not None
            and before.environment.status() is Status.UNCHANGED
        ):
            self.environment = before.environment
        elif not isinstance(f, Const):
            self.environment = Environment([f], by_copy)

    def met(self, r: RecordedCall) -> None:
        """f has run."""
        if r.shadow.on:
            # (it is not written back yet)
            self.written = [(a, a.copy(), None) for a, v in r.shadow.arrays if v._version]
            self.arrays = [a for a, v in r.shadow.arrays if not v._version]

    def left(self) -> None:
        """f has ended."""
        if self.environment is not None:
            self.environment = self.environment.after()
            known = [*self.arrays, *[a for a, *_ in self.written]]
            self.arrays += [a for a in self.environment.walk.layouts if not any([a is b for b in known])]
        self.arrays = [(a, a.copy()) for a in self.arrays if not mark_immutable(a)]
        self.written = [(a, a.copy(), differs(a, before)) for a, before, _ in self.written]

    def unknown(self) -> bool:
        """Is it unknown whether f would read what it has read?  Raises GuardError where it is known not
        to."""
        for a, before in self.arrays:
            if not same_leaves(a, before):
                how = way_to(self.f, a) or "an array"
                self.changed(f"{how} of shape {a.shape}, which {user_name(self.f)} captured,")
        status = Status.UNCHANGED if self.environment is None else self.environment.status()
        if status is Status.CHANGED:
            self.changed(
                f"what {user_name(self.f)} reads besides its arguments (a name, an attribute, a member of a "
                f"container)"
            )
        return status is Status.UNKNOWN or any(
            [
                (differs(a, after) & ~free).any()
                for a, after, free in self.written
                if not same_leaves(a, after)
            ]
        )

    def changed(self, what: str) -> None:
        raise GuardError(
            f"{self.call}: {what} has changed since the operator was made or updated{where_of(self.f)}; its "
            f"products would belong to what "
            "was there before: call .update(x), or mark with tg.Const what it should take as it was"
        )


def differs(a: Any, b: Any) -> Any:
    """Where the arrays differ; nan is equal to nan."""
    return (a != b) & ~((a != a) & (b != b))


def by_copy(a: Any) -> bool:
    """(Of these arrays a walk compares the layout only.)"""
    return mark_immutable(a) or (
        a.dtype.kind in "fc" and (not isinstance(a, np.ndarray) or type(a) in PLAIN_ARRAYS)
    )


# --- vectors and trees ---


class TreeLayout:
    """Where the leaves of a tree lie in a vector.  `members`: (key, value) of those that have a
    derivative."""

    def __init__(self, members: AnyList):
        self.members, self.places, at = members, [], 0
        for key, v in members:
            n = int(np.prod(shape(v)))
            self.places.append((key, at, at + n, shape(v), dtype(v)))
            at += n
        self.size = at
        self.dtype = np.result_type(*[d for *_, d in self.places])

    def __repr__(self) -> str:
        return ", ".join([f"{d}{to}" for _, _, _, to, d in self.places])

    def cut(self, v: Any, lead: AnyTuple = ()) -> AnyList:
        """The parts of a vector, or of rows of such; of a complex one the real part where a leaf is real."""
        parts = []
        for _, start, stop, to, d in self.places:
            part = v[..., start:stop].reshape((*lead, *to))
            part = part.real if part.dtype.kind == "c" and d.kind != "c" else part
            parts.append(
                part.astype(d, copy=False) if lead or to or not isinstance(part, np.ndarray) else d.type(part)
            )
        return parts

    def joined(self, found: AnyDict, lead: AnyTuple = ()) -> Any:
        pieces = [found[key].reshape((*lead, -1)) for key, *_ in self.places]
        if len(pieces) == 1:
            return pieces[0]
        return xp_of(pieces[0]).concatenate(pieces, axis=-1)


def fill_out(call: str, out: Any, found: Any) -> Any:
    """`found` in the arrays of `out`, or as it is."""
    if out is None:
        return found
    pairs = list(zip(leaves_like(call, "out", out, found), leaves(found), strict=True))
    for o, v in pairs:
        if v is not None and not (
            is_array(o) and o.shape == shape(v) and np.can_cast(dtype(v), o.dtype, "same_kind")
        ):
            have = f"{o.dtype}{o.shape}" if is_array(o) else type(o).__name__
            raise ShapeError(f"{call}: out= must have an array of {dtype(v)}{shape(v)} here, got {have}")
    for o, v in pairs:
        if v is not None:
            o[...] = v
    return out


# --- f at one point ---


def own_copy(a: Any) -> Any:
    """An argument that is kept: nobody else writes it."""
    return copy_with_layout(a) if is_array(a) and not mark_immutable(a) else a


FREQUENT_PRODUCTS = 40  # products at one point, which together cost about as much as a recording
SMALL_RECORD_BYTES = 1 << 15  # bytes; of larger arrays a sweep costs what its operations do
PLAIN = frozenset((np.ndarray, np.float64, np.float32))


def largest_kept(r: RecordedCall) -> int:
    return max([v.nbytes for record in r.tape.records for v in record[4:] if is_array(v)], default=0)


class Point:
    """f recorded at x.  `domain`, `codomain`: how the vectors that its Jacobian takes and gives lie in the
    trees."""

    def __init__(
        self,
        call: str,
        f: AnyFunction,
        x: Any,
        args: AnyTuple,
        before: "Point | None",
        lift: AnyFunction | None = None,
        first: int = 0,
    ):
        """`before`: the last point.  `first`: the number of the first leaf of the output that counts."""
        self.call, self.x, self.args = (
            call,
            tree_map(own_copy, x),
            tuple([a if isinstance(a, Const) else tree_map(own_copy, a) for a in args]),
        )
        self.around: ReadState = ReadState(call, f, None if before is None else before.around)
        self.recorded = r = record_linear(call, f, 0, (self.x, *self.args), lift, self.around.met)
        self.around.left()
        self.products = Products(r)
        outputs = [(k, y) for k, (y, _) in enumerate(r.low) if k >= first and is_differentiable(layout_of(y))]
        if not outputs:
            raise ArgumentError(
                f"{call}: {user_name(f)}{where_of(f)} returned {describe_tree(r.tree)}, no float array"
            )
        self.domain, self.codomain = TreeLayout(list(r.inputs.watched.items())), TreeLayout(outputs)
        self.plain = not OPEN.depth
        self.asked: AnyDict = {}  # name of a sweep -> how often it was asked for
        self.replays: AnyDict = {}  # name of a sweep -> its program

    def often(self, name: str, parts: AnyList) -> AnyDict:
        """One of the sweeps below.  Asked for again and again at this point, it is recorded as a program of
        its own and replayed: what that costs comes back where the arrays are small."""
        sweep: Callable[[AnyList], AnyDict] = getattr(self, name)
        program = self.replays.get(name)
        if OPEN.depth or OPEN.hiding or not PLAIN.issuperset(map(type, parts)):
            return sweep(parts)
        if program is None:
            self.asked[name] = asked = self.asked.get(name, 0) + 1
            if (
                asked <= FREQUENT_PRODUCTS
                or not self.plain
                or largest_kept(self.recorded) > SMALL_RECORD_BYTES
            ):
                return sweep(parts)
            of = weakref.ref(self)
            program = self.replays[name] = prepare(
                Const(lambda *parts: getattr(of(), name)(list(parts))), *parts
            )
        return program.value(*parts)  # type: ignore[no-any-return]

    def forward(self, parts: AnyList) -> AnyDict:
        """By leaf of the output, J of one part (or None) for each leaf of x."""
        return self.products.forward(dict(zip(self.recorded.inputs.watched, parts, strict=True)))

    def backward(self, parts: AnyList) -> AnyDict:
        """By leaf of x, J^H of one part (or None) for each leaf of the output."""
        seeds: AnyList = [None] * len(self.recorded.low)
        for (k, _), w in zip(self.codomain.members, parts, strict=True):
            seeds[k] = w
        return self.products.backward(seeds)

    def gauss_newton(self, parts: AnyList) -> AnyDict:
        found = self.forward(parts)
        return self.backward([found[k] for k, _ in self.codomain.members])

    def tangents(self, v: Any) -> AnyList:
        return self.parts("tangent", leaves_like(self.call, "tangent", v, self.x), self.domain)

    def cotangents(self, w: Any) -> AnyList:
        return self.parts(
            "cotangent", leaves_like(self.call, "cotangent", w, self.recorded.tree), self.codomain
        )

    def parts(self, what: str, flat: AnyList, layout: TreeLayout) -> AnyList:
        return [
            None if flat[k] is None else cast_to_primal(self.call, what, flat[k], v)
            for k, v in layout.members
        ]

    def like_value(self, found: AnyDict) -> Any:
        return leaves_by_number(found, self.recorded.tree)

    def like_x(self, found: AnyDict) -> Any:
        return self.recorded.inputs.results(found)


# --- the operators ---


class Derivative:
    """What the operators have in common: a point, which `update` moves."""

    name = ""
    sweep = ""  # that of a point which is the product
    followed = "tg.linearize"  # what takes and gives tracked values
    shape: Shape
    dtype: Any

    def __init__(self, f: AnyFunction, x: Any, *args: Any):
        self.f, self.call = f, f"operators.{self.name}({user_name(f)})"
        self.point: Any = None
        self.point = self.at(x, args)
        start, end = self.ends(self.point)
        super().__init__(np.result_type(start.dtype, end.dtype), (end.size, start.size))  # type: ignore[call-arg]

    def at(self, x: Any, args: AnyTuple) -> Point:
        p = Point(self.call, self.f, x, args, self.point)
        self.refuse(p)
        return p

    def refuse(self, p: Point) -> None:
        if p.domain.dtype.kind == "c":
            raise ArgumentError(
                f"{self.call}: x is complex, and this derivative is linear for real factors only: write "
                f"{user_name(self.f)} as a function of the real and the imaginary part"
            )

    def update(self, x: Any, *args: Any) -> Any:
        """Move to another x: f runs once.  Further arguments of f stay as they are where none are given.
        Returns the operator."""
        old = self.point
        new = self.at(x, args or old.args)
        for what, a, b in (
            ("x is", old.domain, new.domain),
            (f"{user_name(self.f)} gives", old.codomain, new.codomain),
        ):
            if a.places != b.places:
                raise ShapeError(
                    f"{self.call}.update: {what} {b} now, and the operator was made for {a}: make a new one"
                )
        self.point = new
        return self

    def now(self) -> Point:
        """The point, if f would read what it has read; where that is unknown f runs again."""
        if self.point.around.unknown():
            self.update(self.point.x)
        return self.point  # type: ignore[no-any-return]

    @property
    def value(self) -> Any:
        """f(x)."""
        return self.point.recorded.value()

    def ends(self, p: Point) -> AnyTuple:
        return p.domain, p.domain

    def product(self, v: Any) -> Any:
        """With a vector, or with each of the rows of v."""
        p = self.now()
        start, end = self.ends(p)
        if v.dtype.kind == "c" and start.dtype.kind != "c":
            return self.plain(
                apply_product(p, self.sweep, v.real, start, end)
                + 1j * apply_product(p, self.sweep, v.imag, start, end)
            )
        return self.plain(apply_product(p, self.sweep, v, start, end))

    def plain(self, v: Any) -> Any:
        if is_tracked(v):
            raise DroppedDerivativeError(
                f"{self.call} @ v: the vector, or the point of the operator, is tracked by an open "
                f"transform, and a LinearOperator takes "
                f"and gives plain arrays: use {self.followed}, which is followed"
            )
        return v

    def dot(self, x: Any) -> Any:
        return super().dot(self.plain(x))  # type: ignore[misc]

    def matvec(self, x: Any) -> Any:
        return super().matvec(self.plain(x))  # type: ignore[misc]

    def rmatvec(self, x: Any) -> Any:
        return super().rmatvec(self.plain(x))  # type: ignore[misc]

    def pulled(self, w: Any) -> Any:
        return self.product(w)

    def _matvec(self, v: Any) -> Any:
        return self.product(v.reshape(-1))

    def _rmatvec(self, w: Any) -> Any:
        return self.pulled(w.reshape(-1))

    def _matmat(self, V: Any) -> Any:
        return self.product(matrix_columns(V)).T

    def _rmatmat(self, W: Any) -> Any:
        return self.pulled(matrix_columns(W)).T

    def __repr__(self) -> str:
        return f"<{self.call}, shape {self.shape}, {self.dtype}>"

    def __reduce__(self) -> Any:
        return make_operator, (self.name, self.f, self.point.x, self.point.args)


def apply_product(p: Point, sweep: str, v: Any, start: TreeLayout, end: TreeLayout) -> Any:
    if OPEN.depth:
        with changed(depth=0):
            return apply_product(p, sweep, v, start, end)
    if v.ndim == 1:
        return end.joined(p.often(sweep, start.cut(v)))
    if not len(v):
        return xp_of(v).zeros((0, end.size), end.dtype)
    lead, at_once = v.shape[:1], vectors_at_once(p.recorded)
    if (
        p.plain
        and at_once == 1
        and (sweep in p.replays or largest_cotangent(p.recorded) > SINGLE_VECTOR_BYTES)
    ):
        out = xp_of(v).empty((len(v), end.size), end.dtype)
        for k in range(len(v)):
            out[k] = end.joined(p.often(sweep, start.cut(v[k])))
        return out
    p.asked[sweep] = p.asked.get(sweep, 0) + len(v)
    rows, each = start.cut(v, lead), getattr(p, sweep)
    found = swept_at_once(p.call, each, rows, len(v), at_once) if at_once > 1 and len(v) > 1 else None
    return end.joined(for_each(p.call, p.recorded, each, rows) if found is None else found, lead)


def matrix_columns(V: Any) -> Any:
    """The columns of a matrix, each in one piece."""
    return xp_of(V).ascontiguousarray(V.T)


CARRIED_BYTES = 1 << 26  # bytes of an array for many vectors at once
# bytes of an array with which vectors are taken one after another, so that memory is used again
SINGLE_VECTOR_BYTES = 1 << 20


def vectors_at_once(r: RecordedCall) -> int:
    """How many sweeps to do at once, where the matrices that they read are larger than what they carry: to
    read a matrix once for many vectors is what is gained.  1: nothing is known to be."""
    carried, fixed = largest_cotangent(r), 0
    for record in r.tape.records:
        _, i, _, j, _, x, y = record
        fixed = max(fixed, *[v.nbytes for v, slot in ((x, i), (y, j)) if slot is None and is_array(v)], 0)
    return CARRIED_BYTES // carried if fixed > 8 * carried else 1


class Jacobian(Derivative):
    name = "jacobian"
    sweep = "forward"
    followed = ".jvp(v) or .vjp(w)"

    def __init__(self, f: AnyFunction, x: Any, *args: Any, holomorphic: bool = False):
        self.holomorphic = holomorphic
        super().__init__(f, x, *args)

    def refuse(self, p: Point) -> None:
        kinds = {d.kind for layout in (p.domain, p.codomain) for *_, d in layout.places}
        if p.domain.dtype.kind == "c" and not (self.holomorphic and kinds == {"c"}):
            raise ArgumentError(
                f"{self.call}: x is complex: the derivative is a matrix where f is holomorphic and all that "
                f"it takes and gives is complex; then say holomorphic=True, else write {user_name(self.f)} "
                "as a function of the real and the imaginary part"
            )

    def ends(self, p: Point) -> AnyTuple:
        return p.domain, p.codomain

    def pulled(self, w: Any) -> Any:
        """For real x a sweep gives the real part of J^H w; that of -i w is the imaginary part."""
        p = self.now()
        if p.domain.dtype.kind != "c" and (w.dtype.kind == "c" or p.codomain.dtype.kind == "c"):
            return self.plain(
                apply_product(p, "backward", w, p.codomain, p.domain)
                + 1j * apply_product(p, "backward", -1j * w, p.codomain, p.domain)
            )
        return self.plain(apply_product(p, "backward", w, p.codomain, p.domain))

    def jvp(self, v: Any, out: Any = None) -> Any:
        """J v, v like x and the result like f(x); or in the arrays of `out`, which may be those of v."""
        p = self.now()
        return fill_out(self.call, out, p.like_value(p.often("forward", p.tangents(v))))

    def vjp(self, w: Any, out: Any = None) -> Any:
        """J^H w, w like f(x) and the result like x; or in the arrays of `out`, which may be those of w."""
        p = self.now()
        return fill_out(self.call, out, p.like_x(p.often("backward", p.cotangents(w))))

    def __reduce__(self) -> Any:
        return make_operator, (
            self.name,
            self.f,
            self.point.x,
            self.point.args,
            {"holomorphic": self.holomorphic},
        )


class SymmetricOperator(Derivative):
    def _adjoint(self) -> Any:
        return self

    def _transpose(self) -> Any:
        return self


class Hessian(SymmetricOperator):
    name = "hessian"
    sweep = "backward"  # the Jacobian of the gradient is symmetric
    followed = ".hvp(v)"

    def at(self, x: Any, args: AnyTuple) -> Point:
        f = self.f
        lift = lift_of(self.call, value_and_gradient_body, f, (x, *args))
        p = Point(self.call, f, x, args, self.point, lift, first=1)
        self.refuse(p)
        return p

    @property
    def value(self) -> Any:
        """f(x)."""
        return self.point.recorded.value()[0]

    @property
    def gradient(self) -> Any:
        """The gradient of f at x."""
        return self.point.recorded.value()[1]

    def hvp(self, v: Any, out: Any = None) -> Any:
        """H v, v and the result like x; or in the arrays of `out`, which may be those of v."""
        p = self.now()
        return fill_out(self.call, out, p.like_x(p.often("backward", p.tangents(v))))


class GaussNewton(SymmetricOperator):
    name = "gauss_newton"
    sweep = "gauss_newton"

    @property
    def gradient(self) -> Any:
        """J^H r, the gradient of half the sum of squares of the residuals."""
        p = self.point
        return p.like_x(p.backward(p.cotangents(self.value)))


class Fisher(SymmetricOperator):
    name = "fisher"
    sweep = "gauss_newton"

    def at(self, x: Any, args: AnyTuple) -> Point:
        p = super().at(x, args)
        y = p.recorded.tree
        if is_node(y) or len(shape(y)) != 1:
            what = describe_tree(y) if is_node(y) else f"shape {shape(y)}"
            raise ShapeError(
                f"{self.call}: {user_name(self.f)}{where_of(self.f)} returned {what}; it must give one "
                "log-density for each observation, shape (n,): do not sum them"
            )
        return p


KINDS = {c.name: c for c in (Jacobian, Hessian, GaussNewton, Fisher)}


@functools.cache
def operator_class(kind: type, base: type) -> type:
    return type(kind.__name__, (kind, base), {"__module__": __name__})


def make_operator(name: str, f: AnyFunction, x: Any, args: AnyTuple, settings: AnyDict | None = None) -> Any:
    if OPEN.inside is not None:
        raise ArgumentError(
            f"operators.{name}({user_name(f)}): a kernel has no linear operators; write tg.hvp or tg.jvp "
            f"there"
        )
    of_cupy = any([is_array(v) and xp_of(v) is not np for v in map(layout_of, leaves(x))])
    base = load("cupyx.scipy.sparse.linalg").LinearOperator if of_cupy else scipy.sparse.linalg.LinearOperator
    return operator_class(KINDS[name], base)(f, x, *args, **(settings or {}))


def jacobian(f: AnyFunction, x: Any, *args: Any, holomorphic: bool = False) -> Any:
    """Make the Jacobian of f at x a LinearOperator, for SciPy's iterative solvers.

    f runs once at each point. Vectors hold the arrays of a tree one after the other. ``.jvp(v, out=)`` and
    ``.vjp(w, out=)`` take trees. ``.update(x)`` moves the operator to another point, and ``.value`` is f(x).

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns an array or a tree of arrays, m numbers in all.
    x : array, number or tree
        The point, n numbers of float or complex dtype.
    *args : object
        Further arguments of f.
    holomorphic : bool, default False
        Whether f is a complex differentiable function of complex x, which complex x requires.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator
        The operator, of shape (m, n). For CuPy arrays it is that of cupyx.

    Raises
    ------
    GuardError
        In a product, if a captured array or another dependency of f has changed since the last update.
    ArgumentError
        If f returns no float array, or x is complex and `holomorphic` is False.

    See Also
    --------
    tapegrad.linearize : The same map on trees, without SciPy.
    tapegrad.sparse.jacobian : The matrix, if it is sparse.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> J = tg.operators.jacobian(lambda x: x * x, np.array([1.0, 2.0]))
    >>> J @ np.array([1.0, 1.0]), J.update(np.array([3.0, 4.0])) @ np.array([1.0, 1.0])
    (array([2., 4.]), array([6., 8.]))
    """
    return make_operator("jacobian", f, x, args, {"holomorphic": holomorphic})


def hessian(f: AnyFunction, x: Any, *args: Any) -> Any:
    """Make the Hessian of a real scalar function at x a LinearOperator.

    f runs once at each point. ``.hvp(v, out=)`` takes a tree. ``.value`` and ``.gradient`` need no further
    run of f. Other methods are those of `jacobian`.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns a real scalar.
    x : array, number or tree
        The point, n numbers of a real float dtype.
    *args : object
        Further arguments of f.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator
        The symmetric operator, of shape (n, n).

    Raises
    ------
    GuardError
        In a product, if a captured array or another dependency of f has changed since the last update.
    ArgumentError
        If x is complex.
    NotScalarError
        If f does not return a real scalar.

    See Also
    --------
    tapegrad.hvp : One product.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> from scipy.sparse.linalg import cg
    >>> H = tg.operators.hessian(lambda x: (x ** 4).sum(), np.array([1.0, 2.0]))
    >>> cg(H, H.gradient)[0]
    array([0.33333333, 0.66666667])
    """
    return make_operator("hessian", f, x, args)


def gauss_newton(r: AnyFunction, x: Any, *args: Any) -> Any:
    """Make the Gauss-Newton matrix J^T J of residuals at x a LinearOperator.

    Parameters
    ----------
    r : callable
        ``r(x, *args)`` returns the residuals, an array or a tree of arrays.
    x : array, number or tree
        The point, n numbers of a real float dtype.
    *args : object
        Further arguments of r.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator
        The symmetric operator, of shape (n, n). ``.gradient`` is J^T r. Other methods: see `jacobian`.

    Raises
    ------
    GuardError
        In a product, if a captured array or another dependency of r has changed since the last update.

    See Also
    --------
    tapegrad.optimize.least_squares : Minimises the sum of squares.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.operators.gauss_newton(lambda x: x * x, np.array([1.0, 2.0])) @ np.ones(2)
    array([ 4., 16.])
    """
    return make_operator("gauss_newton", r, x, args)


def fisher(logp: AnyFunction, x: Any, *args: Any) -> Any:
    """Make the empirical Fisher information at x a LinearOperator.

    It is the sum over observations of the outer products of their scores.

    Parameters
    ----------
    logp : callable
        ``logp(x, *args)`` returns one log density for each observation, of shape (n,).
    x : array, number or tree
        The point, p numbers of a real float dtype.
    *args : object
        Further arguments of logp.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator
        The symmetric operator, of shape (p, p). Its methods are those of `jacobian`.

    Raises
    ------
    GuardError
        In a product, if a captured array or another dependency of logp has changed since the last update.

    See Also
    --------
    tapegrad.kernels.likelihood : Kernels with a method `fisher`.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> y = np.array([1.0, 2.0, 4.0])
    >>> tg.operators.fisher(lambda m: -0.5 * (y - m[0]) ** 2, np.array([2.0])) @ np.ones(1)
    array([5.])
    """
    return make_operator("fisher", logp, x, args)
