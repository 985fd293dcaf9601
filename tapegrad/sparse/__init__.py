"""Sparse Jacobians and Hessians: the pattern found by following the function, colours, and values by a few products, or one by one.

Reading order: `_sets` (sets of numbers), `_rules` (what each operation makes of them), `_pattern` (a program's), `_coloring`, `_decompress`
(entries from products), `_rows`, `_coefficients`, `_direct` (entries one by one), `_plan` (what users call), `_check` (patterns given)."""

from ._coloring import Coloring as Coloring
from ._coloring import coloring as coloring
from ._plan import Plan as Plan
from ._plan import Renewed as Renewed
from ._plan import hessian as hessian
from ._plan import jacobian as jacobian
from ._plan import pattern as pattern
from ._plan import prepare_hessian as prepare_hessian
from ._plan import prepare_jacobian as prepare_jacobian
