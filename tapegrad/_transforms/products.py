"""Products with the Jacobian and its transpose: `vjp`, `jvp`, and those with several directions."""

from collections.abc import Callable
from typing import Any, Concatenate, Literal, overload

from .._core.errors import ArgumentError
from .._core.scope import OPEN, scope_block
from .._core.typing import AnyFunction, AnyTuple
from ..ops.declare import shape
from .arguments import all_positions, checked_argnums, positions, user_name
from .call import (
    RecordedCall,
    cast_to_primal,
    plain_tree,
    run_forward,
)
from .linearize import Products
from .many_directions import IN_TURN, few_or_many, swept_at_once
from .transform import A, X, Y, Z


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
        As in `grad`, but by default all primals.
    has_aux : bool, default False
        As in `grad`.

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
    call = f"vjp({user_name(f)})"
    if not primals:
        raise ArgumentError(f"{call}: give the primals, vjp(f, x)")
    nums = all_positions("vjp", argnums, primals)
    if OPEN.inside is not None:
        return OPEN.inside.vjp(call, f, nums, primals, has_aux)  # type: ignore[no-any-return]
    with scope_block():
        r = RecordedCall(call, f, nums, primals, {}, has_aux, swept=False)
        value = r.value()
        r.shadow.release(r.tape.records)
        r.shadow.finish()

    def pullback(w: Any) -> Any:
        return r.inputs.results(r.gradient(r.cotangents("pullback", w)))

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
        As in `grad`, but by default all primals: those that have a tangent.
    has_aux : bool, default False
        As in `grad`.

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
    call = f"jvp({user_name(f)})"
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(f"{call}: primals and tangents must be tuples: jvp(f, (x,), (v,))")
    if argnums is None:
        nums = tuple(range(len(primals)))
    else:
        nums = positions(call, checked_argnums("jvp", argnums), len(primals))
    found = run_forward(call, f, tuple(primals), nums, tangents, has_aux=has_aux)
    return found if has_aux else found[:2]


FORWARD_BYTES = 1 << 23  # bytes of all directions that are pushed forward in one run


def jmp(f: AnyFunction, x: Any, V: Any, args: AnyTuple = ()) -> Any:
    """J times each of the rows of V, for f of one array that gives one.  f is run once, as far as what it
    captures can tell."""
    call, count = f"jmp({user_name(f)})", shape(V)[0]
    if count > IN_TURN and count * x.nbytes <= FORWARD_BYTES:

        def pushed(given: Any) -> Any:
            return {0: run_forward(call, f, (x, *args), (0,), (given[0],))[1]}

        found = swept_at_once(call, pushed, [V], count, count)
        if found is not None:
            return found[0]
    with scope_block():
        r = RecordedCall(call, f, 0, (x, *args), {})
        products = Products(r).transposed()
        found = few_or_many(
            call,
            r,
            lambda given: products.forward({0: cast_to_primal(call, "direction", given[0], x)}),
            V,
        )
        products.release()
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
