"""An elementwise operation as rows of the interpreter, by its scalar graph."""

from typing import Any

from ..record.recorder import Instruction
from ..scalar_graph import Exact, of_graph
from .machine_code import CHECKED, OPERANDS

# Nodes that are another row, of these operands; of 1 and 0 for the truth.
SPELT: dict = {
    "rcp": lambda a: ("div", 1.0, a),
    "gt": lambda a, b: ("lt", b, a),
    "ge": lambda a, b: ("le", b, a),
    "not": lambda a: ("eq", a, 0.0),
    "and": lambda a, b: ("mul", a, b),
    "isnan": lambda a: ("ne", a, a),
}


def rows_of(i: Instruction, shown: Any) -> tuple | None:
    """(rows, do they make a truth?, how many are rounded), or None where the interpreter cannot do it.

    A row is its name and its operands: k for operand k of the instruction, a float for a constant, ~n for the
    result of row n.

    A product needs no gate: of what is not finite, the interpreter tells.  A ufunc is not taken to pieces,
    for it may be exact where they are rounded, as log2 of 8 is."""
    found = of_graph(
        rows, i, tuple([shown[a][3] is not None and shown[a][3].kind == "b" for a in i.args]), gates=False
    )
    return None if found is None or (found[2] > 1 and i.prim.ufunc is not None) else found


def rows(g: Exact, x: list, out: int) -> tuple | None:
    made: list = []
    places: dict = {n: k for k, n in enumerate(x)}
    for n in g.reach([out], x):
        op, args = g.op[n], g.args[n]
        if n in places:
            continue
        if op in ("const", "bool"):
            places[n] = float(args[0])
            continue
        name, *operands = SPELT.get(op, lambda *args, op=op: (op, *args))(*[places[a] for a in args])
        if OPERANDS.get(name) == len(x) > len(operands):
            operands = range(len(x))  # the row wants the result of the function, too
        if OPERANDS.get(name) != len(operands):
            return None
        places[n] = ~len(made)
        made.append((name, tuple(operands)))
    names = [name for name, _ in made]
    rounded = sum([name in CHECKED for name in names])
    if "select" in names and rounded:  # what is not chosen would have to be finite, too
        return None
    return tuple(made) or (("copy", (places[out],)),), g.boolean(out), rounded
