"""Systems of equations with one matrix: it is factored once, also for its transpose."""

import numpy as np

from .._core.arrays import F8
from .._core.primitive import READ
from ..ops import shaping
from ..ops.linalg.factorizations import FACTORS, SOLUTION, SYSTEM
from .costs import MATRIX_UNKNOWNS
from .record.abstract_values import look_of

# (instructions with one object of settings, and values with one layout, count as repeated: InstructionTable)
SETTINGS: dict = {of: {"transposed": of} for of in (False, True)}
NO_SETTINGS: dict = {}


def with_shared_factors(program):
    """Return the program in which a matrix that several instructions solve for, or its transpose, is factored
    once, before them; the same program if there is none. What it adds has no derivative: it is to be run."""
    if not program.solves:
        return program
    systems = {}  # matrix -> [(position of the instruction, is it of the transpose?)]
    looks = program.looks
    at = [n for n, (prim, *_) in enumerate(program.what) if prim is SYSTEM]
    made = {k: n for n, k in enumerate(program.numbers)} if len(at) > 1 else {}
    for n in at if made else ():
        shown = [looks[k][1] for k in program.operands[n]]
        (_, (unknowns, *_), *_), (_, columns, *_) = shown
        fit = all([numpys and dtype == F8 and 0 < len(shape) < 3 for numpys, shape, _, dtype, _ in shown])
        if fit and unknowns > MATRIX_UNKNOWNS and 0 not in columns:
            matrix, transposed = untransposed(program, made, program.operands[n][0])
            systems.setdefault(matrix, []).append((n, transposed))
    if all([len(several) == 1 for several in systems.values()]):
        return program
    program = program.with_copied_instructions()
    before = {}  # position -> the factors that are made there
    layouts = {}  # unknowns -> that of the factors
    for matrix, several in systems.items():
        if len(several) > 1:
            unknowns, k = looks[matrix][1][1][0], program.size
            program.size += 1
            if unknowns not in layouts:
                layouts[unknowns] = look_of(np, (unknowns + 1, unknowns), (unknowns * 8, 8), F8)[1]
            program.added[k] = layouts[unknowns]
            before[several[0][0]] = k, matrix
            for n, transposed in several:
                _, b = program.operands[n]
                program.what[n] = SOLUTION, SETTINGS[transposed], program.what[n][2]
                program.operands[n] = k, b
    for n, (k, matrix) in sorted(before.items(), reverse=True):
        program.numbers.insert(n, k)
        program.what.insert(n, (FACTORS, NO_SETTINGS, program.what[n][2]))
        program.operands.insert(n, (matrix,))
    return program


def untransposed(program, made: dict, k: int) -> tuple:
    """(the matrix of which a value is the transpose, or that value; is it the transpose?)"""
    transposed = False
    while k in made:
        prim, params, _ = program.what[made[k]]
        if prim is shaping.TRANSPOSE:
            turned = tuple(params["axes"]) == (1, 0)
        else:
            turned = prim is READ and params["path"] == (("transpose", (1, 0)),) and params["at"] is None
        if not turned:
            break
        k, transposed = program.operands[made[k]][0], not transposed
    return k, transposed
