"""What an instruction of a program is for one element: a graph of kernels' scalar operations, by the word
`scalar` of its declaration.

Fused groups (fusion.groups) compile the graph into loops."""

import functools
import math
from collections.abc import Callable

import numpy as np

from .._core.errors import KernelError
from ..kernels.emit import elementary
from ..kernels.graph.nodes import OPERATIONS, Graph
from ..kernels.trace.symbolic import ARRAYS, Sym, as_real_symbol, broadcast_instruction, lift
from ..ops.declare import ComposedScalar, GatedProduct
from ..ops.zero_derivative import ArgumentPlaceholder
from .record.instructions import Instruction, ufunc_of


class Exact(Graph):
    """A graph in which arithmetic stays as it stands: nothing is simplified that may change a bit."""

    def __init__(self) -> None:
        super().__init__()
        self.reciprocals = set()  # of the instruction at hand
        self.below = {}  # index counted from the first -> of how many elements

    def node(self, op, *x):
        own = OWN.get(op)
        if own is not None:
            return own(self, *x)
        return self.raw(op, *x) if op in OPERATIONS and op not in EXACT else super().node(op, *x)

    add, sub, neg, div = [functools.partialmethod(Graph.raw, op) for op in ("add", "sub", "neg", "div")]

    def mul(self, a, b):
        if b in self.reciprocals:  # x / y is declared as x times 1 / y
            return self.raw("div", a, self.args[b][0])
        return b if a == self.one else a if b == self.one else self.raw("mul", a, b)

    def rcp(self, a):
        r = self.raw("rcp", a)
        self.reciprocals.add(r)
        return r


OWN = {op: getattr(Exact, op) for op in ("add", "sub", "mul", "neg", "rcp", "div")}
EXACT = frozenset(("select", "and", "or", "not", "isnan", "lt", "le", "gt", "ge", "eq", "ne"))


def settled(g: Exact, y) -> int:
    return int(lift(g, y).ids)


def scalar_of(g: Exact, i: Instruction, x: list) -> int:
    """One element of the result, of those of the operands."""
    g.reciprocals.clear()
    flat, f, given = ufunc_of(i), i.prim.scalar, [Sym(g, n) for n in x]
    if flat is not None:
        return settled(
            g, flat(*[given[a.k] if type(a) is ArgumentPlaceholder else a for a in i.params["args"]])
        )
    if i.prim in ARRAYS:
        return settled(g, ARRAYS[i.prim](*given, **i.params))
    if isinstance(f, (str, tuple)):
        name, n = f if isinstance(f, tuple) else (f, len(x))
        return settled(g, broadcast_instruction(g, name, *given[:n]))
    r = settled(g, (f.value if isinstance(f, ComposedScalar) else f)(*given, **i.params))
    for n in x[: f.gates] if isinstance(f, GatedProduct) else ():
        r = g.select(g.both(g.compare("eq", n, g.zero), g.isnan(r)), g.zero, r)
    return r


KNOWN: dict = {}  # (what is asked, operation, settings, which operands are truths) -> the answer


def of_graph(ask: Callable, i: Instruction, truths: tuple):
    """ask(graph, inputs, result), once for operations alike; None where the instruction is not elementwise,
    or kernels have it not, or not exactly enough."""
    prim = i.prim
    flat = ufunc_of(i) is not None
    if not flat and (
        prim.scalar is None
        or prim.multi
        or prim.writes
        or (prim.rough(**i.params) if callable(prim.rough) else prim.rough)
    ):
        return None
    setting = (
        repr([a.k if type(a) is ArgumentPlaceholder else a for a in i.params["args"]] if flat else i.params)
        if i.params
        else None
    )
    key = ask, prim, setting, truths
    if key not in KNOWN:
        g = Exact()
        x = [g.input("th", 0, k) for k in range(len(truths))]
        x = [g.isnan(n) if truth else n for n, truth in zip(x, truths, strict=True)]
        try:
            KNOWN[key] = ask(g, x, scalar_of(g, i, x))
        except (KernelError, TypeError):  # kernels do not have it
            KNOWN[key] = None
    return KNOWN[key]


SLOW = frozenset(("div", "rcp", "sqrt"))
BOUNDED = frozenset(("sin", "cos"))  # functions that end, with nan, where NumPy's go on


def steps_of(op: str) -> list:
    """The operations that a node is written out as."""
    form = (
        None
        if op in SLOW or op in elementary.FUNCTIONS or not elementary.is_expanded(op)
        else OPERATIONS[op].form
    )
    return [op] if form is None else [step for name, _ in form.steps for step in steps_of(name)]


def weight(op: str) -> int:
    if op in ("const", "bool", "in"):
        return 0
    return 8 if op in SLOW else elementary.length(op) if op in elementary.FUNCTIONS else 1


def cost(g: Exact, x: list, out: int) -> tuple[int, bool]:
    """(about how many operations an element takes, may NumPy go on where it ends?)"""
    steps = [step for n in g.reach([out], x) for step in steps_of(g.op[n])]
    return sum(map(weight, steps)), not BOUNDED.isdisjoint(steps)


def as_number(v) -> float | None:
    """A constant as a number of a group; None where it has no exact one."""
    if type(v) not in (float, int) and not isinstance(v, np.floating):
        return None
    return float(v) if float(v) == v or math.isnan(v) else None


def of_truth(g: Exact, n: int) -> int:
    """0 or 1 of a truth."""
    return int(as_real_symbol(Sym(g, n)).ids)
