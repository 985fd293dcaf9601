"""Plans for solvers, which meet points where a function takes another branch."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from .._core.errors import GuardError
from .._transforms.call import user_name
from ._plan import Plan, make_plan, settings_of

FEWEST_SPARSE_UNKNOWNS = 50  # unknowns below which a dense matrix is cheaper


class Renewed:
    """A plan for a solver that may meet other branches of the function; there it finds a new pattern."""

    def __init__(self, what: Literal["jacobian", "hessian"], f: Callable, rest: tuple, pattern: Any = None):
        self.call, self.second = f"prepare_{what}", what == "hessian"
        self.f, self.rest, self.pattern = f, rest, pattern
        self.plan: Plan | None = None
        self.renewals = 0

    def at(self, x: Any, *more: Any, quiet: bool = False) -> Plan:
        """Return a plan for this point; `quiet` leaves out the warning that the matrix is dense."""
        settings = settings_of({"pattern": self.pattern})
        made = Plan if quiet else make_plan
        self.plan = made(f"{self.call}({user_name(self.f)})" if quiet else self.call, self.f, (x, *more, *self.rest), self.second, settings)
        return self.plan

    def __call__(self, x: Any, *more: Any) -> Any:
        """Return the matrix at x; `more` are arguments of the function after x that vary."""
        if self.plan is not None:
            try:
                return self.plan(x, *more, *self.rest)
            except GuardError:
                self.renewals += 1
        return self.at(x, *more, quiet=self.renewals > 0)(x, *more, *self.rest)


def plan_if_sparse(what: Literal["jacobian", "hessian"], f: Callable, x: Any, *more: Any, rest: tuple) -> Renewed | None:
    """Return a plan if its matrix is sparse enough to pay, otherwise None."""
    if np.size(x) < FEWEST_SPARSE_UNKNOWNS:
        return None
    found = Renewed(what, f, rest)
    try:
        return found if found.at(x, *more, quiet=True).pays() else None
    except GuardError:
        return None  # no pattern can be found
