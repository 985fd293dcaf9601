"""From the user's Python function to a program: each function runs once, with symbolic arguments.

`likelihood` and `recursion` become one loop over the data. `map` becomes straight code with the loops of the
function (`loops`). Components of a carry that are equal at the start are assumed equal throughout. The step
is traced again under weaker assumptions until that is proved. A symmetric covariance then costs one triangle.

A function is first traced with everything unrolled. If that takes too many nodes, it is traced again with
large arrays as blocks."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ..._core.errors import KernelError, ShapeError, TapegradError
from ..._core.scope import changed
from ..._core.trees import children, is_node, leaves, rebuilt, tree_map
from ..graph.adjoint import step_gradient
from ..graph.blocks import LIMITS, UNROLLED, Limits, element_total
from ..graph.nodes import Graph, LongCode
from ..graph.program import KernelProgram, ProgramLoop
from .branches import branching
from .captured import UnstableTrace
from .derivatives import Derivatives
from .surroundings import Rebuilder, line_of, origin
from .symbolic import Sym, as_real_symbol, leaf_nodes, leaf_of_nodes, lift


@dataclass
class Region:
    """The code outside of loops (0), or the step of a loop, while it is traced.

    `going` is the node that says whether this sample takes the step. `loops` are those made in it so far."""

    loop: int
    going: int
    loops: list[ProgramLoop] = field(default_factory=list)


@dataclass
class TraceStart:
    """The beginning of a trace that may be repeated: the lists of loops with their lengths, and the number of
    the last loop."""

    g: Graph
    lists: list[tuple[list[ProgramLoop], int]]
    number: int

    def loops(self) -> list[list[ProgramLoop]]:
        """Return the loops made since."""
        return [loops[n:] for loops, n in self.lists]

    def forget(self) -> None:
        """Forget the loops made since."""
        for loops, n in self.lists:
            del loops[n:]


class Tracer:
    """One trace: graph, rebuilt functions, the loops made so far."""

    def __init__(self, limits: Limits = LIMITS, budget: float = math.inf, pure: bool = False) -> None:
        self.g = Graph(limits, budget)
        self.rebuild, self.derivatives = Rebuilder(self.g), Derivatives(self)
        self.g.captured = None if pure else self.rebuild.captured_state
        self.regions = [Region(0, self.g.bool(True))]  # the last one is being traced
        self.hoists = True  # loop-invariant inner loops are moved out
        self.once = pure  # need functions not be repeated?
        # the attempts that found what holds of a loop, by the number of loops before it, for repetitions
        self.settled: dict[int, Any] = {}
        self.repeats = False

    @property
    def loops(self) -> list[ProgramLoop]:
        """Return the outermost loops."""
        return self.regions[0].loops

    @contextmanager
    def step(self, loop: int, going: int | None = None) -> Iterator[Region]:
        """Open the step of a loop."""
        self.regions.append(Region(loop, self.g.bool(True) if going is None else going))
        branches, self.g.branches = self.g.branches, None  # no condition of a step leaves it
        try:
            yield self.regions[-1]
        finally:
            self.regions.pop()
            self.g.branches = branches

    def attempt(self) -> "TraceStart":
        """Return the beginning of a trace that may be repeated."""
        return TraceStart(
            self.g, [(region.loops, len(region.loops)) for region in self.regions], self.g.loops
        )

    def varying(self, nodes: Iterable[int]) -> int:
        """Return the loops, as bits, with which nodes in the current code vary.

        Numbers that left the body of a loop other than by its carry are refused."""
        nodes = list(nodes)
        self.derivatives.refuse_marks(nodes)
        found = functools.reduce(int.__or__, [self.g.mask[i] for i in nodes], 0)
        if found & ~sum([1 << region.loop for region in self.regions[1:]]):
            raise KernelError(
                "a number made in the body of a loop is used outside of it: only the carry leaves a loop"
            )
        return found

    def home(self, within: int) -> Region:
        """Return the region of a loop that varies with the loops `within`: the innermost of these."""
        found = self.regions[0]
        for region in self.regions[1:]:
            if within >> region.loop & 1:
                found = region
        return found

    def twice(self, call: Callable, f):
        """Return call(), which traces f, after a second call with the same result."""
        if self.once:
            return call()
        begun = self.attempt()
        return self.again(begun, call(), call, f)

    def again(self, begun: "TraceStart", first, call: Callable, f):
        """Return call(), whose result has been `first` since `begun`.

        A function with another result changes what it reads, and is refused, because a kernel keeps one
        trace."""
        g, loops, before = self.g, begun.loops(), (self.once, self.repeats)
        begun.forget()
        g.loops, self.once, self.repeats = begun.number, True, True  # a repetition makes no new node
        try:
            found = call()
        finally:
            self.once, self.repeats = before
        if not same_node_trees(g, first, found) or loops != begun.loops():
            g.captured.refuse_draws(origin(f))
            self.varying([i for x in leaves(first) if isinstance(x, Sym) for i in x.node_list])
            raise (UnstableTrace if g.captured.others.have_run() else KernelError)(
                f"{origin(f)} gives something else when it runs again: it changes what it reads itself (a "
                "counter, an attribute, an iterator, an array made outside of it). A kernel runs it once, "
                "for all samples and steps: pass such state as an argument, or as the carry of a recursion "
                "or loop"
            )
        return found

    def run(self, f: Callable, *args):
        """Trace f(*args); f gets copies, which it may write."""
        if self.g.captured is not None:
            self.g.captured.root(f)
        self.g.refusal = None
        try:
            with changed(tracer=self, inside=self.derivatives):
                call = lambda: self.rebuild(f)(*tree_map(writable_argument, args))
                found = self.twice(lambda: branching(call), f)
            if self.g.refusal is not None:
                raise KernelError(
                    f"{self.g.refusal} (the function caught this error, and what it does then is not what "
                    f"it does with numbers)"
                )
            return found
        except KernelError as error:
            raise (UnstableTrace if isinstance(error, UnstableTrace) else KernelError)(
                f"{error}\n  at {line_of(error, f)}"
            ) from error
        except TapegradError:
            raise
        except Exception as error:
            error.add_note(f"while tracing {origin(f)} into a kernel, at {line_of(error, f)}")
            raise

    def sym(self, ids) -> Sym:
        return Sym(self.g, ids)

    def inputs(self, kind: str, loop: int, first: int, shape: tuple) -> Sym:
        g, n = self.g, int(np.prod(shape, dtype=int))
        if kind == "th" and g.limits.large(n):
            g.wide[first] = g.input(kind, loop, first, shape)
            return self.sym(g.names(g.wide[first]))
        return leaf_of_nodes(g, [g.input(kind, loop, first + k) for k in range(n)], shape)


def writable_argument(x):
    """Return an argument that the function may write."""
    return (
        ParameterRows(x, x.reads) if isinstance(x, ParameterRows) else x.copy() if isinstance(x, Sym) else x
    )


def same_node_trees(g: Graph, a, b) -> bool:
    """Return whether these trees of symbols and numbers consist of the same nodes."""
    if is_node(a) or is_node(b):
        x, y = [children(v) if is_node(v) else [v] for v in (a, b)]
        return (
            type(a) is type(b)
            and len(x) == len(y)
            and all([same_node_trees(g, u, v) for u, v in zip(x, y, strict=True)])
        )
    if isinstance(a, Sym) and isinstance(b, Sym):
        return a.shape == b.shape and bool((a.ids == b.ids).all())
    if a is b or isinstance(a, Sym) or isinstance(b, Sym):
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f"))


@dataclass
class ReadCount:
    """The number of rows that were read."""

    count: int = 0


class ParameterRows(Sym):
    """The parameters of one sample, with a count of the rows that were read.

    The count is the last row that was read, or all rows if the array was used as a whole."""

    def __init__(self, x, reads: ReadCount | None = None):
        """Wrap x; with a count `reads`, this is a copy of x."""
        self.g, self.held, self.reads = x.g, x.ids if reads is None else x.held.copy(), reads or ReadCount()

    shape = property(lambda self: self.held.shape)
    ndim = property(lambda self: self.held.ndim)
    size = property(lambda self: self.held.size)

    def _all_rows(self) -> np.ndarray:
        self.reads.count = len(self.held)
        return self.held

    ids: Any = property(_all_rows)

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, key) -> Sym:
        first = key[0] if isinstance(key, tuple) and key else key
        if isinstance(first, (int, np.integer, slice)) and not isinstance(first, bool):
            rows = np.atleast_1d(np.arange(len(self.held))[first])
            self.reads.count = max([self.reads.count, *[int(r) + 1 for r in rows]])
            return Sym(self.g, self.held[key])
        return super().__getitem__(key)

    def refuse_rest(self, f) -> None:
        """Raise ShapeError if rows after the last one read are left; a function that reads none has gradient
        zero."""
        p = len(self.held)
        if 0 < self.reads.count < p:
            raise ShapeError(
                f"{origin(f)}: theta has {p} rows, and the function reads only the first {self.reads.count} "
                "of them. theta is (p, B), a row for each parameter and a column for each sample: for (B, "
                f"p) pass theta.T, and leave rows away that are not wanted, theta[:{self.reads.count}]"
            )


DIFFERING: set[type] = set()
Class = TypeVar("Class", bound=type)


def components_differ(cls: Class) -> Class:
    """Declare that no two components of such a carry are equal throughout, and none stays what it was.

    Otherwise components that are equal at the start are assumed to stay so, and a loop is traced again where
    they part."""
    DIFFERING.add(cls)
    return cls


def equal_components(start: list[int], carry) -> list[int]:
    """Return for each component of a carry the first one that equals it at the start."""
    if type(carry) in DIFFERING:
        return list(range(len(start)))
    classes: dict = {}
    return [classes.setdefault(s, k) for k, s in enumerate(start)]


def flatten_nodes(g: Graph, tree) -> tuple[list[int], Any]:
    """Return the nodes of a tree of numbers and arrays, and a function that builds the tree from other nodes.

    A large array is one node. If there is one, smaller arrays are single nodes too."""
    found: list[Sym] = []

    def leaf(x):
        found.append(as_real_symbol(lift(g, x)))
        return len(found) - 1, ()

    def walk(x):
        if is_node(x) and not (
            isinstance(x, list)
            and all(not is_node(m) and np.ndim(m) == 0 and not isinstance(m, Sym) for m in x)
        ):
            return x, [walk(m) for m in children(x)]
        return leaf(x)

    shape = walk(tree)
    some = any(g.limits.large(x.size) for x in found)
    nodes: list[int] = []
    places = []
    for x in found:
        block = g.limits.large(x.size, some)
        places.append((len(nodes), x.shape, block))
        nodes.extend(leaf_nodes(x, block))

    def build(ids, s=shape):
        if isinstance(s[1], list):
            return rebuilt(s[0], [build(ids, m) for m in s[1]])
        first, dims, block = places[s[0]]
        return leaf_of_nodes(g, ids[first : first + (1 if block else element_total(dims))], dims, block)

    return nodes, build


def number_count(g: Graph, nodes: list[int]) -> int:
    """Return the count of numbers in these nodes."""
    return sum(element_total(g.shape[i]) for i in nodes)


def contribution(g: Graph, x, f) -> int:
    x = as_real_symbol(lift(g, x))
    if x.size != 1:
        raise KernelError(
            f"{origin(f)} must return one number for each datum, and returned shape {x.shape}; use np.sum"
        )
    return x.node_list[0]


def datum(t: Tracer, loop: int, rows: int) -> Sym:
    return t.inputs("y", loop, 0, () if rows == 0 else (rows,))


STAND_IN = 0.5  # hardly any log density is singular here


def gate_missing(t: Tracer, loop: int, rows: int) -> tuple[int, Sym]:
    """Return whether a component of the datum is missing, and the datum with replacements for missing ones.

    Results from a replacement are not used, but a nan there would reach derivatives as 0 * nan."""
    g, y = t.g, datum(t, loop, rows)
    absent = [g.isnan(i) for i in y.node_list]
    filled = [g.select(a, g.const(STAND_IN), i) for a, i in zip(absent, y.node_list, strict=True)]
    return functools.reduce(g.either, absent, g.bool(False)), leaf_of_nodes(g, filled, y.shape)


def shortest(trace: Callable) -> Callable:
    """Wrap trace(tracer, ...): first with everything unrolled, then, if too long, with large arrays as
    blocks. Functions that are known to be `pure` run once."""

    @functools.wraps(trace)
    def run(*args, blocks=True, pure=False):
        if not blocks:
            return trace(Tracer(UNROLLED, pure=pure), *args)
        try:
            tracer = Tracer(UNROLLED, LIMITS.nodes, pure)
            made = trace(tracer, *args)
            if not tracer.g.exceeded:
                tracer.g.budget = math.inf
                return made
        except LongCode:
            pass
        return trace(Tracer(pure=pure), *args)

    return run


@shortest
def trace_likelihood(
    t: Tracer,
    f: Callable,
    p: int,
    rows: int,
    missing: bool,
    skip: bool,
    build: Callable | None = None,
    what: str = "value",
    reject: bool = False,
) -> KernelProgram:
    """Return the program of the sum over data of f(theta, datum).

    `missing`: some data are nan; `skip` leaves them out. `build` makes theta of its p numbers. `what` is
    "value" (the sum), "each" (its terms) or "scores" (their gradients). With `reject` the gradient of a term
    that is not finite is 0."""
    g = t.g
    g.complete = not missing
    loop = ProgramLoop(g.new_loop(), "data")
    t.hoists = what != "scores"  # the derivative through a loop differs for each datum
    numbers = t.inputs("th", 0, 0, (p,))
    theta = ParameterRows(numbers) if build is None else build(numbers)
    absent, y = gate_missing(t, loop.id, rows) if missing and skip else (None, datum(t, loop.id, rows))
    with t.step(loop.id, None if absent is None else g.negation(absent)) as region:
        inc = contribution(g, t.run(f, theta, y), f)
        t.varying([inc])
    if build is None:
        theta.refuse_rest(f)
    if absent is not None:
        inc = g.select(absent, g.zero, inc)
    loop.inner = region.loops
    if what == "value":
        value = loop.add_sum(g, inc)
        return KernelProgram(g, [p], rows, [*t.loops, *([loop] if loop.sums else [])], [[value]])
    loop.each = [inc]
    program = KernelProgram(g, [p], rows, [*t.loops, loop], [])
    if what == "scores":
        loop.each = step_gradient(g, loop, inc, [int(i) for i in numbers.ids])
        if reject:
            finite = g.compare("lt", g.node("abs", inc), g.const(np.inf))
            loop.each = [g.select(finite, d, g.zero) for d in loop.each]
    return program


class RecursionTrace:
    """The step of a recursion, traced repeatedly under weaker assumptions on the carry."""

    def __init__(
        self,
        t: Tracer,
        init: Callable,
        step: Callable,
        p: int,
        rows: int,
        missing: bool,
        skip: Callable | None,
        build: Callable | None,
    ):
        self.init, self.step, self.rows, self.missing, self.skip = init, step, rows, missing, skip
        self.t, self.g = t, t.g
        self.p, theta = p, t.inputs("th", 0, 0, (p,))
        self.theta = ParameterRows(theta) if build is None else t.run(build, theta)
        self.loop = ProgramLoop(t.g.new_loop(), "data")
        self.carry = t.run(init, self.theta)
        self.start, self.build = flatten_nodes(t.g, self.carry)
        t.varying(self.start)

    def traced(self, ids: list[int], what: str) -> tuple[list[int], list[int]]:
        t, g = self.t, self.g
        absent, y = (
            gate_missing(t, self.loop.id, self.rows)
            if self.missing
            else (None, datum(t, self.loop.id, self.rows))
        )
        with t.step(self.loop.id, None if absent is None else g.negation(absent)) as region:
            out = t.run(self.step, self.build(ids), self.theta, y)
            if not isinstance(out, tuple) or len(out) != 2:
                raise KernelError(f"{origin(self.step)} must return (carry, contribution)")
            after = flatten_nodes(g, out[0])[0]
            inc = (
                as_real_symbol(lift(g, out[1])).node_list
                if what == "path"
                else [contribution(g, out[1], self.step)]
            )
            t.varying([*after, *inc])
        self.loop.inner = region.loops
        if [g.shape[i] for i in after] != [g.shape[i] for i in self.start]:
            before, then = number_count(g, self.start), number_count(g, after)
            if before == then:
                raise KernelError(
                    f"{origin(self.step)}: the arrays of the carry have other shapes after the step than "
                    f"before it"
                )
            raise KernelError(
                f"{origin(self.step)}: the carry has {before} numbers before the step and {then} after it"
            )
        if absent is not None:
            inc = [g.select(absent, g.zero, i) for i in inc]
            kept = ids
            if self.skip is not None:
                with t.step(self.loop.id, absent) as region:
                    kept = flatten_nodes(g, t.run(self.skip, self.build(ids), self.theta))[0]
                self.loop.inner += region.loops
            after = [g.select(absent, k, n) for k, n in zip(kept, after, strict=True)]
        after = [g.spread(n, g.shape[s]) for n, s in zip(after, self.start, strict=True)]
        return after, inc

    def program(self, what: str) -> KernelProgram:
        """Return the program for `what`.

        "value" is the sum of the contributions, "each" the contributions, "path" the same for arrays, "final"
        the carry after the last step."""
        g, loop, start = self.g, self.loop, self.start
        leader = equal_components(start, self.carry)
        fixed = {
            k for k in leader if g.op[start[k]] in ("const", "array") and type(self.carry) not in DIFFERING
        }
        t, begun, checked = self.t, self.t.attempt(), self.t.once
        while True:
            begun.forget()
            begun.number = g.loops
            ids = [
                start[k] if r in fixed else g.input("c", loop.id, r, g.shape[start[k]])
                for k, r in enumerate(leader)
            ]
            after, inc = self.traced(ids, what)
            classes: dict = {}
            finer = [classes.setdefault((r, after[k]), k) for k, r in enumerate(leader)]
            constant = {k for k in finer if leader[k] in fixed and after[k] == start[k]}
            if finer == leader and constant == fixed:
                break
            leader, fixed, t.once = finer, constant, True
        if t.once != checked:  # an earlier attempt ran its functions twice; so does the last one
            t.once = checked
            traced = lambda: [*self.traced(ids, what), loop.inner]
            after, inc, _ = t.again(begun, [after, inc, loop.inner], traced, self.step)
        if isinstance(self.theta, ParameterRows):
            # its rows count
            if self.skip is not None and not self.missing and self.theta.reads.count < self.p:
                with self.t.step(self.loop.id):
                    self.t.run(self.skip, self.build(start), self.theta)
            self.theta.refuse_rest(self.step)
        kept = [k for k, r in enumerate(leader) if r == k and k not in fixed]
        loop.carry = [g.input("c", loop.id, k, g.shape[start[k]]) for k in kept]
        loop.final = [g.input("co", loop.id, k, g.shape[start[k]]) for k in kept]
        loop.start, loop.next = [start[k] for k in kept], [after[k] for k in kept]
        if what == "value":
            value = loop.add_sum(g, inc[0])
            return KernelProgram(
                g, [self.p], self.rows, [*self.t.loops, *([loop] if loop.sums else [])], [[value]]
            )
        if what in ("each", "path"):
            loop.each = inc
            return KernelProgram(g, [self.p], self.rows, [*self.t.loops, loop], [])
        outputs = [start[k] if r in fixed else g.input("co", loop.id, r) for k, r in enumerate(leader)]
        layout = tree_map(lambda x: x.ids, self.build(range(len(outputs))))
        return KernelProgram(
            g, [self.p], self.rows, [*self.t.loops, *([loop] if loop.carry else [])], [outputs], layout=layout
        )


@shortest
def trace_recursion(
    t: Tracer,
    init: Callable,
    step: Callable,
    p: int,
    rows: int,
    missing: bool,
    rule,
    build: Callable | None = None,
    what: str = "value",
) -> KernelProgram:
    """Return the program of a recursion (see `RecursionTrace.program`).

    `missing`: some data are nan. `rule` is "step" (the step itself checks), or a function (the carry after a
    missing datum); otherwise the step is skipped."""
    t.g.complete = not missing
    skip = rule if callable(rule) else None
    return renumber_carry(
        RecursionTrace(t, init, step, p, rows, missing and rule != "step", skip, build).program(what)
    )


def renumber_carry(p: KernelProgram) -> KernelProgram:
    """Renumber the components of carries as 0, 1, 2, ...; new ones are numbered by the length."""
    g, new = p.g, {}
    for loop in p.loops:
        for k, c in enumerate(loop.carry):
            new[c] = g.input("c", loop.id, k, g.shape[c])
            new[loop.final[k]] = g.input("co", loop.id, k, g.shape[c])
    if all(a == b for a, b in new.items()):
        return p
    for loop in p.loops:
        g.substitute(loop.reads(), new)
        loop.rewrite(new)
        loop.carry, loop.final = [new[c] for c in loop.carry], [new[c] for c in loop.final]
    g.substitute(p.outputs, new)
    for names, x in list(g.congruences.items()):
        g.congruences[frozenset([new.get(i, i) for i in names])] = x.renamed(new)
    return replace(p, groups=[[new[o] for o in group] for group in p.groups])


@shortest
def trace_map(
    t: Tracer, f: Callable, shapes: list[tuple], place: list[int]
) -> tuple[KernelProgram, Callable]:
    """Trace f on per-sample arguments; return the program and a function from an array of rows to its result.

    Argument n of f is input array place[n], and shapes are those of the input arrays."""
    args, first = [], 0
    for shape in shapes:
        args.append(t.inputs("th", 0, first, shape))
        first += args[-1].size
    out = t.run(f, *[args[k] for k in place])
    members: list = []

    def note(x):
        if is_node(x):
            return rebuilt(x, [note(m) for m in children(x)])
        x = as_real_symbol(lift(t.g, x))
        members.append((x.shape, leaf_nodes(x, t.g.limits.large(x.size))))
        return len(members) - 1

    tree = note(out)

    def build(rows, node=None):
        node = tree if node is None else node
        if is_node(node):
            return rebuilt(node, [build(rows, m) for m in children(node)])
        at = sum(element_total(dims) for dims, _ in members[:node])
        dims, _ = members[node]
        return rows[at : at + element_total(dims)].reshape(dims + rows.shape[1:]) if dims else rows[at]

    outputs = [i for _, ids in members for i in ids]
    t.varying(outputs)
    return KernelProgram(t.g, [int(np.prod(s, dtype=int)) for s in shapes], 0, t.loops, [outputs]), build
