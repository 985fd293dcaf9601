"""Adapters between trees and the flat vectors of SciPy's optimisers: values, bounds, callbacks."""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType

import numpy as np
import scipy.optimize
from numpy import ndarray
from scipy.sparse.linalg import LinearOperator

from .._core.arrays import is_array, is_differentiable, is_scalar, to_host, xp_of
from .._core.errors import ArgumentError, Attempt
from .._core.foreign import check_constants
from .._core.primitive import is_tracked, layout_of, values_of
from .._core.registry import load
from .._core.scope import OPEN, quiet
from .._core.trees import Const, children, describe_tree, is_node, leaves, tree_map, tuple_of
from .._core.variable import Variable
from .._transforms.hessian_products import hvp
from .._transforms.jacobian import hessian, jacobian
from .._transforms.tape import ravel

FEW_UNKNOWNS = 50  # unknowns below which whole Hessians are dense matrices
# SciPy's keywords for derivatives
DIFFERENCES = ("jac", "hessp", "diff_step", "jac_sparsity", "Dfun", "fprime")


def refuse_derivatives(call: str, given: dict, all_else: bool = False) -> None:
    """Raise for keywords that give derivatives; with `all_else`, for any keyword."""
    for name in given:
        if name in DIFFERENCES:
            raise ArgumentError(
                f"{call}: {name}= is for derivatives by hand or by differences; here they are exact: leave "
                f"it away"
            )
        if all_else:
            raise ArgumentError(
                f"{call}: {name}= is no argument; what is for the method alone goes into "
                f"options={{{name!r}: ...}}"
            )


def unchanged(u):
    """Return a vector as the tree that it is."""
    return u


class FlatStart:
    """A tree of starting values as a float64 vector on the host, and the inverse map."""

    def __init__(self, call: str, x0):
        self.tree = started(call, x0)
        self.restore: Callable = unchanged  # (calls that replay compare what the functions of a tree read)
        flat = self.tree
        if not (is_array(layout_of(flat)) and np.ndim(flat) == 1 and is_differentiable(layout_of(flat))):
            flat, restore = ravel(self.tree)
            self.restore = restore
            if any(type(v) is Const for v in leaves(self.tree)):
                self.restore = lambda u: tree_map(lambda v: v.value if type(v) is Const else v, restore(u))
        if not flat.size:
            raise ArgumentError(
                f"{call}: x0 = {describe_tree(x0)} holds no number to be varied: integers in a tree are "
                f"constants"
            )
        if flat.dtype.kind == "c":
            raise ArgumentError(
                f"{call}: x0 is complex; SciPy's optimisers vary real numbers: take real and imaginary parts"
            )
        self.xp: ModuleType = xp_of(layout_of(flat))
        self.start, self.dtype = host_numbers(flat), flat.dtype

    def place(self, u: ndarray):
        """Return a copy of a vector in the library of the tree's arrays."""
        return self.xp.array(u, self.dtype)

    def __call__(self, u: ndarray):
        """Return the tree of the vector u."""
        return self.restore(self.place(u))


def plain_result(x):
    """Return a plain array; raise if a transform tracks it."""
    if is_tracked(x):
        raise ArgumentError(
            "tapegrad.optimize within a transform: what is searched depends on a value that the transform "
            "follows, and its derivative "
            "would be lost: call scipy.optimize there, which is differentiated, or tapegrad.implicit.minimum"
        )
    return values_of(x)


def host_result(x):
    """Return a result as a plain array on the host; raise if a transform tracks it."""
    return to_host(plain_result(x))


def host_numbers(x):
    return host_result(x).astype(np.float64)


def started(call: str, x0):
    """Convert x0 to floats.

    As in SciPy, numbers, arrays, and lists and tuples of plain numbers may be integers. In any other tree
    integers are constants, as in all transforms."""
    check_constants(f"{call}: x0", x0)
    if is_node(x0) and (not _plain(x0) or hasattr(x0, "_fields")):
        return x0
    try:
        x = x0 if is_array(layout_of(x0)) or isinstance(x0, Variable) else np.asarray(x0)[()]
    except ValueError as error:
        raise ArgumentError(
            f"{call}: x0 is a list of rows of different lengths; for a tree of arrays make each by np.array"
        ) from error
    kind = getattr(layout_of(x), "dtype", np.dtype(object)).kind
    if kind == "b":
        raise ArgumentError(f"{call}: x0 holds {x0!r}; starting values are real numbers")
    return x.astype(float) if kind in "iu" else x


def _plain(x) -> bool:
    """Return whether x consists of nested lists and tuples of numbers."""
    if isinstance(x, (list, tuple)):
        return all(_plain(m) for m in x)
    return isinstance(x, (int, float)) or is_scalar(x)


def flatten_result(tree):
    """Return the numbers of an array or tree as a vector."""
    pieces = []
    for x in leaves(tree):
        x = x if is_differentiable(layout_of(x)) else x * 1.0
        is_known = is_array(layout_of(x)) or isinstance(x, Variable)
        pieces.append((x if is_known else np.asarray(x)).reshape(-1))
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class ArraysOfPandas:
    """Columns of pandas as arrays, for derivatives, where the function computes the same with arrays."""

    def __init__(self) -> None:
        self.works: bool | None = None

    def __call__(self, x, f: Callable):
        """Return a Series as an array and a DataFrame as a dict of arrays, if f does the same with them."""
        if not (hasattr(x, "to_numpy") and hasattr(x, "index")):
            return x
        made = {name: x[name].to_numpy() for name in x.columns} if hasattr(x, "columns") else x.to_numpy()
        if self.works is None:
            self.works = False
            with Attempt():  # such as x.values of an array
                a, b = [np.asarray(f(v), float) for v in (made, x)]
                self.works = a.shape == b.shape and np.allclose(
                    a, b, 1e-10, 1e-12 * np.nanmax(abs(b), initial=0.0), equal_nan=True
                )
        return made if self.works else x


def plain_call(args: tuple) -> list:
    """Return the function and its further arguments for a plain call, without the Const wrappers."""
    return [a.value if type(a) is Const else a for a in args]


class Values:
    """A function from trees to many values, as one of vectors on the host, with its exact Jacobian.

    The values are nan if a matrix is singular or indefinite (`numpy.linalg.LinAlgError`)."""

    def __init__(self, call: str, f: Callable, flat: FlatStart, args: tuple = (), kwargs: dict | None = None):
        self.call, self.flat, self.kwargs = call, flat, kwargs or {}
        # f is an argument of the transforms, so its captured arrays are treated as those of a differentiated
        # function. `_f` must therefore capture no object that leads to them.
        self.args = (f, *tuple_of(args))
        restore = flat.restore

        def values(u, f: Callable, *rest, **more):
            return flatten_result(f(restore(u), *rest, **more))

        self._f, self._jacobian = values, jacobian(values)
        self._weighted = lambda u, v, *rest, **more: (v * values(u, *rest, **more)).sum()
        self._hessian = hessian(self._weighted)
        self._size = 1

    def __call__(self, u: ndarray) -> ndarray:
        OPEN.compared = None
        f, *rest = plain_call(self.args)
        try:
            with quiet():
                y = host_result(flatten_result(f(self.flat(u), *rest, **self.kwargs)))
        except np.linalg.LinAlgError:
            return np.full(self._size, np.nan)
        if y.dtype.kind == "c":
            raise ArgumentError(
                f"{self.call}: the function returned complex numbers; give real and imaginary parts, "
                f"numpy.stack([y.real, y.imag])"
            )
        self._size = y.size
        return y.astype(np.float64)

    def jacobian(self, u: ndarray) -> ndarray:
        with quiet():
            return host_numbers(self._jacobian(self.flat.place(u), *self.args, **self.kwargs))

    def sparse_jacobian(self, pattern) -> Callable:
        """Return a function that computes the Jacobian as a sparse matrix."""
        f = self._f if not self.kwargs else functools.partial(self._f, **self.kwargs)
        return self.planned(
            load("tapegrad.sparse._renewed").Renewed("jacobian", f, self.args, pattern=pattern)
        )

    def planned(self, plan: Callable) -> Callable:
        """Return a function of a vector, and of weights of the values, that calls the plan."""

        def matrix(u: ndarray, *v: ndarray):
            with quiet():
                A = plan(self.flat.place(u), *[self.flat.place(w) for w in v])
            return (A if self.flat.xp is np else A.get()).astype(np.float64, copy=False)

        return matrix

    def jacobian_of_form(self, sparse: bool) -> tuple[Callable, bool]:
        """Return (the Jacobian, whether it is sparse): by a sparse plan if that pays, otherwise dense.

        Without `sparse` the matrices are dense, and a plan only saves products."""
        if not sparse:
            return self.dense_jacobian, False
        J = self.planned_jacobian
        return (self.jacobian, False) if J is None else (J, True)

    @functools.cached_property
    def planned_jacobian(self) -> Callable | None:
        plan = load("tapegrad.sparse._renewed").plan_if_sparse(
            "jacobian", self._f, self.flat.place(self.flat.start), rest=self.args
        )
        return None if plan is None else self.planned(plan)

    def dense_jacobian(self, u: ndarray) -> ndarray:
        return (
            self.jacobian(u)
            if u.size < FEW_UNKNOWNS or self.planned_jacobian is None
            else self.planned_jacobian(u).toarray()
        )

    def hessian_of_form(self) -> Callable:
        """Return the Hessian of v times the values: sparse if that pays, dense if small, otherwise
        products."""
        start = self.flat.place(self.flat.start)
        if start.size < FEW_UNKNOWNS:
            return self.hessian
        weights = self.flat.place(np.ones(self(self.flat.start).size))
        plan = load("tapegrad.sparse._renewed").plan_if_sparse(
            "hessian", self._weighted, start, weights, rest=self.args
        )
        return self.hessian_operator if plan is None else self.planned(plan)

    def hessian_operator(self, u: ndarray, v: ndarray) -> LinearOperator:
        """Return the products with the Hessian of v times the values."""
        x, w = self.flat.place(u), self.flat.place(v)

        def product(t: ndarray) -> ndarray:
            with quiet():
                Ht = hvp(self._weighted, x, self.flat.place(t.reshape(-1)), (w, *self.args))
            return host_numbers(Ht)

        return LinearOperator((u.size, u.size), matvec=product, rmatvec=product, dtype=np.float64)

    def hessian(self, u: ndarray, v: ndarray) -> ndarray:
        """Return the Hessian of v times the values."""
        with quiet():
            H = self._hessian(self.flat.place(u), self.flat.xp.asarray(v), *self.args, **self.kwargs)
        return host_numbers(H)


def flat_bounds(call: str, flat: FlatStart, bounds):
    """Convert bounds to SciPy's for the vector; a dict maps names of the tree to (low, high)."""
    if not isinstance(bounds, dict):
        return bounds
    if not isinstance(flat.tree, dict):
        raise ArgumentError(
            f"{call}: bounds is a dict of names, so x0 must be a dict, too; it is {describe_tree(flat.tree)}"
        )
    low, high = _limits(call, "bounds", flat.tree, bounds)
    return scipy.optimize.Bounds(np.concatenate(low), np.concatenate(high))


def bounds_object(bounds):
    """Return bounds as `scipy.optimize.Bounds`, or None."""
    if bounds is None or isinstance(bounds, scipy.optimize.Bounds):
        return bounds
    low, high = zip(*bounds, strict=True)
    return scipy.optimize.Bounds(
        [-np.inf if b is None else b for b in low], [np.inf if b is None else b for b in high]
    )


def ordered_limits(call: str, what: str, low, high, size: int | None = None) -> tuple:
    """Return the limits as arrays, of this size if it is given.

    Raise if a lower limit is above the upper one, a limit is nan, or the shapes do not fit."""
    given = [np.asarray(b, float) for b in (low, high)]
    try:
        low, high, _ = np.broadcast_arrays(*given, np.empty(() if size is None else (size,)))
    except ValueError:
        raise ArgumentError(
            f"{call}: the limits of the {what} have shapes {given[0].shape} and {given[1].shape}"
            + ("" if size is None else f", for {size} values")
        ) from None
    for wrong, why in (
        (np.isnan(low) | np.isnan(high), "a limit that is nan; for no limit write numpy.inf"),
        (low > high, "a lower limit above the upper one"),
    ):
        if wrong.any():
            raise ArgumentError(f"{call}: the {what} number {int(np.argmax(wrong))} have {why}")
    return low, high


def _limits(call: str, path: str, tree, given) -> tuple[list, list]:
    """Return the lower and the upper bounds of each number of a tree."""
    if isinstance(tree, dict) and isinstance(given, dict):
        for name in given:
            if name not in tree:
                raise ArgumentError(f"{call}: {path} names {name!r}, and x0 has {', '.join(map(repr, tree))}")
        parts = [_limits(call, f"{path}[{name!r}]", member, given.get(name)) for name, member in tree.items()]
    elif is_node(tree) and given is None:
        parts = [_limits(call, path, member, None) for member in children(tree)]
    elif is_node(tree):
        raise ArgumentError(
            f"{call}: {path} must be a dict of names to (low, high), for x0 has {describe_tree(tree)} there"
        )
    elif not is_differentiable(tree):
        if given is not None:
            raise ArgumentError(
                f"{call}: {path} is for a constant of x0, {describe_tree(tree)}; a number that is varied is "
                f"a float"
            )
        return [], []
    else:
        try:
            low, high = (None, None) if given is None else given
            shape = np.shape(tree)
            return [_limit(low, -np.inf, shape)], [_limit(high, np.inf, shape)]
        except (TypeError, ValueError):
            raise ArgumentError(
                f"{call}: {path} = {given!r}; wanted (low, high), each a number, None, or an array that "
                f"fits shape {np.shape(tree)}"
            ) from None
    return sum([a for a, _ in parts], []), sum([b for _, b in parts], [])


def _limit(x, default: float, shape: tuple) -> ndarray:
    return np.broadcast_to(np.asarray(default if x is None else host_result(x), float), shape).ravel()


def callback_of(flat: FlatStart, callback: Callable | None) -> Callable | None:
    """Convert a callback that takes trees to one that SciPy calls with vectors."""
    if callback is None:
        return None
    if set(inspect.signature(callback).parameters) == {"intermediate_result"}:

        def shown(intermediate_result):
            return callback(
                intermediate_result=type(intermediate_result)(
                    {**intermediate_result, "x": flat(intermediate_result.x)}
                )
            )

        return shown
    return lambda x, *state: callback(flat(x), *state)
