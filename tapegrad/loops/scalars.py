"""Scalar functions and their derivatives in loop programs: those that `ops` declares.

A function is written out as operations of the graph of kernels. Each of these has rules that are recipes, of
operations again (`kernels.trace.symbolic.Operation`)."""

import functools
from collections.abc import Callable

import numpy as np

from .._core.errors import KernelError
from ..kernels.graph.nodes import BOOLS, OPERATIONS
from ..kernels.graph.recipes import Recipe
from ..kernels.trace.symbolic import Operation, Sym, apply_operation, lift
from ..ops.declare import NUMPY
from .program import Scalar, literal
from .writer import StatementWriter

DIVIDE = Operation(NUMPY[np.true_divide].prim, {})  # the graph has reciprocals only
CONSTANT = frozenset(("floor", "primal"))  # no derivative
# The derivative of others may be infinite; a zero cotangent or tangent stays zero through it.
BOUNDED = frozenset(
    (
        "add",
        "sub",
        "neg",
        "mul",
        "select",
        "abs",
        "sin",
        "cos",
        "tanh",
        "arctan",
        "exp",
        "erf",
        "expit",
    )
)


def operation(op: str):
    return DIVIDE if op == "div" else OPERATIONS[op]


def passes(op: str) -> bool:
    """Does this operation on floats pass derivatives?"""
    return op not in BOOLS and op not in CONSTANT


@functools.cache
def pull(op: str, k: int) -> Recipe:
    """The pullback to operand k, a function of (cotangent, result, *operands)."""
    return as_recipe(operation(op).pull(k), 2 + operands(op))


@functools.cache
def partial(op: str, k: int) -> Recipe:
    """The derivative by operand k, a function of (result, *operands)."""
    return as_recipe(operation(op).partial(k), 1 + operands(op))


def operands(op: str) -> int:
    return getattr(operation(op), "n", 2)


def as_recipe(f, n: int) -> Recipe:
    return f if isinstance(f, Recipe) else Recipe(f, n)


def reads(recipe: Recipe, n: int) -> set[int]:
    """Which of its n operands a recipe reads."""
    found = {j for op, places in recipe.steps if op not in ("const", "bool") for j in places} | {recipe.out}
    return {j for j in found if j < n}


@functools.cache
def expansion(f: Callable, n: int, *fixed: float) -> Recipe | None:
    """NumPy's or SciPy's function of n numbers (and of fixed ones) as operations; None: it has none."""

    def make(g, *x: int) -> int:
        return int(lift(g, apply_operation(g, f, (*[Sym(g, i) for i in x], *fixed))).ids)

    try:
        return Recipe(make, n)
    except KernelError:
        return None


def write(w: StatementWriter, recipe: Recipe, args: tuple[Scalar, ...], type: str) -> Scalar:
    """Write the operations of a recipe on these operands."""
    made = list(args)
    for op, places in recipe.steps:
        if op in ("const", "bool"):
            made.append(literal(places[0], type if op == "const" else "b1"))
        else:
            x = tuple([made[j] for j in places])
            logical = op in BOOLS or (op == "select" and x[1].type == "b1")
            made.append(w.compute(op, *x, type="b1" if logical else type))
    return made[recipe.out]
