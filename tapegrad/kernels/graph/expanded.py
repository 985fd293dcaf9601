"""Operations that the emitters do not know, expanded into those that they do.

This runs after all derivatives have been taken. Derivatives are therefore those of the operations' own rules.
An expansion that would be too long for a compiler becomes a function, which the emitters call."""

from collections import Counter
from dataclasses import replace

from .nodes import LEAVES, OPERATIONS, Graph
from .program import KernelProgram, relate

EXPANDED_OPERATIONS = 3000  # operations of a function at all its uses, above which it is called
INLINED_OPERATIONS = 40  # functions up to this length are always inlined


def expand_program(p: KernelProgram) -> KernelProgram:
    g = p.g
    while True:
        reads = p.outputs + [i for loop in p.loops for i in loop.reads()]
        order = g.reach(reads)
        called = called_operations(g, order)
        if not any(is_expanded(g.op[i]) and g.op[i] not in called for i in order):
            return p
        new = {}
        for i in order:
            x = [new[j] for j in g.args[i]] if g.op[i] not in LEAVES else []
            if is_expanded(g.op[i]) and g.op[i] not in called:
                new[i] = OPERATIONS[g.op[i]].form(g, *x)
            else:
                new[i] = i if x == list(g.args[i]) or g.op[i] in LEAVES else g.remade(i, x)
        loops = [loop.copy() for loop in p.loops]
        for loop in loops:
            loop.rewrite(new)
        relate(loops)
        p = replace(p, loops=loops, groups=[[new[o] for o in group] for group in p.groups])


def is_expanded(op: str) -> bool:
    known = OPERATIONS.get(op)
    return known is not None and known.form is not None


def called_operations(g: Graph, order: list[int]) -> set[str]:
    """Return the operations that are called; an operation of blocks is a short loop and is not."""
    uses = Counter([g.op[i] for i in order if not g.shape[i]])
    blocks = {g.op[i] for i in order if g.shape[i]}
    lengths = {op: OPERATIONS[op].length for op in uses if is_expanded(op)}
    return {
        op
        for op, n in lengths.items()
        if op not in blocks and n > INLINED_OPERATIONS and n * uses[op] > EXPANDED_OPERATIONS
    }
