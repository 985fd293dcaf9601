"""What a user calls: grad, value_and_grad, jvp, vjp, jacobian, hessian, hvp, hmp; each a few lines on top of
_transforms/call.py.

`OPEN.inside`: while a kernel function is traced, those that stand for them there
(kernels/trace/derivatives.py)."""

import types
from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, overload

import numpy as np

from .._capture import MAKERS
from .._core import reverse as reverse
from .._core.arrays import is_array, xp_of
from .._core.errors import ArgumentError, NotScalarError, ShapeError
from .._core.pickling import PickledByCall, named_like
from .._core.primitive import layout_of, watched
from .._core.scope import OPEN, scope_block
from .._core.trees import Const, describe_tree, tree_map
from .._core.typing import AnyDict, AnyFunction, AnyTuple, Array, Node, Number
from .._core.variable import Variable
from ..ops import shaping
from ..ops.declare import dtype, shape, xp
from .call import (
    RecordedCall,
    all_positions,
    cast_to_primal,
    check_argnums,
    check_function,
    check_scalar,
    constant_like,
    derivative_out,
    leaves_like,
    lowered_leaf,
    numpy_number,
    plain_tree,
    positions,
    run_forward,
    user_name,
    value_and_tangent,
    where_of,
)
from .many_directions import IN_TURN, basis, empty_rows, few_or_many, for_each, swept_at_once

# For type checkers: X is the type of the first argument and so of its gradient, Y of the value, A of aux, P
# of what else f takes.
X = TypeVar("X")
Y = TypeVar("Y")
Z = TypeVar("Z")
A = TypeVar("A")
Both: TypeAlias = tuple[Literal[0], Literal[1]]
V = TypeVar("V", bound=Array | Number)
N = TypeVar("N", bound=Node)
P = ParamSpec("P")


class Transform(PickledByCall):
    """What grad and its like return: `body(call, f, settings, args, kwargs)` with f and the settings that
    they were given, and the name of the call for messages."""

    def __init__(self, prefix: str, body: AnyFunction, f: AnyFunction, *settings: Any):
        check_function(prefix, f)
        named_like(self, f)
        self.prefix, self.body, self.of, self.settings = prefix, body, f, settings
        name = user_name(f)
        self.__name__ = self.call = f"{prefix}({name})"
        self.__doc__ = f"{prefix} of {name}, by tapegrad."

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inside = OPEN.inside
        if inside is not None:
            return inside.transformed(self)(*args, **kwargs)
        return self.body(self.call, self.of, self.settings, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """In a class it is a method, as a function is."""
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def _made(self) -> AnyTuple:
        return Transform, (self.prefix, self.body, self.of, *self.settings)


def transform_of_shadow(shadow: Any, x: Transform) -> Transform:
    """The same transform of the function whose captured arrays an outer transform follows."""
    f = shadow(x.of)
    return x if f is x.of else Transform(x.prefix, x.body, f, *x.settings)


MAKERS[Transform] = transform_of_shadow


# --- reverse and forward mode ---


def _wrapping(f: AnyFunction) -> AnyFunction:
    """What an inner transform makes of the shadowed f: a Const stays one."""
    return Const if isinstance(f, Const) else lambda g: g


def _inner(
    transform: AnyFunction, f: AnyFunction, args: AnyTuple, argnums: Any, has_aux: bool = False
) -> AnyFunction:
    """What an outer transform makes of the shadowed f: a transform of it, of the arguments as the outer one
    shadows them."""
    wrap = _wrapping(f)
    marked = [type(a) is Const for a in args]
    return lambda g: (
        lambda *given: transform(wrap(g), argnums, has_aux)(
            *[Const(a) if m else a for a, m in zip(given, marked, strict=True)]
        )
    )


def placed_arguments(call: str, argnums: Any, x: Any, args: AnyTuple) -> AnyTuple:
    """(all arguments of f, the positions of those in x): x is the argument `argnums`, or a tuple of them."""
    if type(argnums) is int and argnums == 0:
        return (x, *args), (0,)
    name = call.partition("(")[0]
    check_argnums(name, argnums)
    xs = x if isinstance(argnums, tuple) else (x,)
    if not isinstance(xs, tuple) or isinstance(argnums, tuple) and len(xs) != len(argnums):
        raise ArgumentError(
            f"{call}: argnums={argnums!r} asks for a tuple of {len(argnums)} arguments, got "
            f"{describe_tree(x)}"
        )
    nums = positions(call, argnums, len(xs) + len(args))
    if len(set(nums)) != len(nums):
        raise ArgumentError(f"{call}: argnums={argnums!r} names an argument twice")
    chosen, rest = dict(zip(nums, xs, strict=True)), iter(args)
    return tuple([chosen[n] if n in chosen else next(rest) for n in range(len(xs) + len(args))]), nums


@overload
def value_and_grad(
    f: Callable[Concatenate[X, P], Y],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, P], tuple[Y, X]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[X, P], tuple[Y, A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    shadow: bool = True,
) -> Callable[Concatenate[X, P], tuple[tuple[Y, A], X]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[X, Z, P], Y],
    argnums: Literal[1],
    has_aux: Literal[False] = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, Z, P], tuple[Y, Z]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[X, Z, P], Y],
    argnums: Both,
    has_aux: Literal[False] = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, Z, P], tuple[Y, tuple[X, Z]]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[X, Z, P], Y],
    argnums: int | tuple[int, ...],
    has_aux: bool = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, Z, P], tuple[Any, Any]]: ...
@overload
def value_and_grad(
    f: Callable[[X], Y], argnums: int | tuple[int, ...], has_aux: bool = False, *, shadow: bool = True
) -> Callable[[X], tuple[Any, Any]]: ...
def value_and_grad(
    f: AnyFunction, argnums: int | AnyTuple = 0, has_aux: bool = False, *, shadow: bool = True
) -> AnyFunction:
    """Make a function that returns the value and the gradient of a real scalar function.

    Parameters
    ----------
    f : callable
        ``f(*args, **kwargs)`` returns a real scalar, or with `has_aux` a pair (scalar, aux).
    argnums : int or tuple of int, default 0
        Positions of the arguments to differentiate. Each is an array, a number or a tree of these, with a
        float or complex dtype. All other arguments are constants.
    has_aux : bool, default False
        Whether f returns a second object, which is returned as plain data.
    shadow : bool, default True
        Whether derivatives follow what f captured. False treats it as constant, as ``tg.Const(f)`` does.

    Returns
    -------
    callable
        A function of the arguments of f. It returns (value, gradient), or ((value, aux), gradient). The
        gradient has the tree, array library, shapes and dtypes of its argument; for a tuple `argnums` there
        is a tuple of gradients. For a complex argument z = x + iy it is df/dx + i df/dy, the direction of
        steepest ascent.

    Raises
    ------
    ArgumentError
        If f is not a function, or a differentiated argument has an integer or boolean dtype.
    NotScalarError
        If f does not return a real scalar.

    See Also
    --------
    grad : The gradient alone.
    jacobian : For functions that return arrays.
    value_grad_hvp : Also a Hessian-vector product.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    check_argnums("value_and_grad", argnums)
    return Transform("value_and_grad", _value_and_grad, f if shadow else Const(f), argnums, has_aux)


def _value_and_grad(
    call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict
) -> AnyTuple:
    value, aux, gradient = _pulled(call, f, settings, args, kwargs, True)
    return ((value, aux) if settings[1] else value), gradient


def _pulled(
    call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict, valued: bool
) -> AnyTuple:
    argnums, has_aux = settings
    with scope_block():
        r = RecordedCall(call, f, argnums, args, kwargs, has_aux)
        check_scalar(call, f, r.tree)
        value = r.value() if valued else None
        gradient = r.inputs.results(r.gradient([constant_like(r.low[0][0], 1)]))
        r.finish()
        return value, plain_tree(r.aux) if has_aux else None, gradient


@overload
def grad(
    f: Callable[Concatenate[X, P], object],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, P], X]: ...
@overload
def grad(
    f: Callable[Concatenate[X, P], tuple[object, A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    shadow: bool = True,
) -> Callable[Concatenate[X, P], tuple[X, A]]: ...
@overload
def grad(
    f: Callable[Concatenate[X, Z, P], object],
    argnums: Literal[1],
    has_aux: Literal[False] = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, Z, P], Z]: ...
@overload
def grad(
    f: Callable[Concatenate[X, Z, P], object],
    argnums: Both,
    has_aux: Literal[False] = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, Z, P], tuple[X, Z]]: ...
@overload
def grad(
    f: Callable[Concatenate[X, Z, P], object],
    argnums: int | tuple[int, ...],
    has_aux: bool = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, Z, P], Any]: ...
@overload
def grad(
    f: Callable[[X], object], argnums: int | tuple[int, ...], has_aux: bool = False, *, shadow: bool = True
) -> Callable[[X], Any]: ...
def grad(
    f: AnyFunction, argnums: int | AnyTuple = 0, has_aux: bool = False, *, shadow: bool = True
) -> AnyFunction:
    """Make a function that returns the gradient of a real scalar function.

    Parameters
    ----------
    f : callable
        ``f(*args, **kwargs)`` returns a real scalar, or with `has_aux` a pair (scalar, aux).
    argnums : int or tuple of int, default 0
        Positions of the arguments to differentiate: arrays, numbers or trees of float or complex dtype.
    has_aux : bool, default False
        Whether f returns a second object, which is returned as plain data.
    shadow : bool, default True
        Whether derivatives follow what f captured.

    Returns
    -------
    callable
        A function of the arguments of f. It returns the gradient, with the tree, shapes and dtypes of the
        argument, or with `has_aux` the pair (gradient, aux).

    Raises
    ------
    ArgumentError
        If f is not a function, or a differentiated argument has an integer or boolean dtype.
    NotScalarError
        If f does not return a real scalar.

    See Also
    --------
    value_and_grad : The value too, at the same cost.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.sin(x).sum())(np.zeros(2))
    array([1., 1.])
    """
    check_argnums("grad", argnums)
    return Transform("grad", _grad, f if shadow else Const(f), argnums, has_aux)


def _grad(call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict) -> Any:
    _, aux, gradient = _pulled(call, f, settings, args, kwargs, False)
    return (gradient, aux) if settings[1] else gradient


class NamedCall:
    """A context: what is wrong with the value is told of the transform that was called, not of the gradient
    that it takes."""

    __slots__ = ("call", "f")

    def __init__(self, call: str, f: AnyFunction):
        self.call, self.f = call, f

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is NotScalarError:
            inner, paren, rest = str(error).partition(f"({user_name(self.f)})")
            if inner in ("grad", "value_and_grad"):
                rest = rest.replace(f"; {inner} needs", f"; {self.call.partition('(')[0]} needs")
                raise NotScalarError(self.call + rest) from None


@overload
def vjp(f: Callable[Concatenate[X, ...], Y], x: X, /) -> tuple[Y, Callable[[Y], X]]: ...
@overload
def vjp(f: Callable[Concatenate[X, ...], Y], x: X, z: Z, /) -> tuple[Y, Callable[[Y], tuple[X, Z]]]: ...
@overload
def vjp(
    f: Callable[Concatenate[X, ...], Y], x: X, z: Z, a: A, /, *more: object
) -> tuple[Y, Callable[[Y], tuple[Any, ...]]]: ...
@overload
def vjp(
    f: Callable[..., Y], *primals: object, argnums: int | AnyTuple, has_aux: Literal[False] = False
) -> tuple[Y, Callable[[Y], Any]]: ...
@overload
def vjp(
    f: Callable[..., tuple[Y, A]],
    *primals: object,
    argnums: int | AnyTuple | None = None,
    has_aux: Literal[True],
) -> tuple[Y, Callable[[Y], Any], A]: ...
def vjp(
    f: AnyFunction, *primals: Any, argnums: int | AnyTuple | None = None, has_aux: bool = False
) -> AnyTuple:
    """Compute the value of f and its pullback, the product with the conjugate transpose of the Jacobian.

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
        ``f(*primals)``, without aux.
    pullback : callable
        ``pullback(w)`` returns J^H w: one tree like the primal, or a tuple for several primals. The cotangent
        w has the tree and shapes of the value. The pullback may be called any number of times, also after
        later calls of f.
    aux : object, with `has_aux`
        The auxiliary output, plain.

    Raises
    ------
    ShapeError
        If w has other shapes than the value.
    ArgumentError
        If a primal has no derivative.

    See Also
    --------
    jvp : The product with the Jacobian.
    linearize : Many products at one point, in both modes.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> y, pullback = tg.vjp(lambda x: x * x, np.array([1.0, 3.0]))
    >>> pullback(np.array([1.0, 10.0]))
    array([ 2., 60.])
    """
    inside = OPEN.inside
    if inside is not None:
        return inside.vjp(f, *primals, argnums=argnums, has_aux=has_aux)  # type: ignore[no-any-return]
    call = f"vjp({user_name(f)})"
    if not primals:
        raise ArgumentError(f"{call}: give the primals, vjp(f, x)")
    with scope_block():
        nums = all_positions("vjp", argnums, primals)
        r = RecordedCall(call, f, nums, primals, {}, has_aux, swept=False)
        value = r.value()
        r.shadow.release(r.tape.records)
        r.shadow.finish()

    def pullback(w: Any) -> Any:
        ws = leaves_like("pullback", "cotangent", w, r.tree)
        gs = [
            None if s is None or c is None else cast_to_primal("pullback", "cotangent", c, y)
            for c, (y, s) in zip(ws, r.low, strict=True)
        ]
        return r.inputs.results(r.gradient(gs))

    return (value, pullback, plain_tree(r.aux)) if has_aux else (value, pullback)


@overload
def jvp(
    f: Callable[..., Y],
    primals: tuple[object, ...],
    tangents: tuple[object, ...],
    argnums: int | AnyTuple | None = None,
    has_aux: Literal[False] = False,
) -> tuple[Y, Y]: ...
@overload
def jvp(
    f: Callable[..., tuple[Y, A]],
    primals: tuple[object, ...],
    tangents: tuple[object, ...],
    argnums: int | AnyTuple | None = None,
    *,
    has_aux: Literal[True],
) -> tuple[Y, Y, A]: ...
def jvp(
    f: AnyFunction,
    primals: AnyTuple,
    tangents: AnyTuple,
    argnums: int | AnyTuple | None = None,
    has_aux: bool = False,
) -> AnyTuple:
    """Compute the value of f and its derivative along a direction, J v.

    Parameters
    ----------
    f : callable
        A function of `primals` that returns an array, a number or a tree of these.
    primals : tuple
        The point: arrays, numbers or trees of float or complex dtype.
    tangents : tuple
        The direction, one for each differentiated primal. Each tangent has exactly the shapes of its primal;
        None stands for zero.
    argnums : int or tuple of int, optional
        Positions of the primals that have a tangent; by default all. The others are constants.
    has_aux : bool, default False
        Whether f returns a pair (value, aux). aux is not differentiated.

    Returns
    -------
    value : tree
        ``f(*primals)``, without aux.
    tangent : tree
        J v, with the tree and shapes of the value.
    aux : object, with `has_aux`
        The auxiliary output, plain.

    Raises
    ------
    ArgumentError
        If `primals` or `tangents` is not a tuple, or a primal has no derivative.
    ShapeError
        If a tangent has another shape than its primal.

    See Also
    --------
    vjp : The product with the transpose.
    linearize : Many products at one point.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.jvp(np.sin, (np.float64(0.0),), (2.0,))
    (np.float64(0.0), np.float64(2.0))
    """
    inside = OPEN.inside
    if inside is not None:
        return inside.jvp(f, primals, tangents, argnums, has_aux)  # type: ignore[no-any-return]
    call = f"jvp({user_name(f)})"
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(f"{call}: primals and tangents must be tuples: jvp(f, (x,), (v,))")
    nums = tuple(range(len(primals))) if argnums is None else positions(call, argnums, len(primals))
    y, pairs, aux = run_forward(call, f, tuple(primals), nums, tangents, has_aux=has_aux)
    both = value_and_tangent(y, pairs)
    return (*both, plain_tree(aux)) if has_aux else both


# --- second order ---


@overload
def value_grad_hvp(
    f: Callable[..., Y],
    x: X,
    v: X,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    has_aux: Literal[False] = False,
) -> tuple[Y, X, X]: ...
@overload
def value_grad_hvp(
    f: Callable[..., tuple[Y, A]],
    x: X,
    v: X,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: Literal[True],
) -> tuple[Y, X, X, A]: ...
def value_grad_hvp(
    f: AnyFunction,
    x: Any,
    v: Any,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
) -> AnyTuple:
    """Compute the value, the gradient and a Hessian-vector product of a real scalar function in one pass.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns a real scalar.
    x : array, number or tree
        The point, of a real float dtype.
    v : tree
        The direction, with the tree and shapes of x.
    args : tuple, default ()
        Further arguments of f, which are constants.
    argnums : int or tuple of int, default 0
        Position of x among the arguments of f. With a tuple, x and the direction are tuples of arguments.
    has_aux : bool, default False
        Whether f returns a pair (scalar, aux). aux is not differentiated.

    Returns
    -------
    value : scalar
        ``f(x, *args)``.
    gradient : tree
        The gradient, like x.
    product : tree
        H v, like x.
    aux : object, with `has_aux`
        The auxiliary output, plain.

    Raises
    ------
    NotScalarError
        If f does not return a real scalar.
    ShapeError
        If v has other shapes than x.

    See Also
    --------
    hvp : The product alone.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.value_grad_hvp(lambda x: (x ** 3).sum(), np.array([1.0]), np.array([2.0]))
    (np.float64(1.0), array([3.]), array([12.]))
    """
    inside = OPEN.inside
    if inside is not None:
        return inside.value_grad_hvp(f, x, v, args, argnums, has_aux)  # type: ignore[no-any-return]
    call = f"hvp({user_name(f)})"
    given, nums = placed_arguments(call, argnums, x, args)
    ways = v if isinstance(argnums, tuple) else (v,)
    lift = _inner(_value_grad_aux if has_aux else value_and_grad, f, given, argnums, has_aux)
    with NamedCall(call, f):
        y, pairs, aux = run_forward(call, f, given, nums, ways, lift, has_aux)
    (value, gradient), (_, hv) = value_and_tangent(y, pairs)
    return (value, gradient, hv, plain_tree(aux)) if has_aux else (value, gradient, hv)


def _value_grad_aux(f: AnyFunction, argnums: Any, has_aux: bool) -> AnyFunction:
    """((value, gradient), aux), which an outer transform takes as a pair with its own aux."""
    both = value_and_grad(f, argnums, has_aux)

    def call(*args: Any) -> AnyTuple:
        (value, aux), gradient = both(*args)
        return (value, gradient), aux

    return call


@overload
def hvp(
    f: Callable[..., object],
    x: X,
    v: X,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    has_aux: Literal[False] = False,
) -> X: ...
@overload
def hvp(
    f: Callable[..., object],
    x: X,
    v: X,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: Literal[True],
) -> tuple[X, Any]: ...
def hvp(
    f: AnyFunction,
    x: Any,
    v: Any,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
) -> Any:
    """Compute a Hessian-vector product without forming the Hessian.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns a real scalar.
    x : array, number or tree
        The point, of a real float dtype.
    v : tree
        The direction, with the tree and shapes of x.
    args : tuple, default ()
        Further arguments of f, which are constants.
    argnums : int or tuple of int, default 0
        Position of x among the arguments of f. With a tuple, x and the direction are tuples of arguments.
    has_aux : bool, default False
        Whether f returns a pair (scalar, aux). aux is not differentiated.

    Returns
    -------
    tree
        H v, with the tree and shapes of x. With `has_aux` a pair (H v, aux).

    Raises
    ------
    NotScalarError
        If f does not return a real scalar.
    ShapeError
        If v has other shapes than x.

    See Also
    --------
    hmp : Products with several directions.
    tapegrad.operators.hessian : Many products at one point, for SciPy's solvers.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.hvp(lambda x: (x ** 3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 6., 12.])
    """
    if has_aux:
        return value_grad_hvp(f, x, v, args, argnums, has_aux=True)[2:]
    return value_grad_hvp(f, x, v, args, argnums)[2]


@overload
def hmp(
    f: Callable[..., object],
    x: X,
    V: X,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    has_aux: Literal[False] = False,
) -> X: ...
@overload
def hmp(
    f: Callable[..., object],
    x: X,
    V: X,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: Literal[True],
) -> tuple[X, Any]: ...
def hmp(
    f: AnyFunction,
    x: Any,
    V: Any,
    args: tuple[object, ...] = (),
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
) -> Any:
    """Multiply the Hessian by several directions; f is recorded once.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns a real scalar.
    x : array, number or tree
        The point, of a real float dtype.
    V : tree
        k directions. Every leaf has the shape (k, *leaf.shape) for the leaf of x.
    args : tuple, default ()
        Further arguments of f, which are constants.
    argnums : int or tuple of int, default 0
        Position of x among the arguments of f. With a tuple, x and the direction are tuples of arguments.
    has_aux : bool, default False
        Whether f returns a pair (scalar, aux). aux is not differentiated.

    Returns
    -------
    tree
        H times each direction, with the shapes of V. With `has_aux` a pair (products, aux).

    Raises
    ------
    NotScalarError
        If f does not return a real scalar.
    ShapeError
        If V has other shapes.

    See Also
    --------
    hvp : One direction.
    hessian : The whole matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.hmp(lambda x: (x ** 3).sum(), np.array([1.0, 2.0]), np.eye(2))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    inside = OPEN.inside
    if inside is not None:
        return inside.hmp(f, x, V, args, argnums, has_aux)
    call = f"hmp({user_name(f)})"
    given, _ = placed_arguments(call, argnums, x, args)
    with NamedCall(call, f), scope_block():
        lift = _inner(grad, f, given, argnums, has_aux)
        r = RecordedCall(call, f, argnums, given, {}, has_aux, lift)
        rows = leaves_like(call, "matrix V", V, x)
        sizes = {
            shape(v)[0] if shape(v) else -1 for v, (_, s) in zip(rows, r.low, strict=True) if v is not None
        }
        if len(sizes) != 1 or -1 in sizes:
            raise ShapeError(
                f"{call}: every leaf of V needs the same leading axis of directions, got {describe_tree(V)}"
            )
        count = sizes.pop()

        def product(given: Any) -> Any:
            each = iter(given)
            seeds = [
                None if v is None else cast_to_primal(call, "direction", next(each), y)
                for v, (y, _) in zip(rows, r.low, strict=True)
            ]
            return r.gradient(seeds)

        results = for_each(call, r, product, [v for v in rows if v is not None]) if count else {}
        r.finish()
    products = r.inputs.results(
        {key: results[key] if count else empty_rows(x) for key, x in r.inputs.watched.items()}
    )
    return (products, plain_tree(r.aux)) if has_aux else products


FORWARD_BYTES = 1 << 23  # bytes of all directions that are pushed forward in one run


def jmp(f: AnyFunction, x: Any, V: Any, args: AnyTuple = ()) -> Any:
    """J times each of the rows of V, for f of one array that gives one.  f is run once, as far as what it
    captures can tell."""
    call, count = f"jmp({user_name(f)})", shape(V)[0]
    if count > IN_TURN and count * x.nbytes <= FORWARD_BYTES:

        def pushed(given: Any) -> Any:
            return {0: value_and_tangent(*run_forward(call, f, (x, *args), (0,), (given[0],)))[1]}

        found = swept_at_once(call, pushed, [V], count, count)
        if found is not None:
            return found[0]
    with scope_block():
        r = RecordedCall(call, f, 0, (x, *args), {})
        ((y, _),) = r.low
        tape = watched(reverse.Tape())
        w = tape.watch(constant_like(numpy_number(y), 0))
        pulled = r.pull([w]).get(0)
        slot = None if pulled is None else lowered_leaf(pulled, tape)[1]
        tape.close()

        def swept(given: Any) -> Any:
            G = (
                []
                if slot is None
                else reverse.pull(tape, [(slot, cast_to_primal(call, "direction", given[0], x))])
            )
            return {0: derivative_out(G[w._slot] if w._slot < len(G) else None, numpy_number(y))}

        found = few_or_many(call, r, swept, V)
        tape.release()
        r.finish()
    return found[0]


def vmp(f: AnyFunction, x: Any, W: Any, args: AnyTuple = ()) -> Any:
    """J^H times each of the rows of W, for f of one array that gives one."""
    call = f"vmp({user_name(f)})"
    with scope_block():
        r = RecordedCall(call, f, 0, (x, *args), {})
        ((y, _),) = r.low
        found = few_or_many(
            call, r, lambda given: r.gradient([cast_to_primal(call, "cotangent", given[0], y)]), W
        )
        r.finish()
    return r.inputs.results(found)


Mode: TypeAlias = Literal["auto", "forward", "reverse"]


@overload
def jacobian(  # type: ignore[overload-overlap]
    f: Callable[Concatenate[V, P], Array | Number],
    argnums: Literal[0] = 0,
    mode: Mode = "auto",
    holomorphic: bool = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[V, P], Array]: ...
@overload
def jacobian(  # type: ignore[overload-overlap]
    f: Callable[Concatenate[V, P], Node],
    argnums: Literal[0] = 0,
    mode: Mode = "auto",
    holomorphic: bool = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[V, P], Any]: ...
@overload
def jacobian(  # type: ignore[overload-overlap]
    f: Callable[Concatenate[N, P], object],
    argnums: Literal[0] = 0,
    mode: Mode = "auto",
    holomorphic: bool = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[N, P], Any]: ...
@overload
def jacobian(
    f: Callable[Concatenate[X, Z, P], object],
    argnums: int | tuple[int, ...],
    mode: Mode = "auto",
    holomorphic: bool = False,
    *,
    shadow: bool = True,
) -> Callable[Concatenate[X, Z, P], Any]: ...
@overload
def jacobian(
    f: Callable[P, tuple[object, A]],
    argnums: int | tuple[int, ...] = 0,
    mode: Mode = "auto",
    holomorphic: bool = False,
    *,
    has_aux: Literal[True],
    shadow: bool = True,
) -> Callable[P, tuple[Any, A]]: ...
def jacobian(
    f: AnyFunction,
    argnums: int | tuple[int, ...] = 0,
    mode: Mode = "auto",
    holomorphic: bool = False,
    has_aux: bool = False,
    *,
    shadow: bool = True,
) -> AnyFunction:
    """Make a function that returns the Jacobian of f; f is recorded once.

    Parameters
    ----------
    f : callable
        A function that returns an array, a number or a tree of these.
    argnums : int or tuple of int, default 0
        Positions of the arguments to differentiate.
    mode : {'auto', 'forward', 'reverse'}, default 'auto'
        'reverse' takes one sweep for each output element, 'forward' one for each input element. 'auto' takes
        the mode with fewer sweeps.
    holomorphic : bool, default False
        Whether f is a complex differentiable function of complex arguments. It is required for a complex
        output of a complex argument. A real function of a complex argument has its gradient as Jacobian.
    has_aux : bool, default False
        Whether f returns a pair (value, aux). aux is not differentiated.
    shadow : bool, default True
        Whether derivatives follow what f captured.

    Returns
    -------
    callable
        A function of the arguments of f. It returns the Jacobian, of shape ``out.shape + x.shape``. For
        trees it returns the output's tree of the input's trees. With `has_aux` it returns a pair
        (Jacobian, aux).

    Raises
    ------
    ArgumentError
        If the mode is unknown, an argument has no derivative, or `holomorphic` does not fit the dtypes.

    See Also
    --------
    tapegrad.operators.jacobian : The Jacobian as a linear operator.
    tapegrad.sparse.jacobian : The Jacobian as a sparse matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    check_mode("jacobian", mode)
    check_argnums("jacobian", argnums)
    return Transform("jacobian", _jacobian_of, f if shadow else Const(f), argnums, mode, holomorphic, has_aux)


def check_mode(call: str, mode: Any) -> None:
    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(f"{call}: mode={mode!r}; it is 'auto', 'forward' or 'reverse'")


def _jacobian_of(call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict) -> Any:
    argnums, mode, holomorphic, has_aux = settings
    return _jacobian(call, f, argnums, args, kwargs, mode, holomorphic, has_aux)


def _jacobian(
    call: Any,
    f: Any,
    argnums: Any,
    args: Any,
    kwargs: Any,
    mode: Any,
    holomorphic: Any,
    has_aux: Any,
    lift: Any = None,
) -> Any:
    with scope_block():
        r = RecordedCall(call, f, argnums, args, kwargs, has_aux, lift)
        found = jacobian_of(call, f, r, mode, holomorphic)
        r.finish()
    return (found, plain_tree(r.aux)) if has_aux else found


def jacobian_of(call: str, f: AnyFunction, r: RecordedCall, mode: str, holomorphic: bool) -> Any:
    """The output's tree of the input's trees; `f` is named in errors."""
    blocks, numbers = _blocks(call, f, r, mode, holomorphic), iter(range(len(r.low)))

    def block(y: Any) -> Any:
        k = next(numbers)
        return None if y is None else r.inputs.results({key: blocks[k, key] for key in r.inputs.watched})

    return tree_map(block, r.tree)


def _blocks(call: str, f: AnyFunction, r: RecordedCall, mode: str, holomorphic: bool) -> AnyDict:
    for y, _ in r.low:
        if not (
            y is None or is_array(layout_of(y)) or isinstance(layout_of(y), (int, float, complex, np.generic))
        ):
            raise ArgumentError(
                f"{call}: {user_name(f)}{where_of(f)} returned {describe_tree(r.tree)}, not arrays"
            )
    complex_in = any(dtype(x).kind == "c" for x in r.inputs.watched.values())
    if complex_in and any(y is not None and dtype(y).kind == "c" for y, _ in r.low) and not holomorphic:
        raise ArgumentError(
            f"{call}: complex function of complex arguments; say holomorphic=True, or split into real and "
            f"imaginary parts"
        )
    n_out = sum(int(np.prod(shape(y))) for y, _ in r.low if y is not None)
    n_in = sum(int(np.prod(shape(x))) for x in r.inputs.watched.values())
    if mode == "forward" or (mode == "auto" and n_in < n_out and not complex_in):
        return _columns(r)
    return _rows(r, holomorphic)


def _rows(r: RecordedCall, holomorphic: bool) -> AnyDict:
    """Blocks (output leaf, input key) by one reverse sweep for each output element."""
    blocks = {}
    for k, (y, _) in enumerate(r.low):
        if y is None:
            continue
        mixed = dtype(y).kind == "c" and not holomorphic

        def swept(given: Any, k: Any = k, mixed: Any = mixed) -> Any:
            seeds = [given[0] if j == k else None for j in range(len(r.low))]
            found = r.gradient(seeds)
            if mixed:
                turned = r.gradient([None if s is None else s * 1j for s in seeds])
                return {key: row + 1j * turned[key] for key, row in found.items()}
            return {key: shaping.conj(row) for key, row in found.items()} if holomorphic else found

        units = basis(numpy_number(y))
        rows = for_each("jacobian", r, swept, [units]) if len(units) else {}
        for key, x in r.inputs.watched.items():
            blocks[k, key] = _assembled(rows.get(key), shape(y), shape(x), x)
    return blocks


def _assembled(rows: Any, first: AnyTuple, second: AnyTuple, like: Any) -> Any:
    if rows is None:
        return xp_of(layout_of(like)).zeros(first + second, dtype(like))
    if first == ():
        return rows[0]
    return unshared_result(shaping.reshape(rows, to=first + second))


def unshared_result(a: Any) -> Any:
    """A plain result in memory of its own."""
    return a if isinstance(a, Variable) or a.base is None else a.copy()


def _columns(r: RecordedCall) -> AnyDict:
    """Blocks by one sweep for each input element: the pullback w -> J^T w is itself recorded (it is linear in
    w) and pulled back, which gives J v without running f again."""
    tape = watched(reverse.Tape())
    ws = [None if y is None else tape.watch(constant_like(numpy_number(y), 0)) for y, _ in r.low]
    pulled = r.pull(ws)
    outputs = {
        key: (None, None) if pulled.get(key) is None else lowered_leaf(pulled[key], tape)
        for key in r.inputs.watched
    }
    tape.close()
    blocks = {}
    for key, x in r.inputs.watched.items():
        _, slot = outputs[key]

        def swept(given: Any, slot: Any = slot) -> Any:
            G = [] if slot is None else reverse.pull(tape, [(slot, given[0])])
            found = {}
            for k, (y, _) in enumerate(r.low):
                if (w := ws[k]) is not None:
                    s = w._slot
                    found[k] = derivative_out(G[s] if s < len(G) else None, numpy_number(y))
            return found

        units = basis(x)
        columns = for_each("jacobian", r, swept, [units]) if len(units) else {}
        for k, (y, _) in enumerate(r.low):
            if y is None:
                continue
            if not len(units):
                blocks[k, key] = xp_of(layout_of(x)).zeros(shape(y) + shape(x), dtype(x))
            elif shape(x) == ():
                blocks[k, key] = columns[k][0]
            else:
                n = len(shape(y))
                turned = shaping.transpose(columns[k], axes=(*range(1, n + 1), 0))
                block = shaping.reshape(turned, to=shape(y) + shape(x))
                if xp(x) is np and xp(block) is not np:  # as a gradient, it lies where the argument does
                    block = shaping.copy_to_host(block)
                blocks[k, key] = unshared_result(block)
    tape.release()
    return blocks


@overload
def hessian(  # type: ignore[overload-overlap]
    f: Callable[Concatenate[V, P], object], argnums: Literal[0] = 0, *, shadow: bool = True
) -> Callable[Concatenate[V, P], Array]: ...
@overload
def hessian(  # type: ignore[overload-overlap]
    f: Callable[Concatenate[N, P], object], argnums: Literal[0] = 0, *, shadow: bool = True
) -> Callable[Concatenate[N, P], Any]: ...
@overload
def hessian(
    f: Callable[Concatenate[X, Z, P], object], argnums: int | tuple[int, ...], *, shadow: bool = True
) -> Callable[Concatenate[X, Z, P], Any]: ...
@overload
def hessian(
    f: Callable[P, tuple[object, A]],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: Literal[True],
    shadow: bool = True,
) -> Callable[P, tuple[Any, A]]: ...
def hessian(
    f: AnyFunction, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, shadow: bool = True
) -> AnyFunction:
    """Make a function that returns the Hessian of a real scalar function; f is recorded once.

    Parameters
    ----------
    f : callable
        A function that returns a real scalar.
    argnums : int or tuple of int, default 0
        Positions of the arguments to differentiate, of a real float dtype.
    has_aux : bool, default False
        Whether f returns a pair (scalar, aux). aux is not differentiated.
    shadow : bool, default True
        Whether derivatives follow what f captured.

    Returns
    -------
    callable
        A function of the arguments of f. It returns the Hessian, of shape ``x.shape + x.shape``. With
        ``argnums=(0, 1)`` it returns the blocks ((H00, H01), (H10, H11)). With `has_aux` it returns a
        pair (Hessian, aux).

    Raises
    ------
    NotScalarError
        If f does not return a real scalar.

    See Also
    --------
    hvp : The product with one vector.
    tapegrad.sparse.hessian : The Hessian as a sparse matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    check_argnums("hessian", argnums)
    return Transform("hessian", _hessian, f if shadow else Const(f), argnums, has_aux)


def _hessian(call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict) -> Any:
    wrap, (argnums, has_aux) = _wrapping(f), settings
    lift = lambda g: grad(wrap(g), argnums, has_aux)
    with NamedCall(call, f):
        return _jacobian(call, f, argnums, args, kwargs, "reverse", False, has_aux, lift)
