"""Sparse Jacobians and Hessians.

The pattern is found by following a recording of the function. The values come from a few coloured products,
or from a compiled loop that computes each entry.

Reading order: `_sets` (sets of input numbers), `_rules` (how each operation combines them), `_pattern` (the
pattern of a program), `_coloring`, `_decompress` (entries from products), `_rows`, `_coefficients` and
`_direct` (entries from a loop), `_plan` (the public functions), `_check` (patterns of the user), `_renewed`
(plans for solvers), `_tracked` (matrices within a transform), `_elimination`, `_ldl` and `_cholesky`
(factorisation), `_laplace` (marginal likelihoods)."""

from typing import Any

from .._core.registry import load as _load
from ._coloring import Coloring as Coloring
from ._coloring import coloring as coloring
from ._matrices import hessian as hessian
from ._matrices import jacobian as jacobian
from ._matrices import pattern as pattern
from ._matrices import prepare_hessian as prepare_hessian
from ._matrices import prepare_jacobian as prepare_jacobian
from ._plan import Plan as Plan
from ._renewed import Renewed as Renewed

_LATE = {
    "Cholesky": "_cholesky",
    "cholesky": "_cholesky",
    "Laplace": "_laplace",
    "laplace": "_laplace",
    "prepare_laplace": "_laplace",
}
__all__ = [
    "Cholesky", "Coloring", "Laplace", "Plan", "Renewed", "cholesky", "coloring", "hessian", "jacobian",
    "pattern", "prepare_hessian",
    "prepare_jacobian", "prepare_laplace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load factorisations on first use: they import what stands for SciPy."""
    if name in _LATE:
        return getattr(_load(f"tapegrad.sparse.{_LATE[name]}"), name)
    raise AttributeError(f"module 'tapegrad.sparse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
