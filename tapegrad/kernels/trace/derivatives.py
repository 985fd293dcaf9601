"""Transforms inside a kernel function: `grad`, `jvp` and others run on symbols and differentiate the graph.

The arguments of a transform are marked. Each differentiated number becomes a node ("mark", x), which is never
simplified away. The function therefore depends on its argument alone, and not on other values made in the
same way. The function runs on the marks. The derivative is a sweep over the nodes that it made. Then x
replaces each mark. The result consists of plain nodes. An outer transform, or the kernel itself, can
differentiate it again.

A loop in such a function carries a further tangent for each differentiated number. It always runs in forward
mode."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.errors import ArgumentError, KernelError, NotScalarError, ShapeError
from ..._core.trees import Const, is_node, leaves, tree_map
from ..._transforms.arguments import positions
from ..._transforms.call import with_auxiliary
from ..._transforms.hessian_products import value_grad_hvp
from ..graph.adjoint import Adjoints, dependents, forward_loops, tangents
from ..graph.program import nested_loops
from .branches import branching
from .symbolic import Sym, as_real_symbol, broadcast_instruction, leaf_nodes, leaf_of_nodes, lift


class MarkedArgument:
    """One argument: the `nodes` of its numbers or blocks, and the marks in their places."""

    def __init__(self, g, x: Sym, number: int):
        self.g, self.shape, self.size, self.block = g, x.shape, x.size, g.limits.large(x.size)
        self.nodes = self.like(x)
        self.marks = [g.raw("mark", i, shape=g.shape[i], meta=(number, k)) for k, i in enumerate(self.nodes)]

    def array(self, nodes: list[int]) -> Sym:
        """Return the array of these nodes, one for each mark."""
        return leaf_of_nodes(self.g, nodes, self.shape, self.block)

    def like(self, x: Sym) -> list[int]:
        """Return the numbers of an array of this shape, as nodes for the marks."""
        return leaf_nodes(x, self.block)


class TracedRun:
    """A call of f with marked arguments: its result, and sweeps over it."""

    def __init__(
        self,
        tracer,
        call: str,
        f: Callable,
        argnums,
        args: tuple,
        kwargs: dict,
        one_way: bool = False,
        has_aux: bool = False,
    ):
        self.t, self.g, self.call = tracer, tracer.g, call
        args = tuple([a.value if isinstance(a, Const) else a for a in args])
        self.chosen = positions(call, argnums, len(args))
        self.single = not isinstance(argnums, tuple)
        self.marked: list[list] = []  # for each chosen argument, its leaves: Marked, or None
        given = list(args)
        for n in self.chosen:
            given[n] = self.mark(n, args[n])
        self.trees = [args[n] for n in self.chosen]
        before = [(region.loops, len(region.loops)) for region in tracer.regions]
        self.out = tracer.derivatives.called(f, given, kwargs)
        self.out, self.aux = with_auxiliary(call, f, self.out) if has_aux else (self.out, None)
        self.all = [m for group in self.marked for m in group if m is not None]
        self.marks = {mark for m in self.all for mark in m.marks}
        self.back = {mark: i for m in self.all for mark, i in zip(m.marks, m.nodes, strict=True)}
        self.fresh = [(loops, n) for loops, n in before if len(loops) > n]  # new loops made by f
        self.looped = any(
            not self.marks.isdisjoint(self.g.reach(loop.reads()))
            for loops, n in self.fresh
            for loop in loops[n:]
        )
        self.units = self.through(self.unit_ways()) if self.looped and not one_way else None

    def mark(self, n: int, x):
        found = []

        def leaf(v):
            if not varied(v):
                found.append(None)
                return v
            found.append(MarkedArgument(self.g, as_real_symbol(lift(self.g, v)), self.t.derivatives.number()))
            return found[-1].array(found[-1].marks)

        made = tree_map(leaf, x)
        if not any(found):
            raise ArgumentError(f"{self.call}: argument {n} holds no real number to be varied")
        self.marked.append(found)
        return made

    # --- loops in f, which forward mode differentiates ---

    def unit_ways(self) -> list[dict]:
        """Return unit tangents of the marks, one for each differentiated number."""
        made = []
        for k, m in enumerate(self.all):
            for e in np.eye(m.size):
                parts = [
                    e.reshape(m.shape) if j == k else np.zeros(other.shape)
                    for j, other in enumerate(self.all)
                ]
                made.append(
                    self.way([other.like(lift(self.g, x)) for other, x in zip(self.all, parts, strict=True)])
                )
        return made

    def way(self, nodes: list[list[int]]) -> dict:
        return {
            i: d for m, way in zip(self.all, nodes, strict=True) for i, d in zip(m.marks, way, strict=True)
        }

    def through(self, ways: list[dict]) -> list[dict]:
        """Add tangents of the carry to f's loops, one for each direction; `ways` then holds the tangents of
        results."""
        first = {loop.id: len(loop.carry) for loops, n in self.fresh for loop in nested_loops(loops[n:])}
        for loops, n in self.fresh:
            for t in ways:
                loops[n:] = forward_loops(self.g, loops[n:], t, first)
        for loops, n in self.fresh:
            for loop in loops[n:]:
                self.g.substitute(loop.reads(), self.back)
                loop.rewrite(self.back)
        return ways

    def without_marks(self, nodes: list[int]) -> list[int]:
        """Return these nodes without marks."""
        self.g.substitute(nodes, self.back)
        return [self.back[i] for i in nodes]

    def numbers(self, x):
        """Return a result of f as a number or an array, or None."""
        return as_real_symbol(lift(self.g, x)) if x is not None and not isinstance(x, str) else None

    def unmarked(self, x):
        """Return a leaf of f's result without marks."""
        if not isinstance(x, Sym):
            return x
        return leaf_of_nodes(self.g, self.without_marks(x.node_list), x.shape)

    def plain(self, tree):
        """Return a result of f, or aux, without marks."""
        return tree_map(self.unmarked, tree)

    # --- sweeps ---

    def pulled(self, seeds: list[tuple[int, int]]) -> list[Sym]:
        """Return the gradient of the sum of node times cotangent, for every marked array."""
        g, outs = self.g, [o for o, _ in seeds]
        if self.units is not None:
            return self.summed(seeds)
        active = dependents(g, outs, self.marks)
        adj = Adjoints(g)
        for o, bar in seeds:
            if o in active:
                adj.include(o, bar)
        order = [i for i in g.reach(outs, self.marks) if i not in self.marks]
        adj.sweep(order[::-1], active, outside=len(self.t.regions) == 1, whole=False)
        return [
            m.array(self.without_marks([g.spread(adj.get(i, g.zero), g.shape[i]) for i in m.marks]))
            for m in self.all
        ]

    def summed(self, seeds: list[tuple[int, int]]) -> list[Sym]:
        """Return the same gradient from tangents in all directions."""
        g, slopes = self.g, []
        for t in self.units or ():
            tangents(g, [o for o, _ in seeds], t)
            slope = g.zero
            for o, bar in seeds:
                slope = g.add(slope, g.mul(bar, t[o]))
            slopes.append(slope)
        rest = iter(self.without_marks(slopes))
        return [leaf_of_nodes(g, [next(rest) for _ in range(m.size)], m.shape) for m in self.all]

    def pushed(self, t: dict):
        """Return the tangent of f's result for the tangents t of the marks."""
        g = self.g

        def leaf(x):
            y = self.numbers(x)
            if y is None:
                return None
            tangents(g, y.node_list, t)
            return leaf_of_nodes(g, self.without_marks([t[i] for i in y.node_list]), y.shape)

        return tree_map(leaf, self.out)

    def as_arguments(self, arrays: list):
        """Arrange one array for each marked array as the trees of the chosen arguments; None where not
        differentiated."""
        rest = iter(arrays)
        made = []
        for tree, group in zip(self.trees, self.marked, strict=True):
            kinds = iter(group)
            made.append(tree_map(lambda _, kinds=kinds: None if next(kinds) is None else next(rest), tree))
        return made[0] if self.single else tuple(made)


def varied(x) -> bool:
    """Return whether x is a real number or array, other than integers."""
    if isinstance(x, Sym):
        return not x.is_bool
    return isinstance(x, float) or getattr(getattr(x, "dtype", None), "kind", "") == "f"


class Derivatives:
    """The transforms for one trace."""

    def __init__(self, tracer):
        self.tracer = tracer
        self.count, self.first = 0, 1  # number of marks, and the first one of no function yet
        self.open: set[int] = set()  # marks of functions that are running

    def number(self) -> int:
        """Return the number of a new mark."""
        self.count += 1
        return self.count

    def called(self, f: Callable, args: list, kwargs: dict) -> Any:
        """Call f with marked arguments, which it may write."""
        open_ = self.open
        self.open = {*open_, *range(self.first, self.count + 1)}
        try:
            copied = lambda x: x.copy() if type(x) is Sym else x
            return branching(lambda: f(*tree_map(copied, args), **kwargs))
        finally:
            self.open, self.first = open_, self.count + 1

    def refuse_marks(self, nodes: list[int]) -> None:
        """Raise if a node depends on the argument of a function that has returned."""
        g = self.tracer.g
        if self.count and any(
            g.op[i] == "mark" and np.ravel(g.meta[i])[0] not in self.open for i in g.reach(nodes)
        ):
            raise KernelError(
                "a number made in the function of a transform (grad, jvp, ...) is used outside of it: only "
                "what it returns leaves it"
            )

    def run(
        self,
        call: str,
        f,
        argnums,
        args: tuple,
        kwargs: dict,
        has_aux: bool,
        lift=None,
        one_way: bool = False,
    ) -> TracedRun:
        """Run f, or what `lift` makes of it."""
        f = f.value if isinstance(f, Const) else f
        f = self.tracer.rebuild(f if lift is None else lift(f))
        return TracedRun(self.tracer, call, f, argnums, args, kwargs, one_way, has_aux)

    def primal(self, x):
        """Return x without its derivatives (`tapegrad.value`)."""
        return broadcast_instruction(x.g, "primal", x) if isinstance(x, Sym) and not x.is_bool else x

    def pulled_gradient(self, call: str, f, argnums, args: tuple, kwargs: dict, has_aux: bool) -> tuple:
        """Return the value, aux and the gradient."""
        r = self.run(call, f, argnums, args, kwargs, has_aux)
        y = r.out
        if is_node(y) or y is None or np.shape(y) != ():
            what = f"shape {y.shape}" if isinstance(y, Sym) else type(y).__name__
            raise NotScalarError(
                f"{call}: the function returned {what}; grad needs a scalar. Return `y.sum()`, or use "
                f"tapegrad.jacobian"
            )
        gradient = r.as_arguments(r.pulled([(int(r.numbers(y).nodes), self.tracer.g.one)]))
        return r.plain(r.out), r.plain(r.aux), gradient

    def vjp(self, call: str, f, argnums, primals: tuple, has_aux: bool) -> tuple:
        r = self.run(call, f, argnums, primals, {}, has_aux)

        def pullback(w):
            seeds = []
            for y, c in zip(leaves(r.out), leaves(w), strict=True):
                y = r.numbers(y)
                if y is not None and c is not None:
                    c = lift(r.g, c)
                    if c.shape != y.shape:
                        raise ShapeError(
                            f"pullback: the cotangent has shape {c.shape}, the value has shape {y.shape}"
                        )
                    seeds += zip(y.node_list, as_real_symbol(c).node_list, strict=True)
            return r.as_arguments(r.pulled(seeds))

        return (r.plain(r.out), pullback, r.plain(r.aux))[: 2 + has_aux]

    def run_forward(
        self, call: str, f, args: tuple, nums: tuple, tangents: tuple, lifted, has_aux: bool
    ) -> tuple:
        """Return the value, the tangent and aux."""
        moving = [(n, v) for n, v in zip(nums, tangents, strict=True) if v is not None]
        r = self.run(call, f, tuple([n for n, _ in moving]), args, {}, has_aux, lifted, True)
        ways = []
        for (_, tree), group in zip(moving, r.marked, strict=True):
            for m, v in zip(group, leaves(tree), strict=True):
                if m is not None:
                    v = as_real_symbol(lift(r.g, 0.0 * np.ones(m.shape) if v is None else v))
                    if v.shape != m.shape:
                        raise ShapeError(
                            f"{call}: the tangent has shape {v.shape}, the primal has shape {m.shape}; "
                            f"they must be equal"
                        )
                    ways.append(m.like(v))
        t = r.way(ways)
        return r.plain(r.out), r.pushed(r.through([t])[0] if r.looped else t), r.plain(r.aux)

    def jacobian(self, call: str, f, argnums, args: tuple, kwargs: dict, mode: str, has_aux: bool, lifted):
        r = self.run(call, f, argnums, args, kwargs, has_aux, lifted)
        outputs = [r.numbers(y) for y in leaves(r.out)]
        n_in, n_out = sum(m.size for m in r.all), sum(y.size for y in outputs if y is not None)
        by_columns = mode == "forward" or (mode == "auto" and n_in < n_out)
        blocks = iter(forward_columns(r) if by_columns else reverse_rows(r, outputs))
        found = tree_map(lambda y: None if y is None else r.as_arguments(next(blocks)), r.out)
        return (found, r.plain(r.aux)) if has_aux else found

    def hmp(self, f, x, V, args: tuple, argnums, has_aux: bool):
        rows = [tree_map(lambda v, k=k: v[k], V) for k in range(len(leaves(V)[0]))]
        product: Any = value_grad_hvp
        found = [product(f, x, v, args, argnums, has_aux)[2:] for v in rows]
        products = tree_map(lambda *each: np.stack(each), *[hv for hv, *_ in found])
        return (products, found[0][1]) if has_aux else products


def reverse_rows(r: TracedRun, outputs: list) -> list:
    """Return, for each output leaf, its derivatives with respect to each marked array; one sweep a number."""
    made = []
    for y in outputs:
        if y is not None:
            swept = [r.pulled([(i, r.g.one)]) for i in y.node_list]
            made.append(
                [stacked_blocks(r, [s[k] for s in swept], y.shape + m.shape) for k, m in enumerate(r.all)]
            )
    return made


def forward_columns(r: TracedRun) -> list:
    """Return the same derivatives, with one sweep for each differentiated number."""
    g = r.g
    found = []
    ways = iter(r.unit_ways() if r.units is None else r.units)
    for m in r.all:
        found.append([[x for x in leaves(r.pushed(next(ways))) if x is not None] for _ in range(m.size)])
    made = []
    for n, y in enumerate([y for y in [r.numbers(x) for x in leaves(r.out)] if y is not None]):
        made.append([])
        for k, m in enumerate(r.all):
            ids = [d[n].ids.reshape(y.shape) for d in found[k]]
            made[n].append(
                Sym(
                    g,
                    np.stack(ids, axis=-1).reshape(y.shape + m.shape)
                    if ids
                    else np.zeros(y.shape + m.shape, np.int64),
                )
            )
    return made


def stacked_blocks(r: TracedRun, each: list, shape: tuple) -> Sym:
    return Sym(r.g, np.stack([x.ids for x in each]).reshape(shape) if each else np.zeros(shape, np.int64))
