"""Products of one large matrix with elementwise work between them, A f(A x), some rows at a time: so the
matrix is read once.

The rows are shared out in parts, whose sums are added in order: the parts are the same whatever the number of
threads."""

import copy
import ctypes
import functools
import math
from typing import Any

import numpy as np

from ...kernels.launch import waiting
from ...kernels.launch.cpu import HEADER, data_pointer, function_address
from ..buffer_pool import is_packed, packed
from ..costs import MATRIX_BYTES, PART_BYTES, PARTS, TURN_ROWS
from ..record.instructions import GROUP, Instruction, is_pure
from .compiled_groups import FLOATS, CallMemory, Group, SummedValue, maker, with_strides
from .regions import Element, RegionView, identity_map, of_view, view_region
from .row_loops import RowLoopText


class RowGroup:
    """A group with the products before and after it.  `before`: number of the product -> the operand of the
    matrix; `after`: number of the product -> the value that is multiplied by the matrix; `tiled`: what is
    read or made row by row."""

    def __init__(self, group: Group, matrix: int, before: dict, after: dict, tiled: set):
        self.group, self.matrix, self.before, self.after, self.tiled = group, matrix, before, after, tiled
        self.shown = group.shown
        self.count, self.columns = self.shown[matrix][1]
        self.dtype = self.shown[matrix][3]
        inner = set(after.values())
        self.kept = [k for k in group.left if k not in inner]
        self.left = [*self.kept, *after]
        self.written = [k for k in self.kept if k in group.written]
        self.given = list(
            dict.fromkeys([matrix, *before.values(), *[a for a in group.given if a not in before]])
        )
        self.names = [*group.names, *[(k, "matmul") for k in (*before, *after)]]
        self.saved = group.saved
        turns = self.count // TURN_ROWS
        parts = max(min(PARTS, turns, self.count * self.columns * self.dtype.itemsize // PART_BYTES), 1)
        self.cuts = [turns * k // parts for k in range(parts + 1)]
        self.part, self.rest = (
            group_of_rows(group, tiled, TURN_ROWS),
            group_of_rows(group, tiled, self.count % TURN_ROWS) if self.count % TURN_ROWS else None,
        )
        self.makers = {k: maker(self.shown[k]) for k in self.written}
        self.work = 2.0 * self.count * self.columns * (len(before) + len(after))
        self.pool = []

    @functools.cached_property
    def loop(self):
        part = self.part
        steps = [
            packed(self.shown[k][1], self.shown[k][3].itemsize)[0] * TURN_ROWS
            for k in row_arrays(part, self.tiled, self.before, self.after)
        ]
        counts = len(self.before), len(self.after), len(part.totals)
        text = RowLoopText(self.columns, FLOATS[self.dtype], *counts, steps).text()
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(function_address(text, "rows"))

    def __call__(self, *given):
        """As of a group."""
        values = dict(zip((*self.given, *self.written), given, strict=True))
        matrix = values[self.matrix]
        for a in (self.matrix, *[a for a in self.group.arrays if a not in self.before]):
            values[a] = with_strides(values[a], self.shown[a][2])
        vectors = [np.ascontiguousarray(values[a]) for a in self.before.values()]
        if any([data_pointer(x) % self.dtype.itemsize for x in (matrix, *vectors)]):
            return None
        for k in self.written:
            if values[k] is None:
                values[k] = self.makers[k]()
        loop = self.loop
        try:
            frames = self.pool.pop()
        except IndexError:
            frames = [Frame(self) for _ in self.cuts[1:]]
        for frame, first in zip(frames, self.cuts, strict=False):
            frame.fill(self, values, matrix, vectors, first * TURN_ROWS)

        def run(start: int, stop: int) -> None:
            for k in range(start, stop):
                loop(frames[k].address, self.cuts[k + 1] - self.cuts[k])

        if len(frames) == 1 or self.work <= waiting.THREADED_OPERATIONS:
            run(0, len(frames))
        else:
            waiting.run_blocks(len(frames), self.work, run)
        found = None if any([frame.failed() for frame in frames]) else self.result(values, matrix, frames)
        self.pool.append(frames)
        return found

    def result(self, values: dict, matrix: np.ndarray, frames: list):
        """What it makes; the rows that are left over are done here."""
        sums = frames[0].sums.copy() if len(frames) == 1 else np.add.reduce([frame.sums for frame in frames])
        totals = np.add.reduce([frame.totals for frame in frames])
        made = {**{k: values[k] for k in self.written}, **dict(zip(self.after, sums, strict=True))}
        made |= dict(zip(self.group.totals, totals, strict=False))
        if self.rest is not None:
            first = self.count // TURN_ROWS * TURN_ROWS
            rows = matrix[first:]
            part = lambda a: (
                rows.dot(values[self.before[a]])
                if a in self.before
                else values[a][first:]
                if a in self.tiled
                else values[a]
            )
            memory = [values[k][first:] if k in self.makers else None for k in self.group.written]
            found = self.rest(*[part(a) for a in self.group.given], *memory)
            if found is None:
                return None
            found = dict(zip(self.group.left, found, strict=True))
            for k in self.group.totals:
                made[k] += found[k]
            for k, r in self.after.items():
                made[k] += found[r].dot(rows)
        return tuple([made[k] for k in self.left])


def row_arrays(part: Group, tiled: set, before: dict, after: dict) -> list:
    """The arrays of a group of which each turn reads or writes other rows."""
    inner = set(after.values())
    return [k for k in (*part.arrays, *part.written) if k in tiled and k not in before and k not in inner]


class Frame:
    """Memory for one part of the rows: what the loop reads, and the table of the group."""

    def __init__(self, rows: RowGroup):
        part, dtype = rows.part, rows.dtype
        code = part.ready()
        self.state = CallMemory(part)
        arrays = [*part.arrays, *part.written]
        self.where = (ctypes.c_int64 * max(len(arrays), 1))()  # the addresses of the arrays' elements
        self.places = {a: n for n, a in enumerate(arrays)}
        first = ctypes.addressof(self.where)
        # the table has the address of an object, which holds that of the elements
        for n in range(len(arrays)):
            self.state.table[n] = first + 8 * n - HEADER if HEADER else 0
        inner = list(dict.fromkeys((*rows.before, *rows.after.values())))
        self.inner = np.empty((len(inner), TURN_ROWS), dtype)
        self.sums, self.totals = (
            np.empty((len(rows.after), rows.columns), dtype),
            np.empty(max(len(part.totals), 1), dtype),
        )
        there = dict(zip(inner, [data_pointer(x) for x in self.inner], strict=True))
        for k, place in there.items():
            self.put(k, place)
        slots = [self.slot(k) for k in row_arrays(part, rows.tiled, rows.before, rows.after)]
        count = len(rows.before)
        fixed = [there[k] for k in (*rows.before, *rows.after.values())] + [
            data_pointer(x) for x in self.sums
        ]
        fixed += [ctypes.cast(code.all, ctypes.c_void_p).value, self.state.address]
        fixed += [data_pointer(self.state.totals), data_pointer(self.totals), *slots]
        self.frame = (ctypes.c_int64 * (1 + count + len(fixed)))(*[0] * (1 + count), *fixed)
        self.address = ctypes.addressof(self.frame)

    def slot(self, k: int) -> int:
        """Where the address of an array is, which the loop moves on."""
        n = self.places[k]
        return ctypes.addressof(self.where) + 8 * n if HEADER else self.state.address + 8 * n

    def put(self, k: int, there: int) -> None:
        if HEADER:
            self.where[self.places[k]] = there
        else:
            self.state.table[self.places[k]] = there

    def fill(self, rows: RowGroup, values: dict, matrix: np.ndarray, vectors: list, first: int) -> None:
        self.frame[0] = data_pointer(matrix) + first * matrix.strides[0]
        for n, x in enumerate(vectors):
            self.frame[1 + n] = data_pointer(x)
        for k in self.places:
            if k in values:
                x = values[k]
                self.put(k, data_pointer(x) + (first * x.strides[0] if k in rows.tiled else 0))
        for n, a in enumerate(rows.part.single):
            self.state.numbers[n] = values[a]
        self.sums.fill(0.0)
        self.totals.fill(0.0)

    def failed(self) -> bool:
        """Was a value not finite that a plain call might warn of?"""
        found = bool(self.state.flag[0])
        self.state.flag[0] = 0
        return found


def group_of_rows(group: Group, tiled: set, n: int) -> Group:
    """The group for n rows."""
    part = copy.copy(group)
    part.shown = dict(group.shown)
    for k in tiled:
        numpys, shape, _, dtype, owns = group.shown[k]
        part.shown[k] = (numpys, (n, *shape[1:]), packed((n, *shape[1:]), dtype.itemsize), dtype, owns)
    part.sums = {k: SummedValue(d.k, d.axes, (n, *d.shape[1:]), d.how) for k, d in group.sums.items()}
    part.code, part.pool = None, []
    return part


def join_products(reader) -> None:
    """Puts groups together with products of a matrix before and after them."""
    order, kinds = reader.order, reader.kinds
    place = {k: n for n, (k, _) in enumerate(order)}
    gone = set()
    for n, (key, i) in enumerate(order):
        if i.prim is not GROUP:
            continue
        found = tiles_of(i.params, kinds, reader)
        if found is None:
            continue
        gone.update([place[k] for k in (*found.before, *found.after)])
        order[n] = (key, Instruction(GROUP, tuple(found.given), found))
        reader.groups[reader.groups.index(i.params)] = found
        counted = [k for k in (*found.before, *found.after) if math.prod(kinds.shown[k][1]) >= kinds.small]
        reader.alone["matmul"] = reader.alone.get("matmul", 0) - len(counted)
    reader.alone = {name: n for name, n in reader.alone.items() if n}
    reader.order = [item for n, item in enumerate(order) if n not in gone]


def split_by_rows(kinds) -> tuple | None:
    """The instructions in three parts, of which the second is all work on the rows of a large matrix that
    several products share; None if there is none, or the order matters."""
    code, matrices, turned = kinds.pairs, [], {}
    if not all([is_pure(i.prim) for _, i in code]):
        return None
    for k, i in code:
        if view_region(i) is not None:
            turned[k] = i.args[0]
        elif i.reduces == "products" and len(kinds.shown[k][1]) == 1:
            matrices += [
                same_matrix(a, kinds) for a in [turned.get(a, a) for a in i.args] if is_row_matrix(a, kinds)
            ]
    shared = [
        a
        for a in dict.fromkeys(matrices)
        if matrices.count(a) > 1 and byte_size(kinds.shown[a]) >= MATRIX_BYTES
    ]
    if not shared:
        return None
    rows = kinds.shown[shared[0]][1][:1]
    parts = ([], [], [])
    place = {}
    for k, i in code:
        d, given = kinds.known[k], [place.get(a, 0) for a in i.args]
        of_rows = (
            d.k in place and place[d.k] == 1
            if type(d) is SummedValue
            else d is not None and kinds.shown[k][1][:1] == rows
        )
        place[k] = 2 if 2 in given else 1 if of_rows else 2 if 1 in given else 0
        parts[place[k]].append((k, i))
    return parts


def byte_size(shown: tuple) -> int:
    """In bytes."""
    return math.prod(shown[1]) * shown[3].itemsize


def tiles_of(group: Group, kinds, reader) -> RowGroup | None:
    tiled = of_first_axis(group, kinds)
    if tiled is None:
        return None
    code = reader.by_number
    before = {}
    for z in group.arrays:
        i = code.get(z)
        if (
            z in tiled
            and i is not None
            and i.reduces == "products"
            and z not in kinds.ends
            and is_row_matrix(i.args[0], kinds)
        ):
            if all([u in group.values or u in group.sums for u in kinds.users[z]]) and kinds.shown[z][4]:
                before[z] = (same_matrix(i.args[0], kinds), i.args[1])
    after = {}
    for r in group.stored:
        users = kinds.users.get(r, ())
        if r in kinds.ends or len(kinds.shown[r][1]) != 1 or not users:
            continue
        found = {
            u: matrix_after(code[u], r, kinds, code)
            for u in users
            if u not in group.values and u not in group.sums
        }
        if found and all([m is not None for m in found.values()]):
            after |= {u: (r, same_matrix(m, kinds)) for u, m in found.items()}
    for matrix in dict.fromkeys([*[args[0] for args in before.values()], *[m for _, m in after.values()]]):
        first = {z: args[1] for z, args in before.items() if args[0] == matrix}
        last = {u: r for u, (r, m) in after.items() if m == matrix}
        last = {
            u: r
            for u, r in last.items()
            if all([v in last or v in group.values or v in group.sums for v in kinds.users[r]])
        }
        _, shape, _, dtype, _ = kinds.shown[matrix]
        fits = dtype == group.dtype and all(
            [kinds.shown[x][1] == shape[1:] and kinds.shown[x][3] == dtype for x in first.values()]
        )
        if (
            fits
            and len(first) + len(last) > 1
            and byte_size(kinds.shown[matrix]) >= MATRIX_BYTES
            and shape[0] == next(iter(row_group(group, tiled)))
        ):
            return RowGroup(group, matrix, first, last, tiled)
    return None


def same_matrix(a: int, kinds) -> int:
    """The first constant that is the same matrix: each use of an array that is read-only may have noted
    one."""
    v = kinds.program.constants.get(a)
    if v is None:
        return a
    like = [k for k, w in kinds.program.constants.items() if kinds.shown[k][:4] == kinds.shown[a][:4]]
    return next(
        k
        for k in sorted(like)
        if kinds.program.constants[k] is v or np.array_equal(kinds.program.constants[k], v)
    )


def row_group(group: Group, tiled: set) -> set:
    return {group.shown[k][1][0] for k in tiled}


def is_row_matrix(a: int, kinds) -> bool:
    """Is it a matrix that is there from the beginning, row by row?"""
    numpys, shape, _, dtype, _ = shown = kinds.shown[a]
    return a in kinds.there and bool(numpys) and len(shape) == 2 and is_packed(shown) and dtype.kind == "f"


def matrix_after(i: Instruction, r: int, kinds, code: dict):
    """The matrix that a vector is multiplied by, r A or A' r."""
    if i.reduces != "products" or i.args[0] == i.args[1]:
        return None
    if i.args[0] == r:
        return i.args[1] if is_row_matrix(i.args[1], kinds) else None
    turned: Any = code.get(i.args[0])
    view = None if turned is None or not is_row_matrix(turned.args[0], kinds) else view_region(turned)
    if view is None or of_view(view, kinds.shown[turned.args[0]][1]) != transpose_map(
        kinds.shown[turned.args[0]][1]
    ):
        return None
    return turned.args[0]


def transpose_map(shape: tuple) -> tuple:
    """The shape and the map of a transpose."""
    return shape[::-1], ((0, (0, 1)), (0, (1, 0)))


def goes_on(k: int, d, group: Group) -> bool:
    """Does a value lie row by row, each row made of those of others?"""
    shape = group.shown[k][1]
    if type(d) is RegionView and not (
        d.is_view and d.form is None and d.pieces[0].box is None and d.sources()[0][1] == identity_map(shape)
    ):
        return False
    return type(d) in (Element, RegionView) and is_packed(group.shown[k])


def is_spread(d) -> bool:
    """Is it one number at all places?"""
    return (
        type(d) is RegionView
        and d.is_view
        and d.form is None
        and d.pieces[0].box is None
        and not any([any(s) for _, s in d.sources()[0][1]])
    )


def of_first_axis(group: Group, kinds) -> set | None:
    """What the group reads or makes row by row, if it is all work on rows by themselves; None if it is
    not."""
    tiled = set()
    count = {group.shown[k][1][:1] for k in group.values} | {d.shape[:1] for d in group.sums.values()}
    if len(count) != 1 or group.forms or () in count:
        return None
    for k, d in group.values.items():
        if not (goes_on(k, d, group) or (is_spread(d) and k not in group.left)):
            return None
        tiled.add(k)
        for a, m in d.sources():
            along = [j for j, (_, steps) in enumerate(m) if steps[0]]
            if not along or kinds.is_constant(a):
                continue
            if along != [0] or not is_packed(group.shown[a]):
                return None
            tiled.add(a)
    for k, d in group.sums.items():
        if k not in group.totals or d.k not in group.values or d.how != "add":
            return None
    return tiled
