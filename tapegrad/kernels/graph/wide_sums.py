"""Float64 sums in a float32 program.

A step computes in the program's dtype. What it adds to a sum is converted first (both factors of a product),
so only the terms themselves are rounded. Every node has one type. Outside of loops, each node that the
outputs need, or that depends on a sum, has a copy in float64. The copy of a parameter, carry or number of
steps is the converted number; that of a constant is the constant. Therefore coefficient * sum and N *
log(sigma) lose no precision. The log(sigma) that a step reads is computed in the program's dtype. A step that
reads a value that depends on a sum gets it rounded.

A comparison or floor that depends on no sum is decided once, in the program's dtype, because steps and
sections have to agree."""

from dataclasses import replace

from .nodes import LEAVES, Graph
from .program import KernelProgram


def widen_sums(
    p: KernelProgram, precise: tuple[bool, ...], read: list[int]
) -> tuple[KernelProgram, set[int], dict]:
    """Return the program with float64 sums, its float64 nodes, and the rounded nodes with their sources.

    `precise` says for each group of outputs whether it is float64 (otherwise it is rounded once). `read`
    holds the outside nodes that the loops read. Loops are changed in place."""
    g = p.g
    wide = {}
    for loop in p.loops:
        made = [g.input("S", loop.id, k, g.shape[s]) for k, s in enumerate(loop.sums)]
        wide.update(zip(loop.sums, made, strict=True))
        loop.sums = made
    outside = g.reach(p.outputs + read)
    after_sums: set[int] = set()  # nodes that depend on a sum
    for i in outside:
        if i in wide or (g.op[i] not in LEAVES and any(j in after_sums for j in g.args[i])):
            after_sums.add(i)
    wanted = after_sums | set(p.outputs)
    for i in reversed(outside):
        if i in wanted and g.op[i] not in LEAVES and not decided(g, i, after_sums):
            wanted.update(g.args[i])
    for i in outside:
        if i in wanted and i not in wide:
            wide[i] = widened_node(g, i, wide, after_sums)
    groups = [
        [wide[o] if keep else rounded(g, o, wide) for o in group]
        for group, keep in zip(p.groups, precise, strict=True)
    ]
    nodes = {w for i, w in wide.items() if w != i}
    return (
        replace(p, groups=groups),
        nodes,
        {i: wide[i] for i in after_sums if g.op[i] != "view" and wide[i] != i},
    )


def decided(g: Graph, i: int, after_sums: set[int]) -> bool:
    """Return whether node i is computed in the program's dtype only."""
    return i not in after_sums and (g.boolean(i) or g.op[i] == "floor")


def widened_node(g: Graph, i: int, wide: dict, after_sums: set[int]) -> int:
    """Return node i in float64."""
    op, args = g.op[i], g.args[i]
    if op in ("const", "array"):
        return g.raw(op, *args, "float64", shape=g.shape[i], meta=g.meta[i])
    if op == "in" and args[0] == "N":
        return g.input("N", 0, 1)
    if op in LEAVES or decided(g, i, after_sums):
        return i if g.boolean(i) else g.raw("widen", i)
    return g.raw(op, *[wide[j] for j in args], shape=g.shape[i], meta=g.meta[i])


def rounded(g: Graph, o: int, wide: dict) -> int:
    """Return output o in the program's dtype, computed in float64."""
    return o if g.op[o] in ("const", "array") else g.raw("narrow", wide[o])
