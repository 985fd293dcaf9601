"""What an instruction of a program is for one element, by the declarations that kernels have of their operations."""

import math
from typing import Any

import numpy as np

from ..._core.arrays import NUMBERS
from ..._core.errors import KernelError
from ...kernels.emit import elementary
from ...kernels.graph.nodes import OPERATIONS, Graph
from ...kernels.trace.symbolic import ARRAYS, Sym, elementwise, lift, real
from ...ops import elementwise as e
from ...ops import piecewise
from ...ops.declare import Gated, Written
from ...ops.zero_derivative import Place
from ..program import LAID, PART
from ..record.recorder import Instruction
from .regions import through

# Functions that kernels have less exactly than NumPy: powers by the logarithm, and what is made of them; sums of series.
ROUGH = frozenset(
    (
        "power_of", "gamma", "beta", "betaln", "cbrt", "remainder", "floor_divide", "fmod", "logaddexp2", "tail",
        "psi_gap", "polygamma_n", "erfcx_ratio", "exprel_n",
    )
)  # fmt: skip
# Functions that end where NumPy's go on, with nan: then the instructions are to be done by NumPy.
ENDING = frozenset(("sin", "cos", "tan", "sinc", "cosm1"))
POWERS = 8  # whole powers up to this one are products


class Exact(Graph):
    """A graph in which arithmetic stays as it stands: nothing is simplified that may change a bit."""

    def __init__(self) -> None:
        super().__init__()
        self.reciprocals: set = set()  # of the instruction at hand

    def node(self, op, *x):
        own = OWN.get(op)
        if own is not None:
            return own(self, *x)
        return self.raw(op, *x) if op in OPERATIONS and op not in EXACT else super().node(op, *x)

    def add(self, a, b):
        return self.raw("add", a, b)

    def sub(self, a, b):
        return self.raw("sub", a, b)

    def mul(self, a, b):
        if b in self.reciprocals:  # x / y is declared as x times 1 / y
            return self.raw("div", a, self.args[b][0])
        return b if a == self.one else a if b == self.one else self.raw("mul", a, b)

    def neg(self, a):
        return self.raw("neg", a)

    def rcp(self, a):
        r = self.raw("rcp", a)
        self.reciprocals.add(r)
        return r

    def div(self, a, b):
        return self.raw("div", a, b)


OWN = {"add": Exact.add, "sub": Exact.sub, "mul": Exact.mul, "neg": Exact.neg, "rcp": Exact.rcp, "div": Exact.div}
EXACT = frozenset(("select", "and", "or", "not", "isnan", "lt", "le", "gt", "ge", "eq", "ne"))


class Element:
    """An elementwise instruction: its operands, and their maps."""

    def __init__(self, i: Instruction, sources: list, cost: int):
        self.i, self.list, self.cost = i, sources, cost

    def sources(self) -> list:
        return self.list

    def needs(self, place: tuple, extents: tuple) -> list:
        return [(a, through(m, place, len(extents))) for a, m in self.list]

    def node(self, g: Exact, x: list) -> int:
        g.reciprocals.clear()
        i = self.i
        flat = ufunc_of(i)
        if flat is not None:
            given = [Sym(g, x[a.k]) if type(a) is Place else a for a in i.params["args"]]
            return settled(g, flat(*given))
        return made(g, i.prim, [Sym(g, n) for n in x], i.params)


def settled(g: Exact, y: Any) -> int:
    return int(lift(g, y).ids)


def made(g: Exact, prim: Any, x: list, params: dict) -> int:
    """One element of an operation."""
    f = prim.scalar
    if prim is e.power_n.prim:
        return settled(g, x[0] ** params["n"])
    if prim in CHOSEN:
        return settled(g, CHOSEN[prim](*x))
    if prim in ARRAYS:
        return settled(g, ARRAYS[prim](*x, **params))
    if isinstance(f, Gated):
        r = settled(g, f.form(*x, **params))
        for k in range(2 if prim is e.times00.prim else 1):  # 0 times what is no number
            gate = g.both(g.compare("eq", int(x[k].ids), g.zero), g.isnan(r))
            r = g.select(gate, g.zero, r)
        return r
    if isinstance(f, (str, tuple)):
        name, n = f if isinstance(f, tuple) else (f, len(x))
        return settled(g, elementwise(g, name, *x[:n]))
    return settled(g, (f.form if isinstance(f, Written) else f)(*x, **params))


def ufunc_of(i: Instruction) -> Any:
    """The ufunc of an operation without a derivative, where its operands are arrays and numbers and nothing is set."""
    prim, params = i.prim, i.params
    if type(prim) is str or prim.vjp is not None or type(params) is not dict or params.keys() != {"args", "kwargs"}:
        return None
    f = getattr(np, prim.name, None)
    plain = not params["kwargs"] and all([type(a) is Place or type(a) in NUMBERS for a in params["args"]])
    return f if plain and isinstance(f, np.ufunc) else None


# Kernels halve where both are equal, for the sake of derivatives.
CHOSEN = {
    piecewise.maximum.prim: lambda x, y: np.where(x > y, x, np.where(y >= x, y, x + y)),
    piecewise.minimum.prim: lambda x, y: np.where(x < y, x, np.where(y <= x, y, x + y)),
}
KNOWN: dict = {}  # (operation, settings) -> its cost, or None where it cannot be fused


def cost_of(i: Instruction, truths: tuple) -> int | None:
    """About how many operations an element takes; None where the instruction is not elementwise, or not known exactly enough."""
    prim = i.prim
    if prim is PART or prim is LAID or type(prim) is str:
        return None
    flat = ufunc_of(i)
    if flat is None and (prim.scalar is None or prim.multi or prim.writes or prim.name in ROUGH):
        return None
    if prim is e.power_n.prim and (i.params["n"] != int(i.params["n"]) or not 0 <= i.params["n"] <= POWERS):
        return None
    key = (prim, truths, repr([(a.k if type(a) is Place else a) for a in i.params["args"]] if flat is not None else i.params))
    if key not in KNOWN:
        KNOWN[key] = tried(i, truths)
    return KNOWN[key]


def tried(i: Instruction, truths: tuple) -> int | None:
    g = Exact()
    x = [g.input("th", 0, k) for k in range(len(truths))]
    x = [g.isnan(n) if truth else n for n, truth in zip(x, truths, strict=True)]
    try:
        out = Element(i, [], 0).node(g, x)
    except (KernelError, TypeError):  # kernels do not have it
        return None
    return sum([weight(g.op[n]) for n in g.reach([out], x)])


SLOW = frozenset(("div", "rcp", "sqrt"))


def weight(op: str) -> int:
    if op in ("const", "bool", "in"):
        return 0
    if op in SLOW:
        return 8
    if op in elementary.FUNCTIONS:
        return elementary.length(op)
    known = OPERATIONS.get(op)
    form = getattr(known, "form", None) if elementary.written_out(op) else None
    return 1 if form is None else sum([weight(name) for name, _ in form.steps])


def as_number(v: Any) -> float | None:
    """A constant as a number of a group; None where it has no exact one."""
    if type(v) not in (float, int) and not isinstance(v, np.floating):
        return None
    return float(v) if float(v) == v or math.isnan(v) else None


def of_truth(g: Exact, n: int) -> int:
    """0 or 1 of a truth."""
    return int(real(Sym(g, n)).ids)
