"""Products with the Hessian of a real scalar function: `hvp`, `value_grad_hvp`, `hmp`."""

from collections.abc import Callable
from typing import Any, Literal, overload

from .._core.errors import ShapeError
from .._core.scope import OPEN, scope_block
from .._core.trees import describe_tree
from .._core.typing import AnyDict, AnyFunction, AnyTuple
from ..ops.declare import shape
from .arguments import checked_argnums, user_name
from .call import RecordedCall, cast_to_primal, leaves_like, plain_tree, run_forward
from .gradient import gradient_body, pulled_gradient
from .many_directions import empty_rows, for_each
from .transform import A, X, Y, lift_of, placed_arguments


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
        As in `grad`: the position of x. With a tuple, x and the direction are tuples of arguments.
    has_aux : bool, default False
        As in `grad`.

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
    return _value_grad_hvp("value_grad_hvp", f, x, v, args, argnums, has_aux)


def _value_grad_hvp(
    name: str, f: AnyFunction, x: Any, v: Any, args: AnyTuple, argnums: int | AnyTuple, has_aux: bool
) -> AnyTuple:
    """`name`: what the user called."""
    call = f"{name}({user_name(f)})"
    argnums = checked_argnums(name, argnums)
    given, nums = placed_arguments(call, argnums, x, args)
    ways = v if isinstance(argnums, tuple) else (v,)
    lift = lift_of(call, _value_grad_aux, f, given, argnums, has_aux)
    (value, gradient), (_, hv), aux = run_forward(call, f, given, nums, ways, lift, has_aux)
    return (value, gradient, hv, aux) if has_aux else (value, gradient, hv)


def _value_grad_aux(
    call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict
) -> AnyTuple:
    """(value, gradient), or with aux the pair of this and aux, as an outer transform takes it."""
    value, aux, gradient = pulled_gradient(call, f, settings, args, kwargs, True)
    return ((value, gradient), aux) if settings[1] else (value, gradient)


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
        As in `grad`: the position of x. With a tuple, x and the direction are tuples of arguments.
    has_aux : bool, default False
        As in `grad`.

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
    found = _value_grad_hvp("hvp", f, x, v, args, argnums, has_aux)
    return found[2:] if has_aux else found[2]


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
        As in `grad`: the position of x. With a tuple, x and the direction are tuples of arguments.
    has_aux : bool, default False
        As in `grad`.

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
    if OPEN.inside is not None:
        return OPEN.inside.hmp(f, x, V, args, argnums, has_aux)
    call = f"hmp({user_name(f)})"
    argnums = checked_argnums("hmp", argnums)
    given, _ = placed_arguments(call, argnums, x, args)
    with scope_block():
        lift = lift_of(call, gradient_body, f, given, argnums, has_aux)
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
