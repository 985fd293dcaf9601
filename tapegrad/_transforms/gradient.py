"""`grad` and `value_and_grad`."""

from collections.abc import Callable
from typing import Any, Concatenate, Literal, overload

from .._core.scope import OPEN, scope_block
from .._core.trees import Const
from .._core.typing import AnyDict, AnyFunction, AnyTuple
from .arguments import checked_argnums
from .call import RecordedCall, check_scalar, constant_like, plain_tree
from .transform import A, Both, P, Transform, X, Y, Z


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
        As in `grad`.
    has_aux : bool, default False
        As in `grad`.
    shadow : bool, default True
        As in `grad`.

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
    argnums = checked_argnums("value_and_grad", argnums)
    f = f if shadow else Const(f)
    return Transform("value_and_grad", value_and_gradient_body, f, argnums, has_aux)


def value_and_gradient_body(
    call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict
) -> AnyTuple:
    value, aux, gradient = pulled_gradient(call, f, settings, args, kwargs, True)
    return ((value, aux) if settings[1] else value), gradient


def pulled_gradient(
    call: str,
    f: AnyFunction,
    settings: AnyTuple,
    args: AnyTuple,
    kwargs: AnyDict,
    valued: bool,
) -> AnyTuple:
    """The value (None where it is not asked for), aux and the gradient."""
    argnums, has_aux = settings
    inside = OPEN.inside
    if inside is not None:
        found: AnyTuple = inside.pulled_gradient(call, f, argnums, args, kwargs, has_aux)
        return found
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
        Positions of the arguments to differentiate. Each is an array, a number or a tree of these, with a
        float or complex dtype. All other arguments are constants.
    has_aux : bool, default False
        Whether f returns a second object, aux. It is not differentiated, and is returned as plain data.
    shadow : bool, default True
        Whether derivatives follow what f captured. False treats it as constant, as ``tg.Const(f)`` does.

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
    argnums = checked_argnums("grad", argnums)
    return Transform("grad", gradient_body, f if shadow else Const(f), argnums, has_aux)


def gradient_body(call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict) -> Any:
    _, aux, gradient = pulled_gradient(call, f, settings, args, kwargs, False)
    return (gradient, aux) if settings[1] else gradient
