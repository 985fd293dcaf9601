"""Constraints on trees as SciPy's constraints on vectors, with exact derivatives in a form that pays."""

import numpy as np
import scipy.optimize
import scipy.sparse

from .._core.errors import ArgumentError
from ._flat import FlatStart, Values, ordered_limits


def bounds_of_dict(call: str, given: dict) -> tuple[float, float]:
    """Return the limits of a constraint that is given as a dict."""
    kind = str(given.get("type")).lower()
    if kind not in ("eq", "ineq"):
        raise ArgumentError(f"{call}: a constraint has type={given.get('type')!r}; it is 'eq' or 'ineq'")
    return 0.0, 0.0 if kind == "eq" else float("inf")


def is_limited(given) -> bool:
    """Return whether a constraint has a finite limit."""
    if not isinstance(given, (scipy.optimize.NonlinearConstraint, scipy.optimize.LinearConstraint)):
        return True
    return bool(np.isfinite(given.lb).any() or np.isfinite(given.ub).any())


class Constraints:
    """The constraints of one problem, with derivatives as the method takes them.

    Parameters
    ----------
    call : str
        The name of the call in errors.
    flat : FlatStart
        The tree of the unknowns.
    given : object
        One constraint or a list of them, in the forms of SciPy.
    sparse, second : bool
        Whether the method takes sparse matrices, and Hessians.
    """

    def __init__(self, call: str, flat: FlatStart, given, sparse: bool, second: bool):
        self.call = call
        self.flat = flat
        self.takes_sparse = sparse
        self.second = second
        self.sparse = False  # whether one Jacobian is sparse
        self.given = [
            self.converted(c)
            for c in (given if isinstance(given, (list, tuple)) else [given])
            if sparse or is_limited(c)  # SciPy's other methods fail if no constraint has a limit
        ]

    def converted(self, given):
        if isinstance(given, dict) and callable(given.get("fun")):
            low, high = bounds_of_dict(self.call, given)
            g, args = Values(self.call, given["fun"], self.flat, given.get("args", ())), given.get("args", ())
            jac = given.get("jac")
            by_hand = (lambda u: jac(u, *args)) if callable(jac) else None
            if not self.takes_sparse:
                return {"type": given["type"], "fun": g, "jac": by_hand or self.jacobian(g)}
            return self.nonlinear(g, low, high, by_hand, None, False)
        if isinstance(given, scipy.optimize.NonlinearConstraint):
            g = Values(self.call, given.fun, self.flat)
            return self.nonlinear(g, given.lb, given.ub, given.jac, given.hess, given.keep_feasible)
        if isinstance(given, scipy.optimize.LinearConstraint):
            ordered_limits(self.call, "constraints", given.lb, given.ub)
            self.sparse = self.sparse or scipy.sparse.issparse(given.A)
        return given

    def nonlinear(self, g: Values, low, high, jac, hess, keep_feasible):
        ordered_limits(self.call, "constraints", low, high, g(self.flat.start).size)
        jac = jac if callable(jac) else self.jacobian(g)
        hess = hess if callable(hess) or not self.second else g.hessian_of_form()
        return scipy.optimize.NonlinearConstraint(
            g, low, high, jac, hess or scipy.optimize.BFGS(), keep_feasible
        )

    def jacobian(self, g: Values):
        found, is_sparse = g.jacobian_of_form(self.takes_sparse)
        self.sparse = self.sparse or is_sparse
        return found
