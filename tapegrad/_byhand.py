"""What a user does by hand: the tape, rules of his own, cutting a derivative, a tree as one vector."""

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

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
    name_of,
)
from ._pickling import Remade
from ._primitive import OPEN, Primitive, Trace, bind, is_tracked, layout_of, primal_of
from ._shadow import Globals, names_in
from ._shadow.routes import of_function
from ._transposed import checked_terms, transposed_jvp, transposed_vjp
from ._tree import leaves, tree_map
from ._variable import Variable, frozen
from .errors import ArgumentError, ShapeError
from .ops import shaping
from .ops._define import dtype, shape

P = ParamSpec("P")
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
        self._trace = reverse.Tape()
        self._leaves: dict = {}

    def __enter__(self) -> "Tape":
        OPEN.depth = getattr(OPEN, "depth", 0) + 1
        return self

    def __exit__(self, *error: Any) -> None:
        OPEN.depth -= 1
        self._trace.close()

    @property
    def saved_bytes(self) -> int:
        """Bytes of arrays that the records keep."""
        return reverse.saved_bytes(self._trace)

    def watch(self, array: Any) -> Variable:
        """A Variable over a copy of the array."""
        inputs = Inputs("tape.watch", 0, (array,))
        if type(self._trace) is not reverse.Tape:
            raise ArgumentError("tape.watch: the tape is closed; watch arrays inside its with block")
        value = entered(inputs.args[0])
        x = self._trace.watch(value)
        self._leaves[x._slot] = value
        return x

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


# --- rules of the user's own ---


def rule(f: Callable[P, Y], vjp: Callable | None = None, jvp: Callable | None = None) -> Callable[P, Y]:
    """f with the user's own derivative.  f gets plain arrays.

    `vjp(g, out, *args)` gives one cotangent, or a tuple of one for each argument (None: zero); `jvp(t, out, *args)`, with t a
    tuple of tangents (None: zero), gives the tangent of the output.  args are as they were at the call, whatever was written
    since.  With only one of the two, the other mode is its transpose.

    >>> import numpy as np, tapegrad as tg
    >>> sumsq = tg.rule(lambda x: (x * x).sum(), vjp=lambda g, out, x: 2 * g * x)
    >>> tg.grad(sumsq)(np.array([2.0, 3.0]))
    array([4., 6.])
    """
    if vjp is None and jvp is None:
        raise ArgumentError(f"rule({name_of(f)}): give vjp=, jvp=, or both")
    return Rule(f, vjp, jvp)


def derivatives(name: str, vjp: Callable | None, jvp: Callable | None) -> tuple:
    """The rules of an operation, where the user gave one of them or both.  They know nothing of the `Rule`: no cycle."""

    def pull(g, out, need, *args, **params):
        if isinstance(g, list):
            g = tuple([full_like(o, 0) if c is None else c for c, o in zip(g, out, strict=True)])
        if vjp is None:
            return transposed_jvp(jvp, g, out, need, args, params)
        return checked_terms(name, vjp(g, out, *args, **params), args)

    def push(t, out, *args, **params):
        if jvp is not None:
            return jvp(tuple(t), out, *args, **params)
        return transposed_vjp(vjp, name, t, out, args, params)

    return (pull,), push


class Rule(Remade):
    """A function with a derivative of the user's own."""

    def __init__(self, f: Callable, vjp: Callable | None, jvp: Callable | None):
        self.f, self.vjp, self.jvp = f, vjp, jvp
        functools.update_wrapper(self, f)
        self.__name__ = name_of(f)
        self.prim = prim = Primitive(self.__name__, f)
        prim.holomorphic, prim.joint = False, True
        prim.keep_spec = lambda active: (tuple(range(len(active))), True)
        prim.vjp, prim.jvp = derivatives(self.__name__, vjp, jvp)

    def __call__(self, *args: Any, **params: Any) -> Any:
        for how, v in captured_by(self.f):
            if is_tracked(v):
                raise ArgumentError(
                    f"rule({self.__name__}): the function captured {how}, which an open transform watches; its derivative would be "
                    "lost: pass it as an argument, or take tg.value of it"
                )
        for n, a in enumerate(args):
            if not (is_array(layout_of(a)) or isinstance(layout_of(a), (int, float, complex, np.generic))):
                raise ArgumentError(
                    f"{self.__name__}: argument {n} of a function with a rule must be an array or a number; pass settings by keyword"
                )
        return bind(self.prim, args, params)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def _made(self) -> tuple:
        return Rule, (self.f, self.vjp, self.jvp)


def captured_by(f: Any) -> Iterator:
    """(name, value) of what f captured by itself: in cells, globals named in its code, defaults, and attributes of what it is
    bound to; members of lists, tuples and dicts included."""
    if isinstance(f, functools.partial):
        yield from captured_by(f.func)
        found = [(f"argument {n} of a partial", v) for n, v in enumerate(f.args)] + [(f"`{k}`", v) for k, v in f.keywords.items()]
    elif isinstance(f, types.MethodType):
        yield from captured_by(f.__func__)
        found = [(f"`{k}` of its object", v) for k, v in getattr(f.__self__, "__dict__", {}).items()]
    elif isinstance(f, types.FunctionType):
        found = of_function(f)
        if type(f.__globals__) is Globals:
            found += [(f"`{n}`", dict.get(f.__globals__, n)) for n in names_in(f.__code__)]
    else:
        found = [(f"`{k}`", v) for k, v in getattr(f, "__dict__", {}).items()]
    for how, v in found:
        if isinstance(v, types.FunctionType) and v.__closure__ and v is not f:
            yield from [(h, w) for h, w in of_function(v) if isinstance(w, Variable)]
        if not (isinstance(v, (list, dict, tuple)) and len(v) > 100):  # (a long list of numbers is not searched at each call)
            yield from [(how, w) for w in leaves(v)]


# --- small things ---


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


def ravel(tree: Y) -> tuple[Any, Callable[[Any], Y]]:
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
