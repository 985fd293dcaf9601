"""The entries of a compiled loop as operations on arrays, which every transform follows.

A coloured product costs the whole function for each colour. Here an entry costs what its own expression does,
and so do its derivatives."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as plain_np

from .. import numpy as np
from .._core.primitive import bind
from .._core.trees import leaves
from ..kernels.graph.blocks import strided
from ..kernels.trace.symbolic import OPERATIONS
from ..replay.buffer_pool import packed
from ..replay.record.instructions import STRUCTURAL
from ._direct import DirectEntries
from ._pattern import asked_of
from ._rows import NotRowwise

MOST_STEPS = 1000  # operations on arrays, above which coloured products cost less

# instructions of the graph that no operation declares
FACES: dict[str, Callable] = {
    "div": np.divide, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "isnan": np.isnan,
}  # fmt: skip


def is_known(op: str) -> bool:
    known: Any = OPERATIONS.get(op)
    return op in FACES or hasattr(known, "prim") and known.inputs == known.n


def operated(op: str, *xs):
    """Return the result of an instruction of the graph, on arrays."""
    return FACES[op](*xs) if op in FACES else bind(OPERATIONS[op].prim, xs, OPERATIONS[op].params)


class EntryTerms:
    """The entries as a function of the arguments of the plan.

    Raises NotRowwise where something has no operation on arrays. It checks no branches: the compiled loop
    does."""

    def __init__(self, direct: DirectEntries, size: int):
        program, part, g = direct.kept.recorded, direct.part, direct.code.graph
        self.direction, self.size = direct.zeros, size
        self.is_input = [leaf.chosen for leaf in direct.kept.signature.leaves]
        self.arguments, self.captured, self.constants = program.arguments, program.captured, program.constants
        side = asked_of(program, direct.before)
        self.before = [] if side is None else side.code
        apart = [i.prim in STRUCTURAL or i.prim.writes or i.prim.multi for _, i in self.before]
        if direct.stored or any(apart):
            raise NotRowwise("an instruction that is no operation on arrays")
        self.steps: list = []  # (what is to be done, the numbers of its operands or None)
        self.numbers: list = []  # of each term
        self.places = plain_np.concatenate([places.reshape(-1) for _, _, places in direct.code.terms])
        known: dict = {}  # (node, extents) -> number
        for extents, node, _ in direct.code.terms:
            for n in g.reach([node]):
                if (n, extents) not in known:
                    op, args = g.op[n], g.args[n]
                    known[n, extents] = len(self.steps)
                    if op in ("const", "bool"):
                        self.steps.append((args[0], None))
                    elif op == "in":
                        self.steps.append((self.leaf(part, args, extents), None))
                    elif is_known(op):
                        self.steps.append((op, [known[a, extents] for a in args]))
                    else:
                        raise NotRowwise(op)
            self.numbers.append((known[node, extents], extents))
            if len(self.steps) > MOST_STEPS:
                raise NotRowwise("too many expressions")

    def leaf(self, part, args: tuple, extents: tuple) -> tuple:
        """Return (the number of a value, the places of the elements that are read, their shape)."""
        kind, _, what = args
        if kind == "th":
            return part.single[what], slice(None), ()
        pointer, first, steps = what
        a = part.arrays[pointer]
        _, own, strides, dtype, _ = part.shown[a]
        if strides != packed(own, dtype.itemsize):
            raise NotRowwise("an array that is not packed")
        first, steps = first // dtype.itemsize, tuple([s // dtype.itemsize for s in steps])
        at = strided(first, steps, extents)
        if at.size == plain_np.prod(own) and (at.reshape(-1) == plain_np.arange(at.size)).all():
            return a, slice(None), extents
        if len(steps) == 1 and steps[0] > 0:
            return a, slice(first, int(at[-1]) + 1, steps[0]), extents
        return a, at, extents

    def __call__(self, x, *rest):
        """Return the entries at x, row by row."""
        flat = [leaf for a in (x, self.direction, *rest) for leaf in leaves(a)]
        env = dict(zip(self.arguments, itertools.compress(flat, self.is_input), strict=True))
        env.update(self.captured)
        env.update(self.constants)
        for k, i in self.before:
            env[k] = bind(i.prim, [env[a] for a in i.args], i.params)
        found = []
        for what, operands in self.steps:
            if operands is not None:
                found.append(operated(what, *[found[a] for a in operands]))
            elif type(what) is tuple:
                a, at, extents = what
                found.append(np.reshape(np.reshape(env[a], (-1,))[at], extents))
            else:
                found.append(what)
        parts = [np.reshape(np.broadcast_to(found[k], extents), (-1,)) for k, extents in self.numbers]
        return np.bincount(self.places, np.concatenate(parts), self.size)


def terms_of(direct, size: int) -> EntryTerms | None:
    """Return the entries as operations, or None where there is no compiled loop, or no operation."""
    try:
        return EntryTerms(direct, size) if type(direct) is DirectEntries else None
    except NotRowwise:
        return None
