"""`minimize_many`: thousands of small problems at once, compiled as kernels."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._core.arrays import to_host, xp_of
from .._core.errors import ArgumentError, NotScalarError, ShapeError
from .._core.registry import load
from .._core.scope import entry
from .._core.trees import leaves, tree_map
from .._transforms.hessian_products import hmp
from .._transforms.products import vjp
from ..kernels.generated.arguments import as_float, batch_of, kernel_name, stacked_rows
from ..kernels.generated.generated_kernel import GeneratedKernel, of_rows
from ..kernels.generated.kernel import likelihood
from ..kernels.generated.map import MapKernel
from ..kernels.trace.surroundings import rebuilt_with
from ..kernels.trace.symbolic import Sym
from ._batched import GRADIENT, ROUNDING, TEXTS, Bfgs, Newton, symmetric_eigenpairs
from ._flat import plain_call, plain_result


@dataclass(frozen=True, repr=False)
class BatchResults:
    """What each problem of a batch found and how it ended; the base class of results."""

    x: Any
    gradient: Any
    converged: Any
    status: Any
    iterations: Any
    evaluations: Any

    @property
    def message(self) -> np.ndarray:
        return np.array([TEXTS[int(s)] for s in to_host(self.status)])

    def __repr__(self) -> str:
        status = to_host(self.status)
        lines = [f"  {(status == s).sum()} {text}" for s, text in TEXTS.items() if (status == s).any()]
        return "\n".join([f"<{len(status)} problems, {int(self.converged.sum())} converged:", *lines]) + ">"


@dataclass(frozen=True, repr=False)
class ManyResult(BatchResults):
    """The results of `minimize_many`, for B problems of p parameters.

    Attributes
    ----------
    x : array of shape (p, B), or tree
        The minima, like X0.
    fun : array of shape (B,)
        The values.
    gradient : array or tree
        The gradients, like `x`.
    hessian : array of shape (B, p, p) or None
        The exact Hessians of Newton's method.
    inverse : array of shape (B, p, p)
        The inverse Hessians, nan where one is not positive definite; for BFGS its approximation.
    converged : array of bool, shape (B,)
        Whether each problem has converged.
    status, message : arrays of shape (B,)
        How each problem ended.
    iterations, evaluations : arrays of int, shape (B,)
        Counts.
    """

    fun: Any
    hessian: Any
    inverse: Any


@entry
def minimize_many(
    f: Callable,
    X0: Any,
    args: tuple = (),
    method: str = "newton",
    *,
    vectorized: bool = False,
    gtol: float | None = None,
    maxiter: int | None = None,
    client: Any = None,
    store: Any = None,
) -> ManyResult:
    """Minimise a function of one parameter vector from many starts, all at once.

    Each problem takes its own steps and ends by itself. Points where f is not finite are taken back.

    Parameters
    ----------
    f : callable or kernel
        ``f(x, *args)`` gets the parameters of one problem, of shape (p,), and its part of `args`, and returns
        a real scalar. It becomes a kernel; what it captures is common to all problems. It may be a kernel of
        `kernels.likelihood` or `recursion`, with ``args=(data,)``.
    X0 : array of shape (p, B), or tree
        The starts. A dict or dataclass has arrays (..., B).
    args : tuple, default ()
        Arrays (..., B), with the problem as the last axis.
    method : {'newton', 'bfgs'}, default 'newton'
        'newton' uses exact Hessians in trust regions, 'bfgs' gradients and line searches.
    vectorized : bool, default False
        Whether f is a differentiable function of the whole batch, from (p, B) and `args` to (B,), each column
        by itself.
    gtol : float, optional
        A problem has converged if the largest entry of its gradient is at most `gtol`, or if rounding allows
        no progress. The default is 1.5e-8 for Newton and 5e-7 for BFGS (in float32 3e-4 and 2e-3).
    maxiter : int, optional
        The largest number of steps. The default is 500.
    client : dask.distributed.Client or concurrent.futures.Executor, optional
        Who computes, in parts of 1,024 problems. Default: this process. What the function captures is
        pickled.
    store : path, optional
        A folder in which finished parts are kept. A later call with the same arguments reads them there, and
        computes only the rest.

    Returns
    -------
    ManyResult
        The results of all problems. A problem that fails keeps its last point, and its message says why.

    Raises
    ------
    ArgumentError
        If the method is unknown, or the arguments do not fit.

    See Also
    --------
    minimize : One problem, with SciPy's methods.
    tapegrad.parallel.run_parts : The scheduler behind `client` and `store`.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> f = lambda x, a: (x[0] - a) ** 2 + np.exp(x[1]) - x[1]
    >>> r = tg.optimize.minimize_many(f, np.ones((2, 3)), (np.array([1.0, 2.0, 3.0]),))
    >>> r.x.round(6) + 0.0
    array([[1., 2., 3.],
           [0., 0., 0.]])
    >>> r.converged
    array([ True,  True,  True])
    """
    if method not in ("newton", "bfgs"):
        raise ArgumentError(f"minimize_many: method={method!r}; it is 'newton' or 'bfgs'")
    if not isinstance(args, tuple):
        args = (args,)
    solve = partial(_minimized, f, method, vectorized, gtol, maxiter)
    if client is None and store is None:
        return solve((X0, args))
    return scheduled(solve, X0, args, client, store)


PROBLEMS_OF_PART = 1024


def _minimized(f: Callable, method: str, vectorized: bool, gtol, maxiter, part: tuple) -> ManyResult:
    """Return the results of some of the problems, a pair of starts and arguments."""
    X0, args = part
    rows, restore = start_columns(X0)
    objective = _objective(f, rows, restore, args, vectorized)
    return solve_many(
        objective.value_and_grad, objective.hessian, rows, method, gtol=gtol, maxiter=maxiter, restore=restore
    )


def scheduled(solve: Callable, X0, args: tuple, client, store, limits=None):
    """Return the results of solve((starts, arguments)) for parts of `PROBLEMS_OF_PART` problems, joined.

    With `limits`, (low, high) of shape (p, B), a part holds its limits as well."""
    count = start_columns(X0)[0].shape[1]
    given, host = [to_host(a) for a in plain_call(args)], tree_map(to_host, X0)
    parts = []
    for k in range(0, count, PROBLEMS_OF_PART):
        at = slice(k, k + PROBLEMS_OF_PART)
        part = (tree_map(lambda x, at=at: x[..., at], host), tuple([columns_of(a, at) for a in given]))
        parts.append(part if limits is None else (*part, tuple([to_host(b)[:, at] for b in limits])))
    return _joined(load("tapegrad.parallel.workers").run_parts(solve, parts, client, store=store))


def columns_of(a, at: slice):
    """Return the columns of some problems; a number, or a last axis of length 1, is for all of them."""
    return a[..., at] if np.ndim(a) and np.shape(a)[-1] > 1 else a


def _joined(results: list):
    """Return the results of all parts together."""

    def joined(trees: list, axis: int):
        columns = iter(
            [np.concatenate(column, axis=axis) for column in zip(*map(leaves, trees), strict=True)]
        )
        return tree_map(lambda _: next(columns), trees[0])

    kind = type(results[0])
    fields = {name: [getattr(r, name) for r in results] for name in kind.__dataclass_fields__}
    known = {name: trees for name, trees in fields.items() if trees[0] is not None}
    ends = {name: joined(trees, 0 if name in ("hessian", "inverse") else -1) for name, trees in known.items()}
    return kind(**{**dict.fromkeys(fields), **ends})


@entry
def solve_many(
    value_and_grad: Callable,
    hessian,
    X0,
    method: str = "newton",
    *,
    gtol: float | None = None,
    maxiter: int | None = None,
    restore: Callable = lambda rows: rows,
) -> ManyResult:
    """Run `minimize_many` on an objective that is given by its derivatives.

    `value_and_grad(X, which)` returns arrays (b,) and (p, b), `hessian(X, which)` returns (b, p, p). X (p, b)
    holds the points of the problems with the numbers `which` (b,)."""
    xp, eps = xp_of(X0), float(np.finfo(X0.dtype).eps)
    limit = 500 if maxiter is None else maxiter
    if not limit > 0:
        raise ArgumentError(f"minimize_many: maxiter={maxiter!r}; it is a whole number above 0")
    if gtol is not None and not gtol >= 0:
        raise ArgumentError(f"minimize_many: gtol={gtol!r}; it is a number, 0 or above")
    if method == "newton":
        problems: Any = Newton(value_and_grad, hessian, X0, xp, eps**0.5 if gtol is None else gtol, limit)
    else:
        problems = Bfgs(value_and_grad, X0, xp, eps**0.4 if gtol is None else gtol, limit)
    found = problems.solved()
    H = found["H"] if method == "newton" else None
    return ManyResult(
        x=restore(found["x"].T.astype(X0.dtype)),
        fun=found["f"].astype(X0.dtype),
        gradient=restore(found["g"].T.astype(X0.dtype)),
        hessian=H,
        inverse=found["B"] if H is None else _inverse(xp, H),
        converged=(found["status"] == GRADIENT) | (found["status"] == ROUNDING),
        status=found["status"],
        iterations=found["iterations"],
        evaluations=found["evaluations"],
    )


def _inverse(xp, H):
    w, Q = symmetric_eigenpairs(H, xp)
    definite = w[:, 0] > w.shape[1] * np.finfo(float).eps * abs(w).max(axis=1)
    w = xp.where(definite[:, None], w, np.nan)
    return (Q / w[:, None, :]) @ Q.mT


def start_columns(X0, call: str = "minimize_many", single: str = "minimize") -> tuple:
    """Return the starting points as rows, (p, B), and the function from rows to a tree like X0."""
    tree = (
        X0 if isinstance(X0, dict) or hasattr(X0, "_fields") or hasattr(X0, "__dataclass_fields__") else None
    )
    parts = [as_float(plain_result(x), f"{call}: X0") for x in (leaves(X0) if tree is not None else [X0])]
    if tree is None:
        (rows,) = parts
        if rows.ndim != 2:
            raise ShapeError(
                f"{call}: X0 has shape {tuple(rows.shape)}; wanted is (p, B), a row for each parameter and a "
                f"column for each problem. For a single problem use tapegrad.optimize.{single}"
            )
        return rows.copy(), lambda rows: rows
    batch, xp = batch_of(f"{call}: X0", parts), next((xp_of(x) for x in parts if xp_of(x) is not np), np)
    return stacked_rows(parts, batch, np.result_type(*[x.dtype for x in parts]), xp), of_rows(parts, tree)[1]


def float_arrays(what: str, args: tuple, rows) -> list:
    """Return the arguments as arrays of floats in the library of the starts."""
    given = [as_float(plain_result(a), f"{what}[{k}]") for k, a in enumerate(plain_call(args))]
    return [a if a.ndim else xp_of(rows).asarray(a) for a in given]  # numbers fit any library


def check_problems(what: str, given: list, batch: int) -> None:
    """Raise if the last axis of an array is not the problem."""
    for k, a in enumerate(given):
        if a.ndim and a.shape[-1] != batch:
            raise ShapeError(
                f"{what}[{k}] has shape {tuple(a.shape)}; its last axis is the problem, and X0 has {batch}. "
                f"What all problems share is captured: leave it out of {what.split()[-1]}"
            )


def _objective(f: Callable, rows, restore: Callable, args: tuple, vectorized: bool):
    given, batch = float_arrays("minimize_many: args", args, rows), rows.shape[1]
    if isinstance(f, GeneratedKernel) and not vectorized:
        if len(given) != 1:
            raise ArgumentError(
                f"minimize_many: {f!r} takes its data by args=(data,), and got {len(given)} arguments"
            )
        return KernelProblem(f, given[0])
    check_problems("minimize_many: args", given, batch)
    if vectorized:
        return VectorizedProblem(lambda X, *more: f(restore(X), *more), given)
    f = f.f if isinstance(f, MapKernel) else f  # a kernel of one problem
    return KernelProblem(*_kernel(f, restore, given, batch, xp_of(rows)))


def _kernel(f: Callable, restore: Callable, args: list, batch: int, xp) -> tuple:
    """Return f as a kernel with one datum for each problem, and these data, (d, 1, B).

    The datum of a problem holds its arguments."""
    shapes, of_datum = of_rows(args, args)

    def one(theta, datum):
        y = f(restore(theta), *of_datum(datum))
        if isinstance(y, Sym) and y.size != 1:
            raise NotScalarError(
                f"minimize_many: {kernel_name(f)} returned shape {y.shape}; it gives one number for one "
                f"problem, such as y.sum()"
            )
        return y

    rebuilt_with(one, f).__name__ = kernel_name(f)
    data = (
        stacked_rows(args, batch, np.dtype(float), xp)[:, None, :]
        if sum(map(math.prod, shapes))
        else xp.zeros(1)
    )
    return likelihood(one, missing="step", invalid="nan"), data


@dataclass
class KernelProblem:
    """A kernel and its data; each problem may have data of its own."""

    kernel: GeneratedKernel
    data: Any
    last: tuple = (None, None)

    def of(self, which):
        if self.data.ndim < 3 or len(which) == self.data.shape[2]:
            return self.data
        if self.last[0] is not which:
            self.last = which, self.data[:, :, which]
        return self.last[1]

    def value_and_grad(self, X, which) -> tuple:
        return self.kernel.value_and_grad(X, self.of(which))

    def hessian(self, X, which):
        return self.kernel.hessian(X, self.of(which))


@dataclass
class VectorizedProblem:
    """A differentiable function of the whole batch; value b depends on column b of the parameters alone."""

    f: Callable
    args: list

    def of(self, which) -> list:
        return [a[..., which] if a.ndim else a for a in self.args]

    def value_and_grad(self, X, which) -> tuple:
        f, pullback = vjp(self.f, X, *self.of(which))
        f = plain_result(f)
        if tuple(f.shape) != X.shape[1:]:
            raise ShapeError(
                f"minimize_many: with vectorized=True f returned shape {tuple(f.shape)} for {X.shape[1]} "
                f"problems, wanted ({X.shape[1]},)"
            )
        g = pullback(xp_of(f).ones(f.shape, f.dtype))
        return f, g[0] if self.args else g

    def hessian(self, X, which):
        p, n = X.shape
        xp = xp_of(X)
        units = xp.broadcast_to(xp.eye(p, dtype=X.dtype)[:, :, None], (p, p, n))
        return hmp(lambda X, *args: self.f(X, *args).sum(), X, units, tuple(self.of(which))).transpose(
            (2, 0, 1)
        )
