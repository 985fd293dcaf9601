"""Sums of float64 in a program of float32.

A step computes in the program's dtype, and what it adds to a sum is converted first (of a product, both factors), so that only the
terms themselves are rounded.  Every node has one type.  Outside of loops a copy in float64 is made of each node that the outputs
need and of each that depends on a sum; of the parameters, carries and numbers of steps that these read the copy is the converted
number, of a constant the constant itself.  So coefficient * sum and N * log(sigma) lose nothing, while what a step reads of the
same log(sigma) is computed in the program's dtype as before.  A step that reads what depends on a sum gets it rounded.

A comparison or a floor that depends on no sum is decided once, in the program's dtype, for steps and sections have to agree."""

from dataclasses import replace
from typing import Any

from .nodes import LEAVES, Graph
from .program import Program


def widened(p: Program, precise: tuple[bool, ...], read: list[int]) -> tuple[Program, set[int], dict]:
    """The program with sums of float64; all its nodes of float64; and those that are rounded to the program's dtype, each with the
    node of float64 that it is made from.

    `precise`: for each group of outputs, whether it is float64 (or rounded once); `read`: the nodes outside of loops that the loops
    read.  Loops are changed in place."""
    g = p.g
    wide: dict[Any, Any] = {}
    for loop in p.loops:
        made = [g.input("S", loop.id, k, g.shape[s]) for k, s in enumerate(loop.sums)]
        wide.update(zip(loop.sums, made, strict=True))
        loop.sums = made
    outside = g.reach(p.outputs + read)
    after_sums: set[int] = set()  # depends on a sum
    for i in outside:
        if i in wide or (g.op[i] not in LEAVES and any(j in after_sums for j in g.args[i])):
            after_sums.add(i)
    wanted = after_sums | set(p.outputs)
    for i in reversed(outside):
        if i in wanted and g.op[i] not in LEAVES and not decided(g, i, after_sums):
            wanted.update(g.args[i])
    for i in outside:
        if i in wanted and i not in wide:
            wide[i] = copied(g, i, wide, after_sums)
    groups = [[wide[o] if keep else rounded(g, o, wide) for o in group] for group, keep in zip(p.groups, precise, strict=True)]
    nodes = {w for i, w in wide.items() if w != i}
    return replace(p, groups=groups), nodes, {i: wide[i] for i in after_sums if g.op[i] != "view" and wide[i] != i}


def decided(g: Graph, i: int, after_sums: set[int]) -> bool:
    """Is node i computed in the program's dtype only?"""
    return i not in after_sums and (g.boolean(i) or g.op[i] == "floor")


def copied(g: Graph, i: int, wide: dict, after_sums: set[int]) -> int:
    """Node i in float64."""
    op, args = g.op[i], g.args[i]
    if op in ("const", "array"):
        return g.raw(op, *args, "float64", shape=g.shape[i], meta=g.meta[i])
    if op == "in" and args[0] == "N":
        return g.input("N", 0, 1)
    if op in LEAVES or decided(g, i, after_sums):
        return i if g.boolean(i) else g.raw("widen", i)
    return g.raw(op, *[wide[j] for j in args], shape=g.shape[i], meta=g.meta[i])


def rounded(g: Graph, o: int, wide: dict) -> int:
    """Output o in the program's dtype, computed in float64."""
    return o if g.op[o] in ("const", "array") else g.raw("narrow", wide[o])
