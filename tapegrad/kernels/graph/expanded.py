"""Operations that the emitters do not know, written out in those that they do.  This comes after all derivatives have been taken: so these
are by the operations' own rules, whatever they are written in."""

from dataclasses import replace

from .nodes import LEAVES, OPERATIONS
from .program import Program, relate


def expanded(p: Program) -> Program:
    g = p.g
    while True:
        reads = p.outputs + [i for loop in p.loops for i in loop.reads()]
        order = g.reach(reads)
        if not any(written_out(g.op[i]) for i in order):
            return p
        new: dict = {}
        for i in order:
            x = [new[j] for j in g.args[i]] if g.op[i] not in LEAVES else []
            if written_out(g.op[i]):
                new[i] = OPERATIONS[g.op[i]].form(g, *x)
            else:
                new[i] = i if x == list(g.args[i]) or g.op[i] in LEAVES else g.remade(i, x)
        loops = [loop.copy() for loop in p.loops]
        for loop in loops:
            loop.rewrite(new)
        relate(loops)
        p = replace(p, loops=loops, groups=[[new[o] for o in group] for group in p.groups])


def written_out(op: str) -> bool:
    known = OPERATIONS.get(op)
    return known is not None and known.form is not None
