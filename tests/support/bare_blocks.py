"""Blocks of the interpreter without a program, to which rows are given by hand."""

from types import SimpleNamespace

import numpy as np

from tapegrad.replay.interpreter import arena as _arena
from tapegrad.replay.interpreter import blocks
from tapegrad.replay.interpreter.row_writer import RowWriter

NO_TABLE = SimpleNamespace(last_reader=[], position=np.zeros(0, int))


def block_of(arena):
    """A block that has no rows yet."""
    block = object.__new__(blocks.InstructionBlock)
    RowWriter.__init__(block, arena)
    block.parts = []
    return block


def bare_block(*values):
    """A block, and the places of these values."""
    arena = _arena.Arena(SimpleNamespace(shown={}), NO_TABLE)
    return block_of(arena), [arena.taken_for_ever(v) for v in values]
