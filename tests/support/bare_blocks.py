"""Blocks of the interpreter without a program, to which rows are given by hand."""

from types import SimpleNamespace

import numpy as np

from tapegrad.replay.interpreter import arena as _arena
from tapegrad.replay.interpreter import blocks

NO_TABLE = SimpleNamespace(last=np.zeros(0, int), position=np.zeros(0, int))


def bare_block(*values):
    """A block, and the places of these values."""
    arena = _arena.Arena(SimpleNamespace(shown={}), NO_TABLE)
    block = object.__new__(blocks.InstructionBlock)
    block.arena, block.rows, block.parts, block.along, block.listed = arena, [], [], 0, None
    block.nothing, block.temporary = arena.nothing, arena.temporary
    block.kinds = SimpleNamespace(exact=False)
    return block, [arena.taken_for_ever(v) for v in values]
