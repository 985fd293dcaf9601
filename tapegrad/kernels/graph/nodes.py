"""The graph in which kernels are traced, differentiated and simplified: hash-consed scalar SSA.

A large array may be one node, too (`blocks`). A node is a number; `op[i]` names its operation and `args[i]`
its operands. Operands have lower numbers, so counting upwards is a schedule.

A node is made at most once: a dict maps operation and operands to it. It is simplified when it is made.
Constants are folded, and structural zeros removed (0 x is 0 only if the zero is known while tracing). Signs
and constants move outwards, and each divisor has one reciprocal. `select(c, a, 0) * p` becomes `select(c, a *
p, 0)`. The branch that is not taken then contributes exact zeros to every derivative.

Inputs are nodes ("in", kind, loop, k). The kinds are "th" parameter, "y" datum, "e" step input, "i" step
counter, "c" carry of a loop at the beginning of a step, "co" its carry after the last step, "s" a sum over
its steps, and "N" the number of its steps. In float64 beside float32 (`wide_sums`) "S" replaces "s", and "N"
has k = 1. The results of an inner loop ("co", "s") depend on the steps of outer loops; `within` holds these
as bits. A node that depends on no value of the innermost loop's step is computed outside of that loop
(`level`).

A "mark" stands for its operand while the graph is being traced (trace/derivatives.py). No finished program
contains one."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .blocks import LIMITS, MOVES, WHOLE, Blocks, Limits, element_total
from .gated import Primal, Times0
from .lengths import Length, OverLength

LEAVES = frozenset(("in", "const", "bool", "array", "mark"))
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
BOOLS = frozenset((*COMPARE, "and", "or", "not", "isnan", "bool"))
# and those that ops/ declares (trace/symbolic.py)
OPERATIONS: dict = {"length": Length(), "over_length": OverLength(), "times0": Times0(), "primal": Primal()}
# operations that pass no derivative and are not NumPy functions; the steps of the first two depend on the
# dtype
STEPS = frozenset(("scale", "unscale", "primal"))
WITHOUT_DERIVATIVE = BOOLS | STEPS
PER_STEP = frozenset(("y", "e", "i", "c"))
NAN = math.nan


class LongCode(BaseException):
    """A program has more nodes than allowed; the user's `except Exception` does not catch it."""


@dataclass(frozen=True)
class Congruence:
    """Matrices of nodes, product = left @ middle @ left.T, whose adjoints `adjoint` finds together."""

    product: list
    left: list
    middle: list

    def renamed(self, new: dict) -> "Congruence":
        return Congruence(
            *[[[new.get(i, i) for i in row] for row in x] for x in (self.product, self.left, self.middle)]
        )


class Graph(Blocks):
    """Nodes and the dict that makes each of them unique.

    >>> g = Graph()
    >>> x = g.input("th", 0, 0)
    >>> g.mul(x, g.const(2.0)) == g.add(x, x)
    True
    """

    def __init__(self, limits: Limits = LIMITS, budget: float = math.inf) -> None:
        self.limits, self.budget, self.exceeded = limits, budget, False
        self.op: list[str] = []
        self.args: list[tuple] = []
        self.shape: list[tuple] = []  # () for a number
        self.meta = []  # further parameters of a block, such as axes
        self.wide: dict[int, int] = {}  # first row -> the traced block of parameters there
        self.mask: list[int] = []  # bit l: depends on a value of loop l's step (counter, datum, carry)
        self.memo = {}
        self.vectors: dict[bytes, int] = {}  # names of elements -> the block of them
        self.loops = 0
        self.captured: Any = None  # objects captured by the traced function
        self.refusal: Exception | None = None  # the last refusal of a question about a symbolic value
        self.branches: Any = None  # answers conditions of the code that is being traced
        self.within: dict[int, int] = {}  # loop -> loops on whose steps its result depends, as bits
        self.depth: dict[int, int] = {}  # loop -> depth of nesting, itself included
        self.levels: dict[int, int] = {0: 0}  # mask -> depth
        self.complete = False  # no datum contains nan
        self.congruences: dict[frozenset[int], Congruence] = {}  # by the elements of the product
        self.eliminated = {}  # by the elements of a matrix, and those of a right-hand side
        self.sweeps_whole = True  # are adjoints of congruences found together?
        self.zero, self.one = self.const(0.0), self.const(1.0)

    def refused(self, error: Exception) -> Exception:
        """Store the error and return it; a function that catches it takes a branch that its numbers do
        not."""
        self.refusal = error
        return error

    def allow(self, count: float) -> None:
        """Give up if so many nodes more are too many."""
        if len(self.mask) + count > self.budget:
            self.exceeded = True
            raise LongCode

    # --- making nodes ---

    def raw(self, op: str, *args, shape: tuple | None = None, meta=None) -> int:
        """Return the node without simplification; its default shape is that of its block operands."""
        key = (op, args, shape, meta)
        i = self.memo.get(key)
        if i is None:
            i, m = len(self.mask), 0
            if i > self.budget:
                self.exceeded = True
                raise LongCode
            if len(self.op) != i:  # an interrupt struck below
                for members in (self.op, self.args, self.meta, self.shape):
                    del members[i:]
            shape = self._common_shape(op, args) if shape is None else shape
            if op == "in":
                m = 1 << args[1] if args[0] in PER_STEP else self.within.get(args[1], 0)
            elif op not in LEAVES or op == "mark":
                for j in args:
                    m |= self.mask[j]
            self.op.append(op)
            self.args.append(args)
            self.meta.append(meta)
            self.shape.append(shape)
            self.mask.append(m)
            self.memo[key] = i
        return i

    def _common_shape(self, op: str, args: tuple) -> tuple:
        shape = ()
        if op not in LEAVES:
            for j in args:
                if self.shape[j]:
                    if shape and shape != self.shape[j]:
                        raise AssertionError(f"{op} of shapes {shape} and {self.shape[j]}")
                    shape = self.shape[j]
        return shape

    def const(self, value: float) -> int:
        value = float(value)
        return self.raw("const", NAN if value != value else value if value else 0.0)

    def bool(self, value: bool) -> int:
        return self.raw("bool", bool(value))

    def input(self, kind: str, loop: int, k, shape: tuple = ()) -> int:
        return self.raw("in", kind, loop, k, shape=shape)

    def parameters(self, first: int, n: int) -> list[int]:
        """Return the traced parameters in these rows: numbers, and blocks where there are such."""
        found, k = [], first
        while k < first + n:
            i = self.wide.get(k)
            found.append(self.input("th", 0, k) if i is None else i)
            k += 1 if i is None else element_total(self.shape[i])
        return found

    def parameters_like(self, first: int, nodes: Iterable[int]) -> list[int]:
        """Return new parameters from row `first` on, with the shapes of these nodes."""
        made = []
        for i in nodes:
            made.append(self.input("th", 0, first, self.shape[i]))
            first += element_total(self.shape[i])
        return made

    def boolean(self, i: int):
        return self.op[i] in BOOLS

    def new_loop(self, within: int = 0) -> int:
        self.loops += 1
        self.within[self.loops] = within
        return self.loops

    def level(self, i: int) -> int:
        """Return the depth of the innermost loop in whose steps node i varies; 0 outside of loops."""
        mask = self.mask[i]
        found = self.levels.get(mask)
        if found is None:
            found = self.levels[mask] = max(self.depth[k] for k in range(mask.bit_length()) if mask >> k & 1)
        return found

    def value(self, i: int):
        """Return the value of a constant node, or None."""
        return self.args[i][0] if self.op[i] == "const" else None

    def node(self, op: str, *x: int) -> int:
        """Return the simplified node of this operation."""
        rule = SIMPLIFY.get(op)
        if rule is not None:
            return rule(self, *x)
        known = OPERATIONS.get(op)
        if all([self.op[j] == "const" for j in x]):
            c = [self.args[j][0] for j in x]
            value = (
                known.value(*c) if known is not None else 1.0 if op in STEPS and 1e-20 < c[0] < 1e20 else None
            )
            if value is not None:
                return self.const(value)
        before, i = len(self.mask), self.raw(op, *x)
        if i == before and known is not None:
            self.budget -= known.length  # it counts with the length of its expansion
        return i

    def add(self, a: int, b: int) -> int:
        if a == self.zero:
            return b
        if self.op[a] == "neg" and self.op[b] != "neg":
            return self.sub(b, self.args[a][0])
        made = self._sum(self.add, self.sub, 1, a, b)
        return self.raw("add", *sorted((a, b))) if made is None else made

    def sub(self, a: int, b: int) -> int:
        if b != self.zero:
            if a == self.zero:
                return self.neg(b)
            if a == b:
                return self.zero
            if self.op[a] == "neg" and self.op[b] != "neg":
                return self.neg(self.add(self.args[a][0], b))
        made = self._sum(self.sub, self.add, -1, a, b)
        return self.raw("sub", a, b) if made is None else made

    def _sum(self, same: Callable, opposite: Callable, sign: int, a: int, b: int) -> int | None:
        """Return a + sign b, which same(a, b) makes, in a simpler form; None if there is none."""
        op, args = self.op, self.args
        if b == self.zero:
            return a
        ca, cb = self.value(a), self.value(b)
        if ca is not None and cb is not None:
            return self.const(ca + sign * cb)
        if op[b] == "neg":
            return opposite(a, args[b][0])
        (fa, ra), (fb, rb) = self.scaled(a), self.scaled(b)
        if ra == rb and ca is None:
            return self.mul(self.const(fa + sign * fb), ra)
        if op[a] == op[b] == "select" and args[a][0] == args[b][0] and self.zero in args[a][1:] + args[b][1:]:
            c, u, v = args[a]
            return self.select(c, same(u, args[b][1]), same(v, args[b][2]))
        return None

    def mul(self, a: int, b: int) -> int:
        op, args = self.op, self.args
        if a == self.zero or b == self.zero:
            return self.zero  # a structural zero
        if a == self.one:
            return b
        if b == self.one:
            return a
        ca, cb = self.value(a), self.value(b)
        if ca is not None and cb is not None:
            return self.const(ca * cb)
        if ca is not None or cb is not None:
            c, x = (ca, b) if ca is not None else (cb, a)
            return self._constant_times(c, x)
        gated = self._gated(a, b) or self._gated(b, a)
        if gated is not None:
            return gated
        (fa, ra), (fb, rb) = self.scaled(a), self.scaled(b)
        f = fa * fb
        if f != 1.0:
            return self._constant_times(f, self.mul(ra, rb))
        if ra != a or rb != b:
            return self.mul(ra, rb)
        if op[a] == "rcp" and op[b] == "sqrt" and args[a][0] == args[b][0]:
            return self.rcp(b)
        return self.raw("mul", a, b) if a < b else self.raw("mul", b, a)

    def _constant_times(self, c: float, x: int) -> int:
        if c == 0.0:
            return self.zero
        if c == 1.0:
            return x
        if c == -1.0:
            return self.neg(x)
        if self.op[x] == "select" and self.zero in self.args[x][1:]:
            m, u, v = self.args[x]
            k = self.const(c)
            return self.select(m, self.mul(k, u), self.mul(k, v))
        f, r = self.scaled(x)
        if f != 1.0:
            return self._constant_times(c * f, r)
        return self.raw("mul", self.const(c), x)

    def _gated(self, s: int, x: int) -> int | None:
        """Return select(c, a, 0) * x with the product inside."""
        if self.op[s] != "select" or self.zero not in self.args[s][1:]:
            return None
        c, u, v = self.args[s]
        return self.select(c, self.mul(u, x), self.mul(v, x))

    def taken(self, i: int) -> int | None:
        """Return the condition outside of which `select` makes a number zero; None: there is none."""
        if self.op[i] != "select" or self.zero not in self.args[i][1:]:
            return None
        c, u, v = self.args[i]
        c, x = (c, u) if v == self.zero else (self.negation(c), v)
        inner = self.taken(x)
        return c if inner is None else self.both(c, inner)

    def times0(self, a: int, b: int) -> int:
        """Return a b, and zero where a is zero, whatever b is (`gated`)."""
        if self.value(a) is not None or self.value(b) is not None:
            return self.mul(a, b)
        if self.taken(a) is not None:
            c, u, v = self.args[a]
            return self.select(c, self.times0(u, b), self.times0(v, b))
        return self.raw("times0", a, b)

    def neg(self, a: int) -> int:
        c = self.value(a)
        if c is not None:
            return self.const(-c)
        op, args = self.op[a], self.args[a]
        if op == "neg":
            return args[0]
        if op == "sub":
            return self.sub(args[1], args[0])
        if op == "mul" and self.value(args[0]) is not None:
            return self._constant_times(-self.value(args[0]), args[1])
        if op == "select" and self.zero in args[1:]:
            return self.select(args[0], self.neg(args[1]), self.neg(args[2]))
        return self.raw("neg", a)

    def rcp(self, a: int) -> int:
        c = self.value(a)
        if c:
            return self.const(1.0 / c)
        op, args = self.op[a], self.args[a]
        if op == "rcp":
            return args[0]
        f, r = self.scaled(a)
        if f != 1.0 and f != 0.0:
            return self._constant_times(1.0 / f, self.rcp(r))
        return self.raw("rcp", a)

    def div(self, a: int, b: int) -> int:
        return self.mul(a, self.rcp(b))

    def select(self, c: int, a: int, b: int) -> int:
        if a == b:
            return a
        if self.op[c] == "bool":
            return a if self.args[c][0] else b
        if self.op[c] == "not":
            return self.select(self.args[c][0], b, a)
        if self.op[a] == "select" and self.args[a][0] == c:
            a = self.args[a][1]
        if self.op[b] == "select" and self.args[b][0] == c:
            b = self.args[b][2]
        return a if a == b else self.raw("select", c, a, b)

    def compare(self, op: str, a: int, b: int) -> int:
        ca, cb = self.value(a), self.value(b)
        if ca is not None and cb is not None:
            return self.bool(OPERATIONS[op].value(ca, cb))
        return self.raw(op, a, b)

    def both(self, a: int, b: int, op: str = "and") -> int:
        for x, y in ((a, b), (b, a)):
            if self.op[x] == "bool":
                return x if self.args[x][0] == (op == "or") else y
        return a if a == b else self.raw(op, *sorted((a, b)))

    def either(self, a: int, b: int) -> int:
        return self.both(a, b, "or")

    def negation(self, a: int) -> int:
        if self.op[a] == "bool":
            return self.bool(not self.args[a][0])
        return self.args[a][0] if self.op[a] == "not" else self.raw("not", a)

    def isnan(self, a: int) -> int:
        c = self.value(a)
        if c is not None:
            return self.bool(c != c)
        return (
            self.bool(False)
            if self.complete and self.op[a] == "in" and self.args[a][0] == "y"
            else self.raw("isnan", a)
        )

    def power(self, a: int, n: int) -> int:
        """Return a to an integer power n, by repeated squaring."""
        if n < 0:
            return self.rcp(self.power(a, -n))
        out = self.one
        while n:
            if n & 1:
                out = self.mul(out, a)
            n >>= 1
            if n:
                a = self.mul(a, a)
        return out

    def scaled(self, i: int) -> tuple[float, int]:
        """Return i as (constant, rest)."""
        if self.op[i] == "neg":
            c, r = self.scaled(self.args[i][0])
            return -c, r
        if self.op[i] == "mul":
            c = self.value(self.args[i][0])
            if c is not None:
                return c, self.args[i][1]
        return 1.0, i

    def factors(self, *x: int) -> tuple:
        """Return the factors of a product, sorted, so that reordered products are equal.

        A gate, select(c, a, 0) or select(c, 0, a), is one more factor beside those of a; it counts once."""
        gates: set[int] = set()
        found, stack = [], list(x)
        while stack:
            i = stack.pop()
            args = self.args[i]
            if self.op[i] == "mul":
                stack.extend(args)
            elif self.op[i] == "select" and self.zero in args[1:]:
                left = args[2] == self.zero
                gates.add(-2 * args[0] - left)
                stack.append(args[1] if left else args[2])
            else:
                found.append(i)
        return tuple(sorted([*gates, *found]))

    def congruent(self, product, left, middle) -> None:
        """Record that this matrix of nodes is left @ middle @ left.T with a symmetric middle."""
        names = [int(product[i, j]) for j in range(len(product)) for i in range(j + 1)]
        if len(set(names)) == len(names) > 1 and all(self.op[i] in ("add", "sub", "mul") for i in names):
            self.congruences[frozenset(names)] = Congruence(product.tolist(), left.tolist(), middle.tolist())

    # --- walking ---

    def reach(self, outs: Iterable[int], stop=()) -> list[int]:
        """Return all nodes under outs in order; nodes in `stop` are included, but not their operands."""
        seen, stack, op, args = set(), list(outs), self.op, self.args
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            seen.add(i)
            if i not in stop and op[i] not in LEAVES:
                stack.extend(args[i])
        return sorted(seen)

    def substitute(self, outs: Iterable[int], new: dict) -> None:
        """Fill `new` with the nodes under outs, rebuilt after the keys of `new` were replaced."""
        for i in self.reach([o for o in outs if o not in new], new):
            if i not in new:
                x = self.args[i]
                new[i] = i if self.op[i] in LEAVES else self.remade(i, [new[j] for j in x])

    # --- local derivatives ---

    def singular(self, i: int):
        """Return whether a derivative of node i may be infinite."""
        known = OPERATIONS.get(self.op[i])
        return known is not None and known.singular

    def pulled(self, i: int, bar: int) -> list[tuple[int, int]]:
        """Return (operand, its share of the adjoint) for node i with adjoint `bar`."""
        op, x = self.op[i], self.args[i]
        if op in MOVES:
            return self.pulled_moves(i, bar)
        if op in WHOLE:
            return OPERATIONS[op].pulled(
                self, i, bar if not self.shape[i] else self.spread(bar, self.shape[i])
            )
        if op in WITHOUT_DERIVATIVE:
            return []
        pull = OPERATIONS[op].pull
        shares = [pull(k)(self, bar, i, *x) for k in range(len(x))]
        if self.shape[i]:
            shares = [self.fitted(share, i, j) for j, share in zip(x, shares, strict=True)]
        return (
            [(x[0], self.add(*shares))] if len(x) == 2 and x[0] == x[1] else list(zip(x, shares, strict=True))
        )

    def pushed(self, i: int, t: dict) -> int:
        """Return the tangent of node i, given those of its operands."""
        op, x = self.op[i], self.args[i]
        if op in WITHOUT_DERIVATIVE or all([t[j] == self.zero for j in x]):
            return self.zero
        if op in MOVES:
            return self.pushed_moves(i, t)
        if op in WHOLE:
            return OPERATIONS[op].pushed(
                self, i, [t[j] if t[j] == self.zero else self.spread(t[j], self.shape[j]) for j in x]
            )
        out, moving = self.zero, [k for k, j in enumerate(x) if t[j] != self.zero]
        product = self.times0 if len(moving) > 1 and OPERATIONS[op].singular else self.mul
        for k in moving:
            out = self.add(out, product(t[x[k]], OPERATIONS[op].partial(k)(self, i, *x)))
        return out


SIMPLIFY: dict[str, Callable] = {
    "add": Graph.add, "sub": Graph.sub, "mul": Graph.mul, "neg": Graph.neg, "rcp": Graph.rcp,
    "select": Graph.select,
    "times0": Graph.times0, "and": Graph.both, "or": Graph.either, "not": Graph.negation,
    "isnan": Graph.isnan,
    **{op: (lambda g, a, b, op=op: g.compare(op, a, b)) for op in COMPARE},
}  # fmt: skip
