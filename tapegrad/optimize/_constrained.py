"""Minima under constraints as differentiable functions of parameters, by the KKT system.

The solution solves stationarity, equalities, and multiplier times gap = mu for each inequality, with mu as
the interior point left it. So an inequality has the weight multiplier by gap, and no threshold makes it
active. Where both are small, the solution is not differentiated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as plain_np
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg

from .. import numpy as np
from .._core.errors import ArgumentError, ConvergenceError
from .._core.primitive import values_of
from .._core.registry import SHADOW_MAKERS, load
from .._core.scope import OPEN, entry
from .._core.trees import Const, tree_map
from .._transforms.arguments import user_name
from .._transforms.gradient import grad
from .._transforms.tape import value
from ..implicit import root
from ..implicit.systems import DENSE_JACOBIAN_UNKNOWNS
from ._constraints import bounds_of_dict
from ._flat import FlatStart, flat_bounds, flatten_result
from ._minimize import bounds_object, minimize

# The interior point goes to the end.
TIGHT = {"tol": 1e-11, "compl_inf_tol": 1e-13, "mu_min": 1e-15}
CALL = "constrained_minimum"
LARGEST_RESIDUAL = 1e-6  # of the gradient of the Lagrangian, and of equalities
CLEAR = 1e3  # least ratio of multiplier and gap, or of gap and multiplier, of an inequality


def limits_of_constraint(given) -> tuple:
    """Return (function of x and the parameters, lower limit, upper limit)."""
    if isinstance(given, scipy.optimize.NonlinearConstraint):
        return given.fun, given.lb, given.ub
    if isinstance(given, scipy.optimize.LinearConstraint):
        A = given.A
        return (lambda x, *params: A @ x), given.lb, given.ub
    if isinstance(given, dict) and callable(given.get("fun")) and not given.get("args"):
        return given["fun"], *bounds_of_dict("constrained_minimum", given)
    raise ArgumentError(
        f"constrained_minimum: a constraint is a {type(given).__name__}; wanted is a NonlinearConstraint, a "
        "LinearConstraint or a dict with type and fun; its function takes the parameters after x"
    )


def complementarity(z, gap):
    """Return zero, with the derivative of what holds between multiplier and gap.

    That of z gap = mu is z dgap + gap dz = 0. The smaller weight is reduced by the ratio of both once more,
    as if the interior point had gone further."""
    weight, other = abs(value(z)), abs(value(gap))
    ratio = (weight + 1e-300) / (other + 1e-300)
    moved = gap * (weight * plain_np.minimum(1.0, ratio)) + z * (
        other * plain_np.minimum(1.0, 1 / ratio)
    ) * plain_np.sign(value(z) + 1e-300)
    return moved - value(moved)


class KktSystem:
    """The KKT conditions of one minimum.

    The unknowns are x as a vector, the multipliers of the constraints, and those of finite bounds."""

    def __init__(self, flat: FlatStart, bounds, constraints: tuple, each: list, params: tuple):
        self.flat, n = flat, flat.start.size
        low, high = (-plain_np.inf, plain_np.inf) if bounds is None else (bounds.lb, bounds.ub)
        low, high = [plain_np.broadcast_to(plain_np.asarray(b, float), n) for b in (low, high)]
        self.below, self.above = [plain_np.flatnonzero(plain_np.isfinite(b)) for b in (low, high)]
        self.bounds = (low, high)
        self.low = low[self.below]
        self.high = high[self.above]
        sizes = [flatten_result(g(flat(flat.start), *params)).size for g in constraints]
        limits = [
            plain_np.concatenate(
                [
                    plain_np.zeros(0),
                    *[plain_np.broadcast_to(c[k], m) for c, m in zip(each, sizes, strict=True)],
                ]
            )
            for k in (0, 1)
        ]
        self.limits, self.equal = limits, limits[0] == limits[1]
        self.numbers = [plain_np.searchsorted(at, plain_np.arange(n)) for at in (self.below, self.above)]
        for k, at in enumerate((self.below, self.above)):
            self.numbers[k][~plain_np.isin(plain_np.arange(n), at)] = at.size

    def constraints(self, u, functions: tuple, params: tuple):
        parts = [flatten_result(g(self.flat.restore(u), *params)) for g in functions]
        return np.concatenate(parts) if parts else plain_np.zeros(0)

    def gaps(self, c, multipliers):
        """Return the distances to the limits that the multipliers belong to; for equalities what is
        missing."""
        low, high = self.limits
        upper = ~self.equal & plain_np.isfinite(high) & (~plain_np.isfinite(low) | (multipliers > 0))
        return plain_np.where(upper, -1.0, 1.0) * (c - plain_np.where(upper, high, low))

    def lagrangian(self, u, multipliers, functions: tuple, *params):
        total = functions[0](self.flat.restore(u), *params)
        return (
            total + (multipliers * self.constraints(u, functions[1:], params)).sum()
            if len(functions) > 1
            else total
        )

    def residuals(self, w: tuple, functions: tuple, *params) -> tuple:
        u, multipliers, lower, upper = w

        def lagrangian(u):
            return self.lagrangian(u, multipliers, functions, *params)

        slope = grad(Const(lagrangian) if OPEN.depth else lagrangian)(u)
        for z, number, sign in ((lower, self.numbers[0], -1.0), (upper, self.numbers[1], 1.0)):
            slope = slope + sign * np.concatenate([z, plain_np.zeros(1)])[number]
        gaps = self.gaps(self.constraints(u, functions[1:], params), value(multipliers))
        pairs = [(multipliers, gaps), (lower, u[self.below] - self.low), (upper, self.high - u[self.above])]
        first, *rest = [complementarity(z, gap) for z, gap in pairs]
        return slope, np.where(self.equal, gaps, first), *rest

    def check_clear(self, w: tuple, functions: tuple, params: tuple) -> None:
        """Raise where gap and multiplier of an inequality are both small."""
        u, multipliers, lower, upper = w
        slope = grad(lambda u: functions[0](self.flat.restore(u), *params))(u)
        size = 1.0 + float(abs(slope).max(initial=0.0))
        gaps = self.gaps(self.constraints(u, functions[1:], params), multipliers)
        for what, z, gap, reach in (
            ("constraint", multipliers, plain_np.where(self.equal, plain_np.inf, gaps), 1.0),
            ("lower bound", lower, u[self.below] - self.low, 1.0 + abs(self.low)),
            ("upper bound", upper, self.high - u[self.above], 1.0 + abs(self.high)),
        ):
            z, gap = abs(z) / size + 1e-300, abs(gap) / reach + 1e-300
            unclear = plain_np.maximum(z / gap, gap / z) < CLEAR
            if unclear.any():
                k = int(plain_np.argmax(unclear))
                raise ConvergenceError(
                    f"constrained_minimum: the distance to {what} number {k} ({gap[k]:.1e}) and its "
                    f"multiplier ({z[k]:.1e}) are both "
                    "small: the solution has a kink in the parameters here, or nearly one, and no derivative"
                )


class SparseSystem:
    """Solves KKT systems of one pattern: the matrix from coloured products, and its sparse LU factor."""

    def __init__(self, kkt: KktSystem, start: tuple, functions: tuple, params: tuple):
        """Find the pattern, which is symmetric, and its colours."""
        self.known: tuple = (None, None)  # an operator, and its factor
        u, multipliers, lower, upper = start
        n = u.size
        m = multipliers.size
        fixed = load("tapegrad.sparse._renewed").FixedPattern
        a, b = fixed("hessian", kkt.lagrangian, u, multipliers, rest=(functions, *params)).places
        parts = [(a, b)]
        if m:
            c, d = fixed("jacobian", kkt.constraints, u, rest=(functions[1:], params)).places
            parts += [(n + c, d), (d, n + c)]
        bounded = plain_np.concatenate([kkt.below, kkt.above])
        number = n + m + plain_np.arange(lower.size + upper.size)
        every = plain_np.arange(n + m + number.size)
        parts += [(bounded, number), (number, bounded), (every, every)]
        rows, columns = [plain_np.concatenate([p[k] for p in parts]) for k in (0, 1)]
        pattern = scipy.sparse.csr_array(
            (plain_np.ones(rows.size), (rows, columns)), shape=(every.size, every.size)
        )
        self.rows, self.columns = pattern.nonzero()
        self.colours = load("tapegrad.sparse").coloring(pattern).columns

    def __call__(self, A, b):
        if self.known[0] is not A:
            seeds = plain_np.zeros((A.shape[0], int(self.colours.max()) + 1))
            seeds[plain_np.arange(A.shape[0]), self.colours] = 1.0
            products = plain_np.stack([A.matvec(seed) for seed in seeds.T], axis=1)
            entries = products[self.rows, self.colours[self.columns]]
            self.known = (
                A,
                scipy.sparse.linalg.splu(
                    scipy.sparse.csc_array((entries, (self.rows, self.columns)), shape=A.shape)
                ),
            )
        return self.known[1].solve(b)


def constrained_minimum(
    f: Callable,
    *,
    bounds: Any = None,
    constraints: Any = (),
    options: dict | None = None,
    multipliers: bool = False,
) -> Callable:
    """Make a function of the minimum of f under constraints, differentiable in the parameters.

    Ipopt solves the problem. The derivative is that of its KKT system, to any order: an active constraint
    remains active, and a solution is not differentiated where this is in doubt.

    Parameters
    ----------
    f : callable
        ``f(x, *params)`` returns a real scalar.
    bounds : sequence, scipy.optimize.Bounds or dict, optional
        As for `minimize`.
    constraints : constraint or sequence, default ()
        As for `minimize`, but their functions are called with ``(x, *params)``.
    options : dict, optional
        Options of Ipopt. The default tolerances are 1e-11 and smaller.
    multipliers : bool, default False
        Whether the multipliers of the constraints, an array, are returned as well.

    Returns
    -------
    callable
        ``g(x0, *params)`` returns the minimum, with the tree of x0; the derivative with respect to x0 is
        zero.

    Raises
    ------
    ConvergenceError
        In a call, if Ipopt does not converge, or if an inequality has a small distance and a small
        multiplier: there the solution has a kink in the parameters.
    SingularError
        For a derivative, if the KKT system is singular.
    ArgumentError
        If a constraint is of another kind, or ipyopt is not installed.

    See Also
    --------
    minimize : The solution alone, with any method.
    tapegrad.implicit.minimum : Without constraints, with a solver of your own.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> g = tg.optimize.constrained_minimum(lambda x, a: ((x - a) ** 2).sum(), bounds=[(0, 1), (0, 1)])
    >>> a = np.array([0.5, 2.0])
    >>> g(np.full(2, 0.1), a).round(6), tg.jacobian(g, 1)(np.full(2, 0.1), a).round(6) + 0.0
    (array([0.5, 1. ]), array([[1., 0.],
           [0., 0.]]))
    """
    given = [
        limits_of_constraint(c)
        for c in (constraints if isinstance(constraints, (list, tuple)) else [constraints])
    ]
    return ConstrainedMinimum(
        (f, *[g for g, _, _ in given]), [at for _, *at in given], bounds, options or {}, multipliers
    )


@dataclass(eq=False)
class ConstrainedMinimum:
    """What `constrained_minimum` returns."""

    functions: tuple
    limits: list
    bounds: Any
    options: dict
    multipliers: bool

    @entry
    def __call__(self, x0, *params):
        plain = [value(p) for p in params]
        flat = FlatStart(CALL, tree_map(values_of, x0))
        box = bounds_object(flat_bounds(CALL, flat, self.bounds))
        kkt = KktSystem(flat, box, self.functions[1:], self.limits, tuple(plain))
        start = (
            flat.start,
            plain_np.ones(kkt.equal.size),
            plain_np.ones(kkt.below.size),
            plain_np.ones(kkt.above.size),
        )
        is_large = sum([v.size for v in start]) > DENSE_JACOBIAN_UNKNOWNS
        solve = SparseSystem(kkt, start, self.functions, tuple(plain)) if is_large and OPEN.depth else None
        solver = InteriorPoint(kkt, self.limits, self.options)
        w = root(kkt.residuals, solver, tol=LARGEST_RESIDUAL, solve=solve)(start, self.functions, *params)
        x = flat.restore(w[0])
        return (x, w[1]) if self.multipliers else x


SHADOW_MAKERS[ConstrainedMinimum] = lambda shadow, x: ConstrainedMinimum(
    shadow(x.functions), x.limits, x.bounds, x.options, x.multipliers
)


@dataclass
class InteriorPoint:
    """Ipopt as a solver of the KKT system."""

    kkt: KktSystem
    limits: list
    options: dict

    def __call__(self, F: Callable, w: tuple, functions: tuple, *params) -> tuple:
        kkt, box = self.kkt, scipy.optimize.Bounds(*self.kkt.bounds)
        rows = [
            scipy.optimize.NonlinearConstraint(lambda x, g=g: g(x, *params), *at)
            for g, at in zip(functions[1:], self.limits, strict=True)
        ]
        r = minimize(
            functions[0],
            kkt.flat.tree,
            params,
            "ipopt",
            bounds=box,
            constraints=rows,
            options={**TIGHT, **self.options},
        )
        if not r.success:
            raise ConvergenceError(f"{CALL}({user_name(functions[0])}): {r.message}")
        lower, upper = r.bound_multipliers
        found = (
            r.flat,
            plain_np.concatenate([plain_np.zeros(0), *r.multipliers]),
            lower[kkt.below],
            upper[kkt.above],
        )
        kkt.check_clear(found, functions, params)
        return found
