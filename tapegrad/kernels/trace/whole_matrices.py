"""Operations on whole arrays, each one node of the graph.

Their derivatives are those that ops/ declares for the same operations. The rule runs on symbols and makes
such nodes again, so every order of derivative is a repetition. Helpers of the rules stand here as well: parts
of matrices, which are products with constants if the elements are a block."""

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np

from ..._core.primitive import ASSIGN, READ
from ...ops.declare import PRIMITIVES, axes_of
from ...ops.shaping import kept_dims
from ..graph.blocks import Limits, triangle_ones
from ..graph.lengths import length_node
from ..graph.nodes import OPERATIONS, Graph
from .array_functions import nothing, symbolic_astype, symbolic_matmul, symbolic_reduce, symbolic_sum
from .linalg import (
    symbolic_cholesky,
    symbolic_det,
    symbolic_inv,
    symbolic_slogdet,
    symbolic_solve,
    symbolic_solve_triangular,
)
from .symbolic import (
    ARRAYS,
    Sym,
    Symbols,
    as_real_symbol,
    large,
    leaf_nodes,
    lift,
    lifted,
    operand_node,
    with_one_dtype,
)

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

    def _of_output(self, x):
        return (
            tuple([x if k == self.output else None for k in range(self.prim.multi)]) if self.prim.multi else x
        )

    def _run(self, g: Graph, i: int, rule: Callable, x: list):
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


def node_of_array(g: Graph, x) -> int:
    return operand_node(g, x.ids)


OPERATIONS.update({
    "matmul": MatrixOperation("matmul", (0, 1)),
    "sum": MatrixOperation("sum", (0,), lambda *axes: {"axis": axes, "keepdims": False}),
    "cholesky": MatrixOperation("cholesky_lower", (0,)),
    "trisolve": MatrixOperation(
        "solve_triangular", (0, 1),
        lambda lower, transpose, unit: dict(trans=int(transpose), lower=lower, unit_diagonal=unit),
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


def of_prim(name: str):
    return PRIMITIVES[name].prim


# --- operations on arrays of which functions of ops/ are composed ---


def moved_elements(prim) -> Callable:
    """An operation that only moves elements, on node numbers; 0 stands for the zeros that it inserts.

    The result of a view shares its memory with the argument, as in NumPy."""

    def run(*xs, **params) -> Sym:
        xs = tuple(with_one_dtype(lifted(*xs)))
        if prim.aliases or prim is READ:
            return Sym(xs[0].g, prim.run(xs[0].ids, **params))
        ids = np.asarray(prim.run(*[x.ids + 1 for x in xs], **params)) - 1
        return Sym(xs[0].g, np.where(ids < 0, nothing(xs[0]), ids))

    return run


def assigned(x, y, **region) -> Sym:
    """Return x after a write of y into a region, on node numbers."""
    x, y = with_one_dtype(lifted(x, y))
    return Sym(x.g, ASSIGN.run(x.ids.copy(), y.ids, **region))


def converted(x: Sym, to: np.dtype) -> Sym:
    return as_real_symbol(x) if x.is_bool and to.kind in "iu" else symbolic_astype(x, to)


def running_sum(x, axis: int, back: bool = False):
    ids = np.moveaxis(as_real_symbol(x).ids, axis, 0)
    rows = [Sym(x.g, row) for row in ids]
    sums = list(itertools.accumulate(rows[::-1] if back else rows))
    return np.stack(sums[::-1] if back else sums, axis)


def length(x, axis=None, keepdims: bool = False, **_) -> Sym:
    """Return the 2-norm over the axes."""
    g, axes = x.g, axes_of(axis, x.ndim)
    ids = np.moveaxis(as_real_symbol(x).ids, axes, range(-len(axes), 0))
    kept = ids.shape[: x.ndim - len(axes)]
    rows = [Sym(g, row) for row in ids.reshape((math.prod(kept), -1))]
    nodes = [length_node(g, *leaf_nodes(v, v.size > 0 and large(g, v.ids))) for v in rows]
    return Sym(g, np.array(nodes, np.int64).reshape(kept_dims(x.shape, axes) if keepdims else kept))


def contraction(*xs, subscripts: str) -> Sym:
    """Return the sums of products of einsum, written out."""
    symbols = [as_real_symbol(x) for x in lifted(*xs)]
    g, nodes = symbols[0].g, [x.nodes for x in symbols]
    left, result = subscripts.split("->")
    terms = left.split(",")
    size = {c: n for term, x in zip(terms, nodes, strict=True) for c, n in zip(term, x.shape, strict=True)}
    inner = [c for c in size if c not in result]
    out = np.empty([size[c] for c in result], np.int64)
    for k in np.ndindex(out.shape):
        at, total = dict(zip(result, k, strict=True)), g.zero
        for m in np.ndindex(*[size[c] for c in inner]):
            at.update(zip(inner, m, strict=True))
            factors = [int(x[tuple([at[c] for c in term])]) for term, x in zip(terms, nodes, strict=True)]
            total = g.add(total, functools.reduce(g.mul, factors))
        out[k] = total
    return Sym(g, out)


def full_convolution(x, y) -> Sym:
    x, y = lifted(x, y)
    n, m = len(x), len(y)
    terms = [[x[i] * y[k - i] for i in range(max(0, k - m + 1), min(n, k + 1))] for k in range(n + m - 1)]
    return lift(x.g, [sum(products, 0.0) for products in terms])


MOVES = (
    "read", "slice_of", "embed", "concatenate", "take_last", "put_last", "diagonals", "with_diagonals",
    "lower_part", "upper_part", "backwards",
)  # fmt: skip
for _name, _entry in PRIMITIVES.items():
    if _entry.prim.batch == "moves" or _name in MOVES:
        ARRAYS[_entry.prim] = moved_elements(_entry.prim)
del _name, _entry

ARRAYS.update({
    ASSIGN: assigned, of_prim("matmul"): symbolic_matmul, of_prim("sum"): symbolic_sum,
    of_prim("cholesky_lower"): symbolic_cholesky,
    of_prim("solve_triangular"): symbolic_solve_triangular,
    of_prim("solve_matrix"): symbolic_solve, of_prim("inv"): symbolic_inv, of_prim("det"): symbolic_det,
    of_prim("sign_and_log"): symbolic_slogdet,
    of_prim("cofactor"): lambda x: symbolic_det(x) * symbolic_inv(x).T,
    of_prim("triangle"): triangle_part, of_prim("halved"): halve_diagonal,
    of_prim("mirrored"): mirror_triangle,
    of_prim("folded"): fold_triangle,
    of_prim("alike_each"): lambda x: lift(x.g, [[False]]),  # kernels read the lower triangle
    of_prim("astype"): converted, of_prim("running_sum"): running_sum,
    of_prim("root_sum_squares"): length, of_prim("convolve_full"): full_convolution,
    of_prim("contract"): contraction,
    of_prim("highest"): functools.partial(symbolic_reduce, op=np.maximum, empty=-np.inf),
    of_prim("lowest"): functools.partial(symbolic_reduce, op=np.minimum, empty=np.inf),
})  # fmt: skip
