"""The pattern of a recorded function at one point, and the conditions under which it holds."""

from collections.abc import Callable

import numpy as np
import scipy.sparse

from .._core.arrays import is_array
from .._core.errors import Attempt, GuardError
from .._core.scope import changed
from ..replay.prepared import Prepared
from ..replay.program import guard_holds
from ..replay.record.instructions import Guard
from ._pattern import DependencySets, asked_of, given_pattern


class FoundPattern:
    """The pattern of a recorded function at one point, with the conditions under which it holds."""

    def __init__(self, call: str, prepared: Prepared, args: tuple, second: bool, scope: str, check: Callable):
        form = prepared.forms["grad" if second else "value"]
        self.call, self.scope, self.form = call, scope, form
        try:
            with changed(watcher=None):
                self.value = form(args)
        except GuardError as error:
            raise GuardError(f"{call}: no pattern can be found: {error}; give pattern=") from error
        check(self.value)
        self.kept = form.programs[0]
        if self.kept.recorded.generators:
            raise GuardError(
                f"{call}: the function draws random numbers, others for each product; draw them outside, as "
                f"an argument"
            )
        self.shape = (np.size(args[0]) if second else leaf_size(self.value), np.size(args[0]))
        carried = self.carried(args)
        self.pattern = self.read(carried)
        program = self.kept.recorded
        self.relied = [(array, array.copy(order="K")) for k, array in program.captured if k in carried.relied]
        self.asked = asked_of(program, sorted(carried.conditions))
        self.branches = asked_of(program, sorted(carried.conditions), program.guards)
        self.conditions = [carried.value(k).copy() for k in sorted(carried.conditions)]

    def carried(self, args: tuple) -> DependencySets:
        return DependencySets(self.kept.recorded, self.values(args), self.scope)

    def values(self, args: tuple) -> list:
        values = self.kept.signature.values(args)
        if values is None:
            raise GuardError(f"the call has {self.kept.signature.difference(args)}")
        return values

    def read(self, carried: DependencySets) -> scipy.sparse.csr_array:
        p = carried.matrix(self.value.shape if is_array(self.value) else ())
        if self.form.method == "grad":  # symmetric, because it is a Hessian
            p = given_pattern(self.call, (p + p.T).tocsr(), p.shape)
        return p

    def depends_on_values(self) -> bool:
        """Return whether the pattern may fail to hold at another point."""
        return self.branches is not None or bool(self.relied)

    def require(self, args: tuple, branches: bool = False) -> None:
        """Raise GuardError if the pattern does not hold at this point.

        A replay checks the branches of the function itself; `branches` checks them here."""
        asked = self.branches if branches else self.asked
        if asked is not None:
            values = self.values(args)
            with Attempt() as tried:
                found = asked.run(values)
            if tried.failed:
                return  # an operation raised; the products report it
            if type(found) is Guard or not all(
                [guard_holds(a, b) for a, b in zip(found[0], self.conditions, strict=True)]
            ):
                raise GuardError(
                    "a branch or an index differs from that at the point of the pattern, which has "
                    "scope='local' (scope='global' is for all branches of numpy.where)"
                    if self.scope == "local"
                    else f"{found}"
                    if type(found) is Guard
                    else "an index among the arguments differs from that at the point of the pattern"
                )
        if not all([guard_holds(a, b) for a, b in self.relied]):
            now = self.read(self.carried(args))
            if (now.astype(np.int8) - self.pattern.astype(np.int8) > 0).nnz:
                raise GuardError("a captured array has changed, and with it the pattern")
            self.relied = [(a, a.copy(order="K")) for a, _ in self.relied]


def leaf_size(y) -> int:
    return int(np.prod(np.shape(y)))
