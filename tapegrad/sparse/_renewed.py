"""Plans for solvers, which meet points where a function takes another branch."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from .._core.arrays import to_host
from .._core.errors import GuardError
from .._core.scope import OPEN
from .._transforms.arguments import user_name
from .._transforms.jacobian import hessian, jacobian
from ..replay.signature import compare_each_time
from ._matrices import make_plan, settings_of
from ._plan import Plan

FEWEST_SPARSE_UNKNOWNS = 50  # unknowns below which a dense matrix is cheaper


class Renewed:
    """A plan for a solver that may meet other branches of the function; there it finds a new pattern."""

    def __init__(self, what: Literal["jacobian", "hessian"], f: Callable, rest: tuple, **settings: Any):
        self.call, self.second = f"prepare_{what}", what == "hessian"
        self.f, self.rest, self.settings = f, rest, settings
        self.plan: Plan | None = None
        self.renewals = 0

    def at(self, x: Any, *more: Any, quiet: bool = False) -> Plan:
        """Return a plan for this point; `quiet` leaves out the warning that the matrix is dense."""
        settings = settings_of(self.settings)
        made = Plan if quiet else make_plan
        self.plan = made(
            f"{self.call}({user_name(self.f)})" if quiet else self.call,
            self.f,
            (x, *more, *self.rest),
            self.second,
            settings,
        )
        return self.plan

    def __call__(self, x: Any, *more: Any) -> Any:
        """Return the matrix at x; `more` are arguments of the function after x that vary."""
        if self.plan is not None:
            try:
                return self.plan(x, *more, *self.rest)
            except GuardError:
                self.renewals += 1
        return self.at(x, *more, quiet=self.renewals > 0)(x, *more, *self.rest)


def plan_if_sparse(
    what: Literal["jacobian", "hessian"], f: Callable, x, *more, rest: tuple
) -> Renewed | None:
    """Return a plan if its matrix is sparse enough to pay, otherwise None."""
    if np.size(x) < FEWEST_SPARSE_UNKNOWNS:
        return None
    found = Renewed(what, f, rest)
    try:
        return found if found.at(x, *more, quiet=True).pays() else None
    except GuardError:
        return None  # no pattern can be found


class FixedPattern:
    """A Jacobian or Hessian for a solver that fixes the places of its entries at the start.

    Where no pattern can be found, all places are entries."""

    def __init__(
        self, what: Literal["jacobian", "hessian"], f: Callable, x, *more, rest: tuple, compile="auto"
    ):
        self.rest = rest
        self.plan: Renewed | None = Renewed(what, f, (), compile=compile)
        self.transform: Callable = jacobian(f) if what == "jacobian" else hessian(f)
        # a block of `OPEN.compared`, the further arguments, and what fills entries there
        self.unchecked: tuple = (None, None, None)
        self.table = None  # places of the entries of a later pattern among the first ones
        try:
            plan = self.plan.at(x, *more, *rest, quiet=True)
        except GuardError:
            self.plan = None
            shape = np.shape(to_host(self.transform(x, *more, *rest)))
            rows, cols = np.indices((int(np.prod(shape[: len(shape) - x.ndim])), x.size)).reshape(2, -1)
        else:
            rows, cols = (
                np.repeat(np.arange(plan.shape[0]), np.diff(plan.pattern.indptr)),
                plan.pattern.indices,
            )
        self.places, self.width = (rows.astype(np.int64), cols.astype(np.int64)), x.size

    def fill(self, out: np.ndarray, x, *more, rest: tuple | None = None) -> None:
        """Write the entries at x into `out`.

        `more` are arguments of the function after x, `rest` those after them, as at the start by default."""
        rest = self.rest if rest is None else rest
        args = (*more, *rest)
        plan = None if self.plan is None else self.plan.plan
        if OPEN.compared is not None and plan is not None and self.table is None:
            token, known, fill = self.unchecked  # (other threads replace it)
            if token is not OPEN.compared or known is not rest:
                fill = plan.unchecked_fill((x, *args), 1 + len(more))
                self.unchecked = OPEN.compared, rest, fill
            if fill is not None and fill(out, x, *more):
                return
        if self.plan is None:
            compare_each_time()
            out[:] = to_host(self.transform(x, *args)).reshape(-1)
            return
        try:
            self.put(out, self.plan.plan, x, *args)
        except GuardError:
            plan = self.plan.at(x, *args, quiet=True)
            keys = self.places[0] * self.width + self.places[1]
            asked = (
                np.repeat(np.arange(plan.shape[0]) * self.width, np.diff(plan.pattern.indptr))
                + plan.pattern.indices
            )
            self.table = np.searchsorted(keys, asked)
            if (keys.take(self.table, mode="clip") != asked).any():
                raise GuardError(
                    f"{plan.call}: this branch of the function has entries that the branch at the start "
                    f"lacks, and the "
                    "solver fixes the pattern there; use numpy.where, or method='trust-constr'"
                ) from None
            self.put(out, plan, x, *args)

    def put(self, out: np.ndarray, plan, *args) -> None:
        if self.table is None and plan.library is np:
            plan.values(*args, out=out)
        elif self.table is None:
            out[:] = to_host(plan.values(*args))
        else:
            out[:] = 0.0
            out[self.table] = to_host(plan.values(*args))
