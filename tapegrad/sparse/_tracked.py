"""Sparse Jacobians and Hessians inside another transform: matrices whose entries carry derivatives.

The products with the sums of unit vectors run eagerly, so the open transforms follow them. The result is the
class of `_scipy.sparse` for matrices with tracked values."""

import numpy as plain_np

from .. import numpy as np
from .._core.arrays import to_host
from .._core.errors import ArgumentError, GuardError
from .._core.primitive import layout_of
from .._scipy.sparse.matrices import of_places
from .._scipy.sparse.products import SparsityPattern
from .._transforms.tape import value
from ..replay.form import any_variable
from ..replay.methods import METHODS
from ._arguments import plain_point

PROBE_ERROR = 1e-7  # of a row of a product that the entries repeat


class TrackedEntries:
    """The entries of a plan as values of an open transform, and their places."""

    def __init__(self, plan):
        if plan.entries.table is None:
            raise ArgumentError(
                f"{plan.call}: kind='acyclic' subtracts products in turn, which is not followed; use "
                f"kind='star'"
            )
        self.plan = plan
        self.places = plan.entries.matrix(plain_np.arange(1.0, 1.0 + plan.pattern.nnz))
        coo = self.places.tocoo()
        rows, cols = [plain_np.asarray(c, int) for c in coo.coords]
        self.seen = SparsityPattern(rows, cols, self.places.shape), coo.data

    def values(self, args: tuple):
        """Return the entries, in the order of the plan's format."""
        self.require(args)
        columns, rows = self.plan.seeds
        x, *rest = args
        parts = []
        if columns is not None:
            parts.append(self.product("smp" if self.plan.second else "jmp", x, columns, *rest))
        if rows is not None:
            parts.append(np.conj(self.product("vmp", x, rows, *rest)))
        if not parts:
            return plain_np.zeros(0, self.plan.empty_dtype)
        found = np.take(parts[0] if len(parts) == 1 else np.concatenate(parts), self.plan.entries.table)
        if self.plan.followed and (self.plan.found is None or self.plan.found.depends_on_values()):
            self.probe(args, found)
        return found

    def probe(self, args: tuple, values) -> None:
        """Raise if one more product shows entries elsewhere: what the function captures may have other zeros
        in this transform, or lead to another branch."""
        plan, (x, *rest) = self.plan, args
        v = plain_np.random.default_rng(0).uniform(0.5, 1.0, (1, *plan.shape_in))
        moved = self.product("smp" if plan.second else "jmp", x, plan.library.asarray(v, plan.dtype), *rest)
        A, moved = plan.entries.matrix(value(values)), to_host(value(moved))
        allowed = PROBE_ERROR * (abs(A) @ v.reshape(-1)) + 1e-13 * abs(moved).max(initial=0.0)
        if (abs(A @ v.reshape(-1) - moved) > allowed).any():
            raise GuardError(
                f"{plan.call}: in this transform the function has entries that the pattern lacks, by what it "
                "captures; pass that as an argument"
            )

    def product(self, method: str, *args):
        forms = METHODS
        product = forms[method](self.plan.f, 0)
        return np.reshape(product(*args), (-1,))

    def require(self, args: tuple) -> None:
        """Raise if the pattern does not hold at this point."""
        plan = self.plan
        if layout_of(args[0]).shape != plan.shape_in:
            raise GuardError(
                f"{plan.call}: x has shape {layout_of(args[0]).shape}, and the plan is for {plan.shape_in}"
            )
        if plan.found is None:
            return
        rest = args[1 + len(plan.recorded) :]
        point = tuple([plain_point(a) for a in (args[0], *plan.recorded, *rest)])
        if not any([a is None for a in point]):
            plan.found.require(point, True)
        elif plan.found.depends_on_values():
            raise ArgumentError(
                f"{plan.call}: the pattern depends on values, which vmap and recording hide; "
                "call the plan outside of them, or give pattern="
            )

    def matrix(self, args: tuple):
        values = self.values(args)
        if not any_variable((values,)):
            return self.plan.entries.matrix(values)
        found = of_places(values, self.places)
        found._seen = self.seen
        return found
