"""scipy.optimize: linear programs, whose solution stays at a corner: there as many constraints hold as there
are unknowns, and the solution is that of these equations.  Of an assignment only the costs move."""

import numpy as plain_np
import scipy.optimize as opt

from ... import numpy as np
from ...ops.declare import shape
from ...ops.nondifferentiable import at_users_line
from ..namespaces import as_float_array, bare, plain_argument, refusal_text, with_derivative_of

ACTIVE_TOLERANCE = 1e-8  # how near to its limit a constraint is held


class Corner:
    """The constraints that hold at x, as rows of equations."""

    def __init__(self, x):
        self.x = x
        self.rows = []
        self.rights = []
        self.names = []

    def add(self, name, row, right, held: bool = True) -> None:
        if not held:
            value = float(bare(row) @ self.x)
            held = abs(value - float(bare(right))) <= ACTIVE_TOLERANCE * max(1.0, abs(value))
        if held:
            self.rows.append(as_float_array(row))
            self.rights.append(as_float_array(right))
            self.names.append(name)

    def matrix(self, A, low, high, names: tuple) -> None:
        """low <= A x <= high."""
        values, low_values, high_values = bare(A) @ self.x, bare(low), bare(high)
        for i in range(len(values)):
            same = low_values[i] == high_values[i]
            if not plain_np.isinf(high_values[i]):
                self.add((names[1], i), A[i], high[i], same)
            if not plain_np.isinf(low_values[i]) and not same:
                self.add((names[0], i), A[i], low[i], False)

    def solution(self, name: str) -> tuple:
        """(x as a function of what the equations hold, their matrix)."""
        n = len(self.x)
        K = np.stack(self.rows) if self.rows else plain_np.zeros((0, n))
        if len(self.rows) != n or plain_np.linalg.matrix_rank(bare(K)) < n:
            what = (
                "is not unique"
                if len(self.rows) < n
                else "lies where more constraints meet than there are unknowns"
            )
            raise refusal_text(
                name,
                f"the solution {what}, and has no derivative there",
                "a problem without redundant constraints",
            )
        x = np.linalg.solve(K, np.stack(self.rights))
        return with_derivative_of(self.x, x), K


def bound_pairs(bounds, n: int) -> list:
    """A pair for each unknown."""
    if hasattr(bounds, "lb"):
        return list(
            zip(*[plain_np.broadcast_to(plain_argument(v), n) for v in (bounds.lb, bounds.ub)], strict=True)
        )
    if bounds is None:
        bounds = (0, None)
    pairs = [bounds] * n if len(bounds) == 2 and not hasattr(bounds[0], "__len__") else bounds
    return [
        tuple([s * plain_np.inf if v is None else v for v, s in zip(p, (-1, 1), strict=True)]) for p in pairs
    ]


def held_at_bounds(corner: Corner, bounds, whole) -> None:
    """Bounds, and the unknowns that are whole numbers, which do not move."""
    n = len(corner.x)
    eye = plain_np.eye(n)
    whole = plain_np.broadcast_to(0 if whole is None else plain_np.asarray(bare(whole)), n)
    for i, (low, high) in enumerate(bound_pairs(bounds, n)):
        if whole[i]:
            corner.add(("whole", i), eye[i], plain_np.round(corner.x[i]))
            continue
        for name, v in (("lower", low), ("upper", high)):
            if not plain_np.isinf(bare(v)):
                corner.add((name, i), eye[i], v, False)


def priced(prices, rows: list):
    """What the objective changes with each limit: 0 where that does not hold."""
    at = plain_np.array([0 if r is None else r + 1 for r in rows], int)
    return np.take(np.concatenate([0.0 * prices[:1], prices]), at)


def linprog(
    c, A_ub=None, b_ub=None, A_eq=None, b_eq=None, bounds=(0, None), method="highs", callback=None,
    options=None, x0=None, integrality=None
):  # fmt: skip
    name = "scipy.optimize.linprog"
    given = [bare(v) for v in (c, A_ub, b_ub, A_eq, b_eq, bounds)]
    found = at_users_line(opt.linprog, *given, method, callback, options, x0, bare(integrality))
    if found.x is None:
        return found
    corner = Corner(plain_np.asarray(found.x))
    parts = {"ineqlin": (A_ub, b_ub), "eqlin": (A_eq, b_eq)}
    for kind, (A, b) in parts.items():
        if A is None:
            continue
        if hasattr(A, "format"):
            raise refusal_text(name, "of a sparse matrix", "A.toarray()")
        A, b = parts[kind] = np.atleast_2d(as_float_array(A)), np.atleast_1d(as_float_array(b))
        low = b if kind == "eqlin" else plain_np.full(shape(b), -plain_np.inf)
        corner.matrix(A, low, b, (kind, kind))
    held_at_bounds(corner, bounds, integrality)
    found.x, K = corner.solution(name)
    c = as_float_array(c)
    found.fun = np.sum(c * found.x)
    prices = np.linalg.solve(K.T, c)
    for kind in ("ineqlin", "eqlin", "lower", "upper"):
        if kind in found and integrality is None:
            rows = {i: row for row, (k, i) in enumerate(corner.names) if k == kind}
            found[kind].marginals = priced(prices, [rows.get(i) for i in range(len(found[kind].marginals))])
    for kind, field in (("ineqlin", "slack"), ("eqlin", "con")):
        A, b = parts[kind]
        if A is not None:
            setattr(found, field, b - A @ found.x)
            if kind in found:
                found[kind].residual = b - A @ found.x
    return found


def milp(c, *, integrality=None, bounds=None, constraints=None, options=None):
    name = "scipy.optimize.milp"
    single = constraints is not None and (
        hasattr(constraints, "A") or (isinstance(constraints, tuple) and not hasattr(constraints[0], "A"))
    )
    listed = [] if constraints is None else [constraints] if single else list(constraints)
    listed = [(v.A, v.lb, v.ub) if hasattr(v, "A") else tuple(v) for v in listed]
    found = opt.milp(
        bare(c), integrality=bare(integrality), bounds=bounds if hasattr(bounds, "lb") else bare(bounds),
        constraints=[opt.LinearConstraint(*bare(v)) for v in listed], options=options,
    )  # fmt: skip
    if found.x is None:
        return found
    corner = Corner(plain_np.asarray(found.x))
    for A, *ends in listed:
        A = np.atleast_2d(as_float_array(A))
        low, high = [
            np.broadcast_to(as_float_array(v), (shape(A)[0],))
            for v in (*ends, *(-plain_np.inf, plain_np.inf)[len(ends) :])
        ]
        corner.matrix(A, low, high, ("low", "high"))
    held_at_bounds(corner, bounds, integrality)
    found.x, _ = corner.solution(name)
    found.fun = np.sum(as_float_array(c) * found.x)
    return found


def quadratic_assignment(A, B, method="faq", options=None):
    found = opt.quadratic_assignment(bare(A), bare(B), method, None if options is None else bare(options))
    p = found.col_ind
    found.fun = np.sum(as_float_array(A) * as_float_array(B)[p][:, p])
    return found
