"""Sparse Jacobians and Hessians.

The pattern is found by following a recording of the function. The values come from a few coloured products,
or from a compiled loop that computes each entry.

Reading order: `_sets` (sets of input numbers), `_rules` (how each operation combines them), `_pattern` (the
pattern of a program), `_coloring`, `_decompress` (entries from products), `_rows`, `_coefficients` and
`_direct` (entries from a loop), `_plan` (the public functions), `_check` (patterns of the user), `_renewed`
(plans for solvers), `_tracked` (matrices within a transform), `_elimination`, `_ldl` and `_cholesky`
(factorisation), `_laplace` (marginal likelihoods)."""

from typing import TYPE_CHECKING, Any

from .._core.registry import load
from ._coloring import Coloring as Coloring
from ._coloring import coloring as coloring
from ._plan import Plan as Plan
from ._plan import hessian as hessian
from ._plan import jacobian as jacobian
from ._plan import pattern as pattern
from ._plan import prepare_hessian as prepare_hessian
from ._plan import prepare_jacobian as prepare_jacobian
from ._renewed import FixedPattern as FixedPattern
from ._renewed import Renewed as Renewed
from ._renewed import plan_if_sparse as plan_if_sparse

if TYPE_CHECKING:
    from ._cholesky import Cholesky as Cholesky
    from ._cholesky import cholesky as cholesky
    from ._laplace import Laplace as Laplace
    from ._laplace import laplace as laplace
    from ._laplace import prepare_laplace as prepare_laplace

LATE = {"Cholesky": "_cholesky", "cholesky": "_cholesky", "Laplace": "_laplace", "laplace": "_laplace", "prepare_laplace": "_laplace"}


def __getattr__(name: str) -> Any:
    """Factorisations load on first use: they import what stands for SciPy."""
    if name in LATE:
        return getattr(load(f"tapegrad.sparse.{LATE[name]}"), name)
    raise AttributeError(f"module 'tapegrad.sparse' has no attribute {name!r}")
