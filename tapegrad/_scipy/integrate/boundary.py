"""scipy.integrate.solve_bvp: SciPy finds the mesh and the solution, and the derivative is that of the
collocation equations on the mesh."""

from dataclasses import dataclass
from typing import Any

import numpy as plain_np
import scipy.integrate as itg
from scipy.integrate._bvp import collocation_fun, create_spline

from ... import numpy as np
from ..._core.registry import SHADOW_MAKERS
from ...ops.declare import shape
from ..interpolate.piecewise import FOLLOWED
from ..namespaces import as_float_array, bare, holds_tracked, refusal_text
from ..optimize import float_array_of, implicit_solution
from ..optimize.callback_search import Search

NAME = "scipy.integrate.solve_bvp"


@dataclass(eq=False)
class Collocation:
    """What is zero, of the states at the mesh and of the parameters, in one vector."""

    fun: Any
    bc: Any
    mesh: Any
    n: int

    def __call__(self, z, *_):
        m = shape(self.mesh)[0]
        y = np.reshape(z[: self.n * m], (self.n, m))
        more = [z[self.n * m :]] if shape(z)[0] > self.n * m else []
        f = lambda x, y, p: float_array_of(self.fun(x, y, *more))
        rest, *_ = collocation_fun(f, y, None, self.mesh, np.diff(self.mesh))
        ends = float_array_of(self.bc(y[:, 0], y[:, -1], *more))
        return np.concatenate([np.reshape(rest, -1), np.reshape(ends, -1)])


SHADOW_MAKERS[Collocation] = lambda shadow, x: Collocation(shadow(x.fun), shadow(x.bc), shadow(x.mesh), x.n)


def solve_bvp(fun, bc, x, y, p=None, S=None, fun_jac=None, bc_jac=None, *more, **settings):
    given = [bare(v) for v in (x, y, p, S)]
    with Search(NAME, x) as search:
        plainly = [search.of(f, 0, None) for f in (fun, bc, fun_jac, bc_jac)]
        found = itg.solve_bvp(*plainly[:2], *given, *plainly[2:], *more, **settings)
    if not search.moves:
        return found
    if S is not None or found.y.dtype.kind == "c":
        raise refusal_text(
            f"{NAME}(S=)",
            "with a singular term, or complex",
            "tapegrad.implicit.root with the collocation equations",
        )
    mesh = found.x
    if holds_tracked(x):  # the ends move, and all nodes between with them
        share = (mesh - mesh[0]) / (mesh[-1] - mesh[0])
        x = as_float_array(x)
        mesh = x[0] + (x[-1] - x[0]) * share
    n, m = found.y.shape
    z = found.y.reshape(-1) if p is None else plain_np.concatenate([found.y.reshape(-1), found.p])
    of = Collocation(fun, bc, mesh, n)
    with implicit_solution("root", NAME, of, float_array_of, z, ()) as (again, z):
        found.x, found.y = mesh, np.reshape(z[: n * m], (n, m))
        found.p = None if p is None else z[n * m :]
        found.yp = float_array_of(again.fun(mesh, found.y, *([] if p is None else [found.p])))
    found.sol = FOLLOWED.function(create_spline)(found.y, found.yp, mesh, np.diff(mesh))
    return found
