"""Which instructions of a program the interpreter can do, and which runs of them are worth a block."""

import math

import numpy as np

from ..._core.arrays import C16, F8
from ..._core.primitive import ADD_AT, ASSIGN, READ
from ...ops.indexing.regions import PARTS
from ...ops.shaping import copy
from ..costs import (
    BLOCK_ELEMENTS,
    BLOCK_PRODUCTS,
    BLOCK_ROWS,
    BUFFER_ELEMENTS,
    COMPLEX_BLOCK_ELEMENTS,
    COPIED_ELEMENTS,
    TRANSFER_ROWS,
)
from ..instruction_table import END, InstructionTable, runs_of
from ..program import Program
from ..record.instructions import GROUP, PART, Instruction
from .machine_code import LIBM, interpreter
from .placed_arrays import FLOAT_BITS, KINDS, products_of_stack
from .placed_bodies import placed_body

NUMBERS = frozenset((float, int))


class InstructionKinds:
    """Which instructions of a program the interpreter can do.  `exact`: only those that give what NumPy gives
    for all values, finite or not."""

    def __init__(self, program: Program, exact: bool = False):
        self.program, self.shown, self.exact = program, program.shown, exact
        self.sizes = {}  # id of a layout -> elements, if they are float64
        self.known = {}  # value -> its kind
        self.bodies = {}  # class -> the `PlacedBody` of its instructions, or None
        self.table = InstructionTable(program, program.shown)
        self.classes = self.table.classes_of_values()
        self.moving = self.table.of_classes(self.moves_elements).tolist()
        parts = self.table.each(lambda _, i: i.prim is PART)
        self.several = self.results_read_at_once(np.flatnonzero(parts).tolist())
        self.views = self.table.each(lambda _, i: i.prim is READ or is_move(i.prim))
        self.possible = self.table.each(self.can)
        for n in np.flatnonzero(parts | self.table.each(lambda _, i: bool(i.prim.multi))).tolist():
            self.possible[n] = self.can(*program.code[n])

    def is_float(self, k: int, most: int = BUFFER_ELEMENTS) -> bool:
        layout = self.shown[k]
        size = self.sizes.get(id(layout))
        if size is None:
            numpys, shape, _, dtype, _ = layout
            if dtype is None:
                return type(self.program.constants.get(k)) in NUMBERS
            size = self.sizes[id(layout)] = (
                math.prod(shape) if numpys is not False and dtype == F8 else BUFFER_ELEMENTS + 1
            )
        return size <= most

    def kind(self, k: int) -> str:
        """That of the dtype of a value that the arena can hold; else "-"."""
        found = self.known.get(k)
        if found is None:
            found = self.known[k] = self.kind_of(k)
        return found

    def kind_of(self, k: int) -> str:
        constant = self.program.constants.get(k)
        if self.is_float(k):
            return "i" if type(constant) is int and is_exact(constant) else "f"
        if type(constant) is complex:
            return "c"
        numpys, shape, _, dtype, _ = self.shown[k]
        most = COMPLEX_BLOCK_ELEMENTS if dtype == C16 else BUFFER_ELEMENTS
        kind = KINDS.get(dtype, "-") if numpys is not False and math.prod(shape) <= most else "-"
        return "-" if kind == "i" and constant is not None and not is_exact(constant) else kind

    def results_read_at_once(self, parts: list) -> dict:
        """Operations with several results, of which the next instructions each read one, and nobody else any:
        value -> (its instruction, those that read the results)."""
        code, found = self.program.code, {}
        for n in parts:
            k, i = code[n]
            made = i.args[0]
            if code[n - 1][0] == made:
                found[made] = code[n - 1][1], [(k, i)]
            elif made in found and code[n - 1][1].args == i.args:
                found[made][1].append((k, i))
        return {
            k: (i, readers)
            for k, (i, readers) in found.items()
            if self.table.reads[k] == len(readers) and self.table.last[k] != END
        }

    def may(self, k: int, i: Instruction) -> bool:
        """Do the flags and the conditions of an instruction allow a block?"""
        if i.prim is GROUP or "under" in i.watched:
            return False
        kind = self.kind(k)
        return kind in "ib" or all([g.truth and kind == "f" for g in self.program.guards.get(k, ())])

    def can(self, k: int, i: Instruction) -> bool:
        prim, args = i.prim, i.args
        if prim is PART:
            return args[0] in self.several and self.can(args[0], self.several[args[0]][0])
        if not self.may(k, i):
            return False
        kinds = tuple([self.kind(a) for a in args])
        if prim.multi:
            readers = self.several[k][1] if k in self.several else ()
            fit = readers and all([self.is_float(j) and self.may(j, reader) for j, reader in readers])
            return bool(fit) and "-" not in kinds and self.body(k, i) is not None
        kinds = (self.kind(k), *kinds)
        if "-" in kinds or (self.exact and "c" in kinds):
            return False
        floats = {*kinds[1:]} == {"f"}
        if prim is READ or prim is ASSIGN or prim is ADD_AT:
            return self.can_be_seen(prim, kinds, [step for step, _ in i.params["path"]])
        if self.is_moving(k):
            return True
        if prim.reduces == "add" and floats:
            return kinds[0] == "f"
        if prim.reduces == "products" and floats:
            return self.is_float(k, BLOCK_ELEMENTS) and self.products(args) <= BLOCK_PRODUCTS
        body = self.body(k, i) if math.prod(self.shown[k][1]) <= BLOCK_ELEMENTS else None
        exact = body is not None and body.exact and not (body.foreign and i.watched)
        return body is not None and (exact or not self.exact)

    def moves_elements(self, k: int, i: Instruction) -> bool:
        return is_move(i.prim) and len({self.kind(a) for a in (k, *i.args)}) == 1

    def is_moving(self, k: int) -> bool:
        """Is each element of the result one of the operands, as it is?"""
        return self.moving[self.classes[k]]

    def can_be_seen(self, prim, kinds: tuple, path: list) -> bool:
        """Is a region of an array, that is read or written, other places of the array?"""
        components = PARTS.intersection(path)
        if "einsum" in path or (components and kinds[1] != "c"):
            return False
        if prim is READ:
            return kinds == ("f" if components else kinds[1], kinds[1])
        into = (
            kinds[0] == kinds[1]
            and kinds[0] in "fc"
            and (kinds[2] != "c" or kinds[0] == "c" and not components)
        )
        return into or (prim is ASSIGN and len({*kinds}) == 1)

    def body(self, k: int, i: Instruction):
        """How an instruction runs on places; None where it does not."""
        of = self.classes[k]
        if of not in self.bodies:
            kind = "-" if i.prim.multi else self.kind(k)
            kinds = (kind, *[self.kind(a) for a in i.args])
            self.bodies[of] = placed_body(k, i, self.shown, kinds, self.exact)
        return self.bodies[of]

    def products(self, args: tuple) -> float:
        x, y = [self.shown[a][1] for a in args]
        if not x or not y or (len(x) == 1 or len(y) == 1) and len(x) + len(y) > 3:
            return math.inf
        return products_of_stack(x, y)


def is_exact(v) -> bool:
    """Are whole numbers the same as floats?"""
    return bool(np.all((v > -(2**FLOAT_BITS)) & (v < 2**FLOAT_BITS)))


def is_move(prim) -> bool:
    """Does the operation but move elements, whatever they are?"""
    return prim is not READ and (prim.batch == "moves" or prim is copy.prim)


def has_own_function(i: Instruction) -> bool:
    """Is it `exp` or its like, of which blocks do several elements at once?"""
    return i.name in LIBM


def block_ranges(kinds: InstructionKinds) -> list:
    """(start, stop) of the instructions that are worth a block, in order."""
    if interpreter() is None:
        return []
    table, can, found = kinds.table, kinds.possible, []
    inside, outside = np.zeros(len(table.position), bool), table.read_outside(~can)
    inside[table.made[can]] = True
    views = np.concatenate([[0], kinds.views.cumsum()])
    for start, stop in runs_of(can):
        given, made = table.values_read(start, stop), table.made[start:stop]
        moved = [*given[~(inside | table.constant)[given]].tolist(), *made[outside[made]].tolist()]
        cost = sum([1 + math.prod(kinds.shown[k][1]) / COPIED_ELEMENTS for k in moved])
        if stop - start - (views[stop] - views[start]) >= BLOCK_ROWS + TRANSFER_ROWS * cost:
            found.append((start, stop))
    return found
