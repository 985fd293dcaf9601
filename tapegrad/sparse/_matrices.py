"""The public functions of sparse Jacobians and Hessians."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.sparse

from .._core.errors import ArgumentError
from .._core.scope import changed
from .._transforms.arguments import user_name
from ..replay.form import any_variable
from ..replay.prepared import Prepared
from ._arguments import (
    argnum_of,
    checked_input,
    checked_output,
    enter_arguments,
    plain_point_of,
    with_argument_first,
)
from ._coloring import KINDS, checked_words
from ._found import FoundPattern
from ._pattern import SCOPES
from ._plan import Plan

Format = Literal["csr", "csc", "coo"]
FORMATS = ("csr", "csc", "coo")
OF_JACOBIANS, OF_HESSIANS = KINDS[:3], KINDS[3:]


def make_plan(call: str, f: Callable, args: tuple, second: bool, settings: dict) -> Plan:
    call = f"sparse.{call}({user_name(f)})"
    if not args:
        raise ArgumentError(f"{call}: give x, an array like those of the calls to come")
    kinds = OF_HESSIANS if second else OF_JACOBIANS
    checked_words(call, settings["kind"], kinds, settings["order"])
    for name, words in (("scope", SCOPES), ("format", FORMATS)):
        if settings[name] not in words:
            raise ArgumentError(
                f"{call}: {name}={settings[name]!r}; it is one of {', '.join(map(repr, words))}"
            )
    if settings["compile"] not in (True, False, "auto"):
        raise ArgumentError(f"{call}: compile={settings['compile']!r}; it is True, False or 'auto'")
    plan = Plan(call, f, plain_point_of(call, args), second, settings)
    plan.warn_if_dense()
    return plan


def prepare_jacobian(
    f: Callable,
    *args: Any,
    argnum: int = 0,
    pattern: Any = None,
    check: bool = True,
    scope: Literal["global", "local"] = "global",
    kind: Literal["columns", "rows", "both"] | None = None,
    order: str = "natural",
    format: Format = "csr",
    compile: bool | Literal["auto"] = "auto",
    holomorphic: bool = False,
) -> Plan:
    """Find the pattern and the colours of a Jacobian, for values at any point.

    Parameters
    ----------
    f : callable
        A function that returns one array.
    *args : object
        Arguments like those of the calls to come.
    argnum : int, default 0
        The argument to differentiate, an array of float dtype.
    pattern : sparse matrix or array of bool, optional
        The positions of the possible entries, of shape (y.size, x.size). By default f is followed to find
        them.
    check : bool, default True
        Whether a given pattern is compared with f, at the point and at a second one near it.
    scope : {'global', 'local'}, default 'global'
        'global': the pattern holds for both branches of numpy.where, and for all places to which an index
        that depends on x may point. 'local': for this point, which may have fewer entries.
    kind, order : str, optional
        As for `coloring`; chosen by default.
    format : {'csr', 'csc', 'coo'}, default 'csr'
        The class of the matrices.
    compile : bool or 'auto', default 'auto'
        Whether products are compiled into loops, as for `tapegrad.prepare`.
    holomorphic : bool, default False
        Whether f is a complex differentiable function of complex x.

    Returns
    -------
    Plan
        ``plan(x)`` is the matrix, of shape (y.size, x.size), elements in C order. `plan.pattern`,
        `plan.coloring`, `plan.colors` (the number of products) and ``plan.plot()`` show what was found.

    Raises
    ------
    ArgumentError
        If `check` finds a missing entry, or x has no derivative.
    GuardError
        If no pattern can be found; and in a call, if an ``if`` in f takes another branch, shapes differ, or,
        with a local scope, the pattern does not hold.

    See Also
    --------
    jacobian : For one point.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> plan = tg.sparse.prepare_jacobian(lambda x: np.diff(x) ** 2, np.ones(4))
    >>> plan(np.array([1.0, 2.0, 4.0, 8.0])).toarray()
    array([[-2.,  2.,  0.,  0.],
           [ 0., -4.,  4.,  0.],
           [ 0.,  0., -8.,  8.]])
    >>> plan.colors
    2
    """
    plan = make_plan("prepare_jacobian", f, args, False, settings_of(locals()))
    plan.first = None
    return plan


def prepare_hessian(
    f: Callable,
    *args: Any,
    argnum: int = 0,
    pattern: Any = None,
    check: bool = True,
    scope: Literal["global", "local"] = "global",
    kind: Literal["star", "acyclic"] | None = None,
    order: str = "natural",
    format: Format = "csr",
    compile: bool | Literal["auto"] = "auto",
) -> Plan:
    """Find the pattern and the colours of a Hessian, for values at any point.

    Parameters
    ----------
    f : callable
        A function that returns a real scalar.
    *args : object
        Arguments like those of the calls to come.
    argnum : int, default 0
        The argument to differentiate, an array of a real float dtype.
    pattern, check, scope, order, format, compile : optional
        As for `prepare_jacobian`. A given pattern is symmetric.
    kind : {'star', 'acyclic'}, optional
        As for `coloring`; chosen by default.

    Returns
    -------
    Plan
        ``plan(x)`` is the matrix, of shape (x.size, x.size), elements in C order.

    Raises
    ------
    ArgumentError, GuardError
        As for `prepare_jacobian`.

    See Also
    --------
    hessian : For one point.
    tapegrad.operators.hessian : Products without the matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> plan = tg.sparse.prepare_hessian(lambda x: (np.diff(x) ** 3).sum(), np.ones(3))
    >>> plan(np.array([1.0, 2.0, 4.0])).toarray()
    array([[  6.,  -6.,   0.],
           [ -6.,  18., -12.],
           [  0., -12.,  12.]])
    """
    plan = make_plan("prepare_hessian", f, args, True, settings_of(locals()))
    plan.first = None
    return plan


WHERE = {"argnum": 0, "pattern": None, "check": True, "scope": "global"}
OPTIONS = {
    **WHERE,
    "kind": None,
    "order": "natural",
    "format": "csr",
    "compile": "auto",
    "holomorphic": False,
}


def settings_of(given: dict) -> dict:
    return {**OPTIONS, **{name: v for name, v in given.items() if name in OPTIONS}}


def at_once(call: str, f: Callable, args: tuple, second: bool, options: dict):
    for name in options:
        if name not in OPTIONS or (second and name == "holomorphic"):
            raise ArgumentError(
                f"sparse.{call}({user_name(f)}): there is no option {name!r}; see sparse.prepare_{call}"
            )
    plan = make_plan(call, f, args, second, settings_of(options))
    return plan(*args) if any_variable(args) else plan.matrix(plan.first)


def jacobian(f: Callable, *args: Any, **options: Any) -> Any:
    """Compute the Jacobian of f at one point as a sparse matrix.

    Parameters
    ----------
    f : callable
        A function that returns one array.
    *args : object
        The point and further arguments of f.
    **options : object
        Options of `prepare_jacobian`.

    Returns
    -------
    scipy.sparse.csr_array
        The Jacobian, of shape (y.size, x.size), elements in C order. `format` chooses another class. For
        CuPy arrays it is a matrix of cupyx.

    Raises
    ------
    ArgumentError
        If an option is unknown, or x has no derivative.
    GuardError
        If no pattern can be found.

    See Also
    --------
    prepare_jacobian : For many points.
    tapegrad.jacobian : The dense matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.jacobian(lambda x: np.diff(x) ** 2, np.array([1.0, 2.0, 4.0])).toarray()
    array([[-2.,  2.,  0.],
           [ 0., -4.,  4.]])
    """
    return at_once("jacobian", f, args, False, options)


def hessian(f: Callable, *args: Any, **options: Any) -> Any:
    """Compute the Hessian of a real scalar function at one point as a sparse matrix.

    Parameters
    ----------
    f, *args, **options : object
        As for `jacobian`. f returns a real scalar, and the options are those of `prepare_hessian`.

    Returns
    -------
    scipy.sparse.csr_array
        The Hessian, of shape (x.size, x.size), elements in C order. `format` chooses another class.

    Raises
    ------
    ArgumentError, GuardError
        As for `jacobian`.

    See Also
    --------
    prepare_hessian : For many points.
    tapegrad.hessian : The dense matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.hessian(lambda x: (x ** 3).sum(), np.array([1.0, 2.0])).toarray()
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    return at_once("hessian", f, args, True, options)


def pattern(
    f: Callable,
    *args: Any,
    argnum: int = 0,
    scope: Literal["global", "local"] = "global",
    second: bool = False,
) -> scipy.sparse.csr_array:
    """Find the entries of a Jacobian or a Hessian that can differ from zero.

    Parameters
    ----------
    f : callable
        A function that returns one array, or with `second` a real scalar.
    *args : object
        The point and further arguments of f.
    argnum : int, default 0
        The argument to differentiate.
    scope : {'global', 'local'}, default 'global'
        'global': for both branches of numpy.where, and for all places to which an index that depends on x may
        point. 'local': at this point.
    second : bool, default False
        Whether the pattern is that of the Hessian.

    Returns
    -------
    scipy.sparse.csr_array
        A matrix of booleans, of shape (y.size, x.size), or (x.size, x.size) with `second`.

    Raises
    ------
    GuardError
        If the function cannot be followed.

    See Also
    --------
    coloring : Groups the columns or rows.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.pattern(lambda x: x[1:] * x[:-1], np.ones(3)).toarray().astype(int)
    array([[1, 1, 0],
           [0, 1, 1]])
    """
    call = f"sparse.pattern({user_name(f)})"
    if scope not in SCOPES:
        raise ArgumentError(f"{call}: scope={scope!r}; it is one of {', '.join(map(repr, SCOPES))}")
    if not args:
        raise ArgumentError(f"{call}: give x")
    k = argnum_of(call, argnum, args)
    x, *rest = enter_arguments(plain_point_of(call, args), k, None)
    checked_input(call, x)
    args = (x, *rest) if k == 0 else (x, f, *rest)
    with changed(depth=0):
        check = functools.partial(checked_output, call, f, np.dtype(float), True)
        return FoundPattern(
            call,
            Prepared(f if k == 0 else with_argument_first(f, k), args, 0, "raise"),
            args,
            second,
            scope,
            check,
        ).pattern
