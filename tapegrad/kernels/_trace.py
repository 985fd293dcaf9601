"""From the user's Python function to a program: each function is run once, with symbolic arguments.

`likelihood` and `recursion` become one loop over the data; `map` straight code with the loops that the function asks for by
`tapegrad.kernels.loop` and `while_loop`.  Components of a carry that are equal at the start are taken for equal throughout and
the step is traced again with that assumption until it is proved: so a symmetric covariance costs one triangle.

A function is first traced with everything unrolled; if that takes too many nodes, once more with large arrays as blocks."""

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .._tree import children, is_node, rebuilt
from ..errors import KernelError, TapegradError
from ._blocks import LIMITS, UNROLLED, Limits, size_of
from ._graph import Graph, LongCode
from ._program import Loop, Program
from ._rebuild import Rebuilder, line_of, origin
from ._symbolic import Sym, elementwise, lift, real

ACTIVE = threading.local()  # `tracer`: the trace that runs in this thread


class Tracer:
    """One trace: graph, rebuilt functions, the loops made so far."""

    def __init__(self, limits: Limits = LIMITS, budget: float = math.inf) -> None:
        self.g = Graph(limits, budget)
        self.rebuild = Rebuilder(self.g)
        self.loops: list[Loop] = []
        self.inside = 0  # > 0 in the body of a loop

    def run(self, f: Callable, *args: Any) -> Any:
        """f(*args), traced."""
        before = getattr(ACTIVE, "tracer", None)
        ACTIVE.tracer = self
        try:
            return self.rebuild(f)(*args)
        except KernelError as error:
            raise KernelError(f"{error}\n  at {line_of(error, f)}") from error
        except TapegradError:
            raise
        except Exception as error:
            error.add_note(f"while tracing {origin(f)} into a kernel, at {line_of(error, f)}")
            raise
        finally:
            ACTIVE.tracer = before

    def sym(self, ids: Any) -> Sym:
        return Sym(self.g, ids)

    def inputs(self, kind: str, loop: int, first: int, shape: tuple) -> Sym:
        g, n = self.g, int(np.prod(shape, dtype=int))
        if kind == "th" and g.limits.large(n):
            g.wide[first] = g.input(kind, loop, first, shape)
            return self.sym(g.names(g.wide[first]))
        return self.sym(np.array([g.input(kind, loop, first + k) for k in range(n)], np.int64).reshape(shape))


def flat(g: Graph, tree: Any) -> tuple[list[int], Any]:
    """The nodes of a tree of numbers and arrays, and the function that builds the tree from other nodes.  Large arrays are one node
    each, and beside one the smaller arrays, too."""
    found: list[Sym] = []

    def leaf(x):
        found.append(real(lift(g, x)))
        return len(found) - 1, ()

    def walk(x):
        if is_node(x) and not (isinstance(x, list) and all(not is_node(m) and np.ndim(m) == 0 and not isinstance(m, Sym) for m in x)):
            return x, [walk(m) for m in children(x)]
        return leaf(x)

    shape = walk(tree)
    some = any(g.limits.large(x.size) for x in found)
    nodes: list[int] = []
    places = []
    for x in found:
        block = g.limits.large(x.size, some)
        places.append((len(nodes), x.shape, block))
        nodes.extend([g.pack(x.ids)] if block else [int(i) for i in x.nodes.ravel()])

    def build(ids, s=shape):
        if isinstance(s[1], list):
            return rebuilt(s[0], [build(ids, m) for m in s[1]])
        first, dims, block = places[s[0]]
        if block:
            return Sym(g, g.names(ids[first], dims))
        return Sym(g, np.array(ids[first : first + size_of(dims)], np.int64).reshape(dims))

    return nodes, build


def count(g: Graph, nodes: list[int]) -> int:
    """Numbers in all."""
    return sum(size_of(g.shape[i]) for i in nodes)


def contribution(g: Graph, x: Any, f: Any) -> int:
    x = real(lift(g, x))
    if x.size != 1:
        raise KernelError(f"{origin(f)} must return one number for each datum, and returned shape {x.shape}; use np.sum")
    return int(x.nodes.ravel()[0])


def datum(t: Tracer, loop: int, rows: int) -> Sym:
    return t.inputs("y", loop, 0, () if rows == 0 else (rows,))


def gate(g: Graph, rows: int, loop: int) -> int:
    """Is any component of the datum missing?"""
    missing = g.bool(False)
    for k in range(max(rows, 1)):
        missing = g.either(missing, g.isnan(g.input("y", loop, k)))
    return missing


def shortest(trace: Callable) -> Callable:
    """trace(tracer, ...) with everything unrolled, or, where that is too long, with large arrays as blocks."""

    @functools.wraps(trace)
    def run(*args):
        try:
            tracer = Tracer(UNROLLED, LIMITS.nodes)
            made = trace(tracer, *args)
            if not tracer.g.exceeded:
                tracer.g.budget = math.inf
                return made
        except LongCode:
            pass
        return trace(Tracer(), *args)

    return run


@shortest
def trace_likelihood(t: Tracer, f: Callable, p: int, rows: int, missing: bool, build: Callable | None = None) -> Program:
    """sum over data of f(theta, datum); with `missing`, data with a nan are left out.  `build` makes theta of its p numbers."""
    g = t.g
    loop = Loop(g.new_loop(), "data")
    t.inside = 1
    theta = t.inputs("th", 0, 0, (p,))
    theta = theta if build is None else build(theta)
    inc = contribution(g, t.run(f, theta, datum(t, loop.id, rows)), f)
    if missing and not handles_missing(g):
        inc = g.select(gate(g, rows, loop.id), g.zero, inc)
    value = loop.add_sum(g, inc)
    return Program(g, [p], rows, [loop] if loop.sums else [], [[value]])


def handles_missing(g: Graph) -> bool:
    """Does the user's function look for nan in the data itself?"""
    return any(op == "isnan" and g.mask[args[0]] for op, args in zip(g.op, g.args, strict=True))


class Recursion:
    """The step of a recursion, traced again and again under weaker assumptions on the carry."""

    def __init__(
        self, t: Tracer, init: Callable, step: Callable, p: int, rows: int, missing: bool, skip: Callable | None, build: Callable | None
    ):
        self.init, self.step, self.rows, self.missing, self.skip = init, step, rows, missing, skip
        self.t, self.g = t, t.g
        self.p, theta = p, t.inputs("th", 0, 0, (p,))
        self.theta = theta if build is None else build(theta)
        self.loop = Loop(t.g.new_loop(), "data")
        t.inside = 1
        self.start, self.build = flat(t.g, t.run(init, self.theta))

    def traced(self, ids: list[int]) -> tuple[list[int], int]:
        t, g = self.t, self.g
        y = datum(t, self.loop.id, self.rows)
        out = t.run(self.step, self.build(ids), self.theta, y)
        if not isinstance(out, tuple) or len(out) != 2:
            raise KernelError(f"{origin(self.step)} must return (carry, contribution)")
        after, build = flat(g, out[0])
        if [g.shape[i] for i in after] != [g.shape[i] for i in self.start]:
            before, then = count(g, self.start), count(g, after)
            if before == then:
                raise KernelError(f"{origin(self.step)}: the arrays of the carry have other shapes after the step than before it")
            raise KernelError(f"{origin(self.step)}: the carry has {before} numbers before the step and {then} after it")
        inc = contribution(g, out[1], self.step)
        if self.missing:
            absent = gate(g, self.rows, self.loop.id)
            inc = g.select(absent, g.zero, inc)
            kept = ids if self.skip is None else flat(g, t.run(self.skip, self.build(ids), self.theta))[0]
            after = [g.select(absent, k, n) for k, n in zip(kept, after, strict=True)]
        after = [g.spread(n, g.shape[s]) for n, s in zip(after, self.start, strict=True)]
        return after, inc

    def program(self) -> Program:
        g, loop, start = self.g, self.loop, self.start
        first: dict = {}
        leader = [first.setdefault(s, k) for k, s in enumerate(start)]
        fixed = {k for k, s in enumerate(start) if g.op[s] in ("const", "array")}
        while True:
            ids = [start[k] if r in fixed else g.input("c", loop.id, r, g.shape[start[k]]) for k, r in enumerate(leader)]
            after, inc = self.traced(ids)
            moved = {leader[k] for k in range(len(start)) if leader[k] in fixed and after[k] != start[k]}
            if moved:
                fixed -= moved
                continue
            classes: dict = {}
            finer = [classes.setdefault((r, after[k]), k) for k, r in enumerate(leader)]
            if finer == leader:
                break
            fixed = {k for k in finer if leader[k] in fixed}
            leader = finer
        kept = [k for k, r in enumerate(leader) if r == k and k not in fixed]
        loop.carry = [g.input("c", loop.id, k, g.shape[start[k]]) for k in kept]
        loop.final = [g.input("co", loop.id, k, g.shape[start[k]]) for k in kept]
        loop.start, loop.next = [start[k] for k in kept], [after[k] for k in kept]
        value = loop.add_sum(g, inc)
        keep = [loop] if loop.sums else []
        return Program(g, [self.p], self.rows, keep, [[value]])


@shortest
def trace_recursion(
    t: Tracer, init: Callable, step: Callable, p: int, rows: int, missing: bool, skip: Callable | None, build: Callable | None = None
) -> Program:
    """The sum of the contributions of a recursion; `missing`: data with nan take `skip`, or leave the step out."""
    return renumbered(Recursion(t, init, step, p, rows, missing, skip, build).program())


def renumbered(p: Program) -> Program:
    """New components of a carry are numbered by its length, so the old numbers must be 0, 1, 2, ..."""
    g, new = p.g, {}
    for loop in p.loops:
        for k, c in enumerate(loop.carry):
            new[c] = g.input("c", loop.id, k, g.shape[c])
            new[loop.final[k]] = g.input("co", loop.id, k, g.shape[c])
    if all(a == b for a, b in new.items()):
        return p
    for loop in p.loops:
        g.substitute(loop.next + loop.inc + loop.start, new)
        loop.carry, loop.final = [new[c] for c in loop.carry], [new[c] for c in loop.final]
        loop.next, loop.inc, loop.start = [[new[i] for i in x] for x in (loop.next, loop.inc, loop.start)]
    g.substitute(p.outputs, new)
    return Program(g, p.inputs, p.rows, p.loops, [[new[o] for o in group] for group in p.groups])


@shortest
def trace_map(t: Tracer, f: Callable, shapes: list[tuple], place: list[int]) -> tuple[Program, Callable]:
    """f on per-sample arguments; and the function that builds its result from an array of rows.  Argument n of f is input array
    place[n], and shapes are those of the input arrays."""
    args, first = [], 0
    for shape in shapes:
        args.append(t.inputs("th", 0, first, shape))
        first += args[-1].size
    out = t.run(f, *[args[k] for k in place])
    shape: list = []

    def note(x):
        if is_node(x):
            return rebuilt(x, [note(m) for m in children(x)])
        x = real(lift(t.g, x))
        shape.append((x.shape, [t.g.pack(x.ids)] if t.g.limits.large(x.size) else [int(i) for i in x.nodes.ravel()]))
        return len(shape) - 1

    tree = note(out)

    def build(rows, node=None):
        node = tree if node is None else node
        if is_node(node):
            return rebuilt(node, [build(rows, m) for m in children(node)])
        at = sum(size_of(dims) for dims, _ in shape[:node])
        dims, _ = shape[node]
        return rows[at : at + size_of(dims)].reshape(dims + rows.shape[1:]) if dims else rows[at]

    outputs = [i for _, ids in shape for i in ids]
    return Program(t.g, [int(np.prod(s, dtype=int)) for s in shapes], 0, t.loops, [outputs]), build


# --- loops inside a kernel ---


def loop(n: Any, body: Callable, carry: Any) -> Any:
    """carry = body(i, carry) for i in range(n); n may be known only at run time, and differ from sample to sample.

    Inside a kernel function this is a loop of the kernel; outside it is a plain Python loop.

    >>> import numpy as np, tapegrad as tg
    >>> k = tg.kernels.map(lambda x, n: tg.kernels.loop(n, lambda i, s: s * x, 1.0))
    >>> k(np.array([1.5, 2.0]), np.array([3.0, 3.0]))
    array([3.375, 8.   ])
    """
    t = getattr(ACTIVE, "tracer", None)
    known = n.constant() if isinstance(n, Sym) else n
    if t is None or (known is not None and (t.inside or int(known) <= 4)):
        for i in range(int(known if known is not None else n)):
            carry = body(i, carry)
        return carry
    g = t.g
    steps = real(lift(g, n))
    if steps.size != 1:
        raise KernelError("loop(n, body, carry): n must be one number for each sample")
    node = int(steps.nodes.ravel()[0])
    made = Loop(g.new_loop(), node, cap=int(known) if known is not None else None)
    counter = g.input("i", made.id, 0)
    going = g.bool(True) if known is not None else g.compare("lt", counter, node)
    return _traced_loop(t, made, lambda c: body(Sym(g, counter), c), going, carry)


def while_loop(cond: Callable, body: Callable, carry: Any, max_steps: int) -> Any:
    """while cond(carry): carry = body(carry), at most max_steps times.

    >>> import numpy as np, tapegrad as tg
    >>> f = lambda x: tg.kernels.while_loop(lambda s: s < 10, lambda s: s * x, x, 100)
    >>> tg.kernels.map(f)(np.array([1.5, 2.0]))
    array([11.390625, 16.      ])
    """
    t = getattr(ACTIVE, "tracer", None)
    if t is None:
        for _ in range(max_steps):
            if not cond(carry):
                break
            carry = body(carry)
        return carry
    g = t.g
    made = Loop(g.new_loop(), g.const(max_steps), cap=int(max_steps))
    return _traced_loop(t, made, body, cond, carry)


def _traced_loop(t: Tracer, made: Loop, body: Callable, going: Any, carry: Any) -> Any:
    if t.inside:
        raise KernelError(
            "a loop whose bound is known only at run time cannot stand inside another loop or a step; give the inner one a constant bound"
        )
    g = t.g
    start, build = flat(g, carry)
    for s in start:
        made.add_carry(g, s, g.shape[s])
    t.inside += 1
    try:
        if callable(going):
            going = contribution_bool(g, going(build(made.carry)))
            made.active = going
        after, _ = flat(g, body(build(made.carry)))
    finally:
        t.inside -= 1
    if [g.shape[i] for i in after] != [g.shape[i] for i in start]:
        raise KernelError(f"the body of a loop was given {count(g, start)} numbers and returned {count(g, after)}")
    made.next = [g.select(going, n, c) for n, c in zip(after, made.carry, strict=True)]
    t.loops.append(made)
    return build(made.final)


def contribution_bool(g: Graph, x: Any) -> int:
    x = lift(g, x)
    if x.size != 1:
        raise KernelError("the condition of while_loop must be one value for each sample")
    return int((x if x.is_bool else elementwise(g, "ne", x, 0.0)).nodes.ravel()[0])
