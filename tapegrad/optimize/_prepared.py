"""Minima of one function under constraints, for many starts: what Ipopt asks for is prepared once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from .._core.arrays import is_differentiable
from .._core.errors import ArgumentError
from .._core.pickling import PickledByCall
from .._core.primitive import layout_of
from .._core.scope import entry
from .._core.trees import Const, leaves, paths, tuple_of
from ._flat import FlatStart, bounds_object, flat_bounds, ordered_limits
from ._ipopt import IpoptProblem, IpoptRun
from ._objective import Objective, moved_inside_bounds, with_likelihood_estimates

WARM = {"warm_start_init_point": "yes", "mu_init": 1e-6}


def is_alike(a, b) -> bool:
    """Return whether leaves of two starts have one shape, or are the same constant."""
    if is_differentiable(layout_of(a)) and is_differentiable(layout_of(b)):
        return np.shape(a) == np.shape(b)
    return a is b or type(a) is type(b) and type(a) is not Const and np.array_equal(a, b)


class PreparedMinimize(PickledByCall):
    """A problem for Ipopt, made by `prepare_minimize`; call it as ``problem(x0)``."""

    def __init__(
        self,
        f: Callable,
        x0,
        args: tuple,
        bounds,
        constraints,
        tol,
        options: dict,
        compile=True,
    ):
        self.given = f, x0, args, bounds, constraints, tol, options, compile
        self.objective = Objective(f, x0, args)
        self.bounds = bounds_object(flat_bounds("minimize", self.objective.flat, bounds))
        if self.bounds is not None:
            ordered_limits("minimize", "bounds", self.bounds.lb, self.bounds.ub, self.objective.start.size)
        self.constraints, self.options = constraints, dict(options)
        if "maxiter" in self.options:
            self.options["max_iter"] = self.options.pop("maxiter")
        if tol is not None:
            self.options["tol"] = float(tol)
        with np.errstate(all="ignore"):
            self.problem = IpoptProblem(self.objective, self.bounds, constraints, compile)
        self.idle: tuple[list, list] = [], []  # solvers for cold and for warm starts

    def _made(self) -> tuple:
        return PreparedMinimize, self.given

    def start_of(self, x0: Any) -> np.ndarray:
        """Return a start as a vector; raise if its tree differs from the prepared one."""
        known, found = self.objective.flat, FlatStart("prepare_minimize", x0)
        if (
            paths(found.tree) != paths(known.tree)
            or found.xp is not known.xp
            or not all([is_alike(a, b) for a, b in zip(leaves(found.tree), leaves(known.tree), strict=True)])
        ):
            raise ArgumentError(
                "prepare_minimize: x0 differs from that of the preparation in its tree, shapes or constants"
            )
        return found.start

    def solved(self, start: np.ndarray, args: tuple, warm: Any) -> OptimizeResult:
        """Solve from a start by a solver that is kept."""
        idle = self.idle[warm is not None]
        try:
            run = idle.pop()  # no other thread uses it
        except IndexError:
            run = IpoptRun(self.problem, self.options if warm is None else {**WARM, **self.options})
        result = self.problem.solved(run, start, args, warm)
        idle[:] = [run]
        return result

    @entry
    def __call__(
        self, x0: Any = None, args: tuple | None = None, *, warm_start: Any = None
    ) -> OptimizeResult:
        """Solve the problem.

        Parameters
        ----------
        x0 : array, number or tree, optional
            The start, like the prepared one, which is the default.
        args : tuple, optional
            Further arguments of f; the prepared ones by default.
        warm_start : OptimizeResult, optional
            An earlier result, whose point and multipliers are the start.

        Returns
        -------
        scipy.optimize.OptimizeResult
            As from ``minimize(method="ipopt")``.
        """
        objective = self.objective
        f, *known = objective.args
        rest = tuple(known) if args is None else tuple_of(args)
        start = moved_inside_bounds(objective.start if x0 is None else self.start_of(x0), self.bounds)
        result = self.solved(start, (f, *rest), warm_start)
        result.flat = np.asarray(result.x)
        result.x = objective.flat(result.flat)
        if args is not None:
            objective = Objective(self.given[0], self.given[1], args)
        return with_likelihood_estimates(result, objective, self.bounds, self.constraints)


@entry
def prepare_minimize(
    f: Callable,
    x0: Any,
    args: tuple = (),
    *,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    options: dict | None = None,
) -> PreparedMinimize:
    """Prepare the minimisation of one function by Ipopt, for many starts and arguments.

    Patterns, colours and recordings are found once. A call costs the solution alone. Captured arrays are read
    anew at each call.

    Parameters
    ----------
    f, x0, args, bounds, constraints, tol, options : object
        As for ``minimize(method="ipopt")``.

    Returns
    -------
    PreparedMinimize
        ``problem(x0, args, warm_start=result)`` solves the problem, by default from the prepared start.

    Raises
    ------
    ArgumentError
        If ipyopt is not installed, or in a call, if x0 has another tree or shape.
    ConvergenceError
        In a call, if f is not finite at x0.
    GuardError
        In a call, if f takes a branch whose derivatives have entries that the prepared branch lacks.

    See Also
    --------
    minimize : For one start.
    constrained_minimum : The minimum as a function that transforms differentiate.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> f = lambda x, a: ((x - a) ** 2).sum()
    >>> problem = tg.optimize.prepare_minimize(f, np.zeros(2), (1.0,), bounds=[(0, 2), (0, 2)])
    >>> problem().x.round(6), problem(np.ones(2), (3.0,)).x.round(6)
    (array([1., 1.]), array([2., 2.]))
    """
    return PreparedMinimize(f, x0, args, bounds, constraints, tol, options or {})
