"""Which instructions of a program run together as compiled loops: what is elementwise, what only moves
elements, and sums.

A program is read in order. What can be in a group is gathered. An instruction that cannot, and reads what was
gathered, is deferred. The group is closed when another one reads that, or must not wait. Views of what lies
in memory are no work, and are carried on into the next group."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.primitive import ADD_AT, ASSIGN
from ...ops.shaping import ASTYPE
from ..buffer_pool import is_packed
from ..costs import (
    COSTLY_OPERATIONS,
    GROUP_INSTRUCTIONS,
    GROUP_OPERATIONS,
    GROUPED_ELEMENTS,
    LOOP_CELLS,
    OPERAND_PLACES,
    RECOMPUTED_OPERATIONS,
    WRITTEN_OUT_TERMS,
)
from ..program import Program
from ..record.instructions import GROUP, LAID, Instruction, is_pure, laid_settings
from ..scalar_graph import as_number, cost, of_graph
from .compiled_groups import BOOL, FLOATS, INTEGERS, Group, GroupCode, SummedValue, packed_strides
from .computed_places import INDEXED, IntegerElement, ScatteredSum, indexed, is_exact
from .device import DeviceCode, worth
from .regions import Element, RegionView, WrittenSum, broadcast, cuts_of, moved_region, spread_of, view_region
from .row_products import RowGroup, join_products, split_by_rows

F8, I8 = np.dtype("f8"), np.dtype("i8")
EXTREMES = ("max", "min")
SUM_KINDS = frozenset((SummedValue, ScatteredSum))


class GroupDefinitions:
    """What each instruction is in a group: its definition, or None, as for those of `others`."""

    def __init__(self, program: Program, small: int | None = None, others=(), within=()):
        self.within = within  # what blocks would do else
        self.program, self.shown = program.with_constants(), dict(program.shown)
        self.on_device = small is None and program.on_device  # arrays of CuPy then, and none of NumPy
        self.code = DeviceCode if self.on_device else GroupCode
        self.gain: Callable = worth if self.on_device else Group.gain
        self.extended = small is None  # with extremes and integers
        least = 1 if self.on_device else max(GROUPED_ELEMENTS, 1)
        self.small = least if small is None else small
        self.there = {*program.inputs}
        self.done = set()  # what has been read
        self.ends = {*program.ends, *program.guards}
        self.numbers = {}
        self.pairs = [*program.code]
        self.known = {k: None if k in others else self.definition(k, i) for k, i in self.pairs}
        self.users = {}
        for k, i in self.pairs:
            for a in dict.fromkeys(operands(self.known[k], i)):
                self.users.setdefault(a, []).append(k)
        for k, i in reversed(self.pairs):  # a view that others take is theirs
            d = self.known[k]
            if (
                type(d) is RegionView
                and d.is_view
                and (self.is_base(k) or (view_region(i) is not None and self.is_asked(k)))
                and not i.params.get("copy")
            ):
                self.known[k] = None

    def new_constant(self, v: np.ndarray) -> int:
        """The number of an array that the program has not."""
        k = self.program.size
        self.program.size += 1
        self.program.constants[k], self.shown[k] = v, (True, v.shape, v.strides, v.dtype, True)
        return k

    def is_ours(self, k: int) -> bool:
        """Is it an array of the library of this program?"""
        return self.shown[k][0] is not None and bool(self.shown[k][0]) is not self.on_device

    def is_asked(self, k: int) -> bool:
        return k in self.ends or any([self.known[u] is None for u in self.users.get(k, ())])

    def is_base(self, k: int) -> bool:
        """Are elements read at computed places of it?"""
        return any([getattr(self.known[u], "gathered", None) == k for u in self.users.get(k, ())])

    def float_of(self, k: int, i: Instruction):
        """The dtype of the numbers of an instruction; truth values are counted in numbers of 64 bits."""
        dtypes = [self.shown[a][3] for a in (k, *i.args)]
        found = [F8] if not INTEGERS.isdisjoint(dtypes) else [d for d in dtypes if d in FLOATS]
        return found[0] if found else None

    def is_constant(self, a: int) -> bool:
        return self.constant(a) is not None

    def constant(self, a: int) -> float | None:
        """The number that all elements of a constant are."""
        if a not in self.numbers:
            self.numbers[a] = uniform(self.program.constants.get(a))
        return self.numbers[a]

    def bits(self, k: int) -> np.dtype | None:
        """The dtype of a value that a loop may read or write."""
        numpys, _, strides, dtype, _ = self.shown[k]
        if (
            (numpys is not None and not self.is_ours(k))
            or dtype is None
            or (dtype not in FLOATS and dtype != BOOL)
        ):
            return None
        return None if any([s % dtype.itemsize for s in strides]) else dtype

    def definition(self, k: int, i: Instruction):
        if "under" in i.watched:
            return None
        _, shape, _, dtype, _ = self.shown[k]
        d = indexed(self, k, i) if i.prim in INDEXED else None
        if d is not None:
            return d
        if i.reduces == "add" or (i.reduces in EXTREMES and self.extended):
            return self.sum(k, i)
        if not self.is_ours(k) or math.prod(shape) < self.small or self.operand(k) is None:
            return None
        shapes = [self.shown[a][1] for a in i.args]
        dtypes = [self.operand(a) for a in i.args]
        if any([d is None for d in dtypes]):
            return None
        whole = dtype in INTEGERS or (dtype == BOOL and F8 not in dtypes and not INTEGERS.isdisjoint(dtypes))
        if (whole and self.on_device) or not (whole or INTEGERS.isdisjoint(dtypes) or dtype in (F8, BOOL)):
            return None
        kinds = {d for d in dtypes if d in FLOATS}
        if len(kinds) > 1 or (dtype in FLOATS and kinds and dtype not in kinds):
            return None
        d = moved_region(i, shapes, shape)
        if d is not None and (
            d.form is None or is_packed(self.shown[i.args[0]]) and (not d.turned or is_packed(self.shown[k]))
        ):
            fit = all([x == dtype or (x is float and dtype in FLOATS) for x in dtypes])
            return d if fit and not (whole and i.prim is ADD_AT) else None
        if d is not None:
            return None
        sources = lambda: [(a, broadcast(s, shape)) for a, s in zip(i.args, shapes, strict=True)]
        if whole and i.prim is ASTYPE:
            return IntegerElement(i, sources(), dtypes, dtype)
        found = of_graph(cost, i, tuple([x == BOOL for x in dtypes]))
        if found is None or np.broadcast_shapes(*shapes) != shape:
            return None
        if not whole:
            return Element(i, sources(), *found)
        exact = {BOOL, float, *INTEGERS}.issuperset(dtypes)  # (float: a number of Python)
        exact = exact and of_graph(is_exact, i, tuple([x == BOOL for x in dtypes]))
        return IntegerElement(i, sources(), dtypes, dtype, found[0]) if exact else None

    def operand(self, a: int):
        """The dtype of an operand; `float` of a number of Python."""
        if self.shown[a][3] is None or (self.shown[a][0] is None and a in self.program.constants):
            v = self.program.constants.get(a)
            return None if as_number(v) is None else float if self.shown[a][3] is None else self.shown[a][3]
        if (
            self.extended
            and self.shown[a][3] in INTEGERS
            and self.is_ours(a)
            and not any([s % self.shown[a][3].itemsize for s in self.shown[a][2]])
        ):
            return self.shown[a][3]
        return self.bits(a)

    def sum(self, k: int, i: Instruction):
        x = i.args[0]
        _, shape, _, dtype, _ = self.shown[x]
        counted = dtype == BOOL and i.reduces == "add" and self.extended
        if (
            not self.is_ours(x)
            or math.prod(shape) < self.small
            or self.shown[k][3] != (I8 if counted else dtype)
        ):
            return None
        how, bits = i.reduces or "", self.bits(x)
        if bits is None or (bits not in FLOATS and not counted):
            return None
        axis, keepdims = i.params["axis"], i.params["keepdims"]
        axes = (
            tuple(range(len(shape)))
            if axis is None
            else tuple([a % len(shape) for a in (axis if type(axis) is tuple else (axis,))])
        )
        few = (
            how == "add"
            and not counted
            and len(axes) < len(shape)
            and math.prod([shape[a] for a in axes]) <= WRITTEN_OUT_TERMS
        )
        if few and math.prod(self.shown[k][1]) >= self.small:
            return WrittenSum(x, shape, axes, keepdims)
        if (
            len(axes) == len(shape)
            and (keepdims or counted)
            or self.on_device
            and (len(axes) < len(shape) or not shape or how != "add")
        ):
            return None
        return SummedValue(x, axes, shape, how)


def operands(d, i: Instruction):
    """What an instruction reads: of a buffer that is written as a whole, nothing."""
    return i.args if d is None else [k for k, _ in d.sources()]


class OpenGroup:
    """A group that is being gathered."""

    def __init__(self, carried: dict, before: "OpenGroup | None" = None) -> None:
        self.values: dict = dict(carried)
        self.sums: dict = {}
        self.code: list = []
        self.cuts: dict = {k: before.cuts[k] for k in carried} if before else {}
        self.spread: dict = {k: before.spread[k] for k in carried} if before else {}
        self.forms: dict = (
            {k: before.forms[k] for k in carried if k in before.forms} if before else {}
        )  # values that are counted in another shape
        self.cost = 0
        self.dtype: Any = None

    def holds(self, i: Instruction) -> bool:
        return any([a in self.values or a in self.sums for a in i.args])

    def add(self, k: int, i: Instruction, d, kinds: GroupDefinitions) -> bool:
        """Can it be one more?"""
        form = getattr(d, "form", None)
        for a, _ in d.sources():
            if a in self.values and self.forms.get(a, kinds.shown[a][1]) != (
                form if form and a == d.base else kinds.shown[a][1]
            ):
                return False
        if d.gathered in self.values:
            return False
        if type(d) in SUM_KINDS:
            self.sums[k], self.cuts[k] = d, cuts_of(d, d.shape, self.cuts)
        else:
            shape = kinds.shown[k][1]
            shape = form if form and d.turned else shape
            cuts, spread = cuts_of(d, shape, self.cuts), spread_of(d, shape, self.spread)
            if (
                math.prod([len(c) + 1 for c in cuts]) > LOOP_CELLS
                or len(spread.get(None, ())) > OPERAND_PLACES
            ):
                return False
            if (
                sum(
                    [(len(shifts) - 1) * self.values[v].cost for v, shifts in spread.items() if v is not None]
                )
                > RECOMPUTED_OPERATIONS
            ):
                return False
            if d.cost >= COSTLY_OPERATIONS:
                spread[k] = {(0,) * len(shape)}
            self.values[k], self.cuts[k], self.spread[k] = d, cuts, spread
            if form and d.turned:
                self.forms[k] = form
            self.cost += d.cost
        self.code.append((k, i))
        self.dtype = kinds.float_of(k, i) if self.dtype is None else self.dtype
        return True

    def full(self, dtype, i: Instruction) -> bool:
        """Must another group begin before this instruction?"""
        clash = dtype is not None is not self.dtype and self.dtype != dtype  # (float64 equals None)
        return (
            clash
            or any([a in self.sums for a in i.args])
            or self.cost > GROUP_OPERATIONS
            or len(self.code) >= GROUP_INSTRUCTIONS
        )


class Reader:
    """The instructions of a program in the order of a replay, some of them as groups; `others` are in none.
    `parts`: another order of them, in parts, none of whose groups goes on into the next."""

    def __init__(self, program: Program, others=(), within=(), parts=None):
        self.program, self.kinds = program, GroupDefinitions(program, others=others, within=within)
        self.by_number = dict(self.kinds.pairs)
        self.ready = {*self.kinds.program.inputs}
        self.order = []
        self.groups = []
        self.alone = {}  # name -> how many large ones are in no group
        self.others = others
        self.now = OpenGroup({})
        self.deferred: dict = {}  # instructions that wait for the group
        for part in parts or (self.kinds.pairs,):
            for k, i in part:
                self.read(k, i)
                if k not in self.deferred:
                    self.kinds.done.add(k)
            self.close()
        join_products(self)

    def read(self, k: int, i: Instruction) -> None:
        d = self.kinds.known[k]
        waits = not self.deferred.keys().isdisjoint(i.args)
        if d is None:
            if waits or self.now.holds(i):
                if self.now.code and is_pure(i.prim) and k not in self.program.guards:
                    self.deferred[k] = i
                    return
                self.close()
            self.plain(k, i)
            return
        if waits or self.now.full(self.kinds.float_of(k, i), i):
            self.close()
        if not self.now.add(k, i, d, self.kinds):
            self.close()
            if not self.now.add(k, i, d, self.kinds):
                self.plain(k, i)

    def plain(self, k: int, i: Instruction) -> None:
        """By itself, after what it reads."""
        if k in self.ready:
            return
        if i.prim is ASSIGN and i.args[0] not in self.ready and self.is_copy(k, i):
            i = Instruction(LAID, i.args[1:], laid_settings(*self.kinds.shown[k][1:3]), i.watched)
        for a in i.args:
            if a not in self.ready:
                self.plain(a, self.by_number[a])
        self.order.append((k, i))
        self.ready.add(k)
        large = (
            self.kinds.is_ours(k)
            and math.prod(self.kinds.shown[k][1]) >= self.kinds.small
            and k not in self.others
        )
        if large and view_region(i) is None:
            self.alone[i.name] = self.alone.get(i.name, 0) + 1

    def is_copy(self, k: int, i: Instruction) -> bool:
        """Is it a buffer that is written as a whole, in order, with an array like it?"""
        d, (shape, dtype) = self.kinds.known[k], self.kinds.shown[k][1::2]
        return (
            type(d) is RegionView
            and d.sources() == [(i.args[1], broadcast(shape, shape))]
            and self.kinds.shown[i.args[1]][1::2] == (shape, dtype)
        )

    def close(self) -> None:
        now = self.now
        if now.code:
            made = Group(self.kinds, now)
            if made.saved > 0:
                for a in made.given:
                    if a not in self.ready:
                        self.plain(a, self.by_number[a])
                self.groups.append(made)
                self.order.append((-len(self.groups), Instruction(GROUP, tuple(made.given), made)))
                self.ready.update(made.left)
                for k in made.written:  # a view of what is not in memory has memory of its own now
                    numpys, shape, _, dtype, _ = shown = self.kinds.shown[k]
                    self.kinds.shown[k] = (numpys, shape, packed_strides(shown), dtype, True)
            else:
                for k in made.left:
                    self.plain(k, self.by_number[k])
            self.now = OpenGroup(made.carried, now)
        else:
            self.now = OpenGroup(dict(now.values), now)
        deferred, self.deferred = self.deferred, {}
        for k, i in deferred.items():
            self.plain(k, i)
        self.kinds.done.update(deferred)


def read_groups(program: Program, others, within) -> Reader:
    """What belongs to the rows of a large matrix together, if that gives a loop over them; else in order."""
    reader = Reader(program, others, within)
    if not others and not any([type(group) is RowGroup for group in reader.groups]):
        parts = split_by_rows(GroupDefinitions(program, within=within))
        other = Reader(program, others, within, parts) if parts else reader
        reader = other if any([type(group) is RowGroup for group in other.groups]) else reader
    return reader


def uniform(v) -> float | None:
    if type(v) is not np.ndarray:
        return as_number(v)
    if not v.size or v.dtype not in FLOATS:
        return None
    first = v[(0,) * v.ndim]
    return float(first) if (v == first).all() and (np.signbit(v) == np.signbit(first)).all() else None
