"""Ipopt for `minimize`, with exact sparse derivatives of the Lagrangian.

The package ipyopt brings Ipopt. Jacobian and Hessian are filled into the solver's own memory."""

import math
from collections.abc import Callable

import numpy as np
import scipy.optimize
import scipy.sparse
from numpy import ndarray
from scipy.optimize import OptimizeResult

from .._core.errors import ArgumentError, ConvergenceError
from .._core.registry import load
from .._core.scope import OPEN, changed
from .._transforms.gradient import value_and_grad
from ._constraints import bounds_of_dict
from ._flat import FlatStart, Values, host_result, ordered_limits

KEPT_BYTES = 1 << 22  # free memory that the process keeps for the next solution, about
INFINITE = 2e19  # a bound that Ipopt takes for none
# Ipopt relaxes bounds while it runs and restores them at the end, which leaves constraints violated there.
SETTINGS = {"print_level": 0, "sb": "yes", "print_user_options": "no", "bound_relax_factor": 0.0}
STATUSES = {
    0: "Ipopt converged to the tolerance",
    1: "not converged: Ipopt stopped at its acceptable level, which is above tol",
    2: "not converged: Ipopt found a point that is locally infeasible; the constraints may contradict each "
    "other",
    3: "not converged: the search direction became too small",
    4: "not converged: the iterates diverge",
    5: "stopped by the user",
    6: "a feasible point was found",
    -1: "not converged: max_iter iterations were not enough",
    -2: "not converged: the restoration phase failed",
    -3: "not converged: no step could be computed; the KKT system may be singular",
    -4: "not converged: the time was not enough",
    -10: "not converged: there are more equality constraints than unknowns",
    -11: "not converged: the problem is not well defined",
    -12: "Ipopt does not know an option",
    -13: "not converged: a value or a derivative is not finite",
}


class ConstraintBlock:
    """One constraint: its values, its bounds, and the entries of its Jacobian."""

    def __init__(self, flat: FlatStart, given, compile):
        self.values: Values | None = None
        if isinstance(given, scipy.optimize.LinearConstraint):
            self.matrix = scipy.sparse.csr_array(
                np.atleast_2d(given.A) if not scipy.sparse.issparse(given.A) else given.A
            )
            low, high, self.size = given.lb, given.ub, self.matrix.shape[0]
            if self.matrix.shape[1] != flat.start.size:
                raise ArgumentError(
                    f"minimize: a LinearConstraint has {self.matrix.shape[1]} columns for {flat.start.size} "
                    f"unknowns"
                )
            rows = np.repeat(np.arange(self.size), np.diff(self.matrix.indptr))
            self.places = rows, self.matrix.indices
        else:
            fun, args, low, high, own = constraint_parts(given)
            if callable(own):
                raise ArgumentError(
                    "minimize: method='ipopt' takes exact derivatives of constraints; leave jac away"
                )
            self.values = Values("minimize", fun, flat, args)
            self.size = self.values(flat.start).size
            self.plan = load("tapegrad.sparse._renewed").FixedPattern(
                "jacobian", self.values._f, flat.place(flat.start), rest=self.values.args, compile=compile
            )
            self.places = self.plan.places
        limits = ordered_limits("minimize", "constraints", low, high, self.size)
        self.low, self.high = [np.clip(b, -INFINITE, INFINITE) for b in limits]

    def fill_jacobian(self, x, out: ndarray) -> None:
        if self.values is None:
            out[:] = self.matrix.data
        else:
            self.plan.fill(out, x)


def constraint_parts(given) -> tuple:
    """Return (function, arguments, lower bound, upper bound, own Jacobian) of a nonlinear constraint."""
    if isinstance(given, scipy.optimize.NonlinearConstraint):
        return given.fun, (), given.lb, given.ub, given.jac
    if isinstance(given, dict) and callable(given.get("fun")):
        return given["fun"], given.get("args", ()), *bounds_of_dict("minimize", given), given.get("jac")
    raise ArgumentError(
        f"minimize: a constraint is a {type(given).__name__}; wanted is a dict, a LinearConstraint or a "
        f"NonlinearConstraint"
    )


class IpoptProblem:
    """An objective with bounds and constraints: the places and the plans of its derivatives."""

    def __init__(self, objective, bounds, constraints, compile):
        self.objective, flat = objective, objective.flat
        self.place, n = flat.place, flat.start.size
        given = constraints if isinstance(constraints, (list, tuple)) else [constraints]
        self.blocks = [ConstraintBlock(flat, c, compile) for c in given]
        self.ends = np.cumsum([0, *[b.size for b in self.blocks]])
        self.spans = list(zip(self.blocks, self.ends.tolist(), self.ends[1:].tolist(), strict=False))
        self.low, self.high = np.full(n, -INFINITE), np.full(n, INFINITE)
        if bounds is not None:
            self.low, self.high = [
                np.clip(np.broadcast_to(b, n), -INFINITE, INFINITE) for b in (bounds.lb, bounds.ub)
            ]
        self.joined: list[ndarray] = [
            np.concatenate([np.zeros(0), *[getattr(b, name) for b in self.blocks]])
            for name in ("low", "high")
        ]
        nonlinear = [b.values for b in self.blocks if b.values is not None]
        at = np.cumsum([0, *[len(a) for a in (objective.args, *[g.args for g in nonlinear])]])
        functions, spans = [g._f for g in nonlinear], list(zip(at[1:], at[2:], strict=False))
        first, sizes = objective._f, np.cumsum([0, *[b.size for b in self.blocks if b.values is not None]])

        def lagrangian(u, v, weight, *args):
            total = weight * first(u, *args[: at[1]])
            for k, (f, (a, b)) in enumerate(zip(functions, spans, strict=True)):
                total = total + (v[sizes[k] : sizes[k + 1]] * f(u, *args[a:b])).sum()
            return total

        def evaluated(u, *args):
            y, g = value_and_grad(first)(u, *args[: at[1]])
            return y, g, *[f(u, *args[a:b]) for f, (a, b) in zip(functions, spans, strict=True)]

        curved = [np.arange(a, b) for g, a, b in self.spans if g.values is not None]
        # the multipliers of nonlinear constraints
        self.curved = (
            slice(None) if len(curved) == len(self.blocks) else np.concatenate([np.zeros(0, int), *curved])
        )
        self.constraint_args = tuple([a for g in nonlinear for a in g.args])
        rest = (*objective.args, *self.constraint_args)
        # objective, gradient and constraints, which Ipopt asks for at the same points
        self.evaluated = load("tapegrad.replay").prepare(
            evaluated, self.place(flat.start), *rest, compile=compile
        )
        weights = self.place(np.ones(sizes[-1])), np.float64(1.0)
        self.hessian = load("tapegrad.sparse._renewed").FixedPattern(
            "hessian", lagrangian, self.place(flat.start), *weights, rest=rest, compile=compile
        )
        rows, cols = self.hessian.places
        self.lower = np.flatnonzero(rows >= cols)
        # lists, which ipyopt reads ten times faster than arrays
        self.lower_places = rows[self.lower].tolist(), cols[self.lower].tolist()
        placed = [(b.places[0] + a, b.places[1]) for b, a, _ in self.spans]
        self.jacobian_places = tuple(
            [np.concatenate([np.zeros(0, int), *[at[k] for at in placed]]).tolist() for k in (0, 1)]
        )

    def solved(self, run: "IpoptRun", start: ndarray, args: tuple, warm) -> OptimizeResult:
        """Solve the problem from a start.

        `args` are the function and its arguments; `warm` is an earlier result or None."""
        n, m = start.size, int(self.ends[-1])
        multipliers, lower, upper = np.zeros(m), np.zeros(n), np.zeros(n)
        if warm is not None:
            start, multipliers, lower, upper = warm_point(warm, n, m)
        with np.errstate(all="ignore"), changed(compared=set()):
            run.begin(args)
            run.prepare(start)
            if not np.isfinite(run.value(start)):
                raise ConvergenceError(
                    f"minimize: the function is not finite at the starting point {start}; start elsewhere"
                )
            x, fun, status = run.solver.solve(
                start.copy(), mult_g=multipliers, mult_x_L=lower, mult_x_U=upper
            )
            if run.error is not None:
                raise run.error
            values = np.zeros(m)
            run.constraint_values(x, values)
        excess = np.maximum(self.joined[0] - values, values - self.joined[1])
        message = STATUSES.get(status, f"not converged: Ipopt ended with status {status}")
        return OptimizeResult(
            x=x, fun=float(fun), success=status == 0, status=int(status), message=message, nit=run.steps,
            constr_violation=float(np.maximum.reduce(excess, initial=0.0)), evaluations=run.evaluations, hessians=run.hessians, products=0,
            multipliers=[multipliers[a:b] for _, a, b in self.spans], bound_multipliers=(lower, upper),
        )  # fmt: skip


class IpoptRun:
    """The callbacks of a solution, and Ipopt's solver that calls them, for one solution after the other.

    The callbacks share the point, which Ipopt asks about several times."""

    def __init__(self, problem: IpoptProblem, options: dict):
        self.problem = problem
        self.whole = np.empty(problem.hessian.places[0].size)  # the entries of the Hessian
        self.entries = np.empty(len(problem.jacobian_places[0]))  # those of the Jacobian, block by block
        ends = np.cumsum([0, *[b.places[0].size for b in problem.blocks]])
        self.parts = [(b, self.entries[i:j]) for b, i, j in zip(problem.blocks, ends, ends[1:], strict=False)]
        self.begin(())
        self.solver = self.ipopt(options)
        # A large block that is freed makes the C library keep memory that each solution needs again: what
        # glibc returns to the system costs a tenth of a small solution in page faults.
        np.empty(KEPT_BYTES, np.uint8)

    def begin(self, args: tuple) -> None:
        """Begin a solution; `args` are the function and its arguments."""
        self.args = (*args, *self.problem.constraint_args)
        self.error: BaseException | None = None  # the first exception of a callback
        self.key: bytes | None = None  # the point as bytes
        self.x = None  # the point in the library of the unknowns
        self.known: tuple | None = None  # value, gradient and nonlinear constraints there
        self.filled = False  # are `entries` those of the Jacobian there?
        self.unchecked: Callable | None = None  # what replays the evaluation in this solution
        self.steps = self.evaluations = self.hessians = 0

    def at(self, u: ndarray):
        """Return the point in the library of the unknowns."""
        key = u.tobytes()
        if key != self.key:
            self.key = key
            self.x = self.problem.place(u)
            self.known = None
            self.filled = False
        return self.x

    def evaluated(self, u: ndarray) -> tuple:
        """Return (value, gradient, values of each nonlinear constraint)."""
        x = self.at(u)
        if self.known is None:
            self.evaluations += 1
            found = self.unchecked(x) if self.unchecked is not None and OPEN.compared is not None else None
            y, *more = self.computed(x) if found is None else found
            more = [g if type(g) is ndarray else host_result(g) for g in more]
            y = float(host_result(y))
            self.known = (y, *more) if math.isfinite(y) else (math.inf, np.nan, *more[1:])
        return self.known

    def prepare(self, start: ndarray) -> None:
        """Compare what the replays read, once for the solution."""
        form = self.problem.evaluated.forms["value"]
        self.unchecked = form.unchecked((self.at(start), *self.args))

    def computed(self, x) -> tuple:
        """Return the same by a call of the prepared function."""
        form, args = self.problem.evaluated.forms["value"], (x, *self.args)
        try:
            found = form(args)
        except np.linalg.LinAlgError:
            return (math.inf, *[np.nan] * (1 + len(self.problem.blocks)))
        self.unchecked = form.unchecked(args)
        return found

    def value(self, u: ndarray) -> float:
        return self.evaluated(u)[0]

    def gradient(self, u: ndarray, out: ndarray) -> None:
        out[:] = self.evaluated(u)[1]

    def constraint_values(self, u: ndarray, out: ndarray) -> None:
        nonlinear = iter(self.evaluated(u)[2:])
        for block, a, b in self.problem.spans:
            out[a:b] = block.matrix @ u if block.values is None else next(nonlinear)

    def jacobian(self, u: ndarray, out: ndarray) -> None:
        x = self.at(u)
        if not self.filled:  # Ipopt asks twice at the start
            for block, entries in self.parts:
                block.fill_jacobian(x, entries)
            self.filled = True
        out[:] = self.entries

    def lower_hessian(self, u: ndarray, v: ndarray, weight: float, out: ndarray) -> None:
        self.hessians += 1
        p = self.problem
        p.hessian.fill(self.whole, self.at(u), p.place(v[p.curved]), np.float64(weight), rest=self.args)
        self.whole.take(p.lower, out=out, mode="clip")  # with 'raise' NumPy makes a copy

    def count(self, mode: int, iteration: int, *rest) -> bool:
        self.steps = iteration
        return self.error is None

    def guarded(self, f: Callable) -> Callable:
        """Return f for Ipopt, which must not see an exception: the first one is kept, and Ipopt gets nan."""

        def run(*args):
            if self.error is None:
                try:
                    return f(*args)
                except BaseException as error:  # an interrupt, too
                    self.error = error
            if len(args) > 1:
                args[-1][:] = np.nan
            return np.nan

        return run

    def ipopt(self, options: dict):
        """Return the problem as an object of ipyopt."""
        p = self.problem
        asked = self.value, self.gradient, self.constraint_values, self.jacobian, self.lower_hessian
        try:
            return load("ipyopt").Problem(
                p.low.size,
                p.low,
                p.high,
                int(p.ends[-1]),
                *p.joined,
                p.jacobian_places,
                p.lower_places,
                *[self.guarded(f) for f in asked],
                self.count,
                ipopt_options={**SETTINGS, **options},
            )
        except ModuleNotFoundError as error:
            raise ArgumentError(
                "minimize: method='ipopt' needs the package ipyopt: pip install ipyopt, or 'tapegrad[ipopt]'"
            ) from error
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"minimize: Ipopt refuses the problem or an option: {error}") from error


def warm_point(warm, n: int, m: int) -> tuple:
    """Return the point and the multipliers of an earlier result."""
    try:
        lower, upper = [np.array(v, float) for v in warm.bound_multipliers]
        found = np.array(warm.flat, float), np.concatenate([np.zeros(0), *warm.multipliers]), lower, upper
    except AttributeError as error:
        raise ArgumentError(
            "minimize: options['warm_start'] is a result of an earlier minimize(method='ipopt')"
        ) from error
    if found[0].size != n or found[1].size != m:
        raise ArgumentError(
            f"minimize: options['warm_start'] has {found[0].size} unknowns and {found[1].size} constraints, "
            f"not {n} and {m}"
        )
    return found
