"""`jacobian` and `hessian`: whole matrices, of a function that is recorded once."""

from collections.abc import Callable
from typing import Any, Concatenate, Literal, TypeAlias, overload

import numpy as np

from .._core.arrays import is_array, xp_of
from .._core.errors import ArgumentError
from .._core.primitive import layout_of
from .._core.scope import OPEN, scope_block
from .._core.trees import Const, describe_tree, tree_map
from .._core.typing import AnyDict, AnyFunction, AnyTuple, Array, Node, Number
from .._core.variable import Variable
from ..ops import shaping
from ..ops.declare import dtype, shape, xp
from .arguments import checked_argnums, numpy_number, user_name, where_of
from .call import RecordedCall, plain_tree
from .gradient import gradient_body
from .linearize import Products
from .many_directions import basis, for_each
from .transform import A, N, P, Transform, V, X, Z, lift_of

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
        As in `grad`.
    mode : {'auto', 'forward', 'reverse'}, default 'auto'
        'reverse' takes one sweep for each output element, 'forward' one for each input element. 'auto' takes
        the mode with fewer sweeps.
    holomorphic : bool, default False
        Whether f is a complex differentiable function of complex arguments. It is required for a complex
        output of a complex argument. A real function of a complex argument has its gradient as Jacobian.
    has_aux : bool, default False
        As in `grad`.
    shadow : bool, default True
        As in `grad`.

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
    argnums = checked_argnums("jacobian", argnums)
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
    if OPEN.inside is not None:
        mode = mode if lift is None else "forward"
        return OPEN.inside.jacobian(call, f, argnums, args, kwargs, mode, has_aux, lift)
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
    """Blocks by one sweep for each input element."""
    blocks, products = {}, Products(r).transposed()
    for key, x in r.inputs.watched.items():

        def swept(given: Any, key: Any = key) -> Any:
            return products.forward({key: given[0]})

        units = basis(x)
        columns = for_each("jacobian", r, swept, [units]) if len(units) else {}
        for k, (y, _) in enumerate(r.low):
            if y is None:
                continue
            if k not in columns:
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
    products.release()
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
        As in `grad`, of a real float dtype.
    has_aux : bool, default False
        As in `grad`.
    shadow : bool, default True
        As in `grad`.

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
    argnums = checked_argnums("hessian", argnums)
    return Transform("hessian", _hessian, f if shadow else Const(f), argnums, has_aux)


def _hessian(call: str, f: AnyFunction, settings: AnyTuple, args: AnyTuple, kwargs: AnyDict) -> Any:
    argnums, has_aux = settings
    lift = lift_of(call, gradient_body, f, args, argnums, has_aux)
    return _jacobian(call, f, argnums, args, kwargs, "reverse", False, has_aux, lift)
