"""Operations on whole arrays, each one node of the graph.

Their derivatives are those that ops/ declares for the same operations. The rule runs on symbols and makes
such nodes again, so every order of derivative is a repetition. Helpers of the rules stand here as well: parts
of matrices, which are products with constants if the elements are a block."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops.declare import PRIMITIVES
from ..graph.blocks import Limits, triangle_ones
from ..graph.nodes import OPERATIONS, Graph
from .array_functions import symbolic_matmul, symbolic_sum
from .linalg import (
    symbolic_cholesky,
    symbolic_det,
    symbolic_inv,
    symbolic_slogdet,
    symbolic_solve,
    symbolic_solve_triangular,
)
from .symbolic import ARRAYS, Sym, Symbols, lift, operand_node

WHOLE = Limits(elements=0, row=0, products=-1)  # nothing is unrolled


class MatrixOperation:
    """The node of an operation of ops/.

    `arrays` lists the operands of the node that are its inputs. `settings` derives its settings from the
    node's other data. `output` is the number of the node among its outputs. `turned` says whether the first
    input is a transpose."""

    form, singular, length = None, False, 0

    def __init__(
        self,
        name: str,
        arrays: tuple,
        settings: Callable = lambda *meta: {},
        output: int = 0,
        turned: Callable = lambda *meta: False,
    ):
        self.prim, self.arrays, self.settings, self.output, self.turned = (
            PRIMITIVES[name].prim,
            arrays,
            settings,
            output,
            turned,
        )

    def _given(self, g: Graph, i: int, nodes: list) -> list:
        """Return these nodes, or their derivatives, as the inputs."""
        given = [
            None if j is None else Sym(g, g.names(j, g.shape[k]))
            for j, k in zip(nodes, self._operands(g, i), strict=True)
        ]
        if given[0] is not None and self.turned(*g.meta[i] or ()):
            given[0] = given[0].T
        return given

    def _operands(self, g: Graph, i: int) -> list:
        return [g.args[i][k] for k in self.arrays]

    def _of_output(self, x: Any) -> Any:
        return (
            tuple([x if k == self.output else None for k in range(self.prim.multi)]) if self.prim.multi else x
        )

    def _run(self, g: Graph, i: int, rule: Callable, x: list) -> Any:
        """Call rule(*x, output, *inputs, **settings)."""
        out, kept = Sym(g, g.names(i, g.shape[i])), g.limits
        g.limits = WHOLE
        try:
            inputs = self._given(g, i, self._operands(g, i))
            settings = self.settings(*g.meta[i] or ())
            n = len(x)
            return Symbols().run(
                lambda *v: rule(*v[:n], self._of_output(v[n]), *v[n + 1 :], **settings),
                [*x, out, *inputs],
                {},
            )
        finally:
            g.limits = kept

    def pulled(self, g: Graph, i: int, bar: int) -> list[tuple[int, int]]:
        """Return (operand, its share of the adjoint) for node i with adjoint `bar`."""
        if bar == g.zero:
            return []
        prim, c = self.prim, [Sym(g, g.names(bar, g.shape[i]))]
        if prim.joint:
            need = [True] * len(self.arrays)
            shares = self._run(
                g, i, lambda c, out, *rest, **s: prim.vjp[0](self._of_output(c), out, need, *rest, **s), c
            )
        else:
            shares = [self._run(g, i, rule, c) for rule in prim.vjp]
        if self.turned(*g.meta[i] or ()):
            shares = [shares[0].T, *shares[1:]]
        return [(j, node_of_array(g, x)) for j, x in zip(self._operands(g, i), shares, strict=True)]

    def pushed(self, g: Graph, i: int, t: list) -> int:
        """Return the tangent of node i, given those of its operands."""
        given = self._given(g, i, [None if t[k] == g.zero else t[k] for k in self.arrays])
        n = len(given)
        found = self._run(g, i, lambda *v, **s: self.prim.jvp(v[:n], *v[n:], **s), given)
        return node_of_array(g, found[self.output] if self.prim.multi else found)


class ConstantNode:
    """A node that passes no derivative on, because its users treat its operands themselves."""

    form, singular, length = None, False, 0

    def pulled(self, g: Graph, i: int, bar: int) -> list:
        return []

    def pushed(self, g: Graph, i: int, t: list) -> int:
        return g.zero


def node_of_array(g: Graph, x: Any) -> int:
    return operand_node(g, x.ids)


OPERATIONS.update({
    "matmul": MatrixOperation("matmul", (0, 1)),
    "sum": MatrixOperation("sum", (0,), lambda *axes: {"axis": axes, "keepdims": False}),
    "cholesky": MatrixOperation("cholesky_lower", (0,)),
    "trisolve": MatrixOperation(
        "solve_triangular", (0, 1),
        lambda lower, transpose, unit: dict(trans=int(transpose), lower=lower, unit_diagonal=unit,
        overwrite_b=False, check_finite=True),
    ),
    "lusolve": MatrixOperation("solve_matrix", (0, 2), lambda transpose: {},
    turned=lambda transpose: transpose),
    "det": MatrixOperation("det", (0,)), "logdet": MatrixOperation("sign_and_log", (0,), output=1),
    "lu": ConstantNode(),
    "detsign": ConstantNode(),
})  # fmt: skip


def triangle_part(x: Sym, lower: bool, strict: bool = False) -> Sym:
    return x * triangle_ones(len(x), lower, 0.0 if strict else 1.0)


def halve_diagonal(x: Sym) -> Sym:
    return x * triangle_ones(len(x), True, 0.5)


def mirror_triangle(x: Sym, alike: bool, lower: bool) -> Sym:
    x = x * triangle_ones(len(x), lower, 0.5)
    return x + x.T


def fold_triangle(x: Sym, alike: bool, lower: bool) -> Sym:
    return (x + x.T) * triangle_ones(len(x), lower, 0.5)


def of_prim(name: str) -> Any:
    return PRIMITIVES[name].prim


ARRAYS.update({
    of_prim("matmul"): symbolic_matmul, of_prim("sum"): symbolic_sum,
    of_prim("cholesky_lower"): symbolic_cholesky,
    of_prim("solve_triangular"): symbolic_solve_triangular,
    of_prim("solve_matrix"): symbolic_solve, of_prim("inv"): symbolic_inv, of_prim("det"): symbolic_det,
    of_prim("sign_and_log"): symbolic_slogdet,
    of_prim("cofactor"): lambda x: symbolic_det(x) * symbolic_inv(x).T,
    of_prim("triangle"): triangle_part, of_prim("halved"): halve_diagonal,
    of_prim("mirrored"): mirror_triangle,
    of_prim("folded"): fold_triangle,
    of_prim("alike_each"): lambda x: lift(x.g, [[False]]),  # kernels read the lower triangle
    of_prim("reshape"): lambda x, to: x.reshape(to), of_prim("transpose"): lambda x, axes: x.transpose(axes),
    of_prim("broadcast_to"): lambda x, to: Sym(x.g, np.broadcast_to(x.ids, to)),
})  # fmt: skip
